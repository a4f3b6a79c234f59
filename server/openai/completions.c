/* The API /v1/completions: its fields, answers, chunks and logprobs (four parallel lists). */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/openai/internal.h"

#define OBJECT "text_completion" /* for answers and chunks */

/* ---- requests ------------------------------------------------------------------------------- */

struct completion_body {
    struct api_request request; /* must be first: field offsets are relative to it */
    int max_completion_tokens;  /* -1: absent */
    int logprobs;               /* -1: absent */
};

/* Checks the files that precede the text to fill in. */
static enum status check_extra(struct parse *parse, const char *name, const struct json *value) {
    int i = 0;
    json_each(file, value) {
        char where[48];
        const struct json *filename = json_member(file, "filename");
        snprintf(where, sizeof where, "%s[%d]", name, i++);
        if (!json_is(json_member(file, "text"), JSON_STRING))
            return field_wrong(parse, where, "must be an object with the string 'text'");
        if (filename && !json_is(filename, JSON_NULL) && !json_is(filename, JSON_STRING))
            return field_wrong(parse, where, "must have a string as 'filename'");
    }
    return STATUS_OK;
}

static const struct field fields[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .check = check_model},
    TRUNCATION_FIELD,
    {"prompt", FIELD_ANY, FIELD_NOT_STORED, .required = true, .check = check_prompt},
    {"n", FIELD_INT, IN(n), 1, INT32_MIN, INT32_MAX, .check = check_n},
    {"echo", FIELD_BOOL, IN(echo)},
    {"add_special_tokens", FIELD_BOOL, IN(add_special_tokens), 1},
    {"max_tokens", FIELD_INT, IN(max_tokens), 16, -1, INT32_MAX},
    {"max_completion_tokens", FIELD_INT, offsetof(struct completion_body, max_completion_tokens),
     -1, -1, INT32_MAX},
    OTHER_NAMES,
    SAMPLING_FIELDS,
    SEARCH_FIELDS,
    {"logprobs", FIELD_INT, offsetof(struct completion_body, logprobs), -1, 0, MAX_TOP_LOGPROBS,
     .takes_false = true},
    DELIVERY_FIELDS,
    {"suffix", FIELD_STRING, FIELD_NOT_STORED},
    {"input_extra", FIELD_ARRAY, FIELD_NOT_STORED, .check = check_extra},
    STRUCTURED_FIELDS,
};

const struct field_table completion_fields = {FIELDS_OF(fields)};

/* Sets the text after the gap, and the files before, in all prompts. */
static enum status set_suffix(struct parse *parse) {
    struct api_request *request = parse->target;
    const struct json *suffix = field_given(parse, "suffix");
    const struct json *extra = field_given(parse, "input_extra");
    const char *name = request->api->infills ? "input_suffix" : "suffix";
    if (!request->api->infills && json_length(suffix) == 0)
        return json_first(extra) ? field_wrong(parse, "input_extra", "needs a 'suffix'")
                                 : STATUS_OK;
    if (!parse->limits->can_infill)
        return field_wrong(parse, name,
                           "needs a model with tokens for filling in, such as <|fim_prefix|>; this "
                           "model has none: leave it out");
    if (request->echo) return field_wrong(parse, "echo", "must be false if text is filled in");
    if (request->truncate_prompt_tokens != 0)
        return field_wrong(parse, "truncate_prompt_tokens", "must be absent if text is filled in");
    for (int i = 0; i < request->n_prompts; i++) {
        struct api_prompt *prompt = &request->prompts[i];
        if (prompt->ids) return field_wrong(parse, "prompt", "must be text if text is filled in");
        prompt->infills = true;
        prompt->suffix = suffix ? json_text(suffix) : "";
        prompt->suffix_length = json_length(suffix);
        prompt->extra = extra;
    }
    return STATUS_OK;
}

static enum status finish_request(struct parse *parse) {
    struct completion_body *given = parse->target;
    enum status status = api_refuse_unserved(parse->object, UNSERVED_IN_COMPLETIONS, parse->err);
    if (status != STATUS_OK) return status;
    if (!field_given(parse, "prompt")) return field_wrong(parse, "prompt", "is missing");
    if (set_suffix(parse)) return parse->err->status;
    if (given->max_completion_tokens >= 0) {
        given->request.max_tokens = given->max_completion_tokens;
    }
    given->request.sampling.n_logprobs = given->logprobs;
    return check_request(parse);
}

enum status api_parse_text(struct api_request **out, struct json *body,
                           const struct api_limits *limits, const struct api *api,
                           struct err *err) {
    struct completion_body given = {.request = {.api = api}};
    struct parse parse = {FIELDS_OF(fields), .target = &given, .limits = limits, .err = err};
    return request_parse(out, &parse, body, finish_request);
}

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    return api_parse_text(out, body, limits, &api_completions, err);
}

/* ---- logprobs ------------------------------------------------------------------------------- */

/* Writes a token as a string: its text, or "bytes:\xe2\x80" if it is not valid UTF-8. */
static void write_token_text(struct buf *out, const struct tokenizer *tokenizer, int32_t id) {
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
    if (utf8_valid_prefix(bytes, length) == length) {
        json_write_string(out, bytes, length);
        return;
    }
    buf_puts(out, "\"bytes:");
    for (size_t i = 0; i < length; i++) buf_printf(out, "\\\\x%02x", (unsigned char)bytes[i]);
    buf_add(out, "\"", 1);
}

static bool same_text(const struct tokenizer *tokenizer, int32_t a, int32_t b) {
    size_t n, m;
    const char *x = tokenizer_token_bytes(tokenizer, a, &n);
    const char *y = tokenizer_token_bytes(tokenizer, b, &m);
    return n == m && memcmp(x, y, n) == 0;
}

/* Writes {"text": logprob, ...} with the best tokens and the chosen one. If several tokens have the
 * same text, only the best is written, because the keys of an object must be unique. */
static void write_top(struct buf *out, const struct tokenizer *tokenizer,
                      const struct sampled *sampled) {
    struct token_logprob all[MAX_TOP_LOGPROBS + 1];
    int n = sampled->n_top;
    assert(n >= 0 && n <= MAX_TOP_LOGPROBS);
    memcpy(all, sampled->top, (size_t)n * sizeof *all);
    all[n++] = (struct token_logprob){sampled->id, sampled->logprob};
    buf_add(out, "{", 1);
    for (int i = 0, written = 0; i < n; i++) {
        int before = 0;
        while (before < i && !same_text(tokenizer, all[before].id, all[i].id)) before++;
        if (before < i) continue;
        if (written++ > 0) buf_add(out, ",", 1);
        write_token_text(out, tokenizer, all[i].id);
        buf_add(out, ":", 1);
        write_logprob(out, all[i].logprob);
    }
    buf_add(out, "}", 1);
}

enum column { OFFSETS, LOGPROBS, TOKENS, TOPS };

static void write_cell(struct buf *out, enum column column, const struct tokenizer *tokenizer,
                       const struct api_logprob *one) {
    if (column == OFFSETS)
        json_write_int(out, one->text_offset);
    else if (column == TOKENS)
        write_token_text(out, tokenizer, one->sampled.id);
    else if (!one->has_logprob)
        buf_puts(out, "null");
    else if (column == LOGPROBS)
        write_logprob(out, one->sampled.logprob);
    else
        write_top(out, tokenizer, &one->sampled);
}

static void write_logprobs(struct buf *out, const struct tokenizer *tokenizer,
                           const struct api_choice *choice) {
    static const char *const names[] = {"{\"text_offset\":[", "],\"token_logprobs\":[",
                                        "],\"tokens\":[", "],\"top_logprobs\":["};
    if (!choice->logprobs) {
        buf_puts(out, "null");
        return;
    }
    for (int column = OFFSETS; column <= TOPS; column++) {
        buf_puts(out, names[column]);
        for (int i = 0; i < choice->n_logprobs; i++) {
            if (i > 0) buf_add(out, ",", 1);
            write_cell(out, (enum column)column, tokenizer, &choice->logprobs[i]);
        }
    }
    buf_puts(out, "]}");
}

/* ---- answers -------------------------------------------------------------------------------- */

static void write_choice(struct buf *out, const struct api_answer *answer,
                         const struct api_choice *choice) {
    buf_puts(out, "{\"index\":");
    json_write_int(out, choice->index);
    buf_puts(out, ",\"text\":");
    json_write_string(out, choice->text, choice->length);
    buf_puts(out, ",\"logprobs\":");
    write_logprobs(out, answer->tokenizer, choice);
    write_choice_end(out, choice);
    write_prompt_ids(out, choice);
    write_prompt_logprobs(out, answer, choice);
    buf_add(out, "}", 1);
}

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    write_envelope(out, answer, OBJECT);
    buf_puts(out, ",\"choices\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_add(out, ",", 1);
        write_choice(out, answer, &choices[i]);
    }
    buf_puts(out, "],\"usage\":");
    write_usage(out, usage);
    buf_add(out, "}", 1);
}

static void write_chunk(struct buf *out, const struct api_answer *answer,
                        const struct api_choice *choice, const struct api_usage *usage) {
    write_chunk_start(out, answer, OBJECT);
    if (choice) write_choice(out, answer, choice);
    write_chunk_end(out, answer, usage);
    buf_puts(out, "}\n\n");
}

const struct api api_completions = {
    .path = "/v1/completions",
    .fields = &completion_fields,
    .example = "\"prompt\":\"Hello\",\"max_tokens\":16",
    .id_prefix = "cmpl-",
    .parse = parse_body,
    .write_response = write_response,
    .write_chunk = write_chunk,
    .receipt_place = RECEIPT_CHUNK,
    OPENAI_FORM,
};
