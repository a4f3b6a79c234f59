#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/gguf_writer.h"
#include "support/quantise.h"

void tiny_model_defaults(struct tiny_model *model) {
    *model = (struct tiny_model){
        .K = 64,
        .F = 96,
        .L = 2,
        .H = 4,
        .G = 2,
        .D = 16,
        .context_length = 256,
        .dtype = DTYPE_F32,
        .seed = 1,
    };
}

/* ---- vocabulary ----------------------------------------------------------------------------- */

static const char *const specials[] = {"<|begin|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"};

/* In the byte-level alphabet a space is U+0120. The product of each merge is a separate token. */
static const char *const merges[] = {
    "t h", "th e", "\u0120 the", "i n",  "a n",           "an d",  "\u0120 a", "e r",
    "o n", "r e",  "l l",        "e ll", "\u0120 \u0120", "h ell", "hell o",   "in g",
};

#define N_MERGES ((int)(sizeof merges / sizeof *merges))
#define LEAST_V (TINY_MERGED + N_MERGES)

/* GPT-2's alphabet: printable bytes are themselves, the others are U+0100 and up, in order. */
static int letter_of(int byte) {
    int hidden = 0;
    for (int b = 0; b <= byte; b++) {
        bool shows = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte) return shows ? byte : 256 + hidden;
        if (!shows) hidden++;
    }
    return byte;
}

static void spell_byte(char *out, int byte) {
    int point = letter_of(byte);
    if (point < 0x80) {
        *out++ = (char)point;
    } else {
        *out++ = (char)(0xc0 | point >> 6);
        *out++ = (char)(0x80 | (point & 0x3f));
    }
    *out = 0;
}

static void spell_merged(char *out, const char *merge) {
    const char *gap = strchr(merge, ' ');
    memcpy(out, merge, (size_t)(gap - merge));
    strcpy(out + (gap - merge), gap + 1);
}

static int32_t spell_token(char *out, size_t size, int id) {
    if (id < TINY_BYTE) {
        snprintf(out, size, "%s", specials[id]);
        return 3; /* control */
    }
    if (id < TINY_MERGED) {
        spell_byte(out, id - TINY_BYTE);
    } else if (id < LEAST_V) {
        spell_merged(out, merges[id - TINY_MERGED]);
    } else {
        snprintf(out, size, "[UNUSED%d]", id);
        return 5; /* unused */
    }
    return 1; /* normal */
}

static void write_vocabulary(struct gguf_writer *writer, int V) {
    char(*spelling)[24] = mem_calloc((size_t)V, sizeof *spelling);
    const char **tokens = mem_alloc((size_t)V * sizeof *tokens);
    int32_t *types = mem_alloc((size_t)V * sizeof *types);
    for (int id = 0; id < V; id++) {
        types[id] = spell_token(spelling[id], sizeof spelling[id], id);
        tokens[id] = spelling[id];
    }
    gguf_writer_strings(writer, "tokenizer.ggml.tokens", tokens, NULL, (uint64_t)V);
    gguf_writer_array(writer, "tokenizer.ggml.token_type", GGUF_INT32, (uint64_t)V, types,
                      (size_t)V * sizeof *types);
    gguf_writer_strings(writer, "tokenizer.ggml.merges", merges, NULL, N_MERGES);
    free(spelling);
    free(tokens);
    free(types);
}

static const char chat_template[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

static void write_tokenizer(struct gguf_writer *writer, int V) {
    gguf_writer_string(writer, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string(writer, "tokenizer.ggml.pre", "smollm");
    write_vocabulary(writer, V);
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", TINY_BOS);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", TINY_EOS);
    gguf_writer_u32(writer, "tokenizer.ggml.eot_token_id", TINY_IM_END);
    gguf_writer_bool(writer, "tokenizer.ggml.add_bos_token", false);
    gguf_writer_string(writer, "tokenizer.chat_template", chat_template);
}

/* ---- weights -------------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Fills n numbers spread evenly over centre - reach .. centre + reach. */
static void fill(float *out, size_t n, float centre, float reach, uint64_t *state) {
    for (size_t i = 0; i < n; i++) {
        float unit = (float)(next_random(state) >> 40) * 0x1p-24f;
        out[i] = centre + reach * (2 * unit - 1);
    }
}

struct maker {
    const struct tiny_model *model;
    struct gguf_writer writer;
    uint64_t random;
};

static void write_vector(struct maker *maker, const char *name, int K) {
    float *x = mem_alloc((size_t)K * sizeof *x);
    fill(x, (size_t)K, 1, 0.25f, &maker->random);
    gguf_writer_tensor(&maker->writer, name, DTYPE_F32, 1, (int64_t[]){K}, x,
                       (size_t)K * sizeof *x);
    free(x);
}

/* Writes N rows of K, or of each of E experts. Their products with unit inputs have unit variance,
 * so that values neither vanish nor grow in deep models. */
static void write_matrices(struct maker *maker, const char *name, int N, int K, int E) {
    enum dtype type = maker->model->dtype;
    if (K % dtype_block_elements((int)type) != 0) type = DTYPE_F32;
    size_t n = (size_t)(E > 0 ? E : 1) * (size_t)N * (size_t)K, bytes = dtype_bytes(type, n);
    float *x = mem_alloc(n * sizeof *x);
    void *packed = mem_alloc(bytes);
    fill(x, n, 0, sqrtf(3.0f / (float)K), &maker->random);
    quantise(type, x, packed, n);
    bool as_floats = maker->model->as_floats;
    if (as_floats) dequantise(type, packed, x, n);
    gguf_writer_tensor(&maker->writer, name, as_floats ? DTYPE_F32 : type, E > 0 ? 3 : 2,
                       (int64_t[]){K, N, E}, as_floats ? (void *)x : packed,
                       as_floats ? n * sizeof *x : bytes);
    free(packed);
    free(x);
}

static void write_matrix(struct maker *maker, const char *name, int N, int K) {
    write_matrices(maker, name, N, K, 0);
}

static const char *layer_name(char out[64], int layer, const char *part) {
    snprintf(out, 64, "blk.%d.%s.weight", layer, part);
    return out;
}

static void write_experts(struct maker *maker, int layer) {
    const struct tiny_model *m = maker->model;
    char name[64];
    write_matrix(maker, layer_name(name, layer, "ffn_gate_inp"), m->E, m->K);
    write_matrices(maker, layer_name(name, layer, "ffn_gate_exps"), m->F, m->K, m->E);
    write_matrices(maker, layer_name(name, layer, "ffn_up_exps"), m->F, m->K, m->E);
    write_matrices(maker, layer_name(name, layer, "ffn_down_exps"), m->K, m->F, m->E);
}

static void write_layer(struct maker *maker, int layer) {
    const struct tiny_model *m = maker->model;
    char name[64];
    write_vector(maker, layer_name(name, layer, "attn_norm"), m->K);
    write_matrix(maker, layer_name(name, layer, "attn_q"), m->H * m->D, m->K);
    write_matrix(maker, layer_name(name, layer, "attn_k"), m->G * m->D, m->K);
    write_matrix(maker, layer_name(name, layer, "attn_v"), m->G * m->D, m->K);
    write_matrix(maker, layer_name(name, layer, "attn_output"), m->K, m->H * m->D);
    write_vector(maker, layer_name(name, layer, "ffn_norm"), m->K);
    if (m->E > 0) {
        write_experts(maker, layer);
        return;
    }
    write_matrix(maker, layer_name(name, layer, "ffn_gate"), m->F, m->K);
    write_matrix(maker, layer_name(name, layer, "ffn_up"), m->F, m->K);
    write_matrix(maker, layer_name(name, layer, "ffn_down"), m->K, m->F);
}

static void write_weights(struct maker *maker, int V) {
    write_matrix(maker, "token_embd.weight", V, maker->model->K);
    for (int layer = 0; layer < maker->model->L; layer++) write_layer(maker, layer);
    write_vector(maker, "output_norm.weight", maker->model->K);
    if (maker->model->untied) write_matrix(maker, "output.weight", V, maker->model->K);
    const float *factors = maker->model->rope_factors;
    int64_t pairs = maker->model->D / 2;
    if (factors)
        gguf_writer_tensor(&maker->writer, "rope_freqs.weight", DTYPE_F32, 1, &pairs, factors,
                           (size_t)pairs * sizeof *factors);
}

/* ---- the file ------------------------------------------------------------------------------- */

static void write_shape(struct gguf_writer *writer, const struct tiny_model *model, int V) {
    gguf_writer_string(writer, "general.architecture", "llama");
    gguf_writer_string(writer, "general.name", "tiny");
    gguf_writer_u32(writer, "llama.block_count", (uint32_t)model->L);
    gguf_writer_u32(writer, "llama.context_length", (uint32_t)model->context_length);
    gguf_writer_u32(writer, "llama.embedding_length", (uint32_t)model->K);
    gguf_writer_u32(writer, "llama.feed_forward_length", (uint32_t)model->F);
    gguf_writer_u32(writer, "llama.attention.head_count", (uint32_t)model->H);
    gguf_writer_u32(writer, "llama.attention.head_count_kv", (uint32_t)model->G);
    gguf_writer_u32(writer, "llama.attention.key_length", (uint32_t)model->D);
    gguf_writer_u32(writer, "llama.attention.value_length", (uint32_t)model->D);
    gguf_writer_u32(writer, "llama.rope.dimension_count", (uint32_t)model->D);
    gguf_writer_f32(writer, "llama.rope.freq_base", 10000);
    gguf_writer_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_writer_u32(writer, "llama.vocab_size", (uint32_t)V);
    if (model->E == 0) return;
    gguf_writer_u32(writer, "llama.expert_count", (uint32_t)model->E);
    gguf_writer_u32(writer, "llama.expert_used_count", 2);
    if (model->window == 0) return;
    uint8_t *has_window = mem_alloc((size_t)model->L);
    for (int i = 0; i < model->L; i++) has_window[i] = i % 3 != 2;
    gguf_writer_u32(writer, "llama.attention.sliding_window", (uint32_t)model->window);
    gguf_writer_array(writer, "llama.attention.sliding_window_pattern", GGUF_BOOL,
                      (uint64_t)model->L, has_window, (size_t)model->L);
    free(has_window);
}

void tiny_model_bytes(const struct tiny_model *model, struct buf *out) {
    struct maker maker = {.model = model, .random = model->seed};
    int V = model->V > LEAST_V ? model->V : LEAST_V;
    write_shape(&maker.writer, model, V);
    write_tokenizer(&maker.writer, V);
    write_weights(&maker, V);
    gguf_writer_finish(&maker.writer, out);
    gguf_writer_free(&maker.writer);
}

void tiny_model_write(const struct tiny_model *model, const char *path) {
    struct buf file = {0};
    tiny_model_bytes(model, &file);
    write_file(path, file.data, file.length);
    buf_free(&file);
}

char *tiny_model_temporary(const struct tiny_model *model) {
    const char *folder = getenv("TMPDIR");
    struct buf path = {0};
    buf_printf(&path, "%s/tiny-model-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(path.data);
    if (fd < 0) {
        perror(path.data);
        exit(1);
    }
    close(fd);
    tiny_model_write(model, path.data);
    return path.data;
}
