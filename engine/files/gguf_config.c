/* A GGUF file's keys as a model_config. Keys of the model begin with its architecture's name. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/model_file.h"

struct reader {
    const struct gguf *gguf;
    const char *architecture;
    struct err *err;
    char key[96]; /* the last one that was asked for */
};

/* "<architecture>.<name>", until the next call. */
static const char *key_of(struct reader *r, const char *name) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->architecture, name);
    return r->key;
}

static enum status read_int_or(struct reader *r, const char *name, int min, int max, int fallback,
                               int *out) {
    int64_t value = 0;
    enum status status = gguf_int_or(r->gguf, key_of(r, name), min, max, fallback, &value, r->err);
    *out = (int)value;
    return status;
}

/* general.name, or the file's, cut between characters. */
static enum status read_name(struct model_config *config, const struct reader *r,
                             const char *path) {
    const char *text = NULL;
    size_t length = 0;
    enum status status = gguf_string_or(r->gguf, "general.name", &text, &length, r->err);
    if (status != STATUS_OK) return status;
    if (!text || length == 0 || !is_printable(text, length)) {
        const char *slash = strrchr(path, '/');
        text = slash ? slash + 1 : path;
        length = strlen(text);
        if (length == 0 || !is_printable(text, length)) text = "model", length = 5;
    }
    length = (size_t)utf8_cut(text, length, (int)sizeof config->name - 1);
    memcpy(config->name, text, length);
    config->name[length] = 0;
    return STATUS_OK;
}

/* ---- the letters ---------------------------------------------------------------------------- */

static enum status read_shape(struct model_config *config, struct reader *r) {
    const struct {
        const char *name;
        int max, *out;
    } keys[] = {
        {"block_count", MAX_LAYERS, &config->L},
        {"embedding_length", MAX_WIDTH, &config->K},
        {"feed_forward_length", MAX_WIDTH, &config->F},
        {"context_length", MAX_CONTEXT, &config->context_length},
        {"attention.head_count", MAX_HEADS, &config->H},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t value = 0;
        enum status status =
            gguf_int(r->gguf, key_of(r, keys[i].name), 1, keys[i].max, &value, r->err);
        if (status) return status;
        *keys[i].out = (int)value;
    }
    return read_int_or(r, "attention.head_count_kv", 1, MAX_HEADS, config->H, &config->G);
}

/* The size of a head is K/H unless the file says otherwise, and the same for keys and values. */
static enum status read_head_size(struct model_config *config, struct reader *r) {
    const char *a = r->architecture;
    int value_length = 0;
    enum status status =
        read_int_or(r, "attention.key_length", 1, MAX_WIDTH, config->K / config->H, &config->D);
    if (status != STATUS_OK) return status;
    if (!gguf_find(r->gguf, r->key) && config->K % config->H != 0)
        return err_set(r->err, STATUS_BAD_FILE, key_of(r, "attention.head_count"),
                       "%d heads (%s.attention.head_count) do not divide a width of %d "
                       "(%s.embedding_length), and the file has no %s.attention.key_length",
                       config->H, a, config->K, a, a);
    status = read_int_or(r, "attention.value_length", 1, MAX_WIDTH, config->D, &value_length);
    if (status != STATUS_OK || value_length == config->D) return status;
    return err_set(r->err, STATUS_BAD_FILE, r->key,
                   "keys of %d and values of %d (%s) differ in length, which is not supported",
                   config->D, value_length, r->key);
}

static enum status check_heads(const struct model_config *config, struct reader *r) {
    if (config->H % config->G != 0) {
        key_of(r, "attention.head_count_kv");
        return err_set(r->err, STATUS_BAD_FILE, r->key,
                       "%d key-value heads (%s) do not divide %d heads", config->G, r->key,
                       config->H);
    }
    if ((int64_t)config->H * config->D > MAX_WIDTH)
        return err_set(r->err, STATUS_BAD_FILE, key_of(r, "attention.head_count"),
                       "%d heads of %d are more than %d wide", config->H, config->D, MAX_WIDTH);
    return STATUS_OK;
}

/* ---- rotary positions ----------------------------------------------------------------------- */

/* Scaled RoPE would change every position's angles, so a file that asks for it may not be run
 * without. */
static enum status check_scaling(struct reader *r) {
    const char *text = NULL;
    size_t length = 0;
    enum status status =
        gguf_string_or(r->gguf, key_of(r, "rope.scaling.type"), &text, &length, r->err);
    if (status != STATUS_OK || !text) return status;
    if (length == 4 && memcmp(text, "none", 4) == 0) return STATUS_OK;
    return err_set(r->err, STATUS_BAD_FILE, r->key,
                   "key %s: scaled rotary positions are not supported, only \"none\" is", r->key);
}

static enum status read_rope(struct model_config *config, struct reader *r) {
    struct rope_config *rope = &config->rope;
    double base = 0;
    enum status status = check_scaling(r);
    if (status != STATUS_OK || !rope->is_used) return status;
    status = read_int_or(r, "rope.dimension_count", 1, MAX_WIDTH, config->D, &rope->D_rope);
    if (status != STATUS_OK) return status;
    if (rope->D_rope > config->D || rope->D_rope % 2 != 0)
        return err_set(r->err, STATUS_BAD_FILE, r->key,
                       "key %s: expected an even number up to the head's size %d, found %d", r->key,
                       config->D, rope->D_rope);
    status = gguf_float_or(r->gguf, key_of(r, "rope.freq_base"), 10000, &base, r->err);
    if (status != STATUS_OK) return status;
    rope->base = (float)base;
    if (isfinite(rope->base) && base >= 1) return STATUS_OK;
    return err_set(r->err, STATUS_BAD_FILE, r->key, "key %s: expected a number from 1, found %g",
                   r->key, base);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static enum status read_epsilon(struct model_config *config, struct reader *r) {
    double epsilon = 0;
    key_of(r, config->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                       : "attention.layer_norm_epsilon");
    enum status status = gguf_float(r->gguf, r->key, &epsilon, r->err);
    if (status != STATUS_OK) return status;
    config->norm_epsilon = (float)epsilon;
    if (config->norm_epsilon > 0 && epsilon < 1) return STATUS_OK;
    return err_set(r->err, STATUS_BAD_FILE, r->key,
                   "key %s: expected a number between 0 and 1, found %g", r->key, epsilon);
}

static enum status read_vocabulary(struct model_config *config, struct reader *r) {
    const struct gguf_value *tokens = NULL;
    enum status status = gguf_array(r->gguf, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, r->err);
    if (status != STATUS_OK) return status;
    if (tokens->count < 1 || tokens->count > MAX_TOKENS)
        return err_set(r->err, STATUS_BAD_FILE, "tokenizer.ggml.tokens",
                       "key tokenizer.ggml.tokens: expected 1 to %d entries, found %zu", MAX_TOKENS,
                       (size_t)tokens->count);
    status = read_int_or(r, "vocab_size", 1, MAX_TOKENS, (int)tokens->count, &config->V);
    if (status != STATUS_OK || (uint64_t)config->V == tokens->count) return status;
    return err_set(r->err, STATUS_BAD_FILE, r->key,
                   "key %s is %d, but the file has %zu tokens (tokenizer.ggml.tokens)", r->key,
                   config->V, (size_t)tokens->count);
}

/* Numbers that change the forward pass, 0 where the file has none. */
static enum status read_options(struct model_config *config, struct reader *r) {
    const struct {
        const char *name;
        float *out;
    } keys[] = {
        {"attention.scale", &config->attention_scale},
        {"attn_logit_softcapping", &config->attention_cap},
        {"final_logit_softcapping", &config->logit_cap},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double value = 0;
        enum status status = gguf_float_or(r->gguf, key_of(r, keys[i].name), 0, &value, r->err);
        if (status != STATUS_OK) return status;
        *keys[i].out = (float)value;
        if (isfinite(*keys[i].out) && value >= 0) continue;
        return err_set(r->err, STATUS_BAD_FILE, r->key,
                       "key %s: expected a number from 0, found %g", r->key, value);
    }
    int experts = 0;
    enum status status = read_int_or(r, "expert_count", 0, INT32_MAX, 0, &experts);
    if (status == STATUS_OK && experts > 0)
        return err_set(r->err, STATUS_BAD_FILE, r->key, "key %s: only 0 is supported, found %d",
                       r->key, experts);
    if (status != STATUS_OK) return status;
    return read_int_or(r, "attention.sliding_window", 0, INT32_MAX, 0, &config->window);
}

enum status gguf_config_read(struct model_config *config, const struct gguf *gguf, const char *path,
                             struct err *err) {
    struct reader r = {.gguf = gguf, .architecture = config->architecture, .err = err};
    config->file_bytes = (int64_t)gguf->size;
    enum status status = read_name(config, &r, path);
    if (status == STATUS_OK) status = read_shape(config, &r);
    if (status == STATUS_OK) status = read_head_size(config, &r);
    if (status == STATUS_OK) status = check_heads(config, &r);
    if (status == STATUS_OK) status = read_rope(config, &r);
    if (status == STATUS_OK) status = read_epsilon(config, &r);
    if (status == STATUS_OK) status = read_vocabulary(config, &r);
    if (status == STATUS_OK) status = read_options(config, &r);
    return status;
}
