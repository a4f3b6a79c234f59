/* The index of a weight cache file: counts, shapes and offsets that differ from those of the model
 * are refused, even if the checksums are right. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/internal.h"
#include "engine/models/load/weight_index.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

/* An embedding of three whole pieces, and matrices smaller than one piece. */
enum { V = 49152 };

static char *model_path;
static struct engine *engine;
static struct backend *backend;
static const struct model *model;
static struct weight_index good; /* of the model */

static void open_model(void) {
    struct tiny_model tiny;
    struct err err;
    tiny_model_defaults(&tiny);
    tiny.V = V;
    model_path = tiny_model_temporary(&tiny);
    struct engine_config config = {.model = model_path,
                                   .threads = 2,
                                   .dtype = COMPUTE_FLOAT32,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 16,
                                   .block_size = 16,
                                   .kv_memory = 1 << 20};
    ck_assert_msg(!engine_open(&engine, &config, &err), "%s", err.message);
    model = &engine->model;
    backend = model->backend;
    good.key = 7;
    weight_index_model(&good, model);
    ck_assert_uint_gt(good.n_pieces, good.n + 1);
}

static void close_model(void) {
    weight_index_free(&good);
    engine_close(engine);
    unlink(model_path);
    free(model_path);
}

/* Returns the bytes of a file with this index. Free them with mem_free. */
static uint8_t *file_of(const struct weight_index *index, size_t *size) {
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    ck_assert(weight_index_write(file, index));
    *size = index->end;
    uint8_t *bytes = mem_calloc(*size, 1);
    rewind(file);
    ck_assert_uint_gt(fread(bytes, 1, *size, file), 0);
    fclose(file);
    return bytes;
}

enum verdict { REFUSED, WRONG_SUMS, TAKEN };

static enum verdict read_bytes(const void *bytes, size_t size) {
    struct weight_index found = {.key = good.key};
    enum verdict verdict = REFUSED;
    if (weight_index_read(&found, model, bytes, size))
        verdict = weight_index_is_right(&found, backend) ? TAKEN : WRONG_SUMS;
    weight_index_free(&found);
    return verdict;
}

static enum verdict read_index(const struct weight_index *index) {
    size_t size;
    uint8_t *bytes = file_of(index, &size);
    enum verdict verdict = read_bytes(bytes, size);
    mem_free(bytes);
    return verdict;
}

/* A copy for a test to change, with room for one more matrix and sum. */
static struct weight_index copy_good(void) {
    struct weight_index copy = good;
    copy.entry = mem_calloc(good.n + 1, sizeof *copy.entry);
    copy.data = mem_calloc(good.n + 1, sizeof *copy.data);
    copy.sum = mem_calloc(good.n_pieces + 1, sizeof *copy.sum);
    memcpy(copy.entry, good.entry, good.n * sizeof *copy.entry);
    memcpy(copy.data, good.data, good.n * sizeof *copy.data);
    memcpy(copy.sum, good.sum, good.n_pieces * sizeof *copy.sum);
    return copy;
}

/* Returns the entry of one piece that is last in the file. */
static struct weight_entry *last(struct weight_index *index) {
    return &index->entry[index->n - 1];
}

START_TEST(an_index_is_read_as_written) {
    ck_assert_int_eq(read_index(&good), TAKEN);
    struct weight_index copy = copy_good();
    copy.key++;
    ck_assert_int_eq(read_index(&copy), REFUSED);
    weight_index_free(&copy);
}
END_TEST

/* ---- counts --------------------------------------------------------------------------------- */

static void lack_a_matrix(struct weight_index *index) {
    index->n--, index->n_pieces--;
}

static void lack_a_sum(struct weight_index *index) {
    index->n_pieces--;
}

static void have_a_sum_more(struct weight_index *index) {
    index->n_pieces++;
}

static void have_a_matrix_twice(struct weight_index *index) {
    index->entry[index->n] = *last(index);
    index->data[index->n] = index->data[index->n - 1];
    index->n++, index->n_pieces++;
}

static void have_a_matrix_in_the_place_of_another(struct weight_index *index) {
    last(index)->layer = 0;
}

/* ---- shapes --------------------------------------------------------------------------------- */

static void have_a_row_more(struct weight_index *index) {
    last(index)->N++;
}

static void have_shorter_rows(struct weight_index *index) {
    last(index)->K--;
}

static void have_rows_below_0(struct weight_index *index) {
    last(index)->N = -last(index)->N;
}

/* ---- places --------------------------------------------------------------------------------- */

static void be_of_layer_below(struct weight_index *index) {
    index->entry[0].layer = -2;
}

static void be_of_layer_beyond(struct weight_index *index) {
    last(index)->layer = model->config.L;
}

static void be_of_role_below(struct weight_index *index) {
    last(index)->role = -1;
}

static void be_of_role_beyond(struct weight_index *index) {
    last(index)->role = N_ROLES;
}

/* The role of a vector. */
static void be_of_a_vector(struct weight_index *index) {
    last(index)->role = ROLE_ATTN_NORM;
}

/* The head, in a model whose embedding is also its head. */
static void be_of_a_role_that_is_lacking(struct weight_index *index) {
    ck_assert_int_eq(index->entry[0].role, ROLE_TOKEN_EMBEDDING);
    index->entry[0].role = ROLE_OUTPUT;
}

static void lie_askew(struct weight_index *index) {
    last(index)->at -= 4;
}

/* After the sums, but before the start of the matrices. */
static void lie_in_the_padding(struct weight_index *index) {
    size_t end = sizeof(struct weight_header) + index->n * sizeof *index->entry +
                 index->n_pieces * sizeof *index->sum;
    last(index)->at = (end + 63) / 64 * 64;
    ck_assert_uint_lt(last(index)->at, index->entry[0].at);
}

static void lie_past_the_end(struct weight_index *index) {
    index->end -= 64;
}

static void lie_nowhere(struct weight_index *index) {
    last(index)->bytes = 0;
    index->n_pieces--;
}

static void (*const changes[])(struct weight_index *) = {
    lack_a_matrix,       have_a_matrix_in_the_place_of_another,
    lack_a_sum,          have_a_sum_more,
    have_a_matrix_twice, have_a_row_more,
    have_shorter_rows,   have_rows_below_0,
    be_of_layer_below,   be_of_layer_beyond,
    be_of_role_below,    be_of_role_beyond,
    be_of_a_vector,      be_of_a_role_that_is_lacking,
    lie_askew,           lie_in_the_padding,
    lie_past_the_end,    lie_nowhere,
};

START_TEST(an_index_that_differs_is_refused) {
    struct weight_index copy = copy_good();
    changes[_i](&copy);
    size_t size;
    copy.end += 4096; /* so that matrices outside the file are written, too */
    uint8_t *bytes = file_of(&copy, &size);
    struct weight_header h;
    memcpy(&h, bytes, sizeof h);
    h.file_bytes = size = copy.end - 4096;
    memcpy(bytes, &h, sizeof h);
    ck_assert_int_eq(read_bytes(bytes, size), REFUSED);
    mem_free(bytes);
    weight_index_free(&copy);
}
END_TEST

/* ---- sums ----------------------------------------------------------------------------------- */

START_TEST(each_piece_has_its_own_sum) {
    for (size_t i = 0; i < good.n_pieces; i++) {
        struct weight_index copy = copy_good();
        copy.sum[i] ^= 1;
        ck_assert_int_eq(read_index(&copy), WRONG_SUMS);
        weight_index_free(&copy);
    }
}
END_TEST

/* The first and the last byte of each piece. */
START_TEST(each_byte_is_summed) {
    size_t size;
    uint8_t *bytes = file_of(&good, &size);
    for (size_t i = 0; i < good.n; i++) {
        uint64_t end = good.entry[i].bytes;
        for (uint64_t at = 0; at < end; at += WEIGHT_PIECE_BYTES) {
            uint64_t beyond = at + WEIGHT_PIECE_BYTES < end ? at + WEIGHT_PIECE_BYTES : end;
            const uint64_t places[] = {at, beyond - 1};
            for (int p = 0; p < 2; p++) {
                uint8_t *byte = &bytes[good.entry[i].at + places[p]];
                *byte ^= 1;
                ck_assert_int_eq(read_bytes(bytes, size), WRONG_SUMS);
                *byte ^= 1;
            }
        }
    }
    ck_assert_int_eq(read_bytes(bytes, size), TAKEN);
    mem_free(bytes);
}
END_TEST

/* ---- headers -------------------------------------------------------------------------------- */

/* Counts that would need more memory than the machine has, or overflow. */
START_TEST(counts_of_a_header_allocate_nothing_unchecked) {
    static const uint64_t counts[] = {0,          1,          INT32_MAX,      1ull << 32,
                                      1ull << 58, 1ull << 61, UINT64_MAX / 8, UINT64_MAX};
    size_t size;
    uint8_t *bytes = file_of(&good, &size);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct weight_header h, forged;
        memcpy(&h, bytes, sizeof h);
        forged = h, forged.n_matrices = counts[i];
        memcpy(bytes, &forged, sizeof h);
        ck_assert_int_eq(read_bytes(bytes, size), REFUSED);
        forged = h, forged.n_pieces = counts[i];
        memcpy(bytes, &forged, sizeof h);
        ck_assert_int_eq(read_bytes(bytes, size), REFUSED);
        memcpy(bytes, &h, sizeof h);
    }
    for (size_t cut = 0; cut < sizeof(struct weight_header); cut++)
        ck_assert_int_eq(read_bytes(bytes, cut), REFUSED);
    mem_free(bytes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/weight_index");
    TCase *all = tcase_create("all");
    log_setup(LOG_ERROR, LOG_TEXT);
    tcase_add_unchecked_fixture(all, open_model, close_model);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, an_index_is_read_as_written);
    tcase_add_loop_test(all, an_index_that_differs_is_refused, 0, sizeof changes / sizeof *changes);
    tcase_add_test(all, each_piece_has_its_own_sum);
    tcase_add_test(all, each_byte_is_summed);
    tcase_add_test(all, counts_of_a_header_allocate_nothing_unchecked);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
