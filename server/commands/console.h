/* console: how `penstock run` talks with a person. Internal to this folder.
 *
 * interrupt.c turns signals into something to wait for, line_editor.c reads lines that are edited
 * in the terminal, history.c keeps them in a file, session.c computes an answer, chat.c holds a
 * conversation. All belongs to the main thread; an answer's text comes from the engine thread.
 */
#ifndef PENSTOCK_SERVER_CONSOLE_H
#define PENSTOCK_SERVER_CONSOLE_H

#include "server/commands/commands.h"
#include "server/generation/stop_matcher.h"
#include "server/message/message.h"

/* ---- interrupt.c ---------------------------------------------------------------------------- */

/* Catches SIGINT, SIGTERM, SIGHUP, and the terminal's SIGWINCH and SIGCONT, from now to the end of
 * the process, but none that is ignored. Fails with STATUS_SYSTEM. */
enum status interrupt_open(struct err *err);

/* Catches one more signal, or leaves it to the system again. */
void interrupt_catch(int number, bool catches);

/* The last of SIGINT, SIGTERM and SIGHUP that arrived since interrupt_clear; 0: none. */
int interrupt_pending(void);

/* As if SIGINT had arrived. */
void interrupt_stop(void);

/* Forgets all signals that have arrived. */
void interrupt_clear(void);

/* Waits until `fd` can be read, and returns 0; or until a signal arrives, and returns its
 * number. */
int interrupt_wait(int fd);

/* ---- line_editor.c -------------------------------------------------------------------------- */

/* Where a line came from, or why none came. */
enum line_end {
    LINE_READ,
    LINE_INTERRUPTED, /* Ctrl-C */
    LINE_GIVEN_UP,    /* Ctrl-C behind text that could be edited */
    LINE_CLOSED,      /* the end of the input, or Ctrl-D */
    LINE_STOPPED,     /* SIGTERM or SIGHUP */
};

struct line_editor;

/* Reads from standard input. If that is a terminal, `console` is where the prompt goes, and
 * understands escape codes, lines can be edited and found again, also those in the file at
 * `history`, which may be NULL. With a NULL console no prompt is shown. Never fails: what the
 * terminal cannot do is left out. */
struct line_editor *line_editor_open(FILE *console, const char *history);
void line_editor_close(struct line_editor *editor);

/* Can lines be edited? */
bool line_editor_edits(const struct line_editor *editor);

/* Replaces `line` by the next line of the input, without its end. It may hold line ends of its own:
 * text that was pasted, and lines that the user ended with Alt-Enter. */
enum line_end line_editor_read(struct line_editor *editor, const char *prompt, struct buf *line);

/* From now on the text can be found again. Fails if the file cannot be written. */
enum status line_editor_remember(struct line_editor *editor, const char *text, struct err *err);

/* ---- history.c ------------------------------------------------------------------------------ */

enum { HISTORY_ENTRIES = 1000, HISTORY_ENTRY_BYTES = 16 << 10 };

/* Appends the path of the file: penstock/history in $XDG_STATE_HOME or ~/.local/state (XDG Base
 * Directory Specification 0.8). False: neither is known. */
bool history_path(struct buf *path);

/* Calls `entry` for the newest HISTORY_ENTRIES entries of the file, oldest first. If the file holds
 * twice as many, the others are removed. A file that is not there has none. */
void history_load(const char *path, void (*entry)(void *arg, const char *text), void *arg);

/* Appends an entry of at most HISTORY_ENTRY_BYTES, and makes file and folders for this user alone
 * if they are not there. Several processes may append at once. Fails with STATUS_SYSTEM. */
enum status history_append(const char *path, const char *text, struct err *err);

/* ---- rules.c -------------------------------------------------------------------------------- */

/* What answers keep to, and where they stop. All zero: any text, to its own end. */
struct rules {
    struct grammar *grammar; /* NULL: any text */
    struct grammar_store *store;
    const struct vocabulary *vocabulary;
    const struct reasoning_format *reasoning; /* behind whose thoughts the grammar begins */
    struct search **searches;
    struct api_text stop;
    struct api_request request; /* of which only the stops are set */
};

/* Reads them from the options, or prints what is wrong with these. Returns the exit code. */
int rules_read(struct rules *rules, const struct options *options);

/* Adds what they need of a model, which outlives them. */
void rules_open(struct rules *rules, const struct engine *engine);
void rules_close(struct rules *rules);

/* ---- session.c ------------------------------------------------------------------------------ */

/* Text on its way from the engine thread to the main thread. The mutex guards all but the
 * detokenizer, the scratch and the stops, which are the engine thread's while a generation runs. */
struct printer {
    pthread_mutex_t mutex;
    pthread_cond_t arrived;
    struct detokenizer detokenizer;
    struct buf decoded; /* scratch: a token's text before it is known to be no stop's */
    struct stop_matcher stops;
    struct buf text;
    bool stopped; /* a stop was met: what follows is dropped */
    bool ended;
    enum finish finish;
    int n_tokens, n_cached;
    uint64_t first_ns;  /* when the first token came; 0: none has */
    struct err failure; /* of the device; STATUS_OK: none */
};

struct session {
    const struct options *options;
    struct engine *engine;
    struct engine *draft_engine; /* that guesses for it; NULL: none does */
    struct scheduler *scheduler;
    struct rules rules;
    struct printer printer;
};

/* An answer, and what it took. */
struct answer {
    struct buf text;
    int n_prompt, n_cached, n_tokens;
    double first_s, seconds; /* to the first token, and to the last */
    enum finish finish;
};

/* Opens the model, or prints why not. Returns the exit code. */
int session_open(struct session *session, const struct options *options);
void session_close(struct session *session);

/* Answers one prompt, and frees its ids. The text is printed to standard output as it comes, and
 * added to the answer; a signal ends it. If the rules have a grammar, it begins behind the text
 * `after` of the answer, unless that is NULL. Returns an exit code, after an error was printed. */
int session_answer(struct session *session, int32_t *ids, int n, const char *after,
                   struct answer *answer);

/* ---- chat.c --------------------------------------------------------------------------------- */

/* Holds a conversation until the input ends. Returns the exit code. */
int converse(struct session *session);

#endif
