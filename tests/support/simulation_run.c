/* The steps of a scenario, and the checks after each. */
#include <check.h>
#include <stdlib.h>

#include "support/simulation.h"

/* ---- events --------------------------------------------------------------------------------- */

/* No request starves: each step advances the first sequence in the order by a token, so a request
 * ends within as many steps as there are tokens in all requests that lived at the same time. A more
 * urgent request may preempt sequences, which are recomputed; so may one that another share's turn
 * admitted first. With two steps in flight the first in
 * the order may wait for its result every other step. */
static void check_wait(const struct simulation *sim, const struct fake_client *client) {
    uint64_t waited = sim->n_steps - client->submitted_at;
    uint64_t work = sim->work_in - client->work_before;
    uint64_t in_flight = (uint64_t)sim->engine->in_flight;
    assert(waited <= work * (sim->priorities || sim->config.n_shares > 1 ? 3 : 1) * in_flight +
                         2 * in_flight);
}

void simulation_on_events(void *arg, const struct event *events, int n) {
    struct simulation *sim = arg;
    for (int i = 0; i < n; i++) {
        struct fake_client *client = events[i].generation->owner;
        uint64_t work = simulation_work(client);
        fake_client_take(client, &events[i]);
        sim->n_complete += events[i].finish == FINISH_COMPLETE;
        sim->n_stuck += events[i].finish == FINISH_STUCK;
        if (!events[i].last) continue;
        int k = 0;
        while (sim->client[k] != client) k++;
        check_wait(sim, client);
        sim->work_out += work;
        sim->client[k] = NULL;
        sim->n_live--;
        free(client);
    }
}

/* Called once, before the ends that follow from the failure. */
void simulation_on_failure(void *arg, const struct err *err) {
    struct simulation *sim = arg;
    assert(err->status && !sim->failed && sim->engine->fails_at > 0);
    sim->failed = true;
}

/* ---- running -------------------------------------------------------------------------------- */

static void cancel_some(struct simulation *sim) {
    struct fake_client *client = sim->client[sim_between(sim, 0, MAX_CLIENTS - 1)];
    if (!client) return;
    sim->n_cancelled++;
    if (sim_chance(sim, 50) || client->generation.beams.width > 0) {
        atomic_store(&client->generation.cancelled, true);
    } else {
        int choice = sim_between(sim, 0, client->generation.n - 1);
        atomic_fetch_or(&client->generation.cancelled_choices[choice / 64],
                        (uint64_t)1 << (choice % 64));
    }
    scheduler_cancel(sim->scheduler, &client->generation);
}

static void check_flags_took_effect(const struct simulation *sim) {
    for (int i = 0; i < MAX_CLIENTS; i++) {
        const struct fake_client *client = sim->client[i];
        if (!client) continue;
        assert(!atomic_load(&client->generation.cancelled));
        for (int c = 0; c < client->generation.n; c++)
            assert(client->choice[c].ended ||
                   !(atomic_load(&client->generation.cancelled_choices[c / 64]) >> (c % 64) & 1));
    }
}

/* Returns the number of live sequences of a client; a search ends as a whole. */
static int live_of(const struct fake_client *client) {
    const struct generation *g = &client->generation;
    bool searches =
        g->beams.width > 0 && generation_max_tokens(g, client->max_model_len) > g->n_prompt;
    return searches ? g->beams.width : g->n - client->n_ended;
}

/* The gauges are right after each step, whatever ended in it and how. When all requests have ended,
 * the gauges are zero and the whole queue is free. */
static void check_gauges(const struct simulation *sim) {
    struct scheduler_stats stats;
    int live = 0, swapped = 0;
    scheduler_stats(sim->scheduler, &stats);
    list_each(node, &sim->scheduler->waiting) swapped +=
        sequence_of(node)->state == SEQUENCE_SWAPPED;
    for (int i = 0; i < MAX_CLIENTS; i++) live += sim->client[i] ? live_of(sim->client[i]) : 0;
    assert(stats.running + stats.waiting + stats.swapped == live);
    assert(stats.running == sim->scheduler->running.n && stats.swapped == swapped);
    assert(!stats.stepping);
    if (sim->n_live > 0) return;
    assert(stats.running == 0 && stats.waiting == 0 && stats.swapped == 0);
    assert(stats.queued_tokens == 0 && stats.blocks_used == 0);
    assert(stats.window_blocks_used == 0 && stats.host_blocks_used == 0);
    const struct scheduler_config *config = &sim->config;
    assert(scheduler_has_room(sim->scheduler, config->max_queued_requests, INT32_MAX));
}

/* Replaying the events gives the known blocks after each step. If events are lost, the next step
 * lists all blocks; sometimes the reader itself asks for that. */
static void follow_blocks(struct simulation *sim) {
    struct event_reader *reader = sim->reader;
    if (!reader || fake_between(&sim->reader_random, 1, 100) > sim->reads) return;
    event_reader_apply(reader);
    if (fake_between(&sim->reader_random, 1, 500) == 1) event_ring_restart(reader->ring);
    if (!event_ring_waits(reader->ring)) event_reader_check(reader, &sim->scheduler->pool);
}

/* An idle step ends with all lost events. */
static void end_reader(struct simulation *sim) {
    struct event_reader *reader = sim->reader;
    if (!reader) return;
    event_reader_apply(reader);
    scheduler_step(sim->scheduler);
    event_reader_apply(reader);
    event_reader_check(reader, &sim->scheduler->pool);
    sim->n_stored = reader->n_stored;
    sim->n_removed = reader->n_removed;
    sim->n_cleared = reader->n_cleared;
}

void simulation_run(struct simulation *sim) {
    int arrival = sim_between(sim, 1, sim_chance(sim, 25) ? 10 : 95),
        cancel = sim_chance(sim, 50) ? sim_between(sim, 1, 10) : 0;
    bool more = false;
    while (sim->n_left > 0 || sim->n_live > 0 || more) {
        while (sim->n_left > 0 && sim_chance(sim, arrival)) simulation_ask(sim);
        if (sim_chance(sim, cancel)) cancel_some(sim);
        sim->n_steps++;
        more = scheduler_step(sim->scheduler);
        assert(more == (sim->n_live > 0 || sim->engine->n_passes > 0));
        scheduler_check(sim->scheduler);
        fake_engine_poison(sim->engine, &sim->scheduler->pool.windows);
        fake_engine_poison_states(sim->engine, &sim->scheduler->states);
        check_flags_took_effect(sim);
        check_gauges(sim);
        follow_blocks(sim);
    }
    end_reader(sim);
}

void simulation_end(struct simulation *sim) {
    struct scheduler_stats stats;
    scheduler_stats(sim->scheduler, &stats);
    sim->n_hits = stats.prefix_hits;
    sim->n_preemptions = stats.preemptions;
    sim->n_copies = sim->engine->n_copies;
    sim->n_state_copies = sim->engine->n_state_copies;
    assert(stats.states_used == 0 && stats.states_cached <= sim->config.n_checkpoints);
    sim->n_state_hits = sim->config.n_states > 0 ? stats.prefix_hits : 0;
    sim->n_state_drafts = sim->config.n_states > 0 ? stats.accepted_tokens : 0;
    sim->n_pending = sim->engine->n_pending;
    sim->n_dropped = stats.dropped_samples;
    sim->n_drafts = stats.draft_tokens;
    sim->n_accepted = stats.accepted_tokens;
    sim->n_forced = stats.forced_tokens;
    sim->n_unready = stats.unready_masks;
    ck_assert(!sim->config.samples_forced || sim->n_forced == 0);
    sim->n_out = sim->engine->n_out;
    sim->n_in = sim->engine->n_in;
    sim->n_rows = sim->engine->n_rows;
    assert(stats.swapped_out == sim->n_out && stats.swapped_in == sim->n_in);
    assert(stats.swapped == 0 && stats.host_blocks_used == 0);
    sim->engine_steps = sim->engine->n_steps;
    assert(stats.running == 0 && stats.waiting == 0 && stats.blocks_used == 0);
    assert(stats.queued_tokens == 0 && stats.cached_tokens <= stats.prompt_tokens);
    if (sim->failed) { /* failed steps are not counted */
        assert(stats.steps < sim->engine->n_steps && stats.step_rows < sim->n_rows);
    } else {
        assert(stats.steps == sim->engine->n_steps && stats.step_rows == sim->n_rows);
    }
    for (int i = 0; i <= STEP_ROW_BOUNDS; i++) stats.steps -= stats.steps_by_rows[i];
    assert(stats.steps == 0);
    scheduler_free(sim->scheduler);
    event_reader_free(sim->reader);
    fake_engine_free(sim->engine);
    sim->n_passes = sim->draft.engine ? sim->draft.engine->n_steps : 0;
    if (sim->draft.engine) fake_draft_close(&sim->draft);
    for (int i = 0; i < N_GRAMMARS; i++) grammar_release(sim->grammar[i]);
}
