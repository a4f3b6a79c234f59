/* The arguments of a call for models that do not write JSON:
 *
 *   <parameter=zone>\nUTC\n</parameter>\n      qwen_xml
 *   <arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n      glm_xml
 *   <parameter=zones>[None, "UTC"]</parameter>\n               seed_xml
 *   <parameter name="zone">UTC</parameter>\n                   minimax_xml
 *   <DSML|parameter name="n" string="false">3</DSML|parameter>\n       deepseek_xml
 *   zone:<|"|>UTC<|"|>,n:3                    gemma
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
};

#define DSML                                                                                       \
    "\xEF\xBD\x9C"                                                                                 \
    "DSML\xEF\xBD\x9C"

static const struct style styles[] = {
    {"qwen_xml", "<parameter=", ">\n", "\n</parameter>\n", "", "</parameter>"},
    {"glm_xml", "<arg_key>", "</arg_key>\r<arg_value>", "</arg_value>\r", "", "</arg_value>"},
    {"seed_xml", "<parameter=", ">", "</parameter>\n", "", "</parameter>", .is_python = true},
    {"minimax_xml", "<parameter name=\"", "\">", "</parameter>\r", "", "</parameter>"},
    {"deepseek_xml", "<" DSML "parameter name=\"", "\" string=\"true\">", "</" DSML "parameter>\r",
     "", "</" DSML "parameter>", .json_middle = "\" string=\"false\">"},
    {"gemma", "", ":", "", ",", NULL},
    {"python", "", "=", "", ", ", NULL, .is_python = true},
};

struct arguments {
    struct schema_reader *r;
    const struct style *style;
    const struct json *texts;
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

/* Can the name be distinguished from the text around it? */
static bool name_is_right(const struct style *style, const char *name) {
    static const char word[] = "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t length = strlen(name);
    if (length == 0 || length > 128) return false;
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

static struct expr *text_value(struct arguments *a, struct conj *conj) {
    static const char *const choices[] = {"anyOf", "oneOf"};
    struct builder *b = a->r->b;
    conj_refuse_null(a->r, conj);
    for (int i = 0; i < 2; i++) {
        conj_each_value(choice, conj, choices[i]) schema_cannot(
            a->r, choice, "is not enforced in a text, and this model writes it as text.");
    }
    struct expr *any = expr_repeat(b, expr_new(b, EXPR_BYTE), 0, NO_MAX);
    struct expr *rest = expr_repeat(b, expr_new(b, EXPR_BYTE), 0, NO_MAX);
    struct expr *ends = expr_of(b, EXPR_CAT, any, expr_text(b, a->style->end), rest, NULL);
    return expr_add(schema_text(a->r, conj), expr_of(b, EXPR_NOT, ends, NULL));
}

static struct expr *parameter(struct arguments *a, const struct json *root,
                              const struct json *property) {
    const struct style *style = a->style;
    struct builder *b = a->r->b;
    struct conj whole = {0};
    pointers_add(b, &whole.schemas, root);
    struct conj value = schema_property(a->r, &whole, property->name);
    bool plain = style->end && schema_lists(a->r, a->texts, property->name);
    const char *middle = plain || !style->json_middle ? style->middle : style->json_middle;
    return expr_of(b, EXPR_CAT, expr_text(b, style->open), expr_text(b, property->name),
                   spelled(b, middle), plain ? text_value(a, &value) : conj_call(a->r, &value),
                   spelled(b, style->close), NULL);
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
    json_spell_gemma(b, strcmp(style, "gemma") == 0);
    struct expr *all = parameters(&a, root);
    conj_define_rules(&r);
    schema_reader_free(&r);
    json_spell_python(b, false, false);
    json_spell_gemma(b, false);
    b->at_root = b->at = NULL;
    return b->status == STATUS_OK ? all : &b->spare;
}
