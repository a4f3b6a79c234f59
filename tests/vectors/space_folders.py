"""Tiny models with state spaces for make_folders.py, which differ from those of make_families.py."""
import family_models
import transformers
from family_models import V


def granite4_h():
    """Limits that steps reach, positions that rotate, and four groups."""
    return family_models.granite4_h_of("ammma", position_embedding_type="rope", mamba_n_groups=4, mamba_d_state=12,
                                       time_step_limit=(0.5, 0.9), tie_word_embeddings=False)


def granite4_h_moe():
    return family_models.granite4_h_of("amm", num_local_experts=4, num_experts_per_tok=2, intermediate_size=16, shared_intermediate_size=16)


def mamba2():
    return transformers.Mamba2ForCausalLM(transformers.Mamba2Config(
        num_hidden_layers=2, hidden_size=32, num_heads=2, head_dim=32, state_size=12, n_groups=1, conv_kernel=3, vocab_size=V,
        tie_word_embeddings=True, bos_token_id=256, eos_token_id=256, pad_token_id=0))


def nemotron_h():
    return family_models.nemotron_h_of("-M*M", n_groups=1, ssm_state_size=20)


def falcon_h1():
    """Without a norm, as the published models."""
    return family_models.falcon_h1_of(mamba_rms_norm=False, num_hidden_layers=2)


def falcon_h1_norm():
    """With a norm before the gate, and one group."""
    return family_models.falcon_h1_of(mamba_norm_before_gate=True, num_hidden_layers=2, mamba_n_groups=1)
