/* finish: the ends of sequences and requests, and the delivery of events to the server. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/internal.h"
#include "scheduler/speculate.h"

/* ---- events --------------------------------------------------------------------------------- */

/* Events are delivered once a step, and earlier if they fill the array. Then generations whose last
 * events are among them return to the server during this call. Only existing alternatives of the
 * sampled token are written: most events have zero. */
struct event *event_add(struct scheduler *s, const struct sequence *sequence,
                        enum event_kind kind) {
    assert(sequence->request->generation);
    if (s->n_events == s->max_events) events_deliver(s);
    struct event *event = &s->events[s->n_events++];
    memset(event, 0, offsetof(struct event, sampled) + offsetof(struct sampled, top));
    event->generation = sequence->request->generation;
    event->kind = kind;
    event->choice = sequence->choice;
    event->n_cached = sequence->kv.n_cached;
    event->predicted_held = sequence->drafts.n_predicted_held;
    event->predicted_refused = sequence->drafts.n_predicted_refused;
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
    shares_leave(&s->shares, request->share);
    if (!request->is_counted) return;
    int requests = atomic_fetch_sub(&s->inbox.queued_requests, 1);
    int tokens = atomic_fetch_sub(&s->inbox.queued_tokens, request->n_prompt);
    struct share_queue *own = &s->inbox.by_share[request->share];
    atomic_fetch_sub(&own->requests, 1);
    atomic_fetch_sub(&own->tokens, request->n_prompt);
    assert(requests >= 1 && tokens >= request->n_prompt);
    pace_note(&s->stats.queue_pace, now_ns());
}

static void leave_queue(struct scheduler *s, struct sequence *sequence) {
    if (sequence->state == SEQUENCE_RUNNING) sequence_stop_running(s, sequence);
    if (sequence->state == SEQUENCE_SWAPPED) {
        swap_drop(&s->swap, sequence->kv.first_host_block, sequence->kv.n_host_blocks);
        sequence->kv.n_host_blocks = 0;
    }
    if (sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_SWAPPED)
        list_remove(&s->waiting, &sequence->node);
    if (sequence->state == SEQUENCE_UNFORKED) sequence->request->n_unforked--;
    sequence->state = SEQUENCE_ENDED;
    constraint_end(sequence);
}

/* The request has ended and its last event was added, which returns its generation to the server.
 * While the request is in flight, its memory stays. */
static void leave_scheduler(struct scheduler *s, struct request *request) {
    assert(request->n_live == 0 && request->generation);
    request->generation = NULL;
    request_unqueue(s, request);
    list_remove(&s->requests, &request->node);
    if (request->n_in_flight == 0) mem_free(request);
}

void sequence_end(struct scheduler *s, struct sequence *sequence, enum finish finish,
                  struct event *event) {
    struct request *request = sequence->request;
    assert(sequence->state != SEQUENCE_ENDED && request->n_live > 0 && finish != FINISH_NONE);
    speculate_end(s, sequence);
    leave_queue(s, sequence);
    atomic_fetch_sub(&s->inbox.live_sequences, 1);
    event->finish = finish;
    event->last = --request->n_live == 0;
    if (event->last) leave_scheduler(s, request);
}

/* ---- ends of searches ----------------------------------------------------------------------- */

/* Adds the events of a text that a search has found. Returns the last event. */
static struct event *tell_text(struct scheduler *s, const struct sequence *sequence,
                               const struct finished_beam *text) {
    struct event *event = NULL;
    assert(text->n_tokens > 0);
    for (int i = 0; i < text->n_tokens; i++) {
        event = event_add(s, sequence, EVENT_TOKEN);
        event->sampled.id = text->tokens[i];
    }
    s->stats.generated_tokens += (uint64_t)text->n_tokens;
    event->score = text->score;
    event->finish = text->by_stop_id ? FINISH_STOP : FINISH_LENGTH;
    return event;
}

/* The sequences leave before the events are added: the receiver of the last event may free the
 * generation. If the search found fewer texts than requested, the other choices are empty. */
void end_search(struct scheduler *s, struct request *request, enum finish finish) {
    const struct beams *beams = request->beams;
    int n = request->generation->n;
    for (int i = 0; i < request->n; i++) leave_queue(s, &request->sequence[i]);
    atomic_fetch_sub(&s->inbox.live_sequences, request->n);
    request->n_live = 0;
    for (int i = 0; i < n; i++) {
        struct sequence *sequence = &request->sequence[i];
        struct event *event;
        sequence->kv.n_cached = request->sequence[0].kv.n_cached;
        sequence->first_scheduled_ns = request->sequence[0].first_scheduled_ns;
        if (finish == FINISH_STOP && i < beams->n_finished) {
            event = tell_text(s, sequence, &beams->finished[i]);
        } else {
            event = event_add(s, sequence, EVENT_END);
            event->finish = finish == FINISH_STOP ? FINISH_LENGTH : finish;
        }
        event->last = i == n - 1;
    }
    leave_scheduler(s, request);
}

/* ---- cancels -------------------------------------------------------------------------------- */

static bool flagged(const struct generation *generation, int choice) {
    const _Atomic uint64_t *flags = &generation->cancelled_choices[choice / 64];
    return atomic_load_explicit(flags, memory_order_relaxed) >> (choice % 64) & 1;
}

/* While the choices of a request are unforked, only their numbers differ. So if the leader must
 * end, it exchanges its number and its samples in flight with an unforked choice, and that choice
 * ends instead. */
static struct sequence *exchange_with_follower(struct scheduler *s, struct sequence *leader) {
    struct request *request = leader->request;
    if (leader->index != 0 || request->n_unforked == 0) return leader;
    int i = 1;
    while (request->sequence[i].state != SEQUENCE_UNFORKED) i++;
    int choice = leader->choice;
    leader->choice = request->sequence[i].choice;
    request->sequence[i].choice = choice;
    for (int f = 0; f < MAX_IN_FLIGHT && leader->n_pending > 0; f++)
        inflight_exchange(&s->inflight[f], leader, &request->sequence[i]);
    return &request->sequence[i];
}

/* Ends the choices of a request whose flags are set, or all. After an exchange the leader has the
 * number of another choice, so it is checked again. Each such round ends one choice. */
static void end_flagged(struct scheduler *s, struct request *request, bool all,
                        enum finish finish) {
    const struct generation *generation = request->generation;
    all = all || atomic_load_explicit(&generation->cancelled, memory_order_relaxed);
    if (request->beams) {
        if (all) end_search(s, request, finish);
        return;
    }
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
        struct sequence *ending = exchange_with_follower(s, sequence);
        sequence_end(s, ending, finish, event_add(s, ending, EVENT_END));
    }
}

static bool any_flag(const struct generation *generation) {
    return atomic_load_explicit(&generation->cancelled, memory_order_relaxed) ||
           atomic_load_explicit(&generation->cancelled_choices[0], memory_order_relaxed) ||
           atomic_load_explicit(&generation->cancelled_choices[1], memory_order_relaxed);
}

/* Each step checks the flags of running requests. The flags of all requests are checked if one of
 * these is set, or after a call of scheduler_cancel. */
void cancel_wanted(struct scheduler *s) {
    bool wanted = atomic_exchange(&s->inbox.cancels, false);
    list_each(node, &s->running) wanted |= any_flag(sequence_of(node)->request->generation);
    if (!wanted) return;
    list_each_removable(node, &s->requests) {
        struct request *request = list_entry(node, struct request, node);
        if (any_flag(request->generation)) end_flagged(s, request, false, FINISH_CANCELLED);
    }
}

void request_end(struct scheduler *s, struct request *request, enum finish finish) {
    assert(request->n_live > 0);
    end_flagged(s, request, true, finish);
}

void end_everything(struct scheduler *s, enum finish finish) {
    list_each_removable(node, &s->requests)
        request_end(s, list_entry(node, struct request, node), finish);
}

/* ---- a device that has failed --------------------------------------------------------------- */

/* Later submissions are already refused, so the inbox stays empty. */
void scheduler_fail(struct scheduler *s) {
    if (!inbox_fail(s)) return;
    struct err err = {0};
    bool failed = s->port.failed(s->port.self, &err);
    assert(failed);
    (void)failed;
    if (s->config.on_failure) s->config.on_failure(s->config.arg, &err);
    inbox_take(s);
    end_everything(s, FINISH_ERROR);
}
