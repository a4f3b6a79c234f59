/* The version, in text and JSON. The build gives PENSTOCK_VERSION, PENSTOCK_COMMIT and PENSTOCK_BUILD. */
#include "server/app.h"

void version_write(struct buf *out) {
    buf_printf(out, "penstock %s (commit %s, %s)", PENSTOCK_VERSION, PENSTOCK_COMMIT, PENSTOCK_BUILD);
}

void version_write_json(struct buf *out, const char *backend) {
    buf_printf(out, "{\"version\":\"%s\",\"commit\":\"%s\",\"build\":\"%s\",\"backend\":\"%s\"}",
               PENSTOCK_VERSION, PENSTOCK_COMMIT, PENSTOCK_BUILD, backend);
}
