/* Writes the messages and streams of /v1/messages. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/anthropic/internal.h"

/* ---- parts ---------------------------------------------------------------------------------- */

static void write_string(struct buf *out, const char *text) {
    json_write_string(out, text, strlen(text));
}

/* Prompt tokens from the cache are not part of input_tokens. */
static void write_usage(struct buf *out, const struct api_usage *usage) {
    buf_printf(out,
               "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,"
               "\"cache_read_input_tokens\":%d,\"output_tokens\":%d}",
               usage->prompt_tokens - usage->cached_tokens, usage->cached_tokens,
               usage->completion_tokens);
}

/* Writes a message up to its content. */
static void write_head(struct buf *out, const struct api_answer *answer) {
    buf_puts(out, "{\"id\":");
    write_string(out, answer->request->id);
    buf_puts(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    write_string(out, answer->model);
    buf_puts(out, ",\"content\":[");
}

/* How an answer ended. */
struct ending {
    const char *finish_reason, *stop_string;
    bool has_calls;
};

static void write_ending(struct buf *out, const struct ending *ending) {
    const char *reason = "end_turn";
    if (api_is_cut(ending->finish_reason)) /* it cannot say that a deadline has passed */
        reason = "max_tokens";
    else if (ending->stop_string)
        reason = "stop_sequence";
    else if (ending->has_calls)
        reason = "tool_use";
    buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (ending->stop_string)
        write_string(out, ending->stop_string);
    else
        buf_puts(out, "null");
}

/* Clients send a signature back with the thoughts, and it is ignored then. */
static void write_signature(struct buf *out, const struct api_answer *answer) {
    write_string(out, answer->request->id);
}

/* ---- whole messages ------------------------------------------------------------------------- */

static void begin_block(struct buf *out) {
    if (out->data[out->length - 1] != '[') buf_puts(out, ",");
}

/* Writes a call. Arguments that max_tokens has cut are no JSON: they are left out. */
static void write_call(struct buf *out, const struct message_call *call) {
    begin_block(out);
    buf_puts(out, "{\"type\":\"tool_use\",\"id\":");
    write_string(out, call->id);
    buf_puts(out, ",\"name\":");
    write_string(out, call->name);
    buf_puts(out, ",\"input\":");
    json_write_object(out, &call->arguments);
    buf_puts(out, "}");
}

static void write_text(struct buf *out, const char *text, size_t length) {
    begin_block(out);
    buf_puts(out, "{\"type\":\"text\",\"text\":");
    json_write_string(out, text, length);
    buf_puts(out, "}");
}

static void write_thoughts(struct buf *out, const struct api_answer *answer, const char *text,
                           size_t length) {
    begin_block(out);
    buf_puts(out, "{\"type\":\"thinking\",\"thinking\":");
    json_write_string(out, text, length);
    buf_puts(out, ",\"signature\":");
    write_signature(out, answer);
    buf_puts(out, "}");
}

static void write_content(struct buf *out, const struct api_answer *answer,
                          const struct api_choice *choice) {
    const struct message *message = choice->message;
    if (!message) {
        write_text(out, choice->text, choice->length);
        return;
    }
    struct message_cursor at = {0};
    struct message_piece piece;
    while (message_next(message, &at, &piece)) {
        if (piece.call)
            write_call(out, piece.call);
        else if (piece.kind == MESSAGE_REASONING)
            write_thoughts(out, answer, piece.text, piece.length);
        else
            write_text(out, piece.text, piece.length);
    }
}

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    assert(n == 1);
    (void)n;
    const struct message *message = choices->message;
    struct ending ending = {choices->finish_reason, choices->stop_string,
                            message && message->n_calls > 0};
    write_head(out, answer);
    write_content(out, answer, choices);
    buf_puts(out, "],");
    write_ending(out, &ending);
    buf_puts(out, ",");
    write_usage(out, usage);
    buf_puts(out, "}");
}

/* ---- streams -------------------------------------------------------------------------------- */

enum block { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_TOOL };

/* The state of a stream: the blocks so far, of which the last may be open. */
struct stream {
    enum block open;
    int n_blocks;
    struct ending ending;
};

/* Writes an event up to the members after its type. */
static void begin_event(struct buf *out, const char *type) {
    buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_event(struct buf *out) {
    buf_puts(out, "}\n\n");
}

static void write_start(struct buf *out, const struct api_answer *answer, int index,
                        const struct api_usage *usage) {
    assert(index == 0);
    (void)index;
    begin_event(out, "message_start");
    buf_puts(out, ",\"message\":");
    write_head(out, answer);
    buf_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    write_usage(out, usage);
    buf_puts(out, "}");
    end_event(out);
}

static void begin_delta(struct buf *out, const struct stream *stream, const char *type) {
    begin_event(out, "content_block_delta");
    buf_printf(out, ",\"index\":%d,\"delta\":{\"type\":\"%s\"", stream->n_blocks - 1, type);
}

static void end_delta(struct buf *out) {
    buf_puts(out, "}");
    end_event(out);
}

static void close_block(struct buf *out, const struct api_answer *answer) {
    struct stream *stream = answer->state;
    if (stream->open == BLOCK_NONE) return;
    if (stream->open == BLOCK_THINKING) {
        begin_delta(out, stream, "signature_delta");
        buf_puts(out, ",\"signature\":");
        write_signature(out, answer);
        end_delta(out);
    }
    begin_event(out, "content_block_stop");
    buf_printf(out, ",\"index\":%d", stream->n_blocks - 1);
    end_event(out);
    stream->open = BLOCK_NONE;
}

/* Opens a block unless one of this kind is open. Each call is a block of its own. */
static void open_block(struct buf *out, const struct api_answer *answer, enum block kind,
                       const struct message_call *call) {
    struct stream *stream = answer->state;
    if (stream->open == kind && !call) return;
    close_block(out, answer);
    begin_event(out, "content_block_start");
    buf_printf(out, ",\"index\":%d,\"content_block\":", stream->n_blocks);
    if (kind == BLOCK_THINKING)
        buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    else if (kind == BLOCK_TEXT)
        buf_puts(out, "{\"type\":\"text\",\"text\":\"\"}");
    else {
        buf_puts(out, "{\"type\":\"tool_use\",\"id\":");
        write_string(out, call->id);
        buf_puts(out, ",\"name\":");
        write_string(out, call->name);
        buf_puts(out, ",\"input\":{}}");
    }
    end_event(out);
    stream->open = kind;
    stream->n_blocks++;
}

static void write_delta(struct buf *out, const struct api_answer *answer, const char *type,
                        const char *name, const char *text, size_t length) {
    if (length == 0) return;
    begin_delta(out, answer->state, type);
    buf_printf(out, ",\"%s\":", name);
    json_write_string(out, text, length);
    end_delta(out);
}

static void add_text(struct buf *out, const struct api_answer *answer, const char *text,
                     size_t length) {
    if (length == 0) return;
    open_block(out, answer, BLOCK_TEXT, NULL);
    write_delta(out, answer, "text_delta", "text", text, length);
}

static void add_call(struct buf *out, const struct api_answer *answer,
                     const struct message_call *call) {
    struct stream *stream = answer->state;
    if (call->begins) open_block(out, answer, BLOCK_TOOL, call);
    assert(stream->open == BLOCK_TOOL);
    stream->ending.has_calls = true;
    write_delta(out, answer, "input_json_delta", "partial_json", call->arguments.data,
                call->arguments.length);
}

static void add_thoughts(struct buf *out, const struct api_answer *answer, const char *text,
                         size_t length) {
    open_block(out, answer, BLOCK_THINKING, NULL);
    write_delta(out, answer, "thinking_delta", "thinking", text, length);
}

static void add_message(struct buf *out, const struct api_answer *answer,
                        const struct message *message) {
    struct message_cursor at = {0};
    struct message_piece piece;
    while (message_next(message, &at, &piece)) {
        if (piece.call)
            add_call(out, answer, piece.call);
        else if (piece.kind == MESSAGE_REASONING)
            add_thoughts(out, answer, piece.text, piece.length);
        else
            add_text(out, answer, piece.text, piece.length);
    }
}

static void write_chunk(struct buf *out, const struct api_answer *answer,
                        const struct api_choice *choice, const struct api_usage *usage) {
    struct stream *stream = answer->state;
    (void)usage;
    if (choice->message)
        add_message(out, answer, choice->message);
    else
        add_text(out, answer, choice->text, choice->length);
    if (!choice->finish_reason) return;
    stream->ending.finish_reason = choice->finish_reason;
    stream->ending.stop_string = choice->stop_string;
}

static void write_done(struct buf *out, const struct api_answer *answer,
                       const struct api_usage *usage) {
    const struct stream *stream = answer->state;
    close_block(out, answer);
    begin_event(out, "message_delta");
    buf_puts(out, ",\"delta\":{");
    write_ending(out, &stream->ending);
    buf_puts(out, "},");
    write_usage(out, usage);
    end_event(out);
    begin_event(out, "message_stop");
    end_event(out);
}

/* ---- errors --------------------------------------------------------------------------------- */

static const char *error_type(enum status status) {
    static const struct {
        int http;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"},
                 {404, "not_found_error"},      {413, "request_too_large"},
                 {429, "rate_limit_error"},     {503, "overloaded_error"}};
    int http = status_http(status);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].http == http) return types[i].type;
    bool is_clients = http < 500 || status == STATUS_HTTP_VERSION;
    return is_clients ? "invalid_request_error" : "api_error";
}

static void write_error(struct buf *out, const struct err *err, const char *request_id) {
    assert(err->status != STATUS_OK);
    buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
               error_type(err->status));
    write_string(out, err->message);
    buf_puts(out, "},\"request_id\":");
    write_string(out, request_id);
    buf_puts(out, "}");
}

static void write_error_event(struct buf *out, const struct api_answer *answer,
                              const struct err *err) {
    buf_puts(out, "event: error\ndata: ");
    write_error(out, err, answer->request->id);
    buf_puts(out, "\n\n");
}

static void write_count(struct buf *out, int n_tokens) {
    buf_printf(out, "{\"input_tokens\":%d}", n_tokens);
}

/* ---- the API -------------------------------------------------------------------------------- */

#define NO_MEMORY                                                                                  \
    "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Not enough "       \
    "memory "                                                                                      \
    "for this request: try again later, or send a smaller one.\"},\"request_id\":null}"

const struct api api_messages = {
    .path = "/v1/messages",
    .count_path = "/v1/messages/count_tokens",
    .fields = &messages_fields,
    .example = "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":16",
    .answer_members = "id type role model content stop_reason stop_sequence usage",
    .error_members = "type error request_id",
    .id_prefix = "msg_",
    .has_one_prompt = true,
    .stream_type = "text/event-stream",
    .keep_alive = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    .id_header = "request-id",
    .state_size = sizeof(struct stream),
    .parse = messages_parse,
    .write_response = write_response,
    .write_start = write_start,
    .write_chunk = write_chunk,
    .write_done = write_done,
    .receipt_place = RECEIPT_EVENT,
    .write_error_event = write_error_event,
    .write_error = write_error,
    .write_count = write_count,
    .no_memory_body = NO_MEMORY,
    .no_memory_event = "event: error\ndata: " NO_MEMORY "\n\n",
};
