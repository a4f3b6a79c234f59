/* Panels written from 16 rows at a time have the same bytes as panels written row by row. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

/* Returns the same panels, written row by row. The caller frees them. */
static uint8_t *row_by_row(const struct matrix *made, const uint8_t *rows) {
    struct matrix w = *made;
    w.panels = mem_calloc(1, w.bytes);
    for (int row = 0; row < w.N; row++)
        matrix_write_row(&w, row, rows + (size_t)row * dtype_bytes(w.type, (size_t)w.K));
    return w.panels;
}

static void compare(struct backend *b, enum dtype type, int N, int K) {
    uint64_t state = (uint64_t)N * 1000 + (uint64_t)type;
    size_t bytes = dtype_bytes(type, (size_t)N * (size_t)K);
    uint8_t *rows = mem_alloc(bytes); /* any bytes are valid weights of these types */
    for (size_t i = 0; i < bytes; i++) rows[i] = (uint8_t)random_u32(&state);
    struct matrix *w = NULL;
    struct err err = {0};
    ck_assert_int_eq(b->memory->matrix_new(b, &w, type, N, K, rows, false, &err), STATUS_OK);
    uint8_t *expected = row_by_row(w, rows);
    ck_assert_msg(memcmp(w->panels, expected, w->bytes) == 0, "%s of %d rows of %d",
                  dtype_name((int)type), N, K);
    b->memory->matrix_free(b, w);
    free(expected);
    free(rows);
}

static void check_each_type(int threads) {
    struct backend *b = open_backend(NULL, threads, 1, 1024);
    for (int i = 0; i < N_TYPES; i++) {
        if (all_types[i] == DTYPE_F32 || all_types[i] == DTYPE_F16 || all_types[i] == DTYPE_BF16)
            continue;
        compare(b, all_types[i], 1, 256);
        compare(b, all_types[i], 16, 256);
        compare(b, all_types[i], 37, 768);
    }
    compare(b, DTYPE_Q4_1, 48, 32);
    compare(b, DTYPE_Q8_0, 40000, 64); /* several large pages */
    backend_close(b);
}

START_TEST(whole_panels_are_rows) {
    check_each_type(_i);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_relay");
    TCase *t = tcase_create("panels");
    tcase_add_loop_test(t, whole_panels_are_rows, 1, 4);
    tcase_set_timeout(t, 300);
    suite_add_tcase(suite, t);
    return suite_main(suite);
}
