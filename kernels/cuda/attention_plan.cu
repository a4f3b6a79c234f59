/* The work list of attention, made on the host once a step. */
#include "kernels/cuda/attention.cuh"

static int at_least(int a, int b) {
    return a > b ? a : b;
}

static int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

int attention_head_parts(int H, int G) {
    return ceil_div(H / G, ATTENTION_MOST_HEADS);
}

int attention_heads(int H, int G) {
    return ceil_div(H / G, attention_head_parts(H, G));
}

/* What is the same for all sequences of a step. */
struct planner {
    struct attention_plan *plan;
    struct attention_item *items;
    const struct step *step;
    int window;
    int64_t most_parts;
};

/* An item for n rows of sequence s, without what tells whole items from split ones. */
static struct attention_item rows_item(const struct planner *p, int s, int row, int n) {
    struct attention_item item = {};
    item.row = row;
    item.rows = n;
    item.sequence = s;
    const int begin = p->step->position[row] - p->window + 1;
    item.first_split = p->window ? at_least(begin, 0) / SPLIT : 0;
    item.n_splits = p->step->position[row + n - 1] / SPLIT + 1 - item.first_split;
    item.split = item.part = item.counter = -1;
    item.n_neighbours = 1;
    return item;
}

static void plan_whole(const struct planner *p, int s, int row, int end) {
    const int rows = WHOLE_VECTORS / p->plan->heads;
    const int tiles = ceil_div(end - row, rows);
    for (int tile = tiles - 1; tile >= 0; tile--) { /* the last one has the longest context */
        const int at = row + tile * rows;
        const int n = at + rows < end ? rows : end - at;
        p->items[p->plan->n_items++] = rows_item(p, s, at, n);
    }
}

/* Rows of which 16 vectors or fewer come, a block for every four splits. */
static void plan_splits(const struct planner *p, struct attention_item item) {
    struct attention_plan *plan = p->plan;
    item.n_neighbours = ceil_div(item.n_splits, ATTENTION_WARPS);
    if (item.n_splits > 1) {
        item.part = (int32_t)plan->n_parts;
        plan->n_parts += (int64_t)item.n_splits * item.rows * plan->heads;
    }
    if (item.n_neighbours > 1) item.counter = plan->n_counters++;
    for (int i = 0; i < item.n_neighbours; i++) {
        item.split = item.first_split + i * ATTENTION_WARPS;
        p->items[plan->n_items++] = item;
    }
}

/* Splitting pays where a block alone would be long about it and has few rows: a decode row always,
 * a few rows where their context is long. Rows of up to four tiles read the context up to seven
 * times then, from the L2 cache. */
static bool wants_splits(const struct planner *p, const struct attention_item *all) {
    const int vectors = all->rows * p->plan->heads;
    if (p->plan->heads > SPLIT_VECTORS) return false;
    if (vectors > SPLIT_VECTORS && (vectors > WHOLE_VECTORS || all->n_splits <= ATTENTION_WARPS))
        return false;
    return p->plan->n_parts + (int64_t)all->n_splits * vectors <= p->most_parts ||
           all->n_splits == 1;
}

static void plan_sequence(const struct planner *p, int s) {
    const int row = p->step->row_start[s], end = p->step->row_start[s + 1];
    if (row == end) return;
    const struct attention_item all = rows_item(p, s, row, end - row);
    if (!wants_splits(p, &all)) {
        plan_whole(p, s, row, end);
        return;
    }
    const int rows = SPLIT_VECTORS / p->plan->heads;
    for (int at = row; at < end; at += rows)
        plan_splits(p, rows_item(p, s, at, at + rows < end ? rows : end - at));
}

void attention_make_plan(struct attention_plan *plan, struct attention_item *items,
                         const struct step *step, int H, int G, int window, int64_t most_parts) {
    assert(H % G == 0 && window >= 0);
    *plan = {};
    plan->head_parts = attention_head_parts(H, G);
    plan->heads = attention_heads(H, G);
    most_parts = most_parts < INT32_MAX ? most_parts : INT32_MAX;
    const struct planner p = {plan, items, step, window, most_parts};
    for (int s = 0; s < step->S; s++) plan_sequence(&p, s);
}

/* See wants_splits. */
static int most_tiles(int M, int S) {
    return (int)(M < 7 * (int64_t)S ? M : 7 * (int64_t)S);
}

int attention_most_counters(int M, int S) {
    return most_tiles(M, S);
}

/* A row is in one item, or in those of its tile: a tile of n splits has n / 4 and one, and takes at
 * least n * heads parts. */
int attention_most_items(int M, int S, int context, int H, int G, int64_t most_parts) {
    const int64_t tiles = most_tiles(M, S);
    const int64_t seen = M + tiles * ceil_div(ceil_div(context, SPLIT) + 1, ATTENTION_WARPS);
    const int64_t parts = M + most_parts / (ATTENTION_WARPS * attention_heads(H, G)) + 1;
    const int64_t most = seen < parts ? seen : parts;
    assert(most <= INT32_MAX);
    return (int)most;
}

size_t attention_parts_bytes(const struct attention_plan *plan, int G, int D) {
    return (size_t)plan->n_parts * (size_t)(G * plan->head_parts) * (size_t)(D + 2) * sizeof(float);
}

size_t attention_counters_bytes(const struct attention_plan *plan, int G) {
    return (size_t)plan->n_counters * (size_t)(G * plan->head_parts) * sizeof(int32_t);
}
