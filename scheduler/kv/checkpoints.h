/* checkpoints: states of recurrent layers that are kept at the ends of known blocks, so that a
 * prefix hit has a state to start from.
 *
 * Blocks keep the rows of all positions, but a state is replaced by each row. So a sequence can
 * start after a known block only if the state at that place was kept:
 *
 *     known blocks   [b0][b1][b2][b3][b4][b5]
 *     checkpoints             ^           ^        the states 7 and 4, after b2 and after b5
 *     a prompt       [b0][b1][b2][b3][b4]          4 known blocks and a new one:
 *     its hit        [b0][b1][b2]                  it starts after b2, from a copy of state 7
 *
 * Checkpoints are due at every multiple of `every` tokens, and at the last full block of a prompt
 * before its last token. A step ends the rows of a sequence there. The commit adds a checkpoint: it
 * holds a reference to the state of the sequence, which copies the state before it computes again,
 * as a fork does (state_pool.h). A hit shares the state in the same way.
 *
 * A checkpoint is dropped with its block, or if it is the least recently used one when there is no
 * room for another. checkpoints_init allocates all memory. Engine thread only.
 */
#ifndef PENSTOCK_CHECKPOINTS_H
#define PENSTOCK_CHECKPOINTS_H

#include "scheduler/kv/block_pool.h"
#include "scheduler/kv/state_pool.h"

struct checkpoint {
    int32_t block, state; /* block -1: unused */
    int32_t prev, next;   /* in the list by age, oldest first, or in that of the unused ones */
};

/* Called on the engine thread about checkpoints of known blocks. They must not change the pools. */
struct checkpoint_observer {
    /* The block has a checkpoint from now on. Its state is computed. */
    void (*on_keep)(void *arg, int32_t block, int32_t state);
    void (*on_drop)(void *arg, int32_t block); /* it is about to lose it */
    void *arg;
};

/* The tokens after which checkpoints are due. */
struct checkpoint_places {
    int every; /* multiples of this number of tokens, which is a multiple of the block size */
    int least; /* the end of a prompt, if it is at least this number of tokens after the last one */
};

struct checkpoints {
    int n; /* maximum number; 0: none are kept, and the rest is unused */
    int n_used;
    struct checkpoint_places places;
    int block_size;
    struct state_pool *states;
    struct checkpoint *checkpoint;       /* [n + 2]; the last two are the heads of the lists */
    int32_t *of;                         /* [n_blocks] the checkpoint of each block, or -1 */
    struct checkpoint_observer observer; /* all NULL: none */
};

/* Allocates room for n checkpoints, and observes `pool`; frees it, and releases their states. If n
 * is 0, nothing is observed. `pool` and `states` must outlive the checkpoints. */
void checkpoints_init(struct checkpoints *checkpoints, int n,
                      const struct checkpoint_places *places, struct block_pool *pool,
                      struct state_pool *states);
void checkpoints_free(struct checkpoints *checkpoints);

/* Adds the observer. There must be room for checkpoints, and no observer. */
void checkpoints_observe(struct checkpoints *checkpoints,
                         const struct checkpoint_observer *observer);

/* Returns the next number of tokens after `from` at which a sequence with a prompt of n_prompt
 * tokens has a checkpoint; INT_MAX without checkpoints. */
int checkpoints_next(const struct checkpoints *checkpoints, int from, int n_prompt);

/* Is a checkpoint due after the first n tokens? */
bool checkpoints_due(const struct checkpoints *checkpoints, int n, int n_prompt);

/* Returns how many of the n blocks can be used by a sequence that starts after them: up to the last
 * one with a checkpoint. */
int checkpoints_usable(const struct checkpoints *checkpoints, const int32_t *block, int n);

/* Keeps the state after a known block, and shares it. If the block has a checkpoint already, that
 * one becomes the most recently used. If there is no room, the oldest one is dropped. */
void checkpoints_add(struct checkpoints *checkpoints, int32_t block, int32_t state);

/* Adds a checkpoint after a known block without one, and returns its state. The caller must fill
 * the state before the next step. The observer is not told. If there is no room, the oldest
 * checkpoint is dropped; then a state must be free. */
int32_t checkpoints_restore(struct checkpoints *checkpoints, int32_t block);

/* Returns the state of the checkpoint of a block, with a reference for the caller. */
int32_t checkpoints_use(struct checkpoints *checkpoints, int32_t block);

/* Returns the number of checkpoints whose states no sequence shares. */
int checkpoints_idle(const struct checkpoints *checkpoints);

#endif
