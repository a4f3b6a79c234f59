"""More tiny models without weights: of each family a function for its GGUF file, if llama.cpp has the architecture, and one for its
folder, where the two differ. make_families.py and make_folders.py read the tables at the end."""
import json

import gguf
import transformers
from family_models import CONTEXT, SMALL


def dots1():
    return transformers.Dots1ForCausalLM(transformers.Dots1Config(
        num_hidden_layers=3, rms_norm_eps=1e-5, moe_intermediate_size=32, n_routed_experts=6, n_shared_experts=2, first_k_dense_replace=1,
        n_group=1, topk_group=1, num_experts_per_tok=3, routed_scaling_factor=1.7, norm_topk_prob=True, sliding_window=None,
        tie_word_embeddings=False, rope_theta=1e6, **SMALL))


def dots1_folder():
    """With groups, two layers without experts, and windows in the last layer."""
    return transformers.Dots1ForCausalLM(transformers.Dots1Config(
        num_hidden_layers=4, rms_norm_eps=1e-5, moe_intermediate_size=32, n_routed_experts=8, n_shared_experts=1, first_k_dense_replace=2, n_group=4, topk_group=2,
        num_experts_per_tok=3, routed_scaling_factor=2.5, norm_topk_prob=False, sliding_window=12, max_window_layers=3,
        tie_word_embeddings=False, **SMALL))


def solar_open_folder():
    """With YaRN, and biases of queries, keys and values."""
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": CONTEXT // 4}
    small = {name: value for name, value in SMALL.items() if name != "intermediate_size"}
    return transformers.SolarOpenForCausalLM(transformers.SolarOpenConfig(
        num_hidden_layers=2, head_dim=16, rms_norm_eps=1e-5, moe_intermediate_size=32, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=3,
        attention_bias=True, routed_scaling_factor=1.5, rope_parameters=rope, **small))


def cwm():
    """Llama 3's rotation in all layers; the first and the fifth are without a window."""
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 24}
    return transformers.CwmForCausalLM(transformers.CwmConfig(
        num_hidden_layers=5, head_dim=8, rms_norm_eps=1e-5, sliding_window=12, rope_parameters=rope, **SMALL))


def jais2_of(**more):
    return transformers.Jais2ForCausalLM(transformers.Jais2Config(num_hidden_layers=2, layer_norm_eps=1e-5, **{**SMALL, **more}))


def jais2():
    return jais2_of(rope_theta=5e5)


def jais2_folder():
    """As many key heads as heads, whose size is not the stream's width per head."""
    return jais2_of(num_key_value_heads=4, head_dim=16, tie_word_embeddings=True)


EXAONE_MOE = {"rms_norm_eps": 1e-5, "head_dim": 8, "sliding_window": 12, "moe_intermediate_size": 32, "num_experts_per_tok": 3}


def exaone_moe():
    """The fourth layer has neither a window nor positions."""
    return transformers.ExaoneMoeForCausalLM(transformers.ExaoneMoeConfig(
        num_hidden_layers=5, num_experts=6, num_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=2.5, rope_theta=1e6,
        **EXAONE_MOE, **SMALL))


def exaone_moe_folder():
    """With groups, experts in the last layer only, and such a layer that guesses ahead as published ones have."""
    return transformers.ExaoneMoeForCausalLM(transformers.ExaoneMoeConfig(
        num_hidden_layers=3, layer_types=["full_attention", "sliding_attention", "full_attention"], mlp_layer_types=["dense", "dense", "sparse"],
        num_experts=8, num_shared_experts=1, n_group=4, topk_group=2, norm_topk_prob=False, num_nextn_predict_layers=1, **EXAONE_MOE, **SMALL))


def hunyuan_moe_of(**more):
    return transformers.HunYuanMoEV1ForCausalLM(transformers.HunYuanMoEV1Config(
        num_hidden_layers=2, head_dim=16, rms_norm_eps=1e-5, **{**SMALL, "intermediate_size": 32, **more}))


def hunyuan_moe():
    return hunyuan_moe_of(num_experts=6, moe_topk=3, rope_parameters={"rope_type": "default", "rope_theta": 1e6})


def hunyuan_moe_folder():
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 1000.0, "factor": 1.0}
    return hunyuan_moe_of(num_experts=5, moe_topk=2, tie_word_embeddings=True, rope_parameters=rope)


def finish_hunyuan_moe(folder):
    """As published: a number for each layer."""
    config = json.loads((folder / "config.json").read_text())
    layers = config["num_hidden_layers"]
    config.update(moe_topk=[config["moe_topk"]] * layers, moe_intermediate_size=[config["intermediate_size"]] * layers,
                  num_shared_expert=[1] * layers, use_cla=False, use_qk_norm=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


AFMOE = {"rms_norm_eps": 1e-5, "sliding_window": 12, "moe_intermediate_size": 32, "num_experts_per_tok": 3, "mup_enabled": True}


def afmoe():
    """The fourth layer has neither a window nor positions."""
    return transformers.AfmoeForCausalLM(transformers.AfmoeConfig(
        num_hidden_layers=5, head_dim=8, num_dense_layers=1, num_experts=6, num_shared_experts=2, route_scale=1.5, rope_theta=1e6,
        **AFMOE, **SMALL))


def afmoe_folder():
    return transformers.AfmoeForCausalLM(transformers.AfmoeConfig(
        num_hidden_layers=3, head_dim=16, num_dense_layers=2, num_experts=8, num_shared_experts=1, route_scale=2.826,
        layer_types=["full_attention", "sliding_attention", "full_attention"], score_func="sigmoid", route_norm=True, **AFMOE, **SMALL))


def with_pictures(name, kind, **more):
    """A model of several parts; only its text part, of this kind, is run."""
    text = {name: value for name, value in SMALL.items() if name != "attn_implementation"}
    side = {"internvl": [8, 8]}.get(name, 8)
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": side,
              "patch_size": [4, 4] if name == "internvl" else 4}
    class_name = {"internvl": "InternVL", "smolvlm": "SmolVLM"}[name]
    config = getattr(transformers, class_name + "Config")(
        text_config={"model_type": kind, "num_hidden_layers": 2, "tie_word_embeddings": False, "rope_theta": 1e6, **text, **more},
        vision_config=vision, tie_word_embeddings=False, attn_implementation="eager")
    return getattr(transformers, class_name + "ForConditionalGeneration")(config)


def internvl():
    return with_pictures("internvl", "qwen3", head_dim=16)


def smolvlm():
    return with_pictures("smolvlm", "llama")


def first_of(c, *names):
    return next(getattr(c, name) for name in names if hasattr(c, name))


def add_sigmoid_experts(writer, c):
    """The keys of experts that are chosen by sigmoids, some in groups, with shared ones and layers without."""
    writer.add_expert_feed_forward_length(c.moe_intermediate_size)
    writer.add_expert_count(first_of(c, "n_routed_experts", "num_experts"))
    writer.add_expert_used_count(c.num_experts_per_tok)
    writer.add_expert_shared_count(first_of(c, "n_shared_experts", "num_shared_experts"))
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_weights_scale(first_of(c, "routed_scaling_factor", "route_scale"))
    writer.add_expert_weights_norm(getattr(c, "norm_topk_prob", True))
    writer.add_expert_group_count(getattr(c, "n_group", 1))
    writer.add_expert_group_used_count(getattr(c, "topk_group", 1))
    writer.add_leading_dense_block_count(first_of(c, "first_k_dense_replace", "num_dense_layers"))


def add_hunyuan_experts(writer, c):
    writer.add_expert_feed_forward_length(c.intermediate_size)
    writer.add_expert_shared_feed_forward_length(c.intermediate_size)
    writer.add_expert_count(c.num_experts)
    writer.add_expert_used_count(c.moe_topk)
    writer.add_expert_shared_count(1)


FAMILIES = {"dots1": dots1, "jais2": jais2, "exaone_moe": exaone_moe, "hunyuan_moe": hunyuan_moe, "afmoe": afmoe}
FOLDERS = {"dots1": dots1_folder, "solar_open": solar_open_folder, "cwm": cwm, "jais2": jais2_folder, "exaone_moe": exaone_moe_folder, "hunyuan_moe": hunyuan_moe_folder,
           "afmoe": afmoe_folder, "internvl": internvl, "smolvlm": smolvlm}
FINISHES = {"hunyuan_moe": finish_hunyuan_moe}  # changes to a folder
EXPERTS = {"dots1": add_sigmoid_experts, "exaone_moe": add_sigmoid_experts, "hunyuan_moe": add_hunyuan_experts, "afmoe": add_sigmoid_experts}  # keys of GGUF files
