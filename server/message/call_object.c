/* A call that is one JSON object: {"name": "f", "arguments": {...}}. The members may be in any
 * order. Other members, such as ids and types, are skipped. The arguments are the member
 * "arguments", "parameters" or "args": an object or null.
 *
 * A strict object is a call only if it begins with its name and arguments, as the grammar writes
 * them. */
#include <string.h>

#include "server/message/internal.h"

enum state { OPEN, KEY_OR_END, KEY, IN_KEY, COLON, FIRST, NAME, VALUE, COMMA_OR_END };
enum member { NAME_MEMBER, ARGUMENTS_MEMBER, OTHER_MEMBER };

static enum member member_of(const struct name *key) {
    static const char *const arguments[] = {"arguments", "parameters", "args"};
    if (strcmp(key->text, "name") == 0) return NAME_MEMBER;
    for (int i = 0; i < 3; i++)
        if (strcmp(key->text, arguments[i]) == 0) return ARGUMENTS_MEMBER;
    return OTHER_MEMBER;
}

/* Can the member be part of a strict call? Only a type and the name may precede the arguments, in
 * this order, so any other object stays a text. */
static bool is_in_order(const struct call_object *object, char c) {
    const char *key = object->key.text;
    if (object->has_arguments) return true;
    if (object->has_name)
        return c == '{' && strcmp(key, "args") != 0 && member_of(&object->key) == ARGUMENTS_MEMBER;
    if (object->member == NAME_MEMBER) return true;
    return strcmp(key, "type") == 0 && c == '"' && !object->has_type;
}

/* Called with the first byte of a value, after its key is known. */
static enum reading begin_value(struct call_object *object, char c) {
    object->member = member_of(&object->key);
    object->value = (struct json_scan){0};
    if (object->is_strict && !is_in_order(object, c)) return READ_BROKEN;
    object->has_type = true;
    if (object->member == NAME_MEMBER) {
        bool right = c == '"' && !object->has_name;
        object->state = NAME;
        return right ? READ_MORE : READ_BROKEN;
    }
    bool repeated = object->member == ARGUMENTS_MEMBER && object->has_arguments;
    bool wrong = object->member == ARGUMENTS_MEMBER && c != '{' && c != 'n';
    object->has_arguments |= object->member == ARGUMENTS_MEMBER;
    if (c == 'n') object->member = OTHER_MEMBER; /* null adds no arguments */
    object->state = VALUE;
    return repeated || wrong ? READ_BROKEN : READ_MORE;
}

/* Adds a byte of a value other than the name. */
static enum reading add_to_value(struct call_object *object, char c, struct buf *arguments) {
    enum reading reading = json_scan_add(&object->value, c);
    bool taken = reading == READ_MORE || reading == READ_DONE;
    if (taken && object->member == ARGUMENTS_MEMBER) buf_add(arguments, &c, 1);
    if (reading == READ_BROKEN || reading == READ_MORE) return reading;
    object->state = COMMA_OR_END;
    return reading == READ_DONE ? READ_MORE : READ_BEFORE;
}

static enum reading add_to_name(struct call_object *object, char c, struct name *name) {
    if (c == '"') {
        object->has_name = true;
        object->state = COMMA_OR_END;
        return READ_MORE;
    }
    return is_name_byte(c) && name_add(name, c) ? READ_MORE : READ_BROKEN;
}

static enum reading add_to_key(struct call_object *object, char c) {
    bool wrong = c == '\\' || (unsigned char)c < 0x20 || (c != '"' && !name_add(&object->key, c));
    if (c == '"') object->state = COLON;
    return wrong ? READ_BROKEN : READ_MORE;
}

static bool is_call(const struct call_object *object) {
    return object->has_name && (object->has_arguments || !object->is_strict);
}

/* Adds a byte between names and values. */
static enum reading add_between(struct call_object *object, char c) {
    if (is_space(c)) return READ_MORE;
    switch ((enum state)object->state) {
    case OPEN:
        object->state = KEY_OR_END;
        return c == '{' ? READ_MORE : READ_BROKEN;
    case KEY_OR_END:
    case KEY:
        object->key = (struct name){0};
        object->state = IN_KEY;
        return c == '"' ? READ_MORE : READ_BROKEN; /* an empty object names no tool */
    case COLON:
        object->state = FIRST;
        return c == ':' ? READ_MORE : READ_BROKEN;
    default:
        object->state = KEY;
        if (c == '}') return is_call(object) ? READ_DONE : READ_BROKEN;
        return c == ',' ? READ_MORE : READ_BROKEN;
    }
}

enum reading call_object_add(struct call_object *object, char c, struct name *name,
                             struct buf *arguments) {
    if (object->state == IN_KEY) return add_to_key(object, c);
    if (object->state == NAME) return add_to_name(object, c, name);
    if (object->state == FIRST && !is_space(c) && begin_value(object, c) == READ_BROKEN)
        return READ_BROKEN;
    if (object->state == NAME) return READ_MORE;
    if (object->state != VALUE) return add_between(object, c);
    enum reading reading = add_to_value(object, c, arguments);
    return reading == READ_BEFORE ? add_between(object, c) : reading;
}
