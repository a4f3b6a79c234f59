/* Computations of a warp's lanes together: votes, matrix loads, matrix products. Each function runs
 * once, with the arguments of all lanes. */
#include <string.h>

#include "include/emu_ptx.h"
#include "include/emu_threads.h"
#include "internal.h"

namespace emu {

static unsigned joined(vote_kind kind, unsigned a, unsigned b) {
    switch (kind) {
    case SUM:
        return a + b;
    case LEAST:
        return a < b ? a : b;
    case MOST:
        return a > b ? a : b;
    case LEAST_SIGNED:
        return (int)a < (int)b ? a : b;
    case MAX_SIGNED:
        return (int)a > (int)b ? a : b;
    case AND:
        return a & b;
    default:
        return a | b;
    }
}

/* The contribution of lane l: for a ballot its bit, for a match the bits of the lanes that hold the
 * same value. */
static unsigned brought(void *const arguments[32], unsigned mask, int l) {
    const auto *mine = static_cast<const vote_of *>(arguments[l]);
    if (mine->kind == BALLOT) return (unsigned)(mine->in != 0) << l;
    if (mine->kind != MATCH) return (unsigned)mine->in;
    unsigned same = 0;
    for (int k = 0; k < WARP; k++)
        if (mask >> k & 1)
            same |= (unsigned)(static_cast<const vote_of *>(arguments[k])->in == mine->in) << k;
    return same;
}

void vote_lanes(void *const arguments[32], unsigned mask) {
    int first = __builtin_ctz(mask);
    vote_kind kind = static_cast<const vote_of *>(arguments[first])->kind;
    unsigned all = brought(arguments, mask, first);
    for (int l = first + 1; l < WARP; l++)
        if (mask >> l & 1) all = joined(kind, all, brought(arguments, mask, l));
    for (int l = 0; l < WARP; l++) {
        if (!(mask >> l & 1)) continue;
        auto *mine = static_cast<vote_of *>(arguments[l]);
        mine->out = kind == MATCH ? brought(arguments, mask, l) : all;
    }
}

static bool all_lanes(unsigned mask, const char *what) {
    if (mask == 0xffffffffu) return true;
    report("warp mask", "%s by the lanes %08x; all 32 must take part", what, mask);
    return false;
}

/* Lanes 8m .. 8m+7 point to the rows of matrix m. A lane receives two adjacent elements of a row,
 * or of a column if transposed. */
void load_matrices(void *const arguments[32], unsigned mask, int n, bool transposed) {
    if (!all_lanes(mask, "ldmatrix")) return;
    auto load = [&](int l) { return static_cast<matrix_load *>(arguments[l]); };
    for (int l = 0; l < 8 * n; l++)
        if ((uintptr_t)load(l)->row % 16) report("misaligned", "ldmatrix: row of lane %d", l);
    for (int l = 0; l < WARP; l++) {
        for (int i = 0; i < 2 * n; i++) {
            int pair = l % 4 * 2 + i % 2, group = l / 4;
            int row = transposed ? pair : group, column = transposed ? group : pair;
            memcpy(reinterpret_cast<char *>(load(l)->out) + 2 * i,
                   load(8 * (i / 2) + row)->row + 2 * column, 2);
        }
    }
}

static uint16_t part_of(const uint32_t *registers, int i) {
    return (uint16_t)(registers[i / 2] >> 16 * (i % 2));
}

/* d[16][8] += a[16][16] times b[16][8]. */
void multiply_matrices(void *const arguments[32], unsigned mask, element_of element) {
    if (!all_lanes(mask, "mma")) return;
    static thread_local row_factors a[16];
    static thread_local column_factors b;
    float sums[16][8];
    auto lane_of = [&](int l) { return static_cast<multiply *>(arguments[l]); };
    for (int l = 0; l < WARP; l++) {
        int group = l / 4, pair = l % 4 * 2;
        for (int i = 0; i < 8; i++)
            a[group + i / 2 % 2 * 8].value[pair + i % 2 + i / 4 * 8] =
                element(part_of(lane_of(l)->a, i));
        for (int i = 0; i < 4; i++) {
            b.value[pair + i % 2 + i / 2 * 8][group] = element(part_of(lane_of(l)->b, i));
            sums[group + i / 2 * 8][pair + i % 2] = lane_of(l)->d[i];
        }
    }
    const sum_rule rule = rule_of_mma();
    b.measure(16, 8, element);
    for (int row = 0; row < 16; row++) {
        a[row].measure(16, element);
        add_products(sums[row], a[row], b, 8, 16, rule);
    }
    for (int l = 0; l < WARP; l++)
        for (int i = 0; i < 4; i++) lane_of(l)->d[i] = sums[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}

} // namespace emu
