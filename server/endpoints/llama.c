/* /props, /slots and /apply-template, as in llama-server. */
#include <stdlib.h>

#include "server/endpoints/endpoints.h"
#include "server/generation/prompt.h"
#include "server/json/json.h"
#include "server/llama/llama.h"

static struct llama_card card_of(const struct app *app) {
    return (struct llama_card){
        .limits = &app->limits,
        .n_slots = app->options->engine.max_num_seqs,
        .chat = engine_chat_template(app->engine, false),
        .tokenizer = engine_tokenizer(app->engine),
    };
}

void llama_props(struct app *app, struct http_request *http) {
    struct llama_card card = card_of(app);
    struct buf body = {0};
    llama_write_props(&body, &card);
    respond_json(http, &body);
    http_release(http);
}

void llama_slots(struct app *app, struct http_request *http) {
    struct llama_card card = card_of(app);
    struct scheduler_stats stats;
    struct buf body = {0};
    scheduler_stats(app->scheduler, &stats);
    llama_write_slots(&body, &card, stats.running);
    respond_json(http, &body);
    http_release(http);
}

static enum async_next apply_template(struct async_request *async) {
    struct text_request *request = (struct text_request *)async;
    struct app *app = async->app;
    struct api_tokenize *asked;
    struct buf text = {0};
    if (api_template_parse(&asked, async->http->body, async->http->body_length, &app->limits,
                           &request->err)) {
        return ASYNC_ANSWER;
    }
    if (!prompt_render(app->engine, &asked->prompt, &text, NULL, NULL, &request->err)) {
        const char *data = text.data ? text.data : "";
        size_t bytes = json_string_bound(data, text.length) + sizeof "{\"prompt\":}";
        if (text_request_reserve(request, bytes, "messages"))
            llama_write_prompt(&request->answer.body, data, text.length);
    }
    buf_free(&text);
    api_tokenize_free(asked);
    return ASYNC_ANSWER;
}

void llama_template_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = TEXT_KIND(LANE_TEXT, apply_template);
    text_request_start(app, http, &kind);
}
