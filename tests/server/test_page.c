/* The web page of a whole server: its clients, its headers, and the words that its files must not
 * contain. */
#include <check.h>
#include <string.h>

#include "server/page/page.h"
#include "support/app_fixture.h"
#include "support/suite_main.h"

#define RUNS "\r\n\r\nOllama is running"
#define DOCUMENT "<!doctype html>"

static const struct {
    const char *accept;
    bool gets_page;
} accepts[] = {
    {"", false},
    {"Accept: */*\r\n", false},
    {"Accept: application/json\r\n", false},
    {"Accept: text/plain, text/htmlx\r\n", false},
    {"Accept: text/html;q=0, */*\r\n", false},
    {"Accept: text/html; level=1; q=0.000\r\n", false},
    {"Accept: text/html\r\n", true},
    {"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n", true},
    {"Accept: application/json , TEXT/HTML;q=0.1\r\n", true},
    {"Accept: application/json\r\nAccept: text/html\r\n", true},
};

START_TEST(only_clients_that_accept_html_get_the_page) {
    ask("GET /", accepts[_i].accept, NULL);
    expect_status(accepts[_i].accept, 200);
    expect_text(accepts[_i].gets_page ? DOCUMENT : RUNS);
    expect_text("Vary: Accept\r\n");
    ask("HEAD /", accepts[_i].accept, NULL);
    expect_status(accepts[_i].accept, 200);
    expect_text(accepts[_i].gets_page ? "text/html" : "Content-Length: 17\r\n");
}
END_TEST

START_TEST(each_file_is_served_with_headers_that_forbid_all_else) {
    char line[64];
    for (int i = 0; page_at(i); i++) {
        snprintf(line, sizeof line, "GET /page/%s", page_at(i)->name);
        ask(line, "", NULL);
        expect_status(line, 200);
        expect_text(page_at(i)->type);
        expect_text("Content-Security-Policy: default-src 'none'; script-src 'self'; style-src "
                    "'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
                    "form-action 'none'; frame-ancestors 'none'\r\n");
        expect_text("X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n");
    }
    ask("GET /page/other.js", "", NULL);
    expect_status("GET /page/other.js", 404);
    expect_text("has no file `other.js`");
}
END_TEST

START_TEST(a_client_that_has_a_file_gets_304) {
    char field[64];
    ask("GET /page/main.js", "", NULL);
    const char *tag = strstr(answer.data, "ETag: ") + strlen("ETag: ");
    snprintf(field, sizeof field, "If-None-Match: \"x\", W/%.*s\r\n", (int)strcspn(tag, "\r"), tag);
    ask("GET /page/main.js", field, NULL);
    expect_status("the same tag", 304);
    ck_assert_str_eq(strstr(answer.data, "\r\n\r\n"), "\r\n\r\n");
    ask("GET /page/chat.js", field, NULL);
    expect_status("the tag of another file", 200);
    ask("GET /page/chat.js", "If-None-Match: *\r\n", NULL);
    expect_status("any tag", 304);
}
END_TEST

START_TEST(without_the_page_all_clients_get_ollamas_line) {
    options.access.page = false;
    ask("GET /", "Accept: text/html\r\n", NULL);
    expect_text(RUNS);
    expect_no_text("Vary: Accept");
    ask("GET /page/main.js", "", NULL);
    expect_status("GET /page/main.js", 404);
}
END_TEST

/* Text of models and files must become text nodes, and the policy refuses inline scripts, inline
 * styles and other servers. */
START_TEST(the_page_is_small_and_makes_no_element_from_text) {
    static const char *const forbidden[] = {
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
        "DOMParser", "style=",    "src=\"http",         "@import",        "url("};
    size_t total = 0;
    for (int i = 0; page_at(i); i++) {
        const struct page_file *file = page_at(i);
        total += file->length;
        for (size_t k = 0; k < sizeof forbidden / sizeof *forbidden; k++) {
            ck_assert_msg(!memmem(file->data, file->length, forbidden[k], strlen(forbidden[k])),
                          "%s has %s", file->name, forbidden[k]);
        }
    }
    ck_assert_uint_lt(total, 80000);
    ck_assert_uint_gt(total, 20000);
    ck_assert_ptr_null(page_find("page.c"));
}
END_TEST

START_TEST(the_page_needs_no_key_but_its_data_does) {
    keys_add(&app->keys, "key", 3);
    ask("GET /", "Accept: text/html\r\n", NULL);
    expect_text(DOCUMENT);
    ask("GET /page/main.js", "", NULL);
    expect_status("GET /page/main.js", 200);
    ask("GET /v1/models", "", NULL);
    expect_status("GET /v1/models", 401);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server/page");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, app_setup, app_teardown);
    tcase_add_loop_test(cases, only_clients_that_accept_html_get_the_page, 0,
                        sizeof accepts / sizeof *accepts);
    tcase_add_test(cases, each_file_is_served_with_headers_that_forbid_all_else);
    tcase_add_test(cases, a_client_that_has_a_file_gets_304);
    tcase_add_test(cases, without_the_page_all_clients_get_ollamas_line);
    tcase_add_test(cases, the_page_is_small_and_makes_no_element_from_text);
    tcase_add_test(cases, the_page_needs_no_key_but_its_data_does);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
