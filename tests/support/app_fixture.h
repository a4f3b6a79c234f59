/* A whole server around a tiny model, on a port of its own, and its clients. It is a checked
 * fixture: each test has its own. */
#ifndef TESTS_SUPPORT_APP_FIXTURE_H
#define TESTS_SUPPORT_APP_FIXTURE_H

#include "server/app.h"

extern struct app *app;
extern struct options options; /* the server's; a test may change what is read later */
extern struct buf answer;      /* to the last request, head and body */

/* With --max-queued-requests 4, or another number. */
void app_setup(void);
void app_setup_queue(const char *max_queued_requests);
void app_teardown(void);

/* A connection to the server, without waiting; close it with close. */
int connect_to_server(void);

/* Sends a request and turns the loop until the server closes the connection; `answer` is "" if it
 * says nothing. `fields` are lines of
 * the head, `body` may be NULL. */
void ask(const char *line, const char *fields, const char *body);

/* What the last answer must have, and what it must not; `line` says in a failure what was asked. */
void expect_status(const char *line, int status);
void expect_text(const char *text);
void expect_no_text(const char *text);

#define CHAT "POST /v1/chat/completions"
#define COMPLETION "POST /v1/completions"
#define PROMPT "{\"prompt\":\"hi\",\"max_tokens\":3}"
#define STREAM "{\"prompt\":\"hi\",\"max_tokens\":2,\"stream\":true}"

#endif
