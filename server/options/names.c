#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "server/options/table.h"

const struct command *command_find(const char *name) {
    for (int i = 0; i < command_count; i++) {
        if (strcmp(command_table[i].name, name) == 0) return &command_table[i];
    }
    return NULL;
}

/* Are they equal if '_' equals '-'? */
static bool same_name(const char *option, const char *name, size_t length) {
    if (strlen(option) != length) return false;
    for (size_t i = 0; i < length; i++) {
        if (option[i] != (name[i] == '_' ? '-' : name[i])) return false;
    }
    return true;
}

int option_find(const char *name, size_t length, bool *negated) {
    *negated = false;
    for (int i = 0; i < option_count; i++) {
        if (same_name(option_table[i].name, name, length)) return i;
    }
    if (length < 4 || !same_name("no-", name, 3)) return -1;
    *negated = true;
    for (int i = 0; i < option_count; i++) {
        if (option_table[i].type != OPTION_BOOL) continue;
        if (same_name(option_table[i].name, name + 3, length - 3)) return i;
    }
    return -1;
}

int option_find_letter(char letter, unsigned command) {
    static const struct {
        char letter;
        const char *name;
    } letters[] = {{'i', "input-file"}, {'o', "output-file"}};
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
        bool negated;
        if (letters[i].letter != letter) continue;
        int index = option_find(letters[i].name, strlen(letters[i].name), &negated);
        assert(index >= 0 && !negated);
        return option_table[index].commands & command ? index : -1;
    }
    return -1;
}

void option_flag(const struct option *option, struct buf *out) {
    assert(option->type != OPTION_BOOL || option->fallback);
    bool on = option->type == OPTION_BOOL && strcmp(option->fallback, "true") == 0;
    buf_printf(out, "--%s%s", on ? "no-" : "", option->name);
}

void option_placeholder(const struct option *option, struct buf *out) {
    if (option->metavar) buf_puts(out, option->metavar);
    for (const struct named_value *at = option->names; at && at->name; at++)
        buf_printf(out, "%s%s", at > option->names ? "|" : "", at->name);
}

void option_variable(const struct option *option, struct buf *out) {
    buf_puts(out, "PENSTOCK_");
    for (const char *at = option->name; *at; at++) {
        char c = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
        buf_add(out, &c, 1);
    }
}

void options_message(const char *message, struct buf *out) {
    buf_puts(out, "");
    for (const char *at = message; *at;) {
        size_t plain = strcspn(at, "{");
        buf_add(out, at, plain);
        at += plain;
        if (!*at) break;
        size_t length = strcspn(at + 1, "}");
        bool negated, closes = at[1 + length] == '}';
        bool is_setting = closes && option_find(at + 1, length, &negated) >= 0;
        buf_puts(out, is_setting ? "--" : "{");
        at++;
        if (!is_setting) continue;
        buf_add(out, at, length);
        at += length + 1;
    }
}

/* ---- similar names -------------------------------------------------------------------------- */

#define MAX_NAME_BYTES 48

/* Returns the number of edits (insert, delete, replace a byte) that change `a` to b[n]. Wagner and
 * Fischer (1974), one row at a time. */
static int distance(const char *a, const char *b, size_t n) {
    int row[MAX_NAME_BYTES + 1];
    assert(n <= MAX_NAME_BYTES);
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int replaced = diagonal + (a[i - 1] != (b[j - 1] == '_' ? '-' : b[j - 1]));
            diagonal = row[j];
            row[j] = min_int(replaced, min_int(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

/* Returns the distance of `name` from `candidate`. A prefix or suffix, like "model-len" of
 * "max-model-len", has distance 1. */
static int difference(const char *candidate, const char *name, size_t length) {
    size_t whole = strlen(candidate);
    if (length >= 4 && length < whole) {
        if (memcmp(candidate, name, length) == 0) return 1;
        if (memcmp(candidate + whole - length, name, length) == 0) return 1;
    }
    return distance(candidate, name, length);
}

/* Returns the maximum number of edits in a misspelt name: about a third of its length. */
static int max_edits(size_t length) {
    return length < 6 ? 2 : (int)(length / 3);
}

const char *option_nearest(const char *name, size_t length, unsigned commands) {
    if (length == 0 || length > MAX_NAME_BYTES) return NULL;
    int best = max_edits(length) + 1;
    const char *nearest = NULL;
    for (int i = 0; i < option_count; i++) {
        if (!(option_table[i].commands & commands)) continue;
        int edits = difference(option_table[i].name, name, length);
        if (edits < best) {
            best = edits;
            nearest = option_table[i].name;
        }
    }
    return nearest;
}

const char *command_nearest(const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > MAX_NAME_BYTES) return NULL;
    int best = max_edits(length) + 1;
    const char *nearest = NULL;
    for (int i = 0; i < command_count; i++) {
        int edits = distance(command_table[i].name, name, length);
        if (edits < best) {
            best = edits;
            nearest = command_table[i].name;
        }
    }
    return nearest;
}
