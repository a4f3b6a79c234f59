/* server/http: responses in chunks.
 *
 * DESIGN
 * http_stream_write only appends to the stream's buffer. The next turn resumes the connections that
 * wait for bytes, a limited number at a time. MHD then calls the reader below, which copies as much
 * as fits, so all events of one step are sent as one chunk. If the reader has nothing to send, it
 * suspends the connection. If it only returned 0, MHD would call it again immediately and forever.
 */
#include <assert.h>
#include <string.h>
#include <sys/socket.h>

#include "server/http/internal.h"

enum {
    RESUME_SLICE = 128,
    BREAK_OFF_S = 1,   /* a timeout that no other connection has */
    BLOCK_BYTES = 2048 /* MHD's buffer for HTTP/1.0 clients, which do not support chunks */
};

static size_t unread(const struct exchange *exchange) {
    return exchange->out.length - exchange->sent;
}

/* Ends the response with an error. MHD marks the connection as closed, but normally checks it only
 * when it is the longest idle one. A timeout other than the default moves it to a list that MHD
 * checks in every round, so the next round frees it. */
static ssize_t break_off(struct exchange *exchange) {
    MHD_set_connection_option(exchange->connection->mhd, MHD_CONNECTION_OPTION_TIMEOUT,
                              (unsigned)BREAK_OFF_S);
    exchange->server->again = true;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

/* MHD_ContentReaderCallback. */
static ssize_t read_chunk(void *cls, uint64_t position, char *out, size_t size) {
    struct exchange *exchange = cls;
    (void)position;
    size_t n = unread(exchange);
    if (exchange->gone) return break_off(exchange);
    if (n == 0 && exchange->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        if (http_connection_suspend(exchange->connection)) return 0;
        http_exchange_mark_gone(exchange);
        return break_off(exchange);
    }
    if (n > size) n = size;
    memcpy(out, exchange->out.data + exchange->sent, n);
    exchange->sent += n;
    exchange->bytes += n;
    if (exchange->sent == exchange->out.length) {
        buf_clear(&exchange->out);
        exchange->sent = 0;
    }
    return (ssize_t)n;
}

struct MHD_Response *http_stream_response(struct exchange *exchange) {
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_chunk, exchange,
                                             NULL);
}

/* Appends bytes. Sent bytes are dropped once they are the larger part, so that the buffer stays
 * small. Returns false if memory is short. */
static bool append(struct exchange *exchange, const void *data, size_t length) {
    size_t n = unread(exchange);
    if (exchange->sent > 0 && exchange->sent >= n) {
        if (n > 0) memmove(exchange->out.data, exchange->out.data + exchange->sent, n);
        exchange->out.length = n;
        exchange->sent = 0;
    }
    if (!buf_try_add(&exchange->out, data, length)) return false;
    if (exchange->keep_alive)
        http_limits_set(exchange->server, &exchange->silence, &exchange->server->silence);
    if (exchange->connection->suspended) http_exchange_wake(exchange);
    return true;
}

/* Breaks off an incomplete stream. */
static void cut_off(struct exchange *exchange) {
    /* MHD notices only this while a write is blocked */
    shutdown(exchange->connection->fd, SHUT_RDWR);
    http_exchange_mark_gone(exchange);
}

/* Counts the bytes of this turn. Returns the maximum that a reader may leave unread. */
static size_t count_write(struct exchange *exchange, size_t length) {
    const struct http_server *server = exchange->server;
    if (exchange->turn != server->turns) exchange->turn_bytes = 0;
    exchange->turn = server->turns;
    exchange->turn_bytes += length;
    if (exchange->turn_bytes > exchange->max_turn_bytes)
        exchange->max_turn_bytes = exchange->turn_bytes;
    return server->config.max_stream_backlog + exchange->max_turn_bytes;
}

bool http_stream_write(struct http_request *request, const void *data, size_t length) {
    struct exchange *exchange = (struct exchange *)request;
    if (exchange->gone || !exchange->connection) return false;
    assert(exchange->kind == RESPONSE_STREAM && !exchange->ended && !exchange->released);
    if (unread(exchange) + length > count_write(exchange, length)) {
        exchange->server->stats.slow_readers++;
        cut_off(exchange);
        return false;
    }
    if (append(exchange, data, length)) return true;
    cut_off(exchange);
    return false;
}

void http_stream_end(struct http_request *request) {
    struct exchange *exchange = (struct exchange *)request;
    if (exchange->gone || !exchange->connection) return;
    assert(exchange->kind == RESPONSE_STREAM && !exchange->ended && !exchange->released);
    exchange->ended = true;
    http_limits_clear(&exchange->silence);
    http_limits_answer(exchange, unread(exchange));
    if (exchange->connection->suspended) http_exchange_wake(exchange);
}

void http_stream_keep_alive(struct exchange *exchange) {
    const char *bytes = exchange->keep_alive;
    assert(exchange->connection && !exchange->ended && bytes);
    bool waits = exchange->connection->suspended;
    if (!waits || !append(exchange, bytes, strlen(bytes))) { /* out of memory: retry later */
        http_limits_set(exchange->server, &exchange->silence, &exchange->server->silence);
    }
}

void http_stream_resume(struct http_server *server) {
    for (int i = 0; i < RESUME_SLICE && server->ready.n > 0; i++) {
        struct exchange *exchange = list_entry(list_first(&server->ready), struct exchange, ready);
        struct connection *connection = exchange->connection;
        assert(connection->exchange == exchange);
        list_remove(&server->ready, &exchange->ready);
        if (exchange->gone) http_exchange_notify_gone(exchange);
        if (!connection->suspended) continue;
        connection->suspended = false;
        MHD_resume_connection(connection->mhd);
    }
}

void http_flush(struct http_server *server) {
    http_drive(server);
}
