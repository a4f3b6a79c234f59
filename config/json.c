/* Queries and changes the values of a JSON document. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"

bool json_is_text(const struct json *json, const char *text) {
    return json_is(json, JSON_STRING) && strcmp(json->string, text) == 0;
}

/* Returns the address of the pointer to a member; it holds NULL if the member is missing. */
static struct json **find_link(struct json **link, const char *name) {
    while (*link && strcmp((*link)->name, name) != 0) link = &(*link)->next;
    return link;
}

struct json *json_member(const struct json *object, const char *name) {
    if (!json_is(object, JSON_OBJECT)) return NULL;
    struct json *first = object->child;
    return *find_link(&first, name);
}

/* Unlinks the member at a link. Returns it. */
static struct json *cut_out(struct json *object, struct json **link) {
    struct json *member = *link;
    assert(object->n_children > 0);
    *link = member->next;
    object->n_children--;
    member->next = NULL;
    return member;
}

struct json *json_detach(struct json *object, const char *name) {
    if (!json_is(object, JSON_OBJECT)) return NULL;
    struct json **link = find_link(&object->child, name);
    return *link ? cut_out(object, link) : NULL;
}

void json_drop_first(struct json *array) {
    assert(json_is(array, JSON_ARRAY) && array->n_children > 0);
    json_free(cut_out(array, &array->child));
}

void json_drop_empty(struct json *object, const char *name) {
    assert(json_is(object, JSON_OBJECT));
    struct json **link = find_link(&object->child, name);
    while (*link) {
        bool is_array = json_is(*link, JSON_ARRAY), is_null = json_is(*link, JSON_NULL);
        if (is_null || (is_array && !(*link)->child))
            json_free(cut_out(object, link));
        else
            link = &(*link)->next;
        link = find_link(link, name);
    }
}

struct json json_made_number(double n) {
    bool is_integer = fabs(n) <= 9007199254740992.0 && n == floor(n);
    struct json made = {.type = JSON_NUMBER, .is_integer = is_integer, .number = n};
    if (is_integer) made.integer = (int64_t)n;
    return made;
}

void json_adopt(struct json *parent, struct json *child, char *name) {
    assert(json_is(parent, name ? JSON_OBJECT : JSON_ARRAY));
    struct json **link = &parent->child;
    while (*link) link = &(*link)->next;
    child->name = name;
    child->next = NULL;
    *link = child;
    parent->n_children++;
}

const char *json_type_name(const struct json *json) {
    static const char *const names[] = {
        [JSON_NULL] = "null",       [JSON_BOOL] = "a boolean", [JSON_NUMBER] = "a number",
        [JSON_STRING] = "a string", [JSON_ARRAY] = "an array", [JSON_OBJECT] = "an object"};
    assert(json->type <= JSON_OBJECT);
    return names[json->type];
}

/* Frees a value's content, but not its name. Recurses to the depth of the tree. */
static void free_content(struct json *json) {
    if (json->type == JSON_STRING) mem_free(json->string);
    if (json->type == JSON_NUMBER && json->is_large) mem_free(json->digits);
    json->is_large = false;
    for (struct json *child = json_first(json), *next; child; child = next) {
        next = child->next;
        json_free(child);
    }
}

void json_free(struct json *json) {
    if (!json) return;
    free_content(json);
    mem_free(json->name);
    mem_free(json);
}

void json_take(struct json *json, struct json *from) {
    char *name = json->name;
    struct json *next = json->next;
    assert(json != from && !from->next);
    free_content(json);
    mem_free(from->name);
    *json = *from;
    json->name = name;
    json->next = next;
    mem_free(from);
}

struct json *json_add_string(struct json *object, const char *name) {
    assert(json_is(object, JSON_OBJECT) && !json_member(object, name));
    struct json *member = mem_calloc(1, sizeof *member), **link = &object->child;
    member->name = mem_alloc(strlen(name) + 1);
    memcpy(member->name, name, strlen(name) + 1);
    member->type = JSON_STRING;
    member->string = mem_calloc(1, 1);
    while (*link) link = &(*link)->next;
    *link = member;
    object->n_children++;
    return member;
}

void json_set_string(struct json *json, char *string, size_t length) {
    assert(string && string[length] == 0);
    free_content(json);
    json->type = JSON_STRING;
    json->string = string;
    json->length = length;
}
