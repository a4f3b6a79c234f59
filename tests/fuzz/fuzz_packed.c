/* Any bytes as a quantised folder: a config.json, a byte of 0, and a file of weights. It is refused
 * with a message, or the rows of each joined matrix can be made. */
#include <stdlib.h>
#include <string.h>

#include "engine/files/hf_config.h"
#include "engine/files/tensors/safetensors.h"
#include "kernels/backend.h"
#include "support/hf_config_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

/* Replaces a backend's loop over rows, on this thread. */
static void each(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n) {
    (void)b;
    for (int i = 0; i < n; i++) fn(arg, i);
}

static void make_rows(const struct weights *weights) {
    static const struct device_ops device = {.parallel = each};
    struct backend backend = {.device = &device};
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        if (!weight->packed) continue;
        void *rows = packed_rows(&backend, weight);
        mem_large_free(rows, weight->bytes);
    }
}

static enum status open_folder(struct hf_config *hf, const uint8_t *data, size_t size,
                               struct err *err) {
    hf->shard = mem_calloc(1, sizeof *hf->shard);
    enum status status = hf_packing_read(hf, err);
    if (!status) status = safetensors_open_memory(hf->shard, data, size, err);
    if (status) return status;
    hf->n_shards = 1;
    weights_init(&hf->weights, (size_t)hf->shard->n_tensors);
    status = safetensors_list(hf->shard, &hf->weights, hf->packing.method != PACKING_NONE, err);
    return status ? status : hf_packing_join(hf, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    struct hf_config *hf;
    struct err err = {0};
    size_t length = end ? (size_t)(end - data) : size;
    enum status status = hf_config_parse(&hf, (const char *)data, length, &err);
    if (!status && end) {
        status = open_folder(hf, end + 1, size - length - 1, &err);
        if (!status) make_rows(&hf->weights);
    }
    require(!status || (status == STATUS_BAD_FILE && err.message[0]));
    hf_config_close(hf);
    return 0;
}
