/* Lack of memory inside a scope ends the scope and frees its blocks. The sanitizer build finds
 * leaks. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "support/faults.h"
#include "support/suite_main.h"

struct work {
    char *kept;      /* a block that the function has stored for its caller */
    void *before;    /* allocated outside the scope */
    int n_undone;    /* calls of undo */
    int n_allocated; /* blocks that were allocated before the failure */
};

static void undo(void *arg) {
    struct work *work = arg;
    work->n_undone++;
    mem_free(work->kept);
    work->kept = NULL;
}

/* Allocates, frees and grows blocks in an order that moves them within the set. */
static void allocate_many(void *arg) {
    struct work *work = arg;
    void *blocks[200];
    for (int i = 0; i < 200; i++, work->n_allocated++)
        blocks[i] = i % 2 ? mem_alloc((size_t)i) : mem_realloc(NULL, (size_t)i + 1);
    for (int i = 0; i < 200; i += 3) mem_free(blocks[i]);
    for (int i = 1; i < 200; i += 3) blocks[i] = mem_realloc(blocks[i], 1000);
    work->kept = mem_strdup("kept");
    for (int i = 1; i < 200; i += 3) mem_free(blocks[i]);
    for (int i = 2; i < 200; i += 3) mem_free(blocks[i]);
}

START_TEST(a_scope_that_succeeds_leaves_its_blocks_to_their_owners) {
    struct work work = {0};
    ck_assert(mem_run(allocate_many, undo, &work));
    ck_assert_int_eq(work.n_undone, 0);
    ck_assert_str_eq(work.kept, "kept");
    mem_free(work.kept);
}
END_TEST

START_TEST(a_scope_frees_its_blocks_whichever_allocation_fails) {
    int n = 0;
    for (bool is_done = false; !is_done; n++) {
        struct work work = {0};
        faults_begin(n, FAULT_ONCE);
        is_done = mem_run(allocate_many, undo, &work);
        faults_end();
        ck_assert_int_eq(work.n_undone, !is_done);
        ck_assert(is_done == (work.kept != NULL));
        mem_free(work.kept);
    }
    ck_assert_int_eq(n, 200 + 67 + 1 + 1);
}
END_TEST

static void replace_block(void *arg) {
    struct work *work = arg;
    work->before = mem_realloc(work->before, 5000);
    mem_alloc(10);
}

START_TEST(a_block_from_outside_stays_its_owners_even_if_it_grows_inside) {
    for (int n = 0; n < 2; n++) {
        struct work work = {.before = mem_alloc(100)};
        memset(work.before, 7, 100);
        faults_begin(n, FAULT_ONCE);
        ck_assert(!mem_run(replace_block, NULL, &work));
        faults_end();
        ck_assert_int_eq(((char *)work.before)[99], 7);
        mem_free(work.before);
    }
}
END_TEST

static void make_shared(void *arg) {
    struct work *work = arg;
    work->kept = mem_strdup("shared");
    work->before = mem_realloc(work->before, 64); /* a block of the outer scope */
}

static void make_shared_then_fail(void *arg) {
    struct work *work = arg;
    work->before = mem_alloc(8);
    ck_assert(mem_run(make_shared, NULL, work));
    faults_begin(0, FAULT_ONCE);
    mem_alloc(8);
}

START_TEST(blocks_of_an_inner_scope_outlive_the_failure_of_the_outer_one) {
    struct work work = {0};
    ck_assert(!mem_run(make_shared_then_fail, NULL, &work));
    faults_end();
    ck_assert_str_eq(work.kept, "shared");
    mem_free(work.kept);
}
END_TEST

static void fail_inside(void *arg) {
    struct work *work = arg;
    faults_begin(0, FAULT_ONCE);
    bool is_done = mem_run(make_shared, NULL, work);
    faults_end();
    ck_assert(!is_done);
    work->n_allocated++;
}

START_TEST(the_failure_of_an_inner_scope_leaves_the_outer_one_running) {
    struct work work = {0};
    ck_assert(mem_run(fail_inside, undo, &work));
    ck_assert_int_eq(work.n_allocated, 1);
}
END_TEST

START_TEST(a_block_that_is_tried_is_no_scopes) {
    faults_begin(0, FAULT_ALWAYS);
    ck_assert_ptr_null(mem_try_alloc(1));
    ck_assert_ptr_null(mem_try_calloc(1, 1));
    void *block = NULL;
    ck_assert_ptr_null(mem_try_realloc(block, 1));
    struct buf buf = {0};
    ck_assert(!buf_try_add(&buf, "x", 1));
    ck_assert_ptr_null(buf.data);
    faults_end();
    ck_assert(buf_try_add(&buf, "abc", 3));
    faults_begin(0, FAULT_ALWAYS);
    ck_assert(
        !buf_try_add(&buf, "0123456789012345678901234567890123456789012345678901234567890", 61));
    faults_end();
    ck_assert_str_eq(buf.data, "abc");
    buf_free(&buf);
}
END_TEST

static void read_document(void *arg) {
    const char *text =
        "{\"a\":[1,2.5,\"text\",{\"b\":null}],\"c\":{\"d\":[[],{}]},\"e\":\"\\u00e9\"}";
    struct json *json;
    struct err err;
    (void)arg;
    ck_assert_int_eq(json_parse(&json, "The body", text, strlen(text), &err), STATUS_OK);
    json_free(json);
}

START_TEST(a_json_document_is_read_whole_or_freed_whole) {
    int n = 0;
    for (bool is_done = false; !is_done; n++) {
        faults_begin(n, FAULT_ONCE);
        is_done = mem_run(read_document, NULL, NULL);
        faults_end();
    }
    ck_assert_int_gt(n, 15);
}
END_TEST

START_TEST(lack_of_memory_is_a_503_with_a_code) {
    struct err err;
    ck_assert_int_eq(err_out_of_memory(&err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(status_http(err.status), 503);
    ck_assert_str_eq(err.code, "out_of_memory");
    ck_assert_int_eq(err_out_of_memory(NULL), STATUS_UNAVAILABLE);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_memory_scope");
    TCase *scope = tcase_create("scope");
    suite_add_tcase(suite, scope);
    tcase_add_test(scope, a_scope_that_succeeds_leaves_its_blocks_to_their_owners);
    tcase_add_test(scope, a_scope_frees_its_blocks_whichever_allocation_fails);
    tcase_add_test(scope, a_block_from_outside_stays_its_owners_even_if_it_grows_inside);
    tcase_add_test(scope, blocks_of_an_inner_scope_outlive_the_failure_of_the_outer_one);
    tcase_add_test(scope, the_failure_of_an_inner_scope_leaves_the_outer_one_running);
    tcase_add_test(scope, a_block_that_is_tried_is_no_scopes);
    tcase_add_test(scope, a_json_document_is_read_whole_or_freed_whole);
    tcase_add_test(scope, lack_of_memory_is_a_503_with_a_code);
    return suite_main(suite);
}
