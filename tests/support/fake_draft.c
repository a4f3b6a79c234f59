#include "support/fake_draft.h"

#include <stdlib.h>
#include <string.h>

static void submit(void *self, const struct step *step) {
    struct fake_draft *draft = self;
    assert(step->n_copies == 0 && step->n_pending == 0 && step->R <= step->S);
    draft->inner.submit(draft->inner.self, step);
}

static void sample(void *self, const struct sample *samples, int n) {
    struct fake_draft *draft = self;
    for (int i = 0; i < n; i++) assert(samples[i].row == i && samples[i].sampling);
    draft->inner.sample(draft->inner.self, samples, n);
    draft->n_samples = n;
}

static const struct sampled *wait(void *self) {
    struct fake_draft *draft = self;
    const struct sampled *results = draft->inner.wait(draft->inner.self);
    if (!results) return NULL;
    for (int i = 0; i < draft->n_samples; i++) {
        draft->results[i] = results[i];
        draft->n_drafts++;
        bool right = fake_between(&draft->random, 0, 99) >= draft->wrong;
        int other = fake_between(&draft->random, 1, FAKE_V - 1);
        if (!right) draft->results[i].id = (results[i].id + other) % FAKE_V;
    }
    return draft->results;
}

void fake_draft_open(struct fake_draft *draft, struct scheduler *scheduler,
                     const struct draft_room *room) {
    const struct scheduler_config config = {.n_blocks = room->n_blocks,
                                            .block_size = room->block_size,
                                            .max_num_seqs = room->max_seqs,
                                            .max_num_batched_tokens = room->max_rows,
                                            .max_logit_rows = room->max_seqs};
    draft->engine = fake_engine_new(&config);
    draft->inner = fake_engine_port(draft->engine);
    draft->results = mem_calloc((size_t)room->max_seqs, sizeof *draft->results);
    struct engine_port port = draft->inner;
    port.self = draft;
    port.submit = submit;
    port.sample = sample;
    port.wait = wait;
    speculate_with_model(scheduler, &port, room);
}

void fake_draft_close(struct fake_draft *draft) {
    fake_engine_free(draft->engine);
    free(draft->results);
}
