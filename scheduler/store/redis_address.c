#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/store/internal.h"
#include "scheduler/store/redis_link.h"

#define SCHEME "redis://"
#define DEFAULT_PORT 6379
#define MAX_DATABASE 65535

bool store_is_redis(const char *place) {
    return strncmp(place, SCHEME, strlen(SCHEME)) == 0 || strncmp(place, "rediss://", 9) == 0;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    int lower = tolower((unsigned char)c);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Copies a part of the address and decodes its %XX. Returns false if it does not fit, or has a
 * wrong % or a zero byte. */
static bool copy_part(char out[REDIS_TEXT], const char *from, const char *end) {
    int n = 0;
    for (; from < end; from++) {
        int c = (unsigned char)*from;
        if (c == '%') {
            if (end - from < 3 || hex_digit(from[1]) < 0 || hex_digit(from[2]) < 0) return false;
            c = hex_digit(from[1]) * 16 + hex_digit(from[2]);
            from += 2;
        }
        if (c == 0 || n == REDIS_TEXT - 1) return false;
        out[n++] = (char)c;
    }
    out[n] = 0;
    return true;
}

/* Parses a number that ends the text or is followed by `/`. */
static const char *parse_number(const char *text, int max, int *value) {
    char *end;
    if (!isdigit((unsigned char)*text)) return NULL;
    long number = strtol(text, &end, 10);
    if (number > max || (*end && *end != '/')) return NULL;
    *value = (int)number;
    return end;
}

/* Parses [USER]:PASSWORD. */
static bool parse_login(struct redis_address *address, const char *text, const char *end) {
    const char *colon = memchr(text, ':', (size_t)(end - text));
    if (!colon || !copy_part(address->user, text, colon)) return false;
    return copy_part(address->password, colon + 1, end) && address->password[0];
}

/* Parses HOST[:PORT][/DATABASE]. An IPv6 address is in brackets. */
static bool parse_server(struct redis_address *address, const char *text) {
    bool brackets = *text == '[';
    const char *end = brackets ? strchr(text, ']') : text + strcspn(text, ":/");
    if (!end || !copy_part(address->host, text + brackets, end)) return false;
    end += brackets;
    address->port = DEFAULT_PORT;
    if (*end == ':') end = parse_number(end + 1, 65535, &address->port);
    if (end && *end == '/' && end[1]) end = parse_number(end + 1, MAX_DATABASE, &address->database);
    if (!end || address->port == 0) return false;
    return address->host[0] && (!*end || strcmp(end, "/") == 0);
}

/* Messages do not repeat the text: it may have a password. */
enum status redis_address_parse(struct redis_address *address, const char *text, struct err *err) {
    *address = (struct redis_address){0};
    if (strncmp(text, SCHEME, strlen(SCHEME)) != 0)
        return err_set(err, STATUS_USAGE, NULL,
                       "--prefix-store does not encrypt: use redis:// and a tunnel such as stunnel "
                       "instead of rediss://");
    text += strlen(SCHEME);
    const char *at = strrchr(text, '@');
    bool ok = !at || parse_login(address, text, at);
    if (ok && parse_server(address, at ? at + 1 : text)) return STATUS_OK;
    return err_set(err, STATUS_USAGE, NULL,
                   "--prefix-store must be a folder or "
                   "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]; characters with a meaning in "
                   "an address are written as %%XX in a password");
}

void redis_address_show(const struct redis_address *address, struct buf *out) {
    bool brackets = strchr(address->host, ':') != NULL;
    buf_printf(out, SCHEME "%s%s%s:%d/%d", brackets ? "[" : "", address->host, brackets ? "]" : "",
               address->port, address->database);
}
