/* server/offline: the commands that answer requests without a server, `batch` and `verify`. For
 * this folder only. Both use the code that serves HTTP: jobs without clients, and the scheduler.
 * The main thread handles the events; only the engine has other threads.
 */
#ifndef PENSTOCK_SERVER_OFFLINE_H
#define PENSTOCK_SERVER_OFFLINE_H

#include "server/app/app.h"

/* Finds the models, and opens engine, limits, grammars and scheduler for an app whose options are
 * set and whose bridge notifies the caller. Returns the exit code, after printing any error. Call
 * offline_close afterwards, even on failure. */
int offline_open(struct app *app, struct options *options);

/* Closes them, and the bridge. */
void offline_close(struct app *app);

#endif
