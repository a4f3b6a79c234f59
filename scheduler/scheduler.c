/* scheduler: the step, and the thread that runs the steps.
 *
 * DESIGN. One engine thread owns the queues, the sequences and the block pool. Only the inbox has a
 * lock. The thread sleeps while no request is live.
 *
 * Events are delivered in the order in which they are added, so the tokens of a generation are in
 * order. They are delivered at the end of a step (events_deliver), and earlier if their array is
 * full (event_add): after the end of a search, many cancels, or a failure. So any call of event_add
 * may return generations to the server, which frees them. The rule: when the last event of a
 * generation is added, all its sequences have ended, and it is not read afterwards. leave_scheduler
 * clears the request's pointer to it. Samples have separate pointers into it, so the engine gets
 * only samples whose sequences live.
 *
 * If the engine runs on a device, two steps are in flight, and the host is one step ahead:
 *
 *     thread    plan n, submit | plan n+1, submit | wait n, commit | plan n+2, submit | wait n+1 ..
 *     engine                   [ n                         ][ n+1                            ][ n+2
 *
 * A plan does not depend on the ids that are being sampled: positions, slots and tables are known
 * without them, and a row with an unknown token names the result that it needs (inflight.h shows
 * the owner of each piece of data). Only a grammar needs the ids to determine the allowed tokens.
 * If rows of pending tokens have a grammar, the step is submitted, and is sampled after the commit
 * of the step before it:
 *
 *     thread    plan n+1, submit | wait n, commit | masks n+1, sample | plan n+2, submit ..
 *     engine    [ n      ][ n+1                                                ][ n+2
 *
 * A plan that is made ahead cannot know that a sequence will end. The commit detects the end and
 * drops the superfluous row. With one step in flight, plan, submit and commit follow one another,
 * and nothing is planned ahead.
 *
 * If nothing has run for unload_after_ns, the thread unloads the model between two steps, and loads
 * it at the next request (unload.c).
 *
 * If a commit finds that the device has failed, all requests end, the results of steps in flight
 * are dropped, and the thread sleeps until it is stopped. The same happens at the beginning of a
 * step if a rank is lost; scheduler_wake begins one.
 */
#include <stdlib.h>

#include "scheduler/internal.h"
#include "scheduler/kv/event_ring.h"
#include "scheduler/speculate.h"

/* Default number of prompt rows in a step that decodes: as many as take about as long as the
 * decodes, which are limited by reading the weights. */
enum { MIXED_ROWS_ON_HOST = 16, MIXED_ROWS_ON_DEVICE = 512 };

/* Fewer tokens than these are recomputed: a step that is limited by memory has time for them. */
enum { SWAP_FROM = 64 };

/* A shorter rest of a prompt is recomputed: a step that ends at a checkpoint there costs more. */
enum { CHECKPOINT_LEAST = 64 };

/* Without checkpoints, cached blocks have no state. Without states for drafts, a state cannot be
 * set back to before a refused one. */
static void set_states(struct scheduler *s) {
    struct scheduler_config *config = &s->config;
    int reserved = config->n_checkpoints + config->n_draft_states;
    assert(config->n_checkpoints >= 0 && config->n_draft_states >= 0);
    assert(config->n_states >= config->max_num_seqs + reserved);
    assert(config->checkpoint_least >= 0);
    if (config->n_checkpoints == 0) config->prefix_caching = false;
    if (!config->prefix_caching) config->n_checkpoints = 0;
    if (config->checkpoint_least == 0) config->checkpoint_least = CHECKPOINT_LEAST;
    if (config->n_draft_states > 0) return;
    config->speculation = (struct speculation){0};
    config->drafter = NULL;
}

/* Copies the config. Replaces a 0 with the default. */
static void set_config(struct scheduler *s, const struct scheduler_config *config, bool on_host) {
    assert(config->max_num_seqs > 0 && config->max_num_batched_tokens > 0);
    assert(config->max_logit_rows > 0 && config->max_model_len > 0);
    assert(config->n_blocks > 0 && config->block_size > 0 && config->block_size <= MAX_BLOCK_SIZE);
    assert(config->n_blocks <= INT32_MAX / config->block_size && config->on_events);
    assert(config->max_queued_requests > 0 && config->max_queued_tokens > 0);
    assert(config->max_mixed_prefill_tokens >= 0 && config->swap_from >= 0);
    assert(!config->whole_prompts || !config->prefix_caching);
    assert(!config->whole_prompts || config->max_logit_rows == config->max_num_batched_tokens);
    assert(config->speculation.max_tokens >= 0 && config->speculation.max_tokens <= MAX_DRAFTS);
    s->config = *config;
    if (config->max_mixed_prefill_tokens == 0)
        s->config.max_mixed_prefill_tokens = on_host ? MIXED_ROWS_ON_HOST : MIXED_ROWS_ON_DEVICE;
    s->config.itl_auto = config->itl_auto && on_host;
    if (config->swap_from == 0) s->config.swap_from = SWAP_FROM;
    if (config->n_states > 0) set_states(s);
}

static void set_drafter(struct scheduler *s) {
    const struct speculation *speculation = &s->config.speculation;
    s->lookup = (struct lookup_config){speculation->lookup_min, speculation->lookup_max};
    if (s->config.drafter) {
        s->drafter = *s->config.drafter;
    } else if (speculation->method == SPECULATION_LOOKUP) {
        s->drafter = drafter_lookup(&s->lookup);
    } else if (speculation->method == SPECULATION_SUFFIX) {
        s->suffix = suffix_new(&s->lookup);
        s->drafter = drafter_suffix(s->suffix);
    }
}

struct scheduler *scheduler_new_on(const struct scheduler_config *config,
                                   const struct engine_port *port) {
    struct scheduler *s = mem_calloc(1, sizeof *s);
    set_config(s, config, port->on_host);
    s->port = *port;
    set_drafter(s);
    step_cost_init(&s->cost, port->on_host);
    s->max_seqs = min_int(min_int(config->max_num_seqs, config->max_num_batched_tokens),
                          config->max_logit_rows);
    block_pool_init(&s->pool, config->n_blocks, config->block_size, s->config.prefix_caching);
    state_pool_init(&s->states, config->n_states);
    const struct checkpoint_places places = {s->config.checkpoint_every,
                                             s->config.checkpoint_least};
    checkpoints_init(&s->checkpoints, config->n_states > 0 ? s->config.n_checkpoints : 0, &places,
                     &s->pool, &s->states);
    window_pool_init(&s->pool.windows, config->n_window_blocks, config->window, config->n_blocks,
                     config->block_size);
    if (config->kv_events) event_ring_observe(config->kv_events, &s->pool);
    restore_init(s);
    list_init(&s->waiting);
    list_init(&s->running);
    list_init(&s->requests);
    s->next_deadline_ns = UINT64_MAX;
    shares_init(&s->shares, max_int(config->n_shares, 1),
                config->n_shares > 0 ? config->share_weights : NULL);
    plan_init(&s->plan, s->max_seqs, config->n_blocks, s->shares.n);
    int stride = block_pool_blocks_for(&s->pool, config->max_model_len);
    struct swap_port swap = port->swap;
    if (config->n_states > 0) swap.n_host_blocks = swap.n_host_windows = 0; /* nor states there */
    swap_init(&s->swap, &swap, &s->pool, stride);
    batch_init(&s->batch, s->max_seqs, config->max_num_batched_tokens, config->max_logit_rows,
               stride < config->n_blocks ? stride : config->n_blocks, config->block_size,
               &s->pool.windows);
    int samples = config->max_logit_rows + MAX_EXTRA_SAMPLES;
    s->max_events = samples + MAX_CHOICES;
    assert(port->in_flight >= 1 && port->in_flight <= MAX_IN_FLIGHT);
    for (int i = 0; i < port->in_flight; i++)
        inflight_init(&s->inflight[i], s->max_seqs, samples, port->V);
    s->spare_mask = mem_calloc((size_t)mask_words(port->V), sizeof *s->spare_mask);
    s->events = mem_calloc((size_t)s->max_events, sizeof *s->events);
    const enum speculation_method method = s->config.speculation.method;
    if (method == SPECULATION_AHEAD || method == SPECULATION_EAGLE3) speculate_with_ahead(s);
    assert(config->unload_after_ns == 0 || (port->unload && port->load));
    s->stats.last_step_ns = now_ns();
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

/* With recurrent layers each draft needs a state, so that it can be taken back. */
static int most_drafts(struct scheduler *s) {
    int n = s->config.n_draft_states;
    if (s->states.n == 0) return MAX_COST_ROWS;
    list_each(node, &s->running) n -= sequence_of(node)->kv.n_row_states;
    assert(n >= 0);
    return n;
}

/* Returns whether there is anything to compute. */
static bool make_plan(struct scheduler *s, uint64_t now) {
    struct plan_view view = {.running = &s->running,
                             .waiting = &s->waiting,
                             .shares = &s->shares,
                             .pool = &s->pool,
                             .max_seqs = s->max_seqs,
                             .max_rows = s->config.max_num_batched_tokens,
                             .mixed_rows = s->config.max_mixed_prefill_tokens,
                             .row_quantum = s->port.row_quantum,
                             .host_cache = s->swap.cache.on ? &s->swap.cache : NULL,
                             .swap_from = s->config.swap_from,
                             .cost = &s->cost,
                             .itl_target_ns = (float)s->config.itl_target_ns,
                             .itl_auto = s->config.itl_auto,
                             .whole_prompts = s->config.whole_prompts,
                             .drafts = drafter_guesses(&s->drafter),
                             .fixed_drafts = s->config.fixed_drafts,
                             .most_drafts = most_drafts(s),
                             .max_logit_rows = s->config.max_logit_rows,
                             .checkpoints = s->checkpoints.n > 0 ? &s->checkpoints : NULL,
                             .now_ns = now};
    speculate_propose(s);
    plan_make(&s->plan, &view);
    assert(s->plan.rows > 0 || s->requests.n == 0 || s->n_in_flight > 0);
    return s->plan.rows > 0;
}

static struct inflight *inflight_at(struct scheduler *s, int i) {
    return &s->inflight[(s->first_in_flight + i) % s->port.in_flight];
}

struct inflight *inflight_newest(struct scheduler *s) {
    return s->n_in_flight > 0 ? inflight_at(s, s->n_in_flight - 1) : NULL;
}

/* The engine reads the generations that samples point to: the scheduler must own all of them. */
static void check_owners(const struct inflight *inflight) {
    for (int i = 0; i < inflight->n_samples; i++) {
        assert(inflight->owner[i]->state != SEQUENCE_ENDED);
        assert(inflight->owner[i]->request->generation);
    }
}

static void scheduler_sample(struct scheduler *s, struct inflight *inflight) {
    assert(!inflight->is_sampled);
    check_owners(inflight);
    constraint_make_masks(s, inflight);
    s->port.sample(s->port.self, inflight->samples, inflight->n_samples);
    inflight->is_sampled = true;
    step_part_ends(s, PART_SAMPLE);
}

/* Returns whether a step was submitted. */
static bool submit_next(struct scheduler *s, uint64_t now) {
    if (!make_plan(s, now)) return false;
    plan_apply(s);
    struct inflight *inflight = inflight_at(s, s->n_in_flight++);
    struct step step = *batch_fill(&s->batch, inflight);
    inflight->began_ns = now;
    inflight->drafting_ns = s->draft_engine.ns;
    inflight->shape = s->plan.shape;
    inflight->is_sampled = false;
    step_part_ends(s, PART_PLAN);
    if (!constraint_masks(inflight)) {
        step.samples = inflight->samples;
        step.n_samples = inflight->n_samples;
    }
    s->port.submit(s->port.self, &step);
    step_part_ends(s, PART_FORWARD);
    if (!constraint_waits(inflight)) scheduler_sample(s, inflight);
    return true;
}

/* The time of a step begins at the end of the step before it. The time of a draft model does not
 * count as a cost of its rows. */
static void commit_oldest(struct scheduler *s) {
    struct inflight *inflight = inflight_at(s, 0);
    uint64_t began = inflight->began_ns, drafting = inflight->drafting_ns;
    const struct step_shape shape = inflight->shape;
    if (began < s->stats.last_step_ns) began = s->stats.last_step_ns;
    commit_step(s, inflight);
    s->first_in_flight = (s->first_in_flight + 1) % s->port.in_flight;
    s->n_in_flight--;
    s->stats.last_step_ns = now_ns();
    uint64_t took = s->stats.last_step_ns - began;
    s->stats.step_ns += took;
    took -= drafting < took ? drafting : took;
    if (shape.prefill_rows > 0)
        step_cost_note_prefill(&s->cost, &shape, took);
    else
        step_cost_note(&s->cost, shape.decode_rows, took);
}

/* The samples of the newest step may have waited for the ids of the step before it. The commit of
 * that step may have ended sequences. */
static void sample_newest(struct scheduler *s) {
    struct inflight *newest = inflight_newest(s);
    if (!newest || newest->is_sampled) return;
    while (s->n_in_flight > 1) commit_oldest(s);
    s->stats.dropped_samples += (uint64_t)inflight_drop_ended(newest);
    scheduler_sample(s, newest);
}

bool scheduler_step(struct scheduler *s) {
    atomic_store(&s->inbox.stepping, true);
    s->part_began_ns = now_ns();
    inbox_take(s);
    cancel_wanted(s);
    if (s->port.lost && s->port.lost(s->port.self)) scheduler_fail(s);
    deadline_end_late(s, s->part_began_ns);
    unload_or_load(s);
    bool submitted = s->stats.model == MODEL_LOADED && submit_next(s, s->part_began_ns);
    if (s->n_in_flight == s->port.in_flight || (!submitted && s->n_in_flight > 0)) commit_oldest(s);
    sample_newest(s);
    inbox_publish(s);
    if (s->config.kv_events) event_ring_end_step(s->config.kv_events);
    events_deliver(s);
    step_part_ends(s, PART_COMMIT);
    atomic_store(&s->inbox.stepping, false);
    return s->requests.n > 0 || s->n_in_flight > 0;
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

void scheduler_free(struct scheduler *s) {
    if (!s) return;
    inbox_stop(s);
    if (s->started) pthread_join(s->thread, NULL);
    /* No other thread steps any more. This thread cancels the remaining requests. */
    inbox_take(s);
    end_everything(s, FINISH_CANCELLED);
    while (s->n_in_flight > 0) commit_oldest(s);
    events_deliver(s);
    assert(s->requests.n == 0 && s->running.n == 0 && s->waiting.n == 0);
    assert(block_pool_available(&s->pool) == s->pool.n_blocks);
    checkpoints_free(&s->checkpoints);
    assert(s->states.n_free == s->states.n);
    swap_free(&s->swap);
    state_pool_free(&s->states);
    block_pool_free(&s->pool);
    plan_free(&s->plan);
    shares_free(&s->shares);
    batch_free(&s->batch);
    for (int i = 0; i < s->port.in_flight; i++) inflight_free(&s->inflight[i]);
    mem_free(s->events);
    mem_free(s->spare_mask);
    mem_free(s->restored);
    inbox_free(s);
    suffix_free(s->suffix);
    speculate_close(s);
    mem_free(s);
}
