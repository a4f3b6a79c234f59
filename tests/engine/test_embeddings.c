/* Hidden vectors of tiny models equal those of transformers in float32
 * (tests/vectors/make_embeddings.py, make_encoders.py), on all CPU paths; and the pooling that a
 * model's files ask for. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { MAX_IDS = 320, MAX_K = 64, N_KINDS = 3, LINE = 16384 };

#define VECTORS "tests/vectors/"

/* ---- the vectors of a prompt ---------------------------------------------------------------- */

struct wanted {
    char model[256];
    int n, K;
    int32_t ids[MAX_IDS];
    double sum[N_KINDS][MAX_K]; /* of the first row, the last one, all */
};

static int read_numbers(const char *line, double *out, int most) {
    int n = 0;
    char *end;
    for (const char *at = line; n < most; at = end) {
        double number = strtod(at, &end);
        if (end == at) break;
        out[n++] = number;
    }
    return n;
}

static bool read_wanted(FILE *file, struct wanted *wanted) {
    static char line[LINE];
    double ids[MAX_IDS];
    if (!fgets(line, sizeof line, file)) return false;
    line[strcspn(line, "\n")] = 0;
    snprintf(wanted->model, sizeof wanted->model, VECTORS "%.200s", line);
    ck_assert(fgets(line, sizeof line, file));
    wanted->n = read_numbers(line, ids, MAX_IDS);
    for (int i = 0; i < wanted->n; i++) wanted->ids[i] = (int32_t)ids[i];
    for (int kind = 0; kind < N_KINDS; kind++) {
        ck_assert(fgets(line, sizeof line, file));
        wanted->K = read_numbers(line, wanted->sum[kind], MAX_K);
        ck_assert_int_gt(wanted->K, 0);
    }
    return true;
}

/* ---- running -------------------------------------------------------------------------------- */

static struct engine *open_model(const char *model, const char *path) {
    struct engine *engine = NULL;
    struct err err = {0};
    const struct engine_config config = {.model = model,
                                         .dtype = COMPUTE_FLOAT32,
                                         .threads = 2,
                                         .cpu_path = path,
                                         .max_num_seqs = MAX_IDS,
                                         .max_num_batched_tokens = MAX_IDS,
                                         .block_size = 16,
                                         .kv_memory = 8 << 20};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s: %s", model, err.message);
    return engine;
}

/* Adds the hidden vectors of all rows of a prompt to the sums. */
static void run_prompt(struct engine *engine, const struct wanted *wanted,
                       double sum[N_KINDS][MAX_K]) {
    const int n = wanted->n;
    runner_hidden(engine, wanted->ids, n);
    ck_assert_int_eq(engine_hidden_size(engine), wanted->K);
    for (int i = 0; i < n; i++) {
        const float *hidden = engine_hidden(engine, i);
        for (int k = 0; k < wanted->K; k++) {
            if (i == 0) sum[0][k] += (double)hidden[k];
            if (i == n - 1) sum[1][k] += (double)hidden[k];
            sum[2][k] += (double)hidden[k];
        }
    }
}

static void compare(const struct wanted *wanted, const char *path, int kind, const double *sum) {
    double product = 0, ours = 0, theirs = 0, most = 0;
    for (int k = 0; k < wanted->K; k++) {
        const double right = wanted->sum[kind][k];
        product += sum[k] * right;
        ours += sum[k] * sum[k];
        theirs += right * right;
        most = fmax(most, fabs(sum[k] - right));
    }
    const double rows = kind == 2 ? wanted->n : 1;
    ck_assert_msg(product / sqrt(ours * theirs) > 0.999999 && most / rows < 1e-5,
                  "%s on %s, sum %d: cosine %.9f, largest difference %g", wanted->model, path, kind,
                  product / sqrt(ours * theirs), most);
}

/* Compares the vectors of a file, and returns their number. */
static int compare_all(const char *path_of_vectors) {
    FILE *file = fopen(path_of_vectors, "r");
    static struct wanted wanted;
    int n = 0;
    ck_assert(file);
    for (; read_wanted(file, &wanted); n++) {
        for (const char *const *path = backend_cpu_paths(); *path; path++) {
            double sum[N_KINDS][MAX_K] = {{0}};
            struct engine *engine = open_model(wanted.model, *path);
            run_prompt(engine, &wanted, sum);
            for (int kind = 0; kind < N_KINDS; kind++) compare(&wanted, *path, kind, sum[kind]);
            engine_close(engine);
        }
    }
    fclose(file);
    return n;
}

START_TEST(hidden_vectors_are_those_of_transformers) {
    ck_assert_int_eq(compare_all(VECTORS "embeddings.txt"), 14);
}
END_TEST

START_TEST(hidden_vectors_of_encoders_are_those_of_transformers) {
    ck_assert_int_eq(compare_all(VECTORS "encoders.txt"), 76);
}
END_TEST

/* ---- pooling -------------------------------------------------------------------------------- */

START_TEST(files_say_how_vectors_are_pooled) {
    struct engine *engine = open_model(VECTORS "embedders/qwen3", NULL);
    const struct pooling *pooling = engine_pooling(engine);
    ck_assert_int_eq(pooling->rows, HIDDEN_ALL);
    ck_assert(pooling->normalises && !pooling->unserved[0]);
    engine_close(engine);
    engine = open_model(VECTORS "folders/qwen3", NULL);
    ck_assert_int_eq(engine_pooling(engine)->rows, HIDDEN_LAST);
    ck_assert(engine_pooling(engine)->normalises);
    engine_close(engine);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/embeddings");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_test(all, hidden_vectors_are_those_of_transformers);
    tcase_add_test(all, hidden_vectors_of_encoders_are_those_of_transformers);
    tcase_add_test(all, files_say_how_vectors_are_pooled);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
