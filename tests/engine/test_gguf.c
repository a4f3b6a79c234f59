/* The reader of model files with valid files: small ones, and the real model compared with the
 * reference reader's list. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/files/tensors/gguf.h"
#include "support/gguf_sample.h"
#include "support/gguf_writer.h"
#include "support/suite_main.h"

#define MODEL "models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define VECTORS "tests/vectors/gguf_smollm2.txt" /* made by tests/vectors/make_gguf.py */

/* ---- helpers -------------------------------------------------------------------------------- */

struct opened {
    struct gguf *gguf;
    struct buf file;
};

/* Opens the writer's file and frees the writer. */
static struct opened open_written(struct gguf_writer *writer) {
    struct opened opened = {0};
    struct err err = {0};
    gguf_writer_finish(writer, &opened.file);
    enum status status = gguf_open_memory(&opened.gguf, opened.file.data, opened.file.length, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    gguf_writer_free(writer);
    return opened;
}

static void close_opened(struct opened *opened) {
    gguf_close(opened->gguf);
    buf_free(&opened->file);
}

/* ---- right files ---------------------------------------------------------------------------- */

static void check_integer(const struct gguf *gguf, const char *key, int64_t expected) {
    struct err err = {0};
    int64_t value = 0;
    enum status status = gguf_int(gguf, key, INT64_MIN, INT64_MAX, &value, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(value, expected);
}

START_TEST(integers_of_every_width_are_read) {
    struct gguf_writer writer = {0};
    gguf_sample(&writer);
    struct opened opened = open_written(&writer);
    check_integer(opened.gguf, "i8", -3);
    check_integer(opened.gguf, "i16", -300);
    check_integer(opened.gguf, "i32", -70000);
    check_integer(opened.gguf, "i64", -5000000000);
    check_integer(opened.gguf, "u8", 200);
    check_integer(opened.gguf, "u16", 60000);
    check_integer(opened.gguf, "u32", 4000000000);
    check_integer(opened.gguf, "u64", INT64_MAX);
    close_opened(&opened);
}
END_TEST

START_TEST(other_values_are_read) {
    struct gguf_writer writer = {0};
    gguf_sample(&writer);
    struct opened opened = open_written(&writer);
    const char *text;
    size_t length;
    double number;
    bool yes;
    ck_assert_int_eq(gguf_float(opened.gguf, "f32", &number, NULL), STATUS_OK);
    ck_assert(number == 1.5);
    ck_assert_int_eq(gguf_float(opened.gguf, "f64", &number, NULL), STATUS_OK);
    ck_assert(number == 0.25);
    ck_assert_int_eq(gguf_bool_or(opened.gguf, "yes", false, &yes, NULL), STATUS_OK);
    ck_assert(yes);
    ck_assert_int_eq(gguf_string(opened.gguf, "text", &text, &length, NULL), STATUS_OK);
    ck_assert(length == 5 && memcmp(text, "hello", 5) == 0);
    close_opened(&opened);
}
END_TEST

START_TEST(one_number_may_stand_for_a_list) {
    static const float listed[] = {0.5f, -2, 3};
    struct gguf_writer writer = {0};
    struct err err = {0};
    float found[3];
    gguf_writer_array(&writer, "list", GGUF_FLOAT32, 3, listed, sizeof listed);
    gguf_writer_f32(&writer, "one", 7);
    gguf_writer_u32(&writer, "whole", 7);
    struct opened opened = open_written(&writer);
    ck_assert_int_eq(gguf_floats(opened.gguf, "list", 3, found, &err), STATUS_OK);
    ck_assert_mem_eq(found, listed, sizeof listed);
    ck_assert_int_eq(gguf_floats(opened.gguf, "one", 3, found, &err), STATUS_OK);
    ck_assert(found[0] == 7 && found[2] == 7);
    ck_assert_int_eq(gguf_floats(opened.gguf, "list", 2, found, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "key list: expected 2 numbers, found 3");
    ck_assert_int_eq(gguf_floats(opened.gguf, "whole", 3, found, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(gguf_floats(opened.gguf, "none", 3, found, &err), STATUS_BAD_FILE);
    close_opened(&opened);
}
END_TEST

START_TEST(arrays_are_walked) {
    struct gguf_writer writer = {0};
    gguf_sample(&writer);
    struct opened opened = open_written(&writer);
    const struct gguf_value *words;
    size_t length;
    ck_assert_int_eq(gguf_array(opened.gguf, "words", GGUF_STRING, &words, NULL), STATUS_OK);
    ck_assert_uint_eq(words->count, 3);
    const uint8_t *at = words->data;
    ck_assert(memcmp(gguf_next_string(&at, &length), "one", 3) == 0 && length == 3);
    gguf_next_string(&at, &length);
    ck_assert_uint_eq(length, 0);
    ck_assert(memcmp(gguf_next_string(&at, &length), "three", 5) == 0 && length == 5);
    ck_assert(at == words->data + words->bytes);
    ck_assert_uint_eq(gguf_find(opened.gguf, "halves")->bytes, 6);
    ck_assert_uint_eq(gguf_find(opened.gguf, "nothing")->count, 0);
    close_opened(&opened);
}
END_TEST

START_TEST(missing_keys_take_the_fallback) {
    struct gguf_writer writer = {0};
    struct opened opened = open_written(&writer);
    int64_t whole;
    double number;
    bool yes;
    const char *text = "";
    size_t length = 1;
    ck_assert_int_eq(gguf_int_or(opened.gguf, "x", 0, 9, -1, &whole, NULL), STATUS_OK);
    ck_assert_int_eq(whole, -1);
    ck_assert_int_eq(gguf_float_or(opened.gguf, "x", 2.5, &number, NULL), STATUS_OK);
    ck_assert(number == 2.5);
    ck_assert_int_eq(gguf_bool_or(opened.gguf, "x", true, &yes, NULL), STATUS_OK);
    ck_assert(yes);
    ck_assert_int_eq(gguf_string_or(opened.gguf, "x", &text, &length, NULL), STATUS_OK);
    ck_assert(!text && length == 0);
    close_opened(&opened);
}
END_TEST

START_TEST(getters_name_key_and_types) {
    struct gguf_writer writer = {0};
    struct err err = {0};
    int64_t whole;
    double number;
    bool yes;
    const char *text;
    size_t length;
    const struct gguf_value *value;
    gguf_sample(&writer);
    struct opened opened = open_written(&writer);
    const struct gguf *gguf = opened.gguf;
    ck_assert_int_eq(gguf_int(gguf, "none", 0, 9, &whole, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "key none (an integer) is missing");
    ck_assert_str_eq(err.param, "none");
    ck_assert_int_eq(gguf_int(gguf, "f32", 0, 9, &whole, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "key f32: expected an integer, found float32");
    ck_assert_int_eq(gguf_int_or(gguf, "words", 0, 9, 1, &whole, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "key words: expected an integer, found array of string");
    ck_assert_int_eq(gguf_int(gguf, "yes", 0, 9, &whole, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(gguf_int(gguf, "u8", 0, 9, &whole, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "key u8: expected 0 to 9, found 200");
    ck_assert_int_eq(gguf_float(gguf, "none", &number, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(gguf_float(gguf, "u8", &number, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "key u8: expected a float, found uint8");
    ck_assert_int_eq(gguf_bool_or(gguf, "u8", false, &yes, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(gguf_string(gguf, "none", &text, &length, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "key none (a string) is missing");
    ck_assert_int_eq(gguf_string(gguf, "u8", &text, &length, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(gguf_array(gguf, "none", GGUF_INT32, &value, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(gguf_array(gguf, "u8", GGUF_INT32, &value, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(gguf_array(gguf, "words", GGUF_INT32, &value, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "key words: expected array of int32, found array of string");
    close_opened(&opened);
}
END_TEST

START_TEST(tensors_are_found_by_name_shape_and_type) {
    struct gguf_writer writer = {0};
    struct err err = {0};
    const struct weight *weight = NULL;
    gguf_sample(&writer);
    struct opened opened = open_written(&writer);
    const struct weights *weights = &opened.gguf->weights;
    ck_assert_int_eq(weights_vector(weights, "a", 5, &weight, &err), STATUS_OK);
    ck_assert(memcmp(weight->data, gguf_sample_numbers, 20) == 0 && weight->bytes == 20);
    ck_assert_int_eq(weights_matrix(weights, "b", 2, 3, &weight, &err), STATUS_OK);
    ck_assert_int_eq(weight->n_elements, 6);
    ck_assert_int_eq(weights_matrix(weights, "b", 3, 2, &weight, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "tensor b: expected [2 x 3], found [3 x 2]");
    ck_assert_str_eq(err.param, "b");
    ck_assert_int_eq(weights_vector(weights, "b", 3, &weight, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "tensor b: expected [3], found [3 x 2]");
    ck_assert_int_eq(weights_vector(weights, "c", 3, &weight, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "tensor c is missing");
    ck_assert_int_eq(weights_find(weights, "a", 1, (int64_t[]){5}, DTYPE_F16, &weight, &err),
                     STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "tensor a: expected type f16, found f32");
    ck_assert_int_eq(weights_matrix(weights, "a", 1, 5, &weight, &err), STATUS_OK);
    ck_assert_ptr_null(weights_lookup(weights, "zz"));
    close_opened(&opened);
}
END_TEST

START_TEST(version_2_and_any_alignment_are_read) {
    static const uint32_t alignments[] = {1, 2, 4, 8, 64, 4096};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        struct gguf_writer writer = {.version = 2, .alignment = alignments[i]};
        gguf_writer_u32(&writer, "general.alignment", alignments[i]);
        gguf_sample_floats(&writer, "first", 5);
        gguf_sample_floats(&writer, "second", 3);
        struct opened opened = open_written(&writer);
        ck_assert_uint_eq(opened.gguf->alignment, alignments[i]);
        const struct weight *second = weights_lookup(&opened.gguf->weights, "second");
        ck_assert(memcmp(second->data, gguf_sample_numbers, 12) == 0);
        close_opened(&opened);
    }
}
END_TEST

START_TEST(nested_arrays_are_skipped) {
    struct gguf_writer writer = {0};
    struct buf inner = {0};
    for (uint8_t i = 0; i < 2; i++) {
        buf_add(&inner, &(uint32_t){GGUF_UINT8}, 4);
        buf_add(&inner, &(uint64_t){2}, 8);
        buf_add(&inner, "xy", 2);
    }
    gguf_writer_array(&writer, "nested", GGUF_ARRAY, 2, inner.data, inner.length);
    gguf_writer_u32(&writer, "after", 7);
    struct opened opened = open_written(&writer);
    check_integer(opened.gguf, "after", 7);
    close_opened(&opened);
    buf_free(&inner);
}
END_TEST

START_TEST(many_names_are_told_apart) {
    struct gguf_writer writer = {0};
    char name[32];
    for (uint32_t i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "key.%u", i);
        gguf_writer_u32(&writer, name, i);
    }
    struct opened opened = open_written(&writer);
    for (uint32_t i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "key.%u", i);
        check_integer(opened.gguf, name, i);
    }
    ck_assert_ptr_null(gguf_find(opened.gguf, "key.3000"));
    close_opened(&opened);
}
END_TEST

/* ---- the real model against the reference reader -------------------------------------------- */

static void check_key_line(const struct gguf *gguf, const char *line) {
    char name[256];
    unsigned type, element, crc;
    size_t count, bytes;
    ck_assert_int_eq(
        sscanf(line, "key %255s %u %u %zu %zu %u", name, &type, &element, &count, &bytes, &crc), 6);
    const struct gguf_value *value = gguf_find(gguf, name);
    ck_assert_msg(value, "%s", name);
    ck_assert_uint_eq(value->type, type);
    ck_assert_uint_eq(value->element, element);
    ck_assert_uint_eq(value->count, count);
    ck_assert_uint_eq(value->bytes, bytes);
    ck_assert_uint_eq(gguf_sample_crc32(value->data, value->bytes), crc);
}

static void check_tensor_line(const struct gguf *gguf, const char *line) {
    char name[256];
    unsigned type, crc;
    size_t offset, bytes;
    long dim[2] = {1, 1};
    int n = sscanf(line, "tensor %255s %u %zu %zu %u %ld %ld", name, &type, &offset, &bytes, &crc,
                   &dim[0], &dim[1]);
    ck_assert_int_ge(n, 6);
    const struct weight *weight = weights_lookup(&gguf->weights, name);
    ck_assert_msg(weight, "%s", name);
    ck_assert_uint_eq(weight->type, type);
    ck_assert_uint_eq((size_t)((const uint8_t *)weight->data - gguf->data), offset);
    ck_assert_uint_eq(weight->bytes, bytes);
    ck_assert_int_eq(weight->n_dims, n - 5);
    ck_assert_int_eq(weight->dim[0], dim[0]);
    ck_assert_int_eq(weight->dim[1], dim[1]);
    ck_assert_uint_eq(gguf_sample_crc32(weight->data, bytes < 256 ? bytes : 256), crc);
}

START_TEST(the_model_is_read_as_the_reference_reads_it) {
    struct err err = {0};
    struct gguf *gguf = NULL;
    char line[512];
    int n_keys = 0, n_tensors = 0;
    ck_assert_msg(gguf_open(&gguf, MODEL, &err) == STATUS_OK, "%s", err.message);
    FILE *vectors = fopen(VECTORS, "r");
    ck_assert_ptr_nonnull(vectors);
    while (fgets(line, sizeof line, vectors)) {
        if (strncmp(line, "key ", 4) == 0) {
            check_key_line(gguf, line);
            n_keys++;
        } else {
            check_tensor_line(gguf, line);
            n_tensors++;
        }
    }
    fclose(vectors);
    ck_assert_int_eq(n_keys, gguf->n_values);
    ck_assert_int_eq(n_tensors, gguf->weights.n);
    gguf_close(gguf);
}
END_TEST

/* ---- pages that are released ---------------------------------------------------------------- */

/* Returns the KiB of mapped files that are in this process's memory. */
static long resident_kib(void) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) sscanf(line, "RssFile: %ld", &kib);
    fclose(file);
    return kib;
}

enum { BIG = 2 << 20, SMALL = 1024 }; /* in floats */

/* Writes a file with a large tensor between two small ones. All hold the numbers 0, 1, ... */
static void write_three(struct gguf_writer *writer, float *numbers) {
    static const char *const names[] = {"before", "big", "after"};
    for (int i = 0; i < BIG; i++) numbers[i] = (float)i;
    for (int i = 0; i < 3; i++) {
        int64_t n = i == 1 ? BIG : SMALL;
        gguf_writer_tensor(writer, names[i], DTYPE_F32, 1, &n, numbers, (size_t)n * sizeof(float));
    }
}

static void check_three(const struct gguf *gguf, const float *numbers) {
    for (int i = 0; i < gguf->weights.n; i++) {
        const struct weight *weight = &gguf->weights.tensor[i];
        ck_assert(memcmp(weight->data, numbers, weight->bytes) == 0);
    }
}

/* Released pages leave memory and return when they are read. A file in ordinary memory is not
 * released. */
START_TEST(released_pages_are_read_again) {
    char path[] = "/tmp/test-gguf-XXXXXX";
    float *numbers = mem_alloc(BIG * sizeof *numbers);
    struct gguf_writer writer = {0};
    write_three(&writer, numbers);
    struct opened opened = open_written(&writer);
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    write_file(path, opened.file.data, opened.file.length);
    weights_release_file_pages(&opened.gguf->weights);
    check_three(opened.gguf, numbers);
    close_opened(&opened);
    struct gguf *gguf;
    ck_assert_int_eq(gguf_open(&gguf, path, NULL), STATUS_OK);
    check_three(gguf, numbers);
    long before = resident_kib();
    weights_release_file_pages(&gguf->weights);
    ck_assert_int_ge(before - resident_kib(), BIG / 256 * 3 / 4); /* other pages change meanwhile */
    check_three(gguf, numbers);
    gguf_close(gguf);
    unlink(path);
    free(numbers);
}
END_TEST

/* ---- the suite ------------------------------------------------------------------------------ */

int main(void) {
    const TTest *const tests[] = {
        integers_of_every_width_are_read,
        other_values_are_read,
        one_number_may_stand_for_a_list,
        arrays_are_walked,
        missing_keys_take_the_fallback,
        getters_name_key_and_types,
        tensors_are_found_by_name_shape_and_type,
        version_2_and_any_alignment_are_read,
        nested_arrays_are_skipped,
        many_names_are_told_apart,
        the_model_is_read_as_the_reference_reads_it,
        released_pages_are_read_again,
    };
    Suite *suite = suite_create("engine/gguf");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
