/* Requests of the APIs, read from their bodies as a server reads them, for a model with suitable
 * limits. */
#ifndef TESTS_SUPPORT_REQUEST_READER_H
#define TESTS_SUPPORT_REQUEST_READER_H

#include "server/openai/internal.h"

/* Limits of a model "m" with 1000 tokens, a context of 64 and a chat template. */
extern const struct api_limits request_limits;

/* Reads a body first as JSON, then by its API. *out is NULL if it is refused. The caller frees the
 * request with api_request_free. */
enum status request_read(struct api_request **out, const struct api *api, const char *body,
                         size_t length, const struct api_limits *by, struct err *err);

/* Returns the request of a body that must be accepted within request_limits. */
struct api_request *request_expect(const struct api *api, const char *body);

#endif
