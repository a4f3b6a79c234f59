/* OpenAI's predicted output: a text that the client expects as the answer. It is another source of
 * drafts (scheduler/draft/predicted.c). It affects only the speed of an answer. */
#include <stdio.h>

#include "server/openai/internal.h"

static enum status join_texts(struct parse *parse, const struct json *content, struct buf *out) {
    char name[48];
    int i = 0;
    json_each(part, content) {
        snprintf(name, sizeof name, "prediction.content[%d]", i++);
        const struct json *text = json_member(part, "text");
        if (!json_is_text(json_member(part, "type"), "text") || !json_is(text, JSON_STRING))
            return field_wrong(parse, name,
                               "must be an object with 'type': \"text\" and a string 'text'");
        buf_add(out, json_text(text), json_length(text));
    }
    return STATUS_OK;
}

enum status check_prediction(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    const struct json *content = json_member(value, "content");
    struct buf text = {0};
    enum status status = STATUS_OK;
    if (!json_is_text(json_member(value, "type"), "content"))
        return field_wrong(parse, name, "must have 'type': \"content\"");
    if (json_is(content, JSON_ARRAY))
        status = join_texts(parse, content, &text);
    else if (json_is(content, JSON_STRING))
        buf_add(&text, json_text(content), json_length(content));
    else
        status = field_wrong(parse, name, "must have a 'content': a string or parts of text");
    request->predicts = true;
    request->prediction_length = text.length;
    if (status == STATUS_OK && text.length > 0) {
        request->prediction = arena_strndup(parse->arena, text.data, text.length);
        if (!request->prediction)
            status = err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
    }
    buf_free(&text);
    return status;
}
