/* Reads answers of several parts, as gpt-oss writes them (OpenAI's harmony format):
 *
 *   <|channel|>analysis<|message|>Hm.<|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>
 *   <|start|>assistant<|channel|>final<|message|>Yes.<|return|>
 *
 * A header names the channel and the recipient. The analysis channel is reasoning. A part for a
 * function of the request is a call if its body is an object. All other parts are content. */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

#define MESSAGE "<|message|>"
#define CHANNEL "<|channel|>"
#define RECIPIENT "to=functions."
#define MAX_HEADER 256 /* bytes; longer text is not a header */

/* ---- headers -------------------------------------------------------------------------------- */

static void begin_body(struct message_parser *parser, enum harmony_body body) {
    parser->mode = MODE_BODY;
    parser->body = body;
    parser->start = parser->at;
    parser_drop_space(parser);
}

/* Reads the name of the called function. Returns false if the request does not have it. */
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
    assert(parser->start <= parser->at);
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

/* A header begins with a marker or a recipient; any other text is content without a header. */
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

/* Returns 2 if the text is a marker that ends a body, 1 if it is the beginning of one, else 0. */
static int match_end(const char *text, size_t length) {
    assert(length > 0);
    static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]);
        if (length <= n && memcmp(text, ends[i], length) == 0) return length == n ? 2 : 1;
    }
    return 0;
}

/* Reads content or reasoning up to a marker. */
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
    default: /* not an object: content, unless part of the call was already passed on */
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

/* An incomplete header is dropped: it is not content. */
void harmony_finish(struct message_parser *parser) {
    assert(parser->start <= parser->at);
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
