/* /tokenize and /detokenize, on a worker thread: a text may be as large as a body. */
#include <stdlib.h>
#include <string.h>

#include "server/app.h"
#include "server/prompt.h"

struct text_work {
    struct owner owner; /* first: http_request.app points here */
    uv_work_t work;
    struct app *app;
    struct http_request *http;
    bool detokenize;
    struct buf body;
    struct err err;
};

static enum status tokenize_messages(struct app *app, const struct api_tokenize *asked,
                                     int32_t **ids, int *n, struct err *err) {
    struct chat_input input = prompt_chat_input(app->engine);
    input.messages = asked->messages;
    input.extra = asked->template_kwargs;
    input.add_generation_prompt = asked->add_generation_prompt;
    input.continue_final_message = asked->continue_final_message;
    return prompt_from_messages(app->engine, &input, ids, n, err);
}

static void tokenize(struct text_work *text) {
    struct app *app = text->app;
    struct api_tokenize *asked;
    int32_t *ids = NULL;
    int n = 0;
    if (api_tokenize_parse(&asked, text->http->body, text->http->body_length, &app->limits,
                           &text->err)) {
        return;
    }
    enum status status = asked->messages
                             ? tokenize_messages(app, asked, &ids, &n, &text->err)
                             : prompt_from_text(app->engine, &asked->prompt,
                                                asked->add_special_tokens, &ids, &n, &text->err);
    if (!status) {
        api_write_tokens(&text->body, engine_tokenizer(app->engine), ids, n,
                         app->limits.max_model_len, asked->return_token_strs);
        free(ids);
    }
    api_tokenize_free(asked);
}

static void detokenize_ids(struct text_work *text) {
    int32_t *ids;
    int n;
    if (api_detokenize_parse(&ids, &n, text->http->body, text->http->body_length,
                             &text->app->limits, &text->err)) {
        return;
    }
    struct buf out = {0};
    detokenize(engine_tokenizer(text->app->engine), ids, n, false, &out);
    api_write_text(&text->body, out.data ? out.data : "", out.length);
    buf_free(&out);
    free(ids);
}

static void work(uv_work_t *work) {
    struct text_work *text = work->data;
    if (text->detokenize)
        detokenize_ids(text);
    else
        tokenize(text);
}

static void after_work(uv_work_t *work, int status) {
    struct text_work *text = work->data;
    (void)status; /* only uv_cancel gives one, which is not used */
    if (text->err.status)
        respond_error(text->http, &text->err, NULL);
    else
        respond_json(text->http, &text->body);
    text->http->app = NULL; /* on_done may come when this is freed */
    http_release(text->http);
    http_flush(text->app->http);
    text->app->n_texts--;
    lifecycle_job_ended(text->app);
    buf_free(&text->body);
    free(text);
}

static void start(struct app *app, struct http_request *http, bool detokenize) {
    struct text_work *text = mem_calloc(1, sizeof *text);
    *text = (struct text_work){
        .owner = {OWNER_TEXT}, .app = app, .http = http, .detokenize = detokenize};
    text->work.data = text;
    http->app = text;
    app->n_texts++;
    uv_queue_work(&app->loop, &text->work, work, after_work);
}

void text_tokenize(struct app *app, struct http_request *http) {
    start(app, http, false);
}

void text_detokenize(struct app *app, struct http_request *http) {
    start(app, http, true);
}
