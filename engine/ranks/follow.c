/* DESIGN: how processes of one model meet, and the loop of the ranks above 0.
 *
 *     rank 0    settings | compare     | load  ..answers | cache ..answers | pass | pass | .. end
 *     others    settings, hello ---^   | load, answer    | cache, answer   | pass | pass | .. leave
 *
 * Adapters arrive between passes: an answered action with their shape, then their numbers.
 *
 * A process above 0 does nothing of its own accord after its hello: it receives an action, performs
 * it on this thread, and receives the next. It opens no port, and does not plan or sample. The
 * arrays of a step stay in the received message, which is kept until the next one is received.
 *
 * A GPU does its passes later. So while this thread waits for a message, it also looks whether the
 * GPU has failed: rank 0's GPU would wait for it. */
#include <assert.h>
#include <string.h>

#include "engine/ranks/internal.h"

/* ---- meeting -------------------------------------------------------------------------------- */

/* Room for the hello of another build. */
union greeting {
    struct hello hello;
    char room[1 << 16];
};

static enum status meet_one(struct peers *peers, const struct hello *first, union greeting *other,
                            int rank, struct err *err) {
    size_t bytes = 0;
    memset(other, 0, sizeof *other);
    if (!peers_receive(peers, rank, other, sizeof *other, &bytes)) {
        peers_lost(peers, err);
        return STATUS_SERVER_ERROR;
    }
    other->hello.build[FACT_BYTES - 1] = other->hello.host[sizeof other->hello.host - 1] = 0;
    return hello_check(first, &other->hello, rank, err);
}

static void keep_least(struct device_memory *least, const struct device_memory *other) {
    if (other->free < least->free) least->free = other->free;
    if (other->total < least->total) least->total = other->total;
}

enum status ranks_meet(struct peers *peers, const struct ranks_self *self, int64_t *available,
                       struct device_memory *device, struct err *err) {
    struct hello *first = mem_calloc(1, sizeof *first);
    union greeting *other = mem_calloc(1, sizeof *other);
    const int n = peers_count(peers);
    enum status status = STATUS_OK;
    hello_make(first, self, peers_local(peers), NULL);
    int64_t least = first->available;
    *device = first->device;
    for (int r = 1; r < n && !status; r++) {
        status = meet_one(peers, first, other, r, err);
        least = min_int64(least, other->hello.available);
        keep_least(device, &other->hello.device);
        if (!status) log_line(LOG_INFO, "rank %d of %d is on %s", r, n, other->hello.host);
    }
    *available = least * n;
    mem_free(first);
    mem_free(other);
    return status;
}

/* ---- following ------------------------------------------------------------------------------ */

_Static_assert(sizeof(struct message_cache) <= ADAPTER_MESSAGE_BYTES, "fits the first buffer");

struct follower {
    struct peers *peers;
    const struct ranks_plan *plan;
    struct rank_group *group;
    struct rank rank;
    struct adapter **adapters; /* [max_adapters] by number - 1; NULL: adapters are off */
    int gpu;                   /* NO_GPU: it computes on the CPU */
    bool is_busy;              /* its GPU may not have done all passes */
    void *message;             /* [capacity] */
    size_t capacity;
};

static bool answer(struct follower *f, const struct message_answer *answer) {
    return peers_send(f->peers, 0, answer, sizeof *answer);
}

/* Joins the group of GPUs. A failure is not answered: this process ends, and rank 0 finds it
 * lost. */
static bool follow_join(struct follower *f, size_t bytes) {
    const struct message_join *message = f->message;
    struct err err = {0};
    if (bytes != sizeof *message || f->group || f->gpu == NO_GPU) return false;
    if (process_group_cuda(&f->group, f->peers, &message->id, f->gpu, &err))
        peers_fail(f->peers, err.message);
    return true;
}

static void free_adapters(struct follower *f) {
    for (int i = 0; f->adapters && i < f->plan->config->max_adapters; i++)
        adapter_free(f->adapters[i]);
    mem_free(f->adapters);
    f->adapters = NULL;
}

static bool follow_close(struct follower *f) {
    free_adapters(f);
    rank_close(&f->rank);
    process_group_close(f->group, f->peers);
    f->group = NULL;
    return true;
}

static bool follow_load(struct follower *f, size_t bytes) {
    struct message_answer out = {0};
    const struct message_load *message = f->message;
    struct ranks_plan plan = *f->plan;
    if (bytes != sizeof *message || !f->group || f->rank.model.backend) return false;
    plan.backend.max_context = message->max_context;
    out.err.status =
        rank_load(&f->rank, &plan, f->group, plan.backend.threads, f->gpu != NO_GPU, &out.err);
    if (!out.err.status && f->plan->config->max_adapters > 0)
        f->adapters = mem_calloc((size_t)f->plan->config->max_adapters, sizeof *f->adapters);
    if (!out.err.status) {
        out.weight_bytes = f->rank.model.weight_bytes;
        out.scratch_bytes = rank_scratch(&f->rank);
    }
    return answer(f, &out);
}

/* Makes the cache, and room for the messages of passes. */
static bool follow_cache(struct follower *f, size_t bytes) {
    struct message_answer out = {0};
    struct message_cache *message = f->message;
    if (!f->rank.model.backend || !message_cache_unpack(message, bytes)) return false;
    const size_t step_bytes = (size_t)message->step_bytes;
    out.err.status = rank_make_cache(&f->rank, &message->config, &out.err);
    if (step_bytes > f->capacity) {
        mem_large_free(f->message, f->capacity);
        f->capacity = step_bytes;
        f->message = mem_large(f->capacity);
    }
    return answer(f, &out);
}

static bool follow_touch(struct follower *f) {
    const struct message_answer out = {0};
    if (!f->rank.cache) return false;
    rank_touch_cache(&f->rank);
    return answer(f, &out);
}

/* Do all rows have adapters of the model? */
static bool has_adapters(const struct model *model, const struct step *step) {
    for (int i = 0; step->adapter && i < step->M; i++)
        if (step->adapter[i] < 0 || step->adapter[i] > model->adapters.n) return false;
    return !step->adapter || model->adapters.n > 0;
}

static bool follow_pass(struct follower *f, size_t bytes) {
    const struct model *model = &f->rank.model;
    struct step step;
    if (!f->rank.cache || !message_step_unpack(&step, f->message, bytes)) return false;
    if (step.M > model->act.max_rows || step.R > model->act.max_logit_rows) return false;
    if (!has_adapters(model, &step)) return false;
    if (step.is_ahead && model->ahead.n == 0) return false;
    rank_run(&f->rank, &step);
    f->is_busy = true;
    return true;
}

/* Returns the place of an adapter that a message names, or NULL. */
static struct adapter **adapter_at(const struct follower *f, int32_t number) {
    if (!f->adapters || number < 1 || number > f->rank.model.adapters.n) return NULL;
    return &f->adapters[number - 1];
}

/* Makes room for an adapter; its numbers follow. */
static bool follow_adapter(struct follower *f, size_t bytes) {
    const struct message_adapter *message = f->message;
    struct message_answer out = {0};
    struct adapter *adapter;
    if (!f->adapters || !message_adapter_unpack(&adapter, &f->rank.model, message, bytes))
        return false;
    struct adapter **at = adapter_at(f, message->number);
    assert(at);
    if (*at) {
        adapter_free(adapter);
        return false;
    }
    *at = adapter;
    if (adapter)
        model_adapter_set(&f->rank.model, message->number, adapter);
    else
        err_out_of_memory(&out.err);
    return answer(f, &out);
}

static bool follow_numbers(struct follower *f, size_t bytes) {
    const struct message_numbers *message = f->message;
    if (bytes < sizeof *message) return false;
    struct adapter **at = adapter_at(f, message->number);
    return at && *at && message_numbers_unpack(*at, message, bytes);
}

/* An adapter that this rank had no memory for is dropped, too. */
static bool follow_drop(struct follower *f, size_t bytes) {
    const struct message_drop *message = f->message;
    if (bytes != sizeof *message) return false;
    struct adapter **at = adapter_at(f, message->number);
    if (!at) return false;
    model_adapter_clear(&f->rank.model, message->number);
    adapter_free(*at);
    *at = NULL;
    return true;
}

/* While the next message is awaited. */
static void watch_gpu(void *arg) {
    struct follower *f = arg;
    struct err err;
    if (!f->is_busy) return;
    f->is_busy = !rank_is_idle(&f->rank);
    if (rank_failed(&f->rank, &err)) peers_fail(f->peers, err.message);
}

/* Performs the message's action. Returns false if it cannot be performed now. */
static bool follow(struct follower *f, size_t bytes) {
    int32_t kind = 0;
    if (bytes >= sizeof kind) memcpy(&kind, f->message, sizeof kind);
    if (kind == MESSAGE_CLOSE) return follow_close(f);
    if (!f->plan) return false;
    switch (kind) {
    case MESSAGE_JOIN:
        return follow_join(f, bytes);
    case MESSAGE_LOAD:
        return follow_load(f, bytes);
    case MESSAGE_CACHE:
        return follow_cache(f, bytes);
    case MESSAGE_TOUCH:
        return follow_touch(f);
    case MESSAGE_PASS:
        return follow_pass(f, bytes);
    case MESSAGE_ADAPTER:
        return follow_adapter(f, bytes);
    case MESSAGE_NUMBERS:
        return follow_numbers(f, bytes);
    case MESSAGE_DROP:
        return follow_drop(f, bytes);
    default:
        return false;
    }
}

static enum status follow_all(struct follower *f, int *code, struct err *err) {
    size_t bytes;
    while (peers_receive(f->peers, 0, f->message, f->capacity, &bytes))
        if (!follow(f, bytes) && !peers_lost(f->peers, NULL) && !peers_ended(f->peers, code))
            return err_set(err, STATUS_SERVER_ERROR, NULL,
                           "rank 0 sent an action of %zu bytes that cannot be performed", bytes);
    if (peers_ended(f->peers, code)) return STATUS_OK;
    peers_lost(f->peers, err);
    return STATUS_SERVER_ERROR;
}

enum status ranks_follow(struct peers *peers, const struct ranks_self *self,
                         const struct ranks_plan *plan, const struct err *why, int *code,
                         struct err *err) {
    struct hello *hello = mem_calloc(1, sizeof *hello);
    struct follower f = {.peers = peers, .plan = plan};
    assert(peers_rank(peers) > 0);
    f.rank.model.shard = (struct shard){peers_rank(peers), peers_count(peers)};
    f.capacity = ADAPTER_MESSAGE_BYTES;
    f.message = mem_large(f.capacity);
    f.gpu = self->config && self->config->device == DEVICE_CUDA ? self->gpu : NO_GPU;
    if (f.gpu == NO_GPU) f.group = process_group_cpu(peers);
    peers_meanwhile(peers, watch_gpu, &f);
    hello_make(hello, self, peers_local(peers), why);
    peers_send(peers, 0, hello, sizeof *hello);
    enum status status = follow_all(&f, code, err);
    peers_meanwhile(peers, NULL, NULL);
    follow_close(&f);
    mem_large_free(f.message, f.capacity);
    mem_free(hello);
    return status;
}
