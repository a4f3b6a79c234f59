/* What the tokenizer's files share: the vocabulary and its tables, the special tokens' trie, the
 * pre-tokenizer and the merging of symbols. Only this folder's files include it.
 *
 * tokenizer_new writes everything here once; after that it is only read. Two exceptions: a `struct
 * encoder` belongs to one call of tokenizer_encode, and `bpe.whole` is a cache of atomic bytes.
 */
#ifndef PENSTOCK_TOKENIZER_INTERNAL_H
#define PENSTOCK_TOKENIZER_INTERNAL_H

#include "engine/text/text.h"

/* ---- tables (vocabulary.c) ------------------------------------------------------------------ */

/* n byte strings, one after another, each followed by a NUL. */
struct strings {
    char *data;
    size_t *start; /* [n + 1] where each begins; string i has start[i + 1] - start[i] - 1 bytes */
};

static inline const char *strings_get(const struct strings *strings, int32_t id, size_t *length) {
    *length = strings->start[id + 1] - strings->start[id] - 1;
    return strings->data + strings->start[id];
}

struct string_slot {
    int32_t id;   /* index of the string, or -1: empty */
    uint32_t tag; /* high half of its hash: most other strings differ in it */
};

/* From the bytes of a string to its index. */
struct string_table {
    const struct strings *strings;
    struct string_slot *slot; /* [mask + 1] */
    size_t mask;
};

void string_table_init(struct string_table *table, const struct strings *strings, int capacity);
/* Adds string `id`. If an equal one is in the table, returns that one's index instead; else -1. */
int32_t string_table_add(struct string_table *table, int32_t id);
/* The index of the string, or -1. */
int32_t string_table_find(const struct string_table *table, const char *text, size_t length);

/* From a pair of numbers to a rank and a value: merges (left id, right id -> rank, id), edges of
 * the trie (node, byte -> node). */
struct pair_entry {
    uint64_t key; /* left << 32 | right; UINT64_MAX: empty */
    uint32_t rank;
    int32_t value;
};
struct pair_table {
    struct pair_entry *pair; /* [mask + 1] */
    size_t mask;
    size_t n;
};

void pair_table_init(struct pair_table *table, size_t capacity);
/* Adds a pair, or overwrites the equal one. At most as many as the table was made for. */
void pair_table_put(struct pair_table *table, uint32_t left, uint32_t right, uint32_t rank,
                    int32_t value);
/* The pair's entry, or NULL. */
const struct pair_entry *pair_table_find(const struct pair_table *table, uint32_t left,
                                         uint32_t right);

struct vocabulary {
    int n;               /* V */
    struct strings name; /* as the file spells them */
    struct strings raw;  /* the bytes they stand for */
    uint8_t *type;       /* [V] enum token_type */
    struct string_table by_name;
    struct string_table by_raw; /* only tokens that plain text can become */
    size_t longest;             /* bytes of the longest token in by_raw */
    int32_t byte_id[256];       /* the token of each single byte, or -1 */
};

enum status vocabulary_init(struct vocabulary *vocabulary, const struct tokenizer_spec *spec,
                            struct err *err);
void vocabulary_free(struct vocabulary *vocabulary);

static inline bool type_is_special(int type) {
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

/* ---- special and added tokens (tokenizer/special_tokens.c) ---------------------------------- */

struct special {
    struct pair_table edges; /* (node, byte) -> node; node 0 is the root */
    int32_t *token;          /* [n_nodes] the token that ends at the node, or -1 */
    bool *control;           /* [n_nodes] that token is only seen by SPECIAL_PARSED */
    bool first[256];         /* bytes that begin some token */
    int n_nodes;
};

void special_init(struct special *special, const struct vocabulary *vocabulary);
void special_free(struct special *special);
/* The first special token in the text, the longest of those that begin there. Returns its offset
 * and sets *id and *token_length; returns `length` when there is none. */
size_t special_next(const struct special *special, enum special_rule rule, const char *text,
                    size_t length, int32_t *id, size_t *token_length);

/* ---- the pre-tokenizer (pretokenizer.c, normalize.c) ---------------------------------------- */

#define PRETOKENIZER_STAGES 6

struct pretokenizer {
    struct pcre2_real_code_8 *stage[PRETOKENIZER_STAGES];
    bool jit[PRETOKENIZER_STAGES];
    int n_stages;
    bool ignore_merges; /* a piece that is a token becomes that token without merging */
    bool nfc;           /* text is normalized to Unicode's form C first */
};

/* Compiles the patterns that a GGUF file's name stands for; NULL is GPT-2's. Fails with
 * STATUS_BAD_FILE. */
enum status pretokenizer_init(struct pretokenizer *pretokenizer, const char *name, struct err *err);
void pretokenizer_free(struct pretokenizer *pretokenizer);

/* Receives the pieces: `take` gets one, and stops the splitting by returning false. */
struct piece_sink {
    bool (*take)(void *context, const char *text, size_t length);
    void *context;
};

/* Hands the pieces of a text to the sink, in order; together they are the text. Bytes that are no
 * UTF-8 are pieces of their own. Returns false when the sink stopped it. */
bool pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t length,
                        struct piece_sink sink);

/* Appends the text in normal form C. Bytes that are no UTF-8 stay as they are. O(n log n). */
void normalize_nfc(const char *text, size_t length, struct buf *out);
/* False if the text is certain to be in normal form C already. */
bool normalize_needed(const char *text, size_t length);

/* ---- merging (merge.c) ---------------------------------------------------------------------- */

/* A run of bytes that is, or may become, one token. Symbols of a piece are a linked list by
 * index. */
struct symbol {
    int32_t id;       /* -1: not in the vocabulary */
    uint32_t start;   /* first byte in the piece's text */
    uint32_t length;  /* bytes; 0: merged into the one before */
    int32_t next;     /* index, or -1 */
    int32_t previous; /* index, or -1 */
};

/* A merge that may be done: smallest key first. */
struct merge_candidate {
    uint64_t key;    /* rank << 32 | index of the left symbol */
    uint32_t length; /* bytes of both symbols together; changes if one of them has merged since */
    int32_t id;      /* what they become */
};

/* Memory that one call of tokenizer_encode reuses from piece to piece. */
struct merge_memory {
    struct symbol *symbol;
    size_t symbol_capacity;
    struct merge_candidate *heap;
    size_t heap_capacity, n_heap;
};

/* Room for n symbols, uninitialised; valid until the next call. */
struct symbol *merge_symbols(struct merge_memory *memory, size_t n);
void merge_memory_free(struct merge_memory *memory);
/* Merges the n linked symbols of memory->symbol, which lie over `text`, until no pair can be
 * merged: the best rank first, of equal ranks the leftmost. */
void merge_run(const struct tokenizer *tokenizer, struct merge_memory *memory, const char *text,
               size_t n);

/* ---- the tokenizer and one call of it ------------------------------------------------------- */

struct tokenizer {
    enum tokenizer_kind kind;
    struct vocabulary vocabulary;
    struct special special;
    int32_t bos, eos, unknown;
    bool add_bos, add_eos, add_space_prefix;
    struct {
        struct pretokenizer pretokenizer;
        struct pair_table merges;
        _Atomic uint8_t *whole; /* [V] enum whole: does the token's own text become that token? */
    } bpe;
    struct {
        uint32_t *rank; /* [V] order of the scores, best is smallest */
    } sentencepiece;
};

/* Does merging a token's own bytes give that token? Computed when first needed. */
enum whole { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

struct encoder {
    const struct tokenizer *tokenizer;
    int32_t *id;
    int n, capacity, limit;
    bool at_start; /* of the text, or after a special token: SentencePiece puts its space here */
    struct merge_memory memory;
    struct buf text; /* a segment that was normalized or rewritten before it is split */
};

/* Appends an id; false when there are already `limit`. */
bool encoder_push(struct encoder *encoder, int32_t id);
/* False if the text needs more ids than are left, however well it merges; then the work, and the
 * memory for it, is saved. Bytes without a token do not count: they may be dropped. */
bool encoder_may_fit(const struct encoder *encoder, const char *text, size_t length);

/* The two kinds of tokenizer: building one after its vocabulary (STATUS_BAD_FILE for bad merges or
 * missing scores), and encoding the text between special tokens (false beyond the limit). */
enum status bpe_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                     struct err *err);
void bpe_free(struct tokenizer *tokenizer);
bool bpe_encode(struct encoder *encoder, const char *text, size_t length);
enum status sentencepiece_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                               struct err *err);
void sentencepiece_free(struct tokenizer *tokenizer);
bool sentencepiece_encode(struct encoder *encoder, const char *text, size_t length);

/* ---- alphabets (tokenizer/byte_alphabet.c) -------------------------------------------------- */

/* Writes the bytes that a token's spelling stands for, by its kind and type, to `out`, which has
 * room for `length` bytes; returns how many there are, at most `length`. */
size_t alphabet_decode(enum tokenizer_kind kind, int type, const char *name, size_t length,
                       char *out);
/* The byte of a name such as "<0x0A>", or -1. */
int alphabet_byte_token(const char *name, size_t length);

#endif
