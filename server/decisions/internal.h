/* Internal to server/decisions. */
#ifndef PENSTOCK_SERVER_DECISIONS_INTERNAL_H
#define PENSTOCK_SERVER_DECISIONS_INTERNAL_H

#include "server/decisions/decisions.h"
#include "server/json/json.h"

/* ---- labels.c ------------------------------------------------------------------------------- */

/* What the model is asked to answer with. */
enum labels {
    LABELS_YES_NO,
    LABELS_LETTERS, /* A to Z, then AA, AB, ... as far as these are single tokens */
    LABELS_DIGITS,  /* from 0 on */
};

struct label {
    char text[8];
    int32_t id; /* its token */
};

/* Finds n labels of one token each, in their order. Returns the number found: below n if the
 * vocabulary lacks tokens. */
int labels_find(const struct api_limits *limits, enum labels kind, int n, struct label *labels);

/* Sets the prompt's ids to those of the labels. Fails if memory is short. */
enum status labels_set(const struct label *labels, int n, struct arena *arena,
                       struct api_prompt *prompt, struct err *err);

/* Computes probability[n] of the labels that were read, normalised to the sum 1. Returns the
 * probability of all labels together. */
double labels_probabilities(const struct token_logprob *read, int n, double *probability);

#endif
