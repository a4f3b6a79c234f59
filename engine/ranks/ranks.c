/* Chooses between ranks as threads and ranks as processes. */
#include "engine/ranks/ranks.h"

#include <assert.h>
#include <sched.h>
#include <unistd.h>

#include "engine/ranks/internal.h"

int ranks_threads(int threads, int rank, int ranks) {
    int share = threads / ranks + (rank < threads % ranks);
    return share > 1 ? share : 1;
}

/* mpirun may have given each process of a machine its own cores, or all cores to each. */
int ranks_own_threads(int threads, const struct peers *peers) {
    const int local = peers_local(peers), cores = backend_cpu_threads();
    cpu_set_t set;
    if (threads > 0) return threads;
    const bool is_known = sched_getaffinity(0, sizeof set, &set) == 0;
    const bool is_shared = !is_known || CPU_COUNT(&set) * local > sysconf(_SC_NPROCESSORS_ONLN);
    return is_shared ? max_int(1, cores / local) : cores;
}

enum status ranks_open(struct ranks **out, int ranks, bool on_cuda, int gpu, struct peers *peers,
                       struct err *err) {
    *out = NULL;
    assert(ranks > 1 && ranks <= MAX_RANKS && (!peers || peers_count(peers) == ranks));
    assert(!on_cuda || gpu >= 0);
    return peers ? process_ranks_open(out, peers, on_cuda ? gpu : NO_GPU, err)
                 : thread_ranks_open(out, ranks, on_cuda, err);
}

void ranks_close(struct ranks *ranks) {
    if (ranks) ranks->ops->close(ranks);
}

struct rank_group *ranks_group(const struct ranks *ranks) {
    return ranks ? ranks->group : NULL;
}

void ranks_begin_load(struct ranks *ranks, const struct ranks_plan *plan) {
    if (ranks) ranks->ops->load(ranks, plan);
}

void ranks_begin_cache(struct ranks *ranks, const struct kv_config *config, int max_seqs,
                       int max_rows, int max_model_len) {
    if (!ranks) return;
    int blocks = min_int(max_model_len / config->block_size + 1, config->n_blocks);
    ranks->ops->cache(ranks, config, message_step_most(max_rows, max_seqs, blocks));
}

void ranks_begin_touch(struct ranks *ranks) {
    if (ranks) ranks->ops->touch(ranks);
}

void ranks_begin_pass(struct ranks *ranks, const struct step *step) {
    if (ranks) ranks->ops->pass(ranks, step);
}

enum status ranks_give_adapter(struct ranks *ranks, int number, struct adapter *const *of_rank,
                               struct err *err) {
    assert(number > 0);
    return ranks ? ranks->ops->give(ranks, number, of_rank, err) : STATUS_OK;
}

void ranks_drop_adapter(struct ranks *ranks, int number) {
    assert(number > 0);
    if (ranks) ranks->ops->drop(ranks, number);
}

bool ranks_have_copies(const struct ranks *ranks) {
    return ranks && ranks->ops->copies;
}

enum status ranks_end(struct ranks *ranks, struct err *err) {
    return ranks ? ranks->ops->end(ranks, err) : STATUS_OK;
}

bool ranks_failed(const struct ranks *ranks, struct err *err) {
    return ranks && ranks->ops->failed && ranks->ops->failed(ranks, err);
}

void ranks_fail(const struct ranks *ranks, const struct err *why) {
    if (ranks && ranks->ops->fail) ranks->ops->fail(ranks, why);
}

void ranks_memory(const struct ranks *ranks, int64_t *weights, int64_t *scratch) {
    *weights = *scratch = 0;
    if (ranks) ranks->ops->memory(ranks, weights, scratch);
}
