/* Rows of several adapters share steps and blocks: a request gives the bytes that it gives alone,
 * in any company, chunks and order, with preemptions, drafts, and adapters that are unloaded
 * and loaded again under other numbers. Requests of the base model give the bytes of an engine
 * without adapters.
 *
 *     PROPERTY_SEED=123    replays one case
 *     PROPERTY_CASES=n     number of cases
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/adapter_file.h"
#include "support/same_bytes.h"
#include "support/suite_main.h"

#if defined(__SANITIZE_THREAD__)
#define CASES 6
#define ASKED 6
#elif defined(__SANITIZE_ADDRESS__)
#define CASES 30
#define ASKED 12
#else
#define CASES 30
#define ASKED 18
#endif

enum { LENGTH = 320, LONG = 200 };

static const struct variety {
    const char *name, *file; /* NULL: a tiny llama of the type */
    enum dtype dtype;
    enum kv_dtype kv_dtype;
    enum compute_dtype compute;
} varieties[] = {
    {"f32", NULL, DTYPE_F32, KV_DTYPE_AUTO, COMPUTE_AUTO},
    {"q8_0", NULL, DTYPE_Q8_0, KV_DTYPE_Q8_0, COMPUTE_AUTO},
    {"float32", NULL, DTYPE_Q4_1, KV_DTYPE_FLOAT32, COMPUTE_FLOAT32},
    {"lfm2", "tests/vectors/families/lfm2.gguf", DTYPE_F32, KV_DTYPE_AUTO, COMPUTE_AUTO},
    {"gemma2", "tests/vectors/families/gemma2.gguf", DTYPE_F32, KV_DTYPE_AUTO, COMPUTE_AUTO},
    {"gpt2", "tests/vectors/families/gpt2.gguf", DTYPE_F32, KV_DTYPE_AUTO, COMPUTE_AUTO},
};

enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

static struct request_set *sets[N_VARIETIES]; /* made at first use */
static char *models[N_VARIETIES], *adapters[N_VARIETIES][MOST_ADAPTERS];

static void write_adapters(int i, const char *file) {
    static const int ranks[MOST_ADAPTERS] = {1, 4, 8, 17, 64};
    struct engine_config config = {.model = file,
                                   .threads = 1,
                                   .max_model_len = 16,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 1,
                                   .block_size = 16};
    struct engine *engine;
    ck_assert_int_eq(engine_open(&engine, &config, NULL), STATUS_OK);
    for (int k = 0; k < MOST_ADAPTERS; k++) {
        const struct made_adapter made = {.rank = ranks[k],
                                          .alpha = k == 1 ? 0 : 2.0f * (float)ranks[k],
                                          .seed = (uint64_t)k + 1,
                                          .only = k == 3 ? ROLE_O : 0};
        adapters[i][k] = adapter_file_temporary(&made, engine_model(engine));
    }
    engine_close(engine);
}

static struct request_set *set_of(int i) {
    const struct variety *v = &varieties[i];
    struct tiny_model tiny;
    if (sets[i]) return sets[i];
    tiny_model_defaults(&tiny);
    tiny.dtype = v->dtype;
    tiny.context_length = LENGTH;
    if (!v->file) models[i] = tiny_model_temporary(&tiny);
    const char *file = v->file ? v->file : models[i];
    write_adapters(i, file);
    struct request_set *set = sets[i] = mem_calloc(1, sizeof *set);
    *set = (struct request_set){.model = {.file = file,
                                          .kv_dtype = v->kv_dtype,
                                          .dtype = v->compute,
                                          .max_model_len = v->file ? 96 : LENGTH},
                                .n_adapters = MOST_ADAPTERS,
                                .reference_path = "plain",
                                .long_prompt = v->file ? 64 : LONG,
                                .longest = v->file ? 40 : LONG / 2,
                                .reads = true};
    for (int k = 0; k < MOST_ADAPTERS; k++) set->adapter[k] = adapters[i][k];
    request_set_init(set, (uint64_t)i + 1, ASKED, NULL, 0);
    for (int k = 0; k < ASKED; k++) set->asked[k].adapter = k % (MOST_ADAPTERS + 1);
    request_set_learn(set);
    return set;
}

static void free_sets(void) {
    for (int i = 0; i < N_VARIETIES; i++) {
        if (!sets[i]) continue;
        if (models[i]) unlink(models[i]);
        free(models[i]);
        for (int k = 0; k < MOST_ADAPTERS; k++) unlink(adapters[i][k]), free(adapters[i][k]);
        request_set_free(sets[i]);
        free(sets[i]);
        sets[i] = NULL;
    }
}

/* ---- random cases --------------------------------------------------------------------------- */

static void draw_setting(struct setting *s, const struct request_set *set, uint64_t *random) {
    static const int sizes[] = {2, 4, 8, 16};
    const char *const *paths = backend_cpu_paths();
    int n_paths = 0, largest = 0;
    while (paths[n_paths]) n_paths++;
    for (int i = 0; i < set->n_asked; i++)
        largest = max_int(largest, asked_slots(set, &set->asked[i]));
    *s = (struct setting){.path = paths[drawn_between(random, 0, n_paths - 1)],
                          .threads = drawn_between(random, 1, 3),
                          .max_rows = drawn_between(random, 4, 90),
                          .max_seqs = drawn_between(random, MOST_CHOICES, 16),
                          .block_size = sizes[drawn_between(random, 0, 3)],
                          .caching = drawn_chance(random, 75)};
    s->max_logit_rows = drawn_between(random, s->max_seqs, 40);
    s->n_blocks = (largest + s->block_size - 1) / s->block_size;
    s->n_blocks += drawn_between(random, 0, drawn_chance(random, 60) ? 4 : 4 * s->n_blocks);
    s->mixed_rows = drawn_chance(random, 50) ? drawn_between(random, 1, 40) : 0;
    if (drawn_chance(random, 50)) return;
    s->max_drafts = drawn_between(random, 1, MAX_DRAFTS);
    s->wrong = drawn_between(random, 0, 130);
}

static void run_case(uint64_t seed, struct tally *sum) {
    uint64_t random = seed * 7919;
    struct run *run = mem_calloc(1, sizeof *run);
    struct setting setting;
    struct request_set *set = set_of(drawn_between(&random, 0, N_VARIETIES - 1));
    draw_setting(&setting, set, &random);
    run_open(run, set, &setting);
    int passes = drawn_between(&random, 1, 3);
    for (int pass = 0; pass < passes; pass++) {
        int n = drawn_between(&random, 3, MAX_CLIENTS), spread = drawn_between(&random, 0, 30);
        if (pass > 0 && drawn_chance(&random, 70))
            run_reload_adapters(run, drawn_between(&random, 0, MOST_ADAPTERS - 1));
        for (int i = 0; i < n; i++)
            run_add(run, &set->asked[drawn_between(&random, 0, set->n_asked - 1)])->submit_at =
                drawn_between(&random, 0, spread);
        run_stepped(run);
    }
    run_close(run);
    sum->tokens += run->tally.tokens;
    sum->prefix_hits += run->tally.prefix_hits;
    sum->preemptions += run->tally.preemptions;
    sum->accepted += run->tally.accepted;
    ck_assert_msg(run->tally.differences == 0,
                  "PROPERTY_SEED=%llu: model %s, path %s: %llu differences, the first: %s",
                  (unsigned long long)seed, set->model.file, setting.path,
                  (unsigned long long)run->tally.differences, run->first_difference);
    free(run);
}

START_TEST(requests_give_the_bytes_that_they_give_alone) {
    const char *one = getenv("PROPERTY_SEED"), *cases = getenv("PROPERTY_CASES");
    struct tally sum = {0};
    uint64_t n = cases ? strtoull(cases, NULL, 10) : CASES;
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (one ? 1 : n); seed++) run_case(seed, &sum);
    printf("%llu tokens compared, %llu prefix tokens hit, %llu preemptions, %llu drafts held\n",
           (unsigned long long)sum.tokens, (unsigned long long)sum.prefix_hits,
           (unsigned long long)sum.preemptions, (unsigned long long)sum.accepted);
    if (one || cases) return;
    ck_assert_uint_gt(sum.prefix_hits, 0);
    ck_assert_uint_gt(sum.preemptions, 0);
    free_sets();
}
END_TEST

/* ---- the base model ------------------------------------------------------------------------- */

/* All requests are of the base model. They are learnt without adapters, and compared beside
 * requests of adapters. */
START_TEST(the_base_has_the_bytes_of_an_engine_without_adapters) {
    struct request_set *with = set_of(_i), *base = mem_calloc(1, sizeof *base);
    *base = (struct request_set){
        .model = with->model, .reference_path = "plain", .long_prompt = 60, .longest = 40};
    request_set_init(base, 77, 6, NULL, 0);
    request_set_learn(base);
    struct run *run = mem_calloc(1, sizeof *run);
    const struct setting setting = {.path = backend_cpu_paths()[0],
                                    .threads = 2,
                                    .max_rows = 64,
                                    .max_seqs = 16,
                                    .max_logit_rows = 32,
                                    .block_size = 16,
                                    .caching = true,
                                    .n_blocks = 200};
    run_open(run, with, &setting);
    for (int i = 0; i < 6; i++) run_add(run, &base->asked[i]), run_add(run, &with->asked[i]);
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%s", run->first_difference);
    ck_assert_uint_gt(run->tally.tokens, 0);
    free(run);
    request_set_free(base);
    free(base);
}
END_TEST

/* An adapter changes the answers, so the tests above compare something. */
START_TEST(adapters_change_answers) {
    struct request_set *set = set_of(_i);
    int changed = 0;
    struct run *run = mem_calloc(1, sizeof *run);
    const struct setting setting = {.path = "plain",
                                    .threads = 1,
                                    .max_rows = 64,
                                    .max_seqs = 16,
                                    .max_logit_rows = 32,
                                    .block_size = 16,
                                    .n_blocks = 300};
    for (int adapter = 0; adapter <= MOST_ADAPTERS; adapter++) {
        struct asked other = set->asked[1];
        if (adapter == other.adapter || other.generation.max_tokens == 0) continue;
        other.adapter = adapter;
        run_open(run, set, &setting);
        run_add(run, &other);
        run_stepped(run);
        run_close(run);
        changed += run->tally.differences > 0;
    }
    ck_assert_int_ge(changed, 4);
    free(run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_adapters");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, the_base_has_the_bytes_of_an_engine_without_adapters, 0, N_VARIETIES);
    tcase_add_loop_test(core, adapters_change_answers, 0, N_VARIETIES);
    tcase_add_test(core, requests_give_the_bytes_that_they_give_alone);
    tcase_set_timeout(core, 600);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
