/* DESIGN: the order of events between streams.
 *
 * A `task` is a grid or a copy. It has the epochs from its first one up to the next task's, in the
 * order in which the emulation ran them, and a position in the work of its stream. A device may run
 * streams in another order than the emulation, so that order proves nothing. A task has happened
 * before the current work only if the clock of the current stream (stream.cpp) has passed its
 * position.
 *
 * For nearly all bytes the last access is by such a task. To make this fast, all epochs below
 * `all_before` are known to belong to such tasks.
 */
#include <algorithm>
#include <vector>

#include "checker.h"

namespace emu {

struct task {
    uint32_t first; /* first epoch */
    unsigned stream;
    uint32_t number; /* position in its stream */
};

static std::vector<task> tasks;                  /* by first epoch */
static std::vector<std::vector<size_t>> streams; /* the tasks of each stream */
static unsigned stream_now;
static const stream_clock *clock_now;
static uint32_t all_before;

static uint32_t passed(unsigned stream) {
    return stream < clock_now->passed.size() ? clock_now->passed[stream] : 0;
}

void checker_work(unsigned stream, const stream_clock &clock) {
    stream_now = stream;
    clock_now = &clock;
}

unsigned streams_current() {
    return stream_now;
}

/* Returns the first epoch of a stream that is not known to have ended. */
static uint32_t first_open(unsigned stream) {
    const std::vector<size_t> &all = streams[stream];
    auto open = std::upper_bound(all.begin(), all.end(), passed(stream),
                                 [](uint32_t n, size_t t) { return n < tasks[t].number; });
    return open == all.end() ? UINT32_MAX : tasks[*open].first;
}

void streams_begin(uint32_t epoch) {
    tasks.push_back({epoch, stream_now, passed(stream_now)});
    if (streams.size() <= stream_now) streams.resize(stream_now + 1);
    streams[stream_now].push_back(tasks.size() - 1);
    all_before = epoch;
    for (unsigned s = 0; s < streams.size(); s++) all_before = std::min(all_before, first_open(s));
}

static const task *task_of(uint32_t epoch) {
    auto after = std::upper_bound(tasks.begin(), tasks.end(), epoch,
                                  [](uint32_t e, const task &t) { return e < t.first; });
    return after == tasks.begin() ? nullptr : &*(after - 1);
}

bool streams_is_own(uint32_t epoch) {
    const task *t = task_of(epoch);
    return t && t->stream == stream_now;
}

bool streams_ordered(uint32_t epoch) {
    if (epoch < all_before) return true;
    const task *t = task_of(epoch);
    return !t || t->number <= passed(t->stream);
}

} // namespace emu
