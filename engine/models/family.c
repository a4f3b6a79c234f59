/* Which families there are, and how a model's config comes about: the family gives what is always
 * so, a reader of engine/files/ adds what the file says, the tensors tell what is optional, and the
 * family finishes. */
#include "engine/models/families/family.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "engine/models/dummy.h"
#include "engine/models/folder_names.h"
#include "engine/models/model.h"

static const struct model_family *const families[] = {
    &model_llama, &model_mistral, &model_qwen2,  &model_qwen3, &model_smollm3,
    &model_phi3,  &model_gemma,   &model_gemma2, &model_gpt2,  &model_opt,
};
enum { N_FAMILIES = sizeof families / sizeof *families };

static bool is_called(const struct model_family *family, bool in_gguf, const char *name) {
    if (in_gguf) return !family->only_folders && strcmp(family->gguf, name) == 0;
    for (const char *const *hf = family->hf; *hf; hf++)
        if (strcmp(*hf, name) == 0) return true;
    return false;
}

static enum status refuse_architecture(bool in_gguf, const char *name, struct err *err) {
    struct buf served = {0};
    for (int i = 0; i < N_FAMILIES; i++) {
        const char *const of_gguf[] = {families[i]->only_folders ? NULL : families[i]->gguf, NULL};
        for (const char *const *each = in_gguf ? of_gguf : families[i]->hf; *each; each++)
            buf_printf(&served, "%s%s", served.length ? ", " : "", *each);
    }
    const char *key = in_gguf ? "general.architecture" : "architectures";
    enum status status = err_set(err, STATUS_BAD_FILE, key,
                                 "key %s: the architecture \"%s\" is not supported; these are: %s",
                                 key, name, served.data);
    buf_free(&served);
    return status;
}

static enum status find_family(const struct model_family **out, const struct model_file *file,
                               struct err *err) {
    char name[MAX_ARCHITECTURE];
    bool in_gguf = file->gguf != NULL;
    enum status status = model_file_architecture(name, file, err);
    if (status) return status;
    for (int i = 0; i < N_FAMILIES; i++) {
        *out = families[i];
        if (is_called(families[i], in_gguf, name)) return STATUS_OK;
    }
    return refuse_architecture(in_gguf, name, err);
}

static void begin(struct model_config *config, const struct model_family *family, bool in_gguf) {
    assert((family->roles & family->optional) == 0);
    *config = (struct model_config){.roles = family->roles,
                                    .norm = family->norm,
                                    .norm_epsilon = family->norm_epsilon,
                                    .activation = family->activation,
                                    .embedding_scale = 1};
    snprintf(config->architecture, sizeof config->architecture, "%s", family->gguf);
    bool adjacent = in_gguf && family->positions == POSITIONS_ROPE_ADJACENT;
    config->rope.layout = adjacent ? ROPE_ADJACENT : ROPE_HALVES;
    config->rope.is_used = family->positions != POSITIONS_LEARNED;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* The role of the tensor `name` in the family; N_ROLES: none. */
static enum role role_of(const struct model_family *family, const char *name, int L) {
    int layer = -1, prefix = 0;
    char whole[ROLE_NAME_BYTES];
    bool of_layer = sscanf(name, "blk.%9d.%n", &layer, &prefix) == 1 && prefix > 0;
    for (enum role role = 0; role < N_ROLES; role++) {
        if (!((family->roles | family->optional) & ROLE_BIT(role))) continue;
        if (role_is_of_layer(role) != of_layer) continue;
        if (strcmp(role_info(role)->gguf, name + prefix) != 0) continue;
        role_name(whole, role, layer);
        bool is_layer = !of_layer || (layer >= 0 && layer < L);
        return is_layer && strcmp(whole, name) == 0 ? role : N_ROLES;
    }
    return N_ROLES;
}

/* Notes which optional tensors are there. One that the family does not know would be left out of
 * the forward pass, and the answers would be wrong. */
static enum status read_roles(struct model_config *config, const struct weights *weights,
                              const struct model_family *family, struct err *err) {
    for (int i = 0; i < weights->n; i++) {
        const char *name = weights->tensor[i].name;
        enum role role = role_of(family, name, config->L);
        if (role == N_ROLES)
            return err_set(err, STATUS_BAD_FILE, name,
                           "tensor %s is not supported in a model of the architecture \"%s\"", name,
                           family->gguf);
        config->roles |= ROLE_BIT(role);
    }
    assert((config->roles & ~(family->roles | family->optional)) == 0);
    return STATUS_OK;
}

/* Most of a model's elements are of one type, which people call it by; vectors stay in float32 in
 * any case. The data of all tensors lies apart in files, so the sum of their elements is far from
 * int64's end. */
static void count_tensors(struct model_config *config, const struct weights *weights) {
    int64_t of_type[WEIGHT_MAX_TYPE + 1] = {0}, bytes = 0;
    int best = -1;
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        config->n_parameters += weight->n_elements;
        bytes += (int64_t)weight->bytes;
        if (weight->n_dims > 1 && strncmp(weights_name(weights, i), "blk.", 4) == 0)
            config->n_layer_parameters += weight->n_elements;
        if (weight->n_dims > 1) of_type[weight->type] += weight->n_elements;
    }
    for (int type = 0; type <= WEIGHT_MAX_TYPE; type++) {
        if (of_type[type] > 0 && (best < 0 || of_type[type] > of_type[best])) best = type;
    }
    snprintf(config->quantisation, sizeof config->quantisation, "%s",
             best < 0 ? "none" : dtype_name(best));
    if (config->file_bytes == 0) config->file_bytes = bytes; /* random weights are in no file */
}

/* ---- what follows from it ------------------------------------------------------------------- */

static enum status refuse_window(const struct model_config *config,
                                 const struct model_family *family, int window, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, "sliding_window",
                   "a sliding window is not supported in a model of the architecture \"%s\", found "
                   "one of %d tokens in a context of %d",
                   family->gguf, window, config->context_length);
}

/* Gives the layers their windows; one that is as long as the context is none. */
static enum status spread_window(struct model_config *config, const struct model_family *family,
                                 struct err *err) {
    enum window_kind kind = family->windows;
    int every = kind == WINDOWS_EVEN_LAYERS ? 2 : 1;
    assert(config->L <= MAX_LAYERS && config->window >= 0);
    if (config->window >= config->context_length) config->window = 0;
    if (config->window > 0 && kind == WINDOWS_LISTED && !config->lists_windows)
        return refuse_window(config, family, config->window, err);
    for (int i = 0; i < config->L; i++) {
        int *window = &config->layer[i].window;
        if (!config->lists_windows) *window = i % every == 0 ? config->window : 0;
        if (*window >= config->context_length) *window = 0;
        if (*window > 0 && kind == WINDOWS_NONE) return refuse_window(config, family, *window, err);
    }
    return STATUS_OK;
}

/* The tensors of a folder; or those that such a model has, with random numbers. */
static enum status read_folder(struct model_config *config, struct hf_config *hf,
                               const struct model_family *family, struct err *err) {
    if (!hf->is_tied) config->roles |= ROLE_BIT(ROLE_OUTPUT);
    if (hf->n_shards == 0) return dummy_weights(&hf->weights, config, hf->dtype, err);
    return folder_names_read(config, &hf->weights, family, hf->is_tied, err);
}

static enum status read_config(struct model_config *config, struct model_file *file,
                               struct err *err) {
    const struct model_family *family;
    struct hf_config *hf = file->hf;
    enum status status = find_family(&family, file, err);
    if (status) return hf ? blame_file(err, status, hf->path) : status;
    begin(config, family, !hf);
    if (hf) hf->is_tied = family->ties;
    if (hf) hf->activation = family->folder.activation;
    status = model_file_config(config, file, err);
    if (status) return status;
    status = hf ? read_folder(config, hf, family, err)
                : read_roles(config, &file->gguf->weights, family, err);
    if (!status) status = spread_window(config, family, err);
    if (!status && family->finish) status = family->finish(config, err);
    if (status) return hf ? blame_file(err, status, hf->folder ? hf->folder : hf->path) : status;
    if (config->attention_scale == 0) config->attention_scale = 1.0f / sqrtf((float)config->D);
    count_tensors(config, model_file_weights(file));
    return STATUS_OK;
}

enum status model_config_read(struct model_config *config, struct model_file *file,
                              struct err *err) {
    enum status status = read_config(config, file, err);
    assert(status || (config->L > 0 && config->H % config->G == 0));
    assert(status || config->rope.D_rope <= config->D);
    return status;
}

int model_windows(const struct model_config *config, int windows[MAX_WINDOWS]) {
    int n = 0;
    for (int i = 0; i < config->L; i++) {
        int seen = 0;
        while (seen < n && windows[seen] != config->layer[i].window) seen++;
        if (seen < n) continue;
        assert(n < MAX_WINDOWS);
        windows[n++] = config->layer[i].window;
    }
    return n;
}
