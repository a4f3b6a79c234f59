#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"

bool terminal_has_codes(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

const char *terminal_style(int fd, enum terminal_style style) {
    static const char *const codes[] = {
        [TERMINAL_PLAIN] = "\033[0m",    [TERMINAL_ERROR] = "\033[1;31m",
        [TERMINAL_WARNING] = "\033[33m", [TERMINAL_NOTE] = "\033[2m",
        [TERMINAL_PROMPT] = "\033[1m",
    };
    const char *no_colour = getenv("NO_COLOR");
    if (no_colour && *no_colour) return "";
    return terminal_has_codes(fd) ? codes[style] : "";
}

void print_failure(const char *format, ...) {
    va_list args;
    fprintf(stderr, "%spenstock:%s ", terminal_style(STDERR_FILENO, TERMINAL_ERROR),
            terminal_style(STDERR_FILENO, TERMINAL_PLAIN));
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}
