"""Folders of Kimi Linear for make_folders.py, as published."""

import json

import safetensors.torch

DENSE = ("block_sparse_moe.gate_proj", "block_sparse_moe.up_proj", "block_sparse_moe.down_proj")


def published(config):
    """Changes a config.json of transformers to the keys of the remote code."""
    kinds = config.pop("layer_types")
    layers = {kind: [i + 1 for i, each in enumerate(kinds) if each == kind] for kind in ("full_attention", "linear_attention")}
    config.pop("mlp_layer_types")
    config["linear_attn_config"] = {
        "full_attn_layers": layers["full_attention"], "kda_layers": layers["linear_attention"],
        "head_dim": config.pop("linear_head_dim"), "num_heads": config.pop("linear_num_heads"),
        "short_conv_kernel_size": config.pop("linear_conv_kernel_dim")}
    config.update(first_k_dense_replace=1, moe_layer_freq=1, mla_use_nope=True, moe_router_activation_func="sigmoid",
                  use_grouped_topk=True, num_nextn_predict_layers=0, rope_scaling=None, rope_theta=1e4, head_dim=6)
    return config


def finish(folder):
    """transformers writes the names of experts also in layers with an MLP."""
    path = folder / "model.safetensors"
    tensors = {name.replace("block_sparse_moe", "mlp") if any(part in name for part in DENSE) else name: tensor
               for name, tensor in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    config = folder / "config.json"
    config.write_text(json.dumps(published(json.loads(config.read_text())), indent=2) + "\n")
