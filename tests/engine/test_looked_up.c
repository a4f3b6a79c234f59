/* Types whose codes are looked up, in a whole model, compared with a model of the floats that the
 * codes represent. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/sequence_runner.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { LENGTH = 12 };

static const enum dtype types[] = {
#define ENTRY(TYPE, ...) DTYPE_##TYPE,
    LOOKUP_TYPES(ENTRY)
#undef ENTRY
};
enum { N_LOOKED_UP = sizeof types / sizeof *types };

/* Returns the last row of logits of a prompt, [V]. The caller frees it. */
static float *logits_of(const struct tiny_model *tiny, bool float32, int threads) {
    int32_t ids[LENGTH];
    char *path = tiny_model_temporary(tiny);
    struct engine *engine = runner_open(path, float32, NULL, threads);
    int V = engine_model(engine)->V;
    for (int i = 0; i < LENGTH; i++) ids[i] = (i * 37 + 11) % V;
    float *row = mem_alloc((size_t)V * sizeof *row);
    memcpy(row, runner_logits(engine, ids, 0, LENGTH) + (size_t)(LENGTH - 1) * (size_t)V,
           (size_t)V * sizeof *row);
    engine_close(engine);
    unlink(path);
    free(path);
    return row;
}

static struct tiny_model model_of(enum dtype type, int experts) {
    struct tiny_model tiny = {.V = 300, .K = 256, .F = 256, .L = 2, .H = 4, .G = 2, .D = 64};
    tiny.E = experts, tiny.context_length = 2048, tiny.dtype = type, tiny.seed = 5;
    return tiny;
}

/* In float32 arithmetic the bits equal those of floats. With integer products the results are near
 * them, with the same bits for any number of threads. */
START_TEST(a_model_has_the_logits_of_its_floats) {
    struct tiny_model tiny = model_of(types[_i], _i % 4 == 1 ? 4 : 0), floats = tiny;
    size_t bytes = 300 * sizeof(float);
    floats.as_floats = true;
    float *right = logits_of(&floats, true, 1), *exact = logits_of(&tiny, true, 2);
    float *usual = logits_of(&tiny, false, 1), *threads = logits_of(&tiny, false, 3);
    double power = 0, error = 0;
    for (int i = 0; i < 300; i++) {
        power += (double)right[i] * (double)right[i];
        error += pow((double)right[i] - (double)usual[i], 2);
    }
    ck_assert_mem_eq(exact, right, bytes);
    ck_assert_mem_eq(usual, threads, bytes);
    ck_assert_msg(error < 3e-3 * power, "%s: an error of %g of the logits' power",
                  dtype_name(types[_i]), error / power);
    free(right), free(exact), free(usual), free(threads);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_looked_up");
    TCase *core = tcase_create("models");
    tcase_add_loop_test(core, a_model_has_the_logits_of_its_floats, 0, N_LOOKED_UP);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
