/* Broken folders. Each is refused before any computation, with one sentence that names the file,
 * the expectation and the finding. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "counted/work.h"
#include "engine/engine.h"
#include "support/folder_copy.h"
#include "support/suite_main.h"

#define VECTORS "tests/vectors/folders/"
#define CONFIG "config.json"
#define INDEX "model.safetensors.index.json"
#define SHARD "model-00002-of-00003.safetensors"

enum { MOST_WORK = 2000000 }; /* to refuse a small folder */

/* A change to a copy of a folder. */
enum change {
    REPLACE, /* replaces the first `from` in the file by `to` */
    KEEP,    /* keeps only the first n bytes */
    REMOVE,
    WRITE, /* writes `to` as the whole file, which may be new */
    FOLDER /* replaces the file by a folder */
};

static const struct {
    const char *base, *file;
    enum change change;
    const char *from, *to;
    long n;
    const char *named, *words; /* the file at the start of the sentence, and words of it */
} broken[] = {
    /* config.json */
    {"mistral", CONFIG, REMOVE, .named = CONFIG, .words = "No such file"},
    {"mistral", CONFIG, FOLDER, .named = CONFIG, .words = "not a file, or an empty one"},
    {"mistral", CONFIG, KEEP, .n = 0, .named = CONFIG, .words = "not a file, or an empty one"},
    {"mistral", CONFIG, KEEP, .n = 40, .named = CONFIG, .words = "not valid JSON"},
    {"mistral", CONFIG, REPLACE, "{", "\xef\xbb\xbf{", .named = CONFIG, .words = "byte order mark"},
    {"mistral", CONFIG, REPLACE, "299\n}", "299\n} x", .named = CONFIG, .words = "not valid JSON"},
    {"mistral", CONFIG, WRITE, .to = "[1]", .named = CONFIG,
     .words = "is an array, not a JSON object"},
    {"mistral", CONFIG, REPLACE, "MistralForCausalLM", "MambaForCausalLM", .named = CONFIG,
     .words = "the architecture \"MambaForCausalLM\" is not supported; docs/models.md lists the "},
    {"mistral", CONFIG, WRITE, .to = "{\"model_type\": \"mamba\"}", .named = CONFIG,
     .words = "the architecture \"mamba\" is not supported; docs/models.md lists the "},
    {"mistral", CONFIG, WRITE, .to = "{\"architecture\": []}", .named = CONFIG,
     .words = "key architectures: expected an array with the name of one, found nothing"},
    {"mistral", CONFIG, REPLACE, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2e9",
     .named = CONFIG, .words = "key num_hidden_layers: expected 1 to 1024, found 2e+09"},
    {"mistral", CONFIG, REPLACE, "\"hidden_size\": 32", "\"hidden_size\": \"32\"", .named = CONFIG,
     .words = "key hidden_size: expected a number, found a string"},
    {"mistral", CONFIG, REPLACE, "\"hidden_size\"", "\"hidden_sise\"", .named = CONFIG,
     .words = "key hidden_size is missing"},
    {"mistral", CONFIG, REPLACE, "\"vocab_size\": 299", "\"vocab_size\": -1", .named = CONFIG,
     .words = "key vocab_size: expected 1 to"},
    {"mistral", CONFIG, REPLACE, "\"eos_token_id\": 256", "\"eos_token_id\": 299", .named = CONFIG,
     .words = "key eos_token_id: expected ids in 0..298, found 299"},
    {"mistral", CONFIG, REPLACE, "\"eos_token_id\": 256", "\"eos_token_id\": [1, \"2\"]",
     .named = CONFIG, .words = "key eos_token_id: expected an id or an array of ids"},
    {"mistral", CONFIG, REPLACE, "\"eos_token_id\": 256", "\"eos_token_id\": [1,2,3,4,5,6,7,8,9]",
     .named = CONFIG, .words = "key eos_token_id: expected at most 8 ids, found 9"},
    {"mistral", CONFIG, REPLACE, "\"vocab_size\"",
     "\"quantization_config\": {\"quant_method\": "
     "\"quip\"}, \"vocab_size\"",
     .named = CONFIG, .words = "the method \"quip\" is not supported; gptq, awq,"},
    {"mistral", CONFIG, REPLACE, "\"vocab_size\"",
     "\"quantization_config\": {\"quant_method\": "
     "\"gptq\", \"bits\": 3}, \"vocab_size\"",
     .named = CONFIG, .words = "quantization_config.bits: 4 or 8 was expected, found 3"},
    {"mistral", CONFIG, REPLACE, "\"vocab_size\"",
     "\"quantization_config\": {\"quant_method\": "
     "\"awq\", \"bits\": 4, \"version\": \"gemv\"}, \"vocab_size\"",
     .named = CONFIG, .words = "version: \"gemm\" was expected, found gemv"},
    {"mistral", CONFIG, REPLACE, "\"vocab_size\"",
     "\"quantization\": {\"group_size\": 64, \"bits\": 4}, \"vocab_size\"", .named = CONFIG,
     .words = "MLX has quantised this folder, and its form is not supported: use a GGUF file"},
    {"gptq", CONFIG, REPLACE, "\"gptq\"",
     "\"auto-round\", \"packing_format\": \"auto_round:llm_compressor\"", .named = CONFIG,
     .words = "packing_format: auto_round:auto_gptq, auto_round:gptqmodel or auto_round:auto_awq"},
    {"gptq", CONFIG, REPLACE, "\"gptq\"", "\"auto-round\", \"data_type\": \"mx_fp\"",
     .named = CONFIG, .words = "data_type: \"int\" was expected, found mx_fp"},
    {"gptq", CONFIG, REPLACE, "\"gptq\"", "\"awq\"", .named = "",
     .words = "scales: expected [3, 512] of F16"},
    {"gptq", "model.safetensors", REPLACE, "proj.scales", "proj.scalex", .named = "",
     .words = "scales, found none"},
    {"gptq", "model.safetensors", REPLACE, "proj.qzeros", "proj.qzerox", .named = "",
     .words = "of I32, found none"},
    {"int8", "model.safetensors", REPLACE, "proj.weight_scale", "proj.weight_scalf", .named = "",
     .words = "weight_scale: expected scales, found none"},
    {"gpt_oss", CONFIG, REPLACE, "\"swiglu_limit\": 7.0", "\"swiglu_limit\": 5.0", .named = CONFIG,
     .words = "key swiglu_limit: expected 7"},
    {"gpt_oss", CONFIG, REPLACE, "\"intermediate_size\": 32", "\"intermediate_size\": 48",
     .named = "", .words = "gate_up_proj (expected [5, 64, 96], found [5, 64, 64])"},
    {"gpt_oss", CONFIG, REPLACE, "\"num_local_experts\": 5", "\"num_local_experts\": 6",
     .named = "", .words = "(expected [6, 64], found [5, 64])"},
    {"glm4moe", CONFIG, REPLACE, "\"n_group\": 1", "\"n_group\": 4", .named = "",
     .words = "6 experts in 4 groups, with 1 groups and 2 experts in use"},
    {"glm4moe", CONFIG, REPLACE, "\"first_k_dense_replace\": 2", "\"first_k_dense_replace\": 1",
     .named = "", .words = "missing model.layers.1.mlp.gate.weight"},
    {"qwen2moe_mixed", CONFIG, REPLACE, "\"decoder_sparse_step\": 2", "\"decoder_sparse_step\": 1",
     .named = "", .words = "missing model.layers.0.mlp.gate.weight"},
    {"qwen2moe_mixed", CONFIG, REPLACE, "\"decoder_sparse_step\": 2", "\"decoder_sparse_step\": 5",
     .named = "", .words = "none of 4 layers has experts (mlp_only_layers, decoder_sparse_step)"},
    {"qwen2moe_mixed", CONFIG, REPLACE, "\"decoder_sparse_step\": 2", "\"decoder_sparse_step\": 0",
     .named = CONFIG, .words = "key decoder_sparse_step: expected 1 to 1024, found 0"},
    {"qwen2moe_mixed", CONFIG, REPLACE, "    3\n", "    4\n", .named = CONFIG,
     .words = "key mlp_only_layers: expected an array of layers, each in 0..3"},
    {"qwen2moe_mixed", CONFIG, REPLACE, "    3\n", "    \"3\"\n", .named = CONFIG,
     .words = "key mlp_only_layers: expected an array of layers, each in 0..3"},
    {"qwen2moe_mixed", CONFIG, REPLACE, "    3\n", "    2\n", .named = "",
     .words = "missing model.layers.3.mlp.gate.weight"},
    {"lfm2_moe", CONFIG, REPLACE, "\"num_dense_layers\": 2", "\"num_dense_layers\": 1", .named = "",
     .words = "missing model.layers.1.feed_forward.gate.weight"},
    {"lfm2_moe", CONFIG, REPLACE, "\"num_dense_layers\": 2", "\"num_dense_layers\": 4",
     .named = CONFIG, .words = "key num_dense_layers: expected 0 to 3, found 4"},
    {"lfm2_moe", CONFIG, REPLACE, "\"num_experts\": 5", "\"num_experts\": 6", .named = "",
     .words = "layers.2.feed_forward.gate.weight (expected [6, 32], found [5, 32])"},
    {"lfm2_moe", CONFIG, REPLACE, "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 6",
     .named = CONFIG, .words = "key num_experts_per_tok: expected 1 to 5, found 6"},
    {"lfm2_moe", CONFIG, REPLACE, "\"moe_intermediate_size\": 16", "\"moe_intermediate_size\": 32",
     .named = "",
     .words = "layers.2.feed_forward.experts.0.w1.weight (expected [32, 32], found [16, 32])"},
    {"lfm2_moe", CONFIG, REPLACE, "\"intermediate_size\": 48", "\"intermediate_size\": 64",
     .named = "", .words = "layers.0.feed_forward.w1.weight (expected [64, 32], found [48, 32])"},
    {"lfm2", CONFIG, REPLACE, "\"conv_L_cache\": 3", "\"conv_L_cache\": 9", .named = CONFIG,
     .words = "key conv_L_cache: expected 2 to 8, found 9"},
    {"lfm2", CONFIG, REPLACE, "\"conv_L_cache\": 3", "\"conv_L_cache\": 4", .named = "",
     .words = "layers.0.conv.conv.weight (expected [32, 4], found [32, 3])"},
    {"lfm2", CONFIG, REPLACE, "    1,\n", "    7,\n", .named = CONFIG,
     .words = "key full_attn_idxs: expected an array of layers, each in 0..3"},
    {"lfm2", CONFIG, REPLACE, "    1,\n", "", .named = "", .words = "layers.1.conv.conv.weight"},
    {"lfm2", CONFIG, REPLACE, "    1,\n    2\n", "", .named = "",
     .words = "4 of 4 layers are convolutions: expected at least one layer of attention"},
    {"lfm2", CONFIG, REPLACE, "\"conv_bias\": true", "\"conv_bias\": false", .named = "",
     .words = "layers.0.conv.in_proj.bias"},
    {"lfm2", CONFIG, REPLACE, "\"block_ff_dim\": 60", "\"block_ff_dim\": 1048576", .named = "",
     .words = "layers.0.feed_forward.w1.weight (expected [838864, 32], found [48, 32])"},
    {"lfm2", CONFIG, REPLACE, "\"tie_embedding\": false", "\"tie_embedding\": 0", .named = CONFIG,
     .words = "key tie_embedding: expected true or false, found a number"},
    {"lfm2", CONFIG, REPLACE, "\"full_attn_idxs\"",
     "\"layer_types\": [\"conv\", "
     "\"full_attention\", \"mamba\", \"conv\"], \"full_attn_idxs\"",
     .named = CONFIG,
     .words = "key layer_types: only \"full_attention\" and \"sliding_attention\" are"},
    {"qwen3_5", CONFIG, REPLACE, "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 9",
     .named = CONFIG, .words = "key linear_conv_kernel_dim: expected 2 to 8, found 9"},
    {"qwen3_5", CONFIG, REPLACE, "\"linear_num_key_heads\": 3", "\"linear_num_key_heads\": 4",
     .named = "", .words = "4 key heads of 12 numbers and 6 value heads of 16, which is not"},
    {"qwen3_5", CONFIG, REPLACE, "\"linear_value_head_dim\": 16", "\"linear_value_head_dim\": 24",
     .named = "", .words = "those of values a multiple of 16"},
    {"qwen3_5", CONFIG, REPLACE, "\"linear_key_head_dim\": 12", "\"linear_key_head_dim\": 257",
     .named = "", .words = "heads have at most 256 numbers"},
    {"qwen3_5", CONFIG, REPLACE, "\"linear_num_value_heads\": 6",
     "\"linear_num_value_heads\": 65535", .named = "", .words = "more than 1048576 channels"},
    {"qwen3_5", CONFIG, REPLACE, "\"linear_num_value_heads\": 6", "\"linear_num_value_heads\": 0",
     .named = CONFIG, .words = "key linear_num_value_heads: expected 1 to 65536, found 0"},
    {"qwen3_5", CONFIG, REPLACE, "\"linear_num_value_heads\": 6", "\"linear_num_value_heads\": 9",
     .named = "",
     .words = "layers.0.linear_attn.in_proj_b.weight (expected [9, 32], found [6, 32])"},
    {"qwen3_5", CONFIG, REPLACE, "\"linear_num_key_heads\"",
     "\"attn_output_gate\": false, \"linear_num_key_heads\"", .named = CONFIG,
     .words = "key attn_output_gate: only true is supported"},
    {"qwen3_5", CONFIG, REPLACE, "\"full_attention\"", "\"linear_attention\"", .named = "",
     .words = "5 of 5 layers are recurrent: expected at least one layer of attention"},
    {"qwen3_5", CONFIG, REPLACE, "\"full_attention\"", "\"conv\"", .named = CONFIG,
     .words = "key layer_types: only \"full_attention\" and \"sliding_attention\" are"},
    {"qwen3_next", CONFIG, REPLACE, "\"linear_num_key_heads\": 3", "\"linear_num_key_heads\": 6",
     .named = "", .words = "layers.0.linear_attn.in_proj_qkvz.weight (expected [288, 32], found"},
    {"qwen3_next", CONFIG, REPLACE, "\"linear_attention\"", "\"full_attention\"", .named = "",
     .words = "layers.0.self_attn.q_proj.weight"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba_n_groups\": 4", "\"mamba_n_groups\": 3", .named = "",
     .words = "3 groups with states of 12 numbers and 4 heads of 16, which is not supported"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba_d_state\": 12", "\"mamba_d_state\": 257", .named = "",
     .words = "states and heads have at most 256 numbers"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba_d_head\": 16", "\"mamba_d_head\": 24", .named = "",
     .words = "those of heads a multiple of 16"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba_d_head\": 16", "\"mamba_d_head\": 32", .named = "",
     .words = "layers.1.mamba.in_proj.weight (expected [356, 32], found [228, 32])"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba_d_conv\": 4", "\"mamba_d_conv\": 9", .named = CONFIG,
     .words = "key mamba_d_conv: expected 2 to 8, found 9"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba_n_heads\": 4", "\"mamba_n_heads\": 0", .named = CONFIG,
     .words = "key mamba_n_heads: expected 1 to 65536, found 0"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba_n_heads\": 4", "\"mamba_n_heads\": 65536", .named = "",
     .words = "more than 1048576 channels"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba_proj_bias\": false", "\"mamba_proj_bias\": true",
     .named = CONFIG, .words = "key mamba_proj_bias: only false is supported"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba_conv_bias\": true", "\"mamba_conv_bias\": false",
     .named = CONFIG, .words = "key mamba_conv_bias: only true is supported"},
    {"granite4_h", CONFIG, REPLACE, "    0.9\n", "    0.1\n", .named = CONFIG,
     .words = "key time_step_limit: expected an array of two numbers"},
    {"granite4_h", CONFIG, REPLACE, "    0.9\n", "    \"0.9\"\n", .named = CONFIG,
     .words = "key time_step_limit: expected an array of two numbers"},
    {"granite4_h", CONFIG, REPLACE, "    0.9\n", "    -Infinity\n", .named = CONFIG,
     .words = "key time_step_limit: expected an array of two numbers"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba\"", "\"attention\"", .named = "",
     .words = "missing model.layers.1.self_attn.q_proj.weight"},
    {"granite4_h", CONFIG, REPLACE, "\"mamba\"", "\"conv\"", .named = CONFIG,
     .words = "key layer_types: only \"full_attention\" and \"sliding_attention\" are"},
    {"granite4_h_moe", CONFIG, REPLACE, "\"mamba_expand\": 2", "\"mamba_expand\": 3", .named = "",
     .words = "4 heads of 24, which is not supported"},
    {"granite4_h_moe", CONFIG, REPLACE, "\"mamba_n_heads\": 4", "\"mamba_n_heads\": 5",
     .named = CONFIG, .words = "key mamba_n_heads: 5 heads do not divide a width of 64"},
    {"granite4_h_moe", CONFIG, REPLACE, "\"shared_intermediate_size\": 16",
     "\"shared_intermediate_size\": 32", .named = "",
     .words = "layers.0.shared_mlp.input_linear.weight (expected [64, 32], found [32, 32])"},
    {"granite4_h_moe", CONFIG, REPLACE, "\"num_local_experts\": 4", "\"num_local_experts\": 0",
     .named = "", .words = "unknown model.layers.0.block_sparse_moe.input_linear.weight"},
    {"nemotron_h", CONFIG, REPLACE, "\"mlp\"", "\"moe\"", .named = CONFIG,
     .words = "\"sliding_attention\" are supported, found \"moe\""},
    {"nemotron_h", CONFIG, REPLACE, "\"mlp\"", "\"linear_attention\"", .named = "",
     .words = "missing backbone.layers.0.mixer.in_proj.weight"},
    {"nemotron_h", CONFIG, REPLACE, "\"layers_block_type\"",
     "\"num_hidden_layers\": 4, \"hybrid_override_pattern\": \"-ME*\", \"other\"", .named = CONFIG,
     .words = "key hybrid_override_pattern: expected a letter for each of 4 layers"},
    {"nemotron_h", CONFIG, REPLACE, "\"mlp_hidden_act\": \"relu2\"", "\"mlp_hidden_act\": \"silu\"",
     .named = CONFIG, .words = "only \"relu2\" is supported, found \"silu\""},
    {"falcon_h1", CONFIG, REPLACE, "    0.8,\n", "", .named = CONFIG,
     .words = "expected an array of"},
    {"falcon_h1", CONFIG, REPLACE, "\"key_multiplier\": 0.6", "\"key_multiplier\": 0",
     .named = CONFIG, .words = "key key_multiplier: expected"},
    {"falcon_h1", CONFIG, REPLACE, "\"mamba_rms_norm\": false", "\"mamba_rms_norm\": true",
     .named = "", .words = "missing model.layers.0.mamba.norm.weight"},
    {"falcon_h1", CONFIG, REPLACE, "\"projectors_bias\": false", "\"projectors_bias\": true",
     .named = CONFIG, .words = "key projectors_bias: only false is supported"},
    {"mamba2", CONFIG, REPLACE, "\"n_groups\": 1", "\"n_groups\": 4", .named = "",
     .words = "4 groups with states of 12 numbers and 2 heads of 32, which is not supported"},
    {"mamba2", CONFIG, REPLACE, "\"use_bias\": false", "\"use_bias\": true", .named = CONFIG,
     .words = "key use_bias: only false is supported"},
    {"bamba", CONFIG, REPLACE, "    2\n", "    4\n", .named = CONFIG,
     .words = "key attn_layer_indices: expected an array of layers, each in 0..3"},
    {"bamba", CONFIG, REPLACE, "    2\n", "    1\n", .named = "",
     .words = "missing model.layers.1.self_attn.q_proj.weight"},
    {"deepseek_v2", CONFIG, REPLACE, "\"kv_lora_rank\": 48", "\"kv_lora_rank\": 40", .named = "",
     .words = "latent attention of rank 40, with 4 heads whose queries have 20 + 8 numbers"},
    {"deepseek_v2", CONFIG, REPLACE, "\"v_head_dim\": 16", "\"v_head_dim\": 24", .named = "",
     .words = "the size of values must be multiples of 16"},
    {"deepseek_v2", CONFIG, REPLACE, "\"kv_lora_rank\": 48", "\"kv_lora_rank\": 64", .named = "",
     .words = "kv_a_proj_with_mqa.weight (expected [72, 32], found [56, 32])"},
    {"deepseek_v2", CONFIG, REPLACE, "\"kv_lora_rank\": 48,", "", .named = CONFIG,
     .words = "key kv_lora_rank is missing"},
    {"deepseek_v2", CONFIG, REPLACE, "\"q_lora_rank\": 40", "\"q_lora_rank\": null", .named = "",
     .words = "missing model.layers.0.self_attn.q_proj.weight"},
    {"deepseek_v2", CONFIG, REPLACE, "\"qk_rope_head_dim\": 8", "\"qk_rope_head_dim\": 7",
     .named = "", .words = "the rotated part of queries even"},
    {"deepseek_v2", CONFIG, REPLACE, "\"qk_nope_head_dim\": 20", "\"qk_nope_head_dim\": 1048576",
     .named = "", .words = "all heads together at most 1048576 numbers wide"},
    {"deepseek_v2", CONFIG, REPLACE, "\"topk_method\": \"group_limited_greedy\"",
     "\"topk_method\": \"noaux_tc\"", .named = CONFIG,
     .words = "key topk_method: only \"greedy\" and \"group_limited_greedy\" are supported"},
    {"deepseek_v2", CONFIG, REPLACE, "\"n_group\": 3", "\"n_group\": 2", .named = "",
     .words = "9 experts in 2 groups"},
    {"deepseek_v3", CONFIG, REPLACE, "\"scoring_func\": \"sigmoid\"",
     "\"scoring_func\": \"softmax\"", .named = CONFIG,
     .words = "key scoring_func: only \"sigmoid\" is supported in a model of the architecture"},
    {"deepseek_v3", CONFIG, REPLACE, "\"kv_lora_rank\": 48",
     "\"index_topk\": 2048, \"kv_lora_rank\": 48", .named = CONFIG,
     .words = "key index_topk: an indexer, which chooses the positions that a token sees"},
    {"deepseek_v3", CONFIG, REPLACE, "\"DeepseekV3ForCausalLM\"", "\"DeepseekV32ForCausalLM\"",
     .named = CONFIG, .words = "the architecture \"DeepseekV32ForCausalLM\" has an indexer"},
    {"deepseek_v3", CONFIG, REPLACE, "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2",
     .named = CONFIG, .words = "moe_layer_freq"},
    {"kimi_linear", CONFIG, REPLACE, "\"linear_num_heads\": 3", "\"linear_num_heads\": 2",
     .named = "", .words = "model.layers.0.self_attn.q_proj.weight (expected [32, 32], found"},
    {"kimi_linear", CONFIG, REPLACE, "\"linear_head_dim\": 16", "\"linear_head_dim\": 24",
     .named = "", .words = "3 heads of 24 numbers (key head_dim of linear_attn_config, or linear_"},
    {"kimi_linear_wide", CONFIG, REPLACE, "\"head_dim\": 32", "\"head_dim\": 272", .named = "",
     .words = "2 heads of 272 numbers (key head_dim of linear_attn_config"},
    {"kimi_linear", CONFIG, REPLACE, "\"linear_conv_kernel_dim\": 4",
     "\"linear_conv_kernel_dim\": 3", .named = "",
     .words = "self_attn.k_conv1d.weight (expected [48, 3], found [48, 4])"},
    {"kimi_linear", CONFIG, REPLACE, "\"full_attention\"", "\"linear_attention\"", .named = "",
     .words = "missing model.layers.2.self_attn.k_proj.weight"},
    {"kimi_linear", CONFIG, REPLACE, "\"linear_head_dim\": 16",
     "\"mla_use_nope\": false, \"linear_head_dim\": 16", .named = CONFIG,
     .words = "key mla_use_nope: only true is supported"},
    {"kimi_linear_wide", CONFIG, REPLACE, "\"num_heads\": 2",
     "\"gate_lower_bound\": -5.0, \"num_heads\": 2", .named = CONFIG,
     .words = "use_full_rank_gate and gate_lower_bound are not supported"},
    {"kimi_linear_wide", CONFIG, REPLACE, "\"num_heads\": 2",
     "\"use_full_rank_gate\": true, \"num_heads\": 2", .named = CONFIG,
     .words = "only gates of two products without a bound are"},
    {"kimi_linear_wide", CONFIG, REPLACE, "\"short_conv_kernel_size\": 3",
     "\"short_conv_kernel_size\": 9", .named = CONFIG,
     .words = "key short_conv_kernel_size: expected 2 to 8, found 9"},
    {"kimi_linear_wide", CONFIG, REPLACE, "      5\n", "      6\n", .named = CONFIG,
     .words = "full_attn_layers: expected an array of layers, each in 1..5"},
    {"kimi_linear_wide", CONFIG, REPLACE, "      5\n", "      4\n", .named = CONFIG,
     .words = "kda_layers: expected an array of layers, each in 1..5 and in one list"},
    {"kimi_linear_wide", CONFIG, REPLACE, "      3,\n      4\n", "      3\n", .named = CONFIG,
     .words = "full_attn_layers and kda_layers must have all 5 layers"},
    {"kimi_linear_wide", CONFIG, REPLACE, "\"moe_router_activation_func\": \"sigmoid\"",
     "\"moe_router_activation_func\": \"softmax\"", .named = CONFIG,
     .words = "only \"sigmoid\" is supported in a model of the architecture"},
    {"mistral4", CONFIG, REPLACE, "\"n_group\": 1", "\"n_group\": 7", .named = "",
     .words = "7 experts in 7 groups, with 1 groups and 3 experts in use"},
    {"mistral4", CONFIG, REPLACE, "\"kv_lora_rank\": 48,", "", .named = CONFIG,
     .words = "key kv_lora_rank is missing"},
    {"mistral4", CONFIG, REPLACE, "\"rope_type\": \"yarn\"", "\"rope_type\": \"linear\"",
     .named = CONFIG, .words = "key llama_4_scaling_beta: only 0 is supported without \"yarn\""},
    {"glm4_moe_lite", CONFIG, REPLACE, "    \"dense\",\n", "    \"dance\",\n", .named = CONFIG,
     .words = "key mlp_layer_types: expected \"dense\" or \"sparse\" for each of 3 layers"},
    {"qwen3moe_mixed", CONFIG, REPLACE, "    0\n", "\n", .named = "",
     .words = "unknown model.layers.0.mlp.down_proj.weight"},
    {"olmoe", CONFIG, REPLACE, "\"num_experts\"", "\"mlp_only_layers\": [0], \"num_experts\"",
     .named = CONFIG,
     .words = "only an empty array is supported in a model of the architecture \"olmoe\""},
    {"glm4moe", CONFIG, REPLACE, "\"use_qk_norm\": false", "\"use_qk_norm\": true", .named = "",
     .words = "missing model.layers.0.self_attn.q_norm.weight"},
    {"glm4moe", CONFIG, REPLACE, "\"num_nextn_predict_layers\": 1",
     "\"num_nextn_predict_layers\": 0", .named = "",
     .words = "unknown model.layers.3.eh_proj.weight"},
    {"gpt_oss_mxfp4", "model.safetensors", REPLACE, "gate_up_proj_scales", "gate_up_proj_scalex",
     .named = "", .words = "_blocks: expected [experts, rows, blocks, 16] beside _scales of"},
    {"gpt_oss_mxfp4", "model.safetensors", REPLACE, "gate_up_proj_blocks", "gate_up_proj_blockx",
     .named = "", .words = "holds integers, but does not belong to a matrix"},
    {"gpt_oss_mxfp4", CONFIG, REPLACE, "\"mxfp4\"", "\"fp8\"", .named = "",
     .words = "holds integers, but does not belong to a matrix"},
    {"mistral", CONFIG, REPLACE, "\"default\"", "\"ntk\"", .named = CONFIG,
     .words = "the type \"ntk\" is not supported"},
    {"mistral", CONFIG, REPLACE, "\"default\"", "\"longrope\"", .named = CONFIG,
     .words = "key short_factor: expected an array of 8 numbers"},
    {"mistral", CONFIG, REPLACE, "\"default\"", "\"linear\"", .named = CONFIG,
     .words = "key factor is missing"},
    {"falcon", CONFIG, REPLACE, "\"alibi\": false", "\"alibi\": true", .named = CONFIG,
     .words = "key alibi: only false is supported"},
    {"falcon", CONFIG, REPLACE, "\"bias\": false", "\"bias\": true", .named = CONFIG,
     .words = "key bias: only false is supported"},
    {"falcon", CONFIG, REPLACE, "\"parallel_attn\": true", "\"parallel_attn\": false",
     .named = CONFIG, .words = "key parallel_attn: only true is supported"},
    {"falcon_40b", CONFIG, REPLACE, "\"num_kv_heads\": 2", "\"num_kv_heads\": 3", .named = CONFIG,
     .words = "3 key-value heads (num_kv_heads) do not divide 4 heads"},
    {"falcon_40b", CONFIG, REPLACE, "\"num_ln_in_parallel_attn\": 2",
     "\"num_ln_in_parallel_attn\": 1", .named = "", .words = "unknown transformer.h.0.ln_attn."},
    {"qwen2_5_vl", CONFIG, REPLACE, "\"mrope_section\": [", "\"mrope_section\": [5, ",
     .named = CONFIG, .words = "key mrope_section: expected an array of at most 4 numbers from 0"},
    {"olmo3", CONFIG, REPLACE, "\"beta_fast\": 32.0", "\"beta_fast\": 0", .named = CONFIG,
     .words = "key beta_fast: expected 0.001 to"},
    {"mistral", CONFIG, REPLACE, "\"rope_theta\": 10000.0", "\"rope_theta\": \"1e4\"",
     .named = CONFIG, .words = "key rope_theta: expected a number, found a string"},
    {"mistral", CONFIG, REPLACE, "\"rope_theta\": 10000.0", "\"rope_theta\": {}", .named = CONFIG,
     .words = "key rope_parameters: expected numbers of one rotation, or an object for each of"},
    {"gemma4", CONFIG, REPLACE, "\"full_attention\": {", "\"all_attention\": {", .named = CONFIG,
     .words = "key rope_parameters: expected numbers of one rotation"},
    {"gemma4", CONFIG, REPLACE, "\"sliding_attention\": {", "\"sliding_attention\": 7, \"x\": {",
     .named = CONFIG,
     .words = "an object for each of \"full_attention\" and \"sliding_attention\""},
    {"llama", CONFIG, REPLACE, "\"rope_scaling\": {", "\"rope_scaling\": [], \"x\": {",
     .named = CONFIG, .words = "key rope_scaling: expected an object, found an array"},
    {"gemma2", CONFIG, REPLACE, "\"full_attention\"", "\"chunked_attention\"", .named = CONFIG,
     .words = "key layer_types: only \"full_attention\" and \"sliding_attention\""},
    {"gemma2", CONFIG, REPLACE, "\"full_attention\"", "\"full_attention\", \"full_attention\"",
     .named = CONFIG, .words = "key layer_types: expected an array of 2 kinds"},
    {"gemma2", CONFIG, REPLACE, "\"sliding_window\": 12", "\"sliding_window\": null",
     .named = CONFIG, .words = "key sliding_window is missing, but layer 0 has a window"},
    {"gemma4_large", CONFIG, REPLACE, "\"2\": {", "\"5\": {", .named = CONFIG,
     .words = "key per_layer_config: expected numbers of layers below 5 as its keys"},
    {"gemma4_large", CONFIG, REPLACE, "\"2\": {\n      \"head_dim\": 32",
     "\"2\": {\n      \"head_dim\": 16", .named = "",
     .words = "layers of one kind must have heads of one size"},
    {"gemma4_large", CONFIG, REPLACE, "\"head_dim\": 32,\n      \"num_key_value_heads\": 2",
     "\"head_dim\": 32,\n      \"num_key_value_heads\": 3", .named = "",
     .words = "3 key-value heads of layer 2 do not divide 4 heads"},
    {"gemma4_large", CONFIG, REPLACE, "\"num_kv_shared_layers\": 0", "\"num_kv_shared_layers\": 4",
     .named = "",
     .words = "layer 2 must read the keys and values of a layer of its kind before the "},
    {"gemma4_large", CONFIG, REPLACE, "\"num_kv_shared_layers\": 0", "\"num_kv_shared_layers\": 5",
     .named = CONFIG, .words = "key num_kv_shared_layers: expected 0 to 4, found 5"},
    {"gemma4_large", CONFIG, REPLACE, "\"use_bidirectional_attention\": null",
     "\"use_bidirectional_attention\": \"all\"", .named = CONFIG,
     .words = "key use_bidirectional_attention: only null and \"vision\" are supported, found "
              "\"all\""},
    {"gemma4_large", CONFIG, REPLACE, "\"enable_moe_block\": false", "\"enable_moe_block\": true",
     .named = CONFIG, .words = "key num_local_experts"},
    {"gemma4_moe", CONFIG, REPLACE, "\"enable_moe_block\": true", "\"enable_moe_block\": false",
     .named = "", .words = "unknown model.layers.0.experts.down_proj, "},
    {"mistral", CONFIG, REPLACE, "\"sliding_window\": 12",
     "\"enable_moe_block\": true, \"sliding_window\": 12", .named = CONFIG,
     .words = "key enable_moe_block: only false is supported"},
    {"gemma4", CONFIG, REPLACE, "\"vocab_size_per_layer_input\": 299",
     "\"vocab_size_per_layer_input\": 298", .named = CONFIG,
     .words = "key vocab_size_per_layer_input: expected 299 to 299, found 298"},
    {"gemma2", CONFIG, REPLACE, "\"sliding_window\": 12",
     "\"hidden_size_per_layer_input\": 8, \"sliding_window\": 12", .named = "",
     .words = "inputs of 8 numbers for each of 2 layers are not supported in a model of the "},

    /* config.json and weights that do not match */
    {"mistral", CONFIG, REPLACE, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
     .named = "", .words = "missing model.layers.2.input_layernorm.weight, "},
    {"mistral", CONFIG, REPLACE, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1",
     .named = "", .words = "unknown model.layers.1."},
    {"mistral", CONFIG, REPLACE, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000",
     .named = "", .words = " more"},
    {"mistral", CONFIG, REPLACE, "\"intermediate_size\": 40", "\"intermediate_size\": 48",
     .named = "",
     .words = "model.layers.0.mlp.gate_proj.weight (expected [48, 32], found [40, 32])"},
    {"mistral", CONFIG, REPLACE, "\"vocab_size\": 299", "\"vocab_size\": 300", .named = "",
     .words = "model.embed_tokens.weight (expected [300, 32], found [299, 32]), lm_head.weight "},
    {"gpt2", CONFIG, REPLACE, "\"scale_attn_by_inverse_layer_idx\": false",
     "\"scale_attn_by_inverse_layer_idx\": true", .named = CONFIG,
     .words = "key scale_attn_by_inverse_layer_idx: only false is supported"},
    {"gpt2", CONFIG, REPLACE, "\"scale_attn_weights\": true", "\"scale_attn_weights\": false",
     .named = CONFIG, .words = "key scale_attn_weights: only true is supported"},
    {"gpt2", CONFIG, REPLACE, "\"n_inner\": null", "\"n_inner\": 100", .named = "",
     .words = "h.0.mlp.c_fc.weight (expected [32, 100], found [32, 128]), h.0.mlp.c_fc.bias "},
    {"mistral", CONFIG, REPLACE, "MistralForCausalLM", "Qwen2ForCausalLM", .named = "",
     .words = "\"qwen2\": missing model.layers.0.self_attn.q_proj.bias"},
    {"qwen2", CONFIG, REPLACE, "Qwen2ForCausalLM", "LlamaForCausalLM", .named = "",
     .words = "unknown model.layers.0.self_attn.k_proj.bias"},
    {"qwen2", CONFIG, REPLACE, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
     .named = "", .words = "missing lm_head.weight"},

    /* weights */
    {"mistral", "model.safetensors", REMOVE, .named = "",
     .words = "lacks weights: model.safetensors or model.safetensors.index.json was expected"},
    {"mistral", "model.safetensors", KEEP, .n = 5, .named = "model.safetensors",
     .words = "the file has 5 bytes"},
    {"mistral", "model.safetensors", KEEP, .n = 1000, .named = "model.safetensors",
     .words = "but 992 follow: the file is cut short"},
    {"mistral", "model.safetensors", KEEP, .n = 80000, .named = "model.safetensors",
     .words = "it is cut short"},
    {"mistral", "model.safetensors", REPLACE, "BF16", "I64\"", .named = "model.safetensors",
     .words = "The header is not valid JSON"},
    {"mistral", "model.safetensors", REPLACE, "\"BF16\"", "\"I64\" ", .named = "model.safetensors",
     .words = "the dtype I64 is not supported; F32, F16 and BF16 are, and others only if quantiz"},
    {"float8-exponents", "model.safetensors", REPLACE, "F8_E8M0", "F8_E5M2", .named = "model",
     .words = "the dtype F8_E5M2 is not supported; F32, F16 and BF16 are, and in quantised "},
    {"mistral", "model.safetensors", REPLACE, "model.norm.weight", "model.none.weight", .named = "",
     .words = "missing model.norm.weight; unknown model.none.weight"},
    {"mistral", "model.safetensors", REPLACE, "model.norm.weight\"", "norm.weight\"      ",
     .named = "", .words = ""}, /* other text at the start is accepted: see below */

    /* files by index */
    {"llama", INDEX, WRITE, .to = "{", .named = INDEX, .words = "not valid JSON"},
    {"llama", INDEX, WRITE, .to = "{}", .named = INDEX,
     .words = "key weight_map: expected an object"},
    {"llama", INDEX, WRITE, .to = "{\"weight_map\": {\"a\": 1}}", .named = INDEX,
     .words = "tensor a: expected the name of a .safetensors file in the same folder"},
    {"llama", INDEX, WRITE, .to = "{\"weight_map\": {\"a\": \"../x.safetensors\"}}", .named = INDEX,
     .words = "tensor a: expected the name of a .safetensors file in the same folder"},
    {"llama", INDEX, WRITE, .to = "{\"weight_map\": {\"a\": \"x.bin\"}}", .named = INDEX,
     .words = "tensor a: expected the name of a .safetensors file"},
    {"llama", SHARD, REMOVE, .named = SHARD, .words = "No such file"},
    {"llama", SHARD, KEEP, .n = 20000, .named = SHARD, .words = "it is cut short"},
    {"llama", SHARD, KEEP, .n = 0, .named = SHARD, .words = "an empty one"},
    {"llama", INDEX, REPLACE, "model.norm.weight", "model.none.weight", .named = INDEX,
     .words = "tensor model.none.weight is not in model-0000"},
    {"llama", INDEX, REPLACE, "model-00001-of-00003", "model-00002-of-00003", .named = INDEX,
     .words = "is not in model-00002-of-00003.safetensors, although the key names this file"},

    /* generation_config.json */
    {"llama", "generation_config.json", KEEP, .n = 30, .named = "generation_config.json",
     .words = "not valid JSON"},
    {"llama", "generation_config.json", REPLACE, "\"temperature\": 0.6", "\"temperature\": 60",
     .named = "generation_config.json", .words = "key temperature: expected 0 to 2, found 60"},
    {"llama", "generation_config.json", REPLACE, "\"temperature\": 0.6",
     "\"suppress_tokens\": [1, \"2\"]", .named = "generation_config.json",
     .words = "key suppress_tokens: expected an id or an array of ids"},
    {"llama", "generation_config.json", REPLACE, "257", "2570", .named = "generation_config.json",
     .words = "key eos_token_id: expected ids in 0..298, found 2570"},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

/* ---- changes -------------------------------------------------------------------------------- */

static void change(int i) {
    const char *file = broken[i].file, *path = folder_copy_path(file);
    struct buf bytes = {0};
    switch (broken[i].change) {
    case REPLACE:
        folder_copy_replace(file, broken[i].from, broken[i].to);
        break;
    case KEEP:
        folder_copy_read(&bytes, file);
        folder_copy_write(file, bytes.data, (size_t)broken[i].n);
        break;
    case REMOVE:
        ck_assert(!unlink(path));
        break;
    case WRITE:
        folder_copy_write(file, broken[i].to, strlen(broken[i].to));
        break;
    case FOLDER:
        ck_assert(!unlink(path) && !mkdir(path, 0700));
        break;
    }
    buf_free(&bytes);
}

static const char *folder;

static void copy_folder(const char *base) {
    char from[FOLDER_PATH_BYTES];
    snprintf(from, sizeof from, VECTORS "%s", base);
    folder = folder_copy(from);
}

static enum status open_folder(struct err *err) {
    struct engine *engine = NULL;
    struct engine_config config = {.model = folder,
                                   .stand_in_vocabulary = true,
                                   .threads = 1,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 8,
                                   .block_size = 16};
    enum status status = engine_open(&engine, &config, err);
    engine_close(engine);
    return status;
}

/* ---- tests ---------------------------------------------------------------------------------- */

START_TEST(broken_folders_are_refused) {
    char beginning[FOLDER_PATH_BYTES];
    const char *named = broken[_i].named, *words = broken[_i].words;
    struct err err = {0};
    copy_folder(broken[_i].base);
    change(_i);
    uint64_t before = work_done();
    enum status status = open_folder(&err);
    uint64_t work = work_done() - before;
    folder_copy_remove();
    if (!words[0]) { /* this one is not broken */
        ck_assert_msg(status == STATUS_OK, "%s", err.message);
        return;
    }
    printf("%s\n", err.message);
    snprintf(beginning, sizeof beginning, "%s%s%s", folder, named[0] ? "/" : "", named);
    ck_assert_int_eq(status, STATUS_BAD_FILE);
    ck_assert_msg(strncmp(err.message, beginning, strlen(beginning)) == 0, "%s", err.message);
    ck_assert_msg(strstr(err.message, words) != NULL, "%s", err.message);
    ck_assert_ptr_null(strchr(err.message, '\n'));
    ck_assert_msg(work < MOST_WORK, "%llu units of work", (unsigned long long)work);
}
END_TEST

/* Sizes that only config.json states are refused before they are allocated. */
START_TEST(claims_take_no_memory) {
    struct err err = {0};
    copy_folder("mistral");
    struct buf text = {0};
    buf_puts(&text, "{\"architectures\": [\"MistralForCausalLM\"], \"vocab_size\": 500000, "
                    "\"hidden_size\": 1048576, \"intermediate_size\": 1048576, "
                    "\"num_hidden_layers\": 1024, \"num_attention_heads\": 1024, "
                    "\"max_position_embeddings\": 268435456, \"rms_norm_eps\": 1e-5}");
    folder_copy_write(CONFIG, text.data, text.length);
    buf_free(&text);
    ck_assert_int_eq(open_folder(&err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, "model.embed_tokens.weight (expected [500000, 1048576]"),
                  "%s", err.message);
    folder_copy_remove();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/broken folders");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, broken_folders_are_refused, 0, N_BROKEN);
    tcase_add_test(all, claims_take_no_memory);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
