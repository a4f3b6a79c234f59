#include "scheduler/speculate.h"

#include <stdlib.h>

#include "scheduler/internal.h"

/* ---- how deep a draft model drafts ---------------------------------------------------------- */

/* Orders the jobs by falling chance. Ties keep their order. */
static void order_jobs(const struct draft_engine *d, int order[MAX_COST_ROWS]) {
    for (int i = 0; i < d->n_jobs; i++) {
        float chance = drafts_chance(&d->sequence[i]->drafts, 0);
        int at = i;
        for (; at > 0 && drafts_chance(&d->sequence[order[at - 1]]->drafts, 0) < chance; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Returns the expected number of accepted tokens of n drafts. */
static float expected_tokens(float chance, int n) {
    float all_hold = 1, tokens = 0;
    for (int i = 0; i < n; i++) {
        all_hold *= chance;
        tokens += all_hold;
    }
    return tokens;
}

/* Returns how many of the jobs, in this order, yield the most tokens per time, if each drafts up to
 * this depth. `best` is the rate to exceed, and is set to the new rate. */
static int choose_jobs(const struct scheduler *s, const int order[MAX_COST_ROWS], int depth,
                       float *best) {
    const struct draft_engine *d = &s->draft_engine;
    int rows = s->running.n, n = 0;
    int most = min_int(s->config.max_num_batched_tokens, s->config.max_logit_rows);
    float tokens = (float)rows, target = (float)s->config.itl_target_ns;
    most = min_int(most, MAX_COST_ROWS);
    for (int i = 0; i < d->n_jobs; i++) {
        int drafts = min_int(depth, d->job[order[i]].most);
        rows += drafts;
        if (rows > most) break;
        tokens += expected_tokens(drafts_chance(&d->sequence[order[i]]->drafts, 0), drafts);
        float ns = step_cost_ns(&s->cost, rows) + (float)depth * step_cost_ns(&d->cost, i + 1);
        if (target > 0 && ns > target) break;
        if (tokens / ns <= *best) continue;
        *best = tokens / ns;
        n = i + 1;
    }
    return n;
}

/* The number of drafts of each sequence that are tried before the passes were measured. */
enum { TRIED_DEPTH = 2 };

static void choose_depths(struct scheduler *s) {
    struct draft_engine *d = &s->draft_engine;
    int order[MAX_COST_ROWS], n = 0, depth = 0;
    float best = (float)s->running.n / step_cost_ns(&s->cost, s->running.n) * MIN_DRAFT_GAIN;
    order_jobs(d, order);
    for (int i = 1; i <= s->config.speculation.max_tokens && d->cost.known && s->cost.known; i++) {
        int chosen = choose_jobs(s, order, i, &best);
        if (chosen > 0) n = chosen, depth = i;
    }
    if (!d->cost.known || !s->cost.known) n = d->n_jobs, depth = TRIED_DEPTH;
    for (int i = 0; i < d->n_jobs; i++) {
        struct draft_job *job = &d->job[order[i]];
        job->most = i < n ? min_int(job->most, depth) : 0;
        if (i >= n) drafts_forget(&d->sequence[order[i]]->drafts);
    }
}

/* ---- proposing ------------------------------------------------------------------------------ */

/* Is the next row of the sequence that of its last known token? With mirostat a sequence may not
 * draft: each token changes mu for the next one, so its samples are made one after the other. */
static bool may_draft(const struct sequence *sequence) {
    const struct request *request = sequence->request;
    return request->max_drafts > 0 && sequence->n_tokens - sequence->n_computed == 1 &&
           request->n_unforked == 0 && sequence_samples(sequence) &&
           request->sampling.mirostat_tau <= 0;
}

static struct draft_context context_of(const struct sequence *sequence) {
    const struct request *request = sequence->request;
    return (struct draft_context){.state = sequence->drafts.state,
                                  .owner = request->generation->owner,
                                  .choice = sequence->choice,
                                  .tokens = sequence->tokens,
                                  .n = sequence->n_tokens,
                                  .max_tokens = request->max_tokens,
                                  .salt = request->generation->cache_salt};
}

void speculate_end(struct scheduler *s, const struct sequence *sequence) {
    const struct request *request = sequence->request;
    bool has_output = sequence->n_tokens > request->n_prompt && !request->beams;
    if (s->drafter.finished && has_output) {
        const struct draft_context context = context_of(sequence);
        s->drafter.finished(s->drafter.self, &context, request->n_prompt);
    }
    if (s->drafter.left && sequence->drafts.state)
        s->drafter.left(s->drafter.self, sequence->drafts.state);
}

/* Keeps the drafts after a sequence's tokens that the grammar allows. */
static void set_drafts(struct sequence *sequence, struct draft draft) {
    assert(draft.n == 0 || (draft.match >= 1 && draft.match <= MAX_DRAFT_MATCH));
    sequence->drafts.n_proposed = constraint_cut_drafts(sequence, draft.n);
    sequence->drafts.match = draft.match;
}

/* Returns the place of a sequence. The rest of its last block has slots for drafts. */
static struct draft_place place_of(const struct scheduler *s, const struct sequence *sequence) {
    const int size = s->pool.block_size, last = (sequence->n_computed - 1) / size;
    assert(sequence->n_computed > 0 && last == sequence->kv.n_blocks - 1);
    const bool shares = block_pool_references(&s->pool, sequence->kv.table[last]) > 1;
    return (struct draft_place){.n_computed = sequence->n_computed,
                                .hidden_row = sequence->drafts.hidden_row,
                                .table = sequence->kv.table,
                                .n_blocks = sequence->kv.n_blocks,
                                .n_slots = (last + 1) * size,
                                .shares = shares};
}

/* Asks a draft model for at most `most` drafts of the sequence. */
static void add_job(struct scheduler *s, struct sequence *sequence, int most) {
    struct draft_engine *d = &s->draft_engine;
    if (d->n_jobs == d->max_jobs || (d->ahead && sequence->drafts.hidden_row < 0)) return;
    struct draft_job *job = &d->job[d->n_jobs];
    d->sequence[d->n_jobs++] = sequence;
    job->context = context_of(sequence);
    job->most = most;
    if (d->ahead) job->place = place_of(s, sequence);
    sequence->drafts.hidden_row = -1;
    if (most > 0) sequence->drafts.match = MAX_DRAFT_MATCH; /* all are equally reliable */
}

static void speculate_propose_one(struct scheduler *s, struct sequence *sequence) {
    const struct request *request = sequence->request;
    const struct draft_context context = context_of(sequence);
    /* a token is drawn after the last draft */
    int room = request->max_tokens - sequence->n_tokens - 1;
    int most = min_int(min_int(request->max_drafts, s->config.speculation.max_tokens), room);
    assert(sequence->n_pending == 0 && sequence->drafts.n == 0 && !sequence_scoring(sequence));
    if (most <= 0) return;
    struct draft draft = {0};
    if (sequence->drafts.prediction.n > 0)
        draft = draft_predicted(&sequence->drafts.prediction, &context, request->n_prompt, most);
    sequence->drafts.are_predicted = draft.n > 0;
    if (draft.n == 0 && s->drafter.propose)
        draft = s->drafter.propose(s->drafter.self, &context, most);
    assert(draft.n >= 0 && draft.n <= most);
    set_drafts(sequence, draft);
    if (!sequence->drafts.are_predicted && s->drafter.propose_all) add_job(s, sequence, most);
}

/* Could drafts save time if all were accepted? They cannot if many sequences decode: then rows
 * determine the cost. */
static bool could_pay(const struct scheduler *s) {
    int n = s->running.n, most = min_int(n + s->config.speculation.max_tokens, MAX_COST_ROWS);
    if (s->config.fixed_drafts) return true;
    for (int rows = n + 1; rows <= most; rows++)
        if ((float)rows * step_cost_ns(&s->cost, n) > (float)n * step_cost_ns(&s->cost, rows))
            return true;
    return false;
}

/* Does every running sequence decode? Only such a step verifies drafts. */
static bool all_decode(const struct scheduler *s) {
    list_each(node, &s->running) {
        const struct sequence *sequence = sequence_of(node);
        if (sequence_n_schedulable(sequence) - sequence->n_computed > 1) return false;
    }
    return s->running.n < MAX_COST_ROWS;
}

static void ask_model(struct scheduler *s) {
    struct draft_engine *d = &s->draft_engine;
    bool drafts = false;
    for (int i = 0; i < d->n_jobs; i++) drafts |= d->job[i].most > 0;
    if (drafts && !s->config.fixed_drafts) choose_depths(s);
    for (int i = 0; i < d->n_jobs; i++) {
        const struct draft_job *job = &d->job[i];
        for (int k = 0; k < job->most; k++) {
            struct sample *sample = &d->job[i].sample[k];
            *sample = inflight_sample_of(d->sequence[i], job->context.n + k);
            sample->shared = true; /* it may be refused */
        }
    }
    s->drafter.propose_all(s->drafter.self, d->job, d->n_jobs);
    for (int i = 0; i < d->n_jobs; i++)
        if (!d->sequence[i]->drafts.are_predicted) set_drafts(d->sequence[i], d->job[i].draft);
}

/* The layer that guesses ahead computes the last rows of all sequences, whether they draft or
 * not. */
static void ask_ahead(struct scheduler *s) {
    struct draft_engine *d = &s->draft_engine;
    const bool verifies = all_decode(s);
    assert(s->n_in_flight == 0 && d->ahead);
    for (int i = 0; i < d->n_jobs && !verifies; i++) d->job[i].most = 0;
    ask_model(s);
}

void speculate_propose(struct scheduler *s) {
    bool wanted =
        drafter_guesses(&s->drafter) && s->waiting.n == 0 && s->running.n > 0 && could_pay(s);
    s->draft_engine.ns = 0;
    s->draft_engine.n_jobs = 0;
    list_each(node, &s->running) {
        struct sequence *sequence = sequence_of(node);
        sequence->drafts.n_proposed = 0;
        if (wanted && may_draft(sequence)) speculate_propose_one(s, sequence);
        if (s->draft_engine.ahead) add_job(s, sequence, 0); /* unless it has a job */
    }
    if (s->draft_engine.n_jobs == 0) return;
    if (s->draft_engine.ahead)
        ask_ahead(s);
    else if (all_decode(s))
        ask_model(s);
}

/* ---- a draft model -------------------------------------------------------------------------- */

/* Runs and times a pass: one forward run of the draft model. The cost is learnt only from passes
 * with one or two rows per sequence; a pass that computes a long text is not representative. */
static const struct sampled *speculate_run_pass(void *self, const struct step *step,
                                                const struct sample *samples, int n) {
    struct draft_engine *d = self;
    uint64_t began = now_ns();
    struct step named = *step;
    named.samples = samples;
    named.n_samples = n;
    d->port.submit(d->port.self, &named);
    d->port.sample(d->port.self, samples, n);
    const struct sampled *results = d->port.wait(d->port.self);
    uint64_t took = now_ns() - began;
    if (step->M <= 2 * step->S && n > 0) step_cost_note(&d->cost, step->M, took);
    d->ns += took;
    return results;
}

/* Allocates the jobs of a drafter that runs passes of `port`. */
static void open_jobs(struct scheduler *s, const struct engine_port *port, int max_jobs) {
    struct draft_engine *d = &s->draft_engine;
    assert(!d->model && !d->ahead && s->requests.n == 0 && max_jobs > 0);
    d->port = *port;
    d->max_jobs = max_jobs;
    d->job = mem_calloc((size_t)max_jobs, sizeof *d->job);
    d->sequence = mem_calloc((size_t)max_jobs, sizeof(struct sequence *));
    step_cost_init(&d->cost, port->on_host);
}

void speculate_with_ahead(struct scheduler *s) {
    struct draft_engine *d = &s->draft_engine;
    assert(s->port.in_flight == 1 && s->pool.windows.n == 0);
    open_jobs(s, &s->port, s->max_seqs);
    const struct draft_runner runner = {.self = d,
                                        .run = speculate_run_pass,
                                        .max_seqs = s->max_seqs,
                                        .max_rows = s->config.max_num_batched_tokens,
                                        .block_size = s->config.block_size,
                                        .max_tokens = s->config.max_model_len};
    d->ahead = draft_ahead_new(&runner);
    s->drafter = drafter_ahead(d->ahead);
}

void speculate_with_model(struct scheduler *s, const struct engine_port *port,
                          const struct draft_room *room) {
    struct draft_engine *d = &s->draft_engine;
    assert(port->V == s->port.V);
    open_jobs(s, port, min_int(room->max_seqs, MAX_COST_ROWS));
    const struct draft_runner runner = {.self = d,
                                        .run = speculate_run_pass,
                                        .max_seqs = d->max_jobs,
                                        .max_rows = room->max_rows,
                                        .n_blocks = room->n_blocks,
                                        .block_size = room->block_size,
                                        .max_tokens = room->max_tokens};
    d->model = draft_model_new(&runner);
    s->drafter = drafter_model(d->model);
}

void speculate_close(struct scheduler *s) {
    draft_model_free(s->draft_engine.model);
    draft_ahead_free(s->draft_engine.ahead);
    mem_free(s->draft_engine.job);
    mem_free(s->draft_engine.sequence);
}
