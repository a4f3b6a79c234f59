/* OTLP's messages as JSON (https://opentelemetry.io/docs/specs/otlp/, "JSON Protobuf Encoding"):
 * names in camelCase, ids in hex, 64-bit integers as strings, enums as numbers.
 *
 * A request is a span of the kind SERVER, and its phases are children of the kind INTERNAL:
 *
 *     POST /v1/chat/completions |------------------------------------------------|
 *       received                |--|
 *       prepared                   |----|
 *       queued                          |------|
 *       prefill                                |--------|
 *       decode                                          |---------------------|
 *
 * The attributes are those of the semantic conventions for HTTP and GenAI, and vLLM's
 * gen_ai.latency.* in seconds. No attribute has text of a prompt, of an answer, or of a client.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/json/json.h"
#include "server/traces/internal.h"

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_CODE_ERROR = 2 };
enum { HAS_REMOTE = 1 << 8, IS_REMOTE = 1 << 9 }; /* of a span's flags: is the parent remote? */

/* ---- attributes ------------------------------------------------------------------------------ */

/* Begins an element of a list: a comma, unless it is the first. */
static void begin_element(struct buf *out) {
    assert(out->length > 0);
    if (out->data[out->length - 1] != '[') buf_puts(out, ",");
}

/* `type` is the name of a member of AnyValue. */
static void begin_attribute(struct buf *out, const char *key, const char *type) {
    begin_element(out);
    buf_puts(out, "{\"key\":");
    json_write_string(out, key, strlen(key));
    buf_printf(out, ",\"value\":{\"%s\":", type);
}

static void end_attribute(struct buf *out) {
    buf_puts(out, "}}");
}

void attribute_text(struct buf *out, const char *key, const char *text) {
    begin_attribute(out, key, "stringValue");
    json_write_string(out, text, strlen(text));
    end_attribute(out);
}

static void attribute_int(struct buf *out, const char *key, int64_t value) {
    begin_attribute(out, key, "intValue");
    buf_printf(out, "\"%" PRId64 "\"", value);
    end_attribute(out);
}

static void attribute_real(struct buf *out, const char *key, double value) {
    begin_attribute(out, key, "doubleValue");
    buf_printf(out, "%.9g", isfinite(value) ? value : 0);
    end_attribute(out);
}

static void attribute_texts(struct buf *out, const char *key, const char *const *texts, int n) {
    begin_attribute(out, key, "arrayValue");
    buf_puts(out, "{\"values\":[");
    for (int i = 0; i < n; i++) {
        begin_element(out);
        buf_puts(out, "{\"stringValue\":");
        json_write_string(out, texts[i], strlen(texts[i]));
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
    end_attribute(out);
}

/* ---- times ----------------------------------------------------------------------------------- */

/* A request's times, in order and within its span. */
struct phase_times {
    uint64_t begin[N_TRACE_PHASES], end[N_TRACE_PHASES]; /* begin 0: it did not begin */
};

static uint64_t clamp(uint64_t time, uint64_t low, uint64_t high) {
    return time < low ? low : time > high ? high : time;
}

/* A phase ends when the next one begins, or with the request. A request may be younger than its
 * first step, whose time is measured before it accepts new requests; so times are clamped. */
static struct phase_times times_of(const struct trace_span *span) {
    const struct trace_generation *g = &span->generation;
    struct phase_times times = {0};
    uint64_t end = g->last_token_ns ? g->last_token_ns : span->end_ns;
    end = clamp(end, span->start_ns, span->end_ns);
    for (int i = N_TRACE_PHASES - 1; i >= 0; i--) {
        if (!g->begins[i]) continue;
        times.begin[i] = clamp(g->begins[i], span->start_ns, end);
        times.end[i] = end;
        end = times.begin[i];
    }
    return times;
}

static double seconds(uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* ---- spans ----------------------------------------------------------------------------------- */

static void write_id(struct buf *out, const char *name, const unsigned char *id, int n) {
    char digits[2 * TRACE_ID_BYTES];
    assert(n <= TRACE_ID_BYTES);
    trace_hex_write(digits, id, n);
    buf_puts(out, ",\"");
    buf_puts(out, name);
    buf_puts(out, "\":\"");
    buf_add(out, digits, 2 * (size_t)n);
    buf_puts(out, "\"");
}

static void write_time(struct buf *out, const char *name, const struct trace_span *span,
                       uint64_t time_ns) {
    uint64_t since_1970 = time_ns + (uint64_t)span->clock_ns;
    buf_printf(out, ",\"%s\":\"%" PRIu64 "\"", name, since_1970);
}

/* Begins a span: names, ids and times. */
struct span_head {
    const char *name;
    int kind;
    const unsigned char *id, *parent; /* [SPAN_ID_BYTES]; parent NULL: the trace begins here */
    bool is_remote;                   /* the parent is in another process */
    uint64_t begin_ns, end_ns;
};

static void write_head(struct buf *out, const struct trace_span *span,
                       const struct span_head *head) {
    unsigned flags = span->own.flags | HAS_REMOTE | (head->is_remote ? IS_REMOTE : 0);
    assert(head->end_ns >= head->begin_ns);
    begin_element(out);
    buf_puts(out, "{\"name\":");
    json_write_string(out, head->name, strlen(head->name));
    buf_printf(out, ",\"kind\":%d,\"flags\":%u", head->kind, flags);
    write_id(out, "traceId", span->own.trace_id, TRACE_ID_BYTES);
    write_id(out, "spanId", head->id, SPAN_ID_BYTES);
    if (head->parent) write_id(out, "parentSpanId", head->parent, SPAN_ID_BYTES);
    if (span->state[0]) {
        buf_puts(out, ",\"traceState\":");
        json_write_string(out, span->state, strlen(span->state));
    }
    write_time(out, "startTimeUnixNano", span, head->begin_ns);
    write_time(out, "endTimeUnixNano", span, head->end_ns);
}

static void write_latencies(struct buf *out, const struct trace_span *span,
                            const struct phase_times *times) {
    const uint64_t *begin = times->begin, *end = times->end;
    if (begin[PHASE_PREFILL])
        attribute_real(out, "gen_ai.latency.time_in_queue",
                       seconds(begin[PHASE_QUEUED], end[PHASE_QUEUED]));
    if (begin[PHASE_DECODE]) {
        attribute_real(out, "gen_ai.latency.time_to_first_token",
                       seconds(span->start_ns, begin[PHASE_DECODE]));
        attribute_real(out, "gen_ai.latency.time_in_model_prefill",
                       seconds(begin[PHASE_PREFILL], end[PHASE_PREFILL]));
        attribute_real(out, "gen_ai.latency.time_in_model_decode",
                       seconds(begin[PHASE_DECODE], end[PHASE_DECODE]));
    }
    attribute_real(out, "gen_ai.latency.e2e", seconds(span->start_ns, span->end_ns));
}

static void write_settings(struct buf *out, const struct trace_generation *g) {
    if (!g->has_settings) return;
    if (g->max_tokens >= 0) attribute_int(out, "gen_ai.request.max_tokens", g->max_tokens);
    attribute_real(out, "gen_ai.request.temperature", g->temperature);
    attribute_real(out, "gen_ai.request.top_p", g->top_p);
    if (g->n > 1) attribute_int(out, "gen_ai.request.choice.count", g->n);
}

static void write_usage(struct buf *out, const struct trace_generation *g) {
    if (!g->has_usage) return;
    attribute_int(out, "gen_ai.usage.input_tokens", g->input_tokens);
    attribute_int(out, "gen_ai.usage.output_tokens", g->output_tokens);
    attribute_int(out, "gen_ai.usage.cache_read.input_tokens", g->cached_tokens);
}

static void write_generation(struct buf *out, const struct trace_span *span,
                             const struct phase_times *times) {
    const struct trace_generation *g = &span->generation;
    attribute_text(out, "gen_ai.operation.name", g->operation);
    attribute_text(out, "gen_ai.provider.name", "penstock");
    if (g->model[0]) {
        attribute_text(out, "gen_ai.request.model", g->model);
        attribute_text(out, "gen_ai.response.model", g->model);
    }
    if (g->id[0]) attribute_text(out, "gen_ai.response.id", g->id);
    if (g->n_finishes > 0)
        attribute_texts(out, "gen_ai.response.finish_reasons", g->finishes, g->n_finishes);
    write_settings(out, g);
    write_usage(out, g);
    write_latencies(out, span, times);
}

/* The span of the request. The conventions for HTTP name it by method and route. */
static void write_request(struct buf *out, const struct trace_span *span,
                          const struct phase_times *times) {
    char name[TRACE_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s%s", span->method, span->route ? " " : "",
             span->route ? span->route : "");
    const struct span_head head = {.name = name,
                                   .kind = KIND_SERVER,
                                   .id = span->own.span_id,
                                   .parent = span->has_parent ? span->parent_id : NULL,
                                   .is_remote = span->has_parent,
                                   .begin_ns = span->start_ns,
                                   .end_ns = span->end_ns};
    write_head(out, span, &head);
    buf_puts(out, ",\"attributes\":[");
    attribute_text(out, "http.request.method", span->method);
    if (span->route) attribute_text(out, "http.route", span->route);
    if (span->http_status) attribute_int(out, "http.response.status_code", span->http_status);
    if (span->error[0]) attribute_text(out, "error.type", span->error);
    if (span->generation.operation) write_generation(out, span, times);
    buf_puts(out, "]");
    if (span->is_failed) buf_printf(out, ",\"status\":{\"code\":%d}", STATUS_CODE_ERROR);
    buf_puts(out, "}");
}

/* The id of a child differs from its parent's in the last byte. */
static void write_phases(struct buf *out, const struct trace_span *span,
                         const struct phase_times *times) {
    static const char *const names[N_TRACE_PHASES] = {"received", "prepared", "queued", "prefill",
                                                      "decode"};
    unsigned char id[SPAN_ID_BYTES];
    for (int i = 0; i < N_TRACE_PHASES; i++) {
        if (!times->begin[i]) continue;
        memcpy(id, span->own.span_id, sizeof id);
        id[SPAN_ID_BYTES - 1] ^= (unsigned char)(i + 1);
        const struct span_head head = {.name = names[i],
                                       .kind = KIND_INTERNAL,
                                       .id = id,
                                       .parent = span->own.span_id,
                                       .begin_ns = times->begin[i],
                                       .end_ns = times->end[i]};
        write_head(out, span, &head);
        buf_puts(out, "}");
    }
}

void traces_encode(struct buf *out, const struct buf *resource, const struct list *spans) {
    buf_printf(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":%s},", resource->data);
    buf_printf(out,
               "\"scopeSpans\":[{\"scope\":{\"name\":\"penstock\",\"version\":\"%s\"},"
               "\"spans\":[",
               build_info().version);
    list_each(node, spans) {
        const struct trace_span *span = list_entry(node, struct trace_span, node);
        const struct phase_times times = times_of(span);
        write_request(out, span, &times);
        write_phases(out, span, &times);
    }
    buf_puts(out, "]}]}]}");
}

/* ---- the collector's answer ------------------------------------------------------------------ */

/* A 64-bit integer of Protobuf is a string or a number. */
static uint64_t count_of(const struct json *value) {
    uint64_t n = 0;
    if (json_is_integer(value)) return json_integer(value) > 0 ? (uint64_t)json_integer(value) : 0;
    const char *text = json_text(value);
    for (int i = 0; i < 18 && is_digit(text[i]); i++) n = 10 * n + (uint64_t)(text[i] - '0');
    return n;
}

uint64_t traces_rejected(const char *answer, size_t length, char *message, size_t size) {
    struct json *json;
    struct err err;
    *message = 0;
    if (json_parse(&json, "The answer", answer, length, &err)) return 0;
    const struct json *partial = json_member(json, "partialSuccess");
    const struct json *said = json_member(partial, "errorMessage");
    uint64_t n = count_of(json_member(partial, "rejectedSpans"));
    if (n > 0 && is_printable(json_text(said), json_length(said)))
        snprintf(message, size, "%.*s", utf8_cut(json_text(said), json_length(said), (int)size - 1),
                 json_text(said));
    json_free(json);
    return n;
}
