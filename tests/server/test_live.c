/* GET /penstock/live of a whole server: who sees what; and the numbers of a snapshot. */
#include <check.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/endpoints/live.h"
#include "support/app_fixture.h"
#include "support/suite_main.h"

#define LIVE "GET /penstock/live"
#define EVENTS "Accept: text/event-stream\r\n"

START_TEST(a_client_that_does_not_ask_for_events_gets_one_snapshot) {
    ask(LIVE, "", NULL);
    expect_status(LIVE, 200);
    expect_text("Content-Type: application/json\r\n");
    expect_text("{\"running\":0,\"waiting\":0,\"swapped\":0,");
    expect_text("\"sequences\":[]}");
    ask("HEAD /penstock/live", EVENTS, NULL);
    expect_text("Content-Type: text/event-stream\r\n");
}
END_TEST

START_TEST(with_keys_only_an_admin_sees_sequences) {
    keys_add(&app->admin_keys, "boss", 4);
    ask(LIVE, "", NULL);
    expect_status(LIVE, 200);
    expect_no_text("sequences");
    keys_add(&app->keys, "user", 4);
    ask(LIVE, "", NULL);
    expect_status(LIVE, 401);
    ask(LIVE, "Authorization: Bearer user\r\n", NULL);
    expect_text("\"running\":0");
    expect_no_text("sequences");
    ask(LIVE, "Authorization: Bearer boss\r\n", NULL);
    expect_text("\"sequences\":[]}");
}
END_TEST

/* Sends a request for events, and returns its connection. */
static int watch(void) {
    static const char head[] = LIVE " HTTP/1.1\r\nHost: x\r\n" EVENTS "\r\n";
    int fd = connect_to_server();
    ck_assert_int_eq(send(fd, head, strlen(head), MSG_NOSIGNAL), (ssize_t)strlen(head));
    return fd;
}

/* Runs the loop until the connection has bytes; returns their number, 0 at its end. */
static ssize_t wait_for(int fd, char *out, size_t size) {
    ssize_t n = -1;
    for (uint64_t until_ns = now_ns() + 20000000000u; n < 0 && now_ns() < until_ns;) {
        uv_run(&app->loop, UV_RUN_NOWAIT);
        n = recv(fd, out, size, MSG_DONTWAIT);
    }
    return n;
}

START_TEST(the_seventeenth_watcher_is_refused_until_one_leaves) {
    int fds[16];
    char part[4096];
    for (int i = 0; i < 16; i++) fds[i] = watch();
    for (int i = 0; i < 16; i++) ck_assert_int_gt(wait_for(fds[i], part, sizeof part), 0);
    ask(LIVE, "", NULL);
    expect_status("one too many", 503);
    expect_text("16 clients watch this server");
    close(fds[0]);
    uint64_t until_ns = now_ns() + 20000000000u;
    do ask(LIVE, "", NULL);
    while (strncmp(answer.data, "HTTP/1.1 503", 12) == 0 && now_ns() < until_ns);
    expect_status("after one has left", 200);
    for (int i = 1; i < 16; i++) close(fds[i]);
}
END_TEST

START_TEST(a_drain_ends_the_streams) {
    char part[4096];
    int fd = watch();
    ck_assert_int_gt(wait_for(fd, part, sizeof part), 0);
    app->draining = true;
    while (wait_for(fd, part, sizeof part - 1) > 0 && !strstr(part, "0\r\n\r\n"))
        memset(part, 0, sizeof part);
    ck_assert_ptr_nonnull(strstr(part, "0\r\n\r\n")); /* the last chunk: not broken off */
    close(fd);
    ask(LIVE, EVENTS, NULL);
    expect_status("while draining", 503);
}
END_TEST

/* ---- numbers -------------------------------------------------------------------------------- */

START_TEST(quantiles_are_within_their_bucket) {
    static const struct histogram_bounds bounds = {3, {1, 2, 4}};
    struct histogram histogram = {{0}};
    ck_assert(live_quantile(&histogram, &bounds, 0.5) < 0);
    histogram.counts[1] = 10;
    ck_assert_double_eq_tol(live_quantile(&histogram, &bounds, 0.5), 1.5, 1e-9);
    ck_assert_double_eq_tol(live_quantile(&histogram, &bounds, 1), 2, 1e-9);
    histogram.counts[0] = 90;
    ck_assert_double_eq_tol(live_quantile(&histogram, &bounds, 0.45), 0.5, 1e-9);
    ck_assert_double_eq_tol(live_quantile(&histogram, &bounds, 0.99), 1.9, 1e-9);
    histogram.counts[3] = 1000; /* above all bounds */
    ck_assert_double_eq_tol(live_quantile(&histogram, &bounds, 0.5), 4, 1e-9);
}
END_TEST

START_TEST(rates_are_of_the_time_since_the_snapshot_before) {
    struct live_snapshot snapshot = {.at_ns = 3000000000u,
                                     .before = {.at_ns = 1000000000u, .stats = {.steps = 10}}};
    struct buf out = {0};
    snapshot.stats.steps = 14;
    snapshot.stats.step_rows = 6;
    snapshot.stats.generated_tokens = 5;
    snapshot.stats.part_ns[PART_FORWARD] = 8000000;
    snapshot.stats.blocks_total = 9;
    snapshot.stats.blocks_used = 2;
    snapshot.stats.blocks_cached = 3;
    live_write(&out, &snapshot, &(struct live_reader){0});
    ck_assert_ptr_nonnull(strstr(out.data, "\"rows\":1.50,"));
    ck_assert_ptr_nonnull(strstr(out.data, "\"forward\":2.0000,"));
    ck_assert_ptr_nonnull(strstr(out.data, "\"tokens_per_s\":2.50,"));
    ck_assert_ptr_nonnull(strstr(out.data, "\"used\":2,\"cached\":3,\"free\":4}"));
    ck_assert_ptr_null(strstr(out.data, "sequences"));
    buf_free(&out);
}
END_TEST

START_TEST(a_client_sees_only_its_own_sequences) {
    static struct scheduler_view view = {
        .n = 3,
        .sequences = {{.name = "a", .client = 5}, {.name = "b", .client = 7}, {.name = "c"}}};
    struct live_snapshot snapshot = {.at_ns = 1, .view = &view};
    static const struct {
        struct live_reader reader;
        const char *ids;
    } readers[] = {{{.all = true}, "abc"},
                   {{.client = 5}, "a"},
                   {{.client = 7}, "b"},
                   {{.client = 9}, ""},
                   {{0}, ""}};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        struct buf out = {0};
        live_write(&out, &snapshot, &readers[i].reader);
        for (const char *id = "abc"; *id; id++) {
            char member[16];
            snprintf(member, sizeof member, "{\"id\":\"%c\"", *id);
            ck_assert_int_eq(strstr(out.data, member) != NULL, strchr(readers[i].ids, *id) != NULL);
        }
        ck_assert_ptr_null(strstr(out.data, "[,"));
        ck_assert_int_eq(strstr(out.data, "sequences") != NULL, i < 4);
        buf_free(&out);
    }
}
END_TEST

START_TEST(a_key_with_a_name_gets_a_list) {
    keys_add(&app->keys, "user", 4);
    keys_add(&app->keys, "named", 5);
    strcpy(app->keys.key[1].name, "alice");
    ask(LIVE, "Authorization: Bearer user\r\n", NULL);
    expect_no_text("sequences");
    ask(LIVE, "Authorization: Bearer named\r\n", NULL);
    expect_text("\"listed\":\"own\",\"sequences\":[]}");
    app->keys.key[1].admin = true;
    ask(LIVE, "Authorization: Bearer named\r\n", NULL);
    expect_text("\"listed\":\"all\",\"sequences\":[]}");
    ck_assert_uint_ne(auth_key_client(app, &app->keys.key[0]),
                      auth_key_client(app, &app->keys.key[1]));
    ck_assert_uint_eq(auth_key_client(app, NULL), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server/live");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, app_setup, app_teardown);
    tcase_add_test(cases, a_client_that_does_not_ask_for_events_gets_one_snapshot);
    tcase_add_test(cases, with_keys_only_an_admin_sees_sequences);
    tcase_add_test(cases, a_key_with_a_name_gets_a_list);
    tcase_add_test(cases, the_seventeenth_watcher_is_refused_until_one_leaves);
    tcase_add_test(cases, a_drain_ends_the_streams);
    tcase_add_test(cases, quantiles_are_within_their_bucket);
    tcase_add_test(cases, rates_are_of_the_time_since_the_snapshot_before);
    tcase_add_test(cases, a_client_sees_only_its_own_sequences);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
