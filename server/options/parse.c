/* Collects flags, environment and file as text first; each source sets only options that earlier
 * sources have not set. Then each option's text is checked and stored. So an invalid value is
 * ignored if an earlier source overrides it, and only options_parse defines the order of the
 * sources. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/options/table.h"

/* Far above the kernel's limit for a command line and an environment, plus 1 MiB for the file. */
#define ARENA_BYTES ((size_t)64 << 20)

/* Commands that open no model. */
#define NO_MODEL                                                                                   \
    (COMMAND_VERSION | COMMAND_PARSE | COMMAND_GRAMMAR | COMMAND_HEALTH | COMMAND_PULL |           \
     COMMAND_LIST | COMMAND_RM)

/* The state of one options_parse. */
struct options_parse {
    const struct command *command;
    struct options *options;
    struct setting *settings; /* [option_count] */
    struct arena *arena;
    struct err *err;
};

static enum status set_text(struct options_parse *parse, int index, enum source source,
                            const char *text, bool negated) {
    assert(index >= 0 && index < option_count);
    char *copy = arena_strndup(parse->arena, text, strlen(text));
    if (!copy) {
        return err_set(parse->err, STATUS_USAGE, option_table[index].name,
                       "the value of %s is too long", option_table[index].name);
    }
    parse->settings[index] = (struct setting){source, copy, negated, 0};
    return STATUS_OK;
}

/* ---- flags ---------------------------------------------------------------------------------- */

static enum status unknown_flag(struct options_parse *parse, const char *name, size_t length) {
    const char *nearest = option_nearest(name, length, parse->command->bit);
    int shown = (int)(length < 80 ? length : 80);
    if (nearest) {
        return err_set(parse->err, STATUS_USAGE, NULL,
                       "%s: unknown flag --%.*s; did you mean --%s?", parse->command->name, shown,
                       name, nearest);
    }
    return err_set(parse->err, STATUS_USAGE, NULL,
                   "%s: unknown flag --%.*s; `penstock %s --help` lists its flags",
                   parse->command->name, shown, name, parse->command->name);
}

/* Does this word after the first word of a list belong to the list? If the command accepts the
 * model's path as a bare word and --model is missing, the word may be that path. */
static bool is_name(const struct options_parse *parse, int argc, char **argv, int at) {
    if (argv[at][0] == '-') return false;
    bool has_model = !parse->command->argument_is_model || parse->options->n_arguments > 0;
    for (int i = 0; i < argc; i++) {
        has_model |= strcmp(argv[i], "--model") == 0 || strncmp(argv[i], "--model=", 8) == 0;
    }
    return has_model;
}

/* Reads an option's value, which may be the next argument. */
static enum status read_value(struct options_parse *parse, int index, bool negated,
                              const char *value, int argc, char **argv, int *at) {
    assert(index >= 0 && index < option_count);
    const struct option *option = &option_table[index];
    if (negated && value) {
        return err_set(parse->err, STATUS_USAGE, option->name,
                       "--no-%s does not take a value; leave out \"=%s\"", option->name, value);
    }
    if (!value && option->type == OPTION_BOOL) value = "true";
    if (!value && *at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0) value = argv[++*at];
    if (!value) {
        struct buf form = {0};
        option_placeholder(option, &form);
        enum status status =
            err_set(parse->err, STATUS_USAGE, option->name,
                    "--%s needs a value: --%s %s; one that begins with -- is given as --%s=VALUE",
                    option->name, option->name, form.data, option->name);
        buf_free(&form);
        return status;
    }
    const struct setting *before = &parse->settings[index];
    const bool adds = option->type == OPTION_PAIRS;
    if (option->type != OPTION_NAMES && !adds)
        return set_text(parse, index, SOURCE_FLAG, value, negated);
    struct buf names = {0};
    if (adds && before->source == SOURCE_FLAG && before->text)
        buf_printf(&names, "%s,", before->text);
    buf_puts(&names, value);
    while (*at + 1 < argc && is_name(parse, argc, argv, *at + 1)) {
        buf_printf(&names, ",%s", argv[++*at]);
    }
    enum status status = set_text(parse, index, SOURCE_FLAG, names.data, negated);
    buf_free(&names);
    return status;
}

/* Reads the flag argv[*at] and its value. */
static enum status read_flag(struct options_parse *parse, int argc, char **argv, int *at) {
    const char *name = argv[*at] + 2;
    size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    bool negated;
    int index = option_find(name, length, &negated);
    if (index < 0 || !(option_table[index].commands & parse->command->bit)) {
        return unknown_flag(parse, name, length);
    }
    return read_value(parse, index, negated, value, argc, argv, at);
}

static enum status add_argument(struct options_parse *parse, const char *text) {
    struct options *options = parse->options;
    if (options->n_arguments >= parse->command->max_arguments) {
        if (parse->command->max_arguments == 0) {
            return err_set(parse->err, STATUS_USAGE, NULL,
                           "%s does not take an argument, but was given \"%s\"",
                           parse->command->name, text);
        }
        return err_set(parse->err, STATUS_USAGE, NULL,
                       "%s takes %s, but was also given \"%s\"; put a text with spaces in quotes",
                       parse->command->name,
                       parse->command->max_arguments == 1   ? "one argument"
                       : parse->command->max_arguments == 2 ? "two arguments"
                                                            : "at most 1024 arguments",
                       text);
    }
    char *copy = arena_strndup(parse->arena, text, strlen(text));
    if (!copy) return err_set(parse->err, STATUS_USAGE, NULL, "the argument is too long");
    options->arguments[options->n_arguments++] = copy;
    return STATUS_OK;
}

static enum status read_flags(struct options_parse *parse, int argc, char **argv, bool *help) {
    bool flags = true;
    for (int i = 0; i < argc; i++) {
        enum status status = STATUS_OK;
        if (flags && strcmp(argv[i], "--") == 0) {
            flags = false;
        } else if (flags && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            *help = true;
            return STATUS_OK;
        } else if (flags && strncmp(argv[i], "--", 2) == 0) {
            status = read_flag(parse, argc, argv, &i);
        } else if (flags && argv[i][0] == '-' && argv[i][1]) {
            int index = argv[i][2] ? -1 : option_find_letter(argv[i][1], parse->command->bit);
            if (index >= 0)
                status = read_value(parse, index, false, NULL, argc, argv, &i);
            else
                status = err_set(parse->err, STATUS_USAGE, NULL,
                                 "%s is not a flag: flags begin with two dashes, and -- ends them",
                                 argv[i]);
        } else {
            status = add_argument(parse, argv[i]);
        }
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* ---- environment ---------------------------------------------------------------------------- */

/* Returns the value of `name` in a list like environ, or NULL. An empty value counts as absent,
 * because a compose file passes an unset variable that way. */
static const char *variable_value(char **environment, const char *name, size_t length) {
    for (; environment && *environment; environment++) {
        const char *entry = *environment;
        if (strncmp(entry, name, length) == 0 && entry[length] == '=') {
            return entry[length + 1] ? entry + length + 1 : NULL;
        }
    }
    return NULL;
}

static enum status read_environment(struct options_parse *parse, char **environment) {
    struct buf name = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < option_count && status == STATUS_OK; i++) {
        if (!(option_table[i].commands & parse->command->bit)) continue;
        if (parse->settings[i].source != SOURCE_NONE) continue;
        buf_clear(&name);
        option_variable(&option_table[i], &name);
        const char *value = variable_value(environment, name.data, name.length);
        if (value) status = set_text(parse, i, SOURCE_ENVIRONMENT, value, false);
    }
    buf_free(&name);
    return status;
}

static enum status read_file(struct options_parse *parse) {
    bool negated;
    int index = option_find("config", strlen("config"), &negated);
    const char *path = parse->settings[index].text;
    if (!path) return STATUS_OK;
    return options_file_read(path, parse->settings, parse->arena, parse->err);
}

/* ---- checking and storing ------------------------------------------------------------------- */

/* Appends the user's name for a setting, which shows its source. */
static void who_text(const struct options_parse *parse, const struct option *option,
                     const struct setting *setting, struct buf *out) {
    bool negated;
    int config = option_find("config", strlen("config"), &negated);
    if (setting->source == SOURCE_ENVIRONMENT) {
        option_variable(option, out);
    } else if (setting->source == SOURCE_FILE) {
        buf_printf(out, "%s:%d: %s", parse->settings[config].text, setting->line, option->name);
    } else {
        buf_printf(out, "--%s", option->name);
    }
}

static enum status apply_one(struct options_parse *parse, int index) {
    assert(index >= 0 && index < option_count);
    const struct option *option = &option_table[index];
    const struct setting *setting = &parse->settings[index];
    bool given = setting->source != SOURCE_NONE && option->commands & parse->command->bit;
    const char *text = given ? setting->text : option->fallback;
    if (!text) return STATUS_OK;
    struct buf who = {0};
    who_text(parse, option, setting, &who);
    enum status status = option_set(option, text, who.data, parse->options, parse->err);
    buf_free(&who);
    if (given && setting->negated && status == STATUS_OK) {
        bool *field = (bool *)((char *)parse->options + option->offset);
        *field = !*field;
    }
    if (status == STATUS_USAGE && setting->source == SOURCE_FILE) {
        status = STATUS_BAD_FILE;
        if (parse->err) parse->err->status = status;
    }
    return status;
}

/* Refuses options of a server that exclude one another. */
static enum status check_together(const struct options *options, struct err *err) {
    const int unload_s = options->drain.unload_s, idle_s = options->drain.idle_s;
    if (unload_s > 0 && idle_s > 0 && unload_s >= idle_s)
        return err_set(err, STATUS_USAGE, "unload-when-idle",
                       "--unload-when-idle %d never happens with --exit-when-idle %d: give it "
                       "fewer seconds, or leave one out",
                       unload_s, idle_s);
    if (options->receipts.record && options->state.folder)
        return err_set(err, STATUS_USAGE, "record",
                       "--record does not work with --state-dir: a promise would be recorded as a "
                       "stream, whatever its client gets; leave one out");
    return STATUS_OK;
}

/* Are a model, if the command needs one, and a batch's files given? */
static enum status check_required(struct options_parse *parse) {
    struct options *options = parse->options;
    const struct command *command = parse->command;
    if (command->argument_is_model && options->n_arguments > 0) {
        if (options->engine.model && parse->settings[0].source == SOURCE_FLAG) {
            return err_set(parse->err, STATUS_USAGE, "model",
                           "%s was given two models, --model %s and %s; leave one out",
                           command->name, options->engine.model, options->arguments[0]);
        }
        options->engine.model = options->arguments[0];
    }
    if (command->bit == COMMAND_BATCH &&
        !(options->batch.input_file && options->batch.output_file)) {
        return err_set(parse->err, STATUS_USAGE,
                       options->batch.input_file ? "output-file" : "input-file",
                       "batch needs a file of requests and one for their answers: -i FILE -o FILE");
    }
    if (command->bit == COMMAND_QUANTIZE && options->n_arguments < command->max_arguments)
        return err_set(parse->err, STATUS_USAGE, NULL,
                       "quantize needs two files: penstock quantize IN OUT.gguf");
    if (command->bit & (COMMAND_PULL | COMMAND_RM) && options->n_arguments == 0)
        return err_set(parse->err, STATUS_USAGE, NULL,
                       "%s needs the name of a model: penstock %s org/repo", command->name,
                       command->name);
    if (command->bit == COMMAND_VERIFY && options->n_arguments == 0)
        return err_set(parse->err, STATUS_USAGE, NULL,
                       "verify needs receipts: penstock verify RECEIPT... --model MODEL");
    if (check_together(options, parse->err)) return STATUS_USAGE;
    if (options->engine.model && *options->engine.model) return STATUS_OK;
    if (command->bit & NO_MODEL) return STATUS_OK;
    if (command->bit == COMMAND_SERVE && options->receipts.replay) return STATUS_OK;
    return err_set(parse->err, STATUS_USAGE, "model",
                   "%s needs a model: %sPATH of a .gguf file or a folder, or a name on a model hub",
                   command->name, command->bit == COMMAND_INSPECT ? "" : "--model ");
}

enum status options_parse(struct options *options, const char *command, int argc, char **argv,
                          char **environment, bool *help, struct err *err) {
    *options = (struct options){0};
    *help = false;
    struct options_parse parse = {.command = command_find(command), .options = options, .err = err};
    if (!parse.command) {
        const char *nearest = command_nearest(command);
        return err_set(err, STATUS_USAGE, NULL, "unknown command \"%s\"; %s%s%s", command,
                       nearest ? "did you mean " : "`penstock --help` lists them",
                       nearest ? nearest : "", nearest ? "?" : "");
    }
    options->owned = parse.arena = arena_new(ARENA_BYTES);
    options->arguments = arena_alloc(parse.arena, (size_t)max_int(1, parse.command->max_arguments) *
                                                      sizeof *options->arguments);
    parse.settings = mem_calloc((size_t)option_count, sizeof *parse.settings);
    enum status status = read_flags(&parse, argc, argv, help);
    if (status == STATUS_OK && !*help) status = read_environment(&parse, environment);
    if (status == STATUS_OK && !*help) status = read_file(&parse);
    for (int i = 0; i < option_count && status == STATUS_OK && !*help; i++)
        status = apply_one(&parse, i);
    if (status == STATUS_OK && !*help) status = check_required(&parse);
    if (status == STATUS_OK) options_settle(options);
    options->again.command = parse.command->name;
    options->again.argc = argc;
    options->again.argv = argv;
    options->again.environment = environment;
    mem_free(parse.settings);
    if (status != STATUS_OK) options_free(options);
    return status;
}

const char *options_keep(struct options *options, const char *text) {
    char *copy = arena_strndup(options->owned, text, strlen(text));
    if (!copy) mem_fail(strlen(text));
    return copy;
}

void options_free(struct options *options) {
    arena_free(options->owned);
    *options = (struct options){0};
}
