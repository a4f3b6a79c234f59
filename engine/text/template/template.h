/* Shared declarations of the chat template interpreter; only this folder includes it.
 *
 * A template is lexed and parsed once into a tree of `struct template_node`, which is read-only
 * afterwards. A render walks that tree with a separate `struct render`. Both allocate from one
 * bounded arena and hold neither locks nor handles. So an error anywhere jumps directly back to
 * the public function, which frees the arena; `struct guard` holds the jump and the limits. One
 * thread at a time uses a guard and a render.
 *
 * Every function that takes a `struct render *` may fail in this way. Its result is valid until the
 * render ends.
 */
#ifndef PENSTOCK_TEMPLATE_H
#define PENSTOCK_TEMPLATE_H

#include <setjmp.h>

#include "engine/text/text.h"

/* ---- guard: memory, bounds and errors ------------------------------------------------------- */

#define TEMPLATE_NESTING_MAX 200              /* height of the syntax tree */
#define TEMPLATE_DEPTH_MAX 1000               /* nested evaluations, macros and values */
#define TEMPLATE_STEPS_MAX 20000000           /* roughly half a second */
#define NUMBER_STEPS 250                      /* charged for printing or reading a float */
#define TEMPLATE_SOURCE_MAX ((size_t)1 << 20) /* bytes of a template's source */
#define TEMPLATE_RANGE_MAX 100000             /* items of range(), the limit of jinja2's sandbox */

struct guard {
    struct arena *arena;
    jmp_buf escape;
    struct err *err;
    enum status status; /* the status of a failure */
    int line;           /* the template's line that is now read or run, from 1 */
    int depth;          /* number of active nested calls, at most TEMPLATE_DEPTH_MAX */
    uint64_t steps;     /* work charged so far, at most TEMPLATE_STEPS_MAX */
};

/* Sets *err to "chat template, line N: <sentence>" and jumps to guard->escape. */
_Noreturn void guard_fail(struct guard *guard, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns uninitialised memory, valid until the guard's arena is freed; never NULL. */
void *guard_alloc(struct guard *guard, size_t bytes);
/* Allocates `n` elements and checks for overflow. */
void *guard_array(struct guard *guard, size_t n, size_t bytes);
/* Counts work; fails beyond TEMPLATE_STEPS_MAX. */
void guard_charge(struct guard *guard, size_t steps);
/* Enter and leave a nested call; entering fails beyond TEMPLATE_DEPTH_MAX. */
void guard_enter(struct guard *guard);
void guard_leave(struct guard *guard);

/* ---- values --------------------------------------------------------------------------------- */

enum value_kind {
    VALUE_MISSING, /* an argument or attribute that does not exist */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST, /* also tuples, ranges, views, generators: see list_flavour */
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_FUNCTION,
    VALUE_METHOD,
    VALUE_MACRO,
    VALUE_LOOP,
};

struct value {
    enum value_kind kind;
    /* VALUE_UNDEFINED: the kind of object that lacks the attribute; VALUE_MISSING for a variable.
     * VALUE_STRING: VALUE_STRING if the string is safe like jinja2's Markup: + then escapes the
     * text that it adds. */
    union {
        enum value_kind holder;
        uint32_t large; /* VALUE_FLOAT: 0, or the number of an integer beyond 64 bits (render) */
    };
    union {
        bool boolean;
        int64_t integer;
        double real;
        const struct string *string; /* VALUE_STRING; VALUE_UNDEFINED: the name, or NULL */
        struct template_list *list;  /* VALUE_LIST */
        struct dict *dict;           /* VALUE_DICT, VALUE_NAMESPACE */
        const struct builtin *function;
        struct method *method;
        struct macro *macro;
        struct loop *loop;
    };
};

/* Bytes of UTF-8. Each byte belongs to the template or to the user. Immutable. */
struct string {
    const char *data;
    const uint8_t *mask; /* [length] 1: the user's byte; NULL: `user` applies to all bytes */
    size_t length;       /* bytes */
    bool user;
    /* the builder that starts with these bytes, or NULL; see string_append */
    struct template_builder *home;
};

enum list_flavour { /* flavours that Python can index are first */
                    LIST_PLAIN,
                    LIST_TUPLE,
                    LIST_RANGE,
                    LIST_KEYS, /* views of a dict */
                    LIST_VALUES,
                    LIST_ITEMS,
                    LIST_GENERATOR, /* can be iterated once */
};

struct template_list {
    struct value *items;
    size_t n;
    enum list_flavour flavour;
    bool spent;                /* LIST_GENERATOR: it was already iterated */
    int64_t start, stop, step; /* LIST_RANGE, for printing */
    struct list_store *store;  /* growable memory that starts with the items, or NULL */
};

struct pair {
    struct value key, value;
};

/* In insertion order. A dict with more than a few pairs has a hash table. */
struct dict {
    struct pair *pairs;
    size_t n, capacity;
    uint32_t *slots; /* [n_slots] 1 + index into pairs, 0: free; NULL in small dicts */
    size_t n_slots;  /* a power of two */
};

struct keyword {
    const struct string *name;
    struct value value;
};

struct args {
    struct value *position;
    size_t n_positions;
    struct keyword *keyword;
    size_t n_keywords;
};

struct render;

/* A filter, test, method or function. `params` names its parameters, separated by commas; the first
 * `required` ones are mandatory. `run` gets one position per parameter, VALUE_MISSING for omitted
 * ones. A parameter with a leading '#' is not available as a keyword. If params is NULL, `run` gets
 * the arguments as written. */
struct builtin {
    const char *name;
    struct value (*run)(struct render *r, struct value self, const struct args *args);
    const char *params;
    int required;
};

struct method {
    const struct builtin *builtin;
    struct value self;
};

struct macro {
    const struct template_node *node; /* NODE_MACRO or NODE_CALL_BLOCK */
    struct template_frame *frame;     /* the scope of its definition */
};

struct loop {
    const struct template_node *node; /* NODE_FOR */
    struct template_frame *frame;     /* the scope around the loop */
    int depth;                        /* depth of recursion; 0: not a recursive call */
    struct template_list *list;
    size_t index;        /* from 0 */
    struct args changed; /* the last arguments of loop.changed */
    bool was_asked;
};

#define VALUE_NOTHING ((struct value){.kind = VALUE_MISSING})
#define VALUE_OF_NONE ((struct value){.kind = VALUE_NONE})
#define VALUE_OF_BOOL(b) ((struct value){.kind = VALUE_BOOL, .boolean = (b)})
#define VALUE_OF_INT(i) ((struct value){.kind = VALUE_INT, .integer = (i)})
#define VALUE_OF_FLOAT(f) ((struct value){.kind = VALUE_FLOAT, .real = (f)})
#define VALUE_OF_STRING(t) ((struct value){.kind = VALUE_STRING, .string = (t)})
#define VALUE_OF_LIST(l) ((struct value){.kind = VALUE_LIST, .list = (l)})
#define VALUE_OF_DICT(d) ((struct value){.kind = VALUE_DICT, .dict = (d)})

/* ---- text (template/string.c) --------------------------------------------------------------- */

/* A growing string. It gets a mask at the first byte with another owner. */
struct template_builder {
    char *data;
    uint8_t *mask;
    size_t length, capacity;
    size_t limit; /* in bytes; 0: limited only by memory */
    bool user;
};

/* Returns an empty builder without a limit. Functions that add to it charge the render for the
 * bytes, and fail beyond b->limit. */
struct template_builder *builder_new(struct render *r);
void builder_add(struct render *r, struct template_builder *b, const char *data, size_t length,
                 bool user);
/* text of the template */
void builder_puts(struct render *r, struct template_builder *b, const char *text);
void builder_add_string(struct render *r, struct template_builder *b, const struct string *text);
void builder_add_part(struct render *r, struct template_builder *b, const struct string *text,
                      size_t start, size_t length);
/* Returns the builder's current content as a value that shares its bytes. */
struct value builder_value(struct render *r, struct template_builder *b);

struct value string_of(struct render *r, const char *literal); /* a literal in the program */
struct value string_copy(struct render *r, const char *data, size_t length, bool user);
struct value string_part(struct render *r, const struct string *text, size_t start, size_t length);
/* Returns left + right. Repeated appending to one string takes linear time: a string that ends at
 * its builder's end grows in place. */
struct value string_append(struct render *r, const struct string *left, const struct string *right);
/* Does the byte at `at` belong to the user? */
bool string_is_user(const struct string *text, size_t at);
bool string_equal(const struct string *a, const struct string *b);
bool string_is(const struct string *text, const char *literal);
/* Returns the number of bytes of a name that an error shows, for "%.*s". */
static inline int shown_length(const struct string *name) {
    return name->length > 100 ? 100 : (int)name->length;
}
/* Compares the bytes, which is also the order of the characters: -1, 0 or 1. */
int string_compare(const struct string *a, const struct string *b);
/* Return the byte offset of the first `part` at or after `from`, or of the last one; or -1. */
ptrdiff_t string_find(struct render *r, const struct string *text, const struct string *part,
                      size_t from);
ptrdiff_t string_find_last(struct render *r, const struct string *text, const struct string *part);
size_t string_points(struct render *r, const struct string *text); /* length in characters */
size_t string_offset(const struct string *text, size_t from,
                     size_t n_points);                    /* offset after n more characters */
size_t string_next(const struct string *text, size_t at); /* offset of the next character */
int32_t string_point(const struct string *text, size_t at,
                     size_t end);       /* the character at `at`; -1: invalid UTF-8 */
bool point_is_space(int32_t point);     /* Python's str.isspace */
bool point_is_printable(int32_t point); /* Python's str.isprintable */
/* Maps each character; `how` also gets the previous one (-1 at the start). */
struct value string_map(struct render *r, const struct string *text,
                        int32_t (*how)(int32_t point, int32_t previous));
/* Returns the text with & < > ' and " replaced by entities, as a safe string (see struct value). */
struct value string_escape(struct render *r, const struct string *text);
static inline bool value_is_safe(struct value value) {
    return value.kind == VALUE_STRING && value.holder == VALUE_STRING;
}
static inline struct value value_safe(struct value string) {
    string.holder = VALUE_STRING;
    return string;
}
int32_t point_upper(int32_t point, int32_t previous);
int32_t point_lower(int32_t point, int32_t previous);
bool point_is_cased(int32_t point); /* an upper, lower or title case letter */
/* Removes the characters of `set` (NULL: white space) at the ends. */
struct value string_strip(struct render *r, const struct string *text, const struct string *set,
                          bool left, bool right);

/* ---- values (template/value.c, template/print.c) -------------------------------------------- */

struct template_list *list_new(struct render *r, size_t n,
                               enum list_flavour flavour); /* items uninitialised */
/* Returns an empty list that list_push can extend. */
struct template_list *list_open(struct render *r, enum list_flavour flavour);
void list_push(struct render *r, struct template_list *list, struct value value);
/* Returns left + right, in time linear in `right` if `left` is extended repeatedly. */
struct template_list *list_concat(struct render *r, struct template_list *left,
                                  struct template_list *right);
struct value list_pair(struct render *r, struct value a, struct value b); /* a tuple of two */

/* A dict owns its arrays, but not the values. Fails for keys that Python cannot hash. */
struct dict *dict_new(struct render *r);
void dict_set(struct render *r, struct dict *dict, struct value key, struct value value);
struct value *dict_get(struct render *r, const struct dict *dict,
                       struct value key); /* NULL: the key is missing */
struct value *dict_find(struct render *r, const struct dict *dict, const char *key);
struct dict *dict_copy(struct render *r, const struct dict *dict);

bool value_truth(struct value value);
bool value_equal(struct render *r, struct value a, struct value b);
int value_compare(struct render *r, struct value a,
                  struct value b); /* fails if Python does not define an order */
bool value_contains(struct render *r, struct value container, struct value item);
bool value_is_number(struct value value);   /* bool, int or float */
double value_real(struct value value);      /* of a number */
bool value_is_integral(struct value value); /* bool or int */
int64_t value_integer(struct value value);
/* Return the value as an integer or a string. Fail with "<what> must be ..." for other kinds. */
int64_t value_need_int(struct render *r, struct value value, const char *what);
const struct string *value_need_string(struct render *r, struct value value, const char *what);
const char *value_type(struct value value); /* Python's name of the type */
/* Fails with the name of the undefined value. */
_Noreturn void value_undefined_fail(struct render *r, struct value value);
/* Returns the items for a for loop; a generator returns them only once. Fails for other kinds. */
struct template_list *value_iterate(struct render *r, struct value value);
bool value_is_iterable(struct value value);
/* Returns len(value); fails for values without a length. */
size_t value_length(struct render *r, struct value value);

/* Append str(value); append repr(value); return str(value). */
void value_print(struct render *r, struct template_builder *b, struct value value);
void value_repr(struct render *r, struct template_builder *b, struct value value);
const struct string *value_string(struct render *r, struct value value);
void real_print(char out[32], double real); /* Python's repr of a float */
/* Returns the text of an integer beyond 64 bits, whose value is a float here; NULL: it is none. */
const char *value_digits(const struct render *r, struct value value);

/* ---- JSON (template/json.c) ----------------------------------------------------------------- */

struct value value_from_json(struct render *r,
                             const struct json *json); /* strings belong to the user */
struct value filter_tojson(struct render *r, struct value self, const struct args *args);

/* ---- syntax tree (template/parse_statement.c) ----------------------------------------------- */

enum node_kind {
    /* expressions */
    NODE_CONST,     /* constant */
    NODE_NAME,      /* name */
    NODE_MEMBER,    /* name.attribute as the target of a set: name, attribute */
    NODE_LIST,      /* a: items */
    NODE_TUPLE,     /* a: items */
    NODE_DICT,      /* a: key, value, key, value... */
    NODE_ATTRIBUTE, /* a.name */
    NODE_ITEM,      /* a[b] */
    NODE_SLICE,     /* a:b:c as the b of NODE_ITEM, each may be NULL */
    NODE_CALL,      /* a(b...) */
    NODE_ARGUMENT,  /* a; name: keyword argument; op '*': *a, op TEMPLATE_POW: **a */
    NODE_FILTER,    /* a|name(b...); in a filtered block, a is NULL */
    NODE_TEST,      /* a is name(b...) */
    NODE_NOT,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_AND,
    NODE_OR,
    NODE_BINARY,    /* a op b */
    NODE_CONCAT,    /* a: operands of ~ */
    NODE_COMPARE,   /* a, then b: NODE_OPERANDs */
    NODE_OPERAND,   /* op a */
    NODE_CONDITION, /* b if a else c; c may be NULL */
    /* statements */
    NODE_DATA,         /* constant, written unchanged */
    NODE_OUTPUT,       /* {{ a }} */
    NODE_IF,           /* a: NODE_BRANCHes */
    NODE_BRANCH,       /* if a (NULL: else), then b */
    NODE_FOR,          /* for a in b if e: c; else d; op 1: recursive */
    NODE_SET,          /* a = b */
    NODE_SET_BLOCK,    /* a = (c) through the filters b, which may be NULL */
    NODE_WITH,         /* a: target, value, target, value...; c: body */
    NODE_MACRO,        /* name; a: parameters; c: body */
    NODE_PARAMETER,    /* name; a: default or NULL */
    NODE_CALL_BLOCK,   /* a: parameters; b: the call; c: body */
    NODE_FILTER_BLOCK, /* b: filters; c: body */
    NODE_SCOPE,        /* c: body, with a new scope */
    NODE_BREAK,
    NODE_CONTINUE,
};

struct template_node {
    enum node_kind kind;
    int op; /* enum token_kind */
    int line;
    int height;                 /* of the subtree */
    struct template_node *next; /* in the node's list */
    struct template_node *a, *b, *c, *d, *e;
    const struct string *name, *attribute;
    const struct builtin
        *builtin; /* NODE_FILTER, NODE_TEST: the function with the name; NULL: unknown */
    bool uses_caller, uses_kwargs, uses_varargs; /* NODE_MACRO, NODE_CALL_BLOCK */
    struct value constant;
};

/* Parses a whole template into the guard's arena. */
struct template_node *template_parse(struct guard *guard, const char *source, size_t length);

/* ---- wishes of a client (template/variables.c) ---------------------------------------------- */

#define TEMPLATE_SWITCHES_MAX 4

/* The variables for wishes that a template reads before it sets them. */
struct template_wishes {
    bool switches[TEMPLATE_SWITCHES_MAX]; /* by the table of variables.c */
    bool reasoning_effort, thinking_effort, thinking_budget, verbosity;
};

/* Finds them in a template's tree and source. */
void template_find_wishes(struct template_wishes *wishes, const struct chat_template *from,
                          const struct template_node *body);
struct chat_wishes template_known_wishes(const struct template_wishes *wishes);

struct render;

/* Sets the variables for the wishes of an input. Its `extra` is set later. */
void template_set_wishes(struct render *r, const struct template_wishes *wishes,
                         const struct chat_input *input);
void render_set(struct render *r, const char *name, struct value value); /* sets a global */

/* ---- running (template/eval.c, template/exec.c) --------------------------------------------- */

struct binding {
    struct binding *next;
    const struct string *name;
    struct value value;
};

/* The variables of one scope. */
struct template_frame {
    struct template_frame *parent;
    struct binding *bindings, *spare; /* spare: bindings of earlier iterations for reuse */
    bool captured;                    /* a macro refers to it, so it must not be emptied */
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

struct render {
    struct guard guard;
    struct template_builder *out; /* the current output */
    struct template_frame *frame;
    struct dict *globals;
    int64_t time_s;
    const char **large; /* [n_large] texts of integers beyond 64 bits, of the documents */
    uint32_t n_large;
};

static inline void *render_alloc(struct render *r, size_t bytes) {
    return guard_alloc(&r->guard, bytes);
}

#define render_fail(r, ...) guard_fail(&(r)->guard, __VA_ARGS__)

static inline void render_charge(struct render *r, size_t steps) {
    guard_charge(&r->guard, steps);
}

/* Returns the value of an expression. */
struct value eval(struct render *r, const struct template_node *node);
/* Evaluates the arguments of a call; the result has capacity for `room` more keywords. */
struct args eval_args(struct render *r, const struct template_node *list, size_t room);
/* Applies a chain of filters. The innermost gets `input`. */
struct value eval_filters(struct render *r, const struct template_node *node, struct value input);
/* Calls a function, method, macro or recursive loop; fails for other values. */
struct value eval_call(struct render *r, struct value callee, const struct args *args);
/* Return object.name and object[index] by the rules of jinja2's sandbox. */
struct value value_attribute(struct render *r, struct value object, const struct string *name);
struct value value_item(struct render *r, struct value object, struct value index);
/* Returns object[start:stop:step]; VALUE_OF_NONE for an omitted part. */
struct value value_slice(struct render *r, struct value object, struct value start,
                         struct value stop, struct value step);
/* Returns a op b for + - * / % ** //. */
struct value value_binary(struct render *r, int op, struct value a, struct value b);

/* Runs a list of statements. Returns FLOW_BREAK or FLOW_CONTINUE if one of these ended the list
 * early. */
enum flow exec(struct render *r, const struct template_node *list);
/* Runs a recursive loop over another list and returns its output. */
struct value loop_call(struct render *r, const struct loop *loop, const struct args *args);
/* Runs a macro and returns its output. */
struct value macro_call(struct render *r, const struct macro *macro, const struct args *args);
/* Sets a variable of a scope. */
void frame_set(struct render *r, struct template_frame *frame, const struct string *name,
               struct value value);

/* ---- functions for templates (template/builtins.c and the files that it lists) -------------- */

/* Return the builtin with that name, or NULL; a method is looked up by the kind of `self`. */
const struct builtin *builtin_filter(const char *name, size_t length);
const struct builtin *builtin_test(const char *name, size_t length);
const struct builtin *builtin_function(const char *name, size_t length);
const struct builtin *builtin_method(struct value self, const char *name, size_t length);
/* Binds the arguments to the builtin's parameters and runs it. */
struct value builtin_run(struct render *r, const struct builtin *builtin, struct value self,
                         const struct args *args);
/* Does the test pass? */
bool builtin_test_passes(struct render *r, const struct builtin *test, struct value self,
                         const struct args *args);

extern const struct builtin template_filters_scalar[], template_filters_list[], template_tests[],
    template_functions[], template_string_methods[], template_list_methods[],
    template_dict_methods[], template_loop_methods[];

/* "..." % values, and "...".format(...). */
struct value string_percent(struct render *r, const struct string *format, struct value values);
struct value string_format(struct render *r, struct value self, const struct args *args);

/* Defines a builtin whose body is a single expression over r, self and args. */
#define BUILTIN(name, expression)                                                                  \
    static struct value name(struct render *r, struct value self, const struct args *args) {       \
        (void)r, (void)self, (void)args;                                                           \
        return expression;                                                                         \
    }

/* Returns the argument args->position[i], or `otherwise` if it was omitted. */
static inline struct value arg_or(const struct args *args, size_t i, struct value otherwise) {
    return args->position[i].kind == VALUE_MISSING ? otherwise : args->position[i];
}

#endif
