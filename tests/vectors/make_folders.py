"""Makes tests/vectors/folders/: tiny random checkpoints in the form of Hugging Face's hub, and the results of
transformers.

Run it again only when a family is added or a shape changes; it needs no GPU and the packages of make_families.py:

    /tmp/oracle/bin/python tests/vectors/make_folders.py [--out FOLDER] [--seed N] [NAME ...]

For each name there is a folder, as save_pretrained writes it, and NAME.txt in the form of make_families.py: two prompts
with their 32 greedy tokens and logprobs in float32. Weights that a folder holds in bfloat16 are rounded before the
tokens are computed. The folders vary like published ones: one file or several, float32 or bfloat16, names with a prefix
or without, a config.json as transformers up to version 4 wrote it or as later ones do, generation_config.json.
"""

import json
import re
import shutil
from pathlib import Path

import family_models
import kimi_folders
import make_families
import newer_models
import safetensors.torch
import space_folders
import tokenizers
import torch
import transformers
from family_models import COMMON, CONTEXT, V
from make_families import MERGES, byte_letters

OUT = Path(__file__).resolve().parent / "folders"
SMALL = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, **COMMON}
TEMPLATE = ("{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}")


# ---- models -------------------------------------------------------------------------------------------------

def llama():
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 24}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=rope, **SMALL))


def mistral():
    return transformers.MistralForCausalLM(transformers.MistralConfig(
        rms_norm_eps=1e-5, head_dim=16, sliding_window=12, tie_word_embeddings=False, **SMALL))


def ministral3():
    return transformers.Ministral3ForCausalLM(transformers.Ministral3Config(
        rms_norm_eps=1e-5, head_dim=16, tie_word_embeddings=False, pad_token_id=0, rope_parameters=family_models.QUERY_SCALES, **SMALL))


def qwen2():
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        rms_norm_eps=1e-6, tie_word_embeddings=True, rope_theta=1e6, **SMALL))


def qwen3():
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        rms_norm_eps=1e-6, head_dim=12, tie_word_embeddings=False, rope_theta=1e6, **SMALL))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=32, n_inner=None, n_layer=2, n_head=2, n_positions=CONTEXT, layer_norm_epsilon=1e-5, vocab_size=V,
        activation_function="gelu_new", attn_implementation="eager", bos_token_id=256, eos_token_id=256))


def gemma2():
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        head_dim=12, query_pre_attn_scalar=16, sliding_window=12, attn_logit_softcapping=5.0,
        final_logit_softcapping=10.0, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, **SMALL))


def gemma():
    return transformers.GemmaForCausalLM(transformers.GemmaConfig(head_dim=12, rms_norm_eps=1e-6, **SMALL))


def phi3():
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(
        rms_norm_eps=1e-5, sliding_window=12, tie_word_embeddings=False, rope_parameters=rope, pad_token_id=0,
        original_max_position_embeddings=CONTEXT, **SMALL))


def opt():
    return transformers.OPTForCausalLM(transformers.OPTConfig(
        vocab_size=V, hidden_size=32, num_hidden_layers=2, ffn_dim=40, max_position_embeddings=CONTEXT,
        num_attention_heads=4, word_embed_proj_dim=32, attn_implementation="eager", bos_token_id=256, eos_token_id=256))


def opt_350m():
    """Like the 350M model: norms of the stream, and a narrower embedding."""
    return transformers.OPTForCausalLM(transformers.OPTConfig(
        vocab_size=V, hidden_size=32, num_hidden_layers=2, ffn_dim=40, max_position_embeddings=CONTEXT, num_attention_heads=4,
        word_embed_proj_dim=24, do_layer_norm_before=False, attn_implementation="eager", bos_token_id=256, eos_token_id=256))


def smollm3():
    return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(
        rms_norm_eps=1e-6, no_rope_layers=[1, 0], pad_token_id=0, tie_word_embeddings=True, **SMALL))


def granite():
    return transformers.GraniteForCausalLM(transformers.GraniteConfig(
        rms_norm_eps=1e-5, pad_token_id=0, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
        embedding_multiplier=2.0, residual_multiplier=0.3, attention_multiplier=0.25, logits_scaling=0.5, **SMALL))


def olmo3():
    rope = {"full_attention": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                               "original_max_position_embeddings": CONTEXT // 4, "attention_factor": 1.1386294361119891},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}
    return transformers.Olmo3ForCausalLM(transformers.Olmo3Config(
        rms_norm_eps=1e-6, pad_token_id=0, sliding_window=12, attention_bias=True, rope_parameters=rope,
        layer_types=["sliding_attention", "full_attention"], **SMALL))


def olmo2():
    return transformers.Olmo2ForCausalLM(transformers.Olmo2Config(
        rms_norm_eps=1e-6, pad_token_id=0, rope_theta=5e5, **{**SMALL, "num_attention_heads": 8, "num_key_value_heads": 8}))


def gemma3():
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        head_dim=16, query_pre_attn_scalar=24, sliding_window=12, rms_norm_eps=1e-6, sliding_window_pattern=2, **SMALL))


def llama_biased():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}, **SMALL))


def glm4():
    return transformers.Glm4ForCausalLM(transformers.Glm4Config(
        head_dim=16, rms_norm_eps=1e-5, pad_token_id=0, attention_bias=True, rope_parameters={
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}, **SMALL))


def ernie4_5():
    return transformers.Ernie4_5ForCausalLM(transformers.Ernie4_5Config(
        head_dim=12, rms_norm_eps=1e-5, pad_token_id=0, use_bias=True, rope_theta=5e5, **SMALL))


def seed_oss():
    return transformers.SeedOssForCausalLM(transformers.SeedOssConfig(
        head_dim=12, rms_norm_eps=1e-6, pad_token_id=0, attention_bias=True, rope_theta=1e7, **SMALL))


def starcoder2():
    return transformers.Starcoder2ForCausalLM(transformers.Starcoder2Config(
        norm_epsilon=1e-5, sliding_window=12, rope_theta=1e5, **SMALL))


def stablelm():
    return transformers.StableLmForCausalLM(transformers.StableLmConfig(layer_norm_eps=1e-5, **SMALL))


def stablelm_12b():
    """Like the 12B model: parallel branches, and a separate norm for each head."""
    return transformers.StableLmForCausalLM(transformers.StableLmConfig(
        layer_norm_eps=1e-5, use_parallel_residual=True, qk_layernorm=True, **{**SMALL, "num_attention_heads": 2}))


def cohere2():
    return transformers.Cohere2ForCausalLM(transformers.Cohere2Config(
        layer_norm_eps=1e-5, pad_token_id=0, sliding_window=12, logit_scale=0.5, layer_types=["full_attention", "sliding_attention"],
        **SMALL))


def exaone4():
    return transformers.Exaone4ForCausalLM(transformers.Exaone4Config(
        rms_norm_eps=1e-5, sliding_window=None, layer_types=["full_attention"] * 2, rope_theta=1e6, **SMALL))


def ministral():
    """The layers alternate between a window and none."""
    return transformers.MinistralForCausalLM(transformers.MinistralConfig(
        rms_norm_eps=1e-5, head_dim=16, sliding_window=12, tie_word_embeddings=False, pad_token_id=0,
        layer_types=["sliding_attention", "full_attention"], **SMALL))


def glm():
    return transformers.GlmForCausalLM(transformers.GlmConfig(
        head_dim=16, rms_norm_eps=1e-5, pad_token_id=0, attention_bias=True, tie_word_embeddings=False, rope_parameters={
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}, **SMALL))


def command_r():
    return transformers.CohereForCausalLM(transformers.CohereConfig(
        layer_norm_eps=1e-5, pad_token_id=0, logit_scale=0.5, attention_bias=True, **SMALL))


def command_r_plus():
    """With norms of queries and keys."""
    return transformers.CohereForCausalLM(transformers.CohereConfig(
        layer_norm_eps=1e-5, pad_token_id=0, logit_scale=0.5, use_qk_norm=True, **SMALL))


def granite4():
    return transformers.GraniteMoeHybridForCausalLM(transformers.GraniteMoeHybridConfig(
        rms_norm_eps=1e-5, pad_token_id=0, tie_word_embeddings=True, embedding_multiplier=2.0, residual_multiplier=0.3,
        attention_multiplier=0.25, logits_scaling=0.5, num_local_experts=0, shared_intermediate_size=48, mamba_n_heads=4,
        position_embedding_type="rope", layer_types=["full_attention"] * 2, **SMALL))


def phi():
    return transformers.PhiForCausalLM(transformers.PhiConfig(
        layer_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters={
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}, **SMALL))


def arcee():
    return transformers.ArceeForCausalLM(transformers.ArceeConfig(
        rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True, **SMALL))


def nemotron():
    return transformers.NemotronForCausalLM(transformers.NemotronConfig(norm_eps=1e-5, rope_theta=1e4, **SMALL))


def hunyuan():
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 1000.0, "factor": 1.0}
    return transformers.HunYuanDenseV1ForCausalLM(transformers.HunYuanDenseV1Config(
        rms_norm_eps=1e-5, head_dim=16, pad_token_id=0, attention_bias=True, tie_word_embeddings=True, rope_parameters=rope, **SMALL))


def apertus():
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 24}
    return transformers.ApertusForCausalLM(transformers.ApertusConfig(
        rms_norm_eps=1e-5, pad_token_id=0, attention_bias=True, rope_parameters=rope, **SMALL))


def ernie4_5_moe():
    return transformers.Ernie4_5_MoeForCausalLM(transformers.Ernie4_5_MoeConfig(
        rms_norm_eps=1e-5, pad_token_id=0, moe_intermediate_size=32, moe_k=2, moe_num_experts=5, moe_num_shared_experts=1,
        moe_layer_start_index=1, tie_word_embeddings=False, **{**SMALL, "intermediate_size": 64}))


def minimax_m2():
    rope = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}
    return transformers.MiniMaxM2ForCausalLM(transformers.MiniMaxM2Config(
        rms_norm_eps=1e-6, head_dim=16, rope_parameters=rope, **{**SMALL, "intermediate_size": 16}, **family_models.experts(6, 3)))


def mixtral():
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(
        rms_norm_eps=1e-5, sliding_window=12, **{**SMALL, "intermediate_size": 48}, **family_models.experts(4, 2)))


def qwen2moe():
    return transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        rms_norm_eps=1e-6, moe_intermediate_size=16, shared_expert_intermediate_size=48, norm_topk_prob=True, **SMALL,
        **family_models.experts(4, 2)))


def olmoe():
    return transformers.OlmoeForCausalLM(transformers.OlmoeConfig(
        rms_norm_eps=1e-5, norm_topk_prob=True, **{**SMALL, "intermediate_size": 16}, **family_models.experts(5, 2)))


def granitemoe():
    return transformers.GraniteMoeForCausalLM(transformers.GraniteMoeConfig(
        rms_norm_eps=1e-5, embedding_multiplier=2.0, residual_multiplier=0.3, attention_multiplier=0.25, logits_scaling=0.5,
        **{**SMALL, "intermediate_size": 32}, **family_models.experts(4, 2)))


def gpt_oss():
    rope = {"rope_type": "yarn", "rope_theta": 1.5e5, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": CONTEXT // 4}
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        head_dim=24, sliding_window=12, rms_norm_eps=1e-5, rope_parameters=rope, **{**SMALL, "hidden_size": 64, "intermediate_size": 32},
        **family_models.experts(5, 2)))


def glm4moe():
    return transformers.Glm4MoeForCausalLM(transformers.Glm4MoeConfig(
        head_dim=12, rms_norm_eps=1e-5, moe_intermediate_size=16, n_routed_experts=6, n_shared_experts=2, attention_bias=True,
        first_k_dense_replace=2, n_group=1, topk_group=1, num_experts_per_tok=2, routed_scaling_factor=2.5, norm_topk_prob=False,
        num_nextn_predict_layers=1, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.5}, **{**SMALL, "num_hidden_layers": 3}))


def qwen3moe():
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        rms_norm_eps=1e-6, moe_intermediate_size=16, head_dim=12, norm_topk_prob=False, **SMALL,
        **family_models.experts(6, 3)))


def qwen2moe_mixed():
    """Only each second layer has experts, except the last."""
    return transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        rms_norm_eps=1e-6, moe_intermediate_size=32, shared_expert_intermediate_size=64, norm_topk_prob=False, decoder_sparse_step=2,
        mlp_only_layers=[3], **{**SMALL, "num_hidden_layers": 4}, **family_models.experts(4, 2)))


def lfm2():
    """With biases, a width that is adjusted, and a convolution in the last layer."""
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(
        conv_bias=True, block_ffn_dim_multiplier=1.2, block_multiple_of=16, tie_word_embeddings=False, pad_token_id=0,
        layer_types=["conv", "full_attention", "full_attention", "conv"], rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        **{**SMALL, "num_hidden_layers": 4, "intermediate_size": 60}))


def lfm2_moe():
    """With biases, two layers with an MLP, and weights that do not add up to 1 and are scaled."""
    return transformers.Lfm2MoeForCausalLM(transformers.Lfm2MoeConfig(
        num_dense_layers=2, moe_intermediate_size=16, num_experts=5, num_experts_per_tok=3, conv_bias=True, conv_L_cache=4,
        routed_scaling_factor=1.4, norm_topk_prob=False, tie_word_embeddings=False, pad_token_id=0,
        layer_types=["full_attention", "conv", "conv", "full_attention"], rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        **{**SMALL, "num_hidden_layers": 4, "intermediate_size": 48}))


def qwen3_5():
    """The whole model; sizes of key and value heads differ, and the last layer is recurrent."""
    return family_models.with_vision("Qwen3_5", {"num_position_embeddings": 16}, **{
        **family_models.DELTA, "num_hidden_layers": 5, "linear_num_key_heads": 3, "linear_key_head_dim": 12,
        "layer_types": ["linear_attention"] * 2 + ["full_attention"] + ["linear_attention"] * 2})


def qwen3_5_moe():
    delta = {**family_models.DELTA, "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
    return family_models.with_vision("Qwen3_5Moe", {"num_position_embeddings": 16}, moe_intermediate_size=16,
                                     shared_expert_intermediate_size=16, **{**delta, **family_models.experts(4, 2)})


def qwen3_next():
    """The second layer has an MLP; key heads are smaller than value heads."""
    delta = {name: value for name, value in family_models.DELTA.items() if name != "rope_parameters"}
    delta.update(linear_num_key_heads=3, linear_key_head_dim=8, layer_types=None)
    rope = {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25}
    return transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(
        moe_intermediate_size=16, shared_expert_intermediate_size=16, mlp_only_layers=[1], rope_parameters=rope,
        **{**SMALL, **delta, **family_models.experts(4, 2)}))


def qwen3moe_mixed():
    """The first layer has an MLP, which a GGUF file can represent."""
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        rms_norm_eps=1e-6, moe_intermediate_size=16, head_dim=12, norm_topk_prob=True, mlp_only_layers=[0], **SMALL,
        **family_models.experts(6, 3)))


def kimi_k2():
    """DeepSeek V3's class with other numbers: one group, and half as many heads."""
    latent = {**family_models.LATENT, "num_attention_heads": 2, "num_key_value_heads": 2}
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        num_hidden_layers=2, q_lora_rank=40, n_routed_experts=10, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1,
        routed_scaling_factor=2.827, norm_topk_prob=True, rope_parameters=family_models.YARN, **latent))


# ---- changes to a folder ------------------------------------------------------------------------------------

def edit_json(path, edit):
    values = json.loads(path.read_text())
    edit(values)
    path.write_text(json.dumps(values, indent=2) + "\n")


def old_spelling(config):
    """The spelling of transformers up to version 4."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    if rope.get("rope_type", "default") != "default":
        config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")


def several_ends(generation):
    generation.update(eos_token_id=[256, 257], do_sample=True, temperature=0.6, top_p=0.9, top_k=50)


def finish_llama(folder):
    edit_json(folder / "config.json", old_spelling)
    edit_json(folder / "generation_config.json", several_ends)


def finish_lfm2(folder):
    """Published folders list the layers with attention, and name the width and the tie otherwise."""
    def rename(config):
        config["full_attn_idxs"] = [i for i, kind in enumerate(config.pop("layer_types")) if kind != "conv"]
        config["block_ff_dim"] = config.pop("intermediate_size")
        config["tie_embedding"] = config.pop("tie_word_embeddings")
    edit_json(folder / "config.json", rename)
    edit_json(folder / "config.json", old_spelling)


def finish_delta(folder):
    """Published folders also hold a part that predicts further tokens."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors["mtp.fc.weight"] = torch.zeros(32, 64, dtype=torch.bfloat16)
    tensors["mtp.layers.0.input_layernorm.weight"] = torch.zeros(32, dtype=torch.bfloat16)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def finish_olmo3(folder):
    """Olmo 3 was published in the old spelling, which stretches only its full layers."""
    def edit(config):
        rope = config.pop("rope_parameters")
        full = rope["full_attention"]
        config["rope_theta"] = full.pop("rope_theta")
        config["rope_scaling"] = full
    edit_json(folder / "config.json", edit)


def finish_ministral3(folder):
    """As published: a model with images, whose names have a longer prefix."""
    def edit(config):
        text = {**config}
        del text["architectures"]
        config.clear()
        config.update(architectures=["Mistral3ForConditionalGeneration"], model_type="mistral3", text_config=text,
                      vision_config={"hidden_size": 8})
    edit_json(folder / "config.json", edit)
    path = folder / "model.safetensors"
    tensors = {"language_model." + name: data for name, data in safetensors.torch.load_file(path).items()}
    tensors["vision_tower.ln_pre.weight"] = torch.ones(8)
    tensors["multi_modal_projector.norm.weight"] = torch.ones(8)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def finish_gemma3(folder):
    """Like a model with images: the text part has a separate config, and names have a longer prefix."""
    def edit(config):
        rope = config.pop("rope_parameters")
        text = {**config, "rope_theta": rope["full_attention"]["rope_theta"],
                "rope_local_base_freq": rope["sliding_attention"]["rope_theta"], "sliding_window_pattern": 2}
        del text["layer_types"], text["architectures"]
        config.clear()
        config.update(architectures=["Gemma3ForConditionalGeneration"], model_type="gemma3", text_config=text,
                      vision_config={"hidden_size": 8})
    edit_json(folder / "config.json", edit)
    path = folder / "model.safetensors"
    tensors = {"language_model." + name: data for name, data in safetensors.torch.load_file(path).items()}
    tensors["vision_tower.vision_model.embeddings.patch_embedding.bias"] = torch.ones(8)
    tensors["multi_modal_projector.mm_soft_emb_norm.weight"] = torch.ones(8)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def finish_gemma4(folder):
    """Like the published small ones: the text part has a separate config, with head sizes in the spelling of the first
    release, parts for images and sound, and keys and values in layers that read others'."""
    def edit(config):
        full = next(iter(config.pop("per_layer_config").values()))
        text = {**config, "global_head_dim": full["head_dim"], "num_global_key_value_heads": None}
        del text["architectures"]
        config.clear()
        config.update(architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4", text_config=text,
                      vision_config={"hidden_size": 8}, audio_config={"hidden_size": 8})
    edit_json(folder / "config.json", edit)
    path = folder / "model.safetensors"
    tensors = {name.replace("model.", "model.language_model.", 1): data
               for name, data in safetensors.torch.load_file(path).items()}
    for kind in ("k_proj", "v_proj", "k_norm"):
        tensors[f"model.language_model.layers.2.self_attn.{kind}.weight"] = torch.ones(8)
    for part in ("vision_tower.patch_embedder.bias", "audio_tower.layers.0.bias", "embed_vision.bias", "embed_audio.bias"):
        tensors["model." + part] = torch.ones(8)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def finish_gemma(folder):
    """The name that the first files of Gemma use for the approximation with tanh."""
    edit_json(folder / "config.json", lambda config: config.update(hidden_act="gelu"))


def finish_gpt2(folder):
    """Published GPT-2 has names without a prefix, and the mask that its attention computes."""
    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): data for name, data in safetensors.torch.load_file(path).items()}
    tensors["h.0.attn.bias"] = torch.tril(torch.ones(4, 4, dtype=torch.uint8)).view(1, 1, 4, 4)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def finish_glm4moe(folder):
    """As published, with a layer after the last one that predicts one more token."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors["model.layers.3.eh_proj.weight"] = torch.ones(32, 64)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def finish_deepseek(config):
    """The keys of published folders that transformers does not write."""
    config.update(scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1, ep_size=1, num_nextn_predict_layers=1)
    for name in ("head_dim", "qk_head_dim", "rope_interleave"):
        config.pop(name, None)


def finish_deepseek_v3(folder):
    """As published, with a layer after the last one that predicts one more token."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors["model.layers.3.eh_proj.weight"] = torch.ones(32, 64)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    edit_json(folder / "config.json", old_spelling)
    edit_json(folder / "config.json", finish_deepseek)


def finish_kimi_k2(folder):
    edit_json(folder / "config.json", lambda config: config.update(model_type="kimi_k2", num_nextn_predict_layers=0))


def finish_qwen2_5_vl(folder):
    """As published: the keys of the text part beside those of the others."""
    def edit(config):
        text = config.pop("text_config")
        rope = text.pop("rope_parameters")
        del text["model_type"], text["layer_types"]
        config.update(text, rope_theta=rope["rope_theta"], rope_scaling={"type": "mrope", "mrope_section": rope["mrope_section"]},
                      torch_dtype=config.pop("dtype"), model_type="qwen2_5_vl")
    edit_json(folder / "config.json", edit)


def finish_qwen3_vl_moe(folder):
    """The first layer's experts as in published folders, in columns."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for kind in ("gate_up_proj", "down_proj"):
        name = f"model.language_model.layers.0.mlp.experts.{kind}"
        tensors[name] = tensors[name].transpose(1, 2).contiguous()
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def gemma4_unified():
    """Like its 12B model: layers as those of the 31B model, and raw parts of images and sounds."""
    rope = {"full_attention": {"rope_type": "proportional", "rope_theta": 1e3, "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e2}}
    text = {**SMALL, "num_hidden_layers": 3, "layer_types": ["sliding_attention"] * 2 + ["full_attention"], "head_dim": 16,
            "global_head_dim": 32, "num_key_value_heads": 4, "num_global_key_value_heads": 2, "attention_k_eq_v": True,
            "sliding_window": 12, "rms_norm_eps": 1e-6, "final_logit_softcapping": 4.0, "rope_parameters": rope}
    del text["attn_implementation"]
    return transformers.Gemma4UnifiedForConditionalGeneration(transformers.Gemma4UnifiedConfig(
        text_config=text, vision_config={"patch_size": 2, "pooling_kernel_size": 1, "mm_embed_dim": 8, "mm_posemb_size": 4,
                                         "output_proj_dims": 8}, audio_config={"audio_embed_dim": 8}, attn_implementation="eager"))


def falcon_11b():
    """Like the 11B model: several key heads, and one norm for both branches."""
    return family_models.falcon_of(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1)


def finish_falcon(folder):
    """As published: old names of keys, and none for the MLP's width and the context."""
    def edit(config):
        old_spelling(config)
        for new, old in (("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head")):
            config[old] = config.pop(new)
        del config["num_kv_heads"], config["ffn_hidden_size"], config["max_position_embeddings"]
    edit_json(folder / "config.json", edit)


def falcon():
    return transformers.FalconForCausalLM(transformers.FalconConfig(
        num_hidden_layers=2, hidden_size=24, num_attention_heads=3, layer_norm_epsilon=1e-5, **COMMON))


def gptneox():
    return family_models.gptneox_of(True, 0.25)


def finish_gptneox(folder):
    """As published: rotary keys of its own, and masks."""
    def edit(config):
        rope = config.pop("rope_parameters")
        config.update(rotary_pct=rope["partial_rotary_factor"], rotary_emb_base=10000)
    edit_json(folder / "config.json", edit)
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors["gpt_neox.layers.0.attention.bias"] = torch.tril(torch.ones(4, 4, dtype=torch.uint8)).view(1, 1, 4, 4)
    tensors["gpt_neox.layers.0.attention.masked_bias"] = torch.tensor(-1e9)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def finish_granite4(folder):
    """The published spelling of layers with attention."""
    edit_json(folder / "config.json", lambda config: config.update(layer_types=["attention"] * len(config["layer_types"])))


def finish_granite4_h(folder):
    """The published spellings: kinds of layers, and a limit that is not JSON."""
    path = folder / "config.json"
    names = {"full_attention": "attention", "linear_attention": "mamba"}
    edit_json(path, lambda config: config.update(layer_types=[names.get(kind, kind) for kind in config["layer_types"]]))
    path.write_text(re.sub(r'{\s*"__float__": "Infinity"\s*}', "Infinity", path.read_text()))


def finish_granite4_h_moe(folder):
    finish_granite4_h(folder)
    edit_json(folder / "config.json", lambda config: config.update(mamba_d_head="auto"))


def finish_minimax_m2(folder):
    """As published: the rotated part as a number of dimensions, and a key for the norms of heads."""
    def edit(config):
        rope = config.pop("rope_parameters")
        config.update(rope_theta=rope["rope_theta"], rotary_dim=8, use_qk_norm=True, qk_norm_type="per_layer", scoring_func="sigmoid")
    edit_json(folder / "config.json", edit)


def finish_ernie4_5_moe(folder):
    """As published, with tensors that predict further tokens."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors["model.mtp_emb_norm.0.weight"] = torch.ones(32)
    tensors["model.mtp_block.0.mlp.up_proj.weight"] = torch.ones(8, 32)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def finish_hunyuan(folder):
    """The published spelling of the rotation."""
    def edit(config):
        rope = config.pop("rope_parameters")
        config.update(rope_theta=rope["rope_theta"], rope_scaling={"type": "dynamic", "alpha": rope["alpha"], "factor": 1.0,
                                                                   "beta_fast": 32, "beta_slow": 1, "mscale": 1.0})
        config["use_qk_norm"] = True
    edit_json(folder / "config.json", edit)


# ---- MXFP4 ----------------------------------------------------------------------------------------------------

MXFP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4_parts(columns):
    """Returns exponents and numbers of the format, both with blocks of 32 inputs last, of experts [E][in][out]."""
    blocks = columns.float().transpose(1, 2).unflatten(2, (-1, 32))
    exponent = torch.floor(torch.log2(blocks.abs().amax(dim=-1, keepdim=True))) - 2
    return exponent, blocks / torch.exp2(exponent)


def to_mxfp4(columns):
    """Returns the nearest numbers of the format."""
    exponent, numbers = mxfp4_parts(columns)
    nearest = MXFP4[(numbers.abs().unsqueeze(-1) - MXFP4).abs().argmin(dim=-1)]
    return (nearest * numbers.sign() * torch.exp2(exponent)).flatten(2).transpose(1, 2).contiguous()


def finish_mxfp4(folder):
    """Stores the experts' matrices as blocks and scales, as published."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        exponent, numbers = mxfp4_parts(tensors.pop(name))
        codes = (numbers.abs().unsqueeze(-1) == MXFP4).int().argmax(dim=-1) + 8 * (numbers < 0)
        assert torch.equal(MXFP4[codes % 8] * torch.where(codes > 7, -1.0, 1.0), numbers)
        tensors[name + "_blocks"] = (codes[..., 0::2] + 16 * codes[..., 1::2]).to(torch.uint8).contiguous()
        tensors[name + "_scales"] = (exponent.squeeze(-1) + 127).to(torch.uint8).contiguous()
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    quantised = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"]}
    edit_json(folder / "config.json", lambda config: config.update(quantization_config=quantised))


# name: (model, type of its weights, largest file, changes to the folder)
FOLDERS = {
    "deepseek_v3": (family_models.deepseek_v3, torch.bfloat16, "1GB", finish_deepseek_v3),
    "deepseek_v2": (family_models.deepseek_v2, torch.bfloat16, "1GB", None),
    "deepseek_v2_lite": (family_models.deepseek_v2_lite, torch.float32, "1GB", None),
    "glm4_moe_lite": (family_models.glm4_moe_lite, torch.bfloat16, "1GB", None),
    "kimi_linear": (family_models.kimi_linear, torch.bfloat16, "1GB", None),
    "kimi_linear_wide": (family_models.kimi_linear_wide, torch.bfloat16, "1GB", kimi_folders.finish),
    "kimi_k2": (kimi_k2, torch.bfloat16, "1GB", finish_kimi_k2),
    "mistral4": (family_models.mistral4, torch.bfloat16, "1GB", finish_ministral3),
    "lfm2": (lfm2, torch.bfloat16, "1GB", finish_lfm2),
    "lfm2_moe": (lfm2_moe, torch.bfloat16, "1GB", None),
    "qwen3_5": (qwen3_5, torch.bfloat16, "1GB", finish_delta),
    "qwen3_5_moe": (qwen3_5_moe, torch.bfloat16, "1GB", finish_delta),
    "qwen3_next": (qwen3_next, torch.bfloat16, "1GB", finish_delta),
    "bamba": (family_models.bamba, torch.bfloat16, "1GB", None),
    "mamba2": (space_folders.mamba2, torch.bfloat16, "1GB", None),
    "nemotron_h": (space_folders.nemotron_h, torch.bfloat16, "1GB", None),
    "falcon_h1": (space_folders.falcon_h1, torch.bfloat16, "1GB", None),
    "falcon_h1_norm": (space_folders.falcon_h1_norm, torch.bfloat16, "1GB", None),
    "granite4_h": (space_folders.granite4_h, torch.bfloat16, "1GB", finish_granite4_h),
    "granite4_h_moe": (space_folders.granite4_h_moe, torch.bfloat16, "1GB", finish_granite4_h_moe),
    "llama": (llama, torch.float32, "60KB", finish_llama),
    "mistral": (mistral, torch.bfloat16, "1GB", None),
    "ministral3": (ministral3, torch.bfloat16, "1GB", finish_ministral3),
    "qwen2": (qwen2, torch.bfloat16, "1GB", None),
    "qwen3": (qwen3, torch.bfloat16, "30KB", None),
    "gpt2": (gpt2, torch.float32, "1GB", finish_gpt2),
    "gemma": (gemma, torch.bfloat16, "1GB", finish_gemma),
    "gemma2": (gemma2, torch.bfloat16, "1GB", None),
    "phi3": (phi3, torch.bfloat16, "1GB", None),
    "opt": (opt, torch.bfloat16, "1GB", None),
    "opt_350m": (opt_350m, torch.bfloat16, "1GB", None),
    "smollm3": (smollm3, torch.bfloat16, "1GB", None),
    "granite": (granite, torch.bfloat16, "1GB", None),
    "olmo2": (olmo2, torch.bfloat16, "1GB", None),
    "olmo3": (olmo3, torch.bfloat16, "1GB", finish_olmo3),
    "gemma3": (gemma3, torch.bfloat16, "1GB", finish_gemma3),
    "gemma4": (family_models.gemma4, torch.bfloat16, "1GB", finish_gemma4),
    "gemma4_large": (family_models.gemma4_large, torch.bfloat16, "1GB", None),
    "gemma4_moe": (family_models.gemma4_moe, torch.bfloat16, "1GB", None),
    "mixtral": (mixtral, torch.bfloat16, "1GB", None),
    "qwen2moe": (qwen2moe, torch.bfloat16, "1GB", None),
    "olmoe": (olmoe, torch.bfloat16, "1GB", None),
    "granitemoe": (granitemoe, torch.bfloat16, "1GB", None),
    "qwen3moe": (qwen3moe, torch.float32, "60KB", None),
    "qwen2moe_mixed": (qwen2moe_mixed, torch.bfloat16, "1GB", None),
    "falcon": (falcon, torch.bfloat16, "1GB", finish_falcon),
    "gptneox": (gptneox, torch.float16, "1GB", finish_gptneox),
    "qwen2_5_vl": (family_models.qwen2_5_vl, torch.bfloat16, "1GB", finish_qwen2_5_vl),
    "qwen3_vl_moe": (family_models.qwen3_vl_moe, torch.bfloat16, "1GB", finish_qwen3_vl_moe),
    "qwen3moe_mixed": (qwen3moe_mixed, torch.bfloat16, "1GB", None),
    "granite4": (granite4, torch.bfloat16, "1GB", finish_granite4),
    "granite4_nope": (family_models.granite4_nope, torch.bfloat16, "1GB", finish_granite4),
    "minimax_m2": (minimax_m2, torch.bfloat16, "1GB", finish_minimax_m2),
    "glm4moe": (glm4moe, torch.float32, "1GB", finish_glm4moe),
    "ernie4_5_moe": (ernie4_5_moe, torch.bfloat16, "1GB", finish_ernie4_5_moe),
    "hunyuan": (hunyuan, torch.bfloat16, "1GB", finish_hunyuan),
    "gpt_oss": (gpt_oss, torch.bfloat16, "1GB", None),
    "gpt_oss_mxfp4": (gpt_oss, torch.bfloat16, "1GB", finish_mxfp4),
    **{name: (make, torch.bfloat16, "1GB", newer_models.FINISHES.get(name)) for name, make in {
        "llama_biased": llama_biased, "glm4": glm4, "ernie4_5": ernie4_5, "seed_oss": seed_oss, "starcoder2": starcoder2,
        "stablelm": stablelm, "stablelm_12b": stablelm_12b, "cohere2": cohere2, "exaone4": exaone4, "ministral": ministral, "glm": glm,
        "falcon_11b": falcon_11b, "falcon_40b": family_models.falcon_40b,
        "gptneox_sequential": family_models.gptneox_sequential, "qwen3_vl": family_models.qwen3_vl, "gemma4_unified": gemma4_unified, "command_r": command_r, "command_r_plus": command_r_plus, "phi": phi,
        "arcee": arcee, "nemotron": nemotron, "apertus": apertus, **newer_models.FOLDERS}.items()},
}


# ---- the vocabulary -----------------------------------------------------------------------------------------

def write_tokenizer(folder):
    """Byte-level BPE: the 256 bytes, the end of a text, and the results of a few merges; the other ids have no token."""
    tokens = byte_letters() + ["<|endoftext|>", "<|im_end|>"] + [merge.replace(" ", "", 1) for merge in MERGES]
    vocabulary = {token: id for id, token in enumerate(tokens)}
    model = tokenizers.models.BPE(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in MERGES])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


# ---- the folders --------------------------------------------------------------------------------------------

def rounded(make, dtype, in_mxfp4):
    """Wraps `make`: after the random weights are drawn, rounds them to dtype, or to MXFP4 for experts. golden() draws
    them after making."""
    plain = make_families.randomise

    def randomise(model, seed):
        model = plain(model, seed)
        for parameter in model.parameters():
            parameter.data = (to_mxfp4(parameter.data) if in_mxfp4 and parameter.dim() == 3 else parameter.data).to(dtype).float()
        for correction in make_families.corrections(model):
            correction.data = correction.data.to(dtype).float()
        return model

    make_families.randomise = randomise
    try:
        return make_families.golden(make)
    finally:
        make_families.randomise = plain


def write_folder(name):
    make, dtype, largest, finish = FOLDERS[name]
    model, runs, seed = rounded(make, dtype, finish is finish_mxfp4)
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.to(dtype).save_pretrained(folder, max_shard_size=largest)
    write_tokenizer(folder)
    if finish:
        finish(folder)
    make_families.write_golden(OUT / f"{name}.txt", name, runs, seed)
    files = list(folder.iterdir())
    for path in files:
        path.chmod(0o644)
    print(f"{name}: seed {seed}, {len(files)} files, {sum(path.stat().st_size for path in files)} bytes", flush=True)


def main():
    global OUT
    names, OUT = make_families.begin(FOLDERS, "folders")
    for name in names:
        write_folder(name)


if __name__ == "__main__":
    main()
