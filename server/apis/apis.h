/* server/apis: the table of all APIs that generate, and batch files, whose lines name an API. Pure
 * functions: no threads, no state. */
#ifndef PENSTOCK_SERVER_APIS_H
#define PENSTOCK_SERVER_APIS_H

#include "server/openai/openai.h"

/* Returns the API of a path, or NULL. */
const struct api *api_find(const char *path);

/* Returns the API that writes the errors of a path, or NULL: its path, or its `errors_below`, is
 * this path or is above it. */
const struct api *api_of_errors(const char *path);

/* Returns the API of an index from 0, or NULL after the last one. */
const struct api *api_at(int i);

/* ---- batch files ---------------------------------------------------------------------------- */

/* A line of a batch's input: {"custom_id", "method", "url", "body"}. */
struct api_batch_line {
    const struct api *api;
    struct buf custom_id; /* as JSON, with quotes; empty if missing */
    struct json *body;    /* a caller that takes ownership sets it to NULL */
};

/* Parses a line. Fails with STATUS_INVALID_REQUEST, STATUS_NOT_FOUND (url) or
 * STATUS_METHOD_NOT_ALLOWED. custom_id is set even then, if the line has a valid one. The caller
 * must free the line in any case. */
enum status api_batch_parse(struct api_batch_line *line, const char *text, size_t length,
                            struct err *err);
void api_batch_free(struct api_batch_line *line);

/* Appends a line of a batch's output: the HTTP status and body that a server would have returned.
 * `number` counts the input's lines from 1; request_id may be empty. `ignored` are the names of
 * wishes without effect, a header's value; empty: no header. */
void api_batch_write_response(struct buf *out, int64_t number, const struct buf *custom_id,
                              int http_status, const char *request_id, const struct buf *ignored,
                              const struct buf *body);

/* The same for a line that is not a request: custom_id and response are null, and the line has the
 * error. */
void api_batch_write_error(struct buf *out, int64_t number, const struct err *err);

/* Appends the key of an input line: its custom_id, or its number if custom_id is empty. */
void api_batch_key(struct buf *out, int64_t number, const struct buf *custom_id);

/* Appends the key of the input line that an output line answers. Returns false if the text is not
 * an output line of a batch. */
bool api_batch_read_key(struct buf *out, const char *text, size_t length);

/* The first bytes of every output line. */
#define API_BATCH_START "{\"id\":\"batch_req_"

#endif
