/* server/receipts, internal: declarations that the files of this folder share. */
#ifndef PENSTOCK_SERVER_RECEIPTS_INTERNAL_H
#define PENSTOCK_SERVER_RECEIPTS_INTERNAL_H

#include "server/receipts/receipts.h"

#define RECEIPT_VERSION 1 /* of the form of receipts */

/* Hashes ids as little-endian 32-bit numbers. */
void receipt_hash_ids(char hex[HASH_DIGITS + 1], const int32_t *ids, int n);

#endif
