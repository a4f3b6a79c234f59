/* Families with recurrent layers on the CUDA backend. In float32 the tokens equal the CPU's. The
 * bytes do not depend on other requests: in chunks, with prefix hits at kept states, forks, drafts
 * that are refused, preemption, with one step in flight and with two, as graphs and without. After
 * each step the free states are overwritten.
 * ctest label: slow */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/poison.h"
#include "support/mixed_runs.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { ASKED = 4, SIZE = 4 };

/* Only the emulation has this counter. */
__attribute__((weak)) unsigned long cuda_emu_graph_launches(void);

/* Convolutions with gates; delta rules; state spaces beside attention. The other families are forms
 * of these. */
static const struct mixed_variety varieties[] = {
    {"tests/vectors/families/lfm2.gguf", COMPUTE_FLOAT32, KV_DTYPE_FLOAT32, QUANTIZATION_NONE,
     ASKED, false, 41},
    {"tests/vectors/families/qwen3_5.gguf", COMPUTE_FLOAT16, KV_DTYPE_FLOAT16, QUANTIZATION_NONE,
     ASKED, false, 42},
    {"tests/vectors/families/falcon_h1.gguf", COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16,
     QUANTIZATION_NONE, ASKED, false, 43},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

/* If each access is watched, one run is enough: the kernels' own suite tests the shapes. */
static bool watched;

/* Many blocks with many kept states; few blocks, so that sequences are preempted; drafts of which a
 * third is wrong. Each model skips one of the settings, because emulation is slow. */
static void check_same_bytes(const struct request_set *set, int left_out, struct tally *tally) {
    const int few = mixed_blocks(set, SIZE);
    ck_assert(set->has_states && set->state_bytes > 0);
    const struct setting settings[] = {
        {"plain", 1, 17, 8, 8, SIZE, 4 * few, true, 2, .checkpoints = 12, .checkpoint_blocks = 2},
        {"plain", 1, 33, 8, 8, SIZE, few, true, 2, .checkpoints = 3, .checkpoint_blocks = 1},
        {"plain", 1, 24, 8, 24, SIZE, few + 2, true, 1, .max_drafts = 3, .wrong = 33,
         .checkpoints = 6, .checkpoint_blocks = 3},
    };
    for (int i = 0; i < (int)(sizeof settings / sizeof *settings); i++) {
        struct setting setting = settings[i];
        if (watched ? i != 1 : i == left_out) continue;
        setting.poison = poison_on_cuda;
        setting.poison_state = poison_state_on_cuda;
        mixed_run(set, &setting, tally);
    }
}

START_TEST(bytes_are_the_same_in_any_company) {
    struct tally tally = {0};
    const unsigned long graphs = cuda_emu_graph_launches ? cuda_emu_graph_launches() : 0;
    mixed_run_all(varieties, N_VARIETIES, watched, check_same_bytes, &tally);
    ck_assert(tally.preemptions > 0 && tally.state_hits > 0);
    ck_assert(watched || (tally.state_accepted > 0 && tally.tokens > 100));
    ck_assert(!cuda_emu_graph_launches || cuda_emu_graph_launches() > graphs);
}
END_TEST

static void expect_refused(const char *file, const char *words) {
    const struct engine_config config = {.model = file,
                                         .stand_in_vocabulary = true,
                                         .threads = 1,
                                         .ranks = 2,
                                         .device = DEVICE_CUDA,
                                         .max_num_seqs = 1,
                                         .max_num_batched_tokens = 8,
                                         .block_size = 16};
    runner_must_refuse(&config, "tensor-parallel-size", words);
}

START_TEST(several_gpus_are_refused_by_name) {
    expect_refused(varieties[1].file,
                   "the recurrent layers of the model \"qwen35\" can be divided");
    expect_refused("tests/vectors/folders/deepseek_v3",
                   "the latent attention of the model \"deepseek_v3\"");
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_states");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 600);
    tcase_add_test(core, bytes_are_the_same_in_any_company);
    tcase_add_test(core, several_gpus_are_refused_by_name);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
