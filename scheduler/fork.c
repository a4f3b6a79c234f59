/* fork: sequences that start from the tokens and blocks of others: the choices of a prompt, and
 * beams.
 *
 * A fork shares the blocks. A sequence that writes to a shared, partial block first copies it
 * (apply.c).
 *
 * When all beams of a search have their candidates, beams_advance returns the beams that continue.
 * The first beam that continues from a parent keeps the parent's sequence. The others use sequences
 * that are spare or whose beams end:
 *
 *     beam       0 "It is"   1 "There"  2 "The"       next  0 "It is a"   from 0
 *     sequence   s0          s1         s2                  1 "It is the" from 0
 *                                                           2 "There is"  from 1
 *     after:     s0 is beam 0, s1 is beam 2, and s2 forks from s0 and is beam 1
 *
 * At that time all results of these sequences are committed.
 */
#include <string.h>

#include "scheduler/internal.h"

/* Makes a sequence run on the blocks of another. */
static void share_blocks(struct scheduler *s, const struct sequence *from,
                         struct sequence *sequence) {
    assert(from->state == SEQUENCE_RUNNING && from->n_computed == from->n_committed);
    sequence->state = SEQUENCE_RUNNING;
    sequence_enqueue(&s->running, sequence);
    batch_add(&s->batch, sequence);
    for (int i = 0; i < from->kv.n_blocks; i++) {
        sequence->kv.table[i] = from->kv.table[i];
        block_pool_share(&s->pool, sequence->kv.table[i]);
    }
    sequence->kv.n_blocks = from->kv.n_blocks;
    sequence->kv.first_seen = from->kv.first_seen;
    sequence->kv.state = from->kv.state;
    if (from->kv.state >= 0) state_pool_share(&s->states, from->kv.state);
    watch_blocks(s, sequence);
    sequence->n_computed = sequence->n_committed = from->n_computed;
}

/* ---- choices -------------------------------------------------------------------------------- */

/* Starts a choice. It runs on the leader's blocks if the leader still has them and a batch row is
 * free. Otherwise it waits without blocks, and finds or computes its prompt later. */
static void fork_choice(struct scheduler *s, struct sequence *leader, struct sequence *sequence) {
    sequence_fork(leader, sequence);
    if (leader->state == SEQUENCE_RUNNING && batch_rows_claimed(&s->running) < s->max_seqs) {
        share_blocks(s, leader, sequence);
        return;
    }
    sequence->state = SEQUENCE_WAITING;
    sequence_enqueue_early(&s->waiting, sequence);
}

void fork_choices(struct scheduler *s, struct sequence *leader) {
    struct request *request = leader->request;
    assert(leader->state != SEQUENCE_RUNNING || leader->n_committed == request->n_prompt);
    for (int i = 0; i < request->n && request->n_unforked > 0; i++) {
        if (request->sequence[i].state != SEQUENCE_UNFORKED) continue;
        fork_choice(s, leader, &request->sequence[i]);
        request->n_unforked--;
    }
    assert(request->n_unforked == 0);
}

/* ---- beams ---------------------------------------------------------------------------------- */

/* Removes a sequence whose beam ends from its queue. */
static void fork_spare(struct scheduler *s, struct sequence *sequence) {
    assert(sequence->state != SEQUENCE_SWAPPED && sequence->n_pending == 0);
    if (sequence->state == SEQUENCE_RUNNING) sequence_stop_running(s, sequence);
    if (sequence->state == SEQUENCE_WAITING) list_remove(&s->waiting, &sequence->node);
    sequence->state = SEQUENCE_SPARE;
}

/* Makes a spare sequence continue from a beam. It gets a copy of the output. */
static void fork_beam(struct scheduler *s, const struct sequence *parent,
                      struct sequence *sequence) {
    const struct request *request = parent->request;
    int size = request->block_size, kept = request->n_prompt / size * size;
    size_t full = (size_t)(parent->n_tokens / size);
    if (sequence->n_tokens == 0) kept = 0; /* it has never had a beam */
    memcpy(sequence->tokens + kept, parent->tokens + kept,
           (size_t)(parent->n_tokens - kept) * sizeof *parent->tokens);
    if (parent->kv.hashes)
        memcpy(sequence->kv.hashes, parent->kv.hashes, full * sizeof *parent->kv.hashes);
    sequence->n_tokens = parent->n_tokens;
    sequence->n_scored = parent->n_scored;
    sequence->thoughts = parent->thoughts;
    sequence->kv.n_cached = parent->kv.n_cached;
    sequence->first_scheduled_ns = parent->first_scheduled_ns;
    if (parent->state == SEQUENCE_RUNNING) {
        share_blocks(s, parent, sequence);
        return;
    }
    assert(parent->state == SEQUENCE_WAITING);
    sequence->state = SEQUENCE_WAITING;
    sequence_enqueue_early(&s->waiting, sequence);
}

/* Assigns sequences to the next beams: first those of the parents, then others. */
static void place_beams(struct scheduler *s, struct request *request, const struct next_beam *next,
                        int n) {
    struct sequence *parent[MAX_BEAMS];
    bool kept[MAX_BEAMS] = {0}; /* index: sequence; its beam continues in it */
    int at[MAX_BEAMS], free = 0;
    for (int i = 0; i < n; i++) {
        parent[i] = &request->sequence[request->beams->at[next[i].parent]];
        at[i] = kept[parent[i]->index] ? -1 : parent[i]->index;
        kept[parent[i]->index] = true;
    }
    for (int i = 0; i < request->n; i++)
        if (!kept[i]) fork_spare(s, &request->sequence[i]);
    for (int i = 0; i < n; i++) {
        if (at[i] >= 0) continue;
        while (kept[free]) free++;
        kept[free] = true;
        at[i] = free;
        fork_beam(s, parent[i], &request->sequence[free]);
    }
    for (int i = 0; i < n; i++) {
        sequence_append(&request->sequence[at[i]], next[i].id);
        request->beams->at[i] = at[i];
    }
}

static bool are_ids(const struct sampled *sampled, int V) {
    for (int i = 0; i < sampled->n_top; i++)
        if (sampled->top[i].id < 0 || sampled->top[i].id >= V) return false;
    return true;
}

int commit_candidates(struct scheduler *s, struct sequence *sequence,
                      const struct sampled *results) {
    struct request *request = sequence->request;
    struct beams *beams = request->beams;
    const int32_t *output[MAX_BEAMS];
    struct next_beam next[MAX_BEAMS];
    int parts = sample_parts(beams->n_best), beam = sequence_beam(sequence);
    int32_t forced = constraint_only(sequence);
    const struct sampled certain = {.n_top = 1, .top = {{.id = forced}}};
    bool right = true;
    for (int part = 0; part < parts && forced < 0; part++) {
        right = right && are_ids(&results[part], s->port.V);
        if (right) beams_take(beams, beam, part, &results[part]);
    }
    if (forced >= 0) beams_take(beams, beam, 0, &certain);
    share_charge(&s->shares.share[request->share], OUTPUT_TOKEN_COST);
    if (!right) end_search(s, request, FINISH_ERROR);
    if (!right || !beams_complete(beams)) return parts;
    int length = sequence->n_tokens - request->n_prompt;
    for (int i = 0; i < beams->n_live; i++)
        output[i] = request->sequence[beams->at[i]].tokens + request->n_prompt;
    int n = beams_advance(beams, output, length, next);
    if (n > 0)
        place_beams(s, request, next, n);
    else
        end_search(s, request, FINISH_STOP);
    return parts;
}
