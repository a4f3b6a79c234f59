/* Families whose layers have windows, with separate blocks for these layers, on the CUDA backend.
 * In float32 the tokens equal the CPU's. The bytes do not depend on other requests: in chunks that
 * end around the window's edge, with prefix hits, forks, preemption by recomputing and by swapping,
 * with one step in flight and with two. After each step, blocks that no window needs any more are
 * overwritten. The expected bytes are computed with all layers keeping all positions.
 * ctest label: slow */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/poison.h"
#include "support/mixed_runs.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { ASKED = 4, LEARNT_BLOCK = 16 };

/* All layers or some have windows; caps, sinks, experts. The other families are forms of these.
 * They pass too, but take minutes under emulation. */
static const struct mixed_variety varieties[] = {
    {"tests/vectors/families/gemma2.gguf", COMPUTE_FLOAT32, KV_DTYPE_FLOAT32, QUANTIZATION_NONE,
     ASKED, false, 71},
    {"tests/vectors/folders/mistral", COMPUTE_BFLOAT16, KV_DTYPE_FLOAT16, QUANTIZATION_NONE, ASKED,
     false, 72},
    {"tests/vectors/families/gpt_oss.gguf", COMPUTE_FLOAT16, KV_DTYPE_FP8, QUANTIZATION_NONE, ASKED,
     false, 73},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

/* If each access is watched, one run is enough: the kernels' own suites test the shapes. */
static bool watched;

/* Few blocks, or few window blocks; steps of a window's length, of one row less and more, and of
 * many rows. In e4m3 a block's first vector sets its scale, so the block size changes the results.
 * Each model skips one of the settings, because emulation is slow. */
static void check_same_bytes(const struct request_set *set, int variety, struct tally *tally) {
    ck_assert(set->n_windows > 0 && set->window > 0);
    const int size = set->kv.dtype == DTYPE_E4M3 ? LEARNT_BLOCK : 4, W = set->window;
    const int few = mixed_blocks(set, size), least = window_blocks_seen(W, size);
    const struct setting settings[] = {
        {"plain", 1, W, 8, 8, size, 4 * few, true, 2, .window_blocks = least + 2},
        {"plain", 1, W - 1, 8, 8, size, few, true, 2, 60, .window_blocks = least + 1},
        {"plain", 1, 33, 8, 8, size, few + 1, false, 1, 12, .window_blocks = few},
        {"plain", 1, W + 1, 8, 8, size, few + 2, true, 1, .window_blocks = least},
    };
    for (int i = 0; i < (int)(sizeof settings / sizeof *settings); i++) {
        struct setting setting = settings[i];
        if (watched ? i != 1 : i == variety + 1) continue;
        setting.poison = poison_on_cuda;
        setting.window_blocks = min_int(setting.window_blocks, setting.n_blocks);
        mixed_run(set, &setting, tally);
    }
}

START_TEST(bytes_are_the_same_in_any_company) {
    struct tally tally = {0};
    mixed_run_all(varieties, N_VARIETIES, watched, check_same_bytes, &tally);
    ck_assert(tally.swapped_in > 0 && tally.preemptions > 0 && tally.prefix_hits > 0);
    ck_assert(watched || (tally.copies > 0 && tally.tokens > 100));
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_windows");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 600);
    tcase_add_test(core, bytes_are_the_same_in_any_company);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
