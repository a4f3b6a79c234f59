/* The answer of {path}/render: what would be generated from, and how. Its form is that of vLLM's
 * GenerateRequest, with the settings that are served here; what has a default is written out. */
#include <assert.h>
#include <string.h>

#include "server/openai/internal.h"

static void write_real(struct buf *out, const char *name, float value) {
    buf_printf(out, ",\"%s\":%.7g", name, (double)value);
}

static void write_int(struct buf *out, const char *name, int64_t value) {
    buf_printf(out, ",\"%s\":%lld", name, (long long)value);
}

static void write_bool(struct buf *out, const char *name, bool value) {
    buf_printf(out, ",\"%s\":%s", name, value ? "true" : "false");
}

static void write_stops(struct buf *out, const struct api_request *request) {
    buf_puts(out, ",\"stop\":[");
    for (int i = 0; i < request->n_stops; i++) {
        if (i > 0) buf_add(out, ",", 1);
        json_write_string(out, request->stops[i].text, request->stops[i].length);
    }
    buf_puts(out, "],\"stop_token_ids\":");
    json_write_ints(out, request->stop_ids, request->n_stop_ids);
}

/* An object of biases by token id, or null. */
static void write_bias(struct buf *out, const struct sampling *sampling) {
    buf_puts(out, sampling->n_bias > 0 ? ",\"logit_bias\":{" : ",\"logit_bias\":null");
    for (int i = 0; i < sampling->n_bias; i++) {
        const struct logit_bias *bias = &sampling->bias[i];
        buf_printf(out, "%s\"%d\":%.7g", i > 0 ? "," : "", bias->id, (double)bias->bias);
    }
    if (sampling->n_bias > 0) buf_add(out, "}", 1);
}

/* `"sampling_params":{…}`; a logprobs or seed that was not asked for is null. */
static void write_sampling(struct buf *out, const struct api_request *request,
                           const struct generation *generation) {
    const struct sampling *sampling = &request->sampling;
    buf_printf(out, "\"sampling_params\":{\"n\":%d", request->n);
    write_int(out, "max_tokens", generation->max_tokens);
    write_int(out, "min_tokens", request->min_tokens);
    write_real(out, "temperature", sampling->temperature);
    write_real(out, "top_p", sampling->top_p);
    write_int(out, "top_k", sampling->top_k);
    write_real(out, "min_p", sampling->min_p);
    write_real(out, "presence_penalty", sampling->presence_penalty);
    write_real(out, "frequency_penalty", sampling->frequency_penalty);
    write_real(out, "repetition_penalty", sampling->repetition_penalty);
    if (request->has_seed)
        write_int(out, "seed", (int64_t)sampling->seed);
    else
        buf_puts(out, ",\"seed\":null");
    if (sampling->n_logprobs >= 0)
        write_int(out, "logprobs", sampling->n_logprobs);
    else
        buf_puts(out, ",\"logprobs\":null");
    write_bias(out, sampling);
    write_stops(out, request);
    write_bool(out, "ignore_eos", request->ignore_eos);
    write_bool(out, "skip_special_tokens", request->skip_special_tokens);
    write_bool(out, "include_stop_str_in_output", request->include_stop_str_in_output);
    buf_add(out, "}", 1);
}

static void write_prompt(struct buf *out, const struct api_answer *answer,
                         const struct generation *generation) {
    const struct api_request *request = answer->request;
    buf_puts(out, "{\"request_id\":");
    json_write_string(out, request->id, strlen(request->id));
    buf_puts(out, ",\"token_ids\":");
    json_write_ints(out, generation->prompt, generation->n_prompt);
    buf_puts(out, ",\"features\":null,");
    write_sampling(out, request, generation);
    buf_puts(out, ",\"model\":");
    json_write_string(out, answer->model, strlen(answer->model));
    write_bool(out, "stream", request->stream);
    write_int(out, "priority", request->priority);
    buf_add(out, "}", 1);
}

void api_write_rendered(struct buf *out, const struct api_answer *answer,
                        const struct generation *const *generations, int n) {
    bool one = answer->request->api->has_one_prompt;
    assert(n > 0 && (n == 1 || !one));
    if (!one) buf_add(out, "[", 1);
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_add(out, ",", 1);
        write_prompt(out, answer, generations[i]);
    }
    if (!one) buf_add(out, "]", 1);
}
