/* server/http, inside: what only the kernel's own header describes, which cannot stand beside the C
 * library's. */
#ifndef PENSTOCK_SERVER_HTTP_KERNEL_H
#define PENSTOCK_SERVER_HTTP_KERNEL_H

#include <stdint.h>

/* Bytes that were read from a TCP socket since it was accepted; 0 when the kernel does not tell. */
uint64_t http_kernel_bytes_read(int fd);

#endif
