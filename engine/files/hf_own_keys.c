/* Reads the keys of config.json that only one family has. Falcon: heads, branches and norms; its
 * first models (7B) have one key head, later ones (11B, 40B) the "new decoder architecture". LFM2:
 * short convolutions and the width of MLPs. Qwen3-Next and Qwen3.5: gated delta rules. Kimi Linear:
 * those with a decay per channel. Granite 4: state spaces (Mamba 2). DeepSeek: latent attention. */
#include <math.h>
#include <string.h>

#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"

/* ---- Falcon --------------------------------------------------------------------------------- */

/* Refuses models with other positions, biases, or one branch after the other. */
static enum status refuse_others(const struct json *root, bool is_new, struct err *err) {
    const struct {
        const char *key;
        bool served;
    } keys[] = {{"alibi", false}, {"bias", false}, {"parallel_attn", true}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool found;
        enum status status = key_bool_or(root, keys[i].key, keys[i].served, &found, err);
        if (status) return status;
        if (found != keys[i].served && !(is_new && keys[i].served))
            return err_set(err, STATUS_BAD_FILE, keys[i].key, "key %s: only %s is supported",
                           keys[i].key, keys[i].served ? "true" : "false");
    }
    return STATUS_OK;
}

enum status hf_falcon_read(struct model_config *config, struct hf_config *hf, struct err *err) {
    static const char heads_key[] = "num_kv_heads|n_head_kv";
    const struct json *root = hf->text;
    bool is_new, has_one;
    int heads, norms;
    enum status status = key_bool_or(root, "new_decoder_architecture", false, &is_new, err);
    if (!status) status = key_bool_or(root, "multi_query", true, &has_one, err);
    if (!status) status = refuse_others(root, is_new, err);
    if (!status) status = key_int_or(root, heads_key, 1, MAX_HEADS, config->H, &heads, err);
    if (!status)
        status = key_int_or(root, "num_ln_in_parallel_attn", 1, 2, is_new ? 2 : 1, &norms, err);
    if (status) return status;
    config->G = is_new ? heads : has_one ? 1 : config->H;
    hf->has_bias[HF_TWO_NORMS] = is_new && norms == 2;
    if (config->H % config->G == 0) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "num_kv_heads",
                   "%d key-value heads (num_kv_heads) do not divide %d heads (num_attention_heads)",
                   config->G, config->H);
}

/* ---- LFM2 ----------------------------------------------------------------------------------- */

/* Reads the list of the layers with attention in files without layer_types. Without both, all
 * layers have attention. */
static enum status read_attention_layers(struct model_config *c, const struct json *root,
                                         const char *key, struct err *err) {
    const struct json *list = key_value(root, key);
    bool fits = json_is(list, JSON_ARRAY);
    if (!list || key_value(root, "layer_types")) return STATUS_OK;
    for (int i = 0; i < c->L; i++) c->layer[i].is_recurrent = true;
    json_each(layer, list) {
        fits = fits && json_is(layer, JSON_NUMBER) && layer->is_integer && layer->integer >= 0 &&
               layer->integer < c->L;
        if (fits) c->layer[layer->integer].is_recurrent = false;
    }
    if (fits) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected an array of layers, each in 0..%d",
                   key, c->L - 1);
}

/* The file's width of the MLP is that of an MLP without a gate: two thirds are used, times a
 * factor, and rounded up. Models with experts state the width itself. */
static enum status read_width(struct model_config *c, const struct json *root, struct err *err) {
    bool adjusts;
    double factor = 1;
    int multiple = 256;
    enum status status = key_bool_or(root, "block_auto_adjust_ff_dim", true, &adjusts, err);
    if (!status)
        status = key_number_or(root, "block_ffn_dim_multiplier", 1e-3, 1e3, 1, &factor, err);
    if (!status) status = key_int_or(root, "block_multiple_of", 1, MAX_WIDTH, 256, &multiple, err);
    if (status || !adjusts || c->experts.is_used) return status;
    int64_t F = (int64_t)(factor * (double)(2 * (int64_t)c->F / 3));
    F = (F + multiple - 1) / multiple * multiple;
    if (F >= 1 && F <= MAX_WIDTH) {
        c->F = (int)F;
        return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_FILE, "block_ff_dim",
                   "an MLP of %lld numbers (block_ff_dim and the keys that adjust it) is not "
                   "supported; expected 1 to %d",
                   (long long)F, MAX_WIDTH);
}

static enum status read_conv(struct model_config *config, struct hf_config *hf, struct err *err) {
    const struct json *root = hf->text;
    enum status status =
        key_int_or(root, "conv_L_cache", 2, MAX_TAPS, config->taps, &config->taps, err);
    if (!status) status = read_attention_layers(config, root, "full_attn_idxs", err);
    if (!status) status = key_bool_or(root, "tie_embedding", hf->is_tied, &hf->is_tied, err);
    return status ? status : read_width(config, root, err);
}

/* ---- gated delta rules ---------------------------------------------------------------------- */

/* Without layer_types every full_attention_interval-th layer has attention. */
static enum status read_interval(struct model_config *c, const struct json *root, struct err *err) {
    int every;
    enum status status = key_int_or(root, "full_attention_interval", 1, MAX_LAYERS, 4, &every, err);
    if (status || key_value(root, "layer_types")) return status;
    for (int i = 0; i < c->L; i++) c->layer[i].is_recurrent = (i + 1) % every != 0;
    return STATUS_OK;
}

static enum status read_delta(struct model_config *c, const struct json *root, struct err *err) {
    struct state_config *d = &c->state;
    const struct {
        const char *key;
        int min, max, usual, *out;
    } keys[] = {{"linear_conv_kernel_dim", 2, MAX_TAPS, c->taps, &c->taps},
                {"linear_num_key_heads", 1, MAX_HEADS, 16, &d->Hk},
                {"linear_num_value_heads", 1, MAX_HEADS, 32, &d->Hv},
                {"linear_key_head_dim", 1, MAX_WIDTH, 128, &d->dk},
                {"linear_value_head_dim", 1, MAX_WIDTH, 128, &d->dv}};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++)
        status = key_int_or(root, keys[i].key, keys[i].min, keys[i].max, keys[i].usual, keys[i].out,
                            err);
    bool gates = true;
    if (!status) status = key_bool_or(root, "attn_output_gate", true, &gates, err);
    if (!status && !gates)
        return err_set(err, STATUS_BAD_FILE, "attn_output_gate",
                       "key attn_output_gate: only true is supported");
    return status ? status : read_interval(c, root, err);
}

/* Marks the layers that a list numbers, from 1 on. Each layer may be marked once. */
static enum status mark_layers(struct model_config *c, const struct json *own, const char *key,
                               bool is_recurrent, bool seen[MAX_LAYERS], struct err *err) {
    const struct json *list = key_value(own, key);
    bool fits = json_is(list, JSON_ARRAY);
    json_each(layer, fits ? list : NULL) {
        fits = fits && json_is(layer, JSON_NUMBER) && layer->is_integer && layer->integer >= 1 &&
               layer->integer <= c->L && !seen[layer->integer - 1];
        if (!fits) break;
        c->layer[layer->integer - 1].is_recurrent = is_recurrent;
        seen[layer->integer - 1] = true;
    }
    if (fits) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "linear_attn_config",
                   "key linear_attn_config: %s: expected an array of layers, each in 1..%d and in "
                   "one list",
                   key, c->L);
}

/* Finds the recurrent layers of Kimi Linear: layer_types, two lists, or all but every fourth from
 * the fifth on. */
static enum status read_channel_layers(struct model_config *c, const struct json *root,
                                       const struct json *own, struct err *err) {
    bool seen[MAX_LAYERS] = {false}, all = true;
    if (key_value(root, "layer_types")) return STATUS_OK;
    for (int i = 0; i < c->L; i++) c->layer[i].is_recurrent = i == 0 || i % 4 != 0;
    if (!key_value(own, "full_attn_layers|kda_layers")) return STATUS_OK;
    enum status status = mark_layers(c, own, "full_attn_layers", false, seen, err);
    if (!status) status = mark_layers(c, own, "kda_layers", true, seen, err);
    for (int i = 0; i < c->L; i++) all = all && seen[i];
    if (status || all) return status;
    return err_set(err, STATUS_BAD_FILE, "linear_attn_config",
                   "key linear_attn_config: full_attn_layers and kda_layers must have all %d "
                   "layers",
                   c->L);
}

/* Refuses the variants of later models. */
static enum status refuse_variants(const struct json *root, const struct json *own,
                                   struct err *err) {
    bool lacks_rope, has_full_rank;
    enum status status = key_bool_or(root, "mla_use_nope", true, &lacks_rope, err);
    if (!status) status = key_bool_or(own, "use_full_rank_gate", false, &has_full_rank, err);
    if (status) return status;
    if (!lacks_rope)
        return err_set(err, STATUS_BAD_FILE, "mla_use_nope",
                       "key mla_use_nope: only true is supported: attention without rotation");
    if (!has_full_rank && !key_value(own, "gate_lower_bound")) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "linear_attn_config",
                   "key linear_attn_config: use_full_rank_gate and gate_lower_bound are not "
                   "supported; only gates of two products without a bound are");
}

/* Delta rules with a decay per channel: Kimi Linear. transformers writes the numbers of
 * linear_attn_config as keys of their own. */
static enum status read_channels(struct model_config *c, const struct json *root, struct err *err) {
    struct state_config *d = &c->state;
    const struct json *own = key_value(root, "linear_attn_config");
    const struct {
        const char *key, *of_root;
        int min, max, usual, *out;
    } keys[] = {
        {"short_conv_kernel_size", "linear_conv_kernel_dim", 2, MAX_TAPS, c->taps, &c->taps},
        {"num_heads", "linear_num_heads|linear_num_key_heads", 1, MAX_HEADS, 32, &d->Hv},
        {"head_dim", "linear_head_dim|linear_key_head_dim", 1, MAX_WIDTH, 128, &d->dv}};
    enum status status = refuse_variants(root, own, err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++) {
        const bool is_own = key_value(own, keys[i].key);
        status = key_int_or(is_own ? own : root, is_own ? keys[i].key : keys[i].of_root,
                            keys[i].min, keys[i].max, keys[i].usual, keys[i].out, err);
    }
    d->Hk = d->Hv, d->dk = d->dv;
    return status ? status : read_channel_layers(c, root, own, err);
}

/* ---- state spaces --------------------------------------------------------------------------- */

/* The size of a head may be "auto" or missing: the inner width divided by the number of heads. */
static enum status read_space_head(struct model_config *c, const struct json *root,
                                   struct err *err) {
    static const char key[] = "mamba_d_head|mamba_head_dim|head_dim";
    struct state_config *s = &c->state;
    int expand = 2, inner;
    if (key_value(root, key) && !json_is_text(key_value(root, key), "auto"))
        return key_int(root, key, 1, MAX_WIDTH, &s->dv, err);
    enum status status = key_int_or(root, "mamba_expand|expand", 1, 64, 2, &expand, err);
    if (!status)
        status = key_int_or(root, "mamba_d_ssm", 1, 64 * MAX_WIDTH, expand * c->K, &inner, err);
    if (status) return status;
    s->dv = inner / s->Hv;
    if (inner % s->Hv == 0 && s->dv > 0) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "mamba_n_heads",
                   "key mamba_n_heads: %d heads do not divide a width of %d (mamba_expand times "
                   "hidden_size)",
                   s->Hv, inner);
}

/* Returns a limit of time_step_limit. transformers writes infinity as an object. */
static double limit_of(const struct json *value) {
    if (json_is(value, JSON_NUMBER)) return value->number;
    return json_is_text(key_value(value, "__float__"), "Infinity") ? (double)INFINITY : -1;
}

static enum status read_limits(struct state_config *s, const struct json *root, struct err *err) {
    static const char key[] = "time_step_limit";
    const struct json *list = key_value(root, key), *first = json_first(list);
    s->dt_min = 0, s->dt_max = INFINITY;
    if (!list) return STATUS_OK;
    const double min = limit_of(first), max = limit_of(first ? first->next : NULL);
    if (json_is(list, JSON_ARRAY) && list->n_children == 2 && min >= 0 && min < 1e30 &&
        max >= min) {
        s->dt_min = (float)min, s->dt_max = (float)max;
        return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: expected an array of two numbers, the first at least 0 and the second "
                   "not below it",
                   key);
}

/* Refuses biases of the projections, and a convolution without bias. */
static enum status check_biases(const struct json *root, struct err *err) {
    const struct {
        const char *key;
        bool served;
    } keys[] = {{"mamba_conv_bias", true},
                {"use_conv_bias", true},
                {"mamba_proj_bias", false},
                {"projectors_bias", false},
                {"use_bias", false}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool found;
        enum status status = key_bool_or(root, keys[i].key, keys[i].served, &found, err);
        if (status) return status;
        if (found != keys[i].served)
            return err_set(err, STATUS_BAD_FILE, keys[i].key,
                           "key %s: only %s is supported in a model with state spaces", keys[i].key,
                           keys[i].served ? "true" : "false");
    }
    return STATUS_OK;
}

/* Reads a pattern of letters, one for each layer: M is a state space, * attention, - an MLP. */
static enum status read_pattern(struct model_config *c, const struct json *root, struct err *err) {
    static const char key[] = "hybrid_override_pattern", letters[] = "M*-";
    const struct json *pattern = key_value(root, key);
    bool fits = json_length(pattern) == (size_t)c->L;
    if (!pattern) return STATUS_OK;
    for (int i = 0; i < c->L && fits; i++) {
        const char letter = json_text(pattern)[i];
        c->layer[i].is_recurrent = letter == 'M';
        c->layer[i].lacks_mixer = letter == '-';
        fits = letter && strchr(letters, letter);
    }
    if (fits) return STATUS_OK;
    return err_set(
        err, STATUS_BAD_FILE, key,
        "key %s: expected a letter for each of %d layers: M, * or - (experts, E, are not "
        "supported)",
        key, c->L);
}

/* Finds the parts of layers, unless layer_types has listed them. */
static enum status read_parts(struct model_config *c, const struct json *root, struct err *err) {
    const bool lists = key_value(root, "layer_types|layers_block_type");
    const bool has_all = c->mixes_both || c->lacks_attention;
    enum status status = STATUS_OK;
    for (int i = 0; i < c->L && !lists; i++) c->layer[i].is_recurrent = true;
    if (!has_all && !lists) status = read_attention_layers(c, root, "attn_layer_indices", err);
    if (c->has_single_parts && !status && !lists) status = read_pattern(c, root, err);
    for (int i = 0; i < c->L; i++)
        c->layer[i].lacks_mlp =
            c->lacks_attention || (c->has_single_parts && !c->layer[i].lacks_mixer);
    return status;
}

/* Reads n factors of an array, each to another place. */
static enum status read_factors(const struct json *root, const char *key, float *const *out, int n,
                                struct err *err) {
    const struct json *list = key_value(root, key);
    bool fits = json_is(list, JSON_ARRAY) && list->n_children == n;
    int i = 0;
    if (!list) return STATUS_OK;
    json_each(factor, fits ? list : NULL) {
        const double value = fabs(json_number(factor));
        fits = fits && value > 1e-6 && value < 1e6;
        *out[i++] = (float)json_number(factor);
    }
    if (fits) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: expected an array of %d numbers, each from 1e-6 to 1e6", key, n);
}

/* Reads the factors of Falcon-H1's products, and its form of the norm. */
static enum status read_falcon_h1(struct model_config *c, const struct json *root,
                                  struct err *err) {
    struct layer_scales *s = &c->scales;
    const struct {
        const char *key;
        float *out;
    } keys[] = {{"attention_in_multiplier", &s->attn_in},
                {"attention_out_multiplier", &s->attn_out},
                {"key_multiplier", &s->key},
                {"ssm_in_multiplier", &s->space_in},
                {"ssm_out_multiplier", &s->space_out}};
    float *const of_space[] = {&s->space_z, &s->space_x, &s->space_b, &s->space_c, &s->space_dt};
    float *const of_mlp[] = {&s->gate, &s->down};
    bool has_norm;
    double value;
    enum status status = read_factors(root, "ssm_multipliers", of_space, 5, err);
    if (!status) status = read_factors(root, "mlp_multipliers", of_mlp, 2, err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++) {
        status = key_number_or(root, keys[i].key, 1e-6, 1e6, 1, &value, err);
        *keys[i].out = (float)value;
    }
    if (!status) status = key_bool_or(root, "mamba_rms_norm", false, &has_norm, err);
    if (!status) c->state.lacks_norm = !has_norm;
    if (status) return status;
    return key_bool_or(root, "mamba_norm_before_gate", true, &c->state.norms_first, err);
}

enum status hf_space_read(struct model_config *c, const struct json *root, struct err *err) {
    struct state_config *s = &c->state;
    const struct {
        const char *key;
        int min, max, *out;
    } keys[] = {{"mamba_n_heads|mamba_num_heads|num_heads", 1, MAX_HEADS, &s->Hv},
                {"mamba_n_groups|n_groups", 1, MAX_HEADS, &s->Hk},
                {"mamba_d_state|ssm_state_size|state_size", 1, MAX_WIDTH, &s->dk}};
    bool is_recurrent = false;
    enum status status = read_parts(c, root, err);
    for (int i = 0; i < c->L; i++) is_recurrent |= c->layer[i].is_recurrent;
    if (status || !is_recurrent) return status; /* such a model may omit the other keys */
    status = key_int_or(root, "mamba_d_conv|conv_kernel", 2, MAX_TAPS, c->taps, &c->taps, err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++)
        status = key_int(root, keys[i].key, keys[i].min, keys[i].max, keys[i].out, err);
    if (!status) status = read_space_head(c, root, err);
    if (!status) status = read_limits(s, root, err);
    if (!status && c->mixes_both) status = read_falcon_h1(c, root, err);
    return status ? status : check_biases(root, err);
}

enum status hf_recurrent_read(struct model_config *config, struct hf_config *hf, struct err *err) {
    if (config->state.kind == STATE_SPACE) return hf_space_read(config, hf->text, err);
    if (config->state.by_channel) return read_channels(config, hf->text, err);
    return config->state.kind == STATE_DELTA ? read_delta(config, hf->text, err)
                                             : read_conv(config, hf, err);
}

/* ---- latent attention ----------------------------------------------------------------------- */

/* Indexers choose the positions that a row sees (DeepSeek V3.2). */
static enum status refuse_indexer(const struct json *root, struct err *err) {
    static const char keys[] = "index_topk|index_n_heads|index_head_dim";
    if (!key_value(root, keys)) return STATUS_OK;
    return err_set(
        err, STATUS_BAD_FILE, "index_topk",
        "key index_topk: an indexer, which chooses the positions that a token sees, is not "
        "supported");
}

enum status config_check_latent(struct model_config *c, struct err *err) {
    const struct latent_config *l = &c->latent;
    const int64_t widest = (int64_t)c->H * (l->D_unrotated + l->D_value + l->rank + l->D_rope);
    c->G = 1;
    c->D = l->rank + l->D_rope;
    c->rope.D_rope = l->D_rope;
    if (l->rank % HEAD_QUANTUM == 0 && l->D_value % HEAD_QUANTUM == 0 && l->D_rope % 2 == 0 &&
        widest <= MAX_WIDTH)
        return STATUS_OK;
    return err_set(
        err, STATUS_BAD_FILE, "kv_lora_rank",
        "latent attention of rank %d, with %d heads whose queries have %d + %d numbers and "
        "whose values have %d, is not supported: the rank and the size of values must be "
        "multiples of %d, the rotated part of queries even, and all heads together at most "
        "%d numbers wide",
        l->rank, c->H, l->D_unrotated, l->D_rope, l->D_value, HEAD_QUANTUM, MAX_WIDTH);
}

enum status hf_latent_read(struct model_config *c, const struct json *root, struct err *err) {
    struct latent_config *l = &c->latent;
    bool rotates_adjacent;
    enum status status = refuse_indexer(root, err);
    if (!status) status = key_int(root, "kv_lora_rank", 1, MAX_WIDTH, &l->rank, err);
    if (!status) status = key_int_or(root, "q_lora_rank", 1, MAX_WIDTH, 0, &l->q_rank, err);
    if (!status) status = key_int(root, "qk_nope_head_dim", 1, MAX_WIDTH, &l->D_unrotated, err);
    if (!status) status = key_int(root, "qk_rope_head_dim", 2, MAX_WIDTH, &l->D_rope, err);
    if (!status) status = key_int(root, "v_head_dim", 1, MAX_WIDTH, &l->D_value, err);
    if (!status) status = key_bool_or(root, "rope_interleave", true, &rotates_adjacent, err);
    if (status) return status;
    c->rope.layout = rotates_adjacent ? ROPE_ADJACENT : ROPE_HALVES;
    return config_check_latent(c, err);
}
