/* DESIGN: mbarriers, and bulk copies that complete on them.
 *
 * A barrier's phase ends when all arrivals and all expected bytes are there. A thread that waits
 * yields until then. Bulk copies land as late as possible: one at a time, in any order, only when
 * no thread of the block can continue otherwise. Until a copy lands, its destination holds rubbish.
 *
 * Some faults have undefined results on a device. They are errors here:
 *
 *   - a copy that lands in another phase than the one in which it was started (too few bytes were
 *     expected), and bytes that were not expected
 *   - a thread that waits for the same parity twice in a row, and one arrival too many
 *   - a barrier that is made again while it is needed
 *   - a barrier whose initialization was not fenced for the copies
 *   - copies that outlive the block
 */
#include <algorithm>
#include <map>
#include <string.h>
#include <vector>

#include "include/emu_ptx90.h"
#include "internal.h"

namespace emu {

struct mbarrier {
    unsigned count, missing; /* arrivals per phase; still missing in this phase */
    long bytes;              /* expected and not landed yet */
    unsigned phase;          /* number of phases that have ended */
    int maker;
    unsigned maker_fences;        /* number of fences that the maker had done before */
    std::map<int, unsigned> seen; /* the parity that each thread last waited for */
    knowledge arrived, published;
};

struct landing {
    void *to;
    const void *from;
    unsigned bytes;
    uint64_t *barrier;
    unsigned phase;
    int thread;
    uint32_t when;
};

static std::map<uint64_t *, mbarrier> barriers;
static std::vector<landing> under_way;
static unsigned fences[MAX_THREADS];
constexpr uint64_t MARK = 0x62617272696572; /* the contents of a barrier's memory */

void async_begin() {
    barriers.clear();
    under_way.clear();
    memset(fences, 0, sizeof fences);
}

void async_end() {
    if (!under_way.empty())
        report("bulk copy", "a block ends before %zu of its copies have landed", under_way.size());
}

void proxy_fence() {
    fences[running_thread()]++;
    checker_proxy_fence();
}

/* ---- barriers ------------------------------------------------------------------------------- */

static bool is_needed(uint64_t *barrier) {
    return is_waited_for(barrier) ||
           std::any_of(under_way.begin(), under_way.end(),
                       [&](const landing &l) { return l.barrier == barrier; });
}

void mbarrier_init(uint64_t *barrier, unsigned count) {
    if ((uintptr_t)barrier % 8 || count == 0 || count >= 1u << 20)
        report("mbarrier", "made at %p for %u arrivals", (void *)barrier, count);
    if (is_needed(barrier)) report("mbarrier", "made again while it is waited for");
    if (blocks_live_together()) report("mbarrier", "not emulated where blocks live at once");
    note_access(barrier, sizeof *barrier, true, false);
    *barrier = MARK;
    const int maker = running_thread();
    barriers[barrier] = {count, count, 0, 0, maker, fences[maker], {}, {}, {}};
}

static mbarrier *barrier_at(uint64_t *barrier, const site &at) {
    auto found = barriers.find(barrier);
    if (found == barriers.end()) {
        report("mbarrier", "%s:%d: used before it is made", at.file, at.line);
        return nullptr;
    }
    note_access(barrier, sizeof *barrier, true, true);
    if (*barrier != MARK) report("mbarrier", "%s:%d: it was written over", at.file, at.line);
    return &found->second;
}

static void end_phase_if_complete(uint64_t *barrier, mbarrier *b) {
    if (b->missing || b->bytes > 0) return;
    if (b->bytes < 0) report("mbarrier", "%ld unexpected bytes arrived", -b->bytes);
    b->bytes = 0;
    b->missing = b->count;
    b->phase++;
    join_knowledge(b->published, b->arrived);
    wake(barrier);
}

void mbarrier_arrive(uint64_t *barrier, unsigned expected_bytes, site at) {
    mbarrier *b = barrier_at(barrier, at);
    if (!b) return;
    checker_release(b->arrived);
    if (b->missing == 0) return report("mbarrier", "%s:%d: an arrival too many", at.file, at.line);
    b->bytes += expected_bytes;
    b->missing--;
    end_phase_if_complete(barrier, b);
}

void mbarrier_wait(uint64_t *barrier, unsigned parity, site at) {
    mbarrier *b = barrier_at(barrier, at);
    if (!b) return;
    const int me = running_thread();
    auto seen = b->seen.find(me);
    if (parity > 1 || (seen != b->seen.end() && seen->second == parity))
        report("mbarrier", "%s:%d: thread %d waits for the wrong phase: parity %u again", at.file,
               at.line, me, parity);
    b->seen[me] = parity;
    while (b->phase % 2 == parity) wait_for(barrier, at);
    checker_acquire(b->published);
}

/* ---- bulk copies ---------------------------------------------------------------------------- */

void bulk_copy(void *to, const void *from, unsigned bytes, uint64_t *barrier, site at) {
    mbarrier *b = barrier_at(barrier, at);
    if (!b) return;
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16 || bytes == 0)
        report("bulk copy", "%s:%d: %u bytes from %p to %p: all must be multiples of 16", at.file,
               at.line, bytes, from, to);
    if (!dynamic_window().has(to) || !is_device_memory(from))
        report("bulk copy", "%s:%d: from %s to %s", at.file, at.line, describe(from).c_str(),
               describe(to).c_str());
    if (fences[b->maker] == b->maker_fences)
        report("mbarrier", "%s:%d: no fence_proxy_async has shown the barrier to copies", at.file,
               at.line);
    checker_async_read(from, bytes);
    const uint32_t when = checker_async_write(to, bytes);
    memset(to, 0xff, bytes);
    under_way.push_back({to, from, bytes, barrier, b->phase, running_thread(), when});
}

bool land_one() {
    if (under_way.empty()) return false;
    const unsigned i = random_below((unsigned)under_way.size());
    const landing l = under_way[i];
    under_way.erase(under_way.begin() + i);
    mbarrier &b = barriers.at(l.barrier);
    if (b.phase != l.phase)
        report("bulk copy", "it lands after its phase has ended: too few bytes were expected");
    memcpy(l.to, l.from, l.bytes);
    checker_landed(l.to, l.bytes, l.thread, l.when, b.arrived);
    b.bytes -= l.bytes;
    end_phase_if_complete(l.barrier, &b);
    return true;
}

} // namespace emu
