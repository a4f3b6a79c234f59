/* Reads the sampling defaults of a GGUF file. */
#include <string.h>

#include "engine/files/model_file.h"

static enum status read_suppressed(struct sampling_defaults *out, const struct gguf *gguf, int V,
                                   struct err *err) {
    const struct gguf_value *value = NULL;
    if (!gguf_find(gguf, SUPPRESS_KEY)) return STATUS_OK;
    enum status status = gguf_array(gguf, SUPPRESS_KEY, GGUF_INT32, &value, err);
    if (status) return status;
    if (value->count > MAX_SUPPRESSED)
        return err_set(err, STATUS_BAD_FILE, SUPPRESS_KEY,
                       "key %s: expected at most %d ids, found %zu", SUPPRESS_KEY, MAX_SUPPRESSED,
                       (size_t)value->count);
    for (size_t i = 0; i < value->count; i++) {
        int64_t id = gguf_integer_at(GGUF_INT32, value->data + 4 * i);
        if (id >= 0 && id < V) out->suppressed[out->n_suppressed++] = (int32_t)id;
    }
    return STATUS_OK;
}

enum status gguf_sampling_read(struct sampling_defaults *out, const struct gguf *gguf, int V,
                               struct err *err) {
    int64_t top_k;
    enum status status = gguf_int_or(gguf, "general.sampling.top_k", 0, INT32_MAX, -1, &top_k, err);
    *out = (struct sampling_defaults)NO_SAMPLING_DEFAULTS;
    if (!status) out->top_k = (int)top_k;
    for (int i = 0; i < N_SAMPLING_NUMBERS && !status; i++) {
        const struct sampling_number *number = &sampling_numbers[i];
        double *value = sampling_number_of(out, number);
        if (!gguf_find(gguf, number->gguf)) continue;
        status = gguf_float(gguf, number->gguf, value, err);
        if (!status && !(*value >= number->min && *value <= number->max))
            status = err_set(err, STATUS_BAD_FILE, number->gguf,
                             "key %s: expected a number from %g to %g, found %g", number->gguf,
                             number->min, number->max, *value);
    }
    return status ? status : read_suppressed(out, gguf, V, err);
}
