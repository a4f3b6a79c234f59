/* DESIGN: the adapters of an engine.
 *
 * Purpose   Loads adapters into free numbers within the planned memory, on all ranks.
 * Ranks     An adapter has a part for each rank. Ranks in this process read the engine's parts.
 *           Ranks that are processes have copies, so their parts are freed here.
 * Threads   One thread at a time loads and unloads, which may be another than the engine thread.
 *           The engine thread may meanwhile close the other ranks and open new ones (unload.c).
 *           `mutex` guards the ranks and the list of adapters that they have: new ranks get each
 *           adapter either with the list, or from the thread that loads it. Passes do not take the
 *           mutex: their rows have no number whose adapter is being loaded. */
#include "engine/adapters/adapters.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "engine/internal.h"

/* A loaded adapter, or a free number. */
struct loaded_adapter {
    int64_t bytes;            /* on all ranks; 0: the number is free */
    struct adapter **of_rank; /* [ranks]; NULL: another process has it */
};

struct engine_adapters {
    pthread_mutex_t mutex;
    struct ranks *ranks; /* the engine's, while they have the listed adapters; else NULL */
    struct loaded_adapter loaded[]; /* [max_adapters] by number - 1 */
};

int engine_max_adapters(const struct engine *engine) {
    return engine->model.adapters.n;
}

static int n_ranks(const struct engine *engine) {
    return engine->model.shard.ranks;
}

void engine_adapters_open(struct engine *engine) {
    const size_t n = (size_t)engine_max_adapters(engine);
    assert(n > 0 && !engine->adapters);
    engine->adapters = mem_calloc(1, sizeof *engine->adapters + n * sizeof(struct loaded_adapter));
    pthread_mutex_init(&engine->adapters->mutex, NULL);
}

/* ---- loading -------------------------------------------------------------------------------- */

static void free_parts(struct adapter **of_rank, int ranks) {
    for (int r = 0; of_rank && r < ranks; r++) adapter_free(of_rank[r]);
    mem_free(of_rank);
}

/* Returns a free number, or 0. */
static int free_number(const struct engine *engine) {
    for (int i = 0; i < engine_max_adapters(engine); i++)
        if (engine->adapters->loaded[i].bytes == 0) return i + 1;
    return 0;
}

static int64_t bytes_of(struct adapter *const *of_rank, int ranks) {
    int64_t bytes = 0;
    for (int r = 0; r < ranks; r++) bytes += of_rank[r]->bytes;
    return bytes;
}

/* Makes the parts those of a number, on all ranks. The number keeps them if that succeeds. */
static enum status give_parts(struct engine *engine, int number, struct adapter **of_rank,
                              struct err *err) {
    struct engine_adapters *all = engine->adapters;
    struct loaded_adapter *loaded = &all->loaded[number - 1];
    const int64_t bytes = bytes_of(of_rank, n_ranks(engine));
    pthread_mutex_lock(&all->mutex);
    enum status status = ranks_give_adapter(all->ranks, number, of_rank, err);
    if (!status) {
        model_adapter_set(&engine->model, number, of_rank[0]);
        *loaded = (struct loaded_adapter){bytes, of_rank};
    }
    const bool have_copies = ranks_have_copies(all->ranks);
    pthread_mutex_unlock(&all->mutex);
    for (int r = 1; r < n_ranks(engine) && have_copies && !status; r++) {
        adapter_free(of_rank[r]);
        of_rank[r] = NULL;
    }
    return status;
}

enum status engine_adapter_load(struct engine *engine, const char *path, int *number,
                                struct adapter_facts *facts, struct err *err) {
    struct model_adapters *all = &engine->model.adapters;
    assert(all->n > 0 && engine->adapters);
    *number = free_number(engine);
    if (*number == 0)
        return err_set(err, STATUS_USAGE, "max-loras",
                       "%d adapters are in memory, which is {max-loras}; unload one, or give more "
                       "at start-up",
                       all->n);
    const struct adapter_limits limits = {engine->max_adapter_rank, all->bytes - all->used_bytes};
    struct adapter **of_rank = mem_try_calloc((size_t)n_ranks(engine), sizeof(struct adapter *));
    if (!of_rank) return err_out_of_memory(err);
    enum status status = adapter_read(of_rank, path, &engine->model, &limits, err);
    if (!status) {
        *facts = (struct adapter_facts){of_rank[0]->rank, of_rank[0]->n,
                                        bytes_of(of_rank, n_ranks(engine))};
        status = give_parts(engine, *number, of_rank, err);
    }
    if (status) {
        free_parts(of_rank, n_ranks(engine));
        return status;
    }
    all->used_bytes += facts->bytes;
    assert(all->used_bytes <= all->bytes);
    return STATUS_OK;
}

void engine_adapter_unload(struct engine *engine, int number) {
    struct engine_adapters *all = engine->adapters;
    assert(number > 0 && number <= engine_max_adapters(engine) && all);
    struct loaded_adapter *loaded = &all->loaded[number - 1], old = *loaded;
    assert(old.bytes > 0 && engine->model.adapters.used_bytes >= old.bytes);
    pthread_mutex_lock(&all->mutex);
    model_adapter_clear(&engine->model, number);
    ranks_drop_adapter(all->ranks, number);
    *loaded = (struct loaded_adapter){0};
    pthread_mutex_unlock(&all->mutex);
    engine->model.adapters.used_bytes -= old.bytes;
    free_parts(old.of_rank, n_ranks(engine));
}

/* ---- ranks that open and close -------------------------------------------------------------- */

enum status engine_adapters_give(struct engine *engine, struct err *err) {
    struct engine_adapters *all = engine->adapters;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&all->mutex);
    assert(!all->ranks);
    for (int i = 0; i < engine_max_adapters(engine) && !status; i++)
        if (all->loaded[i].bytes > 0)
            status = ranks_give_adapter(engine->ranks, i + 1, all->loaded[i].of_rank, err);
    all->ranks = status ? NULL : engine->ranks;
    pthread_mutex_unlock(&all->mutex);
    return status;
}

void engine_close_ranks(struct engine *engine) {
    struct engine_adapters *all = engine->adapters;
    if (all) {
        pthread_mutex_lock(&all->mutex);
        all->ranks = NULL;
        pthread_mutex_unlock(&all->mutex);
    }
    ranks_close(engine->ranks);
    engine->ranks = NULL;
}

void engine_adapters_close(struct engine *engine) {
    if (!engine->adapters) return;
    for (int i = 0; i < engine_max_adapters(engine); i++)
        free_parts(engine->adapters->loaded[i].of_rank, n_ranks(engine));
    pthread_mutex_destroy(&engine->adapters->mutex);
    mem_free(engine->adapters);
}
