/* DESIGN: `penstock batch`: a file of requests in, a file of their answers out.
 *
 *   take_lines    reads, checks and tokenises lines until enough of them are under way
 *   on_events     engine thread: hands a step's events over
 *   take_events   waits for them; a line's last one writes its answer and frees it
 *
 * All but on_events and on_failure is on the main thread. A line is a job without a client: it is
 * parsed, prepared and written by what serves HTTP, and goes to the same scheduler. So many are
 * under way that every step of the engine is full while lines are read; memory is bounded by that
 * window and by the longest line, not by the file. Answers are written in the order in which they
 * are ready. A signal cancels what is under way, whose lines get no answer: the next run computes
 * them.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/batch.h"
#include "server/commands.h"
#include "server/job.h"

/* Lines that are under way hold at most so many bytes of the input, unless a single one is
 * larger. */
#define WINDOW_BYTES ((size_t)64 << 20)

/* How many times a step's sequences are under way: those that wait take the place of those that
 * end. */
#define WINDOW_STEPS 2

#define PROGRESS_NS 10000000000ull

/* No request may bring as many prompts; seeds of --seed count up from the line's number times
 * this. */
#define SEEDS_OF_A_LINE 1024

/* One line of the input that is under way. */
struct line {
    struct job job; /* first: a generation's owner leads here */
    struct line *next, *previous;
    int64_t number;
    struct buf custom_id;
    size_t bytes;
    bool dropped; /* nobody wants its answer any more */
};

struct batch {
    struct app app; /* engine, scheduler, limits, and the events that have arrived */
    pthread_cond_t arrived;
    FILE *input;
    struct buf text; /* of the line that is read */
    bool too_long;   /* it has more than that */
    int64_t input_bytes, read_bytes;
    int64_t number; /* of the line that was read last, from 1 */
    struct batch_output output;
    struct line *lines; /* under way */
    int n_lines, n_sequences;
    size_t bytes;
    bool ended, stopping; /* the input has ended; no line is taken any more */
    int64_t n_answered, n_refused, n_passed_over;
    int64_t prompt_tokens, output_tokens;
    uint64_t started_ns, told_ns;
    struct err err; /* why it stops; STATUS_OK: it does not, or was interrupted */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

/* ---- answers -------------------------------------------------------------------------------- */

static void cancel_all(struct batch *batch) {
    batch->stopping = true;
    for (struct line *line = batch->lines; line; line = line->next) {
        line->dropped = true;
        job_cancel(&line->job);
    }
}

static void stop(struct batch *batch, const struct err *err) {
    if (!batch->err.status) batch->err = *err;
    cancel_all(batch);
}

static void write_line(struct batch *batch, const struct buf *text, bool refused) {
    struct err err;
    if (batch_output_write(&batch->output, text, &err)) {
        stop(batch, &err);
    } else {
        batch->n_answered++;
        batch->n_refused += refused;
    }
}

/* Answers a line that is no request, or whose custom_id another one has. */
static void refuse_line(struct batch *batch, const struct err *err) {
    struct buf text = {0};
    api_batch_write_error(&text, batch->number, err);
    write_line(batch, &text, true);
    buf_free(&text);
}

static void answer_refused(struct batch *batch, int64_t number, const struct buf *custom_id,
                           const char *request_id, const struct err *err) {
    struct buf body = {0}, text = {0};
    api_write_error(&body, err);
    api_batch_write_response(&text, number, custom_id, status_http(err->status), request_id, &body);
    write_line(batch, &text, true);
    buf_free(&body);
    buf_free(&text);
}

static void answer(struct batch *batch, struct line *line) {
    struct job *job = &line->job;
    if (job->err.status) {
        answer_refused(batch, line->number, &line->custom_id, job->id, &job->err);
        return;
    }
    struct buf text = {0};
    answer_write(job);
    api_batch_write_response(&text, line->number, &line->custom_id, 200, job->id, &job->out);
    write_line(batch, &text, false);
    buf_free(&text);
    batch->prompt_tokens += job->prompt_tokens;
    batch->output_tokens += job->completion_tokens;
}

static int sequences_of(const struct line *line) {
    return line->job.request ? line->job.n_prompts * line->job.request->n : 0;
}

/* Nothing is computed for the line any more. */
static void end_line(struct batch *batch, struct line *line) {
    if (!line->dropped) answer(batch, line);
    if (line->previous)
        line->previous->next = line->next;
    else
        batch->lines = line->next;
    if (line->next) line->next->previous = line->previous;
    batch->n_lines--;
    batch->n_sequences -= sequences_of(line);
    batch->bytes -= line->bytes;
    job_clear(&line->job);
    buf_free(&line->custom_id);
    free(line);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void submit(struct job *job) {
    if (!job->err.status && job->request->stream) {
        err_set(&job->err, STATUS_INVALID_REQUEST, "stream",
                "'stream' must not be true in a batch.");
    }
    for (int i = 0; i < job->n_prompts && !job->err.status; i++) {
        struct generation *g = &job->prompts[i].generation;
        g->received_ns = now_ns();
        if (!scheduler_submit(job->app->scheduler, g, &job->err)) job->references++;
    }
    if (job->err.status) job_cancel(job);
}

/* Takes over what was parsed. */
static void begin_line(struct batch *batch, struct api_batch_line *parsed) {
    struct line *line = mem_calloc(1, sizeof *line);
    *line = (struct line){.job = {.app = &batch->app, .kind = parsed->kind},
                          .next = batch->lines,
                          .number = batch->number,
                          .custom_id = parsed->custom_id,
                          .bytes = batch->text.length};
    parsed->custom_id = (struct buf){0};
    if (batch->lines) batch->lines->previous = line;
    batch->lines = line;
    atomic_store(&batch->app.n_seeds, (uint64_t)batch->number * SEEDS_OF_A_LINE);
    job_prepare_tree(&line->job, parsed->body);
    parsed->body = NULL;
    batch->n_lines++;
    batch->n_sequences += sequences_of(line);
    batch->bytes += line->bytes;
    submit(&line->job);
    if (line->job.references == 0) end_line(batch, line);
}

/* Is the line's answer still missing? One whose custom_id was used before gets an error. */
static bool is_wanted(struct batch *batch, const struct buf *custom_id) {
    struct buf key = {0};
    api_batch_key(&key, batch->number, custom_id);
    enum batch_known known = batch_output_note(&batch->output, &key);
    buf_free(&key);
    if (known == BATCH_ANSWERED) batch->n_passed_over++;
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

static void take_line(struct batch *batch) {
    struct api_batch_line parsed;
    struct err err;
    enum status status = api_batch_parse(&parsed, batch->text.data, batch->text.length, &err);
    bool named = parsed.custom_id.length > 0;
    if (!is_wanted(batch, &parsed.custom_id)) {
        /* nothing is left to do for it */
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

/* Reads a line, without its end, of at most --max-body-size; what a longer one has beyond that is
 * passed over. False at the end of the input. */
static bool read_line(struct batch *batch) {
    const size_t most = (size_t)batch->app.options->max_body_size;
    int c, n = 0;
    buf_clear(&batch->text);
    batch->too_long = false;
    while ((c = getc_unlocked(batch->input)) != EOF) {
        char byte = (char)c;
        n = 1;
        batch->read_bytes++;
        if (byte == '\n') break;
        batch->too_long |= batch->text.length == most;
        if (!batch->too_long) buf_add(&batch->text, &byte, 1);
    }
    return n > 0;
}

/* Windows' editors begin a text with a mark that JSON does not know. */
static void drop_mark(struct buf *text) {
    if (text->length < 3 || memcmp(text->data, "\xEF\xBB\xBF", 3) != 0) return;
    memmove(text->data, text->data + 3, text->length - 2);
    text->length -= 3;
}

static void end_input(struct batch *batch) {
    struct err err;
    batch->ended = true;
    if (!ferror(batch->input)) return;
    err_set(&err, STATUS_BAD_FILE, "input-file", "%s: %s", batch->app.options->input_file,
            strerror(errno));
    stop(batch, &err);
}

static void refuse_long_line(struct batch *batch) {
    struct err err;
    err_set(&err, STATUS_TOO_LARGE, NULL, "Line %lld is longer than %lld bytes.",
            (long long)batch->number, (long long)batch->app.options->max_body_size);
    if (is_wanted(batch, &(struct buf){0})) refuse_line(batch, &err);
}

static void read_one(struct batch *batch) {
    if (!read_line(batch)) {
        end_input(batch);
        return;
    }
    batch->number++;
    if (batch->number == 1) drop_mark(&batch->text);
    bool blank = batch->text.length == 0 || strspn(batch->text.data, " \t\r") == batch->text.length;
    if (batch->too_long)
        refuse_long_line(batch);
    else if (!blank)
        take_line(batch);
}

static void take_lines(struct batch *batch) {
    const int window = WINDOW_STEPS * batch->app.options->max_num_seqs;
    while (!batch->ended && !batch->stopping && !interrupted &&
           (batch->n_lines == 0 || (batch->n_sequences < window && batch->bytes < WINDOW_BYTES))) {
        read_one(batch);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static void on_events(void *arg, const struct event *events, int n) {
    struct batch *batch = arg;
    pthread_mutex_lock(&batch->app.mutex);
    events_append(&batch->app.arrived, events, n);
    pthread_cond_signal(&batch->arrived);
    pthread_mutex_unlock(&batch->app.mutex);
}

static void on_failure(void *arg, const struct err *err) {
    struct batch *batch = arg;
    pthread_mutex_lock(&batch->app.mutex);
    batch->app.arrived_failure = *err;
    pthread_mutex_unlock(&batch->app.mutex);
}

static void take_event(struct batch *batch, const struct event *event) {
    struct job_prompt *prompt = event->generation->owner;
    struct line *line = (struct line *)prompt->job;
    struct job *job = &line->job;
    bool last = event->last;
    if (line->dropped || job->err.status) {
        /* nobody listens */
    } else if (event->finish == FINISH_ERROR) {
        err_set(&job->err, STATUS_SERVER_ERROR, NULL, "The engine failed on this request.");
        job_cancel(job);
    } else {
        job_take(job, prompt, event);
    }
    if (last && --job->references == 0) end_line(batch, line);
}

/* Waits for a step's events, and a tenth of a second at most, so that an interrupt is seen. */
static void wait_for_events(struct batch *batch) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    if (batch->app.arrived.n > 0) return;
    pthread_cond_timedwait(&batch->arrived, &batch->app.mutex, &until);
}

static void take_events(struct batch *batch) {
    struct app *app = &batch->app;
    pthread_mutex_lock(&app->mutex);
    wait_for_events(batch);
    struct err failure = app->arrived_failure;
    struct event_vector taken = app->arrived;
    app->arrived = app->taken;
    app->arrived.n = 0;
    pthread_mutex_unlock(&app->mutex);
    if (failure.status && !app->failure.status) {
        app->failure = failure;
        stop(batch, &failure);
    }
    for (int i = 0; i < taken.n; i++) take_event(batch, &taken.events[i]);
    app->taken = taken;
}

/* ---- the command ---------------------------------------------------------------------------- */

static void tell(struct batch *batch, const char *what) {
    double seconds = (double)(now_ns() - batch->started_ns) * 1e-9;
    struct log_field fields[] = {
        LOG_I("answered", batch->n_answered),
        LOG_I("refused", batch->n_refused),
        LOG_I("answered_before", batch->n_passed_over),
        LOG_I("under_way", batch->n_lines),
        LOG_I("input_percent",
              batch->input_bytes ? 100 * batch->read_bytes / batch->input_bytes : 0),
        LOG_I("prompt_tokens", batch->prompt_tokens),
        LOG_I("output_tokens", batch->output_tokens),
        LOG_R("seconds", seconds),
    };
    log_fields(LOG_INFO, what, fields, sizeof fields / sizeof *fields);
    batch->told_ns = now_ns();
}

static bool is_whole(const struct batch *batch) {
    return batch->ended && !batch->stopping;
}

static void work(struct batch *batch) {
    batch->started_ns = batch->told_ns = now_ns();
    for (;;) {
        if (interrupted && !batch->stopping) cancel_all(batch);
        take_lines(batch);
        if (batch->n_lines == 0 && (batch->ended || batch->stopping || interrupted)) break;
        take_events(batch);
        if (now_ns() - batch->told_ns > PROGRESS_NS) tell(batch, "batch");
    }
    tell(batch, is_whole(batch) ? "batch is whole" : "batch is not whole");
}

static enum status open_input(struct batch *batch, struct err *err) {
    const char *path = batch->app.options->input_file;
    struct stat input, output;
    batch->input = fopen(path, "re");
    if (!batch->input || fstat(fileno(batch->input), &input) != 0 || S_ISDIR(input.st_mode)) {
        int error = batch->input && !errno ? EISDIR : errno;
        return err_set(err, STATUS_BAD_FILE, "input-file", "%s: %s", path, strerror(error));
    }
    batch->input_bytes = input.st_size;
    if (stat(batch->app.options->output_file, &output) != 0) return STATUS_OK;
    if (input.st_dev != output.st_dev || input.st_ino != output.st_ino) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "output-file", "%s: requests and answers must be two files",
                   path);
}

/* Opens the files first: a wrong name is told before a model is loaded. */
static int open_all(struct batch *batch) {
    const struct options *options = batch->app.options;
    struct err err;
    errno = 0;
    if (open_input(batch, &err) || batch_output_open(&batch->output, options->output_file, &err)) {
        return print_error(&err);
    }
    int code = open_engine(&batch->app.engine, options);
    if (code) return code;
    app_set_name(&batch->app);
    app_set_limits(&batch->app);
    struct scheduler_config config = scheduler_config_from(options, batch->app.engine);
    config.max_queued_requests = 1 << 24; /* the window bounds what waits */
    config.max_queued_tokens = 1 << 30;
    config.on_events = on_events;
    config.on_failure = on_failure;
    config.arg = batch;
    batch->app.scheduler = scheduler_new(&config, batch->app.engine);
    scheduler_start(batch->app.scheduler);
    return 0;
}

static void close_all(struct batch *batch) {
    if (batch->app.scheduler) scheduler_free(batch->app.scheduler);
    if (batch->app.engine) engine_close(batch->app.engine);
    if (batch->input) fclose(batch->input);
    batch_output_close(&batch->output);
    buf_free(&batch->text);
    free(batch->app.arrived.events);
    free(batch->app.taken.events);
    pthread_cond_destroy(&batch->arrived);
    pthread_mutex_destroy(&batch->app.mutex);
    free(batch);
}

static int exit_code(const struct batch *batch) {
    if (batch->err.status) print_error(&batch->err);
    if (batch->app.failure.status) return EXIT_DEVICE_FAILED;
    if (is_whole(batch)) return 0;
    fprintf(stderr, "penstock: the batch is not whole; the same command goes on with it\n");
    return 1;
}

int command_batch(const struct options *options) {
    struct batch *batch = mem_calloc(1, sizeof *batch);
    struct sigaction action = {.sa_handler = on_interrupt};
    batch->app.options = options;
    pthread_mutex_init(&batch->app.mutex, NULL);
    pthread_cond_init(&batch->arrived, NULL);
    int code = open_all(batch);
    if (code == 0) {
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        work(batch);
        code = exit_code(batch);
    }
    close_all(batch);
    return code;
}
