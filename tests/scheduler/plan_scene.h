/* Queues, a pool and a view that tests of the policy set up by hand. */
#ifndef PENSTOCK_PLAN_SCENE_H
#define PENSTOCK_PLAN_SCENE_H

#include <stdlib.h>
#include <string.h>

#include "scheduler/plan/plan.h"

enum { B = 4, MAX = 16, MODEL_LEN = 256 };

static struct block_pool pool;
static struct list running, waiting;
static struct plan plan;
static struct share share[3];
static struct shares shares;
static struct plan_view view;
static struct request *made[MAX];
static struct generation generation[MAX];
static int32_t prompt[MAX][MODEL_LEN], table[MAX][MODEL_LEN];
static int n_made;

static inline void begin(int n_blocks, int max_seqs, int max_rows, int max_logit_rows,
                         bool caching) {
    block_pool_init(&pool, n_blocks, B, caching);
    for (int i = 0; i < 3; i++) share[i] = (struct share){.weight = 1};
    shares = (struct shares){.n = 3, .share = share};
    plan_init(&plan, max_seqs, n_blocks, shares.n);
    list_init(&running);
    list_init(&waiting);
    n_made = 0;
    view = (struct plan_view){.running = &running,
                              .most_drafts = MAX_COST_ROWS,
                              .waiting = &waiting,
                              .pool = &pool,
                              .shares = &shares,
                              .max_seqs = max_seqs,
                              .max_rows = max_rows,
                              .row_quantum = 16,
                              .mixed_rows = max_rows,
                              .max_logit_rows = max_logit_rows,
                              .now_ns = 1};
}

static inline void end(void) {
    for (int i = 0; i < n_made; i++) free(made[i]);
    plan_free(&plan);
    block_pool_free(&pool);
}

/* Makes a sequence with a prompt and a priority, in no queue; the first of a search if width is not
 * 0. */
static inline struct sequence *make_search(int n_prompt, int priority, int n, int prompt_logprobs,
                                           int width) {
    int k = n_made++;
    for (int i = 0; i < n_prompt; i++) prompt[k][i] = k * 1000 + i;
    memset(&generation[k], 0, sizeof generation[k]);
    generation[k].prompt = prompt[k];
    generation[k].n_prompt = n_prompt;
    generation[k].n = n;
    generation[k].max_tokens = 64;
    generation[k].priority = priority;
    generation[k].prompt_logprobs = prompt_logprobs;
    generation[k].beams.width = width;
    made[k] = request_new(&generation[k], MODEL_LEN, B, pool.caching, NULL);
    made[k]->arrival = (uint64_t)k;
    made[k]->sequence[0].kv.table = table[k];
    return &made[k]->sequence[0];
}

static inline struct sequence *make(int n_prompt, int priority, int n, int prompt_logprobs) {
    return make_search(n_prompt, priority, n, prompt_logprobs, 0);
}

static inline struct sequence *wait(int n_prompt, int priority) {
    struct sequence *sequence = make(n_prompt, priority, 1, -1);
    sequence->state = SEQUENCE_WAITING;
    sequence_enqueue(&waiting, sequence);
    return sequence;
}

/* A waiting sequence of a share. */
static inline struct sequence *wait_of(int who, int n_prompt, int priority) {
    struct sequence *sequence = wait(n_prompt, priority);
    sequence->request->share = who;
    return sequence;
}

static inline struct sequence *run_more(struct sequence *sequence, int n_computed) {
    sequence->state = SEQUENCE_RUNNING;
    sequence->n_computed = n_computed;
    for (int i = 0; i < block_pool_blocks_for(&pool, n_computed); i++)
        sequence->kv.table[sequence->kv.n_blocks++] = block_pool_acquire(&pool);
    sequence_enqueue(&running, sequence);
    return sequence;
}

static inline struct sequence *run(int n_prompt, int n_computed, int priority) {
    return run_more(make(n_prompt, priority, 1, -1), n_computed);
}

static inline int rows_of(const struct sequence *sequence) {
    for (int i = 0; i < plan.n_items; i++)
        if (plan.item[i].sequence == sequence && (i < plan.n_kept || i >= plan.n_running))
            return plan.item[i].rows;
    return -1; /* preempted, or not admitted */
}

#endif
