/* generation: a prompt and the settings with which its choices are generated. The server passes it
 * to scheduler_submit (scheduler/scheduler.h, which includes this header). */
#ifndef PENSTOCK_GENERATION_H
#define PENSTOCK_GENERATION_H

#include <assert.h>
#include <string.h>

#include "engine/engine.h"
#include "scheduler/beams/beams.h"
#include "scheduler/sequence/thoughts.h"

struct grammar;
struct vocabulary;

/* Maximum number of choices of a generation. */
#define MAX_CHOICES 128

/* Maximum number of ids that are read in one row. */
#define MAX_READ_IDS 256

/* Maximum number of shares of the steps, and maximum weight of one (scheduler/plan/shares.h). */
enum { MAX_SHARES = 1024, MAX_SHARE_WEIGHT = 1000 };

/* One prompt and n choices to generate from it. The server makes it. After a successful
 * scheduler_submit the scheduler reads it, and the server must keep it and everything that it
 * points to alive and unchanged. The event that is marked `last` returns it to the server: neither
 * the scheduler nor the engine reads it after on_events is called with that event. The server may
 * then free it immediately, even during the step. The scheduler never frees it. */
struct generation {
    const int32_t *prompt; /* [n_prompt], at least one token */
    int n_prompt;
    /* the last tokens of the prompt that have token type 1, in a model with types; 0: none, all
     * tokens have type 0. Prompts with types are not shared: only encoders have them */
    int n_second;
    /* choices, 1..MAX_CHOICES: choice i samples with counter i and shares the prompt's blocks */
    int n;
    /* The choices are the n best texts of this search; n is at most its width. All their events are
     * sent when the search ends, so single choices cannot be cancelled. */
    struct beam_search beams;
    int max_tokens; /* of each choice; 0: only logprobs of the prompt */
    int min_tokens;
    int max_drafts;           /* drafts that a step may verify; 0: none */
    const int32_t *predicted; /* [n_predicted] the expected output, used for drafts */
    int n_predicted;          /* 0: no expected output */
    struct sampling sampling; /* the scheduler sets `banned` */
    int n_stop_ids, n_suppressed;
    /* n_stop_ids ids that end the choice, which include the model's end ids unless ignore_eos is
     * set; then n_suppressed ids that are never chosen. */
    int32_t stop_ids[MAX_BANNED_IDS];
    /* The grammar of each choice's text, and the vocabulary of the model; NULL: any text. If
     * begin_ids is not empty, the grammar applies after the first occurrence of these n_begin_ids
     * tokens in the output. It takes precedence over min_tokens and stop_ids (constraint.c). */
    struct grammar *grammar;
    const struct vocabulary *vocabulary;
    int n_begin_ids;
    const int32_t *begin_ids;
    /* If a grammar does not allow a forced token, no further ones are forced. */
    struct thought_limit thoughts;
    /* number of best logprobs for each prompt token, each in an event; -1: no such events */
    int prompt_logprobs;
    /* With max_tokens 0, the prompt is read instead: its last row gives the logprobs of these ids,
     * in EVENT_READ; its rows give hidden vectors, which are added to hidden_sum. Otherwise each
     * generated token has the logprobs of the ids; then they are at most MAX_TOP_LOGPROBS, and
     * sampling.n_logprobs is at least 0. */
    const int32_t *logprob_ids; /* [n_logprob_ids] */
    int n_logprob_ids;          /* at most MAX_READ_IDS */
    enum hidden_rows hidden;
    /* [engine_hidden_size], the server's; zero at first. With keeps_hidden it has each vector that
     * is read instead of the sum: for HIDDEN_ALL [n_prompt][engine_hidden_size] */
    double *hidden_sum;
    bool keeps_hidden;
    int priority; /* lower values first */
    int share;    /* whose request it is: an index of scheduler_config.share_weights */
    /* A number for the client, for scheduler_look: requests of one client have the same number. 0:
     * not known */
    uint64_t client;
    /* prefixes are shared only if the salts are equal; 0 is the common one */
    uint64_t cache_salt[2];
    /* Parts of the prompt that were read from the store of scheduler_config, or NULL. The
     * scheduler frees them, and sets this to NULL, when it takes the generation. */
    struct restored_prefix *restored;
    /* The number of the adapter that its rows use, 0: the base model. Set by
     * generation_use_adapter */
    int adapter;
    bool is_admitted;     /* part of an admitted request: the queue's limits do not apply */
    uint64_t received_ns; /* now_ns() when the request was received */
    /* now_ns() after which its choices end with FINISH_TIMEOUT; 0: no deadline */
    uint64_t deadline_ns;
    void *owner;      /* for the server */
    const char *name; /* for people who watch the batch (scheduler_look); or NULL */
    /* Set by any thread: all choices end with FINISH_CANCELLED within a step. */
    _Atomic bool cancelled;
    /* bit i set: choice i ends (the server found a stop string) */
    _Atomic uint64_t cancelled_choices[2];
};

/* Is only the prompt read, without an answer? */
static inline bool generation_reads(const struct generation *g) {
    return g->max_tokens == 0 && (g->hidden != HIDDEN_NONE || g->n_logprob_ids > 0);
}

/* Lets all rows use an adapter (engine_adapter_load). `id` is never that of another adapter, also
 * after the number has been given to another. It becomes part of the salt, so no prefix of the base
 * model or of another adapter is ever shared. Call it once, after cache_salt is set. */
static inline void generation_use_adapter(struct generation *g, int number, uint64_t id) {
    assert(number > 0 && id != 0 && g->adapter == 0);
    g->adapter = number;
    g->cache_salt[0] ^= id * 0x9E3779B97F4A7C15u; /* odd factors: different ids stay different */
    g->cache_salt[1] ^= id * 0xC2B2AE3D27D4EB4Fu;
}

/* Forbids the model's suppressed ids. Call it once, after the stop ids are set. */
static inline void generation_suppress(struct generation *g,
                                       const struct sampling_defaults *defaults) {
    assert(g->n_stop_ids <= MAX_STOP_IDS && g->n_suppressed == 0);
    g->n_suppressed = defaults->n_suppressed;
    memcpy(g->stop_ids + g->n_stop_ids, defaults->suppressed,
           (size_t)g->n_suppressed * sizeof *g->stop_ids);
}

#endif
