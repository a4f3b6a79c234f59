/* The tools of a request, as parsers need them. The request's JSON is freed earlier, so names and
 * types are copied. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/message/internal.h"

#define MAX_SCHEMA_DEPTH 16

struct parameter {
    char *name; /* NULL: an item of an array */
    int types;
    bool is_inner, is_string; /* inside of another one; its type is "string" */
    int n_inner;
    struct parameter *inner; /* members, or one item */
};

struct tool {
    char *name;
    bool is_strict;
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

/* ---- parameters ----------------------------------------------------------------------------- */

static void read_parameter(struct parameter *out, const struct json *schema, int depth);

/* Returns the schemas of an object's members. The caller frees them. */
static struct parameter *read_members(const struct json *properties, int depth, int *n) {
    struct parameter *members = mem_calloc((size_t)json_count(properties) + 1, sizeof *members);
    json_each_member(property, properties) {
        struct parameter *member = &members[(*n)++];
        member->name = mem_strdup(property->name);
        member->is_inner = depth > 0;
        read_parameter(member, property, depth);
    }
    return members;
}

static void read_parameter(struct parameter *out, const struct json *schema, int depth) {
    const struct json *properties = json_member(schema, "properties");
    const struct json *items = json_member(schema, "items");
    out->types = schema_types(schema);
    out->is_string = json_is_text(json_member(schema, "type"), "string");
    if (depth >= MAX_SCHEMA_DEPTH) return;
    if (json_is(properties, JSON_OBJECT)) {
        out->inner = read_members(properties, depth + 1, &out->n_inner);
    } else if (json_is(items, JSON_OBJECT)) {
        out->inner = mem_calloc(1, sizeof *out->inner);
        out->n_inner = 1;
        out->inner->is_inner = true;
        read_parameter(out->inner, items, depth + 1);
    }
}

static void free_parameters(struct parameter *parameters, int n) {
    for (int i = 0; i < n; i++) {
        free_parameters(parameters[i].inner, parameters[i].n_inner);
        mem_free(parameters[i].name);
    }
    mem_free(parameters);
}

const struct parameter *parameter_child(const struct parameter *parent, const char *name) {
    for (int i = 0; parent && i < parent->n_inner; i++) {
        const char *own = parent->inner[i].name;
        if (name ? own && strcmp(own, name) == 0 : !own) return &parent->inner[i];
    }
    return NULL;
}

int parameter_types(const struct parameter *parameter) {
    return parameter ? parameter->types : ALL_TYPES;
}

bool parameter_is_text(const struct parameter *parameter) {
    if (!parameter) return false;
    return parameter->is_inner ? parameter->is_string : parameter->types == 1 << JSON_STRING;
}

static void add_tool(struct tool *tool, const struct json *function) {
    const struct json *properties = json_member(json_member(function, "parameters"), "properties");
    tool->name = mem_strdup(json_text(json_member(function, "name")));
    tool->is_strict = json_true(json_member(function, "strict"));
    if (!json_is(properties, JSON_OBJECT)) return;
    tool->parameters = read_members(properties, 0, &tool->n_parameters);
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
        free_parameters(tool->parameters, tool->n_parameters);
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

bool tool_set_is_strict(const struct tool_set *tools, const char *name) {
    const struct tool *tool = tools ? find(tools, name) : NULL;
    return tool && tool->is_strict;
}

const struct parameter *tool_set_parameter(const struct tool_set *tools, const char *name,
                                           const char *parameter) {
    const struct tool *tool = tools ? find(tools, name) : NULL;
    for (int i = 0; tool && i < tool->n_parameters; i++)
        if (strcmp(tool->parameters[i].name, parameter) == 0) return &tool->parameters[i];
    return NULL;
}

/* An unknown parameter of a known tool is a text, as in vLLM. */
int tool_set_types(const struct tool_set *tools, const char *name, const char *parameter) {
    const struct tool *tool = tools ? find(tools, name) : NULL;
    if (!tool) return ALL_TYPES;
    const struct parameter *own = tool_set_parameter(tools, name, parameter);
    return own ? own->types : 1 << JSON_STRING;
}
