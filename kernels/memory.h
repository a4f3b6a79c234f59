/* kernels/memory: what a backend keeps on its device: buffers, weights, the KV cache, and blocks of
 * the cache that are swapped to the host. */
#ifndef PENSTOCK_KERNELS_MEMORY_H
#define PENSTOCK_KERNELS_MEMORY_H

#include "kernels/dtype.h"

struct backend;
struct matrix;
struct kv_cache;
struct kv_swap;

/* Memory of a device, in bytes. */
struct device_memory {
    size_t total, free;
};

/* Says in one sentence that the device has no room for `bytes` of `what`, and what would help
 * (`remedy`: "lower --max-num-seqs"). Returns STATUS_USAGE. */
enum status device_out_of_memory(struct err *err, const char *param, const char *what, size_t bytes,
                                 const struct device_memory *memory, const char *remedy);

/* ---- buffers and weights -------------------------------------------------------------------- */

/* What a backend keeps a matrix in. */
enum matrix_form {
    MATRIX_NATIVE,  /* the file's type, or the nearest that the backend multiplies */
    MATRIX_FLOAT32, /* the oracle mode */
    MATRIX_HALVES,  /* of float rows: kept as BF16's are; on CUDA in the activations' type */
    /* F32, F16 and BF16 quantised to e4m3 with a scale a row, other types native; CUDA only */
    MATRIX_FP8,
};

/* Where rows in memory lie in a file that is mapped there. Bytes that are needed once cost less by
 * reading them than by mapping their pages. */
struct file_place {
    int fd; /* below 0: they are in memory alone */
    int64_t offset;
};

struct memory_ops {
    /* What the device has; NULL where buffers are the host's memory. */
    void (*available)(struct backend *b, struct device_memory *out);
    /* Buffers of the device, 64-byte aligned, zeroed. NULL when a device has no room; on the CPU
     * that ends the process. */
    void *(*buffer_new)(struct backend *b, size_t bytes);
    void (*buffer_free)(struct backend *b, void *buffer, size_t bytes);
    /* Host memory that copies run from and to without the host's help. NULL when a device's driver
     * cannot have it; on the CPU that ends the process. */
    void *(*host_new)(struct backend *b, size_t bytes);
    void (*host_free)(struct backend *b, void *host, size_t bytes);

    /* Takes a matrix of N rows of K (GGUF rows of `type`, at `rows`, unchanged after the call) into
     * the backend's layout, in the form asked for. K must be a whole number of blocks. Fails with
     * STATUS_BAD_FILE, or with STATUS_USAGE if the backend lacks that form or memory. */
    enum status (*matrix_new)(struct backend *b, struct matrix **out, enum dtype type, int N, int K,
                              const void *rows, enum matrix_form form, struct err *err);
    /* As matrix_new, of float rows of type `from` that become `to` on the way, as quantise_blocks
     * makes blocks of them; native or float32. `place` is where `rows` lie. NULL on CUDA. */
    enum status (*matrix_quantised)(struct backend *b, struct matrix **out, enum dtype to,
                                    enum dtype from, int N, int K, const void *rows,
                                    struct file_place place, enum matrix_form form,
                                    struct err *err);
    /* As matrix_new, of random weights in place of a file's, made where the matrix is to lie: those
     * that random_weights_plan describes. NULL on the CPU. */
    enum status (*matrix_random)(struct backend *b, struct matrix **out, enum dtype type, int N,
                                 int K, uint64_t seed, enum matrix_form form, struct err *err);
    /* A matrix as the backend has laid it out, to be kept in a file: its bytes, which live as long
     * as it does, and what matrix_map wants to know. NULL on CUDA, as is matrix_map. */
    const void *(*matrix_data)(const struct matrix *matrix, enum dtype *type, int *N, int *K);
    /* The matrix that such bytes are; they are not copied, so they must outlive it, and they are
     * 64-byte aligned. NULL where such a matrix does not have so many. */
    struct matrix *(*matrix_map)(struct backend *b, enum dtype type, int N, int K, const void *data,
                                 size_t bytes);
    void (*matrix_free)(struct backend *b, struct matrix *matrix);
    size_t (*matrix_bytes)(const struct matrix *matrix);

    /* Device memory from host memory; has ended when it returns. */
    void (*upload)(struct backend *b, void *device, const void *host, size_t bytes);
    /* Host memory from device memory; waits for what was queued before. */
    void (*download)(struct backend *b, void *host, const void *device, size_t bytes);
    /* Queues a copy to memory from host_new and then a mark, 0..MAX_IN_FLIGHT-1. Without bytes only
     * the mark. */
    void (*fetch)(struct backend *b, int mark, void *host, const void *device, size_t bytes);
    /* Waits until all that was queued before the mark was set last has ended, and no longer. */
    void (*await)(struct backend *b, int mark);
};

/* ---- the KV cache --------------------------------------------------------------------------- */

/* The key-value heads of a layer: how many, and their size. */
struct kv_heads {
    int G, D;
};

enum { MAX_KV_KINDS = 4 }; /* kinds of layers that one cache may have, by heads and windows */

struct kv_config {
    int L, G, D;      /* layers, key-value heads, size of a head */
    int n_blocks;     /* blocks of every layer */
    int block_size;   /* B; even for DTYPE_I16 and DTYPE_Q8_0 */
    enum dtype dtype; /* F32, F16, and on the CPU I16 or Q8_0, on CUDA BF16 or E4M3 */
    /* Layers with a window may have blocks of their own, fewer than the others; a step then has
     * tables of these too. 0: they have none, and n_blocks is every layer's. */
    int n_window_blocks;
    const bool *has_window; /* [L] which layers those are; read by kv_new */
    /* [L] the heads of each layer where layers differ, read by kv_new; NULL: G and D are those of
     * all. */
    const struct kv_heads *heads;
};

static inline struct kv_heads kv_heads_of(const struct kv_config *config, int layer) {
    return config->heads ? config->heads[layer] : (struct kv_heads){config->G, config->D};
}

/* The largest head of any layer. */
static inline int kv_largest_head(const struct kv_config *config) {
    int largest = 0;
    for (int i = 0; i < config->L; i++) {
        int D = kv_heads_of(config, i).D;
        largest = D > largest ? D : largest;
    }
    return largest;
}

/* I16 and Q8_0 keep integer codes of 16 or 8 bits and a scale for each 64 numbers of a head, so
 * that attention multiplies integers: at the size of float16, and of half of it, and faster.
 * E4M3 keeps floats of 8 bits and a scale for the keys, and one for the values, of each head in a
 * block. */

/* Blocks in which the positions lie that a row sees through a window, at most. */
static inline int window_blocks_seen(int window, int block_size) {
    return (window - 1 + block_size - 1) / block_size + 1;
}

/* Bytes that the keys and values of one token take in all layers of such a cache, rounded up; 0 for
 * a type that no cache has or a size beyond memory. On CUDA floats may take less. */
size_t kv_token_bytes(const struct kv_config *config);

struct cache_ops {
    /* Bytes of the device that kv_new takes, all that steps over such a cache work in included; it
     * grows with n_blocks. NULL on the CPU. */
    size_t (*kv_bytes)(struct backend *b, const struct kv_config *config);
    enum status (*kv_new)(struct backend *b, struct kv_cache **out, const struct kv_config *config,
                          struct err *err);
    void (*kv_free)(struct backend *b, struct kv_cache *cache);
    /* Has the system give the memory of all blocks now, by all threads, which it otherwise does
     * page by page as steps write them. Before the first step. NULL on CUDA, which has its memory
     * from the start. */
    void (*kv_touch)(struct backend *b, struct kv_cache *cache);
};

/* Host memory for blocks of a cache. Copies overlap with steps, but their effect is that of the
 * calls' order, as if each had ended before the next. A CPU backend has none. */
struct swap_ops {
    /* Bytes of the device that swap_new takes, at most. */
    size_t (*swap_bytes)(struct backend *b, const struct kv_config *config);
    /* Slots for as many blocks as `bytes` hold, and slots of their own for window blocks if the
     * cache has these, in the cache's proportion: n_slots[0] and [1], at least one of a kind that
     * there is; swap_reserve allocates their memory. Fails with STATUS_USAGE if there is no memory
     * for the staging buffers. */
    enum status (*swap_new)(struct backend *b, struct kv_swap **out, struct kv_cache *cache,
                            int64_t bytes, int n_slots[2], struct err *err);
    void (*swap_free)(struct backend *b, struct kv_swap *swap); /* before its cache */
    /* Allocates memory for slots 0..n-1, of window blocks or the others; false if there is none. */
    bool (*swap_reserve)(struct backend *b, struct kv_swap *swap, bool window, int n);
    /* Queues the copy of block[i] to slot[i], for n of them, as the steps that were begun leave
     * them; `window`: of window blocks. Later steps may write the blocks at once. The lists are
     * read before this returns. */
    void (*swap_out)(struct backend *b, struct kv_swap *swap, bool window, const int32_t *block,
                     const int32_t *slot, int n);
    /* Queues the copy of slot[i] to block[i], which no step may touch until swap_arrive; the slots
     * may be given to others at once. */
    void (*swap_in)(struct backend *b, struct kv_swap *swap, bool window, const int32_t *slot,
                    const int32_t *block, int n);
    /* Steps that begin after this call see the blocks that swap_in has copied. */
    void (*swap_arrive)(struct backend *b, struct kv_swap *swap);
};

#endif
