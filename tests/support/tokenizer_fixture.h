/* Vocabularies and golden vectors for the tests of text. If a file is not as expected, every
 * function ends the program: a test cannot continue without it. */
#ifndef PENSTOCK_TESTS_TOKENIZER_FIXTURE_H
#define PENSTOCK_TESTS_TOKENIZER_FIXTURE_H

#include "engine/text/text.h"

struct cJSON;

/* Returns a small vocabulary from tests/vectors/tokenizer_<name>.json. Free with tokenizer_free. */
struct tokenizer *fixture_tokenizer(const char *name);

/* Returns the tokenizer of the model in models/. Free with tokenizer_free. */
struct tokenizer *fixture_model_tokenizer(void);

/* Returns the whole file as a NUL-terminated text. Free with free. */
char *fixture_read(const char *path, size_t *length);

/* Calls `see` with the object of each line of a .jsonl file. Returns the number of lines. */
int fixture_lines(const char *path, void (*see)(void *context, const struct cJSON *line),
                  void *context);

/* Returns the text of a line: its "text", or the bytes of its "hex". Free with buf_free. */
struct buf fixture_text(const struct cJSON *line);

/* Returns a random number, the same in every run; *state is the seed. */
uint32_t fixture_random(uint64_t *state);

/* Appends n random characters to `out`: any except NUL, common ones more often. */
void fixture_random_text(uint64_t *state, int n, struct buf *out);

/* Encodes the texts of tests/vectors/tokenizer_<name>.jsonl under both rules and prints the
 * differences. Returns the number of texts that differ. Sets *n to the number of texts. */
int fixture_compare(const struct tokenizer *tokenizer, const char *name, int *n);

#endif
