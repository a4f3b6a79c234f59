"""Keys and tensors of GGUF files with latent attention, for make_families.py."""
import gguf


def add_latent_matrices(writer, name, data, c):
    """Of each head, the part of its keys is transposed, and that of its values is not."""
    keys, values = data.unflatten(0, (c.num_attention_heads, -1)).split([c.qk_nope_head_dim, c.v_head_dim], dim=1)
    layer = name.split(".")[2]
    writer.add_tensor(f"blk.{layer}.attn_k_b.weight", keys.transpose(1, 2).contiguous().numpy())
    writer.add_tensor(f"blk.{layer}.attn_v_b.weight", values.contiguous().numpy())


def add_latent_keys(writer, family, c):
    rope = c.rope_parameters
    writer.add_head_count_kv(c.num_key_value_heads if family == "deepseek_v2" else 1)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_kv_lora_rank(c.kv_lora_rank)
    if c.q_lora_rank:
        writer.add_q_lora_rank(c.q_lora_rank)
    head = c.qk_nope_head_dim + c.qk_rope_head_dim
    if family == "deepseek_v2":
        writer.add_key_length(head)
        writer.add_value_length(c.v_head_dim)
    else:
        writer.add_key_length(c.kv_lora_rank + c.qk_rope_head_dim)
        writer.add_value_length(c.kv_lora_rank)
        writer.add_key_length_mla(head)
        writer.add_value_length_mla(c.v_head_dim)
    writer.add_rope_dimension_count(c.qk_rope_head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    if rope.get("llama_4_scaling_beta"):
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    writer.add_leading_dense_block_count(getattr(c, "first_k_dense_replace", 1))
    writer.add_expert_count(c.n_routed_experts)
    writer.add_expert_used_count(c.num_experts_per_tok)
    writer.add_expert_shared_count(c.n_shared_experts)
    writer.add_expert_feed_forward_length(c.moe_intermediate_size)
    writer.add_expert_weights_scale(c.routed_scaling_factor)
    writer.add_expert_weights_norm(c.norm_topk_prob)
    writer.add_expert_group_count(c.n_group)
    writer.add_expert_group_used_count(c.topk_group)
    if family in ("deepseek_v3", "deepseek_v2_lite"):  # older files do not say it
        func = gguf.ExpertGatingFuncType
        writer.add_expert_gating_func(func.SIGMOID if family == "deepseek_v3" else func.SOFTMAX)
