/* Adapters of several ranks: the tokens of one rank, through loads, unloads and a reload of the
 * model; and adapters as messages, which arrive whole or are refused. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/adapters/adapters.h"
#include "engine/internal.h"
#include "engine/ranks/internal.h"
#include "support/adapter_file.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { LENGTH = 24, BLOCKS = 4, BLOCK_SIZE = 16, N_ADAPTERS = 2 };

static struct engine *open_ranks(const char *model, int ranks) {
    struct engine_config config = {.model = model,
                                   .threads = ranks,
                                   .ranks = ranks,
                                   .dtype = COMPUTE_FLOAT32,
                                   .max_num_seqs = 8,
                                   .max_num_batched_tokens = 64,
                                   .block_size = BLOCK_SIZE,
                                   .kv_memory = 16 << 20,
                                   .max_adapters = N_ADAPTERS,
                                   .max_adapter_rank = 32};
    struct engine *engine;
    struct err err;
    ck_assert_msg(!engine_open(&engine, &config, &err), "%s: %s", model, err.message);
    return engine;
}

/* Returns the logits of the last token. Row i has adapter number[i]. */
static const float *last_logits(struct engine *engine, const int32_t *number) {
    static int32_t ids[LENGTH], position[LENGTH], table[BLOCKS];
    int32_t start[2] = {0, LENGTH}, row = LENGTH - 1;
    const int V = engine_model(engine)->V;
    for (int i = 0; i < LENGTH; i++) ids[i] = (i * 37 + 11) % V, position[i] = i;
    for (int i = 0; i < BLOCKS; i++) table[i] = i;
    const struct step step = {.M = LENGTH,
                              .token = ids,
                              .position = position,
                              .slot = position,
                              .adapter = number,
                              .S = 1,
                              .row_start = start,
                              .table = table,
                              .table_stride = BLOCKS,
                              .R = 1,
                              .logit_row = &row};
    engine_submit(engine, &step);
    return engine_read_logits(engine);
}

static void copy_logits(struct engine *engine, const int32_t *number, float *out) {
    memcpy(out, last_logits(engine, number), (size_t)engine_model(engine)->V * sizeof *out);
}

static int load(struct engine *engine, const char *path) {
    struct adapter_facts facts;
    struct err err;
    int number;
    ck_assert_msg(!engine_adapter_load(engine, path, &number, &facts, &err), "%s", err.message);
    ck_assert_int_eq((int)facts.bytes > 0, 1);
    return number;
}

/* Two adapters of other ranks, as files. */
struct files {
    char *path[N_ADAPTERS];
};

static void make_files(struct files *files, const struct model_config *config) {
    for (int i = 0; i < N_ADAPTERS; i++) {
        /* of float32, and of 16 bits */
        const enum dtype type = i % 2 ? DTYPE_F16 : DTYPE_F32;
        const struct made_adapter made = {.rank = 3 + 14 * i,
                                          .alpha = 4 + (float)i,
                                          .seed = 5 + (uint64_t)i,
                                          .a_type = type,
                                          .b_type = type};
        files->path[i] = adapter_file_temporary(&made, config);
    }
}

static void remove_files(struct files *files) {
    for (int i = 0; i < N_ADAPTERS; i++) {
        unlink(files->path[i]);
        free(files->path[i]);
    }
}

/* Rows of the base model and of both adapters, in turn. */
static void mix(int32_t number[LENGTH]) {
    for (int i = 0; i < LENGTH; i++) number[i] = i % (N_ADAPTERS + 1);
}

static void fill(int32_t number[LENGTH], int32_t with) {
    for (int i = 0; i < LENGTH; i++) number[i] = with;
}

static void check_close(struct engine *one, struct engine *several, const int32_t *number) {
    const int V = engine_model(one)->V;
    float *a = malloc((size_t)V * sizeof *a), *b = malloc((size_t)V * sizeof *b);
    copy_logits(one, number, a);
    copy_logits(several, number, b);
    for (int i = 0; i < V; i++)
        ck_assert_msg(fabsf(a[i] - b[i]) < 1e-3f, "logit %d: %g and %g", i, (double)a[i],
                      (double)b[i]);
    ck_assert_int_eq(runner_argmax(a, V), runner_argmax(b, V));
    free(a), free(b);
}

/* ---- ranks as threads ----------------------------------------------------------------------- */

static const struct {
    const char *name;
    int K, F, H, G, D, ranks;
} shapes[] = {
    {"2 ranks", 64, 96, 4, 2, 16, 2},
    {"3 ranks, panels of a few outputs", 96, 93, 6, 3, 16, 3},
    {"4 ranks of a head of 8", 32, 64, 4, 4, 8, 4},
};

static char *make_model(int i) {
    const struct tiny_model tiny = {.V = 300,
                                    .K = shapes[i].K,
                                    .F = shapes[i].F,
                                    .L = 3,
                                    .H = shapes[i].H,
                                    .G = shapes[i].G,
                                    .D = shapes[i].D,
                                    .context_length = 512,
                                    .dtype = DTYPE_F32,
                                    .untied = true,
                                    .seed = 7};
    return tiny_model_temporary(&tiny);
}

START_TEST(ranks_give_the_tokens_of_one_rank) {
    char *file = make_model(_i);
    struct engine *one = open_ranks(file, 1), *several = open_ranks(file, shapes[_i].ranks);
    struct files files;
    int32_t number[LENGTH];
    make_files(&files, engine_model(one));
    for (int i = 0; i < N_ADAPTERS; i++) {
        ck_assert_int_eq(load(one, files.path[i]), i + 1);
        ck_assert_int_eq(load(several, files.path[i]), i + 1);
    }
    mix(number);
    check_close(one, several, number);
    for (int i = 0; i <= N_ADAPTERS; i++) {
        fill(number, i);
        check_close(one, several, number);
    }
    engine_close(one);
    engine_close(several);
    remove_files(&files);
    unlink(file);
    free(file);
}
END_TEST

static void check_equal(struct engine *engine, const float *want, const int32_t *number) {
    const size_t bytes = (size_t)engine_model(engine)->V * sizeof *want;
    ck_assert_int_eq(memcmp(last_logits(engine, number), want, bytes), 0);
}

/* The number of an adapter that has left is given to another one. */
START_TEST(a_number_changes_on_all_ranks) {
    char *file = make_model(0);
    struct engine *engine = open_ranks(file, 2);
    struct files files;
    float *want[N_ADAPTERS];
    int32_t number[LENGTH];
    make_files(&files, engine_model(engine));
    fill(number, 1);
    for (int i = 0; i < N_ADAPTERS; i++) {
        want[i] = malloc((size_t)engine_model(engine)->V * sizeof *want[i]);
        ck_assert_int_eq(load(engine, files.path[i]), 1);
        copy_logits(engine, number, want[i]);
        engine_adapter_unload(engine, 1);
    }
    ck_assert_int_ne(memcmp(want[0], want[1], sizeof(float) * 300), 0);
    for (int i = 0; i < 2 * N_ADAPTERS; i++) {
        ck_assert_int_eq(load(engine, files.path[i % 2]), 1);
        check_equal(engine, want[i % 2], number);
        engine_adapter_unload(engine, 1);
    }
    ck_assert_int_eq((int)engine->model.adapters.used_bytes, 0);
    for (int i = 0; i < N_ADAPTERS; i++) free(want[i]);
    engine_close(engine);
    remove_files(&files);
    unlink(file);
    free(file);
}
END_TEST

/* A model that is loaded again has the adapters of before, and those that were loaded meanwhile. */
START_TEST(adapters_outlive_the_weights_of_all_ranks) {
    char *file = make_model(0);
    struct engine *engine = open_ranks(file, 2);
    const struct engine_load_watch watch = {0};
    struct files files;
    struct err err;
    float *want = malloc((size_t)engine_model(engine)->V * sizeof *want);
    int32_t number[LENGTH];
    make_files(&files, engine_model(engine));
    ck_assert_int_eq(load(engine, files.path[0]), 1);
    ck_assert_int_eq(load(engine, files.path[1]), 2);
    mix(number);
    copy_logits(engine, number, want);
    engine_adapter_unload(engine, 2);
    engine_unload(engine);
    ck_assert_int_eq(load(engine, files.path[1]), 2);
    ck_assert_msg(!engine_load(engine, &watch, &err), "%s", err.message);
    check_equal(engine, want, number);
    engine_unload(engine);
    engine_adapter_unload(engine, 1);
    engine_close(engine);
    remove_files(&files);
    unlink(file);
    free(file);
    free(want);
}
END_TEST

/* Matrices with some of the rows repeat a on each rank, and the plan knows that. */
START_TEST(memory_is_that_of_all_ranks) {
    char *file = make_model(0);
    struct engine *one = open_ranks(file, 1), *two = open_ranks(file, 2);
    struct files files;
    struct adapter_facts facts[2];
    struct err err;
    int number;
    make_files(&files, engine_model(one));
    ck_assert(!engine_adapter_load(one, files.path[1], &number, &facts[0], &err));
    ck_assert(!engine_adapter_load(two, files.path[1], &number, &facts[1], &err));
    ck_assert_int_gt(facts[1].bytes, facts[0].bytes);
    ck_assert_int_lt(facts[1].bytes, 2 * facts[0].bytes);
    ck_assert_int_eq(engine_memory(two)->adapters,
                     N_ADAPTERS * adapter_most_bytes(engine_model(two), 32, 2));
    ck_assert_int_le(facts[1].bytes, adapter_most_bytes(engine_model(two), facts[1].rank, 2));
    two->model.adapters.bytes = 2 * facts[1].bytes - 1;
    ck_assert_int_eq(engine_adapter_load(two, files.path[1], &number, &facts[1], &err),
                     STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(err.message, "{lora-memory}"));
    engine_close(one);
    engine_close(two);
    remove_files(&files);
    unlink(file);
    free(file);
}
END_TEST

/* ---- messages ------------------------------------------------------------------------------- */

static struct engine *engine;
static struct adapter *sent;
static union {
    struct message_adapter adapter;
    struct message_numbers numbers;
    char room[ADAPTER_MESSAGE_BYTES];
} message;
static size_t bytes;

static void read_adapter(void) {
    const struct adapter_limits limits = {32, 1 << 20};
    struct files files;
    struct err err;
    char *file = make_model(0);
    engine = open_ranks(file, 1);
    make_files(&files, engine_model(engine));
    ck_assert(!adapter_read(&sent, files.path[1], &engine->model, &limits, &err));
    bytes = message_adapter_pack(&message.adapter, 2, sent);
    remove_files(&files);
    unlink(file);
    free(file);
}

static void free_adapter(void) {
    adapter_free(sent);
    engine_close(engine);
}

static ptrdiff_t place(const struct adapter *adapter, const void *matrix) {
    return (const uint8_t *)matrix - adapter->numbers;
}

START_TEST(an_adapter_arrives_as_it_was_sent) {
    struct adapter *got;
    ck_assert_int_eq(message.adapter.number, 2);
    ck_assert(message_adapter_unpack(&got, &engine->model, &message.adapter, bytes));
    ck_assert(got->n == sent->n && got->rank == sent->rank && got->bytes == sent->bytes);
    for (int64_t first = 0, n; first < sent->bytes; first += n) {
        size_t size = message_numbers_pack(&message.numbers, 2, sent, first, &n);
        ck_assert_uint_le(size, ADAPTER_MESSAGE_BYTES);
        ck_assert(message_numbers_unpack(got, &message.numbers, size));
    }
    ck_assert_int_eq(memcmp(got->numbers, sent->numbers, (size_t)sent->bytes), 0);
    for (int i = 0; i < sent->n; i++) {
        const struct adapter_part *a = &sent->part[i], *b = &got->part[i];
        ck_assert(a->layer == b->layer && a->role == b->role && a->low.rank == b->low.rank);
        ck_assert(a->low.scale == b->low.scale);
        ck_assert(a->low.type == b->low.type);
        ck_assert(place(sent, a->low.a) == place(got, b->low.a));
        ck_assert(place(sent, a->low.b_panels) == place(got, b->low.b_panels));
    }
    adapter_free(got);
}
END_TEST

START_TEST(a_cut_adapter_is_refused) {
    struct adapter *got;
    for (size_t n = 0; n < bytes; n += 4)
        ck_assert(!message_adapter_unpack(&got, &engine->model, &message.adapter, n));
    ck_assert(!message_adapter_unpack(&got, &engine->model, &message.adapter, bytes + 4));
}
END_TEST

START_TEST(an_impossible_adapter_is_refused) {
    struct message_adapter *m = &message.adapter;
    struct adapter *got;
    const struct message_adapter head = *m;
    const struct message_part part = m->part[1];
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        change;                                                                                    \
        ck_assert_msg(!message_adapter_unpack(&got, &engine->model, m, bytes), #change);           \
        *m = head;                                                                                 \
        m->part[1] = part;                                                                         \
    } while (0)
    REFUSED(m->kind = MESSAGE_NUMBERS);
    REFUSED(m->number = 0);
    REFUSED(m->number = N_ADAPTERS + 1);
    REFUSED(m->n--);
    REFUSED(m->bytes = 0);
    REFUSED(m->bytes = INT64_MAX);
    REFUSED(m->bytes = INT64_MAX / ADAPTER_ALIGN * ADAPTER_ALIGN);
    REFUSED(m->bytes++);
    REFUSED(m->bytes = part.a + ADAPTER_ALIGN);
    REFUSED(m->rank = part.rank - 1);
    REFUSED(m->part[1].layer = 3);
    REFUSED(m->part[1].layer = -1);
    REFUSED(m->part[1].role = N_ROLES);
    REFUSED(m->part[1].role = ROLE_ATTN_NORM);
    REFUSED(m->part[1].rank = 0);
    REFUSED(m->part[1].type = DTYPE_Q8_0);
    REFUSED(m->part[1].type = -1);
    REFUSED(m->part[1].a++);
    REFUSED(m->part[1].b++);
    REFUSED(m->part[1].a = -ADAPTER_ALIGN);
    REFUSED(m->part[1].a = -1);
    REFUSED(m->part[1].a = INT64_MAX);
    REFUSED(m->part[1].b = m->bytes);
#undef REFUSED
    ck_assert(message_adapter_unpack(&got, &engine->model, m, bytes));
    adapter_free(got);
}
END_TEST

START_TEST(numbers_without_a_place_are_refused) {
    int64_t n;
    const size_t size = message_numbers_pack(&message.numbers, 2, sent, 0, &n);
    struct message_numbers *m = &message.numbers;
    ck_assert(!message_numbers_unpack(sent, m, sizeof *m));
    m->first = -1;
    ck_assert(!message_numbers_unpack(sent, m, size));
    m->first = sent->bytes - n + 1;
    ck_assert(!message_numbers_unpack(sent, m, size));
    m->first = INT64_MAX;
    ck_assert(!message_numbers_unpack(sent, m, size));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_rank_adapters");
    TCase *threads = tcase_create("threads"), *messages = tcase_create("messages");
    tcase_add_loop_test(threads, ranks_give_the_tokens_of_one_rank, 0,
                        sizeof shapes / sizeof *shapes);
    tcase_add_test(threads, a_number_changes_on_all_ranks);
    tcase_add_test(threads, adapters_outlive_the_weights_of_all_ranks);
    tcase_add_test(threads, memory_is_that_of_all_ranks);
    tcase_set_timeout(threads, 120);
    suite_add_tcase(suite, threads);
    tcase_add_checked_fixture(messages, read_adapter, free_adapter);
    tcase_add_test(messages, an_adapter_arrives_as_it_was_sent);
    tcase_add_test(messages, a_cut_adapter_is_refused);
    tcase_add_test(messages, an_impossible_adapter_is_refused);
    tcase_add_test(messages, numbers_without_a_place_are_refused);
    suite_add_tcase(suite, messages);
    return suite_main(suite);
}
