#include "support/suite_main.h"

#include <string.h>

int suite_main(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed > 0;
}

bool suite_is_watched(const char *program) {
#ifdef __SANITIZE_ADDRESS__
    return program != NULL;
#else
    return strstr(program, "_checked") != NULL;
#endif
}
