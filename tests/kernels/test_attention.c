/* Attention over the paged cache: compared with double precision, and the same bytes on every path,
 * for any division of the context into steps, any order of its blocks, any other sequences in the
 * batch and any number of threads. ctest label: slow */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

/* The shape of a head and of the cache, and the options of attention. */
struct shape {
    int H, G, D, B;
    enum dtype dtype;
    int window;
    float cap;
    bool has_sinks, has_slopes;
};

static const struct shape shapes[] = {
    {9, 3, 64, 16, DTYPE_F16},
    {9, 3, 64, 16, DTYPE_F32},
    {4, 4, 20, 5, DTYPE_F16},
    {14, 2, 32, 32, DTYPE_F16},
    {26, 1, 16, 7, DTYPE_F32},
    {2, 1, 8, 1, DTYPE_F16},
    {2, 1, 128, 24, DTYPE_F32},
    {9, 3, 64, 16, DTYPE_I16},
    {9, 3, 64, 16, DTYPE_Q8_0},
    {4, 4, 20, 6, DTYPE_I16},
    {14, 2, 32, 32, DTYPE_Q8_0},
    {26, 1, 15, 2, DTYPE_I16},
    {2, 1, 128, 24, DTYPE_I16},
    {3, 3, 80, 48, DTYPE_Q8_0},
    {8, 1, 100, 10, DTYPE_I16},
    /* a cap; windows of one position, of some, of about a chunk, and of more than that */
    {9, 3, 64, 16, DTYPE_F16, 0, 5},
    {9, 3, 64, 16, DTYPE_Q8_0, 0, 5},
    {26, 1, 16, 7, DTYPE_F32, 1, 0},
    {26, 1, 15, 2, DTYPE_I16, 1, 0},
    {4, 4, 20, 5, DTYPE_F16, 7, 2},
    {4, 4, 20, 6, DTYPE_I16, 7, 2},
    {9, 3, 64, 16, DTYPE_F16, 100, 20},
    {9, 3, 64, 16, DTYPE_I16, 100, 20},
    {14, 2, 32, 32, DTYPE_F32, 255, 0},
    {14, 2, 32, 32, DTYPE_Q8_0, 256, 0},
    {2, 1, 128, 24, DTYPE_F32, 300, 50},
    {2, 1, 128, 24, DTYPE_I16, 257, 50},
    /* sinks, which outweigh the positions in some heads */
    {9, 3, 64, 16, DTYPE_F16, 0, 0, true},
    {14, 2, 32, 32, DTYPE_Q8_0, 100, 0, true},
    {4, 4, 20, 6, DTYPE_I16, 1, 2, true},
    /* slopes, alone and with all the rest */
    {9, 3, 64, 16, DTYPE_F16, 0, 0, false, true},
    {14, 2, 32, 32, DTYPE_F32, 300, 0, false, true},
    {4, 4, 20, 6, DTYPE_I16, 100, 20, true, true},
};
static const float sinks[14] = {-9, 1, 4, 0.5f, 60, -60, 2, 7, 0, -1, 3, 5, 90, 1};
static const float slopes[14] = {0.5f,    0.25f, 0.125f, 0.0625f, 0.01f,  0, 0.003f,
                                 0.0001f, 1,     0.7f,   0.02f,   0.005f, 2, 0.9f};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, LAYERS = 2, LAYER = 1, TOKENS = 525 };

/* The positions that are compared: the first of a sequence, and those around the ends of chunks of
 * context. The keys and values of other positions are written without attention, which keeps the
 * test short. */
static const int windows[][2] = {{0, 20}, {250, 262}, {505, 525}};
enum { N_WINDOWS = sizeof windows / sizeof *windows };

static bool looked_at(int from, int to) {
    for (int i = 0; i < N_WINDOWS; i++)
        if (from < windows[i][1] && to > windows[i][0]) return true;
    return false;
}

/* One sequence: queries, keys and values of all its tokens, and the places of its blocks. */
struct sequence {
    float *q, *k, *v; /* [TOKENS][H or G][D] */
    int32_t *table;
};

static int table_blocks(const struct shape *s) {
    return (TOKENS + s->B - 1) / s->B;
}

/* Makes sequence `number` of those that share a cache. If `spread` is not 0, its blocks are in
 * another order. */
static struct sequence sequence_new(const struct shape *s, uint64_t seed, int number, int spread) {
    uint64_t state = seed;
    struct sequence sequence;
    sequence.q = random_floats(&state, (size_t)TOKENS * (size_t)(s->H * s->D));
    sequence.k = random_floats(&state, (size_t)TOKENS * (size_t)(s->G * s->D));
    sequence.v = random_floats(&state, (size_t)TOKENS * (size_t)(s->G * s->D));
    int n = table_blocks(s);
    sequence.table = mem_alloc((size_t)n * sizeof(int32_t));
    for (int i = 0; i < n; i++) {
        int place = spread ? n - 1 - (i + spread) % n : i;
        sequence.table[i] = (int32_t)(number + 3 * place);
    }
    return sequence;
}

static void sequence_free(struct sequence *s) {
    free(s->q), free(s->k), free(s->v), free(s->table);
}

static struct kv_cache *cache_new(struct backend *b, const struct shape *s) {
    struct kv_config config = {LAYERS, s->G, s->D, 3 * table_blocks(s), s->B, s->dtype};
    struct kv_cache *cache = NULL;
    struct err err = {0};
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, &err), STATUS_OK);
    return cache;
}

enum { MAX_ROWS = 96, MAX_SEQUENCES = 3 };

/* The rows of a step: rows from..to-1 of some sequences. */
struct gathered {
    struct step step;
    int32_t token[MAX_ROWS], position[MAX_ROWS], slot[MAX_ROWS], row_start[MAX_SEQUENCES + 1];
    int32_t *table;
    float *q, *k, *v, *y;
};

static void gather_rows(struct gathered *g, const struct shape *s, const struct sequence *sequence,
                        int from, int to) {
    size_t q = (size_t)(s->H * s->D), kv = (size_t)(s->G * s->D), n = (size_t)table_blocks(s);
    memcpy(g->table + (size_t)g->step.S * n, sequence->table, n * sizeof(int32_t));
    for (int p = from; p < to; p++) {
        int m = g->step.M++;
        g->position[m] = p;
        g->slot[m] = sequence->table[p / s->B] * s->B + p % s->B;
        memcpy(g->q + (size_t)m * q, sequence->q + (size_t)p * q, q * sizeof(float));
        memcpy(g->k + (size_t)m * kv, sequence->k + (size_t)p * kv, kv * sizeof(float));
        memcpy(g->v + (size_t)m * kv, sequence->v + (size_t)p * kv, kv * sizeof(float));
    }
    g->row_start[++g->step.S] = g->step.M;
}

static struct gathered *gathered_new(const struct shape *s) {
    struct gathered *g = mem_calloc(1, sizeof *g);
    size_t row = (size_t)(s->H * s->D) * sizeof(float);
    g->table = mem_alloc(MAX_SEQUENCES * (size_t)table_blocks(s) * sizeof(int32_t));
    g->q = mem_alloc(MAX_ROWS * row), g->k = mem_alloc(MAX_ROWS * row);
    g->v = mem_alloc(MAX_ROWS * row), g->y = mem_alloc(MAX_ROWS * row);
    g->step = (struct step){.token = g->token,
                            .position = g->position,
                            .slot = g->slot,
                            .row_start = g->row_start,
                            .table = g->table,
                            .table_stride = table_blocks(s)};
    return g;
}

static void gathered_free(struct gathered *g) {
    free(g->table), free(g->q), free(g->k), free(g->v), free(g->y), free(g);
}

static int first_seen(const struct shape *s, int position) {
    return s->window && position >= s->window ? position - s->window + 1 : 0;
}

/* Overwrites the data that rows from position `from` on must not read: keys and values before their
 * window become NaN (for codes, their scales), and blocks before it are removed from the table. */
static void forget(struct kv_cache *cache, const struct shape *s, const struct sequence *sequence,
                   struct gathered *g, int from) {
    const struct kv_kind *kv = kv_kind(cache, LAYER);
    int seen = first_seen(s, from), place = cache->layer[LAYER].place;
    size_t element = kv->element_bytes, pair = kv->coded ? 2 : 1, B = (size_t)s->B;
    for (int p = 0; p < seen; p++) {
        size_t at = (size_t)(p % s->B), width = (size_t)kv->D_padded;
        for (int i = 0; i < s->G; i++) {
            uint8_t *keys = kv_head_keys(kv, place, sequence->table[p / s->B], i);
            uint8_t *values = kv_head_values(kv, place, sequence->table[p / s->B], i);
            for (size_t d = 0; d < (size_t)s->D; d++) {
                memset(keys + (d / pair * B * pair + at * pair + d % pair) * element, 255, element);
                memset(values + ((at / pair * width + d) * pair + at % pair) * element, 255,
                       element);
            }
            for (int n = 0; n < kv->n_scales; n++) {
                memset(keys + kv->head_key_codes + ((size_t)n * B + at) * 4, 255, 4);
                memset(values + kv->head_value_codes + ((size_t)n * B + at) * 4, 255, 4);
            }
        }
        if (p / s->B < seen / s->B) g->table[p / s->B] = INT32_MIN;
    }
}

static void write_step(struct backend *b, struct kv_cache *cache, struct gathered *g) {
    b->compute->step_begin(b, &g->step, cache);
    b->compute->rope_write(b, cache, LAYER, &(struct heads){0}, NULL, g->k, g->v);
}

static const float *sinks_of(const struct shape *s) {
    assert(!s->has_sinks || (size_t)s->H <= sizeof sinks / sizeof *sinks);
    return s->has_sinks ? sinks : NULL;
}

static void run_step(struct backend *b, struct kv_cache *cache, const struct shape *s,
                     struct gathered *g) {
    write_step(b, cache, g);
    const struct attention attention = {.H = s->H,
                                        .scale = 0.11f,
                                        .cap = s->cap,
                                        .window = s->window,
                                        .sinks = sinks_of(s),
                                        .slopes = s->has_slopes ? slopes : NULL};
    b->compute->attention(b, g->y, g->q, cache, LAYER, &attention);
}

/* Runs the tokens of a sequence in steps of at most `chunk` rows. Writes the compared rows to y
 * [n][H][D], and overwrites the positions that the windows have passed. */
static void run_alone(struct backend *b, struct kv_cache *cache, const struct shape *s,
                      const struct sequence *sequence, int n, int chunk, float *y) {
    struct gathered *g = gathered_new(s);
    for (int from = 0; from < n; from += chunk) {
        int to = from + chunk < n ? from + chunk : n;
        g->step.M = g->step.S = 0;
        gather_rows(g, s, sequence, from, to);
        forget(cache, s, sequence, g, from);
        if (!looked_at(from, to)) {
            write_step(b, cache, g);
            continue;
        }
        run_step(b, cache, s, g);
        memcpy(y + (size_t)from * (size_t)(s->H * s->D), g->y,
               (size_t)((to - from) * s->H * s->D) * sizeof(float));
    }
    gathered_free(g);
}

static float *result_new(const struct shape *s) {
    return mem_calloc((size_t)TOKENS * (size_t)(s->H * s->D), sizeof(float));
}

static void assert_same_windows(const struct shape *s, const float *y, const float *right, int n,
                                const char *what) {
    size_t row = (size_t)(s->H * s->D);
    for (int i = 0; i < N_WINDOWS; i++) {
        size_t from = (size_t)windows[i][0], to = (size_t)windows[i][1];
        if (to <= (size_t)n)
            assert_same_floats(y + from * row, right + from * row, (to - from) * row, what);
    }
}

/* Returns the result of plain C for a sequence. The caller frees it. */
static float *plain_result(const struct shape *s, const struct sequence *sequence) {
    struct backend *b = open_backend("plain", 1, MAX_ROWS, 256);
    struct kv_cache *cache = cache_new(b, s);
    float *y = result_new(s);
    run_alone(b, cache, s, sequence, TOKENS, 6, y);
    b->cache->kv_free(b, cache);
    backend_close(b);
    return y;
}

/* Returns number d of a head's vector x as the cache stores it. */
static double kept(const struct shape *s, const float *x, int d) {
    if (s->dtype == DTYPE_F32) return (double)x[d];
    if (s->dtype == DTYPE_F16) return (double)half_to_float(float_to_half(x[d]));
    int most = s->dtype == DTYPE_I16 ? 8191 : 127, from = d / 64 * 64;
    double largest = 0;
    for (int i = from; i < from + 64 && i < s->D; i++) largest = fmax(largest, fabs((double)x[i]));
    return nearbyint((double)x[d] * most / largest) * largest / most;
}

/* Computes the head of one row in double precision. */
static void reference(const struct shape *s, const struct sequence *sequence, int position, int h,
                      double *y) {
    int g = h / (s->H / s->G), first = first_seen(s, position);
    double weights[TOKENS], most = -INFINITY, sum = 0;
    const float *q = sequence->q + (position * s->H + h) * s->D;
    for (int j = first; j <= position; j++) {
        weights[j] = 0;
        for (int d = 0; d < s->D; d++)
            weights[j] += (double)q[d] * kept(s, sequence->k + (j * s->G + g) * s->D, d);
        weights[j] *= (double)0.11f;
        if (s->has_slopes) weights[j] -= (double)slopes[h] * (position - j);
        if (s->cap > 0) weights[j] = (double)s->cap * tanh(weights[j] / (double)s->cap);
        most = fmax(most, weights[j]);
    }
    if (s->has_sinks) most = fmax(most, (double)sinks[h]), sum = exp((double)sinks[h] - most);
    for (int j = first; j <= position; j++) sum += weights[j] = exp(weights[j] - most);
    for (int d = 0; d < s->D; d++) {
        y[d] = 0;
        for (int j = first; j <= position; j++)
            y[d] += weights[j] / sum * kept(s, sequence->v + (j * s->G + g) * s->D, d);
    }
}

/* A score in the tens is a sum of D products rounded to 24 bits, and its error is an error of the
 * weight's exponent: 2e-5. With a cache of codes, queries are rounded to 1/8190 of their largest
 * number, which is 20 times an ordinary one in one of eight heads: 3e-2. */
START_TEST(attention_is_accurate) {
    const struct shape *s = &shapes[_i];
    double bound = s->dtype == DTYPE_I16 || s->dtype == DTYPE_Q8_0 ? 3e-2 : 2e-5;
    struct sequence sequence = sequence_new(s, 11, 0, 1);
    float *y = plain_result(s, &sequence);
    for (int position = 0; position < TOKENS; position++) {
        for (int h = 0; h < s->H && looked_at(position, position + 1); h++) {
            double right[128];
            reference(s, &sequence, position, h, right);
            for (int d = 0; d < s->D; d++)
                ck_assert_double_eq_tol((double)y[(position * s->H + h) * s->D + d], right[d],
                                        bound * (1 + fabs(right[d])));
        }
    }
    free(y);
    sequence_free(&sequence);
}
END_TEST

/* Checks every path, one to four threads, steps of one row up to MAX_ROWS, and blocks in another
 * order. */
START_TEST(steps_paths_and_blocks_change_nothing) {
    static const int chunks[] = {MAX_ROWS, 1, 17, 50};
    const struct shape *s = &shapes[_i];
    struct sequence sequence = sequence_new(s, 21, 0, 0);
    float *right = plain_result(s, &sequence), *y = result_new(s);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        for (int i = 0; i < 4; i++) {
            int n = strcmp(*path, "plain") ? TOKENS : 270;
            struct sequence same = sequence_new(s, 21, i % 3, 5 * i);
            struct backend *b = open_backend(*path, 1 + i, MAX_ROWS, 256);
            struct kv_cache *cache = cache_new(b, s);
            run_alone(b, cache, s, &same, n, chunks[i], y);
            assert_same_windows(s, y, right, n, *path);
            b->cache->kv_free(b, cache);
            backend_close(b);
            sequence_free(&same);
        }
    }
    free(right), free(y);
    sequence_free(&sequence);
}
END_TEST

/* Three sequences of different lengths in one batch have the same results as each alone. */
START_TEST(sequences_do_not_see_each_other) {
    const struct shape *s = &shapes[_i];
    static const int from[3] = {520, 0, 250}, to[3] = {521, 20, 262};
    struct sequence sequence[3];
    float *right[3];
    struct backend *b = open_backend(NULL, 2, MAX_ROWS, 256);
    struct kv_cache *cache = cache_new(b, s);
    struct gathered *g = gathered_new(s);
    for (int i = 0; i < 3; i++) {
        sequence[i] = sequence_new(s, 31 + (uint64_t)i, i, i);
        right[i] = result_new(s);
        run_alone(b, cache, s, &sequence[i], to[i], MAX_ROWS, right[i]);
    }
    g->step.M = g->step.S = 0;
    for (int i = 0; i < 3; i++) gather_rows(g, s, &sequence[i], from[i], to[i]);
    run_step(b, cache, s, g);
    size_t row = (size_t)(s->H * s->D);
    for (int i = 0; i < 3; i++)
        assert_same_floats(g->y + (size_t)g->row_start[i] * row, right[i] + (size_t)from[i] * row,
                           (size_t)(to[i] - from[i]) * row, "batch");
    for (int i = 0; i < 3; i++) free(right[i]), sequence_free(&sequence[i]);
    gathered_free(g);
    b->cache->kv_free(b, cache);
    backend_close(b);
}
END_TEST

/* A copied block gives the same results as the original. */
START_TEST(copies_serve_as_the_original) {
    const struct shape *s = &shapes[_i];
    struct sequence first = sequence_new(s, 41, 0, 0), second = sequence_new(s, 41, 1, 3);
    struct backend *b = open_backend(NULL, 2, MAX_ROWS, 256);
    struct kv_cache *cache = cache_new(b, s);
    float *right = result_new(s);
    run_alone(b, cache, s, &first, 260, 50, right);
    struct gathered *g = gathered_new(s);
    gather_rows(g, s, &second, 259, 260);
    g->step.n_copies = table_blocks(s);
    g->step.copy_from = first.table;
    g->step.copy_to = second.table;
    run_step(b, cache, s, g);
    size_t row = (size_t)(s->H * s->D);
    assert_same_floats(g->y, right + 259 * row, row, "copy");
    gathered_free(g), free(right);
    sequence_free(&first), sequence_free(&second);
    b->cache->kv_free(b, cache);
    backend_close(b);
}
END_TEST

/* The last step of a sequence with gates: each output is divided by 1 + exp(-gate). */
START_TEST(gates_multiply_the_outputs) {
    const struct shape *s = &shapes[_i];
    const size_t n = (size_t)(MAX_ROWS * s->H * s->D);
    struct sequence sequence = sequence_new(s, 31, 0, 0);
    uint64_t seed = 5;
    float *gate = random_floats(&seed, n);
    struct gathered *g = gathered_new(s);
    gather_rows(g, s, &sequence, 0, MAX_ROWS);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 1 + _i % 3, MAX_ROWS, 256);
        struct kv_cache *cache = cache_new(b, s);
        run_step(b, cache, s, g);
        float *right = mem_alloc(n * sizeof *right);
        memcpy(right, g->y, n * sizeof *right);
        for (size_t i = 0; i < n; i++) right[i] = right[i] / (1.0f + plain_exp(-gate[i]));
        const struct attention attention = {.H = s->H,
                                            .scale = 0.11f,
                                            .cap = s->cap,
                                            .window = s->window,
                                            .sinks = sinks_of(s),
                                            .slopes = s->has_slopes ? slopes : NULL,
                                            .gate = gate};
        b->compute->attention(b, g->y, g->q, cache, LAYER, &attention);
        assert_same_floats(g->y, right, n, *path);
        mem_free(right);
        b->cache->kv_free(b, cache);
        backend_close(b);
    }
    gathered_free(g);
    free(gate);
    sequence_free(&sequence);
}
END_TEST

START_TEST(a_cache_that_cannot_be_is_refused) {
    const struct kv_config wrong[] = {{1, 1, 64, 10, 16, DTYPE_Q4_0},
                                      {1, 1, 64, 10, 5, DTYPE_Q8_0},
                                      {1, 1, 64, 10, 7, DTYPE_I16},
                                      {0, 1, 64, 10, 16, DTYPE_F16},
                                      {1, -1, 64, 10, 16, DTYPE_F16},
                                      {1, 1, 64, 0, 16, DTYPE_F16},
                                      {1, 1, 0, 10, 16, DTYPE_F16},
                                      {1, 1, 64, 10, 0, DTYPE_F16},
                                      {INT32_MAX, INT32_MAX, 64, INT32_MAX, 16, DTYPE_F16},
                                      {1, 1, INT32_MAX, 1, 1, DTYPE_F32}};
    struct backend *b = open_backend(NULL, 1, 1, 32);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct kv_cache *cache = NULL;
        struct err err = {0};
        ck_assert_int_eq(b->cache->kv_new(b, &cache, &wrong[i], &err), STATUS_USAGE);
        ck_assert_ptr_null(cache);
        ck_assert(err.message[0]);
    }
    backend_close(b);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_attention");
    TCase *core = tcase_create("attention");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, attention_is_accurate, 0, N_SHAPES);
    tcase_add_loop_test(core, steps_paths_and_blocks_change_nothing, 0, N_SHAPES);
    tcase_add_loop_test(core, sequences_do_not_see_each_other, 0, N_SHAPES);
    tcase_add_loop_test(core, copies_serve_as_the_original, 0, N_SHAPES);
    tcase_add_loop_test(core, gates_multiply_the_outputs, 0, N_SHAPES);
    tcase_add_test(core, a_cache_that_cannot_be_is_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
