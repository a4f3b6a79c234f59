/* Reads generation_config.json: the sampling defaults and end tokens that a model's makers
 * recommend. Makes a vocabulary for models whose tokenizer is not read. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/hf_keys.h"
#include "engine/files/model_file.h"

enum { MAX_GENERATION_BYTES = 1 << 20 };

const struct sampling_number sampling_numbers[N_SAMPLING_NUMBERS] = {
    {"temperature", "general.sampling.temp", 0, 2, offsetof(struct sampling_defaults, temperature)},
    {"top_p", "general.sampling.top_p", 1e-6, 1, offsetof(struct sampling_defaults, top_p)},
    {"min_p", "general.sampling.min_p", 0, 1, offsetof(struct sampling_defaults, min_p)},
    {"repetition_penalty", "general.sampling.penalty_repeat", 1e-6, 1e6,
     offsetof(struct sampling_defaults, repetition_penalty)},
};

double *sampling_number_of(struct sampling_defaults *defaults,
                           const struct sampling_number *number) {
    return (double *)(void *)((char *)defaults + number->at);
}

static enum status read_defaults(struct sampling_defaults *out, const struct json *root,
                                 struct err *err) {
    enum status status = STATUS_OK;
    for (int i = 0; i < N_SAMPLING_NUMBERS && !status; i++) {
        const struct sampling_number *number = &sampling_numbers[i];
        status = key_number_or(root, number->key, number->min, number->max, -1,
                               sampling_number_of(out, number), err);
    }
    return status ? status : key_int_or(root, "top_k", -1, INT32_MAX, -1, &out->top_k, err);
}

/* The file's ids replace those of config.json. */
static enum status read_end_ids(struct hf_config *hf, const struct json *root, struct err *err) {
    int32_t ids[MAX_FILE_END_IDS];
    int n = 0;
    enum status status = key_ids(root, "eos_token_id", hf->V - 1, MAX_FILE_END_IDS, ids, &n, err);
    if (status || n == 0) return status;
    for (int i = 0; i < n; i++) hf->end_ids[i] = ids[i];
    hf->n_end_ids = n;
    return STATUS_OK;
}

/* Ids outside the vocabulary cannot be chosen anyway. */
static enum status read_suppressed(struct hf_config *hf, const struct json *root, struct err *err) {
    struct sampling_defaults *out = &hf->defaults;
    int32_t ids[MAX_SUPPRESSED];
    int n = 0;
    enum status status = key_ids(root, "suppress_tokens", INT32_MAX, MAX_SUPPRESSED, ids, &n, err);
    for (int i = 0; i < n && !status; i++)
        if (ids[i] < hf->V) out->suppressed[out->n_suppressed++] = ids[i];
    assert(out->n_suppressed <= MAX_SUPPRESSED);
    return status;
}

enum status hf_generation_read(struct hf_config *hf, struct err *err) {
    struct json *root = NULL;
    char *path = path_in(hf->folder, "generation_config.json");
    enum status status = STATUS_OK;
    if (is_in_folder(hf->folder, "generation_config.json")) {
        status = hf_file_read(&root, path, MAX_GENERATION_BYTES, err);
        if (!status) {
            status = read_end_ids(hf, root, err);
            if (!status) status = read_defaults(&hf->defaults, root, err);
            if (!status) status = read_suppressed(hf, root, err);
            if (status) blame_file(err, status, path);
        }
    }
    json_free(root);
    mem_free(path);
    return status;
}

/* ---- a stand-in vocabulary ------------------------------------------------------------------- */

enum {
    UNKNOWN = 0,
    FIRST_BYTE = 1,
    FIRST_NAME = FIRST_BYTE + 256,
};
_Static_assert((int)MIN_STAND_IN_TOKENS == (int)FIRST_NAME, "all bytes have a token");

static void make_tokens(struct hf_config *hf) {
    if (hf->token) return;
    hf->token = mem_calloc((size_t)hf->V, sizeof *hf->token);
    for (int id = 0; id < hf->V; id++) {
        const char *form = id == UNKNOWN ? "<unk>" : id < FIRST_NAME ? "<0x%02X>" : "[%d]";
        snprintf(hf->token[id], sizeof hf->token[id], form, id < FIRST_NAME ? id - FIRST_BYTE : id);
    }
}

enum status hf_stand_in_vocabulary(struct tokenizer_spec *spec, struct hf_config *hf,
                                   struct err *err) {
    size_t n = (size_t)hf->V;
    *spec = (struct tokenizer_spec){0};
    if (hf->V < MIN_STAND_IN_TOKENS)
        return err_set(
            err, STATUS_BAD_FILE, "vocab_size",
            "%s: key vocab_size: expected at least %d for a vocabulary of bytes, found %d",
            hf->path, MIN_STAND_IN_TOKENS, hf->V);
    make_tokens(hf);
    const char **token = mem_alloc(n * sizeof *token);
    uint32_t *length = mem_alloc(n * sizeof *length);
    int32_t *type = mem_alloc(n * sizeof *type);
    for (int id = 0; id < hf->V; id++) {
        token[id] = hf->token[id];
        length[id] = (uint32_t)strlen(token[id]);
        type[id] = id == UNKNOWN ? TOKEN_UNKNOWN : id < FIRST_NAME ? TOKEN_BYTE : TOKEN_NORMAL;
    }
    *spec = (struct tokenizer_spec){
        .kind = TOKENIZER_SENTENCEPIECE, /* this kind supports byte tokens */
        .n_tokens = hf->V,
        .token = token,
        .token_length = length,
        .type = type,
        .score = mem_calloc(n, sizeof *spec->score),
        .bos = -1,
        .eos = -1,
        .unknown = UNKNOWN,
    };
    return STATUS_OK;
}
