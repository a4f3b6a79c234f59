/* {path}/render of every API: the token ids that a generation of the same body would compute,
 * without computing it. Routers ask for them to find the replica that has the prefix in its cache.
 *
 * The body goes the way of a generation up to the scheduler's door, on a worker: what is refused
 * there is refused here, in the same words. That includes a seed, which is drawn for each prompt.
 */
#include <assert.h>
#include <stdlib.h>

#include "config/json.h"
#include "server/generation/job.h"

struct render_request {
    struct async_request async; /* first: http_request.app points here */
    const struct api *api;
    struct answer_share share;
    struct buf body; /* of the answer */
    struct err err;  /* or what it says */
};

static void write_prompts(struct render_request *request, const struct generation_job *job) {
    int n = job->n_prompts;
    const struct generation **generations = mem_calloc((size_t)n, sizeof(struct generation *));
    struct api_answer answer = job_answer(job);
    for (int i = 0; i < n; i++) generations[i] = &job->prompts[i].generation;
    if (!answer_reserve(&job->app->answers, &request->share,
                        api_rendered_bound(job->request, generations, n), NULL, &request->err))
        api_write_rendered(&request->body, &answer, generations, n);
    mem_free(generations);
}

static void render(struct async_request *async) {
    struct render_request *request = (struct render_request *)async;
    struct generation_job job = {.app = async->app, .api = request->api};
    struct json *body;
    if (json_parse_strict(&body, "The body", async->http->body, async->http->body_length,
                          &request->err)) {
        return;
    }
    job_prepare(&job, body);
    for (int i = 0; i < job.n_prompts && !job.err.status; i++) {
        scheduler_check_fits(async->app->scheduler, &job.prompts[i].generation, &job.err);
    }
    if (job.err.status)
        request->err = job.err;
    else
        write_prompts(request, &job);
    job_clear(&job);
}

static void respond(struct async_request *async) {
    struct render_request *request = (struct render_request *)async;
    assert((request->body.length > 0) == (request->err.status == STATUS_OK));
    answer_settle(&async->app->answers, &request->share, request->body.length);
    if (request->err.status)
        respond_error(async->http, &request->err, NULL);
    else
        respond_json(async->http, &request->body);
    async_release_http(async);
}

static void free_request(struct async_request *async) {
    struct render_request *request = (struct render_request *)async;
    answer_release(&async->app->answers, &request->share);
    buf_free(&request->body);
    mem_free(request);
}

void render_start(struct app *app, struct http_request *http, const struct api *api) {
    static const struct async_kind kind = {.run = render, .done = respond, .free = free_request};
    struct render_request *request = mem_calloc(1, sizeof *request);
    request->api = api;
    async_start(&request->async, &kind, app, http);
}
