/* DESIGN: the checker of races, bounds and initialization.
 *
 * Kernels are compiled with -fsanitize=thread, so the compiler calls a function for each access to
 * memory. The functions are here instead of in the compiler's library. For each byte of device and
 * shared memory a `shadow` keeps the last write, two reads, and their times. An access is a race if
 * one of these did not happen before it, one of the two is a write, and they are not both atomics.
 * The two reads are of different warps if possible, and one read of an earlier block is kept too:
 * any of them is enough to find a later wrong write.
 *
 * A grid may begin before earlier grids have ended. Until a thread of such a grid waits for them,
 * it must not write, and must not read data that they wrote. Earlier grids are those since the last
 * copy, or since a grid that did not begin early.
 *
 * Copies and fills are checked like the accesses of a kernel, also in pinned memory of the host.
 * They are races if the other access was in another stream and no event or wait of the host orders
 * the two.
 *
 * A thread's stack and the kernel's parameters are not checked. Constants of the program may be
 * read. All other addresses that are neither shared nor allocated device memory are out of bounds.
 */
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "checker.h"

extern "C" const char __executable_start, data_start, end;

namespace emu {

struct access {
    event when;
    uint32_t pc = 0; /* an offset in the program */
};

struct shadow {
    access write, read[2];
    /* the last read by another stream that no later access is ordered after */
    access elsewhere;
    bool atomic;      /* was the write an atomic? */
    bool async;       /* ... by the async proxy? */
    bool initialised; /* has any thread written it, and have the bytes arrived? */
};
constexpr size_t SHADOW_BYTES = offsetof(shadow, initialised) + 1; /* without padding */

enum { MAX_REPORTS = 40 };
enum : uint32_t { PC_COPY = 1, PC_FILL }; /* values that are not places in the program */

struct shadowed {
    shadow *bytes;
    size_t n;
};
static std::map<uintptr_t, shadowed> device_shadows; /* by the start of the allocation */
static std::map<uintptr_t, shadowed> pinned_shadows; /* by the start of the piece */
static shadow *dynamic_shadow, *image_shadow;
static thread_local bool checking; /* does this thread run a kernel? */
static int thread_now;
static uintptr_t stacks;
static range parameters; /* the kernel's parameters, which its threads read */
static range known;      /* the allocation of the last lookup */
static shadow *known_shadow;

static shadow *shadow_new(size_t bytes) {
    return static_cast<shadow *>(mmap(nullptr, bytes * sizeof(shadow) + 1, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

static uintptr_t address(const char &symbol) {
    return (uintptr_t)&symbol;
}

/* ---- reports -------------------------------------------------------------------------------- */

/* Returns file and line of a place in the program, by addr2line if it is installed. */
static std::string place_of(uint32_t pc) {
    if (pc == PC_COPY || pc == PC_FILL) return pc == PC_COPY ? "a copy" : "a fill";
    char command[600], program[400] = "", line[400] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return "?";
    snprintf(command, sizeof command, "addr2line -e '%s' 0x%x 2>/dev/null", program, pc - 1);
    FILE *pipe = popen(command, "r");
    if (!pipe) return "?";
    if (fgets(line, sizeof line, pipe)) line[strcspn(line, "\n")] = 0;
    pclose(pipe);
    const char *name = strrchr(line, '/');
    return name ? name + 1 : line;
}

struct attempt {
    const void *p;
    size_t n;
    bool write, atomic;
    uint32_t pc;
    bool async = false; /* by a bulk copy or wgmma */
};

static bool is_new(const char *kind, uint32_t pc, uint32_t other) {
    static std::set<std::tuple<std::string, uint32_t, uint32_t>> said;
    return said.size() < MAX_REPORTS && said.insert({kind, pc, other}).second;
}

static void complain(const char *kind, const attempt &a) {
    if (!is_new(kind, a.pc, 0)) return;
    report(kind, "%s of %zu bytes at %s: %s", a.write ? "write" : "read", a.n,
           place_of(a.pc).c_str(), describe(a.p).c_str());
}

static const char *name_of(relation how) {
    return how == relation::RACE         ? "race"
           : how == relation::BLOCK_RACE ? "race between blocks"
                                         : "race between streams";
}

static void complain_race(relation how, const attempt &a, const access &other, bool other_writes) {
    const char *kind = name_of(how);
    if (!is_new(kind, a.pc, other.pc)) return;
    report(kind, "%s of %zu bytes at %s, %s by thread %u at %s: %s", a.write ? "write" : "read",
           a.n, place_of(a.pc).c_str(), other_writes ? "written" : "read", other.when.thread,
           place_of(other.pc).c_str(), describe(a.p).c_str());
}

/* ---- one byte ------------------------------------------------------------------------------- */

static bool same_warp(const event &a, const event &b) {
    return a.thread / WARP == b.thread / WARP;
}

/* Stores a read next to the two that are kept, or replaces one of them. */
static void keep_read(shadow &s, const access &mine) {
    access &last = s.read[0], &other = s.read[1];
    bool last_is_ours = last.when.epoch == mine.when.epoch;
    bool other_is_ours = other.when.epoch == mine.when.epoch;
    bool other_is_earlier_block = order_is_grid(other.when) && !order_is_block(other.when);
    if (last_is_ours && (last.when.thread == mine.when.thread || other_is_earlier_block)) {
        last = mine;
    } else if (last_is_ours && other_is_ours && !same_warp(last.when, other.when) &&
               same_warp(last.when, mine.when)) {
        last = mine;
    } else {
        if (!streams_ordered(other.when.epoch)) s.elsewhere = other;
        other = last;
        last = mine;
    }
}

/* A write replaces all earlier accesses. */
static void keep_write(shadow &s, const access &mine, bool atomic, bool async) {
    s = {};
    s.write = mine;
    s.atomic = atomic;
    s.async = async;
    s.initialised = true;
}

/* Accesses to the shared memory of an earlier block do not matter. */
static relation relation_to(const event &e, bool shared) {
    if (shared && !order_is_block(e)) return relation::ORDERED;
    return order_of(e);
}

/* Earlier grids may still run. Fails if they write this byte, or read it and this is a write. */
static void check_early(const shadow &s, const attempt &a) {
    if (a.write)
        complain("early write", a);
    else if (order_is_in_front(s.write.when))
        complain("early read", a);
}

/* Bulk copies and wgmma may read ordinary writes of the block only after a fence. */
static void check_proxy(const shadow &s, const attempt &a) {
    if (!s.async && order_is_block(s.write.when) && !order_is_fenced(s.write.when))
        complain("proxy", a);
}

static void check_byte(shadow &s, const attempt &a, bool shared) {
    access mine{order_now(), a.pc};
    if (!shared && is_early()) check_early(s, a);
    bool initialised = s.initialised && (!shared || order_is_block(s.write.when));
    if (!a.write && !initialised) complain("uninitialised", a);
    if (a.async && !a.write && initialised) check_proxy(s, a);
    if (!(a.atomic && s.atomic)) {
        relation how = relation_to(s.write.when, shared);
        if (how != relation::ORDERED) complain_race(how, a, s.write, true);
    }
    /* atomics do not race with it, and other accesses are not compared */
    if (!a.write && a.atomic) return;
    if (!a.write) return keep_read(s, mine);
    for (const access &read : {s.read[0], s.read[1], s.elsewhere}) {
        relation how = relation_to(read.when, shared);
        if (how != relation::ORDERED) complain_race(how, a, read, false);
    }
    keep_write(s, mine, a.atomic, a.async);
}

/* Calls `change` for each byte. Its result depends on the byte's shadow alone, and the
 * bytes of an access usually have equal shadows: then the last result is copied. */
template <typename Change> static void change_bytes(shadow *s, size_t n, Change change) {
    shadow before, after;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && memcmp(&s[i], &before, SHADOW_BYTES) == 0) {
            s[i] = after;
            continue;
        }
        before = s[i];
        change(s[i]);
        after = s[i];
    }
}

static void check_bytes(shadow *s, const attempt &a, bool shared) {
    change_bytes(s, a.n, [&](shadow &byte) { check_byte(byte, a, shared); });
}

/* ---- one access ----------------------------------------------------------------------------- */

/* Returns the shadow of device memory, or NULL unless it is all in one allocation. */
static shadow *device_shadow(const void *p, size_t n) {
    if (!known.has_all(p, n)) {
        known = allocation_at(p);
        if (!known.has_all(p, n)) return nullptr;
        known_shadow = device_shadows.at((uintptr_t)known.start).bytes;
    }
    return known_shadow + (static_cast<const char *>(p) - known.start);
}

/* Returns the shadow of pinned memory, or NULL unless it is all in one allocation. */
static shadow *pinned_shadow(const void *p, size_t n) {
    auto after = pinned_shadows.upper_bound((uintptr_t)p);
    if (after == pinned_shadows.begin()) return nullptr;
    const auto &[start, piece] = *std::prev(after);
    const size_t at = (uintptr_t)p - start;
    return at < piece.n && n <= piece.n - at ? piece.bytes + at : nullptr;
}

static bool is_own_stack(uintptr_t p) {
    return p - stacks - (uintptr_t)STACK_BYTES * (uintptr_t)thread_now < STACK_BYTES;
}

/* Returns the shadow of the program's image, which holds shared variables. Returns NULL after a
 * complaint, or if a constant is read. */
static shadow *image_shadow_of(const attempt &a) {
    uintptr_t p = (uintptr_t)a.p, start = address(__executable_start);
    place where = static_place(a.p, a.n);
    if (where == place::GUARD) complain("out of bounds", a);
    if (where == place::ELSEWHERE && (a.write || p >= address(data_start)))
        complain("host variable in a kernel", a);
    if (where != place::SHARED) return nullptr;
    if (!image_shadow) image_shadow = shadow_new(address(end) - start);
    return image_shadow + (p - start);
}

static void check(const attempt &a) {
    uintptr_t p = (uintptr_t)a.p;
    if (is_own_stack(p) || parameters.has_all(a.p, a.n)) return;
    shadow *s = nullptr;
    bool shared = true;
    if (dynamic_window().has(a.p)) {
        if (!dynamic_range().has_all(a.p, a.n)) return complain("out of bounds", a);
        s = dynamic_shadow + (p - (uintptr_t)dynamic_window().start);
    } else if (is_device_memory(a.p)) {
        s = device_shadow(a.p, a.n);
        shared = false;
        if (!s) return complain("out of bounds", a);
    } else if (p >= address(__executable_start) && p < address(end)) {
        s = image_shadow_of(a);
    } else {
        shared = false;
        if (a.write) s = pinned_shadow(a.p, a.n); /* a read would wait for the link */
        if (!s) complain("host memory in a kernel", a);
    }
    if (s) check_bytes(s, a, shared);
}

static uint32_t offset_of(const void *pc) {
    return (uint32_t)((uintptr_t)pc - address(__executable_start));
}

/* Checks without recording the accesses of the check. */
static void check_alone(const attempt &a) {
    checking = false;
    check(a);
    checking = true;
}

void checker_access(const void *p, size_t n, bool write, bool atomic, const void *pc) {
    if (!checking) return;
    check_alone({p, n, write, atomic, offset_of(pc)});
    if (atomic && is_device_memory(p)) order_atomic((uintptr_t)p, write);
}

static void set_initialised(const void *p, size_t n, bool initialised) {
    const char *window = dynamic_window().start;
    shadow *s = dynamic_window().has(p) ? dynamic_shadow + (static_cast<const char *>(p) - window)
                : static_place(p, n) == place::SHARED
                    ? image_shadow + ((uintptr_t)p - address(__executable_start))
                    : nullptr;
    for (size_t i = 0; s && i < n; i++) s[i].initialised = initialised;
}

void checker_pending(const void *p, size_t n) {
    set_initialised(p, n, false);
}

/* ---- the async proxy ------------------------------------------------------------------------ */

void checker_async_read(const void *p, size_t n) {
    check_alone({p, n, false, false, offset_of(__builtin_return_address(0)), true});
}

uint32_t checker_async_write(const void *p, size_t n) {
    check_alone({p, n, true, false, offset_of(__builtin_return_address(0)), true});
    checker_pending(p, n);
    return order_tick();
}

void checker_landed(const void *p, size_t n, int thread, uint32_t when, knowledge &to) {
    set_initialised(p, n, true);
    to.resize(std::max(to.size(), (size_t)thread + 1));
    to[(size_t)thread] = std::max(to[(size_t)thread], when);
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Returns the shadow of memory that a copy reads or writes; NULL for host memory that is not
 * pinned. */
static shadow *shadow_of_copy(const void *p, size_t n) {
    return is_device_memory(p) ? device_shadow(p, n) : pinned_shadow(p, n);
}

static void check_copied_byte(shadow &s, const attempt &a, const access &mine) {
    if (!streams_ordered(s.write.when.epoch))
        complain_race(relation::STREAM_RACE, a, s.write, true);
    if (!a.write) return keep_read(s, mine);
    for (const access &read : {s.read[0], s.read[1], s.elsewhere})
        if (!streams_ordered(read.when.epoch)) complain_race(relation::STREAM_RACE, a, read, false);
    keep_write(s, mine, false, false);
}

static void check_copied(const attempt &a, const event &now) {
    shadow *s = shadow_of_copy(a.p, a.n);
    if (s) change_bytes(s, a.n, [&](shadow &byte) { check_copied_byte(byte, a, {now, a.pc}); });
}

void checker_copied(const void *to, const void *from, size_t bytes) {
    const event now = order_copy();
    const uint32_t pc = from ? PC_COPY : PC_FILL;
    if (from) check_copied({from, bytes, false, false, pc}, now);
    check_copied({to, bytes, true, false, pc}, now);
}

/* ---- calls from the emulation --------------------------------------------------------------- */

void checker_stacks(const char *start) {
    stacks = (uintptr_t)start;
}

void checker_allocated(const void *p, size_t bytes) {
    device_shadows[(uintptr_t)p] = {shadow_new(bytes), bytes};
}

static void drop(std::map<uintptr_t, shadowed> &shadows, const void *p) {
    auto found = shadows.find((uintptr_t)p);
    munmap(found->second.bytes, found->second.n * sizeof(shadow) + 1);
    shadows.erase(found);
}

/* Addresses are never reused. */
void checker_freed(const void *p) {
    drop(device_shadows, p);
    known = {};
}

void checker_pinned(const void *p, size_t bytes) {
    pinned_shadows[(uintptr_t)p] = {shadow_new(bytes), bytes};
}

void checker_unpinned(const void *p) {
    drop(pinned_shadows, p);
}

void checker_grid(const range &of_kernel, bool begins_early) {
    parameters = of_kernel;
    range window = dynamic_window();
    if (!dynamic_shadow) dynamic_shadow = shadow_new((size_t)(window.end - window.start));
    known = {};
    order_grid(begins_early);
    checking = true;
}

void checker_grid_ends() {
    checking = false;
}

void checker_block(unsigned threads) {
    order_block(threads);
}

void checker_swap(size_t number) {
    static std::vector<std::pair<shadow *, shadow *>> kept; /* shadows of shared memory */
    const range window = dynamic_window();
    while (kept.size() <= number)
        kept.push_back({shadow_new((size_t)(window.end - window.start)), nullptr});
    std::swap(dynamic_shadow, kept[number].first);
    std::swap(image_shadow, kept[number].second);
    order_swap(number);
}

void checker_thread(int thread) {
    thread_now = thread;
    order_thread(thread);
}

} // namespace emu
