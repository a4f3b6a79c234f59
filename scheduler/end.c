/* end: how sequences and requests end, and how their events reach the server. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/internal.h"

/* ---- events --------------------------------------------------------------------------------- */

/* Events are handed over once a step; earlier only when a mass of cancels fills the array. Of the
 * sampled token's alternatives only those that exist are written: most events have none. */
struct event *event_add(struct scheduler *s, const struct sequence *sequence,
                        enum event_kind kind) {
    if (s->n_events == s->max_events) events_deliver(s);
    struct event *event = &s->events[s->n_events++];
    memset(event, 0, offsetof(struct event, sampled) + offsetof(struct sampled, top));
    event->generation = sequence->request->generation;
    event->kind = kind;
    event->choice = sequence->choice;
    event->n_cached = sequence->n_cached;
    event->first_scheduled_ns = sequence->first_scheduled_ns;
    return event;
}

void events_deliver(struct scheduler *s) {
    int n = s->n_events;
    s->n_events = 0;
    if (n > 0) s->config.on_events(s->config.arg, s->events, n);
}

/* ---- ends ----------------------------------------------------------------------------------- */

void request_unqueue(struct scheduler *s, struct request *request) {
    if (!request->queued) return;
    request->queued = false;
    int requests = atomic_fetch_sub(&s->inbox.queued_requests, 1);
    int tokens = atomic_fetch_sub(&s->inbox.queued_tokens, request->n_prompt);
    assert(requests >= 1 && tokens >= request->n_prompt);
}

static void request_end(struct scheduler *s, struct request *request) {
    request_unqueue(s, request);
    queue_remove(&s->requests, &request->node);
    if (request->n_flying == 0) free(request);
}

static void leave_queue(struct scheduler *s, struct sequence *sequence) {
    if (sequence->state == SEQUENCE_RUNNING) sequence_stop_running(s, sequence);
    if (sequence->state == SEQUENCE_SWAPPED) swap_drop(s, sequence);
    if (sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_SWAPPED)
        queue_remove(&s->waiting, &sequence->node);
    if (sequence->state == SEQUENCE_UNFORKED) sequence->request->n_unforked--;
    sequence->state = SEQUENCE_ENDED;
}

void sequence_end(struct scheduler *s, struct sequence *sequence, enum finish finish,
                  struct event *event) {
    struct request *request = sequence->request;
    assert(sequence->state != SEQUENCE_ENDED && request->n_live > 0 && finish != FINISH_NONE);
    leave_queue(s, sequence);
    atomic_fetch_sub(&s->inbox.live_sequences, 1);
    event->finish = finish;
    event->last = --request->n_live == 0;
    if (event->last) request_end(s, request);
}

/* ---- cancels -------------------------------------------------------------------------------- */

static bool flagged(const struct generation *generation, int choice) {
    const _Atomic uint64_t *flags = &generation->cancelled_choices[choice / 64];
    return atomic_load_explicit(flags, memory_order_relaxed) >> (choice % 64) & 1;
}

/* While the choices of a request are unforked, only their numbers differ: so the leader takes the
 * number of one that is to stay, and what was already asked for under it, and the other one
 * ends. */
static struct sequence *swap_with_follower(struct scheduler *s, struct sequence *leader) {
    struct request *request = leader->request;
    if (leader->index != 0 || request->n_unforked == 0) return leader;
    int i = 1;
    while (request->sequence[i].state != SEQUENCE_UNFORKED) i++;
    int choice = leader->choice;
    leader->choice = request->sequence[i].choice;
    request->sequence[i].choice = choice;
    for (int f = 0; f < MAX_IN_FLIGHT && leader->n_coming > 0; f++)
        flight_swap(&s->flight[f], leader, &request->sequence[i]);
    return &request->sequence[i];
}

static void end_choice(struct scheduler *s, struct sequence *sequence, enum finish finish) {
    struct sequence *ending = swap_with_follower(s, sequence);
    sequence_end(s, ending, finish, event_add(s, ending, EVENT_END));
}

/* Ends the choices of a request that `all` or its flags say. A swap brings another choice to the
 * leader's place, so the leader is looked at again; each round ends one. */
static void end_flagged(struct scheduler *s, struct request *request, bool all,
                        enum finish finish) {
    const struct generation *generation = request->generation;
    all = all || atomic_load_explicit(&generation->cancelled, memory_order_relaxed);
    int left = request->n_live;
    for (int i = request->n - 1; i >= 0 && left > 0;) {
        struct sequence *sequence = &request->sequence[i];
        bool ends =
            sequence->state != SEQUENCE_ENDED && (all || flagged(generation, sequence->choice));
        if (!ends) {
            i--;
            continue;
        }
        left--;
        end_choice(s, sequence, finish);
    }
}

static bool any_flag(const struct generation *generation) {
    return atomic_load_explicit(&generation->cancelled, memory_order_relaxed) ||
           atomic_load_explicit(&generation->cancelled_choices[0], memory_order_relaxed) ||
           atomic_load_explicit(&generation->cancelled_choices[1], memory_order_relaxed);
}

static bool any_running_flagged(const struct scheduler *s) {
    queue_each(node, &s->running) if (any_flag(sequence_of(node)->request->generation)) return true;
    return false;
}

/* The flags of what runs are looked at in each step, those of what waits when scheduler_cancel
 * has asked for it. */
void cancel_wanted(struct scheduler *s) {
    if (!atomic_exchange(&s->inbox.cancels, false) && !any_running_flagged(s)) return;
    queue_each_removable(node, &s->requests) {
        struct request *request = queue_entry(node, struct request, node);
        if (any_flag(request->generation)) end_flagged(s, request, false, FINISH_CANCELLED);
    }
}

void end_everything(struct scheduler *s, enum finish finish) {
    queue_each_removable(node, &s->requests)
        end_flagged(s, queue_entry(node, struct request, node), true, finish);
}

/* ---- a device that has failed --------------------------------------------------------------- */

/* Who submits is refused before the inbox is taken, so nothing is left in there. */
void scheduler_fail(struct scheduler *s) {
    if (!inbox_fail(s)) return;
    struct err err = {0};
    s->port.why(s->port.self, &err);
    if (s->config.on_failure) s->config.on_failure(s->config.arg, &err);
    inbox_take(s);
    end_everything(s, FINISH_ERROR);
}
