/* Anchors of regular expressions. At the ends of a pattern or of its alternatives they exclude
 * other text before and after it; elsewhere they are refused. */
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

/* Does each alternative of the expression begin (or end) with an anchor? */
static bool is_anchored(const struct expr *expr, bool at_end) {
    if (is_anchor(expr, at_end)) return true;
    if (expr->kind == EXPR_CAT)
        return expr->child && is_anchored(at_end ? expr->last : expr->child, at_end);
    if (expr->kind != EXPR_ALT || !expr->child) return false;
    for (const struct expr *e = expr->child; e; e = e->next) {
        if (!is_anchored(e, at_end)) return false;
    }
    return true;
}

/* Removes the anchors that is_anchored found. */
static void take_anchors(struct expr *expr, bool at_end) {
    if (is_anchor(expr, at_end)) expr->text = NULL;
    if (expr->kind == EXPR_CAT && expr->child)
        take_anchors(at_end ? expr->last : expr->child, at_end);
    if (expr->kind != EXPR_ALT) return;
    for (struct expr *e = expr->child; e; e = e->next) take_anchors(e, at_end);
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

static struct expr *anchor_branch(struct regex *r, struct expr *expr, enum regex_match match) {
    struct builder *b = r->b;
    bool free_end[2]; /* other text is allowed at the beginning, at the end */
    for (int at_end = 0; at_end < 2; at_end++) {
        free_end[at_end] = match == REGEX_SEARCH && !is_anchored(expr, at_end);
        if (match == REGEX_WHOLE || !free_end[at_end]) take_anchors(expr, at_end);
    }
    if (has_anchor(expr))
        pattern_fail(r, r->end,
                     "an anchor inside it: anchors are allowed only at its beginning and end");
    struct expr *whole = expr_new(b, EXPR_CAT);
    if (free_end[0]) expr_add(whole, any_text(b));
    expr_add(whole, expr);
    if (free_end[1]) expr_add(whole, any_text(b));
    return whole;
}

struct expr *pattern_anchor(struct regex *r, struct expr *expr, enum regex_match match) {
    if (expr->kind != EXPR_ALT) return anchor_branch(r, expr, match);
    struct expr *all = expr_new(r->b, EXPR_ALT);
    for (struct expr *e = expr->child, *next; e && r->b->status == STATUS_OK; e = next) {
        next = e->next;
        e->next = NULL;
        expr_add(all, anchor_branch(r, e, match));
    }
    return all;
}
