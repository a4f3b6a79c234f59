/* Writes the answer of /v1/models. One document serves all clients: OpenAI's members, vLLM's
 * max_model_len and root, llama-server's meta, Anthropic's type, display_name, created_at,
 * max_input_tokens and page, and the list `models`, which Codex reads beside `data`. */
#include <string.h>
#include <time.h>

#include "server/openai/internal.h"

/* The figures of llama-server's `meta`. */
static void write_meta(struct buf *out, const struct api_limits *limits) {
    const struct model_config *config = limits->config;
    const struct {
        const char *name;
        int64_t value;
    } figures[] = {
        {"n_vocab", config->V},
        {"n_ctx", limits->max_model_len},
        {"n_ctx_train", config->context_length},
        {"n_embd", config->K},
        {"n_params", config->n_parameters},
        {"size", config->file_bytes},
    };
    buf_puts(out, ",\"meta\":{");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        buf_printf(out, "%s\"%s\":", i > 0 ? "," : "", figures[i].name);
        json_write_int(out, figures[i].value);
    }
    buf_puts(out, "}");
}

void api_write_time(struct buf *out, int64_t seconds) {
    time_t since_1970 = (time_t)seconds;
    struct tm utc;
    char text[40] = "1970-01-01T00:00:00Z";
    if (gmtime_r(&since_1970, &utc)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    buf_printf(out, "\"%s\"", text);
}

/* Writes one model. As in vLLM, all names of the base model have the first name as their root, and
 * an adapter has its path as root and the base model as parent. */
static void write_model(struct buf *out, const struct api_limits *limits, const char *model,
                        const struct api_adapter *adapter, int64_t created) {
    const char *root = adapter ? adapter->root : limits->model;
    buf_puts(out, "{\"id\":");
    json_write_string(out, model, strlen(model));
    buf_puts(out, ",\"object\":\"model\",\"created\":");
    json_write_int(out, created);
    buf_puts(out, ",\"owned_by\":\"penstock\",\"root\":");
    json_write_string(out, root, strlen(root));
    buf_puts(out, ",\"parent\":");
    if (adapter)
        json_write_string(out, limits->model, strlen(limits->model));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"max_model_len\":");
    json_write_int(out, limits->max_model_len);
    buf_puts(out, ",\"type\":\"model\",\"display_name\":");
    json_write_string(out, model, strlen(model));
    buf_puts(out, ",\"created_at\":");
    api_write_time(out, created);
    buf_puts(out, ",\"max_input_tokens\":");
    json_write_int(out, limits->max_model_len);
    if (limits->config) write_meta(out, limits);
    buf_puts(out, "}");
}

/* Writes the adapters, each after a comma. `last` becomes the name of the last one. */
static void write_adapters(struct buf *out, const struct api_limits *limits,
                           struct api_adapter *last) {
    struct api_adapter adapter;
    const struct api_adapters *all = limits->adapters;
    for (int i = 0; all && all->at(all->arg, i, &adapter); i++) {
        buf_puts(out, ",");
        write_model(out, limits, adapter.name, &adapter, adapter.created);
        *last = adapter;
    }
}

void api_write_models(struct buf *out, const struct api_limits *limits, const char *name,
                      int64_t created) {
    const char *last = limits->model;
    struct api_adapter adapter = {.name = ""};
    if (name) {
        bool is_adapter = api_finds_adapter(limits, name, strlen(name), &adapter);
        write_model(out, limits, name, is_adapter ? &adapter : NULL,
                    is_adapter ? adapter.created : created);
        return;
    }
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    write_model(out, limits, limits->model, NULL, created);
    for (const char *more = limits->more; more && *more; more += strlen(more) + 1) {
        buf_puts(out, ",");
        write_model(out, limits, more, NULL, created);
        last = more;
    }
    write_adapters(out, limits, &adapter);
    if (adapter.name[0]) last = adapter.name;
    buf_puts(out, "],\"has_more\":false,\"first_id\":");
    json_write_string(out, limits->model, strlen(limits->model));
    buf_puts(out, ",\"last_id\":");
    json_write_string(out, last, strlen(last));
    buf_puts(out, ",\"models\":[]}");
}
