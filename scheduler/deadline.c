/* deadline: requests whose clients wait only until a time.
 *
 * A request that could not be answered in time is refused by scheduler_submit, before it costs
 * anything. The estimate is a lower bound, so that no request is refused that the server could
 * serve:
 *
 *     queued prompt rows of the same share    x  cost of a row (plan/step_cost.h)
 *   + the steps that compute them             x  cost of the decodes beside them
 *   + the request's first tokens              x  cost of a decode
 *   + the rest of the shortest load so far, if the model is not loaded (unload.c)
 *
 * Of the queued tokens, the share that the prefix cache has had so far does not count. The
 * request's own prompt counts only without a prefix cache, because it may be known. If the batch is
 * full, or the share has its part of it (shares.h), the measured time between two requests that
 * leave the queue is a second lower bound. A request that goes before queued ones (priority) is not
 * estimated.
 *
 * A deadline that passes later ends the request with FINISH_TIMEOUT at the start of the next step.
 * The engine thread keeps the earliest deadline, so a step without late requests compares two
 * numbers.
 */
#include <math.h>
#include <stdio.h>

#include "scheduler/internal.h"

/* ---- any thread ----------------------------------------------------------------------------- */

/* Returns a lower bound of the time until the generation has its first tokens. The caller must hold
 * the mutex. */
static double estimate_ns(const struct scheduler *s, const struct generation *g) {
    const struct inbox *inbox = &s->inbox;
    const struct scheduler_stats *stats = &inbox->published;
    const struct share_queue *queue = &inbox->by_share[g->share];
    if (g->priority < inbox->last_priority) return 0;
    double share = 1, requests = atomic_load(&queue->requests);
    if (stats->prefix_queries > 0)
        share -= (double)stats->prefix_hits / (double)stats->prefix_queries;
    double rows = atomic_load(&queue->tokens) * share;
    if (!s->config.prefix_caching) rows += g->n_prompt;
    double ns = queue_cost_ns(&inbox->cost, rows, max_int(g->min_tokens, 1));
    ns += load_left_ns(s);
    bool is_full = stats->running >= s->max_seqs ||
                   queue->running >= shares_most_rows(&s->shares, s->max_seqs);
    return is_full ? fmax(ns, (requests + 1) * stats->queue_pace.interval_ns) : ns;
}

static enum status refuse(double needed_ns, double left_ns, struct err *err) {
    err_set(err, STATUS_OVERLOADED, "deadline_ms",
            "The deadline is in %.0f ms, and with the present queue an answer begins after %.0f ms "
            "or more: try again later, or with a later deadline.",
            left_ns * 1e-6, needed_ns * 1e-6);
    if (!err) return STATUS_OVERLOADED;
    snprintf(err->code, sizeof err->code, "deadline_unreachable");
    err->retry_after_s = (int)fmin(fmax(ceil((needed_ns - left_ns) * 1e-9), 1), PACE_MAX_S);
    return STATUS_OVERLOADED;
}

enum status deadline_check(struct scheduler *s, const struct generation *g, struct err *err) {
    if (g->deadline_ns == 0 || g->is_admitted) return STATUS_OK;
    uint64_t now = now_ns();
    double left = g->deadline_ns > now ? (double)(g->deadline_ns - now) : 0;
    pthread_mutex_lock(&s->inbox.mutex);
    double needed = estimate_ns(s, g);
    pthread_mutex_unlock(&s->inbox.mutex);
    return left > 0 && needed <= left ? STATUS_OK : refuse(needed, left, err);
}

/* ---- engine thread -------------------------------------------------------------------------- */

/* Counts the running sequences of each share. The caller holds the mutex. */
static void count_running(struct scheduler *s) {
    struct share_queue *queue = s->inbox.by_share;
    if (s->shares.n == 1) return;
    for (int i = 0; i < s->shares.n; i++) queue[i].running = 0;
    list_each(node, &s->running) {
        const struct sequence *sequence = sequence_of(node);
        assert(sequence->request->share < s->shares.n);
        queue[sequence->request->share].running++;
    }
}

void deadline_publish(struct scheduler *s) {
    const struct scheduler_config *config = &s->config;
    const struct step_shape decodes = {.decode_rows = s->plan.shape.decode_rows};
    const float target = plan_itl_target(&s->plan);
    int rows = config->max_mixed_prefill_tokens;
    if (target > 0) rows = step_cost_rows_in(&s->cost, &decodes, 0, target);
    rows = max_int(min_int(rows, config->max_num_batched_tokens), s->port.row_quantum);
    count_running(s);
    step_cost_queue(&s->cost, decodes.decode_rows, rows, &s->inbox.cost);
}

void deadline_note(struct scheduler *s, const struct generation *g) {
    if (g->deadline_ns > 0 && g->deadline_ns < s->next_deadline_ns)
        s->next_deadline_ns = g->deadline_ns;
}

void deadline_end_late(struct scheduler *s, uint64_t now) {
    if (now < s->next_deadline_ns) return;
    s->next_deadline_ns = UINT64_MAX;
    list_each_removable(node, &s->requests) {
        struct request *request = list_entry(node, struct request, node);
        const struct generation *g = request->generation;
        if (g->deadline_ns > 0 && g->deadline_ns <= now)
            request_end(s, request, FINISH_TIMEOUT);
        else
            deadline_note(s, g);
    }
    assert(s->next_deadline_ns > now);
}
