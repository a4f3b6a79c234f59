/* DESIGN: the thread that publishes events of blocks.
 *
 * The engine thread wakes it by an eventfd at the end of a step with events. It sleeps in zmq_poll,
 * so an idle server uses no CPU. libzmq has an I/O thread of its own.
 *
 *     engine thread --ring--> publisher --PUB--> subscribers      a slow one loses messages, and
 *                                |               sees it by their numbers
 *                                +--kept batches <--ROUTER-- requests for a replay
 *
 * The publishing socket is of the type XPUB: the same protocol as PUB, but it reports new
 * subscribers. After one, the ring begins again, at most once in RESTART_MS: AllBlocksCleared and
 * all known blocks are published. So a subscriber that joins late, or returns after the server or
 * the network was gone, has no block that the server lost. Subscribers that have all blocks already
 * lose nothing by it.
 *
 * Nothing that a subscriber does makes a thread of ours wait: sends do not block, and queues of
 * messages have a limit.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "server/json/json.h"
#include "server/kv_events/internal.h"
#include "server/kv_events/library.h"

#define RESTART_MS 1000
#define LINGER_MS 200        /* for the last messages to leave at the end */
#define QUEUED_MESSAGES 1000 /* of one subscriber */
#define MAX_RECEIVED 1024    /* bytes of a subscription or a request */
#define MAX_ENDPOINT 256
#define SEQUENCE_BYTES 8

struct kv_events {
    struct event_ring *ring;
    struct event_batch batch;
    struct kept_batches replay;
    void *context, *publishing, *replaying; /* of libzmq; replaying may be NULL */
    char endpoint[MAX_ENDPOINT], replay_endpoint[MAX_ENDPOINT]; /* as bound; "": none */
    char *topic;
    int event_fd;
    uint64_t sequence;     /* of the next batch */
    bool wants_restart;    /* a subscriber is new */
    bool restarting;       /* the next BLOCKS_CLEARED was asked for */
    uint64_t restarted_ns; /* of the last one; 0: never */
    void (*wake_engine)(void *arg);
    void *arg;
    pthread_t thread;
    bool started;
    _Atomic bool stopping;
};

/* ---- opening -------------------------------------------------------------------------------- */

static bool set_int(void *socket, int option, int value) {
    return zmq_library.p_zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static enum status zmq_failed(struct err *err, const char *flag, const char *endpoint) {
    return err_set(err, STATUS_SYSTEM, NULL,
                   "%s %s cannot be bound: %s; give an address of this machine and a free port, "
                   "such as tcp://127.0.0.1:5557",
                   flag, endpoint, zmq_library.p_zmq_strerror(zmq_library.p_zmq_errno()));
}

/* Is it tcp://HOST:PORT with a port up to 65535 or *? libzmq checks the host. */
static bool is_endpoint(const char *endpoint) {
    const char *port = strrchr(endpoint, ':');
    if (strncmp(endpoint, "tcp://", 6) != 0 || port <= endpoint + 6) return false;
    if (strcmp(port, ":*") == 0) return true;
    size_t digits = strspn(port + 1, "0123456789");
    return digits > 0 && digits <= 5 && !port[1 + digits] && atoi(port + 1) <= 65535;
}

/* Makes a socket of a type and binds it. Writes the endpoint as bound to bound[MAX_ENDPOINT]. */
static enum status bind_socket(struct kv_events *events, void **socket, int type, const char *flag,
                               const char *endpoint, char *bound, struct err *err) {
    size_t size = MAX_ENDPOINT;
    int64_t max_received = MAX_RECEIVED;
    if (!is_endpoint(endpoint))
        return err_set(
            err, STATUS_USAGE, NULL,
            "%s must be tcp://HOST:PORT with a port up to 65535, or * for any; got %.200s", flag,
            endpoint);
    *socket = zmq_library.p_zmq_socket(events->context, type);
    if (!*socket) return zmq_failed(err, flag, endpoint);
    bool is_set = set_int(*socket, ZMQ_LINGER, LINGER_MS) &&
                  set_int(*socket, ZMQ_IPV6, strchr(endpoint, '[') != NULL) &&
                  set_int(*socket, ZMQ_TCP_KEEPALIVE, 1);
    is_set = is_set && zmq_library.p_zmq_setsockopt(*socket, ZMQ_MAXMSGSIZE, &max_received,
                                                    sizeof max_received) == 0;
    is_set = is_set &&
             set_int(*socket, ZMQ_SNDHWM, type == ZMQ_XPUB ? QUEUED_MESSAGES : 2 * KEPT_BATCHES);
    if (type == ZMQ_XPUB) is_set = is_set && set_int(*socket, ZMQ_XPUB_VERBOSE, 1);
    if (!is_set || zmq_library.p_zmq_bind(*socket, endpoint) != 0)
        return zmq_failed(err, flag, endpoint);
    if (zmq_library.p_zmq_getsockopt(*socket, ZMQ_LAST_ENDPOINT, bound, &size) != 0)
        return zmq_failed(err, flag, endpoint);
    return STATUS_OK;
}

static enum status open_sockets(struct kv_events *events, const struct kv_events_config *config,
                                struct err *err) {
    events->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    events->context = zmq_library.p_zmq_ctx_new();
    if (events->event_fd < 0 || !events->context)
        return err_set(err, STATUS_SYSTEM, NULL, "--kv-events cannot be served: %s",
                       strerror(errno));
    enum status status = bind_socket(events, &events->publishing, ZMQ_XPUB, "--kv-events",
                                     config->endpoint, events->endpoint, err);
    if (status || !config->replay_endpoint) return status;
    return bind_socket(events, &events->replaying, ZMQ_ROUTER, "--kv-events-replay",
                       config->replay_endpoint, events->replay_endpoint, err);
}

/* Called on the engine thread. A full counter wakes as well. */
static void wake_publisher(void *arg) {
    const struct kv_events *events = arg;
    uint64_t one = 1;
    ssize_t written = write(events->event_fd, &one, sizeof one);
    assert(written == sizeof one || errno == EAGAIN);
}

enum status kv_events_open(struct kv_events **out, const struct kv_events_config *config,
                           struct err *err) {
    enum status status = zmq_library_load(err);
    *out = NULL;
    if (status) return status;
    struct kv_events *events = mem_calloc(1, sizeof *events);
    events->event_fd = -1;
    events->topic = mem_strdup(config->topic ? config->topic : "");
    events->ring = event_ring_new(config->n_blocks, config->block_size);
    events->ring->wake = wake_publisher;
    events->ring->arg = events;
    event_batch_init(&events->batch, events->ring);
    if (config->replay_endpoint) replay_init(&events->replay);
    status = open_sockets(events, config, err);
    if (status)
        kv_events_close(events);
    else
        *out = events;
    return status;
}

struct event_ring *kv_events_ring(struct kv_events *events) {
    return events->ring;
}

size_t kv_events_bytes(const struct kv_events *events) {
    const struct event_ring *ring = events->ring;
    return event_ring_bytes(ring->n_blocks, ring->block_size) +
           (events->replaying ? KEPT_BYTES : 0);
}

void kv_events_close(struct kv_events *events) {
    if (!events) return;
    assert(!events->started);
    if (events->publishing) zmq_library.p_zmq_close(events->publishing);
    if (events->replaying) zmq_library.p_zmq_close(events->replaying);
    if (events->context) zmq_library.p_zmq_ctx_term(events->context);
    if (events->event_fd >= 0) close(events->event_fd);
    event_batch_free(&events->batch);
    replay_free(&events->replay);
    event_ring_free(events->ring);
    mem_free(events->topic);
    mem_free(events);
}

/* ---- publishing ----------------------------------------------------------------------------- */

static double seconds_since_1970(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void write_sequence(unsigned char out[SEQUENCE_BYTES], uint64_t sequence) {
    for (int i = 0; i < SEQUENCE_BYTES; i++)
        out[i] = (unsigned char)(sequence >> (8 * (SEQUENCE_BYTES - 1 - i)));
}

/* Sends one part of a message. The sockets drop messages for peers that do not read, so a part is
 * refused only if lack of memory or the end of the context prevents it. */
static void send_part(void *socket, const void *data, size_t length, bool more) {
    int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
    if (zmq_library.p_zmq_send(socket, data, length, flags) < 0)
        log_line(LOG_WARNING, "KV events: a message was not sent: %s",
                 zmq_library.p_zmq_strerror(zmq_library.p_zmq_errno()));
}

static void publish_batch(struct kv_events *events) {
    unsigned char number[SEQUENCE_BYTES];
    const struct event_batch *batch = &events->batch;
    write_sequence(number, events->sequence);
    send_part(events->publishing, events->topic, strlen(events->topic), true);
    send_part(events->publishing, number, sizeof number, true);
    send_part(events->publishing, batch->data, batch->length, false);
    if (events->replaying)
        replay_add(&events->replay, events->sequence, batch->data, batch->length);
    events->sequence++;
}

/* Logs that the ring was full, unless the restart was asked for. */
static void note_cleared(struct kv_events *events) {
    for (int i = 0; i < events->batch.n_runs; i++) {
        if (events->batch.run[i].change != BLOCKS_CLEARED) continue;
        if (!events->restarting)
            log_line(LOG_WARNING,
                     "KV events: the ring of %llu events was full; all blocks are published again",
                     (unsigned long long)events->ring->capacity);
        events->restarting = false;
    }
}

static void publish_ready(struct kv_events *events) {
    uint64_t n = event_ring_ready(events->ring);
    event_batch_order(&events->batch, n);
    for (uint64_t i = 0; i < n;) {
        i += event_batch_make(&events->batch, i, n, seconds_since_1970());
        note_cleared(events);
        publish_batch(events);
    }
    event_ring_consume(events->ring, n);
}

/* ---- subscribers ---------------------------------------------------------------------------- */

/* Receives one part of a message without waiting. Returns its bytes, or -1. At most MAX_RECEIVED
 * bytes are stored. Sets *more if another part follows. */
static int receive_part(void *socket, unsigned char *data, bool *more) {
    int follows = 0;
    size_t size = sizeof follows;
    int length = zmq_library.p_zmq_recv(socket, data, MAX_RECEIVED, ZMQ_DONTWAIT);
    if (length >= 0) zmq_library.p_zmq_getsockopt(socket, ZMQ_RCVMORE, &follows, &size);
    *more = follows != 0;
    return length;
}

/* A subscription is a message that starts with the byte 1; its end starts with 0. */
static void receive_subscriptions(struct kv_events *events) {
    unsigned char data[MAX_RECEIVED];
    bool more;
    for (;;) {
        int length = receive_part(events->publishing, data, &more);
        if (length < 0) return;
        if (length > 0 && data[0] == 1) events->wants_restart = true;
    }
}

static void answer_part(struct kv_events *events, const unsigned char *client, int n_client,
                        const unsigned char *number, const char *data, size_t length) {
    send_part(events->replaying, client, (size_t)n_client, true);
    send_part(events->replaying, "", 0, true);
    send_part(events->replaying, number, SEQUENCE_BYTES, true);
    send_part(events->replaying, data, length, false);
}

/* Sends the kept batches from `sequence` on, and the number -1. */
static void replay_from(struct kv_events *events, const unsigned char *client, int n_client,
                        uint64_t sequence) {
    const struct kept_batches *replay = &events->replay;
    unsigned char number[SEQUENCE_BYTES];
    for (int i = replay_find(replay, sequence); i < replay->n; i++) {
        const struct kept_batch *batch = replay_at(replay, i);
        write_sequence(number, batch->sequence);
        answer_part(events, client, n_client, number, replay->data + batch->offset, batch->length);
    }
    write_sequence(number, UINT64_MAX);
    answer_part(events, client, n_client, number, "", 0);
}

/* A request has three parts: the client, an empty one, and the first wanted number. Any other
 * request gets only the end. */
static void serve_replay(struct kv_events *events) {
    unsigned char client[MAX_RECEIVED], part[MAX_RECEIVED];
    bool more, is_valid = true;
    uint64_t sequence = 0;
    int n_client = receive_part(events->replaying, client, &more), n_parts = 1;
    if (n_client < 0) return;
    while (more) {
        int length = receive_part(events->replaying, part, &more);
        is_valid = is_valid && length == (n_parts == 1 ? 0 : SEQUENCE_BYTES);
        n_parts++;
        for (int i = 0; is_valid && i < length; i++) sequence = sequence << 8 | part[i];
    }
    is_valid = is_valid && n_parts == 3;
    if (!is_valid) log_line(LOG_DEBUG, "KV events: a request for a replay is not of its form");
    replay_from(events, client, n_client, is_valid ? sequence : UINT64_MAX);
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* Returns the milliseconds until a restart is due: 0 now, -1 if none is wanted. */
static long restart_due_ms(const struct kv_events *events) {
    if (!events->wants_restart) return -1;
    uint64_t passed_ms = (now_ns() - events->restarted_ns) / 1000000;
    return events->restarted_ns == 0 || passed_ms >= RESTART_MS ? 0 : RESTART_MS - (long)passed_ms;
}

static void restart_if_due(struct kv_events *events) {
    if (restart_due_ms(events) != 0) return;
    events->wants_restart = false;
    events->restarting = true;
    events->restarted_ns = now_ns();
    event_ring_restart(events->ring);
}

/* Sleeps until there is something to do. */
static void wait_for_work(struct kv_events *events) {
    zmq_pollitem_t items[] = {{.fd = events->event_fd, .events = ZMQ_POLLIN},
                              {.socket = events->publishing, .events = ZMQ_POLLIN},
                              {.socket = events->replaying, .events = ZMQ_POLLIN}};
    uint64_t count;
    zmq_library.p_zmq_poll(items, events->replaying ? 3 : 2, restart_due_ms(events));
    if (items[0].revents && read(events->event_fd, &count, sizeof count) < 0)
        assert(errno == EAGAIN);
    if (items[1].revents) receive_subscriptions(events);
    if (events->replaying && items[2].revents) serve_replay(events);
}

static void *publisher_thread(void *arg) {
    struct kv_events *events = arg;
    while (!atomic_load(&events->stopping)) {
        wait_for_work(events);
        restart_if_due(events);
        publish_ready(events);
        if (event_ring_waits(events->ring)) events->wake_engine(events->arg);
    }
    publish_ready(events);
    event_batch_make_cleared(&events->batch, seconds_since_1970());
    publish_batch(events);
    return NULL;
}

enum status kv_events_start(struct kv_events *events, void (*wake_engine)(void *arg), void *arg,
                            struct err *err) {
    assert(!events->started);
    events->wake_engine = wake_engine;
    events->arg = arg;
    int failed = pthread_create(&events->thread, NULL, publisher_thread, events);
    if (failed)
        return err_set(err, STATUS_SYSTEM, NULL, "The thread of --kv-events cannot be started: %s",
                       strerror(failed));
    events->started = true;
    return STATUS_OK;
}

void kv_events_stop(struct kv_events *events) {
    if (!events || !events->started) return;
    atomic_store(&events->stopping, true);
    wake_publisher(events);
    pthread_join(events->thread, NULL);
    events->started = false;
}

void kv_events_write_sources(const struct kv_events *events, struct buf *out) {
    buf_puts(out, "{");
    if (events) {
        buf_puts(out, "\"0\":{\"endpoint\":");
        json_write_string(out, events->endpoint, strlen(events->endpoint));
        buf_puts(out, ",\"replay_endpoint\":");
        if (events->replaying)
            json_write_string(out, events->replay_endpoint, strlen(events->replay_endpoint));
        else
            buf_puts(out, "null");
        buf_puts(out, ",\"topic\":");
        json_write_string(out, events->topic, strlen(events->topic));
        buf_puts(out, "}");
    }
    buf_puts(out, "}");
}
