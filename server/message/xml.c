/* Reads parameters as XML elements, up to the end of the enclosing element:
 *
 *   <parameter=zone>
 *   UTC
 *   </parameter>
 *
 *   <arg_key>zone</arg_key>
 *   <arg_value>UTC</arg_value>
 *
 *   <parameter name="zone">UTC</parameter>
 *
 *   <param name="zone">UTC</param>
 *
 *   <DSML|parameter name="zone" string="true">UTC</DSML|parameter>
 *
 *   <|open|>argument key="zone" type="string"<|sep|>UTC<|close|>argument<|sep|>
 *
 *   <steptml:parameter name="zone">UTC</steptml:parameter>
 *
 *   <|tool_arg:start|>zone<|tool_arg:value|>UTC<|tool_arg:end|>
 *
 *   <arg_key:opensource>zone</arg_key:opensource>
 *   <arg_value:opensource>UTC</arg_value:opensource>
 *
 * They become the members of an object. If the schema says that a parameter is a text, its bytes
 * are written as they arrive. Other values are JSON. They are held back until their end marker,
 * which is ignored inside a JSON string; if a value is not valid JSON of an allowed type, it
 * becomes a text. If the schema excludes texts, a value may be Python's True, False or None, which
 * Qwen's templates write. Values of Seed-OSS are Python literals. The line breaks after the first
 * tag and before the last tag are not part of a value, except in Seed-OSS. */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

#define DSML                                                                                       \
    "\xEF\xBD\x9C"                                                                                 \
    "DSML\xEF\xBD\x9C"

struct xml_style {
    char placeholder;
    const char *name;
    const char *begin, *behind_key, *end; /* white space may precede each "<" */
    const char *enclosing; /* the enclosing end, up to its first difference from `begin` */
    /* One of them follows `behind_key`: the first one for a text, others for JSON. */
    const char *const *flags;
    bool has_breaks; /* line breaks around values, not part of them */
    bool is_python;
    bool is_escaped; /* names have &amp; and &quot; */
};

static const char *const deepseek_flags[] = {"true\">", "false\">", NULL};
#define TYPE(name) name "\"<|sep|>"
static const char *const kimi_flags[] = {TYPE("string"),
                                         TYPE("number"),
                                         TYPE("boolean"),
                                         TYPE("null"),
                                         TYPE("array"),
                                         TYPE("object"),
                                         NULL};

/* Tencent's models write the pairs of GLM with a word in each marker, which tells generations of
 * models apart. */
#define PAIR(word)                                                                                 \
    "<arg_key" word ">", "</arg_key" word "><arg_value" word ">", "</arg_value" word ">", "</"

static const struct xml_style styles[] = {
    {'x', "qwen_xml", "<parameter=", ">", "</parameter>", "</", .has_breaks = true},
    {'k', "glm_xml", "<arg_key>", "</arg_key><arg_value>", "</arg_value>", "</"},
    {'l', "seed_xml", "<parameter=", ">", "</parameter>", "</", .is_python = true},
    {'m', "minimax_xml", "<parameter name=\"", "\">", "</parameter>", "</"},
    {'c', "param_xml", "<param name=\"", "\">", "</param>", "</"},
    {'d', "deepseek_xml", "<" DSML "parameter name=\"", "\" string=\"", "</" DSML "parameter>",
     "</", .flags = deepseek_flags},
    {'t', "xtml", "<|open|>argument key=\"", "\" type=\"", "<|close|>argument<|sep|>", "<|c",
     .flags = kimi_flags, .is_escaped = true},
    {'s', "step_xml", "<steptml:parameter name=\"", "\">", "</steptml:parameter>", "</"},
    {'o', "solar", "<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>", "<|tool_c"},
    {'q', "atem_xml", "<atem:parameter name=\"", "\">", "</atem:parameter>", "</"},
    {'h', "hunyuan3_xml", PAIR(":opensource")},
    {'y', "hunyuan4_xml", PAIR(":6124c78e")},
};

enum state { BETWEEN, TAG, KEY, BEHIND_KEY, FLAG, FIRST, VALUE };

static const struct xml_style *style_of_placeholder(char placeholder) {
    int i = 0;
    while (styles[i].placeholder != placeholder) i++;
    return &styles[i];
}

const char *xml_style_name(char placeholder) {
    assert(strchr(XML_PLACEHOLDERS, placeholder));
    return style_of_placeholder(placeholder)->name;
}

size_t xml_style_consumed(char placeholder, const char **text) {
    *text = style_of_placeholder(placeholder)->enclosing;
    assert(strlen(*text) >= 2);
    return strlen(*text) - 1;
}

bool xml_style_holds(char placeholder, const char *text, size_t length) {
    const struct xml_style *style = style_of_placeholder(placeholder);
    const char *const parts[] = {style->begin, style->behind_key, style->end};
    assert(length > 0);
    for (int i = 0; i < 3; i++)
        if (memmem(parts[i], strlen(parts[i]), text, length)) return true;
    return false;
}

static const struct xml_style *style_of(const struct xml_arguments *xml) {
    return style_of_placeholder(xml->placeholder);
}

static void begin_value(struct xml_arguments *xml, struct buf *out) {
    buf_puts(out, xml->has_item ? ", \"" : "\"");
    for (int i = 0; i < xml->key.length; i++) add_escaped(out, xml->key.text[i]);
    buf_puts(out, xml->is_text ? "\": \"" : "\": ");
    xml->has_item = true;
    xml->has_break = false;
    xml->matched = 0;
    xml->state = FIRST;
    xml->json = (struct json_scan){0};
    xml->python = (struct python_arguments){0};
    xml->json_ended = xml->is_text;
    buf_clear(&xml->value);
    buf_clear(&xml->literal);
}

/* Adds a byte of the value, after an optional first line break. */
static void add_to_value(struct xml_arguments *xml, char c, struct buf *out) {
    if (!xml->json_ended)
        xml->json_ended = style_of(xml)->is_python
                              ? !python_value_add(&xml->python, c, &xml->literal)
                              : json_scan_add(&xml->json, c) != READ_MORE;
    if (xml->has_break && xml->is_text) add_escaped(out, '\n');
    if (xml->has_break && !xml->is_text) buf_puts(&xml->value, "\n");
    xml->has_break = c == '\n' && style_of(xml)->has_breaks;
    if (xml->has_break) return;
    if (xml->is_text)
        add_escaped(out, c);
    else
        buf_add(&xml->value, &c, 1);
}

/* Returns JSON's spelling of Python's True, False and None, and of other texts NULL. */
static const char *python_word(const struct buf *value) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(words[i][0]);
        if (value->length == length && memcmp(value->data, words[i][0], length) == 0)
            return words[i][1];
    }
    return NULL;
}

/* Returns the value as JSON if its type is allowed for the parameter, else NULL. */
static const struct buf *as_json(struct xml_arguments *xml) {
    bool is_python = style_of(xml)->is_python;
    const struct buf *value = is_python ? &xml->literal : &xml->value;
    struct json *json;
    struct err err;
    if (is_python && (xml->json_ended || !python_value_end(&xml->python, &xml->literal)))
        return NULL;
    const char *word = xml->types >> JSON_STRING & 1 ? NULL : python_word(value);
    if (word) {
        buf_clear(&xml->literal);
        buf_puts(&xml->literal, word);
        value = &xml->literal;
    }
    if (json_parse(&json, "It", value->data ? value->data : "", value->length, &err)) return NULL;
    bool right = xml->types >> json->type & 1;
    json_free(json);
    return right ? value : NULL;
}

static void end_value(struct xml_arguments *xml, struct buf *out) {
    const struct buf *json = xml->is_text ? NULL : as_json(xml);
    xml->state = BETWEEN;
    if (json) {
        buf_add(out, json->data, json->length);
        return;
    }
    if (!xml->is_text) buf_puts(out, "\"");
    for (size_t i = 0; i < xml->value.length; i++) add_escaped(out, xml->value.data[i]);
    buf_puts(out, "\"");
}

/* Returns how many bytes at the end of a partly matched marker match its beginning. */
static int matched_again(const char *marker, int matched) {
    int n = matched - 1;
    while (n > 0 && memcmp(marker, marker + matched - n, (size_t)n) != 0) n--;
    return n;
}

static enum reading add_in_value(struct xml_arguments *xml, char c, struct buf *out) {
    const char *end = style_of(xml)->end;
    if (xml->state == FIRST && c == '\n' && style_of(xml)->has_breaks) {
        xml->state = VALUE;
        return READ_MORE;
    }
    xml->state = VALUE;
    bool in_string =
        !xml->json_ended && (style_of(xml)->is_python ? python_in_string(&xml->python)
                                                      : json_scan_in_string(&xml->json));
    while (xml->matched > 0 && c != end[xml->matched]) {
        int kept = matched_again(end, xml->matched);
        for (int i = 0; i < xml->matched - kept; i++) add_to_value(xml, end[i], out);
        xml->matched = kept;
    }
    if (in_string || c != end[xml->matched])
        add_to_value(xml, c, out);
    else if (++xml->matched == (int)strlen(end))
        end_value(xml, out);
    return READ_MORE;
}

static enum reading add_to_tag(struct xml_arguments *xml, char c, struct buf *out) {
    const char *begin = style_of(xml)->begin, *enclosing = style_of(xml)->enclosing;
    int n_before = (int)strlen(enclosing) - 1;
    if (xml->matched == n_before && c == enclosing[n_before])
        return buf_puts(out, "}"), READ_BEFORE;
    if (c != begin[xml->matched]) return READ_BROKEN;
    if (!begin[++xml->matched]) {
        xml->key = (struct name){0};
        xml->state = KEY;
    }
    return READ_MORE;
}

/* Adds a byte between the key and its value. */
static enum reading add_behind_key(struct xml_arguments *xml, char c, const struct tool_set *known,
                                   const struct name *name, struct buf *out) {
    const char *behind = style_of(xml)->behind_key;
    if (is_space(c) && behind[xml->matched] == '<') return READ_MORE;
    if (c != behind[xml->matched]) return READ_BROKEN;
    if (behind[++xml->matched]) return READ_MORE;
    xml->types = tool_set_types(known, name->text, xml->key.text);
    xml->is_text = xml->types == 1 << JSON_STRING;
    xml->matched = 0;
    xml->state = FLAG;
    xml->flag = 0;
    if (!style_of(xml)->flags) begin_value(xml, out);
    return READ_MORE;
}

/* Adds a byte of a flag. The flag "null" allows null, because `nullable` is not part of a type. */
static enum reading add_to_flag(struct xml_arguments *xml, char c, struct buf *out) {
    const char *const *flags = style_of(xml)->flags, *before = flags[xml->flag];
    while (flags[xml->flag] && (strncmp(flags[xml->flag], before, (size_t)xml->matched) != 0 ||
                                flags[xml->flag][xml->matched] != c))
        xml->flag++;
    if (!flags[xml->flag]) return READ_BROKEN;
    if (flags[xml->flag][++xml->matched]) return READ_MORE;
    xml->is_text = xml->flag == 0;
    if (strncmp(flags[xml->flag], "null", 4) == 0) xml->types |= 1 << JSON_NULL;
    begin_value(xml, out);
    return READ_MORE;
}

/* Replaces &quot; and &amp; in a name. */
static void unescape(struct name *name) {
    static const struct {
        const char *escape;
        char c;
    } rows[] = {{"&quot;", '"'}, {"&amp;", '&'}};
    struct name read = {0};
    for (const char *at = name->text; *at;) {
        int row = 0;
        while (row < 2 && strncmp(at, rows[row].escape, strlen(rows[row].escape)) != 0) row++;
        name_add(&read, row < 2 ? rows[row].c : *at);
        at += row < 2 ? strlen(rows[row].escape) : 1;
    }
    assert(read.length <= name->length);
    *name = read;
}

static enum reading add_to_key(struct xml_arguments *xml, char c, const struct tool_set *known,
                               const struct name *name, struct buf *out) {
    if (c != style_of(xml)->behind_key[0]) {
        bool may_be_part = (c != '<' || style_of(xml)->is_escaped) && c != '\n' && c;
        return may_be_part && name_add(&xml->key, c) ? READ_MORE : READ_BROKEN;
    }
    if (xml->key.length == 0) return READ_BROKEN;
    if (style_of(xml)->is_escaped) unescape(&xml->key);
    xml->state = BEHIND_KEY;
    xml->matched = 0;
    return add_behind_key(xml, c, known, name, out);
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
    case BEHIND_KEY:
        return add_behind_key(xml, c, known, name, arguments);
    case FLAG:
        return add_to_flag(xml, c, arguments);
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
