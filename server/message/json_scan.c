/* Reads a JSON value (RFC 8259) byte by byte: finds its end, and detects bytes that cannot belong
 * to it. The caller stores the bytes. */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

enum state {
    VALUE,
    VALUE_OR_END, /* after "[" */
    KEY_OR_END,   /* after "{" */
    KEY,
    COLON,
    COMMA_OR_END,
    STRING,
    STRING_OF_KEY,
    ESCAPE,
    ESCAPE_OF_KEY,
    HEX,
    HEX_OF_KEY,
    WORD,
    MINUS,
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
};

static bool in_object(const struct json_scan *scan) {
    int i = scan->depth - 1;
    return scan->objects[i / 64] >> (i % 64) & 1;
}

/* Called after the last byte of a value. */
static enum reading end_value(struct json_scan *scan) {
    scan->state = COMMA_OR_END;
    return scan->depth == 0 ? READ_DONE : READ_MORE;
}

static enum reading open_value(struct json_scan *scan, bool object) {
    assert(scan->depth >= 0);
    if (scan->depth == JSON_MAX_DEPTH) return READ_BROKEN;
    int i = scan->depth++;
    uint64_t bit = (uint64_t)1 << (i % 64);
    scan->objects[i / 64] = object ? scan->objects[i / 64] | bit : scan->objects[i / 64] & ~bit;
    scan->state = object ? KEY_OR_END : VALUE_OR_END;
    return READ_MORE;
}

static enum reading close_value(struct json_scan *scan, bool object) {
    if (in_object(scan) != object) return READ_BROKEN;
    scan->depth--;
    return end_value(scan);
}

static enum reading begin_value(struct json_scan *scan, char c) {
    static const char *const words[] = {"true", "false", "null"};
    if (c == '{' || c == '[') return open_value(scan, c == '{');
    scan->state = c == '"'                ? STRING
                  : c == '-'              ? MINUS
                  : c == '0'              ? ZERO
                  : is_digit(c)           ? DIGITS
                  : strchr("tfn", c) && c ? WORD
                                          : VALUE;
    for (int i = 0; i < 3 && scan->state == WORD; i++)
        if (words[i][0] == c) scan->word = words[i] + 1;
    return scan->state == VALUE ? READ_BROKEN : READ_MORE;
}

/* Adds a byte between values, where white space is allowed. */
static enum reading add_between(struct json_scan *scan, char c) {
    if (is_space(c)) return READ_MORE;
    switch ((enum state)scan->state) {
    case VALUE_OR_END:
        if (c == ']') return close_value(scan, false);
        return begin_value(scan, c);
    case VALUE:
        return begin_value(scan, c);
    case KEY_OR_END:
        if (c == '}') return close_value(scan, true);
        scan->state = STRING_OF_KEY;
        return c == '"' ? READ_MORE : READ_BROKEN;
    case KEY:
        scan->state = STRING_OF_KEY;
        return c == '"' ? READ_MORE : READ_BROKEN;
    case COLON:
        scan->state = VALUE;
        return c == ':' ? READ_MORE : READ_BROKEN;
    default:
        assert(scan->state == COMMA_OR_END && scan->depth > 0);
        if (c == '}' || c == ']') return close_value(scan, c == '}');
        scan->state = in_object(scan) ? KEY : VALUE;
        return c == ',' ? READ_MORE : READ_BROKEN;
    }
}

static enum reading add_to_string(struct json_scan *scan, char c) {
    bool is_key =
        scan->state == STRING_OF_KEY || scan->state == ESCAPE_OF_KEY || scan->state == HEX_OF_KEY;
    switch ((enum state)scan->state) {
    case ESCAPE:
    case ESCAPE_OF_KEY:
        if (!c || !strchr("\"\\/bfnrtu", c)) return READ_BROKEN;
        scan->count = 0;
        scan->state = (uint8_t)(c == 'u' ? is_key ? HEX_OF_KEY : HEX
                                : is_key ? STRING_OF_KEY
                                         : STRING);
        return READ_MORE;
    case HEX:
    case HEX_OF_KEY:
        if (!c || !strchr("0123456789abcdefABCDEF", c)) return READ_BROKEN;
        if (++scan->count == 4) scan->state = is_key ? STRING_OF_KEY : STRING;
        return READ_MORE;
    default:
        if ((unsigned char)c < 0x20) return READ_BROKEN;
        if (c == '\\') scan->state = is_key ? ESCAPE_OF_KEY : ESCAPE;
        if (c != '"') return READ_MORE;
        if (!is_key) return end_value(scan);
        scan->state = COLON;
        return READ_MORE;
    }
}

/* Returns the state after another byte of a number, or VALUE if the byte is not part of it. */
static enum state after_digit(enum state state, char c) {
    bool e = c == 'e' || c == 'E', digit = is_digit(c);
    switch (state) {
    case MINUS:
        return c == '0' ? ZERO : digit ? DIGITS : VALUE;
    case ZERO:
        return c == '.' ? POINT : e ? EXPONENT : VALUE;
    case DIGITS:
        return digit ? DIGITS : c == '.' ? POINT : e ? EXPONENT : VALUE;
    case POINT:
        return digit ? FRACTION : VALUE;
    case FRACTION:
        return digit ? FRACTION : e ? EXPONENT : VALUE;
    case EXPONENT:
        return c == '+' || c == '-' ? EXPONENT_SIGN : digit ? EXPONENT_DIGITS : VALUE;
    default:
        return digit ? EXPONENT_DIGITS : VALUE;
    }
}

static enum reading add_to_number(struct json_scan *scan, char c) {
    enum state state = scan->state, next = after_digit(state, c);
    if (next != VALUE) {
        scan->state = (uint8_t)next;
        return READ_MORE;
    }
    bool whole = state == ZERO || state == DIGITS || state == FRACTION || state == EXPONENT_DIGITS;
    if (!whole) return READ_BROKEN;
    if (end_value(scan) == READ_DONE) return READ_BEFORE;
    return add_between(scan, c);
}

enum reading json_scan_add(struct json_scan *scan, char c) {
    if (scan->state <= COMMA_OR_END) return add_between(scan, c);
    if (scan->state <= HEX_OF_KEY) return add_to_string(scan, c);
    if (scan->state >= MINUS) return add_to_number(scan, c);
    if (c != *scan->word) return READ_BROKEN;
    return *++scan->word ? READ_MORE : end_value(scan);
}

bool json_scan_in_string(const struct json_scan *scan) {
    return scan->state >= STRING && scan->state <= HEX_OF_KEY;
}
