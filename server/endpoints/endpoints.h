/* server/endpoints: the functions of the paths. Internal to server/. Only the loop thread may call
 * them. */
#ifndef PENSTOCK_SERVER_ENDPOINTS_H
#define PENSTOCK_SERVER_ENDPOINTS_H

#include "server/app/app.h"

/* ---- routes.c: paths ------------------------------------------------------------------------ */

/* Make and free the app's table of routes. */
void routes_open(struct app *app);
void routes_close(struct app *app);

/* The callbacks of http_config. `app` is a struct app. */
void routes_on_headers(void *app, struct http_request *http);
void routes_on_request(void *app, struct http_request *http);
void routes_on_gone(void *app, struct http_request *http);
void routes_on_done(void *app, struct http_request *http, int status, uint64_t bytes);
int routes_fields(void *app, struct http_request *http, struct http_field *out);
size_t routes_error_body(void *app, const struct http_request *http, const struct err *err,
                         char *out, size_t size);

/* ---- openapi.c: the routes and their fields as an OpenAPI document -------------------------- */

/* Writes the document of all routes and the fields of their bodies. */
void openapi_write(struct buf *out, const struct app *app);

/* Answers with app->openapi. */
void openapi_answer(struct app *app, struct http_request *http);

/* ---- proxies.c: clients of proxies ---------------------------------------------------------- */

/* Reads --trusted-proxies into app->proxies. */
enum status proxies_load(struct app *app, struct err *err);

/* If the peer is a trusted proxy, sets http->client to the proxy's client. */
void proxies_name_client(const struct app *app, struct http_request *http);

/* ---- cors.c: web pages of other origins ----------------------------------------------------- */

/* Gets the fields, at most 3, for any answer to this request. Returns their number. */
int cors_fields(const struct app *app, const struct http_request *http, struct http_field *out);

/* Answers OPTIONS, possibly a browser's preflight, with the methods of the path. */
void cors_answer_options(const struct app *app, struct http_request *http, const char *methods);

/* ---- health.c: state of the process --------------------------------------------------------- */

void health_live(struct app *app, struct http_request *http);
void health_ready(struct app *app, struct http_request *http);
void health_load(struct app *app, struct http_request *http);
void health_kv_event_sources(struct app *app, struct http_request *http);
void health_server_info(struct app *app, struct http_request *http);
void health_metrics(struct app *app, struct http_request *http);
void health_version(struct app *app, struct http_request *http);

/* Write the version as one line of text, and as the JSON of /version; `backend` may be NULL. */
void version_write(struct buf *out);
void version_write_json(struct buf *out, const char *backend);

/* ---- tokenize.c: /tokenize, /detokenize, /tokenizer_info ------------------------------------ */

/* A request that a worker answers from its body and the model. */
struct text_request {
    struct body_request answer; /* must be first; its err is the next member */
    struct err err;
};

/* The kind of the requests whose worker, in this lane, runs `function`. */
#define TEXT_KIND(lane, function)                                                                  \
    { lane, function, body_request_respond, .undo = body_request_undo, .free = body_request_free }

void text_request_start(struct app *app, struct http_request *http, const struct async_kind *kind);

/* Reserves memory for the answer, on a worker. Returns false and sets the request's error if there
 * is too little; `param` names the field that asks for it. */
bool text_request_reserve(struct text_request *request, size_t bytes, const char *param);

void tokenize_start(struct app *app, struct http_request *http);
void detokenize_start(struct app *app, struct http_request *http);
void tokenizer_info_start(struct app *app, struct http_request *http);

/* ---- page.c: the web page ------------------------------------------------------------------- */

/* The page if the client accepts HTML, else a line of text that Ollama's clients expect. */
void page_root(struct app *app, struct http_request *http);

/* A file of the page by its name; 404 with --no-page. */
void page_part(struct app *app, struct http_request *http);

/* ---- live.c: snapshots of the batch --------------------------------------------------------- */

/* Make and free the app's list of watchers, which must be empty at the end. */
void live_open(struct app *app);
void live_close(struct app *app);

/* Answers with a stream of snapshots, or with one. */
void live_answer(struct app *app, struct http_request *http);

/* The client has left. Does nothing if it was not a watcher. */
void live_leave(struct app *app, const struct http_request *http);

/* ---- adapters.c: loads and unloads adapters, for admin keys ---------------------------------- */

extern const struct field_table lora_load_fields, lora_unload_fields;
void lora_load_start(struct app *app, struct http_request *http);
void lora_unload_start(struct app *app, struct http_request *http);

/* ---- ollama.c: Ollama's descriptions of the model ------------------------------------------- */

void ollama_version(struct app *app, struct http_request *http);
void ollama_tags(struct app *app, struct http_request *http);
void ollama_ps(struct app *app, struct http_request *http);
void ollama_show_start(struct app *app, struct http_request *http);

/* ---- llama.c: /props, /slots, /apply-template ----------------------------------------------- */

void llama_props(struct app *app, struct http_request *http);
void llama_slots(struct app *app, struct http_request *http);
void llama_template_start(struct app *app, struct http_request *http);

/* ---- stored.c: stored responses, with --state-dir ------------------------------------------- */

void stored_get(struct app *app, struct http_request *http);
void stored_delete(struct app *app, struct http_request *http);
/* Cancels a response. */
void stored_post(struct app *app, struct http_request *http);

/* ---- render.c: token ids of a generation, without computing it ------------------------------ */

void render_start(struct app *app, struct http_request *http, const struct api *api);

/* The count_path of an API: the number of tokens of the prompt of the same body. */
void count_start(struct app *app, struct http_request *http, const struct api *api);

#endif
