/* Paths, methods, keys and early refusals of a whole server around a tiny model, over real
 * connections; and that each API is reached by its path. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/app.h"
#include "server/commands/commands.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

static struct app *app;
static struct options options;
static char *model;
static struct buf answer; /* of the last request, head and body */

/* ---- a server ------------------------------------------------------------------------------- */

static void setup(void) {
    struct tiny_model tiny;
    struct err err = {0};
    bool help;
    tiny_model_defaults(&tiny);
    model = tiny_model_temporary(&tiny);
    char *argv[] = {"--model",
                    model,
                    "--port",
                    "0",
                    "--served-model-name",
                    "tiny",
                    "--kv-cache-memory",
                    "1MiB",
                    "--max-num-seqs",
                    "4",
                    "--threads",
                    "1",
                    "--max-queued-requests",
                    "4"};
    char *environment[] = {NULL};
    int argc = sizeof argv / sizeof *argv;
    ck_assert_msg(!options_parse(&options, "serve", argc, argv, environment, &help, &err), "%s",
                  err.message);
    log_setup(LOG_ERROR, LOG_TEXT);
    app = mem_calloc(1, sizeof *app);
    app->options = &options;
    struct engine_config config = engine_config_from(&options);
    ck_assert_msg(!engine_open(&app->engine, &config, &err), "%s", err.message);
    app_set_name(app);
    ck_assert_msg(!app_open(app, &err), "%s", err.message);
}

static bool http_is_closed;

static void on_http_closed(void *arg) {
    (void)arg;
    http_is_closed = true;
}

static void teardown(void) {
    http_is_closed = false;
    http_server_drain(app->http, on_http_closed);
    http_server_abort(app->http);
    uint64_t until_ns = now_ns() + 5000000000u;
    while ((!http_is_closed || app->requests.n > 0) && now_ns() < until_ns) {
        uv_run(&app->loop, UV_RUN_NOWAIT);
    }
    ck_assert(http_is_closed && app->requests.n == 0 && app->n_preparing == 0);
    app_close(app);
    engine_close(app->engine);
    options_free(&options);
    free(app);
    unlink(model);
    free(model);
    buf_free(&answer);
}

static int connect_to_server(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)http_server_port(app->http)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Sends a request and turns the loop until the server closes the connection. */
static void ask(const char *line, const char *fields, const char *body) {
    struct buf text = {0};
    char part[4096];
    int fd = connect_to_server();
    buf_printf(&text, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s", line, fields);
    if (body) buf_printf(&text, "Content-Length: %zu\r\n", strlen(body));
    buf_printf(&text, "\r\n%s", body ? body : "");
    ck_assert_int_eq(send(fd, text.data, text.length, MSG_NOSIGNAL), (ssize_t)text.length);
    buf_free(&text);
    buf_clear(&answer);
    uint64_t until_ns = now_ns() + 20000000000u;
    for (ssize_t n = -1; n != 0;) {
        ck_assert_msg(now_ns() < until_ns, "no whole answer to %s", line);
        uv_run(&app->loop, UV_RUN_NOWAIT);
        n = recv(fd, part, sizeof part, 0);
        if (n > 0) buf_add(&answer, part, (size_t)n);
        if (n < 0 && errno != EAGAIN) break;
    }
    close(fd);
    ck_assert_ptr_nonnull(answer.data);
}

static void expect_status(const char *line, int status) {
    char head[32];
    snprintf(head, sizeof head, "HTTP/1.1 %d ", status);
    ck_assert_msg(strncmp(answer.data, head, strlen(head)) == 0, "%s: %s", line, answer.data);
}

static void expect(const char *text) {
    ck_assert_msg(strstr(answer.data, text) != NULL, "'%s' is not in\n%s", text, answer.data);
}

#define CHAT "POST /v1/chat/completions"
#define COMPLETION "POST /v1/completions"
#define PROMPT "{\"prompt\":\"hi\",\"max_tokens\":3}"

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
    {"GET /", "", NULL, 404, "Unknown path /."},
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
    {"POST /detokenize", "", "{\"tokens\":[108,109]}", 200, "{\"prompt\":\"hi\"}"},
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
    {"POST /v1/embeddings", "", "{\"input\":\"a\"}", 404,
     "Unknown path /v1/embeddings. This server generates text: POST /v1/chat/completions"},
};

START_TEST(paths_and_refusals) {
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        ask(asked[i].line, asked[i].fields, asked[i].body);
        expect_status(asked[i].line, asked[i].status);
        expect(asked[i].says);
    }
}
END_TEST

START_TEST(each_api_has_its_path) {
    for (int i = 0; api_at(i); i++) {
        char line[128];
        ck_assert_ptr_eq(api_find(api_at(i)->path), api_at(i));
        snprintf(line, sizeof line, "POST %s", api_at(i)->path);
        ask(line, "", "[]");
        expect_status(line, 400);
        expect("The body must be a JSON object, but it is an array.");
        snprintf(line, sizeof line, "PUT %s", api_at(i)->path);
        ask(line, "", "[]");
        expect_status(line, 405);
    }
    ck_assert_ptr_null(api_find("/v1/models"));
}
END_TEST

START_TEST(keys_open_all_but_health) {
    buf_add(&app->keys, "secret", sizeof "secret");
    ask("GET /v1/models", "", NULL);
    expect_status("without a key", 401);
    expect("WWW-Authenticate: Bearer");
    ask("GET /v1/models", "Authorization: Bearer secrets\r\n", NULL);
    expect_status("with a wrong key", 401);
    ask("GET /nowhere", "", NULL);
    expect_status("an unknown path", 401);
    ask("GET /v1/models", "Authorization: Bearer secret\r\n", NULL);
    expect_status("with the key", 200);
    ask("GET /health/ready", "", NULL);
    expect_status("health", 200);
    ask("GET /metrics", "", NULL);
    expect_status("metrics", 200);
    ask("GET /version", "", NULL);
    expect_status("version", 200);
}
END_TEST

START_TEST(metrics_have_keys_of_their_own) {
    buf_add(&app->keys, "secret", sizeof "secret");
    buf_add(&app->metrics_keys, "scrape", sizeof "scrape");
    ask("GET /metrics", "", NULL);
    expect_status("without a key", 401);
    expect("A valid metrics key is needed");
    ask("GET /metrics", "Authorization: Bearer secret\r\n", NULL);
    expect_status("an API key", 401);
    ask("GET /metrics", "Authorization: Bearer scrape\r\n", NULL);
    expect_status("its key", 200);
    ask("GET /version", "", NULL);
    expect_status("the version", 401);
    ask("GET /v1/models", "Authorization: Bearer scrape\r\n", NULL);
    expect_status("what needs an API key", 401);
    ask("GET /health", "", NULL);
    expect_status("health", 200);
}
END_TEST

START_TEST(metrics_come_as_openmetrics_if_asked_for) {
    ask("GET /metrics", "", NULL);
    expect("Content-Type: text/plain; version=0.0.4; charset=utf-8");
    ask("GET /metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n", NULL);
    expect("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8");
    expect("\n# EOF\n");
}
END_TEST

/* Clients that try paths and methods make no series of their own, and scrapes count nowhere. */
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
    expect("\nhttp_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"2xx\"} 2\n");
    expect("\nhttp_requests_total{handler=\"none\",method=\"GET\",status=\"4xx\"} 2\n");
    expect("\nhttp_requests_total{handler=\"/v1/models\",method=\"other\",status=\"4xx\"} 1\n");
    expect("\nhttp_requests_total{handler=\"/v1/completions/render\",method=\"POST\","
           "status=\"2xx\"} 1\n");
    ck_assert_int_eq(app->metrics.n_http, 4);
}
END_TEST

/* Only an admin key drains, and it opens the other paths too. */
START_TEST(admin_keys_drain) {
    buf_add(&app->keys, "secret", sizeof "secret");
    ask("POST /drain", "Authorization: Bearer secret\r\n", "");
    expect_status("without admin keys", 401);
    expect("this server has none: --admin-key.");
    buf_add(&app->admin_keys, "other", sizeof "other");
    buf_add(&app->admin_keys, "boss", sizeof "boss");
    ask("POST /drain", "Authorization: Bearer secret\r\n", "");
    expect_status("with an API key", 401);
    ask("POST /drain", "", "");
    expect_status("without a key", 401);
    ask("GET /drain", "Authorization: Bearer boss\r\n", NULL);
    expect_status("GET", 405);
    ask("GET /v1/models", "Authorization: Bearer boss\r\n", NULL);
    expect_status("with an admin key", 200);
    ck_assert(!app->draining);
    ask("POST /drain", "Authorization: Bearer boss\r\n", "");
    expect_status("a drain", 200);
    expect("{\"status\":\"draining\",\"requests\":0,\"delay_s\":5,\"timeout_s\":30}");
    ck_assert(app->draining && !app->port_closed);
    ask(COMPLETION, "Authorization: Bearer secret\r\n", PROMPT);
    expect_status("while draining", 503);
    ask("POST /drain", "Authorization: Bearer boss\r\n", "");
    expect_status("a second time", 200);
}
END_TEST

START_TEST(keys_in_other_headers) {
    buf_add(&app->keys, "secret", sizeof "secret");
    ask("GET /v1/models", "x-api-key: secret\r\n", NULL);
    expect_status("x-api-key", 200);
    ask("GET /v1/models", "Api-Key: secret\r\n", NULL);
    expect_status("api-key", 200);
    ask("GET /v1/models", "x-api-key: secre\r\n", NULL);
    expect_status("a wrong key", 401);
    ask("GET /v1/models", "x-api-key: secret\r\nAuthorization: Bearer x\r\n", NULL);
    expect_status("the bearer counts", 401);
    ask("GET /v1/models", "x-api-key: secret\r\nAuthorization: Basic eDp5\r\n", NULL);
    expect_status("another scheme", 200);
}
END_TEST

#define STREAM "{\"prompt\":\"hi\",\"max_tokens\":2,\"stream\":true}"
#define ORIGIN "Origin: https://b.example\r\n"
#define ALLOWED "Access-Control-Allow-Origin: https://b.example\r\n"
#define ASKS "Access-Control-Request-Method: POST\r\n"

static void expect_none(const char *text) {
    ck_assert_msg(strstr(answer.data, text) == NULL, "'%s' is in\n%s", text, answer.data);
}

START_TEST(origins) {
    ask("GET /v1/models", ORIGIN, NULL);
    expect_none("Access-Control");
    expect_none("Vary");
    options.cors_origins = "https://a.example,https://b.example";
    buf_add(&app->keys, "secret", sizeof "secret");
    ask("OPTIONS /v1/completions", ORIGIN ASKS "Access-Control-Request-Headers: x-a, B\r\n", NULL);
    expect_status("a preflight without a key", 204);
    expect(ALLOWED);
    expect("Access-Control-Allow-Methods: POST, OPTIONS\r\n");
    expect("Access-Control-Allow-Headers: x-a, B\r\n");
    expect("Vary: Origin\r\n");
    ask("OPTIONS /v1/completions", ORIGIN ASKS "Access-Control-Request-Headers: \"x\"\r\n", NULL);
    expect("Access-Control-Allow-Headers: Authorization, Content-Type,");
    ask(COMPLETION, ORIGIN "Authorization: Bearer secret\r\n", STREAM);
    expect_status("a stream", 200);
    expect(ALLOWED);
    ask(COMPLETION, ORIGIN, STREAM);
    expect_status("an error", 401);
    expect(ALLOWED);
    ask(COMPLETION, ORIGIN "Content-Length: 99999999\r\n", NULL);
    expect_status("a refusal past the library", 413);
    expect(ALLOWED);
    static const char *const others[] = {"Origin: https://c.example\r\n" ASKS, ASKS,
                                         "Origin: https://b.example.org\r\n" ASKS,
                                         "Origin: null\r\n" ASKS};
    for (int i = 0; i < 4; i++) {
        ask("OPTIONS /v1/completions", others[i], NULL);
        expect_none("Access-Control-Allow-Origin");
        expect("Vary: Origin\r\n");
    }
    options.cors_origins = "*";
    ask("GET /health", "Origin: null\r\n", NULL);
    expect("Access-Control-Allow-Origin: *\r\n");
    expect_none("Vary");
}
END_TEST

START_TEST(request_ids) {
    char field[256], expected[256];
    ask("GET /nowhere", "X-Request-Id: a/b-1~!\r\n", NULL);
    expect("X-Request-Id: a/b-1~!\r\n");
    ask(COMPLETION, "X-Request-Id: q\r\n", STREAM);
    expect("X-Request-Id: q\r\n");
    for (int n = 128; n <= 129; n++) {
        snprintf(field, sizeof field, "X-Request-Id: %0*d\r\n", n, 7);
        ask("GET /health", field, NULL);
        ck_assert_int_eq(strstr(answer.data, field) != NULL, n == 128);
    }
    ask("GET /health", "X-Request-Id: two words\r\n", NULL);
    expect_none("two words");
    const char *own = strstr(answer.data, "X-Request-Id: ");
    ck_assert_ptr_nonnull(own);
    ck_assert_uint_eq(strspn(own + 14, "0123456789abcdef"), 32);
    snprintf(expected, sizeof expected, "%.46s", own);
    ask("GET /health", "", NULL);
    expect("X-Request-Id: ");
    expect_none(expected);
    ask("GET /health%00", "", NULL);
    expect("X-Request-Id: ");
}
END_TEST

START_TEST(several_names) {
    options.served_model_name = "one,two,three";
    app_set_name(app);
    app_set_limits(app);
    static const char *const names[] = {"one", "two", "three", "four", "on", ""};
    for (int i = 0; i < 6; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":\"hi\",\"max_tokens\":1}",
                 names[i]);
        ask(COMPLETION, "", body);
        expect_status(names[i], i < 3 ? 200 : 404);
        if (i < 3) expect("\"model\":\"one\"");
    }
    ask("GET /v1/models", "", NULL);
    expect("{\"id\":\"three\"");
    ask("GET /v1/models/two", "", NULL);
    expect("{\"id\":\"two\",\"object\":\"model\"");
    expect("\"root\":\"one\",\"parent\":null");
    options.any_model_name = true;
    app_set_limits(app);
    ask(COMPLETION, "", "{\"model\":\"gpt-4o\",\"prompt\":\"hi\",\"max_tokens\":1}");
    expect_status("any name", 200);
    expect("\"model\":\"one\"");
}
END_TEST

static bool loads(const char *list) {
    struct app other = {.options = &options};
    struct err err = {0};
    options.trusted_proxies = list;
    bool loaded = proxies_load(&other, &err) == STATUS_OK;
    ck_assert(loaded || (err.status == STATUS_USAGE && strstr(err.message, "--trusted-proxies")));
    buf_free(&other.proxies);
    return loaded;
}

START_TEST(ranges_of_proxies) {
    ck_assert(loads(NULL) && loads("") && loads("127.0.0.1") && loads("::1, 10.0.0.0/8,fd00::/8"));
    ck_assert(loads("0.0.0.0/0") && loads("::/0") && loads("1.2.3.4/32") && loads("::1/128"));
    static const char *const wrong[] = {"localhost",  "1.2.3",    "1.2.3.4/33",
                                        "::1/129",    "1.2.3.4/", "1.2.3.4/-1",
                                        "1.2.3.4/8x", "::1, x",   "1.2.3.4/0008"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(!loads(wrong[i]), "%s", wrong[i]);
    }
}
END_TEST

START_TEST(a_full_queue_refuses_before_the_body) {
    app->n_preparing = options.max_queued_requests;
    ask(COMPLETION, "", PROMPT);
    expect_status("a full queue", 429);
    expect("Retry-After: 1");
    expect("The waiting queue is full (4 requests)");
    ck_assert_uint_eq(app->metrics.refused_overload, 1);
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
    expect("Retry-After: 5");
    expect("The server is shutting down.");
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
    expect("The device has failed.");
    app->failure.status = STATUS_OK;
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

/* A choice of one token has no time between tokens, and one of none no first token. */
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
    expect("Content-Type: text/event-stream");
    expect("\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    expect("\"finish_reason\":\"length\"");
    expect("\"completion_tokens\":3");
    expect("data: [DONE]\n\n");
    ck_assert(app->requests.n == 0 && app->metrics.finished_length == 1);
}
END_TEST

/* Clients that go at any time leave nothing behind. */
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
        keys_in_other_headers,
        origins,
        request_ids,
        several_names,
        ranges_of_proxies,
        paths_and_refusals,
        each_api_has_its_path,
        keys_open_all_but_health,
        metrics_have_keys_of_their_own,
        metrics_come_as_openmetrics_if_asked_for,
        requests_are_counted_by_route,
        prompts_and_choices_are_measured,
        short_choices_are_measured,
        a_full_queue_refuses_before_the_body,
        admin_keys_drain,
        a_stream_ends_with_done,
        a_draining_or_failed_server_refuses,
        clients_may_go,
    };
    Suite *suite = suite_create("server/routes");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
