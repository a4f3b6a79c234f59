/* Bounds of schemas, on both sides. For random bounds of numbers, lengths and counts, and for each
 * set of required names, the grammar accepts exactly the values that satisfy the keywords. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "support/suite_main.h"

static uint64_t random_state;

static int draw(int n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

/* Returns NULL if no text can match. */
static struct grammar *compile(enum grammar_kind kind, const char *text) {
    struct grammar *grammar = NULL;
    struct err err = {0};
    enum status status = grammar_compile(kind, text, strlen(text), NULL, &grammar, &err);
    bool is_empty = strstr(err.message, "Nothing can match");
    ck_assert_msg(status == STATUS_OK || is_empty, "%s: %s", text, err.message);
    return grammar;
}

static bool takes(struct grammar *grammar, const char *text) {
    bool is_whole;
    size_t n = strlen(text);
    return grammar && grammar_match(grammar, text, n, &is_whole) == n && is_whole;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Numbers are counted in thousandths. */
enum { ONE = 1000 };

struct bounds {
    const char *keyword[5];
    int value[5];
    int n;
    bool is_integer;
};

/* Writes thousandths without zeros at the end, or with all of them. */
static void write_number(char *out, size_t size, int value, bool has_zeros) {
    int magnitude = abs(value);
    snprintf(out, size, "%s%d.%03d", value < 0 ? "-" : "", magnitude / ONE, magnitude % ONE);
    for (size_t n = strlen(out); !has_zeros && (out[n - 1] == '0' || out[n - 1] == '.'); n--) {
        bool is_point = out[n - 1] == '.';
        out[n - 1] = 0;
        if (is_point) break;
    }
}

static struct bounds draw_bounds(void) {
    static const char *const keywords[] = {"minimum", "maximum", "exclusiveMinimum",
                                           "exclusiveMaximum", "multipleOf"};
    static const int units[] = {1, 10, 100, ONE, ONE, ONE, 10 * ONE, 100 * ONE};
    struct bounds bounds = {.is_integer = draw(2)};
    for (int i = 0; i < 5; i++) {
        int unit = units[draw(8)];
        if (draw(3) > 0) continue;
        bounds.keyword[bounds.n] = keywords[i];
        bounds.value[bounds.n++] = i == 4 ? unit * (1 + draw(12)) : unit * (draw(241) - 120);
    }
    return bounds;
}

static bool keeps_to(const struct bounds *bounds, int value) {
    bool keeps = !bounds->is_integer || value % ONE == 0;
    for (int i = 0; i < bounds->n; i++) {
        const char *keyword = bounds->keyword[i];
        int bound = bounds->value[i];
        if (strcmp(keyword, "minimum") == 0) keeps = keeps && value >= bound;
        if (strcmp(keyword, "maximum") == 0) keeps = keeps && value <= bound;
        if (strcmp(keyword, "exclusiveMinimum") == 0) keeps = keeps && value > bound;
        if (strcmp(keyword, "exclusiveMaximum") == 0) keeps = keeps && value < bound;
        if (strcmp(keyword, "multipleOf") == 0) keeps = keeps && value % bound == 0;
    }
    return keeps;
}

static void write_schema(char *out, size_t size, const struct bounds *bounds) {
    size_t n =
        (size_t)snprintf(out, size, "{\"type\":\"%s\"", bounds->is_integer ? "integer" : "number");
    for (int i = 0; i < bounds->n; i++) {
        char number[32];
        write_number(number, sizeof number, bounds->value[i], false);
        n += (size_t)snprintf(out + n, size - n, ",\"%s\":%s", bounds->keyword[i], number);
    }
    snprintf(out + n, size - n, "}");
}

/* An integer is written without a fraction: 1.0 is refused for an integer type. */
static void check_number(const struct bounds *bounds, struct grammar *grammar, const char *schema,
                         int value) {
    for (int has_zeros = 0; has_zeros < 2; has_zeros++) {
        char number[32];
        bool expected = keeps_to(bounds, value) && !(bounds->is_integer && has_zeros);
        write_number(number, sizeof number, value, has_zeros);
        ck_assert_msg(takes(grammar, number) == expected, "%s %s %s", schema,
                      expected ? "takes" : "refuses", number);
    }
}

START_TEST(numbers_are_taken_up_to_their_bounds) {
    static const int steps[] = {0, 1, 9, 10, 11, 99, 100, 101, 500, ONE, 9 * ONE, 10 * ONE};
    random_state = (uint64_t)_i + 1;
    for (int i = 0; i < 150; i++) {
        char schema[300];
        const struct bounds bounds = draw_bounds();
        write_schema(schema, sizeof schema, &bounds);
        struct grammar *grammar = compile(GRAMMAR_JSON_SCHEMA, schema);
        for (int k = 0; k < bounds.n; k++) {
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
                check_number(&bounds, grammar, schema, bounds.value[k] + steps[s]);
                check_number(&bounds, grammar, schema, bounds.value[k] - steps[s]);
                check_number(&bounds, grammar, schema, -bounds.value[k] - steps[s]);
            }
            int near = bounds.value[k] / ONE * ONE; /* the nearest whole numbers */
            for (int d = -2; d <= 2; d++) check_number(&bounds, grammar, schema, near + d * ONE);
        }
        for (int k = 0; k < 20; k++) check_number(&bounds, grammar, schema, draw(400001) - 200000);
        grammar_release(grammar);
    }
}
END_TEST

/* ---- counts --------------------------------------------------------------------------------- */

static const struct counted {
    enum grammar_kind kind;
    const char *grammar; /* with the smallest and the largest count */
    const char *open, *one, *between, *close;
} counteds[] = {
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":%d,\"maxLength\":%d}", "\"", "a", "",
     "\""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":%d,\"maxLength\":%d}", "\"",
     "\\u00e9", "", "\""},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":%d,\"maxLength\":%d}", "\"", "a", "",
     "\""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(?:ab){%d,%d}$\"}", "\"", "ab", "",
     "\""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"minItems\":%d,\"maxItems\":%d}", "[", "1", ",",
     "]"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":%d,\"maxItems\":%d}", "[",
     "null", ",", "]"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"prefixItems\":[{},{\"const\":1},{}],\"minItems\":%d,\"maxItems\":%d}",
     "[", "1", ",", "]"},
    {GRAMMAR_REGEX, "a{%d,%d}", "", "a", "", ""},
    {GRAMMAR_REGEX, "(?:xy){%d,%d}", "", "xy", "", ""},
    {GRAMMAR_GBNF, "root ::= \"ab\"{%d,%d}", "", "ab", "", ""},
    {GRAMMAR_GBNF, "start: \"ab\" ~ %d..%d", "", "ab", "", ""},
};

START_TEST(counts_are_taken_from_the_least_to_the_largest) {
    const struct counted *c = &counteds[_i];
    for (int i = 0; i < 5 * 5; i++) {
        int min = i / 5, max = min + i % 5;
        char text[300];
        snprintf(text, sizeof text, c->grammar, min, max);
        struct grammar *grammar = compile(c->kind, text);
        for (int n = 0; n <= max + 2; n++) {
            struct buf value = {0};
            buf_puts(&value, c->open);
            for (int k = 0; k < n; k++) {
                if (k) buf_puts(&value, c->between);
                buf_puts(&value, c->one);
            }
            buf_puts(&value, c->close);
            ck_assert_msg(takes(grammar, value.data) == (n >= min && n <= max), "%s: %d", text, n);
            buf_free(&value);
        }
        grammar_release(grammar);
    }
}
END_TEST

/* ---- required names ------------------------------------------------------------------------- */

enum { N_NAMES = 4 };

/* The ways to write members: as JSON, or as the arguments of a call. */
static const struct spelling {
    const char *style; /* NULL: a plain schema */
    const char *open, *member, *between, *close;
} spellings[] = {
    {NULL, "{", "\"%c\":1", ",", "}"},
    {"json", "{", "\"%c\": 1", ", ", "}"},
    {"qwen_xml", "", "<parameter=%c>\n1\n</parameter>\n", "", ""},
    {"glm_xml", "", "<arg_key>%c</arg_key>\n<arg_value>1</arg_value>\n", "", ""},
    {"seed_xml", "", "<parameter=%c>1</parameter>\n", "", ""},
    {"xtml", "", "<|open|>argument key=\"%c\" type=\"number\"<|sep|>1<|close|>argument<|sep|>", "",
     ""},
    {"python", "", "%c=1", ", ", ""},
};
enum { N_SPELLINGS = sizeof spellings / sizeof *spellings };

static struct grammar *compile_object(const struct spelling *spelling, unsigned required,
                                      const char *more) {
    struct buf text = {0};
    bool is_second = false;
    if (spelling->style)
        buf_printf(&text,
                   "{\"type\":\"structural_tag\",\"format\":{\"type\":\"json_schema\",\"style\":"
                   "\"%s\",\"json_schema\":",
                   spelling->style);
    buf_puts(&text, "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{}},"
                    "\"required\":[");
    for (int i = N_NAMES - 1; i >= 0; i--) { /* their order must not matter */
        if (!(required >> i & 1)) continue;
        buf_printf(&text, is_second ? ",\"%c\"" : "\"%c\"", 'a' + i);
        is_second = true;
    }
    buf_printf(&text, "]%s}%s", more, spelling->style ? "}}" : "");
    struct grammar *grammar =
        compile(spelling->style ? GRAMMAR_STRUCTURAL_TAG : GRAMMAR_JSON_SCHEMA, text.data);
    buf_free(&text);
    return grammar;
}

static void write_members(struct buf *text, const struct spelling *spelling, unsigned present) {
    bool is_second = false;
    buf_clear(text);
    buf_puts(text, spelling->open);
    for (int i = 0; i < N_NAMES; i++) {
        if (!(present >> i & 1)) continue;
        if (is_second) buf_puts(text, spelling->between);
        buf_printf(text, spelling->member, 'a' + i);
        is_second = true;
    }
    buf_puts(text, spelling->close);
}

START_TEST(objects_are_taken_if_they_have_each_required_name) {
    const struct spelling *spelling = &spellings[_i];
    struct buf text = {0};
    for (unsigned required = 0; required < 1u << N_NAMES; required++) {
        struct grammar *grammar =
            compile_object(spelling, required, _i % 2 ? ",\"additionalProperties\":false" : "");
        for (unsigned present = 0; present < 1u << N_NAMES; present++) {
            write_members(&text, spelling, present);
            ck_assert_msg(takes(grammar, text.data) == ((required & ~present) == 0), "%x %x %s",
                          required, present, text.data);
        }
        grammar_release(grammar);
    }
    buf_free(&text);
}
END_TEST

START_TEST(objects_are_taken_if_their_number_of_members_is_within_its_bounds) {
    struct buf text = {0};
    int min = _i / (N_NAMES + 2), max = _i % (N_NAMES + 2);
    for (unsigned required = 0; required < 1u << N_NAMES; required++) {
        char more[100];
        snprintf(more, sizeof more,
                 ",\"additionalProperties\":false,\"minProperties\":%d,\"maxProperties\":%d", min,
                 max);
        struct grammar *grammar = compile_object(&spellings[0], required, more);
        for (unsigned present = 0; present < 1u << N_NAMES; present++) {
            int n = __builtin_popcount(present);
            bool expected = (required & ~present) == 0 && n >= min && n <= max;
            write_members(&text, &spellings[0], present);
            ck_assert_msg(takes(grammar, text.data) == expected, "%d..%d, %x: %s", min, max,
                          required, text.data);
        }
        grammar_release(grammar);
    }
    buf_free(&text);
}
END_TEST

/* ---- patterns of names ---------------------------------------------------------------------- */

/* Members of patternProperties: a property whose name matches has a multiple of `divisor`. */
static const struct name_pattern {
    const char *pattern;
    char first, any, last; /* what it matches; 0: nothing */
    int divisor;
} name_patterns[] = {
    {"^a", 'a', 0, 0, 2},  {"b", 0, 'b', 0, 3},   {"c$", 0, 0, 'c', 5},   {"^x", 'x', 0, 0, 7},
    {"^y", 'y', 0, 0, 11}, {"^z", 'z', 0, 0, 13}, {"^[xw]", 0, 0, 0, 17}, {"^c", 'c', 0, 0, 19},
};
enum { N_PATTERNS = sizeof name_patterns / sizeof *name_patterns };

/* Returns the product of the divisors that apply to a name; 0: none does. */
static int divisor_of(const char *name, int n) {
    int divisor = 0;
    for (int i = 0; i < n; i++) {
        const struct name_pattern *p = &name_patterns[i];
        bool applies = (p->first && name[0] == p->first) || (p->any && strchr(name, p->any)) ||
                       (p->last && name[0] && name[strlen(name) - 1] == p->last);
        if (i == 6) applies = name[0] == 'x' || name[0] == 'w';
        if (applies) divisor = max_int(divisor, 1) * p->divisor;
    }
    return divisor;
}

START_TEST(names_are_held_to_each_pattern_that_they_match) {
    const int n = _i + 1;
    struct buf text = {0};
    buf_puts(&text, "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},"
                    "\"patternProperties\":{");
    for (int i = 0; i < n; i++)
        buf_printf(&text, "%s\"%s\":{\"type\":\"integer\",\"multipleOf\":%d}", i ? "," : "",
                   name_patterns[i].pattern, name_patterns[i].divisor);
    buf_puts(&text, "}}");
    struct grammar *grammar = compile(GRAMMAR_JSON_SCHEMA, text.data);
    random_state = (uint64_t)n;
    for (int i = 0; i < 300; i++) {
        char name[5] = {0}, value[60];
        for (int k = draw(5) - 1; k >= 0; k--) name[k] = "abcxyzwq"[draw(8)];
        int divisor = divisor_of(name, n);
        snprintf(value, sizeof value, "{\"%s\":%d}", name, max_int(divisor, 1) * 3);
        ck_assert_msg(takes(grammar, value) == (divisor > 0), "%d: %s", n, value);
        snprintf(value, sizeof value, "{\"%s\":%d}", name, divisor * 4 + 1);
        ck_assert_msg(!takes(grammar, value), "%d: %s", n, value);
        snprintf(value, sizeof value, "{\"%s\":null}", name);
        ck_assert_msg(takes(grammar, value) == (divisor == 0), "%d: %s", n, value);
    }
    grammar_release(grammar);
    buf_free(&text);
}
END_TEST

/* ---- values --------------------------------------------------------------------------------- */

/* Two values are the same if they are equal as JSON, in any spelling. */
START_TEST(several_lists_take_the_values_that_each_has) {
    static const char *const values[] = {"1",           "2",         "1.5",    "\"1\"",
                                         "null",        "true",      "[]",     "[1]",
                                         "[1,2]",       "{\"a\":1}", "{}",     "{\"a\":{\"b\":[]}}",
                                         "\"\"",        "\"a]\"",    "-1",     "1e+300",
                                         "\"\\u00e9\"", "[[],[]]",   "[[[]]]", "{\"b\":1,\"a\":2}"};
    enum { N = sizeof values / sizeof *values };
    random_state = (uint64_t)_i + 1;
    struct buf schema = {0};
    bool is_in[2][N];
    buf_puts(&schema, "{\"allOf\":[");
    for (int list = 0; list < 2; list++) {
        buf_puts(&schema, list ? ",{\"enum\":[0" : "{\"enum\":[0");
        for (int i = 0; i < N; i++) {
            int at = list ? N - 1 - i : i;
            is_in[list][at] = draw(2);
            if (is_in[list][at]) buf_printf(&schema, ",%s", values[at]);
        }
        buf_puts(&schema, "]}");
    }
    buf_puts(&schema, "]}");
    struct grammar *grammar = compile(GRAMMAR_JSON_SCHEMA, schema.data);
    for (int i = 0; i < N; i++)
        ck_assert_msg(takes(grammar, values[i]) == (is_in[0][i] && is_in[1][i]), "%s: %s",
                      schema.data, values[i]);
    grammar_release(grammar);
    buf_free(&schema);
}
END_TEST

START_TEST(equal_values_are_found_in_each_spelling) {
    static const struct {
        const char *schema, *value;
        bool is_taken;
    } rows[] = {
        {"{\"allOf\":[{\"enum\":[1]},{\"enum\":[1.0,2]}]}", "1", true},
        {"{\"allOf\":[{\"enum\":[1]},{\"const\":1e0}]}", "1", true},
        {"{\"allOf\":[{\"const\":{\"a\":1,\"b\":2}},{\"enum\":[{\"b\":2,\"a\":1}]}]}",
         "{\"a\":1,\"b\":2}", true},
        {"{\"allOf\":[{\"enum\":[\"\\u0041\",0]},{\"enum\":[\"A\",0]}]}", "\"A\"", true},
        {"{\"allOf\":[{\"enum\":[[1,2],0]},{\"enum\":[[2,1],0]}]}", "[1,2]", false},
        {"{\"allOf\":[{\"enum\":[\"1\",0]},{\"enum\":[1,0]}]}", "\"1\"", false},
        {"{\"const\":2,\"enum\":[1,2,3]}", "2", true},
        {"{\"const\":2,\"enum\":[1,2,3]}", "1", false},
        {"{\"oneOf\":[{\"const\":1},{\"const\":\"1\"}]}", "1", true},
        {"{\"oneOf\":[{\"enum\":[1,2]},{\"enum\":[3]},{\"const\":null}]}", "3", true},
    };
    struct grammar *grammar = compile(GRAMMAR_JSON_SCHEMA, rows[_i].schema);
    ck_assert_msg(takes(grammar, rows[_i].value) == rows[_i].is_taken, "%s", rows[_i].schema);
    grammar_release(grammar);
}
END_TEST

/* A value that two branches of a oneOf match is not accepted. */
START_TEST(branches_of_one_of_exclude_each_other) {
    static const struct {
        const char *schema, *good, *bad; /* good NULL: no value matches */
    } rows[] = {
        {"{\"oneOf\":[{\"const\":1},{\"const\":2},{\"const\":1.0}]}", "2", "1"},
        {"{\"oneOf\":[{\"enum\":[1,1]},{\"const\":2}]}", "1", "3"},
        {"{\"oneOf\":[{\"enum\":[1,2]},{\"enum\":[2,3]}]}", "1", "2"},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"const\":2,\"type\":\"integer\"},{\"type\":\"string\"}]"
         "}",
         "2", "3"},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"const\":null}]}", NULL, "null"},
        {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":1}"
         "}},{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":2}}}]}",
         "{\"k\":2}", "{\"k\":3}"},
        {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":1}"
         "}},{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":1}}}]}",
         NULL, "{\"k\":1}"},
        {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":1}"
         "}},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":2}}}]}",
         "{\"k\":2}", "{\"k\":3}"},
        {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"j\",\"k\"],\"properties\":{\"k\":{"
         "\"const\":1}}},{\"type\":\"object\",\"required\":[\"j\",\"k\"],\"properties\":{\"k\":{"
         "\"const\":2}}},{\"type\":\"object\",\"required\":[\"j\"]}]}",
         "{\"j\":1}", "{\"k\":1,\"j\":1}"},
    };
    struct grammar *grammar = NULL;
    struct err err = {0};
    const char *schema = rows[_i].schema, *good = rows[_i].good, *bad = rows[_i].bad;
    bool may_end = false;
    grammar_compile(GRAMMAR_JSON_SCHEMA, schema, strlen(schema), NULL, &grammar, &err);
    ck_assert_msg((grammar != NULL) == (good != NULL), "%s: %s", schema, err.message);
    if (!grammar) return;
    ck_assert_uint_eq(grammar_match(grammar, good, strlen(good), &may_end), strlen(good));
    ck_assert(may_end);
    ck_assert(grammar_match(grammar, bad, strlen(bad), &may_end) < strlen(bad) || !may_end);
    grammar_release(grammar);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_bounds");
    TCase *all = tcase_create("bounds");
    tcase_set_timeout(all, 300);
    tcase_add_loop_test(all, numbers_are_taken_up_to_their_bounds, 0, 12);
    tcase_add_loop_test(all, counts_are_taken_from_the_least_to_the_largest, 0,
                        (int)(sizeof counteds / sizeof *counteds));
    tcase_add_loop_test(all, objects_are_taken_if_they_have_each_required_name, 0, N_SPELLINGS);
    tcase_add_loop_test(all, objects_are_taken_if_their_number_of_members_is_within_its_bounds, 0,
                        (N_NAMES + 2) * (N_NAMES + 2));
    tcase_add_loop_test(all, names_are_held_to_each_pattern_that_they_match, 0, N_PATTERNS);
    tcase_add_loop_test(all, several_lists_take_the_values_that_each_has, 0, 60);
    tcase_add_loop_test(all, equal_values_are_found_in_each_spelling, 0, 10);
    tcase_add_loop_test(all, branches_of_one_of_exclude_each_other, 0, 9);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
