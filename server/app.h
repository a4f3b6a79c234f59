/* server/app: the application behind the HTTP front end. Internal to server/.
 *
 * A `struct app` is one serving process: model, scheduler, loop, metrics. A `struct
 * async_request` is one HTTP request that a worker prepares, from its complete body to the last
 * byte of its response. Both belong to the loop thread unless a comment says otherwise.
 */
#ifndef PENSTOCK_SERVER_APP_H
#define PENSTOCK_SERVER_APP_H

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "config/list.h"
#include "server/http/http.h"
#include "server/lanes.h"
#include "server/metrics.h"
#include "server/openai/openai.h"

struct grammar_store;
struct route;

/* ---- the process ---------------------------------------------------------------------------- */

/* Events on their way from the engine thread, which appends, to the loop, which swaps the vector
 * for an empty one. */
struct event_vector {
    struct event *events;
    int n, capacity;
};

/* Bytes of answers from the first estimate until the last byte has left (generation/answers.c). */
struct answers {
    _Atomic size_t bytes;
    size_t max_bytes; /* of all together; 0: any number, as in a batch */
};

/* What one answer counts for. Zero at first. */
struct answer_share {
    size_t bytes;
};

#define APP_SIGNALS 3
#define APP_IGNORED 2

struct app {
    const struct options *options;
    char names[1024];       /* that clients may use, each NUL-terminated; an empty one at the end */
    const char *model_name; /* the first of them, or another one of a command's */
    int64_t started_s;      /* seconds since 1970 */
    struct engine *engine;
    struct engine *draft_engine; /* that guesses for it; NULL: none does */
    struct scheduler *scheduler;
    struct http_server *http;
    struct route *routes; /* all paths that are served, [n_routes] */
    int n_routes;
    struct api_limits limits;
    struct grammar_store *grammars; /* of all requests; any worker */
    struct answers answers;
    struct metrics metrics;
    struct buf keys;          /* accepted API keys, each NUL-terminated; empty: none is required */
    struct buf metrics_keys;  /* of --metrics-key, in the same form; empty: none is required */
    struct buf admin_keys;    /* of --admin-key, in the same form; empty: no one is an admin */
    uint64_t key_seed[2];     /* random, of the salts that keys have in the prefix cache */
    struct buf proxies;       /* of --trusted-proxies: ranges of addresses */
    _Atomic uint64_t n_seeds; /* seeds given to prompts that came without one; any thread */
    struct list requests;     /* all that are running: struct async_request */
    int n_preparing;          /* of those that generate, the ones that are in a lane */
    bool signalled;           /* the next signal is the second one */
    bool draining;            /* new generations are refused */
    bool port_closed;         /* after --drain-delay */
    bool aborted;             /* after --drain-timeout, or at a second signal */
    bool http_closed;         /* drained, and no connection is left */
    struct err failure;       /* how the device failed; STATUS_OK: it did not */

    uv_loop_t loop;
    uv_signal_t signals[APP_SIGNALS]; /* SIGTERM, SIGINT, SIGHUP */
    uv_signal_t ignored[APP_IGNORED]; /* SIGUSR1, SIGUSR2 */
    uv_timer_t drain_timer;
    /* async.c: */
    struct lanes *lanes;   /* the workers */
    uv_timer_t trim_timer; /* until free memory is returned */
    uv_work_t trim_work;
    int trims_due; /* how often it is to be returned yet */
    bool trimming; /* a worker returns it */
    /* event_bridge.c: */
    uv_async_t wake;
    void (*notify)(struct app *app); /* something has arrived. Engine thread */
    pthread_mutex_t mutex;           /* guards the next two */
    pthread_cond_t received_some;    /* bridge_receive has made room */
    struct event_vector arrived;
    struct err arrived_failure;
    struct event_vector received; /* the loop's */
};

/* ---- app.c: the parts of a server ----------------------------------------------------------- */

/* Sets the model's names from the options: those of --served-model-name, or the file's name. */
void app_set_name(struct app *app);

/* Fills the limits of a request, from the options, the name and the opened engine. */
void app_set_limits(struct app *app);

/* Are --tool-call-parser and --reasoning-parser auto, none or names that are known? Fails with
 * STATUS_USAGE. */
enum status app_check_parsers(const struct options *options, struct err *err);

/* Opens scheduler, loop and HTTP around the engine of an app whose options and model_name are set;
 * uv_run of its loop then serves until lifecycle.c stops it. The engine stays the caller's. Call
 * app_close afterwards, even if this fails. */
enum status app_open(struct app *app, struct err *err);
void app_close(struct app *app);

/* ---- routes.c: which path does what --------------------------------------------------------- */

/* Makes and frees the app's table of routes. */
void routes_open(struct app *app);
void routes_close(struct app *app);

/* The callbacks of http_config; `app` is the struct app. */
void routes_on_headers(void *app, struct http_request *http);
void routes_on_request(void *app, struct http_request *http);
void routes_on_gone(void *app, struct http_request *http);
void routes_on_done(void *app, struct http_request *http, int status, uint64_t bytes);
int routes_fields(void *app, struct http_request *http, struct http_field *out);

/* Answers with an error body, with Retry-After or Allow where the status wants them, and nothing
 * else. */
void respond_error(struct http_request *http, const struct err *err, const char *allow);

/* Answers 200 with a JSON body, whose memory is taken: `body` is empty afterwards. */
void respond_json(struct http_request *http, struct buf *body);

/* ---- generation/answers.c: memory for answers that wait to be read -------------------------- */

#define ANSWER_SMALL_BYTES ((size_t)64 << 10) /* an answer of this size is not counted */
#define ANSWER_MAX_BYTES ((size_t)32 << 20)   /* of one answer */
#define ANSWERS_MAX_BYTES ((size_t)256 << 20) /* of all that a server has */

/* Raises an answer's share to `bytes`. Fails with STATUS_INVALID_REQUEST and `param` if that is
 * more than one answer may have, and with STATUS_UNAVAILABLE and the code too_many_answers if too
 * little is left of the sum of all; then the share is as before. Any thread. */
enum status answer_reserve(struct answers *answers, struct answer_share *share, size_t bytes,
                           const char *param, struct err *err);

/* The answer was written and has `bytes`. Any thread. */
void answer_settle(struct answers *answers, struct answer_share *share, size_t bytes);

/* The answer has left, or there will be none. Any thread; a second call does nothing. */
void answer_release(struct answers *answers, struct answer_share *share);

/* ---- auth.c --------------------------------------------------------------------------------- */

/* Collects the keys of --api-key and --api-key-file into app->keys, those of --metrics-key and
 * --admin-key into lists of their own. */
enum status auth_load(struct app *app, struct err *err);

/* Does the request carry one of `keys`, a list of the app's, or an admin key, or is the list empty?
 * Takes the same time for every wrong key of one length. */
bool auth_accepts(const struct app *app, const struct buf *keys, const struct http_request *http);

/* A hash of the client's key or, if the server has no keys, of its address: clients share workers
 * by it. */
uint64_t auth_client(const struct app *app, const struct http_request *http);

/* Does it carry an admin key? */
bool auth_is_admin(const struct app *app, const struct http_request *http);

/* The salt of the request's key in the prefix cache; zero without a key, if the server has only
 * one, and with --share-prefixes. */
void auth_cache_salt(const struct app *app, const struct http_request *http, uint64_t salt[2]);

/* ---- proxies.c: the client behind a proxy --------------------------------------------------- */

/* Reads --trusted-proxies into app->proxies. */
enum status proxies_load(struct app *app, struct err *err);

/* If the peer is a trusted proxy, http->client becomes the client that it speaks for. */
void proxies_name_client(const struct app *app, struct http_request *http);

/* ---- cors.c: pages of other origins --------------------------------------------------------- */

/* The fields that every answer to this request has; at most 3. Returns how many. */
int cors_fields(const struct app *app, const struct http_request *http, struct http_field *out);

/* Answers OPTIONS, which may be a browser's preflight, with the methods of the path. */
void cors_answer_options(const struct app *app, struct http_request *http, const char *methods);

/* ---- health.c: what the process says of itself ---------------------------------------------- */

void health_live(struct app *app, struct http_request *http);
void health_ready(struct app *app, struct http_request *http);
void health_load(struct app *app, struct http_request *http);
void health_metrics(struct app *app, struct http_request *http);
void health_version(struct app *app, struct http_request *http);

/* The version as one line of text, and as the JSON of /version; `backend` may be NULL. */
void version_write(struct buf *out);
void version_write_json(struct buf *out, const char *backend);

/* ---- endpoints/tokenize.c: /tokenize, /detokenize, /tokenizer_info -------------------------- */

void tokenize_start(struct app *app, struct http_request *http);
void detokenize_start(struct app *app, struct http_request *http);
void tokenizer_info_start(struct app *app, struct http_request *http);

/* ---- endpoints/render.c: the token ids that a generation would compute ---------------------- */

void render_start(struct app *app, struct http_request *http, const struct api *api);

/* ---- generation/reply.c: requests that generate --------------------------------------------- */

/* Takes a whole request: parses and tokenises on a worker, submits, and answers as tokens come. */
void reply_start(struct app *app, struct http_request *http, const struct api *api);

/* ---- async.c: requests that need a worker --------------------------------------------------- */

struct async_request;

/* What a request does after a worker has run it. */
enum async_next {
    ASYNC_ANSWER,  /* `done` answers it */
    ASYNC_COMPILE, /* it runs again, in the lane of grammars */
    ASYNC_WAIT,    /* it runs again after async_resume; no worker waits with it */
};

/* What such a request does. */
struct async_kind {
    enum lane lane; /* in which it runs first */
    /* On a worker: the long and pure part. */
    enum async_next (*run)(struct async_request *request);
    /* Then: answers, unless `gone` is set. request->err is why the request has ended before its
     * last run, if it has. */
    void (*done)(struct async_request *request);
    /* After that, if it still goes on: ends it early, with an error for the client or, if that is
     * NULL, because the client has gone. NULL: `done` has ended it. */
    void (*stop)(struct async_request *request, const struct err *err);
    /* Before `done`, of a request that is cancelled: afterwards nothing resumes it. NULL: it never
     * waits. */
    void (*leave)(struct async_request *request);
    /* On a worker, if `run` lacked memory: frees what it has made, and notes err_out_of_memory;
     * `done` follows. */
    void (*undo)(struct async_request *request);
    /* Fields for the access log, at most 8; returns how many. May be NULL. */
    int (*log_fields)(const struct async_request *request, struct log_field *fields);
    void (*free)(struct async_request *request);
};

/* The head of such a request; http_request.app points to it. Loop thread, except for `run` and
 * async_resume. */
struct async_request {
    const struct async_kind *kind;
    struct app *app;
    struct http_request *http; /* NULL once released */
    struct list_node node;     /* in app->requests */
    struct lane_work work;
    enum async_next next; /* after its last run */
    struct err err;       /* why it has ended before its last run; STATUS_OK: it has not */
    uint64_t owner;       /* a hash of the client: clients share a lane */
    int references;
    bool running;          /* it is in a lane: only `gone` and `cancelled` may be changed */
    bool gone;             /* the client is */
    atomic_bool cancelled; /* its result is not needed: `run` ends at its next check. Any thread */
};

/* Opens and closes what a server has for such requests. */
void async_init(struct app *app);
void async_close(struct app *app);

/* Queues a whole request for a worker, or ends it with STATUS_OVERLOADED if its lane is full. It is
 * zeroed, and freed by its kind. */
void async_start(struct async_request *request, const struct async_kind *kind, struct app *app,
                 struct http_request *http);

/* A request that waits runs again. Any thread. */
void async_resume(struct async_request *request);

/* Another reference, and one less; the last one frees the request. */
void async_ref(struct async_request *request);
void async_unref(struct async_request *request);

/* Releases the HTTP request, unless it was released: it was answered, or its client is gone. */
void async_release_http(struct async_request *request);

/* For `done`: answers with a JSON body, which it takes over, or with the error that has ended the
 * request, which is `err` unless it ended early; then releases the HTTP request. */
void async_respond(struct async_request *request, struct buf *body, const struct err *err);

/* The client has gone. */
void async_gone(struct async_request *request);

/* What the kind has to say in the access log. */
int async_log_fields(const struct async_request *request, struct log_field *fields);

/* Ends every request with an error; app->aborted is set. */
void async_abort_all(struct app *app, const struct err *err);

/* ---- event_bridge.c: events from the engine thread to the loop ------------------------------ */

/* `notify` is called on the engine thread when something has arrived; NULL: the loop is woken, and
 * passes each event to its job. */
void bridge_init(struct app *app, void (*notify)(struct app *app));
void bridge_close(struct app *app);

/* The scheduler's on_events. Engine thread. */
void bridge_on_events(void *app, const struct event *events, int n);

/* The scheduler's on_failure. Engine thread. The loop learns of it before the events that
 * follow. */
void bridge_on_failure(void *app, const struct err *err);

/* Moves the events that have arrived to app->received, and copies the failure that has. The caller
 * holds app->mutex. */
void bridge_receive(struct app *app, struct err *failure);

/* ---- lifecycle.c: signals and shutdown ------------------------------------------------------ */

/* First SIGTERM: readiness and new generations are refused; after --drain-delay the port is closed,
 * and running requests finish within --drain-timeout. First SIGINT or SIGHUP: the same without
 * delay. Second one of them: running requests are aborted. */
void lifecycle_init(struct app *app);
void lifecycle_close(struct app *app); /* closes its handles after the loop has stopped */

/* Begins what a first SIGTERM begins (`delayed`) or a first SIGINT. Without delay it also ends a
 * delay that has begun. */
void lifecycle_drain(struct app *app, bool delayed);

/* The device has failed, as app->failure says: all requests end, then the process. */
void lifecycle_fail(struct app *app);

/* A request has ended: stops the loop if it was the last one that a drain waited for. */
void lifecycle_request_ended(struct app *app);

#endif
