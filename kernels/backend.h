/* kernels/backend: one device, as tables of functions by subject, and how it is opened. */
#ifndef PENSTOCK_KERNELS_BACKEND_H
#define PENSTOCK_KERNELS_BACKEND_H

#include "kernels/memory.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"

struct device_sampler;
struct device_limits;
struct op_times;

/* Sampling on the device. */
struct sampler_ops {
    /* Memory for the tokens before `rows` rows of V logits that have penalties, and for
     * `max_samples` samples at once; NULL when there is no room. */
    struct device_sampler *(*sampler_new)(struct backend *b, int V, int rows, int max_samples);
    void (*sampler_free)(struct backend *b, struct device_sampler *sampler);
    /* results[n] = what comes of samples[n], from logits[R][V], which are as before when it has
     * ended; ids[r] = the token of the first sample of row r. Samples of one row stand together.
     * changes[n] are those of the samples whose settings list them (sampling_lists_changes); NULL:
     * no sample has any. The samples, and what they point to, are read before this returns; they
     * are those that the step named, if it did (struct step), and no changes are listed then. The
     * results may be the host's memory (host_new): a fetch without bytes then marks their end. At
     * most MAX_IN_FLIGHT calls have not ended. */
    void (*sample)(struct backend *b, struct device_sampler *sampler, float *logits,
                   const struct sample *samples, int n, const struct logit_changes *changes,
                   int32_t *ids, struct sampled *results);
};

/* The clock of a device whose ops only queue work. */
struct timer_ops {
    /* Records stamp i, 0..N_STAMPS-1, when everything queued before it has ended. */
    void (*stamp)(struct backend *b, int i);
    /* Nanoseconds from one stamp to another; waits for the second one. */
    uint64_t (*stamped_ns)(struct backend *b, int from, int to);
    /* Measures the device's limits; takes about 100 ms. */
    void (*limits)(struct backend *b, struct device_limits *out);
};

/* The backend itself. */
struct device_ops {
    /* True once the device has failed; `err`, unless NULL, then names the call. That call and all
     * later ops have left their outputs unchanged. Ask after `await`; a failure is permanent. NULL
     * on the CPU. */
    bool (*failed)(struct backend *b, struct err *err);
    /* Runs fn(arg, i) for i in [0, n) on the backend's threads and returns when all are done; for
     * the host's own row work such as sampling. fn may run on any thread, in any order. */
    void (*parallel)(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n);
    void (*close)(struct backend *b); /* what backend_close does */
};

enum { N_STAMPS = 2048 };
struct device_limits {
    double bytes_per_s; /* of a copy within the device's memory, read and written; 0: not known */
    double flops_per_s; /* of a large product in bfloat16 by the vendor's library; 0: not known */
};

/* How a profiler is told what runs: ranges that lie within one another, of one thread. */
struct range_ops {
    void (*push)(const char *name);
    void (*pop)(void);
};

enum { MAX_WINDOWS = 4 }; /* different windows of one model */

/* What layers look through. */
struct attention_window {
    int length; /* the last positions that a row sees, its own included; 0: all of them */
    int G;      /* key-value heads of such layers; 0: those of the cache */
};

/* The largest experts that a backend is to compute, as it has them; E 0: none. */
struct expert_shape {
    int E, n_used;
    int K, F; /* F: of an expert or of the shared one, whichever is wider */
};
enum { MAX_EXPERTS = 1024, MAX_USED_EXPERTS = 64 };
enum { MAX_IN_FLIGHT = 2 }; /* steps that were submitted and not yet waited for */

/* The head of every backend; a backend's own struct begins with it. */
struct backend {
    const struct compute_ops *compute;
    const struct memory_ops *memory;
    const struct cache_ops *cache;
    const struct swap_ops *swap;       /* NULL: blocks cannot be swapped */
    const struct sampler_ops *sampler; /* NULL: the host samples */
    /* NULL: ops end when they return, so the host's clock does */
    const struct timer_ops *timers;
    const struct device_ops *device;
    const char *name; /* "cpu", "cuda" */
    const char *path; /* instruction set in use: "plain", "avx2", "avx512vnni", "sm_90", ... */
    int n_threads;    /* compute threads, the caller's included; of this rank alone */
    bool host_memory; /* buffers are the host's own memory: what is in them needs no download */
    int in_flight;    /* steps that it is good to have in flight: 1 where they run on the host */
    int row_quantum;  /* products take rows in tiles of so many: an unfinished one takes as long */
    const struct range_ops *ranges; /* NULL: no profiler looks */
    struct op_times *times;         /* where the ops' times go; NULL: ops are not timed */
    uint64_t one_grid_steps;        /* that were launched as one cooperative grid */
};

struct backend_config {
    int threads; /* 0: as many as the process's affinity mask and cgroup quota allow */
    /* NULL: the best of this machine, or what PENSTOCK_CPU says; or a name to force */
    const char *path;
    int max_rows;                /* the largest M of any call: scratch is planned for it */
    int max_k;                   /* the largest K of any matrix */
    enum dtype activations;      /* CUDA: DTYPE_F32 (the oracle mode), DTYPE_F16 or DTYPE_BF16 */
    struct expert_shape experts; /* scratch is planned for them */
    /* CPU: what threads are bound to: "nodes", "cores", or a list of processors such as "0-7,16".
     * NULL: to nothing. Each node's memory has the weights that its threads multiply. */
    const char *affinity;
    /* CUDA: what the memory for steps and the plan of attention are made for */
    int max_seqs;    /* the largest S */
    int max_context; /* positions of a sequence are below this */
    int heads;       /* H of all calls of attention */
    /* The windows that attention is called with, each once. None listed: one of length 0. */
    int n_windows;
    struct attention_window windows[MAX_WINDOWS];
    /* Steps of at most so many rows that all want logits run as CUDA graphs; 0: none. At most
     * max_rows, and the rows that activations and logits have room for. */
    int graph_rows;
    int graphs;               /* that are kept; 0: as many as suit */
    struct rank_group *group; /* NULL: the backend computes alone */
    int rank;                 /* in the group; on CUDA the number of its device too */
    /* CUDA: products of float weights may be a library's, which sums in an order of its own */
    bool allow_batch_variant_gemm;
    /* CUDA: products and attention of many rows, and products of all rows with e4m3 weights, are
     * wgmma's, which sm_90 alone has; other devices refuse. Activations become e4m3 where weights
     * are. */
    bool wgmma;
    /* CUDA: decode steps whose ops one cooperative grid can do run as one; a device that has no
     * such grids refuses, and so does a group */
    bool persistent_step;
};

/* Backends that compute one model together (tensor parallelism: Shoeybi et al. 2019): each rank has
 * a shard of the model, and a thread that calls its backend. This is the common first member of
 * each backend's group struct. */
struct rank_group {
    int ranks;
    void (*close)(struct rank_group *group);
};

enum { MAX_RANKS = 64 };

/* A group of `ranks` CPU backends, or of `ranks` GPUs. The latter fails with STATUS_USAGE if there
 * are fewer GPUs or if NCCL cannot be loaded. */
struct rank_group *rank_group_cpu_new(int ranks);
enum status rank_group_cuda_new(struct rank_group **out, int ranks, struct err *err);
/* Call it after the group's backends were closed. Closing NULL does nothing. */
void rank_group_close(struct rank_group *group);

/* Opens the CPU backend and starts its threads. Fails with STATUS_USAGE when a forced path is
 * unknown or this machine lacks it. The caller's thread is one of the compute threads. Close it on
 * the thread that opened it, after its matrices and caches were freed; closing NULL does
 * nothing. */
enum status backend_cpu_open(struct backend **out, const struct backend_config *config,
                             struct err *err);
void backend_close(struct backend *b);

/* Opens the CUDA backend on the device of config->rank; `threads` are for the host's own work, and
 * `path` is not looked at. Fails with STATUS_USAGE where there is no device that it can use, or
 * where the program was built without the CUDA toolkit, and says so. */
enum status backend_cuda_open(struct backend **out, const struct backend_config *config,
                              struct err *err);

/* Is there a GPU that the CUDA backend can use? Its memory goes to *memory, its name to
 * name[size]. Fails as backend_cuda_open does. */
enum status backend_cuda_find(struct device_memory *memory, char *name, size_t size,
                              struct err *err);

/* Names of the CPU paths that this machine can run, best first, NULL-terminated; "plain" is always
 * the last. */
const char *const *backend_cpu_paths(void);

#endif
