/* Sampling on the device, through the scheduler. Requests with all kinds of settings run together
 * and produce the bytes, logprobs included, of runs without others in which the host samples from
 * the device's logits. */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/same_bytes.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { LENGTH = 640, ASKED = 13 };

static struct request_set *learn_on_host(const char *file, uint64_t seed) {
    struct request_set *set = mem_calloc(1, sizeof *set);
    *set = (struct request_set){.model = {.file = file,
                                          .kv_dtype = KV_DTYPE_FLOAT32,
                                          .dtype = COMPUTE_FLOAT32,
                                          .max_model_len = LENGTH,
                                          .device = DEVICE_CUDA,
                                          .host_samples = true},
                                .reference_path = "plain",
                                .long_prompt = 8,
                                .longest = 12,
                                .mirostat = true,
                                .reads = true};
    request_set_init(set, seed, ASKED, NULL, 0);
    for (int i = 0; i < ASKED; i++) { /* few, because a step is slow */
        struct generation *g = &set->asked[i].generation;
        if (g->max_tokens > 9) g->max_tokens = 9;
        if (g->min_tokens > g->max_tokens) g->min_tokens = g->max_tokens;
    }
    request_set_learn(set);
    return set;
}

/* The settings are random, so this checks that all kinds occur. */
static void check_variety(const struct request_set *set) {
    int drawn = 0, cut = 0, penalised = 0, biased = 0, banned = 0, forked = 0, scored = 0, best = 0;
    int allowed = 0, words = 0, constrained = 0, listed = 0;
    for (int i = 1; i < set->n_asked; i++) {
        const struct generation *g = &set->asked[i].generation;
        const struct sampling *s = &g->sampling;
        drawn += s->temperature > 0;
        cut += s->temperature > 0 && (s->top_k > 0 || s->top_p < 1 || s->min_p > 0);
        penalised += sampling_has_penalties(s);
        biased += s->n_bias > 0;
        allowed += s->allowed != NULL;
        words += s->n_bad_words > 0;
        constrained += g->grammar != NULL;
        listed += sampling_lists_changes(s);
        banned += g->min_tokens > 0 && g->n_stop_ids > 0;
        forked += g->n > 1 && sampling_has_penalties(s);
        scored += g->prompt_logprobs >= 0;
        best += s->n_logprobs > 0;
    }
    ck_assert(drawn > 0 && drawn < set->n_asked - 1);
    ck_assert(cut > 0 && penalised > 1 && biased > 0 && banned > 0);
    ck_assert(forked > 0 && scored > 0 && best > 0 && allowed > 0 && words > 0);
    ck_assert_int_gt(constrained, 1);
    ck_assert_int_gt(listed, 1);
}

/* At most nine sequences, and so few blocks that some are preempted. With a small limit on the work
 * for masks per step, some masks are late. */
static void run_together(const struct request_set *set, int n_blocks, int max_mask_work) {
    struct setting setting = {.path = "plain",
                              .threads = 1,
                              .max_rows = 33,
                              .max_seqs = 9,
                              .max_logit_rows = 12,
                              .block_size = 4,
                              .n_blocks = n_blocks,
                              .caching = true,
                              .max_mask_work = max_mask_work};
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, &setting);
    ck_assert_int_gt(engine_in_flight(run->engine), 1); /* so the device samples */
    for (int i = 1; i < set->n_asked; i++) run_add(run, &set->asked[i]);
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%s", run->first_difference);
    ck_assert_uint_gt(run->tally.tokens, 40);
    ck_assert_uint_gt(run->tally.scores, 0);
    ck_assert_uint_gt(max_mask_work > 0 ? run->tally.unready : run->tally.preemptions, 0);
    free(run);
}

START_TEST(the_device_samples_the_tokens_of_the_host) {
    struct tiny_model tiny = {.V = 300,
                              .K = 16,
                              .F = 16,
                              .L = 1,
                              .H = 2,
                              .G = 1,
                              .D = 8,
                              .context_length = LENGTH,
                              .dtype = DTYPE_F32,
                              .seed = 5};
    char *file = tiny_model_temporary(&tiny);
    struct request_set *set = learn_on_host(file, 22);
    check_variety(set);
    set->model.host_samples = false;
    run_together(set, 16, 0);
    run_together(set, 16, 3);
    request_set_free(set);
    free(set);
    unlink(file), free(file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_engine_sampling");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_test(core, the_device_samples_the_tokens_of_the_host);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
