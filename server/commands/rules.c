/* Flags of `penstock run` that constrain answers and define where they stop. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "server/commands/console.h"
#include "server/generation/grammar_store.h"

/* ---- the flags ------------------------------------------------------------------------------ */

/* Prints why a flag's value cannot be applied. Returns the exit code. */
static int refuse(const char *flag, const struct err *why) {
    print_failure("--%s cannot be enforced: %s", flag, why->message);
    return 2;
}

static int compile(struct rules *rules, const char *flag, enum grammar_kind kind,
                   const struct buf *text) {
    struct err err;
    const struct grammar_limits limits = {.open_objects = rules->open_objects};
    if (grammar_compile(kind, text->data, text->length, &limits, &rules->grammar, &err) ==
        STATUS_OK)
        return 0;
    return refuse(flag, &err);
}

/* Reads a schema from the value, or from a file that it names. */
static int read_schema(struct rules *rules, const char *value) {
    struct buf text = {0};
    enum grammar_kind kind;
    int code = 0;
    if (value[strspn(value, " \t\n")] == '{')
        buf_puts(&text, value);
    else
        code = grammar_file_read(value, GRAMMAR_FILE_SCHEMA, GRAMMAR_JSON_SCHEMA, &text, &kind);
    if (code == 0) code = compile(rules, "json-schema", GRAMMAR_JSON_SCHEMA, &text);
    buf_free(&text);
    return code;
}

static int read_grammar(struct rules *rules, const char *path) {
    struct buf text = {0};
    enum grammar_kind kind;
    int code = grammar_file_read(path, GRAMMAR_FILE_AUTO, GRAMMAR_GBNF, &text, &kind);
    if (code == 0) code = compile(rules, "grammar-file", kind, &text);
    buf_free(&text);
    return code;
}

static int read_regex(struct rules *rules, const char *value) {
    struct buf text = {0};
    buf_puts(&text, value);
    int code = compile(rules, "regex", GRAMMAR_REGEX, &text);
    buf_free(&text);
    return code;
}

static int read_stop(struct rules *rules, const char *value) {
    struct err err;
    rules->stop = (struct api_text){value, strlen(value)};
    rules->request = (struct api_request){.n_stop_regexes = 1, .stop_regexes = &rules->stop};
    if (stop_searches_get(NULL, &rules->request, "--stop-regex", &rules->searches, &err) ==
        CLAIM_READY)
        return 0;
    print_failure("%s", err.message);
    return 2;
}

int rules_read(struct rules *rules, const struct options *options) {
    const char *const given[] = {options->run.grammar_path, options->run.json_schema,
                                 options->run.regex};
    int n = 0, code = 0;
    assert(!rules->grammar && !rules->searches);
    for (int i = 0; i < 3; i++) n += given[i] != NULL;
    if (n > 1) {
        print_failure(
            "--grammar-file, --json-schema and --regex each constrain the answer; give only one");
        return 2;
    }
    rules->open_objects = options->api.open_objects;
    if (options->run.grammar_path) code = read_grammar(rules, options->run.grammar_path);
    if (options->run.json_schema) code = read_schema(rules, options->run.json_schema);
    if (options->run.regex) code = read_regex(rules, options->run.regex);
    if (code == 0 && options->run.stop_regex) code = read_stop(rules, options->run.stop_regex);
    return code;
}

/* ---- an opened model ------------------------------------------------------------------------ */

void rules_open(struct rules *rules, const struct engine *engine) {
    size_t length = 0;
    const struct chat_template *chat = engine_chat_template(engine, false);
    const char *source = chat ? chat_template_source(chat, &length) : "";
    if (!rules->grammar) return;
    assert(!rules->store);
    rules->store = grammar_store_new(engine, engine_model(engine)->V, 0, 0);
    rules->vocabulary = grammar_store_vocabulary(rules->store, NULL, NULL);
    rules->reasoning = reasoning_format_of_template(source, length);
}

void rules_close(struct rules *rules) {
    grammar_release(rules->grammar);
    grammar_store_free(rules->store);
    stop_searches_free(rules->searches, rules->request.n_stop_regexes);
}
