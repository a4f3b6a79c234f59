/* Receipts without a model: canonical JSON, fingerprints, keys, hashes, and each way in which a
 * receipt may have been changed. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/json/json.h"
#include "server/receipts/receipts.h"
#include "support/suite_main.h"

/* RFC 8032, test 1, in PEM form. */
#define SECRET                                                                                     \
    "-----BEGIN PRIVATE KEY-----\n"                                                                \
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"                           \
    "-----END PRIVATE KEY-----\n"
#define PUBLIC                                                                                     \
    "-----BEGIN PUBLIC KEY-----\n"                                                                 \
    "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"                               \
    "-----END PUBLIC KEY-----\n"
#define SHA_OF_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static struct err err;
static struct receipt_key key;
static unsigned char public_key[RECEIPT_PUBLIC_BYTES];

static void setup(void) {
    err = (struct err){0};
    ck_assert_int_eq(receipt_key_parse(&key, "K", SECRET, strlen(SECRET), &err), STATUS_OK);
    ck_assert_int_eq(receipt_public_parse(public_key, "K", PUBLIC, strlen(PUBLIC), &err),
                     STATUS_OK);
}

static struct json *parse(const char *text) {
    struct json *json;
    ck_assert_int_eq(json_parse(&json, "It", text, strlen(text), &err), STATUS_OK);
    return json;
}

/* ---- canonical JSON ------------------------------------------------------------------------- */

static void expect_canonical(const char *text, const char *expected) {
    struct json *json = parse(text);
    struct buf out = {0};
    canonical_write(&out, json);
    ck_assert_str_eq(out.data, expected);
    buf_free(&out);
    json_free(json);
}

START_TEST(equal_values_give_equal_bytes) {
    expect_canonical(" { \"b\" : [ 1 , 2.50 ] , \"a\" : { \"d\" : null , \"c\" : true } } ",
                     "{\"a\":{\"c\":true,\"d\":null},\"b\":[1,2.5]}");
    expect_canonical("{\"\\u00e4\":\"\\u00fc\\/\",\"Z\":1e2,\"a\":\"\\u0001\"}",
                     "{\"Z\":100,\"a\":\"\\u0001\",\"\xc3\xa4\":\"\xc3\xbc/\"}");
    expect_canonical("18446744073709551615", "18446744073709551615");
    expect_canonical("[{}]", "[{}]");
}
END_TEST

START_TEST(fields_without_effect_are_left_out_of_a_request) {
    struct json *json = parse("{\"user\":\"u\",\"stream\":true,\"prompt\":{\"b\":1,\"a\":2},"
                              "\"metadata\":{},\"priority\":1,\"cache_salt\":\"s\"}");
    struct json *empty = parse("{\"user\":\"u\"}");
    struct buf out = {0};
    canonical_request(&out, json);
    ck_assert_str_eq(out.data, "{\"prompt\":{\"a\":2,\"b\":1},\"stream\":true}");
    buf_clear(&out);
    request_write(&out, json); /* the order of a schema's members counts */
    ck_assert_str_eq(out.data, "{\"stream\":true,\"prompt\":{\"b\":1,\"a\":2}}");
    buf_clear(&out);
    request_write(&out, empty);
    ck_assert_str_eq(out.data, "{}");
    buf_free(&out);
    json_free(json);
    json_free(empty);
}
END_TEST

static void expect_difference(const char *a, const char *b, const char *place, int distance) {
    struct json *x = parse(a), *y = parse(b);
    const struct json *in_x, *in_y;
    struct buf out = {0};
    ck_assert_int_eq(json_difference(x, y, &out, &in_x, &in_y), place != NULL);
    ck_assert_str_eq(out.data ? out.data : "", place ? place : "");
    ck_assert_int_eq(json_distance(x, y), distance);
    ck_assert_int_eq(json_distance(y, x), distance);
    buf_free(&out);
    json_free(x);
    json_free(y);
}

START_TEST(the_first_difference_has_a_place) {
    expect_difference("{\"a\":[1,{\"b\":2}]}", "{\"a\":[1,{\"b\":2}]}", NULL, 0);
    expect_difference("{\"m\":[1,{\"b\":2}]}", "{\"m\":[1,{\"b\":3}]}", "m[1].b", 2);
    expect_difference("{\"m\":[1]}", "{\"m\":[1,{\"x\":2}]}", "m[1]", 2);
    expect_difference("{\"b\":1}", "{\"a\":1,\"b\":2}", "a", 3);
    expect_difference("{\"a\":1}", "{\"a\":\"1\"}", "a", 2);
    expect_difference("{}", "[]", "", 2);
}
END_TEST

/* ---- fingerprints --------------------------------------------------------------------------- */

static struct fingerprint sample_fingerprint(void) {
    return (struct fingerprint){.model = SHA_OF_ABC,
                                .build = "0.1.0 abc Release",
                                .arithmetic = 1,
                                .device = "cpu",
                                .weights = "q4_1",
                                .quantization = "none",
                                .dtype = "auto",
                                .kv_cache = "int16",
                                .ranks = 1};
}

/* The form of version 1: receipts that exist keep their digests. */
START_TEST(the_fingerprint_of_a_receipt_keeps_its_bytes) {
    struct fingerprint f = sample_fingerprint();
    struct buf out = {0};
    f.block_size = 16;
    snprintf(f.name, sizeof f.name, "m");
    fingerprint_write(&out, &f, FINGERPRINT_RECEIPT);
    ck_assert_str_eq(out.data, "{\"adapter\":null,\"arithmetic\":1,\"build\":\"0.1.0 abc Release\","
                               "\"device\":\"cpu\",\"dtype\":\"auto\",\"kv_cache\":\"int16\","
                               "\"model\":\"" SHA_OF_ABC "\",\"quantization\":\"none\","
                               "\"ranks\":1,\"weights\":\"q4_1\"}");
    expect_canonical(out.data, out.data);
    buf_free(&out);
}
END_TEST

/* ---- the hash of a model -------------------------------------------------------------------- */

static char folder[] = "/tmp/receipts_XXXXXX";

static void write_file(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void remove_file(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static void expect_hash(const char *path, const char *lines) {
    char hex[HASH_DIGITS + 1], expected[HASH_DIGITS + 1];
    struct model_hash *hash = model_hash_new(path);
    ck_assert_int_eq(model_hash_get(hash, hex, &err), STATUS_OK);
    ck_assert_int_eq(model_hash_get(hash, hex, &err), STATUS_OK);
    model_hash_free(hash);
    hash_text(expected, lines, strlen(lines));
    ck_assert_str_eq(hex, expected);
}

START_TEST(a_model_is_hashed_as_sha256sum_does) {
    char path[128];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_file("m-00001-of-00002.gguf", "abc");
    write_file("m-00002-of-00002.gguf", "abc");
    write_file("b.json", "abc");
    write_file("a.safetensors", "abc");
    write_file("README.md", "not counted");
    write_file("m.gguf", "abc");
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    expect_hash(path, "abc");
    snprintf(path, sizeof path, "%s/m-00001-of-00002.gguf", folder);
    expect_hash(path,
                SHA_OF_ABC "  m-00001-of-00002.gguf\n" SHA_OF_ABC "  m-00002-of-00002.gguf\n");
    expect_hash(folder, SHA_OF_ABC "  a.safetensors\n" SHA_OF_ABC "  b.json\n");
    static const char *const names[] = {"m-00001-of-00002.gguf",
                                        "m-00002-of-00002.gguf",
                                        "b.json",
                                        "a.safetensors",
                                        "README.md",
                                        "m.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) remove_file(names[i]);
    rmdir(folder);
}
END_TEST

static void never(struct hash_waiter *waiter) {
    (void)waiter;
    ck_abort_msg("it has left");
}

START_TEST(a_model_that_is_gone_has_no_hash) {
    char hex[HASH_DIGITS + 1];
    struct model_hash *hash = model_hash_new("/nowhere/model.gguf");
    struct hash_waiter waiter = {.resume = never};
    model_hash_leave(hash, &waiter);
    ck_assert(model_hash_await(hash, &waiter)); /* one that has left does not wait */
    ck_assert_int_eq(model_hash_get(hash, hex, &err), STATUS_SERVER_ERROR);
    ck_assert_ptr_nonnull(strstr(err.message, "/nowhere/model.gguf"));
    model_hash_free(hash);
    model_hash_free(model_hash_new("unused"));
}
END_TEST

/* ---- keys ----------------------------------------------------------------------------------- */

START_TEST(keys_are_those_of_openssl) {
    ck_assert_mem_eq(key.public, public_key, sizeof public_key);
    struct buf out = {0};
    receipt_write_base64(&out, key.public, sizeof key.public);
    ck_assert_str_eq(out.data, "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
    buf_free(&out);
}
END_TEST

START_TEST(a_file_without_a_key_is_refused) {
    static const char *const texts[] = {
        "",
        "abc",
        PUBLIC,
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY----------END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1h\n-----END PRIVATE KEY-----\n"};
    struct receipt_key read, *file;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ck_assert_int_eq(receipt_key_parse(&read, "K", texts[i], strlen(texts[i]), &err),
                         STATUS_BAD_FILE);
        ck_assert_ptr_nonnull(strstr(err.message, "openssl genpkey"));
    }
    ck_assert_int_eq(receipt_public_parse(public_key, "K", SECRET, strlen(SECRET), &err),
                     STATUS_BAD_FILE);
    ck_assert_int_eq(receipt_key_read(&file, "/nowhere", &err), STATUS_BAD_FILE);
    ck_assert_ptr_null(file);
}
END_TEST

/* ---- receipts ------------------------------------------------------------------------------- */

/* Writes a receipt of two prompts with one output each. `key` may be NULL. */
static void write_sample(struct buf *out, const struct receipt_key *signer) {
    static const int32_t prompt[] = {1, 9690, 198, 2, 330}, first[] = {7, 8, 100000},
                         second[] = {2};
    struct buf body = {0}, sampling = {0};
    struct fingerprint fingerprint = sample_fingerprint();
    struct receipt_prompt prompts[] = {{prompt, 5, 16, 14844065922382431000u}, {prompt, 2, 16, 0}};
    struct receipt_output outputs[] = {{0, 0, "stop", first, 3}, {1, 0, NULL, second, 1}};
    buf_puts(&body, "{\"prompt\":[\"a\",\"\xc3\xa4\"],\"temperature\":0.8}");
    buf_puts(&sampling, "{\"n\":1,\"temperature\":0.8}");
    struct receipt receipt = {.fingerprint = &fingerprint,
                              .path = "/v1/completions",
                              .created = 1700000000,
                              .body = &body,
                              .sampling = &sampling,
                              .n_prompts = 2,
                              .n_outputs = 2,
                              .prompts = prompts,
                              .outputs = outputs};
    receipt_write(out, &receipt, signer);
    buf_free(&body);
    buf_free(&sampling);
}

static enum receipt_verdict check(const char *text, const unsigned char *by) {
    struct json *json;
    err = (struct err){0};
    if (json_parse(&json, "It", text, strlen(text), &err)) return RECEIPT_BROKEN;
    enum receipt_verdict verdict = receipt_check(json, by, &err);
    json_free(json);
    return verdict;
}

START_TEST(a_receipt_is_the_same_in_any_form) {
    struct buf text = {0}, other = {0};
    write_sample(&text, &key);
    ck_assert_int_eq(check(text.data, public_key), RECEIPT_SAME);
    ck_assert_int_eq(check(text.data, NULL), RECEIPT_SAME);
    struct json *json = parse(text.data);
    canonical_write(&other, json); /* another order of members */
    ck_assert_str_ne(text.data, other.data);
    ck_assert_int_eq(check(other.data, public_key), RECEIPT_SAME);
    const struct json *first = json_first(json_member(json, "prompts"));
    ck_assert_uint_eq(receipt_seed(first), 14844065922382431000u);
    ck_assert_int_eq(receipt_compare_ids(first, (int32_t[]){1, 9690, 198, 2, 330}, 5), -1);
    ck_assert_int_eq(receipt_compare_ids(first, (int32_t[]){1, 9690, 7, 2, 330}, 5), 2);
    ck_assert_int_eq(receipt_compare_ids(first, (int32_t[]){1, 9690}, 2), 2);
    ck_assert_int_eq(receipt_compare_ids(first, (int32_t[]){1, 9690, 198, 2, 330, 6}, 6), 5);
    ck_assert_int_eq(receipt_id_at(first, 4), 330);
    ck_assert_int_eq(receipt_id_at(first, 5), -1);
    json_free(json);
    buf_free(&text);
    buf_free(&other);
}
END_TEST

START_TEST(an_unsigned_receipt_has_a_digest) {
    struct buf text = {0};
    write_sample(&text, NULL);
    ck_assert_int_eq(check(text.data, NULL), RECEIPT_SAME);
    ck_assert_int_eq(check(text.data, public_key), RECEIPT_BROKEN);
    ck_assert_str_eq(err.message, "signature wrong: it is not signed");
    buf_free(&text);
}
END_TEST

START_TEST(a_receipt_of_another_key_is_refused) {
    struct buf text = {0};
    write_sample(&text, &key);
    public_key[5] ^= 1;
    ck_assert_int_eq(check(text.data, public_key), RECEIPT_BROKEN);
    ck_assert_ptr_nonnull(strstr(err.message, "another key"));
    buf_free(&text);
}
END_TEST

/* Replaces the digest by that of the changed payload, as a forger would. */
static void forge_digest(struct buf *text) {
    static const char *const left_out[] = {"digest", "public_key", "signature", NULL};
    struct json *json = parse(text->data);
    struct buf payload = {0};
    char hex[HASH_DIGITS + 1];
    canonical_write_without(&payload, json, left_out);
    hash_text(hex, payload.data, payload.length);
    memcpy(strstr(text->data, "\"digest\":\"") + strlen("\"digest\":\""), hex, HASH_DIGITS);
    buf_free(&payload);
    json_free(json);
}

/* A change that keeps the text valid JSON: a digit becomes another digit, a letter another one. */
static bool change(char *at, int i) {
    if (*at >= '0' && *at <= '9')
        *at = (char)('0' + (*at - '0' + 1 + i % 8) % 10);
    else if (*at >= 'a' && *at <= 'z')
        *at = (char)('a' + (*at - 'a' + 1 + i % 24) % 26);
    else
        return false;
    return true;
}

/* 1,000 receipts, each with one changed character in its tokens, seeds, fingerprint or settings:
 * the digest finds each. If the forger corrects the digest, the hash of the ids or the signature
 * does. */
START_TEST(each_of_a_thousand_changes_is_found) {
    struct buf text = {0};
    int found = 0;
    write_sample(&text, &key);
    const size_t n = strstr(text.data, ",\"digest\"") - text.data;
    for (int i = 0; found < 1000; i++) {
        struct buf changed = {0};
        buf_add(&changed, text.data, text.length);
        if (change(changed.data + (size_t)i % n, i)) {
            ck_assert_msg(check(changed.data, NULL) == RECEIPT_BROKEN, "%s", changed.data);
            struct json *json;
            if (!json_parse(&json, "It", changed.data, changed.length, NULL)) {
                json_free(json);
                forge_digest(&changed);
                ck_assert_msg(check(changed.data, public_key) == RECEIPT_BROKEN, "%s",
                              changed.data);
            }
            found++;
        }
        buf_free(&changed);
    }
    buf_free(&text);
}
END_TEST

START_TEST(a_changed_token_has_a_wrong_hash) {
    struct buf text = {0};
    write_sample(&text, NULL);
    strstr(text.data, "[7,8,")[1] = '6';
    forge_digest(&text);
    ck_assert_int_eq(check(text.data, NULL), RECEIPT_BROKEN);
    ck_assert_ptr_nonnull(strstr(err.message, "outputs[0].sha256"));
    buf_free(&text);
}
END_TEST

START_TEST(no_receipt_is_broken) {
    static const char *const texts[] = {"{}",
                                        "[]",
                                        "1",
                                        "null",
                                        "{\"version\":1}",
                                        "{\"version\":2}",
                                        "{\"version\":\"1\"}",
                                        "{\"version\":1,\"version\":1}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ck_assert_int_eq(check(texts[i], NULL), RECEIPT_BROKEN);
        ck_assert_str_ne(err.message, "");
    }
}
END_TEST

START_TEST(a_receipt_is_found_in_its_answer) {
    struct json *answer = parse("{\"id\":\"a\",\"receipt\":{\"fingerprint\":{},\"outputs\":[]}}");
    struct json *event = parse("{\"response\":{\"receipt\":{\"fingerprint\":1,\"outputs\":2}}}");
    struct json *none = parse("{\"receipt\":{\"fingerprint\":{}}}");
    ck_assert_ptr_eq(receipt_find(answer), json_member(answer, "receipt"));
    ck_assert_ptr_nonnull(receipt_find(event));
    ck_assert_ptr_null(receipt_find(none));
    ck_assert_ptr_eq(receipt_find(json_member(answer, "receipt")), json_member(answer, "receipt"));
    json_free(answer);
    json_free(event);
    json_free(none);
}
END_TEST

START_TEST(a_receipt_joins_the_end_of_an_answer) {
    struct buf out = {0}, receipt = {0};
    buf_puts(&receipt, "{\"a\":1}");
    buf_puts(&out, "data: {\"x\":2}\n\n");
    receipt_join(&out, &receipt);
    ck_assert_str_eq(out.data, "data: {\"x\":2,\"receipt\":{\"a\":1}}\n\n");
    buf_free(&out);
    buf_free(&receipt);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("receipts");
    TCase *tcase = tcase_create("receipts");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, equal_values_give_equal_bytes);
    tcase_add_test(tcase, fields_without_effect_are_left_out_of_a_request);
    tcase_add_test(tcase, the_first_difference_has_a_place);
    tcase_add_test(tcase, the_fingerprint_of_a_receipt_keeps_its_bytes);
    tcase_add_test(tcase, a_model_is_hashed_as_sha256sum_does);
    tcase_add_test(tcase, a_model_that_is_gone_has_no_hash);
    tcase_add_test(tcase, keys_are_those_of_openssl);
    tcase_add_test(tcase, a_file_without_a_key_is_refused);
    tcase_add_test(tcase, a_receipt_is_the_same_in_any_form);
    tcase_add_test(tcase, an_unsigned_receipt_has_a_digest);
    tcase_add_test(tcase, a_receipt_of_another_key_is_refused);
    tcase_add_test(tcase, each_of_a_thousand_changes_is_found);
    tcase_add_test(tcase, a_changed_token_has_a_wrong_hash);
    tcase_add_test(tcase, no_receipt_is_broken);
    tcase_add_test(tcase, a_receipt_is_found_in_its_answer);
    tcase_add_test(tcase, a_receipt_joins_the_end_of_an_answer);
    suite_add_tcase(suite, tcase);
    return suite_main(suite);
}
