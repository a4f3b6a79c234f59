/* commit: waits for a step and records its results. Filled blocks are registered, results of
 * samples become tokens, a complete prompt forks into its choices, and tokens become events.
 * Results of sequences that ended while the step was in flight are dropped. If the device has
 * failed, all requests end. */
#include <assert.h>
#include <string.h>

#include "scheduler/internal.h"
#include "scheduler/speculate.h"

/* ---- computed rows -------------------------------------------------------------------------- */

void register_blocks(struct scheduler *s, struct sequence *sequence, int from) {
    assert(from >= 0);
    int size = s->pool.block_size;
    for (int i = from / size; i < sequence->n_committed / size; i++) {
        int32_t parent = i > 0 ? sequence->kv.table[i - 1] : -1;
        struct block_key key = sequence_key(sequence, i, prefix_cache_id(&s->pool.known, parent));
        sequence->kv.table[i] = block_pool_register(&s->pool, sequence->kv.table[i], &key);
    }
}

/* Returns the index of the state after the committed rows among the states before drafts, or -1: it
 * is the state after all rows. */
static int committed_row_state(const struct sequence *sequence) {
    const struct sequence_kv *kv = &sequence->kv;
    if (kv->n_row_states == 0) return -1;
    int i = sequence->n_committed - kv->first_row_state;
    assert(i >= 0 && i <= kv->n_row_states);
    return i < kv->n_row_states ? i : -1;
}

/* Keeps the state after the committed rows if a checkpoint is due there. */
static void keep_checkpoint(struct scheduler *s, const struct sequence *sequence) {
    int n = sequence->n_committed, size = s->pool.block_size;
    if (!checkpoints_due(&s->checkpoints, n, sequence->request->n_prompt)) return;
    int i = committed_row_state(sequence);
    assert(n % size == 0 && (i >= 0 || n == sequence->n_computed));
    checkpoints_add(&s->checkpoints, sequence->kv.table[n / size - 1],
                    i >= 0 ? sequence->kv.row_state[i] : sequence->kv.state);
}

/* Sets the state back to that before the first refused draft. */
static void take_back_state(struct scheduler *s, struct sequence *sequence) {
    struct sequence_kv *kv = &sequence->kv;
    int i = committed_row_state(sequence);
    if (i >= 0) {
        int32_t after_refused = kv->state;
        kv->state = kv->row_state[i];
        kv->row_state[i] = after_refused;
    }
    release_row_states(s, sequence);
}

/* Positions from..n_committed-1 of a running sequence are now in the cache. Registers its full
 * blocks, keeps a checkpoint, and stops watching the blocks before the window of its next row. */
static void end_rows(struct scheduler *s, struct sequence *sequence, int from) {
    if (s->pool.caching) register_blocks(s, sequence, from);
    keep_checkpoint(s, sequence);
    int first = window_pool_first_seen(&s->pool.windows, sequence->n_committed);
    for (; sequence->kv.first_seen < first; sequence->kv.first_seen++) {
        int32_t block = sequence->kv.table[sequence->kv.first_seen];
        bool known = prefix_cache_knows(&s->pool.known, block);
        window_pool_unwatch(&s->pool.windows, block, known);
    }
    assert(first <= sequence->kv.n_blocks);
}

/* Commits the rows of a sequence that still has them: it runs, or its blocks were swapped after the
 * step was submitted. Any other preemption discards the rows, but the sampled token is still added.
 * Rows of drafts are committed when the drafts are accepted. */
static void commit_rows(struct scheduler *s, const struct inflight_rows *rows) {
    struct sequence *sequence = rows->sequence;
    sequence->n_pending -= rows->samples;
    if (sequence->state != SEQUENCE_RUNNING && sequence->state != SEQUENCE_SWAPPED) return;
    assert(sequence->n_committed == rows->from && rows->from + rows->n <= sequence->n_computed);
    sequence->n_committed = rows->from + rows->n - rows->drafts;
    if (sequence->state == SEQUENCE_RUNNING) end_rows(s, sequence, rows->from);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static int n_output(const struct sequence *sequence) {
    return sequence->n_tokens - sequence->request->n_prompt;
}

static enum finish finish_after(struct sequence *sequence, int32_t token) {
    const struct request *request = sequence->request;
    const struct generation *generation = request->generation;
    bool early = n_output(sequence) <= generation->min_tokens;
    if (!early && generation_stops_at(generation, token)) return FINISH_STOP;
    enum finish taken = generation->grammar ? constraint_take(sequence) : FINISH_NONE;
    if (taken != FINISH_NONE) return taken;
    if (sequence->n_tokens == request->max_tokens) return FINISH_LENGTH;
    return FINISH_NONE;
}

static void set_sampled(struct event *event, const struct sampled *sampled) {
    assert(sampled->n_top >= 0 && sampled->n_top <= MAX_TOP_LOGPROBS);
    memcpy(&event->sampled, sampled, offsetof(struct sampled, top));
    memcpy(event->sampled.top, sampled->top, (size_t)sampled->n_top * sizeof *sampled->top);
}

static void commit_token(struct scheduler *s, struct sequence *sequence,
                         const struct sampled *sampled) {
    if (sampled->id < 0 || sampled->id >= s->port.V) {
        bool stuck = sampled->id == -1 && sequence->request->generation->grammar;
        enum finish finish = stuck ? constraint_stuck(sequence) : FINISH_ERROR;
        sequence_end(s, sequence, finish, event_add(s, sequence, EVENT_END));
        return;
    }
    sequence_append(sequence, sampled->id);
    sequence->mirostat_mu = sampled->mirostat_mu;
    s->stats.generated_tokens++;
    share_charge(&s->shares.share[sequence->request->share], OUTPUT_TOKEN_COST);
    struct event *event = event_add(s, sequence, EVENT_TOKEN);
    set_sampled(event, sampled);
    enum finish finish = finish_after(sequence, sampled->id);
    if (finish != FINISH_NONE) sequence_end(s, sequence, finish, event);
}

/* Appends the tokens that the grammar forces after the sampled ones. */
static void commit_forced(struct scheduler *s, struct sequence *sequence) {
    while (sequence->state != SEQUENCE_ENDED) {
        struct sampled forced = {.id = constraint_forced(s, sequence)};
        if (forced.id < 0) return;
        if (sequence->n_pending > 0) inflight_withdraw(inflight_newest(s), sequence);
        s->stats.forced_tokens++;
        commit_token(s, sequence, &forced);
    }
}

/* Counts the drafts of a prediction: one more was accepted, or all `left` were refused. The call
 * precedes the event that reports the count. */
static void count_prediction(struct sequence *sequence, bool holds, int left) {
    if (!sequence->drafts.are_predicted) return;
    if (holds)
        sequence->drafts.n_predicted_held++;
    else
        sequence->drafts.n_predicted_refused += left;
}

/* Appends the sampled tokens: one for the last known token and one for each draft. Stops after a
 * token that differs from the next draft or ends the sequence. The rows of accepted drafts become
 * rows of known tokens. Releases the blocks of refused drafts. Returns the number of drafts. */
static int commit_drafts(struct scheduler *s, struct sequence *sequence,
                         const struct sampled *results) {
    int n = sequence->drafts.n, taken = 0;
    for (;; taken++) {
        bool holds = taken < n && results[taken].id == sequence->tokens[sequence->n_tokens];
        count_prediction(sequence, holds, n - taken);
        commit_token(s, sequence, &results[taken]);
        if (!holds || sequence->state == SEQUENCE_ENDED) break;
        if (sequence->state != SEQUENCE_RUNNING) continue; /* preempted: its rows are lost */
        assert(sequence->n_committed < sequence->n_computed);
        sequence->n_committed++;
        end_rows(s, sequence, sequence->n_committed - 1);
    }
    assert(taken <= n);
    drafts_learn(&sequence->drafts, taken);
    sequence->drafts.n = 0;
    s->stats.drafts++;
    s->stats.draft_tokens += (uint64_t)n;
    s->stats.accepted_tokens += (uint64_t)taken;
    if (sequence->state != SEQUENCE_RUNNING) return n;
    take_back_state(s, sequence);
    sequence->n_computed = sequence->n_committed;
    int blocks = block_pool_blocks_for(&s->pool, sequence->n_computed);
    while (sequence->kv.n_blocks > blocks) release_last_block(s, sequence);
    return n;
}

static void count_prompt(struct scheduler *s, const struct sequence *leader) {
    assert(leader->kv.n_cached <= leader->request->n_prompt);
    s->stats.prompt_tokens += (uint64_t)leader->request->n_prompt;
    s->stats.cached_tokens += (uint64_t)leader->kv.n_cached;
}

/* Notes the place of the hidden vector of the sequence's last committed row, which the engine
 * keeps. `sample` is that of its first row with logits in the step. */
static void keep_hidden_row(struct sequence *sequence, const struct sample *sample) {
    const int drafts = sequence->n_computed - sample->position;
    sequence->drafts.hidden_row = -1;
    if (sequence->state != SEQUENCE_RUNNING) return;
    assert(drafts >= 0 && drafts <= MAX_DRAFTS && sequence->n_computed < sequence->n_tokens);
    sequence->drafts.hidden_row = sample->row + drafts;
}

/* The order is fixed: a prompt's scores, then its token; the leader's token, then the tokens of the
 * choices that fork from it. */
static void commit_samples(struct scheduler *s, const struct inflight *inflight,
                           const struct sampled *results) {
    for (int i = 0; i < inflight->n_samples; i++) {
        const struct sample *sample = &inflight->samples[i];
        struct sequence *sequence = inflight->owner[i];
        if (sequence->state == SEQUENCE_ENDED) {
            s->stats.dropped_samples++;
            continue;
        }
        if (!sample->sampling) {
            bool reads = generation_reads(sequence->request->generation);
            assert(sample->position > 0 && sample->position <= sequence->n_scored);
            struct event *event = event_add(s, sequence, reads ? EVENT_READ : EVENT_PROMPT_TOKEN);
            event->choice = 0;
            event->position = sample->position;
            set_sampled(event, &results[i]);
            continue;
        }
        bool leads = sequence->index == 0; /* the other choices share its prompt */
        if (leads && sample->n_output == 0) count_prompt(s, sequence);
        if (sequence->request->beams) {
            i += commit_candidates(s, sequence, &results[i]) - 1;
            continue;
        }
        if (sequence->request->n_unforked > 0) fork_choices(s, sequence);
        if (sequence->drafts.n > 0) {
            i += commit_drafts(s, sequence, &results[i]);
        } else {
            assert(sequence->kv.n_row_states == 0);
            commit_token(s, sequence, &results[i]);
        }
        if (s->draft_engine.ahead) keep_hidden_row(sequence, sample);
        commit_forced(s, sequence);
    }
}

/* Adds the hidden vectors to the sums of their requests, or keeps each, by ascending positions:
 * steps
 * compute rows in this order, and each row once. So a sum does not depend on the steps. */
static void commit_hidden(struct scheduler *s, const struct inflight *inflight) {
    for (int i = 0; i < inflight->n_hidden; i++) {
        const struct sequence *sequence = inflight->hidden[i].sequence;
        if (sequence->state == SEQUENCE_ENDED) continue;
        const float *hidden = s->port.hidden(s->port.self, i);
        struct request *request = sequence->request;
        double *sum = request->generation->hidden_sum;
        assert(request->n_hidden < request->n_prompt);
        if (request->generation->keeps_hidden)
            sum += (size_t)request->n_hidden++ * (size_t)s->port.K;
        for (int k = 0; k < s->port.K; k++) sum[k] += (double)hidden[k];
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

static void end_prompts(struct scheduler *s, const struct inflight *inflight) {
    for (int i = 0; i < inflight->n_rows; i++) {
        const struct inflight_rows *rows = &inflight->rows[i];
        struct sequence *sequence = rows->sequence;
        if (sequence->state == SEQUENCE_ENDED || sequence_samples(sequence)) continue;
        if (rows->from + rows->n < sequence->n_tokens) continue;
        count_prompt(s, sequence);
        end_choices(s, sequence->request);
    }
}

/* ---- the step ------------------------------------------------------------------------------- */

static void count_step(struct scheduler *s, const struct inflight *inflight) {
    int rows = 0, i = 0;
    for (int r = 0; r < inflight->n_rows; r++)
        rows += inflight->rows[r].n + inflight->rows[r].again;
    while (i < STEP_ROW_BOUNDS && rows > step_row_bound(i)) i++;
    s->stats.steps++;
    s->stats.step_rows += (uint64_t)rows;
    s->stats.steps_by_rows[i]++;
}

void commit_step(struct scheduler *s, struct inflight *inflight) {
    const struct sampled *results = s->port.wait(s->port.self);
    step_part_ends(s, PART_FORWARD);
    if (!results) {
        scheduler_fail(s);
        inflight_end(inflight);
        return;
    }
    for (int i = 0; i < inflight->n_rows; i++) commit_rows(s, &inflight->rows[i]);
    commit_samples(s, inflight, results);
    commit_hidden(s, inflight);
    end_prompts(s, inflight);
    count_step(s, inflight);
    inflight_end(inflight);
}
