/* Opens a model as a rank above 0, in a process of its own. Rank 0 decides everything that depends
 * on memory, so this process only reads the model's config and checks it. */
#include <assert.h>

#include "engine/internal.h"
#include "kernels/gpu_group.h"

/* Opens the files and makes the plan. An error of theirs goes to rank 0. Invalid settings leave
 * the plan empty: rank 0 has the same ones and reports them. */
static enum status follow_open(struct opening *o, struct ranks_plan *plan, bool *is_valid,
                               struct err *err) {
    const struct engine_config *config = &o->config;
    enum status status =
        model_file_open(&o->file, config->model, config->dummy ? MODEL_SHAPE : MODEL_WHOLE, err);
    if (status) return status;
    o->file.has_stand_in |= config->stand_in_vocabulary;
    status = model_file_guess(&o->file, config, err);
    if (!status) status = open_config(o, err);
    if (!status) status = open_device(o, err);
    if (!status && config->device == DEVICE_CUDA) status = gpu_group_check(err);
    if (status) return status;
    machine_memory_read(&o->machine);
    *plan = (struct ranks_plan){.model = &o->engine->model.config,
                                .weights = model_file_weights(&o->file),
                                .eagle = model_file_eagle(&o->file),
                                .config = config};
    open_adapter_memory(o);
    *is_valid = !settings_check(o, NULL);
    if (*is_valid) plan->backend = backend_plan(o->engine, config);
    return STATUS_OK;
}

enum status engine_follow(const struct engine_config *config, int *code, struct err *err) {
    struct opening o = {.config = *config};
    struct err why = {0};
    struct ranks_plan plan = {0};
    bool is_valid = false;
    assert(config->peers && peers_rank(config->peers) > 0);
    o.engine = mem_calloc(1, sizeof *o.engine);
    if (o.config.max_logit_rows == 0) o.config.max_logit_rows = o.config.max_num_seqs;
    if (o.config.ranks == 0) o.config.ranks = 1;
    enum status status = follow_open(&o, &plan, &is_valid, &why);
    const struct ranks_self self = {plan.model,          plan.weights, plan.eagle,      plan.config,
                                    o.machine.available, o.gpu,        o.machine.device};
    assert(status == why.status);
    status = ranks_follow(config->peers, &self, is_valid ? &plan : NULL, &why, code, err);
    model_file_close(&o.file);
    engine_close(o.engine);
    return status;
}
