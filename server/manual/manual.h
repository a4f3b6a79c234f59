/* server/manual: man pages and shell completion, made from the tables of commands and options. The
 * build runs them once (main.c); the program does not contain them.
 */
#ifndef PENSTOCK_SERVER_MANUAL_H
#define PENSTOCK_SERVER_MANUAL_H

#include "server/options/table.h"

/* Append a man page: penstock(1), penstock-NAME(1) of a command, penstock.yaml(5). */
void man_program(struct buf *out);
void man_command(const struct command *command, struct buf *out);
void man_file(struct buf *out);

/* Append a completion script. */
void completion_bash(struct buf *out);
void completion_zsh(struct buf *out);
void completion_fish(struct buf *out);

/* ---- values.c ------------------------------------------------------------------------------- */

enum value_kind { VALUE_NONE, VALUE_NAMES, VALUE_FILE, VALUE_FOLDER, VALUE_OTHER };

/* What completes the value of an option. */
enum value_kind value_kind(const struct option *option);

/* Are the arguments of a command files? */
bool takes_files(const struct command *command);

/* Appends the names of an enum's values with spaces between them. */
void value_names(const struct option *option, struct buf *out);

#endif
