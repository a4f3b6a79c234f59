/* The completion script for zsh. */
#include <string.h>

#include "server/manual/manual.h"

/* Appends text for a place inside single quotes and brackets. */
static void inside(const char *text, struct buf *out) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) buf_puts(out, "\\");
        if (*text == '\'')
            buf_puts(out, "'\\''");
        else
            buf_add(out, text, 1);
    }
}

static void commands(struct buf *out) {
    buf_puts(out, "    commands=(\n        'help:show the flags of a command'\n");
    for (int i = 0; i < command_count; i++) {
        buf_printf(out, "        '%s:", command_table[i].name);
        inside(command_table[i].summary, out);
        buf_puts(out, "'\n");
    }
    buf_puts(out, "    )\n");
}

/* Appends a specification of _arguments: '--port=[port to listen on]:PORT: '. */
static void specification(const struct option *option, struct buf *out) {
    enum value_kind kind = value_kind(option);
    buf_puts(out, "            '");
    option_flag(option, out);
    buf_puts(out, kind == VALUE_NONE ? "[" : "=[");
    inside(option->help, out);
    buf_puts(out, "]");
    if (kind == VALUE_NAMES) {
        buf_puts(out, ":value:(");
        value_names(option, out);
        buf_puts(out, ")");
    }
    if (kind == VALUE_FILE) buf_puts(out, ":file:_files");
    if (kind == VALUE_FOLDER) buf_puts(out, ":folder:_files -/");
    if (kind == VALUE_OTHER) buf_printf(out, ":%s: ", option->metavar ? option->metavar : "value");
    buf_puts(out, "' \\\n");
}

static void command_case(const struct command *command, struct buf *out) {
    buf_printf(out, "        %s)\n            _arguments \\\n", command->name);
    for (int i = 0; i < option_count; i++) {
        if (option_table[i].commands & command->bit) specification(&option_table[i], out);
    }
    buf_puts(out, "            '--help[show the flags]'");
    if (takes_files(command)) buf_puts(out, " \\\n            '*:file:_files'");
    buf_puts(out, " ;;\n");
}

void completion_zsh(struct buf *out) {
    buf_puts(out, "#compdef penstock\n"
                  "# Completion of penstock for zsh, made from its table of options.\n"
                  "_penstock() {\n"
                  "    local state line curcontext=$curcontext\n"
                  "    local -a commands\n");
    commands(out);
    buf_puts(out, "    _arguments -C '1: :->command' '*:: :->rest'\n"
                  "    case $state in\n"
                  "    command) _describe command commands ;;\n"
                  "    rest)\n"
                  "        case $words[1] in\n"
                  "        help) _describe command commands ;;\n");
    for (int i = 0; i < command_count; i++) command_case(&command_table[i], out);
    buf_puts(out, "        esac ;;\n    esac\n}\n_penstock \"$@\"\n");
}
