/* DESIGN. The kinds of texts that several expressions tell apart: each set of expressions that some
 * text matches while it matches no other one. Of n expressions there are up to 2^n kinds, but
 * patterns on names mostly exclude each other. So the kinds of the first expressions are divided by
 * the next one, and empty kinds are dropped:
 *
 *     any text ──^a──> {a} {}  ──^b──> {a} {b} {}         {a,b} is empty
 */
#include <assert.h>
#include <stdlib.h>

#include "engine/grammar/build/network.h"

struct kind {
    unsigned matched; /* bit set of expressions */
    struct dfa dfa;
};

static bool matches_some(const struct dfa *dfa) {
    bool *live = dfa_find_live(dfa), is_live = live[dfa->start];
    mem_free(live);
    return is_live;
}

/* Divides kind `at`. Adds a kind after the other n if both parts have a text. Returns the new
 * number; max + 1: too many. */
static int divide(struct builder *b, struct kind *kinds, int at, int n, int max,
                  const struct expr *complement, unsigned bit) {
    struct kind with = {kinds[at].matched | bit, {0}}, without = {kinds[at].matched, {0}};
    dfa_intersect_expr(b, &kinds[at].dfa, complement->child, &with.dfa);
    if (b->status == STATUS_OK) dfa_intersect_expr(b, &kinds[at].dfa, complement, &without.dfa);
    bool is_fine = b->status == STATUS_OK;
    bool has_with = is_fine && matches_some(&with.dfa);
    bool has_without = is_fine && matches_some(&without.dfa);
    assert(has_with || has_without || !is_fine);
    if (is_fine) {
        dfa_free(&kinds[at].dfa);
        kinds[at] = has_without ? without : with;
    }
    if (has_with && has_without && n < max) kinds[n] = with;
    bool is_kept = has_with && (!has_without || n < max);
    if (!is_kept) dfa_free(&with.dfa);
    if (!has_without) dfa_free(&without.dfa);
    return n + (has_with && has_without);
}

int builder_kinds(struct builder *b, struct expr *const *exprs, int n, unsigned *kinds, int max) {
    assert(n > 0 && n <= 32 && max > 0);
    struct kind *all = mem_calloc((size_t)max, sizeof *all);
    struct expr *any = expr_repeat(b, expr_new(b, EXPR_BYTE), 0, NO_MAX);
    int n_kinds = 1;
    if (b->status == STATUS_OK) dfa_of_expr(b, any, &all[0].dfa);
    for (int i = 0; i < n && n_kinds <= max && b->status == STATUS_OK; i++) {
        const struct expr *complement = expr_of(b, EXPR_NOT, exprs[i], NULL);
        int before = n_kinds;
        for (int k = 0; k < before && n_kinds <= max && b->status == STATUS_OK; k++)
            n_kinds = divide(b, all, k, n_kinds, max, complement, 1u << i);
    }
    for (int k = 0; k < min_int(n_kinds, max); k++) {
        kinds[k] = all[k].matched;
        dfa_free(&all[k].dfa);
    }
    mem_free(all);
    return n_kinds;
}
