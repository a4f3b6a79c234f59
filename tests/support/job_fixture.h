/* A generation job without a model, a scheduler or a server. The functions below replace those of
 * the engine and the scheduler that jobs call: the linker prefers a program's own functions. So
 * exactly one source of a program includes this header, and it produces the events itself.
 *
 * The vocabulary is small: each printable ASCII character is a token, and the end token is JOB_END.
 */
#ifndef PENSTOCK_TESTS_JOB_FIXTURE_H
#define PENSTOCK_TESTS_JOB_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "server/fingerprint/fingerprint.h"
#include "server/generation/grammar_store.h"
#include "server/generation/job.h"
#include "server/openai/internal.h"
#include "tests/support/tokenizer_fixture.h"

#define JOB_END 761
#ifndef JOB_CONTEXT
#define JOB_CONTEXT 64 /* tokens */
#endif

static struct tokenizer *vocabulary;
static struct chat_template *template; /* for chats; NULL: there is no template */
static int n_submitted, n_cancels;     /* numbers of calls */
static int refused_submit = -1;        /* index of the submit that fails, from 0 */

const struct tokenizer *engine_tokenizer(const struct engine *engine) {
    (void)engine;
    return vocabulary;
}

const int32_t *engine_end_ids(const struct engine *engine, int *n) {
    static const int32_t ends[] = {JOB_END};
    (void)engine;
    *n = 1;
    return ends;
}

const struct engine_memory *engine_memory(const struct engine *engine) {
    static const struct engine_memory memory = {.max_model_len = JOB_CONTEXT};
    (void)engine;
    return &memory;
}

const struct model_config *engine_model(const struct engine *engine) {
    static const struct model_config model = {.is_encoder = false};
    (void)engine;
    return &model;
}

const struct chat_template *engine_chat_template(const struct engine *engine, bool with_tools) {
    (void)engine;
    (void)with_tools;
    return template;
}

enum status scheduler_submit(struct scheduler *scheduler, struct generation *generation,
                             struct err *err) {
    (void)scheduler;
    ck_assert_ptr_nonnull(generation->owner);
    if (n_submitted++ != refused_submit) return STATUS_OK;
    return err_set(err, STATUS_OVERLOADED, NULL, "The queue is full.");
}

void scheduler_cancel(struct scheduler *scheduler, struct generation *generation) {
    (void)scheduler;
    (void)generation;
    n_cancels++;
}

void scheduler_stats(struct scheduler *scheduler, struct scheduler_stats *out) {
    (void)scheduler;
    *out = (struct scheduler_stats){0};
}

void scheduler_load_error(struct scheduler *scheduler, struct err *err) {
    (void)scheduler;
    err_set(err, STATUS_UNAVAILABLE, NULL, "Lower {max-num-seqs}.");
}

void scheduler_set_weights(struct scheduler *scheduler, const int *weights, int n) {
    (void)scheduler;
    (void)weights;
    (void)n;
}

int scheduler_retry_s(struct scheduler *scheduler) {
    (void)scheduler;
    return 1;
}

void fingerprint_make(struct fingerprint *out, const struct options *options,
                      const struct engine *engine, const char *model_name) {
    (void)options;
    (void)engine;
    (void)model_name;
    *out = (struct fingerprint){0};
}

/* ---- a job ---------------------------------------------------------------------------------- */

static struct app app;
static struct generation_job job;

/* Makes an empty job of an API, whose answers have these formats. */
static inline void job_begin(const struct api *api, const struct job_listener *listener,
                             const char *tools, const char *reasoning) {
    static struct grammar_store *grammars;
    if (!vocabulary) vocabulary = fixture_tokenizer("gpt-2");
    if (!grammars) grammars = grammar_store_new(NULL, tokenizer_size(vocabulary), 1 << 20, 0);
    n_submitted = n_cancels = 0;
    refused_submit = -1;
    memset(&app, 0, sizeof app);
    app.model_name = "m";
    app.grammars = grammars;
    app.limits = (struct api_limits){.model = "m",
                                     .V = tokenizer_size(vocabulary),
                                     .max_model_len = JOB_CONTEXT,
                                     .max_choices = 8,
                                     .max_prompts = 8,
                                     .has_chat_template = template != NULL,
                                     .tool_format = tool_format_find(tools),
                                     .reasoning_format = reasoning_format_find(reasoning)};
    job = (struct generation_job){.app = &app, .api = api, .listener = listener};
}

/* Makes the job of a completion's body, or of a chat's body whose answers have these formats. */
static inline void job_make_as(const struct api *api, const struct job_listener *listener,
                               const char *tools, const char *reasoning, const char *body) {
    struct json *json;
    job_begin(api, listener, tools, reasoning);
    ck_assert_int_eq(json_parse(&json, "The body", body, strlen(body), &job.err), STATUS_OK);
    job_prepare(&job, json);
}

static inline void job_make(const struct job_listener *listener, const char *body) {
    job_make_as(&api_completions, listener, "none", "none", body);
}

static inline int32_t token_of(char c) {
    int32_t id = tokenizer_find(vocabulary, &c, 1);
    ck_assert_int_ge(id, 0);
    return id;
}

/* Returns an event of choice c of prompt p: a token, with its finish. */
static inline struct event token_event(int p, int c, int32_t id, enum finish finish) {
    return (struct event){.generation = &job.prompts[p].generation,
                          .kind = EVENT_TOKEN,
                          .choice = c,
                          .finish = finish,
                          .sampled = {.id = id}};
}

static inline struct event end_event(int p, int c, enum finish finish) {
    struct event event = token_event(p, c, 0, finish);
    event.kind = EVENT_END;
    return event;
}

#endif
