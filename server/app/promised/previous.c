/* Requests that continue a stored answer, such as by `previous_response_id`: the body gets the
 * whole conversation, so that it can be computed without the older answer. */
#include <string.h>

#include "config/json.h"
#include "server/app/promised/promised.h"

/* An earlier answer while it is read. */
struct earlier {
    struct buf bytes;
    struct record record;
    struct json *body, *answer;
};

static enum status wrong(const struct api *api, const char *id, const char *why, struct err *err) {
    const char *field = api->previous_field;
    err_set(err, STATUS_INVALID_REQUEST, field, "Previous response with id '%.64s' %s.", id, why);
    snprintf(err->code, sizeof err->code, "previous_response_not_found");
    return err->status;
}

static void free_earlier(struct earlier *earlier) {
    json_free(earlier->body);
    json_free(earlier->answer);
    buf_free(&earlier->bytes);
}

static enum status parse_field(struct json **out, const struct earlier *earlier,
                               enum record_field field, struct err *err) {
    const struct record_bytes *bytes = &earlier->record.field[field];
    return json_parse(out, "The stored response", bytes->data ? bytes->data : "", bytes->length,
                      err);
}

/* Reads the stored request and answer of an id. */
static enum status read_earlier(struct earlier *out, const struct continuation *to, const char *id,
                                struct err *err) {
    struct journal *journal = to->app->promises->journal;
    const uint8_t *key = to->key ? to->key->digest : NULL;
    const struct api *api = to->api;
    struct promise_entry entry;
    bool is_known = journal_find_id(journal, key, id, &entry);
    if (is_known && !entry.is_finished) { /* its client may have the answer before the disk has */
        journal_settle(journal);
        is_known = journal_find_id(journal, key, id, &entry);
    }
    if (!is_known) return wrong(api, id, "not found", err);
    if (!entry.is_finished) return wrong(api, id, "is not finished", err);
    if (journal_read(journal, &entry, &out->bytes, &out->record, err) ||
        !record_is(&out->record, RECORD_ID, id, strlen(id)) ||
        !record_is(&out->record, RECORD_KEY, key, key ? RECORD_KEY_BYTES : 0))
        return wrong(api, id, "not found", err);
    if (parse_field(&out->body, out, RECORD_BODY, err) ||
        parse_field(&out->answer, out, RECORD_ANSWER_BODY, err))
        return err->status;
    const char *status = json_text(json_member(out->answer, "status"));
    bool has_output = strcmp(status, "completed") == 0 || strcmp(status, "incomplete") == 0;
    return has_output ? STATUS_OK : wrong(api, id, "has no whole output", err);
}

enum status promise_continue(const struct continuation *to, struct json **body, struct buf *text,
                             struct err *err) {
    struct earlier earlier = {0};
    const struct json *id = NULL;
    if (to->app->promises && to->api->write_continued && json_is(*body, JSON_OBJECT))
        id = json_member(*body, to->api->previous_field);
    if (!id || json_length(id) == 0) return STATUS_OK; /* the API's parser checks its type */
    enum status status = read_earlier(&earlier, to, json_text(id), err);
    if (!status) {
        to->api->write_continued(text, *body, earlier.body, earlier.answer);
        json_free(*body);
        *body = NULL;
        status = json_parse(body, "The conversation", text->data, text->length, err);
    }
    free_earlier(&earlier);
    return status;
}
