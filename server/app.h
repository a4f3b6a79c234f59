/* server/app: the application behind the HTTP front end. Internal to server/.
 *
 * A `struct app` is one serving process: model, scheduler, loop, metrics. A `struct job` is one
 * generation request, from its whole body to its last byte. Both belong to the loop thread, except
 * where a comment says otherwise.
 */
#ifndef PENSTOCK_SERVER_APP_H
#define PENSTOCK_SERVER_APP_H

#include <pthread.h>
#include <uv.h>

#include "server/api.h"
#include "server/http.h"

/* What http_request.app points to while somebody works on the request: the head of a job or of a
 * text's work. NULL: nobody does yet. */
struct owner {
    enum { OWNER_JOB, OWNER_TEXT } kind;
};

/* ---- the process ---------------------------------------------------------------------------- */

/* Events on their way from the engine thread to the loop: the one adds at the back, the other takes
 * the whole vector. */
struct event_vector {
    struct event *events;
    int n, capacity;
};

#define APP_SIGNALS 3

struct app {
    const struct options *options;
    char name[256];
    const char *model_name; /* the name that clients use: `name`, or what suits a command */
    int64_t started_s;      /* seconds since 1970 */
    struct engine *engine;
    struct scheduler *scheduler;
    struct http_server *http;
    struct api_limits limits;
    struct metrics metrics;
    struct buf keys; /* accepted API keys, each NUL-terminated; empty: no key is asked for */
    _Atomic uint64_t n_seeds; /* seeds given to prompts that came without one; any thread */
    int n_jobs;               /* jobs that exist */
    int n_preparing;          /* jobs that a worker has */
    int n_texts;              /* /tokenize and /detokenize requests that a worker has */
    struct job *jobs;         /* list of all, through job->next */
    bool draining, aborted;   /* the first signal came; the time for finishing is over */
    bool http_closed;         /* drained, and no connection is left */
    struct err failure;       /* how the device has failed; STATUS_OK: it has not */

    uv_loop_t loop;
    uv_async_t wake;                  /* the engine thread has events */
    uv_signal_t signals[APP_SIGNALS]; /* SIGTERM, SIGINT, SIGHUP */
    uv_timer_t drain_timer;
    pthread_mutex_t mutex; /* guards the next two */
    struct event_vector arrived;
    struct err arrived_failure;
    struct event_vector taken; /* the loop's */
};

/* ---- limits.c ------------------------------------------------------------------------------- */

/* Takes the model's name from the options: --served-model-name, or its file's. */
void app_set_name(struct app *app);

/* Fills the limits of a request, from the options, the name and the opened engine. */
void app_set_limits(struct app *app);

/* ---- serve.c: the parts of a server --------------------------------------------------------- */

/* Puts scheduler, loop and HTTP around the engine of an app whose options and model_name are set;
 * uv_run of its loop then serves until lifecycle.c stops it. Where that fails, as where it does
 * not, app_close is due. The engine stays the caller's. */
enum status app_open(struct app *app, struct err *err);
void app_close(struct app *app);

/* ---- routes.c: which path does what --------------------------------------------------------- */

/* The callbacks of http_config; `app` is the struct app. */
void routes_on_headers(void *app, struct http_request *http);
void routes_on_request(void *app, struct http_request *http);
void routes_on_gone(void *app, struct http_request *http);
void routes_on_done(void *app, struct http_request *http, int status, uint64_t bytes);

/* Answers with an error body, with Retry-After or Allow where the status wants them, and nothing
 * else. */
void respond_error(struct http_request *http, const struct err *err, const char *allow);

/* Answers 200 with a JSON body. */
void respond_json(struct http_request *http, const struct buf *body);

/* ---- auth.c --------------------------------------------------------------------------------- */

/* Collects the keys of --api-key and --api-key-file into app->keys. */
enum status auth_load(struct app *app, struct err *err);

/* Does the request carry one of the keys? Takes the same time for every wrong key of one length. */
bool auth_accepts(const struct app *app, const struct http_request *http);

/* ---- health.c: what the process says of itself ---------------------------------------------- */

void health_live(struct app *app, struct http_request *http);
void health_ready(struct app *app, struct http_request *http);
void health_metrics(struct app *app, struct http_request *http);
void health_version(struct app *app, struct http_request *http);

/* The version as one line of text, and as the JSON of /version; `backend` may be NULL. */
void version_write(struct buf *out);
void version_write_json(struct buf *out, const char *backend);

/* ---- text_route.c: /tokenize and /detokenize ------------------------------------------------ */

void text_tokenize(struct app *app, struct http_request *http);
void text_detokenize(struct app *app, struct http_request *http);

/* ---- job.c: one generation request ---------------------------------------------------------- */

/* Takes a whole request: parses and tokenises on a worker, submits, and answers as tokens come. */
void job_start(struct app *app, struct http_request *http, enum api_kind kind);

/* Its client has gone: everything that runs for it is cancelled. The request's owner is a job, here
 * and below. */
void job_gone(struct http_request *http);

/* HTTP has reported the request done: its last reference to the job goes. */
void job_done(struct http_request *http);

/* Fields of the access log that only the job knows; returns how many were filled (at most 8). */
int job_log_fields(const struct http_request *http, struct log_field *fields);

/* Ends every job with an error of status 503; the loop frees them as the engine lets go. */
void jobs_abort(struct app *app);

/* ---- bridge.c: events from the engine thread to the loop ------------------------------------ */

void events_append(struct event_vector *vector, const struct event *events, int n);

void bridge_init(struct app *app);
void bridge_close(struct app *app);

/* The scheduler's on_events. Engine thread. */
void bridge_on_events(void *app, const struct event *events, int n);

/* The scheduler's on_failure. Engine thread. The loop hears of it before the events that follow. */
void bridge_on_failure(void *app, const struct err *err);

/* ---- lifecycle.c: signals and the orderly end ----------------------------------------------- */

/* First SIGTERM, SIGINT or SIGHUP: no new connections, running requests finish within
 * --drain-timeout. Second: they are cut off. */
void lifecycle_init(struct app *app);
void lifecycle_close(struct app *app); /* closes its handles once the loop has stopped */

/* The device has failed, app->failure says how: all requests are ending, and so does the
 * process. */
void lifecycle_fail(struct app *app);

/* A job has ended: perhaps the last that a drain waited for. */
void lifecycle_job_ended(struct app *app);

#endif
