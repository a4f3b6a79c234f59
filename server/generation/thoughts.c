/* The limit on the reasoning of a chat's answers: the tokens that end it. For worker threads. */
#include <assert.h>
#include <string.h>

#include "server/generation/job.h"

static const char *text_of(const void *tokenizer, int32_t id, size_t *length) {
    return tokenizer_token_bytes(tokenizer, id, length);
}

/* Returns the number of tokens of text[length], with special tokens. The caller frees *ids. */
static int encode(const struct generation_job *job, const char *text, size_t length,
                  int32_t **ids) {
    return tokenizer_encode(engine_tokenizer(job->app->engine), text, length, SPECIAL_PARSED, false,
                            INT32_MAX, ids);
}

/* Sets the tokens of the end marker and of the text after it. A grammar begins after the tokens of
 * the marker, so a token must not hold bytes of both texts. */
static void encode_end(struct generation_job *job, const char *end, const char *after) {
    struct buf text = {0};
    int32_t *of_end, *of_after;
    int n_end = encode(job, end, strlen(end), &of_end), n_after = 0;
    buf_printf(&text, "%s%s", end, after);
    int n = encode(job, text.data, text.length, &job->forced_ids);
    if (n < n_end || memcmp(job->forced_ids, of_end, (size_t)n_end * sizeof *of_end) != 0) {
        n_after = encode(job, after, strlen(after), &of_after);
        n = n_end + n_after;
        job->forced_ids = mem_realloc(job->forced_ids, (size_t)(n + 1) * sizeof *of_end);
        memcpy(job->forced_ids, of_end, (size_t)n_end * sizeof *of_end);
        memcpy(job->forced_ids + n_end, of_after, (size_t)n_after * sizeof *of_after);
        mem_free(of_after);
    }
    mem_free(of_end);
    buf_free(&text);
    job->thoughts.forced = job->forced_ids;
    job->thoughts.n_forced = n_end > 0 ? n : 0;
}

/* Puts the tokens of a client's text before the end marker; names of special tokens in it are
 * ordinary characters. */
static void force_first(struct generation_job *job, const struct api_text *text) {
    int32_t *of_text;
    int n = tokenizer_encode(engine_tokenizer(job->app->engine), text->text, text->length,
                             SPECIAL_AS_TEXT, false, INT32_MAX, &of_text);
    int n_end = job->thoughts.n_forced;
    assert(n >= 0 && n_end > 0);
    of_text = mem_realloc(of_text, (size_t)(n + n_end) * sizeof *of_text);
    memcpy(of_text + n, job->forced_ids, (size_t)n_end * sizeof *of_text);
    mem_free(job->forced_ids);
    job->forced_ids = of_text;
    job->thoughts.forced = of_text;
    job->thoughts.n_forced = n + n_end;
}

enum status job_limit_thoughts(struct generation_job *job, struct err *err) {
    const struct api_request *request = job->request;
    const struct api_limits *limits = &job->app->limits;
    const int most =
        request->max_reasoning < -1 ? limits->reasoning_budget : request->max_reasoning;
    if (!request->prompts[0].messages || !limits->reasoning_format || most < 0) return STATUS_OK;
    struct reasoning_marks marks = reasoning_format_marks(
        limits->reasoning_format, job->tools && request->tool_choice == TOOL_CHOICE_REQUIRED);
    assert(marks.begin && marks.end && !job->forced_ids);
    job->thoughts = (struct thought_limit){.is_set = true,
                                           .is_open = job->seen.starts_inside,
                                           .is_behind = job->seen.starts_behind,
                                           .may_return = marks.may_return,
                                           .max_tokens = most,
                                           .begin = marks.begin,
                                           .end = marks.end,
                                           .text_of = text_of,
                                           .texts = engine_tokenizer(job->app->engine)};
    encode_end(job, marks.end, marks.after ? marks.after : limits->behind_reasoning);
    if (job->thoughts.n_forced > 0 && request->last_thought.length > 0)
        force_first(job, &request->last_thought);
    if (job->thoughts.n_forced > 0) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, "thinking_token_budget",
                   "'thinking_token_budget' is not served with this model: its tokenizer lacks "
                   "tokens for \"%s\", which ends its reasoning.",
                   marks.end);
}
