#include "engine/models/families/roles.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define VECTOR(n, split) EXTENT_##n, EXTENT_NONE, SPLIT_##split, false
#define BIAS(n, split) EXTENT_##n, EXTENT_NONE, SPLIT_##split, true
#define MATRIX(n, k, split) EXTENT_##n, EXTENT_##k, SPLIT_##split, false

static const struct role_info table[N_ROLES] = {
    [ROLE_TOKEN_EMBEDDING] = {"token_embd.weight", "embed_tokens.weight",
                              MATRIX(V, EMBEDDING, FIRST)},
    [ROLE_POSITION_EMBEDDING] = {"position_embd.weight", NULL, MATRIX(CONTEXT, K, FIRST)},
    [ROLE_TYPE_EMBEDDING] = {"token_types.weight", "embeddings.token_type_embeddings.weight",
                             MATRIX(TYPES, K, FIRST)},
    [ROLE_EMBEDDING_NORM] = {"token_embd_norm.weight", "embeddings.LayerNorm.weight",
                             VECTOR(K, FIRST)},
    [ROLE_EMBEDDING_NORM_BIAS] = {"token_embd_norm.bias", "embeddings.LayerNorm.bias",
                                  BIAS(K, FIRST)},
    [ROLE_OUTPUT_NORM] = {"output_norm.weight", "norm.weight", VECTOR(K, FIRST)},
    [ROLE_OUTPUT_NORM_BIAS] = {"output_norm.bias", "norm.bias", BIAS(K, FIRST)},
    [ROLE_OUTPUT] = {"output.weight", "lm_head.weight", MATRIX(V, EMBEDDING, FIRST)},
    [ROLE_OUTPUT_BIAS] = {"output.bias", "lm_head.bias", BIAS(V, FIRST)},
    [ROLE_PROJECT_IN] = {"project_in.weight", "project_in.weight", MATRIX(K, EMBEDDING, FIRST)},
    [ROLE_PROJECT_OUT] = {"project_out.weight", "project_out.weight", MATRIX(EMBEDDING, K, FIRST)},
    [ROLE_INPUTS_EMBEDDING] = {"per_layer_token_embd.weight", "embed_tokens_per_layer.weight",
                               MATRIX(V, LP, FIRST)},
    [ROLE_INPUTS_PROJECTION] = {"per_layer_model_proj.weight", "per_layer_model_projection.weight",
                                MATRIX(LP, K, FIRST)},
    [ROLE_INPUTS_NORM] = {"per_layer_proj_norm.weight", "per_layer_projection_norm.weight",
                          VECTOR(P, FIRST)},
    [ROLE_ROPE_FACTORS] = {"rope_freqs.weight", NULL, VECTOR(ROPE, HOST)},
    [ROLE_ROPE_LONG] = {"rope_factors_long.weight", NULL, VECTOR(ROPE, HOST)},
    [ROLE_ROPE_SHORT] = {"rope_factors_short.weight", NULL, VECTOR(ROPE, HOST)},
    [ROLE_ATTN_NORM] = {"attn_norm.weight", "input_layernorm.weight", VECTOR(K, NONE)},
    [ROLE_ATTN_NORM_BIAS] = {"attn_norm.bias", "input_layernorm.bias", BIAS(K, NONE)},
    [ROLE_ATTN_NORM_2] = {"attn_norm_2.weight", "ln_attn.weight", VECTOR(K, NONE)},
    [ROLE_ATTN_NORM_2_BIAS] = {"attn_norm_2.bias", "ln_attn.bias", BIAS(K, NONE)},
    [ROLE_Q] = {"attn_q.weight", "self_attn.q_proj.weight", MATRIX(Q, K, OUTPUTS)},
    [ROLE_Q_BIAS] = {"attn_q.bias", "self_attn.q_proj.bias", BIAS(Q, OUTPUTS)},
    [ROLE_K] = {"attn_k.weight", "self_attn.k_proj.weight", MATRIX(KV, K, OUTPUTS)},
    [ROLE_K_BIAS] = {"attn_k.bias", "self_attn.k_proj.bias", BIAS(KV, OUTPUTS)},
    [ROLE_V] = {"attn_v.weight", "self_attn.v_proj.weight", MATRIX(KV, K, OUTPUTS)},
    [ROLE_V_BIAS] = {"attn_v.bias", "self_attn.v_proj.bias", BIAS(KV, OUTPUTS)},
    [ROLE_QKV] = {"attn_qkv.weight",
                  "self_attn.qkv_proj.weight",
                  MATRIX(QKV, K, OUTPUTS),
                  3,
                  {ROLE_Q, ROLE_K, ROLE_V}},
    [ROLE_QKV_BIAS] = {"attn_qkv.bias",
                       "self_attn.qkv_proj.bias",
                       BIAS(QKV, OUTPUTS),
                       3,
                       {ROLE_Q_BIAS, ROLE_K_BIAS, ROLE_V_BIAS}},
    [ROLE_Q_GATED] = {"attn_q.weight",
                      "self_attn.q_proj.weight",
                      MATRIX(2Q, K, OUTPUTS),
                      2,
                      {ROLE_Q, ROLE_ATTN_GATE}},
    [ROLE_ATTN_GATE] = {"attn_gate.weight", "self_attn.gate_proj.weight", MATRIX(Q, K, OUTPUTS)},
    [ROLE_Q_NORM] = {"attn_q_norm.weight", "self_attn.q_norm.weight", VECTOR(D, NONE)},
    [ROLE_K_NORM] = {"attn_k_norm.weight", "self_attn.k_norm.weight", VECTOR(D, NONE)},
    [ROLE_Q_NORM_ALL] = {"attn_q_norm.weight", "self_attn.q_norm.weight", VECTOR(Q, NONE)},
    [ROLE_K_NORM_ALL] = {"attn_k_norm.weight", "self_attn.k_norm.weight", VECTOR(KV, NONE)},
    [ROLE_Q_NORM_ALL_BIAS] = {"attn_q_norm.bias", "self_attn.q_norm.bias", BIAS(Q, NONE)},
    [ROLE_K_NORM_ALL_BIAS] = {"attn_k_norm.bias", "self_attn.k_norm.bias", BIAS(KV, NONE)},
    [ROLE_Q_NORM_HEADS] = {"attn_q_norm.weight", "self_attn.q_layernorm.norms.*.weight",
                           VECTOR(Q, OUTPUTS), .of_heads = true},
    [ROLE_K_NORM_HEADS] = {"attn_k_norm.weight", "self_attn.k_layernorm.norms.*.weight",
                           VECTOR(KV, OUTPUTS), .of_heads = true},
    [ROLE_Q_A] = {"attn_q_a.weight", "self_attn.q_a_proj.weight", MATRIX(Q_RANK, K, NONE)},
    [ROLE_Q_A_NORM] = {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight",
                       VECTOR(Q_RANK, NONE)},
    [ROLE_Q_B] = {"attn_q_b.weight", "self_attn.q_b_proj.weight", MATRIX(Q, Q_RANK, OUTPUTS)},
    [ROLE_KV_A] = {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight",
                   MATRIX(KV, K, NONE)},
    [ROLE_KV_A_NORM] = {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight",
                        VECTOR(RANK, NONE)},
    [ROLE_KV_B] = {"attn_kv_b.weight",
                   "self_attn.kv_b_proj.weight",
                   MATRIX(KV_B, RANK, OUTPUTS),
                   2,
                   {ROLE_K_B, ROLE_V_B},
                   .of_latents = true},
    [ROLE_K_B] = {"attn_k_b.weight", NULL, MATRIX(K_B, UNROTATED, OUTPUTS), .of_latents = true},
    [ROLE_V_B] = {"attn_v_b.weight", NULL, MATRIX(OUT, RANK, OUTPUTS), .of_latents = true},
    [ROLE_O] = {"attn_output.weight", "self_attn.o_proj.weight", MATRIX(K, OUT, INPUTS)},
    [ROLE_O_BIAS] = {"attn_output.bias", "self_attn.o_proj.bias", BIAS(K, FIRST)},
    [ROLE_SINKS] = {"attn_sinks.weight", "self_attn.sinks", VECTOR(H, OUTPUTS)},
    [ROLE_CONV_IN] = {"shortconv.in_proj.weight",
                      "conv.in_proj.weight",
                      MATRIX(3C, K, OUTPUTS),
                      3,
                      {ROLE_CONV_GATE_IN, ROLE_CONV_GATE_OUT, ROLE_CONV_X}},
    [ROLE_CONV_IN_BIAS] = {"shortconv.in_proj.bias",
                           "conv.in_proj.bias",
                           BIAS(3C, OUTPUTS),
                           3,
                           {ROLE_CONV_GATE_IN_BIAS, ROLE_CONV_GATE_OUT_BIAS, ROLE_CONV_X_BIAS}},
    [ROLE_CONV_GATE_IN] = {"shortconv.gate_in.weight", NULL, MATRIX(C, K, OUTPUTS)},
    [ROLE_CONV_GATE_IN_BIAS] = {"shortconv.gate_in.bias", NULL, BIAS(C, OUTPUTS)},
    [ROLE_CONV_GATE_OUT] = {"shortconv.gate_out.weight", NULL, MATRIX(C, K, OUTPUTS)},
    [ROLE_CONV_GATE_OUT_BIAS] = {"shortconv.gate_out.bias", NULL, BIAS(C, OUTPUTS)},
    [ROLE_CONV_X] = {"shortconv.x.weight", NULL, MATRIX(C, K, OUTPUTS)},
    [ROLE_CONV_X_BIAS] = {"shortconv.x.bias", NULL, BIAS(C, OUTPUTS)},
    [ROLE_CONV] = {"shortconv.conv.weight", "conv.conv.weight", VECTOR(TAPS_C, OUTPUTS),
                   .of_taps = true},
    [ROLE_CONV_BIAS] = {"shortconv.conv.bias", "conv.conv.bias", BIAS(C, OUTPUTS)},
    [ROLE_CONV_OUT] = {"shortconv.out_proj.weight", "conv.out_proj.weight", MATRIX(K, C, INPUTS)},
    [ROLE_CONV_OUT_BIAS] = {"shortconv.out_proj.bias", "conv.out_proj.bias", BIAS(K, FIRST)},
    [ROLE_DELTA_QKV] = {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", MATRIX(C, K, OUTPUTS)},
    [ROLE_DELTA_Z] = {"attn_gate.weight", "linear_attn.in_proj_z.weight",
                      MATRIX(HV_DV, GATE_IN, OUTPUTS)},
    [ROLE_DELTA_QKVZ] = {"ssm_in.weight",
                         "linear_attn.in_proj_qkvz.weight",
                         MATRIX(C_Z, K, OUTPUTS),
                         2,
                         {ROLE_DELTA_QKV, ROLE_DELTA_Z}},
    [ROLE_DELTA_B] = {"ssm_beta.weight", "linear_attn.in_proj_b.weight", MATRIX(HV, K, OUTPUTS),
                      .is_float32 = true},
    [ROLE_DELTA_DT] = {"ssm_alpha.weight", "linear_attn.in_proj_a.weight",
                       MATRIX(DT, GATE_IN, OUTPUTS), .is_float32 = true},
    [ROLE_DELTA_DT_A] = {"ssm_f_a.weight", "self_attn.f_a_proj.weight", MATRIX(GATE_RANK, K, NONE)},
    [ROLE_DELTA_Z_A] = {"ssm_g_a.weight", "self_attn.g_a_proj.weight", MATRIX(GATE_RANK, K, NONE)},
    [ROLE_DELTA_B_DT] = {"ssm_ba.weight",
                         "linear_attn.in_proj_ba.weight",
                         MATRIX(2HV, K, OUTPUTS),
                         2,
                         {ROLE_DELTA_B, ROLE_DELTA_DT},
                         .is_float32 = true},
    [ROLE_SPACE_IN] = {"ssm_in.weight",
                       "mamba.in_proj.weight",
                       MATRIX(SPACE_IN, K, OUTPUTS),
                       3,
                       {ROLE_SPACE_Z, ROLE_SPACE_XBC, ROLE_SPACE_DT}},
    [ROLE_SPACE_Z] = {"ssm_z.weight", NULL, MATRIX(HV_DV, K, OUTPUTS)},
    [ROLE_SPACE_XBC] = {"ssm_xbc.weight", NULL, MATRIX(C, K, OUTPUTS)},
    [ROLE_SPACE_DT] = {"ssm_dt.weight", NULL, MATRIX(HV, K, OUTPUTS)},
    [ROLE_SPACE_CONV_BIAS] = {"ssm_conv1d.bias", "mamba.conv1d.bias", BIAS(C, OUTPUTS)},
    [ROLE_SPACE_SKIP] = {"ssm_d", "mamba.D", VECTOR(HV, OUTPUTS), .is_flat = true},
    [ROLE_STATE_CONV] = {"ssm_conv1d.weight", "linear_attn.conv1d.weight", VECTOR(TAPS_C, OUTPUTS),
                         .of_taps = true},
    [ROLE_STATE_DECAY] = {"ssm_a", "linear_attn.A_log", BIAS(HV, OUTPUTS), .is_flat = true},
    [ROLE_STATE_DT_BIAS] = {"ssm_dt.bias", "linear_attn.dt_bias", BIAS(DT, OUTPUTS)},
    [ROLE_STATE_NORM] = {"ssm_norm.weight", "linear_attn.norm.weight", VECTOR(STATE_NORM, OUTPUTS),
                         .is_flat = true},
    [ROLE_STATE_OUT] = {"ssm_out.weight", "linear_attn.out_proj.weight", MATRIX(K, HV_DV, INPUTS)},
    [ROLE_ATTN_POST_NORM] = {"post_attention_norm.weight", "post_attention_layernorm.weight",
                             VECTOR(K, NONE)},
    [ROLE_FFN_NORM] = {"ffn_norm.weight", "post_attention_layernorm.weight", VECTOR(K, NONE)},
    [ROLE_FFN_NORM_BIAS] = {"ffn_norm.bias", "post_attention_layernorm.bias", BIAS(K, NONE)},
    [ROLE_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight", MATRIX(F, K, OUTPUTS)},
    [ROLE_GATE_BIAS] = {"ffn_gate.bias", "mlp.gate_proj.bias", BIAS(F, OUTPUTS)},
    [ROLE_UP] = {"ffn_up.weight", "mlp.up_proj.weight", MATRIX(F, K, OUTPUTS)},
    [ROLE_UP_BIAS] = {"ffn_up.bias", "mlp.up_proj.bias", BIAS(F, OUTPUTS)},
    [ROLE_GATE_UP] = {"ffn_up.weight",
                      "mlp.gate_up_proj.weight",
                      MATRIX(2F, K, OUTPUTS),
                      2,
                      {ROLE_GATE, ROLE_UP}},
    [ROLE_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight", MATRIX(K, F, INPUTS)},
    [ROLE_DOWN_BIAS] = {"ffn_down.bias", "mlp.down_proj.bias", BIAS(K, FIRST)},
    [ROLE_XIELU_ALPHA_P] = {"xielu.alpha_p", "mlp.act_fn.alpha_p", VECTOR(ONE, HOST)},
    [ROLE_XIELU_ALPHA_N] = {"xielu.alpha_n", "mlp.act_fn.alpha_n", VECTOR(ONE, HOST)},
    [ROLE_XIELU_BETA] = {"xielu.beta", "mlp.act_fn.beta", VECTOR(ONE, HOST)},
    [ROLE_XIELU_EPS] = {"xielu.eps", "mlp.act_fn.eps", VECTOR(ONE, HOST)},
    [ROLE_FFN_POST_NORM] = {"post_ffw_norm.weight", "post_feedforward_layernorm.weight",
                            VECTOR(K, NONE)},
    [ROLE_MLP_POST_NORM] = {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight",
                            VECTOR(K, NONE)},
    [ROLE_EXPERTS_POST_NORM] = {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight",
                                VECTOR(K, NONE)},
    [ROLE_INPUT_GATE] = {"inp_gate.weight", "per_layer_input_gate.weight", MATRIX(P, K, NONE)},
    [ROLE_INPUT_OUT] = {"proj.weight", "per_layer_projection.weight", MATRIX(K, P, NONE)},
    [ROLE_INPUT_NORM] = {"post_norm.weight", "post_per_layer_input_norm.weight", VECTOR(K, NONE)},
    [ROLE_LAYER_SCALE] = {"layer_output_scale.weight", "layer_scalar", VECTOR(ONE, HOST)},
    [ROLE_AHEAD_PROJECTION] = {"nextn.eh_proj.weight", "eh_proj.weight", MATRIX(K, 2K, FIRST)},
    [ROLE_AHEAD_EMBEDDING_NORM] = {"nextn.enorm.weight", "enorm.weight", VECTOR(K, FIRST)},
    [ROLE_AHEAD_HIDDEN_NORM] = {"nextn.hnorm.weight", "hnorm.weight", VECTOR(K, FIRST)},
    [ROLE_AHEAD_OUTPUT_NORM] = {"nextn.shared_head_norm.weight", "shared_head.norm.weight",
                                VECTOR(K, FIRST)},
    [ROLE_ROUTER] = {"ffn_gate_inp.weight", "mlp.gate.weight", MATRIX(E, K, NONE),
                     .is_float32 = true},
    [ROLE_ROUTER_BIAS] = {"ffn_gate_inp.bias", "mlp.gate.bias", BIAS(E, NONE)},
    [ROLE_ROUTER_CORRECTION] = {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias",
                                BIAS(E, NONE)},
    [ROLE_ROUTER_GAIN] = {"ffn_gate_inp.scale", "router.scale", VECTOR(K, NONE)},
    [ROLE_EXPERTS_NORM] = {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight",
                           VECTOR(K, NONE)},
    [ROLE_EXPERTS_SCALE] = {"ffn_down_exps.scale", "router.per_expert_scale", VECTOR(E, NONE)},
    [ROLE_EXPERTS_GATE_BIAS] = {"ffn_gate_exps.bias", NULL, BIAS(F_EXPERT, OUTPUTS),
                                .of_experts = true},
    [ROLE_EXPERTS_UP_BIAS] = {"ffn_up_exps.bias", NULL, BIAS(F_EXPERT, OUTPUTS),
                              .of_experts = true},
    [ROLE_EXPERTS_GATE_UP_BIAS] = {"ffn_gate_up_exps.bias",
                                   "mlp.experts.gate_up_proj_bias",
                                   BIAS(2F_EXPERT, OUTPUTS),
                                   2,
                                   {ROLE_EXPERTS_GATE_BIAS, ROLE_EXPERTS_UP_BIAS},
                                   .of_experts = true},
    [ROLE_EXPERTS_DOWN_BIAS] = {"ffn_down_exps.bias", "mlp.experts.down_proj_bias", BIAS(K, FIRST),
                                .of_experts = true},
    [ROLE_EXPERTS_GATE] = {"ffn_gate_exps.weight", "mlp.experts.*.gate_proj.weight",
                           MATRIX(F_EXPERT, K, OUTPUTS), .of_experts = true},
    [ROLE_EXPERTS_UP] = {"ffn_up_exps.weight", "mlp.experts.*.up_proj.weight",
                         MATRIX(F_EXPERT, K, OUTPUTS), .of_experts = true},
    [ROLE_EXPERTS_GATE_UP] = {"ffn_gate_up_exps.weight",
                              "mlp.experts.gate_up_proj",
                              MATRIX(2F_EXPERT, K, OUTPUTS),
                              2,
                              {ROLE_EXPERTS_GATE, ROLE_EXPERTS_UP},
                              .of_experts = true},
    [ROLE_EXPERTS_DOWN] = {"ffn_down_exps.weight", "mlp.experts.*.down_proj.weight",
                           MATRIX(K, F_EXPERT, INPUTS), .of_experts = true},
    [ROLE_SHARED_GATE] = {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight",
                          MATRIX(F_SHARED, K, OUTPUTS)},
    [ROLE_SHARED_UP] = {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight",
                        MATRIX(F_SHARED, K, OUTPUTS)},
    [ROLE_SHARED_GATE_UP] = {"ffn_gate_up_shexp.weight",
                             "shared_mlp.input_linear.weight",
                             MATRIX(2F_SHARED, K, OUTPUTS),
                             2,
                             {ROLE_SHARED_GATE, ROLE_SHARED_UP}},
    [ROLE_SHARED_DOWN] = {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight",
                          MATRIX(K, F_SHARED, INPUTS)},
    [ROLE_SHARED_ROUTER] = {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight",
                            MATRIX(ONE, K, NONE), .is_float32 = true},
};
_Static_assert(N_ROLES <= 8 * sizeof(role_set), "a set of roles has a bit for each");

const struct role_info *role_info(enum role role) {
    assert(role < N_ROLES);
    return &table[role];
}

enum split role_split(const struct model_config *config, enum role role) {
    const bool is_shared = role == ROLE_STATE_NORM && config->state.kind != STATE_SPACE;
    return is_shared ? SPLIT_NONE : role_info(role)->split;
}

/* Writes the whole name of a role that GGUF files call `gguf`. */
static void write_name(char out[ROLE_NAME_BYTES], const char *gguf, enum role role, int layer) {
    int n = role_is_of_layer(role) ? snprintf(out, ROLE_NAME_BYTES, "blk.%d.%s", layer, gguf)
                                   : snprintf(out, ROLE_NAME_BYTES, "%s", gguf);
    assert(n < ROLE_NAME_BYTES);
    (void)n;
}

void role_name(char out[ROLE_NAME_BYTES], enum role role, int layer) {
    write_name(out, role_info(role)->gguf, role, layer);
}

const char *config_role_gguf(const struct model_config *config, enum role role) {
    enum { MAX_OTHER = 4 };
    static const struct {
        enum role role;
        const char *gguf; /* NULL: the row ends */
    } other[][MAX_OTHER + 1] = {
        [NORM_NAMES_USUAL] = {{0}},
        [NORM_NAMES_OF_EMBEDDING] = {{ROLE_OUTPUT_NORM, "token_embd_norm.weight"}},
        [NORM_NAMES_CUT] = {{ROLE_FFN_NORM, "ffn_norm"}},
        [NORM_NAMES_AFTER_ATTENTION] = {{ROLE_FFN_NORM, "post_attention_norm.weight"}},
        [NORM_NAMES_OF_OUTPUTS] = {{ROLE_ATTN_NORM, "attn_output_norm.weight"},
                                   {ROLE_ATTN_NORM_BIAS, "attn_output_norm.bias"},
                                   {ROLE_FFN_NORM, "layer_output_norm.weight"},
                                   {ROLE_FFN_NORM_BIAS, "layer_output_norm.bias"}},
    };
    assert(config->norm_names < sizeof other / sizeof *other);
    if (config->state.by_channel && role == ROLE_DELTA_DT) return "ssm_f_b.weight";
    if (config->state.by_channel && role == ROLE_DELTA_Z) return "ssm_g_b.weight";
    for (int i = 0; other[config->norm_names][i].gguf; i++)
        if (other[config->norm_names][i].role == role) return other[config->norm_names][i].gguf;
    return role_info(role)->gguf;
}

void config_role_name(char out[ROLE_NAME_BYTES], const struct model_config *config, enum role role,
                      int layer) {
    write_name(out, config_role_gguf(config, role), role, layer);
}

void role_piece_name(char out[ROLE_NAME_BYTES], enum role role, int layer, int piece) {
    const struct role_info *info = role_info(role);
    assert((info->of_experts || info->of_heads || info->of_taps) && piece >= 0);
    int n = info->of_taps
                ? snprintf(out, ROLE_NAME_BYTES, "blk.%d.ssm_conv1d_%c.weight", layer, "qkv"[piece])
                : snprintf(out, ROLE_NAME_BYTES, "blk.%d.%s.%d", layer, info->gguf, piece);
    assert(n < ROLE_NAME_BYTES);
    (void)n;
}

int role_parts(const struct model_config *config, enum role role, enum role parts[MAX_PARTS]) {
    const struct role_info *info = role_info(role);
    assert(info->n_parts >= 0 && info->n_parts <= MAX_PARTS);
    memcpy(parts, info->parts, sizeof info->parts);
    if (role == ROLE_GATE_UP && config->up_is_first) parts[0] = ROLE_UP, parts[1] = ROLE_GATE;
    return info->n_parts;
}

int role_pieces(const struct model_config *config, enum role role) {
    const struct role_info *info = role_info(role);
    if (info->of_experts) return config->experts.E;
    if (info->of_taps) return config->state.by_channel ? 3 : 0;
    return info->of_heads ? role_extent(config, info->N, 0) / config_heads(config, 0).D : 0;
}

/* The dimensions of latent attention. */
static int latent_extent(const struct model_config *config, enum extent extent) {
    const struct latent_config *latent = &config->latent;
    switch (extent) {
    case EXTENT_Q:
        return config->H * (latent->D_unrotated + latent->D_rope);
    case EXTENT_OUT:
        return config->H * latent->D_value;
    case EXTENT_RANK:
        return latent->rank;
    case EXTENT_Q_RANK:
        return latent->q_rank;
    case EXTENT_UNROTATED:
        return latent->D_unrotated;
    case EXTENT_KV_B:
        return config->H * (latent->D_unrotated + latent->D_value);
    case EXTENT_K_B:
        return config->H * latent->rank;
    default:
        return 0;
    }
}

/* The dimensions of the matrices that recurrent layers keep. */
static int state_extent(const struct model_config *config, enum extent extent) {
    const struct state_config *state = &config->state;
    switch (extent) {
    case EXTENT_HV:
        return state->Hv;
    case EXTENT_2HV:
        return 2 * state->Hv;
    case EXTENT_DT:
        return state->Hv * (state->by_channel ? state->dk : 1);
    case EXTENT_GATE_RANK:
        return state->by_channel ? state->dk : 0;
    case EXTENT_GATE_IN:
        return state->by_channel ? state->dk : config->K;
    case EXTENT_STATE_NORM:
        return state->dv * (state->kind == STATE_SPACE ? state->Hv : 1);
    case EXTENT_HV_DV:
        return state->Hv * state->dv;
    case EXTENT_SPACE_IN:
        return config->C + state->Hv * (state->dv + 1);
    case EXTENT_C_Z:
        return config->C + state->Hv * state->dv;
    default:
        return latent_extent(config, extent);
    }
}

/* Is it a recurrent layer whose q, k, v and output have the roles of attention? */
static bool has_channels(const struct model_config *config, int layer) {
    return config->state.by_channel && layer >= 0 && config->layer[layer].is_recurrent;
}

int role_extent(const struct model_config *config, enum extent extent, int layer) {
    const bool is_of_heads = extent == EXTENT_Q || extent == EXTENT_KV || extent == EXTENT_OUT;
    if (is_of_heads && has_channels(config, layer)) return config->state.Hv * config->state.dv;
    const struct kv_heads heads = config_heads(config, layer < 0 ? 0 : layer);
    const struct latent_config *latent = &config->latent;
    switch (extent) {
    case EXTENT_NONE:
        return 0;
    case EXTENT_V:
        return config->V;
    case EXTENT_K:
        return config->K;
    case EXTENT_2K:
        return 2 * config->K;
    case EXTENT_EMBEDDING:
        return config->K_embedding;
    case EXTENT_F:
        return config_width(config, layer < 0 ? 0 : layer);
    case EXTENT_2F:
        return 2 * config_width(config, layer < 0 ? 0 : layer);
    case EXTENT_Q:
    case EXTENT_OUT:
        return latent->is_used ? latent_extent(config, extent) : config->H * heads.D;
    case EXTENT_KV:
        return heads.G * heads.D;
    case EXTENT_QKV:
        return (config->H + 2 * heads.G) * heads.D;
    case EXTENT_D:
        return heads.D;
    case EXTENT_P:
        return config->P;
    case EXTENT_LP:
        return config->L * config->P;
    case EXTENT_H:
        return config->H;
    case EXTENT_CONTEXT:
        return config->context_length;
    case EXTENT_TYPES:
        return config->n_types;
    case EXTENT_ROPE:
        return config->rope.D_rope / 2;
    case EXTENT_ONE:
        return 1;
    case EXTENT_E:
        return config->experts.E;
    case EXTENT_F_EXPERT:
        return config->experts.F;
    case EXTENT_2F_EXPERT:
        return 2 * config->experts.F;
    case EXTENT_F_SHARED:
        return config->experts.F_shared;
    case EXTENT_2F_SHARED:
        return 2 * config->experts.F_shared;
    case EXTENT_C:
        return config->C;
    case EXTENT_3C:
        return 3 * config->C;
    case EXTENT_TAPS_C:
        return config->taps * config->C;
    case EXTENT_2Q:
        return 2 * config->H * heads.D;
    default:
        return state_extent(config, extent);
    }
}

int role_groups(const struct model_config *config, enum role role, int layer, int rows[MAX_PARTS]) {
    const struct state_config *delta = &config->state;
    const int each = delta->Hk > 0 ? delta->Hv / delta->Hk : 0,
              D = config_heads(config, layer < 0 ? 0 : layer).D;
    const int of_heads[] = {D, D}, of_b[] = {each, each},
              of_qkvz[] = {delta->dk, delta->dk, each * delta->dv, each * delta->dv};
    const int *from = role == ROLE_Q_GATED      ? of_heads
                      : role == ROLE_DELTA_B_DT ? of_b
                      : role == ROLE_DELTA_QKVZ ? of_qkvz
                                                : NULL;
    memset(rows, 0, MAX_PARTS * sizeof *rows);
    if (!from) return 0;
    memcpy(rows, from, role == ROLE_DELTA_QKVZ ? sizeof of_qkvz : sizeof of_b);
    return role == ROLE_Q_GATED ? config->H : delta->Hk;
}

bool config_ignores(const struct model_config *config, enum role role, int layer) {
    bool of_values = role == ROLE_V || role == ROLE_V_BIAS;
    bool of_keys = role == ROLE_K || role == ROLE_K_BIAS || role == ROLE_K_NORM;
    if (layer < 0 || !(of_keys || of_values)) return false;
    return config_reads(config, layer);
}

/* Is it a product of a recurrent layer with a decay per channel, in the roles of attention? */
static bool is_of_channels(enum role role) {
    return role == ROLE_Q || role == ROLE_K || role == ROLE_V || role == ROLE_O;
}

/* Does latent attention have that product? */
static bool is_of_latents(const struct model_config *config, enum role role) {
    assert(is_of_channels(role));
    return role == ROLE_O || (role == ROLE_Q && config->latent.q_rank == 0);
}

bool config_may_have_in(const struct model_config *config, enum role role, int layer) {
    bool is_of_ahead = role >= ROLE_AHEAD_PROJECTION && role <= ROLE_AHEAD_OUTPUT_NORM,
         is_of_mlp = role >= ROLE_GATE && role <= ROLE_DOWN_BIAS,
         is_of_experts = role >= ROLE_ROUTER;
    if (role_is_of_layer(role) != (layer >= 0)) return false;
    if (layer < 0) return true;
    if (config->eagle.is_used && config_is_ahead(config, layer)) return false;
    if (is_of_ahead) return config_is_ahead(config, layer);
    bool is_of_conv = role >= ROLE_CONV_IN && role <= ROLE_STATE_OUT,
         is_of_heads = role >= ROLE_Q && role <= ROLE_SINKS;
    if (config->state.by_channel && is_of_channels(role))
        return has_channels(config, layer) || is_of_latents(config, role);
    if (is_of_heads && !config_attends(config, layer)) return false;
    if (is_of_conv && !config->layer[layer].is_recurrent) return false;
    if (role == ROLE_STATE_NORM && config->state.lacks_norm) return false;
    if (is_of_mlp && config->layer[layer].lacks_mlp) return false;
    if (role == ROLE_V && config->layer[layer].values_are_keys) return false;
    if (role == ROLE_ATTN_NORM && layer == 0 && config->first_lacks_norm) return false;
    if (!config->experts.is_used || config->experts.beside_mlp) return true;
    return config->layer[layer].is_dense ? !is_of_experts : !is_of_mlp;
}

bool config_has_in(const struct model_config *config, enum role role, int layer) {
    return config_has(config, role) && config_may_have_in(config, role, layer) &&
           !config_ignores(config, role, layer);
}
