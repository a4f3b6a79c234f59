/* hf_keys: the JSON files of a checkpoint on Hugging Face's hub, and numbers by key out of them.
 *
 * Each function fails with STATUS_BAD_FILE and a sentence that names the key, what was expected and
 * what was found. Keys that mean the same are separated by "|", the usual one first; a key whose
 * value is null is as good as missing. Folder-internal; any thread. */
#ifndef PENSTOCK_ENGINE_HF_KEYS_H
#define PENSTOCK_ENGINE_HF_KEYS_H

#include "config/json.h"

/* Reads the JSON object in the file at `path`, of at most max_bytes; json_free frees it. The
 * sentence begins with the path. */
enum status hf_file_read(struct json **out, const char *path, size_t max_bytes, struct err *err);

/* The same of a text; the sentence begins with "the file". */
enum status hf_text_read(struct json **out, const char *text, size_t length, struct err *err);

/* The value of the first of the keys that is there, or NULL. */
const struct json *key_value(const struct json *object, const char *keys);

/* A number in min..max; a whole one; the same with a fallback where it is missing. */
enum status key_number(const struct json *object, const char *keys, double min, double max,
                       double *out, struct err *err);
enum status key_int(const struct json *object, const char *keys, int min, int max, int *out,
                    struct err *err);
enum status key_number_or(const struct json *object, const char *keys, double min, double max,
                          double fallback, double *out, struct err *err);
enum status key_int_or(const struct json *object, const char *keys, int min, int max, int fallback,
                       int *out, struct err *err);
enum status key_bool_or(const struct json *object, const char *key, bool fallback, bool *out,
                        struct err *err);

/* A whole number or an array of them, in 0..max, into ids[room]; *n is 0 where it is missing. */
enum status key_ids(const struct json *object, const char *key, int max, int room, int32_t *ids,
                    int *n, struct err *err);

/* As much of a string as may go into a message, in `out`; "" for other values. */
const char *key_shown(const struct json *value, char out[64]);

#endif
