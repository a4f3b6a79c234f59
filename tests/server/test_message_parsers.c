/* Answers in the forms that vLLM's parsers are tested with (tests/vectors/make_parsers.py), and
 * calls that stand in thoughts. */
#include <check.h>
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/message/internal.h"
#include "support/read_message.h"
#include "support/suite_main.h"
#include "support/tokenizer_fixture.h"

static const char *text_of(const cJSON *line, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItem(line, name));
}

static struct tool_set *tools_of_text(const char *text) {
    struct json *tools;
    struct err err;
    ck_assert_int_eq(json_parse(&tools, "It", text, strlen(text), &err), STATUS_OK);
    struct tool_set *known = tool_set_new(tools, NULL);
    json_free(tools);
    return known;
}

/* Returns a set of the tool "f" with these parameters; without them, NULL. */
static struct tool_set *tool_of(const cJSON *parameters) {
    if (!cJSON_IsObject(parameters)) return NULL;
    char *schemas = cJSON_PrintUnformatted(parameters);
    struct buf text = {0};
    buf_printf(&text,
               "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
               "\"object\",\"properties\":%s}}}]",
               schemas);
    struct tool_set *known = tools_of_text(text.data);
    buf_free(&text);
    cJSON_free(schemas);
    return known;
}

/* Reads an answer whole, byte by byte, and in other parts. */
static void see_answer(void *context, const cJSON *line) {
    static const size_t steps[] = {1, 2, 3, 5, 8, 100000};
    const char *tools = text_of(line, "tools"), *reasoning = text_of(line, "reasoning");
    const char *text = text_of(line, "text"), *message = text_of(line, "message");
    struct tool_set *known = tool_of(cJSON_GetObjectItem(line, "of"));
    struct message_settings settings = {
        .tools = tools ? tool_format_find(tools) : NULL,
        .reasoning = reasoning ? reasoning_format_find(reasoning) : NULL,
        .known = known,
        .starts_inside = cJSON_IsTrue(cJSON_GetObjectItem(line, "is_open"))};
    struct buf found = {0};
    (void)context;
    ck_assert_msg((!tools || settings.tools) && (!reasoning || settings.reasoning), "%s", text);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        read_message_in_parts(&settings, text, i, steps[i], &found);
        ck_assert_msg(strcmp(found.data, message) == 0, "%s: %s\nis      %s\nand not %s",
                      tools ? tools : reasoning, text, found.data, message);
    }
    buf_free(&found);
    tool_set_free(known);
}

START_TEST(answers_are_read_as_other_servers_read_them) {
    ck_assert_int_gt(fixture_lines("tests/vectors/parsers.jsonl", see_answer, NULL), 540);
}
END_TEST

/* ---- calls in thoughts ---------------------------------------------------------------------- */

#define CALL(name) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": {}}\n</tool_call>"

/* Settings of an answer that begins in its thoughts. */
static struct message_settings thinking_settings(struct tool_set *known) {
    return (struct message_settings){.tools = tool_format_find("hermes"),
                                     .reasoning = reasoning_format_find("qwen3"),
                                     .known = known,
                                     .stream_calls = true,
                                     .starts_inside = true};
}

static struct tool_set *two_tools(void) {
    static const char text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
                               "{\"type\":\"function\",\"function\":{\"name\":\"s\",\"strict\":"
                               "true}}]";
    return tools_of_text(text);
}

/* Only whole calls at the very end count, if nothing else is in the answer. */
START_TEST(thoughts_may_end_with_calls) {
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"A\n" CALL("f"), "R{A\n" CALL("f") "}f({})"},
        {"A " CALL("f") CALL("f") "\n", "R{A " CALL("f") CALL("f") "}f({})f({})"},
        {CALL("f") " I try " CALL("f"), "R{" CALL("f") " I try " CALL("f") "}f({})"},
        {"A " CALL("f") "\n</think>\n\n", "R{A " CALL("f") "}f({})"},
        {CALL("f") "</think>" CALL("f"), "R{" CALL("f") "}f({})"},
        {CALL("f") "</think>Yes", "R{" CALL("f") "}C{Yes}"},
        {CALL("f") ".", "R{" CALL("f") ".}"},
        {CALL("g"), "R{" CALL("g") "}"},
        {CALL("s"), "R{" CALL("s") "}"},
        {CALL("f") CALL("s"), "R{" CALL("f") CALL("s") "}"},
        {"<tool_call>\n{\"name\": \"f\", \"argum", "R{<tool_call>\n{\"name\": \"f\", \"argum}"},
    };
    struct tool_set *known = two_tools();
    struct message_settings settings = thinking_settings(known);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_message(&settings, rows[i].text, rows[i].message);
    settings.one_call = true;
    expect_message(&settings, CALL("f") CALL("f"), "R{" CALL("f") CALL("f") "}f({})");
    settings.tools = NULL;
    expect_message(&settings, CALL("f"), "R{" CALL("f") "}");
    tool_set_free(known);
}
END_TEST

/* A limit cuts thoughts anywhere, so a call at their end may be a mere mention. */
START_TEST(thoughts_that_a_limit_cuts_have_no_calls) {
    struct tool_set *known = two_tools();
    struct message_settings settings = thinking_settings(known);
    struct message message = {0};
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        struct message_parser *parser = message_parser_new(&settings);
        message_parser_add(parser, CALL("f"), strlen(CALL("f")), &message);
        ck_assert_int_eq(message_parser_calls(parser), 0);
        (is_cut ? message_parser_cut : message_parser_finish)(parser, &message);
        ck_assert_int_eq(message.n_calls, !is_cut);
        ck_assert_int_eq(message_parser_calls(parser), !is_cut);
        ck_assert(!message_parser_has_cut_call(parser));
        message_clear(&message);
        message_parser_free(parser);
    }
    message_free(&message);
    tool_set_free(known);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_message_parsers");
    TCase *cases = tcase_create("parsers");
    tcase_add_test(cases, answers_are_read_as_other_servers_read_them);
    tcase_add_test(cases, thoughts_may_end_with_calls);
    tcase_add_test(cases, thoughts_that_a_limit_cuts_have_no_calls);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
