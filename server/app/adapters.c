/* DESIGN: the registry of adapters.
 *
 *     listed, n users  --- load in place, unload -->  unlisted, n users  --- n becomes 0 -->  gone
 *
 * `mutex` guards the list and the counts, and is held for a few operations only. `loading` is held
 * while an adapter is read, which takes long: only workers and the start take it. The last user may
 * be the loop thread, so it only tries to take `loading`: if a worker has it, that worker removes
 * the unlisted adapters afterwards. Lock order: `loading`, then `mutex`.
 *
 * An engine's number is given to another adapter only after the old one has no users, so no step
 * has rows of both. The id tells them apart in the prefix cache. */
#include "server/app/adapters.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "server/app/app.h"

struct adapters {
    struct app *app;
    pthread_mutex_t loading, mutex;
    struct served_adapter *first; /* oldest first, also unlisted ones */
    uint64_t n_loaded;            /* adapters so far */
    struct api_adapters for_api;
};

/* ---- finding -------------------------------------------------------------------------------- */

/* Call it with the mutex. */
static struct served_adapter *find_listed(const struct adapters *adapters, const char *name) {
    struct served_adapter *adapter = adapters->first;
    while (adapter && !(adapter->is_listed && strcmp(adapter->shown.name, name) == 0))
        adapter = adapter->next;
    return adapter;
}

static bool copy_named(void *arg, const char *name, struct api_adapter *out) {
    struct adapters *adapters = arg;
    pthread_mutex_lock(&adapters->mutex);
    const struct served_adapter *adapter = find_listed(adapters, name);
    if (adapter && out) *out = adapter->shown;
    pthread_mutex_unlock(&adapters->mutex);
    return adapter != NULL;
}

static bool copy_at(void *arg, int i, struct api_adapter *out) {
    struct adapters *adapters = arg;
    pthread_mutex_lock(&adapters->mutex);
    const struct served_adapter *adapter = adapters->first;
    for (; adapter; adapter = adapter->next)
        if (adapter->is_listed && i-- == 0) break;
    if (adapter) *out = adapter->shown;
    pthread_mutex_unlock(&adapters->mutex);
    return adapter != NULL;
}

int adapters_most(const struct adapters *adapters) {
    return adapters ? engine_max_adapters(adapters->app->engine) : 0;
}

/* ---- loading -------------------------------------------------------------------------------- */

bool adapters_name_is_valid(const char *name) {
    size_t n = strlen(name);
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f || strchr(",=\"\\", *at)) return false;
    return n > 0 && n < sizeof((struct api_adapter *)0)->name;
}

/* Removes the adapters that are unlisted and have no users. Call it with `loading`. */
static void collect(struct adapters *adapters) {
    struct served_adapter *dead = NULL;
    pthread_mutex_lock(&adapters->mutex);
    for (struct served_adapter **at = &adapters->first; *at;) {
        struct served_adapter *adapter = *at;
        if (adapter->is_listed || adapter->n_users > 0) {
            at = &adapter->next;
            continue;
        }
        assert(adapter->n_waiting == 0 && adapter->n_begun == 0);
        *at = adapter->next;
        adapter->next = dead;
        dead = adapter;
    }
    pthread_mutex_unlock(&adapters->mutex);
    while (dead) {
        struct served_adapter *next = dead->next;
        engine_adapter_unload(adapters->app->engine, dead->number);
        mem_free(dead);
        dead = next;
    }
}

static enum status check_name(struct adapters *adapters, const char *name, bool in_place,
                              struct err *err) {
    const struct app *app = adapters->app;
    if (!adapters_name_is_valid(name))
        return err_set(err, STATUS_INVALID_REQUEST, "lora_name",
                       "'lora_name' must have 1 to 127 printable bytes and none of , = \" \\.");
    for (const char *base = app->names; *base; base += strlen(base) + 1)
        if (strcmp(base, name) == 0)
            return err_set(err, STATUS_INVALID_REQUEST, "lora_name",
                           "'%s' is the name of the base model; give the adapter another one.",
                           name);
    if (in_place || !copy_named(adapters, name, NULL)) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, "lora_name",
                   "The adapter '%s' is loaded already; set 'load_inplace' to replace it.", name);
}

/* Call it with the mutex. */
static void append(struct adapters *adapters, struct served_adapter *adapter) {
    struct served_adapter **end = &adapters->first;
    while (*end) end = &(*end)->next;
    *end = adapter;
}

/* Lists a new adapter in place of the one of its name. */
static void enlist(struct adapters *adapters, struct served_adapter *adapter) {
    pthread_mutex_lock(&adapters->mutex);
    struct served_adapter *old = find_listed(adapters, adapter->shown.name);
    if (old) old->is_listed = false;
    adapter->is_listed = true;
    append(adapters, adapter);
    pthread_mutex_unlock(&adapters->mutex);
}
static void log_loaded(const struct served_adapter *adapter, double ms) {
    log_line(LOG_INFO, "adapter \"%s\" from %s: rank %d, %d matrices, %.1f MiB, in %.0f ms",
             adapter->shown.name, adapter->shown.root, adapter->facts.rank,
             adapter->facts.n_changed, (double)adapter->facts.bytes / (1 << 20), ms);
}

/* A load of the engine, in a scope of memory: it must not leave the caller while that has
 * `loading`. */
struct adapter_loading {
    const struct app *app;
    const char *path;
    struct served_adapter *into;
    struct err *err;
    enum status status;
    bool is_loaded; /* in the engine */
};

static void name_answers(const struct app *app, struct served_adapter *adapter) {
    struct fingerprint fingerprint = app->fingerprint;
    memcpy(fingerprint.adapter, adapter->hash, sizeof fingerprint.adapter);
    fingerprint_write_system(adapter->system_fingerprint, &fingerprint);
}

/* Hashes the files of a loaded adapter; without its hash it is not served. */
static void load_in_scope(void *arg) {
    struct adapter_loading *l = arg;
    struct engine *engine = l->app->engine;
    l->status = engine_adapter_load(engine, l->path, &l->into->number, &l->into->facts, l->err);
    if (l->status) return;
    l->is_loaded = true;
    l->status = adapter_hash(l->into->hash, l->path, l->err);
    if (!l->status) name_answers(l->app, l->into);
}

/* Call it with `loading`. */
static enum status load(struct adapters *adapters, const char *name, const char *path,
                        struct served_adapter **out, struct err *err) {
    const struct app *app = adapters->app;
    struct served_adapter *adapter = mem_try_calloc(1, sizeof *adapter);
    uint64_t began = now_ns();
    if (!adapter) return err_out_of_memory(err);
    struct adapter_loading loading = {app, path, adapter, err, STATUS_OK, false};
    if (!mem_run(load_in_scope, NULL, &loading)) loading.status = err_out_of_memory(err);
    if (loading.status) {
        if (loading.is_loaded) engine_adapter_unload(app->engine, adapter->number);
        mem_free(adapter);
        return loading.status;
    }
    snprintf(adapter->shown.name, sizeof adapter->shown.name, "%s", name);
    snprintf(adapter->shown.root, sizeof adapter->shown.root, "%s", path);
    adapter->shown.created = (int64_t)time(NULL);
    adapters->n_loaded++;
    adapter->id =
        XXH3_64bits_withSeed(&adapters->n_loaded, sizeof adapters->n_loaded, app->key_seed[0]) | 1;
    log_loaded(adapter, (double)(now_ns() - began) * 1e-6);
    *out = adapter;
    return STATUS_OK;
}

enum status adapters_load(struct adapters *adapters, const char *name, const char *path,
                          bool in_place, struct err *err) {
    pthread_mutex_lock(&adapters->loading);
    collect(adapters);
    enum status status = check_name(adapters, name, in_place, err);
    struct served_adapter *adapter;
    if (!status) status = load(adapters, name, path, &adapter, err);
    if (!status) enlist(adapters, adapter);
    collect(adapters);
    pthread_mutex_unlock(&adapters->loading);
    if (status == STATUS_BAD_FILE || status == STATUS_USAGE)
        status = err->status = STATUS_INVALID_REQUEST;
    return status;
}

/* Removes unlisted adapters now, or leaves that to the worker that loads one. */
static void try_collect(struct adapters *adapters) {
    if (pthread_mutex_trylock(&adapters->loading)) return;
    collect(adapters);
    pthread_mutex_unlock(&adapters->loading);
}

enum status adapters_unload(struct adapters *adapters, const char *name, struct err *err) {
    pthread_mutex_lock(&adapters->mutex);
    struct served_adapter *adapter = find_listed(adapters, name);
    if (adapter) adapter->is_listed = false;
    int n_users = adapter ? adapter->n_users : 0;
    pthread_mutex_unlock(&adapters->mutex);
    if (!adapter)
        return err_set(err, STATUS_NOT_FOUND, "lora_name", "The adapter '%.128s' is not loaded.",
                       name);
    log_line(LOG_INFO, "adapter \"%.128s\" unloaded; %d requests still use it", name, n_users);
    try_collect(adapters);
    return STATUS_OK;
}

/* ---- users ---------------------------------------------------------------------------------- */

struct served_adapter *adapters_hold(struct adapters *adapters, const char *name) {
    if (!adapters) return NULL;
    pthread_mutex_lock(&adapters->mutex);
    struct served_adapter *adapter = find_listed(adapters, name);
    if (adapter) adapter->n_users++;
    pthread_mutex_unlock(&adapters->mutex);
    return adapter;
}

void adapters_give_back(struct adapters *adapters, struct served_adapter *adapter) {
    if (!adapter) return;
    pthread_mutex_lock(&adapters->mutex);
    assert(adapter->n_users > 0);
    bool is_last = --adapter->n_users == 0 && !adapter->is_listed;
    pthread_mutex_unlock(&adapters->mutex);
    if (is_last) try_collect(adapters);
}

void adapters_hash(struct adapters *adapters, const char *name, char out[HASH_DIGITS + 1]) {
    out[0] = 0;
    if (!adapters) return;
    pthread_mutex_lock(&adapters->mutex);
    const struct served_adapter *adapter = find_listed(adapters, name);
    if (adapter) memcpy(out, adapter->hash, sizeof adapter->hash);
    pthread_mutex_unlock(&adapters->mutex);
}

void adapters_count(struct adapters *adapters, struct served_adapter *adapter, int waiting,
                    int begun) {
    if (!adapter) return;
    pthread_mutex_lock(&adapters->mutex);
    adapter->n_waiting += waiting;
    adapter->n_begun += begun;
    assert(adapter->n_waiting >= 0 && adapter->n_begun >= 0);
    pthread_mutex_unlock(&adapters->mutex);
}

static void add_name(struct buf *names, const struct served_adapter *adapter) {
    buf_printf(names, "%s%s", names->length > 0 ? "," : "", adapter->shown.name);
}

void adapters_busy(struct adapters *adapters, struct buf *running, struct buf *waiting) {
    struct api_adapter shown;
    for (int i = 0; copy_at(adapters, i, &shown); i++) {
        pthread_mutex_lock(&adapters->mutex);
        const struct served_adapter *adapter = find_listed(adapters, shown.name);
        bool runs = adapter && adapter->n_begun > 0, waits = adapter && adapter->n_waiting > 0;
        pthread_mutex_unlock(&adapters->mutex);
        const struct served_adapter named = {.shown = shown};
        if (runs) add_name(running, &named);
        if (waits) add_name(waiting, &named);
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

/* An adapter of --lora: "NAME=PATH". */
struct adapter_path {
    char name[128], path[sizeof((struct api_adapter *)0)->root];
};

static enum status read_pair(const char *text, size_t length, struct adapter_path *out,
                             struct err *err) {
    const char *equals = memchr(text, '=', length);
    size_t n = equals ? (size_t)(equals - text) : 0;
    if (n == 0 || n >= sizeof out->name || length - n - 1 == 0 ||
        length - n - 1 >= sizeof out->path)
        return err_set(err, STATUS_USAGE, "lora", "--lora takes NAME=PATH, not \"%.*s\"",
                       (int)(length < 128 ? length : 128), text);
    snprintf(out->name, sizeof out->name, "%.*s", (int)n, text);
    snprintf(out->path, sizeof out->path, "%.*s", (int)(length - n - 1), equals + 1);
    return STATUS_OK;
}

static enum status name_cause(const struct adapter_path *pair, struct err *err) {
    struct err cause = *err;
    return err_set(err, STATUS_USAGE, "lora", "--lora %s: %s", pair->name, cause.message);
}

static enum status load_stated(struct adapters *adapters, const char *text, size_t length,
                               struct err *err) {
    struct adapter_path pair;
    if (read_pair(text, length, &pair, err)) return err->status;
    if (adapters_load(adapters, pair.name, pair.path, false, err) == STATUS_OK) return STATUS_OK;
    return name_cause(&pair, err);
}

/* ---- changing all at once ------------------------------------------------------------------- */

enum { MAX_STAGED = 64 };

struct adapter_change {
    int n, n_gone;
    struct served_adapter *staged[MAX_STAGED]; /* [n] in memory and not listed */
    char gone[MAX_STAGED][sizeof((struct adapter_path *)0)->name]; /* [n_gone] to be unloaded */
};

/* Is the text one of the list's pairs? With `only_name`, do the first n bytes and '=' begin one? */
static bool list_has(const char *list, const char *text, size_t n, bool only_name) {
    for (size_t m; list && *list; list += m + (list[m] == ',')) {
        m = strcspn(list, ",");
        bool begins = m >= n && memcmp(list, text, n) == 0;
        if (begins && (only_name ? list[n] == '=' : m == n)) return true;
    }
    return false;
}

/* Loads an adapter that is not listed; the change holds it like a request. */
static enum status stage(struct adapters *adapters, const struct adapter_path *pair,
                         struct adapter_change *change, struct err *err) {
    struct served_adapter *adapter;
    for (int i = 0; i < change->n; i++)
        if (strcmp(change->staged[i]->shown.name, pair->name) == 0)
            return err_set(err, STATUS_USAGE, "lora", "--lora names '%s' twice", pair->name);
    if (change->n == MAX_STAGED)
        return err_set(err, STATUS_USAGE, "lora", "at most %d adapters change at once", MAX_STAGED);
    pthread_mutex_lock(&adapters->loading);
    collect(adapters);
    enum status status = check_name(adapters, pair->name, true, err);
    if (!status) status = load(adapters, pair->name, pair->path, &adapter, err);
    pthread_mutex_unlock(&adapters->loading);
    if (status) return name_cause(pair, err);
    adapter->n_users = 1;
    change->staged[change->n++] = adapter;
    return STATUS_OK;
}

/* Notes the names that a list has lost. */
static enum status note_gone(const char *before, const char *after, struct adapter_change *change,
                             struct err *err) {
    struct adapter_path pair;
    for (size_t n; before && *before; before += n + (before[n] == ',')) {
        n = strcspn(before, ",");
        if (n == 0) continue;
        if (read_pair(before, n, &pair, err)) return err->status;
        if (list_has(after, pair.name, strlen(pair.name), true)) continue;
        if (change->n_gone == MAX_STAGED)
            return err_set(err, STATUS_USAGE, "lora", "at most %d adapters change at once",
                           MAX_STAGED);
        snprintf(change->gone[change->n_gone++], sizeof change->gone[0], "%s", pair.name);
    }
    return STATUS_OK;
}

enum status adapters_stage(struct adapters *adapters, const char *before, const char *after,
                           struct adapter_change **out, struct err *err) {
    struct adapter_path pair;
    if (!adapters && !before && !after) return STATUS_OK;
    if (!adapters)
        return err_set(err, STATUS_USAGE, "lora",
                       "the server was started without --max-loras, so it cannot load adapters");
    struct adapter_change *change = *out = mem_calloc(1, sizeof *change);
    enum status status = note_gone(before, after, change, err);
    for (size_t n; after && *after && !status; after += n + (after[n] == ',')) {
        n = strcspn(after, ",");
        if (n == 0 || list_has(before, after, n, false)) continue;
        status = read_pair(after, n, &pair, err);
        if (!status) status = stage(adapters, &pair, change, err);
    }
    return status;
}

void adapters_commit(struct adapters *adapters, struct adapter_change *change) {
    struct err err;
    if (!change) return;
    for (int i = 0; i < change->n; i++) {
        assert(!change->staged[i]->is_listed && change->staged[i]->n_users == 1);
        enlist(adapters, change->staged[i]);
        adapters_give_back(adapters, change->staged[i]);
    }
    for (int i = 0; i < change->n_gone; i++) adapters_unload(adapters, change->gone[i], &err);
    try_collect(adapters);
    mem_free(change);
}

void adapters_discard(struct adapters *adapters, struct adapter_change *change) {
    if (!change) return;
    pthread_mutex_lock(&adapters->mutex);
    for (int i = 0; i < change->n; i++) {
        change->staged[i]->n_users = 0;
        append(adapters, change->staged[i]);
    }
    pthread_mutex_unlock(&adapters->mutex);
    try_collect(adapters);
    mem_free(change);
}

enum status adapters_open(struct app *app, struct err *err) {
    const char *at = app->options->lora.adapters;
    enum status status = STATUS_OK;
    if (app->options->lora.may_load && !app->options->lora.folder)
        return err_set(err, STATUS_USAGE, "lora-dir",
                       "--enable-runtime-lora needs --lora-dir, the folder from which clients may "
                       "load adapters");
    if (engine_max_adapters(app->engine) == 0) return STATUS_OK;
    struct adapters *adapters = app->adapters = mem_calloc(1, sizeof *adapters);
    adapters->app = app;
    pthread_mutex_init(&adapters->loading, NULL);
    pthread_mutex_init(&adapters->mutex, NULL);
    adapters->for_api = (struct api_adapters){copy_named, copy_at, adapters};
    app->limits.adapters = &adapters->for_api;
    while (at && *at && !status) {
        size_t n = strcspn(at, ",");
        if (n > 0) status = load_stated(adapters, at, n, err);
        at += n + (at[n] == ',');
    }
    return status;
}

void adapters_close(struct app *app) {
    struct adapters *adapters = app->adapters;
    if (!adapters) return;
    for (struct served_adapter *a = adapters->first; a; a = a->next) {
        assert(a->n_users == 0);
        a->is_listed = false;
    }
    collect(adapters);
    assert(!adapters->first);
    pthread_mutex_destroy(&adapters->loading);
    pthread_mutex_destroy(&adapters->mutex);
    mem_free(adapters);
    app->adapters = NULL;
    app->limits.adapters = NULL;
}
