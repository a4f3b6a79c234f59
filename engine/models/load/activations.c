/* Allocates the buffers of a pass. */
#include <assert.h>

#include "engine/memory/device.h"
#include "engine/models/load/load.h"
#include "engine/models/model.h"

enum status activations_open(struct model *model, const struct engine_config *settings,
                             struct err *err) {
    struct model_activations *a = &model->act;
    struct model_buffer buffers[N_MODEL_BUFFERS];
    a->max_rows = settings->max_num_batched_tokens;
    a->max_logit_rows = settings->max_logit_rows;
    model_buffers(a, model, buffers);
    enum status status = STATUS_OK;
    for (int i = 0; i < N_MODEL_BUFFERS && !status; i++) {
        void *made;
        if (buffers[i].width == 0) continue;
        status =
            buffer_take(model->backend, &made, model_buffer_bytes(&buffers[i], a), "activations",
                        "lower {max-num-batched-tokens} or {max-num-seqs}", err);
        *buffers[i].buffer = made;
    }
    return status;
}

void activations_close(struct model *model) {
    struct backend *b = model->backend;
    struct model_buffer buffers[N_MODEL_BUFFERS];
    model_buffers(&model->act, model, buffers);
    for (int i = 0; i < N_MODEL_BUFFERS; i++) {
        if (!*buffers[i].buffer) continue;
        b->memory->buffer_free(b, *buffers[i].buffer, model_buffer_bytes(&buffers[i], &model->act));
    }
}
