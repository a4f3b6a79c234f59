/* Prepares a request on a worker thread: JSON, template, tokens. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/app/promised/promised.h"
#include "server/generation/job.h"
#include "server/generation/prompt.h"
#include "server/json/json.h"

/* Bytes of a logprob in an answer, with the text of a typical token. */
#define LOGPROB_BYTES 100

/* Bytes of an id and its comma. */
#define ID_BYTES 11

/* Bytes of an embedding's number and its comma, and of one in base64. */
#define NUMBER_BYTES 14
#define BASE64_BYTES 6

/* Returns the bytes of a prompt's vectors or labels in the answer, and of the hidden vectors that
 * are kept for them. */
static size_t reading_bytes(const struct generation_job *job, const struct prompt_run *run) {
    const struct api_request *request = job->request;
    const struct api_limits *limits = &job->app->limits;
    int n = request->dimensions > 0 ? request->dimensions : limits->embedding_size;
    if (request->classifies) n = limits->classifier->n_labels;
    size_t bytes = (size_t)n * (request->as_base64 ? BASE64_BYTES : NUMBER_BYTES);
    if (!request->of_tokens) return bytes;
    return (size_t)run->n_ids * (bytes + (size_t)limits->hidden_size * sizeof(double));
}

/* Returns the number of best tokens per prompt token, as either field requests; -1: no logprobs. */
static int best_of_prompt(const struct api_request *request) {
    int echoed = request->echo ? request->sampling.n_logprobs : -1;
    return echoed > request->prompt_logprobs ? echoed : request->prompt_logprobs;
}

/* Reserves memory for the part of the answer that repeats this prompt: it is known before the
 * generation, and a short body may request a large one. Fails if it exceeds the limit of one answer
 * or the memory available. */
static enum status reserve_answer(struct generation_job *job, const struct prompt_run *run,
                                  const struct api_prompt *asked, struct err *err) {
    const struct api_request *request = job->request;
    size_t each = 0, n_ids = (size_t)run->n_ids, numbers = 0;
    size_t copies = job->api->has_one_prompt ? 1 : (size_t)request->n_generated;
    const char *param = job->api->reads;
    if (request->hidden != HIDDEN_NONE) each += reading_bytes(job, run);
    each += (size_t)asked->n_read_ids * LOGPROB_BYTES;
    if (request->return_token_ids) each += n_ids * ID_BYTES, param = "return_token_ids";
    if (job->receipt.is_made) each += n_ids * ID_BYTES + job->receipt.body.length;
    if (request->echo) each += json_string_bound(run->text.data, run->text.length), param = "echo";
    if (request->echo && request->sampling.n_logprobs >= 0) {
        numbers += (size_t)request->sampling.n_logprobs + 1;
        param = "logprobs";
    }
    if (request->prompt_logprobs >= 0) {
        numbers += (size_t)request->prompt_logprobs + 1;
        param = "prompt_logprobs";
    }
    job->answer_bytes += copies * (each + n_ids * numbers * LOGPROB_BYTES);
    return answer_reserve(&job->app->answers, &job->share, job->answer_bytes, param, err);
}

/* The number of tokens that were added before and after the client's prompt. */
struct added {
    int before, after;
};

static struct added added_tokens(const struct generation_job *job, const struct api_prompt *asked) {
    const int32_t *before, *after;
    struct added added = {0, 0};
    if (asked->ids || !job->request->add_special_tokens) return added;
    tokenizer_around(engine_tokenizer(job->app->engine), &before, &added.before, &after,
                     &added.after);
    return added;
}

static bool keeps_beginning(const struct api_request *request) {
    if (request->kept_side != KEEP_USUAL) return request->kept_side == KEEP_BEGINNING;
    return request->api->reads != NULL;
}

/* Keeps only the last tokens of a prompt, after the model's begin tokens, or the first ones, before
 * its end tokens. Returns true if the prompt was longer. */
static bool truncate_prompt(const struct generation_job *job, struct prompt_run *run,
                            const struct api_prompt *asked) {
    const struct api_request *request = job->request;
    const struct added added = added_tokens(job, asked);
    int keep = request->truncate_prompt_tokens;
    int output = request->max_tokens >= 0 ? request->max_tokens : 1;
    if (keep == 0) return false;
    if (keep < 0) keep = job->app->limits.max_model_len - output;
    if (keep < 1) keep = 1;
    if (run->n_ids <= keep) return false;
    int first = min_int(added.before, keep);
    if (keeps_beginning(request)) first = keep - min_int(added.after, keep - first);
    size_t kept = (size_t)(keep - first);
    memmove(run->ids + first, run->ids + run->n_ids - kept, kept * sizeof *run->ids);
    run->n_ids = keep;
    return true;
}

/* Encodes a prompt. A text that is cut to its beginning may have any length: half of it is encoded
 * until that is short enough to count. */
static enum status encode_prompt(struct generation_job *job, const struct api_prompt *asked,
                                 struct prompt_run *run, struct err *err) {
    const struct api_request *request = job->request;
    const bool may_cut = request->truncate_prompt_tokens != 0 && keeps_beginning(request);
    struct api_prompt part = *asked;
    for (;;) {
        enum status status = prompt_encode(job->app->engine, &part, request->add_special_tokens,
                                           &job->seen, &run->ids, &run->n_ids, err);
        bool is_long = status && strcmp(err->code, "context_length_exceeded") == 0;
        part.n_ids /= 2;
        part.length = (size_t)utf8_cut(part.text, part.length, (int)(part.length / 2));
        bool has_part = !part.messages && !part.infills && (part.n_ids > 0 || part.length > 0);
        if (!is_long || !may_cut || !has_part) return status;
        *err = (struct err){0};
    }
}

/* Prepares echo: the client's text, or the text of its ids. */
static void prepare_echo(const struct generation_job *job, struct prompt_run *run,
                         const struct api_prompt *asked, bool truncated) {
    const struct tokenizer *tokenizer = engine_tokenizer(job->app->engine);
    struct added added = added_tokens(job, asked);
    int first = min_int(added.before, run->n_ids);
    int n = max_int(run->n_ids - first - added.after, 0);
    if (asked->ids || truncated)
        detokenize(tokenizer, run->ids + first, n, false, &run->text);
    else
        buf_add(&run->text, asked->text, asked->length);
}

static void prepare_prompt_logprobs(const struct generation_job *job, struct prompt_run *run,
                                    const struct api_prompt *asked) {
    run->prompt_logprobs = mem_calloc((size_t)run->n_ids, sizeof *run->prompt_logprobs);
    struct detokenizer detokenizer = {.tokenizer = engine_tokenizer(job->app->engine)};
    struct buf text = {0};
    int offset = 0;
    int before = added_tokens(job, asked).before; /* these tokens are not part of the text */
    for (int i = 0; i < run->n_ids; i++) {
        run->prompt_logprobs[i].text_offset = offset;
        run->prompt_logprobs[i].sampled.id = run->ids[i];
        if (i < before) continue;
        buf_clear(&text);
        detokenizer_add(&detokenizer, run->ids[i], &text);
        offset += utf8_count(text.data, text.length);
    }
    buf_free(&text);
}

/* A model that has filled the gap may begin another file: that ends the answer. */
static void add_infill_ends(const struct generation_job *job, struct generation *g) {
    const int32_t *fim = tokenizer_fim(engine_tokenizer(job->app->engine));
    assert(fim);
    for (int i = FIM_REPOSITORY; i < N_FIM; i++) {
        if (fim[i] >= 0 && g->n_stop_ids < MAX_STOP_IDS) g->stop_ids[g->n_stop_ids++] = fim[i];
    }
}

static void fill_generation(struct generation_job *job, struct prompt_run *run) {
    const struct api_request *request = job->request;
    struct generation *g = &run->generation;
    int room = job->app->limits.max_model_len - run->n_ids;
    g->prompt = run->ids;
    g->n_prompt = run->n_ids;
    g->n = request->n_generated;
    g->beams = request->beams;
    g->max_tokens = request->max_tokens >= 0 ? request->max_tokens : room > 1 ? room : 1;
    g->min_tokens = request->min_tokens;
    g->max_drafts = request->speculative_tokens;
    g->sampling = request->sampling;
    if (request->n_generated > request->n) /* the best ones have the best mean logprobs */
        g->sampling.n_logprobs = max_int(g->sampling.n_logprobs, 0);
    if (!request->has_seed) {
        /* The seed depends on --seed (or a random number) and a counter. So a restarted server with
         * the same --seed draws the same seeds for the same sequence of requests. */
        uint64_t count = atomic_fetch_add(&job->app->n_seeds, 1);
        g->sampling.seed = job->app->limits.default_seed + count * 0x9E3779B97F4A7C15u;
    }
    g->prompt_logprobs = best_of_prompt(request);
    if (g->max_tokens > 0) {
        g->logprob_ids = request->logprob_ids;
        g->n_logprob_ids = request->n_logprob_ids;
    }
    g->priority = request->priority;
    g->share = job->key ? job->key->share : 0;
    g->client = auth_key_client(job->app, job->key);
    for (int i = 0; i < 2; i++) g->cache_salt[i] = request->cache_salt[i] ^ job->key_salt[i];
    if (job->adapter) generation_use_adapter(g, job->adapter->number, job->adapter->id);
    g->owner = run;
    g->name = job->id;
    g->n_stop_ids = request->n_stop_ids;
    memcpy(g->stop_ids, request->stop_ids, sizeof request->stop_ids);
    int n_ends;
    const int32_t *ends = engine_end_ids(job->app->engine, &n_ends);
    for (int i = 0; i < n_ends && !request->ignore_eos && g->n_stop_ids < MAX_STOP_IDS; i++) {
        g->stop_ids[g->n_stop_ids++] = ends[i];
    }
    if (job->app->limits.sampling) generation_suppress(g, job->app->limits.sampling);
    if (request->prompts[0].infills) add_infill_ends(job, g);
    assert(g->n >= 1 && g->n <= MAX_CHOICES && g->n_stop_ids <= MAX_STOP_IDS);
}

/* Prepares a predicted output. A prediction longer than the context is an error of the client. */
static enum status prepare_prediction(const struct generation_job *job, struct prompt_run *run,
                                      struct err *err) {
    const struct api_request *request = job->request;
    const int context = job->app->limits.max_model_len;
    if (!request->prediction) return STATUS_OK;
    int n = tokenizer_encode(engine_tokenizer(job->app->engine), request->prediction,
                             request->prediction_length, SPECIAL_AS_TEXT, false, context,
                             &run->predicted);
    if (n < 0)
        return err_set(err, STATUS_INVALID_REQUEST, "prediction",
                       "'prediction' has more tokens than the model's context, which holds %d.",
                       context);
    run->generation.predicted = run->predicted;
    run->generation.n_predicted = n;
    return STATUS_OK;
}

/* The memory of the results is reserved in the job's share. */
static void prepare_reading(const struct generation_job *job, struct prompt_run *run,
                            const struct api_prompt *asked) {
    struct generation *g = &run->generation;
    g->hidden = job->request->hidden;
    g->n_second = asked->n_second;
    g->n_logprob_ids = asked->n_read_ids;
    g->logprob_ids = asked->read_ids;
    if (asked->n_read_ids > 0) run->read = mem_calloc((size_t)asked->n_read_ids, sizeof *run->read);
    g->keeps_hidden = job->request->of_tokens;
    const size_t vectors = g->keeps_hidden ? (size_t)run->n_ids : 1;
    if (g->hidden != HIDDEN_NONE)
        run->hidden_sum =
            mem_calloc(vectors * (size_t)job->app->limits.hidden_size, sizeof *run->hidden_sum);
    g->hidden_sum = run->hidden_sum;
    assert(generation_reads(g));
}

/* Reads blocks of the prompt that the prefix cache lacks, if the store has them. At least one token
 * is computed. Scored prompts are computed whole. */
static void read_stored(const struct generation_job *job, struct prompt_run *run) {
    struct generation *g = &run->generation;
    struct scheduler_stats stats;
    bool is_public = g->cache_salt[0] == 0 && g->cache_salt[1] == 0;
    if (!job->app->prefix_store || !is_public) return;
    if (g->prompt_logprobs >= 0 || generation_reads(g)) return;
    scheduler_stats(job->app->scheduler, &stats);
    double each = stats.step_rows > 0 ? (double)stats.step_ns / (double)stats.step_rows : 0;
    g->restored = prefix_store_read(job->app->prefix_store, run->ids, run->n_ids - 1, each);
}

static enum status prepare_prompt(struct generation_job *job, int index, struct err *err) {
    struct prompt_run *run = &job->prompts[index];
    const struct api_request *request = job->request;
    const struct api_prompt *asked = &request->prompts[index];
    assert(!run->job);
    run->job = job;
    job->seen = job->format;
    job->seen.reasoning = job->app->limits.reasoning_format;
    if (encode_prompt(job, asked, run, err)) return err->status;
    if (job->format.reasoning) job->format = job->seen;
    if (index == 0 && job_ask_for_calls(job, err)) return err->status;
    bool truncated = truncate_prompt(job, run, asked);
    if (request->echo) prepare_echo(job, run, asked, truncated);
    if (reserve_answer(job, run, asked, err)) return err->status;
    if (best_of_prompt(request) >= 0) prepare_prompt_logprobs(job, run, asked);
    fill_generation(job, run);
    if (job->api->reads) prepare_reading(job, run, asked);
    if (prepare_prediction(job, run, err)) return err->status;
    const int context = job->app->limits.max_model_len;
    if (run->n_ids > context - (run->generation.max_tokens > 0)) {
        const char *param = asked->messages ? "messages" : "prompt";
        return api_context_exceeded(err, param, context, false, run->n_ids);
    }
    read_stored(job, run);
    return STATUS_OK;
}

/* Refuses text, and rows of logits, from a model without a head for text. */
static enum status refuse_text(const struct generation_job *job, struct err *err) {
    const struct model_config *config = engine_model(job->app->engine);
    if (job->request->hidden != HIDDEN_NONE || !(config->is_encoder || config->lacks_text))
        return STATUS_OK;
    if (config->lacks_text || job->app->limits.classifier)
        return err_set(err, STATUS_INVALID_REQUEST, "model",
                       "This model has no head for text: it classifies (POST %s).",
                       job->app->limits.classifier && job->app->limits.classifier->of_tokens
                           ? "/v1/pooling"
                           : "/v1/classify");
    return err_set(err, STATUS_INVALID_REQUEST, "model",
                   "The model is an encoder: it gives embeddings (POST /v1/embeddings) and no "
                   "text.");
}

/* Sets how the answers of a chat are parsed; other answers are text. */
static void set_format(struct generation_job *job) {
    const struct api_request *request = job->request;
    const struct api_limits *limits = &job->app->limits;
    if (!request->prompts[0].messages) return;
    if (!request->keeps_thoughts) job->format.reasoning = limits->reasoning_format;
    if (limits->tool_format) job->format.prefix = tool_format_prefix(limits->tool_format);
    if (request->tool_choice == TOOL_CHOICE_NONE) return;
    job->tools = tool_set_new(request->prompts[0].tools, &request->callable);
    job->format.tools = limits->tool_format;
    job->format.known = job->tools;
    job->format.stream_calls = true; /* the grammar makes this possible */
    job->format.one_call = !request->parallel_tool_calls || request->callable.only;
}

bool job_is_abandoned(struct generation_job *job) {
    if (!job->abandoned || !atomic_load(job->abandoned)) return false;
    err_set(&job->err, STATUS_CANCELLED, NULL, "The client has left.");
    return true;
}

static void prepare_prompts(struct generation_job *job) {
    const struct api_request *request = job->request;
    job->prompts = mem_calloc((size_t)request->n_prompts, sizeof *job->prompts);
    job->n_prompts = request->n_prompts;
    for (int i = 0; i < job->n_prompts; i++) {
        if (job_is_abandoned(job)) break;
        request->prompts[i].time_s = request->created;
        if (prepare_prompt(job, i, &job->err)) {
            prompt_name_input(request, i, &job->err);
            break;
        }
        job->prompt_tokens += job->prompts[i].n_ids;
    }
    job->n_open = job->n_prompts * request->n_generated;
}

/* Prepares the choices of a prompt after all constraints are compiled. */
static void prepare_choices(struct generation_job *job, struct prompt_run *run) {
    struct generation *g = &run->generation;
    const int n = job->request->n_generated;
    g->grammar = job->grammar;
    g->vocabulary = job->vocabulary;
    g->n_begin_ids = job->n_begin_ids;
    g->begin_ids = job->begin_ids;
    g->thoughts = job->thoughts;
    run->choices = mem_calloc((size_t)n, sizeof *run->choices);
    for (int i = 0; i < n; i++) choice_init(&run->choices[i], job, i);
}

static enum job_progress constrain(struct generation_job *job, bool may_compile) {
    enum job_progress progress = job_constrain(job, may_compile);
    if (progress != JOB_PREPARED || job->err.status) return progress;
    for (int i = 0; i < job->n_prompts; i++) prepare_choices(job, &job->prompts[i]);
    return JOB_PREPARED;
}

/* Names the client's fields in the error of a translated body. */
static enum job_progress with_names(struct generation_job *job, enum job_progress progress) {
    const struct api_request *request = job->request;
    if (job->err.status && request && request->names)
        api_rename(&job->err, request->names, request->names_length);
    return progress;
}

/* A key may limit how urgent its requests are. */
static enum status check_priority(struct generation_job *job) {
    const struct api_key *key = job->key;
    if (!key || job->request->priority >= key->best_priority) return STATUS_OK;
    return err_set(&job->err, STATUS_INVALID_REQUEST, "priority",
                   "This key may ask for a 'priority' of %d or more, not %d: lower numbers are "
                   "served first.",
                   key->best_priority, job->request->priority);
}

/* Receipts are verified by computing the answer again, in any time. */
static enum status check_timed(struct generation_job *job) {
    if (!job->request->receipt || !job_has_deadline(job)) return STATUS_OK;
    return err_set(&job->err, STATUS_INVALID_REQUEST, "deadline_ms",
                   "An answer with a receipt must not depend on time: leave out the deadline, or "
                   "'receipt'.");
}

/* A promise of an earlier process needs its adapter with the same content. */
static enum status check_adapter(struct generation_job *job, const char *name) {
    const char *now = job->adapter ? job->adapter->hash : "";
    if (!job->past || strcmp(job->past->adapter, now) == 0) return STATUS_OK;
    err_set(&job->err, STATUS_SERVER_ERROR, "model",
            "The server was started again and the adapter '%.128s' %s, so the answer cannot be "
            "completed: send the request again, with a new Idempotency-Key if it has one.",
            name, *now ? "has other files" : "is missing");
    snprintf(job->err.code, sizeof job->err.code, "server_changed");
    return job->err.status;
}

/* Holds the adapter that the body named as its model, before the parser accepted that name. A name
 * may have been unloaded since then. */
static enum status hold_adapter(struct generation_job *job, const char *name) {
    struct api_limits *limits = &job->app->limits;
    bool is_base = !limits->adapters || !name[0] || api_serves_base(limits, name, strlen(name));
    if (!is_base) job->adapter = adapters_hold(job->app->adapters, name);
    if (check_adapter(job, name)) return job->err.status;
    if (is_base || job->adapter || limits->any_model) return STATUS_OK;
    err_set(&job->err, STATUS_NOT_FOUND, "model", "The adapter '%s' was just unloaded.", name);
    snprintf(job->err.code, sizeof job->err.code, "model_not_found");
    return STATUS_NOT_FOUND;
}

static enum job_progress read_body(struct generation_job *job, struct json *body) {
    char model[sizeof((struct api_adapter *)0)->name];
    snprintf(model, sizeof model, "%s", json_text(json_member(body, "model")));
    if (job_replay(job, body)) {
        json_free(body);
        return JOB_PREPARED;
    }
    job_keep_body(job, body);
    if (job->api->parse(&job->request, body, &job->app->limits, &job->err)) return JOB_PREPARED;
    if (hold_adapter(job, model)) return JOB_PREPARED;
    struct api_request *request = job->request;
    if (job->created_s) request->created = job->created_s;
    job_use_past(job);
    memcpy(job->id, request->id, sizeof job->id);
    if (job->api->state_size > 0) job->state = mem_calloc(1, job->api->state_size);
    if (refuse_text(job, &job->err) || check_priority(job)) return JOB_PREPARED;
    if (check_timed(job)) return JOB_PREPARED;
    if (job_forbid(job, &job->err) || job_find_breakers(job, &job->err)) return JOB_PREPARED;
    set_format(job);
    if (!job->api->reads) prompt_list_ignored(job->app->engine, request, &job->ignored);
    prepare_prompts(job);
    job_use_past_seeds(job);
    if (!job->err.status) job_keep_settings(job);
    if (!job->err.status) job_limit_thoughts(job, &job->err);
    api_request_drop_tree(request);
    return job->err.status ? JOB_PREPARED : constrain(job, false);
}

enum job_progress job_read(struct generation_job *job, struct json *body) {
    assert(!job->request && !job->err.status);
    return with_names(job, read_body(job, body));
}

enum job_progress job_compile(struct generation_job *job) {
    assert(job->request && !job->err.status && job->step != STEP_COMPILED);
    bool may_compile = job->step != STEP_ORIGIN; /* it may have waited in the first lane */
    return with_names(job, job_is_abandoned(job) ? JOB_PREPARED : constrain(job, may_compile));
}

void job_prepare(struct generation_job *job, struct json *body) {
    enum job_progress progress = job_read(job, body);
    if (progress == JOB_UNCOMPILED) progress = job_compile(job);
    assert(progress == JOB_PREPARED);
    (void)progress;
}

static enum job_progress begin(struct generation_job *job, const char *text, size_t length) {
    struct json *body;
    if (json_parse_strict(&body, "The body", text, length, &job->err)) return JOB_PREPARED;
    const struct continuation to = {job->app, job->api, job->key};
    if (!job->past && promise_continue(&to, &body, &job->body, &job->err)) {
        json_free(body);
        return JOB_PREPARED;
    }
    return job_read(job, body);
}

enum async_next job_run(struct generation_job *job, const char *body, size_t length) {
    switch (job->request ? job_compile(job) : begin(job, body, length)) {
    case JOB_UNCOMPILED:
        return ASYNC_COMPILE;
    case JOB_WAITS:
        return ASYNC_WAIT;
    case JOB_PREPARED:
        break;
    }
    return ASYNC_ANSWER;
}
