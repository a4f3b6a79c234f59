/* The names of the served model, and the limits on requests. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "server/app/app.h"

#define MAX_PROMPTS 256

void app_set_name(struct app *app) {
    const char *served = app->options->api.served_model_name;
    _Static_assert(sizeof app->names > MODEL_NAME_BYTES, "a path's name has room");
    memset(app->names, 0, sizeof app->names);
    app->model_name = app->names;
    if (!served) {
        model_path_name(app->names, app->options->engine.model);
        return;
    }
    char *out = app->names, *end = app->names + sizeof app->names - 2;
    while (*served && out < end) {
        size_t n = strcspn(served, ",");
        int taken = snprintf(out, (size_t)(end - out), "%.*s", (int)n, served);
        if (taken > 0) out += min_int(taken, (int)(end - out)) + 1;
        served += n + (served[n] == ',');
    }
}

static bool is_word_for_formats(const char *name) {
    return strcmp(name, "auto") == 0 || strcmp(name, "none") == 0;
}

enum status app_check_parsers(const struct options *options, struct err *err) {
    const char *tool = options->api.tool_call_parser, *reasoning = options->api.reasoning_parser;
    struct buf names = {0};
    enum status status = STATUS_OK;
    if (!is_word_for_formats(tool) && !tool_format_find(tool)) {
        tool_format_names(&names);
        status = err_set(err, STATUS_USAGE, "tool-call-parser",
                         "--tool-call-parser must be auto, none or one of %s, but it is %.40s",
                         names.data, tool);
    } else if (!is_word_for_formats(reasoning) && !reasoning_format_find(reasoning)) {
        reasoning_format_names(&names);
        status = err_set(err, STATUS_USAGE, "reasoning-parser",
                         "--reasoning-parser must be auto, none or one of %s, but it is %.40s",
                         names.data, reasoning);
    }
    buf_free(&names);
    return status;
}

static struct tool_probe probe_of(const struct app *app, const struct chat_template *chat) {
    const struct tokenizer *tokenizer = engine_tokenizer(app->engine);
    int32_t bos = tokenizer_bos(tokenizer), eos = tokenizer_eos(tokenizer);
    return (struct tool_probe){
        .chat = chat,
        .tools = app->limits.tool_format,
        .reasoning = app->limits.reasoning_format,
        .bos_token = bos >= 0 ? tokenizer_token_name(tokenizer, bos) : NULL,
        .eos_token = eos >= 0 ? tokenizer_token_name(tokenizer, eos) : NULL,
    };
}

/* Removes a format of calls that the template's markers suggest but the template does not write. */
static void confirm_tool_format(struct app *app, const struct chat_template *chat) {
    const struct tool_probe probe = probe_of(app, chat);
    if (!chat || !probe.tools || !tool_probe_disagrees(&probe)) return;
    app->limits.tool_format = NULL;
    app->limits.other_tool_format = probe.tools;
}

/* Derives the format of calls of a template without a known one. */
static void derive_tool_format(struct app *app, const struct chat_template *chat) {
    const struct tool_probe probe = probe_of(app, chat);
    tool_format_free(app->derived_format);
    app->derived_format = NULL;
    if (!chat || app->limits.tool_format) return;
    app->derived_format = tool_probe_derive(&probe);
    if (!app->derived_format) return;
    app->limits.tool_format = app->derived_format;
    app->limits.other_tool_format = NULL;
    log_line(LOG_INFO, "tool calls: the form is derived from the chat template");
}

/* Sets the model's formats of calls and reasoning, from the options or its template. */
static void set_formats(struct app *app) {
    const struct chat_template *chat = engine_chat_template(app->engine, true);
    const char *tool = app->options->api.tool_call_parser,
               *reasoning = app->options->api.reasoning_parser;
    size_t length = 0;
    const char *source = chat ? chat_template_source(chat, &length) : "";
    app->limits.tool_format = tool_format_find(tool);
    app->limits.reasoning_format = reasoning_format_named(reasoning, source, length);
    if (strcmp(reasoning, "auto") == 0)
        app->limits.reasoning_format = reasoning_format_of_template(source, length);
    const struct tool_probe probe = probe_of(app, chat);
    if (chat && probe.reasoning) reasoning_probe_space(&probe, app->limits.behind_reasoning);
    if (strcmp(tool, "auto") != 0) return;
    app->limits.tool_format = tool_format_of_template(source, length);
    confirm_tool_format(app, chat);
    derive_tool_format(app, chat);
}

/* Sets the limits on a request, from the model and the options. */
void app_set_limits(struct app *app) {
    const struct options *options = app->options;
    uint64_t seed = (uint64_t)options->api.seed;
    if (options->api.seed < 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = now_ns();
    app->limits = (struct api_limits){
        .model = app->model_name,
        .more = app->model_name == app->names ? app->names + strlen(app->names) + 1 : NULL,
        .any_model = options->api.any_model_name,
        .V = engine_model(app->engine)->V,
        .config = engine_model(app->engine),
        .max_model_len = engine_memory(app->engine)->max_model_len,
        .max_choices = min_int(options->engine.max_num_seqs, MAX_CHOICES),
        /* more could never be queued */
        .max_prompts = min_int(options->scheduler.max_queued_requests, MAX_PROMPTS),
        .default_seed = seed,
        .has_chat_template = engine_chat_template(app->engine, false) != NULL,
        .takes_system = system_probe_shows(engine_chat_template(app->engine, false)),
        .reasoning_budget = options->api.reasoning_budget,
        .tokenizer = engine_tokenizer(app->engine),
        .pooling = engine_pooling(app->engine),
        .classifier = engine_classifier(app->engine),
        .hidden_size = engine_hidden_size(app->engine),
        .embedding_size =
            head_outputs(&engine_pooling(app->engine)->head, engine_hidden_size(app->engine)),
        .can_infill = tokenizer_fim(engine_tokenizer(app->engine)) != NULL,
        .sampling = options->api.generation_config == GENERATION_CONFIG_AUTO
                        ? engine_sampling_defaults(app->engine)
                        : NULL,
    };
    set_formats(app);
}

/* ---- the fingerprint of answers -------------------------------------------------------------- */

void app_set_identity(struct app *app) {
    fingerprint_make(&app->fingerprint, app->options, app->engine, app->model_name);
    fingerprint_write_system(app->system_fingerprint, &app->fingerprint);
    app->model_hash = model_hash_new(app->options->engine.model);
    if (app->options->receipts.key || app->options->receipts.record)
        model_hash_start(app->model_hash);
}
