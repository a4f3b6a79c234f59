/* server/hub: libcurl and libcrypto, loaded by the first pull. Internal to this folder.
 *
 * A program that is linked with libcurl loads thirty libraries at its start: 5 MB and 5 ms that a
 * server does not need once its model is there. */
#ifndef PENSTOCK_SERVER_HUB_LIBRARY_H
#define PENSTOCK_SERVER_HUB_LIBRARY_H

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <openssl/evp.h>

#include "config/config.h"

#define HUB_CURL_FUNCTIONS(X)                                                                      \
    X(curl_global_init)                                                                            \
    X(curl_easy_init)                                                                              \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_perform)                                                                           \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_strerror)                                                                          \
    X(curl_easy_cleanup)                                                                           \
    X(curl_slist_append)                                                                           \
    X(curl_slist_free_all)

#define HUB_CRYPTO_FUNCTIONS(X)                                                                    \
    X(EVP_MD_CTX_new)                                                                              \
    X(EVP_MD_CTX_free)                                                                             \
    X(EVP_DigestInit_ex)                                                                           \
    X(EVP_DigestUpdate)                                                                            \
    X(EVP_DigestFinal_ex)                                                                          \
    X(EVP_sha1)                                                                                    \
    X(EVP_sha256)

/* The functions, under their own names. */
struct hub_library {
#define HUB_MEMBER(name) __typeof__(&(name)) p_##name;
    HUB_CURL_FUNCTIONS(HUB_MEMBER)
    HUB_CRYPTO_FUNCTIONS(HUB_MEMBER)
#undef HUB_MEMBER
};

/* Valid after hub_library_load has succeeded. */
extern struct hub_library hub_library;

/* Loads both libraries once. Fails with STATUS_SYSTEM and the package to install. */
enum status hub_library_load(struct err *err);

#endif
