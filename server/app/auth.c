/* API keys: "Authorization: Bearer <key>". Each request is compared with all keys.
 *
 * If there are several keys, each has a separate salt in the prefix cache. Otherwise the number of
 * cached tokens, or the time to the first token, would tell one key which prompts another has sent.
 * The salt is a hash of the key under a random seed of the process and is never sent. So a client
 * cannot compute it, or choose a `cache_salt` that matches another key's blocks. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "server/app/app.h"

/* Adds the keys of an option, separated by commas. Fails if the option is set but has no keys. */
static enum status add_list(struct keys *keys, const char *list, const char *option,
                            const char *variable, struct err *err) {
    if (!list) return STATUS_OK;
    while (*list) {
        size_t n = strcspn(list, ",");
        keys_add(keys, list, n);
        list += n + (list[n] == ',');
    }
    if (keys->n > 0) return STATUS_OK;
    return err_set(err, STATUS_USAGE, option,
                   "--%s (%s) is given but holds no key; leave it out to serve without one", option,
                   variable);
}

/* Each key has a share of the steps, and all admin keys have one together. */
static void set_shares(struct app *app) {
    const int last = MAX_SHARES - 1;
    for (int i = 0; i < app->keys.n; i++) app->keys.key[i].share = min_int(i, last);
    for (int i = 0; i < app->admin_keys.n; i++)
        app->admin_keys.key[i].share = min_int(app->keys.n, last);
}

int auth_share_weights(const struct app *app, int weights[MAX_SHARES]) {
    int n = min_int(app->keys.n + (app->admin_keys.n > 0), MAX_SHARES);
    for (int i = 0; i < n; i++) weights[i] = i < app->keys.n ? app->keys.key[i].weight : 1;
    return n;
}

enum status auth_load(struct app *app, struct err *err) {
    const struct options *options = app->options;
    enum status status = STATUS_OK;
    if (getrandom(app->key_seed, sizeof app->key_seed, 0) != sizeof app->key_seed)
        return err_set(err, STATUS_SERVER_ERROR, NULL,
                       "The system cannot provide random numbers: %s.", strerror(errno));
    if (add_list(&app->keys, options->access.api_key, "api-key", "PENSTOCK_API_KEY", err) ||
        add_list(&app->metrics_keys, options->access.metrics_key, "metrics-key",
                 "PENSTOCK_METRICS_KEY", err) ||
        add_list(&app->admin_keys, options->access.admin_key, "admin-key", "PENSTOCK_ADMIN_KEY",
                 err)) {
        return err->status;
    }
    if (options->access.api_key_file)
        status = keys_read_file(&app->keys, options->access.api_key_file, err);
    set_shares(app);
    return status;
}

/* Returns the request's key, from the header of OpenAI's, Anthropic's or Azure's clients. */
static const char *key_of(const struct http_request *http) {
    const char *bearer = http_header(http, "Authorization");
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0) return bearer + 7;
    const char *key = http_header(http, "x-api-key");
    if (!key) key = http_header(http, "api-key");
    return key ? key : "";
}

bool auth_is_admin(const struct app *app, const struct http_request *http) {
    const struct api_key *admin = keys_find(&app->admin_keys, key_of(http));
    const struct api_key *key = keys_find(&app->keys, key_of(http));
    return admin || (key && key->admin);
}

struct api_key *auth_key(const struct app *app, const struct http_request *http) {
    struct api_key *key = keys_find(&app->keys, key_of(http));
    return key ? key : keys_find(&app->admin_keys, key_of(http));
}

struct api_key *auth_key_of(const struct app *app, const void *digest) {
    const struct keys *lists[] = {&app->keys, &app->admin_keys};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < lists[i]->n; j++)
            if (memcmp(lists[i]->key[j].digest, digest, KEY_DIGEST_BYTES) == 0)
                return &lists[i]->key[j];
    return NULL;
}

uint64_t auth_client(const struct app *app, const struct http_request *http) {
    const char *name = app->keys.n > 0 ? key_of(http) : http->client;
    return XXH3_64bits(name, strlen(name));
}

bool auth_accepts(const struct app *app, const struct keys *keys, const struct http_request *http) {
    if (keys->n == 0) return true;
    bool accepted = keys_find(keys, key_of(http)) != NULL;
    return accepted | auth_is_admin(app, http);
}

/* ---- salts ---------------------------------------------------------------------------------- */

/* Are there two keys that differ? */
static bool has_several_keys(const struct app *app) {
    const struct keys *lists[] = {&app->keys, &app->admin_keys};
    const uint8_t *first = NULL;
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < lists[i]->n; j++) {
            const uint8_t *digest = lists[i]->key[j].digest;
            if (!first) first = digest;
            if (memcmp(first, digest, KEY_DIGEST_BYTES) != 0) return true;
        }
    }
    return false;
}

void auth_cache_salt(const struct app *app, const struct http_request *http, uint64_t salt[2]) {
    auth_key_salt(app, auth_key(app, http), salt);
}

void auth_key_salt(const struct app *app, const struct api_key *key, uint64_t salt[2]) {
    salt[0] = salt[1] = 0;
    if (app->options->access.share_prefixes || !has_several_keys(app)) return;
    for (int i = 0; key && i < 2; i++)
        salt[i] = XXH3_64bits_withSeed(key->digest, sizeof key->digest, app->key_seed[i]);
}
