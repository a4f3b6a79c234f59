/* Any bytes as an answer, read in each family's format and with each way to mark thoughts. The
 * first byte selects both, and the cuts of the text. The message must not depend on the cuts. If no
 * call is found, only white space and markers may be missing. The arguments of whole calls are
 * objects. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/message/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const tool_names[] = {
    "hermes",         "llama3_json", "pythonic",     "mistral",         "mistral_v11",
    "qwen3_coder",    "deepseek_v3", "deepseek_v31", "granite",         "granite-20b-fc",
    "phi4_mini_json", "olmo3",       "jamba",        "openai",          "kimi_k2",
    "seed_oss",       "glm45",       "none",         "minimax",         "functionary_v31",
    "deepseek_v32",   "minimax_m2",  "lfm2",         "apertus",         "cohere2",
    "gemma4",         "deepseek_v4", "command_r",    "functionary_v32", "minimax_m3",
    "kimi_k3",        "longcat",     "internlm",     "gigachat3",       "minicpm5",
    "hy_v3",
};
enum { N_TOOL_NAMES = sizeof tool_names / sizeof *tool_names };
static const char *const reasoning_names[] = {"none",          "qwen3",   "granite", "mistral",
                                              "openai_gptoss", "kimi_k3", "ernie45"};
enum { N_REASONING_NAMES = sizeof reasoning_names / sizeof *reasoning_names };
/* Formats of calls that a second byte selects, and of reasoning beside them. */
static const char *const newer[][2] = {
    {"functiongemma", "none"},
    {"step3", "step3"},
    {"solar_open2", "solar_open2"},
    {"dots", "none"},
    {"hy_v3", "hy_v3"},
    {"hy_v4", "hy_v4"},
    {"xlam", "qwen3"},
    {"cohere_command4", "cohere_command4"},
    {"inkling", "inkling"},
    {"muse_glimmer", "muse_glimmer"},
};
enum { N_NEWER = sizeof newer / sizeof *newer, FIRST_NEWER = N_TOOL_NAMES * N_REASONING_NAMES };
_Static_assert(FIRST_NEWER < 256, "a first byte selects the newer formats");

static void read_in_steps(const struct message_settings *settings, const char *text, size_t length,
                          size_t step, struct message *out) {
    struct message_parser *parser = message_parser_new(settings);
    for (size_t at = 0; at < length; at += step)
        message_parser_add(parser, text + at, at + step < length ? step : length - at, out);
    message_parser_finish(parser, out);
    assert(message_parser_calls(parser) == out->n_calls && message_parser_is_idle(parser));
    message_parser_free(parser);
}

static bool is_same(const struct buf *a, const struct buf *b) {
    return a->length == b->length && (a->length == 0 || memcmp(a->data, b->data, a->length) == 0);
}

/* Texts are UTF-8 if the answer is. Invalid bytes become U+FFFD when JSON is written. */
static void check_arguments(const struct message_call *call) {
    struct json *json;
    struct err err = {0};
    const struct buf *text = &call->arguments;
    if (utf8_valid_prefix(text->data, text->length) < text->length) return;
    if (json_parse(&json, "It", text->data, text->length, &err)) {
        assert(strstr(err.message, "too large") || strstr(err.message, "deep") ||
               strstr(err.message, "long") || strstr(err.message, "u0000"));
        return;
    }
    assert(json_is(json, JSON_OBJECT));
    json_free(json);
}

/* Reads the settings from the first bytes. Returns how many these are. */
static size_t read_settings(const uint8_t *data, size_t size, struct message_settings *settings) {
    bool is_newer = data[0] >= FIRST_NEWER && size > 1;
    const char *tool = tool_names[data[0] % N_TOOL_NAMES];
    const char *reasoning = reasoning_names[data[0] / N_TOOL_NAMES % N_REASONING_NAMES];
    if (is_newer) tool = newer[data[1] % N_NEWER][0], reasoning = newer[data[1] % N_NEWER][1];
    *settings = (struct message_settings){
        .tools = tool_format_find(tool),
        .reasoning = reasoning_format_find(reasoning),
        .stream_calls = data[is_newer] & 0x80,
    };
    return is_newer ? 2 : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct message whole = {0}, cut = {0};
    struct message_settings settings;
    if (size == 0) return 0;
    size_t head = read_settings(data, size, &settings);
    const char *text = (const char *)data + head;
    read_in_steps(&settings, text, size - head, size, &whole);
    read_in_steps(&settings, text, size - head, 1 + data[0] % 5, &cut);
    assert(is_same(&whole.content, &cut.content) && is_same(&whole.reasoning, &cut.reasoning));
    assert(whole.n_calls == cut.n_calls);
    for (int i = 0; i < whole.n_calls; i++) {
        assert(strcmp(whole.calls[i].name, cut.calls[i].name) == 0);
        assert(is_same(&whole.calls[i].arguments, &cut.calls[i].arguments));
        if (!settings.stream_calls) check_arguments(&whole.calls[i]);
    }
    if (!settings.tools && !settings.reasoning) assert(whole.content.length == size - head);
    message_free(&whole);
    message_free(&cut);
    return 0;
}
