/* The arguments of a call for models that do not write JSON:
 *
 *   <parameter=zone>\nUTC\n</parameter>\n      qwen_xml
 *   <arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n      glm_xml
 *   <parameter=zones>[None, "UTC"]</parameter>\n               seed_xml
 *   <parameter name="zone">UTC</parameter>\n                   minimax_xml
 *   <param name="zone">UTC</param>\n                           param_xml
 *   <DSML|parameter name="n" string="false">3</DSML|parameter>\n       deepseek_xml
 *   <|open|>argument key="n" type="number"<|sep|>3<|close|>argument<|sep|>    xtml
 *   <steptml:parameter name="zone">UTC</steptml:parameter>     step_xml
 *   <atem:parameter name="zone">UTC</atem:parameter>\n         atem_xml
 *   <|tool_arg:start|>n<|tool_arg:value|>3<|tool_arg:end|>     solar
 *   <arg_key:opensource>n</arg_key:opensource>                 hunyuan3_xml; like glm_xml
 *   <arg_key:6124c78e>n</arg_key:6124c78e>                     hunyuan4_xml; like glm_xml
 *   @<more>@<n>3@</n>@</more>, @ is a mark                   elements
 *   zone:<|"|>UTC<|"|>,n:3                    gemma
 *   zone:<escape>UTC<escape>,n:3              functiongemma
 *   zone="UTC", n=3                           python
 *
 * Parameters are in the schema's order. The text after a parameter depends only on whether a
 * parameter precedes it, so each parameter has two rules. */
#include <stdio.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

struct style {
    const char *name;
    const char *open, *middle, *close; /* around the name, and after the value; \r: see spelled */
    const char *between;
    const char *end; /* values must not contain it */
    bool is_python;
    const char *json_middle; /* before a value that is not plain text; NULL: `middle` */
    bool is_typed;           /* the value's JSON type follows `middle`; names are escaped */
    bool is_nested;          /* the name and ">" follow `close`; objects and arrays are elements */
    const char *text_mark;   /* around texts, as in json_spell_gemma */
    bool has_words;          /* a value may be Python's True, False or None */
};

#define DSML                                                                                       \
    "\xEF\xBD\x9C"                                                                                 \
    "DSML\xEF\xBD\x9C"

#define ELEMENT_MARK "]<]minimax[>["

static const struct style styles[] = {
    {"qwen_xml", "<parameter=", ">\n", "\n</parameter>\n", "", "</parameter>", .has_words = true},
    {"glm_xml", "<arg_key>", "</arg_key>\r<arg_value>", "</arg_value>\r", "", "</arg_value>"},
    {"seed_xml", "<parameter=", ">", "</parameter>\n", "", "</parameter>", .is_python = true},
    {"minimax_xml", "<parameter name=\"", "\">", "</parameter>\r", "", "</parameter>"},
    {"param_xml", "<param name=\"", "\">", "</param>\r", "", "</param>"},
    {"deepseek_xml", "<" DSML "parameter name=\"", "\" string=\"true\">", "</" DSML "parameter>\r",
     "", "</" DSML "parameter>", .json_middle = "\" string=\"false\">"},
    {"xtml", "<|open|>argument key=\"", "\" type=\"", "<|close|>argument<|sep|>", "",
     "<|close|>argument<|sep|>", .is_typed = true},
    {"elements", ELEMENT_MARK "<", ">", ELEMENT_MARK "</", "", ELEMENT_MARK, .is_nested = true},
    {"step_xml", "<steptml:parameter name=\"", "\">", "</steptml:parameter>\r", "",
     "</steptml:parameter>"},
    {"atem_xml", "<atem:parameter name=\"", "\">", "</atem:parameter>\n", "", "</atem:parameter>"},
    {"solar", "<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>\r", "",
     "<|tool_arg:end|>"},
    {"hunyuan3_xml", "<arg_key:opensource>", "</arg_key:opensource>\r<arg_value:opensource>",
     "</arg_value:opensource>\r", "", "</arg_value:opensource>"},
    {"hunyuan4_xml", "<arg_key:6124c78e>", "</arg_key:6124c78e>\r<arg_value:6124c78e>",
     "</arg_value:6124c78e>\r", "", "</arg_value:6124c78e>"},
    {"gemma", "", ":", "", ",", NULL, .text_mark = "<|\"|>"},
    {"functiongemma", "", ":", "", ",", NULL, .text_mark = "<escape>"},
    {"python", "", "=", "", ", ", NULL, .is_python = true},
};

struct arguments {
    struct schema_reader *r;
    const struct style *style;
    const struct json *texts;
    int depth; /* of elements */
};

/* ---- allowed parameters --------------------------------------------------------------------- */

/* Fails on keywords other than `properties` that could add parameters: the output parser finds a
 * parameter by its name. */
static void check_root(struct arguments *a, const struct json *root) {
    static const char *const others[] = {"$ref",          "allOf",         "anyOf",
                                         "oneOf",         "enum",          "const",
                                         "minProperties", "maxProperties", "patternProperties",
                                         "propertyNames"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct json *other = schema_value(root, others[i]);
        if (other)
            schema_cannot(a->r, other,
                          "is not enforced if the model writes each parameter separately, as this "
                          "one does: list them in 'properties' of the schema itself.");
    }
    json_each(name, schema_value(root, "required")) {
        if (a->r->b->status != STATUS_OK) return;
        if (!schema_member(a->r, schema_value(root, "properties"), json_text(name)))
            schema_cannot(a->r, name,
                          "is not a name in 'properties', and this model writes only these.");
    }
}

/* Returns the length of a name after & and " are replaced by &amp; and &quot;. */
static size_t escaped_length(const char *name) {
    size_t length = 0;
    for (; *name; name++) length += *name == '&' ? 5 : *name == '"' ? 6 : 1;
    return length;
}

/* Can the name be distinguished from the text around it? */
static bool name_is_right(const struct style *style, const char *name) {
    static const char word[] = "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t length = strlen(name);
    if (length == 0 || length > 128 || (style->is_nested && name[0] == '/')) return false;
    if (style->is_typed) return escaped_length(name) <= 128 && strcspn(name, "\n") == length;
    if (style->end) return strcspn(name, "<>\"\n\r\t ") == length;
    return strspn(name, word) == length && strchr("0123456789", name[0]) == NULL;
}

/* ---- one parameter -------------------------------------------------------------------------- */

/* A text of a style, in which \r stands for an optional line break. */
static struct expr *spelled(struct builder *b, const char *text) {
    struct expr *all = expr_new(b, EXPR_CAT);
    for (;;) {
        size_t n = strcspn(text, "\r");
        if (n > 0) expr_add(all, expr_bytes(b, text, n));
        if (!text[n]) return all;
        expr_add(all, expr_repeat(b, expr_text(b, "\n"), 0, 1));
        text += n + 1;
    }
}

static struct expr *text_value(struct arguments *a, const struct conj *conj) {
    struct builder *b = a->r->b;
    struct expr *text = conj_text(a->r, conj);
    struct expr *any = expr_repeat(b, expr_new(b, EXPR_BYTE), 0, NO_MAX);
    struct expr *rest = expr_repeat(b, expr_new(b, EXPR_BYTE), 0, NO_MAX);
    struct expr *ends = expr_of(b, EXPR_CAT, any, expr_text(b, a->style->end), rest, NULL);
    struct expr *all = text->kind == EXPR_AND ? text : expr_of(b, EXPR_AND, text, NULL);
    return expr_add(all, expr_of(b, EXPR_NOT, ends, NULL));
}

/* A name of a parameter; in a style with types, & and " are escaped. */
static struct expr *spelled_name(struct arguments *a, const char *name) {
    struct builder *b = a->r->b;
    if (!a->style->is_typed) return expr_text(b, name);
    struct expr *all = expr_new(b, EXPR_CAT);
    for (;;) {
        size_t n = strcspn(name, "&\"");
        if (n > 0) expr_add(all, expr_bytes(b, name, n));
        if (!name[n]) return all;
        expr_add(all, expr_text(b, name[n] == '&' ? "&amp;" : "&quot;"));
        name += n + 1;
    }
}

/* A value after its type. */
static struct expr *typed_value(struct arguments *a, const struct conj *conj) {
    static const struct {
        const char *name;
        unsigned types;
    } kinds[] = {{"string", TYPE_STRING}, {"number", TYPE_NUMBER}, {"boolean", TYPE_BOOL},
                 {"null", TYPE_NULL},     {"array", TYPE_ARRAY},   {"object", TYPE_OBJECT}};
    struct builder *b = a->r->b;
    struct expr *all = expr_new(b, EXPR_ALT);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct conj one = conj_copy(a->r, conj);
        one.without |= TYPE_ANY & ~kinds[i].types;
        if (conj_impossible(a->r, &one)) continue;
        bool is_text = kinds[i].types == TYPE_STRING;
        expr_add(all, expr_of(b, EXPR_CAT, expr_text(b, kinds[i].name), expr_text(b, "\"<|sep|>"),
                              is_text ? text_value(a, &one) : conj_call(a->r, &one), NULL));
    }
    return all;
}

/* ---- Python's words ------------------------------------------------------------------------- */

static bool has_only(const struct json *schema, const char *const *keywords);

/* The types that a schema names, as a set of TYPE_...; 0 if it says more than types. */
static unsigned types_only(const struct json *schema) {
    static const struct {
        const char *name;
        unsigned type;
    } rows[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOL}, {"integer", TYPE_NUMBER},
                {"number", TYPE_NUMBER}, {"array", TYPE_ARRAY},  {"object", TYPE_OBJECT},
                {"string", TYPE_STRING}};
    static const char *const keywords[] = {"type", "anyOf", NULL};
    const struct json *type = json_member(schema, "type"), *any = json_member(schema, "anyOf");
    unsigned found = 0;
    if (!json_is(schema, JSON_OBJECT) || !has_only(schema, keywords) || (type && any)) return 0;
    json_each(branch, any) {
        unsigned types = types_only(branch);
        if (!types) return 0;
        found |= types;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (json_is_text(type, rows[i].name)) found |= rows[i].type;
        json_each(one, json_is(type, JSON_ARRAY) ? type : NULL) {
            if (json_is_text(one, rows[i].name)) found |= rows[i].type;
        }
    }
    return found;
}

/* A value of a parameter. If its schema names types and says nothing else, and texts are not among
 * them, it may also be Python's True, False or None. Qwen's templates write these so, but inside of
 * arrays and objects as JSON. */
static struct expr *value_or_word(struct arguments *a, const struct json *property,
                                  struct conj *value) {
    struct builder *b = a->r->b;
    struct expr *all = expr_of(b, EXPR_ALT, conj_call(a->r, value), NULL);
    unsigned types = types_only(property);
    if (types & TYPE_STRING) return all;
    if (types & TYPE_BOOL) expr_add(all, expr_text(b, "True"));
    if (types & TYPE_BOOL) expr_add(all, expr_text(b, "False"));
    if (types & TYPE_NULL) expr_add(all, expr_text(b, "None"));
    return all;
}

/* ---- nested elements ------------------------------------------------------------------------ */

#define MAX_COUNTED_ITEMS 64
#define MAX_NESTED 12 /* elements; deeper values are JSON */

static struct expr *parameters(struct arguments *a, const struct json *root);
static struct expr *element_value(struct arguments *a, const struct json *schema,
                                  struct conj *conj);

/* Has the schema only keywords of the list and annotations? */
static bool has_only(const struct json *schema, const char *const *keywords) {
    static const char *const notes[] = {"title", "description", "default", "examples", NULL};
    json_each_member(member, schema) {
        int i = 0, k = 0;
        while (keywords[i] && strcmp(keywords[i], member->name) != 0) i++;
        while (notes[k] && strcmp(notes[k], member->name) != 0) k++;
        if (!keywords[i] && !notes[k]) return false;
    }
    return true;
}

/* Can the object be written as elements: does it list all its members? */
static bool is_plain_object(struct arguments *a, const struct json *schema) {
    static const char *const keywords[] = {"type", "properties", "required", "additionalProperties",
                                           NULL};
    const struct json *properties = json_member(schema, "properties");
    const struct json *others = json_member(schema, "additionalProperties");
    if (!json_is_text(json_member(schema, "type"), "object") || !has_only(schema, keywords) ||
        !json_is(properties, JSON_OBJECT) ||
        (others && (!json_is(others, JSON_BOOL) || json_true(others))))
        return false;
    json_each_member(property,
                     properties) if (!name_is_right(a->style, property->name)) return false;
    json_each(name, json_member(schema, "required")) {
        if (!json_is(name, JSON_STRING) || !schema_member(a->r, properties, json_text(name)))
            return false;
    }
    return true;
}

/* Returns a number of items, or -1 if they are not counted here. */
static int item_count(const struct json *schema, const char *keyword, int none) {
    const struct json *value = json_member(schema, keyword);
    if (!value) return none;
    double n = json_is(value, JSON_NUMBER) ? json_number(value) : -1;
    return n >= 0 && n <= MAX_COUNTED_ITEMS && n == (int)n ? (int)n : -1;
}

static bool is_plain_array(const struct json *schema) {
    static const char *const keywords[] = {"type", "items", "minItems", "maxItems", NULL};
    int least = item_count(schema, "minItems", 0), most = item_count(schema, "maxItems", NO_MAX);
    return json_is_text(json_member(schema, "type"), "array") && has_only(schema, keywords) &&
           json_is(json_member(schema, "items"), JSON_OBJECT) && least >= 0 &&
           (most == NO_MAX || most >= least);
}

/* Items of an array, each in a rule of its own. */
static struct expr *item_elements(struct arguments *a, const struct json *schema) {
    struct builder *b = a->r->b;
    const struct json *items = json_member(schema, "items");
    struct conj item = {0};
    pointers_add(b, &item.schemas, items);
    int rule = rule_new(b, NULL);
    rule_define(b, rule,
                expr_of(b, EXPR_CAT, expr_text(b, ELEMENT_MARK "<item>"),
                        element_value(a, items, &item), expr_text(b, ELEMENT_MARK "</item>"),
                        NULL));
    return expr_repeat(b, expr_call(b, rule), item_count(schema, "minItems", 0),
                       item_count(schema, "maxItems", NO_MAX));
}

/* A value inside of another one, or one that is no text: elements if they can say all, else
 * JSON. */
static struct expr *element_value(struct arguments *a, const struct json *schema,
                                  struct conj *conj) {
    struct expr *value;
    bool may_nest = ++a->depth <= MAX_NESTED;
    if (json_is_text(json_member(schema, "type"), "string"))
        value = text_value(a, conj);
    else if (may_nest && is_plain_object(a, schema))
        value = parameters(a, schema);
    else if (may_nest && is_plain_array(schema))
        value = item_elements(a, schema);
    else
        value = conj_call(a->r, conj);
    a->depth--;
    return value;
}

/* ---- one parameter -------------------------------------------------------------------------- */

static struct expr *parameter(struct arguments *a, const struct json *root,
                              const struct json *property) {
    const struct style *style = a->style;
    struct builder *b = a->r->b;
    struct conj whole = {0};
    pointers_add(b, &whole.schemas, root);
    struct conj value = schema_property(a->r, &whole, property->name);
    bool plain = style->end && schema_lists(a->r, a->texts, property->name);
    const char *middle = plain || !style->json_middle ? style->middle : style->json_middle;
    if (style->is_nested) {
        struct expr *inside = plain && root == a->r->root ? text_value(a, &value)
                                                          : element_value(a, property, &value);
        return expr_of(b, EXPR_CAT, expr_text(b, style->open), expr_text(b, property->name),
                       expr_text(b, middle), inside, expr_text(b, style->close),
                       expr_text(b, property->name), expr_text(b, ">"), NULL);
    }
    struct expr *written = style->is_typed    ? typed_value(a, &value)
                           : plain            ? text_value(a, &value)
                           : style->has_words ? value_or_word(a, property, &value)
                                              : conj_call(a->r, &value);
    return expr_of(b, EXPR_CAT, expr_text(b, style->open), spelled_name(a, property->name),
                   spelled(b, middle), written, spelled(b, style->close), NULL);
}

/* ---- all parameters ------------------------------------------------------------------------- */

/* The parameters from `property` on. Rules at + 0 and at + 1: without and with a parameter before
 * it. */
static struct expr *parameters(struct arguments *a, const struct json *root) {
    const struct json *properties = schema_value(root, "properties");
    struct builder *b = a->r->b;
    int rules = b->n_rules, at = rules;
    json_each_member(property, properties) rule_new(b, property->name), rule_new(b, property->name);
    rule_new(b, NULL), rule_new(b, NULL);
    json_each_member(property, properties) {
        if (!builder_in_time(b)) return &b->spare;
        int whole = rule_new(b, property->name);
        bool is_required = schema_lists(a->r, schema_value(root, "required"), property->name);
        bool has_name = name_is_right(a->style, property->name);
        if (!has_name)
            schema_cannot(a->r, property,
                          "has a name that cannot be written in this model's format.");
        rule_define(b, whole, has_name ? parameter(a, root, property) : expr_new(b, EXPR_ALT));
        for (int behind = 0; behind < 2; behind++) {
            struct expr *here = expr_of(b, EXPR_CAT, expr_text(b, behind ? a->style->between : ""),
                                        expr_call(b, whole), expr_call(b, at + 3), NULL);
            struct expr *all = expr_of(b, EXPR_ALT, here, NULL);
            if (!is_required || !has_name) expr_add(all, expr_call(b, at + 2 + behind));
            rule_define(b, at + behind, all);
        }
        at += 2;
    }
    rule_define(b, at, expr_new(b, EXPR_CAT));
    rule_define(b, at + 1, expr_new(b, EXPR_CAT));
    return expr_call(b, rules);
}

/* Can a value that is not plain text be a text? Then single quotes around it would be read as part
 * of it. */
static bool may_be_text(struct arguments *a, const struct json *property) {
    const struct json *type = json_member(property, "type");
    if (schema_lists(a->r, a->texts, property->name)) return false;
    if (!type || json_is_text(type, "string")) return true;
    json_each(one, type) if (json_is_text(one, "string")) return true;
    return false;
}

/* May Python's strings have single quotes? */
static bool takes_single_quotes(struct arguments *a, const struct json *root) {
    if (!a->style->end) return true;
    json_each_member(property, json_member(root, "properties")) {
        if (may_be_text(a, property)) return false;
    }
    return true;
}

struct expr *schema_arguments(struct builder *b, const struct json *root, const char *style,
                              const struct json *texts, enum schema_mode mode) {
    struct schema_reader r = {.b = b, .root = root, .mode = mode};
    struct arguments a = {.r = &r, .texts = texts};
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        if (strcmp(styles[i].name, style) == 0) a.style = &styles[i];
    }
    if (!a.style) return NULL;
    b->at_root = b->at = root;
    schema_check(&r, root);
    if (b->status == STATUS_OK) check_root(&a, root);
    if (b->status != STATUS_OK) return &b->spare;
    json_spell_python(b, a.style->is_python, a.style->is_python && takes_single_quotes(&a, root));
    json_spell_gemma(b, a.style->text_mark);
    struct expr *all = parameters(&a, root);
    conj_define_rules(&r);
    schema_reader_free(&r);
    json_spell_python(b, false, false);
    json_spell_gemma(b, NULL);
    b->at_root = b->at = NULL;
    return b->status == STATUS_OK ? all : &b->spare;
}
