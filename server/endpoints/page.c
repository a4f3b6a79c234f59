/* / and /page/NAME: the web page for browsers, and the answer at / that Ollama's clients expect. */
#include <assert.h>
#include <string.h>

#include "server/endpoints/endpoints.h"
#include "server/ollama/ollama.h"
#include "server/page/page.h"

/* Caches must not give a browser the answer of another client. */
static void respond_runs(const struct app *app, struct http_request *http) {
    const struct http_field vary = {"Vary", "Accept"};
    http_respond(http, 200, "text/plain; charset=utf-8", OLLAMA_RUNS, strlen(OLLAMA_RUNS), &vary,
                 app->options->access.page);
}

void page_root(struct app *app, struct http_request *http) {
    if (app->options->access.page && page_accepts_html(http))
        page_respond(http, page_find(PAGE_DOCUMENT));
    else
        respond_runs(app, http);
    http_release(http);
}

void page_part(struct app *app, struct http_request *http) {
    static const char folder[] = "/page/";
    assert(strncmp(http->path, folder, strlen(folder)) == 0);
    const char *name = http->path + strlen(folder);
    const struct page_file *file = app->options->access.page ? page_find(name) : NULL;
    if (file) {
        page_respond(http, file);
    } else {
        struct err err;
        err_set(&err, STATUS_NOT_FOUND, NULL, "The page has no file `%.100s`.", name);
        respond_error(app, http, &err, NULL);
    }
    http_release(http);
}
