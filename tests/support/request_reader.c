#include "support/request_reader.h"

#include <check.h>
#include <string.h>

const struct api_limits request_limits = {.model = "m",
                                          .V = 1000,
                                          .max_model_len = 64,
                                          .max_choices = 16,
                                          .max_prompts = 8,
                                          .default_seed = 77,
                                          .has_chat_template = true};

enum status request_read(struct api_request **out, const struct api *api, const char *body,
                         size_t length, const struct api_limits *by, struct err *err) {
    struct json *json;
    *out = NULL;
    enum status status = json_parse_strict(&json, "The body", body, length, err);
    return status ? status : api->parse(out, json, by, err);
}

struct api_request *request_expect(const struct api *api, const char *body) {
    struct api_request *request;
    struct err err = {0};
    enum status status = request_read(&request, api, body, strlen(body), &request_limits, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", body, err.message);
    return request;
}
