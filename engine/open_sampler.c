/* Opens the sampler, on the device if possible, otherwise on the host, and the memory for
 * results. */
#include <assert.h>

#include "engine/internal.h"
#include "engine/memory/device.h"

#define FEWER_SEQUENCES "lower {max-num-seqs}"

static size_t pending_bytes(const struct engine *engine) {
    return (size_t)max_sampled_rows(engine) * sizeof *engine->pending;
}

static size_t results_bytes(const struct engine *engine) {
    return (size_t)max_samples(engine) * sizeof *engine->results;
}

/* One slot per logit row: drafts have separate slots. */
static enum status open_device_sampler(struct engine *engine, struct err *err) {
    struct backend *b = engine->backend;
    int rows = max_sampled_rows(engine);
    size_t slots = (size_t)rows * sampling_slot_bytes(engine->model.config.V);
    void *pending;
    enum status status =
        buffer_take(b, &pending, pending_bytes(engine), "ids", FEWER_SEQUENCES, err);
    engine->pending = pending;
    if (status) return status;
    engine->device_sampler =
        b->sampler->sampler_new(b, engine->model.config.V, rows, max_samples(engine));
    if (!engine->device_sampler)
        return refuse_room(b, "counts of tokens", slots, FEWER_SEQUENCES, err);
    engine->changes = change_lists_new(engine->model.config.V, max_samples(engine));
    engine->memory.sampling = (int64_t)slots;
    return STATUS_OK;
}

/* Several steps may be in flight only if the device samples, and if no layer guesses ahead. */
static int most_in_flight(const struct engine *engine, const struct engine_config *config,
                          bool on_device) {
    if (!on_device || engine->model.config.n_ahead > 0) return 1;
    return config->in_flight ? config->in_flight : engine->backend->in_flight;
}

enum status sampler_open(struct opening *o, struct err *err) {
    struct engine *engine = o->engine;
    const struct engine_config *config = &o->config;
    struct backend *b = engine->backend;
    bool on_device = b->sampler && !config->host_samples;
    int rows = max_sampled_rows(engine), sequences = config->max_num_seqs;
    /* the maximum number that samples in one step */
    if (sequences <= 0 || sequences > rows) sequences = rows;
    void *results;
    assert(config->in_flight >= 0 && config->in_flight <= MAX_IN_FLIGHT);
    engine->max_in_flight = most_in_flight(engine, config, on_device);
    enum status status = host_take(b, &results, MAX_IN_FLIGHT * results_bytes(engine), "samples",
                                   FEWER_SEQUENCES, err);
    engine->results = results;
    if (status) return status;
    void *hidden;
    status = host_take(b, &hidden, MAX_IN_FLIGHT * hidden_bytes(engine), "hidden vectors",
                       FEWER_SEQUENCES, err);
    engine->hidden = hidden;
    if (status) return status;
    if (on_device) return open_device_sampler(engine, err);
    int threads = b->n_threads < sequences ? b->n_threads : sequences;
    engine->host_sampler = host_sampler_new(engine->model.config.V, threads);
    return STATUS_OK;
}

void sampler_close(struct engine *engine) {
    struct backend *b = engine->backend;
    int rows = max_sampled_rows(engine);
    host_sampler_free(engine->host_sampler);
    change_lists_free(engine->changes);
    if (engine->device_sampler) b->sampler->sampler_free(b, engine->device_sampler);
    if (engine->pending) b->memory->buffer_free(b, engine->pending, pending_bytes(engine));
    if (engine->results)
        b->memory->host_free(b, engine->results, MAX_IN_FLIGHT * results_bytes(engine));
    if (engine->hidden)
        b->memory->host_free(b, engine->hidden, MAX_IN_FLIGHT * hidden_bytes(engine));
    if (engine->host_logits)
        b->memory->host_free(b, engine->host_logits, logits_bytes(engine, rows));
    engine->host_sampler = NULL;
    engine->changes = NULL;
    engine->device_sampler = NULL;
    engine->pending = NULL;
    engine->results = NULL;
    engine->hidden = NULL;
    engine->host_logits = NULL;
}
