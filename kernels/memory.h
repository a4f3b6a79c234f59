/* kernels/memory: the memory of a backend's device: buffers, weights, the KV cache, and cache
 * blocks that are swapped to the host. */
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

/* Writes a sentence to `err`: the device lacks room for `bytes` of `what`, and the remedy (for
 * example "lower {max-num-seqs}"). Returns STATUS_USAGE. */
enum status device_out_of_memory(struct err *err, const char *param, const char *what, size_t bytes,
                                 const struct device_memory *memory, const char *remedy);

/* ---- buffers and weights -------------------------------------------------------------------- */

/* The form in which a backend stores a matrix. */
enum matrix_form {
    MATRIX_NATIVE,  /* the file's type, or the nearest type that the backend multiplies */
    MATRIX_FLOAT32, /* the oracle mode */
    MATRIX_HALVES,  /* float rows stored as BF16 rows are; on CUDA in the activations' type */
    /* CUDA only: F32, F16 and BF16 quantised to e4m3 with one scale per row, other types native */
    MATRIX_FP8,
};

/* The file position of rows that are mapped in memory. Reading bytes that are needed once is
 * cheaper than faulting in their pages. */
struct file_place {
    int fd; /* below 0: the rows are only in memory */
    int64_t offset;
};

struct memory_ops {
    /* Returns the device's memory. NULL if buffers are host memory. */
    void (*available)(struct backend *b, struct device_memory *out);
    /* Allocates a zeroed device buffer, aligned to 64 bytes. Returns NULL if the device is out of
     * memory; on the CPU this ends the process. */
    void *(*buffer_new)(struct backend *b, size_t bytes);
    void (*buffer_free)(struct backend *b, void *buffer, size_t bytes);
    /* Allocates host memory that the device can copy from and to by itself. Returns NULL if the
     * driver cannot allocate it; on the CPU this ends the process. */
    void *(*host_new)(struct backend *b, size_t bytes);
    void (*host_free)(struct backend *b, void *host, size_t bytes);

    /* Copies a matrix of N rows of K (GGUF rows of `type` at `rows`) into the backend's layout and
     * the given form. K must be a whole number of blocks. Fails with STATUS_BAD_FILE, or with
     * STATUS_USAGE if the backend lacks the form or the memory. */
    enum status (*matrix_new)(struct backend *b, struct matrix **out, enum dtype type, int N, int K,
                              const void *rows, enum matrix_form form, struct err *err);
    /* Like matrix_new for float rows of type `from`, which are converted to `to` as by
     * quantise_blocks. The form is native or float32. `place` is the file position of `rows`. NULL
     * on CUDA. */
    enum status (*matrix_quantised)(struct backend *b, struct matrix **out, enum dtype to,
                                    enum dtype from, int N, int K, const void *rows,
                                    struct file_place place, enum matrix_form form,
                                    struct err *err);
    /* Like matrix_new with the random weights of random_weights_plan, generated in place. NULL on
     * the CPU. */
    enum status (*matrix_random)(struct backend *b, struct matrix **out, enum dtype type, int N,
                                 int K, uint64_t seed, enum matrix_form form, struct err *err);
    /* Returns the bytes of a matrix in the backend's layout, for a weight cache, and the arguments
     * of matrix_map. The bytes live as long as the matrix. NULL on CUDA, as is matrix_map. */
    const void *(*matrix_data)(const struct matrix *matrix, enum dtype *type, int *N, int *K);
    /* Makes a matrix of such bytes without copying them: they must be 64-byte aligned and outlive
     * the matrix. Returns NULL if `bytes` is not the size of such a matrix. */
    struct matrix *(*matrix_map)(struct backend *b, enum dtype type, int N, int K, const void *data,
                                 size_t bytes);
    void (*matrix_free)(struct backend *b, struct matrix *matrix);
    size_t (*matrix_bytes)(const struct matrix *matrix);

    /* Copies host memory to device memory. The copy is complete when this returns. */
    void (*upload)(struct backend *b, void *device, const void *host, size_t bytes);
    /* Copies device memory to host memory, after all work queued before. */
    void (*download)(struct backend *b, void *host, const void *device, size_t bytes);
    /* Queues a copy to memory from host_new and then a mark, 0..MAX_IN_FLIGHT-1. With 0 bytes it
     * queues only the mark. */
    void (*fetch)(struct backend *b, int mark, void *host, const void *device, size_t bytes);
    /* Waits until the work queued before the last setting of the mark is done. */
    void (*await)(struct backend *b, int mark);
};

/* ---- the KV cache --------------------------------------------------------------------------- */

/* The number and size of a layer's key-value heads. */
struct kv_heads {
    int G, D;
    /* If not 0, the cache keeps only keys, and a head's values are the first D_shared numbers of
     * its keys: latent attention. */
    int D_shared;
};

enum { MAX_KV_KINDS = 4 }; /* kinds of layers in one cache, by heads and windows */

/* Kinds of cache blocks: those of layers that keep all positions, and window blocks, which layers
 * with a window have if the cache has window blocks (struct kv_config). */
enum block_kind { KV_BLOCKS, KV_WINDOW_BLOCKS, N_BLOCK_KINDS };

/* What a cache keeps for a block of a prompt: its block, its window block, and the state of the
 * recurrent layers after it. A cache of recurrent layers alone has blocks of 0 bytes. */
enum cache_part { PART_BLOCK, PART_WINDOW, PART_STATE, N_CACHE_PARTS };

struct kv_config {
    int L, G, D;      /* layers, key-value heads, size of a head */
    int n_blocks;     /* blocks of every layer */
    int block_size;   /* B; even for DTYPE_I16 and DTYPE_Q8_0 */
    enum dtype dtype; /* F32, F16, and on the CPU I16 or Q8_0, on CUDA BF16 or E4M3 */
    /* Layers with a window may use separate blocks, fewer than the others; a step then has block
     * tables for them too. 0: all layers use the n_blocks blocks. */
    int n_window_blocks;
    const bool *has_window; /* [L] the layers with window blocks; read by kv_new */
    /* [L] the heads of each layer where layers differ, read by kv_new; NULL: G and D are those of
     * all. */
    const struct kv_heads *heads;
    /* Recurrent layers keep no rows. Each has state_floats float32 numbers per sequence, in one of
     * n_states states. 0: the model has no such layers. */
    int n_states, state_layers, state_floats;
};

/* Returns the bytes of one state: of one sequence in all recurrent layers. */
static inline size_t kv_state_bytes(const struct kv_config *config) {
    return (size_t)config->state_layers * (size_t)config->state_floats * sizeof(float);
}

static inline struct kv_heads kv_heads_of(const struct kv_config *config, int layer) {
    return config->heads ? config->heads[layer] : (struct kv_heads){config->G, config->D};
}

/* The size of a head's values. */
static inline int kv_value_size(struct kv_heads heads) {
    return heads.D_shared ? heads.D_shared : heads.D;
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

/* I16 and Q8_0 store integer codes of 16 or 8 bits and one scale per 64 numbers of a head. So
 * attention multiplies integers, which is faster. They take as much memory as float16, or half of
 * it. E4M3 stores floats of 8 bits and, per head and block, one scale for keys and one for
 * values. */

/* The maximum number of blocks that overlap a row's window. */
static inline int window_blocks_seen(int window, int block_size) {
    return (window - 1 + block_size - 1) / block_size + 1;
}

/* Returns the bytes of one token's keys and values in all layers, rounded up. Returns 0 for a type
 * that caches do not support or on overflow. On CUDA, floats may take less. */
size_t kv_token_bytes(const struct kv_config *config);

struct cache_ops {
    /* Returns the device bytes that kv_new takes, including the scratch memory of steps over the
     * cache. The result grows with n_blocks. NULL on the CPU. */
    size_t (*kv_bytes)(struct backend *b, const struct kv_config *config);
    enum status (*kv_new)(struct backend *b, struct kv_cache **out, const struct kv_config *config,
                          struct err *err);
    void (*kv_free)(struct backend *b, struct kv_cache *cache);
    /* Touches the memory of all blocks from all threads, so that the system provides it now and not
     * page by page during steps. Call it before the first step. NULL on CUDA, where the memory is
     * present from the start. */
    void (*kv_touch)(struct backend *b, struct kv_cache *cache);
    /* The bytes of one part, 0 if the cache lacks such parts, and copies of part number `i` between
     * the cache and host memory. The bytes are those of the cache: the backend, the types and the
     * block size must be the same on both ways. NULL on CUDA. */
    size_t (*kv_part_bytes)(const struct kv_cache *cache, enum cache_part part);
    void (*kv_part_get)(const struct kv_cache *cache, enum cache_part part, int i, void *out);
    void (*kv_part_put)(struct kv_cache *cache, enum cache_part part, int i, const void *in);
};

/* Swapping of cache blocks to host memory. Copies overlap with steps, but they have the same effect
 * as if each call completed before the next one. A CPU backend does not swap. */
struct swap_ops {
    /* Returns the maximum number of device bytes that swap_new takes. */
    size_t (*swap_bytes)(struct backend *b, const struct kv_config *config);
    /* Divides `bytes` of host memory into slots of each kind of blocks in the cache's proportion,
     * at least one slot per kind that the cache uses. swap_reserve allocates their memory. Fails
     * with STATUS_USAGE if the staging buffers cannot be allocated. */
    enum status (*swap_new)(struct backend *b, struct kv_swap **out, struct kv_cache *cache,
                            int64_t bytes, int n_slots[N_BLOCK_KINDS], struct err *err);
    void (*swap_free)(struct backend *b, struct kv_swap *swap); /* before its cache */
    /* Allocates the memory of slots 0..n-1 of one kind. Returns false if memory is short. */
    bool (*swap_reserve)(struct backend *b, struct kv_swap *swap, enum block_kind kind, int n);
    /* Queues copies of block[i] to slot[i] for i < n, of blocks of one kind. A copy has the
     * block's content after all steps begun so far; later steps may write the block at once. The
     * lists are read before this returns. */
    void (*swap_out)(struct backend *b, struct kv_swap *swap, enum block_kind kind,
                     const int32_t *block, const int32_t *slot, int n);
    /* Queues copies of slot[i] to block[i]. No step may use these blocks until swap_arrive. The
     * slots may be reused at once. */
    void (*swap_in)(struct backend *b, struct kv_swap *swap, enum block_kind kind,
                    const int32_t *slot, const int32_t *block, int n);
    /* Makes the blocks copied by swap_in visible to the steps that begin after this call. */
    void (*swap_arrive)(struct backend *b, struct kv_swap *swap);
};

#endif
