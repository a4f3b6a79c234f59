/* Derives the form of calls from answers that a template has rendered.
 *
 *   one   <call>f|{"n": 7}</call><|end|>
 *   two   <call>f|{"n": 7}</call><call>f|{"n": 8}</call><|end|>
 *         open            between                close  tail
 *
 * The text between name and arguments is the same in each call. The form is used only if both
 * answers read back as their calls. */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

/* A part of a text. */
struct text_part {
    const char *at;
    size_t length;
};

static bool spans_equal(struct text_part a, struct text_part b) {
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

/* A call in a text: the text before its name, and between name and arguments. */
struct call_place {
    struct text_part before, middle;
    const char *end; /* behind the arguments */
};

static bool find_call(const char *text, const char *name, const char *const spellings[2],
                      struct call_place *out) {
    const char *at = strstr(text, name), *arguments = NULL, *found = NULL;
    for (int i = 0; i < 2 && at; i++) {
        const char *other = strstr(at, spellings[i]);
        if (other && (!arguments || other < arguments)) arguments = other, found = spellings[i];
    }
    if (!arguments) return false;
    const char *middle = at + strlen(name);
    out->before = (struct text_part){text, (size_t)(at - text)};
    out->middle = (struct text_part){middle, (size_t)(arguments - middle)};
    assert(found && arguments >= middle);
    out->end = arguments + strlen(found);
    return true;
}

/* Returns the text up to the tail, or one with a NULL address if it does not end so. */
static struct text_part before_tail(const char *text, const char *tail) {
    size_t length = strlen(text), n = strlen(tail);
    bool is_right = length >= n && strcmp(text + length - n, tail) == 0;
    return is_right ? (struct text_part){text, length - n} : (struct text_part){NULL, 0};
}

/* The texts of a form. */
struct derived_texts {
    struct text_part open, middle, between, close;
};

/* Can a pattern hold this text? It gives some bytes another meaning. */
static bool fits_pattern(struct text_part text) {
    for (size_t i = 0; i < text.length; i++)
        if (strchr("%" OPTIONAL_BLANK OPTIONAL_BREAK OPTIONAL_SEMICOLON, text.at[i])) return false;
    return true;
}

/* The text at which a call begins must not be an ordinary word. */
static bool is_marker(struct text_part text) {
    bool has_sign = false;
    for (size_t i = 0; i < text.length; i++) has_sign |= strchr("<[|{`#", text.at[i]) != NULL;
    return has_sign && text.length >= 3;
}

static bool find_texts(const struct tool_samples *samples, struct derived_texts *out) {
    struct call_place one, first, second;
    if (!find_call(samples->one, samples->name, samples->arguments[0], &one) ||
        !find_call(samples->two, samples->name, samples->arguments[0], &first) ||
        !find_call(first.end, samples->name, samples->arguments[1], &second))
        return false;
    struct text_part close = before_tail(one.end, samples->tail);
    struct text_part last = before_tail(second.end, samples->tail);
    bool is_same = spans_equal(one.before, first.before) && spans_equal(one.middle, first.middle) &&
                   spans_equal(one.middle, second.middle) && close.at && last.at &&
                   spans_equal(close, last);
    *out = (struct derived_texts){one.before, one.middle, second.before, close};
    while (out->open.length > 0 && is_space(*out->open.at)) out->open.at++, out->open.length--;
    while (close.length > 0 && is_space(close.at[close.length - 1])) close.length--;
    out->close = close;
    return is_same && is_marker(out->open) && one.middle.length > 0 &&
           !is_name_byte(*one.middle.at) && fits_pattern(out->open) && fits_pattern(out->middle) &&
           fits_pattern(out->between) && fits_pattern(out->close);
}

/* ---- the format ----------------------------------------------------------------------------- */

struct derived_format {
    struct tool_format format; /* must be first */
    struct buf open, call, between, close;
};

static const char *copy(struct buf *to, struct text_part text) {
    buf_add(to, text.at, text.length);
    buf_puts(to, "");
    return to->data;
}

static struct tool_format *make_format(const struct derived_texts *texts) {
    struct derived_format *derived = mem_calloc(1, sizeof *derived);
    struct tool_form *form = &derived->format.forms[0];
    buf_puts(&derived->call, "%n");
    buf_add(&derived->call, texts->middle.at, texts->middle.length);
    buf_puts(&derived->call, "%a");
    assert(texts->open.length > 0 && texts->middle.length > 0);
    derived->format.names = "derived";
    form->open = form->marker = copy(&derived->open, texts->open);
    form->call = derived->call.data;
    form->between = copy(&derived->between, texts->between);
    if (texts->close.length > 0) form->close = copy(&derived->close, texts->close);
    return &derived->format;
}

void tool_format_free(struct tool_format *format) {
    struct derived_format *derived = (struct derived_format *)format;
    if (!derived) return;
    buf_free(&derived->open);
    buf_free(&derived->call);
    buf_free(&derived->between);
    buf_free(&derived->close);
    mem_free(derived);
}

/* Does the text read as these n calls, and nothing else before its tail? */
static bool reads_as(const struct tool_format *format, const struct tool_samples *samples,
                     const char *text, int n) {
    struct message_settings settings = {.tools = format};
    struct message_parser *parser = message_parser_new(&settings);
    struct message message = {0};
    message_parser_add(parser, text, before_tail(text, samples->tail).length, &message);
    message_parser_finish(parser, &message);
    assert(n >= 1 && n <= 2);
    bool is_right = message.n_calls == n && message.content.length == 0;
    for (int i = 0; i < n && is_right; i++) {
        const struct message_call *call = &message.calls[i];
        is_right = strcmp(call->name, samples->name) == 0 &&
                   (strcmp(call->arguments.data, samples->arguments[i][0]) == 0 ||
                    strcmp(call->arguments.data, samples->arguments[i][1]) == 0);
    }
    message_free(&message);
    message_parser_free(parser);
    return is_right;
}

struct tool_format *tool_format_derive(const struct tool_samples *samples) {
    struct derived_texts texts;
    if (strstr(samples->two, samples->id) || !find_texts(samples, &texts)) return NULL;
    struct tool_format *format = make_format(&texts);
    if (reads_as(format, samples, samples->one, 1) && reads_as(format, samples, samples->two, 2))
        return format;
    tool_format_free(format);
    return NULL;
}
