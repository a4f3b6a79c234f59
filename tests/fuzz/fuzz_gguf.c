/* Any bytes as a model file: it is refused with a message, or all data in its directory can be
 * read. */
#include <stdlib.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "engine/memory/memory.h"
#include "engine/models/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink; /* so that the compiler keeps the reads */

static void touch(const void *data, size_t size) {
    const uint8_t *at = data;
    uint8_t sum = 0;
    for (size_t i = 0; i < size; i++) sum ^= at[i];
    sink = sum;
}

static void require(bool holds) {
    if (!holds) abort();
}

static void read_value(const struct gguf_value *value) {
    const uint8_t *at = value->data;
    size_t length;
    touch(value->key, value->key_length);
    touch(value->data, value->bytes);
    if (value->element != GGUF_STRING) return;
    for (uint64_t i = 0; i < value->count; i++) {
        const char *text = gguf_next_string(&at, &length);
        touch(text, length);
    }
    require(at == value->data + value->bytes);
}

static void read_directory(const struct gguf *gguf) {
    for (int i = 0; i < gguf->n_values; i++) read_value(&gguf->value[i]);
    for (int i = 0; i < gguf->weights.n; i++) {
        const struct weight *weight = &gguf->weights.tensor[i];
        touch(weight->data, weight->bytes);
        require(weights_lookup(&gguf->weights, weight->name) == weight);
        require(weight->bytes == dtype_bytes(weight->type, (size_t)weight->n_elements));
    }
}

static void read_tokenizer(struct gguf *gguf, struct err *err) {
    struct tokenizer_spec spec;
    int32_t ids[MAX_END_IDS];
    int n;
    if (gguf_tokenizer_read(&spec, gguf, err) != STATUS_OK) return;
    for (int id = 0; id < spec.n_tokens; id++) touch(spec.token[id], spec.token_length[id]);
    for (int i = 0; i < spec.n_merges; i++) touch(spec.merge[i], spec.merge_length[i]);
    struct model_file file = {.gguf = gguf};
    struct folder_templates templates;
    if (chat_templates_read(&templates, &file, NULL, err) == STATUS_OK) {
        enum status status = end_ids_read(ids, &n, &file, &spec, &templates, err);
        for (int i = 0; !status && i < n; i++) require(ids[i] >= 0 && ids[i] < spec.n_tokens);
        folder_templates_free(&templates);
    }
    tokenizer_spec_free(&spec);
}

static void read_model(struct gguf *gguf, struct err *err) {
    struct model_config info;
    struct engine_memory memory;
    struct machine_memory machine = {.total = (int64_t)1 << 40, .available = (int64_t)1 << 40};
    struct engine_config config = {
        .max_num_seqs = 65536, .max_num_batched_tokens = 1 << 20, .block_size = 16};
    if (model_config_read(&info, &(struct model_file){.path = "fuzz.gguf", .gguf = gguf}, err) !=
        STATUS_OK)
        return;
    require(info.H % info.G == 0 && info.rope.D_rope <= info.D && info.V >= 1);
    if (memory_plan(&memory, &info, &config, &machine, err) != STATUS_OK) return;
    require((int64_t)memory.n_blocks * memory.block_size >= memory.max_model_len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gguf *gguf = NULL;
    struct err err = {0};
    enum status status = gguf_open_memory(&gguf, data, size, &err);
    if (status != STATUS_OK) {
        require(status == STATUS_BAD_FILE && err.message[0] != 0);
        return 0;
    }
    read_directory(gguf);
    read_tokenizer(gguf, &err);
    read_model(gguf, &err);
    gguf_close(gguf);
    return 0;
}
