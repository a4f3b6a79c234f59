/* Man pages in the man macros of roff. */
#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "server/manual/manual.h"

/* Appends text[length] so that roff prints the same characters. Without an escape, a dot at the
 * start of a line is a request, and dashes and quotes become typographic ones. */
static void roff(const char *text, size_t length, struct buf *out) {
    static const char characters[] = "-\\'`^~";
    static const char *const escapes[] = {"\\-", "\\(rs", "\\(aq", "\\(ga", "\\(ha", "\\(ti"};
    for (size_t i = 0; i < length; i++) {
        const char *special = strchr(characters, text[i]);
        bool starts = i == 0 || text[i - 1] == '\n';
        if (text[i] == '.' && starts) buf_puts(out, "\\&");
        if (special)
            buf_puts(out, escapes[special - characters]);
        else
            buf_add(out, text + i, 1);
    }
}

static void roff_text(const char *text, struct buf *out) {
    roff(text, strlen(text), out);
}

static void head(const char *name, const char *section, const char *summary, struct buf *out) {
    struct buf upper = {0};
    for (const char *at = name; *at; at++) {
        char c = (char)toupper((unsigned char)*at);
        buf_add(&upper, &c, 1);
    }
    assert(upper.length > 0 && *summary);
    buf_puts(out, ".TH ");
    roff_text(upper.data, out);
    buf_printf(out, " %s \"\" \"Penstock %s\" \"Penstock\"\n.SH NAME\n", section,
               build_info().version);
    roff_text(name, out);
    buf_puts(out, " \\- ");
    roff_text(summary, out);
    buf_puts(out, "\n");
    buf_free(&upper);
}

/* Appends prose with examples: lines that begin with two spaces are printed as they are. */
static void about(const char *text, struct buf *out) {
    bool in_example = false;
    while (*text) {
        size_t length = strcspn(text, "\n");
        bool example = strncmp(text, "  ", 2) == 0;
        if (example != in_example) buf_puts(out, example ? ".PP\n.RS 4\n.nf\n" : ".fi\n.RE\n.PP\n");
        in_example = example;
        size_t skipped = example ? 2 : 0;
        roff(text + skipped, length - skipped, out);
        buf_puts(out, "\n");
        text += length + (text[length] == '\n');
    }
    if (in_example) buf_puts(out, ".fi\n.RE\n");
}

static void option_entry(const struct option *option, bool as_key, struct buf *out) {
    assert(option->help && option->group);
    struct buf text = {0};
    if (as_key)
        buf_printf(&text, "%s:", option->name);
    else
        option_flag(option, &text);
    buf_puts(out, ".TP\n.B ");
    roff_text(text.data, out);
    buf_clear(&text);
    if (option->type == OPTION_BOOL)
        buf_puts(&text, as_key ? "true|false" : "");
    else
        option_placeholder(option, &text);
    if (text.length) {
        buf_puts(out, " \\fR");
        roff_text(text.data, out);
    }
    buf_puts(out, "\n");
    bool negated = as_key && option->type == OPTION_BOOL && strcmp(option->fallback, "true") == 0;
    roff_text(negated ? "false: " : "", out);
    roff_text(option->help, out);
    if (option->fallback && (as_key || option->type != OPTION_BOOL)) {
        buf_puts(out, " [");
        roff_text(option->fallback, out);
        buf_puts(out, "]");
    }
    buf_puts(out, "\n");
    buf_free(&text);
}

/* Appends the options of some commands under the headings of their groups. */
static void option_entries(unsigned commands, bool as_key, struct buf *out) {
    const char *group = "";
    for (int i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        if (!(option->commands & commands)) continue;
        if (as_key && strcmp(option->name, "config") == 0) continue;
        if (strcmp(group, option->group) != 0) {
            group = option->group;
            buf_printf(out, ".SS %s\n", group);
        }
        option_entry(option, as_key, out);
    }
}

static void see_also(struct buf *out) {
    buf_puts(out, ".SH SEE ALSO\n.BR penstock (1),\n");
    for (int i = 0; i < command_count; i++) {
        buf_puts(out, ".BR penstock\\-");
        roff_text(command_table[i].name, out);
        buf_puts(out, " (1),\n");
    }
    buf_puts(out, ".BR penstock.yaml (5)\n");
}

static void exit_status(struct buf *out) {
    buf_puts(out,
             ".SH EXIT STATUS\n"
             ".TP\n.B 0\nsuccess\n"
             ".TP\n.B 1\na file, port or model cannot be used, or the output could not be written\n"
             ".TP\n.B 2\nthe options cannot work; the message names the option\n"
             ".TP\n.B 3\nthe GPU failed during work\n");
}

void man_program(struct buf *out) {
    head("penstock", "1", "serve language models over HTTP", out);
    buf_puts(out,
             ".SH SYNOPSIS\n.B penstock\n.I COMMAND\n[flags] [arguments]\n"
             ".SH DESCRIPTION\n"
             "Penstock loads a model and answers the requests of OpenAI's clients, whole or as a\n"
             "stream. A model is a .gguf file, or a folder with config.json, safetensors and "
             "tokenizer.\n"
             ".SH COMMANDS\n");
    for (int i = 0; i < command_count; i++) {
        buf_puts(out, ".TP\n.B ");
        roff_text(command_table[i].name, out);
        buf_puts(out, "\\fR ");
        roff_text(command_table[i].arguments, out);
        buf_puts(out, "\n");
        roff_text(command_table[i].summary, out);
        buf_puts(out, "\n");
    }
    exit_status(out);
    see_also(out);
}

void man_command(const struct command *command, struct buf *out) {
    struct buf name = {0};
    buf_printf(&name, "penstock-%s", command->name);
    head(name.data, "1", command->summary, out);
    buf_puts(out, ".SH SYNOPSIS\n.B penstock ");
    roff_text(command->name, out);
    buf_puts(out, "\\fR [flags] ");
    roff_text(command->arguments, out);
    buf_puts(out, "\n");
    if (*command->about) {
        buf_puts(out, ".SH DESCRIPTION\n");
        about(command->about, out);
    }
    buf_puts(out, ".SH OPTIONS\n"
                  "Defaults are in brackets. Each flag has an environment variable, "
                  "\\-\\-max\\-num\\-seqs\nPENSTOCK_MAX_NUM_SEQS, and a key in the file of\n"
                  ".BR penstock.yaml (5).\nThe order is flag, environment, file, default.\n");
    option_entries(command->bit, false, out);
    exit_status(out);
    see_also(out);
    buf_free(&name);
}

void man_file(struct buf *out) {
    head("penstock.yaml", "5", "options of penstock commands", out);
    buf_puts(out, ".SH DESCRIPTION\n"
                  "The file of\n.B \\-\\-config\nholds lines of\n.IR key : "
                  "value\n"
                  "in YAML. A key is the name of an option. A command ignores the keys of other\n"
                  "commands, so one file serves all. Flags and environment variables override it.\n"
                  "Sizes are written 2GiB, 512MB or in bytes. Defaults are in brackets.\n"
                  ".SH EXAMPLE\n.RS 4\n.nf\n"
                  "model: /var/lib/penstock/models/model.gguf\n"
                  "host: 0.0.0.0\n"
                  "max\\-num\\-seqs: 32\n.fi\n.RE\n.SH KEYS\n");
    option_entries(~0u, true, out);
    see_also(out);
}
