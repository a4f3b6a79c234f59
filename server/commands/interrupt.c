/* DESIGN: signals at the terminal.
 *
 * The handler sets a flag that asks to stop, which computing code polls, and writes the signal's
 * number into a pipe, which waiting code polls together with its input. So a signal between a check
 * and a wait is not lost, on any thread, and only the handler runs asynchronously.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/commands/console.h"

static int wake[2] = {-1, -1};
static volatile sig_atomic_t stopping;

static void on_signal(int number) {
    int saved = errno;
    unsigned char byte = (unsigned char)number;
    if (number == SIGINT || number == SIGTERM || number == SIGHUP) stopping = number;
    /* the pipe is full, which also wakes the reader */
    if (write(wake[1], &byte, 1) != 1) errno = saved;
    errno = saved;
}

void interrupt_catch(int number, bool catches) {
    assert(!catches || wake[1] >= 0); /* the handler writes to the pipe */
    struct sigaction action = {.sa_handler = catches ? on_signal : SIG_DFL};
    sigaction(number, &action, NULL);
}

enum status interrupt_open(struct err *err) {
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT};
    assert(wake[0] < 0);
    if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return err_set(err, STATUS_SYSTEM, NULL, "no pipe for signals: %s", strerror(errno));
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction before;
        sigaction(caught[i], NULL, &before);
        /* nohup ignores SIGHUP */
        if (before.sa_handler != SIG_IGN) interrupt_catch(caught[i], true);
    }
    return STATUS_OK;
}

int interrupt_pending(void) {
    return stopping;
}

void interrupt_stop(void) {
    stopping = SIGINT;
}

void interrupt_clear(void) {
    unsigned char bytes[64];
    stopping = 0;
    while (read(wake[0], bytes, sizeof bytes) > 0) continue;
}

int interrupt_wait(int fd) {
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = wake[0], .events = POLLIN}};
    for (;;) {
        unsigned char number;
        int n = poll(fds, 2, -1);
        if (read(wake[0], &number, 1) == 1) return number;
        if (n > 0 || (n < 0 && errno != EINTR)) return 0; /* the following read reports the error */
    }
}

/* Does not use stdio, which continues to read after the end of a terminal's input. */
int read_input(struct buf *text) {
    char part[65536];
    ssize_t n = 1;
    buf_add(text, "", 0);
    if (isatty(STDIN_FILENO))
        fprintf(stderr, "Type the text; Ctrl-D at the beginning of a line ends it.\n");
    while (n > 0 && !interrupt_pending()) {
        if (interrupt_wait(STDIN_FILENO)) continue;
        n = read(STDIN_FILENO, part, sizeof part);
        if (n > 0) buf_add(text, part, (size_t)n);
    }
    if (interrupt_pending()) return 128 + interrupt_pending();
    if (n == 0) return 0;
    print_failure("standard input: %s", strerror(errno));
    return 1;
}
