/* The thread that sends traces, with a collector on loopback: batches, repeats, losses, the end. */
#include <arpa/inet.h>
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/traces/internal.h"
#include "support/suite_main.h"
#include "support/traces_scene.h"

static struct err err;

enum { MAX_ANSWERS = 8 };

/* A collector that answers its messages with these texts, in order; the last one again and again.
 * NULL: it never answers. */
static struct {
    int listening, port;
    const char *answers[MAX_ANSWERS];
    _Atomic int n_messages;
    _Atomic bool stops;
    pthread_t thread;
    char last[4096]; /* the beginning of the last message, with its headers */
} collector;

#define ACCEPTED "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
#define BUSY "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
#define BUSY_FOR_1_S "HTTP/1.1 429 Later\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
#define WRONG "HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\nbad"
#define PARTIAL                                                                                    \
    "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\":\"6\"}} "

/* Reads one message. Returns false if the peer has closed the connection. */
static bool read_message(int peer) {
    static char text[1 << 20];
    size_t length = 0;
    for (;;) {
        ssize_t n = read(peer, text + length, sizeof text - 1 - length);
        if (n <= 0) return false;
        length += (size_t)n;
        text[length] = 0;
        const char *body = strstr(text, "\r\n\r\n"), *stated = strstr(text, "Content-Length: ");
        if (!body || !stated) continue;
        size_t wanted = strtoul(stated + strlen("Content-Length: "), NULL, 10);
        if (length < (size_t)(body + 4 - text) + wanted) continue;
        snprintf(collector.last, sizeof collector.last, "%.4000s", text);
        return true;
    }
}

static void serve_peer(int peer) {
    while (read_message(peer)) {
        int n = atomic_fetch_add(&collector.n_messages, 1), i = 0;
        while (i < n && i + 1 < MAX_ANSWERS && collector.answers[i + 1]) i++;
        const char *answer = collector.answers[i];
        if (answer) ck_assert_int_gt(write(peer, answer, strlen(answer)), 0);
    }
    close(peer);
}

static void *collector_thread(void *arg) {
    (void)arg;
    for (;;) {
        int peer = accept(collector.listening, NULL, NULL);
        if (peer < 0 || atomic_load(&collector.stops)) return NULL;
        serve_peer(peer);
    }
}

static struct traces *traces;
static char url[64];

static void collector_setup(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    clear_environment();
    memset(&collector, 0, sizeof collector);
    collector.listening = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert(!bind(collector.listening, (struct sockaddr *)&address, length));
    ck_assert(!listen(collector.listening, 4));
    ck_assert(!getsockname(collector.listening, (struct sockaddr *)&address, &length));
    collector.port = ntohs(address.sin_port);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", collector.port);
}

static void serve(const char *first, const char *second) {
    collector.answers[0] = first;
    collector.answers[1] = second;
    ck_assert(!pthread_create(&collector.thread, NULL, collector_thread, NULL));
}

static void collector_teardown(void) {
    traces_close(traces);
    traces = NULL;
    if (collector.thread) {
        atomic_store(&collector.stops, true);
        shutdown(collector.listening, SHUT_RDWR);
        pthread_join(collector.thread, NULL);
    }
    if (collector.listening >= 0) close(collector.listening);
    clear_environment();
}

static void open_traces(double ratio) {
    const struct traces_config config = {.endpoint = url, .ratio = ratio};
    ck_assert_msg(!traces_open(&traces, &config, &err), "%s", err.message);
    ck_assert(!traces_start(traces, &err));
}

static bool make_span(const char *parent) {
    struct trace_span *one = traces_begin(traces, parent, "a=1", now_ns());
    if (!one) return false;
    one->method = "GET";
    one->route = "/v1/models";
    one->http_status = 200;
    traces_end(traces, one);
    return true;
}

static struct traces_stats stats(void) {
    struct traces_stats now;
    traces_stats(traces, &now);
    return now;
}

/* Waits until so many requests were sent or lost. */
static void wait_for(uint64_t n) {
    uint64_t end = now_ns() + 20000000000u;
    while (stats().sent + stats().failed < n) {
        ck_assert_uint_lt(now_ns(), end);
        usleep(10000);
    }
}

START_TEST(spans_are_sent_after_a_second_with_the_stated_headers) {
    setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hidden", 1);
    serve(ACCEPTED, NULL);
    open_traces(1);
    for (int i = 0; i < 3; i++) ck_assert(make_span(PARENT));
    uint64_t begin = now_ns();
    wait_for(3);
    ck_assert_uint_ge(now_ns() - begin, 900000000);
    ck_assert_int_eq(atomic_load(&collector.n_messages), 1);
    ck_assert_ptr_nonnull(strstr(collector.last, "POST /v1/traces HTTP/1.1\r\n"));
    ck_assert_ptr_nonnull(strstr(collector.last, "\r\nContent-Type: application/json\r\n"));
    ck_assert_ptr_nonnull(strstr(collector.last, "\r\napi-key: hidden\r\n"));
    ck_assert_ptr_nonnull(strstr(collector.last, TRACE));
}
END_TEST

START_TEST(a_full_batch_is_sent_at_once) {
    serve(ACCEPTED, NULL);
    open_traces(1);
    uint64_t begin = now_ns();
    for (int i = 0; i < TRACE_BATCH; i++) ck_assert(make_span(NULL));
    wait_for(TRACE_BATCH);
    ck_assert_uint_lt(now_ns() - begin, 900000000);
}
END_TEST

START_TEST(a_busy_collector_gets_the_message_again) {
    serve(BUSY, ACCEPTED);
    open_traces(1);
    ck_assert(make_span(NULL));
    wait_for(1);
    ck_assert_uint_eq(stats().sent, 1);
    ck_assert_int_eq(atomic_load(&collector.n_messages), 2);
}
END_TEST

START_TEST(retry_after_is_waited_for) {
    serve(BUSY_FOR_1_S, ACCEPTED);
    open_traces(1);
    uint64_t begin = now_ns();
    for (int i = 0; i < TRACE_BATCH; i++) ck_assert(make_span(NULL));
    wait_for(TRACE_BATCH);
    ck_assert_uint_ge(now_ns() - begin, 1000000000);
    ck_assert_uint_eq(stats().sent, TRACE_BATCH);
}
END_TEST

START_TEST(a_refused_message_is_not_sent_again) {
    serve(WRONG, ACCEPTED);
    open_traces(1);
    ck_assert(make_span(NULL));
    wait_for(1);
    ck_assert_uint_eq(stats().failed, 1);
    ck_assert_int_eq(atomic_load(&collector.n_messages), 1);
    ck_assert(make_span(NULL));
    wait_for(2);
    ck_assert_uint_eq(stats().sent, 1);
}
END_TEST

START_TEST(rejected_spans_are_counted) {
    serve(PARTIAL, NULL);
    open_traces(1);
    ck_assert(make_span(NULL));
    wait_for(1);
    ck_assert_uint_eq(stats().sent, 1);
    ck_assert_uint_eq(stats().rejected_spans, 6);
}
END_TEST

START_TEST(a_silent_collector_delays_the_end_by_two_seconds) {
    serve(NULL, NULL);
    open_traces(1);
    for (int i = 0; i < 3 * TRACE_BATCH; i++) ck_assert(make_span(NULL));
    usleep(100000); /* the first message is under way */
    uint64_t begin = now_ns();
    traces_close(traces);
    traces = NULL;
    uint64_t ms = (now_ns() - begin) / 1000000;
    ck_assert_uint_ge(ms, TRACES_FLUSH_MS - 100);
    ck_assert_uint_lt(ms, TRACES_FLUSH_MS + 1000);
}
END_TEST

START_TEST(the_end_sends_what_is_there) {
    serve(ACCEPTED, NULL);
    open_traces(1);
    for (int i = 0; i < 3; i++) ck_assert(make_span(NULL));
    uint64_t begin = now_ns();
    traces_close(traces);
    traces = NULL;
    ck_assert_uint_lt(now_ns() - begin, 900000000);
    ck_assert_int_eq(atomic_load(&collector.n_messages), 1);
}
END_TEST

START_TEST(a_dead_collector_loses_spans_and_counts_them) {
    close(collector.listening);
    collector.listening = -1;
    open_traces(1);
    for (int i = 0; i < TRACE_SPANS; i++) ck_assert(make_span(NULL));
    for (int i = 0; i < 5; i++) ck_assert(!make_span(NULL));
    ck_assert_uint_eq(stats().queue_full, 5);
    uint64_t begin = now_ns();
    traces_close(traces);
    traces = NULL;
    ck_assert_uint_lt(now_ns() - begin, 1000000000);
}
END_TEST

START_TEST(the_client_decides_whether_its_request_is_sampled) {
    serve(ACCEPTED, NULL);
    open_traces(0);
    ck_assert(make_span(PARENT));
    ck_assert(!make_span("00-" TRACE "-" SPAN "-00"));
    ck_assert(!make_span(NULL));
    ck_assert(!make_span("not a parent"));
    struct trace_span *one = traces_begin(traces, PARENT, "no state", now_ns());
    ck_assert_str_eq(one->state, "");
    ck_assert(strncmp(one->response, PARENT, 36) == 0);
    ck_assert(strncmp(one->response + 36, SPAN, 16) != 0);
    one->method = "GET";
    traces_end(traces, one);
}
END_TEST

START_TEST(a_ratio_samples_its_share_of_new_traces) {
    int n = 0;
    serve(ACCEPTED, NULL);
    open_traces(0.25);
    for (int i = 0; i < 4000; i++) n += make_span(NULL);
    ck_assert_int_gt(n, 800);
    ck_assert_int_lt(n, 1200);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("traces_thread");
    TCase *thread = tcase_create("thread");
    tcase_add_checked_fixture(thread, collector_setup, collector_teardown);
    tcase_set_timeout(thread, 60);
    tcase_add_test(thread, spans_are_sent_after_a_second_with_the_stated_headers);
    tcase_add_test(thread, a_full_batch_is_sent_at_once);
    tcase_add_test(thread, a_busy_collector_gets_the_message_again);
    tcase_add_test(thread, retry_after_is_waited_for);
    tcase_add_test(thread, a_refused_message_is_not_sent_again);
    tcase_add_test(thread, rejected_spans_are_counted);
    tcase_add_test(thread, a_silent_collector_delays_the_end_by_two_seconds);
    tcase_add_test(thread, the_end_sends_what_is_there);
    tcase_add_test(thread, a_dead_collector_loses_spans_and_counts_them);
    tcase_add_test(thread, the_client_decides_whether_its_request_is_sampled);
    tcase_add_test(thread, a_ratio_samples_its_share_of_new_traces);
    suite_add_tcase(s, thread);
    return s;
}

int main(void) {
    return suite_main(suite());
}
