/* The settings of a scenario: limits, windows, states, drafts, shares, templates of prompts. */
#include <string.h>

#include "support/simulation.h"

static void draw_config(struct simulation *sim) {
    static const int sizes[] = {1, 2, 3, 4, 8, 16};
    int size = sizes[sim_between(sim, 0, 5)];
    int slots = sim_between(sim, 16, sim_chance(sim, 40) ? 60 : 500);
    int seqs = sim_between(sim, 1, sim_chance(sim, 30) ? 4 : 24);
    sim->config = (struct scheduler_config){
        .max_num_seqs = seqs,
        .max_num_batched_tokens =
            sim_between(sim, sim_chance(sim, 10) ? 1 : seqs, seqs + (sim_chance(sim, 50) ? 8 : 60)),
        .max_mixed_prefill_tokens = sim_chance(sim, 50) ? 1000 : sim_between(sim, 1, 30),
        .itl_target_ns = sim_chance(sim, 60) ? 0 : (uint64_t)sim_between(sim, 1, 100000),
        .max_model_len = sim_between(sim, 8, 120),
        .max_queued_requests = sim_between(sim, 2, MAX_CLIENTS),
        .max_queued_tokens = sim_between(sim, 64, 1000),
        .n_blocks = slots / size > 2 ? slots / size : 3,
        .block_size = size,
        .max_logit_rows = sim_between(sim, sim_chance(sim, 10) ? 1 : seqs, 2 * seqs),
        .prefix_caching = sim_chance(sim, 75),
        .swap_from = sim_chance(sim, 50) ? 1 : sim_between(sim, 1, 20),
        .on_events = simulation_on_events,
        .on_failure = simulation_on_failure,
        .arg = sim};
}

/* In half of the scenarios layers with windows have separate blocks: sometimes just as many as a
 * sequence needs, and at most as many as there are blocks. */
static void draw_windows(struct simulation *sim) {
    struct scheduler_config *config = &sim->config;
    if (sim_chance(sim, 50)) return;
    config->window = sim_between(sim, 1, sim_chance(sim, 50) ? 20 : 100);
    int least = window_blocks_seen(config->window, config->block_size);
    int most = sim_chance(sim, 40) ? least + 2 : config->n_blocks;
    int drawn = sim_between(sim, least, max_int(least, most));
    config->n_window_blocks = min_int(drawn, config->n_blocks);
}

/* Host window blocks: too few or plenty, and sometimes memory for only a part of them. */
static void draw_host_windows(struct simulation *sim) {
    struct fake_engine *engine = sim->engine;
    if (engine->n_host_blocks == 0 || sim->config.n_window_blocks == 0) return;
    engine->n_host_windows = sim_between(sim, 1, 3 * sim->config.n_window_blocks);
    engine->n_host_of_windows =
        sim_chance(sim, 80) ? engine->n_host_windows : sim_between(sim, 0, engine->n_host_windows);
}

/* Two in three scenarios speculate: with drafts that are known to be right but are partly spoilt,
 * or by lookup. */
static void draw_drafter(struct simulation *sim) {
    static const struct lookup_config lookup = {.min_match = 1, .max_match = MAX_DRAFT_MATCH};
    if (sim_chance(sim, 33)) return;
    sim->replay = (struct replay){.foresee = fake_foresee,
                                  .V = FAKE_V,
                                  .wrong = sim_chance(sim, 30) ? 0 : sim_between(sim, 0, 100),
                                  .any_length = sim_chance(sim, 70),
                                  .random = sim->random};
    sim->config.speculation.max_tokens = sim_between(sim, 0, MAX_DRAFTS);
    sim->config.fixed_drafts = sim_chance(sim, 70);
    if (sim_chance(sim, 20)) { /* the scheduler makes the drafter */
        sim->config.speculation.method = SPECULATION_SUFFIX;
        sim->config.speculation.lookup_min = sim_between(sim, 1, 3);
        sim->config.speculation.lookup_max = MAX_DRAFT_MATCH;
        return;
    }
    sim->drafter = sim_chance(sim, 20) ? drafter_lookup(&lookup) : replay_drafter(&sim->replay);
    sim->config.drafter = &sim->drafter;
}

/* In two of five scenarios the model has recurrent layers: with as many states as sequences, and
 * in most cases some for checkpoints, at few places or many, and for drafts. They use a separate
 * random sequence, so everything else is unchanged. */
static void draw_states(struct simulation *sim) {
    struct scheduler_config *config = &sim->config;
    uint64_t random = sim->seed * 5381;
    if (sim->seed % 5 >= 2) return;
    if (fake_between(&random, 1, 100) <= 85)
        config->n_checkpoints = fake_between(&random, 1, fake_between(&random, 1, 2) * 12);
    if (fake_between(&random, 1, 100) <= 75)
        config->n_draft_states = fake_between(&random, 1, 2 * MAX_DRAFTS);
    config->checkpoint_every = config->block_size * fake_between(&random, 1, 6);
    config->checkpoint_least = fake_between(&random, 1, config->checkpoint_every);
    config->n_states = config->max_num_seqs + config->n_checkpoints + config->n_draft_states;
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
                t > 0 && i < 10 * t ? sim->template[t - 1][i] : sim_between(sim, 0, FAKE_V - 1);
}

void simulation_begin(struct simulation *sim, uint64_t seed, struct vocabulary *vocabulary) {
    *sim = (struct simulation){.seed = seed, .random = seed * 1000003, .vocabulary = vocabulary};
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
    sim->n_left = sim_between(sim, 20, 300);
    sim->priorities = sim_chance(sim, 30);
    sim->engine = fake_engine_new(&sim->config);
    sim->engine->in_flight = sim_between(sim, 1, MAX_IN_FLIGHT);
    if (seed % 9 == 4) sim->engine->fails_at = 1 + (int)(seed / 9 * 7 % 200);
    sim->engine->n_host_blocks =
        sim_chance(sim, 60) ? sim_between(sim, 1, 3 * sim->config.n_blocks) : 0;
    sim->engine->n_host = sim_chance(sim, 80) ? sim->engine->n_host_blocks
                                              : sim_between(sim, 0, sim->engine->n_host_blocks);
    draw_host_windows(sim);
    struct engine_port port = fake_engine_port(sim->engine);
    sim->scheduler = scheduler_new_on(&sim->config, &port);
    /* in every fifth scenario most steps have more events than the array holds */
    if (seed % 5 == 2) sim->scheduler->max_events = 1 + (int)(seed % 7);
    add_draft_model(sim);
    if (sim_chance(sim, 20)) {
        uint64_t mask = sim_chance(sim, 50) ? 0 : 3;
        sim->scheduler->pool.known.hash_mask = mask;
        sim->scheduler->swap.cache.known.hash_mask = mask;
    }
}
