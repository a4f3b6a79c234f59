/* server/http, inside: the counters that only the kernel's own header describes. It cannot be
 * included together with the C library's, and so with libuv's. */
#ifndef PENSTOCK_SERVER_HTTP_TCP_INFO_H
#define PENSTOCK_SERVER_HTTP_TCP_INFO_H

#include <stdint.h>

/* Bytes that were read from a TCP socket since it was accepted; 0 if the kernel does not say. */
uint64_t http_kernel_bytes_read(int fd);

#endif
