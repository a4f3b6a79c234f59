/* engine/config: settings and descriptions shared by all rooms of engine/. Plain data without
 * state, so every room below engine/ may include it.
 *
 *   model_config.h   a model as numbers, filled by the readers of files
 *   config.h         the settings of engine_open, sampling defaults, the plan of memory
 *   head.h           what follows the hidden vectors: pooling and heads
 */
#ifndef PENSTOCK_ENGINE_CONFIG_H
#define PENSTOCK_ENGINE_CONFIG_H

#include <stdatomic.h>

#include "engine/config/head.h"
#include "engine/config/model_config.h"
#include "kernels/dtype.h"
#include "kernels/memory.h"
#include "kernels/sampling.h"

#define MAX_BLOCK_SIZE 256 /* slots of a KV block */

struct engine;
struct peers;

/* The settings of engine_open. */
struct engine_config {
    /* path of a .gguf file or of a folder; with `dummy` also of a config.json */
    const char *model;
    /* folder for packed matrices of the CPU backend, mapped by the next start; NULL: off */
    const char *weight_cache;
    const char *chat_template; /* path of a template that replaces the model's; NULL: the model's */
    int threads;               /* for all ranks; 0: chosen automatically */
    const char *cpu_affinity;  /* see backend_config; NULL: threads are not bound */
    int ranks;                 /* ranks that share the model, 1..MAX_RANKS; 0: 1 */
    /* NULL: all ranks are in this process. Or the processes that are the ranks (engine/peers);
     * `threads` is then the number of this process. They outlive the engine */
    struct peers *peers;
    int rank_timeout_s;       /* seconds without a sign of life after which a process is lost */
    enum compute_dtype dtype; /* the 16-bit types need CUDA */
    enum quantization quantization; /* of float weights; fp8: only of the layers, on CUDA */
    /* CUDA: let cuBLAS compute products, so that a request's bytes depend on the batch */
    bool allow_batch_variant_gemm;
    bool wgmma; /* CUDA: use sm_90a's instructions for products and attention of many rows */
    bool persistent_step;     /* CUDA: run decode steps of small models as one cooperative grid */
    bool dummy;               /* random weights in the file's shapes, always the same ones */
    bool stand_in_vocabulary; /* for tests: do not read a folder's own tokenizer */
    enum kv_dtype kv_dtype;
    enum hidden_rows pooling; /* replaces the model's own */
    int max_model_len;        /* 0: the model's own */
    int max_num_seqs;
    int max_num_batched_tokens; /* the largest M */
    int max_logit_rows;         /* the largest R; 0: max_num_seqs */
    int in_flight;              /* 1..MAX_IN_FLIGHT; 0: the backend's default */
    int block_size;             /* 1..MAX_BLOCK_SIZE */
    int64_t kv_memory;          /* bytes for KV blocks; 0: chosen from the machine's memory */
    /* separate blocks for layers with windows (struct step). -1: chosen automatically if it saves
     * memory; 0: off; or their number, for tests */
    int window_blocks;
    /* fraction of a GPU's memory that the process may use; 0: nine tenths */
    double gpu_memory_utilization;
    int max_adapters; /* adapters in memory at once (engine_adapter_load); 0: adapters are off */
    int max_adapter_rank;   /* their largest rank, 1..MAX_ADAPTER_RANK of engine/adapters/ */
    int64_t adapter_memory; /* bytes for their numbers; 0: max_adapters of the largest rank */
    int64_t swap_space; /* host bytes for preempted sequences; 0: off; -1: chosen automatically */
    enum device device;
    const char *cpu_path; /* for tests: a path's name; NULL: the best */
    bool host_samples;    /* for tests: do not sample on the device */
    bool enforce_eager;   /* CUDA: do not run steps as graphs */
    int max_graphs;       /* CUDA, for tests: number of graphs to keep; 0: chosen automatically */
    bool warm_up;         /* touch the cache in engine_open; CUDA: also run usual steps once */
    /* NULL, or the engine for which this one drafts (scheduler/draft/model.c), on the same device.
     * It needs the same vocabulary and limits sequences to that engine's length. On the CPU it
     * leaves the memory that was planned there and is not allocated yet; on a GPU it uses the
     * memory that was reserved for it */
    const struct engine *drafts_for;
    /* The model's own layer that guesses ahead gives drafts (struct step, is_ahead). A model
     * without one is refused */
    bool guesses_ahead;
    /* NULL, or the folder of an EAGLE-3 head, which guesses in that layer's place */
    const char *eagle;
    /* drafts of a sequence that a step verifies, 0: none; recurrent layers need states for these */
    int max_drafts;
    /* bytes for the states of cached prefixes, of recurrent layers; 0: none, so prefixes are not
     * cached; below 0: chosen from the free memory */
    int64_t state_checkpoints;
    /* NULL, or the settings of the engine that will draft for this one: GPU memory is reserved for
     * it */
    const struct engine_config *drafter;
    /* called with 0..1 during long work; may be NULL */
    void (*progress)(void *arg, const char *what, double part);
    void *progress_arg;
    const atomic_bool *gives_up; /* set by any thread: loading fails soon; NULL: never */
};

/* The model's own sampling settings, for requests that do not set them. Below 0: the model does not
 * state one either. */
struct sampling_defaults {
    double temperature, top_p, min_p, repetition_penalty;
    int top_k;
    int n_suppressed; /* ids that are never chosen; 0: none */
    int32_t suppressed[MAX_SUPPRESSED];
};
#define NO_SAMPLING_DEFAULTS                                                                       \
    {                                                                                              \
        -1, -1, -1, -1, -1, 0, {                                                                   \
            0                                                                                      \
        }                                                                                          \
    }

/* The plan of memory by purpose, in bytes, and its capacity. */
struct engine_memory {
    int64_t weights, kv_cache, scratch;
    int64_t kv_bytes_per_token; /* in blocks; the next field: in window blocks */
    int64_t window_bytes_per_token;
    int n_blocks, block_size;
    int n_window_blocks; /* 0: all layers use n_blocks; else the blocks of layers with windows */
    int window;          /* the longest window of these layers, in positions */
    /* States of recurrent layers, 0: none. One per running sequence, and those of cached prefixes
     * and of drafts in a step */
    int n_states, n_checkpoints, n_draft_states;
    int checkpoint_every; /* tokens between the states of a cached prefix */
    int64_t state_bytes;  /* of one state */
    int64_t adapters;     /* the numbers of adapters; their scratch is in `scratch` */
    int max_model_len;    /* maximum tokens of a sequence, prompt and output */
    bool is_encoder;      /* sequences leave with their only step */
    /* On a GPU; 0 on the CPU: */
    struct device_memory device; /* before any allocation */
    double share;                /* fraction of it that may be used */
    int64_t sampling;            /* for max_logit_rows rows (sampling_slot_bytes), and results */
    /* a step's arrays and the work memory of attention, which grows with the cache */
    int64_t steps;
    int64_t kept; /* reserved within the share for graphs and growth during service */
    /* reserved for a draft engine: its weights and scratch, and its part per block */
    int64_t draft, draft_block;
    int64_t given;    /* for a draft engine: the memory reserved for it; 0: this is not one */
    int given_blocks; /* and the other engine's n_blocks */
    int64_t swap;     /* host memory for preempted sequences */
};

/* The number of sequences of full length that fit in the cache together. */
double engine_memory_sequences(const struct engine_memory *memory);

/* The name of the model at `path`, for people and for the API: the name of the folder or file
 * without ".gguf"; in the hub's cache the name of the repository ("org/name"). Any thread. */
enum { MODEL_NAME_BYTES = 128 };
void model_path_name(char out[MODEL_NAME_BYTES], const char *path);

#endif
