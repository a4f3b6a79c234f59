/* The version, in text and JSON. */
#include "server/app.h"

void version_write(struct buf *out) {
    struct build_info build = build_info();
    buf_printf(out, "penstock %s (commit %s, %s)", build.version, build.commit, build.build);
}

void version_write_json(struct buf *out, const char *backend) {
    struct build_info build = build_info();
    buf_printf(out, "{\"version\":\"%s\",\"commit\":\"%s\",\"build\":\"%s\",\"backend\":\"%s\"}",
               build.version, build.commit, build.build, backend);
}
