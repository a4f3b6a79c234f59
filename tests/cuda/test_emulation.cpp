/* Does the emulation report faults, and nothing else? */
#include <string.h>

#include "tests/cuda/broken.cuh"
#include "tests/cuda/emulated_cases.h"

/* ---- a case's process ----------------------------------------------------------------------- */

static given prepare(const char *name) {
    const given g = give_arguments(BROKEN_BLOCKS, 1, 0);
    if (strcmp(name, "host_fills_elsewhere") != 0) cudaDeviceSynchronize();
    return g;
}

static void run_kernel(const char *name) {
    given g = prepare(name);
    static float heap[BROKEN_N];
    g.args.host = heap;
    if (strstr(name, "pinned")) cudaMallocHost((void **)&g.args.host, sizeof g.host);
    broken_launch(name, g.args, test_stream());
    say_result_of(g.args);
}

/* Faults of the host, and the right ways. */
static void run_host(const char *name) {
    given g = prepare(name);
    cudaStream_t other;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    float out[BROKEN_N] = {};
    cudaStream_t waits = strstr(name, "stream") ? other : test_stream();
    if (strcmp(name, "host_frees_early") == 0) cudaFree(g.args.in);
    broken_launch("right_exchange", g.args, test_stream());
    if (strcmp(name, "host_touches_device") == 0) out[0] = *(volatile float *)g.args.out;
    if (strcmp(name, "right_stream_event") == 0) {
        cudaEvent_t event;
        cudaEventCreate(&event);
        cudaEventRecord(event, test_stream());
        cudaStreamWaitEvent(other, event, 0);
        cudaEventDestroy(event);
    }
    size_t bytes = strcmp(name, "host_copies_too_much") == 0 ? sizeof out + 4 : sizeof out;
    static float large[2 * BROKEN_N];
    void *pinned;
    cudaMallocHost(&pinned, sizeof out - 4);
    if (strcmp(name, "host_fills_too_much") == 0)
        cudaMemcpyAsync(pinned, g.args.out, bytes, cudaMemcpyDeviceToHost, waits);
    if (strcmp(name, "host_reads_elsewhere") == 0)
        cudaMemcpy(large, g.args.out, bytes, cudaMemcpyDeviceToHost);
    else
        cudaMemcpyAsync(large, g.args.out, bytes, cudaMemcpyDeviceToHost, waits);
    if (!strstr("host_does_not_wait host_reads_elsewhere", name)) cudaStreamSynchronize(waits);
    say_result_of(large);
    cudaStreamSynchronize(test_stream());
    cudaStreamDestroy(other);
    cudaFreeHost(pinned);
}

/* Calls while a stream is under capture. */
static void do_in_capture(const char *name, const given &g) {
    cudaEvent_t event;
    void *memory;
    cudaEventCreate(&event);
    cudaEventRecord(event, test_stream());
    if (strcmp(name, "capture_waits") == 0) cudaStreamSynchronize(test_stream());
    if (strcmp(name, "capture_waits_for_event") == 0) cudaEventSynchronize(event);
    if (strcmp(name, "capture_takes_memory") == 0) cudaMalloc(&memory, 16);
    if (strcmp(name, "capture_takes_pinned") == 0) cudaMallocHost(&memory, 16);
    if (strcmp(name, "capture_default_stream") == 0)
        cudaMemsetAsync(g.args.out, 0, sizeof(float), nullptr);
    cudaEventDestroy(event);
}

/* A graph that is launched twice. Each launch reads the memory's contents at that time. */
static void run_graph(const char *name) {
    given g = prepare(name);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec;
    cudaStreamBeginCapture(test_stream(), cudaStreamCaptureModeThreadLocal);
    broken_launch("right_exchange", g.args, test_stream());
    do_in_capture(name, g);
    if (cudaStreamEndCapture(test_stream(), &graph) != cudaSuccess) return;
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    for (int i = 0; i < 2; i++) {
        cudaMemsetAsync(g.args.out, 0, sizeof g.host, test_stream());
        if (strcmp(name, "capture_alone") != 0) cudaGraphLaunch(exec, test_stream());
    }
    if (strcmp(name, "graph_goes_early") == 0) cudaGraphExecDestroy(exec);
    cudaMemcpyAsync(g.host, g.args.out, sizeof g.host, cudaMemcpyDeviceToHost, test_stream());
    cudaStreamSynchronize(test_stream());
    say_result_of(g.host);
}

/* ---- cases ---------------------------------------------------------------------------------- */

static const wrong kernels[] = {
    {"race_read_after_write", CHECKER, "race: "},
    {"race_write_after_read", CHECKER, "race: "},
    {"race_in_warp", CHECKER, "race: "},
    {"race_same_value", CHECKER, "race: "},
    {"race_global", CHECKER, "race: "},
    {"race_plain_beside_atomic", CHECKER, "race: "},
    {"race_blocks_write", CHECKER, "race between blocks: "},
    {"race_blocks_no_writer_fence", CHECKER, "race between blocks: "},
    {"race_blocks_no_reader_fence", CHECKER, "race between blocks: "},
    {"bounds_global", ANY, "of an allocation of 512 bytes"},
    {"bounds_global_before", CHECKER, "out of bounds: "},
    {"bounds_far", ANY, "not device memory"},
    {"bounds_dynamic", ANY, "dynamic shared memory"},
    {"bounds_static", ANY, "shared variable"},
    {"misaligned", ANY, "misaligned: "},
    {"uninitialised_dynamic", ANY, NULL},
    {"uninitialised_dynamic", CHECKER, "uninitialised: "},
    {"uninitialised_static", ANY, NULL},
    {"uninitialised_static", CHECKER, "uninitialised: "},
    {"uninitialised_global", CHECKER, "uninitialised: "},
    {"host_pointer", CHECKER, "host variable in a kernel: "},
    {"pinned_read", CHECKER, "host memory in a kernel: "},
    {"pinned_bounds", CHECKER, "host memory in a kernel: "},
    {"barrier_divergence", ANY, "barrier divergence: "},
    {"deadlock", ANY, "deadlock: "},
    {"warp_divergence", ANY, "warp divergence: "},
    {"warp_mask", ANY, "warp mask: "},
    {"cp_async_no_wait", ANY, NULL},
    {"cp_async_no_wait", CHECKER, "uninitialised: "},
    {"cp_async_no_barrier", CHECKER, "race: "},
    {"early_read", CHECKER, "early read: "},
    {"early_write", CHECKER, "early write: "},
    {"early_no_wait", ANY, "early grid: "},
    {"launch_smem", ANY, "launch: "},
    {"launch_threads", ANY, "launch: "},
};
static const wrong hosts[] = {
    {"host_touches_device", ANY, "host touches device memory: "},
    {"host_copies_too_much", ANY, "cudaMemcpy: "},
    {"host_fills_too_much", ANY, "508 pinned ones"},
    {"host_does_not_wait", ANY, NULL},
    {"host_other_stream", ANY, NULL},
    {"host_fills_elsewhere", ANY, NULL},
    {"host_reads_elsewhere", ANY, NULL},
    {"host_frees_early", ANY, "freed allocation"},
};
static const wrong graphs[] = {
    {"capture_waits", ANY, "capture: cudaStreamSynchronize"},
    {"capture_waits_for_event", ANY, "capture: waiting for an event"},
    {"capture_takes_memory", ANY, "capture: cudaMalloc"},
    {"capture_takes_pinned", ANY, "capture: cudaMallocHost"},
    {"capture_default_stream", ANY, "capture: work in the default stream"},
    {"capture_alone", ANY, NULL},
    {"graph_goes_early", ANY, "graph: "},
};
static const char *const right_kernels[] = {
    "right_exchange", "right_in_warp",  "right_last_block", "right_last_block_leader",
    "right_spin",     "right_cp_async", "right_early",      "right_pinned"};

enum { SEEDS = 3 };
#define COUNT(array) ((int)(sizeof array / sizeof *array))

START_TEST(wrong_kernels_are_found) {
    check_found(run_kernel, kernels[_i], "1");
}
END_TEST

START_TEST(wrong_hosts_are_found) {
    check_found(run_host, hosts[_i], "1");
}
END_TEST

START_TEST(wrong_graphs_are_found) {
    check_found(run_graph, graphs[_i], "1");
}
END_TEST

START_TEST(right_kernels_pass) {
    for (int seed = 1; seed <= SEEDS; seed++) check_right(run_kernel, right_kernels[_i], seed, "1");
}
END_TEST

START_TEST(right_hosts_pass) {
    check_right(run_host, "right_stream_event", 1, "1");
    check_right(run_host, "right", 1, "1");
    check_right(run_graph, "right", 1, "1");
}
END_TEST

int main(int, char **arguments) {
    cases_begin(arguments[0]);
    Suite *suite = suite_create("cuda_emulation");
    TCase *found = tcase_create("finds");
    tcase_set_timeout(found, 300);
    tcase_add_loop_test(found, wrong_kernels_are_found, 0, COUNT(kernels));
    tcase_add_loop_test(found, wrong_hosts_are_found, 0, COUNT(hosts));
    tcase_add_loop_test(found, wrong_graphs_are_found, 0, COUNT(graphs));
    tcase_add_loop_test(found, right_kernels_pass, 0, COUNT(right_kernels));
    tcase_add_test(found, right_hosts_pass);
    suite_add_tcase(suite, found);
    return suite_main(suite);
}
