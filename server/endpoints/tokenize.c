/* /tokenize, /detokenize and /tokenizer_info, on a worker thread: a text may be as large as a body,
 * and the list of special tokens as long as the vocabulary. */
#include <stdlib.h>

#include "server/endpoints/endpoints.h"
#include "server/generation/prompt.h"

bool text_request_reserve(struct text_request *request, size_t bytes, const char *param) {
    struct answers *answers = &request->answer.async.app->answers;
    return answer_reserve(answers, &request->answer.share, bytes, param, &request->err) ==
           STATUS_OK;
}

static enum async_next tokenize(struct async_request *async) {
    struct text_request *request = (struct text_request *)async;
    struct app *app = async->app;
    struct api_tokenize *asked;
    int32_t *ids = NULL;
    int n = 0;
    if (api_tokenize_parse(&asked, async->http->body, async->http->body_length, &app->limits,
                           &request->err)) {
        return ASYNC_ANSWER;
    }
    if (!prompt_encode(app->engine, &asked->prompt, asked->add_special_tokens, NULL, &ids, &n,
                       &request->err)) {
        const struct tokenizer *tokenizer = engine_tokenizer(app->engine);
        enum token_form form = asked->with_pieces         ? TOKENS_WITH_PIECES
                               : asked->return_token_strs ? TOKENS_AND_NAMES
                                                          : TOKENS_ONLY;
        if (text_request_reserve(request, api_tokens_bound(tokenizer, ids, n, form),
                                 "return_token_strs"))
            api_write_tokens(&request->answer.body, tokenizer, ids, n, app->limits.max_model_len,
                             form);
        mem_free(ids);
    }
    api_tokenize_free(asked);
    return ASYNC_ANSWER;
}

static enum async_next detokenize_ids(struct async_request *async) {
    struct text_request *request = (struct text_request *)async;
    const struct app *app = async->app;
    int32_t *ids;
    int n;
    if (api_detokenize_parse(&ids, &n, async->http->body, async->http->body_length, &app->limits,
                             &request->err)) {
        return ASYNC_ANSWER;
    }
    const struct tokenizer *tokenizer = engine_tokenizer(app->engine);
    if (text_request_reserve(request, api_detokenized_bound(tokenizer, ids, n), "tokens"))
        api_write_detokenized(&request->answer.body, tokenizer, ids, n);
    mem_free(ids);
    return ASYNC_ANSWER;
}

static enum async_next describe(struct async_request *async) {
    struct text_request *request = (struct text_request *)async;
    const struct engine *engine = async->app->engine;
    api_write_tokenizer_info(&request->answer.body, engine_tokenizer(engine),
                             engine_chat_template(engine, false), async->app->limits.max_model_len);
    return ASYNC_ANSWER;
}

void text_request_start(struct app *app, struct http_request *http, const struct async_kind *kind) {
    struct text_request *request = mem_calloc(1, sizeof *request);
    request->answer.err = &request->err;
    async_start(&request->answer.async, kind, app, http);
}

void tokenize_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = TEXT_KIND(LANE_TEXT, tokenize);
    text_request_start(app, http, &kind);
}

void detokenize_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = TEXT_KIND(LANE_TEXT, detokenize_ids);
    text_request_start(app, http, &kind);
}

void tokenizer_info_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = TEXT_KIND(LANE_TEXT, describe);
    text_request_start(app, http, &kind);
}
