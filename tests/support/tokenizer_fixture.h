/* Vocabularies and golden vectors for the tests of text. Every function ends the program when a
 * file is not as it should be: a test cannot go on without it. */
#ifndef PENSTOCK_TESTS_TOKENIZER_FIXTURE_H
#define PENSTOCK_TESTS_TOKENIZER_FIXTURE_H

#include "engine/text/text.h"

struct cJSON;

/* A small vocabulary from tests/vectors/tokenizer_<name>.json. Free with tokenizer_free. */
struct tokenizer *fixture_tokenizer(const char *name);

/* The tokenizer of the model in models/. Free with tokenizer_free. */
struct tokenizer *fixture_model_tokenizer(void);

/* The whole file as a NUL-terminated text; free with free. */
char *fixture_read(const char *path, size_t *length);

/* Calls `see` with each line's object of a .jsonl file; returns the number of lines. */
int fixture_lines(const char *path, void (*see)(void *context, const struct cJSON *line),
                  void *context);

/* The text of a line: its "text", or the bytes of its "hex". Free with buf_free. */
struct buf fixture_text(const struct cJSON *line);

/* A generator of random numbers, the same in every run; *state is the seed. */
uint32_t fixture_random(uint64_t *state);

/* n random characters, any that UTF-8 can write but NUL, the likely ones more often, appended to
 * `out`. */
void fixture_random_text(uint64_t *state, int n, struct buf *out);

/* Encodes the texts of tests/vectors/tokenizer_<name>.jsonl under both rules, prints what differs,
 * and returns how many texts differ. Sets *n to the number of texts. */
int fixture_compare(const struct tokenizer *tokenizer, const char *name, int *n);

#endif
