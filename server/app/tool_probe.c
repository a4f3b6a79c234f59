/* Confirms the form of calls that a template's markers suggest: renders a conversation with a call
 * and reads the call back with the form's parser.
 *
 *   <|im_start|>assistant\n                                      the prompt of an answer
 *   <|im_start|>assistant\n<tool_call>\n{"name": "probe_...      the answer as history
 *
 * The answer follows the prompt. Some templates write the last message differently, so
 * the call may also begin where an answer without calls does. */
#include <assert.h>
#include <string.h>

#include "engine/text/text.h"
#include "server/app/app.h"
#include "server/json/json.h"

#define MAX_PROBE_BYTES ((size_t)1 << 20)
#define NAME "probe_time"
#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"" NAME                                       \
    "\",\"description\":\"It\",\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":"         \
    "{\"type\":\"integer\",\"description\":\"n\"},\"zone\":{\"type\":\"string\",\"description\":"  \
    "\"z\"}},\"required\":[\"n\",\"zone\"]}}}]"
#define USER "{\"role\":\"user\",\"content\":\"Which?\"}"
#define CALL(content, id)                                                                          \
    ",{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[{\"id\":\"" id               \
    "\",\"type\":\"function\",\"function\":{\"name\":\"" NAME                                      \
    "\",\"arguments\":{\"n\":7,\"zone\":\"UTC\"}}}]}"
#define TEXT_CALL /* its arguments are a text */                                                   \
    ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"" NINE                    \
    "\",\"type\":\"function\",\"function\":{\"name\":\"" NAME                                      \
    "\",\"arguments\":\"{\\\"n\\\": 7, \\\"zone\\\": \\\"UTC\\\"}\"}}]}"
#define RESULT(id)                                                                                 \
    ",{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"name\":\"" NAME "\",\"content\":\"12\"}"

/* Mistral's templates accept only ids of nine characters; Kimi's write the id as the call. */
#define NINE "AbCd01234"
#define KIMI "functions." NAME ":0"

/* Histories with a call. Templates differ in the content and in the messages that they accept. */
static const char *const histories[] = {
    "[" USER CALL("\"\"", NINE) "]", "[" USER CALL("\"\"", KIMI) "]",
    "[" USER CALL("null", NINE) "]", "[" USER CALL("\"\"", NINE) RESULT(NINE) "]",
    "[" USER TEXT_CALL "]",
};

static struct json *parsed(const char *text) {
    struct json *json;
    enum status status = json_parse(&json, "It", text, strlen(text), NULL);
    assert(status == STATUS_OK);
    (void)status;
    return json;
}

/* Renders messages. With `for_answer`, the text ends where an answer begins. */
static bool render(const struct tool_probe *probe, const char *text, bool for_answer,
                   struct buf *out) {
    struct json *messages = parsed(text), *tools = parsed(TOOLS);
    struct chat_input input = {.messages = messages,
                               .tools = tools,
                               .bos_token = probe->bos_token,
                               .eos_token = probe->eos_token,
                               .add_generation_prompt = for_answer};
    struct err err;
    buf_clear(out);
    bool is_rendered = chat_template_render(probe->chat, &input, MAX_PROBE_BYTES, out, NULL, NULL,
                                            &err) == STATUS_OK;
    json_free(tools);
    json_free(messages);
    return is_rendered;
}

/* Returns the index of the first difference of the texts, or of the marker that has begun there,
 * so that it is whole. */
static size_t answer_start(const struct buf *other, const struct buf *history) {
    const char *text = history->data;
    size_t at = 0;
    while (at < other->length && at < history->length && other->data[at] == text[at]) at++;
    size_t marker = at;
    while (marker > 0 && !strchr("<[>] \n", text[marker - 1])) marker--;
    return at < other->length && marker > 0 && strchr("<[", text[marker - 1]) ? marker - 1 : at;
}

static bool is_probed_call(const struct message *message) {
    const struct message_call *call = &message->calls[0];
    struct json *json;
    if (message->n_calls != 1 || strcmp(call->name, NAME) != 0) return false;
    const struct buf *text = &call->arguments;
    if (json_parse(&json, "It", text->data ? text->data : "", text->length, NULL)) return false;
    bool is_right = json_count(json) == 2 && json_integer(json_member(json, "n")) == 7 &&
                    json_is_text(json_member(json, "zone"), "UTC");
    json_free(json);
    return is_right;
}

/* Is part of a marker left directly before the call? Then the template's marker is longer than the
 * form's. `content` is the text before the call. A whole marker ends with ">". */
static bool is_cut_marker(const struct buf *content, const char *text, size_t length) {
    if (content->length == 0 || content->data[content->length - 1] == '>') return false;
    const char *at = memmem(text, length, content->data, content->length);
    return at && !strchr(" \n", at[content->length]);
}

/* Reads the answer that begins at `start`. Is the probed call in it? */
static bool reads_back(const struct tool_probe *probe, const struct buf *history, size_t start) {
    const char *text = history->data + start;
    const size_t length = history->length - start;
    struct json *tools = parsed(TOOLS);
    struct tool_set *known = tool_set_new(tools, NULL);
    struct message_settings settings = {
        .tools = probe->tools, .reasoning = probe->reasoning, .known = known};
    message_settings_see_prompt(&settings, history->data, start, NULL);
    struct message_parser *parser = message_parser_new(&settings);
    struct message message = {0};
    for (size_t i = 0; i < length && message_parser_calls(parser) == 0; i++)
        message_parser_add(parser, text + i, 1, &message);
    bool is_cut = is_cut_marker(&message.content, text, length);
    message_parser_finish(parser, &message);
    bool is_read = !is_cut && is_probed_call(&message);
    message_free(&message);
    message_parser_free(parser);
    tool_set_free(known);
    json_free(tools);
    return is_read;
}

/* Does the text of a history, from the start of the answer, name the tool? Otherwise the template
 * does not show calls. */
static bool shows_call(const struct buf *history, size_t start) {
    return memmem(history->data + start, history->length - start, NAME, strlen(NAME)) != NULL;
}

/* Renders a conversation with a call, reads it back, and sets the results. The answer begins where
 * the history differs from one of the n other texts. */
static void try_history(const struct tool_probe *probe, const char *text, const struct buf *others,
                        int n, bool *is_shown, bool *is_read) {
    struct buf history = {0};
    bool is_rendered = render(probe, text, false, &history);
    for (int i = 0; i < n && is_rendered && !*is_read; i++) {
        size_t start = answer_start(&others[i], &history);
        if (others[i].length == 0 || !shows_call(&history, start)) continue;
        *is_shown = true;
        *is_read = reads_back(probe, &history, start);
    }
    buf_free(&history);
}

bool tool_probe_disagrees(const struct tool_probe *probe) {
    struct buf others[2] = {{0}, {0}};
    bool is_shown = false, is_read = false;
    assert(probe->chat && probe->tools);
    render(probe, "[" USER "]", true, &others[0]);
    render(probe, "[" USER ",{\"role\":\"assistant\",\"content\":\"Yes.\"}]", false, &others[1]);
    for (size_t i = 0; i < sizeof histories / sizeof *histories && !is_read; i++)
        try_history(probe, histories[i], others, 2, &is_shown, &is_read);
    buf_free(&others[0]);
    buf_free(&others[1]);
    return is_shown && !is_read;
}

/* ---- templates without a known form --------------------------------------------------------- */

#define CALL_OF(id, arguments)                                                                     \
    "{\"id\":\"AbCd" id "\",\"type\":\"function\",\"function\":{\"name\":\"" NAME                  \
    "\",\"arguments\":" arguments "}}"
#define FIRST_CALL CALL_OF("01234", "{\"n\":7,\"zone\":\"UTC\"}")
#define SECOND_CALL CALL_OF("56789", "{\"n\":8,\"zone\":\"CET\"}")
#define CALLS(calls)                                                                               \
    "[" USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" calls "]}]"
#define ANSWER "Probe-answer"

/* Returns where the answer of a history begins: at its first difference from the prompt of an
 * answer, and after empty reasoning. */
static const char *answer_of(const struct tool_probe *probe, const struct buf *prompt,
                             const struct buf *history) {
    const char *end = probe->reasoning ? reasoning_format_end(probe->reasoning) : NULL;
    const char *answer = history->data + answer_start(prompt, history);
    const char *name = strstr(answer, NAME), *thoughts = end ? strstr(answer, end) : NULL;
    return thoughts && name && thoughts < name ? thoughts + strlen(end) : answer;
}

struct tool_format *tool_probe_derive(const struct tool_probe *probe) {
    struct buf prompt = {0}, one = {0}, two = {0}, text = {0};
    struct tool_format *derived = NULL;
    bool is_rendered =
        render(probe, "[" USER "]", true, &prompt) &&
        render(probe, CALLS(FIRST_CALL), false, &one) &&
        render(probe, CALLS(FIRST_CALL "," SECOND_CALL), false, &two) &&
        render(probe, "[" USER ",{\"role\":\"assistant\",\"content\":\"" ANSWER "\"}]", false,
               &text);
    const char *tail = is_rendered && text.length > 0 ? strstr(text.data, ANSWER) : NULL;
    /* the tools are shown, too */
    if (tail && prompt.length > 0 && strstr(prompt.data, NAME) && one.length > 0) {
        const struct tool_samples samples = {
            .one = answer_of(probe, &prompt, &one),
            .two = answer_of(probe, &prompt, &two),
            .tail = tail + strlen(ANSWER),
            .name = NAME,
            .arguments = {{"{\"n\": 7, \"zone\": \"UTC\"}", "{\"n\":7,\"zone\":\"UTC\"}"},
                          {"{\"n\": 8, \"zone\": \"CET\"}", "{\"n\":8,\"zone\":\"CET\"}"}},
            .id = "AbCd"};
        derived = tool_format_derive(&samples);
    }
    buf_free(&prompt);
    buf_free(&one);
    buf_free(&two);
    buf_free(&text);
    return derived;
}
