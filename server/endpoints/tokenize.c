/* /tokenize, /detokenize and /tokenizer_info, on a worker thread: a text may be as large as a body,
 * and a list of special tokens as long as the vocabulary. */
#include <assert.h>
#include <stdlib.h>

#include "server/app.h"
#include "server/generation/prompt.h"

struct token_request {
    struct async_request async; /* first: http_request.app points here */
    struct answer_share share;
    struct buf body; /* of the answer */
    struct err err;  /* or what it says */
};

static bool reserve(struct token_request *request, size_t bytes, const char *param) {
    struct answers *answers = &request->async.app->answers;
    return answer_reserve(answers, &request->share, bytes, param, &request->err) == STATUS_OK;
}

static void tokenize(struct async_request *async) {
    struct token_request *request = (struct token_request *)async;
    struct app *app = async->app;
    struct api_tokenize *asked;
    int32_t *ids = NULL;
    int n = 0;
    if (api_tokenize_parse(&asked, async->http->body, async->http->body_length, &app->limits,
                           &request->err)) {
        return;
    }
    if (!prompt_encode(app->engine, &asked->prompt, asked->add_special_tokens, NULL, &ids, &n,
                       &request->err)) {
        const struct tokenizer *tokenizer = engine_tokenizer(app->engine);
        bool strings = asked->return_token_strs;
        if (reserve(request, api_tokens_bound(tokenizer, ids, n, strings), "return_token_strs"))
            api_write_tokens(&request->body, tokenizer, ids, n, app->limits.max_model_len, strings);
        mem_free(ids);
    }
    api_tokenize_free(asked);
}

static void detokenize_ids(struct async_request *async) {
    struct token_request *request = (struct token_request *)async;
    const struct app *app = async->app;
    int32_t *ids;
    int n;
    if (api_detokenize_parse(&ids, &n, async->http->body, async->http->body_length, &app->limits,
                             &request->err)) {
        return;
    }
    const struct tokenizer *tokenizer = engine_tokenizer(app->engine);
    if (reserve(request, api_detokenized_bound(tokenizer, ids, n), "tokens"))
        api_write_detokenized(&request->body, tokenizer, ids, n);
    mem_free(ids);
}

static void describe(struct async_request *async) {
    struct token_request *request = (struct token_request *)async;
    const struct engine *engine = async->app->engine;
    api_write_tokenizer_info(&request->body, engine_tokenizer(engine),
                             engine_chat_template(engine, false), async->app->limits.max_model_len);
}

static void respond(struct async_request *async) {
    struct token_request *request = (struct token_request *)async;
    assert((request->body.length > 0) == (request->err.status == STATUS_OK));
    answer_settle(&async->app->answers, &request->share, request->body.length);
    if (request->err.status)
        respond_error(async->http, &request->err, NULL);
    else
        respond_json(async->http, &request->body);
    async_release_http(async);
}

static void free_request(struct async_request *async) {
    struct token_request *request = (struct token_request *)async;
    answer_release(&async->app->answers, &request->share);
    buf_free(&request->body);
    mem_free(request);
}

void tokenize_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = {.run = tokenize, .done = respond, .free = free_request};
    struct token_request *request = mem_calloc(1, sizeof *request);
    async_start(&request->async, &kind, app, http);
}

void detokenize_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = {
        .run = detokenize_ids, .done = respond, .free = free_request};
    struct token_request *request = mem_calloc(1, sizeof *request);
    async_start(&request->async, &kind, app, http);
}

void tokenizer_info_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = {.run = describe, .done = respond, .free = free_request};
    struct token_request *request = mem_calloc(1, sizeof *request);
    async_start(&request->async, &kind, app, http);
}
