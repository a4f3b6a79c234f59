/* Bytes for the client: whole answers, streams, errors. Loop thread. */
#include <stdlib.h>

#include "server/job.h"

static struct api_usage usage_of(const struct job *job) {
    return (struct api_usage){job->prompt_tokens, job->completion_tokens, job->cached_tokens};
}

static void push(struct job *job) {
    http_stream_write(job->http, job->out.data, job->out.length);
    buf_clear(&job->out);
}

void answer_begin_stream(struct job *job) {
    static const struct http_field fields[] = {{"Cache-Control", "no-cache"},
                                               {"X-Accel-Buffering", "no"}};
    struct http_field all[3] = {fields[0], fields[1], {"X-Request-Id", job->id}};
    http_stream_begin(job->http, 200, "text/event-stream", all, 3);
    job->streaming = true;
    if (job->kind != API_CHAT) return;
    for (int i = 0; i < job->n_prompts * job->request->n; i++) {
        api_write_role_chunk(&job->out, job->request, job->app->model_name, i);
    }
    push(job);
}

void answer_chunk(struct job *job, struct job_prompt *prompt, struct choice *choice, int index) {
    struct api_choice described;
    struct api_usage usage = usage_of(job);
    choice_describe(choice, prompt, index, !choice->announced, &described);
    choice->announced = true;
    api_write_chunk(&job->out, job->request, job->app->model_name,
                    engine_tokenizer(job->app->engine), &described,
                    job->request->continuous_usage_stats ? &usage : NULL);
    choice_clear(choice);
    push(job);
}

void answer_end_stream(struct job *job) {
    struct api_usage usage = usage_of(job);
    if (job->request->include_usage) {
        api_write_usage_chunk(&job->out, job->request, job->app->model_name, &usage);
    }
    api_write_done(&job->out);
    push(job);
    http_stream_end(job->http);
    job->answered = true;
}

void answer_write(struct job *job) {
    int n = job->request->n, total = job->n_prompts * n;
    struct api_choice *choices = mem_calloc((size_t)total, sizeof *choices);
    for (int i = 0; i < total; i++) {
        struct job_prompt *prompt = &job->prompts[i / n];
        choice_describe(&prompt->choices[i % n], prompt, i, true, &choices[i]);
    }
    struct api_usage usage = usage_of(job);
    api_write_response(&job->out, job->request, job->app->model_name,
                       engine_tokenizer(job->app->engine), choices, total, &usage);
    free(choices);
}

void answer_whole(struct job *job) {
    answer_write(job);
    struct http_field id = {"X-Request-Id", job->id};
    http_respond(job->http, 200, "application/json", job->out.data, job->out.length, &id, 1);
    job->answered = true;
}

void answer_error(struct job *job, const struct err *err) {
    job->answered = true;
    if (!job->streaming) {
        respond_error(job->http, err, NULL);
        return;
    }
    api_write_error_event(&job->out, err);
    api_write_done(&job->out);
    push(job);
    http_stream_end(job->http);
}
