/* The receipt of a generation request: collected on a worker from the body, whose tree is freed
 * there, and written after the last token. */
#include <assert.h>

#include "server/generation/job.h"
#include "server/json/json.h"

void job_keep_body(struct generation_job *job, const struct json *body) {
    struct job_receipt *receipt = &job->receipt;
    if (job->api->receipt_place == RECEIPT_NOWHERE) return;
    if (json_true(json_member(body, "receipt"))) receipt->is_made = true;
    if (receipt->is_made) request_write(&receipt->body, body);
}

void job_keep_settings(struct generation_job *job) {
    struct job_receipt *receipt = &job->receipt;
    struct buf text = {0};
    struct json *tree = NULL;
    struct err err;
    if (!receipt->is_made) return;
    assert(job->n_prompts > 0);
    api_write_sampling(&text, job->request, &job->prompts[0].generation);
    enum status status = json_parse(&tree, "The settings", text.data, text.length, &err);
    assert(!status); /* our own text */
    (void)status;
    canonical_write(&receipt->sampling, tree);
    json_free(tree);
    buf_free(&text);
}

enum job_progress job_find_origin(struct generation_job *job) {
    struct job_receipt *receipt = &job->receipt;
    if (receipt->is_made) {
        bool may_wait = receipt->waiter.resume != NULL;
        if (may_wait && !model_hash_await(job->app->model_hash, &receipt->waiter)) return JOB_WAITS;
        app_origin(job->app, &receipt->origin, &job->err);
    }
    job->step++;
    return JOB_PREPARED;
}

static void list_prompts(const struct generation_job *job, struct receipt_prompt *prompts) {
    for (int i = 0; i < job->n_prompts; i++) {
        const struct prompt_run *run = &job->prompts[i];
        prompts[i] = (struct receipt_prompt){.ids = run->ids,
                                             .n_ids = run->n_ids,
                                             .max_tokens = run->generation.max_tokens,
                                             .seed = run->generation.sampling.seed};
    }
}

static void list_outputs(const struct generation_job *job, struct receipt_output *outputs) {
    const int n = job->request->n_generated;
    for (int i = 0; i < job->n_prompts * n; i++) {
        const struct choice *choice = &job->prompts[i / n].choices[i % n];
        outputs[i] = (struct receipt_output){.prompt = i / n,
                                             .choice = i % n,
                                             .finish_reason = choice->finish_reason,
                                             .ids = choice->kept_ids,
                                             .n_ids = choice->n_kept_ids};
    }
}

void job_write_receipt(const struct generation_job *job, struct buf *out) {
    const struct job_receipt *kept = &job->receipt;
    const int n_outputs = job->n_prompts * job->request->n_generated;
    assert(kept->is_made && job->n_open == 0 && kept->body.length > 0);
    struct receipt_prompt *prompts = mem_calloc((size_t)job->n_prompts, sizeof *prompts);
    struct receipt_output *outputs = mem_calloc((size_t)n_outputs, sizeof *outputs);
    list_prompts(job, prompts);
    list_outputs(job, outputs);
    struct receipt receipt = {.origin = &kept->origin,
                              .path = job->api->path,
                              .created = job->request->created,
                              .body = &kept->body,
                              .sampling = &kept->sampling,
                              .n_prompts = job->n_prompts,
                              .n_outputs = n_outputs,
                              .prompts = prompts,
                              .outputs = outputs};
    receipt_write(out, &receipt, job->app->receipt_key);
    mem_free(prompts);
    mem_free(outputs);
}

void job_join_receipt(const struct generation_job *job, struct buf *out) {
    struct buf receipt = {0};
    if (!job->request->receipt) return;
    job_write_receipt(job, &receipt);
    receipt_join(out, &receipt);
    buf_free(&receipt);
}

void job_clear_receipt(struct generation_job *job) {
    assert(!job->receipt.waiter.node.list);
    buf_free(&job->receipt.body);
    buf_free(&job->receipt.sampling);
}
