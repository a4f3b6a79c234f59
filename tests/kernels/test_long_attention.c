/* Attention of prompt rows over long contexts: a thread processes each chunk for several tiles. The
 * bytes are those of single rows, with windows, sinks and slopes, for any number of threads and for
 * two sequences in one step. ctest label: slow */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum {
    H = 6,
    G = 2,
    D = 32,
    B = 16,
    TOKENS = 2600, /* more than 8 chunks of 256 */
    ROWS = 100,    /* the last rows of a sequence, of more than 8 tiles */
    BLOCKS = (TOKENS + B - 1) / B,
    SEQUENCES = 2,
    WRITTEN = 650, /* rows of a step that only writes; divides TOKENS */
};

/* Two sequences: queries, keys and values of all tokens. Token p of sequence s is row
 * s * TOKENS + p. */
struct data {
    float *q, *k, *v; /* [SEQUENCES * TOKENS][H or G][D] */
};

/* Rows from..to-1 of `S` sequences from the first one on, as a step. */
struct rows {
    struct step step;
    int32_t token[SEQUENCES * WRITTEN], position[SEQUENCES * WRITTEN], slot[SEQUENCES * WRITTEN];
    int32_t row_start[SEQUENCES + 1], table[SEQUENCES * BLOCKS];
};

static const float slopes[H] = {0.5f, 0.01f, 0, 0.003f, 1, 0.0001f};
static const float sinks[H] = {-9, 1, 40, 0.5f, -60, 2};

static struct data data_new(void) {
    uint64_t seed = 7;
    return (struct data){random_floats(&seed, (size_t)SEQUENCES * TOKENS * H * D),
                         random_floats(&seed, (size_t)SEQUENCES * TOKENS * G * D),
                         random_floats(&seed, (size_t)SEQUENCES * TOKENS * G * D)};
}

static void data_free(struct data *d) {
    free(d->q), free(d->k), free(d->v);
}

/* The blocks of the two sequences alternate, in falling order. */
static int block_of(int s, int i) {
    return (BLOCKS - 1 - i) * SEQUENCES + s;
}

static void rows_make(struct rows *r, int first, int S, int from, int to) {
    *r = (struct rows){.step = {.S = S,
                                .token = r->token,
                                .position = r->position,
                                .slot = r->slot,
                                .row_start = r->row_start,
                                .table = r->table,
                                .table_stride = BLOCKS}};
    for (int s = 0; s < S; s++) {
        for (int i = 0; i < BLOCKS; i++) r->table[s * BLOCKS + i] = block_of(first + s, i);
        for (int p = from; p < to; p++, r->step.M++) {
            r->position[r->step.M] = p;
            r->slot[r->step.M] = block_of(first + s, p / B) * B + p % B;
        }
        r->row_start[s + 1] = r->step.M;
    }
}

/* Copies rows from..to-1 of each sequence's numbers, `width` for a row. */
static float *gathered(const float *x, size_t width, int first, int S, int from, int to) {
    size_t n = (size_t)(to - from) * width;
    float *y = mem_alloc((size_t)S * n * sizeof *y);
    for (int s = 0; s < S; s++)
        memcpy(y + (size_t)s * n, x + ((size_t)(first + s) * TOKENS + (size_t)from) * width,
               n * sizeof *y);
    return y;
}

static void write_all(struct backend *b, struct kv_cache *cache, const struct data *d) {
    struct rows *r = mem_calloc(1, sizeof *r);
    for (int s = 0; s < SEQUENCES; s++)
        for (int from = 0; from < TOKENS; from += WRITTEN) {
            rows_make(r, s, 1, from, from + WRITTEN);
            float *k = gathered(d->k, G * D, s, 1, from, from + WRITTEN);
            float *v = gathered(d->v, G * D, s, 1, from, from + WRITTEN);
            b->compute->step_begin(b, &r->step, cache);
            b->compute->rope_write(b, cache, 0, &(struct heads){0}, NULL, k, v);
            free(k), free(v);
        }
    free(r);
}

/* Writes the outputs of rows from..to-1 of S sequences to y [S][to - from][H][D]. */
static void attend(struct backend *b, struct kv_cache *cache, const struct data *d,
                   const struct attention *attention, int first, int S, int from, int to,
                   float *y) {
    struct rows *r = mem_calloc(1, sizeof *r);
    rows_make(r, first, S, from, to);
    float *q = gathered(d->q, H * D, first, S, from, to);
    b->compute->step_begin(b, &r->step, cache);
    b->compute->attention(b, y, q, cache, 0, attention);
    free(q), free(r);
}

/* Compares the last ROWS rows of both sequences, in one step, with a step for each row. */
static void check_rows(struct backend *b, struct kv_cache *cache, const struct data *d,
                       const struct attention *attention) {
    const size_t row = H * D;
    float *y = mem_calloc((size_t)SEQUENCES * ROWS * row, sizeof *y), right[H * D];
    attend(b, cache, d, attention, 0, SEQUENCES, TOKENS - ROWS, TOKENS, y);
    for (int s = 0; s < SEQUENCES; s++)
        for (int i = 0; i < ROWS; i += i < ROWS - 10 ? 7 : 1) {
            int at = TOKENS - ROWS + i;
            attend(b, cache, d, attention, s, 1, at, at + 1, right);
            assert_same_floats(y + ((size_t)s * ROWS + (size_t)i) * row, right, row, "a row");
        }
    free(y);
}

static void check(const char *path, int threads, enum dtype type) {
    struct data d = data_new();
    struct backend *b = open_backend(path, threads, SEQUENCES * WRITTEN, H * D);
    struct kv_config config = {1, G, D, SEQUENCES * BLOCKS, B, type};
    struct kv_cache *cache = NULL;
    struct err err = {0};
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, &err), STATUS_OK);
    write_all(b, cache, &d);
    /* no window, one of less than a chunk, and one that begins within the rows' second chunk */
    const int windows[] = {0, 90, 2300};
    for (int i = 0; i < 3; i++) {
        struct attention attention = {.H = H, .scale = 0.2f, .window = windows[i]};
        check_rows(b, cache, &d, &attention);
        attention.sinks = sinks;
        attention.slopes = slopes;
        check_rows(b, cache, &d, &attention);
    }
    b->cache->kv_free(b, cache);
    backend_close(b);
    data_free(&d);
}

static const enum dtype types[] = {DTYPE_I16, DTYPE_Q8_0, DTYPE_F16, DTYPE_F32};
enum { N_CACHE_TYPES = sizeof types / sizeof *types };

START_TEST(rows_in_one_step_equal_single_rows) {
    check(backend_cpu_paths()[_i / N_CACHE_TYPES], _i % 2 ? 3 : 1, types[_i % N_CACHE_TYPES]);
}
END_TEST

/* ---- the order of tasks --------------------------------------------------------------------- */

enum { LONGEST_LOG = 64 };

/* The groups of tasks in the order in which a thread computes them: a task belongs to a sequence's
 * block table and a key-value head. */
static struct {
    const struct path *path;
    const int32_t *table[LONGEST_LOG];
    int head[LONGEST_LOG], n;
} computed;

static void attend_and_log(const struct attend *a) {
    const int last = computed.n - 1;
    if (last < 0 || computed.table[last] != a->table || computed.head[last] != a->head) {
        ck_assert_int_lt(computed.n, LONGEST_LOG);
        computed.table[computed.n] = a->table;
        computed.head[computed.n++] = a->head;
    }
    computed.path->attend(a);
}

/* Otherwise the tasks of a long decode row beside a prompt would end up on one thread. */
START_TEST(a_thread_takes_only_tasks_with_the_same_keys_at_once) {
    struct data d = data_new();
    struct backend *b = open_backend(NULL, 1, SEQUENCES * WRITTEN, H * D);
    struct kv_config config = {1, G, D, SEQUENCES * BLOCKS, B, DTYPE_I16};
    struct kv_cache *cache = NULL;
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    write_all(b, cache, &d);
    struct path logging = *cpu_of(b)->path;
    computed.path = cpu_of(b)->path;
    logging.attend = attend_and_log;
    cpu_of(b)->path = &logging;
    float *y = mem_calloc((size_t)SEQUENCES * ROWS * H * D, sizeof *y);
    const struct attention attention = {.H = H, .scale = 0.2f};
    attend(b, cache, &d, &attention, 0, SEQUENCES, TOKENS - ROWS, TOKENS, y);
    ck_assert_int_eq(computed.n, SEQUENCES * G);
    free(y);
    b->cache->kv_free(b, cache);
    backend_close(b);
    data_free(&d);
}
END_TEST

static int n_paths(void) {
    int n = 0;
    while (backend_cpu_paths()[n]) n++;
    return n;
}

int main(void) {
    Suite *suite = suite_create("kernels_long_attention");
    TCase *rows = tcase_create("rows");
    tcase_set_timeout(rows, 120);
    tcase_add_loop_test(rows, rows_in_one_step_equal_single_rows, 0, N_CACHE_TYPES * n_paths());
    tcase_add_test(rows, a_thread_takes_only_tasks_with_the_same_keys_at_once);
    suite_add_tcase(suite, rows);
    return suite_main(suite);
}
