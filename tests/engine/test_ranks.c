/* Several ranks compared with one. Their sums are rounded in another order, so in float32 the
 * logits differ in their last bits. If inputs of products, keys and values are rounded to integers,
 * such a bit may move a number to the next integer. Tokens are equal unless the choice is that
 * close. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/sampling/sampling.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

#define REAL_MODEL "models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define LENGTH 96
#define PROMPT 12

/* ---- one sequence on both ------------------------------------------------------------------- */

static const struct sampling greedy = SAMPLING_GREEDY;
static const struct sampling seeded = {.temperature = 0.8f,
                                       .top_p = 0.95f,
                                       .top_k = 40,
                                       .repetition_penalty = 1.1f,
                                       .seed = 1234,
                                       .n_logprobs = -1};

static int32_t choose(struct sampler *sampler, const struct sampling *sampling, float *row,
                      const int32_t *ids, int n) {
    struct sampled sampled;
    const struct sample sample = {.sampling = sampling,
                                  .history = ids,
                                  .n_prompt = PROMPT,
                                  .n_output = n - PROMPT,
                                  .position = n};
    sampler_sample(sampler, &sample, row, &sampled);
    return sampled.id;
}

/* The results of a generation on several ranks compared with one rank. */
struct comparison {
    int tokens, equal;
    double worst; /* largest difference of logits */
    double gap;   /* the largest gap between two top logits that changed places */
    double kl;    /* sum of the divergences of several ranks' distributions from one rank's */
};

static double divergence(const float *p, const float *q, int V) {
    double lp = runner_logsumexp(p, V), lq = runner_logsumexp(q, V), sum = 0;
    for (int i = 0; i < V; i++) {
        double a = (double)p[i] - lp, b = (double)q[i] - lq;
        sum += exp(a) * (a - b);
    }
    return sum;
}

static void compare_rows(const float *a, const float *b, int V, struct comparison *c) {
    c->kl += divergence(a, b, V);
    int best = runner_argmax(a, V), other = runner_argmax(b, V);
    c->gap = fmax(c->gap, (double)a[best] - (double)a[other]);
    for (int i = 0; i < V; i++) c->worst = fmax(c->worst, fabs((double)a[i] - (double)b[i]));
}

/* Both follow the tokens of one rank, so that one different choice does not change all later
 * ones. */
static void compare(struct engine *one, struct engine *several, const struct sampling *sampling,
                    struct comparison *c) {
    int V = engine_model(one)->V, n = PROMPT;
    struct sampler *sampler = sampler_new(V, NULL);
    int32_t ids[LENGTH + 1];
    for (int i = 0; i < n; i++) ids[i] = (i * 37 + 11) % V;
    for (int at = 0; n <= LENGTH; at = n++) {
        size_t last = (size_t)(n - at - 1) * (size_t)V;
        float *a = runner_logits(one, ids, at, n - at) + last;
        float *b = runner_logits(several, ids, at, n - at) + last;
        compare_rows(a, b, V, c);
        ids[n] = choose(sampler, sampling, a, ids, n);
        c->equal += choose(sampler, sampling, b, ids, n) == ids[n];
        c->tokens++;
    }
    sampler_free(sampler);
}

/* ---- tiny models ---------------------------------------------------------------------------- */

static const struct shape {
    const char *name;
    enum dtype dtype;
    int K, F, H, G, D, ranks;
    bool float32;
    /* largest difference of logits; 0: the oracle mode, in which all tokens are equal */
    double most;
} shapes[] = {
    {"f32", DTYPE_F32, 64, 96, 4, 2, 16, 2, true, 0},
    {"f32, 3 ranks", DTYPE_F32, 96, 93, 6, 3, 16, 3, true, 0},
    {"f32, 4 ranks of 1 head", DTYPE_F32, 64, 64, 4, 4, 16, 4, true, 0},
    {"q4_1 as float32", DTYPE_Q4_1, 64, 128, 4, 2, 16, 2, true, 0},
    {"f32, int16 cache", DTYPE_F32, 64, 96, 4, 2, 16, 2, false, 2e-3},
    {"q4_1", DTYPE_Q4_1, 64, 128, 4, 2, 16, 2, false, 0.2},
    {"q8_0", DTYPE_Q8_0, 96, 192, 6, 6, 16, 3, false, 0.2},
    {"f16", DTYPE_F16, 64, 96, 4, 2, 16, 2, false, 0.02},
    {"bf16", DTYPE_BF16, 48, 90, 6, 6, 8, 6, false, 0.02},
};

START_TEST(tiny_models_give_the_same_tokens) {
    const struct shape *s = &shapes[_i];
    struct tiny_model tiny = {.V = 300,
                              .K = s->K,
                              .F = s->F,
                              .L = 3,
                              .H = s->H,
                              .G = s->G,
                              .D = s->D,
                              .context_length = 2048,
                              .dtype = s->dtype,
                              .untied = _i % 2 == 0,
                              .seed = 7};
    char *file = tiny_model_temporary(&tiny);
    struct engine *one = runner_open_ranks(file, s->float32, 2, KV_DTYPE_AUTO, 1);
    struct engine *several =
        runner_open_ranks(file, s->float32, 2 * s->ranks, KV_DTYPE_AUTO, s->ranks);
    struct comparison c = {0};
    compare(one, several, &greedy, &c);
    compare(one, several, &seeded, &c);
    printf("%s: %d of %d tokens equal, logits within %.2g\n", s->name, c.equal, c.tokens, c.worst);
    ck_assert_int_ge(c.equal, s->most > 0 ? c.tokens * 9 / 10 : c.tokens);
    ck_assert_double_lt(c.worst, s->most > 0 ? s->most : 1e-4);
    ck_assert_double_le(c.gap, 2 * c.worst);
    engine_close(one);
    engine_close(several);
    unlink(file);
    free(file);
}
END_TEST

/* ---- recurrent layers and latent attention -------------------------------------------------- */

/* Value heads that are tiled (GGUF files) and grouped (folders) over fewer key heads, groups of a
 * state space, channels of a short convolution, and query heads over latent vectors. The experts of
 * the last ones are too narrow for two ranks, so those models have wider ones, with random
 * weights. The delta rule of the very last one is wider than the stream and the MLPs. */
static const struct {
    const char *model;
    bool is_widened;
} families[] = {
    {"families/qwen3_5.gguf", false}, {"ahead/qwen3_5", false},
    {"families/lfm2.gguf", false},    {"families/nemotron_h.gguf", false},
    {"families/mamba2.gguf", false},  {"families/granite4_h.gguf", false},
    {"folders/granite4_h", false},    {"families/falcon_h1.gguf", false},
    {"folders/qwen3_5_moe", true},    {"ahead/qwen3_next", true},
    {"folders/lfm2_moe", true},       {"folders/deepseek_v2", true},
    {"folders/deepseek_v3", true},    {"folders/kimi_linear_wide", true},
};

/* Writes the folder's config.json to `to` with experts of 32, and 8 heads of Kimi's delta rule. */
static void write_widened(const char *folder, const char *to) {
    static const struct {
        const char *key, *value;
    } wider[] = {{"\"moe_intermediate_size\": ", "32"},
                 {"\"shared_expert_intermediate_size\": ", "32"},
                 {"\"num_heads\": ", "8"}};
    char path[160], text[8192] = "";
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    ck_assert(n > 0 && n < sizeof text - 1 && fclose(f) == 0);
    for (int i = 0; i < 3; i++) {
        char *at = strstr(text, wider[i].key);
        if (at) memcpy(at + strlen(wider[i].key), wider[i].value, strlen(wider[i].value));
    }
    f = fopen(to, "w");
    ck_assert(f && fwrite(text, 1, n, f) == n && fclose(f) == 0);
}

static struct engine *open_family(const char *path, bool dummy, int threads, int ranks) {
    return runner_open_config(&(struct engine_config){.model = path,
                                                      .threads = threads,
                                                      .ranks = ranks,
                                                      .dtype = COMPUTE_FLOAT32,
                                                      .dummy = dummy,
                                                      .max_model_len = 96});
}

static void compare_family(const char *path, bool dummy) {
    struct comparison c = {0}, same = {0};
    struct engine *one = open_family(path, dummy, 2, 1), *two = open_family(path, dummy, 2, 2),
                  *more_threads = open_family(path, dummy, 5, 2);
    compare(one, two, &greedy, &c);
    compare(one, two, &seeded, &c);
    compare(two, more_threads, &greedy, &same);
    printf("%s: %d of %d tokens equal, logits within %.2g\n", path, c.equal, c.tokens, c.worst);
    ck_assert_int_eq(c.equal, c.tokens);
    ck_assert_double_lt(c.worst, 1e-4);
    ck_assert(same.worst == 0 && same.equal == same.tokens);
    engine_close(one);
    engine_close(two);
    engine_close(more_threads);
}

START_TEST(families_give_the_same_tokens) {
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    char path[128], made[] = "/tmp/penstock-ranks-XXXXXX", to[3][64], from[192], real[4096];
    snprintf(path, sizeof path, "tests/vectors/%s", families[_i].model);
    if (!families[_i].is_widened) {
        compare_family(path, false);
        return;
    }
    ck_assert_ptr_nonnull(mkdtemp(made));
    for (int i = 0; i < 3; i++) snprintf(to[i], sizeof to[i], "%s/%s", made, files[i]);
    write_widened(path, to[0]);
    for (int i = 1; i < 3; i++) {
        snprintf(from, sizeof from, "%s/%s", path, files[i]);
        ck_assert(realpath(from, real) && symlink(real, to[i]) == 0);
    }
    compare_family(made, true);
    for (int i = 0; i < 3; i++) unlink(to[i]);
    rmdir(made);
}
END_TEST

/* The same bits for any number of threads, and in each run. */
START_TEST(threads_change_nothing) {
    struct tiny_model tiny;
    tiny_model_defaults(&tiny);
    tiny.context_length = 2048;
    char *file = tiny_model_temporary(&tiny);
    struct engine *first = runner_open_ranks(file, false, 2, KV_DTYPE_AUTO, 2);
    struct engine *second = runner_open_ranks(file, false, 5, KV_DTYPE_AUTO, 2);
    struct comparison c = {0};
    compare(first, second, &seeded, &c);
    ck_assert(c.worst == 0 && c.equal == c.tokens);
    engine_close(first);
    engine_close(second);
    unlink(file);
    free(file);
}
END_TEST

/* Returns the process's resident bytes. */
static long resident_bytes(void) {
    long all, has;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_int_eq(fscanf(f, "%ld %ld", &all, &has), 2);
    fclose(f);
    return has * sysconf(_SC_PAGESIZE);
}

static long bytes_of_open(const char *file, bool warm_up) {
    const struct engine_config config = {.model = file,
                                         .threads = 2,
                                         .ranks = 2,
                                         .max_num_seqs = 4,
                                         .max_num_batched_tokens = 64,
                                         .block_size = 16,
                                         .kv_memory = 256 << 20,
                                         .warm_up = warm_up};
    struct engine *engine;
    struct err err;
    const long before = resident_bytes();
    ck_assert_msg(!engine_open(&engine, &config, &err), "%s", err.message);
    const long bytes = resident_bytes() - before;
    engine_close(engine);
    return bytes;
}

START_TEST(a_warm_up_takes_the_caches_of_all_ranks) {
    struct tiny_model tiny;
    tiny_model_defaults(&tiny);
    char *file = tiny_model_temporary(&tiny);
    const long cold = bytes_of_open(file, false);
    ck_assert_int_gt(bytes_of_open(file, true) - cold, 192 << 20); /* of 256 */
    unlink(file);
    free(file);
}
END_TEST

/* ---- matrices that ranks cannot share ------------------------------------------------------- */

static void expect_refused(struct tiny_model tiny, int ranks, const char *words) {
    char *file = tiny_model_temporary(&tiny);
    struct engine_config config = {.model = file,
                                   .ranks = ranks,
                                   .max_num_seqs = 4,
                                   .max_num_batched_tokens = 16,
                                   .block_size = 16};
    struct engine *engine;
    struct err err = {0};
    ck_assert_int_eq(engine_open(&engine, &config, &err), STATUS_USAGE);
    ck_assert_ptr_null(engine);
    ck_assert_msg(strstr(err.message, words) != NULL, "%s", err.message);
    unlink(file);
    free(file);
}

START_TEST(the_message_names_possible_numbers_of_ranks) {
    struct tiny_model tiny;
    tiny_model_defaults(&tiny);
    expect_refused(tiny, 3, "3 does not divide this model: 4 query heads, 2 key-value heads");
    expect_refused(tiny, 4, "possible: 1, 2");
    expect_refused(tiny, 65, "1 to 64");
    tiny.dtype = DTYPE_Q4_1; /* 96 is 3 blocks */
    expect_refused(tiny, 2, "an MLP of 96 in blocks of 32; possible: 1");
    tiny.F = 128, tiny.D = 8; /* 32 is 1 block */
    expect_refused(tiny, 2, "attention's output of 32 in blocks of 32");
}
END_TEST

START_TEST(adapters_of_divided_states_are_refused) {
    struct engine_config config = {.model = "tests/vectors/families/qwen3_5.gguf",
                                   .ranks = 2,
                                   .max_num_seqs = 4,
                                   .max_num_batched_tokens = 16,
                                   .block_size = 16,
                                   .max_adapters = 1,
                                   .max_adapter_rank = 8};
    struct engine *engine;
    struct err err = {0};
    ck_assert_int_eq(engine_open(&engine, &config, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "adapters of recurrent layers are not divided") != NULL, "%s",
                  err.message);
    config.ranks = 1;
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    engine_close(engine);
}
END_TEST

/* Under sanitizers the tiny models are sufficient. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/* ---- the real model ------------------------------------------------------------------------- */

/* 9 query heads and 3 key-value heads. Drawn tokens are equal except for draws close to the border
 * of two tokens, whose number the divergence bounds. */
static void check_real(bool float32, const struct sampling *sampling, int least_equal,
                       double most_kl) {
    struct engine *one = runner_open_ranks(REAL_MODEL, float32, 2, KV_DTYPE_AUTO, 1);
    struct engine *several = runner_open_ranks(REAL_MODEL, float32, 3, KV_DTYPE_AUTO, 3);
    struct comparison c = {0};
    compare(one, several, sampling, &c);
    printf("%s, %s: %d of %d tokens equal, logits within %.2g, mean KL %.2g\n",
           float32 ? "float32" : "q4_1", sampling == &greedy ? "greedy" : "seeded", c.equal,
           c.tokens, c.worst, c.kl / c.tokens);
    ck_assert_int_ge(c.equal, least_equal);
    ck_assert_double_lt(c.kl / c.tokens, most_kl);
    engine_close(one);
    engine_close(several);
}

START_TEST(the_real_model_gives_the_same_tokens) {
    const int all = LENGTH + 1 - PROMPT;
    check_real(true, &greedy, all, 1e-6);
    check_real(true, &seeded, all, 1e-6);
    check_real(false, &greedy, all, 1e-2);
    check_real(false, &seeded, all / 2, 1e-2);
}
END_TEST

#endif

int main(void) {
    log_setup(LOG_WARNING, LOG_TEXT); /* without the messages of warm-ups */
    Suite *suite = suite_create("engine_ranks");
    TCase *tiny = tcase_create("tiny");
    tcase_set_timeout(tiny, 60);
    tcase_add_loop_test(tiny, tiny_models_give_the_same_tokens, 0,
                        (int)(sizeof shapes / sizeof *shapes));
    tcase_add_loop_test(tiny, families_give_the_same_tokens, 0,
                        (int)(sizeof families / sizeof *families));
    tcase_add_test(tiny, threads_change_nothing);
    tcase_add_test(tiny, a_warm_up_takes_the_caches_of_all_ranks);
    tcase_add_test(tiny, the_message_names_possible_numbers_of_ranks);
    tcase_add_test(tiny, adapters_of_divided_states_are_refused);
    suite_add_tcase(suite, tiny);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    TCase *real = tcase_create("real");
    tcase_set_timeout(real, 300);
    tcase_add_test(real, the_real_model_gives_the_same_tokens);
    suite_add_tcase(suite, real);
#endif
    return suite_main(suite);
}
