/* The completion script for fish. */
#include <assert.h>
#include <string.h>

#include "server/manual/manual.h"

static void describe(const char *text, struct buf *out) {
    buf_puts(out, " -d '");
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') buf_puts(out, "\\");
        buf_add(out, text, 1);
    }
    buf_puts(out, "'");
}

static void flag(const struct command *command, const struct option *option, struct buf *out) {
    struct buf name = {0};
    option_flag(option, &name);
    assert(strncmp(name.data, "--", 2) == 0);
    buf_printf(out, "complete -c penstock -n '__fish_seen_subcommand_from %s' -l %s", command->name,
               name.data + 2);
    switch (value_kind(option)) {
    case VALUE_NONE:
        break;
    case VALUE_NAMES:
        buf_puts(out, " -x -a '");
        value_names(option, out);
        buf_puts(out, "'");
        break;
    case VALUE_FILE:
        buf_puts(out, " -r -F");
        break;
    case VALUE_FOLDER:
        buf_puts(out, " -x -a '(__fish_complete_directories)'");
        break;
    case VALUE_OTHER:
        buf_puts(out, " -x");
        break;
    }
    describe(option->help, out);
    buf_puts(out, "\n");
    buf_free(&name);
}

void completion_fish(struct buf *out) {
    buf_puts(out, "# Completion of penstock for fish, made from its table of options.\n"
                  "complete -c penstock -f\n"
                  "complete -c penstock -n __fish_use_subcommand -a help");
    describe("show the flags of a command", out);
    buf_puts(out, "\n");
    for (int i = 0; i < command_count; i++) {
        const struct command *command = &command_table[i];
        for (int helps = 0; helps < 2; helps++) {
            buf_printf(out, "complete -c penstock -n %s -a %s",
                       helps ? "'__fish_seen_subcommand_from help'" : "__fish_use_subcommand",
                       command->name);
            describe(command->summary, out);
            buf_puts(out, "\n");
        }
        if (takes_files(command))
            buf_printf(out, "complete -c penstock -n '__fish_seen_subcommand_from %s' -F\n",
                       command->name);
        buf_printf(out,
                   "complete -c penstock -n '__fish_seen_subcommand_from %s' -l help -d 'show the "
                   "flags'\n",
                   command->name);
        for (int j = 0; j < option_count; j++) {
            if (option_table[j].commands & command->bit) flag(command, &option_table[j], out);
        }
    }
}
