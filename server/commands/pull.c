/* Models by name: finds them for other commands, and pull, list and rm. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/commands/commands.h"
#include "server/hub/hub.h"

#define STEP_NS 100000000ull /* between two views of progress */

/* ---- fetching ------------------------------------------------------------------------------- */

/* The view of a pull. */
struct view {
    struct progress progress;
    uint64_t stepped_ns;
};

static void show_step(struct view *view, const struct hub_report *report) {
    uint64_t now = now_ns();
    if (now - view->stepped_ns < STEP_NS) return;
    view->stepped_ns = now;
    struct buf what = {0};
    buf_printf(&what, "%s, %.0f of %.0f MB", report->file, (double)report->done * 1e-6,
               (double)report->total * 1e-6);
    double total = report->total > 0 ? (double)report->total : 1;
    progress_step(&view->progress, what.data, (double)report->done / total);
    buf_free(&what);
}

static void on_report(void *arg, const struct hub_report *report) {
    struct view *view = arg;
    if (report->event == HUB_STEP) {
        show_step(view, report);
        return;
    }
    progress_end(&view->progress);
    view->progress.shown_ns = 0;
    if (report->event == HUB_FETCHED)
        log_line(LOG_INFO, "fetched %s", report->file);
    else if (report->event == HUB_RETRY)
        log_line(LOG_WARNING, "%s; trying again", report->note);
    else if (report->event == HUB_WAIT)
        log_line(LOG_INFO, "another process fetches %s; waiting for it", report->file);
}

static enum status pull(struct hub_settings *settings, const struct options *options,
                        const struct hub_name *name, struct buf *path, struct err *err) {
    struct view view = {0};
    bool rewrites = options->log.format == LOG_TEXT && terminal_has_codes(STDERR_FILENO);
    settings->report = on_report;
    settings->report_arg = &view;
    progress_begin(&view.progress, "fetching", rewrites);
    enum status status = hub_pull(settings, name, path, err);
    progress_end(&view.progress);
    return status;
}

/* ---- models of other commands --------------------------------------------------------------- */

/* Is the first part of the text the name of a folder? Then the text is a path with a mistake, and
 * not a name to fetch. */
static bool begins_with_folder(const char *text) {
    struct stat info;
    char *folder = mem_strdup(text);
    folder[strcspn(folder, "/")] = 0;
    bool is_there = stat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    mem_free(folder);
    return is_there;
}

/* Can the text be a name? A path that is there always wins; so does "models/file.gguf". */
static bool is_name(const char *text, struct hub_name *name) {
    struct stat info;
    struct err err;
    if (stat(text, &info) == 0 || (errno != ENOENT && errno != ENOTDIR)) return false;
    if (hub_name_parse(name, text, &err)) return false;
    size_t n = strlen(name->repo);
    return n < 5 || strcasecmp(name->repo + n - 5, ".gguf") != 0;
}

static enum status fetch_missing(struct hub_settings *settings, const struct options *options,
                                 const struct hub_name *name, struct buf *path, struct err *err) {
    if (!settings->offline)
        log_line(LOG_INFO, "%s is not in %s; fetching it from %s", name->repo, settings->cache,
                 settings->endpoint);
    return pull(settings, options, name, path, err);
}

/* Appends the path of the model if the text is a name; otherwise the path stays empty. Returns the
 * exit code. */
static int find_model(const struct options *options, const char *text, struct buf *path) {
    struct hub_settings settings;
    struct hub_name name;
    struct err err;
    int code = 0;
    if (!is_name(text, &name)) return 0;
    if (hub_settings_read(&settings, options->hub.folder, options->hub.offline, &err)) {
        code = print_error(&err);
    } else if (!hub_find(&settings, &name, path) && !begins_with_folder(text) &&
               fetch_missing(&settings, options, &name, path, &err)) {
        print_failure("%s is no file or folder here, and as a name on a model hub it cannot be "
                      "used either:",
                      text);
        code = print_error(&err);
        print_models_near(".");
    }
    hub_settings_free(&settings);
    return code;
}

/* The names of the model in the API are the stated ones, or else that of --model. */
static int find_main(struct options *options) {
    struct buf path = {0};
    const char *stated = options->engine.model;
    int code = find_model(options, stated, &path);
    if (path.length > 0) {
        options->engine.model = options_keep(options, path.data);
        if (!options->api.served_model_name) options->api.served_model_name = stated;
    }
    buf_free(&path);
    return code ? code : model_path_check(options->engine.model);
}

static int find_draft(struct options *options) {
    struct speculation *speculation = &options->scheduler.speculation;
    struct buf path = {0};
    int code = find_model(options, speculation->model, &path);
    if (path.length >= sizeof speculation->model) {
        print_failure("the path %s of the draft model is too long; move --models-dir", path.data);
        code = 1;
    } else if (path.length > 0) {
        memcpy(speculation->model, path.data, path.length + 1);
    }
    buf_free(&path);
    return code ? code : model_path_check(speculation->model);
}

int find_models(struct options *options) {
    int code = find_main(options);
    const enum speculation_method method = options->scheduler.speculation.method;
    bool drafts = method == SPECULATION_DRAFT_MODEL || method == SPECULATION_EAGLE3;
    return code == 0 && drafts ? find_draft(options) : code;
}

/* ---- the commands --------------------------------------------------------------------------- */

/* Reads the settings and the command's argument, if it has one. Returns the exit code. */
static int begin(const struct options *options, struct hub_settings *settings,
                 struct hub_name *name) {
    struct err err;
    enum status status =
        hub_settings_read(settings, options->hub.folder, options->hub.offline, &err);
    if (!status && options->n_arguments > 0)
        status = hub_name_parse(name, options->arguments[0], &err);
    return status ? print_error(&err) : 0;
}

int command_pull(struct options *options) {
    struct hub_settings settings;
    struct hub_name name;
    struct buf path = {0};
    struct err err;
    int code = begin(options, &settings, &name);
    bool is_there = code == 0 && settings.offline && hub_find(&settings, &name, &path);
    if (code == 0 && !is_there && pull(&settings, options, &name, &path, &err))
        code = print_error(&err);
    if (code == 0) printf("%s\n", path.data);
    buf_free(&path);
    hub_settings_free(&settings);
    return code;
}

static void print_model(void *arg, const struct hub_model *model) {
    int *n = arg;
    char day[16] = "";
    time_t changed = (time_t)model->changed_s;
    struct tm parts;
    if (gmtime_r(&changed, &parts)) strftime(day, sizeof day, "%Y-%m-%d", &parts);
    printf("%10.1f MB  %s  ", (double)model->bytes * 1e-6, day);
    print_text(model->name, strlen(model->name));
    printf("%s\n", model->whole ? "" : "  (incomplete: pull it again)");
    ++*n;
}

int command_list(struct options *options) {
    struct hub_settings settings;
    struct hub_name name;
    int n = 0, code = begin(options, &settings, &name);
    if (code == 0) hub_list(&settings, print_model, &n);
    if (code == 0 && n == 0) fprintf(stderr, "No models in %s.\n", settings.cache);
    hub_settings_free(&settings);
    return code;
}

int command_rm(struct options *options) {
    struct hub_settings settings;
    struct hub_name name;
    struct err err;
    int64_t bytes;
    int code = begin(options, &settings, &name);
    if (code == 0 && hub_remove(&settings, &name, &bytes, &err)) code = print_error(&err);
    if (code == 0) printf("%s: %.1f MB deleted\n", options->arguments[0], (double)bytes * 1e-6);
    hub_settings_free(&settings);
    return code;
}
