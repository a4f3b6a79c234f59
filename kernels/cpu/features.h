/* The usable instructions, as the words of CPUID and XCR0, and the paths that they allow. Tests
 * pass their own words. */
#ifndef PENSTOCK_KERNELS_FEATURES_H
#define PENSTOCK_KERNELS_FEATURES_H

#include "kernels/cpu/cpu.h"

enum {
    LEAF_1_ECX, /* CPUID leaf 1 */
    LEAF_7_EBX, /* CPUID leaf 7, subleaf 0 */
    LEAF_7_ECX,
    LEAF_7_EDX,
    LEAF_7_1_EAX, /* CPUID leaf 7, subleaf 1 */
    XCR0,         /* the registers that the system saves on a context switch; 0 without OSXSAVE */
    GRANTED,      /* 1: the system allows this process to use AMX */
    FEATURE_WORDS,
};

struct features {
    uint32_t word[FEATURE_WORDS];
};

/* Bits of LEAF_7_EDX and XCR0 that the reader of these words checks. */
#define AMX_TILE (1u << 24)
#define SAVES_TILES (1u << 17 | 1u << 18)

/* Reads this machine's words and requests AMX if present. Call it before threads start. */
struct features features_read(void);

/* Returns the best path for these features, or the path `name` (avx512 stands for avx512vnni).
 * Returns NULL if the features do not allow it. */
const struct path *path_find(const struct features *have, const char *name);

/* Writes the names of the paths for these features, best first, then NULL. `names` has room for
 * MAX_PATHS + 1. */
enum { MAX_PATHS = 5 };
void path_names(const struct features *have, const char **names);

#endif
