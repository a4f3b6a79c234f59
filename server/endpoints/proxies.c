/* --trusted-proxies: proxies that may state the client's address.
 *
 * A proxy appends its peer's address to X-Forwarded-For. So the end of the list is reliable, as far
 * as trusted proxies wrote it: the client is the right-most address that is not a trusted proxy.
 * Addresses to its left may be forged.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "server/endpoints/endpoints.h"

/* All addresses of 16 bytes with the same first `bits`. An IPv4 address is ::ffff:a.b.c.d. */
struct address_range {
    uint8_t bytes[16];
    int bits;
};

/* Reads an IPv6 or IPv4 address. */
static bool read_address(const char *text, uint8_t bytes[16], int *max_bits) {
    static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
    *max_bits = 128;
    if (inet_pton(AF_INET6, text, bytes) == 1) return true;
    *max_bits = 32;
    memcpy(bytes, mapped, sizeof mapped);
    return inet_pton(AF_INET, text, bytes + sizeof mapped) == 1;
}

/* Writes an address in canonical form, so that a client has one name in the log. */
static void write_address(const uint8_t bytes[16], char *out, size_t size) {
    struct in6_addr address;
    memcpy(&address, bytes, sizeof address);
    bool is_v4 = IN6_IS_ADDR_V4MAPPED(&address);
    const char *text = is_v4 ? inet_ntop(AF_INET, bytes + 12, out, (socklen_t)size)
                             : inet_ntop(AF_INET6, bytes, out, (socklen_t)size);
    assert(text);
    (void)text;
}

/* Reads ADDRESS or ADDRESS/BITS. */
static bool read_range(const char *text, size_t length, struct address_range *range) {
    char address[64];
    int max_bits;
    const char *slash = memchr(text, '/', length);
    size_t n = slash ? (size_t)(slash - text) : length;
    if (n >= sizeof address) return false;
    memcpy(address, text, n);
    address[n] = 0;
    if (!read_address(address, range->bytes, &max_bits)) return false;
    range->bits = max_bits;
    if (slash) {
        size_t digits = length - n - 1;
        if (digits == 0 || digits > 3 || strspn(slash + 1, "0123456789") < digits) return false;
        range->bits = atoi(slash + 1);
    }
    if (range->bits > max_bits) return false;
    range->bits += 128 - max_bits;
    return true;
}

enum status proxies_load(struct app *app, struct err *err) {
    const char *list = app->options->access.trusted_proxies;
    while (list && *list) {
        list += strspn(list, ", ");
        size_t n = strcspn(list, ", ");
        struct address_range range;
        if (n == 0) break;
        if (n == 4 && strncmp(list, "unix", n) == 0) {
            app->trusts_unix = true;
            list += n;
            continue;
        }
        if (!read_range(list, n, &range)) {
            return err_set(err, STATUS_USAGE, "trusted-proxies",
                           "--trusted-proxies takes addresses and ranges such as 10.0.0.0/8, ::1, "
                           "or unix, with commas between them, not \"%.*s\"",
                           (int)(n < 80 ? n : 80), list);
        }
        buf_add(&app->proxies, &range, sizeof range);
        list += n;
    }
    return STATUS_OK;
}

static bool is_in(const struct address_range *range, const uint8_t bytes[16]) {
    int whole = range->bits / 8, rest = range->bits % 8;
    uint8_t mask = (uint8_t)(0xFF00 >> rest);
    if (memcmp(range->bytes, bytes, (size_t)whole) != 0) return false;
    return rest == 0 || ((range->bytes[whole] ^ bytes[whole]) & mask) == 0;
}

/* `client` is an address, or "unix" for a peer of a Unix socket. */
static bool is_trusted(const struct app *app, const char *client) {
    uint8_t bytes[16];
    int max_bits;
    if (strcmp(client, "unix") == 0) return app->trusts_unix;
    if (!read_address(client, bytes, &max_bits)) return false;
    const char *ranges = app->proxies.data;
    for (size_t at = 0; at < app->proxies.length; at += sizeof(struct address_range)) {
        struct address_range range;
        memcpy(&range, ranges + at, sizeof range);
        if (is_in(&range, bytes)) return true;
    }
    return false;
}

/* Reads one entry of the list: an address, and optionally a port, which some proxies add. */
static bool read_entry(const char *text, size_t length, char *address, size_t size) {
    while (length > 0 && strchr(" \t\"", text[length - 1])) length--;
    while (length > 0 && strchr(" \t\"", *text)) text++, length--;
    if (length == 0 || length >= size) return false;
    memcpy(address, text, length);
    address[length] = 0;
    char *colon = strchr(address, ':'), *bracket = strchr(address, ']');
    if (address[0] == '[' && bracket) {
        *bracket = 0;
        memmove(address, address + 1, strlen(address));
    } else if (colon && !strchr(colon + 1, ':')) {
        *colon = 0;
    }
    return true;
}

void proxies_name_client(const struct app *app, struct http_request *http) {
    uint8_t bytes[16];
    int max_bits;
    char address[64];
    struct buf list = {0};
    if (app->proxies.length == 0 && !app->trusts_unix) return;
    http_header_list(http, "X-Forwarded-For", &list);
    size_t end = list.length;
    while (end > 0 && is_trusted(app, http->client)) {
        size_t start = end;
        while (start > 0 && list.data[start - 1] != ',') start--;
        bool is_address = read_entry(list.data + start, end - start, address, sizeof address) &&
                          read_address(address, bytes, &max_bits);
        if (!is_address) break;
        write_address(bytes, http->client, sizeof http->client);
        end = start > 0 ? start - 1 : 0;
    }
    buf_free(&list);
}
