/* Drafts of a layer that guesses ahead, with a runner that notes its passes: which rows they have.
 * tests/scheduler/test_ahead.c runs real layers. */
#include <check.h>
#include <string.h>

#include "config/list.h"
#include "scheduler/draft/draft.h"
#include "support/suite_main.h"

enum { SIZE = 8, SEQS = 4, LENGTH = 64, N_BLOCKS = LENGTH / SIZE };

struct row {
    int32_t token, position, slot, hidden_row;
};

/* The passes of one call. Row r of a pass guesses 100 * (pass + 1) + r; from `fails_at` on a pass
 * has no results. */
static struct passes {
    int n, fails_at;
    int rows[MAX_DRAFTS], samples[MAX_DRAFTS];
    struct row row[MAX_DRAFTS][SEQS];
    struct sampled sampled[SEQS];
} passes;

static const struct sampled *note_pass(void *self, const struct step *step,
                                       const struct sample *samples, int n) {
    struct passes *p = self;
    ck_assert(step->is_ahead && step->M == step->S && step->R == n && p->n < MAX_DRAFTS);
    for (int m = 0; m < step->M; m++) {
        const int32_t block = step->table[m * step->table_stride + step->position[m] / SIZE];
        p->row[p->n][m] =
            (struct row){step->next[m], step->position[m], step->slot[m], step->hidden_row[m]};
        ck_assert_int_eq(step->slot[m], block * SIZE + step->position[m] % SIZE);
        for (int k = 0; k < m; k++) ck_assert_int_ne(step->slot[m], step->slot[k]);
        ck_assert_int_eq(step->row_start[m + 1], m + 1);
    }
    for (int r = 0; r < n; r++) {
        ck_assert_int_eq(samples[r].row, r);
        p->sampled[r].id = 100 * (p->n + 1) + r;
    }
    p->rows[p->n] = step->M;
    p->samples[p->n] = n;
    return p->n++ < p->fails_at ? p->sampled : NULL;
}

static int32_t tokens[SEQS][LENGTH], tables[SEQS][N_BLOCKS];

/* A sequence of n tokens, whose last one is not computed. Its blocks are those of `blocks_of`. */
static struct draft_job job_of(int k, int n, int most, int blocks_of) {
    for (int i = 0; i < n; i++) tokens[k][i] = 10 * k + i;
    for (int i = 0; i < N_BLOCKS; i++) tables[k][i] = blocks_of * N_BLOCKS + i;
    const int n_blocks = (n - 1 + SIZE - 1) / SIZE;
    return (struct draft_job){
        .context = {.tokens = tokens[k], .n = n, .max_tokens = LENGTH},
        .most = most,
        .place = {n - 1, 3 + k, tables[k], n_blocks, n_blocks * SIZE, blocks_of != k}};
}

static void propose(struct draft_job *jobs, int n, int fails_at) {
    const struct draft_runner runner = {.self = &passes,
                                        .run = note_pass,
                                        .max_seqs = SEQS,
                                        .max_rows = SEQS,
                                        .block_size = SIZE,
                                        .max_tokens = LENGTH};
    struct draft_ahead *ahead = draft_ahead_new(&runner);
    const struct drafter drafter = drafter_ahead(ahead);
    memset(&passes, 0, sizeof passes);
    passes.fails_at = fails_at;
    ck_assert_uint_eq(drafter.state_bytes(drafter.self, LENGTH), 0);
    drafter.propose_all(drafter.self, jobs, n);
    draft_ahead_free(ahead);
}

static void check_row(int pass, int m, struct row wanted) {
    const struct row *row = &passes.row[pass][m];
    ck_assert_int_lt(m, passes.rows[pass]);
    ck_assert_int_eq(row->token, wanted.token);
    ck_assert_int_eq(row->position, wanted.position);
    ck_assert_int_eq(row->slot, wanted.slot);
    ck_assert_int_eq(row->hidden_row, wanted.hidden_row);
}

/* Pass 0 has the last row of both, with the next token and the model's hidden vector. Later rows
 * have the draft before, and the hidden vector of the pass before. */
START_TEST(each_draft_is_a_row_after_the_last_one) {
    struct draft_job jobs[] = {job_of(0, 11, 0, 0), job_of(1, 4, 3, 1)};
    propose(jobs, 2, 99);
    ck_assert(passes.n == 3 && passes.rows[0] == 2 && passes.samples[0] == 1);
    check_row(0, 0, (struct row){10, 9, 9, 3});
    check_row(0, 1, (struct row){13, 2, N_BLOCKS * SIZE + 2, 4});
    ck_assert(passes.rows[1] == 1 && passes.rows[2] == 1);
    check_row(1, 0, (struct row){100, 3, N_BLOCKS * SIZE + 3, 0});
    check_row(2, 0, (struct row){200, 4, N_BLOCKS * SIZE + 4, 0});
    ck_assert(jobs[0].draft.n == 0 && jobs[1].draft.n == 3);
    ck_assert(tokens[1][4] == 100 && tokens[1][5] == 200 && tokens[1][6] == 300);
    ck_assert_int_eq(jobs[1].draft.match, MAX_DRAFT_MATCH);
}
END_TEST

/* A row needs a slot: position 8 would be in the next block. */
START_TEST(drafts_end_with_the_block) {
    struct draft_job jobs[] = {job_of(0, 8, 5, 0), job_of(1, 9, 5, 1)};
    propose(jobs, 2, 99);
    ck_assert(jobs[0].draft.n == 2 && jobs[1].draft.n == 1);
    check_row(0, 1, (struct row){18, 7, N_BLOCKS * SIZE + 7, 4});
    check_row(1, 0, (struct row){100, 7, 7, 0});
}
END_TEST

/* The first of two sequences writes the row of both. Neither writes rows of drafts. */
START_TEST(a_shared_block_is_written_once) {
    struct draft_job jobs[] = {job_of(0, 6, 4, 0), job_of(1, 6, 4, 0)};
    jobs[0].place.shares = true;
    propose(jobs, 2, 99);
    ck_assert(passes.n == 1 && passes.rows[0] == 1);
    ck_assert(jobs[0].draft.n == 1 && jobs[1].draft.n == 0);
}
END_TEST

/* Several tokens follow the last row, which a grammar forced: the row is due, and no draft. */
START_TEST(forced_tokens_leave_no_draft) {
    struct draft_job jobs[] = {job_of(0, 9, 4, 0)};
    jobs[0].place.n_computed = 5;
    propose(jobs, 1, 99);
    ck_assert(passes.n == 1 && passes.rows[0] == 1 && passes.samples[0] == 0);
    check_row(0, 0, (struct row){5, 4, 4, 3});
    ck_assert_int_eq(jobs[0].draft.n, 0);
}
END_TEST

START_TEST(a_pass_without_results_ends_the_drafts) {
    struct draft_job jobs[] = {job_of(0, 3, 4, 0), job_of(1, 4, 4, 1)};
    propose(jobs, 2, 1);
    ck_assert(passes.n == 2 && jobs[0].draft.n == 1 && jobs[1].draft.n == 1);
    draft_ahead_free(NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_draft_ahead");
    TCase *core = tcase_create("core");
    tcase_add_test(core, each_draft_is_a_row_after_the_last_one);
    tcase_add_test(core, drafts_end_with_the_block);
    tcase_add_test(core, a_shared_block_is_written_once);
    tcase_add_test(core, forced_tokens_leave_no_draft);
    tcase_add_test(core, a_pass_without_results_ends_the_drafts);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
