/* The requests of a scenario, and those that must be refused. */
#include <stdlib.h>
#include <string.h>

#include "support/simulation.h"

/* ---- drawing -------------------------------------------------------------------------------- */

static void draw_prompt(struct simulation *sim, struct fake_client *client, int n) {
    const int32_t *text = sim->template[sim_between(sim, 0, N_TEMPLATES - 1)];
    client->generation.n_prompt = n;
    memcpy(client->prompt, text, (size_t)n * sizeof *text);
    if (sim_chance(sim, 40))
        client->prompt[sim_between(sim, 0, n - 1)] = sim_between(sim, 0, FAKE_V - 1);
}

static void draw_search(struct simulation *sim, struct generation *g) {
    g->beams =
        (struct beam_search){.width = sim_between(sim, 1, sim_chance(sim, 80) ? 5 : MAX_BEAMS),
                             .stopping = (enum beam_stopping)sim_between(sim, 0, 2),
                             .length_penalty = sim_between(sim, -1, 2)};
    g->n = sim_between(sim, 1, g->beams.width);
}

/* A quarter of the requests have a grammar. In some of these it begins after one or two ids. */
static void draw_constraint(struct simulation *sim, struct generation *g) {
    static const int32_t begin_ids[] = {3, 5};
    if (!sim_chance(sim, 25)) return;
    g->grammar = sim->grammar[sim_between(sim, 0, N_GRAMMARS - 1)];
    g->vocabulary = sim->vocabulary;
    g->sampling.n_logprobs = -1; /* then forced tokens are not sampled */
    g->n_begin_ids = sim_chance(sim, 70) ? 0 : sim_between(sim, 1, 2);
    g->begin_ids = g->n_begin_ids == 1 ? begin_ids + 1 : begin_ids;
}

/* Only the prompt is read: some ids, or hidden vectors. */
static void draw_reading(struct simulation *sim, struct generation *g) {
    g->n = 1;
    g->max_tokens = g->min_tokens = g->n_begin_ids = 0;
    g->prompt_logprobs = -1;
    g->grammar = NULL;
    g->hidden = (enum hidden_rows)sim_between(sim, HIDDEN_NONE, HIDDEN_ALL);
    g->keeps_hidden = g->hidden != HIDDEN_NONE && sim_chance(sim, 30);
    if (g->hidden == HIDDEN_NONE) g->n_logprob_ids = sim_between(sim, 1, MAX_READ_IDS);
}

/* As in the server, no token that ends a choice is forced. */
static void draw_limit(struct simulation *sim, struct generation *g) {
    g->thoughts = draw_thoughts(&sim->random, sim->vocabulary, FAKE_V);
    for (int i = 0; i < g->thoughts.n_forced; i++)
        if (generation_stops_at(g, g->thoughts.forced[i])) g->thoughts.is_set = false;
}

static void draw_generation(struct simulation *sim, struct fake_client *client) {
    struct generation *g = &client->generation;
    int slots = sim->config.n_blocks * sim->config.block_size, most = sim->config.max_model_len;
    if (slots < most) most = slots;
    draw_prompt(sim, client,
                sim_between(sim, 1,
                            sim_chance(sim, 2)    ? 130
                            : sim_chance(sim, 60) ? most / 3
                                                  : most));
    g->n = sim_chance(sim, 75) ? 1 : sim_between(sim, 2, sim_chance(sim, 90) ? 6 : 70);
    g->max_tokens = sim_chance(sim, 8) ? 0 : sim_between(sim, 1, sim_chance(sim, 50) ? 12 : 80);
    g->min_tokens = sim_chance(sim, 20) ? sim_between(sim, 0, g->max_tokens) : 0;
    g->sampling.seed = sim_chance(sim, 50) ? 1 : fake_random(&sim->random);
    g->n_stop_ids = sim_chance(sim, 40) ? sim_between(sim, 1, 2) : 0;
    for (int i = 0; i < g->n_stop_ids; i++) g->stop_ids[i] = sim_between(sim, 0, FAKE_V - 1);
    g->sampling.repetition_penalty = 1; /* off */
    g->max_drafts = sim_chance(sim, 80) ? MAX_DRAFTS : sim_between(sim, 0, MAX_DRAFTS);
    if (sim_chance(sim, 15)) draw_search(sim, g);
    g->prompt_logprobs = sim_chance(sim, 10) ? sim_between(sim, 0, 3) : -1;
    g->priority = sim->priorities ? sim_between(sim, -1, 2) : 0;
    if (g->beams.width == 0) draw_constraint(sim, g);
    if (g->beams.width == 0 && sim_chance(sim, 10))
        draw_reading(sim, g);
    else if (sim_chance(sim, 25))
        draw_limit(sim, g);
    g->cache_salt[sim_chance(sim, 50)] = sim_chance(sim, 20) ? (uint64_t)sim_between(sim, 1, 2) : 0;
}

/* Predicts the output of the first choice, with some wrong tokens. */
static void draw_prediction(struct simulation *sim, struct fake_client *client) {
    struct generation *g = &client->generation;
    int most = generation_max_tokens(g, client->max_model_len) - g->n_prompt;
    g->predicted = client->predicted;
    g->n_predicted = fake_foresee(client, 0, g->n_prompt, client->predicted, most);
    for (int i = sim_between(sim, 0, 5); i < g->n_predicted; i += sim_between(sim, 1, 20))
        client->predicted[i] = sim_between(sim, 0, FAKE_V - 1);
}

/* ---- submitting ----------------------------------------------------------------------------- */

uint64_t simulation_work(const struct fake_client *client) {
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

void simulation_ask(struct simulation *sim) {
    int i = 0;
    while (i < MAX_CLIENTS && sim->client[i]) i++;
    if (i == MAX_CLIENTS) return;
    struct fake_client *client = mem_calloc(1, sizeof *client);
    struct err err;
    draw_generation(sim, client);
    if (sim->config.n_shares > 0)
        client->generation.share = fake_between(&sim->share_random, 0, sim->config.n_shares - 1);
    fake_client_ready(client, sim->config.max_model_len);
    if (client->generation.beams.width == 0 && sim_chance(sim, 20)) draw_prediction(sim, client);
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
    sim->work_in += simulation_work(client);
}
