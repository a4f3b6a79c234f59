/* The settings of the exporter: --otlp-traces-endpoint, and the variables of the OpenTelemetry
 * specification that users of other servers have set already. A variable for traces alone wins
 * over the one for all signals. The variables that name an endpoint are not read: a connection
 * needs the option.
 *
 *   OTEL_EXPORTER_OTLP_[TRACES_]HEADERS      name=value,... of each message
 *   OTEL_EXPORTER_OTLP_[TRACES_]TIMEOUT      milliseconds of one message
 *   OTEL_EXPORTER_OTLP_[TRACES_]CERTIFICATE  file of certificates of authorities
 *   OTEL_SERVICE_NAME                        service.name
 *   OTEL_RESOURCE_ATTRIBUTES                 name=value,... of this process
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "server/traces/internal.h"

enum { DEFAULT_TIMEOUT_MS = 10000, MAX_TIMEOUT_MS = 600000, MAX_PAIRS = 64 };

/* ---- variables ------------------------------------------------------------------------------- */

/* Returns a variable that is not empty, or NULL. */
static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Returns OTEL_EXPORTER_OTLP_TRACES_<end>, or OTEL_EXPORTER_OTLP_<end>, or NULL, and its name. */
static const char *exporter_variable(const char *end, char name[64]) {
    snprintf(name, 64, "OTEL_EXPORTER_OTLP_TRACES_%s", end);
    const char *value = variable(name);
    if (value) return value;
    snprintf(name, 64, "OTEL_EXPORTER_OTLP_%s", end);
    return variable(name);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Appends text without %XX escapes. A '%' without two digits is itself. */
static void add_decoded(struct buf *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        bool is_escape = text[i] == '%' && i + 2 < length && hex_value(text[i + 1]) >= 0 &&
                         hex_value(text[i + 2]) >= 0;
        char c = is_escape ? (char)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2])) : text[i];
        buf_add(out, &c, 1);
        if (is_escape) i += 2;
    }
}

static void trim(const char **text, size_t *length) {
    while (*length > 0 && strchr(" \t", **text)) (*text)++, (*length)--;
    while (*length > 0 && strchr(" \t", (*text)[*length - 1])) (*length)--;
}

bool trace_pair_next(const char **at, struct buf *name, struct buf *value) {
    const char *text = *at + strspn(*at, ", \t");
    size_t length = strcspn(text, ",");
    buf_clear(name);
    buf_clear(value);
    *at = text + length;
    if (length == 0) return true;
    const char *equals = memchr(text, '=', length);
    if (!equals || equals == text) return false;
    const char *left = text, *right = equals + 1;
    size_t n_left = (size_t)(equals - text), n_right = length - n_left - 1;
    trim(&left, &n_left);
    trim(&right, &n_right);
    add_decoded(name, left, n_left);
    add_decoded(value, right, n_right);
    return name->length > 0;
}

static enum status wrong_pairs(struct err *err, const char *variable_name, int number) {
    return err_set(err, STATUS_USAGE, NULL,
                   "%s must be a list name=value,name=value of at most %d; entry %d is not of that "
                   "form",
                   variable_name, (int)MAX_PAIRS, number);
}

/* ---- headers --------------------------------------------------------------------------------- */

static bool is_token(const char *text) {
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (; *text; text++) {
        char lower = (char)(*text | 0x20);
        bool is_letter = lower >= 'a' && lower <= 'z';
        if (!is_letter && !is_digit(*text) && !strchr(marks, *text)) return false;
    }
    return true;
}

/* A header must not contain a line break, which would begin another one, nor a NUL. */
static bool is_header(const struct buf *name, const struct buf *value) {
    if (name->length != strlen(name->data) || !is_token(name->data)) return false;
    for (size_t i = 0; i < value->length; i++)
        if ((unsigned char)value->data[i] < ' ' || value->data[i] == 0x7f) return false;
    return true;
}

static enum status read_headers(struct trace_settings *settings, struct err *err) {
    char variable_name[64];
    const char *at = exporter_variable("HEADERS", variable_name);
    struct buf name = {0}, value = {0};
    enum status status = STATUS_OK;
    settings->headers = mem_calloc(MAX_PAIRS, sizeof *settings->headers);
    while (at && !status) {
        bool is_pair = trace_pair_next(&at, &name, &value);
        if (is_pair && name.length == 0) break;
        if (!is_pair || settings->n_headers == MAX_PAIRS || !is_header(&name, &value)) {
            status = wrong_pairs(err, variable_name, settings->n_headers + 1);
            break;
        }
        struct buf line = {0};
        buf_printf(&line, value.length > 0 ? "%s: %s" : "%s;%s", name.data,
                   value.length > 0 ? value.data : "");
        settings->headers[settings->n_headers++] = line.data;
    }
    buf_free(&name);
    buf_free(&value);
    return status;
}

/* ---- this process ---------------------------------------------------------------------------- */

static void add_instance(struct buf *out) {
    unsigned char id[16];
    char text[37];
    if (getrandom(id, sizeof id, 0) != sizeof id) return;
    id[6] = (unsigned char)((id[6] & 0x0f) | 0x40); /* a UUID of version 4 */
    id[8] = (unsigned char)((id[8] & 0x3f) | 0x80);
    int at = 0;
    for (int i = 0; i < 16; i++) {
        bool has_dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(text + at, sizeof text - (size_t)at, has_dash ? "-%02x" : "%02x", id[i]);
    }
    assert(at == sizeof text - 1);
    attribute_text(out, "service.instance.id", text);
}

static const char *const own_names[] = {"service.name", "service.instance.id", "service.version"};

/* Writes the attributes of OTEL_RESOURCE_ATTRIBUTES. Sets has[i] if own_names[i] is among them. */
static enum status write_stated(struct buf *out, const char *service, bool has[3],
                                struct err *err) {
    static const char variable_name[] = "OTEL_RESOURCE_ATTRIBUTES";
    const char *at = variable(variable_name);
    struct buf name = {0}, value = {0};
    enum status status = STATUS_OK;
    for (int number = 1; at && !status; number++) {
        bool is_pair = trace_pair_next(&at, &name, &value);
        if (is_pair && name.length == 0) break;
        if (!is_pair || number > MAX_PAIRS) {
            status = wrong_pairs(err, variable_name, number);
            break;
        }
        if (service && strcmp(name.data, "service.name") == 0) continue;
        for (int i = 0; i < 3; i++) has[i] |= strcmp(name.data, own_names[i]) == 0;
        attribute_text(out, name.data, value.length > 0 ? value.data : "");
    }
    buf_free(&name);
    buf_free(&value);
    return status;
}

static enum status write_resource(struct trace_settings *settings, struct err *err) {
    const char *service = variable("OTEL_SERVICE_NAME");
    struct buf *out = &settings->resource;
    bool has[3] = {false};
    buf_puts(out, "[");
    enum status status = write_stated(out, service, has, err);
    if (!has[0]) attribute_text(out, own_names[0], service ? service : "penstock");
    if (!has[1]) add_instance(out);
    if (!has[2]) attribute_text(out, own_names[2], build_info().version);
    buf_puts(out, "]");
    return status;
}

/* ---- endpoint -------------------------------------------------------------------------------- */

static enum status wrong_endpoint(struct err *err, const char *problem) {
    return err_set(err, STATUS_USAGE, "otlp-traces-endpoint",
                   "--otlp-traces-endpoint %s; give the collector's URL, such as "
                   "http://127.0.0.1:4318/v1/traces",
                   problem);
}

static enum status read_endpoint(struct trace_settings *settings, const char *endpoint,
                                 struct err *err) {
    const char *host = strstr(endpoint, "://");
    bool is_http =
        strncasecmp(endpoint, "http://", 7) == 0 || strncasecmp(endpoint, "https://", 8) == 0;
    if (!is_http) return wrong_endpoint(err, "must begin with http:// or https://");
    host += strlen("://");
    size_t n_host = strcspn(host, "/?#");
    if (n_host == 0) return wrong_endpoint(err, "has no host");
    if (memchr(host, '@', n_host))
        return wrong_endpoint(err, "must not have a name and a password: set the variable "
                                   "OTEL_EXPORTER_OTLP_HEADERS");
    if (!is_printable(endpoint, strlen(endpoint)) || strchr(endpoint, ' '))
        return wrong_endpoint(err, "must not have spaces and control characters");
    struct buf url = {0};
    buf_printf(&url, "%s%s", endpoint, host[n_host] ? "" : "/v1/traces");
    settings->url = url.data;
    return STATUS_OK;
}

static enum status read_timeout(struct trace_settings *settings, struct err *err) {
    char name[64];
    const char *text = exporter_variable("TIMEOUT", name);
    settings->timeout_ms = DEFAULT_TIMEOUT_MS;
    if (!text) return STATUS_OK;
    size_t digits = strspn(text, "0123456789");
    if (digits > 0 && digits < 9 && !text[digits])
        settings->timeout_ms = strtol(text, NULL, 10);
    else
        settings->timeout_ms = 0;
    if (settings->timeout_ms >= 1 && settings->timeout_ms <= MAX_TIMEOUT_MS) return STATUS_OK;
    return err_set(err, STATUS_USAGE, NULL,
                   "%s must be a number of milliseconds from 1 to %d, but it is %.20s", name,
                   (int)MAX_TIMEOUT_MS, text);
}

enum status trace_settings_read(struct trace_settings *settings, const char *endpoint,
                                struct err *err) {
    char name[64];
    *settings = (struct trace_settings){0};
    enum status status = read_endpoint(settings, endpoint, err);
    if (!status) status = read_timeout(settings, err);
    if (!status) status = read_headers(settings, err);
    if (!status) status = write_resource(settings, err);
    settings->authorities = exporter_variable("CERTIFICATE", name);
    if (!settings->authorities) settings->authorities = variable("SSL_CERT_FILE");
    return status;
}

void trace_settings_free(struct trace_settings *settings) {
    for (int i = 0; i < settings->n_headers; i++) mem_free(settings->headers[i]);
    mem_free(settings->headers);
    mem_free(settings->url);
    buf_free(&settings->resource);
}
