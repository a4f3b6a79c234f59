/* Writing keys and values to the cache: each path writes the bytes that plain C writes row by row,
 * for any division of the rows into steps and any number of threads. */
#include <assert.h>
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { MAX_ROWS = 96, N_BLOCKS = 12, HEADS = 3 };

struct shape {
    int G, D, B;
    enum dtype dtype;
    enum rope_layout layout;
};

static const struct shape shapes[] = {
    {3, 64, 16, DTYPE_I16, ROPE_ADJACENT}, {3, 64, 16, DTYPE_Q8_0, ROPE_HALVES},
    {3, 64, 16, DTYPE_F16, ROPE_ADJACENT}, {3, 64, 16, DTYPE_F32, ROPE_HALVES},
    {1, 15, 2, DTYPE_I16, ROPE_HALVES},    {2, 100, 10, DTYPE_Q8_0, ROPE_ADJACENT},
    {1, 128, 24, DTYPE_I16, ROPE_HALVES},  {2, 80, 48, DTYPE_Q8_0, ROPE_HALVES},
    {1, 20, 7, DTYPE_F16, ROPE_ADJACENT},  {2, 33, 1, DTYPE_F32, ROPE_HALVES},
    {1, 256, 32, DTYPE_F16, ROPE_HALVES},  {2, 7, 34, DTYPE_F32, ROPE_ADJACENT},
    {2, 72, 64, DTYPE_I16, ROPE_ADJACENT}, {2, 96, 16, DTYPE_Q8_0, ROPE_ADJACENT},
    {2, 33, 20, DTYPE_Q8_0, ROPE_HALVES},  {1, 256, 16, DTYPE_I16, ROPE_HALVES},
    {2, 80, 32, DTYPE_F16, ROPE_HALVES},   {1, 7, 6, DTYPE_Q8_0, ROPE_ADJACENT},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* The rows of a test: their numbers and places. */
struct rows {
    int M;
    float *q, *k, *v;
    int32_t position[MAX_ROWS], slot[MAX_ROWS];
};

static size_t row_floats(const struct shape *s, int heads) {
    return (size_t)heads * (size_t)s->D;
}

/* Is the place free, and the other position of its pair of values? Rows of other runs, which
 * another thread may write, never share a pair. */
static bool is_free(const bool *taken, const struct shape *s, int slot) {
    const int offset = slot % s->B, other = offset % 2 ? slot - 1 : slot + 1;
    return !taken[slot] && ((offset | 1) >= s->B || !taken[other]);
}

/* Fills the places of blocks: runs of random length at random beginnings, each place once. */
static void choose_slots(struct rows *rows, const struct shape *s, uint64_t *state) {
    bool taken[N_BLOCKS * 64] = {false};
    const int places = N_BLOCKS * s->B;
    assert(s->B <= 64);
    rows->M = 0;
    for (int tries = 0; tries < 400 && rows->M < MAX_ROWS; tries++) {
        const int first = random_below(state, places);
        int slot = first, n = 1 + random_below(state, 40);
        if (tries % 3 == 0) n = 1; /* a decode row */
        for (; n > 0 && slot < places && rows->M < MAX_ROWS; n--, slot++) {
            const bool second = slot > first && slot % s->B % 2;
            if (taken[slot] || (!second && !is_free(taken, s, slot))) break;
            taken[slot] = true;
            rows->position[rows->M] = (slot * 7) % 300;
            rows->slot[rows->M++] = slot;
        }
    }
}

static struct rows rows_new(const struct shape *s, uint64_t seed) {
    uint64_t state = seed;
    struct rows rows;
    choose_slots(&rows, s, &state);
    rows.q = random_floats(&state, MAX_ROWS * row_floats(s, HEADS * s->G));
    rows.k = random_floats(&state, MAX_ROWS * row_floats(s, s->G));
    rows.v = random_floats(&state, MAX_ROWS * row_floats(s, s->G));
    /* a head of zeros, a NaN and an infinity */
    memset(rows.k, 0, (size_t)s->D * sizeof *rows.k);
    rows.v[s->D / 2] = NAN;
    if (rows.M > 2) rows.k[2 * row_floats(s, s->G)] = INFINITY;
    return rows;
}

static void rows_free(struct rows *rows) {
    free(rows->q), free(rows->k), free(rows->v);
}

/* Writes the rows from..end-1 in one step. Rotated queries go to q. */
static void write_step(struct backend *b, struct kv_cache *cache, const struct shape *s,
                       const struct rows *rows, int from, int end, float *q) {
    static float inv_freq[128];
    for (int i = 0; i < 128; i++) inv_freq[i] = powf(10000, -(float)i / 64);
    const size_t of_q = row_floats(s, HEADS * s->G), of_k = row_floats(s, s->G);
    const size_t n = (size_t)(end - from), first = (size_t)from;
    float *k = mem_alloc(n * of_k * sizeof *k), *v = mem_alloc(n * of_k * sizeof *v);
    memcpy(k, rows->k + first * of_k, n * of_k * sizeof *k);
    memcpy(v, rows->v + first * of_k, n * of_k * sizeof *v);
    memcpy(q + first * of_q, rows->q + first * of_q, n * of_q * sizeof *q);
    struct step step = {
        .M = end - from, .position = rows->position + from, .slot = rows->slot + from};
    struct heads heads = {.H = HEADS * s->G, .rope = {s->D / 2 * 2, inv_freq, s->layout}};
    b->compute->step_begin(b, &step, cache);
    b->compute->rope_write(b, cache, 1, &heads, q + first * of_q, k, v);
    free(k), free(v);
}

/* The bytes of all blocks and the rotated queries, after two writes of each place. */
struct written {
    uint8_t *blocks;
    size_t bytes;
    float *q;
};

static struct written write_all(struct backend *b, const struct shape *s, const struct rows *rows,
                                int at_once) {
    struct kv_config config = {2, s->G, s->D, N_BLOCKS, s->B, s->dtype};
    struct kv_cache *cache = NULL;
    struct err err = {0};
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, &err), STATUS_OK);
    struct written w;
    w.q = mem_calloc(MAX_ROWS * row_floats(s, HEADS * s->G), sizeof *w.q);
    for (int set = 0; set < 2; set++)
        for (int m = 0; m < rows[set].M; m += at_once) {
            int end = m + at_once < rows[set].M ? m + at_once : rows[set].M;
            write_step(b, cache, s, &rows[set], m, end, w.q);
        }
    size_t of_block = b->cache->kv_part_bytes(cache, PART_BLOCK);
    w.bytes = N_BLOCKS * of_block;
    w.blocks = mem_alloc(w.bytes);
    for (int i = 0; i < N_BLOCKS; i++)
        op_kv_part_get(cache, PART_BLOCK, i, w.blocks + (size_t)i * of_block);
    b->cache->kv_free(b, cache);
    return w;
}

static void written_free(struct written *w) {
    free(w->blocks), free(w->q);
}

static void check_path(const char *path, int threads, int at_once, const struct shape *s,
                       const struct rows *rows, const struct written *right) {
    struct backend *b = open_backend(path, threads, MAX_ROWS, 64);
    struct written w = write_all(b, s, rows, at_once);
    ck_assert_uint_eq(w.bytes, right->bytes);
    assert_same_floats(w.q, right->q, (size_t)rows[1].M * row_floats(s, HEADS * s->G), path);
    ck_assert_msg(memcmp(w.blocks, right->blocks, w.bytes) == 0, "%s, %d threads, %d rows a step",
                  path, threads, at_once);
    written_free(&w);
    backend_close(b);
}

START_TEST(paths_write_the_bytes_of_single_rows) {
    const struct shape *s = &shapes[_i];
    struct rows rows[2] = {rows_new(s, 5 + (uint64_t)_i), rows_new(s, 77 + (uint64_t)_i)};
    ck_assert_int_gt(rows[0].M + rows[1].M, 8);
    struct backend *plain = open_backend("plain", 1, MAX_ROWS, 64);
    struct written right = write_all(plain, s, rows, 1);
    backend_close(plain);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        check_path(*path, 1, 1, s, rows, &right);
        check_path(*path, 1, MAX_ROWS, s, rows, &right);
        check_path(*path, 3, MAX_ROWS, s, rows, &right);
        check_path(*path, 2, 13, s, rows, &right);
    }
    written_free(&right);
    rows_free(&rows[0]), rows_free(&rows[1]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_kv_rows");
    TCase *rows = tcase_create("rows");
    tcase_add_loop_test(rows, paths_write_the_bytes_of_single_rows, 0, N_SHAPES);
    tcase_set_timeout(rows, 120);
    suite_add_tcase(suite, rows);
    return suite_main(suite);
}
