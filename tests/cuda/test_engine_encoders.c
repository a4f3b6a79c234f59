/* Encoders on the CUDA backend. In float32 their hidden vectors are near the CPU's. In all types
 * the bits of an input's vectors are the same alone, beside other inputs, in any order, in steps of
 * few rows and of many, and with attention by wgmma. ctest label: slow */
#include <check.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "support/encoder_run.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

#define ENCODERS "tests/vectors/encoders/"

/* Learned positions, rotary ones and slopes; windows; norms of the stream and before branches;
 * MLPs with and without a gate. */
static const char *const models[] = {ENCODERS "bert",       ENCODERS "xlm_roberta.gguf",
                                     ENCODERS "nomic_bert", ENCODERS "modernbert",
                                     ENCODERS "gemma3",     ENCODERS "jina",
                                     ENCODERS "jina_code"};
enum { N_MODELS = sizeof models / sizeof *models };

/* If each access is watched, fewer inputs run: the kernels' own suites test the shapes. */
static bool watched;

static struct encoder_run run;
static double alone[ENCODER_INPUTS][ENCODER_MAX_K];

/* ---- the CPU's vectors ---------------------------------------------------------------------- */

static struct engine *open_float32(const char *model, enum device device, bool warms_up) {
    const struct engine_config config = {.model = model,
                                         .threads = 1,
                                         .device = device,
                                         .dtype = COMPUTE_FLOAT32,
                                         .cpu_path = device == DEVICE_CPU ? "plain" : NULL,
                                         .max_num_seqs = 4,
                                         .max_num_batched_tokens = ENCODER_CONTEXT,
                                         .block_size = 16,
                                         .kv_memory = 1 << 20,
                                         .warm_up = device == DEVICE_CUDA && warms_up};
    struct engine *engine = NULL;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s: %s", model, err.message);
    return engine;
}

START_TEST(float32_agrees_with_the_cpu) {
    static const int lengths[] = {1, 7, 40};
    struct engine *cpu = open_float32(models[_i], DEVICE_CPU, false);
    struct engine *cuda = open_float32(models[_i], DEVICE_CUDA, _i == 0 && !watched);
    const int K = engine_hidden_size(cpu);
    encoder_run_draw(&run, ENCODER_CONTEXT);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        runner_hidden(cpu, run.ids[7], lengths[l]);
        runner_hidden(cuda, run.ids[7], lengths[l]);
        for (int i = 0; i < lengths[l]; i++)
            for (int k = 0; k < K; k++) {
                const float want = engine_hidden(cpu, i)[k], got = engine_hidden(cuda, i)[k];
                ck_assert_msg(fabsf(got - want) < 1e-4f, "%s: %d rows, row %d: %g, not %g",
                              models[_i], lengths[l], i, (double)got, (double)want);
            }
    }
    engine_close(cpu), engine_close(cuda);
}
END_TEST

/* ---- the same bits -------------------------------------------------------------------------- */

/* Runs some inputs alone and by mma.sync, then together in two orders, and in steps of other sizes.
 */
static void check_same_bits(const struct engine_config *config) {
    enum { N = 8 };
    static const int limits[][2] = {{ENCODER_CONTEXT, 2}, {700, 16}}; /* rows, sequences */
    struct engine_config ours = *config;
    int order[2][N];
    const int n = watched ? N / 2 : N;
    encoder_run_draw(&run, watched ? 80 : 140);
    if (watched) run.inputs[1] = run.inputs[7], run.inputs[1].hidden_sum = run.sums[1];
    ours.wgmma = false;
    ours.max_num_seqs = 1;
    ours.max_num_batched_tokens = ENCODER_CONTEXT;
    encoder_run_open(&run, &ours);
    for (int i = 0; i < n; i++) {
        order[0][i] = i;
        order[1][i] = n - 1 - i;
        encoder_run_together(&run, &i, 1);
    }
    memcpy(alone, run.sums, sizeof alone);
    encoder_run_close(&run);
    ours.wgmma = config->wgmma;
    for (int l = watched ? 1 : 0; l < 2; l++) {
        ours.max_num_batched_tokens = limits[l][0];
        ours.max_num_seqs = limits[l][1];
        encoder_run_open(&run, &ours);
        encoder_run_together(&run, order[l], n);
        for (int i = 0; i < n; i++)
            ck_assert_msg(memcmp(run.sums[i], alone[i], sizeof alone[i]) == 0,
                          "%s, type %d, steps of %d rows: input %d of %d tokens differs",
                          ours.model, ours.dtype, limits[l][0], i, run.inputs[i].n_prompt);
        encoder_run_close(&run);
    }
}

START_TEST(bits_do_not_depend_on_other_inputs) {
    static const enum compute_dtype types[N_MODELS] = {
        COMPUTE_BFLOAT16, COMPUTE_FLOAT16, COMPUTE_BFLOAT16, COMPUTE_FLOAT16,
        COMPUTE_BFLOAT16, COMPUTE_FLOAT32, COMPUTE_BFLOAT16};
    const struct engine_config config = {
        .model = models[_i], .threads = 1, .device = DEVICE_CUDA, .dtype = types[_i]};
    check_same_bits(&config);
}
END_TEST

/* Writes the config.json of a model with two heads of 64 numbers. The caller deletes the file and
 * its folder. */
static void write_wide(const char *model, char folder[32], char path[64]) {
    char from[64], text[8192];
    snprintf(from, sizeof from, ENCODERS "%s/config.json", model);
    FILE *file = fopen(from, "r");
    ck_assert(file);
    const size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    cJSON *config = cJSON_Parse(text);
    ck_assert(config);
    const struct {
        const char *key;
        int value;
    } sizes[] = {{"hidden_size", 128}, {"num_attention_heads", 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        cJSON_SetNumberValue(cJSON_GetObjectItem(config, sizes[i].key), sizes[i].value);
    snprintf(folder, 32, "/tmp/penstock-wide-XXXXXX");
    ck_assert(mkdtemp(folder));
    snprintf(path, 64, "%s/config.json", folder);
    file = fopen(path, "w");
    char *printed = cJSON_PrintUnformatted(config);
    ck_assert(file && fputs(printed, file) >= 0 && fclose(file) == 0);
    free(printed);
    cJSON_Delete(config);
}

/* On a device wgmma may add in another order than mma.sync (test_engine.c). */
#if __has_include(<emu_memory.h>)
enum { IS_EMULATED = true };
#else
enum { IS_EMULATED = false };
#endif

/* Products of steps of more than 16 rows, and attention from 65 rows on, use wgmma. */
START_TEST(wgmma_changes_no_bit) {
    static const char *const wide[] = {"modernbert", "jina"};
    char folder[32], path[64];
    write_wide(wide[_i], folder, path);
    const struct engine_config config = {.model = path,
                                         .dummy = true,
                                         .threads = 1,
                                         .device = DEVICE_CUDA,
                                         .dtype = COMPUTE_BFLOAT16,
                                         .wgmma = IS_EMULATED};
    check_same_bits(&config);
    unlink(path), rmdir(folder);
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_encoders");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, float32_agrees_with_the_cpu, 0, N_MODELS);
    tcase_add_loop_test(core, bits_do_not_depend_on_other_inputs, 0, N_MODELS);
    tcase_add_loop_test(core, wgmma_changes_no_bit, 0, 2);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
