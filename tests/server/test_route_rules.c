/* Rules for all routes of a whole server: all spellings of a path are equivalent, and a body that
 * the route does not read is not kept in memory. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/app_fixture.h"
#include "support/suite_main.h"

#define MESSAGE "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":1}"
#define TEXT "{\"prompt\":\"hi\",\"max_tokens\":1}"
#define HI "\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define NAMED "{" HI ",\"max_tokens\":1}"
#define INFILL                                                                                     \
    "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"}" /* the model has no tokens for it */
#define INPUT "{\"model\":\"tiny\",\"input\":\"hi\",\"max_output_tokens\":1}"
#define OLLAMA "\"stream\":false,\"options\":{\"num_predict\":1}}"
#define OLLAMA_CHAT "{" HI "," OLLAMA
#define OLLAMA_TEXT "{\"model\":\"tiny\",\"prompt\":\"hi\"," OLLAMA

#define DECISION                                                                                   \
    "{\"model\":\"tiny\",\"input\":\"hi\",\"questions\":[{\"type\":\"predicate\","                 \
    "\"instructions\":\"a\"}]}"
#define SYSTEMONE                                                                                  \
    "{\"model\":\"tiny\",\"state\":\"hi\",\"questions\":{\"a\":{\"type\":\"noul\","                \
    "\"instructions\":\"a\"}}}"
/* "yes" and "no" are not tokens of the model */
#define RANKING "{\"model\":\"tiny\",\"query\":\"hi\",\"documents\":[\"a\"]}"
#define PAIR "{\"model\":\"tiny\",\"text_1\":\"hi\",\"text_2\":[\"a\"]}"

static const struct {
    const char *path, *method;
    const char *body;    /* a body that it answers with 200; NULL: it reads no body */
    int status;          /* of its answer */
    const char *handler; /* its name in metrics; NULL: it is not counted there */
} routes[] = {
    {"/v1/models", "GET", NULL, 200, "/v1/models"},
    {"/models", "GET", NULL, 200, "/v1/models"},
    {"/v1/models/tiny", "GET", NULL, 200, "/v1/models/"},
    {"/models/tiny", "GET", NULL, 200, "/v1/models/"},
    {"/tokenize", "POST", TEXT, 200, "/tokenize"},
    {"/detokenize", "POST", "{\"tokens\":[108]}", 200, "/detokenize"},
    {"/tokenizer_info", "GET", NULL, 200, "/tokenizer_info"},
    {"/health", "GET", NULL, 200, NULL},
    {"/health/live", "GET", NULL, 200, NULL},
    {"/health/ready", "GET", NULL, 200, NULL},
    {"/ping", "GET", NULL, 200, NULL},
    {"/load", "GET", NULL, 200, NULL},
    {"/openapi.json", "GET", NULL, 200, NULL},
    {"/metrics", "GET", NULL, 200, NULL},
    {"/version", "GET", NULL, 200, NULL},
    {"/kv_event_sources", "GET", NULL, 200, NULL},
    {"/get_server_info", "GET", NULL, 200, NULL},
    {"/drain", "POST", NULL, 401, "/drain"},
    {"/v1/load_lora_adapter", "POST", NULL, 401, "/v1/load_lora_adapter"},
    {"/v1/unload_lora_adapter", "POST", NULL, 401, "/v1/unload_lora_adapter"},
    {"/", "GET", NULL, 200, NULL},
    {"/page/main.js", "GET", NULL, 200, NULL},
    {"/penstock/live", "GET", NULL, 200, "/penstock/live"},
    {"/api/version", "GET", NULL, 200, "/api/version"},
    {"/api/tags", "GET", NULL, 200, "/api/tags"},
    {"/api/ps", "GET", NULL, 200, "/api/ps"},
    {"/api/show", "POST", "{\"model\":\"tiny\"}", 200, "/api/show"},
    {"/props", "GET", NULL, 200, "/props"},
    {"/slots", "GET", NULL, 200, "/slots"},
    {"/apply-template", "POST", MESSAGE, 200, "/apply-template"},
    {"/v1/completions", "POST", TEXT, 200, "/v1/completions"},
    {"/completions", "POST", TEXT, 200, "/v1/completions"},
    {"/v1/completions/render", "POST", TEXT, 200, "/v1/completions/render"},
    {"/v1/chat/completions", "POST", MESSAGE, 200, "/v1/chat/completions"},
    {"/chat/completions", "POST", MESSAGE, 200, "/v1/chat/completions"},
    {"/v1/chat/completions/render", "POST", MESSAGE, 200, "/v1/chat/completions/render"},
    {"/api/chat", "POST", OLLAMA_CHAT, 200, "/api/chat"},
    {"/api/chat/render", "POST", OLLAMA_CHAT, 200, "/api/chat/render"},
    {"/api/generate", "POST", OLLAMA_TEXT, 200, "/api/generate"},
    {"/api/generate/render", "POST", OLLAMA_TEXT, 200, "/api/generate/render"},
    {"/completion", "POST", TEXT, 200, "/completion"},
    {"/completion/render", "POST", TEXT, 200, "/completion/render"},
    {"/infill", "POST", INFILL, 400, "/infill"},
    {"/infill/render", "POST", INFILL, 400, "/infill/render"},
    {"/v1/messages", "POST", NAMED, 200, "/v1/messages"},
    {"/v1/messages/render", "POST", NAMED, 200, "/v1/messages/render"},
    {"/v1/responses", "POST", INPUT, 200, "/v1/responses"},
    {"/v1/responses/render", "POST", INPUT, 200, "/v1/responses/render"},
    {"/v1/embeddings", "POST", INPUT, 200, "/v1/embeddings"},
    {"/embeddings", "POST", INPUT, 200, "/v1/embeddings"},
    {"/v1/embeddings/render", "POST", INPUT, 200, "/v1/embeddings/render"},
    {"/v1/decisions", "POST", DECISION, 400, "/v1/decisions"},
    {"/v1/decisions/render", "POST", DECISION, 400, "/v1/decisions/render"},
    {"/v1/systemone", "POST", SYSTEMONE, 422, "/v1/systemone"},
    {"/v1/systemone/render", "POST", SYSTEMONE, 422, "/v1/systemone/render"},
    {"/v1/rerank", "POST", RANKING, 400, "/v1/rerank"},
    {"/v1/rerank/render", "POST", RANKING, 400, "/v1/rerank/render"},
    {"/rerank", "POST", RANKING, 400, "/rerank"},
    {"/rerank/render", "POST", RANKING, 400, "/rerank/render"},
    {"/v2/rerank", "POST", RANKING, 400, "/v2/rerank"},
    {"/v2/rerank/render", "POST", RANKING, 400, "/v2/rerank/render"},
    {"/v1/reranking", "POST", RANKING, 400, "/v1/reranking"},
    {"/reranking", "POST", RANKING, 400, "/v1/reranking"},
    {"/v1/reranking/render", "POST", RANKING, 400, "/v1/reranking/render"},
    {"/v1/score", "POST", PAIR, 400, "/v1/score"},
    {"/score", "POST", PAIR, 400, "/v1/score"},
    {"/v1/score/render", "POST", PAIR, 400, "/v1/score/render"},
    {"/v1/classify", "POST", INPUT, 400, "/v1/classify"},
    {"/classify", "POST", INPUT, 400, "/v1/classify"},
    {"/v1/classify/render", "POST", INPUT, 400, "/v1/classify/render"},
    {"/v1/pooling", "POST", INPUT, 200, "/v1/pooling"},
    {"/pooling", "POST", INPUT, 200, "/v1/pooling"},
    {"/v1/pooling/render", "POST", INPUT, 200, "/v1/pooling/render"},
    {"/api/embed", "POST", INPUT, 200, "/api/embed"},
    {"/api/embed/render", "POST", INPUT, 200, "/api/embed/render"},
    {"/api/embeddings", "POST", OLLAMA_TEXT, 200, "/api/embeddings"},
    {"/api/embeddings/render", "POST", OLLAMA_TEXT, 200, "/api/embeddings/render"},
    {"/embedding", "POST", INPUT, 200, "/embedding"},
    {"/embedding/render", "POST", INPUT, 200, "/embedding/render"},
    {"/v1/messages/count_tokens", "POST", NAMED, 200, "/v1/messages/count_tokens"},
    {"/v1/responses/input_tokens", "POST", INPUT, 200, "/v1/responses/input_tokens"},
};

enum { N_ROUTES = sizeof routes / sizeof *routes, N_SHORT = 9 };

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"};

enum { N_METHODS = sizeof methods / sizeof *methods };

/* ---- paths ---------------------------------------------------------------------------------- */

/* Equivalent spellings of a path. `%` is the path. */
static const char *const same[] = {"%", "%/", "%?a=b", "%/?a=/x/", "%%2F", "%?", "http://h%/"};

/* Paths that are not served. */
static const char *const other[] = {"%x", "%//", "/%", "%%3Fa=b", "%;a", "%%20", "%/render/x"};

static void write_path(struct buf *out, const char *form, const char *path) {
    buf_clear(out);
    buf_printf(out, "%.*s%s%s", (int)strcspn(form, "%"), form, path, strchr(form, '%') + 1);
}

/* A spelling with escapes for all characters except the first slash. */
static void escape(struct buf *out, const char *path) {
    buf_clear(out);
    buf_puts(out, "/");
    for (path++; *path; path++) buf_printf(out, "%%%02x", (unsigned char)*path);
}

static void ask_path(const char *method, const char *path, const char *body) {
    char line[256];
    snprintf(line, sizeof line, "%s %s", method, path);
    ask(line, "", strcmp(method, "POST") == 0 && body ? body : NULL);
}

static int expected_status(int i, const char *method) {
    bool is_get = strcmp(routes[i].method, "GET") == 0;
    bool fits = strcmp(method, routes[i].method) == 0 || (is_get && strcmp(method, "HEAD") == 0);
    if (strcmp(method, "OPTIONS") == 0) return 204;
    return fits || routes[i].status == 401 ? routes[i].status : 405;
}

START_TEST(a_path_is_the_same_however_it_is_written) {
    struct buf path = {0};
    const char *body = routes[_i].body;
    for (int m = 0; m < N_METHODS; m++) {
        int status = expected_status(_i, methods[m]);
        for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
            write_path(&path, same[i], routes[_i].path);
            ask_path(methods[m], path.data, body);
            expect_status(path.data, status);
        }
        escape(&path, routes[_i].path);
        ask_path(methods[m], path.data, body);
        expect_status(path.data, status);
        if (status == 405 || status == 204) {
            expect_text(strcmp(routes[_i].method, "GET") == 0 ? "Allow: GET, HEAD, OPTIONS\r\n"
                                                              : "Allow: POST, OPTIONS\r\n");
        }
    }
    for (int i = 0; i < app->metrics.n_http; i++) {
        ck_assert_ptr_nonnull(routes[_i].handler);
        ck_assert_str_eq(app->metrics.http[i].path, routes[_i].handler);
    }
    buf_free(&path);
}
END_TEST

START_TEST(any_other_path_is_unknown) {
    struct buf path = {0};
    for (int m = 0; m < N_METHODS; m++) {
        for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
            write_path(&path, other[i], routes[_i].path);
            ask_path(methods[m], path.data, routes[_i].body);
            bool is_name = (strstr(path.data, "/models/") || strstr(path.data, "/page/")) &&
                           path.data[1] != '/';
            bool is_root = strcmp(path.data, "//") == 0; /* with a slash at the end */
            if (!is_name && !is_root) expect_status(path.data, 404);
        }
        buf_clear(&path);
        for (const char *at = routes[_i].path; *at; at++) {
            buf_puts(&path, (char[]){(char)(*at >= 'a' && *at <= 'z' ? *at - 32 : *at), 0});
        }
        ask_path(methods[m], path.data, routes[_i].body);
        if (routes[_i].path[1]) expect_status(path.data, 404);
    }
    for (int i = 0; i < app->metrics.n_http; i++) {
        ck_assert_msg(strcmp(app->metrics.http[i].path, "none") == 0 ||
                          strcmp(app->metrics.http[i].path, "/v1/models/") == 0,
                      "%s", app->metrics.http[i].path);
    }
    buf_free(&path);
}
END_TEST

/* A new route must be added here too. /v1/models/tiny and the paths without /v1 are second
 * names. */
START_TEST(all_routes_are_listed) {
    ck_assert_int_eq(app->n_routes, N_ROUTES - N_SHORT);
}
END_TEST

START_TEST(ollamas_unserved_paths_say_why) {
    static const char *const lines[] = {"POST /api/pull", "DELETE /api/delete", "POST /api/copy",
                                        "HEAD /api/blobs/sha256:0"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        ask(lines[i], "", lines[i][0] == 'P' ? "{}" : NULL);
        expect_status(lines[i], 501);
        if (lines[i][0] != 'H') expect_text("\r\n\r\n{\"error\":\"This server ");
    }
    ask("POST /api/nothing", "", "{}");
    expect_status("POST /api/nothing", 404);
    expect_text("{\"error\":\"Unknown path /api/nothing.\"}");
    keys_add(&app->keys, "secret", strlen("secret"));
    ask("POST /api/pull", "", "{}");
    expect_status("POST /api/pull", 401);
}
END_TEST

/* ---- bodies --------------------------------------------------------------------------------- */

enum { WHOLE = 60000, PART = 50000 };

static size_t kept_bytes(void) {
    struct http_stats stats;
    http_stats(app->http, &stats);
    return stats.bodies_bytes;
}

/* Runs the loop until the server has answered, or for at least 3 ms. Returns the maximum bytes of
 * bodies that it kept meanwhile. */
static size_t most_kept(int fd, bool until_answer) {
    size_t most = 0;
    char part[512];
    uint64_t since_ns = now_ns();
    bool is_answered = false;
    while (until_answer ? !is_answered : now_ns() - since_ns < 3000000u) {
        ck_assert_msg(now_ns() - since_ns < 10000000000u, "no answer");
        uv_run(&app->loop, UV_RUN_NOWAIT);
        size_t kept = kept_bytes();
        if (kept > most) most = kept;
        if (until_answer && recv(fd, part, sizeof part, MSG_PEEK) >= 0) is_answered = true;
    }
    return most;
}

/* Sends a request with most of a body, then the rest of it. Returns the maximum bytes of it that
 * were kept, and the status. */
static size_t send_body(const char *line, const char *fields, int *status) {
    static char body[WHOLE];
    struct buf head = {0};
    char answered[16] = "";
    int fd = connect_to_server();
    memset(body, ' ', WHOLE);
    buf_printf(&head, "%s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n", line, fields,
               WHOLE);
    ck_assert_int_eq(send(fd, head.data, head.length, MSG_NOSIGNAL), (ssize_t)head.length);
    ck_assert_int_eq(send(fd, body, PART, MSG_NOSIGNAL), PART);
    buf_free(&head);
    size_t most = most_kept(fd, false);
    ck_assert_int_eq(send(fd, body, WHOLE - PART, MSG_NOSIGNAL), WHOLE - PART);
    size_t last = most_kept(fd, true);
    ck_assert_int_gt(recv(fd, answered, sizeof answered - 1, 0), 12);
    *status = atoi(answered + 9);
    close(fd);
    for (int i = 0; i < 100 && kept_bytes() > 0; i++) uv_run(&app->loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(kept_bytes(), 0);
    return most > last ? most : last;
}

START_TEST(a_body_that_is_not_read_is_not_kept) {
    for (int i = 0; i < N_ROUTES; i++) {
        for (int m = 0; m < N_METHODS; m++) {
            char line[128];
            int status;
            snprintf(line, sizeof line, "%s %s", methods[m], routes[i].path);
            size_t kept = send_body(line, "", &status);
            bool is_read = routes[i].body && strcmp(methods[m], "POST") == 0;
            ck_assert_msg((kept > 0) == is_read, "%s: %zu bytes were kept", line, kept);
            const int refused = routes[i].status == 422 ? 422 : 400;
            ck_assert_msg(status == (is_read ? refused : expected_status(i, methods[m])), "%s: %d",
                          line, status);
        }
    }
}
END_TEST

START_TEST(an_admin_s_drain_keeps_no_body) {
    int status;
    keys_add(&app->admin_keys, "boss", strlen("boss"));
    ck_assert_uint_eq(send_body("POST /drain", "Authorization: Bearer boss\r\n", &status), 0);
    ck_assert_int_eq(status, 200);
}
END_TEST

START_TEST(the_body_of_a_refused_request_is_not_kept) {
    static const struct {
        const char *line, *fields;
        int status;
    } refused[] = {
        {COMPLETION, "Content-Type: text/plain\r\n", 415},
        {COMPLETION, "Content-Encoding: gzip\r\n", 415},
        {"POST /nowhere", "", 404},
        {"PUT /v1/completions", "", 405},
    };
    int status;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ck_assert_uint_eq(send_body(refused[i].line, refused[i].fields, &status), 0);
        ck_assert_int_eq(status, refused[i].status);
    }
    app->n_preparing = options.scheduler.max_queued_requests;
    ck_assert_uint_eq(send_body(COMPLETION, "", &status), 0);
    ck_assert_int_eq(status, 429);
    app->n_preparing = 0;
    app->draining = true;
    ck_assert_uint_eq(send_body(CHAT, "", &status), 0);
    ck_assert_int_eq(status, 503);
    app->draining = false;
    keys_add(&app->keys, "secret", strlen("secret"));
    for (int i = 0; i < N_ROUTES; i++) {
        char line[128];
        snprintf(line, sizeof line, "%s %s", routes[i].method, routes[i].path);
        ck_assert_msg(send_body(line, "Authorization: Bearer wrong\r\n", &status) == 0, "%s", line);
        ck_assert_msg(status == (routes[i].handler ? 401 : 200), "%s: %d", line, status);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server/route_rules");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, app_setup, app_teardown);
    tcase_add_loop_test(cases, a_path_is_the_same_however_it_is_written, 0, N_ROUTES);
    tcase_add_loop_test(cases, any_other_path_is_unknown, 0, N_ROUTES);
    tcase_add_test(cases, all_routes_are_listed);
    tcase_add_test(cases, ollamas_unserved_paths_say_why);
    tcase_add_test(cases, a_body_that_is_not_read_is_not_kept);
    tcase_add_test(cases, an_admin_s_drain_keeps_no_body);
    tcase_add_test(cases, the_body_of_a_refused_request_is_not_kept);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
