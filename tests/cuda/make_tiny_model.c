/* make_tiny_model PATH: writes the model that tests/e2e serves on the emulated device. It has the
 * features of large models that matter to kernels: groups of query heads, a separate output matrix,
 * two layers. */
#include <stdio.h>

#include "support/tiny_model.h"

int main(int n_arguments, char **arguments) {
    if (n_arguments != 2) {
        fprintf(stderr, "usage: make_tiny_model PATH\n");
        return 2;
    }
    struct tiny_model model;
    tiny_model_defaults(&model);
    model.K = 32;
    model.F = 40;
    model.untied = true; /* a tied model repeats its last token for ever */
    model.context_length = 512;
    tiny_model_write(&model, arguments[1]);
    return 0;
}
