/* draft_world: a scheduler over a fake engine, with a fake draft model whose drafts are right
 * unless they are spoilt, and clients that check their tokens. */
#ifndef SUPPORT_DRAFT_WORLD_H
#define SUPPORT_DRAFT_WORLD_H

#include "support/fake_client.h"
#include "support/fake_draft.h"

enum { MODEL_LEN = 400, MOST = 8, B = 4 };

/* Room for all drafts. */
extern const struct draft_room ample;

struct world {
    struct fake_draft draft;
    struct fake_engine *engine;
    struct scheduler *scheduler;
    struct fake_client client[MOST];
    int n_ended;
};

/* `max_drafts` for each step, and n_blocks blocks of the main model. */
struct world *world_new(const struct draft_room *room, int max_drafts, int n_blocks);

/* Asserts that all blocks were released. */
void world_free(struct world *w);

/* Sets the request of client k, which may be changed before world_submit. */
struct generation *world_ask(struct world *w, int k, int n_prompt, int max_tokens);
void world_submit(struct world *w, int k);

const struct scheduler_stats *world_stats(const struct world *w);

#endif
