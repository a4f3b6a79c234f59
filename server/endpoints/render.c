/* {path}/render of each API: returns the token ids that a generation from the same body would
 * compute, without computing it. Routers use them to find the replica that has the prefix in its
 * cache.
 *
 * Workers process the body as for a generation, up to the submission to the scheduler: the same
 * errors are returned. A seed is drawn for each prompt too.
 */
#include <stdlib.h>

#include "server/endpoints/endpoints.h"
#include "server/generation/job.h"

struct render_request {
    struct body_request answer; /* must be first; its err is job.err */
    struct generation_job job;
    bool counts; /* the answer is the number of tokens */
};

static void write_prompts(struct render_request *request) {
    struct generation_job *job = &request->job;
    int n = job->n_prompts;
    const struct generation **generations = mem_calloc((size_t)n, sizeof(struct generation *));
    struct api_answer answer = job_answer(job);
    for (int i = 0; i < n; i++) generations[i] = &job->prompts[i].generation;
    if (!answer_reserve(&job->app->answers, &request->answer.share,
                        api_rendered_bound(job->request, generations, n), NULL, &job->err))
        api_write_rendered(&request->answer.body, &answer, generations, n);
    mem_free(generations);
}

static enum async_next render(struct async_request *async) {
    struct render_request *request = (struct render_request *)async;
    struct generation_job *job = &request->job;
    enum async_next next = job_run(job, async->http->body, async->http->body_length);
    if (next != ASYNC_ANSWER) return next;
    for (int i = 0; i < job->n_prompts && !job->err.status; i++) {
        scheduler_check_fits(async->app->scheduler, &job->prompts[i].generation, &job->err);
    }
    if (job->err.status) return ASYNC_ANSWER;
    job_name_ignored(job, &request->answer.header);
    if (request->counts)
        job->api->write_count(&request->answer.body, job->prompts[0].n_ids);
    else
        write_prompts(request);
    return ASYNC_ANSWER;
}

static void undo(struct async_request *async) {
    struct render_request *request = (struct render_request *)async;
    job_clear(&request->job);
    body_request_undo(async);
}

static void resume(struct grammar_claim *claim) {
    struct generation_job *job = list_entry(claim, struct generation_job, claim);
    async_resume(&list_entry(job, struct render_request, job)->answer.async);
}

static void leave(struct async_request *async) {
    grammar_store_leave(async->app->grammars, &((struct render_request *)async)->job.claim);
}

static void free_request(struct async_request *async) {
    struct render_request *request = (struct render_request *)async;
    job_clear(&request->job);
    body_request_free(async);
}

static void start(struct app *app, struct http_request *http, const struct api *api, bool counts) {
    static const struct async_kind kind = {.lane = LANE_TEXT,
                                           .run = render,
                                           .done = body_request_respond,
                                           .leave = leave,
                                           .undo = undo,
                                           .free = free_request};
    struct render_request *request = mem_calloc(1, sizeof *request);
    request->job = (struct generation_job){.app = app,
                                           .api = api,
                                           .key = auth_key(app, http),
                                           .abandoned = &request->answer.async.cancelled,
                                           .claim.resume = resume};
    request->counts = counts;
    request->answer.err = &request->job.err;
    async_start(&request->answer.async, &kind, app, http);
}

void render_start(struct app *app, struct http_request *http, const struct api *api) {
    start(app, http, api, false);
}

void count_start(struct app *app, struct http_request *http, const struct api *api) {
    start(app, http, api, true);
}
