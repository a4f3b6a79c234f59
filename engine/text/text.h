/* engine/text: between text and token ids, and from messages to the prompt that a model was trained
 * on.
 *
 * Three objects. A `struct tokenizer` is built once from a model file's vocabulary and is then
 * read-only: any number of threads may use it at once. A `struct detokenizer` belongs to one stream
 * and one thread. A `struct chat_template` is compiled once, read-only, and rendered by any thread.
 * Nothing here knows of files, tensors or HTTP.
 */
#ifndef PENSTOCK_TEXT_H
#define PENSTOCK_TEXT_H

#include "config/config.h"

struct cJSON;

/* One piece of a rendered prompt. What a template itself writes may name special tokens; what came
 * from a message may not (SPECIAL_AS_TEXT), so that a user cannot forge another turn. */
struct chat_piece {
    size_t start, length; /* bytes in the rendered text */
    bool from_user;       /* came from a string of `messages`, `tools`, `documents` or `extra` */
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
    TOKEN_CONTROL = 3,      /* special: written by templates, not by users; skipped when shown */
    TOKEN_USER_DEFINED = 4, /* added: split out first, but shown as text */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* What a tokenizer is made of; the arrays are copied. -1 stands for a token that the model
 * lacks. */
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
    bool add_bos, add_eos; /* put around a text that is encoded with `add_special` */
    bool add_space_prefix; /* SentencePiece: a space before the first word */
};

struct tokenizer;

/* Builds a tokenizer. Fails with STATUS_BAD_FILE and a sentence that names the key or the token
 * that is wrong: an unknown pre-tokenizer, a merge of pieces that are no tokens, a type out of
 * range, a duplicate token. */
enum status tokenizer_new(struct tokenizer **out, const struct tokenizer_spec *spec,
                          struct err *err);
void tokenizer_free(struct tokenizer *tokenizer);

/* Which special tokens a text may name. */
enum special_rule {
    /* "<|im_end|>" in the text is ten ordinary characters: what users write in chat messages */
    SPECIAL_AS_TEXT,
    /* control tokens in the text are recognised: rendered templates, completions prompts */
    SPECIAL_PARSED,
};

/* Turns `length` bytes of UTF-8 (or anything: bytes that are no UTF-8 become byte tokens) into ids.
 * Returns the number of ids and stores them in *ids, which the caller frees with free(); -1 when
 * there would be more than `limit`. Added (user defined) tokens are always split out first, longest
 * first. Time O(n log n) for any input. `add_special` puts bos and eos around the ids where the
 * model asks for them. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                     enum special_rule rule, bool add_special, int limit, int32_t **ids);

/* The same for a rendered chat prompt, whose pieces cover it in order: control tokens are
 * recognised where they lie whole in pieces that are not from a user; words may run across pieces.
 * No bos or eos: templates write their own. */
int tokenizer_encode_pieces(const struct tokenizer *tokenizer, const char *text, size_t length,
                            const struct chat_piece *pieces, int n_pieces, int limit,
                            int32_t **ids);

/* The raw bytes a token stands for (special tokens: their name), not NUL-terminated; "" for an id
 * out of range. Lives as long as the tokenizer. */
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length);

/* The token's spelling in the model file (e.g. U+0120 "world"), NUL-terminated. */
const char *tokenizer_token_name(const struct tokenizer *tokenizer, int32_t id);

/* The id of a token spelt `name` in the file, or -1. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *name, size_t length);

int tokenizer_size(const struct tokenizer *tokenizer); /* V */
/* type is control or unknown */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);
int32_t tokenizer_bos(const struct tokenizer *tokenizer);
int32_t tokenizer_eos(const struct tokenizer *tokenizer);
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);

/* ---- detokenizer ---------------------------------------------------------------------------- */

/* Turns ids into text as they come. All zero (with `tokenizer` set) is a fresh one. It holds back
 * the bytes of an unfinished UTF-8 character (at most 3), so what it gives is always whole
 * characters; bytes that can never become one are replaced by U+FFFD as Python's
 * decode(errors="replace") does. Plain data: no memory of its own. */
struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special; /* special tokens give no text */
    bool started;      /* a token was given: SentencePiece's first space is behind us */
    uint8_t n_held;    /* bytes held back */
    char held[4];
};

/* Appends the text that one more token makes certain. O(length of the token). */
void detokenizer_add(struct detokenizer *detokenizer, int32_t id, struct buf *out);
/* Appends what is still held back, as U+FFFD, at the end of the stream. */
void detokenizer_finish(struct detokenizer *detokenizer, struct buf *out);
/* Appends the text of n ids at once, whole. */
void detokenize(const struct tokenizer *tokenizer, const int32_t *ids, int n, bool skip_special,
                struct buf *out);

/* ---- chat template -------------------------------------------------------------------------- */

struct chat_template;

/* Compiles a Jinja template, with the block settings of transformers (trim_blocks, lstrip_blocks).
 * Fails with STATUS_BAD_FILE and a sentence with the line and the cause. */
enum status chat_template_new(struct chat_template **out, const char *source, size_t length,
                              struct err *err);
void chat_template_free(struct chat_template *chat_template);

/* What a template may see. The JSON values stay the caller's and are not changed. */
struct chat_input {
    const struct cJSON *messages;  /* array of messages as OpenAI's API has them */
    const struct cJSON *tools;     /* array, or NULL */
    const struct cJSON *documents; /* array, or NULL */
    /* object: chat_template_kwargs, each a variable of its own; or NULL */
    const struct cJSON *extra;
    const char *bos_token; /* text of the special tokens; NULL: undefined */
    const char *eos_token;
    bool add_generation_prompt;
    /* cut the rendered text after the last message's content, as transformers does */
    bool continue_final_message;
    int64_t time_s; /* for strftime_now, seconds since 1970 UTC */
};

/* Renders into `out` (appended). Fails with STATUS_INVALID_REQUEST, line and cause:
 * raise_exception, an undefined operation, or a bound passed (steps, depth, `max_bytes` of output).
 * When `pieces` is not NULL it gets an array that the caller frees with free(): the output's parts
 * in order, covering all of it. */
enum status chat_template_render(const struct chat_template *chat_template,
                                 const struct chat_input *input, size_t max_bytes, struct buf *out,
                                 struct chat_piece **pieces, int *n_pieces, struct err *err);

#endif
