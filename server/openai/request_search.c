/* Checks the fields that select the best of several answers: best_of and beam search. */
#include <assert.h>

#include "server/openai/internal.h"

static enum status needs_search(struct parse *parse, const char *name) {
    return field_wrong(parse, name, "is only for requests with 'use_beam_search': true");
}

enum status check_early_stopping(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    if (json_is(value, JSON_BOOL)) {
        request->beams.stopping = json_true(value) ? BEAMS_STOP_EARLY : BEAMS_STOP_BY_SCORE;
        return STATUS_OK;
    }
    if (!json_is_text(value, "never"))
        return field_wrong_type(parse, name, "true, false or \"never\"", value);
    request->beams.stopping = BEAMS_NEVER_STOP_EARLY;
    return STATUS_OK;
}

/* Checks best_of without beam search. The best answers are known only after all have ended. */
static enum status check_best_of(struct parse *parse, struct api_request *request) {
    const int most = parse->limits->max_choices;
    request->n_generated = request->best_of;
    if (request->length_penalty != 1) return needs_search(parse, "length_penalty");
    if (request->beams.stopping != BEAMS_STOP_BY_SCORE)
        return needs_search(parse, "early_stopping");
    if (request->best_of > most)
        return err_set(parse->err, STATUS_INVALID_REQUEST, "best_of",
                       "'best_of' must be at most %d, but it is %d.", most, request->best_of);
    if (request->best_of > request->n && request->stream)
        return field_wrong(parse, "best_of",
                           "above 'n' is only for requests without 'stream': "
                           "true");
    return STATUS_OK;
}

/* Checks beam search. It scores whole texts: tokens are not sampled, and texts are unknown before
 * the end. */
static enum status check_beams(struct parse *parse, struct api_request *request) {
    struct sampling *sampling = &request->sampling;
    if (!field_given(parse, "temperature")) sampling->temperature = 0;
    if (request->best_of > MAX_BEAMS)
        return err_set(parse->err, STATUS_INVALID_REQUEST,
                       field_given(parse, "best_of") ? "best_of" : "n",
                       "'best_of', or else 'n', is the number of beams and must be at most %d, but "
                       "it is %d.",
                       MAX_BEAMS, request->best_of);
    if (request->stream)
        return field_wrong(
            parse, "stream",
            "is not for 'use_beam_search', whose texts are known only at the end: leave one out");
    if (sampling->temperature >= 1e-5f)
        return field_wrong(parse, "temperature",
                           "must be 0 or left out with 'use_beam_search', which does not sample");
    if (sampling->n_logprobs >= 0)
        return field_wrong(parse, "logprobs",
                           "is not served with 'use_beam_search': send the text "
                           "as a prompt with 'prompt_logprobs'");
    if (request->n_stops + request->n_stop_regexes > 0)
        return field_wrong(parse, request->n_stops > 0 ? "stop" : "stop_regex",
                           "is not served with 'use_beam_search': use "
                           "'stop_token_ids'");
    if (request->grammar.field)
        return field_wrong(parse, request->grammar.field,
                           "is not served together with 'use_beam_search': use 'best_of' without "
                           "it");
    request->beams.width = request->best_of;
    request->beams.length_penalty = (double)request->length_penalty;
    request->n_generated = request->n;
    return STATUS_OK;
}

enum status check_search(struct parse *parse) {
    struct api_request *request = parse->target;
    if (request->best_of == 0) request->best_of = request->n;
    if (request->best_of < request->n)
        return err_set(parse->err, STATUS_INVALID_REQUEST, "best_of",
                       "'best_of' must be at least 'n', which is %d, but it is %d.", request->n,
                       request->best_of);
    return request->use_beam_search ? check_beams(parse, request) : check_best_of(parse, request);
}
