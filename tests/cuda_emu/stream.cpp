/* DESIGN: streams, events, graphs.
 *
 * A stream is a queue of pending work. The work runs when the host waits for the stream, for an
 * event in it, or for the device. So a host that reads without waiting reads the old contents. The
 * legacy default stream, which cudaMemset and cudaMemcpy use, and all streams that were not created
 * as non-blocking wait for one another; a non-blocking stream does not wait for it. An event is
 * done when its position in a queue has been passed. A stream that waits for an event runs the
 * other queue only that far, because later work there may wait for this stream.
 *
 * Under capture, work is recorded instead and belongs to the graph. A launch of the graph queues it
 * again, with the captured parameters. Calls that a real capture forbids are refused, and end the
 * capture without a graph. An event that is recorded under capture belongs to the graph: no call
 * can wait for it. A graph may be destroyed only when all of its launches have run.
 *
 * Work may be blocked: it waits for another stream, another thread's, or another process
 * (enqueue_when). A blocked stream is left as it is. A host that waits for it runs the other
 * streams, and then gives other threads their turn, until the work may run.
 *
 * Each stream has a vector clock of the work that is known to have happened before its current
 * work: its earlier work, the work before events that it waited for, and the work that the host had
 * waited for when it queued the current work. The checker compares these clocks, not the order in
 * which work happened to run (checker_streams.cpp).
 */
#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <unistd.h>
#include <vector>

#include "include/emu_count.h"
#include "internal.h"

using namespace emu;

using known_before = std::shared_ptr<const stream_clock>;

/* Work, and whether it may run now; an empty `ready` means always. */
struct node {
    work what;
    readiness ready;
};

struct queued {
    node what;
    known_before after; /* work that happened before it, in other streams */
};

struct CUstream_st {
    std::deque<queued> queue;
    unsigned number = 0; /* a number is never reused */
    stream_clock clock;  /* of the current or last work */
    bool running = false, capturing = false;
    bool alone = false;   /* is it non-blocking? */
    bool invalid = false; /* has a forbidden call made the capture invalid? */
    /* Does a capture forbid only its own thread some calls, and which thread is that? */
    bool forbids_own = false;
    std::thread::id captured_by;
    std::vector<node> recorded;
    struct emu_between since_graph = {}; /* work queued since the last graph */
};

/* One record of an event. */
struct mark {
    CUstream_st *stream;
    bool done = false;
    stream_clock clock; /* the stream's clock at the record */
};

struct CUevent_st {
    CUstream_st *stream = nullptr;
    std::shared_ptr<mark> last; /* NULL: never recorded */
    bool captured = false;      /* was the last record under capture? */
};

struct CUgraph_st {
    std::vector<node> nodes;
};

struct CUgraphExec_st {
    std::vector<node> nodes;
    unsigned long launched = 0, ended = 0; /* launches */
};

namespace emu {

static CUstream_st default_stream;
static unsigned long n_run; /* pieces of work, of all streams */
static std::set<CUstream_st *> streams{&default_stream};
static cudaError_t last_error;
/* the work that the host has waited for */
static known_before host_clock = std::make_shared<stream_clock>();

void stream_clock::join(const stream_clock &other) {
    if (passed.size() < other.passed.size()) passed.resize(other.passed.size());
    for (size_t i = 0; i < other.passed.size(); i++)
        passed[i] = std::max(passed[i], other.passed[i]);
}

static void host_has_waited_for(const stream_clock &clock) {
    auto joined = std::make_shared<stream_clock>(*host_clock);
    joined->join(clock);
    host_clock = std::move(joined);
}

cudaError_t set_error(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

static CUstream_st *stream_of(cudaStream_t stream) {
    return stream ? stream : &default_stream;
}

/* Starts the stream's next work. */
static void advance(CUstream_st *stream, const stream_clock &after) {
    stream_clock &clock = stream->clock;
    clock.join(after);
    if (clock.passed.size() <= stream->number) clock.passed.resize(stream->number + 1);
    clock.passed[stream->number]++;
    checker_work(stream->number, clock);
}

/* Runs a stream until it reaches the mark, blocked work, or its end. Work of two streams may wait
 * for each other; a stream that already runs is not entered again. */
static void run(CUstream_st *stream, const mark *until = nullptr) {
    turn mine;
    if (stream->running || stream->queue.empty()) return;
    device_scope scope;
    stream->running = true;
    while (!stream->queue.empty() && !(until && until->done)) {
        if (stream->queue.front().what.ready && !stream->queue.front().what.ready()) break;
        queued next = std::move(stream->queue.front());
        stream->queue.pop_front();
        advance(stream, *next.after);
        next.what.what();
        n_run++;
    }
    stream->running = false;
}

/* Has `run` stopped before blocked work? */
static bool is_blocked(const CUstream_st *stream, const mark *until) {
    return !stream->running && !stream->queue.empty() && !(until && until->done);
}

/* Runs a stream to the mark or to its end, while other threads and processes unblock it. */
static void finish(CUstream_st *stream, const mark *until = nullptr) {
    enum { PAUSE_US = 50 };
    for (;; usleep(PAUSE_US)) {
        turn mine;
        for (unsigned long before = n_run - 1; n_run != before;) {
            before = n_run;
            run(stream, until);
            if (!is_blocked(stream, until)) return;
            for (CUstream_st *other : streams) run(other);
        }
    }
}

/* Do the two wait for one another, like the default stream and all streams that are not
 * non-blocking? */
static bool wait_mutually(const CUstream_st *stream, const CUstream_st *other) {
    return stream == &default_stream ? other != stream && !other->alone
                                     : !stream->alone && other == &default_stream;
}

/* Runs work that must end before new work of the stream begins. Returns all work that is known to
 * have happened before it. */
static known_before run_others(const CUstream_st *stream) {
    if (stream->alone) return host_clock;
    auto before = std::make_shared<stream_clock>(*host_clock);
    for (CUstream_st *other : streams) {
        if (!wait_mutually(stream, other)) continue;
        finish(other);
        before->join(other->clock);
    }
    return before;
}

bool in_capture(cudaStream_t stream) {
    return stream_of(stream)->capturing;
}

void run_all_streams() {
    turn mine;
    for (CUstream_st *stream : streams) run(stream);
}

void wait_for_all_streams() {
    finish(&default_stream);
    turn mine;
    for (CUstream_st *stream : streams) {
        finish(stream);
        host_has_waited_for(stream->clock);
    }
}

void drop_all_streams() {
    for (CUstream_st *stream : streams) stream->queue.clear();
}

static cudaError_t enqueue_node(cudaStream_t handle, node what) {
    turn mine;
    CUstream_st *stream = stream_of(handle);
    if (stream->capturing) {
        if (stream->invalid) return set_error(cudaErrorStreamCaptureInvalidated);
        stream->recorded.push_back(std::move(what));
        return cudaSuccess;
    }
    if (stream == &default_stream && refuse_in_capture("work in the default stream"))
        return cudaErrorStreamCaptureUnsupported;
    known_before after = run_others(stream);
    stream->queue.push_back({std::move(what), std::move(after)});
    if (stream_runs_now()) run(stream);
    return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, work what) {
    return enqueue_node(stream, {std::move(what), {}});
}

cudaError_t enqueue_when(cudaStream_t stream, readiness ready, work what) {
    return enqueue_node(stream, {std::move(what), std::move(ready)});
}

void count_queued(cudaStream_t stream, enum emu_call kind) {
    if (in_capture(stream)) return;
    struct emu_between &counts = stream_of(stream)->since_graph;
    if (kind == EMU_COPY) counts.copies++;
    if (kind == EMU_LAUNCH) counts.launches++;
}

bool refuse_in_capture(const char *what) {
    for (CUstream_st *stream : streams) {
        if (!stream->capturing) continue;
        if (stream->forbids_own && stream->captured_by != std::this_thread::get_id()) continue;
        report("capture", "%s while a stream is under capture", what);
        stream->invalid = true;
        set_error(cudaErrorStreamCaptureUnsupported);
        return true;
    }
    return false;
}

} // namespace emu

/* ---- streams -------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    turn mine;
    static unsigned n_made = 1; /* 1: the default stream */
    *out = new CUstream_st;
    (*out)->number = n_made++;
    (*out)->alone = flags & cudaStreamNonBlocking;
    streams.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    finish(stream);
    turn mine;
    streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (cudaError_t error = call_fails(EMU_WAIT)) return error;
    if (stream_of(stream)->capturing) {
        refuse_in_capture("cudaStreamSynchronize");
        return cudaErrorStreamCaptureUnsupported;
    }
    finish(stream_of(stream));
    turn mine;
    host_has_waited_for(stream_of(stream)->clock);
    return last_error;
}

/* Time passes: all work runs that may. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (cudaError_t error = call_fails(EMU_WAIT)) return error;
    if (stream_of(stream)->capturing) {
        refuse_in_capture("cudaStreamQuery");
        return cudaErrorStreamCaptureUnsupported;
    }
    turn mine;
    run(stream_of(stream));
    if (is_blocked(stream_of(stream), nullptr)) return cudaErrorNotReady;
    host_has_waited_for(stream_of(stream)->clock);
    return last_error;
}

cudaError_t cudaDeviceSynchronize() {
    if (cudaError_t error = call_fails(EMU_WAIT)) return error;
    if (refuse_in_capture("cudaDeviceSynchronize")) return cudaErrorStreamCaptureUnsupported;
    wait_for_all_streams();
    return last_error;
}

cudaError_t cudaGetLastError() {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() {
    return last_error;
}

/* ---- events --------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned) {
    *out = new CUevent_st;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    run_all_streams();
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (cudaError_t error = call_fails(EMU_RECORD)) return error;
    event->stream = stream_of(stream);
    event->captured = event->stream->capturing;
    if (event->captured) return cudaSuccess;
    auto here = std::make_shared<mark>(event->stream);
    event->last = here;
    return enqueue(stream, [here] {
        here->done = true;
        here->clock = here->stream->clock;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (event->captured && event->stream == stream_of(stream)) return cudaSuccess;
    if (event->captured && refuse_in_capture("an event of it in another stream"))
        return cudaErrorStreamCaptureUnsupported;
    if (!event->last) return cudaSuccess;
    CUstream_st *waits = stream_of(stream);
    const auto ready = [until = event->last] {
        if (!until->done) run(until->stream, until.get());
        return !is_blocked(until->stream, until.get());
    };
    return enqueue_when(stream, ready,
                        [waits, until = event->last] { waits->clock.join(until->clock); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->captured && refuse_in_capture("waiting for an event of it"))
        return cudaErrorStreamCaptureUnsupported;
    if (cudaError_t error = call_fails(EMU_WAIT)) return error;
    if (!event->last) return last_error;
    if (!event->last->done) finish(event->stream, event->last.get());
    turn mine;
    host_has_waited_for(event->last->clock);
    return last_error;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return cudaEventSynchronize(event);
}

/* Times are not emulated. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) {
    *ms = 0;
    return cudaSuccess;
}

/* ---- graphs --------------------------------------------------------------------------------- */

static unsigned long n_graphs, n_graph_launches, n_captures;
static struct emu_between before_graph; /* the work before the last graph */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    if (!stream || stream->capturing) return set_error(cudaErrorStreamCaptureUnsupported);
    if (is_told_to_fail("cudaStreamBeginCapture")) return set_error(cudaErrorMemoryAllocation);
    n_captures++;
    stream->capturing = true;
    stream->forbids_own = mode == cudaStreamCaptureModeThreadLocal;
    stream->captured_by = std::this_thread::get_id();
    stream->invalid = false;
    stream->recorded.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    if (!stream || !stream->capturing) return set_error(cudaErrorInvalidValue);
    stream->capturing = false;
    *graph = nullptr;
    if (is_told_to_fail("cudaStreamEndCapture")) stream->invalid = true;
    if (!stream->invalid) *graph = new CUgraph_st{std::move(stream->recorded)};
    stream->recorded.clear();
    return set_error(*graph ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    if (refuse_in_capture("cudaGraphInstantiate")) return cudaErrorStreamCaptureUnsupported;
    if (is_told_to_fail("cudaGraphInstantiate")) return set_error(cudaErrorMemoryAllocation);
    n_graphs++;
    *out = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (cudaError_t error = call_fails(EMU_LAUNCH)) return error;
    if (is_told_to_fail("cudaGraphLaunch")) return set_error(cudaErrorMemoryAllocation);
    for (const node &one : exec->nodes) {
        cudaError_t error = enqueue_node(stream, one);
        if (error != cudaSuccess) return error;
    }
    exec->launched++;
    n_graph_launches++;
    before_graph = stream_of(stream)->since_graph;
    for (CUstream_st *other : streams) {
        if (other != stream_of(stream)) before_graph.copies_elsewhere += other->since_graph.copies;
        other->since_graph = {};
    }
    return enqueue(stream, [exec] { exec->ended++; });
}

unsigned long cuda_emu_graphs() {
    return n_graphs;
}

unsigned long cuda_emu_graph_launches() {
    return n_graph_launches;
}

void emu_between_graphs(struct emu_between *out) {
    *out = before_graph;
}

unsigned long cuda_emu_captures() {
    return n_captures;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    if (exec->ended < exec->launched && !device_is_broken()) {
        report("graph", "it is destroyed while a launch of it is still to run");
        run_all_streams();
    }
    n_graphs--;
    delete exec;
    return cudaSuccess;
}
