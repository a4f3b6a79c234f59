#include "support/state_rows.h"

#include <check.h>
#include <string.h>

#include "support/kernel_data.h"

enum { LAYERS = 2, STATES = 5 };

/* A backend, a cache with NaN in all states, and memory for outputs. */
struct state_world {
    struct backend *b;
    struct kv_cache *cache;
    float *y;
};

static struct state_world open_world(const struct state_op *op, const char *path, int threads) {
    struct state_world w = {.b = open_backend(path, threads, STATE_SEQUENCES * STATE_ROWS, 128)};
    const struct kv_config config = {.L = 1,
                                     .G = 1,
                                     .D = 16,
                                     .n_blocks = 1,
                                     .block_size = 16,
                                     .dtype = DTYPE_F32,
                                     .n_states = STATES,
                                     .state_layers = LAYERS,
                                     .state_floats = op->state_floats};
    ck_assert_int_eq(w.b->cache->kv_new(w.b, &w.cache, &config, NULL), STATUS_OK);
    memset(w.cache->states, 0xff, w.cache->state_bytes); /* nothing may depend on them */
    w.y = mem_alloc(STATE_SEQUENCES * STATE_ROWS * (size_t)op->width * sizeof *w.y);
    return w;
}

static void close_world(struct state_world *w) {
    w->b->cache->kv_free(w->b, w->cache);
    backend_close(w->b);
    mem_free(w->y);
}

float *state_rows_copy(const float *rows, int N, int first, int n, int seqs) {
    const size_t length = (size_t)n * (size_t)N;
    float *copy = mem_alloc((size_t)seqs * length * sizeof *copy);
    for (int s = 0; s < seqs; s++)
        memcpy(copy + (size_t)s * length, rows + (size_t)first * (size_t)N, length * sizeof *copy);
    return copy;
}

/* The states of a step. A single sequence has state `to`, several have 0, 1, ... */
struct states {
    int from, to;         /* state `from` is copied to `to` first, unless these are equal */
    const int32_t *after; /* [rows] the state that gets a copy after each row, or NULL */
};

/* Runs rows first..first + n - 1 of `seqs` equal sequences in one step. */
static void run_rows(struct state_world *w, const struct state_op *op, int first, int n, int seqs,
                     struct states states) {
    int32_t position[STATE_SEQUENCES * STATE_ROWS], start[STATE_SEQUENCES + 1];
    int32_t state[STATE_SEQUENCES], copy_from = states.from, copy_to = states.to;
    for (int s = 0; s <= seqs; s++) start[s] = s * n;
    for (int s = 0; s < seqs; s++) state[s] = seqs == 1 ? states.to : s;
    for (int m = 0; m < seqs * n; m++) position[m] = first + m % n;
    const struct step step = {.M = seqs * n,
                              .position = position,
                              .S = seqs,
                              .row_start = start,
                              .state = state,
                              .state_after = states.after,
                              .n_state_copies = states.from != states.to,
                              .state_from = &copy_from,
                              .state_to = &copy_to};
    w->b->compute->step_begin(w->b, &step, w->cache);
    op->run(w->b, w->cache, op->data, w->y, first, n, seqs);
}

/* Compares the outputs of rows first..first + n - 1 of each of `seqs` sequences. */
static void assert_right(const struct state_world *w, const struct state_op *op, int first, int n,
                         int seqs, const char *what) {
    const size_t N = (size_t)op->width;
    for (int s = 0; s < seqs; s++)
        assert_same_floats(w->y + (size_t)(s * n) * N, op->right + (size_t)first * N, (size_t)n * N,
                           what);
}

void state_op_begin(struct state_op *op) {
    struct state_world plain = open_world(op, "plain", 1);
    const size_t bytes = STATE_ROWS * (size_t)op->width * sizeof *op->right;
    run_rows(&plain, op, 0, STATE_ROWS, 1, (struct states){0});
    op->right = mem_alloc(bytes);
    memcpy(op->right, plain.y, bytes);
    close_world(&plain);
}

void state_op_end(struct state_op *op) {
    mem_free(op->right);
    op->right = NULL;
}

/* ---- checks --------------------------------------------------------------------------------- */

static void check_chunks(const struct state_op *op, const char *path, int chunk, int seqs) {
    struct state_world w = open_world(op, path, seqs);
    for (int at = 0; at < STATE_ROWS; at += chunk) {
        int n = at + chunk < STATE_ROWS ? chunk : STATE_ROWS - at;
        run_rows(&w, op, at, n, seqs, (struct states){0});
        assert_right(&w, op, at, n, seqs, path);
    }
    close_world(&w);
}

void check_steps_of_any_size(const struct state_op *op) {
    static const int chunks[] = {1, 2, 3, 7, STATE_ROWS};
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
            for (int seqs = 1; seqs <= STATE_SEQUENCES; seqs++)
                check_chunks(op, *path, chunks[i], seqs);
}

void check_copied_states(const struct state_op *op) {
    struct state_world w = open_world(op, NULL, 1);
    run_rows(&w, op, 0, 9, 1, (struct states){2, 2, NULL});
    for (int to = 4; to >= 2; to -= 2) {
        run_rows(&w, op, 9, 5, 1, (struct states){2, to, NULL});
        assert_right(&w, op, 9, 5, 1, "copied, then the original");
    }
    close_world(&w);
}

void check_states_after_rows(const struct state_op *op) {
    static const int32_t after[9] = {-1, 3, -1, -1, 1, 4, -1, -1, -1};
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct state_world w = open_world(op, *path, 2);
        run_rows(&w, op, 0, 9, 1, (struct states){2, 2, after});
        assert_right(&w, op, 0, 9, 1, *path);
        for (int row = 0; row < 9; row++) {
            if (after[row] < 0) continue;
            run_rows(&w, op, row + 1, 5, 1, (struct states){after[row], after[row], NULL});
            assert_right(&w, op, row + 1, 5, 1, *path);
        }
        run_rows(&w, op, 9, 5, 1, (struct states){2, 2, NULL});
        assert_right(&w, op, 9, 5, 1, "the sequence's own state");
        close_world(&w);
    }
}
