/* Writes Ollama's answers: one JSON object per line. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/ollama/internal.h"

/* The state of an answer's lines. A stream has a call as parts, but a line has whole calls: the
 * open call is kept until the next one begins or the answer ends. */
struct lines {
    bool has_call;
    char name[MAX_TOOL_NAME + 1];
    struct buf arguments; /* of the open call */
    const char *finish_reason;
};

static void free_lines(void *state) {
    buf_free(&((struct lines *)state)->arguments);
}

/* ---- parts of a line ------------------------------------------------------------------------ */

static void write_head(struct buf *out, const struct api_answer *answer) {
    buf_puts(out, "{\"model\":");
    json_write_string(out, answer->model, strlen(answer->model));
    buf_puts(out, ",\"created_at\":");
    api_write_time(out, answer->request->created);
    buf_puts(out, ",");
}

static void write_call(struct buf *out, const char *name, const struct buf *arguments) {
    buf_puts(out, "{\"function\":{\"name\":");
    json_write_string(out, name, strlen(name));
    buf_puts(out, ",\"arguments\":");
    json_write_object(out, arguments);
    buf_puts(out, "}}");
}

/* Writes "done_reason" and the counts, which end the last line. */
static void write_tail(struct buf *out, const struct api_answer *answer, const char *finish_reason,
                       const struct api_usage *usage) {
    if (answer->request->only_loads) {
        buf_puts(out, ",\"done\":true,\"done_reason\":\"load\"}");
        return;
    }
    buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\"",
               api_is_cut(finish_reason) ? finish_reason : "stop");
    buf_printf(out, ",\"total_duration\":%llu,\"load_duration\":0",
               (unsigned long long)(usage->prompt_ns + usage->generation_ns));
    buf_printf(out, ",\"prompt_eval_count\":%d,\"prompt_eval_duration\":%llu", usage->prompt_tokens,
               (unsigned long long)usage->prompt_ns);
    buf_printf(out, ",\"eval_count\":%d,\"eval_duration\":%llu}", usage->completion_tokens,
               (unsigned long long)usage->generation_ns);
}

/* Writes a text of a choice under this name. */
static void write_text(struct buf *out, const char *name, const char *text, size_t length) {
    buf_printf(out, "\"%s\":", name);
    json_write_string(out, text, length);
}

static void write_content(struct buf *out, const char *name, const struct api_choice *choice) {
    const struct message *message = choice->message;
    write_text(out, name, message ? message->content.data : choice->text,
               message ? message->content.length : choice->length);
    if (message && message->reasoning.length > 0) {
        buf_puts(out, ",");
        write_text(out, "thinking", message->reasoning.data, message->reasoning.length);
    }
}

static void write_calls(struct buf *out, const struct message *message) {
    if (!message || message->n_calls == 0) return;
    buf_puts(out, ",\"tool_calls\":[");
    for (int i = 0; i < message->n_calls; i++) {
        if (i > 0) buf_puts(out, ",");
        write_call(out, message->calls[i].name, &message->calls[i].arguments);
    }
    buf_puts(out, "]");
}

/* ---- whole answers -------------------------------------------------------------------------- */

static void write_chat(struct buf *out, const struct api_answer *answer,
                       const struct api_choice *choices, int n, const struct api_usage *usage) {
    assert(n == 1);
    (void)n;
    write_head(out, answer);
    buf_puts(out, "\"message\":{\"role\":\"assistant\",");
    write_content(out, "content", choices);
    write_calls(out, choices->message);
    buf_puts(out, "}");
    write_tail(out, answer, choices->finish_reason, usage);
}

static void write_generated(struct buf *out, const struct api_answer *answer,
                            const struct api_choice *choices, int n,
                            const struct api_usage *usage) {
    assert(n == 1);
    (void)n;
    write_head(out, answer);
    write_content(out, "response", choices);
    write_tail(out, answer, choices->finish_reason, usage);
}

/* ---- streams -------------------------------------------------------------------------------- */

static void write_chat_start(struct buf *out, const struct api_answer *answer) {
    write_head(out, answer);
    buf_puts(out, "\"message\":{\"role\":\"assistant\",");
}

/* Writes a line with the open call, which is complete. */
static void end_call(struct buf *out, const struct api_answer *answer) {
    struct lines *lines = answer->state;
    if (!lines->has_call) return;
    write_chat_start(out, answer);
    buf_puts(out, "\"content\":\"\",\"tool_calls\":[");
    write_call(out, lines->name, &lines->arguments);
    buf_puts(out, "]},\"done\":false}\n");
    lines->has_call = false;
    buf_clear(&lines->arguments);
}

static void add_calls(struct buf *out, const struct api_answer *answer,
                      const struct message *message) {
    struct lines *lines = answer->state;
    for (int i = 0; i < message->n_calls; i++) {
        const struct message_call *call = &message->calls[i];
        if (call->begins) {
            end_call(out, answer);
            lines->has_call = true;
            snprintf(lines->name, sizeof lines->name, "%s", call->name);
        }
        assert(lines->has_call);
        buf_add(&lines->arguments, call->arguments.data, call->arguments.length);
    }
}

static bool has_text(const struct api_choice *choice) {
    const struct message *message = choice->message;
    return message ? message->content.length + message->reasoning.length > 0 : choice->length > 0;
}

static void write_chat_chunk(struct buf *out, const struct api_answer *answer,
                             const struct api_choice *choice, const struct api_usage *usage) {
    struct lines *lines = answer->state;
    (void)usage;
    if (has_text(choice)) {
        write_chat_start(out, answer);
        write_content(out, "content", choice);
        buf_puts(out, "},\"done\":false}\n");
    }
    if (choice->message) add_calls(out, answer, choice->message);
    if (choice->finish_reason) lines->finish_reason = choice->finish_reason;
}

static void write_chat_done(struct buf *out, const struct api_answer *answer,
                            const struct api_usage *usage) {
    struct lines *lines = answer->state;
    end_call(out, answer);
    write_chat_start(out, answer);
    buf_puts(out, "\"content\":\"\"}");
    write_tail(out, answer, lines->finish_reason, usage);
    buf_puts(out, "\n");
}

static void write_generated_chunk(struct buf *out, const struct api_answer *answer,
                                  const struct api_choice *choice, const struct api_usage *usage) {
    struct lines *lines = answer->state;
    (void)usage;
    if (choice->finish_reason) lines->finish_reason = choice->finish_reason;
    if (!has_text(choice)) return;
    write_head(out, answer);
    write_content(out, "response", choice);
    buf_puts(out, ",\"done\":false}\n");
}

static void write_generated_done(struct buf *out, const struct api_answer *answer,
                                 const struct api_usage *usage) {
    const struct lines *lines = answer->state;
    write_head(out, answer);
    buf_puts(out, "\"response\":\"\"");
    write_tail(out, answer, lines->finish_reason, usage);
    buf_puts(out, "\n");
}

/* ---- errors --------------------------------------------------------------------------------- */

void ollama_write_error(struct buf *out, const struct err *err, const char *request_id) {
    (void)request_id;
    assert(err->status != STATUS_OK);
    buf_puts(out, "{");
    write_text(out, "error", err->message, strlen(err->message));
    buf_puts(out, "}");
}

static void write_error_line(struct buf *out, const struct api_answer *answer,
                             const struct err *err) {
    (void)answer;
    ollama_write_error(out, err, NULL);
    buf_puts(out, "\n");
}

/* ---- the APIs ------------------------------------------------------------------------------- */

/* There is no keep-alive: clients parse every line as JSON. */
#define OLLAMA_FORM                                                                                \
    .has_one_prompt = true, .stream_type = "application/x-ndjson",                                 \
    .state_size = sizeof(struct lines), .free_state = free_lines, .keeps_answer = true,            \
    .error_members = "error", .write_error_event = write_error_line,                               \
    .write_error = ollama_write_error, .no_memory_body = OLLAMA_NO_MEMORY,                         \
    .no_memory_event = OLLAMA_NO_MEMORY "\n"

const struct api api_ollama_chat = {
    .path = "/api/chat",
    .errors_below = "/api",
    .fields = &ollama_chat_fields,
    .example = "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],"
               "\"stream\":false,\"options\":{\"num_predict\":16}",
    .answer_members = "model created_at message done",
    .id_prefix = "chat-",
    .parse = ollama_parse_chat,
    .write_response = write_chat,
    .write_chunk = write_chat_chunk,
    .write_done = write_chat_done,
    OLLAMA_FORM,
};

const struct api api_ollama_generate = {
    .path = "/api/generate",
    .fields = &ollama_generate_fields,
    .example = "\"prompt\":\"Hello\",\"stream\":false,\"options\":{\"num_predict\":16}",
    .answer_members = "model created_at response done",
    .id_prefix = "gen-",
    .parse = ollama_parse_generate,
    .write_response = write_generated,
    .write_chunk = write_generated_chunk,
    .write_done = write_generated_done,
    OLLAMA_FORM,
};
