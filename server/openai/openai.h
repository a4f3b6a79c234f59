/* server/openai: converts OpenAI's JSON to requests, and answers to JSON. Pure functions over
 * strings: no sockets, no threads, no model.
 *
 * A `struct api_request` is a body checked against the limits of the served model, with defaults
 * filled in. A `struct api` parses the bodies of one API and writes its answers. Each writer
 * appends exactly one JSON document or server-sent event to a `struct buf`. A worker thread may
 * parse while the loop thread writes, because this folder keeps no state.
 */
#ifndef PENSTOCK_SERVER_OPENAI_H
#define PENSTOCK_SERVER_OPENAI_H

#include "engine/grammar/grammar.h"
#include "scheduler/scheduler.h"
#include "server/message/message.h"

struct api;
struct field_table; /* server/json/json.h */
struct json;

/* ---- requests ------------------------------------------------------------------------------- */

#define API_MAX_INPUTS 2048 /* prompts of an API that reads */
#define API_MAX_STOPS 16
#define API_MAX_DRY_BREAKERS 64
#define API_MAX_BAD_WORDS (MAX_BAD_WORDS / 2) /* each adds up to two words of tokens */

/* One prompt: text, token ids, or chat messages. */
struct api_prompt {
    const char *text; /* NUL-terminated, may contain NUL bytes: use length */
    size_t length;
    const int32_t *ids; /* or NULL */
    int n_ids;
    int n_second;                       /* the last ids, which have token type 1 instead of 0 */
    const struct json *messages;        /* array or NULL; the fields below apply only to messages */
    const struct json *tools;           /* array for the template, or NULL */
    const struct json *template_kwargs; /* object or NULL */
    /* wishes that a template may not know: reasoning_effort and verbosity, NULL: absent;
     * thinking */
    const char *reasoning_effort, *verbosity;
    enum thinking thinking;
    bool add_generation_prompt, continue_final_message;
    int64_t time_s; /* that the template shows, seconds since 1970; 0: the present */
    /* The model fills in between `text` and `suffix`, after the files of `extra`: objects with
     * `text` and `filename`; NULL: none. */
    bool infills;
    const char *suffix;
    size_t suffix_length;
    const struct json *extra;
    /* of an API that reads: the ids whose logprobs are read in the prompt's last row, in the
     * arena */
    const int32_t *read_ids;
    int n_read_ids; /* 0: none; at most MAX_READ_IDS */
    /* of such an API: a text after the messages, which several prompts share; or NULL. It joins the
     * last message if that is a user's, or else is a user's message. Without a chat template the
     * model continues the text of the messages and this one. */
    const char *question; /* [question_length] in the arena */
    size_t question_length;
};

/* The constraint on an answer's text, from a field or from the tools. */
struct api_grammar {
    /* name for messages, "response_format.json_schema.schema"; NULL: no grammar */
    const char *field;
    enum grammar_kind kind;
    const char *text; /* [length], in the syntax of `kind`, NUL-terminated */
    size_t length;
};

enum { API_MODEL_NAME = 128 }; /* bytes of an adapter's name with its NUL */

/* An adapter as clients see it. */
struct api_adapter {
    char name[API_MODEL_NAME], root[512]; /* the path that it was loaded from */
    int64_t created;                      /* seconds since 1970 */
};

/* The adapters that requests may name as their model, as they are at the time of each call. Any
 * thread. */
struct api_adapters {
    /* Copies the adapter of that name to `out`, unless that is NULL. False: there is none. */
    bool (*find)(void *arg, const char *name, struct api_adapter *out);
    /* Copies the i-th adapter, the oldest first. False: there are not that many. */
    bool (*at)(void *arg, int i, struct api_adapter *out);
    void *arg;
};

/* Limits on requests, from the model and the server's options. */
struct api_limits {
    const char *model; /* served name, shown in answers; requests may use it, */
    /* or one of these: NUL-terminated strings, ended by an empty one; or NULL. Other names are a
     * 404. */
    const char *more;
    bool any_model;                      /* every name is accepted */
    const struct api_adapters *adapters; /* NULL: there are none */
    int V;                               /* vocabulary */
    /* the model's figures for lists of models; NULL: they are left out */
    const struct model_config *config;
    int max_model_len;     /* tokens of prompt and output */
    int max_choices;       /* maximum n */
    int max_prompts;       /* maximum number of prompts per request */
    uint64_t default_seed; /* for requests without a seed */
    bool has_chat_template;
    bool takes_system; /* the template, if there is one, shows a system message */
    bool can_infill;   /* the tokenizer has the tokens for it (tokenizer_fim) */
    bool keeps;        /* answers can be stored: --state-dir */
    /* the model's formats of calls and reasoning; NULL: none or unknown */
    const struct tool_format *tool_format;
    /* the template has its markers, but writes calls in another form; then tool_format is NULL */
    const struct tool_format *other_tool_format;
    const struct reasoning_format *reasoning_format;
    char behind_reasoning[16]; /* white space that the template writes after a block of reasoning */
    int reasoning_budget;      /* maximum reasoning tokens of an answer; -1: no limit */
    /* defaults for absent fields; NULL: the API's defaults */
    const struct sampling_defaults *sampling;
    const struct tokenizer *tokenizer;
    const struct pooling *pooling;       /* of embeddings */
    const struct classifier *classifier; /* NULL: the model has no head that classifies */
    int hidden_size;                     /* numbers of a hidden vector */
    int embedding_size; /* numbers of an embedding: after the head, if there is one */
};

/* A text in a request, at least one byte long. */
struct api_text {
    const char *text;
    size_t length;
};

/* The part of a long prompt that is kept. */
enum kept_side {
    KEEP_USUAL, /* the end, and of an API that reads the beginning */
    KEEP_END,
    KEEP_BEGINNING,
};

/* A checked request. The arena and `json` own all its memory; api_request_free frees everything. */
/* The longest deadline: one day. */
enum { MAX_DEADLINE_MS = 86400000 };

struct api_request {
    const struct api *api;
    /* "chatcmpl-…" or "cmpl-…", followed by the client's request_id or a random id */
    char id[64];
    int64_t created; /* seconds since 1970 */
    int n_prompts;
    struct api_prompt *prompts; /* [n_prompts] */
    int n;                      /* choices per prompt */
    int best_of;                /* candidates or beams per prompt; the best n are returned; >= n */
    int n_generated;            /* choices generated per prompt: n or best_of */
    bool use_beam_search;
    float length_penalty;
    struct beam_search beams; /* width 0: no beam search */
    int max_tokens;           /* -1: the rest of the context */
    int min_tokens;
    int speculative_tokens; /* maximum number of drafts per step */
    bool predicts;          /* the request has a predicted output, a source of drafts: */
    const char *prediction; /* NULL if it is empty */
    size_t prediction_length;
    enum hidden_rows hidden; /* rows of each prompt whose hidden vectors are read */
    int dimensions;          /* of an embedding; 0: all */
    int n_queries;           /* the first prompts, whose embeddings are compared with the others' */
    int input_prompt;        /* before each text: index + 1 in pooling->prompt; 0: none */
    bool as_base64;          /* embeddings are base64 of their floats */
    bool of_tokens;          /* the answer has a vector, or labels, of each token */
    bool classifies;         /* the answer has the values of a classifier's labels */
    bool uses_activation;    /* labels and scores are probabilities, and embeddings normalised */
    const void *reading;     /* of an API that reads: for its writers, in the arena */
    bool stores, background; /* /v1/responses: the answer is kept; its client does not wait */
    const char *previous;    /* the id of the response before it, in the arena; NULL: none */
    /* Ollama's: the prompt is empty; the answer says that the model is loaded, or has no vector */
    bool only_loads;
    bool echo;
    bool stream, include_usage, continuous_usage_stats;
    bool receipt; /* the answer has a receipt (server/receipts) */
    bool return_token_ids, skip_special_tokens, include_stop_str_in_output, ignore_eos;
    /* Calls are parsed unless the tool_choice is "none"; reasoning is parsed if the model has a
     * format for it. Unless parallel calls are allowed, an answer has at most one call. */
    enum tool_choice tool_choice;
    struct tool_filter callable; /* `allowed` is freed with the tree */
    bool parallel_tool_calls;
    bool keeps_thoughts;    /* reasoning stays in the content */
    bool include_reasoning; /* separate reasoning is part of the answer */
    int max_reasoning;      /* tokens of an answer; -1: no limit; below: the server's default */
    struct api_text last_thought; /* written when the limit is reached; freed with the tree */
    bool stop_in_reasoning;       /* stop strings end an answer in its reasoning too */
    bool add_special_tokens;      /* to texts; to messages, in addition to the template's */
    bool has_seed;
    struct sampling sampling; /* the seed is set; banned ids and bad words are not */
    struct api_grammar grammar;
    int n_stops;
    struct api_text stops[API_MAX_STOPS];
    int n_stop_regexes;
    struct api_text *stop_regexes; /* [n_stop_regexes] */
    int n_stop_ids;
    int32_t stop_ids[MAX_STOP_IDS];
    int n_logprob_ids;          /* ids whose logprobs replace those of the best tokens; 0: none */
    const int32_t *logprob_ids; /* [n_logprob_ids] in the arena */
    int n_bad_words;
    struct api_text *bad_words; /* [n_bad_words], without leading white space */
    int repeat_last_n;          /* below -1: absent */
    int mirostat;               /* 0 or 2 */
    int n_dry_breakers;
    struct api_text *dry_breakers; /* [n_dry_breakers]; NULL: absent */
    /* number of tokens of a prompt that are kept; -1: as many as leave space for the output;
     * 0: all */
    int truncate_prompt_tokens;
    enum kept_side kept_side;
    int prompt_logprobs; /* -1: off; otherwise the number of best tokens per prompt token */
    int priority;
    int deadline_ms; /* from the arrival of the request to the end of its answer; 0: no deadline */
    uint64_t cache_salt[2];
    /* of a translated body: the names of its fields (api_name_add), in the arena; or NULL */
    const char *names; /* [names_length] */
    size_t names_length;
    struct arena *arena;
    struct json *json;
};

/* Frees data that is needed only until the prompts are token ids: messages, texts, template
 * variables. A tree may use 30 times the memory of its text, and a request may wait for a long
 * time. */
void api_request_drop_tree(struct api_request *request);
void api_request_free(struct api_request *request);

/* Fails with a 400 for a prompt that does not fit into the context, with the code and wording that
 * clients recognise. `param` is "prompt" or "messages". If `more` is set, the prompt has more than
 * n_tokens. */
enum status api_context_exceeded(struct err *err, const char *param, int max_model_len, bool more,
                                 int n_tokens);

/* A request to /tokenize. */
struct api_tokenize {
    struct api_prompt prompt; /* text or messages */
    bool add_special_tokens;  /* default: true for `prompt`, false for `content` and messages */
    bool return_token_strs, with_pieces;
    struct arena *arena;
    struct json *json;
};
enum status api_tokenize_parse(struct api_tokenize **out, const char *body, size_t length,
                               const struct api_limits *limits, struct err *err);
void api_tokenize_free(struct api_tokenize *request);

/* The same for /apply-template: only the messages and their settings. */
enum status api_template_parse(struct api_tokenize **out, const char *body, size_t length,
                               const struct api_limits *limits, struct err *err);
/* Sets *ids to allocated memory, which the caller frees. Fails with a 400 if an id is outside the
 * vocabulary. */
enum status api_detokenize_parse(int32_t **ids, int *n, const char *body, size_t length,
                                 const struct api_limits *limits, struct err *err);

/* ---- choices -------------------------------------------------------------------------------- */

/* The logprob of one token of a chunk or a whole answer. */
struct api_logprob {
    /* in characters (code points) from the start of the text, prompt included: completions with
     * echo */
    int text_offset;
    bool has_logprob; /* false: the first prompt token, written as null */
    struct sampled sampled;
};

/* One choice to write: a whole one, or the addition of a chunk. */
struct api_choice {
    int index;
    const char *text; /* the whole text, or the addition */
    size_t length;
    const struct message *message; /* replaces the text; NULL: the text is the content */
    const char *finish_reason;     /* "stop", "length", "timeout", "abort"; NULL: not finished */
    const char *stop_string;       /* stop_reason: the matched string or regex, or NULL */
    /* stop_reason if stop_string is NULL: the id if it is >= 0. The model's end ids are written as
     * null */
    int32_t stop_id;
    int n_logprobs;
    const struct api_logprob *logprobs; /* NULL: not requested */
    int n_ids;
    const int32_t *ids;        /* token_ids; NULL: not requested */
    const int32_t *prompt_ids; /* prompt_token_ids (whole answers and first chunks), or NULL */
    int n_prompt_ids;
    int n_prompt_logprobs;
    /* only in whole answers, or NULL */
    const struct api_logprob *prompt_logprobs;
    /* what an API that reads has read: the sum of the prompt's hidden vectors, or the logprobs of
     * its ids */
    int n_prompt_tokens;
    /* [limits.hidden_size], or of_tokens [n_prompt_tokens][limits.hidden_size], or NULL */
    const double *hidden_sum;
    const struct token_logprob *read; /* [n_read_ids of the prompt] or NULL */
};

struct api_usage {
    int prompt_tokens, completion_tokens, cached_tokens;
    bool has_reasoning;   /* reasoning is separate, and its tokens are counted */
    int reasoning_tokens; /* completion tokens that are reasoning, including its markers */
    /* the request had a predicted output; drafts from it that were accepted and rejected: */
    bool predicts;
    int predicted_held, predicted_refused;
    /* from the request's arrival to its first token, and from there to now; nanoseconds */
    uint64_t prompt_ns, generation_ns;
};

/* Data that all answers to one request share. */
struct api_answer {
    const struct api_request *request;
    const char *model; /* served name */
    const struct tokenizer *tokenizer;
    void *state; /* of the API's writers, or NULL */
    const struct api_limits *limits;
    const char *system_fingerprint; /* NULL: the version alone */
};

/* ---- the APIs ------------------------------------------------------------------------------- */

/* Where a stream has its receipt. */
enum receipt_place {
    RECEIPT_NOWHERE, /* the API gives no receipts */
    RECEIPT_CHUNK,   /* in the chunk after the last choice, which has no choices */
    RECEIPT_EVENT,   /* in the last event of write_done */
};

enum { API_MAX_ITEMS = 100, API_USUAL_ITEMS = 20, API_MAX_ITEM_ID = 128 };

/* A page of a list of items. */
struct api_item_page {
    int limit; /* 1 to API_MAX_ITEMS items */
    bool oldest_first;
    char after[API_MAX_ITEM_ID + 1]; /* the id of the item before the page; "": the first page */
};

/* One API that generates: how its bodies become requests, and how their answers are written. Each
 * has a row in server/apis. No other code depends on the API of a request. Writers for streams
 * append whole events. */
struct api {
    const char *path; /* for POST */
    /* errors of this path and of all paths below it are written by write_error; NULL: `path` */
    const char *errors_below;
    /* for POST: counts the tokens of a body's prompt; NULL: no such path */
    const char *count_path;
    bool infills;      /* every prompt is filled in, also before an empty suffix */
    const char *reads; /* prompts are read and not answered: the field that has them; or NULL */
    const char *reads_queries; /* the field of the first n_queries prompts, if there may be any */
    const char *id_prefix;
    /* The fields of a body, and those of another API that it may also have; for /openapi.json. */
    const struct field_table *fields, *more_fields;
    const char *example;        /* members of a body without "model" */
    const char *answer_members; /* of every whole answer, separated by spaces; NULL: it varies */
    const char *error_members;  /* of every error */
    int bad_input_http;         /* HTTP status of a bad body; 0: 400 */
    bool has_one_prompt;        /* a body has one prompt instead of a list */
    const char *stream_type;    /* Content-Type of a stream */
    const char *keep_alive;     /* sent in a silent stream; NULL: nothing is sent */
    enum receipt_place receipt_place;
    const char *id_header; /* one more header with the request's id; NULL: only X-Request-Id */
    /* What the writers of one answer share, freed with the job. It is zero before the first writer,
     * and again after a writer that lacked memory: only write_error_event follows. */
    size_t state_size;               /* 0: no state */
    void (*free_state)(void *state); /* frees the content only; NULL: nothing to free */
    bool keeps_answer; /* the state holds a stream's whole answer: its bytes are counted */
    /* Checks a body. On success the request owns the tree. On failure the tree is freed, *out is
     * NULL, and `err` holds status (400, 404), param and message. A null field counts as absent;
     * unknown fields are ignored. */
    enum status (*parse)(struct api_request **out, struct json *body,
                         const struct api_limits *limits, struct err *err);
    void (*write_response)(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage);
    /* Writes the beginning of each choice of a stream, immediately before its first chunk, because
     * clients use the time of the first event as the time of the first token. `usage` has the
     * counts so far. NULL: nothing to write. */
    void (*write_start)(struct buf *out, const struct api_answer *answer, int index,
                        const struct api_usage *usage);
    /* `usage` is NULL unless continuous_usage_stats is set. With include_usage, one more chunk
     * follows the end of the last choice: `choice` is NULL, `usage` is set. */
    void (*write_chunk)(struct buf *out, const struct api_answer *answer,
                        const struct api_choice *choice, const struct api_usage *usage);
    /* Writes the end of a stream after the last choice has ended. `usage` has the final counts. */
    void (*write_done)(struct buf *out, const struct api_answer *answer,
                       const struct api_usage *usage);
    /* Writes the end of a stream that an error has ended. */
    void (*write_error_event)(struct buf *out, const struct api_answer *answer,
                              const struct err *err);
    /* Writes the body of an error status. */
    void (*write_error)(struct buf *out, const struct err *err, const char *request_id);
    /* For an API whose answers may be stored, or NULL. Writes the answer as a document, with the
     * output so far. The status is "queued", "in_progress", "cancelled", "failed" with `err`, or
     * NULL after the end of a stream. `usage` is NULL until the end. */
    void (*write_document)(struct buf *out, const struct api_answer *answer, const char *status,
                           const struct api_usage *usage, const struct err *err);
    /* Turns the document of a queued answer into that of a failed one. */
    void (*write_broken)(struct buf *out, const char *queued, size_t length, const struct err *err);
    /* Writes the last event of a stream, with its number, from a document. */
    void (*write_last_event)(struct buf *out, const char *document, size_t length, int64_t number);
    /* The field that names the answer before this one. The function writes the body with the input
     * and output of that answer before its own input. */
    const char *previous_field;
    void (*write_continued)(struct buf *out, const struct json *body, const struct json *old_body,
                            const struct json *old_answer);
    /* Writes a page of the items of a stored body's input, as a list. `id` is the answer's. Fails
     * with a 400 if page->after is not the id of an item. NULL: bodies have no items. */
    enum status (*write_input_items)(struct buf *out, const struct json *body, const char *id,
                                     const struct api_item_page *page, struct err *err);
    /* Writes the answer of count_path. */
    void (*write_count)(struct buf *out, int n_tokens);
    /* The same as write_error for a lack of memory, as constants: a body, and the last event of a
     * stream. */
    const char *no_memory_body, *no_memory_event;
};

/* Returns the HTTP status of an error of this API; NULL: of no API. */
int api_http(const struct api *api, enum status status);

/* The body of a lack of memory in OpenAI's form. */
#define API_NO_MEMORY                                                                              \
    "{\"error\":{\"message\":\"Not enough memory for this request: try again later, or send a "    \
    "smaller one.\",\"type\":\"unavailable_error\",\"param\":null,\"code\":\"out_of_memory\"}}"

/* The APIs of this folder. */
extern const struct api api_completions, api_chat, api_embeddings, api_classify, api_pooling;

/* The fields of their bodies, and of the bodies of /tokenize and /detokenize. */
extern const struct field_table completion_fields, chat_fields, embedding_fields, tokenize_fields,
    detokenize_fields, template_fields;

/* Check a body of /v1/chat/completions or /v1/completions for another API, whose requests are
 * translated to such bodies: the request's `api` is `api`. Otherwise as `parse` of struct api. */
enum status api_parse_chat(struct api_request **out, struct json *body,
                           const struct api_limits *limits, const struct api *api, struct err *err);
enum status api_parse_text(struct api_request **out, struct json *body,
                           const struct api_limits *limits, const struct api *api, struct err *err);

/* Checks a body of /v1/embeddings for another API in the same way. */
enum status api_parse_embeddings(struct api_request **out, struct json *body,
                                 const struct api_limits *limits, const struct api *api,
                                 struct err *err);

/* Makes n texts the prompts of such a request, after the prompt that the model's files put before
 * them. The texts are copied. */
enum status api_embed_texts(struct api_request *request, const struct api_limits *limits,
                            const struct span *texts, int n, struct err *err);

/* Sets the client's name of `input` in the errors of such a body: of `request`, or in `err` if that
 * is NULL. */
void api_name_input(struct api_request *request, const char *clients, struct err *err);

/* Writes a choice's embedding as a list of numbers, or as base64 of little-endian floats: the
 * pooled hidden vectors after the head, cut to the request's dimensions, normalised. */
void api_write_embedding(struct buf *out, const struct api_answer *answer,
                         const struct api_choice *choice);

/* Returns a choice's embedding before it is normalised, [embedding_size]. The caller frees it with
 * mem_free. */
double *api_embedding(const struct api_answer *answer, const struct api_choice *choice);

/* Returns the outputs of a head for a choice's pooled hidden vectors, [head_outputs]. The caller
 * frees them with mem_free. */
double *api_pooled(const struct api_answer *answer, const struct api_choice *choice,
                   const struct head *head);

/* Returns the same for the hidden vector of one token, of a request of_tokens. */
double *api_of_token(const struct api_answer *answer, const struct api_choice *choice,
                     const struct head *head, int token);

/* Writes the list of such a choice's embeddings, one for each token, or as base64 all their
 * floats. */
void api_write_token_embeddings(struct buf *out, const struct api_answer *answer,
                                const struct api_choice *choice);

/* Turns n logits of labels into probabilities, or whatever the activation gives. */
void api_activate(enum label_activation activation, double *x, int n);

/* Write the start and the end of a list in vLLM's form: {"id", "object", "created", "model",
 * "data": [ and ], "usage"}. */
void api_write_list_head(struct buf *out, const struct api_answer *answer);
void api_write_list_end(struct buf *out, const struct api_usage *usage);

/* Sets the fields of a request whose prompts are read and not answered; `hidden` and the prompts'
 * ids are set before. */
void api_read_only(struct api_request *request);

/* Writes the body of an error for the APIs in OpenAI's form. */
void api_write_status(struct buf *out, const struct err *err, const char *request_id);
#define API_OPENAI_ERRORS                                                                          \
    .error_members = "error", .write_error = api_write_status, .no_memory_body = API_NO_MEMORY,    \
    .no_memory_event = "data: " API_NO_MEMORY "\n\n"

/* Add the client's name for a field of the translated body, which also stands for the field's
 * members: with "messages[2]" and "input[5]", an error in 'messages[2].content' is one in
 * 'input[5].content'. The longest name of a field counts. The second function does so for a message
 * and its member, such as ".role", or "". */
void api_name_add(struct buf *names, const char *field, const char *clients);
void api_name_message(struct buf *names, int index, const char *member, const char *clients);

/* Copies the names to a request, for errors that are found later. */
void api_keep_names(struct api_request *request, const struct buf *names);

/* Replaces the param of an error, and the quoted names in its message, by the client's names. An
 * error is renamed only once. */
void api_rename(struct err *err, const char *names, size_t length);

/* Appends a field to a list of the client's names, unless the list has it. */
void api_list_field(struct buf *list, const struct api_request *request, const char *field);

/* The bodies of api_refuse_unserved: a bit set. Vectors are embeddings and labels, scores those of
 * pairs. */
enum {
    UNSERVED_IN_COMPLETIONS = 1,
    UNSERVED_IN_CHAT = 2,
    UNSERVED_IN_TOKENIZE = 4,
    UNSERVED_IN_VECTORS = 8,
    UNSERVED_IN_SCORES = 16,
};

/* Fails if the body, an object, has a field that would change the answer but is not supported in
 * it (unserved.c). */
enum status api_refuse_unserved(const struct json *body, int where, struct err *err);

/* Does the value contain the character NUL, which would end a template's text? */
bool api_holds_nul(const struct json *value);

/* Is it the name of a field that changes how tokens are chosen, or where an answer ends? */
bool api_is_sampling_field(const char *name);

/* Did the answer end before the model had ended it: by the limit of tokens or by its deadline? */
bool api_is_cut(const char *finish_reason);

/* ---- other documents ------------------------------------------------------------------------ */

/* Writes `{"error":{...}}`, also for paths outside of the APIs. */
void api_write_error(struct buf *out, const struct err *err);

/* Does this server accept the model's name? */
bool api_serves(const struct api_limits *limits, const char *name, size_t length);
/* Is it a name of the base model? */
bool api_serves_base(const struct api_limits *limits, const char *name, size_t length);
/* Is it the name of an adapter? Copies it to `out`, unless that is NULL. */
bool api_finds_adapter(const struct api_limits *limits, const char *name, size_t length,
                       struct api_adapter *out);
/* Appends the names that a request may use, each in quotes: "'base', 'adapter'". */
void api_list_models(struct buf *out, const struct api_limits *limits);

/* Writes seconds since 1970 as a JSON string in the form of RFC 3339. */
void api_write_time(struct buf *out, int64_t seconds);

/* Writes the answer of /v1/models, which clients of OpenAI, Anthropic, vLLM, llama-server and Codex
 * read: a list of all names. With a `name`: of /v1/models/{name}. */
void api_write_models(struct buf *out, const struct api_limits *limits, const char *name,
                      int64_t created);
/* The list of /tokenize. llama-server's pieces are the bytes of tokens, in objects. */
enum token_form {
    TOKENS_ONLY,        /* ids */
    TOKENS_AND_NAMES,   /* ids, and a list of their names in the model file */
    TOKENS_WITH_PIECES, /* {"id", "piece"}: a string, or numbers if it is not valid UTF-8 */
};

/* Writes the answer of /tokenize. */
void api_write_tokens(struct buf *out, const struct tokenizer *tokenizer, const int32_t *ids, int n,
                      int max_model_len, enum token_form form);
/* Writes the answer of {path}/render: each prompt's token ids with the request's settings, in the
 * form of bodies for vLLM's /inference/v1/generate. One object if the API has one prompt, else a
 * list. */
void api_write_rendered(struct buf *out, const struct api_answer *answer,
                        const struct generation *const *generations, int n);
/* Writes the settings of a request as an object, defaults written out: those of api_write_rendered.
 * The request's tree must not be dropped. */
void api_write_sampling(struct buf *out, const struct api_request *request,
                        const struct generation *generation);
/* Writes the answer of /tokenizer_info, for clients that render and count tokens themselves. `chat`
 * may be NULL. */
void api_write_tokenizer_info(struct buf *out, const struct tokenizer *tokenizer,
                              const struct chat_template *chat, int max_model_len);
/* Writes the answer of /detokenize for n ids: the text as `prompt` for vLLM's clients, and as
 * `content` for llama-server's. */
void api_write_detokenized(struct buf *out, const struct tokenizer *tokenizer, const int32_t *ids,
                           int n);

/* Upper bounds in bytes on these answers, from the ids only. */
size_t api_tokens_bound(const struct tokenizer *tokenizer, const int32_t *ids, int n,
                        enum token_form form);
size_t api_detokenized_bound(const struct tokenizer *tokenizer, const int32_t *ids, int n);
size_t api_rendered_bound(const struct api_request *request,
                          const struct generation *const *generations, int n);

#endif
