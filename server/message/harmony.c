/* Answers of several parts, as gpt-oss writes them (OpenAI's harmony format):
 *
 *   <|channel|>analysis<|message|>Hm.<|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>
 *   <|start|>assistant<|channel|>final<|message|>Yes.<|return|>
 *
 * A header names the channel and who is called. The analysis is thoughts; what is said to a
 * function that the request has is a call, if it is an object; all else is content. */
#include <string.h>

#include "server/message/internal.h"

#define MESSAGE "<|message|>"
#define CHANNEL "<|channel|>"
#define RECIPIENT "to=functions."
#define MAX_HEADER 256 /* bytes; a longer one is none */

/* ---- headers -------------------------------------------------------------------------------- */

static void begin_body(struct message_parser *parser, enum harmony_body body) {
    parser->mode = MODE_BODY;
    parser->body = body;
    parser->start = parser->at;
    parser_drop_space(parser);
}

/* Reads the name of the function that is called. */
static bool read_recipient(struct message_parser *parser, const char *header, size_t length) {
    struct name name = {0};
    const char *at = memmem(header, length, RECIPIENT, strlen(RECIPIENT));
    if (!at) return false;
    at += strlen(RECIPIENT);
    while (at < header + length && is_name_byte(*at) && name_add(&name, *at)) at++;
    if (name.length == 0 || !tool_set_has(parser->settings.known, name.text)) return false;
    pattern_begin(&parser->reader, "%a", NULL);
    parser->reader.name = name;
    parser->reader.knows_name = true;
    return true;
}

static void read_header(struct message_parser *parser) {
    static const char analysis[] = CHANNEL "analysis";
    const char *header = parser->input.data + parser->start;
    size_t length = parser->at - parser->start;
    if (parser->settings.tools && read_recipient(parser, header, length))
        begin_body(parser, BODY_CALL);
    else if (parser->settings.reasoning && memmem(header, length, analysis, strlen(analysis)))
        begin_body(parser, BODY_REASONING);
    else
        begin_body(parser, BODY_CONTENT);
}

/* A header begins with a marker or a recipient; anything else is content without one. */
static void step_header(struct message_parser *parser, char c) {
    const char *header = parser->input.data + parser->start;
    size_t length = ++parser->at - parser->start, n = strlen(MESSAGE), first = 0;
    while (first < length && is_space(header[first])) first++;
    bool is_none = first < length && header[first] != '<' && header[first] != 't';
    if (c == '>' && length >= n && memcmp(header + length - n, MESSAGE, n) == 0) {
        read_header(parser);
    } else if (is_none || length > MAX_HEADER) {
        parser->mode = MODE_BODY;
        parser->body = BODY_CONTENT;
        parser->at = parser->start;
    }
}

/* ---- bodies --------------------------------------------------------------------------------- */

/* Is the text a marker that ends a body (2), the beginning of one (1), or neither (0)? */
static int match_end(const char *text, size_t length) {
    static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]);
        if (length <= n && memcmp(text, ends[i], length) == 0) return length == n ? 2 : 1;
    }
    return 0;
}

/* Content or thoughts, up to a marker. */
static void step_text(struct message_parser *parser) {
    const char *from = parser->input.data + parser->start;
    int end = match_end(from, ++parser->at - parser->start);
    if (end == 1) return;
    if (end == 2) {
        if (parser->body == BODY_REASONING) parser_drop_space(parser);
        parser->start = parser->at;
        parser->mode = MODE_HEADER;
        return;
    }
    parser->at = ++parser->start;
    if (parser->body == BODY_REASONING)
        parser_add_reasoning(parser, *from);
    else
        parser_add_content(parser, from, 1);
}

static void step_call(struct message_parser *parser, char c) {
    switch (pattern_add(&parser->reader, c, parser->settings.known)) {
    case READ_DONE:
        parser->start = ++parser->at;
        parser_end_call(parser);
        parser->body = BODY_BEHIND_CALL;
        return;
    case READ_MORE:
        parser->at++;
        if (!parser->settings.stream_calls || !parser->reader.has_arguments) return;
        parser_give_call(parser);
        parser->start = parser->at;
        return;
    default: /* no object: content, unless it was given as a call before */
        parser->is_announced = false;
        parser->body = BODY_CONTENT;
        parser->at = parser->start;
    }
}

/* ---- parts ---------------------------------------------------------------------------------- */

void harmony_step(struct message_parser *parser, char c) {
    if (parser->mode == MODE_HEADER)
        step_header(parser, c);
    else if (parser->body == BODY_CALL)
        step_call(parser, c);
    else
        step_text(parser);
}

/* A header that was cut off is no content. */
void harmony_finish(struct message_parser *parser) {
    const char *rest = parser->input.data + parser->start;
    size_t length = parser->at - parser->start;
    bool is_text = parser->mode == MODE_BODY && !parser->is_announced;
    if (is_text && parser->body == BODY_REASONING) {
        for (size_t i = 0; i < length; i++) parser_add_reasoning(parser, rest[i]);
        parser_drop_space(parser);
    } else if (is_text) {
        parser_add_content(parser, rest, length);
    }
    parser->is_announced = false;
    parser->start = parser->at;
}
