#include "server/keys/internal.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <sodium.h>
#include <string.h>

static_assert(KEY_DIGEST_BYTES == crypto_hash_sha256_BYTES, "a digest is a SHA-256");

/* ---- the list ------------------------------------------------------------------------------- */

struct api_key *keys_append(struct keys *keys) {
    keys->key = mem_realloc(keys->key, (size_t)(keys->n + 1) * sizeof *keys->key);
    struct api_key *key = &keys->key[keys->n++];
    *key = (struct api_key){.weight = 1, .best_priority = INT_MIN};
    key->use = mem_calloc(1, sizeof *key->use);
    key->use->references = 1;
    return key;
}

void key_digest(uint8_t digest[KEY_DIGEST_BYTES], const char *text, size_t length) {
    crypto_hash_sha256(digest, (const unsigned char *)text, length);
}

void keys_add(struct keys *keys, const char *text, size_t length) {
    while (length > 0 && strchr(" \t\r\n", text[length - 1])) length--;
    while (length > 0 && strchr(" \t", *text)) text++, length--;
    if (length > 0) key_digest(keys_append(keys)->digest, text, length);
}

static void unref(struct key_use *use) {
    assert(use->references > 0);
    if (--use->references == 0) mem_free(use);
}

void keys_adopt(struct keys *keys, const struct keys *old) {
    for (int i = 0; i < keys->n; i++) {
        struct api_key *key = &keys->key[i];
        const struct api_key *same = NULL;
        for (int j = 0; j < old->n && !same; j++)
            if (sodium_memcmp(old->key[j].digest, key->digest, sizeof key->digest) == 0)
                same = &old->key[j];
        if (!same) continue;
        unref(key->use);
        key->use = same->use;
        key->use->references++;
        key->share = same->share;
        key->has_share = same->has_share;
    }
}

void keys_free(struct keys *keys) {
    for (int i = 0; i < keys->n; i++) unref(keys->key[i].use);
    mem_free(keys->key);
    *keys = (struct keys){0};
}

void key_lists_free(struct key_lists *lists) {
    keys_free(&lists->keys);
    keys_free(&lists->metrics_keys);
    keys_free(&lists->admin_keys);
}

struct api_key *keys_find(const struct keys *keys, const char *text) {
    uint8_t digest[KEY_DIGEST_BYTES];
    struct api_key *found = NULL;
    key_digest(digest, text, strlen(text));
    for (int i = 0; i < keys->n; i++)
        if (sodium_memcmp(keys->key[i].digest, digest, sizeof digest) == 0) found = &keys->key[i];
    return found;
}

/* ---- use ------------------------------------------------------------------------------------ */

static void refill(struct api_key *key, uint64_t now) {
    struct key_use *use = key->use;
    double most = (double)key->tokens_per_minute;
    double minutes =
        use->refilled_ns && now > use->refilled_ns ? (double)(now - use->refilled_ns) / 60e9 : 0;
    if (!use->refilled_ns) use->bucket = most;
    use->bucket = fmin(use->bucket + minutes * most, most);
    use->refilled_ns = now;
}

static enum status refuse(struct api_key *key, int seconds, struct err *err) {
    key->use->refused++;
    if (err) {
        err->retry_after_s = seconds;
        snprintf(err->code, sizeof err->code, "rate_limit_exceeded");
    }
    return STATUS_OVERLOADED;
}

enum status key_check(struct api_key *key, uint64_t now, struct err *err) {
    if (key->max_requests > 0 && key->use->n_requests >= key->max_requests) {
        err_set(err, STATUS_OVERLOADED, NULL,
                "%d requests of this key are running, its limit; wait until one of them ends.",
                key->use->n_requests);
        return refuse(key, pace_seconds(&key->use->pace, now, 1), err);
    }
    if (key->tokens_per_minute == 0) return STATUS_OK;
    refill(key, now);
    if (key->use->bucket > 0) return STATUS_OK;
    double rate = (double)key->tokens_per_minute / 60;
    int seconds = 1 + (int)fmin(-key->use->bucket / rate, 1e6);
    err_set(err, STATUS_OVERLOADED, NULL,
            "This key has used its %lld tokens a minute; try again in %d s.",
            (long long)key->tokens_per_minute, seconds);
    return refuse(key, seconds, err);
}

void key_begin(struct api_key *key, uint64_t now) {
    if (key->use->n_requests == 0) pace_begin(&key->use->pace, now);
    key->use->n_requests++;
    key->use->requests++;
}

void key_end(struct api_key *key, uint64_t now) {
    assert(key->use->n_requests > 0);
    key->use->n_requests--;
    pace_note(&key->use->pace, now);
}

void key_charge(struct api_key *key, int prompt, int output) {
    assert(output >= 0);
    key->use->bucket -= prompt + output;
    key->use->prompt_tokens += (uint64_t)prompt; /* wraps back for a negative number */
    key->use->output_tokens += (uint64_t)output;
}
