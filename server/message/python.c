/* Converts the arguments of a Python call, zone="UTC", n=3, up to the closing parenthesis, to a
 * JSON object. Values are literals: strings, numbers, True, False, None, lists, tuples and dicts.
 * JSON's true, false and null are accepted too. Any other Python syntax breaks the call. */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

enum state {
    KEYWORD_OR_END,
    KEYWORD,
    VALUE,        /* a value must follow */
    VALUE_OR_END, /* a value or the closing bracket must follow */
    COMMA_OR_END,
    COLON, /* after the key of a dict */
    STRING,
    ESCAPE,
    ESCAPE_DIGITS,
    WORD,
    NUMBER,
};

/* Writes a comma unless the item is the first one. */
static void begin_item(struct python_arguments *python, struct buf *out) {
    if (python->has_item) buf_puts(out, ", ");
    python->has_item = false;
}

static enum reading end_value(struct python_arguments *python) {
    python->has_item = true;
    python->state = COMMA_OR_END;
    return READ_MORE;
}

/* ---- strings -------------------------------------------------------------------------------- */

static enum reading add_escape(struct python_arguments *python, char c, struct buf *out) {
    static const char letters[] = "abfnrtv", values[] = "\a\b\f\n\r\t\v";
    const char *letter = c ? strchr(letters, c) : NULL;
    python->state = STRING;
    if (is_digit(c)) return READ_BROKEN; /* octal: models do not write it */
    if (c == 'x' || c == 'u' || c == 'U') {
        python->state = ESCAPE_DIGITS;
        python->count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        python->escape = c;
        python->value = 0;
    } else if (letter) {
        add_escaped(out, values[letter - letters]);
    } else if (c != '\n') { /* a line break is dropped; any other byte is kept */
        if (!c || !strchr("\\'\"/", c)) add_escaped(out, '\\');
        add_escaped(out, c);
    }
    return READ_MORE;
}

/* Values of four hex digits are written as \u escapes, so two surrogates form a pair in JSON. */
static enum reading add_escape_digit(struct python_arguments *python, char c, struct buf *out) {
    static const char digits[] = "0123456789abcdef";
    char bytes[4];
    char lower = c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c;
    const char *digit = c ? strchr(digits, lower) : NULL;
    if (!digit) return READ_BROKEN;
    python->value = python->value * 16 + (uint32_t)(digit - digits);
    if (--python->count > 0) return READ_MORE;
    python->state = STRING;
    bool surrogate = python->value >= 0xD800 && python->value < 0xE000;
    if (python->value > 0x10FFFF || (surrogate && python->escape == 'U')) return READ_BROKEN;
    if (python->value < 0x80)
        add_escaped(out, (char)python->value);
    else if (python->value < 0x10000)
        buf_printf(out, "\\u%04x", (unsigned)python->value);
    else
        buf_add(out, bytes, utf8_write(python->value, bytes));
    return READ_MORE;
}

static enum reading add_to_string(struct python_arguments *python, char c, struct buf *out) {
    if (python->state == ESCAPE) return add_escape(python, c, out);
    if (python->state == ESCAPE_DIGITS) return add_escape_digit(python, c, out);
    if (c == python->quote) {
        buf_puts(out, "\"");
        if (!python->is_key) return end_value(python);
        python->state = COLON;
        return READ_MORE;
    }
    if (c == '\\')
        python->state = ESCAPE;
    else
        add_escaped(out, c);
    return READ_MORE;
}

/* ---- values --------------------------------------------------------------------------------- */

static enum reading begin_word(struct python_arguments *python, char c) {
    static const char *const words[] = {"True", "False", "None", "true", "false", "null"};
    static const char *const become[] = {"true", "false", "null"};
    for (int i = 0; i < 6; i++) {
        if (words[i][0] != c) continue;
        python->word = words[i] + 1;
        python->becomes = become[i % 3];
        python->state = WORD;
        return READ_MORE;
    }
    return READ_BROKEN;
}

static enum reading begin_value(struct python_arguments *python, char c, struct buf *out) {
    bool quoted = c == '"' || c == '\'';
    python->is_key = python->state == VALUE_OR_END && python->depth > 0 &&
                     python->open[python->depth - 1] == '{';
    if (python->is_key && !quoted) return READ_BROKEN;
    begin_item(python, out);
    if (quoted) {
        python->quote = c;
        python->state = STRING;
        buf_puts(out, "\"");
        return READ_MORE;
    }
    if (c == '[' || c == '{' || c == '(') {
        if (python->depth == JSON_MAX_DEPTH - 1) return READ_BROKEN;
        python->open[python->depth++] = (uint8_t)c;
        python->state = VALUE_OR_END;
        buf_puts(out, c == '{' ? "{" : "[");
        return READ_MORE;
    }
    if (c != '-' && !is_digit(c)) return begin_word(python, c);
    python->number = (struct json_scan){0};
    python->state = NUMBER;
    buf_add(out, &c, 1);
    return json_scan_add(&python->number, c);
}

static enum reading close_value(struct python_arguments *python, char c, struct buf *out) {
    char open = python->depth > 0 ? (char)python->open[python->depth - 1] : 0;
    if (!open || c != (open == '[' ? ']' : open == '{' ? '}' : ')')) return READ_BROKEN;
    python->depth--;
    buf_puts(out, c == '}' ? "}" : "]");
    return end_value(python);
}

/* ---- arguments ------------------------------------------------------------------------------ */

static enum reading add_to_keyword(struct python_arguments *python, char c, struct buf *out) {
    bool is_letter = is_name_byte(c) && c != '.' && c != '-';
    if (is_letter && !python->key_ended && name_add(&python->key, c)) return READ_MORE;
    python->key_ended = true;
    if (is_space(c)) return READ_MORE;
    if (c != '=' || python->key.length == 0) return READ_BROKEN;
    begin_item(python, out);
    buf_printf(out, "\"%s\": ", python->key.text);
    python->state = VALUE;
    return READ_MORE;
}

/* Adds a byte after a value: a comma or a closing bracket. */
static enum reading add_behind(struct python_arguments *python, char c, struct buf *out) {
    bool outside = python->depth == 0;
    if (c == ')' && outside) return buf_puts(out, "}"), READ_BEFORE;
    if (c != ',') return close_value(python, c, out);
    python->state = outside ? KEYWORD_OR_END : VALUE_OR_END;
    return READ_MORE;
}

static enum reading add_between(struct python_arguments *python, char c, struct buf *out) {
    if (is_space(c)) return READ_MORE;
    switch ((enum state)python->state) {
    case KEYWORD_OR_END:
        if (c == ')') return buf_puts(out, "}"), READ_BEFORE;
        python->key = (struct name){0};
        python->key_ended = false;
        python->state = KEYWORD;
        return is_digit(c) || c == '=' ? READ_BROKEN : add_to_keyword(python, c, out);
    case VALUE_OR_END:
        if (c == ']' || c == '}' || c == ')') return close_value(python, c, out);
        return begin_value(python, c, out);
    case VALUE:
        return begin_value(python, c, out);
    case COLON:
        buf_puts(out, ": ");
        python->state = VALUE;
        return c == ':' ? READ_MORE : READ_BROKEN;
    default:
        assert(python->state == COMMA_OR_END);
        return add_behind(python, c, out);
    }
}

static enum reading add_to_number(struct python_arguments *python, char c, struct buf *out) {
    enum reading reading = json_scan_add(&python->number, c);
    if (reading == READ_MORE) buf_add(out, &c, 1);
    if (reading != READ_BEFORE) return reading;
    end_value(python);
    return add_between(python, c, out);
}

bool python_in_string(const struct python_arguments *python) {
    return python->state >= STRING && python->state <= ESCAPE_DIGITS;
}

enum reading python_arguments_add(struct python_arguments *python, char c, struct buf *arguments) {
    if (!python->begun) buf_puts(arguments, "{");
    python->begun = true;
    if (python->state == KEYWORD) return add_to_keyword(python, c, arguments);
    if (python->state == NUMBER) return add_to_number(python, c, arguments);
    if (python_in_string(python)) return add_to_string(python, c, arguments);
    if (python->state != WORD) return add_between(python, c, arguments);
    if (c != *python->word) return READ_BROKEN;
    if (*++python->word) return READ_MORE;
    buf_puts(arguments, python->becomes);
    return end_value(python);
}

/* ---- one value ------------------------------------------------------------------------------ */

/* Plain text may begin with a quote ('90s music). So a single value must not be a string with
 * single quotes or with line breaks. */
bool python_value_add(struct python_arguments *python, char c, struct buf *out) {
    if (!python->begun) {
        *python = (struct python_arguments){.begun = true, .state = VALUE};
        if (c == '\'') return false;
    }
    if (c == '\n' && python_in_string(python)) return false;
    return python_arguments_add(python, c, out) == READ_MORE;
}

/* Only white space may follow the value. */
bool python_value_end(struct python_arguments *python, struct buf *out) {
    return python_value_add(python, '\n', out) && python->state == COMMA_OR_END &&
           python->depth == 0;
}
