/* A whole server in which each allocation fails in turn, on the loop thread, a worker or the engine
 * thread. The client gets a complete answer or a closed connection, and the next request gets the
 * same bytes as in a run without failures. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/app_fixture.h"
#include "support/faults.h"
#include "support/suite_main.h"

#define JSON "Content-Type: application/json\r\n"
#define USER "{\"request_id\":\"r\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOL                                                                                       \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"     \
    "\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}}}}]"
#define PLAIN "{\"request_id\":\"r\",\"prompt\":\"hi\",\"max_tokens\":4,\"temperature\":0"

static const struct {
    const char *line, *body;
} requests[] = {
    {COMPLETION, PLAIN "}"},
    {COMPLETION, PLAIN ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}"},
    {COMPLETION, PLAIN ",\"n\":2,\"logprobs\":2,\"echo\":true,\"prompt_logprobs\":1}"},
    {COMPLETION, PLAIN ",\"use_beam_search\":true,\"n\":2}"},
    {COMPLETION, PLAIN ",\"guided_regex\":\"[a-c]{2,3}\"}"},
    {COMPLETION, PLAIN ",\"guided_json\":{\"properties\":{\"a\":{\"type\":\"integer\"}}}}"},
    {COMPLETION, PLAIN ",\"stop_regex\":\"x+y\",\"stream\":true}"},
    {CHAT, USER ",\"max_tokens\":4,\"temperature\":0}"},
    {CHAT, USER ",\"max_tokens\":4,\"temperature\":0,\"stream\":true,\"logprobs\":true}"},
    {CHAT, USER ",\"max_tokens\":4,\"temperature\":0,\"stream\":true," TOOL "}"},
    {CHAT "/render", USER "}"},
    {"POST /tokenize", "{\"prompt\":\"some text\",\"return_token_strs\":true}"},
    {"POST /detokenize", "{\"tokens\":[1,2,3,4,5]}"},
    {"GET /tokenizer_info", NULL},
    {"GET /v1/models", NULL},
    {"GET /v1/models/none", NULL},
    {"GET /nowhere", NULL},
    {"GET /metrics", NULL},
    {"GET /version", NULL},
    {"GET /health", NULL},
    {"GET /load", NULL},
    {"POST /v1/completions", "{\"prompt\":5}"},
    {"POST /v1/completions", "not JSON"},
};

enum { N_REQUESTS = sizeof requests / sizeof *requests };

/* ---- answers -------------------------------------------------------------------------------- */

/* Returns the body of the last answer; NULL: its head is incomplete. */
static const char *body_of_answer(void) {
    const char *end = strstr(answer.data, "\r\n\r\n");
    return end ? end + 4 : NULL;
}

/* Removes numbers that differ between runs. */
static void blank(char *text, const char *name) {
    for (char *at = text; (at = strstr(at, name));) {
        at += strlen(name);
        size_t digits = strspn(at, "0123456789");
        memmove(at, at + digits, strlen(at + digits) + 1);
    }
}

/* Joins the chunks of a stream, whose sizes depend on the times of its tokens. */
static void join_chunks(char *body) {
    char *to = body, *at = body, *end = body + strlen(body);
    for (size_t size; at < end && (size = strtoul(at, &at, 16)) > 0; at += size + 2) {
        at += 2; /* the end of the line; another one follows the bytes */
        ck_assert_uint_le(size, (size_t)(end - at));
        memmove(to, at, size);
        to += size;
    }
    *to = 0;
}

static char *copy_of_body(int i) {
    const char *body = body_of_answer();
    ck_assert_msg(body, "%s: %s", requests[i].line, answer.data);
    char *copy = strdup(strstr(requests[i].line, "/metrics") ? "" : body);
    if (strstr(answer.data, "Transfer-Encoding: chunked\r\n")) join_chunks(copy);
    blank(copy, "\"created\":");
    blank(copy, "\"cached_tokens\":");
    return copy;
}

/* Fails unless the answer is valid HTTP, and complete unless its stream was cut off. */
static void expect_well_formed(int i, int n) {
    if (answer.length == 0) return; /* the connection was closed */
    const char *body = body_of_answer(), *length = strstr(answer.data, "Content-Length: ");
    ck_assert_msg(strncmp(answer.data, "HTTP/1.1 ", 9) == 0 && body, "%s, allocation %d: %s",
                  requests[i].line, n, answer.data);
    if (!length || length > body) return;
    size_t has = answer.length - (size_t)(body - answer.data);
    ck_assert_msg(strtoul(length + 16, NULL, 10) == has, "%s, allocation %d: %s", requests[i].line,
                  n, answer.data);
}

/* Fails if an answer ends well, without an error, but lacks a part. */
static void expect_whole_or_failed(int i, int n, const char *expected) {
    static const char last_chunk[] = "0\r\n\r\n";
    const size_t size = sizeof last_chunk - 1;
    if (answer.length == 0 || strncmp(answer.data, "HTTP/1.1 200", 12) != 0) return;
    bool is_chunked = strstr(answer.data, "Transfer-Encoding: chunked\r\n") != NULL;
    bool has_end =
        answer.length > size && strcmp(answer.data + answer.length - size, last_chunk) == 0;
    if (is_chunked && !has_end) return; /* the connection was closed */
    char *body = copy_of_body(i);
    ck_assert_msg(strstr(body, "\"error\"") || strcmp(body, expected) == 0,
                  "%s, allocation %d: %s\ninstead of %s", requests[i].line, n, body, expected);
    free(body);
}

static void ask_quietly(int i, const char *expected) {
    ask(requests[i].line, requests[i].body ? JSON : "", requests[i].body);
    char *body = copy_of_body(i);
    ck_assert_msg(strcmp(body, expected) == 0, "%s: %s\ninstead of %s", requests[i].line, body,
                  expected);
    free(body);
}

/* Requests of clients that were cut off end, too. */
static void wait_until_idle(void) {
    uint64_t until_ns = now_ns() + 20000000000u;
    while (app->requests.n > 0) {
        ck_assert_msg(now_ns() < until_ns, "a request does not end");
        uv_run(&app->loop, UV_RUN_NOWAIT);
    }
    ck_assert_int_eq(app->n_preparing, 0);
}

/* The step grows with n, because a request with a grammar has thousands of allocations. */
static void fail_each(int i, enum fault_kind kind) {
    faults_spare(false);
    ask(requests[i].line, requests[i].body ? JSON : "", requests[i].body);
    char *expected = copy_of_body(i);
    int failed = 1;
    for (int n = 0; failed; n += 1 + n / 50) {
        faults_begin(n, kind);
        ask(requests[i].line, requests[i].body ? JSON : "", requests[i].body);
        if (kind == FAULT_ALWAYS) wait_until_idle();
        failed = faults_end();
        expect_well_formed(i, n);
        expect_whole_or_failed(i, n, expected);
        wait_until_idle();
        ask_quietly(i, expected);
    }
    free(expected);
}

START_TEST(a_server_goes_on_after_any_allocation_has_failed) {
    fail_each(_i, FAULT_ONCE);
}
END_TEST

START_TEST(a_server_goes_on_after_a_time_without_memory) {
    fail_each(_i, FAULT_ALWAYS);
}
END_TEST

START_TEST(a_request_that_lacks_memory_gets_503) {
    faults_begin(6, FAULT_ALWAYS); /* the connection, the headers and the body succeed */
    ask(COMPLETION, JSON, PLAIN "}");
    ck_assert_int_gt(faults_end(), 0);
    expect_status(COMPLETION, 503);
    expect_text("\"code\":\"out_of_memory\"");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_memory_server");
    TCase *cases = tcase_create("server");
    suite_add_tcase(suite, cases);
    tcase_set_timeout(cases, 900);
    tcase_add_checked_fixture(cases, app_setup, app_teardown);
    tcase_add_test(cases, a_request_that_lacks_memory_gets_503);
    tcase_add_loop_test(cases, a_server_goes_on_after_any_allocation_has_failed, 0, N_REQUESTS);
    tcase_add_loop_test(cases, a_server_goes_on_after_a_time_without_memory, 0, N_REQUESTS);
    return suite_main(suite);
}
