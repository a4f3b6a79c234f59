/* The directory of a file's tensors: measuring, adding and finding, and the message for each kind
 * of error. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/files/tensors/weights.h"
#include "support/suite_main.h"

static struct weight tensor(const char *name, enum dtype type, int64_t K, int64_t N) {
    struct weight weight = {.type = type, .n_dims = N ? 2 : 1, .dim = {K, N}};
    strcpy(weight.name, name);
    return weight;
}

static void add(struct weights *weights, struct weight weight, const void *data) {
    struct err err = {0};
    ck_assert_msg(weight_measure(&weight, &err) == STATUS_OK, "%s", err.message);
    weight.data = data;
    ck_assert_msg(weights_add(weights, &weight, &err) == STATUS_OK, "%s", err.message);
}

static void expect_unmeasurable(struct weight weight, const char *words) {
    struct err err = {0};
    ck_assert_int_eq(weight_measure(&weight, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.param, weight.name);
    ck_assert_msg(strstr(err.message, words), "\"%s\" lacks \"%s\"", err.message, words);
}

START_TEST(sizes_follow_from_type_and_dimensions) {
    struct weight f32 = tensor("a", DTYPE_F32, 5, 3), q4 = tensor("b", DTYPE_Q4_1, 64, 3);
    struct weight vector = tensor("c", DTYPE_F16, 7, 0);
    ck_assert_int_eq(weight_measure(&f32, NULL), STATUS_OK);
    ck_assert(f32.n_elements == 15 && f32.bytes == 60 && f32.dim[2] == 1 && f32.dim[3] == 1);
    ck_assert_int_eq(weight_measure(&q4, NULL), STATUS_OK);
    ck_assert(q4.n_elements == 192 && q4.bytes == dtype_bytes(DTYPE_Q4_1, 192));
    ck_assert_int_eq(weight_measure(&vector, NULL), STATUS_OK);
    ck_assert(vector.n_elements == 7 && vector.bytes == 14 && vector.dim[1] == 1);
}
END_TEST

START_TEST(a_tensor_without_a_size_is_named) {
    struct weight flat = tensor("flat", DTYPE_F32, 4, 4);
    flat.n_dims = 0;
    expect_unmeasurable(flat, "has 0 dimensions; 1 to 5 are possible");
    expect_unmeasurable(tensor("empty", DTYPE_F32, 4, -1), "dimension 1 is");
    expect_unmeasurable(tensor("odd", DTYPE_Q8_0, 33, 2),
                        "rows of 33 elements are not whole blocks");
    expect_unmeasurable(tensor("strange", (enum dtype)9, 32, 2), "type number 9 is not supported");
    expect_unmeasurable(tensor("old", (enum dtype)31, 256, 2), "type number 31 is not supported");
    expect_unmeasurable(tensor("beyond", (enum dtype)4096, 32, 2), "these are: f32, f16");
    struct weight huge = {.name = "huge", .type = DTYPE_F32, .n_dims = 4};
    for (int i = 0; i < 4; i++) huge.dim[i] = INT32_MAX;
    expect_unmeasurable(huge, "more than 2^63 elements");
}
END_TEST

START_TEST(tensors_are_found_by_name_shape_and_type) {
    struct weights weights;
    const struct weight *found = NULL;
    float data[12 + 3] = {0};
    weights_init(&weights, 2);
    add(&weights, tensor("matrix", DTYPE_F32, 4, 3), data);
    add(&weights, tensor("vector", DTYPE_F32, 3, 0), data + 12);
    ck_assert_int_eq(weights_matrix(&weights, "matrix", 3, 4, &found, NULL), STATUS_OK);
    ck_assert(found == weights_lookup(&weights, "matrix") && found->data == data);
    ck_assert_int_eq(weights_vector(&weights, "vector", 3, &found, NULL), STATUS_OK);
    ck_assert_ptr_eq(found->data, data + 12);
    ck_assert_ptr_null(weights_lookup(&weights, "matri"));
    /* a vector is a matrix of one row */
    ck_assert_int_eq(
        weights_find(&weights, "vector", 2, (int64_t[]){3, 1}, WEIGHT_ANY_TYPE, &found, NULL),
        STATUS_OK);
    ck_assert_int_eq(weights_check_apart(&weights, NULL), STATUS_OK);
    weights_free(&weights);
}
END_TEST

START_TEST(a_misfit_is_reported_with_both_shapes) {
    static const struct {
        const char *name;
        int N, K;
        const char *words;
    } wrong[] = {
        {"missing", 3, 4, "tensor missing is missing"},
        {"matrix", 4, 3, "expected [3 x 4], found [4 x 3]"},
        {"matrix", 3, 5, "expected [5 x 3], found [4 x 3]"},
    };
    struct weights weights;
    const struct weight *found = NULL;
    uint16_t data[12] = {0};
    weights_init(&weights, 1);
    add(&weights, tensor("matrix", DTYPE_F16, 4, 3), data);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = {0};
        ck_assert_int_eq(
            weights_matrix(&weights, wrong[i].name, wrong[i].N, wrong[i].K, &found, &err),
            STATUS_BAD_FILE);
        ck_assert_str_eq(err.param, wrong[i].name);
        ck_assert_msg(strstr(err.message, wrong[i].words), "%s", err.message);
    }
    struct err err = {0};
    int64_t dim[] = {4, 3};
    ck_assert_int_eq(weights_find(&weights, "matrix", 2, dim, DTYPE_F32, &found, &err),
                     STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "expected type f32, found f16"));
    ck_assert_ptr_null(found);
    weights_free(&weights);
}
END_TEST

START_TEST(names_and_bytes_belong_to_one_tensor) {
    struct weights weights;
    struct weight again = tensor("a", DTYPE_F32, 4, 0);
    struct err err = {0};
    float data[8] = {0};
    weights_init(&weights, 3);
    add(&weights, tensor("a", DTYPE_F32, 4, 0), data);
    ck_assert_int_eq(weight_measure(&again, NULL), STATUS_OK);
    ck_assert_int_eq(weights_add(&weights, &again, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.param, "a");
    ck_assert_int_eq(weights.n, 1);
    add(&weights, tensor("b", DTYPE_F32, 4, 0), data + 4);
    ck_assert_int_eq(weights_check_apart(&weights, &err), STATUS_OK);
    add(&weights, tensor("c", DTYPE_F32, 2, 0), data + 3);
    ck_assert_int_eq(weights_check_apart(&weights, &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "tensors a and c overlap"));
    weights_free(&weights);
}
END_TEST

/* Only the pages of a mapping can be read again, so others are kept. */
START_TEST(memory_that_is_no_mapping_is_not_released) {
    struct weights weights;
    const size_t n = 1 << 16;
    float *data = mem_alloc(n * sizeof *data);
    for (size_t i = 0; i < n; i++) data[i] = (float)i;
    weights_init(&weights, 1);
    add(&weights, tensor("a", DTYPE_F32, (int64_t)n, 0), data);
    weights_release_file_pages(&weights);
    for (size_t i = 0; i < n; i++) ck_assert(data[i] == (float)i);
    weights_free(&weights);
    free(data);
}
END_TEST

enum { PAGE = 4096, N_PAGES = 256, FIRST = 100, LAST = 200 }; /* pages of a tensor */

/* A mapped file. Its pages are not in memory if its file system supports that. */
static uint8_t *map_cold_file(void) {
    char path[] = "/tmp/penstock-weights-XXXXXX";
    static const uint8_t page[PAGE] = {1};
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    for (int i = 0; i < N_PAGES; i++) ck_assert_int_eq(write(fd, page, PAGE), PAGE);
    ck_assert_int_eq(fsync(fd), 0);
    ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    uint8_t *data = mmap(NULL, N_PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert(data != MAP_FAILED);
    close(fd);
    return data;
}

static int pages_in_memory(uint8_t *data, int first, int last) {
    unsigned char resident[N_PAGES];
    int n = 0;
    ck_assert_int_eq(mincore(data, N_PAGES * PAGE, resident), 0);
    for (int i = first; i <= last; i++) n += resident[i] & 1;
    return n;
}

START_TEST(a_tensor_is_read_ahead_without_being_touched) {
    uint8_t *data = map_cold_file();
    struct weight weight = tensor("a", DTYPE_F32, (LAST - FIRST) * PAGE / 4, 0);
    ck_assert_int_eq(weight_measure(&weight, NULL), STATUS_OK);
    weight.data = data + FIRST * PAGE + 40; /* files do not align their tensors */
    weight_read_ahead(&weight);
    for (int i = 0; i < 1000 && pages_in_memory(data, FIRST, LAST) < LAST - FIRST + 1; i++)
        usleep(10000);
    ck_assert_int_eq(pages_in_memory(data, FIRST, LAST), LAST - FIRST + 1);
    munmap(data, N_PAGES * PAGE);
}
END_TEST

/* The bytes of tensors are found in the file that they are mapped from. Other memory is not in any
 * file. */
START_TEST(places_in_files_are_known) {
    struct weights weights;
    uint8_t *first = map_cold_file(), *second = map_cold_file(), other;
    weights_init(&weights, 2);
    add(&weights, tensor("a", DTYPE_F32, 3000, 0), first + 2 * PAGE + 8);
    weights_mark_mapped(&weights, 0, &(struct mapping){first, LAST * PAGE, 7});
    add(&weights, tensor("b", DTYPE_F32, 3000, 0), second);
    weights_mark_mapped(&weights, 1, &(struct mapping){second, N_PAGES * PAGE, 8});
    struct file_place a = weights_place(&weights, first + 2 * PAGE + 8),
                      b = weights_place(&weights, second),
                      last = weights_place(&weights, second + N_PAGES * PAGE - 1);
    ck_assert(a.fd == 7 && a.offset == 2 * PAGE + 8);
    ck_assert(b.fd == 8 && b.offset == 0);
    ck_assert(last.fd == 8 && last.offset == N_PAGES * PAGE - 1);
    ck_assert_int_lt(weights_place(&weights, first + LAST * PAGE).fd, 0);
    ck_assert_int_lt(weights_place(&weights, &other).fd, 0);
    weights_free(&weights);
    munmap(first, N_PAGES * PAGE), munmap(second, N_PAGES * PAGE);
}
END_TEST

/* A process may have few descriptors, and a model many parts. */
START_TEST(many_files_keep_few_descriptors) {
    enum { MANY = 1500 };
    struct mapping *files = mem_calloc(MANY, sizeof *files);
    int n_open = 0, probe = dup(0);
    close(probe);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(mapping_open(&files[i], "tests/engine/test_weights.c", NULL), STATUS_OK);
        ck_assert_int_eq(files[i].data[0], '/');
        n_open += files[i].fd >= 0;
    }
    ck_assert(n_open > 0 && n_open <= 256);
    for (int i = 0; i < MANY; i++) mapping_close(&files[i]);
    ck_assert_int_eq(dup(0), probe); /* all are closed */
    close(probe);
    free(files);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        sizes_follow_from_type_and_dimensions,
        a_tensor_without_a_size_is_named,
        tensors_are_found_by_name_shape_and_type,
        a_misfit_is_reported_with_both_shapes,
        names_and_bytes_belong_to_one_tensor,
        memory_that_is_no_mapping_is_not_released,
        a_tensor_is_read_ahead_without_being_touched,
        places_in_files_are_known,
        many_files_keep_few_descriptors,
    };
    Suite *suite = suite_create("engine/weights");
    TCase *all = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(all, tests[i]);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
