/* DESIGN: the threads of a block.
 *
 * Each CUDA thread is a fiber. It runs until it ends, waits (at a barrier, or for the other lanes
 * of a warp's collective), or reaches a point where another thread may run first. Then one of the
 * ready threads is selected: in order, in reverse or at random. The last thread to arrive at a
 * barrier or a collective completes it and makes the others ready. If no thread is ready and some
 * wait, the block is deadlocked: this is reported with the threads' places, and the grid is
 * abandoned. Its waiting fibers never continue; the next block reuses their stacks.
 *
 * Threads that have ended count as arrived at barriers and collectives, as on current devices. All
 * threads that wait at a barrier must wait at the same line, and so must lanes in the same
 * collective. Other threads wait for an object: an mbarrier, the rest of a warpgroup. If no thread
 * is ready, a bulk copy lands if one is under way (barriers.cpp).
 *
 * If the blocks of a grid are alive at the same time (together.cpp), a thread that calls
 * __nanosleep sleeps until its block's next turn. The turn ends when no thread of the block is
 * ready, or at random before an atomic. The state of a running block is a `live_block`. Another
 * block's state replaces it.
 */
#include <array>
#include <deque>
#include <map>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "internal.h"

/* The running thread's variables. Device code sees them as constants. */
uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace emu {

enum class life { READY, AT_BARRIER, IN_WARP, WAITING, ASLEEP, ENDED };

struct async_copy {
    void *to;
    const void *from;
    int bytes, total;
};

struct thread {
    struct fiber fiber;
    uint3 index;
    int number, lane, warp;
    life state;
    site at;       /* the place where it waits */
    int predicate; /* the thread's predicate at the barrier, then the count of predicates */
    unsigned mask; /* of the collective */
    exchange fn;
    void *argument;
    bool orders_memory;
    const void *awaited;                        /* the object it waits for, if WAITING */
    bool has_waited;                            /* for the grids before this one */
    std::deque<std::vector<async_copy>> groups; /* committed */
    std::vector<async_copy> open_group;
};

/* Lanes of a warp that have not ended, and those of them that wait in a collective. */
struct warp_lanes {
    unsigned alive, waiting;
};

/* The state of a running block. */
struct live_block {
    uint3 index;
    std::vector<thread> threads;
    std::array<warp_lanes, MAX_THREADS / WARP> warps;
    std::vector<thread *> ready; /* valid from next_ready on */
    size_t next_ready;
    unsigned n_threads, n_ended, n_at_barrier;
    unsigned long n_spins;
    bool halted;
    char *stacks; /* MAX_THREADS stacks; NULL: not allocated yet */
};

static live_block here;                   /* the block that runs */
static std::vector<live_block> elsewhere; /* by number in the grid */
static auto &threads = here.threads;
static auto &warps = here.warps;
static auto &ready = here.ready;
static auto &next_ready = here.next_ready;
static auto &n_threads = here.n_threads, &n_ended = here.n_ended;
static auto &n_at_barrier = here.n_at_barrier;
static auto &n_spins = here.n_spins;
static auto &halted = here.halted;
static thread_local thread *running; /* NULL: the host */
static fiber host;
static const body *running_body;
static bool grid_begins_early, lives_with_others;
static unsigned long progress; /* counts events that other threads and blocks may wait for */

enum : unsigned long { MAX_SPINS = 20000000 }; /* switches at atomics, per block */

bool in_kernel() {
    return running != nullptr;
}

int lane() {
    return running->lane;
}

const char *block_stacks() {
    if (!here.stacks)
        here.stacks = static_cast<char *>(mmap(nullptr, (size_t)STACK_BYTES * MAX_THREADS,
                                               PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    return here.stacks;
}

/* ---- selecting the thread that runs ---------------------------------------------------------- */

static void make_ready(thread *t) {
    if (t->state == life::IN_WARP) warps[t->warp].waiting &= ~(1u << t->lane);
    t->state = life::READY;
    ready.push_back(t);
}

static thread *pick() {
    static const order how = running_order();
    if (next_ready == ready.size()) {
        ready.clear();
        next_ready = 0;
        return nullptr;
    }
    if (how == order::FIFO) return ready[next_ready++];
    size_t n = ready.size() - next_ready,
           i = how == order::LIFO ? n - 1 : random_below((unsigned)n);
    std::swap(ready[next_ready + i], ready.back());
    thread *t = ready.back();
    ready.pop_back();
    return t;
}

static void halt() {
    /* the number of threads that wait there, and the first one */
    std::map<std::string, std::pair<int, int>> places;
    for (unsigned i = 0; i < n_threads; i++) {
        const thread &t = threads[i];
        if (t.state == life::READY || t.state == life::ENDED) continue;
        auto &place = places[std::string(t.at.file) + ":" + std::to_string(t.at.line)];
        if (place.first++ == 0) place.second = t.number;
    }
    std::string text;
    for (auto &place : places)
        text += "; " + std::to_string(place.second.first) + " wait at " + place.first +
                ", the first is thread " + std::to_string(place.second.second);
    report("deadlock", "%u of %u threads have ended%s", n_ended, n_threads, text.c_str());
    halted = true;
}

static bool somebody_sleeps() {
    for (unsigned i = 0; i < n_threads; i++)
        if (threads[i].state == life::ASLEEP) return true;
    return false;
}

/* Runs another thread. The running thread has set its state to the reason why it stops. */
static void run_another() {
    thread *me = running, *next = halted ? nullptr : pick();
    while (!next && !halted && n_ended < n_threads && land_one()) next = pick();
    if (next == me) return;
    if (!next && n_ended < n_threads && !halted && !somebody_sleeps()) halt();
    running = next;
    if (next) {
        threadIdx = next->index;
        checker_thread(next->number);
    }
    fiber_switch(&me->fiber, next ? &next->fiber : &host, me->state == life::ENDED);
}

static void count_spin() {
    if (n_spins++ <= MAX_SPINS) return;
    report("no progress", "a block has waited for too long");
    halted = true;
}

/* Another block continues. The running thread stays ready and continues later. */
static void end_turn() {
    thread *me = running;
    progress++;
    running = nullptr;
    fiber_switch(&me->fiber, &host, false);
}

void maybe_switch() {
    if (!running) return;
    count_spin();
    if (!halted && random_below(4) != 0) return;
    make_ready(running);
    if (lives_with_others && !halted && random_below(4) == 0) return end_turn();
    run_another();
}

void sleep(site at) {
    if (!running || !lives_with_others) return maybe_switch();
    count_spin();
    running->state = life::ASLEEP;
    running->at = at;
    run_another();
}

void note_progress() {
    progress++;
}

unsigned long block_progress() {
    return progress;
}

int running_thread() {
    return running->number;
}

void wait_for(const void *what, site at) {
    running->state = life::WAITING;
    running->awaited = what;
    running->at = at;
    run_another();
}

bool is_waited_for(const void *what) {
    for (unsigned i = 0; i < n_threads; i++)
        if (threads[i].state == life::WAITING && threads[i].awaited == what) return true;
    return false;
}

void wake(const void *what) {
    for (unsigned i = 0; i < n_threads; i++)
        if (threads[i].state == life::WAITING && threads[i].awaited == what)
            make_ready(&threads[i]);
}

/* ---- barriers ------------------------------------------------------------------------------- */

static bool stand_together(const site &a, const site &b) {
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

/* Completes the barrier if all threads that have not ended are there. */
static void try_barrier() {
    if (n_at_barrier == 0 || n_at_barrier + n_ended < n_threads) return;
    int count = 0;
    const thread *first = nullptr;
    for (unsigned i = 0; i < n_threads; i++) {
        thread &t = threads[i];
        if (t.state != life::AT_BARRIER) continue;
        if (!first) first = &t;
        if (!stand_together(first->at, t.at)) {
            report("barrier divergence", "threads wait at %s:%d and at %s:%d", first->at.file,
                   first->at.line, t.at.file, t.at.line);
            halted = true;
            return;
        }
        count += t.predicate;
    }
    checker_barrier();
    progress++;
    n_at_barrier = 0;
    for (unsigned i = 0; i < n_threads; i++) {
        if (threads[i].state != life::AT_BARRIER) continue;
        threads[i].predicate = count;
        make_ready(&threads[i]);
    }
}

int barrier(int predicate, site at) {
    thread *me = running;
    me->state = life::AT_BARRIER;
    me->predicate = predicate;
    me->at = at;
    n_at_barrier++;
    try_barrier();
    run_another();
    return me->predicate;
}

/* ---- warps ---------------------------------------------------------------------------------- */

static thread *lane_of(const thread *t, int lane) {
    unsigned number = (unsigned)(t->warp * WARP + lane);
    return number < n_threads ? &threads[number] : nullptr;
}

static bool do_the_same(const thread *a, const thread *b) {
    if (a->mask == b->mask && a->fn == b->fn && stand_together(a->at, b->at)) return true;
    report("warp divergence", "lanes wait at %s:%d with mask %08x and at %s:%d with mask %08x",
           a->at.file, a->at.line, a->mask, b->at.file, b->at.line, b->mask);
    halted = true;
    return false;
}

/* Completes t's collective if all lanes of its mask that have not ended are there. */
static void try_warp(thread *t) {
    void *arguments[WARP] = {};
    unsigned present = 0;
    if (t->mask & warps[t->warp].alive & ~warps[t->warp].waiting) return;
    for (int l = 0; l < WARP; l++) {
        thread *other = t->mask >> l & 1 ? lane_of(t, l) : nullptr;
        if (!other || other->state == life::ENDED) continue;
        if (!do_the_same(t, other)) return;
        arguments[l] = other->argument;
        present |= 1u << l;
    }
    if (t->fn) t->fn(arguments, present);
    if (t->orders_memory) checker_syncwarp(t->warp, present);
    progress++;
    for (int l = 0; l < WARP; l++)
        if (present >> l & 1) make_ready(lane_of(t, l));
}

void warp_collective(unsigned mask, exchange fn, void *argument, bool orders_memory, site at) {
    thread *me = running;
    if (!(mask >> me->lane & 1)) {
        report("warp mask", "%s:%d: lane %d is not in its own mask %08x", at.file, at.line,
               me->lane, mask);
        return;
    }
    me->state = life::IN_WARP;
    warps[me->warp].waiting |= 1u << me->lane;
    me->mask = mask;
    me->fn = fn;
    me->argument = argument;
    me->orders_memory = orders_memory;
    me->at = at;
    try_warp(me);
    run_another();
}

/* ---- asynchronous copies -------------------------------------------------------------------- */

/* The bytes land at the wait. Until then the destination holds rubbish, so that a missing wait is
 * found. */
void cp_async(void *to, const void *from, int bytes, int total) {
    if ((uintptr_t)to % 16 || (bytes && (uintptr_t)from % 16))
        report("misaligned", "cp.async from %p to %p", from, to);
    if (bytes) note_access(from, (size_t)bytes, false, false);
    note_access(to, (size_t)total, true, false);
    memset(to, 0xff, (size_t)total);
    checker_pending(to, (size_t)total);
    running->open_group.push_back({to, from, bytes, total});
}

void cp_async_commit() {
    running->groups.push_back(std::move(running->open_group));
    running->open_group.clear();
}

void cp_async_wait(int pending) {
    auto &groups = running->groups;
    for (; (int)groups.size() > pending; groups.pop_front()) {
        for (const async_copy &copy : groups.front()) {
            note_access(copy.to, (size_t)copy.total, true, false);
            memcpy(copy.to, copy.from, (size_t)copy.bytes);
            memset(static_cast<char *>(copy.to) + copy.bytes, 0, (size_t)(copy.total - copy.bytes));
        }
    }
}

/* ---- grids before this one ------------------------------------------------------------------ */

void grid_wait() {
    running->has_waited = true;
}

bool is_early() {
    return grid_begins_early && running && !running->has_waited;
}

/* ---- a block -------------------------------------------------------------------------------- */

/* The thread has returned from the kernel. Others may have waited only for this thread. */
static void end_thread(thread *me) {
    if (!me->open_group.empty() || !me->groups.empty())
        report("cp.async", "a thread ends with copies that it never waited for");
    wgmma_end(me->number);
    /* the grid may end before earlier grids, and a wait for it would not reveal that */
    if (is_early())
        report("early grid",
               "a thread ends that has not waited for the grids before it: grid_wait");
    me->state = life::ENDED;
    progress++;
    warps[me->warp].alive &= ~(1u << me->lane);
    n_ended++;
    for (int l = 0; l < WARP; l++) {
        thread *other = lane_of(me, l);
        if (!other || other->state != life::IN_WARP || !(other->mask >> me->lane & 1)) continue;
        try_warp(other);
        break;
    }
    try_barrier();
}

static void run_thread() {
    fiber_started();
    running_body->call(running_body->parameters.get());
    end_thread(running);
    run_another();
    __builtin_unreachable();
}

static void prepare_threads(const dim3 &size) {
    char *stacks = const_cast<char *>(block_stacks());
    n_threads = size.x * size.y * size.z;
    if (threads.size() < n_threads) threads.resize(n_threads);
    n_ended = n_at_barrier = 0;
    n_spins = 0;
    halted = false;
    ready.clear();
    next_ready = 0;
    warps = {};
    async_begin();
    wgmma_begin(n_threads);
    for (unsigned i = 0; i < n_threads; i++) {
        thread *t = &threads[i];
        t->number = (int)i;
        t->lane = (int)i % WARP;
        t->warp = (int)i / WARP;
        t->index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
        t->open_group.clear();
        t->groups.clear();
        t->has_waited = false;
        t->state = life::READY;
        warps[t->warp].alive |= 1u << t->lane;
        fiber_prepare(&t->fiber, stacks + (size_t)STACK_BYTES * i, run_thread);
        make_ready(t);
    }
}

void block_begin(const dim3 &size, const uint3 &index, const body &body, bool begins_early,
                 bool with_others) {
    running_body = &body;
    grid_begins_early = begins_early;
    lives_with_others = with_others;
    here.index = index;
    prepare_threads(size);
}

turn_end block_run() {
    host = {}; /* the host may be another thread now */
    blockIdx = here.index;
    for (unsigned i = 0; i < n_threads; i++)
        if (threads[i].state == life::ASLEEP) make_ready(&threads[i]);
    running = pick();
    threadIdx = running->index;
    checker_thread(running->number);
    fiber_switch(&host, &running->fiber, false);
    running = nullptr;
    if (halted) return turn_end::HALTED;
    if (n_ended < n_threads) return turn_end::PAUSED;
    async_end();
    return turn_end::ENDED;
}

std::string block_sleeps_at() {
    for (unsigned i = 0; i < n_threads; i++)
        if (threads[i].state == life::ASLEEP)
            return std::string(threads[i].at.file) + ":" + std::to_string(threads[i].at.line);
    return "an atomic";
}

void block_swap(size_t number) {
    if (elsewhere.size() <= number) elsewhere.resize(number + 1);
    std::swap(here, elsewhere[number]);
}

bool blocks_live_together() {
    return lives_with_others;
}

} // namespace emu
