/* Adapters in GGUF files, as llama.cpp's convert_lora_to_gguf.py writes them: general.type is
 * "adapter", adapter.type is "lora", and adapter.lora.alpha is the numerator of the scale. The name
 * of a tensor is that of the base model's tensor, followed by its half:
 * blk.0.attn_q.weight.lora_a. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/adapters/internal.h"
#include "engine/files/tensors/gguf.h"

/* Fails unless the key is that text. */
static enum status expect_text(const struct adapter_file *file, const struct gguf *gguf,
                               const char *key, const char *wanted) {
    const char *text;
    size_t length;
    enum status status = gguf_string(gguf, key, &text, &length, file->err);
    if (status || (strlen(wanted) == length && memcmp(wanted, text, length) == 0)) return status;
    return err_set(file->err, STATUS_BAD_FILE, key,
                   "key %s is \"%.*s\"; expected \"%s\" in an adapter", key,
                   (int)(length < 64 ? length : 64), text, wanted);
}

static enum status check_keys(const struct adapter_file *file, const struct gguf *gguf) {
    const struct model_config *config = &file->model->config;
    const char *text;
    size_t length;
    enum status status = expect_text(file, gguf, "general.type", "adapter");
    if (!status) status = expect_text(file, gguf, "adapter.type", "lora");
    if (!status) status = gguf_string(gguf, "general.architecture", &text, &length, file->err);
    if (status) return status;
    if (!adapter_is_for(config, text, length))
        return err_set(
            file->err, STATUS_BAD_FILE, "general.architecture",
            "key general.architecture is \"%.*s\", but the model's is \"%s\": the adapter "
            "was made for another base model",
            (int)(length < 64 ? length : 64), text, config->architecture);
    if (gguf_find(gguf, "adapter.alora.invocation_tokens"))
        return err_set(file->err, STATUS_BAD_FILE, "adapter.alora.invocation_tokens",
                       "key adapter.alora.invocation_tokens asks for aLoRA, which is not "
                       "supported");
    return STATUS_OK;
}

/* Returns the role of a tensor by its name in GGUF files, and its layer. */
static enum role find_role(const struct model_config *config, const char *name, int *layer) {
    char wanted[ROLE_NAME_BYTES];
    *layer = -1;
    if (strncmp(name, "blk.", 4) == 0) {
        char *end;
        long number = strtol(name + 4, &end, 10);
        if (end == name + 4 || *end != '.' || number < 0 || number >= config->L) return N_ROLES;
        *layer = (int)number;
    }
    for (enum role role = 0; role < N_ROLES; role++) {
        if (role_is_of_layer(role) != (*layer >= 0)) continue;
        if (*layer >= 0 && !config_may_have_in(config, role, *layer)) continue;
        config_role_name(wanted, config, role, *layer);
        if (strcmp(wanted, name) == 0) return role;
    }
    return N_ROLES;
}

static enum status add_tensor(struct adapter_file *file, const struct weight *weight,
                              double alpha) {
    static const char ends[2][8] = {".lora_a", ".lora_b"};
    const size_t length = strlen(weight->name), end = strlen(ends[0]);
    char name[WEIGHT_MAX_NAME + 1];
    int half = 0, layer;
    while (half < 2 && (length <= end || strcmp(weight->name + length - end, ends[half]) != 0))
        half++;
    if (half == 2)
        return err_set(file->err, STATUS_BAD_FILE, weight->name,
                       "tensor %s is a whole tensor; only .lora_a and .lora_b are supported",
                       weight->name);
    snprintf(name, sizeof name, "%.*s", (int)(length - end), weight->name);
    enum role role = find_role(&file->model->config, name, &layer);
    /* the rank is a's number of rows, b's length of a row */
    double rank = (double)(half == 0 ? weight->dim[1] : weight->dim[0]);
    return pair_add(file, weight, half == 0 ? 'a' : 'b', role, layer,
                    alpha == 0 ? 1 : (float)(alpha / rank));
}

enum status gguf_adapter_read(struct adapter **out, struct adapter_file *file,
                              const struct adapter_limits *limits) {
    struct gguf *gguf;
    double alpha = 0;
    file->in_gguf = true;
    enum status status = gguf_open(&gguf, file->path, file->err);
    if (status) return status;
    status = check_keys(file, gguf);
    if (!status) status = gguf_float_or(gguf, "adapter.lora.alpha", 0, &alpha, file->err);
    for (int i = 0; i < gguf->weights.n && !status; i++)
        status = add_tensor(file, &gguf->weights.tensor[i], alpha);
    if (!status) status = parts_make(out, file, limits);
    if (!status) status = mapping_check(&gguf->file, file->err);
    gguf_close(gguf);
    return status;
}
