/* DESIGN: measures the overhead of the server per step.
 *
 * The whole server runs in this process, with its loop on a separate thread. This thread plays the
 * clients: a batch of B is B concurrent streams on separate connections, each with a prompt of
 * BENCH_CONTEXT tokens. The time of each part is read from /metrics before and after, as a
 * dashboard does. At the end, SIGTERM stops the server, as an operator does.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/command/bench.h"
#include "server/app/app.h"
#include "server/commands/commands.h"

/* Figures read from /metrics, in the order of `names`. */
enum { STEPS, PLAN, FORWARD, SAMPLE, COMMIT, ANSWER, N_FIGURES };

static const char *const names[N_FIGURES] = {
    "\npenstock_steps_total ",
    "\npenstock_step_part_seconds_total{part=\"plan\"} ",
    "\npenstock_step_part_seconds_total{part=\"forward\"} ",
    "\npenstock_step_part_seconds_total{part=\"sample\"} ",
    "\npenstock_step_part_seconds_total{part=\"commit\"} ",
    "\npenstock_answer_seconds_total ",
};

/* ---- client --------------------------------------------------------------------------------- */

static int connect_to(int port) {
    assert(port > 0 && port <= 65535);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client >= 0 && connect(client, (struct sockaddr *)&address, sizeof address) == 0)
        return client;
    if (client >= 0) close(client);
    return -1;
}

/* Sends a whole request. Returns the socket, or -1. */
static int ask(int port, const struct buf *request) {
    int client = connect_to(port);
    for (size_t sent = 0; client >= 0 && sent < request->length;) {
        ssize_t n = send(client, request->data + sent, request->length - sent, MSG_NOSIGNAL);
        if (n <= 0) {
            close(client);
            return -1;
        }
        sent += (size_t)n;
    }
    return client;
}

/* Writes request i. All prompts begin with different tokens. */
static void write_request(struct buf *request, const struct engine *engine, int i, int n) {
    struct buf body = {0};
    buf_printf(&body, "{\"prompt\":[");
    for (int at = 0; at < BENCH_CONTEXT; at++)
        buf_printf(&body, "%s%d", at ? "," : "", (at * 131 + i * 7919) % engine_model(engine)->V);
    buf_printf(&body, "],\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true,\"stream\":true}",
               n);
    buf_printf(request,
               "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
               body.length, body.data);
    buf_free(&body);
}

/* Reads /metrics. Returns false on failure. */
static bool read_figures(int port, double *figure) {
    struct buf request = {0}, answer = {0};
    char part[4096];
    buf_printf(&request, "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
    int client = ask(port, &request);
    for (ssize_t n; client >= 0 && (n = recv(client, part, sizeof part, 0)) > 0;)
        buf_add(&answer, part, (size_t)n);
    if (client >= 0) close(client);
    bool found = answer.length > 0;
    for (int i = 0; i < N_FIGURES && found; i++) {
        const char *line = strstr(answer.data, names[i]);
        found = line != NULL;
        if (found) figure[i] = strtod(line + strlen(names[i]), NULL);
    }
    buf_free(&request);
    buf_free(&answer);
    return found;
}

/* ---- batch ---------------------------------------------------------------------------------- */

/* Reads until every stream has ended. Returns false if a status is not 200. */
static bool read_all(struct pollfd *clients, int batch) {
    bool good = true;
    for (int open = batch; open > 0;) {
        if (poll(clients, (nfds_t)batch, -1) < 0) return false;
        for (int i = 0; i < batch; i++) {
            char part[16384];
            if (!clients[i].revents) continue;
            ssize_t n = recv(clients[i].fd, part, sizeof part, 0);
            if (n > 0 && memmem(part, (size_t)n, "HTTP/1.1 ", 9) == part)
                good &= memmem(part, (size_t)n, " 200 ", 5) != NULL;
            if (n > 0) continue;
            close(clients[i].fd);
            clients[i].fd = -1;
            open--;
        }
    }
    return good;
}

/* Returns the seconds from the first request to the last byte, or a negative number on failure. */
static double stream_batch(const struct engine *engine, int port, int batch, int n) {
    assert(batch > 0 && n > 0);
    struct pollfd *clients = mem_calloc((size_t)batch, sizeof *clients);
    bool good = true;
    uint64_t start = now_ns();
    for (int i = 0; i < batch; i++) {
        struct buf request = {0};
        write_request(&request, engine, i, n);
        clients[i] = (struct pollfd){.fd = ask(port, &request), .events = POLLIN};
        good &= clients[i].fd >= 0;
        buf_free(&request);
    }
    if (good) good = read_all(clients, batch);
    for (int i = 0; i < batch; i++)
        if (clients[i].fd >= 0) close(clients[i].fd);
    mem_free(clients);
    return good ? (double)(now_ns() - start) * 1e-9 : -1;
}

static bool measure(const struct engine *engine, int port, int batch, int n) {
    double before[N_FIGURES], after[N_FIGURES];
    if (!read_figures(port, before)) return false;
    double seconds = stream_batch(engine, port, batch, n);
    if (seconds < 0 || !read_figures(port, after)) return false;
    double steps = after[STEPS] - before[STEPS], ms[N_FIGURES];
    for (int i = 0; i < N_FIGURES; i++) ms[i] = (after[i] - before[i]) / steps * 1e3;
    printf("| %-5d | %8.1f | %7.2f | %7.3f | %7.2f | %7.3f | %7.3f | %7.3f |\n", batch,
           batch * n / seconds, seconds / steps * 1e3, ms[PLAN], ms[FORWARD], ms[SAMPLE],
           ms[COMMIT], ms[ANSWER]);
    return true;
}

/* ---- server --------------------------------------------------------------------------------- */

static void *run_loop(void *arg) {
    uv_run(&((struct app *)arg)->loop, UV_RUN_DEFAULT);
    return NULL;
}

static int measure_all(struct app *app, const struct bench_list *batches) {
    pthread_t loop;
    int port = http_server_port(app->http);
    if (pthread_create(&loop, NULL, run_loop, app) != 0) return 1;
    printf("\nover HTTP:\n| batch |    tok/s | ms/step |    plan | forward |  sample |  commit | "
           "answers |\n|---|---|---|---|---|---|---|---|\n");
    bool good = true;
    for (int i = 0; i < batches->n && good; i++)
        good = measure(app->engine, port, batches->value[i], app->options->bench.generate);
    kill(getpid(), SIGTERM);
    pthread_join(loop, NULL);
    if (!good) fprintf(stderr, "penstock: the server did not answer the bench's requests\n");
    return good ? 0 : 1;
}

int bench_http(const struct bench *bench) {
    struct options options = *bench->options;
    struct app *app = mem_calloc(1, sizeof *app);
    struct err err;
    log_setup(LOG_WARNING, options.log.format);
    options.http.host = "127.0.0.1";
    options.http.port = 0;
    options.drain.delay_s = 0;
    options.scheduler.prefix_caching = false; /* prompts repeat in the next batch */
    const int largest = bench->batches.max;
    if (options.scheduler.max_queued_requests < largest)
        options.scheduler.max_queued_requests = largest;
    if (options.http.max_connections <= largest) options.http.max_connections = largest + 1;
    app->options = &options;
    app->engine = bench->engine;
    app->model_name = "bench";
    int code = app_open(app, &err) ? print_error(&err) : measure_all(app, &bench->batches);
    app_close(app);
    mem_free(app);
    return code;
}
