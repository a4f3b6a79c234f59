/* server/options: the option table, and the steps from a command line to `struct options`. Internal
 * to this folder.
 *
 * The table is the only description of an option. It produces the flags, the environment variables,
 * the keys of the YAML file, --help and the README's table. A value is processed in two steps: each
 * source fills a `struct setting` (text and source), then option_set checks the text of the source
 * with priority and stores it.
 */
#ifndef PENSTOCK_SERVER_OPTIONS_TABLE_H
#define PENSTOCK_SERVER_OPTIONS_TABLE_H

#include "server/options/options.h"

enum option_type {
    OPTION_TEXT,        /* const char *; NULL without a default */
    OPTION_NAMES,       /* const char *, words separated by commas; a flag accepts several words */
    OPTION_PAIRS,       /* the same for NAME=VALUE, and repeated flags add to each other */
    OPTION_ENUM,        /* an enum, one of `names` */
    OPTION_LIST,        /* const char *, whole numbers separated by commas */
    OPTION_INT,         /* int; "auto" means -1 if it is the default and min is -1 */
    OPTION_INT64,       /* int64_t */
    OPTION_SIZE,        /* int64_t, bytes: 2GiB, 512MB, 4096; "auto" as for OPTION_INT */
    OPTION_REAL,        /* double */
    OPTION_SPECULATION, /* struct speculation; a JSON object or the name of a method */
    OPTION_BOOL,        /* bool; the flags are --name and --no-name */
};

/* The commands of an option or of a row of the command table: a bit set. */
enum {
    COMMAND_SERVE = 1 << 0,
    COMMAND_RUN = 1 << 1,
    COMMAND_BENCH = 1 << 2,
    COMMAND_INSPECT = 1 << 3,
    COMMAND_TOKENIZE = 1 << 4,
    COMMAND_VERSION = 1 << 5,
    COMMAND_BATCH = 1 << 6,
    COMMAND_QUANTIZE = 1 << 7,
    COMMAND_PARSE = 1 << 8,
    COMMAND_GRAMMAR = 1 << 9,
    COMMAND_PULL = 1 << 10,
    COMMAND_LIST = 1 << 11,
    COMMAND_RM = 1 << 12,
    COMMAND_HEALTH = 1 << 13,
    COMMAND_VERIFY = 1 << 14,
};

enum { MAX_ARGUMENTS = 1024 }; /* of a command that takes any number of files */

struct command {
    const char *name;
    unsigned bit;
    const char *arguments; /* shown after the flags, e.g. "[PROMPT]" */
    int max_arguments;
    bool argument_is_model; /* a bare PATH means --model PATH */
    const char *summary;
    /* additional text of --help; lines that begin with two spaces are examples */
    const char *about;
};

struct option {
    const char *name;    /* of the flag, without leading dashes */
    const char *metavar; /* the value's name in --help; NULL: the names of an enum */
    enum option_type type;
    size_t offset;        /* in struct options */
    const char *fallback; /* the default, as a user writes it, or NULL */
    int64_t min, max;     /* range of a number, or of each number of a list */
    const struct named_value *names;
    unsigned commands;
    const char *group; /* heading in --help */
    const char *help;  /* describes the flag as shown: for a boolean that is on, --no-NAME */
    bool is_reloaded;  /* SIGHUP applies a changed value */
};

extern const struct option option_table[];
extern const int option_count;
extern const struct command command_table[];
extern const int command_count;

/* Parses the value of an OPTION_SPECULATION from the source `who`. Fails with STATUS_USAGE and the
 * key. */
enum status speculation_read(struct speculation *out, const char *who, const char *text,
                             struct err *err);

/* Returns the row of a command, or NULL. */
const struct command *command_find(const char *name);

/* Returns the index of the option `name[length]`, or -1. '_' equals '-'. A boolean is also found by
 * "no-" and its name; *negated is then true. */
int option_find(const char *name, size_t length, bool *negated);

/* Returns the index of a command's option with this short flag, or -1. */
int option_find_letter(char letter, unsigned command);

/* Appends an option's flag without its value, in the form that changes a boolean's default:
 * "--port", "--no-history". */
void option_flag(const struct option *option, struct buf *out);

/* Appends the value of an option as --help shows it: its metavar, or "auto|cpu|cuda". */
void option_placeholder(const struct option *option, struct buf *out);

/* Appends the environment variable of an option, e.g. PENSTOCK_MAX_MODEL_LEN. */
void option_variable(const struct option *option, struct buf *out);

/* Returns the option of `commands` whose name is most similar to `name[length]`, or NULL if all
 * names differ too much. */
const char *option_nearest(const char *name, size_t length, unsigned commands);

/* Returns the name of the most similar command, or NULL. */
const char *command_nearest(const char *name);

/* Sets the settings that follow from the stated options. */
void options_settle(struct options *options);

/* ---- settings: text from the sources -------------------------------------------------------- */

enum source { SOURCE_NONE, SOURCE_FLAG, SOURCE_ENVIRONMENT, SOURCE_FILE };

/* The text of one option and its source. Lives as long as the options. */
struct setting {
    enum source source;
    const char *text;
    bool negated; /* the name was "no-" and a boolean's name */
    int line;     /* SOURCE_FILE: line of the key */
};

/* Checks `text` against the option's type and range and stores it in `options`. `who` names the
 * source in the error, e.g. "--port" or "server.yaml:3: port". The text is not copied. */
enum status option_set(const struct option *option, const char *text, const char *who,
                       struct options *options, struct err *err);

/* Reads YAML from data[length] into those of settings[option_count] that earlier sources have not
 * set. Keys are option names. The code that applies the settings ignores options of other commands,
 * so one file serves all commands. `path` names the file in errors. Texts are copied to `arena`.
 * Fails with STATUS_BAD_FILE. */
enum status options_file_parse(const char *path, const char *data, size_t length,
                               struct setting *settings, struct arena *arena, struct err *err);

/* The same for a file of at most 1 MiB. */
enum status options_file_read(const char *path, struct setting *settings, struct arena *arena,
                              struct err *err);

#endif
