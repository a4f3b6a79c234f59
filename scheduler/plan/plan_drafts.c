/* plan_drafts: the drafts that a plan verifies, chosen after everything else (speculate.h). */
#include "scheduler/plan/plan.h"

/* A draft less likely than this is not considered. */
static const float min_chance = 0.02f;

/* The state of the choice of drafts for a plan: the most likely first, over all sequences. */
struct choosing {
    int n;                   /* number chosen so far */
    int item[MAX_COST_ROWS]; /* items of the chosen drafts, in the order of choice */
    /* chance that the next draft of an item is accepted, with all before */
    float next[MAX_COST_ROWS];
    int drafts[MAX_COST_ROWS]; /* drafts of each item */
    int blocks;                /* blocks for all drafts */
};

static int blocks_of(const struct plan_view *view, const struct plan_item *item, int drafts) {
    const struct sequence *sequence = item->sequence;
    int end = sequence->n_computed + item->rows;
    return block_pool_blocks_for(view->pool, end + drafts) - block_pool_blocks_for(view->pool, end);
}

static bool may_choose(const struct plan *plan, const struct plan_view *view,
                       const struct choosing *c, int i) {
    const struct plan_item *item = &plan->item[i];
    int drafts = c->drafts[i] + 1;
    if (item->rows != 1 || drafts > item->sequence->drafts.n_proposed) return false;
    int more = blocks_of(view, item, drafts) - blocks_of(view, item, c->drafts[i]);
    return c->blocks + more <= min_int(plan->available, plan->windows);
}

/* Returns the item whose next draft is the most likely, or -1. */
static int likeliest(const struct plan *plan, const struct plan_view *view,
                     const struct choosing *c) {
    int best = -1;
    for (int i = 0; i < plan->n_running; i++)
        if (may_choose(plan, view, c, i) && (best < 0 || c->next[i] > c->next[best])) best = i;
    return best;
}

/* Returns how many of the drafts, in the order of choice, yield the most tokens per time. */
static int choose_all(const struct plan *plan, const struct plan_view *view, struct choosing *c) {
    int most = min_int(view->max_rows - plan->rows, view->max_logit_rows - plan->logit_rows);
    float tokens = (float)plan->rows;
    float best = tokens / step_cost_ns(view->cost, plan->rows) * MIN_DRAFT_GAIN;
    int n = 0;
    most = min_int(most, MAX_COST_ROWS - plan->rows);
    while (c->n < most) {
        int i = likeliest(plan, view, c);
        if (i < 0 || (c->next[i] < min_chance && !view->fixed_drafts)) break;
        const struct plan_item *item = &plan->item[i];
        int drafts = ++c->drafts[i];
        tokens += c->next[i];
        c->next[i] *= drafts_chance(&item->sequence->drafts, drafts);
        c->blocks += blocks_of(view, item, drafts) - blocks_of(view, item, drafts - 1);
        c->item[c->n++] = i;
        float ns = step_cost_ns(view->cost, plan->rows + c->n), rate = tokens / ns;
        if (view->itl_target_ns > 0 && ns > view->itl_target_ns && !view->fixed_drafts) break;
        if (rate <= best && !view->fixed_drafts) continue;
        best = rate;
        n = c->n;
    }
    return n;
}

static void add_draft(struct plan *plan, const struct plan_view *view, struct plan_item *item) {
    int blocks = blocks_of(view, item, 1);
    item->rows++;
    item->drafts++;
    item->logit_rows++;
    item->blocks += blocks;
    item->windows += blocks;
    plan->rows++;
    plan->shape.decode_rows++;
    plan->logit_rows++;
    plan->available -= blocks;
    plan->windows -= blocks;
    assert(plan->available >= 0 && plan->windows >= 0);
}

void plan_drafts(struct plan *plan, const struct plan_view *view) {
    struct choosing c = {0};
    bool idle = plan->shape.prefill_rows == 0 && plan->n_items == plan->n_kept && plan->rows > 0 &&
                !plan->short_of_blocks;
    if (!view->drafts || !idle || plan->n_running >= MAX_COST_ROWS) return;
    for (int i = 0; i < plan->n_running; i++)
        c.next[i] = drafts_chance(&plan->item[i].sequence->drafts, 0);
    int n = choose_all(plan, view, &c);
    for (int i = 0; i < n; i++) add_draft(plan, view, &plan->item[c.item[i]]);
}
