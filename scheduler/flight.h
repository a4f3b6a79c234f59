/* flight: a step from its submit to its commit. Who computes in it, and what is sampled from it.
 *
 * DESIGN. On a device two steps are in flight, and what belongs to one must not be the other's:
 *
 *                     step n (runs)                   step n + 1 (planned behind it)
 *     flight          rows and jobs of n              rows and jobs of n + 1
 *     struct step     read by the engine, gone        one set of arrays: the batch's, of the step
 *                                                     that was submitted last
 *     sequence        n_tokens, n_settled: before n   n_computed, n_coming, n_scored, table, lane:
 *                                                     as n + 1 will leave them
 *     blocks          the cache's content is in the order of the steps, whoever holds what
 *
 * A block that is given back while a step in flight still reads or writes it may be taken at once:
 * who takes it writes in a later step, and steps run one after the other. A block is made known
 * only when the step that has filled it is committed, so what is shared holds committed tokens
 * alone.
 *
 * Planning ahead speculates that a sequence goes on. When the commit of n ends one (a stop id; it
 * was cancelled), its row in n + 1 computes something that nobody will read, in blocks that are
 * nobody's, and the jobs there are dropped: a job whose sequence has ended is passed over. So that
 * they can be looked at until then, a request's memory stays until it is in no flight
 * (n_flying); its generation is the server's again at once, and is not touched.
 */
#ifndef PENSTOCK_FLIGHT_H
#define PENSTOCK_FLIGHT_H

#include "scheduler/engine_port.h"

/* A sequence's part of a step. */
struct flight_rows {
    struct sequence *sequence;
    int from, n; /* positions from..from+n-1 */
    bool samples;
};

struct flight {
    int n_rows, n_jobs, max_jobs;
    struct flight_rows *rows; /* [max_seqs] */
    struct sample_job *jobs;  /* [max_jobs] */
    uint64_t began_ns;        /* when it was planned */
};

void flight_init(struct flight *flight, int max_seqs, int max_jobs);
void flight_free(struct flight *flight);

/* A logit row of a sequence scores the prompt token at `position`; gives its next token, and that
 * of each choice that waits for its prompt. */
void flight_score(struct flight *flight, struct sequence *sequence, int position, int logit_row);
void flight_sample(struct flight *flight, struct sequence *sequence, int logit_row);

/* The sequence's rows are all in the step: from here on they count as computed. Comes after their
 * jobs. */
void flight_depart(struct flight *flight, struct sequence *sequence);

/* Marks the jobs of sequences that have ended. */
void flight_drop_ended(struct flight *flight);

/* Gives each of two choices, of which one samples for both, what the other was to get. */
void flight_swap(struct flight *flight, const struct sequence *a, const struct sequence *b);

/* Lets go of the sequences, and of the requests that have ended meanwhile. */
void flight_land(struct flight *flight);

#endif
