/* Random inputs for tests of kernels, the same in every run. */
#ifndef PENSTOCK_TESTS_KERNEL_DATA_H
#define PENSTOCK_TESTS_KERNEL_DATA_H

#include "kernels/kernels.h"

/* The number of types that a weight may have. */
#define ONE_MORE(...) +1
enum { N_TYPES = 0 WEIGHT_TYPES(ONE_MORE) };
#undef ONE_MORE
extern const enum dtype all_types[N_TYPES];

uint32_t random_u32(uint64_t *state);
int random_below(uint64_t *state, int n);
/* Returns a number from nearly a normal distribution, with rare outliers. */
float random_float(uint64_t *state);
/* Returns n random floats. The caller frees them. */
float *random_floats(uint64_t *state, size_t n);

/* Returns GGUF data of n weights: random codes and scales, with scales that keep sums in an
 * ordinary range. The caller frees it. */
void *random_weights(uint64_t *state, enum dtype type, size_t n);

/* Does the same with `byte` as every byte of a code, for the largest possible sums. */
void *filled_weights(uint64_t *state, enum dtype type, size_t n, uint8_t byte);

/* Opens a CPU backend or fails the test. */
struct backend *open_backend(const char *path, int threads, int max_rows, int max_k);

/* Fails the test unless the n floats have the same bytes. Prints the first difference. */
void assert_same_floats(const float *a, const float *b, size_t n, const char *what);

#endif
