/* Writes a model_config as the keys of a GGUF file, the inverse of engine/files/gguf_config.c.
 * Numbers of the model's shape are always written, even if readers have a default; options only if
 * they differ from the default. check_again compares the keys with the folder. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/convert.h"

struct keyer {
    struct gguf_keys *keys;
    const char *architecture;
    char key[96];
};

/* Returns "<architecture>.<name>", valid until the next call. */
static const char *key_of(struct keyer *k, const char *name) {
    snprintf(k->key, sizeof k->key, "%s.%s", k->architecture, name);
    return k->key;
}

static void put_int(struct keyer *k, const char *name, int value) {
    gguf_put_int(k->keys, key_of(k, name), (uint32_t)value);
}

static void put_float(struct keyer *k, const char *name, double value) {
    gguf_put_float(k->keys, key_of(k, name), (float)value);
}

static void put_text(struct keyer *k, const char *name, const char *text) {
    gguf_put_string(k->keys, key_of(k, name), text, strlen(text));
}

/* Writes a number for all layers, or a list if layers differ. */
static void put_of_layers(struct keyer *k, const char *name, const int32_t *of_layer, int L) {
    assert(L > 0 && L <= MAX_LAYERS);
    bool is_same = true;
    for (int i = 1; i < L; i++) is_same &= of_layer[i] == of_layer[0];
    if (is_same)
        put_int(k, name, of_layer[0]);
    else
        gguf_put_array(k->keys, key_of(k, name), GGUF_INT32, (size_t)L, of_layer);
}

static void put_layers(struct keyer *k, const struct model_config *m) {
    int32_t F[MAX_LAYERS] = {0}, G[MAX_LAYERS] = {0};
    int D = config_head_size(m, false), window_D = config_head_size(m, true);
    for (int i = 0; i < m->L; i++) F[i] = config_width(m, i), G[i] = config_heads(m, i).G;
    for (int i = 0; i < m->L; i++)
        if (m->layer[i].is_recurrent) G[i] = 0;
    if (m->taps > 0) put_int(k, "shortconv.l_cache", m->taps);
    put_of_layers(k, "feed_forward_length", F, m->L);
    put_of_layers(k, "attention.head_count_kv", G, m->L);
    if (D == 0) D = window_D; /* all layers have windows */
    put_int(k, "attention.key_length", D);
    put_int(k, "attention.value_length", D);
    if (m->n_readers > 0) put_int(k, "attention.shared_kv_layers", m->n_readers);
    if (m->P > 0) put_int(k, "embedding_length_per_layer_input", m->P);
    if (window_D == 0 || window_D == D) return;
    put_int(k, "attention.key_length_swa", window_D);
    put_int(k, "attention.value_length_swa", window_D);
    put_int(k, "rope.dimension_count_swa", m->window_rope.D_rope);
}

static void put_shape(struct keyer *k, const struct model_config *m) {
    put_int(k, "vocab_size", m->V);
    put_int(k, "block_count", m->L);
    put_int(k, "context_length", m->context_length);
    put_int(k, "embedding_length", m->K);
    put_int(k, "attention.head_count", m->H);
    put_layers(k, m);
    put_float(k,
              m->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                  : "attention.layer_norm_epsilon",
              (double)m->norm_epsilon);
}

/* YaRN's rule gives the factor of attention; the key holds the part beyond the rule. */
static double attention_factor(const struct rope_stretch *s) {
    double usual = s->kind == ROPE_YARN && s->factor > 1 ? 0.1 * log(s->factor) + 1 : 1;
    return s->attention_factor > 0 ? (double)s->attention_factor / usual : 1;
}

static void put_stretch(struct keyer *k, const struct rope_stretch *s) {
    static const char *const names[] = {
        [ROPE_LINEAR] = "linear", [ROPE_YARN] = "yarn", [ROPE_LONG] = "longrope"};
    bool is_named = s->kind == ROPE_LINEAR || s->kind == ROPE_YARN || s->kind == ROPE_LONG;
    if (!is_named) return; /* Llama 3's factors are a tensor */
    put_text(k, "rope.scaling.type", names[s->kind]);
    /* with lists of factors the key is redundant, and other programs would divide by it as well */
    if (s->kind != ROPE_LONG) put_float(k, "rope.scaling.factor", s->factor);
    if (s->kind == ROPE_LINEAR) return;
    put_int(k, "rope.scaling.original_context_length", s->original_context);
    if (fabs(attention_factor(s) - 1) > 1e-6)
        put_float(k, "rope.scaling.attn_factor", attention_factor(s));
    if (s->kind != ROPE_YARN) return;
    put_float(k, "rope.scaling.yarn_beta_fast", s->beta_fast);
    put_float(k, "rope.scaling.yarn_beta_slow", s->beta_slow);
}

/* Some keys of Granite's files have another meaning. */
static bool is_granite(const struct keyer *k) {
    return strncmp(k->architecture, "granite", 7) == 0;
}

static void put_rope(struct keyer *k, const struct model_config *m) {
    if (!m->rope.is_used) return;
    put_int(k, "rope.dimension_count", m->rope.D_rope);
    put_float(k, "rope.freq_base", (double)m->rope.base);
    if (m->window_rotation == WINDOW_ROPE_LOCAL)
        put_float(k, "rope.freq_base_swa", (double)m->window_rope.base);
    if (m->rope.sections[0] > 0)
        gguf_put_array(k->keys, key_of(k, "rope.dimension_sections"), GGUF_INT32, MAX_ROPE_SECTIONS,
                       m->rope.sections);
    if (m->n_deepstack_layers > 0) put_int(k, "n_deepstack_layers", m->n_deepstack_layers);
    if (is_granite(k) && m->layer[0].has_no_rope)
        gguf_put_bool(k->keys, key_of(k, "rope.scaling.finetuned"), false);
    put_stretch(k, &m->rope.stretch);
}

/* Are exactly each n-th layer without a window? */
static bool is_each(const struct model_config *m, int n) {
    assert(n >= 0);
    for (int i = 0; i < m->L; i++)
        if (m->layer[i].slides != (n == 0 || (i + 1) % n != 0)) return false;
    return true;
}

/* Writes which layers have windows, if this differs from the family's rule: a number, or a flag per
 * layer. */
static void put_windows(struct keyer *k, const struct model_config *m,
                        const struct gguf_form *form) {
    static const char name[] = "attention.sliding_window_pattern";
    bool slides = false;
    int every = 2;
    for (int i = 0; i < m->L; i++) slides |= m->layer[i].slides;
    if (m->window == 0 || !slides) return;
    put_int(k, "attention.sliding_window", m->window);
    if (!form->lists_windows && is_each(m, form->full_every)) return;
    while (every <= m->L && !is_each(m, every)) every++;
    if (!form->lists_windows && every <= m->L) {
        put_int(k, name, every);
        return;
    }
    uint8_t *flag = mem_calloc((size_t)m->L, 1);
    for (int i = 0; i < m->L; i++) flag[i] = m->layer[i].slides;
    gguf_put_array(k->keys, key_of(k, name), GGUF_BOOL, (size_t)m->L, flag);
    mem_free(flag);
}

static void put_options(struct keyer *k, const struct model_config *m,
                        const struct gguf_form *form) {
    const struct {
        const char *name;
        float value, usual;
    } keys[] = {
        {"attention.scale", m->attention_scale, 1 / sqrtf((float)m->D)},
        {"attn_logit_softcapping", m->attention_cap, 0},
        {"final_logit_softcapping", m->logit_cap, 0},
        {"residual_scale", m->residual_scale, 1},
        {"attention.temperature_scale", m->query_beta, 0},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].value != keys[i].usual) put_float(k, keys[i].name, (double)keys[i].value);
    if (form->says_branches)
        gguf_put_bool(k->keys, key_of(k, "use_parallel_residual"), m->has_parallel_branches);
    if (m->logit_scale != 1)
        put_float(k, "logit_scale",
                  is_granite(k) ? 1 / (double)m->logit_scale : (double)m->logit_scale);
    /* programs know this from the architecture */
    bool is_known =
        strncmp(k->architecture, "gemma", 5) == 0 || strcmp(k->architecture, "afmoe") == 0;
    if (m->embedding_scale != 1 && !is_known)
        put_float(k, "embedding_scale", (double)m->embedding_scale);
}

static void put_xielu(struct keyer *k, const struct model_config *m) {
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    float value[MAX_LAYERS];
    for (int n = 0; n < N_XIELU && m->activation == ACTIVATION_XIELU; n++) {
        for (int i = 0; i < m->L; i++) value[i] = m->layer[i].xielu[n];
        gguf_put_array(k->keys, keys[n], GGUF_FLOAT32, (size_t)m->L, value);
    }
}

static void put_experts(struct keyer *k, const struct model_config *m) {
    enum { SOFTMAX = 1, SIGMOID = 2 };
    const struct expert_config *e = &m->experts;
    if (!e->is_used) return;
    assert(e->E > 0 && e->n_used > 0 && e->n_used <= e->E && e->F > 0);
    put_int(k, "expert_count", e->E);
    put_int(k, "expert_used_count", e->n_used);
    put_int(k, "expert_feed_forward_length", e->F);
    gguf_put_bool(k->keys, key_of(k, "expert_weights_norm"), e->normalises);
    if (e->F_shared > 0) put_int(k, "expert_shared_feed_forward_length", e->F_shared);
    if (e->may_be_dense && (e->by_sigmoid || config_dense_layers(m) > 0))
        put_int(k, "leading_dense_block_count", config_dense_layers(m));
    if (strcmp(k->architecture, "ernie4_5-moe") == 0) { /* other programs require these */
        put_int(k, "interleave_moe_layer_step", 1);
        put_int(k, "expert_shared_count", e->F_shared / e->F);
    }
    if (!e->by_sigmoid) return;
    put_int(k, "expert_gating_func", SIGMOID);
    bool is_plain = e->F_shared == 0 && e->n_groups <= 1 && e->weight_scale == 1;
    if (is_plain) return; /* MiniMax M2 */
    put_int(k, "expert_group_count", e->n_groups);
    put_int(k, "expert_group_used_count", e->n_used_groups);
    put_float(k, "expert_weights_scale", (double)e->weight_scale);
    if (e->F_shared > 0) put_int(k, "expert_shared_count", e->F_shared / e->F);
}

/* Writes the settings of generation_config.json, if it has any. */
static void put_sampling(struct gguf_keys *keys, struct sampling_defaults *defaults) {
    for (int i = 0; i < N_SAMPLING_NUMBERS; i++) {
        double value = *sampling_number_of(defaults, &sampling_numbers[i]);
        if (value >= 0) gguf_put_float(keys, sampling_numbers[i].gguf, (float)value);
    }
    if (defaults->top_k >= 0)
        gguf_put_int(keys, "general.sampling.top_k", (uint32_t)defaults->top_k);
    if (defaults->n_suppressed > 0)
        gguf_put_array(keys, SUPPRESS_KEY, GGUF_INT32, (size_t)defaults->n_suppressed,
                       defaults->suppressed);
}

void folder_keys(struct conversion *c, const struct gguf_form *form) {
    const struct model_config *m = &c->config;
    struct keyer k = {.keys = &c->keys, .architecture = form->architecture};
    gguf_put_string(&c->keys, "general.architecture", k.architecture, strlen(k.architecture));
    gguf_put_string(&c->keys, "general.name", m->name, strlen(m->name));
    put_sampling(&c->keys, &c->source.hf->defaults);
    put_shape(&k, m);
    put_rope(&k, m);
    put_windows(&k, m, form);
    put_options(&k, m, form);
    put_xielu(&k, m);
    put_experts(&k, m);
}
