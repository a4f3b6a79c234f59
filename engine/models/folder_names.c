/* DESIGN: from the tensor names of a folder to the engine's.
 *
 * Checkpoints differ in the prefix of names ("model.", "transformer.", or nothing), in how they
 * number layers, and from family to family. The table of roles has the most frequent names, a
 * family's folder_style the others. Each tensor is matched with its role once. After that it is
 * found by the name that it would have in a GGUF file, so loading and sharding handle one kind of
 * names. Mismatches are collected, so one start reports all of them.
 */
#include "engine/models/folder_names.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/models/layers.h"
#include "engine/models/model.h"

enum { MAX_NAMED = 3 }; /* tensors that a message names per kind of mismatch */

/* The tensors with one kind of mismatch. */
struct complaint {
    int n;
    struct buf text;
};

struct matching {
    struct model_config *config;
    struct weights *weights;
    const struct model_family *family;
    role_set known; /* roles that the family may have with this config.json */
    char (*names)[WEIGHT_MAX_RENAMED + 1];
    char prefix[64]; /* of this folder's names, for messages */
    bool has_other_parts;
    int n_other_parts; /* number of tensors outside the text decoder */
    int n_unread;      /* number of tensors in layers that use an earlier layer's keys and values */
    int n_unused;      /* number of tensors that the family does not use */
    int n_predictors;  /* number of tensors in parts that predict further tokens */
    int n_zero_biases; /* of matrices that have no bias in this family */
    struct complaint unknown, missing, shapes;
};

static void complain(struct complaint *about, const char *name, const char *more) {
    if (about->n++ < MAX_NAMED)
        buf_printf(&about->text, "%s%s%s", about->n > 1 ? ", " : "", name, more);
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Returns a name of a role, its first one for n 0. */
static const char *folder_name(const struct model_family *family, enum role role, int n) {
    const struct role_alias *alias = family->folder.alias;
    for (; alias && alias->name; alias++)
        if (alias->role == role && n-- == 0) return alias->name;
    return role_info(role)->folder;
}

/* Does the name match `wanted`? A * in `wanted` stands for the number of an expert or a head, which
 * *piece receives; without a * it becomes -1. */
static bool is_wanted(const char *wanted, const char *name, int n_pieces, int *piece) {
    const char *star = strchr(wanted, '*');
    size_t before = star ? (size_t)(star - wanted) : 0;
    char *end;
    *piece = -1;
    if (!star) return strcmp(wanted, name) == 0;
    if (strncmp(name, wanted, before) != 0 || name[before] < '0' || name[before] > '9')
        return false;
    long number = strtol(name + before, &end, 10);
    if (number >= n_pieces || strcmp(end, star + 1) != 0) return false;
    *piece = (int)number;
    return true;
}

/* Is `rest`, a name after the prefixes and the layer, of a role? Parts of taps have names each. */
static bool is_of_role(const struct matching *m, enum role role, const char *rest, int *piece) {
    const struct role_alias *alias = m->family->folder.alias;
    const char *usual = role_info(role)->folder;
    int pieces = role_pieces(m->config, role);
    const bool is_part = pieces > 0 && role_info(role)->of_taps;
    for (int n = 0; alias && alias->name; alias++) {
        if (alias->role != role) continue;
        usual = NULL;
        if (is_wanted(alias->name, rest, pieces, piece)) return *piece = is_part ? n : *piece, true;
        n++;
    }
    return usual && is_wanted(usual, rest, pieces, piece);
}

static const char *layers_of(const struct model_family *family) {
    return family->folder.layers ? family->folder.layers : "layers.";
}

/* Returns the name without the prefixes that torch.compile and PEFT add. */
static const char *without_wrapper(const char *name) {
    static const char compiled[] = "_orig_mod.", adapted[] = "base_model.model.";
    for (;;) {
        if (strncmp(name, compiled, sizeof compiled - 1) == 0)
            name += sizeof compiled - 1;
        else if (strncmp(name, adapted, sizeof adapted - 1) == 0)
            name += sizeof adapted - 1;
        else
            return name;
    }
}

/* Returns the name without the prefix of some checkpoints. */
static const char *without_prefix(const char *name) {
    /* clang-format off */
    static const char *const prefixes[] = {
        "bert.encoder.", "roberta.encoder.", "encoder.", "bert.", "roberta.",
        "model.language_model.", "language_model.model.", "language_model.",
        "model.text_model.", "model.decoder.", "decoder.", "model.", "transformer.",
        "gpt_neox.", "backbone."};
    /* clang-format on */
    name = without_wrapper(name);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) == 0) return name + n;
    }
    return name;
}

/* Does the tensor belong to vision or audio rather than to the text decoder? */
static bool is_of_other_part(const char *name) {
    static const char *const parts[] = {"vision_tower.", "vision_model.",          "visual.",
                                        "audio_tower.",  "multi_modal_projector.", "embed_vision.",
                                        "embed_audio.",  "vision_embedder.",       "connector.",
                                        "mm_projector."};
    const char *rest = without_wrapper(name);
    if (strncmp(rest, "model.", 6) == 0) rest += 6;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strncmp(rest, parts[i], strlen(parts[i])) == 0) return true;
    return false;
}

/* Does the family not use the tensor? */
static bool is_unused(const struct model_family *family, const char *name) {
    const char *const *unused = family->folder.unused;
    const char *rest = without_prefix(name), *whole = without_wrapper(name);
    for (; unused && *unused; unused++) {
        size_t n = strlen(*unused);
        if (strncmp(rest, *unused, n) == 0 || strncmp(whole, *unused, n) == 0) return true;
    }
    return false;
}

/* Does the tensor belong to a part that predicts further tokens (ERNIE 4.5, Qwen3-Next)? */
static bool is_of_predictor(const char *name) {
    const char *rest = without_prefix(name);
    return strncmp(rest, "mtp_", 4) == 0 || strncmp(rest, "mtp.", 4) == 0;
}

/* Returns the role of a name, its layer, and the expert or head of a tensor of only one; N_ROLES if
 * the name is unknown. */
static enum role find_role(const struct matching *m, const char *name, int *layer, int *piece) {
    const char *rest = without_prefix(name), *layers = layers_of(m->family);
    bool of_layer = strncmp(rest, layers, strlen(layers)) == 0;
    char *end = NULL;
    const char *ahead = config_owns_ahead(m->config) ? folder_ahead_name(rest) : NULL;
    *layer = ahead ? m->config->L - 1 : -1;
    if (ahead) rest = ahead;
    if (of_layer) {
        rest += strlen(layers);
        if (*rest < '0' || *rest > '9') return N_ROLES;
        long number = strtol(rest, &end, 10);
        if (*end != '.' || number >= m->config->L + m->config->n_unread_layers) return N_ROLES;
        *layer = (int)number;
        if (number >= m->config->L) return N_ROLES;
        rest = end + 1;
    }
    for (enum role role = 0; role < N_ROLES; role++) {
        if (!(m->known & ROLE_BIT(role))) continue;
        if (!config_may_have_in(m->config, role, *layer)) continue;
        if (is_of_role(m, role, rest, piece)) return role;
    }
    return N_ROLES;
}

/* Is it a bias of zeros, which some quantisers write for each matrix? The model gives the same
 * results without it. */
static bool is_zero_bias(const struct weight *weight) {
    static const char end[] = ".bias";
    const uint8_t *bytes = weight->data;
    size_t length = strlen(weight->name), n = sizeof end - 1;
    if (length < n || strcmp(weight->name + length - n, end) != 0 || !bytes) return false;
    for (size_t i = 0; i < weight->bytes; i++)
        if (bytes[i]) return false;
    return true;
}

/* ---- the head ------------------------------------------------------------------------------- */

static const struct weight *find_weight(const struct matching *m, enum role wanted) {
    int layer, piece;
    for (int i = 0; i < m->weights->n; i++) {
        const struct weight *weight = &m->weights->tensor[i];
        if (find_role(m, weight->name, &layer, &piece) == wanted) return weight;
    }
    return NULL;
}

static bool is_copy(const struct weight *a, const struct weight *b) {
    if (a->type != b->type || a->n_dims != b->n_dims || a->packed || b->packed) return false;
    for (int i = 0; i < a->n_dims; i++)
        if (a->dim[i] != b->dim[i]) return false;
    assert(a->bytes == b->bytes && a->data && b->data);
    return memcmp(a->data, b->data, a->bytes) == 0;
}

/* Returns the role of a tensor of the head in a folder that says the head is the embedding:
 * N_ROLES for a copy of the embedding, which is not needed; ROLE_OUTPUT for a head that differs,
 * which is kept, as transformers does; the embedding's role if the folder has no other tensor for
 * it. */
static enum role role_of_tied_head(const struct matching *m) {
    const struct weight *head = find_weight(m, ROLE_OUTPUT);
    const struct weight *embedding = find_weight(m, ROLE_TOKEN_EMBEDDING);
    if (!head || !embedding) return ROLE_TOKEN_EMBEDDING;
    if (is_copy(head, embedding)) return N_ROLES;
    log_line(LOG_WARNING,
             "config.json says that the head is the embedding (tie_word_embeddings), but %s is not "
             "%s: the head of the file is used",
             head->name, embedding->name);
    return ROLE_OUTPUT;
}

/* Counts a tensor without a role, or complains about it. Heads are read with the classifier. */
static void note_unknown(struct matching *m, const struct weight *weight) {
    if (m->config->lacks_text && is_head_tensor(without_wrapper(weight->name), false)) return;
    if (m->has_other_parts && is_of_other_part(weight->name))
        m->n_other_parts++;
    else if (is_unused(m->family, weight->name))
        m->n_unused++;
    else if (is_of_predictor(weight->name))
        m->n_predictors++;
    else if (is_zero_bias(weight))
        m->n_zero_biases++;
    else
        complain(&m->unknown, weight->name, "");
}

/* Gives each tensor its name, and records the roles that exist. */
static void match_tensors(struct matching *m, bool is_tied) {
    enum role head = is_tied ? role_of_tied_head(m) : ROLE_OUTPUT;
    for (int i = 0; i < m->weights->n; i++) {
        struct weight *weight = &m->weights->tensor[i];
        int layer, piece;
        enum role role = find_role(m, weight->name, &layer, &piece);
        if (layer >= m->config->L || layers_shares_tensor(m->config, layer, weight->name)) continue;
        if (role != N_ROLES && config_ignores(m->config, role, layer)) {
            m->n_unread++;
            continue;
        }
        if (role == N_ROLES) {
            note_unknown(m, weight);
            continue;
        }
        if (role == ROLE_OUTPUT) role = head;
        if (role == N_ROLES) continue; /* a copy of the embedding */
        if (piece < 0)
            config_role_name(m->names[i], m->config, role, layer);
        else
            role_piece_name(m->names[i], role, layer, piece);
        m->config->roles |= ROLE_BIT(role);
        size_t length = (size_t)(without_prefix(weight->name) - weight->name);
        if (find_role(m, weight->name, &layer, &piece) == ROLE_OUTPUT) continue;
        snprintf(m->prefix, sizeof m->prefix, "%.*s", (int)length, weight->name);
    }
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* Writes a shape in the folder's order: outputs first, or inputs first for columns. */
static void shape_text(char out[48], const int64_t *dim, int n_dims) {
    int n = snprintf(out, 48, "[");
    for (int i = n_dims - 1; i >= 0 && n < 40; i--)
        n += snprintf(out + n, (size_t)(48 - n), "%" PRId64 "%s", dim[i], i ? ", " : "]");
}

/* Removes the first n rows of a matrix. */
static void skip_rows(struct weight *weight, int n) {
    size_t row_bytes = dtype_bytes(weight->type, (size_t)weight->dim[0]);
    weight->data = (const char *)weight->data + (size_t)n * row_bytes;
    weight->dim[1] -= n;
    weight->n_elements -= n * weight->dim[0];
    weight->bytes -= (size_t)n * row_bytes;
    assert(weight->dim[1] > 0);
}

/* Checks a tensor against its role, and marks it as transposed if its rows are inputs. `is_whole`:
 * the tensor holds all experts or heads. */
static void check_shape(struct matching *m, struct weight *weight, enum role role, int layer,
                        bool is_whole) {
    const struct role_info *info = role_info(role);
    const struct folder_style *style = &m->family->folder;
    bool transposed = style->transposed & ROLE_BIT(role);
    if (is_whole && weight->packed) transposed = false; /* packed experts are in rows */
    int64_t N = role_extent(m->config, info->N, layer), K = role_extent(m->config, info->K, layer);
    int64_t E = role_pieces(m->config, role), dim[3];
    if (info->of_heads) N = m->config->D; /* of one head */
    dim[0] = info->K ? K : N, dim[1] = info->K ? N : E, dim[2] = E;
    if (style->turns_by_shape && weight->dim[0] == dim[0] && weight->dim[1] == dim[1])
        transposed = false;
    if (transposed) dim[0] = N, dim[1] = K;
    int unused = role == ROLE_POSITION_EMBEDDING ? style->unused_positions : 0;
    dim[1] += unused;
    int n_dims = (info->K ? 2 : 1) + is_whole;
    if (info->of_taps) {
        n_dims = 2, dim[0] = m->config->taps, dim[1] = m->config->C / (E > 0 ? E : 1);
        if (weight->n_dims == 3 && weight->dim[1] == 1) /* as torch stores it */
            weight->n_dims = 2, weight->dim[1] = weight->dim[2], weight->dim[2] = 1;
        if (weight->packed) complain(&m->shapes, weight->name, " (packed taps)");
    }
    if (n_dims == 1 && weight->n_dims == 2 && weight->dim[1] == 1) weight->n_dims = 1;
    if (role == ROLE_STATE_DECAY && weight->n_elements == N) /* also [1, 1, N, 1] */
        weight->n_dims = 1, weight->dim[0] = N, weight->dim[1] = 1;
    bool fits = weight->n_dims == n_dims;
    for (int i = 0; i < n_dims; i++) fits = fits && weight->dim[i] == dim[i];
    if (!fits) {
        char found[48], wanted[48], more[128];
        shape_text(found, weight->dim, weight->n_dims);
        shape_text(wanted, dim, n_dims);
        snprintf(more, sizeof more, " (expected %s, found %s)", wanted, found);
        complain(&m->shapes, weight->name, more);
        return;
    }
    if (transposed && weight->packed) complain(&m->shapes, weight->name, " (packed columns)");
    if (transposed) weight->is_transposed = true, weight->dim[0] = K, weight->dim[1] = N;
    if (unused) skip_rows(weight, unused);
    weight->is_interleaved = is_whole && info->n_parts > 0 && style->interleaves_experts;
    if (style->groups_qkv && (role == ROLE_QKV || role == ROLE_QKV_BIAS)) {
        struct kv_heads heads = config_heads(m->config, layer);
        const int rows[] = {m->config->H / heads.G * heads.D, heads.D, heads.D};
        weight->groups = heads.G;
        memcpy(weight->group_rows, rows, sizeof rows);
    }
    bool is_delta = role == ROLE_STATE_NORM; /* its gains are whole in all files */
    weight->adds_one = style->adds_one && n_dims == 1 && !info->is_bias && !is_delta;
    weight->is_log = role == ROLE_STATE_DECAY;
}

static void note_missing(struct matching *m, enum role role, int layer, int piece) {
    assert(role < N_ROLES && layer >= -1 && layer < m->config->L);
    char name[WEIGHT_MAX_NAME + 1];
    const char *of_role =
        folder_name(m->family, role, role_info(role)->of_taps && piece > 0 ? piece : 0);
    const char *prefix = role == ROLE_OUTPUT ? "" : m->prefix;
    if (!of_role) of_role = config_role_gguf(m->config, role);
    const char *star = strchr(of_role, '*');
    if (layer < 0)
        snprintf(name, sizeof name, "%s%s", prefix, of_role);
    else if (star)
        snprintf(name, sizeof name, "%s%s%d.%.*s%d%s", prefix, layers_of(m->family), layer,
                 (int)(star - of_role), of_role, piece, star + 1);
    else
        snprintf(name, sizeof name, "%s%s%d.%s", prefix, layers_of(m->family), layer, of_role);
    complain(&m->missing, name, "");
}

/* Checks that a role's tensor exists and has the right shape. `piece` below 0: not the tensor of
 * one expert or head. */
static void check_tensor(struct matching *m, enum role role, int layer, int piece) {
    assert(role < N_ROLES && layer >= -1 && layer < m->config->L);
    char name[ROLE_NAME_BYTES];
    if (piece < 0)
        config_role_name(name, m->config, role, layer);
    else
        role_piece_name(name, role, layer, piece);
    int number = name_index_find(&m->weights->index, name, strlen(name));
    if (number < 0)
        note_missing(m, role, layer, piece);
    else
        check_shape(m, &m->weights->tensor[number], role, layer,
                    piece < 0 && role_pieces(m->config, role) > 0);
}

/* Checks that each tensor of the model exists. */
static void check_tensors(struct matching *m) {
    for (int layer = -1; layer < m->config->L; layer++) /* -1: tensors outside the layers */
        for (enum role role = 0; role < N_ROLES; role++) {
            const char *of_role = folder_name(m->family, role, 0);
            bool has_pieces = role_info(role)->of_taps || (of_role && strchr(of_role, '*'));
            int pieces = has_pieces ? role_pieces(m->config, role) : 0;
            if (!config_has_in(m->config, role, layer)) continue;
            if (pieces == 0) check_tensor(m, role, layer, -1);
            for (int i = 0; i < pieces; i++) check_tensor(m, role, layer, i);
        }
}

/* ---- entry points --------------------------------------------------------------------------- */

static void tell(struct buf *out, const char *what, const struct complaint *about) {
    if (about->n == 0) return;
    buf_printf(out, "%s%s %s", out->length ? "; " : "", what, about->text.data);
    if (about->n > MAX_NAMED) buf_printf(out, " and %d more", about->n - MAX_NAMED);
}

static enum status judge(struct matching *m, struct err *err) {
    struct buf text = {0};
    enum status status = STATUS_OK;
    tell(&text, "missing", &m->missing);
    tell(&text, "of another shape", &m->shapes);
    tell(&text, "unknown", &m->unknown);
    if (text.length)
        status = err_set(err, STATUS_BAD_FILE, "model",
                         "the tensors are not those of a model of the architecture \"%s\": %s",
                         m->family->gguf, text.data);
    buf_free(&text);
    return status;
}

const struct model_family *folder_style_choose(const struct model_family *family,
                                               const struct weights *weights) {
    const struct model_family *other = family->other_form;
    const char *end = other ? folder_name(other, family->other_has, 0) : "";
    for (int i = 0; other && i < weights->n; i++) {
        const char *name = weights->tensor[i].name;
        size_t length = strlen(name), n = strlen(end);
        if (length > n && strcmp(name + length - n, end) == 0) return other;
    }
    return family;
}

void folder_style_begin(struct hf_config *hf, const struct model_family *family) {
    const struct folder_style *style = &family->folder;
    assert(!hf->width_key && !hf->is_tied);
    hf->is_tied = family->ties, hf->activation = style->activation;
    hf->width_key = style->width_key, hf->tanh_activation = style->tanh_activation;
    hf->has_falcon_keys = style->has_falcon_keys;
    hf->rotates_if_said = style->rotates_if_said, hf->pads_positions = style->pads_positions;
}

/* The roles of a family's folders. */
static role_set known_roles(const struct model_family *family) {
    return roles_fused(family->roles, family->folder.fused) |
           roles_fused(family->optional, family->folder.fused) | family->folder.roles;
}

enum role model_folder_role(struct model_config *config, const char *name, int *layer) {
    const struct model_family *family = model_family_called(config->architecture);
    const struct matching m = {
        .config = config, .family = family, .known = known_roles(family) | ROLE_BIT(ROLE_OUTPUT)};
    int piece;
    return find_role(&m, name, layer, &piece);
}

enum status folder_names_read(struct model_config *config, struct weights *weights,
                              const struct model_family *family, const struct hf_config *hf,
                              struct err *err) {
    struct matching m = {.config = config,
                         .weights = weights,
                         .family = family,
                         .known = known_roles(family),
                         .has_other_parts = hf->has_other_parts};
    if (config_owns_ahead(config)) m.known |= ROLES_AHEAD;
    _Static_assert((int)ROLE_NAME_BYTES <= WEIGHT_MAX_RENAMED + 1, "second names");
    /* transformers ignores biases that no key turns on, so they are unknown here */
    role_set by_key = ROLES_ATTENTION_BIASES | ROLES_MLP_BIASES | ROLES_QK_NORM |
                      ROLES_QK_NORM_HEADS | ROLE_BIT(ROLE_PROJECT_IN) | ROLE_BIT(ROLE_PROJECT_OUT) |
                      ROLES_SHORT_CONV_BIASES | ROLE_BIT(ROLE_ATTN_NORM_2) |
                      ROLE_BIT(ROLE_ATTN_NORM_2_BIAS);
    m.known &= ~roles_fused(family->optional & by_key, family->folder.fused) | config->roles;
    m.known &= ~family_absent_roles(config);
    if (!config->is_encoder)
        m.known |= ROLE_BIT(ROLE_OUTPUT); /* also in families whose head is usually the embedding */
    m.names = mem_calloc((size_t)weights->n + 1, sizeof *m.names);
    match_tensors(&m, hf->is_tied);
    enum status status = weights_rename(weights, m.names, err);
    if (!status) {
        check_tensors(&m);
        status = judge(&m, err);
    }
    if (!status && m.n_other_parts > 0)
        log_line(LOG_INFO,
                 "the model has several parts; only the text decoder is served, and %d tensors of "
                 "the other parts are ignored",
                 m.n_other_parts);
    if (!status && m.n_unread > 0)
        log_line(LOG_INFO,
                 "%d tensors are of keys and values in layers that read those of an earlier layer, "
                 "and are not used",
                 m.n_unread);
    if (!status && m.n_unused > 0)
        log_line(LOG_INFO, "%d tensors are of heads that are not served, and are ignored",
                 m.n_unused);
    if (!status && m.n_predictors > 0)
        log_line(LOG_INFO, "%d tensors predict further tokens, and are not used", m.n_predictors);
    if (!status && m.n_zero_biases > 0)
        log_line(LOG_INFO, "%d biases of the folder are zero and are ignored", m.n_zero_biases);
    buf_free(&m.unknown.text);
    buf_free(&m.missing.text);
    buf_free(&m.shapes.text);
    return status;
}
