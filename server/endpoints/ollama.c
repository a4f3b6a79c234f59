/* /api/version, /api/tags, /api/ps and /api/show: Ollama's clients find the server and its model
 * by these. */
#include <string.h>

#include "server/endpoints/endpoints.h"
#include "server/ollama/ollama.h"

static struct ollama_card card_of(const struct app *app) {
    const char *path = app->options->engine.model;
    size_t n = strlen(path);
    struct ollama_card card = {
        .limits = &app->limits,
        .started_s = app->started_s,
        .is_folder = n < 5 || strcmp(path + n - 5, ".gguf") != 0,
        .is_on_host = engine_on_host(app->engine),
        .chat = engine_chat_template(app->engine, false),
        .tokenizer = engine_tokenizer(app->engine),
    };
    card.ends = engine_end_ids(app->engine, &card.n_ends);
    return card;
}

void ollama_version(struct app *app, struct http_request *http) {
    struct buf body = {0};
    (void)app;
    ollama_write_version(&body);
    respond_json(http, &body);
    http_release(http);
}

static void list(struct app *app, struct http_request *http, bool as_running) {
    struct ollama_card card = card_of(app);
    struct buf body = {0};
    ollama_write_models(&body, &card, as_running);
    respond_json(http, &body);
    http_release(http);
}

void ollama_tags(struct app *app, struct http_request *http) {
    list(app, http, false);
}

void ollama_ps(struct app *app, struct http_request *http) {
    list(app, http, true);
}

static enum async_next show(struct async_request *async) {
    struct text_request *request = (struct text_request *)async;
    const struct app *app = async->app;
    if (ollama_parse_show(async->http->body, async->http->body_length, &app->limits, &request->err))
        return ASYNC_ANSWER;
    struct ollama_card card = card_of(app);
    ollama_write_show(&request->answer.body, &card);
    return ASYNC_ANSWER;
}

void ollama_show_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = TEXT_KIND(LANE_TEXT, show);
    text_request_start(app, http, &kind);
}
