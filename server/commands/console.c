/* Code that the commands share: printing errors and texts, waiting, progress.
 *
 * Progress is shown of a start or a pull that takes longer than a second. On a terminal it is one
 * line that is overwritten. Otherwise, or with JSON logs, it is a log line every REPEAT_NS, so that
 * a log shows that a large model is still loading. Most models load within the first second, during
 * which nothing is shown. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/app/app.h"
#include "server/commands/commands.h"

#define FIRST_NS 1000000000ull
#define REPEAT_NS 5000000000ull
#define BAR 30

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

/* ---- progress ------------------------------------------------------------------------------- */

void progress_begin(struct progress *progress, const char *verb, bool rewrites) {
    *progress = (struct progress){.verb = verb, .rewrites = rewrites, .began_ns = now_ns()};
}

void progress_step(void *arg, const char *what, double part) {
    struct progress *progress = arg;
    uint64_t now = now_ns();
    assert(progress->verb && progress->began_ns > 0);
    if (now - progress->began_ns < FIRST_NS) return;
    if (now - progress->reported_ns >= FIRST_NS) {
        supervisor_loading(what, part);
        progress->reported_ns = now;
    }
    if (!progress->rewrites) {
        if (progress->shown_ns && now - progress->shown_ns < REPEAT_NS) return;
        log_line(LOG_INFO, "%s %s: %.0f %% after %.0f s", progress->verb, what, part * 100,
                 (double)(now - progress->began_ns) * 1e-9);
    } else {
        char bar[BAR + 1];
        int full = (int)(part * BAR);
        memset(bar, ' ', BAR);
        memset(bar, '=', (size_t)(full > BAR ? BAR : full));
        bar[BAR] = 0;
        fprintf(stderr, "\r%s %s [%s] %3.0f %%\033[K", progress->verb, what, bar, part * 100);
    }
    progress->shown_ns = now;
}

void progress_end(struct progress *progress) {
    if (progress->rewrites && progress->shown_ns) fputs("\r\033[K", stderr); /* erases the line */
}
