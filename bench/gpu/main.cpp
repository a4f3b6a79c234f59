/* gpu_times PART OUT SECONDS [from=N] [tiny]: times a part's kernels within SECONDS and writes
 * lines of JSON to the file OUT. from=N leaves out the first N points and appends to OUT: a point
 * that hung or crashed costs only itself (bench/gpu/points.py). Exits with code 3 if some points
 * were left out. */
#include "bench/gpu/times.h"

#include <algorithm>
#include <chrono>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields --------------------------------------------------------------------------------- */

std::string field(const char *name, const char *value) {
    return std::string("\"") + name + "\": \"" + value + "\"";
}
std::string field(const char *name, const std::string &value) {
    return field(name, value.c_str());
}
std::string field(const char *name, int value) {
    return std::string("\"") + name + "\": " + std::to_string(value);
}
std::string field(const char *name, double value) {
    char out[64];
    snprintf(out, sizeof out, "%.9g", value);
    return std::string("\"") + name + "\": " + out;
}

/* ---- timing --------------------------------------------------------------------------------- */

static double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/* Returns the microseconds of the work that `work` queues, measured by events. */
static double timed(const std::function<void()> &work) {
    static cudaEvent_t start, end;
    if (!start) {
        cuda_check(cudaEventCreate(&start), "making an event");
        cuda_check(cudaEventCreate(&end), "making an event");
    }
    cuda_check(cudaEventRecord(start, the_stream()), "recording an event");
    work();
    cuda_check(cudaEventRecord(end, the_stream()), "recording an event");
    cuda_check(cudaEventSynchronize(end), "waiting for the device");
    cuda_check(cudaGetLastError(), "what was timed");
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, start, end), "reading the time");
    return 1e3 * (double)ms;
}

static cudaGraphExec_t capture(const call &run, int calls) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda_check(cudaStreamBeginCapture(the_stream(), cudaStreamCaptureModeThreadLocal), "capturing");
    for (int i = 0; i < calls; i++) run(i);
    cuda_check(cudaStreamEndCapture(the_stream(), &graph), "capturing");
    cuda_check(cudaGraphInstantiate(&exec, graph, 0), "making a graph");
    cuda_check(cudaGraphDestroy(graph), "making a graph");
    return exec;
}

struct figure {
    double median_us, min_us, max_us;
    int calls, repeats;
};

/* Spends about `seconds`, with at least three repeats. */
static figure measure(const point &p, const call &run, double seconds, bool tiny) {
    enum { FEW = 3, MAX_REPEATS = 25, MAX_CALLS = 512 };
    const double GRAPH_US = 1000;
    timed([&] { run(0); }); /* loads the kernel */
    const double once_us = std::max(timed([&] { run(1), run(2); }) / 2, 1.0);
    int calls = (int)std::min(GRAPH_US / once_us, 100.0);
    calls = std::min(std::max({calls, p.copies, 1}), (int)MAX_CALLS);
    const double fit = seconds * 1e6 / (once_us * calls) - 1; /* the first one is not counted */
    int repeats = (int)std::min(std::max(fit, (double)FEW), (double)MAX_REPEATS);
    if (tiny) calls = 2, repeats = 1;
    const cudaGraphExec_t exec = capture(run, calls);
    std::vector<double> us;
    for (int i = 0; i <= repeats; i++) {
        const double all =
            timed([&] { cuda_check(cudaGraphLaunch(exec, the_stream()), "starting a graph"); });
        if (i > 0) us.push_back(all / calls);
    }
    cuda_check(cudaGraphExecDestroy(exec), "freeing a graph");
    std::sort(us.begin(), us.end());
    return {us[us.size() / 2], us.front(), us.back(), calls, repeats};
}

/* Ends the program after a failed call: kernels are then not launched, so times are meaningless. */
static void end_where_failed() {
    struct err err;
    if (!cuda_failure(&err)) return;
    fprintf(stderr, "gpu_times: %s\n", err.message);
    exit(1);
}

static void write_line(FILE *out, const std::string &text) {
    fprintf(out, "{%s}\n", text.c_str());
    fflush(out);
}

/* Returns the fields of a point's result. */
static std::string result_of(const point &p, double seconds, bool tiny) {
    const call run = p.open();
    const std::string found = p.compare ? p.compare() + ", " : "";
    const figure f = measure(p, run, seconds, tiny);
    end_where_failed();
    return found + fields("us", f.median_us, "min_us", f.min_us, "max_us", f.max_us, "calls",
                          f.calls, "repeats", f.repeats, "copies", p.copies, "bytes", p.bytes,
                          "flops", p.flops);
}

/* Times the points from number `from` on. Returns the number of points left out. */
static int time_points(const char *part, std::vector<point> points, size_t from, FILE *out,
                       double seconds, bool tiny) {
    const double MAX_S = 0.06, end = now_s() + seconds;
    double overhead_s = 0; /* time outside of measuring, per point */
    int left_out = 0;
    for (size_t i = from; i < points.size(); i++) {
        const double start = now_s(), share = (end - start) / (double)(points.size() - i);
        const std::string head = field("part", part) + ", " + points[i].fields;
        if (start > end) {
            write_line(out, head + ", \"left_out\": true");
            left_out++;
        } else {
            const double spend = std::min(std::max(share - overhead_s, 0.0), MAX_S);
            write_line(out, head + ", " + field("starts", (int)i));
            write_line(out, head + ", " + result_of(points[i], spend, tiny));
            const double over = now_s() - start - spend;
            overhead_s = 0.9 * overhead_s + 0.1 * std::max(over, 0.0);
        }
        points[i] = {}; /* frees shared data */
    }
    write_line(out, field("ends", (int)points.size()));
    return left_out;
}

/* ---- main ----------------------------------------------------------------------------------- */

static const struct part {
    const char *name;
    std::vector<point> (*list)(bool tiny);
} parts[] = {
    {"limits", list_limits}, {"products", list_products}, {"attention", list_attention},
    {"rows", list_rows},     {"sampling", list_sampling}, {"mma", list_mma},
    {"wgmma", list_wgmma},
};

static bool has_device() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

/* Writes the file's first line: the device's properties. */
static void write_device(FILE *out, bool tiny) {
    cudaDeviceProp p = {};
    cuda_check(cudaGetDeviceProperties(&p, 0), "asking for the device");
    write_line(out, fields("device", p.name, "sm", p.major * 10 + p.minor, "multiprocessors",
                           p.multiProcessorCount, "l2_bytes", p.l2CacheSize, "memory_bytes",
                           (double)p.totalGlobalMem, "cublas", !tiny && cublas_ready() ? 1 : 0,
                           "early_grids", early_grids ? 1 : 0));
}

struct options {
    size_t from = 0;
    bool tiny = false;
    bool good = true;
};

static options options_of(int argc, char **argv) {
    options o;
    for (int i = 4; i < argc; i++) {
        char *end = argv[i];
        if (!strncmp(argv[i], "from=", 5) && isdigit((unsigned char)argv[i][5]))
            o.from = strtoul(argv[i] + 5, &end, 10);
        if (!strcmp(argv[i], "tiny"))
            o.tiny = true;
        else
            o.good = o.good && end > argv[i] + 5 && !*end;
    }
    return o;
}

/* Returns the exit code. */
static int run_part(const part &part, const char *path, double seconds, const options &o) {
    FILE *out = fopen(path, o.from ? "a" : "w");
    if (!out) {
        perror(path);
        return 1;
    }
    early_grids_find(); /* as in the backend, or the times would lack early grids */
    if (!o.from) write_device(out, o.tiny);
    const int left_out = time_points(part.name, part.list(o.tiny), o.from, out, seconds, o.tiny);
    if (left_out) fprintf(stderr, "gpu_times: no time for %d points\n", left_out);
    return fclose(out) != 0 ? 1 : left_out ? 3 : 0;
}

int main(int argc, char **argv) {
    const options o = options_of(argc, argv);
    for (const part &part : parts) {
        if (argc < 4 || !o.good || strcmp(argv[1], part.name)) continue;
        if (has_device()) return run_part(part, argv[2], atof(argv[3]), o);
        fprintf(stderr, "gpu_times: no GPU was found\n");
        return 1;
    }
    fprintf(stderr,
            "usage: gpu_times limits|products|attention|rows|sampling|mma|wgmma OUT SECONDS "
            "[from=N] [tiny]\n");
    return 2;
}
