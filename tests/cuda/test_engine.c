/* Tiny models through the engine and the scheduler on the CUDA backend.
 *
 * In float32 its tokens are the CPU's. And a request gives the same bytes on it whatever else runs:
 * in batches, in chunks, with copies of shared blocks, after a preemption, across the ends of
 * attention's splits; logprobs too, in float32, bfloat16 and float16 and with every type of cache.
 * What each request gives is learnt by running it alone. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/same_bytes.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { LENGTH = 640, ASKED = 4, LEARNT_BLOCK = 16 };

/* Float, and blocks of 32; groups of query heads; a head that is no whole number of vectors. */
static const struct variety {
    enum dtype dtype;
    int K, F, L, H, G, D;
    bool untied;
} varieties[] = {
    {DTYPE_F32, 32, 40, 1, 4, 2, 8, false},
    {DTYPE_Q8_0, 32, 64, 2, 4, 1, 12, true},
    {DTYPE_BF16, 24, 40, 1, 3, 3, 20, false},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

/* What attention on the tensor cores takes: activations and caches of 16 and 8 bits. A long prompt
 * has two splits, or two and a part. */
static const struct narrow {
    struct variety model;
    bool float16;
    const char *kv;
    int long_prompt;
} narrows[] = {
    {{DTYPE_Q8_0, 32, 64, 2, 4, 1, 16, true}, false, "float16", 40},
    {{DTYPE_BF16, 32, 40, 1, 4, 2, 16, false}, false, "bfloat16", 510},
    {{DTYPE_F32, 32, 40, 1, 2, 2, 32, false}, false, "fp8", 40},
    {{DTYPE_F32, 32, 40, 1, 3, 1, 24, false}, true, "float16", 40},
    {{DTYPE_Q8_0, 32, 64, 1, 2, 2, 8, false}, true, "bfloat16", 40},
    {{DTYPE_BF16, 32, 40, 1, 4, 2, 16, false}, true, "fp8_e4m3", 270},
};
enum { N_NARROWS = sizeof narrows / sizeof *narrows };

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

/* The same requests for every device: they are drawn from the variety's number. Each gives its
 * answers alone. */
static struct request_set *learn(const struct model_choice *model, int i, int long_prompt) {
    struct request_set *set = mem_calloc(1, sizeof *set);
    *set = (struct request_set){
        .model = *model, .reference_path = "plain", .long_prompt = long_prompt, .longest = 40};
    request_set_init(set, (uint64_t)i + 1, ASKED, NULL, 0);
    request_set_learn(set);
    return set;
}

static void drop(struct request_set *set) {
    request_set_free(set);
    free(set);
}

static void check_same_tokens(const struct request_set *cpu, const struct request_set *cuda) {
    int n_tokens = 0;
    for (int i = 0; i < cpu->n_asked; i++) {
        for (int c = 0; c < cpu->asked[i].generation.n; c++) {
            const struct answer *right = &cpu->asked[i].answer, *got = &cuda->asked[i].answer;
            ck_assert_int_eq(got->choice[c].n, right->choice[c].n);
            ck_assert_int_eq(got->choice[c].finish, right->choice[c].finish);
            for (int t = 0; t < right->choice[c].n; t++, n_tokens++)
                ck_assert_msg(got->choice[c].token[t].id == right->choice[c].token[t].id,
                              "request %d, choice %d, token %d", i, c, t);
        }
    }
    ck_assert_int_gt(n_tokens, 20);
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* The requests from `first` on at once, several times. */
static void run_mixed(const struct request_set *set, int first, const struct setting *setting,
                      struct tally *tally) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    for (int i = 0; i < MOST_CLIENTS; i++)
        run_add(run, &set->asked[first + i % (set->n_asked - first)]);
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%d rows, %d blocks of %d: %s", setting->max_rows,
                  setting->n_blocks, setting->block_size, run->first_difference);
    tally->preemptions += run->tally.preemptions;
    tally->tokens += run->tally.tokens;
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

/* Chunks of 7 rows with prefixes shared, and so few blocks that sequences give way. In e4m3 a
 * block's first vector sets its scale, so that the size of blocks is a part of the model there: the
 * requests were learnt in blocks of 16. */
static void check_same_bytes(const struct request_set *set) {
    bool e4m3 = set->kv.dtype == DTYPE_E4M3;
    int few_size = e4m3 ? LEARNT_BLOCK : 4, few = blocks_for_largest(set, 1, few_size);
    const struct setting settings[] = {
        {"plain", 1, 7, 8, 8, e4m3 ? LEARNT_BLOCK : 5, 300, true},
        {"plain", 1, 33, 8, 8, few_size, few, false},
    };
    struct tally tally = {0};
    for (int i = 0; i < 2; i++) run_mixed(set, 1, &settings[i], &tally);
    ck_assert_int_gt((int)tally.tokens, 20);
    ck_assert_int_gt((int)tally.preemptions, 0);
}

/* The long request among the others, where there are blocks for one of it and some more. */
static void check_long(const struct request_set *set) {
    int few = blocks_for_largest(set, 0, LEARNT_BLOCK) + 4;
    const struct setting setting = {"plain", 1, 47, 8, 8, LEARNT_BLOCK, few, true};
    struct tally tally = {0};
    run_mixed(set, 0, &setting, &tally);
    ck_assert_int_gt((int)tally.tokens, 20);
}

/* ---- tests ---------------------------------------------------------------------------------- */

START_TEST(tokens_are_the_cpu_s) {
    char *file = model_file(&varieties[_i], _i);
    struct model_choice model = {file, "float32", true, LENGTH, "cpu"};
    struct request_set *cpu = learn(&model, _i, _i ? 140 : 264);
    model.device = "cuda";
    struct request_set *cuda = learn(&model, _i, _i ? 140 : 264);
    check_same_tokens(cpu, cuda);
    check_same_bytes(cuda);
    drop(cpu), drop(cuda);
    unlink(file), free(file);
}
END_TEST

START_TEST(bytes_are_the_same_in_any_company) {
    const struct narrow *n = &narrows[_i];
    char *file = model_file(&n->model, 10 + _i);
    const struct model_choice model = {file, n->kv, false, LENGTH, "cuda", n->float16};
    struct request_set *set = learn(&model, 1, n->long_prompt);
    check_same_bytes(set);
    if (n->long_prompt > 40) check_long(set);
    drop(set);
    unlink(file), free(file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_engine");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 600);
    tcase_add_loop_test(core, tokens_are_the_cpu_s, 0, N_VARIETIES);
    tcase_add_loop_test(core, bytes_are_the_same_in_any_company, 0, N_NARROWS);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
