/* config: what every folder may use, and which uses none of them.
 *
 * Here are the status codes, the error a user can act on, memory, UTF-8, the log, and the options
 * of the command line. Nothing in this folder knows about models, sequences or HTTP. Functions are
 * safe to call from any thread unless their comment says otherwise; a struct belongs to its caller.
 */
#ifndef PENSTOCK_CONFIG_H
#define PENSTOCK_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- status and errors ---------------------------------------------------------------------- */

/* code, the error type that clients see, HTTP status */
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

/* The error type that clients see, e.g. "invalid_request_error". Static storage. */
const char *status_type(enum status status);

/* The HTTP status code of a status, e.g. 400. */
int status_http(enum status status);

/* What went wrong, in a sentence that says what would be right. Plain data: copy it freely. */
struct err {
    enum status status; /* STATUS_OK while nothing is wrong */
    char param[64];     /* the field, key, tensor or option at fault, or "" */
    char code[48];      /* machine-readable cause, e.g. "context_length_exceeded", or "" */
    char message[1024]; /* one sentence for a person */
};

/* Fills `err` (which may be NULL) and returns `status`, so that callers write `return
 * err_set(...)`. `param` may be NULL. A message longer than the buffer is cut at a UTF-8
 * boundary; control characters become spaces. */
enum status err_set(struct err *err, enum status status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Fails a request for lack of memory: STATUS_UNAVAILABLE, "out_of_memory". `err` may be NULL. */
enum status err_out_of_memory(struct err *err);

/* ---- memory --------------------------------------------------------------------------------- */

/* Memory is planned at start-up, and its lack ends the process only there and in commands that run
 * once. Afterwards it fails the request that needs it, with err_out_of_memory, and frees what that
 * request has. Code does that in one of two ways:
 *
 *   in a scope    mem_alloc, buf_add and the like jump to the scope's end. For code that allocates
 *                 at many places: parsers, compilers, writers.
 *   mem_try_...   returns NULL, and its caller has a way on. For a block that outlives the scope,
 *                 or that is allocated while a lock is held. */

/* malloc, calloc, realloc and strdup. Lack of memory ends the scope; outside one it ends the
 * process with one sentence. */
void *mem_alloc(size_t bytes);
void *mem_calloc(size_t count, size_t bytes);
void *mem_realloc(void *memory, size_t bytes);
char *mem_strdup(const char *text);

/* The same, but lack of memory gives NULL, and no scope frees the block. */
void *mem_try_alloc(size_t bytes);
void *mem_try_calloc(size_t count, size_t bytes);
void *mem_try_realloc(void *memory, size_t bytes);

/* Frees memory from any of these; NULL is allowed. */
void mem_free(void *memory);

/* Fails as an allocation of so many bytes does. For lack of memory that a library reports. */
void mem_fail(size_t bytes) __attribute__((noreturn));

/* The blocks that a function has allocated and not freed. Its fields are config/memory.c's. */
struct mem_scope {
    struct mem_scope *outer;
    void *jump;         /* jmp_buf */
    uintptr_t *blocks;  /* [capacity]: a hash set; 0: no block */
    size_t n, capacity; /* a power of two */
};

/* Calls run(arg). True: it has returned, and what it has allocated belongs to its owners. False: an
 * allocation failed, run was left in its midst, and the scope holds its blocks. Then leave its
 * structs alone until mem_scope_free. Locks that were taken inside run must not be held where it
 * allocates. A scope may run inside another one, for what outlives the outer one. */
bool mem_scope_run(struct mem_scope *scope, void (*run)(void *arg), void *arg);

/* After a failure: calls undo(arg), which frees what its structs hold and sets them to be empty;
 * then frees the other blocks of the scope. undo may be NULL, and allocates nothing. */
void mem_scope_free(struct mem_scope *scope, void (*undo)(void *arg), void *arg);

/* Both together: false if run(arg) lacked memory, and then all that it has allocated is free. */
bool mem_run(void (*run)(void *arg), void (*undo)(void *arg), void *arg);

/* For tests: is asked before each allocation; true: it fails. NULL in the program. */
extern bool (*mem_fault)(size_t bytes);

/* Zeroed memory for large tables, aligned to 64 bytes, and to 2 MiB pages if it is large enough to
 * gain from them. Free it with mem_large_free and the same size. For start-up only: lack of memory
 * ends the process. */
void *mem_large(size_t bytes);
void mem_large_free(void *memory, size_t bytes);

/* An arena: allocations that live and die together, one per HTTP request or parse. One thread at a
 * time. arena_alloc returns 16-byte aligned, uninitialised memory, or NULL when `limit` bytes would
 * be passed; lack of memory is mem_alloc's. */
struct arena;
struct arena *arena_new(size_t limit);
void *arena_alloc(struct arena *arena, size_t bytes);
char *arena_strndup(struct arena *arena, const char *text, size_t length);
void arena_free(struct arena *arena);

/* A growing byte buffer that is always NUL-terminated once something was added; all zero is empty.
 * One thread at a time. Capacity doubles; lack of memory is mem_realloc's. */
struct buf {
    char *data;
    size_t length;   /* bytes in use, without the NUL */
    size_t capacity; /* bytes allocated */
};
void buf_add(struct buf *buf, const void *data, size_t length);
void buf_puts(struct buf *buf, const char *text);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds all of it, or nothing for lack of memory: false. */
bool buf_try_add(struct buf *buf, const void *data, size_t length);
void buf_clear(struct buf *buf); /* length 0, memory kept */
void buf_free(struct buf *buf);  /* memory released, all zero again */

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

/* *n *= factor; false if that overflows. */
static inline bool size_multiply(size_t *n, size_t factor) {
    return !__builtin_mul_overflow(*n, factor, n);
}

/* Bytes in MiB, for messages. */
static inline double mib(int64_t bytes) {
    return (double)bytes / (1 << 20);
}

/* ---- UTF-8 ---------------------------------------------------------------------------------- */

/* Bytes of the character at `text`, or 0 if no valid one begins there (overlong forms and
 * surrogates are invalid). */
size_t utf8_character(const char *text, size_t length);

/* Bytes of the longest valid text from the start on. */
size_t utf8_valid_prefix(const char *text, size_t length);

/* Bytes that one U+FFFD replaces at `text`, where no valid character begins (the maximal subpart of
 * Unicode 3.9). At least 1. */
size_t utf8_maximal_subpart(const char *text, size_t length);

/* `length` if the text is the beginning of one character and its end is missing, else 0. */
size_t utf8_partial(const char *text, size_t length);

/* Bytes of an incomplete character at the end: 0 to 3. */
size_t utf8_unfinished(const char *text, size_t length);

/* Characters of a valid text. */
int utf8_count(const char *text, size_t length);

/* Bytes of the longest part of a valid text that has at most `limit` and splits no character. */
int utf8_cut(const char *text, size_t length, int limit);

/* The code point of the valid character of `size` bytes. */
uint32_t utf8_code_point(const char *text, size_t size);

/* Writes a code point's bytes and returns how many. */
size_t utf8_write(uint32_t code_point, char out[4]);

/* ---- time ----------------------------------------------------------------------------------- */

/* Monotonic time in nanoseconds, from an arbitrary start. */
uint64_t now_ns(void);

/* ---- build ---------------------------------------------------------------------------------- */

/* What this program was built from. Static storage. */
struct build_info {
    const char *version; /* "0.1.0" */
    const char *commit;  /* "6438910", "6438910-dirty" if files had changed, or "unknown" */
    const char *build;   /* "Release", followed by the sanitizers if any */
};
struct build_info build_info(void);

/* ---- log ------------------------------------------------------------------------------------ */

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* One key and value of a log line: exactly one of the values is used, as `kind` says. */
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

/* Sets what is written and how; call it before threads start. On a terminal the level of a text
 * line is coloured. */
void log_setup(enum log_level level, enum log_format format);

/* Writes one line to standard error with a single write(2): time, level, message, fields. Text
 * format: `2026-11-21T10:00:00.000Z INFO  message key=value`; JSON format: one object. Values are
 * escaped, so nothing that a client sends can forge a line. */
void log_fields(enum log_level level, const char *message, const struct log_field *fields, int n);

/* The same without fields, printf style. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- terminal ------------------------------------------------------------------------------- */

/* Does the descriptor lead to a terminal that understands escape codes? One whose TERM is dumb or
 * not set does not. */
bool terminal_has_codes(int fd);

enum terminal_style {
    TERMINAL_PLAIN, /* ends the others */
    TERMINAL_ERROR,
    TERMINAL_WARNING,
    TERMINAL_NOTE,
    TERMINAL_PROMPT,
};

/* The code that begins a style on such a terminal. "" on every other one, in files, and wherever
 * NO_COLOR (https://no-color.org) is set and not empty. Static storage. */
const char *terminal_style(int fd, enum terminal_style style);

/* Prints "penstock: message" to standard error, printf style. */
void print_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- settings that are words ---------------------------------------------------------------- */

/* A word is looked up once, when the options are parsed; from there on it is a number. Zero is what
 * a struct of settings holds that says nothing. */

/* What computes. auto: a GPU if one can be used, else the CPU. */
enum device { DEVICE_CPU, DEVICE_CUDA, DEVICE_AUTO };

/* What is computed in. float32 is the oracle mode: weights, activations and KV cache in full
 * precision. The 16-bit types are a GPU's activations. */
enum compute_dtype { COMPUTE_AUTO, COMPUTE_BFLOAT16, COMPUTE_FLOAT16, COMPUTE_FLOAT32 };

/* What float weights are converted to as they are loaded, or into a file: types of GGUF's blocks;
 * e4m3 with a scale a row on a GPU. */
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

/* How keys and values are stored. auto: int16, on a GPU float16, in the oracle mode float32. */
enum kv_dtype {
    KV_DTYPE_AUTO,
    KV_DTYPE_INT16,
    KV_DTYPE_Q8_0,
    KV_DTYPE_FLOAT16,
    KV_DTYPE_FLOAT32,
    KV_DTYPE_BFLOAT16,
    KV_DTYPE_FP8, /* e4m3 */
};

/* Where weights come from. dummy: random ones, the same every time. */
enum load_format { LOAD_AUTO, LOAD_DUMMY };
enum generation_config { GENERATION_CONFIG_AUTO, GENERATION_CONFIG_NONE };

/* Guesses, or drafts, of a sequence in a step: with the row that it computes anyway they fill a
 * tile of the CPU's products. How well one is founded: the tokens before it that are the same where
 * it was found, at most so many. */
enum { MAX_DRAFTS = 15, MAX_DRAFT_MATCH = 8 };

/* How tokens are guessed that a step may verify (after Leviathan et al. 2023; here no byte depends
 * on it). lookup: what followed the same tokens earlier in the prompt or the output; suffix: in
 * texts that have ended, too; draft model: what a smaller model says. */
enum speculation_method {
    SPECULATION_NONE,
    SPECULATION_LOOKUP,
    SPECULATION_SUFFIX,
    SPECULATION_DRAFT_MODEL,
};
enum { MAX_DRAFT_PATH = 1024 };
struct speculation {
    enum speculation_method method;
    int max_tokens;             /* guessed for a sequence in a step */
    int lookup_min, lookup_max; /* tokens before a guess: that must be the same; compared */
    char model[MAX_DRAFT_PATH]; /* path of the draft model; "" without one */
};

/* What the file of `penstock grammar` holds. */
enum grammar_file {
    GRAMMAR_FILE_AUTO,
    GRAMMAR_FILE_OBJECT,
    GRAMMAR_FILE_SCHEMA,
    GRAMMAR_FILE_REGEX,
    GRAMMAR_FILE_CHOICE,
    GRAMMAR_FILE_GRAMMAR,
    GRAMMAR_FILE_TAG,
};

/* A value and the word for it. A list ends with a NULL name. */
struct named_value {
    const char *name;
    int value;
};
extern const struct named_value device_names[], compute_dtype_names[], quantization_names[],
    block_type_names[], kv_dtype_names[], load_format_names[], generation_config_names[],
    log_level_names[], log_format_names[], grammar_file_names[];

/* The first word for a value, which the list must hold. */
const char *value_name(const struct named_value *names, int value);

/* ---- options -------------------------------------------------------------------------------- */

/* Every option of every command. A flag overrides the environment (PENSTOCK_<NAME>), that the file,
 * and the file the default. Strings belong to the struct and live until options_free. */
struct options {
    const char *model;
    const char *weight_cache;     /* folder for weights as a CPU lays them out; NULL: none */
    const char *chat_template;    /* path; NULL: the model's own */
    const char *tool_call_parser; /* auto, none, or a format of server/message */
    const char *reasoning_parser; /* likewise */
    const char *host;
    int port;
    const char *served_model_name; /* with commas between several; NULL: the model file's own */
    bool any_model_name;           /* requests may name any model */
    const char *cors_origins;      /* origins with commas between them, or *; NULL: none */
    const char *trusted_proxies;   /* addresses and ranges with commas between them */
    const char *api_key;           /* NULL: none is required; several are separated by commas */
    const char *api_key_file;      /* one key a line */
    const char *admin_key;         /* keys that may end the server, separated by commas */
    const char *metrics_key;       /* of what monitors read, likewise; NULL: that is open */
    int max_model_len;             /* tokens; 0: what the model was trained for */
    int max_num_seqs;              /* sequences in one step */
    int max_num_batched_tokens;    /* rows in one step */
    int max_mixed_prefill_tokens;  /* prompt rows in a step that decodes; 0: by device */
    int itl_target_ms;             /* between two tokens, while prompts are computed; 0: none */
    int block_size;                /* KV slots in a block */
    int64_t kv_cache_memory;       /* bytes; 0: chosen from the machine's memory */
    double gpu_memory_utilization; /* share of a GPU's memory that may be used */
    int64_t swap_space;            /* bytes of host memory; 0: none; -1 ("auto"): by the machine */
    enum kv_dtype kv_cache_dtype;
    bool enable_prefix_caching;
    bool share_prefixes;    /* among API keys */
    int64_t grammar_cache;  /* bytes of compiled grammars that are kept */
    int64_t grammar_memory; /* bytes of all grammars, above which none is compiled; 0: no limit */
    struct speculation speculation;
    bool always_speculate;    /* verify all that is guessed, whatever it costs */
    int steps_in_flight;      /* 1, 2; 0: by device */
    bool enforce_eager;       /* CUDA: no graphs */
    bool warm_up;             /* touch the cache; CUDA: run usual steps before requests come */
    const char *cpu_affinity; /* what compute threads are bound to; NULL: nothing */
    int threads;              /* compute threads; 0: as many as the process may use */
    int tensor_parallel_size; /* ranks that share the model */
    enum device device;
    enum compute_dtype dtype;
    enum quantization quantization;
    bool deterministic;   /* CUDA: a request's bytes do not depend on the batch */
    bool wgmma;           /* CUDA: products, attention of many rows by what sm_90a has */
    bool persistent_step; /* CUDA: decode steps of small models are one cooperative grid */
    enum load_format load_format;
    enum generation_config generation_config; /* may the model's files choose how it samples? */
    int64_t seed; /* for requests without a seed: -1 takes one from the system */
    int max_queued_requests;
    int max_queued_tokens;
    int64_t max_body_size; /* bytes */
    int request_timeout_s; /* seconds for headers and body to be whole */
    int drain_delay_s;     /* seconds from a SIGTERM until the port is closed */
    int drain_timeout_s;   /* seconds from then on for running requests */
    int max_connections;
    enum log_level log_level;
    enum log_format log_format;
    const char *config; /* YAML file */
    /* run, inspect, batch, bench */
    bool chat;                      /* run: a conversation from the terminal */
    bool history;                   /* run: what was typed is kept in a file */
    int max_tokens;                 /* run */
    double temperature;             /* run */
    const char *grammar_path;       /* run: a file that says what answers keep to */
    const char *json_schema;        /* run: a schema, or a file's name */
    const char *regex;              /* run: what answers match */
    const char *stop_regex;         /* run: where answers end */
    bool tensors;                   /* inspect: lists each tensor */
    enum quantization type;         /* quantize: of the layers' matrices */
    bool deltas;                    /* parse: a line for what each byte brings */
    const char *input_file;         /* batch: requests, one a line */
    const char *output_file;        /* batch: their answers */
    const char *bench_prompt;       /* bench: prompt lengths, e.g. "128,512" */
    const char *bench_batch;        /* bench: batch sizes, e.g. "1,2,4,8,16" */
    int bench_generate;             /* bench: tokens decoded by each sequence */
    int bench_repeats;              /* bench: runs of which the median is reported */
    enum grammar_file grammar_file; /* grammar: what its file holds */
    /* what follows the flags */
    int n_arguments;
    const char **arguments;
    void *owned; /* the strings' memory */
};

/* Fills `options` for `command` ("serve", "run", ...) from argv[0..argc), which holds what follows
 * the command. `environment` is environ or a list like it, so that tests can hand in their own.
 * Sets *help when --help was asked for. Fails with STATUS_USAGE (unknown flag, a value outside its
 * range, with what would be right) or STATUS_BAD_FILE (the YAML file, with its line). */
enum status options_parse(struct options *options, const char *command, int argc, char **argv,
                          char **environment, bool *help, struct err *err);
void options_free(struct options *options);

/* Appends the help of one command, or of the program when `command` is NULL, made from the option
 * table. */
void options_help(const char *command, struct buf *out);

/* Appends the option table as Markdown, as the README holds it. */
void options_markdown(struct buf *out);

#endif
