"""Names, keys and tensors of GGUF files with state spaces (Mamba 2), for make_families.py."""
import torch

ATTENTION = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}
SPACE = {"mamba.in_proj": "ssm_in", "mamba.conv1d": "ssm_conv1d", "mamba.norm": "ssm_norm", "mamba.out_proj": "ssm_out"}
GRANITE = {**ATTENTION, **SPACE, "shared_mlp.output_linear": "ffn_down"}
NAMES = {"granite4_h": GRANITE,
         "granite4_h_moe": {**GRANITE, "shared_mlp.output_linear": "ffn_down_shexp", "block_sparse_moe.router": "ffn_gate_inp",
                            "block_sparse_moe.router.layer": "ffn_gate_inp"}}
MIXER = {"norm": "attn_norm", **{name.replace("self_attn", "mixer"): to for name, to in ATTENTION.items()},
         "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down"}
FALCON = {**ATTENTION, "pre_ff_layernorm": "ffn_norm", **{f"feed_forward.{kind}_proj": f"ffn_{kind}" for kind in ("gate", "up", "down")}}
NAMES.update(mamba2=MIXER, nemotron_h=MIXER, falcon_h1=FALCON)
ENDS = {"embed_tokens": "token_embd", "embeddings": "token_embd", "norm": "output_norm", "norm_f": "output_norm",
        "final_layernorm": "output_norm", "lm_head": "output"}
ARCHITECTURES = {"falcon_h1": "falcon-h1", "granite4_h": "granitehybrid", "granite4_h_moe": "granitehybrid"}


def adjacent(data, D):
    """The rows of a head in the order in which llama.cpp rotates llama's: the two of a pair are adjacent."""
    return data.unflatten(0, (-1, 2, D // 2)).transpose(1, 2).flatten(0, 2)


def is_recurrent(c):
    return [kind in ("mamba", "linear_attention") for kind in c.layer_types]


def add_parts(writer, layer, names, data, axis):
    for name, part in zip(names, data.chunk(len(names), dim=axis)):
        writer.add_tensor(f"blk.{layer}.{name}.weight", part.contiguous().numpy())


def space_tensor(end, data, c):
    """A tensor of a state space: vectors of heads have two dimensions, and so have the gains of groups."""
    if end == "A_log":
        return "ssm_a", -data.exp().unsqueeze(1)
    if end == "D":
        return "ssm_d", data.unsqueeze(1)
    if end == "dt_bias":
        return "ssm_dt.bias", data
    if end == "norm.weight":
        return "ssm_norm.weight", data.unflatten(0, (getattr(c, "mamba_n_groups", None) or c.n_groups, -1))
    kind = end.rsplit(".", 1)
    return f"{SPACE['mamba.' + kind[0]]}.{kind[1]}", data.squeeze(1) if end == "conv1d.weight" else data


def with_factors(name, data, c):
    """Files of Falcon-H1 have the factors of products in the matrices."""
    inner, states = c.mamba_d_ssm, c.mamba_n_groups * c.mamba_d_state
    of_space = [factor for factor, n in zip(c.ssm_multipliers, (inner, inner, states, states, c.mamba_n_heads)) for _ in range(n)]
    factors = {"embed_tokens": c.embedding_multiplier, "lm_head": c.lm_head_multiplier, "q_proj": c.attention_in_multiplier,
               "k_proj": c.attention_in_multiplier * c.key_multiplier, "v_proj": c.attention_in_multiplier,
               "o_proj": c.attention_out_multiplier, "mamba.out_proj": c.ssm_out_multiplier, "gate_proj": c.mlp_multipliers[0],
               "down_proj": c.mlp_multipliers[1], "in_proj": torch.tensor(of_space).unsqueeze(1) * c.ssm_in_multiplier}
    for end, factor in factors.items():
        if name.endswith(end + ".weight"):
            return data * factor
    return data


def add_space_tensor(writer, family, name, data, c):
    if family == "falcon_h1":
        data = with_factors(name, data, c)
    parts = name.removeprefix("model.").removeprefix("backbone.").split(".")
    if parts[0] != "layers":
        writer.add_tensor(f"{ENDS['.'.join(parts[:-1])]}.weight", data.numpy())
        return
    layer, rest = parts[1], ".".join(parts[2:])
    if rest.startswith("mamba.") or rest.startswith("mixer.") and rest.rsplit(".", 1)[0] not in NAMES[family]:
        end, data = space_tensor(rest.split(".", 1)[1], data, c)
        writer.add_tensor(f"blk.{layer}.{end}", data.contiguous().numpy())
    elif rest.startswith("shared_mlp.input_linear"):
        end = "_shexp" if family == "granite4_h_moe" else ""
        add_parts(writer, layer, [f"ffn_gate{end}", f"ffn_up{end}"], data, 0)
    elif "gate_up_proj" in rest or rest.startswith("block_sparse_moe.input_linear"):
        add_parts(writer, layer, ["ffn_gate_exps", "ffn_up_exps"], data, 1)
    elif "experts.down_proj" in rest or rest.startswith("block_sparse_moe.output_linear"):
        add_parts(writer, layer, ["ffn_down_exps"], data, 1)
    else:
        if family in ("granite4_h", "granite4_h_moe") and ("q_proj" in rest or "k_proj" in rest):
            data = adjacent(data, c.hidden_size // c.num_attention_heads)
        kind, end = rest.rsplit(".", 1)
        is_cut = family == "falcon_h1" and kind == "pre_ff_layernorm"  # as llama.cpp names it
        writer.add_tensor(f"blk.{layer}.{NAMES[family][kind]}" + ("" if is_cut else f".{end}"), data.contiguous().numpy())


def add_shape(writer, heads, size, groups, states, taps):
    writer.add_ssm_conv_kernel(taps)
    writer.add_ssm_state_size(states)
    writer.add_ssm_group_count(groups)
    writer.add_ssm_inner_size(heads * size)
    writer.add_ssm_time_step_rank(heads)


def add_mamba2_keys(writer, c):
    writer.add_context_length(2 ** 20)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(c.layer_norm_epsilon)
    add_shape(writer, c.num_heads, c.head_dim, c.n_groups, c.state_size, c.conv_kernel)


def add_nemotron_keys(writer, c):
    kinds = c.layers_block_type
    writer.add_context_length(c.max_position_embeddings)
    writer.add_feed_forward_length([c.intermediate_size if kind == "mlp" else 0 for kind in kinds])
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv([c.num_key_value_heads if kind == "full_attention" else 0 for kind in kinds])
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_layer_norm_rms_eps(c.layer_norm_epsilon)
    add_shape(writer, c.mamba_num_heads, c.mamba_head_dim, c.n_groups, c.ssm_state_size, c.conv_kernel)


def add_falcon_keys(writer, c):
    writer.add_context_length(c.max_position_embeddings)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(c.hidden_size // c.num_attention_heads)
    writer.add_value_length(c.hidden_size // c.num_attention_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    add_shape(writer, c.mamba_n_heads, c.mamba_d_head, c.mamba_n_groups, c.mamba_d_state, c.mamba_d_conv)


def add_space_keys(writer, family, c):
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    own = {"mamba2": add_mamba2_keys, "nemotron_h": add_nemotron_keys, "falcon_h1": add_falcon_keys}.get(family)
    if own:
        own(writer, c)
        return
    writer.add_context_length(c.max_position_embeddings)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv([0 if recurrent else c.num_key_value_heads for recurrent in is_recurrent(c)])
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_rope_scaling_finetuned(c.position_embedding_type == "rope")
    writer.add_embedding_scale(c.embedding_multiplier)
    writer.add_residual_scale(c.residual_multiplier)
    writer.add_attention_scale(c.attention_multiplier)
    writer.add_logit_scale(c.logits_scaling)
    add_shape(writer, c.mamba_n_heads, c.mamba_d_head, c.mamba_n_groups, c.mamba_d_state, c.mamba_d_conv)
    if c.num_local_experts:
        writer.add_feed_forward_length(c.intermediate_size)
        writer.add_expert_count(c.num_local_experts)
        writer.add_expert_used_count(c.num_experts_per_tok)
        writer.add_expert_shared_feed_forward_length(c.shared_intermediate_size)
    else:
        writer.add_feed_forward_length(c.shared_intermediate_size)
