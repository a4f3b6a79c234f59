/* Drafts of a model's own layer that guesses ahead, and of EAGLE-3 heads beside a model (eagle_*):
 * the reference's guesses (make_ahead.py, make_eagle.py) at all
 * places of a text, whatever the scheduler did before, and the bytes of the model without drafts.
 * A key of a wrong token, a wrong hidden vector or a draft's row that stays changes some guess. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/suite_main.h"
#include "support/watched.h"

enum { LENGTH = WATCHED_LENGTH };

static const char *const folders[] = {"glm4moe",      "deepseek_v3",   "qwen3_5",
                                      "glm4moe.gguf", "glm4_moe_lite", "qwen3_5_moe",
                                      "qwen3_next",   "qwen3_5.gguf",  "deepseek_v3.gguf",
                                      "eagle_llama",  "eagle_qwen3"};
enum { N_FOLDERS = sizeof folders / sizeof *folders, QWEN3_5 = 2, EAGLE_LLAMA = 9 };

/* The least comparisons, if there are n without accepted drafts: heads are trained, so that many of
 * theirs are accepted, and steps begin at fewer places. */
static int least_compared(int folder, int n) {
    return strncmp(folders[folder], "eagle", 5) == 0 ? n / 4 : n;
}

/* ---- the same guesses ----------------------------------------------------------------------- */

static const struct setting alone = {"plain", 1, 64, 2, 16, 64, 16, false, 1};

/* One sequence, whose blocks are long: three guesses at nearly each place. */
START_TEST(guesses_are_those_of_the_reference) {
    struct watched *w = watched_new(folders[_i], &alone, DEVICE_CPU, 1);
    for (int prompt = 0; prompt < WATCHED_PROMPTS; prompt++) {
        watched_ask(w, prompt, 1);
        watched_finish(w);
    }
    ck_assert_int_gt(w->n_compared, least_compared(_i, WATCHED_PROMPTS * 3 * (WATCHED_TOKENS - 8)));
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
        struct watched *w = watched_new(folders[_i], &s, DEVICE_CPU, 1);
        for (int round = 0; round < 2; round++) {
            for (int k = 0; k < 4; k++) watched_ask(w, k % 2, k == 3 ? 3 : 1);
            watched_finish(w);
        }
        ck_assert_int_gt(w->n_compared, least_compared(_i, 60));
        watched_free(w);
    }
}
END_TEST

/* A sequence that loses its blocks computes the layer's keys again, with the model's. */
START_TEST(guesses_survive_preemption) {
    const struct setting s = {"plain", 1, 64, 4, 16, 4, 24, false, 1};
    struct watched *w = watched_new(folders[_i], &s, DEVICE_CPU, 1);
    for (int k = 0; k < 4; k++) watched_ask(w, k % 2, 1);
    watched_finish(w);
    struct scheduler_stats stats;
    scheduler_stats(w->scheduler, &stats);
    ck_assert_uint_gt(stats.preemptions, 0);
    ck_assert_int_gt(w->n_compared, least_compared(_i, 20));
    watched_free(w);
}
END_TEST

/* The keys of rows without drafts after them are right, too. */
START_TEST(guesses_after_a_pause_are_right) {
    struct watched *w = watched_new(folders[_i], &alone, DEVICE_CPU, 1);
    watched_ask(w, 1, 1);
    for (int i = 0; i < 3; i++) watched_step(w);
    struct sequence *sequence = sequence_of(w->scheduler->running.head.next);
    const int before = w->n_compared;
    sequence->request->max_drafts = 0;
    for (int i = 0; i < 6; i++) watched_step(w);
    ck_assert_int_eq(w->n_compared, before);
    sequence->request->max_drafts = WATCHED_GUESSES;
    watched_finish(w);
    ck_assert_int_gt(w->n_compared, before + least_compared(_i, 10));
    watched_free(w);
}
END_TEST

/* The client foresees half of the text. So drafts of the prediction are accepted, and the last row
 * is that of the last one. */
START_TEST(guesses_after_accepted_drafts_are_right) {
    struct watched *w = watched_new(folders[_i], &alone, DEVICE_CPU, 1);
    struct scheduler_stats stats;
    w->predicts = WATCHED_TOKENS / 2;
    watched_ask(w, 1, 1);
    watched_finish(w);
    scheduler_stats(w->scheduler, &stats);
    ck_assert_uint_gt(stats.accepted_tokens, 4);
    ck_assert_int_gt(w->n_compared, least_compared(_i, WATCHED_TOKENS / 2));
    watched_free(w);
}
END_TEST

/* Two ranks share the layer. Only these models have heads and a width that two can share. */
START_TEST(guesses_of_ranks_are_those_of_the_reference) {
    static const struct setting together = {"plain", 2, 17, 4, 16, 16, 40, true, 1};
    const bool in_company = _i % 2;
    const int folder = _i < 2 ? QWEN3_5 : EAGLE_LLAMA;
    struct watched *w =
        watched_new(folders[folder], in_company ? &together : &alone, DEVICE_CPU, 2);
    for (int prompt = 0; prompt < WATCHED_PROMPTS; prompt++) {
        watched_ask(w, prompt, 1);
        if (in_company) watched_ask(w, prompt, 3);
        if (!in_company) watched_finish(w);
    }
    watched_finish(w);
    ck_assert_int_gt(w->n_compared,
                     least_compared(folder, WATCHED_PROMPTS * 3 * (WATCHED_TOKENS - 8)));
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
    char path[96], head[112];
    struct request_set *set = mem_calloc(1, sizeof *set);
    struct tally sum = {0};
    snprintf(path, sizeof path, "tests/vectors/ahead/%s", folders[_i]);
    snprintf(head, sizeof head, "%s_head", path);
    *set = (struct request_set){.model = {.file = path,
                                          .eagle = access(head, F_OK) == 0 ? head : NULL,
                                          .kv_dtype = types[_i],
                                          .max_model_len = LENGTH},
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
    tcase_add_loop_test(guesses, guesses_of_ranks_are_those_of_the_reference, 0, 4);
    tcase_add_loop_test(bytes, guesses_change_no_byte, 0, N_FOLDERS);
    suite_add_tcase(suite, guesses);
    suite_add_tcase(suite, bytes);
    return suite_main(suite);
}
