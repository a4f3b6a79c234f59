/* Writes Ollama's descriptions of the served model: /api/tags, /api/ps, /api/show, /api/version. */
#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/ollama/internal.h"

/* The model is never unloaded. Ollama too gives a distant time for that. */
#define NEVER "9999-12-31T23:59:59Z"

size_t ollama_name_length(const struct api_limits *limits, const char *name, size_t n) {
    const size_t n_tag = strlen(":latest");
    bool is_tagged = n > n_tag && memcmp(name + n - n_tag, ":latest", n_tag) == 0;
    return is_tagged && !api_serves(limits, name, n) ? n - n_tag : n;
}

static void write_member(struct buf *out, const char *name, const char *text) {
    buf_printf(out, "\"%s\":", name);
    json_write_string(out, text, strlen(text));
}

static void write_int(struct buf *out, const char *name, int64_t value) {
    buf_printf(out, "\"%s\":", name);
    json_write_int(out, value);
}

static void write_details(struct buf *out, const struct ollama_card *card) {
    const struct model_config *config = card->limits->config;
    char type[sizeof config->quantisation];
    double n = (double)config->n_parameters;
    size_t i = 0;
    for (; config->quantisation[i]; i++)
        type[i] = (char)toupper((unsigned char)config->quantisation[i]);
    type[i] = 0;
    buf_puts(out, "\"details\":{\"parent_model\":\"\",");
    write_member(out, "format", card->is_folder ? "safetensors" : "gguf");
    buf_puts(out, ",");
    write_member(out, "family", config->architecture);
    buf_puts(out, ",\"families\":[");
    json_write_string(out, config->architecture, strlen(config->architecture));
    buf_printf(out,
               n >= 1e9 ? "],\"parameter_size\":\"%.1fB\"," : "],\"parameter_size\":\"%.2fM\",",
               n >= 1e9 ? n * 1e-9 : n * 1e-6);
    write_member(out, "quantization_level", type);
    buf_puts(out, "}");
}

static void write_modified(struct buf *out, const struct ollama_card *card) {
    buf_puts(out, "\"modified_at\":");
    api_write_time(out, card->started_s);
}

static void write_model(struct buf *out, const struct ollama_card *card, const char *name,
                        bool as_running) {
    const struct model_config *config = card->limits->config;
    buf_puts(out, "{");
    write_member(out, "name", name);
    buf_puts(out, ",");
    write_member(out, "model", name);
    buf_puts(out, ",");
    write_int(out, "size", config->file_bytes);
    buf_printf(out, ",\"digest\":\"%064" PRIx64 "\",", config->stamp);
    write_details(out, card);
    buf_puts(out, ",");
    if (as_running) {
        buf_puts(out, "\"expires_at\":\"" NEVER "\",");
        write_int(out, "size_vram", card->is_on_host ? 0 : config->file_bytes);
        buf_puts(out, ",");
        write_int(out, "context_length", card->limits->max_model_len);
    } else {
        write_modified(out, card);
    }
    buf_puts(out, "}");
}

void ollama_write_models(struct buf *out, const struct ollama_card *card, bool as_running) {
    const struct api_limits *limits = card->limits;
    assert(limits->config);
    buf_puts(out, "{\"models\":[");
    write_model(out, card, limits->model, as_running);
    for (const char *more = limits->more; more && *more && !as_running; more += strlen(more) + 1) {
        buf_puts(out, ",");
        write_model(out, card, more, as_running);
    }
    buf_puts(out, "]}");
}

void ollama_write_version(struct buf *out) {
    buf_puts(out, "{\"version\":\"" OLLAMA_VERSION "\",");
    write_member(out, "penstock", build_info().version);
    buf_puts(out, "}");
}

/* ---- /api/show ------------------------------------------------------------------------------ */

/* Appends one line per parameter, as in a Modelfile. Clients read num_ctx and stop. */
static void parameter_lines(struct buf *text, const struct ollama_card *card) {
    const struct sampling_defaults *own = card->limits->sampling;
    buf_printf(text, "num_ctx %d", card->limits->max_model_len);
    for (int i = 0; i < card->n_ends; i++) {
        const char *name = tokenizer_token_name(card->tokenizer, card->ends[i]);
        if (!*name) continue;
        buf_puts(text, "\nstop ");
        json_write_string(text, name, strlen(name));
    }
    if (!own) return;
    if (own->temperature >= 0) buf_printf(text, "\ntemperature %g", own->temperature);
    if (own->top_k >= 0) buf_printf(text, "\ntop_k %d", own->top_k);
    if (own->top_p >= 0) buf_printf(text, "\ntop_p %g", own->top_p);
    if (own->min_p >= 0) buf_printf(text, "\nmin_p %g", own->min_p);
    if (own->repetition_penalty >= 0)
        buf_printf(text, "\nrepeat_penalty %g", own->repetition_penalty);
}

static void write_info(struct buf *out, const struct ollama_card *card) {
    const struct model_config *config = card->limits->config;
    const struct {
        const char *key;
        int64_t value;
    } figures[] = {{"context_length", card->limits->max_model_len},
                   {"embedding_length", config->K},
                   {"block_count", config->L},
                   {"attention.head_count", config->H},
                   {"attention.head_count_kv", config->G},
                   {"vocab_size", config->V}};
    buf_puts(out, "\"model_info\":{");
    write_member(out, "general.architecture", config->architecture);
    buf_puts(out, ",");
    write_member(out, "general.basename", config->name);
    buf_puts(out, ",");
    write_int(out, "general.parameter_count", config->n_parameters);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        buf_printf(out, ",\"%s.%s\":", config->architecture, figures[i].key);
        json_write_int(out, figures[i].value);
    }
    buf_puts(out, "}");
}

/* An encoder answers with vectors only. */
static void write_capabilities(struct buf *out, const struct ollama_card *card) {
    const struct api_limits *limits = card->limits;
    const struct pooling *pooling = limits->pooling;
    const bool embeds = pooling && pooling->is_stated && !pooling->unserved[0];
    const bool writes = !limits->config->is_encoder;
    buf_printf(out, "\"capabilities\":[%s", writes ? "\"completion\"" : "");
    if (writes && limits->tool_format) buf_puts(out, ",\"tools\"");
    if (writes && limits->reasoning_format) buf_puts(out, ",\"thinking\"");
    if (writes && limits->can_infill) buf_puts(out, ",\"insert\"");
    if (embeds) buf_puts(out, writes ? ",\"embedding\"" : "\"embedding\"");
    buf_puts(out, "]");
}

void ollama_write_show(struct buf *out, const struct ollama_card *card) {
    struct buf parameters = {0};
    size_t length = 0;
    const char *source = card->chat ? chat_template_source(card->chat, &length) : "";
    assert(card->limits->config);
    parameter_lines(&parameters, card);
    buf_puts(out, "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":");
    json_write_string(out, parameters.data, parameters.length);
    buf_puts(out, ",\"template\":");
    json_write_string(out, source, length);
    buf_puts(out, ",");
    write_details(out, card);
    buf_puts(out, ",");
    write_info(out, card);
    buf_puts(out, ",");
    write_capabilities(out, card);
    buf_puts(out, ",");
    write_modified(out, card);
    buf_puts(out, "}");
    buf_free(&parameters);
}

static const struct field show_rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED},
    {"name", FIELD_STRING, FIELD_NOT_STORED},
    {"verbose", FIELD_BOOL, FIELD_NOT_STORED},
};
const struct field_table ollama_show_fields = {FIELDS_OF(show_rows)};

static enum status check_show(const struct json *body, const struct api_limits *limits,
                              struct err *err) {
    if (!json_is(body, JSON_OBJECT))
        return err_set(err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(body));
    if (fields_check(&ollama_show_fields, body, err)) return err->status;
    const struct ollama_translation show = {.body = body, .fields = &ollama_show_fields};
    const struct json *model = ollama_field(&show, "model");
    if (!model) model = ollama_field(&show, "name");
    if (!model) return err_set(err, STATUS_INVALID_REQUEST, "model", "'model' is missing.");
    const char *name = json_text(model);
    if (api_serves(limits, name, ollama_name_length(limits, name, json_length(model))))
        return STATUS_OK;
    return err_set(err, STATUS_NOT_FOUND, "model",
                   "model '%.128s' not found: this server serves '%.128s'.", name, limits->model);
}

enum status ollama_parse_show(const char *body, size_t length, const struct api_limits *limits,
                              struct err *err) {
    struct json *json;
    enum status status = json_parse_strict(&json, "The body", body, length, err);
    if (status != STATUS_OK) return status;
    status = check_show(json, limits, err);
    json_free(json);
    return status;
}

/* ---- paths that are not served -------------------------------------------------------------- */

const char *ollama_unserved(const char *path) {
    static const char *const of_models[] = {"/api/pull", "/api/push", "/api/create", "/api/copy",
                                            "/api/delete"};
    for (size_t i = 0; i < sizeof of_models / sizeof *of_models; i++) {
        if (strcmp(path, of_models[i]) == 0)
            return "This server serves one model, which it reads at its start: to serve another "
                   "one, start it with --model.";
    }
    if (strncmp(path, "/api/blobs/", strlen("/api/blobs/")) == 0)
        return "This server does not store files: start it with --model to serve another model.";
    return NULL;
}
