#include "server/kv_events/library.h"

#include <dlfcn.h>

struct zmq_library zmq_library;

/* Sets *function to a function of the library; false: the library lacks it. */
static bool bind_one(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    *(void **)function = found;
    return found != NULL;
}

enum status zmq_library_load(struct err *err) {
    static bool is_loaded;
    bool whole = true;
    if (is_loaded) return STATUS_OK;
    void *library = dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(err, STATUS_SYSTEM, NULL,
                       "--kv-events needs the library libzmq.so.5; install it (in Debian, the "
                       "package libzmq5)");
#define ZMQ_BIND(name) whole &= bind_one(library, #name, &zmq_library.p_##name);
    ZMQ_FUNCTIONS(ZMQ_BIND)
    if (!whole)
        return err_set(err, STATUS_SYSTEM, NULL,
                       "libzmq lacks functions that --kv-events needs; install its version 4.3");
    is_loaded = true;
    return STATUS_OK;
}
