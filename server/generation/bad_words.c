/* Converts bad words to tokens, and checks that other tokens remain. Runs on worker threads.
 *
 * A word represents two sequences of tokens: its encoding at the start of a text, and its encoding
 * after a space. If a sequence is a single token, the token is removed from the allowed ids, which
 * a sampler reads anyway. For a longer one, the sampler bans the last token after all others have
 * been generated (struct bad_word).
 *
 * A sampler without allowed tokens would have to break a constraint. So a request is refused unless
 * at least one token can always be chosen: an allowed token that does not end a bad word and is not
 * an end token forbidden by min_tokens.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/job.h"

/* The state of the conversion, in memory of the request's arena. */
struct forbidding {
    const struct tokenizer *tokenizer;
    int V;
    uint32_t *allowed; /* [bitmap_length(V)] */
    int n_words;
    struct bad_word *words; /* [MAX_BAD_WORDS] */
};

static size_t bitmap_length(int V) {
    return ((size_t)V + 31) / 32;
}

static void forbid_id(uint32_t *allowed, int32_t id) {
    allowed[id / 32] &= ~((uint32_t)1 << id % 32);
}

static enum status no_memory(struct err *err) {
    return err_set(err, STATUS_UNAVAILABLE, "bad_words", "Not enough memory.");
}

/* Copies a bitmap. NULL is a bitmap of all ids. */
static uint32_t *copy_bits(struct arena *arena, const uint32_t *from, int V) {
    assert(V > 0);
    size_t bytes = bitmap_length(V) * sizeof(uint32_t);
    uint32_t *bits = arena_alloc(arena, bytes);
    if (!bits) return NULL;
    if (from)
        memcpy(bits, from, bytes);
    else
        memset(bits, 0xff, bytes);
    if (V % 32) bits[V / 32] &= ((uint32_t)1 << V % 32) - 1;
    return bits;
}

/* ---- words ---------------------------------------------------------------------------------- */

static enum status add_text(struct forbidding *f, int index, const char *text, size_t length,
                            struct err *err) {
    int32_t *ids;
    int n = tokenizer_encode(f->tokenizer, text, length, SPECIAL_PARSED, false, MAX_BAD_WORD_TOKENS,
                             &ids);
    if (n < 0)
        return err_set(err, STATUS_INVALID_REQUEST, "bad_words",
                       "'bad_words[%d]' has more than %d tokens, which is the limit.", index,
                       MAX_BAD_WORD_TOKENS);
    if (n == 1) forbid_id(f->allowed, ids[0]);
    if (n > 1) {
        assert(f->n_words < MAX_BAD_WORDS);
        struct bad_word *word = &f->words[f->n_words++];
        *word = (struct bad_word){.last = ids[n - 1], .n_before = n - 1};
        for (int i = 0; i < word->n_before; i++) word->before[i] = ids[n - 2 - i];
    }
    mem_free(ids);
    return STATUS_OK;
}

static enum status add_word(struct forbidding *f, int index, const struct api_text *word,
                            struct err *err) {
    struct buf spaced = {0};
    buf_puts(&spaced, " ");
    buf_add(&spaced, word->text, word->length);
    enum status status = add_text(f, index, word->text, word->length, err);
    if (!status) status = add_text(f, index, spaced.data, spaced.length, err);
    buf_free(&spaced);
    return status;
}

static int by_token_before(const void *a, const void *b) {
    int32_t x = ((const struct bad_word *)a)->before[0],
            y = ((const struct bad_word *)b)->before[0];
    return (x > y) - (x < y);
}

static enum status add_words(struct forbidding *f, struct api_request *request, struct err *err) {
    assert(f->n_words == 0 && f->V > 0);
    f->allowed = copy_bits(request->arena, request->sampling.allowed, f->V);
    f->words = arena_alloc(request->arena, MAX_BAD_WORDS * sizeof *f->words);
    if (!f->allowed || !f->words) return no_memory(err);
    for (int i = 0; i < request->n_bad_words; i++) {
        enum status status = add_word(f, i, &request->bad_words[i], err);
        if (status) return status;
    }
    qsort(f->words, (size_t)f->n_words, sizeof *f->words, by_token_before);
    request->sampling.allowed = f->allowed;
    request->sampling.bad_words = f->words;
    request->sampling.n_bad_words = f->n_words;
    return STATUS_OK;
}

/* ---- remaining tokens ----------------------------------------------------------------------- */

static enum status check_left(const struct generation_job *job, struct err *err) {
    const struct api_request *request = job->request;
    const struct sampling *sampling = &request->sampling;
    const int V = job->app->limits.V;
    uint32_t *left = copy_bits(request->arena, sampling->allowed, V), any = 0;
    if (!left) return no_memory(err);
    for (int i = 0; i < sampling->n_bad_words; i++) forbid_id(left, sampling->bad_words[i].last);
    int n_ends = 0;
    const int32_t *ends = engine_end_ids(job->app->engine, &n_ends);
    for (int i = 0; request->min_tokens > 0 && !request->ignore_eos && i < n_ends; i++)
        forbid_id(left, ends[i]);
    for (int i = 0; request->min_tokens > 0 && i < request->n_stop_ids; i++)
        forbid_id(left, request->stop_ids[i]);
    const struct sampling_defaults *model = job->app->limits.sampling;
    for (int i = 0; model && i < model->n_suppressed; i++) forbid_id(left, model->suppressed[i]);
    for (size_t i = 0; i < bitmap_length(V); i++) any |= left[i];
    if (any) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST,
                   request->n_bad_words > 0 ? "bad_words" : "allowed_token_ids",
                   "'allowed_token_ids', 'bad_words' and 'min_tokens' must leave a token that can "
                   "always be chosen: one that is allowed, ends no bad word, and with "
                   "'min_tokens' does not end the output.");
}

enum status job_forbid(const struct generation_job *job, struct err *err) {
    struct api_request *request = job->request;
    struct forbidding forbidding = {.tokenizer = engine_tokenizer(job->app->engine),
                                    .V = job->app->limits.V};
    if (request->n_bad_words == 0 && !request->sampling.allowed) return STATUS_OK;
    enum status status = STATUS_OK;
    if (request->n_bad_words > 0) status = add_words(&forbidding, request, err);
    return status ? status : check_left(job, err);
}
