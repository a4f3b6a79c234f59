#include "support/suite_main.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* A program that starts tests in the background, or under nohup, makes them ignore signals. Suites
 * of signals need the default action. */
int suite_main(Suite *suite) {
    for (int i = 0; i < 3; i++) signal((int[]){SIGTERM, SIGINT, SIGHUP}[i], SIG_DFL);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed > 0;
}

void suite_add_models(TCase *tcase, const TTest *test, const char *const *models, int first,
                      int last) {
    const char *only = getenv("PENSTOCK_ONLY");
    for (int i = first; i < last; i++)
        if (!only || strstr(models[i], only)) tcase_add_loop_test(tcase, test, i, i + 1);
}

bool suite_is_watched(const char *program) {
#ifdef __SANITIZE_ADDRESS__
    return program != NULL;
#else
    return strstr(program, "_checked") != NULL;
#endif
}
