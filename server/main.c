/* penstock <command> [options]: finds the command, parses its options, and runs it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/commands/commands.h"

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

static int print_help(const char *command, FILE *out) {
    struct buf text = {0};
    options_help(command, &text);
    fputs(text.data, out);
    buf_free(&text);
    return out == stdout ? 0 : 2;
}

/* A command whose output was lost, on a full disk say, has not succeeded. */
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
    log_setup(options.log_level, options.log_format);
    int code = command->run(&options);
    options_free(&options);
    return code;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* a reader that is gone makes writes fail, and nothing more */
    if (argc < 2) return print_help(NULL, stderr);
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return end_output(print_help(NULL, stdout));
    }
    if (strcmp(name, "--version") == 0) name = "version";
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return end_output(run(&commands[i], argc - 2, argv + 2));
    }
    struct options options;
    struct err err;
    bool help;
    options_parse(&options, name, 0, NULL, environ, &help, &err); /* names the most similar one */
    fprintf(stderr, "penstock: %s\n", err.message);
    return 2;
}
