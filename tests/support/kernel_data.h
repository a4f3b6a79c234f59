/* Random inputs for the kernels' tests, the same in every run. */
#ifndef PENSTOCK_TESTS_KERNEL_DATA_H
#define PENSTOCK_TESTS_KERNEL_DATA_H

#include "kernels/kernels.h"

/* Every type that a weight may have. */
#define ONE_MORE(...) +1
enum { N_TYPES = 0 WEIGHT_TYPES(ONE_MORE) };
#undef ONE_MORE
extern const enum dtype all_types[N_TYPES];

uint32_t random_u32(uint64_t *state);
int random_below(uint64_t *state, int n);
/* Close to a normal distribution, with a rare outlier. */
float random_float(uint64_t *state);
/* Floats that the caller frees. */
float *random_floats(uint64_t *state, size_t n);

/* GGUF data of n weights: every code and scale at random, scales of a size that keeps sums
 * ordinary. To be freed. */
void *random_weights(uint64_t *state, enum dtype type, size_t n);

/* The same with every byte of a code as given, for the largest sums that there are. */
void *filled_weights(uint64_t *state, enum dtype type, size_t n, uint8_t byte);

/* Opens a CPU backend or fails the test. */
struct backend *open_backend(const char *path, int threads, int max_rows, int max_k);

/* Fails the test unless the n floats have the same bytes; says where they differ. */
void assert_same_floats(const float *a, const float *b, size_t n, const char *what);

#endif
