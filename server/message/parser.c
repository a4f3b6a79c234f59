/* DESIGN: reads an answer's text as it arrives, in linear time.
 *
 *   START ──begin marker──> REASONING ──end marker──> TEXT <──> CALLS
 *     └───────────── anything else ───────────────────┘
 *
 * Undecided bytes stay in `input`. If a reading fails, the parser returns to `start`, the first
 * undecided byte, and tries the next possibility: the family's next form of a call, the text after
 * a call, or content. So the result depends only on the bytes and not on how they were divided. The
 * parser rereads only short texts, markers and a name. A call that breaks later becomes content as
 * a whole and is not searched again.
 *
 * Content keeps all bytes except white space around calls and after reasoning. Calls in reasoning
 * count only at the end of an answer (thought_calls.c).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/message/internal.h"

/* If a reading fails within this many bytes, the text is read again from its second byte, because
 * another call may begin in it. Longer than every marker and name. */
#define MAX_READ_AGAIN 256

_Static_assert(N_MARKS <= MAX_FORMS, "form_at indexes both");

static bool is_harmony(const struct message_settings *settings) {
    return parts_of(settings->tools, settings->reasoning) != NULL;
}

/* Does reasoning stay in the content? */
static bool is_kept(const struct message_parser *parser) {
    return parser->settings.reasoning && parser->settings.reasoning->in_content;
}

struct message_parser *message_parser_new(const struct message_settings *settings) {
    struct message_parser *parser = mem_calloc(1, sizeof *parser);
    parser->settings = *settings;
    parser->prefix = settings->tools ? settings->tools->prefix : settings->prefix;
    bool may_start = (settings->reasoning || parser->prefix) && !settings->starts_behind;
    parser->mode = may_start ? MODE_START : MODE_TEXT;
    if (settings->reasoning && settings->starts_inside) parser->mode = MODE_REASONING;
    if (settings->tools) parser->envelope = settings->tools->envelope;
    if (settings->reasoning && settings->reasoning->envelope)
        parser->envelope = settings->reasoning->envelope;
    if (is_harmony(settings)) parser->mode = MODE_HEADER;
    parser->drops_space = settings->starts_inside && !settings->continues;
    if (is_kept(parser)) {
        parser->owes_begin = parser->drops_space;
        parser->drops_space = false;
    }
    if (settings->tools && settings->reasoning && !is_harmony(settings))
        parser->thoughts = thought_calls_new(settings);
    return parser;
}

void message_parser_free(struct message_parser *parser) {
    if (!parser) return;
    thought_calls_free(parser->thoughts);
    pattern_free(&parser->reader);
    buf_free(&parser->input);
    buf_free(&parser->space);
    mem_free(parser);
}

int message_parser_calls(const struct message_parser *parser) {
    return parser->n_calls;
}

bool message_parser_has_cut_call(const struct message_parser *parser) {
    return parser->n_calls > 0 && !parser->is_last_whole;
}

bool message_parser_is_idle(const struct message_parser *parser) {
    return !parser->is_announced;
}

bool message_parser_is_reasoning(const struct message_parser *parser) {
    bool is_part = parser->mode == MODE_BODY && parser->body == BODY_REASONING;
    return parser->mode == MODE_REASONING || is_part;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Holds white space back until another byte follows. */
static void add_text(struct message_parser *parser, enum message_kind kind, char c) {
    if (is_space(c)) {
        if (!parser->drops_space) buf_add(&parser->space, &c, 1);
        return;
    }
    message_add_text(parser->out, kind, parser->space.data, parser->space.length);
    buf_clear(&parser->space);
    message_add_text(parser->out, kind, &c, 1);
    parser->drops_space = false;
}

void parser_add_content(struct message_parser *parser, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        add_text(parser, MESSAGE_CONTENT, text[i]);
        if (is_space(text[i])) continue;
        parser->has_content = true;
        parser->is_behind_call = false;
    }
}

/* Reasoning in the content does not count as content: calls at its end are still the answer's. */
void parser_add_reasoning(struct message_parser *parser, char c) {
    if (parser->thoughts) thought_calls_add(parser->thoughts, c);
    add_text(parser, is_kept(parser) ? MESSAGE_CONTENT : MESSAGE_REASONING, c);
}

/* Keeps a marker in the content, or drops the white space beside it. */
static void pass_marker(struct message_parser *parser, const char *marker) {
    assert(marker && *marker && parser->settings.reasoning);
    if (!is_kept(parser)) {
        parser_drop_space(parser);
        return;
    }
    for (const char *at = marker; *at; at++) add_text(parser, MESSAGE_CONTENT, *at);
}

void parser_drop_space(struct message_parser *parser) {
    buf_clear(&parser->space);
    parser->drops_space = !parser->has_content;
}

/* ---- reasoning ------------------------------------------------------------------------------ */

/* Returns to the first byte of an incomplete marker that turned out not to match. */
static void unmatch(struct message_parser *parser) {
    parser->at = parser->start;
    parser->matched = 0;
}

static void step_start(struct message_parser *parser, char c) {
    const struct reasoning_format *reasoning = parser->settings.reasoning;
    const char *begin = reasoning ? reasoning->begin : parser->prefix;
    assert(begin && parser->mode == MODE_START);
    parser->at++;
    if (parser->matched == 0 && is_space(c)) return;
    if (c != begin[parser->matched]) {
        unmatch(parser);
        parser->mode = MODE_TEXT;
    } else if (!begin[++parser->matched]) {
        parser->matched = 0;
        parser->start = parser->at;
        parser->mode = reasoning ? MODE_REASONING : MODE_TEXT;
        parser->drops_space = false;
        if (reasoning) pass_marker(parser, begin);
    }
}

static void step_reasoning(struct message_parser *parser, char c) {
    assert(parser->settings.reasoning && parser->mode == MODE_REASONING);
    const char *end = parser->settings.reasoning->end;
    parser->at++;
    if (c == end[parser->matched]) {
        if (end[++parser->matched]) return;
        parser->matched = 0;
        parser->mode = MODE_TEXT;
        pass_marker(parser, end);
    } else if (parser->matched > 0) {
        parser->matched = 0;
        parser->at = parser->start + 1;
        parser_add_reasoning(parser, parser->input.data[parser->start]);
    } else {
        parser_add_reasoning(parser, c);
    }
    parser->start = parser->at;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Returns form i of a call, or from MAX_FORMS on a mark of the envelope; NULL: there is none. */
static const struct tool_form *form_at(const struct message_parser *parser, int i) {
    const struct tool_format *tools = parser->settings.tools;
    assert(i >= 0 && i < MAX_FORMS + N_MARKS);
    const struct tool_form *forms = i >= MAX_FORMS ? parser->envelope : tools ? tools->forms : NULL;
    const struct tool_form *form = forms ? &forms[i % MAX_FORMS] : NULL;
    return form && form->call ? form : NULL;
}

static const struct tool_form *form_of(const struct message_parser *parser) {
    return form_at(parser, parser->form);
}

static void begin_part(struct message_parser *parser, enum part part) {
    const struct tool_form *form = form_of(parser);
    parser->part = part;
    if (part == PART_OPEN)
        pattern_begin(&parser->reader, form->open, NULL);
    else if (part == PART_CLOSE)
        pattern_begin(&parser->reader, form->close, NULL);
    else if (part == PART_NEXT)
        pattern_begin(&parser->reader, form->between, form->call);
    else
        pattern_begin(&parser->reader, form->call, NULL);
    parser->reader.object.is_strict = form->at_start && parser->settings.stream_calls;
}

/* Begins the first form or mark, from index `first`, that may begin with the byte at `at`. */
static bool begin_run(struct message_parser *parser, int first) {
    assert(parser->at < parser->input.length);
    char c = parser->input.data[parser->at];
    for (int i = first; i < MAX_FORMS + N_MARKS; i++) {
        const struct tool_form *form = form_at(parser, i);
        bool misplaced = form && form->at_start && (parser->has_content || parser->n_calls > 0);
        if (!form || misplaced || !form_may_begin(form, c)) continue;
        parser->form = i;
        parser->mode = MODE_CALLS;
        begin_part(parser, form->open ? PART_OPEN : PART_CALL);
        return true;
    }
    return false;
}

static void step_text(struct message_parser *parser, char c) {
    assert(parser->at == parser->start);
    if (begin_run(parser, 0)) return;
    parser_add_content(parser, &c, 1);
    parser->start = ++parser->at;
}

void parser_give_call(struct message_parser *parser) {
    struct pattern_reader *reader = &parser->reader;
    assert(reader->knows_name);
    if (parser->is_announced && reader->arguments.length == 0) return;
    struct message_call *call =
        message_call_at(parser->out, parser->is_announced ? parser->n_calls - 1 : parser->n_calls);
    if (!parser->is_announced) {
        parser->n_calls++;
        parser->is_announced = call->begins = true;
        parser->is_last_whole = false;
        memcpy(call->name, reader->name.text, sizeof call->name);
        write_call_id(call->id, parser->settings.tools->ids, parser->settings.id_seed, call->index,
                      reader);
        parser_drop_space(parser);
    }
    parser->is_behind_call = true;
    buf_add(&call->arguments, reader->arguments.data, reader->arguments.length);
    buf_clear(&reader->arguments);
}

void parser_end_call(struct message_parser *parser) {
    if (!parser->reader.has_arguments) buf_puts(&parser->reader.arguments, "{}");
    parser_give_call(parser);
    parser->is_announced = false;
    parser->is_last_whole = true;
}

/* A part of the run is complete: begins the next part. */
static void end_part(struct message_parser *parser) {
    const struct tool_form *form = form_of(parser);
    enum part part = parser->part;
    bool is_mark = parser->form >= MAX_FORMS;
    if (part == PART_OPEN) {
        begin_part(parser, PART_CALL);
        return;
    }
    if (part != PART_CLOSE && !is_mark) parser_end_call(parser);
    if (is_mark && strchr(form->call, '\n')) {
        buf_clear(&parser->space);
        parser->drops_space = true;
    }
    parser->start = parser->at;
    if (part != PART_CLOSE && form->close)
        begin_part(parser, PART_CLOSE);
    else if (part != PART_CLOSE && form->between)
        begin_part(parser, PART_NEXT);
    else
        parser->mode = MODE_TEXT;
}

/* The bytes from `start` are not a call: they become content. */
static void give_up(struct message_parser *parser) {
    assert(parser->start <= parser->at);
    size_t length = parser->at - parser->start;
    if (length <= MAX_READ_AGAIN) length = 1;
    parser->mode = MODE_TEXT;
    parser_add_content(parser, parser->input.data + parser->start, length);
    parser->start += length;
    parser->at = parser->start;
}

/* The byte at `at` cannot follow in this part. */
static void break_part(struct message_parser *parser) {
    assert(parser->start <= parser->at);
    int form = parser->form;
    enum part part = parser->part;
    size_t broken = parser->at;
    parser->at = parser->start;
    if (parser->is_announced) {
        parser->is_announced = false; /* it cannot be retracted: the passed-on part stays */
        parser->mode = MODE_TEXT;
    } else if (part == PART_CLOSE && form_of(parser)->between) {
        begin_part(parser, PART_NEXT);
    } else if (part == PART_CLOSE || part == PART_NEXT) {
        parser->mode = MODE_TEXT; /* the calls before it are complete */
    } else if (!begin_run(parser, form + 1)) {
        parser->at = broken;
        give_up(parser);
    }
}

static void step_calls(struct message_parser *parser, char c) {
    struct pattern_reader *reader = &parser->reader;
    bool was_whole = reader->is_whole;
    switch (pattern_add(reader, c, parser->settings.known)) {
    case READ_BROKEN:
        break_part(parser);
        return;
    case READ_MORE:
        parser->at++;
        break;
    case READ_DONE:
        parser->at++;
        end_part(parser);
        return;
    case READ_BEFORE:
        end_part(parser);
        return;
    }
    if (!parser->settings.stream_calls || was_whole) return;
    if (!reader->knows_name || !reader->has_arguments) return;
    parser_give_call(parser);
    parser->start = parser->at;
}

/* ---- the whole parser ----------------------------------------------------------------------- */

static void read_input(struct message_parser *parser) {
    while (parser->at < parser->input.length) {
        char c = parser->input.data[parser->at];
        if (parser->mode == MODE_START)
            step_start(parser, c);
        else if (parser->mode == MODE_REASONING)
            step_reasoning(parser, c);
        else if (parser->mode == MODE_TEXT)
            step_text(parser, c);
        else if (parser->mode == MODE_CALLS)
            step_calls(parser, c);
        else
            harmony_step(parser, c);
    }
}

/* Drops decided bytes once they are at least as many as the undecided ones, so that each byte moves
 * at most once on average. */
static void forget(struct message_parser *parser) {
    size_t rest = parser->input.length - parser->start;
    assert(parser->start <= parser->at && parser->at == parser->input.length);
    if (parser->start < rest || parser->start == 0) return;
    memmove(parser->input.data, parser->input.data + parser->start, rest);
    parser->input.length = rest;
    parser->at -= parser->start;
    parser->start = 0;
}

void message_parser_add(struct message_parser *parser, const char *text, size_t length,
                        struct message *out) {
    parser->out = out;
    if (parser->owes_begin && length > 0) {
        pass_marker(parser, parser->settings.reasoning->begin);
        parser->owes_begin = false;
    }
    buf_add(&parser->input, text, length);
    read_input(parser);
    forget(parser);
    parser->out = NULL;
}

/* Handles a text that ends inside a run. A call is complete if only markers are missing. The
 * beginning of a closing marker is not content, nor that of a call if the text was cut. */
static void finish_calls(struct message_parser *parser, bool is_cut) {
    bool is_call = parser->part == PART_CALL || parser->part == PART_NEXT;
    bool is_whole = is_call && parser->reader.is_whole;
    if (is_whole) parser_end_call(parser);
    bool is_dropped = is_cut && parser->at - parser->start > 1;
    if (is_whole || parser->is_announced || parser->part == PART_CLOSE || is_dropped ||
        parser->start == parser->at) {
        parser->is_announced = false;
        parser->start = parser->at;
        parser->mode = MODE_TEXT;
        return;
    }
    give_up(parser);
    read_input(parser);
}

/* Passes on the calls at the end of the thoughts of an answer that has nothing else. */
static void give_thought_calls(struct message_parser *parser) {
    if (!parser->thoughts || parser->has_content || parser->n_calls > 0) return;
    const struct message *found = thought_calls_finish(parser->thoughts);
    int n = parser->settings.one_call ? min_int(found->n_calls, 1) : found->n_calls;
    for (int i = 0; i < n; i++) {
        const struct message_call *from = &found->calls[i];
        struct message_call *call = message_call_at(parser->out, parser->n_calls++);
        call->begins = true;
        memcpy(call->id, from->id, sizeof call->id);
        memcpy(call->name, from->name, sizeof call->name);
        buf_add(&call->arguments, from->arguments.data, from->arguments.length);
    }
    parser->is_last_whole = parser->is_last_whole || n > 0;
}

static void end_text(struct message_parser *parser, struct message *out, bool is_cut) {
    parser->out = out;
    if (parser->mode == MODE_START) {
        unmatch(parser);
        parser->mode = MODE_TEXT;
        read_input(parser);
    }
    if (parser->mode == MODE_REASONING) {
        for (size_t i = parser->start; i < parser->at; i++)
            parser_add_reasoning(parser, parser->input.data[i]);
        if (!is_kept(parser)) buf_clear(&parser->space);
    }
    while (parser->mode == MODE_CALLS) finish_calls(parser, is_cut);
    if (parser->mode == MODE_HEADER || parser->mode == MODE_BODY) harmony_finish(parser);
    if (!is_cut) give_thought_calls(parser);
    if (!parser->is_behind_call)
        message_add_text(out, MESSAGE_CONTENT, parser->space.data, parser->space.length);
    buf_clear(&parser->space);
    parser->out = NULL;
}

void message_parser_finish(struct message_parser *parser, struct message *out) {
    end_text(parser, out, false);
}

void message_parser_cut(struct message_parser *parser, struct message *out) {
    end_text(parser, out, true);
}

void message_settings_see_prompt(struct message_settings *settings, const char *prompt,
                                 size_t length, const char *last) {
    const struct reasoning_format *reasoning = settings->reasoning;
    if (!reasoning || reasoning->parts) return;
    const char *begin = reasoning->begin, *end = reasoning->end;
    size_t n_begin = strlen(begin), n_end = strlen(end);
    if (last) { /* the answer continues this: is a block of reasoning open in it? */
        const char *block = strstr(last, begin);
        settings->starts_behind = settings->continues = true;
        if (block && !strstr(block, end)) settings->starts_inside = true;
        return;
    }
    while (length > 0 && is_space(prompt[length - 1])) length--;
    settings->starts_inside =
        length >= n_begin && memcmp(prompt + length - n_begin, begin, n_begin) == 0;
    settings->starts_behind = length >= n_end && memcmp(prompt + length - n_end, end, n_end) == 0;
}
