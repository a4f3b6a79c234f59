/* The table of weight types in docs/formats.md has each type once, with the bits per weight in a
 * file and in the CPU's memory. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "kernels/kernels.h"
#include "support/suite_main.h"

enum { N = 64, K = 1024, COLUMNS = 3, CELL = 128 };

static const struct {
    enum dtype type;
    const char *name; /* as spelled in the table */
} types[] = {
#define ENTRY(TYPE, ...) {DTYPE_##TYPE, #TYPE},
    WEIGHT_TYPES(ENTRY) LOOKUP_TYPES(ENTRY)
#undef ENTRY
};
enum { N_TYPES = sizeof types / sizeof *types };

/* Splits a line of a table into cells. Returns false for other lines. */
static bool read_cells(char cells[COLUMNS][CELL], const char *line) {
    if (strncmp(line, "| ", 2) != 0) return false;
    for (int i = 0; i < COLUMNS; i++) {
        const char *end = strchr(++line, '|');
        if (!end || end - line >= CELL) return false;
        while (*line == ' ' && line < end) line++;
        int n = (int)(end - line);
        while (n > 0 && line[n - 1] == ' ') n--;
        snprintf(cells[i], CELL, "%.*s", n, line);
        line = end;
    }
    return true;
}

/* Returns entry i of "a, b, c", or the only entry. */
static void entry(char out[CELL], const char *list, int i) {
    for (; i > 0 && strstr(list, ", "); i--) list = strstr(list, ", ") + 2;
    snprintf(out, CELL, "%.*s", (int)strcspn(list, ","), list);
}

/* Returns the index of a name in "a, b, c", or -1. */
static int place_in(const char *list, const char *name) {
    for (int i = 0;; i++) {
        size_t n = strcspn(list, ",");
        if (strlen(name) == n && strncmp(list, name, n) == 0) return i;
        if (!list[n]) return -1;
        list += n + 2;
    }
}

/* Finds the row of a type. Returns the index of the type in that row. */
static int find_row(char cells[COLUMNS][CELL], const char *name) {
    FILE *file = fopen("docs/formats.md", "r");
    char line[512], row[COLUMNS][CELL];
    int rows = 0, place = -1;
    bool is_inside = false;
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) {
        is_inside = line[0] == '|' && (is_inside || strstr(line, "bits a weight in the file"));
        if (!is_inside || !read_cells(row, line) || place_in(row[0], name) < 0) continue;
        memcpy(cells, row, sizeof row);
        place = place_in(row[0], name);
        rows++;
    }
    fclose(file);
    ck_assert_msg(rows == 1, "docs/formats.md has %d rows of %s, not 1", rows, name);
    return place;
}

static double bits_on_cpu(enum dtype type) {
    struct backend *b;
    struct matrix *w;
    struct err err = {0};
    const struct backend_config config = {.threads = 1, .max_rows = 1, .max_k = K};
    enum dtype kept = dtype_kept(type);
    enum matrix_form form = kept != type && kept == DTYPE_F32 ? MATRIX_HALVES : MATRIX_NATIVE;
    void *rows = mem_calloc(N, dtype_bytes(kept, K));
    ck_assert_int_eq(backend_cpu_open(&b, &config, &err), STATUS_OK);
    ck_assert_int_eq(b->memory->matrix_new(b, &w, kept, N, K, rows, form, &err), STATUS_OK);
    double bits = 8.0 * (double)b->memory->matrix_bytes(w) / (N * K);
    b->memory->matrix_free(b, w);
    backend_close(b);
    free(rows);
    return bits;
}

/* Checks a cell such as "2.63", with at most two decimals. */
static void expect_cell(const char *name, const char *what, const char *cell, double bits) {
    char right[16];
    snprintf(right, sizeof right, "%g", (double)(int)(bits * 100 + 0.5) / 100);
    ck_assert_msg(strcmp(cell, right) == 0, "docs/formats.md: %s has %s bits %s, not \"%s\"", name,
                  right, what, cell);
}

START_TEST(a_type_has_its_bits) {
    char cells[COLUMNS][CELL], cell[CELL];
    enum dtype type = types[_i].type;
    int place = find_row(cells, types[_i].name);
    size_t elements = (size_t)dtype_block_elements((int)type);
    entry(cell, cells[1], place);
    if (type == DTYPE_INT4 || type == DTYPE_INT4H || type == DTYPE_INT8) /* not in any file */
        ck_assert_str_eq(cell, "");
    else
        expect_cell(types[_i].name, "in the file", cell,
                    8.0 * (double)dtype_bytes(type, elements) / (double)elements);
    entry(cell, cells[2], place);
    expect_cell(types[_i].name, "on the CPU", cell, bits_on_cpu(type));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_types_table");
    TCase *core = tcase_create("table");
    tcase_add_loop_test(core, a_type_has_its_bits, 0, N_TYPES);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
