/* server/bench_served: `penstock bench` with the whole server around the engine. Internal to
 * server/. */
#ifndef PENSTOCK_SERVER_BENCH_SERVED_H
#define PENSTOCK_SERVER_BENCH_SERVED_H

#include "engine/engine.h"

/* Serves each batch over HTTP, on a port of its own on 127.0.0.1, and prints its speed and what the
 * time of its steps went to. Returns the exit code. */
int bench_served(struct engine *engine, const struct options *options, const int *batches, int n);

#endif
