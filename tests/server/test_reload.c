/* Settings that a running server reads again: all of them, or none. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/commands/commands.h"
#include "support/app_fixture.h"
#include "support/suite_main.h"

static char keys_path[] = "/tmp/penstock-keys-XXXXXX", file_path[] = "/tmp/penstock-file-XXXXXX";
static char *arguments[] = {"--model", "m", "--api-key-file", keys_path, "--config", file_path};
static char *environment[] = {NULL};

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

#define TWO "keys:\n- {name: a, key: one, weight: 2}\n- {name: b, key: two, admin: true}\n"
#define THREE                                                                                      \
    "keys:\n- {name: c, key: three}\n- {name: b, key: two, max_requests: 1}\n"                     \
    "- {name: a, key: one, weight: 5}\n"

static void setup(void) {
    struct key_lists *lists = mem_calloc(1, sizeof *lists);
    struct err err = {0};
    strcpy(keys_path + strlen(keys_path) - 6, "XXXXXX");
    strcpy(file_path + strlen(file_path) - 6, "XXXXXX");
    close(mkstemp(keys_path));
    close(mkstemp(file_path));
    write_file(keys_path, TWO);
    write_file(file_path, "cors-origins: https://a.example\n");
    app_setup();
    options.again.command = "serve";
    options.again.argc = 6;
    options.again.argv = arguments;
    options.again.environment = environment;
    ck_assert_msg(!reload_open(app, &options, &err), "%s", err.message);
    options.access.api_key_file = keys_path;
    ck_assert_int_eq(auth_read(&options, lists, &err), STATUS_OK);
    auth_replace(app, lists);
}

static void teardown(void) {
    reload_close(app);
    app_teardown();
    unlink(keys_path);
    unlink(file_path);
}

static void reload(void) {
    uint64_t until_ns = now_ns() + 5000000000u;
    app->on_hangup(app);
    ck_assert(reload_runs(app));
    while (reload_runs(app) && now_ns() < until_ns) uv_run(&app->loop, UV_RUN_NOWAIT);
    ck_assert(!reload_runs(app));
}

static struct api_key *key(const char *text) {
    return keys_find(&app->keys, text);
}

static void ask_with(const char *name, int status) {
    char fields[64];
    snprintf(fields, sizeof fields, "Authorization: Bearer %s\r\n", name);
    ask(COMPLETION, fields, PROMPT);
    expect_status(name, status);
}

START_TEST(all_settings_change_at_once) {
    ask_with("one", 200);
    ask_with("three", 401);
    struct key_use *use = key("one")->use;
    ck_assert_uint_eq(use->requests, 1);
    write_file(keys_path, THREE);
    write_file(file_path, "cors-origins: https://b.example\nlog-level: error\n");
    reload();
    ck_assert(key("one")->use == use && key("one")->weight == 5 && use->requests == 1);
    ck_assert(!key("two")->admin && key("two")->max_requests == 1);
    ck_assert_str_eq(app->options->access.cors_origins, "https://b.example");
    ask_with("three", 200);
    ask_with("one", 200);
    ck_assert_uint_eq(use->requests, 2);
    write_file(keys_path, TWO);
    reload();
    ask_with("three", 401);
    ck_assert_str_eq(app->options->access.cors_origins, "https://b.example");
}
END_TEST

static const struct {
    const char *keys, *file;
} wrong[] = {
    {"keys:\n- {name: a, key: new\n", "cors-origins: https://b.example\n"}, /* not YAML */
    {THREE, "cors-origins: https://b.example\nlog-level: loud\n"},
    {THREE, "cors-origins: https://b.example\nmax-num-seqs: 7\n"}, /* needs a restart */
    {THREE, "cors-origins: https://b.example\nlora: x=/nowhere\n"},
    {"", "cors-origins: https://b.example\n"}, /* no key is left */
    {THREE, "cors-origin: https://b.example\n"},
};

START_TEST(a_bad_reload_changes_nothing) {
    const char *origins = app->options->access.cors_origins;
    const struct api_key *first = app->keys.key;
    write_file(keys_path, wrong[_i].keys);
    write_file(file_path, wrong[_i].file);
    reload();
    ck_assert(app->options->access.cors_origins == origins && app->keys.key == first);
    ck_assert(app->keys.n == 2 && key("one")->weight == 2 && key("two")->admin);
    ask_with("three", 401);
    ask_with("one", 200);
}
END_TEST

/* Its entry of the old list is not freed. */
START_TEST(a_request_that_runs_keeps_its_key) {
    struct list_node request = {0};
    struct api_key *old = key("two");
    key_begin(old, now_ns());
    list_append(&app->requests, &request);
    write_file(keys_path, THREE);
    reload();
    reload();
    ck_assert_ptr_ne(key("two"), old);
    ck_assert_int_eq(key_check(key("two"), now_ns(), NULL), STATUS_OVERLOADED);
    key_charge(old, 5, 5);
    key_end(old, now_ns());
    list_remove(&app->requests, &request);
    ck_assert_int_eq(key_check(key("two"), now_ns(), NULL), STATUS_OK);
    ck_assert_uint_eq(key("two")->use->output_tokens, 5);
    reload();
    ck_assert_ptr_nonnull(app->retired);
    ck_assert_ptr_null(app->retired->next); /* the older lists are freed */
}
END_TEST

START_TEST(a_second_signal_reloads_once_more) {
    write_file(keys_path, THREE);
    app->on_hangup(app);
    app->on_hangup(app);
    app->on_hangup(app);
    int n = 0;
    for (const struct key_lists *at = app->retired; at; at = at->next) n++;
    while (reload_runs(app)) uv_run(&app->loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(app->keys.n, 3);
}
END_TEST

START_TEST(a_server_that_drains_drops_the_result) {
    write_file(keys_path, THREE);
    app->on_hangup(app);
    app->draining = true;
    while (reload_runs(app)) uv_run(&app->loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(app->keys.n, 2);
    app->draining = false;
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_reload");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, all_settings_change_at_once);
    tcase_add_loop_test(core, a_bad_reload_changes_nothing, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(core, a_request_that_runs_keeps_its_key);
    tcase_add_test(core, a_second_signal_reloads_once_more);
    tcase_add_test(core, a_server_that_drains_drops_the_result);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
