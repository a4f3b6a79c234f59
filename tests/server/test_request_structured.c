/* Constraints on an answer's text: the kind and the text that each field gives. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "support/request_reader.h"
#include "support/suite_main.h"

/* The body of the last request. */
static char body[512];

static enum status parse(struct api_request **out, const char *members, struct err *err) {
    int n = snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}",
                     members);
    ck_assert_int_lt(n, (int)sizeof body);
    memset(err, 0, sizeof *err);
    return request_read(out, &api_chat, body, (size_t)n, &request_limits, err);
}

static const struct {
    const char *members, *field; /* NULL: no constraint */
    enum grammar_kind kind;
    const char *text;
} kept[] = {
    {"\"response_format\":{\"type\":\"text\"}", NULL, 0, NULL},
    {"\"response_format\":{\"type\":\"json_object\"}", "response_format", GRAMMAR_JSON_OBJECT, ""},
    {"\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"null\"}}",
     "response_format.schema", GRAMMAR_JSON_SCHEMA, "{\"type\":\"null\"}"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{}}"
     "}",
     "response_format.json_schema.schema", GRAMMAR_JSON_SCHEMA, "{}"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{},"
     "\"strict\":true}}",
     "response_format.json_schema.schema", GRAMMAR_JSON_SCHEMA_STRICT, "{}"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{},"
     "\"strict\":false}}",
     "response_format.json_schema.schema", GRAMMAR_JSON_SCHEMA, "{}"},
    {"\"response_format\":{\"type\":\"structural_tag\",\"a\":1}", "response_format",
     GRAMMAR_STRUCTURAL_TAG, "{\"type\":\"structural_tag\",\"a\":1}"},
    {"\"structured_outputs\":{\"json\":{}}", "structured_outputs.json", GRAMMAR_JSON_SCHEMA, "{}"},
    {"\"structured_outputs\":{\"json\":\"{ }\"}", "structured_outputs.json", GRAMMAR_JSON_SCHEMA,
     "{ }"},
    {"\"structured_outputs\":{\"json\":{},\"strict\":true}", "structured_outputs.json",
     GRAMMAR_JSON_SCHEMA_STRICT, "{}"},
    {"\"structured_outputs\":{\"json_object\":true}", "structured_outputs.json_object",
     GRAMMAR_JSON_OBJECT, ""},
    {"\"structured_outputs\":{\"json_object\":false}", NULL, 0, NULL},
    {"\"structured_outputs\":{\"regex\":\"a+\",\"strict\":true}", "structured_outputs.regex",
     GRAMMAR_REGEX, "a+"},
    {"\"structured_outputs\":{\"choice\":[\"a\",\"b\"],\"json\":null}", "structured_outputs.choice",
     GRAMMAR_CHOICE, "[\"a\",\"b\"]"},
    {"\"structured_outputs\":{\"choice\":[]}", NULL, 0, NULL},
    {"\"structured_outputs\":{\"grammar\":\"root ::= x\",\"disable_fallback\":true}",
     "structured_outputs.grammar", GRAMMAR_GBNF, "root ::= x"},
    {"\"structured_outputs\":{\"structural_tag\":\"{}\",\"whitespace_pattern\":false}",
     "structured_outputs.structural_tag", GRAMMAR_STRUCTURAL_TAG, "{}"},
    {"\"json_schema\":{}", "json_schema", GRAMMAR_JSON_SCHEMA, "{}"},
    {"\"grammar\":\"root ::= x\"", "grammar", GRAMMAR_GBNF, "root ::= x"},
    {"\"grammar\":\"\"", NULL, 0, NULL},
};

START_TEST(each_field_has_its_kind) {
    struct api_request *request;
    struct err err;
    ck_assert_msg(!parse(&request, kept[_i].members, &err), "%s: %s", body, err.message);
    const struct api_grammar *grammar = &request->grammar;
    ck_assert_msg(!grammar->field == !kept[_i].field, "%s", body);
    if (kept[_i].field) {
        ck_assert_str_eq(grammar->field, kept[_i].field);
        ck_assert_int_eq(grammar->kind, kept[_i].kind);
        ck_assert_str_eq(grammar->text, kept[_i].text);
        ck_assert_uint_eq(grammar->length, strlen(kept[_i].text));
    }
    api_request_free(request);
}
END_TEST

static const char one_of[] = "must have exactly one of 'json'";

static const struct {
    const char *members, *param, *says;
} refused[] = {
    {"\"response_format\":{\"type\":\"xml\"}", "response_format", "must have the 'type' \"text\""},
    {"\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema.schema",
     "is missing"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":3}",
     "response_format.json_schema", "must be an object, but it is a number"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":[]}}",
     "response_format.json_schema.schema", "must be an object, but it is an array"},
    {"\"response_format\":{\"type\":\"json_object\",\"schema\":true}", "response_format.schema",
     "must be an object, but it is a boolean"},
    {"\"structured_outputs\":{}", "structured_outputs", one_of},
    {"\"structured_outputs\":{\"json\":{},\"regex\":\"a\"}", "structured_outputs", one_of},
    {"\"structured_outputs\":{\"json\":3}", "structured_outputs.json",
     "must be an object, or its JSON text, but it is a number"},
    {"\"structured_outputs\":{\"json_object\":\"yes\"}", "structured_outputs.json_object",
     "must be true, but it is a string"},
    {"\"structured_outputs\":{\"regex\":3}", "structured_outputs.regex",
     "must be a string, but it is a number"},
    {"\"structured_outputs\":{\"grammar\":[]}", "structured_outputs.grammar",
     "must be a string, but it is an array"},
    {"\"structured_outputs\":{\"choice\":\"a\"}", "structured_outputs.choice",
     "must be an array of strings, but it is a string"},
    {"\"structured_outputs\":{\"choice\":[\"a\",1]}", "structured_outputs.choice",
     "must be an array of strings, but it is a number"},
    {"\"structured_outputs\":{\"json\":{},\"strict\":1}", "structured_outputs.strict",
     "must be a boolean, but it is a number"},
    {"\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\" \"}",
     "structured_outputs.whitespace_pattern", "whitespace_pattern"},
    {"\"structured_outputs\":{\"json\":{},\"backend\":\"x\"}", "structured_outputs.backend",
     "is not known"},
    {"\"grammar\":\"root ::= x\",\"response_format\":{\"type\":\"json_object\"}", NULL,
     "both constrain the answer: give only one"},
};

START_TEST(wrong_constraints_are_named) {
    struct api_request *request;
    struct err err;
    enum status status = parse(&request, refused[_i].members, &err);
    ck_assert_msg(status == STATUS_INVALID_REQUEST, "%s: %d", body, status);
    ck_assert_ptr_null(request);
    if (refused[_i].param) ck_assert_str_eq(err.param, refused[_i].param);
    ck_assert_msg(strstr(err.message, refused[_i].says), "%s: %s", body, err.message);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_request_structured");
    TCase *core = tcase_create("core");
    suite_add_tcase(suite, core);
    tcase_add_loop_test(core, each_field_has_its_kind, 0, sizeof kept / sizeof *kept);
    tcase_add_loop_test(core, wrong_constraints_are_named, 0, sizeof refused / sizeof *refused);
    return suite_main(suite);
}
