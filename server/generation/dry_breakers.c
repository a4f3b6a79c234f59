/* DRY's sequence breakers: texts, such as a line end, stored as a bit for each token that contains
 * one. Runs on workers.
 *
 * A token that contains a breaker ends a repeat. A text that no token contains would have no
 * effect, so it is refused. All tokens are checked for each request that uses DRY, which takes a
 * few milliseconds at most. */
#include <assert.h>
#include <string.h>

#include "server/generation/job.h"

static const struct api_text defaults[] = {{"\n", 1}, {":", 1}, {"\"", 1}, {"*", 1}};

/* Sets the bits of the tokens that contain the text. Returns false if no token does. */
static bool find(const struct tokenizer *tokenizer, int V, const struct api_text *text,
                 uint32_t *bits) {
    assert(V > 0);
    bool found = false;
    for (int32_t id = 0; id < V; id++) {
        size_t length;
        const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
        if (length < text->length || !memmem(bytes, length, text->text, text->length)) continue;
        bits[id / 32] |= (uint32_t)1 << id % 32;
        found = true;
    }
    return found;
}

enum status job_find_breakers(const struct generation_job *job, struct err *err) {
    struct api_request *request = job->request;
    const struct tokenizer *tokenizer = engine_tokenizer(job->app->engine);
    const int V = job->app->limits.V;
    const size_t bytes = ((size_t)V + 31) / 32 * sizeof(uint32_t);
    bool own = request->dry_breakers != NULL;
    const struct api_text *texts = own ? request->dry_breakers : defaults;
    int n = own ? request->n_dry_breakers : (int)(sizeof defaults / sizeof *defaults);
    if (request->sampling.dry_multiplier <= 0) return STATUS_OK;
    uint32_t *bits = arena_alloc(request->arena, bytes);
    if (!bits)
        return err_set(err, STATUS_UNAVAILABLE, "dry_sequence_breakers", "Not enough memory.");
    memset(bits, 0, bytes);
    for (int i = 0; i < n; i++) {
        if (find(tokenizer, V, &texts[i], bits) || !own) continue;
        return err_set(err, STATUS_INVALID_REQUEST, "dry_sequence_breakers",
                       "'dry_sequence_breakers[%d]' is not in any token of this model, so it would "
                       "never match: give a shorter text.",
                       i);
    }
    request->sampling.dry_breakers = bits;
    return STATUS_OK;
}
