/* tool_rows: two tools, the rows of families that may call them, and the grammars of such answers.
 * */
#ifndef SUPPORT_TOOL_ROWS_H
#define SUPPORT_TOOL_ROWS_H

#include "engine/grammar/grammar.h"
#include "server/message/internal.h"

/* The schemas of the tools "f" and "get_time-2.x". */
#define F_SCHEMA                                                                                   \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":-9,\"maximum\":" \
    "99},\"s\":{\"type\":\"string\",\"maxLength\":6},\"p\":{\"type\":\"string\",\"pattern\":"      \
    "\"^[a-c]{1,4}$\"},\"e\":{\"enum\":[\"x\",\"y\"]},\"m\":{\"type\":[\"string\",\"null\"]},"     \
    "\"l\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":3},\"o\":{\"type\":"  \
    "\"object\",\"properties\":{\"a\":{\"type\":\"number\"}},\"additionalProperties\":false},"     \
    "\"u\":{}},\"required\":[\"n\",\"p\"],\"additionalProperties\":false}"
#define NONE_SCHEMA "{\"type\":\"object\",\"additionalProperties\":false}"

/* Arguments of f, and calls. */
#define ARGS "{\"n\": 1, \"p\": \"ab\"}"
#define XML "<parameter=n>\n1\n</parameter>\n<parameter=p>\nab\n</parameter>\n"
#define TOOL(text) "<tool_call>\n" text "\n</tool_call>"

#define HERMES(name, arguments) TOOL("{\"name\": \"" name "\", \"arguments\": " arguments "}")
#define H_CALL "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
#define H_THINK "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"

/* Kimi K3's elements, its thoughts, a call of f with ARGS and of the other tool, and the second. */
#define XTML(tag, inner) "<|open|>" tag "<|sep|>" inner "<|close|>" tag "<|sep|>"
#define K3_ARGUMENT(key, type, value)                                                              \
    "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"
#define K3_CALL(name, index, arguments)                                                            \
    "<|open|>call tool=\"" name "\" index=\"" index "\"<|sep|>" arguments "<|close|>call<|sep|>"
#define K3_THOUGHT XTML("think", "Hm.")
#define K3_CALLS                                                                                   \
    XTML("tools",                                                                                  \
         K3_CALL("f", "1", K3_ARGUMENT("n", "number", "1") K3_ARGUMENT("p", "string", "ab"))       \
             K3_CALL("get_time-2.x", "2", ""))
#define K3_NONE XTML("tools", K3_CALL("get_time-2.x", "1", ""))

#define COUNT(rows) (sizeof rows / sizeof *rows)

/* The tools, and the set of them. */
extern struct json *tools;
extern struct tool_set *known;
void tool_rows_open(void);
void tool_rows_close(void);

/* Writes the first names of all rows; each ends with a 0. Returns their number. */
int tool_row_names(char names[64][40]);

/* Returns what a request with both tools asks of the row's grammar. */
struct tool_grammar tool_row(const char *name);

/* Compile a grammar; fail if it is refused. */
struct grammar *compile_text(enum grammar_kind kind, const char *text);
struct grammar *grammar_of_tools(const struct tool_grammar *asked);

/* Is the whole text allowed? */
bool grammar_accepts(struct grammar *grammar, const char *text);

#endif
