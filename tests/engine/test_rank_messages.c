/* Actions and greetings between ranks in several processes: a message arrives as it was sent, a
 * cut or changed one is refused, and each difference between two processes is named. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ranks/internal.h"
#include "support/suite_main.h"

enum { ROWS = 7, SEQS = 3, STRIDE = 6, BLOCK = 4, MOST_BYTES = 4096 };

/* A step of three sequences: rows at positions 0..2, 9, and 5..7. */
struct example {
    int32_t token[ROWS], position[ROWS], slot[ROWS], row_start[SEQS + 1], logit_row[2];
    int32_t table[SEQS * STRIDE], window_table[SEQS * STRIDE], window_slot[ROWS];
    int32_t copy[4][2], state[SEQS], state_after[ROWS], state_copy[2][3];
    struct step step;
};

static void example_make(struct example *e, bool has_windows) {
    static const int32_t position[ROWS] = {0, 1, 2, 9, 5, 6, 7}, start[SEQS + 1] = {0, 3, 4, 7};
    for (int i = 0; i < ROWS; i++) {
        e->token[i] = 100 + i;
        e->position[i] = position[i];
        e->slot[i] = 200 + i;
        e->window_slot[i] = 300 + i;
    }
    memcpy(e->row_start, start, sizeof start);
    for (int i = 0; i < SEQS * STRIDE; i++) e->table[i] = 400 + i, e->window_table[i] = 500 + i;
    for (int i = 0; i < 8; i++) e->copy[i / 2][i % 2] = 600 + i;
    for (int i = 0; i < SEQS; i++) {
        e->state[i] = 700 + i;
        e->state_copy[0][i] = 710 + i;
        e->state_copy[1][i] = 720 + i;
    }
    for (int i = 0; i < ROWS; i++) e->state_after[i] = 730 + i;
    e->logit_row[0] = 2;
    e->logit_row[1] = 3;
    e->step = (struct step){.M = ROWS,
                            .S = SEQS,
                            .R = 2,
                            .n_hidden = 1,
                            .n_copies = 2,
                            .token = e->token,
                            .position = e->position,
                            .slot = e->slot,
                            .row_start = e->row_start,
                            .logit_row = e->logit_row,
                            .table = e->table,
                            .table_stride = STRIDE,
                            .copy_from = e->copy[0],
                            .copy_to = e->copy[1],
                            .window_slot = has_windows ? e->window_slot : NULL,
                            .window_table = has_windows ? e->window_table : NULL,
                            .window_copy_from = has_windows ? e->copy[2] : NULL,
                            .window_copy_to = has_windows ? e->copy[3] : NULL};
}

static void check_equal(const int32_t *a, const int32_t *b, int n) {
    ck_assert_int_eq(memcmp(a, b, (size_t)n * sizeof *a), 0);
}

/* The table's lines up to the last block that a row sees: position 9 is in block 2. */
static void check_table(const int32_t *sent, const struct step *got, const int32_t *table) {
    ck_assert_int_eq(got->table_stride, 3);
    for (int s = 0; s < SEQS; s++) check_equal(table + s * 3, sent + s * STRIDE, 3);
}

START_TEST(a_step_arrives_as_it_was_sent) {
    struct example e;
    struct step got;
    int32_t message[MOST_BYTES / 4];
    const bool has_windows = _i;
    example_make(&e, has_windows);
    const size_t most = message_step_most(ROWS, SEQS, STRIDE);
    ck_assert_uint_le(most, sizeof message);
    const size_t bytes = message_step_pack(message, most, &e.step, BLOCK);
    ck_assert(message_step_unpack(&got, message, bytes));
    ck_assert(got.M == ROWS && got.S == SEQS && got.R == 2 && got.n_hidden == 1);
    ck_assert(got.n_copies == 2 && got.n_pending == 0 && !got.samples && !got.sampler);
    check_equal(got.token, e.token, ROWS);
    check_equal(got.position, e.position, ROWS);
    check_equal(got.slot, e.slot, ROWS);
    check_equal(got.row_start, e.row_start, SEQS + 1);
    check_equal(got.logit_row, e.logit_row, 2);
    check_equal(got.copy_from, e.copy[0], 2);
    check_equal(got.copy_to, e.copy[1], 2);
    check_table(e.table, &got, got.table);
    ck_assert(!got.adapter && !got.type && !got.state && !got.state_after);
    ck_assert(got.n_state_copies == 0 && !got.state_from && !got.state_to);
    ck_assert(!got.window_slot == !has_windows && !got.window_table == !has_windows);
    if (!has_windows) return;
    check_equal(got.window_slot, e.window_slot, ROWS);
    check_equal(got.window_copy_from, e.copy[2], 2);
    check_equal(got.window_copy_to, e.copy[3], 2);
    check_table(e.window_table, &got, got.window_table);
}
END_TEST

START_TEST(states_arrive) {
    struct example e;
    struct step got;
    int32_t message[MOST_BYTES / 4];
    example_make(&e, true);
    e.step.state = e.state;
    e.step.state_after = _i ? e.state_after : NULL;
    e.step.n_state_copies = 3;
    e.step.state_from = e.state_copy[0];
    e.step.state_to = e.state_copy[1];
    const size_t most = message_step_most(ROWS, SEQS, STRIDE);
    const size_t bytes = message_step_pack(message, most, &e.step, BLOCK);
    ck_assert(message_step_unpack(&got, message, bytes));
    ck_assert(got.n_state_copies == 3 && got.n_copies == 2);
    check_equal(got.state, e.state, SEQS);
    check_equal(got.state_from, e.state_copy[0], 3);
    check_equal(got.state_to, e.state_copy[1], 3);
    check_equal(got.copy_to, e.copy[1], 2);
    ck_assert(!got.state_after == !_i);
    if (_i) check_equal(got.state_after, e.state_after, ROWS);
    ck_assert(!message_step_unpack(&got, message, bytes - sizeof *message));
}
END_TEST

START_TEST(a_step_without_logits_and_copies_arrives) {
    struct example e;
    struct step got;
    int32_t message[MOST_BYTES / 4];
    example_make(&e, false);
    e.step.R = e.step.n_hidden = e.step.n_copies = 0;
    e.step.type = e.token;
    e.step.adapter = e.position;
    const size_t bytes = message_step_pack(message, sizeof message, &e.step, BLOCK);
    ck_assert(message_step_unpack(&got, message, bytes));
    ck_assert(got.R == 0 && got.n_copies == 0 && got.type);
    check_equal(got.type, e.token, ROWS);
    check_equal(got.adapter, e.position, ROWS);
}
END_TEST

/* Only the GPU of rank 0 has a pending token, so its id means nothing to others. */
START_TEST(a_step_with_pending_tokens_arrives) {
    struct example e;
    struct step got;
    int32_t message[MOST_BYTES / 4];
    example_make(&e, false);
    e.token[3] = pending_token(1);
    e.step.n_pending = 1;
    e.step.sampled = e.token;
    const size_t bytes = message_step_pack(message, sizeof message, &e.step, BLOCK);
    ck_assert(message_step_unpack(&got, message, bytes));
    ck_assert(got.n_pending == 0 && !got.sampled && got.M == ROWS);
    check_equal(got.position, e.position, ROWS);
}
END_TEST

/* Next tokens and rows of hidden vectors stay with rank 0. */
START_TEST(a_step_of_guesses_arrives) {
    struct example e;
    struct step got;
    int32_t message[MOST_BYTES / 4];
    example_make(&e, false);
    e.step.n_hidden = e.step.n_copies = 0;
    e.step.next = e.step.hidden_row = e.token;
    e.step.is_ahead = _i;
    const size_t bytes = message_step_pack(message, sizeof message, &e.step, BLOCK);
    ck_assert(message_step_unpack(&got, message, bytes));
    ck_assert(got.is_ahead == (bool)_i && !got.next && !got.hidden_row);
    check_equal(got.slot, e.slot, ROWS);
    ck_assert_uint_eq(bytes, message_step_pack(message, sizeof message, &e.step, BLOCK));
}
END_TEST

START_TEST(a_message_of_another_length_is_refused) {
    struct example e;
    struct step got;
    int32_t message[MOST_BYTES / 4] = {0};
    example_make(&e, true);
    const size_t bytes = message_step_pack(message, sizeof message, &e.step, BLOCK);
    for (size_t n = 0; n < bytes; n += 4) ck_assert(!message_step_unpack(&got, message, n));
    ck_assert(!message_step_unpack(&got, message, bytes + 4));
}
END_TEST

/* Each number of the header, replaced by numbers that cannot be. */
START_TEST(an_impossible_header_is_refused) {
    static const int32_t wrong[] = {-1, INT32_MIN, INT32_MAX};
    struct example e;
    struct step got;
    int32_t message[MOST_BYTES / 4], broken[MOST_BYTES / 4];
    example_make(&e, true);
    const size_t bytes = message_step_pack(message, sizeof message, &e.step, BLOCK);
    for (int i = 0; i < 10; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            memcpy(broken, message, bytes);
            broken[i] = wrong[k];
            ck_assert_msg(!message_step_unpack(&got, broken, bytes), "number %d: %d", i, wrong[k]);
        }
}
END_TEST

START_TEST(a_cache_arrives_with_its_arrays) {
    const struct kv_heads heads[2] = {{4, 64, 0}, {2, 128, 64}};
    const bool has_window[2] = {true, false};
    const struct kv_config config = {.L = 2,
                                     .n_blocks = 9,
                                     .block_size = 16,
                                     .dtype = DTYPE_I16,
                                     .n_window_blocks = 3,
                                     .has_window = has_window,
                                     .heads = heads};
    struct message_cache *m = mem_calloc(1, sizeof *m);
    message_cache_pack(m, &config, 4096);
    ck_assert(message_cache_unpack(m, sizeof *m));
    ck_assert(m->config.heads != heads && m->config.has_window != has_window);
    ck_assert(m->config.heads[1].D == 128 && m->config.heads[1].D_shared == 64);
    ck_assert(m->config.has_window[0] && !m->config.has_window[1]);
    ck_assert(m->config.n_blocks == 9 && m->config.n_window_blocks == 3 && m->step_bytes == 4096);
    ck_assert(!message_cache_unpack(m, sizeof *m - 1));
    m->config.L = MAX_LAYERS + 1;
    ck_assert(!message_cache_unpack(m, sizeof *m));
    mem_free(m);
}
END_TEST

/* ---- greetings ------------------------------------------------------------------------------ */

/* A process with a model of one tensor. */
struct process {
    struct model_config model;
    struct engine_config config;
    struct weights weights;
    struct weight tensor;
    const struct weights *eagle; /* of its EAGLE-3 head, or NULL */
    char data[16384];
};

static struct process *process_new(void) {
    struct process *p = mem_calloc(1, sizeof *p);
    snprintf(p->model.architecture, sizeof p->model.architecture, "llama");
    p->config = (struct engine_config){.ranks = 2,
                                       .device = DEVICE_CPU,
                                       .max_num_seqs = 8,
                                       .max_logit_rows = 8,
                                       .max_num_batched_tokens = 64,
                                       .block_size = 16};
    for (size_t i = 0; i < sizeof p->data; i++) p->data[i] = (char)(i * 7);
    p->tensor = (struct weight){.name = "blk.0.attn_q.weight",
                                .n_elements = 4096,
                                .data = p->data,
                                .bytes = sizeof p->data};
    p->weights = (struct weights){.n = 1, .tensor = &p->tensor};
    return p;
}

static void greet(struct hello *out, const struct process *p, int64_t available, int local) {
    const struct ranks_self self = {&p->model, &p->weights, p->eagle, &p->config,
                                    available, 0,           {0}};
    hello_make(out, &self, local, NULL);
}

/* Compares a process with a changed one, and frees both. Sets `err`. */
static enum status compare(struct process *first, struct process *other, struct err *err) {
    struct hello *a = mem_calloc(1, sizeof *a), *b = mem_calloc(1, sizeof *b);
    greet(a, first, 1000, 2);
    greet(b, other, 900, 1);
    ck_assert_int_eq(a->available, 500);
    ck_assert_int_eq(b->available, 900);
    enum status status = hello_check(a, b, 1, err);
    mem_free(a);
    mem_free(b);
    mem_free(first);
    mem_free(other);
    return status;
}

START_TEST(equal_processes_may_serve) {
    struct err err;
    struct process *other = process_new();
    other->config.threads = 5;
    other->config.model = "/another/path.gguf";
    ck_assert_int_eq(compare(process_new(), other, &err), STATUS_OK);
}
END_TEST

START_TEST(another_option_is_named) {
    struct err err;
    struct process *p[7];
    static const char *const names[] = {"tensor-parallel-size",   "max-num-seqs",   "block-size",
                                        "max-num-batched-tokens", "kv-cache-dtype", "max-model-len",
                                        "enforce-eager"};
    for (int i = 0; i < 7; i++) p[i] = process_new();
    p[0]->config.ranks = 3;
    p[1]->config.max_num_seqs = p[1]->config.max_logit_rows = 9;
    p[2]->config.block_size = 32;
    p[3]->config.max_num_batched_tokens = 65;
    p[4]->config.kv_dtype = KV_DTYPE_FLOAT32;
    p[5]->config.max_model_len = 77;
    p[6]->config.enforce_eager = true;
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(compare(process_new(), p[i], &err), STATUS_USAGE);
        ck_assert_str_eq(err.param, names[i]);
        ck_assert_ptr_nonnull(strstr(err.message, "rank 1"));
        ck_assert_ptr_nonnull(strstr(err.message, names[i]));
    }
}
END_TEST

/* One byte at the beginning, in the middle and at the end of a tensor; its name; its shape. */
START_TEST(another_model_is_named) {
    struct err err;
    for (int i = 0; i < 5; i++) {
        struct process *other = process_new();
        if (i == 0) other->data[5] ^= 1;
        if (i == 1) other->data[sizeof other->data / 2] ^= 1;
        if (i == 2) other->data[sizeof other->data - 1] ^= 1;
        if (i == 3) other->tensor.name[4] = '1';
        if (i == 4) other->tensor.dim[0] = 3;
        ck_assert_int_eq(compare(process_new(), other, &err), STATUS_USAGE);
        ck_assert_str_eq(err.param, "model");
        ck_assert_ptr_nonnull(strstr(err.message, "another model"));
    }
}
END_TEST

/* Both have an EAGLE-3 head, or only one. */
START_TEST(another_head_is_named) {
    struct weight tensors[2] = {{.name = "fc.weight"}, {.name = "norm.weight"}};
    const struct weights heads[2] = {{.n = 1, .tensor = &tensors[0]},
                                     {.n = 1, .tensor = &tensors[1]}};
    struct err err;
    for (int i = 0; i < 3; i++) {
        struct process *first = process_new(), *other = process_new();
        first->config.guesses_ahead = other->config.guesses_ahead = true;
        first->eagle = &heads[0], first->config.eagle = "/one";
        if (i < 2) other->eagle = &heads[i], other->config.eagle = "/two";
        ck_assert_int_eq(compare(first, other, &err), i ? STATUS_USAGE : STATUS_OK);
        if (i == 0) continue;
        ck_assert_str_eq(err.param, "speculative-config");
        ck_assert_ptr_nonnull(strstr(err.message, i == 1 ? "is the head" : "0 drafts of eagle3"));
    }
}
END_TEST

START_TEST(another_build_is_named_before_all_else) {
    struct hello *a = mem_calloc(1, sizeof *a), *b = mem_calloc(1, sizeof *b);
    struct process *p = process_new();
    struct err err;
    greet(a, p, 1000, 1);
    greet(b, p, 1000, 1);
    snprintf(b->build, sizeof b->build, "9.9.9 abc Release");
    b->fact[0].value[0] ^= 1;
    ck_assert_int_eq(hello_check(a, b, 1, &err), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(err.message, "9.9.9 abc"));
    ck_assert_ptr_nonnull(strstr(err.message, "another build"));
    mem_free(a);
    mem_free(b);
    mem_free(p);
}
END_TEST

START_TEST(the_failure_of_a_process_is_passed_on) {
    struct hello *a = mem_calloc(1, sizeof *a), *b = mem_calloc(1, sizeof *b);
    struct process *p = process_new();
    const struct ranks_self nothing = {0};
    struct err why, err;
    greet(a, p, 1000, 1);
    err_set(&why, STATUS_BAD_FILE, "model", "x.gguf: no such file");
    hello_make(b, &nothing, 1, &why);
    ck_assert_int_eq(hello_check(a, b, 2, &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "rank 2"));
    ck_assert_ptr_nonnull(strstr(err.message, "x.gguf: no such file"));
    mem_free(a);
    mem_free(b);
    mem_free(p);
}
END_TEST

START_TEST(a_greeting_has_the_gpu) {
    struct hello *hello = mem_calloc(1, sizeof *hello);
    struct process *p = process_new();
    const struct ranks_self self = {&p->model, &p->weights, NULL, &p->config, 5, 1, {100, 60}};
    hello_make(hello, &self, 1, NULL);
    ck_assert(hello->device.total == 100 && hello->device.free == 60);
    mem_free(hello);
    mem_free(p);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_rank_messages");
    TCase *all = tcase_create("messages");
    tcase_add_loop_test(all, a_step_arrives_as_it_was_sent, 0, 2);
    tcase_add_loop_test(all, states_arrive, 0, 2);
    tcase_add_test(all, a_step_without_logits_and_copies_arrives);
    tcase_add_test(all, a_step_with_pending_tokens_arrives);
    tcase_add_test(all, a_greeting_has_the_gpu);
    tcase_add_loop_test(all, a_step_of_guesses_arrives, 0, 2);
    tcase_add_test(all, a_message_of_another_length_is_refused);
    tcase_add_test(all, an_impossible_header_is_refused);
    tcase_add_test(all, a_cache_arrives_with_its_arrays);
    tcase_add_test(all, equal_processes_may_serve);
    tcase_add_test(all, another_option_is_named);
    tcase_add_test(all, another_model_is_named);
    tcase_add_test(all, another_head_is_named);
    tcase_add_test(all, another_build_is_named_before_all_else);
    tcase_add_test(all, the_failure_of_a_process_is_passed_on);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
