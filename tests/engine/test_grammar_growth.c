/* How the work to compile grows with grammars, for families of grammars of n parts. Twice the parts
 * are a bit more than twice the work, as n log n is, and never four times. No text of the allowed
 * size takes more than twice the time limit, where time is work.
 * ctest label: slow */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counted/work.h"
#include "engine/grammar/grammar.h"
#include "support/suite_main.h"

#define J GRAMMAR_JSON_SCHEMA
#define R GRAMMAR_REGEX
#define G GRAMMAR_GBNF
#define C GRAMMAR_CHOICE
#define T GRAMMAR_STRUCTURAL_TAG
#define TAG "{\"type\":\"structural_tag\",\"format\":"
#define XML TAG "{\"type\":\"json_schema\",\"style\":\"qwen_xml\",\"texts\":["
#define ANY "{\"type\":\"any_text\"}"

/* A text is `open`, n times `first`, `middle`, n times `second`, `close`. In a part, @ is its
 * number and ^ the number after it. The last part does not end with a comma. */
static const struct family {
    enum grammar_kind kind;
    const char *open, *first, *middle, *second, *close;
} families[] = {
    /* names */
    {J, "{\"required\":[", "\"n@\",", "", "", "]}"},
    {J, "{\"required\":[", "\"n@\",", "],\"additionalProperties\":false,\"properties\":{",
     "\"n@\":{},", "}}"},
    {J, "{\"properties\":{", "\"n@\":{},", "},\"required\":[", "\"n@\",", "]}"},
    {J, "{\"properties\":{", "\"n@\":{},", "},\"required\":[", "\"m@\",", "]}"},
    {J, "{\"properties\":{", "\"n@\":{\"type\":\"null\"},", "}", "", "}"},
    {J, "{\"properties\":{", "\"n@\":{},", "},\"minProperties\":1}", "", ""},
    {J, "{\"properties\":{", "\"n@\":{},", "},\"patternProperties\":{\"^n\":{},\"7$\":{}}}", "",
     ""},
    {J, "{\"patternProperties\":{\"1\":{}},\"required\":[", "\"n@\",", "]}", "", ""},
    {J, "{\"propertyNames\":{\"enum\":[", "\"n@\",", "]}}", "", ""},
    {J, "{\"allOf\":[{\"required\":[", "\"n@\",", "]},{\"required\":[", "\"n@\",", "]}]}"},
    {J, "{\"allOf\":[{\"properties\":{", "\"n@\":{},", "}},{\"properties\":{", "\"n@\":{},",
     "}}]}"},
    {J, "{\"title\":\"x\",\"$defs\":{", "\"n@\":{},", "},\"properties\":{", "\"n@\":{},", "}}"},
    /* values */
    {J, "{\"enum\":[", "\"n@\",", "]}", "", ""},
    {J, "{\"enum\":[", "\"same\",", "]}", "", ""},
    {J, "{\"allOf\":[{\"enum\":[", "\"n@\",", "]},{\"enum\":[", "\"n@\",", "]}]}"},
    {J, "{\"allOf\":[{\"enum\":[", "\"n@\",", "]},{\"enum\":[", "\"m@\",", "]}]}"},
    {J, "{\"allOf\":[{\"enum\":[", "{\"a\":@,\"b\":1},", "]},{\"enum\":[", "{\"b\":1,\"a\":@},",
     "]}]}"},
    {J, "{\"allOf\":[{\"const\":{", "\"n@\":@,", "}},{\"const\":{", "\"n@\":@,", "}}]}"},
    {J, "{\"const\":[", "[@],", "]}", "", ""},
    {J, "{\"enum\":[", "\"\u00e9@\",", "]}", "", ""},
    {J, "{\"const\":\"", "\\n", "\"}", "", ""},
    {J, "{\"type\":[", "\"null\",", "]}", "", ""},
    /* branches */
    {J, "{\"anyOf\":[", "{\"const\":@},", "]}", "", ""},
    {J, "{\"anyOf\":[", "{\"properties\":{\"k@\":{}}},", "]}", "", ""},
    {J, "{\"oneOf\":[", "{\"const\":@},", "]}", "", ""},
    {J, "{\"oneOf\":[",
     "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":@}},\"required\":[\"k\"]},", "]}", "",
     ""},
    {J, "{\"oneOf\":[{\"enum\":[", "\"n@\",", "]},{\"enum\":[", "\"m@\",", "]}]}"},
    {J, "{\"allOf\":[", "{},", "]}", "", ""},
    {J, "{\"items\":{\"allOf\":[", "{\"title\":\"@\"},", "]}}", "", ""},
    {J, "{\"prefixItems\":[", "{\"type\":\"null\"},", "]}", "", ""},
    /* references */
    {J, "{\"$defs\":{", "\"d@\":{\"type\":\"null\"},", "},\"properties\":{",
     "\"n@\":{\"$ref\":\"#/$defs/d@\"},", "}}"},
    {J, "{\"$defs\":{\"d\":{\"properties\":{", "\"n@\":{\"title\":\"\"},", "}}},\"anyOf\":[",
     "{\"$ref\":\"#/$defs/d/properties/n@\"},", "]}"},
    {J, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
     "\"d@\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d^\"}},", "\"\":{}}}", "", ""},
    {J, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{", "\"d@\":{\"$ref\":\"#/$defs/d^\"},", "\"\":{}}}",
     "", ""},
    {J, "{\"anyOf\":[", "{\"type\":\"null\"},", "],\"prefixItems\":[", "{\"$ref\":\"#/anyOf/@\"},",
     "]}"},
    /* strings and numbers */
    {J, "{\"properties\":{", "\"n@\":{\"type\":\"string\",\"pattern\":\"^a@$\"},", "}}", "", ""},
    {J, "{\"properties\":{", "\"n@\":{\"type\":\"string\",\"maxLength\":@},", "}}", "", ""},
    {J, "{\"properties\":{", "\"n@\":{\"type\":\"integer\",\"minimum\":@},", "}}", "", ""},
    {J, "{\"properties\":{", "\"n@\":{\"type\":\"string\",\"format\":\"date\"},", "}}", "", ""},
    {J, "{\"pattern\":\"", "a", "\"}", "", ""},
    {J, "{\"pattern\":\"", "(a|b@)", "\"}", "", ""},
    /* refused at the end */
    {J, "{\"properties\":{", "\"n@\":{},", "},\"x\":1}", "", ""},
    {J, "{", "\"x@\":1,", "}", "", ""},
    {J, "{\"properties\":{", "\"n@\":{\"not\":{}},", "}}", "", ""},
    {J, "{\"required\":[", "\"a\\u0000@\",", "]}", "", ""},
    {J, "{\"enum\":[", "\"@\",", "],\"maxLength\":3}", "", ""},
    /* regular expressions */
    {R, "", "a@", "", "", ""},
    {R, "x", "|a@", "", "", ""},
    {R, "", "(a)", "", "", ""},
    {R, "", "()", "", "", ""},
    {R, "", "(|)", "", "", ""},
    {R, "", "\\pL", "", "", ""},
    {R, "", "\\d", "", "", ""},
    {R, "", "[a-f@]", "", "", ""},
    {R, "[", "\\p{L}", "]", "", ""},
    {R, "[", "a-z@", "]", "", ""},
    {R, "", "(?i)\\w", "", "", ""},
    {R, "", "a?", "", "", ""},
    {R, "", "a{2}", "", "", ""},
    {R, "(", "a|", "a)*", "", ""},
    {R, "", "[^\\x00-\\x{10ffff}]|", "", "", ""},
    {R, "", "|", "", "", ""},
    /* grammars */
    {G, "root ::= r0\n", "r@ ::= \"x\" r^\n", "", "", ""},
    {G, "root ::= r0\n", "r@ ::= r^ \"x\"\n", "r ::= \"y\"\n", "", ""},
    {G, "root ::= \"a\"\n", "r@ ::= r^ | \"x\"\n", "", "", ""},
    {G, "root ::= ", "a@ ", "\n", "a@ ::= \"x\"\n", ""},
    {G, "root ::= ", "\"a@\" | ", "\"b\"", "", ""},
    {G, "root ::= ", "\"a\" ", "", "", ""},
    {G, "root ::= \"a\"", "?", "", "", ""},
    {G, "root ::= \"a\"", "*", "", "", ""},
    {G, "root ::= ", "[a-z@] ", "", "", ""},
    {G, "root ::= \"", "\\n", "\"", "", ""},
    {G, "root ::= \"a\" # ", "# ", "\n", "", ""},
    {G, "start: \"a\"", "?", "", "", ""},
    {G, "start: a b\na: \"x\"\nb: a ", "?", "", "", ""},
    {G, "start: \"a\" ", "!", "", "", ""},
    {G, "start: ", "\"a@\"i ", "", "", ""},
    {G, "start: ", "/a@/ ", "", "", ""},
    {G, "start: ", "\"a@\"", "\n", "%import common.INT\n", ""},
    /* choices and structural tags */
    {C, "[", "\"choice @\",", "]", "", ""},
    {C, "[", "\"c\",", "]", "", ""},
    {C, "[\"", "a", "\"]", "", ""},
    {T, TAG "{\"type\":\"or\",\"elements\":[", "{\"type\":\"const_string\",\"value\":\"v@\"},",
     "]}}", "", ""},
    {T, TAG "{\"type\":\"sequence\",\"elements\":[", ANY ",", "]}}", "", ""},
    {T, TAG "{\"type\":\"triggered_tags\",\"triggers\":[\"<\"],\"tags\":[",
     "{\"begin\":\"<@>\",\"content\":" ANY ",\"end\":\">\"},", "]}}", "", ""},
    {T, TAG "{\"type\":\"tags_with_separator\",\"separator\":\",\",\"tags\":[",
     "{\"begin\":\"<@>\",\"content\":{\"type\":\"const_string\",\"value\":\"\"},\"end\":\">\"},",
     "]}}", "", ""},
    {T, TAG "{\"type\":\"any_text\",\"excludes\":[", "\"t@\",", "]}}", "", ""},
    {T, XML, "\"n@\",", "],\"json_schema\":{\"properties\":{", "\"n@\":{\"type\":\"string\"},",
     "}}}}"},
    {T, XML "],\"json_schema\":{\"required\":[", "\"n@\",", "],\"properties\":{", "\"n@\":{},",
     "}}}}"},
};

/* Grammars whose work quadruples when their parts double. Only the time limit bounds it. */
static const struct family heavy[] = {
    {T, TAG "{\"type\":\"triggered_tags\",\"triggers\":[", "\"<@\",", "],\"tags\":[",
     "{\"begin\":\"<@>\",\"content\":{\"type\":\"const_string\",\"value\":\"\"},\"end\":\">\"},",
     "]}}"},
    {J, "{\"oneOf\":[",
     "{\"type\":\"object\",\"properties\":{\"k@\":{\"const\":1}},\"required\":[\"k@\"]},", "]}", "",
     ""},
    {J, "{\"oneOf\":[{\"type\":\"null\"},", "{\"const\":@},", "]}", "", ""},
    {J, "{\"type\":\"string\",\"allOf\":[", "{\"pattern\":\"a.{@}b\"},", "]}", "", ""},
    {J, "{\"properties\":{", "\"n@\":{},", "},\"patternProperties\":{\"(a|b)*a(a|b){9}\":{}}}", "",
     ""},
    {J, "{\"properties\":{", "\"n@\":{\"type\":\"number\",\"minimum\":1e308,\"multipleOf\":7},",
     "}}", "", ""},
    {J, "{\"properties\":{", "\"n@\":{\"allOf\":[{\"$ref\":\"#\"},{\"minProperties\":@}]},", "}}",
     "", ""},
    {J, "{\"properties\":{", "\"n@\":{\"format\":\"uri\",\"pattern\":\"a.{9}@\"},", "}}", "", ""},
    {J, "{\"$defs\":{\"e\":{\"enum\":[", "\"n@\",", "]}},\"anyOf\":[",
     "{\"allOf\":[{\"$ref\":\"#/$defs/e\"},{\"title\":\"@\",\"type\":\"string\"}]},", "]}"},
    {R, "(a|b)*a(a|b){15}", "(a|b)", "", "", ""},
    {R, "(?i)", "[\\x{0}-\\x{1ffff}]", "", "", ""},
    {R, "(", "[^\\x00-\\x{10ffff}]|", "a){40000}", "", ""},
    {R, "(", "a|", "b){40000}", "", ""},
    {G, "root ::= r0\n", "r@ ::= r^ r^ | \"x\"\n", "", "", ""},
    {T, TAG "{\"type\":\"any_text\",\"not_at_start\":\"(a|b)*a(a|b){13}", "(a|b)", "\"}}", "", ""},
};

enum { N_FAMILIES = sizeof families / sizeof *families, N_HEAVY = sizeof heavy / sizeof *heavy };

/* ---- texts ---------------------------------------------------------------------------------- */

static void add_parts(struct buf *text, const char *part, int n) {
    size_t length = strlen(part);
    for (int i = 0; i < n && length > 0; i++) {
        for (size_t at = 0; at < length; at++) {
            bool is_last = i + 1 == n && at + 1 == length && part[at] == ',';
            if (part[at] == '@')
                buf_printf(text, "%d", i);
            else if (part[at] == '^')
                buf_printf(text, "%d", i + 1);
            else if (!is_last)
                buf_add(text, &part[at], 1);
        }
    }
}

static void write_text(struct buf *text, const struct family *family, int n) {
    buf_clear(text);
    buf_puts(text, family->open);
    add_parts(text, family->first, n);
    buf_puts(text, family->middle);
    add_parts(text, family->second, n);
    buf_puts(text, family->close);
}

/* ---- work ----------------------------------------------------------------------------------- */

enum { UNITS_A_MS = 1000000 };

/* Returns the work to compile n parts, also if this fails. */
static uint64_t compile_work(const struct family *family, int n, int max_ms) {
    const struct grammar_limits limits = {.max_ms = max_ms, .max_text = (size_t)4 << 20};
    struct buf text = {0};
    struct err err = {0};
    struct grammar *grammar = NULL;
    write_text(&text, family, n);
    uint64_t before = work_done();
    if (grammar_compile(family->kind, text.data, text.length, &limits, &grammar, &err) == STATUS_OK)
        grammar_release(grammar);
    buf_free(&text);
    return work_done() - before;
}

/* Returns the number of parts of a text of the largest size. */
static int most_parts(const struct family *family) {
    struct buf text = {0};
    write_text(&text, family, 1000);
    int n = (int)((size_t)1000 * ((size_t)256 << 10) / text.length);
    for (;; n = n * 9 / 10) {
        write_text(&text, family, n);
        if (text.length <= (size_t)256 << 10) break;
    }
    buf_free(&text);
    return n;
}

START_TEST(twice_the_parts_are_about_twice_the_work) {
    const struct family *family = &families[_i];
    int most = most_parts(family);
    uint64_t once = compile_work(family, most / 16, 1000000);
    for (int n = most / 16; n > 0 && n <= most / 2; n *= 2) {
        uint64_t twice = compile_work(family, 2 * n, 1000000);
        ck_assert_msg(2 * twice < 5 * once, "%d %s...%s: %d parts take %llu units, %d take %llu",
                      _i, family->open, family->first, n, (unsigned long long)once, 2 * n,
                      (unsigned long long)twice);
        once = twice;
    }
}
END_TEST

START_TEST(no_text_takes_more_than_twice_the_time_limit) {
    const struct family *family = _i < N_FAMILIES ? &families[_i] : &heavy[_i - N_FAMILIES];
    const int max_ms = 100;
    uint64_t taken = compile_work(family, most_parts(family), max_ms);
    ck_assert_msg(taken <= 2 * (uint64_t)max_ms * UNITS_A_MS, "%d %s...%s: %llu units", _i,
                  family->open, family->first, (unsigned long long)taken);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_growth");
    TCase *all = tcase_create("growth");
    tcase_set_timeout(all, 600);
    tcase_add_loop_test(all, twice_the_parts_are_about_twice_the_work, 0, N_FAMILIES);
    tcase_add_loop_test(all, no_text_takes_more_than_twice_the_time_limit, 0, N_FAMILIES + N_HEAVY);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
