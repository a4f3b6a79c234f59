/* The bytes of requests: valid ones, invalid ones and the offset of the fault, in one piece and
 * byte by byte. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/wire.h"
#include "support/suite_main.h"

#define HOST "Host: x\r\n"
#define MAX_HEAD 1024

/* The results of a check. */
struct found {
    size_t right, whole;
    uint64_t messages;
    struct err err;
    struct wire wire;
};

static struct found check_all(const char *bytes, size_t n) {
    struct found found = {.wire.max_head_bytes = MAX_HEAD};
    found.right = wire_check(&found.wire, bytes, n, &found.whole, &found.err);
    found.messages = found.wire.messages;
    return found;
}

/* The same, byte by byte. */
static struct found check_bytes(const char *bytes, size_t n) {
    struct found found = {.wire.max_head_bytes = MAX_HEAD};
    size_t right = 1, whole;
    while (found.right < n && right == 1) {
        right = wire_check(&found.wire, bytes + found.right, 1, &whole, &found.err);
        found.right += right;
        if (whole) found.whole = found.right;
    }
    found.messages = found.wire.messages;
    return found;
}

static struct found check(const char *bytes, size_t n) {
    struct found all = check_all(bytes, n), one = check_bytes(bytes, n);
    ck_assert_uint_eq(all.right, one.right);
    ck_assert_uint_eq(all.whole, one.whole);
    ck_assert_uint_eq(all.messages, one.messages);
    ck_assert_int_eq((int)all.wire.phase, (int)one.wire.phase);
    if (all.right < n) ck_assert_str_eq(all.err.message, one.err.message);
    return all;
}

/* ---- valid bytes ---------------------------------------------------------------------------- */

/* The longest option of a Connection header that is read, and one that a following ",close"
 * ends. */
#define PART "o23456789012345678901234567890123456789012345678901234567"
#define LONG PART "123456"

static const struct {
    const char *text;
    int messages;
    enum wire_phase phase; /* at its end */
} right[] = {
    {"", 0, WIRE_BETWEEN},
    {"\r\n\r\n", 0, WIRE_BETWEEN},
    {"GET / HTTP/1.1\r\n" HOST "\r\n", 1, WIRE_BETWEEN},
    {"\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 1, WIRE_BETWEEN},
    {"GET / HTTP/1.9\r\n" HOST "\r\n", 1, WIRE_BETWEEN},
    {"GET / HTTP/1.0\r\n\r\n", 1, WIRE_IGNORED},
    {"GET / HTTP/1.0\r\n\r\n\n\n garbage", 1, WIRE_IGNORED},
    {"GET / HTTP/1.0\r\nConnection: foo , Keep-Alive\r\n\r\n", 1, WIRE_BETWEEN},
    {"GET / HTTP/1.1\r\n" HOST "Connection: close\r\n\r\nwhat follows is not read", 1,
     WIRE_IGNORED},
    {"GET / HTTP/1.1\r\n" HOST "connection:x,CLOSE\t,y\r\n\r\n", 1, WIRE_IGNORED},
    {"GET / HTTP/1.1\r\n" HOST "Connection: closed\r\n\r\n", 1, WIRE_BETWEEN},
    {"GET / HTTP/1.1\r\n" HOST "Connection: c,close\r\n\r\nHost", 1, WIRE_IGNORED},
    {"GET / HTTP/1.1\r\n" HOST "Connection: , cl ,,close ,\r\n\r\nHost", 1, WIRE_IGNORED},
    {"GET / HTTP/1.1\r\n" HOST "Connection: clos\r\nConnection: close\r\n\r\n", 1, WIRE_IGNORED},
    {"GET / HTTP/1.1\r\n" HOST "Connection: " LONG "," LONG ", close\r\n\r\n", 1, WIRE_IGNORED},
    {"GET / HTTP/1.1\r\n" HOST "Connection: " LONG ", closed\r\n\r\n", 1, WIRE_BETWEEN},
    {"GET / HTTP/1.1\r\n" HOST "Connection: " LONG ",close\r\n\r\n", 1, WIRE_IGNORED},
    {"GET / HTTP/1.1\r\n" HOST "Connection: " PART ",closed\r\n\r\n", 1, WIRE_BETWEEN},
    {"GET / HTTP/1.1\r\n" HOST "Connection:\r\nConnection: \t,\r\n\r\n", 1, WIRE_BETWEEN},
    {"OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", 1, WIRE_BETWEEN},
    {"GET /%0%010%%30 HTTP/1.1", 0, WIRE_VERSION},
    {"X-1!#$%&'*+.^_`|~ /\xC3\xA4 HTTP/1.1\r\n" HOST "n: \xFF\t v \t\r\n\r\n", 1, WIRE_BETWEEN},
    {"GET / HTTP/1.1\r\n" HOST "a:\r\nb: \r\nc:  d : e\r\n\r\n", 1, WIRE_BETWEEN},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nab", 0, WIRE_BODY},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", 1, WIRE_BETWEEN},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 1, WIRE_BETWEEN},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length:003\r\n\r\n\r\n\r", 1, WIRE_BETWEEN},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 999999999999999999\r\n\r\n\1\2", 0, WIRE_BODY},
    {"POST / HTTP/1.1\r\n" HOST "transfer-encoding: Chunked\r\n\r\n", 0, WIRE_CHUNK_SIZE},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\n\n\r\0", 0, WIRE_CHUNK},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nab", 0, WIRE_CHUNK_END},
    {"POST / HTTP/1.1\r\n" HOST
     "Transfer-Encoding: chunked\r\n\r\n1;n=\"v\"\r\na\r\n00a\r\n0123456789\r\n"
     "0\r\n\r\n",
     1, WIRE_BETWEEN},
    {"POST / HTTP/1.1\r\n" HOST
     "Transfer-Encoding: chunked\r\n\r\n0\r\nHost: y\r\nContent-Length: x\r\n"
     "Transfer-Encoding: gzip\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n",
     2, WIRE_BETWEEN},
    {"GET /a HTTP/1.1\r\n" HOST "\r\nGET /b HTTP/1.1\r\n" HOST "\r\nGET /c", 2, WIRE_TARGET},
};

START_TEST(valid_bytes_pass) {
    const char *text = right[_i].text;
    struct found found = check(text, strlen(text));
    ck_assert_msg(found.right == strlen(text), "%s: %s", text, found.err.message);
    ck_assert_msg(found.messages == (uint64_t)right[_i].messages, "%s", text);
    ck_assert_msg(found.wire.phase == right[_i].phase, "%s: phase %d", text, found.wire.phase);
}
END_TEST

START_TEST(whole_requests_are_counted) {
    const char *first = "GET /a HTTP/1.1\r\n" HOST "\r\n";
    const char *second = "POST /b HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi";
    char text[256];
    snprintf(text, sizeof text, "%s%sPUT /c/d HT", first, second);
    struct found found = check(text, strlen(text));
    ck_assert_uint_eq(found.whole, strlen(first) + strlen(second));
    ck_assert_uint_eq(found.messages, 2);
    ck_assert_str_eq(found.wire.method, "PUT");
    ck_assert_str_eq(found.wire.target, "/c/d");
    found = check(text, strlen(first) - 1);
    ck_assert_uint_eq(found.whole, 0);
    snprintf(text, sizeof text, "%s%sGET /\n", first, second);
    found = check(text, strlen(text));
    ck_assert_uint_eq(found.right, strlen(text) - 1);
    ck_assert_uint_eq(found.whole, strlen(first) + strlen(second));
}
END_TEST

/* ---- invalid bytes -------------------------------------------------------------------------- */

#define POST "POST / HTTP/1.1\r\n" HOST
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

/* `|` precedes the first invalid byte. */
static const struct {
    const char *text;
    enum status status;
    const char *says;
} wrong[] = {
    {"|\n", STATUS_INVALID_REQUEST, "a line feed without a carriage return"},
    {"|\x16\x03\x01", STATUS_INVALID_REQUEST, "control character"},
    {"|\xFF", STATUS_INVALID_REQUEST, "the request line must be METHOD PATH HTTP/1.1"},
    {"| GET / HTTP/1.1", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET\r|\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET |\x7F", STATUS_INVALID_REQUEST, "control"},
    {"G|(T / HTTP/1.1\r\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"ABCDEFGHIJKLMNOPQRSTUVWX|Y / HTTP/1.1", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET | / HTTP/1.1\r\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET /\r|\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET /|\tHTTP/1.1\r\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / | HTTP/1.1\r\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / HTTP/1.1| \r\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / HTTP/1.1|1", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / \r|\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / HTTP/1.\r|\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / HTTP/x.1\r|\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / HTTP/1,1\r|\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / http/1.1\r|\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / HTTP/1.x\r|\n", STATUS_INVALID_REQUEST, "METHOD PATH HTTP/1.1"},
    {"GET / HTTP/0.9\r|\n", STATUS_HTTP_VERSION, "HTTP/1.1 and HTTP/1.0"},
    {"PRI * HTTP/2.0\r|\n\r\nSM", STATUS_HTTP_VERSION, "HTTP/1.1 and HTTP/1.0"},
    {"GET /a%0|0b HTTP/1.1\r\n", STATUS_INVALID_REQUEST, "%00"},
    {"GET /%%0|0 HTTP/1.1\r\n", STATUS_INVALID_REQUEST, "%00"},
    {"GET /?a=%0|0 HTTP/1.1\r\n", STATUS_INVALID_REQUEST, "%00"},
    {"GET / HTTP/1.1\r|HOST", STATUS_INVALID_REQUEST, "a carriage return without a line feed"},
    {"GET / HTTP/1.1|\n", STATUS_INVALID_REQUEST, "a line feed without a carriage return"},
    {"GET / HTTP/1.1\r\n\r|\n", STATUS_INVALID_REQUEST, "needs a Host header"},
    {"GET / HTTP/1.1\r\n" HOST HOST "\r|\n", STATUS_INVALID_REQUEST, "more than one Host"},
    {"GET / HTTP/1.1\r\nno| colon\r\n", STATUS_INVALID_REQUEST, "a header's name holds"},
    {"GET / HTTP/1.1\r\nnocolon\r|\n", STATUS_INVALID_REQUEST, "a header line lacks a colon"},
    {"GET / HTTP/1.1\r\n|: x\r\n", STATUS_INVALID_REQUEST, "a header lacks a name"},
    {"GET / HTTP/1.1\r\nHost| : x\r\n", STATUS_INVALID_REQUEST, "a header's name holds"},
    {"GET / HTTP/1.1\r\nHo|(st: x\r\n", STATUS_INVALID_REQUEST, "a header's name holds"},
    {"GET / HTTP/1.1\r\n" HOST "| folded: x\r\n", STATUS_INVALID_REQUEST,
     "a header must be one line"},
    {"GET / HTTP/1.1\r\n" HOST "|\tfolded\r\n", STATUS_INVALID_REQUEST,
     "a header must be one line"},
    {"GET / HTTP/1.1\r\n" HOST "a: b|\x01\r\n", STATUS_INVALID_REQUEST, "control character"},
    {"GET / HTTP/1.1\r\n" HOST "a: b\r|\r\n", STATUS_INVALID_REQUEST, "a carriage return without"},
    {POST "Content-Length: -1\r|\n", STATUS_INVALID_REQUEST, "Content-Length must be one number"},
    {POST "Content-Length: +5\r|\n", STATUS_INVALID_REQUEST, "Content-Length must be one number"},
    {POST "Content-Length: 0x10\r|\n", STATUS_INVALID_REQUEST, "Content-Length must be one number"},
    {POST "Content-Length: 5,6\r|\n", STATUS_INVALID_REQUEST, "Content-Length must be one number"},
    {POST "Content-Length: 5 \r|\n", STATUS_INVALID_REQUEST, "Content-Length must be one number"},
    {POST "Content-Length:\r|\n", STATUS_INVALID_REQUEST, "Content-Length must be one number"},
    {POST "Content-Length: 1000000000000000000\r|\n", STATUS_TOO_LARGE, "larger than any body"},
    {POST "Content-Length: 18446744073709551616\r|\n", STATUS_TOO_LARGE, "larger than any body"},
    {POST "Content-Length: 3\r\nContent-Length: 3\r\n\r|\n", STATUS_INVALID_REQUEST,
     "more than one Content-Length"},
    {POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r|\n", STATUS_INVALID_REQUEST,
     "both a Content-Length"},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r|\n",
     STATUS_INVALID_REQUEST, "more than one Transfer-Encoding"},
    {POST "Transfer-Encoding: gzip\r\n\r|\n", STATUS_INVALID_REQUEST, "is chunked"},
    {POST "Transfer-Encoding: gzip, chunked\r\n\r|\n", STATUS_INVALID_REQUEST, "is chunked"},
    {POST "Transfer-Encoding: chunked \r\n\r|\n", STATUS_INVALID_REQUEST, "is chunked"},
    {"GET / HTTP/1.1\r\n" HOST "Connection: " LONG "7\r|\n", STATUS_INVALID_REQUEST,
     "longer than 63 bytes"},
    {"GET / HTTP/1.1\r\n" HOST "Connection: x, " LONG "7|, close\r\n", STATUS_INVALID_REQUEST,
     "longer than 63 bytes"},
    {"GET / HTTP/1.1\r\n" HOST "Connection: keep alive\r|\n", STATUS_INVALID_REQUEST,
     "names with commas"},
    {"GET / HTTP/1.1\r\n" HOST "Connection: \"close\"\r|\n", STATUS_INVALID_REQUEST,
     "names with commas"},
    {"GET / HTTP/1.1\r\n" HOST "Connection: close;a|, close\r\n", STATUS_INVALID_REQUEST,
     "names with commas"},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r|\n", STATUS_INVALID_REQUEST,
     "HTTP/1.0 does not allow"},
    {CHUNKED "|x\r\n", STATUS_INVALID_REQUEST, "hexadecimal"},
    {CHUNKED "|-1\r\n", STATUS_INVALID_REQUEST, "hexadecimal"},
    {CHUNKED "5| \r\n", STATUS_INVALID_REQUEST, "hexadecimal"},
    {CHUNKED "|;a\r\n", STATUS_INVALID_REQUEST, "hexadecimal"},
    {CHUNKED "|\r\n", STATUS_INVALID_REQUEST, "a chunk lacks a size"},
    {CHUNKED "1|\n", STATUS_INVALID_REQUEST, "a line feed without"},
    {CHUNKED "000000000000001|1\r\n", STATUS_TOO_LARGE, "a chunk is larger"},
    {CHUNKED "1\r\na|b\r\n", STATUS_INVALID_REQUEST, "longer than its size says"},
    {CHUNKED "1\r\na|\n", STATUS_INVALID_REQUEST, "a line feed without"},
    {CHUNKED "0\r\nnocolon\r|\n", STATUS_INVALID_REQUEST, "a header line lacks a colon"},
    {POST "Content-Length: 2\r\n\r\nhi|\nGET", STATUS_INVALID_REQUEST, "a line feed without"},
};

START_TEST(invalid_bytes_are_refused) {
    char text[512];
    const char *mark = strchr(wrong[_i].text, '|');
    ck_assert_ptr_nonnull(mark);
    size_t at = (size_t)(mark - wrong[_i].text);
    snprintf(text, sizeof text, "%.*s%s", (int)at, wrong[_i].text, mark + 1);
    struct found found = check(text, strlen(text));
    ck_assert_msg(found.right == at, "%s: %zu bytes are right", wrong[_i].text, found.right);
    ck_assert_int_eq((int)found.err.status, (int)wrong[_i].status);
    ck_assert_msg(strstr(found.err.message, wrong[_i].says), "%s: %s", text, found.err.message);
}
END_TEST

START_TEST(a_nul_byte_is_wrong) {
    const char text[] = "GET / HTTP/1.1\r\nHost: x\0y\r\n\r\n";
    struct found found = check(text, sizeof text - 1);
    ck_assert_uint_eq(found.right, 23);
    const char method[] = "\0GET";
    ck_assert_uint_eq(check(method, 4).right, 0);
}
END_TEST

/* ---- limits --------------------------------------------------------------------------------- */

static char *text_of(struct buf *buf, const char *format, int n, const char *unit,
                     const char *end) {
    buf_clear(buf);
    buf_puts(buf, format);
    for (int i = 0; i < n; i++) buf_puts(buf, unit);
    buf_puts(buf, end);
    return buf->data;
}

static enum status status_of(const struct buf *text) {
    struct found found = check(text->data, text->length);
    return found.right == text->length ? STATUS_OK : found.err.status;
}

START_TEST(heads_have_a_limit) {
    struct buf text = {0};
    const char *start = "GET / HTTP/1.1\r\n" HOST "n: ";
    int room = MAX_HEAD - (int)strlen(start) - 4;
    text_of(&text, start, room, "v", "\r\n\r\n");
    ck_assert_uint_eq(text.length, MAX_HEAD);
    ck_assert_int_eq((int)status_of(&text), STATUS_OK);
    text_of(&text, start, room + 1, "v", "\r\n\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_HEADERS_TOO_LARGE);
    text_of(&text, "GET /", MAX_HEAD, "p", "");
    ck_assert_int_eq((int)status_of(&text), STATUS_URI_TOO_LONG);
    text_of(&text, "", MAX_HEAD, "\r\n", "");
    ck_assert_int_eq((int)status_of(&text), STATUS_HEADERS_TOO_LARGE);
    text_of(&text, CHUNKED "0\r\nn: ", MAX_HEAD, "v", "\r\n\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_HEADERS_TOO_LARGE);
    buf_free(&text);
}
END_TEST

START_TEST(fields_have_a_limit) {
    struct buf text = {0};
    text_of(&text, "GET / HTTP/1.1\r\n" HOST, WIRE_MAX_FIELDS - 1, "a:\r\n", "\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_OK);
    text_of(&text, "GET / HTTP/1.1\r\n" HOST, WIRE_MAX_FIELDS, "a:\r\n", "\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_HEADERS_TOO_LARGE);
    text_of(&text, "GET /?", WIRE_MAX_FIELDS - 1, "&", " HTTP/1.1\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_OK);
    text_of(&text, "GET /?", WIRE_MAX_FIELDS, "&", " HTTP/1.1\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_URI_TOO_LONG);
    text_of(&text, "GET / HTTP/1.1\r\n" HOST "Cookie: ", WIRE_MAX_FIELDS - 2, "a;", "\r\n\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_OK);
    text_of(&text, "GET / HTTP/1.1\r\n" HOST "Cookie: ", WIRE_MAX_FIELDS - 1, "a;", "\r\n\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_HEADERS_TOO_LARGE);
    buf_free(&text);
}
END_TEST

START_TEST(cookies_have_a_limit) {
    struct buf text = {0};
    for (int more = 0; more < 2; more++) {
        struct found found = {.wire.max_head_bytes = 1 << 20};
        text_of(&text, "GET / HTTP/1.1\r\n" HOST "Cookie: ", WIRE_MAX_COOKIE_BYTES + more, "c",
                "\r\n");
        found.right = wire_check(&found.wire, text.data, text.length, &found.whole, &found.err);
        ck_assert_int_eq(found.right == text.length, !more);
        if (more) ck_assert_int_eq((int)found.err.status, STATUS_HEADERS_TOO_LARGE);
    }
    buf_free(&text);
}
END_TEST

START_TEST(lines_of_chunk_sizes_have_a_limit) {
    struct buf text = {0};
    text_of(&text, CHUNKED "1;", WIRE_MAX_CHUNK_LINE - 4, "x", "\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_OK);
    text_of(&text, CHUNKED "1;", WIRE_MAX_CHUNK_LINE - 3, "x", "\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_INVALID_REQUEST);
    text_of(&text, CHUNKED "1;x\r\na\r\n1;", WIRE_MAX_CHUNK_LINE - 4, "x", "\r\n");
    ck_assert_int_eq((int)status_of(&text), STATUS_OK); /* each line has its own limit */
    buf_free(&text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_wire");
    TCase *cases = tcase_create("all");
    tcase_add_loop_test(cases, valid_bytes_pass, 0, sizeof right / sizeof *right);
    tcase_add_loop_test(cases, invalid_bytes_are_refused, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(cases, whole_requests_are_counted);
    tcase_add_test(cases, a_nul_byte_is_wrong);
    tcase_add_test(cases, heads_have_a_limit);
    tcase_add_test(cases, fields_have_a_limit);
    tcase_add_test(cases, cookies_have_a_limit);
    tcase_add_test(cases, lines_of_chunk_sizes_have_a_limit);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
