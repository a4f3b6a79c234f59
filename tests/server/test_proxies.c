/* --trusted-proxies: which addresses are in a range, and which client a list in X-Forwarded-For
 * means, compared with a plain reading of bits and lists. */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/endpoints/endpoints.h"
#include "support/suite_main.h"

static struct app app;
static struct options options;
static const char *forwarded; /* X-Forwarded-For of the request */

/* Replaces the function of the HTTP front end; the linker prefers it. */
void http_header_list(const struct http_request *request, const char *name, struct buf *out) {
    (void)request;
    ck_assert_str_eq(name, "X-Forwarded-For");
    if (forwarded) buf_puts(out, forwarded);
}

static void setup(void) {
    srand(31);
    app = (struct app){.options = &options};
    options = (struct options){0};
    forwarded = NULL;
}

static void teardown(void) {
    buf_free(&app.proxies);
}

static enum status trust(const char *list, struct err *err) {
    buf_free(&app.proxies);
    options.access.trusted_proxies = list;
    return proxies_load(&app, err);
}

/* Returns the client of a request from `peer` with this list. */
static const char *client_of(const char *peer, const char *list) {
    static struct http_request http;
    http = (struct http_request){0};
    snprintf(http.client, sizeof http.client, "%s", peer);
    forwarded = list;
    proxies_name_client(&app, &http);
    return http.client;
}

/* The list of a trusted peer is used, that of any other peer is not. */
static bool is_trusted(const char *address) {
    return strcmp(client_of(address, "192.0.2.77"), "192.0.2.77") == 0;
}

/* ---- ranges --------------------------------------------------------------------------------- */

static void random_bytes(uint8_t *out, int n) {
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(rand() >> 4);
}

static bool same_bits(const uint8_t *a, const uint8_t *b, int bits) {
    for (int i = 0; i < bits; i++) {
        if (((a[i / 8] ^ b[i / 8]) >> (7 - i % 8)) & 1) return false;
    }
    return true;
}

/* Loads a range of the first bits of an address, and tests addresses that differ from it in one
 * bit, for all bits. */
static void check_range(int family, const uint8_t *base, int n_bits, int bits) {
    char text[INET6_ADDRSTRLEN], range[64];
    struct err err = {0};
    uint8_t other[16];
    ck_assert_ptr_nonnull(inet_ntop(family, base, text, sizeof text));
    snprintf(range, sizeof range, "%s/%d", text, bits);
    ck_assert_msg(trust(range, &err) == STATUS_OK, "%s: %s", range, err.message);
    ck_assert_msg(is_trusted(text), "%s in %s", text, range);
    for (int i = 0; i < n_bits; i++) {
        memcpy(other, base, (size_t)n_bits / 8);
        other[i / 8] ^= (uint8_t)(0x80 >> (i % 8));
        inet_ntop(family, other, text, sizeof text);
        ck_assert_msg(is_trusted(text) == (i >= bits), "%s in %s", text, range);
    }
    for (int i = 0; i < 20; i++) {
        random_bytes(other, 16);
        inet_ntop(family, other, text, sizeof text);
        if (strcmp(text, "192.0.2.77") == 0) continue;
        ck_assert_msg(is_trusted(text) == same_bits(other, base, bits), "%s in %s", text, range);
    }
}

START_TEST(a_range_has_the_addresses_of_its_first_bits) {
    uint8_t base[16];
    for (int bits = 0; bits <= 32; bits++) {
        random_bytes(base, 4);
        check_range(AF_INET, base, 32, bits);
    }
    for (int bits = 0; bits <= 128; bits++) {
        random_bytes(base, 16);
        base[0] = 0x20; /* not ::ffff:a.b.c.d */
        check_range(AF_INET6, base, 128, bits);
    }
}
END_TEST

/* Ranges that do not end at whole bytes, as people write them. */
START_TEST(ends_of_ranges) {
    static const struct {
        const char *range, *first, *last, *before, *after;
    } ends[] = {
        {"10.0.0.0/12", "10.0.0.0", "10.15.255.255", "9.255.255.255", "10.16.0.0"},
        {"10.21.3.9/12", "10.16.0.0", "10.31.255.255", "10.15.255.255", "10.32.0.0"},
        {"172.16.0.0/12", "172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"},
        {"100.64.0.0/10", "100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"},
        {"192.168.4.0/31", "192.168.4.0", "192.168.4.1", "192.168.3.255", "192.168.4.2"},
        {"2001:db8:0:8::/61", "2001:db8:0:8::", "2001:db8:0:f:ffff:ffff:ffff:ffff",
         "2001:db8:0:7:ffff:ffff:ffff:ffff", "2001:db8:0:10::"},
        {"fc00::/7", "fc00::", "fdff:ffff::1", "fbff::", "fe00::"},
        {"::1/127", "::", "::1", "ffff::", "::2"},
        {"::ffff:10.0.0.0/108", "10.0.0.0", "10.15.255.255", "9.255.255.255", "10.16.0.0"},
        {"0.0.0.0/1", "0.0.0.0", "127.255.255.255", "::", "128.0.0.0"},
    };
    struct err err = {0};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        ck_assert_int_eq(trust(ends[i].range, &err), STATUS_OK);
        ck_assert_msg(is_trusted(ends[i].first) && is_trusted(ends[i].last), "%s", ends[i].range);
        ck_assert_msg(!is_trusted(ends[i].before) && !is_trusted(ends[i].after), "%s",
                      ends[i].range);
    }
}
END_TEST

START_TEST(an_entry_that_is_no_range_is_named) {
    static const char *const wrong[] = {
        "x",           "10.0.0",       "10.0.0.0/",     "10.0.0.0/33",     "10.0.0.0/1a",
        "10.0.0.0/ 8", "10.0.0.0/-8",  "10.0.0.0//8",   "10.0.0.0/8/8",    "10.0.0.256",
        "010.0.0.1",   "fe80::1%eth0", "::1/129",       "[::1]",           "10.0.0.1:80",
        "::ffff::1",   "1:2:3",        "10.0.0.0/0008", "10.0.0.0-10.0.1", "/8",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int place = 0; place < 3; place++) {
            char list[128], quoted[64];
            struct err err = {0};
            snprintf(list, sizeof list, "%s%s%s", place > 0 ? "10.0.0.0/8," : "", wrong[i],
                     place > 1 ? ", ::1" : "");
            ck_assert_msg(trust(list, &err) == STATUS_USAGE, "%s", list);
            ck_assert_str_eq(err.param, "trusted-proxies");
            snprintf(quoted, sizeof quoted, "not \"%.*s", (int)strcspn(wrong[i], " "), wrong[i]);
            ck_assert_msg(strstr(err.message, quoted) != NULL, "%s: %s", quoted, err.message);
        }
    }
}
END_TEST

/* ---- lists ---------------------------------------------------------------------------------- */

/* Entries that proxies write, and the address that each means; NULL: it is invalid. */
static const struct {
    const char *text, *address;
} entries[] = {
    {"10.0.0.1", "10.0.0.1"}, /* trusted */
    {"10.15.0.9:8080", "10.15.0.9"},
    {"[fd00::5]:443", "fd00::5"},
    {"FD00:0:0::6", "fd00::6"},
    {"::ffff:10.1.2.3", "10.1.2.3"},
    {"10.16.0.1", "10.16.0.1"}, /* not trusted */
    {" 203.0.113.9\t", "203.0.113.9"},
    {"\"[2001:db8::1]\"", "2001:db8::1"},
    {"2001:DB8::2", "2001:db8::2"},
    {"unknown", NULL}, /* invalid */
    {"", NULL},
    {" ", NULL},
    {"10.0.0.1.2", NULL},
    {"10.0.0.1 10.0.0.2", NULL},
    {"10.0.0.1:80:90", NULL},
    {"[10.0.0.1", NULL},
    {"_hidden", NULL},
    {"fe80::1%eth0", NULL},
    {"10.0.0.0/8", NULL},
    {"1234567890123456789012345678901234567890123456789012345678901234567890", NULL},
};

enum { N_ENTRIES = sizeof entries / sizeof *entries, N_TRUSTED = 5 };

/* Right to left: each trusted proxy's entry is the address before it, if it is valid. */
static const char *expected_client(const int *list, int n, const char *peer) {
    const char *client = peer;
    for (int i = n - 1; i >= 0; i--) {
        if (!entries[list[i]].address) break;
        client = entries[list[i]].address;
        if (list[i] >= N_TRUSTED) break;
    }
    return client;
}

START_TEST(the_client_is_the_last_that_no_trusted_proxy_is) {
    struct err err = {0};
    ck_assert_int_eq(trust("10.0.0.0/12, fd00::/13", &err), STATUS_OK);
    for (int round = 0; round < 20000; round++) {
        struct buf text = {0};
        int list[5], n = 1 + rand() % 5;
        for (int i = 0; i < n; i++) {
            list[i] = rand() % (rand() % 2 ? N_ENTRIES : N_TRUSTED);
            buf_printf(&text, "%s%s", i > 0 ? "," : "", entries[list[i]].text);
        }
        const char *client = client_of("10.0.0.7", text.data);
        const char *expected = expected_client(list, n, "10.0.0.7");
        ck_assert_msg(strcmp(client, expected) == 0, "%s: %s is not %s", text.data, client,
                      expected);
        ck_assert_str_eq(client_of("10.16.0.7", text.data), "10.16.0.7"); /* is not trusted */
        buf_free(&text);
    }
}
END_TEST

START_TEST(without_a_list_the_peer_is_the_client) {
    struct err err = {0};
    ck_assert_str_eq(client_of("10.0.0.7", "192.0.2.1"), "10.0.0.7");
    ck_assert_int_eq(trust("10.0.0.0/8", &err), STATUS_OK);
    ck_assert_str_eq(client_of("10.0.0.7", NULL), "10.0.0.7");
    ck_assert_str_eq(client_of("unknown", "192.0.2.1"), "unknown");
}
END_TEST

START_TEST(a_unix_socket_is_a_proxy_by_name) {
    struct err err = {0};
    ck_assert_int_eq(trust("10.0.0.0/8", &err), STATUS_OK);
    ck_assert_str_eq(client_of("unix", "192.0.2.1"), "unix");
    ck_assert_int_eq(trust("unix, 10.0.0.0/8", &err), STATUS_OK);
    ck_assert_str_eq(client_of("unix", "192.0.2.1, 10.1.2.3"), "192.0.2.1");
    ck_assert_str_eq(client_of("unix", "unix"), "unix");
    ck_assert_str_eq(client_of("192.0.2.9", "192.0.2.1"), "192.0.2.9");
    ck_assert_int_eq(trust("unixes", &err), STATUS_USAGE);
    app.trusts_unix = false;
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server/proxies");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, a_range_has_the_addresses_of_its_first_bits);
    tcase_add_test(cases, ends_of_ranges);
    tcase_add_test(cases, an_entry_that_is_no_range_is_named);
    tcase_add_test(cases, the_client_is_the_last_that_no_trusted_proxy_is);
    tcase_add_test(cases, without_a_list_the_peer_is_the_client);
    tcase_add_test(cases, a_unix_socket_is_a_proxy_by_name);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
