/* The completion script for bash. It does not need the package bash-completion. */
#include "server/manual/manual.h"

/* A flag's value may stand after a space or, as a word of its own, after "=". */
static const char start[] =
    "# Completion of penstock for bash, made from its table of options.\n"
    "_penstock()\n"
    "{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local command=${COMP_WORDS[1]} flags='' files=''\n"
    "    COMPREPLY=()\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur=''\n"
    "    elif [[ $prev == = ]]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    fi\n";

static void command_words(const char *indent, struct buf *out) {
    buf_printf(out, "%sCOMPREPLY=($(compgen -W 'help", indent);
    for (int i = 0; i < command_count; i++) buf_printf(out, " %s", command_table[i].name);
    buf_puts(out, "' -- \"$cur\"))\n");
}

static void value_case(const struct option *option, struct buf *out) {
    enum value_kind kind = value_kind(option);
    if (kind == VALUE_NONE) return;
    buf_puts(out, "    ");
    option_flag(option, out);
    buf_puts(out, ")\n");
    if (kind == VALUE_NAMES) {
        buf_puts(out, "        COMPREPLY=($(compgen -W '");
        value_names(option, out);
        buf_puts(out, "' -- \"$cur\"))\n");
    } else if (kind != VALUE_OTHER) {
        buf_printf(out,
                   "        compopt -o filenames\n"
                   "        mapfile -t COMPREPLY < <(compgen -%c -- \"$cur\")\n",
                   kind == VALUE_FILE ? 'f' : 'd');
    }
    buf_puts(out, "        return ;;\n");
}

static void flags_case(const struct command *command, struct buf *out) {
    buf_printf(out, "    %s) flags='--help", command->name);
    for (int i = 0; i < option_count; i++) {
        if (!(option_table[i].commands & command->bit)) continue;
        buf_puts(out, " ");
        option_flag(&option_table[i], out);
    }
    buf_printf(out, "'%s ;;\n", takes_files(command) ? " files=yes" : "");
}

void completion_bash(struct buf *out) {
    buf_puts(out, start);
    buf_puts(out, "    if ((COMP_CWORD == 1)) || [[ $command == help ]]; then\n");
    command_words("        ", out);
    buf_puts(out, "        return\n    fi\n    case $prev in\n");
    for (int i = 0; i < option_count; i++) value_case(&option_table[i], out);
    buf_puts(out, "    esac\n    case $command in\n");
    for (int i = 0; i < command_count; i++) flags_case(&command_table[i], out);
    buf_puts(out, "    esac\n"
                  "    if [[ $cur == -* ]]; then\n"
                  "        COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
                  "    elif [[ $files ]]; then\n"
                  "        compopt -o filenames\n"
                  "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
                  "    fi\n"
                  "}\n"
                  "complete -F _penstock penstock\n");
}
