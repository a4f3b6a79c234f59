/* Prompts: texts and token ids of a completion, messages of a chat. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/openai/internal.h"

/* ---- prompts -------------------------------------------------------------------------------- */

static enum status refuse_empty(struct parse *parse, const char *name) {
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' must not be empty: it takes at least one character or token.", name);
}

static enum status store_text(struct parse *parse, const char *name, const struct json *value,
                              struct api_prompt *prompt) {
    *prompt = (struct api_prompt){.text = value->string, .length = value->length};
    return prompt->length > 0 ? STATUS_OK : refuse_empty(parse, name);
}

static enum status store_ids(struct parse *parse, const char *name, const struct json *array,
                             struct api_prompt *prompt) {
    int32_t *ids;
    int count = array->n_children, context = parse->limits->max_model_len;
    if (count == 0) return refuse_empty(parse, name);
    if (count > context) return api_context_exceeded(parse->err, name, context, false, count);
    enum status status = field_ids(parse, name, array, count, &ids, &count);
    *prompt = (struct api_prompt){.text = "", .ids = ids, .n_ids = count};
    return status;
}

static enum status store_item(struct parse *parse, const char *name, int i, const struct json *item,
                              enum json_type first_type, struct api_prompt *prompt) {
    char path[48];
    snprintf(path, sizeof path, "%s[%d]", name, i);
    if (item->type != first_type) {
        return field_wrong_type(parse, path,
                                first_type == JSON_STRING
                                    ? "a string as those before it"
                                    : "an array of token ids as those before it",
                                item);
    }
    return first_type == JSON_STRING ? store_text(parse, path, item, prompt)
                                     : store_ids(parse, path, item, prompt);
}

static enum status store_list(struct parse *parse, const char *name, const struct json *array) {
    struct api_request *request = parse->target;
    enum json_type type = array->child->type;
    int n = array->n_children;
    assert(n > 0 && (type == JSON_STRING || type == JSON_ARRAY));
    if (n > parse->limits->max_prompts) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d prompts, but it holds %d.", name,
                       parse->limits->max_prompts, n);
    }
    request->prompts = arena_alloc(parse->arena, (size_t)n * sizeof *request->prompts);
    if (!request->prompts) {
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory for the prompts.");
    }
    const struct json *item = array->child;
    for (int i = 0; i < n; i++, item = item->next) {
        enum status status = store_item(parse, name, i, item, type, &request->prompts[i]);
        if (status != STATUS_OK) return status;
    }
    request->n_prompts = n;
    return STATUS_OK;
}

static enum status store_one(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    request->prompts = arena_alloc(parse->arena, sizeof *request->prompts);
    if (!request->prompts) {
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory for the prompt.");
    }
    request->n_prompts = 1;
    return json_is(value, JSON_STRING) ? store_text(parse, name, value, request->prompts)
                                       : store_ids(parse, name, value, request->prompts);
}

enum status check_prompt(struct parse *parse, const char *name, const struct json *value) {
    static const char right[] = "a string, an array of strings, an array of token ids, or an "
                                "array of arrays of token ids";
    if (json_is(value, JSON_STRING)) return store_one(parse, name, value);
    if (!json_is(value, JSON_ARRAY)) return field_wrong_type(parse, name, right, value);
    if (!value->child) return refuse_empty(parse, name);
    if (json_is(value->child, JSON_NUMBER)) return store_one(parse, name, value);
    if (json_is(value->child, JSON_STRING) || json_is(value->child, JSON_ARRAY)) {
        return store_list(parse, name, value);
    }
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' must be %s, but it is an array whose first element is %s.", name, right,
                   json_type_name(value->child));
}

/* ---- messages ------------------------------------------------------------------------------- */

static enum status check_part(struct parse *parse, const char *path, const struct json *part) {
    char name[80];
    if (!json_is(part, JSON_OBJECT)) return field_wrong_type(parse, path, "an object", part);
    const struct json *type = json_member(part, "type");
    const struct json *text = json_member(part, "text");
    snprintf(name, sizeof name, "%s.type", path);
    if (!json_is_text(type, "text")) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must be \"text\": this model reads no other kind of content.", name);
    }
    snprintf(name, sizeof name, "%s.text", path);
    if (!json_is(text, JSON_STRING)) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' must be a string.", name);
    }
    return STATUS_OK;
}

/* Turns an array of text parts into one string, a line each, which is what templates that know only
 * strings expect. Null, which clients send for no content, becomes the empty string. */
static enum status join_parts(struct parse *parse, const char *path, struct json *content) {
    struct buf joined = {0};
    int i = 0;
    json_each(part, content) {
        char name[64];
        snprintf(name, sizeof name, "%s[%d]", path, i);
        enum status status = check_part(parse, name, part);
        if (status != STATUS_OK) {
            buf_free(&joined);
            return status;
        }
        if (i++ > 0) buf_add(&joined, "\n", 1);
        buf_puts(&joined, json_member(part, "text")->string);
    }
    buf_add(&joined, "", 0); /* a buffer that holds nothing has no memory */
    json_set_string(content, joined.data, joined.length);
    return STATUS_OK;
}

static enum status check_message(struct parse *parse, const char *path,
                                 const struct json *message) {
    char name[48];
    if (!json_is(message, JSON_OBJECT)) return field_wrong_type(parse, path, "an object", message);
    const struct json *role = json_member(message, "role");
    struct json *content = json_member(message, "content");
    snprintf(name, sizeof name, "%s.role", path);
    if (!json_is(role, JSON_STRING) || !role->string[0]) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must be a string such as \"user\".", name);
    }
    snprintf(name, sizeof name, "%s.content", path);
    if (json_is(content, JSON_STRING)) return STATUS_OK;
    if (json_is(content, JSON_ARRAY) || json_is(content, JSON_NULL))
        return join_parts(parse, name, content);
    if (!content && json_is_text(role, "assistant")) return STATUS_OK; /* it only calls tools */
    if (!content)
        return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' is missing.", name);
    return field_wrong_type(parse, name, "a string, null, or an array of parts", content);
}

/* Templates see C strings, which would end at a NUL: text must not vanish unseen. */
static bool holds_nul(const struct json *value) {
    if (json_is(value, JSON_STRING)) return strlen(value->string) != value->length;
    json_each(child, value) {
        if (holds_nul(child)) return true;
    }
    return false;
}

enum status check_messages(struct parse *parse, const char *name, const struct json *value) {
    char path[32];
    int i = 0;
    if (!json_is(value, JSON_ARRAY))
        return field_wrong_type(parse, name, "an array of messages", value);
    if (!value->child) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must hold at least one message.", name);
    }
    json_each(message, value) {
        snprintf(path, sizeof path, "%s[%d]", name, i++);
        if (holds_nul(message)) {
            return err_set(parse->err, STATUS_INVALID_REQUEST, path,
                           "'%s' must not hold the character \\u0000.", path);
        }
        enum status status = check_message(parse, path, message);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

enum status check_generation_prompt(struct parse *parse, struct api_prompt *prompt) {
    if (!prompt->continue_final_message) return STATUS_OK;
    if (prompt->add_generation_prompt && field_given(parse, "add_generation_prompt")) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, "continue_final_message",
                       "'continue_final_message' and 'add_generation_prompt' must not both be "
                       "true: the last message is either continued or answered.");
    }
    prompt->add_generation_prompt = false;
    return STATUS_OK;
}
