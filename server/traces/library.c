#include "server/traces/library.h"

#include <dlfcn.h>

struct traces_library traces_library;

/* Sets *function to a function of the library; false: the library lacks it. */
static bool bind_one(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    *(void **)function = found;
    return found != NULL;
}

enum status traces_library_load(struct err *err) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    static bool is_loaded;
    void *library = NULL;
    bool whole = true;
    if (is_loaded) return STATUS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(err, STATUS_SYSTEM, NULL,
                       "--otlp-traces-endpoint needs the library libcurl.so.4; install it (in "
                       "Debian, the package libcurl4)");
#define TRACES_BIND(name) whole &= bind_one(library, #name, &traces_library.p_##name);
    TRACES_CURL_FUNCTIONS(TRACES_BIND)
    if (!whole || traces_library.p_curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, STATUS_SYSTEM, NULL,
                       "libcurl lacks functions that --otlp-traces-endpoint needs; install its "
                       "version 7.68 or a later one");
    is_loaded = true;
    return STATUS_OK;
}
