/* DESIGN: one answer after another, streamed to standard output, for `penstock run`.
 *
 * The scheduler has a separate thread, as in the server. This thread sleeps until a step has
 * produced tokens and prints them. A signal ends only the answer.
 */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/commands/console.h"

/* ---- from the engine thread ----------------------------------------------------------------- */

/* Adds the text of a token; for id -1, at the end, adds the text that was held back. */
static void add_text(struct printer *printer, int32_t id) {
    struct buf *decoded = &printer->decoded;
    buf_clear(decoded);
    if (id >= 0)
        detokenizer_add(&printer->detokenizer, id, decoded);
    else
        detokenizer_finish(&printer->detokenizer, decoded);
    printer->stopped = stop_matcher_add(&printer->stops, decoded->data ? decoded->data : "",
                                        decoded->length, &printer->text);
    if (id < 0 && !printer->stopped) stop_matcher_finish(&printer->stops, &printer->text);
}

static void on_events(void *arg, const struct event *events, int n) {
    struct printer *printer = arg;
    pthread_mutex_lock(&printer->mutex);
    for (int i = 0; i < n; i++) {
        assert(!printer->ended); /* nothing follows the last event */
        if (events[i].kind == EVENT_TOKEN && !printer->stopped) {
            if (printer->n_tokens++ == 0) printer->first_ns = now_ns();
            printer->n_cached = events[i].n_cached;
            if (events[i].finish != FINISH_STOP) add_text(printer, events[i].sampled.id);
        }
        if (events[i].last) {
            add_text(printer, -1);
            printer->finish = printer->stopped ? FINISH_STOP : events[i].finish;
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

/* ---- printing ------------------------------------------------------------------------------- */

/* Prints until the generation has ended. Also appends the printed text to `answer`. */
static void print_answer(struct printer *printer, struct scheduler *scheduler, struct generation *g,
                         struct buf *answer) {
    pthread_mutex_lock(&printer->mutex);
    while (!printer->ended || printer->text.length > 0) {
        if (printer->text.length == 0) wait_briefly(&printer->arrived, &printer->mutex);
        bool ends = printer->stopped || interrupt_pending();
        if (ends && !atomic_exchange(&g->cancelled, true)) scheduler_cancel(scheduler, g);
        print_text(printer->text.data, printer->text.length);
        if (fflush(stdout) != 0) interrupt_stop(); /* the reader closed the pipe */
        buf_add(answer, printer->text.data, printer->text.length);
        buf_clear(&printer->text);
    }
    assert(printer->ended && printer->text.length == 0);
    pthread_mutex_unlock(&printer->mutex);
}

/* ---- an answer ------------------------------------------------------------------------------ */

static struct generation generation_of(const struct session *session, const int32_t *ids, int n) {
    const struct options *options = session->options;
    const struct engine *engine = session->engine;
    int max_tokens = engine_memory(engine)->max_model_len - n;
    struct generation g = {
        .prompt = ids,
        .n_prompt = n,
        .n = 1,
        .max_tokens = max_tokens > 1 && options->run.max_tokens > max_tokens
                          ? max_tokens
                          : options->run.max_tokens,
        .max_drafts = MAX_DRAFTS,
        .grammar = session->rules.grammar,
        .vocabulary = session->rules.vocabulary,
        .prompt_logprobs = -1,
        .received_ns = now_ns(),
        .sampling = {.temperature = (float)options->run.temperature,
                     .top_p = 1,
                     .repetition_penalty = 1,
                     .n_logprobs = -1,
                     .seed = options->api.seed >= 0 ? (uint64_t)options->api.seed : now_ns()},
    };
    const int32_t *ends = engine_end_ids(engine, &g.n_stop_ids);
    memcpy(g.stop_ids, ends, (size_t)g.n_stop_ids * sizeof *ends);
    generation_suppress(&g, engine_sampling_defaults(engine));
    return g;
}

static void begin_printing(struct session *session) {
    struct printer *printer = &session->printer;
    printer->detokenizer = (struct detokenizer){
        .tokenizer = engine_tokenizer(session->engine), .skip_special = true, .started = true};
    stop_matcher_init(&printer->stops, &session->rules.request, session->rules.searches);
    printer->ended = printer->stopped = false;
    printer->n_tokens = printer->n_cached = 0;
    printer->first_ns = 0;
}

/* Prints an error if the answer failed. Returns the exit code. */
static int check_end(const struct printer *printer) {
    if (printer->failure.status) {
        print_error(&printer->failure);
        return EXIT_DEVICE_FAILED;
    }
    if (printer->finish != FINISH_STUCK) return 0;
    print_failure("the grammar does not allow any further token");
    return 1;
}

int session_answer(struct session *session, int32_t *ids, int n, const char *after,
                   struct answer *answer) {
    struct generation g = generation_of(session, ids, n);
    struct printer *printer = &session->printer;
    struct err err;
    int32_t *begin_ids = NULL;
    if (after && g.grammar)
        g.n_begin_ids = tokenizer_encode(engine_tokenizer(session->engine), after, strlen(after),
                                         SPECIAL_PARSED, false, INT32_MAX, &begin_ids);
    g.begin_ids = begin_ids;
    begin_printing(session);
    interrupt_clear();
    int code = 0;
    if (scheduler_submit(session->scheduler, &g, &err)) {
        code = print_error(&err);
    } else {
        print_answer(printer, session->scheduler, &g, &answer->text);
        code = check_end(printer);
    }
    answer->n_prompt = n;
    answer->n_tokens = printer->n_tokens;
    answer->n_cached = printer->n_cached;
    answer->finish = printer->finish;
    answer->seconds = (double)(now_ns() - g.received_ns) * 1e-9;
    if (printer->first_ns) answer->first_s = (double)(printer->first_ns - g.received_ns) * 1e-9;
    stop_matcher_free(&printer->stops);
    mem_free(begin_ids);
    mem_free(ids);
    return code;
}

/* ---- opening and closing -------------------------------------------------------------------- */

int session_open(struct session *session, struct options *options) {
    *session = (struct session){.options = options};
    struct err err;
    int code = rules_read(&session->rules, options);
    if (code == 0) code = find_models(options);
    if (code == 0) code = open_engine(&session->engine, options);
    if (code == 0) code = open_draft_engine(&session->draft_engine, session->engine, options);
    if (code) {
        engine_close(session->engine);
        session->engine = NULL;
        rules_close(&session->rules);
        return code;
    }
    rules_open(&session->rules, session->engine);
    pthread_mutex_init(&session->printer.mutex, NULL);
    pthread_cond_init(&session->printer.arrived, NULL);
    struct scheduler_config config = scheduler_config_from(options, session->engine);
    config.draft_engine = session->draft_engine;
    config.on_events = on_events;
    config.on_failure = on_failure;
    config.arg = &session->printer;
    session->scheduler = scheduler_new(&config, session->engine);
    scheduler_start(session->scheduler);
    return interrupt_open(&err) ? print_error(&err) : 0;
}

void session_close(struct session *session) {
    if (!session->engine) return;
    scheduler_free(session->scheduler);
    rules_close(&session->rules);
    engine_close(session->draft_engine);
    engine_close(session->engine);
    pthread_cond_destroy(&session->printer.arrived);
    pthread_mutex_destroy(&session->printer.mutex);
    buf_free(&session->printer.text);
    buf_free(&session->printer.decoded);
}
