/* Families with latent attention on the CUDA backend. In float32 the tokens equal the CPU's. The
 * bytes do not depend on other requests: in chunks, with prefix hits, forks, beams, refused drafts,
 * preemption, with blocks that are swapped to the host, with one step in flight and with two, as
 * graphs and without. ctest label: slow */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/mixed_runs.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { ASKED = 5, SIZE = 4 };

/* Only the emulation has this counter. */
__attribute__((weak)) unsigned long cuda_emu_graph_launches(void);

/* Experts by softmax and by sigmoids, in groups. */
static const struct mixed_variety varieties[] = {
    {"tests/vectors/families/deepseek_v2.gguf", COMPUTE_FLOAT32, KV_DTYPE_FLOAT32,
     QUANTIZATION_NONE, ASKED, true, 41},
    {"tests/vectors/folders/deepseek_v3", COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16, QUANTIZATION_NONE,
     ASKED, true, 42},
    {"tests/vectors/families/glm4_moe_lite.gguf", COMPUTE_FLOAT16, KV_DTYPE_FLOAT16,
     QUANTIZATION_FP8, ASKED, true, 43},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

/* If each access is watched, one run is enough: the kernels' own suite tests the shapes. */
static bool watched;

/* Many blocks; few blocks, so that sequences are preempted, and recomputed or swapped; drafts of
 * which a third is wrong. Each model skips one of the settings, because emulation is slow. */
static void check_same_bytes(const struct request_set *set, int left_out, struct tally *tally) {
    const int few = mixed_blocks(set, SIZE);
    ck_assert(set->heads[0].D_shared > 0 && set->heads[0].G == 1);
    const struct setting settings[] = {
        {"plain", 1, 17, 8, 8, SIZE, 6 * few, true, 2},
        {"plain", 1, 33, 8, 8, SIZE, few, true, 2, 100},
        {"plain", 1, 24, 8, 24, SIZE, few + 2, true, 1, .max_drafts = 3, .wrong = 33},
    };
    for (int i = 0; i < (int)(sizeof settings / sizeof *settings); i++) {
        struct setting setting = settings[i];
        if (watched ? i != 1 : i == left_out) continue;
        /* a step of these models has launches that one grid does not take: graphs run instead */
        setting.persistent_step = set->model.dtype == COMPUTE_BFLOAT16;
        mixed_run(set, &setting, tally);
    }
}

START_TEST(bytes_are_the_same_in_any_company) {
    struct tally tally = {0};
    const unsigned long graphs = cuda_emu_graph_launches ? cuda_emu_graph_launches() : 0;
    mixed_run_all(varieties, N_VARIETIES, watched, check_same_bytes, &tally);
    ck_assert(tally.preemptions > 0 && tally.swapped_in > 0);
    ck_assert(watched || (tally.accepted > 0 && tally.tokens > 100));
    ck_assert(!cuda_emu_graph_launches || cuda_emu_graph_launches() > graphs);
}
END_TEST

START_TEST(caches_of_fp8_are_refused_by_name) {
    struct engine_config config = {.model = "tests/vectors/folders/deepseek_v3",
                                   .stand_in_vocabulary = true,
                                   .threads = 1,
                                   .device = DEVICE_CUDA,
                                   .kv_dtype = KV_DTYPE_FP8,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 8,
                                   .block_size = 16};
    runner_must_refuse(&config, "kv-cache-dtype", "latent attention of the model \"deepseek_v3\"");
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_latents");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 600);
    tcase_add_test(core, bytes_are_the_same_in_any_company);
    tcase_add_test(core, caches_of_fp8_are_refused_by_name);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
