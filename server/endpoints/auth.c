/* API keys: "Authorization: Bearer <key>". Every request is compared with all keys, in constant
 * time. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/app.h"

static void add_key(struct app *app, const char *key, size_t length) {
    while (length > 0 && strchr(" \t\r\n", key[length - 1])) length--;
    while (length > 0 && strchr(" \t", *key)) key++, length--;
    if (length == 0) return;
    buf_add(&app->keys, key, length);
    buf_add(&app->keys, "", 1);
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
        if (line[0] != '#') add_key(app, line, strlen(line));
    }
    free(line);
    fclose(file);
    if (app->keys.length > 0) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "api-key-file",
                   "--api-key-file %s holds no key; write one a line", path);
}

enum status auth_load(struct app *app, struct err *err) {
    for (const char *list = app->options->api_key; list && *list;) {
        size_t n = strcspn(list, ",");
        add_key(app, list, n);
        list += n + (list[n] == ',');
    }
    if (app->options->api_key && app->keys.length == 0) {
        return err_set(err, STATUS_USAGE, "api-key",
                       "--api-key (PENSTOCK_API_KEY) is given but holds no key; leave it out to "
                       "serve without one");
    }
    if (!app->options->api_key_file) return STATUS_OK;
    return add_file(app, app->options->api_key_file, err);
}

/* Reads every byte of the key, whichever the given one is. */
static bool same_key(const char *given, size_t n_given, const char *key, size_t n_key) {
    unsigned char differs = n_given != n_key;
    for (size_t i = 0; i < n_key; i++) {
        differs |= (unsigned char)(key[i] ^ (n_given ? given[i % n_given] : 0));
    }
    return differs == 0;
}

bool auth_accepts(const struct app *app, const struct http_request *http) {
    if (app->keys.length == 0) return true;
    assert(app->keys.data[app->keys.length - 1] == 0);
    const char *value = http_header(http, "Authorization");
    const char *given = value && strncasecmp(value, "Bearer ", 7) == 0 ? value + 7 : "";
    size_t n_given = strlen(given);
    bool accepted = false;
    for (size_t at = 0; at < app->keys.length;) {
        const char *key = app->keys.data + at;
        size_t n_key = strlen(key);
        accepted |= same_key(given, n_given, key, n_key);
        at += n_key + 1;
    }
    return accepted;
}
