/* server/generation: the inside of a generation request. Internal to server/.
 *
 *   generation_job ── api_request     what was asked
 *    └─ prompts[] ── generation       what the scheduler works on; the job's memory, but not to be
 *        │                            touched between submit and its last event
 *        └─ choices[]                 text, logprobs and end of each answer
 *
 * A job knows neither sockets nor which API it came by: who waits for it is told by a job_listener.
 * All functions but those of prepare.c and constrain.c belong to the thread that hands over the
 * scheduler's events.
 */
#ifndef PENSTOCK_SERVER_JOB_H
#define PENSTOCK_SERVER_JOB_H

#include "server/app.h"
#include "server/generation/stop_matcher.h"

/* One answer to one prompt. `text`, `logprobs` and `ids` hold what was not yet written: a whole
 * answer's all, a stream's since the last chunk. */
struct choice {
    struct detokenizer detokenizer;
    struct stop_matcher stops;
    struct buf decoded; /* scratch: text of one token before stop strings */
    struct buf text;
    /* of answers in which calls or thoughts are looked for; NULL: the text is the answer */
    struct message_parser *parser;
    struct message message; /* in place of text: what was read and not yet written */
    int n_reasoning;        /* tokens of thoughts */
    struct api_logprob *logprobs;
    int n_logprobs, logprob_capacity;
    int32_t *ids;
    int n_ids, id_capacity;
    int n_tokens;        /* generated, the end token included */
    double mean_logprob; /* of these, where logprobs come; 0 before the first */
    int offset;          /* characters of text released or decoded so far: text_offset */
    bool started;        /* the prompt was echoed, if it is to be */
    bool announced;      /* a chunk was written: prompt ids were given */
    bool done;           /* finish_reason is known: later events are dropped */
    const char *finish_reason;
    const char *stop_string;
    int32_t stop_id;
    int predicted_held, predicted_refused;
    uint64_t first_token_ns, last_token_ns; /* now_ns(); 0: none came yet */
};

/* One prompt with its generation. */
struct prompt_run {
    struct generation_job *job;
    struct generation generation; /* the scheduler's between submit and its last event */
    int32_t *ids;                 /* [n_ids] */
    int n_ids;
    int32_t *predicted;                  /* [generation.n_predicted] or NULL */
    struct buf text;                     /* for echo: as the client sent it, or decoded */
    struct api_logprob *prompt_logprobs; /* [n_ids] with echo and logprobs, or prompt_logprobs */
    int n_cached;
    uint64_t first_scheduled_ns, first_token_ns; /* now_ns(); 0: not yet */
    struct choice *choices;                      /* [n_generated] */
};

/* Who waits for a job. Each function may be NULL. */
struct job_listener {
    /* An event has changed a choice, which may be done now. */
    void (*on_choice)(struct generation_job *job, struct prompt_run *run,
                      const struct event *event);
    /* All choices are done, or job->err has ended it. At most once; not for a cancelled job. */
    void (*on_end)(struct generation_job *job);
    /* The scheduler has returned all generations, so that the job may be freed. Once, if any was
     * submitted. */
    void (*on_idle)(struct generation_job *job);
};

/* How far a job is compiled: constrain.c does one step after the other. */
enum job_step {
    STEP_SEARCHES, /* what ends its answers */
    STEP_GRAMMAR,  /* what its answers keep to: the field's grammar, then one with thoughts */
    STEP_MASK,     /* which tokens may come first in that */
    STEP_BEGIN,    /* behind which tokens it begins */
    STEP_COMPILED,
};

struct generation_job {
    struct app *app;
    const struct api *api;
    const struct job_listener *listener;
    struct api_request *request; /* NULL until it is prepared */
    struct err err;              /* what ended it, if anything did */
    uint64_t key_salt[2];        /* of the client's key in the prefix cache; zero: the common one */
    bool cancelled;              /* events are dropped */
    int n_prompts;
    struct prompt_run *prompts;
    int n_open;    /* choices that are not done */
    int n_running; /* generations that the scheduler has */
    int prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
    int predicted_held, predicted_refused; /* guesses from the request's prediction */
    size_t answer_bytes;            /* about so many of the answer are known or were generated, */
    struct answer_share share;      /* which count among those of all answers */
    struct tool_set *tools;         /* that answers may call; NULL: none */
    struct message_settings format; /* of its answers; without formats they are text */
    struct search **stop_searches;  /* [request->n_stop_regexes], or NULL */
    enum job_step step;             /* the next one */
    bool thinks;                    /* the grammar lets thoughts come first */
    struct grammar_claim claim;     /* in the text that it compiles or waits for */
    const atomic_bool *abandoned;   /* its client has gone; NULL: it has no client */
    /* what all answers keep to: released with the job; NULL: nothing */
    struct grammar *grammar;
    const struct vocabulary *vocabulary;
    int32_t *begin_ids; /* [n_begin_ids] behind which it begins */
    int n_begin_ids;
    char id[64]; /* the request's, for the log: outlives `request` */
};

/* ---- choice.c ------------------------------------------------------------------------------- */

/* What an event has done to a choice. */
enum choice_change {
    CHOICE_UNCHANGED, /* it was done before */
    CHOICE_GROWN,
    CHOICE_ENDED,   /* it is done, as the scheduler knows */
    CHOICE_STOPPED, /* it is done by a stop string, and the scheduler still runs it */
};

/* `index` tells it from the request's other choices. */
void choice_init(struct choice *choice, const struct generation_job *job, int index);
void choice_free(struct choice *choice);

/* Adds a token's event, or an end: text, logprobs, stop strings, finish. */
enum choice_change choice_add(struct choice *choice, const struct prompt_run *run,
                              const struct event *event);

/* Ends a choice that no one waits for. False if it was done before. */
bool choice_drop(struct choice *choice);

/* Frees what a choice that is done has of the answer, which was written. */
void choice_drop_text(struct choice *choice);

/* Is there anything to write in a stream? */
bool choice_has_news(const struct choice *choice);

/* Fills what the writers want; `index` counts over all prompts. */
void choice_describe(const struct choice *choice, const struct prompt_run *run, int index,
                     bool with_prompt_ids, struct api_choice *out);

/* Removes text, logprobs and ids once they were written. */
void choice_clear(struct choice *choice);

/* ---- bad_words.c ---------------------------------------------------------------------------- */

/* Turns the bad words of the job's request into tokens, which its sampling has then. Fails if what
 * is forbidden could leave no token to choose. Any thread. */
enum status job_forbid(const struct generation_job *job, struct err *err);

/* ---- dry_breakers.c ------------------------------------------------------------------------- */

/* Finds the tokens that no repeat goes across, if the request's sampling discourages repeats. Fails
 * on a text that no token holds. Any thread. */
enum status job_find_breakers(const struct generation_job *job, struct err *err);

/* ---- constrain.c ---------------------------------------------------------------------------- */

/* How a function that may compile has left a job. */
enum job_progress {
    JOB_PREPARED,   /* or job->err says why not */
    JOB_UNCOMPILED, /* something is to be compiled, which the caller has not allowed */
    JOB_WAITS,      /* another worker compiles it: call again after claim.resume */
};

/* With tools, makes the request's grammar that of an answer that may or must call them. The job's
 * first prompt was encoded. Fails on a grammar that is not served beside tools. Any thread. */
enum status job_ask_for_calls(struct generation_job *job, struct err *err);

/* Compiles what ends and what bounds the job's answers, or takes it from the app's store. A grammar
 * begins behind the thoughts in which the first prompt ends. Sets job->err to a sentence that names
 * the field and the place in it. A worker. */
enum job_progress job_constrain(struct generation_job *job, bool may_compile);

/* ---- prepare.c ------------------------------------------------------------------------------ */

/* Checks the body, renders and tokenises: fills request and prompts, or err. The body is freed.
 * What is compiled already is taken. Any thread. */
enum job_progress job_read(struct generation_job *job, struct json *body);

/* Compiles what job_read has left uncompiled, and goes on. A worker that compiles. */
enum job_progress job_compile(struct generation_job *job);

/* Both, on the only thread that compiles. */
void job_prepare(struct generation_job *job, struct json *body);

/* One run of a worker for a request of HTTP's: job_read with its body, later job_compile. */
enum async_next job_run(struct generation_job *job, const struct http_request *http);

/* Has the job's client gone? Then it has job->err. Any thread. */
bool job_is_abandoned(struct generation_job *job);

/* ---- job.c ---------------------------------------------------------------------------------- */

/* Hands all prompts to the scheduler. On failure job->err is set, and what was submitted before is
 * cancelled: on_idle follows if n_running is above 0. */
enum status job_submit(struct generation_job *job, uint64_t received_ns);

/* An event of a generation whose owner is a job's prompt_run. */
void job_event(const struct event *event);

/* Cancels all that runs for the job; its last events still come, and are dropped. */
void job_cancel(struct generation_job *job);

/* Appends the whole answer's JSON and frees the text of the choices, so that the answer is in
 * memory once. The job's share becomes the length of the JSON. */
void job_write_response(struct generation_job *job, struct buf *out);

/* What writers of the job's API want. */
struct api_answer job_answer(const struct generation_job *job);
struct api_usage job_usage(const struct generation_job *job);

/* Frees what the job holds, but not the job: what it has prepared is gone. */
void job_clear(struct generation_job *job);

#endif
