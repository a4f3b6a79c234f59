/* Reads the keys of a GGUF file that only some families have. Encoders: token types, windows to
 * both sides, and that attention is not causal. Qwen3-Next and Qwen3.5: gated delta rules. Kimi
 * Linear: those with a decay per channel.
 * Granite 4: state spaces (Mamba 2). DeepSeek V2 and later: latent attention, and how experts are
 * chosen. Some files have defaults for sampling. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/model_file.h"

/* ---- encoders ------------------------------------------------------------------------------- */

/* A window of files counts the positions before a row and after it. */
static int both_sides(int window) {
    return window > 0 ? window / 2 + 1 : 0;
}

enum status gguf_encoder_read(struct model_config *config, const struct gguf *gguf,
                              struct err *err) {
    static const char types[] = "tokenizer.ggml.token_type_count";
    char key[96];
    bool is_causal;
    int64_t n_types = 0;
    if (!config->is_encoder) return STATUS_OK;
    config->window = both_sides(config->window);
    for (int i = 0; i < config->L; i++)
        config->layer[i].window = both_sides(config->layer[i].window);
    enum status status = gguf_int_or(gguf, types, 1, MAX_WIDTH, 2, &n_types, err);
    config->n_types = (int)n_types;
    snprintf(key, sizeof key, "%s.attention.causal", config->architecture);
    if (!status) status = gguf_bool_or(gguf, key, false, &is_causal, err);
    if (status || !is_causal) return status;
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: only false is supported in a model of the architecture \"%s\"", key,
                   config->architecture);
}

/* ---- gated delta rules and state spaces ----------------------------------------------------- */

static const char *state_key(char key[96], const struct model_config *config, const char *name) {
    snprintf(key, 96, "%s.%s", config->architecture, name);
    return key;
}

/* Reads which layers are recurrent: a flag for each, or an interval. A flag of an unread layer is
 * ignored. */
static enum status read_recurrent(struct model_config *config, const struct gguf *gguf,
                                  struct err *err) {
    char key[96];
    int64_t every = 4;
    const struct gguf_value *flags;
    const int all = config->L + config->n_unread_layers;
    state_key(key, config, "full_attention_interval");
    enum status status = gguf_int_or(gguf, key, 1, MAX_LAYERS, 4, &every, err);
    assert(every > 0 && config->n_unread_layers >= 0);
    for (int i = 0; i < config->L; i++) config->layer[i].is_recurrent = (i + 1) % every != 0;
    state_key(key, config, "attention.recurrent_layers");
    if (status || !gguf_find(gguf, key)) return status;
    status = gguf_array(gguf, key, GGUF_BOOL, &flags, err);
    if (status) return status;
    if (flags->count != (uint64_t)all)
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: expected a flag for each of %d layers, found %zu", key, all,
                       (size_t)flags->count);
    for (int i = 0; i < config->L; i++)
        config->layer[i].is_recurrent = ((const uint8_t *)flags->data)[i] != 0;
    return STATUS_OK;
}

/* The size of a value head is the width of all divided by their number. */
static enum status read_value_heads(struct state_config *s, const struct model_config *config,
                                    const struct gguf *gguf, struct err *err) {
    char key[96];
    int64_t width = 0;
    state_key(key, config, "ssm.inner_size");
    enum status status = gguf_int(gguf, key, 1, MAX_WIDTH, &width, err);
    assert(s->Hv > 0);
    s->dv = (int)width / s->Hv;
    if (status || width % s->Hv == 0) return status;
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: %lld numbers do not divide among %d value heads (ssm.time_step_rank)",
                   key, (long long)width, s->Hv);
}

enum status gguf_state_shape(struct model_config *config, const struct gguf *gguf,
                             struct err *err) {
    struct state_config *s = &config->state;
    const struct {
        const char *name;
        int min, max, *out;
    } keys[] = {{"ssm.conv_kernel", 2, MAX_TAPS, &config->taps},
                {"ssm.group_count", 1, MAX_HEADS, &s->Hk},
                {"ssm.time_step_rank", 1, MAX_HEADS, &s->Hv},
                {"ssm.state_size", 1, MAX_WIDTH, &s->dk}};
    char key[96];
    int64_t value = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++) {
        state_key(key, config, keys[i].name);
        status = gguf_int(gguf, key, keys[i].min, keys[i].max, &value, err);
        *keys[i].out = (int)value;
    }
    return status ? status : read_value_heads(s, config, gguf, err);
}

/* Reads the shape of delta rules with a decay per channel, which have the heads of attention. */
static enum status read_channels(struct model_config *config, const struct gguf *gguf,
                                 struct err *err) {
    struct state_config *s = &config->state;
    char key[96];
    int64_t taps = 0, size = 0;
    state_key(key, config, "ssm.conv_kernel");
    enum status status = gguf_int(gguf, key, 2, MAX_TAPS, &taps, err);
    state_key(key, config, "kda.head_dim");
    if (!status) status = gguf_int(gguf, key, 1, MAX_WIDTH, &size, err);
    assert(s->by_channel && config->H > 0);
    config->taps = (int)taps;
    s->Hk = s->Hv = config->H;
    s->dk = s->dv = (int)size;
    return status;
}

enum status gguf_delta_read(struct model_config *config, const struct gguf *gguf, struct err *err) {
    char key[96];
    int64_t value = 0;
    if (config->state.kind != STATE_DELTA) return STATUS_OK;
    if (config->state.by_channel) return read_channels(config, gguf, err);
    enum status status = gguf_state_shape(config, gguf, err);
    state_key(key, config, "nextn_predict_layers");
    if (!status) status = gguf_int_or(gguf, key, 0, config->L - 1, 0, &value, err);
    if (status) return status;
    config->n_unread_layers = (int)value;
    config->L -= config->n_unread_layers;
    return read_recurrent(config, gguf, err);
}

void gguf_mark_parts(struct model_config *config, bool is_list, const int F[MAX_LAYERS],
                     const int G[MAX_LAYERS]) {
    for (int i = 0; i < config->L; i++) {
        struct layer_config *layer = &config->layer[i];
        layer->lacks_mixer = config->has_single_parts && F[i] > 0;
        layer->lacks_mlp =
            config->lacks_attention || (config->has_single_parts && !layer->lacks_mixer);
        layer->is_recurrent = config->mixes_both || config->lacks_attention ||
                              (is_list && G[i] == 0 && !layer->lacks_mixer);
    }
}

enum status gguf_space_read(struct model_config *config, const struct gguf *gguf, struct err *err) {
    static const char norm[] = "blk.0.ssm_norm.weight";
    bool is_recurrent = false;
    if (config->state.kind != STATE_SPACE) return STATUS_OK;
    if (config->mixes_both) /* such files may lack it */
        config->state.lacks_norm = name_index_find(&gguf->weights.index, norm, sizeof norm - 1) < 0;
    config->state.dt_min = 0, config->state.dt_max = INFINITY; /* files have no key for these */
    for (int i = 0; i < config->L; i++) is_recurrent |= config->layer[i].is_recurrent;
    return is_recurrent ? gguf_state_shape(config, gguf, err) : STATUS_OK;
}

/* ---- latent attention ----------------------------------------------------------------------- */

/* Reads a number from 1 to MAX_WIDTH of the key "<architecture>.<name>". */
static enum status read_size(const struct gguf *gguf, const struct model_config *config,
                             const char *name, int fallback, int *out, struct err *err) {
    char key[96];
    int64_t value = 0;
    snprintf(key, sizeof key, "%s.%s", config->architecture, name);
    enum status status = fallback < 0 ? gguf_int(gguf, key, 1, MAX_WIDTH, &value, err)
                                      : gguf_int_or(gguf, key, 0, MAX_WIDTH, fallback, &value, err);
    *out = (int)value;
    return status;
}

/* Older files have no key for the scores; then a correction shows that they are sigmoids. */
static bool has_correction(const struct gguf *gguf, int L) {
    for (int i = 0; i < L; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", i);
        if (name_index_find(&gguf->weights.index, name, strlen(name)) >= 0) return true;
    }
    return false;
}

static enum status read_scores(struct model_config *config, const struct gguf *gguf,
                               struct err *err) {
    enum { NONE, SOFTMAX, SIGMOID };
    char key[96];
    int64_t kind = NONE;
    snprintf(key, sizeof key, "%s.expert_gating_func", config->architecture);
    enum status status = gguf_int_or(gguf, key, NONE, SIGMOID, NONE, &kind, err);
    if (kind == NONE) kind = has_correction(gguf, config->L) ? SIGMOID : SOFTMAX;
    config->experts.by_sigmoid = kind == SIGMOID;
    return status;
}

enum status gguf_latent_read(struct model_config *config, const struct gguf *gguf,
                             struct err *err) {
    struct latent_config *l = &config->latent;
    int key = 0, value = 0;
    enum status status = read_size(gguf, config, "attention.kv_lora_rank", -1, &l->rank, err);
    if (!status) status = read_size(gguf, config, "attention.q_lora_rank", 0, &l->q_rank, err);
    if (!status) status = read_size(gguf, config, "rope.dimension_count", -1, &l->D_rope, err);
    if (!status) status = read_size(gguf, config, "attention.key_length", -1, &key, err);
    /* files of Kimi Linear need not state it */
    const int usual = config->state.by_channel ? 0 : -1;
    if (!status) status = read_size(gguf, config, "attention.value_length", usual, &value, err);
    /* the keys above are the sizes of the cache's rows in newer files */
    if (!status) status = read_size(gguf, config, "attention.key_length_mla", key, &key, err);
    if (!status)
        status = read_size(gguf, config, "attention.value_length_mla", value, &l->D_value, err);
    if (!status) status = read_scores(config, gguf, err);
    if (status) return status;
    l->D_unrotated = key - l->D_rope;
    for (int i = 0; i < config->L; i++) config->layer[i].heads.G = 0;
    if (l->D_unrotated > 0 && l->D_value > 0) return config_check_latent(config, err);
    return err_set(
        err, STATUS_BAD_FILE, "attention.key_length",
        "keys of %d numbers (%s.attention.key_length_mla) of which %d rotate, with values "
        "of %d, are not supported: expected a part that does not rotate, and values",
        key, config->architecture, l->D_rope, l->D_value);
}

/* ---- sampling defaults ---------------------------------------------------------------------- */

static enum status read_suppressed(struct sampling_defaults *out, const struct gguf *gguf, int V,
                                   struct err *err) {
    const struct gguf_value *value = NULL;
    if (!gguf_find(gguf, SUPPRESS_KEY)) return STATUS_OK;
    enum status status = gguf_array(gguf, SUPPRESS_KEY, GGUF_INT32, &value, err);
    if (status) return status;
    if (value->count > MAX_SUPPRESSED)
        return err_set(err, STATUS_BAD_FILE, SUPPRESS_KEY,
                       "key %s: expected at most %d ids, found %zu", SUPPRESS_KEY, MAX_SUPPRESSED,
                       (size_t)value->count);
    for (size_t i = 0; i < value->count; i++) {
        int64_t id = gguf_integer_at(GGUF_INT32, value->data + 4 * i);
        if (id >= 0 && id < V) out->suppressed[out->n_suppressed++] = (int32_t)id;
    }
    return STATUS_OK;
}

enum status gguf_sampling_read(struct sampling_defaults *out, const struct gguf *gguf, int V,
                               struct err *err) {
    int64_t top_k;
    enum status status = gguf_int_or(gguf, "general.sampling.top_k", 0, INT32_MAX, -1, &top_k, err);
    *out = (struct sampling_defaults)NO_SAMPLING_DEFAULTS;
    if (!status) out->top_k = (int)top_k;
    for (int i = 0; i < N_SAMPLING_NUMBERS && !status; i++) {
        const struct sampling_number *number = &sampling_numbers[i];
        double *value = sampling_number_of(out, number);
        if (!gguf_find(gguf, number->gguf)) continue;
        status = gguf_float(gguf, number->gguf, value, err);
        if (!status && !(*value >= number->min && *value <= number->max))
            status = err_set(err, STATUS_BAD_FILE, number->gguf,
                             "key %s: expected a number from %g to %g, found %g", number->gguf,
                             number->min, number->max, *value);
    }
    return status ? status : read_suppressed(out, gguf, V, err);
}
