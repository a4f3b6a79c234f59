/* Checks that a chat template shows all of a conversation. Many templates do not handle tools and
 * omit calls and results, so the model would answer a different conversation. If a conversation has
 * parts other than plain turns, the template renders a small conversation with the same kind of
 * part, which contains a unique word. The word must appear in the output.
 *
 * If a template rejects the small conversation, that is accepted: the template reports errors
 * itself, and it gets the whole conversation next. */
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "server/generation/prompt.h"
#include "server/json/json.h"

#define WORD "Shown7Word" /* does not occur in templates */
#define MAX_ROLES 8       /* distinct roles in a conversation, in addition to the plain ones */
#define MAX_SHOWN_BYTES ((size_t)1 << 20)

/* Does the template omit the word of these messages? */
static bool leaves_out(const struct chat_template *chat, const char *messages, size_t length) {
    struct json *json;
    struct err err = {0};
    struct buf text = {0};
    if (json_parse(&json, "It", messages, length, &err)) return false;
    struct chat_input input = {.messages = json, .add_generation_prompt = true};
    bool rendered = !chat_template_render(chat, &input, MAX_SHOWN_BYTES, &text, NULL, NULL, &err);
    bool left_out =
        rendered && (!text.length || !memmem(text.data, text.length, WORD, strlen(WORD)));
    buf_free(&text);
    json_free(json);
    return left_out;
}

static bool leaves_out_calls(const struct chat_template *chat) {
    static const char messages[] =
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\","
        "\"tool_calls\":[{\"id\":\"call00001\",\"type\":\"function\",\"function\":"
        "{\"name\":\"" WORD "\",\"arguments\":{}}}]}]";
    return leaves_out(chat, messages, strlen(messages));
}

/* Tests the role in both places: as the first message, like a system message, and as the result of
 * a call. */
static bool leaves_out_role(const struct chat_template *chat, const char *role) {
    static const char *const before[] = {
        "[", "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\","
             "\"tool_calls\":[{\"id\":\"call00001\",\"type\":\"function\",\"function\":"
             "{\"name\":\"f\",\"arguments\":{}}}]},"};
    bool left_out = true;
    for (int i = 0; i < 2 && left_out; i++) {
        struct buf messages = {0};
        buf_printf(&messages, "%s{\"role\":", before[i]);
        json_write_string(&messages, role, strlen(role));
        buf_puts(&messages, ",\"name\":\"f\",\"tool_call_id\":\"call00001\",\"content\":\"" WORD
                            "\"},{\"role\":\"user\",\"content\":\"b\"}]");
        left_out = leaves_out(chat, messages.data, messages.length);
        buf_free(&messages);
    }
    return left_out;
}

static bool is_plain(const char *role) {
    static const char *const plain[] = {"system", "user", "assistant"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (strcmp(role, plain[i]) == 0) return true;
    }
    return false;
}

/* Distinct roles of a conversation that the template shows. */
struct roles {
    const char *name[MAX_ROLES];
    int n;
};

static enum status check_role(const struct chat_template *chat, struct roles *roles, int i,
                              const char *role, struct err *err) {
    char param[48];
    if (is_plain(role)) return STATUS_OK;
    for (int k = 0; k < roles->n; k++) {
        if (strcmp(roles->name[k], role) == 0) return STATUS_OK;
    }
    snprintf(param, sizeof param, "messages[%d].role", i);
    if (roles->n == MAX_ROLES) {
        return err_set(err, STATUS_INVALID_REQUEST, param,
                       "'messages' may have at most %d roles besides system, user and assistant.",
                       MAX_ROLES);
    }
    if (leaves_out_role(chat, role)) {
        return err_set(err, STATUS_INVALID_REQUEST, param,
                       "'%s' is \"%.*s\", but this model's chat template leaves such messages out: "
                       "use \"user\" instead.",
                       param, utf8_cut(role, strlen(role), 32), role);
    }
    roles->name[roles->n++] = role;
    return STATUS_OK;
}

static enum status check_calls(const struct chat_template *chat, int i, struct err *err) {
    char param[48];
    if (!leaves_out_calls(chat)) return STATUS_OK;
    snprintf(param, sizeof param, "messages[%d].tool_calls", i);
    return err_set(err, STATUS_INVALID_REQUEST, param,
                   "'%s' is not served with this model: its chat template leaves tool calls out. "
                   "Describe the call in 'content'.",
                   param);
}

enum status check_shown(const struct chat_template *chat, const struct json *messages,
                        struct err *err) {
    struct roles roles = {.n = 0};
    bool saw_calls = false;
    int i = 0;
    json_each(message, messages) {
        const struct json *role = json_member(message, "role");
        enum status status = STATUS_OK;
        if (json_is(role, JSON_STRING)) status = check_role(chat, &roles, i, json_text(role), err);
        if (status == STATUS_OK && !saw_calls && json_member(message, "tool_calls")) {
            saw_calls = true;
            status = check_calls(chat, i, err);
        }
        if (status != STATUS_OK) return status;
        i++;
    }
    return STATUS_OK;
}
