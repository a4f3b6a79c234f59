/* Runs one sequence at a time through an engine, without a scheduler: for tests that look at
 * logits. */
#ifndef PENSTOCK_TESTS_SEQUENCE_RUNNER_H
#define PENSTOCK_TESTS_SEQUENCE_RUNNER_H

#include "engine/engine.h"

/* Opens an engine for a model file with settings that suit tests; ends the test program when it
 * cannot. */
struct engine *runner_open(const char *model, bool float32, const char *cpu_path, int threads);
/* The same with a type of the KV cache. */
struct engine *runner_open_kv(const char *model, bool float32, const char *cpu_path, int threads,
                              enum kv_dtype kv_dtype);

/* The same with ranks that share the model. */
struct engine *runner_open_ranks(const char *model, bool float32, int threads,
                                 enum kv_dtype kv_dtype, int ranks);

/* Computes the logits of tokens[first..first + n) at positions first.. of a sequence whose earlier
 * tokens are in the cache (blocks 0, 1, ... hold it). Returns [n][V], the engine's until the next
 * call. n is at most 64. */
float *runner_logits(struct engine *engine, const int32_t *tokens, int first, int n);

/* Log of the sum of the exponentials of a row, and the greatest element's index. */
double runner_logsumexp(const float *row, int n);
int runner_argmax(const float *row, int n);

#endif
