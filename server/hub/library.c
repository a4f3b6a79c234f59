#include <dlfcn.h>

#include "server/hub/library.h"

struct hub_library hub_library;

/* Opens the first library that is there. */
static void *open_first(const char *const *names, const char *package, struct err *err) {
    for (const char *const *name = names; *name; name++) {
        void *library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    err_set(err, STATUS_SYSTEM, NULL,
            "fetching a model needs the library %s; install it (in Debian, the package %s)",
            names[0], package);
    return NULL;
}

/* Sets *function to a library's function; false: the library lacks it. */
static bool bind_one(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    *(void **)function = found;
    return found != NULL;
}

enum status hub_library_load(struct err *err) {
    static const char *const curls[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
    static const char *const cryptos[] = {"libcrypto.so.3", "libcrypto.so.1.1", NULL};
    static bool is_loaded;
    bool whole = true;
    if (is_loaded) return STATUS_OK;
    void *curl = open_first(curls, "libcurl4", err);
    void *crypto = curl ? open_first(cryptos, "libssl3", err) : NULL;
    if (!crypto) return STATUS_SYSTEM;
#define HUB_BIND_CURL(name) whole &= bind_one(curl, #name, &hub_library.p_##name);
    HUB_CURL_FUNCTIONS(HUB_BIND_CURL)
#define HUB_BIND_CRYPTO(name) whole &= bind_one(crypto, #name, &hub_library.p_##name);
    HUB_CRYPTO_FUNCTIONS(HUB_BIND_CRYPTO)
    if (!whole || hub_library.p_curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, STATUS_SYSTEM, NULL,
                       "libcurl or libcrypto cannot be used; install their current versions");
    is_loaded = true;
    return STATUS_OK;
}
