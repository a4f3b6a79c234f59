/* Chat templates against Python's jinja2 as transformers sets it up (tests/vectors/make_template.py), and what jinja2 does not
 * have: whose each byte is, bounds, errors with their line. */
#include <check.h>
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/text.h"

#define MAX_BYTES ((size_t)1 << 20)

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct buf buf = {0};
    char part[65536];
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) buf_add(&buf, part, n);
    fclose(file);
    return buf.data;
}

static const char *string_of(const cJSON *object, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static struct chat_input input_of(const cJSON *json) {
    return (struct chat_input){
        .messages = cJSON_GetObjectItemCaseSensitive(json, "messages"),
        .tools = cJSON_GetObjectItemCaseSensitive(json, "tools"),
        .documents = cJSON_GetObjectItemCaseSensitive(json, "documents"),
        .extra = cJSON_GetObjectItemCaseSensitive(json, "extra"),
        .bos_token = string_of(json, "bos_token"),
        .eos_token = string_of(json, "eos_token"),
        .add_generation_prompt =
            cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "add_generation_prompt")),
        .continue_final_message =
            cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "continue_final_message")),
        .time_s = 1700000000,
    };
}

/* The pieces must be the output, in order and whole, and neighbours must differ. */
static void check_pieces(const struct buf *out, const struct chat_piece *pieces, int n) {
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        ck_assert_uint_eq(pieces[i].start, at);
        ck_assert_uint_gt(pieces[i].length, 0);
        if (i) ck_assert(pieces[i].from_user != pieces[i - 1].from_user);
        at += pieces[i].length;
    }
    ck_assert_uint_eq(at, out->length);
}

/* Renders a template; the result is "" with *failed set where that or compiling fails. */
static struct buf render(const char *source, const struct chat_input *input, struct err *err,
                         bool *failed) {
    struct chat_template *chat_template;
    struct buf out = {0};
    *failed = chat_template_new(&chat_template, source, strlen(source), err) != STATUS_OK;
    if (!*failed) {
        struct chat_piece *pieces = NULL;
        int n_pieces = 0;
        *failed = chat_template_render(chat_template, input, MAX_BYTES, &out, &pieces, &n_pieces,
                                       err) != STATUS_OK;
        if (!*failed) check_pieces(&out, pieces, n_pieces);
        free(pieces);
        chat_template_free(chat_template);
    }
    buf_puts(&out, "");
    return out;
}

/* One template with one input; true when it does what jinja2 does. */
static bool agrees(const char *source, const cJSON *json, const char *input_name, const cJSON *expected) {
    const char *wanted = cJSON_GetStringValue(expected);
    struct chat_input input = input_of(json);
    struct err err = {0};
    bool failed;
    struct buf out = render(source, &input, &err, &failed);
    bool same = wanted ? !failed && strcmp(wanted, out.data) == 0 : failed;
    if (!same) {
        fprintf(stderr, "---- template: %s\n---- input %s\n---- wanted: %s\n---- got: %s\n", source,
                input_name, wanted ? wanted : "(error)", failed ? err.message : out.data);
    }
    if (failed) ck_assert_msg(strstr(err.message, "line ") != NULL, "%s", err.message);
    buf_free(&out);
    return same;
}

START_TEST(agrees_with_jinja2) {
    char *text = read_file("tests/vectors/template.json");
    cJSON *json = cJSON_Parse(text);
    ck_assert(json != NULL);
    const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(json, "inputs"), *one;
    int n = 0, n_wrong = 0;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(json, "cases")) {
        const cJSON *expected;
        cJSON_ArrayForEach(expected, cJSON_GetObjectItemCaseSensitive(one, "expected")) {
            const cJSON *input = cJSON_GetObjectItemCaseSensitive(inputs, expected->string);
            ck_assert(input != NULL);
            n_wrong += !agrees(string_of(one, "template"), input, expected->string, expected);
            n++;
        }
    }
    fprintf(stderr, "%d renders compared with jinja2, %d differ\n", n, n_wrong);
    ck_assert_int_gt(n, 100);
    ck_assert_int_eq(n_wrong, 0);
    cJSON_Delete(json);
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_template");
    TCase *core = tcase_create("core");
    tcase_add_test(core, agrees_with_jinja2);
    tcase_set_timeout(core, 60);
    suite_add_tcase(suite, core);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? 1 : 0;
}
