#include "support/app_fixture.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/commands/commands.h"
#include "support/faults.h"
#include "support/tiny_model.h"

struct app *app;
struct options options;
struct buf answer;
static char *model;

void app_setup_queue(const char *max_queued_requests) {
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
                    (char *)max_queued_requests};
    char *environment[] = {NULL};
    int argc = sizeof argv / sizeof *argv;
    ck_assert_msg(!options_parse(&options, "serve", argc, argv, environment, &help, &err), "%s",
                  err.message);
    log_setup(LOG_ERROR, LOG_TEXT);
    app = mem_calloc(1, sizeof *app);
    app->options = &options;
    struct engine_config config = options.engine;
    ck_assert_msg(!engine_open(&app->engine, &config, &err), "%s", err.message);
    app_set_name(app);
    ck_assert_msg(!app_open(app, &err), "%s", err.message);
}

void app_setup(void) {
    app_setup_queue("4");
}

static bool http_is_closed;

static void on_http_closed(void *arg) {
    (void)arg;
    http_is_closed = true;
}

void app_teardown(void) {
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

int connect_to_server(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)http_server_port(app->http)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* The loop's own allocations may fail in a test; the client's never do. */
static void turn_loop(void) {
    faults_spare(false);
    uv_run(&app->loop, UV_RUN_NOWAIT);
    faults_spare(true);
}

void ask(const char *line, const char *fields, const char *body) {
    faults_spare(true);
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
        turn_loop();
        n = recv(fd, part, sizeof part, 0);
        if (n > 0) buf_add(&answer, part, (size_t)n);
        if (n < 0 && errno != EAGAIN) break;
    }
    close(fd);
    buf_add(&answer, "", 0);
    faults_spare(false);
}

void expect_status(const char *line, int status) {
    char head[32];
    snprintf(head, sizeof head, "HTTP/1.1 %d ", status);
    ck_assert_msg(strncmp(answer.data, head, strlen(head)) == 0, "%s: %s", line, answer.data);
}

void expect_text(const char *text) {
    ck_assert_msg(strstr(answer.data, text) != NULL, "'%s' is not in\n%s", text, answer.data);
}

void expect_no_text(const char *text) {
    ck_assert_msg(strstr(answer.data, text) == NULL, "'%s' is in\n%s", text, answer.data);
}
