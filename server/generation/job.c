/* DESIGN: a generation request, from its body to its answer.
 *
 *   job_prepare   converts the body to prompts of token ids (prepare.c, on any thread)
 *   job_submit    submits each prompt to the scheduler as a generation
 *   job_event     handles one event: a choice grows or ends, and the listener is called
 *   on_end        all choices are done, or an error has ended the job
 *   on_idle       the scheduler has returned the last generation: the job may be freed
 *
 * After a job is cancelled, by its listener or by an error, it waits for the last events of its
 * generations, whose memory it owns. After job_prepare, everything runs on one thread: the loop of
 * a server, or the main thread of a batch.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/job.h"

/* The prompts of a request that reads which the scheduler holds at once. The others wait, so that
 * requests of other clients wait for about two steps. */
enum { STEPS_READ_AT_ONCE = 2 };

/* ---- events --------------------------------------------------------------------------------- */

static void end(struct generation_job *job) {
    if (job->listener->on_end) job->listener->on_end(job);
}

/* Ends the job with job->err. */
static void end_failed(struct generation_job *job) {
    assert(job->err.status);
    job->app->metrics.finished_error++;
    job_cancel(job);
    end(job);
}

static void err_late(struct err *err) {
    err_set(err, STATUS_TIMEOUT, "deadline_ms", "The deadline passed before the answer was ready.");
    snprintf(err->code, sizeof err->code, "deadline_exceeded");
}

/* The reason may name a setting as the engine does. */
static void err_unloaded(const struct app *app, struct err *err) {
    struct buf message = {0};
    scheduler_load_error(app->scheduler, err);
    options_message(err->message, &message);
    snprintf(err->message, sizeof err->message, "%s", message.data);
    buf_free(&message);
}

static void fail(struct generation_job *job, enum finish finish) {
    struct app *app = job->app;
    assert(!job->err.status);
    if (app->failure.status)
        job->err = app->failure;
    else if (finish == FINISH_NO_MEMORY)
        err_out_of_memory(&job->err);
    else if (finish == FINISH_TIMEOUT)
        err_late(&job->err);
    else if (finish == FINISH_UNLOADED)
        err_unloaded(app, &job->err);
    else if (finish == FINISH_STUCK)
        err_set(&job->err, STATUS_INVALID_REQUEST, job->request->grammar.field,
                "No next token is allowed: 'allowed_token_ids', 'bad_words' or 'min_tokens' forbid "
                "all tokens that the grammar allows, or the grammar exceeds its memory limit.");
    else
        err_set(&job->err, STATUS_SERVER_ERROR, NULL, "The engine failed on this request.");
    end_failed(job);
}

/* Counts the bytes that a token adds to a whole answer. Fails as answer_reserve does. The chunks of
 * a stream are sent immediately and are not counted. */
static enum status count_token(struct generation_job *job, const struct event *event) {
    enum { PIECE_BYTES = 64 << 10, LOGPROB_BYTES = 100, ID_BYTES = 11, EVENT_BYTES = 256 };
    const struct api_request *request = job->request;
    size_t length, before = job->answer_bytes;
    bool is_kept = job->api->keeps_answer || job->receipt.is_made || job->is_promised;
    bool is_sent = request->stream && !is_kept;
    if (is_sent || event->kind != EVENT_TOKEN) return STATUS_OK;
    tokenizer_token_bytes(engine_tokenizer(job->app->engine), event->sampled.id, &length);
    job->answer_bytes += length;
    if (request->stream && job->is_promised) job->answer_bytes += EVENT_BYTES;
    if (request->return_token_ids) job->answer_bytes += ID_BYTES;
    if (job->receipt.is_made) job->answer_bytes += ID_BYTES;
    if (request->sampling.n_logprobs >= 0)
        job->answer_bytes += (size_t)(1 + event->sampled.n_top) * LOGPROB_BYTES;
    if (before / PIECE_BYTES == job->answer_bytes / PIECE_BYTES) return STATUS_OK;
    return answer_reserve(&job->app->answers, &job->share, job->answer_bytes, "max_tokens",
                          &job->err);
}

static void add_prompt_token(struct prompt_run *run, const struct event *event) {
    assert(run->prompt_logprobs && event->position >= 0 && event->position < run->n_ids);
    struct api_logprob *logprob = &run->prompt_logprobs[event->position];
    assert(!logprob->has_logprob);
    logprob->sampled = event->sampled;
    logprob->has_logprob = true;
}

static void add_read(struct prompt_run *run, const struct event *event) {
    const struct sampled *sampled = &event->sampled;
    assert(run->read && run->n_read + sampled->n_top <= run->generation.n_logprob_ids);
    memcpy(run->read + run->n_read, sampled->top, (size_t)sampled->n_top * sizeof *run->read);
    run->n_read += sampled->n_top;
}

/* Updates the job's counts; an event has the total counts of its choice. */
static void count_predicted(struct generation_job *job, struct choice *choice,
                            const struct event *event) {
    job->predicted_held += event->predicted_held - choice->predicted_held;
    job->predicted_refused += event->predicted_refused - choice->predicted_refused;
    choice->predicted_held = event->predicted_held;
    choice->predicted_refused = event->predicted_refused;
}

/* Counts tokens for the client's key. */
static void charge(const struct generation_job *job, int prompt, int output) {
    if (job->key) key_charge(job->key, prompt, output);
}

/* An event to add to its choice. */
struct addition {
    struct prompt_run *run;
    const struct event *event;
    enum choice_change change;
};

static struct choice *choice_of(const struct addition *addition) {
    return &addition->run->choices[addition->event->choice];
}

static void add(void *arg) {
    struct addition *addition = arg;
    addition->change = choice_add(choice_of(addition), addition->run, addition->event);
}

static void drop_choice(void *addition) {
    choice_free(choice_of(addition));
}

static void add_to_choice(struct generation_job *job, struct prompt_run *run,
                          const struct event *event) {
    struct generation *g = &run->generation;
    struct addition addition = {.run = run, .event = event};
    int i = event->choice;
    int n_reasoning = run->choices[i].n_reasoning;
    if (!mem_run(add, drop_choice, &addition)) {
        fail(job, FINISH_NO_MEMORY);
        return;
    }
    enum choice_change change = addition.change;
    if (change == CHOICE_UNCHANGED) return;
    if (event->n_cached > run->n_cached) {
        charge(job, run->n_cached - event->n_cached, 0);
        job->cached_tokens += event->n_cached - run->n_cached;
        run->n_cached = event->n_cached;
    }
    job->completion_tokens += event->kind == EVENT_TOKEN;
    charge(job, 0, event->kind == EVENT_TOKEN);
    job->reasoning_tokens += run->choices[i].n_reasoning - n_reasoning;
    count_predicted(job, &run->choices[i], event);
    if (change == CHOICE_STOPPED) {
        atomic_fetch_or(&g->cancelled_choices[i / 64], (uint64_t)1 << (i % 64));
        scheduler_cancel(job->app->scheduler, g);
    }
    if (change != CHOICE_GROWN) job->n_open--;
    assert(job->n_open >= 0);
    if (job->listener->on_choice) job->listener->on_choice(job, run, event);
    if (job->n_open == 0 && !job->cancelled) end(job);
}

/* May the scheduler get the next prompt? It has at least one. */
static bool may_submit(const struct generation_job *job) {
    const struct engine_config *config = &job->app->options->engine;
    const int64_t n = STEPS_READ_AT_ONCE, rows = n * config->max_num_batched_tokens,
                  seqs = n * config->max_num_seqs;
    if (job->n_submitted == job->n_prompts) return false;
    return job->n_running == 0 || (job->n_reading < rows && job->n_running < seqs);
}

/* Returns the rows of prompt i that the prompt before it does not have. Whole blocks at their
 * beginning are computed once, if prompts share blocks. */
static int own_rows(const struct generation_job *job, int i) {
    const struct app *app = job->app;
    const struct generation *g = &job->prompts[i].generation;
    const int block = engine_memory(app->engine)->block_size;
    assert(g->n_prompt > 0 && block > 0);
    if (i == 0 || !app->options->scheduler.prefix_caching || engine_model(app->engine)->is_encoder)
        return g->n_prompt;
    const struct generation *before = &job->prompts[i - 1].generation;
    int same = 0, n = min_int(g->n_prompt - 1, before->n_prompt); /* the last row is computed */
    while (same < n && g->prompt[same] == before->prompt[same]) same++;
    return g->n_prompt - same / block * block;
}

/* Returns the time after which the job ends, from the earlier of the two deadlines; 0: never. */
static uint64_t deadline_of(const struct generation_job *job, uint64_t received_ns) {
    int body = job->request->deadline_ms, header = job->deadline_ms;
    int ms = body > 0 && header > 0 ? min_int(body, header) : max_int(body, header);
    assert(ms >= 0 && ms <= MAX_DEADLINE_MS);
    return ms > 0 ? received_ns + (uint64_t)ms * 1000000 : 0;
}

/* Submits the next prompts of an API that reads. They belong to an admitted request, so the queue's
 * limits do not apply to them. */
static void submit_more(struct generation_job *job) {
    while (!job->cancelled && !job->err.status && may_submit(job)) {
        struct prompt_run *run = &job->prompts[job->n_submitted];
        struct generation *g = &run->generation;
        g->received_ns = job->prompts[0].generation.received_ns;
        g->deadline_ns = deadline_of(job, g->received_ns);
        g->is_admitted = job->n_submitted > 0 || job->past;
        if (scheduler_submit(job->app->scheduler, g, &job->err)) return;
        run->n_rows = own_rows(job, job->n_submitted);
        job->n_reading += run->n_rows;
        job->n_submitted++;
        job->n_running++;
    }
}

/* A job of an adapter begins to wait, has its first token, and ends. */
static void adapter_waits(struct generation_job *job) {
    if (!job->adapter || job->n_running == 0) return;
    adapters_count(job->app->adapters, job->adapter, 1, 0);
    job->is_counted = true;
}

static void adapter_begins(struct generation_job *job) {
    if (!job->is_counted || job->has_begun) return;
    adapters_count(job->app->adapters, job->adapter, -1, 1);
    job->has_begun = true;
}

static void adapter_ends(struct generation_job *job) {
    if (!job->is_counted) return;
    adapters_count(job->app->adapters, job->adapter, -!job->has_begun, -job->has_begun);
    job->is_counted = false;
}

/* The scheduler has returned a generation. */
static void returned(struct generation_job *job, const struct generation *g) {
    job->n_running--, job->n_reading -= ((const struct prompt_run *)g->owner)->n_rows;
    assert(job->n_reading >= 0);
    if (job->api->reads && !job->cancelled && !job->err.status) {
        submit_more(job);
        if (job->err.status) end_failed(job);
    }
    if (job->n_running > 0) return;
    adapter_ends(job);
    if (job->listener->on_idle) job->listener->on_idle(job);
}

/* An answer of an API that reads is whole, or an error. */
static bool is_failure(const struct generation_job *job, enum finish finish) {
    if (finish == FINISH_TIMEOUT) return job->api->reads != NULL;
    return finish == FINISH_ERROR || finish == FINISH_STUCK || finish == FINISH_NO_MEMORY ||
           finish == FINISH_UNLOADED;
}

void job_event(const struct event *event) {
    struct prompt_run *run = event->generation->owner;
    struct generation_job *job = run->job;
    bool last = event->last;
    assert(job->n_running > 0 && event->choice >= 0 && event->choice < job->request->n_generated);
    adapter_begins(job);
    job->is_late |= event->finish == FINISH_TIMEOUT;
    if (job->cancelled || job->n_open == 0) {
        if (!run->first_scheduled_ns) run->first_scheduled_ns = event->first_scheduled_ns;
        if (event->finish != FINISH_NONE && choice_drop(&run->choices[event->choice])) {
            job->app->metrics.finished_abort++;
        }
    } else if (is_failure(job, event->finish)) {
        fail(job, event->finish);
    } else if (event->kind == EVENT_PROMPT_TOKEN) {
        add_prompt_token(run, event);
    } else if (event->kind == EVENT_READ) {
        add_read(run, event);
    } else if (count_token(job, event)) {
        end_failed(job);
    } else {
        add_to_choice(job, run, event);
    }
    if (last) returned(job, event->generation);
}

/* ---- submission and end --------------------------------------------------------------------- */

enum status job_submit(struct generation_job *job, uint64_t received_ns) {
    assert(job->request && !job->err.status && job->n_running == 0);
    job->prompts[0].generation.received_ns = received_ns;
    charge(job, job->prompt_tokens, 0);
    if (job->api->reads) submit_more(job);
    for (int i = 0; i < job->n_prompts && !job->api->reads && !job->err.status; i++) {
        struct generation *g = &job->prompts[i].generation;
        g->received_ns = received_ns;
        g->deadline_ns = deadline_of(job, received_ns);
        g->is_admitted = job->past != NULL;
        if (!scheduler_submit(job->app->scheduler, g, &job->err)) job->n_running++;
    }
    adapter_waits(job);
    if (job->err.status) job_cancel(job);
    assert(job->err.status || job->api->reads || job->n_running == job->n_prompts);
    return job->err.status;
}

void job_cancel(struct generation_job *job) {
    job->cancelled = true;
    for (int i = 0; i < job->n_prompts; i++) {
        struct generation *g = &job->prompts[i].generation;
        atomic_store(&g->cancelled, true);
        scheduler_cancel(job->app->scheduler, g);
    }
}

void job_empty_state(struct generation_job *job) {
    if (!job->state) return;
    if (job->api->free_state) job->api->free_state(job->state);
    memset(job->state, 0, job->api->state_size);
}

int job_name_ignored(const struct generation_job *job, struct http_field *field) {
    if (job->ignored.length == 0) return 0;
    *field = (struct http_field){"X-Penstock-Ignored", job->ignored.data};
    return 1;
}

void job_clear(struct generation_job *job) {
    assert(job->n_running == 0 && !job->claim.entry && !job->claim.is_answered);
    for (int i = 0; i < job->n_prompts; i++) {
        struct prompt_run *run = &job->prompts[i];
        for (int j = 0; run->choices && j < job->request->n_generated; j++)
            choice_free(&run->choices[j]);
        mem_free(run->choices);
        mem_free(run->prompt_logprobs);
        mem_free(run->ids);
        mem_free(run->predicted);
        mem_free(run->hidden_sum);
        restored_prefix_free(run->generation.restored);
        mem_free(run->read);
        buf_free(&run->text);
    }
    mem_free(job->prompts);
    buf_free(&job->body);
    buf_free(&job->ignored);
    answer_release(&job->app->answers, &job->share);
    job_clear_receipt(job);
    adapters_give_back(job->app->adapters, job->adapter);
    tool_set_free(job->tools);
    if (job->grammar) grammar_release(job->grammar);
    mem_free(job->begin_ids);
    mem_free(job->forced_ids);
    if (job->request) stop_searches_free(job->stop_searches, job->request->n_stop_regexes);
    job_empty_state(job);
    mem_free(job->state);
    api_request_free(job->request);
    job->n_prompts = job->n_begin_ids = 0;
    job->prompts = NULL;
    job->adapter = NULL;
    job->tools = NULL;
    job->grammar = NULL;
    job->begin_ids = NULL;
    job->forced_ids = NULL;
    job->stop_searches = NULL;
    job->request = NULL;
    job->state = NULL;
}

/* ---- answers -------------------------------------------------------------------------------- */

struct api_answer job_answer(const struct generation_job *job) {
    return (struct api_answer){.request = job->request,
                               .model =
                                   job->adapter ? job->adapter->shown.name : job->app->model_name,
                               .tokenizer = engine_tokenizer(job->app->engine),
                               .state = job->state,
                               .limits = &job->app->limits,
                               .system_fingerprint = job->adapter ? job->adapter->system_fingerprint
                                                                  : job->app->system_fingerprint};
}

/* The counts of cached tokens and drafts depend on load, so they are 0 in an answer that may be
 * computed twice. */
struct api_usage job_usage(const struct generation_job *job) {
    const struct prompt_run *run = job->prompts; /* the first of several prompts */
    uint64_t now = now_ns(), received = run->generation.received_ns;
    uint64_t first = run->first_token_ns ? run->first_token_ns : now;
    return (struct api_usage){
        .prompt_ns = received ? first - received : 0,
        .generation_ns = now - first,
        .prompt_tokens = job->prompt_tokens,
        .completion_tokens = job->completion_tokens,
        .cached_tokens = job->is_promised ? 0 : job->cached_tokens,
        .has_reasoning = job->format.reasoning != NULL,
        .reasoning_tokens = job->reasoning_tokens,
        .predicts = job->request->predicts,
        .predicted_held = job->is_promised ? 0 : job->predicted_held,
        .predicted_refused = job->is_promised ? 0 : job->predicted_refused,
    };
}

/* Sets the times of the first prompt that was scheduled, and of the last token. */
static void trace_run(const struct prompt_run *run, struct trace_generation *g) {
    const uint64_t scheduled = run->first_scheduled_ns, first = run->first_token_ns;
    uint64_t *prefill = &g->begins[PHASE_PREFILL], *decode = &g->begins[PHASE_DECODE];
    if (scheduled && (!*prefill || scheduled < *prefill)) *prefill = scheduled;
    if (first && (!*decode || first < *decode)) *decode = first;
    for (int i = 0; run->choices && i < run->job->request->n_generated; i++) {
        const struct choice *choice = &run->choices[i];
        if (choice->last_token_ns > g->last_token_ns) g->last_token_ns = choice->last_token_ns;
        if (choice->finish_reason && g->n_finishes < MAX_TRACE_FINISHES)
            g->finishes[g->n_finishes++] = choice->finish_reason;
    }
}

void job_trace(const struct generation_job *job, struct trace_span *span) {
    struct trace_generation *g = &span->generation;
    const struct api_request *request = job->request;
    if (job->is_late) snprintf(span->error, sizeof span->error, "deadline_exceeded");
    if (job->err.status) {
        const char *kind = job->err.code[0] ? job->err.code : status_type(job->err.status);
        snprintf(span->error, sizeof span->error, "%s", kind);
        span->is_failed |= api_http(job->api, job->err.status) >= 500;
    }
    g->operation = job->api ? tracing_operation(job->api) : NULL;
    if (!g->operation || !request) return;
    snprintf(g->model, sizeof g->model, "%s", job_answer(job).model);
    snprintf(g->id, sizeof g->id, "%s", job->id);
    g->has_settings = g->has_usage = true;
    g->max_tokens = request->max_tokens;
    g->n = request->n;
    g->temperature = request->sampling.temperature;
    g->top_p = request->sampling.top_p;
    g->input_tokens = job->prompt_tokens;
    g->output_tokens = job->completion_tokens;
    g->cached_tokens = job->cached_tokens;
    for (int i = 0; i < job->n_prompts; i++) trace_run(&job->prompts[i], g);
}

/* Returns the rank of choice i among n choices by mean logprob; ties go to the lower index. */
static int rank_of(const struct choice *choices, int n, int i) {
    int before = 0;
    for (int k = 0; k < n; k++)
        before += choices[k].mean_logprob > choices[i].mean_logprob ||
                  (choices[k].mean_logprob == choices[i].mean_logprob && k < i);
    return before;
}

/* Frees the content of choices after the answer was written. The scheduler may still run a choice
 * that a stop string has ended; it reads the prompt's ids, which are kept. */
static void drop_choices(struct generation_job *job) {
    for (int i = 0; i < job->n_prompts; i++) {
        struct prompt_run *run = &job->prompts[i];
        for (int j = 0; j < job->request->n_generated; j++) choice_drop_text(&run->choices[j]);
        mem_free(run->prompt_logprobs);
        run->prompt_logprobs = NULL;
        buf_free(&run->text);
    }
}

void job_write_response(struct generation_job *job, struct buf *out) {
    int n = job->request->n, total = job->n_prompts * n;
    struct api_choice *choices = mem_calloc((size_t)total, sizeof *choices);
    struct api_answer answer = job_answer(job);
    struct api_usage usage = job_usage(job);
    assert(job->n_open == 0);
    int made = job->request->n_generated;
    for (int i = 0; i < job->n_prompts * made; i++) {
        const struct prompt_run *run = &job->prompts[i / made];
        int rank = made > n ? rank_of(run->choices, made, i % made) : i % made;
        int at = i / made * n + rank;
        if (rank < n) choice_describe(&run->choices[i % made], run, at, true, &choices[at]);
    }
    size_t before = out->length;
    job->api->write_response(out, &answer, choices, total, &usage);
    job_make_receipt(job);
    job_join_receipt(job, out);
    mem_free(choices);
    drop_choices(job);
    answer_settle(&job->app->answers, &job->share, out->length - before);
}

/* ---- promises of an earlier process --------------------------------------------------------- */

void job_use_past(struct generation_job *job) {
    struct api_request *request = job->request;
    if (!job->past) return;
    memcpy(request->id, job->past->id, sizeof request->id);
    request->created = job->past->created;
}

void job_use_past_seeds(struct generation_job *job) {
    const struct job_past *past = job->past;
    for (int i = 0; past && i < min_int(job->n_prompts, past->n_seeds); i++) {
        uint64_t seed = 0;
        for (int k = 0; k < 8; k++)
            seed |= (uint64_t)(unsigned char)past->seeds[8 * i + k] << (8 * k);
        job->prompts[i].generation.sampling.seed = seed;
    }
}
