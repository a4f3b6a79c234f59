/* Filters whose results are numbers. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template/template.h"

#define DIGITS_MAX 400 /* characters of a string that is read as a number */

/* Copies a string without surrounding white space and without underscores between digits. Returns
 * false if it cannot be a number. */
static bool number_chars(struct render *r, const struct string *text, char out[DIGITS_MAX]) {
    const struct string *trimmed = string_strip(r, text, NULL, true, true).string;
    size_t n = 0;
    render_charge(r, NUMBER_STEPS);
    if (trimmed->length == 0 || trimmed->length >= DIGITS_MAX) return false;
    for (size_t i = 0; i < trimmed->length; i++) {
        char c = trimmed->data[i];
        bool between = i > 0 && i + 1 < trimmed->length && trimmed->data[i - 1] != '_' &&
                       strchr("+-", trimmed->data[i - 1]) == NULL;
        if (c == 0 || (c == '_' && !between)) return false;
        if (c != '_') out[n++] = c;
    }
    assert(n < DIGITS_MAX);
    out[n] = 0;
    return true;
}

static bool read_real(struct render *r, const struct string *text, double *real) {
    char chars[DIGITS_MAX], *end;
    if (!number_chars(r, text, chars) || strpbrk(chars, "xXpP(")) return false;
    *real = strtod(chars, &end);
    return *end == 0;
}

/* Python's int(text, base); base 0 derives the base from the prefix. */
static bool read_integer(struct render *r, const struct string *text, int64_t base,
                         int64_t *integer) {
    char chars[DIGITS_MAX], *end;
    if (!number_chars(r, text, chars)) return false;
    assert(base == 0 || (base >= 2 && base <= 36));
    const char *digits = chars + (*chars == '-' || *chars == '+');
    int64_t named = 0;
    if (*digits == '0' && digits[1]) {
        char letter = (char)(digits[1] | 32);
        named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    }
    bool has_prefix = named && (base == 0 || base == named);
    if (base == 0) base = named ? named : 10;
    digits += has_prefix ? 2 : 0;
    if (!*digits || *digits == '-' || *digits == '+' || *digits == ' ') return false;
    errno = 0;
    uint64_t size = strtoull(digits, &end, (int)base);
    if (*end) return false;
    if (errno == ERANGE || size > INT64_MAX) render_fail(r, "an integer is too large");
    *integer = *chars == '-' ? -(int64_t)size : (int64_t)size;
    return true;
}

static struct value whole(struct render *r, double real) {
    if (!(fabs(real) < 9.2e18)) render_fail(r, "a number is too large for an integer");
    return VALUE_OF_INT((int64_t)real);
}

static struct value filter_int(struct render *r, struct value self, const struct args *args) {
    struct value otherwise = arg_or(args, 0, VALUE_OF_INT(0));
    int64_t base = value_need_int(r, arg_or(args, 1, VALUE_OF_INT(10)), "int's base"), integer;
    double real;
    if (base != 0 && (base < 2 || base > 36)) base = 10;
    if (self.kind == VALUE_UNDEFINED) value_undefined_fail(r, self);
    if (value_is_integral(self)) return VALUE_OF_INT(value_integer(self));
    if (self.kind == VALUE_FLOAT) return isnan(self.real) ? otherwise : whole(r, self.real);
    if (self.kind != VALUE_STRING) return otherwise;
    if (read_integer(r, self.string, base, &integer)) return VALUE_OF_INT(integer);
    if (read_real(r, self.string, &real) && isfinite(real)) return whole(r, real);
    return otherwise;
}

static struct value filter_float(struct render *r, struct value self, const struct args *args) {
    double real;
    if (self.kind == VALUE_UNDEFINED) value_undefined_fail(r, self);
    if (value_is_number(self)) return VALUE_OF_FLOAT(value_real(self));
    if (self.kind == VALUE_STRING && read_real(r, self.string, &real)) return VALUE_OF_FLOAT(real);
    return arg_or(args, 0, VALUE_OF_FLOAT(0));
}

static struct value filter_abs(struct render *r, struct value self, const struct args *args) {
    (void)args;
    if (self.kind == VALUE_UNDEFINED) value_undefined_fail(r, self);
    if (!value_is_number(self)) render_fail(r, "abs needs a number, not '%s'", value_type(self));
    if (self.kind == VALUE_FLOAT) return VALUE_OF_FLOAT(fabs(self.real));
    int64_t integer = value_integer(self);
    if (integer == INT64_MIN) render_fail(r, "an integer is too large");
    return VALUE_OF_INT(integer < 0 ? -integer : integer);
}

/* Rounds half to even, based on the number's exact decimal value, like Python. */
static double rounded(double real, int64_t precision) {
    char text[400];
    if (precision < 0) {
        double unit = pow(10, (double)-precision);
        return nearbyint(real / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", (int)(precision > 40 ? 40 : precision), real);
    return strtod(text, NULL);
}

static struct value filter_round(struct render *r, struct value self, const struct args *args) {
    int64_t precision = value_need_int(r, arg_or(args, 0, VALUE_OF_INT(0)), "round's precision");
    const struct string *method =
        value_need_string(r, arg_or(args, 1, string_of(r, "common")), "round's method");
    bool up = string_is(method, "ceil"), down = string_is(method, "floor");
    if (!up && !down && !string_is(method, "common")) {
        render_fail(r, "round's method is 'common', 'ceil' or 'floor'");
    }
    if (self.kind == VALUE_UNDEFINED) value_undefined_fail(r, self);
    if (!value_is_number(self)) render_fail(r, "round needs a number, not '%s'", value_type(self));
    render_charge(r, NUMBER_STEPS);
    if (precision > 300 || precision < -300) render_fail(r, "round's precision is too large");
    double real = value_real(self);
    if (!up && !down) {
        if (self.kind == VALUE_FLOAT) return VALUE_OF_FLOAT(rounded(real, precision));
        if (precision >= 0) return VALUE_OF_INT(value_integer(self));
        return whole(r, rounded(real, precision));
    }
    double unit = pow(10, (double)precision);
    return VALUE_OF_FLOAT((up ? ceil(real * unit) : floor(real * unit)) / unit);
}

static struct value filter_sum(struct render *r, struct value self, const struct args *args) {
    struct value sum = arg_or(args, 1, VALUE_OF_INT(0)), path = args->position[0];
    struct template_list *list = value_iterate(r, self);
    if (sum.kind == VALUE_STRING) render_fail(r, "sum cannot add strings");
    if (path.kind != VALUE_MISSING && path.kind != VALUE_NONE) {
        struct keyword attribute = {string_of(r, "attribute").string, path};
        const struct args by = {.keyword = &attribute, .n_keywords = 1};
        struct value mapped = builtin_run(r, builtin_filter("map", 3), VALUE_OF_LIST(list), &by);
        list = mapped.list;
    }
    for (size_t i = 0; i < list->n; i++) {
        render_charge(r, 1);
        sum = value_binary(r, '+', sum, list->items[i]);
    }
    return sum;
}

const struct builtin template_filters_number[] = {
    {"int", filter_int, "default,base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision,method", 0},
    {"sum", filter_sum, "attribute,start", 0},
    {NULL, NULL, NULL, 0},
};
