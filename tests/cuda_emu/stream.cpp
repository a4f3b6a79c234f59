/* DESIGN: streams, events, graphs.
 *
 * A stream is a queue of work that nobody has done yet. It is done when the host waits: for the
 * stream, for an event in it, for the device. So a host that reads without waiting reads what was
 * there before. Work in the legacy default stream waits for all others. An event is done when its
 * place in a queue has been passed; a stream that waits for one runs the other queue that far and
 * on.
 *
 * Under capture, work is written down instead and belongs to the graph; a launch of the graph
 * queues it again, with the parameters that it was captured with. What a real capture forbids is
 * refused.
 */
#include <deque>
#include <set>
#include <vector>

#include "internal.h"

using namespace emu;

struct CUstream_st {
    std::deque<work> queue;
    bool running = false, capturing = false;
    std::vector<work> recorded;
};

struct CUevent_st {
    CUstream_st *stream = nullptr;
    uint64_t recorded = 0, done = 0;
};

struct CUgraph_st {
    std::vector<work> nodes;
};

struct CUgraphExec_st {
    std::vector<work> nodes;
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

/* Work may wait for another stream, and that one for this; whoever runs already goes on alone. */
static void run(CUstream_st *stream) {
    turn mine;
    if (stream->running || stream->queue.empty()) return;
    device_scope scope;
    stream->running = true;
    while (!stream->queue.empty()) {
        work next = std::move(stream->queue.front());
        stream->queue.pop_front();
        next();
    }
    stream->running = false;
}

void run_all_streams() {
    turn mine;
    for (CUstream_st *stream : streams) run(stream);
}

cudaError_t enqueue(cudaStream_t handle, work what) {
    turn mine;
    CUstream_st *stream = stream_of(handle);
    if (stream->capturing) {
        stream->recorded.push_back(std::move(what));
        return cudaSuccess;
    }
    if (stream == &default_stream) {
        if (refuse_in_capture("work in the default stream"))
            return cudaErrorStreamCaptureUnsupported;
        run_all_streams();
    }
    stream->queue.push_back(std::move(what));
    if (!streams_are_lazy()) run(stream);
    return cudaSuccess;
}

bool refuse_in_capture(const char *what) {
    for (const CUstream_st *stream : streams) {
        if (!stream->capturing) continue;
        report("capture", "%s while a stream is under capture", what);
        set_error(cudaErrorStreamCaptureUnsupported);
        return true;
    }
    return false;
}

} // namespace emu

/* ---- streams -------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned) {
    turn mine;
    *out = new CUstream_st;
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
    event->stream = stream_of(stream);
    uint64_t number = ++event->recorded;
    return enqueue(stream, [event, number] { event->done = number; });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    uint64_t number = event->recorded;
    return enqueue(stream, [event, number] {
        if (event->done < number) run(event->stream);
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->done < event->recorded) run(event->stream);
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

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (!stream) return set_error(cudaErrorStreamCaptureUnsupported);
    stream->capturing = true;
    stream->recorded.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    if (!stream || !stream->capturing) return set_error(cudaErrorInvalidValue);
    stream->capturing = false;
    *graph = new CUgraph_st{std::move(stream->recorded)};
    stream->recorded.clear();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    *out = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    for (const work &node : exec->nodes) {
        cudaError_t error = enqueue(stream, node);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    run_all_streams();
    delete exec;
    return cudaSuccess;
}
