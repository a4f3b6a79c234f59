/* Reads the features of processor and system: CPUID, the registers that the system saves (XCR0),
 * and AMX, which Linux grants to a process on request. */
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/features.h"

#define OSXSAVE (1u << 27) /* leaf 1, ecx: xgetbv may be used */

enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM of arch_prctl(2) */

struct features features_read(void) {
    struct features f = {0};
    uint32_t eax, ebx, ecx, edx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) f.word[LEAF_1_ECX] = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        f.word[LEAF_7_EBX] = ebx;
        f.word[LEAF_7_ECX] = ecx;
        f.word[LEAF_7_EDX] = edx;
        if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) f.word[LEAF_7_1_EAX] = eax;
    }
    if (f.word[LEAF_1_ECX] & OSXSAVE) /* edx is the high half and is not used */
        __asm__ volatile("xgetbv" : "=a"(f.word[XCR0]), "=d"(edx) : "c"(0));
    /* one request covers all threads of the process */
    f.word[GRANTED] = (f.word[LEAF_7_EDX] & AMX_TILE) &&
                      (f.word[XCR0] & SAVES_TILES) == SAVES_TILES &&
                      syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    return f;
}
