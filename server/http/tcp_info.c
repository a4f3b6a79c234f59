/* server/http: the kernel's counters of a connection. */
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "server/http/tcp_info.h"

uint64_t http_kernel_bytes_read(int fd) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    int unread = 0;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
    if (ioctl(fd, SIOCINQ, &unread) != 0 || unread < 0) return 0;
    uint64_t received = info.tcpi_bytes_received;
    return received > (uint64_t)unread ? received - (uint64_t)unread : 0;
}
