/* constraint: how far a choice has come in the grammar that its text keeps to.
 *
 * DESIGN. A choice of a generation with a grammar has a matcher (engine/grammar/grammar.h): made
 * when it first samples, and its own until it ends. A preempted sequence keeps its tokens, so it
 * keeps its matcher too. What may come next is known as soon as the last token is:
 *
 *     plan, submit            a sequence whose last token is pending sits the step out, alone
 *     constraint_make_masks   on the compute threads; on a device while the pass runs
 *     sample
 *     commit                  constraint_take: the matcher takes the token that was drawn
 *
 * Drafts end before the first that may not come. Of a run of drafts, sample i gets the mask behind
 * i of them, and then the matcher takes them all back.
 *
 * The tokens that end a choice are allowed exactly where its grammar may end. The grammar comes
 * before min_tokens and ignore_eos: where nothing can come after a token, the choice ends with it.
 * If the grammar begins only behind some ids (the end of a model's reasoning), all tokens may come
 * until then but those that end the choice.
 */
#ifndef PENSTOCK_CONSTRAINT_H
#define PENSTOCK_CONSTRAINT_H

#include "scheduler/inflight.h"

struct scheduler;

/* Where a sequence stands before its first token. */
void constraint_begin(struct sequence *sequence);
/* Frees what it has; it may not sample afterwards. */
void constraint_end(struct sequence *sequence);

/* Gives each sample of a step whose sequence has a grammar its mask. Between the step's submit and
 * its sampling. */
void constraint_make_masks(struct scheduler *scheduler, struct inflight *inflight);

/* How many of n guesses behind the sequence's known tokens may come. */
int constraint_cut_drafts(struct sequence *sequence, int n);

/* Takes the sequence's last token, which does not end it by itself. FINISH_COMPLETE: nothing can
 * come after it; FINISH_STUCK: the grammar does not allow it, as it has grown beyond its limits;
 * otherwise FINISH_NONE. */
enum finish constraint_take(struct scheduler *scheduler, struct sequence *sequence);

#endif
