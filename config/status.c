#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"

const char *status_type(enum status status) {
    switch (status) {
#define STATUS_TYPE(code, type, http)                                                              \
    case STATUS_##code:                                                                            \
        return type;
        STATUS_MAP(STATUS_TYPE)
#undef STATUS_TYPE
    }
    return "server_error";
}

int status_http(enum status status) {
    switch (status) {
#define STATUS_HTTP(code, type, http)                                                              \
    case STATUS_##code:                                                                            \
        return http;
        STATUS_MAP(STATUS_HTTP)
#undef STATUS_HTTP
    }
    return 500;
}

/* Removes an incomplete character from the end of a truncated text. */
static void cut_at_character(char *text) {
    size_t n = strlen(text);
    text[n - utf8_unfinished(text, n)] = 0;
}

/* Replaces control characters (C0, DEL and C1) by spaces, because messages quote files and requests
 * and are written to terminals. */
static void make_harmless(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        if (*at < 0x20 || *at == 0x7F) *at = ' ';
        if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] <= 0x9F) at[0] = at[1] = ' ';
    }
}

enum status err_set(struct err *err, enum status status, const char *param, const char *format,
                    ...) {
    assert(status != STATUS_OK);
    if (!err) return status;
    memset(err, 0, sizeof *err);
    err->status = status;
    int named = snprintf(err->param, sizeof err->param, "%s", param ? param : "");
    if (named >= (int)sizeof err->param) cut_at_character(err->param);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (n >= (int)sizeof err->message) cut_at_character(err->message);
    make_harmless(err->param);
    make_harmless(err->message);
    return status;
}

enum status err_out_of_memory(struct err *err) {
    err_set(err, STATUS_UNAVAILABLE, NULL,
            "Not enough memory for this request: try again later, or send a smaller one.");
    if (err) strcpy(err->code, "out_of_memory");
    return STATUS_UNAVAILABLE;
}
