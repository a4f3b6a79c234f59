/* --api-key-file, and the limits of a key. */
#include <check.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "server/keys/keys.h"
#include "support/suite_main.h"

#define SHA_OF_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static struct keys keys;
static struct err err;

static void setup(void) {
    keys = (struct keys){0};
    err = (struct err){0};
}

static void teardown(void) {
    keys_free(&keys);
}

static enum status parse(const char *text) {
    keys_free(&keys);
    return keys_parse(&keys, "F", text, strlen(text), &err);
}

START_TEST(one_key_per_line) {
    ck_assert_int_eq(parse("# a comment\n\n  one \r\ntwo\n#three\nkeyword: four\n"), STATUS_OK);
    ck_assert_int_eq(keys.n, 3);
    ck_assert_ptr_eq(keys_find(&keys, "one"), &keys.key[0]);
    ck_assert_ptr_eq(keys_find(&keys, "two"), &keys.key[1]);
    ck_assert_ptr_eq(keys_find(&keys, "keyword: four"), &keys.key[2]);
    ck_assert_ptr_null(keys_find(&keys, "#three"));
    ck_assert_ptr_null(keys_find(&keys, ""));
    ck_assert_ptr_null(keys_find(&keys, "on"));
    ck_assert_int_eq(keys.key[0].weight, 1);
    ck_assert_int_eq(keys.key[0].best_priority, INT_MIN);
    ck_assert_str_eq(keys.key[0].name, "");
    ck_assert_int_eq(parse("# nothing\n \n"), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "holds no key"));
}
END_TEST

START_TEST(entries_with_limits) {
    ck_assert_int_eq(parse("# keys of the team\nkeys:\n"
                           "- {name: alice@x.org, key: one, weight: 3, max_requests: 4}\n"
                           "- name: bob\n  sha256: " SHA_OF_ABC "\n  tokens_per_minute: 6000\n"
                           "  best_priority: -5\n  admin: true\n"),
                     STATUS_OK);
    ck_assert_int_eq(keys.n, 2);
    const struct api_key *alice = keys_find(&keys, "one"), *bob = keys_find(&keys, "abc");
    ck_assert_str_eq(alice->name, "alice@x.org");
    ck_assert_int_eq(alice->weight, 3);
    ck_assert_int_eq(alice->max_requests, 4);
    ck_assert(!alice->admin);
    ck_assert_str_eq(bob->name, "bob");
    ck_assert_int_eq(bob->tokens_per_minute, 6000);
    ck_assert_int_eq(bob->best_priority, -5);
    ck_assert(bob->admin && bob->weight == 1 && bob->max_requests == 0);
}
END_TEST

static const struct {
    const char *text, *cause;
} wrong[] = {
    {"keys: 3\n", "F:1: `keys` is a list"},
    {"keys: []\n", "holds no key"},
    {"keys:\n- one\n", "F:2: an entry of `keys` is a map"},
    {"keys:\n- {key: one}\n", "lacks its name"},
    {"keys:\n- {name: a}\n", "either key or sha256"},
    {"keys:\n- {name: a, key: b, sha256: " SHA_OF_ABC "}\n", "either key or sha256"},
    {"keys:\n- {name: a, key: ''}\n", "key is empty"},
    {"keys:\n- {name: a, sha256: abc}\n", "64 hexadecimal digits"},
    {"keys:\n- {name: a, sha256: " SHA_OF_ABC "00}\n", "64 hexadecimal digits"},
    {"keys:\n- {name: a, sha256: x" SHA_OF_ABC "}\n", "64 hexadecimal digits"},
    {"keys:\n- {name: a b, key: c}\n", "a name has 1 to 64"},
    {"keys:\n- {name: a, key: c}\n- {name: a, key: d}\n", "F:3: two keys have the name a"},
    {"keys:\n- {name: a, key: c, weight: 0}\n", "weight is a whole number"},
    {"keys:\n- {name: a, key: c, weight: 1001}\n", "weight is a whole number"},
    {"keys:\n- {name: a, key: c, max_requests: -1}\n", "above 0, not -1"},
    {"keys:\n- {name: a, key: c, tokens_per_minute: 1e3}\n", "above 0, not 1e3"},
    {"keys:\n- {name: a, key: c, best_priority: high}\n", "best_priority is a whole number"},
    {"keys:\n- {name: a, key: c, admin: yes}\n", "true or false, not yes"},
    {"keys:\n- {name: a, key: c, admin: [true]}\n", "one value is expected"},
    {"keys:\n- {name: a, key: c, wieght: 2}\n", "best_priority, admin, not wieght"},
    {"keys:\n- {name: a, key: c, key: d}\n", "given twice: key"},
    {"keys:\n- {[a]: b}\n", "a name is expected"},
    {"keys:\n- {name: a, key: c}\nmore: 1\n", "only `keys`"},
    {"keys:\n- {name: a, key: c}\n---\nkeys: []\n", "second document"},
    {"keys:\n- {name: a, key: c\n", "F:3:"},
};

START_TEST(what_is_wrong_is_named) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(parse(wrong[i].text) == STATUS_BAD_FILE, "%s", wrong[i].text);
        ck_assert_msg(strstr(err.message, wrong[i].cause), "%s: %s", wrong[i].text, err.message);
        ck_assert_str_eq(err.param, "api-key-file");
    }
    ck_assert_int_eq(keys_parse(&keys, "F", "a\0b", 3, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(keys_read_file(&keys, "/nowhere", &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "/nowhere cannot be read"));
}
END_TEST

/* ---- limits --------------------------------------------------------------------------------- */

#define SECOND 1000000000ull

START_TEST(requests_at_once) {
    struct key_use use = {0};
    struct api_key key = {.use = &use, .weight = 1, .max_requests = 2};
    ck_assert_int_eq(key_check(&key, SECOND, &err), STATUS_OK);
    key_begin(&key, SECOND);
    key_begin(&key, SECOND);
    ck_assert_int_eq(key_check(&key, SECOND, &err), STATUS_OVERLOADED);
    ck_assert_int_eq(err.retry_after_s, 1);
    ck_assert_str_eq(err.code, "rate_limit_exceeded");
    key_end(&key, 8 * SECOND);
    ck_assert_int_eq(key_check(&key, 8 * SECOND, &err), STATUS_OK);
    key_begin(&key, 8 * SECOND);
    ck_assert_int_eq(key_check(&key, 8 * SECOND, &err), STATUS_OVERLOADED);
    ck_assert_int_eq(err.retry_after_s, 7); /* the last one took 7 seconds */
    ck_assert_uint_eq(use.requests, 3);
    ck_assert_uint_eq(use.refused, 2);
}
END_TEST

/* 600 tokens a minute are 10 a second, and at most a minute's tokens are saved up. */
START_TEST(tokens_a_minute) {
    struct key_use use = {0};
    struct api_key key = {.use = &use, .weight = 1, .tokens_per_minute = 600};
    ck_assert_int_eq(key_check(&key, SECOND, &err), STATUS_OK);
    key_charge(&key, 500, 0);
    ck_assert_int_eq(key_check(&key, SECOND, &err), STATUS_OK);
    key_charge(&key, 100, 45); /* an answer is not cut */
    ck_assert_int_eq(key_check(&key, SECOND, &err), STATUS_OVERLOADED);
    ck_assert_int_eq(err.retry_after_s, 5);
    ck_assert_str_eq(err.message, "This key has used its 600 tokens a minute; try again in 5 s.");
    ck_assert_int_eq(key_check(&key, 5 * SECOND, &err), STATUS_OVERLOADED);
    ck_assert_int_eq(key_check(&key, 6 * SECOND, &err), STATUS_OK);
    key_charge(&key, -20, 0); /* tokens from the prefix cache */
    ck_assert_int_eq(key_check(&key, 3600 * SECOND, &err), STATUS_OK);
    key_charge(&key, 600, 0);
    ck_assert_int_eq(key_check(&key, 3600 * SECOND, &err), STATUS_OVERLOADED);
    ck_assert_uint_eq(use.prompt_tokens, 1180);
    ck_assert_uint_eq(use.output_tokens, 45);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server key file");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, one_key_per_line);
    tcase_add_test(cases, entries_with_limits);
    tcase_add_test(cases, what_is_wrong_is_named);
    tcase_add_test(cases, requests_at_once);
    tcase_add_test(cases, tokens_a_minute);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
