/* The differences of two readings of the same options, for a server that reads them again. */
#include <assert.h>
#include <string.h>

#include "server/options/table.h"

static bool texts_equal(const char *a, const char *b) {
    if (!a || !b) return a == b;
    return strcmp(a, b) == 0;
}

static bool values_equal(const struct option *option, const void *a, const void *b) {
    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_NAMES:
    case OPTION_PAIRS:
    case OPTION_LIST:
        return texts_equal(*(const char *const *)a, *(const char *const *)b);
    case OPTION_ENUM:
    case OPTION_INT:
        return *(const int *)a == *(const int *)b;
    case OPTION_INT64:
    case OPTION_SIZE:
        return *(const int64_t *)a == *(const int64_t *)b;
    case OPTION_REAL:
        return memcmp(a, b, sizeof(double)) == 0;
    case OPTION_SPECULATION:
        return memcmp(a, b, sizeof(struct speculation)) == 0;
    case OPTION_BOOL:
        return *(const bool *)a == *(const bool *)b;
    }
    return true;
}

const char *options_fixed_change(const struct options *a, const struct options *b) {
    for (int i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        const char *in_a = (const char *)a + option->offset,
                   *in_b = (const char *)b + option->offset;
        if (!option->is_reloaded && !values_equal(option, in_a, in_b)) return option->name;
    }
    return NULL;
}

enum status options_read_again(const struct options *first, struct options *out, struct err *err) {
    assert(first != out && first->again.command);
    bool help;
    return options_parse(out, first->again.command, first->again.argc, first->again.argv,
                         first->again.environment, &help, err);
}
