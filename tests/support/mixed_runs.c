#include "support/mixed_runs.h"

#include <assert.h>
#include <check.h>
#include <stdlib.h>

enum { CLIENTS = 6 };

struct request_set *mixed_learn(const struct mixed_variety *v, enum device device) {
    struct request_set *set = mem_calloc(1, sizeof *set);
    assert(v->file && v->asked > 0);
    *set = (struct request_set){.model = {.file = v->file,
                                          .eagle = v->eagle,
                                          .kv_dtype = v->kv,
                                          .max_model_len = MIXED_LENGTH,
                                          .device = device,
                                          .dtype = v->compute,
                                          .quantization = v->quantization},
                                .reference_path = "plain",
                                .searches = v->searches,
                                .long_prompt = MIXED_LENGTH * 2 / 3,
                                .longest = MIXED_LENGTH / 2};
    request_set_init(set, v->seed, v->asked, NULL, 0);
    request_set_learn(set);
    return set;
}

int mixed_blocks(const struct request_set *set, int block_size) {
    int largest = 0;
    assert(block_size > 0);
    for (int i = 0; i < set->n_asked; i++) {
        const int slots = asked_slots(set, &set->asked[i]);
        largest = max_int(largest, (slots + block_size - 1) / block_size);
    }
    return largest;
}

/* Adds the numbers that suites of mixed runs read. */
static void add_tally(struct tally *to, const struct tally *from) {
    to->preemptions += from->preemptions;
    to->swapped_in += from->swapped_in;
    to->prefix_hits += from->prefix_hits;
    to->copies += from->copies;
    to->accepted += from->accepted;
    to->drafts += from->drafts;
    to->state_hits += from->state_hits;
    to->state_accepted += from->state_accepted;
    to->tokens += from->tokens;
}

void mixed_run(const struct request_set *set, const struct setting *setting, struct tally *tally) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    for (int i = 0; i < CLIENTS; i++)
        run_add(run, &set->asked[i % set->n_asked])->submit_at = i * (setting->n_blocks % 4);
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0,
                  "%s: %d rows, %d blocks of %d, %d of windows, %d in flight: %s", set->model.file,
                  setting->max_rows, setting->n_blocks, setting->block_size, setting->window_blocks,
                  setting->in_flight, run->first_difference);
    add_tally(tally, &run->tally);
    free(run);
}

void mixed_run_all(const struct mixed_variety *varieties, int n, bool last_alone,
                   mixed_settings settings, struct tally *tally) {
    assert(n > 0 && settings);
    for (int i = last_alone ? n - 1 : 0; i < n; i++) {
        struct request_set *cuda = mixed_learn(&varieties[i], DEVICE_CUDA);
        if (varieties[i].compute == COMPUTE_FLOAT32) {
            struct request_set *cpu = mixed_learn(&varieties[i], DEVICE_CPU);
            request_sets_agree(cpu, cuda);
            request_set_drop(cpu);
        }
        settings(cuda, i, tally);
        request_set_drop(cuda);
    }
}
