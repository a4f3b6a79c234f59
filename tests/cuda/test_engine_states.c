/* Families with recurrent layers on the CUDA backend. In float32 the tokens equal the CPU's. The
 * bytes do not depend on other requests: in chunks, with prefix hits at kept states, forks, drafts
 * that are refused, preemption, with one step in flight and with two, as graphs and without. After
 * each step the free states are overwritten.
 * ctest label: slow */
#include <check.h>
#include <stdlib.h>

#include "cuda/poison.h"
#include "support/same_bytes.h"
#include "support/suite_main.h"

enum { LENGTH = 64, ASKED = 4, CLIENTS = 6, SIZE = 4 };

/* Only the emulation has this counter. */
__attribute__((weak)) unsigned long cuda_emu_graph_launches(void);

struct variety {
    const char *file;
    enum compute_dtype compute;
    enum kv_dtype kv;
};

/* Convolutions with gates; delta rules; state spaces beside attention. The other families are forms
 * of these. */
static const struct variety varieties[] = {
    {"families/lfm2.gguf", COMPUTE_FLOAT32, KV_DTYPE_FLOAT32},
    {"families/qwen3_5.gguf", COMPUTE_FLOAT16, KV_DTYPE_FLOAT16},
    {"families/falcon_h1.gguf", COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16},
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
    request_set_init(set, (uint64_t)i + 41, ASKED, NULL, 0);
    ck_assert(set->has_states && set->state_bytes > 0);
    request_set_learn(set);
    return set;
}

/* If each access is watched, one run is enough: the kernels' own suite tests the shapes. */
static bool watched;

/* Runs all requests, some several times, with a new one every few steps. */
static void run_mixed(const struct request_set *set, const struct setting *setting,
                      struct tally *tally) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    for (int i = 0; i < CLIENTS; i++)
        run_add(run, &set->asked[i % set->n_asked])->submit_at = i * (setting->n_blocks % 4);
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%s: %d rows, %d blocks, %d in flight: %s",
                  set->model.file, setting->max_rows, setting->n_blocks, setting->in_flight,
                  run->first_difference);
    tally->preemptions += run->tally.preemptions;
    tally->state_hits += run->tally.state_hits;
    tally->state_accepted += run->tally.state_accepted;
    tally->tokens += run->tally.tokens;
    free(run);
}

static int blocks_for_largest(const struct request_set *set) {
    int largest = 0;
    for (int i = 0; i < set->n_asked; i++)
        largest = max_int(largest, (asked_slots(set, &set->asked[i]) + SIZE - 1) / SIZE);
    return largest;
}

/* Many blocks with many kept states; few blocks, so that sequences are preempted; drafts of which a
 * third is wrong. Each model skips one of the settings, because emulation is slow. */
static void check_same_bytes(const struct request_set *set, size_t left_out, struct tally *tally) {
    const int few = blocks_for_largest(set);
    const struct setting settings[] = {
        {"plain", 1, 17, 8, 8, SIZE, 4 * few, true, 2, .checkpoints = 12, .checkpoint_blocks = 2},
        {"plain", 1, 33, 8, 8, SIZE, few, true, 2, .checkpoints = 3, .checkpoint_blocks = 1},
        {"plain", 1, 24, 8, 24, SIZE, few + 2, true, 1, .max_drafts = 3, .wrong = 33,
         .checkpoints = 6, .checkpoint_blocks = 3},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct setting setting = settings[i];
        if (watched ? i != 1 : i == left_out) continue;
        setting.poison = poison_on_cuda;
        setting.poison_state = poison_state_on_cuda;
        run_mixed(set, &setting, tally);
    }
}

START_TEST(bytes_are_the_same_in_any_company) {
    struct tally tally = {0};
    const unsigned long graphs = cuda_emu_graph_launches ? cuda_emu_graph_launches() : 0;
    for (int i = watched ? N_VARIETIES - 1 : 0; i < N_VARIETIES; i++) {
        struct request_set *cuda = learn(i, DEVICE_CUDA);
        if (varieties[i].compute == COMPUTE_FLOAT32) {
            struct request_set *cpu = learn(i, DEVICE_CPU);
            request_sets_agree(cpu, cuda);
            request_set_drop(cpu);
        }
        check_same_bytes(cuda, (size_t)i, &tally);
        request_set_drop(cuda);
    }
    ck_assert(tally.preemptions > 0 && tally.state_hits > 0);
    ck_assert(watched || (tally.state_accepted > 0 && tally.tokens > 100));
    ck_assert(!cuda_emu_graph_launches || cuda_emu_graph_launches() > graphs);
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_states");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 600);
    tcase_add_test(core, bytes_are_the_same_in_any_company);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
