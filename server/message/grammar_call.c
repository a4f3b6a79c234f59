/* Writes the texts of forms and single calls as formats of a structural tag. */
#include <assert.h>
#include <string.h>

#include "server/json/json.h"
#include "server/message/internal.h"

void grammar_write_text(struct buf *out, const struct buf *text) {
    json_write_string(out, text->data ? text->data : "", text->length);
}

void grammar_write_chars(struct buf *out, const char *text) {
    json_write_string(out, text, strlen(text));
}

/* Appends a text of a form to a regular expression. */
void grammar_add_exact(struct buf *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (text[i] == *OPTIONAL_BLANK || text[i] == *OPTIONAL_BREAK) {
            buf_puts(out, text[i] == *OPTIONAL_BLANK ? " ?" : "\n?");
            continue;
        }
        if (text[i] == *OPTIONAL_SEMICOLON) {
            buf_puts(out, ";?");
            continue;
        }
        if (text[i] && strchr("\\.+*?()|[]{}^$", text[i])) buf_puts(out, "\\");
        buf_add(out, &text[i], 1);
    }
}

/* Returns the length of the text before its first optional byte. */
size_t form_fixed_length(const char *text) {
    return strcspn(text, OPTIONAL_BLANK OPTIONAL_BREAK OPTIONAL_SEMICOLON);
}

/* Writes a text of a form as a format. */
void grammar_write_piece(struct buf *out, const char *text) {
    struct buf pattern = {0};
    if (!text[form_fixed_length(text)]) {
        buf_puts(out, "{\"type\":\"const_string\",\"value\":");
        grammar_write_chars(out, text);
    } else {
        grammar_add_exact(&pattern, text, strlen(text));
        buf_puts(out, "{\"type\":\"regex\",\"pattern\":");
        grammar_write_text(out, &pattern);
        buf_free(&pattern);
    }
    buf_puts(out, "}");
}

/* Writes optional marks as further elements of a sequence. */
void grammar_write_marks(struct buf *out, const struct tool_form *envelope, enum mark first,
                         enum mark last) {
    assert(first <= last && last < N_MARKS);
    for (enum mark i = first; envelope && i <= last; i++) {
        if (!envelope[i].call) continue;
        buf_puts(out,
                 ",{\"type\":\"or\",\"elements\":[{\"type\":\"const_string\",\"value\":\"\"},");
        grammar_write_piece(out, envelope[i].call);
        buf_puts(out, "]}");
    }
}

/* ---- schemas of arguments ------------------------------------------------------------------- */

/* Does the schema list all its properties directly, so that others are not allowed? */
static bool is_closed(const struct json *schema) {
    static const char *const others[] = {
        "$ref", "allOf", "anyOf", "oneOf", "additionalProperties", "patternProperties"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (json_member(schema, others[i])) return false;
    return true;
}

/* Is the tool without parameters? */
static bool takes_nothing(const struct json *schema) {
    bool is_none = !json_first(json_member(schema, "properties")) &&
                   !json_first(json_member(schema, "required"));
    return is_none && is_closed(schema);
}

/* Writes the schema of a tool's arguments: an object. Unlisted parameters are forbidden unless the
 * tool's schema allows them. */
static void write_schema(struct buf *out, const struct json *schema, bool is_hint) {
    buf_puts(out, "{\"type\":\"object\"");
    if (is_closed(schema)) buf_puts(out, ",\"additionalProperties\":false");
    json_each_member(member, schema) {
        bool is_fixed = strcmp(member->name, "type") == 0 || strcmp(member->name, "nullable") == 0;
        if (is_fixed) continue;
        buf_puts(out, ",");
        grammar_write_chars(out, member->name);
        buf_puts(out, ":");
        schema_write(out, member, is_hint);
    }
    buf_puts(out, "}");
}

/* Writes the names of the parameters that the parser always reads as text. */
static void write_texts(struct buf *out, const struct json *schema) {
    bool is_second = false;
    buf_puts(out, ",\"texts\":[");
    json_each_member(property, json_member(schema, "properties")) {
        if (schema_types(property) != 1 << JSON_STRING) continue;
        if (is_second) buf_puts(out, ",");
        grammar_write_chars(out, property->name);
        is_second = true;
    }
    buf_puts(out, "]");
}

/* Writes the format of the arguments that replace a placeholder. */
void grammar_write_arguments(struct buf *out, char placeholder, const struct json *function) {
    const struct json *schema = json_member(function, "parameters");
    if (takes_nothing(schema)) {
        buf_printf(out, "{\"type\":\"const_string\",\"value\":\"%s\"}",
                   placeholder == 'a' ? "{}" : "");
        return;
    }
    buf_puts(out, "{\"type\":\"json_schema\",\"tool\":");
    grammar_write_chars(out, json_text(json_member(function, "name")));
    bool is_xml = strchr(XML_PLACEHOLDERS, placeholder);
    if (is_xml || placeholder == 'e') {
        buf_printf(out, ",\"style\":\"%s\"", is_xml ? xml_style_name(placeholder) : "elements");
        write_texts(out, schema);
    }
    if (placeholder == 'p') buf_puts(out, ",\"style\":\"python\"");
    if (placeholder == 'g') buf_puts(out, ",\"style\":\"gemma\"");
    if (placeholder == 'f') buf_puts(out, ",\"style\":\"functiongemma\"");
    bool is_strict = json_true(json_member(function, "strict"));
    buf_puts(out, is_strict ? ",\"strict\":true" : ",\"strict\":false");
    buf_puts(out, ",\"json_schema\":");
    write_schema(out, schema, !is_strict);
    buf_puts(out, "}");
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* The text of a call: the text before the first part that varies, then formats. */
struct call_text {
    struct buf begin, elements;
    struct buf text; /* not yet written */
    bool is_begun;   /* `begin` is complete */
};

static void add_element(struct call_text *call) {
    assert(call->is_begun);
    if (call->elements.length > 0) buf_puts(&call->elements, ",");
}

/* Writes the pending text. */
static void end_text(struct call_text *call) {
    buf_puts(&call->text, "");
    const char *rest = call->text.data;
    if (!call->is_begun) {
        buf_add(&call->begin, rest, form_fixed_length(rest));
        rest += form_fixed_length(rest);
    }
    assert(strlen(rest) <= call->text.length);
    call->is_begun = true;
    if (*rest) {
        add_element(call);
        grammar_write_piece(&call->elements, rest);
    }
    buf_clear(&call->text);
}

/* Writes the model's id of a call. */
static void add_id(struct call_text *call, enum id_style ids) {
    end_text(call);
    add_element(call);
    assert(call->text.length == 0);
    buf_printf(&call->elements, "{\"type\":\"regex\",\"pattern\":\"%s\"}",
               ids == ID_NINE ? "[a-zA-Z0-9]{9}" : "[0-9]{1,4}");
}

static void add_arguments(struct call_text *call, char placeholder, const struct json *function) {
    end_text(call);
    add_element(call);
    grammar_write_arguments(&call->elements, placeholder, function);
    if (strchr(XML_PLACEHOLDERS, placeholder)) {
        const char *text;
        size_t n = xml_style_consumed(placeholder, &text);
        buf_add(&call->text, text, n);
    }
    if (placeholder == 'e') buf_puts(&call->text, ELEMENT_MARK "<");
}

#define GAP "\\n?[ \\t]{0,40}"

/* Writes the beginning of an object at the start of an answer, in all spellings that the parser
 * reads as a call, because a text may not begin so. */
static void add_any_beginning(struct call_text *call, const struct json *name) {
    struct buf pattern = {0};
    buf_puts(&call->text, "{");
    end_text(call);
    buf_puts(&pattern, GAP "(?:\"type\"" GAP ":" GAP "\"function\"" GAP "," GAP ")?"
                           "\"name\"" GAP ":" GAP "\"");
    grammar_add_exact(&pattern, json_text(name), json_length(name));
    buf_puts(&pattern, "\"" GAP "," GAP "\"(?:parameters|arguments)\"" GAP ":" GAP);
    add_element(call);
    buf_puts(&call->elements, "{\"type\":\"regex\",\"pattern\":");
    grammar_write_text(&call->elements, &pattern);
    buf_puts(&call->elements, "}");
    buf_free(&pattern);
}

/* Writes name and arguments in one object. Mistral's templates add the id of the call. */
static void add_object(struct call_text *call, const struct call_writer *to,
                       const struct json *function) {
    const struct json *name = json_member(function, "name");
    if (to->form->at_start)
        add_any_beginning(call, name);
    else
        buf_printf(&call->text,
                   "{\"name\":" OPTIONAL_BLANK "\"%s\"," OPTIONAL_BLANK "\"%s\":" OPTIONAL_BLANK,
                   json_text(name), to->form->arguments_key);
    add_arguments(call, 'a', function);
    if (to->asked->tools->ids == ID_NINE)
        buf_puts(&call->elements, ",{\"type\":\"regex\",\"pattern\":"
                                  "\"(?:, ?\\\"id\\\": ?\\\"[a-zA-Z0-9]{9}\\\")?\"}");
    if (to->form->at_start) {
        add_element(call);
        buf_puts(&call->elements, "{\"type\":\"regex\",\"pattern\":\"\\n?[ \\t]{0,40}\"}");
    }
    buf_puts(&call->text, "}");
}

static void read_call(struct call_text *call, const struct call_writer *to,
                      const struct json *function) {
    for (const char *at = to->form->call; *at; at++) {
        if (*at != '%')
            buf_add(&call->text, at, 1);
        else if (*++at == 'n')
            buf_puts(&call->text, json_text(json_member(function, "name")));
        else if (*at == 'i')
            add_id(call, to->asked->tools->ids);
        else if (*at == 'j')
            add_object(call, to, function);
        else
            add_arguments(call, *at, function);
    }
    end_text(call);
}

/* Writes a call as a tag: the text up to the first part that varies, then a sequence. */
void grammar_write_call(struct call_writer *to, const struct json *function) {
    struct call_text call = {0};
    read_call(&call, to, function);
    buf_puts(to->out,
             to->is_second ? ",{\"type\":\"tag\",\"begin\":" : "{\"type\":\"tag\",\"begin\":");
    grammar_write_text(to->out, &call.begin);
    buf_puts(to->out, ",\"content\":{\"type\":\"sequence\",\"elements\":[");
    buf_add(to->out, call.elements.data, call.elements.length);
    buf_puts(to->out, "]},\"end\":\"\"}");
    to->is_second = true;
    buf_free(&call.begin);
    buf_free(&call.elements);
    buf_free(&call.text);
}
