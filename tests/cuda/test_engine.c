/* Tiny models through the engine and the scheduler on the CUDA backend.
 *
 * In float32 the tokens equal the CPU's. The bytes of a request, logprobs included, do not depend
 * on other requests: in batches of few rows and of many, which run other kernels; in chunks; with
 * copies of shared blocks; after a preemption; across the ends of attention's splits. This is
 * tested in float32, and in bfloat16 and float16 with all kinds of weights and caches. The expected
 * bytes are those of the request in a run without others.
 *
 * Steps of many rows are multiplied by wgmma if it supports them, others by mma.sync. Under
 * emulation both add in one order. With fp8 weights rows are converted to e4m3, and wgmma
 * multiplies all steps. ctest label: slow */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/same_bytes.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

/* On a device wgmma may add in another order than mma.sync. bench/gpu.sh first prints whether it
 * does. */
#if __has_include(<emu_memory.h>)
enum { IS_EMULATED = true };
#else
enum { IS_EMULATED = false };
#endif

enum { LENGTH = 640, ASKED = 4, CLIENTS = 8, LEARNT_BLOCK = 16 };

struct variety {
    enum dtype dtype;
    int K, F, L, H, G, D;
    bool untied;
    enum compute_dtype compute; /* for the runs in 16 bits */
    enum quantization quantization;
    enum kv_dtype kv;
    int long_prompt; /* above 256 it has two splits, and runs with the others too */
};

/* In float32: float weights and blocks of 32; groups of query heads; a head size that is not a
 * whole number of vectors. */
static const struct variety exact[] = {
    {DTYPE_F32, 32, 40, 1, 4, 2, 8, false, COMPUTE_AUTO, QUANTIZATION_NONE, KV_DTYPE_FLOAT32, 140},
    {DTYPE_Q8_0, 32, 64, 2, 4, 1, 12, true, COMPUTE_AUTO, QUANTIZATION_NONE, KV_DTYPE_FLOAT32, 140},
    {DTYPE_BF16, 24, 40, 1, 3, 3, 20, false, COMPUTE_AUTO, QUANTIZATION_NONE, KV_DTYPE_FLOAT32,
     140},
};

/* In 16 bits: the head sizes that attention on the tensor cores supports, and all cache types. */
static const struct variety narrow[] = {
    {DTYPE_F32, 32, 40, 1, 4, 2, 8, false, COMPUTE_FLOAT16, QUANTIZATION_NONE, KV_DTYPE_FLOAT16,
     140},
    {DTYPE_Q8_0, 32, 64, 2, 4, 1, 16, true, COMPUTE_BFLOAT16, QUANTIZATION_NONE, KV_DTYPE_FLOAT16,
     140},
    {DTYPE_BF16, 24, 40, 1, 3, 3, 24, false, COMPUTE_BFLOAT16, QUANTIZATION_FP8, KV_DTYPE_BFLOAT16,
     270},
    {DTYPE_Q4_1, 32, 64, 1, 2, 1, 16, false, COMPUTE_FLOAT16, QUANTIZATION_NONE, KV_DTYPE_FP8, 270},
    {DTYPE_F32, 32, 40, 1, 2, 2, 8, false, COMPUTE_FLOAT16, QUANTIZATION_NONE, KV_DTYPE_BFLOAT16,
     140},
    {DTYPE_BF16, 32, 40, 1, 2, 1, 64, false, COMPUTE_BFLOAT16, QUANTIZATION_NONE, KV_DTYPE_BFLOAT16,
     140}, /* wgmma multiplies the chunks */
    {DTYPE_F32, 32, 40, 1, 2, 1, 32, false, COMPUTE_BFLOAT16, QUANTIZATION_NONE, KV_DTYPE_FP8, 140},
};
enum { N_EXACT = sizeof exact / sizeof *exact, N_NARROW = sizeof narrow / sizeof *narrow };

/* ---- sets ----------------------------------------------------------------------------------- */

static char *model_file(const struct variety *v, int i) {
    struct tiny_model tiny = {.V = 300,
                              .K = v->K,
                              .F = v->F,
                              .L = v->L,
                              .H = v->H,
                              .G = v->G,
                              .D = v->D,
                              .context_length = LENGTH,
                              .dtype = v->dtype,
                              .untied = v->untied,
                              .seed = (uint64_t)i + 1};
    return tiny_model_temporary(&tiny);
}

/* The same requests for all devices: they are drawn from the variety's number. */
static struct request_set *learn(const struct variety *v, const char *file, int i,
                                 enum device device, bool float32) {
    struct request_set *set = mem_calloc(1, sizeof *set);
    *set = (struct request_set){.model = {.file = file,
                                          .kv_dtype = v->kv,
                                          .max_model_len = LENGTH,
                                          .device = device,
                                          .dtype = float32 ? COMPUTE_FLOAT32 : v->compute,
                                          .quantization = v->quantization,
                                          .wgmma = IS_EMULATED && device == DEVICE_CUDA},
                                .reference_path = "plain",
                                .long_prompt = v->long_prompt,
                                .longest = 40};
    request_set_init(set, (uint64_t)i + 41, ASKED, NULL, 0);
    request_set_learn(set);
    return set;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* Runs all requests from `first` on together, some several times. Number 0 is the long one. */
static void run_mixed(const struct request_set *set, int first, const struct setting *setting,
                      struct tally *tally) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    for (int i = 0; i < CLIENTS; i++) run_add(run, &set->asked[first + i % (set->n_asked - first)]);
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%d rows, %d blocks of %d: %s", setting->max_rows,
                  setting->n_blocks, setting->block_size, run->first_difference);
    tally->preemptions += run->tally.preemptions;
    tally->swapped_out += run->tally.swapped_out;
    tally->swapped_in += run->tally.swapped_in;
    tally->tokens += run->tally.tokens;
    tally->drafts += run->tally.drafts;
    tally->accepted += run->tally.accepted;
    free(run);
}

/* Runs only the long request. The chunks of its prompt have no logits and follow one another
 * without the host. */
static void run_long(const struct request_set *set, const struct setting *setting) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    run_add(run, &set->asked[0]);
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%s", run->first_difference);
    free(run);
}

static int blocks_for_largest(const struct request_set *set, int first, int block_size) {
    int largest = 0;
    for (int i = first; i < set->n_asked; i++) {
        int slots = asked_slots(set, &set->asked[i]);
        int blocks = (slots + block_size - 1) / block_size;
        largest = blocks > largest ? blocks : largest;
    }
    return largest;
}

/* Chunks of 7 rows with shared prefixes. Too few blocks for all sequences: preempted ones are
 * recomputed, or swapped to the host's memory and back. One step in flight, and two. In 16 bits
 * also whole prompts in one step of about 100 rows; float32 uses the same kernels for these as for
 * few rows. In e4m3 a block's first vector sets its scale, so the block size changes the results;
 * there it is the size with which the expected bytes were computed.
 *
 * Only every second setting runs, from the first or the second on, because emulation is slow. Each
 * half has a run with preemption and a run with swapping. */
static void check_same_bytes(const struct request_set *set, int half) {
    const bool e4m3 = set->kv.dtype == DTYPE_E4M3;
    const int few_size = e4m3 ? LEARNT_BLOCK : 4, few = blocks_for_largest(set, 1, few_size);
    const struct setting settings[] = {
        {"plain", 1, 7, 8, 8, e4m3 ? LEARNT_BLOCK : 5, 300, true, 2},
        {"plain", 1, 33, 8, 8, few_size, few, false, 1},
        {"plain", 1, 29, 8, 8, few_size, few, true, 2},
        {"plain", 1, 31, 8, 8, few_size, few, true, 2, 100},
        {"plain", 1, 32, 8, 8, few_size, few, false, 1, 9},
        {"plain", 1, 150, 8, 8, 16, 100, false, 2},
    };
    struct tally tally = {0};
    const int n = set->model.dtype == COMPUTE_FLOAT32 ? 5 : 6;
    for (int i = half; i < n; i += 2) run_mixed(set, 1, &settings[i], &tally);
    ck_assert(tally.swapped_out >= tally.swapped_in && tally.swapped_in > 0);
    run_long(set, &settings[0]);
    ck_assert_int_gt((int)tally.tokens, 20);
    ck_assert_int_gt((int)tally.preemptions, 0);
}

/* All requests run together and none waits. A third of their drafts are wrong. */
static void check_drafts(const struct request_set *set) {
    const struct setting setting = {.path = "plain",
                                    .threads = 1,
                                    .max_rows = 64,
                                    .max_seqs = 8,
                                    .max_logit_rows = 48,
                                    .block_size = LEARNT_BLOCK,
                                    .n_blocks = 100,
                                    .in_flight = 1,
                                    .max_drafts = 5,
                                    .wrong = 33,
                                    .fixed_drafts = true};
    struct tally tally = {0};
    int n_drafting = 0;
    run_mixed(set, 1, &setting, &tally);
    for (int i = 1; i < set->n_asked; i++) {
        const struct generation *g = &set->asked[i].generation;
        n_drafting += g->max_tokens > 4;
    }
    ck_assert(n_drafting == 0 || tally.drafts > 0);
}

/* The long request among the others. There are blocks for one of it and a few more. */
static void check_long(const struct request_set *set) {
    const int few = blocks_for_largest(set, 0, LEARNT_BLOCK) + 4;
    const struct setting setting = {"plain", 1, 47, 8, 8, LEARNT_BLOCK, few, true, 2};
    struct tally tally = {0};
    run_mixed(set, 0, &setting, &tally);
    ck_assert_int_gt((int)tally.tokens, 20);
}

/* ---- tests ---------------------------------------------------------------------------------- */

START_TEST(tokens_are_the_cpu_s) {
    const struct variety *v = &exact[_i];
    char *file = model_file(v, _i);
    struct request_set *cpu = learn(v, file, _i, DEVICE_CPU, true);
    struct request_set *cuda = learn(v, file, _i, DEVICE_CUDA, true);
    request_sets_agree(cpu, cuda);
    check_same_bytes(cuda, _i % 2);
    check_drafts(cuda);
    request_set_drop(cpu), request_set_drop(cuda);
    unlink(file), free(file);
}
END_TEST

START_TEST(bytes_are_the_same_in_any_company) {
    const struct variety *v = &narrow[_i];
    char *file = model_file(v, _i);
    struct request_set *set = learn(v, file, 1, DEVICE_CUDA, false);
    check_same_bytes(set, _i % 2);
    check_drafts(set);
    if (v->long_prompt > 256) check_long(set);
    request_set_drop(set);
    unlink(file), free(file);
}
END_TEST

START_TEST(types_of_a_gpu_are_refused_elsewhere) {
    static const struct {
        enum compute_dtype dtype;
        enum quantization quantization;
        enum device device;
        const char *param, *words;
    } wrong[] = {
        {COMPUTE_BFLOAT16, QUANTIZATION_NONE, DEVICE_CPU, "dtype",
         "{dtype} bfloat16 is for activations on a GPU"},
        {COMPUTE_FLOAT16, QUANTIZATION_NONE, DEVICE_CPU, "dtype",
         "{dtype} float16 is for activations on a GPU"},
        {COMPUTE_AUTO, QUANTIZATION_FP8, DEVICE_CPU, "quantization",
         "{quantization} fp8 is made for a GPU"},
        {COMPUTE_FLOAT32, QUANTIZATION_FP8, DEVICE_CUDA, "quantization",
         "{quantization} fp8 contradicts {dtype} float32"},
    };
    char *file = model_file(&exact[0], 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct engine_config config = {.model = file,
                                       .threads = 1,
                                       .dtype = wrong[i].dtype,
                                       .quantization = wrong[i].quantization,
                                       .device = wrong[i].device,
                                       .max_num_seqs = 1,
                                       .max_num_batched_tokens = 8,
                                       .block_size = 16};
        runner_must_refuse(&config, wrong[i].param, wrong[i].words);
    }
    unlink(file), free(file);
}
END_TEST

/* If each access is watched, one model of each kind is enough. The kernels' own suites test the
 * shapes; this suite tests the state that one launch of a step leaves for the next. */
int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    const bool watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 600);
    tcase_add_loop_test(core, tokens_are_the_cpu_s, watched ? N_EXACT - 1 : 0, N_EXACT);
    tcase_add_loop_test(core, bytes_are_the_same_in_any_company, watched ? N_NARROW - 1 : 0,
                        N_NARROW);
    tcase_add_test(core, types_of_a_gpu_are_refused_elsewhere);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
