/* Replaces the checker in builds that do not compile kernels for checking. */
#include "internal.h"

namespace emu {

void note_access(const void *, size_t, bool, bool) {}
void note_fence() {}
void checker_stacks(const char *) {}
void checker_allocated(const void *, size_t) {}
void checker_freed(const void *) {}
void checker_pinned(const void *, size_t) {}
void checker_unpinned(const void *) {}
void checker_work(unsigned, const stream_clock &) {}
void checker_copied(const void *, const void *, size_t) {}
void checker_grid(const range &, bool) {}
void checker_grid_ends() {}
void checker_block(unsigned) {}
void checker_swap(size_t) {}
void checker_thread(int) {}
void checker_barrier() {}
void checker_syncwarp(int, unsigned) {}
void checker_fence() {}
void checker_pending(const void *, size_t) {}
void join_knowledge(knowledge &, const knowledge &) {}
void checker_release(knowledge &) {}
void checker_acquire(const knowledge &) {}
void checker_async_read(const void *, size_t) {}
uint32_t checker_async_write(const void *, size_t) {
    return 0;
}
void checker_landed(const void *, size_t, int, uint32_t, knowledge &) {}
void checker_proxy_fence() {}
void checker_access(const void *, size_t, bool, bool, const void *) {}

} // namespace emu
