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
    TOKENIZER_CHARACTER_BPE, /* BPE by merge rank, from the characters that the steps leave; GGUF
                                "gemma4" */
    TOKENIZER_RANK_BPE,      /* tiktoken's: bytes, of which any two merge that are a token */
    TOKENIZER_UNIGRAM,       /* the tokens of the best sum of scores (Kudo 2018) */
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

/* A run of bytes, which need not end in a NUL. */
struct span {
    const char *data;
    size_t length;
};

/* A step of a tokenizer.json. A normalizer makes another text of a text, a pre-tokenizer splits it
 * into pieces that no token crosses (and may change them), a decoder works on the text of tokens.
 * The words in brackets are the fields that a step reads. */
enum step_kind {
    STEP_NFC, /* normalizers: Unicode's normal forms */
    STEP_NFD,
    STEP_NFKC,
    STEP_NFKD,
    STEP_LOWERCASE,
    STEP_STRIP,            /* white space at the left and right end [left, right] */
    STEP_REPLACE,          /* each match by another text [pattern, content]; also a decoder */
    STEP_PREPEND,          /* before a text that is not empty [content] */
    STEP_PRECOMPILED,      /* SentencePiece's map of characters [content], by graphemes */
    STEP_CHARACTER_MAP,    /* the same map, the longest entry first as SentencePiece reads it */
    STEP_SQUEEZE_SPACES,   /* SentencePiece's remove_extra_whitespaces */
    STEP_SPLIT,            /* pre-tokenizers: at matches [pattern, behavior, invert] */
    STEP_DIGITS,           /* at digits: each or whole numbers [behavior] */
    STEP_PUNCTUATION,      /* at punctuation [behavior] */
    STEP_WHITESPACE,       /* words and runs of marks, without the white space between them */
    STEP_WHITESPACE_SPLIT, /* at white space, which is dropped */
    STEP_BYTE_LEVEL,       /* GPT-2's alphabet [prepend, split: by GPT-2's pattern]; a decoder */
    STEP_METASPACE,        /* spaces become [content]; [prepend, split]; also a decoder */
    STEP_BYTE_FALLBACK,    /* decoders: tokens such as <0x0A> are bytes */
    STEP_FUSE,             /* what follows sees the whole text, not single tokens */
    STEP_STRIP_CHARACTER,  /* at most [left] times the character [content] at the start */
    STEP_JOIN_WITH_SPACES, /* a space between tokens: a file without a decoder */
};

/* What becomes of a match: a piece of its own, nothing, a part of the piece beside it, or one piece
 * with the matches beside it. */
enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
};

/* Where a step puts its mark before a text: nowhere, at the start of all text, before each piece */
enum prepend_scheme { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

struct tokenizer_step {
    enum step_kind kind;
    struct span pattern;
    bool is_regex; /* the pattern is a regular expression in Oniguruma's syntax, not a text */
    struct span content;
    enum split_behavior behavior;
    bool invert; /* the text between the matches is what is matched */
    enum prepend_scheme prepend;
    bool split;
    int left, right;
};

/* How an added token is found, beside its type. */
enum added_rule {
    ADDED_LSTRIP = 1,      /* white space before it belongs to it */
    ADDED_RSTRIP = 2,      /* white space behind it belongs to it */
    ADDED_SINGLE_WORD = 4, /* not within a word */
    ADDED_NORMALIZED = 8,  /* its normalized text is found in the normalized text */
    ADDED_ONLY = 16,       /* the model itself does not know it */
};

/* How the file calls the parts of a spec; for messages. */
struct tokenizer_keys {
    const char *file; /* its path and ": ", or "" */
    const char *tokens, *types, *scores, *merges, *pre, *bos, *eos, *unknown;
};
extern const struct tokenizer_keys gguf_tokenizer_keys;

/* What tokenizer_encode can put before and behind a text. */
enum { MAX_AROUND = 8 };

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
    const uint8_t *added;         /* [V] enum added_rule, of added tokens; NULL: all none */
    const double *score;          /* [V] SentencePiece and Unigram scores; NULL for the others */
    int n_merges;
    const char *const *merge;     /* [n_merges] "left right", best first; NULL without merges */
    const uint32_t *merge_length; /* [n_merges] */
    const uint32_t *merge_right;  /* [n_merges] where "right" begins; NULL: after the first space */
    int32_t bos, eos, unknown;
    bool add_bos, add_eos; /* what tokenizer_encode adds if `add_special` is set */
    int32_t before[MAX_AROUND], after[MAX_AROUND]; /* the same, in general */
    int n_before, n_after;
    bool add_space_prefix; /* SentencePiece: a space before the first word */
    bool byte_fallback;    /* characters that are no token become tokens such as <0x0A> */
    bool fuse_unknown;     /* a run of unknown characters is one unknown token */
    bool ignore_merges;    /* a piece that is a token becomes that token without merging */
    bool in_floats;        /* Unigram: scores are added as floats, not as doubles */
    /* The steps of a tokenizer.json (NULL: the kind's own, by `pre`), in order. */
    bool has_steps;
    const struct tokenizer_step *normalizers, *pre_tokenizers, *decoders;
    int n_normalizers, n_pre_tokenizers, n_decoders;
    const struct tokenizer_keys *keys; /* NULL: gguf_tokenizer_keys */
    /* What holds the strings; tokenizer_spec_free calls release(owner). Both NULL: a file. */
    void *owner;
    void (*release)(void *owner);
};

/* The character for a byte in GPT-2's alphabet, in which byte-level vocabularies are spelt. */
uint32_t byte_level_character(uint8_t byte);

/* The names that the `pre` of a spec may have, the usual one of each kind of pre-tokenizer;
 * NULL from their number on. */
const char *tokenizer_pre_name(int i);

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
/* What tokenizer_encode puts before and behind a text if `add_special` is set. The arrays live as
 * long as the tokenizer. */
void tokenizer_around(const struct tokenizer *tokenizer, const int32_t **before, int *n_before,
                      const int32_t **after, int *n_after);
/* Does tokenizer_encode add bos if `add_special` is set? */
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);

/* ---- detokenizer ---------------------------------------------------------------------------- */

/* Turns a stream of ids into text. All zero but `tokenizer` is its initial state. It holds back
 * the bytes of an incomplete UTF-8 character (at most 3), so that it only writes whole characters;
 * bytes that cannot become one are replaced by U+FFFD as Python's decode(errors="replace") does, or
 * one U+FFFD a byte where a tokenizer.json has byte fallback.
 * Plain data: it owns no memory. */
struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special; /* special tokens are left out of the text */
    bool started;      /* a token was added: a space is no longer SentencePiece's first one */
    /* of a file whose decoder strips characters at the start: they are past, and how many */
    bool is_past_start;
    int n_stripped;
    uint8_t n_held; /* bytes held back */
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
 * The source is copied; the caller frees *out with chat_template_free. Fails with
 * STATUS_BAD_FILE, *out NULL and a sentence with the line and the cause. */
enum status chat_template_new(struct chat_template **out, const char *source, size_t length,
                              struct err *err);
void chat_template_free(struct chat_template *chat_template); /* NULL is ignored */

/* The text that it was compiled from. Valid as long as the template. */
const char *chat_template_source(const struct chat_template *chat_template, size_t *length);

/* Does the template's text have this name, as a word of its own? What it does not name it cannot
 * use. Any thread. */
bool chat_template_names(const struct chat_template *chat_template, const char *name);

/* Is it a name that the renderer gives to a template: a variable that it sets, or a function? A
 * variable of chat_input.extra must not have one, or it would replace what was checked.
 * `documents`, `reasoning_effort` and `enable_thinking` may be set so. Any thread. */
bool chat_template_reserves(const char *name);

/* What a template can see. The JSON values stay the caller's and are not changed. */
struct chat_input {
    const struct json *messages;  /* array of messages as OpenAI's API has them */
    const struct json *tools;     /* array, or NULL */
    const struct json *documents; /* array, or NULL */
    /* object: chat_template_kwargs, each a variable of its own, whose name is not reserved; or
     * NULL */
    const struct json *extra;
    /* the variable reasoning_effort, and with "none" an enable_thinking that is false, unless
     * `extra` sets them; or NULL */
    const char *reasoning_effort;
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
