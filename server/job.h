/* server/job: the inside of a generation request. Internal to server/.
 *
 *   job ── api_request              what was asked
 *    └─ prompts[] ── generation     what the scheduler works on; its memory is ours, but not to be
 * touched before `last` └─ choices[]              text, logprobs and end of each answer
 *
 * A job is freed when nobody refers to it: HTTP (until http_release and on_done), a worker, and
 * each submitted generation.
 */
#ifndef PENSTOCK_SERVER_JOB_H
#define PENSTOCK_SERVER_JOB_H

#include "server/app.h"

/* One answer to one prompt. `text`, `logprobs` and `ids` hold what was not yet written: a whole
 * answer's all, a stream's since the last chunk. */
struct choice {
    struct detokenizer detokenizer;
    struct stop_matcher stops;
    struct buf decoded; /* scratch: text of one token before stop strings */
    struct buf text;
    struct api_logprob *logprobs;
    int n_logprobs, logprob_capacity;
    int32_t *ids;
    int n_ids, id_capacity;
    int n_tokens;   /* generated, the end token included */
    int offset;     /* characters of text let out or decoded so far: text_offset */
    bool started;   /* echo was given */
    bool announced; /* a chunk was written: prompt ids were given */
    bool done;      /* finish is known: what still comes is dropped */
    const char *finish_reason;
    const char *stop_string;
    int32_t stop_id;
    uint64_t last_token_ns;
};

struct job_prompt {
    struct job *job;
    struct generation generation; /* the scheduler's between submit and its last event */
    int32_t *ids;                 /* [n_ids] */
    int n_ids;
    const char *text; /* for echo: as the client sent it, or decoded */
    size_t text_length;
    struct buf decoded_text;
    struct api_logprob *prompt_logprobs; /* [n_ids] with echo and logprobs */
    int n_cached;
    struct choice *choices; /* [n] */
};

struct job {
    struct owner owner;          /* first: http_request.app points here */
    struct job *next, *previous; /* app->jobs */
    struct app *app;
    struct http_request *http; /* NULL once released */
    struct api_request *request;
    struct err err; /* what ended it, if anything did */
    enum api_kind kind;
    int references;
    bool preparing; /* a worker has it: only `gone` may be touched */
    bool gone;      /* the client is */
    bool answered;  /* no byte of the answer is missing */
    bool streaming; /* headers of the stream went out */
    int n_prompts;
    struct job_prompt *prompts;
    int n_open;     /* choices that are not done */
    struct buf out; /* bytes on their way to the client */
    uv_work_t work;
    uint64_t first_token_ns, first_scheduled_ns;
    int prompt_tokens, completion_tokens, cached_tokens;
    char id[64]; /* the request's, for the log: outlives `request` */
};

/* ---- choice.c ------------------------------------------------------------------------------- */

void choice_init(struct choice *choice, const struct job *job);
void choice_free(struct choice *choice);

/* Takes a token's event into the choice: text, logprobs, stop strings, end. */
void choice_add(struct choice *choice, const struct job_prompt *prompt, const struct event *event);

/* Has a stream something to say of it? */
bool choice_has_news(const struct choice *choice);

/* Fills what the writers want; `index` counts over all prompts. */
void choice_describe(const struct choice *choice, const struct job_prompt *prompt, int index,
                     bool with_prompt_ids, struct api_choice *out);

/* Forgets what was written. */
void choice_clear(struct choice *choice);

/* ---- prepare.c ------------------------------------------------------------------------------ */

/* Parses, renders and tokenises: fills request and prompts, or err. Worker thread. */
void job_prepare(struct job *job, const char *body, size_t length);

/* The same from a body that is a tree already, which is taken over. */
void job_prepare_tree(struct job *job, struct cJSON *body);

/* ---- job_take.c: tokens and memory, whoever waits for the answer ---------------------------- */

/* Takes a token's event, or a prompt token's, into the job's choices and counts. */
void job_take(struct job *job, struct job_prompt *prompt, const struct event *event);

/* Cancels all that runs for the job; its last events still come. */
void job_cancel(struct job *job);

/* Frees what the job holds, but not the job. */
void job_clear(struct job *job);

/* ---- answer.c: bytes for the client --------------------------------------------------------- */

void answer_begin_stream(struct job *job);
void answer_chunk(struct job *job, struct job_prompt *prompt, struct choice *choice, int index);
void answer_end_stream(struct job *job);
void answer_write(struct job *job); /* the whole answer's JSON, to job->out */
void answer_whole(struct job *job);
void answer_error(struct job *job, const struct err *err);

/* ---- job.c ---------------------------------------------------------------------------------- */

/* One event of one of its generations. Loop thread. */
void job_event(struct job *job, struct job_prompt *prompt, const struct event *event);

#endif
