/* Schemas of tools, as grammars get them. */
#include <string.h>

#include "server/json/json.h"
#include "server/message/internal.h"

/* A grammar has a rule for each number of properties. This leaves room for other tools. */
#define MAX_HINT_COUNT 2000

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}

void schema_write(struct buf *out, const struct json *value, bool is_hint) {
    static const char *const values[] = {"const", "enum", "default", "example", "examples", NULL};
    bool is_object = json_is(value, JSON_OBJECT);
    const char *comma = "";
    if (!is_hint || (!is_object && !json_is(value, JSON_ARRAY))) {
        json_write_value(out, value);
        return;
    }
    buf_puts(out, is_object ? "{" : "[");
    json_each(member, value) {
        bool is_count = is_object && strcmp(member->name, "maxProperties") == 0;
        if (is_count && json_number(member) > MAX_HINT_COUNT) continue;
        buf_puts(out, comma);
        if (is_object) {
            json_write_string(out, member->name, strlen(member->name));
            buf_puts(out, ":");
        }
        schema_write(out, member, !is_object || !is_one_of(member->name, values));
        comma = ",";
    }
    buf_puts(out, is_object ? "}" : "]");
}
