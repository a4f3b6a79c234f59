#include "scheduler/kv/checkpoints.h"

#include <assert.h>
#include <limits.h>

#include "config/config.h"

/* ---- lists ---------------------------------------------------------------------------------- */

/* The heads of the lists: used ones by age, and unused ones. */
static int32_t used_head(const struct checkpoints *c) {
    return c->n;
}

static int32_t unused_head(const struct checkpoints *c) {
    return c->n + 1;
}

/* Adds a checkpoint at the end of the list of `head`. */
static void checkpoint_link(struct checkpoints *c, int32_t head, int32_t i) {
    struct checkpoint *list = c->checkpoint;
    list[i].prev = list[head].prev;
    list[i].next = head;
    list[list[head].prev].next = i;
    list[head].prev = i;
}

static void checkpoint_unlink(struct checkpoints *c, int32_t i) {
    struct checkpoint *list = c->checkpoint;
    assert(list[list[i].prev].next == i && list[list[i].next].prev == i);
    list[list[i].prev].next = list[i].next;
    list[list[i].next].prev = list[i].prev;
}

/* ---- keeping -------------------------------------------------------------------------------- */

static void checkpoint_drop(struct checkpoints *c, int32_t i) {
    struct checkpoint *gone = &c->checkpoint[i];
    assert(c->n_used > 0 && gone->block >= 0 && c->of[gone->block] == i);
    if (c->observer.on_drop) c->observer.on_drop(c->observer.arg, gone->block);
    c->of[gone->block] = -1;
    state_pool_release(c->states, gone->state);
    gone->block = gone->state = -1;
    checkpoint_unlink(c, i);
    checkpoint_link(c, unused_head(c), i);
    c->n_used--;
}

static void checkpoint_evicted(void *arg, const struct block_parts *parts) {
    struct checkpoints *c = arg;
    if (c->of[parts->block] >= 0) checkpoint_drop(c, c->of[parts->block]);
}

void checkpoints_init(struct checkpoints *c, int n, const struct checkpoint_places *places,
                      struct block_pool *pool, struct state_pool *states) {
    assert(n >= 0 && n < states->n + (n == 0));
    *c = (struct checkpoints){
        .n = n, .places = *places, .block_size = pool->block_size, .states = states};
    if (n == 0) return;
    assert(pool->caching && places->least > 0);
    assert(places->every > 0 && places->every % pool->block_size == 0);
    c->checkpoint = mem_calloc((size_t)n + 2, sizeof *c->checkpoint);
    c->of = mem_calloc((size_t)pool->n_blocks, sizeof *c->of);
    for (int b = 0; b < pool->n_blocks; b++) c->of[b] = -1;
    for (int32_t i = n; i < n + 2; i++)
        c->checkpoint[i] = (struct checkpoint){.block = -1, .state = -1, .prev = i, .next = i};
    for (int32_t i = 0; i < n; i++) {
        c->checkpoint[i].block = c->checkpoint[i].state = -1;
        checkpoint_link(c, unused_head(c), i);
    }
    const struct block_observer observer = {.on_evict = checkpoint_evicted, .arg = c};
    block_pool_observe(pool, &observer);
}

void checkpoints_free(struct checkpoints *c) {
    while (c->n_used > 0) checkpoint_drop(c, c->checkpoint[used_head(c)].next);
    mem_free(c->checkpoint);
    mem_free(c->of);
}

void checkpoints_observe(struct checkpoints *c, const struct checkpoint_observer *observer) {
    assert(c->n > 0 && !c->observer.on_keep && !c->observer.on_drop);
    assert(observer->on_keep && observer->on_drop);
    c->observer = *observer;
}

static void checkpoints_make_room(struct checkpoints *c) {
    if (c->n_used == c->n) checkpoint_drop(c, c->checkpoint[used_head(c)].next);
}

/* Makes an unused checkpoint that of a block. It takes over a reference to the state. */
static void checkpoint_set(struct checkpoints *c, int32_t block, int32_t state) {
    int32_t i = c->checkpoint[unused_head(c)].next;
    assert(i < c->n && c->checkpoint[i].block < 0 && c->checkpoint[i].state < 0);
    c->checkpoint[i].block = block;
    c->checkpoint[i].state = state;
    c->of[block] = i;
    c->n_used++;
    assert(c->n_used <= c->n);
}

static void checkpoint_is_used(struct checkpoints *c, int32_t i) {
    checkpoint_unlink(c, i);
    checkpoint_link(c, used_head(c), i);
}

void checkpoints_add(struct checkpoints *c, int32_t block, int32_t state) {
    assert(c->n > 0 && block >= 0);
    bool is_new = c->of[block] < 0;
    if (is_new) {
        checkpoints_make_room(c);
        state_pool_share(c->states, state);
        checkpoint_set(c, block, state);
    }
    checkpoint_is_used(c, c->of[block]);
    if (is_new && c->observer.on_keep) c->observer.on_keep(c->observer.arg, block, state);
}

int32_t checkpoints_restore(struct checkpoints *c, int32_t block) {
    assert(c->n > 0 && block >= 0 && c->of[block] < 0);
    checkpoints_make_room(c);
    int32_t state = state_pool_acquire(c->states);
    checkpoint_set(c, block, state);
    checkpoint_is_used(c, c->of[block]);
    return state;
}

int32_t checkpoints_use(struct checkpoints *c, int32_t block) {
    int32_t i = c->of[block];
    assert(i >= 0 && c->checkpoint[i].block == block);
    checkpoint_is_used(c, i);
    state_pool_share(c->states, c->checkpoint[i].state);
    return c->checkpoint[i].state;
}

/* ---- questions ------------------------------------------------------------------------------ */

int checkpoints_next(const struct checkpoints *c, int from, int n_prompt) {
    if (c->n == 0) return INT_MAX;
    assert(from >= 0 && from < INT_MAX - c->places.every && n_prompt > 0);
    int next = from / c->places.every * c->places.every + c->places.every;
    int end = (n_prompt - 1) / c->block_size * c->block_size;
    bool wanted = end % c->places.every >= c->places.least;
    return wanted && end > from && end < next ? end : next;
}

bool checkpoints_due(const struct checkpoints *c, int n, int n_prompt) {
    return n > 0 && checkpoints_next(c, n - 1, n_prompt) == n;
}

int checkpoints_usable(const struct checkpoints *c, const int32_t *block, int n) {
    while (n > 0 && c->of[block[n - 1]] < 0) n--;
    return n;
}

int checkpoints_idle(const struct checkpoints *c) {
    int n = 0;
    if (c->n == 0) return 0;
    for (int32_t i = c->checkpoint[used_head(c)].next; i != used_head(c); i = c->checkpoint[i].next)
        n += c->states->references[c->checkpoint[i].state] == 1;
    return n;
}
