/* server/api: OpenAI's JSON, in and out, as pure functions over strings. No sockets, no threads, no
 * model.
 *
 * A `struct api_request` is what a body asked for, checked against the limits of the served model,
 * with the defaults filled in. The writers append exactly one JSON document or server-sent event to
 * a `struct buf`. A worker thread may parse while the loop thread writes: nothing here has state of
 * its own.
 */
#ifndef PENSTOCK_SERVER_API_H
#define PENSTOCK_SERVER_API_H

#include "scheduler/scheduler.h"

struct cJSON;

/* ---- requests ------------------------------------------------------------------------------- */

#define API_MAX_STOPS 16

enum api_kind { API_COMPLETION, API_CHAT };

/* One prompt of a completion request: text, or ids when `ids` is not NULL. */
struct api_prompt {
    const char *text; /* NUL-terminated, but may hold NUL bytes: use length */
    size_t length;
    const int32_t *ids;
    int n_ids;
};

/* What limits a request, from the model and the server's options. */
struct api_limits {
    const char *model;     /* served name; other names are a 404 */
    int V;                 /* vocabulary */
    int max_model_len;     /* tokens of prompt and output */
    int max_choices;       /* n */
    int max_prompts;       /* prompts in one request */
    uint64_t default_seed; /* for requests without one */
    bool has_chat_template;
};

/* A checked request. All memory is the arena's (and `json`'s): api_request_free releases
 * everything. */
struct api_request {
    enum api_kind kind;
    char id[64];     /* "chatcmpl-…" or "cmpl-…": request_id when the client gave one, random
                      * otherwise */
    int64_t created; /* seconds since 1970 */
    int n_prompts;
    struct api_prompt *prompts;          /* [n_prompts], completions */
    const struct cJSON *messages;        /* chat */
    const struct cJSON *tools;           /* always NULL until tools are served */
    const struct cJSON *template_kwargs; /* object or NULL */
    bool add_generation_prompt, continue_final_message;
    int n;          /* choices for each prompt */
    int max_tokens; /* -1: the rest of the context */
    int min_tokens;
    bool echo;
    bool stream, include_usage, continuous_usage_stats;
    bool return_token_ids, skip_special_tokens, include_stop_str_in_output, ignore_eos;
    bool has_seed;
    struct sampling sampling; /* seed set; banned empty */
    int n_stops;
    struct {
        const char *text;
        size_t length;
    } stops[API_MAX_STOPS];
    int n_stop_ids;
    int32_t stop_ids[MAX_STOP_IDS];
    int priority;
    uint64_t cache_salt[2];
    struct arena *arena;
    struct cJSON *json;
};

/* Parses and checks a body. On failure `err` holds status (400, 404), param and message, and *out
 * is NULL. `has` fields that are null count as absent; unknown fields are ignored. */
enum status api_request_parse(struct api_request **out, enum api_kind kind, const char *body,
                              size_t length, const struct api_limits *limits, struct err *err);
/* The same from a body that is a tree already, which is taken over or deleted. */
enum status api_request_take(struct api_request **out, enum api_kind kind, struct cJSON *json,
                             const struct api_limits *limits, struct err *err);
void api_request_free(struct api_request *request);

/* /tokenize and /detokenize. */
struct api_tokenize {
    struct api_prompt prompt; /* text, when messages is NULL */
    const struct cJSON *messages;
    const struct cJSON *template_kwargs;
    bool add_special_tokens; /* default true for text, false for messages */
    bool add_generation_prompt, continue_final_message;
    bool return_token_strs;
    struct arena *arena;
    struct cJSON *json;
};
enum status api_tokenize_parse(struct api_tokenize **out, const char *body, size_t length,
                               const struct api_limits *limits, struct err *err);
void api_tokenize_free(struct api_tokenize *request);
/* ids is malloc'd; the caller frees it. Ids outside the vocabulary are a 400. */
enum status api_detokenize_parse(int32_t **ids, int *n, const char *body, size_t length,
                                 const struct api_limits *limits, struct err *err);

/* ---- files of requests ---------------------------------------------------------------------- */

/* A line of a batch's input: {"custom_id", "method", "url", "body"}. */
struct api_batch_line {
    enum api_kind kind;
    struct buf custom_id; /* as JSON, with its quotes; empty where the line has none */
    struct cJSON *body;   /* NULL once it was taken */
};

/* Reads a line. It fails with STATUS_INVALID_REQUEST, STATUS_NOT_FOUND (url) or
 * STATUS_METHOD_NOT_ALLOWED; custom_id is known then too, if the line has one. Free the line in any
 * case. */
enum status api_batch_parse(struct api_batch_line *line, const char *text, size_t length,
                            struct err *err);
void api_batch_free(struct api_batch_line *line);

/* Appends a line of a batch's output: the HTTP status and body that a server would have answered.
 * `number` counts the input's lines from 1; request_id may be empty. */
void api_batch_write_response(struct buf *out, int64_t number, const struct buf *custom_id,
                              int http_status, const char *request_id, const struct buf *body);

/* The same for a line that is no request: without custom_id and response, with the error beside
 * them. */
void api_batch_write_error(struct buf *out, int64_t number, const struct err *err);

/* Appends what an input line is known by: its custom_id, or its number where that is empty. */
void api_batch_key(struct buf *out, int64_t number, const struct buf *custom_id);

/* Appends the key of the input line that an output line answers. False where the text is no line of
 * a batch's output. */
bool api_batch_read_key(struct buf *out, const char *text, size_t length);

/* What every output line begins with. */
#define API_BATCH_START "{\"id\":\"batch_req_"

/* ---- one choice's output -------------------------------------------------------------------- */

/* Finds stop strings in a text that comes in parts. Text that may still become a stop string is
 * held back. */
struct stop_matcher {
    int n;
    const char *text[API_MAX_STOPS];
    size_t length[API_MAX_STOPS];
    size_t longest;
    uint32_t *borders; /* memory of the tables that border[i] points into */
    const uint32_t *border[API_MAX_STOPS];
    uint32_t state[API_MAX_STOPS]; /* bytes of each stop string that the text so far ends with */
    bool asleep;                   /* matches that end now are let pass: min_tokens */
    bool include;                  /* the stop string itself is part of the output */
    struct buf held;               /* text not yet let out */
    size_t taken;                  /* bytes at the start of `held` that are out already */
    int matched;                   /* index of the stop string that was met, -1 */
};
void stop_matcher_init(struct stop_matcher *matcher, const struct api_request *request);
/* Appends to `out` the part of held + text that is certain. Returns true once a stop string was
 * met: then what follows it is dropped and `matched` says which. The earliest match wins; at equal
 * ends the longest. */
bool stop_matcher_add(struct stop_matcher *matcher, const char *text, size_t length,
                      struct buf *out);
/* Lets out what is held, at the end without a match. */
void stop_matcher_finish(struct stop_matcher *matcher, struct buf *out);
void stop_matcher_free(struct stop_matcher *matcher);

/* Logprobs of a run of tokens, for one chunk or a whole answer. */
struct api_logprob {
    int text_offset;  /* characters (code points) from the start of prompt + completion: completions
                         with echo */
    bool has_logprob; /* false: the first prompt token, written as null */
    struct sampled sampled;
};

/* One choice as it is written: a whole one, or what a chunk adds. */
struct api_choice {
    int index;
    const char *text; /* text (or what is new of it) */
    size_t length;
    const char *finish_reason; /* "stop", "length", NULL while it goes on */
    const char *stop_string;   /* stop_reason: the string that was met, or NULL */
    int32_t stop_id; /* stop_reason: the id, when stop_string is NULL and it is >= 0. The model's
                        own end id counts as null */
    int n_logprobs;
    const struct api_logprob *logprobs; /* NULL: the field is null */
    int n_ids;
    const int32_t *ids;        /* token_ids when asked for; NULL otherwise */
    const int32_t *prompt_ids; /* prompt_token_ids (whole answers, first chunk); NULL otherwise */
    int n_prompt_ids;
};

struct api_usage {
    int prompt_tokens, completion_tokens, cached_tokens;
};

/* ---- answers -------------------------------------------------------------------------------- */

/* Whole answers (completion or chat.completion). */
void api_write_response(struct buf *out, const struct api_request *request, const char *model,
                        const struct tokenizer *tokenizer, const struct api_choice *choices, int n,
                        const struct api_usage *usage);

/* Server-sent events: `data: {json}\n\n` each. */
void api_write_role_chunk(struct buf *out, const struct api_request *request, const char *model,
                          int index);
void api_write_chunk(
    struct buf *out, const struct api_request *request, const char *model,
    const struct tokenizer *tokenizer, const struct api_choice *choice,
    const struct api_usage *continuous_usage); /* NULL unless continuous_usage_stats */
void api_write_usage_chunk(struct buf *out, const struct api_request *request, const char *model,
                           const struct api_usage *usage);
void api_write_done(struct buf *out);
void api_write_error_event(struct buf *out, const struct err *err);

/* `{"error":{...}}`. */
void api_write_error(struct buf *out, const struct err *err);

/* /v1/models when `list`, otherwise /v1/models/{id}. */
void api_write_models(struct buf *out, const char *model, int max_model_len, int64_t created,
                      bool list);
/* The answer of /tokenize: ids, and each one's spelling in the model file when `strings`. */
void api_write_tokens(struct buf *out, const struct tokenizer *tokenizer, const int32_t *ids, int n,
                      int max_model_len, bool strings);
/* The answer of /detokenize: {"prompt": text}. */
void api_write_text(struct buf *out, const char *text, size_t length);

/* ---- metrics -------------------------------------------------------------------------------- */

/* Prometheus histograms and counters that the loop thread keeps. All zero is empty. */
#define METRIC_BUCKETS 24
struct histogram {
    uint64_t counts[METRIC_BUCKETS + 1];
    double sum;
    uint64_t count;
};
struct metrics {
    struct histogram ttft, inter_token, e2e, queue;
    uint64_t finished_stop, finished_length, finished_abort, finished_error;
    uint64_t http_requests[6]; /* by status class, index status / 100 */
    uint64_t refused_overload;
    uint64_t answer_ns; /* the loop's time in making tokens text and sending it */
};
void histogram_add(struct histogram *histogram, double seconds);

/* Appends the Prometheus text of everything: names of our own (penstock_...) and the vLLM names. */
void metrics_write(struct buf *out, const struct metrics *metrics,
                   const struct scheduler_stats *stats, const char *model, int connections);

#endif
