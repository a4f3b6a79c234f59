/* Random weights that the device makes have the host's bytes, for all types, at any start of a part
 * and any odd end. */
#include <string.h>

#include "kernels/cuda/gemm/matrix.cuh"
#include "tests/cuda/support.h"

static void compare(enum dtype type, int N, int K, size_t first_row) {
    struct random_weights w;
    random_weights_plan(&w, type, K, 11);
    const size_t row = dtype_bytes(type, (size_t)K), from = first_row * row, to = (size_t)N * row;
    std::vector<uint8_t> right(to);
    random_weights_fill(&w, right.data(), 0, to);
    buffer got(to - from);
    random_rows(got.data, &w, from, to, test_stream());
    finish();
    const std::vector<uint8_t> bytes = got.read<uint8_t>();
    ck_assert_msg(memcmp(bytes.data(), right.data() + from, to - from) == 0, "%s, %d rows of %d",
                  dtype_name(type), N, K);
}

START_TEST(bytes_are_the_host_s) {
    for (int type : {DTYPE_F32, DTYPE_F16, DTYPE_BF16}) {
        compare((enum dtype)type, 35, 33, 0);
        compare((enum dtype)type, 35, 33, 16);
        compare((enum dtype)type, 1, 1, 0);
        compare((enum dtype)type, 64, 512, 32);
    }
    for (int type : {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_MXFP4}) {
        compare((enum dtype)type, 35, 96, 0);
        compare((enum dtype)type, 35, 96, 16);
    }
    for (int type :
         {DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_Q2_K, DTYPE_TQ1_0, DTYPE_Q1_0, DTYPE_Q2_0})
        compare((enum dtype)type, 19, 512, 16);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_random");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, bytes_are_the_host_s);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
