#include "engine/sampling/candidates.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

/* Up to this length, insertion is faster than the three passes of a radix sort. */
#define FEW 128

void candidates_init(struct candidates *candidates, int V) {
    candidates->best = mem_calloc((size_t)V, sizeof *candidates->best);
    candidates->spare = mem_calloc((size_t)V, sizeof *candidates->spare);
}

void candidates_free(struct candidates *candidates) {
    mem_free(candidates->best);
    mem_free(candidates->spare);
}

/* ---- sorting many ---------------------------------------------------------------------------- */

/* The bits of floats with equal sign sort like the floats; weights up to 1 have 30 significant
 * bits. */
enum { PASSES = 3, DIGIT_BITS = 10, DIGITS = 1 << DIGIT_BITS };

static int digit_of(float weight, int pass) {
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    assert(bits <= 0x3f800000u);
    uint32_t key = 0x3f800000u - bits;
    return (int)(key >> (pass * DIGIT_BITS) & (DIGITS - 1));
}

static void sort_by_digit(struct candidate *to, const struct candidate *from, int n, int pass) {
    int place[DIGITS] = {0}, before = 0;
    for (int i = 0; i < n; i++) place[digit_of(from[i].weight, pass)]++;
    for (int d = 0; d < DIGITS; d++) {
        int count = place[d];
        place[d] = before;
        before += count;
    }
    for (int i = 0; i < n; i++) to[place[digit_of(from[i].weight, pass)]++] = from[i];
}

void candidates_sort(struct candidates *candidates, int n) {
    struct candidate *a = candidates->best, *b = candidates->spare;
    if (n <= FEW) {
        for (int i = 1; i < n; i++) {
            struct candidate moved = a[i];
            int at = i;
            for (; at > 0 && a[at - 1].weight < moved.weight; at--) a[at] = a[at - 1];
            a[at] = moved;
        }
        return;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        sort_by_digit(b, a, n, pass);
        struct candidate *sorted = b;
        b = a;
        a = sorted;
    }
    candidates->best = a;
    candidates->spare = b;
    assert(a[0].weight >= a[n - 1].weight);
}

/* ---- sums ----------------------------------------------------------------------------------- */

int candidates_reaching(const struct candidate *best, int n, uint64_t wanted, uint64_t *sum) {
    int kept = 0;
    for (*sum = 0; kept < n && *sum < wanted; kept++) *sum += weight_share(best[kept].weight);
    return kept;
}

const struct candidate *candidates_pick(const struct candidate *best, uint64_t wanted) {
    for (uint64_t sum = 0;; best++) {
        sum += weight_share(best->weight);
        if (sum >= wanted) return best;
    }
}
