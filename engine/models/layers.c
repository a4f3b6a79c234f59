/* The differences between layers. */
#include "engine/models/layers.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/models/model.h"

static enum status refuse_window(const struct model_config *config,
                                 const struct model_family *family, int window, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, "sliding_window",
                   "a sliding window is not supported in a model of the architecture \"%s\"; the "
                   "file has a window of %d tokens and a context of %d",
                   family->gguf, window, config->context_length);
}

/* Sets the windows of the layers. A window as long as the context counts as full attention. */
static void spread_window(struct model_config *config) {
    int every = config->full_every;
    bool has_window = config->window > 0;
    assert(config->L <= MAX_LAYERS && config->window >= 0);
    if (config->window >= config->longest_context) config->window = 0;
    for (int i = 0; i < config->L; i++) {
        struct layer_config *layer = &config->layer[i];
        if (!config->lists_windows) {
            int place = config->full_is_first ? i : i + 1;
            layer->slides = has_window && (every == 0 || place % every != 0);
            layer->window = layer->slides ? config->window : 0;
        }
        if (layer->window >= config->longest_context) layer->window = 0;
    }
}

enum status layers_check_windows(const struct model_config *config,
                                 const struct model_family *family, struct err *err) {
    enum window_kind kind = family->windows;
    if (config->window > 0 && kind == WINDOWS_LISTED && !config->lists_windows)
        return refuse_window(config, family, config->window, err);
    for (int i = 0; i < config->L; i++)
        if (config->layer[i].window > 0 && kind == WINDOWS_NONE)
            return refuse_window(config, family, config->layer[i].window, err);
    return STATUS_OK;
}

/* ---- keys and values ------------------------------------------------------------------------ */

/* Each of the last layers reads the cache of the last layer of its kind before them. */
static enum status find_sources(struct model_config *config, struct err *err) {
    int owners = config->L - config->n_readers;
    for (int i = owners; i < config->L; i++) {
        struct layer_config *layer = &config->layer[i];
        int source = owners - 1;
        while (source >= 0 && config->layer[source].slides != layer->slides) source--;
        if (source < 0)
            return err_set(
                err, STATUS_BAD_FILE, "num_kv_shared_layers",
                "layer %d must read the keys and values of a layer of its kind before the last %d "
                "layers, but all earlier layers are of another kind; check num_kv_shared_layers",
                i, config->n_readers);
        layer->kv_layer = source;
    }
    return STATUS_OK;
}

static enum status check_heads(const struct model_config *config, int layer, struct err *err) {
    struct kv_heads heads = config_heads(config, layer), read;
    read = config_heads(config, config_source(config, layer));
    if (config->H % heads.G != 0)
        return err_set(err, STATUS_BAD_FILE, "num_key_value_heads",
                       "%d key-value heads of layer %d do not divide %d heads", heads.G, layer,
                       config->H);
    if (heads.D % 2 != 0 || (int64_t)config->H * heads.D > MAX_WIDTH)
        return err_set(err, STATUS_BAD_FILE, "head_dim",
                       "layer %d has %d heads of %d numbers; a head's size must be even, and all "
                       "heads together may have at most %d numbers",
                       layer, config->H, heads.D, MAX_WIDTH);
    if (heads.D != config_head_size(config, config->layer[layer].slides))
        return err_set(
            err, STATUS_BAD_FILE, "head_dim",
            "layer %d has heads of %d numbers, another layer of its kind has %d; layers of one "
            "kind must have heads of one size",
            layer, heads.D, config_head_size(config, config->layer[layer].slides));
    if (heads.G != read.G)
        return err_set(err, STATUS_BAD_FILE, "num_key_value_heads",
                       "layer %d has %d key-value heads, but it reads the cache of a layer with %d",
                       layer, heads.G, read.G);
    return STATUS_OK;
}

/* Checks the number of distinct pairs of window and key-value heads: a backend supports few. */
static enum status check_kinds(const struct model_config *config, struct err *err) {
    struct attention_window ignored[MAX_WINDOWS];
    if (model_windows(config, ignored) <= MAX_WINDOWS) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "layer_types",
                   "the layers have more than %d different pairs of a window and a number of "
                   "key-value heads; at most %d are supported",
                   MAX_WINDOWS, MAX_WINDOWS);
}

/* Returns the key of config.json that has the heads of recurrent layers. Kimi Linear's numbers are
 * in an object of their own. */
static const char *state_key(const struct state_config *state) {
    if (state->kind == STATE_SPACE) return "mamba_n_heads";
    return state->by_channel ? "linear_attn_config" : "linear_num_value_heads";
}

/* Checks the matrices of recurrent layers against the kernels. */
static enum status check_matrices(const struct model_config *config, struct err *err) {
    const struct state_config *d = &config->state;
    if (config->C == 0 || d->kind == STATE_CONV) return STATUS_OK;
    if (d->Hv % d->Hk == 0 && d->dk <= MAX_DELTA_HEAD && d->dv <= MAX_DELTA_HEAD &&
        d->dv % DELTA_QUANTUM == 0)
        return STATUS_OK;
    if (d->kind == STATE_SPACE)
        return err_set(err, STATUS_BAD_FILE, state_key(d),
                       "the state space has %d groups with states of %d numbers and %d heads of "
                       "%d, which is not supported: groups must divide heads, states and heads "
                       "have at most %d numbers, and those of heads a multiple of %d",
                       d->Hk, d->dk, d->Hv, d->dv, MAX_DELTA_HEAD, DELTA_QUANTUM);
    if (d->by_channel)
        return err_set(err, STATUS_BAD_FILE, state_key(d),
                       "the gated delta rule has %d heads of %d numbers (key head_dim of "
                       "linear_attn_config, or linear_head_dim), which is not supported: heads "
                       "have at most %d numbers, a multiple of %d",
                       d->Hv, d->dv, MAX_DELTA_HEAD, DELTA_QUANTUM);
    return err_set(err, STATUS_BAD_FILE, state_key(d),
                   "the gated delta rule has %d key heads of %d numbers and %d value heads of %d, "
                   "which is not supported: key heads must divide value heads, heads have at most "
                   "%d numbers, and those of values a multiple of %d",
                   d->Hk, d->dk, d->Hv, d->dv, MAX_DELTA_HEAD, DELTA_QUANTUM);
}

/* Returns the channels of a recurrent layer; 0: too many. */
static int count_channels(const struct model_config *config) {
    const struct state_config *d = &config->state;
    int64_t channels = 2 * (int64_t)d->Hk * d->dk + (int64_t)d->Hv * d->dv;
    if (d->kind == STATE_CONV) return config->K;
    return channels <= MAX_WIDTH ? (int)channels : 0;
}

/* Numbers the recurrent layers. The cache and its plan need a layer of attention, and windows or
 * shared keys beside recurrent layers are not supported. */
static enum status number_recurrent(struct model_config *config, struct err *err) {
    int n = 0, keyless = 0;
    for (int i = 0; i < config->L; i++) {
        config->layer[i].n_recurrent = n;
        config->layer[i].n_keyless = keyless;
        n += config->layer[i].is_recurrent;
        keyless += !config_attends(config, i);
    }
    config->C = n > 0 ? count_channels(config) : 0;
    if (n == 0) config->taps = 0;
    if (n > 0 && config->C == 0)
        return err_set(err, STATUS_BAD_FILE, state_key(&config->state),
                       "%d key heads of %d numbers and %d value heads of %d have together more "
                       "than %d channels",
                       config->state.Hk, config->state.dk, config->state.Hv, config->state.dv,
                       MAX_WIDTH);
    const bool attends = keyless < config->L || config->lacks_attention;
    if (attends && (n == 0 || (config->window == 0 && config->n_readers == 0))) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "layer_types",
                   "%d of %d layers are %s: expected at least one layer of attention, "
                   "and neither windows nor shared keys in the others",
                   n, config->L, config->state.kind == STATE_CONV ? "convolutions" : "recurrent");
}

enum status layers_finish(struct model_config *config, struct err *err) {
    assert(config->n_readers < config->L);
    spread_window(config);
    enum status status = number_recurrent(config, err);
    if (!status) status = check_matrices(config, err);
    if (!status) status = find_sources(config, err);
    for (int i = 0; i < config->L && !status; i++) {
        struct layer_config *layer = &config->layer[i];
        layer->values_are_keys = config->keys_serve && !layer->slides;
        if (!config->eagle.is_used || !config_is_ahead(config, i)) /* hf_eagle_read did it */
            status = check_heads(config, i, err);
    }
    return status ? status : check_kinds(config, err);
}

void layers_find_values(struct model_config *config, const struct weights *weights) {
    for (int i = 0; i < config->L; i++) {
        char name[ROLE_NAME_BYTES];
        role_name(name, ROLE_V, i);
        bool has_values = weights_lookup(weights, name) != NULL;
        config->layer[i].values_are_keys = !has_values && !config_reads(config, i);
    }
}

void layers_add_latents(struct model_config *config, const struct weights *weights) {
    char name[ROLE_NAME_BYTES];
    bool has_two = false;
    assert(config->latent.is_used && config->latent.rank > 0);
    for (int i = 0; i < config->L && weights; i++) { /* some layers may be recurrent */
        role_name(name, ROLE_K_B, i);
        has_two |= weights_lookup(weights, name) != NULL;
    }
    config->roles |= config->latent.q_rank > 0 ? ROLES_LATENT_Q : ROLE_BIT(ROLE_Q);
    config->roles |= has_two ? ROLES_LATENT_B : ROLE_BIT(ROLE_KV_B);
}

bool layers_has_part(const struct model_config *config, enum role role, int layer,
                     const char *name) {
    const int parts = role_info(role)->of_taps && layer >= 0 ? role_pieces(config, role) : 0;
    char part[ROLE_NAME_BYTES];
    for (int i = 0; i < parts; i++) {
        role_piece_name(part, role, layer, i);
        if (strcmp(part, name) == 0) return true;
    }
    return false;
}

/* ---- experts -------------------------------------------------------------------------------- */

/* Do the groups divide the experts, and do the used groups have enough experts? */
static enum status check_groups(const struct expert_config *e, struct err *err) {
    int size = e->n_groups > 0 ? e->E / e->n_groups : e->E;
    if (e->n_groups <= 1) return STATUS_OK;
    assert(e->n_used_groups <= e->n_groups);
    if (e->n_groups <= MAX_EXPERT_GROUPS && size * e->n_groups == e->E && size >= 2 &&
        e->n_used_groups >= 1 && e->n_used <= e->n_used_groups * size)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "n_group",
                   "%d experts in %d groups, with %d groups and %d experts in use: expected at "
                   "most %d groups of one size, at least 2, with enough experts in the used groups",
                   e->E, e->n_groups, e->n_used_groups, e->n_used, MAX_EXPERT_GROUPS);
}

enum status layers_check_experts(struct model_config *config, struct err *err) {
    struct expert_config *experts = &config->experts;
    bool has_shared = config_has(config, ROLE_SHARED_UP) || config_has(config, ROLE_SHARED_GATE_UP);
    int n_dense = config_dense_layers(config);
    if (!experts->is_used) return STATUS_OK;
    if (n_dense == config->L)
        return err_set(err, STATUS_BAD_FILE, "experts",
                       "none of %d layers has experts (mlp_only_layers, decoder_sparse_step), "
                       "which is not supported in a model of the architecture \"%s\"",
                       config->L, config->architecture);
    if (!has_shared) experts->F_shared = 0;
    if (has_shared && experts->F_shared == 0) experts->F_shared = n_dense ? experts->F : config->F;
    if (n_dense == 0 && !experts->beside_mlp) config->F = experts->F;
    assert(experts->E > 0 && experts->n_used > 0 && experts->n_used <= experts->E);
    if (experts->F % EXPERT_QUANTUM == 0 && config->K % EXPERT_QUANTUM == 0 &&
        experts->F_shared % EXPERT_QUANTUM == 0 &&
        (int64_t)experts->E * (experts->F > config->K ? experts->F : config->K) <= INT32_MAX)
        return check_groups(experts, err);
    return err_set(err, STATUS_BAD_FILE, "experts",
                   "%d experts of %d in a model %d wide are not supported, with a shared one of %d:"
                   " widths must be multiples of %d, and all experts less than %d wide",
                   experts->E, experts->F, config->K, experts->F_shared, EXPERT_QUANTUM, INT32_MAX);
}

/* ---- activations ---------------------------------------------------------------------------- */

enum status layers_read_xielu(struct model_config *config, const struct weights *weights,
                              struct err *err) {
    /* transformers' initial values, for random weights */
    static const float usual[] = {0.2031f, -1.0502f, 0.5f, -1e-6f};
    static const enum role roles[] = {ROLE_XIELU_ALPHA_P, ROLE_XIELU_ALPHA_N, ROLE_XIELU_BETA,
                                      ROLE_XIELU_EPS};
    for (int i = 0; i < config->L * N_XIELU && config->activation == ACTIVATION_XIELU; i++) {
        int layer = i / N_XIELU, number = i % N_XIELU;
        const struct weight *weight;
        char name[ROLE_NAME_BYTES];
        role_name(name, roles[number], layer);
        enum status status = weights_vector(weights, name, 1, &weight, err);
        if (status) return status;
        float *out = &config->layer[layer].xielu[number];
        *out = usual[number];
        if (weight->data) dequantise(weight->type, weight->data, out, 1);
    }
    config->roles &= ~ROLES_XIELU; /* they are numbers from here on */
    return STATUS_OK;
}

enum status layers_check_xielu(const struct model_config *config, struct err *err) {
    for (int i = 0; i < config->L && config->activation == ACTIVATION_XIELU; i++) {
        const float *numbers = config->layer[i].xielu;
        bool fits = numbers[XIELU_EPS] >= -1 && numbers[XIELU_EPS] <= 0;
        for (int n = 0; n < N_XIELU; n++) fits = fits && fabsf(numbers[n]) <= 1e6f;
        if (fits) continue;
        return err_set(err, STATUS_BAD_FILE, "xielu",
                       "layer %d has alpha_p %g, alpha_n %g, beta %g and eps %g (xIELU): expected "
                       "numbers up to 1e6, and eps from -1 to 0",
                       i, (double)numbers[XIELU_ALPHA_P], (double)numbers[XIELU_ALPHA_N],
                       (double)numbers[XIELU_BETA], (double)numbers[XIELU_EPS]);
    }
    return STATUS_OK;
}

static double softplus(double x) {
    return x > 20 ? x : log1p(exp(x));
}

struct xielu xielu_of(const struct model_config *config, int layer) {
    const float *of_file = config->layer[layer].xielu;
    double beta = (double)of_file[XIELU_BETA];
    if (config->activation != ACTIVATION_XIELU) return (struct xielu){0};
    return (struct xielu){.positive = (float)softplus((double)of_file[XIELU_ALPHA_P]),
                          .negative = (float)(beta + softplus((double)of_file[XIELU_ALPHA_N])),
                          .linear = of_file[XIELU_BETA],
                          .limit = of_file[XIELU_EPS]};
}

int model_windows(const struct model_config *config, struct attention_window windows[MAX_WINDOWS]) {
    assert(config->L > 0 && config->L <= MAX_LAYERS);
    int n = 0;
    for (int i = 0; i < config->L; i++) {
        const bool is_head = config->eagle.is_used && config_is_ahead(config, i);
        const struct attention_window own = {config->layer[i].window, config_heads(config, i).G,
                                             is_head ? config->eagle.H : config->H};
        int seen = 0;
        while (seen < n && (windows[seen].length != own.length || windows[seen].G != own.G ||
                            windows[seen].H != own.H))
            seen++;
        if (seen < n) continue;
        if (n == MAX_WINDOWS) return n + 1;
        windows[n++] = own;
    }
    return n;
}
