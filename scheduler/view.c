/* view: the list of sequences that watchers of the server get.
 *
 * DESIGN. A watcher asks (scheduler_look) and takes the answer when it asks again. The engine
 * thread fills the view at the end of a step, or when it is woken from its sleep, so it lists
 * sequences as they are between two steps. Both sides hold the inbox's mutex. Without watchers the
 * engine thread reads one flag per step.
 */
#include <assert.h>
#include <string.h>

#include "scheduler/internal.h"

/* ---- from any thread ------------------------------------------------------------------------ */

bool scheduler_look(struct scheduler *s, struct scheduler_view *out) {
    struct inbox *inbox = &s->inbox;
    pthread_mutex_lock(&inbox->mutex);
    bool is_new = inbox->view_made;
    if (is_new) *out = inbox->view;
    assert(!is_new || (out->n >= 0 && out->n <= VIEW_SEQUENCES));
    inbox->view_made = false;
    inbox->view_wanted = true;
    pthread_cond_signal(&inbox->changed);
    pthread_mutex_unlock(&inbox->mutex);
    return is_new;
}

/* ---- from the engine thread ----------------------------------------------------------------- */

static enum view_state view_state_of(const struct sequence *sequence) {
    if (sequence->state == SEQUENCE_SWAPPED) return VIEW_SWAPPED;
    if (sequence->state != SEQUENCE_RUNNING) return VIEW_WAITING;
    return sequence->n_computed < sequence->request->n_prompt ? VIEW_PREFILL : VIEW_DECODE;
}

/* Lists a sequence, if there is room and its generation has not returned to the server. */
static void view_add(struct scheduler_view *view, const struct sequence *sequence) {
    const struct request *request = sequence->request;
    const struct generation *generation = request->generation;
    const struct sequence_kv *kv = &sequence->kv;
    if (view->n == VIEW_SEQUENCES || !generation) return;
    struct sequence_view *row = &view->sequences[view->n++];
    bool is_swapped = sequence->state == SEQUENCE_SWAPPED;
    bool is_running = sequence->state == SEQUENCE_RUNNING;
    *row = (struct sequence_view){.client = generation->client,
                                  .choice = sequence->choice,
                                  .state = view_state_of(sequence),
                                  .prompt = request->n_prompt,
                                  .cached = kv->n_cached,
                                  .received_ns = generation->received_ns};
    row->computed = min_int(is_running || is_swapped ? sequence->n_computed : 0, row->prompt);
    row->output = max_int(sequence->n_tokens - row->prompt, 0);
    row->blocks = is_swapped ? kv->n_host_blocks : is_running ? kv->n_blocks : 0;
    const char *name = generation->name ? generation->name : "";
    memcpy(row->name, name, strnlen(name, VIEW_NAME - 1));
}

/* Choices that wait for their prompt are in no queue. */
static void view_add_unforked(struct scheduler_view *view, const struct request *request) {
    for (int i = 0; i < request->n; i++) {
        if (request->sequence[i].state == SEQUENCE_UNFORKED) view_add(view, &request->sequence[i]);
    }
}

void view_fill(struct scheduler *s) {
    struct scheduler_view *view = &s->inbox.view;
    view->n = 0;
    list_each(node, &s->running) view_add(view, list_entry(node, struct sequence, node));
    list_each(node, &s->waiting) view_add(view, list_entry(node, struct sequence, node));
    list_each(node, &s->requests) view_add_unforked(view, list_entry(node, struct request, node));
    s->inbox.view_wanted = false;
    s->inbox.view_made = true;
}
