/* Does the emulation report faults with mbarriers, bulk copies, products of warpgroups and their
 * registers, and nothing else? */
#include "tests/cuda/broken_async.cuh"
#include "tests/cuda/emulated_cases.h"

static void run_kernel(const char *name) {
    const given g = give_arguments(1, 1, 16);
    cudaDeviceSynchronize();
    broken_async_launch(name, g.args, test_stream());
    say_result_of(g.args);
}

static const wrong kernels[] = {
    {"copy_no_expect", ANY, "a block ends before 1 of its copies"},
    {"copy_half_expected", ANY, "too few bytes were expected"},
    {"copy_few_bytes", ANY, "mbarrier: 256 unexpected bytes arrived"},
    {"copy_many_bytes", ANY, "deadlock: "},
    {"copy_wrong_parity", ANY, NULL},
    {"copy_wrong_parity", CHECKER, "uninitialised: "},
    {"copy_same_parity", ANY, "waits for the wrong phase"},
    {"barrier_made_again", ANY, "made again while it is waited for"},
    {"barrier_not_made", ANY, "used before it is made"},
    {"barrier_not_fenced", ANY, "no fence_proxy_async has shown the barrier"},
    {"barrier_without_barrier", CHECKER, "mbarrier: "},
    {"barrier_written_over", ANY, "it was written over"},
    {"copy_to_odd", ANY, "all must be multiples of 16"},
    {"copy_from_odd", ANY, "all must be multiples of 16"},
    {"copy_odd_size", ANY, "all must be multiples of 16"},
    {"copy_wrong_way", ANY, "bulk copy: "},
    {"copy_no_wait", ANY, "a block ends before 1 of its copies"},
    {"copy_no_wait", CHECKER, "uninitialised: "},
    {"copy_reads_unfenced", CHECKER, "proxy: "},
    {"ring_short", ANY, "an arrival too many"},
    {"ring_phase_behind", ANY, "waits for the wrong phase"},
    {"ring_one_arrival", CHECKER, "race: "},
    {"product_no_fence", ANY, "a group without wgmma_fence"},
    {"product_no_commit", ANY, "a thread ends with products that it never waited for"},
    {"product_reads_early", ANY, NULL},
    {"product_sum_changed", ANY, "a register was written during a product"},
    {"product_operand_changed", ANY, NULL},
    {"product_matrix_changed", CHECKER, "proxy: "},
    {"product_no_proxy_fence", CHECKER, "proxy: "},
    {"product_matrices_differ", ANY, "multiply by different matrices"},
    {"product_other_swizzle", ANY, NULL},
    {"product_out_of_memory", ANY, "leads out of shared memory"},
    {"product_waits_apart", ANY, "threads of a warpgroup wait at"},
    {"product_never_waits", ANY, "a thread ends with products that it never waited for"},
    {"registers_too_many", ANY, "deadlock: "},
    {"registers_give_more", ANY, "setmaxnreg: "},
    {"registers_odd", ANY, "setmaxnreg: "},
};
static const char *const right_kernels[] = {"right_copy", "right_ring", "right_product",
                                            "right_registers"};

enum { SEEDS = 3 };
#define COUNT(array) ((int)(sizeof array / sizeof *array))

START_TEST(wrong_kernels_are_found) {
    check_found(run_kernel, kernels[_i], "1");
}
END_TEST

START_TEST(right_kernels_pass) {
    for (int seed = 1; seed <= SEEDS; seed++) check_right(run_kernel, right_kernels[_i], seed, "1");
}
END_TEST

int main(int, char **arguments) {
    cases_begin(arguments[0]);
    Suite *suite = suite_create("cuda_emulation_async");
    TCase *found = tcase_create("finds");
    tcase_set_timeout(found, 300);
    tcase_add_loop_test(found, wrong_kernels_are_found, 0, COUNT(kernels));
    tcase_add_loop_test(found, right_kernels_pass, 0, COUNT(right_kernels));
    suite_add_tcase(suite, found);
    return suite_main(suite);
}
