/* Runs one sequence at a time through an engine, without a scheduler, for tests of logits. */
#ifndef PENSTOCK_TESTS_SEQUENCE_RUNNER_H
#define PENSTOCK_TESTS_SEQUENCE_RUNNER_H

#include "engine/engine.h"

/* Opens an engine for a model file with settings for tests. Ends the program if that fails. */
struct engine *runner_open(const char *model, bool float32, const char *cpu_path, int threads);
/* Does the same with a type of the KV cache. */
struct engine *runner_open_kv(const char *model, bool float32, const char *cpu_path, int threads,
                              enum kv_dtype kv_dtype);

/* Does the same with ranks that share the model. */
struct engine *runner_open_ranks(const char *model, bool float32, int threads,
                                 enum kv_dtype kv_dtype, int ranks);

/* Does the same with a model, settings, and the length of a sequence (0: 2048) from `config`, whose
 * other sizes it sets. */
struct engine *runner_open_config(struct engine_config *config);

/* Computes the logits of tokens[first..first + n) at positions first.. of a sequence whose earlier
 * tokens are in the cache (in blocks 0, 1, ...). Returns [n][V], owned by the engine and valid
 * until the next call. n is at most 64. */
float *runner_logits(struct engine *engine, const int32_t *tokens, int first, int n);

/* Returns the logits after a prompt of n tokens, at most 64, in blocks 0, 1, ...: [V], owned by the
 * engine, or NULL if it has failed. `adapter` is the number for all rows, 0 for the base model; an
 * engine that was opened without adapters takes -1. */
const float *runner_prompt_logits(struct engine *engine, const int32_t *tokens, int n, int adapter);

/* Fails the test unless the engine refuses the settings with STATUS_USAGE, the option `param`, and
 * a message that has the words. */
void runner_must_refuse(const struct engine_config *config, const char *param, const char *words);

/* Computes the hidden vectors of tokens[0..n), at most 320, which engine_hidden then returns. */
void runner_hidden(struct engine *engine, const int32_t *tokens, int n);

/* Return the log of the sum of the exponentials of a row, and the index of its largest element. */
double runner_logsumexp(const float *row, int n);
int runner_argmax(const float *row, int n);

#endif
