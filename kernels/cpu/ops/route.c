/* Chooses the experts of each row and groups rows by expert. The code is scalar C for all paths,
 * because its cost is small compared with the products. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"

#define SMALLEST_SUM 1e-20f /* added to the sum that divides the scores */

/* ---- memory --------------------------------------------------------------------------------- */

enum { LINE = 64 };

/* Reserves `n` elements of `size` bytes after *bytes. With memory NULL it only counts. */
static void *take(uint8_t *memory, size_t *bytes, size_t n, size_t size) {
    void *at = memory ? memory + *bytes : NULL;
    *bytes += round_up(n * size, LINE);
    return at;
}

static size_t lay_out(struct mixture *m, uint8_t *memory) {
    const struct expert_shape *s = &m->shape;
    size_t rows = (size_t)m->max_rows, slots = rows * (size_t)s->n_used, E = (size_t)s->E;
    size_t partial = slots < E ? slots : E; /* experts whose last tile may be partial */
    size_t tiles = slots / LANES + partial;
    size_t K = round_up((size_t)s->K, BLOCK), F = round_up((size_t)s->F, BLOCK), bytes = 0;
    m->h = take(memory, &bytes, rows * (size_t)s->K, sizeof *m->h);
    m->logits = take(memory, &bytes, rows * E, sizeof *m->logits);
    m->shared = take(memory, &bytes, rows, sizeof *m->shared);
    m->expert = take(memory, &bytes, slots, sizeof *m->expert);
    m->weight = take(memory, &bytes, slots, sizeof *m->weight);
    m->first = take(memory, &bytes, E + 1, sizeof *m->first);
    m->tile = take(memory, &bytes, E + 1, sizeof *m->tile);
    m->row_of = take(memory, &bytes, slots, sizeof *m->row_of);
    m->weight_of = take(memory, &bytes, slots, sizeof *m->weight_of);
    m->spans = take(memory, &bytes, tiles, sizeof *m->spans);
    void *inputs = take(memory, &bytes, inputs_bytes(tiles * LANES, K), 1);
    void *hidden = take(memory, &bytes, inputs_bytes(tiles * LANES, F), 1);
    if (!memory) return bytes;
    inputs_lay_out(&m->inputs, inputs, tiles * LANES, K);
    inputs_lay_out(&m->hidden, hidden, tiles * LANES, F);
    return bytes;
}

struct mixture *mixture_new(const struct expert_shape *shape, int max_rows) {
    if (shape->E == 0) return NULL;
    assert(shape->n_used > 0 && shape->n_used <= shape->E && shape->E <= MAX_EXPERTS);
    assert(shape->K > 0 && shape->F > 0 && max_rows > 0 && shape->n_used <= MAX_USED_EXPERTS);
    struct mixture *m = mem_calloc(1, sizeof *m);
    m->shape = *shape;
    m->max_rows = max_rows;
    m->bytes = lay_out(m, NULL);
    m->memory = mem_large(m->bytes); /* unused pages are not allocated */
    lay_out(m, m->memory);
    return m;
}

void mixture_free(struct mixture *mixture) {
    if (mixture) mem_large_free(mixture->memory, mixture->bytes);
    mem_free(mixture);
}

/* ---- a row's experts ------------------------------------------------------------------------ */

/* Writes the n largest of E logits in falling order; ties go to the lower number. */
static void choose(const float *logits, int E, int n, int32_t *best) {
    for (int e = 0; e < E; e++) {
        int at = e < n ? e : n; /* NaNs keep their place */
        while (at > 0 && logits[e] > logits[best[at - 1]]) {
            if (at < n) best[at] = best[at - 1];
            at--;
        }
        if (at < n) best[at] = e;
    }
}

static void sort_rising(int32_t *number, int n) {
    for (int i = 1; i < n; i++) {
        int32_t moved = number[i];
        int at = i;
        for (; at > 0 && number[at - 1] > moved; at--) number[at] = number[at - 1];
        number[at] = moved;
    }
}

/* Excludes the experts outside the best groups. A group ranks by the sum of its two largest values,
 * for a softmax by its largest. */
static void drop_groups(const struct experts *experts, float *choice) {
    int n = experts->n_groups, size = experts->E / n;
    float best[MAX_EXPERT_GROUPS];
    int32_t chosen[MAX_EXPERT_GROUPS];
    bool stays[MAX_EXPERT_GROUPS] = {false};
    assert(n <= MAX_EXPERT_GROUPS && size >= 2 && experts->n_used_groups <= n);
    for (int g = 0; g < n; g++) {
        int32_t two[2];
        choose(choice + g * size, size, 2, two);
        best[g] = choice[g * size + two[0]];
        if (experts->by_sigmoid) best[g] = best[g] + choice[g * size + two[1]];
    }
    choose(best, n, experts->n_used_groups, chosen);
    for (int i = 0; i < experts->n_used_groups; i++) stays[chosen[i]] = true;
    for (int e = 0; e < experts->E; e++)
        if (!stays[e / size]) choice[e] = -INFINITY;
}

/* Writes the sigmoids or the softmax of E logits. */
static void score_all(const float *logits, int E, bool by_sigmoid, float *score) {
    float max = logits[0], s[LANES] = {0};
    for (int e = 0; e < E; e++) {
        if (by_sigmoid) score[e] = 1 / (1 + plain_exp(-logits[e]));
        if (logits[e] > max) max = logits[e];
    }
    if (by_sigmoid) return;
    for (int e = 0; e < E; e++)
        s[e % LANES] = s[e % LANES] + (score[e] = plain_exp(logits[e] - max));
    float sum = tree_sum(s);
    for (int e = 0; e < E; e++) score[e] = score[e] / sum;
}

static void route_by_score(const float *logits, const struct experts *experts, int32_t *expert,
                           float *weight) {
    int E = experts->E, n_used = experts->n_used;
    float score[MAX_EXPERTS], choice[MAX_EXPERTS], sum = 0;
    assert(E <= MAX_EXPERTS);
    score_all(logits, E, experts->by_sigmoid, score);
    for (int e = 0; e < E; e++)
        choice[e] = experts->correction ? score[e] + experts->correction[e] : score[e];
    if (experts->n_used_groups < experts->n_groups) drop_groups(experts, choice);
    choose(choice, E, n_used, expert);
    sort_rising(expert, n_used);
    for (int i = 0; i < n_used; i++) sum = sum + (weight[i] = score[expert[i]]);
    for (int i = 0; i < n_used && experts->normalises; i++)
        weight[i] = weight[i] / (sum + SMALLEST_SUM);
}

static void route_by_softmax(const float *logits, const struct experts *experts, int32_t *expert,
                             float *weight) {
    int E = experts->E, n_used = experts->n_used;
    bool normalises = experts->normalises;
    choose(logits, E, n_used, expert);
    float max = logits[expert[0]], sum = 0, s[LANES] = {0};
    sort_rising(expert, n_used);
    for (int i = 0; i < n_used; i++) {
        weight[i] = plain_exp(logits[expert[i]] - max);
        sum = sum + weight[i];
    }
    for (int e = 0; e < E && !normalises; e++)
        s[e % LANES] = s[e % LANES] + plain_exp(logits[e] - max);
    if (!normalises) sum = tree_sum(s);
    for (int i = 0; i < n_used; i++) weight[i] = weight[i] / sum;
}

void route_row(const float *logits, const struct experts *experts, int32_t *expert, float *weight) {
    assert(experts->n_used > 0 && experts->n_used <= experts->E);
    bool has_groups = experts->n_used_groups < experts->n_groups;
    bool by_score = experts->by_sigmoid || experts->correction || has_groups;
    (by_score ? route_by_score : route_by_softmax)(logits, experts, expert, weight);
    for (int i = 0; i < experts->n_used; i++) {
        weight[i] = weight[i] * experts_weight_scale(experts);
        if (experts->expert_scale) weight[i] = weight[i] * experts->expert_scale[expert[i]];
    }
}

/* ---- an expert's rows ----------------------------------------------------------------------- */

static void list_spans(struct mixture *m, int E) {
    m->n_spans = 0;
    for (int e = 0; e < E; e++) {
        int tiles = tiles_of(m->first[e + 1] - m->first[e]);
        m->tile[e + 1] = m->tile[e] + tiles;
        for (int from = 0; from < tiles; from += TILE_GROUP) {
            int end = from + TILE_GROUP < tiles ? from + TILE_GROUP : tiles;
            m->spans[m->n_spans++] = (struct expert_span){e, from, end};
        }
    }
}

void mixture_group(struct mixture *m, int M, int n_used, int E) {
    int n = M * n_used;
    assert(E <= m->shape.E && M <= m->max_rows && n_used <= m->shape.n_used);
    memset(m->first, 0, ((size_t)E + 1) * sizeof *m->first);
    for (int i = 0; i < n; i++) m->first[m->expert[i] + 1]++;
    for (int e = 0; e < E; e++) m->first[e + 1] += m->first[e];
    assert(m->first[E] == n);
    memcpy(m->tile, m->first, (size_t)E * sizeof *m->tile); /* temporarily the next row's place */
    for (int i = 0; i < n; i++) {
        int at = m->tile[m->expert[i]]++;
        m->row_of[at] = i / n_used;
        m->weight_of[at] = m->weight[i];
    }
    m->tile[0] = 0;
    list_spans(m, E);
    assert(m->n_spans > 0 && m->tile[E] >= tiles_of(n));
}

struct activations mixture_part(const struct mixture *m, const struct activations *of, int expert,
                                int K, const struct linear *linear, int n) {
    struct activations part = *of;
    size_t row = (size_t)m->tile[expert] * LANES, block = row * (size_t)blocks_of(K);
    inputs_begin(&part, m->first[expert + 1] - m->first[expert], K, linear, n);
    part.q += block * BLOCK;
    part.scale += block;
    part.sum += block;
    part.minus_sum += 3 * block;
    part.x += row * (size_t)K;
    part.half_q += block * BLOCK;
    part.half_scale += block;
    return part;
}
