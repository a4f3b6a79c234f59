"""Folders with the keys and names of published ones, for convert.py: llama.cpp's converter wants them, and transformers
writes others."""
import json
import shutil

import kimi_folders
import make_folders
import newer_models


def glm4_moe_lite(config):
    config["first_k_dense_replace"] = config["mlp_layer_types"].count("dense")


def granite4_h(config):
    """The MLP of a model without experts is the shared one, and published folders state its width twice."""
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    config["layer_types"] = [names.get(kind, kind) for kind in config["layer_types"]]
    if config["mamba_d_head"] == "auto":
        config["mamba_d_head"] = config["mamba_expand"] * config["hidden_size"] // config["mamba_n_heads"]
    if config["num_local_experts"] == 0:
        config["intermediate_size"] = config["shared_intermediate_size"]


def nemotron_h(config):
    """The converter takes a model for one with experts if their keys exist, and MLPs for experts if layers are a list."""
    for name in [name for name in config if "expert" in name or "moe" in name]:
        del config[name]
    letters = {"mamba": "M", "attention": "*", "mlp": "-", "linear_attention": "M", "full_attention": "*"}
    config["num_hidden_layers"] = len(config["layers_block_type"])
    config["hybrid_override_pattern"] = "".join(letters[kind] for kind in config.pop("layers_block_type"))


def falcon_h1(config):
    config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]


def solar_open(config):
    config["partial_rotary_factor"] = 1.0


# Names of folders whose files change.
FINISHES = {"hunyuan_moe": newer_models.finish_hunyuan_moe, "kimi_linear": kimi_folders.finish, "kimi_linear_one": kimi_folders.finish, "mistral4_unscaled": make_folders.finish_ministral3}
# Names of folders whose config.json must be read as it is: transformers would add keys.
READ_AS_IS = ("nemotron_h",)
EDITS = {"glm4_moe_lite": glm4_moe_lite, "exaone_moe": glm4_moe_lite, "solar_open": solar_open, "granite4_h": granite4_h, "granite4_h_moe": granite4_h, "nemotron_h": nemotron_h,
         "falcon_h1": falcon_h1, "falcon_h1_norm": falcon_h1}


def published(folder, room):
    """Returns the folder, or a copy of it in `room` with published keys."""
    edit, finish = EDITS.get(folder.name), FINISHES.get(folder.name)
    is_published = "linear_attn_config" in (folder / "config.json").read_text()
    if is_published or not edit and not finish:
        return folder
    copy = shutil.copytree(folder, room / folder.name)
    if finish:
        finish(copy)
        return copy
    path = copy / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config))
    return copy
