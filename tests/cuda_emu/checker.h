/* The checker's inside: checker.cpp keeps what was done to each byte, checker_order.cpp knows what
 * happened before what in a grid, checker_streams.cpp between streams, checker_hooks.cpp takes the
 * compiler's calls. */
#ifndef CUDA_EMU_CHECKER_H
#define CUDA_EMU_CHECKER_H

#include "internal.h"

namespace emu {

/* A point in a thread's life. Epochs number the stretches between barriers over the whole run of
 * the program, clocks count a thread's __syncwarp and fences in its block. Epoch 0 is before
 * everything. */
struct event {
    uint32_t epoch = 0;
    uint32_t thread : 10 = 0, clock : 22 = 0;
};

enum class relation { ORDERED, RACE, BLOCK_RACE, STREAM_RACE };

/* The running thread's now. */
event order_now();
/* Has the event happened before the running thread's now, as far as the rules promise? */
relation order_of(const event &e);
/* Ends a stretch of the running thread; returns the clock of the next one. */
uint32_t order_tick();
/* Has its thread's write been fenced for the async proxy before the running thread's now? */
bool order_is_fenced(const event &e);
/* The event was in this block, in another one of this grid. */
bool order_is_block(const event &e);
bool order_is_grid(const event &e);
/* The running thread does an atomic on global memory. */
void order_atomic(uintptr_t address, bool write);

/* Is the event of a grid that may still run when an early one begins? */
bool order_is_in_front(const event &e);
void order_grid(bool begins_early);
/* A copy runs: all grids before it in its stream have ended. Returns the copy's now. */
event order_copy();
void order_block(unsigned threads);
void order_swap(size_t number); /* as block_swap */
void order_thread(int thread);

/* A grid or a copy of the stream at work begins: the epochs from this one on are its own. */
void streams_begin(uint32_t epoch);
unsigned streams_current(); /* the number of the stream at work */
/* Was the epoch, one of an earlier grid or copy, in the stream at work? Has it ended before what
 * runs now begins, whatever the order in which streams run? */
bool streams_is_own(uint32_t epoch);
bool streams_ordered(uint32_t epoch);

} // namespace emu

#endif
