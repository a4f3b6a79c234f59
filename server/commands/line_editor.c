/* DESIGN: reads lines, from a terminal with libedit, or from any other input.
 *
 * libedit draws the line and handles keys; ~/.editrc may change the bindings, as in other programs
 * that use it. It reads keys through read_key, which waits for a key or a signal. So Ctrl-C, a
 * change of the window size and a stop by Ctrl-Z are handled when the line is complete and can be
 * redrawn. Pasted text is enclosed in two marks (xterm's bracketed paste), and its line ends do not
 * end the line.
 *
 * If editing is impossible (TERM=dumb, a pipe, a file), the same wait loop reads plain lines, and
 * no escape codes are written.
 */
#include <assert.h>
#include <errno.h>
#include <histedit.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "server/commands/console.h"

#define MAX_PASTE ((size_t)1 << 20) /* characters */
#define PASTE_END L"\033[201~"
#define PASTE_END_LENGTH 6
#define STYLE_MARK "\1" /* encloses codes in a prompt, which have zero width */

struct line_editor {
    FILE *console;     /* NULL: nothing is shown */
    EditLine *edit;    /* NULL: lines cannot be edited */
    History *history;  /* set if `edit` is */
    struct buf path;   /* history file; empty: none */
    struct buf prompt; /* with escape codes */
    enum line_end end; /* the reason if no line was read */
    char ahead[4096];  /* input that was read ahead */
    size_t at, n;      /* its unused part: ahead[at..n) */
};

/* ---- keys and signals ----------------------------------------------------------------------- */

/* Redraws the line from the start of the cursor's row. */
static void draw_again(struct line_editor *editor) {
    fputs("\r\033[J", editor->console);
    el_set(editor->edit, EL_REFRESH);
}

/* Returns false if the signal ends the line; editor->end is then the reason. */
static bool handle_signal(struct line_editor *editor, int number) {
    const LineInfo *line;
    switch (number) {
    case SIGINT:
        line = editor->edit ? el_line(editor->edit) : NULL;
        editor->end = !line || line->lastchar == line->buffer ? LINE_INTERRUPTED : LINE_GIVEN_UP;
        return false;
    case SIGTERM:
    case SIGHUP:
        editor->end = LINE_STOPPED;
        return false;
    case SIGTSTP:
        if (!editor->edit) break;
        el_set(editor->edit, EL_PREP_TERM, 0);
        raise(SIGSTOP);
        el_set(editor->edit, EL_PREP_TERM, 1), draw_again(editor);
        break;
    case SIGWINCH:
        if (editor->edit) el_resize(editor->edit), draw_again(editor);
        break;
    case SIGCONT: /* another program may have changed the terminal's mode */
        if (editor->edit) el_set(editor->edit, EL_PREP_TERM, 1), draw_again(editor);
        break;
    }
    return true;
}

/* Reads one byte. Returns 1, or 0 at the end of the input, or -1 after a signal or an error. */
static int read_byte(struct line_editor *editor, char *byte) {
    while (editor->at == editor->n) {
        int number = interrupt_wait(STDIN_FILENO);
        if (number && !handle_signal(editor, number)) return -1;
        if (number) continue;
        ssize_t n = read(STDIN_FILENO, editor->ahead, sizeof editor->ahead);
        if (n < 0 && errno != EINTR && errno != EAGAIN) return -1;
        if (n == 0) return 0;
        editor->at = 0;
        editor->n = n > 0 ? (size_t)n : 0;
    }
    assert(editor->at < editor->n && editor->n <= sizeof editor->ahead);
    *byte = editor->ahead[editor->at++];
    return 1;
}

/* libedit's source of keys: whole characters. An invalid byte becomes U+FFFD. */
static int read_key(EditLine *edit, wchar_t *key) {
    struct line_editor *editor;
    mbstate_t state = {0};
    char byte;
    el_get(edit, EL_CLIENTDATA, &editor);
    for (;;) {
        int n = read_byte(editor, &byte);
        if (n <= 0) return n;
        size_t used = mbrtowc(key, &byte, 1, &state);
        if (used == (size_t)-2) continue; /* the character has more bytes */
        if (used == (size_t)-1) *key = (unsigned char)byte < 0x80 ? (wchar_t)byte : 0xFFFD;
        return 1;
    }
}

/* ---- extra keys ----------------------------------------------------------------------------- */

static unsigned char add_line_end(EditLine *edit, int key) {
    (void)key;
    return el_insertstr(edit, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* Does the text end with the mark that ends a paste? If so, removes the mark. */
static bool is_paste_end(wchar_t *text, size_t *n) {
    if (*n < PASTE_END_LENGTH) return false;
    if (wmemcmp(text + *n - PASTE_END_LENGTH, PASTE_END, PASTE_END_LENGTH) != 0) return false;
    *n -= PASTE_END_LENGTH;
    return true;
}

/* Removes control characters from pasted text, except tabs and line ends, and removes trailing line
 * ends, so that the user must press Enter to send it. */
static void clean(wchar_t *text, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        wchar_t c = text[i] == L'\r' ? L'\n' : text[i];
        if (c == L'\n' || c == L'\t' || (c >= L' ' && (c < 0x7F || c >= 0xA0))) text[kept++] = c;
    }
    while (kept > 0 && text[kept - 1] == L'\n') kept--;
    assert(kept <= n);
    text[kept] = 0;
}

/* Reads to the end of a paste and inserts the text. Characters beyond MAX_PASTE are dropped. */
static unsigned char add_paste(EditLine *edit, int key) {
    (void)key;
    size_t n = 0, capacity = 1024;
    wchar_t *text = mem_alloc(capacity * sizeof *text), c;
    while (el_wgetc(edit, &c) == 1) {
        if (n + 1 == capacity) text = mem_realloc(text, (capacity *= 2) * sizeof *text);
        if (n == MAX_PASTE) { /* keep only the last characters, which may be the mark */
            wchar_t *mark = text + --n - PASTE_END_LENGTH;
            wmemmove(mark, mark + 1, PASTE_END_LENGTH);
        }
        text[n++] = c;
        if (is_paste_end(text, &n)) break;
    }
    assert(n < capacity && n <= MAX_PASTE);
    clean(text, n);
    bool added = !*text || el_winsertstr(edit, text) == 0;
    mem_free(text);
    return added ? CC_REFRESH : CC_ERROR;
}

/* ---- opening -------------------------------------------------------------------------------- */

static char *prompt_of(EditLine *edit) {
    struct line_editor *editor;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor->prompt.data;
}

/* Binds keys that shells have and libedit lacks. */
static void bind_keys(EditLine *edit) {
    static const char *const keys[][2] = {
        {"^R", "em-inc-search-prev"},       {"^W", "ed-delete-prev-word"},
        {"\033[3~", "ed-delete-next-char"}, {"\033[1;5D", "ed-prev-word"},
        {"\033[1;5C", "em-next-word"},      {"\033[H", "ed-move-to-beg"},
        {"\033[F", "ed-move-to-end"},       {"\033[1~", "ed-move-to-beg"},
        {"\033[4~", "ed-move-to-end"},      {"\033\r", "penstock-line-end"},
        {"\033\n", "penstock-line-end"},    {"\033[200~", "penstock-paste"},
    };
    /* the wide function; the other one leaks copies of the names */
    el_wset(edit, EL_ADDFN, L"penstock-line-end", L"Add a line end", add_line_end);
    el_wset(edit, EL_ADDFN, L"penstock-paste", L"Add what is pasted", add_paste);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static void remember(void *arg, const char *text) {
    struct line_editor *editor = arg;
    HistEvent event;
    history(editor->history, &event, H_ENTER, text);
}

static void open_history(struct line_editor *editor, const char *path) {
    assert(editor->edit && !editor->history);
    HistEvent event;
    editor->history = history_init();
    history(editor->history, &event, H_SETSIZE, (int)HISTORY_ENTRIES);
    history(editor->history, &event, H_SETUNIQUE, 1);
    el_set(editor->edit, EL_HIST, history, editor->history);
    if (!path) return;
    buf_puts(&editor->path, path);
    history_load(path, remember, editor);
}

struct line_editor *line_editor_open(FILE *console, const char *path) {
    struct line_editor *editor = mem_calloc(1, sizeof *editor);
    editor->console = console;
    if (!console || !isatty(STDIN_FILENO) || !terminal_has_codes(fileno(console))) return editor;
    editor->edit = el_init("penstock", stdin, console, stderr);
    if (!editor->edit) return editor;
    el_set(editor->edit, EL_CLIENTDATA, editor);
    el_set(editor->edit, EL_SIGNAL, 0);
    el_set(editor->edit, EL_EDITOR, "emacs");
    el_set(editor->edit, EL_PROMPT_ESC, prompt_of, *STYLE_MARK);
    el_set(editor->edit, EL_GETCFN, read_key);
    bind_keys(editor->edit);
    el_source(editor->edit, NULL); /* the user's bindings, if any */
    open_history(editor, path);
    return editor;
}

void line_editor_close(struct line_editor *editor) {
    if (editor->edit) {
        el_end(editor->edit);
        history_end(editor->history);
    }
    buf_free(&editor->path);
    buf_free(&editor->prompt);
    mem_free(editor);
}

bool line_editor_edits(const struct line_editor *editor) {
    return editor->edit != NULL;
}

/* ---- reading -------------------------------------------------------------------------------- */

static void set_prompt(struct line_editor *editor, const char *prompt) {
    int fd = fileno(editor->console);
    const char *style = terminal_style(fd, TERMINAL_PROMPT);
    buf_clear(&editor->prompt);
    if (*style) buf_printf(&editor->prompt, STYLE_MARK "%s" STYLE_MARK, style);
    buf_puts(&editor->prompt, prompt);
    if (*style)
        buf_printf(&editor->prompt, STYLE_MARK "%s" STYLE_MARK, terminal_style(fd, TERMINAL_PLAIN));
}

static enum line_end read_edited(struct line_editor *editor, const char *prompt, struct buf *line) {
    int n;
    assert(editor->edit && editor->console);
    set_prompt(editor, prompt);
    editor->end = LINE_CLOSED;
    interrupt_catch(SIGTSTP, true);
    el_resize(editor->edit); /* the window size may have changed */
    fputs("\033[?2004h", editor->console);
    const char *text = el_gets(editor->edit, &n);
    fputs(text ? "\033[?2004l" : "\033[?2004l\n", editor->console);
    fflush(editor->console);
    interrupt_catch(SIGTSTP, false);
    if (!text || n <= 0) return editor->end;
    buf_add(line, text, (size_t)n);
    return LINE_READ;
}

/* The end of the input also ends its last line. */
static enum line_end read_plain(struct line_editor *editor, const char *prompt, struct buf *line) {
    char byte;
    int n;
    if (editor->console) {
        fputs(prompt, editor->console);
        fflush(editor->console);
    }
    editor->end = LINE_CLOSED;
    while ((n = read_byte(editor, &byte)) == 1) {
        buf_add(line, &byte, 1);
        if (byte == '\n') return LINE_READ;
    }
    if (n < 0 && editor->console) fputs("\n", editor->console);
    return n == 0 && line->length > 0 ? LINE_READ : editor->end;
}

enum line_end line_editor_read(struct line_editor *editor, const char *prompt, struct buf *line) {
    buf_clear(line);
    buf_add(line, "", 0);
    interrupt_clear();
    enum line_end end =
        editor->edit ? read_edited(editor, prompt, line) : read_plain(editor, prompt, line);
    while (line->length > 0 && strchr("\r\n", line->data[line->length - 1])) line->length--;
    line->data[line->length] = 0;
    return end;
}

enum status line_editor_remember(struct line_editor *editor, const char *text, struct err *err) {
    if (!editor->edit) return STATUS_OK;
    remember(editor, text);
    return editor->path.length > 0 ? history_append(editor->path.data, text, err) : STATUS_OK;
}
