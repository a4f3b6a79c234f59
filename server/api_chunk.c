/* Server-sent events. Each is `data: {json}` and an empty line; JSON strings hold no raw line
 * break, so none is torn. */
#include <string.h>

#include "server/api_internal.h"

static void begin(struct buf *out, const struct api_request *request, const char *model) {
    bool chat = request->kind == API_CHAT;
    buf_puts(out, "data: ");
    write_envelope(out, request, chat ? "chat.completion.chunk" : "text_completion", model);
    buf_puts(out, ",\"choices\":[");
}

/* Ends the choices and the event. Where usage was asked for every chunk has the field. */
static void end(struct buf *out, const struct api_request *request, const struct api_usage *usage) {
    buf_add(out, "]", 1);
    if (request->include_usage || usage) {
        buf_puts(out, ",\"usage\":");
        write_usage(out, usage);
    }
}

void api_write_role_chunk(struct buf *out, const struct api_request *request, const char *model,
                          int index) {
    begin(out, request, model);
    buf_puts(out, "{\"index\":");
    json_write_int(out, index);
    buf_puts(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                  "\"finish_reason\":null,\"stop_reason\":null}");
    end(out, request, NULL);
    buf_puts(out, "}\n\n");
}

static void write_delta(struct buf *out, enum api_kind kind, const struct api_choice *choice) {
    if (kind == API_COMPLETION) {
        buf_puts(out, ",\"text\":");
        json_write_string(out, choice->text, choice->length);
    } else if (choice->length == 0) {
        buf_puts(out, ",\"delta\":{}");
    } else {
        buf_puts(out, ",\"delta\":{\"content\":");
        json_write_string(out, choice->text, choice->length);
        buf_add(out, "}", 1);
    }
}

void api_write_chunk(struct buf *out, const struct api_request *request, const char *model,
                     const struct tokenizer *tokenizer, const struct api_choice *choice,
                     const struct api_usage *continuous_usage) {
    begin(out, request, model);
    buf_puts(out, "{\"index\":");
    json_write_int(out, choice->index);
    write_delta(out, request->kind, choice);
    write_choice_end(out, request->kind, tokenizer, choice);
    buf_add(out, "}", 1);
    end(out, request, continuous_usage);
    if (request->kind == API_CHAT && choice->prompt_ids) {
        buf_puts(out, ",\"prompt_token_ids\":");
        json_write_ints(out, choice->prompt_ids, choice->n_prompt_ids);
    }
    buf_puts(out, "}\n\n");
}

void api_write_usage_chunk(struct buf *out, const struct api_request *request, const char *model,
                           const struct api_usage *usage) {
    begin(out, request, model);
    end(out, request, usage);
    buf_puts(out, "}\n\n");
}

void api_write_done(struct buf *out) {
    buf_puts(out, "data: [DONE]\n\n");
}

void api_write_error_event(struct buf *out, const struct err *err) {
    buf_puts(out, "data: ");
    api_write_error(out, err);
    buf_puts(out, "\n\n");
}
