/* The lines of a batch's files: reading a request's line, the format of an answer's line, and the
 * lines that an output file has answered already. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/apis/apis.h"
#include "server/offline/batch.h"
#include "server/openai/internal.h"
#include "support/suite_main.h"

static struct api_batch_line line;
static struct err err;

static enum status parse(const char *text) {
    memset(&err, 0, sizeof err);
    return api_batch_parse(&line, text, strlen(text), &err);
}

START_TEST(lines_are_read) {
    ck_assert_int_eq(parse("{\"custom_id\":\"a\\u0000\\n\",\"method\":\"POST\",\"extra\":[1],"
                           "\"url\":\"/v1/chat/completions\",\"body\":{\"n\":2}}"),
                     STATUS_OK);
    ck_assert_ptr_eq(line.api, &api_chat);
    ck_assert_str_eq(line.custom_id.data, "\"a\\u0000\\n\"");
    ck_assert_str_eq(line.body->child->name, "n");
    api_batch_free(&line);
    ck_assert_int_eq(
        parse("{\"body\":{},\"method\":null,\"url\":\"/v1/completions\",\"custom_id\":\"b\"}"),
        STATUS_OK);
    ck_assert_ptr_eq(line.api, &api_completions);
    api_batch_free(&line);
}
END_TEST

#define URL "\"url\":\"/v1/completions\""

START_TEST(broken_lines_are_refused) {
    static const struct {
        const char *text, *param;
        enum status status;
        bool named; /* was custom_id read? */
    } broken[] = {
        {"", "", STATUS_INVALID_REQUEST, false},
        {"{\"custom_id\":\"a\"", "", STATUS_INVALID_REQUEST, false},
        {"[]", "", STATUS_INVALID_REQUEST, false},
        {"{" URL ",\"body\":{}}", "custom_id", STATUS_INVALID_REQUEST, false},
        {"{\"custom_id\":7," URL ",\"body\":{}}", "custom_id", STATUS_INVALID_REQUEST, false},
        {"{\"custom_id\":\"\"," URL ",\"body\":{}}", "custom_id", STATUS_INVALID_REQUEST, false},
        {"{\"custom_id\":\"a\",\"body\":{}}", "url", STATUS_INVALID_REQUEST, true},
        {"{\"custom_id\":\"a\",\"url\":7,\"body\":{}}", "url", STATUS_NOT_FOUND, true},
        {"{\"custom_id\":\"a\",\"url\":\"/v1/images\"}", "url", STATUS_NOT_FOUND, true},
        {"{\"custom_id\":\"a\"," URL ",\"method\":\"GET\",\"body\":{}}", "method",
         STATUS_METHOD_NOT_ALLOWED, true},
        {"{\"custom_id\":\"a\"," URL "}", "body", STATUS_INVALID_REQUEST, true},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        ck_assert_int_eq(parse(broken[i].text), broken[i].status);
        ck_assert_str_eq(err.param, broken[i].param);
        ck_assert_int_eq(line.custom_id.length > 0, broken[i].named);
        ck_assert_ptr_null(line.body);
        api_batch_free(&line);
    }
}
END_TEST

/* An input line and its answer must have the same key. */
static void check_key(int64_t number, const struct buf *custom_id, const struct buf *answer) {
    struct buf written = {0}, found = {0};
    api_batch_key(&written, number, custom_id);
    ck_assert(api_batch_read_key(&found, answer->data, answer->length));
    ck_assert_str_eq(found.data, written.data);
    /* a part of a line is not a line, or has its key */
    for (size_t n = 0; n < answer->length; n++) {
        buf_clear(&found);
        if (!api_batch_read_key(&found, answer->data, n)) continue;
        ck_assert_str_eq(found.data, written.data);
    }
    buf_free(&written);
    buf_free(&found);
}

START_TEST(answers_tell_their_keys) {
    struct buf out = {0}, id = {0}, none = {0}, body = {0}, ignored = {0};
    json_write_string(&id, "a\"\\\xC3\xA9", 5);
    buf_puts(&body, "{\"x\":1}");
    api_batch_write_response(&out, 12, &id, 200, "cmpl-1", &none, &body);
    ck_assert_str_eq(out.data, "{\"id\":\"batch_req_12\",\"custom_id\":\"a\\\"\\\\\xC3\xA9\","
                               "\"response\":{\"status_code\":200,\"request_id\":\"cmpl-1\","
                               "\"body\":{\"x\":1}},\"error\":null}\n");
    check_key(12, &id, &out);
    buf_clear(&out);
    buf_puts(&ignored, "verbosity");
    api_batch_write_response(&out, 12, &id, 200, "cmpl-1", &ignored, &body);
    ck_assert(strstr(out.data, "\"request_id\":\"cmpl-1\",\"headers\":{\"x-penstock-ignored\":"
                               "\"verbosity\"},\"body\":{"));
    buf_clear(&out);
    err_set(&err, STATUS_INVALID_REQUEST, "custom_id", "Line 3: \"it\" is broken.");
    err.code[0] = 0;
    api_batch_write_error(&out, 3, &err);
    ck_assert_str_eq(out.data, "{\"id\":\"batch_req_3\",\"custom_id\":null,\"response\":null,"
                               "\"error\":{\"code\":\"invalid_line\","
                               "\"message\":\"Line 3: \\\"it\\\" is broken.\"}}\n");
    check_key(3, &none, &out);
    buf_free(&out);
    buf_free(&id);
    buf_free(&body);
    buf_free(&ignored);
}
END_TEST

/* ---- the output file ------------------------------------------------------------------------ */

static struct batch_output output;

static enum batch_known note(int key) {
    struct buf text = {0};
    buf_printf(&text, "\"%d\"", key);
    enum batch_known known = batch_output_note(&output, &text);
    buf_free(&text);
    return known;
}

static void write_answer(int key) {
    struct buf text = {0}, id = {0}, body = {0};
    buf_printf(&id, "\"%d\"", key);
    buf_puts(&body, "{}");
    api_batch_write_response(&text, key + 1, &id, 200, "", &(struct buf){0}, &body);
    ck_assert_int_eq(batch_output_write(&output, &text, &err), STATUS_OK);
    buf_free(&text);
    buf_free(&id);
    buf_free(&body);
}

START_TEST(files_go_on) {
    enum { ANSWERS = 3000 };
    char path[] = "/tmp/penstock_batch_XXXXXX";
    close(mkstemp(path));
    ck_assert_int_eq(batch_output_open(&output, path, &err), STATUS_OK);
    for (int i = 0; i < ANSWERS; i++) {
        ck_assert_int_eq(note(i), BATCH_NEW);
        ck_assert_int_eq(note(i), BATCH_REPEATED);
        write_answer(i);
    }
    batch_output_close(&output);
    FILE *file = fopen(path, "a");
    fputs("{\"id\":\"batch_req_9999\",\"custom_id\":\"9998\",\"resp", file);
    fclose(file);
    ck_assert_int_eq(batch_output_open(&output, path, &err), STATUS_OK);
    ck_assert_int_eq(output.n_found, ANSWERS);
    ck_assert_int_eq(note(9998), BATCH_NEW);
    write_answer(9998);
    struct batch_output second;
    ck_assert_int_eq(batch_output_open(&second, path, &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "another process"));
    batch_output_close(&second);
    batch_output_close(&output);
    ck_assert_int_eq(batch_output_open(&output, path, &err), STATUS_OK);
    ck_assert_int_eq(output.n_found, ANSWERS + 1);
    for (int i = 0; i < ANSWERS; i++) ck_assert_int_eq(note(i), BATCH_ANSWERED);
    batch_output_close(&output);
    unlink(path);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_batch");
    TCase *cases = tcase_create("core");
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, lines_are_read);
    tcase_add_test(cases, broken_lines_are_refused);
    tcase_add_test(cases, answers_tell_their_keys);
    tcase_add_test(cases, files_go_on);
    return suite_main(suite);
}
