/* Converts the arguments of a call of Gemma 4, up to the closing brace, to a JSON object:
 *
 *   n:3,zone:<|"|>UTC<|"|>,tags:[<|"|>a<|"|>,true],more:{k:null}
 *
 * Keys need no marks. Texts are between marks and are not escaped. FunctionGemma writes the same
 * with <escape> for the mark. */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

enum state {
    KEY_OR_END,
    KEY,
    KEY_MARK,
    MARKED_KEY,
    VALUE,
    VALUE_OR_END,
    COMMA_OR_END,
    MARK,
    STRING,
    WORD,
    NUMBER,
};

static bool is_in_list(const struct gemma_arguments *gemma) {
    return gemma->depth > 0 && gemma->open[gemma->depth - 1] == '[';
}

static void begin_item(struct gemma_arguments *gemma, struct buf *out) {
    if (gemma->has_item) buf_puts(out, ", ");
    gemma->has_item = false;
}

static enum reading end_value(struct gemma_arguments *gemma) {
    gemma->has_item = true;
    gemma->matched = 0;
    gemma->state = COMMA_OR_END;
    return READ_MORE;
}

static enum reading open_value(struct gemma_arguments *gemma, char c, struct buf *out) {
    if (gemma->depth == JSON_MAX_DEPTH - 1) return READ_BROKEN;
    gemma->open[gemma->depth++] = (uint8_t)c;
    gemma->state = c == '[' ? VALUE_OR_END : KEY_OR_END;
    buf_add(out, &c, 1);
    return READ_MORE;
}

static enum reading close_value(struct gemma_arguments *gemma, char c, struct buf *out) {
    if (c != (is_in_list(gemma) ? ']' : '}')) return READ_BROKEN;
    buf_add(out, &c, 1);
    if (gemma->depth == 0) return READ_BEFORE;
    gemma->depth--;
    return end_value(gemma);
}

static enum reading end_key(struct gemma_arguments *gemma, struct buf *out) {
    begin_item(gemma, out);
    buf_puts(out, "\"");
    for (int i = 0; i < gemma->key.length; i++) add_escaped(out, gemma->key.text[i]);
    buf_puts(out, "\": ");
    gemma->state = VALUE;
    return READ_MORE;
}

static enum reading add_to_key(struct gemma_arguments *gemma, char c, struct buf *out) {
    if (gemma->key.length == 0 && c == gemma->mark[0] && !gemma->key_ended) {
        gemma->matched = 1;
        gemma->state = KEY_MARK;
        return READ_MORE;
    }
    if (gemma->key.length == 0 && !is_name_byte(c)) return READ_BROKEN;
    gemma->key_ended |= is_space(c);
    if (is_space(c)) return READ_MORE;
    bool is_part = is_name_byte(c) && !gemma->key_ended;
    if (c == ':') return end_key(gemma, out);
    return is_part && name_add(&gemma->key, c) ? READ_MORE : READ_BROKEN;
}

/* Adds a byte of the mark before a key. */
static enum reading add_to_key_mark(struct gemma_arguments *gemma, char c) {
    if (c != gemma->mark[gemma->matched]) return READ_BROKEN;
    if (gemma->mark[++gemma->matched]) return READ_MORE;
    gemma->matched = 0;
    gemma->state = MARKED_KEY;
    return READ_MORE;
}

/* Adds a byte of a key between marks, or of the mark after it. */
static enum reading add_to_marked_key(struct gemma_arguments *gemma, char c) {
    if (c == gemma->mark[gemma->matched]) {
        if (gemma->mark[++gemma->matched]) return READ_MORE;
        gemma->key_ended = true;
        gemma->state = KEY;
        return gemma->key.length > 0 ? READ_MORE : READ_BROKEN;
    }
    for (int i = 0; i < gemma->matched; i++)
        if (!name_add(&gemma->key, gemma->mark[i])) return READ_BROKEN;
    gemma->matched = c == gemma->mark[0];
    return gemma->matched || (c && name_add(&gemma->key, c)) ? READ_MORE : READ_BROKEN;
}

static enum reading begin_word(struct gemma_arguments *gemma, char c) {
    static const char *const words[] = {"true", "false", "null", "None"};
    static const char *const become[] = {"true", "false", "null", "null"};
    for (int i = 0; i < 4; i++) {
        if (words[i][0] != c) continue;
        gemma->word = words[i] + 1;
        gemma->becomes = become[i];
        gemma->state = WORD;
        return READ_MORE;
    }
    return READ_BROKEN;
}

static enum reading begin_value(struct gemma_arguments *gemma, char c, struct buf *out) {
    if (gemma->state == VALUE_OR_END && c == ']') return close_value(gemma, c, out);
    if (is_in_list(gemma)) begin_item(gemma, out);
    if (c == '[' || c == '{') return open_value(gemma, c, out);
    if (c == gemma->mark[0]) {
        gemma->matched = 1;
        gemma->state = MARK;
        return READ_MORE;
    }
    if (c != '-' && !is_digit(c)) return begin_word(gemma, c);
    gemma->number = (struct json_scan){0};
    gemma->state = NUMBER;
    buf_add(out, &c, 1);
    return json_scan_add(&gemma->number, c);
}

static enum reading add_to_mark(struct gemma_arguments *gemma, char c, struct buf *out) {
    if (c != gemma->mark[gemma->matched]) return READ_BROKEN;
    if (gemma->mark[++gemma->matched]) return READ_MORE;
    buf_puts(out, "\"");
    gemma->matched = 0;
    gemma->state = STRING;
    return READ_MORE;
}

static enum reading add_to_string(struct gemma_arguments *gemma, char c, struct buf *out) {
    if (c != gemma->mark[gemma->matched]) { /* "<" occurs only at the start of the mark */
        for (int i = 0; i < gemma->matched; i++) add_escaped(out, gemma->mark[i]);
        gemma->matched = 0;
    }
    if (c != gemma->mark[gemma->matched]) {
        add_escaped(out, c);
    } else if (!gemma->mark[++gemma->matched]) {
        buf_puts(out, "\"");
        return end_value(gemma);
    }
    return READ_MORE;
}

static enum reading add_to_word(struct gemma_arguments *gemma, char c, struct buf *out) {
    if (c != *gemma->word) return READ_BROKEN;
    if (*++gemma->word) return READ_MORE;
    buf_puts(out, gemma->becomes);
    return end_value(gemma);
}

/* Adds a byte after a value. */
static enum reading add_behind(struct gemma_arguments *gemma, char c, struct buf *out) {
    if (is_space(c)) return READ_MORE;
    if (c != ',') return close_value(gemma, c, out);
    gemma->state = is_in_list(gemma) ? VALUE : KEY_OR_END;
    return READ_MORE;
}

static enum reading add_to_number(struct gemma_arguments *gemma, char c, struct buf *out) {
    enum reading reading = json_scan_add(&gemma->number, c);
    if (reading == READ_MORE) buf_add(out, &c, 1);
    if (reading != READ_BEFORE) return reading;
    end_value(gemma);
    return add_behind(gemma, c, out);
}

enum reading gemma_arguments_add(struct gemma_arguments *gemma, char c, struct buf *arguments) {
    assert(gemma->mark && gemma->mark[0] == '<');
    if (!gemma->begun) buf_puts(arguments, "{");
    gemma->begun = true;
    switch ((enum state)gemma->state) {
    case KEY_OR_END:
        if (is_space(c)) return READ_MORE;
        if (c == '}') return close_value(gemma, c, arguments);
        gemma->key = (struct name){0};
        gemma->key_ended = false;
        gemma->state = KEY;
        return add_to_key(gemma, c, arguments);
    case KEY:
        return add_to_key(gemma, c, arguments);
    case KEY_MARK:
        return add_to_key_mark(gemma, c);
    case MARKED_KEY:
        return add_to_marked_key(gemma, c);
    case MARK:
        return add_to_mark(gemma, c, arguments);
    case STRING:
        return add_to_string(gemma, c, arguments);
    case WORD:
        return add_to_word(gemma, c, arguments);
    case NUMBER:
        return add_to_number(gemma, c, arguments);
    case COMMA_OR_END:
        return add_behind(gemma, c, arguments);
    default:
        assert(gemma->state == VALUE || gemma->state == VALUE_OR_END);
        return is_space(c) ? READ_MORE : begin_value(gemma, c, arguments);
    }
}
