/* The parts that the HTTP suites share: one server and one client, opened for each test. */
#ifndef PENSTOCK_TESTS_HTTP_SUITE_H
#define PENSTOCK_TESTS_HTTP_SUITE_H

#include <check.h>

#include "tests/support/http_fixture.h"
#include "tests/support/suite_main.h"

extern struct fixture fixture;
extern struct peer peer;

/* Opens the server with these limits, and connects the client. */
void http_open(struct http_config config);

/* Adds a test case. Before each test, `setup` opens the server; NULL means http_open with
 * fixture_config. After the test, client and server are closed. */
TCase *http_case(Suite *suite, const char *name, void (*setup)(void));

/* Drains the server; fixture.is_closed is set when it is done. */
void http_drain(void);

#endif
