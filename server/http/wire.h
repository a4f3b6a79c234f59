/* server/http: the bytes of a connection's requests, checked before libmicrohttpd reads them.
 *
 * A `struct wire` follows one connection from byte to byte: request line, headers, body, next
 * request. It stores no more than a few words of the current line and allocates nothing, so it may
 * be fed one byte at a time or all at once. It refuses everything that libmicrohttpd would refuse
 * itself, whose own answers are pages of HTML and in version 0.9.75 partly sent twice, and what two
 * servers could read differently (RFC 9112, "Request Smuggling").
 */
#ifndef PENSTOCK_SERVER_HTTP_WIRE_H
#define PENSTOCK_SERVER_HTTP_WIRE_H

#include "config/config.h"

enum {
    WIRE_MAX_FIELDS = 200,       /* headers, cookies and arguments of the query together */
    WIRE_MAX_CHUNK_LINE = 256,   /* bytes of the line with a chunk's size */
    WIRE_MAX_METHOD = 24,        /* bytes */
    WIRE_MAX_COOKIE_BYTES = 8192 /* of all Cookie headers together: libmicrohttpd copies them */
};

enum wire_phase {
    WIRE_BETWEEN, /* no request has begun; empty lines may come */
    WIRE_METHOD,
    WIRE_TARGET,
    WIRE_VERSION,
    WIRE_NAME,  /* at the start of a header or trailer line, or in its name */
    WIRE_VALUE, /* after its colon */
    WIRE_BODY,  /* `left` bytes of a body follow */
    WIRE_CHUNK_SIZE,
    WIRE_CHUNK_EXTENSION,
    WIRE_CHUNK,     /* `left` bytes of a chunk follow */
    WIRE_CHUNK_END, /* the line end after a chunk */
    WIRE_IGNORED,   /* the last request of the connection is complete; what follows is discarded */
};

struct wire {
    size_t max_head_bytes; /* set by the owner; all else is zero at first */
    enum wire_phase phase;
    bool after_cr;    /* the line feed of a line end is due */
    bool is_trailer;  /* the current fields follow a chunked body */
    bool is_http_1_0; /* what the current head says: */
    bool is_chunked;  /* its Transfer-Encoding is `chunked` and nothing else */
    bool says_close, says_keep_alive;
    int fields, hosts, lengths, codings;
    uint64_t length;   /* its Content-Length */
    uint64_t messages; /* complete requests so far */
    uint64_t left;     /* bytes of the body or chunk that are still to come */
    size_t line_bytes; /* of the head, the trailers or the line of a chunk's size so far */
    size_t cookie_bytes;
    int escape; /* characters of "%00" that the target's last ones are */
    size_t method_length, target_length, name_length, value_length; /* may pass their arrays */
    char method[WIRE_MAX_METHOD + 1];
    char target[256]; /* cut, for the log */
    char name[20];    /* of the current field, in lower case and cut */
    char value[64];   /* of the current field, or the version; cut */
};

/* Checks the next n bytes. Returns how many of them are right; if these are fewer than n, *err says
 * what is wrong with the next one, and nothing may be checked any more. *whole is the number of
 * bytes up to the end of the last request that these bytes complete, or 0. */
size_t wire_check(struct wire *wire, const char *bytes, size_t n, size_t *whole, struct err *err);

#endif
