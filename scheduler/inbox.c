/* inbox: messages from other threads to the engine thread, and the state that other threads may
 * read.
 *
 * DESIGN. A submitting thread prepares a request (checks, memory, hashes of the prompt), and then
 * locks the mutex only to count it, number it and append it to the list. The engine thread takes
 * the whole list at the start of a step. Arrival numbers are assigned under the mutex, so the list
 * is in their order. Atomics count the queue for its limits: submitters increment them under the
 * mutex, and the engine thread decrements them at any time. So a reader may see room slightly too
 * late, but never room that does not exist.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "scheduler/internal.h"

void inbox_init(struct scheduler *s) {
    pthread_mutex_init(&s->inbox.mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* that of now_ns */
    pthread_cond_init(&s->inbox.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    list_init(&s->inbox.arrived);
    s->inbox.new_weights = mem_calloc((size_t)s->shares.n, sizeof *s->inbox.new_weights);
    s->inbox.by_share = mem_calloc((size_t)s->shares.n, sizeof *s->inbox.by_share);
}

void inbox_free(struct scheduler *s) {
    pthread_mutex_destroy(&s->inbox.mutex);
    pthread_cond_destroy(&s->inbox.changed);
    mem_free(s->inbox.by_share);
    mem_free(s->inbox.new_weights);
}

/* ---- from any thread ------------------------------------------------------------------------ */

/* An empty queue always has room for one request, of any length: otherwise it could never run. */
bool scheduler_has_room(const struct scheduler *s, int n_requests, int n_tokens) {
    assert(n_requests >= 0 && n_tokens >= 0);
    int requests = atomic_load(&s->inbox.queued_requests);
    int tokens = atomic_load(&s->inbox.queued_tokens);
    if (n_requests > s->config.max_queued_requests - requests) return false;
    return requests == 0 || n_tokens <= s->config.max_queued_tokens - tokens;
}

static bool has_room_for(const struct scheduler *s, const struct generation *generation) {
    return generation->is_admitted || scheduler_has_room(s, 1, generation->n_prompt);
}

static enum status context_exceeded(struct err *err, const char *format, int limit, int prompt,
                                    int asked) {
    err_set(err, STATUS_INVALID_REQUEST, "prompt", format, limit, prompt, asked);
    if (err) snprintf(err->code, sizeof err->code, "context_length_exceeded");
    return STATUS_INVALID_REQUEST;
}

/* The beams of a search run together, and after a preemption each may need separate blocks. */
static enum status check_search(const struct scheduler *s, const struct generation *generation,
                                struct err *err) {
    const int width = generation->beams.width, most = min_int(MAX_BEAMS, s->max_seqs);
    const int n_best = beams_n_best(width, generation->n_stop_ids);
    if (width == 0) return STATUS_OK;
    if (width > most || generation->n > width)
        return err_set(err, STATUS_INVALID_REQUEST, "best_of",
                       "A search has between 'n' and %d beams here; got %d and 'n' %d.", most,
                       width, generation->n);
    if (n_best > MAX_BEST)
        return err_set(err, STATUS_INVALID_REQUEST, "best_of",
                       "%d beams and %d ids that end a text make %d candidates a step, and at most "
                       "%d are served: ask for fewer beams, or set 'ignore_eos'.",
                       width, generation->n_stop_ids, n_best, MAX_BEST);
    int slots = generation_max_slots(generation, s->config.max_model_len);
    const struct window_pool *windows = &s->pool.windows;
    int blocks = block_pool_blocks_for(&s->pool, slots);
    bool sees_all = windows->n == 0 || width * min_int(blocks, windows->most) <= windows->n;
    if (width * blocks <= s->pool.n_blocks && sees_all) return STATUS_OK;
    return context_exceeded(err,
                            "The KV memory holds %d tokens, and each of %d beams may grow to %d: "
                            "lower 'max_tokens' or 'best_of'.",
                            s->pool.n_blocks * s->pool.block_size, width, slots);
}

/* A prompt that is computed in one step fits in it, and is only read for its hidden vectors. */
static enum status check_whole(const struct scheduler *s, const struct generation *generation,
                               struct err *err) {
    const int most = s->config.max_num_batched_tokens;
    if (!s->config.whole_prompts) return STATUS_OK;
    if (generation->max_tokens > 0 || generation->hidden == HIDDEN_NONE)
        return err_set(err, STATUS_INVALID_REQUEST, "model",
                       "The model is an encoder: it gives embeddings and no text.");
    if (generation->n_prompt <= most) return STATUS_OK;
    return context_exceeded(err,
                            "An encoder computes a prompt in one step of at most %d tokens, and "
                            "the prompt has %d (with max_tokens %d): give a shorter prompt, or "
                            "start the server with a longer --max-model-len.",
                            most, generation->n_prompt, generation->max_tokens);
}

enum status scheduler_check_fits(const struct scheduler *s, const struct generation *generation,
                                 struct err *err) {
    if (generation->n_prompt < 1 || generation->max_tokens < 0)
        return err_set(err, STATUS_INVALID_REQUEST, "prompt",
                       "a prompt has at least 1 token and max_tokens is at least 0; got %d and %d",
                       generation->n_prompt, generation->max_tokens);
    if (generation->n < 1 || generation->n > MAX_CHOICES)
        return err_set(err, STATUS_INVALID_REQUEST, "n", "n is between 1 and %d; got %d",
                       MAX_CHOICES, generation->n);
    int most = s->config.max_model_len;
    if (generation->n_prompt > most - (generation->max_tokens > 0))
        return context_exceeded(err,
                                "The model's context holds %d tokens, and the prompt has %d "
                                "(with max_tokens %d).",
                                most, generation->n_prompt, generation->max_tokens);
    int slots = generation_max_slots(generation, most),
        room = s->pool.n_blocks * s->pool.block_size;
    if (block_pool_blocks_for(&s->pool, slots) > s->pool.n_blocks)
        return context_exceeded(err,
                                "The KV memory holds %d tokens, and the prompt has %d that may "
                                "grow to %d.",
                                room, generation->n_prompt, slots);
    enum status status = check_whole(s, generation, err);
    return status ? status : check_search(s, generation, err);
}

static enum status inbox_refuse_full(const struct scheduler *s, struct err *err) {
    return err_set(err, STATUS_OVERLOADED, NULL,
                   "The queue is full: %d requests with %d prompt tokens wait (at most %d and %d).",
                   atomic_load(&s->inbox.queued_requests), atomic_load(&s->inbox.queued_tokens),
                   s->config.max_queued_requests, s->config.max_queued_tokens);
}

/* Counts a request as queued. The caller must hold the mutex. */
static void inbox_count(struct inbox *inbox, const struct request *request) {
    struct share_queue *own = &inbox->by_share[request->share];
    if (!request->is_counted) return;
    bool is_first = atomic_load(&inbox->queued_requests) == 0;
    if (is_first) inbox->queue_since_ns = now_ns();
    if (is_first || request->priority > inbox->last_priority)
        inbox->last_priority = request->priority;
    atomic_fetch_add(&inbox->queued_requests, 1);
    atomic_fetch_add(&inbox->queued_tokens, request->n_prompt);
    atomic_fetch_add(&own->requests, 1);
    atomic_fetch_add(&own->tokens, request->n_prompt);
}

static enum status inbox_put(struct scheduler *s, struct request *request, struct err *err) {
    struct inbox *inbox = &s->inbox;
    if (inbox->stopping) return err_set(err, STATUS_UNAVAILABLE, NULL, "The server is stopping.");
    if (inbox->failed)
        return err_set(err, STATUS_UNAVAILABLE, NULL,
                       "The device or a rank has failed; the server ends.");
    if (!has_room_for(s, request->generation)) return inbox_refuse_full(s, err);
    if (atomic_load(&inbox->live_sequences) == 0) inbox->busy_since_ns = now_ns();
    assert(request->share >= 0 && request->share < s->shares.n);
    request->arrival = inbox->n_arrivals++;
    inbox_count(inbox, request);
    atomic_fetch_add(&inbox->live_sequences, request->n);
    list_append(&inbox->arrived, &request->node);
    pthread_cond_signal(&inbox->changed);
    return STATUS_OK;
}

int scheduler_retry_s(struct scheduler *s) {
    pthread_mutex_lock(&s->inbox.mutex);
    struct pace pace = s->inbox.published.queue_pace;
    pace_begin(&pace, s->inbox.queue_since_ns);
    pthread_mutex_unlock(&s->inbox.mutex);
    return pace_seconds(&pace, now_ns(), 1);
}

/* States when a request that was refused by a full queue may come again. */
static enum status with_retry(struct scheduler *s, enum status status, struct err *err) {
    if (status == STATUS_OVERLOADED && err) err->retry_after_s = scheduler_retry_s(s);
    return status;
}

enum status scheduler_submit(struct scheduler *s, struct generation *generation, struct err *err) {
    enum status status = scheduler_check_fits(s, generation, err);
    if (status != STATUS_OK) return status;
    if (!has_room_for(s, generation)) return with_retry(s, inbox_refuse_full(s, err), err);
    status = deadline_check(s, generation, err);
    if (status != STATUS_OK) return status;
    bool drafts = drafter_guesses(&s->drafter) && generation->max_drafts > 0;
    struct request *request = request_new(generation, s->config.max_model_len, s->config.block_size,
                                          s->config.prefix_caching, drafts ? &s->drafter : NULL);
    if (!request) return err_out_of_memory(err);
    pthread_mutex_lock(&s->inbox.mutex);
    status = inbox_put(s, request, err);
    pthread_mutex_unlock(&s->inbox.mutex);
    if (status != STATUS_OK) mem_free(request);
    return with_retry(s, status, err);
}

void scheduler_set_weights(struct scheduler *s, const int *weights, int n) {
    if (n == 0) return; /* a single share */
    assert(n == s->shares.n);
    pthread_mutex_lock(&s->inbox.mutex);
    for (int i = 0; i < n; i++) {
        assert(weights[i] >= 1 && weights[i] <= MAX_SHARE_WEIGHT);
        s->inbox.new_weights[i] = weights[i];
    }
    s->inbox.has_weights = true;
    pthread_mutex_unlock(&s->inbox.mutex);
}

/* The generation is not read: its last event may be on its way, and then the server owns it. */
void scheduler_cancel(struct scheduler *s, struct generation *generation) {
    (void)generation;
    scheduler_wake(s);
}

/* A step looks for cancelled generations anyway. */
void scheduler_wake(struct scheduler *s) {
    pthread_mutex_lock(&s->inbox.mutex);
    atomic_store(&s->inbox.cancels, true);
    pthread_cond_signal(&s->inbox.changed);
    pthread_mutex_unlock(&s->inbox.mutex);
}

void scheduler_stats(struct scheduler *s, struct scheduler_stats *out) {
    pthread_mutex_lock(&s->inbox.mutex);
    *out = s->inbox.published;
    if (out->last_step_ns < s->inbox.busy_since_ns) out->last_step_ns = s->inbox.busy_since_ns;
    pthread_mutex_unlock(&s->inbox.mutex);
    int waiting = atomic_load(&s->inbox.live_sequences) - out->running - out->swapped;
    out->waiting = waiting > 0 ? waiting : 0;
    out->queued_tokens = atomic_load(&s->inbox.queued_tokens);
    out->stepping = atomic_load(&s->inbox.stepping);
}

/* ---- from the engine thread ----------------------------------------------------------------- */

void inbox_take(struct scheduler *s) {
    pthread_mutex_lock(&s->inbox.mutex);
    pace_begin(&s->stats.queue_pace, s->inbox.queue_since_ns);
    for (int i = 0; s->inbox.has_weights && i < s->shares.n; i++)
        s->shares.share[i].weight = s->inbox.new_weights[i];
    s->inbox.has_weights = false;
    while (s->inbox.arrived.n > 0) {
        struct list_node *node = list_first(&s->inbox.arrived);
        list_remove(&s->inbox.arrived, node);
        struct request *request = list_entry(node, struct request, node);
        list_append(&s->requests, &request->node);
        deadline_note(s, request->generation);
        request->sequence[0].state = SEQUENCE_WAITING;
        if (s->stats.model == MODEL_LOADED) restore_prefix(s, request);
        shares_arrive(&s->shares, request->share);
        sequence_enqueue(&s->waiting, &request->sequence[0]);
    }
    pthread_mutex_unlock(&s->inbox.mutex);
}

void inbox_publish(struct scheduler *s) {
    s->stats.running = s->running.n;
    s->stats.swapped = s->swap.n_swapped;
    s->stats.swapped_out = s->swap.n_out;
    s->stats.swapped_in = s->swap.n_in;
    s->stats.host_blocks_total = s->swap.n_host_blocks;
    s->stats.host_blocks_used = swap_used(&s->swap);
    s->stats.host_blocks_cached = host_cache_blocks(&s->swap.cache);
    s->stats.blocks_total = s->pool.n_blocks;
    s->stats.blocks_cached = s->pool.n_cached;
    s->stats.blocks_used = s->pool.n_blocks - block_pool_available(&s->pool);
    const struct window_pool *windows = &s->pool.windows;
    s->stats.states_total = s->states.n;
    s->stats.states_cached = checkpoints_idle(&s->checkpoints);
    s->stats.states_used = s->states.n - s->states.n_free - s->stats.states_cached;
    s->stats.window_blocks_total = windows->n;
    s->stats.window_blocks_cached = windows->n_idle;
    s->stats.window_blocks_used = windows->n - windows->n_free - windows->n_idle;
    pthread_mutex_lock(&s->inbox.mutex);
    s->inbox.published = s->stats;
    deadline_publish(s);
    if (s->inbox.view_wanted) view_fill(s);
    pthread_mutex_unlock(&s->inbox.mutex);
}

/* Waits for a change, at most until the model is to be unloaded. The caller holds the mutex. */
static void wait_for_change(struct scheduler *s) {
    struct inbox *inbox = &s->inbox;
    const uint64_t now = now_ns(), left = unload_in_ns(s, now), end = now + left;
    const struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    s->unload_due = left == 0;
    if (left == UINT64_MAX)
        pthread_cond_wait(&inbox->changed, &inbox->mutex);
    else if (left > 0)
        pthread_cond_timedwait(&inbox->changed, &inbox->mutex, &until);
}

bool inbox_wait(struct scheduler *s, bool idle) {
    struct inbox *inbox = &s->inbox;
    pthread_mutex_lock(&inbox->mutex);
    while (idle && inbox->arrived.n == 0 && !inbox->stopping && !atomic_load(&inbox->cancels) &&
           !s->unload_due) {
        if (inbox->view_wanted) view_fill(s);
        wait_for_change(s);
    }
    bool go_on = !inbox->stopping;
    pthread_mutex_unlock(&inbox->mutex);
    return go_on;
}

bool inbox_fail(struct scheduler *s) {
    pthread_mutex_lock(&s->inbox.mutex);
    bool first = !s->inbox.failed;
    s->inbox.failed = true;
    pthread_mutex_unlock(&s->inbox.mutex);
    return first;
}

void inbox_stop(struct scheduler *s) {
    pthread_mutex_lock(&s->inbox.mutex);
    s->inbox.stopping = true;
    atomic_store(&s->gives_up, true);
    pthread_cond_signal(&s->inbox.changed);
    pthread_mutex_unlock(&s->inbox.mutex);
}
