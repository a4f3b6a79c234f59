/* Traces: the headers of W3C Trace Context, the OTEL_ variables, and OTLP's messages. The thread
 * that sends them is in test_traces_thread.c. tests/e2e/test_traces.py asks a whole server, and
 * decodes its messages by OTLP's own definitions. */
#include <check.h>
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/traces/internal.h"
#include "support/suite_main.h"
#include "support/traces_scene.h"

/* ---- traceparent ----------------------------------------------------------------------------- */

static bool reads(const char *text) {
    struct trace_context context;
    return trace_context_read(&context, text);
}

START_TEST(a_traceparent_is_read_and_written) {
    struct trace_context context;
    char text[TRACE_PARENT_BYTES];
    ck_assert(trace_context_read(&context, PARENT));
    ck_assert_uint_eq(context.trace_id[0], 0x0a);
    ck_assert_uint_eq(context.span_id[7], 0x31);
    ck_assert_uint_eq(context.flags, TRACE_SAMPLED);
    trace_context_write(&context, text);
    ck_assert_str_eq(text, PARENT);
    ck_assert(trace_context_read(&context, "00-" TRACE "-" SPAN "-fe"));
    ck_assert_uint_eq(context.flags, TRACE_RANDOM); /* unknown flags are dropped */
}
END_TEST

START_TEST(a_later_version_may_have_more_parts) {
    ck_assert(reads("01-" TRACE "-" SPAN "-01"));
    ck_assert(reads("cc-" TRACE "-" SPAN "-01-what.else"));
    ck_assert(reads("01-" TRACE "-" SPAN "-01-"));
    ck_assert(!reads("01-" TRACE "-" SPAN "-01.what"));
    ck_assert(!reads("01-" TRACE "-" SPAN "-010"));
}
END_TEST

START_TEST(an_invalid_traceparent_is_refused) {
    static const char *const texts[] = {"",
                                        "00",
                                        PARENT "-more",
                                        PARENT "0",
                                        "ff-" TRACE "-" SPAN "-01",
                                        "0g-" TRACE "-" SPAN "-01",
                                        "00_" TRACE "-" SPAN "-01",
                                        "00-" TRACE "_" SPAN "-01",
                                        "00-" TRACE "-" SPAN "_01",
                                        "00-" TRACE "-" SPAN "-0x",
                                        "00-" TRACE "-" SPAN "-0",
                                        "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01",
                                        "00-00000000000000000000000000000000-" SPAN "-01",
                                        "00-" TRACE "-0000000000000000-01",
                                        PARENT "," PARENT};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ck_assert_msg(!reads(texts[i]), "%s", texts[i]);
}
END_TEST

/* ---- tracestate ------------------------------------------------------------------------------ */

static char state[TRACE_STATE_BYTES];

START_TEST(members_of_a_tracestate_lose_their_white_space) {
    ck_assert(trace_state_read(state, ""));
    ck_assert_str_eq(state, "");
    ck_assert(trace_state_read(state, " a=1 ,\t, 2t@sys=x y,\tz_-*/9=,"));
    ck_assert_str_eq(state, "a=1,2t@sys=x y,z_-*/9=");
}
END_TEST

START_TEST(an_invalid_tracestate_is_dropped_as_a_whole) {
    static const char *const texts[] = {"a",       "=1",      "a=1,b",  "A=1",       "1a=1",
                                        "a=1,a=2", "a=1=2",   "a=\x7f", "a b=1",     "a@=1",
                                        "@a=1",    "a@b@c=1", "a@1b=1", "a=\xc3\xa4"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ck_assert_msg(!trace_state_read(state, texts[i]), "%s", texts[i]);
        ck_assert_str_eq(state, "");
    }
}
END_TEST

/* Writes n members of `length` characters each. */
static void write_members(char *out, int n, int length) {
    *out = 0;
    for (int i = 0; i < n; i++) out += sprintf(out, "%sk%02d=%0*d", i ? "," : "", i, length - 4, 0);
}

START_TEST(a_tracestate_keeps_as_many_members_as_fit) {
    char text[8192];
    write_members(text, 32, 15); /* 32 * 16 - 1 = 511 */
    ck_assert(trace_state_read(state, text));
    ck_assert_str_eq(state, text);
    write_members(text, 33, 10);
    ck_assert(!trace_state_read(state, text));
    write_members(text, 4, 128);
    ck_assert(trace_state_read(state, text));
    text[3 * 129 - 1] = 0; /* 4 * 129 - 1 = 515 */
    ck_assert_str_eq(state, text);
}
END_TEST

/* ---- settings -------------------------------------------------------------------------------- */

static struct trace_settings settings;
static struct err err;

static enum status read_settings(const char *endpoint) {
    trace_settings_free(&settings);
    return trace_settings_read(&settings, endpoint, &err);
}

static void settings_teardown(void) {
    trace_settings_free(&settings);
    settings = (struct trace_settings){0};
    clear_environment();
}

START_TEST(a_url_without_a_path_gets_the_path_of_traces) {
    ck_assert_int_eq(read_settings("http://127.0.0.1:4318"), STATUS_OK);
    ck_assert_str_eq(settings.url, "http://127.0.0.1:4318/v1/traces");
    ck_assert_int_eq(read_settings("HTTPS://[::1]:4318/"), STATUS_OK);
    ck_assert_str_eq(settings.url, "HTTPS://[::1]:4318/");
    ck_assert_int_eq(settings.timeout_ms, 10000);
    ck_assert_ptr_null(settings.authorities);
}
END_TEST

START_TEST(a_wrong_url_is_refused_with_an_example) {
    static const char *const urls[] = {"",           "localhost:4318", "grpc://a:4317",
                                       "http://",    "http:///v1",     "http://user:secret@host/",
                                       "http://a b", "http://a\n"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        ck_assert_int_eq(read_settings(urls[i]), STATUS_USAGE);
        ck_assert_ptr_nonnull(strstr(err.message, "http://127.0.0.1:4318/v1/traces"));
        ck_assert_ptr_null(strstr(err.message, "secret"));
    }
}
END_TEST

START_TEST(headers_are_decoded_and_those_of_traces_come_first) {
    setenv("OTEL_EXPORTER_OTLP_HEADERS", "x=1", 1);
    ck_assert_int_eq(read_settings("http://a"), STATUS_OK);
    ck_assert_int_eq(settings.n_headers, 1);
    ck_assert_str_eq(settings.headers[0], "x: 1");
    setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS",
           " api-key = a%20b%2Cc%zz ,,Authorization=Bearer t=, e=", 1);
    ck_assert_int_eq(read_settings("http://a"), STATUS_OK);
    ck_assert_int_eq(settings.n_headers, 3);
    ck_assert_str_eq(settings.headers[0], "api-key: a b,c%zz");
    ck_assert_str_eq(settings.headers[1], "Authorization: Bearer t=");
    ck_assert_str_eq(settings.headers[2], "e;"); /* libcurl's form of an empty header */
}
END_TEST

START_TEST(wrong_variables_are_refused_without_their_secrets) {
    static const char *const headers[] = {"secret",     "a=1,secret",         "=secret",
                                          "a b=secret", "a=secret%0d%0aX: y", "a%00=secret"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        setenv("OTEL_EXPORTER_OTLP_HEADERS", headers[i], 1);
        ck_assert_msg(read_settings("http://a") == STATUS_USAGE, "%s", headers[i]);
        ck_assert_ptr_nonnull(strstr(err.message, "OTEL_EXPORTER_OTLP_HEADERS"));
        ck_assert_ptr_null(strstr(err.message, "secret"));
    }
    unsetenv("OTEL_EXPORTER_OTLP_HEADERS");
    static const char *const times[] = {"0", "-1", "1s", "600001", "99999999999"};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        setenv("OTEL_EXPORTER_OTLP_TIMEOUT", times[i], 1);
        ck_assert_int_eq(read_settings("http://a"), STATUS_USAGE);
        ck_assert_ptr_nonnull(strstr(err.message, "OTEL_EXPORTER_OTLP_TIMEOUT"));
    }
    setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250", 1);
    ck_assert_int_eq(read_settings("http://a"), STATUS_OK);
    ck_assert_int_eq(settings.timeout_ms, 250);
    setenv("OTEL_RESOURCE_ATTRIBUTES", "a", 1);
    ck_assert_int_eq(read_settings("http://a"), STATUS_USAGE);
}
END_TEST

/* Returns the text of an attribute of a list, or NULL. */
static const char *attribute(const cJSON *list, const char *key, const char *type) {
    const cJSON *one;
    cJSON_ArrayForEach(one, list) {
        if (strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(one, "key")), key) != 0) continue;
        return cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetObjectItem(one, "value"), type));
    }
    return NULL;
}

/* Returns the value of service.name; sets *n to the number of attributes. */
static char *service_name(int *n) {
    static char name[64];
    cJSON *list = cJSON_Parse(settings.resource.data);
    ck_assert(cJSON_IsArray(list));
    *n = cJSON_GetArraySize(list);
    snprintf(name, sizeof name, "%s", attribute(list, "service.name", "stringValue"));
    cJSON_Delete(list);
    return name;
}

START_TEST(the_process_is_described_by_its_attributes) {
    int n;
    ck_assert_int_eq(read_settings("http://a"), STATUS_OK);
    ck_assert_str_eq(service_name(&n), "penstock");
    ck_assert_int_eq(n, 3);
    setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=of attributes,zone=%22b%22", 1);
    ck_assert_int_eq(read_settings("http://a"), STATUS_OK);
    ck_assert_str_eq(service_name(&n), "of attributes");
    ck_assert_int_eq(n, 4);
    setenv("OTEL_SERVICE_NAME", "mine", 1);
    ck_assert_int_eq(read_settings("http://a"), STATUS_OK);
    ck_assert_str_eq(service_name(&n), "mine");
    ck_assert_int_eq(n, 4);
}
END_TEST

/* ---- messages -------------------------------------------------------------------------------- */

static struct trace_span span;
static struct list spans;
static struct buf message;
static cJSON *tree;

static void message_setup(void) {
    struct trace_context parent;
    clear_environment();
    ck_assert_int_eq(read_settings("http://a"), STATUS_OK);
    ck_assert(trace_context_read(&parent, PARENT));
    span = (struct trace_span){.own = parent,
                               .has_parent = true,
                               .state = "a=\"1\"",
                               .clock_ns = 1000000000000000000,
                               .start_ns = 1000,
                               .end_ns = 9000,
                               .method = "POST",
                               .route = "/v1/chat/completions",
                               .http_status = 200,
                               .generation = {.operation = "chat",
                                              .model = "smol",
                                              .id = "chatcmpl-1",
                                              .finishes = {"stop", "length"},
                                              .n_finishes = 2,
                                              .begins = {1000, 2000, 3000, 4000, 5000},
                                              .last_token_ns = 8000,
                                              .has_settings = true,
                                              .max_tokens = -1,
                                              .n = 2,
                                              .temperature = 0.5,
                                              .top_p = 1,
                                              .has_usage = true,
                                              .input_tokens = 3,
                                              .output_tokens = 5}};
    memset(span.own.span_id, 0xab, SPAN_ID_BYTES);
    memcpy(span.parent_id, parent.span_id, SPAN_ID_BYTES);
    list_init(&spans);
    list_append(&spans, &span.node);
}

static void message_teardown(void) {
    cJSON_Delete(tree);
    tree = NULL;
    buf_free(&message);
    settings_teardown();
}

/* Encodes the spans. Returns the list of spans of the message. */
static const cJSON *encode(void) {
    buf_clear(&message);
    traces_encode(&message, &settings.resource, &spans);
    cJSON_Delete(tree);
    tree = cJSON_ParseWithOpts(message.data, NULL, true);
    ck_assert_msg(tree != NULL, "%s", message.data);
    const cJSON *resource = cJSON_GetArrayItem(cJSON_GetObjectItem(tree, "resourceSpans"), 0);
    const cJSON *scope = cJSON_GetArrayItem(cJSON_GetObjectItem(resource, "scopeSpans"), 0);
    return cJSON_GetObjectItem(scope, "spans");
}

static const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, name));
    return text ? text : "";
}

START_TEST(a_request_is_a_span_with_a_child_for_each_phase) {
    static const char *const names[] = {
        "POST /v1/chat/completions", "received", "prepared", "queued", "prefill", "decode"};
    static const char *const ends[] = {"9000", "2000", "3000", "4000", "5000", "8000"};
    const cJSON *list = encode();
    ck_assert_int_eq(cJSON_GetArraySize(list), 6);
    for (int i = 0; i < 6; i++) {
        const cJSON *one = cJSON_GetArrayItem(list, i);
        const char *end = text_of(one, "endTimeUnixNano");
        ck_assert_str_eq(text_of(one, "name"), names[i]);
        ck_assert_str_eq(text_of(one, "traceId"), TRACE);
        ck_assert_str_eq(text_of(one, "traceState"), "a=\"1\"");
        ck_assert_str_eq(text_of(one, "parentSpanId"), i == 0 ? SPAN : "abababababababab");
        ck_assert_uint_eq(strlen(text_of(one, "spanId")), 16);
        ck_assert_int_eq(cJSON_GetObjectItem(one, "kind")->valueint, i == 0 ? 2 : 1);
        ck_assert_int_eq(cJSON_GetObjectItem(one, "flags")->valueint, i == 0 ? 0x301 : 0x101);
        ck_assert_str_eq(end + strlen(end) - 4, ends[i]);
        ck_assert(strncmp(end, "1000000000000", 13) == 0);
    }
    ck_assert_ptr_null(cJSON_GetObjectItem(cJSON_GetArrayItem(list, 0), "status"));
}
END_TEST

START_TEST(attributes_have_the_names_of_the_conventions) {
    const cJSON *list = cJSON_GetObjectItem(cJSON_GetArrayItem(encode(), 0), "attributes");
    ck_assert_str_eq(attribute(list, "http.route", "stringValue"), "/v1/chat/completions");
    ck_assert_str_eq(attribute(list, "http.response.status_code", "intValue"), "200");
    ck_assert_str_eq(attribute(list, "gen_ai.operation.name", "stringValue"), "chat");
    ck_assert_str_eq(attribute(list, "gen_ai.request.model", "stringValue"), "smol");
    ck_assert_str_eq(attribute(list, "gen_ai.response.id", "stringValue"), "chatcmpl-1");
    ck_assert_str_eq(attribute(list, "gen_ai.usage.output_tokens", "intValue"), "5");
    ck_assert_str_eq(attribute(list, "gen_ai.request.choice.count", "intValue"), "2");
    ck_assert_ptr_null(strstr(message.data, "max_tokens"));
    ck_assert_ptr_null(strstr(message.data, "error.type"));
    ck_assert_ptr_nonnull(strstr(message.data, "[{\"stringValue\":\"stop\"},"
                                               "{\"stringValue\":\"length\"}]"));
    ck_assert_ptr_nonnull(strstr(message.data, "time_to_first_token\",\"value\":"
                                               "{\"doubleValue\":4e-06}"));
}
END_TEST

START_TEST(a_request_that_ends_early_has_the_phases_that_began) {
    span.generation.begins[PHASE_PREFILL] = span.generation.begins[PHASE_DECODE] = 0;
    span.generation.last_token_ns = 0;
    span.has_parent = false;
    span.is_failed = true;
    snprintf(span.error, sizeof span.error, "unavailable_error");
    const cJSON *list = encode(), *first = cJSON_GetArrayItem(list, 0);
    ck_assert_int_eq(cJSON_GetArraySize(list), 4);
    ck_assert_ptr_null(cJSON_GetObjectItem(first, "parentSpanId"));
    ck_assert_int_eq(cJSON_GetObjectItem(first, "flags")->valueint, 0x101);
    const cJSON *status = cJSON_GetObjectItem(first, "status");
    ck_assert_int_eq(cJSON_GetObjectItem(status, "code")->valueint, 2);
    const char *end = text_of(cJSON_GetArrayItem(list, 3), "endTimeUnixNano");
    ck_assert_str_eq(end + strlen(end) - 4, "9000"); /* queued until the end */
}
END_TEST

START_TEST(times_of_phases_stay_within_the_request) {
    const uint64_t begins[] = {1000, 2000, 3000, 500, 9500};
    memcpy(span.generation.begins, begins, sizeof begins);
    span.generation.last_token_ns = 99999;
    const cJSON *list = encode(), *one;
    cJSON_ArrayForEach(one, list) {
        ck_assert_int_le(strcmp(text_of(one, "startTimeUnixNano"), text_of(one, "endTimeUnixNano")),
                         0);
        ck_assert_int_le(strcmp(text_of(one, "endTimeUnixNano"), "1000000000000009000"), 0);
        ck_assert_int_ge(strcmp(text_of(one, "startTimeUnixNano"), "1000000000000001000"), 0);
    }
}
END_TEST

START_TEST(a_batch_of_the_longest_spans_has_less_than_a_mebibyte) {
    memset(span.state, '"', sizeof span.state - 1); /* the longest escapes */
    memset(span.generation.model, 'm', sizeof span.generation.model - 1);
    memset(span.error, 'e', sizeof span.error - 1);
    span.generation.n_finishes = MAX_TRACE_FINISHES;
    for (int i = 0; i < MAX_TRACE_FINISHES; i++) span.generation.finishes[i] = "tool_calls";
    encode();
    ck_assert_uint_lt(message.length * TRACE_BATCH, 2 << 20);
    memset(span.state, 'a', sizeof span.state - 1);
    encode();
    ck_assert_uint_lt(message.length * TRACE_BATCH, 1 << 20);
}
END_TEST

static uint64_t rejected(const char *answer, char said[64]) {
    return traces_rejected(answer, strlen(answer), said, 64);
}

START_TEST(the_collectors_answer_counts_rejected_spans) {
    char said[64];
    ck_assert_uint_eq(rejected("{}", said), 0);
    ck_assert_uint_eq(rejected("no JSON", said), 0);
    ck_assert_uint_eq(rejected("{\"partialSuccess\":3}", said), 0);
    ck_assert_uint_eq(rejected("{\"partialSuccess\":{\"rejectedSpans\":\"x\"}}", said), 0);
    ck_assert_uint_eq(rejected("{\"partialSuccess\":{\"rejectedSpans\":-3}}", said), 0);
    ck_assert_uint_eq(rejected("{\"partialSuccess\":{\"rejectedSpans\":\"12\","
                               "\"errorMessage\":\"full\"}}",
                               said),
                      12);
    ck_assert_str_eq(said, "full");
    ck_assert_uint_eq(rejected("{\"partialSuccess\":{\"rejectedSpans\":2,"
                               "\"errorMessage\":\"a\\u0007\"}}",
                               said),
                      2);
    ck_assert_str_eq(said, ""); /* it could control a terminal */
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("traces");
    TCase *context = tcase_create("context"), *variables = tcase_create("settings"),
          *messages = tcase_create("messages");
    tcase_add_test(context, a_traceparent_is_read_and_written);
    tcase_add_test(context, a_later_version_may_have_more_parts);
    tcase_add_test(context, an_invalid_traceparent_is_refused);
    tcase_add_test(context, members_of_a_tracestate_lose_their_white_space);
    tcase_add_test(context, an_invalid_tracestate_is_dropped_as_a_whole);
    tcase_add_test(context, a_tracestate_keeps_as_many_members_as_fit);
    tcase_add_checked_fixture(variables, clear_environment, settings_teardown);
    tcase_add_test(variables, a_url_without_a_path_gets_the_path_of_traces);
    tcase_add_test(variables, a_wrong_url_is_refused_with_an_example);
    tcase_add_test(variables, headers_are_decoded_and_those_of_traces_come_first);
    tcase_add_test(variables, wrong_variables_are_refused_without_their_secrets);
    tcase_add_test(variables, the_process_is_described_by_its_attributes);
    tcase_add_checked_fixture(messages, message_setup, message_teardown);
    tcase_add_test(messages, a_request_is_a_span_with_a_child_for_each_phase);
    tcase_add_test(messages, attributes_have_the_names_of_the_conventions);
    tcase_add_test(messages, a_request_that_ends_early_has_the_phases_that_began);
    tcase_add_test(messages, times_of_phases_stay_within_the_request);
    tcase_add_test(messages, a_batch_of_the_longest_spans_has_less_than_a_mebibyte);
    tcase_add_test(messages, the_collectors_answer_counts_rejected_spans);
    suite_add_tcase(s, context);
    suite_add_tcase(s, variables);
    suite_add_tcase(s, messages);
    return s;
}

int main(void) {
    return suite_main(suite());
}
