/* The policy of the scheduler in simulation: without model, clock or threads. Each scenario is a
 * seed. It draws the limits of a scheduler and a load of requests, and runs steps until all have
 * ended. After each step it checks every invariant, compares every token with that of the request
 * running alone, and checks that no request waits longer than the work before it.
 *
 *     SCHEDULER_SEED=123   replays one scenario
 *     SCHEDULER_STEPS=n    number of steps, by default a million (fewer under sanitizers)
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/event_reader.h"
#include "support/fake_client.h"
#include "support/fake_draft.h"
#include "support/lettered.h"
#include "support/replay_drafter.h"

#if defined(__SANITIZE_THREAD__)
#define STEPS 30000
#elif defined(__SANITIZE_ADDRESS__)
#define STEPS 100000
#else
#define STEPS 1000000
#endif

#define MAX_CLIENTS 48
#define N_TEMPLATES 4
#define N_GRAMMARS 4

struct simulation {
    uint64_t seed, random;
    struct scheduler_config config;
    struct replay replay;
    struct drafter drafter;
    struct fake_engine *engine;
    struct fake_draft draft; /* its engine is NULL in scenarios without a draft model */
    struct scheduler *scheduler;
    struct event_reader *reader; /* of the known blocks, or NULL */
    uint64_t reader_random;
    int reads;                               /* percentage of steps after which the reader reads */
    struct fake_client *client[MAX_CLIENTS]; /* NULL: free */
    int32_t template[N_TEMPLATES][FAKE_MAX_TOKENS];
    struct grammar *grammar[N_GRAMMARS];
    int n_live, n_left; /* requests that live; that will still arrive */
    bool priorities;
    uint64_t share_random;
    int weight[4];
    bool failed;                    /* the device has failed */
    uint64_t n_steps, engine_steps; /* all steps; steps that computed rows */
    uint64_t work_in, work_out;     /* maximum tokens of requests that arrived; that ended */
    uint64_t n_requests, n_cancelled, n_refused, n_hits, n_preemptions, n_copies, n_rows;
    uint64_t n_state_copies;
    uint64_t n_pending, n_dropped; /* rows planned ahead; dropped samples */
    uint64_t n_out, n_in;          /* swapped blocks */
    uint64_t n_drafts, n_accepted; /* verified drafts; accepted ones */
    uint64_t n_passes;             /* of draft models */
    uint64_t n_searches;           /* requests with beams */
    /* choices that ended because their grammar was complete; because no token was allowed */
    uint64_t n_complete, n_stuck, n_forced, n_unready;
    uint64_t n_failed;                       /* scenarios */
    uint64_t n_stored, n_removed, n_cleared; /* events of blocks */
};

static struct vocabulary *vocabulary;
static uint64_t current_seed; /* printed if an assert fails */

static void tell_seed(int signal) {
    (void)signal;
    fprintf(stderr, "the scenario that failed: SCHEDULER_SEED=%llu\n",
            (unsigned long long)current_seed);
}

static int between(struct simulation *sim, int low, int high) {
    return fake_between(&sim->random, low, high);
}

static bool chance(struct simulation *sim, int percent) {
    return between(sim, 1, 100) <= percent;
}

/* ---- the scenario --------------------------------------------------------------------------- */

static void on_events(void *arg, const struct event *events, int n);
static void on_failure(void *arg, const struct err *err);

static void draw_config(struct simulation *sim) {
    static const int sizes[] = {1, 2, 3, 4, 8, 16};
    int size = sizes[between(sim, 0, 5)];
    int slots = between(sim, 16, chance(sim, 40) ? 60 : 500);
    int seqs = between(sim, 1, chance(sim, 30) ? 4 : 24);
    sim->config = (struct scheduler_config){
        .max_num_seqs = seqs,
        .max_num_batched_tokens =
            between(sim, chance(sim, 10) ? 1 : seqs, seqs + (chance(sim, 50) ? 8 : 60)),
        .max_mixed_prefill_tokens = chance(sim, 50) ? 1000 : between(sim, 1, 30),
        .itl_target_ns = chance(sim, 60) ? 0 : (uint64_t)between(sim, 1, 100000),
        .max_model_len = between(sim, 8, 120),
        .max_queued_requests = between(sim, 2, MAX_CLIENTS),
        .max_queued_tokens = between(sim, 64, 1000),
        .n_blocks = slots / size > 2 ? slots / size : 3,
        .block_size = size,
        .max_logit_rows = between(sim, chance(sim, 10) ? 1 : seqs, 2 * seqs),
        .prefix_caching = chance(sim, 75),
        .swap_from = chance(sim, 50) ? 1 : between(sim, 1, 20),
        .on_events = on_events,
        .on_failure = on_failure,
        .arg = sim};
}

/* In half of the scenarios layers with windows have separate blocks: sometimes just as many as a
 * sequence needs, and at most as many as there are blocks. */
static void draw_windows(struct simulation *sim) {
    struct scheduler_config *config = &sim->config;
    if (chance(sim, 50)) return;
    config->window = between(sim, 1, chance(sim, 50) ? 20 : 100);
    int least = window_blocks_seen(config->window, config->block_size);
    int most = chance(sim, 40) ? least + 2 : config->n_blocks;
    int drawn = between(sim, least, max_int(least, most));
    config->n_window_blocks = min_int(drawn, config->n_blocks);
}

/* Host window blocks: too few or plenty, and sometimes memory for only a part of them. */
static void draw_host_windows(struct simulation *sim) {
    struct fake_engine *engine = sim->engine;
    if (engine->n_host_blocks == 0 || sim->config.n_window_blocks == 0) return;
    engine->n_host_windows = between(sim, 1, 3 * sim->config.n_window_blocks);
    engine->n_host_of_windows =
        chance(sim, 80) ? engine->n_host_windows : between(sim, 0, engine->n_host_windows);
}

/* Two in three scenarios speculate: with drafts that are known to be right but are partly spoilt,
 * or by lookup. */
static void draw_drafter(struct simulation *sim) {
    static const struct lookup_config lookup = {.min_match = 1, .max_match = MAX_DRAFT_MATCH};
    if (chance(sim, 33)) return;
    sim->replay = (struct replay){.foresee = fake_foresee,
                                  .V = FAKE_V,
                                  .wrong = chance(sim, 30) ? 0 : between(sim, 0, 100),
                                  .any_length = chance(sim, 70),
                                  .random = sim->random};
    sim->config.speculation.max_tokens = between(sim, 0, MAX_DRAFTS);
    sim->config.fixed_drafts = chance(sim, 70);
    if (chance(sim, 20)) { /* the scheduler makes the drafter */
        sim->config.speculation.method = SPECULATION_SUFFIX;
        sim->config.speculation.lookup_min = between(sim, 1, 3);
        sim->config.speculation.lookup_max = MAX_DRAFT_MATCH;
        return;
    }
    sim->drafter = chance(sim, 20) ? drafter_lookup(&lookup) : replay_drafter(&sim->replay);
    sim->config.drafter = &sim->drafter;
}

/* In every seventh scenario the model has recurrent layers, with as many states as sequences. The
 * scheduler then neither drafts nor caches. */
static void draw_states(struct simulation *sim) {
    if (sim->seed % 7 != 3) return;
    sim->config.n_states = sim->config.max_num_seqs;
    sim->config.drafter = NULL;
}

/* In every third scenario with a drafter, a draft model replaces it: with few blocks or many, for a
 * limited text length, with partly spoilt drafts. It uses a separate random sequence, so everything
 * else is unchanged. */
static void add_draft_model(struct simulation *sim) {
    uint64_t random = sim->seed * 7717;
    if (sim->seed % 3 != 1 || !sim->config.drafter) return;
    const struct draft_room room = {
        .block_size = sim->config.block_size,
        .n_blocks = fake_between(&random, 1, 2 * sim->config.n_blocks),
        .max_tokens = fake_between(&random, 8, 2 * sim->config.max_model_len),
        .max_seqs = sim->config.max_num_seqs,
        .max_rows = sim->config.max_num_seqs + fake_between(&random, 0, 20),
    };
    sim->draft.wrong = fake_between(&random, 1, 100) <= 30 ? 0 : fake_between(&random, 0, 100);
    sim->draft.random = random;
    sim->config.speculation.max_tokens = min_int(sim->config.speculation.max_tokens, 6);
    sim->scheduler->config.speculation.max_tokens = sim->config.speculation.max_tokens;
    fake_draft_open(&sim->draft, sim->scheduler, &room);
}

/* A third of the scenarios have shares. They use a separate random sequence, so everything else is
 * unchanged. */
static void draw_shares(struct simulation *sim) {
    sim->share_random = sim->seed * 9901;
    if (sim->seed % 3 != 2) return;
    sim->config.n_shares = fake_between(&sim->share_random, 2, 4);
    sim->config.share_weights = sim->weight;
    for (int i = 0; i < 4; i++) sim->weight[i] = fake_between(&sim->share_random, 1, 5);
}

/* In half of the scenarios a reader follows the known blocks. It reads after each step, or so
 * rarely that its ring overflows. It uses a separate random sequence, so everything else is
 * unchanged. */
static void draw_reader(struct simulation *sim) {
    sim->reader_random = sim->seed * 6007;
    if (sim->seed % 2 != 1) return;
    sim->reader = event_reader_new(sim->config.n_blocks, sim->config.block_size);
    sim->reads = sim->seed % 4 == 1 ? 100 : fake_between(&sim->reader_random, 1, 50);
    sim->config.kv_events = sim->reader->ring;
}

/* Prompts are beginnings of a few templates with some other tokens, so many share prefixes of all
 * lengths. */
static void draw_templates(struct simulation *sim) {
    for (int t = 0; t < N_TEMPLATES; t++)
        for (int i = 0; i < FAKE_MAX_TOKENS; i++)
            sim->template[t][i] =
                t > 0 && i < 10 * t ? sim->template[t - 1][i] : between(sim, 0, FAKE_V - 1);
}

static void simulation_begin(struct simulation *sim, uint64_t seed) {
    *sim = (struct simulation){.seed = seed, .random = seed * 1000003};
    current_seed = seed;
    draw_config(sim);
    draw_windows(sim);
    draw_drafter(sim);
    draw_shares(sim);
    draw_states(sim);
    draw_reader(sim);
    draw_templates(sim);
    sim->config.samples_forced = seed % 3 == 0;
    sim->config.max_mask_work = seed % 4 == 0 ? 0 : (int)(seed % 29) + 1;
    for (int i = 0; i < N_GRAMMARS; i++) sim->grammar[i] = draw_grammar(&sim->random);
    sim->n_left = between(sim, 20, 300);
    sim->priorities = chance(sim, 30);
    sim->engine = fake_engine_new(&sim->config);
    sim->engine->in_flight = between(sim, 1, MAX_IN_FLIGHT);
    if (seed % 9 == 4) sim->engine->fails_at = 1 + (int)(seed / 9 * 7 % 200);
    sim->engine->n_host_blocks = chance(sim, 60) ? between(sim, 1, 3 * sim->config.n_blocks) : 0;
    sim->engine->n_host =
        chance(sim, 80) ? sim->engine->n_host_blocks : between(sim, 0, sim->engine->n_host_blocks);
    draw_host_windows(sim);
    struct engine_port port = fake_engine_port(sim->engine);
    sim->scheduler = scheduler_new_on(&sim->config, &port);
    /* in every fifth scenario most steps have more events than the array holds */
    if (seed % 5 == 2) sim->scheduler->max_events = 1 + (int)(seed % 7);
    add_draft_model(sim);
    if (chance(sim, 20)) {
        uint64_t mask = chance(sim, 50) ? 0 : 3;
        sim->scheduler->pool.known.hash_mask = mask;
        sim->scheduler->swap.cache.known.hash_mask = mask;
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

static void draw_prompt(struct simulation *sim, struct fake_client *client, int n) {
    const int32_t *text = sim->template[between(sim, 0, N_TEMPLATES - 1)];
    client->generation.n_prompt = n;
    memcpy(client->prompt, text, (size_t)n * sizeof *text);
    if (chance(sim, 40)) client->prompt[between(sim, 0, n - 1)] = between(sim, 0, FAKE_V - 1);
}

static void draw_search(struct simulation *sim, struct generation *g) {
    g->beams = (struct beam_search){.width = between(sim, 1, chance(sim, 80) ? 5 : MAX_BEAMS),
                                    .stopping = (enum beam_stopping)between(sim, 0, 2),
                                    .length_penalty = between(sim, -1, 2)};
    g->n = between(sim, 1, g->beams.width);
}

/* A quarter of the requests have a grammar. In some of these it begins after one or two ids. */
static void draw_constraint(struct simulation *sim, struct generation *g) {
    static const int32_t begin_ids[] = {3, 5};
    if (!chance(sim, 25)) return;
    g->grammar = sim->grammar[between(sim, 0, N_GRAMMARS - 1)];
    g->vocabulary = vocabulary;
    g->sampling.n_logprobs = -1; /* then forced tokens are not sampled */
    g->n_begin_ids = chance(sim, 70) ? 0 : between(sim, 1, 2);
    g->begin_ids = g->n_begin_ids == 1 ? begin_ids + 1 : begin_ids;
}

/* Only the prompt is read: some ids, or hidden vectors. */
static void draw_reading(struct simulation *sim, struct generation *g) {
    g->n = 1;
    g->max_tokens = g->min_tokens = g->n_begin_ids = 0;
    g->prompt_logprobs = -1;
    g->grammar = NULL;
    g->hidden = (enum hidden_rows)between(sim, HIDDEN_NONE, HIDDEN_ALL);
    if (g->hidden == HIDDEN_NONE) g->n_logprob_ids = between(sim, 1, MAX_READ_IDS);
}

/* As in the server, no token that ends a choice is forced. */
static void draw_limit(struct simulation *sim, struct generation *g) {
    g->thoughts = draw_thoughts(&sim->random, vocabulary, FAKE_V);
    for (int i = 0; i < g->thoughts.n_forced; i++)
        if (generation_stops_at(g, g->thoughts.forced[i])) g->thoughts.is_set = false;
}

static void draw_generation(struct simulation *sim, struct fake_client *client) {
    struct generation *g = &client->generation;
    int slots = sim->config.n_blocks * sim->config.block_size, most = sim->config.max_model_len;
    if (slots < most) most = slots;
    draw_prompt(sim, client,
                between(sim, 1,
                        chance(sim, 2)    ? 130
                        : chance(sim, 60) ? most / 3
                                          : most));
    g->n = chance(sim, 75) ? 1 : between(sim, 2, chance(sim, 90) ? 6 : 70);
    g->max_tokens = chance(sim, 8) ? 0 : between(sim, 1, chance(sim, 50) ? 12 : 80);
    g->min_tokens = chance(sim, 20) ? between(sim, 0, g->max_tokens) : 0;
    g->sampling.seed = chance(sim, 50) ? 1 : fake_random(&sim->random);
    g->n_stop_ids = chance(sim, 40) ? between(sim, 1, 2) : 0;
    for (int i = 0; i < g->n_stop_ids; i++) g->stop_ids[i] = between(sim, 0, FAKE_V - 1);
    g->sampling.repetition_penalty = 1; /* off */
    g->max_drafts = chance(sim, 80) ? MAX_DRAFTS : between(sim, 0, MAX_DRAFTS);
    if (chance(sim, 15)) draw_search(sim, g);
    g->prompt_logprobs = chance(sim, 10) ? between(sim, 0, 3) : -1;
    g->priority = sim->priorities ? between(sim, -1, 2) : 0;
    if (g->beams.width == 0) draw_constraint(sim, g);
    if (g->beams.width == 0 && chance(sim, 10))
        draw_reading(sim, g);
    else if (chance(sim, 25))
        draw_limit(sim, g);
    g->cache_salt[chance(sim, 50)] = chance(sim, 20) ? (uint64_t)between(sim, 1, 2) : 0;
}

/* Predicts the output of the first choice, with some wrong tokens. */
static void draw_prediction(struct simulation *sim, struct fake_client *client) {
    struct generation *g = &client->generation;
    int most = generation_max_tokens(g, client->max_model_len) - g->n_prompt;
    g->predicted = client->predicted;
    g->n_predicted = fake_foresee(client, 0, g->n_prompt, client->predicted, most);
    for (int i = between(sim, 0, 5); i < g->n_predicted; i += between(sim, 1, 20))
        client->predicted[i] = between(sim, 0, FAKE_V - 1);
}

static uint64_t work_of(const struct fake_client *client) {
    const struct generation *g = &client->generation;
    int slots = generation_max_tokens(g, client->max_model_len);
    return (uint64_t)(g->beams.width > 0 ? g->beams.width : g->n) * (uint64_t)slots;
}

/* Each beam may need separate blocks. */
static bool is_too_wide(const struct simulation *sim, const struct generation *g) {
    int size = sim->config.block_size, width = g->beams.width;
    int blocks = (generation_max_slots(g, sim->config.max_model_len) + size - 1) / size;
    int windows = min_int(blocks, sim->scheduler->pool.windows.most);
    bool too_few = sim->config.n_window_blocks > 0 && width * windows > sim->config.n_window_blocks;
    return width > 0 &&
           (width > sim->scheduler->max_seqs || width * blocks > sim->config.n_blocks || too_few);
}

static void check_refusal(const struct simulation *sim, const struct fake_client *client,
                          enum status status) {
    const struct generation *g = &client->generation;
    int slots = sim->config.n_blocks * sim->config.block_size;
    bool too_long = g->n_prompt + (g->max_tokens > 0) > sim->config.max_model_len;
    bool too_large = !too_long && generation_max_slots(g, sim->config.max_model_len) > slots;
    bool too_wide = !too_long && !too_large && is_too_wide(sim, g);
    if (status == STATUS_INVALID_REQUEST) {
        assert(too_long || too_large || too_wide);
    } else if (sim->failed) {
        assert(status == STATUS_UNAVAILABLE && !too_long && !too_large && !too_wide);
    } else {
        assert(status == STATUS_OVERLOADED && !too_long && !too_large && !too_wide);
        assert(!scheduler_has_room(sim->scheduler, 1, g->n_prompt));
    }
}

static void arrive(struct simulation *sim) {
    int i = 0;
    while (i < MAX_CLIENTS && sim->client[i]) i++;
    if (i == MAX_CLIENTS) return;
    struct fake_client *client = mem_calloc(1, sizeof *client);
    struct err err;
    draw_generation(sim, client);
    if (sim->config.n_shares > 0)
        client->generation.share = fake_between(&sim->share_random, 0, sim->config.n_shares - 1);
    fake_client_ready(client, sim->config.max_model_len);
    if (client->generation.beams.width == 0 && chance(sim, 20)) draw_prediction(sim, client);
    client->submitted_at = sim->n_steps;
    client->work_before = sim->work_out;
    client->device_failed = &sim->failed;
    enum status status = scheduler_submit(sim->scheduler, &client->generation, &err);
    sim->n_left--;
    if (status != STATUS_OK) {
        check_refusal(sim, client, status);
        sim->n_refused++;
        matcher_free(client->choice[0].matcher); /* of a prediction */
        free(client);
        return;
    }
    sim->client[i] = client;
    sim->n_live++;
    sim->n_requests++;
    sim->n_searches += client->generation.beams.width > 1;
    sim->work_in += work_of(client);
}

static void cancel_some(struct simulation *sim) {
    struct fake_client *client = sim->client[between(sim, 0, MAX_CLIENTS - 1)];
    if (!client) return;
    sim->n_cancelled++;
    if (chance(sim, 50) || client->generation.beams.width > 0) {
        atomic_store(&client->generation.cancelled, true);
    } else {
        int choice = between(sim, 0, client->generation.n - 1);
        atomic_fetch_or(&client->generation.cancelled_choices[choice / 64],
                        (uint64_t)1 << (choice % 64));
    }
    scheduler_cancel(sim->scheduler, &client->generation);
}

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

static void on_events(void *arg, const struct event *events, int n) {
    struct simulation *sim = arg;
    for (int i = 0; i < n; i++) {
        struct fake_client *client = events[i].generation->owner;
        uint64_t work = work_of(client);
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
static void on_failure(void *arg, const struct err *err) {
    struct simulation *sim = arg;
    assert(err->status && !sim->failed && sim->engine->fails_at > 0);
    sim->failed = true;
}

/* ---- running -------------------------------------------------------------------------------- */

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

static void simulate(struct simulation *sim) {
    int arrival = between(sim, 1, chance(sim, 25) ? 10 : 95),
        cancel = chance(sim, 50) ? between(sim, 1, 10) : 0;
    bool more = false;
    while (sim->n_left > 0 || sim->n_live > 0 || more) {
        while (sim->n_left > 0 && chance(sim, arrival)) arrive(sim);
        if (chance(sim, cancel)) cancel_some(sim);
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

static void simulation_end(struct simulation *sim) {
    struct scheduler_stats stats;
    scheduler_stats(sim->scheduler, &stats);
    sim->n_hits = stats.prefix_hits;
    sim->n_preemptions = stats.preemptions;
    sim->n_copies = sim->engine->n_copies;
    sim->n_state_copies = sim->engine->n_state_copies;
    assert(stats.states_used == 0);
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

static uint64_t number_from(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

START_TEST(each_request_gives_its_answer_alone) {
    uint64_t steps = number_from("SCHEDULER_STEPS", STEPS), done = 0, seed = 0;
    uint64_t only = number_from("SCHEDULER_SEED", 0);
    struct simulation *sum = mem_calloc(1, sizeof *sum), *sim = mem_calloc(1, sizeof *sim);
    uint64_t began = now_ns();
    vocabulary = lettered_vocabulary(FAKE_V);
    for (seed = only ? only : 1; done < steps; seed++) {
        simulation_begin(sim, seed);
        simulate(sim);
        simulation_end(sim);
        done += sim->engine_steps;
        sum->n_requests += sim->n_requests;
        sum->n_cancelled += sim->n_cancelled;
        sum->n_refused += sim->n_refused;
        sum->n_hits += sim->n_hits;
        sum->n_preemptions += sim->n_preemptions;
        sum->n_copies += sim->n_copies;
        sum->n_state_copies += sim->n_state_copies;
        sum->n_pending += sim->n_pending;
        sum->n_dropped += sim->n_dropped;
        sum->n_out += sim->n_out;
        sum->n_in += sim->n_in;
        sum->n_drafts += sim->n_drafts;
        sum->n_accepted += sim->n_accepted;
        sum->n_passes += sim->n_passes;
        sum->n_rows += sim->n_rows;
        sum->n_searches += sim->n_searches;
        sum->n_complete += sim->n_complete;
        sum->n_stuck += sim->n_stuck;
        sum->n_forced += sim->n_forced;
        sum->n_unready += sim->n_unready;
        sum->n_failed += sim->failed;
        sum->n_stored += sim->n_stored;
        sum->n_removed += sim->n_removed;
        sum->n_cleared += sim->n_cleared;
        if (only) break;
    }
    printf("%llu scenarios, %llu steps of %.1f rows, %.1f us a step: %llu requests, %llu refused, "
           "%llu cancels, "
           "%llu prefix tokens hit, %llu preemptions, %llu copies, %llu rows planned ahead, %llu "
           "samples thrown away, %llu blocks swapped out and %llu in, %llu of %llu drafts held, "
           "%llu passes of draft models, "
           "%llu searches, %llu choices complete and %llu stuck, %llu tokens forced, "
           "%llu masks unready, %llu blocks stored, %llu removed and %llu times all cleared\n",
           (unsigned long long)(only ? 1 : seed - 1), (unsigned long long)done,
           (double)sum->n_rows / (double)done, (double)(now_ns() - began) * 1e-3 / (double)done,
           (unsigned long long)sum->n_requests, (unsigned long long)sum->n_refused,
           (unsigned long long)sum->n_cancelled, (unsigned long long)sum->n_hits,
           (unsigned long long)sum->n_preemptions, (unsigned long long)sum->n_copies,
           (unsigned long long)sum->n_pending, (unsigned long long)sum->n_dropped,
           (unsigned long long)sum->n_out, (unsigned long long)sum->n_in,
           (unsigned long long)sum->n_accepted, (unsigned long long)sum->n_drafts,
           (unsigned long long)sum->n_passes, (unsigned long long)sum->n_searches,
           (unsigned long long)sum->n_complete, (unsigned long long)sum->n_stuck,
           (unsigned long long)sum->n_forced, (unsigned long long)sum->n_unready,
           (unsigned long long)sum->n_stored, (unsigned long long)sum->n_removed,
           (unsigned long long)sum->n_cleared);
    ck_assert(only || (sum->n_searches > 0 && sum->n_state_copies > 0));
    ck_assert(only || (sum->n_complete > 0 && sum->n_stuck > 0 && sum->n_forced > 0));
    ck_assert(only || (sum->n_unready > 0 && sum->n_failed > 0));
    ck_assert(only || (sum->n_accepted > 0 && sum->n_drafts > sum->n_accepted));
    ck_assert(only || sum->n_passes > 0);
    ck_assert(only || (sum->n_stored > 0 && sum->n_removed > 0 && sum->n_cleared > 0));
    ck_assert(only || (sum->n_out > sum->n_in && sum->n_in > 0));
    ck_assert(only || (sum->n_hits > 0 && sum->n_preemptions > 0 && sum->n_copies > 0));
    ck_assert(only || (sum->n_pending > 0 && sum->n_dropped > 0));
    vocabulary_free(vocabulary);
    free(sum);
    free(sim);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_simulation");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_test(core, each_request_gives_its_answer_alone);
    suite_add_tcase(suite, core);
    SRunner *runner = srunner_create(suite);
    signal(SIGABRT, tell_seed);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
