/* simulation: scenarios of the scheduler on the fake engine. A scenario is a seed. It draws the
 * limits of a scheduler and a load of requests (simulation_set.c, simulation_ask.c), and runs steps
 * until all have ended (simulation_run.c). After each step it checks all invariants, compares every
 * token with that of the request running alone, and checks that no request waits longer than the
 * work before it. */
#ifndef PENSTOCK_TESTS_SIMULATION_H
#define PENSTOCK_TESTS_SIMULATION_H

#include "support/event_reader.h"
#include "support/fake_client.h"
#include "support/fake_draft.h"
#include "support/lettered.h"
#include "support/replay_drafter.h"

#define MAX_CLIENTS 48
#define N_TEMPLATES 4
#define N_GRAMMARS 4

struct simulation {
    uint64_t seed, random;
    struct vocabulary *vocabulary;
    struct scheduler_config config;
    struct replay replay;
    struct drafter drafter;
    struct fake_engine *engine;
    struct fake_draft draft; /* its engine is NULL in scenarios without a draft model */
    struct scheduler *scheduler;
    struct event_reader *reader; /* of the known blocks, or NULL */
    uint64_t reader_random;
    int reads;                               /* percentage of steps after which the reader reads */
    struct fake_client *client[MAX_CLIENTS]; /* NULL: free */
    int32_t template[N_TEMPLATES][FAKE_MAX_TOKENS];
    struct grammar *grammar[N_GRAMMARS];
    int n_live, n_left; /* requests that live; that will still arrive */
    bool priorities;
    uint64_t share_random;
    int weight[4];
    bool failed;                    /* the device has failed */
    uint64_t n_steps, engine_steps; /* all steps; steps that computed rows */
    uint64_t work_in, work_out;     /* maximum tokens of requests that arrived; that ended */
    uint64_t n_requests, n_cancelled, n_refused, n_hits, n_preemptions, n_copies, n_rows;
    uint64_t n_state_copies, n_state_hits, n_state_drafts; /* in scenarios with states */
    uint64_t n_pending, n_dropped;                         /* rows planned ahead; dropped samples */
    uint64_t n_out, n_in;                                  /* swapped blocks */
    uint64_t n_drafts, n_accepted;                         /* verified drafts; accepted ones */
    uint64_t n_passes;                                     /* of draft models */
    uint64_t n_searches;                                   /* requests with beams */
    /* choices that ended because their grammar was complete; because no token was allowed */
    uint64_t n_complete, n_stuck, n_forced, n_unready;
    uint64_t n_failed;                       /* scenarios */
    uint64_t n_stored, n_removed, n_cleared; /* events of blocks */
};

/* Makes the scheduler of a seed. `vocabulary` is that of the grammars and must outlive it. The two
 * callbacks are those of simulation_run.c. */
void simulation_begin(struct simulation *sim, uint64_t seed, struct vocabulary *vocabulary);

/* Draws a request and submits it, if there is a free client. */
void simulation_ask(struct simulation *sim);

/* Runs steps until all requests have ended. */
void simulation_run(struct simulation *sim);

/* Checks the counters at the end, copies them to `sim`, and frees the scheduler. */
void simulation_end(struct simulation *sim);

/* The callbacks of the scheduler; `arg` is the simulation. */
void simulation_on_events(void *arg, const struct event *events, int n);
void simulation_on_failure(void *arg, const struct err *err);

/* Returns the maximum number of tokens of all choices of a client. */
uint64_t simulation_work(const struct fake_client *client);

static inline int sim_between(struct simulation *sim, int low, int high) {
    return fake_between(&sim->random, low, high);
}

static inline bool sim_chance(struct simulation *sim, int percent) {
    return sim_between(sim, 1, 100) <= percent;
}

#endif
