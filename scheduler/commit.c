/* commit: takes in what a step has computed. Blocks that were filled become known, what was sampled
 * becomes tokens, prompts whose end was reached fork into their choices, tokens become events. What
 * belongs to sequences that have ended while the step was in flight is thrown away. Where the
 * device has failed there is nothing to take in, and everything ends. */
#include <string.h>

#include "scheduler/internal.h"

/* ---- computed rows -------------------------------------------------------------------------- */

void register_blocks(struct scheduler *s, struct sequence *sequence, int from) {
    int size = s->pool.block_size;
    for (int i = from / size; i < sequence->n_settled / size; i++) {
        int32_t parent = i > 0 ? sequence->table[i - 1] : -1;
        struct block_key key = sequence_key(sequence, i, prefix_cache_id(&s->pool.known, parent));
        sequence->table[i] = block_pool_register(&s->pool, sequence->table[i], &key);
    }
}

/* Counts what a sequence's rows have brought. One that was preempted since has lost it, but for the
 * token, unless it was swapped; one that has ended has nothing to lose. */
static void settle(struct scheduler *s, const struct flight_rows *rows) {
    struct sequence *sequence = rows->sequence;
    sequence->n_coming -= rows->samples;
    if (sequence->state != SEQUENCE_RUNNING && sequence->state != SEQUENCE_SWAPPED) return;
    assert(sequence->n_settled == rows->from && rows->from + rows->n <= sequence->n_computed);
    sequence->n_settled = rows->from + rows->n;
    if (s->pool.caching && sequence->state == SEQUENCE_RUNNING)
        register_blocks(s, sequence, rows->from);
}

/* ---- forks ---------------------------------------------------------------------------------- */

/* A choice runs on the leader's blocks when it still has them and there is a lane; otherwise it
 * waits, holding nothing, and comes to its prompt through the prefix cache or by computing it. */
static void fork_choice(struct scheduler *s, struct sequence *leader, struct sequence *sequence) {
    sequence_fork(leader, sequence);
    if (leader->state != SEQUENCE_RUNNING || s->running.n == s->max_seqs) {
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
    sequence->n_computed = sequence->n_settled = leader->n_computed;
}

static void fork_choices(struct scheduler *s, struct sequence *leader) {
    struct request *request = leader->request;
    assert(leader->state != SEQUENCE_RUNNING || leader->n_settled == request->n_prompt);
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

static int n_output(const struct sequence *sequence) {
    return sequence->n_tokens - sequence->request->n_prompt;
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
    assert(job->position <= sequence->n_scored);
    event->choice = 0;
    event->position = job->position;
    set_sampled(event, &job->out);
}

static void take_jobs(struct scheduler *s, const struct flight *flight) {
    for (int i = 0; i < flight->n_jobs; i++) {
        const struct sample_job *job = &flight->jobs[i];
        if (job->dropped) continue;
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

static void end_prompts(struct scheduler *s, const struct flight *flight) {
    for (int i = 0; i < flight->n_rows; i++) {
        const struct flight_rows *rows = &flight->rows[i];
        struct sequence *sequence = rows->sequence;
        if (sequence->state == SEQUENCE_ENDED || sequence_samples(sequence)) continue;
        if (rows->from + rows->n < sequence->n_tokens) continue;
        s->stats.prompt_tokens += (uint64_t)sequence->request->n_prompt;
        end_choices(s, sequence->request);
    }
}

/* ---- the step ------------------------------------------------------------------------------- */

/* Where the host samples, the wait is for that too. */
static void end_wait(struct scheduler *s) {
    step_part_ends(s, PART_FORWARD);
    if (!s->port.sampling_ns) return;
    uint64_t ns = s->port.sampling_ns(s->port.self) - s->stats.part_ns[PART_SAMPLE];
    s->stats.part_ns[PART_SAMPLE] += ns;
    s->stats.part_ns[PART_FORWARD] -= ns;
}

void commit_step(struct scheduler *s, struct flight *flight) {
    flight_drop_ended(flight);
    bool came = s->port.wait(s->port.self, flight->jobs, flight->n_jobs);
    end_wait(s);
    if (!came) {
        scheduler_fail(s);
        flight_land(flight);
        return;
    }
    for (int i = 0; i < flight->n_rows; i++) settle(s, &flight->rows[i]);
    take_jobs(s, flight);
    end_prompts(s, flight);
    flight_land(flight);
    s->stats.steps++;
}
