/* The long and pure part of a request, on a worker thread: JSON, template, tokens. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"
#include "server/prompt.h"

static enum status prepare_chat(struct job *job, struct job_prompt *prompt, struct err *err) {
    const struct api_request *request = job->request;
    struct chat_input input = prompt_chat_input(job->app->engine);
    input.messages = request->messages;
    input.tools = request->tools;
    input.extra = request->template_kwargs;
    input.add_generation_prompt = request->add_generation_prompt;
    input.continue_final_message = request->continue_final_message;
    return prompt_from_messages(job->app->engine, &input, &prompt->ids, &prompt->n_ids, err);
}

/* Logprobs of prompts that one answer may hold: some 30 bytes each, and the whole answer is in
 * memory. Tokens that are generated bound themselves by the time they take. */
#define MAX_ECHOED_LOGPROBS (4 << 20)

static enum status check_echo(const struct job *job, const struct job_prompt *prompt,
                              struct err *err) {
    const struct api_request *request = job->request;
    int64_t tokens = (int64_t)job->prompt_tokens + prompt->n_ids;
    int64_t logprobs = tokens * request->n * (request->sampling.n_logprobs + 1);
    if (!request->echo || logprobs <= MAX_ECHOED_LOGPROBS) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, "logprobs",
                   "'echo' with these 'logprobs' would give more than %d numbers, which is the "
                   "most: ask for fewer 'logprobs', choices or prompts at a time.",
                   MAX_ECHOED_LOGPROBS);
}

/* What echo gives back: the client's own text, or the text of its ids. */
static void prepare_echo(struct job *job, struct job_prompt *prompt,
                         const struct api_prompt *asked) {
    const struct tokenizer *tokenizer = engine_tokenizer(job->app->engine);
    prompt->text = asked->text;
    prompt->text_length = asked->length;
    if (asked->ids) {
        detokenize(tokenizer, prompt->ids, prompt->n_ids, false, &prompt->decoded_text);
        prompt->text = prompt->decoded_text.data ? prompt->decoded_text.data : "";
        prompt->text_length = prompt->decoded_text.length;
    }
    if (job->request->sampling.n_logprobs < 0) return;
    prompt->prompt_logprobs = mem_calloc((size_t)prompt->n_ids, sizeof *prompt->prompt_logprobs);
    struct detokenizer detokenizer = {.tokenizer = tokenizer};
    struct buf text = {0};
    int offset = 0;
    bool adds_bos = !asked->ids && tokenizer_adds_bos(tokenizer); /* it has no text of its own */
    for (int i = 0; i < prompt->n_ids; i++) {
        prompt->prompt_logprobs[i].text_offset = offset;
        prompt->prompt_logprobs[i].sampled.id = prompt->ids[i];
        if (i == 0 && adds_bos) continue;
        buf_clear(&text);
        detokenizer_add(&detokenizer, prompt->ids[i], &text);
        offset += utf8_count(text.data, text.length);
    }
    buf_free(&text);
}

/* A seed for a prompt that came without one: from --seed and a count, so that a server started
 * again with the same seed draws the same for the same sequence of requests, or from the system. */
static uint64_t fresh_seed(struct app *app) {
    uint64_t count = atomic_fetch_add(&app->n_seeds, 1);
    return app->limits.default_seed + count * 0x9E3779B97F4A7C15u;
}

static void fill_generation(struct job *job, struct job_prompt *prompt) {
    const struct api_request *request = job->request;
    struct generation *g = &prompt->generation;
    int room = job->app->limits.max_model_len - prompt->n_ids;
    g->prompt = prompt->ids;
    g->n_prompt = prompt->n_ids;
    g->n = request->n;
    g->max_tokens = request->max_tokens >= 0 ? request->max_tokens : room > 1 ? room : 1;
    g->min_tokens = request->min_tokens;
    g->sampling = request->sampling;
    if (!request->has_seed) g->sampling.seed = fresh_seed(job->app);
    g->prompt_logprobs = prompt->prompt_logprobs ? request->sampling.n_logprobs : -1;
    g->priority = request->priority;
    memcpy(g->cache_salt, request->cache_salt, sizeof g->cache_salt);
    g->owner = prompt;
    g->n_stop_ids = request->n_stop_ids;
    memcpy(g->stop_ids, request->stop_ids, sizeof g->stop_ids);
    int n_ends;
    const int32_t *ends = engine_end_ids(job->app->engine, &n_ends);
    for (int i = 0; i < n_ends && !request->ignore_eos && g->n_stop_ids < MAX_STOP_IDS; i++) {
        g->stop_ids[g->n_stop_ids++] = ends[i];
    }
}

static enum status prepare_prompt(struct job *job, int index, struct err *err) {
    struct job_prompt *prompt = &job->prompts[index];
    const struct api_request *request = job->request;
    prompt->job = job;
    enum status status;
    if (job->kind == API_CHAT) {
        status = prepare_chat(job, prompt, err);
    } else {
        status = prompt_from_text(job->app->engine, &request->prompts[index], true, &prompt->ids,
                                  &prompt->n_ids, err);
    }
    if (status) return status;
    if (check_echo(job, prompt, err)) return err->status;
    if (request->echo) prepare_echo(job, prompt, &request->prompts[index]);
    fill_generation(job, prompt);
    prompt->choices = mem_calloc((size_t)request->n, sizeof *prompt->choices);
    for (int i = 0; i < request->n; i++) choice_init(&prompt->choices[i], job);
    return STATUS_OK;
}

static void prepare_prompts(struct job *job) {
    const struct api_request *request = job->request;
    memcpy(job->id, request->id, sizeof job->id);
    job->n_prompts = job->kind == API_CHAT ? 1 : request->n_prompts;
    job->prompts = mem_calloc((size_t)job->n_prompts, sizeof *job->prompts);
    for (int i = 0; i < job->n_prompts; i++) {
        if (prepare_prompt(job, i, &job->err)) return;
        job->prompt_tokens += job->prompts[i].n_ids;
    }
    job->n_open = job->n_prompts * request->n;
}

void job_prepare(struct job *job, const char *body, size_t length) {
    const struct api_limits *limits = &job->app->limits;
    if (api_request_parse(&job->request, job->kind, body, length, limits, &job->err)) return;
    prepare_prompts(job);
}

void job_prepare_tree(struct job *job, struct cJSON *body) {
    if (api_request_take(&job->request, job->kind, body, &job->app->limits, &job->err)) return;
    prepare_prompts(job);
}
