/* server/commands: what `penstock <command>` does, one function a command. Internal to server/.
 *
 * Each gets the parsed options, runs to the end, prints errors to standard error, and returns the
 * exit code: 0 success, 1 a file, port or model cannot be used, 2 the options are invalid, 3 the
 * device failed while running.
 */
#ifndef PENSTOCK_SERVER_COMMANDS_H
#define PENSTOCK_SERVER_COMMANDS_H

#include <pthread.h>

#include "engine/grammar/grammar.h"
#include "scheduler/scheduler.h"

enum { EXIT_DEVICE_FAILED = 3 };

int command_serve(const struct options *options);
int command_batch(const struct options *options);
int command_run(const struct options *options);
int command_bench(const struct options *options);
int command_inspect(const struct options *options);
int command_quantize(const struct options *options);
int command_tokenize(const struct options *options);
int command_parse(const struct options *options);
int command_grammar(const struct options *options);
int command_version(const struct options *options);

/* ---- engine_settings.c: what the commands share --------------------------------------------- */

/* The engine's settings from the options. */
struct engine_config engine_config_from(const struct options *options);

/* Opens the engine, or prints why not. Returns the exit code. If it takes over a second, its
 * progress is shown. */
int open_engine(struct engine **engine, const struct options *options);

/* Looks at what can be wrong with a draft model before any model is opened: its path, the device.
 * Returns the exit code, after an error was printed. */
int check_drafts(const struct options *options);

/* Opens the engine of the draft model beside an opened one, or prints why not: no memory, another
 * vocabulary. NULL if none was asked for. Returns the exit code. It must outlive the scheduler. */
int open_draft_engine(struct engine **draft, const struct engine *engine,
                      const struct options *options);

/* The scheduler's settings for an opened engine. */
struct scheduler_config scheduler_config_from(const struct options *options,
                                              const struct engine *engine);

/* Prints "penstock: message" and returns the exit code for the status. */
int print_error(const struct err *err);

/* Writes text of a model's to standard output. On a terminal, characters that would steer it are
 * shown and not obeyed; elsewhere the bytes are as they are. The text holds whole characters. */
void print_text(const char *text, size_t length);

/* Waits for a signal of the condition, but at most a tenth of a second, so that the caller notices
 * an interrupt. The caller holds the mutex. */
void wait_briefly(pthread_cond_t *condition, pthread_mutex_t *mutex);

/* ---- interrupt.c ---------------------------------------------------------------------------- */

/* Appends all of standard input, or what comes before a signal that is caught; the text is
 * NUL-terminated even if empty. On a terminal it says how to end it. Returns an exit code, after an
 * error was printed. */
int read_input(struct buf *text);

/* ---- grammar_file.c ------------------------------------------------------------------------- */

/* Reads a file that holds a grammar; `file` says of which kind, or its name and content, or it is
 * `otherwise`. The text is the caller's to free. Returns an exit code, after an error was
 * printed. */
int grammar_file_read(const char *path, enum grammar_file file, enum grammar_kind otherwise,
                      struct buf *text, enum grammar_kind *kind);

/* ---- progress.c ----------------------------------------------------------------------------- */

/* How far a start is; one thread. */
struct progress {
    bool rewrites;               /* one line, written over again; otherwise log lines */
    uint64_t began_ns, shown_ns; /* shown_ns 0: nothing was shown yet */
};

/* A start begins now. */
void progress_begin(struct progress *progress, bool rewrites);

/* Shows that `part` (0..1) of `what` is loaded, unless it is too early to say anything. `arg` is
 * the struct progress: this is the engine's callback. */
void progress_step(void *arg, const char *what, double part);

/* Removes from the terminal what was shown. */
void progress_end(struct progress *progress);

/* ---- model_path.c --------------------------------------------------------------------------- */

/* Prints what is wrong with a --model that is no file which the engine could open, and what would
 * be right. Returns the exit code, 0 if nothing was printed. */
int model_path_check(const struct options *options);

/* Prints what a model is, how to get one, and the model files in the folder, here and in
 * models/. */
void print_models_near(const char *folder);

#endif
