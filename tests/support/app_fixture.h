/* A whole server with a tiny model on a separate port, and its clients. A checked fixture: each
 * test has a new one. */
#ifndef TESTS_SUPPORT_APP_FIXTURE_H
#define TESTS_SUPPORT_APP_FIXTURE_H

#include "server/app/app.h"

extern struct app *app;
extern struct options options; /* of the server; a test may change options that are read later */
extern struct buf answer;      /* the last answer, head and body */

/* Starts the server with --max-queued-requests 4, or another number. */
void app_setup(void);
void app_setup_queue(const char *max_queued_requests);
void app_teardown(void);

/* Returns a connection to the server, without waiting. Close it with close. */
int connect_to_server(void);

/* Sends a request and runs the loop until the server closes the connection. `answer` is "" if the
 * server sends nothing. `fields` are lines of the head; `body` may be NULL. */
void ask(const char *line, const char *fields, const char *body);

/* Check the last answer: the status, and the texts that it must and must not contain. `line` names
 * the request if a check fails. */
void expect_status(const char *line, int status);
void expect_text(const char *text);
void expect_no_text(const char *text);

#define CHAT "POST /v1/chat/completions"
#define COMPLETION "POST /v1/completions"
#define PROMPT "{\"prompt\":\"hi\",\"max_tokens\":3}"
#define STREAM "{\"prompt\":\"hi\",\"max_tokens\":2,\"stream\":true}"

#endif
