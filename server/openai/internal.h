/* server/openai, internal: declarations that the files of this folder share. Files outside must not
 * include it. */
#ifndef PENSTOCK_SERVER_OPENAI_INTERNAL_H
#define PENSTOCK_SERVER_OPENAI_INTERNAL_H

#include <stddef.h>

#include "server/json/json.h"
#include "server/openai/openai.h"

/* ---- APIs, one file each -------------------------------------------------------------------- */

/* ---- checks that several bodies share (checks.c) -------------------------------------------- */

/* Checks `model`, a field of every body. */
enum status check_model(struct parse *parse, const char *name, const struct json *value);

/* Copies an array's integers to memory of the arena. Each must be in 0..V-1 (token ids). Fails if
 * there are more than `max`. */
enum status field_ids(struct parse *parse, const char *name, const struct json *array, int max,
                      int32_t **ids, int *n);

/* ---- generation requests (request.c) -------------------------------------------------------- */

/* Converts a body of an API to a request. The parse must have the API's table of fields; its target
 * must be a struct that begins with the request, with `api` set. After all fields are stored,
 * `finish` sets the prompts, checks the API's fields against each other, and calls check_request.
 * On success the request owns the tree; on failure the tree is freed. */
enum status request_parse(struct api_request **out, struct parse *parse, struct json *json,
                          enum status (*finish)(struct parse *parse));

/* Checks the fields that all APIs share against each other. Prompts and n_logprobs must be set. */
enum status check_request(struct parse *parse);

/* Checks best_of and the fields of beam search against each other (request_search.c). */
enum status check_search(struct parse *parse);

/* Applies llama-server's settings to the sampling: the window of penalties, mirostat
 * (request_sampling.c). */
void finish_penalties(const struct parse *parse);
void finish_mirostat(const struct parse *parse);

/* Fails with "'name' is not served by this version: leave it out<but>." */
enum status not_served(struct parse *parse, const char *name, const char *but);

/* Checks of single fields. Each is named after its field. */
enum status check_n(struct parse *parse, const char *name, const struct json *value);
enum status check_stream_options(struct parse *parse, const char *name, const struct json *value);
enum status check_receipt(struct parse *parse, const char *name, const struct json *value);
enum status check_prediction(struct parse *parse, const char *name, const struct json *value);
enum status check_early_stopping(struct parse *parse, const char *name, const struct json *value);

/* ---- prompts (request_prompt.c) ------------------------------------------------------------- */

/* Checks the prompts of a completion and stores them in the request, which is the target. */
enum status check_prompt(struct parse *parse, const char *name, const struct json *value);

/* Checks add_generation_prompt against continue_final_message, which determines its default. */
enum status check_generation_prompt(struct parse *parse, struct api_prompt *prompt);

/* ---- messages (request_messages.c) ---------------------------------------------------------- */

/* Checks an array of messages and converts it in place to the form that templates expect: content
 * is a string, and the arguments of a tool call are an object. */
enum status check_messages(struct parse *parse, const char *name, const struct json *value);

/* Checks the variables of a template: any JSON without NUL. Names that the server sets are
 * rejected. */
enum status check_template_kwargs(struct parse *parse, const char *name, const struct json *value);

/* Fails if the value contains a NUL character, which would end a template's text. */
enum status refuse_nul(struct parse *parse, const char *path, const struct json *value);

/* ---- tools (request_tools.c) ---------------------------------------------------------------- */

/* Checks an array of tools. A template gets them unchanged. */
enum status check_tools(struct parse *parse, const char *name, const struct json *value);

enum status check_tool_choice(struct parse *parse, const char *name, const struct json *value);

/* Checks llama-server's field: "none" leaves reasoning in the content. */
enum status check_reasoning_format(struct parse *parse, const char *name, const struct json *value);

/* Checks a chat's tools and choice against each other and against the model's format of calls.
 * Stores the tools in the request and its prompt. */
enum status finish_tools(struct parse *parse, struct api_prompt *prompt);

/* ---- sampling (request_sampling.c) ---------------------------------------------------------- */

enum status check_stop(struct parse *parse, const char *name, const struct json *value);
enum status check_stop_regex(struct parse *parse, const char *name, const struct json *value);
enum status check_stop_ids(struct parse *parse, const char *name, const struct json *value);
enum status check_logit_bias(struct parse *parse, const char *name, const struct json *value);
enum status check_mirostat(struct parse *parse, const char *name, const struct json *value);
enum status check_dry_breakers(struct parse *parse, const char *name, const struct json *value);
enum status check_allowed_ids(struct parse *parse, const char *name, const struct json *value);
enum status check_bad_words(struct parse *parse, const char *name, const struct json *value);
enum status check_logprob_ids(struct parse *parse, const char *name, const struct json *value);
enum status check_truncation(struct parse *parse, const char *name, const struct json *value);
enum status check_truncation_side(struct parse *parse, const char *name, const struct json *value);
enum status check_seed(struct parse *parse, const char *name, const struct json *value);
enum status check_request_id(struct parse *parse, const char *name, const struct json *value);
enum status check_cache_salt(struct parse *parse, const char *name, const struct json *value);

/* ---- constraints on the text (request_structured.c) ----------------------------------------- */

/* Check the fields of STRUCTURED_FIELDS. Each sets the request's grammar if its value asks for one.
 * Fails if another field has already set it. */
enum status check_response_format(struct parse *parse, const char *name, const struct json *value);
enum status check_structured_outputs(struct parse *parse, const char *name,
                                     const struct json *value);
enum status check_constraint(struct parse *parse, const char *name, const struct json *value);

/* Rows of an API's table: name, type, offset, default, min, max, whether min itself is excluded,
 * check. A body is checked in this order. */
#define IN(member) offsetof(struct api_request, member)
#define IN_SAMPLING(member) offsetof(struct api_request, sampling.member)

/* llama-server's names of earlier fields of the table. */
#define OTHER_NAMES                                                                                \
    {"n_predict", FIELD_INT, IN(max_tokens), 0, -1, INT32_MAX, .same_as = "max_tokens"}, {         \
        "n_cmpl", FIELD_INT, IN(n), 1, INT32_MIN, INT32_MAX, .same_as = "n", .check = check_n      \
    }

/* Must precede the prompts, because it affects their allowed length. */
#define TRUNCATION_FIELD                                                                           \
    {"truncate_prompt_tokens", FIELD_INT, IN(truncate_prompt_tokens), 0, -1, INT32_MAX,            \
     .check = check_truncation},                                                                   \
    {                                                                                              \
        "truncation_side", FIELD_ANY, FIELD_NOT_STORED, .check = check_truncation_side             \
    }

#define SAMPLING_FIELDS                                                                            \
    {"min_tokens", FIELD_INT, IN(min_tokens), 0, 0, INT32_MAX},                                    \
        {"ignore_eos", FIELD_BOOL, IN(ignore_eos)},                                                \
        {"stop", FIELD_ANY, FIELD_NOT_STORED, .check = check_stop},                                \
        {"stop_regex", FIELD_ANY, FIELD_NOT_STORED, .check = check_stop_regex},                    \
        {"stop_token_ids", FIELD_ARRAY, FIELD_NOT_STORED, .check = check_stop_ids},                \
        {"include_stop_str_in_output", FIELD_BOOL, IN(include_stop_str_in_output)},                \
        {"skip_special_tokens", FIELD_BOOL, IN(skip_special_tokens), 1},                           \
        {"temperature", FIELD_REAL, IN_SAMPLING(temperature), 1, 0, 2},                            \
        {"top_p", FIELD_REAL, IN_SAMPLING(top_p), 1, 0, 1},                                        \
        {"top_k", FIELD_INT, IN_SAMPLING(top_k), 0, -1, INT32_MAX},                                \
        {"min_p", FIELD_REAL, IN_SAMPLING(min_p), 0, 0, 1},                                        \
        {"top_n_sigma", FIELD_REAL, IN_SAMPLING(top_n_sigma), 0, -1, 1e6},                         \
        {"typical_p", FIELD_REAL, IN_SAMPLING(typical_p), 1, 0, 1, true},                          \
        {"epsilon_cutoff", FIELD_REAL, IN_SAMPLING(epsilon_cutoff), 0, 0, 1},                      \
        {"eta_cutoff", FIELD_REAL, IN_SAMPLING(eta_cutoff), 0, 0, 1},                              \
        {"xtc_probability", FIELD_REAL, IN_SAMPLING(xtc_probability), 0, 0, 1},                    \
        {"xtc_threshold", FIELD_REAL, IN_SAMPLING(xtc_threshold), 0.1, 0, 1},                      \
        {"mirostat", FIELD_INT, IN(mirostat), 0, 0, 2, .check = check_mirostat},                   \
        {"mirostat_tau", FIELD_REAL, IN_SAMPLING(mirostat_tau), 5, 0, 100},                        \
        {"mirostat_eta", FIELD_REAL, IN_SAMPLING(mirostat_eta), 0.1, 0, 1},                        \
        {"presence_penalty", FIELD_REAL, IN_SAMPLING(presence_penalty), 0, -2, 2},                 \
        {"frequency_penalty", FIELD_REAL, IN_SAMPLING(frequency_penalty), 0, -2, 2},               \
        {"repetition_penalty", FIELD_REAL, IN_SAMPLING(repetition_penalty), 1, 0, 1e6, true},      \
        {"repeat_penalty",                                                                         \
         FIELD_REAL,                                                                               \
         IN_SAMPLING(repetition_penalty),                                                          \
         1,                                                                                        \
         0,                                                                                        \
         1e6,                                                                                      \
         true,                                                                                     \
         .same_as = "repetition_penalty"},                                                         \
        {"repeat_last_n", FIELD_INT, IN(repeat_last_n), -2, -1, INT32_MAX},                        \
        {"no_repeat_ngram_size", FIELD_INT, IN_SAMPLING(no_repeat_ngram), 0, 0, MAX_REPEAT},       \
        {"dry_multiplier", FIELD_REAL, IN_SAMPLING(dry_multiplier), 0, 0, 1e6},                    \
        {"dry_base", FIELD_REAL, IN_SAMPLING(dry_base), 1.75, 1, 1e6},                             \
        {"dry_allowed_length", FIELD_INT, IN_SAMPLING(dry_allowed_length), 2, 1, MAX_REPEAT},      \
        {"dry_penalty_last_n", FIELD_INT, IN_SAMPLING(dry_last_n), -1, -1, INT32_MAX},             \
        {"dry_sequence_breakers", FIELD_ARRAY, FIELD_NOT_STORED, .check = check_dry_breakers},     \
        {"logit_bias", FIELD_OBJECT, FIELD_NOT_STORED, .check = check_logit_bias},                 \
        {"allowed_token_ids", FIELD_ARRAY, FIELD_NOT_STORED, .check = check_allowed_ids},          \
        {"bad_words", FIELD_ARRAY, FIELD_NOT_STORED, .check = check_bad_words},                    \
        {"logprob_token_ids", FIELD_ARRAY, FIELD_NOT_STORED, .check = check_logprob_ids}, {        \
        "prompt_logprobs", FIELD_INT, IN(prompt_logprobs), -1, 0, MAX_TOP_LOGPROBS                 \
    }

#define MAX_LENGTH_PENALTY 5 /* 2^25 (tokens) to this power fits into a float */
#define SEARCH_FIELDS                                                                              \
    {"best_of", FIELD_INT, IN(best_of), 0, 1, INT32_MAX},                                          \
        {"use_beam_search", FIELD_BOOL, IN(use_beam_search)},                                      \
        {"length_penalty",    FIELD_REAL,        IN(length_penalty), 1,                            \
         -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY},                                                 \
    {                                                                                              \
        "early_stopping", FIELD_ANY, FIELD_NOT_STORED, .check = check_early_stopping               \
    }

#define STRUCTURED_FIELDS                                                                          \
    {"response_format", FIELD_OBJECT, FIELD_NOT_STORED, .check = check_response_format},           \
        {"structured_outputs", FIELD_OBJECT, FIELD_NOT_STORED, .check = check_structured_outputs}, \
        {"guided_json", FIELD_ANY, FIELD_NOT_STORED, .check = check_constraint},                   \
        {"guided_regex", FIELD_STRING, FIELD_NOT_STORED, .check = check_constraint},               \
        {"guided_choice", FIELD_ARRAY, FIELD_NOT_STORED, .check = check_constraint},               \
        {"guided_grammar", FIELD_STRING, FIELD_NOT_STORED, .check = check_constraint},             \
        {"structural_tag", FIELD_ANY, FIELD_NOT_STORED, .check = check_constraint},                \
        {"grammar", FIELD_STRING, FIELD_NOT_STORED, .check = check_constraint}, {                  \
        "json_schema", FIELD_ANY, FIELD_NOT_STORED, .check = check_constraint                      \
    }

#define DELIVERY_FIELDS                                                                            \
    {"seed", FIELD_ANY, FIELD_NOT_STORED, .check = check_seed},                                    \
        {"stream", FIELD_BOOL, IN(stream)},                                                        \
        {"stream_options", FIELD_OBJECT, FIELD_NOT_STORED, .check = check_stream_options},         \
        {"speculative_tokens", FIELD_INT, IN(speculative_tokens), MAX_DRAFTS, 0, MAX_DRAFTS},      \
        {"receipt", FIELD_BOOL, IN(receipt), .check = check_receipt},                              \
        {"return_token_ids", FIELD_BOOL, IN(return_token_ids)},                                    \
        {"user", FIELD_STRING, FIELD_NOT_STORED},                                                  \
        {"priority", FIELD_INT, IN(priority), 0, INT32_MIN, INT32_MAX},                            \
        {"deadline_ms", FIELD_INT, IN(deadline_ms), 0, 1, MAX_DEADLINE_MS},                        \
        {"request_id", FIELD_STRING, FIELD_NOT_STORED, .check = check_request_id}, {               \
        "cache_salt", FIELD_STRING, FIELD_NOT_STORED, .check = check_cache_salt                    \
    }

/* ---- parts of an answer (response.c) -------------------------------------------------------- */

/* Writes `{"id":…` up to "choices": the beginning of all answers to a request. */
void write_envelope(struct buf *out, const struct api_answer *answer, const char *object);

/* Writes the end of a choice without its brace: `,"finish_reason":…` up to and including the token
 * ids. */
void write_choice_end(struct buf *out, const struct api_choice *choice);

/* Writes `,"prompt_token_ids":[…]` if the request asked for them. */
void write_prompt_ids(struct buf *out, const struct api_choice *choice);

/* Writes `,"prompt_logprobs":[null,{"ID":{…}},…]` if the request asked for them. */
void write_prompt_logprobs(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choice);

/* Writes a finite number: JSON cannot represent infinity. */
void write_logprob(struct buf *out, float logprob);

/* Writes the usage object, or null. */
void write_usage(struct buf *out, const struct api_usage *usage);

/* Write an event up to its choices, and from there up to its last brace. If the request asked for
 * usage, every chunk has the field. */
void write_chunk_start(struct buf *out, const struct api_answer *answer, const char *object);
void write_chunk_end(struct buf *out, const struct api_answer *answer,
                     const struct api_usage *usage);

/* Write `data: [DONE]`, and an event with the body of an error. */
void write_done(struct buf *out, const struct api_answer *answer, const struct api_usage *usage);
void write_error_event(struct buf *out, const struct api_answer *answer, const struct err *err);

/* The members of struct api that describe streams and errors of OpenAI's APIs. */
#define OPENAI_FORM                                                                                \
    .stream_type = "text/event-stream", .keep_alive = ": keep-alive\n",                            \
    .answer_members = "id object created model choices usage", .write_done = write_done,           \
    .write_error_event = write_error_event, API_OPENAI_ERRORS

#endif
