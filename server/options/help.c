#include <string.h>

#include "server/options/table.h"

#define HELP_COLUMN 36

/* Pads to the column of the explanations. Starts a new line if the flag is too long. */
static void pad(struct buf *out, size_t line_start) {
    size_t used = out->length - line_start;
    if (used + 2 > HELP_COLUMN) {
        buf_puts(out, "\n");
        used = 0;
    }
    buf_printf(out, "%*s", (int)(HELP_COLUMN - used), "");
}

/* Appends an option's flag as a user types it: `--port PORT`, `--device auto|cpu|cuda`,
 * `--no-enable-prefix-caching`. A boolean is shown in the form that changes its default. */
static void flag_text(const struct option *option, struct buf *out) {
    option_flag(option, out);
    if (option->type == OPTION_BOOL) return;
    buf_puts(out, " ");
    option_placeholder(option, out);
}

static void option_line(const struct option *option, struct buf *out) {
    size_t start = out->length;
    buf_puts(out, "  ");
    flag_text(option, out);
    pad(out, start);
    buf_puts(out, option->help);
    if (option->fallback && option->type != OPTION_BOOL) buf_printf(out, " [%s]", option->fallback);
    buf_puts(out, "\n");
}

static void program_help(struct buf *out) {
    buf_puts(out, "usage: penstock COMMAND [flags] [arguments]\n\n");
    for (int i = 0; i < command_count; i++) {
        size_t start = out->length;
        buf_printf(out, "  %s %s", command_table[i].name, command_table[i].arguments);
        pad(out, start);
        buf_printf(out, "%s\n", command_table[i].summary);
    }
    buf_puts(
        out,
        "\n"
        "`penstock help COMMAND` shows examples and all flags of a command. To start:\n"
        "\n"
        "  penstock run --model model.gguf --chat\n"
        "  penstock serve model.gguf\n"
        "\n"
        "A model is a .gguf file, a folder with config.json, safetensors and tokenizer, or a name\n"
        "on a model hub, which is fetched: penstock serve Qwen/Qwen2.5-0.5B-Instruct-GGUF\n");
}

static bool has_flags(const struct command *row) {
    unsigned commands = 0;
    for (int i = 0; i < option_count; i++) commands |= option_table[i].commands;
    return commands & row->bit;
}

void options_help(const char *command, struct buf *out) {
    const struct command *row = command ? command_find(command) : NULL;
    if (!row) {
        program_help(out);
        return;
    }
    buf_printf(out, "penstock %s: %s\n\nusage: penstock %s", row->name, row->summary, row->name);
    if (has_flags(row)) buf_puts(out, " [flags]");
    buf_printf(out, "%s%s\n", *row->arguments ? " " : "", row->arguments);
    if (*row->about) buf_printf(out, "\n%s", row->about);
    const char *group = "";
    for (int i = 0; i < option_count; i++) {
        if (!(option_table[i].commands & row->bit)) continue;
        if (strcmp(group, option_table[i].group) != 0) {
            group = option_table[i].group;
            buf_printf(out, "\n%s\n", group);
        }
        option_line(&option_table[i], out);
    }
    if (!has_flags(row)) return;
    buf_puts(out,
             "\nDefaults are in brackets. Each flag has an environment variable, --max-num-seqs\n"
             "PENSTOCK_MAX_NUM_SEQS, and a key in the YAML file, max-num-seqs. The order is flag,\n"
             "environment, file, default. Sizes are written 2GiB, 512MB or in bytes.\n");
}

/* ---- the table of docs/options.md ----------------------------------------------------------- */

/* Appends text to a Markdown cell. Escapes bars, which would end the cell. */
static void markdown_cell(const char *text, struct buf *out) {
    for (; *text; text++) {
        if (*text == '|') buf_puts(out, "\\");
        buf_add(out, text, 1);
    }
}

void options_markdown(struct buf *out) {
    buf_puts(out,
             "| flag | default | environment | commands | what it does |\n|---|---|---|---|---|\n");
    struct buf flag = {0};
    for (int i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        buf_clear(&flag);
        flag_text(option, &flag);
        buf_puts(out, "| `");
        markdown_cell(flag.data, out);
        buf_printf(out, "` | %s | `", option->fallback ? option->fallback : "");
        option_variable(option, out);
        buf_puts(out, "` | ");
        const char *joint = "";
        for (int j = 0; j < command_count; j++) {
            if (!(command_table[j].bit & option->commands)) continue;
            buf_printf(out, "%s%s", joint, command_table[j].name);
            joint = ", ";
        }
        buf_puts(out, " | ");
        markdown_cell(option->help, out);
        buf_puts(out, " |\n");
    }
    buf_free(&flag);
}
