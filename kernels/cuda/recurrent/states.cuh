/* states: the state pool on the device. A state holds the numbers of one sequence in all recurrent
 * layers, float32 whatever the type of activations. The scheduler owns the states' numbers
 * (scheduler/kv); the cache owns the memory:
 *
 *     states   [n_states][state_layers][state_floats]
 *
 * A step reads and replaces the state of each of its sequences. A fork and a kept prefix take a
 * copy before the step's ops; a draft takes one inside them, after its row (struct step). All
 * functions queue work on the stream of the steps, so the order of steps is the order of accesses.
 */
#ifndef PENSTOCK_CUDA_STATES_CUH
#define PENSTOCK_CUDA_STATES_CUH

#include "kernels/cuda/runtime/device.cuh"

/* The states of one layer, and a step's use of them. Pointers are device memory. A sequence without
 * rows is padding: its state is neither read nor written. */
struct state_rows {
    float *states;            /* of the layer; those of state s begin at s * stride */
    size_t stride;            /* numbers between two states */
    int S;                    /* sequences */
    const int32_t *row_start; /* [S + 1] */
    const int32_t *state;     /* [S] */
    const int32_t *after;     /* [M] the state that gets a copy after the row, or -1 */
    const int32_t *position;  /* [M] */
};

/* Returns the bytes of all states, or SIZE_MAX on overflow; 0 without recurrent layers. */
size_t states_bytes(const struct kv_config *config);

/* Allocates the states of a cache, filled with zeros. Fails with STATUS_USAGE if memory is short.
 * Without recurrent layers it does nothing. states_free frees them; the stream must be idle. */
enum status states_new(struct kv_cache *cache, const struct kv_config *config, struct err *err);
void states_free(struct kv_cache *cache);

/* Returns the states of a recurrent layer for the step. */
struct state_rows states_of(const struct kv_cache *cache, int layer,
                            const struct device_step *step);

/* Copies state from[i] to to[i] in all layers, for i < n, concurrently: no state may be both source
 * and target, or target twice. The lists are device memory. */
void states_copy(struct kv_cache *cache, const int32_t *from, const int32_t *to, int n,
                 cudaStream_t stream);

#endif
