/* server/message, internal: declarations that the files of this folder share. Files outside must
 * not include it. */
#ifndef PENSTOCK_SERVER_MESSAGE_INTERNAL_H
#define PENSTOCK_SERVER_MESSAGE_INTERNAL_H

#include <stddef.h>

#include "server/message/message.h"

/* ---- table rows ----------------------------------------------------------------------------- */

/* White space that the grammar may write or not, in the patterns of a form. */
#define OPTIONAL_BLANK "\t"
#define OPTIONAL_BREAK "\r"
/* A semicolon that may be absent, also for the parser. */
#define OPTIONAL_SEMICOLON "\v"

/* One way to write a run of calls: open, call, then (between, call) any number of times, close.
 *
 * Each is a pattern. For the parser, white space in it matches any white space, or none; all other
 * bytes match themselves. The grammar writes blanks and line breaks exactly as in the row, and
 * optional ones at most once. A `call` has placeholders:
 *
 *   %n  the name                              get_time
 *   %i  an id: letters and digits; the grammar writes 1 to 4 digits, or nine letters and digits
 *   %a  the arguments as JSON                 {"zone": "UTC"}
 *   %j  name and arguments in one object      {"name": "get_time", "arguments": {"zone": "UTC"}}
 *   %x  parameters as XML elements            <parameter=zone>\nUTC\n</parameter>\n
 *   %k  parameters as pairs of XML elements   <arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n
 *   %l  like %x, with Python literals         <parameter=zones>[None, 'UTC']</parameter>\n
 *   %m  like %x, with name="zone"         <parameter name="zone">UTC</parameter>\n
 *   %c  the same of MiniCPM 5               <param name="zone">UTC</param>
 *   %d  the same of DeepSeek, with a type as in xml.c
 *   %s  the same of Step 3                  <steptml:parameter name="zone">UTC</steptml:parameter>
 *   %o  the same of Solar Open 2, as in xml.c
 *   %h  like %k, with the markers of HunYuan 3   <arg_key:opensource>zone</arg_key:opensource>
 *   %q  like %m, of Muse Glimmer          <atem:parameter name="zone">UTC</atem:parameter>
 *   %y  like %k, with the markers of HunYuan 4   <arg_key:6124c78e>zone</arg_key:6124c78e>
 *   %t  the same of Kimi K3, also as in xml.c
 *   %e  parameters as nested elements of MiniMax M3, as in elements.c
 *   %g  arguments as Gemma 4 writes them      zone:<|"|>UTC<|"|>
 *   %f  arguments of FunctionGemma            zone:<escape>UTC<escape>
 *   %p  arguments as Python writes them       zone="UTC"
 *
 * The text after %x, %k, %l, %m, %c, %d, %s, %h, %y and %q begins with "</", after %t with
 * "<|close|>", after %o with "<|tool_call:end|>", after %e with ELEMENT_MARK "</". These
 * placeholders consume it up to "<", "<|" or "<|tool_", so the row omits that. The text after %p
 * begins with the closing parenthesis, after %g and %f with "}". */
struct tool_form {
    /* A NULL `call` marks an unused form. A form with `close` also has `open`. */
    const char *open, *call, *between, *close;
    const char *arguments_key; /* the key of %j that the grammar writes */
    /* the text at which a call must follow, if it is not all of `open` or `call` before the first
     * white space or placeholder; `open` begins with it */
    const char *marker;
    /* calls occur only at the start of an answer; `open` is not a marker elsewhere */
    bool at_start;
    /* the grammar writes it too, although an earlier form begins with the same marker */
    bool is_alternative;
};

#define MAX_FORMS 4 /* more than N_MARKS */

#define MAX_PART_MARKS 4
#define ATEM_CALL                                                                                  \
    "<atem:function_calls>\n<atem:invoke name=\"%n\">\n%q/atem:invoke>\n</atem:function_calls>"

/* An answer of several parts: HEADER BODY END, any number of times. Lists end with NULL. */
struct parts_style {
    const char *heads[MAX_PART_MARKS]; /* a header ends with one of them */
    const char *ends[MAX_PART_MARKS];  /* a body ends with one of them */
    const char *thinks;                /* a header that contains it begins reasoning */
    /* A header that contains `calls` and none of `no_calls` begins a call with this body. */
    const char *calls, *no_calls[MAX_PART_MARKS], *body;
    bool is_named;       /* the name of the function follows `calls`; else the body has it */
    bool has_words;      /* a header may begin with a function's name */
    const char *markers; /* all texts of markers, one after the other */
    /* For the grammar: the texts around reasoning, before a text that precedes a call, and before
     * the answer. `think_close` begins with `think_end`. Bodies contain none of the texts in the
     * JSON list `excludes`. */
    const char *think_open, *think_close, *text_open, *final_open, *excludes;
    const char *final_close;                            /* may follow the answer; NULL: none */
    const char *think_end, *before_final, *before_call; /* after the first, one of the others */
};

/* "call_" + 24 letters and digits; 9 letters and digits; "functions.NAME:" + the call's %i. */
enum id_style { ID_CALL, ID_NINE, ID_KIMI };

struct tool_format {
    const char *names;     /* separated by spaces */
    const char *needle[2]; /* a template that contains one of them uses this format; may be NULL */
    const char *also;      /* if it contains this text, too; NULL: always */
    enum id_style ids;
    /* Messages of several parts, which harmony.c reads; NULL: one part. The forms are then for the
     * grammar alone; without them it writes calls as gpt-oss does. */
    const struct parts_style *parts;
    /* The text before content at the start of an answer; NULL: none. Then the first form is a call
     * at the start, the second one a later call with a marker. */
    const char *prefix;
    /* The parser tries the forms in order at a possible start of a call. If several forms begin
     * with the same marker, the grammar uses the first one and its alternatives. The forms that it
     * uses must have `between`. */
    struct tool_form forms[MAX_FORMS];
    const struct tool_form *envelope; /* [N_MARKS]; NULL: none */
};

/* The envelope of content: marks that the parser drops and that the grammar may write.
 *
 *   open CONTENT close CALLS last */
enum mark { MARK_OPEN, MARK_CLOSE, MARK_LAST, N_MARKS }; /* a row without `call` is unused */

struct reasoning_format {
    const char *names, *needle;       /* as above */
    const char *begin, *end;          /* markers around the reasoning */
    const struct parts_style *parts;  /* as above; then without `begin` and `end` */
    const struct tool_form *envelope; /* [N_MARKS]; NULL: none */
    bool in_content; /* the reasoning and its markers stay in the content; not with `parts` */
};

/* ---- reading byte by byte ------------------------------------------------------------------- */

enum reading {
    READ_MORE,   /* the byte belongs to the value; more bytes may follow */
    READ_DONE,   /* the byte is the last byte of the value */
    READ_BEFORE, /* the value ended before this byte; the byte was not consumed */
    READ_BROKEN, /* this byte cannot follow */
};

static inline bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
/* May the byte be part of a tool's name? */
bool is_name_byte(char c);

/* One JSON value (RFC 8259), with optional white space before it. Zero-initialise it to begin. */
struct json_scan {
    uint8_t state, count;
    uint8_t depth;
    const char *word;                      /* the rest of true, false or null */
    uint64_t objects[JSON_MAX_DEPTH / 64]; /* per depth: object (1) or array (0) */
};
enum reading json_scan_add(struct json_scan *scan, char c);

/* Is the next byte inside a string? */
bool json_scan_in_string(const struct json_scan *scan);

/* A name, possibly incomplete. */
struct name {
    char text[MAX_TOOL_NAME + 1];
    int length;
};
bool name_add(struct name *name, char c); /* false: the name is too long */

/* %j: an object with a name, arguments and other members in any order. */
struct call_object {
    uint8_t state, member;
    struct name key;
    struct json_scan value;
    bool has_name, has_arguments, has_type;
    bool is_strict; /* an object with other members before the arguments is no call */
};
enum reading call_object_add(struct call_object *object, char c, struct name *name,
                             struct buf *arguments);

/* %p: the arguments of a Python call, converted to a JSON object. */
struct python_arguments {
    uint8_t state, count, depth;
    char quote, escape;
    bool begun, is_key, key_ended;
    bool has_item;                /* the next item needs a comma before it */
    uint32_t value;               /* of an escape */
    uint8_t open[JSON_MAX_DEPTH]; /* per depth: the opening bracket */
    const char *word, *becomes;
    struct name key;
    struct json_scan number;
};
enum reading python_arguments_add(struct python_arguments *python, char c, struct buf *arguments);

/* Reads one Python value and appends it as JSON. Returns false if the text is not a value or is
 * incomplete. If it is a list of several arguments, the appended text is not valid JSON. */
bool python_value_add(struct python_arguments *python, char c, struct buf *out);
bool python_value_end(struct python_arguments *python, struct buf *out);

/* Is the next byte inside a string? */
bool python_in_string(const struct python_arguments *python);

#define GEMMA_TEXT_MARK "<|\"|>" /* around a text, a token of its own */
#define FUNCTION_GEMMA_TEXT_MARK "<escape>"

/* %g and %f: the arguments of Gemma 4 and FunctionGemma, converted to a JSON object. */
struct gemma_arguments {
    const char *mark; /* around texts; begins with "<", which is nowhere else in it */
    uint8_t state, depth, matched;
    bool begun, key_ended;
    bool has_item;                /* the next item needs a comma before it */
    uint8_t open[JSON_MAX_DEPTH]; /* per depth: the opening bracket */
    const char *word, *becomes;
    struct name key;
    struct json_scan number;
};
enum reading gemma_arguments_add(struct gemma_arguments *gemma, char c, struct buf *arguments);

#define ELEMENT_MARK "]<]minimax[>[" /* before each tag of %e, a token of its own */
#define MAX_ELEMENTS 16              /* depth */

/* An open element: its value is decided by its first byte or tag. */
struct open_element {
    uint8_t kind;
    bool has_item;
    struct name name;
    const struct parameter *of; /* its schema, or NULL */
};

/* %e: nested elements, converted to a JSON object. */
struct elements {
    uint8_t state;
    bool begun, has_item; /* the next parameter needs a comma before it */
    int matched;          /* bytes of the mark */
    int depth;
    struct open_element open[MAX_ELEMENTS];
    struct json_scan json; /* state of the value unless it is a text */
    bool json_ended;       /* the value has ended or is invalid */
    struct name key;       /* of the tag */
};
/* `value` keeps the bytes of a value until its end. */
enum reading elements_add(struct elements *elements, char c, const struct tool_set *known,
                          const struct name *tool, struct buf *value, struct buf *arguments);

#define XML_PLACEHOLDERS "xklmcdtsohyq" /* the placeholders that stand for XML elements */

/* Returns the name of a placeholder's style in structural tags. */
const char *xml_style_name(char placeholder);

/* Sets *text to the text after the parameters and returns how many bytes of it the placeholder
 * consumes. */
size_t xml_style_consumed(char placeholder, const char **text);

/* Do the markers of a placeholder's style contain the text? */
bool xml_style_holds(char placeholder, const char *text, size_t length);

/* XML_PLACEHOLDERS: parameters, converted to a JSON object. A parameter that is not a string by its
 * schema is read as JSON, or for %l as a Python literal. */
struct xml_arguments {
    uint8_t state, flag; /* flag: an index */
    char placeholder;
    int matched; /* bytes of the marker that have matched */
    bool begun, has_item, is_text;
    bool has_break; /* a line break may be the last byte of a text; then it is dropped */
    int types;      /* allowed types of the parameter: a bit set of 1 << enum json_type */
    struct name key;
    struct buf value;      /* not written yet */
    struct json_scan json; /* state of the value unless it is a text; for %l, `python` is used */
    struct python_arguments python;
    struct buf literal; /* the Python value as JSON */
    bool json_ended;    /* the value has ended or is invalid */
};
enum reading xml_arguments_add(struct xml_arguments *xml, char c, const struct tool_set *known,
                               const struct name *name, struct buf *arguments);

/* ---- one part of a run ---------------------------------------------------------------------- */

/* Reads text by a pattern. Zero-initialise all fields except `pattern` to begin. */
struct pattern_reader {
    const char *pattern; /* the rest of the pattern */
    const char *next;    /* the pattern after it, or NULL */
    bool inside;         /* inside a marker or a placeholder */
    bool knows_name;     /* `name` is complete and names a tool */
    bool has_arguments;  /* the arguments have begun */
    bool is_whole;       /* the call's content is complete; only markers may follow */
    struct name name, id;
    struct buf arguments; /* not yet passed on */
    struct json_scan json;
    struct call_object object;
    struct python_arguments python;
    struct gemma_arguments gemma;
    struct xml_arguments xml;
    struct elements elements;
};

/* Begins `pattern`, followed by `next`. Keeps the memory of the previous pattern. */
void pattern_begin(struct pattern_reader *reader, const char *pattern, const char *next);
enum reading pattern_add(struct pattern_reader *reader, char c, const struct tool_set *known);
void pattern_free(struct pattern_reader *reader);

/* May a run of this form begin with this byte? */
bool form_may_begin(const struct tool_form *form, char c);

/* ---- the parser (parser.c, harmony.c) ------------------------------------------------------- */

/* The content of a harmony part. */
enum harmony_body { BODY_CONTENT, BODY_REASONING, BODY_CALL, BODY_BEHIND_CALL };

enum mode {
    MODE_START, /* a block of reasoning, or the prefix of content, may begin */
    MODE_REASONING,
    MODE_TEXT,
    MODE_CALLS,
    MODE_HEADER, /* of a harmony part */
    MODE_BODY,
};

enum part { PART_OPEN, PART_CALL, PART_CLOSE, PART_NEXT };

struct message_parser {
    struct message_settings settings;
    struct message *out; /* set while text is added */
    enum mode mode;
    struct buf input; /* undecided bytes, then the newest ones */
    size_t start, at; /* indices of the first undecided byte and of the next byte */
    struct buf space; /* pending white space, which may be dropped */
    bool drops_space; /* white space is dropped: no content before it */
    bool has_content, is_behind_call;
    bool owes_begin;                  /* the prompt holds the marker that the content begins with */
    const char *prefix;               /* before content at the start, dropped; NULL: none */
    int matched;                      /* matched bytes of a reasoning marker or of the prefix */
    const struct tool_form *envelope; /* of the settings' formats, or NULL */
    /* the current run of calls, or from MAX_FORMS on a mark of the envelope */
    int form;
    enum part part;
    struct pattern_reader reader;
    int n_calls;        /* number of calls passed on */
    bool is_announced;  /* the current call was passed on, at least its name */
    bool is_last_whole; /* the last call that was passed on is complete */
    enum harmony_body body;
    struct thought_calls *thoughts; /* NULL: calls in thoughts do not count */
};

/* Appends bytes of content or reasoning. White space is held back until another byte follows. */
void parser_add_content(struct message_parser *parser, const char *text, size_t length);
void parser_add_reasoning(struct message_parser *parser, char c);

/* Drops pending white space. */
void parser_drop_space(struct message_parser *parser);

/* Passes on the arguments read so far; for a new call, its id and name first. */
void parser_give_call(struct message_parser *parser);

/* Called after the last byte of a call. */
void parser_end_call(struct message_parser *parser);

/* The styles of gpt-oss, Inkling and Muse Glimmer. */
extern const struct parts_style harmony_parts, inkling_parts, muse_parts;

/* Returns the style of a format of calls or of reasoning; each may be NULL. NULL: one part. */
const struct parts_style *parts_of(const struct tool_format *tools,
                                   const struct reasoning_format *reasoning);

/* Processes the byte at `at` in the harmony modes; at the end of the text, the rest. */
void harmony_step(struct message_parser *parser, char c);
void harmony_finish(struct message_parser *parser);

/* ---- calls at the end of thoughts (thought_calls.c) ------------------------------------------ */

/* The settings have tools and reasoning. The caller frees it. */
struct thought_calls *thought_calls_new(const struct message_settings *settings);
void thought_calls_free(struct thought_calls *calls); /* NULL is ignored */

/* Reads a byte of the thoughts. */
void thought_calls_add(struct thought_calls *calls, char c);

/* Called after the last byte. Returns the whole calls at the end, which the object holds. */
const struct message *thought_calls_finish(struct thought_calls *calls);

/* ---- texts and calls in grammars (grammar_call.c) ------------------------------------------- */

/* Writes calls of one form. */
struct call_writer {
    const struct tool_grammar *asked;
    const struct tool_form *form;
    struct buf *out;
    bool is_second; /* in a list: write a comma first */
};

/* Append a text as a JSON string. */
void grammar_write_text(struct buf *out, const struct buf *text);
void grammar_write_chars(struct buf *out, const char *text);

/* Appends a text of a form to a regular expression. */
void grammar_add_exact(struct buf *out, const char *text, size_t length);

/* Returns the length of the text before its first optional byte. */
size_t form_fixed_length(const char *text);

/* Writes a text of a form as a format. */
void grammar_write_piece(struct buf *out, const char *text);

/* Writes optional marks as further elements of a sequence. */
void grammar_write_marks(struct buf *out, const struct tool_form *envelope, enum mark first,
                         enum mark last);

/* Writes the format of the arguments that replace a placeholder. */
void grammar_write_arguments(struct buf *out, char placeholder, const struct json *function);

/* Writes a call as a tag: the text up to the first part that varies, then a sequence. */
void grammar_write_call(struct call_writer *to, const struct json *function);

/* ---- tools ---------------------------------------------------------------------------------- */

#define ALL_TYPES 0x3F

/* Can a tool of this name be called? With NULL, every name can. */
bool tool_set_has(const struct tool_set *tools, const char *name);

/* Has the tool `strict`? */
bool tool_set_is_strict(const struct tool_set *tools, const char *name);

/* Returns the JSON types that a parameter may have: a bit set of 1 << enum json_type. */
int tool_set_types(const struct tool_set *tools, const char *tool, const char *parameter);

/* A parameter of a tool, or a value in it. */
struct parameter;

/* Returns a parameter, or NULL if its schema is not known. */
const struct parameter *tool_set_parameter(const struct tool_set *tools, const char *tool,
                                           const char *parameter);

/* Returns a member of an object, or with NULL an item of an array; NULL if it is not known. */
const struct parameter *parameter_child(const struct parameter *parent, const char *name);

/* Returns the JSON types of a parameter; NULL may have any. */
int parameter_types(const struct parameter *parameter);

/* Is the parameter always a text? Inside of another one only the type "string" says so. */
bool parameter_is_text(const struct parameter *parameter);

/* The same for a schema. */
int schema_types(const struct json *schema);

/* Writes a value of a schema. If it is a hint, a maxProperties that needs too many rules of a
 * grammar is left out. */
void schema_write(struct buf *out, const struct json *value, bool is_hint);

/* ---- messages ------------------------------------------------------------------------------- */

/* Writes an id. It depends on the seed and index, or for ID_KIMI on the text of the call. */
void write_call_id(char id[MAX_CALL_ID], enum id_style style, uint64_t seed, int index,
                   const struct pattern_reader *reader);

/* Appends one byte of a text, escaped for a JSON string. */
void add_escaped(struct buf *out, char c);

#endif
