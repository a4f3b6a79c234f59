#include "engine/models/model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "config/name_index.h"

static enum status add_tensor(struct weights *out, const struct model_config *config,
                              enum role role, int layer, enum dtype dtype, struct err *err) {
    assert(layer >= -1 && layer < config->L);
    const struct role_info *info = role_info(role);
    struct weight weight = {.type = info->K ? dtype : DTYPE_F32, .n_dims = info->K ? 2 : 1};
    int N = role_extent(config, info->N, layer), K = role_extent(config, info->K, layer);
    weight.dim[0] = info->K ? K : N;
    weight.dim[1] = N;
    if (info->of_experts) weight.dim[weight.n_dims++] = config->experts.E;
    if (info->of_heads) weight.n_dims = 2, weight.dim[0] = config->D, weight.dim[1] = N / config->D;
    if (info->of_taps) weight.n_dims = 2, weight.dim[0] = config->taps, weight.dim[1] = config->C;
    config_role_name(weight.name, config, role, layer);
    enum status status = weight_measure(&weight, err);
    return status ? status : weights_add(out, &weight, err);
}

enum status dummy_weights(struct weights *out, const struct model_config *config, enum dtype dtype,
                          struct err *err) {
    enum status status = STATUS_OK;
    assert(!out->tensor && config->L > 0);
    weights_init(out, (size_t)N_ROLES * (size_t)config->L);
    for (int layer = -1; layer < config->L; layer++) /* -1: tensors outside the layers */
        for (enum role role = 0; role < N_ROLES && !status; role++)
            if (config_has_in(config, role, layer))
                status = add_tensor(out, config, role, layer, dtype, err);
    return status;
}

void *dummy_matrix(const struct weight *weight) {
    struct random_weights random;
    void *rows = mem_large(weight->bytes);
    random_weights_plan(&random, weight->type, (int)weight->dim[0],
                        name_hash(weight->name, strlen(weight->name)));
    random_weights_fill(&random, rows, 0, weight->bytes);
    return rows;
}
