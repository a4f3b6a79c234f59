/* The known formats, one row per family of models. The names are those of vLLM's parsers; the first
 * one is shown to users. A template is matched against the rows in order, so a marker that several
 * families share must be in a later row. */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

#define CALLS_BEGIN                                                                                \
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"                                                                \
    "calls\xE2\x96\x81"                                                                            \
    "begin\xEF\xBD\x9C>"
#define CALLS_END                                                                                  \
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"                                                                \
    "calls\xE2\x96\x81"                                                                            \
    "end\xEF\xBD\x9C>"
#define CALL_BEGIN                                                                                 \
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"                                                                \
    "call\xE2\x96\x81"                                                                             \
    "begin\xEF\xBD\x9C>"
#define CALL_END                                                                                   \
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"                                                                \
    "call\xE2\x96\x81"                                                                             \
    "end\xEF\xBD\x9C>"
#define SEP "<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>"

#define DSML                                                                                       \
    "\xEF\xBD\x9C"                                                                                 \
    "DSML\xEF\xBD\x9C"
#define FOUR_BLANKS OPTIONAL_BLANK OPTIONAL_BLANK OPTIONAL_BLANK OPTIONAL_BLANK
#define ACTION "    {\n        \"tool_name\": \"%n\",\n        \"parameters\": %a\n    }"
#define ACTION_END "\n]" OPTIONAL_BREAK "```" OPTIONAL_BREAK
#define KIMI(word) "<|tool_" word "|>"
#define XTML(tag) "<|open|>" tag "<|sep|>"
#define XTML_END(tag) "<|close|>" tag "<|sep|>"
#define STEP(word) "<\xEF\xBD\x9Ctool_" word "\xEF\xBD\x9C>"
/* HunYuan 3 and 4: the placeholder of the pairs, the word in each marker, and the text after the
 * name. */
#define HUNYUAN(pairs, word, behind_name)                                                          \
    "<tool_calls" word ">" OPTIONAL_BREAK,                                                         \
        "<tool_call" word ">%n" behind_name OPTIONAL_BREAK pairs "/tool_call" word ">",            \
        OPTIONAL_BREAK, OPTIONAL_BREAK "</tool_calls" word ">"
#define COHERE_CALLS                                                                               \
    "<|START_ACTION|>" OPTIONAL_BREAK "[" OPTIONAL_BREAK,                                          \
        FOUR_BLANKS "{\"tool_call_id\": \"%i\", \"tool_name\": \"%n\", \"parameters\": %a}",       \
        "," OPTIONAL_BREAK, OPTIONAL_BREAK "]" OPTIONAL_BREAK "<|END_ACTION|>"
#define BETWEEN_JSON OPTIONAL_SEMICOLON OPTIONAL_BLANK OPTIONAL_BREAK

static const struct tool_form kimi_k3_envelope[N_MARKS] = {
    [MARK_OPEN] = {.call = XTML("response")},
    [MARK_CLOSE] = {.call = XTML_END("response")},
    [MARK_LAST] = {.call = XTML_END("message")},
};

static const struct tool_form ernie45_envelope[N_MARKS] = {
    [MARK_OPEN] = {.call = "<response>\n"},
    [MARK_CLOSE] = {.call = "\n</response>"},
};

static const struct tool_form hunyuan_envelope[N_MARKS] = {
    [MARK_OPEN] = {.call = "<answer>\n"},
    [MARK_CLOSE] = {.call = "\n</answer>"},
};

static const struct tool_form cohere_envelope[N_MARKS] = {
    [MARK_OPEN] = {.call = "<|START_RESPONSE|>"},
    [MARK_CLOSE] = {.call = "<|END_RESPONSE|>"},
};

static const struct tool_form cohere4_envelope[N_MARKS] = {
    [MARK_OPEN] = {.call = "<|START_TEXT|>"},
    [MARK_CLOSE] = {.call = "<|END_TEXT|>"},
};

static const struct tool_format tool_formats[] = {
    {"openai", {"<|channel|>commentary", "<|call|>"}, .parts = &harmony_parts},
    {"kimi_k2",
     {"<|tool_call_argument_begin|>", "<|tool_calls_section_begin|>"},
     .ids = ID_KIMI,
     .forms = {{KIMI("calls_section_begin"),
                KIMI("call_begin") "functions.%n:%i" KIMI("call_argument_begin") "%a" KIMI(
                    "call_end"),
                "", KIMI("calls_section_end")},
               {KIMI("calls_section_begin"),
                KIMI("call_begin") "%n:%i" KIMI("call_argument_begin") "%a" KIMI("call_end"), "",
                KIMI("calls_section_end")}}},
    {"kimi_k3",
     {"<|open|>", NULL},
     "<|close|>",
     .envelope = kimi_k3_envelope,
     .forms = {{XTML("tools"), "<|open|>call tool=\"%n\" index=\"%i\"<|sep|>%tclose|>call<|sep|>",
                "", XTML_END("tools")},
               {XTML("tools"),
                "<|open|>call tool=\"%n\" index=\"%i\"<|sep|><|open|>json "
                "type=\"object\"<|sep|>%a" XTML_END("json") XTML_END("call"),
                "", XTML_END("tools")}}},
    {"gemma4",
     {"<|tool_call>", NULL},
     .forms = {{.call = "<|tool_call>call:%n{%g}<tool_call|>", .between = ""}}},
    {"functiongemma",
     {"<start_function_call>", NULL},
     .forms = {{.call = "<start_function_call>call:%n{%f}<end_function_call>", .between = ""}}},
    {"inkling",
     {"<|content_invoke_tool_json|>", NULL},
     .parts = &inkling_parts,
     .forms = {{.call = "%n<|content_invoke_tool_json|>%j<|end_message|>",
                .between = "<|message_model|>",
                .arguments_key = "args"},
               {.call = "<|content_invoke_tool_json|>%j<|end_message|>",
                .between = "<|message_model|>",
                .arguments_key = "args",
                .is_alternative = true}}},
    {"muse_glimmer muse musespark1x",
     {"<atem:invoke", NULL},
     .parts = &muse_parts,
     .forms = {{.call = " to=%n<|message|>" ATEM_CALL, .between = "<|eom|><|start|>assistant"}}},
    {"deepseek_v4",
     {"tool_calls>", NULL},
     DSML,
     .forms = {{"<" DSML "tool_calls>\n",
                "<" DSML "invoke name=\"%n\">\n" OPTIONAL_BREAK "%d/" DSML "invoke>", "\n",
                "\n</" DSML "tool_calls>"}}},
    {"deepseek_v32",
     {DSML, NULL},
     .forms = {{"<" DSML "function_calls>\n",
                "<" DSML "invoke name=\"%n\">\n" OPTIONAL_BREAK "%d/" DSML "invoke>", "\n",
                "\n</" DSML "function_calls>"}}},
    {"deepseek_v3",
     {"```json", NULL}, /* V3 and R1 */
     CALLS_BEGIN,
     .forms = {{CALLS_BEGIN, CALL_BEGIN "function" SEP "%n\n```json\n%a\n```" CALL_END,
                OPTIONAL_BREAK, CALLS_END}}},
    {"deepseek_v31",
     {CALLS_BEGIN, NULL},
     .forms = {{CALLS_BEGIN, CALL_BEGIN "%n" SEP "%a" CALL_END, OPTIONAL_BREAK, CALLS_END}}},
    {"step3",
     {"<steptml:invoke", NULL},
     .forms = {{STEP("calls_begin") OPTIONAL_BREAK,
                STEP("call_begin") "function" STEP(
                    "sep") "<steptml:invoke name=\"%n\">" OPTIONAL_BREAK
                           "%s/steptml:invoke>" STEP("call_end"),
                OPTIONAL_BREAK, OPTIONAL_BREAK STEP("calls_end")}}},
    {"solar_open2",
     {"<|tool_arg:start|>", NULL},
     .forms = {{.call = "<|tool_call:start|>%n\n%ocall:end|>", .between = OPTIONAL_BREAK}}},
    {"dots",
     {"<dots_function_call>", NULL},
     .forms = {{"<dots_function_call>" OPTIONAL_BREAK,
                "<invoke name=\"%n\">" OPTIONAL_BREAK "%m/invoke>", OPTIONAL_BREAK,
                OPTIONAL_BREAK "</dots_function_call>"}}},
    {"minimax_m3",
     {ELEMENT_MARK, NULL},
     .forms = {{ELEMENT_MARK "<tool_call>\n", ELEMENT_MARK "<invoke name=\"%n\">%e/invoke>", "\n",
                "\n" ELEMENT_MARK "</tool_call>"}}},
    {"minimax_m2",
     {"<minimax:tool_call>", NULL},
     .forms = {{"<minimax:tool_call>\n", "<invoke name=\"%n\">\n%m/invoke>", "\n",
                "\n</minimax:tool_call>"}}},
    {"mistral_v11",
     {"[ARGS]", NULL},
     .ids = ID_NINE,
     .forms = {{.call = "[TOOL_CALLS]%n[ARGS]%a", .between = ""},
               {.call = "[TOOL_CALLS]%n[CALL_ID]%i[ARGS]%a", .between = "", .is_alternative = true},
               {.call = "[TOOL_CALLS]%n%a"},
               {"[TOOL_CALLS]" OPTIONAL_BLANK "[", "%j", ", ", "]", .arguments_key = "arguments"}}},
    {"mistral",
     {"[TOOL_CALLS]", NULL},
     .ids = ID_NINE,
     .forms = {{"[TOOL_CALLS]" OPTIONAL_BLANK "[", "%j", ", ", "]", .arguments_key = "arguments"},
               {.call = "[TOOL_CALLS]%n[ARGS]%a"},
               {.call = "[TOOL_CALLS]%n[CALL_ID]%i[ARGS]%a"},
               {.call = "[TOOL_CALLS]%n%a"}}},
    {"seed_oss",
     {"<seed:tool_call>", NULL},
     .forms = {{.call = "<seed:tool_call>\n<function=%n>\n%l/function>\n</seed:tool_call>",
                .between = "\n"}}},
    {"functionary_v31", /* before Qwen3-Coder: both examples contain "<function=" */
     {"start_tag => `<function`", NULL},
     .forms = {{.call = "<function=%n>%a</function>", .between = ""}}},
    {"functionary_v32",
     {">>>all", NULL},
     .prefix = "all\n",
     .forms = {{.call = "%n\n%a", .between = ">>>", .at_start = true},
               {.call = ">>>%n\n%a", .between = ""}}},
    {"qwen3_coder qwen3_xml mimo step3p5 step5",
     {"<function=", NULL},
     .forms = {{.call = "<tool_call>\n<function=%n>\n%x/function>\n</tool_call>", .between = "\n"},
               {.call = "<function=%n>\n%x/function>", .between = "\n"}}},
    {"hy_v4", /* both before GLM 4.5, which writes the same pairs */
     {":6124c78e", NULL},
     .forms = {{HUNYUAN("%y", ":6124c78e", "")}, {HUNYUAN("%k", "", ""), .is_alternative = true}}},
    {"hy_v3",
     {"<tool_sep", NULL},
     "<arg_key",
     .forms = {{HUNYUAN("%k", "", "<tool_sep>")},
               {HUNYUAN("%h", ":opensource", "<tool_sep:opensource>"), .is_alternative = true}}},
    {"glm45 glm47 poolside_v1 ling3",
     {"<arg_key>", NULL},
     .forms = {{.call = "<tool_call>%n" OPTIONAL_BREAK "%k/tool_call>",
                .between = OPTIONAL_BREAK}}},
    {"olmo3",
     {"<function_calls>", NULL},
     .forms = {{"<function_calls>\n", "%n(%p)", "\n", "\n</function_calls>"}}},
    {"firefunction_v2", /* before Phi-4-mini: both calls begin with "functools[" */
     {"prefix function calls with functools marker", NULL},
     .forms = {{"functools[", "%j", ", ", "]", .arguments_key = "arguments"}}},
    {"phi4_mini_json",
     {"functools[", "<|tool|>"},
     .forms = {{"functools[", "%j", ", ", "]", .arguments_key = "arguments"},
               {"<|tool_call|>" OPTIONAL_BLANK "[", "%j", ", ", "]<|/tool_call|>",
                .arguments_key = "arguments", .is_alternative = true}}},
    {"granite",
     {"<|tool_call|>", NULL},
     .forms = {{"<|tool_call|>" OPTIONAL_BLANK "[", "%j", ", ", "]", .arguments_key = "arguments"},
               {"<tool_call>" OPTIONAL_BLANK "[", "%j", ", ", "]", .arguments_key = "arguments"}}},
    {"lfm2",
     {"<|tool_call_start|>", NULL},
     .forms = {{"<|tool_call_start|>" OPTIONAL_BLANK "[", "%n(%p)", ", ", "]<|tool_call_end|>"}}},
    {"nemotron_json",
     {"<TOOLCALL>", NULL},
     .forms = {{"<TOOLCALL>" OPTIONAL_BLANK "[", "%j", ", ", "]" OPTIONAL_BLANK "</TOOLCALL>",
                .arguments_key = "arguments"}}},
    {"apertus",
     {"<|tools_prefix|>", NULL},
     .forms = {{"<|tools_prefix|>" OPTIONAL_BLANK "[", "{\"%n\": %a}", ", ",
                "]" OPTIONAL_BLANK "<|tools_suffix|>"}}},
    {"cohere_command4",
     {"<|START_TEXT|>", NULL},
     "<|START_ACTION|>",
     .envelope = cohere4_envelope,
     .forms = {{COHERE_CALLS}}},
    {"cohere2 cohere_command3",
     {"<|START_ACTION|>", NULL},
     .envelope = cohere_envelope,
     .forms = {{COHERE_CALLS}}},
    {"longcat",
     {"<longcat_tool_call>", NULL},
     .forms = {{.call =
                    "<longcat_tool_call>" OPTIONAL_BREAK "%j" OPTIONAL_BREAK "</longcat_tool_call>",
                .between = OPTIONAL_BREAK,
                .arguments_key = "arguments"}}},
    {"internlm",
     {"<|action_start|>", NULL},
     "<|plugin|>",
     .forms = {{.call = "<|action_start|><|plugin|>" OPTIONAL_BREAK "%j" OPTIONAL_BREAK
                        "<|action_end|>",
                .between = OPTIONAL_BREAK,
                .arguments_key = "parameters"}}},
    {"gigachat3",
     {"<|function_call|>", "function call<|role_sep|>"},
     .forms = {{.call = "<|function_call|>%j", .between = "", .arguments_key = "arguments"},
               {.call = "<|message_sep|>\n\nfunction call<|role_sep|>\n%j",
                .between = "",
                .arguments_key = "arguments"}}},
    {"minicpm5",
     {"<param name=", NULL},
     .forms = {{.call = "<function name=\"%n\">" OPTIONAL_BREAK "%c/function>",
                .between = OPTIONAL_BREAK}}},
    {"command_r",
     {"Action:\\n```json", NULL}, /* in the source of a template */
     .forms = {{"Action:\n```json\n[\n", ACTION, ",\n", ACTION_END, .marker = "Action:\n```json"},
               {"Action: ```json\n[\n", ACTION, ",\n", ACTION_END, .marker = "Action: ```json",
                .is_alternative = true}}},
    {"granite-20b-fc",
     {"<function_call>", NULL},
     .forms = {{.call = "<function_call> %j", .between = "", .arguments_key = "arguments"}}},
    {"minimax",
     {"<beginning_of_sentence>", NULL},
     .forms = {{"<tool_calls>\n", "%j", "\n", "\n</tool_calls>", .arguments_key = "arguments"}}},
    {"jamba hunyuan_a13b", /* and Apriel */
     {"<tool_calls>", NULL},
     .forms = {{"<tool_calls>" OPTIONAL_BREAK "[" OPTIONAL_BREAK, "%j",
                "," OPTIONAL_BLANK OPTIONAL_BREAK, OPTIONAL_BREAK "]</tool_calls>",
                .arguments_key = "arguments"}}},
    {"hermes granite4 ernie45 qwen3_json", /* Qwen 2.5 and 3, SmolLM3, ERNIE 4.5 */
     {"<tool_call>", NULL},
     .forms = {{.call = "<tool_call>\n%j\n</tool_call>",
                .between = "\n",
                .arguments_key = "arguments"}}},
    {"pythonic llama4_pythonic",
     {"func_name1(params_name1=", NULL},
     .forms = {{"[", "%n(%p)", ", ", "]", .at_start = true},
               {"<|python_start|>[", "%n(%p)", ", ", "]<|python_end|>", .at_start = true},
               {"<|python_tag|>[", "%n(%p)", ", ", "]", .at_start = true}}},
    {"xlam",
     {"make calls in a single JSON array", NULL},
     .forms = {{"[", "%j", ", ", "]", .arguments_key = "arguments", .at_start = true},
               {"```json\n[", "%j", ", ", "]\n```", .arguments_key = "arguments", .at_start = true,
                .is_alternative = true},
               {"[TOOL_CALLS][", "%j", ", ", "]", .arguments_key = "arguments", .at_start = true,
                .is_alternative = true},
               {"<tool_call>[", "%j", ", ", "]</tool_call>", .arguments_key = "arguments",
                .at_start = true, .is_alternative = true}}},
    {"llama3_json llama4_json",
     {"<|python_tag|>", "dictionary of argument name"},
     .forms =
         {{.call = "%j", .between = BETWEEN_JSON, .arguments_key = "parameters", .at_start = true},
          {"<|python_tag|>", "%j", BETWEEN_JSON, .arguments_key = "parameters", .at_start = true}}},
};

static const struct reasoning_format reasoning_formats[] = {
    {"openai_gptoss", "<|channel|>analysis", .parts = &harmony_parts},
    {"inkling", "<|content_thinking|>", .parts = &inkling_parts},
    {"muse_glimmer muse musespark1x", "to=self<|message|>", .parts = &muse_parts},
    {"kimi_k3", "<|open|>", XTML("think"), XTML_END("think"), .envelope = kimi_k3_envelope},
    {"ernie45", "<response>", "<think>", "</think>", .envelope = ernie45_envelope},
    {"hunyuan_a13b", NULL, "<think>", "</think>", .envelope = hunyuan_envelope}, /* by name */
    {"seed_oss", "<seed:think>", "<seed:think>", "</seed:think>"},
    {"mistral", "[THINK]", "[THINK]", "[/THINK]"},
    {"granite",
     "Here is my thought process:", "Here is my thought process:", "Here is my response:"},
    {"gemma4", "<|channel>", "<|channel>thought\n", "<channel|>"},
    {"apertus", "<|inner_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>"},
    {"cohere_command4", "<|START_TEXT|>", "<|START_THINKING|>", "<|END_THINKING|>",
     .envelope = cohere4_envelope},
    {"cohere2 cohere_command3", "<|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>",
     .envelope = cohere_envelope},
    {"solar_open2", "<|think:start|>", "<|think:start|>", "<|think:end|>"},
    {"hy_v3", ":opensource", "<think:opensource>", "</think:opensource>"},
    {"hy_v4", ":6124c78e", "<think:6124c78e>", "</think:6124c78e>"},
    {"minimax_m3", "<mm:think>", "<mm:think>", "</mm:think>"},
    /* by name */
    {"minimax_m2_append_think", NULL, "<think>", "</think>", .in_content = true},
    {"qwen3 deepseek_r1 deepseek_v3 deepseek_v4 glm45 glm47 olmo3 holo2 kimi_k2 mimo minimax_m2 "
     "nemotron_v3 step3 step3p5 step5 hy_v3 hy_v4 poolside_v1 ling3 minicpmv "
     "granite_thinking_parser",
     "<think>", "<think>", "</think>"},
};

#define N_TOOL_FORMATS (sizeof tool_formats / sizeof *tool_formats)
#define N_REASONING_FORMATS (sizeof reasoning_formats / sizeof *reasoning_formats)

/* ---- by name -------------------------------------------------------------------------------- */

static bool has_word(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (n == length && memcmp(at, word, n) == 0) return true;
        at += n;
    }
    return false;
}

const struct tool_format *tool_format_find(const char *name) {
    for (size_t i = 0; i < N_TOOL_FORMATS; i++)
        if (has_word(tool_formats[i].names, name)) return &tool_formats[i];
    return NULL;
}

/* If rows share a name, the last one has the markers of most models. */
const struct reasoning_format *reasoning_format_find(const char *name) {
    for (size_t i = N_REASONING_FORMATS; i-- > 0;)
        if (has_word(reasoning_formats[i].names, name)) return &reasoning_formats[i];
    return NULL;
}

void tool_format_name(const struct tool_format *format, struct buf *out) {
    assert(format->names && *format->names);
    buf_add(out, format->names, strcspn(format->names, " "));
}

const char *tool_format_prefix(const struct tool_format *format) {
    return format->prefix;
}

bool reasoning_format_has_envelope(const struct reasoning_format *format) {
    return format->envelope != NULL;
}

const char *reasoning_format_end(const struct reasoning_format *format) {
    return format->end;
}

struct reasoning_marks reasoning_format_marks(const struct reasoning_format *format,
                                              bool must_call) {
    const struct parts_style *parts = format->parts;
    assert(parts || (format->begin && format->end));
    const char *open = format->envelope ? format->envelope[MARK_OPEN].call : NULL;
    if (!parts) return (struct reasoning_marks){format->begin, format->end, open, false};
    return (struct reasoning_marks){parts->think_open, parts->think_end,
                                    must_call ? parts->before_call : parts->before_final, true};
}

static void add_names(struct buf *out, const char *names) {
    for (const char *at = names; *at; at++) {
        if (at == names && out->length > 0) buf_puts(out, ", ");
        if (*at == ' ')
            buf_puts(out, ", ");
        else
            buf_add(out, at, 1);
    }
}

void tool_format_names(struct buf *out) {
    for (size_t i = 0; i < N_TOOL_FORMATS; i++) add_names(out, tool_formats[i].names);
}

void reasoning_format_names(struct buf *out) {
    for (size_t i = 0; i < N_REASONING_FORMATS; i++) add_names(out, reasoning_formats[i].names);
}

/* ---- by template ---------------------------------------------------------------------------- */

static bool holds(const char *source, size_t length, const char *needle) {
    return needle && memmem(source, length, needle, strlen(needle));
}

const struct tool_format *tool_format_of_template(const char *source, size_t length) {
    for (size_t i = 0; i < N_TOOL_FORMATS; i++) {
        const struct tool_format *format = &tool_formats[i];
        bool found =
            holds(source, length, format->needle[0]) || holds(source, length, format->needle[1]);
        if (found && (!format->also || holds(source, length, format->also))) return format;
    }
    return NULL;
}

const struct reasoning_format *reasoning_format_named(const char *name, const char *source,
                                                      size_t length) {
    for (size_t i = 0; i < N_REASONING_FORMATS; i++) {
        const struct reasoning_format *format = &reasoning_formats[i];
        if (has_word(format->names, name) && holds(source, length, format->needle)) return format;
    }
    return reasoning_format_find(name);
}

const struct reasoning_format *reasoning_format_of_template(const char *source, size_t length) {
    for (size_t i = 0; i < N_REASONING_FORMATS; i++)
        if (holds(source, length, reasoning_formats[i].needle)) return &reasoning_formats[i];
    return NULL;
}

/* ---- markers -------------------------------------------------------------------------------- */

/* Is the text a part of a marker that a placeholder writes or begins? */
static bool placeholder_holds(const char *at, const char *text, size_t length) {
    assert(*at == '%');
    if (at[1] == 'g') return memmem(GEMMA_TEXT_MARK, strlen(GEMMA_TEXT_MARK), text, length);
    if (at[1] == 'f')
        return memmem(FUNCTION_GEMMA_TEXT_MARK, strlen(FUNCTION_GEMMA_TEXT_MARK), text, length);
    if (!at[1] || !strchr(XML_PLACEHOLDERS, at[1])) return false;
    const char *begun;
    struct buf enclosing = {0};
    size_t consumed = xml_style_consumed(at[1], &begun);
    buf_add(&enclosing, begun, consumed);
    buf_puts(&enclosing, at + 2);
    bool found = memmem(enclosing.data, enclosing.length, text, length);
    buf_free(&enclosing);
    return found || xml_style_holds(at[1], text, length);
}

static bool form_holds(const struct tool_form *form, const char *text, size_t length) {
    const char *const parts[] = {form->open, form->call, form->between, form->close};
    for (int i = 0; i < 4; i++)
        if (parts[i] && memmem(parts[i], strlen(parts[i]), text, length)) return true;
    for (const char *at = form->call; at && (at = strchr(at, '%')); at += 1 + (at[1] != 0))
        if (placeholder_holds(at, text, length)) return true;
    return false;
}

bool message_has_marker(const struct tool_format *tools, const struct reasoning_format *reasoning,
                        const char *text, size_t length) {
    const struct parts_style *parts = parts_of(tools, reasoning);
    const struct tool_form *envelope = tools ? tools->envelope : NULL;
    if (length == 0) return false;
    for (int i = 0; envelope && i < N_MARKS; i++)
        if (form_holds(&envelope[i], text, length)) return true;
    if (parts && memmem(parts->markers, strlen(parts->markers), text, length)) return true;
    for (int i = 0; tools && i < MAX_FORMS; i++)
        if (form_holds(&tools->forms[i], text, length)) return true;
    if (!reasoning || reasoning->parts) return false;
    for (int i = 0; reasoning->envelope && i < N_MARKS; i++)
        if (form_holds(&reasoning->envelope[i], text, length)) return true;
    return memmem(reasoning->begin, strlen(reasoning->begin), text, length) ||
           memmem(reasoning->end, strlen(reasoning->end), text, length);
}
