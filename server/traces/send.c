/* DESIGN: one POST to the collector.
 *
 * libcurl's multi interface is used for a single transfer, because another thread can wake it: at
 * the end of the server a message must not wait for its timeout. Redirects are not followed: the
 * headers may hold a key. The connection stays open between messages.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/traces/internal.h"
#include "server/traces/library.h"

enum {
    CONNECT_TIMEOUT_MS = 5000,
    MAX_ANSWER_BYTES = 64 << 10, /* a longer answer ends the transfer */
    POLL_MS = 1000,
    WHY_BYTES = 256, /* of a phrase for the log */
};

struct sender {
    const struct trace_settings *settings;
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    struct buf answer;
};

/* ---- opening --------------------------------------------------------------------------------- */

/* Adds a header. A list that could not be extended is lost, so memory must not be short: only at
 * the start. */
static void add_header(struct sender *sender, const char *line) {
    sender->headers = traces_library.p_curl_slist_append(sender->headers, line);
    if (!sender->headers) mem_fail(strlen(line));
}

static size_t on_answer(char *data, size_t size, size_t n, void *arg) {
    struct sender *sender = arg;
    if (sender->answer.length + size * n > MAX_ANSWER_BYTES) return 0;
    return buf_try_add(&sender->answer, data, size * n) ? size * n : 0;
}

static void set_up(struct sender *sender) {
    const struct trace_settings *settings = sender->settings;
    __typeof__(traces_library.p_curl_easy_setopt) set = traces_library.p_curl_easy_setopt;
    CURL *easy = sender->easy;
    set(easy, CURLOPT_URL, settings->url);
    set(easy, CURLOPT_NOSIGNAL, 1L);
    set(easy, CURLOPT_POST, 1L);
    set(easy, CURLOPT_HTTPHEADER, sender->headers);
    set(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    set(easy, CURLOPT_TIMEOUT_MS, settings->timeout_ms);
    set(easy, CURLOPT_WRITEFUNCTION, on_answer);
    set(easy, CURLOPT_WRITEDATA, sender);
    if (settings->authorities) set(easy, CURLOPT_CAINFO, settings->authorities);
#if LIBCURL_VERSION_NUM >= 0x075700
    set(easy, CURLOPT_QUICK_EXIT, 1L); /* the end does not wait for the resolver of names */
#endif
}

enum status sender_new(struct sender **out, const struct trace_settings *settings,
                       struct err *err) {
    enum status status = traces_library_load(err);
    *out = NULL;
    if (status) return status;
    struct sender *sender = mem_calloc(1, sizeof *sender);
    char agent[64];
    sender->settings = settings;
    sender->multi = traces_library.p_curl_multi_init();
    sender->easy = traces_library.p_curl_easy_init();
    if (!sender->multi || !sender->easy) mem_fail(1);
    snprintf(agent, sizeof agent, "User-Agent: penstock/%s", build_info().version);
    add_header(sender, agent);
    add_header(sender, "Content-Type: application/json");
    add_header(sender, "Expect:"); /* do not wait for 100 Continue */
    for (int i = 0; i < settings->n_headers; i++) add_header(sender, settings->headers[i]);
    set_up(sender);
    *out = sender;
    return STATUS_OK;
}

void sender_free(struct sender *sender) {
    if (!sender) return;
    traces_library.p_curl_easy_cleanup(sender->easy);
    traces_library.p_curl_multi_cleanup(sender->multi);
    traces_library.p_curl_slist_free_all(sender->headers);
    buf_free(&sender->answer);
    mem_free(sender);
}

void sender_wake(struct sender *sender) {
    traces_library.p_curl_multi_wakeup(sender->multi);
}

/* ---- a transfer ------------------------------------------------------------------------------ */

/* Returns the milliseconds until the deadline, at most POLL_MS; 0: it has passed. */
static int left_ms(const _Atomic uint64_t *deadline_ns) {
    uint64_t deadline = atomic_load(deadline_ns), now = now_ns();
    if (deadline == 0) return POLL_MS;
    if (now >= deadline) return 0;
    uint64_t ms = (deadline - now) / 1000000 + 1;
    return ms < POLL_MS ? (int)ms : POLL_MS;
}

/* Returns libcurl's code; CURLE_ABORTED_BY_CALLBACK if the deadline has ended it. */
static CURLcode transfer(struct sender *sender, const _Atomic uint64_t *deadline_ns) {
    CURLcode code = CURLE_ABORTED_BY_CALLBACK;
    int running = 1, left, wait_ms;
    CURLMsg *message;
    if (traces_library.p_curl_multi_add_handle(sender->multi, sender->easy) != CURLM_OK)
        return CURLE_OUT_OF_MEMORY;
    while (running && (wait_ms = left_ms(deadline_ns)) > 0) {
        if (traces_library.p_curl_multi_perform(sender->multi, &running) != CURLM_OK) break;
        if (running) traces_library.p_curl_multi_poll(sender->multi, NULL, 0, wait_ms, NULL);
    }
    while ((message = traces_library.p_curl_multi_info_read(sender->multi, &left)))
        if (message->msg == CURLMSG_DONE) code = message->data.result;
    traces_library.p_curl_multi_remove_handle(sender->multi, sender->easy);
    return code;
}

/* ---- its result ------------------------------------------------------------------------------ */

/* These failures last: another try has the same result. */
static bool is_lasting(CURLcode code) {
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
           code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL;
}

static enum sent judge_failure(CURLcode code, struct buf *why) {
    buf_puts(why, code == CURLE_ABORTED_BY_CALLBACK ? "the server ends"
                                                    : traces_library.p_curl_easy_strerror(code));
    return is_lasting(code) || code == CURLE_ABORTED_BY_CALLBACK ? SENT_REFUSED : SENT_AGAIN;
}

/* The specification of OTLP names the codes after which a message may be sent again. */
static enum sent judge_code(const struct sender *sender, long code, struct buf *why) {
    if (code >= 200 && code < 300) return SENT_ACCEPTED;
    const struct buf *answer = &sender->answer;
    size_t valid = answer->length > 0 ? utf8_valid_prefix(answer->data, answer->length) : 0;
    int shown = valid > 0 ? utf8_cut(answer->data, valid, WHY_BYTES) : 0;
    buf_printf(why, "it answered %ld", code);
    if (shown > 0) buf_printf(why, ": %.*s", shown, answer->data);
    bool may_pass = code == 429 || code == 502 || code == 503 || code == 504;
    return may_pass ? SENT_AGAIN : SENT_REFUSED;
}

enum sent sender_post(struct sender *sender, const struct buf *message,
                      const _Atomic uint64_t *deadline_ns, struct buf *why, int64_t *retry_ms,
                      uint64_t *rejected) {
    CURL *easy = sender->easy;
    long code = 0;
    curl_off_t retry_s = 0;
    char said[WHY_BYTES];
    assert(message->length > 0);
    buf_clear(&sender->answer);
    buf_clear(why);
    *retry_ms = -1;
    *rejected = 0;
    traces_library.p_curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                                      (curl_off_t)message->length);
    traces_library.p_curl_easy_setopt(easy, CURLOPT_POSTFIELDS, message->data);
    CURLcode done = transfer(sender, deadline_ns);
    if (done != CURLE_OK) return judge_failure(done, why);
    traces_library.p_curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    traces_library.p_curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_s);
    if (retry_s > 0) *retry_ms = (int64_t)retry_s * 1000;
    enum sent sent = judge_code(sender, code, why);
    if (sent != SENT_ACCEPTED || sender->answer.length == 0) return sent;
    *rejected = traces_rejected(sender->answer.data, sender->answer.length, said, sizeof said);
    if (*rejected > 0) buf_puts(why, said);
    return sent;
}
