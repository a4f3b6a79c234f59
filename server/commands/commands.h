/* server/commands: what `penstock <command>` does, one function a command. Internal to server/.
 *
 * Each gets the parsed options, runs to the end, prints errors to standard error, and returns the
 * exit code: 0 success, 1 a file, port or model cannot be used, 2 the options are invalid, 3 the
 * device failed while running.
 */
#ifndef PENSTOCK_SERVER_COMMANDS_H
#define PENSTOCK_SERVER_COMMANDS_H

#include <pthread.h>

#include "scheduler/scheduler.h"

enum { EXIT_DEVICE_FAILED = 3 };

int command_serve(const struct options *options);
int command_batch(const struct options *options);
int command_run(const struct options *options);
int command_bench(const struct options *options);
int command_inspect(const struct options *options);
int command_tokenize(const struct options *options);
int command_version(const struct options *options);

/* ---- engine_settings.c: what the commands share --------------------------------------------- */

/* The engine's settings from the options. On a terminal, a progress bar is drawn if loading takes
 * over a second. */
struct engine_config engine_config_from(const struct options *options);

/* Opens the engine, or prints why not. Returns the exit code. */
int open_engine(struct engine **engine, const struct options *options);

/* The scheduler's settings for an opened engine. */
struct scheduler_config scheduler_config_from(const struct options *options,
                                              const struct engine *engine);

/* Prints "penstock: message" and returns the exit code for the status. */
int print_error(const struct err *err);

/* Appends all of standard input; the text is NUL-terminated even if empty. */
void read_input(struct buf *text);

/* Waits for a signal of the condition, but at most a tenth of a second, so that the caller notices
 * an interrupt. The caller holds the mutex. */
void wait_briefly(pthread_cond_t *condition, pthread_mutex_t *mutex);

#endif
