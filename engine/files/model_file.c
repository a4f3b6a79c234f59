#include "engine/files/model_file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status model_file_open(struct model_file *out, const struct engine_config *settings,
                            struct err *err) {
    *out = (struct model_file){.path = settings->model};
    const char *dot = strrchr(settings->model, '.');
    if (!dot || strcmp(dot, ".json") != 0) return gguf_open(&out->gguf, settings->model, err);
    if (settings->dummy) return hf_config_open(&out->hf, settings->model, err);
    return err_set(err, STATUS_USAGE, "model",
                   "%s has a model's shape, but no weights: give a .gguf file, or --load-format "
                   "dummy for random ones",
                   settings->model);
}

void model_file_close(struct model_file *file) {
    gguf_close(file->gguf);
    hf_config_close(file->hf);
    *file = (struct model_file){0};
}

const struct weights *model_file_weights(const struct model_file *file) {
    assert(!file->gguf != !file->hf);
    return file->gguf ? &file->gguf->weights : &file->hf->weights;
}

enum status model_file_architecture(char name[MAX_ARCHITECTURE], const struct model_file *file,
                                    struct err *err) {
    const char *text = NULL;
    size_t length = 0;
    enum status status = STATUS_OK;
    if (file->gguf)
        status = gguf_string(file->gguf, "general.architecture", &text, &length, err);
    else
        text = hf_config_architecture(file->hf, &length);
    if (status) return status;
    bool is_shown = length < MAX_ARCHITECTURE && is_printable(text, length);
    snprintf(name, MAX_ARCHITECTURE, "%.*s", is_shown ? (int)length : 0, text);
    return STATUS_OK;
}

enum status model_file_config(struct model_config *config, struct model_file *file,
                              struct err *err) {
    return file->gguf ? gguf_config_read(config, file->gguf, file->path, err)
                      : hf_config_read(config, file->hf, err);
}

/* ---- text ----------------------------------------------------------------------------------- */

enum status tokenizer_spec_read(struct tokenizer_spec *spec, const struct model_file *file,
                                struct err *err) {
    if (file->gguf) return gguf_tokenizer_read(spec, file->gguf, err);
    hf_config_vocabulary(spec, file->hf);
    return STATUS_OK;
}

void tokenizer_spec_free(struct tokenizer_spec *spec) {
    free((void *)spec->pre);
    free((void *)spec->token);
    free((void *)spec->token_length);
    free((void *)spec->type);
    free((void *)spec->score);
    free((void *)spec->merge);
    free((void *)spec->merge_length);
    *spec = (struct tokenizer_spec){0};
}

/* How the ends of a turn are spelt in the families of models. */
static const char *const end_names[] = {
    "<|im_end|>",    "<|eot_id|>",    "<|eom_id|>",      "<|end|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "</s>",
};
static const char *const end_keys[] = {
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};
enum {
    N_END_NAMES = sizeof end_names / sizeof *end_names,
    N_END_KEYS = sizeof end_keys / sizeof *end_keys
};
_Static_assert(N_END_NAMES + N_END_KEYS <= MAX_END_IDS, "the caller's array has room for all");

/* Adds an id unless it is there. A name that occurs in a (broken) vocabulary twice must not pass
 * the array's end. */
static void add_once(int32_t *ids, int *n, int32_t id) {
    for (int i = 0; i < *n; i++) {
        if (ids[i] == id) return;
    }
    if (*n < MAX_END_IDS) ids[(*n)++] = id;
}

enum status end_ids_read(int32_t *ids, int *n, const struct model_file *file,
                         const struct tokenizer_spec *spec, struct err *err) {
    *n = 0;
    for (int i = 0; file->gguf && i < N_END_KEYS; i++) {
        int64_t id = -1;
        enum status status =
            gguf_int_or(file->gguf, end_keys[i], 0, spec->n_tokens - 1, -1, &id, err);
        if (status != STATUS_OK) return status;
        if (id >= 0) add_once(ids, n, (int32_t)id);
    }
    for (int id = 0; spec->type && id < spec->n_tokens; id++) {
        if (spec->type[id] != TOKEN_CONTROL) continue;
        for (int i = 0; i < N_END_NAMES; i++)
            if (spec->token_length[id] == strlen(end_names[i]) &&
                memcmp(spec->token[id], end_names[i], strlen(end_names[i])) == 0)
                add_once(ids, n, id);
    }
    return STATUS_OK;
}

enum status chat_template_read(const struct model_file *file, const char **text, size_t *length,
                               struct err *err) {
    *text = NULL, *length = 0;
    if (!file->gguf) return STATUS_OK;
    return gguf_string_or(file->gguf, "tokenizer.chat_template", text, length, err);
}

/* ---- what may be shown ---------------------------------------------------------------------- */

size_t printable_prefix(const char *text, size_t length) {
    size_t n = utf8_character(text, length);
    uint32_t point = n ? utf8_code_point(text, n) : 0;
    return point < 0x20 || (point >= 0x7f && point < 0xa0) ? 0 : n;
}

bool is_printable(const char *text, size_t length) {
    for (size_t n; length > 0; text += n, length -= n) {
        n = printable_prefix(text, length);
        if (n == 0) return false;
    }
    return true;
}
