/* Reads how a model's makers pool hidden vectors into an embedding.
 *
 * A folder of sentence-transformers lists its steps in modules.json: the transformer, a pooling
 * whose settings are in a config.json of its own, sometimes more layers, and a normalisation. A
 * GGUF file has llama.cpp's numbers for types of pooling. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"
#include "engine/files/model_file.h"
#include "engine/files/tensors/gguf.h"

enum { MAX_POOLING_BYTES = 1 << 18, MAX_PROMPT_BYTES = 4096, MAX_EMBEDDING_PROMPTS = 64 };

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

/* A normalisation before a dense layer is not served. */
static enum status read_dense(struct pooling *out, const char *folder, const char *path, int n_in,
                              struct err *err) {
    bool served = false;
    enum status status = STATUS_OK;
    if (!out->normalises) status = dense_step_read(&out->head, folder, path, n_in, &served, err);
    if (!status && !served) snprintf(out->unserved, sizeof out->unserved, "%s", path);
    return status;
}

static enum status read_step(struct pooling *out, const char *folder, const struct json *step,
                             int n_in, struct err *err) {
    const char *path = json_text(json_member(step, "path"));
    const char *type = strrchr(json_text(json_member(step, "type")), '.');
    if (!type || strcmp(type, ".Transformer") == 0) return STATUS_OK;
    if (strcmp(type, ".Normalize") == 0) {
        out->normalises = true;
        return STATUS_OK;
    }
    if (strcmp(type, ".Pooling") == 0 && is_plain_name(path))
        return read_mode(out, folder, path, err);
    if (out->unserved[0]) return STATUS_OK; /* the first such step is named */
    if (strcmp(type, ".Dense") == 0 && is_plain_name(path))
        return read_dense(out, folder, path, n_in, err);
    snprintf(out->unserved, sizeof out->unserved, "%s", *path ? path : type + 1);
    return STATUS_OK;
}

static enum status read_steps(struct pooling *out, const char *folder, const char *path, int n_in,
                              struct err *err) {
    struct json *steps = NULL;
    enum status status = hf_list_read(&steps, path, MAX_POOLING_BYTES, err);
    if (status) return status;
    out->normalises = false;
    out->is_stated = true;
    snprintf(out->unserved, sizeof out->unserved, "modules.json"); /* until a pooling is found */
    json_each(step, steps) if (!status) status = read_step(out, folder, step, n_in, err);
    json_free(steps);
    return status;
}

/* Reads the prompts of config_sentence_transformers.json. */
static char *copy_of(const char *text) {
    return strcpy(mem_alloc(strlen(text) + 1), text);
}

static enum status read_prompts(struct pooling *out, const struct json *settings, const char *path,
                                struct err *err) {
    const struct json *prompts = key_value(settings, "prompts");
    const struct json *usual = key_value(settings, "default_prompt_name");
    int n = json_count(prompts);
    if (!json_is(prompts, JSON_OBJECT)) return STATUS_OK;
    if (n > MAX_EMBEDDING_PROMPTS)
        return err_set(err, STATUS_BAD_FILE, "prompts",
                       "%s: key prompts: expected at most %d, found %d", path,
                       MAX_EMBEDDING_PROMPTS, n);
    assert(!out->prompt && out->n_prompts == 0);
    out->prompt = mem_calloc((size_t)n + 1, sizeof *out->prompt);
    json_each(prompt, prompts) {
        if (json_is(prompt, JSON_NULL)) continue;
        if (!json_is(prompt, JSON_STRING) || json_length(prompt) > MAX_PROMPT_BYTES ||
            strlen(json_text(prompt)) != json_length(prompt))
            return err_set(err, STATUS_BAD_FILE, "prompts",
                           "%s: key prompts.%.64s: expected a text of at most %d bytes without "
                           "NUL, found another value",
                           path, prompt->name, MAX_PROMPT_BYTES);
        if (json_is_text(usual, prompt->name)) out->usual_prompt = out->n_prompts + 1;
        out->prompt[out->n_prompts++] =
            (struct embedding_prompt){copy_of(prompt->name), copy_of(json_text(prompt))};
    }
    if (json_is(usual, JSON_NULL) || !usual || out->usual_prompt > 0) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "default_prompt_name",
                   "%s: key default_prompt_name: expected a name of prompts, found \"%.64s\"", path,
                   json_text(usual));
}

static enum status read_prompts_file(struct pooling *out, const char *folder, struct err *err) {
    static const char name[] = "config_sentence_transformers.json";
    struct json *settings = NULL;
    if (!is_in_folder(folder, name)) return STATUS_OK;
    char *path = path_in(folder, name);
    enum status status = hf_file_read(&settings, path, MAX_POOLING_BYTES, err);
    if (!status) status = read_prompts(out, settings, path, err);
    json_free(settings);
    mem_free(path);
    return status;
}

static enum status read_folder(struct pooling *out, const char *folder, int n_in, struct err *err) {
    if (!folder || !is_in_folder(folder, "modules.json")) return STATUS_OK;
    char *path = path_in(folder, "modules.json");
    enum status status = read_steps(out, folder, path, n_in, err);
    mem_free(path);
    return status ? status : read_prompts_file(out, folder, err);
}

/* ---- GGUF files ----------------------------------------------------------------------------- */

enum gguf_pooling { POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST, POOLING_RANK };

/* The layers of EmbeddingGemma. */
static enum status read_dense_tensors(struct pooling *out, const struct gguf *gguf, int n_in,
                                      struct err *err) {
    static const char *const names[] = {"dense_2.weight", "dense_3.weight"};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++) {
        const struct weight *weight = weights_lookup(&gguf->weights, names[i]);
        if (weight) status = head_add(&out->head, weight, NULL, n_in, HEAD_IDENTITY, err);
    }
    return status;
}

static enum status read_gguf(struct pooling *out, const struct gguf *gguf,
                             const struct model_config *config, struct err *err) {
    char key[128];
    int64_t type;
    snprintf(key, sizeof key, "%s.pooling_type", config->architecture);
    enum status status = gguf_int_or(gguf, key, 0, POOLING_RANK, POOLING_NONE, &type, err);
    if (!status && type != POOLING_NONE && type != POOLING_RANK) out->is_stated = true;
    if (!status && type == POOLING_MEAN) out->rows = HIDDEN_ALL;
    if (!status && type == POOLING_CLS) out->rows = HIDDEN_FIRST;
    if (!status && type == POOLING_LAST) out->rows = HIDDEN_LAST;
    return status ? status : read_dense_tensors(out, gguf, config->K_embedding, err);
}

enum status model_file_pooling(struct pooling *out, const struct model_file *file,
                               const struct model_config *config, struct err *err) {
    *out = (struct pooling){.rows = config->is_encoder ? HIDDEN_ALL : HIDDEN_LAST,
                            .normalises = true,
                            .is_stated = config->is_encoder};
    if (!file->gguf) return read_folder(out, file->hf->folder, config->K_embedding, err);
    return model_file_blame(file, read_gguf(out, file->gguf, config, err), err);
}

void pooling_free(struct pooling *pooling) {
    head_free(&pooling->head);
    for (int i = 0; i < pooling->n_prompts; i++) {
        mem_free(pooling->prompt[i].name);
        mem_free(pooling->prompt[i].text);
    }
    mem_free(pooling->prompt);
    pooling->prompt = NULL;
    pooling->n_prompts = 0;
}
