/* Schemas whose keywords have values of all types, in all places of a schema: as JSON, and as the
 * arguments of calls in each style. Each compiles or is refused with a message that names the
 * place. No value is read as another type. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "engine/grammar/schema/internal.h"
#include "support/suite_main.h"

static const char *const values[] = {
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "5",
    "1.5",
    "1e300",
    "-9e99",
    "9007199254740993",
    "4846791580151137091",
    "\"\"",
    "\"a\"",
    "\"object\"",
    "\"#\"",
    "\"#/%a\"",
    "\"#/~\"",
    "\"^a$\"",
    "\"date\"",
    "[]",
    "[5]",
    "[null]",
    "[true]",
    "[\"a\"]",
    "[\"a\",5]",
    "[[]]",
    "[{}]",
    "[{\"a\":5}]",
    "{}",
    "{\"a\":5}",
    "{\"a\":null}",
    "{\"a\":{}}",
    "{\"a\":[]}",
    "{\"a\":\"b\"}",
    "{\"type\":5}",
};

/* The places of a keyword with its value. */
static const char *const places[] = {
    "{%s}",
    "{\"type\":\"object\",\"properties\":{\"a\":{}},%s}",
    "{\"properties\":{\"a\":{%s}},\"required\":[\"a\"]}",
    "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/d\"}},\"$defs\":{\"d\":{%s}}}",
    "{\"properties\":{\"a\":{\"$ref\":\"#/examples/0\"}},\"examples\":[{%s}]}",
    "{\"properties\":{\"a\":{\"anyOf\":[{%s},{\"type\":\"null\"}]}}}",
    "{\"properties\":{\"a\":{\"items\":{%s}}}}",
};

static const char *const styles[] = {"json",         "qwen_xml",     "glm_xml",       "seed_xml",
                                     "minimax_xml",  "deepseek_xml", "elements",      "python",
                                     "xtml",         "param_xml",    "step_xml",      "solar",
                                     "hunyuan3_xml", "hunyuan4_xml", "functiongemma", "atem_xml"};

enum {
    N_VALUES = sizeof values / sizeof *values,
    N_PLACES = sizeof places / sizeof *places,
    N_STYLES = sizeof styles / sizeof *styles,
};

static void check_compiled(enum grammar_kind kind, const struct buf *text) {
    const struct grammar_limits limits = {.max_ms = 60000};
    struct grammar *grammar;
    struct err err = {0};
    enum status status = grammar_compile(kind, text->data, text->length, &limits, &grammar, &err);
    if (status == STATUS_OK) {
        grammar_release(grammar);
        return;
    }
    bool names_place = strstr(err.message, " at \"") || strstr(err.message, " at /") ||
                       strstr(err.message, "Nothing can match") ||
                       strstr(err.message, "make it smaller") || strstr(err.message, "twice");
    ck_assert_msg(status == STATUS_INVALID_REQUEST && names_place, "%s: %s", text->data,
                  err.message);
}

/* Compiles a schema alone, and as the arguments of a call in each style, also of a tool without
 * `strict`. */
static void check_schema(const char *schema) {
    struct buf text = {0};
    buf_puts(&text, schema);
    check_compiled(GRAMMAR_JSON_SCHEMA, &text);
    for (size_t i = 0; i < 2 * N_STYLES; i++) {
        buf_clear(&text);
        buf_printf(&text,
                   "{\"type\":\"structural_tag\",\"format\":{\"type\":\"json_schema\",\"style\":"
                   "\"%s\",\"texts\":[\"a\"],\"json_schema\":%s%s}}",
                   styles[i % N_STYLES], schema, i < N_STYLES ? "" : ",\"strict\":false");
        check_compiled(GRAMMAR_STRUCTURAL_TAG, &text);
    }
    buf_free(&text);
}

START_TEST(a_keyword_with_a_value_of_any_type_is_served_or_refused_with_its_place) {
    const char *keyword = schema_keyword((size_t)_i)->name;
    for (int i = 0; i < N_VALUES * N_PLACES; i++) {
        char member[160], schema[400];
        snprintf(member, sizeof member, "\"%s\":%s", keyword, values[i % N_VALUES]);
        snprintf(schema, sizeof schema, places[i / N_VALUES], member);
        check_schema(schema);
    }
}
END_TEST

#define TAG "{\"type\":\"structural_tag\",\"format\":"
#define ANY "{\"type\":\"any_text\"}"
#define TAGS TAG "{\"type\":\"triggered_tags\",\"triggers\":[\"<\"],\"tags\":"
#define ONE_TAG "[{\"begin\":\"<\",\"content\":" ANY ",\"end\":\">\"}]"
#define OLDER "{\"triggers\":[\"<\"],\"structures\":"

/* The places of a structural tag. */
static const char *const tag_places[] = {
    "%s",
    TAG "%s}",
    "{\"type\":%s,\"format\":" ANY "}",
    TAG "{\"type\":%s}}",
    TAG "{\"type\":\"const_string\",\"value\":%s}}",
    TAG "{\"type\":\"regex\",\"pattern\":%s}}",
    TAG "{\"type\":\"grammar\",\"grammar\":%s}}",
    TAG "{\"type\":\"any_text\",\"excludes\":%s}}",
    TAG "{\"type\":\"any_text\",\"excludes\":[%s]}}",
    TAG "{\"type\":\"any_text\",\"not_at_start\":%s}}",
    TAG "{\"type\":\"sequence\",\"elements\":%s}}",
    TAG "{\"type\":\"or\",\"elements\":[%s]}}",
    TAG "{\"type\":\"json_schema\",\"json_schema\":%s}}",
    TAG "{\"type\":\"json_schema\",\"style\":%s,\"json_schema\":{}}}",
    TAG "{\"type\":\"json_schema\",\"style\":\"python\",\"json_schema\":%s}}",
    TAG "{\"type\":\"json_schema\",\"style\":\"qwen_xml\",\"texts\":%s,\"json_schema\":{}}}",
    TAG "{\"type\":\"json_schema\",\"tool\":%s,\"json_schema\":{}}}",
    TAG "{\"type\":\"tag\",\"begin\":%s,\"content\":" ANY ",\"end\":\"\"}}",
    TAG "{\"type\":\"tag\",\"begin\":\"\",\"content\":%s,\"end\":\"\"}}",
    TAG "{\"type\":\"tag\",\"begin\":\"\",\"content\":" ANY ",\"end\":%s}}",
    TAGS "%s}}",
    TAGS "[%s]}}",
    TAGS "[{\"begin\":%s,\"content\":" ANY ",\"end\":\">\"}]}}",
    TAGS ONE_TAG ",\"at_least_one\":%s}}",
    TAGS ONE_TAG ",\"stop_after_first\":%s}}",
    TAG "{\"type\":\"triggered_tags\",\"triggers\":%s,\"tags\":" ONE_TAG "}}",
    TAG "{\"type\":\"triggered_tags\",\"triggers\":[%s],\"tags\":" ONE_TAG "}}",
    TAG "{\"type\":\"tags_with_separator\",\"separator\":%s,\"tags\":" ONE_TAG "}}",
    TAG "{\"type\":\"tags_with_separator\",\"separator\":\",\",\"tags\":%s}}",
    TAG "{\"type\":\"tags_with_separator\",\"separator\":\",\",\"tags\":[%s]}}",
    OLDER "%s}",
    OLDER "[%s]}",
    OLDER "[{\"begin\":\"<\",\"schema\":%s,\"end\":\">\"}]}",
    "{\"triggers\":%s,\"structures\":[{\"begin\":\"<\",\"schema\":{},\"end\":\">\"}]}",
};

enum { N_TAG_PLACES = sizeof tag_places / sizeof *tag_places };

START_TEST(a_structural_tag_with_a_value_of_any_type_is_served_or_refused) {
    for (int i = 0; i < N_VALUES; i++) {
        char text[400];
        struct grammar *grammar = NULL;
        struct err err = {0};
        snprintf(text, sizeof text, tag_places[_i], values[i]);
        enum status status =
            grammar_compile(GRAMMAR_STRUCTURAL_TAG, text, strlen(text), NULL, &grammar, &err);
        grammar_release(grammar);
        ck_assert_msg(status == STATUS_OK || strlen(err.message) > 10, "%s: %s", text, err.message);
        ck_assert(status == STATUS_OK || status == STATUS_INVALID_REQUEST);
    }
}
END_TEST

static const struct refusal {
    enum grammar_kind kind;
    const char *text, *words;
} refusals[] = {
    {GRAMMAR_STRUCTURAL_TAG,
     "{\"type\":\"structural_tag\",\"format\":{\"type\":\"json_schema\",\"style\":\"qwen_xml\","
     "\"json_schema\":{\"properties\":{\"a\":{}},\"required\":[4846791580151137091]}}}",
     "at \"/required\" must be an array of strings"},
    {GRAMMAR_STRUCTURAL_TAG,
     "{\"type\":\"structural_tag\",\"format\":{\"type\":\"json_schema\",\"style\":\"python\","
     "\"json_schema\":{\"properties\":{\"a\":5},\"required\":[\"a\"]}}}",
     "at \"/properties\" must be an object of schemas"},
    {GRAMMAR_STRUCTURAL_TAG, "[\"a\"]", "needs an object \"format\""},
    {GRAMMAR_STRUCTURAL_TAG,
     "{\"type\":\"structural_tag\",\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<\"],"
     "\"tags\":[[\"a\"]]}}",
     "at \"/format/tags/0\" needs a string \"begin\""},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/%a\"}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/%\"}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/a%4\"}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/%+1\"}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/% 1\"}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/%0x\"}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/anyOf/a\",\"anyOf\":[true]}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/anyOf/\",\"anyOf\":[true]}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/anyOf/00\",\"anyOf\":[true]}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/anyOf/+0\",\"anyOf\":[true]}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/anyOf/-1\",\"anyOf\":[true]}", "not a schema"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/anyOf/4294967296\",\"anyOf\":[true]}", "not a schema"},
};

START_TEST(what_cannot_be_read_is_refused_by_a_sentence) {
    const struct refusal *r = &refusals[_i];
    struct grammar *grammar;
    struct err err = {0};
    enum status status = grammar_compile(r->kind, r->text, strlen(r->text), NULL, &grammar, &err);
    ck_assert_int_eq(status, STATUS_INVALID_REQUEST);
    ck_assert_msg(strstr(err.message, r->words), "%s: %s", r->text, err.message);
}
END_TEST

/* All spellings refer to the only schema, which requires null. */
START_TEST(a_reference_is_read_in_each_of_its_spellings) {
    static const char *const names[][2] = {
        {"a b", "a%20b"},       {"a%b", "a%25b"}, {"a/b", "a~1b"}, {"a~b", "a~0b"},
        {"a/b", "a%7E1b"},      {"%", "%25"},     {"%a", "%25a"},  {"\\u00e9", "%C3%A9"},
        {"\\u00e9", "\\u00e9"}, {"%a", "%a"},     {"a%", "a%"},
    };
    struct grammar *grammar;
    struct err err = {0};
    bool complete;
    char schema[200];
    snprintf(schema, sizeof schema,
             "{\"$ref\":\"#/$defs/%s\",\"$defs\":{\"%s\":{\"type\":\"null\"}}}", names[_i][1],
             names[_i][0]);
    enum status status =
        grammar_compile(GRAMMAR_JSON_SCHEMA, schema, strlen(schema), NULL, &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", schema, err.message);
    ck_assert(grammar_match(grammar, "null", 4, &complete) == 4 && complete);
    ck_assert_uint_eq(grammar_match(grammar, "1", 1, &complete), 0);
    grammar_release(grammar);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_types");
    TCase *all = tcase_create("types");
    int n_keywords = 0;
    while (schema_keyword((size_t)n_keywords)) n_keywords++;
    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, a_keyword_with_a_value_of_any_type_is_served_or_refused_with_its_place,
                        0, n_keywords);
    tcase_add_loop_test(all, a_structural_tag_with_a_value_of_any_type_is_served_or_refused, 0,
                        N_TAG_PLACES);
    tcase_add_loop_test(all, what_cannot_be_read_is_refused_by_a_sentence, 0,
                        (int)(sizeof refusals / sizeof *refusals));
    tcase_add_loop_test(all, a_reference_is_read_in_each_of_its_spellings, 0, 11);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
