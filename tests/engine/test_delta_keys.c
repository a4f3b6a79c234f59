/* The keys of gated delta rules and state spaces in GGUF files: each wrong one is named at the
 * start. The tests change the bytes of a key in a tiny model's file. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/models/model.h"
#include "support/suite_main.h"

#define FILE_OF(family) "tests/vectors/families/" family ".gguf"

/* A key with a number of 4 bytes, and its wrong value. */
static const struct {
    const char *file, *key;
    uint32_t value;
    const char *words;
} broken[] = {
    {FILE_OF("qwen3_5"), "qwen35.ssm.conv_kernel", 1, "expected 2 to 8, found 1"},
    {FILE_OF("qwen3_5"), "qwen35.ssm.conv_kernel", 3, "blk.0.ssm_conv1d.weight"},
    {FILE_OF("qwen3_5"), "qwen35.ssm.group_count", 0, "expected 1 to 65536, found 0"},
    {FILE_OF("qwen3_5"), "qwen35.ssm.group_count", 4, "key heads must divide value heads"},
    {FILE_OF("qwen3_5"), "qwen35.ssm.time_step_rank", 5, "do not divide among 5 value heads"},
    {FILE_OF("qwen3_5"), "qwen35.ssm.time_step_rank", 4, "a multiple of 16"},
    {FILE_OF("qwen3_5"), "qwen35.ssm.state_size", 300, "heads have at most 256 numbers"},
    {FILE_OF("qwen3_5"), "qwen35.ssm.state_size", 1048576, "more than 1048576 channels"},
    {FILE_OF("qwen3_5"), "qwen35.ssm.inner_size", 0, "expected 1 to 1048576, found 0"},
    {FILE_OF("qwen3_5"), "qwen35.block_count", 3, "expected a flag for each of 3 layers"},
    {FILE_OF("qwen3_next"), "qwen3next.ssm.group_count", 3, "blk.0."},
    {FILE_OF("granite4_h"), "granitehybrid.ssm.conv_kernel", 1, "expected 2 to 8, found 1"},
    {FILE_OF("granite4_h"), "granitehybrid.ssm.conv_kernel", 3, "blk.0.ssm_conv1d.weight"},
    {FILE_OF("granite4_h"), "granitehybrid.ssm.group_count", 3, "groups must divide heads"},
    {FILE_OF("granite4_h"), "granitehybrid.ssm.group_count", 1, "blk.0.ssm_in.weight"},
    {FILE_OF("granite4_h"), "granitehybrid.ssm.time_step_rank", 5, "do not divide among 5"},
    {FILE_OF("granite4_h"), "granitehybrid.ssm.time_step_rank", 8, "a multiple of 16"},
    {FILE_OF("granite4_h"), "granitehybrid.ssm.time_step_rank", 2, "blk.0.ssm_in.weight"},
    {FILE_OF("granite4_h"), "granitehybrid.ssm.state_size", 300, "at most 256 numbers"},
    {FILE_OF("granite4_h"), "granitehybrid.ssm.inner_size", 0, "expected 1 to 1048576, found 0"},
    {FILE_OF("mamba2"), "mamba2.ssm.group_count", 3, "groups must divide heads"},
    {FILE_OF("mamba2"), "mamba2.ssm.inner_size", 128, "blk.0.ssm_in.weight"},
    {FILE_OF("falcon_h1"), "falcon-h1.ssm.state_size", 300, "at most 256 numbers"},
    {FILE_OF("falcon_h1"), "falcon-h1.ssm.group_count", 1, "blk.0.ssm_in.weight"},
    {FILE_OF("nemotron_h"), "nemotron_h.ssm.conv_kernel", 9, "expected 2 to 8, found 9"},
    {FILE_OF("granite4_h_moe"), "granitehybrid.expert_used_count", 9, "expected 1 to 6, found 9"},
    {FILE_OF("qwen3_5_moe"), "qwen35moe.expert_used_count", 9, "expected 1 to 6, found 9"},
    {FILE_OF("kimi_linear"), "kimi-linear.ssm.conv_kernel", 9, "expected 2 to 8, found 9"},
    {FILE_OF("kimi_linear"), "kimi-linear.ssm.conv_kernel", 3, "blk.0.ssm_conv1d_q.weight"},
    {FILE_OF("kimi_linear"), "kimi-linear.kda.head_dim", 0, "expected 1 to 1048576, found 0"},
    {FILE_OF("kimi_linear"), "kimi-linear.kda.head_dim", 32, "blk.0.attn_q.weight"},
    {FILE_OF("kimi_linear"), "kimi-linear.kda.head_dim", 24, "a multiple of 16"},
    {FILE_OF("kimi_linear"), "kimi-linear.expert_group_used_count", 5, "expected 0 to 4, found 5"},
    {FILE_OF("kimi_linear"), "kimi-linear.expert_group_count", 0, "expected 0 to 1, found 2"},
    {FILE_OF("kimi_linear"), "kimi-linear.attention.kv_lora_rank", 40, "must be multiples of 16"},
    {FILE_OF("kimi_linear"), "kimi-linear.block_count", 4, "expected a number for each of 4"},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

static char path[] = "/tmp/penstock-delta-keys.XXXXXX.gguf";

/* Writes a copy of the file in which the key's number is another. */
static void write_changed(const char *file, const char *key, uint32_t value) {
    struct buf bytes = {0};
    char chunk[4096];
    FILE *in = fopen(file, "rb");
    ck_assert_ptr_nonnull(in);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, in)) > 0;) buf_add(&bytes, chunk, n);
    fclose(in);
    char *at = memmem(bytes.data, bytes.length, key, strlen(key));
    ck_assert_ptr_nonnull(at);
    memcpy(at + strlen(key) + 4, &value, sizeof value); /* after the number's type */
    snprintf(path, sizeof path, "/tmp/penstock-delta-keys.XXXXXX.gguf");
    FILE *out = fdopen(mkstemps(path, 5), "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes.data, 1, bytes.length, out), bytes.length);
    ck_assert_int_eq(fclose(out), 0);
    buf_free(&bytes);
}

/* Reads the config, then the tensors of the model. */
static enum status load(const char *file, struct err *err) {
    struct engine *engine = NULL;
    const struct engine_config config = {.model = file,
                                         .max_num_batched_tokens = 16,
                                         .max_num_seqs = 1,
                                         .block_size = 16,
                                         .threads = 1};
    enum status status = engine_open(&engine, &config, err);
    if (!status) engine_close(engine);
    return status;
}

START_TEST(wrong_keys_are_named) {
    struct err err = {0};
    write_changed(broken[_i].file, broken[_i].key, broken[_i].value);
    ck_assert_int_eq(load(path, &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, broken[_i].words), "%s", err.message);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* llama.cpp's converter writes the used groups of Kimi Linear, 1, and not the number of groups. */
START_TEST(a_used_group_needs_no_number_of_groups) {
    struct err err = {0};
    char first[sizeof path];
    write_changed(FILE_OF("kimi_linear"), "kimi-linear.expert_group_used_count", 1);
    memcpy(first, path, sizeof first);
    write_changed(first, "kimi-linear.expert_group_count", 0);
    ck_assert_msg(load(path, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(unlink(first) + unlink(path), 0);
}
END_TEST

START_TEST(keys_are_the_shape_of_the_rule) {
    struct model_config config;
    struct gguf *gguf = NULL;
    struct err err = {0};
    const char *file = FILE_OF("qwen3_5");
    ck_assert_int_eq(gguf_open(&gguf, file, &err), STATUS_OK);
    ck_assert_int_eq(
        model_config_read(&config, &(struct model_file){.path = file, .gguf = gguf}, &err),
        STATUS_OK);
    ck_assert(config.state.kind == STATE_DELTA && config.state.tiles && config.taps == 4);
    ck_assert(config.state.Hk == 2 && config.state.Hv == 6 && config.state.dk == 16);
    ck_assert(config.state.dv == 16 && config.C == 160 && config.rope.D_rope == 4);
    ck_assert_int_eq(config_recurrent_layers(&config), 3);
    ck_assert(config.layer[0].is_recurrent && !config.layer[1].is_recurrent);
    ck_assert_int_eq(config_state_floats(&config), 3 * 160 + 6 * 16 * 16);
    gguf_close(gguf);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/delta_keys");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, wrong_keys_are_named, 0, N_BROKEN);
    tcase_add_test(all, a_used_group_needs_no_number_of_groups);
    tcase_add_test(all, keys_are_the_shape_of_the_rule);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
