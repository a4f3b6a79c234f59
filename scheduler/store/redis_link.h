/* scheduler/store: a connection to a server that speaks Redis's protocol, with deadlines. Internal
 * to this folder.
 *
 * A link is used by one thread at a time. hiredis encodes commands and decodes replies; waiting is
 * here, because hiredis limits each single read and not the whole. A reply is a number, a string,
 * or an error: arrays are refused, and so is more data than was asked for.
 */
#ifndef PENSTOCK_STORE_REDIS_LINK_H
#define PENSTOCK_STORE_REDIS_LINK_H

#include <hiredis/hiredis.h>

#include "config/config.h"

enum { REDIS_TEXT = 256 };

/* redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE] */
struct redis_address {
    char user[REDIS_TEXT], password[REDIS_TEXT]; /* "": none */
    char host[REDIS_TEXT];
    int port, database;
};

struct redis_link {
    redisContext *context; /* NULL: not connected */
    redisReplyObjectFunctions functions;
    size_t max_bytes;    /* that may wait in its buffer */
    bool is_used;        /* by a thread */
    uint64_t generation; /* of redis.c: links of an earlier one are not used again */
    char why[160];       /* it failed */
};

/* Parses an address. Fails with STATUS_USAGE. */
enum status redis_address_parse(struct redis_address *address, const char *text, struct err *err);

/* Writes the address without its password to `out`. */
void redis_address_show(const struct redis_address *address, struct buf *out);

/* Connects, logs in and selects the database. Returns false with `why`. It waits for the name
 * service without limit, and for the server `timeout_ms`. */
bool redis_link_open(struct redis_link *link, const struct redis_address *address, int timeout_ms);

/* Closes the connection. */
void redis_link_close(struct redis_link *link);

/* Adds a command to those that wait to be sent. Returns false if memory is short. */
bool redis_link_add(struct redis_link *link, int n, const char **argument, const size_t *length);

/* Sends what waits and returns the next reply. Free it with freeReplyObject. Returns NULL with
 * `why` after the deadline or an error; the link must then be closed. An error that the server
 * reports is a reply. */
redisReply *redis_link_reply(struct redis_link *link, uint64_t deadline_ns);

#endif
