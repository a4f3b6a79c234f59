/* DESIGN: `penstock verify` computes answers again and compares them with their receipts.
 *
 *   verify_text      a file: one document, or one per line
 *   receipt_check    needs no model: members, digest, hashes, signature
 *   compare_...      the fingerprint, the settings and prompts of the receipt's request
 *   compute          the request, as a job without a client, until the scheduler has returned it
 *   compare_outputs  token by token
 *
 * Checks run in the order of their cost, and the model is opened for the first receipt that needs
 * it. A receipt's request is prepared by the code that serves HTTP; only its seeds and its time are
 * the receipt's. Each receipt gets a line on standard output. Only the bridge runs outside of the
 * main thread.
 *
 * Exit codes; the largest counts: 0 all are the same, 1 a file or the model cannot be used, 2 the
 * options are wrong, 3 the device failed, 4 another token, 5 another fingerprint or setting, 6 a
 * receipt is broken or wrongly signed.
 */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/apis/apis.h"
#include "server/app/adapters.h"
#include "server/commands/commands.h"
#include "server/generation/job.h"
#include "server/offline/offline.h"

enum { EXIT_OTHER_TOKENS = 4, EXIT_OTHER_FINGERPRINT = 5, EXIT_BROKEN = 6 };

enum { MAX_VALUES = 1 << 26 }; /* of a document: ids are values */

struct verification {
    struct app app;         /* must be first */
    pthread_cond_t arrived; /* with app.mutex */
    bool is_open;
    bool is_idle;                    /* the scheduler has returned the job */
    struct fingerprint own;          /* of this machine */
    const unsigned char *public_key; /* or NULL */
    int code;
};

static int code_of(enum receipt_verdict verdict) {
    static const int codes[] = {[RECEIPT_SAME] = 0,
                                [RECEIPT_OTHER_TOKENS] = EXIT_OTHER_TOKENS,
                                [RECEIPT_OTHER_FINGERPRINT] = EXIT_OTHER_FINGERPRINT,
                                [RECEIPT_BROKEN] = EXIT_BROKEN};
    return codes[verdict];
}

/* Opens the model. Returns the exit code. */
static int open_model(struct verification *v, struct options *options) {
    struct err err;
    if (v->is_open) return 0;
    int code = offline_open(&v->app, options);
    if (code) return code;
    v->app.limits.any_model = true; /* the fingerprint decides, not the name */
    if (app_fingerprint(&v->app, &v->own, &err)) return print_error(&err);
    v->is_open = true;
    return 0;
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* Says that a value differs. */
static enum receipt_verdict other_value(const char *what, const char *there, const char *here,
                                        struct buf *why) {
    buf_printf(why, "another fingerprint: %s is %s in the receipt, and %s here", what, there, here);
    return RECEIPT_OTHER_FINGERPRINT;
}

/* Copies the name of the model that a receipt's request asked for, if an adapter may have it. */
static void asked_model(const struct json *receipt, char name[API_MODEL_NAME]) {
    const struct json *text = json_member(receipt, "body");
    struct json *body;
    name[0] = 0;
    if (json_parse(&body, "It", json_text(text), json_length(text), NULL)) return;
    snprintf(name, API_MODEL_NAME, "%s", json_text(json_member(body, "model")));
    json_free(body);
    if (!adapters_name_is_valid(name)) name[0] = 0;
}

/* Copies the hash of the adapter with which the request would run here; "": the base model. */
static void find_adapter(const struct verification *v, const char *name,
                         char out[HASH_DIGITS + 1]) {
    out[0] = 0;
    if (!api_serves_base(&v->app.limits, name, strlen(name)))
        adapters_hash(v->app.adapters, name, out);
}

static enum receipt_verdict compare_fingerprint(const struct verification *v,
                                                const struct json *receipt, struct buf *why) {
    struct fingerprint theirs, own = v->own;
    struct fingerprint_difference other;
    char name[API_MODEL_NAME], what[API_MODEL_NAME + 16];
    receipt_fingerprint(receipt, &theirs);
    asked_model(receipt, name);
    find_adapter(v, name, own.adapter);
    if (theirs.adapter[0] && !name[0]) {
        buf_puts(why, "broken: its 'fingerprint' has an adapter, and its 'body' names none");
        return RECEIPT_BROKEN;
    }
    if (theirs.adapter[0] && !own.adapter[0]) {
        buf_printf(why,
                   "another fingerprint: the adapter '%s' is not given here: add --lora %s=PATH",
                   name, name);
        return RECEIPT_OTHER_FINGERPRINT;
    }
    if (!fingerprint_differs(&theirs, &own, FINGERPRINT_RECEIPT, &other)) return RECEIPT_SAME;
    snprintf(what, sizeof what, "adapter '%s'", name);
    bool is_adapter = strcmp(other.name, "adapter") == 0;
    return other_value(is_adapter ? what : other.name, other.a, other.b, why);
}

static void show_value(struct buf *out, const struct json *value) {
    if (value)
        canonical_write(out, value);
    else
        buf_puts(out, "absent");
    if (out->length <= 100) return;
    out->length = (size_t)utf8_cut(out->data, out->length, 100);
    buf_puts(out, "...");
}

/* Compares the settings with those that the request has here. */
static enum receipt_verdict compare_settings(const struct generation_job *job,
                                             const struct json *receipt, struct buf *why) {
    const struct buf *text = &job->receipt.sampling;
    struct buf place = {0}, there = {0}, here = {0};
    const struct json *x, *y;
    struct json *own;
    struct err err;
    enum receipt_verdict verdict = RECEIPT_SAME;
    enum status status = json_parse(&own, "The settings", text->data, text->length, &err);
    assert(!status); /* our own text */
    (void)status;
    buf_puts(&place, "sampling");
    if (json_difference(json_member(receipt, "sampling"), own, &place, &x, &y)) {
        show_value(&there, x);
        show_value(&here, y);
        verdict = other_value(place.data, there.data, here.data, why);
    }
    json_free(own);
    buf_free(&place);
    buf_free(&there);
    buf_free(&here);
    return verdict;
}

static enum receipt_verdict compare_ids(const struct json *element, const char *what, int index,
                                        const int32_t *ids, int n, struct buf *why) {
    int at = receipt_compare_ids(element, ids, n);
    if (at < 0) return RECEIPT_SAME;
    int32_t theirs = receipt_id_at(element, at);
    buf_printf(why, "another token: position %d of %s %d is ", at, what, index);
    buf_printf(why, theirs < 0 ? "absent" : "%d", (int)theirs);
    buf_puts(why, " in the receipt, and ");
    buf_printf(why, at < n ? "%d" : "absent", at < n ? (int)ids[at] : 0);
    buf_puts(why, " here");
    return RECEIPT_OTHER_TOKENS;
}

/* Compares the prompts, and gives each the receipt's seed. */
static enum receipt_verdict take_prompts(struct generation_job *job, const struct json *receipt,
                                         struct buf *why) {
    const struct json *prompts = json_member(receipt, "prompts");
    enum receipt_verdict verdict = RECEIPT_SAME;
    int i = 0;
    if (json_count(prompts) != job->n_prompts) {
        buf_puts(why, "broken: its 'prompts' are not those of its 'body'");
        return RECEIPT_BROKEN;
    }
    json_each(prompt, prompts) {
        struct prompt_run *run = &job->prompts[i];
        int64_t most = json_integer(json_member(prompt, "max_tokens"));
        verdict = compare_ids(prompt, "prompt", i, run->ids, run->n_ids, why);
        if (verdict) return verdict;
        if (job->request->has_seed && run->generation.sampling.seed != receipt_seed(prompt)) {
            buf_puts(why, "broken: a seed is not that of its 'body'");
            return RECEIPT_BROKEN;
        }
        if (most != run->generation.max_tokens) {
            char there[24], here[24];
            snprintf(there, sizeof there, "%lld", (long long)most);
            snprintf(here, sizeof here, "%d", run->generation.max_tokens);
            return other_value("max_tokens", there, here, why);
        }
        run->generation.sampling.seed = receipt_seed(prompt);
        i++;
    }
    return verdict;
}

static enum receipt_verdict compare_outputs(const struct generation_job *job,
                                            const struct json *receipt, int *n_tokens,
                                            struct buf *why) {
    const struct json *outputs = json_member(receipt, "outputs");
    const int n = job->request->n_generated;
    int i = 0;
    if (json_count(outputs) != job->n_prompts * n) {
        buf_puts(why, "broken: the number of its 'outputs' is not that of its 'body'");
        return RECEIPT_BROKEN;
    }
    json_each(output, outputs) {
        const struct choice *choice = &job->prompts[i / n].choices[i % n];
        enum receipt_verdict verdict =
            compare_ids(output, "output", i, choice->kept_ids, choice->n_kept_ids, why);
        if (verdict) return verdict;
        *n_tokens += choice->n_kept_ids;
        i++;
    }
    return RECEIPT_SAME;
}

/* ---- computing ------------------------------------------------------------------------------ */

static void on_idle(struct generation_job *job) {
    ((struct verification *)job->app)->is_idle = true;
}

static const struct job_listener listener = {.on_idle = on_idle};

static void notify(struct app *app) {
    pthread_cond_signal(&((struct verification *)app)->arrived);
}

/* Runs a prepared job until the scheduler has returned it. */
static void compute(struct verification *v, struct generation_job *job) {
    struct app *app = &v->app;
    v->is_idle = job_submit(job, now_ns()) != STATUS_OK && job->n_running == 0;
    while (!v->is_idle) {
        struct err failure;
        pthread_mutex_lock(&app->mutex);
        if (app->arrived.n == 0) wait_briefly(&v->arrived, &app->mutex);
        bridge_receive(app, &failure);
        pthread_mutex_unlock(&app->mutex);
        if (failure.status) app->failure = failure;
        for (int i = 0; i < app->received.n; i++) job_event(&app->received.events[i]);
    }
}

/* Prepares the request of a receipt as it was received. */
static void prepare(struct generation_job *job, const struct json *receipt) {
    const struct json *text = json_member(receipt, "body");
    struct json *body;
    job->receipt.is_made = true;
    job->created_s = json_integer(json_member(receipt, "created"));
    if (!json_parse_strict(&body, "The receipt's 'body'", json_text(text), json_length(text),
                           &job->err))
        job_prepare(job, body);
}

static enum receipt_verdict refused(const struct generation_job *job, struct buf *why) {
    buf_printf(why, "another fingerprint: its request is refused here: %s", job->err.message);
    return RECEIPT_OTHER_FINGERPRINT;
}

/* Computes the request of a checked receipt and compares it. */
static enum receipt_verdict recompute(struct verification *v, const struct json *receipt,
                                      int *n_tokens, struct buf *why) {
    const char *path = json_text(json_member(receipt, "path"));
    const struct api *api = api_find(path);
    if (!api || api->receipt_place == RECEIPT_NOWHERE) {
        buf_printf(why, "broken: its 'path' %s gives no receipts", path);
        return RECEIPT_BROKEN;
    }
    enum receipt_verdict verdict = compare_fingerprint(v, receipt, why);
    if (verdict) return verdict;
    struct generation_job job = {.app = &v->app, .api = api, .listener = &listener};
    prepare(&job, receipt);
    if (job.err.status) verdict = refused(&job, why);
    if (!verdict) verdict = compare_settings(&job, receipt, why);
    if (!verdict) verdict = take_prompts(&job, receipt, why);
    if (!verdict) compute(v, &job);
    if (!verdict && job.err.status) verdict = refused(&job, why);
    if (!verdict) verdict = compare_outputs(&job, receipt, n_tokens, why);
    job_clear(&job);
    return verdict;
}

/* ---- files ---------------------------------------------------------------------------------- */

static void print_verdict(struct verification *v, const char *name, enum receipt_verdict verdict,
                          const struct json *receipt, int n_tokens, const struct buf *why) {
    v->code = max_int(v->code, code_of(verdict));
    if (verdict) {
        printf("%s: %s\n", name, why->data);
        return;
    }
    const char *build = json_text(json_member(json_member(receipt, "fingerprint"), "build"));
    const char *signature = !json_member(receipt, "signature") ? "not signed"
                            : v->public_key                    ? "signed by this key"
                                                               : "signed by its own key";
    printf("%s: the same %d token%s, %s", name, n_tokens, n_tokens == 1 ? "" : "s", signature);
    if (strcmp(build, v->own.build) != 0) printf(", made by build %s", build);
    printf("\n");
}

/* Verifies one document. Returns an exit code if the model cannot be opened. */
static int verify_receipt(struct verification *v, const char *name, const struct json *document) {
    const struct json *receipt = receipt_find(document);
    struct buf why = {0};
    struct err err = {0};
    int n_tokens = 0, code = 0;
    enum receipt_verdict verdict = RECEIPT_BROKEN;
    if (!receipt) {
        buf_puts(&why, "broken: it has no receipt");
    } else if ((verdict = receipt_check(receipt, v->public_key, &err)) != RECEIPT_SAME) {
        buf_printf(&why, "%s%s",
                   strncmp(err.message, "signature", 9) == 0 ? "" : "broken: ", err.message);
    } else if ((code = open_model(v, (struct options *)v->app.options)) == 0) {
        verdict = recompute(v, receipt, &n_tokens, &why);
    }
    if (code == 0) print_verdict(v, name, verdict, receipt, n_tokens, &why);
    buf_free(&why);
    return code;
}

/* Verifies each line of a text that holds a receipt. Lines of a stream begin with "data: ". */
static int verify_lines(struct verification *v, const char *path, const char *text, size_t length) {
    int code = 0, n = 0, number = 0;
    for (size_t at = 0; at < length && code == 0;) {
        const char *line = text + at, *end = memchr(line, '\n', length - at);
        size_t size = end ? (size_t)(end - line) : length - at;
        struct json *document;
        char name[4200];
        at += size + 1;
        number++;
        if (size > 6 && strncmp(line, "data: ", 6) == 0) line += 6, size -= 6;
        bool may_have = memmem(line, size, "\"fingerprint\"", 13) != NULL;
        if (!may_have || json_parse_bounded(&document, "It", line, size, MAX_VALUES, NULL))
            continue;
        snprintf(name, sizeof name, "%s:%d", path, number);
        if (receipt_find(document)) code = verify_receipt(v, name, document), n++;
        json_free(document);
    }
    if (code == 0 && n == 0) {
        printf("%s: broken: it has no receipt\n", path);
        v->code = max_int(v->code, EXIT_BROKEN);
    }
    return code;
}

static int verify_text(struct verification *v, const char *path, const struct buf *text) {
    struct json *document;
    const char *data = text->data ? text->data : "";
    if (json_parse_bounded(&document, "It", data, text->length, MAX_VALUES, NULL))
        return verify_lines(v, path, data, text->length);
    int code = verify_receipt(v, path, document);
    json_free(document);
    return code;
}

/* Reads a file, or standard input. Returns an exit code. */
static int read_file(const char *path, struct buf *text) {
    char piece[1 << 14];
    size_t n;
    if (strcmp(path, "-") == 0) return read_input(text);
    FILE *file = fopen(path, "re");
    while (file && (n = fread(piece, 1, sizeof piece, file)) > 0) buf_add(text, piece, n);
    bool failed = !file || ferror(file);
    if (failed) print_failure("%s: %s", path, strerror(errno));
    if (file) fclose(file);
    return failed ? 1 : 0;
}

/* A device that fails ends the command. */
static int verify_files(struct verification *v, const struct options *options) {
    int code = 0;
    for (int i = 0; i < options->n_arguments && code == 0; i++) {
        struct buf text = {0};
        int unread = read_file(options->arguments[i], &text);
        v->code = max_int(v->code, unread);
        if (!unread) code = verify_text(v, options->arguments[i], &text);
        if (v->app.failure.status) code = EXIT_DEVICE_FAILED;
        buf_free(&text);
    }
    return code ? code : v->code;
}

int command_verify(struct options *options) {
    unsigned char key[RECEIPT_PUBLIC_BYTES];
    struct err err;
    if (app_check_parsers(options, &err)) return print_error(&err);
    if (options->receipts.public_key &&
        receipt_public_read(key, options->receipts.public_key, &err))
        return print_error(&err);
    struct verification *v = mem_calloc(1, sizeof *v);
    v->app.options = options;
    v->public_key = options->receipts.public_key ? key : NULL;
    bridge_init(&v->app, NULL, notify);
    pthread_cond_init(&v->arrived, NULL);
    int code = verify_files(v, options);
    offline_close(&v->app);
    pthread_cond_destroy(&v->arrived);
    mem_free(v);
    return code;
}
