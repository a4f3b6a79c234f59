/* cuda_emu: the inside of the emulation.
 *
 *   include/       what emulated kernels see       memory.cpp   device memory and its guards
 *   fiber.cpp      switching stacks                shared.cpp   shared memory
 *   block.cpp      the threads of a block          stream.cpp   streams, events, graphs
 *   together.cpp   blocks that live at once
 *   warp.cpp       what lanes do together          launch.cpp   checking and running a grid
 *   barriers.cpp   mbarriers, bulk copies          wgmma.cpp    products of warpgroups
 *   runtime.cpp    the rest of the CUDA runtime    report.cpp   errors
 *   failure.cpp    calls that fail because a test wants it
 *   checker*.cpp   races, bounds, initialisation; checker_absent.cpp stands in for it
 *
 * Settings, from the environment:
 *   CUDA_EMU_ORDER   fifo, lifo or random (the default): which thread and block runs next
 *   CUDA_EMU_SEED    of the random order; 1 unless given
 *   CUDA_EMU_DEVICES how many there are, which share their memory; 1 unless given
 *   CUDA_EMU_LAZY    0: streams run at once, not as late as the rules allow; random: one or the
 *                    other
 *   CUDA_EMU_ARCH    80: a device that runs one grid of a stream at a time; 90 unless given. How
 *                    much shared memory a block may have depends on it, too
 *   CUDA_EMU_PTX     80: kernels that the driver has compiled from such PTX; as CUDA_EMU_ARCH
 *                    unless given
 *   CUDA_EMU_FAIL    the name of a call of the runtime that fails whenever it is made
 *   CUDA_EMU_BREAK   which call fails (failure.cpp)
 */
#ifndef CUDA_EMU_INTERNAL_H
#define CUDA_EMU_INTERNAL_H

#include <functional>
#include <mutex>
#include <stddef.h>
#include <stdint.h>
#include <string>
#include <vector>

#include "include/emu.h"
#include "include/emu_failure.h"

namespace emu {

enum { PAGE = 4096, WARP = 32, MAX_THREADS = 1024 };
/* Dynamic shared memory of a launch that was not allowed more: a device has 48 KiB, but counts a
 * kernel's own __shared__ variables, of which nothing is known here: they are taken for 1 KiB. */
enum { SHARED_DEFAULT = 47 << 10, SHARED_MOST = 227 << 10 }; /* the second: of any architecture */

/* ---- host threads --------------------------------------------------------------------------- */

/* While one exists, the calls of other threads wait: what is called, and kernels with it, runs on
 * one thread at a time. */
inline std::recursive_mutex one_caller;
struct turn {
    turn() {
        one_caller.lock();
    }
    ~turn() {
        one_caller.unlock();
    }
};

/* ---- settings, errors ----------------------------------------------------------------------- */

enum class order { FIFO, LIFO, RANDOM };
order running_order();
bool stream_runs_now(); /* when it gets something to do */
unsigned random_below(unsigned n);
int architecture();
/* Bytes of shared memory that a block of it may have. */
int shared_most();
int ptx_version();
/* Of the calls that know how to fail. */
bool is_told_to_fail(const char *call);

/* The kernel that errors are counted under, and the thread that they are said to come from. */
void report_kernel(const void *kernel);

/* ---- fibers --------------------------------------------------------------------------------- */

enum { STACK_BYTES = 256 << 10 };
struct fiber {
    void *saved = nullptr; /* stack pointer while it does not run */
    char *stack = nullptr;
    size_t stack_bytes = 0;
    void *fake_stack = nullptr; /* the address sanitizer's */
};
void fiber_prepare(fiber *f, char *stack, void (*entry)());
/* Both are called with the fiber that runs now; `ends` when it will not run again. */
void fiber_switch(fiber *from, fiber *to, bool ends);
/* The first thing that an entry function does. */
void fiber_started();

/* ---- a block -------------------------------------------------------------------------------- */

/* Makes the threads of a block. If the grid may begin before earlier grids have ended, each of them
 * must wait for that. `with_others`: a block may pause, so that others of the grid go on. */
void block_begin(const dim3 &threads, const uint3 &index, const body &body, bool begins_early,
                 bool with_others);
/* Runs them until all have ended, or the block pauses, or after a deadlock, which is reported. */
enum class turn_end { ENDED, PAUSED, HALTED };
turn_end block_run();
/* Where the first thread sleeps that does, in words. */
std::string block_sleeps_at();
/* Puts what runs here away under a number, and what was put away there in its place: of blocks that
 * live at once, each is put away between its turns. */
void block_swap(size_t number);
/* Do the blocks of the grid live at once? */
bool blocks_live_together();
/* Runs the blocks of a grid, numbered in the order in which they begin, in turns. */
void run_together(const cudaLaunchConfig_t &config, const body &body,
                  const std::vector<unsigned> &blocks);
/* Grows whenever something happens that a thread may have waited for. */
unsigned long block_progress();
/* The most blocks of a kernel that the device holds at once. */
unsigned blocks_at_once(unsigned threads, size_t dynamic_bytes);
unsigned blocks_per_multiprocessor(unsigned threads, size_t dynamic_bytes);
/* The index of a block by its number in the grid. */
uint3 block_index(const dim3 &grid, unsigned number);
/* Blocks, or numbers below n, in the order in which they run. */
std::vector<unsigned> block_order(size_t n);
/* The running thread has not waited yet. */
bool is_early();
bool in_kernel();
int running_thread(); /* its number in the block */
/* The running thread waits until another one wakes all that wait for `what`. */
void wait_for(const void *what, site at);
bool is_waited_for(const void *what);
void wake(const void *what);
const char *block_stacks(); /* of the block that runs: MAX_THREADS times STACK_BYTES */

/* ---- what is asynchronous in a block: barriers.cpp, wgmma.cpp ------------------------------- */

void async_begin(); /* with a block */
void async_end();   /* ... whose threads have all ended */
bool land_one();    /* a bulk copy lands, if one is under way */
void wgmma_begin(unsigned threads);
void wgmma_end(int thread);

/* ---- memory --------------------------------------------------------------------------------- */

struct range {
    const char *start, *end;
    bool has(const void *p) const {
        return p >= start && p < end;
    }
    bool has_all(const void *p, size_t n) const {
        return p >= start && p <= end && n <= (size_t)(end - static_cast<const char *>(p));
    }
};

/* While one exists, device memory may be touched. */
struct device_scope {
    device_scope();
    ~device_scope();
};
bool is_device_memory(const void *p);
/* The live allocation that an address is in, or nothing. */
range allocation_at(const void *p);
/* Says in words what an address is. */
std::string describe(const void *p);
/* The piece of pinned memory that an address is in, or nothing. */
range pinned_at(const void *p);
cudaError_t device_malloc(void **out, size_t bytes);
cudaError_t device_free(void *p);
size_t device_bytes_used();
/* Checks and copies or fills, for a stream that has come to it. */
void device_copy(void *to, const void *from, size_t bytes);
void device_fill(void *to, int value, size_t bytes);

/* ---- shared memory -------------------------------------------------------------------------- */

void shared_plan(size_t dynamic_bytes);     /* before a grid */
void shared_fill();                         /* before a block: its contents are undefined */
void shared_check();                        /* after a block: the guards are as they were */
void shared_swap(size_t number);            /* as block_swap: the contents */
std::string shared_describe(const void *p); /* empty if it is not shared memory */

enum class place { ELSEWHERE, SHARED, GUARD };
/* Where n bytes of the program's own image are: in one shared variable, beside one, or
 * elsewhere. */
place static_place(const void *p, size_t n);
range dynamic_range();  /* dynamic shared memory as the launch asked for it */
range dynamic_window(); /* that, and what a larger request would get */

/* ---- streams -------------------------------------------------------------------------------- */

using work = std::function<void()>;

/* A vector clock: how many pieces of work of each stream, by its number, have happened before. */
struct stream_clock {
    std::vector<uint32_t> passed;
    void join(const stream_clock &other);
};
cudaError_t enqueue(cudaStream_t stream, work what);
void run_all_streams();      /* because it costs nothing here: the host learns nothing by it */
void wait_for_all_streams(); /* because a call waits for the device */
/* Is what the stream gets written down? */
bool in_capture(cudaStream_t stream);
/* Counts a copy or a launch for emu_between_graphs. */
void count_queued(cudaStream_t stream, enum emu_call kind);
/* For calls that a stream under capture forbids. */
bool refuse_in_capture(const char *what);
cudaError_t set_error(cudaError_t error);
/* What was queued will not run. */
void drop_all_streams();

/* ---- failures ------------------------------------------------------------------------------- */

/* What a call of the kind is to return at once, because the device is broken or this is the call
 * that a test wants to fail; or cudaSuccess. */
cudaError_t call_fails(enum emu_call kind);
/* What was queued before is lost, and will never run. */
bool device_is_broken();

/* ---- the checker ---------------------------------------------------------------------------- */

/* Told in the order in which things happen. Threads are numbered in their block. */
void checker_stacks(const char *stacks);
void checker_allocated(const void *p, size_t bytes);
void checker_freed(const void *p);
void checker_pinned(const void *p, size_t bytes);
void checker_unpinned(const void *p);
/* Until the next call a stream's work runs, and all that the clock says has happened before. */
void checker_work(unsigned stream, const stream_clock &clock);
/* A copy, or with NULL a fill, has run. */
void checker_copied(const void *to, const void *from, size_t bytes);
void checker_grid(const range &parameters, bool begins_early);
void checker_grid_ends();
void checker_block(unsigned threads);
void checker_swap(size_t number); /* as block_swap: what is known of the block */
void checker_thread(int thread);  /* runs from now on */
void checker_barrier();
void checker_syncwarp(int warp, unsigned lanes);
void checker_fence();
void checker_pending(const void *p, size_t n); /* cp.async: written, not there yet */

/* What is known to have happened in a block: of each thread, all before this clock. Threads learn
 * of each other by way of mbarriers. */
using knowledge = std::vector<uint32_t>;
void join_knowledge(knowledge &to, const knowledge &from);
void checker_release(knowledge &to);         /* the running thread gives what it knows */
void checker_acquire(const knowledge &from); /* ... learns */
/* The async proxy (bulk copies, wgmma) reads for the running thread: what was written without it
 * must have been fenced. */
void checker_async_read(const void *p, size_t n);
/* It will write; returns the clock that tells of this write. */
uint32_t checker_async_write(const void *p, size_t n);
/* It has written, which `to` will tell: by the thread, with its clock. */
void checker_landed(const void *p, size_t n, int thread, uint32_t when, knowledge &to);
void checker_proxy_fence();
void checker_access(const void *p, size_t n, bool write, bool atomic, const void *pc);

} // namespace emu

#endif
