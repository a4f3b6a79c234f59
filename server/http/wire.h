/* server/http: checks the bytes of a connection's requests before MHD reads them.
 *
 * A `struct wire` follows one connection byte by byte: request line, headers, body, next request.
 * It stores only a few words of the current line and does not allocate, so input may arrive in
 * parts of any size. It refuses all input that MHD would refuse, because MHD's answers are HTML
 * pages and version 0.9.75 sends parts of them twice. It also refuses input that two servers could
 * read differently (RFC 9112, "Request Smuggling").
 */
#ifndef PENSTOCK_SERVER_HTTP_WIRE_H
#define PENSTOCK_SERVER_HTTP_WIRE_H

#include "config/config.h"

enum {
    WIRE_MAX_FIELDS = 200,       /* headers, cookies and query arguments together */
    WIRE_MAX_CHUNK_LINE = 256,   /* bytes of the line with a chunk's size */
    WIRE_MAX_METHOD = 24,        /* bytes */
    WIRE_MAX_COOKIE_BYTES = 8192 /* of all Cookie headers together: MHD copies them */
};

enum wire_phase {
    WIRE_BETWEEN, /* before a request; empty lines are allowed */
    WIRE_METHOD,
    WIRE_TARGET,
    WIRE_VERSION,
    WIRE_NAME,  /* at the start of a header or trailer line, or in its name */
    WIRE_VALUE, /* after the colon */
    WIRE_BODY,  /* `left` bytes of the body follow */
    WIRE_CHUNK_SIZE,
    WIRE_CHUNK_EXTENSION,
    WIRE_CHUNK,     /* `left` bytes of the chunk follow */
    WIRE_CHUNK_END, /* the line end after a chunk */
    WIRE_IGNORED,   /* after the connection's last request: input is discarded */
};

struct wire {
    size_t max_head_bytes; /* set by the owner; zero-initialise the rest */
    enum wire_phase phase;
    bool after_cr;    /* a line feed must follow */
    bool is_trailer;  /* the current fields follow a chunked body */
    bool is_http_1_0; /* from the current head: */
    bool is_chunked;  /* Transfer-Encoding is exactly `chunked` */
    bool says_close, says_keep_alive;
    int fields, hosts, lengths, codings;
    uint64_t length;   /* Content-Length */
    uint64_t messages; /* number of complete requests */
    uint64_t left;     /* remaining bytes of the body or chunk */
    size_t line_bytes; /* of the head, the trailers or the line of a chunk's size */
    size_t cookie_bytes;
    int escape; /* how many characters of "%00" the target ends with */
    size_t method_length, target_length, name_length, value_length; /* may exceed their arrays */
    char method[WIRE_MAX_METHOD + 1];
    char target[256]; /* truncated, for the log */
    char name[20];    /* of the current field, in lower case, truncated */
    char value[64];   /* of the current field, or the version; truncated */
};

/* Checks the next n bytes. Returns the number of valid bytes. If it is less than n, *err describes
 * the error in the next byte, and the wire must not be used again. *whole is the number of bytes up
 * to the end of the last complete request, or 0. */
size_t wire_check(struct wire *wire, const char *bytes, size_t n, size_t *whole, struct err *err);

#endif
