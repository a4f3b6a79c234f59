/* A server with a small application, and clients on raw sockets, all in one thread: the test turns
 * the loop while it waits. */
#ifndef PENSTOCK_TESTS_HTTP_FIXTURE_H
#define PENSTOCK_TESTS_HTTP_FIXTURE_H

#include "server/http/http.h"

#define FIXTURE_HELD 512
#define FIXTURE_BIG ((size_t)1 << 20)

/* What the application answers:
 *   /now      "hello" at once          /echo     the body           /big      FIXTURE_BIG bytes
 *   /later    held for the test        /stream   begun and held     /refuse   401 in on_headers
 *   /gone     held, and answered inside on_gone (which must do nothing) */
struct fixture {
    uv_loop_t loop;
    struct http_server *server;
    int port;
    struct http_request *held[FIXTURE_HELD];
    int n_held;
    int headers, requests, gone, done; /* calls */
    int status;                        /* of the last on_done */
    uint64_t bytes;
    size_t body_length; /* of the last on_request */
    char path[256];
    bool is_closed;
};

/* Limits that suit the tests. */
struct http_config fixture_config(void);
void fixture_open(struct fixture *fixture, struct http_config config);

/* Drains, aborts, frees; fails the test when anything is left behind. */
void fixture_close(struct fixture *fixture);

/* Turns the loop once without waiting for anything. */
void fixture_turn(struct fixture *fixture);

/* Turns the loop for so long. */
void fixture_run(struct fixture *fixture, int ms);

/* Answers the oldest held request with 200 "later". */
void fixture_answer(struct fixture *fixture);

/* Turns the loop until the condition holds; fails the test after 5 s. */
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

/* The same; its kernel takes about this many bytes that it does not read (0: as usual). */
void peer_open_narrow(struct peer *peer, const struct fixture *fixture, int buffer);
void peer_close(struct peer *peer);

/* Sends a text; the loop is turned as far as that is needed. */
void peer_send(struct peer *peer, struct fixture *fixture, const void *data, size_t length);
void peer_say(struct peer *peer, struct fixture *fixture, const char *text);

/* Reads what has come. Returns the number of bytes in `in`. */
size_t peer_read(struct peer *peer);

/* Has so much or this text come? */
bool peer_has(struct peer *peer, const char *text);

/* How often does the text stand in what has come? */
int peer_count(struct peer *peer, const char *text);

/* Has the server closed its side? */
bool peer_is_closed(struct peer *peer);

/* Forgets what has come. */
void peer_forget(struct peer *peer);

/* Appends the body of the first (chunked) answer to `out`. */
void peer_chunks(struct peer *peer, struct buf *out);

#endif
