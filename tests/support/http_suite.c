#include "tests/support/http_suite.h"

struct fixture fixture;
struct peer peer;

void http_open(struct http_config config) {
    fixture_open(&fixture, config);
    peer_open(&peer, &fixture);
}

static void setup_usual(void) {
    http_open(fixture_config());
}

static void teardown(void) {
    peer_close(&peer);
    fixture_close(&fixture);
}

TCase *http_case(Suite *suite, const char *name, void (*setup)(void)) {
    TCase *cases = tcase_create(name);
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup ? setup : setup_usual, teardown);
    suite_add_tcase(suite, cases);
    return cases;
}

static void on_closed(void *app) {
    ck_assert_ptr_eq(app, &fixture);
    ck_assert(!fixture.is_closed);
    fixture.is_closed = true;
}

void http_drain(void) {
    http_server_drain(fixture.server, on_closed);
}
