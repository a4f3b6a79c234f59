/* DESIGN: `penstock run`: one completion or a conversation, streamed to standard output.
 *
 * The scheduler runs as in the server, with its own thread; this thread sleeps until a step has
 * produced tokens and prints them. Ctrl-C ends the answer, and at the prompt the program.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/commands/commands.h"
#include "server/generation/prompt.h"
#include "server/json/json.h"

/* Text on its way from the engine thread to this one. The mutex guards all but the detokenizer,
 * which is the engine thread's while a generation runs. */
struct printer {
    pthread_mutex_t mutex;
    pthread_cond_t arrived;
    struct detokenizer detokenizer;
    struct buf text;
    bool ended;
    int n_tokens;
    struct err failure; /* of the device; STATUS_OK: none */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

static void on_events(void *arg, const struct event *events, int n) {
    struct printer *printer = arg;
    pthread_mutex_lock(&printer->mutex);
    for (int i = 0; i < n; i++) {
        if (events[i].kind == EVENT_TOKEN) {
            printer->n_tokens++;
            if (events[i].finish != FINISH_STOP) {
                detokenizer_add(&printer->detokenizer, events[i].sampled.id, &printer->text);
            }
        }
        if (events[i].last) {
            detokenizer_finish(&printer->detokenizer, &printer->text);
            printer->ended = true;
        }
    }
    pthread_cond_signal(&printer->arrived);
    pthread_mutex_unlock(&printer->mutex);
}

static void on_failure(void *arg, const struct err *err) {
    struct printer *printer = arg;
    pthread_mutex_lock(&printer->mutex);
    printer->failure = *err;
    pthread_mutex_unlock(&printer->mutex);
}

/* Prints until the generation has ended; everything printed is also appended to `answer`. */
static void print_answer(struct printer *printer, struct scheduler *scheduler, struct generation *g,
                         struct buf *answer) {
    pthread_mutex_lock(&printer->mutex);
    while (!printer->ended || printer->text.length > 0) {
        if (printer->text.length == 0) wait_briefly(&printer->arrived, &printer->mutex);
        if (interrupted && !atomic_exchange(&g->cancelled, true)) scheduler_cancel(scheduler, g);
        if (printer->text.length > 0) fwrite(printer->text.data, 1, printer->text.length, stdout);
        if (fflush(stdout) != 0) interrupted = 1; /* the reader is gone */
        buf_add(answer, printer->text.data, printer->text.length);
        buf_clear(&printer->text);
    }
    pthread_mutex_unlock(&printer->mutex);
}

static struct generation generation_of(const struct options *options, const struct engine *engine,
                                       const int32_t *ids, int n) {
    int max_tokens = engine_memory(engine)->max_model_len - n;
    struct generation g = {
        .prompt = ids,
        .n_prompt = n,
        .n = 1,
        .max_tokens =
            max_tokens > 1 && options->max_tokens > max_tokens ? max_tokens : options->max_tokens,
        .prompt_logprobs = -1,
        .received_ns = now_ns(),
        .sampling = {.temperature = (float)options->temperature,
                     .top_p = 1,
                     .repetition_penalty = 1,
                     .n_logprobs = -1,
                     .seed = options->seed >= 0 ? (uint64_t)options->seed : now_ns()},
    };
    const int32_t *ends = engine_end_ids(engine, &g.n_stop_ids);
    memcpy(g.stop_ids, ends, (size_t)g.n_stop_ids * sizeof *ends);
    return g;
}

struct session {
    const struct options *options;
    struct engine *engine;
    struct scheduler *scheduler;
    struct printer printer;
};

/* Answers one prompt, and frees its ids. */
static int answer(struct session *session, int32_t *ids, int n, struct buf *text) {
    struct generation g = generation_of(session->options, session->engine, ids, n);
    struct printer *printer = &session->printer;
    struct err err;
    printer->detokenizer = (struct detokenizer){
        .tokenizer = engine_tokenizer(session->engine), .skip_special = true, .started = true};
    printer->ended = false;
    printer->n_tokens = 0;
    interrupted = 0;
    int code = 0;
    if (scheduler_submit(session->scheduler, &g, &err))
        code = print_error(&err);
    else
        print_answer(printer, session->scheduler, &g, text);
    if (printer->failure.status) {
        print_error(&printer->failure);
        code = EXIT_DEVICE_FAILED;
    }
    free(ids);
    return code;
}

/* ---- one completion ------------------------------------------------------------------------- */

static int complete(struct session *session, const char *prompt, size_t length) {
    struct api_prompt asked = {.text = prompt, .length = length};
    struct buf text = {0};
    struct err err;
    int32_t *ids;
    int n;
    if (prompt_encode(session->engine, &asked, true, &ids, &n, &err)) return print_error(&err);
    if (n == 0) {
        free(ids);
        fprintf(stderr, "penstock: the prompt is empty; give a text, or pipe one in\n");
        return 2;
    }
    uint64_t start = now_ns();
    int code = answer(session, ids, n, &text);
    double seconds = (double)(now_ns() - start) * 1e-9;
    printf("\n");
    fprintf(stderr, "%d tokens after a prompt of %d in %.2f s\n", session->printer.n_tokens, n,
            seconds);
    buf_free(&text);
    return code;
}

static int complete_from_options(struct session *session) {
    const struct options *options = session->options;
    if (options->n_arguments > 0) {
        return complete(session, options->arguments[0], strlen(options->arguments[0]));
    }
    struct buf input = {0};
    read_input(&input);
    int code = complete(session, input.data, input.length);
    buf_free(&input);
    return code;
}

/* ---- a conversation ------------------------------------------------------------------------- */

/* What was said so far: the text of a JSON array of messages, but for the bracket that ends it. */
static void add_message(struct buf *messages, const char *role, const char *content) {
    buf_puts(messages, messages->length > 0 ? ",{\"role\":" : "[{\"role\":");
    json_write_string(messages, role, strlen(role));
    buf_puts(messages, ",\"content\":");
    json_write_string(messages, content, strlen(content));
    buf_puts(messages, "}");
}

static enum status encode_messages(const struct session *session, const struct buf *messages,
                                   int32_t **ids, int *n, struct err *err) {
    struct api_prompt prompt = {.add_generation_prompt = true};
    struct buf text = {0};
    struct json *json;
    buf_add(&text, messages->data, messages->length);
    buf_puts(&text, "]");
    enum status status = json_parse(&json, "The conversation", text.data, text.length, err);
    prompt.messages = json;
    if (!status) status = prompt_encode(session->engine, &prompt, false, ids, n, err);
    json_free(json);
    buf_free(&text);
    return status;
}

static int chat_turn(struct session *session, struct buf *messages) {
    struct buf text = {0};
    struct err err;
    int32_t *ids;
    int n;
    if (encode_messages(session, messages, &ids, &n, &err)) return print_error(&err);
    int code = answer(session, ids, n, &text);
    printf("\n");
    if (text.length > 0) add_message(messages, "assistant", text.data);
    buf_free(&text);
    return code;
}

static int converse(struct session *session) {
    struct buf messages = {0};
    bool terminal = isatty(STDIN_FILENO);
    char *line = NULL;
    size_t capacity = 0;
    int code = 0;
    if (session->options->n_arguments > 0) { /* the first question came with the command */
        add_message(&messages, "user", session->options->arguments[0]);
        code = chat_turn(session, &messages);
    }
    while (code == 0 && !ferror(stdout)) {
        if (terminal) fprintf(stderr, "> ");
        ssize_t n = getline(&line, &capacity, stdin);
        if (n < 0) break; /* end of input, or Ctrl-C at the prompt */
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (n == 0) continue;
        add_message(&messages, "user", line);
        code = chat_turn(session, &messages);
    }
    free(line);
    buf_free(&messages);
    return code;
}

int command_run(const struct options *options) {
    struct session session = {.options = options};
    int code = open_engine(&session.engine, options);
    if (code) return code;
    pthread_mutex_init(&session.printer.mutex, NULL);
    pthread_cond_init(&session.printer.arrived, NULL);
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: getline is to end */
    sigaction(SIGINT, &action, NULL);
    struct scheduler_config config = scheduler_config_from(options, session.engine);
    config.on_events = on_events;
    config.on_failure = on_failure;
    config.arg = &session.printer;
    session.scheduler = scheduler_new(&config, session.engine);
    scheduler_start(session.scheduler);
    code = options->chat ? converse(&session) : complete_from_options(&session);
    scheduler_free(session.scheduler);
    engine_close(session.engine);
    pthread_cond_destroy(&session.printer.arrived);
    pthread_mutex_destroy(&session.printer.mutex);
    buf_free(&session.printer.text);
    return code;
}
