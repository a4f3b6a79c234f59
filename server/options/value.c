#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/options/table.h"

/* Fails and states the valid values. `takes` is the text after "takes". */
static enum status refuse(const struct option *option, const char *who, const char *text,
                          const char *takes, struct err *err) {
    return err_set(err, STATUS_USAGE, option->name, "%s takes %s, not \"%s\"", who, takes, text);
}

/* Does the option take "auto", which is stored as -1? */
static bool has_auto(const struct option *option) {
    return option->min == -1 && option->fallback && strcmp(option->fallback, "auto") == 0;
}

/* Returns the least number that a user may write. */
static int64_t least(const struct option *option) {
    return has_auto(option) ? 0 : option->min;
}

/* Writes "a whole number from 1 to 65535", or "auto or a whole number from 0 to 60000". */
static void range_text(const struct option *option, const char *what, char *out, size_t size) {
    const char *or_auto = has_auto(option) ? "auto or " : "";
    if (option->max == INT64_MAX) {
        snprintf(out, size, "%s%s of %" PRId64 " or more", or_auto, what, least(option));
    } else {
        snprintf(out, size, "%s%s from %" PRId64 " to %" PRId64, or_auto, what, least(option),
                 option->max);
    }
}

/* Parses the whole text as a decimal number. */
static bool whole_number(const char *text, size_t length, int64_t *out) {
    char digits[24], *end;
    if (length == 0 || length >= sizeof digits || isspace((unsigned char)*text)) return false;
    memcpy(digits, text, length);
    digits[length] = 0;
    errno = 0;
    long long value = strtoll(digits, &end, 10);
    *out = value;
    return errno == 0 && *end == 0;
}

static bool in_range(const struct option *option, int64_t value) {
    return value >= least(option) && value <= option->max;
}

static enum status set_integer(const struct option *option, const char *text, const char *who,
                               void *field, struct err *err) {
    int64_t value = -1;
    bool is_auto = has_auto(option) && strcmp(text, "auto") == 0;
    if (!is_auto && (!whole_number(text, strlen(text), &value) || !in_range(option, value))) {
        char takes[96];
        range_text(option, "a whole number", takes, sizeof takes);
        return refuse(option, who, text, takes, err);
    }
    if (option->type == OPTION_INT)
        *(int *)field = (int)value;
    else
        *(int64_t *)field = value;
    return STATUS_OK;
}

static enum status set_real(const struct option *option, const char *text, const char *who,
                            double *field, struct err *err) {
    char *end;
    double value = strtod(text, &end);
    bool number = *text && strspn(text, "+-.0123456789eE") == strlen(text) && *end == 0;
    if (!number || value < (double)option->min || value > (double)option->max) {
        char takes[96];
        range_text(option, "a number", takes, sizeof takes);
        return refuse(option, who, text, takes, err);
    }
    *field = value;
    return STATUS_OK;
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* Returns the bytes of a unit, 0 if it is unknown. A single letter is a power of 1024, as in most
 * tools. */
static double unit_bytes(const char *unit) {
    static const char letters[] = "KMGT";
    if (*unit == 0 || strcasecmp(unit, "B") == 0) return 1;
    const char *letter = strchr(letters, toupper((unsigned char)*unit));
    if (!letter) return 0;
    double power = (double)(letter - letters + 1);
    if (unit[1] == 0 || strcasecmp(unit + 1, "iB") == 0) return pow(1024, power);
    return strcasecmp(unit + 1, "B") == 0 ? pow(1000, power) : 0;
}

/* Parses "2GiB", "1.5 GB", "4096". Only digits and one point may precede the unit. */
static bool size_value(const char *text, double *out) {
    size_t digits = strspn(text, "0123456789.");
    char *end;
    if (digits == 0 || digits > 24) return false;
    double number = strtod(text, &end);
    if (end != text + digits) return false;
    double unit = unit_bytes(end + strspn(end, " "));
    *out = number * unit;
    return unit > 0;
}

static enum status set_size(const struct option *option, const char *text, const char *who,
                            int64_t *field, struct err *err) {
    double value;
    if (has_auto(option) && strcmp(text, "auto") == 0) {
        *field = -1;
        return STATUS_OK;
    }
    if (!size_value(text, &value)) {
        return refuse(option, who, text, "a size such as 2GiB, 512MB or 1048576", err);
    }
    if (value < (double)least(option) || value > (double)option->max) {
        char takes[96];
        range_text(option, "a size in bytes", takes, sizeof takes);
        return refuse(option, who, text, takes, err);
    }
    *field = (int64_t)value;
    return STATUS_OK;
}

/* ---- named values --------------------------------------------------------------------------- */

static enum status set_enum(const struct option *option, const char *text, const char *who,
                            int *field, struct err *err) {
    for (const struct named_value *at = option->names; at->name; at++) {
        if (strcmp(at->name, text) != 0) continue;
        *field = at->value;
        return STATUS_OK;
    }
    struct buf takes = {0};
    for (const struct named_value *at = option->names; at->name; at++) {
        if (at > option->names) buf_puts(&takes, at[1].name ? ", " : " or ");
        buf_puts(&takes, at->name);
    }
    enum status status = refuse(option, who, text, takes.data, err);
    buf_free(&takes);
    return status;
}

static enum status set_list(const struct option *option, const char *text, const char *who,
                            const char **field, struct err *err) {
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        int64_t value;
        if (!whole_number(at, n, &value) || !in_range(option, value)) {
            char takes[128];
            range_text(option, "whole numbers", takes, sizeof takes - 32);
            strcat(takes, " with commas between them");
            return refuse(option, who, text, takes, err);
        }
        at += n;
        if (!*at) break;
    }
    *field = text;
    return STATUS_OK;
}

static enum status set_bool(const struct option *option, const char *text, const char *who,
                            bool *field, struct err *err) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) != 0) continue;
        *field = i % 2 == 1;
        return STATUS_OK;
    }
    return refuse(option, who, text, "true or false", err);
}

enum status option_set(const struct option *option, const char *text, const char *who,
                       struct options *options, struct err *err) {
    assert(option->name && text);
    void *field = (char *)options + option->offset;
    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_NAMES:
    case OPTION_PAIRS:
        *(const char **)field = text;
        return STATUS_OK;
    case OPTION_ENUM:
        return set_enum(option, text, who, field, err);
    case OPTION_LIST:
        return set_list(option, text, who, field, err);
    case OPTION_INT:
    case OPTION_INT64:
        return set_integer(option, text, who, field, err);
    case OPTION_SIZE:
        return set_size(option, text, who, field, err);
    case OPTION_REAL:
        return set_real(option, text, who, field, err);
    case OPTION_SPECULATION:
        return speculation_read(field, who, text, err);
    case OPTION_BOOL:
        return set_bool(option, text, who, field, err);
    }
    return err_set(err, STATUS_SERVER_ERROR, option->name, "%s has no type", who);
}
