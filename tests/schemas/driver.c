/* Matches texts with grammars and draws texts from them, for tests/schemas and bench/grammar.py:
 * `build/schema_driver VOCABULARY`.
 *
 * VOCABULARY has one line per token: its bytes in hexadecimal. A line of standard input is a task,
 * a line of standard output its result:
 *     {"kind": "json_schema", "text": SCHEMA, "texts": [TEXT, ...], "draws": 4, "max_tokens": 200,
 *      "seed": 1, "times": false}
 *     {"error": SENTENCE}  or  {"accepted": [bool, ...], "drawn": [TEXT or null, ...]}
 * A text that is accepted byte by byte must also be accepted in random tokens, each allowed by the
 * mask before it; otherwise the program ends with an error. A drawn text consists of random tokens
 * of each mask, and is null if it has not ended after max_tokens. With "times", the result also has
 * microseconds of this thread's processor time: to compile up to the first mask, for the first
 * visit of each mask, and for the second one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/grammar/grammar.h"
#include "engine/grammar/run/automaton.h"
#include "server/json/json.h"

struct driver {
    struct vocabulary *vocabulary;
    char **tokens;
    int *lengths;
    int V, max;
    int of_byte[256]; /* the token of that one byte */
    uint32_t *mask;
    uint64_t seed;
    bool has_times;
    struct buf first, again; /* times of masks */
};

struct task {
    const struct json *texts;
    int draws, max_tokens;
    struct grammar *grammar;
};

static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int draw(struct driver *d, int n) {
    d->seed = d->seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((d->seed >> 33) % (uint64_t)n);
}

static _Noreturn void give_up(const char *problem, const char *text) {
    fprintf(stderr, "schema_driver: %s: %s\n", problem, text);
    exit(1);
}

/* ---- the vocabulary ------------------------------------------------------------------------- */

static void add_token(struct driver *d, const char *line, size_t n) {
    if (d->V == d->max) {
        d->max = d->max ? 2 * d->max : 1024;
        d->tokens = mem_realloc(d->tokens, (size_t)d->max * sizeof *d->tokens);
        d->lengths = mem_realloc(d->lengths, (size_t)d->max * sizeof *d->lengths);
    }
    char *bytes = d->tokens[d->V] = mem_alloc(n / 2 + 1);
    for (size_t i = 0; i + 1 < n; i += 2) {
        unsigned byte;
        if (sscanf(line + i, "%2x", &byte) != 1) give_up("no hexadecimal byte", line);
        bytes[i / 2] = (char)byte;
    }
    d->lengths[d->V] = (int)(n / 2);
    if (n == 2) d->of_byte[(uint8_t)bytes[0]] = d->V;
    d->V++;
}

static void read_vocabulary(struct driver *d, const char *path) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t max = 0;
    if (!file) give_up("cannot read", path);
    for (ssize_t n; (n = getline(&line, &max, file)) > 0;) add_token(d, line, (size_t)n - 1);
    free(line);
    fclose(file);
    for (int byte = 0; byte < 256; byte++) {
        if (d->of_byte[byte] < 0) give_up("a byte lacks its token", path);
    }
    double began = cpu_us();
    d->vocabulary = vocabulary_new((const char *const *)d->tokens, d->lengths, d->V);
    fprintf(stderr, "trie %.0f us\n", cpu_us() - began);
    d->mask = mem_alloc(((size_t)d->V / 32 + 1) * sizeof *d->mask);
}

/* ---- walking -------------------------------------------------------------------------------- */

static bool is_in(const struct driver *d, int id) {
    return d->mask[id / 32] >> (id % 32) & 1;
}

static void find_mask(struct driver *d, struct matcher *matcher) {
    bool is_first = !matcher->states[matcher->n - 1]->mask;
    double began = d->has_times ? cpu_us() : 0;
    matcher_mask(matcher, d->mask);
    if (!d->has_times) return;
    double found = cpu_us();
    matcher_mask(matcher, d->mask);
    if (is_first) buf_printf(&d->first, "%s%.2f", d->first.length ? "," : "", found - began);
    buf_printf(&d->again, "%s%.2f", d->again.length ? "," : "", cpu_us() - found);
}

/* Returns a token that matches the next bytes of the text: the longest, or any. */
static int next_token(struct driver *d, const char *text, size_t n, bool longest) {
    int found = d->of_byte[(uint8_t)text[0]], seen = 1;
    for (int id = 0; id < d->V; id++) {
        size_t length = (size_t)d->lengths[id];
        if (length < 2 || length > n || memcmp(d->tokens[id], text, length) != 0) continue;
        if (longest ? d->lengths[id] > d->lengths[found] : draw(d, ++seen) == 0) found = id;
    }
    return found;
}

static void walk(struct driver *d, struct grammar *grammar, const char *text, size_t n,
                 bool longest) {
    struct matcher *matcher = matcher_new(grammar, d->vocabulary);
    for (size_t at = 0; at < n;) {
        int id = next_token(d, text + at, n - at, longest);
        find_mask(d, matcher);
        if (!is_in(d, id)) give_up("a token of an accepted text is not in its mask", text);
        if (!matcher_accept(matcher, id)) give_up("a token of a mask is not accepted", text);
        at += (size_t)d->lengths[id];
    }
    find_mask(d, matcher);
    if (!matcher_may_end(matcher)) give_up("an accepted text may not end", text);
    matcher_free(matcher);
}

static bool check_text(struct driver *d, struct grammar *grammar, const struct json *text) {
    bool complete;
    size_t n = grammar_match(grammar, text->string, text->length, &complete);
    if (n < text->length || !complete) return false;
    walk(d, grammar, text->string, text->length, d->has_times);
    if (!d->has_times) walk(d, grammar, text->string, text->length, false);
    return true;
}

/* Returns a token of the mask; -1: it is empty. If the text should end soon, prefers tokens that
 * close something. */
static int random_token(struct driver *d, bool ends_soon) {
    static const char closing[] = "}]\",:0:";
    for (const char *c = closing; *c && (ends_soon || draw(d, 3) == 0); c++) {
        int id = d->of_byte[(uint8_t)*c];
        if (is_in(d, id) && draw(d, 8) > 0) return id;
    }
    int found = -1, seen = 0;
    for (int id = 0; id < d->V; id++) {
        if (is_in(d, id) && draw(d, ++seen) == 0) found = id;
    }
    return found;
}

/* Appends a text drawn under the masks. Returns false if it has not ended within max_tokens. */
static bool draw_text(struct driver *d, const struct task *task, struct buf *text) {
    struct matcher *matcher = matcher_new(task->grammar, d->vocabulary);
    bool ended = false;
    for (int i = 0; i < task->max_tokens && !ended; i++) {
        bool ends_soon = i > task->max_tokens / 4;
        find_mask(d, matcher);
        bool may_end = matcher_may_end(matcher);
        ended = may_end && (ends_soon || draw(d, 3) == 0);
        int id = ended ? -1 : random_token(d, ends_soon);
        ended = ended || (id < 0 && may_end);
        if (ended) break;
        if (id < 0) give_up("no token is allowed and the text may not end after", text->data);
        if (!matcher_accept(matcher, id)) give_up("a token of a mask is not accepted", text->data);
        buf_add(text, d->tokens[id], (size_t)d->lengths[id]);
    }
    matcher_free(matcher);
    return ended;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static enum grammar_kind kind_named(const struct json *name) {
    static const char *const names[] = {
        "json_object",    "json_schema",       "regex", "choice", "gbnf",
        "structural_tag", "json_schema_strict"};
    for (int kind = 0; kind < 7; kind++) {
        if (json_is_text(name, names[kind])) return (enum grammar_kind)kind;
    }
    give_up("an unknown kind", name ? name->string : "none");
}

static int number(const struct json *task, const char *name) {
    const struct json *value = json_member(task, name);
    return json_is(value, JSON_NUMBER) ? (int)value->number : 0;
}

static void run(struct driver *d, const struct task *task, struct buf *out) {
    struct buf text = {0};
    buf_puts(out, "\"accepted\":[");
    json_each(item, task->texts) {
        if (item != json_first(task->texts)) buf_puts(out, ",");
        buf_puts(out, check_text(d, task->grammar, item) ? "true" : "false");
    }
    buf_puts(out, "],\"drawn\":[");
    for (int i = 0; i < task->draws; i++) {
        buf_clear(&text);
        buf_puts(&text, "");
        if (i) buf_puts(out, ",");
        if (draw_text(d, task, &text))
            json_write_string(out, text.data, text.length);
        else
            buf_puts(out, "null");
    }
    buf_puts(out, "]");
    buf_free(&text);
}

/* Measures compiling and the first mask. */
static enum status compile(struct driver *d, const struct json *task, struct grammar **grammar,
                           struct buf *out, struct err *err) {
    const struct json *text = json_member(task, "text");
    double began = cpu_us();
    /* the oracles read objects as the specification does */
    const struct grammar_limits limits = {.open_objects = !json_true(json_member(task, "closed"))};
    enum status status = grammar_compile(kind_named(json_member(task, "kind")), text->string,
                                         text->length, &limits, grammar, err);
    if (status != STATUS_OK || !d->has_times) return status;
    struct matcher *matcher = matcher_new(*grammar, d->vocabulary);
    matcher_mask(matcher, d->mask);
    buf_printf(out, "\"compile\":%.1f,", cpu_us() - began);
    matcher_free(matcher);
    return status;
}

static void answer(struct driver *d, const struct json *task, struct buf *out) {
    struct task t = {.texts = json_member(task, "texts"),
                     .draws = number(task, "draws"),
                     .max_tokens = number(task, "max_tokens")};
    struct err err;
    const struct json *times = json_member(task, "times");
    d->has_times = times && times->boolean;
    d->seed = (uint64_t)number(task, "seed");
    buf_clear(&d->first);
    buf_clear(&d->again);
    buf_puts(out, "{");
    if (compile(d, task, &t.grammar, out, &err)) {
        buf_puts(out, "\"error\":");
        json_write_string(out, err.message, strlen(err.message));
    } else {
        run(d, &t, out);
        if (d->has_times)
            buf_printf(out, ",\"first\":[%s],\"again\":[%s]", d->first.length ? d->first.data : "",
                       d->again.length ? d->again.data : "");
        grammar_release(t.grammar);
    }
    buf_puts(out, "}\n");
}

int main(int argc, char **argv) {
    struct driver d = {0};
    struct buf out = {0};
    char *line = NULL;
    size_t max = 0;
    memset(d.of_byte, -1, sizeof d.of_byte);
    if (argc != 2) give_up("usage", "schema_driver VOCABULARY <TASKS");
    read_vocabulary(&d, argv[1]);
    for (ssize_t n; (n = getline(&line, &max, stdin)) > 0;) {
        struct json *task;
        struct err err;
        if (json_parse(&task, "The task", line, (size_t)n, &err)) give_up(err.message, line);
        buf_clear(&out);
        answer(&d, task, &out);
        fwrite(out.data, 1, out.length, stdout);
        fflush(stdout);
        json_free(task);
    }
    free(line);
    buf_free(&out);
    buf_free(&d.first);
    buf_free(&d.again);
    for (int id = 0; id < d.V; id++) free(d.tokens[id]);
    free(d.tokens);
    free(d.lengths);
    free(d.mask);
    vocabulary_free(d.vocabulary);
    return 0;
}
