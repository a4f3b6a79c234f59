/* Products on several memory nodes of an invented placement: the bytes are the same as with one
 * thread, and each node's threads run the pieces whose weights they wrote. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { K = 96, N = 330, KV = 50, F = 416, MAX_ROWS = 530 };

/* Returns a placement of threads on nodes, all bound to the first available processor. Any thread
 * may run the pieces of a job, and the pieces are not on the system's nodes. */
static struct placement *made_up(const int *node_of, int n_threads) {
    int numbers[MAX_PROCESSORS];
    processors_allowed(numbers, MAX_PROCESSORS);
    struct placement *p = mem_calloc(1, sizeof *p);
    p->n_threads = n_threads;
    p->n_nodes = node_of[n_threads - 1] + 1;
    for (int t = 0; t < n_threads; t++) {
        p->node_of[t] = node_of[t];
        p->processor[t] = numbers[0];
    }
    p->topology.n = 1;
    p->topology.processors[0].number = numbers[0];
    for (int k = 0; k < p->n_nodes; k++) p->topology.nodes[k] = k;
    return p;
}

static const int node_maps[][5] = {{0, 0, 0, 1, 1}, {0, 1, 1, 2, 2}, {0, 1, 2, 3, 4}};
enum { MAPS = sizeof node_maps / sizeof *node_maps };

static struct backend *open_nodes(int map) {
    struct backend *b = open_backend(NULL, 5, MAX_ROWS, F);
    struct cpu *cpu = cpu_of(b);
    pool_free(cpu->pool);
    cpu->pool = pool_new(5, made_up(node_maps[map], 5));
    ck_assert_int_eq(pool_nodes(cpu->pool), node_maps[map][4] + 1);
    return b;
}

struct results {
    float *q, *k, *v, *sum;
};

/* Computes three matrices of one input, an MLP, and a product that is added, for M rows. */
static struct results compute(struct backend *b, enum dtype type, int M) {
    uint64_t state = 11;
    static const int shapes[][2] = {{N, K}, {KV, K}, {KV, K}, {F, K}, {F, K}, {K, F}, {K, K}};
    enum { MATRICES = sizeof shapes / sizeof *shapes };
    struct linear linear[MATRICES] = {0};
    for (int i = 0; i < MATRICES; i++) {
        void *rows = random_weights(&state, type, (size_t)shapes[i][0] * (size_t)shapes[i][1]);
        ck_assert_int_eq(b->memory->matrix_new(b, &linear[i].w, type, shapes[i][0], shapes[i][1],
                                               rows, MATRIX_NATIVE, NULL),
                         STATUS_OK);
        free(rows);
    }
    float *x = random_floats(&state, (size_t)M * K);
    struct results r = {mem_calloc((size_t)M * N, 4), mem_calloc((size_t)M * KV, 4),
                        mem_calloc((size_t)M * KV, 4), mem_calloc((size_t)M * K, 4)};
    b->compute->matmul(b, (float *const[]){r.q, r.k, r.v}, x, NULL, linear, 3, M);
    const struct mlp mlp = {.gate = linear[3], .up = linear[4], .down = linear[5]};
    float *gain = random_floats(&state, K);
    b->compute->mlp(b, r.sum, x, &(struct norm){.gain = gain, .epsilon = 1e-5f}, &mlp, M);
    b->compute->matmul_add(b, r.sum, x, &linear[6], M);
    for (int i = 0; i < MATRICES; i++) b->memory->matrix_free(b, linear[i].w);
    free(x), free(gain);
    return r;
}

static void free_results(struct results *r) {
    free(r->q), free(r->k), free(r->v), free(r->sum);
}

static void compare_types(enum dtype type) {
    static const int rows[] = {1, 17, 300, MAX_ROWS};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t M = (size_t)rows[i];
        struct backend *one = open_backend(NULL, 1, MAX_ROWS, F);
        struct results right = compute(one, type, rows[i]);
        backend_close(one);
        for (int map = 0; map < MAPS; map++) {
            struct backend *b = open_nodes(map);
            struct results r = compute(b, type, rows[i]);
            assert_same_floats(r.q, right.q, M * N, "q");
            assert_same_floats(r.k, right.k, M * KV, "k");
            assert_same_floats(r.v, right.v, M * KV, "v");
            assert_same_floats(r.sum, right.sum, M * K, "the sum");
            free_results(&r);
            backend_close(b);
        }
        free_results(&right);
    }
}

START_TEST(nodes_give_the_same_bytes) {
    compare_types(_i ? DTYPE_F32 : DTYPE_Q8_0);
}
END_TEST

/* Counts the pieces that run on threads of their node. The borders assign pieces to nodes. */
struct seen {
    int node_of[5];
    _Atomic int in_place, pieces;
    const int *border;
};

static void see(void *arg, int piece, int thread) {
    struct seen *seen = arg;
    int node = 0;
    while (piece >= seen->border[node + 1]) node++;
    atomic_fetch_add(&seen->pieces, 1);
    if (seen->node_of[thread] == node) atomic_fetch_add(&seen->in_place, 1);
}

/* A caller without help runs the pieces of its node first, then those of the others. Each piece
 * runs once. */
START_TEST(borders_are_kept) {
    struct pool *pool = pool_new(5, made_up(node_maps[1], 5));
    for (int round = 0; round < 50; round++) {
        const int border[] = {0, round, round, 3 * round};
        struct seen seen = {.border = border};
        memcpy(seen.node_of, node_maps[1], sizeof seen.node_of);
        pool_run_nodes(pool, see, &seen, border);
        ck_assert_int_eq(seen.pieces, 3 * round);
        ck_assert_int_le(seen.in_place, seen.pieces);
    }
    pool_free(pool);
}
END_TEST

/* Mapped weights have the same products as copied ones. */
START_TEST(maps_are_placed_too) {
    uint64_t state = 3;
    struct backend *b = open_nodes(0);
    void *rows = random_weights(&state, DTYPE_Q4_0, (size_t)N * K);
    float *x = random_floats(&state, K), *y = mem_calloc(N, 4), *z = mem_calloc(N, 4);
    struct matrix *w = NULL;
    ck_assert_int_eq(b->memory->matrix_new(b, &w, DTYPE_Q4_0, N, K, rows, MATRIX_NATIVE, NULL),
                     STATUS_OK);
    enum dtype type;
    int n, k;
    const void *data = b->memory->matrix_data(w, &type, &n, &k);
    struct matrix *mapped = b->memory->matrix_map(b, type, n, k, data, b->memory->matrix_bytes(w));
    ck_assert_ptr_nonnull(mapped);
    b->compute->matmul(b, &y, x, NULL, &(struct linear){w, NULL}, 1, 1);
    b->compute->matmul(b, &z, x, NULL, &(struct linear){mapped, NULL}, 1, 1);
    assert_same_floats(z, y, N, "of a map");
    b->memory->matrix_free(b, mapped);
    b->memory->matrix_free(b, w);
    backend_close(b);
    free(rows), free(x), free(y), free(z);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_nodes");
    TCase *core = tcase_create("nodes");
    tcase_set_timeout(core, 120);
    tcase_add_loop_test(core, nodes_give_the_same_bytes, 0, 2);
    tcase_add_test(core, borders_are_kept);
    tcase_add_test(core, maps_are_placed_too);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
