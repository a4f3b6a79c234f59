/* The reader of model files with invalid files of many kinds, each with the user's message. Files
 * are copied to memory of their exact size, so that a sanitizer reports the first byte that is read
 * after their end. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/files/tensors/gguf.h"
#include "support/gguf_sample.h"
#include "support/gguf_writer.h"
#include "support/suite_main.h"

/* ---- helpers -------------------------------------------------------------------------------- */

/* Opens a copy of data[size] of exactly that size. The caller frees *copy after closing the
 * file. */
static enum status open_copy(struct gguf **out, const void *data, size_t size, void **copy,
                             struct err *err) {
    *copy = mem_alloc(size);
    if (size) memcpy(*copy, data, size);
    return gguf_open_memory(out, *copy, size, err);
}

static void expect_broken(const void *data, size_t size, const char *message, const char *param) {
    struct gguf *gguf = NULL;
    struct err err = {0};
    void *copy;
    ck_assert_int_eq(open_copy(&gguf, data, size, &copy, &err), STATUS_BAD_FILE);
    ck_assert_ptr_null(gguf);
    if (message)
        ck_assert_msg(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
    if (param) ck_assert_str_eq(err.param, param);
    free(copy);
}

/* Expects the writer's file to be refused, and frees the writer. */
static void expect_written_broken(struct gguf_writer *writer, const char *message,
                                  const char *param) {
    struct buf file = {0};
    gguf_writer_finish(writer, &file);
    expect_broken(file.data, file.length, message, param);
    buf_free(&file);
    gguf_writer_free(writer);
}

/* ---- broken heads --------------------------------------------------------------------------- */

START_TEST(other_files_are_refused) {
    expect_broken("", 0, "the file ends", NULL);
    expect_broken("GG", 2, "the file ends", NULL);
    expect_broken("PK\3\4 a zip file, say", 20, "not a GGUF file", NULL);
    expect_broken("GGUF", 4, "within its version", NULL);
    expect_broken("GGUF\3\0\0\0", 8, "within its counts", NULL);
    expect_broken("GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "big-endian", NULL);
    expect_broken("GGUF\1\0\0\0\0\0\0\0\0\0\0\0", 16, "version 1; versions 2 and 3", NULL);
    expect_broken("GGUF\4\0\0\0\0\0\0\0\0\0\0\0", 16, "version 4", NULL);
    expect_broken("GGUF\0\0\0\0\0\0\0\0\0\0\0\0", 16, "version 0", NULL);
}
END_TEST

START_TEST(forged_counts_are_refused) {
    static const uint64_t counts[] = {1, 1000, UINT32_MAX, (uint64_t)1 << 62, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct gguf_writer keys = {.n_keys = counts[i]}, tensors = {.n_tensors = counts[i]};
        expect_written_broken(&keys, "keys; at most 0 are", NULL);
        expect_written_broken(&tensors, "tensors; at most 0 are", NULL);
    }
}
END_TEST

START_TEST(files_that_cannot_be_opened_are_named) {
    struct gguf *gguf = NULL;
    struct err err = {0};
    char path[] = "/tmp/test-gguf-XXXXXX";
    ck_assert_int_eq(gguf_open(&gguf, "/nowhere/model.gguf", &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "/nowhere/model.gguf: No such file or directory");
    ck_assert_int_eq(gguf_open(&gguf, "/tmp", &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.message, "/tmp: not a file, or an empty one");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(gguf_open(&gguf, path, &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "an empty one"));
    write_file(path, "GGUF\4\0\0\0", 8);
    ck_assert_int_eq(gguf_open(&gguf, path, &err), STATUS_BAD_FILE);
    ck_assert(strncmp(err.message, path, strlen(path)) == 0);
    ck_assert_ptr_nonnull(strstr(err.message, "version 4"));
    close(fd);
    unlink(path);
}
END_TEST

/* ---- broken keys ---------------------------------------------------------------------------- */

/* Appends the head of an array with a count that exceeds its data. */
static void write_forged_array(struct gguf_writer *writer, uint32_t element, uint64_t count) {
    struct buf payload = {0};
    buf_add(&payload, &element, sizeof element);
    buf_add(&payload, &count, sizeof count);
    buf_add(&payload, "some bytes behind", 17);
    gguf_writer_value(writer, "array", GGUF_ARRAY, payload.data, payload.length);
    buf_free(&payload);
}

START_TEST(wrong_key_types_are_refused) {
    static const uint32_t types[] = {13, 255, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct gguf_writer scalar = {0}, array = {0};
        gguf_writer_value(&scalar, "odd", types[i], "12345678", 8);
        expect_written_broken(&scalar, "type number is unknown", "odd");
        write_forged_array(&array, types[i], 1);
        expect_written_broken(&array, "type number is unknown", "array");
    }
}
END_TEST

START_TEST(forged_arrays_are_refused) {
    static const uint64_t counts[] = {1000, UINT32_MAX, (uint64_t)1 << 61, (uint64_t)1 << 63,
                                      UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (uint32_t element = 0; element <= GGUF_FLOAT64; element++) {
            struct gguf_writer writer = {0};
            write_forged_array(&writer, element, counts[i]);
            expect_written_broken(&writer, "past the file's end", "array");
        }
    }
}
END_TEST

START_TEST(forged_string_lengths_are_refused) {
    static const uint64_t lengths[] = {100, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct gguf_writer scalar = {0}, array = {0}, key = {0}, tensor = {0};
        gguf_writer_value(&scalar, "text", GGUF_STRING, &lengths[i], 8);
        expect_written_broken(&scalar, "past the file's end", "text");
        gguf_writer_array(&array, "texts", GGUF_STRING, 1, &lengths[i], 8);
        expect_written_broken(&array, "past the file's end", "texts");
        buf_add(&key.keys, &lengths[i], 8);
        buf_add(&key.keys, "a key that is short", 19);
        key.n_keys = 1;
        expect_written_broken(&key, "within a key", NULL);
        buf_add(&tensor.tensors, &lengths[i], 8);
        buf_add(&tensor.tensors, "a tensor's name that is short", 29);
        tensor.n_tensors = 1;
        expect_written_broken(&tensor, "within a tensor's name", NULL);
    }
}
END_TEST

START_TEST(deep_nesting_is_refused) {
    struct gguf_writer writer = {0};
    struct buf inner = {0};
    for (int depth = 0; depth < 100; depth++) {
        buf_add(&inner, &(uint32_t){GGUF_ARRAY}, 4);
        buf_add(&inner, &(uint64_t){1}, 8);
    }
    gguf_writer_value(&writer, "deep", GGUF_ARRAY, inner.data, inner.length);
    expect_written_broken(&writer, "nested too deeply", "deep");
    buf_free(&inner);
}
END_TEST

START_TEST(odd_bools_are_refused) {
    struct gguf_writer scalar = {0}, array = {0};
    gguf_writer_value(&scalar, "flag", GGUF_BOOL, "\2", 1);
    expect_written_broken(&scalar, "neither 0 nor 1", "flag");
    gguf_writer_array(&array, "flags", GGUF_BOOL, 3, "\0\1\377", 3);
    expect_written_broken(&array, "neither 0 nor 1", "flags");
}
END_TEST

START_TEST(duplicate_and_unprintable_names_are_refused) {
    struct gguf_writer twice = {0}, empty = {0}, control = {0}, space = {0}, tensor = {0},
                       longer = {0};
    char name[WEIGHT_MAX_NAME + 2];
    gguf_writer_u32(&twice, "same", 1);
    gguf_writer_f32(&twice, "same", 2);
    expect_written_broken(&twice, "key same is in the file twice", "same");
    gguf_writer_u32(&empty, "", 1);
    expect_written_broken(&empty, "key number 0 is empty", NULL);
    gguf_writer_u32(&control, "\033[2J", 1);
    expect_written_broken(&control, "not printable", NULL);
    gguf_writer_u32(&space, "a key", 1);
    expect_written_broken(&space, "not printable", NULL);
    gguf_sample_floats(&tensor, "caf\xc3\xa9", 1);
    expect_written_broken(&tensor, "tensor number 0 is empty", NULL);
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    gguf_sample_floats(&longer, name, 1);
    expect_written_broken(&longer, "too long", NULL);
}
END_TEST

START_TEST(odd_alignments_are_refused) {
    static const uint32_t odd[] = {0, 3, 48, UINT32_MAX, 1u << 31};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct gguf_writer writer = {0};
        gguf_writer_u32(&writer, "general.alignment", odd[i]);
        expect_written_broken(&writer, "key general.alignment", "general.alignment");
    }
    struct gguf_writer text = {0};
    gguf_writer_string(&text, "general.alignment", "32");
    expect_written_broken(&text, "expected an integer, found string", "general.alignment");
}
END_TEST

/* ---- broken tensors ------------------------------------------------------------------------- */

/* Expects a file to be refused whose only tensor is called "t" and has 128 bytes of data. */
static void expect_broken_entry(uint32_t type, uint32_t n_dims, const int64_t *dim, uint64_t offset,
                                const char *message) {
    struct gguf_writer writer = {0};
    gguf_writer_entry(&writer, "t", type, n_dims, dim, offset);
    buf_add(&writer.data, gguf_sample_numbers, 128);
    expect_written_broken(&writer, message, "t");
}

START_TEST(wrong_tensor_types_are_refused) {
    static const uint32_t types[] = {4, 5, 31, 63, 64, 1000, INT32_MAX, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        expect_broken_entry(types[i], 1, (int64_t[]){32}, 0,
                            "is not supported; these are: f32, f16");
    expect_broken_entry(99, 1, (int64_t[]){32}, 0, "tensor t: type number 99 is not supported");
}
END_TEST

START_TEST(wrong_dimensions_are_refused) {
    static const int64_t big[] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, 1};
    expect_broken_entry(DTYPE_F32, 0, big, 0, "has 0 dimensions; 1 to 4");
    expect_broken_entry(DTYPE_F32, 5, big, 0, "has 5 dimensions");
    expect_broken_entry(DTYPE_F32, 1, (int64_t[]){0}, 0, "dimension 0 is 0");
    expect_broken_entry(DTYPE_F32, 2, (int64_t[]){4, -1}, 0, "dimension 1 is 18446744073709551615");
    expect_broken_entry(DTYPE_F32, 1, (int64_t[]){(int64_t)1 << 31}, 0,
                        "dimension 0 is 2147483648");
    expect_broken_entry(DTYPE_F32, 4, big, 0, "multiply to more than 2^63");
    expect_broken_entry(DTYPE_F32, 3, (int64_t[]){INT32_MAX, INT32_MAX, 2}, 0,
                        "more than 2^63 bytes");
    expect_broken_entry(DTYPE_Q4_1, 1, (int64_t[]){48}, 0,
                        "rows of 48 elements are not whole blocks");
    expect_broken_entry(DTYPE_Q4_1, 2, (int64_t[]){16, 2}, 0, "not whole blocks of 32 (q4_1)");
    expect_broken_entry(DTYPE_Q6_K, 2, (int64_t[]){128, 2}, 0, "not whole blocks of 256 (q6_k)");
    expect_broken_entry(DTYPE_IQ2_XS, 2, (int64_t[]){32, 8}, 0, "not whole blocks of 256 (iq2_xs)");
    expect_broken_entry(DTYPE_NVFP4, 2, (int64_t[]){32, 2}, 0, "not whole blocks of 64 (nvfp4)");
    expect_broken_entry(DTYPE_IQ1_S, 4, (int64_t[]){INT32_MAX - 255, INT32_MAX, 2, 2}, 0,
                        "multiply to more than 2^63");
}
END_TEST

START_TEST(tensors_outside_the_file_are_refused) {
    static const int64_t one[] = {1}, all[] = {32}, more[] = {33};
    expect_broken_entry(DTYPE_F32, 1, more, 0, "go past the file's end");
    expect_broken_entry(DTYPE_F32, 1, all, 32, "go past the file's end");
    expect_broken_entry(DTYPE_F32, 1, one, 128, "go past the file's end");
    expect_broken_entry(DTYPE_F32, 1, one, (uint64_t)1 << 62, "go past the file's end");
    expect_broken_entry(DTYPE_F32, 1, one, UINT64_MAX - 31, "go past the file's end");
    const int64_t blocks[] = {256, INT32_MAX}, wide[] = {INT32_MAX - 255, INT32_MAX};
    expect_broken_entry(DTYPE_IQ3_S, 2, blocks, 0, "go past the file's end");
    expect_broken_entry(DTYPE_TQ1_0, 2, wide, 0, "go past the file's end");
    expect_broken_entry(DTYPE_Q2_K, 2, wide, UINT64_MAX - 31, "go past the file's end");
    expect_broken_entry(DTYPE_F32, 1, one, 4, "not a multiple of the alignment, 32");
    expect_broken_entry(DTYPE_F32, 1, one, UINT64_MAX, "not a multiple of the alignment");
}
END_TEST

START_TEST(overlaps_and_duplicates_are_refused) {
    struct gguf_writer same = {0}, partly = {0}, twice = {0};
    gguf_writer_entry(&same, "a", DTYPE_F32, 1, (int64_t[]){4}, 0);
    gguf_writer_entry(&same, "b", DTYPE_F32, 1, (int64_t[]){4}, 0);
    buf_add(&same.data, gguf_sample_numbers, 128);
    expect_written_broken(&same, "overlap in the file", NULL);
    gguf_writer_entry(&partly, "late", DTYPE_F32, 1, (int64_t[]){8}, 64);
    gguf_writer_entry(&partly, "early", DTYPE_F32, 1, (int64_t[]){17}, 0);
    buf_add(&partly.data, gguf_sample_numbers, 128);
    expect_written_broken(&partly, "tensors early and late overlap", "late");
    gguf_sample_floats(&twice, "same", 2);
    gguf_sample_floats(&twice, "same", 2);
    expect_written_broken(&twice, "tensor same is in the file twice", "same");
}
END_TEST

/* ---- all truncations, all flipped bits ------------------------------------------------------ */

START_TEST(every_truncation_is_refused) {
    struct gguf_writer writer = {0};
    struct buf file = {0};
    gguf_sample(&writer);
    gguf_writer_finish(&writer, &file);
    for (size_t size = 0; size < file.length; size++) expect_broken(file.data, size, NULL, NULL);
    buf_free(&file);
    gguf_writer_free(&writer);
}
END_TEST

/* Reads all bytes of an opened file that the reader has checked. */
static uint32_t read_all(const struct gguf *gguf) {
    uint32_t sum = 0;
    for (int i = 0; i < gguf->n_values; i++) {
        const struct gguf_value *value = &gguf->value[i];
        sum += gguf_sample_crc32(value->data, value->bytes) +
               gguf_sample_crc32((const void *)value->key, value->key_length);
        const uint8_t *at = value->data;
        size_t length;
        for (uint64_t n = 0; value->element == GGUF_STRING && n < value->count; n++) {
            const char *text = gguf_next_string(&at, &length);
            sum += gguf_sample_crc32((const void *)text, length);
        }
    }
    for (int i = 0; i < gguf->weights.n; i++)
        sum += gguf_sample_crc32(gguf->weights.tensor[i].data, gguf->weights.tensor[i].bytes);
    return sum;
}

START_TEST(no_flipped_bit_does_harm) {
    struct gguf_writer writer = {0};
    struct buf file = {0};
    uint32_t sum = 0;
    gguf_sample(&writer);
    gguf_writer_finish(&writer, &file);
    for (size_t bit = 0; bit < file.length * 8; bit++) {
        struct gguf *gguf = NULL;
        struct err err = {0};
        void *copy;
        file.data[bit / 8] ^= (char)(1 << bit % 8);
        if (open_copy(&gguf, file.data, file.length, &copy, &err) == STATUS_OK) {
            sum += read_all(gguf);
            gguf_close(gguf);
        } else {
            ck_assert_int_eq(err.status, STATUS_BAD_FILE);
            ck_assert(err.message[0] != 0);
        }
        file.data[bit / 8] ^= (char)(1 << bit % 8);
        free(copy);
    }
    ck_assert_uint_ne(sum, 0);
    buf_free(&file);
    gguf_writer_free(&writer);
}
END_TEST

/* ---- the suite ------------------------------------------------------------------------------ */

int main(void) {
    const TTest *const tests[] = {
        other_files_are_refused,
        forged_counts_are_refused,
        files_that_cannot_be_opened_are_named,
        wrong_key_types_are_refused,
        forged_arrays_are_refused,
        forged_string_lengths_are_refused,
        deep_nesting_is_refused,
        odd_bools_are_refused,
        duplicate_and_unprintable_names_are_refused,
        odd_alignments_are_refused,
        wrong_tensor_types_are_refused,
        wrong_dimensions_are_refused,
        tensors_outside_the_file_are_refused,
        overlaps_and_duplicates_are_refused,
        every_truncation_is_refused,
        no_flipped_bit_does_harm,
    };
    Suite *suite = suite_create("engine/gguf on broken files");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
