/* commit: takes in what a step has computed. Blocks that were filled become known, logits become
 * tokens, prompts whose end was reached fork into their choices, tokens become events. */
#include <string.h>

#include "scheduler/internal.h"

/* ---- computed rows -------------------------------------------------------------------------- */

/* Makes the blocks known that the step has filled; where an equal one was known, the sequence
 * goes over to it. */
static void register_blocks(struct scheduler *s, struct sequence *sequence, int from) {
    int size = s->pool.block_size;
    struct block_key key = {.salt = sequence->request->generation->cache_salt};
    for (int i = from / size; i < sequence->n_computed / size; i++) {
        key.hash = sequence->hashes[i];
        key.tokens = sequence->tokens + i * size;
        key.parent = i > 0 ? sequence->table[i - 1] : -1;
        sequence->table[i] = block_pool_register(&s->pool, sequence->table[i], &key);
    }
}

/* Returns whether the sequence has come to an end without a token. */
static bool advance(struct scheduler *s, struct sequence *sequence) {
    int from = sequence->n_computed;
    sequence->n_computed += sequence->rows;
    sequence->rows = 0;
    assert(sequence->n_computed <= sequence->n_tokens);
    if (s->pool.caching) register_blocks(s, sequence, from);
    return sequence->n_computed == sequence->n_tokens && !sequence_samples(sequence);
}

static bool advance_all(struct scheduler *s) {
    bool ends = false;
    for (int i = 0; i < s->batch.step.S; i++) ends |= advance(s, s->batch.lane[i]);
    return ends;
}

/* ---- sampling ------------------------------------------------------------------------------- */

static int n_output(const struct sequence *sequence) {
    return sequence->n_tokens - sequence->request->n_prompt;
}

/* The jobs are set field by field: what is sampled is large, and the port's to write. */
static void choice_job(struct sample_job *job, const struct sequence *leader,
                       struct sequence *sequence, float *logits) {
    const struct request *request = leader->request;
    bool early = n_output(leader) < request->generation->min_tokens;
    job->sequence = sequence;
    job->logits = logits;
    job->shared = request->n_unforked > 0;
    job->score = false;
    job->n_top = 0;
    job->sampling = early ? &request->sampling_banned : &request->sampling;
    job->history = leader->tokens;
    job->n_prompt = request->n_prompt;
    job->n_output = n_output(leader);
    job->position = leader->n_tokens;
    job->choice = sequence->choice;
}

static void score_job(struct sample_job *job, struct sequence *sequence, int position,
                      float *logits) {
    job->sequence = sequence;
    job->logits = logits;
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

/* The jobs of one logit row: a score, or a token for the sequence and for each choice that waits
 * for its prompt. */
static int row_jobs(struct scheduler *s, const struct row_owner *owner, float *logits, int n) {
    struct sequence *sequence = owner->sequence;
    struct request *request = sequence->request;
    if (owner->position + 1 < sequence->n_tokens) {
        score_job(&s->jobs[n++], sequence, owner->position + 1, logits);
        return n;
    }
    choice_job(&s->jobs[n++], sequence, sequence, logits);
    if (request->n_unforked == 0) return n;
    for (int i = 0; i < request->n; i++)
        if (request->sequence[i].state == SEQUENCE_UNFORKED)
            choice_job(&s->jobs[n++], sequence, &request->sequence[i], logits);
    return n;
}

static int sample_rows(struct scheduler *s, float *logits) {
    int n = 0;
    for (int r = 0; r < s->batch.step.R; r++)
        n = row_jobs(s, &s->batch.owner[r], logits + (size_t)r * (size_t)s->port.V, n);
    assert(n <= s->config.max_logit_rows + MAX_EXTRA_SAMPLES);
    if (n > 0) s->port.sample(s->port.self, s->jobs, n);
    return n;
}

/* ---- forks ---------------------------------------------------------------------------------- */

/* A choice runs on the leader's blocks when there is a lane for it; otherwise it waits, holding
 * nothing, and comes to its prompt through the prefix cache or by computing it. */
static void fork_choice(struct scheduler *s, struct sequence *leader, struct sequence *sequence) {
    sequence_fork(leader, sequence);
    if (s->running.n == s->max_seqs) {
        sequence->state = SEQUENCE_WAITING;
        sequence_enqueue_early(&s->waiting, sequence);
        return;
    }
    sequence->state = SEQUENCE_RUNNING;
    sequence_enqueue(&s->running, sequence);
    batch_seat(&s->batch, sequence);
    for (int i = 0; i < leader->n_blocks; i++) {
        sequence->table[i] = leader->table[i];
        block_pool_share(&s->pool, sequence->table[i]);
    }
    sequence->n_blocks = leader->n_blocks;
    sequence->n_computed = leader->n_computed;
}

static void fork_choices(struct scheduler *s, struct sequence *leader) {
    struct request *request = leader->request;
    assert(leader->n_computed == request->n_prompt);
    for (int i = 0; i < request->n && request->n_unforked > 0; i++) {
        if (request->sequence[i].state != SEQUENCE_UNFORKED) continue;
        fork_choice(s, leader, &request->sequence[i]);
        request->n_unforked--;
    }
    assert(request->n_unforked == 0);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static bool stops(const struct generation *generation, int32_t token) {
    for (int i = 0; i < generation->n_stop_ids; i++)
        if (generation->stop_ids[i] == token) return true;
    return false;
}

static enum finish finish_after(const struct sequence *sequence, int32_t token) {
    const struct request *request = sequence->request;
    bool early = n_output(sequence) <= request->generation->min_tokens;
    if (!early && stops(request->generation, token)) return FINISH_STOP;
    if (sequence->n_tokens == request->max_tokens) return FINISH_LENGTH;
    return FINISH_NONE;
}

static void set_sampled(struct event *event, const struct sampled *sampled) {
    assert(sampled->n_top >= 0 && sampled->n_top <= MAX_TOP_LOGPROBS);
    memcpy(&event->sampled, sampled, offsetof(struct sampled, top));
    memcpy(event->sampled.top, sampled->top, (size_t)sampled->n_top * sizeof *sampled->top);
}

static void take_token(struct scheduler *s, const struct sample_job *job) {
    struct sequence *sequence = job->sequence;
    if (job->out.id < 0 || job->out.id >= s->port.V) {
        sequence_end(s, sequence, FINISH_ERROR, event_add(s, sequence, EVENT_END));
        return;
    }
    sequence_append(sequence, job->out.id);
    s->stats.generated_tokens++;
    struct event *event = event_add(s, sequence, EVENT_TOKEN);
    set_sampled(event, &job->out);
    enum finish finish = finish_after(sequence, job->out.id);
    if (finish != FINISH_NONE) sequence_end(s, sequence, finish, event);
}

static void take_score(struct scheduler *s, const struct sample_job *job) {
    struct sequence *sequence = job->sequence;
    struct event *event = event_add(s, sequence, EVENT_PROMPT_TOKEN);
    assert(sequence->n_scored == job->position - 1);
    sequence->n_scored++;
    event->choice = 0;
    event->position = job->position;
    set_sampled(event, &job->out);
}

static void take_jobs(struct scheduler *s, int n) {
    for (int i = 0; i < n; i++) {
        const struct sample_job *job = &s->jobs[i];
        if (job->score) {
            take_score(s, job);
            continue;
        }
        bool leads = job->sequence->index == 0; /* the others have the prompt from it */
        if (leads && job->n_output == 0) s->stats.prompt_tokens += (uint64_t)job->n_prompt;
        if (job->sequence->request->n_unforked > 0) fork_choices(s, job->sequence);
        take_token(s, job);
    }
}

/* ---- prompts without output ----------------------------------------------------------------- */

static void end_choices(struct scheduler *s, struct request *request) {
    for (int i = 0, left = request->n_live; left > 0; i++) {
        struct sequence *sequence = &request->sequence[i];
        if (sequence->state == SEQUENCE_ENDED) continue;
        left--;
        sequence_end(s, sequence, FINISH_LENGTH, event_add(s, sequence, EVENT_END));
    }
}

static void end_prompts(struct scheduler *s) {
    queue_each_removable(node, &s->running) {
        struct sequence *sequence = sequence_of(node);
        if (sequence_samples(sequence) || sequence->n_computed < sequence->n_tokens) continue;
        s->stats.prompt_tokens += (uint64_t)sequence->request->n_prompt;
        end_choices(s, sequence->request);
    }
}

void commit_step(struct scheduler *s, float *logits) {
    int n = sample_rows(s, logits);
    bool prompts_end = advance_all(s);
    take_jobs(s, n);
    if (prompts_end) end_prompts(s);
    s->stats.steps++;
}
