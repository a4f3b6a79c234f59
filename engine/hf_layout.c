/* A config.json's shape laid out as a GGUF file in memory. Tensors' data is a hole: pages that
 * nobody has written to, and that cost no memory as long as nobody reads them. Only the factors
 * that stretch RoPE are there. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/hf_config.h"
#include "engine/text/text.h"

enum { VERSION = 3, ALIGNMENT = 32, MAX_JSON_BYTES = 1 << 20 };

struct layout {
    struct buf keys, tensors, data; /* `data`: what of it is no hole */
    uint64_t n_keys, n_tensors, data_bytes;
};

/* ---- keys ----------------------------------------------------------------------------------- */

static void put_string(struct buf *out, const char *text) {
    uint64_t length = strlen(text);
    buf_add(out, &length, sizeof length);
    buf_add(out, text, length);
}

static void put_key(struct layout *layout, const char *key, uint32_t type) {
    put_string(&layout->keys, key);
    buf_add(&layout->keys, &type, sizeof type);
    layout->n_keys++;
}

static void put_int(struct layout *layout, const char *key, uint32_t value) {
    put_key(layout, key, GGUF_UINT32);
    buf_add(&layout->keys, &value, sizeof value);
}

static void put_float(struct layout *layout, const char *key, double value) {
    put_key(layout, key, GGUF_FLOAT64);
    buf_add(&layout->keys, &value, sizeof value);
}

static void put_text(struct layout *layout, const char *key, const char *text) {
    put_key(layout, key, GGUF_STRING);
    put_string(&layout->keys, text);
}

static void put_no(struct layout *layout, const char *key) {
    put_key(layout, key, GGUF_BOOL);
    buf_add(&layout->keys, &(uint8_t){0}, 1);
}

static void put_array(struct layout *layout, const char *key, uint32_t element, int n) {
    uint64_t count = (uint64_t)n;
    put_key(layout, key, GGUF_ARRAY);
    buf_add(&layout->keys, &element, sizeof element);
    buf_add(&layout->keys, &count, sizeof count);
}

/* ---- the stand-in vocabulary ---------------------------------------------------------------- */

enum { UNKNOWN = 0, FIRST_BYTE = 1, FIRST_NAME = FIRST_BYTE + 256 };

static int32_t type_of(int id) {
    return id == UNKNOWN ? TOKEN_UNKNOWN : id < FIRST_NAME ? TOKEN_BYTE : TOKEN_NORMAL;
}

static void put_vocabulary(struct layout *layout, int V) {
    char name[32];
    put_text(layout, "tokenizer.ggml.model", "llama"); /* SentencePiece, which knows byte tokens */
    put_array(layout, "tokenizer.ggml.tokens", GGUF_STRING, V);
    for (int id = 0; id < V; id++) {
        const char *form = id == UNKNOWN ? "<unk>" : id < FIRST_NAME ? "<0x%02X>" : "[%d]";
        snprintf(name, sizeof name, form, id < FIRST_NAME ? id - FIRST_BYTE : id);
        put_string(&layout->keys, name);
    }
    put_array(layout, "tokenizer.ggml.token_type", GGUF_INT32, V);
    for (int id = 0; id < V; id++) buf_add(&layout->keys, &(int32_t){type_of(id)}, 4);
    put_array(layout, "tokenizer.ggml.scores", GGUF_FLOAT32, V);
    for (int id = 0; id < V; id++) buf_add(&layout->keys, &(float){0}, 4);
    put_int(layout, "tokenizer.ggml.unknown_token_id", UNKNOWN);
    put_no(layout, "tokenizer.ggml.add_bos_token");
    put_no(layout, "tokenizer.ggml.add_space_prefix");
}

static void put_keys(struct layout *layout, const struct hf_config *c, const char *name) {
    put_text(layout, "general.architecture", "llama");
    put_text(layout, "general.name", name);
    put_int(layout, "general.alignment", ALIGNMENT);
    put_int(layout, "llama.block_count", (uint32_t)c->L);
    put_int(layout, "llama.embedding_length", (uint32_t)c->K);
    put_int(layout, "llama.feed_forward_length", (uint32_t)c->F);
    put_int(layout, "llama.context_length", (uint32_t)c->context_length);
    put_int(layout, "llama.attention.head_count", (uint32_t)c->H);
    put_int(layout, "llama.attention.head_count_kv", (uint32_t)c->G);
    put_int(layout, "llama.attention.key_length", (uint32_t)c->D);
    put_int(layout, "llama.attention.value_length", (uint32_t)c->D);
    put_float(layout, "llama.attention.layer_norm_rms_epsilon", c->rms_epsilon);
    put_float(layout, "llama.rope.freq_base", c->rope_theta);
    put_vocabulary(layout, c->V);
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* A matrix of N rows of K, or with N 0 a vector. */
static void put_tensor(struct layout *layout, const char *name, enum dtype dtype, int N, int K) {
    uint64_t dim[2] = {(uint64_t)K, (uint64_t)N}, offset = layout->data_bytes;
    uint32_t n_dims = N ? 2 : 1, type = dtype;
    put_string(&layout->tensors, name);
    buf_add(&layout->tensors, &n_dims, sizeof n_dims);
    buf_add(&layout->tensors, dim, n_dims * sizeof *dim);
    buf_add(&layout->tensors, &type, sizeof type);
    buf_add(&layout->tensors, &offset, sizeof offset);
    layout->n_tensors++;
    uint64_t bytes = dtype_bytes(dtype, (size_t)K) * (uint64_t)(N ? N : 1);
    layout->data_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void put_layer(struct layout *layout, const struct hf_config *c, int index) {
    int q = c->H * c->D, kv = c->G * c->D;
    const struct {
        const char *suffix;
        int N, K;
    } parts[] = {
        {"attn_q", q, c->K},      {"attn_k", kv, c->K},   {"attn_v", kv, c->K},
        {"attn_output", c->K, q}, {"attn_norm", 0, c->K}, {"ffn_norm", 0, c->K},
        {"ffn_gate", c->F, c->K}, {"ffn_up", c->F, c->K}, {"ffn_down", c->K, c->F},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", index, parts[i].suffix);
        put_tensor(layout, name, parts[i].N ? c->dtype : DTYPE_F32, parts[i].N, parts[i].K);
    }
}

/* What each frequency is divided by: 1 for wavelengths that fit the first context many times,
 * `factor` for those that are longer than it, and between these what goes from one to the other in
 * a straight line of its inverse (Llama 3.1's model card and transformers have it so). */
static void put_stretch(struct layout *layout, const struct hf_config *c) {
    const struct rope_stretch *s = &c->stretch;
    put_tensor(layout, "rope_freqs.weight", DTYPE_F32, 0, c->D / 2);
    for (int i = 0; i < c->D / 2; i++) {
        double wavelength = 2 * M_PI * pow(c->rope_theta, 2.0 * i / c->D);
        double turns = s->original_context / wavelength;
        double part = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
        part = part < 0 ? 0 : part > 1 ? 1 : part;
        float divisor = (float)(1 / ((1 - part) / s->factor + part));
        buf_add(&layout->data, &divisor, sizeof divisor);
    }
}

static void put_tensors(struct layout *layout, const struct hf_config *c) {
    if (c->stretch.is_asked) put_stretch(layout, c); /* the first, so that its data is */
    put_tensor(layout, "token_embd.weight", c->dtype, c->V, c->K);
    put_tensor(layout, "output_norm.weight", DTYPE_F32, 0, c->K);
    if (!c->tied) put_tensor(layout, "output.weight", c->dtype, c->V, c->K);
    for (int i = 0; i < c->L; i++) put_layer(layout, c, i);
}

/* ---- the file ------------------------------------------------------------------------------- */

static void put_head(const struct layout *layout, struct buf *out) {
    uint32_t version = VERSION;
    buf_add(out, "GGUF", 4);
    buf_add(out, &version, sizeof version);
    buf_add(out, &layout->n_tensors, sizeof layout->n_tensors);
    buf_add(out, &layout->n_keys, sizeof layout->n_keys);
    buf_add(out, layout->keys.data, layout->keys.length);
    buf_add(out, layout->tensors.data, layout->tensors.length);
    while (out->length % ALIGNMENT) buf_add(out, "", 1);
}

static enum status open_layout(struct gguf **out, const struct layout *layout, struct err *err) {
    struct buf head = {0};
    put_head(layout, &head);
    size_t size = head.length + layout->data_bytes;
    char *file = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    enum status status = STATUS_OK;
    if (file == MAP_FAILED) {
        status = err_set(err, STATUS_BAD_FILE, "model",
                         "there is no room for the addresses of %zu MiB of weights: %s", size >> 20,
                         strerror(errno));
    } else {
        memcpy(file, head.data, head.length);
        if (layout->data.length) memcpy(file + head.length, layout->data.data, layout->data.length);
        mprotect(file, size, PROT_READ); /* to find mistakes; nothing depends on it */
        status = gguf_open_memory(out, file, size, err);
        if (status)
            munmap(file, size);
        else
            (*out)->mapped = true;
    }
    buf_free(&head);
    return status;
}

enum status hf_config_lay_out(struct gguf **out, const struct hf_config *config, const char *name,
                              struct err *err) {
    struct layout layout = {0};
    put_keys(&layout, config, name);
    put_tensors(&layout, config);
    enum status status = open_layout(out, &layout, err);
    buf_free(&layout.keys);
    buf_free(&layout.tensors);
    buf_free(&layout.data);
    return status;
}

/* ---- from a path ---------------------------------------------------------------------------- */

static enum status read_json(const char *path, char **text, size_t *length, struct err *err) {
    FILE *file = fopen(path, "re");
    if (!file) return err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(errno));
    *text = mem_alloc(MAX_JSON_BYTES + 1);
    *length = fread(*text, 1, MAX_JSON_BYTES + 1, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (!failed && *length <= MAX_JSON_BYTES) return STATUS_OK;
    free(*text);
    return err_set(err, STATUS_BAD_FILE, "model",
                   failed ? "%s cannot be read" : "%s is more than 1 MiB long, and no config.json",
                   path);
}

/* A config.json is called as the folder that it is in. */
static void folder_name(char *out, size_t size, const char *path) {
    const char *end = strrchr(path, '/'), *begin = end;
    out[0] = 0;
    if (!end) return;
    while (begin > path && begin[-1] != '/') begin--;
    snprintf(out, size, "%.*s", (int)(end - begin), begin);
}

enum status hf_config_open(struct gguf **out, const char *path, struct err *err) {
    struct hf_config config;
    char *text = NULL, name[128];
    size_t length = 0;
    struct err cause;
    enum status status = read_json(path, &text, &length, err);
    if (status) return status;
    status = hf_config_read(&config, text, length, &cause);
    free(text);
    folder_name(name, sizeof name, path);
    if (!status) status = hf_config_lay_out(out, &config, name, &cause);
    if (!status) return STATUS_OK;
    return err_set(err, status, cause.param[0] ? cause.param : "model", "%s: %s", path,
                   cause.message);
}
