/* `penstock grammar`: matches texts against a grammar, without a model or tokens. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "engine/grammar/grammar.h"
#include "server/app/app.h"
#include "server/commands/commands.h"
#include "server/json/json.h"

/* Matches one line of the input and prints the result. */
static int check_line(struct grammar *grammar, const char *line, size_t n, int number) {
    assert(number > 0);
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
    size_t accepted = grammar_match(grammar, json_text(json), json_length(json), &may_end);
    if (accepted == json_length(json) && may_end)
        printf("{\"accepted\": true}\n");
    else if (accepted == json_length(json))
        printf("{\"accepted\": false, \"byte\": %zu, \"reason\": \"the text ends too early\"}\n",
               accepted);
    else
        printf("{\"accepted\": false, \"byte\": %zu, \"reason\": \"this byte is not allowed\"}\n",
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

int command_grammar(struct options *options) {
    struct buf text = {0};
    struct grammar *grammar;
    struct err err;
    if (options->n_arguments == 0) {
        print_failure("grammar needs a FILE that holds a schema, a regex or a grammar");
        return 2;
    }
    const char *path = options->arguments[0];
    enum grammar_kind kind;
    int code = grammar_file_read(path, options->grammar_file, GRAMMAR_REGEX, &text, &kind);
    if (code == 0) {
        const struct grammar_limits limits = {.open_objects = options->api.open_objects};
        if (grammar_compile(kind, text.data, text.length, &limits, &grammar, &err)) {
            code = print_error(&err);
        } else {
            code = check_lines(grammar);
            grammar_release(grammar);
        }
    }
    buf_free(&text);
    return code;
}
