/* Internal to server/llama. */
#ifndef PENSTOCK_SERVER_LLAMA_INTERNAL_H
#define PENSTOCK_SERVER_LLAMA_INTERNAL_H

#include "server/json/json.h"
#include "server/llama/llama.h"

/* Copies a body with the other names of its fields, those of `copied_to`, and without the members
 * that `skips` names; NULL: none. Fails if it then has a name twice. */
enum status llama_translate(struct json **out, const struct json *body,
                            const struct field_table *fields,
                            bool (*skips)(const struct json *member), struct err *err);

#endif
