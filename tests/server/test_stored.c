/* Stored responses: fields, documents, conversations that go on, input items, numbered events. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/app/promised/promised.h"
#include "server/responses/internal.h"
#include "support/request_reader.h"
#include "support/suite_main.h"

#define BODY(rest) "{\"model\":\"m\",\"input\":\"hi\"" rest "}"

static struct api_limits keeping;
static struct api_request *asked;
static struct buf out;
static struct err err;

static void setup(void) {
    keeping = request_limits;
    keeping.keeps = true;
    err = (struct err){0};
    asked = NULL;
}

static void teardown(void) {
    api_request_free(asked);
    buf_free(&out);
}

static enum status ask_for(const char *body, const struct api_limits *limits) {
    api_request_free(asked);
    return request_read(&asked, &api_responses, body, strlen(body), limits, &err);
}

/* ---- fields --------------------------------------------------------------------------------- */

START_TEST(a_response_is_stored_unless_the_body_refuses) {
    ck_assert_int_eq(ask_for(BODY(""), &keeping), STATUS_OK);
    ck_assert(asked->stores && !asked->background && !asked->previous);
    ck_assert_int_eq(ask_for(BODY(",\"store\":false"), &keeping), STATUS_OK);
    ck_assert(!asked->stores);
    ck_assert_int_eq(ask_for(BODY(",\"store\":null,\"background\":true"), &keeping), STATUS_OK);
    ck_assert(asked->stores && asked->background);
    ck_assert_int_eq(ask_for(BODY(",\"previous_response_id\":\"resp_1\""), &keeping), STATUS_OK);
    ck_assert_str_eq(asked->previous, "resp_1");
    ck_assert_int_eq(ask_for(BODY(",\"store\":true"), &request_limits), STATUS_OK);
    ck_assert(!asked->stores);
}
END_TEST

#define LONG "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

START_TEST(wrong_wishes_are_refused_by_name) {
    static const char *const wrong[] = {
        BODY(",\"background\":true,\"store\":false"),
        BODY(",\"background\":1"),
        BODY(",\"previous_response_id\":5"),
        BODY(",\"previous_response_id\":\"\""),
        BODY(",\"previous_response_id\":\"" LONG "\""),
        BODY(",\"store\":\"yes\""),
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(ask_for(wrong[i], &keeping) == STATUS_INVALID_REQUEST, "%s", wrong[i]);
        ck_assert_msg(strstr(wrong[i], err.param) != NULL, "%s: %s", wrong[i], err.param);
    }
}
END_TEST

START_TEST(without_a_folder_the_error_names_the_option) {
    static const char *const wrong[] = {BODY(",\"background\":true"),
                                        BODY(",\"previous_response_id\":\"resp_1\"")};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(ask_for(wrong[i], &request_limits), STATUS_INVALID_REQUEST);
        ck_assert_ptr_nonnull(strstr(err.message, "--state-dir"));
    }
}
END_TEST

/* ---- documents ------------------------------------------------------------------------------ */

static void expect_broken(const char *queued, const char *failed) {
    struct err cause;
    err_set(&cause, STATUS_SERVER_ERROR, NULL, "Why.");
    buf_clear(&out);
    responses_write_broken(&out, queued, strlen(queued), &cause);
    ck_assert_str_eq(out.data, failed);
}

#define WHY "\"error\":{\"code\":\"server_error\",\"message\":\"Why.\"}"

START_TEST(a_queued_document_becomes_a_failed_one) {
    expect_broken("{\"id\":\"r\",\"status\":\"queued\",\"output\":[],\"error\":null,\"x\":1}",
                  "{\"id\":\"r\",\"status\":\"failed\",\"output\":[]," WHY ",\"x\":1}");
    expect_broken("", "{\"object\":\"response\",\"status\":\"failed\",\"output\":[]," WHY "}");
    expect_broken("{\"error\":null}",
                  "{\"object\":\"response\",\"status\":\"failed\",\"output\":[]," WHY "}");
    buf_clear(&out);
    responses_write_last_event(&out, "{}", 2, 7);
    ck_assert_str_eq(out.data, "event: response.failed\ndata: {\"type\":\"response.failed\","
                               "\"sequence_number\":7,\"response\":{}}\n\n");
}
END_TEST

static struct json *tree(const char *text) {
    struct json *json;
    ck_assert_int_eq(json_parse(&json, "text", text, strlen(text), &err), STATUS_OK);
    return json;
}

static void expect_continued(const char *body, const char *old, const char *answer,
                             const char *whole) {
    struct json *a = tree(body), *b = tree(old), *c = tree(answer);
    buf_clear(&out);
    responses_write_continued(&out, a, b, c);
    ck_assert_str_eq(out.data, whole);
    json_free(a);
    json_free(b);
    json_free(c);
}

#define SAID(text) "{\"type\":\"message\",\"role\":\"user\",\"content\":\"" text "\"}"

START_TEST(a_conversation_has_the_older_input_and_output_first) {
    expect_continued(
        "{\"model\":\"m\",\"input\":\"c\",\"seed\":1}", "{\"input\":\"a\"}",
        "{\"output\":[{\"x\":1},{\"y\":2}]}",
        "{\"input\":[" SAID("a") ",{\"x\":1},{\"y\":2}," SAID("c") "],\"model\":"
                                                                   "\"m\",\"seed\":1}");
    expect_continued("{\"input\":[{\"z\":3}]}", "{\"input\":[{\"w\":0}]}", "{\"output\":[]}",
                     "{\"input\":[{\"w\":0},{\"z\":3}]}");
    expect_continued("{}", "{\"input\":5}", "{\"output\":\"\"}", "{\"input\":[" SAID("") "]}");
}
END_TEST

/* ---- input items ---------------------------------------------------------------------------- */

#define LIST(data, first, last, more)                                                              \
    "{\"object\":\"list\",\"data\":[" data "],\"first_id\":" first ",\"last_id\":" last            \
    ",\"has_more\":" more "}"

static enum status list_items(const char *body, struct api_item_page page) {
    struct json *json = tree(body);
    buf_clear(&out);
    enum status status = responses_write_input_items(&out, json, "resp_7", &page, &err);
    json_free(json);
    return status;
}

static void expect_items(const char *body, struct api_item_page page, const char *list) {
    ck_assert_int_eq(list_items(body, page), STATUS_OK);
    ck_assert_str_eq(out.data, list);
}

static const struct api_item_page newest_first = {.limit = 20};

START_TEST(items_of_an_input_have_ids_types_and_parts) {
    expect_items("{\"input\":\"a\"}", newest_first,
                 LIST("{\"id\":\"msg_7_in0\",\"type\":\"message\",\"role\":\"user\",\"content\":[{"
                      "\"type\":\"input_text\",\"text\":\"a\"}]}",
                      "\"msg_7_in0\"", "\"msg_7_in0\"", "false"));
    expect_items(
        "{\"input\":[{\"role\":\"assistant\",\"content\":\"b\",\"id\":null}]}", newest_first,
        LIST("{\"id\":\"msg_7_in0\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[{"
             "\"type\":\"output_text\",\"text\":\"b\",\"annotations\":[]}]}",
             "\"msg_7_in0\"", "\"msg_7_in0\"", "false"));
    expect_items("{\"input\":[{\"type\":\"function_call\",\"name\":\"f\"},{\"id\":\"own\",\"type\":"
                 "\"other\",\"content\":\"c\"}]}",
                 newest_first,
                 LIST("{\"id\":\"own\",\"type\":\"other\",\"content\":\"c\"},{\"id\":\"fc_7_in0\","
                      "\"type\":\"function_call\",\"name\":\"f\"}",
                      "\"own\"", "\"fc_7_in0\"", "false"));
    expect_items("{\"input\":[]}", newest_first, LIST("", "null", "null", "false"));
    expect_items("{}", newest_first, LIST("", "null", "null", "false"));
}
END_TEST

#define ITEM(id) "{\"id\":\"" id "\",\"type\":\"x\"}"
#define FIVE "{\"input\":[" ITEM("1") "," ITEM("2") "," ITEM("3") "," ITEM("2") "," ITEM("5") "]}"

START_TEST(pages_follow_each_other_in_both_orders) {
    expect_items(FIVE, (struct api_item_page){.limit = 2},
                 LIST(ITEM("5") "," ITEM("2"), "\"5\"", "\"2\"", "true"));
    expect_items(FIVE, (struct api_item_page){.limit = 2, .oldest_first = true},
                 LIST(ITEM("1") "," ITEM("2"), "\"1\"", "\"2\"", "true"));
    expect_items(FIVE, (struct api_item_page){.limit = 2, .after = "5"},
                 LIST(ITEM("2") "," ITEM("3"), "\"2\"", "\"3\"", "true"));
    expect_items(FIVE, (struct api_item_page){.limit = 5, .oldest_first = true},
                 LIST(ITEM("1") "," ITEM("2") "," ITEM("3") "," ITEM("2") "," ITEM("5"), "\"1\"",
                      "\"5\"", "false"));
    expect_items(FIVE, (struct api_item_page){.limit = 1, .oldest_first = true, .after = "3"},
                 LIST(ITEM("2"), "\"2\"", "\"2\"", "true"));
}
END_TEST

START_TEST(of_items_with_one_id_the_last_one_in_the_order_counts) {
    expect_items(FIVE, (struct api_item_page){.limit = 9, .after = "2"},
                 LIST(ITEM("1"), "\"1\"", "\"1\"", "false"));
    expect_items(FIVE, (struct api_item_page){.limit = 9, .oldest_first = true, .after = "2"},
                 LIST(ITEM("5"), "\"5\"", "\"5\"", "false"));
    expect_items(FIVE, (struct api_item_page){.limit = 9, .oldest_first = true, .after = "5"},
                 LIST("", "null", "null", "false"));
}
END_TEST

START_TEST(a_page_after_an_unknown_item_is_refused_by_its_id) {
    ck_assert_int_eq(list_items(FIVE, (struct api_item_page){.limit = 1, .after = "4"}),
                     STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.param, "after");
    ck_assert_ptr_nonnull(strstr(err.message, "\"4\""));
}
END_TEST

/* ---- events --------------------------------------------------------------------------------- */

static void add(struct buf *log, const char *text, struct event_cursor *cursor, int64_t after) {
    buf_puts(log, text);
    buf_clear(&out);
    buf_puts(&out, "");
    events_write(&out, log, true, after, cursor);
}

START_TEST(events_are_numbered_and_incomplete_ones_wait) {
    struct buf log = {0};
    struct event_cursor cursor = {0, 0};
    add(&log, "data: a\n\nevent: b\ndata: c\n\ndata", &cursor, -1);
    ck_assert_str_eq(out.data, "id: 0\ndata: a\n\nid: 1\nevent: b\ndata: c\n\n");
    add(&log, ": d\n", &cursor, -1);
    ck_assert_str_eq(out.data, "");
    add(&log, "\n", &cursor, -1);
    ck_assert_str_eq(out.data, "id: 2\ndata: d\n\n");
    for (int64_t after = 0; after < 4; after++) {
        struct event_cursor again = {0, 0};
        char first[16];
        add(&log, "", &again, after);
        snprintf(first, sizeof first, "id: %d\n", (int)after + 1);
        ck_assert(after >= 2 ? out.length == 0 : strncmp(out.data, first, strlen(first)) == 0);
        ck_assert_int_eq(again.number, 3);
    }
    struct event_cursor lines = {0, 0};
    buf_clear(&out);
    events_write(&out, &log, false, -1, &lines);
    ck_assert_str_eq(out.data, log.data);
    buf_free(&log);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("stored");
    TCase *tests = tcase_create("stored");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_response_is_stored_unless_the_body_refuses);
    tcase_add_test(tests, wrong_wishes_are_refused_by_name);
    tcase_add_test(tests, without_a_folder_the_error_names_the_option);
    tcase_add_test(tests, a_queued_document_becomes_a_failed_one);
    tcase_add_test(tests, a_conversation_has_the_older_input_and_output_first);
    tcase_add_test(tests, items_of_an_input_have_ids_types_and_parts);
    tcase_add_test(tests, pages_follow_each_other_in_both_orders);
    tcase_add_test(tests, of_items_with_one_id_the_last_one_in_the_order_counts);
    tcase_add_test(tests, a_page_after_an_unknown_item_is_refused_by_its_id);
    tcase_add_test(tests, events_are_numbered_and_incomplete_ones_wait);
    suite_add_tcase(s, tests);
    return s;
}

int main(void) {
    return suite_main(suite());
}
