/* DESIGN: streams, events, graphs.
 *
 * A stream is a queue of pending work. It is done when the host waits: for the
 * stream, for an event in it, for the device. So a host that reads without waiting reads what was
 * there before. The legacy default stream, in which cudaMemset and cudaMemcpy work, and all streams
 * that were not made non-blocking wait for one another; a non-blocking one knows nothing of it. An
 * event is done when its place in a queue has been passed; a stream that waits for one runs the
 * other queue that far and no further, since later work may wait for this one.
 *
 * Under capture, work is written down instead and belongs to the graph; a launch of the graph
 * queues it again, with the parameters that it was captured with. What a real capture forbids is
 * refused, and ends the capture without a graph. An event that is recorded under capture belongs to
 * it: nothing can wait for it. A graph may go only when none of its launches is still to run.
 */
#include <deque>
#include <set>
#include <vector>

#include "internal.h"

using namespace emu;

struct CUstream_st {
    std::deque<work> queue;
    bool running = false, capturing = false;
    bool alone = false;   /* non-blocking */
    bool invalid = false; /* the capture was: it did what it may not */
    std::vector<work> recorded;
};

struct CUevent_st {
    CUstream_st *stream = nullptr;
    uint64_t recorded = 0, done = 0;
    bool captured = false; /* it was recorded under capture last */
};

struct CUgraph_st {
    std::vector<work> nodes;
};

struct CUgraphExec_st {
    std::vector<work> nodes;
    unsigned long launched = 0, ended = 0; /* launches */
};

namespace emu {

static CUstream_st default_stream;
static std::set<CUstream_st *> streams{&default_stream};
static cudaError_t last_error;

cudaError_t set_error(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

static CUstream_st *stream_of(cudaStream_t stream) {
    return stream ? stream : &default_stream;
}

/* Runs a stream until the event has been recorded `number` times, or to its end. Work may wait for
 * another stream, and that one for this; the one that runs already goes on alone. */
static void run(CUstream_st *stream, const CUevent_st *until = nullptr, uint64_t number = 0) {
    turn mine;
    if (stream->running || stream->queue.empty()) return;
    device_scope scope;
    stream->running = true;
    while (!stream->queue.empty() && !(until && until->done >= number)) {
        work next = std::move(stream->queue.front());
        stream->queue.pop_front();
        next();
    }
    stream->running = false;
}

/* Those that wait for one another with this one, which is not non-blocking. */
static void run_others(const CUstream_st *stream) {
    for (CUstream_st *other : streams)
        if (stream == &default_stream ? other != stream && !other->alone : other == &default_stream)
            run(other);
}

bool in_capture(cudaStream_t stream) {
    return stream_of(stream)->capturing;
}

void run_all_streams() {
    turn mine;
    for (CUstream_st *stream : streams) run(stream);
}

void drop_all_streams() {
    for (CUstream_st *stream : streams) stream->queue.clear();
}

cudaError_t enqueue(cudaStream_t handle, work what) {
    turn mine;
    CUstream_st *stream = stream_of(handle);
    if (stream->capturing) {
        if (stream->invalid) return set_error(cudaErrorStreamCaptureInvalidated);
        stream->recorded.push_back(std::move(what));
        return cudaSuccess;
    }
    if (stream == &default_stream && refuse_in_capture("work in the default stream"))
        return cudaErrorStreamCaptureUnsupported;
    if (!stream->alone) run_others(stream);
    stream->queue.push_back(std::move(what));
    if (stream_runs_now()) run(stream);
    return cudaSuccess;
}

bool refuse_in_capture(const char *what) {
    for (CUstream_st *stream : streams) {
        if (!stream->capturing) continue;
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
    *out = new CUstream_st;
    (*out)->alone = flags & cudaStreamNonBlocking;
    streams.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    turn mine;
    run(stream);
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
    run(stream_of(stream));
    return last_error;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return cudaStreamSynchronize(stream);
}

cudaError_t cudaDeviceSynchronize() {
    if (cudaError_t error = call_fails(EMU_WAIT)) return error;
    if (refuse_in_capture("cudaDeviceSynchronize")) return cudaErrorStreamCaptureUnsupported;
    run_all_streams();
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
    uint64_t number = ++event->recorded;
    return enqueue(stream, [event, number] { event->done = number; });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    uint64_t number = event->recorded;
    if (event->captured && event->stream == stream_of(stream)) return cudaSuccess;
    if (event->captured && refuse_in_capture("an event of it in another stream"))
        return cudaErrorStreamCaptureUnsupported;
    return enqueue(stream, [event, number] {
        if (event->done < number) run(event->stream, event, number);
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->captured && refuse_in_capture("waiting for an event of it"))
        return cudaErrorStreamCaptureUnsupported;
    if (cudaError_t error = call_fails(EMU_WAIT)) return error;
    if (event->done < event->recorded) run(event->stream, event, event->recorded);
    return last_error;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return cudaEventSynchronize(event);
}

/* Time means nothing here. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) {
    *ms = 0;
    return cudaSuccess;
}

/* ---- graphs --------------------------------------------------------------------------------- */

static unsigned long n_graphs, n_graph_launches;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (!stream || stream->capturing) return set_error(cudaErrorStreamCaptureUnsupported);
    if (is_told_to_fail("cudaStreamBeginCapture")) return set_error(cudaErrorMemoryAllocation);
    stream->capturing = true;
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
    for (const work &node : exec->nodes) {
        cudaError_t error = enqueue(stream, node);
        if (error != cudaSuccess) return error;
    }
    exec->launched++;
    n_graph_launches++;
    return enqueue(stream, [exec] { exec->ended++; });
}

unsigned long cuda_emu_graphs() {
    return n_graphs;
}

unsigned long cuda_emu_graph_launches() {
    return n_graph_launches;
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
