/* Shared declarations of the tokenizer's files: the vocabulary and its tables, the trie of special
 * tokens, the pre-tokenizer and the merging of symbols. Only files of this folder include it.
 *
 * tokenizer_new writes everything here once; after that it is read-only, with two exceptions: a
 * `struct encoder` belongs to one call of tokenizer_encode, and `bpe.whole` is a cache of atomic
 * bytes.
 */
#ifndef PENSTOCK_TOKENIZER_INTERNAL_H
#define PENSTOCK_TOKENIZER_INTERNAL_H

#include "engine/text/text.h"

struct normalizer;

/* ---- tables (vocabulary.c) ------------------------------------------------------------------ */

/* n byte strings, one after another, with a NUL after each. */
struct strings {
    char *data;
    size_t *start; /* [n + 1] offsets; string i has start[i + 1] - start[i] - 1 bytes */
};

static inline const char *strings_get(const struct strings *strings, int32_t id, size_t *length) {
    *length = strings->start[id + 1] - strings->start[id] - 1;
    return strings->data + strings->start[id];
}

struct string_slot {
    int32_t id;   /* index of the string, or -1: empty */
    uint32_t tag; /* upper half of its hash: differs from the tag of most other strings */
};

/* Maps the bytes of a string to its index. */
struct string_table {
    const struct strings *strings;
    struct string_slot *slot; /* [mask + 1] */
    size_t mask;
};

void string_table_init(struct string_table *table, const struct strings *strings, int capacity);
/* Adds string `id`. Returns -1, or the index of an equal string that is already in the table. */
int32_t string_table_add(struct string_table *table, int32_t id);
/* Returns the index of the string, or -1. */
int32_t string_table_find(const struct string_table *table, const char *text, size_t length);

/* Maps a pair of numbers to a rank and a value: merges (left id, right id -> rank, id), and edges
 * of the trie (node, byte -> node). */
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
/* Adds a pair, or overwrites the equal one. The table grows if necessary. */
void pair_table_put(struct pair_table *table, uint32_t left, uint32_t right, uint32_t rank,
                    int32_t value);
/* Returns the pair's entry, or NULL. */
const struct pair_entry *pair_table_find(const struct pair_table *table, uint32_t left,
                                         uint32_t right);

struct token_vocabulary {
    int n;               /* V */
    struct strings name; /* spellings in the file */
    struct strings raw;  /* the bytes of each token */
    uint8_t *type;       /* [V] enum token_type */
    uint8_t *added;      /* [V] enum added_rule */
    bool *is_byte;       /* [V] is it a token like <0x0A> that the decoders treat as a byte? */
    bool finds_names;    /* special tokens are found by their spelling instead of their bytes */
    struct string_table by_name;
    /* Only tokens that plain text can become. The key is the model's view of the text: bytes, or
     * the spelling if steps rewrite the text. */
    struct string_table by_text;
    size_t longest;       /* bytes of the longest token in by_text */
    int32_t byte_id[256]; /* the token of each single byte, or -1 */
};

enum status vocabulary_init(struct token_vocabulary *vocabulary, const struct tokenizer_spec *spec,
                            const struct normalizer *normalizer, struct err *err);
void vocabulary_clear(struct token_vocabulary *vocabulary);

static inline bool type_is_special(int type) {
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

/* ---- special and added tokens (special_tokens.c) -------------------------------------------- */

/* A trie that maps texts to tokens. Node 0 is the root. */
struct trie {
    struct pair_table edges; /* (node, byte) -> node */
    int32_t *token;          /* [capacity] the token that ends at the node, or -1 */
    int n_nodes, capacity;
};

void trie_init(struct trie *trie);
void trie_free(struct trie *trie);
/* Adds a text of at least one byte. Replaces an earlier token with the same text. */
void trie_add(struct trie *trie, const char *text, size_t length, int32_t token);
/* Returns the node after one more byte, or -1. */
static inline int32_t trie_step(const struct trie *trie, int32_t node, uint8_t byte) {
    const struct pair_entry *edge = pair_table_find(&trie->edges, (uint32_t)node, byte);
    return edge ? edge->value : -1;
}

struct special {
    const struct token_vocabulary *vocabulary; /* NULL: the set is unused */
    struct trie trie;
    bool first[256]; /* first bytes of the tokens */
};

enum special_set { SPECIAL_EXACT, SPECIAL_NORMALIZED, SPECIAL_ALL };

/* Collects tokens that are found before all others: those found in the original text, those whose
 * normalized text is found in normalized text, or all. `normalizer` is NULL except for normalized
 * ones. */
void special_init(struct special *special, const struct token_vocabulary *vocabulary,
                  enum special_set set, const struct normalizer *normalizer);
void special_free(struct special *special);

struct special_match {
    int32_t id;
    size_t begin, end; /* range of the token and the white space that belongs to it */
    size_t next;       /* where the next search begins */
};

/* Finds the first token in text[from, end), the longest of those that begin there. Tokens that
 * `rule` treats as text are skipped. White space that belongs to the token may extend the match
 * back to `done` and forward to `length`. Returns false if it finds no token. */
bool special_next(const struct special *special, enum special_rule rule, const char *text,
                  size_t length, size_t from, size_t end, size_t done, struct special_match *match);

/* ---- regular expressions (regex.c) ---------------------------------------------------------- */

/* Unicode's White_Space as the content of a set: PCRE2's \s also matches U+180E. */
#define REGEX_SPACES                                                                               \
    "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}" \
    "\\x{3000}"

struct token_regex {
    struct pcre2_real_code_8 *code; /* NULL: not compiled */
    bool jit;                       /* has machine code */
    uint32_t steps; /* steps that a match may use in addition to those for the text's length */
};

/* Compiles a pattern of this program, in PCRE2's syntax. */
enum status regex_own(struct token_regex *regex, const char *pattern, const char *key,
                      struct err *err);
/* Compiles a file's pattern: a regular expression in Oniguruma's syntax, or plain text. Fails with
 * STATUS_BAD_FILE if PCRE2 cannot match it in a bounded number of steps. */
enum status regex_of_file(struct token_regex *regex, struct span pattern, bool is_regex,
                          const char *key, struct err *err);
void regex_free(struct token_regex *regex);

/* The state of matching in one text. */
struct regex_run {
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    size_t length; /* of the whole text: the limit of steps grows with it */
    bool gave_up;  /* a match exceeded the limit: there are no more matches */
};
struct regex_cursor {
    size_t at; /* start of the next search */
    size_t match_end;
    bool has_match;
};
void regex_begin(struct regex_run *run, size_t length);
void regex_end(struct regex_run *run);
/* Finds the next match in a valid text. A match may be empty, except at the end of the previous
 * match. */
bool regex_next(const struct token_regex *regex, struct regex_run *run, const char *text,
                size_t length, struct regex_cursor *cursor, size_t *begin, size_t *end);

/* ---- normalizing (normalizer.c, normalize.c, character_map.c) ------------------------------- */

/* SentencePiece's map from characters to texts: a double-array trie (Aoe 1989) in Darts' layout,
 * and the texts, with a NUL after each. */
struct character_map {
    const uint32_t *unit; /* [n_units], in the file's bytes or a copy of them */
    size_t n_units;
    const char *text; /* [text_length], the last byte is a NUL */
    size_t text_length;
    uint32_t *copy;
};

/* Checks and splits the bytes of a precompiled_charsmap. Empty bytes give an empty map. */
enum status character_map_init(struct character_map *map, struct span bytes, const char *key,
                               struct err *err);
void character_map_free(struct character_map *map);
/* Returns the replacement of the shortest or longest entry at the start of `text`, and the entry's
 * bytes in *n_matched; NULL if no entry matches. */
const char *character_map_find(const struct character_map *map, const char *text, size_t length,
                               bool longest, size_t *n_matched);
/* Append the text with the map's replacements: by graphemes, like spm_precompiled, or the longest
 * entry first, like SentencePiece. */
void character_map_by_graphemes(const struct character_map *map, const char *text, size_t length,
                                struct buf *out);
void character_map_by_prefix(const struct character_map *map, const char *text, size_t length,
                             struct buf *out);

#define MAX_STEPS 32

struct normalizer {
    struct {
        enum step_kind kind;
        bool left, right;
        int bert_rules;
        struct token_regex regex;
        char *content;
        size_t content_length;
        struct character_map map;
    } step[MAX_STEPS];
    int n;
};

enum status normalizer_init(struct normalizer *normalizer, const struct tokenizer_step *steps,
                            int n, struct err *err);
void normalizer_free(struct normalizer *normalizer);
/* Applies all steps. *text and *length become the result: in the original text, or in one of the
 * two buffers. */
void normalizer_apply(const struct normalizer *normalizer, struct buf room[2], const char **text,
                      size_t *length);

/* Appends the text with small letters. */
void normalize_lowercase(const char *text, size_t length, struct buf *out);
/* Appends the text after BERT's normalizer with `rules` (wordpiece.c). */
void bert_normalize(int rules, const char *text, size_t length, struct buf *out);
/* Appends the text in a normal form. Bytes that are not UTF-8 stay unchanged. O(n log n). */
void normalize_form(enum step_kind form, const char *text, size_t length, struct buf *out);
/* Returns false if the text is certainly in normal form C. */
bool normalize_needed(const char *text, size_t length);
/* Returns the bytes of a White_Space character at the start of the text, or 0. */
size_t white_space_at(const char *text, size_t length);
/* Returns the offset of the white space at the end of the text. */
size_t white_space_before_end(const char *text, size_t length);

/* ---- the pre-tokenizer (pretokenizer.c, patterns.c) ----------------------------------------- */

/* The simple stages to which a file's steps are converted. Each splits or rewrites a piece. */
enum stage_kind {
    STAGE_SPLIT,        /* at matches */
    STAGE_PREFIX_SPACE, /* a space before a piece that does not begin with one */
    STAGE_ALPHABET,     /* bytes become GPT-2's characters */
    STAGE_METASPACE,    /* spaces become `mark`, which may also be added at the start */
};

struct stage {
    enum stage_kind kind;
    struct token_regex regex;
    enum split_behavior behavior;
    bool invert;
    enum prepend_scheme prepend;
    char mark[5]; /* a character and its NUL */
};

struct pretokenizer {
    struct stage stage[MAX_STEPS];
    int n_stages;
};

/* Adds the stages for a GGUF file's name of a pre-tokenizer; NULL means GPT-2's. Sets the other
 * properties of the name: ignore_merges, and whether texts are first normalized to form C. Fails
 * with STATUS_BAD_FILE. */
enum status pretokenizer_named(struct pretokenizer *pretokenizer, const char *name,
                               bool *ignore_merges, bool *nfc, struct err *err);
/* Adds the stages of a file's steps. `bytes`: the model takes bytes, so GPT-2's alphabet as the
 * last step is omitted. */
enum status pretokenizer_init(struct pretokenizer *pretokenizer, const struct tokenizer_spec *spec,
                              bool bytes, struct err *err);
/* Appends a stage that splits at a pattern of this program. */
enum status pretokenizer_add(struct pretokenizer *pretokenizer, const char *pattern,
                             enum split_behavior behavior, bool invert, struct err *err);
extern const char pattern_gpt2[]; /* GPT-2's */
void pretokenizer_free(struct pretokenizer *pretokenizer);

/* Receives the pieces one by one. `take` returns false to stop the splitting. */
struct piece_sink {
    bool (*take)(void *context, const char *text, size_t length);
    void *context;
};

/* Passes the pieces of a text to the sink, in order. Together they are the text, unless a stage
 * drops or rewrites some. `is_first`: the text is the start of the encoded input. Bytes that are
 * not UTF-8 become separate pieces. Returns false if the sink stopped. */
bool pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t length,
                        bool is_first, struct piece_sink sink);

/* ---- merging (merge.c) ---------------------------------------------------------------------- */

/* A run of bytes that is a token or may become part of one. The symbols of a piece form a linked
 * list by index. */
struct symbol {
    int32_t id;       /* -1: not in the vocabulary */
    uint32_t start;   /* first byte in the piece's text */
    uint32_t length;  /* bytes; 0: merged into the symbol before it */
    int32_t next;     /* index, or -1 */
    int32_t previous; /* index, or -1 */
};

/* A possible merge; the smallest key is first. */
struct merge_candidate {
    uint64_t key;    /* rank << 32 | index of the left symbol */
    uint32_t length; /* bytes of both symbols together; a later merge of either changes them */
    int32_t id;      /* the merged token */
};

/* Memory that one call of tokenizer_encode reuses for all pieces. */
struct merge_memory {
    struct symbol *symbol;
    size_t symbol_capacity;
    struct merge_candidate *heap;
    size_t heap_capacity, n_heap;
};

/* Returns uninitialised memory for n symbols; valid until the next call. */
struct symbol *merge_symbols(struct merge_memory *memory, size_t n);
void merge_memory_free(struct merge_memory *memory);
/* Merges the n linked symbols of memory->symbol, which cover `text`, until no pair can be merged:
 * the best rank first, the leftmost among equal ranks. */
void merge_run(const struct tokenizer *tokenizer, struct merge_memory *memory, const char *text,
               size_t n);

/* ---- from ids to bytes (decoding.c) --------------------------------------------------------- */

/* The effects of a file's decoders on a stream of tokens, in addition to the bytes of each
 * token. */
struct decoding {
    bool is_set;            /* the file has steps; otherwise the kind decides */
    bool fused;             /* a Fuse was seen; used only while the steps are read */
    bool byte_fallback;     /* byte tokens that do not form a character become one U+FFFD each */
    bool joins_with_spaces; /* a space between two tokens */
    bool joins_words;       /* WordPiece: the first token's text lacks the space */
    bool cleans_up;         /* WordPiece: drops spaces before marks */
    int n_stripped;         /* how often `stripped` is dropped at the start */
    char stripped[5];
    char mark[5]; /* dropped from the first token */
};

enum status decoding_init(struct decoding *decoding, const struct tokenizer_spec *spec,
                          struct err *err);
/* Appends a token's text under WordPiece: the prefix of word parts becomes nothing, and other
 * tokens get a space, except the first one, which keeps its spelling (wordpiece.c). */
void wordpiece_decode(struct span prefix, bool cleans_up, bool is_first, const char *text,
                      size_t length, struct buf *out);
/* Computes the bytes of a token, which are in `name` or in one of the buffers. Returns true if it
 * is the token of a single byte. */
bool decoding_apply(const struct tokenizer_spec *spec, const char *name, size_t length,
                    struct buf room[2], const char **bytes, size_t *n_bytes);

/* ---- the tokenizer and one call of it ------------------------------------------------------- */

struct tokenizer {
    enum tokenizer_kind kind;
    struct token_vocabulary vocabulary;
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    struct decoding decoding;
    struct special special;     /* found in the original text */
    struct special normalized;  /* found in the normalized text; vocabulary NULL: no such tokens */
    struct special of_template; /* all of them; vocabulary NULL: use `special` */
    int32_t bos, eos, unknown;
    int32_t fim[N_FIM];                            /* -1: missing */
    int32_t before[MAX_AROUND], after[MAX_AROUND]; /* added around a text */
    int n_before, n_after;
    struct pair_form pair;
    bool add_space_prefix, byte_fallback, fuse_unknown, ignore_merges;
    struct {
        struct pair_table merges;
        _Atomic uint8_t *whole; /* [V] enum whole: does the token's text encode to the token? */
    } bpe;
    struct {
        uint32_t *rank; /* [V] order by score, the best is the smallest */
    } sentencepiece;
    struct {
        struct trie trie;
        double *score; /* [V] */
        double unknown_score;
        bool in_floats;
    } unigram;
    struct {
        struct trie trie;
        int32_t word, subword; /* the nodes after the prefixes; -1: no token has the prefix */
        int max_characters;
    } wordpiece;
};

/* Finds the tokens for filling in; after the vocabulary is complete (fim.c). */
void fim_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec);

/* Does merging a token's bytes produce that token? Computed on first use. */
enum whole { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

struct encoder {
    const struct tokenizer *tokenizer;
    int32_t *id;
    int n, capacity, limit;
    /* at the start of the text or after a special token: SentencePiece adds its space here */
    bool at_start;
    struct merge_memory memory;
    struct buf text;        /* a segment that SentencePiece has rewritten */
    struct buf normal[2];   /* a segment between the normalizer's steps */
    struct best_path *path; /* [path_capacity] for Unigram */
    size_t path_capacity;
};

/* Appends an id; returns false if there are already `limit` ids. */
bool encoder_push(struct encoder *encoder, int32_t id);
/* Returns false if the text needs more ids than the limit allows, even with the best merges; the
 * caller then saves the work and its memory. Bytes without a token do not count, because they may
 * be dropped. */
bool encoder_may_fit(const struct encoder *encoder, const char *text, size_t length);
/* Encodes an unknown character as the tokens of its bytes, if all of them exist. Sets *pushed.
 * Returns false beyond the limit. */
bool encoder_push_bytes(struct encoder *encoder, const char *text, size_t length, bool *pushed);

/* The kinds of tokenizer. The init functions run after vocabulary_init and fail with
 * STATUS_BAD_FILE for bad merges or missing scores. The encode functions encode a piece or text and
 * return false beyond the limit. `context` is the encoder. */
enum status bpe_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                     struct err *err);
bool bpe_encode_piece(void *context, const char *text, size_t length);
enum status sentencepiece_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                               struct err *err);
bool sentencepiece_encode(struct encoder *encoder, const char *text, size_t length);
bool character_encode_piece(void *context, const char *text, size_t length);
bool rank_encode_piece(void *context, const char *text, size_t length);
enum status unigram_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                         struct err *err);
bool unigram_encode_piece(void *context, const char *text, size_t length);
enum status wordpiece_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                           struct err *err);
bool wordpiece_encode_piece(void *context, const char *text, size_t length);

/* Makes a symbol of each byte that is a token, and returns their number. */
size_t link_bytes(const struct tokenizer *tokenizer, struct symbol *symbol, const char *text,
                  size_t length);

/* ---- alphabets (byte_alphabet.c) ------------------------------------------------------------ */

/* Writes the bytes of a token's spelling, by its kind and type, to `out`, which has a capacity of
 * `length` bytes. Returns their number, at most `length`. */
size_t alphabet_decode(enum tokenizer_kind kind, int type, const char *name, size_t length,
                       char *out);
/* Writes the bytes of a spelling in GPT-2's alphabet, or else the spelling itself. */
size_t alphabet_bytes(const char *name, size_t length, char *out);
/* Returns the byte of a name like "<0x0A>", or -1. */
int alphabet_byte_token(const char *name, size_t length);

#endif
