/* Writes the lines of both formats, and selects the format. */
#include "server/endpoints/exposition.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- format --------------------------------------------------------------------------------- */

/* Returns the value of a parameter of an Accept item ("q", "version") and its length, or NULL. */
static const char *parameter(const char *item, size_t n, const char *name, size_t *length) {
    size_t n_name = strlen(name);
    for (const char *p = memchr(item, ';', n); p; p = memchr(p, ';', (size_t)(item + n - p))) {
        p++;
        while (p < item + n && (*p == ' ' || *p == '\t')) p++;
        if ((size_t)(item + n - p) <= n_name || strncasecmp(p, name, n_name) != 0) continue;
        if (p[n_name] != '=') continue;
        p += n_name + 1;
        *length = strcspn(p, ";, \t");
        return p;
    }
    return NULL;
}

static bool is_openmetrics(const char *item, size_t n) {
    static const char type[] = "application/openmetrics-text";
    size_t n_type = sizeof type - 1, length;
    if (n < n_type || strncasecmp(item, type, n_type) != 0) return false;
    if (n > n_type && !strchr("; \t", item[n_type])) return false;
    const char *version = parameter(item, n, "version", &length);
    return !version || (length == 5 && memcmp(version, "1.0.0", 5) == 0);
}

bool exposition_prefers_openmetrics(const char *accept) {
    double openmetrics = 0, text = 0;
    for (const char *item = accept ? accept : ""; *item;) {
        size_t n = strcspn(item, ","), length;
        const char *value = parameter(item, n, "q", &length);
        double q = value ? strtod(value, NULL) : 1;
        if (!(q >= 0 && q <= 1)) q = 0;
        if (is_openmetrics(item, n)) {
            if (q > openmetrics) openmetrics = q;
        } else if (strncasecmp(item, "text/plain", 10) == 0 && q > text) {
            text = q;
        }
        item += n;
        item += strspn(item, ", \t");
    }
    return openmetrics > 0 && openmetrics >= text;
}

const char *exposition_content_type(bool openmetrics) {
    return openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                       : "text/plain; version=0.0.4; charset=utf-8";
}

/* ---- lines ---------------------------------------------------------------------------------- */

static bool ends_in(const char *name, size_t n, const char *end) {
    size_t n_end = strlen(end);
    return n > n_end && memcmp(name + n - n_end, end, n_end) == 0;
}

void exposition_declare(const struct exposition *to, enum metric_type type, const char *name,
                        const char *help) {
    static const char *const words[] = {"counter", "gauge", "info", "histogram"};
    static const char *const ends[] = {"_total", "", "_info", ""};
    size_t n = strlen(name);
    assert(ends_in(name, n, ends[type]) && help[0] && !strpbrk(help, "\"\\\n"));
    if (!to->openmetrics) {
        const char *word = words[type == METRIC_INFO ? METRIC_GAUGE : type];
        buf_printf(to->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, word);
        return;
    }
    n -= strlen(ends[type]);
    buf_printf(to->out, "# TYPE %.*s %s\n", (int)n, name, words[type]);
    if (ends_in(name, n, "_seconds"))
        buf_printf(to->out, "# UNIT %.*s seconds\n", (int)n, name);
    else if (ends_in(name, n, "_bytes"))
        buf_printf(to->out, "# UNIT %.*s bytes\n", (int)n, name);
    buf_printf(to->out, "# HELP %.*s %s\n", (int)n, name, help);
}

/* Writes name + end, the labels in braces if there are any, and the value. */
static void line(const struct exposition *to, const char *name, const char *end, const char *labels,
                 double value) {
    const char *open = labels[0] ? "{" : "", *close = labels[0] ? "}" : "";
    buf_printf(to->out, "%s%s%s%s%s %.15g\n", name, end, open, labels, close, value);
}

void exposition_sample(const struct exposition *to, const char *name, const char *labels,
                       double value) {
    line(to, name, "", labels, value);
}

void exposition_histogram(const struct exposition *to, const char *name, const char *labels,
                          const double *bounds, int n, const uint64_t *counts, double sum) {
    struct buf bucket = {0};
    uint64_t below = 0;
    for (int i = 0; i <= n; i++) {
        char bound[32] = "+Inf";
        assert(i == n || i == 0 || bounds[i] > bounds[i - 1]);
        if (i < n) { /* OpenMetrics requires a float, and dashboards query le="1.0" */
            int length = snprintf(bound, sizeof bound, "%g", bounds[i]);
            if (!strpbrk(bound, ".e"))
                snprintf(bound + length, sizeof bound - (size_t)length, ".0");
        }
        below += counts[i];
        buf_clear(&bucket);
        buf_puts(&bucket, labels);
        exposition_label(&bucket, "le", bound);
        line(to, name, "_bucket", bucket.data, (double)below);
    }
    line(to, name, "_sum", labels, sum);
    line(to, name, "_count", labels, (double)below);
    buf_free(&bucket);
}

void exposition_end(const struct exposition *to) {
    if (to->openmetrics) buf_puts(to->out, "# EOF\n");
}

void exposition_label(struct buf *labels, const char *name, const char *value) {
    assert(name && *name && value);
    size_t left = strlen(value), n;
    buf_printf(labels, "%s%s=\"", labels->length > 0 ? "," : "", name);
    for (const char *p = value; left > 0; p += n, left -= n) {
        n = utf8_character(p, left);
        if (n == 0) {
            n = utf8_maximal_subpart(p, left);
            buf_puts(labels, "\uFFFD");
        } else if (*p == '\n') {
            buf_puts(labels, "\\n");
        } else {
            if (*p == '\\' || *p == '"') buf_puts(labels, "\\");
            buf_add(labels, p, n);
        }
    }
    buf_puts(labels, "\"");
}
