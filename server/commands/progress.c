/* DESIGN: shows the progress of a start that takes longer than a second.
 *
 * On a terminal it is one line that is overwritten. Otherwise, or with JSON logs, it is a log line
 * every REPEAT_NS, so that a log shows that a large model is still loading. Most models load within
 * the first second, during which nothing is shown.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/app/app.h"
#include "server/commands/commands.h"

#define FIRST_NS 1000000000ull
#define REPEAT_NS 5000000000ull
#define BAR 30

void progress_begin(struct progress *progress, bool rewrites) {
    *progress = (struct progress){.rewrites = rewrites, .began_ns = now_ns()};
}

void progress_step(void *arg, const char *what, double part) {
    struct progress *progress = arg;
    uint64_t now = now_ns();
    if (now - progress->began_ns < FIRST_NS) return;
    if (now - progress->reported_ns >= FIRST_NS) {
        supervisor_loading(what, part);
        progress->reported_ns = now;
    }
    if (!progress->rewrites) {
        if (progress->shown_ns && now - progress->shown_ns < REPEAT_NS) return;
        log_line(LOG_INFO, "loading %s: %.0f %% after %.0f s", what, part * 100,
                 (double)(now - progress->began_ns) * 1e-9);
    } else {
        char bar[BAR + 1];
        int full = (int)(part * BAR);
        memset(bar, ' ', BAR);
        memset(bar, '=', (size_t)(full > BAR ? BAR : full));
        bar[BAR] = 0;
        fprintf(stderr, "\rloading %s [%s] %3.0f %%", what, bar, part * 100);
    }
    progress->shown_ns = now;
}

void progress_end(struct progress *progress) {
    if (progress->rewrites && progress->shown_ns) fputs("\r\033[K", stderr); /* erases the line */
}
