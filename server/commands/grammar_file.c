/* Reads files that hold a schema, a regular expression or a grammar. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "server/app/app.h"
#include "server/commands/commands.h"

static bool ends_in(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Guesses the kind of a file from its name and, if the name ends in .json, from its content. */
static enum grammar_kind guess_kind(const char *path, const struct buf *text,
                                    enum grammar_kind otherwise) {
    if (ends_in(path, ".gbnf") || ends_in(path, ".ebnf") || ends_in(path, ".lark"))
        return GRAMMAR_GBNF;
    if (!ends_in(path, ".json")) return otherwise;
    struct json *json;
    enum grammar_kind kind = GRAMMAR_JSON_SCHEMA;
    if (json_parse(&json, "The file", text->data, text->length, NULL) == STATUS_OK) {
        if (json_is(json, JSON_ARRAY)) kind = GRAMMAR_CHOICE;
        if (json_is_text(json_member(json, "type"), "structural_tag"))
            kind = GRAMMAR_STRUCTURAL_TAG;
        json_free(json);
    }
    return kind;
}

static enum grammar_kind kind_of(enum grammar_file file, const char *path, const struct buf *text,
                                 enum grammar_kind otherwise) {
    switch (file) {
    case GRAMMAR_FILE_OBJECT:
        return GRAMMAR_JSON_OBJECT;
    case GRAMMAR_FILE_SCHEMA:
        return GRAMMAR_JSON_SCHEMA;
    case GRAMMAR_FILE_REGEX:
        return GRAMMAR_REGEX;
    case GRAMMAR_FILE_CHOICE:
        return GRAMMAR_CHOICE;
    case GRAMMAR_FILE_GRAMMAR:
        return GRAMMAR_GBNF;
    case GRAMMAR_FILE_TAG:
        return GRAMMAR_STRUCTURAL_TAG;
    case GRAMMAR_FILE_AUTO:
        break;
    }
    return guess_kind(path, text, otherwise);
}

int grammar_file_read(const char *path, enum grammar_file file, enum grammar_kind otherwise,
                      struct buf *text, enum grammar_kind *kind) {
    assert(path && kind);
    FILE *stream = fopen(path, "rb");
    char part[65536];
    size_t n = 1;
    buf_puts(text, "");
    while (stream && (n = fread(part, 1, sizeof part, stream)) > 0) buf_add(text, part, n);
    bool failed = !stream || ferror(stream);
    if (failed) print_failure("%s: %s", path, strerror(errno));
    if (stream) fclose(stream);
    *kind = kind_of(file, path, text, otherwise);
    bool has_end = text->length > 0 && text->data[text->length - 1] == '\n';
    if (*kind == GRAMMAR_REGEX && has_end) text->length--; /* an editor adds it */
    return failed ? 1 : 0;
}
