/* `penstock parse`: converts an answer's text to the message that a client would get. */
#include <stdio.h>
#include <string.h>

#include "server/app/app.h"
#include "server/commands/commands.h"
#include "server/json/json.h"

static void write_text(struct buf *out, const char *name, const struct buf *text) {
    buf_printf(out, "\"%s\": ", name);
    if (text->length > 0)
        json_write_string(out, text->data, text->length);
    else
        buf_puts(out, "null");
}

static void print_message(const struct message *message) {
    struct buf out = {0};
    buf_puts(&out, "{");
    write_text(&out, "reasoning", &message->reasoning);
    buf_puts(&out, ", ");
    write_text(&out, "content", &message->content);
    buf_puts(&out, ", \"tool_calls\": [");
    for (int i = 0; i < message->n_calls; i++) {
        const struct message_call *call = &message->calls[i];
        buf_printf(&out, "%s{\"index\": %d, ", i > 0 ? ", " : "", call->index);
        if (call->begins)
            buf_printf(&out, "\"id\": \"%s\", \"name\": \"%s\", ", call->id, call->name);
        buf_puts(&out, "\"arguments\": ");
        json_write_string(&out, call->arguments.data, call->arguments.length);
        buf_puts(&out, "}");
    }
    buf_puts(&out, "]}");
    printf("%s\n", out.data);
    buf_free(&out);
}

/* Prints the new part of the message, if any, and clears it. */
static void print_delta(struct message *message) {
    if (!message_is_empty(message)) print_message(message);
    message_clear(message);
}

static void parse(const struct message_settings *settings, const struct buf *text, bool deltas) {
    struct message_parser *parser = message_parser_new(settings);
    struct message message = {0};
    for (size_t i = 0; i < text->length; i++) {
        message_parser_add(parser, text->data + i, 1, &message);
        if (deltas) print_delta(&message);
    }
    message_parser_finish(parser, &message);
    if (deltas)
        print_delta(&message);
    else
        print_message(&message);
    message_free(&message);
    message_parser_free(parser);
}

/* Without a model, `auto` finds no format. */
int command_parse(struct options *options) {
    struct buf text = {0};
    struct err err;
    struct message_settings settings = {
        .tools = tool_format_find(options->api.tool_call_parser),
        .reasoning = reasoning_format_find(options->api.reasoning_parser),
        .stream_calls = options->deltas,
    };
    if (app_check_parsers(options, &err)) return print_error(&err);
    int code = read_input(&text);
    if (code == 0) parse(&settings, &text, options->deltas);
    buf_free(&text);
    return code;
}
