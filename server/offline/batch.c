/* DESIGN: `penstock batch` reads a file of requests and writes a file of their responses.
 *
 *   read_one         reads, checks, tokenises and submits a line; called until enough are open
 *   bridge_on_...    engine thread: appends a step's events, signals
 *   handle_events    waits for events; a line's last event writes its response and frees it
 *
 * Only the bridge runs outside of the main thread. A line is a job without a client: the code that
 * serves HTTP parses it, prepares it and writes its response, and it goes to the same scheduler.
 * Enough lines are open to fill every step of the engine while more are read. This window and the
 * longest line bound the memory, not the size of the file. Responses are written in the order in
 * which they finish. A signal cancels the open lines; they get no response, and the next run
 * computes them.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/apis/apis.h"
#include "server/commands/commands.h"
#include "server/generation/job.h"
#include "server/offline/batch.h"
#include "server/offline/offline.h"

/* Limit on the input bytes of open lines. A single line may be longer. */
#define WINDOW_BYTES ((size_t)64 << 20)

/* The window in units of a step's sequences, so that waiting sequences replace finished ones. */
#define WINDOW_STEPS 2

#define PROGRESS_NS 10000000000ull

/* More than the maximum number of prompts per request. With --seed, the seeds of a line count up
 * from its number times this. */
#define SEEDS_PER_LINE 1024

/* A line of the input whose response is not yet written. */
struct batch_line {
    struct generation_job job;
    struct batch_job *batch;
    struct list_node node; /* in batch->lines */
    int64_t number;
    struct buf custom_id;
    size_t bytes;
    bool dropped; /* its response is not written */
};

struct batch_job {
    struct app app;         /* must be first: engine, scheduler, limits, and the bridge */
    pthread_cond_t arrived; /* with app.mutex */
    FILE *input;
    struct buf text; /* of the last line read */
    bool too_long;   /* that line is longer than the limit */
    int64_t number;  /* its number, from 1 */
    int64_t input_bytes, read_bytes;
    struct batch_output output;
    struct list lines; /* open ones */
    int n_sequences;   /* sequences of the open lines */
    size_t bytes;
    bool ended, stopping; /* end of input reached; no more lines are read */
    int64_t n_answered, n_refused, n_skipped;
    int64_t prompt_tokens, output_tokens;
    uint64_t started_ns, reported_ns;
    struct err err; /* the error that stopped the batch; STATUS_OK if none, or if interrupted */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

/* ---- responses ------------------------------------------------------------------------------ */

static void cancel_all(struct batch_job *batch) {
    batch->stopping = true;
    list_each(node, &batch->lines) {
        struct batch_line *line = list_entry(node, struct batch_line, node);
        line->dropped = true;
        job_cancel(&line->job);
    }
}

static void stop(struct batch_job *batch, const struct err *err) {
    if (!batch->err.status) batch->err = *err;
    cancel_all(batch);
}

static void write_line(struct batch_job *batch, const struct buf *text, bool refused) {
    assert(text->length > 0);
    struct err err;
    if (batch_output_write(&batch->output, text, &err)) {
        stop(batch, &err);
    } else {
        batch->n_answered++;
        batch->n_refused += refused;
    }
}

/* Writes the error of a line that is not a valid request or repeats a custom_id. */
static void refuse_line(struct batch_job *batch, const struct err *err) {
    struct buf text = {0};
    api_batch_write_error(&text, batch->number, err);
    write_line(batch, &text, true);
    buf_free(&text);
}

static void answer_refused(struct batch_job *batch, int64_t number, const struct buf *custom_id,
                           const char *request_id, const struct err *err) {
    assert(err->status);
    struct buf body = {0}, text = {0};
    api_write_error(&body, err);
    api_batch_write_response(&text, number, custom_id, status_http(err->status), request_id,
                             &(struct buf){0}, &body);
    write_line(batch, &text, true);
    buf_free(&body);
    buf_free(&text);
}

static void answer(struct batch_job *batch, struct batch_line *line) {
    struct generation_job *job = &line->job;
    if (job->err.status) {
        answer_refused(batch, line->number, &line->custom_id, job->id, &job->err);
        return;
    }
    struct buf body = {0}, text = {0};
    job_write_response(job, &body);
    api_batch_write_response(&text, line->number, &line->custom_id, 200, job->id, &job->ignored,
                             &body);
    write_line(batch, &text, false);
    buf_free(&body);
    buf_free(&text);
    batch->prompt_tokens += job->prompt_tokens;
    batch->output_tokens += job->completion_tokens;
}

static int sequences_of(const struct batch_line *line) {
    return line->job.request ? line->job.n_prompts * line->job.request->best_of : 0;
}

/* Called when the line's computation has ended. */
static void end_line(struct batch_job *batch, struct batch_line *line) {
    assert(line->job.n_running == 0);
    if (!line->dropped) answer(batch, line);
    list_remove(&batch->lines, &line->node);
    batch->n_sequences -= sequences_of(line);
    batch->bytes -= line->bytes;
    job_clear(&line->job);
    buf_free(&line->custom_id);
    mem_free(line);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void on_idle(struct generation_job *job) {
    struct batch_line *line = list_entry(job, struct batch_line, job);
    end_line(line->batch, line);
}

static const struct job_listener listener = {.on_idle = on_idle};

static void submit(struct generation_job *job) {
    if (job->err.status) return;
    if (job->request->stream) {
        err_set(&job->err, STATUS_INVALID_REQUEST, "stream",
                "'stream' must not be true in a batch.");
    } else {
        job_submit(job, now_ns()); /* sets job->err on failure */
    }
}

/* Opens a line. Takes ownership of the parsed data. */
static void begin_line(struct batch_job *batch, struct api_batch_line *parsed) {
    assert(parsed->api && parsed->body);
    struct batch_line *line = mem_calloc(1, sizeof *line);
    *line = (struct batch_line){.job = {&batch->app, parsed->api, &listener},
                                .batch = batch,
                                .number = batch->number,
                                .custom_id = parsed->custom_id,
                                .bytes = batch->text.length};
    parsed->custom_id = (struct buf){0};
    list_append(&batch->lines, &line->node);
    atomic_store(&batch->app.n_seeds, (uint64_t)batch->number * SEEDS_PER_LINE);
    job_prepare(&line->job, parsed->body);
    parsed->body = NULL;
    batch->n_sequences += sequences_of(line);
    batch->bytes += line->bytes;
    submit(&line->job);
    if (line->job.n_running == 0) end_line(batch, line);
}

/* Must the line be computed? It need not be if the output file already answers it. A repeated
 * custom_id gets an error. */
static bool is_wanted(struct batch_job *batch, const struct buf *custom_id) {
    struct buf key = {0};
    api_batch_key(&key, batch->number, custom_id);
    enum batch_known known = batch_output_note(&batch->output, &key);
    buf_free(&key);
    if (known == BATCH_ANSWERED) batch->n_skipped++;
    if (known != BATCH_REPEATED) return known == BATCH_NEW;
    if (!is_wanted(batch, &(struct buf){0})) return false;
    struct err err;
    err_set(&err, STATUS_INVALID_REQUEST, "custom_id",
            "Line %lld: the custom_id %.100s was used before.", (long long)batch->number,
            custom_id->data);
    strcpy(err.code, "duplicate_custom_id");
    refuse_line(batch, &err);
    return false;
}

static void handle_line(struct batch_job *batch) {
    struct api_batch_line parsed;
    struct err err;
    enum status status = api_batch_parse(&parsed, batch->text.data, batch->text.length, &err);
    bool named = parsed.custom_id.length > 0;
    if (!is_wanted(batch, &parsed.custom_id)) {
        /* skip the line */
    } else if (status && named) {
        answer_refused(batch, batch->number, &parsed.custom_id, "", &err);
    } else if (status) {
        struct err placed = err;
        err_set(&placed, status, NULL, "Line %lld: %s", (long long)batch->number, err.message);
        refuse_line(batch, &placed);
    } else {
        begin_line(batch, &parsed);
    }
    api_batch_free(&parsed);
}

/* ---- the input ------------------------------------------------------------------------------ */

/* Reads a line without its line end. Only its first --max-body-size bytes are kept. Returns false
 * at the end of the input. */
static bool read_line(struct batch_job *batch) {
    const size_t max = (size_t)batch->app.options->http.max_body_bytes;
    int c, n = 0;
    buf_clear(&batch->text);
    batch->too_long = false;
    while ((c = getc_unlocked(batch->input)) != EOF) {
        char byte = (char)c;
        n = 1;
        batch->read_bytes++;
        if (byte == '\n') break;
        batch->too_long |= batch->text.length == max;
        if (!batch->too_long) buf_add(&batch->text, &byte, 1);
    }
    return n > 0;
}

static void read_one(struct batch_job *batch) {
    struct err err;
    if (!read_line(batch)) {
        batch->ended = true;
        if (!ferror(batch->input)) return;
        err_set(&err, STATUS_BAD_FILE, "input-file", "%s: %s", batch->app.options->batch.input_file,
                strerror(errno));
        stop(batch, &err);
        return;
    }
    batch->number++;
    struct buf *text = &batch->text;
    if (batch->number == 1 && text->length >= 3 && memcmp(text->data, "\xEF\xBB\xBF", 3) == 0) {
        text->length -= 3; /* the byte order mark of Windows editors; not valid in JSON */
        memmove(text->data, text->data + 3, text->length + 1);
    }
    if (batch->too_long) {
        err_set(&err, STATUS_TOO_LARGE, NULL, "Line %lld is longer than %lld bytes.",
                (long long)batch->number, (long long)batch->app.options->http.max_body_bytes);
        if (is_wanted(batch, &(struct buf){0})) refuse_line(batch, &err);
    } else if (text->length > 0 && strspn(text->data, " \t\r") < text->length) {
        handle_line(batch);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static void notify(struct app *app) {
    pthread_cond_signal(&((struct batch_job *)app)->arrived);
}

static void handle_events(struct batch_job *batch) {
    struct app *app = &batch->app;
    struct err failure;
    pthread_mutex_lock(&app->mutex);
    if (app->arrived.n == 0) wait_briefly(&batch->arrived, &app->mutex);
    bridge_receive(app, &failure);
    pthread_mutex_unlock(&app->mutex);
    if (failure.status && !app->failure.status) {
        app->failure = failure;
        stop(batch, &failure);
    }
    for (int i = 0; i < app->received.n; i++) job_event(&app->received.events[i]);
}

/* ---- the command ---------------------------------------------------------------------------- */

static void report(struct batch_job *batch, const char *what) {
    double seconds = (double)(now_ns() - batch->started_ns) * 1e-9;
    struct log_field fields[] = {
        LOG_I("answered", batch->n_answered),
        LOG_I("refused", batch->n_refused),
        LOG_I("answered_before", batch->n_skipped),
        LOG_I("open", batch->lines.n),
        LOG_I("input_percent",
              batch->input_bytes ? 100 * batch->read_bytes / batch->input_bytes : 0),
        LOG_I("prompt_tokens", batch->prompt_tokens),
        LOG_I("output_tokens", batch->output_tokens),
        LOG_R("seconds", seconds),
    };
    log_fields(LOG_INFO, what, fields, sizeof fields / sizeof *fields);
    batch->reported_ns = now_ns();
}

static bool is_complete(const struct batch_job *batch) {
    return batch->ended && !batch->stopping;
}

static void work(struct batch_job *batch) {
    const int window = WINDOW_STEPS * batch->app.options->engine.max_num_seqs;
    batch->started_ns = batch->reported_ns = now_ns();
    for (;;) {
        if (interrupted && !batch->stopping) cancel_all(batch);
        while (
            !batch->ended && !batch->stopping && !interrupted &&
            (batch->lines.n == 0 || (batch->n_sequences < window && batch->bytes < WINDOW_BYTES))) {
            read_one(batch);
        }
        if (batch->lines.n == 0 && (batch->ended || batch->stopping || interrupted)) break;
        handle_events(batch);
        if (now_ns() - batch->reported_ns > PROGRESS_NS) report(batch, "batch");
    }
    report(batch, is_complete(batch) ? "batch complete" : "batch incomplete");
}

static enum status open_input(struct batch_job *batch, struct err *err) {
    const char *path = batch->app.options->batch.input_file;
    struct stat input, output;
    batch->input = fopen(path, "re");
    if (!batch->input || fstat(fileno(batch->input), &input) != 0 || S_ISDIR(input.st_mode)) {
        int error = batch->input && !errno ? EISDIR : errno;
        return err_set(err, STATUS_BAD_FILE, "input-file", "%s: %s", path, strerror(error));
    }
    batch->input_bytes = input.st_size;
    if (stat(batch->app.options->batch.output_file, &output) != 0) return STATUS_OK;
    if (input.st_dev != output.st_dev || input.st_ino != output.st_ino) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "output-file", "%s: requests and answers must be two files",
                   path);
}

/* Opens the files first, so that a wrong name is reported before the model is loaded. */
static int open_all(struct batch_job *batch, struct options *options) {
    struct err err;
    errno = 0;
    if (app_check_parsers(options, &err) || app_read_receipt_key(&batch->app, &err) ||
        open_input(batch, &err) ||
        batch_output_open(&batch->output, options->batch.output_file, &err)) {
        return print_error(&err);
    }
    return offline_open(&batch->app, options);
}

static void close_all(struct batch_job *batch) {
    offline_close(&batch->app);
    if (batch->input) fclose(batch->input);
    batch_output_close(&batch->output);
    buf_free(&batch->text);
    pthread_cond_destroy(&batch->arrived);
    mem_free(batch);
}

int command_batch(struct options *options) {
    struct batch_job *batch = mem_calloc(1, sizeof *batch);
    struct sigaction action = {.sa_handler = on_interrupt};
    batch->app.options = options;
    bridge_init(&batch->app, NULL, notify);
    pthread_cond_init(&batch->arrived, NULL);
    list_init(&batch->lines);
    int code = open_all(batch, options);
    if (code == 0) {
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        work(batch);
        if (batch->err.status) print_error(&batch->err);
        if (batch->app.failure.status) {
            code = EXIT_DEVICE_FAILED;
        } else if (!is_complete(batch)) {
            fprintf(stderr, "penstock: the batch is incomplete; the same command resumes it\n");
            code = 1;
        }
    }
    close_all(batch);
    return code;
}
