/* cuda_emu: the internal interface of the emulation.
 *
 *   include/       the headers of emulated kernels   memory.cpp   device memory and its guards
 *   fiber.cpp      switching stacks                  shared.cpp   shared memory
 *   block.cpp      the threads of a block            stream.cpp   streams, events, graphs
 *   together.cpp   blocks that are alive at the same time
 *   warp.cpp       operations of a warp's lanes      launch.cpp   checking and running a grid
 *   barriers.cpp   mbarriers, bulk copies            wgmma.cpp    products of warpgroups
 *   runtime.cpp    the rest of the CUDA runtime      report.cpp   errors
 *   failure.cpp    calls that fail on a test's request
 *   checker*.cpp   races, bounds, initialization; checker_absent.cpp replaces it
 *
 * Settings, from the environment:
 *   CUDA_EMU_ORDER   fifo, lifo or random (default): the order in which threads and blocks run
 *   CUDA_EMU_SEED    seed of the random order; default 1
 *   CUDA_EMU_DEVICES number of devices, which share their memory; default 1
 *   CUDA_EMU_LAZY    0: streams run immediately, not as late as the rules allow; random:
 *                    one or the other
 *   CUDA_EMU_ARCH    80: a device that runs one grid of a stream at a time; default 90. It also
 *                    sets the limit of shared memory per block
 *   CUDA_EMU_PTX     80: kernels that the driver has compiled from such PTX; default: as
 *                    CUDA_EMU_ARCH
 *   CUDA_EMU_FAIL    the name of a call of the runtime that always fails
 *   CUDA_EMU_BREAK   selects the call that fails (failure.cpp)
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
/* Dynamic shared memory of a launch without a higher limit. A device has 48 KiB, but subtracts a
 * kernel's __shared__ variables, whose size is unknown here: 1 KiB is assumed.
 * SHARED_MOST is the largest of all architectures. */
enum { SHARED_DEFAULT = 47 << 10, SHARED_MOST = 227 << 10 };

/* ---- host threads --------------------------------------------------------------------------- */

/* While a `turn` exists, the calls of other threads wait: calls and kernels run on one thread at a
 * time. */
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
bool stream_runs_now(); /* does work run as soon as it is queued? */
unsigned random_below(unsigned n);
int architecture();
/* Returns the maximum bytes of shared memory of a block on this architecture. */
int shared_most();
int ptx_version();
/* Should this call fail? Only for calls that can fail. */
bool is_told_to_fail(const char *call);

/* Sets the kernel to which errors are attributed. */
void report_kernel(const void *kernel);

/* ---- fibers --------------------------------------------------------------------------------- */

enum { STACK_BYTES = 256 << 10 };
struct fiber {
    void *saved = nullptr; /* stack pointer while it does not run */
    char *stack = nullptr;
    size_t stack_bytes = 0;
    void *fake_stack = nullptr; /* of the address sanitizer */
};
void fiber_prepare(fiber *f, char *stack, void (*entry)());
/* Both take the fiber that runs now. `ends`: it will not run again. */
void fiber_switch(fiber *from, fiber *to, bool ends);
/* Must be called first by an entry function. */
void fiber_started();

/* ---- a block -------------------------------------------------------------------------------- */

/* Creates the threads of a block. begins_early: the grid may begin before earlier grids have ended,
 * and each thread must wait for them. with_others: the block may pause, so that other blocks of the
 * grid continue. */
void block_begin(const dim3 &threads, const uint3 &index, const body &body, bool begins_early,
                 bool with_others);
/* Runs the threads until all have ended, until the block pauses, or until a deadlock, which is
 * reported. */
enum class turn_end { ENDED, PAUSED, HALTED };
turn_end block_run();
/* Returns in words the place of the first thread that sleeps. */
std::string block_sleeps_at();
/* Saves the current state under a number, and restores the state that was saved there. Blocks that
 * are alive at the same time are saved between their turns. */
void block_swap(size_t number);
/* Are the blocks of the grid alive at the same time? */
bool blocks_live_together();
/* Runs the blocks of a grid in turns. They are numbered in the order in which they begin. */
void run_together(const cudaLaunchConfig_t &config, const body &body,
                  const std::vector<unsigned> &blocks);
/* Counts events that a thread may have waited for. */
unsigned long block_progress();
/* Returns the maximum number of blocks of a kernel that the device holds at the same time. */
unsigned blocks_at_once(unsigned threads, size_t dynamic_bytes);
unsigned blocks_per_multiprocessor(unsigned threads, size_t dynamic_bytes);
/* Converts a block's number in the grid to its index. */
uint3 block_index(const dim3 &grid, unsigned number);
/* Returns blocks, or numbers below n, in the order in which they run. */
std::vector<unsigned> block_order(size_t n);
/* Has the running thread not waited for earlier grids yet? */
bool is_early();
bool in_kernel();
int running_thread(); /* its number in the block */
/* The running thread waits until another one calls wake with the same `what`. */
void wait_for(const void *what, site at);
bool is_waited_for(const void *what);
void wake(const void *what);
const char *block_stacks(); /* of the block that runs: MAX_THREADS times STACK_BYTES */

/* ---- sums of tensor cores: sums.cpp ---------------------------------------------------------- */

constexpr int MAX_DEPTH = 32, MAX_COLUMNS = 256;

/* How many products are added at once to the start, and the bits of a term below the largest
 * exponent, and of the result. */
struct sum_rule {
    int terms, bits, output;
};
/* Returns the rule for products of 16 bits by mma.sync of the emulated architecture. */
sum_rule rule_of_mma();
/* Returns the rule of wgmma for elements of `width` bytes. */
sum_rule rule_of_wgmma(int width);

/* Elements with their exponents. `special`: one of them is infinite or NaN. */
using element_function = float (*)(uint16_t bits);
struct row_factors {
    float value[MAX_DEPTH];
    int16_t exponent[MAX_DEPTH];
    bool special;
    void measure(int depth, element_function element); /* after the values are set */
};
struct column_factors {
    float value[MAX_DEPTH][MAX_COLUMNS];
    int16_t exponent[MAX_DEPTH][MAX_COLUMNS];
    bool special[MAX_COLUMNS];
    void measure(int depth, int columns, element_function element);
};
/* sums[columns] += a[depth] times b[depth][columns], with the bits of a device. Columns are a
 * multiple of 8. */
void add_products(float *sums, const row_factors &a, const column_factors &b, int columns,
                  int depth, const sum_rule &rule);

/* ---- asynchronous work of a block: barriers.cpp, wgmma.cpp ----------------------------------- */

void async_begin(); /* when a block begins */
void async_end();   /* when all threads of the block have ended */
bool land_one();    /* lands one bulk copy; false: none is under way */
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

/* While one exists, device memory is accessible. */
struct device_scope {
    device_scope();
    ~device_scope();
};
bool is_device_memory(const void *p);
/* Returns the live allocation that contains an address, or an empty range. */
range allocation_at(const void *p);
/* Describes an address in words. */
std::string describe(const void *p);
/* Returns the piece of pinned memory that contains an address, or an empty range. */
range pinned_at(const void *p);
cudaError_t device_malloc(void **out, size_t bytes);
cudaError_t device_free(void *p);
size_t device_bytes_used();
/* Checks and copies or fills, when a stream reaches the call. */
void device_copy(void *to, const void *from, size_t bytes);
void device_fill(void *to, int value, size_t bytes);

/* ---- shared memory -------------------------------------------------------------------------- */

void shared_plan(size_t dynamic_bytes); /* before a grid */
void shared_fill();                     /* before a block, whose contents are undefined */
void shared_check();                    /* after a block: fails unless the guards are unchanged */
void shared_swap(size_t number);        /* like block_swap, for the contents */
std::string shared_describe(const void *p); /* empty if it is not shared memory */

enum class place { ELSEWHERE, SHARED, GUARD };
/* Are n bytes of the program's image in one shared variable, in a guard, or elsewhere? */
place static_place(const void *p, size_t n);
range dynamic_range();  /* dynamic shared memory of this launch */
range dynamic_window(); /* the largest possible dynamic shared memory */

/* ---- streams -------------------------------------------------------------------------------- */

using work = std::function<void()>;

/* A vector clock: for each stream, by number, how much of its work has happened before. */
struct stream_clock {
    std::vector<uint32_t> passed;
    void join(const stream_clock &other);
};
cudaError_t enqueue(cudaStream_t stream, work what);
/* The same for work that may be blocked: `ready` says whether it may run now. It is called only
 * between other work of the stream, any number of times. */
using readiness = std::function<bool()>;
cudaError_t enqueue_when(cudaStream_t stream, readiness ready, work what);
void run_all_streams();      /* only because this is simple: the host does not learn from it */
void wait_for_all_streams(); /* for a call that waits for the device */
/* Is the stream under capture? */
bool in_capture(cudaStream_t stream);
/* Counts a copy or a launch for emu_between_graphs. */
void count_queued(cudaStream_t stream, enum emu_call kind);
/* Refuses a call that a stream under capture forbids. */
bool refuse_in_capture(const char *what);
cudaError_t set_error(cudaError_t error);
/* Discards all queued work. */
void drop_all_streams();

/* ---- failures ------------------------------------------------------------------------------- */

/* Returns the error that a call of this kind must return immediately, because the device is broken
 * or the test has selected this call; otherwise cudaSuccess. */
cudaError_t call_fails(enum emu_call kind);
/* Is the device broken? Work that was queued before is lost and never runs. */
bool device_is_broken();

/* ---- the checker ---------------------------------------------------------------------------- */

/* These calls follow the order of the events. Threads are numbered within their block. */
void checker_stacks(const char *stacks);
void checker_allocated(const void *p, size_t bytes);
void checker_freed(const void *p);
void checker_pinned(const void *p, size_t bytes);
void checker_unpinned(const void *p);
/* Until the next call, work of this stream runs. All work in the clock has happened before. */
void checker_work(unsigned stream, const stream_clock &clock);
/* A copy has run; from == NULL: a fill. */
void checker_copied(const void *to, const void *from, size_t bytes);
void checker_grid(const range &parameters, bool begins_early);
void checker_grid_ends();
void checker_block(unsigned threads);
void checker_swap(size_t number); /* like block_swap, for the block's state */
void checker_thread(int thread);  /* this thread runs from now on */
void checker_barrier();
void checker_syncwarp(int warp, unsigned lanes);
void checker_fence();
void checker_pending(const void *p, size_t n); /* cp.async: written, but not there yet */

/* Knowledge of events in a block: for each thread, all events before this clock. Threads learn of
 * each other through mbarriers. */
using knowledge = std::vector<uint32_t>;
void join_knowledge(knowledge &to, const knowledge &from);
void checker_release(knowledge &to);         /* adds the running thread's knowledge to `to` */
void checker_acquire(const knowledge &from); /* adds `from` to the running thread's knowledge */
/* The async proxy (bulk copies, wgmma) reads for the running thread: ordinary writes must have been
 * fenced. */
void checker_async_read(const void *p, size_t n);
/* The async proxy will write. Returns the clock of this write. */
uint32_t checker_async_write(const void *p, size_t n);
/* The async proxy has written for the thread with this clock; `to` then includes the write. */
void checker_landed(const void *p, size_t n, int thread, uint32_t when, knowledge &to);
void checker_proxy_fence();
void checker_access(const void *p, size_t n, bool write, bool atomic, const void *pc);

} // namespace emu

#endif
