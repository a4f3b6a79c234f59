/* A server with a small application, and clients on raw sockets, all in one thread: the test runs
 * the loop while it waits. */
#ifndef PENSTOCK_TESTS_HTTP_FIXTURE_H
#define PENSTOCK_TESTS_HTTP_FIXTURE_H

#include "server/http/http.h"

#define FIXTURE_HELD 512
#define FIXTURE_BIG ((size_t)1 << 20)

/* The application's answers:
 *   /now      "hello" immediately      /echo     the body           /big      FIXTURE_BIG bytes
 *   /later    held for the test        /stream   begun and held     /refuse   401 in on_headers
 *   /gone     held, and answered inside on_gone (which must have no effect) */
struct fixture {
    uv_loop_t loop;
    struct http_server *server;
    int port;
    struct http_request *held[FIXTURE_HELD];
    int n_held;
    int headers, requests, gone, done; /* numbers of calls */
    int status;                        /* of the last on_done */
    uint64_t bytes;
    size_t body_length; /* of the last on_request */
    char path[256];
    bool is_closed;
};

/* Returns limits that suit the tests. */
struct http_config fixture_config(void);
void fixture_open(struct fixture *fixture, struct http_config config);

/* Drains, aborts and frees the server. Fails the test if anything is left. */
void fixture_close(struct fixture *fixture);

/* Runs the loop once without waiting. */
void fixture_turn(struct fixture *fixture);

/* Runs the loop for this time. */
void fixture_run(struct fixture *fixture, int ms);

/* Answers the oldest held request with 200 "later". */
void fixture_answer(struct fixture *fixture);

/* Runs the loop until the condition holds. Fails the test after 5 s. */
#define EXPECT_SOON(fixture, condition)                                                            \
    do {                                                                                           \
        uint64_t until_ns = now_ns() + 5000000000u;                                                \
        while (!(condition) && now_ns() < until_ns) fixture_turn(fixture);                         \
        ck_assert_msg((condition), "not in time: %s", #condition);                                 \
    } while (0)

/* A client. */
struct peer {
    int fd;
    struct buf in;
    bool is_eof, is_reset;
    size_t unsent;
};

void peer_open(struct peer *peer, const struct fixture *fixture);

/* Does the same, with a receive buffer of about this size in the kernel (0: the default). */
void peer_open_narrow(struct peer *peer, const struct fixture *fixture, int buffer);
void peer_close(struct peer *peer);

/* Sends a text. Runs the loop while that is necessary. */
void peer_send(struct peer *peer, struct fixture *fixture, const void *data, size_t length);
void peer_say(struct peer *peer, struct fixture *fixture, const char *text);

/* Reads the available data. Returns the number of bytes in `in`. */
size_t peer_read(struct peer *peer);

/* Does the received data contain this text? */
bool peer_has(struct peer *peer, const char *text);

/* Returns how often the received data contains the text. */
int peer_count(struct peer *peer, const char *text);

/* Has the server closed its side? */
bool peer_is_closed(struct peer *peer);

/* Clears the received data. */
void peer_forget(struct peer *peer);

/* Appends the body of the first (chunked) answer to `out`. */
void peer_chunks(struct peer *peer, struct buf *out);

#endif
