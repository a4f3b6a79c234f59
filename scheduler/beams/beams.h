/* beams: the search for the likeliest texts, as pure functions over candidates and scores.
 *
 * A search follows `width` beams, the best unfinished texts so far. A step gives each beam its best
 * next tokens (struct sample's n_best); beams_advance ranks all of them together, puts those that
 * finish among the finished texts, and says which beams go on:
 *
 *     beams        candidates, best first                        next beams, best first
 *     0  "It is"   "a" -2.1, "the" -2.3, <end> -2.9 ...   ──>    0 "It is a"     of beam 0
 *     1  "There"   "is" -2.2, "are" -2.8, ...                    1 "There is"    of beam 1
 *                                                                finished: "It is" <end>
 *
 * The search is that of transformers 5 (generation/utils.py, _beam_search) for one prompt: scores
 * are sums of logprobs in floats; max(2, 1 + end ids) x width candidates are looked at, of which
 * only the first `width` may finish; a finished text's score is its sum / length^length_penalty,
 * its end token counted. Of equal candidates the lower beam comes first, then the lower id.
 * Candidates that cannot come (-inf) are no candidates, so there may be fewer beams than `width`.
 *
 * Who holds a beam's tokens and blocks is the scheduler's (fork.c). The engine thread alone calls
 * this, and nothing is allocated.
 */
#ifndef PENSTOCK_BEAMS_H
#define PENSTOCK_BEAMS_H

#include "scheduler/scheduler.h"

/* A text that has ended. */
struct finished_beam {
    float score;     /* sum of logprobs / length^length_penalty */
    int n_tokens;    /* the end token included */
    bool by_stop_id; /* or else by its length */
    int32_t *tokens; /* [max_length] */
};

struct beams {
    struct beam_search search;
    int n_best;     /* candidates that are looked at, and asked for of each beam */
    int max_length; /* tokens of an output */
    int n_stop_ids;
    const int32_t *stop_ids; /* the generation's */
    int n_live;              /* beams, best first */
    float score[MAX_BEAMS];  /* sum of logprobs of each */
    int at[MAX_BEAMS];       /* the sequence that has it: the scheduler's to set */
    bool known[MAX_BEAMS];   /* its candidates have come */
    int n[MAX_BEAMS];
    struct token_logprob candidate[MAX_BEAMS][MAX_BEST]; /* [n] of each, best first */
    int n_finished;
    struct finished_beam finished[MAX_BEAMS + 1]; /* best first; one more is spare */
};

/* A beam of the next step. */
struct next_beam {
    int parent; /* the beam that it goes on from */
    int32_t id; /* with this token */
    float score;
};

/* Candidates that a search looks at: max(2, 1 + n_stop_ids) x width. */
int beams_n_best(int width, int n_stop_ids);

/* Bytes of the memory that beams_init makes a search of, for outputs of up to max_length tokens. */
size_t beams_bytes(int width, int max_length);
struct beams *beams_init(void *memory, const struct beam_search *search, int max_length,
                         const int32_t *stop_ids, int n_stop_ids);

/* Takes a part of a beam's candidates, MAX_TOP_LOGPROBS or fewer, best first: `part` counts from
 * 0. */
void beams_take(struct beams *beams, int beam, int part, const struct sampled *sampled);

/* Have the candidates of all beams come? */
bool beams_complete(const struct beams *beams);

/* Advances by a token: output[beam] are the `length` tokens of each beam so far. Fills `next`, best
 * first, and returns how many beams go on; 0 when the search has ended. The candidates are
 * forgotten then, and the scores are those of the next beams. */
int beams_advance(struct beams *beams, const int32_t *const output[MAX_BEAMS], int length,
                  struct next_beam next[MAX_BEAMS]);

#endif
