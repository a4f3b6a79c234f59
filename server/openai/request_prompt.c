/* Reads prompts: texts and token ids of a completion, and the settings for the end of a chat. */
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
    const struct api_request *request = parse->target;
    *prompt = (struct api_prompt){.text = json_text(value), .length = json_length(value)};
    bool may_be_empty =
        request->api->infills || json_length(json_member(parse->object, "suffix")) > 0;
    return prompt->length > 0 || may_be_empty ? STATUS_OK : refuse_empty(parse, name);
}

static enum status store_ids(struct parse *parse, const char *name, const struct json *array,
                             struct api_prompt *prompt) {
    int32_t *ids;
    const struct api_request *request = parse->target;
    int count = json_count(array), context = parse->limits->max_model_len;
    if (count == 0) return refuse_empty(parse, name);
    if (count > context && request->truncate_prompt_tokens == 0)
        return api_context_exceeded(parse->err, name, context, false, count);
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
    enum json_type type = json_first(array)->type;
    int n = json_count(array);
    assert(n > 0 && (type == JSON_STRING || type == JSON_ARRAY));
    int most = request->api->reads ? API_MAX_INPUTS : parse->limits->max_prompts;
    if (n > most) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d prompts, but it holds %d.", name, most, n);
    }
    request->prompts = arena_alloc(parse->arena, (size_t)n * sizeof *request->prompts);
    if (!request->prompts) {
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory for the prompts.");
    }
    const struct json *item = json_first(array);
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
    if (!json_first(value)) return refuse_empty(parse, name);
    if (json_is(json_first(value), JSON_NUMBER)) return store_one(parse, name, value);
    if (json_is(json_first(value), JSON_STRING) || json_is(json_first(value), JSON_ARRAY)) {
        return store_list(parse, name, value);
    }
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' must be %s, but it is an array whose first element is %s.", name, right,
                   json_type_name(json_first(value)));
}

/* ---- the end of a chat ---------------------------------------------------------------------- */

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
