/* The settings that are read from a llama model's keys, and the message for each kind of error. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/models/model.h"
#include "support/llama_keys.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

#define MODEL "models/SmolLM2-135M-Instruct.Q4_1.gguf"

/* ---- helpers -------------------------------------------------------------------------------- */

static void read_written(struct gguf_writer *writer, struct model_config *info) {
    struct buf file = {0};
    struct err err = {0};
    struct gguf *gguf = llama_keys_open(writer, &file);
    enum status status = model_config_read(
        info, &(struct model_file){.path = "/models/given.gguf", .gguf = gguf}, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    gguf_close(gguf);
    buf_free(&file);
}

static void expect_refused(struct gguf_writer *writer, const char *param, const char *message) {
    struct model_config info;
    struct buf file = {0};
    struct err err = {0};
    struct gguf *gguf = llama_keys_open(writer, &file);
    ck_assert_int_eq(
        model_config_read(&info, &(struct model_file){.path = "x.gguf", .gguf = gguf}, &err),
        STATUS_BAD_FILE);
    ck_assert_str_eq(err.param, param);
    ck_assert_msg(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
    gguf_close(gguf);
    buf_free(&file);
}

/* Expects a model to be refused that is valid except for one number. */
static void expect_number_refused(const char *key, uint32_t value, const char *message) {
    struct gguf_writer writer = {0};
    llama_keys(&writer, key);
    gguf_writer_u32(&writer, key, value);
    expect_refused(&writer, key, message);
}

static void expect_float_refused(const char *key, float value, const char *message) {
    struct gguf_writer writer = {0};
    llama_keys(&writer, key);
    gguf_writer_f32(&writer, key, value);
    expect_refused(&writer, key, message);
}

static void expect_text_refused(const char *key, const char *text, const char *message) {
    struct gguf_writer writer = {0};
    llama_keys(&writer, key);
    gguf_writer_string(&writer, key, text);
    expect_refused(&writer, key, message);
}

/* ---- the model ------------------------------------------------------------------------------ */

START_TEST(the_real_model_is_understood) {
    struct gguf *gguf = NULL;
    struct model_config info;
    struct err err = {0};
    ck_assert_msg(gguf_open(&gguf, MODEL, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(model_config_read(&info, &(struct model_file){.path = MODEL, .gguf = gguf},
                                    &err) == STATUS_OK,
                  "%s", err.message);
    ck_assert_str_eq(info.name, "Smollm2 135M 8k Lc100K Mix1 Ep2");
    ck_assert_str_eq(info.architecture, "llama");
    ck_assert_str_eq(info.quantisation, "q4_1");
    ck_assert(info.V == 49152 && info.K == 576 && info.F == 1536 && info.L == 30);
    ck_assert(info.H == 9 && info.G == 3 && info.D == 64 && info.rope.D_rope == 64);
    ck_assert_int_eq(info.context_length, 8192);
    ck_assert(info.rope.base == 100000.0f && info.norm_epsilon == 1e-5f);
    ck_assert_int_eq(info.n_parameters, 134515008);
    ck_assert_int_eq(info.file_bytes, 98362432);
    gguf_close(gguf);
}
END_TEST

START_TEST(a_tiny_model_is_understood) {
    struct tiny_model tiny;
    struct buf file = {0};
    struct gguf *gguf = NULL;
    struct model_config info;
    tiny_model_defaults(&tiny);
    tiny.dtype = DTYPE_Q8_0;
    tiny.V = 300;
    tiny_model_bytes(&tiny, &file);
    ck_assert_int_eq(gguf_open_memory(&gguf, file.data, file.length, NULL), STATUS_OK);
    ck_assert_int_eq(
        model_config_read(&info, &(struct model_file){.path = "x", .gguf = gguf}, NULL), STATUS_OK);
    ck_assert(info.V == 300 && info.K == 64 && info.F == 96 && info.L == 2);
    ck_assert(info.H == 4 && info.G == 2 && info.D == 16 && info.rope.D_rope == 16);
    ck_assert_str_eq(info.quantisation, "q8_0");
    int layer = 2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64;
    ck_assert_int_eq(info.n_parameters, 300 * 64 + 64 + 2 * layer);
    ck_assert_int_eq(info.n_layer_parameters, 2 * (layer - 2 * 64));
    gguf_close(gguf);
    buf_free(&file);
}
END_TEST

START_TEST(missing_optional_keys_have_defaults) {
    struct gguf_writer writer = {0};
    struct model_config info;
    llama_keys(&writer, "llama.attention.head_count_kv");
    read_written(&writer, &info);
    ck_assert_str_eq(info.name, "given.gguf");
    ck_assert(info.G == 4 && info.D == 16 && info.rope.D_rope == 16);
    ck_assert(info.rope.base == 10000.0f);
    ck_assert_str_eq(info.quantisation, "none");
    llama_keys(&writer, "llama.vocab_size");
    read_written(&writer, &info);
    ck_assert_int_eq(info.V, 6);
}
END_TEST

/* Files of Nemotron-H may have the epsilon under the key of other norms alone. */
START_TEST(the_epsilon_of_other_norms_serves_if_it_is_alone) {
    struct gguf_writer writer = {0};
    struct model_config info;
    llama_keys(&writer, llama_epsilon_key);
    gguf_writer_f32(&writer, "llama.attention.layer_norm_epsilon", 0.25f);
    read_written(&writer, &info);
    ck_assert(info.norm_epsilon == 0.25f);
    llama_keys(&writer, "");
    gguf_writer_f32(&writer, "llama.attention.layer_norm_epsilon", 0.25f);
    read_written(&writer, &info);
    ck_assert(info.norm_epsilon == 1e-5f);
}
END_TEST

START_TEST(a_head_may_have_its_own_size) {
    struct gguf_writer writer = {0};
    struct model_config info;
    llama_keys(&writer, "llama.embedding_length");
    gguf_writer_u32(&writer, "llama.embedding_length", 62);
    gguf_writer_u32(&writer, "llama.attention.key_length", 24);
    gguf_writer_u32(&writer, "llama.rope.dimension_count", 8);
    read_written(&writer, &info);
    ck_assert(info.K == 62 && info.D == 24 && info.rope.D_rope == 8);
}
END_TEST

START_TEST(each_missing_key_is_named) {
    static const char *const keys[] = {
        "general.architecture",   "llama.block_count",         "llama.context_length",
        "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count",
        "tokenizer.ggml.tokens",  llama_epsilon_key,
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct gguf_writer writer = {0};
        llama_keys(&writer, keys[i]);
        expect_refused(&writer, keys[i], "is missing");
    }
}
END_TEST

START_TEST(numbers_out_of_range_are_refused) {
    for (size_t i = 0; i < N_LLAMA_SHAPE; i++) {
        expect_number_refused(llama_shape[i].key, 0, "expected 1 to");
        expect_number_refused(llama_shape[i].key, UINT32_MAX, "found 4294967295");
        expect_float_refused(llama_shape[i].key, 2, "expected an integer, found float32");
    }
}
END_TEST

START_TEST(letters_that_do_not_fit_are_refused) {
    expect_number_refused("llama.attention.head_count_kv", 3, "3 key-value heads");
    expect_number_refused("llama.attention.head_count_kv", 8, "do not divide 4 heads");
    expect_number_refused("llama.attention.head_count", 6, "6 heads");
    expect_number_refused("llama.attention.value_length", 32, "keys of 16 and values of 32");
    expect_number_refused("llama.rope.dimension_count", 15,
                          "an even number up to the head's size 16");
    expect_number_refused("llama.rope.dimension_count", 18, "found 18");
    expect_number_refused("llama.vocab_size", 7, "is 7, but the file has 6 tokens");
    struct gguf_writer wide = {0};
    llama_keys(&wide, "llama.attention.head_count");
    gguf_writer_u32(&wide, "llama.attention.head_count", 65536);
    gguf_writer_u32(&wide, "llama.attention.key_length", 1 << 20);
    expect_refused(&wide, "llama.attention.head_count", "more than 1048576 wide");
}
END_TEST

START_TEST(odd_floats_are_refused) {
    expect_float_refused(llama_epsilon_key, 0, "between 0 and 1");
    expect_float_refused(llama_epsilon_key, -1, "found -1");
    expect_float_refused(llama_epsilon_key, 1, "between 0 and 1");
    expect_float_refused(llama_epsilon_key, __builtin_nanf(""), "found nan");
    expect_float_refused("llama.rope.freq_base", 0, "a number from 1");
    expect_float_refused("llama.rope.freq_base", __builtin_inff(), "found inf");
    expect_float_refused("llama.rope.freq_base", __builtin_nanf(""), "found nan");
}
END_TEST

/* Reads a file's sampling settings and frees the writer. */
static enum status read_sampling(struct gguf_writer *writer, struct sampling_defaults *out,
                                 struct err *err) {
    struct buf file = {0};
    struct gguf *gguf = llama_keys_open(writer, &file);
    enum status status =
        model_file_sampling(out, &(struct model_file){.path = "x.gguf", .gguf = gguf}, 100, err);
    gguf_close(gguf);
    buf_free(&file);
    return status;
}

START_TEST(defaults_of_sampling_are_read) {
    struct gguf_writer none = {0}, all = {0};
    struct sampling_defaults got;
    struct err err = {0};
    ck_assert_int_eq(read_sampling(&none, &got, &err), STATUS_OK);
    ck_assert(got.temperature < 0 && got.top_p < 0 && got.min_p < 0 && got.top_k < 0);
    ck_assert(got.repetition_penalty < 0 && got.n_suppressed == 0);
    gguf_writer_f32(&all, "general.sampling.temp", 0.5f);
    gguf_writer_f32(&all, "general.sampling.top_p", 0.25f);
    gguf_writer_f32(&all, "general.sampling.min_p", 0.125f);
    gguf_writer_f32(&all, "general.sampling.penalty_repeat", 1.5f);
    gguf_writer_u32(&all, "general.sampling.top_k", 20);
    gguf_writer_array(&all, SUPPRESS_KEY, GGUF_INT32, 4, (int32_t[]){7, -1, 99, 100}, 16);
    ck_assert_int_eq(read_sampling(&all, &got, &err), STATUS_OK);
    ck_assert(got.temperature == 0.5 && got.top_p == 0.25 && got.min_p == 0.125);
    ck_assert(got.repetition_penalty == 1.5 && got.top_k == 20);
    ck_assert(got.n_suppressed == 2 && got.suppressed[0] == 7 && got.suppressed[1] == 99);
}
END_TEST

START_TEST(wrong_defaults_of_sampling_are_refused) {
    static const struct {
        const char *key;
        float value;
        const char *words;
    } wrong[] = {
        {"general.sampling.temp", 2.5f, "expected a number from 0 to 2, found 2.5"},
        {"general.sampling.temp", __builtin_nanf(""), "from 0 to 2, found nan"},
        {"general.sampling.top_p", 0, "from 1e-06 to 1, found 0"},
        {"general.sampling.min_p", -0.5f, "from 0 to 1, found -0.5"},
        {"general.sampling.penalty_repeat", 0, "from 1e-06 to 1e+06, found 0"},
        {"general.sampling.top_k", 1, "expected an integer, found float32"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct gguf_writer writer = {0};
        struct sampling_defaults got;
        struct err err = {0};
        gguf_writer_f32(&writer, wrong[i].key, wrong[i].value);
        ck_assert_int_eq(read_sampling(&writer, &got, &err), STATUS_BAD_FILE);
        ck_assert_str_eq(err.param, wrong[i].key);
        ck_assert_msg(strstr(err.message, wrong[i].words), "%s", err.message);
    }
}
END_TEST

START_TEST(too_many_suppressed_ids_are_refused) {
    static const int32_t ids[MAX_SUPPRESSED + 1] = {0};
    struct gguf_writer writer = {0};
    struct sampling_defaults got;
    struct err err = {0};
    gguf_writer_array(&writer, SUPPRESS_KEY, GGUF_INT32, MAX_SUPPRESSED + 1, ids, sizeof ids);
    ck_assert_int_eq(read_sampling(&writer, &got, &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, "expected at most 64 ids, found 65"), "%s", err.message);
}
END_TEST

START_TEST(a_file_that_would_give_wrong_answers_is_refused) {
    expect_text_refused("general.architecture", "mamba",
                        "\"mamba\" is not supported; docs/models.md lists the ");
    expect_text_refused("general.architecture", "\033[2J", "the architecture \"\"");
    expect_text_refused("llama.rope.scaling.type", "ntk", "\"ntk\" is not supported; \"none\"");
    expect_float_refused("llama.rope.scaling.yarn_ext_factor", 0.5f, "from 1 to 1, found 0.5");
    expect_float_refused("llama.logit_scale", 4, "only 1 is supported in a model");
    expect_float_refused("llama.residual_scale", 0.5f, "only 1 is supported in a model");
    struct gguf_writer writer = {0};
    struct model_config info;
    llama_keys(&writer, "");
    gguf_writer_u32(&writer, "llama.attention.sliding_window", 255);
    expect_refused(&writer, "sliding_window", "a window of 255 tokens and a context of 256");
    llama_keys(&writer, "");
    gguf_writer_u32(&writer, "llama.attention.sliding_window", 256);
    gguf_writer_string(&writer, "llama.rope.scaling.type", "none");
    gguf_writer_u32(&writer, "llama.expert_count", 0);
    read_written(&writer, &info);
}
END_TEST

/* Expects Mixtral's keys to be refused that are valid except for one number. */
static void expect_expert_refused(const char *key, uint32_t value, const char *message) {
    static const struct number_key keys[] = {{"llama.expert_count", 8},
                                             {"llama.expert_used_count", 2}};
    struct gguf_writer writer = {0};
    llama_keys(&writer, key);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i].key) != 0) gguf_writer_u32(&writer, keys[i].key, keys[i].value);
    gguf_writer_u32(&writer, key, value);
    expect_refused(&writer, key, message);
}

START_TEST(experts_that_are_not_served_are_refused) {
    expect_expert_refused("llama.expert_count", 1025, "1025");
    expect_expert_refused("llama.expert_used_count", 0, "0");
    expect_expert_refused("llama.expert_used_count", 9, "9");
    expect_expert_refused("llama.expert_gating_func", 2, "only 1 is supported, found 2");
    expect_expert_refused("llama.leading_dense_block_count", 1, "only 0 is supported, found 1");
    expect_expert_refused("llama.expert_group_count", 4, "only 1 is supported, found 4");
    struct gguf_writer writer = {0};
    llama_keys(&writer, "");
    gguf_writer_u32(&writer, "llama.expert_count", 8);
    gguf_writer_u32(&writer, "llama.expert_used_count", 2);
    gguf_writer_f32(&writer, "llama.expert_weights_scale", -2.5f);
    expect_refused(&writer, "llama.expert_weights_scale", "found -2.5");
    llama_keys(&writer, "");
    gguf_writer_u32(&writer, "llama.expert_count", 8);
    expect_refused(&writer, "llama.expert_used_count", "llama.expert_used_count");
    llama_keys(&writer, "llama.feed_forward_length");
    gguf_writer_u32(&writer, "llama.expert_count", 8);
    gguf_writer_u32(&writer, "llama.expert_used_count", 2);
    gguf_writer_u32(&writer, "llama.feed_forward_length", 72);
    expect_refused(&writer, "experts", "widths must be multiples of 16");
}
END_TEST

static void expect_tensor_refused(const char *name) {
    struct gguf_writer writer = {0};
    const float data[64] = {0};
    llama_keys(&writer, "");
    gguf_writer_tensor(&writer, "blk.1.attn_norm.weight", DTYPE_F32, 1, (int64_t[]){64}, data,
                       sizeof data);
    gguf_writer_tensor(&writer, name, DTYPE_F32, 1, (int64_t[]){64}, data, sizeof data);
    expect_refused(&writer, name, "is not supported in a model of the architecture \"llama\"");
}

/* Tensors that no part of the forward pass reads. */
START_TEST(tensors_that_would_be_left_out_are_refused) {
    expect_tensor_refused("blk.0.ffn_norm.bias");
    expect_tensor_refused("blk.0.attn_q_norm.weight");
    expect_tensor_refused("blk.2.attn_norm.weight"); /* there are 2 layers */
    expect_tensor_refused("blk.01.attn_norm.weight");
    expect_tensor_refused("attn_norm.weight");
    expect_tensor_refused("blk.0.output_norm.weight");
    expect_tensor_refused("position_embd.weight");
    expect_tensor_refused("rope_factors_long.weight");
}
END_TEST

/* Layer 0 has an MLP and layer 1 experts. A tensor of the other kind does not belong to the
 * layer. */
START_TEST(layers_have_an_mlp_or_experts) {
    static const char *const names[] = {"blk.1.ffn_gate.weight", "blk.0.ffn_gate_inp.weight"};
    const float data[64] = {0};
    for (int i = 0; i < 2; i++) {
        struct gguf_writer writer = {0};
        gguf_writer_string(&writer, "general.architecture", "qwen3moe");
        for (size_t k = 0; k < N_LLAMA_SHAPE; k++) {
            char key[64];
            snprintf(key, sizeof key, "qwen3moe%s", llama_shape[k].key + strlen("llama"));
            gguf_writer_u32(&writer, key, llama_shape[k].value);
        }
        gguf_writer_f32(&writer, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-5f);
        gguf_writer_u32(&writer, "qwen3moe.expert_count", 8);
        gguf_writer_u32(&writer, "qwen3moe.expert_used_count", 2);
        gguf_writer_u32(&writer, "qwen3moe.leading_dense_block_count", 1);
        llama_keys_tokenizer(&writer, "");
        gguf_writer_tensor(&writer, "blk.0.ffn_gate.weight", DTYPE_F32, 1, (int64_t[]){64}, data,
                           sizeof data);
        gguf_writer_tensor(&writer, names[i], DTYPE_F32, 1, (int64_t[]){64}, data, sizeof data);
        expect_refused(&writer, names[i],
                       "is not supported in a model of the architecture \"qwen3moe\"");
    }
}
END_TEST

/* The keys do not state it: YaRN's range ends between pairs in gpt-oss' files, and at pairs in
 * others. */
START_TEST(yarn_ends_as_the_family_says) {
    static const char *const files[] = {"tests/vectors/families/gpt_oss.gguf",
                                        "tests/vectors/families/olmo3.gguf"};
    for (int i = 0; i < 2; i++) {
        struct model_file file;
        struct model_config config;
        struct err err;
        ck_assert_int_eq(model_file_open(&file, files[i], MODEL_WHOLE, &err), STATUS_OK);
        ck_assert_int_eq(model_config_read(&config, &file, &err), STATUS_OK);
        ck_assert_int_eq(config.rope.stretch.kind, ROPE_YARN);
        ck_assert_int_eq(config.rope.stretch.truncates, i == 1);
        model_file_close(&file);
    }
}
END_TEST

START_TEST(names_are_fit_to_show) {
    struct gguf_writer writer = {0};
    struct model_config info;
    char longer[300] = "";
    llama_keys(&writer, "");
    gguf_writer_string(&writer, "general.name", "bad \xff bytes");
    read_written(&writer, &info);
    ck_assert_str_eq(info.name, "given.gguf");
    llama_keys(&writer, "");
    gguf_writer_string(&writer, "general.name", "line\nbreak");
    read_written(&writer, &info);
    ck_assert_str_eq(info.name, "given.gguf");
    for (int i = 0; i < 90; i++) strcat(longer, "\u20ac");
    llama_keys(&writer, "");
    gguf_writer_string(&writer, "general.name", longer);
    read_written(&writer, &info);
    ck_assert_uint_eq(strlen(info.name), 126);
    ck_assert(strncmp(info.name, longer, 126) == 0);
}
END_TEST

/* ---- the suite ------------------------------------------------------------------------------ */

int main(void) {
    const TTest *const tests[] = {
        the_real_model_is_understood,
        a_tiny_model_is_understood,
        missing_optional_keys_have_defaults,
        the_epsilon_of_other_norms_serves_if_it_is_alone,
        a_head_may_have_its_own_size,
        each_missing_key_is_named,
        numbers_out_of_range_are_refused,
        letters_that_do_not_fit_are_refused,
        odd_floats_are_refused,
        defaults_of_sampling_are_read,
        wrong_defaults_of_sampling_are_refused,
        too_many_suppressed_ids_are_refused,
        a_file_that_would_give_wrong_answers_is_refused,
        experts_that_are_not_served_are_refused,
        tensors_that_would_be_left_out_are_refused,
        layers_have_an_mlp_or_experts,
        yarn_ends_as_the_family_says,
        names_are_fit_to_show,
    };
    Suite *suite = suite_create("engine/gguf_config");
    TCase *cases = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
