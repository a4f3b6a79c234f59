/* --weight-cache: the matrices that a start maps equal those that it would make, for all kinds. A
 * damaged or unsuitable file is not used. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/internal.h"
#include "support/folder_copy.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { PROMPT = 9 };
static const int32_t prompt[PROMPT] = {5, 17, 2, 90, 41, 7, 7, 120, 33};
static int64_t weights; /* their memory in the last start */
static char cache[] = "/tmp/penstock_weights_XXXXXX", path[512];

/* ---- helpers -------------------------------------------------------------------------------- */

/* Opens a model with the cache. Sets *logits to the logits of the prompt, which the caller frees.
 * Returns whether the weights were mapped from the cache. */
static bool answer(struct engine_config config, float **logits) {
    struct engine *engine;
    struct err err = {0};
    config.weight_cache = cache;
    config.threads = 2;
    config.max_num_seqs = config.max_num_batched_tokens = 64;
    config.block_size = 16;
    config.kv_memory = 16 << 20;
    enum status status = engine_open(&engine, &config, &err);
    ck_assert_msg(!status, "%s: %s", config.model, err.message);
    size_t bytes = (size_t)engine_model(engine)->V * PROMPT * sizeof(float);
    *logits = mem_alloc(bytes);
    memcpy(*logits, runner_logits(engine, prompt, 0, PROMPT), bytes);
    bool mapped = engine->model.kept.data != NULL;
    weights = engine->memory.weights;
    engine_close(engine);
    return mapped;
}

/* Returns the number of files in the cache. `path` becomes one of them. */
static int count_files(void) {
    DIR *folder = opendir(cache);
    int n = 0;
    ck_assert_ptr_nonnull(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", cache, entry->d_name);
            n++;
        }
    closedir(folder);
    return n;
}

static void remove_files(void) {
    while (count_files() > 0) ck_assert_int_eq(unlink(path), 0);
}

/* Two starts with the same settings: the second one maps the first one's matrices and has the same
 * bits. The cache has `files` files afterwards. */
static void start_twice(struct engine_config config, int files) {
    float *first, *second;
    ck_assert(!answer(config, &first));
    int64_t loaded = weights;
    ck_assert_int_eq(count_files(), files);
    ck_assert_msg(answer(config, &second), "%s was loaded again", config.model);
    ck_assert_int_eq(count_files(), files);
    ck_assert_int_eq(loaded, weights);
    ck_assert_mem_eq(first, second, 299 * PROMPT * sizeof(float));
    free(first);
    free(second);
}

/* ---- every kind of matrix ------------------------------------------------------------------- */

static const struct engine_config kinds[] = {
    {.model = "tests/vectors/families/qwen2.gguf"},
    {.model = "tests/vectors/families/qwen2.gguf", .dtype = COMPUTE_FLOAT32},
    {.model = "tests/vectors/families/qwen2.gguf", .quantization = QUANTIZATION_Q8_0},
    {.model = "tests/vectors/families/gpt2.gguf"}, /* fused, and stored by columns */
    {.model = "tests/vectors/folders/gpt2"},
    {.model = "tests/vectors/folders/opt_350m"},     /* projections of the embedding */
    {.model = "tests/vectors/folders/stablelm_12b"}, /* gains of heads */
    {.model = "tests/vectors/folders/gptq"},
    {.model = "tests/vectors/folders/bnb-nf4"},
    {.model = "tests/vectors/folders/qwen2moe"}, /* experts, and one that is shared */
    {.model = "tests/vectors/folders/gpt_oss"},
    /* inputs of layers, layers that read others' keys */
    {.model = "tests/vectors/families/gemma4.gguf"},
    {.model = "tests/vectors/folders/gemma4_large"}, /* heads of two sizes, no values */
};

static void remove_folder(void) {
    remove_files();
    rmdir(cache);
}

START_TEST(a_second_start_has_the_same_bits) {
    remove_files();
    start_twice(kinds[_i], 1);
}
END_TEST

START_TEST(each_rank_has_a_file) {
    remove_files();
    start_twice((struct engine_config){.model = kinds[0].model, .ranks = 2}, 2);
}
END_TEST

START_TEST(each_setting_has_a_file) {
    remove_files();
    for (int i = 0; i < 3; i++) start_twice(kinds[i], i + 1);
}
END_TEST

/* ---- files that changed --------------------------------------------------------------------- */

START_TEST(another_model_of_the_same_name_is_loaded) {
    float *logits;
    remove_files();
    struct engine_config config = {.model = folder_copy("tests/vectors/folders/llama")};
    start_twice(config, 1);
    struct buf text = {0};
    folder_copy_read(&text, "config.json");
    folder_copy_write("config.json", text.data, text.length);
    ck_assert(!answer(config, &logits));
    ck_assert_int_eq(count_files(), 2);
    free(logits);
    buf_free(&text);
    folder_copy_remove();
}
END_TEST

/* The place of damage in a file of the cache: an offset from its start, or if negative from its
 * end. */
static const struct damage {
    const char *what;
    long at;
    bool cuts;
} damages[] = {
    {"magic", 0, false},
    {"key", 15, false},
    {"size", 17, false},
    {"matrices", 25, false},
    {"pieces", 33, false},
    {"sum of the index", 41, false},
    {"an entry", 68, false},
    {"the first weights", 4096 + 100, false},
    {"the last weights", -1, false},
    {"cut by one", -1, true},
    {"cut within the index", 100, true},
    {"cut within the header", 12, true},
};

static void damage(const struct damage *d) {
    struct stat info;
    ck_assert_int_eq(count_files(), 1);
    ck_assert_int_eq(stat(path, &info), 0);
    off_t at = d->at < 0 ? info.st_size + d->at : d->at;
    if (d->cuts) {
        ck_assert_int_eq(truncate(path, at), 0);
        return;
    }
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    fseek(file, (long)at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, (long)at, SEEK_SET);
    fputc(byte ^ 0x10, file);
    fclose(file);
}

START_TEST(a_damaged_file_is_written_again) {
    float *good, *again;
    remove_files();
    ck_assert(!answer(kinds[0], &good));
    damage(&damages[_i]);
    ck_assert_msg(!answer(kinds[0], &again), "%s", damages[_i].what);
    ck_assert_mem_eq(good, again, 299 * PROMPT * sizeof(float));
    free(again);
    ck_assert(answer(kinds[0], &again));
    ck_assert_mem_eq(good, again, 299 * PROMPT * sizeof(float));
    free(good);
    free(again);
}
END_TEST

START_TEST(a_file_of_other_settings_is_not_taken) {
    char first[sizeof path];
    float *logits;
    remove_files();
    ck_assert(!answer(kinds[0], &logits));
    free(logits);
    ck_assert_int_eq(count_files(), 1);
    memcpy(first, path, sizeof path);
    ck_assert_int_eq(rename(first, "/tmp/penstock_weights_first"), 0);
    ck_assert(!answer(kinds[2], &logits));
    free(logits);
    ck_assert_int_eq(count_files(), 1);
    ck_assert_int_eq(rename("/tmp/penstock_weights_first", path), 0);
    ck_assert(!answer(kinds[2], &logits));
    free(logits);
}
END_TEST

START_TEST(a_folder_that_cannot_be_written_costs_only_the_file) {
    float *logits;
    remove_files();
    ck_assert_int_eq(rmdir(cache), 0);
    ck_assert(!answer(kinds[0], &logits));
    ck_assert_int_eq(mkdir(cache, 0700), 0);
    ck_assert_int_eq(count_files(), 0);
    free(logits);
}
END_TEST

START_TEST(random_weights_are_not_kept) {
    struct engine *engine;
    struct err err = {0};
    struct engine_config config = kinds[0];
    config.weight_cache = cache, config.dummy = true;
    config.max_num_seqs = config.max_num_batched_tokens = 64, config.block_size = 16;
    ck_assert_int_eq(engine_open(&engine, &config, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "weight-cache");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("weight_cache");
    TCase *tcase = tcase_create("core");
    log_setup(LOG_ERROR, LOG_TEXT);
    if (!mkdtemp(cache)) return 1;
    tcase_add_unchecked_fixture(tcase, NULL, remove_folder);
    tcase_add_loop_test(tcase, a_second_start_has_the_same_bits, 0, sizeof kinds / sizeof *kinds);
    tcase_add_test(tcase, each_rank_has_a_file);
    tcase_add_test(tcase, each_setting_has_a_file);
    tcase_add_test(tcase, another_model_of_the_same_name_is_loaded);
    tcase_add_loop_test(tcase, a_damaged_file_is_written_again, 0,
                        sizeof damages / sizeof *damages);
    tcase_add_test(tcase, a_file_of_other_settings_is_not_taken);
    tcase_add_test(tcase, a_folder_that_cannot_be_written_costs_only_the_file);
    tcase_add_test(tcase, random_weights_are_not_kept);
    suite_add_tcase(suite, tcase);
    return suite_main(suite);
}
