/* Parameters as elements, up to the "</" of what holds them:
 *
 *   <parameter=zone>
 *   UTC
 *   </parameter>
 *
 * become the members of an object. A parameter that is a text by its schema is written as it comes.
 * Of others the value is JSON: they wait for their end, which is none inside of a string of JSON,
 * and are texts where they are none. The line breaks behind the first tag and before the last are
 * no part of a value. */
#include <string.h>

#include "server/message/internal.h"

#define BEGIN "<parameter="
#define END "</parameter>"

enum state { BETWEEN, TAG, KEY, FIRST, VALUE };

static void begin_value(struct xml_arguments *xml, struct buf *out) {
    buf_puts(out, xml->has_item ? ", \"" : "\"");
    for (int i = 0; i < xml->key.length; i++) add_escaped(out, xml->key.text[i]);
    buf_puts(out, xml->is_text ? "\": \"" : "\": ");
    xml->has_item = true;
    xml->has_break = false;
    xml->matched = 0;
    xml->state = FIRST;
    xml->json = (struct json_scan){0};
    xml->json_ended = xml->is_text;
    buf_clear(&xml->value);
}

/* A byte of the value, which is no line break at its start. */
static void add_to_value(struct xml_arguments *xml, char c, struct buf *out) {
    if (!xml->json_ended) xml->json_ended = json_scan_add(&xml->json, c) != READ_MORE;
    if (xml->has_break && xml->is_text) add_escaped(out, '\n');
    if (xml->has_break && !xml->is_text) buf_puts(&xml->value, "\n");
    xml->has_break = c == '\n';
    if (xml->has_break) return;
    if (xml->is_text)
        add_escaped(out, c);
    else
        buf_add(&xml->value, &c, 1);
}

/* Is the value JSON of a type that the parameter may have? */
static bool is_json(const struct xml_arguments *xml) {
    struct json *json;
    struct err err;
    const char *text = xml->value.data ? xml->value.data : "";
    if (json_parse(&json, "It", text, xml->value.length, &err)) return false;
    bool right = xml->types >> json->type & 1;
    json_free(json);
    return right;
}

static void end_value(struct xml_arguments *xml, struct buf *out) {
    xml->state = BETWEEN;
    if (!xml->is_text && is_json(xml)) {
        buf_add(out, xml->value.data, xml->value.length);
        return;
    }
    if (!xml->is_text) buf_puts(out, "\"");
    for (size_t i = 0; i < xml->value.length; i++) add_escaped(out, xml->value.data[i]);
    buf_puts(out, "\"");
}

static enum reading add_in_value(struct xml_arguments *xml, char c, struct buf *out) {
    if (xml->state == FIRST && c == '\n') {
        xml->state = VALUE;
        return READ_MORE;
    }
    xml->state = VALUE;
    bool in_string = !xml->json_ended && json_scan_in_string(&xml->json);
    if (c != END[xml->matched]) { /* "<" begins the marker and stands nowhere else in it */
        for (int i = 0; i < xml->matched; i++) add_to_value(xml, END[i], out);
        xml->matched = 0;
    }
    if (in_string || c != END[xml->matched])
        add_to_value(xml, c, out);
    else if (++xml->matched == (int)strlen(END))
        end_value(xml, out);
    return READ_MORE;
}

static enum reading add_to_tag(struct xml_arguments *xml, char c, struct buf *out) {
    if (c == '/' && xml->matched == 1) return buf_puts(out, "}"), READ_BEFORE;
    if (c != BEGIN[xml->matched]) return READ_BROKEN;
    if (++xml->matched == (int)strlen(BEGIN)) {
        xml->key = (struct name){0};
        xml->state = KEY;
    }
    return READ_MORE;
}

static enum reading add_to_key(struct xml_arguments *xml, char c, const struct tool_set *known,
                               const struct name *name, struct buf *out) {
    if (c != '>') {
        bool right = c != '<' && c != '\n' && c && name_add(&xml->key, c);
        return right ? READ_MORE : READ_BROKEN;
    }
    if (xml->key.length == 0) return READ_BROKEN;
    xml->types = tool_set_types(known, name->text, xml->key.text);
    xml->is_text = xml->types == 1 << JSON_STRING;
    begin_value(xml, out);
    return READ_MORE;
}

enum reading xml_arguments_add(struct xml_arguments *xml, char c, const struct tool_set *known,
                               const struct name *name, struct buf *arguments) {
    if (!xml->begun) buf_puts(arguments, "{");
    xml->begun = true;
    switch ((enum state)xml->state) {
    case TAG:
        return add_to_tag(xml, c, arguments);
    case KEY:
        return add_to_key(xml, c, known, name, arguments);
    case FIRST:
    case VALUE:
        return add_in_value(xml, c, arguments);
    default:
        if (is_space(c)) return READ_MORE;
        xml->state = TAG;
        xml->matched = 1;
        return c == '<' ? READ_MORE : READ_BROKEN;
    }
}
