/* engine/text: converts text to token ids and back, and messages to the prompt format that a model
 * was trained on.
 *
 * Three objects. A `struct tokenizer` is built once from a model file's vocabulary and is then
 * read-only: any number of threads may use it at once. A `struct detokenizer` belongs to one stream
 * and one thread. A `struct chat_template` is compiled once and is then read-only, too.
 * Nothing here depends on files, tensors or HTTP.
 */
#ifndef PENSTOCK_TEXT_H
#define PENSTOCK_TEXT_H

#include "config/config.h"

struct json;

/* A part of a rendered prompt by its origin. The template's own text may name special tokens; text
 * from a message may not (SPECIAL_AS_TEXT), so that a user cannot forge another turn. */
struct chat_piece {
    size_t start, length; /* bytes in the rendered text */
    bool from_user;       /* from a string of `messages`, `tools`, `documents` or `extra` */
};

/* ---- tokenizer ------------------------------------------------------------------------------ */

enum tokenizer_kind {
    TOKENIZER_BYTE_BPE,      /* GPT-2's byte-level BPE by merge rank; GGUF "gpt2" */
    TOKENIZER_SENTENCEPIECE, /* SentencePiece's BPE by score with byte fallback; GGUF "llama" */
};

/* GGUF's token types (tokenizer.ggml.token_type). */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* special: templates write it, users cannot; may be left out of text */
    TOKEN_USER_DEFINED = 4, /* added: recognised before anything else, but always shown as text */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* What a tokenizer is built from; the arrays are copied. A token id of -1 means that the model has
 * no such token. */
struct tokenizer_spec {
    enum tokenizer_kind kind;
    /* name of the pre-tokenizer pattern ("smollm", "llama-bpe", ...); NULL: gpt-2's */
    const char *pre;
    int n_tokens; /* V */
    /* [V] in the file's spelling (byte-level alphabet, or with U+2581) */
    const char *const *token;
    const uint32_t *token_length; /* [V] bytes of each token: a token may hold any byte, NUL too */
    const int32_t *type;          /* [V] enum token_type; NULL: all normal */
    const float *score;           /* [V] SentencePiece scores; NULL for byte-level BPE */
    int n_merges;
    const char *const *merge;     /* [n_merges] "left right", best first; NULL for SentencePiece */
    const uint32_t *merge_length; /* [n_merges] */
    int32_t bos, eos, unknown;
    bool add_bos, add_eos; /* what tokenizer_encode adds if `add_special` is set */
    bool add_space_prefix; /* SentencePiece: a space before the first word */
};

struct tokenizer;

/* Builds a tokenizer, which the caller frees with tokenizer_free. Fails with STATUS_BAD_FILE, *out
 * NULL and a sentence that names the wrong key or token: an unknown pre-tokenizer, a merge whose
 * parts or result are no tokens, a type out of range, a duplicate token. */
enum status tokenizer_new(struct tokenizer **out, const struct tokenizer_spec *spec,
                          struct err *err);
void tokenizer_free(struct tokenizer *tokenizer); /* NULL is ignored */

/* Which special tokens are recognised in a text. */
enum special_rule {
    /* none: "<|im_end|>" is ten ordinary characters; for what users write in chat messages */
    SPECIAL_AS_TEXT,
    /* all: for rendered templates and the prompts of completions */
    SPECIAL_PARSED,
};

/* Turns `length` bytes of UTF-8 into ids; invalid bytes become byte tokens. Returns the number of
 * ids and stores them in *ids, which the caller frees with free(); returns -1 and stores NULL if
 * there are more than `limit`. Added (user defined) tokens are always recognised first, the
 * longest one before shorter ones. Time O(n log n) for any input. `add_special` adds bos and eos
 * if the model's file says so. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                     enum special_rule rule, bool add_special, int limit, int32_t **ids);

/* The same for a rendered chat prompt, which `pieces` cover in order: a control token is
 * recognised if it lies wholly in pieces that are not from a user; words may span pieces. Adds no
 * bos or eos: templates write their own. */
int tokenizer_encode_pieces(const struct tokenizer *tokenizer, const char *text, size_t length,
                            const struct chat_piece *pieces, int n_pieces, int limit,
                            int32_t **ids);

/* The raw bytes a token stands for (of a special token, its name), which may contain NUL; "" for
 * an id out of range. Valid as long as the tokenizer. */
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length);

/* The token's spelling in the model file (e.g. U+0120 "world"), NUL-terminated; "" for an id out of
 * range. Valid as long as the tokenizer. */
const char *tokenizer_token_name(const struct tokenizer *tokenizer, int32_t id);

/* The id of the token that the file spells like `name`, or -1. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *name, size_t length);

int tokenizer_size(const struct tokenizer *tokenizer); /* V */
/* Is the token's type control or unknown? False for an id out of range. */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *tokenizer); /* -1: none */
/* Does tokenizer_encode add bos if `add_special` is set? */
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);

/* ---- detokenizer ---------------------------------------------------------------------------- */

/* Turns a stream of ids into text. All zero but `tokenizer` is its initial state. It holds back
 * the bytes of an incomplete UTF-8 character (at most 3), so that it only writes whole characters;
 * bytes that cannot become one are replaced by U+FFFD as Python's decode(errors="replace") does.
 * Plain data: it owns no memory. */
struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special; /* special tokens are left out of the text */
    bool started;      /* a token was added: a space is no longer SentencePiece's first one */
    uint8_t n_held;    /* bytes held back */
    char held[4];
};

/* Appends the text that one more token completes. O(length of the token). */
void detokenizer_add(struct detokenizer *detokenizer, int32_t id, struct buf *out);
/* At the end of the stream: appends U+FFFD if bytes are held back. */
void detokenizer_finish(struct detokenizer *detokenizer, struct buf *out);
/* Appends the whole text of n ids. */
void detokenize(const struct tokenizer *tokenizer, const int32_t *ids, int n, bool skip_special,
                struct buf *out);

/* ---- chat template -------------------------------------------------------------------------- */

struct chat_template;

/* Compiles a Jinja template, with the block settings of transformers (trim_blocks, lstrip_blocks).
 * The source is not kept; the caller frees *out with chat_template_free. Fails with
 * STATUS_BAD_FILE, *out NULL and a sentence with the line and the cause. */
enum status chat_template_new(struct chat_template **out, const char *source, size_t length,
                              struct err *err);
void chat_template_free(struct chat_template *chat_template); /* NULL is ignored */

/* What a template can see. The JSON values stay the caller's and are not changed. */
struct chat_input {
    const struct json *messages;  /* array of messages as OpenAI's API has them */
    const struct json *tools;     /* array, or NULL */
    const struct json *documents; /* array, or NULL */
    /* object: chat_template_kwargs, each a variable of its own; or NULL */
    const struct json *extra;
    const char *bos_token; /* text of the special tokens; NULL: undefined */
    const char *eos_token;
    bool add_generation_prompt;
    /* end the rendered text with the last message's content, as transformers does */
    bool continue_final_message;
    int64_t time_s; /* for strftime_now, seconds since 1970 UTC */
};

/* Appends the rendered prompt to `out`. Fails with STATUS_INVALID_REQUEST, line and cause, and
 * leaves `out` as it was: for raise_exception, an undefined operation, or an exceeded limit
 * (steps, depth, memory, `max_bytes` of output). If `pieces` is not NULL, *pieces becomes an array
 * that the caller frees with free(): the *n_pieces parts of the output in order, which cover all
 * of it. Any thread. */
enum status chat_template_render(const struct chat_template *chat_template,
                                 const struct chat_input *input, size_t max_bytes, struct buf *out,
                                 struct chat_piece **pieces, int *n_pieces, struct err *err);

#endif
