/* The adapters of an engine: loads them into free numbers within the planned memory. */
#include "engine/adapters/adapters.h"

#include <assert.h>

#include "engine/internal.h"

/* A loaded adapter, or a free number. */
struct engine_adapter {
    struct adapter *adapter; /* NULL: the number is free */
};

int engine_max_adapters(const struct engine *engine) {
    return engine->model.adapters.n;
}

/* Returns a free number, or 0. */
static int free_number(const struct engine *engine) {
    for (int i = 0; i < engine_max_adapters(engine); i++)
        if (!engine->adapters[i].adapter) return i + 1;
    return 0;
}

enum status engine_adapter_load(struct engine *engine, const char *path, int *number,
                                struct adapter_facts *facts, struct err *err) {
    struct model_adapters *all = &engine->model.adapters;
    assert(all->n > 0);
    if (!engine->adapters)
        engine->adapters = mem_try_calloc((size_t)all->n, sizeof *engine->adapters);
    if (!engine->adapters) return err_out_of_memory(err);
    *number = free_number(engine);
    if (*number == 0)
        return err_set(err, STATUS_USAGE, "max-loras",
                       "%d adapters are in memory, which is {max-loras}; unload one, or give more "
                       "at start-up",
                       all->n);
    const struct adapter_limits limits = {engine->max_adapter_rank, all->bytes - all->used_bytes};
    struct adapter *adapter;
    enum status status = adapter_read(&adapter, path, &engine->model, &limits, err);
    if (status) return status;
    engine->adapters[*number - 1].adapter = adapter;
    all->used_bytes += adapter->bytes;
    assert(all->used_bytes <= all->bytes);
    model_adapter_set(&engine->model, *number, adapter);
    *facts = (struct adapter_facts){adapter->rank, adapter->n, adapter->bytes};
    return STATUS_OK;
}

void engine_adapter_unload(struct engine *engine, int number) {
    assert(number > 0 && number <= engine_max_adapters(engine) && engine->adapters);
    struct adapter **adapter = &engine->adapters[number - 1].adapter;
    assert(*adapter);
    model_adapter_clear(&engine->model, number);
    engine->model.adapters.used_bytes -= (*adapter)->bytes;
    adapter_free(*adapter);
    *adapter = NULL;
}

void engine_adapters_close(struct engine *engine) {
    for (int i = 0; engine->adapters && i < engine_max_adapters(engine); i++)
        adapter_free(engine->adapters[i].adapter);
    mem_free(engine->adapters);
}
