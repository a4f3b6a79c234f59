/* Asks a template about its form. It finds the text that a template writes between reasoning and
 * content: it renders an answer with both, or a prompt without reasoning.
 *
 *   <|im_start|>assistant\n<think>\nREASONING\n</think>\n\nCONTENT
 *   <|im_start|>assistant\n<think>\n\n</think>\n\n
 */
#include <assert.h>
#include <string.h>

#include "server/app/app.h"

#define MAX_PROBE_BYTES ((size_t)1 << 20)
#define REASONING "Probe-thoughts"
#define CONTENT "Probe-answer"
#define SYSTEM "Probe-system"
#define USER "{\"role\":\"user\",\"content\":\"Which?\"}"
#define ANSWER                                                                                     \
    ",{\"role\":\"assistant\",\"content\":\"" CONTENT "\",\"reasoning_content\":\"" REASONING      \
    "\",\"reasoning\":\"" REASONING "\",\"thinking\":\"" REASONING "\"}"

/* Renders messages. With `for_answer`, the text ends where an answer without reasoning begins. */
static void render(const struct tool_probe *probe, const char *text, bool for_answer,
                   struct buf *out) {
    struct json *messages;
    struct err err;
    enum status status = json_parse(&messages, "It", text, strlen(text), NULL);
    assert(status == STATUS_OK);
    struct chat_input input = {.messages = messages,
                               .bos_token = probe->bos_token,
                               .eos_token = probe->eos_token,
                               .thinking = for_answer ? THINKING_OFF : THINKING_ON,
                               .add_generation_prompt = for_answer};
    buf_clear(out);
    status = chat_template_render(probe->chat, &input, MAX_PROBE_BYTES, out, NULL, NULL, &err);
    if (status != STATUS_OK) buf_clear(out);
    json_free(messages);
}

/* Copies the white space after the first marker from `text` on, if `next` follows it. Returns false
 * if it does not. */
static bool copy_space(const char *text, const char *marker, const char *next,
                       char out[REASONING_SPACE]) {
    const char *at = strstr(text, marker);
    if (!at) return false;
    at += strlen(marker);
    size_t n = strspn(at, " \n");
    bool is_right = *next ? strncmp(at + n, next, strlen(next)) == 0 : at[n] == 0;
    if (!is_right || n >= REASONING_SPACE) return false;
    memcpy(out, at, n);
    out[n] = 0;
    return true;
}

void reasoning_probe_space(const struct tool_probe *probe, char out[REASONING_SPACE]) {
    const char *end = reasoning_format_end(probe->reasoning);
    struct buf text = {0};
    out[0] = 0;
    if (!end) return;
    render(probe, "[" USER ANSWER "]", false, &text);
    const char *thoughts = text.length > 0 ? strstr(text.data, REASONING) : NULL;
    bool is_found = thoughts && copy_space(thoughts, end, CONTENT, out);
    if (!is_found) {
        render(probe, "[" USER "]", true, &text);
        if (text.length > 0) copy_space(text.data, end, "", out);
    }
    buf_free(&text);
}

bool system_probe_shows(const struct chat_template *chat) {
    static const char text[] =
        "[{\"role\":\"system\",\"content\":\"" SYSTEM "\"},{\"role\":\"user\",\"content\":\"a\"}]";
    struct json *messages;
    struct err err;
    struct buf out = {0};
    if (!chat) return true;
    enum status status = json_parse(&messages, "It", text, strlen(text), NULL);
    assert(status == STATUS_OK);
    const struct chat_input input = {.messages = messages, .add_generation_prompt = true};
    status = chat_template_render(chat, &input, MAX_PROBE_BYTES, &out, NULL, NULL, &err);
    bool shows = !status && out.length > 0 && memmem(out.data, out.length, SYSTEM, strlen(SYSTEM));
    buf_free(&out);
    json_free(messages);
    return shows;
}
