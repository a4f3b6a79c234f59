/* What the engine's files share: open*.c open it, run.c runs its passes. */
#ifndef PENSTOCK_ENGINE_INTERNAL_H
#define PENSTOCK_ENGINE_INTERNAL_H

#include <pthread.h>

#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "engine/memory/memory.h"
#include "engine/models/model.h"
#include "engine/ranks.h"
#include "engine/sampling/sampling.h"

/* A pass that was submitted and not yet waited for. */
struct inflight_pass {
    int R;        /* its logit rows */
    bool sampled; /* engine_sample was called for it */
};

struct engine {
    struct model model;
    struct engine_memory memory;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct chat_template *tools_template; /* for requests with tools; NULL: the same */
    struct backend *backend;
    struct kv_cache *cache;
    struct ranks *ranks;  /* beyond the first; NULL: there is one */
    struct kv_swap *swap; /* NULL: nothing is swapped */
    int n_host_blocks[2]; /* of it: of blocks, and of window blocks */
    char backend_name[256];
    bool lacks_memory; /* of the host, which a pass would have needed */
    bool has_touched;  /* all of its cache: the host has given that memory */
    double weights_ms;
    int n_end_ids;
    int32_t end_ids[MAX_END_IDS];
    struct sampling_defaults sampling_defaults;
    int max_in_flight;
    struct inflight_pass passes[MAX_IN_FLIGHT]; /* a ring: those in flight from `first` on */
    int first, n_in_flight;
    float *host_logits;      /* pinned [max_logit_rows][V]; NULL until they are wanted */
    struct sampled *results; /* pinned [MAX_IN_FLIGHT][max_samples] */
    /* One of two samples: the host, */
    struct host_sampler *host_sampler;
    /* or the device: */
    struct device_sampler *device_sampler;
    struct change_lists *changes;
    int32_t *pending; /* device memory [max_logit_rows]: the ids of pending tokens, by logit row */
};

/* Of R rows. */
static inline size_t logits_bytes(const struct engine *engine, int R) {
    return (size_t)R * (size_t)engine->model.config.V * sizeof(float);
}

/* Samples that one pass can have. */
static inline int max_samples(const struct engine *engine) {
    return engine->model.act.max_logit_rows + MAX_SHARED_SAMPLES;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* An engine that is being opened; what the stages of open.c hand on to one another. */
struct opening {
    struct engine *engine;
    struct model_file file;
    struct engine_config config; /* the caller's, with defaults and the chosen device */
    struct machine_memory machine;
    char why[160]; /* why it is that device, for the log */
    bool text_begun, text_on_thread;
    pthread_t text_thread;
    enum status text_status; /* these two are the thread's until text_end */
    struct err text_err;
};

/* open_text.c: begins to read tokenizer, template and end ids; waits until they are read. */
enum status text_begin(struct opening *o, struct err *err);
enum status text_end(struct opening *o, struct err *err);

/* open_draft.c: bounds what an engine that drafts plans by what the other has planned; and compares
 * both vocabularies. Nothing where it drafts for none. */
void draft_bound(struct opening *o);
/* On a GPU: plans what an engine that is to draft for this one will take; or, of one that drafts,
 * what was kept for it. */
enum status draft_plan_room(struct opening *o, struct err *err);
enum status draft_check_vocabulary(const struct opening *o, struct err *err);

/* open_backend.c: refuses settings that do not go together; opens the backend, while other ranks
 * begin to open theirs and to load. */
enum status settings_check(struct opening *o, struct err *err);
enum status backend_open(struct opening *o, struct err *err);

/* open_sampler.c: what samples, and memory for results. Closing one that is half open is fine. */
enum status sampler_open(struct opening *o, struct err *err);
void sampler_close(struct engine *engine);

/* run.c: has the backend plan how it will run passes, when the cache is open. */
enum status plan_passes(struct opening *o, struct err *err);
/* warm_up.c: where the config asks for it, touches the cache and runs steps of all sizes, so that
 * no request is the first to need memory, a kernel or a graph. */
enum status warm_up(struct opening *o, struct err *err);

#endif
