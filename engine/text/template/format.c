/* Formatted strings: "..." % values, and "...".format(...) with its format specifications. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/template/template.h"

#define WIDTH_MAX 10000

struct spec {
    const struct string *fill; /* one character; NULL: a space */
    char align;                /* '<', '>', '^', '=' or 0 */
    char sign;                 /* '+', ' ' or 0 */
    bool alternate, zero, comma;
    int64_t width, precision; /* -1: not given */
    char type;                /* 0: not given */
};

/* ---- numbers -------------------------------------------------------------------------------- */

/* Writes a number's digits without its sign. The default precision is six digits. */
static void number_digits(struct render *r, struct value value, const struct spec *spec,
                          char out[512]) {
    char type = spec->type;
    render_charge(r, NUMBER_STEPS);
    int precision = (int)(spec->precision < 0 ? 6 : spec->precision);
    if (precision > 100) render_fail(r, "a format's precision is too large");
    if (type && strchr("eEfFgG%", type)) {
        char form[] = {'%', '.', '*', type == '%' ? 'f' : type, 0};
        double real = value_real(value);
        snprintf(out, 512, form, precision, (real < 0 ? -real : real) * (type == '%' ? 100 : 1));
        if (type == '%') strcat(out, "%");
    } else if (value.kind == VALUE_FLOAT) {
        if (type) render_fail(r, "a float cannot use the format '%c'", type);
        double real = value.real < 0 ? -value.real : value.real;
        real_print(out, real);
        if (spec->precision >= 0) snprintf(out, 512, "%.*g", precision ? precision : 1, real);
    } else {
        int64_t integer = value_integer(value);
        uint64_t size = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;
        if (type && !strchr("bdioxXn", type))
            render_fail(r, "an integer cannot use the format '%c'", type);
        const char *prefix = !spec->alternate ? ""
                             : type == 'x'    ? "0x"
                             : type == 'X'    ? "0X"
                             : type == 'o'    ? "0o"
                             : type == 'b'    ? "0b"
                                              : "";
        size_t n = (size_t)snprintf(out, 512, "%s", prefix);
        if (type == 'b') {
            int n_digits = 1;
            while (n_digits < 64 && size >> n_digits) n_digits++;
            for (int i = n_digits - 1; i >= 0; i--) out[n++] = (char)('0' + (size >> i & 1));
            out[n] = 0;
        } else {
            const char *form = type == 'x'   ? "%llx"
                               : type == 'X' ? "%llX"
                               : type == 'o' ? "%llo"
                                             : "%llu";
            snprintf(out + n, 512 - n, form, (unsigned long long)size);
        }
    }
}

/* Inserts a comma after every three digits before the point. */
static void add_commas(char out[512]) {
    char plain[512];
    strcpy(plain, out);
    size_t n = strspn(plain, "0123456789"), at = 0;
    for (size_t i = 0; plain[i] && at < 510; i++) {
        if (i && i < n && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = plain[i];
    }
    assert(at < 512);
    out[at] = 0;
}

static void add_padding(struct render *r, struct template_builder *b, const struct spec *spec,
                        int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (spec->fill) {
            builder_add_string(r, b, spec->fill);
        } else {
            builder_puts(r, b, spec->zero ? "0" : " ");
        }
    }
}

static void add_number(struct render *r, struct template_builder *b, struct value value,
                       const struct spec *spec) {
    char digits[512];
    bool negative = value.kind == VALUE_FLOAT ? value.real < 0 : value_integer(value) < 0;
    number_digits(r, value, spec, digits);
    if (spec->comma) add_commas(digits);
    char sign[2] = {negative ? '-' : spec->sign, 0};
    int64_t missing = spec->width - (int64_t)strlen(digits) - (sign[0] != 0);
    char align = spec->align ? spec->align : spec->zero ? '=' : '>';
    int64_t left = align == '<' || align == '=' ? 0 : align == '^' ? missing / 2 : missing;
    add_padding(r, b, spec, left);
    builder_puts(r, b, sign);
    if (align == '=') add_padding(r, b, spec, missing);
    builder_puts(r, b, digits);
    if (align == '<' || align == '^') add_padding(r, b, spec, missing - left);
}

static void add_string(struct render *r, struct template_builder *b, const struct string *text,
                       const struct spec *spec) {
    if (spec->precision >= 0) {
        size_t end = string_offset(text, 0, (size_t)spec->precision);
        text = string_part(r, text, 0, end).string;
    }
    int64_t missing = spec->width - (int64_t)string_points(r, text);
    int64_t left = spec->align == '>' ? missing : spec->align == '^' ? missing / 2 : 0;
    add_padding(r, b, spec, left);
    builder_add_string(r, b, text);
    add_padding(r, b, spec, missing - left);
}

static int64_t read_number(struct render *r, const struct string *text, size_t *at) {
    int64_t n = 0;
    for (; *at < text->length && text->data[*at] >= '0' && text->data[*at] <= '9'; ++*at) {
        n = n * 10 + (text->data[*at] - '0');
        if (n > WIDTH_MAX) render_fail(r, "a format's width is too large");
    }
    return n;
}

static char look(const struct string *text, size_t at) {
    return at < text->length ? text->data[at] : 0;
}

/* ---- % -------------------------------------------------------------------------------------- */

struct percent {
    const struct string *format;
    size_t at;
    struct value values;
    size_t n_used;
};

/* Returns the value for the next conversion: the next item of a tuple; other values are used
 * once. */
static struct value percent_next(struct render *r, struct percent *p) {
    bool is_tuple = p->values.kind == VALUE_LIST && p->values.list->flavour == LIST_TUPLE;
    size_t n = is_tuple ? p->values.list->n : 1;
    if (p->n_used >= n) render_fail(r, "the format needs more values");
    return is_tuple ? p->values.list->items[p->n_used++] : (p->n_used++, p->values);
}

/* %(name)...: returns the value with that name from a dict. */
static struct value percent_named(struct render *r, struct percent *p) {
    const char *from = p->format->data + ++p->at;
    const char *close = memchr(from, ')', p->format->length - p->at);
    if (!close) render_fail(r, "a name in the format is not closed with ')'");
    struct value name = string_part(r, p->format, p->at, (size_t)(close - from));
    p->at += (size_t)(close - from) + 1;
    if (p->values.kind != VALUE_DICT) render_fail(r, "a format with names needs a dict");
    const struct value *value = dict_get(r, p->values.dict, name);
    if (!value) render_fail(r, "the format names a key that the dict lacks");
    p->n_used = 1;
    return *value;
}

static int64_t percent_size(struct render *r, struct percent *p) {
    if (look(p->format, p->at) != '*') return read_number(r, p->format, &p->at);
    p->at++;
    int64_t n = value_need_int(r, percent_next(r, p), "a format's width");
    if (n < -WIDTH_MAX || n > WIDTH_MAX) render_fail(r, "a format's width is too large");
    return n;
}

static void percent_flags(struct percent *p, struct spec *spec) {
    for (;; p->at++) {
        char c = look(p->format, p->at);
        if (c == '-') {
            spec->align = '<';
        } else if (c == '0') {
            spec->zero = true;
        } else if (c == '#') {
            spec->alternate = true;
        } else if (c == '+' || (c == ' ' && !spec->sign)) {
            spec->sign = c;
        } else if (c != ' ') {
            return;
        }
    }
}

static void percent_number(struct render *r, struct template_builder *b, struct value value,
                           struct spec *spec) {
    if (value.kind == VALUE_UNDEFINED) value_undefined_fail(r, value);
    if (!value_is_number(value)) {
        render_fail(r, "%%%c needs a number, not '%s'", spec->type, value_type(value));
    }
    bool is_integer = strchr("diuxXo", spec->type) != NULL;
    if (is_integer && value.kind == VALUE_FLOAT) {
        if (strchr("xXo", spec->type) || !(value.real > -9e18 && value.real < 9e18)) {
            render_fail(r, "%%%c needs an integer", spec->type);
        }
        value = VALUE_OF_INT((int64_t)value.real);
    }
    if (spec->align == '<') spec->zero = false;
    if (is_integer) spec->precision = -1;
    if (spec->type == 'u' || spec->type == 'i') spec->type = 'd';
    add_number(r, b, value, spec);
}

static void percent_one(struct render *r, struct template_builder *b, struct percent *p) {
    struct spec spec = {.precision = -1};
    struct value value = VALUE_NOTHING;
    if (look(p->format, p->at) == '(') value = percent_named(r, p);
    percent_flags(p, &spec);
    spec.width = percent_size(r, p);
    if (spec.width < 0) {
        spec.align = '<';
        spec.width = -spec.width;
    }
    if (look(p->format, p->at) == '.') {
        p->at++;
        spec.precision = percent_size(r, p);
        if (spec.precision < 0) spec.precision = 0;
    }
    spec.type = look(p->format, p->at++);
    if (spec.type == '%') {
        builder_puts(r, b, "%");
        return;
    }
    if (!spec.type || !strchr("sradiuxXoeEfFgGc", spec.type))
        render_fail(r, "the format is not known");
    if (value.kind == VALUE_MISSING) value = percent_next(r, p);
    if (!strchr("srac", spec.type)) {
        percent_number(r, b, value, &spec);
        return;
    }
    struct template_builder *shown = builder_new(r);
    (spec.type == 'r' || spec.type == 'a' ? value_repr : value_print)(r, shown, value);
    const struct string *text = builder_value(r, shown).string;
    if (spec.type == 'c' && (value.kind != VALUE_STRING || string_points(r, text) != 1)) {
        render_fail(r, "%%c needs one character");
    }
    if (spec.align != '<') spec.align = '>';
    spec.zero = false;
    add_string(r, b, text, &spec);
}

struct value string_percent(struct render *r, const struct string *format, struct value values) {
    struct percent p = {.format = format, .values = values};
    struct template_builder *b = builder_new(r);
    while (p.at < format->length) {
        const char *from = format->data + p.at;
        const char *mark = memchr(from, '%', format->length - p.at);
        size_t plain = mark ? (size_t)(mark - from) : format->length - p.at;
        builder_add_part(r, b, format, p.at, plain);
        p.at += plain + 1;
        render_charge(r, 1);
        if (mark) percent_one(r, b, &p);
    }
    bool is_tuple = values.kind == VALUE_LIST && values.list->flavour == LIST_TUPLE;
    bool may_stay = values.kind == VALUE_DICT || (values.kind == VALUE_LIST && !is_tuple);
    size_t n = is_tuple ? values.list->n : may_stay ? p.n_used : 1;
    if (p.n_used < n) render_fail(r, "not all values are used by the format");
    return builder_value(r, b);
}

/* ---- format --------------------------------------------------------------------------------- */

struct format_cursor {
    const struct string *text;
    const struct args *args;
    size_t next; /* the next automatic index */
    bool automatic, numbered;
};

static bool is_align(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static struct spec parse_spec(struct render *r, const struct string *text) {
    struct spec spec = {.precision = -1};
    size_t at = 0, second = text->length ? string_next(text, 0) : 0;
    if (is_align(look(text, second)) && second) {
        spec.fill = string_part(r, text, 0, second).string;
        at = second;
    }
    if (is_align(look(text, at))) spec.align = look(text, at++);
    char sign = look(text, at);
    if (sign == '+' || sign == '-' || sign == ' ') at++;
    if (sign == '+' || sign == ' ') spec.sign = sign;
    if (look(text, at) == '#') spec.alternate = ++at;
    if (look(text, at) == '0') spec.zero = ++at;
    spec.width = read_number(r, text, &at);
    if (look(text, at) == ',') spec.comma = ++at;
    if (look(text, at) == '.') {
        size_t digits = ++at;
        spec.precision = read_number(r, text, &at);
        if (at == digits) render_fail(r, "a format lacks its precision");
    }
    if (at < text->length) spec.type = text->data[at++];
    if (at < text->length) render_fail(r, "the format is not known");
    return spec;
}

static void format_value(struct render *r, struct template_builder *b, struct value value,
                         const struct string *form) {
    if (form->length == 0) {
        value_print(r, b, value);
        return;
    }
    struct spec spec = parse_spec(r, form);
    if (value_is_number(value)) {
        add_number(r, b, value, &spec);
        return;
    }
    if (value.kind != VALUE_STRING) render_fail(r, "'%s' cannot be formatted", value_type(value));
    if ((spec.type && spec.type != 's') || spec.align == '=' || spec.sign) {
        render_fail(r, "this format is not for strings");
    }
    add_string(r, b, value.string, &spec);
}

/* Returns the argument for the first part of a field: by number, by name or, if the part is empty,
 * the next one. */
static struct value format_argument(struct render *r, struct format_cursor *f, struct value name) {
    const struct string *text = name.string;
    size_t digits = 0;
    while (digits < text->length && text->data[digits] >= '0' && text->data[digits] <= '9')
        digits++;
    if (digits == text->length) {
        size_t at = 0, index = digits ? (size_t)read_number(r, text, &at) : f->next++;
        f->automatic |= digits == 0;
        f->numbered |= digits > 0;
        if (f->automatic && f->numbered)
            render_fail(r, "a format cannot mix numbered fields and fields without a number");
        if (index >= f->args->n_positions) render_fail(r, "the format needs more values");
        return f->args->position[index];
    }
    for (size_t i = 0; i < f->args->n_keywords; i++) {
        if (string_equal(f->args->keyword[i].name, text)) return f->args->keyword[i].value;
    }
    render_fail(r, "the format names an argument that is not given");
}

/* Returns the value of a field like name.attribute[item]. */
static struct value format_field(struct render *r, struct format_cursor *f,
                                 const struct string *field) {
    size_t at = 0;
    while (at < field->length && field->data[at] != '.' && field->data[at] != '[') at++;
    struct value value = format_argument(r, f, string_part(r, field, 0, at));
    while (at < field->length) {
        bool is_item = field->data[at++] == '[';
        size_t start = at;
        while (at < field->length && field->data[at] != ']' &&
               (is_item || (field->data[at] != '.' && field->data[at] != '['))) {
            at++;
        }
        struct value part = string_part(r, field, start, at - start);
        if (is_item) {
            size_t end = 0;
            int64_t index = read_number(r, part.string, &end);
            bool is_number = end == part.string->length && end > 0;
            if (at++ >= field->length)
                render_fail(r, "a field of the format is not closed with ']'");
            value = value_item(r, value, is_number ? VALUE_OF_INT(index) : part);
        } else {
            value = value_attribute(r, value, part.string);
        }
    }
    return value;
}

/* Formats {field!conversion:spec}, from `start` to the closing brace at `end`. */
static void format_one(struct render *r, struct template_builder *b, struct format_cursor *f,
                       size_t start, size_t end) {
    const struct string *inner = string_part(r, f->text, start, end - start).string;
    const char *colon = memchr(inner->data, ':', inner->length);
    size_t head = colon ? (size_t)(colon - inner->data) : inner->length;
    const char *mark = memchr(inner->data, '!', head);
    size_t name = mark ? (size_t)(mark - inner->data) : head;
    struct value value = format_field(r, f, string_part(r, inner, 0, name).string);
    if (mark) {
        char how = name + 2 == head ? mark[1] : 0;
        if (how != 'r' && how != 's') render_fail(r, "a format's conversion is 'r' or 's'");
        struct template_builder *shown = builder_new(r);
        (how == 'r' ? value_repr : value_print)(r, shown, value);
        value = builder_value(r, shown);
    }
    size_t spec = head + (colon != NULL);
    format_value(r, b, value, string_part(r, inner, spec, inner->length - spec).string);
}

struct value string_format(struct render *r, struct value self, const struct args *args) {
    const struct string *text = self.string;
    struct format_cursor f = {.text = text, .args = args};
    struct template_builder *b = builder_new(r);
    for (size_t at = 0; at < text->length;) {
        char c = text->data[at];
        render_charge(r, 1);
        if ((c == '{' || c == '}') && look(text, at + 1) == c) {
            builder_add_part(r, b, text, at, 1);
            at += 2;
        } else if (c == '{') {
            const char *close = memchr(text->data + at, '}', text->length - at);
            if (!close) render_fail(r, "a field of the format is not closed with '}'");
            size_t end = (size_t)(close - text->data);
            format_one(r, b, &f, at + 1, end);
            at = end + 1;
        } else if (c == '}') {
            render_fail(r, "a single '}' in the format");
        } else {
            builder_add_part(r, b, text, at++, 1);
        }
    }
    return builder_value(r, b);
}
