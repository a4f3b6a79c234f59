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
#include "support/same_bytes.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { LENGTH = 64, ASKED = 4, CLIENTS = 6, LEARNT_BLOCK = 16 };

struct variety {
    const char *file;
    enum compute_dtype compute;
    enum kv_dtype kv;
};

/* All layers or some have windows; caps, sinks, experts. The other families are forms of these.
 * They pass too, but take minutes under emulation. */
static const struct variety varieties[] = {
    {"families/gemma2.gguf", COMPUTE_FLOAT32, KV_DTYPE_FLOAT32},
    {"folders/mistral", COMPUTE_BFLOAT16, KV_DTYPE_FLOAT16},
    {"families/gpt_oss.gguf", COMPUTE_FLOAT16, KV_DTYPE_FP8},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

/* The same requests for all devices: they are drawn from the variety's number. */
static struct request_set *learn(int i, enum device device) {
    static char file[N_VARIETIES][64];
    const struct variety *v = &varieties[i];
    struct request_set *set = mem_calloc(1, sizeof *set);
    snprintf(file[i], sizeof file[i], "tests/vectors/%s", v->file);
    *set = (struct request_set){.model = {.file = file[i],
                                          .kv_dtype = v->kv,
                                          .max_model_len = LENGTH,
                                          .device = device,
                                          .dtype = v->compute},
                                .reference_path = "plain",
                                .long_prompt = LENGTH * 2 / 3,
                                .longest = LENGTH / 2};
    request_set_init(set, (uint64_t)i + 71, ASKED, NULL, 0);
    ck_assert(set->n_windows > 0 && set->window > 0);
    request_set_learn(set);
    return set;
}

/* If each access is watched, one run is enough: the kernels' own suites test the shapes. */
static bool watched;

/* ---- runs ----------------------------------------------------------------------------------- */

/* Runs all requests, some several times, with a new one every few steps. */
static void run_mixed(const struct request_set *set, const struct setting *setting,
                      struct tally *tally) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    for (int i = 0; i < CLIENTS; i++)
        run_add(run, &set->asked[i % set->n_asked])->submit_at = i * (setting->n_blocks % 4);
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%s: %d rows, %d blocks of %d, %d of windows: %s",
                  set->model.file, setting->max_rows, setting->n_blocks, setting->block_size,
                  setting->window_blocks, run->first_difference);
    tally->preemptions += run->tally.preemptions;
    tally->swapped_in += run->tally.swapped_in;
    tally->prefix_hits += run->tally.prefix_hits;
    tally->copies += run->tally.copies;
    tally->tokens += run->tally.tokens;
    free(run);
}

static int blocks_for_largest(const struct request_set *set, int block_size) {
    int largest = 0;
    for (int i = 0; i < set->n_asked; i++)
        largest =
            max_int(largest, (asked_slots(set, &set->asked[i]) + block_size - 1) / block_size);
    return largest;
}

/* Few blocks, or few window blocks; steps of a window's length, of one row less and more, and of
 * many rows. In e4m3 a block's first vector sets its scale, so the block size changes the results.
 * Each model skips one of the settings, because emulation is slow. */
static void check_same_bytes(const struct request_set *set, size_t left_out, struct tally *tally) {
    const int size = set->kv.dtype == DTYPE_E4M3 ? LEARNT_BLOCK : 4, W = set->window;
    const int few = blocks_for_largest(set, size), least = window_blocks_seen(W, size);
    const struct setting settings[] = {
        {"plain", 1, W, 8, 8, size, 4 * few, true, 2, .window_blocks = least + 2},
        {"plain", 1, W - 1, 8, 8, size, few, true, 2, 60, .window_blocks = least + 1},
        {"plain", 1, 33, 8, 8, size, few + 1, false, 1, 12, .window_blocks = few},
        {"plain", 1, W + 1, 8, 8, size, few + 2, true, 1, .window_blocks = least},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct setting setting = settings[i];
        if (watched ? i != 1 : i == left_out) continue;
        setting.poison = poison_on_cuda;
        setting.window_blocks = min_int(setting.window_blocks, setting.n_blocks);
        run_mixed(set, &setting, tally);
    }
}

START_TEST(bytes_are_the_same_in_any_company) {
    struct tally tally = {0};
    for (int i = watched ? N_VARIETIES - 1 : 0; i < N_VARIETIES; i++) {
        struct request_set *cuda = learn(i, DEVICE_CUDA);
        if (varieties[i].compute == COMPUTE_FLOAT32) {
            struct request_set *cpu = learn(i, DEVICE_CPU);
            request_sets_agree(cpu, cuda);
            request_set_drop(cpu);
        }
        check_same_bytes(cuda, (size_t)i + 1, &tally);
        request_set_drop(cuda);
    }
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
