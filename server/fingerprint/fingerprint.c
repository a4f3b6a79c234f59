#include "server/fingerprint/fingerprint.h"

#include <stdio.h>
#include <string.h>

#include "server/json/json.h"

static const struct {
    const char *member, *words;
} parts[] = {
#define FINGERPRINT_ROW(code, member, words) {#member, words},
    FINGERPRINT_MAP(FINGERPRINT_ROW)
#undef FINGERPRINT_ROW
};

/* ---- as JSON -------------------------------------------------------------------------------- */

void fingerprint_write(struct buf *out, const struct fingerprint *fingerprint) {
    for (int i = 0; i < N_FINGERPRINT_PARTS; i++) {
        buf_printf(out, "%s\"%s\":", i == 0 ? "{" : ",", parts[i].member);
        json_write_string(out, fingerprint->part[i], strlen(fingerprint->part[i]));
    }
    buf_puts(out, "}");
}

static enum status read_parts(struct fingerprint *out, const struct json *object, struct err *err) {
    for (int i = 0; i < N_FINGERPRINT_PARTS; i++) {
        const struct json *value = json_member(object, parts[i].member);
        bool fits = json_is(value, JSON_STRING) && json_length(value) < FINGERPRINT_BYTES;
        if (!fits)
            return err_set(err, STATUS_INVALID_REQUEST, parts[i].member,
                           "'%s' of a fingerprint must be a string of less than %d bytes.",
                           parts[i].member, FINGERPRINT_BYTES);
        snprintf(out->part[i], FINGERPRINT_BYTES, "%s", json_text(value));
    }
    return STATUS_OK;
}

enum status fingerprint_read(struct fingerprint *out, const char *text, size_t length,
                             struct err *err) {
    struct json *object = NULL;
    memset(out, 0, sizeof *out);
    if (json_parse(&object, "The fingerprint", text, length, err)) return err->status;
    enum status status = read_parts(out, object, err);
    json_free(object);
    return status;
}

const char *fingerprint_difference(const struct fingerprint *a, const struct fingerprint *b,
                                   enum fingerprint_part *part) {
    for (int i = 0; i < N_FINGERPRINT_PARTS; i++) {
        if (strcmp(a->part[i], b->part[i]) == 0) continue;
        if (part) *part = (enum fingerprint_part)i;
        return parts[i].words;
    }
    return NULL;
}
