/* Checkpoints: their places, which are dropped, and the rows that sequences compute after a hit, a
 * fork, a preemption or a refused draft. The fake engine compares each state with the slots. */
#include <check.h>
#include <limits.h>
#include <stdlib.h>

#include "support/fake_client.h"
#include "support/replay_drafter.h"
#include "support/suite_main.h"

/* ---- places --------------------------------------------------------------------------------- */

START_TEST(checkpoints_are_due_at_multiples_and_near_the_end_of_a_prompt) {
    struct checkpoints c = {.n = 1, .places = {.every = 12, .least = 8}, .block_size = 4};
    static const int places[] = {12, 24, 32, 36, 48};
    for (size_t i = 0, at = 0; i < sizeof places / sizeof *places; i++, at = 0) {
        int from = i > 0 ? places[i - 1] : 0;
        for (at = (size_t)from; at < (size_t)places[i]; at++)
            ck_assert_int_eq(checkpoints_next(&c, (int)at, 35), places[i]);
        ck_assert(checkpoints_due(&c, places[i], 35) && !checkpoints_due(&c, places[i] - 1, 35));
    }
    ck_assert_int_eq(checkpoints_next(&c, 24, 32), 36); /* 28 is too near to 24 */
    ck_assert_int_eq(checkpoints_next(&c, 24, 33), 32); /* the last token is computed */
    ck_assert_int_eq(checkpoints_next(&c, 24, 36), 32);
    ck_assert_int_eq(checkpoints_next(&c, 24, 37), 36); /* both are the same place */
    ck_assert(!checkpoints_due(&c, 0, 35));
    const struct checkpoints none = {.n = 0};
    ck_assert_int_eq(checkpoints_next(&none, 5, 35), INT_MAX);
    ck_assert(!checkpoints_due(&none, 12, 35));
}
END_TEST

/* ---- the list ------------------------------------------------------------------------------- */

enum { KEPT = 3, BLOCKS = 8, STATES = 6, BLOCK = 4 };

struct pools {
    struct block_pool blocks;
    struct state_pool states;
    struct checkpoints checkpoints;
    int32_t block[BLOCKS]; /* a chain of known blocks that one sequence holds */
};

static void pools_init(struct pools *p) {
    static const struct checkpoint_places places = {BLOCK, 1};
    static const uint64_t salt[2] = {0};
    static int32_t tokens[BLOCKS][BLOCK];
    uint64_t parent = 0;
    block_pool_init(&p->blocks, BLOCKS, BLOCK, true);
    state_pool_init(&p->states, STATES);
    checkpoints_init(&p->checkpoints, KEPT, &places, &p->blocks, &p->states);
    for (int i = 0; i < BLOCKS; i++) {
        for (int k = 0; k < BLOCK; k++) tokens[i][k] = i * BLOCK + k;
        const struct block_key key = {{(uint64_t)i, 1}, salt, tokens[i], parent};
        p->block[i] = block_pool_acquire(&p->blocks);
        block_pool_register(&p->blocks, p->block[i], &key);
        parent = prefix_cache_id(&p->blocks.known, p->block[i]);
    }
}

static void pools_free(struct pools *p) {
    checkpoints_free(&p->checkpoints);
    ck_assert_int_eq(p->states.n_free, STATES);
    state_pool_free(&p->states);
    block_pool_free(&p->blocks);
}

/* Keeps a new state after block i of the chain. Returns the state. Only the checkpoint holds it. */
static int32_t keep(struct pools *p, int i) {
    int32_t state = state_pool_acquire(&p->states);
    checkpoints_add(&p->checkpoints, p->block[i], state);
    ck_assert_int_eq(p->states.references[state], 2);
    state_pool_release(&p->states, state);
    return state;
}

START_TEST(a_prefix_is_usable_up_to_its_last_checkpoint) {
    struct pools p;
    pools_init(&p);
    ck_assert_int_eq(checkpoints_usable(&p.checkpoints, p.block, BLOCKS), 0);
    keep(&p, 2);
    keep(&p, 5);
    static const int usable[BLOCKS + 1] = {0, 0, 0, 3, 3, 3, 6, 6, 6};
    for (int n = 0; n <= BLOCKS; n++)
        ck_assert_int_eq(checkpoints_usable(&p.checkpoints, p.block, n), usable[n]);
    ck_assert_int_eq(checkpoints_idle(&p.checkpoints), 2);
    pools_free(&p);
}
END_TEST

START_TEST(the_least_recently_used_checkpoint_makes_room) {
    struct pools p;
    pools_init(&p);
    int32_t first = keep(&p, 0);
    keep(&p, 1);
    keep(&p, 2);
    ck_assert_int_eq(checkpoints_use(&p.checkpoints, p.block[0]), first);
    ck_assert_int_eq(checkpoints_idle(&p.checkpoints), 2);
    keep(&p, 3);
    ck_assert(p.checkpoints.of[p.block[0]] >= 0 && p.checkpoints.of[p.block[1]] < 0);
    checkpoints_add(&p.checkpoints, p.block[2], first); /* known: it is only used */
    ck_assert_int_eq(p.states.references[first], 2);
    keep(&p, 4);
    ck_assert(p.checkpoints.of[p.block[0]] < 0 && p.checkpoints.of[p.block[2]] >= 0);
    ck_assert_int_eq(p.states.references[first], 1); /* the user keeps it */
    state_pool_release(&p.states, first);
    ck_assert_int_eq(p.checkpoints.n_used, KEPT);
    pools_free(&p);
}
END_TEST

struct state_notes {
    int n_kept, n_dropped, block, state;
};

static void note_keep(void *arg, int32_t block, int32_t state) {
    struct state_notes *notes = arg;
    notes->n_kept++;
    notes->block = block;
    notes->state = state;
}

static void note_drop(void *arg, int32_t block) {
    struct state_notes *notes = arg;
    notes->n_dropped++;
    notes->block = block;
}

START_TEST(an_observer_is_told_of_kept_and_dropped_states) {
    struct pools p;
    struct state_notes notes = {0};
    pools_init(&p);
    checkpoints_observe(&p.checkpoints,
                        &(struct checkpoint_observer){note_keep, note_drop, &notes});
    int32_t first = keep(&p, 0);
    ck_assert(notes.n_kept == 1 && notes.block == p.block[0] && notes.state == first);
    keep(&p, 1);
    checkpoints_add(&p.checkpoints, p.block[0], first); /* it has one */
    ck_assert(notes.n_kept == 2 && notes.n_dropped == 0);
    for (int i = BLOCKS - 1; i >= 0; i--) block_pool_release(&p.blocks, p.block[i]);
    for (int i = BLOCKS - 1; i >= 1; i--) block_pool_acquire(&p.blocks);
    ck_assert(notes.n_dropped == 1 && notes.block == p.block[1]);
    pools_free(&p);
    ck_assert(notes.n_dropped == 2 && notes.block == p.block[0]);
}
END_TEST

START_TEST(a_restored_state_takes_the_place_of_the_oldest) {
    struct pools p;
    struct state_notes notes = {0};
    pools_init(&p);
    for (int i = 0; i < KEPT; i++) keep(&p, i);
    checkpoints_observe(&p.checkpoints,
                        &(struct checkpoint_observer){note_keep, note_drop, &notes});
    int32_t restored = checkpoints_restore(&p.checkpoints, p.block[3]);
    ck_assert(notes.n_kept == 0 && notes.n_dropped == 1 && notes.block == p.block[0]);
    ck_assert_int_eq(p.states.references[restored], 1);
    ck_assert_int_eq(p.checkpoints.n_used, KEPT);
    ck_assert_int_eq(checkpoints_use(&p.checkpoints, p.block[3]), restored);
    state_pool_release(&p.states, restored);
    keep(&p, 4); /* it is the newest: the next oldest one is dropped */
    ck_assert(notes.block == p.block[4] && p.checkpoints.of[p.block[3]] >= 0);
    ck_assert_int_lt(p.checkpoints.of[p.block[1]], 0);
    pools_free(&p);
}
END_TEST

START_TEST(a_checkpoint_goes_with_its_block) {
    struct pools p;
    pools_init(&p);
    keep(&p, 6);
    keep(&p, 7);
    for (int i = BLOCKS - 1; i >= 0; i--) block_pool_release(&p.blocks, p.block[i]);
    int32_t again = block_pool_acquire(&p.blocks); /* the last of the chain is evicted first */
    ck_assert_int_eq(again, p.block[7]);
    ck_assert(p.checkpoints.of[again] < 0 && p.checkpoints.of[p.block[6]] >= 0);
    ck_assert_int_eq(p.states.n_free, STATES - 1);
    pools_free(&p);
}
END_TEST

/* ---- sequences ------------------------------------------------------------------------------ */

enum { MODEL_LEN = 200, ROWS = 64, SEQUENCES = 4, MOST = 4 };

struct world {
    struct replay replay;
    struct drafter drafter;
    struct fake_engine *engine;
    struct scheduler *scheduler;
    struct fake_client client[MOST];
};

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) fake_client_take(events[i].generation->owner, &events[i]);
}

/* Checkpoints are due every 5 blocks. `wrong`: percentage of drafts that are refused. */
static struct world *world_new(int n_blocks, int n_checkpoints, int n_draft_states, int wrong) {
    struct world *w = mem_calloc(1, sizeof *w);
    w->replay = (struct replay){.foresee = fake_foresee, .V = FAKE_V, .wrong = wrong, .random = 1};
    w->drafter = replay_drafter(&w->replay);
    struct scheduler_config config = {.max_num_seqs = SEQUENCES,
                                      .max_num_batched_tokens = ROWS,
                                      .max_mixed_prefill_tokens = ROWS,
                                      .max_model_len = MODEL_LEN,
                                      .max_queued_requests = MOST,
                                      .max_queued_tokens = MOST * MODEL_LEN,
                                      .n_blocks = n_blocks,
                                      .block_size = BLOCK,
                                      .n_states = SEQUENCES + n_checkpoints + n_draft_states,
                                      .n_checkpoints = n_checkpoints,
                                      .n_draft_states = n_draft_states,
                                      .checkpoint_every = 5 * BLOCK,
                                      .checkpoint_least = 2 * BLOCK,
                                      .max_logit_rows = 40,
                                      .prefix_caching = true,
                                      .drafter = n_draft_states > 0 ? &w->drafter : NULL,
                                      .speculation.max_tokens = 8,
                                      .fixed_drafts = true,
                                      .on_events = on_events,
                                      .arg = w};
    w->engine = fake_engine_new(&config);
    struct engine_port port = fake_engine_port(w->engine);
    w->scheduler = scheduler_new_on(&config, &port);
    return w;
}

static void world_free(struct world *w) {
    scheduler_free(w->scheduler);
    fake_engine_free(w->engine);
    free(w);
}

/* Submits a prompt whose first `same` tokens are those of all others, with n choices. */
static struct fake_client *ask(struct world *w, int k, int same, int n_prompt, int n_output,
                               int n) {
    struct fake_client *client = &w->client[k];
    *client = (struct fake_client){.generation = {.n_prompt = n_prompt,
                                                  .max_tokens = n_output,
                                                  .n = n,
                                                  .max_drafts = MAX_DRAFTS,
                                                  .sampling.repetition_penalty = 1,
                                                  .prompt_logprobs = -1}};
    for (int i = 0; i < n_prompt; i++)
        client->prompt[i] = (i * 3 + (i < same ? 0 : k + 1)) % FAKE_V;
    fake_client_submit(client, w->scheduler, MODEL_LEN);
    return client;
}

/* Runs steps until all have ended. Free states are overwritten after each. */
static void run(struct world *w) {
    for (bool more = true; more;) {
        more = fake_step(w->scheduler);
        fake_engine_poison_states(w->engine, &w->scheduler->states);
    }
}

/* Returns the rows that a prompt takes after another with the same beginning of `same` tokens. */
static int rows_after(int n_first, int same, int n_prompt) {
    struct world *w = world_new(100, 8, 0, 0);
    ask(w, 0, n_first, n_first, 1, 1);
    run(w);
    int before = (int)w->engine->n_rows;
    struct fake_client *client = ask(w, 1, same, n_prompt, 1, 1);
    run(w);
    int rows = (int)w->engine->n_rows - before;
    ck_assert_int_eq(client->n_cached, n_prompt - rows);
    ck_assert_int_eq(w->scheduler->stats.states_used, 0);
    ck_assert_int_gt(w->scheduler->stats.states_cached, 0);
    world_free(w);
    return rows;
}

/* Checkpoints of a prompt of 51 tokens are after 20, 40 and 48 tokens. */
START_TEST(a_hit_goes_back_to_the_last_checkpoint) {
    ck_assert_int_eq(rows_after(51, 51, 51), 3);
    ck_assert_int_eq(rows_after(51, 51, 70), 22);
    ck_assert_int_eq(rows_after(51, 47, 70), 30); /* blocks up to 44, a checkpoint after 40 */
    ck_assert_int_eq(rows_after(51, 39, 51), 31);
    ck_assert_int_eq(rows_after(51, 20, 51), 31);
    ck_assert_int_eq(rows_after(51, 19, 51), 51);
}
END_TEST

/* The steps of a prompt end at its checkpoints. */
START_TEST(rows_end_at_a_checkpoint) {
    struct world *w = world_new(100, 8, 0, 0);
    ask(w, 0, 0, 51, 1, 1);
    static const uint64_t rows[] = {20, 40, 48, 51};
    for (int i = 0; i < 4; i++) {
        fake_step(w->scheduler);
        ck_assert_uint_eq(w->engine->n_rows, rows[i]);
    }
    run(w);
    world_free(w);
}
END_TEST

/* The output has checkpoints, too: the next turn of a chat continues after them. */
START_TEST(the_next_turn_of_a_chat_finds_the_answer) {
    struct world *w = world_new(100, 8, 0, 0);
    struct fake_client *client = ask(w, 0, 51, 51, 40, 1);
    int32_t text[MODEL_LEN];
    for (int i = 0; i < 51; i++) text[i] = client->prompt[i];
    while (client->choice[0].n_output < 39) fake_step(w->scheduler);
    const struct sequence *sequence = sequence_of(w->scheduler->running.head.next);
    for (int i = 51; i < 90; i++) text[i] = sequence->tokens[i];
    run(w);
    client = &w->client[1];
    *client = (struct fake_client){
        .generation = {.n_prompt = 90, .max_tokens = 1, .n = 1, .prompt_logprobs = -1}};
    for (int i = 0; i < 90; i++) client->prompt[i] = text[i];
    fake_client_submit(client, w->scheduler, MODEL_LEN);
    run(w);
    ck_assert_int_eq(client->n_cached, 80);
    world_free(w);
}
END_TEST

/* The second prompt waits until the first one has made the last common checkpoint. */
START_TEST(equal_prompts_compute_their_prefix_once) {
    struct world *w = world_new(100, 8, 0, 0);
    for (int k = 0; k < 3; k++) ask(w, k, 43, 51, 2, 1);
    run(w);
    for (int k = 1; k < 3; k++) ck_assert_int_eq(w->client[k].n_cached, 40);
    ck_assert_uint_eq(w->engine->n_rows, 51 + 2 * 11 + 3);
    world_free(w);
}
END_TEST

START_TEST(choices_copy_the_state_of_their_prompt) {
    struct world *w = world_new(100, 0, 0, 0);
    ask(w, 0, 0, 22, 9, 4);
    run(w);
    ck_assert_uint_eq(w->engine->n_state_copies, 3); /* the last one keeps it */
    ck_assert_uint_eq(w->engine->n_rows, 22 + 4 * 8);
    world_free(w);
}
END_TEST

/* Two sequences that need 34 blocks each on 60 blocks: one is preempted, and loses some blocks to
 * the other one. It continues after the last checkpoint before these. */
START_TEST(a_preempted_sequence_continues_after_its_last_checkpoint) {
    struct world *w = world_new(60, 12, 0, 0);
    ask(w, 0, 0, 70, 66, 1);
    ask(w, 1, 0, 70, 66, 1);
    run(w);
    ck_assert_uint_eq(w->scheduler->stats.preemptions, 1);
    ck_assert_uint_ge(w->engine->n_rows, 2 * 135);
    ck_assert_uint_lt(w->engine->n_rows, 2 * 135 + 40);
    world_free(w);
}
END_TEST

/* Each draft takes a state, so the states limit the drafts. */
START_TEST(refused_drafts_are_taken_back) {
    int wrong = _i * 50;
    struct world *w = world_new(100, 4, 6, wrong);
    for (int k = 0; k < 2; k++) ask(w, k, 0, 30, 60, 1);
    run(w);
    const struct scheduler_stats *stats = &w->scheduler->stats;
    ck_assert_uint_gt(stats->draft_tokens, 0);
    ck_assert_uint_le(stats->draft_tokens, stats->steps * 6);
    ck_assert((stats->accepted_tokens == stats->draft_tokens) == (wrong == 0));
    ck_assert(wrong == 100 ? stats->accepted_tokens == 0 : stats->accepted_tokens > 0);
    ck_assert_int_eq(stats->states_used, 0);
    world_free(w);
}
END_TEST

/* A checkpoint between drafts is kept from the state after its row. */
START_TEST(a_checkpoint_among_drafts_is_kept) {
    struct world *w = world_new(100, 8, 8, 0);
    ask(w, 0, 30, 30, 60, 1);
    run(w);
    ck_assert_int_eq(w->scheduler->checkpoints.n_used, 5); /* after 20, 28, 40, 60 and 80 */
    world_free(w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_checkpoints");
    TCase *list = tcase_create("list");
    tcase_add_test(list, checkpoints_are_due_at_multiples_and_near_the_end_of_a_prompt);
    tcase_add_test(list, a_prefix_is_usable_up_to_its_last_checkpoint);
    tcase_add_test(list, the_least_recently_used_checkpoint_makes_room);
    tcase_add_test(list, a_checkpoint_goes_with_its_block);
    tcase_add_test(list, an_observer_is_told_of_kept_and_dropped_states);
    tcase_add_test(list, a_restored_state_takes_the_place_of_the_oldest);
    suite_add_tcase(suite, list);
    TCase *sequences = tcase_create("sequences");
    tcase_add_test(sequences, a_hit_goes_back_to_the_last_checkpoint);
    tcase_add_test(sequences, rows_end_at_a_checkpoint);
    tcase_add_test(sequences, the_next_turn_of_a_chat_finds_the_answer);
    tcase_add_test(sequences, equal_prompts_compute_their_prefix_once);
    tcase_add_test(sequences, choices_copy_the_state_of_their_prompt);
    tcase_add_test(sequences, a_preempted_sequence_continues_after_its_last_checkpoint);
    tcase_add_loop_test(sequences, refused_drafts_are_taken_back, 0, 3);
    tcase_add_test(sequences, a_checkpoint_among_drafts_is_kept);
    suite_add_tcase(suite, sequences);
    return suite_main(suite);
}
