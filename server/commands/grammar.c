/* `penstock grammar`: holds texts against a grammar, with neither a model nor tokens. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "engine/grammar/grammar.h"
#include "server/app.h"
#include "server/commands/commands.h"
#include "server/json/json.h"

static bool ends_in(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* What a file holds by its name, and if that ends in .json by its content. */
static enum grammar_kind guess_kind(const char *path, const struct buf *text) {
    if (ends_in(path, ".gbnf") || ends_in(path, ".ebnf") || ends_in(path, ".lark"))
        return GRAMMAR_GBNF;
    if (!ends_in(path, ".json")) return GRAMMAR_REGEX;
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

static enum grammar_kind kind_of(enum grammar_file file, const char *path, const struct buf *text) {
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
    return guess_kind(path, text);
}

static int read_file(const char *path, struct buf *text) {
    FILE *file = fopen(path, "rb");
    char part[65536];
    size_t n = 1;
    buf_puts(text, "");
    while (file && (n = fread(part, 1, sizeof part, file)) > 0) buf_add(text, part, n);
    bool failed = !file || ferror(file);
    if (failed) print_failure("%s: %s", path, strerror(errno));
    if (file) fclose(file);
    return failed;
}

/* Prints what becomes of one line of the input. */
static int check_line(struct grammar *grammar, const char *line, size_t n, int number) {
    struct json *json;
    struct err err;
    char what[32];
    snprintf(what, sizeof what, "line %d", number);
    if (json_parse(&json, what, line, n, &err)) return print_error(&err);
    if (!json_is(json, JSON_STRING)) {
        print_failure("line %d is %s; it must be a JSON string", number, json_type_name(json));
        json_free(json);
        return 2;
    }
    bool may_end;
    size_t accepted = grammar_match(grammar, json->string, json->length, &may_end);
    if (accepted == json->length && may_end)
        printf("{\"accepted\": true}\n");
    else if (accepted == json->length)
        printf("{\"accepted\": false, \"byte\": %zu, \"reason\": \"it ends too early\"}\n",
               accepted);
    else
        printf("{\"accepted\": false, \"byte\": %zu, \"reason\": \"this byte may not come\"}\n",
               accepted);
    json_free(json);
    return 0;
}

static int check_lines(struct grammar *grammar) {
    struct buf input = {0};
    int code = read_input(&input), number = 1;
    for (size_t at = 0; code == 0 && at < input.length; number++) {
        const char *end = memchr(input.data + at, '\n', input.length - at);
        size_t n = end ? (size_t)(end - input.data) - at : input.length - at;
        if (n > 0) code = check_line(grammar, input.data + at, n, number);
        at += n + 1;
    }
    buf_free(&input);
    return code;
}

int command_grammar(const struct options *options) {
    struct buf text = {0};
    struct grammar *grammar;
    struct err err;
    if (options->n_arguments == 0) {
        print_failure("grammar needs a FILE that holds a schema, a regex or a grammar");
        return 2;
    }
    const char *path = options->arguments[0];
    int code = read_file(path, &text);
    if (code == 0) {
        enum grammar_kind kind = kind_of(options->grammar_file, path, &text);
        if (kind == GRAMMAR_REGEX && text.length > 0 && text.data[text.length - 1] == '\n')
            text.length--; /* the editor's, which no pattern means */
        if (grammar_compile(kind, text.data, text.length, NULL, &grammar, &err)) {
            code = print_error(&err);
        } else {
            code = check_lines(grammar);
            grammar_release(grammar);
        }
    }
    buf_free(&text);
    return code;
}
