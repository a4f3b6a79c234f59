/* server/keys, internal: functions of the list (keys.c) for the file's reader (key_file.c).
 *
 * A reader appends an entry with its defaults, and then sets its members one by one. It must set
 * the digest before the list is used: an entry without one would match no key.
 */
#ifndef PENSTOCK_SERVER_KEYS_INTERNAL_H
#define PENSTOCK_SERVER_KEYS_INTERNAL_H

#include "server/keys/keys.h"

/* The characters of a name. Labels of metrics and fields of the log write them without quotes. */
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@"

/* Appends an entry without limits, whose digest is to be set. It is valid until the next call. */
struct api_key *keys_append(struct keys *keys);

/* Writes the SHA-256 of a key's `length` bytes. Any thread. */
void key_digest(uint8_t digest[KEY_DIGEST_BYTES], const char *text, size_t length);

#endif
