/* Cross-origin requests of browsers (CORS protocol of the Fetch standard): --cors-origins lists the
 * origins whose pages may read answers. The server does not use cookies, so answers never allow
 * credentials. */
#include <string.h>
#include <strings.h>

#include "server/endpoints/endpoints.h"

/* Is the origin in the option's list? */
static bool is_allowed(const char *list, const char *origin) {
    size_t length = strlen(origin);
    while (*list) {
        list += strspn(list, ", ");
        size_t n = strcspn(list, ", ");
        if (n == length && strncasecmp(list, origin, n) == 0) return true;
        list += n;
    }
    return false;
}

int cors_fields(const struct app *app, const struct http_request *http, struct http_field *out) {
    const char *list = app->options->access.cors_origins;
    const char *origin = http_header(http, "Origin");
    static const char exposed[] = "X-Request-Id, Request-Id, Retry-After, X-Penstock-Ignored, "
                                  "traceresponse";
    int n = 0;
    if (!list) return 0;
    bool is_any = strcmp(list, "*") == 0;
    if (!is_any) out[n++] = (struct http_field){"Vary", "Origin"};
    if (!origin || (!is_any && !is_allowed(list, origin))) return n;
    out[n++] = (struct http_field){"Access-Control-Allow-Origin", is_any ? "*" : origin};
    out[n++] = (struct http_field){"Access-Control-Expose-Headers", exposed};
    return n;
}

/* Returns the headers that a page may send: the requested ones, if they are a list of names. */
static const char *allowed_headers(const struct http_request *http) {
    static const char usual[] = "Authorization, Content-Type, X-Api-Key, Api-Key, X-Request-Id";
    const char *asked = http_header(http, "Access-Control-Request-Headers");
    if (!asked || !*asked || strlen(asked) > 2048) return usual;
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
    return strspn(asked, allowed) == strlen(asked) ? asked : usual;
}

void cors_answer_options(const struct app *app, struct http_request *http, const char *methods) {
    struct http_field fields[5] = {{"Allow", methods}};
    int n = 1;
    bool is_preflight = app->options->access.cors_origins && http_header(http, "Origin") &&
                        http_header(http, "Access-Control-Request-Method");
    if (is_preflight) {
        fields[n++] = (struct http_field){"Access-Control-Allow-Methods", methods};
        fields[n++] = (struct http_field){"Access-Control-Allow-Headers", allowed_headers(http)};
        fields[n++] = (struct http_field){"Access-Control-Max-Age", "600"};
        fields[n++] = (struct http_field){"Vary", "Access-Control-Request-Headers"};
    }
    http_respond(http, 204, NULL, "", 0, fields, n);
    http_release(http);
}
