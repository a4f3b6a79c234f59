/* server/app/supervisor: a service manager, its sockets and watchdog, --exit-when-idle, and reports
 * of --unload-when-idle. On the loop thread, except where a comment names another. Internal to
 * server/. */
#ifndef PENSTOCK_SERVER_SUPERVISOR_H
#define PENSTOCK_SERVER_SUPERVISOR_H

#include "scheduler/scheduler.h"

struct app;

/* Takes the listening sockets that the manager has passed into app->sockets. Fails with
 * STATUS_USAGE if there are more than HTTP_MAX_SOCKETS. */
enum status supervisor_sockets(struct app *app, struct err *err);

/* Reports that `part` (0 to 1) of `what` is loaded, so that the manager waits for a long start. */
void supervisor_loading(const char *what, double part);

void supervisor_init(struct app *app);
void supervisor_close(struct app *app); /* after the loop has stopped */

/* Reports that the port is open. Starts the watchdog and the time of --exit-when-idle. */
void supervisor_ready(struct app *app);

/* The scheduler's on_model, on the engine thread: reports and logs that the model was unloaded, is
 * being loaded, is loaded, or could not be. */
void supervisor_model(void *app, enum model_state state, const struct err *err);

/* Reports that a shutdown begins, and how long it may take. */
void supervisor_stopping(const struct app *app);

/* Report that settings are read again, and that this has ended. Loop thread. */
void supervisor_reloading(void);
void supervisor_reloaded(const struct app *app);

/* Called when a request other than a probe begins or ends. */
void supervisor_touch(struct app *app);

/* Is there work although the engine has not finished a step for longest_ns? */
bool supervisor_is_stuck(const struct app *app, uint64_t longest_ns);

#endif
