/* Races between streams. Does the checker report unordered accesses, in any order of the streams,
 * and nothing if an event or a wait of the host orders them? */
#include <string.h>

#include "tests/cuda/broken.cuh"
#include "tests/cuda/emulated_cases.h"

/* Three unordered streams, and memory that they may share. */
struct world {
    cudaStream_t a, b, c;
    cudaEvent_t event[2];
    broken_args args; /* the kernel reads `in` and writes `out` */
    float *other;     /* device memory of the same length */
    float *pinned;    /* host memory of the same length */
};

enum : size_t { BYTES = BROKEN_N * sizeof(float) };

static world open_world() {
    world w = {};
    float numbers[BROKEN_N];
    for (int i = 0; i < BROKEN_N; i++) numbers[i] = (float)(i + 1);
    for (cudaStream_t *stream : {&w.a, &w.b, &w.c})
        cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    for (cudaEvent_t &event : w.event) cudaEventCreate(&event);
    for (float **memory : {&w.args.out, &w.args.in, &w.other}) cudaMalloc((void **)memory, BYTES);
    cudaMallocHost((void **)&w.pinned, BYTES);
    cudaMemcpy(w.args.in, numbers, BYTES, cudaMemcpyHostToDevice);
    cudaMemset(w.args.out, 0, BYTES);
    cudaDeviceSynchronize();
    return w;
}

static void compute(const world &w, cudaStream_t stream) {
    broken_launch("right_exchange", w.args, stream);
}
static void copy(float *to, const float *from, cudaStream_t stream) {
    cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDefault, stream);
}
static void order(cudaStream_t first, cudaStream_t then, cudaEvent_t event) {
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(then, event, 0);
}

/* ---- wrong ---------------------------------------------------------------------------------- */

static void no_event(world &w) {
    compute(w, w.a);
    copy(w.pinned, w.args.out, w.b);
}

static void event_of_the_other_stage(world &w) {
    compute(w, w.a);
    cudaEventRecord(w.event[0], w.a);
    copy(w.other, w.args.out, w.a);
    cudaEventRecord(w.event[1], w.a);
    cudaStreamWaitEvent(w.b, w.event[0], 0);
    copy(w.pinned, w.other, w.b);
}

static void event_too_early(world &w) {
    order(w.a, w.b, w.event[0]);
    compute(w, w.a);
    copy(w.pinned, w.args.out, w.b);
}

/* A wait refers to the record before it, not to a later one. */
static void event_recorded_again(world &w) {
    order(w.a, w.b, w.event[0]);
    compute(w, w.a);
    cudaEventRecord(w.event[0], w.a);
    copy(w.pinned, w.args.out, w.b);
}

static void event_never_recorded(world &w) {
    compute(w, w.a);
    cudaStreamWaitEvent(w.b, w.event[0], 0);
    copy(w.pinned, w.args.out, w.b);
}

/* The second stream does not order the first one after it: the stage is filled again while it is
 * read. */
static void stage_refilled(world &w) {
    compute(w, w.a);
    order(w.a, w.b, w.event[0]);
    copy(w.pinned, w.args.out, w.b);
    compute(w, w.a);
}

static void two_writers(world &w) {
    cudaMemsetAsync(w.args.out, 0, BYTES, w.a);
    compute(w, w.b);
}

/* Later reads by the writer's own stream do not hide the other stream's read. */
static void read_long_ago(world &w) {
    copy(w.pinned, w.args.out, w.a);
    for (int i = 0; i < 3; i++) copy(w.other, w.args.out, w.b);
    cudaMemsetAsync(w.args.out, 0, BYTES, w.b);
}

static void kernel_reads(world &w) {
    copy(w.args.in, w.args.out, w.a);
    compute(w, w.b);
}

static void through_pinned_memory(world &w) {
    copy(w.pinned, w.args.in, w.a);
    copy(w.other, w.pinned, w.b);
}

static void host_waits_for_another(world &w) {
    compute(w, w.a);
    cudaStreamSynchronize(w.c);
    copy(w.pinned, w.args.out, w.b);
}

static void default_stream_fills(world &w) {
    cudaMemset(w.args.out, 0, BYTES);
    compute(w, w.a);
}

static void graph_beside_copy(world &w) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamBeginCapture(w.a, cudaStreamCaptureModeThreadLocal);
    compute(w, w.a);
    cudaStreamEndCapture(w.a, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, w.a);
    copy(w.pinned, w.args.out, w.b);
}

/* ---- right ---------------------------------------------------------------------------------- */

static void one_event(world &w) {
    compute(w, w.a);
    order(w.a, w.b, w.event[0]);
    copy(w.pinned, w.args.out, w.b);
}

static void along_three_streams(world &w) {
    compute(w, w.a);
    order(w.a, w.b, w.event[0]);
    copy(w.other, w.args.out, w.b);
    order(w.b, w.c, w.event[1]);
    cudaMemsetAsync(w.args.out, 0, BYTES, w.c);
    copy(w.pinned, w.other, w.c);
}

static void stage_there_and_back(world &w) {
    for (int i = 0; i < 4; i++) {
        compute(w, w.a);
        order(w.a, w.b, w.event[0]);
        copy(w.pinned, w.args.out, w.b);
        order(w.b, w.a, w.event[1]);
    }
}

static void host_waits_for_stream(world &w) {
    compute(w, w.a);
    cudaStreamSynchronize(w.a);
    copy(w.pinned, w.args.out, w.b);
}

static void host_waits_for_event(world &w) {
    compute(w, w.a);
    cudaEventRecord(w.event[0], w.a);
    cudaEventSynchronize(w.event[0]);
    copy(w.pinned, w.args.out, w.b);
}

static void both_read(world &w) {
    compute(w, w.a);
    order(w.a, w.b, w.event[0]);
    copy(w.other, w.args.out, w.a);
    copy(w.pinned, w.args.out, w.b);
}

static void halves(world &w) {
    const size_t half = BYTES / 2;
    for (cudaStream_t stream : {w.a, w.b}) {
        const size_t at = stream == w.a ? 0 : BROKEN_N / 2;
        cudaMemcpyAsync(w.args.out + at, w.args.in + at, half, cudaMemcpyDefault, stream);
        cudaMemcpyAsync(w.pinned + at, w.args.out + at, half, cudaMemcpyDefault, stream);
    }
}

/* The default stream and streams without the non-blocking flag wait for one another. */
static void blocking_streams(world &w) {
    cudaStreamCreateWithFlags(&w.c, cudaStreamDefault);
    compute(w, w.c);
    cudaMemcpyAsync(w.other, w.args.out, BYTES, cudaMemcpyDefault, nullptr);
    copy(w.pinned, w.other, w.c);
}

/* ---- running them --------------------------------------------------------------------------- */

struct act {
    const char *name;
    void (*act)(world &w);
};
#define ACT(name)                                                                                  \
    { #name, name }

static const act wrong_acts[] = {
    ACT(no_event),
    ACT(event_of_the_other_stage),
    ACT(event_too_early),
    ACT(two_writers),
    ACT(event_recorded_again),
    ACT(event_never_recorded),
    ACT(stage_refilled),
    ACT(read_long_ago),
    ACT(kernel_reads),
    ACT(graph_beside_copy),
    ACT(through_pinned_memory),
    ACT(host_waits_for_another),
    ACT(default_stream_fills),
};
static const act right_acts[] = {
    ACT(one_event), ACT(along_three_streams),   ACT(stage_there_and_back),
    ACT(both_read), ACT(host_waits_for_stream), ACT(host_waits_for_event),
    ACT(halves),    ACT(blocking_streams),
};
static const char *const lazy[] = {"1", "0", "random"}; /* the order in which streams run */

#define COUNT(array) ((int)(sizeof array / sizeof *array))

static bool run_if_named(const act &a, const char *name) {
    if (strcmp(a.name, name) != 0) return false;
    world w = open_world();
    a.act(w);
    cudaDeviceSynchronize();
    bool right = true;
    for (int i = 0; i < BROKEN_N; i++) right = right && w.pinned[i] == (float)(i + 1);
    say_result(right);
    return true;
}

static void run_act(const char *name) {
    bool found = false;
    for (const act &a : wrong_acts) found = found || run_if_named(a, name);
    for (const act &a : right_acts) found = found || run_if_named(a, name);
    if (!found) say_result(false);
}

START_TEST(unordered_streams_are_found_in_every_order) {
    const act &a = wrong_acts[_i / COUNT(lazy)];
    check_found(run_act, {a.name, CHECKER, "race between streams: "}, lazy[_i % COUNT(lazy)]);
}
END_TEST

START_TEST(ordered_streams_pass_in_every_order) {
    const act &a = right_acts[_i / COUNT(lazy)];
    check_right(run_act, a.name, 1, lazy[_i % COUNT(lazy)]);
}
END_TEST

int main(int, char **arguments) {
    cases_begin(arguments[0]);
    Suite *suite = suite_create("cuda_emulation_streams");
    TCase *streams = tcase_create("streams");
    tcase_set_timeout(streams, 300);
    tcase_add_loop_test(streams, unordered_streams_are_found_in_every_order, 0,
                        COUNT(wrong_acts) * COUNT(lazy));
    tcase_add_loop_test(streams, ordered_streams_pass_in_every_order, 0,
                        COUNT(right_acts) * COUNT(lazy));
    suite_add_tcase(suite, streams);
    return suite_main(suite);
}
