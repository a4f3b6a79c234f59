/* Writes, reads and compares origins, by one table of their members. */
#include <stddef.h>
#include <stdio.h>

#include "server/json/json.h"
#include "server/receipts/origin.h"

struct member {
    const char *name;
    size_t offset;
    size_t size;       /* of a text, with its NUL; 0: an int */
    bool may_be_empty; /* "" is written as null */
    bool is_told;      /* it does not affect bytes */
};

#define TEXT(field) #field, offsetof(struct origin, field), sizeof((struct origin *)0)->field
#define NUMBER(field) #field, offsetof(struct origin, field), 0

/* In the order of their names, as canonical JSON has them. */
static const struct member members[] = {
    {TEXT(adapter), .may_be_empty = true},
    {NUMBER(arithmetic)},
    {TEXT(build), .is_told = true},
    {TEXT(device)},
    {TEXT(dtype)},
    {TEXT(kv_cache)},
    {TEXT(model)},
    {TEXT(quantization)},
    {NUMBER(ranks)},
    {TEXT(weights)},
};

#define N_MEMBERS (sizeof members / sizeof *members)

void origin_write(struct buf *out, const struct origin *origin) {
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const char *at = (const char *)origin + members[i].offset;
        buf_printf(out, "%s\"%s\":", i > 0 ? "," : "{", members[i].name);
        if (members[i].size == 0)
            json_write_int(out, *(const int *)(const void *)at);
        else if (members[i].may_be_empty && !*at)
            buf_puts(out, "null");
        else
            json_write_string(out, at, strlen(at));
    }
    buf_puts(out, "}");
}

static bool read_member(struct origin *out, const struct member *member, const struct json *value) {
    char *at = (char *)out + member->offset;
    int64_t n = json_integer(value);
    if (member->size == 0) {
        if (!json_is_integer(value) || n < 0 || n > INT32_MAX) return false;
        *(int *)(void *)at = (int)n;
        return true;
    }
    if (member->may_be_empty && json_is(value, JSON_NULL)) return true;
    if (!json_is(value, JSON_STRING) || json_length(value) >= member->size) return false;
    if (strlen(json_text(value)) != json_length(value)) return false; /* it holds a NUL */
    memcpy(at, json_text(value), json_length(value));
    return *at || !member->may_be_empty;
}

bool origin_read(struct origin *out, const struct json *json) {
    *out = (struct origin){0};
    for (size_t i = 0; i < N_MEMBERS; i++)
        if (!read_member(out, &members[i], json_member(json, members[i].name))) return false;
    return (size_t)json_count(json) == N_MEMBERS;
}

static void show(char out[HASH_DIGITS + 1], const struct member *member, const void *at) {
    if (member->size == 0)
        snprintf(out, HASH_DIGITS + 1, "%d", *(const int *)at);
    else
        snprintf(out, HASH_DIGITS + 1, "%s", *(const char *)at ? (const char *)at : "none");
}

const char *origin_difference(const struct origin *x, const struct origin *y,
                              char a[HASH_DIGITS + 1], char b[HASH_DIGITS + 1]) {
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const struct member *member = &members[i];
        const char *in_x = (const char *)x + member->offset;
        const char *in_y = (const char *)y + member->offset;
        bool same = member->size == 0
                        ? *(const int *)(const void *)in_x == *(const int *)(const void *)in_y
                        : strcmp(in_x, in_y) == 0;
        if (same || member->is_told) continue;
        show(a, member, in_x);
        show(b, member, in_y);
        return member->name;
    }
    return NULL;
}
