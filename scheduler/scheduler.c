/* scheduler: the step, and the thread that takes one after the other.
 *
 * DESIGN. One engine thread owns the queues, the sequences and the block pool; nothing in here is
 * locked but the inbox. It sleeps while nothing lives here. Events leave in the order in which
 * they came about, after the step that made them, so a generation's tokens are in order and its
 * last event is the last touch of it: afterwards it is the server's. Left out on purpose: no step
 * is planned while another runs. The pieces allow it (the plan depends only on what is known
 * before the results), and a backend that runs by itself will want it.
 */
#include <stdlib.h>

#include "scheduler/internal.h"

static int smallest(int a, int b, int c) {
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

static void check_config(const struct scheduler_config *config) {
    assert(config->max_num_seqs > 0 && config->max_num_batched_tokens > 0);
    assert(config->max_logit_rows > 0 && config->max_model_len > 0);
    assert(config->n_blocks > 0 && config->block_size > 0 && config->block_size <= MAX_BLOCK_SIZE);
    assert(config->n_blocks <= INT32_MAX / config->block_size && config->on_events);
    assert(config->max_queued_requests > 0 && config->max_queued_tokens > 0);
}

struct scheduler *scheduler_new_on(const struct scheduler_config *config,
                                   const struct engine_port *port) {
    check_config(config);
    struct scheduler *s = mem_calloc(1, sizeof *s);
    s->config = *config;
    s->port = *port;
    s->max_seqs =
        smallest(config->max_num_seqs, config->max_num_batched_tokens, config->max_logit_rows);
    block_pool_init(&s->pool, config->n_blocks, config->block_size, config->prefix_caching);
    queue_init(&s->waiting);
    queue_init(&s->running);
    queue_init(&s->requests);
    plan_init(&s->plan, s->max_seqs, config->n_blocks);
    int stride = block_pool_blocks_for(&s->pool, config->max_model_len);
    batch_init(&s->batch, s->max_seqs, config->max_num_batched_tokens, config->max_logit_rows,
               stride < config->n_blocks ? stride : config->n_blocks, config->block_size);
    int samples = config->max_logit_rows + MAX_EXTRA_SAMPLES;
    s->max_events = samples + MAX_CHOICES;
    s->jobs = mem_calloc((size_t)samples, sizeof *s->jobs);
    s->events = mem_calloc((size_t)s->max_events, sizeof *s->events);
    inbox_init(s);
    inbox_publish(s);
    return s;
}

/* ---- the step ------------------------------------------------------------------------------- */

/* Returns whether there is anything to compute. */
static bool make_plan(struct scheduler *s, uint64_t now) {
    struct plan_view view = {.running = &s->running,
                             .waiting = &s->waiting,
                             .pool = &s->pool,
                             .max_seqs = s->max_seqs,
                             .max_rows = s->config.max_num_batched_tokens,
                             .max_logit_rows = s->config.max_logit_rows,
                             .now_ns = now};
    plan_make(&s->plan, &view);
    assert(s->plan.rows > 0 || s->requests.n == 0);
    return s->plan.rows > 0;
}

static void run_step(struct scheduler *s, uint64_t now) {
    if (!make_plan(s, now)) return;
    plan_apply(s);
    s->port.submit(s->port.self, batch_fill(&s->batch));
    commit_step(s, s->port.wait(s->port.self));
    s->stats.last_step_ns = now_ns();
    s->stats.step_ns += s->stats.last_step_ns - now;
}

bool scheduler_step(struct scheduler *s) {
    atomic_store(&s->inbox.stepping, true);
    inbox_take(s);
    cancel_wanted(s);
    run_step(s, now_ns());
    inbox_publish(s);
    events_deliver(s);
    atomic_store(&s->inbox.stepping, false);
    return s->requests.n > 0;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void *engine_thread(void *arg) {
    struct scheduler *s = arg;
    bool idle = true;
    while (inbox_wait(s, idle)) idle = !scheduler_step(s);
    return NULL;
}

void scheduler_start(struct scheduler *s) {
    assert(!s->started);
    s->started = true;
    if (pthread_create(&s->thread, NULL, engine_thread, s) != 0) {
        log_line(LOG_ERROR, "The engine thread could not be started.");
        exit(1);
    }
}

/* What still lives is cancelled by this thread, which is the engine thread's heir once that has
 * been joined. */
static void end_all(struct scheduler *s) {
    inbox_take(s);
    cancel_everything(s);
    events_deliver(s);
    assert(s->requests.n == 0 && s->running.n == 0 && s->waiting.n == 0);
    assert(block_pool_available(&s->pool) == s->pool.n_blocks);
}

void scheduler_free(struct scheduler *s) {
    if (!s) return;
    inbox_stop(s);
    if (s->started) pthread_join(s->thread, NULL);
    end_all(s);
    s->port.close(s->port.self);
    block_pool_free(&s->pool);
    plan_free(&s->plan);
    batch_free(&s->batch);
    free(s->jobs);
    free(s->events);
    inbox_free(s);
    free(s);
}
