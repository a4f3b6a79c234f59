/* server/commands: the function of each `penstock <command>`. Internal to server/.
 *
 * Each function gets the parsed options, runs to the end, prints errors to standard error, and
 * returns the exit code: 0 success, 1 a file, port or model cannot be used, 2 the options are
 * invalid, 3 the device failed while running. `verify` has further codes (verify.c).
 */
#ifndef PENSTOCK_SERVER_COMMANDS_H
#define PENSTOCK_SERVER_COMMANDS_H

#include <pthread.h>

#include "engine/grammar/grammar.h"
#include "server/options/options.h"

struct app;

enum { EXIT_DEVICE_FAILED = 3 };

int command_serve(struct options *options);
int command_batch(struct options *options);
int command_run(struct options *options);
int command_bench(struct options *options);
int command_inspect(struct options *options);
int command_quantize(struct options *options);
int command_tokenize(struct options *options);
int command_parse(struct options *options);
int command_grammar(struct options *options);
int command_version(struct options *options);
int command_verify(struct options *options);
int command_pull(struct options *options);
int command_list(struct options *options);
int command_rm(struct options *options);
int command_health(struct options *options);

/* ---- open_engine.c -------------------------------------------------------------------------- */

/* Opens the engine, or prints an error. Returns the exit code. Shows progress if it takes over a
 * second. */
int open_engine(struct engine **engine, const struct options *options);

/* Plans serving the model without loading its weights. Sets *memory to the plan. */
enum status check_engine(struct engine_memory *memory, const struct options *options,
                         struct err *err);

/* Opens the engine of the draft model for an opened engine, or prints an error, such as lack of
 * memory or another vocabulary. Sets *draft to NULL if the options name no draft model. Returns the
 * exit code. The draft engine must outlive the scheduler. */
int open_draft_engine(struct engine **draft, const struct engine *engine,
                      const struct options *options);

/* ---- follow.c: a rank of its own ------------------------------------------------------------- */

/* Serves as a rank above 0 of options->engine.peers until rank 0 ends. Returns rank 0's exit code,
 * or EXIT_DEVICE_FAILED if another rank is lost. */
int follow_rank(struct options *options);
/* Rank 0, after find_models: lets the other ranks begin. Does nothing without any. */
void call_ranks(const struct options *options);

/* ---- open_app.c: parts of a server ---------------------------------------------------------- */

/* Opens scheduler, loop and HTTP for an app whose engine, options and model_name are set. uv_run of
 * its loop then serves until lifecycle.c stops it. The caller keeps the engine. Call app_close
 * afterwards, even on failure. */
enum status app_open(struct app *app, struct err *err);
void app_close(struct app *app);

/* ---- reload.c: settings that are read again ------------------------------------------------- */

/* Prepares the app for SIGHUP: app->on_hangup is reload_start. `options` are the app's. Fails like
 * options_parse. */
enum status reload_open(struct app *app, struct options *options, struct err *err);

/* Frees it. No reload may run: the loop has ended all work. */
void reload_close(struct app *app);

/* Is a reload running? Loop thread. */
bool reload_runs(const struct app *app);

/* Reads the settings again, on a worker, and puts them in place if all are valid. Loop thread. */
void reload_start(struct app *app);

/* ---- replay.c: a server without a model ------------------------------------------------------ */

/* Serves the recorded answers of app->cassette until a signal. Returns the exit code. */
int replay_serve(struct app *app);

/* ---- console.c ------------------------------------------------------------------------------ */

/* Prints "penstock: message", with flags for the settings in it, and returns the exit code for the
 * status. */
int print_error(const struct err *err);

/* Writes a model's text to standard output. On a terminal, control characters are escaped;
 * otherwise the bytes are unchanged. The text must hold whole characters. */
void print_text(const char *text, size_t length);

/* Waits for a signal of the condition, at most 0.1 s, so that the caller notices an interrupt. The
 * caller must hold the mutex. */
void wait_briefly(pthread_cond_t *condition, pthread_mutex_t *mutex);

/* ---- interrupt.c ---------------------------------------------------------------------------- */

/* Appends standard input up to its end or to a caught signal. The text is NUL-terminated even if
 * empty. On a terminal, prints how to end the input. Returns an exit code, after printing any
 * error. */
int read_input(struct buf *text);

/* ---- grammar_file.c ------------------------------------------------------------------------- */

/* Reads a file that holds a grammar. `file` states its kind; if that is auto, the kind follows from
 * its name and content, or is `otherwise`. The caller frees the text. Returns an exit code, after
 * printing any error. */
int grammar_file_read(const char *path, enum grammar_file file, enum grammar_kind otherwise,
                      struct buf *text, enum grammar_kind *kind);

/* The progress of a start or a pull. Used by one thread. */
struct progress {
    const char *verb;            /* "loading" */
    bool rewrites;               /* one line, overwritten; otherwise log lines */
    uint64_t began_ns, shown_ns; /* shown_ns 0: not yet shown */
    uint64_t reported_ns;        /* last report to the service manager */
};

/* Begins to show progress. */
void progress_begin(struct progress *progress, const char *verb, bool rewrites);

/* Shows that `part` (0..1) of `what` is done, unless it is too early. This is the engine's
 * callback; `arg` is the struct progress. */
void progress_step(void *arg, const char *what, double part);

/* Erases the progress from the terminal. */
void progress_end(struct progress *progress);

/* ---- pull.c --------------------------------------------------------------------------------- */

/* Finds the models of a command before any is opened. A --model or a draft model that is no path
 * but a name becomes the path of the model in the cache, and is fetched if it is not there. Returns
 * the exit code, after explaining why a path is no model. */
int find_models(struct options *options);

/* ---- model_path.c --------------------------------------------------------------------------- */

/* Explains on standard error why a path is not a model that the engine can open, and how to fix it.
 * Returns the exit code; 0 if it printed nothing. */
int model_path_check(const char *path);

/* Prints what a model is, how to get one, and the model files in `folder`, in the current folder
 * and in models/. */
void print_models_near(const char *folder);

#endif
