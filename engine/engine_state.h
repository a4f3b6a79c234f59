/* What the engine's two files share: engine.c opens it, passes.c runs it. */
#ifndef PENSTOCK_ENGINE_ENGINE_STATE_H
#define PENSTOCK_ENGINE_ENGINE_STATE_H

#include "engine/engine.h"
#include "engine/model.h"
#include "engine/model_file.h"
#include "engine/ranks.h"
#include "engine/swap.h"

/* A step that was submitted and not yet waited for. */
struct pass {
    struct step step;
    bool launched;
    bool sampled; /* the device samples, and results come back instead of logits */
};

struct engine {
    struct model model;
    struct engine_memory memory;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct backend *backend;
    struct kv_cache *cache;
    struct ranks *ranks; /* the others; NULL: there is one rank */
    struct engine_swap swap;
    char backend_name[256];
    bool lacks_memory; /* of the host, which a pass would have needed */
    double weights_ms;
    int n_end_ids;
    int32_t end_ids[MAX_END_IDS];
    int in_flight;                     /* the most passes at once */
    struct pass passes[MAX_IN_FLIGHT]; /* a ring: those in flight from `first` on */
    int first, n_passes;
    int waited_rows;                /* logit rows of the pass that was waited for last */
    int32_t *sampled;               /* device memory [max_logit_rows]: late tokens are read here */
    float *host_logits;             /* pinned [max_logit_rows][V]; NULL until it is wanted */
    struct device_sampler *sampler; /* NULL where the host samples; then so are these: */
    struct sampled *results;        /* device memory [max_samples] */
    struct sampled *host_results;   /* pinned [MAX_IN_FLIGHT][max_samples] */
    struct backend_ops timed_ops;   /* in use while ops are timed */
};

/* Of R rows. */
static inline size_t logits_bytes(const struct engine *engine, int R) {
    return (size_t)R * (size_t)engine->model.info.V * sizeof(float);
}

/* The most that one pass is asked for. */
static inline int max_samples(const struct engine *engine) {
    return engine->model.act.max_logit_rows + MAX_SHARED_SAMPLES;
}

#endif
