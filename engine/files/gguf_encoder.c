/* Reads the keys of a GGUF file that only encoders have: token types, windows to both sides, and
 * that attention is not causal. */
#include <stdio.h>

#include "engine/files/model_file.h"

/* A window of files counts the positions before a row and after it. */
static int both_sides(int window) {
    return window > 0 ? window / 2 + 1 : 0;
}

enum status gguf_encoder_read(struct model_config *config, const struct gguf *gguf,
                              struct err *err) {
    static const char types[] = "tokenizer.ggml.token_type_count";
    char key[96];
    bool is_causal;
    int64_t n_types = 0;
    if (!config->is_encoder) return STATUS_OK;
    config->window = both_sides(config->window);
    for (int i = 0; i < config->L; i++)
        config->layer[i].window = both_sides(config->layer[i].window);
    enum status status = gguf_int_or(gguf, types, 1, MAX_WIDTH, 2, &n_types, err);
    config->n_types = (int)n_types;
    snprintf(key, sizeof key, "%s.attention.causal", config->architecture);
    if (!status) status = gguf_bool_or(gguf, key, false, &is_causal, err);
    if (status || !is_causal) return status;
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: only false is supported in a model of the architecture \"%s\"", key,
                   config->architecture);
}
