/* Files that change while they are mapped. A truncated file ends the process with a sentence that
 * names the file. A file that is written to makes the start fail. A replaced file keeps its old
 * contents. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/convert/part_file.h"
#include "engine/internal.h"
#include "support/folder_copy.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

#define SHARD "model-00002-of-00003.safetensors"
enum { PAGES = 3, PAGE = 4096, THREADS = 8 };
static const char *folder;  /* a copy of a model's folder; the file `path` is next to it */
static char path[512];      /* a file of PAGES pages of 'x' */
static char said[16 << 10]; /* the last child's standard error */
static volatile uint8_t sink;

/* ---- helpers -------------------------------------------------------------------------------- */

static void write_path(char letter, const char *mode) {
    FILE *file = fopen(path, mode);
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < PAGES * PAGE; i++) fputc(letter, file);
    ck_assert_int_eq(fclose(file), 0);
}

static void begin(void) {
    folder = folder_copy("tests/vectors/folders/llama");
    snprintf(path, sizeof path, "%s/file", folder);
    write_path('x', "wb");
}

static void end(void) {
    folder_copy_remove();
}

static void read_bytes(const void *data, size_t size) {
    const uint8_t *bytes = data;
    uint8_t sum = 0;
    for (size_t i = 0; i < size; i++) sum ^= bytes[i];
    sink = sum;
}

/* Runs `act` in a child. Returns its exit status and fills `said`. */
static int child(void (*act)(void)) {
    int ends[2], how;
    size_t n = 0;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]), close(ends[1]);
        act();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t more; (more = read(ends[0], said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)more;
    said[n] = 0;
    close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &how, 0), pid);
    return how;
}

/* Fails unless the child ended because of `file`, with one sentence. */
static void expect_lost(int how, const char *file) {
    const char *sentence = strstr(said, "cannot be read any more; the file was cut short");
    ck_assert_msg(WIFEXITED(how) && WEXITSTATUS(how) == 1, "%s: ended by %#x: %s", file, how, said);
    ck_assert_msg(sentence && strstr(said, file), "%s: %s", file, said);
    ck_assert_ptr_null(strstr(sentence + 1, "cannot be read any more"));
}

/* ---- truncation of all kinds of mapped files ------------------------------------------------- */

static struct mapping mapping;

static void lose_file(void) {
    if (mapping_open(&mapping, path, NULL)) _exit(9);
    read_bytes(mapping.data, mapping.size);
    if (truncate(path, PAGE)) _exit(9);
    read_bytes(mapping.data, PAGE); /* the remaining bytes can be read */
    read_bytes(mapping.data, mapping.size);
}

static void *read_all(void *arg) {
    (void)arg;
    read_bytes(mapping.data, mapping.size);
    return NULL;
}

static void lose_file_on_threads(void) {
    pthread_t thread[THREADS];
    if (mapping_open(&mapping, path, NULL) || truncate(path, 0)) _exit(9);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, read_all, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
}

/* Another file had the place in the list before, and perhaps the address. */
static void lose_second_file(void) {
    if (mapping_open(&mapping, "tests/vectors/families/gpt2.gguf", NULL)) _exit(9);
    mapping_close(&mapping);
    lose_file();
}

static void lose_file_within_write(void) {
    struct part_file out;
    struct err err;
    char name[600];
    snprintf(name, sizeof name, "%s.out", path);
    if (mapping_open(&mapping, path, NULL) || part_file_open(&out, name, &err)) _exit(9);
    if (truncate(path, PAGE)) _exit(9);
    part_file_write(&out, mapping.data, mapping.size, &err);
}

static void lose_weights(const char *file) {
    struct model_file model;
    struct err err;
    bool is_folder = strstr(file, ".safetensors") != NULL;
    if (model_file_open(&model, is_folder ? folder : file, MODEL_WHOLE, &err)) _exit(9);
    if (truncate(file, 0)) _exit(9);
    const struct weights *weights = model_file_weights(&model);
    for (int i = 0; i < weights->n; i++)
        read_bytes(weights->tensor[i].data, weights->tensor[i].bytes);
}

static void copy_gguf(void) {
    FILE *from = fopen("tests/vectors/families/qwen2.gguf", "rb"), *to = fopen(path, "wb");
    for (int c; (c = fgetc(from)) != EOF;) fputc(c, to);
    fclose(from), fclose(to);
}

static void lose_gguf_weights(void) {
    copy_gguf();
    lose_weights(path);
}

static void lose_gguf_vocabulary(void) {
    struct model_file model;
    struct tokenizer_spec spec = {0};
    struct err err;
    copy_gguf();
    if (model_file_open(&model, path, MODEL_TEXT, &err) || truncate(path, 0)) _exit(9);
    tokenizer_spec_read(&spec, &model, &err);
}

static void lose_shard(void) {
    snprintf(path, sizeof path, "%s/" SHARD, folder);
    lose_weights(path);
}

static struct engine_config config_of(const char *model) {
    return (struct engine_config){.model = model,
                                  .threads = 2,
                                  .max_num_seqs = 64,
                                  .max_num_batched_tokens = 64,
                                  .block_size = 16,
                                  .kv_memory = 16 << 20};
}

/* Truncates the only file in the folder of the cache. */
static void cut_cache(const char *cache) {
    DIR *files = opendir(cache);
    char name[1024];
    for (const struct dirent *entry; (entry = readdir(files));)
        if (strstr(entry->d_name, ".weights")) {
            snprintf(name, sizeof name, "%s/%s", cache, entry->d_name);
            if (truncate(name, 0)) _exit(9);
        }
    closedir(files);
}

/* Truncation while it serves. */
static void lose_weight_cache(void) {
    static const int32_t prompt[] = {5, 17, 2};
    struct engine_config config = config_of("tests/vectors/families/qwen2.gguf");
    struct engine *engine;
    struct err err;
    config.weight_cache = folder;
    for (int i = 0; i < 2; i++) {
        if (engine_open(&engine, &config, &err)) _exit(9);
        if (i == 0) engine_close(engine);
    }
    runner_logits(engine, prompt, 0, 3);
    cut_cache(folder);
    runner_logits(engine, prompt, 0, 3);
}

static void cut_path(void *arg, const char *what, double part) {
    (void)arg, (void)what, (void)part;
    if (truncate(path, 0)) _exit(9);
}

static void lose_source(void) {
    char out[600];
    struct err err;
    copy_gguf();
    snprintf(out, sizeof out, "%s.out", path);
    struct quantise_job job = {
        .in = path, .out = out, .type = QUANTIZATION_Q8_0, .progress = cut_path, .threads = 2};
    engine_quantise(&job, &err);
}

static const struct {
    void (*act)(void);
    const char *file; /* a part of its name */
} losses[] = {
    {lose_file, "/file"},         {lose_file_on_threads, "/file"},
    {lose_second_file, "/file"},  {lose_file_within_write, "/file"},
    {lose_gguf_weights, "/file"}, {lose_gguf_vocabulary, "/file"},
    {lose_shard, "/" SHARD},      {lose_weight_cache, ".weights"},
    {lose_source, "/file"},
};

START_TEST(a_file_cut_short_ends_the_process_with_its_name) {
    begin();
    expect_lost(child(losses[_i].act), losses[_i].file);
    end();
}
END_TEST

static void be_sent_the_signal(void) {
    if (mapping_open(&mapping, path, NULL)) _exit(9);
    kill(getpid(), SIGBUS);
}

START_TEST(the_signal_of_another_cause_acts_as_without_files) {
    begin();
    int how = child(be_sent_the_signal);
    ck_assert_msg(how != 0, "the signal was ignored");
    ck_assert_ptr_null(strstr(said, "cut short"));
    end();
}
END_TEST

/* ---- written to, and replaced --------------------------------------------------------------- */

static enum status check_after(void (*change)(void), struct err *err) {
    begin();
    ck_assert_int_eq(mapping_open(&mapping, path, err), STATUS_OK);
    ck_assert_int_eq(mapping_check(&mapping, err), STATUS_OK);
    change();
    enum status status = mapping_check(&mapping, err);
    ck_assert_int_eq(mapping.data[0], 'x');
    mapping_close(&mapping);
    end();
    return status;
}

static void grow(void) {
    write_path('x', "ab");
}

/* Changes the time and keeps the size. */
static void touch(void) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 12345}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void replace(void) {
    ck_assert_int_eq(unlink(path), 0);
    write_path('y', "wb");
}

static void move_away(void) {
    char other[600];
    snprintf(other, sizeof other, "%s.old", path);
    ck_assert_int_eq(rename(path, other), 0);
}

START_TEST(a_file_that_was_written_to_is_refused) {
    void (*const changes[])(void) = {grow, touch};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct err err = {0};
        ck_assert_int_eq(check_after(changes[i], &err), STATUS_BAD_FILE);
        ck_assert_msg(strncmp(err.message, path, strlen(path)) == 0, "%s", err.message);
        ck_assert_ptr_nonnull(strstr(err.message, "written to while it was read"));
    }
}
END_TEST

START_TEST(a_file_that_was_replaced_is_as_it_was) {
    void (*const changes[])(void) = {replace, move_away};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct err err = {0};
        ck_assert_msg(check_after(changes[i], &err) == STATUS_OK, "%s", err.message);
    }
}
END_TEST

/* ---- models --------------------------------------------------------------------------------- */

static void grow_while_loading(void *arg, const char *what, double part) {
    (void)what;
    if (part < 1) return;
    FILE *file = fopen(arg, "ab");
    ck_assert_ptr_nonnull(file);
    fputc(0, file);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(a_model_that_is_written_to_while_it_loads_is_refused) {
    static const char *const names[] = {"file", SHARD};
    for (size_t i = 0; i < 2; i++) {
        begin();
        copy_gguf();
        char written[600];
        struct engine *engine = NULL;
        struct err err = {0};
        snprintf(written, sizeof written, "%s/%s", folder, names[i]);
        struct engine_config config = config_of(i == 0 ? path : folder);
        config.progress = grow_while_loading, config.progress_arg = written;
        ck_assert_int_eq(engine_open(&engine, &config, &err), STATUS_BAD_FILE);
        ck_assert_ptr_null(engine);
        ck_assert_msg(strncmp(err.message, written, strlen(written)) == 0, "%s", err.message);
        end();
    }
}
END_TEST

/* Another model replaces the file, as `mv` does. */
static void replace_while_loading(void *arg, const char *what, double part) {
    (void)arg, (void)what;
    if (part < 1) return;
    ck_assert_int_eq(unlink(path), 0);
    copy_gguf();
}

static int count_kept(void) {
    int n = 0;
    DIR *files = opendir(folder);
    for (const struct dirent *entry; (entry = readdir(files));)
        n += strstr(entry->d_name, ".weights") != NULL;
    closedir(files);
    return n;
}

/* Otherwise its weights would be stored under the stamp of the new file. */
START_TEST(a_model_that_is_replaced_while_it_loads_is_served_but_not_kept) {
    begin();
    copy_gguf();
    struct engine *engine;
    struct err err = {0};
    struct engine_config config = config_of(path);
    config.weight_cache = folder;
    config.progress = replace_while_loading;
    ck_assert_msg(!engine_open(&engine, &config, &err), "%s", err.message);
    engine_close(engine);
    ck_assert_int_eq(count_kept(), 0);
    config.progress = NULL;
    ck_assert_msg(!engine_open(&engine, &config, &err), "%s", err.message);
    engine_close(engine);
    ck_assert_int_eq(count_kept(), 1);
    end();
}
END_TEST

/* As if --weight-cache named the model's folder. */
START_TEST(files_that_are_no_part_of_a_folder_do_not_change_its_stamp) {
    begin();
    uint64_t stamp = model_file_stamp(folder);
    write_path('y', "ab");
    folder_copy_write("kept.weights", "w", 1);
    ck_assert(model_file_stamp(folder) == stamp);
    folder_copy_write("generation_config.json", "{}", 2);
    ck_assert(model_file_stamp(folder) != stamp);
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/mapping");
    TCase *all = tcase_create("all");
    log_setup(LOG_ERROR, LOG_TEXT);
    tcase_add_loop_test(all, a_file_cut_short_ends_the_process_with_its_name, 0,
                        sizeof losses / sizeof *losses);
    tcase_add_test(all, the_signal_of_another_cause_acts_as_without_files);
    tcase_add_test(all, a_file_that_was_written_to_is_refused);
    tcase_add_test(all, a_file_that_was_replaced_is_as_it_was);
    tcase_add_test(all, a_model_that_is_written_to_while_it_loads_is_refused);
    tcase_add_test(all, a_model_that_is_replaced_while_it_loads_is_served_but_not_kept);
    tcase_add_test(all, files_that_are_no_part_of_a_folder_do_not_change_its_stamp);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
