/* A safetensors file: the tensors that are read, and the messages for refusals. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/tensors/safetensors.h"
#include "support/suite_main.h"

enum { MAX_BYTES = 4096 };

/* Builds a file with a header and n bytes 0, 1, 2, ... in `bytes`. Returns its size. */
static size_t build(uint8_t bytes[MAX_BYTES], const char *header, size_t n) {
    uint64_t length = strlen(header);
    ck_assert(8 + length + n <= MAX_BYTES);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < n; i++) bytes[8 + length + i] = (uint8_t)i;
    return 8 + length + n;
}

static enum status read_all(struct weights *weights, const void *bytes, size_t size,
                            struct err *err) {
    struct safetensors file;
    *weights = (struct weights){0};
    enum status status = safetensors_open_memory(&file, bytes, size, err);
    if (!status) {
        weights_init(weights, (size_t)file.n_tensors);
        status = safetensors_list(&file, weights, false, err);
    }
    safetensors_close(&file);
    return status;
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"

START_TEST(tensors_are_listed) {
    uint8_t bytes[MAX_BYTES];
    struct weights weights;
    struct err err = {0};
    size_t size = build(bytes,
                        "{\"__metadata__\":{\"format\":\"pt\"},"
                        "\"c\":{\"shape\":[4],\"dtype\":\"BF16\",\"data_offsets\":[26,34]}," A
                        ",\"b\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[24,26]},"
                        "\"h.0.attn.bias\":{\"dtype\":\"BOOL\",\"shape\":[1,1,2,3],"
                        "\"data_offsets\":[34,40]}}  ",
                        40);
    ck_assert_msg(read_all(&weights, bytes, size, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(weights.n, 3);
    const struct weight *a = weights_lookup(&weights, "a"), *b = weights_lookup(&weights, "b");
    const struct weight *c = weights_lookup(&weights, "c");
    ck_assert(a->type == DTYPE_F32 && a->n_dims == 2 && a->dim[0] == 3 && a->dim[1] == 2);
    ck_assert(a->bytes == 24 && ((const uint8_t *)a->data)[5] == 5);
    ck_assert(b->type == DTYPE_F16 && b->n_dims == 1 && b->dim[0] == 1 && b->bytes == 2);
    ck_assert(c->type == DTYPE_BF16 && c->dim[0] == 4 && ((const uint8_t *)c->data)[0] == 26);
    ck_assert_int_eq(weights.n_pages, 0); /* nothing is mapped */
    weights_free(&weights);
}
END_TEST

#define OF(dtype, shape, offsets)                                                                  \
    "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define AND_A(rest) "{" A "," rest "}"

static const struct {
    const char *header;
    size_t n; /* bytes of data */
    const char *words;
} broken[] = {
    {"{" A "}", 23, "tensor a ends at byte 24 of the data, but the data has only 23 bytes"},
    {"{" A "}", 25, "1 bytes after a belong to no tensor"},
    {"{}", 4, "4 bytes after the header belong to no tensor"},
    {"[]", 0, "the header is an array"},
    {"", 0, "The header is not valid JSON"},
    {"{" A, 24, "The header is not valid JSON"},
    {"{" A "} x", 24, "The header is not valid JSON"},
    {"{\"a\":1}", 0, "tensor a: expected an object, found a number"},
    {"{\"\":{}}", 0, "a tensor's name has 0 bytes; 1 to 127"},
    {"{\"\\u001b[2J\":{}}", 0, "printable ASCII were expected"},
    {"{\"a\":{}}", 0, "tensor a has no \"dtype\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a has no \"data_offsets\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"shape\":[2]}}", 4,
     "tensor a has 4 members"},
    {OF("\"F64\"", "[3]", "[0,24]"), 24, "the dtype F64 is not supported; F32, F16 and BF16 are"},
    {OF("\"F8_E4M3\"", "[24]", "[0,24]"), 24, "the dtype F8_E4M3 is not supported"},
    {OF("7", "[24]", "[0,24]"), 24, "the dtype ? is not supported"},
    {OF("\"\\u001b[2J\"", "[24]", "[0,24]"), 24, "the dtype ? is not supported"},
    {OF("\"F32\"", "6", "[0,24]"), 24, "its shape must be an array of at most 5 numbers"},
    {OF("\"F32\"", "[1,1,1,1,1,6]", "[0,24]"), 24, "its shape must be an array of at most 5"},
    {OF("\"F32\"", "[2,-3]", "[0,24]"), 24, "number 1 of its shape is not a whole number from 0"},
    {OF("\"F32\"", "[2.5,3]", "[0,24]"), 24, "number 0 of its shape is not a whole number"},
    {OF("\"F32\"", "[\"6\"]", "[0,24]"), 24, "number 0 of its shape is not a whole number"},
    {OF("\"F32\"", "[0,3]", "[0,0]"), 0, "tensor a: dimension 1 is 0"},
    {OF("\"F32\"", "[4294967296]", "[0,24]"), 24, "dimension 0 is 4294967296"},
    {OF("\"F32\"", "[2147483647,2147483647,2147483647]", "[0,24]"), 24, "more than 2^63 elements"},
    {OF("\"F32\"", "[2147483647,2147483647,2]", "[0,24]"), 24, "more than 2^63 bytes"},
    {OF("\"F32\"", "[2,2]", "[0,24]"), 24,
     "tensor a: its dtype and shape need 16 bytes, its data_offsets span 24"},
    {OF("\"F32\"", "[6]", "[24,0]"), 24, "must be two whole numbers from 0, the second not below"},
    {OF("\"F32\"", "[6]", "[-24,0]"), 24, "must be two whole numbers from 0"},
    {OF("\"F32\"", "[6]", "[0,24,24]"), 24, "must be two whole numbers from 0"},
    {OF("\"F32\"", "[6]", "[0,24.5]"), 24, "must be two whole numbers from 0"},
    {OF("\"F32\"", "[6]", "[0,99999999999999999999]"), 24, "must be two whole numbers from 0"},
    {OF("\"F32\"", "[6]", "[9223372036854775783,9223372036854775807]"), 24,
     "tensor a ends at byte 9223372036854775807"},
    {AND_A("\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[20,28]}"), 28,
     "tensors a and b overlap in the file"},
    {AND_A("\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28,36]}"), 36,
     "4 bytes between a and tensor b belong to no tensor"},
    {AND_A("\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]}"), 32,
     "tensor a is in the file twice"},
    {AND_A("\"__metadata__\":[]"), 24, "__metadata__ must be an object"},
    {AND_A("\"__metadata__\":{},\"__metadata__\":{}"), 24, "may appear only once"},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

START_TEST(broken_files_are_refused) {
    uint8_t bytes[MAX_BYTES];
    struct weights weights;
    struct err err = {0};
    size_t size = build(bytes, broken[_i].header, broken[_i].n);
    enum status status = read_all(&weights, bytes, size, &err);
    weights_free(&weights);
    ck_assert_msg(status == STATUS_BAD_FILE, "not refused: %s", broken[_i].header);
    ck_assert_int_eq(err.status, STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, broken[_i].words) != NULL, "%s", err.message);
}
END_TEST

/* The first bytes state the header's length, which must be checked. */
START_TEST(lengths_of_headers_are_checked) {
    static const uint64_t lengths[] = {40, 1 << 20, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    uint8_t bytes[MAX_BYTES];
    struct weights weights;
    struct err err = {0};
    size_t size = build(bytes, "{}", 20);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(bytes, &lengths[i], 8);
        ck_assert_int_eq(read_all(&weights, bytes, size, &err), STATUS_BAD_FILE);
        ck_assert_ptr_nonnull(strstr(err.message, "but 22 follow"));
    }
    ck_assert_int_eq(read_all(&weights, bytes, 7, &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "the file has 7 bytes"));
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    ck_assert_int_eq(read_all(&weights, pointer, sizeof pointer, &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "git lfs pull"));
}
END_TEST

/* A header with 128 or more brackets is refused before the reader's stack overflows. */
START_TEST(nesting_ends) {
    uint8_t bytes[MAX_BYTES];
    char header[2048] = "{\"a\":";
    struct weights weights;
    struct err err = {0};
    memset(header + 5, '[', sizeof header - 6);
    ck_assert_int_eq(read_all(&weights, bytes, build(bytes, header, 0), &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "The header is not valid JSON"));
}
END_TEST

START_TEST(masks_and_tables_are_computed) {
    ck_assert(safetensors_is_computed("h.0.attn.bias"));
    ck_assert(safetensors_is_computed("transformer.h.11.attn.masked_bias"));
    ck_assert(safetensors_is_computed("model.layers.0.self_attn.rotary_emb.inv_freq"));
    ck_assert(!safetensors_is_computed("h.0.attn.c_attn.bias"));
    ck_assert(safetensors_is_computed("gpt_neox.layers.0.attention.bias"));
    ck_assert(safetensors_is_computed("model.layers.0.self_attn.rotary_emb.cos_cached"));
    ck_assert(safetensors_is_computed("model.layers.0.self_attn.rotary_emb.sin_cached"));
    ck_assert(safetensors_is_computed("inv_freq"));
    ck_assert(!safetensors_is_computed("h.0.cattn.bias"));
    ck_assert(!safetensors_is_computed("bias"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/safetensors");
    TCase *all = tcase_create("all");
    tcase_add_test(all, tensors_are_listed);
    tcase_add_loop_test(all, broken_files_are_refused, 0, N_BROKEN);
    tcase_add_test(all, lengths_of_headers_are_checked);
    tcase_add_test(all, nesting_ends);
    tcase_add_test(all, masks_and_tables_are_computed);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
