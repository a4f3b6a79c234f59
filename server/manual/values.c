/* Facts about values that all three shells need. */
#include <assert.h>
#include <string.h>

#include "server/manual/manual.h"

static bool is_one_of(const char *word, const char *const *words) {
    while (*words && strcmp(*words, word) != 0) words++;
    return *words;
}

enum value_kind value_kind(const struct option *option) {
    static const char *const files[] = {"FILE", "PATH", "SCHEMA", NULL};
    static const char *const folders[] = {"FOLDER", "DIR", NULL};
    if (option->type == OPTION_BOOL) return VALUE_NONE;
    if (option->names) return VALUE_NAMES;
    if (!option->metavar) return VALUE_OTHER;

    if (is_one_of(option->metavar, files)) return VALUE_FILE;
    return is_one_of(option->metavar, folders) ? VALUE_FOLDER : VALUE_OTHER;
}

bool takes_files(const struct command *command) {
    return strstr(command->arguments, "PATH") || strstr(command->arguments, "FILE") ||
           strstr(command->arguments, "IN ");
}

void value_names(const struct option *option, struct buf *out) {
    assert(option->names);
    for (const struct named_value *at = option->names; at->name; at++)
        buf_printf(out, "%s%s", at > option->names ? " " : "", at->name);
}
