/* server/http: checks clients' input byte by byte (RFC 9110 and 9112).
 *
 *     BETWEEN -> METHOD -> TARGET -> VERSION -> NAME -> VALUE -> NAME ... (an empty line)
 *        ^ \__________________________________________________________________/ |      \
 *        |                    no body                                         BODY   CHUNK_SIZE
 *        \_____________________________________________________________________/        |
 *              \________ NAME (trailers) <- size 0 - CHUNK_SIZE <- CHUNK_END <- CHUNK <-/
 *
 * Lines must end with CR LF. RFC 9112 allows a server to refuse a field of several lines, a name
 * with white space around it, two lengths, or a length together with a coding. Guessing would be
 * dangerous, because a proxy may guess differently.
 */
#include "server/http/wire.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

enum {
    MAX_LENGTH_DIGITS = 18, /* a Content-Length that fits into 64 bits */
    MAX_SIZE_DIGITS = 15    /* hexadecimal digits of a chunk's size */
};

/* The state of one wire_check. */
struct check {
    struct wire *wire;
    struct err *err;
};

static bool refuse(struct check *check, enum status status, const char *message) {
    err_set(check->err, status, NULL, "%s", message);
    return false;
}

static bool refuse_syntax(struct check *check, const char *message) {
    return refuse(check, STATUS_INVALID_REQUEST, message);
}

/* ---- request line --------------------------------------------------------------------------- */

/* Is it a tchar of RFC 9110, allowed in methods and names? */
static bool is_token(unsigned char c) {
    return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool wrong_request_line(struct check *check) {
    return refuse_syntax(check, "the request line must be METHOD PATH HTTP/1.1");
}

/* Appends to a text that is truncated at the end of its array. */
static void keep(char *text, size_t size, size_t *length, unsigned char c) {
    if (*length < size - 1) text[*length] = (char)c, text[*length + 1] = 0;
    (*length)++;
}

static bool method_byte(struct check *check, unsigned char c) {
    struct wire *wire = check->wire;
    wire->phase = c == ' ' ? WIRE_TARGET : WIRE_METHOD;
    if (c == ' ') return wire->method_length > 0 ? true : wrong_request_line(check);
    if (!is_token(c) || wire->method_length == WIRE_MAX_METHOD) return wrong_request_line(check);
    keep(wire->method, sizeof wire->method, &wire->method_length, c);
    return true;
}

/* Rejects NUL, which would end the path as a C string. Arguments of the query count as fields,
 * because MHD keeps a record of each. */
static bool target_byte(struct check *check, unsigned char c) {
    struct wire *wire = check->wire;
    if (c == ' ') {
        wire->phase = WIRE_VERSION;
        wire->value_length = 0;
        return wire->target_length > 0 ? true : wrong_request_line(check);
    }
    if (c == '\t') return wrong_request_line(check);
    wire->escape = c == '%' ? 1 : c == '0' && wire->escape > 0 ? wire->escape + 1 : 0;
    if (wire->escape == 3) return refuse_syntax(check, "the path may not hold %00");
    if ((c == '?' || c == '&') && ++wire->fields > WIRE_MAX_FIELDS) {
        return refuse(check, STATUS_URI_TOO_LONG, "the query has more than 200 arguments");
    }
    keep(wire->target, sizeof wire->target, &wire->target_length, c);
    return true;
}

static bool end_request_line(struct check *check) {
    struct wire *wire = check->wire;
    const char *version = wire->value;
    bool is_http = wire->value_length == 8 && strncmp(version, "HTTP/", 5) == 0 &&
                   isdigit((unsigned char)version[5]) && version[6] == '.' &&
                   isdigit((unsigned char)version[7]);
    if (!is_http) return wrong_request_line(check);
    if (version[5] != '1') {
        return refuse(check, STATUS_HTTP_VERSION, "this server speaks only HTTP/1.1 and HTTP/1.0");
    }
    wire->is_http_1_0 = version[7] == '0';
    wire->phase = WIRE_NAME;
    return true;
}

/* ---- fields --------------------------------------------------------------------------------- */

static bool name_byte(struct check *check, unsigned char c) {
    struct wire *wire = check->wire;
    if (c == ':') {
        if (wire->name_length == 0) return refuse_syntax(check, "a header lacks a name");
        wire->phase = WIRE_VALUE;
        wire->value_length = 0;
        wire->value[0] = 0;
        if (++wire->fields <= WIRE_MAX_FIELDS) return true;
        return refuse(check, STATUS_HEADERS_TOO_LARGE,
                      "the request has more than 200 headers, cookies and query arguments");
    }
    if (!is_token(c)) {
        return refuse_syntax(check, wire->name_length == 0 && (c == ' ' || c == '\t')
                                        ? "a header must be one line"
                                        : "a header's name holds a character that is not allowed");
    }
    keep(wire->name, sizeof wire->name, &wire->name_length, (unsigned char)tolower(c));
    return true;
}

static bool is_named(const struct wire *wire, const char *name) {
    return strcmp(wire->name, name) == 0 && wire->name_length == strlen(name);
}

/* Handles a complete option of a Connection header, in `value`. Empty options are ignored. */
static bool end_option(struct check *check) {
    struct wire *wire = check->wire;
    size_t n = wire->value_length;
    if (n > sizeof wire->value - 1) {
        return refuse_syntax(check, "an option of the Connection header is longer than 63 bytes");
    }
    while (n > 0 && strchr(" \t", wire->value[n - 1])) wire->value[--n] = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_token((unsigned char)wire->value[i])) continue;
        return refuse_syntax(check, "the Connection header must be names with commas between them");
    }
    wire->says_close |= strcasecmp(wire->value, "close") == 0;
    wire->says_keep_alive |= strcasecmp(wire->value, "keep-alive") == 0;
    wire->value_length = 0;
    wire->value[0] = 0;
    return true;
}

static bool value_byte(struct check *check, unsigned char c) {
    struct wire *wire = check->wire;
    if (wire->value_length == 0 && (c == ' ' || c == '\t')) return true;
    if (c == ',' && is_named(wire, "connection") && !wire->is_trailer) return end_option(check);
    keep(wire->value, sizeof wire->value, &wire->value_length, c);
    if (!is_named(wire, "cookie")) return true;
    wire->fields += c == ';';
    if (++wire->cookie_bytes <= WIRE_MAX_COOKIE_BYTES && wire->fields <= WIRE_MAX_FIELDS) {
        return true;
    }
    return refuse(check, STATUS_HEADERS_TOO_LARGE,
                  "the cookies are more than 200 or larger than 8192 bytes");
}

static bool end_length(struct check *check) {
    struct wire *wire = check->wire;
    size_t digits = strspn(wire->value, "0123456789");
    wire->lengths++;
    wire->length = 0;
    if (digits == 0 || wire->value[digits] != 0) {
        return refuse_syntax(check, "Content-Length must be one number of digits only");
    }
    if (wire->value_length > MAX_LENGTH_DIGITS) {
        return refuse(check, STATUS_TOO_LARGE, "Content-Length is larger than any body may be");
    }
    for (size_t i = 0; i < digits; i++) {
        wire->length = wire->length * 10 + (uint64_t)(wire->value[i] - '0');
    }
    return true;
}

static bool end_field(struct check *check) {
    struct wire *wire = check->wire;
    wire->phase = WIRE_NAME;
    bool is_kept = !wire->is_trailer;
    if (is_kept && is_named(wire, "host")) wire->hosts++;
    if (is_kept && is_named(wire, "transfer-encoding")) {
        wire->codings++;
        wire->is_chunked = wire->value_length == 7 && strcasecmp(wire->value, "chunked") == 0;
    }
    bool is_right = true;
    if (is_kept && is_named(wire, "connection")) is_right = end_option(check);
    if (is_kept && is_named(wire, "content-length")) is_right = end_length(check);
    wire->name_length = 0;
    wire->name[0] = 0;
    return is_right;
}

/* ---- between requests ----------------------------------------------------------------------- */

static void end_message(struct wire *wire) {
    assert(wire->left == 0);
    bool is_last = wire->says_close || (wire->is_http_1_0 && !wire->says_keep_alive);
    *wire = (struct wire){.max_head_bytes = wire->max_head_bytes,
                          .messages = wire->messages + 1,
                          .phase = is_last ? WIRE_IGNORED : WIRE_BETWEEN};
}

static const char *wrong_framing(const struct wire *wire) {
    if (wire->hosts == 0 && !wire->is_http_1_0) return "a request of HTTP/1.1 needs a Host header";
    if (wire->hosts > 1) return "the request has more than one Host";
    if (wire->lengths > 1) return "the request has more than one Content-Length";
    if (wire->codings > 1) return "the request has more than one Transfer-Encoding";
    if (wire->codings > 0 && wire->lengths > 0) {
        return "the request has both a Content-Length and a Transfer-Encoding";
    }
    if (wire->codings > 0 && !wire->is_chunked) {
        return "the only supported Transfer-Encoding is chunked";
    }
    if (wire->codings > 0 && wire->is_http_1_0) return "HTTP/1.0 does not allow Transfer-Encoding";
    return NULL;
}

static void start_size(struct wire *wire) {
    wire->phase = WIRE_CHUNK_SIZE;
    wire->value_length = 0;
    wire->left = 0;
    wire->line_bytes = 0;
}

static bool end_head(struct check *check) {
    struct wire *wire = check->wire;
    const char *fault = wrong_framing(wire);
    if (fault) return refuse_syntax(check, fault);
    wire->left = wire->length;
    if (wire->is_chunked)
        start_size(wire);
    else if (wire->left > 0)
        wire->phase = WIRE_BODY;
    else
        end_message(wire);
    return true;
}

/* ---- chunks --------------------------------------------------------------------------------- */

static bool size_byte(struct check *check, unsigned char c) {
    struct wire *wire = check->wire;
    if (c == ';' && wire->value_length > 0) {
        wire->phase = WIRE_CHUNK_EXTENSION;
        return true;
    }
    if (!isxdigit(c)) return refuse_syntax(check, "a chunk's size is not a hexadecimal number");
    if (wire->value_length++ == MAX_SIZE_DIGITS) {
        return refuse(check, STATUS_TOO_LARGE, "a chunk is larger than any body may be");
    }
    wire->left = wire->left * 16 + (uint64_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    return true;
}

/* Skips bytes of a body or chunk. Returns their number. */
static size_t skip_data(struct wire *wire, size_t n) {
    assert(wire->left > 0);
    size_t skipped = n < wire->left ? n : (size_t)wire->left;
    wire->left -= skipped;
    if (wire->left > 0) return skipped;
    if (wire->phase == WIRE_BODY)
        end_message(wire);
    else
        wire->phase = WIRE_CHUNK_END;
    return skipped;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static bool end_line(struct check *check) {
    struct wire *wire = check->wire;
    switch (wire->phase) {
    case WIRE_BETWEEN:
        return true;
    case WIRE_VERSION:
        return end_request_line(check);
    case WIRE_NAME:
        if (wire->name_length > 0) return refuse_syntax(check, "a header line lacks a colon");
        if (!wire->is_trailer) return end_head(check);
        end_message(wire);
        return true;
    case WIRE_VALUE:
        return end_field(check);
    case WIRE_CHUNK_SIZE:
    case WIRE_CHUNK_EXTENSION:
        assert(wire->value_length > 0);
        wire->is_trailer = wire->left == 0;
        wire->phase = wire->is_trailer ? WIRE_NAME : WIRE_CHUNK;
        wire->line_bytes = 0;
        return true;
    case WIRE_CHUNK_END:
        start_size(wire);
        return true;
    default:
        return wrong_request_line(check);
    }
}

/* Counts a byte of a line, whose length is limited. */
static bool count_byte(struct check *check) {
    struct wire *wire = check->wire;
    bool is_size = wire->phase == WIRE_CHUNK_SIZE || wire->phase == WIRE_CHUNK_EXTENSION;
    size_t limit = is_size ? WIRE_MAX_CHUNK_LINE : wire->max_head_bytes;
    if (++wire->line_bytes <= limit) return true;
    if (is_size) return refuse_syntax(check, "the line of a chunk's size is too long");
    bool in_target = wire->phase == WIRE_TARGET;
    err_set(check->err, in_target ? STATUS_URI_TOO_LONG : STATUS_HEADERS_TOO_LARGE, NULL,
            "the %s larger than %zu bytes", in_target ? "request line is" : "headers are", limit);
    return false;
}

static bool check_byte(struct check *check, unsigned char c) {
    struct wire *wire = check->wire;
    if (!count_byte(check)) return false;
    if (wire->after_cr) {
        wire->after_cr = false;
        if (c == '\n') return end_line(check);
        return refuse_syntax(check, "a carriage return without a line feed after it");
    }
    if (c == '\r') {
        bool has_no_size = wire->phase == WIRE_CHUNK_SIZE && wire->value_length == 0;
        wire->after_cr = true;
        return has_no_size ? refuse_syntax(check, "a chunk lacks a size") : true;
    }
    if (c == '\n') return refuse_syntax(check, "a line feed without a carriage return before it");
    if ((c < 0x20 && c != '\t') || c == 0x7F) {
        return refuse_syntax(check, "the request holds a control character");
    }
    switch (wire->phase) {
    case WIRE_BETWEEN:
    case WIRE_METHOD:
        return method_byte(check, c);
    case WIRE_TARGET:
        return target_byte(check, c);
    case WIRE_VERSION:
        keep(wire->value, sizeof wire->value, &wire->value_length, c);
        return c > ' ' && wire->value_length <= 8 ? true : wrong_request_line(check);
    case WIRE_NAME:
        return name_byte(check, c);
    case WIRE_VALUE:
        return value_byte(check, c);
    case WIRE_CHUNK_SIZE:
        return size_byte(check, c);
    case WIRE_CHUNK_EXTENSION:
        return true;
    default:
        return refuse_syntax(check, "a chunk is longer than its size says");
    }
}

size_t wire_check(struct wire *wire, const char *bytes, size_t n, size_t *whole, struct err *err) {
    struct check check = {wire, err};
    uint64_t messages = wire->messages;
    size_t at = 0;
    *whole = 0;
    while (at < n && wire->phase != WIRE_IGNORED) {
        if (wire->phase == WIRE_BODY || wire->phase == WIRE_CHUNK)
            at += skip_data(wire, n - at);
        else if (check_byte(&check, (unsigned char)bytes[at]))
            at++;
        else
            return at;
        if (wire->messages > messages) {
            messages = wire->messages;
            *whole = at;
        }
    }
    return n;
}
