/* DRY's sequence breakers, texts such as the end of a line, as a bit for each token that holds one.
 * Workers.
 *
 * A token that holds a breaker's text ends whatever repeat it stands in. A text that no token holds
 * could never be met, so it is refused: its user would take it for one that is. All tokens are
 * looked at once for each request that wants this, which takes a few milliseconds at most. */
#include <string.h>

#include "server/generation/job.h"

static const struct api_text defaults[] = {{"\n", 1}, {":", 1}, {"\"", 1}, {"*", 1}};

/* Sets the bits of the tokens that hold the text; false if none does. */
static bool find(const struct tokenizer *tokenizer, int V, const struct api_text *text,
                 uint32_t *bits) {
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
        return err_set(
            err, STATUS_INVALID_REQUEST, "dry_sequence_breakers",
            "'dry_sequence_breakers[%d]' is in no token of this model, so it would break "
            "nothing: give a shorter text.",
            i);
    }
    request->sampling.dry_breakers = bits;
    return STATUS_OK;
}
