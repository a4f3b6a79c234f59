/* DESIGN: SIGHUP of a server without a controlling terminal: keys, limits of keys, origins,
 * adapters and the log level are read again, all or nothing.
 *
 *   reload_start   loop    the manager hears RELOADING
 *   read_all       worker  reads options and keys again, compares the other options with those of
 *                          the start, and loads new adapters, which are not listed yet
 *   end            loop    puts everything in place in one turn, or drops it all and logs why;
 *                          the manager hears READY
 *
 * A signal during a reload starts another one after it. A server that drains drops the result.
 * Requests that run keep their adapter. They also keep the entry of their key: the lists that were
 * replaced are freed at a later reload at which no request runs, or at the end.
 */
#include <assert.h>

#include "server/app/adapters.h"
#include "server/app/app.h"
#include "server/commands/commands.h"

struct reload {
    struct app *app;
    struct options *live;  /* the server's */
    struct options stated; /* as read last; the live ones have resolved paths */
    uv_work_t work;
    bool is_running, is_wanted; /* wanted: once more, after the running one */
    /* the result of the worker */
    enum status status;
    struct err err;
    struct options fresh;
    struct key_lists *lists;
    struct buf why; /* the message, if it failed */
    struct adapter_change *adapters;
};

/* ---- worker --------------------------------------------------------------------------------- */

static enum status check_fixed(struct reload *reload) {
    const char *name = options_fixed_change(&reload->stated, &reload->fresh);
    if (!name) return STATUS_OK;
    return err_set(&reload->err, STATUS_USAGE, name,
                   "--%s has changed, and only a restart can apply it", name);
}

/* Without its last key a server would be open to everyone. */
static enum status check_open(struct reload *reload) {
    const struct app *app = reload->app;
    bool opens = (app->keys.n > 0 && reload->lists->keys.n == 0) ||
                 (app->metrics_keys.n > 0 && reload->lists->metrics_keys.n == 0);
    if (!opens) return STATUS_OK;
    return err_set(&reload->err, STATUS_USAGE, "api-key",
                   "the last key is gone, and only a restart opens a server to everyone");
}

static void read_in_scope(void *arg) {
    struct reload *reload = arg;
    struct err *err = &reload->err;
    enum status status = options_read_again(&reload->stated, &reload->fresh, err);
    if (!status) status = check_fixed(reload);
    reload->lists = mem_calloc(1, sizeof *reload->lists);
    if (!status) status = auth_read(&reload->fresh, reload->lists, err);
    if (!status) status = check_open(reload);
    if (!status)
        status = adapters_stage(reload->app->adapters, reload->stated.lora.adapters,
                                reload->fresh.lora.adapters, &reload->adapters, err);
    reload->status = status;
    if (status) options_message(err->message, &reload->why);
}

/* The scope has freed the blocks. */
static void undo_read(void *arg) {
    struct reload *reload = arg;
    reload->fresh = (struct options){0};
    reload->why = (struct buf){0};
    reload->lists = NULL;
    reload->adapters = NULL;
    reload->status = err_out_of_memory(&reload->err);
}

static void read_all(uv_work_t *work) {
    mem_run(read_in_scope, undo_read, work->data);
}

/* ---- loop ----------------------------------------------------------------------------------- */

/* Allocates nothing, so it cannot fail half-way. */
static void commit(struct reload *reload) {
    struct options *live = reload->live;
    live->access.cors_origins = reload->fresh.access.cors_origins;
    live->log.level = reload->fresh.log.level;
    log_set_level(live->log.level);
    auth_replace(reload->app, reload->lists);
    adapters_commit(reload->app->adapters, reload->adapters);
    options_free(&reload->stated); /* the live options do not point to it any more */
    reload->stated = reload->fresh;
    log_line(LOG_INFO, "keys, limits, origins, adapters and log level are read again");
}

static void discard(struct reload *reload, const char *why) {
    log_line(LOG_ERROR, "nothing is read again: %s", why);
    adapters_discard(reload->app->adapters, reload->adapters);
    if (reload->lists) key_lists_free(reload->lists);
    mem_free(reload->lists);
    options_free(&reload->fresh);
}

static void end(uv_work_t *work, int status) {
    struct reload *reload = work->data;
    struct app *app = reload->app;
    bool is_ending = app->draining || app->failure.status;
    assert(status == 0 && reload->is_running);
    (void)status;
    reload->is_running = false;
    if (reload->status)
        discard(reload, reload->why.data ? reload->why.data : reload->err.message);
    else if (is_ending)
        discard(reload, "the server ends");
    else
        commit(reload);
    buf_free(&reload->why);
    if (is_ending) return;
    supervisor_reloaded(app);
    if (reload->is_wanted) reload_start(app);
}

bool reload_runs(const struct app *app) {
    assert(app->reload);
    return app->reload->is_running;
}

void reload_start(struct app *app) {
    struct reload *reload = app->reload;
    assert(reload && !app->draining);
    reload->is_wanted = reload->is_running;
    if (reload->is_running) return;
    supervisor_reloading();
    reload->is_running = true;
    reload->fresh = (struct options){0};
    reload->lists = NULL;
    reload->adapters = NULL;
    reload->err = (struct err){0};
    reload->work.data = reload;
    uv_queue_work(&app->loop, &reload->work, read_all, end);
}

/* ---- life ----------------------------------------------------------------------------------- */

enum status reload_open(struct app *app, struct options *options, struct err *err) {
    struct reload *reload = mem_calloc(1, sizeof *reload);
    reload->app = app;
    reload->live = options;
    app->reload = reload;
    app->on_hangup = reload_start;
    return options_read_again(options, &reload->stated, err);
}

void reload_close(struct app *app) {
    struct reload *reload = app->reload;
    if (!reload) return;
    assert(!reload_runs(app));
    options_free(&reload->stated);
    mem_free(reload);
    app->reload = NULL;
    app->on_hangup = NULL;
}
