/* Any bytes as a weight cache file: it is refused, or each matrix in its list belongs to the model,
 * has the right shape, and has all its bytes inside the file. The checksum of the index is
 * corrected, because a wrong one would hide all later checks. */
#include <stdlib.h>
#include <string.h>

#include "engine/models/load/weight_index.h"
#include "support/hf_config_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LAYERS = 2 };
static volatile uint8_t sink; /* so that the compiler keeps the reads */

static void require(bool holds) {
    if (!holds) abort();
}

/* A llama with a tied embedding: K 32, heads of 16. */
static void describe(struct model *model) {
    static const char text[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 300, \"hidden_size\": 32, "
        "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
        "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 64}";
    struct model_file file = {.path = "config.json", .has_stand_in = true};
    struct err err;
    require(!hf_config_parse(&file.hf, text, sizeof text - 1, &err));
    require(!model_config_read(&model->config, &file, &err));
    require(model->config.L == LAYERS);
    model->shard.ranks = 1;
    model->part = model->config;
    model_file_close(&file);
}

/* Replaces a backend's loop over pieces, on this thread. */
static void each(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n) {
    (void)b;
    for (int i = 0; i < n; i++) fn(arg, i);
}

/* Writes the right checksum into the header, if the bytes that it covers are inside the file. */
static void make_sum_right(uint8_t *bytes, size_t size) {
    struct weight_header h;
    if (size < sizeof h) return;
    memcpy(&h, bytes, sizeof h);
    size_t left = (size - sizeof h) / 8, entries = sizeof(struct weight_entry) / 8;
    if (h.n_matrices > left / entries || h.n_pieces > left - h.n_matrices * entries) return;
    struct weight_index index = {.n = h.n_matrices, .n_pieces = h.n_pieces};
    index.entry = mem_calloc(index.n, sizeof *index.entry);
    index.sum = mem_calloc(index.n_pieces, sizeof *index.sum);
    memcpy(index.entry, bytes + sizeof h, index.n * sizeof *index.entry);
    memcpy(index.sum, bytes + sizeof h + index.n * sizeof *index.entry,
           index.n_pieces * sizeof *index.sum);
    h.entries_sum = weight_index_sum(&index);
    h.file_bytes = size;
    memcpy(h.magic, weight_magic, sizeof h.magic);
    memcpy(bytes, &h, sizeof h);
    weight_index_free(&index);
}

static void read_matrices(const struct weight_index *index, const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < index->n; i++) {
        const struct weight_entry *e = &index->entry[i];
        require(index->data[i] >= bytes && e->bytes <= size - (size_t)(index->data[i] - bytes));
        require(e->layer >= -1 && e->layer < LAYERS && e->role >= 0 && e->role < N_ROLES);
        require(e->N > 0 && e->K > 0);
        uint8_t sum = 0;
        for (uint64_t at = 0; at < e->bytes; at++) sum ^= index->data[i][at];
        sink = sum;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct model model;
    static const struct device_ops device = {.parallel = each};
    struct backend backend = {.device = &device};
    struct weight_header h = {0};
    if (!model.config.L) describe(&model);
    uint8_t *bytes = mem_alloc(size);
    if (size) memcpy(bytes, data, size);
    make_sum_right(bytes, size);
    if (size >= sizeof h) memcpy(&h, bytes, sizeof h);
    struct weight_index index = {.key = h.key};
    if (weight_index_read(&index, &model, bytes, size)) {
        read_matrices(&index, bytes, size);
        weight_index_is_right(&index, &backend);
    }
    weight_index_free(&index);
    mem_free(bytes);
    return 0;
}
