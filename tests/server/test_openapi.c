/* /openapi.json of a whole server: it names every route and every field of a body. */
#include <check.h>
#include <string.h>

#include "server/apis/apis.h"
#include "server/json/json.h"
#include "support/app_fixture.h"
#include "support/suite_main.h"

static struct json *document;

static void setup(void) {
    struct err err;
    app_setup();
    ask("GET /openapi.json", "", NULL);
    expect_status("/openapi.json", 200);
    const char *body = strstr(answer.data, "\r\n\r\n");
    ck_assert_ptr_nonnull(body);
    ck_assert_int_eq(json_parse_strict(&document, "document", body + 4, strlen(body + 4), &err),
                     STATUS_OK);
}

static void teardown(void) {
    json_free(document);
    app_teardown();
}

static const struct json *member(const struct json *object, const char *name) {
    const struct json *value = json_member(object, name);
    ck_assert_msg(value != NULL, "no member %s", name);
    return value;
}

static const struct json *operation_of(const struct route *route) {
    char path[ROUTE_PATH + 8];
    bool is_prefix = strlen(route->path) > 1 && route->path[strlen(route->path) - 1] == '/';
    snprintf(path, sizeof path, "%s%s", route->path, is_prefix ? "{name}" : "");
    return member(member(member(document, "paths"), path),
                  strcmp(route->method, "GET") == 0 ? "get" : "post");
}

/* Returns the properties of the body that an operation refers to. */
static const struct json *properties_of(const struct json *operation) {
    const struct json *content = member(member(operation, "requestBody"), "content");
    const struct json *ref = member(member(member(content, "application/json"), "schema"), "$ref");
    const char *name = strrchr(json_text(ref), '/') + 1;
    return member(member(member(member(document, "components"), "schemas"), name), "properties");
}

static void expect_fields(const struct json *properties, const struct field_table *table) {
    for (int i = 0; table && i < table->n_fields; i++) member(properties, table->fields[i].name);
}

START_TEST(every_route_is_in_the_document) {
    for (int i = 0; i < app->n_routes; i++) {
        const struct json *operation = operation_of(&app->routes[i]);
        ck_assert_ptr_nonnull(json_text(member(operation, "summary")));
        member(member(operation, "responses"), "200");
    }
}
END_TEST

START_TEST(every_field_of_a_body_is_in_the_document) {
    for (int i = 0; i < app->n_routes; i++) {
        const struct route *route = &app->routes[i];
        const struct field_table *fields = route->api ? route->api->fields : route->fields;
        ck_assert_msg(!route->reads_body || fields != NULL, "%s has no fields", route->path);
        if (!fields) continue;
        const struct json *properties = properties_of(operation_of(route));
        expect_fields(properties, fields);
        if (route->api) expect_fields(properties, route->api->more_fields);
    }
}
END_TEST

START_TEST(a_field_has_its_type_and_range) {
    const struct json *chat =
        properties_of(member(member(member(document, "paths"), "/v1/chat/completions"), "post"));
    const struct json *top_p = member(chat, "top_p");
    ck_assert_int_eq(json_count(member(top_p, "type")), 2);
    ck_assert(json_is_text(json_first(member(top_p, "type")), "number"));
    ck_assert(json_number(member(top_p, "minimum")) == 0);
    ck_assert(json_number(member(member(chat, "typical_p"), "exclusiveMinimum")) == 0);
    ck_assert(json_number(member(top_p, "maximum")) == 1);
    ck_assert(json_number(member(top_p, "default")) == 1);
    ck_assert_ptr_null(json_member(member(chat, "top_logprobs"), "default")); /* -1: absent */
    ck_assert_ptr_null(json_member(member(chat, "top_k"), "maximum"));
}
END_TEST

/* The model has no tokens for filling in, nor "yes" and "no" as labels. */
static bool lacks_tokens(const struct api *api) {
    bool ranks = strcmp(api->id_prefix, "rerank-") == 0 || strcmp(api->id_prefix, "score-") == 0 ||
                 strcmp(api->id_prefix, "classify-") == 0; /* nor a head that classifies */
    return api->infills || ranks || strcmp(api->id_prefix, "dec-") == 0;
}

START_TEST(every_example_is_answered) {
    struct buf body = {0};
    for (int i = 0; i < app->n_routes; i++) {
        const struct route *route = &app->routes[i];
        char line[ROUTE_PATH + 8];
        if (!route->reads_body) continue;
        const struct json *content = member(member(operation_of(route), "requestBody"), "content");
        buf_clear(&body);
        json_write_value(&body, member(member(content, "application/json"), "example"));
        snprintf(line, sizeof line, "POST %s", route->path);
        ask(line, "", body.data);
        bool is_refused = route->api && lacks_tokens(route->api);
        int refused = is_refused ? api_http(route->api, STATUS_INVALID_REQUEST) : 200;
        expect_status(line, route->admin ? 401 : refused);
    }
    buf_free(&body);
}
END_TEST

/* Every copied field of a translated body has a row in the table that it is copied to. */
START_TEST(a_copied_field_has_the_type_of_its_other_name) {
    for (int i = 0; api_at(i); i++) {
        const struct field_table *table = api_at(i)->fields;
        for (int k = 0; k < table->n_fields; k++) {
            const char *other = table->fields[k].copied_to;
            const struct field_table *more = api_at(i)->more_fields;
            if (!other) continue;
            if (!more) more = fields_find(&chat_fields, other) ? &chat_fields : &embedding_fields;
            ck_assert_msg(fields_find(more, other), "%s: no field %s", api_at(i)->path, other);
        }
    }
    const struct json *messages =
        properties_of(member(member(member(document, "paths"), "/v1/messages"), "post"));
    ck_assert(json_number(member(member(messages, "max_tokens"), "minimum")) == -1);
    const struct json *llama =
        properties_of(member(member(member(document, "paths"), "/completion"), "post"));
    ck_assert(json_is_text(json_first(member(member(llama, "n_probs"), "type")), "integer"));
}
END_TEST

START_TEST(a_required_field_is_refused_when_it_is_absent) {
    struct buf line = {0};
    for (int i = 0; i < app->n_routes; i++) {
        const struct route *route = &app->routes[i];
        const struct field_table *fields = route->api ? route->api->fields : route->fields;
        for (int k = 0; fields && k < fields->n_fields; k++) {
            if (!fields->fields[k].required) continue;
            bool names_model = strcmp(fields->fields[k].name, "model") != 0;
            buf_clear(&line);
            buf_printf(&line, "POST %s", route->path);
            ask(line.data, "", names_model ? "{\"model\":\"tiny\"}" : "{}");
            expect_status(line.data,
                          route->admin ? 401 : api_http(route->api, STATUS_INVALID_REQUEST));
            expect_text(route->admin ? "admin key" : fields->fields[k].name);
        }
    }
    buf_free(&line);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server/openapi");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, every_route_is_in_the_document);
    tcase_add_test(all, every_field_of_a_body_is_in_the_document);
    tcase_add_test(all, a_field_has_its_type_and_range);
    tcase_add_test(all, every_example_is_answered);
    tcase_add_test(all, a_copied_field_has_the_type_of_its_other_name);
    tcase_add_test(all, a_required_field_is_refused_when_it_is_absent);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
