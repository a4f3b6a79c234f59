/* Stop strings: the result does not depend on how a text is split, and the matcher holds bytes no
 * longer than necessary. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/stop_matcher.h"
#include "support/suite_main.h"

static uint64_t random_state = 1;

static unsigned below(unsigned n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

static struct api_request request_of(int n, const char *const *stops, bool include) {
    struct api_request request = {.n_stops = n, .include_stop_str_in_output = include};
    for (int i = 0; i < n; i++) {
        request.stops[i].text = stops[i];
        request.stops[i].length = strlen(stops[i]);
    }
    return request;
}

/* The definition, slowly: the match that ends first; among those the longest. -1: no match. */
static int oracle(const struct api_request *request, const char *text, size_t *certain) {
    for (size_t end = 1; end <= strlen(text); end++) {
        int found = -1;
        for (int i = 0; i < request->n_stops; i++) {
            size_t n = request->stops[i].length;
            if (n > end || memcmp(text + end - n, request->stops[i].text, n) != 0) continue;
            if (found < 0 || n > request->stops[found].length) found = i;
        }
        if (found < 0) continue;
        *certain = end - (request->include_stop_str_in_output ? 0 : request->stops[found].length);
        return found;
    }
    *certain = strlen(text);
    return -1;
}

/* Returns the number of bytes at the end of the text that begin a stop string. */
static size_t needed(const struct api_request *request, const char *text, size_t length) {
    size_t most = 0;
    for (int i = 0; i < request->n_stops; i++) {
        for (size_t n = most + 1; n <= length && n <= request->stops[i].length; n++) {
            if (memcmp(text + length - n, request->stops[i].text, n) == 0) most = n;
        }
    }
    return most;
}

static void check_split(const struct api_request *request, const char *text) {
    struct stop_matcher matcher;
    struct buf out = {0};
    size_t length = strlen(text), certain, at = 0;
    int expected = oracle(request, text, &certain);
    bool met = false;
    stop_matcher_init(&matcher, request, NULL);
    while (at < length && !met) {
        size_t part = below(5);
        if (part > length - at) part = length - at;
        met = stop_matcher_add(&matcher, text + at, part, &out);
        at += part;
        if (!met) ck_assert_uint_eq(at - out.length, needed(request, text, at));
    }
    if (!met) stop_matcher_finish(&matcher, &out);
    ck_assert_int_eq(met, expected >= 0);
    if (met) ck_assert_str_eq(matcher.matched, request->stops[expected].text);
    ck_assert_uint_eq(out.length, certain);
    if (certain) ck_assert_mem_eq(out.data, text, certain);
    if (met) ck_assert(stop_matcher_add(&matcher, "more", 4, &out) && out.length == certain);
    stop_matcher_free(&matcher);
    buf_free(&out);
}

static void random_text(char *text, unsigned length) {
    for (unsigned i = 0; i < length; i++) text[i] = (char)('a' + below(2 + below(2)));
    text[length] = 0;
}

START_TEST(splits_do_not_matter) {
    for (int round = 0; round < 20000; round++) {
        char text[64], stops[API_MAX_STOPS][12];
        const char *pointers[API_MAX_STOPS];
        int n = (int)below(4) + (round % 100 == 0 ? 12 : 1);
        for (int i = 0; i < n; i++) {
            random_text(stops[i], 1 + below(8));
            pointers[i] = stops[i];
        }
        random_text(text, below(60));
        struct api_request request = request_of(n, pointers, round % 2);
        check_split(&request, text);
    }
}
END_TEST

static const char *run(const char *const *stops, int n, const char *text, bool include) {
    static char result[256];
    struct api_request request = request_of(n, stops, include);
    struct stop_matcher matcher;
    struct buf out = {0};
    stop_matcher_init(&matcher, &request, NULL);
    for (const char *p = text; *p; p++) {
        if (stop_matcher_add(&matcher, p, 1, &out)) break;
    }
    stop_matcher_finish(&matcher, &out);
    int met = n - 1;
    while (met >= 0 && stops[met] != matcher.matched) met--;
    snprintf(result, sizeof result, "%d:%s", met, out.length ? out.data : "");
    stop_matcher_free(&matcher);
    buf_free(&out);
    return result;
}

START_TEST(cases) {
    const char *const one[] = {"\n\n"}, *const nested[] = {"b", "abc", "ab"}, *const none[] = {0};
    ck_assert_str_eq(run(one, 1, "x\ny\n\nz", false), "0:x\ny");
    ck_assert_str_eq(run(one, 1, "x\ny\n\nz", true), "0:x\ny\n\n");
    ck_assert_str_eq(run(one, 1, "x\n", false), "-1:x\n");
    ck_assert_str_eq(run(nested, 3, "xabc", false),
                     "2:x"); /* "b" and "ab" end first, "ab" is longer */
    ck_assert_str_eq(run(none, 0, "anything", false), "-1:anything");
    const char *const same[] = {"stop"};
    ck_assert_str_eq(run(same, 1, "stop", false), "0:");
    ck_assert_str_eq(run(same, 1, "ststop", false), "0:st");
    ck_assert_str_eq(run(same, 1, "", false), "-1:");
}
END_TEST

/* A match that ends while the matcher sleeps is ignored. One that ends later counts, even if it
 * began then. */
START_TEST(asleep) {
    const char *const stops[] = {"aba"};
    struct api_request request = request_of(1, stops, false);
    struct stop_matcher matcher;
    struct buf out = {0};
    stop_matcher_init(&matcher, &request, NULL);
    matcher.asleep = true;
    ck_assert(!stop_matcher_add(&matcher, "xababa", 6, &out));
    ck_assert_str_eq(out.data, "xabab"); /* an "a" may still begin the next one */
    ck_assert(!stop_matcher_add(&matcher, "b", 1, &out));
    matcher.asleep = false;
    ck_assert(stop_matcher_add(&matcher, "a!", 2, &out));
    ck_assert_str_eq(out.data, "xabab");
    stop_matcher_free(&matcher);
    buf_free(&out);
}
END_TEST

START_TEST(characters_stay_whole) {
    const char *const stops[] = {"\xF0\x9F\x98\x80!"};
    const char text[] = "\xC3\xA9\xF0\x9F\x98\x80?\xE2\x82\xAC";
    struct api_request request = request_of(1, stops, false);
    struct stop_matcher matcher;
    struct buf out = {0};
    stop_matcher_init(&matcher, &request, NULL);
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        stop_matcher_add(&matcher, text + i, 1, &out);
        ck_assert(utf8_valid_prefix(out.data ? out.data : "", out.length) == out.length);
    }
    ck_assert_str_eq(out.data, text);
    stop_matcher_free(&matcher);
    buf_free(&out);
}
END_TEST

START_TEST(hostile_texts_take_linear_time) {
    enum { LENGTH = 1 << 20, STOP = 1024 };
    char *text = malloc(LENGTH), stop[STOP + 1];
    struct stop_matcher matcher;
    struct buf out = {0};
    const char *const stops[] = {stop};
    memset(text, 'a', LENGTH);
    memset(stop, 'a', STOP - 1);
    strcpy(stop + STOP - 1, "b");
    struct api_request request = request_of(1, stops, false);
    stop_matcher_init(&matcher, &request, NULL);
    uint64_t start = now_ns();
    for (size_t i = 0; i < LENGTH; i += 4)
        ck_assert(!stop_matcher_add(&matcher, text + i, 4, &out));
    ck_assert_uint_eq(out.length, LENGTH - (STOP - 1));
    printf("1 MiB against a stop string of 1 KiB that almost fits: %.2f s\n",
           (double)(now_ns() - start) * 1e-9);
    stop_matcher_free(&matcher);
    buf_free(&out);
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_api_stop");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, cases);
    tcase_add_test(core, splits_do_not_matter);
    tcase_add_test(core, asleep);
    tcase_add_test(core, characters_stay_whole);
    tcase_add_test(core, hostile_texts_take_linear_time);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
