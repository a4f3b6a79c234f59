/* Any bytes as a file of weights: it is refused with a message, or all data in its directory can be
 * read. */
#include <stdlib.h>

#include "engine/files/tensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink; /* so that the compiler keeps the reads */

static void require(bool holds) {
    if (!holds) abort();
}

static void read_tensors(const struct weights *weights) {
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        const uint8_t *bytes = weight->data;
        uint8_t sum = 0;
        for (size_t at = 0; at < weight->bytes; at++) sum ^= bytes[at];
        sink = sum;
        require(weights_lookup(weights, weight->name) == weight);
        if (dtype_name((int)weight->type) == NULL) continue; /* a part of a packed matrix */
        require(weight->bytes == dtype_bytes(weight->type, (size_t)weight->n_elements));
    }
    struct err err;
    require(weights_check_apart(weights, &err) == STATUS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct safetensors file;
    struct weights weights = {0};
    struct err err = {0};
    enum status status = safetensors_open_memory(&file, data, size, &err);
    if (!status) {
        weights_init(&weights, (size_t)file.n_tensors);
        status = safetensors_list(&file, &weights, size % 2, &err);
    }
    if (status)
        require(status == STATUS_BAD_FILE && err.status == STATUS_BAD_FILE && err.message[0]);
    else
        read_tensors(&weights);
    weights_free(&weights);
    safetensors_close(&file);
    return 0;
}
