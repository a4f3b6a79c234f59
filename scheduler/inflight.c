#include "scheduler/inflight.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t mask_bytes(const struct inflight *inflight) {
    return (size_t)inflight->max_samples * (size_t)inflight->mask_words * sizeof(uint32_t);
}

void inflight_init(struct inflight *inflight, int max_seqs, int max_samples, int V) {
    assert(max_seqs > 0 && max_samples > 0 && V > 0);
    *inflight = (struct inflight){.max_samples = max_samples, .mask_words = mask_words(V)};
    inflight->rows = mem_calloc((size_t)max_seqs, sizeof *inflight->rows);
    inflight->samples = mem_calloc((size_t)max_samples, sizeof *inflight->samples);
    inflight->owner = mem_calloc((size_t)max_samples, sizeof(struct sequence *));
    inflight->hidden = mem_calloc((size_t)max_samples, sizeof *inflight->hidden);
    inflight->masks = mem_large(mask_bytes(inflight));
    inflight->constrained = mem_calloc((size_t)max_samples, sizeof(int));
}

void inflight_free(struct inflight *inflight) {
    assert(inflight->n_rows == 0 && inflight->n_samples == 0 && inflight->n_hidden == 0);
    mem_free(inflight->rows);
    mem_free(inflight->samples);
    mem_free(inflight->owner);
    mem_free(inflight->hidden);
    mem_large_free(inflight->masks, mask_bytes(inflight));
    mem_free(inflight->constrained);
}

/* ---- samples -------------------------------------------------------------------------------- */

static void inflight_add_sample(struct inflight *inflight, struct sequence *owner,
                                struct sample sample) {
    assert(inflight->n_samples < inflight->max_samples);
    inflight->owner[inflight->n_samples] = owner;
    inflight->samples[inflight->n_samples++] = sample;
}

void inflight_score(struct inflight *inflight, struct sequence *sequence, int position,
                    int logit_row) {
    assert(position >= 0 && logit_row >= 0);
    inflight_add_sample(inflight, sequence,
                        (struct sample){.row = logit_row,
                                        .scored = sequence->tokens[position],
                                        .n_top = sequence->request->generation->prompt_logprobs,
                                        .position = position});
}

void inflight_read(struct inflight *inflight, struct sequence *sequence, int position,
                   int logit_row) {
    const struct generation *generation = sequence->request->generation;
    const int n = generation->n_logprob_ids;
    assert(n > 0 && position == sequence->request->n_prompt - 1);
    for (int i = 0; i < n; i += MAX_TOP_LOGPROBS)
        inflight_add_sample(inflight, sequence,
                            (struct sample){.row = logit_row,
                                            .scored = generation->logprob_ids[i],
                                            .ids = generation->logprob_ids + i,
                                            .n_ids = min_int(n - i, MAX_TOP_LOGPROBS),
                                            .position = position + 1});
}

void inflight_hide(struct inflight *inflight, struct sequence *sequence, int row) {
    assert(inflight->n_hidden < inflight->max_samples && row >= 0);
    inflight->hidden[inflight->n_hidden++] = (struct inflight_hidden){sequence, row};
}

/* Returns the sample of a sequence without tokens after the tokens of `leader`. The last token of
 * the leader's history may still be pending. */
static struct sample sample_behind(const struct sequence *leader, const struct sequence *sequence,
                                   int position) {
    const struct request *request = leader->request;
    int n_output = position - request->n_prompt;
    bool early = n_output < request->generation->min_tokens;
    bool shared = request->n_unforked > 0 || request->beams;
    /* a number that is unique in the process */
    uint64_t number = request->arrival * MAX_CHOICES + (uint64_t)sequence->index;
    return (struct sample){.sampling = early ? &request->sampling_banned : &request->sampling,
                           .position = position,
                           .choice = sequence->choice,
                           .mirostat_mu = sequence->mirostat_mu,
                           .history = leader->tokens,
                           .n_prompt = request->n_prompt,
                           .n_output = n_output,
                           .sequence = number,
                           .shared = shared,
                           .last_is_pending = !shared && sequence->n_pending > 0,
                           .ids = request->generation->logprob_ids,
                           .n_ids = request->beams ? 0 : request->generation->n_logprob_ids,
                           .n_best = request->beams ? request->beams->n_best : 0};
}

struct sample inflight_sample_of(const struct sequence *sequence, int position) {
    return sample_behind(sequence, sequence, position);
}

static void add_choice(struct inflight *inflight, const struct sequence *leader,
                       struct sequence *sequence, int position, int logit_row) {
    struct sample sample = sample_behind(leader, sequence, position);
    sample.row = logit_row;
    inflight_add_sample(inflight, sequence, sample);
}

void inflight_sample(struct inflight *inflight, struct sequence *sequence, int position,
                     int logit_row) {
    assert(position >= 0 && logit_row >= 0);
    struct request *request = sequence->request;
    add_choice(inflight, sequence, sequence, position, logit_row);
    for (int i = 0; request->beams && i < sequence_extra_samples(sequence); i++) {
        add_choice(inflight, sequence, sequence, position, logit_row);
        inflight->samples[inflight->n_samples - 1].part = true;
    }
    if (request->n_unforked == 0) return;
    for (int i = 0; i < request->n; i++)
        if (request->sequence[i].state == SEQUENCE_UNFORKED)
            add_choice(inflight, sequence, &request->sequence[i], position, logit_row);
}

void inflight_exchange(struct inflight *inflight, const struct sequence *a,
                       const struct sequence *b) {
    for (int i = 0; i < inflight->n_samples; i++) {
        const struct sequence *owner = inflight->owner[i];
        if (!inflight->samples[i].sampling || (owner != a && owner != b)) continue;
        inflight->owner[i] = &a->request->sequence[owner == a ? b->index : a->index];
    }
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Returns the logit row that yields the next token of the sequence. Returns -1 if later rows must
 * wait for the commit: if choices fork from it, since another choice may get its batch row and
 * blocks until then; if it has drafts, since their verification determines the row of its last
 * token; if it is a beam; or if the host needs the token to compute what follows it (logit changes,
 * mirostat, a limit on thoughts that it could reach). */
static int pending_row(const struct inflight *inflight, const struct sequence *sequence) {
    const struct request *request = sequence->request;
    if (request->n_unforked > 0 || sequence->drafts.n > 0) return -1;
    if (request->beams) return -1;
    if (sampling_needs_last(&request->sampling)) return -1;
    const struct sample *sample = &inflight->samples[inflight->n_samples - 1];
    assert(inflight->owner[inflight->n_samples - 1] == sequence);
    struct thoughts thoughts = sequence_thoughts_at(sequence, sample->position);
    if (thoughts_may_force(&thoughts, &request->generation->thoughts, 1 + sample->last_is_pending))
        return -1;
    return sample->row;
}

void inflight_begin(struct inflight *inflight, struct sequence *sequence) {
    int from = sequence->n_computed, end = from + sequence->rows;
    int last = sequence->request->score_end, scored = end < last ? end : last;
    int wanted = sequence_n_schedulable(sequence) + sequence->drafts.n;
    bool samples = end == wanted && sequence_samples(sequence);
    assert(sequence->rows > sequence->drafts.n);
    inflight->rows[inflight->n_rows++] =
        (struct inflight_rows){sequence, from, sequence->rows, sequence->drafts.n, samples, 0};
    sequence->request->n_in_flight++;
    sequence->n_computed = end;
    sequence->rows = 0;
    if (scored > sequence->n_scored) sequence->n_scored = scored;
    if (!samples) return;
    sequence->n_pending++;
    sequence->pending_row = pending_row(inflight, sequence);
}

static int first_sample(const struct inflight *inflight, const struct sequence *sequence) {
    int i = 0;
    while (inflight->owner[i] != sequence || !inflight->samples[i].sampling) i++;
    return i;
}

/* The samples after the n removed ones move up. */
static void remove_samples(struct inflight *inflight, int at, int n) {
    size_t behind = (size_t)(inflight->n_samples - at - n);
    assert(n > 0 && at + n <= inflight->n_samples);
    memmove(&inflight->owner[at], &inflight->owner[at + n], behind * sizeof *inflight->owner);
    memmove(&inflight->samples[at], &inflight->samples[at + n], behind * sizeof *inflight->samples);
    inflight->n_samples -= n;
}

static struct inflight_rows *inflight_rows_of(struct inflight *inflight,
                                              const struct sequence *sequence) {
    struct inflight_rows *rows = inflight->rows;
    while (rows->sequence != sequence) rows++;
    return rows;
}

static void forget_sample(struct inflight_rows *rows) {
    rows->samples = false;
    rows->sequence->n_pending = 0;
    rows->sequence->pending_row = -1;
}

void inflight_withdraw(struct inflight *inflight, struct sequence *sequence) {
    assert(!inflight->is_sampled && sequence->n_pending == 1 && sequence->drafts.n == 0);
    remove_samples(inflight, first_sample(inflight, sequence), 1);
    forget_sample(inflight_rows_of(inflight, sequence));
}

/* Keeps this number of drafts, and removes the last n rows of a sequence. */
static void take_back_rows(struct inflight_rows *rows, int drafts, int n) {
    struct sequence *sequence = rows->sequence;
    assert(rows->samples && rows->drafts == sequence->drafts.n && rows->n >= n);
    rows->again = n;
    rows->n -= n;
    rows->drafts = sequence->drafts.n = drafts;
    sequence->n_computed = rows->from + rows->n;
}

void inflight_postpone(struct inflight *inflight, struct sequence *sequence) {
    int n = 1 + sequence->drafts.n;
    struct inflight_rows *rows = inflight_rows_of(inflight, sequence);
    assert(!inflight->is_sampled && sequence->n_pending == 1);
    remove_samples(inflight, first_sample(inflight, sequence), n);
    take_back_rows(rows, 0, n);
    forget_sample(rows);
}

void inflight_cut_drafts(struct inflight *inflight, struct sequence *sequence, int kept) {
    int n = sequence->drafts.n - kept;
    assert(!inflight->is_sampled && sequence->n_pending == 1 && kept >= 0);
    remove_samples(inflight, first_sample(inflight, sequence) + 1 + kept, n);
    take_back_rows(inflight_rows_of(inflight, sequence), kept, n);
}

int inflight_drop_ended(struct inflight *inflight) {
    int n = inflight->n_samples, kept = 0;
    assert(!inflight->is_sampled);
    for (int i = 0; i < n; i++) {
        if (inflight->owner[i]->state == SEQUENCE_ENDED) continue;
        inflight->owner[kept] = inflight->owner[i];
        inflight->samples[kept++] = inflight->samples[i];
    }
    inflight->n_samples = kept;
    return n - kept;
}

void inflight_end(struct inflight *inflight) {
    for (int i = 0; i < inflight->n_rows; i++) {
        struct request *request = inflight->rows[i].sequence->request;
        assert(request->n_in_flight > 0);
        if (--request->n_in_flight == 0 && request->n_live == 0) mem_free(request);
    }
    inflight->n_rows = inflight->n_samples = inflight->n_hidden = 0;
}
