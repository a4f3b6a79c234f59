/* ctest label: slow The default model compared with the reference (tests/vectors/golden.json). In
 * the oracle mode all greedy tokens are equal and the logits are within 2e-3. In the default mode
 * the first difference may only be at a position whose two best logits are close, and the mean KL
 * divergence from the oracle mode is bounded. */
#include <check.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/sequence_runner.h"
#include "support/suite_main.h"

#define MODEL "models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define MOST 2048

static cJSON *golden;

static void load_golden(void) {
    FILE *file = fopen("tests/vectors/golden.json", "rb");
    ck_assert_ptr_nonnull(file);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    ck_assert_uint_eq(fread(text, 1, (size_t)size, file), (size_t)size);
    text[size] = 0;
    fclose(file);
    golden = cJSON_Parse(text);
    free(text);
    ck_assert_ptr_nonnull(golden);
}

static void free_golden(void) {
    cJSON_Delete(golden);
}

/* Appends an array of ids and returns the new length. */
static int append_ids(const cJSON *array, int32_t *out, int n) {
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        ck_assert_int_lt(n, MOST);
        out[n++] = item->valueint;
    }
    return n;
}

/* Returns the largest difference between a row and a golden position's logits. */
static double worst_difference(const float *row, const cJSON *position, int V) {
    const cJSON *ids = cJSON_GetObjectItem(position, "ids");
    const cJSON *logits = cJSON_GetObjectItem(position, "logits");
    const cJSON *id = ids->child, *logit = logits->child;
    double worst =
        fabs(runner_logsumexp(row, V) - cJSON_GetObjectItem(position, "logsumexp")->valuedouble);
    for (; id && logit; id = id->next, logit = logit->next) {
        worst = fmax(worst, fabs((double)row[id->valueint] - logit->valuedouble));
    }
    return worst;
}

static const cJSON *position_of(const cJSON *prompt, int position) {
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(prompt, "positions")) {
        if (cJSON_GetObjectItem(item, "position")->valueint == position) return item;
    }
    return NULL;
}

/* Runs prompt + greedy in chunks of `chunk` and counts differences. */
static void check_prompt(struct engine *engine, const cJSON *prompt, int chunk, int *tokens,
                         int *rows, double *worst) {
    int32_t ids[MOST];
    int V = engine_model(engine)->V;
    int n_prompt = append_ids(cJSON_GetObjectItem(prompt, "prompt"), ids, 0);
    int n = append_ids(cJSON_GetObjectItem(prompt, "greedy"), ids, n_prompt);
    for (int at = 0; at < n - 1; at += chunk) {
        int size = n - 1 - at < chunk ? n - 1 - at : chunk;
        const float *logits = runner_logits(engine, ids, at, size);
        for (int i = 0; i < size; i++) {
            const float *row = logits + (size_t)i * (size_t)V;
            if (at + i >= n_prompt - 1) {
                ck_assert_msg(runner_argmax(row, V) == ids[at + i + 1], "%s: token %d differs",
                              cJSON_GetObjectItem(prompt, "name")->valuestring, at + i + 1);
                ++*tokens;
            }
            const cJSON *position = position_of(prompt, at + i);
            if (position) *worst = fmax(*worst, worst_difference(row, position, V));
            *rows += position != NULL;
        }
    }
}

START_TEST(oracle_mode_equals_the_reference) {
    struct engine *engine = runner_open(MODEL, true, NULL, 2);
    const cJSON *prompt;
    int tokens = 0, rows = 0;
    double worst = 0;
    cJSON_ArrayForEach(prompt, cJSON_GetObjectItem(golden, "prompts")) {
        check_prompt(engine, prompt, 37, &tokens, &rows, &worst);
    }
    printf("oracle mode: %d greedy tokens equal, %d rows of logits within %.2g\n", tokens, rows,
           worst);
    ck_assert_int_ge(tokens, 14 * 64);
    ck_assert_double_lt(worst, 2e-3);
    engine_close(engine);
}
END_TEST

/* KL(p || q) of two rows of logits. */
static double divergence(const float *p, const float *q, int V) {
    double lp = runner_logsumexp(p, V), lq = runner_logsumexp(q, V), sum = 0;
    for (int i = 0; i < V; i++) {
        double a = (double)p[i] - lp, b = (double)q[i] - lq;
        sum += exp(a) * (a - b);
    }
    return sum;
}

struct closeness {
    /* sum of KL; the largest oracle gap of positions with different best tokens */
    double kl, worst_gap;
    int rows, differing;
};

static void compare_row(const float *p, const float *q, int V, struct closeness *c) {
    c->kl += divergence(p, q, V);
    c->rows++;
    int best = runner_argmax(p, V), other = runner_argmax(q, V);
    if (best == other) return;
    c->differing++;
    c->worst_gap = fmax(c->worst_gap, (double)(p[best] - p[other]));
}

/* The types of the KV cache except float32, and how close each has to be. */
static const struct mode {
    enum kv_dtype kv_dtype;
    double most_kl;
} modes[] = {{KV_DTYPE_INT16, 3e-3}, {KV_DTYPE_Q8_0, 3e-3}, {KV_DTYPE_FLOAT16, 3e-3}};
enum { N_MODES = sizeof modes / sizeof *modes };

static void compare_prompt(struct engine *oracle, struct engine *const *fast, const cJSON *prompt,
                           struct closeness *c) {
    int32_t ids[MOST];
    int V = engine_model(oracle)->V;
    int n = append_ids(cJSON_GetObjectItem(prompt, "prompt"), ids, 0);
    n = append_ids(cJSON_GetObjectItem(prompt, "greedy"), ids, n);
    for (int at = 0; at < n - 1; at += 64) {
        int size = n - 1 - at < 64 ? n - 1 - at : 64;
        const float *p = runner_logits(oracle, ids, at, size);
        for (int m = 0; m < N_MODES; m++) {
            const float *q = runner_logits(fast[m], ids, at, size);
            for (int i = 0; i < size; i++)
                compare_row(p + (size_t)i * (size_t)V, q + (size_t)i * (size_t)V, V, &c[m]);
        }
    }
}

START_TEST(fast_modes_are_close_to_the_oracle) {
    struct engine *oracle = runner_open(MODEL, true, NULL, 2), *fast[N_MODES];
    struct closeness c[N_MODES] = {0};
    const cJSON *prompt;
    for (int m = 0; m < N_MODES; m++)
        fast[m] = runner_open_kv(MODEL, false, NULL, 2, modes[m].kv_dtype);
    cJSON_ArrayForEach(prompt, cJSON_GetObjectItem(golden, "prompts")) {
        compare_prompt(oracle, fast, prompt, c);
    }
    for (int m = 0; m < N_MODES; m++) {
        printf("KV cache of %s: mean KL %.2g over %d rows; best token differs in %d, at gaps of up "
               "to %.2f\n",
               value_name(kv_dtype_names, (int)modes[m].kv_dtype), c[m].kl / c[m].rows, c[m].rows,
               c[m].differing, c[m].worst_gap);
        ck_assert_double_lt(c[m].kl / c[m].rows, modes[m].most_kl);
        ck_assert_double_lt(c[m].worst_gap, 1.0);
        ck_assert_double_lt((double)c[m].differing / c[m].rows, 0.05);
        engine_close(fast[m]);
    }
    engine_close(oracle);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_golden");
    TCase *t = tcase_create("golden");
    tcase_add_checked_fixture(t, load_golden, free_golden);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, oracle_mode_equals_the_reference);
    tcase_add_test(t, fast_modes_are_close_to_the_oracle);
    suite_add_tcase(suite, t);
    return suite_main(suite);
}
