/* Numbers of JSON Schema. Without bounds every JSON number is allowed. With bounds numbers have no
 * exponent, and the bounds become comparisons of digits from the left. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/name_index.h"
#include "engine/grammar/schema/internal.h"

/* The limit of multipleOf without its point. The automaton has a state per remainder and digit of
 * the fraction. */
#define MAX_DIVISOR 2000
#define MAX_SCALE 9

/* The digits of a magnitude: "12", "5" for 12.5. Trailing zeros of the fraction are removed. */
struct decimal {
    char whole[400], fraction[400];
};

static struct decimal decimal_of(double magnitude) {
    struct decimal d = {"0", ""};
    char text[800];
    for (int digits = 1; digits <= 17; digits++) { /* the shortest that is the same number */
        char shortest[64];
        snprintf(shortest, sizeof shortest, "%.*e", digits - 1, magnitude);
        if (digits < 17 && strtod(shortest, NULL) != magnitude) continue;
        int exponent = atoi(strchr(shortest, 'e') + 1);
        snprintf(text, sizeof text, "%.*f", max_int(0, digits - 1 - exponent),
                 strtod(shortest, NULL));
        break;
    }
    char *point = strchr(text, '.');
    if (point) *point = 0;
    snprintf(d.whole, sizeof d.whole, "%.399s", text);
    if (point) snprintf(d.fraction, sizeof d.fraction, "%.399s", point + 1);
    for (size_t n = strlen(d.fraction); n > 0 && d.fraction[n - 1] == '0'; n--) {
        d.fraction[n - 1] = 0;
    }
    return d;
}

static struct expr *digits(struct builder *b, char low, char high) {
    struct range range = {(uint8_t)low, (uint8_t)high};
    return expr_class(b, &range, 1);
}

static struct expr *any_digits(struct builder *b, int min, int max) {
    return expr_repeat(b, digits(b, '0', '9'), min, max);
}

/* (.digits)? */
static struct expr *any_fraction(struct builder *b) {
    struct expr *fraction = expr_of(b, EXPR_CAT, expr_text(b, "."), any_digits(b, 1, NO_MAX), NULL);
    return expr_repeat(b, fraction, 0, 1);
}

/* Digits whose first difference from than[n] is larger (`above`) or smaller. A whole number has n
 * digits and no leading zero; a fraction continues with any digits. */
static struct expr *differing(struct builder *b, const char *than, size_t n, bool above,
                              bool is_whole, struct expr *(*rest)(struct builder *b)) {
    struct expr *all = expr_new(b, EXPR_ALT);
    for (size_t i = 0; i < n && b->status == STATUS_OK; i++) {
        char least = is_whole && i == 0 && n > 1 ? '1' : '0';
        char low = above ? (char)(than[i] + 1) : least, high = above ? '9' : (char)(than[i] - 1);
        if (low > high) continue;
        struct expr *one = expr_of(b, EXPR_CAT, expr_bytes(b, than, i), digits(b, low, high), NULL);
        int left = (int)(n - 1 - i);
        expr_add(one, is_whole ? any_digits(b, left, left) : any_digits(b, 0, NO_MAX));
        expr_add(all, rest ? expr_add(one, rest(b)) : one);
    }
    return all;
}

/* A fraction, with its point, that is above or below `than`; an equal one is allowed unless
 * `strict`. */
static struct expr *fraction_beyond(struct builder *b, const char *than, bool above, bool strict) {
    size_t n = strlen(than);
    struct expr *all = expr_new(b, EXPR_ALT);
    struct expr *other = differing(b, than, n, above, false, NULL);
    expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, "."), other, NULL));
    struct expr *equal = expr_of(b, EXPR_CAT, expr_text(b, "."), expr_bytes(b, than, n), NULL);
    struct expr *zeros = expr_repeat(b, expr_text(b, "0"), n == 0, NO_MAX);
    if (!strict) expr_add(all, expr_add(equal, zeros));
    if (!strict && n == 0) expr_add(all, expr_new(b, EXPR_CAT));
    if (above) /* `than` and more digits, one of them above 0 */
        expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, "."), expr_bytes(b, than, n),
                              expr_repeat(b, expr_text(b, "0"), 0, NO_MAX), digits(b, '1', '9'),
                              any_digits(b, 0, NO_MAX), NULL));
    for (size_t i = 1; i < n && !above; i++) { /* a proper beginning of `than` */
        expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, "."), expr_bytes(b, than, i), NULL));
    }
    if (n > 0 && !above) expr_add(all, expr_new(b, EXPR_CAT)); /* the empty fraction */
    return all;
}

/* Whole magnitudes above or below `than`; an equal one is allowed unless `strict`. */
static struct expr *whole_beyond(struct builder *b, const char *than, bool above, bool strict) {
    const int n = (int)strlen(than);
    struct expr *all = differing(b, than, (size_t)n, above, true, NULL);
    if (!strict) expr_add(all, expr_text(b, than));
    if (above || n > 1) /* more or fewer digits */
        expr_add(all, expr_of(b, EXPR_CAT, digits(b, '1', '9'),
                              any_digits(b, above ? n : 0, above ? NO_MAX : n - 2), NULL));
    if (!above && n > 1) expr_add(all, expr_text(b, "0"));
    return all;
}

/* Magnitudes above or below `than`; an equal one is allowed unless `strict`. */
static struct expr *beyond(struct builder *b, const struct json *bound, bool above, bool strict,
                           bool is_whole) {
    struct decimal than = decimal_of(fabs(json_number(bound)));
    if (json_is_integer(bound)) { /* a double may not hold it exactly */
        snprintf(than.whole, sizeof than.whole, "%lld", (long long)json_integer(bound));
        if (than.whole[0] == '-') memmove(than.whole, than.whole + 1, strlen(than.whole));
    }
    if (is_whole && !than.fraction[0]) return whole_beyond(b, than.whole, above, strict);
    size_t n = strlen(than.whole);
    struct expr *all = expr_new(b, EXPR_ALT);
    expr_add(all, differing(b, than.whole, n, above, true, any_fraction));
    expr_add(all, expr_of(b, EXPR_CAT, expr_bytes(b, than.whole, n),
                          fraction_beyond(b, than.fraction, above, strict), NULL));
    if (above)
        expr_add(all, expr_of(b, EXPR_CAT, digits(b, '1', '9'), any_digits(b, (int)n, NO_MAX),
                              any_fraction(b), NULL));
    if (!above && n > 1)
        expr_add(all, expr_of(b, EXPR_CAT, digits(b, '1', '9'), any_digits(b, 0, (int)n - 2),
                              any_fraction(b), NULL));
    if (!above && n > 1)
        expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, "0"), any_fraction(b), NULL));
    return all;
}

static struct expr *any_magnitude(struct builder *b, bool is_whole) {
    return pattern_own(b, is_whole ? "0|[1-9][0-9]*" : "(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?");
}

static struct expr *signed_magnitude(struct builder *b) {
    return pattern_own(b, "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?");
}

/* The numbers that are at least, or at most, a bound. */
static struct expr *side(struct builder *b, const struct json *bound, bool at_least, bool strict,
                         bool is_whole) {
    struct expr *all = expr_new(b, EXPR_ALT);
    const char *far_sign = at_least ? "" : "-"; /* sign of the unbounded side */
    const char *near_sign = at_least ? "-" : "";
    double m = at_least ? json_number(bound) : -json_number(bound);
    if (m > 0 || (m == 0 && strict)) {
        struct expr *far = beyond(b, bound, true, strict, is_whole);
        return expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, far_sign), far, NULL));
    }
    expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, far_sign), any_magnitude(b, is_whole), NULL));
    struct expr *near = beyond(b, bound, false, strict, is_whole);
    return expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, near_sign), near, NULL));
}

/* ---- multiples ------------------------------------------------------------------------------ */

/* Adds the multiples of a number to an EXPR_AND. */
static void add_multiple(struct schema_reader *r, const struct json *multiple, struct expr *all) {
    struct decimal d = decimal_of(json_number(multiple));
    size_t scale = strlen(d.fraction);
    double divisor = strtod(d.whole, NULL);
    for (size_t i = 0; i < scale; i++) divisor = divisor * 10 + (d.fraction[i] - '0');
    if (divisor > MAX_DIVISOR || scale > MAX_SCALE) {
        schema_cannot(r, multiple,
                      "is not enforced: it may have at most %d decimals, and without its "
                      "point it may be at most %d.",
                      MAX_SCALE, MAX_DIVISOR);
        return;
    }
    struct expr *multiples = expr_new(r->b, EXPR_MULTIPLE);
    if (multiples->kind == EXPR_FAILED) return;
    multiples->divisor = (int)divisor;
    multiples->scale = (int)scale;
    expr_add(all, multiples);
}

/* ---- excluded numbers ----------------------------------------------------------------------- */

/* The spellings of a number without an exponent. */
static struct expr *equal(struct builder *b, const struct json *number) {
    struct expr *all = expr_new(b, EXPR_AND);
    expr_add(all, side(b, number, true, false, false));
    return expr_add(all, side(b, number, false, false, false));
}

/* The spellings of integers without an exponent. */
static struct expr *integral(struct builder *b) {
    return pattern_own(b, "-?(?:0|[1-9][0-9]*)(?:\\.0+)?");
}

static void exclude(struct builder *b, struct expr *all, struct expr *number) {
    expr_add(all, expr_of(b, EXPR_NOT, number, NULL));
}

/* Adds the complement of numbers that must not match to an EXPR_AND. */
static void add_excluded(struct schema_reader *r, const struct conj *conj, struct expr *all) {
    struct builder *b = r->b;
    conj_each_value(one, conj, NOT_CONST) {
        if (json_is(one, JSON_NUMBER)) exclude(b, all, equal(b, one));
    }
    conj_each_value(list, conj, NOT_ENUM) {
        json_each(value, list) {
            if (!builder_works(b, 100)) return;
            if (json_is(value, JSON_NUMBER)) exclude(b, all, equal(b, value));
        }
    }
    conj_each_value(divisor, conj, NOT_MULTIPLE) {
        struct expr *multiples = expr_of(b, EXPR_AND, signed_magnitude(b), NULL);
        add_multiple(r, divisor, multiples);
        exclude(b, all, multiples);
    }
}

/* ---- the whole number ----------------------------------------------------------------------- */

/* A bound of at least this magnitude is ignored: generators write the range of a double. */
#define NO_BOUND 1.7e308

/* Adds the bounds of two keywords, the second of which is strict, to an EXPR_AND. In draft 4 the
 * second one is true or false, and says whether the first one is strict. */
static void add_bounds(struct schema_reader *r, const struct conj *conj, struct expr *all,
                       const char *keyword, const char *strict_keyword, bool is_whole) {
    const bool at_least = strcmp(keyword, "minimum") == 0;
    conj_each(schema, conj) {
        const struct json *bounds[2] = {schema_value(schema, keyword),
                                        schema_value(schema, strict_keyword)};
        for (int i = 0; i < 2; i++) {
            double far = at_least ? -json_number(bounds[i]) : json_number(bounds[i]);
            if (!json_is(bounds[i], JSON_NUMBER) || far >= NO_BOUND) continue;
            bool is_strict = i == 1 || json_true(bounds[1]);
            expr_add(all, -far >= NO_BOUND ? expr_new(r->b, EXPR_ALT)
                                           : side(r->b, bounds[i], at_least, is_strict, is_whole));
        }
    }
}

static struct expr *bounded_number(struct schema_reader *r, const struct conj *conj,
                                   unsigned types) {
    struct builder *b = r->b;
    bool is_integer = !(types & TYPE_FRACTION);
    struct expr *all = expr_new(b, EXPR_AND);
    if (all->kind == EXPR_FAILED) return all;
    add_bounds(r, conj, all, "minimum", "exclusiveMinimum", is_integer);
    add_bounds(r, conj, all, "maximum", "exclusiveMaximum", is_integer);
    conj_each_value(multiple, conj, "multipleOf") add_multiple(r, multiple, all);
    add_excluded(r, conj, all);
    if (!(types & TYPE_INTEGER)) exclude(b, all, integral(b));
    if (b->status != STATUS_OK) return &b->spare;
    if (!all->child) return json_call(b, is_integer ? JSON_RULE_INTEGER : JSON_RULE_NUMBER);
    struct expr *form = expr_of(b, EXPR_CAT, expr_repeat(b, expr_text(b, "-"), 0, 1), NULL);
    expr_add(form, any_magnitude(b, is_integer));
    return expr_add(all, form);
}

/* ---- equal bounds share a rule -------------------------------------------------------------- */

static const char *const keywords[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
                                       "multipleOf"};
enum { N_BOUNDS = sizeof keywords / sizeof *keywords };

/* Writes the keywords of a conjunction on numbers; equal texts mean equal numbers. */
static void write_bounds(const struct conj *conj, bool is_integer, struct buf *out) {
    buf_puts(out, is_integer ? "i" : "n");
    conj_each(schema, conj) {
        buf_puts(out, ";");
        for (int i = 0; i < N_BOUNDS; i++) {
            const struct json *value = schema_value(schema, keywords[i]);
            buf_puts(out, ",");
            if (json_is(value, JSON_BOOL)) buf_puts(out, json_true(value) ? "true" : "false");
            if (!json_is(value, JSON_NUMBER)) continue;
            if (json_is_integer(value))
                buf_printf(out, "%lld", (long long)json_integer(value));
            else
                buf_printf(out, "%.17g", json_number(value));
        }
    }
}

static bool has_bounds(const struct conj *conj) {
    for (int i = 0; i < N_BOUNDS; i++) {
        conj_each_value(value, conj, keywords[i]) return true;
    }
    return false;
}

/* Returns the known number of these bounds, or a new one without a rule. NULL: the builder
 * failed. */
static struct bounded_number *find_number(struct schema_reader *r, const struct buf *bounds) {
    uint64_t hash = name_hash(bounds->data, bounds->length);
    struct bounded_number **bucket = &r->numbers.buckets[(hash ^ hash >> 32) % 256];
    for (struct bounded_number *n = *bucket; n && builder_works(r->b, 1); n = n->next) {
        if (strcmp(n->bounds, bounds->data) == 0) return n;
    }
    struct bounded_number *number = builder_alloc(r->b, sizeof *number);
    char *copy = builder_alloc(r->b, bounds->length + 1);
    if (!number || !copy) return NULL;
    memcpy(copy, bounds->data, bounds->length + 1);
    *number = (struct bounded_number){.bounds = copy, .rule = -1, .next = *bucket};
    return *bucket = number;
}

/* Does the conjunction exclude numbers? */
static bool has_exceptions(const struct conj *conj, unsigned types) {
    static const char *const exceptions[] = {NOT_CONST, NOT_ENUM, NOT_MULTIPLE};
    for (int i = 0; i < 3; i++) {
        conj_each_value(value, conj, exceptions[i]) return true;
    }
    return !(types & TYPE_INTEGER);
}

struct expr *schema_number(struct schema_reader *r, const struct conj *conj, unsigned types) {
    struct builder *b = r->b;
    struct buf bounds = {0};
    if (!has_bounds(conj) || has_exceptions(conj, types)) return bounded_number(r, conj, types);
    write_bounds(conj, !(types & TYPE_FRACTION), &bounds);
    struct bounded_number *number = find_number(r, &bounds);
    buf_free(&bounds);
    if (!number || b->status != STATUS_OK) return &b->spare;
    if (number->rule < 0) {
        number->rule = rule_new(b, NULL);
        rule_define(b, number->rule, bounded_number(r, conj, types));
    }
    return expr_call(b, number->rule);
}
