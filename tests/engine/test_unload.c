/* An engine that gives its memory back and loads again: the same logits, its own thread's work
 * only, and the reasons why a load fails. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/internal.h"
#include "support/adapter_file.h"
#include "support/folder_copy.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { PROMPT = 9, V = 299 };
static const int32_t prompt[PROMPT] = {5, 17, 2, 90, 41, 7, 7, 120, 33};

static const struct engine_config kinds[] = {
    {.model = "tests/vectors/families/qwen2.gguf"},
    {.model = "tests/vectors/families/gpt2.gguf", .dtype = COMPUTE_FLOAT32},
    {.model = "tests/vectors/folders/gptq"},
    {.model = "tests/vectors/folders/gpt_oss"},
    {.model = "tests/vectors/folders/gemma4_large", .warm_up = true},
    {.model = "tests/vectors/families/qwen2.gguf", .ranks = 2},
    {.model = "tests/vectors/folders/llama", .quantization = QUANTIZATION_Q8_0},
};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

static struct engine *open_kind(struct engine_config config) {
    struct engine *engine;
    struct err err = {0};
    config.threads = 2;
    config.max_num_seqs = config.max_num_batched_tokens = 64;
    config.block_size = 16;
    config.kv_memory = 16 << 20;
    ck_assert_msg(!engine_open(&engine, &config, &err), "%s: %s", config.model, err.message);
    return engine;
}

/* Copies the logits of the prompt. The caller frees them. */
static float *logits_of(struct engine *engine) {
    size_t bytes = (size_t)PROMPT * (size_t)engine_model(engine)->V * sizeof(float);
    float *logits = mem_alloc(bytes);
    memcpy(logits, runner_logits(engine, prompt, 0, PROMPT), bytes);
    return logits;
}

static double last_part;
static int n_progress;

static void on_progress(void *arg, const char *what, double part) {
    ck_assert_ptr_eq(arg, &last_part);
    ck_assert_str_eq(what, "weights");
    last_part = part;
    n_progress++;
}

static enum status load(struct engine *engine, const atomic_bool *gives_up, struct err *err) {
    const struct engine_load_watch watch = {on_progress, &last_part, gives_up};
    n_progress = 0;
    return engine_load(engine, &watch, err);
}

static void must_load(struct engine *engine) {
    struct err err = {0};
    ck_assert_msg(!load(engine, NULL, &err), "%s", err.message);
    ck_assert_int_gt(n_progress, 0);
    ck_assert(last_part == 1);
}

START_TEST(it_computes_the_same_bits_as_before) {
    struct engine *engine = open_kind(kinds[_i]);
    const struct engine_memory plan = *engine_memory(engine);
    float *first = logits_of(engine);
    for (int round = 0; round < 2; round++) {
        engine_unload(engine);
        ck_assert_int_eq(engine_threads(engine), kinds[_i].ranks == 2 ? 1 : 2);
        ck_assert(engine_on_host(engine));
        ck_assert_int_gt(tokenizer_size(engine_tokenizer(engine)), 0);
        must_load(engine);
        float *again = logits_of(engine);
        ck_assert_mem_eq(first, again, PROMPT * V * sizeof(float));
        ck_assert_mem_eq(&plan, engine_memory(engine), sizeof plan);
        mem_free(again);
    }
    mem_free(first);
    engine_close(engine);
}
END_TEST

START_TEST(an_unloaded_engine_can_be_closed) {
    struct engine *engine = open_kind(kinds[0]);
    engine_unload(engine);
    engine_close(engine);
}
END_TEST

/* Logits of one row with that adapter. */
static float *adapted(struct engine *engine, int number) {
    int32_t position[] = {0}, start[2] = {0, 1}, table[8] = {0}, adapter[] = {number}, none = 0;
    struct step step = {.M = 1,
                        .token = prompt,
                        .position = position,
                        .slot = position,
                        .adapter = adapter,
                        .S = 1,
                        .row_start = start,
                        .table = table,
                        .table_stride = 8,
                        .state = &none,
                        .R = 1,
                        .logit_row = &none};
    engine_submit(engine, &step);
    float *logits = mem_alloc(V * sizeof(float));
    memcpy(logits, engine_read_logits(engine), V * sizeof(float));
    return logits;
}

START_TEST(adapters_stay_and_can_be_loaded_meanwhile) {
    struct engine_config config = kinds[0];
    config.max_adapters = 2;
    config.max_adapter_rank = 8;
    struct engine *engine = open_kind(config);
    char *paths[2];
    int numbers[2];
    float *alone[2], *together[2];
    struct adapter_facts facts;
    struct err err;
    for (int i = 0; i < 2; i++) {
        const struct made_adapter made = {.rank = 4, .alpha = 8, .seed = (uint64_t)i + 1};
        paths[i] = adapter_file_temporary(&made, engine_model(engine));
    }
    for (int i = 0; i < 2; i++) {
        ck_assert(!engine_adapter_load(engine, paths[i], &numbers[i], &facts, &err));
        alone[i] = adapted(engine, numbers[i]);
    }
    engine_adapter_unload(engine, numbers[1]);
    engine_unload(engine);
    ck_assert_msg(!engine_adapter_load(engine, paths[1], &numbers[1], &facts, &err), "%s",
                  err.message);
    must_load(engine);
    for (int i = 0; i < 2; i++) {
        together[i] = adapted(engine, numbers[i]);
        ck_assert_mem_eq(alone[i], together[i], V * sizeof(float));
        mem_free(alone[i]);
        mem_free(together[i]);
        unlink(paths[i]);
        free(paths[i]);
    }
    engine_close(engine);
}
END_TEST

/* Refuses with the words, stays unloaded, and loads after `mend`. */
static void refuses(struct engine *engine, const atomic_bool *gives_up, const char *words) {
    struct err err = {0};
    ck_assert_int_eq(load(engine, gives_up, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(err.status, STATUS_UNAVAILABLE);
    ck_assert_msg(strstr(err.message, words), "%s", err.message);
    ck_assert_ptr_null(engine->backend);
}

START_TEST(a_changed_file_is_refused) {
    struct buf text = {0};
    struct engine_config config = {.model = folder_copy("tests/vectors/folders/llama")};
    struct engine *engine = open_kind(config);
    char away[512], here[512];
    snprintf(here, sizeof here, "%s", config.model);
    snprintf(away, sizeof away, "%s.away", config.model);
    engine_unload(engine);
    ck_assert_int_eq(rename(here, away), 0);
    refuses(engine, NULL, "The model cannot be loaded again: ");
    ck_assert_int_eq(rename(away, here), 0);
    must_load(engine);
    engine_unload(engine);
    folder_copy_read(&text, "config.json");
    folder_copy_write("config.json", text.data, text.length);
    refuses(engine, NULL, "was changed after the start: restart the server");
    engine_close(engine);
    buf_free(&text);
    folder_copy_remove();
}
END_TEST

START_TEST(a_load_can_be_given_up) {
    struct engine *engine = open_kind(kinds[0]);
    const atomic_bool gives_up = true;
    float *first = logits_of(engine);
    engine_unload(engine);
    refuses(engine, &gives_up, "given up");
    must_load(engine);
    float *again = logits_of(engine);
    ck_assert_mem_eq(first, again, PROMPT * V * sizeof(float));
    mem_free(first);
    mem_free(again);
    engine_close(engine);
}
END_TEST

START_TEST(a_full_machine_is_refused) {
    struct engine *engine = open_kind(kinds[0]);
    engine_unload(engine);
    engine->memory.kv_cache += (int64_t)1 << 50;
    refuses(engine, NULL, "MiB free");
    engine->memory.kv_cache -= (int64_t)1 << 50;
    must_load(engine);
    engine_close(engine);
}
END_TEST

/* With a weight cache the load maps its file. */
START_TEST(cached_weights_are_mapped_again) {
    char folder[] = "/tmp/penstock_unload_XXXXXX", command[64];
    struct engine_config config = kinds[0];
    config.weight_cache = mkdtemp(folder);
    ck_assert_ptr_nonnull(config.weight_cache);
    struct engine *engine = open_kind(config);
    float *first = logits_of(engine);
    ck_assert_ptr_null(engine->model.kept.data);
    engine_unload(engine);
    must_load(engine);
    ck_assert_ptr_nonnull(engine->model.kept.data);
    float *again = logits_of(engine);
    ck_assert_mem_eq(first, again, PROMPT * V * sizeof(float));
    mem_free(first);
    mem_free(again);
    engine_close(engine);
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_unload");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, it_computes_the_same_bits_as_before, 0, N_KINDS);
    tcase_add_test(core, an_unloaded_engine_can_be_closed);
    tcase_add_test(core, adapters_stay_and_can_be_loaded_meanwhile);
    tcase_add_test(core, a_changed_file_is_refused);
    tcase_add_test(core, a_load_can_be_given_up);
    tcase_add_test(core, a_full_machine_is_refused);
    tcase_add_test(core, cached_weights_are_mapped_again);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
