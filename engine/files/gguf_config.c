/* Reads a model_config from a GGUF file's keys. Keys of the model begin with its architecture's
 * name. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "kernels/backend.h"

struct gguf_reader {
    const struct gguf *gguf;
    const char *architecture;
    struct err *err;
    char key[96]; /* the key that was requested last */
};

/* Returns "<architecture>.<name>", valid until the next call. */
static const char *key_of(struct gguf_reader *r, const char *name) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->architecture, name);
    return r->key;
}

static enum status read_int_or(struct gguf_reader *r, const char *name, int min, int max,
                               int fallback, int *out) {
    int64_t value = 0;
    enum status status = gguf_int_or(r->gguf, key_of(r, name), min, max, fallback, &value, r->err);
    *out = (int)value;
    return status;
}

/* Reads general.name, or the file's name, cut between characters. */
static enum status read_name(struct model_config *config, const struct gguf_reader *r,
                             const char *path) {
    const char *text = NULL;
    size_t length = 0;
    enum status status = gguf_string_or(r->gguf, "general.name", &text, &length, r->err);
    if (status != STATUS_OK) return status;
    if (!text || length == 0 || !is_printable(text, length)) {
        const char *slash = strrchr(path, '/');
        text = slash ? slash + 1 : path;
        length = strlen(text);
        if (length == 0 || !is_printable(text, length)) text = "model", length = 5;
    }
    length = (size_t)utf8_cut(text, length, (int)sizeof config->name - 1);
    memcpy(config->name, text, length);
    config->name[length] = 0;
    return STATUS_OK;
}

/* ---- the dimensions ------------------------------------------------------------------------- */

/* Reads a number for all layers, or an array with one number per layer, from min to max. *of_all
 * becomes the number, or the largest; of_layer[i] becomes layer i's. */
static enum status read_of_layers(struct gguf_reader *r, const char *name, int L, int min, int max,
                                  int *of_all, int *of_layer) {
    int64_t number = 0;
    const struct gguf_value *value = gguf_find(r->gguf, key_of(r, name));
    if (!value || value->type != GGUF_ARRAY) {
        enum status status = gguf_int(r->gguf, r->key, 1, max, &number, r->err);
        *of_all = (int)number;
        return status;
    }
    enum status status = gguf_array(r->gguf, r->key, GGUF_INT32, &value, r->err);
    if (status) return status;
    if (value->count != (uint64_t)L)
        return err_set(r->err, STATUS_BAD_FILE, r->key,
                       "key %s: expected a number for each of %d layers, found %zu", r->key, L,
                       (size_t)value->count);
    *of_all = 0;
    for (int i = 0; i < L; i++) {
        memcpy(&of_layer[i], value->data + (size_t)i * sizeof *of_layer, sizeof *of_layer);
        if (of_layer[i] < min || of_layer[i] > max)
            return err_set(r->err, STATUS_BAD_FILE, r->key,
                           "key %s: expected numbers from %d to %d, found %d", r->key, min, max,
                           of_layer[i]);
        if (of_layer[i] > *of_all) *of_all = of_layer[i];
    }
    return STATUS_OK;
}

/* Recurrent layers have a short convolution or a state space. */
static enum status read_conv(struct model_config *config, struct gguf_reader *r,
                             const int F[MAX_LAYERS], const int G[MAX_LAYERS]) {
    bool is_list = gguf_find(r->gguf, r->key) && gguf_find(r->gguf, r->key)->type == GGUF_ARRAY;
    gguf_mark_parts(config, is_list, F, G);
    if (config->G == 0) config->G = config->H; /* no layer has attention: refused later */
    if (config->state.kind != STATE_CONV) return STATUS_OK; /* read later */
    int64_t taps = 0;
    enum status status =
        gguf_int(r->gguf, key_of(r, "shortconv.l_cache"), 2, MAX_TAPS, &taps, r->err);
    config->taps = (int)taps;
    return status;
}

static enum status read_shape(struct model_config *config, struct gguf_reader *r) {
    const struct {
        const char *name;
        int max, *out;
    } keys[] = {
        {"block_count", MAX_LAYERS, &config->L},
        {"embedding_length", MAX_WIDTH, &config->K},
        {"context_length", MAX_CONTEXT, &config->context_length},
        {"attention.head_count", MAX_HEADS, &config->H},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t value = 1;
        const bool is_absent = config->lacks_attention && keys[i].out == &config->H;
        enum status status =
            is_absent ? STATUS_OK
                      : gguf_int(r->gguf, key_of(r, keys[i].name), 1, keys[i].max, &value, r->err);
        if (status) return status;
        *keys[i].out = (int)value;
    }
    int F[MAX_LAYERS] = {0}, G[MAX_LAYERS] = {0};
    const char *width = "feed_forward_length";
    if (config->experts.is_used && !gguf_find(r->gguf, key_of(r, width)))
        width = "expert_feed_forward_length"; /* no layer has an MLP */
    enum status status = STATUS_OK;
    if (!config->lacks_attention)
        status = read_of_layers(r, width, config->L, !config->has_single_parts, MAX_WIDTH,
                                &config->F, F);
    config->G = config->H;
    const bool lists_states =
        config->taps > 0 && (config->state.kind != STATE_DELTA || config->state.by_channel);
    if (!status && gguf_find(r->gguf, key_of(r, "attention.head_count_kv")))
        status = read_of_layers(r, "attention.head_count_kv", config->L, !lists_states, MAX_HEADS,
                                &config->G, G);
    if (!status && lists_states) status = read_conv(config, r, F, G);
    for (int i = 0; i < config->L && !status; i++)
        config->layer[i].F = F[i], config->layer[i].heads.G = G[i];
    return status;
}

/* Reads the head size of layers with windows, the number of layers that read the keys and values of
 * earlier ones, and the width of per-layer inputs. */
static enum status read_layers(struct model_config *config, struct gguf_reader *r) {
    int own = config->D, values;
    enum status status = read_int_or(r, "attention.key_length_swa", 1, MAX_WIDTH, own, &own);
    if (!status) status = read_int_or(r, "attention.value_length_swa", 1, MAX_WIDTH, own, &values);
    if (!status && values != own)
        return err_set(r->err, STATUS_BAD_FILE, r->key,
                       "keys of %d and values of %d (%s) differ in length, which is not supported",
                       own, values, r->key);
    if (own != config->D) config->window_heads.D = own;
    if (!status)
        status =
            read_int_or(r, "attention.shared_kv_layers", 0, config->L - 1, 0, &config->n_readers);
    return status ? status
                  : read_int_or(r, "embedding_length_per_layer_input", 0, MAX_WIDTH, 0, &config->P);
}

/* Reads the head size: K/H unless the file has a key for it, and equal for keys and values. */
static enum status read_head_size(struct model_config *config, struct gguf_reader *r) {
    const char *a = r->architecture;
    int value_length = 0;
    enum status status =
        read_int_or(r, "attention.key_length", 1, MAX_WIDTH, config->K / config->H, &config->D);
    if (status != STATUS_OK) return status;
    if (!gguf_find(r->gguf, r->key) && config->K % config->H != 0)
        return err_set(r->err, STATUS_BAD_FILE, key_of(r, "attention.head_count"),
                       "%d heads (%s.attention.head_count) do not divide a width of %d "
                       "(%s.embedding_length), and the file has no %s.attention.key_length",
                       config->H, a, config->K, a, a);
    status = read_int_or(r, "attention.value_length", 1, MAX_WIDTH, config->D, &value_length);
    if (status != STATUS_OK || value_length == config->D) return status;
    return err_set(r->err, STATUS_BAD_FILE, r->key,
                   "keys of %d and values of %d (%s) differ in length, which is not supported",
                   config->D, value_length, r->key);
}

static enum status check_heads(const struct model_config *config, struct gguf_reader *r) {
    if (config->H % config->G != 0) {
        key_of(r, "attention.head_count_kv");
        return err_set(r->err, STATUS_BAD_FILE, r->key,
                       "%d key-value heads (%s) do not divide %d heads", config->G, r->key,
                       config->H);
    }
    if ((int64_t)config->H * config->D > MAX_WIDTH)
        return err_set(r->err, STATUS_BAD_FILE, key_of(r, "attention.head_count"),
                       "%d heads of %d are more than %d wide", config->H, config->D, MAX_WIDTH);
    return STATUS_OK;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Reads a number in min..max, or `fallback` if the key is missing. */
static enum status read_number_or(struct gguf_reader *r, const char *name, double min, double max,
                                  double fallback, double *out) {
    enum status status = gguf_float_or(r->gguf, key_of(r, name), fallback, out, r->err);
    if (status || (*out >= min && *out <= max)) return status;
    return err_set(r->err, STATUS_BAD_FILE, r->key,
                   "key %s: expected a number from %g to %g, found %g", r->key, min, max, *out);
}

/* ---- rotary positions ----------------------------------------------------------------------- */

enum { MAX_SCALING = 1000000 };

/* Reads the factor of queries and keys: YaRN's rule times the file's factors. */
static enum status read_attention_factor(struct rope_stretch *s, bool has_latents,
                                         struct gguf_reader *r) {
    double more = 1, usual = 1, own = 0, extrapolation = 1, log_multiplier = 0;
    enum status status = read_number_or(r, "rope.scaling.attn_factor", 1e-3, MAX_SCALING, 1, &more);
    if (!status)
        status = read_number_or(r, "rope.scaling.yarn_log_multiplier", 0, 1000, 0, &log_multiplier);
    if (s->kind == ROPE_YARN && s->factor > 1) {
        usual = 0.1 * log(s->factor) + 1;
        if (log_multiplier > 0 && !has_latents) usual /= 0.1 * log_multiplier * log(s->factor) + 1;
        /* here the key is 0.1 times the file's mscale_all_dim, and mscale is the same */
        if (log_multiplier > 0 && has_latents) usual = 1;
        if (has_latents) s->score_factor = (float)(log_multiplier * log(s->factor) + 1);
    }
    if (!status)
        status = read_number_or(r, "rope.scaling.yarn_attn_factor", 0, MAX_SCALING, usual, &own);
    if (!status)
        status = read_number_or(r, "rope.scaling.yarn_ext_factor", 1, 1, 1, &extrapolation);
    s->attention_factor = (float)(own * more);
    return status;
}

static enum status read_stretch(struct model_config *config, struct gguf_reader *r) {
    struct rope_stretch *s = &config->rope.stretch;
    enum status status = read_number_or(r, "rope.scaling.factor", 0, MAX_SCALING, 1, &s->factor);
    if (s->factor == 0) s->factor = 1;
    if (!status)
        status = read_int_or(r, "rope.scaling.original_context_length", 2, MAX_CONTEXT,
                             config->context_length, &s->original_context);
    if (!status)
        status =
            read_number_or(r, "rope.scaling.yarn_beta_fast", 1e-3, MAX_SCALING, 32, &s->beta_fast);
    if (!status)
        status =
            read_number_or(r, "rope.scaling.yarn_beta_slow", 1e-3, MAX_SCALING, 1, &s->beta_slow);
    return status ? status : read_attention_factor(s, config->latent.is_used, r);
}

/* A file without a scaling type may have LongRoPE's factors, like files of llama.cpp's converter.
 * Otherwise a factor means linear scaling. */
static const char *unnamed_scaling(const struct gguf *gguf) {
    static const char factors[] = "rope_factors_long.weight";
    bool has_factors = name_index_find(&gguf->weights.index, factors, strlen(factors)) >= 0;
    return has_factors ? "longrope" : "linear";
}

/* Scaling changes the angles of every position, so a file that needs an unknown scaling is
 * refused. */
static enum status read_scaling(struct model_config *config, struct gguf_reader *r) {
    static const struct {
        const char *name;
        enum rope_scaling kind;
    } names[] = {{"none", ROPE_UNSCALED},
                 {"linear", ROPE_LINEAR},
                 {"yarn", ROPE_YARN},
                 {"longrope", ROPE_LONG}};
    struct rope_stretch *s = &config->rope.stretch;
    const char *text = NULL;
    size_t length = 0, i = 0, n = sizeof names / sizeof *names;
    enum status status =
        gguf_string_or(r->gguf, key_of(r, "rope.scaling.type"), &text, &length, r->err);
    if (status) return status;
    if (!text) text = unnamed_scaling(r->gguf), length = strlen(text);
    while (i < n && (strlen(names[i].name) != length || memcmp(text, names[i].name, length))) i++;
    if (i == n)
        return err_set(r->err, STATUS_BAD_FILE, r->key,
                       "key %s: \"%.*s\" is not supported; \"none\", \"linear\", \"yarn\" and "
                       "\"longrope\" are",
                       r->key, (int)(length < 32 ? length : 32), text);
    s->kind = names[i].kind;
    status = read_stretch(config, r);
    if (s->kind == ROPE_LINEAR && s->factor == 1) s->kind = ROPE_UNSCALED;
    return status;
}

/* Granite's files use a key with another meaning elsewhere to turn the rotation off. */
static enum status read_switch(struct model_config *config, struct gguf_reader *r) {
    bool rotates;
    enum status status =
        gguf_bool_or(r->gguf, key_of(r, "rope.scaling.finetuned"), true, &rotates, r->err);
    for (int i = 0; i < config->L && !status; i++) config->layer[i].has_no_rope = !rotates;
    return status;
}

/* Reads the number of rotated elements of a head, and the bases. */
static enum status read_rope(struct model_config *config, struct gguf_reader *r) {
    struct rope_config *rope = &config->rope;
    bool is_local = config->window_rotation == WINDOW_ROPE_LOCAL;
    double base = 0, own = 0;
    enum status status = read_scaling(config, r);
    if (status || !rope->is_used) return status;
    status = read_int_or(r, "rope.dimension_count", 1, MAX_WIDTH, config->D, &rope->D_rope);
    if (status) return status;
    if (rope->D_rope > config->D || rope->D_rope % 2 != 0)
        return err_set(r->err, STATUS_BAD_FILE, r->key,
                       "key %s: expected an even number up to the head's size %d, found %d", r->key,
                       config->D, rope->D_rope);
    status = read_number_or(r, "rope.freq_base", 1, 1e30, (double)rope->base, &base);
    if (!status)
        status = read_number_or(r, "rope.freq_base_swa", 1, 1e30, is_local ? 10000 : base, &own);
    rope->base = (float)base;
    config->window_rope.base = (float)own;
    int D = config->window_heads.D;
    if (!status && D)
        status = read_int_or(r, "rope.dimension_count_swa", 2, D, D, &config->window_rope.D_rope);
    if (config->window_rotation != WINDOW_ROPE_SAME && own != base)
        config->window_rotation = WINDOW_ROPE_LOCAL;
    if (!status && rope->may_be_off) status = read_switch(config, r);
    return status;
}

/* ---- other settings ------------------------------------------------------------------------- */

/* Some files with RMS norms, as of Nemotron-H, have the key of other norms instead. */
static enum status read_epsilon(struct model_config *config, struct gguf_reader *r) {
    const char *rms = "attention.layer_norm_rms_epsilon", *other = "attention.layer_norm_epsilon";
    double epsilon = 0;
    bool has_rms = gguf_find(r->gguf, key_of(r, rms)) || !gguf_find(r->gguf, key_of(r, other));
    key_of(r, config->norm == NORM_RMS && has_rms ? rms : other);
    enum status status = gguf_float(r->gguf, r->key, &epsilon, r->err);
    if (status != STATUS_OK) return status;
    config->norm_epsilon = (float)epsilon;
    if (config->norm_epsilon > 0 && epsilon < 1) return STATUS_OK;
    return err_set(r->err, STATUS_BAD_FILE, r->key,
                   "key %s: expected a number between 0 and 1, found %g", r->key, epsilon);
}

/* Reads the numbers of xIELU: each key has one for all layers, or one for each. */
static enum status read_xielu(struct model_config *config, struct gguf_reader *r) {
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    if (config->activation != ACTIVATION_XIELU) return STATUS_OK;
    for (int n = 0; n < N_XIELU; n++) {
        float value[MAX_LAYERS];
        enum status status = gguf_floats(r->gguf, keys[n], config->L, value, r->err);
        if (status) return status;
        for (int i = 0; i < config->L; i++) config->layer[i].xielu[n] = value[i];
    }
    return STATUS_OK;
}

static enum status read_vocabulary(struct model_config *config, struct gguf_reader *r) {
    const struct gguf_value *tokens = NULL;
    enum status status = gguf_array(r->gguf, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, r->err);
    if (status != STATUS_OK) return status;
    if (tokens->count < 1 || tokens->count > MAX_TOKENS)
        return err_set(r->err, STATUS_BAD_FILE, "tokenizer.ggml.tokens",
                       "key tokenizer.ggml.tokens: expected 1 to %d entries, found %zu", MAX_TOKENS,
                       (size_t)tokens->count);
    status = read_int_or(r, "vocab_size", 1, MAX_TOKENS, (int)tokens->count, &config->V);
    if (status != STATUS_OK || (uint64_t)config->V == tokens->count) return status;
    return err_set(r->err, STATUS_BAD_FILE, r->key,
                   "key %s is %d, but the file has %zu tokens (tokenizer.ggml.tokens)", r->key,
                   config->V, (size_t)tokens->count);
}

/* Reads which layers have windows: an array with a flag per layer, or a number N, which means that
 * every N-th layer has full attention. The array may leave out the layers that guess ahead. */
static enum status read_window_pattern(struct model_config *config, struct gguf_reader *r) {
    static const char name[] = "attention.sliding_window_pattern";
    const struct gguf_value *value = gguf_find(r->gguf, key_of(r, name)), *flags;
    int ahead = 0;
    if (!value || value->type != GGUF_ARRAY)
        return read_int_or(r, name, 0, MAX_LAYERS, config->full_every, &config->full_every);
    enum status status = read_int_or(r, "nextn_predict_layers", 0, config->L - 1, 0, &ahead);
    if (!status) status = gguf_array(r->gguf, key_of(r, name), GGUF_BOOL, &flags, r->err);
    if (status) return status;
    if (flags->count != (uint64_t)config->L && flags->count != (uint64_t)(config->L - ahead))
        return err_set(r->err, STATUS_BAD_FILE, r->key,
                       "key %s: expected a flag for each of %d layers, found %zu", r->key,
                       config->L, (size_t)flags->count);
    config->lists_windows = true;
    for (int i = 0; i < (int)flags->count; i++) {
        config->layer[i].slides = ((const uint8_t *)flags->data)[i] != 0;
        config->layer[i].window = config->layer[i].slides ? config->window : 0;
    }
    return STATUS_OK;
}

/* Reads numbers that change the forward pass. The family's value stays if a key is missing. */
static enum status read_options(struct model_config *config, struct gguf_reader *r) {
    const struct {
        const char *name;
        double min;
        float *out;
    } keys[] = {
        {"attention.scale", 0, &config->attention_scale},
        {"attn_logit_softcapping", 0, &config->attention_cap},
        {"final_logit_softcapping", 0, &config->logit_cap},
        {"attention.temperature_scale", 0, &config->query_beta},
        {"embedding_scale", 1e-6, &config->embedding_scale},
        {"residual_scale", 1e-6, &config->residual_scale},
        {"logit_scale", 1e-6, &config->logit_scale},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double value = 0;
        enum status status =
            read_number_or(r, keys[i].name, keys[i].min, 1e6, (double)*keys[i].out, &value);
        if (status != STATUS_OK) return status;
        *keys[i].out = (float)value;
    }
    enum status status =
        gguf_bool_or(r->gguf, key_of(r, "use_parallel_residual"), config->has_parallel_branches,
                     &config->has_parallel_branches, r->err);
    if (!status)
        status = read_int_or(r, "attention.sliding_window", 0, INT32_MAX, 0, &config->window);
    return status ? status : read_window_pattern(config, r);
}

/* Checks a number of the experts for which the forward pass supports only one value. */
static enum status check_expert_number(struct gguf_reader *r, const char *name, int served) {
    int value = served;
    enum status status = read_int_or(r, name, 0, INT32_MAX, served, &value);
    if (status || value == served) return status;
    return err_set(r->err, STATUS_BAD_FILE, r->key, "key %s: only %d is supported, found %d",
                   r->key, served, value);
}

static enum status refuse_expert_features(const struct model_config *config,
                                          struct gguf_reader *r) {
    enum { SOFTMAX = 1, SIGMOID = 2 };
    bool by_sigmoid = config->experts.by_sigmoid;
    double value;
    if (!config->experts.is_used) return check_expert_number(r, "expert_count", 0);
    enum status status = STATUS_OK;
    if (!config->latent.is_used) /* else gguf_latent_read has read it */
        status = check_expert_number(r, "expert_gating_func", by_sigmoid ? SIGMOID : SOFTMAX);
    if (!status) status = read_number_or(r, "attention.clamp_kqv", 0, 0, 0, &value);
    if (!status) status = check_expert_number(r, "interleave_moe_layer_step", 1);
    const bool has_groups = by_sigmoid || config->latent.is_used;
    return status || has_groups ? status : check_expert_number(r, "expert_group_count", 1);
}

/* Reads the unread layers, groups and shared experts, for families that score by sigmoid. */
static enum status read_groups(struct model_config *config, struct gguf_reader *r) {
    struct expert_config *e = &config->experts;
    int shared = 0;
    enum status status =
        read_int_or(r, "nextn_predict_layers", 0, config->L - 1, 0, &config->n_unread_layers);
    config->L -= config->n_unread_layers;
    if (!status) status = read_int_or(r, "expert_group_count", 0, e->E, 0, &e->n_groups);
    /* llama.cpp's converter writes a used group of Kimi Linear without the number of groups */
    if (!status)
        status = read_int_or(r, "expert_group_used_count", 0, e->n_groups + !e->n_groups,
                             e->n_groups, &e->n_used_groups);
    if (!status) status = read_int_or(r, "expert_shared_count", 1, 64, 1, &shared);
    if (!status && e->F_shared == 0) e->F_shared = shared * e->F;
    return status;
}

/* The first layers may have an MLP instead of experts. */
static enum status read_dense_layers(struct model_config *config, struct gguf_reader *r) {
    const char *name = "leading_dense_block_count";
    int n = 0;
    if (!config->experts.may_be_dense) return check_expert_number(r, name, 0);
    enum status status = read_int_or(r, name, 0, config->L - 1, 0, &n);
    for (int i = 0; i < n; i++) config->layer[i].is_dense = true;
    return status;
}

static enum status read_experts(struct model_config *config, struct gguf_reader *r) {
    struct expert_config *e = &config->experts;
    int64_t n = 0;
    double scale = 0;
    enum status status = refuse_expert_features(config, r);
    if (status || !e->is_used) return status;
    status = gguf_int(r->gguf, key_of(r, "expert_count"), 1, MAX_EXPERTS, &n, r->err);
    e->E = (int)n;
    int most = e->E < MAX_USED_EXPERTS ? e->E : MAX_USED_EXPERTS;
    if (!status) status = gguf_int(r->gguf, key_of(r, "expert_used_count"), 1, most, &n, r->err);
    e->n_used = (int)n;
    if (!status)
        status = read_int_or(r, "expert_feed_forward_length", 1, MAX_WIDTH, config->F, &e->F);
    if (!status)
        status = read_int_or(r, "expert_shared_feed_forward_length", 0, MAX_WIDTH, 0, &e->F_shared);
    if (!status) status = read_number_or(r, "expert_weights_scale", 0, 1e6, 1, &scale);
    e->weight_scale = scale > 0 ? (float)scale : 1;
    if (!status && (e->by_sigmoid || config->latent.is_used)) status = read_groups(config, r);
    if (!status) status = read_dense_layers(config, r);
    if (status) return status;
    return gguf_bool_or(r->gguf, key_of(r, "expert_weights_norm"), e->normalises, &e->normalises,
                        r->err);
}

enum status gguf_config_read(struct model_config *config, const struct gguf *gguf, const char *path,
                             struct err *err) {
    struct gguf_reader r = {.gguf = gguf, .architecture = config->architecture, .err = err};
    config->file_bytes = (int64_t)gguf->size;
    enum status status = read_name(config, &r, path);
    if (status == STATUS_OK) status = read_shape(config, &r);
    const bool has_latents = config->latent.is_used;
    if (status == STATUS_OK)
        status = has_latents ? gguf_latent_read(config, gguf, err) : read_head_size(config, &r);
    if (status == STATUS_OK) status = check_heads(config, &r);
    if (status == STATUS_OK) status = read_layers(config, &r);
    if (status == STATUS_OK) status = read_rope(config, &r);
    if (status == STATUS_OK) status = read_epsilon(config, &r);
    if (status == STATUS_OK) status = read_xielu(config, &r);
    if (status == STATUS_OK) status = read_vocabulary(config, &r);
    if (status == STATUS_OK) status = read_options(config, &r);
    if (status == STATUS_OK) status = read_experts(config, &r);
    return status;
}
