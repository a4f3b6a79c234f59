#include "scheduler/flight.h"

#include <stdlib.h>

void flight_init(struct flight *flight, int max_seqs, int max_jobs) {
    *flight = (struct flight){.max_jobs = max_jobs};
    flight->rows = mem_calloc((size_t)max_seqs, sizeof *flight->rows);
    flight->jobs = mem_calloc((size_t)max_jobs, sizeof *flight->jobs);
}

void flight_free(struct flight *flight) {
    assert(flight->n_rows == 0 && flight->n_jobs == 0);
    free(flight->rows);
    free(flight->jobs);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

/* The jobs are set field by field: what is sampled is large, and the port's to write. */
static struct sample_job *add_job(struct flight *flight, struct sequence *sequence, int logit_row) {
    assert(flight->n_jobs < flight->max_jobs);
    struct sample_job *job = &flight->jobs[flight->n_jobs++];
    job->sequence = sequence;
    job->row = logit_row;
    job->dropped = false;
    return job;
}

void flight_score(struct flight *flight, struct sequence *sequence, int position, int logit_row) {
    struct sample_job *job = add_job(flight, sequence, logit_row);
    job->shared = false;
    job->score = true;
    job->n_top = sequence->request->generation->prompt_logprobs;
    job->sampling = NULL;
    job->history = sequence->tokens;
    job->n_prompt = sequence->request->n_prompt;
    job->n_output = 0;
    job->position = position;
    job->choice = 0;
}

/* The token after all that is due to `leader`: its own, or that of a choice that has no tokens
 * yet. */
static void choose(struct flight *flight, const struct sequence *leader, struct sequence *sequence,
                   int logit_row) {
    const struct request *request = leader->request;
    struct sample_job *job = add_job(flight, sequence, logit_row);
    int due = sequence_n_due(leader), n_output = due - request->n_prompt;
    bool early = n_output < request->generation->min_tokens;
    job->shared = request->n_unforked > 0;
    job->score = false;
    job->n_top = 0;
    job->sampling = early ? &request->sampling_banned : &request->sampling;
    job->history = leader->tokens;
    job->n_prompt = request->n_prompt;
    job->n_output = n_output;
    job->position = due;
    job->choice = sequence->choice;
}

void flight_sample(struct flight *flight, struct sequence *sequence, int logit_row) {
    struct request *request = sequence->request;
    choose(flight, sequence, sequence, logit_row);
    if (request->n_unforked == 0) return;
    for (int i = 0; i < request->n; i++)
        if (request->sequence[i].state == SEQUENCE_UNFORKED)
            choose(flight, sequence, &request->sequence[i], logit_row);
}

void flight_drop_ended(struct flight *flight) {
    for (int i = 0; i < flight->n_jobs; i++)
        flight->jobs[i].dropped = flight->jobs[i].sequence->state == SEQUENCE_ENDED;
}

void flight_swap(struct flight *flight, const struct sequence *a, const struct sequence *b) {
    for (int i = 0; i < flight->n_jobs; i++) {
        struct sample_job *job = &flight->jobs[i];
        if (job->score || job->sequence->request != a->request) continue;
        if (job->sequence == a || job->sequence == b)
            job->sequence = &a->request->sequence[job->sequence == a ? b->index : a->index];
    }
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* The row's token is not to be waited for, unless choices fork from it: which of them goes on with
 * the sequence's own lane and blocks may change until then. */
static int late_row(const struct flight *flight, const struct sequence *sequence) {
    if (sequence->request->n_unforked > 0) return -1;
    return flight->jobs[flight->n_jobs - 1].row;
}

void flight_depart(struct flight *flight, struct sequence *sequence) {
    int from = sequence->n_computed, end = from + sequence->rows;
    int last = sequence->request->n_prompt - 1, scored = end < last ? end : last;
    bool samples = end == sequence_n_due(sequence) && sequence_samples(sequence);
    flight->rows[flight->n_rows++] = (struct flight_rows){sequence, from, sequence->rows, samples};
    sequence->request->n_flying++;
    sequence->n_computed = end;
    sequence->rows = 0;
    if (scored > sequence->n_scored) sequence->n_scored = scored;
    if (!samples) return;
    sequence->n_coming++;
    sequence->late_row = late_row(flight, sequence);
}

void flight_land(struct flight *flight) {
    for (int i = 0; i < flight->n_rows; i++) {
        struct request *request = flight->rows[i].sequence->request;
        assert(request->n_flying > 0);
        if (--request->n_flying == 0 && request->n_live == 0) free(request);
    }
    flight->n_rows = flight->n_jobs = 0;
}
