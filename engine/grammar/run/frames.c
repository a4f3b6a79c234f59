/* DESIGN. The frames of an automaton: the items that continue after the end of a rule.
 *
 * An item in the state in which its rule began has a "here" frame. After the next byte it gets a
 * frame that lists the items that waited for the rule in that state: a node each, and the frame of
 * the node's rule. Equal lists share one frame, so a string that begins after two blanks has the
 * same states as one that begins after three.
 *
 * A rule that waits for itself (left recursion, or several rules that begin with each other) would
 * be in its own list. Its frame instead names the state, whose items are searched when the rule
 * ends. One such frame per cycle is enough. The same is done for a rule that is called through very
 * many others: lists consist of lists, and the stack is limited.
 *
 * One table holds all frames until they are unused (collect.c). Guarded by the grammar's lock.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/run/automaton.h"

/* ---- sharing equal frames ------------------------------------------------------------------- */

static uint32_t hash_frame(uint32_t rule, const struct state *origin, const struct item *callers,
                           int n) {
    uint64_t hash = ((uint64_t)(uintptr_t)origin << 8 ^ rule) * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < n; i++) {
        hash ^= (uint64_t)callers[i].node << 32 | callers[i].frame->serial;
        hash += callers[i].count;
        hash *= 0xD6E8FEB86659FD93u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 24);
}

static bool is_frame(const struct frame *frame, uint32_t rule, const struct state *origin,
                     const struct item *callers, int n) {
    if (frame->rule != rule || frame->origin != origin || frame->n_callers != n) return false;
    for (int i = 0; i < n; i++) {
        if (item_order(&frame->callers[i], &callers[i]) != 0) return false;
    }
    return true;
}

static void grow_buckets(struct frames *frames) {
    uint32_t n = frames->n_buckets ? 2 * frames->n_buckets : 64;
    struct frame **buckets = mem_calloc(n, sizeof *buckets);
    for (uint32_t i = 0; i < frames->n_buckets; i++) {
        for (struct frame *f = frames->buckets[i], *next; f; f = next) {
            next = f->same_hash;
            f->same_hash = buckets[f->hash % n];
            buckets[f->hash % n] = f;
        }
    }
    mem_free(frames->buckets);
    frames->buckets = buckets;
    frames->n_buckets = n;
}

static size_t bytes_of(int n_callers) {
    return sizeof(struct frame) + (size_t)n_callers * sizeof(struct item);
}

static struct frame *find_or_add(struct automaton *a, uint32_t rule, struct state *origin,
                                 const struct item *callers, int n) {
    struct frames *frames = &a->frames;
    uint32_t hash = hash_frame(rule, origin, callers, n);
    if (frames->n >= frames->n_buckets) grow_buckets(frames);
    struct frame **bucket = &frames->buckets[hash % frames->n_buckets];
    for (struct frame *f = *bucket; f; f = f->same_hash) {
        if (f->hash == hash && is_frame(f, rule, origin, callers, n)) return f;
    }
    struct frame *frame = mem_alloc(bytes_of(n));
    *frame = (struct frame){.rule = rule,
                            .serial = frames->next_serial++,
                            .origin = origin,
                            .same_hash = *bucket,
                            .hash = hash,
                            .n_callers = n};
    frame->callers = (struct item *)(frame + 1);
    if (n) memcpy(frame->callers, callers, (size_t)n * sizeof *callers);
    for (int i = 0; i < n; i++)
        frame->has_counts |= callers[i].count > 0 || callers[i].frame->has_counts;
    *bucket = frame;
    frames->n++;
    a->bytes += bytes_of(n);
    return frame;
}

/* ---- making one ----------------------------------------------------------------------------- */

/* The maximum recursion of make_frame. */
enum { MAX_OPEN = 100 };

static void add_caller(struct frames *frames, struct item caller) {
    if (frames->n_callers == frames->max_callers) {
        frames->max_callers = frames->max_callers ? 2 * frames->max_callers : 64;
        frames->callers =
            mem_realloc(frames->callers, (size_t)frames->max_callers * sizeof *frames->callers);
    }
    frames->callers[frames->n_callers++] = caller;
}

/* Appends the items that wait for the rule in a state. False: the rule waits for itself, or the
 * recursion is too deep. */
static bool add_callers(struct automaton *a, uint32_t rule, struct state *origin) {
    const struct network *network = a->network;
    for (int i = 0; i < origin->n_items; i++) {
        const struct item *item = &origin->items[i];
        const struct node *node = &network->nodes[item->node];
        for (uint32_t e = node->edges; e < node->edges + node->n_edges; e++) {
            const struct edge *edge = &network->edges[e];
            if (edge->kind != EDGE_CALL || edge->is_tail || edge->rule != rule) continue;
            struct frame *frame = frame_in_later(a, item->frame, origin);
            if (!frame) return false;
            add_caller(&a->frames, (struct item){edge->to, item->count, frame});
        }
    }
    return true;
}

/* Sorts callers, removes duplicates, and returns the new number. */
static int sort_callers(struct item *callers, int n) {
    int kept = 0;
    sort_items(callers, n);
    for (int i = 0; i < n; i++) {
        if (kept == 0 || item_order(&callers[kept - 1], &callers[i]) != 0)
            callers[kept++] = callers[i];
    }
    return kept;
}

static struct frame *make_frame(struct automaton *a, uint32_t rule, struct state *origin) {
    struct frames *frames = &a->frames;
    const int first = frames->n_callers;
    frames->is_open[rule] = true;
    frames->n_open++;
    bool is_listed = add_callers(a, rule, origin);
    frames->is_open[rule] = false;
    frames->n_open--;
    struct item *callers = frames->callers ? frames->callers + first : NULL;
    int n = is_listed ? sort_callers(callers, frames->n_callers - first) : 0;
    frames->n_callers = first;
    return find_or_add(a, rule, is_listed ? NULL : origin, callers, n);
}

struct frame *frame_in_later(struct automaton *a, struct frame *frame, struct state *origin) {
    bool is_here = frame >= a->here && frame < a->here + a->network->n_rules;
    if (!is_here) return frame;
    for (struct known_frame *known = origin->frames; known; known = known->next) {
        if (known->frame->rule == frame->rule) return known->frame;
    }
    if (a->frames.is_open[frame->rule] || a->frames.n_open == MAX_OPEN) return NULL;
    struct known_frame *known = mem_alloc(sizeof *known);
    struct frame *made = make_frame(a, frame->rule, origin);
    *known = (struct known_frame){made, origin->frames};
    origin->frames = known;
    a->bytes += sizeof *known;
    return made;
}

/* ---- frames far from bounds ----------------------------------------------------------------- */

/* Writes the far callers above the others; they stay at `first` while this recurses. */
static struct frame *make_far(struct automaton *a, struct frame *frame, uint32_t ahead) {
    struct frames *frames = &a->frames;
    const int first = frames->n_callers;
    frames->n_open++;
    for (int i = 0; i < frame->n_callers; i++) {
        struct item caller = frame->callers[i];
        caller.count = count_far(a->network, caller.node, caller.count, ahead);
        caller.frame = frame_far(a, caller.frame, ahead);
        add_caller(frames, caller);
    }
    frames->n_open--;
    int n = sort_callers(frames->callers + first, frame->n_callers);
    frames->n_callers = first;
    return find_or_add(a, frame->rule, NULL, frames->callers + first, n);
}

/* A frame that is nested too deeply, or that names a state, stands for itself. */
struct frame *frame_far(struct automaton *a, struct frame *frame, uint32_t ahead) {
    if (!frame->has_counts || frame->origin) return frame;
    if (frame->ahead == ahead) return frame->far;
    if (a->frames.n_open == MAX_OPEN) return frame;
    struct frame *far = make_far(a, frame, ahead);
    frame->far = far;
    frame->ahead = ahead;
    return far;
}

/* ---- freeing -------------------------------------------------------------------------------- */

size_t frames_sweep(struct automaton *a) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < a->frames.n_buckets; i++) {
        for (struct frame **at = &a->frames.buckets[i], *f; (f = *at);) {
            if (f->is_marked) {
                f->is_marked = false;
                bytes += bytes_of(f->n_callers);
                at = &f->same_hash;
            } else {
                *at = f->same_hash;
                a->frames.n--;
                mem_free(f);
            }
        }
    }
    return bytes;
}

void frames_free(struct automaton *a) {
    for (uint32_t i = 0; i < a->frames.n_buckets; i++) {
        for (struct frame *f = a->frames.buckets[i], *next; f; f = next) {
            next = f->same_hash;
            mem_free(f);
        }
    }
    mem_free(a->frames.buckets);
    mem_free(a->frames.callers);
    mem_free(a->frames.is_open);
}
