/* The tools of a request, as parsers need them. The request's JSON is freed earlier, so names and
 * types are copied. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/message/internal.h"

#define MAX_SCHEMA_DEPTH 16

struct parameter {
    char *name;
    int types;
};

struct tool {
    char *name;
    int n_parameters;
    struct parameter *parameters;
};

struct tool_set {
    int n;
    struct tool tools[];
};

bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' ||
           c == '-' || c == '.';
}

bool tool_name_is_right(const char *name, size_t length) {
    if (length == 0 || length > MAX_TOOL_NAME) return false;
    for (size_t i = 0; i < length; i++)
        if (!is_name_byte(name[i])) return false;
    return true;
}

bool name_add(struct name *name, char c) {
    if (name->length == MAX_TOOL_NAME) return false;
    name->text[name->length++] = c;
    name->text[name->length] = 0;
    return true;
}

/* ---- types of parameters -------------------------------------------------------------------- */

static int type_named(const struct json *name) {
    static const struct {
        const char *name;
        enum json_type type;
    } types[] = {{"string", JSON_STRING}, {"integer", JSON_NUMBER}, {"number", JSON_NUMBER},
                 {"boolean", JSON_BOOL},  {"null", JSON_NULL},      {"array", JSON_ARRAY},
                 {"object", JSON_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_is_text(name, types[i].name)) return 1 << types[i].type;
    return ALL_TYPES;
}

static int types_at(const struct json *schema, int depth);

/* Returns the types of a schema. A schema that is not understood, such as a reference, may have any
 * type. */
static int types_at(const struct json *schema, int depth) {
    const struct json *type = json_member(schema, "type"), *one = json_member(schema, "const");
    const struct json *any = json_member(schema, "anyOf"), *list = json_member(schema, "enum");
    int types = 0;
    if (!any) any = json_member(schema, "oneOf");
    if (depth > MAX_SCHEMA_DEPTH) return ALL_TYPES;
    if (json_is(type, JSON_STRING)) return type_named(type);
    if (one) return 1 << one->type;
    json_each(name, type) types |= type_named(name);
    if (!types) json_each(value, list) types |= 1 << value->type;
    if (!types) json_each(schema_of_any, any) types |= types_at(schema_of_any, depth + 1);
    return types ? types : ALL_TYPES;
}

int schema_types(const struct json *schema) {
    return types_at(schema, 0);
}

/* ---- the set -------------------------------------------------------------------------------- */

static void add_tool(struct tool *tool, const struct json *function) {
    const struct json *properties = json_member(json_member(function, "parameters"), "properties");
    tool->name = mem_strdup(json_text(json_member(function, "name")));
    if (!json_is(properties, JSON_OBJECT)) return;
    tool->parameters = mem_calloc((size_t)json_count(properties) + 1, sizeof *tool->parameters);
    json_each_member(property, properties) {
        struct parameter *parameter = &tool->parameters[tool->n_parameters++];
        parameter->name = mem_strdup(property->name);
        parameter->types = schema_types(property);
    }
}

bool tool_filter_passes(const struct tool_filter *filter, const struct json *function) {
    const struct json *name = json_member(function, "name");
    if (filter->only) return json_is_text(name, filter->only);
    json_each(one, filter->allowed) {
        const struct json *own = json_member(json_member(one, "function"), "name");
        if (json_is_text(name, json_text(own))) return true;
    }
    return !filter->allowed;
}

struct tool_set *tool_set_new(const struct json *tools, const struct tool_filter *filter) {
    assert(json_is(tools, JSON_ARRAY));
    size_t room = (size_t)json_count(tools) * sizeof(struct tool);
    struct tool_set *set = mem_calloc(1, sizeof *set + room);
    json_each(tool, tools) {
        const struct json *function = json_member(tool, "function");
        if (filter && !tool_filter_passes(filter, function)) continue;
        add_tool(&set->tools[set->n++], function);
    }
    return set;
}

void tool_set_free(struct tool_set *tools) {
    for (int i = 0; tools && i < tools->n; i++) {
        struct tool *tool = &tools->tools[i];
        for (int k = 0; k < tool->n_parameters; k++) mem_free(tool->parameters[k].name);
        mem_free(tool->parameters);
        mem_free(tool->name);
    }
    mem_free(tools);
}

static const struct tool *find(const struct tool_set *tools, const char *name) {
    for (int i = 0; i < tools->n; i++)
        if (strcmp(tools->tools[i].name, name) == 0) return &tools->tools[i];
    return NULL;
}

bool tool_set_has(const struct tool_set *tools, const char *name) {
    return !tools || find(tools, name) != NULL;
}

/* An unknown parameter of a known tool is a text, as in vLLM. */
int tool_set_types(const struct tool_set *tools, const char *name, const char *parameter) {
    const struct tool *tool = tools ? find(tools, name) : NULL;
    if (!tool) return ALL_TYPES;
    for (int i = 0; i < tool->n_parameters; i++)
        if (strcmp(tool->parameters[i].name, parameter) == 0) return tool->parameters[i].types;
    return 1 << JSON_STRING;
}
