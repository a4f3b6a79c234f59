/* server/traces: libcurl, loaded if --otlp-traces-endpoint asks for it. Internal to this folder.
 *
 * A program that is linked with libcurl loads thirty libraries at its start: 5 MB and 5 ms that a
 * server without traces does not need. */
#ifndef PENSTOCK_SERVER_TRACES_LIBRARY_H
#define PENSTOCK_SERVER_TRACES_LIBRARY_H

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include "config/config.h"

#define TRACES_CURL_FUNCTIONS(X)                                                                   \
    X(curl_global_init)                                                                            \
    X(curl_easy_init)                                                                              \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_strerror)                                                                          \
    X(curl_easy_cleanup)                                                                           \
    X(curl_multi_init)                                                                             \
    X(curl_multi_add_handle)                                                                       \
    X(curl_multi_remove_handle)                                                                    \
    X(curl_multi_perform)                                                                          \
    X(curl_multi_poll)                                                                             \
    X(curl_multi_wakeup)                                                                           \
    X(curl_multi_info_read)                                                                        \
    X(curl_multi_cleanup)                                                                          \
    X(curl_slist_append)                                                                           \
    X(curl_slist_free_all)

/* The functions, under their own names. */
struct traces_library {
#define TRACES_MEMBER(name) __typeof__(&(name)) p_##name;
    TRACES_CURL_FUNCTIONS(TRACES_MEMBER)
#undef TRACES_MEMBER
};

/* Valid after traces_library_load has succeeded. */
extern struct traces_library traces_library;

/* Loads the library once. Fails with STATUS_SYSTEM and the package to install. */
enum status traces_library_load(struct err *err);

#endif
