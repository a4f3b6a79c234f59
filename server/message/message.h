/* server/message: an answer's text as a message. Reasoning and calls of tools are split off the
 * text while it comes.
 *
 * A `struct tool_format` is how a family of models writes its calls, a `struct reasoning_format`
 * how one marks its thoughts: rows of the tables in formats.c, static and shared. A row makes both
 * the parser (`struct message_parser`) and the grammar (tool_grammar). Pure functions over strings:
 * no sockets, no threads, no model. A parser belongs to one thread at a time.
 */
#ifndef PENSTOCK_SERVER_MESSAGE_H
#define PENSTOCK_SERVER_MESSAGE_H

#include "config/json.h"

/* ---- formats (formats.c) -------------------------------------------------------------------- */

struct tool_format;
struct reasoning_format;

/* The format that a name of vLLM's --tool-call-parser or --reasoning-parser stands for, or NULL. */
const struct tool_format *tool_format_find(const char *name);
const struct reasoning_format *reasoning_format_find(const char *name);

/* The marker behind a block of thoughts; NULL: the format has none of its own. */
const char *reasoning_format_end(const struct reasoning_format *format);

/* The format that a chat template writes calls or thoughts in, as its text shows; NULL: none that
 * is known. */
const struct tool_format *tool_format_of_template(const char *source, size_t length);
const struct reasoning_format *reasoning_format_of_template(const char *source, size_t length);

/* Appends the names that the find functions know, with commas between them. */
void tool_format_names(struct buf *out);
void reasoning_format_names(struct buf *out);

/* Does a marker of the formats (each may be NULL) hold this text, the spelling of a special token?
 * Such tokens must be in the text that a parser gets. */
bool message_has_marker(const struct tool_format *tools, const struct reasoning_format *reasoning,
                        const char *text, size_t length);

/* ---- the tools of a request (tools.c) ------------------------------------------------------- */

#define MAX_TOOL_NAME 128 /* bytes: letters, digits, '_', '-' and '.' */

/* Is it a name that calls can be written with? */
bool tool_name_is_right(const char *name, size_t length);

/* What an answer may do with tools: only text, text or calls, calls. */
enum tool_choice { TOOL_CHOICE_NONE, TOOL_CHOICE_AUTO, TOOL_CHOICE_REQUIRED };

/* Which of a request's tools may be called. All zero: every one. */
struct tool_filter {
    const char *only; /* this one, or NULL */
    /* those that are named here, in the form of a tool_choice; or NULL */
    const struct json *allowed;
};

/* Lets the filter the function of a tool be called? */
bool tool_filter_passes(const struct tool_filter *filter, const struct json *function);

/* What a parser must know of a request's tools: names, and which parameters are texts. */
struct tool_set;

/* From OpenAI's array of tools, whose form was checked; those that pass the filter, which may be
 * NULL. The caller frees it. */
struct tool_set *tool_set_new(const struct json *tools, const struct tool_filter *filter);
void tool_set_free(struct tool_set *tools); /* NULL is ignored */

/* ---- the grammar of answers (grammar.c) ----------------------------------------------------- */

/* What an answer with tools keeps to. */
struct tool_grammar {
    const struct tool_format *tools;
    const struct reasoning_format *reasoning; /* whose thoughts may come first, or NULL */
    const struct json *functions;             /* OpenAI's array of tools, whose form was checked */
    struct tool_filter filter;                /* the functions that may be called */
    bool must_call;                           /* no text but thoughts */
    bool parallel;                            /* there may be several calls */
    const char *content; /* a format of structural tags for what is no call; NULL: any text */
};

/* Appends a structural tag (GRAMMAR_STRUCTURAL_TAG) that every such answer keeps to. Of texts that
 * do, the parser gives each call before it is whole, and takes nothing back. */
void tool_grammar_write(const struct tool_grammar *asked, struct buf *out);

/* The same for an answer without calls: thoughts, or none, and then what keeps to `content`. */
void thoughts_grammar_write(const struct reasoning_format *reasoning, const char *content,
                            struct buf *out);

/* ---- messages (message.c) ------------------------------------------------------------------- */

#define MAX_CALL_ID (MAX_TOOL_NAME + 32) /* bytes, with a NUL */

/* A call, or what was added to one. */
struct message_call {
    int index;            /* among the message's calls, from 0 */
    bool begins;          /* it is new: id and name are set */
    char id[MAX_CALL_ID]; /* "call_…", nine letters and digits, or "functions.NAME:0" */
    char name[MAX_TOOL_NAME + 1];
    struct buf arguments; /* JSON, an object once the call is whole */
};

/* What was read and not taken yet: of a whole answer all, of a stream what is new. All zero is
 * empty. */
struct message {
    struct buf reasoning, content;
    struct message_call *calls;
    int n_calls, call_capacity;
};

/* Was nothing read that is not taken? */
bool message_is_empty(const struct message *message);

/* Makes it empty again, and keeps memory. */
void message_clear(struct message *message);

/* Releases its memory. */
void message_free(struct message *message);

/* ---- the parser (parser.c) ------------------------------------------------------------------ */

/* How an answer is to be read. */
struct message_settings {
    const struct tool_format *tools;          /* NULL: no calls are looked for */
    const struct reasoning_format *reasoning; /* NULL: no thoughts are */
    const struct tool_set *known; /* names that can be called; NULL: every name. Must outlive */
    bool starts_inside;           /* the prompt ended inside a block of thoughts */
    bool starts_behind;           /* ... behind one, or behind its beginning: no block begins */
    bool continues; /* the answer continues a message: white space at its start counts */
    /* A call is given as soon as its name is known, then its arguments as they come: only for
     * texts that keep to the grammar. Without it a call is given once it is whole, so that what
     * breaks off stays content. */
    bool stream_calls;
    uint64_t id_seed; /* ids of calls follow from it */
};

struct message_parser;

/* Copies the settings. The caller frees it. */
struct message_parser *message_parser_new(const struct message_settings *settings);
void message_parser_free(struct message_parser *parser); /* NULL is ignored */

/* Reads more of the text and appends to `out` what is certain. The parts may be cut anywhere: the
 * sum of all that is appended is the same. Time is linear in the text. */
void message_parser_add(struct message_parser *parser, const char *text, size_t length,
                        struct message *out);

/* The text has ended: appends what was held back. */
void message_parser_finish(struct message_parser *parser, struct message *out);

/* The calls that were given so far. */
int message_parser_calls(const struct message_parser *parser);

/* Is none of them still to be continued? */
bool message_parser_is_idle(const struct message_parser *parser);

/* Does the next byte belong to thoughts, or to the marker that ends them? */
bool message_parser_is_reasoning(const struct message_parser *parser);

/* ---- the end of a prompt -------------------------------------------------------------------- */

/* Sets starts_inside and starts_behind from the text of a rendered prompt. `last` is the content of
 * the message that the answer continues, or NULL. */
void message_settings_see_prompt(struct message_settings *settings, const char *prompt,
                                 size_t length, const char *last);

#endif
