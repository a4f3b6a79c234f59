/* Reads how a model's makers pool hidden vectors into an embedding.
 *
 * A folder of sentence-transformers lists its steps in modules.json: the transformer, a pooling
 * whose settings are in a config.json of its own, sometimes more layers, and a normalisation. A
 * GGUF file has llama.cpp's numbers for types of pooling. */
#include <stdio.h>
#include <string.h>

#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"
#include "engine/files/model_file.h"
#include "engine/files/tensors/gguf.h"

enum { MAX_POOLING_BYTES = 1 << 16 };

/* ---- folders -------------------------------------------------------------------------------- */

/* The modes of a pooling. Older files have a key for each, of which one is true; later ones have
 * the name of the mode as `pooling_mode`. */
static const struct {
    const char *key, *name;
    enum hidden_rows rows; /* HIDDEN_NONE: not served */
} modes[] = {
    {"pooling_mode_cls_token", "cls", HIDDEN_FIRST},
    {"pooling_mode_lasttoken", "lasttoken", HIDDEN_LAST},
    {"pooling_mode_mean_tokens", "mean", HIDDEN_ALL},
    {"pooling_mode_max_tokens", "max", HIDDEN_NONE},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", HIDDEN_NONE},
    {"pooling_mode_weightedmean_tokens", "weightedmean", HIDDEN_NONE},
};

/* A pooling has exactly one mode that is served; anything else is not served. */
static void take_mode(struct pooling *out, const struct json *settings) {
    enum { N_MODES = sizeof modes / sizeof *modes };
    const struct json *mode = json_member(settings, "pooling_mode");
    int n = 0;
    for (int i = 0; i < N_MODES; i++) {
        bool is_set = json_true(json_member(settings, modes[i].key));
        if (!is_set && !json_is_text(mode, modes[i].name)) continue;
        if (modes[i].rows != HIDDEN_NONE) out->rows = modes[i].rows;
        n += modes[i].rows != HIDDEN_NONE ? 1 : 2;
    }
    if (n != 1) snprintf(out->unserved, sizeof out->unserved, "pooling");
}

static enum status read_mode(struct pooling *out, const char *folder, const char *step,
                             struct err *err) {
    char name[160];
    struct json *settings = NULL;
    snprintf(name, sizeof name, "%s/config.json", step);
    char *path = path_in(folder, name);
    enum status status = hf_file_read(&settings, path, MAX_POOLING_BYTES, err);
    out->unserved[0] = 0;
    if (!status) take_mode(out, settings);
    json_free(settings);
    mem_free(path);
    return status;
}

/* Is `path` the name of a folder in the model's folder? */
static bool is_plain_name(const char *path) {
    return *path && strlen(path) < 100 && !strchr(path, '/') && strcmp(path, "..") != 0;
}

static enum status read_step(struct pooling *out, const char *folder, const struct json *step,
                             struct err *err) {
    const char *path = json_text(json_member(step, "path"));
    const char *type = strrchr(json_text(json_member(step, "type")), '.');
    if (!type || strcmp(type, ".Transformer") == 0) return STATUS_OK;
    if (strcmp(type, ".Normalize") == 0) {
        out->normalises = true;
        return STATUS_OK;
    }
    if (strcmp(type, ".Pooling") == 0 && is_plain_name(path))
        return read_mode(out, folder, path, err);
    snprintf(out->unserved, sizeof out->unserved, "%s", *path ? path : type + 1);
    return STATUS_OK;
}

static enum status read_steps(struct pooling *out, const char *folder, const char *path,
                              struct err *err) {
    struct json *steps = NULL;
    enum status status = hf_list_read(&steps, path, MAX_POOLING_BYTES, err);
    if (status) return status;
    out->normalises = false;
    snprintf(out->unserved, sizeof out->unserved, "modules.json"); /* until a pooling is found */
    json_each(step, steps) if (!status) status = read_step(out, folder, step, err);
    json_free(steps);
    return status;
}

static enum status read_folder(struct pooling *out, const char *folder, struct err *err) {
    if (!folder || !is_in_folder(folder, "modules.json")) return STATUS_OK;
    char *path = path_in(folder, "modules.json");
    enum status status = read_steps(out, folder, path, err);
    mem_free(path);
    return status;
}

/* ---- GGUF files ----------------------------------------------------------------------------- */

enum gguf_pooling { POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST, POOLING_RANK };

static enum status read_gguf(struct pooling *out, const struct gguf *gguf, const char *architecture,
                             struct err *err) {
    char key[128];
    int64_t type;
    snprintf(key, sizeof key, "%s.pooling_type", architecture);
    enum status status = gguf_int_or(gguf, key, 0, POOLING_RANK, POOLING_LAST, &type, err);
    if (!status && type == POOLING_MEAN) out->rows = HIDDEN_ALL;
    if (!status && type == POOLING_CLS) out->rows = HIDDEN_FIRST;
    return status;
}

enum status model_file_pooling(struct pooling *out, const struct model_file *file,
                               const char *architecture, struct err *err) {
    *out = (struct pooling){.rows = HIDDEN_LAST, .normalises = true};
    if (!file->gguf) return read_folder(out, file->hf->folder, err);
    return model_file_blame(file, read_gguf(out, file->gguf, architecture, err), err);
}
