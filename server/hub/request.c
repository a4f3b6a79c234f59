/* DESIGN: one GET, with its redirects.
 *
 * libcurl could follow redirects itself. They are followed here, so that the token's rule does not
 * depend on the version of a library: it goes to the scheme, host and port of the endpoint, and the
 * file servers that the hub redirects to get none. The hub's own headers (hash, commit) count only
 * from the endpoint. A silence of settings.timeout_ms ends a request.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/hub/internal.h"
#include "server/hub/library.h"

#define MAX_REDIRECTS 8
#define MAX_ERROR_BYTES 4096     /* kept of a failure's body */
#define MAX_READ_ERROR (1 << 20) /* read of it, so that the connection can be used again */
#define CONNECT_TIMEOUT_MS 10000
#define BUFFER_BYTES 131072L /* libcurl allocates it for the connection */

struct hub_connection {
    const struct hub_settings *settings;
    CURL *easy;    /* keeps connections open between requests */
    size_t origin; /* length of the endpoint's scheme, host and port */
};

/* One hop of a request. */
struct hop {
    struct hub_connection *connection;
    struct hub_answer *answer;
    const struct hub_sink *sink;
    int64_t from;
    bool trusted;     /* the endpoint's own answer */
    bool began;       /* the sink has got the first byte's position */
    int64_t start;    /* of Content-Range; -1: none */
    int64_t length;   /* of Content-Length; -1: none */
    uint64_t last_ns; /* when bytes arrived last */
    curl_off_t seen;
    bool silent;      /* ended by the timeout */
    struct buf error; /* the first bytes of a failure's body */
    size_t error_bytes;
};

/* Returns the length of "scheme://host:port" of a URL. */
static size_t origin_of(const char *url) {
    const char *host = strstr(url, "://");
    return host ? (size_t)(host - url) + 3 + strcspn(host + 3, "/?#") : strlen(url);
}

static bool is_endpoint(const struct hub_connection *connection, const char *url) {
    return origin_of(url) == connection->origin &&
           strncasecmp(url, connection->settings->endpoint, connection->origin) == 0;
}

/* May a redirect lead there? Not from https to http, and to no other scheme. */
static bool is_allowed(const struct hub_connection *connection, const char *url) {
    if (strncasecmp(url, "https://", 8) == 0) return true;
    return strncasecmp(url, "http://", 7) == 0 &&
           strncasecmp(connection->settings->endpoint, "https://", 8) != 0;
}

enum status hub_connect(struct hub_connection **connection, const struct hub_settings *settings,
                        struct err *err) {
    *connection = NULL;
    enum status status = hub_library_load(err);
    if (status) return status;
    struct hub_connection *made = mem_calloc(1, sizeof *made);
    made->settings = settings;
    made->origin = origin_of(settings->endpoint);
    made->easy = hub_library.p_curl_easy_init();
    if (!made->easy) mem_fail(1);
    *connection = made;
    return STATUS_OK;
}

void hub_disconnect(struct hub_connection *connection) {
    if (!connection) return;
    hub_library.p_curl_easy_cleanup(connection->easy);
    mem_free(connection);
}

/* ---- libcurl's callbacks -------------------------------------------------------------------- */

/* Copies a header's value without quotes, and without the W/ of a weak ETag. */
static void copy_value(char *out, size_t size, const char *value, size_t length) {
    if (length > 2 && strncmp(value, "W/", 2) == 0) value += 2, length -= 2;
    if (length > 1 && value[0] == '"' && value[length - 1] == '"') value++, length -= 2;
    snprintf(out, size, "%.*s", (int)length, value);
}

static bool is_header(const char *line, size_t length, const char *name) {
    size_t n = strlen(name);
    return length > n && line[n] == ':' && strncasecmp(line, name, n) == 0;
}

static void read_header(struct hop *hop, const char *line, size_t length) {
    struct hub_answer *answer = hop->answer;
    const char *colon = memchr(line, ':', length);
    if (!colon) return;
    char value[128];
    size_t skip = (size_t)(colon - line) + 1;
    while (skip < length && line[skip] == ' ') skip++;
    while (length > skip && strchr(" \r\n", line[length - 1])) length--;
    copy_value(value, sizeof value, line + skip, length - skip);
    if (is_header(line, length, "content-range")) {
        sscanf(value, "bytes %" SCNd64 "-%*d/%" SCNd64, &hop->start, &answer->total);
    } else if (is_header(line, length, "content-length")) {
        hop->length = strtoll(value, NULL, 10);
    } else if (is_header(line, length, "retry-after")) {
        double seconds = strtod(value, NULL);
        if (seconds >= 0 && seconds < 86400 * 365) answer->wait_ms = (int64_t)(seconds * 1000);
    } else if (hop->trusted && is_header(line, length, "x-linked-etag")) {
        snprintf(answer->hash, sizeof answer->hash, "%s", value);
    } else if (hop->trusted && is_header(line, length, "x-repo-commit")) {
        snprintf(answer->commit, sizeof answer->commit, "%.*s", (int)sizeof answer->commit - 1,
                 value);
    }
}

static size_t on_header(char *line, size_t size, size_t n, void *arg) {
    struct hop *hop = arg;
    if (size * n >= 5 && strncmp(line, "HTTP/", 5) == 0) hop->start = hop->length = -1;
    read_header(hop, line, size * n);
    return size * n;
}

/* Tells the sink where the first byte belongs. */
static bool begin_body(struct hop *hop, long code) {
    int64_t at = code == 206 ? hop->start : 0;
    hop->began = true;
    if (code != 206 && hop->length >= 0) hop->answer->total = hop->length;
    return (at == 0 || at == hop->from) && hop->sink->begins(hop->sink->arg, at);
}

static size_t on_body(char *data, size_t size, size_t n, void *arg) {
    struct hop *hop = arg;
    long code = 0;
    hub_library.p_curl_easy_getinfo(hop->connection->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code != 200 && code != 206) {
        if (hop->error.length < MAX_ERROR_BYTES) buf_add(&hop->error, data, size * n);
        hop->error_bytes += size * n;
        return hop->error_bytes <= MAX_READ_ERROR ? size * n : 0;
    }
    bool goes = hop->began || begin_body(hop, code);
    goes = goes && hop->sink->adds(hop->sink->arg, data, size * n);
    hop->answer->stopped = !goes;
    return goes ? size * n : 0;
}

static int on_progress(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up) {
    struct hop *hop = arg;
    (void)total, (void)up_total, (void)up;
    uint64_t time = now_ns();
    if (now != hop->seen) hop->seen = now, hop->last_ns = time;
    uint64_t limit = (uint64_t)hop->connection->settings->timeout_ms * 1000000;
    hop->silent = time - hop->last_ns > limit;
    return hop->silent;
}

/* ---- a hop ---------------------------------------------------------------------------------- */

static struct curl_slist *headers_of(const struct hop *hop) {
    struct curl_slist *headers = NULL;
    struct buf line = {0};
    if (hop->trusted && hop->connection->settings->token) {
        buf_printf(&line, "Authorization: Bearer %s", hop->connection->settings->token);
        headers = hub_library.p_curl_slist_append(headers, line.data);
        buf_clear(&line);
    }
    buf_puts(&line, "User-Agent: penstock");
    headers = hub_library.p_curl_slist_append(headers, line.data);
    buf_clear(&line);
    if (hop->from > 0) {
        buf_printf(&line, "Range: bytes=%" PRId64 "-", hop->from);
        headers = hub_library.p_curl_slist_append(headers, line.data);
    }
    buf_free(&line);
    return headers;
}

static CURLcode perform(struct hop *hop, const char *url, struct curl_slist *headers) {
    CURL *easy = hop->connection->easy;
    const char *authorities = getenv("SSL_CERT_FILE");
    long connect_ms = hop->connection->settings->timeout_ms;
    if (connect_ms > CONNECT_TIMEOUT_MS) connect_ms = CONNECT_TIMEOUT_MS;
    hub_library.p_curl_easy_setopt(easy, CURLOPT_URL, url);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, connect_ms);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_HEADERDATA, hop);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_WRITEDATA, hop);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    hub_library.p_curl_easy_setopt(easy, CURLOPT_XFERINFODATA, hop);
    if (authorities && *authorities)
        hub_library.p_curl_easy_setopt(easy, CURLOPT_CAINFO, authorities);
    hop->last_ns = now_ns();
    return hub_library.p_curl_easy_perform(easy);
}

/* ---- errors --------------------------------------------------------------------------------- */

/* Explains a failure below HTTP. All of these may pass, except a refused certificate. */
static enum status explain_network(const struct hop *hop, CURLcode code, const char *url,
                                   struct err *err) {
    int shown = (int)origin_of(url);
    hop->answer->again = code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_URL_MALFORMAT &&
                         code != CURLE_UNSUPPORTED_PROTOCOL && code != CURLE_SSL_CACERT_BADFILE;
    if (hop->silent)
        return err_set(err, STATUS_UNAVAILABLE, NULL, "%.*s was silent for %.1f s", shown, url,
                       hop->connection->settings->timeout_ms / 1000.0);
    return err_set(err, STATUS_UNAVAILABLE, NULL, "%.*s: %s", shown, url,
                   hub_library.p_curl_easy_strerror(code));
}

static enum status explain_refusal(const struct hop *hop, const char *what, struct err *err) {
    const struct hub_settings *settings = hop->connection->settings;
    if (hop->answer->code == 403)
        return err_set(err, STATUS_AUTHENTICATION, NULL,
                       "the hub does not allow this access to %s (403); ask for it on the model's "
                       "page at %.200s",
                       what, settings->endpoint);
    if (settings->token)
        return err_set(err, STATUS_AUTHENTICATION, NULL,
                       "the hub refuses the token for %s (401); check the name, and HF_TOKEN or "
                       "the token file",
                       what);
    return err_set(err, STATUS_AUTHENTICATION, NULL,
                   "the hub has no %s, or shows it only with a token (401); check the name, and "
                   "set HF_TOKEN for a private or gated model",
                   what);
}

static enum status explain_answer(const struct hop *hop, const char *what, struct err *err) {
    struct hub_answer *answer = hop->answer;
    long code = answer->code;
    bool is_own = hop->trusted; /* an expired link to another server says nothing of the model */
    if (is_own && (code == 401 || code == 403)) return explain_refusal(hop, what, err);
    if (is_own && (code == 404 || code == 410))
        return err_set(err, STATUS_NOT_FOUND, "model", "the hub has no %s (%ld); check the name",
                       what, code);
    answer->again = !is_own || code == 408 || code == 416 || code == 429 || code >= 500;
    if (code == 429)
        return err_set(err, STATUS_UNAVAILABLE, NULL,
                       "the hub gets too many requests from here (429); try again later, or set "
                       "HF_TOKEN");
    const char *said = hop->error.length > 0 ? hop->error.data : "";
    size_t valid = utf8_valid_prefix(said, strlen(said));
    return err_set(err, STATUS_UNAVAILABLE, NULL, "the hub answered %s with %ld%s%.*s", what, code,
                   valid > 0 ? ": " : "", utf8_cut(said, valid, 200), said);
}

/* ---- a request ------------------------------------------------------------------------------ */

/* Does one hop. Sets *next to the URL of a redirect, which the caller frees. */
static enum status do_hop(struct hop *hop, const char *url, const char *what, char **next,
                          struct err *err) {
    struct curl_slist *headers = headers_of(hop);
    CURLcode code = perform(hop, url, headers);
    hub_library.p_curl_slist_free_all(headers);
    struct hub_answer *answer = hop->answer;
    CURL *easy = hop->connection->easy;
    hub_library.p_curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer->code);
    if (answer->stopped) return STATUS_SYSTEM;
    if (code != CURLE_OK && hop->error_bytes <= MAX_READ_ERROR)
        return explain_network(hop, code, url, err);
    char *location = NULL;
    hub_library.p_curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &location);
    if (location && answer->code >= 300 && answer->code < 400) {
        *next = mem_strdup(location);
        return STATUS_OK;
    }
    if (answer->code != 200 && answer->code != 206) return explain_answer(hop, what, err);
    if (!hop->began && !begin_body(hop, answer->code)) answer->stopped = true; /* no bytes */
    return answer->stopped ? STATUS_SYSTEM : STATUS_OK;
}

enum status hub_get(struct hub_connection *connection, const char *path, const char *what,
                    int64_t from, const struct hub_sink *sink, struct hub_answer *answer,
                    struct err *err) {
    struct buf url = {0};
    enum status status = STATUS_OK;
    char *next = NULL;
    assert(from >= 0);
    *answer = (struct hub_answer){.total = -1, .wait_ms = -1};
    buf_printf(&url, "%s%s", connection->settings->endpoint, path);
    for (int i = 0; i <= MAX_REDIRECTS && !status; i++) {
        struct hop hop = {.connection = connection,
                          .answer = answer,
                          .sink = sink,
                          .from = from,
                          .trusted = is_endpoint(connection, url.data),
                          .start = -1,
                          .length = -1};
        mem_free(next);
        next = NULL;
        status = do_hop(&hop, url.data, what, &next, err);
        buf_free(&hop.error);
        if (!next) break;
        buf_clear(&url);
        buf_puts(&url, next);
        if (!is_allowed(connection, next))
            status = err_set(err, STATUS_UNAVAILABLE, NULL,
                             "the hub redirects %s to %.*s, which is not https", what,
                             (int)origin_of(next), next);
    }
    if (!status && next)
        status = err_set(err, STATUS_UNAVAILABLE, NULL, "the hub redirects %s more than %d times",
                         what, MAX_REDIRECTS);
    mem_free(next);
    buf_free(&url);
    return status;
}
