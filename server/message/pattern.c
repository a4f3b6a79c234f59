/* Reads one part of a run of calls by its pattern (struct tool_form). */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

/* White space in a pattern, required by the grammar or optional. */
#define SPACES " \n" OPTIONAL_BLANK OPTIONAL_BREAK

/* Is the rest of the pattern only white space, which also matches nothing? */
static bool is_at_end(const struct pattern_reader *reader) {
    return reader->pattern[strspn(reader->pattern, SPACES)] == 0;
}

static bool enter_next(struct pattern_reader *reader) {
    if (!reader->next) return false;
    reader->pattern = reader->next;
    reader->next = NULL;
    reader->inside = false;
    return true;
}

void pattern_begin(struct pattern_reader *reader, const char *pattern, const char *next) {
    assert(pattern);
    struct buf arguments = reader->arguments, value = reader->xml.value;
    struct buf literal = reader->xml.literal;
    *reader = (struct pattern_reader){.pattern = pattern, .next = next};
    reader->arguments = arguments;
    reader->xml.value = value;
    reader->xml.literal = literal;
    buf_clear(&reader->arguments);
    if (is_at_end(reader)) enter_next(reader);
}

void pattern_free(struct pattern_reader *reader) {
    buf_free(&reader->arguments);
    buf_free(&reader->xml.value);
    buf_free(&reader->xml.literal);
}

bool form_may_begin(const struct tool_form *form, char c) {
    const char *first = form->open ? form->open : form->call;
    first += strspn(first, SPACES);
    if (first[0] != '%') return c == first[0];
    return first[1] == 'n' ? is_name_byte(c) : c == '{';
}

/* ---- placeholders --------------------------------------------------------------------------- */

/* Checks the name. Calls of tools that are not in the request are content. */
static bool knows(struct pattern_reader *reader, const struct tool_set *known) {
    reader->knows_name = reader->name.length > 0 && tool_set_has(known, reader->name.text);
    return reader->knows_name;
}

static enum reading add_to_name(struct pattern_reader *reader, char c,
                                const struct tool_set *known) {
    if (reader->name.length == 0 && is_space(c)) return READ_MORE;
    if (is_name_byte(c)) return name_add(&reader->name, c) ? READ_MORE : READ_BROKEN;
    return knows(reader, known) ? READ_BEFORE : READ_BROKEN;
}

/* Adds a byte of the model's id of the call. */
static enum reading add_to_id(struct pattern_reader *reader, char c) {
    bool is_part = is_name_byte(c) && c != '.' && c != '-' && c != '_';
    if (!is_part) return READ_BEFORE;
    return name_add(&reader->id, c) ? READ_MORE : READ_BROKEN;
}

/* Adds a byte of the arguments: an object. */
static enum reading add_to_arguments(struct pattern_reader *reader, char c) {
    bool begun = reader->arguments.length > 0 || reader->has_arguments;
    if (!begun && is_space(c)) return READ_MORE;
    if (!begun && c != '{') return READ_BROKEN;
    reader->has_arguments = true;
    buf_add(&reader->arguments, &c, 1);
    return json_scan_add(&reader->json, c);
}

static enum reading add_to_object(struct pattern_reader *reader, char c,
                                  const struct tool_set *known) {
    struct call_object *object = &reader->object;
    enum reading reading = call_object_add(object, c, &reader->name, &reader->arguments);
    bool has_name = object->has_name;
    if (has_name && !reader->knows_name && !knows(reader, known)) return READ_BROKEN;
    reader->has_arguments |= reader->arguments.length > 0;
    return reading;
}

static enum reading add_to_placeholder(struct pattern_reader *reader, char c,
                                       const struct tool_set *known) {
    switch (reader->pattern[1]) {
    case 'n':
        return add_to_name(reader, c, known);
    case 'i':
        return add_to_id(reader, c);
    case 'a':
        return add_to_arguments(reader, c);
    case 'j':
        return add_to_object(reader, c, known);
    case 'e':
        reader->has_arguments = true;
        return elements_add(&reader->elements, c, known, &reader->name, &reader->xml.value,
                            &reader->arguments);
    case 'g':
    case 'f':
        reader->has_arguments = true;
        reader->gemma.mark = reader->pattern[1] == 'g' ? GEMMA_TEXT_MARK : FUNCTION_GEMMA_TEXT_MARK;
        return gemma_arguments_add(&reader->gemma, c, &reader->arguments);
    case 'p':
        reader->has_arguments = true;
        return python_arguments_add(&reader->python, c, &reader->arguments);
    default:
        assert(strchr(XML_PLACEHOLDERS, reader->pattern[1]));
        reader->has_arguments = true;
        reader->xml.placeholder = reader->pattern[1];
        return xml_arguments_add(&reader->xml, c, known, &reader->name, &reader->arguments);
    }
}

/* ---- patterns ------------------------------------------------------------------------------- */

/* Moves past a placeholder (n = 2) or a byte of a marker (n = 1). Returns false if the pattern has
 * ended. */
static bool advance(struct pattern_reader *reader, int n) {
    if (n == 2 && !strchr("ni", reader->pattern[1])) reader->is_whole = true;
    reader->pattern += n;
    reader->inside = n == 1;
    return !is_at_end(reader) || enter_next(reader);
}

static enum reading add_to_marker(struct pattern_reader *reader, char c) {
    const char *at = reader->pattern + strspn(reader->pattern, SPACES);
    bool is_semicolon = *at == *OPTIONAL_SEMICOLON;
    bool may_be_space = at > reader->pattern || !reader->inside || is_semicolon;
    if (c == (is_semicolon ? ';' : *at)) {
        reader->pattern = at;
        return advance(reader, 1) ? READ_MORE : READ_DONE;
    }
    return may_be_space && is_space(c) ? READ_MORE : READ_BROKEN;
}

/* Is the semicolon at `at` absent? Then the pattern goes on after it. */
static bool is_left_out(const char *at, char c) {
    return *at == *OPTIONAL_SEMICOLON && c != ';' && !is_space(c);
}

enum reading pattern_add(struct pattern_reader *reader, char c, const struct tool_set *known) {
    for (;;) {
        const char *at = reader->pattern + strspn(reader->pattern, SPACES);
        assert(*at);
        if (is_left_out(at, c)) {
            reader->pattern = at;
            if (!advance(reader, 1)) return READ_BEFORE;
            continue;
        }
        if (*at != '%') return add_to_marker(reader, c);
        reader->pattern = at;
        reader->inside = true;
        enum reading reading = add_to_placeholder(reader, c, known);
        if (reading == READ_MORE || reading == READ_BROKEN) return reading;
        bool more = advance(reader, 2);
        if (reading == READ_DONE || !more) return more ? READ_MORE : reading;
    }
}
