/* Names of models, and names of files that the hub states. Both become paths, so both are checked
 * before they are used. */
#include <string.h>
#include <strings.h>

#include "server/hub/internal.h"

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

bool hub_ends_in(const char *path, const char *ending) {
    size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

bool hub_is_hex(const char *text, size_t digits) {
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

bool hub_path_is_safe(const char *path) {
    if (utf8_valid_prefix(path, strlen(path)) != strlen(path)) return false;
    for (const char *at = path;;) {
        size_t n = strcspn(at, "/");
        if (n == 0 || n > 255) return false;
        if (at[0] == '.' && (n == 1 || (n == 2 && at[1] == '.'))) return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)at[i] < ' ' || at[i] == 0x7F || at[i] == '\\') return false;
        if (!at[n]) return true;
        at += n + 1;
    }
}

/* Is it a part of a repository's name? The hub refuses "--" and "..", and '-' and '.' at the ends.
 */
static bool is_part(const char *text, size_t length) {
    if (length == 0 || strspn(text, letters) < length) return false;
    if (strchr("-.", text[0]) || strchr("-.", text[length - 1])) return false;
    for (size_t i = 1; i < length; i++)
        if (text[i] == text[i - 1] && strchr("-.", text[i])) return false;
    return true;
}

static enum status refuse(const char *text, struct err *err) {
    return err_set(err, STATUS_USAGE, "model",
                   "\"%.*s\" is not the name of a model; names are org/repo, org/repo:Q4_K_M and "
                   "org/repo/file.gguf",
                   utf8_cut(text, utf8_valid_prefix(text, strlen(text)), 200), text);
}

enum status hub_name_parse(struct hub_name *name, const char *text, struct err *err) {
    *name = (struct hub_name){0};
    size_t first = strcspn(text, "/"), second = 0;
    if (!is_part(text, first) || text[first] != '/') return refuse(text, err);
    second = strcspn(text + first + 1, "/:");
    size_t length = first + 1 + second;
    if (!is_part(text + first + 1, second) || length >= sizeof name->repo) return refuse(text, err);
    memcpy(name->repo, text, length);
    const char *rest = text + length;
    if (!*rest) return STATUS_OK;
    if (*rest == ':') {
        size_t n = strlen(rest + 1);
        if (n == 0 || n >= sizeof name->tag || strspn(rest + 1, letters) < n)
            return refuse(text, err);
        memcpy(name->tag, rest + 1, n);
        return STATUS_OK;
    }
    if (strlen(rest + 1) >= sizeof name->file || !hub_path_is_safe(rest + 1) ||
        !hub_ends_in(rest + 1, ".gguf"))
        return refuse(text, err);
    memcpy(name->file, rest + 1, strlen(rest + 1));
    return STATUS_OK;
}

void hub_name_write(const struct hub_name *name, struct buf *out) {
    buf_puts(out, name->repo);
    if (*name->tag) buf_printf(out, ":%s", name->tag);
    if (*name->file) buf_printf(out, "/%s", name->file);
}
