/* The access rights of a whole server: keys, admin keys, origins of pages, trusted proxies; and the
 * ids of requests. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "server/endpoints/endpoints.h"
#include "support/app_fixture.h"
#include "support/suite_main.h"

#define ORIGIN "Origin: https://b.example\r\n"
#define ALLOWED "Access-Control-Allow-Origin: https://b.example\r\n"
#define ASKS "Access-Control-Request-Method: POST\r\n"

static void give_key(struct keys *keys, const char *key) {
    keys_add(keys, key, strlen(key));
}

START_TEST(keys_open_all_but_health) {
    give_key(&app->keys, "secret");
    ask("GET /v1/models", "", NULL);
    expect_status("without a key", 401);
    expect_text("WWW-Authenticate: Bearer");
    expect_text("X-Should-Retry: false"); /* SDKs obey it */
    ask("GET /v1/models", "Authorization: Bearer secrets\r\n", NULL);
    expect_status("with a wrong key", 401);
    ask("GET /nowhere", "", NULL);
    expect_status("an unknown path", 401);
    ask("GET /v1/models", "Authorization: Bearer secret\r\n", NULL);
    expect_status("with the key", 200);
    ask("GET /health/ready", "", NULL);
    expect_status("health", 200);
    ask("GET /metrics", "", NULL);
    expect_status("metrics", 200);
    ask("GET /version", "", NULL);
    expect_status("version", 200);
}
END_TEST

START_TEST(metrics_have_keys_of_their_own) {
    give_key(&app->keys, "secret");
    give_key(&app->metrics_keys, "scrape");
    ask("GET /metrics", "", NULL);
    expect_status("without a key", 401);
    expect_text("A valid metrics key is needed");
    ask("GET /metrics", "Authorization: Bearer secret\r\n", NULL);
    expect_status("an API key", 401);
    ask("GET /metrics", "Authorization: Bearer scrape\r\n", NULL);
    expect_status("its key", 200);
    ask("GET /version", "", NULL);
    expect_status("the version", 401);
    ask("GET /v1/models", "Authorization: Bearer scrape\r\n", NULL);
    expect_status("what needs an API key", 401);
    ask("GET /health", "", NULL);
    expect_status("health", 200);
}
END_TEST

/* Only an admin key may drain. It may use the other paths too. */
START_TEST(admin_keys_drain) {
    give_key(&app->keys, "secret");
    ask("POST /drain", "Authorization: Bearer secret\r\n", "");
    expect_status("without admin keys", 401);
    expect_text("start it with --admin-key.");
    give_key(&app->admin_keys, "other");
    give_key(&app->admin_keys, "boss");
    ask("POST /drain", "Authorization: Bearer secret\r\n", "");
    expect_status("with an API key", 401);
    ask("POST /drain", "", "");
    expect_status("without a key", 401);
    ask("GET /drain", "Authorization: Bearer boss\r\n", NULL);
    expect_status("GET", 405);
    ask("GET /v1/models", "Authorization: Bearer boss\r\n", NULL);
    expect_status("with an admin key", 200);
    ck_assert(!app->draining);
    ask("POST /drain", "Authorization: Bearer boss\r\n", "");
    expect_status("a drain", 200);
    expect_text("{\"status\":\"draining\",\"requests\":0,\"delay_s\":5,\"timeout_s\":30}");
    ck_assert(app->draining && !app->port_closed);
    ask(COMPLETION, "Authorization: Bearer secret\r\n", PROMPT);
    expect_status("while draining", 503);
    ask("POST /drain", "Authorization: Bearer boss\r\n", "");
    expect_status("a second time", 200);
}
END_TEST

START_TEST(keys_in_other_headers) {
    give_key(&app->keys, "secret");
    ask("GET /v1/models", "x-api-key: secret\r\n", NULL);
    expect_status("x-api-key", 200);
    ask("GET /v1/models", "Api-Key: secret\r\n", NULL);
    expect_status("api-key", 200);
    ask("GET /v1/models", "x-api-key: secre\r\n", NULL);
    expect_status("a wrong key", 401);
    ask("GET /v1/models", "x-api-key: secret\r\nAuthorization: Bearer x\r\n", NULL);
    expect_status("the bearer counts", 401);
    ask("GET /v1/models", "x-api-key: secret\r\nAuthorization: Basic eDp5\r\n", NULL);
    expect_status("another scheme", 200);
}
END_TEST

START_TEST(origins) {
    ask("GET /v1/models", ORIGIN, NULL);
    expect_no_text("Access-Control");
    expect_no_text("Vary");
    options.access.cors_origins = "https://a.example,https://b.example";
    give_key(&app->keys, "secret");
    ask("OPTIONS /v1/completions", ORIGIN ASKS "Access-Control-Request-Headers: x-a, B\r\n", NULL);
    expect_status("a preflight without a key", 204);
    expect_text(ALLOWED);
    expect_text("Access-Control-Allow-Methods: POST, OPTIONS\r\n");
    expect_text("Access-Control-Allow-Headers: x-a, B\r\n");
    expect_text("Vary: Origin\r\n");
    ask("OPTIONS /v1/completions", ORIGIN ASKS "Access-Control-Request-Headers: \"x\"\r\n", NULL);
    expect_text("Access-Control-Allow-Headers: Authorization, Content-Type,");
    ask(COMPLETION, ORIGIN "Authorization: Bearer secret\r\n", STREAM);
    expect_status("a stream", 200);
    expect_text(ALLOWED);
    ask(COMPLETION, ORIGIN, STREAM);
    expect_status("an error", 401);
    expect_text(ALLOWED);
    ask(COMPLETION, ORIGIN "Content-Length: 99999999\r\n", NULL);
    expect_status("a refusal past the library", 413);
    expect_text(ALLOWED);
    ask("POST /v1/messages", "Content-Length: 99999999\r\n", NULL);
    expect_status("a refusal past the library", 413);
    expect_text("{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\",");
    static const char *const others[] = {"Origin: https://c.example\r\n" ASKS, ASKS,
                                         "Origin: https://b.example.org\r\n" ASKS,
                                         "Origin: null\r\n" ASKS};
    for (int i = 0; i < 4; i++) {
        ask("OPTIONS /v1/completions", others[i], NULL);
        expect_no_text("Access-Control-Allow-Origin");
        expect_text("Vary: Origin\r\n");
    }
    options.access.cors_origins = "*";
    ask("GET /health", "Origin: null\r\n", NULL);
    expect_text("Access-Control-Allow-Origin: *\r\n");
    expect_text("Access-Control-Expose-Headers: X-Request-Id, Request-Id, Retry-After, "
                "X-Penstock-Ignored, traceresponse\r\n");
    expect_no_text("Vary");
}
END_TEST

START_TEST(request_ids) {
    char field[256], expected[256];
    ask("GET /nowhere", "X-Request-Id: a/b-1~!\r\n", NULL);
    expect_text("X-Request-Id: a/b-1~!\r\n");
    ask(COMPLETION, "X-Request-Id: q\r\n", STREAM);
    expect_text("X-Request-Id: q\r\n");
    for (int n = 128; n <= 129; n++) {
        snprintf(field, sizeof field, "X-Request-Id: %0*d\r\n", n, 7);
        ask("GET /health", field, NULL);
        ck_assert_int_eq(strstr(answer.data, field) != NULL, n == 128);
    }
    ask("GET /health", "X-Request-Id: two words\r\n", NULL);
    expect_no_text("two words");
    const char *own = strstr(answer.data, "X-Request-Id: ");
    ck_assert_ptr_nonnull(own);
    ck_assert_uint_eq(strspn(own + 14, "0123456789abcdef"), 32);
    snprintf(expected, sizeof expected, "%.46s", own);
    ask("GET /health", "", NULL);
    expect_text("X-Request-Id: ");
    expect_no_text(expected);
    ask("GET /health%00", "", NULL);
    expect_text("X-Request-Id: ");
}
END_TEST

static bool loads(const char *list) {
    struct app other = {.options = &options};
    struct err err = {0};
    options.access.trusted_proxies = list;
    bool loaded = proxies_load(&other, &err) == STATUS_OK;
    ck_assert(loaded || (err.status == STATUS_USAGE && strstr(err.message, "--trusted-proxies")));
    buf_free(&other.proxies);
    return loaded;
}

START_TEST(ranges_of_proxies) {
    ck_assert(loads(NULL) && loads("") && loads("127.0.0.1") && loads("::1, 10.0.0.0/8,fd00::/8"));
    ck_assert(loads("0.0.0.0/0") && loads("::/0") && loads("1.2.3.4/32") && loads("::1/128"));
    static const char *const wrong[] = {"localhost",  "1.2.3",    "1.2.3.4/33",
                                        "::1/129",    "1.2.3.4/", "1.2.3.4/-1",
                                        "1.2.3.4/8x", "::1, x",   "1.2.3.4/0008"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(!loads(wrong[i]), "%s", wrong[i]);
    }
}
END_TEST

/* ---- prefixes ------------------------------------------------------------------------------- */

/* Sends a prompt with a key, or without one. Returns the number of its tokens that were cached. */
static int cached_tokens(const char *key, const char *prompt) {
    struct buf fields = {0}, body = {0};
    if (key) buf_printf(&fields, "Authorization: Bearer %s\r\n", key);
    buf_printf(&body, "{\"prompt\":\"%s\",\"max_tokens\":1}", prompt);
    ask(COMPLETION, fields.data ? fields.data : "", body.data);
    expect_status(prompt, 200);
    const char *found = strstr(answer.data, "\"cached_tokens\":");
    ck_assert_ptr_nonnull(found);
    buf_free(&fields);
    buf_free(&body);
    return atoi(found + 16);
}

static const char secret[] = "abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz";

START_TEST(keys_do_not_share_prefixes) {
    give_key(&app->keys, "one");
    give_key(&app->keys, "two");
    give_key(&app->admin_keys, "boss");
    ck_assert_int_eq(cached_tokens("one", secret), 0);
    int own = cached_tokens("one", secret);
    ck_assert_int_gt(own, 0);
    ck_assert_int_eq(cached_tokens("two", secret), 0);
    ck_assert_int_eq(cached_tokens("boss", secret), 0);
    ck_assert_int_eq(cached_tokens("two", secret), own);
    options.access.share_prefixes = true;
    ck_assert_int_eq(cached_tokens("one", secret), 0); /* the common salt */
    ck_assert_int_eq(cached_tokens("two", secret), own);
    options.access.share_prefixes = false;
}
END_TEST

/* An admin key may generate too. Without API keys, requests without a key share the common salt. */
START_TEST(one_key_or_none_shares_the_common_prefixes) {
    ck_assert_int_eq(cached_tokens(NULL, secret), 0);
    int own = cached_tokens("any", secret);
    ck_assert_int_gt(own, 0);
    give_key(&app->admin_keys, "boss");
    ck_assert_int_eq(cached_tokens("boss", secret), own);
    give_key(&app->keys, "boss");
    ck_assert_int_eq(cached_tokens("boss", secret), own);
    keys_free(&app->keys);
    give_key(&app->admin_keys, "chief");
    ck_assert_int_eq(cached_tokens(NULL, secret), own);
    ck_assert_int_eq(cached_tokens("boss", secret), 0);
    ck_assert_int_eq(cached_tokens("any", secret), own);
}
END_TEST

/* The same key has another salt in another process, so that clients cannot compute it. */
START_TEST(salts_of_keys_depend_on_a_random_seed) {
    uint64_t before[2] = {app->key_seed[0], app->key_seed[1]};
    struct err err;
    ck_assert_int_eq(auth_load(app, &err), STATUS_OK);
    ck_assert(app->key_seed[0] != before[0] && app->key_seed[1] != before[1]);
    ck_assert(app->key_seed[0] != app->key_seed[1]);
    give_key(&app->keys, "one");
    give_key(&app->keys, "two");
    ck_assert_int_eq(cached_tokens("one", secret), 0);
    ck_assert_int_gt(cached_tokens("one", secret), 0);
    app->key_seed[0] = before[0];
    app->key_seed[1] = before[1];
    ck_assert_int_eq(cached_tokens("one", secret), 0);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        keys_open_all_but_health,
        metrics_have_keys_of_their_own,
        admin_keys_drain,
        keys_in_other_headers,
        origins,
        request_ids,
        ranges_of_proxies,
        keys_do_not_share_prefixes,
        one_key_or_none_shares_the_common_prefixes,
        salts_of_keys_depend_on_a_random_seed,
    };
    Suite *suite = suite_create("server/keys");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, app_setup, app_teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
