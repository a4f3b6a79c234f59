/* speculate: drafts that a step verifies.
 *
 * DESIGN. Drafts do not change the sampling. The last known token and the drafts after it are rows
 * of one step. From the logits of each row, the sampler draws the next token, with the same
 * settings, history and random number as without drafts:
 *
 *     known    ... t9 | drafts  a   b   c
 *     rows         t9           a   b   c
 *     drawn        a            b   x   .      the first that differs from the next draft is kept,
 *     appended     a            b   x          and the tokens drawn after it are ignored
 *
 * Logits do not depend on the other rows of a step. So the tokens and their logprobs are bit for
 * bit those without drafts, also if they are drawn at random, whatever the drafts. Rows of refused
 * drafts are in the cache after n_computed, and the next rows overwrite them. Blocks that only they
 * needed are released and never registered.
 *
 * Recurrent layers keep one state per sequence, which each row replaces. So the op also copies it
 * after each row that precedes a draft (step.h, state_after), and the commit takes the copy before
 * the first refused draft:
 *
 *     rows          t9  a   b   c
 *     states after  s4  s7  s5  s2    s2 is the sequence's own; the others are copies
 *     drawn         a   b   x   .     c is refused: the sequence continues from s5
 *
 * A copy costs the state's bytes: 160 KiB for LFM2 1.2B, 50 MiB for Qwen3.5 9B, beside about 5 GB
 * of weights that the step reads. Without copies, the accepted rows would be computed again in a
 * second step, which reads all weights. So the copies are cheaper up to about a hundred drafts in a
 * step. Their memory limits the drafts of a step to n_draft_states.
 *
 * Drafts use only resources that are left. They are planned last, only if all rows of a step are
 * decodes and no sequence waits, and they never preempt. Their number depends on time: a step with
 * more rows takes longer (step_cost.h), and a draft is accepted with some chance, which each
 * sequence learns by the length of its matches. So a sequence whose drafts are often refused soon
 * stops drafting, and tries again occasionally.
 *
 * A draft model (draft/model.c), or a layer that guesses ahead (draft/ahead.c), takes time before
 * the value of its drafts is known. So the depth, and the sequences that it drafts for, are chosen
 * before its passes, by the same calculation including their time. A pass is one forward run.
 */
#ifndef PENSTOCK_SPECULATE_H
#define PENSTOCK_SPECULATE_H

#include "scheduler/sequence/sequence.h"

struct engine_port;
struct scheduler;

/* Writes drafts of the running sequences that could use them, after their tokens, and sets
 * n_proposed. */
void speculate_propose(struct scheduler *scheduler);

/* Ends a sequence: hands its text to a drafter that collects texts, and releases the drafter's
 * state of it. */
void speculate_end(struct scheduler *scheduler, const struct sequence *sequence);

/* The capacity of a draft model: the blocks of its engine's cache, and the maximum length of a
 * sequence. */
struct draft_room {
    int n_blocks, block_size, max_tokens;
    int max_seqs, max_rows; /* of one pass */
};

/* Makes a second engine the drafter. Only the scheduler may use it afterwards. Must be called
 * before the first submission. */
void speculate_with_model(struct scheduler *scheduler, const struct engine_port *port,
                          const struct draft_room *room);

/* Makes the layer of the scheduler's own model that guesses ahead the drafter. The engine must have
 * been opened for it, and run one step at a time. Must be called before the first submission. */
void speculate_with_ahead(struct scheduler *scheduler);
void speculate_close(struct scheduler *scheduler); /* after all sequences have ended */

#endif
