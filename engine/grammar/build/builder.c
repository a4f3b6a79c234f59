/* Rules and expressions in the arena of a builder. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/grammar/build/build.h"

static struct grammar_limits limits_of(const struct grammar_limits *given) {
    struct grammar_limits limits = given ? *given : (struct grammar_limits){0};
    if (!limits.max_text) limits.max_text = (size_t)256 << 10;
    if (!limits.max_depth) limits.max_depth = 64;
    if (!limits.max_states) limits.max_states = 100000;
    if (!limits.max_bytes) limits.max_bytes = (size_t)16 << 20;
    if (!limits.max_ms) limits.max_ms = 500;
    if (!limits.max_copies) limits.max_copies = 64;
    return limits;
}

bool builder_begin(struct builder *b, const struct grammar_limits *limits, size_t n,
                   struct err *err) {
    *b = (struct builder){.limits = limits_of(limits), .err = err};
    b->deadline_ns = builder_thread_ns() + (uint64_t)b->limits.max_ms * 1000000;
    b->spare.kind = EXPR_FAILED;
    for (int i = 0; i < N_JSON_RULES; i++) b->json_rules[i] = -1;
    if (n > b->limits.max_text)
        builder_fail(b, "The grammar has %zu bytes; the limit is %zu.", n, b->limits.max_text);
    else
        b->arena = arena_new(b->limits.max_bytes);
    return b->status == STATUS_OK;
}

enum status builder_end(struct builder *b) {
    arena_free(b->arena);
    json_free(b->document);
    b->arena = NULL;
    b->document = NULL;
    return b->status;
}

enum status builder_fail(struct builder *b, const char *format, ...) {
    if (b->status != STATUS_OK) return b->status;
    char message[sizeof b->err->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    b->status = b->owner ? err_set(b->err, STATUS_INVALID_REQUEST, NULL, "The tool \"%s\": %s",
                                   b->owner, message)
                         : err_set(b->err, STATUS_INVALID_REQUEST, NULL, "%s", message);
    return b->status;
}

uint64_t builder_thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool is_cancelled(const struct builder *b) {
    return b->limits.cancelled && atomic_load_explicit(b->limits.cancelled, memory_order_relaxed);
}

bool builder_in_time(struct builder *b) {
    if (b->status == STATUS_OK && is_cancelled(b))
        b->status = err_set(b->err, STATUS_CANCELLED, NULL, "The compilation was cancelled.");
    if (b->status == STATUS_OK && builder_thread_ns() > b->deadline_ns) {
        builder_fail(b, "The grammar takes longer than %d ms to compile; make it smaller.",
                     b->limits.max_ms);
    }
    return b->status == STATUS_OK;
}

bool builder_works(struct builder *b, size_t n) {
    enum { STEPS_AT_ONCE = 1 << 16 };
    b->n_steps += n;
    if (b->n_steps < STEPS_AT_ONCE) return b->status == STATUS_OK;
    b->n_steps = 0;
    return builder_in_time(b);
}

bool builder_down(struct builder *b, const char *what) {
    if (b->depth == b->limits.max_depth) {
        builder_fail(b, "%s is nested deeper than %d levels.", what, b->limits.max_depth);
        return false;
    }
    b->depth++;
    return true;
}

void builder_up(struct builder *b) {
    assert(b->depth > 0);
    b->depth--;
}

void *builder_alloc(struct builder *b, size_t bytes) {
    void *memory = b->status == STATUS_OK ? arena_alloc(b->arena, bytes) : NULL;
    if (!memory) {
        builder_fail(b, "The grammar needs more than %zu MiB to compile; make it smaller.",
                     b->limits.max_bytes >> 20);
    }
    return memory;
}

/* ---- places in a document ------------------------------------------------------------------- */

/* Writes the path from `at` down to `node`. False: `node` is not below `at`. */
static bool write_way(const struct json *at, const struct json *node, struct buf *out) {
    if (at == node) return true;
    size_t length = out->length;
    int index = 0;
    json_each(child, at) {
        buf_puts(out, "/");
        if (!child->name) buf_printf(out, "%d", index);
        for (const char *c = child->name; c && *c; c++) {
            if (*c == '~' || *c == '/')
                buf_puts(out, *c == '~' ? "~0" : "~1");
            else
                buf_add(out, c, 1);
        }
        if (write_way(child, node, out)) return true;
        out->length = length;
        index++;
    }
    return false;
}

void json_pointer(const struct json *root, const struct json *node, struct buf *out) {
    buf_puts(out, "");
    write_way(root, node, out);
    out->data[out->length] = 0;
}

/* ---- rules ---------------------------------------------------------------------------------- */

int rule_new(struct builder *b, const char *name) {
    if (b->n_rules == b->max_rules) {
        int max = b->max_rules ? 2 * b->max_rules : 64;
        struct rule *rules = builder_alloc(b, (size_t)max * sizeof *rules);
        if (!rules) return 0;
        if (b->n_rules) memcpy(rules, b->rules, (size_t)b->n_rules * sizeof *rules);
        b->rules = rules;
        b->max_rules = max;
    }
    b->rules[b->n_rules] =
        (struct rule){.name = name, .owner = b->owner, .at_root = b->at_root, .at = b->at};
    return b->n_rules++;
}

void rule_define(struct builder *b, int rule, struct expr *body) {
    if (b->status != STATUS_OK) return;
    assert(rule < b->n_rules && !b->rules[rule].body);
    b->rules[rule].body = body;
}

/* ---- expressions ---------------------------------------------------------------------------- */

struct expr *expr_new(struct builder *b, enum expr_kind kind) {
    struct expr *expr = builder_alloc(b, sizeof *expr);
    if (!expr) return &b->spare;
    memset(expr, 0, sizeof *expr);
    expr->kind = kind;
    return expr;
}

struct expr *expr_bytes(struct builder *b, const char *text, size_t n) {
    struct expr *expr = expr_new(b, EXPR_BYTES);
    char *copy = n ? builder_alloc(b, n) : NULL;
    if (!copy) return expr;
    expr->text = memcpy(copy, text, n);
    expr->n = n;
    return expr;
}

struct expr *expr_text(struct builder *b, const char *text) {
    return expr_bytes(b, text, strlen(text));
}

struct expr *expr_call(struct builder *b, int rule) {
    struct expr *expr = expr_new(b, EXPR_CALL);
    if (expr != &b->spare) expr->rule = rule;
    return expr;
}

struct expr *expr_repeat(struct builder *b, struct expr *child, int min, int max) {
    assert(min >= 0 && (max == NO_MAX || max >= min));
    struct expr *expr = expr_new(b, EXPR_REPEAT);
    if (expr == &b->spare) return expr;
    expr->min = min;
    expr->max = max;
    return expr_add(expr, child);
}

static bool has_children(const struct expr *expr) {
    return expr->kind != EXPR_BYTES && expr->kind != EXPR_BYTE && expr->kind != EXPR_CLASS &&
           expr->kind != EXPR_CALL && expr->kind != EXPR_MULTIPLE && expr->kind != EXPR_BEGIN &&
           expr->kind != EXPR_FAILED;
}

struct expr *expr_add(struct expr *parent, struct expr *child) {
    if (!has_children(parent) || child->kind == EXPR_FAILED) return parent;
    assert(!child->next && child != parent->last);
    if (parent->last)
        parent->last->next = child;
    else
        parent->child = child;
    parent->last = child;
    return parent;
}

struct expr *expr_of(struct builder *b, enum expr_kind kind, ...) {
    struct expr *parent = expr_new(b, kind), *child;
    va_list children;
    va_start(children, kind);
    while ((child = va_arg(children, struct expr *)) && b->status == STATUS_OK) {
        expr_add(parent, child);
    }
    va_end(children);
    return parent;
}

/* ---- classes of characters ------------------------------------------------------------------ */

static int by_low(const void *a, const void *b) {
    uint32_t x = ((const struct range *)a)->low, y = ((const struct range *)b)->low;
    return (x > y) - (x < y);
}

int ranges_normalise(struct range *ranges, int n) {
    int out = 0;
    if (n > 1) qsort(ranges, (size_t)n, sizeof *ranges, by_low);
    for (int i = 0; i < n; i++) {
        assert(ranges[i].low <= ranges[i].high);
        if (out > 0 && ranges[i].low <= ranges[out - 1].high + 1) {
            if (ranges[i].high > ranges[out - 1].high) ranges[out - 1].high = ranges[i].high;
        } else {
            ranges[out++] = ranges[i];
        }
    }
    return out;
}

int ranges_complement(struct range *ranges, int n, struct range *out) {
    uint32_t low = 0;
    int count = 0;
    n = ranges_normalise(ranges, n);
    for (int i = 0; i < n; i++) {
        if (ranges[i].low > low) out[count++] = (struct range){low, ranges[i].low - 1};
        low = ranges[i].high + 1;
    }
    if (low <= MAX_CODE_POINT) out[count++] = (struct range){low, MAX_CODE_POINT};
    return count;
}

struct expr *expr_class(struct builder *b, const struct range *ranges, int n) {
    struct expr *expr = expr_new(b, EXPR_CLASS);
    struct range *copy = builder_alloc(b, (size_t)(n + 1) * sizeof *copy);
    if (!copy) return &b->spare;
    int count = 0;
    for (int i = 0; i < n; i++) { /* surrogates are not characters in UTF-8 */
        struct range range = ranges[i];
        if (range.low < 0xD800 && range.high > 0xDFFF && count < n) {
            copy[count++] = (struct range){range.low, 0xD7FF};
            range.low = 0xE000;
        }
        if (range.low >= 0xD800 && range.low <= 0xDFFF) range.low = 0xE000;
        if (range.high >= 0xD800 && range.high <= 0xDFFF) range.high = 0xD7FF;
        if (range.low <= range.high && count <= n) copy[count++] = range;
    }
    expr->ranges = copy;
    expr->n_ranges = ranges_normalise(copy, count);
    return expr;
}
