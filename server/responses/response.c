/* Writes responses and their items. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/responses/internal.h"

static void write_string(struct buf *out, const char *text) {
    json_write_string(out, text, strlen(text));
}

/* ---- items ---------------------------------------------------------------------------------- */

enum item_kind responses_kind(enum message_kind kind) {
    static const enum item_kind kinds[] = {[MESSAGE_REASONING] = ITEM_REASONING,
                                           [MESSAGE_CONTENT] = ITEM_MESSAGE,
                                           [MESSAGE_CALL] = ITEM_CALL};
    return kinds[kind];
}

void responses_write_item_id(struct buf *out, const struct api_answer *answer,
                             const struct output_item *item) {
    static const char *const prefixes[] = {"", "rs_", "msg_", "fc_"};
    const char *id = answer->request->id + strlen(api_responses.id_prefix);
    buf_puts(out, prefixes[item->kind]);
    json_write_part(out, id, strlen(id));
    buf_printf(out, "_%d", item->index);
}

void responses_write_part(struct buf *out, const struct output_item *item, bool is_done) {
    bool is_message = item->kind == ITEM_MESSAGE;
    buf_puts(out, is_message ? "{\"type\":\"output_text\",\"text\":"
                             : "{\"type\":\"reasoning_text\",\"text\":");
    json_write_string(out, item->text, is_done ? item->length : 0);
    buf_puts(out, is_message ? ",\"annotations\":[],\"logprobs\":[]}" : "}");
}

static void write_call(struct buf *out, const struct output_item *item, bool is_done) {
    buf_puts(out, ",\"call_id\":");
    write_string(out, item->call_id);
    buf_puts(out, ",\"name\":");
    write_string(out, item->name);
    buf_puts(out, ",\"arguments\":");
    json_write_string(out, item->text, is_done ? item->length : 0);
}

void responses_write_item(struct buf *out, const struct api_answer *answer,
                          const struct output_item *item, bool is_done) {
    static const char *const types[] = {"", "reasoning", "message", "function_call"};
    assert(item->kind != ITEM_NONE);
    buf_puts(out, "{\"id\":\"");
    responses_write_item_id(out, answer, item);
    buf_printf(out, "\",\"type\":\"%s\",\"status\":\"%s\"", types[item->kind],
               is_done ? "completed" : "in_progress");
    if (item->kind == ITEM_CALL) {
        write_call(out, item, is_done);
    } else {
        buf_puts(out, item->kind == ITEM_MESSAGE ? ",\"role\":\"assistant\",\"content\":["
                                                 : ",\"summary\":[],\"content\":[");
        if (is_done) responses_write_part(out, item, true);
        buf_puts(out, "]");
    }
    buf_puts(out, "}");
}

/* ---- responses ------------------------------------------------------------------------------ */

const char *responses_status(const char *finish_reason) {
    return api_is_cut(finish_reason) ? "incomplete" : "completed";
}

static void write_usage(struct buf *out, const struct api_usage *usage) {
    if (!usage) {
        buf_puts(out, "null");
        return;
    }
    buf_printf(out, "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d}",
               usage->prompt_tokens, usage->cached_tokens);
    buf_printf(out, ",\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":%d}",
               usage->completion_tokens, usage->reasoning_tokens);
    buf_printf(out, ",\"total_tokens\":%lld}",
               (long long)usage->prompt_tokens + usage->completion_tokens);
}

/* Codes that clients act on. */
static const char *error_code(const struct err *err) {
    if (err->code[0]) return err->code;
    int http = status_http(err->status);
    if (http == 429) return "rate_limit_exceeded";
    return http < 500 ? "invalid_prompt" : "server_error";
}

/* Writes the message. Codex reads from it when to try again. */
static void write_error_text(struct buf *out, const struct err *err) {
    struct buf text = {0};
    buf_puts(&text, err->message);
    if (status_http(err->status) == 429)
        buf_printf(&text, " Please try again in %ds.", max_int(err->retry_after_s, 1));
    json_write_string(out, text.data, text.length);
    buf_free(&text);
}

void responses_write_error(struct buf *out, const struct err *err) {
    if (!err) {
        buf_puts(out, "null");
        return;
    }
    buf_puts(out, "{\"code\":");
    write_string(out, error_code(err));
    buf_puts(out, ",\"message\":");
    write_error_text(out, err);
    buf_puts(out, "}");
}

/* Writes the settings of the request that a client may want to see again. */
static void write_settings(struct buf *out, const struct api_request *request) {
    static const char *const choices[] = {"none", "auto", "required"};
    if (request->max_tokens >= 0)
        buf_printf(out, ",\"max_output_tokens\":%d", request->max_tokens);
    else
        buf_puts(out, ",\"max_output_tokens\":null");
    buf_printf(out, ",\"temperature\":%.6g,\"top_p\":%.6g", (double)request->sampling.temperature,
               (double)request->sampling.top_p);
    buf_printf(out, ",\"tool_choice\":\"%s\",\"parallel_tool_calls\":%s",
               choices[request->tool_choice], request->parallel_tool_calls ? "true" : "false");
}

void responses_write(struct buf *out, const struct api_answer *answer, const char *status,
                     const struct buf *output, const struct api_usage *usage,
                     const struct err *err) {
    const struct api_request *request = answer->request;
    bool is_cut = strcmp(status, "incomplete") == 0;
    assert((err != NULL) == (strcmp(status, "failed") == 0));
    buf_puts(out, "{\"id\":");
    write_string(out, request->id);
    buf_printf(out, ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":",
               (long long)request->created, status);
    write_string(out, answer->model);
    buf_puts(out, ",\"output\":[");
    if (output->length > 0) buf_add(out, output->data, output->length);
    buf_puts(out, "],\"error\":");
    responses_write_error(out, err);
    buf_printf(out, ",\"incomplete_details\":%s",
               is_cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    write_settings(out, request);
    buf_printf(out, ",\"background\":%s,\"store\":%s,\"previous_response_id\":",
               request->background ? "true" : "false", request->stores ? "true" : "false");
    if (request->previous)
        write_string(out, request->previous);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"usage\":");
    write_usage(out, usage);
    buf_puts(out, "}");
}

/* ---- whole answers -------------------------------------------------------------------------- */

static void add_item(struct buf *output, const struct api_answer *answer,
                     struct output_item *item) {
    if (output->length > 0) buf_puts(output, ",");
    responses_write_item(output, answer, item, true);
    item->index++;
}

/* Adds a part of a message as an item. */
static void add_piece(struct buf *output, const struct api_answer *answer, struct output_item *item,
                      const struct message_piece *piece) {
    const struct message_call *call = piece->call;
    item->kind = responses_kind(piece->kind);
    item->text = call ? call->arguments.data : piece->text;
    item->length = call ? call->arguments.length : piece->length;
    item->call_id = call ? call->id : NULL;
    item->name = call ? call->name : NULL;
    add_item(output, answer, item);
}

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    const struct message *message = choices->message;
    struct buf output = {0};
    struct output_item item = {0};
    assert(n == 1);
    (void)n;
    struct message_piece piece = {MESSAGE_CONTENT, choices->text, choices->length, NULL};
    struct message_cursor at = {0};
    if (!message && piece.length > 0) add_piece(&output, answer, &item, &piece);
    while (message && message_next(message, &at, &piece)) add_piece(&output, answer, &item, &piece);
    responses_write(out, answer, responses_status(choices->finish_reason), &output, usage, NULL);
    buf_free(&output);
}

/* ---- the API -------------------------------------------------------------------------------- */

static void write_error_body(struct buf *out, const struct err *err, const char *request_id) {
    (void)request_id;
    if (status_http(err->status) != 429) {
        api_write_error(out, err);
        return;
    }
    buf_puts(out, "{\"error\":{\"message\":");
    write_error_text(out, err);
    buf_printf(out, ",\"type\":\"%s\",\"param\":null,\"code\":\"rate_limit_exceeded\"}}",
               status_type(err->status));
}

static void write_count(struct buf *out, int n_tokens) {
    buf_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%d}", n_tokens);
}

const struct api api_responses = {
    .path = "/v1/responses",
    .count_path = "/v1/responses/input_tokens",
    .fields = &responses_fields,
    .example = "\"input\":\"Hello\",\"max_output_tokens\":16",
    .answer_members = "id object created_at status model output usage",
    .error_members = "error",
    .id_prefix = "resp_",
    .has_one_prompt = true,
    .stream_type = "text/event-stream",
    .keep_alive = ": keep-alive\n",
    .state_size = sizeof(struct response_stream),
    .free_state = responses_free_stream,
    .keeps_answer = true,
    .parse = responses_parse,
    .write_response = write_response,
    .write_start = responses_write_start,
    .write_chunk = responses_write_chunk,
    .write_done = responses_write_done,
    .receipt_place = RECEIPT_EVENT,
    .write_error_event = responses_write_failed,
    .write_error = write_error_body,
    .write_document = responses_write_document,
    .write_broken = responses_write_broken,
    .write_last_event = responses_write_last_event,
    .previous_field = "previous_response_id",
    .write_continued = responses_write_continued,
    .write_input_items = responses_write_input_items,
    .write_count = write_count,
    .no_memory_body = API_NO_MEMORY,
    .no_memory_event = "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":"
                       "\"server_error\",\"message\":\"Not enough memory for this request.\","
                       "\"param\":null}\n\n",
};
