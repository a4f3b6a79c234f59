/* What the files of the chat template interpreter share; only this folder includes it.
 *
 * A template is lexed and parsed once into a tree of `struct node`, which is read-only afterwards.
 * A render walks that tree with a `struct render` of its own. Both allocate from one bounded arena
 * and hold no lock and no handle, so an error anywhere jumps straight back to the public function,
 * which frees the arena: that is `struct guard`. One thread at a time uses a guard and a render.
 *
 * Every function that takes a `struct render *` may fail in this way; what it returns lives until
 * the render ends.
 */
#ifndef PENSTOCK_TEMPLATE_H
#define PENSTOCK_TEMPLATE_H

#include <setjmp.h>

#include "engine/text/text.h"

/* ---- guard: memory, bounds and errors ------------------------------------------------------- */

#define TEMPLATE_NESTING_MAX 200              /* height of the syntax tree */
#define TEMPLATE_DEPTH_MAX 1000               /* nested evaluations, macros and values */
#define TEMPLATE_STEPS_MAX 20000000           /* about half a second */
#define NUMBER_STEPS 250                      /* charged for printing or reading a float */
#define TEMPLATE_SOURCE_MAX ((size_t)1 << 20) /* bytes of a template's text */
#define TEMPLATE_RANGE_MAX 100000             /* items of range(), as in jinja2's sandbox */

struct guard {
    struct arena *arena;
    jmp_buf escape;
    struct err *err;
    enum status status; /* the status of a failure */
    int line;           /* the template's line that is read or run now, from 1 */
    int depth;          /* nested calls now, at most TEMPLATE_DEPTH_MAX */
    uint64_t steps;     /* work charged so far, at most TEMPLATE_STEPS_MAX */
};

/* Sets *err to "chat template, line N: <sentence>" and jumps to guard->escape. */
_Noreturn void guard_fail(struct guard *guard, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Uninitialised memory that lives as long as the guard's arena; never NULL. */
void *guard_alloc(struct guard *guard, size_t bytes);
/* The same for `n` elements, checked for overflow. */
void *guard_array(struct guard *guard, size_t n, size_t bytes);
/* Counts work; fails beyond TEMPLATE_STEPS_MAX. */
void guard_charge(struct guard *guard, size_t steps);
/* One call deeper, and back; fails beyond TEMPLATE_DEPTH_MAX. */
void guard_enter(struct guard *guard);
void guard_leave(struct guard *guard);

/* ---- values --------------------------------------------------------------------------------- */

enum value_kind {
    VALUE_MISSING, /* no value: an argument that was not given, an attribute that does not exist */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST, /* and tuples, ranges, views, generators: see list_flavour */
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_FUNCTION,
    VALUE_METHOD,
    VALUE_MACRO,
    VALUE_LOOP,
    VALUE_CYCLER,
    VALUE_JOINER,
};

struct value {
    enum value_kind kind;
    /* VALUE_UNDEFINED: the kind of object that lacks the attribute; VALUE_MISSING for a variable.
     * VALUE_STRING: VALUE_STRING if it is safe, as jinja2's Markup: what + adds is escaped. */
    enum value_kind holder;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const struct string *string; /* VALUE_STRING; VALUE_UNDEFINED: the name, or NULL */
        struct list *list;           /* VALUE_LIST */
        struct dict *dict;           /* VALUE_DICT, VALUE_NAMESPACE */
        const struct builtin *function;
        struct method *method;
        struct macro *macro;
        struct loop *loop;
        struct cycler *cycler; /* VALUE_CYCLER, VALUE_JOINER */
    };
};

/* Bytes of UTF-8, each known to be the template's own or the user's. Immutable. */
struct string {
    const char *data;
    const uint8_t *mask; /* [length] 1: the user's; NULL: `user` says it of all bytes */
    size_t length;       /* bytes */
    bool user;
    struct builder *home; /* the builder that these bytes begin, or NULL; see string_append */
};

enum list_flavour { /* those that Python can index come first */
                    LIST_PLAIN,
                    LIST_TUPLE,
                    LIST_GROUP, /* groupby's pair: a tuple with names */
                    LIST_RANGE,
                    LIST_KEYS, /* views of a dict */
                    LIST_VALUES,
                    LIST_ITEMS,
                    LIST_GENERATOR, /* can be iterated once */
};

struct list {
    struct value *items;
    size_t n;
    enum list_flavour flavour;
    bool spent;                /* LIST_GENERATOR: was iterated once */
    int64_t start, stop, step; /* LIST_RANGE, for printing */
    struct list_store *store;  /* growable memory that begins with the items, or NULL */
};

struct pair {
    struct value key, value;
};

/* Ordered by insertion; a dict with more than a few pairs has a hash table. */
struct dict {
    struct pair *pairs;
    size_t n, capacity;
    uint32_t *slots; /* [n_slots] 1 + index into pairs, 0 free; NULL while small */
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

/* A filter, test, method or function. `params` names its parameters, separated by commas; the
 * first `required` of them must be given. `run` then gets one position for each parameter,
 * VALUE_MISSING for those not given. A name with a leading '#' cannot be given by keyword. With
 * NULL params, `run` gets the arguments as they were written. */
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
    const struct node *node; /* NODE_MACRO or NODE_CALL_BLOCK */
    struct frame *frame;     /* the scope that defines it */
};

struct loop {
    const struct node *node; /* NODE_FOR */
    struct frame *frame;     /* the scope that it stands in */
    int depth;               /* 0: it was not called by itself */
    struct list *list;
    size_t index;        /* from 0 */
    struct args changed; /* what loop.changed last saw */
    bool was_asked;
};

struct cycler {
    struct value *items; /* [n]; a joiner has one, its separator */
    size_t n, position;
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

/* A growing string. It has a mask from the first byte on whose owner differs. */
struct builder {
    char *data;
    uint8_t *mask;
    size_t length, capacity;
    size_t limit; /* bytes; 0: only memory bounds it */
    bool user;
};

/* An empty builder without a limit. Functions that add to it charge the render for the bytes, and
 * fail beyond b->limit. */
struct builder *builder_new(struct render *r);
void builder_add(struct render *r, struct builder *b, const char *data, size_t length, bool user);
void builder_puts(struct render *r, struct builder *b, const char *text); /* the template's own */
void builder_add_string(struct render *r, struct builder *b, const struct string *text);
void builder_add_part(struct render *r, struct builder *b, const struct string *text, size_t start,
                      size_t length);
/* What the builder holds now, as a value that shares its bytes. */
struct value builder_value(struct render *r, struct builder *b);

struct value string_of(struct render *r, const char *literal); /* a literal of the program's own */
struct value string_copy(struct render *r, const char *data, size_t length, bool user);
struct value string_part(struct render *r, const struct string *text, size_t start, size_t length);
/* left + right. Appending again and again to one string takes linear time, since a string that
 * ends its builder grows there. */
struct value string_append(struct render *r, const struct string *left, const struct string *right);
/* Is the byte at `at` the user's? */
bool string_is_user(const struct string *text, size_t at);
bool string_equal(const struct string *a, const struct string *b);
bool string_is(const struct string *text, const char *literal);
/* The number of bytes of a name that an error shows, for "%.*s". */
static inline int shown_length(const struct string *name) {
    return name->length > 100 ? 100 : (int)name->length;
}
/* Order of the bytes, which is that of the characters: -1, 0 or 1. */
int string_compare(const struct string *a, const struct string *b);
/* Byte position of the first `part` at or after `from`, or of the last one; or -1. */
ptrdiff_t string_find(struct render *r, const struct string *text, const struct string *part,
                      size_t from);
ptrdiff_t string_find_last(struct render *r, const struct string *text, const struct string *part);
size_t string_points(struct render *r, const struct string *text); /* length in characters */
size_t string_offset(const struct string *text, size_t from,
                     size_t n_points);                    /* byte after n more characters */
size_t string_next(const struct string *text, size_t at); /* byte of the next character */
int32_t string_point(const struct string *text, size_t at,
                     size_t end); /* the character there; -1: no UTF-8 */
/* A text as characters; the arrays live until the render ends. */
struct points {
    const struct string *text;
    size_t n;
    int32_t *point; /* [n] -1: no UTF-8 */
    size_t *at;     /* [n + 1] bytes where each begins, and the end */
};
struct points points_of(struct render *r, const struct string *text);
bool point_is_space(int32_t point);     /* Python's str.isspace */
bool point_is_printable(int32_t point); /* Python's str.isprintable */
bool point_is_word(int32_t point);      /* Python's \w: a letter, a number or an underscore */
/* Maps each character; `how` also gets the one before it (-1 at the start). */
struct value string_map(struct render *r, const struct string *text,
                        int32_t (*how)(int32_t point, int32_t previous));
/* Replaces & < > ' and " by entities. A safe string, and so is the result; see struct value. */
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
/* Without the characters of `set` (NULL: white space) at its ends. */
struct value string_strip(struct render *r, const struct string *text, const struct string *set,
                          bool left, bool right);

/* ---- values (template/value.c, template/print.c) -------------------------------------------- */

struct list *list_new(struct render *r, size_t n,
                      enum list_flavour flavour); /* items uninitialised */
/* An empty list that list_push can extend. */
struct list *list_open(struct render *r, enum list_flavour flavour);
void list_push(struct render *r, struct list *list, struct value value);
/* left + right, in time linear in `right` when `left` is extended again and again. */
struct list *list_concat(struct render *r, struct list *left, struct list *right);
struct value list_pair(struct render *r, struct value a, struct value b); /* a tuple of two */

/* A dict owns its arrays, not the values. Fails for keys that Python could not hash. */
struct dict *dict_new(struct render *r);
void dict_set(struct render *r, struct dict *dict, struct value key, struct value value);
struct value *dict_get(struct render *r, const struct dict *dict,
                       struct value key); /* NULL: not there */
struct value *dict_find(struct render *r, const struct dict *dict, const char *key);
struct dict *dict_copy(struct render *r, const struct dict *dict);

bool value_truth(struct value value);
bool value_equal(struct render *r, struct value a, struct value b);
int value_compare(struct render *r, struct value a,
                  struct value b); /* fails where Python has no order */
bool value_contains(struct render *r, struct value container, struct value item);
bool value_is_number(struct value value);   /* bool, int or float */
double value_real(struct value value);      /* of a number */
bool value_is_integral(struct value value); /* bool or int */
int64_t value_integer(struct value value);
/* The value as an integer or a string; fails with "<what> must be ..." for other kinds. */
int64_t value_need_int(struct render *r, struct value value, const char *what);
const struct string *value_need_string(struct render *r, struct value value, const char *what);
const char *value_type(struct value value); /* Python's name of the type */
/* Fails with the name of what is undefined. */
_Noreturn void value_undefined_fail(struct render *r, struct value value);
/* The items that a for loop gets; a generator has them only once. Fails for other kinds. */
struct list *value_iterate(struct render *r, struct value value);
bool value_is_iterable(struct value value);
/* len(value); fails for what has none. */
size_t value_length(struct render *r, struct value value);

/* Appends str(value); appends repr(value); returns str(value). */
void value_print(struct render *r, struct builder *b, struct value value);
void value_repr(struct render *r, struct builder *b, struct value value);
const struct string *value_string(struct render *r, struct value value);
void real_print(char out[32], double real); /* Python's repr of a float */

/* ---- JSON (template/json.c) ----------------------------------------------------------------- */

struct value value_from_json(struct render *r,
                             const struct json *json); /* strings become the user's */
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
    NODE_ARGUMENT,  /* a; name: by keyword; op '*': *a, op TOKEN_POW: **a */
    NODE_FILTER,    /* a|name(b...); a is NULL where a block is filtered */
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
    NODE_DATA,         /* constant, as it stands */
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
    NODE_SCOPE,        /* c: body, with variables of its own */
    NODE_BREAK,
    NODE_CONTINUE,
};

struct node {
    enum node_kind kind;
    int op; /* enum token_kind */
    int line;
    int height;        /* of the tree below */
    struct node *next; /* in the list that it belongs to */
    struct node *a, *b, *c, *d, *e;
    const struct string *name, *attribute;
    const struct builtin
        *builtin; /* NODE_FILTER, NODE_TEST: what the name stands for; NULL: unknown */
    bool uses_caller, uses_kwargs, uses_varargs; /* NODE_MACRO, NODE_CALL_BLOCK */
    struct value constant;
};

/* Parses a whole template into the guard's arena. */
struct node *template_parse(struct guard *guard, const char *source, size_t length);

/* ---- running (template/eval.c, template/exec.c) --------------------------------------------- */

struct binding {
    struct binding *next;
    const struct string *name;
    struct value value;
};

/* The variables of one scope. */
struct frame {
    struct frame *parent;
    struct binding *bindings, *spare; /* spare: free bindings of earlier iterations */
    bool captured;                    /* a macro refers to it, so it must not be emptied */
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

struct render {
    struct guard guard;
    struct builder *out; /* where output goes now */
    struct frame *frame;
    struct dict *globals;
    int64_t time_s;
};

static inline void *render_alloc(struct render *r, size_t bytes) {
    return guard_alloc(&r->guard, bytes);
}

#define render_fail(r, ...) guard_fail(&(r)->guard, __VA_ARGS__)

static inline void render_charge(struct render *r, size_t steps) {
    guard_charge(&r->guard, steps);
}

/* The value of an expression. */
struct value eval(struct render *r, const struct node *node);
/* The arguments of a call, with room for `room` more keywords. */
struct args eval_args(struct render *r, const struct node *list, size_t room);
/* Applies a chain of filters, of which the innermost gets `input`. */
struct value eval_filters(struct render *r, const struct node *node, struct value input);
/* Calls a function, method, macro or joiner; fails for other values. */
struct value eval_call(struct render *r, struct value callee, const struct args *args);
/* object.name and object[index] as jinja2's sandbox looks them up. */
struct value value_attribute(struct render *r, struct value object, const struct string *name);
struct value value_item(struct render *r, struct value object, struct value index);
/* object[start:stop:step], each VALUE_OF_NONE if not given. */
struct value value_slice(struct render *r, struct value object, struct value start,
                         struct value stop, struct value step);
/* a op b for + - * / % ** //. */
struct value value_binary(struct render *r, int op, struct value a, struct value b);

/* Runs a list of statements; returns FLOW_BREAK or FLOW_CONTINUE if one of them ended it early. */
enum flow exec(struct render *r, const struct node *list);
/* Runs a recursive loop over another list and returns what it wrote. */
struct value loop_call(struct render *r, const struct loop *loop, const struct args *args);
/* Runs a macro and returns what it wrote. */
struct value macro_call(struct render *r, const struct macro *macro, const struct args *args);
/* Sets a variable of a scope. */
void frame_set(struct render *r, struct frame *frame, const struct string *name,
               struct value value);

/* ---- what templates can call (template/builtins.c and the files it lists) ------------------- */

/* The builtin of that name, or NULL; a method is looked up by the kind of `self`. */
const struct builtin *builtin_filter(const char *name, size_t length);
const struct builtin *builtin_test(const char *name, size_t length);
const struct builtin *builtin_function(const char *name, size_t length);
const struct builtin *builtin_method(struct value self, const char *name, size_t length);
/* Binds the arguments to the builtin's parameters and runs it. */
struct value builtin_run(struct render *r, const struct builtin *builtin, struct value self,
                         const struct args *args);
/* The truth of a test's result. */
bool builtin_test_passes(struct render *r, const struct builtin *test, struct value self,
                         const struct args *args);

extern const struct builtin template_filters_string[], template_filters_text[],
    template_filters_links[], template_filters_list[], template_filters_number[], template_tests[],
    template_functions[], template_string_methods[], template_list_methods[],
    template_dict_methods[], template_loop_methods[], template_cycler_methods[];

/* "..." % values, and "...".format(...). */
struct value string_percent(struct render *r, const struct string *format, struct value values);
struct value string_format(struct render *r, struct value self, const struct args *args);

/* Defines a builtin whose whole body is one expression over r, self and args. */
#define BUILTIN(name, expression)                                                                  \
    static struct value name(struct render *r, struct value self, const struct args *args) {       \
        (void)r, (void)self, (void)args;                                                           \
        return expression;                                                                         \
    }

/* The argument at args->position[i], or `otherwise` if it was not given. */
static inline struct value arg_or(const struct args *args, size_t i, struct value otherwise) {
    return args->position[i].kind == VALUE_MISSING ? otherwise : args->position[i];
}

#endif
