/* server/kv_events: libzmq, loaded if --kv-events asks for it. Internal to this folder.
 *
 * A program that is linked with libzmq loads twenty libraries at its start: 3 ms that a server
 * without subscribers does not need. */
#ifndef PENSTOCK_SERVER_KV_EVENTS_LIBRARY_H
#define PENSTOCK_SERVER_KV_EVENTS_LIBRARY_H

#include <zmq.h>

#include "config/config.h"

#define ZMQ_FUNCTIONS(X)                                                                           \
    X(zmq_ctx_new)                                                                                 \
    X(zmq_ctx_term)                                                                                \
    X(zmq_socket)                                                                                  \
    X(zmq_close)                                                                                   \
    X(zmq_setsockopt)                                                                              \
    X(zmq_getsockopt)                                                                              \
    X(zmq_bind)                                                                                    \
    X(zmq_send)                                                                                    \
    X(zmq_recv)                                                                                    \
    X(zmq_poll)                                                                                    \
    X(zmq_errno)                                                                                   \
    X(zmq_strerror)

/* The functions, under their own names. */
struct zmq_library {
#define ZMQ_MEMBER(name) __typeof__(&(name)) p_##name;
    ZMQ_FUNCTIONS(ZMQ_MEMBER)
#undef ZMQ_MEMBER
};

/* Valid after zmq_library_load has succeeded. */
extern struct zmq_library zmq_library;

/* Loads the library once. Fails with STATUS_SYSTEM and the package to install. */
enum status zmq_library_load(struct err *err);

#endif
