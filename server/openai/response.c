/* Writes the parts that answers of all APIs share, and the documents outside of the APIs. An event
 * is `data: {json}` and an empty line. JSON strings do not contain raw line breaks, so they cannot
 * break an event. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "server/openai/internal.h"

/* Writes a string, or null if it is NULL or empty. */
static void write_or_null(struct buf *out, const char *text) {
    if (text && text[0])
        json_write_string(out, text, strlen(text));
    else
        buf_puts(out, "null");
}

/* ---- answers -------------------------------------------------------------------------------- */

void write_envelope(struct buf *out, const struct api_answer *answer, const char *object) {
    const struct api_request *request = answer->request;
    buf_puts(out, "{\"id\":");
    json_write_string(out, request->id, strlen(request->id));
    buf_puts(out, ",\"object\":\"");
    buf_puts(out, object);
    buf_puts(out, "\",\"created\":");
    json_write_int(out, request->created);
    buf_puts(out, ",\"model\":");
    json_write_string(out, answer->model, strlen(answer->model));
    buf_puts(out, ",\"system_fingerprint\":\"");
    if (answer->system_fingerprint)
        buf_puts(out, answer->system_fingerprint);
    else
        buf_printf(out, "penstock-%s", build_info().version);
    buf_puts(out, "\"");
}

void write_choice_end(struct buf *out, const struct api_choice *choice) {
    assert(choice->finish_reason || !choice->stop_string);
    buf_puts(out, ",\"finish_reason\":");
    write_or_null(out, choice->finish_reason);
    buf_puts(out, ",\"stop_reason\":");
    if (!choice->stop_string && choice->finish_reason && choice->stop_id >= 0)
        json_write_int(out, choice->stop_id);
    else
        write_or_null(out, choice->stop_string);
    if (!choice->ids) return;
    buf_puts(out, ",\"token_ids\":");
    json_write_ints(out, choice->ids, choice->n_ids);
}

void write_prompt_ids(struct buf *out, const struct api_choice *choice) {
    if (!choice->prompt_ids) return;
    buf_puts(out, ",\"prompt_token_ids\":");
    json_write_ints(out, choice->prompt_ids, choice->n_prompt_ids);
}

static void write_ranked(struct buf *out, const struct tokenizer *tokenizer, int32_t id,
                         float logprob, int rank) {
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
    buf_printf(out, "\"%d\":{\"logprob\":", (int)id);
    write_logprob(out, logprob);
    buf_printf(out, ",\"rank\":%d,\"decoded_token\":", rank);
    json_write_string(out, bytes, length);
    buf_add(out, "}", 1);
}

/* Uses vLLM's form: the prompt's token first, then the best tokens except for that one. */
void write_prompt_logprobs(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choice) {
    if (!choice->prompt_logprobs) return;
    const int most = answer->request->prompt_logprobs;
    assert(most >= 0 && most <= MAX_TOP_LOGPROBS);
    buf_puts(out, ",\"prompt_logprobs\":[");
    for (int i = 0; i < choice->n_prompt_logprobs; i++) {
        const struct sampled *sampled = &choice->prompt_logprobs[i].sampled;
        if (i > 0) buf_add(out, ",", 1);
        if (!choice->prompt_logprobs[i].has_logprob) {
            buf_puts(out, "null");
            continue;
        }
        buf_add(out, "{", 1);
        write_ranked(out, answer->tokenizer, sampled->id, sampled->logprob, sampled->rank);
        for (int j = 0; j < sampled->n_top && j < most; j++) {
            const struct token_logprob *top = &sampled->top[j];
            if (top->id == sampled->id) continue;
            buf_add(out, ",", 1);
            write_ranked(out, answer->tokenizer, top->id, top->logprob, j + 1);
        }
        buf_add(out, "}", 1);
    }
    buf_add(out, "]", 1);
}

/* -9999 represents minus infinity, an impossible token. Nine digits preserve a float's bits. */
void write_logprob(struct buf *out, float logprob) {
    if (!isfinite(logprob) || logprob < -9999)
        buf_puts(out, "-9999.0");
    else
        buf_printf(out, "%.9g", (double)logprob);
}

/* Writes the number of reasoning tokens, and of drafts accepted and rejected from a predicted
 * output. */
static void write_completion_details(struct buf *out, const struct api_usage *usage) {
    if (!usage->has_reasoning && !usage->predicts) return;
    buf_puts(out, ",\"completion_tokens_details\":{");
    if (usage->has_reasoning) buf_printf(out, "\"reasoning_tokens\":%d", usage->reasoning_tokens);
    if (usage->has_reasoning && usage->predicts) buf_puts(out, ",");
    if (usage->predicts)
        buf_printf(out, "\"accepted_prediction_tokens\":%d,\"rejected_prediction_tokens\":%d",
                   usage->predicted_held, usage->predicted_refused);
    buf_puts(out, "}");
}

void write_usage(struct buf *out, const struct api_usage *usage) {
    if (!usage) {
        buf_puts(out, "null");
        return;
    }
    buf_puts(out, "{\"prompt_tokens\":");
    json_write_int(out, usage->prompt_tokens);
    buf_puts(out, ",\"completion_tokens\":");
    json_write_int(out, usage->completion_tokens);
    buf_puts(out, ",\"total_tokens\":");
    json_write_int(out, (int64_t)usage->prompt_tokens + usage->completion_tokens);
    buf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_write_int(out, usage->cached_tokens);
    buf_puts(out, "}");
    write_completion_details(out, usage);
    buf_puts(out, "}");
}

/* ---- events --------------------------------------------------------------------------------- */

void write_chunk_start(struct buf *out, const struct api_answer *answer, const char *object) {
    buf_puts(out, "data: ");
    write_envelope(out, answer, object);
    buf_puts(out, ",\"choices\":[");
}

void write_chunk_end(struct buf *out, const struct api_answer *answer,
                     const struct api_usage *usage) {
    buf_add(out, "]", 1);
    if (!answer->request->include_usage && !usage) return;
    buf_puts(out, ",\"usage\":");
    write_usage(out, usage);
}

void write_done(struct buf *out, const struct api_answer *answer, const struct api_usage *usage) {
    (void)answer;
    (void)usage;
    buf_puts(out, "data: [DONE]\n\n");
}

void write_error_event(struct buf *out, const struct api_answer *answer, const struct err *err) {
    buf_puts(out, "data: ");
    api_write_error(out, err);
    buf_puts(out, "\n\n");
    write_done(out, answer, NULL);
}

void api_write_status(struct buf *out, const struct err *err, const char *request_id) {
    (void)request_id;
    api_write_error(out, err);
}

/* ---- other documents ------------------------------------------------------------------------ */

void api_write_error(struct buf *out, const struct err *err) {
    assert(err->status != STATUS_OK);
    const char *type = status_type(err->status);
    buf_puts(out, "{\"error\":{\"message\":");
    json_write_string(out, err->message, strlen(err->message));
    buf_puts(out, ",\"type\":");
    json_write_string(out, type, strlen(type));
    buf_puts(out, ",\"param\":");
    write_or_null(out, err->param);
    buf_puts(out, ",\"code\":");
    write_or_null(out, err->code);
    buf_puts(out, "}}");
}

bool api_is_cut(const char *finish_reason) {
    if (!finish_reason) return false;
    return strcmp(finish_reason, "length") == 0 || strcmp(finish_reason, "timeout") == 0;
}

int api_http(const struct api *api, enum status status) {
    bool has_own = api && api->bad_input_http > 0 && status == STATUS_INVALID_REQUEST;
    return has_own ? api->bad_input_http : status_http(status);
}

/* Writes a token's bytes as a string, or as numbers if they are not valid UTF-8. */
static void write_piece(struct buf *out, const struct tokenizer *tokenizer, int32_t id) {
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
    buf_printf(out, "{\"id\":%d,\"piece\":", (int)id);
    if (utf8_valid_prefix(bytes, length) == length) {
        json_write_string(out, bytes, length);
    } else {
        for (size_t i = 0; i < length; i++)
            buf_printf(out, i > 0 ? ",%d" : "[%d", (int)(unsigned char)bytes[i]);
        buf_puts(out, "]");
    }
    buf_puts(out, "}");
}

static void write_names(struct buf *out, const struct tokenizer *tokenizer, const int32_t *ids,
                        int n) {
    buf_puts(out, "[");
    for (int i = 0; i < n; i++) {
        const char *name = tokenizer_token_name(tokenizer, ids[i]);
        if (i > 0) buf_puts(out, ",");
        json_write_string(out, name, strlen(name));
    }
    buf_puts(out, "]");
}

void api_write_tokens(struct buf *out, const struct tokenizer *tokenizer, const int32_t *ids, int n,
                      int max_model_len, enum token_form form) {
    assert(n >= 0 && max_model_len > 0);
    buf_puts(out, "{\"count\":");
    json_write_int(out, n);
    buf_puts(out, ",\"max_model_len\":");
    json_write_int(out, max_model_len);
    buf_puts(out, ",\"tokens\":");
    if (form == TOKENS_WITH_PIECES) {
        buf_puts(out, "[");
        for (int i = 0; i < n; i++) {
            if (i > 0) buf_puts(out, ",");
            write_piece(out, tokenizer, ids[i]);
        }
        buf_puts(out, "]");
    } else {
        json_write_ints(out, ids, n);
    }
    buf_puts(out, ",\"token_strs\":");
    if (form == TOKENS_AND_NAMES)
        write_names(out, tokenizer, ids, n);
    else
        buf_puts(out, "null");
    buf_add(out, "}", 1);
}

/* Escapes the text in slices, so that the answer is in memory only once. */
static void write_ids_as_text(struct buf *out, const struct tokenizer *tokenizer,
                              const int32_t *ids, int n) {
    enum { SLICE = 256 };
    struct detokenizer detokenizer = {.tokenizer = tokenizer};
    struct buf text = {0};
    buf_puts(out, "\"");
    for (int i = 0; i < n; i++) {
        detokenizer_add(&detokenizer, ids[i], &text);
        if (i % SLICE != SLICE - 1) continue;
        json_write_part(out, text.data ? text.data : "", text.length);
        buf_clear(&text);
    }
    detokenizer_finish(&detokenizer, &text);
    json_write_part(out, text.data ? text.data : "", text.length);
    buf_puts(out, "\"");
    buf_free(&text);
}

void api_write_detokenized(struct buf *out, const struct tokenizer *tokenizer, const int32_t *ids,
                           int n) {
    assert(n >= 0);
    buf_puts(out, "{\"prompt\":");
    write_ids_as_text(out, tokenizer, ids, n);
    buf_puts(out, ",\"content\":");
    write_ids_as_text(out, tokenizer, ids, n);
    buf_puts(out, "}");
}

/* ---- sizes of documents --------------------------------------------------------------------- */

enum {
    FRAME_BYTES = 256, /* the text around lists */
    ID_BYTES = 11,     /* a 32-bit number and its comma */
    PIECE_BYTES = 20,  /* the text around an id and a piece */
    BYTE_BYTES = 4     /* a byte as a number, and its comma */
};

size_t api_tokens_bound(const struct tokenizer *tokenizer, const int32_t *ids, int n,
                        enum token_form form) {
    assert(n >= 0);
    size_t bound = FRAME_BYTES + (size_t)n * ID_BYTES, length;
    for (int i = 0; form == TOKENS_AND_NAMES && i < n; i++) {
        const char *name = tokenizer_token_name(tokenizer, ids[i]);
        bound += json_string_bound(name, strlen(name)) + 1;
    }
    for (int i = 0; form == TOKENS_WITH_PIECES && i < n; i++) {
        const char *bytes = tokenizer_token_bytes(tokenizer, ids[i], &length);
        bound += PIECE_BYTES + json_string_bound(bytes, length) + length * BYTE_BYTES;
    }
    return bound;
}

/* json_string_bound includes two bytes for quotes per token, enough for a space that joins a token
 * to the text. */
size_t api_detokenized_bound(const struct tokenizer *tokenizer, const int32_t *ids, int n) {
    assert(n >= 0);
    size_t bound = FRAME_BYTES, length;
    for (int i = 0; i < n; i++) {
        const char *bytes = tokenizer_token_bytes(tokenizer, ids[i], &length);
        bound += 2 * json_string_bound(bytes, length); /* the text is written twice */
    }
    return bound;
}
