#include <string.h>

#include "server/api_internal.h"

static void write_or_null(struct buf *out, const char *text) {
    if (text[0])
        json_write_string(out, text, strlen(text));
    else
        buf_puts(out, "null");
}

void api_write_error(struct buf *out, const struct err *err) {
    const char *type = status_type(err->status);
    buf_puts(out, "{\"error\":{\"message\":");
    json_write_string(out, err->message, strlen(err->message));
    buf_puts(out, ",\"type\":");
    json_write_string(out, type, strlen(type));
    buf_puts(out, ",\"param\":");
    write_or_null(out, err->param);
    buf_puts(out, ",\"code\":");
    write_or_null(out, err->code);
    buf_puts(out, "}}");
}
