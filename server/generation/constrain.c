/* What the answers of a job keep to: from the text of a field to a compiled grammar. Worker
 * threads. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/grammar_store.h"
#include "server/generation/job.h"

/* A grammar that only an empty text keeps to would end an answer before it begins. */
static enum status check_not_empty(const struct generation_job *job, struct err *err) {
    int words = (job->app->limits.V + 31) / 32;
    uint32_t *mask = mem_calloc((size_t)words, sizeof *mask), any = 0;
    struct matcher *matcher = matcher_new(job->grammar, job->vocabulary);
    matcher_mask(matcher, mask);
    for (int i = 0; i < words; i++) any |= mask[i];
    matcher_free(matcher);
    free(mask);
    if (any) return STATUS_OK;
    const char *field = job->request->grammar.field;
    return err_set(err, STATUS_INVALID_REQUEST, field,
                   "'%s' can be kept to by no text of one token or more.", field);
}

static void encode_beginning(struct generation_job *job, const char *text) {
    job->n_begin_ids = tokenizer_encode(engine_tokenizer(job->app->engine), text, strlen(text),
                                        SPECIAL_PARSED, false, INT32_MAX, &job->begin_ids);
    assert(job->n_begin_ids > 0);
}

void job_constrain_behind_thoughts(struct generation_job *job) {
    const struct reasoning_format *reasoning = job->format.reasoning;
    if (!job->grammar || !reasoning || !job->format.starts_inside || job->begin_ids) return;
    if (reasoning_format_end(reasoning)) encode_beginning(job, reasoning_format_end(reasoning));
}

enum status job_constrain(struct generation_job *job, struct err *err) {
    const struct api_grammar *asked = &job->request->grammar;
    struct err why = {0};
    if (!asked->field) return STATUS_OK;
    enum status status = grammar_store_get(job->app->grammars, asked->kind, asked->text,
                                           asked->length, &job->grammar, &why);
    if (status)
        return err_set(err, status, asked->field, "'%s' cannot be kept to: %s", asked->field,
                       why.message);
    job->vocabulary = grammar_store_vocabulary(job->app->grammars);
    if (asked->begins_after) encode_beginning(job, asked->begins_after);
    return check_not_empty(job, err);
}
