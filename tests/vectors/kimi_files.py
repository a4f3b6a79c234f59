"""Keys and tensors of GGUF files of Kimi Linear, for make_families.py, as llama.cpp's converter writes them."""
import gguf

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.b_proj": "ssm_beta", "self_attn.forget_gate.f_a_proj": "ssm_f_a", "self_attn.forget_gate.f_b_proj": "ssm_f_b",
         "self_attn.g_a_proj": "ssm_g_a", "self_attn.g_b_proj": "ssm_g_b", "self_attn.o_norm": "ssm_norm"}


def add_tensor(writer, name, data):
    """Adds a tensor whose form changes. Returns whether it is one."""
    if name.endswith("self_attn.conv1d.weight"):
        for kind, part in zip("qkv", data.chunk(3)):
            writer.add_tensor(f"blk.{name.split('.')[2]}.ssm_conv1d_{kind}.weight", part.reshape(1, -1, 1, data.shape[2]).numpy())
    elif name.endswith("A_log"):
        writer.add_tensor(f"blk.{name.split('.')[2]}.ssm_a", (-data.exp()).numpy())
    else:
        return False
    return True


def add_keys(writer, c):
    writer.add_head_count_kv([int(kind == "full_attention") for kind in c.layer_types])
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
    writer.add_kda_head_dim(c.linear_head_dim)
    writer.add_kv_lora_rank(c.kv_lora_rank)
    writer.add_rope_dimension_count(c.qk_rope_head_dim)
    writer.add_key_length(c.kv_lora_rank + c.qk_rope_head_dim)
    writer.add_key_length_mla(c.qk_nope_head_dim + c.qk_rope_head_dim)
    writer.add_value_length_mla(c.v_head_dim)
    writer.add_leading_dense_block_count(c.mlp_layer_types.count("dense"))
    writer.add_expert_count(c.num_local_experts)
    writer.add_expert_used_count(c.num_experts_per_tok)
    writer.add_expert_shared_count(c.n_shared_experts)
    writer.add_expert_feed_forward_length(c.moe_intermediate_size)
    writer.add_expert_weights_scale(c.routed_scaling_factor)
    writer.add_expert_group_count(c.n_group)
    writer.add_expert_group_used_count(c.topk_group)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
