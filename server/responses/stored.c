/* Stored responses: documents, and the input that continues an earlier response. */
#include <assert.h>
#include <string.h>

#include "server/responses/internal.h"

/* ---- documents ------------------------------------------------------------------------------ */

void responses_write_document(struct buf *out, const struct api_answer *answer, const char *status,
                              const struct api_usage *usage, const struct err *err) {
    const struct response_stream *stream = answer->state;
    if (!status) status = responses_status(stream->finish_reason);
    responses_write(out, answer, status, &stream->output, usage, err);
}

/* A document begins with its own members, before any text of the model or the client, and strings
 * in JSON have escaped quotes. So the first match is the member. */
void responses_write_broken(struct buf *out, const char *queued, size_t length,
                            const struct err *err) {
    static const char status[] = "\"status\":\"queued\"", none[] = "\"error\":null";
    const char *end = queued + length;
    const char *first = memmem(queued, length, status, strlen(status));
    const char *second = first ? memmem(first, (size_t)(end - first), none, strlen(none)) : NULL;
    if (!second) { /* the record is damaged or of another version */
        buf_puts(out, "{\"object\":\"response\",\"status\":\"failed\",\"output\":[],\"error\":");
        responses_write_error(out, err);
        buf_puts(out, "}");
        return;
    }
    buf_add(out, queued, (size_t)(first - queued));
    buf_puts(out, "\"status\":\"failed\"");
    first += strlen(status);
    buf_add(out, first, (size_t)(second - first));
    buf_puts(out, "\"error\":");
    responses_write_error(out, err);
    second += strlen(none);
    buf_add(out, second, (size_t)(end - second));
}

void responses_write_last_event(struct buf *out, const char *document, size_t length,
                                int64_t number) {
    buf_printf(out,
               "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":"
               "%lld,\"response\":",
               (long long)number);
    buf_add(out, document, length);
    buf_puts(out, "}\n\n");
}

/* ---- continuing ----------------------------------------------------------------------------- */

/* Appends the items of an input or an output, separated by commas. */
static void add_items(struct buf *items, const struct json *value) {
    if (json_is(value, JSON_STRING)) {
        buf_puts(items, items->length > 0 ? "," : "");
        buf_puts(items, "{\"type\":\"message\",\"role\":\"user\",\"content\":");
        json_write_value(items, value);
        buf_puts(items, "}");
    }
    json_each(item, json_is(value, JSON_ARRAY) ? value : NULL) {
        buf_puts(items, items->length > 0 ? "," : "");
        json_write_value(items, item);
    }
}

void responses_write_continued(struct buf *out, const struct json *asked,
                               const struct json *earlier, const struct json *old_answer) {
    struct buf items = {0};
    add_items(&items, json_member(earlier, "input"));
    add_items(&items, json_member(old_answer, "output"));
    add_items(&items, json_member(asked, "input"));
    buf_puts(out, "{\"input\":[");
    if (items.length > 0) buf_add(out, items.data, items.length);
    buf_puts(out, "]");
    json_each_member(member, asked) {
        if (strcmp(member->name, "input") == 0) continue;
        buf_puts(out, ",");
        json_write_string(out, member->name, strlen(member->name));
        buf_puts(out, ":");
        json_write_value(out, member);
    }
    buf_puts(out, "}");
    buf_free(&items);
}
