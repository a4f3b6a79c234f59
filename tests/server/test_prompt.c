/* From texts, ids and messages to the prompt's ids. The functions below replace those of the
 * engine: the linker prefers a program's definitions. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/generation/prompt.h"
#include "support/suite_main.h"
#include "tests/support/tokenizer_fixture.h"

#define CONTEXT 64 /* tokens */

static struct tokenizer *vocabulary;
static struct chat_template *chat;

const struct tokenizer *engine_tokenizer(const struct engine *engine) {
    (void)engine;
    return vocabulary;
}

const struct engine_memory *engine_memory(const struct engine *engine) {
    static const struct engine_memory memory = {.max_model_len = CONTEXT};
    (void)engine;
    return &memory;
}

const struct chat_template *engine_chat_template(const struct engine *engine, bool with_tools) {
    (void)engine;
    (void)with_tools;
    return chat;
}

/* ---- a prompt ------------------------------------------------------------------------------- */

static int32_t *ids;
static int n_ids;

static void use_template(const char *source) {
    struct err err = {0};
    chat_template_free(chat);
    ck_assert_msg(chat_template_new(&chat, source, strlen(source), &err) == STATUS_OK, "%s",
                  err.message);
}

static void setup(void) {
    vocabulary = fixture_tokenizer("llama");
    use_template("{% for m in messages %}{{ m.content }}{% endfor %}");
}

static void teardown(void) {
    free(ids);
    tokenizer_free(vocabulary);
    chat_template_free(chat);
    ids = NULL;
    vocabulary = NULL;
    chat = NULL;
}

/* Encodes the messages of a JSON text. */
static enum status encode(const char *messages, bool add_special, struct err *err) {
    struct json *json;
    *err = (struct err){0};
    ck_assert_int_eq(json_parse(&json, "It", messages, strlen(messages), err), STATUS_OK);
    struct api_prompt prompt = {.text = "", .messages = json};
    free(ids);
    ids = NULL;
    enum status status = prompt_encode(NULL, &prompt, add_special, NULL, &ids, &n_ids, err);
    json_free(json);
    if (status != STATUS_OK) ids = NULL;
    return status;
}

START_TEST(special_tokens_around_messages) {
    struct err err;
    int32_t plain[CONTEXT];
    ck_assert(tokenizer_adds_bos(vocabulary));
    ck_assert_int_eq(encode("[{\"content\":\"Hello\"}]", false, &err), STATUS_OK);
    ck_assert_int_gt(n_ids, 0);
    int n = n_ids;
    memcpy(plain, ids, (size_t)n * sizeof *ids);
    ck_assert_int_ne(plain[0], tokenizer_bos(vocabulary));
    ck_assert_int_eq(encode("[{\"content\":\"Hello\"}]", true, &err), STATUS_OK);
    ck_assert_int_eq(n_ids, n + 1);
    ck_assert_int_eq(ids[0], tokenizer_bos(vocabulary));
    ck_assert_mem_eq(ids + 1, plain, (size_t)n * sizeof *ids);
}
END_TEST

/* The same ids as the tokenizer's for the text, with an end token too. */
START_TEST(special_tokens_are_those_of_a_text) {
    struct err err;
    struct api_prompt text = {.text = "Hello", .length = 5};
    int32_t *own = NULL;
    int n_own = 0;
    ck_assert_int_eq(prompt_encode(NULL, &text, true, NULL, &own, &n_own, &err), STATUS_OK);
    ck_assert_int_eq(encode("[{\"content\":\"Hello\"}]", true, &err), STATUS_OK);
    ck_assert_int_eq(n_ids, n_own);
    ck_assert_mem_eq(ids, own, (size_t)n_own * sizeof *own);
    free(own);
}
END_TEST

START_TEST(what_is_far_too_long_names_the_field) {
    struct err err;
    struct buf text = {0};
    for (int i = 0; i < 5 * CONTEXT; i++) buf_puts(&text, "\xC3\xB6");
    struct api_prompt prompt = {.text = text.data, .length = text.length};
    ck_assert_int_eq(prompt_encode(NULL, &prompt, true, NULL, &ids, &n_ids, &err),
                     STATUS_INVALID_REQUEST);
    ck_assert_ptr_null(ids);
    ck_assert_str_eq(err.param, "prompt");
    ck_assert_str_eq(err.code, "context_length_exceeded");
    ck_assert_str_eq(err.message, "This model's maximum context length is 64 tokens. However, your "
                                  "prompt has more than 256 tokens. Shorten it, and leave room for "
                                  "the answer.");
    struct buf messages = {0};
    buf_printf(&messages, "[{\"content\":\"%s\"}]", text.data);
    ck_assert_int_eq(encode(messages.data, false, &err), STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.param, "messages");
    ck_assert_str_eq(err.code, "context_length_exceeded");
    buf_free(&messages);
    buf_free(&text);
}
END_TEST

/* ---- messages that a template would leave out ----------------------------------------------- */

#define PLAIN                                                                                      \
    "{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }}"                             \
    "{% elif m.role == 'assistant' %}A{{ m.content }}{% endif %}{% endfor %}"
#define ANY "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
#define TOOLS                                                                                      \
    "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"                      \
    "{{ c.function.name }}{{ c.function.arguments.x }}{% endfor %}{% elif m.role == 'tool' and "   \
    "loop.index > 2 %}T{{ m.content | tojson }}{% elif m.role == 'user' %}{{ m.content }}"         \
    "{% endif %}{% endfor %}"
#define FIRST                                                                                      \
    "{% if messages[0].role != 'user' %}{{ messages[0].content }}{% endif %}{% for m in messages " \
    "%}"                                                                                           \
    "{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
#define STRICT                                                                                     \
    "{% for m in messages %}{% if m.role not in ['user'] %}{{ raise_exception('Only users.') }}"   \
    "{% endif %}{{ m.content }}{% endfor %}"
#define U "{\"role\":\"user\",\"content\":\"u\"}"
#define CALLS                                                                                      \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","      \
    "\"arguments\":{\"x\":1}}}]}"

struct shown {
    const char *chat, *messages, *param, *says; /* param NULL: accepted */
};

static const struct shown shown[] = {
    {PLAIN, "[" U ",{\"role\":\"system\",\"content\":\"s\"}]", NULL, NULL},
    {PLAIN, "[" U ",{\"role\":\"tool\",\"content\":\"s\"}]", "messages[1].role",
     "is \"tool\", but this model's chat template leaves such messages out: use \"user\""},
    {PLAIN, "[{\"role\":\"developer\",\"content\":\"s\"}," U "]", NULL, NULL},
    {PLAIN, "[" U "," CALLS "]", "messages[1].tool_calls", "Describe the call in 'content'."},
    {ANY, "[{\"role\":\"developer\",\"content\":\"s\"}," U "]", NULL, NULL},
    {ANY, "[" U ",{\"role\":\"tool\",\"content\":\"s\"}]", NULL, NULL},
    {ANY, "[" U "," CALLS "]", "messages[1].tool_calls", "not served with this model"},
    {TOOLS, "[" U "," CALLS ",{\"role\":\"tool\",\"content\":\"s\"}]", NULL, NULL},
    {TOOLS, "[" U "," CALLS ",{\"role\":\"function\",\"content\":\"s\"}]", "messages[2].role",
     "is \"function\""},
    {FIRST, "[{\"role\":\"developer\",\"content\":\"s\"}," U "]", NULL, NULL},
    {STRICT, "[" U ",{\"role\":\"tool\",\"content\":\"s\"}]", "chat_template", "Only users."},
};

START_TEST(nothing_is_left_out) {
    const struct shown *one = &shown[_i];
    struct err err;
    use_template(one->chat);
    enum status status = encode(one->messages, false, &err);
    ck_assert_msg((status == STATUS_OK) == !one->param, "%s: %s", one->messages, err.message);
    if (!one->param) return;
    ck_assert_str_eq(err.param, one->param);
    ck_assert_msg(strstr(err.message, one->says), "%s", err.message);
}
END_TEST

/* ---- histories that a template rejects ------------------------------------------------------ */

#define ONE_SYSTEM                                                                                 \
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"                        \
    "{{ raise_exception('System first.') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}"
#define ITEMS                                                                                      \
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}" \
    "{% for k, v in c.function.arguments.items() %}[{{ k }}={{ v }}]{% endfor %}{% endfor %}"      \
    "{% endfor %}"
#define AS_TEXT                                                                                    \
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}" \
    "{{ c.function.arguments }}{% endfor %}{% endfor %}"
#define JOINED                                                                                     \
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"                      \
    "{{ '>>>' + c.function.name + ':' + c.function.arguments }}{% endfor %}{% endfor %}"
#define KNOWS                                                                                      \
    "{% for m in messages %}{% if m.role == 'developer' %}D{{ m.content }}{% else %}"              \
    "{{ m.content }}{% endif %}{% endfor %}"
#define DEVELOPER "{\"role\":\"developer\",\"content\":\"s\"}"
#define SYSTEM "{\"role\":\"system\",\"content\":\"t\"}"
#define CUT_CALL                                                                                   \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","      \
    "\"arguments\":\"{\\\"a\\\":1\"}}]}"

static const struct {
    const char *chat, *messages, *text; /* text NULL: the template's error */
} histories[] = {
    {ANY, "[" DEVELOPER "," U "]", "system:s;user:u;"},
    {KNOWS, "[" DEVELOPER "," U "]", "Dsu"},
    {ANY, "[" SYSTEM "," SYSTEM "," U "]", "system:t;system:t;user:u;"},
    {ONE_SYSTEM, "[" SYSTEM "," DEVELOPER "," SYSTEM "," U "]", "system:t\n\ns\n\nt;user:u;"},
    {ONE_SYSTEM, "[" SYSTEM "," U "," SYSTEM "]", NULL},
    {AS_TEXT, "[" U "," CUT_CALL "]", "uf{\"a\":1"},
    {ITEMS, "[" U "," CUT_CALL "]", "uf[arguments={\"a\":1]"},
    {ITEMS, "[" U "," CALLS "]", "uf[x=1]"},
    {JOINED, "[" U "," CALLS "]", "u>>>f:{\"x\": 1}"},
};

START_TEST(histories_are_adapted_to_the_template) {
    struct err err;
    use_template(histories[_i].chat);
    enum status status = encode(histories[_i].messages, false, &err);
    ck_assert_msg((status == STATUS_OK) == (histories[_i].text != NULL), "%s", err.message);
    if (status != STATUS_OK) {
        ck_assert_msg(strstr(err.message, "System first."), "%s", err.message);
        return;
    }
    int32_t *expected = NULL;
    int n = tokenizer_encode(vocabulary, histories[_i].text, strlen(histories[_i].text),
                             SPECIAL_PARSED, false, CONTEXT, &expected);
    ck_assert_int_eq(n, n_ids);
    ck_assert_mem_eq(ids, expected, (size_t)n * sizeof *ids);
    free(expected);
}
END_TEST

/* Templates like those of models. Each shows calls and results in another way. */
START_TEST(calls_pass_where_a_model_knows_them) {
    size_t length;
    char *text = fixture_read("tests/vectors/template.json", &length);
    struct json *vectors, *conversation;
    struct err err = {0};
    int n = 0;
    static const char calls[] =
        "[" U ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefghi\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"name\":\"f\",\"content\":\"4\"}]";
    ck_assert_int_eq(json_parse(&vectors, "It", text, length, &err), STATUS_OK);
    ck_assert_int_eq(json_parse(&conversation, "It", calls, strlen(calls), &err), STATUS_OK);
    json_each(one, json_member(vectors, "cases")) {
        const char *source = json_member(one, "template")->string;
        if (strlen(source) < 1000 || !strstr(source, "message.tool_calls")) continue;
        use_template(source);
        err = (struct err){0};
        enum status status = check_shown(chat, conversation, &err);
        ck_assert_msg(status == STATUS_OK, "%s: %.300s", err.message, source);
        n++;
    }
    ck_assert_int_eq(n, 4);
    json_free(conversation);
    json_free(vectors);
    free(text);
}
END_TEST

START_TEST(roles_are_bounded) {
    struct err err;
    use_template(ANY);
    for (int n = 8; n <= 9; n++) {
        struct buf messages = {0};
        buf_puts(&messages, "[");
        for (int i = 0; i < 2 * n; i++) { /* each twice */
            buf_printf(&messages, "%s{\"role\":\"%d\",\"content\":\"\"}", i ? "," : "", i / 2);
        }
        buf_puts(&messages, "]");
        ck_assert_int_eq(encode(messages.data, false, &err), n > 8 ? STATUS_INVALID_REQUEST : 0);
        if (n > 8) ck_assert_ptr_nonnull(strstr(err.message, "at most 8 roles"));
        buf_free(&messages);
    }
}
END_TEST

START_TEST(nothing_is_no_prompt) {
    struct err err;
    use_template("{% if false %}{% endif %}");
    ck_assert_int_eq(encode("[{\"content\":\"Hello\"}]", true, &err), STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "an empty prompt"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server/prompt");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, special_tokens_around_messages);
    tcase_add_test(cases, special_tokens_are_those_of_a_text);
    tcase_add_test(cases, what_is_far_too_long_names_the_field);
    tcase_add_test(cases, nothing_is_no_prompt);
    tcase_add_loop_test(cases, histories_are_adapted_to_the_template, 0,
                        sizeof histories / sizeof *histories);
    tcase_add_loop_test(cases, nothing_is_left_out, 0, sizeof shown / sizeof *shown);
    tcase_add_test(cases, calls_pass_where_a_model_knows_them);
    tcase_add_test(cases, roles_are_bounded);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
