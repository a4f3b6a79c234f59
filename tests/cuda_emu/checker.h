/* The checker's internal interface. checker.cpp keeps the accesses to each byte. checker_order.cpp
 * orders events within a grid, checker_streams.cpp between streams. checker_hooks.cpp receives the
 * compiler's calls. */
#ifndef CUDA_EMU_CHECKER_H
#define CUDA_EMU_CHECKER_H

#include "internal.h"

namespace emu {

/* A point in a thread's execution. Epochs number the periods between barriers over the whole run of
 * the program. Clocks count a thread's __syncwarp calls and fences in its block. Epoch 0 is before
 * everything. */
struct event {
    uint32_t epoch = 0;
    uint32_t thread : 10 = 0, clock : 22 = 0;
};

enum class relation { ORDERED, RACE, BLOCK_RACE, STREAM_RACE };

/* The running thread's current time. */
event order_now();
/* Has the event happened before the running thread's current time, as far as the rules guarantee?
 */
relation order_of(const event &e);
/* Ends a period of the running thread and returns the clock of the next one. */
uint32_t order_tick();
/* Was the write at `e` fenced for the async proxy before the running thread's current time? */
bool order_is_fenced(const event &e);
/* Was the event in this block? In another block of this grid? */
bool order_is_block(const event &e);
bool order_is_grid(const event &e);
/* Records an atomic of the running thread on global memory. */
void order_atomic(uintptr_t address, bool write);

/* Does the event belong to a grid that may still run when an early one begins? */
bool order_is_in_front(const event &e);
void order_grid(bool begins_early);
/* A copy runs: all earlier grids of its stream have ended. Returns the copy's time. */
event order_copy();
void order_block(unsigned threads);
void order_swap(size_t number); /* like block_swap */
void order_thread(int thread);

/* A grid or a copy of the current stream begins. It owns the epochs from this one on. */
void streams_begin(uint32_t epoch);
unsigned streams_current(); /* the number of the current stream */
/* The epoch is one of an earlier grid or copy. Was it in the current stream? Has it ended before
 * the current work begins, in any order of the streams? */
bool streams_is_own(uint32_t epoch);
bool streams_ordered(uint32_t epoch);

} // namespace emu

#endif
