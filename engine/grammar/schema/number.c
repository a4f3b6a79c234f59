/* Numbers of JSON Schema. Without bounds every number of JSON's is taken. With bounds numbers are
 * written without an exponent, and the bounds become comparisons of digits from the left. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/schema.h"

#define MAX_DIVISOR 2000 /* a state each */

/* A magnitude as digits: "12", "5" for 12.5; the fraction has no zeros at its end. */
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

/* Digits that differ from n given ones first at some place, where they are above (or below), of the
 * same count; from 1 on at the first place of a number of several digits. */
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

/* A fraction with its point: above or below `than`, or equal to it unless that is excluded. */
static struct expr *fraction_beyond(struct builder *b, const char *than, bool above, bool strict) {
    size_t n = strlen(than);
    struct expr *all = expr_new(b, EXPR_ALT);
    struct expr *other = differing(b, than, n, above, false, NULL);
    expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, "."), other, NULL));
    struct expr *equal = expr_of(b, EXPR_CAT, expr_text(b, "."), expr_bytes(b, than, n), NULL);
    struct expr *zeros = expr_repeat(b, expr_text(b, "0"), n == 0, NO_MAX);
    if (!strict) expr_add(all, expr_add(equal, zeros));
    if (!strict && n == 0) expr_add(all, expr_new(b, EXPR_CAT));
    if (above) /* longer, with a digit above 0 */
        expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, "."), expr_bytes(b, than, n),
                              expr_repeat(b, expr_text(b, "0"), 0, NO_MAX), digits(b, '1', '9'),
                              any_digits(b, 0, NO_MAX), NULL));
    for (size_t i = 1; i < n && !above; i++) { /* shorter */
        expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, "."), expr_bytes(b, than, i), NULL));
    }
    if (n > 0 && !above) expr_add(all, expr_new(b, EXPR_CAT)); /* no fraction at all */
    return all;
}

/* Magnitudes above or below `than`, or equal to it unless that is excluded. */
static struct expr *beyond(struct builder *b, double magnitude, bool above, bool strict) {
    struct decimal than = decimal_of(magnitude);
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

static struct expr *any_magnitude(struct builder *b) {
    return pattern_own(b, "(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?");
}

/* Numbers on one side of a bound: at least it, or at most it. */
static struct expr *side(struct builder *b, double bound, bool at_least, bool strict) {
    struct expr *all = expr_new(b, EXPR_ALT);
    const char *far_sign = at_least ? "" : "-"; /* of the numbers that go on for ever */
    const char *near_sign = at_least ? "-" : "";
    double m = at_least ? bound : -bound;
    if (m > 0 || (m == 0 && strict)) {
        struct expr *far = beyond(b, fabs(m), true, strict);
        return expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, far_sign), far, NULL));
    }
    expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, far_sign), any_magnitude(b), NULL));
    struct expr *near = beyond(b, fabs(m), false, strict);
    return expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, near_sign), near, NULL));
}

/* ---- multiples ------------------------------------------------------------------------------ */

/* Integers whose remainder by `divisor` is 0: a rule for each remainder of the digits so far, which
 * ends in a call of the next one. As it calls, it cannot be a part of an EXPR_AND. */
static struct expr *multiples(struct builder *b, int divisor) {
    int first = b->n_rules;
    for (int i = 0; i < divisor; i++) rule_new(b, NULL);
    struct expr *start = expr_new(b, EXPR_ALT);
    expr_add(start, expr_text(b, "0"));
    for (int i = 0; i < divisor && builder_in_time(b); i++) {
        struct expr *body = expr_new(b, EXPR_ALT);
        if (i == 0) expr_add(body, expr_new(b, EXPR_CAT));
        for (int digit = 0; digit < 10; digit++) {
            struct expr *next = expr_call(b, first + (i * 10 + digit) % divisor);
            char c = (char)('0' + digit);
            expr_add(body, expr_of(b, EXPR_CAT, expr_bytes(b, &c, 1), next, NULL));
        }
        rule_define(b, first + i, body);
    }
    for (int digit = 1; digit < 10; digit++) {
        char c = (char)('0' + digit);
        expr_add(start, expr_of(b, EXPR_CAT, expr_bytes(b, &c, 1),
                                expr_call(b, first + digit % divisor), NULL));
    }
    return expr_of(b, EXPR_CAT, expr_repeat(b, expr_text(b, "-"), 0, 1), start, NULL);
}

static long greatest_divisor(long x, long y) {
    return y ? greatest_divisor(y, x % y) : x;
}

/* The number that all multipleOf divide, 1 without any, 0 after a failure. */
static int divisor_of(struct schema_reader *r, const struct conj *conj) {
    long all = 1;
    conj_each_value(multiple, conj, "multipleOf") {
        long n = multiple->is_integer && multiple->integer <= MAX_DIVISOR ? multiple->integer : 0;
        all = n ? all / greatest_divisor(all, n) * n : 0;
        if (all > 0 && all <= MAX_DIVISOR) continue;
        schema_fail(r, multiple, "is not enforced: whole numbers up to %d are.", MAX_DIVISOR);
        return 0;
    }
    return (int)all;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Adds what the keyword's values ask for to an EXPR_AND. */
static void add_bounds(struct schema_reader *r, const struct conj *conj, struct expr *all,
                       const char *keyword, bool at_least, bool strict) {
    conj_each_value(bound, conj, keyword) {
        expr_add(all, side(r->b, bound->number, at_least, strict));
    }
}

struct expr *schema_number(struct schema_reader *r, const struct conj *conj, bool is_integer) {
    struct builder *b = r->b;
    struct expr *all = expr_new(b, EXPR_AND);
    if (all->kind == EXPR_FAILED) return all;
    add_bounds(r, conj, all, "minimum", true, false);
    add_bounds(r, conj, all, "maximum", false, false);
    add_bounds(r, conj, all, "exclusiveMinimum", true, true);
    add_bounds(r, conj, all, "exclusiveMaximum", false, true);
    int divisor = divisor_of(r, conj);
    if (divisor != 1) {
        const struct json *at = conj->schemas.list[0];
        if (all->child) schema_fail(r, at, "has multipleOf beside bounds, which is not enforced.");
        return divisor ? multiples(b, divisor) : &b->spare;
    }
    if (!all->child) return json_call(b, is_integer ? JSON_RULE_INTEGER : JSON_RULE_NUMBER);
    struct expr *form = expr_of(b, EXPR_CAT, expr_repeat(b, expr_text(b, "-"), 0, 1), NULL);
    expr_add(form, is_integer ? pattern_own(b, "0|[1-9][0-9]*") : any_magnitude(b));
    return expr_add(all, form);
}
