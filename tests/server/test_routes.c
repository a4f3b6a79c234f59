/* Paths, methods and early refusals of a whole server with a tiny model, over real connections; and
 * that each API has its path. test_keys.c tests keys and origins. */
#include <check.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/apis/apis.h"
#include "support/app_fixture.h"
#include "support/suite_main.h"

/* ---- paths and refusals --------------------------------------------------------------------- */

struct asked {
    const char *line, *fields, *body;
    int status;
    const char *says;
};

static const struct asked asked[] = {
    {"GET /health", "", NULL, 200, "{\"status\":\"ok\"}"},
    {"GET /health/live", "", NULL, 200, "{\"status\":\"ok\"}"},
    {"GET /health/ready", "", NULL, 200, "{\"status\":\"ok\"}"},
    {"GET /version", "", NULL, 200, "\"version\""},
    {"GET /metrics", "", NULL, 200, "vllm:num_requests_running"},
    {"GET /v1/models", "", NULL, 200, "\"object\":\"list\""},
    {"GET /v1/models/tiny", "", NULL, 200, "\"id\":\"tiny\""},
    {"HEAD /v1/models", "", NULL, 200, "application/json"},
    {"GET /v1/models/other", "", NULL, 404, "\"code\":\"model_not_found\""},
    {"GET /", "", NULL, 200, "Ollama is running"},
    {"GET /unknown", "", NULL, 404, "Unknown path /unknown."},
    {"GET /v1/models/", "", NULL, 200, "\"object\":\"list\""},
    {"GET /v1/models//", "", NULL, 404, "not_found_error"},
    {"GET /models", "", NULL, 200, "\"object\":\"list\""},
    {"GET /models/tiny/", "", NULL, 200, "\"id\":\"tiny\""},
    {"GET /ping", "", NULL, 200, "{\"status\":\"ok\"}"},
    {"HEAD /ping/", "", NULL, 200, "application/json"},
    {"GET /load", "", NULL, 200, "{\"server_load\":0}"},
    {"POST /completions", "", PROMPT, 200, "text_completion"},
    {"POST /v1/completions/", "", PROMPT, 200, "text_completion"},
    {"POST /chat/completions/", "", "{}", 400, "'messages' is missing"},
    {"OPTIONS /v1/completions", "", NULL, 204, "Allow: POST, OPTIONS"},
    {"OPTIONS /health", "", NULL, 204, "Allow: GET, HEAD, OPTIONS"},
    {"OPTIONS /nowhere", "", NULL, 404, "not_found_error"},
    {"PUT /load", "", "", 405, "Allow: GET, HEAD, OPTIONS"},
    {"GET /v1/completionsx", "", NULL, 404, "not_found_error"},
    {"GET /v1/completions", "", NULL, 405, "Allow: POST"},
    {"GET /tokenize", "", NULL, 405, "Allow: POST"},
    {"POST /health", "", "", 405, "Allow: GET, HEAD"},
    {COMPLETION, "Content-Type: text/plain\r\n", PROMPT, 415, "must be JSON"},
    {COMPLETION, "Content-Type: application/jsonx\r\n", PROMPT, 415, "must be JSON"},
    {COMPLETION, "Content-Type: xapplication/json\r\n", PROMPT, 415, "must be JSON"},
    {COMPLETION, "Content-Type: multipart/form-data; a=json\r\n", PROMPT, 415, "must be JSON"},
    {COMPLETION, "Content-Type: APPLICATION/JSON; charset=utf-8\r\n", PROMPT, 200, "usage"},
    {COMPLETION, "Content-Type: application/merge-patch+json\r\n", PROMPT, 200, "usage"},
    {COMPLETION, "Content-Type: application/x-www-form-urlencoded\r\n", "prompt=hi", 415,
     "be JSON"},
    {COMPLETION, "Content-Type: application/x-www-form-urlencodedx\r\n", PROMPT, 415, "be JSON"},
    {COMPLETION, "Content-Encoding: gzip\r\n", PROMPT, 415, "Content-Encoding"},
    {"POST /detokenize", "Content-Encoding: br\r\n", "{}", 415, "Content-Encoding"},
    {COMPLETION, "Content-Encoding: identity\r\n", PROMPT, 200, "text_completion"},
    {COMPLETION, "Content-Type: application/x-www-form-urlencoded\r\n", PROMPT, 200, "\"usage\""},
    {COMPLETION, "", "{\"prompt\":7}", 400, "\"param\":\"prompt\""},
    {COMPLETION, "", "{", 400, "The body is not valid JSON"},
    {CHAT, "", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":2}", 200,
     "\"object\":\"chat.completion\""},
    {CHAT, "", "{}", 400, "'messages' is missing"},
    {CHAT, "", PROMPT, 400, "\"param\":\"prompt\""},
    {"POST /tokenize", "", "{\"prompt\":\"hi\"}", 200, "\"count\":"},
    {"POST /tokenize", "", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 200,
     "\"tokens\":[2,"},
    {"POST /tokenize", "", "{}", 400, "\"param\":\"prompt\""},
    {"POST /detokenize", "", "{\"tokens\":[108,109]}", 200, "{\"prompt\":\"hi\","},
    {"POST /detokenize", "", "{\"tokens\":[-1]}", 400, "\"param\":\"tokens\""},
    {"GET /tokenizer_info", "", NULL, 200, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\""},
    {"HEAD /tokenizer_info", "", NULL, 200, "application/json"},
    {"POST /tokenizer_info", "", "{}", 405, "Allow: GET, HEAD"},
    {COMPLETION "/render", "", "{\"prompt\":[108]}", 200, "[{\"request_id\":\"cmpl-"},
    {COMPLETION "/render", "", "{\"prompt\":[108]}", 200, "\"token_ids\":[108]"},
    {COMPLETION "/render", "", "{\"prompt\":7}", 400, "\"param\":\"prompt\""},
    {COMPLETION "/render", "", "{", 400, "The body is not valid JSON"},
    {CHAT "/render", "", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 200,
     "\"token_ids\":[2,"},
    {"GET /v1/completions/render", "", NULL, 405, "Allow: POST"},
    {"POST /tokenize/render", "", "{}", 404, "Unknown path /tokenize/render."},
    {"POST /render", "", "{}", 404, "Unknown path /render.\""},
    {"POST /v1/images", "", "{\"input\":\"a\"}", 404,
     "Unknown path /v1/images. This server generates text: POST /v1/chat/completions"},
};

START_TEST(paths_and_refusals) {
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        ask(asked[i].line, asked[i].fields, asked[i].body);
        expect_status(asked[i].line, asked[i].status);
        expect_text(asked[i].says);
    }
}
END_TEST

START_TEST(each_api_has_its_path) {
    for (int i = 0; api_at(i); i++) {
        char line[128];
        ck_assert_ptr_eq(api_find(api_at(i)->path), api_at(i));
        snprintf(line, sizeof line, "POST %s", api_at(i)->path);
        ask(line, "", "[]");
        expect_status(line, api_http(api_at(i), STATUS_INVALID_REQUEST));
        expect_text("The body must be a JSON object, but it is an array.");
        snprintf(line, sizeof line, "PUT %s", api_at(i)->path);
        ask(line, "", "[]");
        expect_status(line, 405);
    }
    ck_assert_ptr_null(api_find("/v1/models"));
}
END_TEST

START_TEST(metrics_are_openmetrics_if_asked_for) {
    ask("GET /metrics", "", NULL);
    expect_text("Content-Type: text/plain; version=0.0.4; charset=utf-8");
    ask("GET /metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n", NULL);
    expect_text("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8");
    expect_text("\n# EOF\n");
}
END_TEST

/* Unknown paths and methods do not create new series, and scrapes are not counted. */
START_TEST(requests_are_counted_by_route) {
    ask("GET /metrics", "", NULL);
    ask("GET /health", "", NULL);
    ask("GET /v1/models", "", NULL);
    ask("GET /v1/models", "", NULL);
    ask("GET /nowhere", "", NULL);
    ask("GET /elsewhere", "", NULL);
    ask("PATCH /v1/models", "", NULL);
    ask(COMPLETION "/render", "", "{\"prompt\":\"hi\"}");
    ask("GET /metrics", "", NULL);
    expect_text("\nhttp_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"2xx\"} 2\n");
    expect_text("\nhttp_requests_total{handler=\"none\",method=\"GET\",status=\"4xx\"} 2\n");
    expect_text(
        "\nhttp_requests_total{handler=\"/v1/models\",method=\"other\",status=\"4xx\"} 1\n");
    expect_text("\nhttp_requests_total{handler=\"/v1/completions/render\",method=\"POST\","
                "status=\"2xx\"} 1\n");
    ck_assert_int_eq(app->metrics.n_http, 4);
}
END_TEST

START_TEST(several_names) {
    options.api.served_model_name = "one,two,three";
    app_set_name(app);
    app_set_limits(app);
    static const char *const names[] = {"one", "two", "three", "four", "on", ""};
    for (int i = 0; i < 6; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":\"hi\",\"max_tokens\":1}",
                 names[i]);
        ask(COMPLETION, "", body);
        expect_status(names[i], i < 3 ? 200 : 404);
        if (i < 3) expect_text("\"model\":\"one\"");
    }
    ask("GET /v1/models", "", NULL);
    expect_text("{\"id\":\"three\"");
    ask("GET /v1/models/two", "", NULL);
    expect_text("{\"id\":\"two\",\"object\":\"model\"");
    expect_text("\"root\":\"one\",\"parent\":null");
    options.api.any_model_name = true;
    app_set_limits(app);
    ask(COMPLETION, "", "{\"model\":\"gpt-4o\",\"prompt\":\"hi\",\"max_tokens\":1}");
    expect_status("any name", 200);
    expect_text("\"model\":\"one\"");
}
END_TEST

START_TEST(a_full_queue_refuses_before_the_body) {
    app->n_preparing = options.scheduler.max_queued_requests;
    ask(COMPLETION, "", PROMPT);
    expect_status("a full queue", 429);
    expect_text("Retry-After: 1");
    expect_text("The waiting queue is full (4 requests)");
    ck_assert_uint_eq(app->metrics.refused_overload, 1);
    ask("POST /v1/messages?beta=true", "", "{}");
    expect_status("a full queue", 429);
    expect_text("{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",");
    expect_text("\nrequest-id: ");
    ask("POST /v1/responses", "", "{}");
    expect_status("a full queue", 429);
    expect_text("Please try again in 1s.\"");
    ask("POST /tokenize", "", "{\"prompt\":\"hi\"}");
    expect_status("what does not generate", 200);
    app->n_preparing = 0;
    ask(COMPLETION, "", PROMPT);
    expect_status("room", 200);
}
END_TEST

START_TEST(a_draining_or_failed_server_refuses) {
    app->draining = true;
    ask(COMPLETION, "", PROMPT);
    expect_status("draining", 503);
    expect_text("Retry-After: 1");
    expect_text("The server is shutting down.");
    app->start_ns = 9 * 1000000000ull; /* the next process starts as long */
    ask(COMPLETION, "", PROMPT);
    expect_text("Retry-After: 9");
    ask("GET /health/ready", "", NULL);
    expect_status("draining", 503);
    ask("GET /health/live", "", NULL);
    expect_status("draining", 200);
    ask("POST /tokenize", "", "{\"prompt\":\"hi\"}");
    expect_status("draining", 200);
    app->draining = false;
    err_set(&app->failure, STATUS_UNAVAILABLE, NULL, "The device has failed.");
    ask(CHAT, "", "{}");
    expect_status("failed", 503);
    expect_text("The device has failed.");
    ask("POST /v1/messages", "", "{}");
    expect_status("failed", 503);
    expect_text("{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",");
    app->failure.status = STATUS_OK;
}
END_TEST

/* The loop's own pace: nobody has ended for a time. */
START_TEST(lacking_memory_is_retried_when_a_request_has_ended) {
    struct err err = {0}, other = {0};
    err_out_of_memory(&err);
    err_set(&other, STATUS_INVALID_REQUEST, NULL, "wrong");
    app->pace = (struct pace){.since_ns = now_ns(), .interval_ns = 6.5e9};
    ck_assert_int_eq(respond_retry_s(app, &err), 7);
    ck_assert_int_eq(respond_retry_s(app, &other), 0);
    err.retry_after_s = 3;
    ck_assert_int_eq(respond_retry_s(app, &err), 3);
}
END_TEST

/* ---- metrics -------------------------------------------------------------------------------- */

static uint64_t counted(enum histogram_id id) {
    uint64_t n = 0;
    for (int i = 0; i <= METRIC_BUCKETS; i++) n += app->metrics.histograms[id].counts[i];
    return n;
}

static double sum(enum histogram_id id) {
    return app->metrics.histograms[id].sum;
}

START_TEST(prompts_and_choices_are_measured) {
    ask(COMPLETION, "",
        "{\"prompt\":[\"hi\",\"ho\"],\"n\":2,\"max_tokens\":3,\"ignore_eos\":true}");
    expect_status("two prompts", 200);
    for (int id = HISTOGRAM_QUEUE; id <= HISTOGRAM_COMPUTED; id++)
        ck_assert_uint_eq(counted(id), 2);
    ck_assert_uint_eq(counted(HISTOGRAM_FIRST_TOKEN), 2);
    ck_assert_uint_eq(counted(HISTOGRAM_INTER_TOKEN), 2 * 2 * 2);
    ck_assert_uint_eq(counted(HISTOGRAM_OUTPUT_TOKEN), 4);
    ck_assert_uint_eq(counted(HISTOGRAM_GENERATION), 4);
    ck_assert_uint_eq(counted(HISTOGRAM_LONGEST), 2);
    ck_assert(sum(HISTOGRAM_GENERATION) == 12 && sum(HISTOGRAM_LONGEST) == 6);
    ck_assert(counted(HISTOGRAM_N) == 2 && sum(HISTOGRAM_N) == 4);
    ck_assert(counted(HISTOGRAM_MAX_TOKENS) == 2 && sum(HISTOGRAM_MAX_TOKENS) == 6);
    ck_assert_double_eq_tol(sum(HISTOGRAM_OUTPUT_TOKEN), sum(HISTOGRAM_INTER_TOKEN) / 2, 1e-6);
    ck_assert_double_eq_tol(sum(HISTOGRAM_INFERENCE),
                            sum(HISTOGRAM_PREFILL) + sum(HISTOGRAM_DECODE), 1e-6);
    ck_assert(sum(HISTOGRAM_REQUEST) >= sum(HISTOGRAM_INFERENCE) && sum(HISTOGRAM_DECODE) > 0);
    ck_assert(sum(HISTOGRAM_FIRST_TOKEN) < sum(HISTOGRAM_REQUEST));
}
END_TEST

/* A choice of one token has no time between tokens, and an empty one has no first token. */
START_TEST(short_choices_are_measured) {
    ask(COMPLETION, "", "{\"prompt\":\"hi\",\"max_tokens\":1}");
    expect_status("one token", 200);
    ck_assert_uint_eq(counted(HISTOGRAM_GENERATION), 1);
    ck_assert_uint_eq(counted(HISTOGRAM_OUTPUT_TOKEN), 0);
    ask(COMPLETION, "", "{\"prompt\":\"hi\",\"max_tokens\":0,\"echo\":true}");
    expect_status("no token", 200);
    ck_assert_uint_eq(counted(HISTOGRAM_FIRST_TOKEN), 1);
    ck_assert_uint_eq(counted(HISTOGRAM_PREFILL), 2);
    ck_assert_uint_eq(counted(HISTOGRAM_REQUEST), 2);
}
END_TEST

/* ---- answers -------------------------------------------------------------------------------- */

START_TEST(a_stream_ends_with_done) {
    ask(CHAT, "",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":3,\"stream\":true,"
        "\"ignore_eos\":true,\"stream_options\":{\"include_usage\":true}}");
    expect_status("a stream", 200);
    expect_text("Content-Type: text/event-stream");
    expect_text("\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    expect_text("\"finish_reason\":\"length\"");
    expect_text("\"completion_tokens\":3");
    expect_text("data: [DONE]\n\n");
    ck_assert(app->requests.n == 0 && app->metrics.finished_length == 1);
}
END_TEST

/* Clients may disconnect at any time, and all their memory is freed. */
START_TEST(clients_may_go) {
    static const char *const texts[] = {
        COMPLETION " HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
        COMPLETION " HTTP/1.1\r\nHost: x\r\nContent-Length: 54\r\n\r\n"
                   "{\"prompt\":\"hi\",\"max_tokens\":200,\"ignore_eos\":true    }",
        "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"prompt\":\"hi\"}"};
    for (int turns = 0; turns < 30; turns += 3) {
        for (int i = 0; i < 3; i++) {
            int fd = connect_to_server();
            ck_assert_int_gt(send(fd, texts[i], strlen(texts[i]), MSG_NOSIGNAL), 0);
            for (int j = 0; j < turns; j++) uv_run(&app->loop, UV_RUN_NOWAIT);
            close(fd);
        }
    }
    uint64_t until_ns = now_ns() + 10000000000u;
    struct http_stats stats;
    do {
        uv_run(&app->loop, UV_RUN_NOWAIT);
        http_stats(app->http, &stats);
    } while ((stats.connections > 0 || app->requests.n > 0) && now_ns() < until_ns);
    ck_assert(stats.connections == 0 && stats.requests == 0 && app->requests.n == 0);
    ask(COMPLETION, "", PROMPT);
    expect_status("after all have gone", 200);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        several_names,
        paths_and_refusals,
        each_api_has_its_path,
        metrics_are_openmetrics_if_asked_for,
        requests_are_counted_by_route,
        prompts_and_choices_are_measured,
        short_choices_are_measured,
        a_full_queue_refuses_before_the_body,
        a_stream_ends_with_done,
        a_draining_or_failed_server_refuses,
        lacking_memory_is_retried_when_a_request_has_ended,
        clients_may_go,
    };
    Suite *suite = suite_create("server/routes");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, app_setup, app_teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
