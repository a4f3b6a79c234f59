/* Drafts of a model's own layer that guesses ahead: the reference's guesses (make_ahead.py) at all
 * places of a text, whatever the scheduler did before, and the bytes of the model without drafts.
 * A key of a wrong token, a wrong hidden vector or a draft's row that stays changes some guess. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/same_bytes.h"
#include "support/suite_main.h"

enum { N_PROMPTS = 2, N_TOKENS = 20, N_GUESSES = 3, LENGTH = 96 };

static const char *const folders[] = {"glm4moe",       "deepseek_v3", "qwen3_5",   "glm4moe.gguf",
                                      "glm4_moe_lite", "qwen3_5_moe", "qwen3_next"};
enum { N_FOLDERS = sizeof folders / sizeof *folders };

/* ---- the reference -------------------------------------------------------------------------- */

struct golden {
    int n_prompt, n_tokens, n_guessed;
    int32_t id[LENGTH]; /* the prompt, then its tokens */
    int32_t guess[N_TOKENS][N_GUESSES];
};

static void read_numbers(char *line, struct golden *g, bool are_guesses) {
    int n = 0;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"), n++) {
        const int32_t id = (int32_t)strtol(word, NULL, 10);
        ck_assert(are_guesses ? n < N_GUESSES && g->n_guessed < N_TOKENS : n < LENGTH);
        if (are_guesses)
            g->guess[g->n_guessed][n] = id;
        else
            g->id[g->n_prompt + g->n_tokens++] = id;
    }
    g->n_guessed += are_guesses;
}

static void read_golden(const char *name, struct golden golden[N_PROMPTS]) {
    char path[96], line[4096];
    snprintf(path, sizeof path, "tests/vectors/ahead/%.*s.txt", (int)strcspn(name, "."), name);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    struct golden *g = golden - 1;
    memset(golden, 0, N_PROMPTS * sizeof *golden);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "prompt ", 7) == 0) {
            ck_assert(++g < golden + N_PROMPTS);
            read_numbers(line + 7, g, false);
            g->n_prompt = g->n_tokens, g->n_tokens = 0;
        } else if (strncmp(line, "tokens ", 7) == 0) {
            read_numbers(line + 7, g, false);
        } else if (strncmp(line, "guesses ", 8) == 0) {
            read_numbers(line + 8, g, true);
        }
    }
    fclose(file);
    for (int i = 0; i < N_PROMPTS; i++)
        ck_assert(golden[i].n_tokens == N_TOKENS && golden[i].n_guessed == N_TOKENS);
}

/* ---- a scheduler whose drafts are compared -------------------------------------------------- */

struct watched {
    struct engine *engine;
    struct scheduler *scheduler;
    struct drafter drafter; /* the scheduler's own */
    struct golden golden[N_PROMPTS];
    struct generation generation[4];
    int predicts; /* tokens that the next request foresees */
    int n_live, n_asked, n_compared, n_wrong;
    int at[N_TOKENS]; /* guesses compared by place */
    char first[160];
};

static void compare_guess(struct watched *w, const struct draft_job *job, int k) {
    const struct generation *g = job->context.owner;
    const struct golden *golden = &w->golden[g->prompt == w->golden[1].id];
    const int at = job->context.n - golden->n_prompt - 1;
    const int32_t found = job->context.tokens[job->context.n + k];
    ck_assert(at >= 0 && at < N_TOKENS);
    ck_assert_mem_eq(job->context.tokens, golden->id,
                     (size_t)job->context.n * sizeof *golden->id); /* the model's own text */
    w->n_compared++, w->at[at]++;
    if (found == golden->guess[at][k] || w->n_wrong++ > 0) return;
    snprintf(w->first, sizeof w->first, "guess %d after token %d is %d, the reference has %d", k,
             at, (int)found, (int)golden->guess[at][k]);
}

static void propose_and_compare(void *self, struct draft_job *jobs, int n) {
    struct watched *w = self;
    w->drafter.propose_all(w->drafter.self, jobs, n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < jobs[i].draft.n; k++) compare_guess(w, &jobs[i], k);
}

static void on_events(void *arg, const struct event *events, int n) {
    struct watched *w = arg;
    for (int i = 0; i < n; i++) w->n_live -= events[i].last;
}

static struct engine *open_engine(const char *path, const struct setting *s, int ranks) {
    struct engine_config config = {.model = path,
                                   .ranks = ranks,
                                   .threads = s->threads,
                                   .cpu_path = s->path,
                                   .dtype = COMPUTE_FLOAT32,
                                   .kv_dtype = KV_DTYPE_FLOAT32,
                                   .device = DEVICE_CPU,
                                   .max_model_len = LENGTH,
                                   .max_num_seqs = s->max_seqs,
                                   .max_num_batched_tokens = s->max_rows,
                                   .max_logit_rows = s->max_logit_rows,
                                   .block_size = s->block_size,
                                   .max_drafts = N_GUESSES,
                                   .guesses_ahead = true,
                                   .state_checkpoints = -1,
                                   .kv_memory = 64 << 20};
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s: %s", path, err.message);
    return engine;
}

static struct watched *watched_new(const char *name, const struct setting *s, int ranks) {
    struct watched *w = mem_calloc(1, sizeof *w);
    char path[96];
    snprintf(path, sizeof path, "tests/vectors/ahead/%s", name);
    read_golden(name, w->golden);
    w->engine = open_engine(path, s, ranks);
    const struct engine_memory *memory = engine_memory(w->engine);
    const struct scheduler_config config = {
        .max_num_seqs = s->max_seqs,
        .max_num_batched_tokens = s->max_rows,
        .max_model_len = LENGTH,
        .max_queued_requests = 8,
        .max_queued_tokens = 4096,
        .n_blocks = min_int(s->n_blocks, memory->n_blocks),
        .block_size = s->block_size,
        .n_states = memory->n_states,
        .n_checkpoints = memory->n_checkpoints,
        .n_draft_states = memory->n_draft_states,
        .checkpoint_every = memory->checkpoint_every,
        .checkpoint_least = 1,
        .max_logit_rows = s->max_logit_rows,
        .prefix_caching = s->caching,
        .speculation = {.method = SPECULATION_AHEAD, .max_tokens = N_GUESSES},
        .fixed_drafts = true,
        .on_events = on_events,
        .arg = w};
    w->scheduler = scheduler_new(&config, w->engine);
    w->drafter = w->scheduler->drafter;
    w->scheduler->drafter.self = w;
    w->scheduler->drafter.propose_all = propose_and_compare;
    return w;
}

static void watched_free(struct watched *w) {
    w->scheduler->drafter = w->drafter;
    scheduler_free(w->scheduler);
    engine_close(w->engine);
    mem_free(w);
}

static void ask(struct watched *w, int prompt, int n) {
    struct generation *g = &w->generation[w->n_asked++];
    struct err err = {0};
    ck_assert_int_le(w->n_asked, 4);
    *g = (struct generation){.prompt = w->golden[prompt].id,
                             .n_prompt = w->golden[prompt].n_prompt,
                             .n = n,
                             .max_tokens = N_TOKENS,
                             .max_drafts = N_GUESSES,
                             .predicted = w->golden[prompt].id + w->golden[prompt].n_prompt,
                             .n_predicted = w->predicts,
                             .sampling = SAMPLING_GREEDY,
                             .prompt_logprobs = -1,
                             .owner = g};
    w->n_live++;
    ck_assert_msg(scheduler_submit(w->scheduler, g, &err) == STATUS_OK, "%s", err.message);
}

static void step(struct watched *w) {
    scheduler_step(w->scheduler);
    scheduler_check(w->scheduler);
}

static void finish(struct watched *w) {
    for (int i = 0; i < 2000 && w->n_live > 0; i++) step(w);
    ck_assert_int_eq(w->n_live, 0);
    w->n_asked = 0;
    ck_assert_msg(w->n_wrong == 0, "%d of %d guesses are wrong; first: %s", w->n_wrong,
                  w->n_compared, w->first);
}

/* ---- the same guesses ----------------------------------------------------------------------- */

static const struct setting alone = {"plain", 1, 64, 2, 16, 64, 16, false, 1};

/* One sequence, whose blocks are long: three guesses at nearly each place. */
START_TEST(guesses_are_those_of_the_reference) {
    struct watched *w = watched_new(folders[_i], &alone, 1);
    for (int prompt = 0; prompt < N_PROMPTS; prompt++) {
        ask(w, prompt, 1);
        finish(w);
    }
    ck_assert_int_gt(w->n_compared, N_PROMPTS * 3 * (N_TOKENS - 8));
    watched_free(w);
}
END_TEST

/* Prompts in parts, sequences together, all paths. A second round finds prefixes in the cache. */
START_TEST(guesses_do_not_depend_on_steps) {
    static const struct setting settings[] = {{NULL, 2, 5, 3, 16, 16, 40, true, 1},
                                              {NULL, 1, 64, 4, 16, 8, 40, true, 1},
                                              {NULL, 1, 17, 4, 7, 16, 40, false, 1}};
    const char *const *path = backend_cpu_paths();
    for (int i = 0; i < 3; i++, path += path[1] != NULL) {
        struct setting s = settings[i];
        s.path = *path;
        struct watched *w = watched_new(folders[_i], &s, 1);
        for (int round = 0; round < 2; round++) {
            for (int k = 0; k < 4; k++) ask(w, k % 2, k == 3 ? 3 : 1);
            finish(w);
        }
        ck_assert_int_gt(w->n_compared, 60);
        watched_free(w);
    }
}
END_TEST

/* A sequence that loses its blocks computes the layer's keys again, with the model's. */
START_TEST(guesses_survive_preemption) {
    const struct setting s = {"plain", 1, 64, 4, 16, 4, 24, false, 1};
    struct watched *w = watched_new(folders[_i], &s, 1);
    for (int k = 0; k < 4; k++) ask(w, k % 2, 1);
    finish(w);
    struct scheduler_stats stats;
    scheduler_stats(w->scheduler, &stats);
    ck_assert_uint_gt(stats.preemptions, 0);
    ck_assert_int_gt(w->n_compared, 20);
    watched_free(w);
}
END_TEST

/* The keys of rows without drafts after them are right, too. */
START_TEST(guesses_after_a_pause_are_right) {
    struct watched *w = watched_new(folders[_i], &alone, 1);
    ask(w, 1, 1);
    for (int i = 0; i < 3; i++) step(w);
    struct sequence *sequence = sequence_of(w->scheduler->running.head.next);
    const int before = w->n_compared;
    sequence->request->max_drafts = 0;
    for (int i = 0; i < 6; i++) step(w);
    ck_assert_int_eq(w->n_compared, before);
    sequence->request->max_drafts = N_GUESSES;
    finish(w);
    ck_assert_int_gt(w->n_compared, before + 10);
    watched_free(w);
}
END_TEST

/* The client foresees half of the text. So drafts of the prediction are accepted, and the last row
 * is that of the last one. */
START_TEST(guesses_after_accepted_drafts_are_right) {
    struct watched *w = watched_new(folders[_i], &alone, 1);
    struct scheduler_stats stats;
    w->predicts = N_TOKENS / 2;
    ask(w, 1, 1);
    finish(w);
    scheduler_stats(w->scheduler, &stats);
    ck_assert_uint_gt(stats.accepted_tokens, 4);
    ck_assert_int_gt(w->n_compared, N_TOKENS / 2);
    watched_free(w);
}
END_TEST

/* Two ranks share the layer. Only they have heads and a width that two can share. */
START_TEST(guesses_of_ranks_are_those_of_the_reference) {
    static const struct setting together = {"plain", 2, 17, 4, 16, 16, 40, true, 1};
    struct watched *w = watched_new("qwen3_5", _i ? &together : &alone, 2);
    for (int prompt = 0; prompt < N_PROMPTS; prompt++) {
        ask(w, prompt, 1);
        if (_i) ask(w, prompt, 3);
        if (!_i) finish(w);
    }
    finish(w);
    ck_assert_int_gt(w->n_compared, N_PROMPTS * 3 * (N_TOKENS - 8));
    watched_free(w);
}
END_TEST

/* ---- the same bytes ------------------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ASKED = 4, CASES = 4 };
#else
enum { ASKED = 14, CASES = 12 };
#endif

static struct setting draw_setting(uint64_t seed, int blocks) {
    uint64_t random = seed * 7919;
    const char *const *paths = backend_cpu_paths();
    const int size = 4 << drawn_between(&random, 0, 2), seqs = drawn_between(&random, 4, 9);
    const bool few = drawn_chance(&random, 60);
    return (struct setting){.path = drawn_chance(&random, 80) ? paths[0] : "plain",
                            .threads = drawn_between(&random, 1, 3),
                            .max_rows = drawn_between(&random, 9, 80),
                            .max_seqs = seqs,
                            .max_logit_rows = drawn_between(&random, seqs, 30),
                            .block_size = size,
                            .n_blocks = few ? blocks / size + 1 : 8 * blocks / size,
                            .caching = drawn_chance(&random, 70),
                            .max_drafts = drawn_between(&random, 1, MAX_DRAFTS),
                            .guesses_ahead = true,
                            .fixed_drafts = drawn_chance(&random, 70),
                            .checkpoints = drawn_between(&random, 0, 20),
                            .checkpoint_blocks = drawn_between(&random, 1, 4)};
}

static void run_case(const struct request_set *set, uint64_t seed, struct tally *sum) {
    struct run *run = mem_calloc(1, sizeof *run);
    const struct setting s = draw_setting(seed, LENGTH);
    run_open(run, set, &s);
    for (int i = 0; i < set->n_asked && i < MAX_CLIENTS; i++) {
        const struct asked *asked = &set->asked[(i + (int)seed) % set->n_asked];
        if (asked_width(asked) > s.max_seqs ||
            asked_slots(set, asked) * asked_width(asked) > s.n_blocks * s.block_size)
            continue;
        struct client *client = run_add(run, asked);
        client->submit_at = i / 3 * 2;
        if (i % 5 == 4) client->cancel_at = client->submit_at + 6;
    }
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "seed %d: %s", (int)seed, run->first_difference);
    sum->drafts += run->tally.drafts;
    sum->preemptions += run->tally.preemptions;
    sum->prefix_hits += run->tally.prefix_hits;
    sum->tokens += run->tally.tokens;
    mem_free(run);
}

START_TEST(guesses_change_no_byte) {
    static const enum kv_dtype types[N_FOLDERS] = {KV_DTYPE_AUTO, KV_DTYPE_Q8_0, KV_DTYPE_FLOAT16,
                                                   KV_DTYPE_FLOAT32, KV_DTYPE_AUTO};
    char path[96];
    struct request_set *set = mem_calloc(1, sizeof *set);
    struct tally sum = {0};
    snprintf(path, sizeof path, "tests/vectors/ahead/%s", folders[_i]);
    *set = (struct request_set){
        .model = {.file = path, .kv_dtype = types[_i], .max_model_len = LENGTH},
        .reference_path = "plain",
        .long_prompt = LENGTH * 2 / 3,
        .longest = LENGTH / 2,
        .reads = true};
    request_set_init(set, (uint64_t)_i + 1, ASKED, NULL, 0);
    request_set_learn(set);
    for (uint64_t seed = 1; seed <= CASES; seed++) run_case(set, seed, &sum);
    printf("%s: %llu tokens, %llu drafts, %llu preemptions, %llu prefix tokens\n", folders[_i],
           (unsigned long long)sum.tokens, (unsigned long long)sum.drafts,
           (unsigned long long)sum.preemptions, (unsigned long long)sum.prefix_hits);
    ck_assert(sum.drafts > 0);
    ck_assert(ASKED < 14 || (sum.preemptions > 0 && sum.prefix_hits > 0));
    request_set_free(set);
    mem_free(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_ahead");
    TCase *guesses = tcase_create("guesses"), *bytes = tcase_create("bytes");
    tcase_set_timeout(guesses, 300);
    tcase_set_timeout(bytes, 900);
    tcase_add_loop_test(guesses, guesses_are_those_of_the_reference, 0, N_FOLDERS);
    tcase_add_loop_test(guesses, guesses_do_not_depend_on_steps, 0, N_FOLDERS);
    tcase_add_loop_test(guesses, guesses_survive_preemption, 0, N_FOLDERS);
    tcase_add_loop_test(guesses, guesses_after_a_pause_are_right, 0, N_FOLDERS);
    tcase_add_loop_test(guesses, guesses_after_accepted_drafts_are_right, 0, N_FOLDERS);
    tcase_add_loop_test(guesses, guesses_of_ranks_are_those_of_the_reference, 0, 2);
    tcase_add_loop_test(bytes, guesses_change_no_byte, 0, N_FOLDERS);
    suite_add_tcase(suite, guesses);
    suite_add_tcase(suite, bytes);
    return suite_main(suite);
}
