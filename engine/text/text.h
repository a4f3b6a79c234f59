/* engine/text: converts text to token ids and back, and messages to the prompt format on which a
 * model was trained.
 *
 * Three objects. A `struct tokenizer` is built once from the vocabulary of a model file and is then
 * read-only: any number of threads may use it at the same time. A `struct detokenizer` belongs to
 * one stream and one thread. A `struct chat_template` is compiled once and is then read-only, too.
 * This folder does not depend on files, tensors or HTTP.
 */
#ifndef PENSTOCK_TEXT_H
#define PENSTOCK_TEXT_H

#include "config/config.h"

struct json;

/* A part of a rendered prompt with one origin. The template's own text may contain special tokens.
 * Text from a message may not (SPECIAL_AS_TEXT), so a user cannot forge another turn. */
struct chat_piece {
    size_t start, length; /* bytes in the rendered text */
    bool from_user;       /* from a string of `messages`, `tools`, `documents` or `extra` */
};

/* ---- tokenizer ------------------------------------------------------------------------------ */

enum tokenizer_kind {
    TOKENIZER_BYTE_BPE,      /* GPT-2's byte-level BPE by merge rank; GGUF "gpt2" */
    TOKENIZER_SENTENCEPIECE, /* SentencePiece's BPE by score, with byte fallback; GGUF "llama" */
    /* BPE by merge rank over the characters of normalized text; GGUF "gemma4" */
    TOKENIZER_CHARACTER_BPE,
    /* tiktoken's: two adjacent byte strings merge if together they are a token */
    TOKENIZER_RANK_BPE,
    TOKENIZER_UNIGRAM, /* the tokens with the largest sum of scores (Kudo 2018) */
    /* BERT's: from left to right, the longest token that continues the word; GGUF "bert" */
    TOKENIZER_WORDPIECE,
};

/* GGUF's token types (tokenizer.ggml.token_type). */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3, /* special: templates may write it, users may not; can be left out of text */
    TOKEN_USER_DEFINED = 4, /* added: recognised before other tokens, but always shown as text */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* A run of bytes, not necessarily NUL-terminated. */
struct span {
    const char *data;
    size_t length;
};

/* A step of a tokenizer.json. A normalizer rewrites the text. A pre-tokenizer splits it into pieces
 * that tokens do not cross, and may rewrite them. A decoder works on the text of tokens. Brackets
 * list the fields that a step reads. */
enum step_kind {
    STEP_NFC, /* normalizers: Unicode's normal forms */
    STEP_NFD,
    STEP_NFKC,
    STEP_NFKD,
    STEP_LOWERCASE,
    STEP_STRIP,            /* white space at the left and right end [left, right] */
    STEP_REPLACE,          /* each match becomes [content] [pattern, content]; also a decoder */
    STEP_PREPEND,          /* before a non-empty text [content] */
    STEP_PRECOMPILED,      /* SentencePiece's map of characters [content], by graphemes */
    STEP_CHARACTER_MAP,    /* the same map, but the longest entry first like SentencePiece */
    STEP_SQUEEZE_SPACES,   /* SentencePiece's remove_extra_whitespaces */
    STEP_BERT,             /* BERT's normalizer [bert_rules] */
    STEP_SPLIT,            /* pre-tokenizers: at matches [pattern, behavior, invert] */
    STEP_DIGITS,           /* at digits: each or whole numbers [behavior] */
    STEP_PUNCTUATION,      /* at punctuation [behavior] */
    STEP_WHITESPACE,       /* keeps words and runs of marks; drops the white space between them */
    STEP_WHITESPACE_SPLIT, /* splits at white space and drops it */
    STEP_BERT_SPLIT,       /* drops white space, then splits at each punctuation mark */
    STEP_BYTE_LEVEL,       /* GPT-2's alphabet [prepend, split: by GPT-2's pattern]; a decoder */
    STEP_METASPACE,        /* spaces become [content]; [prepend, split]; also a decoder */
    STEP_BYTE_FALLBACK,    /* decoders: tokens like <0x0A> are bytes */
    STEP_FUSE,             /* later steps see the whole text instead of single tokens */
    STEP_STRIP_CHARACTER,  /* drops up to [left] times the character [content] at the start */
    STEP_JOIN_WITH_SPACES, /* a space between tokens: for files without a decoder */
    /* a space before each token but the first, unless it begins with [content], which is dropped;
     * [split]: no space before marks like '.' */
    STEP_WORDPIECE,
};

/* What happens to a match: it is a separate piece, is dropped, joins the adjacent piece, or joins
 * adjacent matches. */
enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
};

/* The parts of BERT's normalizer, in order. */
enum bert_rule {
    BERT_CLEANS = 1,         /* drops control characters; white space becomes spaces */
    BERT_SPACES_CHINESE = 2, /* spaces around Chinese characters */
    BERT_STRIPS_ACCENTS = 4,
    BERT_LOWERS = 8,
};

/* Pieces that get a step's mark at their start: no piece, the first of the text, or each piece. */
enum prepend_scheme { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

struct tokenizer_step {
    enum step_kind kind;
    struct span pattern;
    /* the pattern is a regular expression in Oniguruma's syntax, otherwise plain text */
    bool is_regex;
    struct span content;
    enum split_behavior behavior;
    bool invert; /* the text between matches counts as the matches */
    enum prepend_scheme prepend;
    bool split;
    int left, right;
    int bert_rules; /* set of enum bert_rule */
};

/* Rules for finding an added token, in addition to its type. */
enum added_rule {
    ADDED_LSTRIP = 1,      /* includes the white space before it */
    ADDED_RSTRIP = 2,      /* includes the white space after it */
    ADDED_SINGLE_WORD = 4, /* is not found within a word */
    ADDED_NORMALIZED = 8,  /* its normalized text is searched in the normalized text */
    ADDED_ONLY = 16,       /* the model's vocabulary does not contain it */
};

/* The file's names for the parts of a spec; for messages. */
struct tokenizer_keys {
    const char *file; /* its path and ": ", or "" */
    const char *tokens, *types, *scores, *merges, *pre, *bos, *eos, *unknown;
};
extern const struct tokenizer_keys gguf_tokenizer_keys;

/* Tokens of prompts whose middle the model fills in: before the text before the gap, before the
 * text after it, before the answer; before a repository's name, before a file's name; padding. */
enum fim_token {
    FIM_PREFIX,
    FIM_SUFFIX,
    FIM_MIDDLE,
    FIM_REPOSITORY,
    FIM_FILE,
    FIM_PAD,
    N_FIM,
};

/* Maximum number of tokens that tokenizer_encode adds on one side of a text. */
enum { MAX_AROUND = 8 };

/* Tokens around and between two texts that form one prompt. */
struct pair_form {
    bool is_set; /* false: the tokens around one text, and nothing between */
    int32_t before[MAX_AROUND], between[MAX_AROUND], after[MAX_AROUND];
    int n_before, n_between, n_after;
    int n_between_first; /* tokens between that have the first text's type */
    bool has_types;      /* the second text and the tokens after it have type 1 instead of 0 */
};

/* Everything from which a tokenizer is built; the arrays are copied. An id of -1 means that the
 * model lacks the token. */
struct tokenizer_spec {
    enum tokenizer_kind kind;
    /* name of the pre-tokenizer pattern ("smollm", "llama-bpe", ...); NULL: gpt-2's */
    const char *pre;
    int n_tokens; /* V */
    /* [V] in the file's spelling (byte-level alphabet, or with U+2581) */
    const char *const *token;
    /* [V] bytes of each token: a token may contain any byte, also NUL */
    const uint32_t *token_length;
    const int32_t *type;  /* [V] enum token_type; NULL: all normal */
    const uint8_t *added; /* [V] enum added_rule of added tokens; NULL: no rules */
    const double *score;  /* [V] scores of SentencePiece and Unigram; NULL for the others */
    int n_merges;
    const char *const *merge;     /* [n_merges] "left right", best first; NULL without merges */
    const uint32_t *merge_length; /* [n_merges] */
    const uint32_t *merge_right;  /* [n_merges] offset of "right"; NULL: after the first space */
    int32_t bos, eos, unknown;
    bool add_bos, add_eos; /* added by tokenizer_encode if `add_special` is set */
    /* additional tokens, added under the same condition */
    int32_t before[MAX_AROUND], after[MAX_AROUND];
    int n_before, n_after;
    struct pair_form pair;
    int32_t fim[N_FIM];    /* id + 1 of tokens that the file names; 0: it does not */
    bool add_space_prefix; /* SentencePiece: add a space before the first word */
    bool byte_fallback;    /* unknown characters become byte tokens like <0x0A> */
    bool fuse_unknown;     /* a run of unknown characters becomes one unknown token */
    bool ignore_merges;    /* a piece that equals a token becomes it without merging */
    bool in_floats;        /* Unigram: add scores as floats instead of doubles */
    /* WordPiece: spellings begin so at the start of a word, and within it */
    struct span word_prefix, subword_prefix;
    int max_word_characters; /* WordPiece: longer words become one unknown token */
    /* The steps of a tokenizer.json, in order. Without them: the usual steps of the kind and
     * `pre`. */
    bool has_steps;
    const struct tokenizer_step *normalizers, *pre_tokenizers, *decoders;
    int n_normalizers, n_pre_tokenizers, n_decoders;
    const struct tokenizer_keys *keys; /* NULL: gguf_tokenizer_keys */
    /* The owner of the strings; tokenizer_spec_free calls release(owner). NULL: a file owns
     * them. */
    void *owner;
    void (*release)(void *owner);
};

/* Returns the character for a byte in GPT-2's alphabet, the spelling of byte-level vocabularies. */
uint32_t byte_level_character(uint8_t byte);

/* Returns the i-th usual name for `pre`, one per kind of pre-tokenizer; NULL after the last one. */
const char *tokenizer_pre_name(int i);

struct tokenizer;

/* Builds a tokenizer, which the caller frees with tokenizer_free. Fails with STATUS_BAD_FILE, *out
 * NULL and a sentence that names the wrong key or token: an unknown pre-tokenizer, a merge whose
 * parts or result are not tokens, a type out of range, a duplicate token. */
enum status tokenizer_new(struct tokenizer **out, const struct tokenizer_spec *spec,
                          struct err *err);
void tokenizer_free(struct tokenizer *tokenizer); /* NULL is ignored */

/* Which special tokens are recognised in a text. */
enum special_rule {
    /* not any: "<|im_end|>" is ten ordinary characters; for text of users in chat messages */
    SPECIAL_AS_TEXT,
    /* all: for rendered templates and the prompts of completions */
    SPECIAL_PARSED,
};

/* Turns `length` bytes of UTF-8 into ids; invalid bytes become byte tokens. Returns the number of
 * ids and stores them in *ids, which the caller frees with mem_free(). Returns -1 and stores NULL
 * if there are more than `limit`. Added (user defined) tokens are always recognised first, longer
 * ones before shorter ones. Time O(n log n) for any input. `add_special` adds bos and eos if the
 * model's file asks for them. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                     enum special_rule rule, bool add_special, int limit, int32_t **ids);

/* Encodes a rendered chat prompt that `pieces` cover in order. A control token is recognised if it
 * lies completely in pieces that are not from a user. Words may span pieces. Adds neither bos nor
 * eos: templates write them. */
int tokenizer_encode_pieces(const struct tokenizer *tokenizer, const char *text, size_t length,
                            const struct chat_piece *pieces, int n_pieces, int limit,
                            int32_t **ids);

/* Encodes two texts as one prompt, with the tokens that the model's file wants around and between
 * them. *n_first becomes the number of ids of token type 0, which are followed by those of type 1.
 * Special tokens in the texts are text. Returns like tokenizer_encode. */
int tokenizer_encode_pair(const struct tokenizer *tokenizer, struct span first, struct span second,
                          int limit, int32_t **ids, int *n_first);

/* Returns the raw bytes of a token (the name of a special token), which may contain NUL; "" for an
 * id out of range. Valid until the tokenizer is freed. */
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length);

/* Returns the token's spelling in the model file (e.g. U+0120 "world"), NUL-terminated; "" for an
 * id out of range. Valid until the tokenizer is freed. */
const char *tokenizer_token_name(const struct tokenizer *tokenizer, int32_t id);

/* Returns the id of the token with the spelling `name` in the file, or -1. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *name, size_t length);

int tokenizer_size(const struct tokenizer *tokenizer); /* V */
/* Is the token's type control or unknown? False for an id out of range. */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* -1 if the model lacks it */
int32_t tokenizer_eos(const struct tokenizer *tokenizer); /* -1 if the model lacks it */
/* Returns the tokens that tokenizer_encode adds before and after a text if `add_special` is set.
 * The arrays are valid until the tokenizer is freed. */
void tokenizer_around(const struct tokenizer *tokenizer, const int32_t **before, int *n_before,
                      const int32_t **after, int *n_after);
/* Returns the ids [N_FIM] of enum fim_token, -1 for those that the model lacks; NULL: the model
 * cannot fill in, because it lacks one of the first three. Valid until the tokenizer is freed. */
const int32_t *tokenizer_fim(const struct tokenizer *tokenizer);
/* Does tokenizer_encode add a token, usually bos, before a text if `add_special` is set? */
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);

/* ---- detokenizer ---------------------------------------------------------------------------- */

/* Turns a stream of ids into text. In its initial state all fields except `tokenizer` are zero. It
 * writes only whole characters: it holds back the bytes of an incomplete UTF-8 character, at most
 * 3. Bytes that cannot become a character are replaced by U+FFFD like in Python's
 * decode(errors="replace"), or by one U+FFFD per byte if a tokenizer.json has byte fallback. It
 * does not own memory. */
struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special; /* leave special tokens out of the text */
    bool started;      /* a token was added: a space is no longer SentencePiece's first one */
    /* For a decoder that strips characters at the start: is the start over, and how many were
     * stripped? */
    bool is_past_start;
    int n_stripped;
    uint8_t n_held; /* number of bytes held back */
    char held[4];
};

/* Adds one token and appends the text that it completes. O(length of the token). */
void detokenizer_add(struct detokenizer *detokenizer, int32_t id, struct buf *out);
/* Ends the stream: appends U+FFFD if bytes are held back. */
void detokenizer_finish(struct detokenizer *detokenizer, struct buf *out);
/* Appends the whole text of n ids. */
void detokenize(const struct tokenizer *tokenizer, const int32_t *ids, int n, bool skip_special,
                struct buf *out);

/* ---- chat template -------------------------------------------------------------------------- */

struct chat_template;

/* Compiles a Jinja template with the block settings of transformers (trim_blocks, lstrip_blocks).
 * The source is copied; the caller frees *out with chat_template_free. Fails with STATUS_BAD_FILE,
 * *out NULL and a sentence with the line and the cause. */
enum status chat_template_new(struct chat_template **out, const char *source, size_t length,
                              struct err *err);
void chat_template_free(struct chat_template *chat_template); /* NULL is ignored */

/* Returns the source of the template. Valid until the template is freed. */
const char *chat_template_source(const struct chat_template *chat_template, size_t *length);

/* Does the template's source contain this name as a whole word? A template cannot use a variable
 * that it does not name. Any thread. */
bool chat_template_names(const struct chat_template *chat_template, const char *name);

/* Is it the name of a variable or function that the renderer defines? Variables of chat_input.extra
 * must not have such a name, because they would replace checked values. Exceptions are `documents`,
 * `reasoning_effort` and `enable_thinking`. Any thread. */
bool chat_template_reserves(const char *name);

/* The wishes of a client that a template can follow: it reads a variable for them. */
struct chat_wishes {
    bool effort, thinking, verbosity;
};
struct chat_wishes chat_template_wishes(const struct chat_template *chat_template);

/* Returns the effort nearest to a given one, except "none", that the template's source names, or
 * NULL: for a template that fails with the given one. */
const char *chat_template_other_effort(const struct chat_template *from, const char *effort);

/* A wish for or against reasoning: the variable enable_thinking, or the template's name for it. */
enum thinking { THINKING_UNSET, THINKING_OFF, THINKING_ON };

/* The variables of a template. The caller owns the JSON values, which are not changed. */
struct chat_input {
    const struct json *messages;  /* array of messages in the format of OpenAI's API */
    const struct json *tools;     /* array, or NULL */
    const struct json *documents; /* array, or NULL */
    /* object of chat_template_kwargs: each is a variable whose name is not reserved; or NULL */
    const struct json *extra;
    /* value of the variable reasoning_effort. Unless `thinking` is set, "none" also switches
     * reasoning off, and another effort switches it on if the template reads no effort. `extra`
     * overrides all, and its enable_thinking sets each name of that switch. Or NULL */
    const char *reasoning_effort;
    const char *verbosity; /* value of the variable of this name, or NULL */
    enum thinking thinking;
    const char *bos_token; /* texts of the special tokens; NULL: undefined */
    const char *eos_token;
    bool add_generation_prompt;
    /* end the rendered text with the last message's content, like transformers */
    bool continue_final_message;
    int64_t time_s; /* for strftime_now, seconds since 1970 UTC */
};

/* Appends the rendered prompt to `out`. Fails with STATUS_INVALID_REQUEST, the line and the cause,
 * and leaves `out` unchanged, for raise_exception, an undefined operation, or an exceeded limit
 * (steps, depth, memory, `max_bytes` of output). If `pieces` is not NULL, *pieces becomes an array
 * of *n_pieces parts, which cover the output in order; the caller frees it with mem_free(). Any
 * thread. */
enum status chat_template_render(const struct chat_template *chat_template,
                                 const struct chat_input *input, size_t max_bytes, struct buf *out,
                                 struct chat_piece **pieces, int *n_pieces, struct err *err);

#endif
