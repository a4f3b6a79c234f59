/* Requests with an Idempotency-Key: one that repeats an earlier request gets its answer. */
#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "server/app/promised/promised.h"

/* The hash of a request's path and body. */
static void hash_request(const struct http_request *http, const struct api *api,
                         uint8_t out[RECORD_HASH_BYTES]) {
    uint64_t seed = XXH3_64bits(api->path, strlen(api->path));
    XXH128_hash_t hash = XXH3_128bits_withSeed(http->body, http->body_length, seed);
    memcpy(out, &hash.low64, 8);
    memcpy(out + 8, &hash.high64, 8);
}

static enum status check_text(const char *text, struct err *err) {
    size_t n = strlen(text);
    if (n > 0 && n <= RECORD_MAX_IDEMPOTENCY && is_printable(text, n)) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, "Idempotency-Key",
                   "The header Idempotency-Key must have 1 to %d printable characters.",
                   RECORD_MAX_IDEMPOTENCY);
}

/* Is a request with the same key of the same client being prepared? */
static bool is_preparing(const struct promises *promises, const struct idempotent_request *asked) {
    list_each(node, &promises->preparing) {
        const struct idempotent_request *other = list_entry(node, struct idempotent_request, node);
        if (strcmp(other->text, asked->text) == 0 &&
            memcmp(other->key, asked->key, sizeof other->key) == 0)
            return true;
    }
    return false;
}

static enum status answer_known(struct app *app, struct http_request *http,
                                const struct idempotent_request *asked,
                                const struct promise_entry *entry, int64_t after, struct err *err) {
    const struct fetch_wish wish = {.text = asked->text, .hash = asked->hash, .after = after};
    if (!entry->is_finished) return promise_lost(err);
    fetch_start(app, http, entry, &wish);
    return STATUS_OK;
}

/* Answers a repeated request, or refuses this one with `err`. Sets *is_new if it is new. */
static enum status answer(struct app *app, struct http_request *http,
                          const struct idempotent_request *asked, bool *is_new, struct err *err) {
    struct promises *promises = app->promises;
    const uint8_t *key = promise_key(app, http);
    struct reader_wish wish = {.form = READER_SAME, .hash = asked->hash};
    struct promise_entry entry;
    if (reader_after(http, &wish.after, err)) return err->status;
    struct promised *live = promised_find_idempotent(promises, key, asked->text);
    bool is_known = !live && journal_find_idempotent(promises->journal, key, asked->text, &entry);
    if (is_known) live = promised_find(promises, entry.number);
    if (live) {
        reader_start(live, http, NULL, &wish);
        return STATUS_OK;
    }
    if (is_known) return answer_known(app, http, asked, &entry, wish.after, err);
    *is_new = !is_preparing(promises, asked);
    if (*is_new) return STATUS_OK;
    err_set(err, STATUS_OVERLOADED, NULL,
            "A request with this Idempotency-Key is being prepared: try again.");
    err->retry_after_s = lanes_retry_s(app->lanes, LANE_PREPARE);
    return STATUS_OVERLOADED;
}

bool repeat_answer(struct app *app, struct http_request *http, const struct api *api,
                   struct idempotent_request *out) {
    const char *text = http_header(http, "Idempotency-Key");
    const uint8_t *key = promise_key(app, http);
    struct err err = {0};
    bool is_new = false;
    assert(app->promises);
    if (!text) return false;
    enum status status = check_text(text, &err);
    if (!status) {
        snprintf(out->text, sizeof out->text, "%s", text);
        if (key) memcpy(out->key, key, sizeof out->key);
        hash_request(http, api, out->hash);
        status = answer(app, http, out, &is_new, &err);
    }
    if (!status) return !is_new;
    respond_error(app, http, &err, NULL);
    http_release(http);
    return true;
}
