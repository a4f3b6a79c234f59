/* Reads how a config.json rotates positions. Transformers up to version 4 writes rope_theta and
 * rope_scaling. Later versions write rope_parameters, with one object per kind of layer if the
 * kinds differ. */
#include <math.h>
#include <string.h>

#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"

enum { MAX_SCALING = 1000000 };

/* The source of a stretch. */
struct rope_reader {
    const struct json *root, *scaling;
    int context_length;
    struct err *err;
};

/* ---- stretches ------------------------------------------------------------------------------ */

/* Reads the original context length: from the stretch, from the config (Phi 3), or else the model's
 * context length. */
static enum status read_original_context(struct rope_stretch *s, const struct rope_reader *r) {
    static const char key[] = "original_max_position_embeddings";
    const struct json *holder = key_value(r->scaling, key) ? r->scaling : r->root;
    return key_int_or(holder, key, 2, MAX_CONTEXT, r->context_length, &s->original_context, r->err);
}

/* Reads the factor. Without a key it is the growth of the context. */
static enum status read_factor_or_growth(struct rope_stretch *s, const struct rope_reader *r) {
    double growth = (double)r->context_length / s->original_context;
    return key_number_or(r->scaling, "factor", 1e-3, MAX_SCALING, growth, &s->factor, r->err);
}

static enum status read_llama3(struct rope_stretch *s, const struct rope_reader *r) {
    const struct json *scaling = r->scaling;
    enum status status = key_number(scaling, "factor", 1, MAX_SCALING, &s->factor, r->err);
    if (!status)
        status =
            key_number(scaling, "low_freq_factor", 1e-3, MAX_SCALING, &s->low_freq_factor, r->err);
    if (!status)
        status = key_number(scaling, "high_freq_factor", 1e-3, MAX_SCALING, &s->high_freq_factor,
                            r->err);
    if (!status)
        status = key_int(scaling, "original_max_position_embeddings", 1, MAX_CONTEXT,
                         &s->original_context, r->err);
    if (!status && s->high_freq_factor <= s->low_freq_factor)
        return err_set(r->err, STATUS_BAD_FILE, "high_freq_factor",
                       "key high_freq_factor: expected more than low_freq_factor, found %g",
                       s->high_freq_factor);
    return status;
}

/* Returns YaRN's factor for cosines and sines. */
static double yarn_attention(double factor, double by) {
    return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1;
}

static enum status read_yarn(struct rope_stretch *s, const struct rope_reader *r) {
    const struct json *scaling = r->scaling;
    double mscale = 0, all_dim = 0, attention = 0;
    enum status status = read_original_context(s, r);
    if (!status) status = read_factor_or_growth(s, r);
    if (!status)
        status = key_number_or(scaling, "beta_fast", 1e-3, MAX_SCALING, 32, &s->beta_fast, r->err);
    if (!status)
        status = key_number_or(scaling, "beta_slow", 1e-3, MAX_SCALING, 1, &s->beta_slow, r->err);
    if (!status) status = key_bool_or(scaling, "truncate", true, &s->truncates, r->err);
    if (!status) status = key_number_or(scaling, "mscale", 0, MAX_SCALING, 0, &mscale, r->err);
    if (!status)
        status = key_number_or(scaling, "mscale_all_dim", 0, MAX_SCALING, 0, &all_dim, r->err);
    double usual = yarn_attention(s->factor, 1);
    if (mscale > 0 && all_dim > 0)
        usual = yarn_attention(s->factor, mscale) / yarn_attention(s->factor, all_dim);
    if (all_dim > 0) s->score_factor = (float)yarn_attention(s->factor, all_dim);
    if (!status)
        status = key_number_or(scaling, "attention_factor", 1e-3, MAX_SCALING, usual, &attention,
                               r->err);
    s->attention_factor = (float)attention;
    return status;
}

static enum status read_factors(float *out, int n, const char *key, const struct rope_reader *r) {
    const struct json *list = key_value(r->scaling, key);
    if (!json_is(list, JSON_ARRAY) || list->n_children != n)
        return err_set(r->err, STATUS_BAD_FILE, key,
                       "key %s: expected an array of %d numbers, one for each pair that rotates",
                       key, n);
    json_each(item, list) {
        bool fits = json_is(item, JSON_NUMBER) && item->number > 0 && item->number < MAX_SCALING;
        if (!fits)
            return err_set(r->err, STATUS_BAD_FILE, key, "key %s: expected positive numbers", key);
        *out++ = (float)item->number;
    }
    return STATUS_OK;
}

static enum status read_long(struct rope_stretch *s, int pairs, const struct rope_reader *r) {
    double attention = 0;
    if (pairs > MAX_ROPE_FACTORS)
        return err_set(r->err, STATUS_BAD_FILE, "rope_scaling",
                       "key rope_scaling: \"longrope\" of %d pairs; the limit is %d", pairs,
                       MAX_ROPE_FACTORS);
    s->n_factors = pairs;
    enum status status = read_original_context(s, r);
    if (!status) status = read_factor_or_growth(s, r);
    if (!status) status = read_factors(s->short_factor, pairs, "short_factor", r);
    if (!status) status = read_factors(s->long_factor, pairs, "long_factor", r);
    if (status) return status;
    double usual = s->factor <= 1 ? 1 : sqrt(1 + log(s->factor) / log(s->original_context));
    status =
        key_number_or(r->scaling, "attention_factor", 1e-3, MAX_SCALING, usual, &attention, r->err);
    s->attention_factor = (float)attention;
    return status;
}

/* HunYuan's form of "dynamic": alpha raises the base once, whatever the length of a context. */
static enum status read_alpha(struct rope_config *rope, const struct rope_reader *r) {
    double alpha, D = rope->D_rope;
    enum status status = key_number(r->scaling, "alpha", 1e-3, MAX_SCALING, &alpha, r->err);
    if (status) return status;
    if (rope->D_rope == 2)
        return err_set(r->err, STATUS_BAD_FILE, "alpha",
                       "key alpha: it needs heads with more than 2 rotating numbers");
    rope->stretch.kind = ROPE_UNSCALED;
    rope->base = (float)((double)rope->base * pow(alpha, D / (D - 2)));
    return STATUS_OK;
}

static enum status read_stretch(struct rope_config *rope, const struct json *type,
                                const struct rope_reader *r) {
    static const struct {
        const char *name;
        enum rope_scaling kind;
    } names[] = {{"default", ROPE_UNSCALED}, {"linear", ROPE_LINEAR},     {"llama3", ROPE_LLAMA3},
                 {"yarn", ROPE_YARN},        {"dynamic", ROPE_DYNAMIC},   {"longrope", ROPE_LONG},
                 {"su", ROPE_LONG},          {"proportional", ROPE_PART}, {"mrope", ROPE_UNSCALED}};
    char text[64];
    struct rope_stretch *s = &rope->stretch;
    size_t i = 0, n = sizeof names / sizeof *names;
    while (i < n && !json_is_text(type, names[i].name)) i++;
    if (i == n)
        return err_set(r->err, STATUS_BAD_FILE, "rope_scaling",
                       "key rope_scaling: the type \"%s\" is not supported; \"linear\", "
                       "\"dynamic\", \"llama3\", \"yarn\", \"longrope\" and \"proportional\" are",
                       key_shown(type, text));
    s->kind = names[i].kind;
    switch (s->kind) {
    case ROPE_UNSCALED:
        return STATUS_OK;
    case ROPE_LINEAR:
        return key_number(r->scaling, "factor", 1e-3, MAX_SCALING, &s->factor, r->err);
    case ROPE_LLAMA3:
        return read_llama3(s, r);
    case ROPE_YARN:
        return read_yarn(s, r);
    case ROPE_DYNAMIC:
        if (key_value(r->scaling, "alpha")) return read_alpha(rope, r);
        s->original_context = r->context_length; /* whatever the file says */
        return key_number(r->scaling, "factor", 1, MAX_SCALING, &s->factor, r->err);
    case ROPE_PART:
        return key_number_or(r->scaling, "factor", 1e-3, MAX_SCALING, 1, &s->factor, r->err);
    case ROPE_LONG:
        return read_long(s, rope->D_rope / 2, r);
    }
    return STATUS_OK;
}

/* Reads the factor by which queries grow with the position; it depends on YaRN's original context
 * length. */
static enum status read_query_beta(float *beta, const struct rope_config *rope,
                                   const struct rope_reader *r) {
    static const char key[] = "llama_4_scaling_beta";
    double value = 0;
    enum status status = key_number_or(r->scaling, key, 0, 1000, 0, &value, r->err);
    *beta = (float)value;
    if (status || value == 0 || rope->stretch.kind == ROPE_YARN) return status;
    return err_set(r->err, STATUS_BAD_FILE, key,
                   "key %s: only 0 is supported without \"yarn\", found %g", key, value);
}

/* Reads the pairs that rotate by each position of an image. */
static enum status read_sections(struct rope_config *rope, const struct rope_reader *r) {
    static const char key[] = "mrope_section";
    const struct json *list = key_value(r->scaling, key);
    bool fits = !list || (json_is(list, JSON_ARRAY) && list->n_children <= MAX_ROPE_SECTIONS);
    int i = 0;
    json_each(item, fits ? list : NULL) {
        fits = fits && json_is(item, JSON_NUMBER) && item->is_integer && item->integer >= 0 &&
               item->integer <= rope->D_rope / 2;
        if (fits) rope->sections[i++] = (int32_t)item->integer;
    }
    if (fits) return STATUS_OK;
    return err_set(r->err, STATUS_BAD_FILE, key,
                   "key %s: expected an array of at most %d numbers from 0 to %d", key,
                   MAX_ROPE_SECTIONS, rope->D_rope / 2);
}

/* ---- a rotation ----------------------------------------------------------------------------- */

/* Reads one rotation. In the later format `of_theta` and `scaling` are the same object. */
static enum status read_rotation(struct rope_config *rope, float *beta,
                                 const struct model_config *c, int D, const struct json *root,
                                 const struct json *of_theta, const struct json *scaling,
                                 struct err *err) {
    static const char part_key[] = "partial_rotary_factor",
                      part_keys[] = "partial_rotary_factor|rotary_pct";
    const struct json *type = key_value(scaling, "rope_type|type");
    const struct json *of_part = key_value(of_theta, part_keys) ? of_theta : root;
    const struct rope_reader r = {root, scaling, c->context_length, err};
    /* all of a head rotates, most pairs by angle 0 */
    bool is_part = json_is_text(type, "proportional");
    double theta = (double)rope->base, part = rope->part > 0 ? (double)rope->part : 1;
    int dims = 0; /* MiniMax's spelling of the part */
    enum status status = key_number_or(of_theta, "rope_theta|rotary_emb_base|global_rope_theta", 1,
                                       1e30, theta, &theta, err);
    if (!status) status = key_int_or(root, "rotary_dim", 2, D, 0, &dims, err);
    if (dims > 0) part = (double)dims / D;
    if (!status) status = key_number_or(of_part, part_keys, 1e-3, 1, part, &part, err);
    if (status) return status;
    if (c->latent.is_used) part = 1; /* qk_rope_head_dim counts the rotated numbers: D */
    rope->base = (float)theta;
    rope->D_rope = is_part ? D : (int)(D * part);
    rope->stretch.part = part;
    if (rope->D_rope < 2 || rope->D_rope % 2 != 0)
        return err_set(
            err, STATUS_BAD_FILE, part_key,
            "key %s: %g of a head of %d are %d numbers; an even count from 2 was expected",
            part_key, part, D, rope->D_rope);
    if (scaling && type) status = read_stretch(rope, type, &r);
    if (!status) status = read_query_beta(beta, rope, &r);
    if (!status) status = read_sections(rope, &r);
    if (!status && rope->stretch.kind == ROPE_DYNAMIC && rope->D_rope == 2)
        return err_set(
            err, STATUS_BAD_FILE, "rope_scaling",
            "key rope_scaling: \"dynamic\" needs heads with more than 2 rotating numbers");
    return status;
}

/* Is there a rotation for each kind of layer that the file lists, and at least one? */
static bool has_rotations(const struct model_config *c, const struct json *full,
                          const struct json *slides) {
    bool fits = (full || slides) && (!full || json_is(full, JSON_OBJECT)) &&
                (!slides || json_is(slides, JSON_OBJECT));
    for (int i = 0; c->lists_windows && i < c->L; i++)
        fits = fits && (c->layer[i].slides ? slides : full);
    return fits;
}

/* Reads one rotation per kind of layer. */
static enum status read_rotations(struct model_config *c, const struct json *root,
                                  const struct json *kinds, struct err *err) {
    static const char key[] = "rope_parameters";
    const struct json *full = key_value(kinds, "full_attention");
    const struct json *slides = key_value(kinds, "sliding_attention");
    if (!has_rotations(c, full, slides))
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: expected numbers of one rotation, or an object for each of "
                       "\"full_attention\" and \"sliding_attention\"",
                       key);
    struct rope_config own = c->window_rope;
    own.is_used = true, own.layout = c->rope.layout;
    if (c->window_rotation != WINDOW_ROPE_LOCAL) own.base = c->rope.base;
    enum status status = STATUS_OK;
    int D = config_head_size(c, false), window_D = config_head_size(c, true);
    if (D == 0) D = c->D;
    if (window_D == 0) window_D = D;
    if (full) status = read_rotation(&c->rope, &c->query_beta, c, D, root, full, full, err);
    if (!status && slides)
        status = read_rotation(&own, &c->query_beta, c, window_D, root, slides, slides, err);
    if (status) return status;
    if (!full) c->rope = own;
    bool is_same = c->rope.D_rope == own.D_rope && c->rope.base == own.base &&
                   memcmp(&c->rope.stretch, &own.stretch, sizeof own.stretch) == 0;
    if (!slides || is_same) {
        c->window_rotation = WINDOW_ROPE_SAME;
        return STATUS_OK;
    }
    if (c->window_rotation == WINDOW_ROPE_SAME) c->window_rotation = WINDOW_ROPE_UNSCALED;
    c->window_rope = own;
    return STATUS_OK;
}

/* no_rope_layers has a 1 for each layer with rotary positions, and a 0 for each layer without. */
static enum status read_layers_without(struct model_config *c, const struct json *root,
                                       struct err *err) {
    static const char key[] = "no_rope_layers";
    const struct json *list = key_value(root, key);
    int i = 0;
    if (!list) return STATUS_OK;
    if (!json_is(list, JSON_ARRAY) || list->n_children != c->L)
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: expected an array of %d numbers, one for each layer", key, c->L);
    c->lists_ropes = true;
    json_each(item, list) {
        bool is_flag = json_is(item, JSON_NUMBER) && (item->number == 0 || item->number == 1);
        if (!is_flag)
            return err_set(err, STATUS_BAD_FILE, key, "key %s: expected 0 or 1 for layer %d", key,
                           i);
        c->layer[i++].has_no_rope = item->number == 0;
    }
    return STATUS_OK;
}

enum status hf_rope_read(struct model_config *c, const struct json *root, struct err *err) {
    const struct json *both = key_value(root, "rope_parameters");
    const struct json *scaling = both ? both : key_value(root, "rope_scaling");
    const char *key = both ? "rope_parameters" : "rope_scaling";
    double local = c->window_rotation == WINDOW_ROPE_LOCAL ? 10000 : (double)c->rope.base;
    if (!c->rope.is_used) return STATUS_OK;
    if (scaling && !json_is(scaling, JSON_OBJECT))
        return err_set(err, STATUS_BAD_FILE, key, "key %s: expected an object, found %s", key,
                       json_type_name(scaling));
    enum status status =
        key_number_or(root, "rope_local_base_freq|local_rope_theta", 1, 1e30, local, &local, err);
    if (status) return status;
    c->window_rope.base = (float)local;
    if (json_is(json_first(both), JSON_OBJECT))
        status = read_rotations(c, root, both, err);
    else
        status =
            read_rotation(&c->rope, &c->query_beta, c, c->latent.is_used ? c->latent.D_rope : c->D,
                          root, both ? both : root, scaling, err);
    return status ? status : read_layers_without(c, root, err);
}
