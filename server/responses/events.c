/* Writes the stream of a response: numbered events. Each output item is opened, grows and is
 * closed; the last event repeats the whole response. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/responses/internal.h"

/* The names of an item's events. */
static const struct {
    const char *delta, *done; /* of its text */
    const char *member;       /* that holds the whole text in `done` */
} names[] = {
    [ITEM_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done", "text"},
    [ITEM_MESSAGE] = {"response.output_text.delta", "response.output_text.done", "text"},
    [ITEM_CALL] = {"response.function_call_arguments.delta",
                   "response.function_call_arguments.done", "arguments"},
};

void responses_free_stream(void *state) {
    struct response_stream *stream = state;
    buf_free(&stream->output);
    buf_free(&stream->text);
}

/* ---- events --------------------------------------------------------------------------------- */

static void begin_event(struct buf *out, const struct api_answer *answer, const char *type) {
    struct response_stream *stream = answer->state;
    buf_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d", type, type,
               stream->n_events++);
}

static void end_event(struct buf *out) {
    buf_puts(out, "}\n\n");
}

/* Writes an event that holds the response. */
static void write_response(struct buf *out, const struct api_answer *answer, const char *type,
                           const char *status, const struct api_usage *usage,
                           const struct err *err) {
    const struct response_stream *stream = answer->state;
    begin_event(out, answer, type);
    buf_puts(out, ",\"response\":");
    responses_write(out, answer, status, &stream->output, usage, err);
    end_event(out);
}

void responses_write_start(struct buf *out, const struct api_answer *answer, int index,
                           const struct api_usage *usage) {
    assert(index == 0);
    (void)index;
    (void)usage;
    write_response(out, answer, "response.created", "in_progress", NULL, NULL);
    write_response(out, answer, "response.in_progress", "in_progress", NULL, NULL);
}

/* ---- items ---------------------------------------------------------------------------------- */

/* Returns the open item with its text so far. */
static struct output_item open_item(const struct response_stream *stream) {
    assert(stream->open != ITEM_NONE && stream->n_items > 0);
    return (struct output_item){.kind = stream->open,
                                .index = stream->n_items - 1,
                                .call_id = stream->call_id,
                                .name = stream->name,
                                .text = stream->text.data ? stream->text.data : "",
                                .length = stream->text.length};
}

/* Begins an event of the open item, with the place of its text. */
static void begin_item_event(struct buf *out, const struct api_answer *answer,
                             const struct output_item *item, const char *type) {
    begin_event(out, answer, type);
    buf_puts(out, ",\"item_id\":\"");
    responses_write_item_id(out, answer, item);
    buf_printf(out, "\",\"output_index\":%d", item->index);
    if (item->kind != ITEM_CALL) buf_puts(out, ",\"content_index\":0");
}

static void write_item_event(struct buf *out, const struct api_answer *answer,
                             const struct output_item *item, const char *type, bool is_done) {
    begin_event(out, answer, type);
    buf_printf(out, ",\"output_index\":%d,\"item\":", item->index);
    responses_write_item(out, answer, item, is_done);
    end_event(out);
}

static void write_part_event(struct buf *out, const struct api_answer *answer,
                             const struct output_item *item, const char *type, bool is_done) {
    if (item->kind == ITEM_CALL) return;
    begin_item_event(out, answer, item, type);
    buf_puts(out, ",\"part\":");
    responses_write_part(out, item, is_done);
    end_event(out);
}

static void close_item(struct buf *out, const struct api_answer *answer) {
    struct response_stream *stream = answer->state;
    if (stream->open == ITEM_NONE) return;
    struct output_item item = open_item(stream);
    begin_item_event(out, answer, &item, names[item.kind].done);
    if (item.kind == ITEM_CALL) {
        buf_puts(out, ",\"name\":");
        json_write_string(out, item.name, strlen(item.name));
    }
    buf_printf(out, ",\"%s\":", names[item.kind].member);
    json_write_string(out, item.text, item.length);
    if (item.kind == ITEM_MESSAGE) buf_puts(out, ",\"logprobs\":[]");
    end_event(out);
    write_part_event(out, answer, &item, "response.content_part.done", true);
    write_item_event(out, answer, &item, "response.output_item.done", true);
    if (stream->output.length > 0) buf_puts(&stream->output, ",");
    responses_write_item(&stream->output, answer, &item, true);
    buf_clear(&stream->text);
    stream->open = ITEM_NONE;
}

/* Opens an item unless one of this kind is open. Each call is an item of its own. */
static void begin_item(struct buf *out, const struct api_answer *answer, enum item_kind kind,
                       const struct message_call *call) {
    struct response_stream *stream = answer->state;
    if (stream->open == kind && !call) return;
    close_item(out, answer);
    stream->open = kind;
    stream->n_items++;
    if (call) {
        snprintf(stream->call_id, sizeof stream->call_id, "%s", call->id);
        snprintf(stream->name, sizeof stream->name, "%s", call->name);
    }
    struct output_item item = open_item(stream);
    write_item_event(out, answer, &item, "response.output_item.added", false);
    write_part_event(out, answer, &item, "response.content_part.added", false);
}

static void add_delta(struct buf *out, const struct api_answer *answer, const char *text,
                      size_t length) {
    struct response_stream *stream = answer->state;
    if (length == 0) return;
    struct output_item item = open_item(stream);
    begin_item_event(out, answer, &item, names[item.kind].delta);
    buf_puts(out, ",\"delta\":");
    json_write_string(out, text, length);
    if (item.kind == ITEM_MESSAGE) buf_puts(out, ",\"logprobs\":[]");
    end_event(out);
    buf_add(&stream->text, text, length);
}

static void add_text(struct buf *out, const struct api_answer *answer, enum item_kind kind,
                     const char *text, size_t length) {
    if (length == 0) return;
    begin_item(out, answer, kind, NULL);
    add_delta(out, answer, text, length);
}

static void add_call(struct buf *out, const struct api_answer *answer,
                     const struct message_call *call) {
    const struct response_stream *stream = answer->state;
    if (call->begins) begin_item(out, answer, ITEM_CALL, call);
    assert(stream->open == ITEM_CALL);
    add_delta(out, answer, call->arguments.data, call->arguments.length);
}

static void add_message(struct buf *out, const struct api_answer *answer,
                        const struct message *message) {
    struct message_cursor at = {0};
    struct message_piece piece;
    while (message_next(message, &at, &piece)) {
        if (piece.call)
            add_call(out, answer, piece.call);
        else
            add_text(out, answer, responses_kind(piece.kind), piece.text, piece.length);
    }
}

void responses_write_chunk(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choice, const struct api_usage *usage) {
    struct response_stream *stream = answer->state;
    const struct message *message = choice->message;
    (void)usage;
    if (message)
        add_message(out, answer, message);
    else
        add_text(out, answer, ITEM_MESSAGE, choice->text, choice->length);
    if (choice->finish_reason) stream->finish_reason = choice->finish_reason;
}

/* ---- ends ----------------------------------------------------------------------------------- */

void responses_write_done(struct buf *out, const struct api_answer *answer,
                          const struct api_usage *usage) {
    const struct response_stream *stream = answer->state;
    const char *status = responses_status(stream->finish_reason);
    char type[32];
    close_item(out, answer);
    snprintf(type, sizeof type, "response.%s", status);
    write_response(out, answer, type, status, usage, NULL);
}

void responses_write_failed(struct buf *out, const struct api_answer *answer,
                            const struct err *err) {
    const struct response_stream *stream = answer->state;
    if (stream->n_events == 0) responses_write_start(out, answer, 0, NULL);
    close_item(out, answer);
    write_response(out, answer, "response.failed", "failed", NULL, err);
}
