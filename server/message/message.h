/* server/message: splits an answer's text into reasoning, content and tool calls while it is
 * generated.
 *
 * A `struct tool_format` describes how a family of models writes calls, a `struct reasoning_format`
 * how it marks reasoning. Both are rows of static tables in formats.c. The parser (`struct
 * message_parser`) and the grammar (tool_grammar) use the same row. Pure functions over strings: no
 * sockets, no threads, no model. A parser belongs to one thread at a time.
 */
#ifndef PENSTOCK_SERVER_MESSAGE_H
#define PENSTOCK_SERVER_MESSAGE_H

#include "config/json.h"

/* ---- formats (formats.c) -------------------------------------------------------------------- */

struct tool_format;
struct reasoning_format;

/* Returns the format of a name of vLLM's --tool-call-parser or --reasoning-parser, or NULL. */
const struct tool_format *tool_format_find(const char *name);
const struct reasoning_format *reasoning_format_find(const char *name);

/* Appends the first name of a format of calls. */
void tool_format_name(const struct tool_format *format, struct buf *out);

/* Returns the text that a family writes before content at the start of an answer, or NULL. */
const char *tool_format_prefix(const struct tool_format *format);

/* Returns the marker after a block of reasoning; NULL if the format does not define one. */
const char *reasoning_format_end(const struct reasoning_format *format);

/* Does the family write marks around content? The parser drops them. */
bool reasoning_format_has_envelope(const struct reasoning_format *format);

/* The texts around a block of reasoning. */
struct reasoning_marks {
    const char *begin, *end;
    const char *after; /* the model writes this after `end` before its answer; NULL: unknown */
    bool may_return;   /* an answer may have several blocks, anywhere */
};

/* Returns the texts of a format. must_call: the answer is a call. */
struct reasoning_marks reasoning_format_marks(const struct reasoning_format *format,
                                              bool must_call);

/* Detects the format in which a chat template writes calls or reasoning, from the template's text.
 * Returns NULL if it is unknown. */
const struct tool_format *tool_format_of_template(const char *source, size_t length);
const struct reasoning_format *reasoning_format_of_template(const char *source, size_t length);

/* Returns the reasoning format of a name. Generations of a family share a name: the one whose
 * markers the template contains is preferred. NULL: the name is not known. */
const struct reasoning_format *reasoning_format_named(const char *name, const char *source,
                                                      size_t length);

/* Answers as a template writes them, and their calls. */
struct tool_samples {
    const char *one, *two;       /* answers with one and with two calls, from their first byte */
    const char *tail;            /* the end of both, which follows an answer without calls, too */
    const char *name;            /* the called tool */
    const char *arguments[2][2]; /* of both calls, in the spellings that are tried */
    const char *id;              /* the beginning of their ids, which no answer may hold */
};

/* Makes a format from samples: calls with their arguments as JSON between texts that are always the
 * same. Returns NULL if the calls are written in another way, or do not read back. The caller frees
 * it (derive.c). */
struct tool_format *tool_format_derive(const struct tool_samples *samples);
void tool_format_free(struct tool_format *format); /* NULL is ignored */

/* Appends the names that the find functions accept, separated by commas. */
void tool_format_names(struct buf *out);
void reasoning_format_names(struct buf *out);

/* Is this text, the spelling of a special token, part of a marker of the formats (each may be
 * NULL)? The text that a parser reads must include such tokens. */
bool message_has_marker(const struct tool_format *tools, const struct reasoning_format *reasoning,
                        const char *text, size_t length);

/* ---- the tools of a request (tools.c) ------------------------------------------------------- */

#define MAX_TOOL_NAME 128 /* bytes: letters, digits, '_', '-' and '.' */

/* Is it a valid tool name? */
bool tool_name_is_right(const char *name, size_t length);

/* How an answer may use tools: only text, text or calls, only calls. */
enum tool_choice { TOOL_CHOICE_NONE, TOOL_CHOICE_AUTO, TOOL_CHOICE_REQUIRED };

/* Selects the tools of a request that may be called. All zero: every tool. */
struct tool_filter {
    const char *only; /* only this tool, or NULL */
    /* only these tools, in the form of a tool_choice; or NULL */
    const struct json *allowed;
};

/* Does the filter accept this function of a tool? */
bool tool_filter_passes(const struct tool_filter *filter, const struct json *function);

/* The data of a request's tools that a parser needs: names and parameter types. */
struct tool_set;

/* Makes a set from OpenAI's array of tools, which must be valid. It holds the tools that pass the
 * filter; a NULL filter accepts all. The caller frees it. */
struct tool_set *tool_set_new(const struct json *tools, const struct tool_filter *filter);
void tool_set_free(struct tool_set *tools); /* NULL is ignored */

/* ---- the grammar of answers (grammar.c) ----------------------------------------------------- */

/* The settings of a grammar for answers with tools. */
struct tool_grammar {
    const struct tool_format *tools;
    const struct reasoning_format *reasoning; /* reasoning that may precede, or NULL */
    const struct json *functions;             /* OpenAI's array of tools, already checked */
    struct tool_filter filter;                /* the functions that may be called */
    bool must_call;                           /* no text except reasoning */
    bool parallel;                            /* several calls are allowed */
    const char *content; /* a format of structural tags for text outside of calls; NULL: any text */
};

/* Appends a structural tag (GRAMMAR_STRUCTURAL_TAG) for such answers. With text that matches it,
 * the parser may pass on each call before it is complete and never has to retract it. */
void tool_grammar_write(const struct tool_grammar *asked, struct buf *out);

/* The same for an answer without calls: reasoning if may_think, then text that matches `content`.
 * The format may surround content with marks (reasoning_format_has_envelope), or may_think. */
void thoughts_grammar_write(const struct reasoning_format *reasoning, bool may_think,
                            const char *content, struct buf *out);

/* ---- messages (message.c) ------------------------------------------------------------------- */

#define MAX_CALL_ID (MAX_TOOL_NAME + 32) /* bytes, including NUL */

/* A call, or an addition to a call. */
struct message_call {
    int index;            /* of the call in the message, from 0 */
    bool begins;          /* a new call: id and name are set */
    char id[MAX_CALL_ID]; /* "call_…", nine letters and digits, or "functions.NAME:0" */
    char name[MAX_TOOL_NAME + 1];
    struct buf arguments; /* JSON; an object once the call is complete */
};

enum message_kind { MESSAGE_REASONING, MESSAGE_CONTENT, MESSAGE_CALL };

/* A run of bytes of the reasoning or the content, or one call. */
struct message_part {
    enum message_kind kind;
    size_t length; /* bytes; 0 for a call */
};

/* Parsed output that the caller has not yet consumed: the whole message, or the new part of a
 * stream. All zero is empty. `parts` is the order of the output:
 *
 *     content "AB"   calls f   parts: content 1, call, content 1     the model wrote A, f(), B */
struct message {
    struct buf reasoning, content;
    struct message_call *calls;
    int n_calls, call_capacity;
    struct message_part *parts;
    int n_parts, part_capacity;
};

/* Add to the end of a message: text, which is not a call's, or an addition to the call of an index,
 * which is returned and is a new one if the last call has another index. */
void message_add_text(struct message *message, enum message_kind kind, const char *text,
                      size_t length);
struct message_call *message_call_at(struct message *message, int index);

/* Removes the reasoning. */
void message_drop_reasoning(struct message *message);

/* A place in a message; all zero is its beginning. */
struct message_cursor {
    int part, call;
    size_t reasoning, content;
};

/* One piece of a message: all text of a kind up to the next piece, or one call. */
struct message_piece {
    enum message_kind kind;
    const char *text; /* [length]; NULL: a call */
    size_t length;
    const struct message_call *call;
};

/* Sets *piece to the piece at the cursor, which moves on. Returns false at the end. */
bool message_next(const struct message *message, struct message_cursor *at,
                  struct message_piece *piece);

/* Is there no unconsumed output? */
bool message_is_empty(const struct message *message);

/* Empties the message and keeps its memory. */
void message_clear(struct message *message);

/* Frees its memory. */
void message_free(struct message *message);

/* ---- the parser (parser.c) ------------------------------------------------------------------ */

/* How to read an answer. */
struct message_settings {
    const struct tool_format *tools;          /* NULL: calls are not parsed */
    const struct reasoning_format *reasoning; /* NULL: reasoning is not parsed */
    const struct tool_set *known; /* names that can be called; NULL: all. Must outlive the parser */
    const char *prefix; /* dropped at the start, if `tools` does not have one; NULL: none */
    bool starts_inside; /* the prompt ends inside a block of reasoning */
    bool starts_behind; /* ... after a block or inside the message: none may begin */
    bool continues;     /* the answer continues a message: leading white space is kept */
    /* Passes on a call as soon as its name is known, then its arguments as they arrive. Requires
     * text that matches the grammar. Otherwise a call is passed on when it is complete, so that an
     * incomplete call stays content. */
    bool stream_calls;
    bool one_call;    /* calls at the end of thoughts: only the first one counts */
    uint64_t id_seed; /* determines the ids of calls */
};

struct message_parser;

/* Copies the settings. The caller frees it. */
struct message_parser *message_parser_new(const struct message_settings *settings);
void message_parser_free(struct message_parser *parser); /* NULL is ignored */

/* Reads more of the text and appends the decided part to `out`. The total output does not depend on
 * how the text is divided among calls. Time is linear in the text. */
void message_parser_add(struct message_parser *parser, const char *text, size_t length,
                        struct message *out);

/* Ends the text: appends the bytes that were held back. */
void message_parser_finish(struct message_parser *parser, struct message *out);

/* The same for a text that was cut at a limit: bytes that may begin a call are not content, and are
 * dropped. A single byte stays. */
void message_parser_cut(struct message_parser *parser, struct message *out);

/* Is the last call incomplete? Then the client must not run the last one. Call it after
 * the end of the text. */
bool message_parser_has_cut_call(const struct message_parser *parser);

/* Returns the number of calls passed on so far. */
int message_parser_calls(const struct message_parser *parser);

/* Are all calls passed on so far complete? */
bool message_parser_is_idle(const struct message_parser *parser);

/* Does the next byte belong to reasoning or to the marker that ends it? */
bool message_parser_is_reasoning(const struct message_parser *parser);

/* ---- the end of a prompt -------------------------------------------------------------------- */

/* Sets starts_inside, starts_behind and continues from the end of a rendered prompt. `last` is the
 * content of the message that the answer continues, or NULL. */
void message_settings_see_prompt(struct message_settings *settings, const char *prompt,
                                 size_t length, const char *last);

#endif
