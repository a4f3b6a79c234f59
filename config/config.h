/* config: the base of all other folders; it depends on none of them.
 *
 * It provides status codes, user-facing errors, memory, UTF-8, the log, and the names of
 * settings. It does not depend on models, sequences or HTTP. All threads may call all functions
 * unless a comment says otherwise. Each struct belongs to its caller.
 */
#ifndef PENSTOCK_CONFIG_H
#define PENSTOCK_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- status and errors ---------------------------------------------------------------------- */

/* code, error type for clients, HTTP status */
#define STATUS_MAP(X)                                                                              \
    X(OK, "ok", 200)                                                                               \
    X(INVALID_REQUEST, "invalid_request_error", 400)                                               \
    X(AUTHENTICATION, "authentication_error", 401)                                                 \
    X(NOT_FOUND, "not_found_error", 404)                                                           \
    X(METHOD_NOT_ALLOWED, "method_not_allowed", 405)                                               \
    X(TIMEOUT, "timeout_error", 408)                                                               \
    X(TOO_LARGE, "request_too_large", 413)                                                         \
    X(URI_TOO_LONG, "request_too_large", 414)                                                      \
    X(MEDIA_TYPE, "invalid_request_error", 415)                                                    \
    X(OVERLOADED, "overloaded_error", 429)                                                         \
    X(HEADERS_TOO_LARGE, "request_too_large", 431)                                                 \
    X(CANCELLED, "client_closed_request", 499)                                                     \
    X(SERVER_ERROR, "server_error", 500)                                                           \
    X(NOT_IMPLEMENTED, "not_implemented_error", 501)                                               \
    X(UNAVAILABLE, "unavailable_error", 503)                                                       \
    X(HTTP_VERSION, "invalid_request_error", 505)                                                  \
    X(USAGE, "usage_error", 400)                                                                   \
    X(BAD_FILE, "bad_file", 500)                                                                   \
    X(SYSTEM, "system_error", 500)

enum status {
#define STATUS_ENUM(code, type, http) STATUS_##code,
    STATUS_MAP(STATUS_ENUM)
#undef STATUS_ENUM
};

/* Returns the error type for clients, e.g. "invalid_request_error". Static storage. */
const char *status_type(enum status status);

/* Returns the HTTP status code, e.g. 400. */
int status_http(enum status status);

/* An error: its message states the problem and the fix. Plain data that may be copied.
 *
 * engine/ and kernels/ do not know how a user states a setting. Their messages name it in braces,
 * "lower {max-num-seqs}", and the commands print its flag (options_message). */
struct err {
    enum status status; /* STATUS_OK: no error */
    int retry_after_s;  /* the client may try again after this time; 0: not known */
    char param[64];     /* the field, key, tensor or option that caused it, or "" */
    char code[48];      /* machine-readable cause, e.g. "context_length_exceeded", or "" */
    char message[1024]; /* one sentence for a person */
};

/* Fills `err` (may be NULL) and returns `status`, so that callers can write `return err_set(...)`.
 * `param` may be NULL. A message longer than the buffer is cut at a UTF-8 boundary. Control
 * characters become spaces. */
enum status err_set(struct err *err, enum status status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Fails a request for lack of memory: STATUS_UNAVAILABLE, "out_of_memory". `err` may be NULL. */
enum status err_out_of_memory(struct err *err);

/* ---- memory --------------------------------------------------------------------------------- */

/* Large memory is planned at start-up. Lack of memory ends the process only there and in commands
 * that run once. Later it fails the request that needs the memory, with err_out_of_memory, and
 * frees the request's memory. Code uses one of two ways:
 *
 *   in a scope    mem_alloc, buf_add and similar functions leave the scope if they fail. For code
 *                 that allocates at many places: parsers, compilers, writers.
 *   mem_try_...   returns NULL, and the caller handles it. For a block that outlives the scope, or
 *                 that is allocated while a lock is held. */

/* malloc, calloc, realloc and strdup. Lack of memory ends the scope; outside of scopes it ends the
 * process with a message. */
void *mem_alloc(size_t bytes);
void *mem_calloc(size_t count, size_t bytes);
void *mem_realloc(void *memory, size_t bytes);
char *mem_strdup(const char *text);

/* The same, but they return NULL for lack of memory, and scopes do not free the block. */
void *mem_try_alloc(size_t bytes);
void *mem_try_calloc(size_t count, size_t bytes);
void *mem_try_realloc(void *memory, size_t bytes);

/* Frees memory from any of these; NULL is allowed. */
void mem_free(void *memory);

/* Fails like an allocation of `bytes`. For lack of memory that a library reports. */
void mem_fail(size_t bytes) __attribute__((noreturn));

/* The blocks that a function has allocated and not freed. Fields are private to config/memory.c. */
struct mem_scope {
    struct mem_scope *outer;
    void *jump;         /* jmp_buf */
    uintptr_t *blocks;  /* [capacity] hash set; 0: an empty slot */
    size_t n, capacity; /* a power of two */
};

/* Calls run(arg). Returns true if it returned; its blocks then belong to their owners. Returns
 * false if an allocation failed: run was left at that point, and the scope holds its blocks; the
 * caller must not use its structs before mem_scope_free. run must not allocate while it holds a
 * lock that it took. Scopes may nest, for objects that outlive the outer scope. */
bool mem_scope_run(struct mem_scope *scope, void (*run)(void *arg), void *arg);

/* After a failure: calls undo(arg), which must free the blocks of its structs and make the structs
 * empty, and must not allocate. Then frees the scope's other blocks. undo may be NULL. */
void mem_scope_free(struct mem_scope *scope, void (*undo)(void *arg), void *arg);

/* Does both. Returns false if run(arg) lacked memory; all its allocations are then freed. */
bool mem_run(void (*run)(void *arg), void (*undo)(void *arg), void *arg);

/* For tests: called before each allocation; true makes it fail. NULL in the program. */
extern bool (*mem_fault)(size_t bytes);

/* Returns zeroed memory for large tables, aligned to at least 64 bytes, and to 2 MiB if it is large
 * enough for huge pages. Free it with mem_large_free and the same size. For start-up only: lack of
 * memory ends the process. */
void *mem_large(size_t bytes);
void mem_large_free(void *memory, size_t bytes);

/* Asks for huge pages in a block that was allocated and not written yet. Any thread. */
void mem_prefer_huge(void *memory, size_t bytes);

/* An arena: allocations that are freed together, one per HTTP request or parse. For one thread at a
 * time. arena_alloc returns uninitialised memory aligned to 16 bytes, or NULL if the arena would
 * exceed `limit` bytes. Lack of memory is handled as in mem_alloc. */
struct arena;
struct arena *arena_new(size_t limit);
void *arena_alloc(struct arena *arena, size_t bytes);
char *arena_strndup(struct arena *arena, const char *text, size_t length);
void arena_free(struct arena *arena);

/* A growing byte buffer. It is NUL-terminated after the first addition; all zero is empty. For one
 * thread at a time. The capacity doubles. Lack of memory is handled as in mem_realloc. */
struct buf {
    char *data;
    size_t length;   /* without the NUL */
    size_t capacity; /* in bytes */
};
void buf_add(struct buf *buf, const void *data, size_t length);
void buf_puts(struct buf *buf, const char *text);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns the path of a file in a folder; the caller frees it. */
char *path_in(const char *folder, const char *name);
/* Adds all of it; or returns false and adds nothing for lack of memory. */
bool buf_try_add(struct buf *buf, const void *data, size_t length);
void buf_clear(struct buf *buf); /* sets length 0, keeps memory */
void buf_free(struct buf *buf);  /* frees memory, sets all to zero */

/* ---- numbers -------------------------------------------------------------------------------- */

/* The smaller and the larger of two numbers. */
static inline int min_int(int a, int b) {
    return a < b ? a : b;
}
static inline int max_int(int a, int b) {
    return a > b ? a : b;
}
static inline int64_t min_int64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t max_int64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Computes *n *= factor. Returns false on overflow. */
static inline bool size_multiply(size_t *n, size_t factor) {
    return !__builtin_mul_overflow(*n, factor, n);
}

/* Bytes in MiB, for messages. */
static inline double mib(int64_t bytes) {
    return (double)bytes / (1 << 20);
}

/* Is the byte an ASCII digit? */
static inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* ---- UTF-8 ---------------------------------------------------------------------------------- */

/* Returns the length in bytes of the character at `text`, or 0 if it is invalid (overlong forms and
 * surrogates are invalid). */
size_t utf8_character(const char *text, size_t length);

/* Returns the length of the longest valid prefix. */
size_t utf8_valid_prefix(const char *text, size_t length);

/* Returns the number of bytes at `text`, at least 1, that one U+FFFD replaces if the character
 * there is invalid (the maximal subpart of Unicode 3.9). */
size_t utf8_maximal_subpart(const char *text, size_t length);

/* Returns `length` if the text is an incomplete character, else 0. */
size_t utf8_partial(const char *text, size_t length);

/* Returns the number of bytes of an incomplete character at the end: 0 to 3. */
size_t utf8_unfinished(const char *text, size_t length);

/* Returns the number of characters of a valid text. */
int utf8_count(const char *text, size_t length);

/* Returns the length of the longest prefix of a valid text that has at most `limit` bytes and ends
 * at a character boundary. */
int utf8_cut(const char *text, size_t length, int limit);

/* Returns the code point of the valid character of `size` bytes. */
uint32_t utf8_code_point(const char *text, size_t size);

/* Writes the bytes of a code point. Returns their number. */
size_t utf8_write(uint32_t code_point, char out[4]);

/* Returns the bytes of the first character of text[length], or 0 if it must not be shown unchanged:
 * invalid UTF-8, or a control character, with which a file could control a terminal. */
size_t printable_prefix(const char *text, size_t length);

/* May text[length] go into logs and JSON unchanged? */
bool is_printable(const char *text, size_t length);

/* ---- time ----------------------------------------------------------------------------------- */

/* Returns the monotonic time in nanoseconds since an arbitrary start. */
uint64_t now_ns(void);

/* ---- build ---------------------------------------------------------------------------------- */

/* The sources of this build. Static storage. */
struct build_info {
    const char *version; /* "0.1.0" */
    const char *commit;  /* "6438910", "6438910-dirty" if files were changed, or "unknown" */
    const char *build;   /* "Release", and the sanitizers if any */
};
struct build_info build_info(void);

/* ---- log ------------------------------------------------------------------------------------ */

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* One key and value of a log line. `kind` selects the value. */
struct log_field {
    const char *key;
    enum { LOG_STRING, LOG_INTEGER, LOG_REAL } kind;
    const char *string;
    long long integer;
    double real;
};
#define LOG_S(k, v) ((struct log_field){.key = (k), .kind = LOG_STRING, .string = (v)})
#define LOG_I(k, v) ((struct log_field){.key = (k), .kind = LOG_INTEGER, .integer = (v)})
#define LOG_R(k, v) ((struct log_field){.key = (k), .kind = LOG_REAL, .real = (v)})

/* Sets the level and format; call it before threads start. On a terminal, a text line's level is
 * coloured. */
void log_setup(enum log_level level, enum log_format format);

/* Changes the level. Any thread. */
void log_set_level(enum log_level level);

/* Writes one line to standard error with one write(2): time, level, message, fields. Text format:
 * `2026-11-21T10:00:00.000Z INFO  message key=value`; JSON format: one object. Values are escaped,
 * so clients cannot forge lines. */
void log_fields(enum log_level level, const char *message, const struct log_field *fields, int n);

/* The same without fields, printf style. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- terminal ------------------------------------------------------------------------------- */

/* Does the descriptor refer to a terminal that understands escape codes? If TERM is unset or
 * "dumb", it does not. */
bool terminal_has_codes(int fd);

enum terminal_style {
    TERMINAL_PLAIN, /* ends the other styles */
    TERMINAL_ERROR,
    TERMINAL_WARNING,
    TERMINAL_NOTE,
    TERMINAL_PROMPT,
};

/* Returns the code that begins a style. Returns "" if the descriptor is not such a terminal, or if
 * NO_COLOR (https://no-color.org) is set and not empty. Static storage. */
const char *terminal_style(int fd, enum terminal_style style);

/* Prints "penstock: message" to standard error, printf style. */
void print_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- settings with named values ------------------------------------------------------------- */

/* A name is converted to a number when the options are parsed; later code uses only the number.
 * Zero is the value in a zeroed struct of settings. */

/* The device that computes. auto: a GPU if one can be used, else the CPU. */
enum device { DEVICE_CPU, DEVICE_CUDA, DEVICE_AUTO };

/* The type of computations. float32 is the oracle mode: weights, activations and KV cache in full
 * precision. The 16-bit types are for a GPU's activations. */
enum compute_dtype { COMPUTE_AUTO, COMPUTE_BFLOAT16, COMPUTE_FLOAT16, COMPUTE_FLOAT32 };

/* The type to which float weights are converted when they are loaded or written to a file: GGUF's
 * block types, or on a GPU e4m3 with one scale per row. */
enum quantization {
    QUANTIZATION_NONE,
    QUANTIZATION_FP8,
    QUANTIZATION_Q8_0,
    QUANTIZATION_Q4_0,
    QUANTIZATION_Q4_1,
    QUANTIZATION_Q5_0,
    QUANTIZATION_Q5_1,
    QUANTIZATION_Q4_K,
    QUANTIZATION_Q6_K,
};
static inline bool quantization_is_blocks(enum quantization q) {
    return q != QUANTIZATION_NONE && q != QUANTIZATION_FP8;
}

/* Which rows of a prompt give hidden vectors; as --pooling: how they become an embedding. */
enum hidden_rows {
    HIDDEN_NONE, /* as --pooling: as the model's files say, or the last row */
    HIDDEN_FIRST,
    HIDDEN_LAST,
    HIDDEN_ALL, /* their mean */
};

/* The type of keys and values. auto: int16, on a GPU float16, in the oracle mode float32. */
enum kv_dtype {
    KV_DTYPE_AUTO,
    KV_DTYPE_INT16,
    KV_DTYPE_Q8_0,
    KV_DTYPE_FLOAT16,
    KV_DTYPE_FLOAT32,
    KV_DTYPE_BFLOAT16,
    KV_DTYPE_FP8, /* e4m3 */
};

/* The source of weights. dummy: random weights, equal in every run. */
enum load_format { LOAD_AUTO, LOAD_DUMMY };
enum generation_config { GENERATION_CONFIG_AUTO, GENERATION_CONFIG_NONE };

/* MAX_DRAFTS: drafts of a sequence per step; with the sequence's own row they fill a tile of the
 * CPU's products. MAX_DRAFT_MATCH: the maximum number of tokens before a draft that are compared
 * with those before its source. */
enum { MAX_DRAFTS = 15, MAX_DRAFT_MATCH = 8 };

/* How drafts are found for a step to verify (after Leviathan et al. 2023; here they do not change
 * the output). lookup: tokens that followed the same tokens earlier in the prompt or output;
 * suffix: also those in finished texts; draft model: predictions of a smaller model; ahead: guesses
 * by a layer of the model itself (MTP); eagle3: those by a head beside the model (EAGLE-3). */
enum speculation_method {
    SPECULATION_NONE,
    SPECULATION_LOOKUP,
    SPECULATION_SUFFIX,
    SPECULATION_DRAFT_MODEL,
    SPECULATION_AHEAD,
    SPECULATION_EAGLE3,
};
enum { MAX_DRAFT_PATH = 1024 };
struct speculation {
    enum speculation_method method;
    int max_tokens; /* drafts of a sequence per step */
    /* tokens before a draft: minimum that must match, maximum compared */
    int lookup_min, lookup_max;
    char model[MAX_DRAFT_PATH]; /* path of the draft model or of the head, or "" */
};

/* The content of the file of `penstock grammar`. */
enum grammar_file {
    GRAMMAR_FILE_AUTO,
    GRAMMAR_FILE_OBJECT,
    GRAMMAR_FILE_SCHEMA,
    GRAMMAR_FILE_REGEX,
    GRAMMAR_FILE_CHOICE,
    GRAMMAR_FILE_GRAMMAR,
    GRAMMAR_FILE_TAG,
};

/* A value and its name. A list ends with a NULL name. */
struct named_value {
    const char *name;
    int value;
};
extern const struct named_value device_names[], compute_dtype_names[], quantization_names[],
    block_type_names[], kv_dtype_names[], pooling_names[], load_format_names[],
    generation_config_names[], log_level_names[], log_format_names[], grammar_file_names[];

/* Returns the first name of a value, which must be in the list. */
const char *value_name(const struct named_value *names, int value);

#endif
