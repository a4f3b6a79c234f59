/* server/generation: the state of a generation request. Internal to server/.
 *
 *   generation_job ── api_request     the request
 *    └─ prompts[] ── generation       for the scheduler; owned by the job, which must not touch it
 *        │                            between submit and its last event
 *        └─ choices[]                 text, logprobs and end of each answer
 *
 * A job does not depend on sockets or on the API of its request; it reports to a job_listener. All
 * functions, except those of prepare.c and constrain.c, belong to the thread that delivers the
 * scheduler's events.
 */
#ifndef PENSTOCK_SERVER_JOB_H
#define PENSTOCK_SERVER_JOB_H

#include "server/app/adapters.h"
#include "server/app/app.h"
#include "server/generation/grammar_store.h"
#include "server/generation/stop_matcher.h"

/* One answer to one prompt. `text`, `logprobs` and `ids` hold the part that is not yet written: all
 * of a whole answer, or the part since a stream's last chunk. */
struct choice {
    struct detokenizer detokenizer;
    struct stop_matcher stops;
    struct buf decoded; /* scratch: text of one token, before stop strings are applied */
    struct buf text;
    /* for answers that may have calls or reasoning; NULL: the text is the answer */
    struct message_parser *parser;
    struct message message; /* replaces `text`: parsed and not yet written */
    int n_reasoning;        /* reasoning tokens */
    struct api_logprob *logprobs;
    int n_logprobs, logprob_capacity;
    int32_t *ids;
    int n_ids, id_capacity;
    int n_tokens;        /* generated, including the end token */
    double mean_logprob; /* mean over these tokens, if logprobs are computed; initially 0 */
    int offset;          /* characters of text so far: text_offset */
    bool started;        /* the prompt was echoed, if requested */
    bool announced;      /* a chunk was written, with the prompt ids */
    int32_t *kept_ids;   /* all of them, for a receipt; NULL: there is none */
    int n_kept_ids, kept_capacity;
    bool done; /* finish_reason is known: later events are dropped */
    const char *finish_reason;
    const char *stop_string;
    int32_t stop_id;
    int predicted_held, predicted_refused;
    uint64_t first_token_ns, last_token_ns; /* now_ns(); 0: not yet */
};

/* One prompt and its generation. */
struct prompt_run {
    struct generation_job *job;
    struct generation generation; /* the scheduler's between submit and its last event */
    int32_t *ids;                 /* [n_ids] */
    int n_ids;
    int32_t *predicted; /* [generation.n_predicted] or NULL */
    struct buf text;    /* for echo: the client's text, or the decoded ids */
    /* [n_ids] with echo and logprobs, or with prompt_logprobs */
    struct api_logprob *prompt_logprobs;
    /* results of an API that reads; the scheduler adds to hidden_sum until the last event */
    double *hidden_sum;         /* generation.hidden_sum, or NULL */
    struct token_logprob *read; /* [generation.n_logprob_ids] or NULL */
    int n_read;
    int n_rows; /* of an API that reads: those that the prompts before it do not have */
    int n_cached;
    uint64_t first_scheduled_ns, first_token_ns; /* now_ns(); 0: not yet */
    struct choice *choices;                      /* [n_generated] */
};

/* The observer of a job. Each function may be NULL. */
struct job_listener {
    /* Called after an event has changed a choice, which may now be done. */
    void (*on_choice)(struct generation_job *job, struct prompt_run *run,
                      const struct event *event);
    /* Called when all choices are done or job->err has ended the job. At most once; not for a
     * cancelled job. */
    void (*on_end)(struct generation_job *job);
    /* Called once after the scheduler has returned all generations, if any was submitted. The job
     * may then be freed. */
    void (*on_idle)(struct generation_job *job);
};

/* The steps of compiling a job, in order (constrain.c). */
enum job_step {
    STEP_ORIGIN,   /* the hash of the model, if the answer has a receipt */
    STEP_SEARCHES, /* the ends of its answers */
    STEP_GRAMMAR,  /* the field's grammar, then one with reasoning */
    STEP_MASK,     /* the tokens that may be first in that grammar */
    STEP_BEGIN,    /* the tokens after which it begins */
    STEP_COMPILED,
};

/* The data of a receipt that the request's tree holds, and the fingerprint (receipt.c). */
struct job_receipt {
    bool is_made;        /* the request has a receipt, for its client or for a recording */
    struct buf body;     /* of the request (request_write) */
    struct buf sampling; /* canonical JSON */
    struct buf text;     /* the receipt, after the last token */
    struct fingerprint fingerprint;
    struct hash_waiter waiter; /* its `resume` is NULL if the job's thread may block */
};

/* A promise of an earlier process: its answer gets the same id, time and seeds. */
struct job_past {
    char id[64];
    int64_t created;
    const char *seeds; /* [n_seeds] 8 bytes each, little endian */
    int n_seeds;
    char adapter[HASH_DIGITS + 1]; /* the hash of its adapter; "": the base model */
};

struct generation_job {
    struct app *app;
    const struct api *api;
    const struct job_listener *listener;
    void *state;                    /* of the API's writers, or NULL */
    struct api_request *request;    /* NULL until it is prepared */
    struct err err;                 /* the error that ended it, if any */
    struct served_adapter *adapter; /* of its rows, held until job_clear; NULL: the base model */
    bool is_counted, has_begun;     /* in the adapter's counts: with the scheduler; first token */
    struct api_key *key;            /* of its client, or NULL; the app's */
    uint64_t key_salt[2];           /* the key's salt in the prefix cache; zero: the default salt */
    int deadline_ms;                /* of the header X-Deadline-Ms; 0: none */
    bool is_late;                   /* its deadline has ended a choice */
    bool cancelled;                 /* further events are dropped */
    int n_prompts;
    struct prompt_run *prompts;
    int n_open;        /* choices that are not done */
    int n_submitted;   /* prompts of an API that reads, in their order */
    int64_t n_reading; /* rows of those that the scheduler holds, without shared prefixes */
    int n_running;     /* generations that the scheduler holds */
    int prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
    int predicted_held, predicted_refused; /* drafts from the request's predicted output */
    size_t answer_bytes;                   /* approximate size of the answer so far */
    struct answer_share share;             /* its share of the memory for answers */
    struct tool_set *tools;                /* tools that answers may call, or NULL */
    struct message_settings format;        /* for parsing answers; without formats they are text */
    struct message_settings seen;          /* the same, of the prompt's end, also if not parsed */
    struct search **stop_searches;         /* [request->n_stop_regexes], or NULL */
    enum job_step step;                    /* the next step */
    bool thinks;                           /* the grammar allows reasoning first */
    struct api_grammar stated;             /* then the client's own; its field may be NULL: none */
    struct err refusal;                    /* of the grammar with reasoning, if it was refused */
    struct grammar_claim claim;            /* on the text being compiled or awaited */
    const atomic_bool *abandoned;          /* its client has left; NULL: it has no client */
    /* constraint on all answers, released with the job; or NULL */
    struct grammar *grammar;
    const struct vocabulary *vocabulary;
    int32_t *begin_ids; /* [n_begin_ids] the tokens after which the grammar begins */
    int n_begin_ids;
    struct job_receipt receipt;
    struct tape tape;                /* the record of its answer, with --record */
    const struct recorded *recorded; /* its answer, with --replay; then there is no request */
    int64_t created_s;               /* time of the request, to compute it again; 0: the present */
    struct thought_limit thoughts;   /* of all answers */
    int32_t *forced_ids;             /* the tokens of this limit, or NULL */
    char id[64];                     /* the request's id, for the log; outlives `request` */
    /* with --state-dir: */
    bool is_promised;            /* its answer is kept: no byte depends on load */
    struct buf body;             /* of the request, with the input that it continues; or empty */
    const struct job_past *past; /* or NULL */
    struct buf ignored;          /* names of the wishes that the template does not know, or empty */
};

/* ---- choice.c ------------------------------------------------------------------------------- */

/* The effect of an event on a choice. */
enum choice_change {
    CHOICE_UNCHANGED, /* it was already done */
    CHOICE_GROWN,
    CHOICE_ENDED,   /* it is done, and so is its generation */
    CHOICE_STOPPED, /* a stop string has ended it; the scheduler still runs it */
};

/* Initialises a choice. `index` distinguishes the request's choices. */
void choice_init(struct choice *choice, const struct generation_job *job, int index);
void choice_free(struct choice *choice);

/* Adds a token's event or an end: updates text, logprobs, stop strings, finish. */
enum choice_change choice_add(struct choice *choice, const struct prompt_run *run,
                              const struct event *event);

/* Drops a choice that is no longer needed. Returns false if it was already done. */
bool choice_drop(struct choice *choice);

/* Frees the content of a finished choice after the answer was written. */
void choice_drop_text(struct choice *choice);

/* Is there anything to write to a stream? */
bool choice_has_news(const struct choice *choice);

/* Fills the data for writers; `index` counts over all prompts. */
void choice_describe(const struct choice *choice, const struct prompt_run *run, int index,
                     bool with_prompt_ids, struct api_choice *out);

/* Removes text, logprobs and ids after they were written. */
void choice_clear(struct choice *choice);

/* ---- bad_words.c ---------------------------------------------------------------------------- */

/* Converts the request's bad words to tokens for its sampling. Fails if the forbidden tokens could
 * leave no token to choose. Any thread may call it. */
enum status job_forbid(const struct generation_job *job, struct err *err);

/* ---- dry_breakers.c ------------------------------------------------------------------------- */

/* Finds the tokens that end repeats, if the request uses DRY. Fails if no token contains a text.
 * Any thread may call it. */
enum status job_find_breakers(const struct generation_job *job, struct err *err);

/* ---- constrain.c ---------------------------------------------------------------------------- */

/* The result of a function that compiles. */
enum job_progress {
    JOB_PREPARED,   /* success, or job->err is set */
    JOB_UNCOMPILED, /* the caller did not allow a necessary compilation */
    JOB_WAITS,      /* another worker compiles it: call again after claim.resume */
};

/* Makes a grammar for an answer that may or must call the request's tools. The job's first prompt
 * must be encoded. Fails if the request also has a grammar that cannot be combined with tools. Any
 * thread may call it. */
enum status job_ask_for_calls(struct generation_job *job, struct err *err);

/* Sets the limit on the reasoning of the job's answers: the request's, or the server's. The job's
 * prompt must be encoded. Fails if the tokenizer cannot write the end of reasoning. Any thread may
 * call it (thoughts.c). */
enum status job_limit_thoughts(struct generation_job *job, struct err *err);

/* Compiles the constraints and stops of the job's answers, or gets them from the app's store. If
 * the first prompt ends inside reasoning, the grammar begins after its end. Sets job->err to a
 * message with the field and the place in it. For workers only. */
enum job_progress job_constrain(struct generation_job *job, bool may_compile);

/* ---- receipt.c ------------------------------------------------------------------------------ */

/* Keeps the body of a request that has a receipt or is recorded. Must precede the parser, which
 * takes the tree. */
void job_keep_body(struct generation_job *job, const struct json *body);

/* Keeps the request's settings. Must precede api_request_drop_tree; the prompts must be filled. */
void job_keep_settings(struct generation_job *job);

/* Waits for the model's hash: without a thread if the job has a waiter, otherwise here. Sets
 * job->err if the model's files cannot be read. */
enum job_progress job_find_fingerprint(struct generation_job *job);

/* Writes the receipt, if there is one, after all choices are done. */
void job_make_receipt(struct generation_job *job);

/* Adds a receipt for the client to the JSON, or the event, at the end of `out`. */
void job_join_receipt(const struct generation_job *job, struct buf *out);

/* With --replay: finds the recorded answer to a body. Returns false if there is none. */
bool job_replay(struct generation_job *job, const struct json *body);

/* With --record: add the next piece of an answer to its record; end the record; save it, outside of
 * scopes of memory. */
void job_record(struct generation_job *job, const struct buf *piece);
void job_end_record(struct generation_job *job);
void job_save_record(struct generation_job *job);

/* Records job->err, if the client's request is the cause of it. For a scope of memory. */
void job_record_error(struct generation_job *job, const char *request_id);

/* Frees the receipt's data. */
void job_clear_receipt(struct generation_job *job);

/* ---- prepare.c ------------------------------------------------------------------------------ */

/* Checks the body, renders and tokenises it: sets the request and prompts, or err. Frees the body.
 * Uses grammars that are already compiled. Any thread may call it. */
enum job_progress job_read(struct generation_job *job, struct json *body);

/* Compiles the remaining grammars and completes the preparation. For a worker that compiles. */
enum job_progress job_compile(struct generation_job *job);

/* Does both, on the only thread that compiles. */
void job_prepare(struct generation_job *job, struct json *body);

/* One run on a worker: job_read with the body of an HTTP request or of a promise, later
 * job_compile. */
enum async_next job_run(struct generation_job *job, const char *body, size_t length);

/* Has the job's client left? Sets job->err if so. Any thread may call it. */
bool job_is_abandoned(struct generation_job *job);

/* ---- job.c ---------------------------------------------------------------------------------- */

/* Submits all prompts to the scheduler. On failure, sets job->err and cancels the submitted ones;
 * on_idle follows if n_running is above 0. */
enum status job_submit(struct generation_job *job, uint64_t received_ns);

/* Has the prepared request a deadline, in its body or its header? */
static inline bool job_has_deadline(const struct generation_job *job) {
    return job->deadline_ms > 0 || job->request->deadline_ms > 0;
}

/* Handles an event of a generation whose owner is a job's prompt_run. */
void job_event(const struct event *event);

/* Cancels all generations of the job; their last events still arrive and are dropped. */
void job_cancel(struct generation_job *job);

/* Appends the JSON of the whole answer and frees the choices' text, so that the answer is in memory
 * only once. The job's share becomes the length of the JSON. */
void job_write_response(struct generation_job *job, struct buf *out);

/* Return the data for the writers of the job's API. */
struct api_answer job_answer(const struct generation_job *job);
struct api_usage job_usage(const struct generation_job *job);

/* Describes the job in the span of its HTTP request. */
void job_trace(const struct generation_job *job, struct trace_span *span);

/* Frees the content of the writers' state, which is then zero again. */
void job_empty_state(struct generation_job *job);

/* Frees the content of the job, but not the job. */
void job_clear(struct generation_job *job);

/* Sets the header that names the wishes without effect; its value is valid as long as the job.
 * Returns the number of headers, 0 or 1. */
int job_name_ignored(const struct generation_job *job, struct http_field *field);

/* A promise of an earlier process, job->past, keeps its id, its time and its seeds. Both do nothing
 * if there is none. The first needs the request, the second its prompts. For the worker thread. */
void job_use_past(struct generation_job *job);
void job_use_past_seeds(struct generation_job *job);

/* ---- reply.c: HTTP requests that generate --------------------------------------------------- */

/* Computes promises of an earlier process, and ends computations, for server/app/promised. */
extern const struct promise_runner reply_promises;

/* Starts a complete request: parses and tokenises it on a worker, submits it, and answers as tokens
 * arrive. */
void reply_start(struct app *app, struct http_request *http, const struct api *api);

#endif
