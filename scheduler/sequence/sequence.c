#include "scheduler/sequence/sequence.h"

#include <stdlib.h>
#include <string.h>

int generation_max_tokens(const struct generation *generation, int max_model_len) {
    int room = max_model_len - generation->n_prompt;
    return generation->n_prompt + (generation->max_tokens < room ? generation->max_tokens : room);
}

/* The last sampled token is never an input, so it needs no slot. */
int generation_max_slots(const struct generation *generation, int max_model_len) {
    int total = generation_max_tokens(generation, max_model_len);
    return total > generation->n_prompt ? total - 1 : total;
}

bool generation_stops_at(const struct generation *generation, int32_t token) {
    for (int i = 0; i < generation->n_stop_ids; i++)
        if (generation->stop_ids[i] == token) return true;
    return false;
}

/* Does the request search with beams? */
static bool searches(const struct request *request) {
    return request->generation->beams.width > 0 && request->max_tokens > request->n_prompt;
}

/* Allocates one zeroed piece for the request, its sequences, its search, their hashes, the states
 * of the drafter and their tokens, in falling order of alignment. A large piece costs only address
 * space until it is touched, so the unused part of the output costs no memory. */
static struct request *request_alloc(const struct request *head, bool hashed,
                                     const struct drafter *drafter) {
    size_t n = (size_t)head->n;
    size_t hashes =
        hashed ? (size_t)(head->max_tokens / head->block_size) * sizeof(struct block_hash) : 0;
    size_t tokens = (size_t)head->max_tokens * sizeof(int32_t);
    size_t own = sizeof *head + n * sizeof(struct sequence);
    size_t drafts = drafter ? drafter->state_bytes(drafter->self, head->max_tokens) / 8 * 8 + 8 : 0;
    size_t beams = searches(head) ? beams_bytes(head->n, head->max_tokens - head->n_prompt) : 0;
    struct request *request = mem_try_calloc(1, own + beams + n * (hashes + drafts + tokens));
    if (!request) return NULL;
    *request = *head;
    char *beam_memory = (char *)request + own, *hash_memory = beam_memory + beams;
    char *draft_memory = hash_memory + n * hashes, *token_memory = draft_memory + n * drafts;
    const struct generation *g = head->generation;
    if (beams > 0)
        request->beams = beams_init(beam_memory, &g->beams, head->max_tokens - head->n_prompt,
                                    g->stop_ids, g->n_stop_ids);
    for (size_t i = 0; i < n; i++) {
        request->sequence[i].kv.hashes =
            hashed ? (struct block_hash *)(void *)(hash_memory + i * hashes) : NULL;
        request->sequence[i].tokens = (int32_t *)(void *)(token_memory + i * tokens);
        if (drafter) request->sequence[i].drafts.state = draft_memory + i * drafts;
    }
    return request;
}

static void sampling_set(struct request *request, const struct generation *generation) {
    request->sampling = generation->sampling;
    request->sampling.n_banned = generation->n_suppressed;
    request->sampling.banned = generation->stop_ids + generation->n_stop_ids;
    request->sampling_banned = request->sampling;
    request->sampling_banned.n_banned = generation->n_stop_ids + generation->n_suppressed;
    request->sampling_banned.banned = generation->stop_ids;
    request->sampling_forced = (struct sampling)SAMPLING_GREEDY;
    request->sampling_forced.n_logprobs = generation->sampling.n_logprobs;
}

/* Returns the state in the grammar before the first token. */
static struct constraint constraint_before(const struct request *request) {
    bool later = request->generation->n_begin_ids > 0;
    return (struct constraint){.n_tokens = request->n_prompt,
                               .begins_at = later ? -1 : request->n_prompt};
}

/* The prompt rows that are scored or read: from..end-1. */
struct scored_rows {
    int from, end;
};

static struct scored_rows scored_rows(const struct generation *generation) {
    const int n = generation->n_prompt;
    if (generation_reads(generation)) {
        if (generation->hidden == HIDDEN_FIRST) return (struct scored_rows){0, 1};
        return (struct scored_rows){generation->hidden == HIDDEN_ALL ? 0 : n - 1, n};
    }
    return (struct scored_rows){generation->prompt_logprobs >= 0 ? 0 : n - 1, n - 1};
}

struct request *request_new(struct generation *generation, int max_model_len, int block_size,
                            bool hashed, const struct drafter *drafter) {
    const struct scored_rows scored = scored_rows(generation);
    struct request head = {.generation = generation,
                           .priority = generation->priority,
                           .share = generation->share,
                           .n_prompt = generation->n_prompt,
                           .max_tokens = generation_max_tokens(generation, max_model_len),
                           .max_slots = generation_max_slots(generation, max_model_len),
                           .max_drafts = drafter ? generation->max_drafts : 0,
                           .block_size = block_size,
                           .queued = true,
                           .is_counted = !generation->is_admitted,
                           .score_end = scored.end,
                           .prompt_scored = scored.from == 0 && scored.end > scored.from};
    sampling_set(&head, generation);
    head.n = head.n_live = searches(&head) ? generation->beams.width : generation->n;
    head.n_unforked = searches(&head) ? 0 : head.n - 1;
    if (searches(&head)) head.max_drafts = 0;
    assert(!generation_reads(generation) || head.n == 1);
    assert(generation->n_second == 0 || (generation_reads(generation) && !hashed));
    struct request *request = request_alloc(&head, hashed, head.max_drafts > 0 ? drafter : NULL);
    if (!request) return NULL;
    for (int i = 0; i < request->n; i++) {
        struct sequence *sequence = &request->sequence[i];
        sequence->request = request;
        if (request->beams && i > 0) sequence->state = SEQUENCE_SPARE;
        sequence->choice = sequence->index = i;
        sequence->pending_row = -1;
        sequence->kv.state = -1;
        drafts_init(&sequence->drafts);
        sequence->drafts.prediction =
            (struct prediction){.tokens = generation->predicted, .n = generation->n_predicted};
        sequence->constraint = constraint_before(request);
        sequence->thoughts = thoughts_first(&generation->thoughts);
        sequence->mirostat_mu = mirostat_first(&request->sampling);
        sequence->n_scored = scored.from;
    }
    struct sequence *leader = &request->sequence[0];
    for (int i = 0; i < request->n_prompt; i++) sequence_append(leader, generation->prompt[i]);
    return request;
}

int sequence_beam(const struct sequence *sequence) {
    const struct beams *beams = sequence->request->beams;
    int beam = 0;
    while (beams->at[beam] != sequence->index) beam++;
    assert(beam < beams->n_live);
    return beam;
}

int batch_rows_claimed(const struct list *running) {
    const struct request *before = NULL;
    int n = 0;
    list_each(node, running) { /* the beams of a search are adjacent */
        const struct request *request = sequence_of(node)->request;
        n += !request->beams ? 1 : request != before ? request->n : 0;
        before = request;
    }
    return n;
}

bool sequence_before(const struct sequence *a, const struct sequence *b) {
    const struct request *p = a->request, *q = b->request;
    if (p->priority != q->priority) return p->priority < q->priority;
    if (p->arrival != q->arrival) return p->arrival < q->arrival;
    return a->index < b->index;
}

void sequence_enqueue(struct list *queue, struct sequence *sequence) {
    struct list_node *place = queue->head.prev;
    while (place != &queue->head && sequence_before(sequence, sequence_of(place)))
        place = place->prev;
    list_insert_after(queue, place, &sequence->node);
}

void sequence_enqueue_early(struct list *queue, struct sequence *sequence) {
    struct list_node *place = queue->head.next;
    while (place != &queue->head && sequence_before(sequence_of(place), sequence))
        place = place->next;
    list_insert_after(queue, place->prev, &sequence->node);
}

void sequence_append(struct sequence *sequence, int32_t token) {
    assert(sequence->n_tokens < sequence->request->max_tokens);
    if (sequence->n_tokens >= sequence->request->n_prompt)
        thoughts_take(&sequence->thoughts, &sequence->request->generation->thoughts, token);
    sequence->tokens[sequence->n_tokens++] = token;
    int size = sequence->request->block_size;
    if (!sequence->kv.hashes || sequence->n_tokens % size != 0) return;
    int i = sequence->n_tokens / size - 1;
    const uint64_t *salt = sequence->request->generation->cache_salt;
    struct block_hash parent =
        i > 0 ? sequence->kv.hashes[i - 1] : (struct block_hash){salt[0], salt[1]};
    sequence->kv.hashes[i] = prefix_hash(parent, sequence->tokens + i * size, size);
}

struct thoughts sequence_thoughts_at(const struct sequence *sequence, int position) {
    const struct thought_limit *limit = &sequence->request->generation->thoughts;
    struct thoughts thoughts = sequence->thoughts;
    int end = min_int(position, sequence->n_tokens + sequence->drafts.n);
    if (sequence->n_tokens == 0) return thoughts; /* it will fork at the end of its prompt */
    for (int i = sequence->n_tokens; i < end; i++)
        thoughts_take(&thoughts, limit, sequence->tokens[i]);
    return thoughts;
}

void sequence_fork(const struct sequence *leader, struct sequence *sequence) {
    assert(sequence->state == SEQUENCE_UNFORKED && sequence->n_tokens == 0);
    assert(leader->n_tokens == leader->request->n_prompt);
    size_t n = (size_t)leader->n_tokens, full = n / (size_t)leader->request->block_size;
    memcpy(sequence->tokens, leader->tokens, n * sizeof *leader->tokens);
    if (leader->kv.hashes)
        memcpy(sequence->kv.hashes, leader->kv.hashes, full * sizeof *leader->kv.hashes);
    sequence->n_tokens = leader->n_tokens;
    sequence->n_scored = leader->n_scored;
    sequence->kv.n_cached = leader->kv.n_cached;
    sequence->first_scheduled_ns = leader->first_scheduled_ns;
}

int sequence_logit_rows(const struct sequence *sequence, int from, int rows) {
    int end = from + rows, last = sequence->request->score_end;
    int first = from > sequence->n_scored ? from : sequence->n_scored;
    int scored = max_int((end < last ? end : last) - first, 0);
    return scored + (end == sequence_n_schedulable(sequence) && sequence_samples(sequence));
}

struct block_key sequence_key(const struct sequence *sequence, int i, uint64_t parent) {
    const struct request *request = sequence->request;
    const uint64_t *salt = request->generation->cache_salt;
    return (struct block_key){.hash = sequence->kv.hashes[i],
                              .parent_hash = i > 0 ? sequence->kv.hashes[i - 1]
                                                   : (struct block_hash){salt[0], salt[1]},
                              .salt = salt,
                              .tokens = sequence->tokens + i * request->block_size,
                              .parent = parent};
}
