#include "support/replay_drafter.h"

#include <assert.h>

static int drawn(struct replay *replay, int n) {
    replay->random = replay->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((replay->random >> 33) % (uint64_t)n);
}

static size_t no_state(const void *self, int max_tokens) {
    (void)self;
    (void)max_tokens;
    return 0;
}

static struct draft propose(void *self, const struct draft_context *c, int max_drafts) {
    struct replay *replay = self;
    int n = replay->any_length ? drawn(replay, max_drafts + 1) : max_drafts;
    int32_t *draft = c->tokens + c->n;
    n = replay->foresee(c->owner, c->choice, c->n, draft, n);
    assert(n >= 0 && n <= max_drafts && c->n + n <= c->max_tokens);
    for (int i = 0; i < n; i++) {
        bool right = drawn(replay, 100) >= replay->wrong;
        if (!right) draft[i] = (draft[i] + 1 + drawn(replay, replay->V - 1)) % replay->V;
        replay->n_drafts++;
        replay->n_right += right;
    }
    return (struct draft){n, 1 + drawn(replay, MAX_DRAFT_MATCH)};
}

struct drafter replay_drafter(struct replay *replay) {
    return (struct drafter){replay, no_state, propose};
}
