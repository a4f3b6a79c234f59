/* DESIGN: ranks that are processes, seen from rank 0.
 *
 * Purpose   The actions of ranks.h become messages to all other processes (message.c), which
 *           perform them in follow.c.
 * Threads   The engine's thread packs and sends a message, and goes on with rank 0's part. Within a
 *           pass the ranks meet at every all_reduce, which gathers rows (groups.c).
 * Buffers   Rank 0 owns one message of a pass, allocated once. A message has left when the call
 *           that sends it returns, so the arrays of a step are free at once.
 * GPUs      Two passes may be in flight. The tokens of the second may be pending: only rank 0's GPU
 *           has them, and only rank 0 reads tokens.
 * Answers   Loading and making a cache are answered, because they can fail. A pass is not: it
 *           cannot fail, and its last all_reduce needs all ranks.
 * Adapters  Another thread gives adapters while the engine's thread runs passes. Each sends only
 *           while it has the turn, in the order of asking. A pass has it until ranks_end, and an
 *           adapter for one message to each rank, so a pass waits for little. A dropped adapter is
 *           noted, and the next sender tells the other ranks, so dropping never waits.
 * Failure   If a rank is lost, gather returns false from then on, the pass ends with undefined
 *           numbers, and ranks_failed reports it before they are used. */
#include <assert.h>
#include <pthread.h>

#include "engine/ranks/internal.h"

/* The turns of the threads that send. */
struct turns {
    pthread_mutex_t mutex; /* guards all fields */
    pthread_cond_t changed;
    unsigned next, now;      /* the next number to give out; the number that may send */
    int n_dropped, *dropped; /* [max_adapters] the other ranks still have these */
};

struct process_ranks {
    struct ranks head;
    struct peers *peers;
    struct turns turns;
    void *adapter; /* [ADAPTER_MESSAGE_BYTES] a message; NULL: adapters are off */
    int32_t *step; /* [step_bytes] */
    size_t step_bytes;
    int block_size;
    bool is_too_large; /* the message of a step; no cache was made */
    bool expects_answers;
    bool is_in_pass;                     /* the engine's thread has the turn */
    int64_t weight_bytes, scratch_bytes; /* of the other ranks */
};

static struct process_ranks *processes_of(struct ranks *ranks) {
    return (struct process_ranks *)ranks;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void begin_turn(struct turns *turns) {
    pthread_mutex_lock(&turns->mutex);
    const unsigned mine = turns->next++;
    while (turns->now != mine) pthread_cond_wait(&turns->changed, &turns->mutex);
    pthread_mutex_unlock(&turns->mutex);
}

static void end_turn(struct turns *turns) {
    pthread_mutex_lock(&turns->mutex);
    assert(turns->now != turns->next);
    turns->now++;
    pthread_cond_broadcast(&turns->changed);
    pthread_mutex_unlock(&turns->mutex);
}

/* ---- adapters ------------------------------------------------------------------------------- */

static void drop_adapter(struct ranks *ranks, int number) {
    struct turns *turns = &processes_of(ranks)->turns;
    pthread_mutex_lock(&turns->mutex);
    turns->dropped[turns->n_dropped++] = number;
    pthread_mutex_unlock(&turns->mutex);
}

/* Sends the dropped numbers. Call it with the turn, before anything that may use them again. */
static void send_drops(struct process_ranks *all) {
    struct message_drop drop = {MESSAGE_DROP, 0};
    for (;;) {
        pthread_mutex_lock(&all->turns.mutex);
        const bool has_one = all->turns.n_dropped > 0;
        if (has_one) drop.number = all->turns.dropped[--all->turns.n_dropped];
        pthread_mutex_unlock(&all->turns.mutex);
        if (!has_one) return;
        peers_send_all(all->peers, &drop, sizeof drop);
    }
}

/* Receives the answers of all ranks, and sets `err` to the first failure. */
static enum status take_answers(struct process_ranks *all, struct err *err) {
    enum status status = STATUS_OK;
    struct message_answer answer;
    size_t bytes;
    for (int r = 1; r < all->head.n; r++) {
        if (!peers_receive(all->peers, r, &answer, sizeof answer, &bytes)) return STATUS_OK;
        assert(bytes == sizeof answer);
        all->weight_bytes += answer.weight_bytes;
        all->scratch_bytes += answer.scratch_bytes;
        if (!answer.err.status || status) continue;
        status =
            err_set(err, answer.err.status, answer.err.param, "rank %d: %s", r, answer.err.message);
    }
    return status;
}

static enum status send_parts(struct process_ranks *all, int number, struct adapter *const *of_rank,
                              struct err *err) {
    begin_turn(&all->turns);
    send_drops(all);
    for (int r = 1; r < all->head.n; r++)
        peers_send(all->peers, r, all->adapter,
                   message_adapter_pack(all->adapter, number, of_rank[r]));
    enum status status = take_answers(all, err);
    if (!status && peers_lost(all->peers, err)) status = STATUS_SERVER_ERROR;
    end_turn(&all->turns);
    return status;
}

/* Sends each rank its numbers, a message to each in a turn. All ranks have as many. */
static void send_numbers(struct process_ranks *all, int number, struct adapter *const *of_rank) {
    const int64_t bytes = of_rank[1]->bytes;
    for (int64_t first = 0, n = 0; first < bytes; first += n) {
        begin_turn(&all->turns);
        for (int r = 1; r < all->head.n; r++) {
            assert(of_rank[r]->bytes == of_rank[1]->bytes);
            peers_send(all->peers, r, all->adapter,
                       message_numbers_pack(all->adapter, number, of_rank[r], first, &n));
        }
        end_turn(&all->turns);
    }
}

static enum status give_adapter(struct ranks *ranks, int number, struct adapter *const *of_rank,
                                struct err *err) {
    struct process_ranks *all = processes_of(ranks);
    assert(all->adapter);
    enum status status = send_parts(all, number, of_rank, err);
    if (!status) send_numbers(all, number, of_rank);
    if (!status && peers_lost(all->peers, err)) status = STATUS_SERVER_ERROR;
    if (status) drop_adapter(ranks, number);
    return status;
}

/* ---- actions -------------------------------------------------------------------------------- */

/* A message of one word. */
static void send_kind(struct ranks *ranks, enum message_kind kind) {
    const int32_t word = (int32_t)kind;
    processes_of(ranks)->expects_answers = peers_send_all(processes_of(ranks)->peers, &word, 4);
}

/* Each process has made its own plan of the same settings. */
static void send_load(struct ranks *ranks, const struct ranks_plan *plan) {
    struct process_ranks *all = processes_of(ranks);
    const size_t n = (size_t)plan->config->max_adapters;
    assert(!all->adapter);
    if (n > 0) {
        all->adapter = mem_large(ADAPTER_MESSAGE_BYTES);
        all->turns.dropped = mem_calloc(n, sizeof *all->turns.dropped);
    }
    const struct message_load message = {MESSAGE_LOAD, plan->backend.max_context};
    all->expects_answers = peers_send_all(all->peers, &message, sizeof message);
}

static void send_cache(struct ranks *ranks, const struct kv_config *config, size_t step_bytes) {
    struct process_ranks *all = processes_of(ranks);
    assert(!all->step);
    all->is_too_large = step_bytes > PEERS_MESSAGE_BYTES;
    if (all->is_too_large) return;
    struct message_cache *message = mem_calloc(1, sizeof *message);
    message_cache_pack(message, config, step_bytes);
    all->step = mem_large(step_bytes);
    all->step_bytes = step_bytes;
    all->block_size = config->block_size;
    all->expects_answers = peers_send_all(all->peers, message, sizeof *message);
    mem_free(message);
}

static void send_touch(struct ranks *ranks) {
    send_kind(ranks, MESSAGE_TOUCH);
}

static void send_pass(struct ranks *ranks, const struct step *step) {
    struct process_ranks *all = processes_of(ranks);
    begin_turn(&all->turns);
    assert(all->step && !all->expects_answers);
    send_drops(all);
    all->is_in_pass = true;
    peers_send_all(all->peers, all->step,
                   message_step_pack(all->step, all->step_bytes, step, all->block_size));
}

static bool is_lost(const struct ranks *ranks, struct err *err) {
    return peers_lost(((const struct process_ranks *)ranks)->peers, err);
}

static void fail(const struct ranks *ranks, const struct err *why) {
    peers_fail(((const struct process_ranks *)ranks)->peers, why->message);
}

static enum status end_action(struct ranks *ranks, struct err *err) {
    struct process_ranks *all = processes_of(ranks);
    enum status status = STATUS_OK;
    if (all->is_in_pass) end_turn(&all->turns);
    all->is_in_pass = false;
    if (all->is_too_large)
        return err_set(err, STATUS_USAGE, "max-num-seqs",
                       "the block tables of {max-num-seqs} sequences of {max-model-len} tokens are "
                       "too large for a message to other ranks; lower one of the two");
    const bool is_pass = !all->expects_answers && all->step && !peers_lost(all->peers, NULL);
    if (is_pass) return STATUS_OK;
    if (all->expects_answers) status = take_answers(all, err);
    all->expects_answers = false;
    if (!status && peers_lost(all->peers, err)) status = STATUS_SERVER_ERROR;
    return status;
}

static void add_memory(const struct ranks *ranks, int64_t *weights, int64_t *scratch) {
    const struct process_ranks *all = (const struct process_ranks *)ranks;
    *weights += all->weight_bytes;
    *scratch += all->scratch_bytes;
}

static void close_processes(struct ranks *ranks) {
    struct process_ranks *all = processes_of(ranks);
    if (all->step) mem_large_free(all->step, all->step_bytes);
    if (all->adapter) mem_large_free(all->adapter, ADAPTER_MESSAGE_BYTES);
    mem_free(all->turns.dropped);
    pthread_cond_destroy(&all->turns.changed);
    pthread_mutex_destroy(&all->turns.mutex);
    send_kind(ranks, MESSAGE_CLOSE);
    process_group_close(ranks->group, all->peers);
    mem_free(all);
}

static const struct ranks_ops process_ops = {
    .close = close_processes,
    .load = send_load,
    .cache = send_cache,
    .touch = send_touch,
    .pass = send_pass,
    .give = give_adapter,
    .drop = drop_adapter,
    .copies = true,
    .end = end_action,
    .failed = is_lost,
    .fail = fail,
    .memory = add_memory,
};

/* Names the group of GPUs to the others, and joins it with them. */
static enum status join_gpus(struct process_ranks *all, int gpu, struct err *err) {
    struct message_join message = {.kind = MESSAGE_JOIN};
    enum status status = gpu_group_id(&message.id, err);
    if (status) return status;
    if (!peers_send_all(all->peers, &message, sizeof message)) {
        peers_lost(all->peers, err);
        return STATUS_SERVER_ERROR;
    }
    return process_group_cuda(&all->head.group, all->peers, &message.id, gpu, err);
}

enum status process_ranks_open(struct ranks **out, struct peers *peers, int gpu, struct err *err) {
    assert(peers_rank(peers) == 0);
    struct process_ranks *all = mem_calloc(1, sizeof *all);
    all->head = (struct ranks){&process_ops, peers_count(peers), NULL};
    all->peers = peers;
    pthread_mutex_init(&all->turns.mutex, NULL);
    pthread_cond_init(&all->turns.changed, NULL);
    *out = &all->head;
    if (gpu != NO_GPU) return join_gpus(all, gpu, err);
    all->head.group = process_group_cpu(peers);
    return STATUS_OK;
}
