/* The variables of huggingface_hub, so that a set-up for other programs also serves this one. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "server/hub/internal.h"

#define ENDPOINT "https://huggingface.co"
#define TIMEOUT_MS 10000
#define MAX_TOKEN_BYTES 1024

/* Returns a variable's value, or NULL if it is unset or empty. */
static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Returns a copy of a path in which a leading "~/" is the home folder; NULL if that is unknown. */
static char *expanded(const char *path) {
    const char *home = variable("HOME");
    if (path[0] != '~' || path[1] != '/') return mem_strdup(path);
    return home ? path_in(home, path + 2) : NULL;
}

/* Returns the path of `name` in the folder of huggingface_hub; NULL if that is unknown. A service
 * of systemd has no home, but may have a folder for caches, which the unit's CacheDirectory states.
 */
static char *home_file(const char *name) {
    const char *base = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME");
    if (!cache) cache = variable("CACHE_DIRECTORY");
    char *folder;
    if (base)
        folder = expanded(base);
    else if (cache)
        folder = path_in(cache, "huggingface");
    else
        folder = expanded("~/.cache/huggingface");
    char *path = folder ? path_in(folder, name) : NULL;
    mem_free(folder);
    return path;
}

static bool is_yes(const char *name) {
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *value = variable(name);
    for (size_t i = 0; value && i < sizeof words / sizeof *words; i++)
        if (strcasecmp(value, words[i]) == 0) return true;
    return false;
}

static void read_token_file(struct buf *token) {
    const char *stated = variable("HF_TOKEN_PATH");
    char *path = stated ? expanded(stated) : home_file("token"), bytes[MAX_TOKEN_BYTES];
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd >= 0 ? read(fd, bytes, sizeof bytes) : 0;
    if (n > 0) buf_add(token, bytes, (size_t)n);
    if (fd >= 0) close(fd);
    mem_free(path);
}

/* Sets the token without the space around it. A header can hold visible characters only. */
static enum status read_token(struct hub_settings *settings, struct err *err) {
    struct buf text = {0};
    const char *stated = variable("HF_TOKEN");
    if (stated)
        buf_puts(&text, stated);
    else
        read_token_file(&text);
    const char *start = text.length > 0 ? text.data + strspn(text.data, " \t\r\n") : "";
    size_t length = strcspn(start, " \t\r\n");
    bool is_bad = start[length + strspn(start + length, " \t\r\n")] != 0;
    for (size_t i = 0; i < length; i++) is_bad |= start[i] < '!' || start[i] > '~';
    if (length > 0 && !is_bad) {
        settings->token = mem_strdup(start);
        settings->token[length] = 0;
    }
    buf_free(&text);
    if (!is_bad) return STATUS_OK;
    return err_set(err, STATUS_USAGE, NULL,
                   "the hub's token has spaces or other characters that no token has; correct %s",
                   stated ? "HF_TOKEN" : "the token file");
}

static enum status read_endpoint(struct hub_settings *settings, struct err *err) {
    const char *stated = variable("HF_ENDPOINT");
    settings->endpoint = mem_strdup(stated ? stated : ENDPOINT);
    for (size_t n = strlen(settings->endpoint); n > 0 && settings->endpoint[n - 1] == '/'; n--)
        settings->endpoint[n - 1] = 0;
    const char *at = settings->endpoint;
    if (strncasecmp(at, "https://", 8) != 0 && strncasecmp(at, "http://", 7) != 0)
        return err_set(err, STATUS_USAGE, NULL,
                       "HF_ENDPOINT must be a URL, such as %s; it is \"%.200s\"", ENDPOINT, at);
    const char *host = strstr(at, "://") + 3;
    if (memchr(host, '@', strcspn(host, "/?#")))
        return err_set(
            err, STATUS_USAGE, NULL,
            "HF_ENDPOINT must not hold a name or password; a token is given as HF_TOKEN");
    return STATUS_OK;
}

enum status hub_settings_read(struct hub_settings *settings, const char *folder, bool offline,
                              struct err *err) {
    const char *cache = folder ? folder : variable("HF_HUB_CACHE");
    const char *timeout = variable("HF_HUB_DOWNLOAD_TIMEOUT");
    *settings = (struct hub_settings){.timeout_ms = TIMEOUT_MS};
    if (!cache) cache = variable("HUGGINGFACE_HUB_CACHE"); /* its older name */
    settings->cache = cache ? expanded(cache) : home_file("hub");
    if (!settings->cache)
        return err_set(err, STATUS_USAGE, "models-dir",
                       "there is no home folder to keep models in; set HF_HOME or {models-dir}");
    settings->offline = offline || is_yes("HF_HUB_OFFLINE");
    double seconds = timeout ? strtod(timeout, NULL) : 0;
    if (seconds >= 0.01 && seconds <= 86400) settings->timeout_ms = (int)(seconds * 1000);
    assert(settings->timeout_ms > 0);
    enum status status = read_endpoint(settings, err);
    return status ? status : read_token(settings, err);
}

void hub_settings_free(struct hub_settings *settings) {
    mem_free(settings->endpoint);
    mem_free(settings->token);
    mem_free(settings->cache);
    *settings = (struct hub_settings){0};
}
