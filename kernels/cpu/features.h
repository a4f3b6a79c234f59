/* Which instructions may be used, as the words in which processor and system tell it; and which
 * paths they make possible. Tests make up words of their own. */
#ifndef PENSTOCK_KERNELS_FEATURES_H
#define PENSTOCK_KERNELS_FEATURES_H

#include "kernels/cpu/cpu.h"

enum {
    LEAF_1_ECX, /* CPUID leaf 1 */
    LEAF_7_EBX, /* CPUID leaf 7, subleaf 0 */
    LEAF_7_ECX,
    LEAF_7_EDX,
    LEAF_7_1_EAX, /* CPUID leaf 7, subleaf 1 */
    XCR0,         /* the registers that the system saves when threads change; 0 without OSXSAVE */
    GRANTED,      /* 1: the system lets this process use AMX */
    FEATURE_WORDS,
};

struct features {
    uint32_t word[FEATURE_WORDS];
};

/* Bits of LEAF_7_EDX and XCR0 that are looked at while the words are read. */
#define AMX_TILE (1u << 24)
#define SAVES_TILES (1u << 17 | 1u << 18)

/* Reads this machine's words; asks Linux for AMX where there is some, so call it before threads
 * start. */
struct features features_read(void);

/* The best path of these features, or the one of a name (avx512 is another name of avx512vnni);
 * NULL when they have no such path. */
const struct path *path_find(const struct features *have, const char *name);

/* Fills in the names of the paths of these features, best first, then NULL; room for MAX_PATHS +
 * 1. */
enum { MAX_PATHS = 5 };
void path_names(const struct features *have, const char **names);

#endif
