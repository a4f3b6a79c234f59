/* gguf_sample: a small GGUF file with every kind of content, for tests of the reader. */
#ifndef PENSTOCK_TESTS_GGUF_SAMPLE_H
#define PENSTOCK_TESTS_GGUF_SAMPLE_H

#include "support/gguf_writer.h"

/* The values of the sample's tensors: 1, 2, 3, 0, ... */
extern const float gguf_sample_numbers[64];

/* Adds a vector of n floats, n at most 64. */
void gguf_sample_floats(struct gguf_writer *writer, const char *name, int64_t n);

/* Adds keys of every type ("i8" to "f64", "yes", "text", arrays "words", "halves", "nothing") and
 * the tensors "a" [5] and "b" [3 x 2], whose data is last. */
void gguf_sample(struct gguf_writer *writer);

/* Returns the CRC-32 of zlib. */
uint32_t gguf_sample_crc32(const uint8_t *data, size_t n);

#endif
