/* Parses the value of --speculative-config: a JSON object with vLLM's keys, or the name of a
 * method. */
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "server/options/table.h"

/* Names as in vLLM. Methods of vLLM that are missing here are rejected by name. */
static const struct named_value method_names[] = {{"none", SPECULATION_NONE},
                                                  {"ngram", SPECULATION_LOOKUP},
                                                  {"[ngram]", SPECULATION_LOOKUP},
                                                  {"suffix", SPECULATION_SUFFIX},
                                                  {"draft_model", SPECULATION_DRAFT_MODEL},
                                                  {"mtp", SPECULATION_AHEAD},
                                                  {"eagle3", SPECULATION_EAGLE3},
                                                  {"deepseek_mtp", SPECULATION_AHEAD},
                                                  {"glm4_moe_mtp", SPECULATION_AHEAD},
                                                  {"glm4_moe_lite_mtp", SPECULATION_AHEAD},
                                                  {"qwen3_next_mtp", SPECULATION_AHEAD},
                                                  {"qwen3_5_mtp", SPECULATION_AHEAD},
                                                  {NULL, 0}};

struct speculation_reading {
    const char *who;
    struct err *err;
};

static enum status wrong(const struct speculation_reading *r, const char *key, const char *wanted) {
    return err_set(r->err, STATUS_USAGE, "speculative-config", "%s: %s%s%s", r->who, key ? key : "",
                   key ? " " : "", wanted);
}

static const struct named_value *find_method(const char *name) {
    for (const struct named_value *method = method_names; method->name; method++)
        if (strcmp(method->name, name) == 0) return method;
    return NULL;
}

static enum status read_method(const struct speculation_reading *r, const char *name,
                               enum speculation_method *out) {
    const struct named_value *method = find_method(name);
    if (method) {
        *out = (enum speculation_method)method->value;
        return STATUS_OK;
    }
    return err_set(r->err, STATUS_USAGE, "speculative-config",
                   "%s: the method \"%.40s\" is not served; use \"ngram\", \"suffix\", "
                   "\"draft_model\", \"mtp\", \"eagle3\" or \"none\"",
                   r->who, name);
}

static bool needs_model(enum speculation_method method) {
    return method == SPECULATION_DRAFT_MODEL || method == SPECULATION_EAGLE3;
}

/* Reads "model": the path of a draft model or, as in vLLM, the name of a method without a model. */
static enum status read_model(const struct speculation_reading *r, const char *text,
                              struct speculation *out) {
    const struct named_value *method = find_method(text);
    if (method && !needs_model((enum speculation_method)method->value))
        return read_method(r, text, &out->method);
    if (!*text || strlen(text) >= sizeof out->model)
        return wrong(r, "model", "must be the path of a model, of at most 1023 bytes");
    snprintf(out->model, sizeof out->model, "%s", text);
    return STATUS_OK;
}

static enum status read_count(const struct speculation_reading *r, const struct json *value,
                              int max, int *out) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "must be a whole number from 1 to %d", max);
    if (!json_is(value, JSON_NUMBER) || !value->is_integer || value->integer < 1 ||
        value->integer > max)
        return wrong(r, value->name, wanted);
    *out = (int)value->integer;
    return STATUS_OK;
}

static enum status read_member(const struct speculation_reading *r, const struct json *member,
                               struct speculation *out) {
    const char *key = member->name;
    if (strcmp(key, "method") == 0 || strcmp(key, "model") == 0) {
        if (!json_is(member, JSON_STRING)) return wrong(r, key, "must be a string");
        if (strcmp(key, "model") == 0) return read_model(r, member->string, out);
        return read_method(r, member->string, &out->method);
    }
    if (strcmp(key, "num_speculative_tokens") == 0)
        return read_count(r, member, MAX_DRAFTS, &out->max_tokens);
    if (strcmp(key, "prompt_lookup_min") == 0)
        return read_count(r, member, MAX_DRAFT_MATCH, &out->lookup_min);
    if (strcmp(key, "prompt_lookup_max") == 0)
        return read_count(r, member, MAX_DRAFT_MATCH, &out->lookup_max);
    return wrong(r, key,
                 "is an unknown key; the keys are: method, model, num_speculative_tokens, "
                 "prompt_lookup_min, prompt_lookup_max");
}

/* As in vLLM, a model without a method means "draft_model". */
static enum status match_model(const struct speculation_reading *r, bool has_method,
                               struct speculation *out) {
    if (*out->model && !has_method) out->method = SPECULATION_DRAFT_MODEL;
    if (*out->model && !needs_model(out->method))
        return wrong(r, "model", "is only for the methods \"draft_model\" and \"eagle3\"");
    if (!*out->model && out->method == SPECULATION_EAGLE3)
        return wrong(r, "method",
                     "\"eagle3\" needs the folder of a head: {\"method\": \"eagle3\", "
                     "\"model\": \"FOLDER\"}");
    if (!*out->model && out->method == SPECULATION_DRAFT_MODEL)
        return wrong(r, "method",
                     "\"draft_model\" needs a model: {\"method\": \"draft_model\", \"model\": "
                     "\"PATH\"}");
    return STATUS_OK;
}

static enum status read_object(const struct speculation_reading *r, const char *text,
                               struct speculation *out) {
    struct json *json;
    enum status status = json_parse(&json, r->who, text, strlen(text), r->err);
    if (status) return r->err ? (r->err->status = STATUS_USAGE) : STATUS_USAGE;
    bool has_method = json_member(json, "method") || json_member(json, "model");
    if (!json_is(json, JSON_OBJECT) || !has_method)
        status = wrong(r, NULL, "must be a JSON object with a \"method\", or a method's name");
    for (const struct json *m = json_first(json); m && status == STATUS_OK; m = m->next)
        status = read_member(r, m, out);
    if (status == STATUS_OK) status = match_model(r, json_member(json, "method"), out);
    json_free(json);
    return status;
}

enum status speculation_read(struct speculation *out, const char *who, const char *text,
                             struct err *err) {
    const struct speculation_reading r = {who, err};
    *out = (struct speculation){
        .max_tokens = MAX_DRAFTS, .lookup_min = 2, .lookup_max = MAX_DRAFT_MATCH};
    bool is_object = text[strspn(text, " \t\n")] == '{';
    enum status status =
        is_object ? read_object(&r, text, out) : read_method(&r, text, &out->method);
    if (status == STATUS_OK && !is_object) status = match_model(&r, true, out);
    if (status == STATUS_OK && out->lookup_min > out->lookup_max)
        status = wrong(&r, "prompt_lookup_min", "must be at most prompt_lookup_max");
    return status;
}
