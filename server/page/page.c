/* The files of the page and their answers. The assembler copies the files into the program. */
#include "server/page/page.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

/* ---- files ---------------------------------------------------------------------------------- */

#define SCRIPT "text/javascript; charset=utf-8"

/* X(symbol, name, media type); PAGE_FOLDER is from the build, and ends in a slash. */
#define PAGE_FILES(X)                                                                              \
    X(page_html, PAGE_DOCUMENT, "text/html; charset=utf-8")                                        \
    X(page_css, "page.css", "text/css; charset=utf-8")                                             \
    X(page_main, "main.js", SCRIPT)                                                                \
    X(page_dom, "dom.js", SCRIPT)                                                                  \
    X(page_api, "api.js", SCRIPT)                                                                  \
    X(page_store, "store.js", SCRIPT)                                                              \
    X(page_markdown, "markdown.js", SCRIPT)                                                        \
    X(page_settings, "settings.js", SCRIPT)                                                        \
    X(page_message, "message.js", SCRIPT)                                                          \
    X(page_chat, "chat.js", SCRIPT)                                                                \
    X(page_plot, "plot.js", SCRIPT)                                                                \
    X(page_live, "live.js", SCRIPT)

#define INCLUDE_FILE(symbol, name, type)                                                           \
    __asm__(".section .rodata\n.global " #symbol "\n" #symbol ":\n.incbin \"" PAGE_FOLDER name     \
            "\"\n.global " #symbol "_end\n" #symbol "_end:\n.byte 0\n.previous\n");                \
    extern const char symbol[], symbol##_end[];
PAGE_FILES(INCLUDE_FILE)

const struct page_file *page_at(int i) {
#define FILE_NAME(symbol, name, type) {name, type, symbol, 0},
#define FILE_END(symbol, name, type) symbol##_end,
    static struct page_file files[] = {PAGE_FILES(FILE_NAME)};
    static const char *const ends[] = {PAGE_FILES(FILE_END)};
    if (i < 0 || i >= (int)(sizeof files / sizeof *files)) return NULL;
    files[i].length = (size_t)(ends[i] - files[i].data);
    assert(files[i].length > 0);
    return &files[i];
}

const struct page_file *page_find(const char *name) {
    for (int i = 0; page_at(i); i++) {
        if (strcmp(page_at(i)->name, name) == 0) return page_at(i);
    }
    return NULL;
}

/* ---- what the client has and accepts -------------------------------------------------------- */

/* Is the weight of this media range 0, which refuses the type? */
static bool is_refused(const char *range, size_t n) {
    const char *end = range + n;
    for (const char *at = memchr(range, ';', n); at; at = memchr(at, ';', (size_t)(end - at))) {
        at += 1 + strspn(at + 1, " \t");
        if (end - at < 3 || strncasecmp(at, "q=0", 3) != 0) continue;
        return strspn(at + 3, ".0 \t") >= (size_t)(end - at - 3);
    }
    return false;
}

bool page_accepts_html(const struct http_request *http) {
    static const char html[] = "text/html";
    struct buf list = {0};
    bool accepts = false;
    http_header_list(http, "Accept", &list);
    for (const char *at = list.length > 0 ? list.data : ""; *at && !accepts;) {
        at += strspn(at, ", \t");
        size_t n = strcspn(at, ","), n_type = strcspn(at, ",; \t");
        accepts =
            n_type == strlen(html) && strncasecmp(at, html, n_type) == 0 && !is_refused(at, n);
        at += n;
    }
    buf_free(&list);
    return accepts;
}

/* Does If-None-Match list this tag? A tag is opaque and quoted, so it occurs nowhere else. */
static bool has_tag(const struct http_request *http, const char *tag) {
    const char *known = http_header(http, "If-None-Match");
    return known && (strcmp(known, "*") == 0 || strstr(known, tag));
}

/* ---- answers -------------------------------------------------------------------------------- */

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

void page_respond(struct http_request *http, const struct page_file *file) {
    char tag[24];
    snprintf(tag, sizeof tag, "\"%016llx\"",
             (unsigned long long)XXH3_64bits(file->data, file->length));
    const struct http_field fields[] = {
        {"ETag", tag},
        {"Cache-Control", "no-cache"}, /* ask each time: a new program has a new page */
        {"Vary", "Accept"},
        {"Content-Security-Policy", policy},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
    };
    int n = sizeof fields / sizeof *fields;
    bool is_known = has_tag(http, tag);
    http_respond(http, is_known ? 304 : 200, is_known ? NULL : file->type, file->data,
                 is_known ? 0 : file->length, fields, n);
}
