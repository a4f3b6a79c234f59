/* scheduler: the step, and the thread that takes one after the other.
 *
 * DESIGN. One engine thread owns the queues, the sequences and the block pool; nothing in here is
 * locked but the inbox. It sleeps while nothing lives here. Events leave in the order in which
 * they came about, after the step that made them, so a generation's tokens are in order and its
 * last event is the last touch of it: afterwards it is the server's.
 *
 * Where the engine runs beside the host, two steps are in flight, and the host is one ahead:
 *
 *     thread    plan n, submit | plan n+1, submit | wait n, commit | plan n+2, submit | wait n+1 ..
 *     engine                   [ n                         ][ n+1                            ][ n+2
 *
 * Nothing that a plan needs depends on the ids that are being sampled: positions, slots and tables
 * are known without them, and a row whose token is not known says whose result it is (flight.h
 * draws who owns what). What a sequence could not know when it was planned ahead, that it would
 * end, is found at the commit, and the row too many is thrown away there. With one in flight, plan,
 * submit and commit follow one another, and nothing is speculated.
 *
 * When the device has failed, which a commit finds out, all requests end, steps that are in flight
 * are waited for and thrown away, and the thread sleeps until it is told to stop.
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
    swap_init(&s->swap, port->n_slots, stride);
    cold_init(s, stride);
    batch_init(&s->batch, s->max_seqs, config->max_num_batched_tokens, config->max_logit_rows,
               stride < config->n_blocks ? stride : config->n_blocks, config->block_size);
    int samples = config->max_logit_rows + MAX_EXTRA_SAMPLES;
    s->max_events = samples + MAX_CHOICES;
    assert(port->in_flight >= 1 && port->in_flight <= MAX_IN_FLIGHT);
    for (int i = 0; i < port->in_flight; i++) flight_init(&s->flight[i], s->max_seqs, samples);
    s->events = mem_calloc((size_t)s->max_events, sizeof *s->events);
    inbox_init(s);
    inbox_publish(s);
    return s;
}

/* ---- the step ------------------------------------------------------------------------------- */

void step_part_ends(struct scheduler *s, enum step_part part) {
    uint64_t now = now_ns();
    s->stats.part_ns[part] += now - s->part_began_ns;
    s->part_began_ns = now;
}

static int mixed_rows(const struct scheduler_config *config) {
    int rows = config->max_mixed_prefill_tokens;
    return rows > 0 ? rows : config->max_num_batched_tokens;
}

/* Returns whether there is anything to compute. */
static bool make_plan(struct scheduler *s, uint64_t now) {
    struct plan_view view = {.running = &s->running,
                             .waiting = &s->waiting,
                             .pool = &s->pool,
                             .max_seqs = s->max_seqs,
                             .max_rows = s->config.max_num_batched_tokens,
                             .mixed_rows = mixed_rows(&s->config),
                             .cold = s->swap.cold.on ? &s->swap.cold : NULL,
                             .swap_from = s->config.swap_from,
                             .max_logit_rows = s->config.max_logit_rows,
                             .now_ns = now};
    plan_make(&s->plan, &view);
    assert(s->plan.rows > 0 || s->requests.n == 0 || s->n_flights > 0);
    return s->plan.rows > 0;
}

static struct flight *flight_at(struct scheduler *s, int i) {
    return &s->flight[(s->first_flight + i) % s->port.in_flight];
}

/* Returns whether a step was submitted. */
static bool submit_next(struct scheduler *s, uint64_t now) {
    if (!make_plan(s, now)) return false;
    plan_apply(s);
    struct flight *flight = flight_at(s, s->n_flights++);
    const struct step *step = batch_fill(&s->batch, flight);
    flight->began_ns = now;
    step_part_ends(s, PART_PLAN);
    s->port.submit(s->port.self, step, flight->jobs, flight->n_jobs);
    step_part_ends(s, PART_FORWARD);
    return true;
}

/* A step's time begins where that of the one before ended. */
static void commit_oldest(struct scheduler *s) {
    struct flight *flight = flight_at(s, 0);
    uint64_t began = flight->began_ns;
    if (began < s->stats.last_step_ns) began = s->stats.last_step_ns;
    commit_step(s, flight);
    s->first_flight = (s->first_flight + 1) % s->port.in_flight;
    s->n_flights--;
    s->stats.last_step_ns = now_ns();
    s->stats.step_ns += s->stats.last_step_ns - began;
}

static void run_step(struct scheduler *s, uint64_t now) {
    bool submitted = submit_next(s, now);
    if (s->n_flights == s->port.in_flight || (!submitted && s->n_flights > 0)) commit_oldest(s);
}

bool scheduler_step(struct scheduler *s) {
    atomic_store(&s->inbox.stepping, true);
    s->part_began_ns = now_ns();
    inbox_take(s);
    cancel_wanted(s);
    run_step(s, s->part_began_ns);
    inbox_publish(s);
    events_deliver(s);
    step_part_ends(s, PART_COMMIT);
    atomic_store(&s->inbox.stepping, false);
    return s->requests.n > 0 || s->n_flights > 0;
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
    end_everything(s, FINISH_CANCELLED);
    while (s->n_flights > 0) commit_oldest(s);
    events_deliver(s);
    assert(s->requests.n == 0 && s->running.n == 0 && s->waiting.n == 0);
    assert(block_pool_available(&s->pool) == s->pool.n_blocks);
    assert(swap_used(&s->swap) == 0 && s->swap.n_swapped == 0);
}

void scheduler_free(struct scheduler *s) {
    if (!s) return;
    inbox_stop(s);
    if (s->started) pthread_join(s->thread, NULL);
    end_all(s);
    s->port.close(s->port.self);
    block_pool_free(&s->pool);
    cold_free(s);
    swap_free(&s->swap);
    plan_free(&s->plan);
    batch_free(&s->batch);
    for (int i = 0; i < s->port.in_flight; i++) flight_free(&s->flight[i]);
    free(s->events);
    inbox_free(s);
    free(s);
}
