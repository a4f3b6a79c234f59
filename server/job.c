/* DESIGN: the life of a generation request.
 *
 *   job_start      loop     the body is whole: a worker gets it
 *   job_prepare    worker   JSON, template, tokens; the job is the worker's alone
 *   on_prepared    loop     submit each prompt, begin the stream
 *   job_event      loop     one token of one choice: text, chunk, end
 *   settle         loop     nothing is open any more: answer, release HTTP; the last reference
 * frees the job
 *
 * A reference each is held by the worker, by HTTP twice (until we release the request, and until it
 * reports the request done, in whatever order), and by every generation that the scheduler has not
 * yet given back. When the client goes, or an error ends the job, its generations are cancelled and
 * the job waits for their last events.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"

/* ---- life ----------------------------------------------------------------------------------- */

static void unref(struct job *job) {
    assert(job->references > 0);
    if (--job->references > 0) return;
    struct app *app = job->app;
    if (job->previous)
        job->previous->next = job->next;
    else
        app->jobs = job->next;
    if (job->next) job->next->previous = job->previous;
    job_clear(job);
    free(job);
    app->n_jobs--;
    lifecycle_job_ended(app);
}

static void release_http(struct job *job) {
    if (!job->http) return;
    struct http_request *http = job->http;
    job->http = NULL;
    http_release(http);
    unref(job);
}

void job_done(struct http_request *http) {
    unref(http->app);
}

/* Ends the job early with an error for the client, if it still listens. */
static void fail(struct job *job, const struct err *err) {
    job->err = *err;
    job_cancel(job);
    if (!job->gone && !job->answered) answer_error(job, err);
    release_http(job);
}

/* ---- tokens come ---------------------------------------------------------------------------- */

static void note_times(struct job *job, struct choice *choice, const struct event *event) {
    uint64_t now = now_ns();
    struct metrics *metrics = &job->app->metrics;
    if (choice->last_token_ns) {
        histogram_add(&metrics->inter_token, (double)(now - choice->last_token_ns) * 1e-9);
    }
    choice->last_token_ns = now;
    if (job->first_token_ns) return;
    job->first_token_ns = now;
    job->first_scheduled_ns = event->first_scheduled_ns;
    uint64_t received = job->prompts[0].generation.received_ns;
    histogram_add(&metrics->ttft, (double)(now - received) * 1e-9);
    histogram_add(&metrics->queue, (double)(event->first_scheduled_ns - received) * 1e-9);
}

static void count_finish(struct job *job, const struct choice *choice) {
    struct metrics *metrics = &job->app->metrics;
    if (strcmp(choice->finish_reason, "stop") == 0)
        metrics->finished_stop++;
    else if (strcmp(choice->finish_reason, "length") == 0)
        metrics->finished_length++;
    else
        metrics->finished_abort++;
}

static void settle(struct job *job) {
    uint64_t received = job->prompts[0].generation.received_ns;
    histogram_add(&job->app->metrics.e2e, (double)(now_ns() - received) * 1e-9);
    if (job->request->stream)
        answer_end_stream(job);
    else
        answer_whole(job);
    release_http(job);
}

static void take_token(struct job *job, struct job_prompt *prompt, const struct event *event) {
    struct choice *choice = &prompt->choices[event->choice];
    if (choice->done) return;
    job_take(job, prompt, event);
    if (event->kind == EVENT_TOKEN) note_times(job, choice, event);
    if (choice->done) count_finish(job, choice);
    if (job->request->stream && choice_has_news(choice)) {
        int index = (int)(prompt - job->prompts) * job->request->n + event->choice;
        answer_chunk(job, prompt, choice, index);
    }
    if (job->n_open == 0) settle(job);
}

/* A choice that nobody waits for any more has ended. */
static void drop_choice(struct job *job, struct choice *choice) {
    if (choice->done) return;
    choice->done = true;
    job->app->metrics.finished_abort++;
}

void job_event(struct job *job, struct job_prompt *prompt, const struct event *event) {
    bool last = event->last;
    bool wanted = job->http && !job->gone && !job->answered;
    if (wanted && event->finish == FINISH_ERROR) {
        struct err err;
        err_set(&err, STATUS_SERVER_ERROR, NULL, "The engine failed on this request.");
        if (job->app->failure.status) err = job->app->failure;
        job->app->metrics.finished_error++;
        fail(job, &err);
    } else if (wanted && event->kind == EVENT_PROMPT_TOKEN) {
        job_take(job, prompt, event);
    } else if (wanted) {
        take_token(job, prompt, event);
    } else if (event->finish != FINISH_NONE) {
        drop_choice(job, &prompt->choices[event->choice]);
    }
    if (last) unref(job);
}

/* ---- beginning ------------------------------------------------------------------------------ */

static enum status submit_all(struct job *job, struct err *err) {
    for (int i = 0; i < job->n_prompts; i++) {
        struct generation *g = &job->prompts[i].generation;
        g->received_ns = job->http->received_ns;
        enum status status = scheduler_submit(job->app->scheduler, g, err);
        if (status) return status;
        job->references++;
    }
    return STATUS_OK;
}

static void begin(struct job *job) {
    struct err err;
    if (!job->err.status && job->app->aborted) {
        err_set(&job->err, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
    }
    if (job->err.status) {
        err = job->err;
        fail(job, &err);
    } else if (submit_all(job, &err)) {
        if (err.status == STATUS_OVERLOADED) job->app->metrics.refused_overload++;
        fail(job, &err);
    } else if (job->request->stream) {
        answer_begin_stream(job);
    }
}

static void on_prepared(uv_work_t *work, int status) {
    struct job *job = work->data;
    struct app *app = job->app;
    assert(status == 0); /* only uv_cancel gives another, which is not used */
    (void)status;
    job->preparing = false;
    app->n_preparing--;
    if (job->gone)
        release_http(job);
    else
        begin(job);
    http_flush(app->http);
    unref(job);
}

static void prepare_work(uv_work_t *work) {
    struct job *job = work->data;
    job_prepare(job, job->http->body, job->http->body_length);
}

void job_start(struct app *app, struct http_request *http, enum api_kind kind) {
    struct job *job = mem_calloc(1, sizeof *job);
    *job = (struct job){.owner = {OWNER_JOB},
                        .app = app,
                        .http = http,
                        .kind = kind,
                        .references = 3,
                        .next = app->jobs};
    if (app->jobs) app->jobs->previous = job;
    app->jobs = job;
    app->n_jobs++;
    app->n_preparing++;
    http->app = job;
    job->preparing = true;
    job->work.data = job;
    uv_queue_work(&app->loop, &job->work, prepare_work, on_prepared);
}

/* ---- ending early --------------------------------------------------------------------------- */

void job_gone(struct http_request *http) {
    struct job *job = http->app;
    if (job->gone) return;
    job->gone = true;
    if (job->preparing) return; /* on_prepared will see it */
    job_cancel(job);
    release_http(job);
}

void jobs_abort(struct app *app) {
    struct err err;
    err_set(&err, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
    for (struct job *job = app->jobs, *next; job; job = next) {
        next = job->next;
        if (job->http && !job->answered && !job->preparing) fail(job, &err);
    }
    http_flush(app->http);
}

/* ---- log ------------------------------------------------------------------------------------ */

int job_log_fields(const struct http_request *http, struct log_field *fields) {
    const struct job *job = http->app;
    if (job->preparing || !job->id[0]) return 0; /* what a worker has is not ours to read */
    int n = 0;
    fields[n++] = LOG_S("request_id", job->id);
    fields[n++] = LOG_I("prompt_tokens", job->prompt_tokens);
    fields[n++] = LOG_I("cached_tokens", job->cached_tokens);
    fields[n++] = LOG_I("output_tokens", job->completion_tokens);
    if (!job->first_token_ns) return n;
    fields[n++] = LOG_R("ttft_ms", (double)(job->first_token_ns - http->received_ns) * 1e-6);
    fields[n++] = LOG_R("queue_ms", (double)(job->first_scheduled_ns - http->received_ns) * 1e-6);
    return n;
}
