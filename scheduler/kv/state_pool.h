/* state_pool: the states of recurrent layers. A layer with attention keeps rows for all positions;
 * a recurrent layer keeps one state of fixed size per sequence, and each row replaces it.
 *
 * A running sequence that has computed rows holds a state, in addition to its blocks:
 *
 *     s0      [b0][b1][b2]   state 4
 *     s0, s1  [b0][b1][b2]   state 4, with two references: s1 has forked
 *     s1      [b0][b1][b3]   state 7, a copy of 4: s1 computes
 *
 * A sequence that computes on a shared state first gets a copy of it, as of a partial block
 * (apply.c). The first row of a sequence reads no state, so a state needs no content when it is
 * acquired. A preempted sequence loses its state. It starts again after the last checkpoint in its
 * prefix (checkpoints.h), or at 0. There is one state per batch row, one per checkpoint, and some
 * for drafts (speculate.h), so acquiring never fails.
 *
 * state_pool_init allocates all memory. Engine thread only.
 */
#ifndef PENSTOCK_STATE_POOL_H
#define PENSTOCK_STATE_POOL_H

#include <assert.h>
#include <stdint.h>

struct state_pool {
    int n; /* states; 0: the model has no recurrent layers, and the rest is unused */
    int n_free;
    int32_t *free;       /* [n] stack of n_free */
    int32_t *references; /* [n] number of holders */
};

/* Allocates n free states; frees them. */
void state_pool_init(struct state_pool *pool, int n);
void state_pool_free(struct state_pool *pool);

/* Returns a free state with one reference; one must be free. */
int32_t state_pool_acquire(struct state_pool *pool);

/* Adds a reference; drops one. */
void state_pool_share(struct state_pool *pool, int32_t state);
void state_pool_release(struct state_pool *pool, int32_t state);

#endif
