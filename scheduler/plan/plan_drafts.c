/* plan_drafts: the drafts that a plan verifies, chosen after everything else (speculate.h). */
#include "scheduler/plan/internal.h"

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

/* Returns the blocks that drafts after the rows of an item need. */
static int drafts_blocks(const struct plan *plan, const struct plan_item *item, int drafts) {
    const struct block_pool *pool = plan->view.pool;
    int end = item->sequence->n_computed + item->rows;
    return block_pool_blocks_for(pool, end + drafts) - block_pool_blocks_for(pool, end);
}

static bool drafts_may_choose(const struct plan *plan, const struct choosing *c, int i) {
    const struct plan_item *item = &plan->item[i];
    int drafts = c->drafts[i] + 1;
    if (item->rows != 1 || drafts > item->sequence->drafts.n_proposed) return false;
    int more = drafts_blocks(plan, item, drafts) - drafts_blocks(plan, item, c->drafts[i]);
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++)
        if (c->blocks + more > plan->ledger[kind].available) return false;
    return true;
}

/* Returns the item whose next draft is the most likely, or -1. */
static int drafts_likeliest(const struct plan *plan, const struct choosing *c) {
    int best = -1;
    for (int i = 0; i < plan->n_running; i++)
        if (drafts_may_choose(plan, c, i) && (best < 0 || c->next[i] > c->next[best])) best = i;
    return best;
}

/* Chooses the next draft of an item. */
static void drafts_choose(const struct plan *plan, struct choosing *c, int i) {
    const struct plan_item *item = &plan->item[i];
    int drafts = ++c->drafts[i];
    c->next[i] *= drafts_chance(&item->sequence->drafts, drafts);
    c->blocks += drafts_blocks(plan, item, drafts) - drafts_blocks(plan, item, drafts - 1);
    c->item[c->n++] = i;
}

/* Returns how many of the drafts, in the order of choice, yield the most tokens per time. */
static int drafts_choose_all(const struct plan *plan, struct choosing *c) {
    const struct plan_view *view = &plan->view;
    int most = min_int(view->max_rows - plan->rows, view->max_logit_rows - plan->logit_rows);
    float tokens = (float)plan->rows;
    float best = tokens / step_cost_ns(view->cost, plan->rows) * MIN_DRAFT_GAIN;
    int n = 0;
    most = min_int(min_int(most, view->most_drafts), MAX_COST_ROWS - plan->rows);
    while (c->n < most) {
        int i = drafts_likeliest(plan, c);
        if (i < 0 || (c->next[i] < min_chance && !view->fixed_drafts)) break;
        tokens += c->next[i];
        drafts_choose(plan, c, i);
        float ns = step_cost_ns(view->cost, plan->rows + c->n), rate = tokens / ns;
        if (view->itl_target_ns > 0 && ns > view->itl_target_ns && !view->fixed_drafts) break;
        if (rate <= best && !view->fixed_drafts) continue;
        best = rate;
        n = c->n;
    }
    return n;
}

static void drafts_add(struct plan *plan, struct plan_item *item) {
    int blocks = drafts_blocks(plan, item, 1);
    item->rows++;
    item->drafts++;
    item->logit_rows++;
    plan->rows++;
    plan->shape.decode_rows++;
    plan->logit_rows++;
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++) {
        item->blocks[kind] += blocks;
        plan->ledger[kind].available -= blocks;
        assert(plan->ledger[kind].available >= 0);
    }
}

void plan_drafts(struct plan *plan) {
    struct choosing c = {0};
    bool idle = plan->shape.prefill_rows == 0 && plan->n_items == plan->n_kept && plan->rows > 0 &&
                !plan->short_of_blocks;
    if (!plan->view.drafts || !idle || plan->n_running >= MAX_COST_ROWS) return;
    for (int i = 0; i < plan->n_running; i++)
        c.next[i] = drafts_chance(&plan->item[i].sequence->drafts, 0);
    int n = drafts_choose_all(plan, &c);
    for (int i = 0; i < n; i++) drafts_add(plan, &plan->item[c.item[i]]);
}
