#include "tests/cuda/emulated_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_OUTPUT = 3000 }; /* bytes of a case's output that Check can print */
enum { SEEDS = 3 };

static bool is_checked;

void cases_begin(const char *program) {
    is_checked = strstr(program, "_checked") != nullptr;
}

void say_result(bool right) {
    fprintf(stderr, "result %s\n", right ? "right" : "wrong");
}

/* The process ends without cleanup, so a case's memory is not reported as a leak of the suite. */
static void run_case(case_runner run, const char *name, int seed, const char *lazy) {
    setenv("CUDA_EMU_SEED", std::to_string(seed).c_str(), 1);
    setenv("CUDA_EMU_LAZY", lazy, 1);
    alarm(60);
    run(name);
    fflush(nullptr);
    _exit(0);
}

std::string output_of(case_runner run, const char *name, int seed, const char *lazy) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        run_case(run, name, seed, lazy);
    }
    close(ends[1]);
    std::string output;
    char piece[4096];
    ssize_t n;
    while ((n = read(ends[0], piece, sizeof piece)) > 0) output.append(piece, (size_t)n);
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    return output.substr(0, MAX_OUTPUT);
}

void check_found(case_runner run, const wrong &w, const char *lazy) {
    if (w.by == CHECKER && !is_checked) return;
    const char *words = w.words ? w.words : "result wrong";
    for (int seed = 1; seed <= SEEDS; seed++) {
        std::string output = output_of(run, w.name, seed, lazy);
        ck_assert_msg(output.find(words) != std::string::npos ||
                          output.find("AddressSanitizer") != std::string::npos,
                      "%s was not found with seed %d: %s", w.name, seed, output.c_str());
    }
}

void check_right(case_runner run, const char *name, int seed, const char *lazy) {
    const std::string output = output_of(run, name, seed, lazy);
    ck_assert_msg(output == "result right\n", "%s: %s", name, output.c_str());
}

given give_arguments(int parts, int counters, size_t spare) {
    given g = {};
    const size_t counts = (size_t)counters * sizeof *g.args.counter;
    for (int i = 0; i < BROKEN_N; i++) g.host[i] = (float)(i + 1);
    cudaMalloc((void **)&g.args.out, sizeof g.host);
    cudaMalloc((void **)&g.args.in, sizeof g.host + spare);
    cudaMalloc((void **)&g.args.part, (size_t)parts * sizeof g.host);
    cudaMalloc((void **)&g.args.counter, counts);
    cudaMemcpy(g.args.in, g.host, sizeof g.host, cudaMemcpyHostToDevice);
    cudaMemset(g.args.counter, 0, counts);
    return g;
}

void say_result_of(const float *out) {
    bool right = true;
    for (int i = 0; i < BROKEN_N; i++) right = right && out[i] == (float)(i + 1);
    say_result(right);
}

void say_result_of(const broken_args &args) {
    float out[BROKEN_N];
    cudaStreamSynchronize(test_stream());
    cudaMemcpy(out, args.out, sizeof out, cudaMemcpyDeviceToHost);
    say_result_of(out);
}
