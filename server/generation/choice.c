/* One growing choice: converts tokens to text, ends it at stop strings, collects logprobs. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/name_index.h"
#include "server/generation/job.h"

/* The value for minus infinity in answers; a bias may select a token with that logprob. */
#define LEAST_LOGPROB (-9999.0)

/* Seeds the ids of calls. They differ between requests and choices, and are equal for equal request
 * ids. */
static uint64_t id_seed(const struct generation_job *job, int index) {
    return name_hash(job->id, strlen(job->id)) + (uint64_t)index * 0x9E3779B97F4A7C15u;
}

void choice_init(struct choice *choice, const struct generation_job *job, int index) {
    assert(index >= 0 && index < job->request->n_generated);
    struct message_settings format = job->format;
    *choice = (struct choice){.stop_id = -1};
    choice->detokenizer.tokenizer = engine_tokenizer(job->app->engine);
    choice->detokenizer.skip_special = job->request->skip_special_tokens;
    /* after a prompt, leading spaces are kept */
    choice->detokenizer.started = choice->detokenizer.is_past_start = true;
    stop_matcher_init(&choice->stops, job->request, job->stop_searches);
    if (!format.tools && !format.reasoning && !format.prefix) return;
    format.id_seed = id_seed(job, index);
    choice->parser = message_parser_new(&format);
}

void choice_free(struct choice *choice) {
    stop_matcher_free(&choice->stops);
    buf_free(&choice->decoded);
    buf_free(&choice->text);
    message_parser_free(choice->parser);
    message_free(&choice->message);
    mem_free(choice->logprobs);
    mem_free(choice->ids);
    mem_free(choice->kept_ids);
    *choice = (struct choice){.done = choice->done};
}

/* Ensures capacity for one more element of an array by doubling it. */
static void *room_for_one(void *array, int n, int *capacity, size_t element) {
    assert(n >= 0 && n <= *capacity && element > 0);
    if (n < *capacity) return array;
    int grown = *capacity ? 2 * *capacity : 16;
    array = mem_realloc(array, (size_t)grown * element);
    *capacity = grown;
    return array;
}

static void add_logprob(struct choice *choice, const struct sampled *sampled, int offset,
                        bool has) {
    choice->logprobs = room_for_one(choice->logprobs, choice->n_logprobs, &choice->logprob_capacity,
                                    sizeof *choice->logprobs);
    choice->logprobs[choice->n_logprobs++] =
        (struct api_logprob){.text_offset = offset, .has_logprob = has, .sampled = *sampled};
}

/* Begins a choice. With echo, it begins with the prompt's text and logprobs. */
static void start(struct choice *choice, const struct prompt_run *run) {
    const struct api_request *request = run->job->request;
    assert(!choice->started && choice->n_tokens == 0);
    choice->started = true;
    if (!request->echo) return;
    buf_add(&choice->text, run->text.data, run->text.length);
    for (int i = 0; request->sampling.n_logprobs >= 0 && i < run->n_ids; i++) {
        const struct api_logprob *logprob = &run->prompt_logprobs[i];
        struct sampled sampled = logprob->sampled; /* it may have more of the best tokens */
        if (sampled.n_top > request->sampling.n_logprobs)
            sampled.n_top = request->sampling.n_logprobs;
        add_logprob(choice, &sampled, logprob->text_offset, logprob->has_logprob);
    }
    choice->offset = utf8_count(run->text.data, run->text.length);
}

/* Is the token one of the model's end tokens, and so not a stop_reason? False with ignore_eos. */
static bool is_end_id(const struct generation_job *job, int32_t id) {
    int n;
    if (job->request->ignore_eos) return false;
    const int32_t *ends = engine_end_ids(job->app->engine, &n);
    for (int i = 0; i < n; i++) {
        if (ends[i] == id) return true;
    }
    return false;
}

/* Is the token's text omitted? Special tokens that mark calls or reasoning are kept, because the
 * parser needs them. */
static bool is_skipped(const struct choice *choice, const struct generation_job *job, int32_t id) {
    const struct tokenizer *tokenizer = engine_tokenizer(job->app->engine);
    if (!job->request->skip_special_tokens || !choice->parser) {
        return job->request->skip_special_tokens;
    }
    const char *name = tokenizer_token_name(tokenizer, id);
    return !tokenizer_is_special(tokenizer, id) ||
           !message_has_marker(job->format.tools, job->format.reasoning, name, strlen(name));
}

/* Drops unwanted reasoning after counting it. */
static void drop_thoughts(struct choice *choice, const struct api_request *request) {
    if (!request->include_reasoning) message_drop_reasoning(&choice->message);
}

/* Parses the new text as parts of a message. */
static void read_text(struct choice *choice, const struct api_request *request) {
    bool was_reasoning = message_parser_is_reasoning(choice->parser);
    message_parser_add(choice->parser, choice->text.data, choice->text.length, &choice->message);
    buf_clear(&choice->text);
    choice->n_reasoning += was_reasoning || message_parser_is_reasoning(choice->parser);
    drop_thoughts(choice, request);
}

/* Is the only call that the answer may have complete? */
static bool has_last_call(const struct choice *choice, const struct api_request *request) {
    return choice->parser && !request->parallel_tool_calls &&
           message_parser_calls(choice->parser) > 0 && message_parser_is_idle(choice->parser);
}

static void finish(struct choice *choice, const struct api_request *request, const char *reason) {
    assert(!choice->done && !choice->finish_reason);
    if (choice->parser) {
        message_parser_add(choice->parser, choice->text.data, choice->text.length,
                           &choice->message);
        buf_clear(&choice->text);
        bool is_cut = strcmp(reason, "length") == 0 || strcmp(reason, "timeout") == 0;
        (is_cut ? message_parser_cut : message_parser_finish)(choice->parser, &choice->message);
        drop_thoughts(choice, request);
    }
    choice->done = true;
    choice->finish_reason = reason;
}

/* Appends the new text. Returns true if a stop string ends the choice. Stop strings are for the
 * content: thoughts often have the line breaks or headings that end an answer. */
static bool add_decoded(struct choice *choice, const struct api_request *request) {
    const struct buf *decoded = &choice->decoded;
    const char *text = decoded->data ? decoded->data : "";
    choice->stops.asleep = choice->n_tokens <= request->min_tokens;
    if (choice->parser && !request->stop_in_reasoning &&
        message_parser_is_reasoning(choice->parser)) {
        stop_matcher_skip(&choice->stops, text, decoded->length, &choice->text);
        return false;
    }
    if (!stop_matcher_add(&choice->stops, text, decoded->length, &choice->text)) return false;
    choice->stop_string = choice->stops.matched;
    return true;
}

static enum choice_change add_token(struct choice *choice, const struct prompt_run *run,
                                    const struct event *event) {
    const struct api_request *request = run->job->request;
    struct buf *text = &choice->decoded;
    int32_t id = event->sampled.id;
    bool is_stop = event->finish == FINISH_STOP;
    choice->n_tokens++;
    choice->mean_logprob +=
        (fmax((double)event->sampled.logprob, LEAST_LOGPROB) - choice->mean_logprob) /
        choice->n_tokens;
    if (request->return_token_ids) {
        choice->ids =
            room_for_one(choice->ids, choice->n_ids, &choice->id_capacity, sizeof *choice->ids);
        choice->ids[choice->n_ids++] = id;
    }
    if (run->job->receipt.is_made) {
        choice->kept_ids = room_for_one(choice->kept_ids, choice->n_kept_ids,
                                        &choice->kept_capacity, sizeof *choice->kept_ids);
        choice->kept_ids[choice->n_kept_ids++] = id;
    }
    if (request->sampling.n_logprobs >= 0) {
        add_logprob(choice, &event->sampled, choice->offset, true);
    }
    buf_clear(text);
    choice->detokenizer.skip_special = is_skipped(choice, run->job, id);
    if (!is_stop || request->include_stop_str_in_output) {
        detokenizer_add(&choice->detokenizer, id, text);
    }
    if (event->finish != FINISH_NONE) detokenizer_finish(&choice->detokenizer, text);
    choice->offset += utf8_count(text->data, text->length);
    if (add_decoded(choice, request)) {
        finish(choice, request, "stop");
        return event->finish == FINISH_NONE ? CHOICE_STOPPED : CHOICE_ENDED;
    }
    if (choice->parser) read_text(choice, request);
    if (has_last_call(choice, request)) {
        finish(choice, request, "stop");
        return event->finish == FINISH_NONE ? CHOICE_STOPPED : CHOICE_ENDED;
    }
    if (event->finish == FINISH_NONE) return CHOICE_GROWN;
    stop_matcher_finish(&choice->stops, &choice->text);
    if (is_stop && !is_end_id(run->job, id)) choice->stop_id = id;
    finish(choice, request, event->finish == FINISH_LENGTH ? "length" : "stop");
    return CHOICE_ENDED;
}

enum choice_change choice_add(struct choice *choice, const struct prompt_run *run,
                              const struct event *event) {
    if (choice->done) return CHOICE_UNCHANGED;
    if (!choice->started) start(choice, run);
    if (event->kind == EVENT_TOKEN) return add_token(choice, run, event);
    assert(event->kind == EVENT_END && event->finish != FINISH_NONE);
    stop_matcher_finish(&choice->stops, &choice->text);
    detokenizer_finish(&choice->detokenizer, &choice->text);
    finish(choice, run->job->request,
           event->finish == FINISH_LENGTH    ? "length"
           : event->finish == FINISH_TIMEOUT ? "timeout"
                                             : "abort");
    return CHOICE_ENDED;
}

bool choice_drop(struct choice *choice) {
    bool was_open = !choice->done;
    choice->done = true;
    return was_open;
}

void choice_drop_text(struct choice *choice) {
    assert(choice->done);
    buf_free(&choice->text);
    message_free(&choice->message);
    mem_free(choice->logprobs);
    mem_free(choice->ids);
    mem_free(choice->kept_ids);
    choice->logprobs = NULL;
    choice->ids = choice->kept_ids = NULL;
    choice->n_logprobs = choice->logprob_capacity = choice->n_ids = choice->id_capacity = 0;
    choice->n_kept_ids = choice->kept_capacity = 0;
}

bool choice_has_news(const struct choice *choice) {
    return choice->done || choice->text.length > 0 || !message_is_empty(&choice->message);
}

void choice_describe(const struct choice *choice, const struct prompt_run *run, int index,
                     bool with_prompt_ids, struct api_choice *out) {
    const struct api_request *request = run->job->request;
    assert(!choice->done || choice->finish_reason); /* a dropped choice is not written */
    bool stopped = choice->finish_reason && strcmp(choice->finish_reason, "stop") == 0;
    bool called = choice->parser && message_parser_calls(choice->parser) > 0 &&
                  !message_parser_has_cut_call(choice->parser);
    /* OpenAI returns "stop" if the request names the tool */
    called = called && !request->callable.only;
    *out = (struct api_choice){
        .index = index,
        .text = choice->text.data ? choice->text.data : "",
        .length = choice->text.length,
        .message = choice->parser ? &choice->message : NULL,
        .finish_reason = stopped && called ? "tool_calls" : choice->finish_reason,
        .stop_string = choice->stop_string,
        .stop_id = choice->stop_id,
        .n_logprobs = choice->n_logprobs,
        .logprobs = request->sampling.n_logprobs >= 0 ? choice->logprobs : NULL,
        .n_prompt_tokens = run->n_ids,
        .hidden_sum = run->hidden_sum,
        .read = run->read,
    };
    if (request->return_token_ids) {
        out->ids = choice->ids;
        out->n_ids = choice->n_ids;
        if (with_prompt_ids) {
            out->prompt_ids = run->ids;
            out->n_prompt_ids = run->n_ids;
        }
    }
    if (request->prompt_logprobs >= 0) {
        out->prompt_logprobs = run->prompt_logprobs;
        out->n_prompt_logprobs = run->n_ids;
    }
}

void choice_clear(struct choice *choice) {
    buf_clear(&choice->text);
    message_clear(&choice->message);
    choice->n_logprobs = 0;
    choice->n_ids = 0;
}
