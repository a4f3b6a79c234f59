/* Splits a template into tokens by jinja2's rules, with the settings of transformers: trim_blocks
 * and lstrip_blocks are on, and one newline at the end of the template is dropped. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template/parser.h"

struct lexer {
    struct guard *guard;
    const char *source; /* with '\n' for every newline */
    size_t length, at;
    int line;
    bool line_starting; /* the byte before `at` is a newline, or `at` is 0 */
    struct token *tokens;
    size_t n, capacity;
    char closing[TEMPLATE_NESTING_MAX]; /* the closing brackets of the open ones */
    int n_closing;
};

/* Stops the compilation with an error at the lexer's line. */
_Noreturn static void fail(struct lexer *lexer, const char *cause) {
    lexer->guard->line = lexer->line;
    guard_fail(lexer->guard, "%s", cause);
}

/* Returns the byte `ahead` bytes after the current one, or 0 after the end. */
static char peek(const struct lexer *lexer, size_t ahead) {
    return ahead < lexer->length - lexer->at ? lexer->source[lexer->at + ahead] : 0;
}

/* Adds a token at the current line. The pointer is valid until the next one is added. */
static struct token *add(struct lexer *lexer, int kind) {
    assert(lexer->n <= lexer->capacity);
    if (lexer->n == lexer->capacity) {
        size_t capacity = lexer->capacity ? 2 * lexer->capacity : 64;
        struct token *tokens = guard_array(lexer->guard, capacity, sizeof *tokens);
        if (lexer->n) memcpy(tokens, lexer->tokens, lexer->n * sizeof *tokens);
        lexer->tokens = tokens;
        lexer->capacity = capacity;
    }
    struct token *token = &lexer->tokens[lexer->n++];
    *token = (struct token){.kind = kind, .line = lexer->line};
    return token;
}

static const struct string *new_string(struct lexer *lexer, const char *data, size_t length) {
    struct string *text = guard_alloc(lexer->guard, sizeof *text);
    *text = (struct string){.data = data, .length = length};
    return text;
}

/* Moves to `to` and counts the lines up to there. */
static void advance(struct lexer *lexer, size_t to) {
    assert(to >= lexer->at && to <= lexer->length);
    for (; lexer->at < to; lexer->at++) lexer->line += lexer->source[lexer->at] == '\n';
    if (to > 0) lexer->line_starting = lexer->source[to - 1] == '\n';
}

/* Returns the offset after the white space that starts at `at`. */
static size_t skip_space(const struct lexer *lexer, size_t at) {
    assert(at <= lexer->length);
    struct string source = {.data = lexer->source, .length = lexer->length};
    while (at < lexer->length) {
        size_t next = string_next(&source, at);
        if (!point_is_space(string_point(&source, at, next))) break;
        at = next;
    }
    return at;
}

/* Returns the end of source[start..end) without trailing white space. */
static size_t strip_end(const struct lexer *lexer, size_t start, size_t end) {
    assert(start <= end && end <= lexer->length);
    struct string source = {.data = lexer->source, .length = lexer->length};
    while (end > start) {
        size_t last = end - 1;
        while (last > start && ((unsigned char)lexer->source[last] & 0xC0) == 0x80) last--;
        if (!point_is_space(string_point(&source, last, end))) break;
        end = last;
    }
    return end;
}

/* Adds the text before the tag that opens at `end`, and moves to `end`. If the tag's `sign` is '-',
 * white space before the tag is removed. If it is '+', nothing is removed. Otherwise
 * (lstrip_blocks) the spaces that begin the tag's line are removed, unless the tag outputs a
 * variable. */
static void add_data(struct lexer *lexer, size_t end, char sign, bool is_variable) {
    size_t start = lexer->at, stop = end;
    assert(end >= start && end <= lexer->length);
    if (sign == '-') {
        stop = strip_end(lexer, start, end);
    } else if (sign != '+' && !is_variable) {
        size_t line = end;
        while (line > start && lexer->source[line - 1] != '\n') line--;
        if ((line > start || lexer->line_starting) && skip_space(lexer, line) >= end) stop = line;
    }
    if (stop > start) {
        add(lexer, TEMPLATE_DATA)->string = new_string(lexer, lexer->source + start, stop - start);
    }
    advance(lexer, end);
}

/* ---- comments and raw blocks ---------------------------------------------------------------- */

/* Returns the offset of the next tag of any kind at or after `at`, or the source's length. */
static size_t find_tag(const struct lexer *lexer, size_t at) {
    assert(at <= lexer->length);
    for (; at + 1 < lexer->length; at++) {
        char second = lexer->source[at + 1];
        if (lexer->source[at] == '{' && (second == '{' || second == '%' || second == '#'))
            return at;
    }
    return lexer->length;
}

/* Returns the offset after the tag's end at `at` ("%}" or "#}"). Includes the white space after it
 * if the sign is '-', and one newline if it does not have a sign (trim_blocks). */
static size_t after_end(const struct lexer *lexer, size_t at, char sign) {
    at += 2;
    if (sign == '-') return skip_space(lexer, at);
    if (sign != '+' && at < lexer->length && lexer->source[at] == '\n') at++;
    return at;
}

static void lex_comment(struct lexer *lexer) {
    size_t start = lexer->at + 2 + (peek(lexer, 2) == '-' || peek(lexer, 2) == '+');
    const char *end = start < lexer->length
                          ? memmem(lexer->source + start, lexer->length - start, "#}", 2)
                          : NULL;
    if (!end) fail(lexer, "a comment is not closed with '#}'");
    size_t at = (size_t)(end - lexer->source);
    advance(lexer, after_end(lexer, at, at > start ? lexer->source[at - 1] : 0));
}

/* Reads `{%- name` at `at`. Returns the offset after the name and the white space after it, or 0 if
 * something else is there. */
static size_t match_block(const struct lexer *lexer, size_t at, const char *name) {
    size_t n = strlen(name);
    if (lexer->length - at < 2 || memcmp(lexer->source + at, "{%", 2) != 0) return 0;
    at += 2;
    if (at < lexer->length && (lexer->source[at] == '-' || lexer->source[at] == '+')) at++;
    at = skip_space(lexer, at);
    if (lexer->length - at < n || memcmp(lexer->source + at, name, n) != 0) return 0;
    return skip_space(lexer, at + n);
}

/* Returns the offset after `{% raw %}` at `at`, or 0. A newline after it is content; only '-'
 * removes white space. */
static size_t match_raw(const struct lexer *lexer, size_t at) {
    at = match_block(lexer, at, "raw");
    if (at == 0 || lexer->length - at < 2) return 0;
    if (memcmp(lexer->source + at, "%}", 2) == 0) return at + 2;
    if (lexer->length - at < 3 || memcmp(lexer->source + at, "-%}", 3) != 0) return 0;
    return skip_space(lexer, at + 3);
}

/* Returns the offset after `{% endraw %}` at `at`, including the white space of after_end, or 0. */
static size_t match_endraw(const struct lexer *lexer, size_t at) {
    at = match_block(lexer, at, "endraw");
    if (at == 0 || at >= lexer->length) return 0;
    char sign = lexer->source[at] == '-' || lexer->source[at] == '+' ? lexer->source[at] : 0;
    at += sign != 0;
    if (lexer->length - at < 2 || memcmp(lexer->source + at, "%}", 2) != 0) return 0;
    return after_end(lexer, at, sign);
}

static void lex_raw(struct lexer *lexer, size_t start) {
    advance(lexer, start);
    for (size_t at = start; at < lexer->length; at++) {
        size_t end = lexer->source[at] == '{' ? match_endraw(lexer, at) : 0;
        if (end == 0) continue;
        add_data(lexer, at, lexer->source[at + 2], false);
        advance(lexer, end);
        return;
    }
    fail(lexer, "a raw block is not closed with '{% endraw %}'");
}

/* ---- numbers, names, strings, operators ----------------------------------------------------- */

/* Returns the offset after digits with single underscores between them; `at` without digits. */
static size_t skip_digits(const struct lexer *lexer, size_t at) {
    if (at >= lexer->length || !is_digit(lexer->source[at])) return at;
    while (at < lexer->length) {
        bool joined =
            lexer->source[at] == '_' && at + 1 < lexer->length && is_digit(lexer->source[at + 1]);
        if (!is_digit(lexer->source[at]) && !joined) break;
        at++;
    }
    return at;
}

/* Returns the offset after a float's fraction and exponent, or `at` if both are missing. */
static size_t skip_fraction(const struct lexer *lexer, size_t at) {
    size_t end = at;
    if (end < lexer->length && lexer->source[end] == '.') {
        size_t digits = skip_digits(lexer, end + 1);
        if (digits == end + 1) return at;
        end = digits;
    }
    if (end < lexer->length && (lexer->source[end] | 32) == 'e') {
        size_t exponent = end + 1;
        if (exponent < lexer->length &&
            (lexer->source[exponent] == '+' || lexer->source[exponent] == '-')) {
            exponent++;
        }
        size_t digits = skip_digits(lexer, exponent);
        if (digits > exponent) end = digits;
    }
    return end;
}

/* Writes the number's characters without underscores. */
static void number_string(struct lexer *lexer, size_t end, char out[128]) {
    size_t n = 0;
    for (size_t i = lexer->at; i < end; i++) {
        if (lexer->source[i] == '_') continue;
        if (n == 127) fail(lexer, "a number has too many digits");
        out[n++] = lexer->source[i];
    }
    out[n] = 0;
}

static bool is_digit_of(char c, int radix) {
    int digit = is_digit(c)                          ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : 99;
    return digit < radix;
}

/* Returns the offset after an integer's digits. Like in Python, a leading zero ends the integer. */
static size_t integer_end(const struct lexer *lexer, int radix) {
    size_t at = lexer->at;
    if (radix == 10) {
        size_t end = skip_digits(lexer, at);
        if (lexer->source[at] != '0') return end;
        while (at < end && (lexer->source[at] == '0' || lexer->source[at] == '_')) at++;
        return at;
    }
    at += 2;
    while (at < lexer->length && (is_digit_of(lexer->source[at], radix) ||
                                  (lexer->source[at] == '_' && at + 1 < lexer->length &&
                                   is_digit_of(lexer->source[at + 1], radix)))) {
        at++;
    }
    return at;
}

static void lex_number(struct lexer *lexer) {
    char text[128];
    size_t digits = skip_digits(lexer, lexer->at), end = digits;
    if (lexer->at == 0 || lexer->source[lexer->at - 1] != '.') end = skip_fraction(lexer, digits);
    if (end > digits) {
        number_string(lexer, end, text);
        add(lexer, TEMPLATE_FLOAT)->real = strtod(text, NULL);
        advance(lexer, end);
        return;
    }
    char letter = peek(lexer, 0) == '0' ? (char)(peek(lexer, 1) | 32) : 0;
    int radix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    end = integer_end(lexer, radix);
    if (radix != 10 && end == lexer->at + 2) { /* "0x" without a digit: 0, then a name */
        radix = 10;
        end = lexer->at + 1;
    }
    number_string(lexer, end, text);
    uint64_t integer = 0;
    for (const char *c = text + (radix == 10 ? 0 : 2); *c; c++) {
        uint64_t digit = (uint64_t)(is_digit(*c) ? *c - '0' : (*c | 32) - 'a' + 10);
        if (integer > (INT64_MAX - digit) / (uint64_t)radix) fail(lexer, "an integer is too large");
        integer = integer * (uint64_t)radix + digit;
    }
    add(lexer, TEMPLATE_INT)->integer = (int64_t)integer;
    advance(lexer, end);
}

static bool is_name_byte(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

/* Reads exactly `n` hexadecimal digits of an escape. */
static uint32_t hex_escape(struct lexer *lexer, const char *digits, const char *end, int n) {
    uint32_t point = 0;
    for (int i = 0; i < n; i++) {
        if (digits + i >= end || !is_digit_of(digits[i], 16)) {
            fail(lexer, "an escape in a string has too few hexadecimal digits");
        }
        char c = digits[i];
        point = point << 4 | (uint32_t)(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
        fail(lexer, "an escape in a string is not a Unicode character");
    }
    return point;
}

/* Decodes the escape whose backslash is before `in`, and advances *out. Returns the byte after the
 * escape. */
static const char *unescape_one(struct lexer *lexer, const char *in, const char *end, char **out) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = *in ? strchr(from, *in) : NULL;
    if (known) {
        *(*out)++ = to[known - from];
        return in + 1;
    }
    if (*in == '\n') return in + 1;
    int n_hex = *in == 'x' ? 2 : *in == 'u' ? 4 : *in == 'U' ? 8 : 0;
    if (n_hex) {
        *out += utf8_write(hex_escape(lexer, in + 1, end, n_hex), *out);
        return in + 1 + n_hex;
    }
    if (*in >= '0' && *in <= '7') {
        uint32_t point = 0;
        for (int i = 0; i < 3 && in < end && *in >= '0' && *in <= '7'; i++, in++) {
            point = point * 8 + (uint32_t)(*in - '0');
        }
        *out += utf8_write(point, *out);
        return in;
    }
    if (*in == 'N') fail(lexer, "escapes by a character's name are not supported");
    *(*out)++ = '\\';
    *(*out)++ = *in;
    return in + 1;
}

static void lex_string(struct lexer *lexer) {
    char quote = lexer->source[lexer->at];
    size_t start = lexer->at + 1, end = start;
    while (end < lexer->length && lexer->source[end] != quote) {
        end += lexer->source[end] == '\\' ? 2 : 1;
    }
    if (end >= lexer->length) fail(lexer, "a string is not closed");
    char *data = guard_alloc(lexer->guard, end - start + 1), *out = data;
    const char *in = lexer->source + start, *stop = lexer->source + end;
    while (in < stop) {
        if (*in == '\\') {
            in = unescape_one(lexer, in + 1, stop, &out);
        } else {
            *out++ = *in++;
        }
    }
    /* an escape is never shorter than its character */
    assert((size_t)(out - data) <= end - start + 1);
    add(lexer, TEMPLATE_STRING)->string = new_string(lexer, data, (size_t)(out - data));
    advance(lexer, end + 1);
}

/* Pushes an opening bracket; fails for a closing one that does not match. */
static void lex_bracket(struct lexer *lexer, char c) {
    if (c == '(' || c == '[' || c == '{') {
        if (lexer->n_closing == TEMPLATE_NESTING_MAX) fail(lexer, "brackets are nested too deeply");
        lexer->closing[lexer->n_closing++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (lexer->n_closing == 0 || lexer->closing[lexer->n_closing - 1] != c) {
            lexer->guard->line = lexer->line;
            guard_fail(lexer->guard, "unexpected '%c'", c);
        }
        lexer->n_closing--;
    }
}

static void lex_operator(struct lexer *lexer) {
    static const struct {
        const char *text;
        int kind;
    } pairs[] = {{"**", TEMPLATE_POW}, {"//", TEMPLATE_FLOORDIV}, {"==", TEMPLATE_EQ},
                 {"!=", TEMPLATE_NE},  {">=", TEMPLATE_GE},       {"<=", TEMPLATE_LE}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (peek(lexer, 0) != pairs[i].text[0] || peek(lexer, 1) != pairs[i].text[1]) continue;
        add(lexer, pairs[i].kind);
        advance(lexer, lexer->at + 2);
        return;
    }
    char c = peek(lexer, 0);
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        lexer->guard->line = lexer->line;
        guard_fail(lexer->guard, "unexpected character '%c'", c >= ' ' ? c : '?');
    }
    lex_bracket(lexer, c);
    add(lexer, c);
    advance(lexer, lexer->at + 1);
}

/* ---- tags ----------------------------------------------------------------------------------- */

/* Reads the end of the tag if it is at `at` and all brackets are closed. */
static bool lex_tag_end(struct lexer *lexer, bool is_variable) {
    const char *end = is_variable ? "}}" : "%}";
    char sign = peek(lexer, 0);
    bool is_signed = sign == '-' || (sign == '+' && !is_variable);
    if (lexer->n_closing > 0 || peek(lexer, is_signed) != end[0]) return false;
    if (peek(lexer, is_signed + 1) != end[1]) return false;
    size_t at = lexer->at + is_signed;
    add(lexer, is_variable ? TEMPLATE_VARIABLE_END : TEMPLATE_BLOCK_END);
    if (is_variable) {
        advance(lexer, sign == '-' ? skip_space(lexer, at + 2) : at + 2);
    } else {
        advance(lexer, after_end(lexer, at, is_signed ? sign : 0));
    }
    return true;
}

static void lex_tag(struct lexer *lexer, bool is_variable) {
    char sign = peek(lexer, 2);
    add(lexer, is_variable ? TEMPLATE_VARIABLE_BEGIN : TEMPLATE_BLOCK_BEGIN);
    advance(lexer, lexer->at + 2 + (sign == '-' || sign == '+'));
    while (!lex_tag_end(lexer, is_variable)) {
        size_t space = skip_space(lexer, lexer->at);
        char c = peek(lexer, 0);
        if (lexer->at >= lexer->length) {
            fail(lexer,
                 is_variable ? "a tag is not closed with '}}'" : "a tag is not closed with '%}'");
        } else if (space > lexer->at) {
            advance(lexer, space);
        } else if (is_digit(c)) {
            lex_number(lexer);
        } else if (is_name_byte(c)) {
            size_t start = lexer->at, end = start;
            while (end < lexer->length && is_name_byte(lexer->source[end])) end++;
            add(lexer, TEMPLATE_NAME)->string =
                new_string(lexer, lexer->source + start, end - start);
            advance(lexer, end);
        } else if (c == '\'' || c == '"') {
            lex_string(lexer);
        } else {
            lex_operator(lexer);
        }
    }
}

static void lex_all(struct lexer *lexer) {
    while (lexer->at < lexer->length) {
        size_t tag = find_tag(lexer, lexer->at);
        if (tag == lexer->length) {
            add_data(lexer, tag, '+', true);
            break;
        }
        bool is_variable = lexer->source[tag + 1] == '{';
        size_t raw = match_raw(lexer, tag);
        add_data(lexer, tag, tag + 2 < lexer->length ? lexer->source[tag + 2] : 0, is_variable);
        if (raw) {
            lex_raw(lexer, raw);
        } else if (lexer->source[tag + 1] == '#') {
            lex_comment(lexer);
        } else {
            lex_tag(lexer, is_variable);
        }
    }
}

/* Copies the source with '\n' for every newline and without a newline at its end. */
static void normalise(struct lexer *lexer, const char *source, size_t length) {
    char *copy = guard_alloc(lexer->guard, length + 1), *out = copy;
    for (size_t i = 0; i < length; i++) {
        if (source[i] == '\r') {
            if (i + 1 < length && source[i + 1] == '\n') i++;
            *out++ = '\n';
        } else {
            *out++ = source[i];
        }
    }
    if (out > copy && out[-1] == '\n') out--;
    lexer->source = copy;
    lexer->length = (size_t)(out - copy);
}

struct token *template_lex(struct guard *guard, const char *source, size_t length) {
    struct lexer lexer = {.guard = guard, .line = 1, .line_starting = true};
    normalise(&lexer, source, length);
    lex_all(&lexer);
    add(&lexer, TEMPLATE_END);
    assert(lexer.at == lexer.length && lexer.n_closing == 0);
    return lexer.tokens;
}
