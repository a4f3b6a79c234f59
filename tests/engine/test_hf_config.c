/* A config.json instead of a model file: the settings that are read, the messages for refusals, and
 * that a model with random weights runs with the same results each time. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/models/model.h"
#include "support/hf_config_text.h"
#include "support/suite_main.h"

#define ARCHITECTURE "\"architectures\": [\"LlamaForCausalLM\"]"
#define SHAPE                                                                                      \
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 8, "                   \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 300, "                \
    "\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 128"
#define LLAMA3                                                                                     \
    "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "                      \
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}"

/* Returns the config of a text, and the rest of the file in *file, which the caller closes. */
static struct model_config read_config(struct model_file *file, const char *text) {
    struct model_config config;
    struct err err = {0};
    *file = (struct model_file){.path = "x/config.json"};
    ck_assert_int_eq(hf_config_parse(&file->hf, text, strlen(text), &err), STATUS_OK);
    ck_assert_msg(model_config_read(&config, file, &err) == STATUS_OK, "%s", err.message);
    return config;
}

START_TEST(shapes_are_read) {
    struct model_file file;
    struct model_config c = read_config(&file, "{" ARCHITECTURE ", " SHAPE "}");
    ck_assert(c.K == 64 && c.F == 96 && c.L == 8 && c.H == 4 && c.G == 2 && c.D == 16);
    ck_assert(c.V == 300 && c.context_length == 128 && file.hf->dtype == DTYPE_BF16);
    ck_assert(c.rope.base == 10000 && c.norm_epsilon == 1e-5f && !c.rope.stretch.kind);
    ck_assert(!file.hf->is_tied && weights_lookup(&file.hf->weights, "output.weight"));
    model_file_close(&file);
    c = read_config(&file, "{" ARCHITECTURE ", " SHAPE ", \"head_dim\": 32, \"torch_dtype\": "
                           "\"float32\", \"tie_word_embeddings\": true, \"rope_theta\": 5e5, "
                           "\"rope_scaling\": " LLAMA3 "}");
    ck_assert(c.D == 32 && file.hf->dtype == DTYPE_F32 && c.rope.base == 5e5f);
    ck_assert(file.hf->is_tied && !weights_lookup(&file.hf->weights, "output.weight"));
    ck_assert(c.rope.stretch.kind == ROPE_LLAMA3 && c.rope.stretch.factor == 8);
    ck_assert(c.rope.stretch.original_context == 8192);
    model_file_close(&file);
    c = read_config(&file, "{" ARCHITECTURE ", \"intermediate_size\": [48, 48, 48], " SHAPE "}");
    ck_assert_int_eq(c.F, 48);
    model_file_close(&file);
    c = read_config(&file, "{" ARCHITECTURE ", " SHAPE ", \"dtype\": \"float16\", "
                           "\"rope_parameters\": {\"rope_theta\": 1e6}, "
                           "\"sliding_window\": null}");
    ck_assert(file.hf->dtype == DTYPE_F16 && c.rope.base == 1e6f && !c.rope.stretch.kind);
    model_file_close(&file);
}
END_TEST

/* Each tensor has the name, shape and type of a file's tensor, without data. */
START_TEST(tensors_are_listed) {
    struct model_file file;
    const struct weight *weight;
    struct model_config c = read_config(&file, "{" ARCHITECTURE ", " SHAPE "}");
    const struct weights *weights = model_file_weights(&file);
    ck_assert_int_eq(weights->n, 3 + 9 * 8);
    ck_assert_int_eq(weights_matrix(weights, "token_embd.weight", 300, 64, &weight, NULL), 0);
    ck_assert(weight->type == DTYPE_BF16 && !weight->data);
    ck_assert_int_eq(weights_matrix(weights, "blk.7.attn_k.weight", 32, 64, &weight, NULL), 0);
    ck_assert_int_eq(weights_matrix(weights, "blk.0.ffn_down.weight", 64, 96, &weight, NULL), 0);
    ck_assert_int_eq(weights_vector(weights, "blk.3.ffn_norm.weight", 64, &weight, NULL), 0);
    ck_assert_ptr_null(weights_lookup(weights, "blk.8.ffn_norm.weight"));
    ck_assert_int_eq(c.n_parameters,
                     2 * 300 * 64 + 64 + 8 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64));
    ck_assert_str_eq(c.quantisation, "bf16");
    /* the memory plan counts 2 bytes per matrix weight and 4 per norm weight */
    ck_assert_int_eq(c.file_bytes, 2 * c.n_parameters + 2 * (64 + 8 * 2 * 64));
    model_file_close(&file);
}
END_TEST

/* Keys with other names, options, and tensors that only some families have. */
START_TEST(families_differ) {
    struct model_file file;
    struct model_config c = read_config(
        &file, "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": 64, \"n_layer\": 2, "
               "\"n_head\": 4, \"n_positions\": 128, \"vocab_size\": 300, \"n_inner\": null, "
               "\"layer_norm_epsilon\": 1e-5, \"activation_function\": \"gelu_new\"}");
    const struct weights *weights = model_file_weights(&file);
    ck_assert(c.K == 64 && c.F == 256 && c.L == 2 && c.H == 4 && c.G == 4 && c.D == 16);
    ck_assert(c.norm == NORM_LAYER && c.rope.D_rope == 0 && c.context_length == 128);
    ck_assert(weights_lookup(weights, "blk.1.attn_qkv.bias") &&
              !weights_lookup(weights, "output.weight"));
    ck_assert_int_eq(weights_lookup(weights, "position_embd.weight")->dim[1], 128);
    model_file_close(&file);
    c = read_config(&file, "{\"architectures\": [\"Gemma2ForCausalLM\"], \"head_dim\": 32, "
                           "\"query_pre_attn_scalar\": 64, \"attn_logit_softcapping\": 50.0, "
                           "\"final_logit_softcapping\": 30.0, \"sliding_window\": 32, "
                           "\"hidden_activation\": \"gelu_pytorch_tanh\", " SHAPE "}");
    ck_assert(c.D == 32 && c.attention_scale == 0.125f && c.embedding_scale == 8);
    ck_assert(c.attention_cap == 50 && c.logit_cap == 30);
    ck_assert(c.layer[0].window == 32 && c.layer[1].window == 0 && c.layer[6].window == 32);
    ck_assert_ptr_nonnull(weights_lookup(model_file_weights(&file), "blk.7.post_ffw_norm.weight"));
    struct attention_window windows[MAX_WINDOWS];
    ck_assert(model_windows(&c, windows) == 2 && windows[0].length == 32 && windows[1].length == 0);
    model_file_close(&file);
    c = read_config(&file, "{\"architectures\": [\"Qwen2ForCausalLM\"], \"sliding_window\": 32, "
                           "\"use_sliding_window\": false, " SHAPE "}");
    ck_assert(c.rope.layout == ROPE_HALVES && c.window == 0 && model_windows(&c, windows) == 1);
    ck_assert_ptr_nonnull(weights_lookup(model_file_weights(&file), "blk.0.attn_k.bias"));
    model_file_close(&file);
    c = read_config(&file, "{\"architectures\": [\"Qwen3ForCausalLM\"], " SHAPE "}");
    ck_assert_int_eq(weights_lookup(model_file_weights(&file), "blk.0.attn_q_norm.weight")->dim[0],
                     16);
    model_file_close(&file);
}
END_TEST

/* A text, and the key and words of its error. */
struct wrong_key {
    const char *text, *param, *words;
};

static void check_wrong_keys(const struct wrong_key *wrong, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct model_file file = {.path = "x/config.json"};
        struct model_config config;
        struct err err = {0};
        enum status status = hf_config_parse(&file.hf, wrong[i].text, strlen(wrong[i].text), &err);
        if (!status) status = model_config_read(&config, &file, &err);
        model_file_close(&file);
        ck_assert_int_eq(status, STATUS_BAD_FILE);
        ck_assert_str_eq(err.param, wrong[i].param);
        ck_assert_msg(strstr(err.message, wrong[i].words) != NULL, "%s", err.message);
    }
}

START_TEST(a_wrong_key_is_named) {
    static const struct wrong_key wrong[] = {
        {"", "", "not valid JSON"},
        {"[1]", "", "is an array, not a JSON object"},
        {"{\"architectures\": [\"MambaForCausalLM\"]}", "architectures", "\"MambaForCausalLM\""},
        {"{\"architectures\": [\"\\u001b[2J\"]}", "architectures", "\"\""},
        {"{" SHAPE "}", "architectures", "expected an array with the name of one, found nothing"},
        {"{" ARCHITECTURE "}", "vocab_size", "is missing"},
        {"{" ARCHITECTURE ", \"vocab_size\": \"3\"}", "vocab_size", "a number"},
        {"{" ARCHITECTURE ", \"vocab_size\": [300, 301]}", "vocab_size",
         "a number, found an array"},
        {"{" ARCHITECTURE ", \"vocab_size\": [300, \"300\"]}", "vocab_size", "found an array"},
        {"{" ARCHITECTURE ", \"vocab_size\": []}", "vocab_size", "found an array"},
        {"{" ARCHITECTURE ", \"vocab_size\": [256, 256]}", "vocab_size", "257 to"},
        {"{" ARCHITECTURE ", \"vocab_size\": 256}", "vocab_size", "257 to"},
        {"{" ARCHITECTURE ", \"vocab_size\": 300.5}", "vocab_size", "whole number"},
        {"{" ARCHITECTURE ", \"vocab_size\": 1e300}", "vocab_size", "found 1e+300"},
        {"{" ARCHITECTURE ", \"vocab_size\": 300}", "hidden_size", "key hidden_size is missing"},
        {"{" ARCHITECTURE ", \"num_hidden_layers\": 1.5, " SHAPE "}", "num_hidden_layers",
         "key num_hidden_layers: expected a whole number"},
        {"{" ARCHITECTURE ", \"head_dim\": 7, " SHAPE "}", "head_dim", "even"},
        {"{" ARCHITECTURE ", \"hidden_size\": 66, " SHAPE "}", "num_attention_heads", "divide"},
        {"{" ARCHITECTURE ", \"num_key_value_heads\": 3, " SHAPE "}", "num_key_value_heads",
         "divide"},
        {"{\"architectures\": [\"MistralForCausalLM\"], " SHAPE ", \"mlp_bias\": true}", "mlp_bias",
         "only false"},
        {"{" ARCHITECTURE ", " SHAPE ", \"hidden_act\": \"gelu\"}", "hidden_act", "\"gelu\""},
        {"{" ARCHITECTURE ", " SHAPE ", \"do_layer_norm_before\": false}", "do_layer_norm_before",
         "only true is supported"},
        {"{" ARCHITECTURE ", " SHAPE ", \"use_parallel_residual\": true}", "use_parallel_residual",
         "only false is supported"},
        {"{\"architectures\": [\"Gemma4ForCausalLM\"], \"sliding_window\": 32, \"layer_types\": "
         "[\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\", "
         "\"full_attention\", \"full_attention\", \"full_attention\", "
         "\"sliding_attention\"], " SHAPE "}",
         "layer_types", "only \"full_attention\" is supported in the last layer"},
        {"{" ARCHITECTURE ", " SHAPE ", \"qk_layernorm\": true}", "qk_layernorm",
         "only false is supported"},
        {"{" ARCHITECTURE ", " SHAPE ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, "
         "\"llama_4_scaling_beta\": 0.1}}",
         "llama_4_scaling_beta", "without \"yarn\""},
        {"{" ARCHITECTURE ", " SHAPE ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, "
         "\"llama_4_scaling_beta\": 0.1}}",
         "llama_4_scaling_beta", "only 0 is supported in a model"},
        {"{" ARCHITECTURE ", " SHAPE ", \"word_embed_proj_dim\": 32}", "word_embed_proj_dim",
         "only the width of the stream, 64, is supported"},
        {"{" ARCHITECTURE ", " SHAPE ", \"sliding_window\": 64}", "sliding_window",
         "a window of 64 "},
        {"{" ARCHITECTURE ", " SHAPE ", \"rope_scaling\": {\"type\": \"ntk\"}}", "rope_scaling",
         "\"ntk\""},
        {"{" ARCHITECTURE ", " SHAPE ", \"rope_scaling\": {\"type\": \"llama3\"}}", "factor",
         "missing"},
        {"{" ARCHITECTURE ", " SHAPE ", \"torch_dtype\": \"int4\"}", "torch_dtype", "\"int4\""},
        {"{" ARCHITECTURE ", " SHAPE ", \"tie_word_embeddings\": 1}", "tie_word_embeddings",
         "true or false"},
    };
    check_wrong_keys(wrong, sizeof wrong / sizeof *wrong);
}
END_TEST

#define FAMILY(name, keys) "{\"architectures\": [\"" name "ForCausalLM\"], " SHAPE ", " keys "}"
#define EXPERTS                                                                                    \
    "\"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "

/* Keys that a family does not serve. */
START_TEST(a_wrong_key_of_a_family_is_named) {
    static const struct wrong_key wrong[] = {
        {FAMILY("HunYuanDenseV1", "\"use_cla\": true"), "use_cla", "only false"},
        {FAMILY("HunYuanDenseV1", "\"use_mla\": true"), "use_mla", "only false"},
        {FAMILY("HunYuanMoEV1", EXPERTS "\"attention_bias\": true"), "attention_bias",
         "only false"},
        {FAMILY("HunYuanMoEV1", "\"num_experts\": 4, \"moe_topk\": [2, 3]"), "num_experts_per_tok",
         "found an array"},
        {FAMILY("HunYuanMoEV1",
                "\"num_experts\": 4, \"moe_topk\": 2, \"moe_intermediate_size\": [32, 48]"),
         "moe_intermediate_size", "found an array"},
        {FAMILY("Afmoe", EXPERTS "\"mup_enabled\": false"), "mup_enabled", "only true"},
        {FAMILY("Afmoe", EXPERTS "\"route_scale\": 0"), "routed_scaling_factor", "found 0"},
        {"{\"architectures\": [\"InternVLForConditionalGeneration\"], \"text_config\": "
         "{\"model_type\": \"qwen9\"}}",
         "architectures", "\"qwen9\" is not supported"},
        {"{\"architectures\": [\"InternVLForConditionalGeneration\"], \"model_type\": "
         "\"internvl\"}",
         "architectures", "\"InternVLForConditionalGeneration\""},
        {"{\"architectures\": [\"InternVLForCausalLM\"], \"text_config\": {\"model_type\": "
         "\"qwen3\"}}",
         "architectures", "\"InternVLForCausalLM\""},
        {FAMILY("Dots1", EXPERTS "\"attention_bias\": true"), "attention_bias", "only false"},
        {FAMILY("SolarOpen", EXPERTS "\"mlp_bias\": true"), "mlp_bias", "only false"},
        {FAMILY("SolarOpen", EXPERTS "\"sliding_window\": 64"), "sliding_window",
         "a window of 64 "},
        {FAMILY("Cwm", "\"attention_bias\": true"), "attention_bias", "only false"},
        {FAMILY("Cwm", "\"layer_types\": [\"chunked_attention\"]"), "layer_types", "an array of 8"},
        {FAMILY("Jais2", "\"layer_norm_eps\": 1e-5, \"hidden_act\": \"gelu\""), "hidden_act",
         "\"relu2\""},
        {FAMILY("Jais2", "\"layer_norm_eps\": 1e-5, \"sliding_window\": 64"), "sliding_window",
         "a window of 64 "},
        {FAMILY("ExaoneMoe", EXPERTS "\"mlp_layer_types\": [\"sparse\"]"), "mlp_layer_types",
         "for each of 8 layers"},
        {FAMILY("ExaoneMoe", EXPERTS "\"sliding_window\": 8, \"sliding_window_pattern\": \"LLLG\""),
         "sliding_window_pattern", "a number"},
        {FAMILY("Dots1", EXPERTS "\"sliding_window\": 64"), "sliding_window", "a window of 64 "},
        {FAMILY("Dots1", EXPERTS "\"first_k_dense_replace\": 8"), "first_k_dense_replace",
         "expected 0 to 7, found 8"},
    };
    check_wrong_keys(wrong, sizeof wrong / sizeof *wrong);
}
END_TEST

#define ENCODER(name) "\"architectures\": [\"" name "Model\"], " SHAPE ", \"hidden_act\": \"gelu\""

START_TEST(a_wrong_key_of_an_encoder_is_named) {
    static const struct wrong_key wrong[] = {
        {"{" ENCODER("Bert") ", \"position_embedding_type\": \"relative_key\"}",
         "position_embedding_type", "only \"absolute\" is supported, found \"relative_key\""},
        {"{" ENCODER("Bert") ", \"is_decoder\": true}", "is_decoder", "only false"},
        {"{" ENCODER("Bert") ", \"type_vocab_size\": 0}", "type_vocab_size", "1 to"},
        {"{" ENCODER("Roberta") ", \"pad_token_id\": 3}", "pad_token_id", "1 to 1"},
        {"{\"architectures\": [\"NomicBertModel\"], " SHAPE
         ", \"hidden_act\": \"swiglu\", \"prenorm\": true}",
         "prenorm", "only false"},
        {"{\"architectures\": [\"NomicBertModel\"], " SHAPE
         ", \"hidden_act\": \"swiglu\", \"rotary_emb_fraction\": 0.5}",
         "rotary_emb_fraction", "0.5"},
        {"{" ENCODER("JinaBert") "}", "position_embedding_type", "found \"nothing\""},
        {"{" ENCODER("JinaBert") ", \"position_embedding_type\": \"alibi\"}", "feed_forward_type",
         "only \"geglu\""},
        {"{\"architectures\": [\"Gemma3TextModel\"], " SHAPE
         ", \"hidden_act\": \"gelu_pytorch_tanh\", \"use_bidirectional_attention\": false}",
         "use_bidirectional_attention", "only true is supported"},
        {"{\"architectures\": [\"Gemma3TextModel\"], " SHAPE
         ", \"hidden_act\": \"gelu_pytorch_tanh\"}",
         "use_bidirectional_attention", "is missing"},
    };
    check_wrong_keys(wrong, sizeof wrong / sizeof *wrong);
}
END_TEST

/* The first frequencies of Llama 3.1 8B are not divided, the last ones by 8. */
START_TEST(frequencies_are_stretched) {
    struct model_file file;
    float plain[64], stretched[64];
    struct model_config c =
        read_config(&file, "{" ARCHITECTURE ", " SHAPE ", \"head_dim\": 128, \"rope_theta\": 5e5, "
                           "\"rope_scaling\": " LLAMA3 "}");
    rope_frequencies(stretched, &c.rope, NULL, 128);
    c.rope.stretch.kind = ROPE_UNSCALED;
    rope_frequencies(plain, &c.rope, NULL, 128);
    ck_assert(plain[0] == 1 && plain[32] == (float)(1 / sqrt(5e5)));
    ck_assert(stretched[0] == plain[0] && stretched[28] == plain[28]);
    ck_assert(stretched[36] * 8 == plain[36] && stretched[63] * 8 == plain[63]);
    for (int i = 1; i < 64; i++)
        ck_assert(plain[i] / stretched[i] >= plain[i - 1] / stretched[i - 1] * 0.999999f);
    model_file_close(&file);
}
END_TEST

/* ---- random weights ------------------------------------------------------------------------- */

START_TEST(weights_do_not_depend_on_the_parts) {
    static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0,
                                       DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0,
                                       DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};
    enum { N = 64, K = 1024 };
    float *values = mem_alloc(N * K * sizeof *values);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct random_weights w;
        size_t bytes = N * dtype_bytes(types[t], K);
        uint8_t *whole = mem_alloc(bytes), *parts = mem_alloc(bytes);
        random_weights_plan(&w, types[t], K, 7);
        random_weights_fill(&w, whole, 0, bytes);
        for (size_t at = 0, next; at < bytes; at = next) {
            next = at + 37 * (size_t)w.piece_bytes;
            random_weights_fill(&w, parts, at, next < bytes ? next : bytes);
        }
        ck_assert_int_eq(memcmp(whole, parts, bytes), 0);
        dequantise(types[t], whole, values, N * K);
        double sum = 0, squares = 0;
        for (int i = 0; i < N * K; i++) sum += values[i], squares += values[i] * values[i];
        double size = sqrt(squares / N); /* of a row times K numbers of size 1 */
        ck_assert_msg(size > 0.7 && size < 1.42, "%s: %g", dtype_name((int)types[t]), size);
        ck_assert_msg(fabs(sum / (N * K)) < 0.2 * size / sqrt(K), "%s", dtype_name((int)types[t]));
        free(whole), free(parts);
    }
    free(values);
}
END_TEST

/* ---- a model -------------------------------------------------------------------------------- */

/* Returns the logits of four tokens, from a config.json with this dtype. */
static float *logits_of(const char *dtype, int threads) {
    char folder[] = "/tmp/penstock-config-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    fprintf(file, "{" ARCHITECTURE ", " SHAPE ", \"torch_dtype\": \"%s\"}", dtype);
    fclose(file);
    struct engine_config config = {.model = path,
                                   .threads = threads,
                                   .dtype = COMPUTE_FLOAT32,
                                   .dummy = true,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 8,
                                   .block_size = 16};
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    ck_assert_str_eq(engine_model(engine)->name, strrchr(folder, '/') + 1);
    int n_ends;
    engine_end_ids(engine, &n_ends);
    ck_assert_int_eq(n_ends, 0);
    int32_t token[] = {5, 70, 299, 0}, position[] = {0, 1, 2, 3}, start[] = {0, 4}, table[] = {0};
    struct step step = {.M = 4,
                        .token = token,
                        .position = position,
                        .slot = position,
                        .S = 1,
                        .row_start = start,
                        .table = table,
                        .table_stride = 1,
                        .R = 1,
                        .logit_row = &position[3]};
    engine_submit(engine, &step);
    float *logits =
        memcpy(mem_alloc(300 * sizeof(float)), engine_read_logits(engine), 300 * sizeof(float));
    engine_close(engine);
    unlink(path);
    rmdir(folder);
    return logits;
}

/* Float weights are the same numbers in all types. After eight layers the logits are neither huge
 * nor zero. */
START_TEST(a_random_model_runs) {
    float *bf16 = logits_of("bfloat16", 1), *f32 = logits_of("float32", 2);
    double squares = 0;
    ck_assert_int_eq(memcmp(bf16, f32, 300 * sizeof(float)), 0);
    for (int i = 0; i < 300; i++) squares += f32[i] * f32[i];
    ck_assert(squares / 300 > 0.25 && squares / 300 < 4);
    free(bf16), free(f32);
}
END_TEST

START_TEST(without_weights_it_must_be_asked_for) {
    struct model_file file;
    struct err err = {0};
    static const char path[] = "no/config.json";
    ck_assert_int_eq(model_file_open(&file, path, MODEL_WHOLE, &err), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(err.message, "{load-format} dummy"));
    ck_assert_int_eq(model_file_open(&file, path, MODEL_SHAPE, &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "No such file"));
}
END_TEST

/* The class of the whole model does not name the family of its text part. */
START_TEST(a_text_part_may_be_of_any_family) {
    struct model_file file;
    struct model_config c =
        read_config(&file, "{\"architectures\": [\"InternVLForConditionalGeneration\"], "
                           "\"text_config\": {\"model_type\": \"qwen3\", " SHAPE "}}");
    ck_assert_str_eq(c.architecture, "qwen3");
    model_file_close(&file);
    c = read_config(&file,
                    "{\"architectures\": [\"KimiK25ForConditionalGeneration\"], \"text_config\": "
                    "{\"model_type\": \"kimi_k2\", \"kv_lora_rank\": 32, \"qk_nope_head_dim\": 16, "
                    "\"qk_rope_head_dim\": 8, \"v_head_dim\": 16, " EXPERTS SHAPE "}}");
    ck_assert_str_eq(c.architecture, "deepseek_v3");
    model_file_close(&file);
}
END_TEST

/* A file need not describe the rotation of a kind of layer that the model does not have. */
START_TEST(rotations_are_of_the_kinds_that_there_are) {
    struct model_file file;
    struct model_config c = read_config(
        &file, "{\"architectures\": [\"Qwen3ForCausalLM\"], \"layer_types\": [\"full_attention\", "
               "\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\", "
               "\"full_attention\", \"full_attention\", \"full_attention\"], "
               "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5e5}}, " SHAPE "}");
    ck_assert(c.rope.base == 5e5f && c.window_rotation == WINDOW_ROPE_SAME);
    model_file_close(&file);
}
END_TEST

/* Like Gemma 3's 4B model: transformers wrote only the values that differ from its class's. */
START_TEST(a_text_config_may_omit_usual_values) {
    struct model_file file;
    struct model_config c = read_config(
        &file, "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"text_config\": "
               "{\"hidden_size\": 60, \"intermediate_size\": 96, \"num_hidden_layers\": 6}}");
    ck_assert(c.V == 262208 && c.H == 8 && c.G == 4 && c.D == 256 && c.context_length == 131072);
    ck_assert(c.norm_epsilon == 1e-6f && c.attention_scale == 0.0625f && file.hf->is_tied);
    ck_assert(c.layer[4].window == 4096 && c.layer[5].window == 0);
    ck_assert(c.rope.base == 1e6f && c.window_rope.base == 1e4f);
    model_file_close(&file);
    c = read_config(
        &file,
        "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"text_config\": "
        "{\"query_pre_attn_scalar\": 64, \"head_dim\": 32, \"sliding_window\": 32, " SHAPE "}}");
    ck_assert(c.V == 300 && c.H == 4 && c.G == 2 && c.D == 32 && c.context_length == 128);
    ck_assert(c.norm_epsilon == 1e-5f && c.attention_scale == 0.125f && c.layer[0].window == 32);
    model_file_close(&file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_hf_config");
    TCase *core = tcase_create("core");
    tcase_add_test(core, shapes_are_read);
    tcase_add_test(core, a_wrong_key_is_named);
    tcase_add_test(core, a_wrong_key_of_a_family_is_named);
    tcase_add_test(core, a_wrong_key_of_an_encoder_is_named);
    tcase_add_test(core, frequencies_are_stretched);
    tcase_add_test(core, tensors_are_listed);
    tcase_add_test(core, families_differ);
    tcase_add_test(core, rotations_are_of_the_kinds_that_there_are);
    tcase_add_test(core, a_text_part_may_be_of_any_family);
    tcase_add_test(core, a_text_config_may_omit_usual_values);
    tcase_add_test(core, weights_do_not_depend_on_the_parts);
    tcase_add_test(core, a_random_model_runs);
    tcase_add_test(core, without_weights_it_must_be_asked_for);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
