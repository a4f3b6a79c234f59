#include "support/naive_grammar.h"

#include <assert.h>
#include <string.h>

#include "engine/grammar/run/automaton.h"

int naive_draw(uint64_t *seed, int n) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((*seed >> 33) % (uint64_t)n);
}

/* ---- random grammars ------------------------------------------------------------------------ */

static struct naive_expr *make(struct naive_grammar *g, enum naive_kind kind) {
    struct naive_expr *expr = arena_alloc(g->arena, sizeof *expr);
    *expr = (struct naive_expr){.kind = kind};
    return expr;
}

static struct naive_expr *random_leaf(struct naive_grammar *g, uint64_t *seed) {
    static const char *const texts[] = {"a", "b", "ab", "aab", "\u00e9",
                                        "c", ",", "(",  ")",   "\u20acx"};
    static const char *const classes[] = {"ab", "abc", "\u00e9\u20ac", "a,(", "c\u00e9"};
    struct naive_expr *expr = make(g, naive_draw(seed, 3) ? NAIVE_TEXT : NAIVE_CLASS);
    expr->negated = expr->kind == NAIVE_CLASS && naive_draw(seed, 5) == 0;
    expr->text =
        expr->kind == NAIVE_TEXT ? texts[naive_draw(seed, 10)] : classes[naive_draw(seed, 5)];
    return expr;
}

static struct naive_expr *random_expr(struct naive_grammar *g, uint64_t *seed, int depth) {
    int choice = depth == 0 ? 0 : naive_draw(seed, 8);
    if (choice <= 1) return random_leaf(g, seed);
    if (choice == 2 && g->n_rules > 1) {
        struct naive_expr *call = make(g, NAIVE_CALL);
        call->rule = naive_draw(seed, g->n_rules);
        return call;
    }
    enum naive_kind kind = choice <= 4 ? NAIVE_CAT : choice <= 6 ? NAIVE_ALT : NAIVE_REPEAT;
    struct naive_expr *expr = make(g, kind);
    expr->first = random_expr(g, seed, depth - 1);
    if (kind != NAIVE_REPEAT) expr->second = random_expr(g, seed, depth - 1);
    if (kind == NAIVE_REPEAT) {
        expr->min = naive_draw(seed, 3);
        expr->max = naive_draw(seed, 2) ? -1 : expr->min + naive_draw(seed, 3);
    }
    return expr;
}

struct naive_grammar naive_random(uint64_t *seed, bool is_regular) {
    struct naive_grammar g = {.n_rules =
                                  is_regular ? 1 : 2 + naive_draw(seed, NAIVE_MAX_RULES - 1)};
    g.arena = arena_new(1 << 20);
    for (int i = 0; i < g.n_rules; i++) {
        /* the second alternative ends, whatever the first one does */
        g.rules[i] = make(&g, NAIVE_ALT);
        g.rules[i]->first = random_expr(&g, seed, 4);
        g.rules[i]->second = random_leaf(&g, seed);
    }
    return g;
}

void naive_free(struct naive_grammar *grammar) {
    arena_free(grammar->arena);
}

/* ---- as text -------------------------------------------------------------------------------- */

static void write_leaf(const struct naive_expr *expr, bool as_regex, struct buf *out) {
    if (expr->kind == NAIVE_CLASS) {
        buf_printf(out, expr->negated ? "[^%s]" : "[%s]", expr->text);
    } else if (!as_regex) {
        buf_printf(out, "\"%s\"", expr->text);
    } else {
        for (const char *c = expr->text; *c; c++) {
            if (*c == '(' || *c == ')') buf_puts(out, "\\");
            buf_add(out, c, 1);
        }
    }
}

static void write_expr(const struct naive_expr *expr, bool as_regex, struct buf *out) {
    if (expr->kind == NAIVE_TEXT || expr->kind == NAIVE_CLASS) {
        write_leaf(expr, as_regex, out);
    } else if (expr->kind == NAIVE_CALL) {
        buf_printf(out, expr->rule ? "r%d" : "root", expr->rule);
    } else {
        buf_puts(out, "(");
        write_expr(expr->first, as_regex, out);
        if (expr->kind == NAIVE_ALT) buf_puts(out, "|");
        if (expr->kind == NAIVE_CAT && !as_regex) buf_puts(out, " ");
        if (expr->second) write_expr(expr->second, as_regex, out);
        buf_puts(out, ")");
        if (expr->kind == NAIVE_REPEAT) buf_printf(out, "{%d,", expr->min);
        if (expr->kind == NAIVE_REPEAT && expr->max >= 0) buf_printf(out, "%d", expr->max);
        if (expr->kind == NAIVE_REPEAT) buf_puts(out, "}");
    }
}

void naive_write(const struct naive_grammar *grammar, bool as_regex, struct buf *out) {
    if (as_regex) {
        write_expr(grammar->rules[0], true, out);
        return;
    }
    for (int i = 0; i < grammar->n_rules; i++) {
        buf_printf(out, i ? "r%d ::= " : "root ::= ", i);
        write_expr(grammar->rules[i], false, out);
        buf_puts(out, "\n");
    }
}

/* ---- matching ------------------------------------------------------------------------------- */

/* The possible ends of a match that began at some place. Bit j: it ended before byte j. The highest
 * bit: it continues after the end of the text. */
#define BEHIND ((uint64_t)1 << 63)

struct tables {
    const struct naive_grammar *grammar;
    const char *text;
    int n;
    uint64_t ends[NAIVE_MAX_RULES][NAIVE_MAX_TEXT + 1];
};

static uint64_t match_text(const struct tables *t, const char *text, size_t length, int from) {
    for (size_t i = 0; i < length; i++) {
        if (from + (int)i == t->n) return BEHIND;
        if (t->text[from + (int)i] != text[i]) return 0;
    }
    return (uint64_t)1 << (from + (int)length);
}

/* Matches one character that is not in the class. An incomplete character may become such a
 * character. */
static uint64_t match_other(const struct tables *t, const char *class, int from) {
    size_t left = (size_t)(t->n - from), size = utf8_character(t->text + from, left);
    if (left == 0 || utf8_partial(t->text + from, left)) return BEHIND;
    for (const char *c = class; *c && size; c += utf8_character(c, 4)) {
        if (utf8_character(c, 4) == size && memcmp(c, t->text + from, size) == 0) return 0;
    }
    return size ? (uint64_t)1 << (from + (int)size) : 0;
}

static uint64_t match(const struct tables *t, const struct naive_expr *expr, int from);

/* Matches from every place of a set. */
static uint64_t match_from(const struct tables *t, const struct naive_expr *expr, uint64_t places) {
    uint64_t out = places & BEHIND;
    for (int i = 0; i <= t->n; i++) {
        if (places >> i & 1) out |= match(t, expr, i);
    }
    return out;
}

static uint64_t match_repeat(const struct tables *t, const struct naive_expr *expr, int from) {
    uint64_t at = (uint64_t)1 << from, out = expr->min == 0 ? at : 0;
    int rounds = expr->max >= 0 ? expr->max : expr->min + t->n + 1;
    for (int i = 1; i <= rounds; i++) {
        at = match_from(t, expr->first, at & ~BEHIND);
        out |= i >= expr->min ? at : at & BEHIND;
    }
    return out;
}

static uint64_t match(const struct tables *t, const struct naive_expr *expr, int from) {
    uint64_t out = 0;
    switch (expr->kind) {
    case NAIVE_TEXT:
        return match_text(t, expr->text, strlen(expr->text), from);
    case NAIVE_CLASS:
        if (expr->negated) return match_other(t, expr->text, from);
        for (const char *c = expr->text; *c; c += utf8_character(c, 4)) {
            out |= match_text(t, c, utf8_character(c, 4), from);
        }
        return out;
    case NAIVE_CAT:
        return match_from(t, expr->second, match(t, expr->first, from));
    case NAIVE_ALT:
        return match(t, expr->first, from) | match(t, expr->second, from);
    case NAIVE_REPEAT:
        return match_repeat(t, expr, from);
    case NAIVE_CALL:
        return t->ends[expr->rule][from];
    }
    return 0;
}

bool naive_matches(const struct naive_grammar *grammar, const char *text, int n, bool *complete) {
    struct tables t = {.grammar = grammar, .text = text, .n = n};
    assert(n <= NAIVE_MAX_TEXT);
    for (bool changed = true; changed;) {
        changed = false;
        for (int rule = 0; rule < grammar->n_rules; rule++) {
            for (int from = n; from >= 0; from--) {
                uint64_t ends = match(&t, grammar->rules[rule], from);
                if (ends != t.ends[rule][from]) changed = true;
                t.ends[rule][from] = ends;
            }
        }
    }
    *complete = t.ends[0][0] >> n & 1;
    return *complete || (t.ends[0][0] & BEHIND);
}

void grammar_forget(struct grammar *grammar) {
    grammar->automaton.max_bytes = 0;
}
