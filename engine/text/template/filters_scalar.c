/* Filters whose results are strings or numbers. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/template/template.h"

/* ---- strings -------------------------------------------------------------------------------- */

BUILTIN(filter_string, VALUE_OF_STRING(value_string(r, self)))
BUILTIN(filter_upper, string_map(r, value_string(r, self), point_upper))
BUILTIN(filter_lower, string_map(r, value_string(r, self), point_lower))

static int32_t point_capitalized(int32_t point, int32_t previous) {
    return previous == -1 ? utf8proc_totitle(point) : utf8proc_tolower(point);
}

BUILTIN(filter_capitalize, string_map(r, value_string(r, self), point_capitalized))

/* In jinja2's title, a word begins after white space, a hyphen or an opening bracket. */
static int32_t point_titled(int32_t point, int32_t previous) {
    bool begins = previous == -1 || point_is_space(previous) ||
                  (previous > 0 && previous < 0x80 && strchr("-({[<", previous));
    return begins ? utf8proc_toupper(point) : utf8proc_tolower(point);
}

BUILTIN(filter_title, string_map(r, value_string(r, self), point_titled))

static struct value filter_trim(struct render *r, struct value self, const struct args *args) {
    struct value set = arg_or(args, 0, VALUE_OF_NONE);
    const struct string *chars =
        set.kind == VALUE_NONE ? NULL
                               : value_need_string(r, set, "the characters that trim removes");
    return string_strip(r, value_string(r, self), chars, true, true);
}

static struct value filter_replace(struct render *r, struct value self, const struct args *args) {
    struct value text = VALUE_OF_STRING(value_string(r, self)), bound[3];
    bound[0] = VALUE_OF_STRING(value_string(r, args->position[0]));
    bound[1] = VALUE_OF_STRING(value_string(r, args->position[1]));
    bound[2] = arg_or(args, 2, VALUE_OF_NONE);
    if (bound[2].kind == VALUE_NONE) bound[2] = VALUE_OF_INT(-1);
    const struct args full = {.position = bound, .n_positions = 3};
    return builtin_run(r, builtin_method(text, "replace", 7), text, &full);
}

struct value string_escape(struct render *r, const struct string *text) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct template_builder *b = builder_new(r);
    render_charge(r, text->length / 2);
    for (size_t at = 0; at < text->length; at++) {
        const char *known = text->data[at] ? strchr(from, text->data[at]) : NULL;
        if (known) {
            const char *entity = to[known - from];
            builder_add(r, b, entity, strlen(entity), string_is_user(text, at));
        } else {
            builder_add_part(r, b, text, at, 1);
        }
    }
    return value_safe(builder_value(r, b));
}

BUILTIN(filter_safe, value_safe(VALUE_OF_STRING(value_string(r, self))))
BUILTIN(filter_escape, value_is_safe(self) ? self : string_escape(r, value_string(r, self)))

/* s|indent(width, first, blank): indents every line; the first and empty lines only if
 * requested. */
static struct value filter_indent(struct render *r, struct value self, const struct args *args) {
    struct value width = arg_or(args, 0, VALUE_OF_INT(4));
    bool first = value_truth(arg_or(args, 1, VALUE_OF_BOOL(false)));
    bool blank = value_truth(arg_or(args, 2, VALUE_OF_BOOL(false)));
    const struct string *space = width.kind == VALUE_STRING ? width.string : NULL;
    if (!space) space = value_binary(r, '*', string_of(r, " "), width).string;
    struct value text = VALUE_OF_STRING(value_need_string(r, self, "what is indented"));
    struct value whole = string_append(r, text.string, string_of(r, "\n").string);
    struct args none = {.position = (struct value[]){VALUE_NOTHING}, .n_positions = 0};
    struct value lines = builtin_run(r, builtin_method(whole, "splitlines", 10), whole, &none);
    struct template_builder *b = builder_new(r);
    for (size_t i = 0; i < lines.list->n; i++) {
        const struct string *line = lines.list->items[i].string;
        if (i) builder_puts(r, b, "\n");
        if (i ? blank || line->length : first) builder_add_string(r, b, space);
        builder_add_string(r, b, line);
    }
    return builder_value(r, b);
}

static struct value filter_format(struct render *r, struct value self, const struct args *args) {
    const struct string *format = value_string(r, self);
    if (args->n_keywords && args->n_positions) {
        render_fail(r, "format takes values by position or by name, not both");
    }
    if (args->n_keywords) {
        struct dict *dict = dict_new(r);
        for (size_t i = 0; i < args->n_keywords; i++) {
            dict_set(r, dict, VALUE_OF_STRING(args->keyword[i].name), args->keyword[i].value);
        }
        return string_percent(r, format, VALUE_OF_DICT(dict));
    }
    struct template_list *values = list_new(r, args->n_positions, LIST_TUPLE);
    for (size_t i = 0; i < values->n; i++) values->items[i] = args->position[i];
    return string_percent(r, format, VALUE_OF_LIST(values));
}

/* ---- numbers -------------------------------------------------------------------------------- */

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

/* ---- all ------------------------------------------------------------------------------------ */

const struct builtin template_filters_scalar[] = {
    {"tojson", filter_tojson, "ensure_ascii,indent,separators,sort_keys", 0},
    {"string", filter_string, "", 0},
    {"safe", filter_safe, "", 0},
    {"upper", filter_upper, "", 0},
    {"lower", filter_lower, "", 0},
    {"capitalize", filter_capitalize, "", 0},
    {"title", filter_title, "", 0},
    {"trim", filter_trim, "chars", 0},
    {"replace", filter_replace, "old,new,count", 2},
    {"escape", filter_escape, "", 0},
    {"e", filter_escape, "", 0},
    {"indent", filter_indent, "width,first,blank", 0},
    {"format", filter_format, NULL, 0},
    {"int", filter_int, "default,base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision,method", 0},
    {"sum", filter_sum, "attribute,start", 0},
    {NULL, NULL, NULL, 0},
};
