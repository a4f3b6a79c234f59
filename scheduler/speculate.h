/* speculate: drafts that a step verifies.
 *
 * DESIGN. Nothing is sampled in another way for drafts. The last known token and the drafts behind
 * it are rows of one step, and from the logits of each row the sampler that is there draws the
 * token after it, with the settings, the history and the number that it would have without drafts:
 *
 *     known    ... t9 | drafts  a   b   c
 *     rows         t9           a   b   c
 *     drawn        a            b   x   .      the first that is not the draft after it is kept,
 *     taken        a            b   x          and what was drawn behind it is not looked at
 *
 * Logits do not depend on what else is in a step, so the tokens and their logprobs are bit for bit
 * those that come without drafts, drawn ones too, whatever was guessed and however much of it. Rows
 * of refused drafts lie in the cache behind n_computed, where the next rows overwrite them; blocks
 * that only they needed are released, and none is made known.
 *
 * Drafts take what nobody else wants: they are planned last, only where all rows of a step are
 * decodes and nobody waits, and never preempt. How many is a question of time: a step of more rows
 * takes longer (step_cost.h), a draft holds with some chance, which each sequence learns for itself
 * by the length of its matches. So a sequence whose guesses fail soon stops guessing, and tries
 * again now and then.
 *
 * A draft model (draft/model.c) takes time before it is known what its drafts are worth. So how
 * deep it drafts, and for which sequences, is chosen before its passes, by the same sum with their
 * time in it; who is left out rests, and computes nothing with it.
 */
#ifndef PENSTOCK_SPECULATE_H
#define PENSTOCK_SPECULATE_H

#include "scheduler/plan.h"

struct engine_port;
struct scheduler;

/* Guesses for the running sequences that could use it, into n_proposed and their tokens. */
void speculate_propose(struct scheduler *scheduler);

/* Adds to a plan the drafts that are expected to save time. Pure, like plan_make, whose last part
 * it is. */
void plan_drafts(struct plan *plan, const struct plan_view *view);

/* A sequence's drafts were verified: the first `taken` of n_drafts held. */
void speculate_learn(struct sequence *sequence, int taken);

/* A sequence's drafts were not worth a try: what it has learnt fades. */
void speculate_forget(struct sequence *sequence);

/* A sequence ends: a drafter that looks in such texts takes it, and one that holds anything of it
 * gives that back. */
void speculate_end(struct scheduler *scheduler, const struct sequence *sequence);

/* What there is for a draft model: blocks of its engine's cache, and the tokens of a sequence that
 * it can look at. */
struct draft_room {
    int n_blocks, block_size, max_tokens;
    int max_seqs, max_rows; /* of a pass */
};

/* Lets a second engine guess, which then is the scheduler's alone; before anything is submitted. */
void speculate_with_model(struct scheduler *scheduler, const struct engine_port *port,
                          const struct draft_room *room);
void speculate_close(struct scheduler *scheduler); /* when all sequences have ended */

/* What a sequence begins with. */
void speculate_begin(struct sequence *sequence);

#endif
