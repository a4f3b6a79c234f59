/* Reads answers of several parts, as gpt-oss writes them (OpenAI's harmony format):
 *
 *   <|channel|>analysis<|message|>Hm.<|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>
 *   <|start|>assistant<|channel|>final<|message|>Yes.<|return|>
 *
 * A header names the channel and the recipient. The analysis channel is reasoning. A part for a
 * function of the request is a call if its body is an object. All other parts are content.
 *
 * Inkling and Muse Glimmer have other headers (struct parts_style):
 *
 *   <|content_thinking|>Hm.<|end_message|>
 *   <|message_model|>f<|content_invoke_tool_json|>{"name": "f", "args": {}}<|end_message|>
 *   <|message_model|><|content_text|>Yes.<|end_message|>
 *
 *    to=self<|message|>Hm.<|eom|>
 *   <|start|>assistant to=f<|message|><atem:function_calls>...</atem:function_calls><|eom|>
 *   <|start|>assistant to=user<|message|>Yes.<|eot|> */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

#define MAX_HEADER 256 /* bytes; longer text is not a header */

/* ---- styles --------------------------------------------------------------------------------- */

const struct parts_style harmony_parts = {
    .heads = {"<|message|>"},
    .ends = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"},
    .thinks = "<|channel|>analysis",
    .calls = "to=functions.",
    .body = "%a",
    .is_named = true,
    .markers = "<|start|><|channel|><|constrain|><|message|><|end|><|call|><|return|>",
    .think_open = "<|channel|>analysis<|message|>",
    .think_close = "<|end|><|start|>assistant",
    .text_open = "<|channel|>commentary<|message|>",
    .final_open = "<|channel|>final<|message|>",
    .excludes = "[\"<|start|>\",\"<|channel|>\",\"<|message|>\",\"<|end|>\",\"<|call|>\","
                "\"<|return|>\"]",
    .think_end = "<|end|>",
    .before_final = "<|start|>assistant<|channel|>final<|message|>",
    .before_call = "<|start|>assistant<|channel|>commentary to=functions.",
};

const struct parts_style inkling_parts = {
    .heads = {"<|content_text|>", "<|content_thinking|>", "<|content_invoke_tool_json|>"},
    .ends = {"<|end_message|>", "<|content_model_end_sampling|>", "<|message_model|>"},
    .thinks = "<|content_thinking|>",
    .calls = "<|content_invoke_tool_json|>",
    .body = "%j",
    .has_words = true,
    .markers = "<|message_model|><|content_text|><|content_thinking|><|content_invoke_tool_json|>"
               "<|end_message|><|content_model_end_sampling|>",
    .think_open = "<|content_thinking|>",
    .think_close = "<|end_message|><|message_model|>",
    .text_open = "<|content_text|>",
    .final_open = "<|content_text|>",
    .final_close = "<|end_message|>",
    .excludes = "[\"<|message_model|>\",\"<|content_\",\"<|end_message|>\"]",
    .think_end = "<|end_message|>",
    .before_final = "<|message_model|><|content_text|>",
    .before_call = "<|message_model|>",
};

const struct parts_style muse_parts = {
    .heads = {"<|message|>"},
    .ends = {"<|eom|>", "<|eot|>", "<|start|>"},
    .thinks = "to=self<|message|>",
    .calls = "to=",
    .no_calls = {"to=self<|message|>", "to=user<|message|>"},
    .body = ATEM_CALL,
    .markers = "<|start|><|message|><|eom|><|eot|>",
    .think_open = " to=self<|message|>",
    .think_close = "<|eom|><|start|>assistant",
    .text_open = " to=user<|message|>",
    .final_open = " to=user<|message|>",
    .excludes = "[\"<|start|>\",\"<|message|>\",\"<|eom|>\",\"<|eot|>\"]",
    .think_end = "<|eom|>",
    .before_final = "<|start|>assistant to=user<|message|>",
    .before_call = "<|start|>assistant to=",
};

const struct parts_style *parts_of(const struct tool_format *tools,
                                   const struct reasoning_format *reasoning) {
    const struct parts_style *parts = tools ? tools->parts : NULL;
    return !parts && reasoning ? reasoning->parts : parts;
}

static const struct parts_style *style_of(const struct message_parser *parser) {
    const struct parts_style *parts = parts_of(parser->settings.tools, parser->settings.reasoning);
    assert(parts);
    return parts;
}

/* ---- headers -------------------------------------------------------------------------------- */

static void begin_body(struct message_parser *parser, enum harmony_body body) {
    parser->mode = MODE_BODY;
    parser->body = body;
    parser->start = parser->at;
    parser_drop_space(parser);
}

/* Begins to read a call if the header says one. Returns false if not, or if the header names a
 * function that the request does not have. */
static bool begin_call(struct message_parser *parser, const char *header, size_t length) {
    const struct parts_style *style = style_of(parser);
    struct name name = {0};
    const char *at = memmem(header, length, style->calls, strlen(style->calls));
    if (!at) return false;
    for (int i = 0; i < MAX_PART_MARKS && style->no_calls[i]; i++)
        if (memmem(header, length, style->no_calls[i], strlen(style->no_calls[i]))) return false;
    at += strlen(style->calls);
    while (style->is_named && at < header + length && is_name_byte(*at) && name_add(&name, *at))
        at++;
    bool is_known = name.length > 0 && tool_set_has(parser->settings.known, name.text);
    if (style->is_named && !is_known) return false;
    pattern_begin(&parser->reader, style->body, NULL);
    parser->reader.name = name;
    parser->reader.knows_name = style->is_named;
    return true;
}

static void read_header(struct message_parser *parser) {
    assert(parser->start <= parser->at);
    const char *thinks = style_of(parser)->thinks;
    const char *header = parser->input.data + parser->start;
    size_t length = parser->at - parser->start;
    if (parser->settings.tools && begin_call(parser, header, length))
        begin_body(parser, BODY_CALL);
    else if (parser->settings.reasoning && memmem(header, length, thinks, strlen(thinks)))
        begin_body(parser, BODY_REASONING);
    else
        begin_body(parser, BODY_CONTENT);
}

/* Does the text end with the end of a header? */
static bool ends_header(const struct parts_style *style, const char *header, size_t length) {
    for (int i = 0; i < MAX_PART_MARKS && style->heads[i]; i++) {
        size_t n = strlen(style->heads[i]);
        if (length >= n && memcmp(header + length - n, style->heads[i], n) == 0) return true;
    }
    return false;
}

/* A header begins with a marker, a recipient or, if the style has words, a name; any other text is
 * content without a header. */
static bool is_no_header(const struct parts_style *style, const char *text, size_t length) {
    size_t first = 0;
    while (first < length && is_space(text[first])) first++;
    if (first == length || text[first] == '<') return false;
    if (!style->has_words) return text[first] != 't';
    while (first < length && is_name_byte(text[first])) first++;
    return first < length && text[first] != '<';
}

static void step_header(struct message_parser *parser, char c) {
    const char *header = parser->input.data + parser->start;
    size_t length = ++parser->at - parser->start;
    bool is_none = is_no_header(style_of(parser), header, length);
    if (c == '>' && ends_header(style_of(parser), header, length)) {
        read_header(parser);
    } else if (is_none || length > MAX_HEADER) {
        parser->mode = MODE_BODY;
        parser->body = BODY_CONTENT;
        parser->at = parser->start;
    }
}

/* ---- bodies --------------------------------------------------------------------------------- */

/* Returns 2 if the text is a marker that ends a body, 1 if it is the beginning of one, else 0. */
static int match_end(const struct parts_style *style, const char *text, size_t length) {
    assert(length > 0);
    const char *const *ends = style->ends;
    for (int i = 0; i < MAX_PART_MARKS && ends[i]; i++) {
        size_t n = strlen(ends[i]);
        if (length <= n && memcmp(text, ends[i], length) == 0) return length == n ? 2 : 1;
    }
    return 0;
}

/* Reads content or reasoning up to a marker. */
static void step_text(struct message_parser *parser) {
    const char *from = parser->input.data + parser->start;
    int end = match_end(style_of(parser), from, ++parser->at - parser->start);
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

/* An incomplete header is dropped: it is not content. A single word is content. */
void harmony_finish(struct message_parser *parser) {
    assert(parser->start <= parser->at);
    const char *rest = parser->input.data + parser->start;
    size_t length = parser->at - parser->start;
    bool is_word = parser->mode == MODE_HEADER && style_of(parser)->has_words && length > 0 &&
                   !memchr(rest, '<', length);
    bool is_text = (parser->mode == MODE_BODY && !parser->is_announced) || is_word;
    if (is_word) parser->body = BODY_CONTENT;
    if (is_text && parser->body == BODY_REASONING) {
        for (size_t i = 0; i < length; i++) parser_add_reasoning(parser, rest[i]);
        parser_drop_space(parser);
    } else if (is_text) {
        parser_add_content(parser, rest, length);
    }
    parser->is_announced = false;
    parser->start = parser->at;
}
