/* The work list of attention, made on the host once per step. */
#include "kernels/cuda/attention/attention.cuh"

static int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

int attention_head_parts(int H, int G, int most_heads) {
    return ceil_div(H / G, most_heads);
}

int attention_heads(int H, int G, int most_heads) {
    return ceil_div(H / G, attention_head_parts(H, G, most_heads));
}

/* A block's heads fill 16, 32 or 64 vectors. */
static int split_vectors_for(int heads) {
    assert(heads > 0 && heads <= ATTENTION_MOST_HEADS);
    return heads <= SPLIT_VECTORS ? SPLIT_VECTORS : heads <= 2 * SPLIT_VECTORS ? 32 : 64;
}

/* Data shared by all sequences of a step. */
struct planner {
    struct attention_plan *plan;
    struct attention_item *items;
    const struct step *step;
    const struct attention_sight *sight;
    int64_t max_parts;
    int whole_vectors; /* vectors per whole item */
};

struct attention_range attention_seen(const struct step *step, int s, int row,
                                      const struct attention_sight *sight) {
    const int position = step->position[row], window = sight->window;
    const int first = window ? max_int(position - window + 1, 0) : 0;
    if (!sight->both_ways) return {first, position};
    const int end = step->position[step->row_start[s + 1] - 1];
    return {first, window && window <= end - position ? position + window - 1 : end};
}

/* An item for n rows of sequence s, not yet marked as whole or split. */
static struct attention_item rows_item(const struct planner *p, int s, int row, int n) {
    struct attention_item item = {};
    assert(n > 0 && row + n <= p->step->M);
    item.row = row;
    item.rows = n;
    item.sequence = s;
    item.first_split = attention_seen(p->step, s, row, p->sight).first / SPLIT;
    const int last = attention_seen(p->step, s, row + n - 1, p->sight).last;
    item.n_splits = last / SPLIT + 1 - item.first_split;
    item.span = item.part = item.counter = -1;
    item.n_neighbours = 1;
    return item;
}

static void plan_whole(const struct planner *p, int s, int row, int end) {
    const int rows = p->whole_vectors / p->plan->heads;
    assert(rows > 0);
    const int tiles = ceil_div(end - row, rows);
    p->plan->n_whole += tiles;
    for (int tile = tiles - 1; tile >= 0; tile--) { /* the last one has the longest context */
        const int at = row + tile * rows;
        const int n = at + rows < end ? rows : end - at;
        p->items[p->plan->n_items++] = rows_item(p, s, at, n);
    }
}

/* The number of spans that an item's rows see. */
static int spans_of(const struct attention_item *item) {
    const int end = item->first_split + item->n_splits;
    return ceil_div(end, SPAN_SPLITS) - item->first_split / SPAN_SPLITS;
}

/* Plans rows of at most split_vectors vectors: a block per span. */
static void plan_splits(const struct planner *p, struct attention_item item) {
    struct attention_plan *plan = p->plan;
    item.n_neighbours = spans_of(&item);
    assert(item.rows * plan->heads <= plan->split_vectors && item.n_neighbours > 0);
    if (item.n_neighbours > 1) {
        item.part = (int32_t)plan->n_parts;
        plan->n_parts += (int64_t)item.n_neighbours * item.rows * plan->heads;
        item.counter = plan->n_counters++;
    }
    for (int i = 0; i < item.n_neighbours; i++) {
        item.span = item.first_split / SPAN_SPLITS + i;
        p->items[plan->n_items++] = item;
    }
}

/* Splitting pays off if one block would take long for few rows: always for a decode row, and for a
 * few rows with a long context. Rows of up to four tiles then read the context up to seven times,
 * from the L2 cache. */
enum { FEW_SPANS = 4, FEW_TILES = WHOLE_VECTORS / SPLIT_VECTORS };
static bool wants_splits(const struct planner *p, const struct attention_item *all) {
    const int vectors = all->rows * p->plan->heads, spans = spans_of(all);
    const int most = p->plan->split_vectors;
    if (vectors > most && (vectors > FEW_TILES * most || spans <= FEW_SPANS)) return false;
    return p->plan->n_parts + (int64_t)spans * vectors <= p->max_parts || spans == 1;
}

/* Plans the items of a sequence if it is to be split. Returns false if its items are whole. */
static bool split_sequence(const struct planner *p, int s) {
    const int row = p->step->row_start[s], end = p->step->row_start[s + 1];
    if (row == end) return true;
    const struct attention_item all = rows_item(p, s, row, end - row);
    if (!wants_splits(p, &all)) return false;
    const int rows = p->plan->split_vectors / p->plan->heads;
    for (int at = row; at < end; at += rows)
        plan_splits(p, rows_item(p, s, at, at + rows < end ? rows : end - at));
    return true;
}

static void plan_sequences(const struct planner *p) {
    const int32_t *row_start = p->step->row_start;
    for (int s = 0; s < p->step->S; s++)
        if (!split_sequence(p, s)) plan_whole(p, s, row_start[s], row_start[s + 1]);
}

/* Plans all split items, then the whole items of the other sequences. */
static void plan_chunks(const struct planner *p) {
    const int32_t *row_start = p->step->row_start;
    for (int s = 0; s < p->step->S; s++) split_sequence(p, s);
    const int n_split = p->plan->n_items;
    for (int s = 0, i = 0; s < p->step->S; s++) {
        const bool is_split = i < n_split && p->items[i].sequence == s;
        if (!is_split) plan_whole(p, s, row_start[s], row_start[s + 1]);
        while (i < n_split && p->items[i].sequence == s) i++;
    }
    p->plan->n_chunks = p->plan->n_whole;
}

void attention_make_plan(struct attention_plan *plan, struct attention_item *items,
                         const struct step *step, int H, int G, const struct attention_sight *sight,
                         int64_t max_parts, bool chunks, int most_heads) {
    assert(H % G == 0 && sight->window >= 0 && most_heads <= ATTENTION_MOST_HEADS);
    *plan = {};
    plan->head_parts = attention_head_parts(H, G, most_heads);
    plan->heads = attention_heads(H, G, most_heads);
    plan->split_vectors = split_vectors_for(plan->heads);
    assert(plan->heads <= most_heads && plan->heads <= WHOLE_VECTORS);
    max_parts = max_parts < INT32_MAX ? max_parts : INT32_MAX;
    const struct planner p = {plan,  items,     step,
                              sight, max_parts, chunks ? CHUNK_VECTORS : WHOLE_VECTORS};
    if (chunks)
        plan_chunks(&p);
    else
        plan_sequences(&p);
    assert(plan->n_parts <= max_parts);
}

/* See wants_splits. */
static int max_tiles(int M, int S) {
    return (int)(M < 7 * (int64_t)S ? M : 7 * (int64_t)S);
}

int attention_max_counters(int M, int S) {
    return max_tiles(M, S);
}

/* A row is in one whole item or in the split items of its tile: a tile of n > 1 spans has n items
 * and at least n * heads parts. */
int attention_max_items(int M, int S, int context, int H, int G, int64_t max_parts,
                        int most_heads) {
    const int64_t tiles = max_tiles(M, S);
    const int64_t seen = M + tiles * ceil_div(context, SPAN);
    const int64_t parts = M + max_parts / attention_heads(H, G, most_heads);
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
