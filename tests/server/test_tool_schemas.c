/* Schemas of tools that a grammar cannot enforce: refused with the tool and the place if the tool
 * is strict, and hints otherwise. */
#include <check.h>
#include <string.h>

#include "support/suite_main.h"
#include "support/tool_rows.h"

/* ---- schemas that cannot be enforced -------------------------------------------------------- */

/* Compiles the grammar of a tool "g" with this schema. */
static enum status compile_tool(const char *format, const char *schema, bool is_strict,
                                struct grammar **grammar, struct err *err) {
    struct buf text = {0};
    struct json *json;
    buf_printf(&text,
               "[{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":%s,"
               "\"parameters\":%s}}]",
               is_strict ? "true" : "null", schema);
    ck_assert_int_eq(json_parse(&json, "It", text.data, text.length, err), STATUS_OK);
    struct tool_grammar asked = tool_row(format);
    asked.functions = json;
    buf_clear(&text);
    tool_grammar_write(&asked, &text);
    enum status status =
        grammar_compile(GRAMMAR_STRUCTURAL_TAG, text.data, text.length, NULL, grammar, err);
    json_free(json);
    buf_free(&text);
    return status;
}

START_TEST(a_refusal_of_a_strict_tool_names_the_tool_and_the_place) {
    static const struct {
        const char *format, *schema, *says;
    } rows[] = {
        {"hermes", "{\"type\":\"object\",\"properties\":{\"a\":{\"uniqueItems\":true}}}",
         "The tool \"g\": The schema at \"/properties/a/uniqueItems\""},
        {"hermes",
         "{\"properties\":{\"b\":{},\"a\":{\"type\":\"string\",\"pattern\":\"^(a?){60000}$\"}}}",
         "The tool \"g\": The schema at \"/properties/a\": The grammar needs more than 100000"},
        {"qwen3_coder", "{\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"x\"}}}",
         "The tool \"g\": The schema at \"/properties/a/format\""},
        {"qwen3_coder", "{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{}}}", "The schema at \"/$ref\""},
        {"qwen3_coder", "{\"properties\":{\"a b\":{}}}", "has a name"},
        {"pythonic", "{\"properties\":{\"a-b\":{}}}", "has a name"},
        {"pythonic", "{\"properties\":{},\"required\":[\"a\"]}", "\"/required/0\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        struct grammar *grammar;
        ck_assert_int_eq(compile_tool(rows[i].format, rows[i].schema, true, &grammar, &err),
                         STATUS_INVALID_REQUEST);
        ck_assert_msg(strstr(err.message, rows[i].says), "%s", err.message);
    }
}
END_TEST

/* Constraints that a grammar cannot enforce, on the parameter `a` of a tool and on the whole. */
static const char *const hints[] = {
    "{\"properties\":{\"a\":{\"type\":\"array\",\"items\":{},\"uniqueItems\":true}}}",
    "{\"properties\":{\"a\":{\"not\":{\"required\":[\"b\"]}}}}",
    "{\"properties\":{\"a\":{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}}}",
    "{\"properties\":{\"a\":{\"$ref\":\"http://a/b\"}}}",
    "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/none\"}}}",
    "{\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"(?<=a)b\"}}}",
    "{\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"x\"}}}",
    "{\"properties\":{\"a\":{\"type\":\"number\",\"multipleOf\":0.12345}}}",
    "{\"properties\":{\"a\":{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"(?<=a)b\"}}}}",
    "{\"properties\":{\"a\":{\"type\":\"object\",\"patternProperties\":{\"(?<=a)b\":{}}}}}",
    "{\"properties\":{\"a\":{\"type\":\"object\",\"minProperties\":9}}}",
    "{\"properties\":{\"a\":{\"type\":\"string\",\"required\":true,\"maxlength\":3}}}",
    "{\"properties\":{\"a\":{\"if\":{},\"then\":{\"minLength\":1}}},\"$schema\":\"http://a/b\"}",
    "{\"properties\":{\"a\":{}},\"dependentSchemas\":{\"a\":{}},\"minProperties\":1}",
    "{\"properties\":{\"a\":{}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
    "{\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":524288},"
    "\"b\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":"
    "65536},"
    "\"maxItems\":65536}}}",
    "{\"properties\":{\"a-b c\":{},\"a\":{}},\"required\":[\"z\"]}",
};

START_TEST(a_tool_without_strict_is_served_without_what_cannot_be_enforced) {
    char names[64][40];
    int n = tool_row_names(names);
    for (int i = 0; i < n; i++) {
        struct err err = {0};
        struct grammar *grammar = NULL;
        enum status status = compile_tool(names[i], hints[_i], false, &grammar, &err);
        ck_assert_msg(status == STATUS_OK, "%s: %s: %s", names[i], hints[_i], err.message);
        grammar_release(grammar);
    }
}
END_TEST

#define MARK "]<]minimax[>["
#define ITEM(text) MARK "<item>" text MARK "</item>"
#define LIST(text) MARK "<a>" text MARK "</a>"
#define KEY(name, text) MARK "<" name ">" text MARK "</" name ">"
#define NESTED "{\"properties\":{\"a\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":2,\"items\":"

START_TEST(elements_in_elements_match_their_schema) {
    static const struct {
        const char *items, *text;
        bool is_right;
    } rows[] = {
        {"{\"type\":\"integer\"}", ITEM("1") ITEM("2"), true},
        {"{\"type\":\"integer\"}", "", false},
        {"{\"type\":\"integer\"}", ITEM("1") ITEM("2") ITEM("3"), false},
        {"{\"type\":\"integer\"}", ITEM("1.5"), false},
        {"{\"type\":\"string\",\"maxLength\":2}", ITEM("x\""), true},
        {"{\"type\":\"string\",\"maxLength\":2}", ITEM("xyz"), false},
        {"{\"enum\":[\"x\"]}", ITEM("\"x\""), true},
        {"{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"string\"},\"c\":{\"type\":"
         "\"null\"}},"
         "\"required\":[\"b\"]}",
         ITEM(KEY("b", "1") KEY("c", "null")), true},
        {"{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"string\"},\"c\":{\"type\":"
         "\"null\"}},"
         "\"required\":[\"b\"]}",
         ITEM(KEY("c", "null")), false},
        {"{\"type\":\"object\",\"minProperties\":1}", ITEM("{\"b\": 1}"), true},
        {"{\"type\":\"object\",\"minProperties\":1}", ITEM("{}"), false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf schema = {0}, call = {0};
        struct err err = {0};
        struct grammar *grammar;
        buf_printf(&schema, NESTED "%s}},\"required\":[\"a\"]}", rows[i].items);
        buf_printf(&call,
                   MARK "<tool_call>\n" MARK "<invoke name=\"g\">" LIST("%s") MARK
                   "</invoke>\n" MARK "</tool_call>",
                   rows[i].text);
        enum status status = compile_tool("minimax_m3", schema.data, true, &grammar, &err);
        ck_assert_msg(status == STATUS_OK, "%s", err.message);
        ck_assert_msg(grammar_accepts(grammar, call.data) == rows[i].is_right, "%s", call.data);
        grammar_release(grammar);
        buf_free(&schema);
        buf_free(&call);
    }
}
END_TEST

START_TEST(a_schema_with_values_of_another_type_is_refused_in_every_row) {
    static const char *const schemas[] = {
        "{\"properties\":{\"a\":{}},\"required\":[4846791580151137091]}",
        "{\"properties\":{\"a\":5}}",
        "{\"properties\":{\"a\":{\"type\":5}}}",
        "{\"properties\":[\"a\"]}",
        "{\"properties\":[{\"type\":\"string\"}]}",
        "{\"properties\":{\"a\":{\"enum\":5}}}",
        "{\"properties\":{\"a\":{\"$ref\":7}}}",
    };
    char names[64][40];
    int n = tool_row_names(names);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof schemas / sizeof *schemas; k++) {
            struct err err = {0};
            struct grammar *grammar;
            ck_assert_int_eq(compile_tool(names[i], schemas[k], k % 2, &grammar, &err),
                             STATUS_INVALID_REQUEST);
            ck_assert_msg(strstr(err.message, "The tool \"g\": The schema at \""), "%s",
                          err.message);
        }
    }
}
END_TEST

/* Claude Code sends a maxLength of 524,288. */
START_TEST(a_large_length_is_enforced_and_a_large_number_of_properties_of_a_hint_is_left_out) {
    static const char form[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",%s\"parameters\":{\"type\":"
        "\"object\","
        "\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":5000},"
        "\"t\":{\"type\":\"string\",\"maxLength\":524288},\"u\":{\"maxProperties\":524288}}}}}]";
    for (int strict = 0; strict < 2; strict++) {
        struct json *own;
        struct err err;
        struct buf text = {0}, asked_text = {0}, call = {0};
        buf_printf(&text, form, strict ? "\"strict\":true," : "");
        ck_assert_int_eq(json_parse(&own, "It", text.data, text.length, &err), STATUS_OK);
        struct tool_grammar asked = tool_row("hermes");
        asked.functions = own;
        tool_grammar_write(&asked, &asked_text);
        ck_assert((strstr(asked_text.data, "\"maxProperties\":524288") != NULL) == (strict == 1));
        for (int n = 5000; n <= 5001 && !strict; n++) {
            struct grammar *grammar = compile_text(GRAMMAR_STRUCTURAL_TAG, asked_text.data);
            buf_clear(&call);
            buf_puts(&call, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"");
            for (int i = 0; i < n; i++) buf_puts(&call, "a");
            buf_puts(&call, "\"}}\n</tool_call>");
            ck_assert(grammar_accepts(grammar, call.data) == (n == 5000));
            grammar_release(grammar);
        }
        buf_free(&text);
        buf_free(&asked_text);
        buf_free(&call);
        json_free(own);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("server_tool_schemas");
    TCase *t = tcase_create("grammar");
    tcase_add_checked_fixture(t, tool_rows_open, tool_rows_close);
    tcase_add_test(
        t, a_large_length_is_enforced_and_a_large_number_of_properties_of_a_hint_is_left_out);
    tcase_add_test(t, a_refusal_of_a_strict_tool_names_the_tool_and_the_place);
    tcase_add_loop_test(t, a_tool_without_strict_is_served_without_what_cannot_be_enforced, 0,
                        COUNT(hints));
    tcase_add_test(t, elements_in_elements_match_their_schema);
    tcase_add_test(t, a_schema_with_values_of_another_type_is_refused_in_every_row);
    suite_add_tcase(s, t);
    return suite_main(s);
}
