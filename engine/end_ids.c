#include <string.h>

#include "engine/model_file.h"

static const char *const keys[] = {
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};

/* How the ends of a turn are spelt in the families of models. */
static const char *const spellings[] = {
    "<|im_end|>",    "<|eot_id|>",    "<|eom_id|>",      "<|end|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "</s>",
};

#define N_KEYS (sizeof keys / sizeof *keys)
#define N_SPELLINGS (sizeof spellings / sizeof *spellings)
_Static_assert(N_KEYS + N_SPELLINGS <= MAX_END_IDS, "the caller's array has room for all");

/* Adds an id unless it is there. A spelling that stands in a (broken) vocabulary twice must not
 * pass the array's end. */
static void add_once(int32_t *ids, int *n, int32_t id) {
    for (int i = 0; i < *n; i++) {
        if (ids[i] == id) return;
    }
    if (*n < MAX_END_IDS) ids[(*n)++] = id;
}

static bool ends_turn(const char *token, size_t length) {
    for (size_t i = 0; i < N_SPELLINGS; i++) {
        if (strlen(spellings[i]) == length && memcmp(spellings[i], token, length) == 0) return true;
    }
    return false;
}

enum status end_ids_collect(int32_t *ids, int *n, const struct gguf *gguf,
                            const struct tokenizer_spec *spec, struct err *err) {
    *n = 0;
    for (size_t i = 0; i < N_KEYS; i++) {
        int64_t id = -1;
        enum status status = gguf_int_or(gguf, keys[i], 0, spec->n_tokens - 1, -1, &id, err);
        if (status != STATUS_OK) return status;
        if (id >= 0) add_once(ids, n, (int32_t)id);
    }
    for (int id = 0; spec->type && id < spec->n_tokens; id++) {
        if (spec->type[id] != TOKEN_CONTROL) continue;
        if (ends_turn(spec->token[id], spec->token_length[id])) add_once(ids, n, id);
    }
    return STATUS_OK;
}
