/* DESIGN: the order of events in one grid.
 *
 * In a block: events before a barrier happened before all events after it. In a warp: events of a
 * lane before a __syncwarp happened before later events of the other lanes of the mask. Each thread
 * keeps, for each lane of its warp, the latest clock that it knows (a vector clock of one warp).
 * Shuffles and votes do not order memory. An mbarrier passes the knowledge of the arriving threads,
 * about all threads of the block, to the waiting threads.
 *
 * Only one pattern orders blocks, an atomic with fences on both sides:
 *
 *     block A: write ... fence ... atomic on X        block B: atomic on X ... fence ... read
 *
 * Here "..." is a thread's program order, a barrier or a __syncwarp. The fence on A's side may be
 * the writer's, or that of the thread that does the atomic after it knows of the write. An atomic
 * leaves a `release` at its address: the events that it and the fences before it cover. A thread
 * that does an atomic at that address, or loads the word with load_acquire, picks up the releases.
 * A later fence of a thread that knows of this (the same thread, or another one after a barrier)
 * makes them `acquired`. Releases include the releases that their block had acquired. If the whole
 * block knows several releases at a barrier, only each thread's last release is kept: it covers the
 * earlier ones.
 *
 * Blocks that are alive at the same time number their epochs in turns, so each epoch has one owner.
 */
#include <algorithm>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <vector>

#include "checker.h"

namespace emu {

/* A thread's place in its block, and its knowledge of its warp. */
struct view {
    event at;
    uint32_t heard[WARP];
    knowledge far; /* of the whole block, by mbarriers; empty: unknown */
};

struct release {
    size_t block;
    view at;                          /* of the atomic */
    view fence;                       /* the last fence of the thread that did the atomic */
    bool fenced;                      /* was there such a fence? */
    std::vector<uint32_t> own_fences; /* each thread's clock at its last fence before the epoch */
    std::vector<uint32_t> new_fences; /* ... and at its last fence; 0: it has not fenced */
};
using releases = std::vector<std::shared_ptr<const release>>;

/* An atomic's releases: that of its thread, and those of other blocks that it passes on. */
struct left_there {
    std::shared_ptr<const release> own;
    releases inherited;
};

/* A release that a thread of this block knows, and since when. */
struct known {
    std::shared_ptr<const release> what;
    event at;
};

/* The state of a block. */
struct block_history {
    uint32_t first;               /* first epoch */
    size_t number;                /* in the order in which blocks of the grid begin */
    std::vector<view> views;      /* of the block's threads */
    std::vector<view> last_fence; /* of each thread */
    std::vector<uint32_t> old_fences, new_fences;
    bool any_fence;
    std::vector<std::vector<view>> proxy_fences; /* of each thread */
    /* picked up by atomics; acquired by fences after them */
    std::vector<known> picked_up, acquired;
};

static uint32_t epoch = 1, grid_first;
/* Per stream: the grids that may still run when the next one begins. */
struct chain {
    uint32_t first;      /* epoch of the first one */
    bool settled = true; /* true: all have ended */
};
static std::vector<chain> chains;
static int running;
static block_history here; /* the block that runs */
static auto &views = here.views, &last_fence = here.last_fence;
static auto &old_fences = here.old_fences, &new_fences = here.new_fences;
static auto &any_fence = here.any_fence;
static auto &proxy_fences = here.proxy_fences;
static auto &picked_up = here.picked_up, &acquired = here.acquired;
static std::vector<size_t> owners; /* the block of each epoch from grid_first on */
static size_t n_blocks;            /* blocks of the grid that have begun */
static std::unordered_map<uintptr_t, std::vector<left_there>> released;

/* ---- within a block ------------------------------------------------------------------------- */

static bool happened_before(const event &e, const view &v) {
    if (e.epoch < v.at.epoch || e.thread == v.at.thread) return true;
    if (e.thread < v.far.size() && v.far[e.thread] > e.clock) return true;
    return e.thread / WARP == v.at.thread / WARP && v.heard[e.thread % WARP] > e.clock;
}

event order_now() {
    return views[(size_t)running].at;
}

bool order_is_block(const event &e) {
    const size_t at = e.epoch - grid_first; /* a copy's epoch after the grid is not in the list */
    return e.epoch >= here.first && (at >= owners.size() || owners[at] == here.number);
}

bool order_is_grid(const event &e) {
    return e.epoch >= grid_first;
}

static void tick(int thread) {
    view &v = views[(size_t)thread];
    v.at.clock++;
    v.heard[thread % WARP] = v.at.clock;
}

void checker_syncwarp(int warp, unsigned lanes) {
    uint32_t heard[WARP] = {};
    knowledge far;
    for (int l = 0; l < WARP; l++) {
        if (!(lanes >> l & 1)) continue;
        tick(warp * WARP + l);
        const view &v = views[(size_t)(warp * WARP + l)];
        for (int k = 0; k < WARP; k++) heard[k] = std::max(heard[k], v.heard[k]);
        join_knowledge(far, v.far);
    }
    for (int l = 0; l < WARP; l++) {
        if (!(lanes >> l & 1)) continue;
        std::copy_n(heard, WARP, views[(size_t)(warp * WARP + l)].heard);
        views[(size_t)(warp * WARP + l)].far = far;
    }
}

void join_knowledge(knowledge &to, const knowledge &from) {
    to.resize(std::max(to.size(), from.size()));
    for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
}

void checker_release(knowledge &to) {
    const view &v = views[(size_t)running];
    const size_t first = (size_t)running / WARP * WARP;
    tick(running);
    to.resize(std::max(to.size(), first + WARP));
    for (size_t k = 0; k < WARP; k++) to[first + k] = std::max(to[first + k], v.heard[k]);
    join_knowledge(to, v.far);
}

void checker_acquire(const knowledge &from) {
    join_knowledge(views[(size_t)running].far, from);
}

uint32_t order_tick() {
    tick(running);
    return order_now().clock;
}

void checker_proxy_fence() {
    proxy_fences[(size_t)running].push_back(views[(size_t)running]);
    tick(running);
}

/* The fence may be the writer's, after the write, or the reader's, after it knew of the write. */
bool order_is_fenced(const event &e) {
    const view &now = views[(size_t)running];
    for (const view &fence : proxy_fences[e.thread])
        if (fence.at.clock >= e.clock && happened_before(fence.at, now)) return true;
    for (const view &fence : proxy_fences[(size_t)running])
        if (e.thread != now.at.thread && happened_before(e, fence)) return true;
    return false;
}

static void next_epoch() {
    epoch++;
    owners.push_back(here.number);
}

static bool by_same_thread(const release &a, const release &b) {
    return a.block == b.block && a.at.at.thread == b.at.at.thread;
}

static bool is_older(const release &a, const release &b) {
    if (a.at.at.epoch != b.at.at.epoch) return a.at.at.epoch < b.at.at.epoch;
    return a.at.at.clock < b.at.at.clock;
}

/* Keeps only the newest release of each thread, if the same threads know the older ones: at a
 * barrier, all do. */
static void keep_newest(std::vector<known> &all) {
    std::vector<known> newest;
    for (known &k : all) {
        auto other = std::find_if(newest.begin(), newest.end(),
                                  [&](const known &n) { return by_same_thread(*n.what, *k.what); });
        if (other == newest.end())
            newest.push_back(k);
        else if (is_older(*other->what, *k.what))
            *other = k;
    }
    all = std::move(newest);
}

void checker_barrier() {
    keep_newest(picked_up);
    keep_newest(acquired);
    next_epoch();
    for (view &v : views) v.at.epoch = epoch;
    if (any_fence) old_fences = new_fences;
}

/* ---- between blocks ------------------------------------------------------------------------- */

void checker_fence() {
    size_t me = (size_t)running;
    last_fence[me] = views[me];
    for (const known &k : picked_up)
        if (happened_before(k.at, views[me])) acquired.push_back({k.what, views[me].at});
    tick(running);
    new_fences[me] = views[me].at.clock;
    any_fence = true;
}

/* Returns the releases of other blocks that the running thread's atomic passes on. */
static releases passed_on() {
    std::vector<known> heard;
    std::copy_if(acquired.begin(), acquired.end(), std::back_inserter(heard),
                 [](const known &k) { return happened_before(k.at, views[(size_t)running]); });
    keep_newest(heard);
    releases out;
    for (const known &k : heard) out.push_back(k.what);
    return out;
}

void order_atomic(uintptr_t address, bool write) {
    size_t me = (size_t)running;
    std::vector<left_there> &there = released[address];
    for (const left_there &left : there) {
        picked_up.push_back({left.own, views[me].at});
        for (auto &what : left.inherited) picked_up.push_back({what, views[me].at});
    }
    if (!write || !any_fence) return; /* nothing is released, or nothing is covered by a fence */
    auto mine = std::make_shared<release>();
    mine->block = here.number;
    mine->at = views[me];
    mine->fence = last_fence[me];
    mine->fenced = new_fences[me] != 0;
    mine->own_fences = old_fences;
    mine->new_fences = new_fences;
    /* A thread's later release covers its earlier one. */
    std::erase_if(there, [&](auto &old) { return by_same_thread(*old.own, *mine); });
    there.push_back({mine, passed_on()});
}

/* Does the release cover an event of its block? */
static bool covers(const release &r, const event &e) {
    if (r.fenced && happened_before(e, r.fence)) return true;
    size_t writer = e.thread;
    if (e.clock < r.own_fences[writer]) return true; /* a fence, and then a barrier */
    if (e.clock >= r.new_fences[writer]) return false;
    event fence{e.epoch, e.thread, 0};
    fence.epoch = r.at.at.epoch; /* no barrier since that fence: the warp must know of it */
    fence.clock = r.new_fences[writer] - 1;
    return happened_before(fence, r.at);
}

relation order_of(const event &e) {
    const view &now = views[(size_t)running];
    if (!order_is_grid(e))
        return streams_ordered(e.epoch) ? relation::ORDERED : relation::STREAM_RACE;
    if (order_is_block(e)) return happened_before(e, now) ? relation::ORDERED : relation::RACE;
    for (const known &k : acquired)
        if (k.what->block == owners[e.epoch - grid_first] && happened_before(k.at, now) &&
            covers(*k.what, e))
            return relation::ORDERED;
    return relation::BLOCK_RACE;
}

/* ---- grids, copies and blocks --------------------------------------------------------------- */

static chain &chain_here() {
    const unsigned stream = streams_current();
    if (chains.size() <= stream) chains.resize(stream + 1);
    return chains[stream];
}

bool order_is_in_front(const event &e) {
    return e.epoch >= chain_here().first && e.epoch < grid_first && streams_is_own(e.epoch);
}

event order_copy() {
    streams_begin(++epoch);
    chain_here().settled = true;
    event now;
    now.epoch = epoch;
    return now;
}

void order_grid(bool begins_early) {
    grid_first = ++epoch;
    streams_begin(epoch);
    chain &chain = chain_here();
    if (chain.settled || !begins_early) chain.first = grid_first;
    chain.settled = false;
    owners.assign(1, SIZE_MAX); /* of the grid's first epoch */
    n_blocks = 0;
    released.clear();
}

void order_block(unsigned threads) {
    here.number = n_blocks++;
    next_epoch();
    here.first = epoch;
    any_fence = false;
    views.assign(threads, view{});
    for (unsigned i = 0; i < threads; i++) {
        views[i].at.epoch = epoch;
        views[i].at.thread = i;
    }
    last_fence.assign(threads, view{});
    old_fences.assign(threads, 0);
    new_fences.assign(threads, 0);
    proxy_fences.assign(threads, {});
    picked_up.clear();
    acquired.clear();
}

void order_swap(size_t number) {
    static std::vector<block_history> elsewhere;
    if (elsewhere.size() <= number) elsewhere.resize(number + 1);
    std::swap(here, elsewhere[number]);
}

void order_thread(int thread) {
    running = thread;
}

} // namespace emu
