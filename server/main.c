/* penstock <command> [options]: finds the command, parses its options, and runs it. */
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/commands/commands.h"

extern char **environ;

struct subcommand {
    const char *name;
    int (*run)(struct options *options);
};

static const struct subcommand commands[] = {
    {"serve", command_serve},       {"run", command_run},         {"batch", command_batch},
    {"bench", command_bench},       {"inspect", command_inspect}, {"quantize", command_quantize},
    {"tokenize", command_tokenize}, {"parse", command_parse},     {"grammar", command_grammar},
    {"pull", command_pull},         {"list", command_list},       {"rm", command_rm},
    {"verify", command_verify},     {"health", command_health},   {"version", command_version},
};

static const struct subcommand *find(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

static int print_help(const char *command, FILE *out) {
    struct buf text = {0};
    options_help(command, &text);
    fputs(text.data, out);
    buf_free(&text);
    return out == stdout ? 0 : 2;
}

/* Fails a command whose output was lost, for example on a full disk. */
static int end_output(int code) {
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (!lost || code != 0) return code;
    print_failure("the output could not be written");
    return 1;
}

/* Explains how to use a model or a flag that was given instead of a command; otherwise reports the
 * most similar command. */
static int refuse_command(const char *name) {
    struct options options;
    struct err err;
    bool help;
    if (name[0] == '-') {
        print_failure("a command must come before %s: penstock COMMAND %s ...; `penstock --help` "
                      "lists the commands",
                      name, name);
        return 2;
    }
    if (access(name, F_OK) == 0) {
        print_failure("%s is not a command; `penstock serve %s` serves it over HTTP, and `penstock "
                      "run --model %s --chat` starts a conversation",
                      name, name, name);
        return 2;
    }
    enum status status = options_parse(&options, name, 0, NULL, environ, &help, &err);
    assert(status); /* both tables have the same commands */
    return print_error(&err);
}

static int run(const struct subcommand *command, int argc, char **argv) {
    struct options options;
    struct err err;
    bool help = false;
    if (options_parse(&options, command->name, argc, argv, environ, &help, &err)) {
        int code = print_error(&err);
        if (strcmp(err.param, "model") == 0) print_models_near(".");
        return code;
    }
    if (help) {
        options_free(&options);
        return print_help(command->name, stdout);
    }
    log_setup(options.log.level, options.log.format);
    int code = command->run(&options);
    options_free(&options);
    return code;
}

/* Opens closed standard files. Otherwise the next opened file would replace one: input would be
 * read from an internal pipe, and messages written to a connection. */
static void hold_standard_files(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* read-only, so that writes still fail */
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

/* Ignores signals that would end the process although it can continue. */
static void ignore_signals(void) {
    signal(SIGPIPE, SIG_IGN); /* writes to a closed reader only fail */
    signal(SIGXFSZ, SIG_IGN); /* writes to a file at its size limit only fail */
    signal(SIGUSR1, SIG_IGN); /* sent by log rotation and monitors, also while a model loads */
    signal(SIGUSR2, SIG_IGN);
}

int main(int argc, char **argv) {
    hold_standard_files();
    ignore_signals();
    if (argc < 2) return print_help(NULL, stderr);
    const char *name = argv[1], *topic = NULL;
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (help && argc > 2) topic = argv[2];
    if (topic && !find(topic)) return refuse_command(topic);
    if (help) return end_output(print_help(topic, stdout));
    if (strcmp(name, "--version") == 0 || strcmp(name, "-v") == 0) name = "version";
    const struct subcommand *command = find(name);
    return command ? end_output(run(command, argc - 2, argv + 2)) : refuse_command(name);
}
