/* Writes the answer of {path}/render: the tokens to generate from, and the settings. The form is
 * vLLM's GenerateRequest, restricted to the settings that this server supports; defaults are
 * written out. */
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

/* Writes a setting of the table. A value below the field's range means that it is absent: null. */
static void write_setting(struct buf *out, const struct api_request *request,
                          const struct field *field) {
    const void *at = (const char *)request + field->offset;
    if (field->type == FIELD_BOOL) {
        write_bool(out, field->name, *(const bool *)at);
    } else if (field->type == FIELD_REAL) {
        write_real(out, field->name, *(const float *)at);
    } else if (*(const int *)at >= field->min) {
        write_int(out, field->name, *(const int *)at);
    } else {
        buf_printf(out, ",\"%s\":null", field->name);
    }
}

static void write_texts(struct buf *out, const char *name, const struct api_text *texts, int n) {
    buf_printf(out, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_add(out, ",", 1);
        json_write_string(out, texts[i].text, texts[i].length);
    }
    buf_add(out, "]", 1);
}

static void write_stops(struct buf *out, const struct api_request *request) {
    write_texts(out, "stop", request->stops, request->n_stops);
    if (request->n_stop_regexes > 0)
        write_texts(out, "stop_regex", request->stop_regexes, request->n_stop_regexes);
    buf_puts(out, ",\"stop_token_ids\":");
    json_write_ints(out, request->stop_ids, request->n_stop_ids);
    write_texts(out, "bad_words", request->bad_words, request->n_bad_words);
    if (request->dry_breakers)
        write_texts(out, "dry_sequence_breakers", request->dry_breakers, request->n_dry_breakers);
}

/* Writes an object of biases by token id, or null. */
static void write_bias(struct buf *out, const struct sampling *sampling) {
    buf_puts(out, sampling->n_bias > 0 ? ",\"logit_bias\":{" : ",\"logit_bias\":null");
    for (int i = 0; i < sampling->n_bias; i++) {
        const struct logit_bias *bias = &sampling->bias[i];
        buf_printf(out, "%s\"%d\":%.7g", i > 0 ? "," : "", bias->id, (double)bias->bias);
    }
    if (sampling->n_bias > 0) buf_add(out, "}", 1);
}

/* Writes best_of and the settings of beam search if the request uses them. */
static void write_search(struct buf *out, const struct api_request *request) {
    static const char *const rules[] = {"false", "true", "\"never\""};
    if (request->best_of > request->n || request->use_beam_search)
        write_int(out, "best_of", request->best_of);
    if (!request->use_beam_search) return;
    write_bool(out, "use_beam_search", true);
    write_real(out, "length_penalty", request->length_penalty);
    buf_printf(out, ",\"early_stopping\":%s", rules[request->beams.stopping]);
}

/* Writes a grammar in vLLM's form: an object with one member, named after its kind; or null. A
 * schema is written as a string, and beside it "strict" if it is. */
static void write_grammar(struct buf *out, const struct api_grammar *grammar) {
    static const char *const member[] = {[GRAMMAR_JSON_OBJECT] = "json_object",
                                         [GRAMMAR_JSON_SCHEMA] = "json",
                                         [GRAMMAR_JSON_SCHEMA_STRICT] = "json",
                                         [GRAMMAR_REGEX] = "regex",
                                         [GRAMMAR_CHOICE] = "choice",
                                         [GRAMMAR_GBNF] = "grammar",
                                         [GRAMMAR_STRUCTURAL_TAG] = "structural_tag"};
    buf_puts(out, ",\"structured_outputs\":");
    if (!grammar->field) {
        buf_puts(out, "null");
        return;
    }
    buf_printf(out, "{\"%s\":", member[grammar->kind]);
    if (grammar->kind == GRAMMAR_JSON_OBJECT)
        buf_puts(out, "true");
    else if (grammar->kind == GRAMMAR_CHOICE)
        buf_add(out, grammar->text, grammar->length);
    else
        json_write_string(out, grammar->text, grammar->length);
    if (grammar->kind == GRAMMAR_JSON_SCHEMA_STRICT) write_bool(out, "strict", true);
    buf_puts(out, "}");
}

/* The fields that all APIs share. api_write_sampling writes the numeric ones. */
static const struct field settings[] = {SAMPLING_FIELDS};

/* If logprobs or seed is absent, it is null. */
void api_write_sampling(struct buf *out, const struct api_request *request,
                        const struct generation *generation) {
    const struct sampling *sampling = &request->sampling;
    buf_printf(out, "{\"n\":%d", request->n);
    write_int(out, "max_tokens", generation->max_tokens);
    write_search(out, request);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].offset != FIELD_NOT_STORED && !settings[i].same_as)
            write_setting(out, request, &settings[i]);
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
    write_grammar(out, &request->grammar);
    buf_add(out, "}", 1);
}

static void write_prompt(struct buf *out, const struct api_answer *answer,
                         const struct generation *generation) {
    const struct api_request *request = answer->request;
    buf_puts(out, "{\"request_id\":");
    json_write_string(out, request->id, strlen(request->id));
    buf_puts(out, ",\"token_ids\":");
    json_write_ints(out, generation->prompt, generation->n_prompt);
    buf_puts(out, ",\"features\":null,\"sampling_params\":");
    api_write_sampling(out, request, generation);
    buf_puts(out, ",\"model\":");
    json_write_string(out, answer->model, strlen(answer->model));
    write_bool(out, "stream", request->stream);
    write_int(out, "priority", request->priority);
    buf_add(out, "}", 1);
}

static size_t texts_bound(const struct api_text *texts, int n) {
    size_t bound = 0;
    for (int i = 0; i < n; i++) bound += json_string_bound(texts[i].text, texts[i].length) + 1;
    return bound;
}

/* Each prompt is written with all settings. */
size_t api_rendered_bound(const struct api_request *request,
                          const struct generation *const *generations, int n) {
    enum { SETTINGS_BYTES = 8192, ID_BYTES = 11, BIAS_BYTES = 40 };
    size_t bound = 0, each = SETTINGS_BYTES;
    each += texts_bound(request->stops, request->n_stops);
    each += texts_bound(request->stop_regexes, request->n_stop_regexes);
    each += texts_bound(request->bad_words, request->n_bad_words);
    each += texts_bound(request->dry_breakers, request->n_dry_breakers);
    each += (size_t)request->sampling.n_bias * BIAS_BYTES;
    if (request->grammar.field)
        each += json_string_bound(request->grammar.text, request->grammar.length);
    for (int i = 0; i < n; i++) bound += each + (size_t)generations[i]->n_prompt * ID_BYTES;
    return bound;
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
