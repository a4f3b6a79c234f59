/* Cases for the emulation itself: something that is wrong in one way, or right, runs in a process
 * of its own, and what that prints is looked at. */
#ifndef PENSTOCK_TESTS_CUDA_EMULATED_CASES_H
#define PENSTOCK_TESTS_CUDA_EMULATED_CASES_H

#include "tests/cuda/broken.cuh"
#include "tests/cuda/support.h"

enum finder { ANY, CHECKER }; /* who finds it: every build, or the checker alone */

struct wrong {
    const char *name;
    finder by;
    const char *words; /* of the report; NULL: the wrong result tells */
};

using case_runner = void (*)(const char *name);

/* Is the checker linked into the program of this name? */
void cases_begin(const char *program);

/* What a case prints, with the seed, and with streams that run late ("1"), at once ("0") or now and
 * then ("random"). */
std::string output_of(case_runner run, const char *name, int seed, const char *lazy);

/* Fails unless each of three seeds finds what is wrong. */
void check_found(case_runner run, const wrong &w, const char *lazy);
/* Fails unless the case prints nothing but that its result is right. */
void check_right(case_runner run, const char *name, int seed, const char *lazy);
/* What a case prints at its end. */
void say_result(bool right);

/* What the kernels of broken*.cu are given: `in` is 1, 2, ... with `spare` bytes behind it, `part`
 * has BROKEN_N numbers for so many blocks, and the counters are zero. What the default stream fills
 * is missing in the test's stream until the host waits. */
struct given {
    broken_args args;
    float host[BROKEN_N]; /* the same as `in` */
};
given give_arguments(int parts, int counters, size_t spare);
/* Waits for the stream, and says whether `out` is what `in` was. */
void say_result_of(const broken_args &args);
void say_result_of(const float *out);

#endif
