/* DESIGN: device memory.
 *
 * One range of addresses is reserved. Allocations are cut from it in order and addresses are never
 * reused, so a freed pointer stays invalid. Each allocation ends at an inaccessible page:
 *
 *     | slack | bytes ... | guard page | slack | bytes ... | guard page |
 *
 * Allocated memory is filled with rubbish that is NaN in every float type. While no stream runs,
 * the pages are inaccessible: host code that accesses device memory ends the process with a
 * message. The pages are accessible only while kernels or copies run.
 */
#include <iterator>
#include <map>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "internal.h"

namespace emu {

enum : size_t { RESERVED = (size_t)256 << 30, MARGIN = (size_t)64 << 30, ALIGNMENT = 16 };
enum { EXIT_ILLEGAL_ADDRESS = 139 };

struct allocation {
    size_t bytes;
    char *pages;
    size_t page_bytes;
    bool freed;
};

static std::map<const char *, allocation> allocations;
static char *reserved, *next_page;
static size_t bytes_used;
static int scopes;

static size_t round_up(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

/* ---- opening and closing the pages ---------------------------------------------------------- */

static void protect_all(int access) {
    for (auto &[start, a] : allocations)
        if (!a.freed) mprotect(a.pages, a.page_bytes, access);
}

device_scope::device_scope() {
    one_caller.lock();
    if (scopes++ == 0) protect_all(PROT_READ | PROT_WRITE);
}

device_scope::~device_scope() {
    if (--scopes == 0) protect_all(PROT_NONE);
    one_caller.unlock();
}

/* ---- addresses ------------------------------------------------------------------------------ */

bool is_device_memory(const void *p) {
    return reserved && p >= reserved && p < reserved + RESERVED;
}

/* Returns the allocation that starts at or before p. */
static const std::pair<const char *const, allocation> *allocation_before(const void *p) {
    auto after = allocations.upper_bound(static_cast<const char *>(p));
    return after == allocations.begin() ? nullptr : &*std::prev(after);
}

range allocation_at(const void *p) {
    auto *found = allocation_before(p);
    if (!found || found->second.freed) return {};
    range all{found->first, found->first + found->second.bytes};
    return all.has(p) ? all : range{};
}

std::string describe(const void *p) {
    std::string shared = shared_describe(p);
    if (!shared.empty()) return shared;
    char text[160];
    auto *found = is_device_memory(p) ? allocation_before(p) : nullptr;
    const range pinned = pinned_at(p);
    if (pinned.start)
        snprintf(text, sizeof text, "offset %td of %td pinned bytes",
                 static_cast<const char *>(p) - pinned.start, pinned.end - pinned.start);
    else if (!found)
        snprintf(text, sizeof text, "%p, which is not device memory", p);
    else
        snprintf(text, sizeof text, "offset %td of a%s allocation of %zu bytes",
                 static_cast<const char *>(p) - found->first, found->second.freed ? " freed" : "n",
                 found->second.bytes);
    return text;
}

static void on_illegal_address(int, siginfo_t *info, void *) {
    report(in_kernel() ? "illegal address" : "host touches device memory", "%s",
           describe(info->si_addr).c_str());
    fflush(nullptr);
    _exit(EXIT_ILLEGAL_ADDRESS);
}

static void reserve() {
    reserved = static_cast<char *>(
        mmap(nullptr, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (reserved == MAP_FAILED) {
        perror("cuda_emu: reserving addresses");
        abort();
    }
    next_page = reserved + MARGIN; /* room for wild addresses on both sides */
    static char stack[64 << 10];
    stack_t alternative = {};
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof stack;
    sigaltstack(&alternative, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_illegal_address;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}

/* ---- allocating ----------------------------------------------------------------------------- */

/* Poisons the slack before and after an allocation. Only the address sanitizer can watch it. */
static void poison_slack(const char *pages, const char *start, size_t bytes, size_t page_bytes) {
#ifdef __SANITIZE_ADDRESS__
    __asan_poison_memory_region(pages, (size_t)(start - pages));
    __asan_poison_memory_region(start + bytes, (size_t)(pages + page_bytes - start) - bytes);
#else
    (void)pages, (void)start, (void)bytes, (void)page_bytes;
#endif
}

cudaError_t device_malloc(void **out, size_t bytes) {
    turn mine;
    if (!reserved) reserve();
    size_t page_bytes = round_up(bytes ? bytes : 1, PAGE);
    if (bytes > RESERVED || page_bytes + PAGE > (size_t)(reserved + RESERVED - MARGIN - next_page))
        return cudaErrorMemoryAllocation;
    char *pages = next_page;
    next_page += page_bytes + PAGE;
    char *start = pages + page_bytes - round_up(bytes, ALIGNMENT);
    mprotect(pages, page_bytes, PROT_READ | PROT_WRITE);
    memset(start, 0xff, bytes);
    if (scopes == 0) mprotect(pages, page_bytes, PROT_NONE);
    poison_slack(pages, start, bytes, page_bytes);
    allocations[start] = {bytes, pages, page_bytes, false};
    bytes_used += bytes;
    checker_allocated(start, bytes);
    *out = start;
    return cudaSuccess;
}

cudaError_t device_free(void *p) {
    turn mine;
    auto found = allocations.find(static_cast<char *>(p));
    if (found == allocations.end() || found->second.freed) {
        report("cudaFree", "%s was not returned by cudaMalloc, or was freed", describe(p).c_str());
        return cudaErrorInvalidValue;
    }
    allocation &a = found->second;
    a.freed = true;
    bytes_used -= a.bytes;
    checker_freed(p);
    madvise(a.pages, a.page_bytes, MADV_DONTNEED);
    mprotect(a.pages, a.page_bytes, PROT_NONE);
    return cudaSuccess;
}

size_t device_bytes_used() {
    return bytes_used;
}

/* ---- copies --------------------------------------------------------------------------------- */

static bool fits(const char *what, const void *p, size_t bytes) {
    if (bytes == 0 || !is_device_memory(p) || allocation_at(p).has_all(p, bytes)) return true;
    report(what, "%zu bytes at %s", bytes, describe(p).c_str());
    return false;
}

void device_copy(void *to, const void *from, size_t bytes) {
    device_scope scope;
    if (!fits("cudaMemcpy", to, bytes) || !fits("cudaMemcpy", from, bytes)) return;
    memmove(to, from, bytes);
    checker_copied(to, from, bytes);
}

void device_fill(void *to, int value, size_t bytes) {
    device_scope scope;
    if (!is_device_memory(to) || !fits("cudaMemset", to, bytes)) {
        if (!is_device_memory(to)) report("cudaMemset", "%s", describe(to).c_str());
        return;
    }
    memset(to, value, bytes);
    checker_copied(to, nullptr, bytes);
}

} // namespace emu
