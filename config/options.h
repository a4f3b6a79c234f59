/* config/options: the option table and the steps between a command line and `struct options`, for
 * this folder only.
 *
 * The table is the single place where an option is described. From it come the flags, the
 * environment variables, the keys of the YAML file, --help and the README's table. A value passes
 * through here in two steps: each source fills a `struct setting` (text, and where it came from),
 * then option_set checks the winning text and stores it.
 */
#ifndef PENSTOCK_CONFIG_OPTIONS_H
#define PENSTOCK_CONFIG_OPTIONS_H

#include "config/config.h"

enum option_type {
    OPTION_TEXT,  /* const char *, NULL without a default */
    OPTION_NAMES, /* const char *, words with commas between them; flags take several words */
    OPTION_ENUM,  /* an enum, one of `names` */
    OPTION_LIST,  /* const char *, whole numbers with commas between them */
    OPTION_INT,   /* int */
    OPTION_INT64, /* int64_t */
    OPTION_SIZE,  /* int64_t, bytes; written as 2GiB, 512MB, 4096; a min of -1: "auto" is -1 */
    OPTION_REAL,  /* double */
    OPTION_SPECULATION, /* struct speculation; a JSON object, or the name of a method */
    OPTION_BOOL,        /* bool; the flags are --name and --no-name */
};

/* Which commands an option or a row of the command table belongs to. */
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
};

struct command {
    const char *name;
    unsigned bit;
    const char *arguments; /* as shown after the flags, e.g. "[PROMPT]" */
    int max_arguments;
    bool argument_is_model; /* a bare PATH stands for --model PATH */
    const char *summary;
    const char *about; /* what --help says besides: lines that begin with two spaces are examples */
};

struct option {
    const char *name;    /* as in the flag, without dashes in front */
    const char *metavar; /* what --help shows for the value; NULL: the names */
    enum option_type type;
    size_t offset;        /* of the field in struct options */
    const char *fallback; /* the default as a user would write it; NULL: none */
    int64_t min, max;     /* range of numbers, and of each one of a list */
    const struct named_value *names;
    unsigned commands;
    const char *group; /* heading in --help */
    const char *help;  /* of the flag as shown: of a boolean that is on, of --no-NAME */
};

extern const struct option option_table[];
extern const int option_count;
extern const struct command command_table[];
extern const int command_count;

/* Reads the value of an OPTION_SPECULATION, given by `who`. Fails with STATUS_USAGE and the key. */
enum status speculation_read(struct speculation *out, const char *who, const char *text,
                             struct err *err);

/* The row of a command, or NULL. */
const struct command *command_find(const char *name);

/* The row of the option that `name[length]` names, '_' counting as '-', or -1. A boolean is also
 * found by "no-" and its name; *negated says so. */
int option_find(const char *name, size_t length, bool *negated);

/* The row of a command's option that has the letter as its short flag, or -1. */
int option_find_letter(char letter, unsigned command);

/* Appends what --help shows for an option's value: its metavar, or "auto|cpu|cuda". */
void option_placeholder(const struct option *option, struct buf *out);

/* Appends the environment variable of an option, e.g. PENSTOCK_MAX_MODEL_LEN. */
void option_variable(const struct option *option, struct buf *out);

/* The name among `commands`' options that is most like `name[length]`, or NULL when none is like
 * it. */
const char *option_nearest(const char *name, size_t length, unsigned commands);

/* The name of the command that is most like `name`, or NULL. */
const char *command_nearest(const char *name);

/* ---- settings: what the sources say --------------------------------------------------------- */

enum source { SOURCE_NONE, SOURCE_FLAG, SOURCE_ENVIRONMENT, SOURCE_FILE };

/* The text given for one option, and by whom; it lives as long as the options do. */
struct setting {
    enum source source;
    const char *text;
    bool negated; /* the name was "no-" and a boolean's */
    int line;     /* SOURCE_FILE: where the key stands */
};

/* Checks `text` against the option's type and range and stores it in `options`. `who` names the
 * source in the error, e.g. "--port" or "server.yaml:3: port". Text is kept, not copied. */
enum status option_set(const struct option *option, const char *text, const char *who,
                       struct options *options, struct err *err);

/* Reads YAML from data[length] into the settings[option_count] that no earlier source has filled.
 * Keys are option names; an option of another command is passed over by whoever applies the
 * settings, so that one file serves all commands. `path` names the file in errors; texts are copied
 * into `arena`. Fails with STATUS_BAD_FILE. */
enum status options_file_parse(const char *path, const char *data, size_t length,
                               struct setting *settings, struct arena *arena, struct err *err);

/* The same from a file of at most 1 MiB. */
enum status options_file_read(const char *path, struct setting *settings, struct arena *arena,
                              struct err *err);

#endif
