/* Hostile grammars: each compiles, or is refused with a message that gives the reason, in bounded
 * time and memory. A grammar that compiles is used: a mask, and some tokens under masks. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/grammar/grammar.h"
#include "support/suite_main.h"

#define J GRAMMAR_JSON_SCHEMA
#define R GRAMMAR_REGEX
#define G GRAMMAR_GBNF
#define C GRAMMAR_CHOICE
#define T GRAMMAR_STRUCTURAL_TAG
#define NOTHING "Nothing can match"
#define SYNTAX "is not valid JSON"

/* The text is n times `open`, then `middle`, then n times `close`; n == 0 means n == 1. */
static const struct hostile {
    enum grammar_kind kind;
    const char *open;
    int n;
    const char *middle, *close;
    const char *words; /* of the refusal; NULL: it compiles; "": either */
} cases[] = {
    /* depth */
    {J, "{\"items\":", 62, "true", "}", NULL},
    {J, "{\"items\":", 65, "true", "}", "deep"},
    {J, "{\"items\":", 20000, "true", "}", "deep"},
    {J, "{\"anyOf\":[", 65, "true", "]}", "deep"},
    {J, "{\"allOf\":[", 64, "true", "]}", NULL},
    {J, "{\"properties\":{\"a\":", 66, "true", "}}", "deep"},
    {J, "{\"additionalProperties\":", 70, "true", "}", "deep"},
    {J, "{\"prefixItems\":[", 70, "true", "]}", "deep"},
    {J, "{\"$defs\":{\"a\":", 70, "true", "}}", "deep"},
    {J, "[", 300, "", "]", "deep"},
    {R, "(", 63, "a", ")", NULL},
    {R, "(", 65, "a", ")", "nested deeper than 64"},
    {R, "(", 100000, "a", ")", "deeper"},
    {R, "(?:", 50000, "a", ")", "deeper"},
    {R, "(?i:", 60, "a", ")", NULL},
    {G, "root ::= ", 0, "((((((((\"a\"))))))))", "", NULL},
    {G, "root ::= \"x\"\ny ::= (", 0, "", "", "a '(' without its ')'"},
    {T, "{\"type\":\"structural_tag\",\"format\":", 0, "{\"type\":\"any_text\"}", "}", NULL},
    /* counts in counts */
    {R, "(a{1000}){1000}", 0, "", "", NULL},
    {R, "(((a{100}){100}){100}){100}", 0, "", "", NULL},
    {R, "((((((((a{9}){9}){9}){9}){9}){9}){9}){9}){9}", 0, "", "", NULL},
    {R, "a{1000000}", 0, "", "", NULL},
    {R, "a{99999999999999999999}", 0, "", "", NULL},
    {R, "a{0,40000}", 0, "", "", NULL},
    {R, "(a?){60000}", 0, "", "", "more than 100000"},
    {R, "(?:a|aa){0,90000}(?:(?:a|b){3,9000}){2,5000}", 0, "", "", NULL},
    {J, "{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":90000}", 0, "", "", "more than"},
    {R, "(a?){300}a{300}", 0, "", "", NULL},
    {R, "(a*)*", 0, "b", "", NULL},
    {R, "(a|a)*", 0, "", "", NULL},
    {R, "((a*)*)*", 0, "", "", NULL},
    {R, "(a|b|ab)*c", 0, "", "", NULL},
    {R, "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)[^x]", 0, "", "", NULL},
    {R, "(x+x+)+y", 0, "", "", NULL},
    {R, "\\pL{5000}", 0, "", "", ""},
    {R, "[\\pL\\pN]{200}", 0, "", "", ""},
    {R, "(?i)[\\pL]{100}", 0, "", "", ""},
    {R, "(\\PL\\pL){300}", 0, "", "", ""},
    {J, "{\"type\":\"string\",\"maxLength\":1000000}", 0, "", "", NULL},
    {J, "{\"type\":\"string\",\"maxLength\":1e300}", 0, "", "", NULL},
    {J, "{\"type\":\"string\",\"maxLength\":9223372036854775807}", 0, "", "", NULL},
    {J, "{\"type\":\"string\",\"maxLength\":40000}", 0, "", "", NULL},
    {J, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":1}", 0, "", "", NOTHING},
    {J, "{\"type\":\"array\",\"maxItems\":1000000}", 0, "", "", NULL},
    {J, "{\"type\":\"array\",\"minItems\":30000}", 0, "", "", NULL},
    {J, "{\"type\":\"array\",\"minItems\":5000,\"items\":{\"type\":\"null\"}}", 0, "", "", ""},
    {J, "{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", 0, "", "", NOTHING},
    {J, "{\"type\":\"array\",\"minItems\":1,\"items\":false}", 0, "", "", NOTHING},
    {J, "{\"type\":\"object\",\"minProperties\":1000000}", 0, "", "", ""},
    {J, "{\"type\":\"object\",\"maxProperties\":1000000}", 0, "", "", ""},
    {J, "{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":0}", 0, "", "", NOTHING},
    {J, "{\"type\":\"object\",\"minProperties\":1,\"additionalProperties\":false}", 0, "", "",
     NOTHING},
    {J, "{\"type\":\"string\",\"pattern\":\"(a{300}){300}\"}", 0, "", "", NULL},
    {J, "{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":14000}", 0, "", "", ""},
    {J, "{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":100000}", 0, "", "", NULL},
    {J, "{\"type\":\"string\",\"pattern\":\"a.{12}$\",\"maxLength\":30}", 0, "", "", ""},
    {J, "{\"type\":\"string\",\"pattern\":\"a.{40}b\"}", 0, "", "", NULL},
    {J,
     "{\"allOf\":[{\"pattern\":\"a.{9}$\"},{\"pattern\":\"b.{8}$\"},{\"pattern\":\"c.{7}$\"}],"
     "\"type\":\"string\"}",
     0, "", "", ""},
    {J, "{\"type\":\"string\",\"format\":\"uri\",\"pattern\":\"x.{9}y\",\"maxLength\":99}", 0, "",
     "", ""},
    {J, "{\"type\":\"string\",\"format\":\"email\",\"maxLength\":254}", 0, "", "", ""},
    {J, "{\"multipleOf\":1999,\"minimum\":3,\"maximum\":99999999,\"type\":\"number\"}", 0, "", "",
     ""},
    {J, "{\"allOf\":[{\"multipleOf\":1999},{\"multipleOf\":1997}],\"type\":\"integer\"}", 0, "", "",
     ""},
    {J, "{\"type\":\"number\",\"multipleOf\":1e-300}", 0, "", "", "at most 9"},
    {J, "{\"type\":\"number\",\"multipleOf\":1e300}", 0, "", "", "at most 2000"},
    {J, "{\"type\":\"number\",\"multipleOf\":0}", 0, "", "", "must be above 0"},
    {J, "{\"type\":\"number\",\"multipleOf\":-1}", 0, "", "", "must be above 0"},
    {J, "{\"type\":\"number\",\"minimum\":1e308,\"maximum\":1.7e308}", 0, "", "", ""},
    {J, "{\"type\":\"number\",\"minimum\":5e-324}", 0, "", "", ""},
    {J, "{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}", 0, "", "", NOTHING},
    {J, "{\"type\":\"integer\",\"minimum\":0.2,\"maximum\":0.8}", 0, "", "", NOTHING},
    {J, "{\"type\":\"number\",\"minimum\":1e999}", 0, "", "", ""},
    {G, "root ::= \"a\"{1000000}", 0, "", "", NULL},
    {G, "root ::= ((\"a\"{500}){500}){500}", 0, "", "", NULL},
    /* references */
    {J, "{\"$ref\":\"#\"}", 0, "", "", "refers to itself"},
    {J, "{\"allOf\":[{\"$ref\":\"#\"}]}", 0, "", "", "refers to itself"},
    {J, "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", 0, "", "", ""},
    {J,
     "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/"
     "a\"}}}",
     0, "", "", "refers to itself"},
    {J, "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"}]}}}", 0, "",
     "", ""},
    {J,
     "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"items\":{\"$ref\":\"#/$defs/"
     "a\"},\"type\":\"array\"}}}",
     0, "", "", NULL},
    {J, "{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#\"}}", 0, "", "", NOTHING},
    {J, "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", 0, "",
     "", NOTHING},
    {J, "{\"$ref\":\"#/\"}", 0, "", "", "not a schema"},
    {J, "{\"$ref\":\"#/a/b/c\"}", 0, "", "", "not a schema"},
    {J, "{\"$ref\":\"\"}", 0, "", "", "refers to"},
    {J, "{\"$ref\":\"#/%\"}", 0, "", "", "not a schema"},
    {J, "{\"$ref\":\"#/~\"}", 0, "", "", "not a schema"},
    {J, "{\"$ref\":\"#/%00\"}", 0, "", "", "not a schema"},
    {J, "{\"$ref\":\"#/title\",\"title\":\"x\"}", 0, "", "", "not a schema"},
    {J, "{\"$ref\":5}", 0, "", "", "must be a string"},
    {J, "{\"$ref\":\"#/$defs\",\"$defs\":{}}", 0, "", "", ""},
    {J, "{\"$ref\":\"#/anyOf/99999999999999999999\",\"anyOf\":[true]}", 0, "", "", ""},
    {J, "{\"$ref\":\"#/anyOf/-1\",\"anyOf\":[true]}", 0, "", "", ""},
    {J, "{\"$ref\":\"file:///etc/passwd\"}", 0, "", "", "only places in this schema"},
    {J, "{\"$ref\":\"#/examples/0\",\"examples\":[{\"anyof\":1}]}", 0, "", "",
     "\"/examples/0/anyof\""},
    /* no text matches */
    {J, "false", 0, "", "", NOTHING},
    {J, "{\"enum\":[1],\"type\":\"string\"}", 0, "", "", NOTHING},
    {J, "{\"const\":1,\"enum\":[2]}", 0, "", "", NOTHING},
    {J, "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", 0, "", "", NOTHING},
    {J, "{\"anyOf\":[false,false]}", 0, "", "", NOTHING},
    {J, "{\"type\":\"string\",\"pattern\":\"^a\",\"format\":\"ipv4\"}", 0, "", "", NOTHING},
    {J, "{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", 0, "", "",
     NOTHING},
    {J, "{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}", 0, "", "",
     NOTHING},
    {J, "{\"type\":\"object\",\"propertyNames\":false,\"minProperties\":1}", 0, "", "", NOTHING},
    {J,
     "{\"allOf\":[{\"items\":{\"type\":\"null\"}},{\"items\":{\"type\":\"string\"}}],\"type\":"
     "\"array\",\"minItems\":1}",
     0, "", "", NOTHING},
    {R, "[^\\x00-\\x{10ffff}]", 0, "", "", NOTHING},
    {R, "a[^\\d\\D]b", 0, "", "", NOTHING},
    {G, "root ::= root", 0, "", "", NOTHING},
    {G, "root ::= \"a\" root", 0, "", "", NOTHING},
    {G, "root ::= a\na ::= b\nb ::= a", 0, "", "", NOTHING},
    /* ambiguity */
    {G, "root ::= root root | \"a\" | \"\"", 0, "", "", NULL},
    {G, "root ::= root root root | \"a\"", 0, "", "", NULL},
    {G, "root ::= a a a a a a a a a a\na ::= \"a\" | \"\"", 0, "", "", NULL},
    {G, "root ::= a*\na ::= \"a\"* | b*\nb ::= \"a\" | \"\"", 0, "", "", NULL},
    {G, "root ::= root \"+\" root | root \"*\" root | [0-9]", 0, "", "", NULL},
    {G, "root ::= (\"a\" | \"a\" \"a\" | \"a\" \"a\" \"a\")*", 0, "", "", NULL},
    {J, "{\"anyOf\":[{},{},{},{},{},{},{},{},{},{}]}", 0, "", "", NULL},
    {J, "{\"anyOf\":[{\"anyOf\":[{},{}]},{\"anyOf\":[{},{}]}]}", 0, "", "", NULL},
    {R, "(a?b?c?d?e?f?g?h?){40}", 0, "", "", NULL},
    /* bytes that are not text */
    {R, "\xff", 0, "", "", "not UTF-8"},
    {R, "a\xc3", 0, "", "", "not UTF-8"},
    {R, "\xed\xa0\x80", 0, "", "", "not UTF-8"},
    {R, "\xf4\x90\x80\x80", 0, "", "", "not UTF-8"},
    {R, "\xc0\x80", 0, "", "", "not UTF-8"},
    {R, "[\xe2\x82]", 0, "", "", "not UTF-8"},
    {R, "\\ud800", 0, "", "", "an unknown escape"},
    {R, "[\\ud800-\\udfff]", 0, "", "", NOTHING},
    {R, "\\x{110000}", 0, "", "", "an unknown escape"},
    {R, "\\x{}", 0, "", "", "an unknown escape"},
    {R, "\\x", 0, "", "", "an unknown escape"},
    {R, "\\", 0, "", "", "an unknown escape"},
    {R, "a{,5}", 0, "", "", NULL},
    {R, "a{5,2}", 0, "", "", "whose end is before"},
    {R, "[]", 0, "", "", "a '[' without its ']'"},
    {R, "[^]", 0, "", "", "a '[' without its ']'"},
    {R, "[a-\\d]", 0, "", "", ""},
    {R, "(?P<x", 0, "", "", "a group's name without its '>'"},
    {R, "(?", 0, "", "", "unknown kind of group"},
    {R, "(?z)", 0, "", "", "unknown kind of group"},
    {R, "\\Qabc", 0, "", "", NULL},
    {R, "x|*", 0, "", "", "a repetition of nothing"},
    {R, "^*", 0, "", "", ""},
    {R, "|||||", 0, "", "", NULL},
    {R, "()()()", 0, "", "", NULL},
    {G, "\xff", 0, "", "", "UTF-8"},
    {G, "", 0, "", "", ""},
    {G, "root ::= \"\\ud800\"", 0, "", "", ""},
    {G, "root ::= [", 0, "", "", ""},
    {G, "root ::=", 0, "", "", ""},
    {G, "root", 0, "", "", ""},
    {G, "root ::= \"a\" |", 0, "", "", ""},
    {G, "start: /a", 0, "", "", ""},
    {G, "start: \"a\"..", 0, "", "", ""},
    {G, "start: \"b\"..\"a\"", 0, "", "", ""},
    {G, "start: %import common.X", 0, "", "", ""},
    {J, "\"\xff\"", 0, "", "", SYNTAX},
    {J, "{\"const\":\"\\ud800\"}", 0, "", "", NULL},
    {J, "{\"const\":\"\\udc00\\ud800\"}", 0, "", "", NULL},
    {J, "{\"properties\":{\"\\ud800\":true}}", 0, "", "", NULL},
    {J, "{\"properties\":{\"a\\u0000b\":true}}", 0, "", "", ""},
    {J, "{\"required\":[\"a\\u0000b\"],\"type\":\"object\"}", 0, "", "", "\\u0000"},
    {J, "{\"const\":\"a\\u0000b\"}", 0, "", "", NULL},
    {J, "{\"pattern\":\"a\\u0000b\",\"type\":\"string\"}", 0, "", "", ""},
    {J, "{\"enum\":[\"\\ud83d\\ude00\"]}", 0, "", "", NULL},
    {J, "\xef\xbb\xbf{}", 0, "", "", SYNTAX},
    /* invalid JSON */
    {J, "", 0, "", "", SYNTAX},
    {J, "{", 0, "", "", SYNTAX},
    {J, "{}{}", 0, "", "", SYNTAX},
    {J, "{'a':1}", 0, "", "", SYNTAX},
    {J, "{\"type\":\"null\",}", 0, "", "", SYNTAX},
    {J, "NaN", 0, "", "", SYNTAX},
    {J, "null", 0, "", "", "must be a schema"},
    {J, "5", 0, "", "", "must be a schema"},
    {C, "[", 0, "", "", SYNTAX},
    {C, "{}", 0, "", "", "at least one string"},
    {C, "[\"\"]", 0, "", "", NULL},
    {C, "[null]", 0, "", "", "it must be a string"},
    {T, "null", 0, "", "", "structural tag"},
    {T, "{\"type\":\"structural_tag\"}", 0, "", "", "format"},
    {T, "{\"structures\":[],\"triggers\":[]}", 0, "", "", ""},
    {T, "{\"structures\":[{\"begin\":\"\",\"schema\":{},\"end\":\"\"}],\"triggers\":[\"\"]}", 0, "",
     "", ""},
    /* keywords with values of a wrong type */
    {J, "{\"type\":[]}", 0, "", "", "must be one of"},
    {J, "{\"type\":[\"null\",5]}", 0, "", "", "must be one of"},
    {J, "{\"enum\":[]}", 0, "", "", "must be an array of values"},
    {J, "{\"enum\":{}}", 0, "", "", "must be an array of values"},
    {J, "{\"properties\":[]}", 0, "", "", "must be an object of schemas"},
    {J, "{\"properties\":{\"a\":5}}", 0, "", "", "must be an object of schemas"},
    {J, "{\"anyOf\":[]}", 0, "", "", "at least one schema"},
    {J, "{\"oneOf\":[5]}", 0, "", "", "at least one schema"},
    {J, "{\"required\":\"a\"}", 0, "", "", "array of strings"},
    {J, "{\"minItems\":1.5}", 0, "", "", "whole number"},
    {J, "{\"minimum\":\"1\"}", 0, "", "", "must be a number"},
    {J, "{\"exclusiveMinimum\":true}", 0, "", "", NULL},
    {J, "{\"pattern\":\"(\"}", 0, "", "", "pattern at /pattern"},
    {J, "{\"patternProperties\":{\"(\":true}}", 0, "", "", "pattern"},
    {J, "{\"patternProperties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{},\"e\":{}}}", 0, "", "", NULL},
    {J, "{\"patternProperties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{},\"e\":{},\"f\":{},\"g\":{}}}",
     0, "", "", "overlap in more than 64 ways"},
    {J, "{\"not\":{}}", 0, "", "", "Nothing can match"},
    {J, "{\"if\":5}", 0, "", "", "\"/if\""},
    {J, "{\"$dynamicRef\":\"#\"}", 0, "", "", "\"/$dynamicRef\""},
};

static struct vocabulary *vocabulary;
static char bytes_of[256];

static void setup(void) {
    const char *tokens[260];
    int lengths[260];
    for (int i = 0; i < 256; i++) {
        bytes_of[i] = (char)i;
        tokens[i] = &bytes_of[i];
        lengths[i] = 1;
    }
    tokens[256] = "{\"", tokens[257] = "aaaa", tokens[258] = "\": ", tokens[259] = "\xc3\xa9\xc3";
    for (int i = 256; i < 260; i++) lengths[i] = (int)strlen(tokens[i]);
    vocabulary = vocabulary_new(tokens, lengths, 260);
}

static void teardown(void) {
    vocabulary_free(vocabulary);
}

/* Accepts some tokens under the masks. */
static void use(struct grammar *grammar) {
    struct matcher *matcher = matcher_new(grammar, vocabulary);
    uint32_t mask[9];
    for (int step = 0; step < 40; step++) {
        int id = 0;
        if (!matcher_mask(matcher, mask))
            ck_abort_msg("no token is allowed and the text may not end");
        for (int i = 0; i < 260; i++) {
            int at = (i + step * 97) % 260;
            if (mask[at / 32] >> (at % 32) & 1) id = at + 1;
        }
        if (id == 0) break;
        ck_assert(matcher_accept(matcher, id - 1));
    }
    matcher_free(matcher);
}

/* Compiles and uses a grammar. Returns the message of the refusal, or "". */
static const char *result_of(enum grammar_kind kind, const struct buf *text) {
    static struct err err;
    struct grammar *grammar;
    err = (struct err){0};
    clock_t began = clock();
    enum status status =
        grammar_compile(kind, text->data ? text->data : "", text->length, NULL, &grammar, &err);
    ck_assert_msg(clock() - began < 10 * CLOCKS_PER_SEC, "%.100s", text->data);
    if (status != STATUS_OK) {
        ck_assert_int_eq(status, STATUS_INVALID_REQUEST);
        ck_assert_msg(strlen(err.message) > 10, "%.100s", text->data);
        return err.message;
    }
    ck_assert_uint_lt(grammar_bytes(grammar), (size_t)20 << 20);
    use(grammar);
    grammar_release(grammar);
    return "";
}

START_TEST(a_hostile_grammar_is_refused_or_served) {
    const struct hostile *h = &cases[_i];
    struct buf text = {0};
    buf_puts(&text, "");
    for (int i = 0; i < max_int(h->n, 1); i++) buf_puts(&text, h->open);
    buf_puts(&text, h->middle);
    for (int i = 0; i < max_int(h->n, 1); i++) buf_puts(&text, h->close);
    const char *message = result_of(h->kind, &text);
    if (!h->words)
        ck_assert_msg(!*message, "%.60s: %s", text.data, message);
    else
        ck_assert_msg(strstr(message, h->words), "%.60s: %s", text.data, message);
    buf_free(&text);
}
END_TEST

/* A text of `n` members. Each contains its number twice. */
static void write_many(struct buf *text, const char *open, const char *member, int n,
                       const char *close) {
    char one[200];
    buf_puts(text, open);
    for (int i = 0; i < n; i++) {
        snprintf(one, sizeof one, member, i, i);
        if (i) buf_puts(text, ",");
        buf_puts(text, one);
    }
    buf_puts(text, close);
}

static const struct {
    enum grammar_kind kind;
    const char *open, *member;
    int n;
    const char *close, *words;
} large[] = {
    {J, "{\"enum\":[", "\"value %d\"", 10000, "]}", NULL},
    {J, "{\"enum\":[", "%d", 20000, "]}", ""},
    {J, "{\"enum\":[", "\"\u00e9%d\"", 3000, "]}", ""},
    {C, "[", "\"choice %d\"", 10000, "]", NULL},
    {J, "{\"enum\":[", "\"value %d value %d\"", 12000, "]}", "the limit is 262144"},
    {J, "{\"type\":\"object\",\"properties\":{", "\"p%d\":{\"type\":\"null\"}", 500, "}}", ""},
    {J, "{\"type\":\"object\",\"properties\":{", "\"p%d\":{\"enum\":[%d]}", 5000, "}}", ""},
    {J, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{", "\"p%d\":true",
     2000, "}}", ""},
    {J, "{\"type\":\"object\",\"maxProperties\":300,\"properties\":{", "\"p%d\":true", 600, "}}",
     ""},
    {J, "{\"oneOf\":[", "{\"const\":%d}", 300, "]}", NULL},
    {J, "{\"oneOf\":[",
     "{\"properties\":{\"k\":{\"const\":%d}},\"required\":[\"k\"],\"type\":\"object\"}", 200, "]}",
     ""},
    {J, "{\"anyOf\":[", "{\"properties\":{\"k%d\":{\"type\":\"string\"}}}", 300, "]}", ""},
    {J, "{\"allOf\":[", "{\"maxLength\":1%d}", 250, "]}", "more than 200 schemas"},
    {J, "{\"type\":\"string\",\"allOf\":[", "{\"pattern\":\"a.{%d}b\"}", 20, "]}", ""},
    {J, "{\"prefixItems\":[", "{\"const\":%d}", 1001, "]}", "more than 1000 items"},
    {J, "{\"prefixItems\":[", "{\"type\":\"null\"}", 900, "]}", ""},
    {J, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d3000\":true,",
     "\"d%d\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d1%d\"}}", 1, "}}", "not a schema"},
};

START_TEST(a_large_grammar_is_refused_or_served) {
    struct buf text = {0};
    write_many(&text, large[_i].open, large[_i].member, large[_i].n, large[_i].close);
    const char *message = result_of(large[_i].kind, &text);
    if (!large[_i].words)
        ck_assert_msg(!*message, "%.60s: %s", text.data, message);
    else
        ck_assert_msg(strstr(message, large[_i].words), "%.60s: %s", text.data, message);
    buf_free(&text);
}
END_TEST

/* Chains of $ref may have any length, because each is a rule. */
START_TEST(a_long_chain_of_references_is_served) {
    struct buf text = {0};
    buf_puts(&text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 1500; i++) {
        buf_printf(&text, "\"d%d\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d%d\"}},", i,
                   i + 1);
    }
    buf_puts(&text, "\"d1500\":{\"type\":\"null\"}}}");
    const char *message = result_of(J, &text);
    ck_assert_msg(!*message, "%s", message);
    buf_free(&text);
}
END_TEST

/* Each rule begins with the next one, so all of them wait at the start of the text. In the second
 * grammar they form a cycle. */
START_TEST(a_long_chain_of_rules_is_served) {
    const struct grammar_limits limits = {.max_ms = 100000}; /* for a build with sanitizers */
    struct grammar *grammar;
    struct err err = {0};
    struct buf text = {0};
    buf_puts(&text, "root ::= r0 \"a\" | \"b\"\n");
    for (int i = 0; i < 4000; i++) buf_printf(&text, "r%d ::= r%d \"x\"\n", i, i + 1);
    buf_puts(&text, _i ? "r4000 ::= \"y\" | r0 \"z\"\n" : "r4000 ::= \"y\"\n");
    enum status status = grammar_compile(G, text.data, text.length, &limits, &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    use(grammar);
    grammar_release(grammar);
    buf_free(&text);
}
END_TEST

/* Each letter may belong to any of the words before it: the states grow with the text, until they
 * are too ambiguous. The matcher stops there, so the time does not grow with the rest of the
 * text. */
START_TEST(an_ambiguous_text_comes_to_an_end) {
    const char *source = "root ::= s\ns ::= a s \"b\" | \"c\"\na ::= \"a\"+\n";
    static char text[20000];
    struct grammar *grammar;
    bool complete;
    memset(text, 'a', sizeof text);
    ck_assert(!grammar_compile(G, source, strlen(source), NULL, &grammar, NULL));
    size_t n = grammar_match(grammar, text, sizeof text, &complete);
    ck_assert(n > 300 && n < 1000 && !complete);
    ck_assert_uint_eq(grammar_match(grammar, "aaacb", 5, &complete), 5);
    ck_assert(complete);
    grammar_release(grammar);
}
END_TEST

/* Compiles all prefixes of a grammar, which must not crash. */
START_TEST(each_beginning_of_a_grammar_has_a_result) {
    static const struct {
        enum grammar_kind kind;
        const char *text;
    } whole[] = {
        {J, "{\"$defs\":{\"a\":{\"enum\":[1,\"x\",null,{\"b\":[2.5]}]}},\"type\":\"object\","
            "\"properties\":"
            "{\"p\":{\"$ref\":\"#/$defs/"
            "a\"}},\"required\":[\"p\"],\"patternProperties\":{\"^x[0-9]+\":{}}}"},
        {R, "^(?i:a[b-d\\d]{2,3}|\\x{e9}+?\\pL(?P<n>\\Qx\\E)*)[[:alpha:]^]\\.\\u00e9$"},
        {G, "root ::= (a | \"b\\n\"{2,3} [^c-e]+)? # note\na ::= 'x' root*"},
        {G, "start: a (\",\" a)*\n?a: /x+/i | \"y\"..\"z\" -> w\n%import common.INT\nB: INT~2..3"},
        {T,
         "{\"type\":\"structural_tag\",\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<\"]"
         ","
         "\"tags\":[{\"begin\":\"<a>\",\"content\":{\"type\":\"any_text\"},\"end\":\"</a>\"}]}}"},
    };
    struct buf text = {0};
    for (size_t n = 0; n <= strlen(whole[_i].text); n++) {
        buf_clear(&text);
        buf_puts(&text, "");
        buf_add(&text, whole[_i].text, n);
        const char *message = result_of(whole[_i].kind, &text);
        if (n == strlen(whole[_i].text)) ck_assert_msg(!*message, "%s: %s", text.data, message);
    }
    buf_free(&text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_hostile");
    TCase *all = tcase_create("hostile");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, a_hostile_grammar_is_refused_or_served, 0,
                        (int)(sizeof cases / sizeof *cases));
    tcase_add_loop_test(all, a_large_grammar_is_refused_or_served, 0,
                        (int)(sizeof large / sizeof *large));
    tcase_add_test(all, a_long_chain_of_references_is_served);
    tcase_add_loop_test(all, a_long_chain_of_rules_is_served, 0, 2);
    tcase_add_test(all, an_ambiguous_text_comes_to_an_end);
    tcase_add_loop_test(all, each_beginning_of_a_grammar_has_a_result, 0, 5);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
