/* Does the emulation report faults of cooperative grids and their barriers, and nothing else? */
#include "tests/cuda/broken_grids.cuh"
#include "tests/cuda/emulated_cases.h"

enum { MOST_BLOCKS = 9 };

static void run_kernel(const char *name) {
    const given g = give_arguments(MOST_BLOCKS, 2, 0);
    cudaDeviceSynchronize();
    /* the second launch starts with the state that the first one left */
    for (int i = 0; i < 2; i++) broken_grids_launch(name, g.args, test_stream());
    say_result_of(g.args);
}

static const wrong kernels[] = {
    {"too_many_blocks", ANY, "launch: a cooperative grid of 9 blocks; 8 fit at once"},
    {"too_much_memory", ANY, "launch: a cooperative grid of 5 blocks; 4 fit at once"},
    {"early", ANY, "launch: a cooperative grid that may begin early"},
    {"block_stays_away", ANY, "deadlock: 1 of 5 blocks have ended; the others wait, block"},
    {"one_too_many", ANY, "deadlock: 0 of 5 blocks have ended; the others wait, block"},
    {"one_too_few", ANY, NULL},
    {"not_reset", ANY, "deadlock: 0 of 5 blocks"},
    {"generation_read_late", ANY, "deadlock: "},
    {"generation_not_raised", ANY, "deadlock: 0 of 5 blocks"},
    {"no_fence_before", CHECKER, "race between blocks: "},
    {"no_fence_after", CHECKER, "race between blocks: "},
    {"no_sync_before", CHECKER, "race between blocks: "},
    {"no_sync_after", CHECKER, "race between blocks: "},
    {"loads_unfenced", CHECKER, "race between blocks: "},
    {"no_second_barrier", CHECKER, "race between blocks: "},
    {"threads_meet_apart", ANY, "barrier divergence: "},
    {"mbarrier", ANY, "mbarrier: not emulated where blocks live at once"},
};
static const char *const right_kernels[] = {"right", "right_alone", "right_full", "right_loads"};

enum { SEEDS = 5 };
#define COUNT(array) ((int)(sizeof array / sizeof *array))

START_TEST(wrong_kernels_are_found) {
    check_found(run_kernel, kernels[_i], "1");
}
END_TEST

START_TEST(right_kernels_pass) {
    for (int seed = 1; seed <= SEEDS; seed++) check_right(run_kernel, right_kernels[_i], seed, "1");
}
END_TEST

START_TEST(right_kernels_pass_in_any_order) {
    setenv("CUDA_EMU_ORDER", _i % 2 ? "fifo" : "lifo", 1);
    check_right(run_kernel, right_kernels[_i / 2], 1, "0");
    unsetenv("CUDA_EMU_ORDER");
}
END_TEST

int main(int, char **arguments) {
    cases_begin(arguments[0]);
    Suite *suite = suite_create("cuda_emulation_grids");
    TCase *found = tcase_create("finds");
    tcase_set_timeout(found, 300);
    tcase_add_loop_test(found, wrong_kernels_are_found, 0, COUNT(kernels));
    tcase_add_loop_test(found, right_kernels_pass, 0, COUNT(right_kernels));
    tcase_add_loop_test(found, right_kernels_pass_in_any_order, 0, 2 * COUNT(right_kernels));
    suite_add_tcase(suite, found);
    return suite_main(suite);
}
