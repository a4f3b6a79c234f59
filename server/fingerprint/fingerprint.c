/* Writes, reads and compares fingerprints, by one table of their members. */
#include "server/fingerprint/fingerprint.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "server/json/json.h"

enum {
    R = FINGERPRINT_RECEIPT,
    P = FINGERPRINT_PROMISE,
    B = FINGERPRINT_BLOCKS,
    S = FINGERPRINT_SYSTEM,
};

struct member {
    const char *name;
    size_t offset;
    size_t size;       /* of a text, with its NUL; 0: an int */
    int views;         /* of enum fingerprint_view */
    const char *words; /* for people */
    bool may_be_empty; /* "" is written as null */
    bool is_told;      /* a receipt has it, and a difference does not count there */
};

#define TEXT(field)                                                                                \
#field, offsetof(struct fingerprint, field), sizeof((struct fingerprint *)0)->field
#define NUMBER(field) #field, offsetof(struct fingerprint, field), 0

/* In the order of their names, as canonical JSON has them. */
// clang-format off
static const struct member members[] = {
    {TEXT(adapter),      R | P | S,     "the adapter", .may_be_empty = true},
    {NUMBER(arithmetic), R | P | B | S, "the version of the arithmetic"},
    {NUMBER(block_size), P | B,         "--block-size"},
    {TEXT(build),        R | P | B,     "the build", .is_told = true},
    {TEXT(defaults),     P | S,         "the sampling defaults"},
    {TEXT(device),       R | P | B | S, "the device"},
    {TEXT(dtype),        R | P | B | S, "--dtype"},
    {TEXT(kernels),      P | B | S,     "the kind of GPU or its kernels", .may_be_empty = true},
    {TEXT(kv_cache),     R | P | B | S, "the type of the KV cache"},
    {NUMBER(length),     P | B | S,     "--max-model-len"},
    {TEXT(model),        R,             "the model"},
    {TEXT(name),         P,             "--served-model-name"},
    {NUMBER(pooling),    P | B | S,     "--pooling"},
    {TEXT(quantization), R | P | B | S, "--quantization"},
    {NUMBER(ranks),      R | P | B | S, "the number of ranks"},
    {TEXT(shape),        P | B | S,     "the model"},
    {TEXT(stamp),        P | B,         "the model's file"},
    {TEXT(template),     P | S,
     "the chat template, the words of questions, or a parser of answers"},
    {TEXT(weights),      R | P | B | S, "the type of the weights"},
};
// clang-format on

#define N_MEMBERS (sizeof members / sizeof *members)

static int number_at(const void *at) {
    return *(const int *)at;
}

/* ---- as JSON -------------------------------------------------------------------------------- */

static void write_member(struct buf *out, const struct member *member, const char *at) {
    if (member->size == 0)
        json_write_int(out, number_at(at));
    else if (member->may_be_empty && !*at)
        buf_puts(out, "null");
    else
        json_write_string(out, at, strlen(at));
}

void fingerprint_write(struct buf *out, const struct fingerprint *fingerprint,
                       enum fingerprint_view view) {
    const char *before = "{";
    for (size_t i = 0; i < N_MEMBERS; i++) {
        if (!(members[i].views & (int)view)) continue;
        assert(i == 0 || strcmp(members[i - 1].name, members[i].name) < 0);
        buf_printf(out, "%s\"%s\":", before, members[i].name);
        write_member(out, &members[i], (const char *)fingerprint + members[i].offset);
        before = ",";
    }
    buf_puts(out, "}");
}

static bool read_member(struct fingerprint *out, const struct member *member,
                        const struct json *value) {
    char *at = (char *)out + member->offset;
    int64_t n = json_integer(value);
    if (member->size == 0) {
        if (!json_is_integer(value) || n < 0 || n > INT32_MAX) return false;
        *(int *)(void *)at = (int)n;
        return true;
    }
    if (member->may_be_empty && json_is(value, JSON_NULL)) return true;
    if (!json_is(value, JSON_STRING) || json_length(value) >= member->size) return false;
    if (!is_printable(json_text(value), json_length(value))) return false; /* it is shown */
    memcpy(at, json_text(value), json_length(value));
    return *at || !member->may_be_empty;
}

bool fingerprint_read(struct fingerprint *out, const struct json *json,
                      enum fingerprint_view view) {
    int n = 0;
    *out = (struct fingerprint){0};
    for (size_t i = 0; i < N_MEMBERS; i++) {
        if (!(members[i].views & (int)view)) continue;
        if (!read_member(out, &members[i], json_member(json, members[i].name))) return false;
        n++;
    }
    return json_count(json) == n;
}

bool fingerprint_parse(struct fingerprint *out, const char *text, size_t length,
                       enum fingerprint_view view) {
    struct json *json;
    if (json_parse(&json, "The fingerprint", text, length, NULL)) return false;
    bool is_read = fingerprint_read(out, json, view);
    json_free(json);
    return is_read;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static void show(char out[HASH_DIGITS + 1], const struct member *member, const char *at) {
    if (member->size == 0)
        snprintf(out, HASH_DIGITS + 1, "%d", number_at(at));
    else
        snprintf(out, HASH_DIGITS + 1, "%.*s", HASH_DIGITS, *at ? at : "none");
}

bool fingerprint_differs(const struct fingerprint *x, const struct fingerprint *y,
                         enum fingerprint_view view, struct fingerprint_difference *out) {
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const struct member *member = &members[i];
        const char *a = (const char *)x + member->offset, *b = (const char *)y + member->offset;
        bool counts =
            (member->views & (int)view) && !(member->is_told && view == FINGERPRINT_RECEIPT);
        bool is_same = member->size == 0 ? number_at(a) == number_at(b) : strcmp(a, b) == 0;
        if (!counts || is_same) continue;
        out->name = member->name;
        out->words = member->words;
        show(out->a, member, a);
        show(out->b, member, b);
        return true;
    }
    return false;
}

/* ---- system_fingerprint --------------------------------------------------------------------- */

void fingerprint_write_system(char out[FINGERPRINT_SYSTEM_BYTES],
                              const struct fingerprint *fingerprint) {
    struct buf view = {0};
    fingerprint_write(&view, fingerprint, FINGERPRINT_SYSTEM);
    unsigned long long hash = (unsigned long long)XXH3_64bits(view.data, view.length);
    buf_free(&view);
    snprintf(out, FINGERPRINT_SYSTEM_BYTES, "penstock-%.16s-%012llx", build_info().version,
             hash >> 16);
}
