/* What is to be continued: a completion's prompts, a chat's messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api_internal.h"

/* ---- prompts -------------------------------------------------------------------------------- */

static enum status prompt_empty(struct parse *parse, const char *name) {
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' must not be empty: it takes at least one character or token.", name);
}

static enum status prompt_text(struct parse *parse, const char *name, const cJSON *value,
                               struct api_prompt *prompt) {
    *prompt = (struct api_prompt){.text = value->valuestring, .length = json_string_length(value)};
    return prompt->length > 0 ? STATUS_OK : prompt_empty(parse, name);
}

static enum status prompt_ids(struct parse *parse, const char *name, const cJSON *array,
                              struct api_prompt *prompt) {
    int32_t *ids;
    int count = cJSON_GetArraySize(array), context = parse->limits->max_model_len;
    if (count == 0) return prompt_empty(parse, name);
    if (count > context) {
        err_set(parse->err, STATUS_INVALID_REQUEST, name,
                "'%s' holds %d tokens, but the model's context is %d tokens.", name, count,
                context);
        return field_code(parse, "context_length_exceeded");
    }
    enum status status = field_ids(parse, name, array, count, &ids, &count);
    *prompt = (struct api_prompt){.text = "", .ids = ids, .n_ids = count};
    return status;
}

static enum status prompt_item(struct parse *parse, const char *name, int i, const cJSON *item,
                               int first_type, struct api_prompt *prompt) {
    char path[48];
    snprintf(path, sizeof path, "%s[%d]", name, i);
    if ((item->type & 0xFF) != first_type) {
        return field_wrong_type(parse, path,
                                first_type == cJSON_String
                                    ? "a string as those before it"
                                    : "an array of token ids as those before it",
                                item);
    }
    return first_type == cJSON_String ? prompt_text(parse, path, item, prompt)
                                      : prompt_ids(parse, path, item, prompt);
}

static enum status prompt_list(struct parse *parse, const char *name, const cJSON *array) {
    struct api_request *request = parse->target;
    int n = cJSON_GetArraySize(array), type = array->child->type & 0xFF;
    if (n > parse->limits->max_prompts) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d prompts, but it holds %d.", name,
                       parse->limits->max_prompts, n);
    }
    request->prompts = arena_alloc(parse->arena, (size_t)n * sizeof *request->prompts);
    if (!request->prompts) {
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory for the prompts.");
    }
    const cJSON *item = array->child;
    for (int i = 0; i < n; i++, item = item->next) {
        enum status status = prompt_item(parse, name, i, item, type, &request->prompts[i]);
        if (status != STATUS_OK) return status;
    }
    request->n_prompts = n;
    return STATUS_OK;
}

static enum status prompt_one(struct parse *parse, const char *name, const cJSON *value) {
    struct api_request *request = parse->target;
    request->prompts = arena_alloc(parse->arena, sizeof *request->prompts);
    if (!request->prompts) {
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory for the prompt.");
    }
    request->n_prompts = 1;
    return cJSON_IsString(value) ? prompt_text(parse, name, value, request->prompts)
                                 : prompt_ids(parse, name, value, request->prompts);
}

enum status check_prompt(struct parse *parse, const char *name, const cJSON *value) {
    static const char right[] = "a string, an array of strings, an array of token ids, or an "
                                "array of arrays of token ids";
    if (cJSON_IsString(value)) return prompt_one(parse, name, value);
    if (!cJSON_IsArray(value)) return field_wrong_type(parse, name, right, value);
    if (!value->child) return prompt_empty(parse, name);
    if (cJSON_IsNumber(value->child)) return prompt_one(parse, name, value);
    if (cJSON_IsString(value->child) || cJSON_IsArray(value->child)) {
        return prompt_list(parse, name, value);
    }
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' must be %s, but it is an array whose first element is %s.", name, right,
                   json_type_name(value->child));
}

/* ---- messages ------------------------------------------------------------------------------- */

static enum status check_part(struct parse *parse, const char *path, const cJSON *part) {
    char name[80];
    if (!cJSON_IsObject(part)) return field_wrong_type(parse, path, "an object", part);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(part, "type");
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(part, "text");
    snprintf(name, sizeof name, "%s.type", path);
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "text") != 0) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must be \"text\": this model reads no other kind of content.", name);
    }
    snprintf(name, sizeof name, "%s.text", path);
    if (!cJSON_IsString(text)) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' must be a string.", name);
    }
    return STATUS_OK;
}

/* Turns an array of text parts into one string, a line each, which is what templates that know only
 * strings expect. Null, which clients send with nothing to say, becomes the empty one. */
static enum status join_parts(struct parse *parse, const char *path, cJSON *content) {
    struct buf joined = {0};
    int i = 0;
    for (const cJSON *part = content->child; part; part = part->next, i++) {
        char name[64];
        snprintf(name, sizeof name, "%s[%d]", path, i);
        enum status status = check_part(parse, name, part);
        if (status != STATUS_OK) {
            buf_free(&joined);
            return status;
        }
        if (i > 0) buf_add(&joined, "\n", 1);
        buf_puts(&joined, cJSON_GetObjectItemCaseSensitive(part, "text")->valuestring);
    }
    cJSON_Delete(content->child);
    content->child = NULL;
    content->type = cJSON_String;
    content->valueint = (int)joined.length;
    content->valuestring = cJSON_malloc(joined.length + 1);
    if (content->valuestring)
        memcpy(content->valuestring, joined.length ? joined.data : "", joined.length + 1);
    buf_free(&joined);
    if (content->valuestring) return STATUS_OK;
    return err_set(parse->err, STATUS_UNAVAILABLE, path, "Not enough memory for '%s'.", path);
}

static enum status check_message(struct parse *parse, const char *path, const cJSON *message) {
    char name[48];
    if (!cJSON_IsObject(message)) return field_wrong_type(parse, path, "an object", message);
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(message, "role");
    cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
    snprintf(name, sizeof name, "%s.role", path);
    if (!role || !cJSON_IsString(role) || !role->valuestring[0]) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must be a string such as \"user\".", name);
    }
    snprintf(name, sizeof name, "%s.content", path);
    if (cJSON_IsString(content)) return STATUS_OK;
    if (cJSON_IsArray(content) || cJSON_IsNull(content)) return join_parts(parse, name, content);
    if (!content && strcmp(role->valuestring, "assistant") == 0) return STATUS_OK; /* a mere call */
    if (!content)
        return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' is missing.", name);
    return field_wrong_type(parse, name, "a string, null, or an array of parts", content);
}

/* Templates see C strings, which would end at a NUL: text must not vanish unseen. */
static bool holds_nul(const cJSON *value) {
    if (cJSON_IsString(value)) return strlen(value->valuestring) != json_string_length(value);
    for (const cJSON *child = value->child; child; child = child->next) {
        if (holds_nul(child)) return true;
    }
    return false;
}

enum status check_messages(struct parse *parse, const char *name, const cJSON *value) {
    char path[32];
    int i = 0;
    if (!cJSON_IsArray(value)) return field_wrong_type(parse, name, "an array of messages", value);
    if (!value->child) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must hold at least one message.", name);
    }
    for (const cJSON *message = value->child; message; message = message->next, i++) {
        snprintf(path, sizeof path, "%s[%d]", name, i);
        if (holds_nul(message)) {
            return err_set(parse->err, STATUS_INVALID_REQUEST, path,
                           "'%s' must not hold the character \\u0000.", path);
        }
        enum status status = check_message(parse, path, message);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

enum status settle_generation_prompt(struct parse *parse, bool *add, bool continue_final) {
    if (!continue_final) return STATUS_OK;
    if (*add && field_given(parse, "add_generation_prompt")) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, "continue_final_message",
                       "'continue_final_message' and 'add_generation_prompt' must not both be "
                       "true: the last message is either continued or answered.");
    }
    *add = false;
    return STATUS_OK;
}
