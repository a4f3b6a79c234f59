/* kernels/backend: one device as tables of functions, one table per subject, and how to open it. */
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
    /* Allocates state for `rows` sequences with penalties over a vocabulary of V, and for
     * `max_samples` samples per call. Returns NULL if the device is out of memory. */
    struct device_sampler *(*sampler_new)(struct backend *b, int V, int rows, int max_samples);
    void (*sampler_free)(struct backend *b, struct device_sampler *sampler);
    /* Writes results[n] for samples[n] of logits[R][V], which are unchanged at the end, and
     * ids[r], the token of the first sample of row r. The samples of one row are adjacent.
     * changes[n] are the logit changes of samples with sampling_lists_changes; NULL if no sample
     * has any. The samples and the data they point to are read before this returns. If the step
     * named its samples (struct step), they are the same ones and without changes. The results may
     * be host memory from host_new: a fetch without bytes then marks their completion. At most
     * MAX_IN_FLIGHT calls are unfinished at a time. */
    void (*sample)(struct backend *b, struct device_sampler *sampler, float *logits,
                   const struct sample *samples, int n, const struct logit_changes *changes,
                   int32_t *ids, struct sampled *results);
};

/* The clock of a device that queues ops. */
struct timer_ops {
    /* Queues stamp i, 0..N_STAMPS-1: it records the time at which all earlier work is done. */
    void (*stamp)(struct backend *b, int i);
    /* Returns the nanoseconds between two stamps. Waits for the second one. */
    uint64_t (*stamped_ns)(struct backend *b, int from, int to);
    /* Measures the device's limits; takes about 100 ms. */
    void (*limits)(struct backend *b, struct device_limits *out);
};

/* The backend itself. */
struct device_ops {
    /* Returns true after the device has failed, and names the failed call in `err` unless it is
     * NULL. That call and all later ops leave their outputs unchanged. Call this after `await`. A
     * failure is permanent. The pointer is NULL on the CPU. */
    bool (*failed)(struct backend *b, struct err *err);
    /* Runs fn(arg, i) for i in [0, n) on the backend's threads and returns when all calls are done.
     * It serves work of the host on rows, such as sampling. fn runs on any thread, in any order. */
    void (*parallel)(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n);
    void (*close)(struct backend *b); /* implements backend_close */
};

enum { N_STAMPS = 2048 };
struct device_limits {
    double bytes_per_s; /* of a copy in device memory, reads plus writes; 0: not known */
    double flops_per_s; /* of a large bfloat16 product by the vendor's library; 0: not known */
};

/* Nested ranges of one thread for a profiler. */
struct range_ops {
    void (*push)(const char *name);
    void (*pop)(void);
};

enum { MAX_WINDOWS = 4 }; /* distinct windows of one model */

/* The attention window and the heads of a group of layers. */
struct attention_window {
    int length; /* last positions that a row sees, its own included; 0: all positions */
    int G;      /* key-value heads of these layers; 0: as in the cache */
    int H;      /* query heads; 0: as in backend_config */
};

/* The largest mixture of experts that a backend must compute; E is 0 for a model without one. */
struct expert_shape {
    int E, n_used;
    int K, F; /* F: width of an expert or of the shared expert, whichever is larger */
};
enum { MAX_EXPERTS = 1024, MAX_USED_EXPERTS = 64 };
enum { MAX_IN_FLIGHT = 2 }; /* steps in flight: submitted and not yet waited for */

/* The first member of each backend's own struct. */
struct backend {
    const struct compute_ops *compute;
    const struct memory_ops *memory;
    const struct cache_ops *cache;
    const struct swap_ops *swap;       /* NULL: blocks cannot be swapped */
    const struct sampler_ops *sampler; /* NULL: the host samples */
    /* NULL: ops are complete when they return, so the host's clock measures them */
    const struct timer_ops *timers;
    const struct device_ops *device;
    const char *name; /* "cpu", "cuda" */
    const char *path; /* instruction set in use: "plain", "avx2", "avx512vnni", "sm_90", ... */
    int n_threads;    /* compute threads of this rank, the caller's included */
    bool host_memory; /* buffers are host memory: they can be read without a download */
    int in_flight;    /* recommended number of steps in flight: 1 on the CPU */
    int row_quantum;  /* rows per tile of a product: a partial tile takes as long as a full one */
    const struct range_ops *ranges; /* NULL: no profiler is attached */
    struct op_times *times;         /* receives the ops' times; NULL: ops are not timed */
    uint64_t one_grid_steps;        /* number of steps launched as one cooperative grid */
};

struct backend_config {
    int threads; /* 0: as many as the process's affinity mask and cgroup quota allow */
    /* a path's name; NULL: the path in PENSTOCK_CPU, or else the best of this machine */
    const char *path;
    int max_rows;                /* the largest M of any call; determines the scratch memory */
    int max_k;                   /* the largest K of any matrix */
    enum dtype activations;      /* CUDA: DTYPE_F32 (the oracle mode), DTYPE_F16 or DTYPE_BF16 */
    struct expert_shape experts; /* determines the scratch memory */
    /* CPU: binds the threads to "nodes", to "cores", or to a list of processors such as "0-7,16".
     * NULL: threads are not bound. Each node's memory holds the weights that its threads use. */
    const char *affinity;
    /* CUDA: bounds for the memory of steps and the plan of attention */
    int max_seqs;    /* the largest S */
    int max_context; /* positions of a sequence are below this */
    int heads;       /* H of all calls of attention whose window does not have its own */
    /* The distinct windows of all calls of attention. An empty list means one of length 0. */
    int n_windows;
    struct attention_window windows[MAX_WINDOWS];
    /* Steps run as CUDA graphs if all their rows want logits and they have at most this many rows;
     * 0: no step does. At most max_rows and the capacity of the activations and logits. */
    int graph_rows;
    int graphs;               /* graphs to keep of each program; 0: chosen automatically */
    struct rank_group *group; /* NULL: a single rank */
    int rank;                 /* in the group; on CUDA also the device number */
    int max_adapter_rank;     /* the largest rank of struct low_rank; 0: no adapters */
    int max_adapters;         /* CUDA: the largest number of an adapter */
    /* CUDA: a library may compute products of float weights, with its own order of sums */
    bool allow_batch_variant_gemm;
    /* CUDA: use wgmma instructions for products and attention of many rows, and for all products
     * with e4m3 weights. Only sm_90 supports them; opening another device fails. Inputs of e4m3
     * weights are converted to e4m3. */
    bool wgmma;
    /* CUDA: run a decode step as one cooperative grid if the grid supports all of its ops. Opening
     * fails on a device without cooperative grids and in a group. */
    bool persistent_step;
    /* CUDA: all calls of attention see both ways, and rows may have token types. No step is a
     * graph: graph_rows is 0 */
    bool both_ways;
    /* CUDA: the model has a second program, for a layer that guesses ahead (struct step, is_ahead).
     * All steps have next tokens */
    bool guesses_ahead;
};

/* Backends that compute one model together (tensor parallelism: Shoeybi et al. 2019). Each rank has
 * a shard of the model and a thread that calls its backend. This struct is the first member of each
 * group's own struct. A group belongs to its maker; the ranks of one process share it. */
struct rank_group {
    int ranks;
    void (*close)(struct rank_group *group);
    /* For CPU ranks in several processes: sends mine[n] to each other rank, and sets rows[r] to the
     * n numbers of rank r, for all ranks. They are valid until the next call; rows of the own rank
     * are `mine`. n is at most MOST_GATHERED. All ranks call it with the same n, each on the thread
     * that runs its passes. Returns false if a rank is lost: rows are then undefined, and later
     * calls return false at once. NULL: the ranks are threads of one process. */
    bool (*gather)(struct rank_group *group, const float *mine, int n, const float *rows[]);
};

enum { MOST_GATHERED = 1 << 18 }; /* numbers of a rank in one call of gather */

enum { MAX_RANKS = 64 };

/* Makes a group of `ranks` CPU backends or GPUs. For GPUs it fails with STATUS_USAGE if the machine
 * has fewer GPUs or if NCCL cannot be loaded. */
struct rank_group *rank_group_cpu_new(int ranks);
enum status rank_group_cuda_new(struct rank_group **out, int ranks, struct err *err);
/* Close the group's backends first. Closing NULL does nothing. */
void rank_group_close(struct rank_group *group);

/* Opens the CPU backend and starts its threads. Fails with STATUS_USAGE if a forced path is unknown
 * or if this machine lacks it. The caller's thread is one of the compute threads. Close the backend
 * on the thread that opened it, after its matrices and caches are freed. Closing NULL does
 * nothing. */
enum status backend_cpu_open(struct backend **out, const struct backend_config *config,
                             struct err *err);
void backend_close(struct backend *b);

/* Opens the CUDA backend on the device of config->rank. `threads` serve work of the host; `path` is
 * ignored. Fails with STATUS_USAGE if there is no usable device, or if the program was built
 * without the CUDA toolkit. */
enum status backend_cuda_open(struct backend **out, const struct backend_config *config,
                              struct err *err);

/* Finds a GPU that the CUDA backend can use. Writes its memory to *memory and its name to
 * name[size]. Fails as backend_cuda_open does. */
enum status backend_cuda_find(struct device_memory *memory, char *name, size_t size,
                              struct err *err);

/* Returns the names of the CPU paths that this machine can run, best first, NULL-terminated. The
 * last one is always "plain". */
const char *const *backend_cpu_paths(void);

#endif
