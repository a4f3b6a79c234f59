/* DESIGN: products of a warpgroup, which are asynchronous.
 *
 * A thread's wgmma only adds to a list. When the thread waits and a group must be complete, the
 * four warps meet and the last one to arrive multiplies. So operands are read as late as possible:
 * the registers of `a` and shared memory must not have changed since. An accumulator is NaN from
 * its first product until its group is waited for. The arrays `a` and `d` must live until then; on
 * a device they are registers.
 *
 * Sums have the bits of a device (sums.cpp).
 *
 * Each group begins with a fence, which makes the registers of `a` and changes to `d` visible to
 * the products. Shared memory is read through the other proxy (checker_async_read).
 */
#include <algorithm>
#include <deque>
#include <math.h>
#include <string.h>
#include <vector>

#include "include/emu_ptx90.h"
#include "internal.h"

namespace emu {

constexpr int GROUP_THREADS = 128, ROWS = 64;

struct product {
    float *d;
    const uint32_t *a;
    uint64_t b;
    wgmma_kind kind;
    int depth() const { /* number of k per product: 32 bytes */
        return 32 / kind.width;
    }
};
/* The future contents of an accumulator. */
struct accumulator {
    float *d;
    std::vector<float> sums;
};
struct worker {
    std::vector<product> open;
    std::deque<std::vector<product>> groups;
    std::vector<accumulator> sums;
    bool fenced;
    int registers;
};
struct warpgroup {
    int arrived;
    site at;
};

static std::vector<worker> workers(MAX_THREADS);
static warpgroup warpgroups[MAX_THREADS / GROUP_THREADS];
static int free_registers;

void wgmma_begin(unsigned threads) {
    const int each = std::min(255, (64 << 10) / (int)threads) / 8 * 8;
    workers.assign(MAX_THREADS, worker{{}, {}, {}, false, each});
    free_registers = (64 << 10) - each * (int)threads;
    memset(warpgroups, 0, sizeof warpgroups);
}

void wgmma_end(int thread) {
    const worker &w = workers[(size_t)thread];
    if (!w.open.empty() || !w.groups.empty())
        report("wgmma", "a thread ends with products that it never waited for");
}

/* Waits until all threads of the warpgroup are here. Returns true for the last one. */
static bool is_last_of_warpgroup(const site &at) {
    warpgroup &g = warpgroups[running_thread() / GROUP_THREADS];
    if (g.arrived && (g.at.line != at.line || strcmp(g.at.file, at.file) != 0))
        report("wgmma", "threads of a warpgroup wait at %s:%d and at %s:%d", g.at.file, g.at.line,
               at.file, at.line);
    g.at = at;
    if (++g.arrived == GROUP_THREADS) {
        g.arrived = 0;
        return true;
    }
    wait_for(&g, at);
    return false;
}
static void release_warpgroup() {
    wake(&warpgroups[running_thread() / GROUP_THREADS]);
}

/* ---- issue ---------------------------------------------------------------------------------- */

void wgmma_fence() {
    workers[(size_t)running_thread()].fenced = true;
}

static accumulator *sums_of(worker &w, const float *d) {
    for (accumulator &a : w.sums)
        if (a.d == d) return &a;
    return nullptr;
}

void wgmma(float *d, const uint32_t *a, uint64_t b, const wgmma_kind &kind, site at) {
    worker &w = workers[(size_t)running_thread()];
    const int columns = kind.columns;
    if (columns % 8 || columns > MAX_COLUMNS)
        report("wgmma", "%s:%d: %d columns", at.file, at.line, columns);
    if (!w.fenced) report("wgmma", "%s:%d: a group without wgmma_fence", at.file, at.line);
    if (blocks_live_together()) report("wgmma", "not emulated where blocks live at once");
    if (!sums_of(w, d)) {
        w.sums.push_back({d, {d, d + columns / 2}});
        for (int i = 0; i < columns / 2; i++) d[i] = NAN;
    }
    w.open.push_back({d, a, b, kind});
}

void wgmma_commit() {
    worker &w = workers[(size_t)running_thread()];
    w.groups.push_back(std::move(w.open));
    w.open.clear();
    w.fenced = false;
}

/* ---- descriptors ---------------------------------------------------------------------------- */

uint32_t shared_address(const void *p) {
    const range window = dynamic_window();
    if (!window.has(p)) report("wgmma", "%s is not in shared memory", describe(p).c_str());
    return (uint32_t)(static_cast<const char *>(p) - window.start);
}

/* Returns the address of 16 bytes of adjacent k of a column: PTX manual, "Shared Memory Matrix
 * Layout". A swizzle flips bits of the address that depend on its 128-byte line. */
static uint32_t chunk_address(uint64_t b, int column, int half) {
    const uint32_t start = (uint32_t)(b & 0x3fff) << 4, leading = (uint32_t)(b >> 16 & 0x3fff) << 4,
                   stride = (uint32_t)(b >> 32 & 0x3fff) << 4;
    const unsigned mode = (unsigned)(b >> 62);
    const uint32_t group = start + (uint32_t)(column / 8) * stride;
    if (mode == 0) return group + (uint32_t)half * leading + (uint32_t)(column % 8) * 16;
    const uint32_t width = 256u >> mode; /* bytes of a row: 128, 64 or 32 */
    const uint32_t line = group + (uint32_t)(column % 8) * width + (uint32_t)half * 16;
    return line ^ ((line >> 7 & (width / 16 - 1)) << 4);
}

/* Returns the address of 8 adjacent columns of one k, in lines of 64 columns: the same section,
 * MN-major. */
static uint32_t row_chunk_address(uint64_t b, int k, int column) {
    const uint32_t start = (uint32_t)(b & 0x3fff) << 4, leading = (uint32_t)(b >> 16 & 0x3fff) << 4,
                   stride = (uint32_t)(b >> 32 & 0x3fff) << 4;
    const uint32_t line = start + (uint32_t)(column / 64) * leading + (uint32_t)(k / 8) * stride +
                          (uint32_t)(k % 8) * 128 + (uint32_t)(column % 64) * 2;
    return line ^ ((line >> 7 & 7) << 4);
}

/* Returns element i of the elements at `from`. */
static float element_at(const product &p, const void *from, int i) {
    uint16_t bits = 0;
    memcpy(&bits, static_cast<const char *>(from) + i * p.kind.width, (size_t)p.kind.width);
    return p.kind.element(bits);
}

/* Returns 16 bytes of shared memory; NULL if the descriptor points outside. */
static const char *chunk_at(const product &p, uint32_t address) {
    const char *chunk = dynamic_window().start + address;
    if (!dynamic_range().has_all(chunk, 16)) {
        report("wgmma", "descriptor %016llx leads out of shared memory", (unsigned long long)p.b);
        return nullptr;
    }
    checker_async_read(chunk, 16);
    return chunk;
}

static void read_columns(column_factors *b, const product &p) {
    if (p.b & ~0xc0003fff3fff3fffull || (p.kind.rows && p.b >> 62 != 1))
        report("wgmma", "descriptor %016llx has bits that are not emulated",
               (unsigned long long)p.b);
    const int each = p.depth() / 2;
    for (int k = 0; p.kind.rows && k < p.depth(); k++)
        for (int column = 0; column < p.kind.columns; column += 8) {
            const char *chunk = chunk_at(p, row_chunk_address(p.b, k, column));
            for (int i = 0; chunk && i < 8; i++) b->value[k][column + i] = element_at(p, chunk, i);
        }
    for (int column = 0; !p.kind.rows && column < p.kind.columns; column++)
        for (int half = 0; half < 2; half++) {
            const char *chunk = chunk_at(p, chunk_address(p.b, column, half));
            for (int i = 0; chunk && i < each; i++)
                b->value[half * each + i][column] = element_at(p, chunk, i);
        }
    b->measure(p.depth(), p.kind.columns, p.kind.element);
}

/* ---- products ------------------------------------------------------------------------------- */

/* A word holds adjacent k of row g of a warp. The second word is row g + 8. The next two are the
 * same rows in the second half of k, as in the operand of an mma. */
static void read_rows(row_factors *a, const std::vector<const product *> &all) {
    const int depth = all[0]->depth(), each = depth / 8; /* elements of a word */
    for (int thread = 0; thread < GROUP_THREADS; thread++) {
        const int warp = thread / WARP, group = thread % WARP / 4, first = thread % 4 * each;
        for (int i = 0; i < 4 * each; i++) {
            const int word = i / each, row = warp * 16 + group + word % 2 * 8;
            a[row].value[first + i % each + word / 2 * (depth / 2)] =
                element_at(*all[(size_t)thread], all[(size_t)thread]->a, i);
        }
    }
}

/* Calls f(row, column, sum) for each sum of a thread. */
template <class F> static void each_sum(std::vector<float> &d, int thread, const F &f) {
    const int row = thread / WARP * 16 + thread % WARP / 4, pair = thread % 4 * 2;
    for (int i = 0; i < (int)d.size(); i++)
        f(row + i / 2 % 2 * 8, i / 4 * 8 + pair + i % 2, d[(size_t)i]);
}

static void run_product(int first, const std::vector<const product *> &all) {
    static row_factors a[ROWS];
    static column_factors b;
    static float sums[ROWS][MAX_COLUMNS];
    const product &p = *all[0];
    for (const product *other : all)
        if (other->b != p.b || other->kind != p.kind)
            return report("wgmma", "threads of a warpgroup multiply by different matrices");
    read_columns(&b, p);
    read_rows(a, all);
    auto of_thread = [&](int thread) -> std::vector<float> & {
        return sums_of(workers[(size_t)(first + thread)], all[(size_t)thread]->d)->sums;
    };
    for (int thread = 0; thread < GROUP_THREADS; thread++)
        each_sum(of_thread(thread), thread, [&](int row, int column, float sum) {
            sums[row][column] = p.kind.adds ? sum : 0.0f;
        });
    for (row_factors &row : a) {
        row.measure(p.depth(), p.kind.element);
        add_products(sums[&row - a], row, b, p.kind.columns, p.depth(),
                     rule_of_wgmma(p.kind.width));
    }
    for (int thread = 0; thread < GROUP_THREADS; thread++)
        each_sum(of_thread(thread), thread,
                 [&](int row, int column, float &sum) { sum = sums[row][column]; });
}

/* Returns the accumulators that no product uses any more. */
static void give_back_sums(worker &w) {
    auto is_needed = [&](const float *d) {
        for (const auto &group : w.groups)
            for (const product &p : group)
                if (p.d == d) return true;
        for (const product &p : w.open)
            if (p.d == d) return true;
        return false;
    };
    std::erase_if(w.sums, [&](const accumulator &s) {
        if (is_needed(s.d)) return false;
        for (size_t i = 0; i < s.sums.size(); i++) {
            if (!isnan(s.d[i])) report("wgmma", "a register was written during a product");
            s.d[i] = s.sums[i];
        }
        return true;
    });
}

static void run_oldest_group(int first) {
    const size_t n = workers[(size_t)first].groups.front().size();
    for (size_t i = 0; i < n; i++) {
        std::vector<const product *> all;
        for (int thread = first; thread < first + GROUP_THREADS; thread++) {
            const worker &w = workers[(size_t)thread];
            if (w.groups.empty() || w.groups.front().size() != n)
                return report("wgmma", "threads of a warpgroup have different groups");
            all.push_back(&w.groups.front()[i]);
        }
        run_product(first, all);
    }
    for (int thread = first; thread < first + GROUP_THREADS; thread++) {
        workers[(size_t)thread].groups.pop_front();
        give_back_sums(workers[(size_t)thread]);
    }
}

void wgmma_wait(int pending, site at) {
    const int me = running_thread(), first = me / GROUP_THREADS * GROUP_THREADS;
    std::deque<std::vector<product>> &groups = workers[(size_t)me].groups;
    if ((int)groups.size() <= pending || !is_last_of_warpgroup(at)) return;
    for (size_t before; (int)groups.size() > pending;) {
        before = groups.size();
        run_oldest_group(first);
        if (groups.size() == before) break; /* the product was wrong */
    }
    release_warpgroup();
}

/* ---- registers ------------------------------------------------------------------------------ */

/* A block has the registers of its launch: 64 Ki, divided among its threads. A warpgroup that takes
 * more waits until others have released theirs. */
void set_registers(int count, bool more, site at) {
    worker &w = workers[(size_t)running_thread()];
    const int change = (count - w.registers) * GROUP_THREADS;
    if (count % 8 || count < 24 || count > 256 || (change > 0) != more)
        report("setmaxnreg", "%s:%d: from %d registers to %d", at.file, at.line, w.registers,
               count);
    if (blocks_live_together()) report("setmaxnreg", "not emulated where blocks live at once");
    w.registers = count;
    if (!is_last_of_warpgroup(at)) return;
    while (change > free_registers) wait_for(&free_registers, at);
    free_registers -= change;
    wake(&free_registers);
    release_warpgroup();
}

} // namespace emu
