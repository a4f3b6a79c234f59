/* Arithmetic, repetition, concatenation and slices with Python's rules. Integers have 64 bits; a
 * larger result is an error. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/text/template/parser.h"

_Noreturn static void fail_operands(struct render *r, int op, struct value a, struct value b) {
    if (a.kind == VALUE_UNDEFINED) value_undefined_fail(r, a);
    if (b.kind == VALUE_UNDEFINED) value_undefined_fail(r, b);
    const char single[2] = {(char)op, 0};
    const char *name = op == TEMPLATE_POW ? "**" : op == TEMPLATE_FLOORDIV ? "//" : single;
    render_fail(r, "'%s' is not defined for '%s' and '%s'", name, value_type(a), value_type(b));
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Returns the quotient rounded down, and its remainder. */
static int64_t floor_div(int64_t a, int64_t b, int64_t *rest) {
    assert(b != 0 && b != -1);
    int64_t quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        quotient--;
        *rest += b;
    }
    assert(*rest == 0 || (*rest < 0) == (b < 0));
    return quotient;
}

static int64_t integer_power(struct render *r, int64_t base, int64_t exponent) {
    int64_t power = 1;
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) && __builtin_mul_overflow(power, base, &power)) {
            render_fail(r, "an integer is too large");
        }
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) {
            render_fail(r, "an integer is too large");
        }
    }
    return power;
}

static struct value integers(struct render *r, int op, int64_t a, int64_t b) {
    int64_t result = 0, rest = 0;
    bool overflow = false;
    if (b == 0 && (op == '/' || op == '%' || op == TEMPLATE_FLOORDIV)) {
        render_fail(r, "division by zero");
    }
    if (op == '/') return VALUE_OF_FLOAT((double)a / (double)b);
    if (op == TEMPLATE_POW) {
        if (b >= 0) return VALUE_OF_INT(integer_power(r, a, b));
        if (a == 0) render_fail(r, "zero cannot be raised to a negative power");
        return VALUE_OF_FLOAT(pow((double)a, (double)b));
    }
    if (op == '+') overflow = __builtin_add_overflow(a, b, &result);
    if (op == '-') overflow = __builtin_sub_overflow(a, b, &result);
    if (op == '*') overflow = __builtin_mul_overflow(a, b, &result);
    if (op == '%' && b != -1) floor_div(a, b, &result);
    if (op == TEMPLATE_FLOORDIV) {
        overflow = b == -1 && a == INT64_MIN;
        if (!overflow) result = b == -1 ? -a : floor_div(a, b, &rest);
    }
    if (overflow) render_fail(r, "an integer is too large");
    return VALUE_OF_INT(result);
}

static double floor_mod(double a, double b) {
    double rest = fmod(a, b);
    if (rest != 0) return (rest < 0) != (b < 0) ? rest + b : rest;
    return copysign(0, b);
}

/* Python's a // b: computed from the remainder, so that the two are consistent. */
static double floor_quotient(double a, double b) {
    double quotient = (a - floor_mod(a, b)) / b;
    if (quotient == 0) return copysign(0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static struct value reals(struct render *r, int op, double a, double b) {
    double power;
    if (b == 0 && (op == '/' || op == '%' || op == TEMPLATE_FLOORDIV)) {
        render_fail(r, "division by zero");
    }
    switch (op) {
    case '+':
        return VALUE_OF_FLOAT(a + b);
    case '-':
        return VALUE_OF_FLOAT(a - b);
    case '*':
        return VALUE_OF_FLOAT(a * b);
    case '/':
        return VALUE_OF_FLOAT(a / b);
    case '%':
        return VALUE_OF_FLOAT(floor_mod(a, b));
    case TEMPLATE_FLOORDIV:
        return VALUE_OF_FLOAT(floor_quotient(a, b));
    default:
        assert(op == TEMPLATE_POW);
        if (a == 0 && b < 0) render_fail(r, "zero cannot be raised to a negative power");
        power = pow(a, b);
        if (isfinite(a) && isfinite(b) && isinf(power)) render_fail(r, "a float is too large");
        if (isnan(power) && !isnan(a) && !isnan(b)) {
            render_fail(r, "complex numbers are not supported");
        }
        return VALUE_OF_FLOAT(power);
    }
}

/* ---- strings and lists ---------------------------------------------------------------------- */

static bool is_sequence(struct value value) {
    return value.kind == VALUE_STRING ||
           (value.kind == VALUE_LIST && value.list->flavour <= LIST_TUPLE);
}

static struct value repeat(struct render *r, struct value value, int64_t times) {
    if (value.kind == VALUE_STRING) {
        struct template_builder *b = builder_new(r);
        for (int64_t i = 0; i < times && value.string->length; i++) {
            render_charge(r, 1);
            builder_add_string(r, b, value.string);
        }
        return builder_value(r, b);
    }
    struct template_list *list = list_open(r, value.list->flavour);
    for (int64_t i = 0; i < times && value.list->n; i++) {
        for (size_t j = 0; j < value.list->n; j++) list_push(r, list, value.list->items[j]);
    }
    return VALUE_OF_LIST(list);
}

/* Is a + b defined, as two lists or two tuples? */
static bool can_concat(struct value a, struct value b) {
    if (!is_sequence(a) || !is_sequence(b) || a.kind != VALUE_LIST || b.kind != VALUE_LIST) {
        return false;
    }
    return (a.list->flavour == LIST_PLAIN) == (b.list->flavour == LIST_PLAIN);
}

struct value value_binary(struct render *r, int op, struct value a, struct value b) {
    if (value_is_integral(a) && value_is_integral(b)) {
        return integers(r, op, value_integer(a), value_integer(b));
    }
    if (value_is_number(a) && value_is_number(b)) return reals(r, op, value_real(a), value_real(b));
    if (op == '+' && value_is_safe(a) != value_is_safe(b) && a.kind == b.kind) {
        if (!value_is_safe(a)) a = string_escape(r, a.string);
        if (!value_is_safe(b)) b = string_escape(r, b.string);
    }
    if (op == '+' && value_is_safe(a) && value_is_safe(b))
        return value_safe(string_append(r, a.string, b.string));
    if (op == '+' && a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        return string_append(r, a.string, b.string);
    }
    if (op == '+' && can_concat(a, b)) return VALUE_OF_LIST(list_concat(r, a.list, b.list));
    if (op == '*' && is_sequence(a) && value_is_integral(b)) return repeat(r, a, value_integer(b));
    if (op == '*' && is_sequence(b) && value_is_integral(a)) return repeat(r, b, value_integer(a));
    if (op == '%' && a.kind == VALUE_STRING) return string_percent(r, a.string, b);
    fail_operands(r, op, a, b);
}

/* ---- slices --------------------------------------------------------------------------------- */

struct slice_bounds {
    int64_t start, step, n; /* first index, step to the next, number of items */
};

/* Returns a bound of a slice, clamped to low..high; negative bounds count from the end. */
static int64_t bound(struct render *r, struct value value, int64_t otherwise, int64_t length,
                     int64_t low, int64_t high) {
    if (value.kind == VALUE_NONE) return otherwise;
    int64_t at = value_need_int(r, value, "a slice's bound");
    if (at < 0) at += length;
    return at < low ? low : at > high ? high : at;
}

static struct slice_bounds slice_of(struct render *r, int64_t length, struct value start,
                                    struct value stop, struct value step) {
    struct slice_bounds slice = {.step = 1};
    if (step.kind != VALUE_NONE) slice.step = value_need_int(r, step, "a slice's step");
    if (slice.step == 0) render_fail(r, "a slice's step must not be zero");
    bool forward = slice.step > 0;
    int64_t low = forward ? 0 : -1, high = forward ? length : length - 1;
    slice.start = bound(r, start, forward ? low : high, length, low, high);
    int64_t end = bound(r, stop, forward ? high : low, length, low, high);
    int64_t span = forward ? end - slice.start : slice.start - end;
    uint64_t stride = forward ? (uint64_t)slice.step : -(uint64_t)slice.step;
    if (span > 0) slice.n = (int64_t)(((uint64_t)span - 1) / stride + 1);
    assert(slice.n <= length);
    return slice;
}

static struct value slice_string(struct render *r, const struct string *text,
                                 struct slice_bounds slice) {
    if (slice.n == 0) return string_of(r, "");
    size_t at = string_offset(text, 0, (size_t)slice.start);
    if (slice.step == 1) {
        return string_part(r, text, at, string_offset(text, at, (size_t)slice.n) - at);
    }
    const struct template_list *list = value_iterate(r, VALUE_OF_STRING(text));
    struct template_builder *b = builder_new(r);
    for (int64_t i = 0, from = slice.start; i < slice.n; i++) {
        assert(from >= 0 && from < (int64_t)list->n);
        builder_add_string(r, b, list->items[from].string);
        if (i + 1 < slice.n) from += slice.step;
    }
    return builder_value(r, b);
}

static struct value slice_list(struct render *r, const struct template_list *list,
                               struct slice_bounds slice) {
    struct template_list *part = list_new(r, slice.step == 1 ? 0 : (size_t)slice.n, list->flavour);
    if (slice.step == 1 && slice.n) {
        part->items = list->items + slice.start;
        part->n = (size_t)slice.n;
    }
    for (int64_t i = 0, from = slice.start; i < slice.n && slice.step != 1; i++) {
        assert(from >= 0 && from < (int64_t)list->n);
        part->items[i] = list->items[from];
        if (i + 1 < slice.n) from += slice.step;
    }
    if (list->flavour == LIST_RANGE) {
        int64_t stride = slice.n > 1 ? slice.step : 1; /* limited by the list's length */
        part->start = list->start + slice.start * list->step;
        part->step = list->step * stride;
        part->stop = part->start + slice.n * part->step;
    }
    return VALUE_OF_LIST(part);
}

struct value value_slice(struct render *r, struct value object, struct value start,
                         struct value stop, struct value step) {
    if (object.kind == VALUE_UNDEFINED) value_undefined_fail(r, object);
    if (object.kind == VALUE_STRING) {
        int64_t length = (int64_t)string_points(r, object.string);
        render_charge(r, object.string->length / 8);
        struct value part = slice_string(r, object.string, slice_of(r, length, start, stop, step));
        return value_is_safe(object) ? value_safe(part) : part;
    }
    if (object.kind == VALUE_LIST && object.list->flavour <= LIST_RANGE) {
        return slice_list(r, object.list, slice_of(r, (int64_t)object.list->n, start, stop, step));
    }
    return (struct value){.kind = VALUE_UNDEFINED, .holder = object.kind, .string = NULL};
}
