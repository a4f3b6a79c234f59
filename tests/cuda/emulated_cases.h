/* Cases for the emulation itself. Each case has one fault, or is right. It runs in a separate
 * process, and the test checks the output. */
#ifndef PENSTOCK_TESTS_CUDA_EMULATED_CASES_H
#define PENSTOCK_TESTS_CUDA_EMULATED_CASES_H

#include "tests/cuda/broken.cuh"
#include "tests/cuda/support.h"

enum finder { ANY, CHECKER }; /* the builds that find it: all, or only those with the checker */

struct wrong {
    const char *name;
    finder by;
    const char *words; /* words of the report; NULL: the result is wrong */
};

using case_runner = void (*)(const char *name);

/* Is the checker linked into the program of this name? */
void cases_begin(const char *program);

/* Returns a case's output, with this seed. lazy: streams run late ("1"), immediately ("0"), or at
 * random times ("random"). */
std::string output_of(case_runner run, const char *name, int seed, const char *lazy);

/* Fails unless the fault is found with each of three seeds. */
void check_found(case_runner run, const wrong &w, const char *lazy);
/* Fails if the case prints anything except that its result is right. */
void check_right(case_runner run, const char *name, int seed, const char *lazy);
/* Prints the result at the end of a case. */
void say_result(bool right);

/* The arguments of the kernels of broken*.cu. `in` is 1, 2, ... with `spare` bytes after it. `part`
 * has BROKEN_N numbers for each block. The counters are zero. The default stream fills this memory;
 * the test's stream sees it only after the host waits. */
struct given {
    broken_args args;
    float host[BROKEN_N]; /* equal to `in` */
};
given give_arguments(int parts, int counters, size_t spare);
/* Waits for the stream and prints whether `out` equals `in`. */
void say_result_of(const broken_args &args);
void say_result_of(const float *out);

#endif
