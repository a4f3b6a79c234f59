/* Converts a client's prompt to token ids. Runs on worker threads; the model's tokenizer and
 * template are read-only. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/generation/prompt.h"
#include "server/json/json.h"

/* Tokenising stops at this multiple of the context: such a prompt cannot be served. */
#define GIVE_UP_FACTOR 4

/* Maximum output of a chat template. */
#define MAX_PROMPT_BYTES ((size_t)64 << 20)

static struct chat_input chat_input_of(const struct engine *engine,
                                       const struct api_prompt *prompt) {
    const struct tokenizer *tokenizer = engine_tokenizer(engine);
    int32_t bos = tokenizer_bos(tokenizer), eos = tokenizer_eos(tokenizer);
    return (struct chat_input){
        .messages = prompt->messages,
        .tools = prompt->tools,
        .extra = prompt->template_kwargs,
        .reasoning_effort = prompt->reasoning_effort,
        .verbosity = prompt->verbosity,
        .thinking = prompt->thinking,
        .add_generation_prompt = prompt->add_generation_prompt,
        .continue_final_message = prompt->continue_final_message,
        .bos_token = bos >= 0 ? tokenizer_token_name(tokenizer, bos) : NULL,
        .eos_token = eos >= 0 ? tokenizer_token_name(tokenizer, eos) : NULL,
        .time_s = prompt->time_s ? prompt->time_s : (int64_t)time(NULL),
    };
}

/* Adds the model's begin and end tokens around the ids, as around a text. */
static void add_special_ids(const struct tokenizer *tokenizer, int32_t **ids, int *n) {
    const int32_t *before, *after;
    int n_before, n_after;
    tokenizer_around(tokenizer, &before, &n_before, &after, &n_after);
    *ids = mem_realloc(*ids, (size_t)(*n + n_before + n_after + 1) * sizeof **ids);
    memmove(*ids + n_before, *ids, (size_t)*n * sizeof **ids);
    memcpy(*ids, before, (size_t)n_before * sizeof **ids);
    memcpy(*ids + n_before + *n, after, (size_t)n_after * sizeof **ids);
    *n += n_before + n_after;
}

/* Detects reasoning that the template, or the continued message, has begun: the answer begins
 * inside it. */
static void see_prompt(struct message_settings *format, const struct api_prompt *prompt,
                       const struct buf *text) {
    const struct json *last = json_first(prompt->messages);
    while (last && last->next) last = last->next;
    const struct json *content = json_member(last, "content");
    bool continues = prompt->continue_final_message && json_is(content, JSON_STRING);
    message_settings_see_prompt(format, text->data ? text->data : "", text->length,
                                continues ? json_text(content) : NULL);
}

void prompt_list_ignored(const struct engine *engine, const struct api_request *request,
                         struct buf *list) {
    const struct api_prompt *prompt = &request->prompts[0];
    const struct chat_template *chat =
        prompt->messages ? engine_chat_template(engine, prompt->tools != NULL) : NULL;
    if (!chat) return;
    const struct chat_wishes known = chat_template_wishes(chat);
    if (prompt->reasoning_effort && !known.thinking && !known.effort)
        api_list_field(list, request, "reasoning_effort");
    if (prompt->thinking != THINKING_UNSET && !known.thinking)
        api_list_field(list, request, "thinking");
    if (prompt->verbosity && !known.verbosity) api_list_field(list, request, "verbosity");
}

/* Renders again after a first failure, whose output and error are replaced only by success. */
static bool render_again(const struct chat_template *chat, const struct chat_input *input,
                         struct buf *text, struct chat_piece **pieces, int *n_pieces,
                         struct err *err) {
    struct err ignored = {0};
    buf_clear(text);
    if (chat_template_render(chat, input, MAX_PROMPT_BYTES, text, pieces, n_pieces, &ignored))
        return false;
    *err = (struct err){0};
    return true;
}

/* Renders a conversation. If the template rejects it, tries another effort that it names, then a
 * simpler form of the messages; the template's first error counts. */
static enum status render_messages(const struct chat_template *chat, const struct chat_input *input,
                                   struct buf *text, struct chat_piece **pieces, int *n_pieces,
                                   struct err *err) {
    struct chat_input again = *input;
    enum status status =
        chat_template_render(chat, input, MAX_PROMPT_BYTES, text, pieces, n_pieces, err);
    if (status != STATUS_INVALID_REQUEST) return status;
    if (input->reasoning_effort)
        again.reasoning_effort = chat_template_other_effort(chat, input->reasoning_effort);
    if (input->reasoning_effort && render_again(chat, &again, text, pieces, n_pieces, err))
        return STATUS_OK;
    struct json *others[] = {history_simplified(input->messages),
                             history_with_texts(input->messages)};
    for (int i = 0; i < 2 && status != STATUS_OK; i++) {
        again.messages = others[i];
        if (others[i] && render_again(chat, &again, text, pieces, n_pieces, err))
            status = STATUS_OK;
    }
    json_free(others[0]);
    json_free(others[1]);
    return status;
}

enum status prompt_render(const struct engine *engine, const struct api_prompt *prompt,
                          struct buf *text, struct chat_piece **pieces, int *n_pieces,
                          struct err *err) {
    const struct chat_template *chat = engine_chat_template(engine, prompt->tools != NULL);
    if (!chat) {
        return err_set(err, STATUS_INVALID_REQUEST, "messages",
                       "This model has no chat template; use /v1/completions with a prompt.");
    }
    struct chat_input input = chat_input_of(engine, prompt);
    history_rename_developers(chat, prompt->messages);
    enum status status = check_shown(chat, prompt->messages, err);
    return status ? status : render_messages(chat, &input, text, pieces, n_pieces, err);
}

/* ---- questions ------------------------------------------------------------------------------ */

/* Returns the messages with the question at their end; the caller frees them. */
static struct json *with_question(const struct api_prompt *prompt) {
    struct buf text = {0};
    struct json *messages = NULL;
    struct err err = {0};
    const char *comma = "";
    bool is_asked = false;
    buf_puts(&text, "[");
    json_each(message, prompt->messages) {
        const struct json *content = json_member(message, "content");
        bool is_user = json_is_text(json_member(message, "role"), "user");
        is_asked = !message->next && is_user && json_is(content, JSON_STRING);
        buf_puts(&text, comma);
        comma = ",";
        if (!is_asked) {
            json_write_value(&text, message);
            continue;
        }
        buf_puts(&text, "{\"role\":\"user\",\"content\":\"");
        json_write_part(&text, json_text(content), json_length(content));
        buf_puts(&text, "\\n\\n");
    }
    if (!is_asked) buf_printf(&text, "%s{\"role\":\"user\",\"content\":\"", comma);
    json_write_part(&text, prompt->question, prompt->question_length);
    buf_puts(&text, "\"}]");
    json_parse(&messages, "The question", text.data, text.length, &err);
    buf_free(&text);
    return messages;
}

/* Encodes the texts of the messages and the question, for a model without a chat template. */
static enum status encode_plain_question(const struct engine *engine,
                                         const struct api_prompt *prompt, bool add_special,
                                         int32_t **ids, int *n, struct err *err) {
    struct buf text = {0};
    json_each(message, prompt->messages) {
        const struct json *content = json_member(message, "content");
        buf_add(&text, json_text(content), json_length(content));
        buf_puts(&text, "\n\n");
    }
    buf_add(&text, prompt->question, prompt->question_length);
    buf_puts(&text, "\nAnswer:");
    const struct api_prompt plain = {.text = text.data, .length = text.length};
    enum status status = prompt_encode(engine, &plain, add_special, NULL, ids, n, err);
    buf_free(&text);
    return status;
}

static enum status encode_question(const struct engine *engine, const struct api_prompt *prompt,
                                   bool add_special, struct message_settings *format, int32_t **ids,
                                   int *n, struct err *err) {
    struct api_prompt asked = *prompt;
    struct json *messages = with_question(prompt);
    if (!messages)
        return err_set(err, STATUS_INVALID_REQUEST, "questions",
                       "The input and the question are too large for one prompt.");
    asked.messages = messages;
    asked.question = NULL;
    enum status status = prompt_encode(engine, &asked, add_special, format, ids, n, err);
    json_free(messages);
    if (status || !format || !format->starts_inside) return status;
    mem_free(*ids);
    return err_set(err, STATUS_INVALID_REQUEST, "model",
                   "The chat template of this model begins every answer with reasoning, so an "
                   "answer cannot be read.");
}

/* ---- messages ------------------------------------------------------------------------------- */

static enum status encode_messages(const struct engine *engine, const struct api_prompt *prompt,
                                   bool add_special, struct message_settings *format, int32_t **ids,
                                   int *n, struct err *err) {
    const int context = engine_memory(engine)->max_model_len, limit = context * GIVE_UP_FACTOR;
    struct buf text = {0};
    struct chat_piece *pieces = NULL;
    int n_pieces = 0;
    enum status status = prompt_render(engine, prompt, &text, &pieces, &n_pieces, err);
    if (!status && format) see_prompt(format, prompt, &text);
    if (!status) {
        *n = tokenizer_encode_pieces(engine_tokenizer(engine), text.data ? text.data : "",
                                     text.length, pieces, n_pieces, limit, ids);
        if (*n < 0)
            status = api_context_exceeded(err, "messages", context, true, limit);
        else if (*n == 0) {
            mem_free(*ids);
            status = err_set(err, STATUS_INVALID_REQUEST, "messages",
                             "The chat template rendered these messages as an empty prompt.");
        } else if (add_special)
            add_special_ids(engine_tokenizer(engine), ids, n);
    }
    mem_free(pieces);
    buf_free(&text);
    return status;
}

enum status prompt_encode(const struct engine *engine, const struct api_prompt *prompt,
                          bool add_special, struct message_settings *format, int32_t **ids, int *n,
                          struct err *err) {
    const int context = engine_memory(engine)->max_model_len, limit = context * GIVE_UP_FACTOR;
    if (prompt->question && engine_chat_template(engine, false))
        return encode_question(engine, prompt, add_special, format, ids, n, err);
    if (prompt->question) return encode_plain_question(engine, prompt, add_special, ids, n, err);
    if (prompt->messages) return encode_messages(engine, prompt, add_special, format, ids, n, err);
    if (prompt->infills) return infill_encode(engine, prompt, add_special, limit, ids, n, err);
    if (!prompt->ids) {
        *n = tokenizer_encode(engine_tokenizer(engine), prompt->text, prompt->length,
                              SPECIAL_PARSED, add_special, limit, ids);
        if (*n >= 0) return STATUS_OK;
        return api_context_exceeded(err, "prompt", context, true, limit);
    }
    if (prompt->n_ids > limit) return api_context_exceeded(err, "prompt", context, true, limit);
    *n = prompt->n_ids;
    *ids = mem_alloc((size_t)*n * sizeof **ids);
    memcpy(*ids, prompt->ids, (size_t)*n * sizeof **ids);
    return STATUS_OK;
}

void prompt_name_input(const struct api_request *request, int index, struct err *err) {
    const char *field = request->api->reads;
    bool is_exceeded = strcmp(err->code, "context_length_exceeded") == 0;
    int n = request->n_prompts - request->n_queries;
    assert(index >= 0 && index < request->n_prompts);
    if (!field || !is_exceeded) return;
    if (index < request->n_queries) {
        field = request->api->reads_queries;
        n = request->n_queries;
    } else {
        index -= request->n_queries;
    }
    if (n > 1)
        snprintf(err->param, sizeof err->param, "%s[%d]", field, index);
    else
        snprintf(err->param, sizeof err->param, "%s", field);
}
