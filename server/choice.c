/* One answer as it grows: tokens become text, stop strings end it, logprobs are kept beside it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"

void choice_init(struct choice *choice, const struct job *job) {
    *choice = (struct choice){.stop_id = -1};
    choice->detokenizer.tokenizer = engine_tokenizer(job->app->engine);
    choice->detokenizer.skip_special = job->request->skip_special_tokens;
    choice->detokenizer.started = true; /* the prompt is behind it: a first space is a space */
    stop_matcher_init(&choice->stops, job->request);
}

void choice_free(struct choice *choice) {
    stop_matcher_free(&choice->stops);
    buf_free(&choice->decoded);
    buf_free(&choice->text);
    free(choice->logprobs);
    free(choice->ids);
}

/* Makes room for one more element in an array that doubles. */
static void *room_for_one(void *array, int n, int *capacity, size_t element) {
    if (n < *capacity) return array;
    *capacity = *capacity ? 2 * *capacity : 16;
    return mem_realloc(array, (size_t)*capacity * element);
}

static void add_logprob(struct choice *choice, const struct sampled *sampled, int offset,
                        bool has) {
    choice->logprobs = room_for_one(choice->logprobs, choice->n_logprobs, &choice->logprob_capacity,
                                    sizeof *choice->logprobs);
    choice->logprobs[choice->n_logprobs++] =
        (struct api_logprob){.text_offset = offset, .has_logprob = has, .sampled = *sampled};
}

static void add_id(struct choice *choice, int32_t id) {
    choice->ids =
        room_for_one(choice->ids, choice->n_ids, &choice->id_capacity, sizeof *choice->ids);
    choice->ids[choice->n_ids++] = id;
}

/* With echo an answer begins with its prompt, and its logprobs with the prompt's. */
static void start(struct choice *choice, const struct job_prompt *prompt) {
    const struct api_request *request = prompt->job->request;
    choice->started = true;
    if (!request->echo) return;
    buf_add(&choice->text, prompt->text.data, prompt->text.length);
    if (prompt->prompt_logprobs) {
        for (int i = 0; i < prompt->n_ids; i++) {
            const struct api_logprob *logprob = &prompt->prompt_logprobs[i];
            add_logprob(choice, &logprob->sampled, logprob->text_offset, logprob->has_logprob);
        }
    }
    choice->offset = utf8_count(prompt->text.data, prompt->text.length);
}

/* Is the token an end of the model's own (and so no stop_reason)? Under ignore_eos it has none. */
static bool is_end_id(const struct job *job, int32_t id) {
    int n;
    if (job->request->ignore_eos) return false;
    const int32_t *ends = engine_end_ids(job->app->engine, &n);
    for (int i = 0; i < n; i++) {
        if (ends[i] == id) return true;
    }
    return false;
}

static void finish(struct choice *choice, const char *reason) {
    assert(!choice->done);
    choice->done = true;
    choice->finish_reason = reason;
}

/* Lets the token's text through the stop strings. True when one of them was met. */
static bool add_text(struct choice *choice, const struct event *event, bool silent) {
    buf_clear(&choice->decoded);
    if (!silent) detokenizer_add(&choice->detokenizer, event->sampled.id, &choice->decoded);
    if (event->finish != FINISH_NONE) detokenizer_finish(&choice->detokenizer, &choice->decoded);
    choice->offset += utf8_count(choice->decoded.data, choice->decoded.length);
    return stop_matcher_add(&choice->stops, choice->decoded.data ? choice->decoded.data : "",
                            choice->decoded.length, &choice->text);
}

static void add_token(struct choice *choice, const struct job_prompt *prompt,
                      const struct event *event) {
    const struct api_request *request = prompt->job->request;
    bool is_stop = event->finish == FINISH_STOP;
    choice->n_tokens++;
    if (request->return_token_ids) add_id(choice, event->sampled.id);
    if (request->sampling.n_logprobs >= 0) {
        add_logprob(choice, &event->sampled, choice->offset, true);
    }
    choice->stops.asleep = choice->n_tokens <= request->min_tokens;
    if (add_text(choice, event, is_stop && !request->include_stop_str_in_output)) {
        choice->stop_string = choice->stops.text[choice->stops.matched];
        finish(choice, "stop");
        return;
    }
    if (event->finish == FINISH_NONE) return;
    stop_matcher_finish(&choice->stops, &choice->text);
    if (is_stop && !is_end_id(prompt->job, event->sampled.id)) choice->stop_id = event->sampled.id;
    finish(choice, is_stop ? "stop" : "length");
}

void choice_add(struct choice *choice, const struct job_prompt *prompt, const struct event *event) {
    if (choice->done) return;
    if (!choice->started) start(choice, prompt);
    if (event->kind == EVENT_TOKEN) {
        add_token(choice, prompt, event);
        return;
    }
    stop_matcher_finish(&choice->stops, &choice->text);
    detokenizer_finish(&choice->detokenizer, &choice->text);
    finish(choice, event->finish == FINISH_LENGTH ? "length" : "abort");
}

bool choice_has_news(const struct choice *choice) {
    return choice->done || choice->text.length > 0;
}

void choice_describe(const struct choice *choice, const struct job_prompt *prompt, int index,
                     bool with_prompt_ids, struct api_choice *out) {
    const struct api_request *request = prompt->job->request;
    *out = (struct api_choice){
        .index = index,
        .text = choice->text.data ? choice->text.data : "",
        .length = choice->text.length,
        .finish_reason = choice->finish_reason,
        .stop_string = choice->stop_string,
        .stop_id = choice->stop_id,
        .n_logprobs = choice->n_logprobs,
        .logprobs = request->sampling.n_logprobs >= 0 ? choice->logprobs : NULL,
    };
    if (request->return_token_ids) {
        out->ids = choice->ids;
        out->n_ids = choice->n_ids;
        if (with_prompt_ids) {
            out->prompt_ids = prompt->ids;
            out->n_prompt_ids = prompt->n_ids;
        }
    }
}

void choice_clear(struct choice *choice) {
    buf_clear(&choice->text);
    choice->n_logprobs = 0;
    choice->n_ids = 0;
}
