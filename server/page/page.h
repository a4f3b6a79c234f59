/* server/page: the web page at /, as files that are part of the program. The page is plain HTML,
 * CSS and JavaScript; its answers forbid browsers to load anything else. Any browser may get it
 * without a key, because it holds no data: it requests that from the API as other clients do.
 *
 * Only the loop thread may call these functions.
 */
#ifndef PENSTOCK_SERVER_PAGE_H
#define PENSTOCK_SERVER_PAGE_H

#include "server/http/http.h"

/* The name of the document; the other files are below /page/. */
#define PAGE_DOCUMENT "index.html"

/* One file of the page. */
struct page_file {
    const char *name, *type; /* the type is a media type */
    const char *data;        /* [length] */
    size_t length;
};

/* Returns the file of this name, or NULL. */
const struct page_file *page_find(const char *name);

/* Returns the i-th file, or NULL after the last one. */
const struct page_file *page_at(int i);

/* Does the client accept HTML by name, as browsers do? A range of all types does not count. */
bool page_accepts_html(const struct http_request *http);

/* Answers with the file, or with 304 if the client has it. The caller releases the request. */
void page_respond(struct http_request *http, const struct page_file *file);

#endif
