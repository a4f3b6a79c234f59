/* server/cassette: recorded answers, so that the tests of a client run without a model.
 *
 * A `struct recorder` appends records to a file; it belongs to the loop thread. A `struct cassette`
 * is a file that was read; it does not change, except for counters, so any thread may search it.
 * Requests are compared as canonical JSON without the fields that do not change an answer
 * (canonical_request). This room knows neither sockets nor models.
 *
 * A file has one JSON object per line:
 *
 *   {"version": 1, "path": "/v1/completions", "request": {...},      the request
 *    "status": 200, "type": "text/event-stream", "stream": true,     its answer
 *    "id": "cmpl-1", "ignored": "reasoning_effort",                  its headers
 *    "pieces": ["data: ...", ...],                                   the bytes, piece by piece
 *    "receipt": {...}}                                               how it was made, or null
 */
#ifndef PENSTOCK_SERVER_CASSETTE_H
#define PENSTOCK_SERVER_CASSETTE_H

#include "config/json.h"

/* ---- recording (record.c) ------------------------------------------------------------------- */

struct recorder;

/* Opens a file for appending, and makes it if it does not exist. Fails with STATUS_BAD_FILE if it
 * cannot be opened, or if another process records to it. */
enum status recorder_open(struct recorder **out, const char *path, struct err *err);
void recorder_close(struct recorder *recorder); /* NULL is allowed */

/* The facts of an answer before its first byte. */
struct tape_head {
    const char *path, *request; /* canonical JSON of the request */
    size_t request_length;
    int status;
    const char *type; /* Content-Type */
    bool is_stream;
    const char *id;      /* X-Request-Id */
    const char *ignored; /* X-Penstock-Ignored, or NULL */
};

/* A record that grows with its answer. All zero: nothing is recorded. */
struct tape {
    struct buf line;
    int n_pieces;
    uint64_t turn; /* of the last piece */
};

/* Begin a record, add bytes of the answer in valid UTF-8, and end it with a receipt or NULL. Bytes
 * that were written in the same turn of the loop leave together, and are one piece. */
void tape_begin(struct tape *tape, const struct tape_head *head);
void tape_add(struct tape *tape, const char *bytes, size_t length, uint64_t turn);
void tape_end(struct tape *tape, const struct buf *receipt);
void tape_free(struct tape *tape);

/* Is a record being made? */
static inline bool tape_is_on(const struct tape *tape) {
    return tape->line.length > 0;
}

/* Appends an ended record to the file in one write, and frees it. If that fails, the file keeps its
 * whole records, and the log says so. */
void recorder_add(struct recorder *recorder, struct tape *tape);

/* ---- replaying (read.c) --------------------------------------------------------------------- */

struct cassette;

/* One recorded answer; it lives as long as the cassette. */
struct recorded {
    const char *path;
    const struct json *request;
    const char *type, *id;
    const char *ignored;       /* or NULL */
    const struct json *pieces; /* strings */
    int status;
    bool is_stream;
    int line; /* in the file, from 1 */
};

/* Reads a file. Fails with STATUS_BAD_FILE and the number of the first line that is not a record.
 * A last line without a line end, left by a process that was killed, is ignored with a warning. */
enum status cassette_read(struct cassette **out, const char *path, struct err *err);

/* The same for the text of a file, whose name is shown in errors. */
enum status cassette_parse(struct cassette **out, const char *path, const char *text, size_t length,
                           struct err *err);
void cassette_free(struct cassette *cassette); /* NULL is allowed */

/* The number of records, and record i in the order of the file. */
int cassette_count(const struct cassette *cassette);
const struct recorded *cassette_at(const struct cassette *cassette, int i);

/* Returns the answer to a request, or NULL. Answers to equal requests are given in the order of
 * their recording, and the last one from then on. */
const struct recorded *cassette_find(struct cassette *cassette, const char *path,
                                     const struct json *body);

/* Fills err with STATUS_NOT_FOUND for a request without an answer: the nearest recorded request of
 * the same path, and the first place where it differs. */
void cassette_explain(const struct cassette *cassette, const char *path, const struct json *body,
                      struct err *err);

#endif
