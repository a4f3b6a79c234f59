/* server/commands: what `penstock <command>` does, one function a command. Internal to server/.
 *
 * Each gets the parsed options, does its work to the end, prints errors on standard error, and
 * returns the exit code: 0 done, 1 a file, port or model that cannot be used, 2 options that cannot
 * be right, 3 a device that has failed at work.
 */
#ifndef PENSTOCK_SERVER_COMMANDS_H
#define PENSTOCK_SERVER_COMMANDS_H

#include "scheduler/scheduler.h"

enum { EXIT_DEVICE_FAILED = 3 };

int command_serve(const struct options *options);
int command_batch(const struct options *options);
int command_run(const struct options *options);
int command_bench(const struct options *options);
int command_inspect(const struct options *options);
int command_tokenize(const struct options *options);
int command_version(const struct options *options);

/* ---- open.c: what the commands share -------------------------------------------------------- */

/* The engine's settings from the options; the progress bar is drawn on a terminal when something
 * takes over a second. */
struct engine_config engine_config_from(const struct options *options);

/* Opens the engine, or prints why not. Returns the exit code. */
int open_engine(struct engine **engine, const struct options *options);

/* The scheduler's settings for an opened engine. */
struct scheduler_config scheduler_config_from(const struct options *options,
                                              const struct engine *engine);

/* Prints "penstock: message" and returns the exit code that fits the status. */
int print_error(const struct err *err);

#endif
