/* Reads parameters as nested elements, up to the "/" of the enclosing element's end. Each tag
 * follows a mark, ]<]minimax[>[, here written as @:
 *
 *   @<zone>UTC@</zone>@<tags>@<item>a@</item>@</tags>@<more>@<n>1@</n>@</more>
 *
 * They become {"zone": "UTC", "tags": ["a"], "more": {"n": 1}}. An element with elements is an
 * array if they are items, unless its schema says otherwise, else an object. A text by its schema
 * is written as it arrives. Other values are held back until the end of their element: they are
 * JSON of an allowed type, or a text. */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

enum state { BETWEEN, TAG, KEY, END };
enum kind { VALUE, TEXT, OBJECT, ARRAY };

static const char mark[] = ELEMENT_MARK "<";

static struct open_element *innermost(struct elements *elements) {
    return elements->depth > 0 ? &elements->open[elements->depth - 1] : NULL;
}

static void add_name(struct buf *out, const struct name *name) {
    buf_puts(out, "\"");
    for (int i = 0; i < name->length; i++) add_escaped(out, name->text[i]);
    buf_puts(out, "\": ");
}

/* ---- values --------------------------------------------------------------------------------- */

/* A value without a byte. */
static const char *empty_value(int types) {
    if (types >> JSON_STRING & 1) return "\"\"";
    if (types >> JSON_ARRAY & 1) return "[]";
    if (types >> JSON_OBJECT & 1) return "{}";
    return types >> JSON_NULL & 1 ? "null" : "\"\"";
}

static bool is_json_of(const struct buf *value, int types) {
    struct json *json;
    struct err err;
    if (json_parse(&json, "It", value->data, value->length, &err)) return false;
    bool right = types >> json->type & 1;
    json_free(json);
    return right;
}

static void end_value(const struct open_element *element, const struct buf *value,
                      struct buf *out) {
    if (element->kind == OBJECT || element->kind == ARRAY) {
        buf_puts(out, element->kind == OBJECT ? "}" : "]");
    } else if (element->kind == TEXT) {
        buf_puts(out, "\"");
    } else if (value->length == 0) {
        buf_puts(out, empty_value(parameter_types(element->of)));
    } else if (is_json_of(value, parameter_types(element->of))) {
        buf_add(out, value->data, value->length);
    } else {
        buf_puts(out, "\"");
        for (size_t i = 0; i < value->length; i++) add_escaped(out, value->data[i]);
        buf_puts(out, "\"");
    }
}

/* Adds a byte that is not part of a tag. Between elements only white space is allowed. */
static enum reading add_byte(struct elements *elements, char c, struct buf *value,
                             struct buf *out) {
    struct open_element *element = innermost(elements);
    if (!element || element->kind == OBJECT || element->kind == ARRAY)
        return is_space(c) ? READ_MORE : READ_BROKEN;
    if (element->kind == TEXT) {
        add_escaped(out, c);
        return READ_MORE;
    }
    if (!elements->json_ended)
        elements->json_ended = json_scan_add(&elements->json, c) != READ_MORE;
    buf_add(value, &c, 1);
    return READ_MORE;
}

/* Is the next byte inside a string of a JSON value? Then it is not part of a mark. */
static bool is_in_string(struct elements *elements) {
    const struct open_element *element = innermost(elements);
    return element && element->kind == VALUE && !elements->json_ended &&
           json_scan_in_string(&elements->json);
}

/* ---- tags ----------------------------------------------------------------------------------- */

/* An element begins in this one, which so far has no value: decides between object and array. */
static bool become_container(struct open_element *parent, const struct name *name,
                             struct buf *value, struct buf *out) {
    int types = parameter_types(parent->of);
    for (size_t i = 0; i < value->length; i++)
        if (!is_space(value->data[i])) return false;
    if (parent->kind == TEXT) return false;
    bool is_item = strcmp(name->text, "item") == 0;
    bool is_array = is_item && (types >> JSON_ARRAY & 1);
    parent->kind = is_array ? ARRAY : OBJECT;
    buf_puts(out, is_array ? "[" : "{");
    buf_clear(value);
    return true;
}

static enum reading begin_element(struct elements *elements, const struct tool_set *known,
                                  const struct name *tool, struct buf *value, struct buf *out) {
    struct open_element *parent = innermost(elements), *element = &elements->open[elements->depth];
    const struct name *name = &elements->key;
    if (elements->depth == MAX_ELEMENTS || name->length == 0) return READ_BROKEN;
    bool is_open = !parent || parent->kind == OBJECT || parent->kind == ARRAY;
    if (!is_open && !become_container(parent, name, value, out)) return READ_BROKEN;
    bool is_item = parent && parent->kind == ARRAY;
    if (is_item && strcmp(name->text, "item") != 0) return READ_BROKEN;
    bool *has_item = parent ? &parent->has_item : &elements->has_item;
    if (*has_item) buf_puts(out, ", ");
    *has_item = true;
    if (!is_item) add_name(out, name);
    *element = (struct open_element){.name = *name};
    element->of = parent ? parameter_child(parent->of, is_item ? NULL : name->text)
                         : tool_set_parameter(known, tool->text, name->text);
    if (parameter_is_text(element->of)) element->kind = TEXT;
    if (element->kind == TEXT) buf_puts(out, "\"");
    buf_clear(value);
    elements->json = (struct json_scan){0};
    elements->json_ended = false;
    elements->depth++;
    elements->state = BETWEEN;
    return READ_MORE;
}

static enum reading end_element(struct elements *elements, struct buf *value, struct buf *out) {
    const struct open_element *element = innermost(elements);
    assert(element);
    if (strcmp(element->name.text, elements->key.text) != 0) return READ_BROKEN;
    end_value(element, value, out);
    buf_clear(value);
    elements->depth--;
    elements->state = BETWEEN;
    return READ_MORE;
}

/* Adds a byte after the "<" of a tag, up to its name. */
static enum reading add_to_tag(struct elements *elements, char c, struct buf *out) {
    elements->key = (struct name){0};
    elements->state = c == '/' ? END : KEY;
    if (c != '/') return name_add(&elements->key, c) ? READ_MORE : READ_BROKEN;
    if (elements->depth > 0) return READ_MORE;
    buf_puts(out, "}");
    return READ_BEFORE;
}

/* Returns how many bytes of the mark still match if the next byte does not. */
static int matched_again(int matched) {
    static const char twice[] = "]<]"; /* begins and ends with the mark's first byte */
    return matched == (int)strlen(twice) ? 1 : 0;
}

/* Adds a byte outside of a tag: part of a mark, or of a value. */
static enum reading add_between(struct elements *elements, char c, struct buf *value,
                                struct buf *out) {
    if (is_in_string(elements)) return add_byte(elements, c, value, out);
    while (elements->matched > 0 && c != mark[elements->matched]) {
        int kept = matched_again(elements->matched);
        for (int i = 0; i < elements->matched - kept; i++)
            if (add_byte(elements, mark[i], value, out) == READ_BROKEN) return READ_BROKEN;
        elements->matched = kept;
    }
    if (c != mark[elements->matched]) return add_byte(elements, c, value, out);
    if (mark[++elements->matched]) return READ_MORE;
    elements->matched = 0;
    elements->state = TAG;
    return READ_MORE;
}

enum reading elements_add(struct elements *elements, char c, const struct tool_set *known,
                          const struct name *tool, struct buf *value, struct buf *out) {
    if (!elements->begun) buf_puts(out, "{");
    elements->begun = true;
    switch ((enum state)elements->state) {
    case TAG:
        return add_to_tag(elements, c, out);
    case KEY:
    case END:
        if (c == '<' || c == '"' || is_space(c) || !c) return READ_BROKEN;
        if (c != '>') return name_add(&elements->key, c) ? READ_MORE : READ_BROKEN;
        return elements->state == KEY ? begin_element(elements, known, tool, value, out)
                                      : end_element(elements, value, out);
    default:
        assert(elements->state == BETWEEN);
        return add_between(elements, c, value, out);
    }
}
