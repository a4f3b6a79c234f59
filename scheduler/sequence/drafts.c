/* drafts: the chances that the drafts of a sequence are accepted, learnt from earlier ones. */
#include "scheduler/sequence/sequence.h"

/* first_chance: the initial estimate of a draft's chance, by its match. learning: the rate at which
 * an accepted or refused draft changes the estimate; equal rates make it converge to the average.
 * forgetting: the rate at which it returns to the initial estimate while no draft is tried. */
static const float first_chance[MAX_DRAFT_MATCH + 1] = {0,     0.25f, 0.4f,  0.5f, 0.6f,
                                                        0.65f, 0.7f,  0.75f, 0.8f};
static const float learning = 1.0f / 8, forgetting = 1.0f / 400;

void drafts_init(struct sequence_drafts *drafts) {
    for (int i = 0; i <= MAX_DRAFT_MATCH; i++) drafts->chance[i] = first_chance[i];
    drafts->hidden_row = -1;
}

static int drafts_match(const struct sequence_drafts *drafts, int i) {
    return min_int(drafts->match + i, MAX_DRAFT_MATCH);
}

float drafts_chance(const struct sequence_drafts *drafts, int i) {
    return drafts->chance[drafts_match(drafts, i)];
}

void drafts_learn(struct sequence_drafts *drafts, int taken) {
    assert(taken >= 0 && taken <= drafts->n);
    for (int i = 0; i < taken; i++) {
        float *chance = &drafts->chance[drafts_match(drafts, i)];
        *chance += (1 - *chance) * learning;
    }
    if (taken == drafts->n) return;
    float *chance = &drafts->chance[drafts_match(drafts, taken)];
    *chance -= *chance * learning;
}

void drafts_forget(struct sequence_drafts *drafts) {
    for (int i = 0; i <= MAX_DRAFT_MATCH; i++)
        drafts->chance[i] += (first_chance[i] - drafts->chance[i]) * forgetting;
}
