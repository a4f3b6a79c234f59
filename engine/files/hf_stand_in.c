/* A vocabulary for models whose tokenizer is not read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/hf_config.h"

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
