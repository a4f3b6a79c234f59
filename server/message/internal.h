/* server/message, inside: what its files share. Nothing outside of the room includes it. */
#ifndef PENSTOCK_SERVER_MESSAGE_INTERNAL_H
#define PENSTOCK_SERVER_MESSAGE_INTERNAL_H

#include <stddef.h>

#include "server/message/message.h"

/* ---- rows ----------------------------------------------------------------------------------- */

/* One way to write a run of calls: open, call, then (between, call) any number of times, close.
 *
 * Each is a pattern. Its bytes stand for themselves, but white space for any white space, also
 * none: the grammar writes it as it stands in the row. What a `call` says differently each time:
 *
 *   %n  the name                              get_time
 *   %i  an id: letters and digits, of which the grammar takes up to 4 digits
 *   %a  the arguments as JSON                 {"zone": "UTC"}
 *   %j  name and arguments in one object      {"name": "get_time", "arguments": {"zone": "UTC"}}
 *   %x  parameters as elements of XML         <parameter=zone>\nUTC\n</parameter>\n
 *   %k  the same in pairs                     <arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n
 *   %l  ... with literals of Python           <parameter=zones>[None, 'UTC']</parameter>\n
 *   %p  arguments as Python writes them       zone="UTC"
 *
 * What stands behind %x, %k and %l begins with "</", of which they have read the first byte: the
 * row leaves it out. Behind %p stands the closing parenthesis. */
struct tool_form {
    const char *open, *call, *between, *close; /* a form without a call does not exist; without */
                                               /* `open` there is no `close` */
    const char *arguments_key;                 /* of %j as the grammar writes it */
    bool at_start; /* calls stand at the start of an answer only: what opens them is no marker */
};

#define MAX_FORMS 4

/* "call_" and 24 letters and digits; nine of them; "functions.NAME:" and the call's own %i. */
enum id_style { ID_CALL, ID_NINE, ID_KIMI };

struct tool_format {
    const char *names;     /* separated by spaces */
    const char *needle[2]; /* a template with any of them writes such calls; NULL: none */
    enum id_style ids;
    bool is_harmony; /* messages of several parts, which harmony.c reads: no forms */
    /* Tried one after the other where a call may begin. The grammar has the first of those that
     * begin with the same marker, and each of these says what stands between its calls. */
    struct tool_form forms[MAX_FORMS];
};

struct reasoning_format {
    const char *names, *needle; /* as above */
    const char *begin, *end;    /* markers around the thoughts */
    bool is_harmony;
};

/* ---- reading byte by byte ------------------------------------------------------------------- */

enum reading {
    READ_MORE,   /* the byte belongs to it, and more may follow */
    READ_DONE,   /* the byte is its last */
    READ_BEFORE, /* it ended before this byte, which was not taken */
    READ_BROKEN, /* this byte cannot follow */
};

static inline bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
static inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
/* May it stand in the name of a tool? */
bool is_name_byte(char c);

/* One JSON value as RFC 8259 defines it, white space before it included. All zero begins. */
struct json_scan {
    uint8_t state, count;
    uint8_t depth;
    const char *word;                      /* what is left of true, false or null */
    uint64_t objects[JSON_MAX_DEPTH / 64]; /* by depth: is it an object, not an array? */
};
enum reading json_scan_add(struct json_scan *scan, char c);

/* Does the next byte stand in a string? */
bool json_scan_in_string(const struct json_scan *scan);

/* A name that is being read. */
struct name {
    char text[MAX_TOOL_NAME + 1];
    int length;
};
bool name_add(struct name *name, char c); /* false: it is too long */

/* %j: an object with a name and arguments, in any order, among other members. */
struct call_object {
    uint8_t state, member;
    struct name key;
    struct json_scan value;
    bool has_name, has_arguments;
};
enum reading call_object_add(struct call_object *object, char c, struct name *name,
                             struct buf *arguments);

/* %p: arguments of a call in Python, which become an object of JSON. */
struct python_arguments {
    uint8_t state, count, depth;
    char quote, escape;
    bool begun, is_key, key_ended;
    bool has_item;                /* a comma belongs between what stood last and what follows */
    uint32_t value;               /* of an escape */
    uint8_t open[JSON_MAX_DEPTH]; /* by depth: the bracket */
    const char *word, *becomes;
    struct name key;
    struct json_scan number;
};
enum reading python_arguments_add(struct python_arguments *python, char c, struct buf *arguments);

/* One value as Python writes it, alone: appends what would be an argument's value as JSON. False:
 * it is none, or has no end. Of several arguments what is appended is no JSON. */
bool python_value_add(struct python_arguments *python, char c, struct buf *out);
bool python_value_end(struct python_arguments *python, struct buf *out);

/* Does the next byte stand in a string? */
bool python_in_string(const struct python_arguments *python);

/* %x, %k and %l: parameters, which become an object. What is no text by its schema is JSON, or of
 * %l a literal of Python's. */
struct xml_arguments {
    uint8_t state;
    char placeholder;
    int matched; /* bytes of a marker */
    bool begun, has_item, is_text;
    bool has_break; /* a line break may be the last byte of a text, and then does not count */
    int types;      /* that the parameter may have: a sum of 1 << enum json_type */
    struct name key;
    struct buf value;      /* not yet written */
    struct json_scan json; /* of the value, unless it is a text; or of %l: */
    struct python_arguments python;
    struct buf literal; /* what Python's value is in JSON */
    bool json_ended;    /* it has ended, or turned out to be none */
};
enum reading xml_arguments_add(struct xml_arguments *xml, char c, const struct tool_set *known,
                               const struct name *name, struct buf *arguments);

/* ---- one part of a run ---------------------------------------------------------------------- */

/* A pattern that is being read, and what it has said so far. All zero but `pattern` begins. */
struct pattern_reader {
    const char *pattern; /* what is left of it */
    const char *next;    /* the pattern after it, or NULL */
    bool inside;         /* in the middle of a marker or a placeholder */
    bool knows_name;     /* `name` is whole, and a tool's */
    bool has_arguments;  /* they have begun */
    bool is_whole;       /* all that a call says was read; only markers may follow */
    struct name name, id;
    struct buf arguments; /* read, not taken */
    struct json_scan json;
    struct call_object object;
    struct python_arguments python;
    struct xml_arguments xml;
};

/* Begins a pattern, and `next` after it; the memory of the one before is kept. */
void pattern_begin(struct pattern_reader *reader, const char *pattern, const char *next);
enum reading pattern_add(struct pattern_reader *reader, char c, const struct tool_set *known);
void pattern_free(struct pattern_reader *reader);

/* May a run of this form begin with the byte? */
bool form_may_begin(const struct tool_form *form, char c);

/* ---- the parser (parser.c, harmony.c) ------------------------------------------------------- */

/* What a part of harmony's holds. */
enum harmony_body { BODY_CONTENT, BODY_REASONING, BODY_CALL, BODY_BEHIND_CALL };

enum mode {
    MODE_START, /* a block of thoughts may begin */
    MODE_REASONING,
    MODE_TEXT,
    MODE_CALLS,
    MODE_HEADER, /* of a part of harmony's */
    MODE_BODY,
};

enum part { PART_OPEN, PART_CALL, PART_CLOSE, PART_NEXT };

struct message_parser {
    struct message_settings settings;
    struct message *out; /* while text is added */
    enum mode mode;
    struct buf input; /* not decided yet, and what comes now */
    size_t start, at; /* where undecided bytes begin; the next byte */
    struct buf space; /* white space that may still be left out */
    bool drops_space; /* what it follows is no content */
    bool has_content, is_behind_call;
    int matched; /* bytes of a marker of thoughts */
    /* the run of calls that is being read */
    int form;
    enum part part;
    struct pattern_reader reader;
    int n_calls;       /* given */
    bool is_announced; /* the call that is being read was given */
    enum harmony_body body;
};

/* Appends bytes of content or thoughts; white space waits for what follows it. */
void parser_add_content(struct message_parser *parser, const char *text, size_t length);
void parser_add_reasoning(struct message_parser *parser, char c);

/* White space that waits is none of the message's. */
void parser_drop_space(struct message_parser *parser);

/* Gives what has been read of a call's arguments, and first the call itself. */
void parser_give_call(struct message_parser *parser);

/* All of a call was read. */
void parser_end_call(struct message_parser *parser);

/* The byte at `at`, in the modes of harmony; the end of the text. */
void harmony_step(struct message_parser *parser, char c);
void harmony_finish(struct message_parser *parser);

/* ---- tools ---------------------------------------------------------------------------------- */

#define ALL_TYPES 0x3F

/* Can a tool of this name be called? NULL knows every name. */
bool tool_set_has(const struct tool_set *tools, const char *name);

/* The JSON types that a parameter may have: a sum of 1 << enum json_type. */
int tool_set_types(const struct tool_set *tools, const char *tool, const char *parameter);

/* The same of a schema. */
int schema_types(const struct json *schema);

/* ---- messages ------------------------------------------------------------------------------- */

/* The entry of a call in what is being read; a new one if it has none yet. */
struct message_call *message_call_at(struct message *message, int index);

/* Writes an id, which follows from seed and index, or from what was read of the call. */
void write_call_id(char id[MAX_CALL_ID], enum id_style style, uint64_t seed, int index,
                   const struct pattern_reader *reader);

/* Appends a byte of a text as JSON writes it inside of quotes. */
void add_escaped(struct buf *out, char c);

#endif
