/* The parser of answers at places where its state could be wrong: each depth of arguments up to the
 * deepest, each control character, and each text that may follow a call. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/message/internal.h"
#include "support/read_message.h"
#include "support/suite_main.h"

static struct message_settings settings_of(const char *format) {
    struct message_settings settings = {.tools = tool_format_find(format), .id_seed = 7};
    ck_assert_msg(settings.tools != NULL, "%s", format);
    return settings;
}

/* Writes the message of a text that arrives whole, like read_message_in_parts. */
static void read_whole(const struct message_settings *settings, const struct buf *text,
                       struct buf *out) {
    read_message_in_parts(settings, text->data, text->length, text->length, out);
}

/* ---- depth ---------------------------------------------------------------------------------- */

enum nesting { ARRAYS, OBJECTS, TURNS, PAIRS, N_NESTINGS };

/* Is the container at this depth, counted from 1, an object? The outermost always is. */
static bool is_object_at(enum nesting nesting, int depth) {
    if (depth == 1 || nesting == OBJECTS) return true;
    return nesting == TURNS ? depth % 2 == 1 : nesting == PAIRS && depth % 4 < 2;
}

/* A value of `depth` containers; the one at depth `wrong` is closed by the other bracket. */
static void write_nested(struct buf *out, enum nesting nesting, int depth, int wrong) {
    for (int i = 1; i <= depth; i++) buf_puts(out, is_object_at(nesting, i) ? "{\"k\": " : "[");
    buf_puts(out, "0");
    for (int i = depth; i >= 1; i--)
        buf_puts(out, is_object_at(nesting, i) != (i == wrong) ? "}" : "]");
}

static const struct {
    const char *format, *before, *after;
} nested_forms[] = {
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":", "}</tool_call>"},
    {"llama3_json", "{\"name\":\"f\",\"parameters\":", "}"},
    {"mistral", "[TOOL_CALLS]f", ""},
    {"mistral_v11", "[TOOL_CALLS]f[ARGS]", ""},
};

/* Reads a call with nested arguments. Returns whether it is a call. If so, its arguments must be
 * unchanged, otherwise the text must be. */
static bool is_call(int form, enum nesting nesting, int depth, int wrong) {
    struct buf text = {0}, arguments = {0}, expected = {0}, message = {0};
    struct message_settings settings = settings_of(nested_forms[form].format);
    write_nested(&arguments, nesting, depth, wrong);
    buf_printf(&text, "%s%s%s", nested_forms[form].before, arguments.data,
               nested_forms[form].after);
    read_whole(&settings, &text, &message);
    buf_printf(&expected, "f(%s)", arguments.data);
    bool found = strcmp(message.data, expected.data) == 0;
    buf_clear(&expected);
    buf_printf(&expected, "C{%s}", text.data);
    ck_assert_msg(found || strcmp(message.data, expected.data) == 0, "%s gave %s", text.data,
                  message.data);
    buf_free(&text);
    buf_free(&arguments);
    buf_free(&expected);
    buf_free(&message);
    return found;
}

START_TEST(arguments_of_each_depth_are_read) {
    for (enum nesting nesting = ARRAYS; nesting < N_NESTINGS; nesting++) {
        for (int depth = 1; depth <= JSON_MAX_DEPTH + 2; depth++)
            ck_assert_msg(is_call(_i, nesting, depth, 0) == (depth <= JSON_MAX_DEPTH), "%s, %d, %d",
                          nested_forms[_i].format, (int)nesting, depth);
    }
}
END_TEST

/* Kinds of containers are stored in words of 64 bits, so the test includes both words and their
 * ends. */
START_TEST(a_wrong_bracket_at_any_depth_is_no_call) {
    static const int depths[] = {1, 2, 31, 32, 33, 63, 64, 65, 66, 100, 127, 128};
    for (enum nesting nesting = ARRAYS; nesting < N_NESTINGS; nesting++) {
        for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
            for (int wrong = 1; wrong <= depths[i]; wrong++)
                ck_assert_msg(!is_call(_i, nesting, depths[i], wrong), "%s, %d, %d of %d",
                              nested_forms[_i].format, (int)nesting, wrong, depths[i]);
        }
    }
}
END_TEST

/* A closed container does not affect the next one at its depth. */
START_TEST(siblings_of_other_kinds_are_read) {
    struct json_scan scan = {0};
    struct buf text = {0};
    buf_puts(&text, "[");
    for (int depth = 1; depth < JSON_MAX_DEPTH; depth++) {
        for (enum nesting nesting = ARRAYS; nesting < N_NESTINGS; nesting++) {
            write_nested(&text, nesting, depth, 0);
            buf_puts(&text, depth + 1 < JSON_MAX_DEPTH || nesting + 1 < N_NESTINGS ? "," : "]");
        }
    }
    for (size_t i = 0; i < text.length; i++) {
        enum reading wanted = i + 1 < text.length ? READ_MORE : READ_DONE;
        ck_assert_int_eq(json_scan_add(&scan, text.data[i]), wanted);
    }
    buf_free(&text);
}
END_TEST

/* A call in Python becomes JSON of the same depth, at all depths. */
START_TEST(python_of_each_depth_becomes_json) {
    struct message_settings settings = settings_of("pythonic");
    for (int depth = 1; depth <= JSON_MAX_DEPTH + 2; depth++) {
        for (int wrong = 0; wrong <= depth; wrong++) {
            struct buf text = {0}, expected = {0}, message = {0};
            buf_puts(&text, "[f(a=");
            for (int i = 1; i <= depth; i++) buf_puts(&text, i % 3 ? "[" : "{'k': ");
            buf_puts(&text, "0");
            for (int i = depth; i >= 1; i--)
                buf_puts(&text, (i % 3 != 0) != (i == wrong) ? "]" : "}");
            buf_puts(&text, ")]");
            read_whole(&settings, &text, &message);
            buf_puts(&expected, "f({\"a\": ");
            for (int i = 1; i <= depth; i++) buf_puts(&expected, i % 3 ? "[" : "{\"k\": ");
            buf_puts(&expected, "0");
            for (int i = depth; i >= 1; i--) buf_puts(&expected, i % 3 ? "]" : "}");
            buf_puts(&expected, "})");
            bool is_call = strcmp(message.data, expected.data) == 0;
            bool may_be = !wrong && depth < JSON_MAX_DEPTH;
            ck_assert_msg(is_call == may_be, "%d, %d: %s", depth, wrong, message.data);
            buf_free(&text);
            buf_free(&expected);
            buf_free(&message);
        }
    }
}
END_TEST

/* ---- control characters --------------------------------------------------------------------- */

static const struct control_form {
    const char *format, *before, *after;
    bool is_text; /* allowed in the text, and escaped in the arguments */
} control_forms[] = {
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"a", "b\"}}</tool_call>"},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a", "b\":1}}</tool_call>"},
    {"hermes", "<tool_call>{\"name\":\"f\",\"x\":\"a", "b\",\"arguments\":{}}</tool_call>"},
    {"llama3_json", "{\"name\":\"f\",\"parameters\":{\"s\":\"a", "b\"}}"},
    {"mistral", "[TOOL_CALLS]f{\"s\":\"a", "b\"}"},
    {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\na",
     "b\n</parameter>\n</function>\n</tool_call>", true},
};

/* Returns the arguments of a message of one call, or NULL. */
static char *arguments_of(const struct buf *message) {
    size_t n = message->length;
    if (n < 3 || strncmp(message->data, "f(", 2) != 0 || message->data[n - 1] != ')') return NULL;
    return strndup(message->data + 2, n - 3);
}

/* The characters 1 to 31, and 127, which JSON allows unescaped. */
START_TEST(a_raw_control_character_is_refused_or_escaped) {
    const struct control_form *form = &control_forms[_i];
    struct message_settings settings = settings_of(form->format);
    for (int c = 1; c <= 32; c++) {
        struct buf text = {0}, message = {0};
        struct json *json = NULL;
        char control = (char)(c < 32 ? c : 127);
        buf_printf(&text, "%s%c%s", form->before, control, form->after);
        read_whole(&settings, &text, &message);
        char *arguments = arguments_of(&message);
        ck_assert_msg((arguments != NULL) == (form->is_text || c == 32), "%d: %s", c, message.data);
        if (arguments) {
            struct err err;
            ck_assert_msg(!json_parse(&json, "It", arguments, strlen(arguments), &err), "%d: %s", c,
                          err.message);
            const char expected[] = {'a', control, 'b', 0};
            if (json_member(json, "s"))
                ck_assert_str_eq(json_text(json_member(json, "s")), expected);
        }
        json_free(json);
        free(arguments);
        buf_free(&text);
        buf_free(&message);
    }
}
END_TEST

/* ---- text after a call ----------------------------------------------------------------------- */

/* A call of f and one of g, and text between calls, if the format allows it. */
static const struct after_form {
    const char *format, *f, *g, *between;
} after_forms[] = {
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\": 1}}</tool_call>",
     "<tool_call>\n{\"arguments\":{\"n\": 2},\"name\":\"g\"}\n</tool_call>", "x"},
    {"mistral_v11", "[TOOL_CALLS]f[ARGS]{\"n\": 1}", "[TOOL_CALLS]g[ARGS]{\"n\": 2}", "x"},
    {"qwen3_coder",
     "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
     "<tool_call>\n<function=g>\n<parameter=n>\n2\n</parameter>\n</function>\n</tool_call>", "x"},
    {"seed_oss",
     "<seed:tool_call>\n<function=f>\n<parameter=n>1</parameter>\n</function>\n</seed:tool_call>",
     "<seed:tool_call>\n<function=g>\n<parameter=n>2</parameter>\n</function>\n</seed:tool_call>",
     "x"},
};

/* White space around calls is dropped, and white space after other text is kept. One pair of
 * markers may contain several calls. A streamed call that breaks stays, and the next call is
 * separate from it. */
static const struct {
    const char *format, *text, *message;
    bool streams_only;
} runs[] = {
    {"hermes", "<tool_call>{\"name\":\"f\"}</tool_call> \n", "f({})"},
    {"hermes", "<tool_call>{\"name\":\"f\"}</tool_call>x \n", "C{x \n}f({})"},
    {"hermes",
     "x<tool_call>{\"name\":\"f\"}</tool_call> \n<tool_call>{\"name\":\"g\"}</tool_call>\n ",
     "C{x}f({})g({})"},
    {"hermes", "<tool_call>{\"name\":\"f\"}</tool_call>x<tool_call>{\"name\":\"g\"}</tool_call>y\n",
     "C{xy\n}f({})g({})"},
    {"mistral", "[TOOL_CALLS] [{\"name\":\"f\"}, {\"name\":\"g\"}]x\n", "C{x\n}f({})g({})"},
    {"mistral", "[TOOL_CALLS][{\"name\":\"f\"},{\"name\":\"g\"},{\"name\":\"f\"}] ",
     "f({})g({})f({})"},
    {"pythonic", "[f(), g(), f(n=1)]x", "C{x}f({})g({})f({\"n\": 1})"},
    {"hermes",
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\": 1!<tool_call>{\"name\":\"g\"}</tool_call>",
     "C{!}f({\"n\": 1)g({})", true},
};

/* Reads a text cut at each place, and in steps of each length up to 40. */
static void expect_each_cut(const struct message_settings *settings, const char *text,
                            const char *expected) {
    struct buf message = {0};
    size_t length = strlen(text);
    for (size_t cut = 0; cut <= length; cut++) {
        read_message_in_parts(settings, text, cut, length, &message);
        ck_assert_msg(strcmp(message.data, expected) == 0, "cut at %zu: %s gave %s", cut, text,
                      message.data);
    }
    for (size_t step = 1; step <= 40; step++) {
        read_message_in_parts(settings, text, step, step, &message);
        ck_assert_msg(strcmp(message.data, expected) == 0, "every %zu: %s gave %s", step, text,
                      message.data);
    }
    buf_free(&message);
}

START_TEST(what_follows_a_call_is_read_as_if_it_stood_alone) {
    const struct after_form *form = &after_forms[_i];
    for (int stream = 0; stream < 2; stream++) {
        struct message_settings settings = settings_of(form->format);
        struct tool_set *known;
        struct json *tools;
        const char *list =
            "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"n\":{"
            "\"type\":\"integer\"}}}}},{\"function\":{\"name\":\"g\",\"parameters\":{"
            "\"properties\":{\"n\":{\"type\":\"integer\"}}}}}]";
        ck_assert_int_eq(json_parse(&tools, "It", list, strlen(list), NULL), STATUS_OK);
        settings.known = known = tool_set_new(tools, NULL);
        settings.stream_calls = stream;
        json_free(tools);
        struct {
            const char *message, *parts[5];
        } texts[] = {
            {"f({\"n\": 1})", {form->f}},
            {"f({\"n\": 1})g({\"n\": 2})", {form->f, form->g}},
            {"f({\"n\": 1})g({\"n\": 2})f({\"n\": 1})", {form->f, form->g, form->f}},
            {"C{x}f({\"n\": 1})", {form->f, form->between}},
            {"C{x}f({\"n\": 1})g({\"n\": 2})", {form->f, form->between, form->g}},
            {"C{xx}f({\"n\": 1})g({\"n\": 2})", {form->f, form->between, form->g, form->between}},
            {"C{xx}f({\"n\": 1})", {form->between, form->f, form->between}},
        };
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            struct buf text = {0};
            for (int k = 0; k < 5 && texts[i].parts[k]; k++) buf_puts(&text, texts[i].parts[k]);
            expect_each_cut(&settings, text.data, texts[i].message);
            buf_free(&text);
        }
        tool_set_free(known);
    }
}
END_TEST

START_TEST(runs_of_calls_end_where_they_end) {
    for (int stream = runs[_i].streams_only; stream < 2; stream++) {
        struct message_settings settings = settings_of(runs[_i].format);
        settings.stream_calls = stream;
        expect_each_cut(&settings, runs[_i].text, runs[_i].message);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_message_states");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    const int n_nested = sizeof nested_forms / sizeof *nested_forms;
    tcase_add_loop_test(core, arguments_of_each_depth_are_read, 0, n_nested);
    tcase_add_loop_test(core, a_wrong_bracket_at_any_depth_is_no_call, 0, n_nested);
    tcase_add_test(core, siblings_of_other_kinds_are_read);
    tcase_add_test(core, python_of_each_depth_becomes_json);
    tcase_add_loop_test(core, a_raw_control_character_is_refused_or_escaped, 0,
                        sizeof control_forms / sizeof *control_forms);
    tcase_add_loop_test(core, what_follows_a_call_is_read_as_if_it_stood_alone, 0,
                        sizeof after_forms / sizeof *after_forms);
    tcase_add_loop_test(core, runs_of_calls_end_where_they_end, 0, sizeof runs / sizeof *runs);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
