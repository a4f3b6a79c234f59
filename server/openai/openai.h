/* server/openai: OpenAI's JSON, in and out, as pure functions over strings. No sockets, no threads,
 * no model.
 *
 * A `struct api_request` is what a body asked for, checked against the limits of the served model,
 * with the defaults filled in. A `struct api` reads the bodies of one API and writes its answers;
 * each writer appends exactly one JSON document or server-sent event to a `struct buf`. A worker
 * thread may parse while the loop thread writes: nothing here has state of its own.
 */
#ifndef PENSTOCK_SERVER_OPENAI_H
#define PENSTOCK_SERVER_OPENAI_H

#include "engine/grammar/grammar.h"
#include "scheduler/scheduler.h"
#include "server/message/message.h"

struct api;
struct json;

/* ---- requests ------------------------------------------------------------------------------- */

#define API_MAX_STOPS 16
#define API_MAX_DRY_BREAKERS 64
#define API_MAX_BAD_WORDS (MAX_BAD_WORDS / 2) /* each is up to two words of tokens */

/* One prompt: text, token ids, or the messages of a chat. */
struct api_prompt {
    const char *text; /* NUL-terminated, but may hold NUL bytes: use length */
    size_t length;
    const int32_t *ids; /* NULL: none */
    int n_ids;
    const struct json *messages;        /* array, NULL: none; what follows is for messages only */
    const struct json *tools;           /* array for the template, or NULL */
    const struct json *template_kwargs; /* object or NULL */
    const char *reasoning_effort;       /* for the template; NULL: not given */
    bool add_generation_prompt, continue_final_message;
};

/* What an answer's text keeps to, as a field gave it, or as its tools do. */
struct api_grammar {
    const char *field; /* "response_format.json_schema.schema", for messages; NULL: no grammar */
    enum grammar_kind kind;
    const char *text; /* [length] of the kind, and a NUL */
    size_t length;
    const char *begins_after; /* a text of the model's, behind which it begins; NULL: at once */
};

/* What limits a request, from the model and the server's options. */
struct api_limits {
    const char *model; /* served name, which answers show; other names are a 404, */
    /* except for these, each NUL-terminated, an empty one at the end; or NULL */
    const char *more;
    bool any_model;        /* every name is served */
    int V;                 /* vocabulary */
    int max_model_len;     /* tokens of prompt and output */
    int max_choices;       /* n */
    int max_prompts;       /* prompts in one request */
    uint64_t default_seed; /* for requests without one */
    bool has_chat_template;
    /* how the model writes calls and thoughts; NULL: it does not, or in no way that is known */
    const struct tool_format *tool_format;
    const struct reasoning_format *reasoning_format;
    /* for fields that a request leaves out; NULL: the API's own defaults */
    const struct sampling_defaults *sampling;
};

/* A text of a request's, of at least one byte. */
struct api_text {
    const char *text;
    size_t length;
};

/* A checked request. All memory is the arena's (and `json`'s): api_request_free releases
 * everything. */
struct api_request {
    const struct api *api;
    /* "chatcmpl-…" or "cmpl-…": request_id when the client gave one, random otherwise */
    char id[64];
    int64_t created; /* seconds since 1970 */
    int n_prompts;
    struct api_prompt *prompts; /* [n_prompts] */
    int n;                      /* choices for each prompt */
    int best_of;                /* of so many, or of a search with so many beams; at least n */
    int n_generated;            /* choices that are made for each prompt: n, or best_of */
    bool use_beam_search;
    float length_penalty;
    struct beam_search beams; /* width 0: none */
    int max_tokens;           /* -1: the rest of the context */
    int min_tokens;
    int speculative_tokens; /* guesses that a step may verify, at most */
    bool predicts;          /* a text is expected, which guesses are taken from: */
    const char *prediction; /* or NULL if it is empty */
    size_t prediction_length;
    bool echo;
    bool stream, include_usage, continuous_usage_stats;
    bool return_token_ids, skip_special_tokens, include_stop_str_in_output, ignore_eos;
    /* Calls are looked for in the answer if the tool_choice is not none, thoughts if the model has
     * a format for them; each answer has one call at most unless there may be parallel ones. */
    enum tool_choice tool_choice;
    struct tool_filter callable; /* its `allowed` goes with the tree */
    bool parallel_tool_calls;
    bool keeps_thoughts;     /* in the content */
    bool include_reasoning;  /* thoughts that are split off are part of the answer */
    bool add_special_tokens; /* to texts, and to messages on top of what the template writes */
    bool has_seed;
    struct sampling sampling; /* seed set; banned and bad words empty */
    struct api_grammar grammar;
    int n_stops;
    struct api_text stops[API_MAX_STOPS];
    int n_stop_regexes;
    struct api_text *stop_regexes; /* [n_stop_regexes] */
    int n_stop_ids;
    int32_t stop_ids[MAX_STOP_IDS];
    int n_bad_words;
    struct api_text *bad_words; /* [n_bad_words] without white space before them */
    int repeat_last_n;          /* below -1: not given */
    int mirostat;               /* 0 or 2 */
    int n_dry_breakers;
    struct api_text *dry_breakers; /* [n_dry_breakers]; NULL: not given */
    /* How many of a prompt's last tokens are kept; -1: as many as leave room for the output; 0: all
     * of them */
    int truncate_prompt_tokens;
    int prompt_logprobs; /* -1: none; otherwise each prompt token's, with that many best */
    int priority;
    uint64_t cache_salt[2];
    struct arena *arena;
    struct json *json;
};

/* Frees what is needed until the prompts are token ids: messages, texts, template variables. A
 * tree may take 30 times the room of its text, and a request may wait for long. */
void api_request_drop_tree(struct api_request *request);
void api_request_free(struct api_request *request);

/* A prompt that does not fit into the context: a 400 with the code and the words by which clients
 * know it. `param` is the field, "prompt" or "messages"; with `more`, the prompt has more than
 * n_tokens. */
enum status api_context_exceeded(struct err *err, const char *param, int max_model_len, bool more,
                                 int n_tokens);

/* /tokenize and /detokenize. */
struct api_tokenize {
    struct api_prompt prompt; /* text or messages */
    bool add_special_tokens;  /* default true for text, false for messages */
    bool return_token_strs;
    struct arena *arena;
    struct json *json;
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
    const struct api *api;
    struct buf custom_id; /* as JSON, with its quotes; empty if the line has none */
    struct json *body;    /* set to NULL by a caller that takes it over */
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

/* The same for a line that cannot be a request: custom_id and response are null, and the error is
 * the line's own. */
void api_batch_write_error(struct buf *out, int64_t number, const struct err *err);

/* Appends the key of an input line: its custom_id, or its number if that is empty. */
void api_batch_key(struct buf *out, int64_t number, const struct buf *custom_id);

/* Appends the key of the input line that an output line answers. False if the text is not a
 * line of a batch's output. */
bool api_batch_read_key(struct buf *out, const char *text, size_t length);

/* The start of every output line. */
#define API_BATCH_START "{\"id\":\"batch_req_"

/* ---- choices -------------------------------------------------------------------------------- */

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
    const char *text; /* all, or what a chunk adds */
    size_t length;
    const struct message *message; /* in place of text; NULL: the text is the content */
    const char *finish_reason;     /* "stop", "length", "abort"; NULL while it goes on */
    const char *stop_string;       /* stop_reason: the string or regex that was met, or NULL */
    int32_t stop_id; /* stop_reason: the id, when stop_string is NULL and it is >= 0. The model's
                        own end id counts as null */
    int n_logprobs;
    const struct api_logprob *logprobs; /* NULL: none were asked for */
    int n_ids;
    const int32_t *ids;        /* token_ids when asked for; NULL otherwise */
    const int32_t *prompt_ids; /* prompt_token_ids (whole answers, first chunk); NULL otherwise */
    int n_prompt_ids;
    int n_prompt_logprobs;
    /* of whole answers, when asked for; NULL otherwise */
    const struct api_logprob *prompt_logprobs;
};

struct api_usage {
    int prompt_tokens, completion_tokens, cached_tokens;
    bool has_reasoning;   /* thoughts are split off, and their tokens counted */
    int reasoning_tokens; /* of the completion's, those of thoughts with their markers */
    /* an output was predicted, and so many guesses from it held, or did not: */
    bool predicts;
    int predicted_held, predicted_refused;
};

/* What the answers of one request share. */
struct api_answer {
    const struct api_request *request;
    const char *model; /* served name */
    const struct tokenizer *tokenizer;
};

/* ---- the APIs ------------------------------------------------------------------------------- */

/* One API that generates: how its bodies become requests, and how their answers are written. Each
 * has a file of its own and a row in api.c; nothing else knows which API a request came by. Writers
 * for streams append whole server-sent events. */
struct api {
    const char *path; /* of its POST */
    const char *id_prefix;
    bool has_one_prompt; /* a body holds one prompt, not a list of them */
    /* Checks a body; the tree is the request's then, or freed on failure, when `err` holds status
     * (400, 404), param and message, and *out is NULL. Fields that are null count as absent;
     * unknown fields are ignored. */
    enum status (*parse)(struct api_request **out, struct json *body,
                         const struct api_limits *limits, struct err *err);
    void (*write_response)(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage);
    /* What each choice of a stream begins with, right before its first chunk: clients take the time
     * of the first event as that of the first token. NULL: nothing. */
    void (*write_start)(struct buf *out, const struct api_answer *answer, int index);
    /* `usage` is NULL unless continuous_usage_stats is set. After the last choice has ended and
     * with include_usage, one more is written: without a choice (NULL), with the usage. */
    void (*write_chunk)(struct buf *out, const struct api_answer *answer,
                        const struct api_choice *choice, const struct api_usage *usage);
    void (*write_done)(struct buf *out);
    void (*write_error_event)(struct buf *out, const struct err *err); /* then comes write_done */
    void (*write_error)(struct buf *out, const struct err *err); /* the body of an error status */
};

/* The API of a path, or NULL. */
const struct api *api_find(const char *path);

/* The APIs by number, from 0; NULL after the last. */
const struct api *api_at(int i);

/* ---- other documents ------------------------------------------------------------------------ */

/* `{"error":{...}}`: errors of paths that belong to no API. */
void api_write_error(struct buf *out, const struct err *err);

/* Is a request for this model served? */
bool api_serves(const struct api_limits *limits, const char *name, size_t length);

/* /v1/models: a list of all names; with a `name`, /v1/models/{name}. */
void api_write_models(struct buf *out, const struct api_limits *limits, const char *name,
                      int64_t created);
/* The answer of /tokenize: ids, and each one's spelling in the model file when `strings`. */
void api_write_tokens(struct buf *out, const struct tokenizer *tokenizer, const int32_t *ids, int n,
                      int max_model_len, bool strings);
/* The answer of {path}/render: each prompt's token ids with the request's settings, as the bodies
 * that vLLM's /inference/v1/generate takes. One object for an API of one prompt, otherwise a
 * list. */
void api_write_rendered(struct buf *out, const struct api_answer *answer,
                        const struct generation *const *generations, int n);
/* /tokenizer_info: what clients that render and count tokens themselves want to know; `chat` may be
 * NULL. */
void api_write_tokenizer_info(struct buf *out, const struct tokenizer *tokenizer,
                              const struct chat_template *chat, int max_model_len);
/* The answer of /detokenize: {"prompt": text}, with the text of n ids. */
void api_write_detokenized(struct buf *out, const struct tokenizer *tokenizer, const int32_t *ids,
                           int n);

/* The most bytes that each of these answers takes, from the ids alone. */
size_t api_tokens_bound(const struct tokenizer *tokenizer, const int32_t *ids, int n, bool strings);
size_t api_detokenized_bound(const struct tokenizer *tokenizer, const int32_t *ids, int n);
size_t api_rendered_bound(const struct api_request *request,
                          const struct generation *const *generations, int n);

#endif
