/* hf_keys: reads the JSON files of a checkpoint on Hugging Face's hub, and numbers by key.
 *
 * Each function fails with STATUS_BAD_FILE and a sentence that names the key, the expected and the
 * found value. "|" separates keys with the same meaning, the usual one first. A key with the value
 * null counts as missing. An array that repeats one number, such as one for each layer, counts as
 * the number. Folder-internal; any thread. */
#ifndef PENSTOCK_ENGINE_HF_KEYS_H
#define PENSTOCK_ENGINE_HF_KEYS_H

#include "config/json.h"

/* Reads the JSON object in the file at `path`, at most max_bytes long; json_free frees it. Messages
 * begin with the path. */
enum status hf_file_read(struct json **out, const char *path, size_t max_bytes, struct err *err);

/* The same for a file that is a list of objects. */
enum status hf_list_read(struct json **out, const char *path, size_t max_bytes, struct err *err);

/* Parses a JSON object from text; messages begin with "the file". */
enum status hf_text_read(struct json **out, const char *text, size_t length, struct err *err);

/* Returns the value of the first key that exists, or NULL. */
const struct json *key_value(const struct json *object, const char *keys);

/* Read a number in min..max, a whole number in min..max, or either with a fallback for a missing
 * key. */
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

/* Reads a whole number or an array of whole numbers, in 0..max, into ids[room]. *n is 0 if the key
 * is missing. */
enum status key_ids(const struct json *object, const char *key, int max, int room, int32_t *ids,
                    int *n, struct err *err);

/* Returns the start of a string, in `out`, short enough for a message; "" for other values. */
const char *key_shown(const struct json *value, char out[64]);

#endif
