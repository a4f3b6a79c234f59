#include "support/tool_rows.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" F_SCHEMA "}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_time-2.x\"}}]";

struct json *tools;
struct tool_set *known;

void tool_rows_open(void) {
    struct err err;
    ck_assert_int_eq(json_parse(&tools, "It", tools_text, strlen(tools_text), &err), STATUS_OK);
    known = tool_set_new(tools, NULL);
}

void tool_rows_close(void) {
    tool_set_free(known);
    json_free(tools);
}

struct grammar *compile_text(enum grammar_kind kind, const char *text) {
    struct grammar *grammar;
    struct err err = {0};
    enum status status = grammar_compile(kind, text, strlen(text), NULL, &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s\n%s", err.message, text);
    return grammar;
}

struct grammar *grammar_of_tools(const struct tool_grammar *asked) {
    struct buf text = {0};
    tool_grammar_write(asked, &text);
    struct grammar *grammar = compile_text(GRAMMAR_STRUCTURAL_TAG, text.data);
    buf_free(&text);
    return grammar;
}

bool grammar_accepts(struct grammar *grammar, const char *text) {
    bool may_end;
    size_t n = strlen(text);
    return grammar_match(grammar, text, n, &may_end) == n && may_end;
}

int tool_row_names(char names[64][40]) {
    struct buf all = {0};
    const struct tool_format *last = NULL;
    int n = 0;
    tool_format_names(&all);
    for (char *name = strtok(all.data, ", "); name; name = strtok(NULL, ", ")) {
        if (tool_format_find(name) == last) continue;
        last = tool_format_find(name);
        ck_assert_int_lt(n, 64);
        snprintf(names[n++], 40, "%s", name);
    }
    buf_free(&all);
    return n;
}

struct tool_grammar tool_row(const char *name) {
    struct tool_grammar asked = {.functions = tools, .parallel = true};
    asked.tools = tool_format_find(name);
    ck_assert_msg(asked.tools, "%s", name);
    static const char *const others[] = {"kimi_k3",       "cohere2", "cohere_command4",
                                         "openai_gptoss", "inkling", "muse_glimmer"};
    asked.reasoning = reasoning_format_find("qwen3");
    for (size_t i = 0; i < COUNT(others); i++) {
        const struct reasoning_format *reasoning = reasoning_format_find(others[i]);
        bool has_parts = asked.tools->parts && reasoning->parts == asked.tools->parts;
        bool has_envelope = asked.tools->envelope && reasoning->envelope == asked.tools->envelope;
        if (has_parts || has_envelope) asked.reasoning = reasoning;
    }
    ck_assert_ptr_eq(asked.reasoning->envelope, asked.tools->envelope);
    ck_assert_ptr_eq(asked.reasoning->parts, asked.tools->parts);
    return asked;
}
