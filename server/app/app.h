/* server/app: the state of a serving process, and the services that all its requests use: workers,
 * events, answers, keys, shutdown. Internal to server/.
 *
 * A `struct app` is one serving process: model, scheduler, loop, metrics. A `struct async_request`
 * is one HTTP request that a worker prepares, from its complete body to the last byte of its
 * response. Both belong to the loop thread unless a comment says otherwise.
 *
 * Arrows point down: commands -> endpoints -> generation -> app. server/commands opens the parts
 * and connects them; this folder calls the folders above it only by function pointers.
 */
#ifndef PENSTOCK_SERVER_APP_H
#define PENSTOCK_SERVER_APP_H

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "config/list.h"
#include "config/pace.h"
#include "scheduler/store/prefix_store.h"
#include "server/app/lanes.h"
#include "server/app/metrics.h"
#include "server/app/supervisor.h"
#include "server/cassette/cassette.h"
#include "server/http/http.h"
#include "server/keys/keys.h"
#include "server/kv_events/kv_events.h"
#include "server/openai/openai.h"
#include "server/options/options.h"
#include "server/receipts/receipts.h"
#include "server/traces/traces.h"

struct app;
struct adapters; /* adapters.h */
struct grammar_store;
struct live;     /* endpoints/live.c */
struct promises; /* promised/promised.h */
struct reload;   /* commands/reload.c */

/* ---- routes --------------------------------------------------------------------------------- */

#define ROUTE_PATH 48

/* One path. Each API has two routes, which routes_open (endpoints/routes.c) makes. The `route` of
 * an http_request points to its route. */
struct route {
    char path[ROUTE_PATH]; /* a path that ends in '/' includes all paths below it, except / */
    const char *method;    /* GET includes HEAD; routes of a path may differ in it */
    /* For /openapi.json. The type of a whole answer; NULL: JSON. The members of all its JSON
     * answers, separated by spaces; NULL: they vary. */
    const char *methods; /* for Allow, of routes that share a path; NULL: no other has it */
    const char *summary, *type, *answer_members;
    const struct field_table *fields; /* of the body, if `api` is NULL */
    const char *example;              /* of the body, if `api` is NULL, without "model" */
    bool public;                      /* does not need a key: for probes */
    bool monitored;                   /* for monitors: needs one of --metrics-key, if set */
    bool admin;                       /* needs an admin key */
    bool reads_body;                  /* false: the body is discarded as it arrives */
    bool generates;                   /* refused while the queue is full */
    const struct api *api;            /* the API of its requests and errors, or NULL */
    void (*start)(struct app *app, struct http_request *http, const struct api *api);
    void (*answer)(struct app *app, struct http_request *http); /* used if `api` is NULL */
};

/* ---- process -------------------------------------------------------------------------------- */

/* Events on their way from the engine thread, which appends them, to the loop, which swaps the
 * vector for an empty one. */
struct event_vector {
    struct event *events;
    int n, capacity;
};

/* The bytes of answers, from the first estimate to the last sent byte (answers.c). */
struct answers {
    _Atomic size_t bytes;
    size_t max_bytes; /* limit on the sum; 0: none, as in a batch */
};

/* The counted bytes of one answer; initially zero. */
struct answer_share {
    size_t bytes;
};

#define APP_SIGNALS 3
#define APP_IGNORED 2

struct app {
    const struct options *options;
    char names[1024];       /* accepted names, each NUL-terminated; ended by an empty one */
    const char *model_name; /* the first name, or one set by a command */
    int64_t started_s;      /* seconds since 1970 */
    struct engine *engine;
    struct engine *draft_engine; /* the draft model's, or NULL */
    struct scheduler *scheduler;
    struct kv_events *kv_events;       /* of --kv-events, or NULL */
    struct prefix_store *prefix_store; /* of --prefix-store, or NULL */
    struct traces *traces;             /* of --otlp-traces-endpoint, or NULL */
    struct http_server *http;
    struct route *routes; /* [n_routes] all paths */
    int n_routes;
    struct buf openapi; /* the answer of /openapi.json */
    struct api_limits limits;
    struct tool_format *derived_format; /* the limits' format of calls, or NULL */
    struct fingerprint fingerprint;     /* of the base model's answers, without its hash */
    char system_fingerprint[FINGERPRINT_SYSTEM_BYTES]; /* of all answers */
    struct model_hash *model_hash;                     /* any worker may use it */
    struct recorder *recorder;       /* of --record; NULL: answers are not recorded */
    struct cassette *cassette;       /* of --replay, or NULL; any worker may search it */
    struct receipt_key *receipt_key; /* signs receipts; NULL: they are not signed */
    struct adapters *adapters;       /* NULL: the server has none */
    struct grammar_store *grammars;  /* shared by all requests; any worker may use it */
    struct answers answers;
    struct metrics metrics;
    struct live *live;          /* who watches the batch */
    struct promises *promises;  /* of --state-dir; NULL: nothing is kept */
    struct keys keys;           /* accepted API keys; empty: none is required */
    struct keys metrics_keys;   /* of --metrics-key; empty: none is required */
    struct keys admin_keys;     /* of --admin-key; empty: their paths are refused */
    pthread_mutex_t keys_mutex; /* the loop replaces the lists with it, other threads read them */
    struct key_lists *retired;  /* lists that were replaced, for requests that run */
    int n_shares;               /* of the scheduler; 0 without keys */
    uint64_t key_seed[2];       /* random; for the keys' salts in the prefix cache */
    struct buf proxies;         /* ranges of addresses of --trusted-proxies */
    /* number of seeds drawn for prompts without one; any thread may add */
    _Atomic uint64_t n_seeds;
    struct list requests; /* all running requests: struct async_request */
    struct pace pace;     /* of requests that end */
    uint64_t start_ns;    /* time that the start took */
    int n_preparing;      /* generating requests that are in a lane */
    bool signalled;       /* a first signal arrived */
    bool draining;        /* new generations are refused */
    bool port_closed;     /* after --drain-delay */
    bool aborted;         /* after --drain-timeout, or at a second signal */
    bool http_closed;     /* drained; all connections are closed */
    bool trusts_unix;     /* peers of Unix sockets are among --trusted-proxies */
    struct err failure;   /* of the device; STATUS_OK: it runs */

    uv_loop_t loop;
    struct reload *reload; /* commands/reload.c; or NULL */
    /* called for SIGHUP, if the server has no controlling terminal; NULL: it drains */
    void (*on_hangup)(struct app *app);
    bool has_terminal;
    uv_signal_t signals[APP_SIGNALS]; /* SIGTERM, SIGINT, SIGHUP */
    uv_signal_t ignored[APP_IGNORED]; /* SIGUSR1, SIGUSR2 */
    uv_timer_t drain_timer;
    /* supervisor.c: */
    int sockets[HTTP_MAX_SOCKETS]; /* [n_sockets] listening sockets that a service manager passed */
    int n_sockets;
    uint64_t watchdog_us; /* the manager ends a process that is silent for this time; 0: never */
    uint64_t active_ms;   /* uv_now of the last request */
    uv_timer_t watchdog_timer, idle_timer;
    /* async.c: */
    struct lanes *lanes;   /* the workers */
    uv_timer_t trim_timer; /* until free memory is returned to the system */
    uv_work_t trim_work;
    int trims_due; /* remaining number of times to return it */
    bool trimming; /* a worker is returning it */
    /* event_bridge.c: */
    uv_async_t wake;
    uint64_t n_wakes;                            /* turns of the loop that received events */
    void (*on_event)(const struct event *event); /* on the loop, for each event */
    void (*notify)(struct app *app); /* called on the engine thread after something arrived */
    pthread_mutex_t mutex;           /* guards arrived and arrived_failure */
    pthread_cond_t received_some;    /* bridge_receive has freed space */
    struct event_vector arrived;
    struct err arrived_failure;
    struct event_vector received; /* the loop's vector */
};

/* ---- app.c: names and limits ---------------------------------------------------------------- */

/* Sets the model's names: those of --served-model-name, or the file's name. */
void app_set_name(struct app *app);

/* Sets the limits on requests, from the options, the name and the opened engine. */
void app_set_limits(struct app *app);

/* Sets the fingerprints from the opened engine, and prepares the hash of the model's files. It is
 * begun at once if receipts are certain to be asked for, otherwise with the first receipt. */
void app_set_identity(struct app *app);

/* Are --tool-call-parser and --reasoning-parser "auto", "none" or known names? Fails with
 * STATUS_USAGE. */
enum status app_check_parsers(const struct options *options, struct err *err);

/* ---- receipts.c: how answers were made ----------------------------------------------------- */

/* Frees the model's hash and the key. */
void app_clear_identity(struct app *app);

/* Reads the key of --receipt-key, if there is one. Fails with STATUS_BAD_FILE. */
enum status app_read_receipt_key(struct app *app, struct err *err);

/* Opens the cassettes of --record and --replay, and closes them. Fails with STATUS_BAD_FILE. */
enum status app_open_cassettes(struct app *app, struct err *err);
void app_close_cassettes(struct app *app);

/* Copies the fingerprint with the model's hash, for which it waits. Fails like model_hash_get, and
 * if the bytes of answers depend on the batch (--no-deterministic). */
enum status app_fingerprint(const struct app *app, struct fingerprint *out, struct err *err);

/* ---- tool_probe.c: is a form of calls the template's form? ---------------------------------- */

/* A chat template and the formats that its markers suggest. */
struct tool_probe {
    const struct chat_template *chat;
    const struct tool_format *tools;
    const struct reasoning_format *reasoning; /* or NULL */
    const char *bos_token, *eos_token;        /* as in struct chat_input */
};

/* Does the template write a call that the format's parser does not read back? False if the template
 * does not show calls or refuses all histories of the probe. */
bool tool_probe_disagrees(const struct tool_probe *probe);

/* Derives the form of calls from the calls that the template writes. Returns NULL if the template
 * does not show tools or calls, or writes them in no form that can be derived. The caller frees it
 * (tool_format_free). */
struct tool_format *tool_probe_derive(const struct tool_probe *probe);

/* ---- reasoning_probe.c: reasoning and system messages of a template ------------------------- */

#define REASONING_SPACE 16 /* bytes, including NUL */

/* Writes the white space that the template writes between the end marker of reasoning and the
 * content; "" if the probe does not find it. The probe must have `chat` and `reasoning`. */
void reasoning_probe_space(const struct tool_probe *probe, char out[REASONING_SPACE]);

/* Returns false if the template refuses a system message, or leaves it out. NULL: true. */
bool system_probe_shows(const struct chat_template *chat);

/* ---- respond.c: answers --------------------------------------------------------------------- */

/* Returns the value of Retry-After for an error, in seconds; 0: trying again does not help. It is
 * the time that the error states, or a measured one: until a request ends, which frees its memory;
 * of a server that ends, until its requests have ended and a next one has started. */
int respond_retry_s(const struct app *app, const struct err *err);

/* Answers with an error body, and with Retry-After or Allow if the status requires them. */
void respond_error(const struct app *app, struct http_request *http, const struct err *err,
                   const char *allow);

/* Answers 200 with a JSON body. Takes ownership of its memory and leaves `body` empty. */
void respond_json(struct http_request *http, struct buf *body);

/* Answers with a recorded answer, a stream in its recorded pieces. Not inside the callbacks of
 * http.h: it flushes. */
void respond_recorded(struct http_server *server, struct http_request *http,
                      const struct recorded *recorded);

/* Writes the body of an error in the form of an API. Returns its length; 0 if it is longer than
 * `size` or memory is short. */
size_t respond_error_body(const struct api *api, const struct http_request *http,
                          const struct err *err, char *out, size_t size);

/* Sends an error of lacking memory without allocating any. */
void respond_out_of_memory(const struct app *app, struct http_request *http);

/* ---- answers.c: memory of unread answers ---------------------------------------------------- */

#define ANSWER_SMALL_BYTES ((size_t)64 << 10) /* answers up to this size are not counted */
#define ANSWER_MAX_BYTES ((size_t)32 << 20)   /* limit of one answer */
#define ANSWERS_MAX_BYTES ((size_t)256 << 20) /* limit of all answers of a server */

/* Raises an answer's share to `bytes`. Fails with STATUS_INVALID_REQUEST and `param` if that
 * exceeds the limit of one answer, and with STATUS_UNAVAILABLE and the code too_many_answers if it
 * exceeds the limit of all; the share is then unchanged. Any thread may call it. */
enum status answer_reserve(struct answers *answers, struct answer_share *share, size_t bytes,
                           const char *param, struct err *err);

/* Sets the share of a written answer to its size. Any thread may call it. */
void answer_settle(struct answers *answers, struct answer_share *share, size_t bytes);

/* Sets the share to 0 after the answer was sent, or if it is not needed. Any thread may call it,
 * also repeatedly. */
void answer_release(struct answers *answers, struct answer_share *share);

/* ---- auth.c --------------------------------------------------------------------------------- */

/* Reads the keys of --api-key and --api-key-file into app->keys, and those of --metrics-key and
 * --admin-key into separate lists. */
enum status auth_load(struct app *app, struct err *err);

/* Reads the same lists, for auth_replace, into zeroed lists, which the caller frees. Any thread. */
enum status auth_read(const struct options *options, struct key_lists *out, struct err *err);

/* Exchanges the app's lists and those of `lists`, which the app frees after the last request that
 * uses them. A key that stays keeps its use and its share. Allocates nothing. Loop thread. */
void auth_replace(struct app *app, struct key_lists *lists);

/* Frees the lists that were replaced. No request may run. */
void auth_free_retired(struct app *app);

/* Is `keys`, a list of the app, empty, or does the request have one of them or an admin key? Takes
 * equal time for all wrong keys of equal length. */
bool auth_accepts(const struct app *app, const struct keys *keys, const struct http_request *http);

/* Returns the entry of the request's key, or NULL if the server has no keys. */
struct api_key *auth_key(const struct app *app, const struct http_request *http);

/* Returns the entry of a digest, KEY_DIGEST_BYTES, or NULL. Any thread. */
struct api_key *auth_key_of(struct app *app, const void *digest);

/* Does the server have API keys? Any thread. */
bool auth_has_keys(struct app *app);

/* Gives the keys their shares, and writes the weights. Returns their number; 0 without keys. */
int auth_share_weights(struct app *app, int weights[MAX_SHARES]);

/* Returns a hash of the client's key or, if the server has no keys, of its address. Workers are
 * shared fairly among these. */
uint64_t auth_client(const struct app *app, const struct http_request *http);

/* Does the request have an admin key? */
bool auth_is_admin(const struct app *app, const struct http_request *http);

/* Sets the salt of the request's key in the prefix cache. It is zero without a key, if the server
 * has only one, and with --share-prefixes. */
void auth_cache_salt(struct app *app, const struct http_request *http, uint64_t salt[2]);

/* The same for a key; NULL: none. */
void auth_key_salt(struct app *app, const struct api_key *key, uint64_t salt[2]);
/* Returns a number for the key (struct generation): a hash under a random seed; 0 for NULL. */
uint64_t auth_key_client(const struct app *app, const struct api_key *key);

/* ---- async.c: requests that need a worker --------------------------------------------------- */

struct async_request;

/* The next action of a request after a run on a worker. */
enum async_next {
    ASYNC_ANSWER,  /* `done` answers it */
    ASYNC_COMPILE, /* runs again, in the lane of grammars */
    ASYNC_WAIT,    /* runs again after async_resume, without occupying a worker */
};

/* The functions of such a request. */
struct async_kind {
    enum lane lane; /* of its first run */
    /* On a worker: does the long work, without side effects. */
    enum async_next (*run)(struct async_request *request);
    /* On the loop, after the last run: answers, unless `gone` is set. request->err is set if the
     * request ended before its last run. */
    void (*done)(struct async_request *request);
    /* After `done`, while the request is not finished: ends it early, with an error for the client,
     * or with NULL because the client has left. NULL: `done` finishes the request. */
    void (*stop)(struct async_request *request, const struct err *err);
    /* Before `done`, if the request is cancelled: ensures that it is not resumed afterwards. NULL:
     * the request never waits. */
    void (*leave)(struct async_request *request);
    /* On a worker, if `run` lacked memory: frees its results and sets err_out_of_memory; `done`
     * follows. */
    void (*undo)(struct async_request *request);
    /* Writes at most 8 fields for the access log and returns their number. May be NULL. */
    int (*log_fields)(const struct async_request *request, struct log_field *fields);
    /* Before `free`, if the request has a span: describes the generation. May be NULL. */
    void (*trace)(const struct async_request *request, struct trace_span *span);
    void (*free)(struct async_request *request);
};

/* The first member of such a request; http_request.app points to it. For the loop thread, except
 * for `run` and async_resume. */
struct async_request {
    const struct async_kind *kind;
    struct app *app;
    struct http_request *http; /* NULL after release */
    struct list_node node;     /* in app->requests */
    struct lane_work work;
    struct trace_span *span; /* of the HTTP request, after its last byte; or NULL */
    enum async_next next;    /* result of its last run */
    struct err err;          /* the error that ended it before its last run; STATUS_OK: none */
    uint64_t owner;          /* hash of the client, for fair sharing of lanes */
    int references;
    bool is_alone; /* it has no HTTP request, or had one: `stop` ends it all the same */
    bool running;  /* in a lane: only `gone` and `cancelled` may be changed */
    bool gone;     /* the client has left */
    /* the result is not needed: `run` ends at its next check; any thread may read it */
    atomic_bool cancelled;
};

/* Open and close the server's data for such requests. */
void async_init(struct app *app);
void async_close(struct app *app);

/* Queues a complete request for a worker, or ends it with STATUS_OVERLOADED if its lane is full.
 * The request must be zeroed; its kind frees it. */
void async_start(struct async_request *request, const struct async_kind *kind, struct app *app,
                 struct http_request *http);

/* The same without an HTTP request, for a client with this hash. */
void async_start_alone(struct async_request *request, const struct async_kind *kind,
                       struct app *app, uint64_t owner);

/* Makes a request that needs no worker: `stop` ends it. */
void async_attach(struct async_request *request, const struct async_kind *kind, struct app *app,
                  struct http_request *http);

/* Takes the HTTP request from a request, which then is alone. Only in or after `done`. */
struct http_request *async_detach(struct async_request *request);

/* Runs a waiting request again. Any thread may call it. */
void async_resume(struct async_request *request);

/* Add and drop a reference. Dropping the last one frees the request. */
void async_ref(struct async_request *request);
void async_unref(struct async_request *request);

/* Releases the HTTP request unless it was released. It must be answered, or its client gone. */
void async_release_http(struct async_request *request);

/* For `done`: answers with a JSON body, taking ownership of it, or with the error that ended the
 * request: its own if it ended early, else `err`. Then releases the HTTP request. */
void async_respond(struct async_request *request, struct buf *body, const struct http_field *header,
                   const struct err *err);

/* A request whose answer is one body, which counts toward app->answers. The first member of the
 * requests of the endpoints that answer so. */
struct body_request {
    struct async_request async; /* must be first: http_request.app points here */
    struct answer_share share;
    struct buf body;          /* of the answer; unused if err is set */
    struct http_field header; /* of the answer, unless its name is NULL; of the owner */
    struct err *err;          /* the error, if any; of the owner */
};

/* For `done`, `undo` and `free` of a body_request. */
void body_request_respond(struct async_request *async);
void body_request_undo(struct async_request *async);
void body_request_free(struct async_request *async);

/* Called when the client has left. */
void async_gone(struct async_request *request);

/* Writes the kind's fields for the access log. Returns their number. */
int async_log_fields(const struct async_request *request, struct log_field *fields);

/* Ends every request with an error. app->aborted must be set. */
void async_abort_all(struct app *app, const struct err *err);

/* ---- tracing.c: spans of requests ------------------------------------------------------------ */

/* Begins the span of a request from its headers, if it is sampled. For a scope of memory. */
void tracing_begin(struct app *app, struct http_request *http);

/* Returns the request's span, or NULL; notes the error that answers the request. */
struct trace_span *tracing_span(const struct http_request *http);
void tracing_error(const struct http_request *http, const struct err *err);

/* Called when HTTP has ended. The span ends now, or with the request that holds memory for it.
 * `method` and `route` live as long as the server; route NULL: an unknown path. */
void tracing_done(struct app *app, struct http_request *http, const char *method, const char *route,
                  int status);

/* Ends the span of a request that is freed, if it has one. */
void tracing_end(struct async_request *request);

/* Returns the name of the operation of an API, as the semantic conventions have it. Static. */
const char *tracing_operation(const struct api *api);

/* ---- event_bridge.c: events from the engine thread to the loop ------------------------------ */

/* Initialises the bridge: the loop is woken after something arrived, and calls `on_event` for each
 * event. Or, if `notify` is set instead, it is called on the engine thread after something arrived,
 * and the caller receives the events. */
void bridge_init(struct app *app, void (*on_event)(const struct event *event),
                 void (*notify)(struct app *app));
void bridge_close(struct app *app);

/* The scheduler's on_events, on the engine thread. */
void bridge_on_events(void *app, const struct event *events, int n);

/* The scheduler's on_failure, on the engine thread. The loop receives the failure before the events
 * that follow it. */
void bridge_on_failure(void *app, const struct err *err);

/* Moves the arrived events to app->received, and copies the arrived failure. The caller must hold
 * app->mutex. */
void bridge_receive(struct app *app, struct err *failure);

/* ---- lifecycle.c: signals and shutdown ------------------------------------------------------ */

/* First SIGTERM: readiness and new generations are refused; after --drain-delay the port is closed,
 * and running requests finish within --drain-timeout. First SIGINT or SIGHUP: the same without the
 * delay, but SIGHUP without a controlling terminal calls on_hangup. A second signal: running
 * requests are aborted. */
void lifecycle_init(struct app *app);
void lifecycle_close(struct app *app); /* after the loop has stopped */

/* Begins the shutdown of a first SIGTERM (`delayed`) or of a first SIGINT, which also ends a delay
 * that has begun. */
void lifecycle_drain(struct app *app, bool delayed);

/* Ends all requests, then the process, because the device has failed (app->failure). */
void lifecycle_fail(struct app *app);

/* Called after a request has ended. Stops the loop if it was the last one of a drain. */
void lifecycle_request_ended(struct app *app);

#endif
