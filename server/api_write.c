/* Whole answers: `completion` and `chat.completion`, and what they share with chunks. */
#include <string.h>

#include "server/api_internal.h"

/* ---- parts ---------------------------------------------------------------------------------- */

void write_envelope(struct buf *out, const struct api_request *request, const char *object,
                    const char *model) {
    buf_puts(out, "{\"id\":");
    json_write_string(out, request->id, strlen(request->id));
    buf_puts(out, ",\"object\":\"");
    buf_puts(out, object);
    buf_puts(out, "\",\"created\":");
    json_write_int(out, request->created);
    buf_puts(out, ",\"model\":");
    json_write_string(out, model, strlen(model));
    buf_puts(out, ",\"system_fingerprint\":\"penstock-");
    buf_puts(out, build_info().version);
    buf_puts(out, "\"");
}

static void write_stop_reason(struct buf *out, const struct api_choice *choice) {
    if (choice->stop_string) {
        json_write_string(out, choice->stop_string, strlen(choice->stop_string));
    } else if (choice->finish_reason && choice->stop_id >= 0) {
        json_write_int(out, choice->stop_id);
    } else {
        buf_puts(out, "null");
    }
}

void write_choice_end(struct buf *out, enum api_kind kind, const struct tokenizer *tokenizer,
                      const struct api_choice *choice) {
    buf_puts(out, ",\"logprobs\":");
    write_logprobs(out, kind, tokenizer, choice);
    buf_puts(out, ",\"finish_reason\":");
    if (choice->finish_reason) {
        json_write_string(out, choice->finish_reason, strlen(choice->finish_reason));
    } else {
        buf_puts(out, "null");
    }
    buf_puts(out, ",\"stop_reason\":");
    write_stop_reason(out, choice);
    if (choice->ids) {
        buf_puts(out, ",\"token_ids\":");
        json_write_ints(out, choice->ids, choice->n_ids);
    }
    if (choice->prompt_ids && kind == API_COMPLETION) {
        buf_puts(out, ",\"prompt_token_ids\":");
        json_write_ints(out, choice->prompt_ids, choice->n_prompt_ids);
    }
}

void write_usage(struct buf *out, const struct api_usage *usage) {
    if (!usage) {
        buf_puts(out, "null");
        return;
    }
    buf_puts(out, "{\"prompt_tokens\":");
    json_write_int(out, usage->prompt_tokens);
    buf_puts(out, ",\"completion_tokens\":");
    json_write_int(out, usage->completion_tokens);
    buf_puts(out, ",\"total_tokens\":");
    json_write_int(out, (int64_t)usage->prompt_tokens + usage->completion_tokens);
    buf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_write_int(out, usage->cached_tokens);
    buf_puts(out, "}}");
}

/* ---- whole answers -------------------------------------------------------------------------- */

static void write_choice(struct buf *out, enum api_kind kind, const struct tokenizer *tokenizer,
                         const struct api_choice *choice) {
    buf_puts(out, "{\"index\":");
    json_write_int(out, choice->index);
    buf_puts(out,
             kind == API_CHAT ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":");
    json_write_string(out, choice->text, choice->length);
    if (kind == API_CHAT) buf_puts(out, ",\"refusal\":null}");
    write_choice_end(out, kind, tokenizer, choice);
    buf_add(out, "}", 1);
}

void api_write_response(struct buf *out, const struct api_request *request, const char *model,
                        const struct tokenizer *tokenizer, const struct api_choice *choices, int n,
                        const struct api_usage *usage) {
    bool chat = request->kind == API_CHAT;
    write_envelope(out, request, chat ? "chat.completion" : "text_completion", model);
    buf_puts(out, ",\"choices\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_add(out, ",", 1);
        write_choice(out, request->kind, tokenizer, &choices[i]);
    }
    buf_puts(out, "],\"usage\":");
    write_usage(out, usage);
    if (chat && n > 0 && choices[0].prompt_ids) { /* one prompt for all choices: it stands once */
        buf_puts(out, ",\"prompt_token_ids\":");
        json_write_ints(out, choices[0].prompt_ids, choices[0].n_prompt_ids);
    }
    buf_add(out, "}", 1);
}

/* ---- the smaller documents ------------------------------------------------------------------ */

static void write_model(struct buf *out, const char *model, int max_model_len, int64_t created) {
    buf_puts(out, "{\"id\":");
    json_write_string(out, model, strlen(model));
    buf_puts(out, ",\"object\":\"model\",\"created\":");
    json_write_int(out, created);
    buf_puts(out, ",\"owned_by\":\"penstock\",\"root\":");
    json_write_string(out, model, strlen(model));
    buf_puts(out, ",\"parent\":null,\"max_model_len\":");
    json_write_int(out, max_model_len);
    buf_add(out, "}", 1);
}

void api_write_models(struct buf *out, const char *model, int max_model_len, int64_t created,
                      bool list) {
    if (list) buf_puts(out, "{\"object\":\"list\",\"data\":[");
    write_model(out, model, max_model_len, created);
    if (list) buf_puts(out, "]}");
}

void api_write_tokens(struct buf *out, const struct tokenizer *tokenizer, const int32_t *ids, int n,
                      int max_model_len, bool strings) {
    buf_puts(out, "{\"count\":");
    json_write_int(out, n);
    buf_puts(out, ",\"max_model_len\":");
    json_write_int(out, max_model_len);
    buf_puts(out, ",\"tokens\":");
    json_write_ints(out, ids, n);
    buf_puts(out, ",\"token_strs\":");
    if (!strings) buf_puts(out, "null");
    for (int i = 0; strings && i < n; i++) {
        const char *name = tokenizer_token_name(tokenizer, ids[i]);
        buf_puts(out, i > 0 ? "," : "[");
        json_write_string(out, name, strlen(name));
    }
    if (strings) buf_puts(out, n > 0 ? "]" : "[]");
    buf_add(out, "}", 1);
}

void api_write_text(struct buf *out, const char *text, size_t length) {
    buf_puts(out, "{\"prompt\":");
    json_write_string(out, text, length);
    buf_add(out, "}", 1);
}
