/* Shared by the files of engine/: open*.c opens an engine, run.c runs its passes. */
#ifndef PENSTOCK_ENGINE_INTERNAL_H
#define PENSTOCK_ENGINE_INTERNAL_H

#include <pthread.h>

#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "engine/memory/memory.h"
#include "engine/models/model.h"
#include "engine/ranks/ranks.h"
#include "engine/sampling/sampling.h"

/* A pass that was submitted and not waited for yet. */
struct inflight_pass {
    int n_logits, n_hidden; /* rows with logits, with hidden vectors */
    bool sampled;           /* engine_sample was called */
};

struct engine {
    struct model model;
    struct engine_memory memory;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct chat_template *tools_template; /* for requests with tools; NULL: the same template */
    struct backend *backend;
    struct kv_cache *cache;
    enum dtype kv_dtype;              /* of `cache` */
    struct ranks *ranks;              /* the other ranks; NULL: a single rank */
    struct kv_swap *swap;             /* NULL: swapping is off */
    int n_host_blocks[N_BLOCK_KINDS]; /* host blocks of `swap` */
    int max_adapter_rank;
    struct engine_adapters *adapters; /* NULL: adapters are off */
    char backend_name[256];
    bool on_host;                /* as of the backend */
    int n_threads;               /* of the backend */
    struct engine_config config; /* of engine_open, with defaults and the chosen device */
    char *paths[4];    /* the config's strings: model, weight_cache, cpu_affinity, eagle */
    uint64_t stamp;    /* of the model's files at engine_open */
    bool lacks_memory; /* the host lacked memory for a pass */
    bool has_touched;  /* the whole cache: its memory is present */
    double weights_ms;
    int n_end_ids;
    int32_t end_ids[MAX_END_IDS];
    struct sampling_defaults sampling_defaults;
    struct pooling pooling;
    struct classifier classifier;
    int max_in_flight;
    struct inflight_pass passes[MAX_IN_FLIGHT]; /* a ring that starts at `first` */
    int first, n_in_flight;
    float *host_logits;      /* pinned [max_logit_rows][V]; NULL until first used */
    struct sampled *results; /* pinned [MAX_IN_FLIGHT][max_samples] */
    float *hidden;           /* pinned [MAX_IN_FLIGHT][max_logit_rows][K_embedding] */
    int waited;              /* the pass that engine_wait returned last */
    /* Either the host samples */
    struct host_sampler *host_sampler;
    /* or the device: */
    struct device_sampler *device_sampler;
    struct change_lists *changes;
    int32_t *pending; /* device memory [max_sampled_rows]: ids of pending tokens by logit row */
};

/* Bytes of R rows of logits. */
static inline size_t logits_bytes(const struct engine *engine, int R) {
    return (size_t)R * (size_t)engine->model.config.V * sizeof(float);
}

/* Bytes of the hidden vectors of one pass. */
static inline size_t hidden_bytes(const struct engine *engine) {
    const struct model *model = &engine->model;
    return (size_t)model->act.max_logit_rows * (size_t)model->config.K_embedding * sizeof(float);
}

/* The maximum number of sampled rows of a pass. For an encoder it is 1, which a sampler
 * needs. */
static inline int max_sampled_rows(const struct engine *engine) {
    return engine->model.config.is_encoder ? 1 : engine->model.act.max_logit_rows;
}

/* The maximum number of samples of a pass. */
static inline int max_samples(const struct engine *engine) {
    return max_sampled_rows(engine) + MAX_SHARED_SAMPLES;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* An engine being opened: the data that the stages of open.c pass on. */
struct opening {
    struct engine *engine;
    bool again; /* for engine_load: to the sizes of the engine's plan */
    struct model_file file;
    struct engine_config config; /* the caller's settings with defaults and the chosen device */
    struct machine_memory machine;
    int gpu;       /* of ranks in several processes: the number of this process's GPU */
    char why[160]; /* the reason for the device, for the log */
    bool text_begun, text_on_thread;
    pthread_t text_thread;
    enum status text_status; /* until text_end, only the text thread uses these two */
    struct err text_err;
};

/* open.c: reads the model's config and what follows from it in the settings. */
enum status open_config(struct opening *o, struct err *err);
/* open.c: sets the memory of adapters if the settings leave it out. All ranks find the same. */
void open_adapter_memory(struct opening *o);
/* Chooses the device of the settings. */
enum status open_device(struct opening *o, struct err *err);

/* open.c: frees the results of the stages from backend_open on, also after a failure. */
void engine_free_loaded(struct engine *engine);

/* unload.c: keeps the settings of an opening for engine_load. */
void engine_keep_opening(struct engine *engine, const struct opening *o);
void engine_free_kept(struct engine *engine);

/* open.c: the stages from backend_open on. */
enum status engine_open_memory(struct opening *o, struct err *err);

/* open_text.c: starts reading tokenizer, template and end ids; waits for them. */
enum status text_begin(struct opening *o, struct err *err);
enum status text_end(struct opening *o, struct err *err);

/* open_draft.c: for a draft engine, limits its plan to the other engine's, and compares the
 * vocabularies. Does nothing for other engines. */
void draft_bound(struct opening *o);
/* On a GPU: plans the memory of a draft engine, or applies the memory that was reserved for it. */
enum status draft_plan_room(struct opening *o, struct err *err);
enum status draft_check_vocabulary(const struct opening *o, struct err *err);

/* open_backend.c: settings_check refuses contradictory settings; backend_open opens the backend
 * while the other ranks start opening theirs and loading. */
enum status settings_check(struct opening *o, struct err *err);
enum status backend_open(struct opening *o, struct err *err);
/* The settings of a rank's backend, whose threads are all of this process. */
struct backend_config backend_plan(const struct engine *engine, const struct engine_config *config);

/* open_sampler.c: opens the sampler and memory for results. sampler_close accepts a partly opened
 * one. */
enum status sampler_open(struct opening *o, struct err *err);
void sampler_close(struct engine *engine);

/* adapters.c: makes the registry of adapters, and frees it with all adapters. */
void engine_adapters_open(struct engine *engine);
void engine_adapters_close(struct engine *engine);
/* Gives ranks that were opened again their parts of the loaded adapters. */
enum status engine_adapters_give(struct engine *engine, struct err *err);
/* Closes the other ranks, while no other thread gives them an adapter. */
void engine_close_ranks(struct engine *engine);

/* run.c: lets the backend plan how it runs passes, after the cache is open. */
enum status plan_passes(struct opening *o, struct err *err);
/* warm_up.c: if requested, touches the cache and runs steps of all sizes, so that no request is the
 * first to need memory, a kernel or a graph. */
enum status warm_up(struct opening *o, struct err *err);

#endif
