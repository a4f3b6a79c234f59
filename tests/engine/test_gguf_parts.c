/* Models in parts ("name-00001-of-00003.gguf"): the same answers as from the whole file, and the
 * messages about parts that do not match. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/files/model_file.h"
#include "support/gguf_writer.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { PARTS = 3, PROMPT = 5, V = 299 };
static const char whole[] = "tests/vectors/families/qwen2.gguf";
static const int32_t prompt[PROMPT] = {5, 17, 2, 90, 41};
static char folder[] = "/tmp/penstock_parts_XXXXXX", path[128];

/* ---- cutting -------------------------------------------------------------------------------- */

/* The way to cut a model. A test changes a field to make an error. */
struct cut {
    const char *name;                     /* of files, with two numbers; NULL: the right name */
    int left_out;                         /* part that is not written, from 1; 0: all are written */
    int doubled;                          /* part that also contains a tensor of the first part */
    int no[PARTS], count[PARTS], tensors; /* added to the keys */
};

static const char *part_path(const struct cut *cut, int i) {
    char name[40];
    snprintf(name, sizeof name, cut->name ? cut->name : "m-%05d-of-%05d.gguf", i + 1, PARTS);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put_keys(struct gguf_writer *writer, const struct gguf *from) {
    for (int i = 0; i < from->n_values; i++) {
        const struct gguf_value *value = &from->value[i];
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)value->key_length, value->key);
        if (value->type == GGUF_ARRAY)
            gguf_writer_array(writer, key, value->element, value->count, value->data, value->bytes);
        else
            gguf_writer_value(writer, key, value->type, value->data, value->bytes);
    }
}

static void put_tensor(struct gguf_writer *writer, const struct gguf *from, int i) {
    const struct weight *w = &from->weights.tensor[i];
    gguf_writer_tensor(writer, w->name, w->type, w->n_dims, w->dim, w->data, w->bytes);
}

/* Writes part i. As usual, the first one has the keys and no tensor. */
static void write_part(const struct cut *cut, const struct gguf *from, int i) {
    struct gguf_writer writer = {0};
    struct buf file = {0};
    int n = from->weights.n, half = n / 2;
    if (i == 0) put_keys(&writer, from);
    gguf_writer_u32(&writer, "split.no", (uint32_t)(i + cut->no[i]));
    gguf_writer_u32(&writer, "split.count", (uint32_t)(PARTS + cut->count[i]));
    gguf_writer_u32(&writer, "split.tensors.count", (uint32_t)(n + cut->tensors));
    for (int j = i == 1 ? 0 : half; i > 0 && j < (i == 1 ? half : n); j++)
        put_tensor(&writer, from, j);
    if (cut->doubled == i + 1) put_tensor(&writer, from, 0);
    gguf_writer_finish(&writer, &file);
    write_file(part_path(cut, i), file.data, file.length);
    gguf_writer_free(&writer);
    buf_free(&file);
}

static void write_parts(const struct cut *cut) {
    struct gguf *from;
    ck_assert(!gguf_open(&from, whole, NULL));
    for (int i = 0; i < PARTS; i++)
        if (cut->left_out != i + 1) write_part(cut, from, i);
    gguf_close(from);
}

static void remove_parts(const struct cut *cut) {
    for (int i = 0; i < PARTS; i++) unlink(part_path(cut, i));
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void answer(const char *model, float logits[PROMPT * V]) {
    struct engine *engine;
    struct err err;
    const struct engine_config config = {.model = model,
                                         .max_num_seqs = 8,
                                         .max_num_batched_tokens = 8,
                                         .block_size = 16,
                                         .kv_memory = 4 << 20};
    ck_assert_msg(!engine_open(&engine, &config, &err), "%s", err.message);
    memcpy(logits, runner_logits(engine, prompt, 0, PROMPT), PROMPT * V * sizeof *logits);
    engine_close(engine);
}

START_TEST(parts_answer_as_the_whole) {
    static const struct cut cut = {0};
    float wanted[PROMPT * V], found[PROMPT * V];
    write_parts(&cut);
    answer(whole, wanted);
    answer(part_path(&cut, 0), found);
    ck_assert_mem_eq(wanted, found, sizeof wanted);
    remove_parts(&cut);
}
END_TEST

/* A name for clients, and a stamp that changes if any part changes. */
START_TEST(parts_have_one_name_and_stamp) {
    static const struct cut cut = {0};
    char name[MODEL_NAME_BYTES];
    write_parts(&cut);
    uint64_t stamp = model_file_stamp(part_path(&cut, 0));
    model_path_name(name, path);
    ck_assert_str_eq(name, "m");
    ck_assert(stamp == model_file_stamp(path));
    ck_assert_int_eq(truncate(part_path(&cut, 2), 100), 0);
    ck_assert(stamp != model_file_stamp(part_path(&cut, 0)));
    remove_parts(&cut);
}
END_TEST

START_TEST(a_quantised_file_is_one_part) {
    static const struct cut cut = {0};
    struct gguf *made;
    struct err err;
    char out[64], in[sizeof path];
    write_parts(&cut);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    memcpy(in, part_path(&cut, 0), sizeof in);
    struct quantise_job job = {.in = in, .out = out, .type = QUANTIZATION_Q8_0};
    ck_assert_msg(!engine_quantise(&job, &err), "%s", err.message);
    ck_assert_msg(!gguf_open(&made, out, &err), "%s", err.message);
    ck_assert_ptr_null(gguf_find(made, "split.count"));
    gguf_close(made);
    unlink(out);
    remove_parts(&cut);
}
END_TEST

static const struct broken {
    struct cut cut;
    int given; /* part that is opened, from 1 */
    const char *words;
} breaks[] = {
    {{0},
     2,
     "the file is part 2 of 3; give the first one, whose name ends with "
     "-00001-of-00003.gguf"},
    {{.left_out = 3}, 1, "m-00003-of-00003.gguf: No such file"},
    {{.doubled = 3, .tensors = 1}, 1, "is in the file twice"},
    {{.tensors = 1}, 1, "key split.tensors.count: expected"},
    {{.no = {0, 1, 0}}, 1, "m-00002-of-00003.gguf: expected part 2 of 3, found part 3 of 3"},
    {{.count = {0, 0, 1}}, 1, "expected part 3 of 3, found part 3 of 4"},
    {{.count = {1, 1, 1}},
     1,
     "the first of 4 parts, so its name has to end with "
     "-00001-of-00004.gguf"},
    {{.name = "m%d-%d.gguf"}, 1, "the first of 3 parts, so its name has to end with"},
    {{.count = {100000}}, 1, "key split.count"},
    {{.count = {-3}}, 1, "key split.count"},
    {{.no = {3}}, 1, "key split.no"},
};

START_TEST(parts_that_do_not_fit_are_refused) {
    const struct broken *b = &breaks[_i];
    struct gguf *gguf;
    struct err err;
    write_parts(&b->cut);
    ck_assert_int_eq(gguf_open(&gguf, part_path(&b->cut, b->given - 1), &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, b->words) != NULL, "%s", err.message);
    ck_assert(strncmp(err.message, folder, strlen(folder)) == 0);
    remove_parts(&b->cut);
}
END_TEST

static void remove_folder(void) {
    rmdir(folder);
}

int main(void) {
    Suite *suite = suite_create("gguf_parts");
    TCase *tcase = tcase_create("core");
    if (!mkdtemp(folder)) return 1;
    tcase_add_unchecked_fixture(tcase, NULL, remove_folder);
    tcase_add_test(tcase, parts_answer_as_the_whole);
    tcase_add_test(tcase, parts_have_one_name_and_stamp);
    tcase_add_test(tcase, a_quantised_file_is_one_part);
    tcase_add_loop_test(tcase, parts_that_do_not_fit_are_refused, 0,
                        sizeof breaks / sizeof *breaks);
    suite_add_tcase(suite, tcase);
    return suite_main(suite);
}
