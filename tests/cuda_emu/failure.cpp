/* DESIGN: a device that fails on a test's request.
 *
 * A test program in the same process calls emu_break. A server reads its environment:
 *
 *   CUDA_EMU_BREAK=launch:40          the 40th launch since the start fails, and all after it
 *   CUDA_EMU_BREAK=copy:3:once        only the third copy fails
 *   CUDA_EMU_BREAK=wait:2:signal      the second wait after a SIGRTMIN, and all calls after it
 *   CUDA_EMU_BREAK=wait:2:once:signal only that wait
 *
 * The kinds are launch, copy, wait, record and allocate (emu_failure.h). A signal only sets a flag,
 * which the next call reads: only the one host thread that calls may change the other state.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/emu_failure.h"
#include "internal.h"

namespace emu {

static struct {
    int kind = -1; /* -1: no failure is set */
    int left;      /* calls until the failing one, which is included; 0: it has failed */
    bool for_good, on_signal;
} plan;
static bool broken;
static volatile sig_atomic_t signalled;

static void on_signal(int) {
    signalled = 1;
}

static void refuse_setting(const char *text) {
    fprintf(stderr,
            "cuda_emu: CUDA_EMU_BREAK=%s is not KIND:N, followed by :once, :signal or both\n",
            text);
    exit(2);
}

/* Does *text begin with the word? If so, advances *text past it. */
static bool takes(const char **text, const char *word) {
    bool is = strncmp(*text, word, strlen(word)) == 0;
    if (is) *text += strlen(word);
    return is;
}

static void read_setting(const char *text) {
    static const char *const names[EMU_N_CALLS] = {
        "launch:", "copy:", "wait:", "record:", "allocate:"};
    const char *at = text;
    for (int i = 0; i < EMU_N_CALLS; i++)
        if (takes(&at, names[i])) plan.kind = i;
    char *end;
    plan.left = (int)strtol(at, &end, 10);
    at = end;
    plan.for_good = !takes(&at, ":once");
    plan.on_signal = takes(&at, ":signal");
    if (plan.kind < 0 || plan.left < 1 || *at) refuse_setting(text);
    if (plan.on_signal) signal(SIGRTMIN, on_signal);
}

static void read_environment() {
    static bool was_read;
    if (was_read) return;
    was_read = true;
    const char *text = getenv("CUDA_EMU_BREAK");
    if (text && *text && plan.kind < 0) read_setting(text);
}

cudaError_t call_fails(enum emu_call kind) {
    read_environment();
    if (broken) return set_error(cudaErrorLaunchFailure);
    if (plan.kind != kind || plan.left == 0 || (plan.on_signal && !signalled)) return cudaSuccess;
    if (--plan.left > 0) return cudaSuccess;
    if (kind == EMU_ALLOCATE) return cudaErrorMemoryAllocation; /* this does not break the device */
    if (!plan.for_good) return cudaErrorInvalidValue;
    broken = true;
    drop_all_streams();
    return set_error(cudaErrorLaunchFailure);
}

bool device_is_broken() {
    return broken;
}

} // namespace emu

using namespace emu;

void emu_break(enum emu_call kind, int n, bool for_good) {
    plan = {kind, n, for_good, false};
}

bool emu_is_broken() {
    return plan.kind >= 0 && plan.left == 0;
}

void emu_mend() {
    plan = {};
    plan.kind = -1;
    broken = false;
    cudaGetLastError();
}
