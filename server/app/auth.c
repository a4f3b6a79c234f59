/* API keys: "Authorization: Bearer <key>". Each request is compared with all keys in constant time.
 *
 * If there are several keys, each has a separate salt in the prefix cache. Otherwise the number of
 * cached tokens, or the time to the first token, would tell one key which prompts another has sent.
 * The salt is a hash of the key under a random seed of the process and is never sent. So a client
 * cannot compute it, or choose a `cache_salt` that matches another key's blocks. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "server/app/app.h"

static void add_key(struct buf *keys, const char *key, size_t length) {
    while (length > 0 && strchr(" \t\r\n", key[length - 1])) length--;
    while (length > 0 && strchr(" \t", *key)) key++, length--;
    if (length == 0) return;
    buf_add(keys, key, length);
    buf_add(keys, "", 1);
}

static enum status add_file(struct app *app, const char *path, struct err *err) {
    FILE *file = fopen(path, "r");
    if (!file) {
        return err_set(err, STATUS_BAD_FILE, "api-key-file", "--api-key-file %s cannot be read: %s",
                       path, strerror(errno));
    }
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t n; (n = getline(&line, &capacity, file)) >= 0;) {
        if (line[0] != '#') add_key(&app->keys, line, strlen(line));
    }
    mem_free(line);
    fclose(file);
    if (app->keys.length > 0) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "api-key-file",
                   "--api-key-file %s holds no key; write one per line", path);
}

/* Adds the keys of an option, separated by commas. Fails if the option is set but has no keys. */
static enum status add_list(struct buf *keys, const char *list, const char *option,
                            const char *variable, struct err *err) {
    if (!list) return STATUS_OK;
    while (*list) {
        size_t n = strcspn(list, ",");
        add_key(keys, list, n);
        list += n + (list[n] == ',');
    }
    if (keys->length > 0) return STATUS_OK;
    return err_set(err, STATUS_USAGE, option,
                   "--%s (%s) is given but holds no key; leave it out to serve without one", option,
                   variable);
}

enum status auth_load(struct app *app, struct err *err) {
    const struct options *options = app->options;
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
    return options->access.api_key_file ? add_file(app, options->access.api_key_file, err)
                                        : STATUS_OK;
}

/* Compares two keys. Reads every byte of `key`, so that the time does not depend on `given`. */
static bool same_key(const char *given, size_t n_given, const char *key, size_t n_key) {
    unsigned char differs = n_given != n_key;
    for (size_t i = 0; i < n_key; i++) {
        differs |= (unsigned char)(key[i] ^ (n_given ? given[i % n_given] : 0));
    }
    return differs == 0;
}

/* Returns the request's key, from the header of OpenAI's, Anthropic's or Azure's clients. */
static const char *key_of(const struct http_request *http) {
    const char *bearer = http_header(http, "Authorization");
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0) return bearer + 7;
    const char *key = http_header(http, "x-api-key");
    if (!key) key = http_header(http, "api-key");
    return key ? key : "";
}

/* Is the request's key in a list of keys? */
static bool holds(const struct buf *keys, const struct http_request *http) {
    assert(keys->length == 0 || keys->data[keys->length - 1] == 0);
    const char *given = key_of(http);
    size_t n_given = strlen(given);
    bool accepted = false;
    for (size_t at = 0; at < keys->length;) {
        const char *key = keys->data + at;
        size_t n_key = strlen(key);
        accepted |= same_key(given, n_given, key, n_key);
        at += n_key + 1;
    }
    return accepted;
}

bool auth_is_admin(const struct app *app, const struct http_request *http) {
    return holds(&app->admin_keys, http);
}

uint64_t auth_client(const struct app *app, const struct http_request *http) {
    const char *name = app->keys.length > 0 ? key_of(http) : http->client;
    return XXH3_64bits(name, strlen(name));
}

bool auth_accepts(const struct app *app, const struct buf *keys, const struct http_request *http) {
    if (keys->length == 0) return true;
    bool accepted = holds(keys, http);
    return accepted | auth_is_admin(app, http);
}

/* ---- salts ---------------------------------------------------------------------------------- */

/* Are there two keys that differ? */
static bool has_several_keys(const struct app *app) {
    const struct buf *lists[] = {&app->keys, &app->admin_keys};
    const char *first = NULL;
    for (int i = 0; i < 2; i++) {
        for (size_t at = 0; at < lists[i]->length; at += strlen(lists[i]->data + at) + 1) {
            const char *key = lists[i]->data + at;
            if (!first) first = key;
            if (strcmp(first, key) != 0) return true;
        }
    }
    return false;
}

void auth_cache_salt(const struct app *app, const struct http_request *http, uint64_t salt[2]) {
    salt[0] = salt[1] = 0;
    if (app->options->access.share_prefixes || !has_several_keys(app)) return;
    if (!holds(&app->keys, http) && !auth_is_admin(app, http)) return;
    const char *key = key_of(http);
    for (int i = 0; i < 2; i++) salt[i] = XXH3_64bits_withSeed(key, strlen(key), app->key_seed[i]);
}
