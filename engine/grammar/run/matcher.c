/* DESIGN. The position of a sequence in a grammar: the states after each of its tokens.
 *
 * A state caches its mask (mask.c) for every sequence that reaches it. States are created and freed
 * under the grammar's lock. A state of a matcher is never freed and its may_end never changes, so
 * matcher_may_end needs no lock. A matcher's position changes under the lock, because collection
 * reads all matchers.
 *
 * Where repetitions are counted (build/count.c), each token of a text leads to a new state. So a
 * matcher holds only its last states and every CHECKPOINTth; a roll back beyond them reads tokens
 * again.
 *
 * If memory runs out while states are created, the automaton stays incomplete and the grammar is
 * broken. From then on its matchers allow nothing, so that its sequences end.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/run/automaton.h"

/* Drafts of a step are far fewer than RECENT. */
enum { ROOM = 256, RECENT = 64, CHECKPOINT = 1024 };

bool grammar_run(struct grammar *grammar, void (*run)(void *arg), void *arg) {
    if (grammar->is_private) {
        run(arg);
        return true;
    }
    pthread_mutex_lock(&grammar->lock);
    bool is_done = !grammar->is_broken && mem_scope_run(&grammar->rest, run, arg);
    if (!is_done) grammar->is_broken = true;
    grammar_unlock(grammar);
    return is_done;
}

struct matcher *matcher_new(struct grammar *grammar, const struct vocabulary *vocabulary) {
    struct matcher *matcher = mem_try_alloc(sizeof *matcher);
    struct state **states = mem_try_alloc(ROOM * sizeof(struct state *));
    int32_t *tokens = mem_try_alloc(ROOM * sizeof *tokens);
    if (!matcher || !states || !tokens) {
        mem_free(matcher);
        mem_free(states);
        mem_free(tokens);
        return NULL;
    }
    *matcher = (struct matcher){.grammar = grammar_acquire(grammar),
                                .vocabulary = vocabulary,
                                .states = states,
                                .tokens = tokens,
                                .max = ROOM};
    matcher->states[matcher->n++] = grammar->automaton.start;
    pthread_mutex_lock(&grammar->lock);
    list_append(&grammar->matchers, &matcher->in_grammar);
    grammar_unlock(grammar);
    return matcher;
}

void matcher_free(struct matcher *matcher) {
    if (!matcher) return;
    pthread_mutex_lock(&matcher->grammar->lock);
    list_remove(&matcher->grammar->matchers, &matcher->in_grammar);
    grammar_unlock(matcher->grammar);
    grammar_release(matcher->grammar);
    mem_free(matcher->states);
    mem_free(matcher->tokens);
    mem_free(matcher);
}

static struct state *here(const struct matcher *matcher) {
    return matcher->states[matcher->n - 1];
}

/* The arguments and the result of a call that runs in grammar_run. */
struct run_call {
    struct matcher *matcher;
    struct grammar *grammar;
    int64_t max_work;
    uint32_t *mask;
    int32_t id;
    char *bytes; /* [max] forced bytes */
    int max;
    const char *text; /* [n] */
    size_t n;
    bool answer;
    size_t count;
};

bool matcher_may_end(const struct matcher *matcher) {
    return here(matcher)->may_end && !grammar_is_broken(matcher->grammar);
}

/* ---- masks ---------------------------------------------------------------------------------- */

static size_t mask_words(const struct vocabulary *v) {
    return ((size_t)v->V + 31) / 32;
}

static bool knows_mask(const struct matcher *matcher) {
    const struct state *state = here(matcher);
    return state->mask && state->mask->of == matcher->vocabulary->id;
}

/* Computes the mask of the matcher's state unless it is known. Called by grammar_run. */
static bool find_mask(struct matcher *matcher, int64_t max_work) {
    struct grammar *grammar = matcher->grammar;
    struct state *state = here(matcher);
    if (knows_mask(matcher)) {
        if (state->n_wanted < UINT8_MAX) state->n_wanted++;
        return true;
    }
    grammar_collect(grammar);
    return mask_find(&grammar->automaton, matcher->vocabulary, state, max_work);
}

static bool has_any(const uint32_t *mask, const struct vocabulary *v) {
    bool any = false;
    for (size_t i = 0; i < mask_words(v) && !any; i++) any = mask[i] != 0;
    return any;
}

static void prepare(void *arg) {
    struct run_call *q = arg;
    q->answer = find_mask(q->matcher, q->max_work);
}

bool matcher_prepare(struct matcher *matcher, int max_work) {
    struct run_call q = {.matcher = matcher, .max_work = max_work};
    assert(max_work > 0);
    return !grammar_run(matcher->grammar, prepare, &q) || q.answer;
}

static void copy_mask(void *arg) {
    struct run_call *q = arg;
    find_mask(q->matcher, INT64_MAX);
    memcpy(q->mask, here(q->matcher)->mask->bits,
           mask_words(q->matcher->vocabulary) * sizeof *q->mask);
}

bool matcher_mask(struct matcher *matcher, uint32_t *mask) {
    const struct vocabulary *v = matcher->vocabulary;
    struct run_call q = {.matcher = matcher, .mask = mask};
    if (!grammar_run(matcher->grammar, copy_mask, &q)) {
        memset(mask, 0, mask_words(v) * sizeof *mask);
        return false;
    }
    return here(matcher)->may_end || has_any(mask, v);
}

static void look_for_any(void *arg) {
    struct run_call *q = arg;
    struct state *state = here(q->matcher);
    const struct vocabulary *v = q->matcher->vocabulary;
    q->answer = knows_mask(q->matcher) ? has_any(state->mask->bits, v)
                                       : mask_has_any(&q->matcher->grammar->automaton, v, state);
}

bool matcher_may_go_on(struct matcher *matcher) {
    struct run_call q = {.matcher = matcher};
    return grammar_run(matcher->grammar, look_for_any, &q) && q.answer;
}

/* ---- tokens --------------------------------------------------------------------------------- */

static void go_to(struct matcher *matcher, struct state *state, int32_t id) {
    if (matcher->n == matcher->max) {
        size_t max = 2 * matcher->max;
        matcher->states = mem_realloc(matcher->states, max * sizeof *matcher->states);
        matcher->tokens = mem_realloc(matcher->tokens, max * sizeof *matcher->tokens);
        matcher->max = max;
    }
    matcher->tokens[matcher->n] = id;
    matcher->states[matcher->n++] = state;
    size_t old = matcher->n > RECENT ? matcher->n - RECENT - 1 : 0;
    if (old % CHECKPOINT) matcher->states[old] = NULL;
}

/* Returns the state after the token's bytes; dead if they are not allowed. */
static struct state *behind(const struct matcher *matcher, struct state *state, int32_t id) {
    const struct vocabulary *v = matcher->vocabulary;
    struct automaton *a = &matcher->grammar->automaton;
    for (uint32_t at = v->at[id]; at < v->at[id + 1] && state != a->dead; at++)
        state = automaton_step(a, state, (uint8_t)v->bytes[at]);
    return state;
}

static void take_token(void *arg) {
    struct run_call *q = arg;
    struct state *state = behind(q->matcher, here(q->matcher), q->id);
    q->answer = state != q->matcher->grammar->automaton.dead;
    if (q->answer) go_to(q->matcher, state, q->id);
}

bool matcher_accept(struct matcher *matcher, int32_t id) {
    const struct vocabulary *v = matcher->vocabulary;
    struct run_call q = {.matcher = matcher, .id = id};
    assert(id >= 0 && id < v->V);
    if (v->at[id] == v->at[id + 1]) return false;
    return grammar_run(matcher->grammar, take_token, &q) && q.answer;
}

/* Finds the last states again from the latest one that is known. */
static void find_again(void *arg) {
    const struct run_call *q = arg;
    struct matcher *matcher = q->matcher;
    size_t at = matcher->n - 1;
    while (!matcher->states[at]) at--;
    struct state *state = matcher->states[at];
    while (++at < matcher->n) {
        state = behind(matcher, state, matcher->tokens[at]);
        assert(state != matcher->grammar->automaton.dead);
        if (at + RECENT >= matcher->n) matcher->states[at] = state;
    }
}

void matcher_roll_back(struct matcher *matcher, int n) {
    struct run_call q = {.matcher = matcher};
    assert(n >= 0 && (size_t)n < matcher->n);
    pthread_mutex_lock(&matcher->grammar->lock);
    matcher->n -= (size_t)n;
    grammar_unlock(matcher->grammar);
    if (here(matcher) || grammar_run(matcher->grammar, find_again, &q)) return;
    matcher->states[matcher->n - 1] = matcher->states[0]; /* a broken grammar allows nothing */
}

/* Returns the only allowed byte; -1 if several are allowed or the text may end. */
static int only_byte(struct automaton *a, struct state *state) {
    const struct network *network = a->network;
    int found = -1;
    if (state->may_end) return -1;
    for (int class = 0; class < network->n_classes; class ++) {
        struct state *next = state->next[class];
        if (!next) next = automaton_find(a, state, class);
        if (next == a->dead) continue;
        if (found >= 0 || network->size_of[class] != 1) return -1;
        found = network->first_of[class];
    }
    return found;
}

static void find_forced(void *arg) {
    struct run_call *q = arg;
    struct automaton *a = &q->matcher->grammar->automaton;
    struct state *state = here(q->matcher);
    while (q->count < (size_t)q->max) {
        int byte = only_byte(a, state);
        if (byte < 0) break;
        q->bytes[q->count++] = (char)byte;
        state = automaton_step(a, state, (uint8_t)byte);
    }
}

int matcher_forced(struct matcher *matcher, char *bytes, int max) {
    struct run_call q = {.matcher = matcher, .bytes = bytes, .max = max};
    return grammar_run(matcher->grammar, find_forced, &q) ? (int)q.count : 0;
}

static void match_text(void *arg) {
    struct run_call *q = arg;
    struct automaton *a = &q->grammar->automaton;
    struct state *state = a->start;
    for (; q->count < q->n; q->count++) {
        struct state *next = automaton_step(a, state, (uint8_t)q->text[q->count]);
        if (next == a->dead) break;
        state = next;
    }
    q->answer = state->may_end;
}

size_t grammar_match(struct grammar *grammar, const char *text, size_t n, bool *complete) {
    struct run_call q = {.grammar = grammar, .text = text, .n = n};
    bool is_done = grammar_run(grammar, match_text, &q);
    *complete = is_done && q.answer;
    return is_done ? q.count : 0;
}
