/* Structural tags: free text with parts that follow grammars.
 *
 *     {"type": "structural_tag", "format": FORMAT}         the published form
 *     {"structures": [{"begin", "schema", "end"}], "triggers": [...]}    the older one
 *
 * Free text is any bytes without a trigger. At the first end of a trigger, one of the tags that
 * begin with this trigger must continue. Free text inside a tag ends at the tag's end.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

struct tags_reader {
    struct builder *b;
    const struct json *root;
    const struct json *end; /* of the innermost enclosing tag; NULL: none */
    bool is_older;          /* the older form */
};

static struct expr *read_format(struct tags_reader *r, const struct json *format);

static struct expr *fail(struct tags_reader *r, const struct json *at, const char *problem) {
    if (r->b->status != STATUS_OK) return &r->b->spare; /* finding the place is slow */
    struct buf pointer = {0};
    json_pointer(r->root, at, &pointer);
    builder_fail(r->b, "The structural tag at \"%.200s\" %s.", pointer.data, problem);
    buf_free(&pointer);
    return &r->b->spare;
}

/* Returns the member of this name and type; NULL after a failure. */
static const struct json *need(struct tags_reader *r, const struct json *object, const char *name,
                               enum json_type type) {
    static const char *const problems[] = {[JSON_STRING] = "needs a string",
                                           [JSON_ARRAY] = "needs an array",
                                           [JSON_OBJECT] = "needs an object"};
    const struct json *member = json_member(object, name);
    char problem[80];
    if (json_is(member, type)) return member;
    snprintf(problem, sizeof problem, "%s \"%s\"", problems[type], name);
    fail(r, member ? member : object, problem);
    return NULL;
}

/* Reads a member that is true, false or absent. */
static bool flag(struct tags_reader *r, const struct json *format, const char *name) {
    const struct json *member = json_member(format, name);
    if (member && !json_is(member, JSON_BOOL)) fail(r, member, "must be true or false");
    return json_true(member);
}

/* Fails if the value is not an object or has members outside the list `names`, which ends with
 * NULL. */
static void check_members(struct tags_reader *r, const struct json *format,
                          const char *const *names) {
    if (!json_is(format, JSON_OBJECT)) {
        fail(r, format, "must be an object");
        return;
    }
    json_each_member(member, format) {
        bool known = strcmp(member->name, "type") == 0;
        for (const char *const *name = names; *name && !known; name++) {
            known = strcmp(*name, member->name) == 0;
        }
        if (!known) fail(r, member, "is a field that is not served; leave it out");
    }
}

/* ---- text ----------------------------------------------------------------------------------- */

static struct expr *any_bytes(struct builder *b) {
    return expr_repeat(b, expr_new(b, EXPR_BYTE), 0, NO_MAX);
}

/* Adds a string, or the strings of an array, as alternatives. Fails on an empty string. */
static void add_texts(struct tags_reader *r, struct expr *alternatives, const struct json *texts) {
    if (json_is(texts, JSON_STRING)) {
        if (json_length(texts) == 0) fail(r, texts, "must not be empty");
        expr_add(alternatives, expr_bytes(r->b, json_text(texts), json_length(texts)));
        return;
    }
    json_each(text, texts) {
        if (!builder_works(r->b, 20)) return;
        if (!json_is(text, JSON_STRING) || json_length(text) == 0)
            fail(r, text, "must be a string that is not empty");
        else
            add_texts(r, alternatives, text);
    }
}

/* Text without any trigger and without the end of the enclosing tag. */
static struct expr *text_without(struct tags_reader *r, const struct json *triggers) {
    struct builder *b = r->b;
    struct expr *ends = expr_new(b, EXPR_ALT);
    if (triggers) add_texts(r, ends, triggers);
    if (r->end) add_texts(r, ends, r->end);
    if (b->status != STATUS_OK) return &b->spare;
    if (!ends->child) return any_bytes(b);
    return expr_of(b, EXPR_NOT, expr_of(b, EXPR_CAT, any_bytes(b), ends, any_bytes(b), NULL), NULL);
}

/* Text that ends with `last`. Neither `last` nor a trigger ends earlier in it. */
static struct expr *text_up_to(struct tags_reader *r, const struct json *last,
                               const struct json *triggers) {
    struct builder *b = r->b;
    struct expr *ends = expr_new(b, EXPR_ALT), *lasts = expr_new(b, EXPR_ALT);
    add_texts(r, lasts, last);
    add_texts(r, ends, triggers ? triggers : last);
    if (r->end && triggers) add_texts(r, ends, r->end);
    struct expr *earlier =
        expr_of(b, EXPR_CAT, any_bytes(b), ends, expr_new(b, EXPR_BYTE), any_bytes(b), NULL);
    return expr_of(b, EXPR_AND, expr_of(b, EXPR_CAT, any_bytes(b), lasts, NULL),
                   expr_of(b, EXPR_NOT, earlier, NULL), NULL);
}

/* ---- tags ----------------------------------------------------------------------------------- */

/* Reads a tag without the first `skip` bytes of its beginning. */
static struct expr *read_tag(struct tags_reader *r, const struct json *tag, size_t skip) {
    const char *const names[] = {"begin", r->is_older ? "schema" : "content", "end", NULL};
    struct builder *b = r->b;
    const struct json *begin = need(r, tag, "begin", JSON_STRING);
    const struct json *content = need(r, tag, names[1], JSON_OBJECT);
    const struct json *end = json_member(tag, "end"), *around = r->end;
    check_members(r, tag, names);
    if (!json_is(end, JSON_STRING) && !(json_is(end, JSON_ARRAY) && json_first(end)))
        fail(r, end ? end : tag, "needs \"end\": a string, or an array of strings");
    if (b->status != STATUS_OK) return &b->spare;
    assert(skip <= json_length(begin));
    bool has_end = json_is(end, JSON_ARRAY) || json_length(end) > 0;
    struct expr *all = expr_of(
        b, EXPR_CAT, expr_bytes(b, json_text(begin) + skip, json_length(begin) - skip), NULL);
    bool is_text = json_is_text(json_member(content, "type"), "any_text");
    if (has_end && !r->is_older && is_text && json_count(content) == 1)
        return expr_add(all, text_up_to(r, end, NULL));
    r->end = has_end ? end : NULL;
    expr_add(all, r->is_older ? schema_tree(b, content, SCHEMA_PLAIN) : read_format(r, content));
    r->end = around;
    struct expr *ends = expr_new(b, EXPR_ALT);
    if (has_end) expr_add(all, ends), add_texts(r, ends, end);
    return all;
}

static bool starts_with(const struct json *text, const struct json *start) {
    return json_length(text) >= json_length(start) &&
           memcmp(json_text(text), json_text(start), json_length(start)) == 0;
}

/* Fails if a tag does not begin with a trigger, since it could never begin. */
static void check_triggers(struct tags_reader *r, const struct json *triggers,
                           const struct json *tags) {
    if (!json_first(triggers)) fail(r, triggers, "needs a trigger");
    json_each(trigger, triggers) {
        if (!json_is(trigger, JSON_STRING) || json_length(trigger) == 0)
            fail(r, trigger, "must be a string that is not empty");
    }
    json_each(tag, tags) {
        const struct json *begin = need(r, tag, "begin", JSON_STRING);
        bool found = false;
        if (r->b->status != STATUS_OK) return;
        json_each(trigger, triggers) {
            found = starts_with(begin, trigger);
            if (found || !builder_works(r->b, 2)) break;
        }
        if (!found) fail(r, begin, "does not begin with any of the triggers");
    }
}

/* Returns the rule of: text up to a trigger, then the rest of a tag that begins with it. */
static int triggered_rule(struct tags_reader *r, const struct json *triggers,
                          const struct json *tags) {
    struct builder *b = r->b;
    struct expr *all = expr_new(b, EXPR_ALT);
    json_each(trigger, triggers) {
        struct expr *some = expr_new(b, EXPR_ALT);
        json_each(tag, tags) {
            if (!builder_works(b, 2)) return 0;
            if (starts_with(json_member(tag, "begin"), trigger))
                expr_add(some, read_tag(r, tag, json_length(trigger)));
        }
        expr_add(all, expr_of(b, EXPR_CAT, text_up_to(r, trigger, triggers), some, NULL));
    }
    int rule = rule_new(b, NULL);
    rule_define(b, rule, all);
    return rule;
}

/* at_least_one: the text begins with a tag. stop_after_first: the text ends after a tag. */
static struct expr *read_triggered(struct tags_reader *r, const struct json *format) {
    const char *const names[] = {"triggers", r->is_older ? "structures" : "tags", "at_least_one",
                                 "stop_after_first", NULL};
    struct builder *b = r->b;
    const struct json *triggers = need(r, format, "triggers", JSON_ARRAY);
    const struct json *tags = need(r, format, names[1], JSON_ARRAY);
    bool at_least_one = flag(r, format, "at_least_one");
    bool stops = flag(r, format, "stop_after_first");
    check_members(r, format, names);
    if (b->status != STATUS_OK) return &b->spare;
    check_triggers(r, triggers, tags);
    if (b->status != STATUS_OK) return &b->spare;
    struct expr *all = expr_new(b, EXPR_CAT);
    if (at_least_one) {
        struct expr *first = expr_new(b, EXPR_ALT);
        json_each(tag, tags) if (builder_works(b, 100)) expr_add(first, read_tag(r, tag, 0));
        expr_add(all, first);
        if (stops) return all;
    }
    struct expr *more = expr_call(b, triggered_rule(r, triggers, tags));
    if (stops) return expr_of(b, EXPR_ALT, more, text_without(r, triggers), NULL);
    expr_add(all, expr_repeat(b, more, 0, NO_MAX));
    return expr_add(all, text_without(r, triggers));
}

static struct expr *read_separated(struct tags_reader *r, const struct json *format) {
    static const char *const names[] = {"tags", "separator", "at_least_one", "stop_after_first",
                                        NULL};
    struct builder *b = r->b;
    const struct json *tags = need(r, format, "tags", JSON_ARRAY);
    const struct json *separator = json_member(format, "separator");
    if (!json_is(separator, JSON_OBJECT)) separator = need(r, format, "separator", JSON_STRING);
    bool at_least_one = flag(r, format, "at_least_one");
    bool stops = flag(r, format, "stop_after_first");
    check_members(r, format, names);
    if (b->status != STATUS_OK) return &b->spare;
    int rule = rule_new(b, NULL);
    struct expr *one = expr_new(b, EXPR_ALT);
    json_each(tag, tags) if (builder_works(b, 100)) expr_add(one, read_tag(r, tag, 0));
    rule_define(b, rule, one);
    struct expr *between = json_is(separator, JSON_OBJECT)
                               ? read_format(r, separator)
                               : expr_bytes(b, json_text(separator), json_length(separator));
    struct expr *more = expr_of(b, EXPR_CAT, between, expr_call(b, rule), NULL);
    struct expr *all = expr_of(b, EXPR_CAT, expr_call(b, rule), NULL);
    if (!stops) expr_add(all, expr_repeat(b, more, 0, NO_MAX));
    return expr_repeat(b, all, at_least_one, 1);
}

/* ---- formats -------------------------------------------------------------------------------- */

static struct expr *read_const(struct tags_reader *r, const struct json *format) {
    static const char *const names[] = {"value", NULL};
    const struct json *value = need(r, format, "value", JSON_STRING);
    check_members(r, format, names);
    return value ? expr_bytes(r->b, json_text(value), json_length(value)) : &r->b->spare;
}

static struct expr *read_schema(struct tags_reader *r, const struct json *format) {
    static const char *const names[] = {"json_schema", "style", "texts", "tool", "strict", NULL};
    const struct json *strict = json_member(format, "strict");
    const struct json *schema = json_member(format, "json_schema");
    const struct json *style = json_member(format, "style"), *tool = json_member(format, "tool");
    check_members(r, format, names);
    if (!schema) return fail(r, format, "needs a \"json_schema\"");
    if (style) need(r, format, "style", JSON_STRING);
    if (tool) need(r, format, "tool", JSON_STRING);
    if (json_member(format, "texts")) need(r, format, "texts", JSON_ARRAY);
    if (r->b->status != STATUS_OK) return &r->b->spare;
    enum schema_mode mode = !strict                     ? SCHEMA_PLAIN
                            : flag(r, format, "strict") ? SCHEMA_STRICT
                                                        : SCHEMA_HINT;
    bool is_json = !style || json_is_text(style, "json");
    r->b->owner = tool ? json_text(tool) : NULL;
    struct expr *all = is_json ? schema_tree(r->b, schema, mode)
                               : schema_arguments(r->b, schema, json_text(style),
                                                  json_member(format, "texts"), mode);
    r->b->owner = NULL;
    if (all) return all;
    return fail(
        r, style,
        "is not a served style: use json, qwen_xml, glm_xml, seed_xml, minimax_xml, "
        "param_xml, step_xml, hunyuan3_xml, hunyuan4_xml, atem_xml, solar, deepseek_xml, xtml, "
        "elements, gemma, functiongemma or python");
}

/* Any text, except texts that contain one of `excludes` or begin with a match of `not_at_start`. */
static struct expr *read_any(struct tags_reader *r, const struct json *format) {
    static const char *const names[] = {"excludes", "not_at_start", NULL};
    const struct json *start = json_member(format, "not_at_start");
    struct builder *b = r->b;
    check_members(r, format, names);
    if (json_member(format, "excludes")) need(r, format, "excludes", JSON_ARRAY);
    if (start) need(r, format, "not_at_start", JSON_STRING);
    struct expr *text = text_without(r, json_member(format, "excludes"));
    if (!start || b->status != STATUS_OK) return text;
    struct expr *begin = pattern_read(b, "The structural tag's pattern", json_text(start),
                                      json_length(start), REGEX_PART);
    struct expr *begins = expr_of(b, EXPR_CAT, begin, any_bytes(b), NULL);
    return expr_of(b, EXPR_AND, text, expr_of(b, EXPR_NOT, begins, NULL), NULL);
}

static struct expr *read_pattern(struct tags_reader *r, const struct json *format) {
    static const char *const names[] = {"pattern", NULL};
    const struct json *pattern = need(r, format, "pattern", JSON_STRING);
    check_members(r, format, names);
    if (!pattern) return &r->b->spare;
    return pattern_read(r->b, "The structural tag's pattern", json_text(pattern),
                        json_length(pattern), REGEX_WHOLE);
}

static struct expr *read_grammar(struct tags_reader *r, const struct json *format) {
    static const char *const names[] = {"grammar", NULL};
    const struct json *grammar = need(r, format, "grammar", JSON_STRING);
    check_members(r, format, names);
    return grammar ? gbnf_read(r->b, json_text(grammar), json_length(grammar)) : &r->b->spare;
}

static struct expr *read_elements(struct tags_reader *r, const struct json *format,
                                  enum expr_kind kind) {
    static const char *const names[] = {"elements", NULL};
    const struct json *elements = need(r, format, "elements", JSON_ARRAY);
    struct expr *all = expr_new(r->b, kind);
    check_members(r, format, names);
    json_each(element, elements) if (builder_works(r->b, 100))
        expr_add(all, read_format(r, element));
    return all;
}

static struct expr *read_sequence(struct tags_reader *r, const struct json *format) {
    return read_elements(r, format, EXPR_CAT);
}

static struct expr *read_or(struct tags_reader *r, const struct json *format) {
    return read_elements(r, format, EXPR_ALT);
}

static struct expr *read_whole_tag(struct tags_reader *r, const struct json *format) {
    return read_tag(r, format, 0);
}

static const struct {
    const char *type;
    struct expr *(*read)(struct tags_reader *r, const struct json *format);
} formats[] = {
    {"const_string", read_const},
    {"json_schema", read_schema},
    {"any_text", read_any},
    {"regex", read_pattern},
    {"grammar", read_grammar},
    {"sequence", read_sequence},
    {"or", read_or},
    {"tag", read_whole_tag},
    {"triggered_tags", read_triggered},
    {"tags_with_separator", read_separated},
};

static struct expr *read_format(struct tags_reader *r, const struct json *format) {
    struct builder *b = r->b;
    if (b->status != STATUS_OK || !builder_down(b, "The structural tag")) return &b->spare;
    const struct json *type = need(r, format, "type", JSON_STRING);
    struct expr *expr = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats && type && !expr; i++) {
        if (json_is_text(type, formats[i].type)) expr = formats[i].read(r, format);
    }
    if (!expr)
        expr = fail(r, type ? type : format,
                    "is not a served format; the formats are const_string, json_schema, any_text, "
                    "regex, grammar, sequence, or, tag, triggered_tags and tags_with_separator");
    builder_up(b);
    return expr;
}

struct expr *structural_tag_read(struct builder *b, const char *text, size_t n) {
    struct json *root;
    if (json_parse_strict(&root, "The structural tag", text, n, b->err)) {
        b->status = b->err->status;
        return &b->spare;
    }
    struct tags_reader r = {.b = b, .root = root};
    struct expr *expr = &b->spare;
    b->document = root;
    r.is_older = json_member(root, "structures") != NULL;
    if (r.is_older) {
        expr = read_triggered(&r, root);
    } else {
        static const char *const names[] = {"format", NULL};
        const struct json *format = need(&r, root, "format", JSON_OBJECT);
        check_members(&r, root, names);
        if (format) expr = read_format(&r, format);
    }
    return b->status == STATUS_OK ? expr : &b->spare;
}
