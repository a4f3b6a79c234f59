/* The console of `penstock run`. Internal to this folder.
 *
 * interrupt.c turns signals into events to wait for, line_editor.c reads lines that are edited in
 * the terminal, history.c stores them in a file, session.c computes an answer, chat.c holds a
 * conversation. All of it runs on the main thread, except that the engine thread delivers an
 * answer's text.
 */
#ifndef PENSTOCK_SERVER_CONSOLE_H
#define PENSTOCK_SERVER_CONSOLE_H

#include "server/commands/commands.h"
#include "server/generation/stop_matcher.h"
#include "server/message/message.h"

/* ---- interrupt.c ---------------------------------------------------------------------------- */

/* Catches SIGINT, SIGTERM, SIGHUP, SIGWINCH and SIGCONT until the end of the process, except those
 * that were ignored. Fails with STATUS_SYSTEM. */
enum status interrupt_open(struct err *err);

/* Catches one more signal, or restores its default action. */
void interrupt_catch(int number, bool catches);

/* Returns the last of SIGINT, SIGTERM and SIGHUP since interrupt_clear; 0: none. */
int interrupt_pending(void);

/* Acts as if SIGINT had arrived. */
void interrupt_stop(void);

/* Forgets all signals that arrived. */
void interrupt_clear(void);

/* Waits until `fd` can be read and returns 0, or until a signal arrives and returns its number. */
int interrupt_wait(int fd);

/* ---- line_editor.c -------------------------------------------------------------------------- */

/* The result of reading a line. */
enum line_end {
    LINE_READ,
    LINE_INTERRUPTED, /* Ctrl-C */
    LINE_GIVEN_UP,    /* Ctrl-C after some text */
    LINE_CLOSED,      /* end of input, or Ctrl-D */
    LINE_STOPPED,     /* SIGTERM or SIGHUP */
};

struct line_editor;

/* Reads from standard input. If that is a terminal, and `console`, to which prompts are written,
 * understands escape codes, lines can be edited, and earlier lines can be recalled, including those
 * in the file `history` (may be NULL). If `console` is NULL, no prompt is shown. Never fails:
 * features that the terminal lacks are omitted. */
struct line_editor *line_editor_open(FILE *console, const char *history);
void line_editor_close(struct line_editor *editor);

/* Can lines be edited? */
bool line_editor_edits(const struct line_editor *editor);

/* Replaces `line` by the next line of the input, without its line end. Pasted text and lines that
 * the user ended with Alt-Enter put line ends inside it. */
enum line_end line_editor_read(struct line_editor *editor, const char *prompt, struct buf *line);

/* Adds the text to the history. Fails if the file cannot be written. */
enum status line_editor_remember(struct line_editor *editor, const char *text, struct err *err);

/* ---- history.c ------------------------------------------------------------------------------ */

enum { HISTORY_ENTRIES = 1000, HISTORY_ENTRY_BYTES = 16 << 10 };

/* Appends the path of the file: penstock/history in $XDG_STATE_HOME or ~/.local/state (XDG Base
 * Directory Specification 0.8). Returns false if neither is known. */
bool history_path(struct buf *path);

/* Calls `entry` for the newest HISTORY_ENTRIES entries of the file, oldest first. If the file holds
 * at least twice as many, removes the older ones. A missing file is an empty history. */
void history_load(const char *path, void (*entry)(void *arg, const char *text), void *arg);

/* Appends an entry of at most HISTORY_ENTRY_BYTES; ignores longer ones. Creates missing files and
 * folders, readable only by this user. Several processes may append concurrently. Fails with
 * STATUS_SYSTEM. */
enum status history_append(const char *path, const char *text, struct err *err);

/* ---- rules.c -------------------------------------------------------------------------------- */

/* Constraints on answers, and their ends. All zero: any text, up to the model's end. */
struct rules {
    struct grammar *grammar; /* NULL: any text */
    struct grammar_store *store;
    const struct vocabulary *vocabulary;
    const struct reasoning_format *reasoning; /* the grammar begins after this reasoning */
    struct search **searches;
    struct api_text stop;
    struct api_request request; /* only its stops are set */
    bool open_objects;          /* schemas: see grammar_limits */
};

/* Reads the rules from the options, or prints an error. Returns the exit code. */
int rules_read(struct rules *rules, const struct options *options);

/* Adds the parts that depend on the model. The engine must outlive them. */
void rules_open(struct rules *rules, const struct engine *engine);
void rules_close(struct rules *rules);

/* ---- session.c ------------------------------------------------------------------------------ */

/* Text on its way from the engine thread to the main thread. The mutex guards all fields except the
 * detokenizer, `decoded` and the stops. During a generation, only the engine thread uses these. */
struct printer {
    pthread_mutex_t mutex;
    pthread_cond_t arrived;
    struct detokenizer detokenizer;
    struct buf decoded; /* scratch: a token's text, before the stops are applied */
    struct stop_matcher stops;
    struct buf text;
    bool stopped; /* a stop has matched: later text is dropped */
    bool ended;
    enum finish finish;
    int n_tokens, n_cached;
    uint64_t first_ns;  /* arrival of the first token; 0: not yet */
    struct err failure; /* of the device; STATUS_OK: it runs */
};

struct session {
    const struct options *options;
    struct engine *engine;
    struct engine *draft_engine; /* the draft model's; may be NULL */
    struct scheduler *scheduler;
    struct rules rules;
    struct printer printer;
};

/* An answer and its figures. */
struct answer {
    struct buf text;
    int n_prompt, n_cached, n_tokens;
    double first_s, seconds; /* until the first token, and in total */
    enum finish finish;
};

/* Opens the model, or prints an error. Returns the exit code. */
int session_open(struct session *session, struct options *options);
void session_close(struct session *session);

/* Answers one prompt, and frees its ids. Prints the text to standard output as it arrives, and adds
 * it to the answer. A signal ends the answer. If the rules have a grammar, it begins after the text
 * `after` of the answer, or at the start if `after` is NULL. Returns an exit code, after printing
 * any error. */
int session_answer(struct session *session, int32_t *ids, int n, const char *after,
                   struct answer *answer);

/* ---- chat.c --------------------------------------------------------------------------------- */

/* Holds a conversation until the input ends. Returns the exit code. */
int converse(struct session *session);

#endif
