"""Tensors of GGUF files with gated delta rules, for make_families.py, as llama.cpp's converter writes them."""
import torch


def tiled(data, c, size, axis=0):
    """Folders hold the value heads of a key head together; GGUF files of Qwen3.5 have the first of each, then the second."""
    keys, values = c.linear_num_key_heads, c.linear_num_value_heads
    return data.unflatten(axis, (keys, values // keys, size)).transpose(axis, axis + 1).flatten(axis, axis + 2)


def delta_tensor(family, name, data, c):
    """A tensor of a gated delta rule as in files of llama.cpp's converter."""
    end = name.split("linear_attn.")[1]
    if end == "A_log":
        data = -data.exp()
    if end == "conv1d.weight":
        data = data.squeeze(1)
    if family == "qwen3_next":
        return data
    keys = 2 * c.linear_num_key_heads * c.linear_key_head_dim
    if end in ("in_proj_qkv.weight", "conv1d.weight"):
        data = torch.cat([data[:keys], tiled(data[keys:], c, c.linear_value_head_dim)])
    if end == "in_proj_z.weight":
        data = tiled(data, c, c.linear_value_head_dim)
    if end == "out_proj.weight":
        data = tiled(data, c, c.linear_value_head_dim, axis=1)
    return tiled(data, c, 1) if end in ("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias") else data


def add_qkvz(writer, name, data, c):
    """Folders of Qwen3-Next hold the rows of a key head together: q, k, its v and their z. GGUF files have two tensors."""
    each = c.linear_num_value_heads // c.linear_num_key_heads * c.linear_value_head_dim
    parts = data.unflatten(0, (c.linear_num_key_heads, -1)).split([c.linear_key_head_dim] * 2 + [each] * 2, dim=1)
    q, k, v, z = (part.flatten(0, 1) for part in parts)
    layer = name.split(".")[2]
    writer.add_tensor(f"blk.{layer}.attn_qkv.weight", torch.cat([q, k, v]).numpy())
    writer.add_tensor(f"blk.{layer}.attn_gate.weight", z.contiguous().numpy())
