#include "support/template_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"

/* Renders into `out`. Returns false if that fails. */
static bool render(const char *source, const struct json *variables, struct buf *out,
                   struct err *err) {
    static struct json no_messages = {.type = JSON_ARRAY};
    struct chat_template *chat_template;
    struct chat_input input = {.messages = &no_messages, .extra = variables};
    if (chat_template_new(&chat_template, source, strlen(source), err) != STATUS_OK) return false;
    enum status status = chat_template_render(chat_template, &input, 1 << 20, out, NULL, NULL, err);
    chat_template_free(chat_template);
    return status == STATUS_OK;
}

char *fixture_render(const char *source, const char *variables) {
    struct json *json = NULL;
    struct err err = {0};
    struct buf out = {0};
    if (variables) {
        enum status status = json_parse(&json, "The test", variables, strlen(variables), &err);
        ck_assert_msg(status == STATUS_OK, "%s", err.message);
    }
    bool done = render(source, json, &out, &err);
    json_free(json);
    char *text = strdup(!done ? err.message : out.length ? out.data : "");
    buf_free(&out);
    return text;
}

void expect_template(const char *source, const char *variables, const char *wanted) {
    char *shown = fixture_render(source, variables);
    ck_assert_msg(strcmp(shown, wanted) == 0, "%s: wanted <%s>, got <%s>", source, wanted, shown);
    free(shown);
}

void expect_template_failure(const char *source, const char *variables, const char *cause) {
    char *shown = fixture_render(source, variables);
    bool fails = strstr(shown, "chat template, line ") == shown && strstr(shown, cause);
    ck_assert_msg(fails, "%s: wanted an error with <%s>, got <%s>", source, cause, shown);
    free(shown);
}

void expect_templates(const struct fixture_case *cases) {
    for (; cases->source; cases++) expect_template(cases->source, NULL, cases->wanted);
}

struct render *fixture_render_new(size_t max_bytes) {
    struct render *r = mem_calloc(1, sizeof *r);
    r->guard.err = mem_calloc(1, sizeof *r->guard.err);
    r->guard.status = STATUS_INVALID_REQUEST;
    r->guard.line = 1;
    r->guard.arena = arena_new(max_bytes);
    if (setjmp(r->guard.escape)) ck_abort_msg("%s", r->guard.err->message);
    r->globals = dict_new(r);
    r->out = builder_new(r);
    r->frame = render_alloc(r, sizeof *r->frame);
    *r->frame = (struct template_frame){0};
    return r;
}

void fixture_render_free(struct render *r) {
    arena_free(r->guard.arena);
    free(r->guard.err);
    free(r);
}
