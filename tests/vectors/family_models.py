"""The tiny models of make_families.py, each without weights: a function per family, with the shapes of its GGUF file."""
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

V, CONTEXT = 299, 96
SHORT_CONTEXT = 72  # for models whose positions change beyond it; their prompts with the answers are not longer

COMMON = {"vocab_size": V, "max_position_embeddings": CONTEXT, "bos_token_id": 256, "eos_token_id": 256,
          "attn_implementation": "eager"}


def qwen2():
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        hidden_size=64, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        rms_norm_eps=1e-6, tie_word_embeddings=True, rope_theta=1e6, **COMMON))


def qwen3():
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, rms_norm_eps=1e-6, tie_word_embeddings=False, rope_theta=1e6, **COMMON))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=32, n_inner=56, n_layer=4, n_head=2, n_positions=CONTEXT, layer_norm_epsilon=1e-5, vocab_size=V,
        activation_function="gelu_new", attn_implementation="eager", bos_token_id=256, eos_token_id=256))


def gemma2():
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        hidden_size=48, intermediate_size=56, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, query_pre_attn_scalar=16, sliding_window=12, attn_logit_softcapping=5.0,
        final_logit_softcapping=10.0, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, **COMMON))


SMALL = {"hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2, **COMMON}


def gemma():
    return transformers.GemmaForCausalLM(transformers.GemmaConfig(
        num_hidden_layers=2, head_dim=16, rms_norm_eps=1e-6, **SMALL))


def phi3():
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(
        num_hidden_layers=2, rms_norm_eps=1e-5, sliding_window=12, tie_word_embeddings=False, pad_token_id=0,
        original_max_position_embeddings=CONTEXT, rope_theta=1e6, **SMALL))


def phi3_of(length):
    """With the factors for a context of this length; transformers would change them on the way."""
    factors = {"short_factor": [1 + i / 4 for i in range(4)], "long_factor": [2 + i * i for i in range(4)]}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": SHORT_CONTEXT, **factors}
    model = transformers.Phi3ForCausalLM(transformers.Phi3Config(
        num_hidden_layers=2, rms_norm_eps=1e-5, tie_word_embeddings=False, pad_token_id=0, rope_parameters=rope,
        original_max_position_embeddings=SHORT_CONTEXT, **SMALL))
    rotary = model.model.rotary_emb
    rotary.inv_freq.copy_(ROPE_INIT_FUNCTIONS["longrope"](model.config, seq_len=length)[0])
    rotary.rope_type = "fixed"
    return model


def phi3_long():
    return phi3_of(CONTEXT)


def phi3_short():
    return phi3_of(SHORT_CONTEXT)


def smollm3():
    return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(
        num_hidden_layers=4, rms_norm_eps=1e-6, pad_token_id=0, tie_word_embeddings=True, rope_theta=1e6, **SMALL))


def granite():
    return transformers.GraniteForCausalLM(transformers.GraniteConfig(
        num_hidden_layers=3, rms_norm_eps=1e-5, pad_token_id=0, tie_word_embeddings=True, rope_theta=1e6,
        embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=0.75, **SMALL))


def olmo2():
    return transformers.Olmo2ForCausalLM(transformers.Olmo2Config(
        num_hidden_layers=2, rms_norm_eps=1e-6, pad_token_id=0, rope_theta=5e5, **SMALL))


def olmo3():
    rope = {"full_attention": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0,
                               "original_max_position_embeddings": CONTEXT // 4, "beta_fast": 32.0, "beta_slow": 1.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}
    return transformers.Olmo3ForCausalLM(transformers.Olmo3Config(
        num_hidden_layers=4, rms_norm_eps=1e-6, pad_token_id=0, sliding_window=12, rope_parameters=rope, **SMALL))


def gemma3():
    rope = {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        num_hidden_layers=6, head_dim=16, query_pre_attn_scalar=16, sliding_window=12, rms_norm_eps=1e-6,
        rope_parameters=rope, **SMALL))


def gemma4_of(kinds, **more):
    """kinds: a letter per layer, s for a sliding one and f for a full one."""
    types = [{"s": "sliding_attention", "f": "full_attention"}[kind] for kind in kinds]
    rope = {"full_attention": {"rope_type": "proportional", "rope_theta": 1e3, "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e2}}
    return transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(
        num_hidden_layers=len(kinds), layer_types=types, head_dim=16, global_head_dim=32, sliding_window=12, rms_norm_eps=1e-6,
        rope_parameters=rope, vocab_size_per_layer_input=V, **COMMON, **{"hidden_size": 24, "intermediate_size": 24, **more}))


def gemma4():
    """Like its small ones: layers with separate inputs; the last ones read the keys and values of others."""
    return gemma4_of("sfssf", num_attention_heads=4, num_key_value_heads=2, hidden_size_per_layer_input=8,
                     num_kv_shared_layers=3, use_double_wide_mlp=True, final_logit_softcapping=4.0)


def gemma4_large():
    """Like its large dense one: fewer key-value heads in the full layers, whose keys are also the values."""
    return gemma4_of("ssfsf", num_attention_heads=4, num_key_value_heads=4, num_global_key_value_heads=2,
                     attention_k_eq_v=True, hidden_size_per_layer_input=0, final_logit_softcapping=4.0)


def gemma4_moe():
    """Like its 26B one: experts in addition to each MLP."""
    return gemma4_of("sf", hidden_size=32, num_attention_heads=4, num_key_value_heads=4, num_global_key_value_heads=2,
                     attention_k_eq_v=True, hidden_size_per_layer_input=0, final_logit_softcapping=4.0, enable_moe_block=True,
                     num_experts=5, top_k_experts=2, moe_intermediate_size=32)


def glm4():
    return transformers.Glm4ForCausalLM(transformers.Glm4Config(
        num_hidden_layers=2, head_dim=16, rms_norm_eps=1e-5, pad_token_id=0, attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}, **SMALL))


def ernie4_5():
    return transformers.Ernie4_5ForCausalLM(transformers.Ernie4_5Config(
        num_hidden_layers=2, head_dim=12, rms_norm_eps=1e-5, pad_token_id=0, rope_theta=5e5, **SMALL))


def starcoder2():
    return transformers.Starcoder2ForCausalLM(transformers.Starcoder2Config(
        num_hidden_layers=2, norm_epsilon=1e-5, rope_theta=1e5, **SMALL))


def stablelm():
    return transformers.StableLmForCausalLM(transformers.StableLmConfig(
        num_hidden_layers=2, layer_norm_eps=1e-5, use_qkv_bias=True, **SMALL))


def stablelm_12b():
    return transformers.StableLmForCausalLM(transformers.StableLmConfig(
        num_hidden_layers=2, layer_norm_eps=1e-5, use_parallel_residual=True, qk_layernorm=True, **SMALL))


QUERY_SCALES = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": CONTEXT // 4,
                "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.4}


def mistral3():
    return transformers.Ministral3ForCausalLM(transformers.Ministral3Config(
        num_hidden_layers=2, rms_norm_eps=1e-5, head_dim=16, tie_word_embeddings=False, pad_token_id=0, rope_parameters=QUERY_SCALES,
        **SMALL))


def cohere2():
    return transformers.Cohere2ForCausalLM(transformers.Cohere2Config(
        num_hidden_layers=4, layer_norm_eps=1e-5, pad_token_id=0, sliding_window=12, logit_scale=0.5, rope_theta=5e4, **SMALL))


def exaone4():
    return transformers.Exaone4ForCausalLM(transformers.Exaone4Config(
        num_hidden_layers=4, rms_norm_eps=1e-5, sliding_window=12, sliding_window_pattern=4, rope_theta=1e6, **SMALL))


def experts(n, used):
    return {"num_local_experts": n, "num_experts": n, "num_experts_per_tok": used, "tie_word_embeddings": False}


def mixtral():
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(
        rms_norm_eps=1e-5, sliding_window=None, num_hidden_layers=2, **{**SMALL, "intermediate_size": 48}, **experts(5, 2)))


def qwen2moe():
    return transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        rms_norm_eps=1e-6, moe_intermediate_size=16, shared_expert_intermediate_size=48, norm_topk_prob=False, rope_theta=1e6,
        num_hidden_layers=2, **SMALL, **experts(6, 3)))


def olmoe():
    return transformers.OlmoeForCausalLM(transformers.OlmoeConfig(
        rms_norm_eps=1e-5, rope_theta=5e5, num_hidden_layers=2, **{**SMALL, "intermediate_size": 16}, **experts(9, 3)))


def granitemoe():
    return transformers.GraniteMoeForCausalLM(transformers.GraniteMoeConfig(
        rms_norm_eps=1e-5, rope_theta=1e6, num_hidden_layers=2, embedding_multiplier=3.0, residual_multiplier=0.4,
        attention_multiplier=0.2, logits_scaling=0.75, **{**SMALL, "intermediate_size": 32}, **experts(6, 2)))


def qwen3moe():
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        rms_norm_eps=1e-6, moe_intermediate_size=16, head_dim=16, norm_topk_prob=True, rope_theta=1e6,
        num_hidden_layers=2, **SMALL, **experts(18, 4)))


def gpt_oss():
    rope = {"rope_type": "yarn", "rope_theta": 1.5e5, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": CONTEXT // 4}
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        head_dim=16, sliding_window=12, rms_norm_eps=1e-5, num_hidden_layers=2, rope_parameters=rope, **{**SMALL, "intermediate_size": 48},
        **experts(5, 2)))


def glm4moe():
    return transformers.Glm4MoeForCausalLM(transformers.Glm4MoeConfig(
        head_dim=16, rms_norm_eps=1e-5, num_hidden_layers=3, moe_intermediate_size=16, n_routed_experts=8, n_shared_experts=1,
        first_k_dense_replace=1, n_group=4, topk_group=2, num_experts_per_tok=3, routed_scaling_factor=1.7, norm_topk_prob=True,
        use_qk_norm=True, num_nextn_predict_layers=0, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}, **SMALL))


def seed_oss():
    return transformers.SeedOssForCausalLM(transformers.SeedOssConfig(
        num_hidden_layers=2, head_dim=16, rms_norm_eps=1e-6, pad_token_id=0, attention_bias=True, rope_theta=1e7,
        tie_word_embeddings=False, **SMALL))


PART = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}


def phi():
    return transformers.PhiForCausalLM(transformers.PhiConfig(
        num_hidden_layers=2, layer_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=PART, **SMALL))


def glm():
    return transformers.GlmForCausalLM(transformers.GlmConfig(
        num_hidden_layers=2, head_dim=16, rms_norm_eps=1e-5, pad_token_id=0, attention_bias=True, tie_word_embeddings=False,
        rope_parameters=PART, **SMALL))


def command_r():
    return transformers.CohereForCausalLM(transformers.CohereConfig(
        num_hidden_layers=2, layer_norm_eps=1e-5, pad_token_id=0, logit_scale=0.5, **SMALL))


def command_r_plus():
    """With norms of queries and keys."""
    return transformers.CohereForCausalLM(transformers.CohereConfig(
        num_hidden_layers=2, layer_norm_eps=1e-5, pad_token_id=0, logit_scale=0.5, use_qk_norm=True, **SMALL))


def granite4_of(positions, layers):
    return transformers.GraniteMoeHybridForCausalLM(transformers.GraniteMoeHybridConfig(
        rms_norm_eps=1e-5, pad_token_id=0, tie_word_embeddings=True, embedding_multiplier=2.0, residual_multiplier=0.6,
        attention_multiplier=0.25, logits_scaling=0.5, num_local_experts=0, shared_intermediate_size=48, mamba_n_heads=4,
        position_embedding_type=positions, num_hidden_layers=layers, layer_types=["full_attention"] * layers, **SMALL))


def granite4():
    return granite4_of("rope", 2)


def granite4_nope():
    """Only the causal mask tells positions apart, so two layers would repeat themselves."""
    return granite4_of(None, 4)


def minimax_m2():
    return transformers.MiniMaxM2ForCausalLM(transformers.MiniMaxM2Config(
        num_hidden_layers=2, rms_norm_eps=1e-6, head_dim=16, rope_parameters={**PART, "rope_theta": 1e6},
        **{**SMALL, "intermediate_size": 16}, **experts(6, 3)))


def falcon_of(**more):
    return transformers.FalconForCausalLM(transformers.FalconConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=4, ffn_hidden_size=40, layer_norm_epsilon=1e-5, **more, **COMMON))


def falcon():
    """Like the 7B model: one key head."""
    return falcon_of()


def falcon_40b():
    """Like the 40B model: several key heads, and a norm for each branch."""
    return falcon_of(new_decoder_architecture=True, num_kv_heads=2)


def gptneox_of(parallel, part):
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=40, layer_norm_eps=1e-5, hidden_act="gelu",
        use_parallel_residual=parallel, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": part},
        **COMMON))


def gptneox():
    return gptneox_of(True, 0.25)


def gptneox_sequential():
    return gptneox_of(False, 1.0)


ROPE_OF_IMAGES = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]}
VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "patch_size": 2, "spatial_merge_size": 2,
          "temporal_patch_size": 2, "out_hidden_size": 32}


def with_vision(name, vision, **text):
    """The whole model; only its text part is run."""
    text = {**SMALL, "num_hidden_layers": 2, "rms_norm_eps": 1e-6, "rope_parameters": ROPE_OF_IMAGES, **text}
    del text["attn_implementation"]
    config = getattr(transformers, name + "Config")(
        text_config=text, vision_config={**VISION, **vision}, attn_implementation="eager", tie_word_embeddings=False)
    return getattr(transformers, name + "ForConditionalGeneration")(config)


def qwen2_5_vl():
    return with_vision("Qwen2_5_VL", {"window_size": 8, "fullatt_block_indexes": [0]})


DEEPSTACK = {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]}


def qwen3_vl():
    return with_vision("Qwen3VL", DEEPSTACK, head_dim=16, rope_parameters={**ROPE_OF_IMAGES, "mrope_section": [4, 2, 2],
                                                                          "mrope_interleaved": True})


def qwen3_vl_moe():
    return with_vision("Qwen3VLMoe", {**DEEPSTACK, "out_hidden_size": 48}, hidden_size=48, head_dim=16, moe_intermediate_size=16,
                       rope_parameters={**ROPE_OF_IMAGES, "mrope_section": [4, 2, 2], "mrope_interleaved": True}, **experts(6, 3))


def arcee():
    return transformers.ArceeForCausalLM(transformers.ArceeConfig(
        num_hidden_layers=2, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_theta=1e6, **SMALL))


def nemotron():
    return transformers.NemotronForCausalLM(transformers.NemotronConfig(
        num_hidden_layers=2, norm_eps=1e-5, rope_parameters=PART, **SMALL))


def hunyuan():
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}
    return transformers.HunYuanDenseV1ForCausalLM(transformers.HunYuanDenseV1Config(
        num_hidden_layers=2, rms_norm_eps=1e-5, head_dim=16, pad_token_id=0, rope_parameters=rope, **SMALL))


def apertus():
    return transformers.ApertusForCausalLM(transformers.ApertusConfig(
        num_hidden_layers=3, rms_norm_eps=1e-5, pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 1e6}, **SMALL))


def ernie4_5_moe():
    return transformers.Ernie4_5_MoeForCausalLM(transformers.Ernie4_5_MoeConfig(
        num_hidden_layers=3, rms_norm_eps=1e-5, pad_token_id=0, moe_intermediate_size=16, moe_k=3, moe_num_experts=6,
        moe_num_shared_experts=2, moe_layer_start_index=1, **{**SMALL, "intermediate_size": 64}))


def lfm2():
    """Convolutions of four tokens; the last layer has attention."""
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(
        num_hidden_layers=4, conv_L_cache=4, block_auto_adjust_ff_dim=False, tie_word_embeddings=True, pad_token_id=0,
        layer_types=["conv", "full_attention", "conv", "full_attention"], rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        **{**SMALL, "hidden_size": 40}))


def lfm2_moe():
    """The first layer has an MLP, and is a convolution; the last one is a convolution with experts."""
    return transformers.Lfm2MoeForCausalLM(transformers.Lfm2MoeConfig(
        num_hidden_layers=4, num_dense_layers=1, moe_intermediate_size=48, num_experts=6, num_experts_per_tok=2,
        routed_scaling_factor=1.0, norm_topk_prob=True, use_expert_bias=True, tie_word_embeddings=True, pad_token_id=0,
        layer_types=["conv", "full_attention", "conv", "conv"], rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        **{**SMALL, "hidden_size": 48}))


DELTA = {"head_dim": 16, "rms_norm_eps": 1e-6, "num_hidden_layers": 4, "pad_token_id": 0, "tie_word_embeddings": False,
         "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
         "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
         "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0]}}


def qwen3_5():
    """Three value heads for each of two key heads, which GGUF files order otherwise than folders."""
    return transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**{**SMALL, **DELTA}))


def qwen3_5_moe():
    """With the usual order of layers; two value heads for each of three key heads."""
    delta = {**DELTA, "linear_num_key_heads": 3, "layer_types": None}
    return transformers.Qwen3_5MoeForCausalLM(transformers.Qwen3_5MoeTextConfig(
        moe_intermediate_size=16, shared_expert_intermediate_size=32, **{**SMALL, **delta, **experts(6, 3), "tie_word_embeddings": False}))


def qwen3_next():
    """Its value heads are grouped in GGUF files, too."""
    delta = {name: value for name, value in DELTA.items() if name != "rope_parameters"}
    return transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(
        moe_intermediate_size=16, shared_expert_intermediate_size=32, rope_parameters={**PART, "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        **{**SMALL, **delta, **experts(6, 3), "tie_word_embeddings": False}))


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": CONTEXT // 4, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
LATENT = {"hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16, "num_attention_heads": 4, "num_key_value_heads": 4,
          "kv_lora_rank": 48, "qk_nope_head_dim": 20, "qk_rope_head_dim": 8, "v_head_dim": 16, "num_experts_per_tok": 3, "rms_norm_eps": 1e-6,
          "tie_word_embeddings": False, "pad_token_id": 0, **COMMON}


def deepseek_v3():
    """With YaRN, two of four groups, and latent vectors of queries; a query is larger than a key of the cache."""
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        num_hidden_layers=3, q_lora_rank=24, n_routed_experts=8, n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1,
        routed_scaling_factor=2.5, norm_topk_prob=True, rope_parameters=YARN, **LATENT))


def deepseek_v2():
    """Like its large one: groups, of which the best expert counts, and YaRN with other factors."""
    return transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(
        num_hidden_layers=3, q_lora_rank=40, n_routed_experts=9, n_shared_experts=2, n_group=3, topk_group=2, first_k_dense_replace=1,
        topk_method="group_limited_greedy", routed_scaling_factor=4.0, norm_topk_prob=False,
        rope_parameters={**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}, **LATENT))


def deepseek_v2_lite():
    """Without latent vectors of queries, and without groups."""
    return transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(
        num_hidden_layers=2, q_lora_rank=None, n_routed_experts=6, n_shared_experts=2, n_group=1, topk_group=1, first_k_dense_replace=1,
        topk_method="greedy", routed_scaling_factor=1.0, norm_topk_prob=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4}, **LATENT))


def kimi_linear_of(**more):
    linear = {"linear_num_heads": 3, "linear_head_dim": 16, "linear_conv_kernel_dim": 4}
    return transformers.KimiLinearForCausalLM(transformers.KimiLinearConfig(**{
        **LATENT, **linear, "num_hidden_layers": 5, "num_experts": 8, "num_shared_experts": 1, "num_expert_group": 4, "topk_group": 2,
        "routed_scaling_factor": 2.446, "moe_renormalize": True, "q_lora_rank": None, "rms_norm_eps": 1e-5, **more}))


def kimi_linear():
    """Three heads with a decay per channel; two layers of attention, without rotation."""
    kinds = ["full_attention" if i in (2, 4) else "linear_attention" for i in range(5)]
    return kimi_linear_of(layer_types=kinds, num_attention_heads=3, num_key_value_heads=3)


def kimi_linear_wide():
    """Two heads of 32 and three taps; the usual order of layers, the fifth with attention; latent vectors of queries, one group."""
    return kimi_linear_of(linear_num_heads=2, linear_head_dim=32, linear_conv_kernel_dim=3, q_lora_rank=24, num_expert_group=1, topk_group=1,
                          moe_intermediate_size=32)


def mistral4_of(beta):
    latent = {**LATENT, "num_attention_heads": 3, "num_key_value_heads": 3}
    return transformers.Mistral4ForCausalLM(transformers.Mistral4Config(
        num_hidden_layers=2, q_lora_rank=24, n_routed_experts=7, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=0,
        routed_scaling_factor=1.0, norm_topk_prob=True, rope_parameters={**YARN, "llama_4_scaling_beta": beta}, **latent))


def mistral4():
    """All layers have experts, and queries are scaled by position."""
    return mistral4_of(0.4)


def glm4_moe_lite():
    """A value is larger than the part of a key that is not rotated."""
    return transformers.Glm4MoeLiteForCausalLM(transformers.Glm4MoeLiteConfig(
        num_hidden_layers=3, q_lora_rank=24, n_routed_experts=6, n_shared_experts=1, n_group=1, topk_group=1, routed_scaling_factor=1.8,
        norm_topk_prob=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        **{**LATENT, "num_attention_heads": 5, "num_key_value_heads": 5, "v_head_dim": 32, "qk_nope_head_dim": 24, "kv_lora_rank": 64}))


def granite4_h_of(kinds, **more):
    """Granite 4's hybrid models. kinds: a letter per layer, m for a state space and a for attention."""
    types = [{"m": "linear_attention", "a": "full_attention"}[kind] for kind in kinds]
    return transformers.GraniteMoeHybridForCausalLM(transformers.GraniteMoeHybridConfig(**{
        **SMALL, "rms_norm_eps": 1e-5, "pad_token_id": 0, "tie_word_embeddings": True, "embedding_multiplier": 2.0,
        "residual_multiplier": 0.6, "attention_multiplier": 0.25, "logits_scaling": 0.5, "num_local_experts": 0,
        "shared_intermediate_size": 48, "mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_chunk_size": 16,
        "position_embedding_type": None, "num_hidden_layers": len(kinds), "layer_types": types, **more}))


def granite4_h():
    """Two groups of B and C; the first and the last layer are recurrent."""
    return granite4_h_of("mamm")


def granite4_h_moe():
    """Experts beside a shared MLP, three taps, and heads of different sizes from the state's."""
    return granite4_h_of("mma", num_local_experts=6, num_experts_per_tok=3, intermediate_size=16, shared_intermediate_size=32,
                         mamba_n_heads=2, mamba_n_groups=1, mamba_d_state=20, mamba_d_conv=3, tie_word_embeddings=False)


SPACE = {"mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_chunk_size": 16, "rms_norm_eps": 1e-5, "pad_token_id": 0}
MIXER = {"mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 16, "chunk_size": 16, "layer_norm_epsilon": 1e-5,
         "pad_token_id": 0}


def bamba():
    """Attention in one layer, which rotates half of a head."""
    return transformers.BambaForCausalLM(transformers.BambaConfig(
        num_hidden_layers=4, attn_layer_indices=[2], head_dim=16, **{**SMALL, **SPACE}))


def mamba2():
    return transformers.Mamba2ForCausalLM(transformers.Mamba2Config(
        num_hidden_layers=3, hidden_size=32, num_heads=4, head_dim=16, state_size=16, n_groups=2, chunk_size=16, vocab_size=V,
        bos_token_id=256, eos_token_id=256, pad_token_id=0))


def nemotron_h_of(kinds, **more):
    """kinds: a letter per layer, M for a state space, * for attention and - for an MLP."""
    return transformers.NemotronHForCausalLM(transformers.NemotronHConfig(**{
        **SMALL, **MIXER, "hybrid_override_pattern": kinds, "head_dim": 16, **more}))


def nemotron_h():
    return nemotron_h_of("M-*M-")


def falcon_h1_of(**more):
    """With a factor for each product."""
    return transformers.FalconH1ForCausalLM(transformers.FalconH1Config(**{
        **SMALL, **SPACE, "num_hidden_layers": 3, "mamba_d_ssm": 64, "mamba_d_head": 16, "mamba_norm_before_gate": False,
        "mamba_rms_norm": True, "tie_word_embeddings": False, "embedding_multiplier": 1.5, "lm_head_multiplier": 0.7,
        "mlp_multipliers": [0.8, 1.25], "key_multiplier": 0.6, "attention_in_multiplier": 1.2, "attention_out_multiplier": 0.9,
        "ssm_multipliers": [0.7, 1.3, 0.8, 1.2, 0.9], "ssm_in_multiplier": 1.1, "ssm_out_multiplier": 0.6, **more}))


def falcon_h1():
    return falcon_h1_of()


FAMILIES = {"kimi_linear": kimi_linear, "mamba2": mamba2, "nemotron_h": nemotron_h, "falcon_h1": falcon_h1, "granite4_h": granite4_h, "granite4_h_moe": granite4_h_moe, "deepseek_v3": deepseek_v3, "deepseek_v2": deepseek_v2, "deepseek_v2_lite": deepseek_v2_lite, "glm4_moe_lite": glm4_moe_lite, "mistral4": mistral4,
            "lfm2": lfm2, "lfm2_moe": lfm2_moe, "qwen3_5": qwen3_5, "qwen3_5_moe": qwen3_5_moe, "qwen3_next": qwen3_next, "falcon": falcon, "falcon_40b": falcon_40b, "gptneox": gptneox, "gptneox_sequential": gptneox_sequential,
            "qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl, "qwen3_vl_moe": qwen3_vl_moe,
            "qwen2": qwen2, "qwen3": qwen3, "gpt2": gpt2, "gemma": gemma, "gemma2": gemma2, "phi3": phi3, "smollm3": smollm3,
            "granite": granite, "olmo2": olmo2, "olmo3": olmo3, "gemma3": gemma3,
            "gemma4": gemma4, "gemma4_large": gemma4_large, "gemma4_moe": gemma4_moe,
            "phi3_long": phi3_long, "phi3_short": phi3_short,
            "mixtral": mixtral, "qwen2moe": qwen2moe, "qwen3moe": qwen3moe, "olmoe": olmoe, "granitemoe": granitemoe,
            "glm4": glm4, "ernie4_5": ernie4_5, "starcoder2": starcoder2, "stablelm": stablelm,
            "stablelm_12b": stablelm_12b, "mistral3": mistral3, "cohere2": cohere2,
            "phi": phi, "glm": glm, "command_r": command_r, "command_r_plus": command_r_plus, "granite4": granite4,
             "granite4_nope": granite4_nope, "minimax_m2": minimax_m2,
             "exaone4": exaone4, "gpt_oss": gpt_oss, "glm4moe": glm4moe, "seed_oss": seed_oss,
             "arcee": arcee, "nemotron": nemotron, "hunyuan": hunyuan, "apertus": apertus, "ernie4_5_moe": ernie4_5_moe}
