/* Code that the commands share: printing errors and texts, waiting. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/commands/commands.h"

int print_error(const struct err *err) {
    struct buf message = {0};
    options_message(err->message, &message);
    print_failure("%s", message.data);
    buf_free(&message);
    return err->status == STATUS_USAGE ? 2 : 1;
}

void print_text(const char *text, size_t length) {
    bool is_terminal = isatty(STDOUT_FILENO);
    for (size_t at = 0; at < length;) {
        size_t n = utf8_character(text + at, length - at);
        uint32_t code = n ? utf8_code_point(text + at, n) : 0;
        bool steers = (code < ' ' && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0);
        if (steers && is_terminal)
            printf("\\x%02x", n ? (unsigned)code : (unsigned char)text[at]);
        else
            fwrite(text + at, 1, n ? n : 1, stdout);
        at += n ? n : 1;
    }
}

void wait_briefly(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(condition, mutex, &until);
}
