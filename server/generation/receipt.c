/* The receipt and the record of a generation request: collected on a worker from the body, whose
 * tree is freed there, and written after the last token. */
#include <assert.h>
#include <string.h>

#include "server/generation/job.h"
#include "server/json/json.h"

void job_keep_body(struct generation_job *job, const struct json *body) {
    struct job_receipt *receipt = &job->receipt;
    const bool records = job->app->recorder != NULL;
    bool wanted = records || json_true(json_member(body, "receipt"));
    if (wanted && job->api->receipt_place != RECEIPT_NOWHERE) receipt->is_made = true;
    if (records || receipt->is_made) request_write(&receipt->body, body);
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

enum job_progress job_find_fingerprint(struct generation_job *job) {
    struct job_receipt *receipt = &job->receipt;
    if (receipt->is_made) {
        bool may_wait = receipt->waiter.resume != NULL;
        if (may_wait && !model_hash_await(job->app->model_hash, &receipt->waiter)) return JOB_WAITS;
        enum status status = app_fingerprint(job->app, &receipt->fingerprint, &job->err);
        if (status && !job->request->receipt) { /* a record does without */
            job->err = (struct err){0};
            receipt->is_made = false;
        }
        if (job->adapter)
            memcpy(receipt->fingerprint.adapter, job->adapter->hash, sizeof job->adapter->hash);
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

void job_make_receipt(struct generation_job *job) {
    struct job_receipt *kept = &job->receipt;
    if (!kept->is_made) return;
    const int n_outputs = job->n_prompts * job->request->n_generated;
    assert(job->n_open == 0 && kept->body.length > 0 && kept->text.length == 0);
    struct receipt_prompt *prompts = mem_calloc((size_t)job->n_prompts, sizeof *prompts);
    struct receipt_output *outputs = mem_calloc((size_t)n_outputs, sizeof *outputs);
    list_prompts(job, prompts);
    list_outputs(job, outputs);
    struct receipt receipt = {.fingerprint = &kept->fingerprint,
                              .path = job->api->path,
                              .created = job->request->created,
                              .body = &kept->body,
                              .sampling = &kept->sampling,
                              .n_prompts = job->n_prompts,
                              .n_outputs = n_outputs,
                              .prompts = prompts,
                              .outputs = outputs};
    receipt_write(&kept->text, &receipt, job->app->receipt_key);
    mem_free(prompts);
    mem_free(outputs);
}

void job_join_receipt(const struct generation_job *job, struct buf *out) {
    if (job->request->receipt) receipt_join(out, &job->receipt.text);
}

/* ---- records -------------------------------------------------------------------------------- */

bool job_replay(struct generation_job *job, const struct json *body) {
    struct cassette *cassette = job->app->cassette;
    const bool may = cassette && !job->past; /* a promise of an earlier process is computed */
    if (may) job->recorded = cassette_find(cassette, job->api->path, body);
    return job->recorded != NULL;
}

/* A body that is not JSON is not kept, and its answer is not recorded. */
static bool is_recorded(const struct generation_job *job) {
    return job->app->recorder && job->receipt.body.length > 0;
}

static void begin_record(struct generation_job *job, int status, bool is_stream, const char *id) {
    struct tape_head head = {.path = job->api->path,
                             .request = job->receipt.body.data,
                             .request_length = job->receipt.body.length,
                             .status = status,
                             .type = is_stream ? job->api->stream_type : "application/json",
                             .is_stream = is_stream,
                             .id = id,
                             .ignored = job->ignored.length > 0 ? job->ignored.data : NULL};
    tape_begin(&job->tape, &head);
}

void job_record(struct generation_job *job, const struct buf *piece) {
    if (!is_recorded(job)) return;
    if (!tape_is_on(&job->tape)) begin_record(job, 200, job->request->stream, job->id);
    tape_add(&job->tape, piece->data, piece->length, job->app->n_wakes);
}

void job_end_record(struct generation_job *job) {
    if (tape_is_on(&job->tape)) tape_end(&job->tape, &job->receipt.text);
}

/* An answer that its deadline has cut is not the answer to the request. */
void job_save_record(struct generation_job *job) {
    if (tape_is_on(&job->tape) && !job->is_late) recorder_add(job->app->recorder, &job->tape);
}

/* Errors of the server, such as a full queue, do not belong to the request. */
void job_record_error(struct generation_job *job, const char *request_id) {
    int status = api_http(job->api, job->err.status);
    bool is_clients = status == 400 || status == 404 || status == 413 || status == 422;
    struct buf body = {0};
    if (!is_recorded(job) || !is_clients || tape_is_on(&job->tape)) return;
    job->api->write_error(&body, &job->err, request_id);
    begin_record(job, status, false, request_id);
    tape_add(&job->tape, body.data, body.length, 0);
    tape_end(&job->tape, NULL);
    buf_free(&body);
}

void job_clear_receipt(struct generation_job *job) {
    assert(!job->receipt.waiter.node.list);
    buf_free(&job->receipt.body);
    buf_free(&job->receipt.sampling);
    buf_free(&job->receipt.text);
    tape_free(&job->tape);
}
