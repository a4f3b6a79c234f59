/* Anchors and look-aheads of regular expressions. At the ends of a pattern or of the alternatives
 * there, anchors exclude other text before and after it; other anchors are refused. */
#include <assert.h>
#include <string.h>

#include "engine/grammar/read/regex.h"

static const char anchors[2][1]; /* an expression with one of these addresses is an anchor */

struct expr *pattern_anchor_new(struct builder *b, bool at_end) {
    struct expr *expr = expr_new(b, EXPR_BYTES);
    if (expr != &b->spare) expr->text = anchors[at_end];
    return expr;
}

static bool is_anchor(const struct expr *expr, bool at_end) {
    return expr->kind == EXPR_BYTES && expr->text == anchors[at_end];
}

/* Returns the first child of a sequence that is not a look-ahead, or NULL. */
static struct expr *after_ahead(const struct expr *sequence) {
    struct expr *part = sequence->child;
    while (part && part->kind == EXPR_AHEAD) part = part->next;
    return part;
}

/* Does each alternative of the expression begin (or end) with an anchor? */
static bool is_anchored(const struct expr *expr, bool at_end) {
    if (is_anchor(expr, at_end)) return true;
    if (expr->kind == EXPR_CAT) {
        const struct expr *part = at_end ? expr->last : after_ahead(expr);
        return part && is_anchored(part, at_end);
    }
    if (expr->kind != EXPR_ALT || !expr->child) return false;
    for (const struct expr *e = expr->child; e; e = e->next) {
        if (!is_anchored(e, at_end)) return false;
    }
    return true;
}

/* Removes the anchors that is_anchored found. */
static void take_anchors(struct expr *expr, bool at_end) {
    if (is_anchor(expr, at_end)) expr->text = NULL;
    struct expr *part = NULL;
    if (expr->kind == EXPR_CAT) part = at_end ? expr->last : after_ahead(expr);
    if (part) take_anchors(part, at_end);
    if (expr->kind != EXPR_ALT) return;
    for (struct expr *e = expr->child; e; e = e->next) take_anchors(e, at_end);
}

/* Returns the part of a sequence at one end, or the expression itself; NULL: it is empty. */
static struct expr *edge_of(struct expr *expr, bool at_end) {
    if (expr->kind != EXPR_CAT) return expr;
    return at_end ? expr->last : after_ahead(expr);
}

/* Does some alternative at this end begin (or end) with an anchor? */
static bool is_partly_anchored(struct expr *expr, bool at_end) {
    struct expr *edge = edge_of(expr, at_end);
    if (!edge || edge->kind != EXPR_ALT) return edge && is_anchor(edge, at_end);
    for (struct expr *e = edge->child; e; e = e->next) {
        if (is_partly_anchored(e, at_end)) return true;
    }
    return false;
}

static bool has_anchor(const struct expr *expr) {
    bool is_group = expr->kind == EXPR_CAT || expr->kind == EXPR_ALT || expr->kind == EXPR_REPEAT;
    if (!is_group) return is_anchor(expr, false) || is_anchor(expr, true);
    for (const struct expr *e = expr->child; e; e = e->next) {
        if (has_anchor(e)) return true;
    }
    return false;
}

static struct expr *any_text(struct builder *b) {
    struct range all = {0, MAX_CODE_POINT};
    return expr_repeat(b, expr_class(b, &all, 1), 0, NO_MAX);
}

static struct expr *free_edge(struct regex *r, struct expr *expr, bool at_end);

/* Returns the sequence or the alternatives with one part, or each, free at one end. */
static struct expr *free_parts(struct regex *r, struct expr *expr, bool at_end) {
    const struct expr *edge = expr->kind == EXPR_CAT ? edge_of(expr, at_end) : NULL;
    struct expr *all = expr_new(r->b, expr->kind);
    for (struct expr *e = expr->child, *next; e && r->b->status == STATUS_OK; e = next) {
        next = e->next;
        e->next = NULL;
        expr_add(all, !edge || e == edge ? free_edge(r, e, at_end) : e);
    }
    return all;
}

/* Allows other text at one end, except in alternatives with an anchor there. */
static struct expr *free_edge(struct regex *r, struct expr *expr, bool at_end) {
    if (is_anchored(expr, at_end)) {
        take_anchors(expr, at_end);
        return expr;
    }
    if (is_partly_anchored(expr, at_end)) return free_parts(r, expr, at_end);
    struct expr *first = at_end ? expr : any_text(r->b);
    return expr_of(r->b, EXPR_CAT, first, at_end ? any_text(r->b) : expr, NULL);
}

/* ---- look-ahead ----------------------------------------------------------------------------- */

/* A look-ahead is a condition on the rest of the text, so x(?!y)z becomes
 *
 *     x, then the rest: z, and not (y, then any text)
 *
 * It is served where the rest of the expression is known: not inside a repetition, and inside
 * alternatives only if these are last. */

static bool has_ahead(const struct expr *expr) {
    if (expr->kind == EXPR_AHEAD) return true;
    bool is_group = expr->kind == EXPR_CAT || expr->kind == EXPR_ALT || expr->kind == EXPR_REPEAT;
    for (const struct expr *e = is_group ? expr->child : NULL; e; e = e->next) {
        if (has_ahead(e)) return true;
    }
    return false;
}

/* The rest of an expression while it is read from left to right. */
struct rest {
    struct regex *r;
    struct expr *into; /* the sequence to which parts are added */
    bool at_begin;     /* of the text */
    bool free_end;     /* other text is allowed after it */
    bool has_end;      /* the end was added */
};

static struct expr *anchor_alternatives(struct regex *r, struct expr *expr, bool at_begin,
                                        bool free_begin, bool free_end);

static struct expr *with_rest(struct regex *r, struct expr *expr, bool at_begin, bool free_end);

/* Adds a condition on all that follows. */
static void add_ahead(struct rest *rest, const struct expr *ahead) {
    struct builder *b = rest->r->b;
    struct expr *after = expr_new(b, EXPR_CAT);
    struct expr *looked = anchor_alternatives(rest->r, ahead->child, rest->at_begin, false, true);
    assert(ahead->kind == EXPR_AHEAD);
    if (ahead->is_not) looked = expr_of(b, EXPR_NOT, looked, NULL);
    expr_add(rest->into, expr_of(b, EXPR_AND, after, looked, NULL));
    rest->into = after;
}

/* Where an anchor was. */
static bool is_anchor_taken(const struct expr *expr) {
    return expr->kind == EXPR_BYTES && expr->n == 0;
}

/* Does a list of parts hold nothing but anchors? */
static bool is_empty(const struct expr *part) {
    while (part && is_anchor_taken(part)) part = part->next;
    return !part;
}

static void add_parts(struct rest *rest, struct expr *expr, bool is_last) {
    for (struct expr *e = expr->kind == EXPR_CAT ? expr->child : expr, *next; e; e = next) {
        bool ends = is_last && (expr->kind != EXPR_CAT || is_empty(e->next));
        next = expr->kind == EXPR_CAT ? e->next : NULL;
        e->next = NULL;
        if (e->kind == EXPR_AHEAD) {
            add_ahead(rest, e);
        } else if (!has_ahead(e)) {
            expr_add(rest->into, e);
            rest->at_begin = rest->at_begin && is_anchor_taken(e);
        } else if (e->kind == EXPR_CAT) {
            add_parts(rest, e, ends);
        } else if (e->kind == EXPR_ALT && ends) {
            expr_add(rest->into, with_rest(rest->r, e, rest->at_begin, rest->free_end));
            rest->has_end = true;
        } else {
            pattern_fail(rest->r, rest->r->end,
                         "a lookaround inside a group that is repeated or not last, which is not "
                         "served,");
        }
        if (rest->r->b->status != STATUS_OK) return;
    }
}

/* Adds other text at the end if it is allowed, and replaces look-aheads. */
static struct expr *with_rest(struct regex *r, struct expr *expr, bool at_begin, bool free_end) {
    if (expr->kind == EXPR_ALT && has_ahead(expr)) {
        struct expr *all = expr_new(r->b, EXPR_ALT);
        for (struct expr *e = expr->child, *next; e && r->b->status == STATUS_OK; e = next) {
            next = e->next;
            e->next = NULL;
            expr_add(all, with_rest(r, e, at_begin, free_end));
        }
        return all;
    }
    struct expr *all = expr_new(r->b, EXPR_CAT);
    struct rest rest = {.r = r, .into = all, .at_begin = at_begin, .free_end = free_end};
    if (has_ahead(expr))
        add_parts(&rest, expr, true);
    else
        expr_add(all, expr);
    if (free_end && !rest.has_end) expr_add(rest.into, any_text(r->b));
    return all;
}

/* ---- both ends ------------------------------------------------------------------------------ */

/* at_begin: the expression begins where the text does, unless free_begin; free_begin, free_end:
 * without an anchor, other text is allowed there. */
static struct expr *anchor_branch(struct regex *r, struct expr *expr, bool at_begin,
                                  bool free_begin, bool free_end) {
    bool has_begin = is_anchored(expr, false), has_end = is_anchored(expr, true);
    bool sees_rest = has_ahead(expr); /* then the places of other text would be wrong */
    bool may_begin =
        !sees_rest && at_begin && free_begin && !has_begin && is_partly_anchored(expr, false);
    if (at_begin && (has_begin || !free_begin)) take_anchors(expr, false);
    if (may_begin) expr = free_edge(r, expr, false);
    if (has_end || !free_end) take_anchors(expr, true);
    if (!sees_rest && free_end && !has_end && is_partly_anchored(expr, true)) {
        expr = free_edge(r, expr, true);
        has_end = true;
    }
    if (has_anchor(expr))
        pattern_fail(r, r->end,
                     "an anchor inside it: anchors are allowed only at its beginning and end");
    struct expr *whole = expr_new(r->b, EXPR_CAT);
    bool is_free = free_begin && !has_begin;
    if (is_free && !may_begin) expr_add(whole, any_text(r->b));
    return expr_add(whole, with_rest(r, expr, at_begin && !is_free, free_end && !has_end));
}

static struct expr *anchor_alternatives(struct regex *r, struct expr *expr, bool at_begin,
                                        bool free_begin, bool free_end) {
    if (expr->kind != EXPR_ALT) return anchor_branch(r, expr, at_begin, free_begin, free_end);
    struct expr *all = expr_new(r->b, EXPR_ALT);
    for (struct expr *e = expr->child, *next; e && r->b->status == STATUS_OK; e = next) {
        next = e->next;
        e->next = NULL;
        expr_add(all, anchor_branch(r, e, at_begin, free_begin, free_end));
    }
    return all;
}

struct expr *pattern_anchor(struct regex *r, struct expr *expr, enum regex_match match) {
    bool is_search = match == REGEX_SEARCH;
    return anchor_alternatives(r, expr, true, is_search, is_search);
}
