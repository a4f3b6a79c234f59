/* DESIGN: the HTTP side of a generation request, from its complete body to its last byte.
 *
 *   reply_start   loop     the body is complete: queues the request for a worker
 *   prepare       worker   JSON, template, tokens; then, in a separate lane, compilations; only
 *                          the worker may use the job
 *   begin         loop     submits each prompt, begins the stream
 *   on_choice     loop     a token of a choice: metrics, a chunk of the stream
 *   on_end        loop     sends the answer, the stream's end, or an error; releases HTTP
 *   on_idle       loop     the scheduler has returned the generations: drops their reference
 *
 * The references of its async_request are held by its lane, by HTTP (twice, see async.c), and by
 * the scheduler while it holds a generation of the job. If the client leaves during the
 * preparation, the job leaves its lane (async.c). If it leaves later, or if an error ends the job,
 * its generations are cancelled, and the last event frees it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/generation/reply.h"

static struct reply *reply_of(struct generation_job *job) {
    return list_entry(job, struct reply, job);
}

/* ---- bytes for the client ------------------------------------------------------------------- */

/* Returns false if memory is short. */
static bool push(struct reply *reply) {
    bool ok = true;
    if (reply->promised)
        ok = promised_add(reply->promised, &reply->out);
    else
        http_stream_write(reply->async.http, reply->out.data, reply->out.length);
    buf_clear(&reply->out);
    return ok;
}

/* Uses the generation's id as the answer's id, unless the client has set one. */
static void name_request(struct reply *reply) {
    struct http_request *http = reply->async.http;
    if (!http->has_own_id) snprintf(http->id, sizeof http->id, "%s", reply->job.id);
}

static void begin_stream(struct reply *reply) {
    struct http_field fields[3] = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    int n = 2 + job_name_ignored(&reply->job, &fields[2]);
    const struct api *api = reply->job.api;
    assert(!reply->streaming && !reply->answered);
    name_request(reply);
    http_stream_begin(reply->async.http, 200, api->stream_type, api->keep_alive, fields, n);
    reply->streaming = true;
}

/* Both may hold memory that was allocated by the writer that failed. */
static void drop_out(void *text) {
    struct reply *reply = ((struct reply_text *)text)->reply;
    buf_free(&reply->out);
    buf_free(&reply->job.receipt.text);
    tape_free(&reply->job.tape);
    job_empty_state(&reply->job);
}

static void write_chunk(void *arg) {
    const struct reply_text *text = arg;
    struct reply *reply = text->reply;
    const struct generation_job *job = &reply->job;
    const struct choice *choice = text->choice;
    int index =
        (int)(text->run - job->prompts) * job->request->n + (int)(choice - text->run->choices);
    struct api_choice described;
    struct api_answer answer = job_answer(job);
    struct api_usage usage = job_usage(job);
    if (!choice->announced && job->api->write_start) {
        job->api->write_start(&reply->out, &answer, index, &usage);
    }
    choice_describe(choice, text->run, index, !choice->announced, &described);
    job->api->write_chunk(&reply->out, &answer, &described,
                          job->request->continuous_usage_stats ? &usage : NULL);
    job_record(&reply->job, &reply->out);
}

/* Returns false if memory is short. */
static bool send_chunk(struct reply *reply, const struct prompt_run *run, struct choice *choice) {
    struct reply_text text = {reply, run, choice};
    assert((reply->streaming || reply->promised) && !reply->answered);
    if (!mem_run(write_chunk, drop_out, &text)) return false;
    choice->announced = true;
    choice_clear(choice);
    return push(reply);
}

static void write_stream_end(struct reply *reply) {
    struct generation_job *job = &reply->job;
    struct api_answer answer = job_answer(job);
    struct api_usage usage = job_usage(job);
    job_make_receipt(job);
    bool has_usage = job->request->include_usage,
         in_chunk = job->api->receipt_place == RECEIPT_CHUNK;
    if (has_usage || (in_chunk && job->request->receipt))
        job->api->write_chunk(&reply->out, &answer, NULL, has_usage ? &usage : NULL);
    if (in_chunk) job_join_receipt(job, &reply->out);
    job->api->write_done(&reply->out, &answer, &usage);
    if (!in_chunk) job_join_receipt(job, &reply->out);
}

static void write_whole(void *arg) {
    struct reply *reply = ((const struct reply_text *)arg)->reply;
    struct generation_job *job = &reply->job;
    if (job->request->stream)
        write_stream_end(reply);
    else
        job_write_response(job, &reply->out);
    job_record(job, &reply->out);
    job_end_record(job);
}

/* Returns false if memory is short. */
static bool send_answer(struct reply *reply) {
    struct reply_text text = {.reply = reply};
    assert(!reply->answered);
    if (!mem_run(write_whole, drop_out, &text)) return false;
    job_save_record(&reply->job);
    if (reply->promised) return reply_keep_answer(reply);
    reply->answered = true;
    if (reply->streaming) {
        push(reply);
        http_stream_end(reply->async.http);
    } else {
        struct http_field field;
        int n = job_name_ignored(&reply->job, &field);
        name_request(reply);
        http_respond_take(reply->async.http, 200, "application/json", &reply->out, &field, n);
    }
    return true;
}

static void write_error_event(void *arg) {
    struct reply *reply = ((const struct reply_text *)arg)->reply;
    struct api_answer answer = job_answer(&reply->job);
    reply->job.api->write_error_event(&reply->out, &answer, &reply->job.err);
}

static void record_error(void *arg) {
    struct reply *reply = ((const struct reply_text *)arg)->reply;
    job_record_error(&reply->job, reply->async.http->id);
}

/* Answers with job->err; if a stream has begun, as its last event. */
static void send_error(struct reply *reply) {
    struct reply_text text = {.reply = reply};
    assert(reply->job.err.status && !reply->answered);
    reply->answered = true;
    if (reply->promised) {
        reply_keep_error(reply, write_error_event, drop_out);
        return;
    }
    const char *no_memory = reply->job.api->no_memory_event;
    if (!reply->streaming) {
        if (mem_run(record_error, drop_out, &text)) job_save_record(&reply->job);
        respond_error(reply->async.app, reply->async.http, &reply->job.err, NULL);
        return;
    }
    if (mem_run(write_error_event, drop_out, &text))
        push(reply);
    else
        http_stream_write(reply->async.http, no_memory, strlen(no_memory));
    http_stream_end(reply->async.http);
}

/* Ends the request and its generations with an error, for lack of memory. */
static void give_up(struct reply *reply) {
    job_cancel(&reply->job);
    err_out_of_memory(&reply->job.err);
    send_error(reply);
    async_release_http(&reply->async);
}

/* ---- events of the job ---------------------------------------------------------------------- */

/* A request may be younger than its first step: a step's time is measured before it accepts new
 * requests. */
static void observe(struct reply *reply, enum histogram_id id, uint64_t from_ns, uint64_t to_ns) {
    double seconds = to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
    metrics_observe(&reply->job.app->metrics, id, seconds);
}

static void note_token(struct reply *reply, struct prompt_run *run, struct choice *choice) {
    uint64_t now = now_ns();
    bool searched = reply->job.request->beams.width > 0; /* all its tokens arrive together */
    if (choice->last_token_ns && !searched)
        observe(reply, HISTOGRAM_INTER_TOKEN, choice->last_token_ns, now);
    else
        choice->first_token_ns = now;
    choice->last_token_ns = now;
    if (run->first_token_ns) return;
    run->first_token_ns = now;
    observe(reply, HISTOGRAM_FIRST_TOKEN, run->generation.received_ns, now);
}

/* Called when all choices of a prompt are done and the last one was not aborted. */
static void note_prompt_end(struct reply *reply, const struct prompt_run *run, int longest) {
    struct metrics *metrics = &reply->job.app->metrics;
    uint64_t now = now_ns(), first = run->first_token_ns ? run->first_token_ns : now;
    assert(run->first_scheduled_ns); /* a finished choice was scheduled */
    observe(reply, HISTOGRAM_PREFILL, run->first_scheduled_ns, first);
    observe(reply, HISTOGRAM_DECODE, first, now);
    observe(reply, HISTOGRAM_INFERENCE, run->first_scheduled_ns, now);
    observe(reply, HISTOGRAM_REQUEST, run->generation.received_ns, now);
    metrics_observe(metrics, HISTOGRAM_PROMPT, run->n_ids);
    metrics_observe(metrics, HISTOGRAM_COMPUTED, run->n_ids - run->n_cached);
    metrics_observe(metrics, HISTOGRAM_LONGEST, longest);
}

static void note_choice_end(struct reply *reply, const struct prompt_run *run,
                            const struct choice *choice) {
    struct metrics *metrics = &reply->job.app->metrics;
    int n = choice->n_tokens, longest = 0;
    bool is_late = strcmp(choice->finish_reason, "timeout") == 0;
    if (is_late || strcmp(choice->finish_reason, "abort") == 0) {
        metrics->finished_timeout += is_late;
        metrics->finished_abort += !is_late;
        return;
    }
    if (strcmp(choice->finish_reason, "stop") == 0)
        metrics->finished_stop++;
    else
        metrics->finished_length++;
    metrics_observe(metrics, HISTOGRAM_GENERATION, n);
    if (n > 1) {
        double seconds = (double)(choice->last_token_ns - choice->first_token_ns) * 1e-9;
        metrics_observe(metrics, HISTOGRAM_OUTPUT_TOKEN, seconds / (n - 1));
    }
    for (int i = 0; i < reply->job.request->n_generated; i++) {
        if (!run->choices[i].done) return;
        longest = max_int(longest, run->choices[i].n_tokens);
    }
    note_prompt_end(reply, run, longest);
}

static void on_choice(struct generation_job *job, struct prompt_run *run,
                      const struct event *event) {
    struct reply *reply = reply_of(job);
    struct choice *choice = &run->choices[event->choice];
    if (!run->first_scheduled_ns && event->first_scheduled_ns) {
        run->first_scheduled_ns = event->first_scheduled_ns;
        observe(reply, HISTOGRAM_QUEUE, run->generation.received_ns, run->first_scheduled_ns);
    }
    if (event->kind == EVENT_TOKEN) note_token(reply, run, choice);
    if (choice->done) note_choice_end(reply, run, choice);
    if (job->request->stream && choice_has_news(choice) && !send_chunk(reply, run, choice))
        give_up(reply);
}

static void on_end(struct generation_job *job) {
    struct reply *reply = reply_of(job);
    if (job->err.status) {
        send_error(reply);
    } else if (!send_answer(reply)) {
        give_up(reply);
        return;
    }
    async_release_http(&reply->async);
}

static void on_idle(struct generation_job *job) {
    async_unref(&reply_of(job)->async);
}

static const struct job_listener listener = {on_choice, on_end, on_idle};

/* ---- life of a request ---------------------------------------------------------------------- */

static enum async_next prepare(struct async_request *async) {
    struct reply *reply = (struct reply *)async;
    const struct http_request *http = async->http;
    if (!http) return reply_run_restored(reply);
    enum async_next next = job_run(&reply->job, http->body, http->body_length);
    if (!reply->job.recorded) reply_keep_body(reply);
    return next;
}

static void resume(struct grammar_claim *claim) {
    struct generation_job *job = list_entry(claim, struct generation_job, claim);
    async_resume(&reply_of(job)->async);
}

static void resume_hashed(struct hash_waiter *waiter) {
    async_resume(&list_entry(waiter, struct reply, job.receipt.waiter)->async);
}

static void leave(struct async_request *async) {
    struct generation_job *job = &((struct reply *)async)->job;
    grammar_store_leave(async->app->grammars, &job->claim);
    model_hash_leave(async->app->model_hash, &job->receipt.waiter);
}

static void undo_prepare(struct async_request *async) {
    struct generation_job *job = &((struct reply *)async)->job;
    job_clear(job);
    err_out_of_memory(&job->err);
}

/* Ends the request early, with an error for the client; NULL: the client has left. */
static void stop(struct async_request *async, const struct err *err) {
    struct reply *reply = (struct reply *)async;
    if (async->is_alone && !reply->promised) return; /* it has ended */
    job_cancel(&reply->job);
    if (err && !reply->answered) {
        reply->job.err = *err;
        send_error(reply);
    }
    async_release_http(async);
}

static void begin(struct async_request *async) {
    struct reply *reply = (struct reply *)async;
    struct generation_job *job = &reply->job;
    struct app *app = async->app;
    assert(app->n_preparing > 0);
    app->n_preparing--;
    reply->submitted_ns = now_ns();
    list_detach(&reply->idempotent.node);
    if (async->gone || !reply_adopt(reply)) {
        async_release_http(async);
        return;
    }
    if (job->recorded) {
        reply->answered = true;
        respond_recorded(app->http, async->http, job->recorded);
        async_release_http(async);
        return;
    }
    if (async->err.status) job->err = async->err;
    if (!job->err.status && app->aborted) {
        err_set(&job->err, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
    }
    uint64_t received_ns = async->http ? async->http->received_ns : now_ns();
    if (!job->err.status) reply_promise(reply);
    if (!job->err.status) job_submit(job, received_ns);
    app->metrics.refused_overload += job->err.status == STATUS_OVERLOADED;
    app->metrics.refused_deadline += strcmp(job->err.code, "deadline_unreachable") == 0;
    for (int i = 0; i < job->n_prompts && !job->err.status; i++) {
        metrics_observe(&app->metrics, HISTOGRAM_N, job->request->n);
        metrics_observe(&app->metrics, HISTOGRAM_MAX_TOKENS, job->prompts[i].generation.max_tokens);
    }
    if (job->n_running > 0) async_ref(async);
    if (job->err.status) {
        send_error(reply);
        async_release_http(async);
    } else if (reply->promised) {
        reply_begin_promise(reply);
    } else if (job->request->stream) {
        begin_stream(reply);
    }
}

static int log_fields_of(const struct async_request *async, struct log_field *fields) {
    const struct reply *reply = (const struct reply *)async;
    const struct generation_job *job = &reply->job;
    int n = 0;
    if (!job->id[0]) return 0;
    if (job->key && job->key->name[0]) fields[n++] = LOG_S("key", job->key->name);
    fields[n++] = LOG_S("request_id", job->id);
    fields[n++] = LOG_I("prompt_tokens", job->prompt_tokens);
    fields[n++] = LOG_I("cached_tokens", job->cached_tokens);
    fields[n++] = LOG_I("output_tokens", job->completion_tokens);
    const struct prompt_run *first = job->prompts; /* the first of several prompts */
    if (job->n_prompts == 0 || !first->first_token_ns) return n;
    uint64_t received = first->generation.received_ns;
    fields[n++] = LOG_R("ttft_ms", (double)(first->first_token_ns - received) * 1e-6);
    fields[n++] = LOG_R("queue_ms", (double)(first->first_scheduled_ns - received) * 1e-6);
    return n;
}

static void trace(const struct async_request *async, struct trace_span *span) {
    const struct reply *reply = (const struct reply *)async;
    uint64_t *begins = span->generation.begins;
    begins[PHASE_RECEIVED] = span->start_ns;
    begins[PHASE_PREPARED] = reply->complete_ns;
    if (reply->job.n_prompts > 0 && !reply->job.recorded)
        begins[PHASE_QUEUED] = reply->submitted_ns;
    job_trace(&reply->job, span);
}

static void free_reply(struct async_request *async) {
    struct reply *reply = (struct reply *)async;
    assert(!reply->promised);
    if (reply->counts_key) key_end(reply->job.key, now_ns());
    list_detach(&reply->idempotent.node);
    job_clear(&reply->job);
    buf_free(&reply->out);
    buf_free(&reply->text);
    mem_free(reply);
}

static const struct async_kind kind = {.lane = LANE_PREPARE,
                                       .run = prepare,
                                       .done = begin,
                                       .stop = stop,
                                       .leave = leave,
                                       .undo = undo_prepare,
                                       .log_fields = log_fields_of,
                                       .trace = trace,
                                       .free = free_reply};

static struct reply *reply_new(struct app *app, const struct api *api) {
    struct reply *reply = mem_calloc(1, sizeof *reply);
    reply->job = (struct generation_job){.app = app,
                                         .api = api,
                                         .listener = &listener,
                                         .abandoned = &reply->async.cancelled,
                                         .claim.resume = resume,
                                         .receipt.waiter.resume = resume_hashed};
    return reply;
}

/* Reads the header X-Deadline-Ms; 0: it is absent. */
static enum status read_deadline(const struct http_request *http, int *ms, struct err *err) {
    const char *text = http_header(http, "X-Deadline-Ms");
    *ms = 0;
    if (!text) return STATUS_OK;
    size_t n = strspn(text, "0123456789");
    if (n > 0 && n <= 8 && text[n] == 0) *ms = (int)strtol(text, NULL, 10);
    if (*ms >= 1 && *ms <= MAX_DEADLINE_MS) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, "X-Deadline-Ms",
                   "The header X-Deadline-Ms must be a number of 1 to %d; got '%.20s'.",
                   MAX_DEADLINE_MS, text);
}

void reply_start(struct app *app, struct http_request *http, const struct api *api) {
    struct idempotent_request asked = {.text = ""};
    struct err err;
    int deadline_ms;
    if (read_deadline(http, &deadline_ms, &err)) {
        respond_error(app, http, &err, NULL);
        http_release(http);
        return;
    }
    if (app->promises && repeat_answer(app, http, api, &asked)) return;
    struct reply *reply = reply_new(app, api);
    reply->complete_ns = now_ns();
    reply->idempotent = asked;
    if (asked.text[0]) list_append(&app->promises->preparing, &reply->idempotent.node);
    reply->job.deadline_ms = deadline_ms;
    reply->job.key = auth_key(app, http);
    reply->counts_key = reply->job.key != NULL;
    if (reply->job.key) key_begin(reply->job.key, now_ns());
    auth_cache_salt(app, http, reply->job.key_salt);
    app->n_preparing++;
    async_start(&reply->async, &kind, app, http);
}

void reply_restore(struct promised *promised) {
    struct app *app = promised->promises->app;
    struct reply *reply = reply_new(app, NULL);
    reply->promised = promised;
    reply->entry = promised->entry;
    reply->is_restored = true;
    promised->runner = reply;
    app->n_preparing++;
    async_start_alone(&reply->async, &kind, app, promised->entry.number);
}
