/* Chooses a path. Each path lists the features that it needs, including those that its compiler
 * flags (CMakeLists.txt) let the compiler use on its own. */
#include <string.h>

#include "kernels/cpu/features.h"

#define BIT(n) (1u << (n))

/* Leaf 1, ecx: SSE3, SSSE3, FMA, SSE4.1, SSE4.2, POPCNT, XSAVE, OSXSAVE, AVX, F16C. */
#define VECTORS                                                                                    \
    (BIT(0) | BIT(9) | BIT(12) | BIT(19) | BIT(20) | BIT(23) | BIT(26) | BIT(27) | BIT(28) |       \
     BIT(29))
#define AVX2_BMI2 (BIT(5) | BIT(8))                                /* leaf 7, ebx */
#define AVX512 (AVX2_BMI2 | BIT(16) | BIT(17) | BIT(30) | BIT(31)) /* and F, DQ, BW, VL */
#define AVX512_VNNI BIT(11)                                        /* leaf 7, ecx */
#define AMX_INT8 BIT(25)                                           /* leaf 7, edx */
#define AVX_VNNI BIT(4)                                            /* leaf 7, subleaf 1, eax */
#define SAVES_YMM (BIT(1) | BIT(2))                                /* XCR0: xmm, upper halves */
#define SAVES_ZMM (SAVES_YMM | BIT(5) | BIT(6) | BIT(7))           /* masks, zmm, zmm16-31 */

struct path_choice {
    const struct path *path;
    struct features needs;
};

static const struct path_choice choices[MAX_PATHS] = {
    {&path_amx,
     {{VECTORS, AVX512, AVX512_VNNI, AMX_TILE | AMX_INT8, 0, SAVES_ZMM | SAVES_TILES, 1}}},
    {&path_avx512vnni, {{VECTORS, AVX512, AVX512_VNNI, 0, 0, SAVES_ZMM, 0}}},
    {&path_avxvnni, {{VECTORS, AVX2_BMI2, 0, 0, AVX_VNNI, SAVES_YMM, 0}}},
    {&path_avx2, {{VECTORS, AVX2_BMI2, 0, 0, 0, SAVES_YMM, 0}}},
    {&path_plain, {{0}}},
};

static bool can_run(const struct features *have, const struct path_choice *choice) {
    for (int i = 0; i < FEATURE_WORDS; i++)
        if (choice->needs.word[i] & ~have->word[i]) return false;
    return true;
}

const struct path *path_find(const struct features *have, const char *name) {
    if (name && strcmp(name, "avx512") == 0) name = "avx512vnni";
    for (int i = 0; i < MAX_PATHS; i++)
        if (can_run(have, &choices[i]) && (!name || strcmp(choices[i].path->name, name) == 0))
            return choices[i].path;
    return NULL;
}

void path_names(const struct features *have, const char **names) {
    int n = 0;
    for (int i = 0; i < MAX_PATHS; i++)
        if (can_run(have, &choices[i])) names[n++] = choices[i].path->name;
    names[n] = NULL;
}
