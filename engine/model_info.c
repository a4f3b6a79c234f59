#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/model_file.h"

/* Bounds that no model is near, and below which the bytes of all keys and values of a sequence of
 * full length, 2 * L * G * D * 4 * context, stay in int64. */
#define MAX_LAYERS 1024
#define MAX_WIDTH (1 << 20)
#define MAX_HEADS 65536
#define MAX_CONTEXT (1 << 28)

/* ---- what the file is called ---------------------------------------------------------------- */

size_t showable_bytes(const char *text, size_t length) {
    size_t n = utf8_character(text, length);
    uint32_t point = n ? utf8_code_point(text, n) : 0;
    return point < 0x20 || (point >= 0x7f && point < 0xa0) ? 0 : n;
}

/* May this go into logs and JSON as it stands? */
static bool fit_to_show(const char *text, size_t length) {
    for (size_t n; length > 0; text += n, length -= n) {
        n = showable_bytes(text, length);
        if (n == 0) return false;
    }
    return true;
}

/* Copies as much as fits, cut between characters. */
static void copy_cut(char *out, size_t size, const char *text, size_t length) {
    length = (size_t)utf8_cut(text, length, (int)size - 1);
    memcpy(out, text, length);
    out[length] = 0;
}

static enum status read_name(struct model_info *info, const struct gguf *gguf, const char *path,
                             struct err *err) {
    const char *text = NULL;
    size_t length = 0;
    enum status status = gguf_string_or(gguf, "general.name", &text, &length, err);
    if (status != STATUS_OK) return status;
    if (!text || length == 0 || !fit_to_show(text, length)) {
        const char *slash = strrchr(path, '/');
        text = slash ? slash + 1 : path;
        length = strlen(text);
        if (length == 0 || !fit_to_show(text, length)) text = "model", length = 5;
    }
    copy_cut(info->name, sizeof info->name, text, length);
    return STATUS_OK;
}

static enum status read_architecture(struct model_info *info, const struct gguf *gguf,
                                     struct err *err) {
    static const char key[] = "general.architecture";
    const char *text = NULL;
    size_t length = 0;
    enum status status = gguf_string(gguf, key, &text, &length, err);
    if (status != STATUS_OK) return status;
    if (length == 5 && memcmp(text, "llama", 5) == 0) {
        copy_cut(info->architecture, sizeof info->architecture, text, length);
        return STATUS_OK;
    }
    bool show = length < sizeof info->architecture && fit_to_show(text, length);
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: the architecture \"%.*s\" is not supported; \"llama\" is", key,
                   show ? (int)length : 0, text);
}

/* ---- the letters ---------------------------------------------------------------------------- */

static enum status read_int(const struct gguf *gguf, const char *key, int most, int *out,
                            struct err *err) {
    int64_t value = 0;
    enum status status = gguf_int(gguf, key, 1, most, &value, err);
    *out = (int)value;
    return status;
}

static enum status read_int_or(const struct gguf *gguf, const char *key, int most, int fallback,
                               int *out, struct err *err) {
    int64_t value = 0;
    enum status status = gguf_int_or(gguf, key, 1, most, fallback, &value, err);
    *out = (int)value;
    return status;
}

static enum status read_shape(struct model_info *info, const struct gguf *gguf, struct err *err) {
    enum status status = read_int(gguf, "llama.block_count", MAX_LAYERS, &info->L, err);
    if (status == STATUS_OK)
        status = read_int(gguf, "llama.embedding_length", MAX_WIDTH, &info->K, err);
    if (status == STATUS_OK)
        status = read_int(gguf, "llama.feed_forward_length", MAX_WIDTH, &info->F, err);
    if (status == STATUS_OK)
        status = read_int(gguf, "llama.context_length", MAX_CONTEXT, &info->context_length, err);
    if (status == STATUS_OK)
        status = read_int(gguf, "llama.attention.head_count", MAX_HEADS, &info->H, err);
    if (status != STATUS_OK) return status;
    return read_int_or(gguf, "llama.attention.head_count_kv", MAX_HEADS, info->H, &info->G, err);
}

/* The size of a head is K/H unless the file says otherwise, and the same for keys and values. */
static enum status read_head_size(struct model_info *info, const struct gguf *gguf,
                                  struct err *err) {
    static const char key[] = "llama.attention.key_length";
    int value_length = 0;
    enum status status = read_int_or(gguf, key, MAX_WIDTH, info->K / info->H, &info->D, err);
    if (status != STATUS_OK) return status;
    if (!gguf_find(gguf, key) && info->K % info->H != 0) {
        return err_set(err, STATUS_BAD_FILE, "llama.attention.head_count",
                       "%d heads (llama.attention.head_count) do not divide a width of %d "
                       "(llama.embedding_length), and the file has no %s",
                       info->H, info->K, key);
    }
    status =
        read_int_or(gguf, "llama.attention.value_length", MAX_WIDTH, info->D, &value_length, err);
    if (status != STATUS_OK || value_length == info->D) return status;
    return err_set(err, STATUS_BAD_FILE, "llama.attention.value_length",
                   "keys of %d and values of %d (llama.attention.value_length) differ in length, "
                   "which is not supported",
                   info->D, value_length);
}

static enum status check_heads(const struct model_info *info, struct err *err) {
    if (info->H % info->G != 0) {
        return err_set(err, STATUS_BAD_FILE, "llama.attention.head_count_kv",
                       "%d key-value heads (llama.attention.head_count_kv) do not divide %d heads",
                       info->G, info->H);
    }
    if ((int64_t)info->H * info->D > MAX_WIDTH) {
        return err_set(err, STATUS_BAD_FILE, "llama.attention.head_count",
                       "%d heads of %d are more than %d wide", info->H, info->D, MAX_WIDTH);
    }
    return STATUS_OK;
}

/* ---- rotary positions ----------------------------------------------------------------------- */

/* Scaled RoPE would change every position's angles, so a file that asks for it may not be run
 * without. */
static enum status check_scaling(const struct gguf *gguf, struct err *err) {
    static const char key[] = "llama.rope.scaling.type";
    const char *text = NULL;
    size_t length = 0;
    enum status status = gguf_string_or(gguf, key, &text, &length, err);
    if (status != STATUS_OK || !text) return status;
    if (length == 4 && memcmp(text, "none", 4) == 0) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: scaled rotary positions are not supported, only \"none\" is", key);
}

static enum status read_rope(struct model_info *info, const struct gguf *gguf, struct err *err) {
    static const char dims_key[] = "llama.rope.dimension_count";
    static const char base_key[] = "llama.rope.freq_base";
    double base = 0;
    enum status status = read_int_or(gguf, dims_key, MAX_WIDTH, info->D, &info->D_rope, err);
    if (status == STATUS_OK) status = gguf_float_or(gguf, base_key, 10000, &base, err);
    if (status == STATUS_OK) status = check_scaling(gguf, err);
    if (status != STATUS_OK) return status;
    if (info->D_rope > info->D || info->D_rope % 2 != 0) {
        return err_set(err, STATUS_BAD_FILE, dims_key,
                       "key %s: expected an even number up to the head's size %d, found %d",
                       dims_key, info->D, info->D_rope);
    }
    info->rope_base = (float)base;
    if (isfinite(info->rope_base) && base >= 1) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, base_key, "key %s: expected a number from 1, found %g",
                   base_key, base);
}

static enum status read_epsilon(struct model_info *info, const struct gguf *gguf, struct err *err) {
    static const char key[] = "llama.attention.layer_norm_rms_epsilon";
    double epsilon = 0;
    enum status status = gguf_float(gguf, key, &epsilon, err);
    if (status != STATUS_OK) return status;
    info->rms_epsilon = (float)epsilon;
    if (info->rms_epsilon > 0 && epsilon < 1) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected a number between 0 and 1, found %g",
                   key, epsilon);
}

/* ---- vocabulary, features, tensors ---------------------------------------------------------- */

static enum status read_vocabulary(struct model_info *info, const struct gguf *gguf,
                                   struct err *err) {
    static const char key[] = "llama.vocab_size";
    const struct gguf_value *tokens = NULL;
    enum status status = gguf_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, err);
    if (status != STATUS_OK) return status;
    if (tokens->count < 1 || tokens->count > MAX_TOKENS) {
        return err_set(err, STATUS_BAD_FILE, "tokenizer.ggml.tokens",
                       "key tokenizer.ggml.tokens: expected 1 to %d entries, found %zu", MAX_TOKENS,
                       (size_t)tokens->count);
    }
    status = read_int_or(gguf, key, MAX_TOKENS, (int)tokens->count, &info->V, err);
    if (status != STATUS_OK || (uint64_t)info->V == tokens->count) return status;
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s is %d, but the file has %zu tokens (tokenizer.ggml.tokens)", key,
                   info->V, (size_t)tokens->count);
}

/* Keys that mean a forward pass other than plain llama's. */
static enum status check_features(const struct gguf *gguf, struct err *err) {
    static const char *const zero_keys[] = {"llama.expert_count", "llama.attention.sliding_window"};
    for (size_t i = 0; i < sizeof zero_keys / sizeof *zero_keys; i++) {
        int64_t value = 0;
        enum status status = gguf_int_or(gguf, zero_keys[i], 0, INT64_MAX, 0, &value, err);
        if (status != STATUS_OK) return status;
        if (value == 0) continue;
        return err_set(err, STATUS_BAD_FILE, zero_keys[i],
                       "key %s: only 0 is supported, found %lld", zero_keys[i], (long long)value);
    }
    return STATUS_OK;
}

/* Most of a model's elements are of one type, which people call it by; vectors stay in float32 in
 * any case. The data of all tensors lies apart in one file, so the sum of their elements is far
 * from int64's end. */
static void count_tensors(struct model_info *info, const struct weights *weights) {
    int64_t of_type[WEIGHT_MAX_TYPE + 1] = {0};
    int best = -1;
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        info->n_parameters += weight->n_elements;
        if (weight->n_dims > 1) of_type[weight->type] += weight->n_elements;
    }
    for (int type = 0; type <= WEIGHT_MAX_TYPE; type++) {
        if (of_type[type] > 0 && (best < 0 || of_type[type] > of_type[best])) best = type;
    }
    snprintf(info->quantisation, sizeof info->quantisation, "%s",
             best < 0 ? "none" : dtype_name(best));
}

enum status model_info_read(struct model_info *info, const struct gguf *gguf, const char *path,
                            struct err *err) {
    *info = (struct model_info){.file_bytes = (int64_t)gguf->size};
    enum status status = read_architecture(info, gguf, err);
    if (status == STATUS_OK) status = read_name(info, gguf, path, err);
    if (status == STATUS_OK) status = read_shape(info, gguf, err);
    if (status == STATUS_OK) status = read_head_size(info, gguf, err);
    if (status == STATUS_OK) status = check_heads(info, err);
    if (status == STATUS_OK) status = read_rope(info, gguf, err);
    if (status == STATUS_OK) status = read_epsilon(info, gguf, err);
    if (status == STATUS_OK) status = read_vocabulary(info, gguf, err);
    if (status == STATUS_OK) status = check_features(gguf, err);
    if (status == STATUS_OK) count_tensors(info, &gguf->weights);
    return status;
}
