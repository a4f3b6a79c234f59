/* Cassettes: records are written whole, read back, found by their request, and explained if there
 * is none. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cassette/cassette.h"
#include "support/suite_main.h"

static struct err err;
static struct cassette *cassette;
static char path[64];

static void setup(void) {
    err = (struct err){0};
    cassette = NULL;
    snprintf(path, sizeof path, "/tmp/cassette_XXXXXX");
    close(mkstemp(path));
}

static void teardown(void) {
    cassette_free(cassette);
    unlink(path);
}

static struct json *parse(const char *text) {
    struct json *json;
    ck_assert_int_eq(json_parse(&json, "It", text, strlen(text), &err), STATUS_OK);
    return json;
}

static struct tape_head head_of(const char *request, bool is_stream) {
    return (struct tape_head){.path = "/v1/completions",
                              .request = request,
                              .request_length = strlen(request),
                              .status = 200,
                              .type = is_stream ? "text/event-stream" : "application/json",
                              .is_stream = is_stream,
                              .id = "cmpl-1"};
}

static void record(struct recorder *recorder, const char *request, const char *answer) {
    struct tape_head head = head_of(request, false);
    struct tape tape = {0};
    tape_begin(&tape, &head);
    tape_add(&tape, answer, strlen(answer), 1);
    tape_end(&tape, NULL);
    recorder_add(recorder, &tape);
    ck_assert(!tape_is_on(&tape));
}

static const char *answer_to(const char *request) {
    struct json *body = parse(request);
    const struct recorded *found = cassette_find(cassette, "/v1/completions", body);
    json_free(body);
    return found ? json_text(json_first(found->pieces)) : NULL;
}

START_TEST(an_answer_is_found_by_its_request) {
    struct recorder *recorder;
    ck_assert_int_eq(recorder_open(&recorder, path, &err), STATUS_OK);
    record(recorder, "{\"prompt\":\"a\",\"n\":1}", "{\"a\":1}");
    record(recorder, "{\"prompt\":\"b\"}", "{\"b\":\"\\n\"}");
    recorder_close(recorder);
    ck_assert_int_eq(cassette_read(&cassette, path, &err), STATUS_OK);
    ck_assert_int_eq(cassette_count(cassette), 2);
    ck_assert_int_eq(cassette_at(cassette, 1)->line, 2);
    ck_assert_str_eq(answer_to("{\"n\":1,\"prompt\":\"a\",\"user\":\"u\",\"priority\":3}"),
                     "{\"a\":1}");
    ck_assert_str_eq(answer_to("{\"prompt\":\"b\"}"), "{\"b\":\"\\n\"}");
    ck_assert_ptr_null(answer_to("{\"prompt\":\"c\"}"));
    ck_assert_ptr_null(answer_to("{\"prompt\":\"a\",\"n\":1,\"receipt\":true}"));
}
END_TEST

START_TEST(answers_to_equal_requests_keep_their_order) {
    struct recorder *recorder;
    ck_assert_int_eq(recorder_open(&recorder, path, &err), STATUS_OK);
    record(recorder, "{\"x\":1}", "first");
    record(recorder, "{\"y\":1}", "other");
    record(recorder, "{\"x\":1}", "second");
    recorder_close(recorder);
    ck_assert_int_eq(recorder_open(&recorder, path, &err), STATUS_OK); /* appends */
    record(recorder, "{\"x\":1}", "third");
    recorder_close(recorder);
    ck_assert_int_eq(cassette_read(&cassette, path, &err), STATUS_OK);
    static const char *const expected[] = {"first", "second", "third", "third", "third"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        ck_assert_str_eq(answer_to("{\"x\":1}"), expected[i]);
    ck_assert_str_eq(answer_to("{\"y\":1}"), "other");
}
END_TEST

START_TEST(a_stream_keeps_its_pieces) {
    struct tape_head head = head_of("{}", true);
    struct buf receipt = {0};
    struct tape tape = {0};
    struct recorder *recorder;
    head.ignored = "verbosity";
    buf_puts(&receipt, "{\"digest\":\"d\"}");
    tape_begin(&tape, &head);
    tape_add(&tape, "data: 1\n\n", 9, 4);
    tape_add(&tape, "data: 2\n\n", 9, 5);
    tape_add(&tape, "", 0, 6);
    tape_add(&tape, "data: [DONE]\n\n", 14, 5); /* in the same turn */
    tape_end(&tape, &receipt);
    ck_assert_ptr_nonnull(strstr(tape.line.data, "\"receipt\":{\"digest\":\"d\"}}\n"));
    ck_assert_int_eq(recorder_open(&recorder, path, &err), STATUS_OK);
    recorder_add(recorder, &tape);
    recorder_close(recorder);
    ck_assert_int_eq(cassette_read(&cassette, path, &err), STATUS_OK);
    const struct recorded *recorded = cassette_at(cassette, 0);
    ck_assert(recorded->is_stream);
    ck_assert_str_eq(recorded->ignored, "verbosity");
    ck_assert_str_eq(recorded->id, "cmpl-1");
    ck_assert_int_eq(json_count(recorded->pieces), 2);
    ck_assert_str_eq(json_text(json_first(recorded->pieces)), "data: 1\n\n");
    ck_assert_str_eq(json_text(json_first(recorded->pieces)->next), "data: 2\n\ndata: [DONE]\n\n");
    buf_free(&receipt);
}
END_TEST

static void expect_explained(const char *request, const char *text) {
    struct json *body = parse(request);
    cassette_explain(cassette, "/v1/completions", body, &err);
    ck_assert_int_eq(err.status, STATUS_NOT_FOUND);
    ck_assert_str_eq(err.code, "not_recorded");
    ck_assert_msg(strstr(err.message, text) != NULL, "%s", err.message);
    json_free(body);
}

START_TEST(a_miss_names_the_nearest_request_and_the_place) {
    struct recorder *recorder;
    ck_assert_int_eq(recorder_open(&recorder, path, &err), STATUS_OK);
    record(recorder, "{\"messages\":[{\"content\":\"a\"}],\"n\":1,\"t\":0.5}", "1");
    record(recorder, "{\"messages\":[{\"content\":\"b\"},{\"content\":\"c\"}],\"n\":2}", "2");
    recorder_close(recorder);
    ck_assert_int_eq(cassette_read(&cassette, path, &err), STATUS_OK);
    expect_explained("{\"messages\":[{\"content\":\"b\"},{\"content\":\"d\"}],\"n\":2}",
                     "in line 2, differs first at 'messages[1].content': \"c\" is recorded, \"d\" "
                     "was sent.");
    expect_explained("{\"messages\":[{\"content\":\"a\"}],\"n\":1,\"t\":0.5,\"top_k\":1}",
                     "in line 1, differs first at 'top_k': absent is recorded, 1 was sent.");
    struct json *body = parse("{}");
    cassette_explain(cassette, "/v1/messages", body, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "no answer to any request for /v1/messages"));
    json_free(body);
}
END_TEST

#define HEAD                                                                                       \
    "{\"version\":1,\"path\":\"/v1/completions\",\"request\":{},\"status\":200,\"type\":\"a/b\","
#define TAIL "\"stream\":false,\"id\":\"i\",\"ignored\":null,\"pieces\":[\"x\"],\"receipt\":null}\n"

START_TEST(a_line_that_is_no_record_is_named) {
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {HEAD TAIL "{\n", "F:2: the line is no record"},
        {"[]\n", "it is not an object"},
        {"{}\n", "its 'version' is not 1"},
        {"{\"version\":2}\n", "its 'version' is not 1"},
        {"{\"version\":1}\n", "no 'request'"},
        {"{\"version\":1,\"version\":1}\n", "F:1"},
        {"{\"version\":1,\"request\":{},\"status\":99}\n", "its 'status'"},
        {"{\"version\":1,\"request\":{},\"status\":200,\"path\":\"a\\nb\"}\n",
         "a text of its head"},
        {HEAD "\"stream\":0,\"id\":\"i\",\"ignored\":null}\n", "its 'stream'"},
        {HEAD "\"stream\":true,\"id\":\"i\",\"ignored\":1}\n", "its 'ignored'"},
        {HEAD "\"stream\":true,\"id\":\"i\",\"ignored\":null,\"pieces\":[1]}\n", "not strings"},
        {HEAD "\"stream\":true,\"id\":\"i\",\"ignored\":null,\"pieces\":1}\n", "not a list"},
        {HEAD "\"stream\":false,\"id\":\"i\",\"ignored\":null,\"pieces\":[]}\n",
         "exactly one piece"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(cassette_parse(&cassette, "F", wrong[i].text, strlen(wrong[i].text), &err),
                         STATUS_BAD_FILE);
        ck_assert_ptr_null(cassette);
        ck_assert_msg(strstr(err.message, wrong[i].why) != NULL, "%s", err.message);
    }
}
END_TEST

START_TEST(a_torn_last_line_is_ignored) {
    static const char text[] = HEAD TAIL "\n" HEAD;
    ck_assert_int_eq(cassette_parse(&cassette, "F", text, strlen(text), &err), STATUS_OK);
    ck_assert_int_eq(cassette_count(cassette), 1);
    cassette_free(cassette);
    ck_assert_int_eq(cassette_parse(&cassette, "F", "", 0, &err), STATUS_OK);
    ck_assert_int_eq(cassette_count(cassette), 0);
    ck_assert_ptr_null(answer_to("{}"));
}
END_TEST

START_TEST(a_file_has_one_recorder) {
    struct recorder *first, *second;
    ck_assert_int_eq(recorder_open(&first, path, &err), STATUS_OK);
    ck_assert_int_eq(recorder_open(&second, path, &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "another process"));
    recorder_close(first);
    ck_assert_int_eq(recorder_open(&second, "/nowhere/x", &err), STATUS_BAD_FILE);
    ck_assert_ptr_null(second);
    ck_assert_int_eq(cassette_read(&cassette, "/nowhere/x", &err), STATUS_BAD_FILE);
    ck_assert_ptr_null(cassette);
}
END_TEST

START_TEST(a_full_disk_loses_records_and_nothing_else) {
    struct recorder *recorder;
    ck_assert_int_eq(recorder_open(&recorder, "/dev/full", &err), STATUS_OK);
    record(recorder, "{}", "lost");
    record(recorder, "{}", "lost");
    recorder_close(recorder);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cassette");
    TCase *tcase = tcase_create("cassette");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, an_answer_is_found_by_its_request);
    tcase_add_test(tcase, answers_to_equal_requests_keep_their_order);
    tcase_add_test(tcase, a_stream_keeps_its_pieces);
    tcase_add_test(tcase, a_miss_names_the_nearest_request_and_the_place);
    tcase_add_test(tcase, a_line_that_is_no_record_is_named);
    tcase_add_test(tcase, a_torn_last_line_is_ignored);
    tcase_add_test(tcase, a_file_has_one_recorder);
    tcase_add_test(tcase, a_full_disk_loses_records_and_nothing_else);
    suite_add_tcase(suite, tcase);
    return suite_main(suite);
}
