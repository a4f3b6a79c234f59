#include "commit.h" /* made by config/commit.cmake */
#include "config/config.h"

struct build_info build_info(void) {
    return (struct build_info){PENSTOCK_VERSION, PENSTOCK_COMMIT, PENSTOCK_BUILD};
}
