/* penstock <command> [options]: finds the command, weighs its options, and hands over. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/commands.h"

extern char **environ;

struct command {
    const char *name;
    int (*run)(const struct options *options);
};

static const struct command commands[] = {
    {"serve", command_serve},     {"run", command_run},         {"batch", command_batch},
    {"bench", command_bench},     {"inspect", command_inspect}, {"tokenize", command_tokenize},
    {"version", command_version},
};

static const struct command *find(const char *name) {
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

static void setup_log(const struct options *options) {
    static const char *const names[] = {"debug", "info", "warning", "error"};
    int level = LOG_INFO;
    for (int i = 0; i < 4; i++) {
        if (strcmp(options->log_level, names[i]) == 0) level = i;
    }
    log_setup((enum log_level)level,
              strcmp(options->log_format, "json") == 0 ? LOG_JSON : LOG_TEXT);
}

/* What a command printed must have arrived: a full disk is not a success. */
static int end_output(int code) {
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (!lost || code != 0) return code;
    fprintf(stderr, "penstock: the output could not be written\n");
    return 1;
}

static int run(const struct command *command, int argc, char **argv) {
    struct options options;
    struct err err;
    bool help = false;
    if (options_parse(&options, command->name, argc, argv, environ, &help, &err)) {
        fprintf(stderr, "penstock %s: %s\n", command->name, err.message);
        return err.status == STATUS_USAGE ? 2 : 1;
    }
    if (help) {
        options_free(&options);
        return print_help(command->name, stdout);
    }
    setup_log(&options);
    int code = command->run(&options);
    options_free(&options);
    return code;
}

/* The option parser knows all commands, and which one was meant. */
static int refuse_command(const char *name) {
    struct options options;
    struct err err;
    bool help;
    options_parse(&options, name, 0, NULL, environ, &help, &err);
    fprintf(stderr, "penstock: %s\n", err.message);
    return 2;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away is an error of its write, not our end */
    if (argc < 2) return print_help(NULL, stderr);
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return end_output(print_help(NULL, stdout));
    }
    if (strcmp(name, "--version") == 0) name = "version";
    const struct command *command = find(name);
    if (!command) return refuse_command(name);
    return end_output(run(command, argc - 2, argv + 2));
}
