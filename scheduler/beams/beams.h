/* beams: the search for the most likely texts, as pure functions over candidates and scores.
 *
 * A search follows `width` beams, the best unfinished texts so far. A step finds the best next
 * tokens of each beam (struct sample's n_best). beams_advance ranks the candidates of all beams
 * together, adds those that finish to the finished texts, and returns the beams that continue:
 *
 *     beams        candidates, best first                        next beams, best first
 *     0  "It is"   "a" -2.1, "the" -2.3, <end> -2.9 ...   ──>    0 "It is a"     of beam 0
 *     1  "There"   "is" -2.2, "are" -2.8, ...                    1 "There is"    of beam 1
 *                                                                finished: "It is" <end>
 *
 * The search is that of transformers 5 (generation/utils.py, _beam_search) for one prompt. Scores
 * are sums of logprobs in floats. It ranks max(2, 1 + end ids) x width candidates, and only the
 * first `width` may finish. The score of a finished text is its sum / length^length_penalty,
 * including the end token. Ties go to the lower beam, then to the lower id. Candidates with a
 * logprob of -inf are ignored, so there may be fewer beams than `width`.
 *
 * The scheduler owns the tokens and blocks of the beams (fork.c). These functions are called only
 * on the engine thread and allocate nothing.
 */
#ifndef PENSTOCK_BEAMS_H
#define PENSTOCK_BEAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/sampling.h"

/* Maximum number of beams of a search. */
#define MAX_BEAMS 16

/* When a beam search ends that has found as many texts as it has beams. */
enum beam_stopping {
    /* if the best beam, at its current length, does not score higher than the worst text */
    BEAMS_STOP_BY_SCORE,
    BEAMS_STOP_EARLY, /* immediately */
    /* if the best beam could not score higher than the worst text at any length */
    BEAMS_NEVER_STOP_EARLY,
};

/* The settings of a search. */
struct beam_search {
    int width; /* number of beams, 1..MAX_BEAMS; 0: no search */
    enum beam_stopping stopping;
    double length_penalty; /* above 0 favours long texts */
};

/* A text that has ended. */
struct finished_beam {
    float score;     /* sum of logprobs / length^length_penalty */
    int n_tokens;    /* including the end token */
    bool by_stop_id; /* ended by a stop id; else by its length */
    int32_t *tokens; /* [max_length] */
};

struct beams {
    struct beam_search search;
    int n_best;     /* number of candidates that are ranked, and requested for each beam */
    int max_length; /* maximum number of tokens of an output */
    int n_stop_ids;
    const int32_t *stop_ids; /* owned by the generation */
    int n_live;              /* number of beams, best first */
    float score[MAX_BEAMS];  /* sum of logprobs of each */
    int at[MAX_BEAMS];       /* the sequence of the beam; set by the scheduler */
    bool known[MAX_BEAMS];   /* its candidates have been added */
    int n[MAX_BEAMS];
    struct token_logprob candidate[MAX_BEAMS][MAX_BEST]; /* [n] of each, best first */
    int n_finished;
    struct finished_beam finished[MAX_BEAMS + 1]; /* best first; the last one is spare */
};

/* A beam of the next step. */
struct next_beam {
    int parent; /* the beam that it continues */
    int32_t id; /* its new token */
    float score;
};

/* Returns the number of candidates that a search ranks: max(2, 1 + n_stop_ids) x width. */
int beams_n_best(int width, int n_stop_ids);

/* Returns the bytes of memory that beams_init needs, for outputs of up to max_length tokens. */
size_t beams_bytes(int width, int max_length);

/* Makes a search with one live beam, the prompt, in that memory, which must be aligned to 8 bytes.
 * The caller keeps stop_ids[n_stop_ids] alive. Nothing needs to be freed but the memory. */
struct beams *beams_init(void *memory, const struct beam_search *search, int max_length,
                         const int32_t *stop_ids, int n_stop_ids);

/* Adds a part of the candidates of a beam, at most MAX_TOP_LOGPROBS, best first. `part` counts from
 * 0. */
void beams_take(struct beams *beams, int beam, int part, const struct sampled *sampled);

/* Have the candidates of all beams been added? */
bool beams_complete(const struct beams *beams);

/* Advances by one token: output[beam] holds the `length` tokens of each beam so far. Writes the
 * next beams to `next`, best first, and returns their number; 0 if the search has ended. Afterwards
 * the candidates are cleared, and the scores are those of the next beams. */
int beams_advance(struct beams *beams, const int32_t *const output[MAX_BEAMS], int length,
                  struct next_beam next[MAX_BEAMS]);

#endif
