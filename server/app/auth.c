/* API keys: "Authorization: Bearer <key>". Each request is compared with all keys.
 *
 * If there are several keys, each has a separate salt in the prefix cache. Otherwise the number of
 * cached tokens, or the time to the first token, would tell one key which prompts another has sent.
 * The salt is a hash of the key under a random seed of the process and is never sent. So a client
 * cannot compute it, or choose a `cache_salt` that matches another key's blocks. */
#include <assert.h>
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

/* ---- shares --------------------------------------------------------------------------------- */

/* Shares that a server has at least if its keys may change. */
enum { SPARE_SHARES = 16 };

static bool is_taken(const struct keys *lists[2], int share) {
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < lists[l]->n; i++)
            if (lists[l]->key[i].has_share && lists[l]->key[i].share == share) return true;
    return false;
}

static void give_share(struct api_key *key, int share) {
    key->share = share;
    key->has_share = true;
}

/* Gives each key without a share the first free one, and all admin keys the same. The last share is
 * for those that find none. */
static void set_shares(struct app *app, int n) {
    const struct keys *lists[] = {&app->keys, &app->admin_keys};
    int next = 0, boss = -1;
    for (int i = 0; i < app->admin_keys.n && boss < 0; i++)
        if (app->admin_keys.key[i].has_share) boss = app->admin_keys.key[i].share;
    for (int i = 0; i < app->keys.n; i++) {
        while (next < n - 1 && (next == boss || is_taken(lists, next))) next++;
        if (!app->keys.key[i].has_share) give_share(&app->keys.key[i], next);
    }
    while (boss < 0 && next < n - 1 && is_taken(lists, next)) next++;
    for (int i = 0; i < app->admin_keys.n; i++)
        give_share(&app->admin_keys.key[i], boss < 0 ? next : boss);
}

static void write_weights(const struct app *app, int n, int weights[MAX_SHARES]) {
    for (int i = 0; i < n; i++) weights[i] = 1;
    for (int i = 0; i < app->keys.n; i++) {
        const struct api_key *key = &app->keys.key[i];
        assert(key->has_share && key->share < max_int(n, 1));
        if (n > 0 && !(key->share == n - 1 && n == MAX_SHARES)) weights[key->share] = key->weight;
    }
}

int auth_share_weights(struct app *app, int weights[MAX_SHARES]) {
    int n = app->keys.n + (app->admin_keys.n > 0);
    bool may_change = app->options->access.api_key_file || app->options->config;
    if (n > 0 && may_change) n = max_int(2 * n, SPARE_SHARES);
    app->n_shares = min_int(n, MAX_SHARES);
    set_shares(app, max_int(app->n_shares, 1));
    write_weights(app, app->n_shares, weights);
    return app->n_shares;
}

/* ---- reading keys --------------------------------------------------------------------------- */

enum status auth_read(const struct options *options, struct key_lists *out, struct err *err) {
    if (add_list(&out->keys, options->access.api_key, "api-key", "PENSTOCK_API_KEY", err) ||
        add_list(&out->metrics_keys, options->access.metrics_key, "metrics-key",
                 "PENSTOCK_METRICS_KEY", err) ||
        add_list(&out->admin_keys, options->access.admin_key, "admin-key", "PENSTOCK_ADMIN_KEY",
                 err))
        return err->status;
    if (!options->access.api_key_file) return STATUS_OK;
    return keys_read_file(&out->keys, options->access.api_key_file, err);
}

enum status auth_load(struct app *app, struct err *err) {
    struct key_lists lists = {0};
    if (getrandom(app->key_seed, sizeof app->key_seed, 0) != sizeof app->key_seed)
        return err_set(err, STATUS_SERVER_ERROR, NULL,
                       "The system cannot provide random numbers: %s.", strerror(errno));
    enum status status = auth_read(app->options, &lists, err);
    app->keys = lists.keys;
    app->metrics_keys = lists.metrics_keys;
    app->admin_keys = lists.admin_keys;
    return status;
}

/* Exchanges the lists, which other threads read. */
static void exchange(struct app *app, struct key_lists *lists) {
    const struct key_lists old = {app->keys, app->metrics_keys, app->admin_keys, NULL};
    pthread_mutex_lock(&app->keys_mutex);
    app->keys = lists->keys;
    app->metrics_keys = lists->metrics_keys;
    app->admin_keys = lists->admin_keys;
    pthread_mutex_unlock(&app->keys_mutex);
    *lists = old;
}

void auth_replace(struct app *app, struct key_lists *lists) {
    int weights[MAX_SHARES];
    keys_adopt(&lists->keys, &app->keys);
    keys_adopt(&lists->admin_keys, &app->admin_keys);
    exchange(app, lists);
    set_shares(app, max_int(app->n_shares, 1));
    write_weights(app, app->n_shares, weights);
    scheduler_set_weights(app->scheduler, weights, app->n_shares);
    if (app->requests.n == 0) auth_free_retired(app);
    assert(!lists->next);
    lists->next = app->retired;
    app->retired = lists;
}

void auth_free_retired(struct app *app) {
    for (struct key_lists *next, *at = app->retired; at; at = next) {
        next = at->next;
        key_lists_free(at);
        mem_free(at);
    }
    app->retired = NULL;
}

/* ---- the key of a request ------------------------------------------------------------------- */

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

struct api_key *auth_key_of(struct app *app, const void *digest) {
    const struct keys *lists[] = {&app->keys, &app->admin_keys};
    struct api_key *found = NULL;
    pthread_mutex_lock(&app->keys_mutex);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < lists[i]->n && !found; j++)
            if (memcmp(lists[i]->key[j].digest, digest, KEY_DIGEST_BYTES) == 0)
                found = &lists[i]->key[j];
    pthread_mutex_unlock(&app->keys_mutex);
    return found;
}

bool auth_has_keys(struct app *app) {
    pthread_mutex_lock(&app->keys_mutex);
    bool has = app->keys.n > 0;
    pthread_mutex_unlock(&app->keys_mutex);
    return has;
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
static bool has_several_keys(struct app *app) {
    const struct keys *lists[] = {&app->keys, &app->admin_keys};
    const uint8_t *first = NULL;
    bool differs = false;
    pthread_mutex_lock(&app->keys_mutex);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < lists[i]->n; j++) {
            const uint8_t *digest = lists[i]->key[j].digest;
            if (!first) first = digest;
            differs |= memcmp(first, digest, KEY_DIGEST_BYTES) != 0;
        }
    }
    pthread_mutex_unlock(&app->keys_mutex);
    return differs;
}

void auth_cache_salt(struct app *app, const struct http_request *http, uint64_t salt[2]) {
    auth_key_salt(app, auth_key(app, http), salt);
}

void auth_key_salt(struct app *app, const struct api_key *key, uint64_t salt[2]) {
    salt[0] = salt[1] = 0;
    if (app->options->access.share_prefixes || !has_several_keys(app)) return;
    for (int i = 0; key && i < 2; i++)
        salt[i] = XXH3_64bits_withSeed(key->digest, sizeof key->digest, app->key_seed[i]);
}

uint64_t auth_key_client(const struct app *app, const struct api_key *key) {
    if (!key) return 0;
    uint64_t seed = ~app->key_seed[0]; /* another hash than the salt */
    return XXH3_64bits_withSeed(key->digest, sizeof key->digest, seed) | 1;
}
