/* GGUF files with a block whose scale is not finite. Each is refused when the model is opened, with
 * one sentence that names the file, the tensor and the block. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/files/tensors/gguf.h"
#include "support/gguf_writer.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { TENSORS = 4 };

/* The offsets of scales and minima in the formats, from their specification, and bytes that make
 * them infinite or NaN. */
static const struct {
    enum dtype type;
    size_t at;
    const char *bytes;
    size_t n;
} broken[] = {
    {DTYPE_Q4_0, 0, "\x00\x7e", 2},    {DTYPE_Q4_0, 0, "\x00\xfc", 2},
    {DTYPE_Q4_1, 0, "\x00\x7c", 2},    {DTYPE_Q4_1, 2, "\x01\x7c", 2},
    {DTYPE_Q5_0, 0, "\xff\xff", 2},    {DTYPE_Q5_1, 0, "\x00\x7e", 2},
    {DTYPE_Q5_1, 2, "\x00\xfe", 2},    {DTYPE_Q8_0, 0, "\x00\x7e", 2},
    {DTYPE_Q2_K, 80, "\x00\x7e", 2},   {DTYPE_Q2_K, 82, "\x00\x7c", 2},
    {DTYPE_Q3_K, 108, "\x00\x7e", 2},  {DTYPE_Q4_K, 0, "\x00\x7e", 2},
    {DTYPE_Q4_K, 2, "\x00\xfc", 2},    {DTYPE_Q5_K, 0, "\x00\x7e", 2},
    {DTYPE_Q5_K, 2, "\x00\x7e", 2},    {DTYPE_Q6_K, 208, "\x00\x7e", 2},
    {DTYPE_IQ4_NL, 0, "\x00\x7e", 2},  {DTYPE_IQ4_XS, 0, "\x00\x7e", 2},
    {DTYPE_TQ1_0, 52, "\x00\x7e", 2},  {DTYPE_TQ2_0, 64, "\x00\x7e", 2},
    {DTYPE_Q1_0, 0, "\x00\x7e", 2},    {DTYPE_Q2_0, 0, "\x00\xfc", 2},
    {DTYPE_MXFP4, 0, "\xff", 1},       {DTYPE_IQ1_S, 0, "\x00\x7e", 2},
    {DTYPE_IQ2_XXS, 0, "\x00\x7e", 2}, {DTYPE_IQ2_XS, 0, "\x00\x7e", 2},
    {DTYPE_IQ2_S, 0, "\x00\x7e", 2},   {DTYPE_IQ3_XXS, 0, "\x00\x7e", 2},
    {DTYPE_IQ3_S, 0, "\x00\x7e", 2},   {DTYPE_IQ1_M, 48, "\0\0\0\0\0\xc0\0\x70", 8},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

static const char *const names[TENSORS] = {"token_embd.weight", "blk.0.attn_q.weight",
                                           "blk.1.ffn_up", "blk.1.ffn_down"};

/* The tensor's name in the i-th model: every second model has experts. */
static void tensor_name(char out[64], int number, bool experts) {
    snprintf(out, 64, "%s%s", names[number],
             number < 2 ? ""
             : experts  ? "_exps.weight"
                        : ".weight");
}

static struct tiny_model model_of(enum dtype type, bool experts) {
    struct tiny_model tiny = {.V = 300, .K = 256, .F = 256, .L = 2, .H = 4, .G = 2, .D = 64};
    tiny.E = experts ? 4 : 0, tiny.context_length = 64, tiny.dtype = type, tiny.seed = 5;
    return tiny;
}

/* Returns the file's bytes of a tensor's block. */
static char *block_of(const struct buf *file, const char *name, size_t block) {
    struct gguf *gguf = NULL;
    struct err err = {0};
    ck_assert_int_eq(gguf_open_memory(&gguf, file->data, file->length, &err), STATUS_OK);
    const struct weight *weight = weights_lookup(&gguf->weights, name);
    ck_assert_msg(weight != NULL, "%s is no tensor", name);
    size_t bytes = (size_t)dtype_block_bytes((int)weight->type);
    ck_assert_uint_lt(block, weight->bytes / bytes);
    char *data = file->data + ((const char *)weight->data - file->data) + block * bytes;
    gguf_close(gguf);
    return data;
}

static enum status open_model(const char *path, struct err *err) {
    struct engine *engine = NULL;
    struct engine_config config = {.model = path,
                                   .threads = 2,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 8,
                                   .block_size = 16};
    enum status status = engine_open(&engine, &config, err);
    engine_close(engine);
    return status;
}

static void expect_refused(const struct buf *file, const char *name, size_t block) {
    char path[] = "/tmp/scales-XXXXXX", words[256];
    struct err err = {0};
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    write_file(path, file->data, file->length);
    ck_assert_int_eq(open_model(path, &err), STATUS_BAD_FILE);
    snprintf(words, sizeof words, "%s: tensor %s: block %zu of ", path, name, block);
    ck_assert_msg(strncmp(err.message, words, strlen(words)) == 0, "\"%s\" does not begin \"%s\"",
                  err.message, words);
    ck_assert_ptr_nonnull(strstr(err.message, "finite scales were expected"));
    close(fd);
    unlink(path);
}

START_TEST(a_scale_that_is_no_number_is_refused) {
    static const size_t blocks[TENSORS] = {299, 0, 255, 130};
    struct tiny_model tiny = model_of(broken[_i].type, _i % 2);
    struct buf file = {0};
    char name[64];
    tiny_model_bytes(&tiny, &file);
    tensor_name(name, _i % TENSORS, tiny.E > 0);
    size_t block = blocks[_i % TENSORS];
    memcpy(block_of(&file, name, block) + broken[_i].at, broken[_i].bytes, broken[_i].n);
    expect_refused(&file, name, block);
    buf_free(&file);
}
END_TEST

/* If several are broken, the first one is named, in any order of threads. */
START_TEST(the_first_of_several_is_named) {
    struct tiny_model tiny = model_of(DTYPE_Q8_0, false);
    struct buf file = {0};
    tiny.V = 8192; /* more blocks than a thread processes at a time */
    tiny_model_bytes(&tiny, &file);
    for (size_t block = 8000; block < 65536; block += 8000)
        memcpy(block_of(&file, names[0], block), "\x00\x7c", 2);
    expect_refused(&file, names[0], 8000);
    buf_free(&file);
}
END_TEST

/* The largest finite scales, which are next to the broken ones, are accepted. */
START_TEST(large_scales_are_read) {
    static const uint8_t halves[] = {0xff, 0x7b, 0x00, 0x00, 0xff, 0xfb};
    struct tiny_model tiny = model_of(DTYPE_Q8_0, false);
    struct buf file = {0};
    struct err err = {0};
    char path[] = "/tmp/scales-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    tiny_model_bytes(&tiny, &file);
    for (size_t i = 0; i < 3; i++) memcpy(block_of(&file, names[1], i), halves + 2 * i, 2);
    write_file(path, file.data, file.length);
    ck_assert_int_eq(open_model(path, &err), STATUS_OK);
    close(fd);
    unlink(path);
    buf_free(&file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_scales_broken");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, a_scale_that_is_no_number_is_refused, 0, N_BROKEN);
    tcase_add_test(core, the_first_of_several_is_named);
    tcase_add_test(core, large_scales_are_read);
    tcase_set_timeout(core, 60);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
