/* Writes the grammar of an answer with tools as a structural tag (docs/structured-output.md). It
 * uses the same rows as the parser, so the parser finds every call that the grammar accepts.
 *
 *   [reasoning] [calls]             the answer must call
 *   [reasoning] text and calls      it may call: the marker of a form begins a call
 *   [reasoning] calls, or text      it may call, at the start only: text begins unlike any call
 *   [reasoning] content             without tools
 *
 * Marks of an envelope may surround content, and follow calls.
 *
 * Calls that a model must write use the first form. */
#include <assert.h>
#include <string.h>

#include "server/json/json.h"
#include "server/message/internal.h"

/* Iterates over the functions that may be called. */
#define functions_each(function, asked)                                                            \
    json_each(function##_tool,                                                                     \
              (asked)->functions) for (const struct json *function =                               \
                                           json_member(function##_tool, "function");               \
                                       function && may_call(asked, function); function = NULL)

static bool may_call(const struct tool_grammar *asked, const struct json *function) {
    return tool_filter_passes(&asked->filter, function);
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Writes a list of calls with separators. It holds one call unless parallel calls are allowed. */
static void write_calls(const struct tool_grammar *asked, const struct tool_form *form,
                        struct buf *out) {
    assert(form->call && form->between);
    struct call_writer to = {.asked = asked, .form = form, .out = out};
    buf_puts(out, "{\"type\":\"tags_with_separator\",\"at_least_one\":true,\"separator\":");
    grammar_write_piece(out, form->between);
    if (!asked->parallel) buf_puts(out, ",\"stop_after_first\":true");
    buf_puts(out, ",\"tags\":[");
    functions_each(function, asked) grammar_write_call(&to, function);
    buf_puts(out, "]}");
}

/* Writes a run of calls as a tag. */
static void write_run(const struct tool_grammar *asked, const struct tool_form *form,
                      struct buf *out) {
    const char *open = form->open ? form->open : "";
    buf_puts(out, "{\"type\":\"tag\",\"begin\":");
    json_write_string(out, open, form_fixed_length(open));
    buf_puts(out, ",\"content\":{\"type\":\"sequence\",\"elements\":[");
    grammar_write_piece(out, open + form_fixed_length(open));
    buf_puts(out, ",");
    write_calls(asked, form, out);
    buf_puts(out, ",");
    grammar_write_piece(out, form->close ? form->close : "");
    buf_puts(out, "]},\"end\":\"\"}");
}

/* ---- text and calls ------------------------------------------------------------------------- */

/* Returns the length of the marker that begins a call of the form anywhere in a text. */
static size_t marker_of(const struct tool_form *form, const char **marker) {
    if (form->marker) {
        assert(form->open && strncmp(form->open, form->marker, strlen(form->marker)) == 0);
        *marker = form->marker;
        return strlen(form->marker);
    }
    *marker = form->open ? form->open : form->call;
    return strcspn(*marker, " \n%" OPTIONAL_BLANK OPTIONAL_BREAK);
}

/* Does an earlier form have the same marker? */
static bool has_marker_before(const struct tool_format *tools, int form) {
    assert(form >= 0 && form < MAX_FORMS);
    const char *marker, *other;
    size_t length = marker_of(&tools->forms[form], &marker);
    for (int i = 0; i < form; i++) {
        size_t n = marker_of(&tools->forms[i], &other);
        if (n == length && memcmp(marker, other, n) == 0) return true;
    }
    return false;
}

/* Iterates over the forms in which calls may be written. */
#define forms_each(i, tools)                                                                       \
    for (int i = 0; i < MAX_FORMS && (tools)->forms[i].call; i++)                                  \
        if ((tools)->forms[i].is_alternative || !has_marker_before(tools, i))

static void write_triggered(const struct tool_grammar *asked, struct buf *out) {
    struct call_writer to = {.asked = asked, .out = out};
    const char *marker;
    buf_puts(out, "{\"type\":\"triggered_tags\",\"triggers\":[");
    forms_each(i, asked->tools) {
        size_t length = marker_of(&asked->tools->forms[i], &marker);
        if (has_marker_before(asked->tools, i)) continue;
        if (i > 0) buf_puts(out, ",");
        json_write_string(out, marker, length);
    }
    buf_puts(out, asked->parallel ? "],\"tags\":[" : "],\"stop_after_first\":true,\"tags\":[");
    forms_each(i, asked->tools) {
        to.form = &asked->tools->forms[i];
        if (!to.form->open) {
            functions_each(function, asked) grammar_write_call(&to, function);
            continue;
        }
        if (to.is_second) buf_puts(out, ",");
        write_run(asked, to.form, out);
        to.is_second = true;
    }
    buf_puts(out, "]}");
}

/* Appends a text to a regular expression; white space matches any white space. */
static void add_to_pattern(struct buf *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (is_space(text[i])) {
            buf_puts(out, "\\s*");
            continue;
        }
        if (strchr("\\.+*?()|[]{}^$", text[i])) buf_puts(out, "\\");
        buf_add(out, &text[i], 1);
    }
}

/* Writes a regular expression that matches every spelling of the beginning of a call at the start
 * of an answer. */
static void write_beginnings(const struct tool_grammar *asked, struct buf *out) {
    struct buf pattern = {0}, names = {0};
    functions_each(function, asked) {
        const struct json *name = json_member(function, "name");
        if (names.length > 0) buf_puts(&names, "|");
        add_to_pattern(&names, json_text(name), json_length(name));
    }
    forms_each(i, asked->tools) {
        const struct tool_form *form = &asked->tools->forms[i];
        buf_puts(&pattern, i > 0 ? "|\\s*" : "\\s*");
        if (form->open) add_to_pattern(&pattern, form->open, strlen(form->open));
        if (form->call[1] == 'j')
            buf_printf(&pattern,
                       "\\s*\\{\\s*(?:\"type\"\\s*:\\s*\"(?:[^\"\\\\]|\\\\(?s:.))*\"\\s*,\\s*)?"
                       "\"name\"\\s*:"
                       "\\s*\"(?:%s)\"\\s*,\\s*\"(?:parameters|arguments)\"\\s*:\\s*\\{",
                       names.data);
        else
            buf_printf(&pattern, "\\s*(?:%s)\\s*\\(", names.data);
    }
    grammar_write_text(out, &pattern);
    buf_free(&pattern);
    buf_free(&names);
}

/* Writes a run of the first form or of an alternative to it. */
static void write_first_run(const struct tool_grammar *asked, struct buf *out) {
    buf_puts(out, "{\"type\":\"or\",\"elements\":[");
    write_run(asked, &asked->tools->forms[0], out);
    for (int i = 1; i < MAX_FORMS; i++) {
        if (!asked->tools->forms[i].is_alternative) continue;
        buf_puts(out, ",");
        write_run(asked, &asked->tools->forms[i], out);
    }
    buf_puts(out, "]}");
}

static void write_text_or_run(const struct tool_grammar *asked, struct buf *out) {
    buf_puts(out, "{\"type\":\"or\",\"elements\":[");
    forms_each(i, asked->tools) {
        write_run(asked, &asked->tools->forms[i], out);
        buf_puts(out, ",");
    }
    if (asked->content) {
        buf_puts(out, asked->content);
    } else {
        buf_puts(out, "{\"type\":\"any_text\",\"not_at_start\":");
        write_beginnings(asked, out);
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
}

/* Writes content after its prefix, with calls in it, or a run of calls. The name of a tool is part
 * of the marker that begins a call: `>>>` alone is text. */
static void write_after_prefix(const struct tool_grammar *asked, struct buf *out) {
    const struct tool_format *tools = asked->tools;
    struct call_writer to = {.asked = asked, .form = &tools->forms[1], .out = out};
    const char *marker;
    int length = (int)marker_of(to.form, &marker);
    bool is_second = false;
    buf_puts(out, "{\"type\":\"sequence\",\"elements\":[{\"type\":\"const_string\",\"value\":");
    grammar_write_chars(out, tools->prefix);
    buf_puts(out, "},");
    if (asked->content) {
        buf_printf(out, "%s]}", asked->content);
        return;
    }
    buf_puts(out, "{\"type\":\"triggered_tags\",\"triggers\":[");
    functions_each(function, asked) {
        buf_printf(out, is_second ? ",\"%.*s%s\\n\"" : "\"%.*s%s\\n\"", length, marker,
                   json_text(json_member(function, "name")));
        is_second = true;
    }
    buf_puts(out, asked->parallel ? "],\"tags\":[" : "],\"stop_after_first\":true,\"tags\":[");
    functions_each(function, asked) grammar_write_call(&to, function);
    buf_puts(out, "]}]}");
}

static void write_prefixed(const struct tool_grammar *asked, struct buf *out) {
    buf_puts(out, "{\"type\":\"or\",\"elements\":[");
    write_run(asked, &asked->tools->forms[0], out);
    if (!asked->must_call) {
        buf_puts(out, ",");
        write_after_prefix(asked, out);
    }
    buf_puts(out, "]}");
}

/* ---- reasoning ------------------------------------------------------------------------------ */

#define SPACE "{\"type\":\"regex\",\"pattern\":\"[ \\n]{0,4}\"}"
#define NOTHING "{\"type\":\"const_string\",\"value\":\"\"}"

/* Writes an optional block of reasoning, followed by `behind`. */
static void write_thoughts(const struct reasoning_format *reasoning, const char *behind,
                           struct buf *out) {
    buf_puts(out, "{\"type\":\"or\",\"elements\":[" NOTHING
                  ",{\"type\":\"sequence\",\"elements\":[" SPACE
                  ",{\"type\":\"tag\",\"content\":{\"type\":\"any_text\"},\"begin\":");
    grammar_write_chars(out, reasoning->begin);
    buf_puts(out, ",\"end\":");
    grammar_write_chars(out, reasoning->end);
    buf_printf(out, "}%s]}]},", behind);
}

/* ---- harmony -------------------------------------------------------------------------------- */

/* Writes a part as a tag: a header, a body without markers, and the beginning of the next one. */
static void write_part(const struct parts_style *parts, const char *open, struct buf *out) {
    buf_puts(out, "{\"begin\":");
    grammar_write_chars(out, open);
    buf_printf(out,
               ",\"content\":{\"type\":\"any_text\",\"excludes\":%s},\"end\":", parts->excludes);
    grammar_write_chars(out, parts->think_close);
    buf_puts(out, "}");
}

/* Writes any number of reasoning parts and, if has_texts, of texts before a call. */
static void write_harmony_thoughts(const struct parts_style *parts, bool has_texts,
                                   struct buf *out) {
    buf_puts(out, "{\"type\":\"tags_with_separator\",\"separator\":\"\",\"tags\":[");
    write_part(parts, parts->think_open, out);
    if (has_texts) buf_puts(out, ",");
    if (has_texts) write_part(parts, parts->text_open, out);
    buf_puts(out, "]},");
}

static void write_harmony_final(const struct parts_style *parts, const char *content,
                                struct buf *out) {
    buf_puts(out, "{\"type\":\"sequence\",\"elements\":[{\"type\":\"tag\",\"begin\":");
    grammar_write_chars(out, parts->final_open);
    buf_printf(out, ",\"content\":%s,\"end\":\"\"}", content);
    const struct tool_form close[N_MARKS] = {[MARK_CLOSE] = {.call = parts->final_close}};
    grammar_write_marks(out, close, MARK_CLOSE, MARK_CLOSE);
    buf_puts(out, "]}");
}

/* The header of a call. The recipient precedes or follows the channel, and the type of the content
 * may be absent. */
#define CHANNEL "<\\|channel\\|>(?:commentary|analysis)"
#define TYPE "(?: ?<\\|constrain\\|>json| json)?<\\|message\\|>"

static void write_harmony_call(const struct json *function, struct buf *out) {
    struct buf name = {0}, pattern = {0};
    const struct json *called = json_member(function, "name");
    grammar_add_exact(&name, json_text(called), json_length(called));
    buf_printf(&pattern, "(?:" CHANNEL " to=functions\\.%s| to=functions\\.%s" CHANNEL ")" TYPE,
               name.data, name.data);
    buf_puts(out, "{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":");
    grammar_write_text(out, &pattern);
    buf_puts(out, "},");
    grammar_write_arguments(out, 'a', function);
    buf_puts(out, "]}");
    buf_free(&name);
    buf_free(&pattern);
}

/* Writes the final answer: the content, or any text without markers. */
static void write_answer(const struct tool_grammar *asked, struct buf *out) {
    const struct parts_style *parts = asked->tools->parts;
    struct buf any_text = {0};
    buf_printf(&any_text, "{\"type\":\"any_text\",\"excludes\":%s}", parts->excludes);
    write_harmony_final(parts, asked->content ? asked->content : any_text.data, out);
    buf_free(&any_text);
}

/* Writes reasoning, then the final answer or calls, which end the answer; gpt-oss writes one. */
static void write_harmony(const struct tool_grammar *asked, struct buf *out) {
    bool is_second = !asked->must_call, has_forms = asked->tools->forms[0].call;
    bool has_texts = !asked->content && !(has_forms && asked->must_call);
    write_harmony_thoughts(asked->tools->parts, has_texts, out);
    buf_puts(out, "{\"type\":\"or\",\"elements\":[");
    if (!asked->must_call) write_answer(asked, out);
    if (has_forms) {
        if (is_second) buf_puts(out, ",");
        write_first_run(asked, out);
        buf_puts(out, "]}");
        return;
    }
    functions_each(function, asked) {
        if (is_second) buf_puts(out, ",");
        write_harmony_call(function, out);
        is_second = true;
    }
    buf_puts(out, "]}");
}

/* ---- the whole grammar ---------------------------------------------------------------------- */

#define SEQUENCE "{\"type\":\"structural_tag\",\"format\":{\"type\":\"sequence\",\"elements\":["

/* Writes content in its envelope, as elements of a sequence. */
static void write_enclosed(const struct tool_form *envelope, const char *content, struct buf *out) {
    buf_puts(out, NOTHING);
    grammar_write_marks(out, envelope, MARK_OPEN, MARK_OPEN);
    buf_printf(out, ",%s", content);
    grammar_write_marks(out, envelope, MARK_CLOSE, MARK_LAST);
}

void thoughts_grammar_write(const struct reasoning_format *reasoning, bool may_think,
                            const char *content, struct buf *out) {
    assert(may_think || reasoning->envelope);
    buf_puts(out, SEQUENCE);
    if (reasoning->parts) {
        write_harmony_thoughts(reasoning->parts, false, out);
        write_harmony_final(reasoning->parts, content, out);
    } else {
        if (may_think) write_thoughts(reasoning, "," SPACE, out);
        write_enclosed(reasoning->envelope, content, out);
    }
    buf_puts(out, "]}}");
}

/* Writes calls, or content in its envelope. */
static void write_enclosed_runs(const struct tool_grammar *asked, struct buf *out) {
    const struct tool_form *envelope = asked->tools->envelope;
    if (!asked->must_call) {
        buf_puts(out, "{\"type\":\"or\",\"elements\":[{\"type\":\"sequence\",\"elements\":[");
        write_enclosed(envelope, asked->content, out);
        buf_puts(out, "]},{\"type\":\"sequence\",\"elements\":[");
    }
    buf_puts(out, NOTHING);
    grammar_write_marks(out, envelope, MARK_OPEN, MARK_CLOSE);
    buf_puts(out, ",");
    write_first_run(asked, out);
    grammar_write_marks(out, envelope, MARK_LAST, MARK_LAST);
    if (!asked->must_call) buf_puts(out, "]}]}");
}

void tool_grammar_write(const struct tool_grammar *asked, struct buf *out) {
    assert(asked->tools && asked->functions);
    const struct tool_form *first = &asked->tools->forms[0];
    buf_puts(out, SEQUENCE);
    if (asked->tools->parts) {
        write_harmony(asked, out);
    } else {
        bool is_free = !asked->must_call && !first->at_start && !asked->content;
        if (asked->reasoning && asked->reasoning->begin) write_thoughts(asked->reasoning, "", out);
        if (!is_free) buf_puts(out, SPACE ",");
        if (asked->tools->prefix)
            write_prefixed(asked, out);
        else if (asked->tools->envelope && !is_free)
            write_enclosed_runs(asked, out);
        else if (asked->must_call)
            write_first_run(asked, out);
        else if (is_free)
            write_triggered(asked, out);
        else
            write_text_or_run(asked, out);
    }
    buf_puts(out, "]}}");
}
