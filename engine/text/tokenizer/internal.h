/* What the tokenizer's files share: the vocabulary and its tables, the special tokens' trie, the
 * pre-tokenizer and the merging of symbols. Only this folder's files include it.
 *
 * tokenizer_new writes everything here once; after that it is only read. Two exceptions: a `struct
 * encoder` belongs to one call of tokenizer_encode, and `bpe.whole` is a cache of atomic bytes.
 */
#ifndef PENSTOCK_TOKENIZER_INTERNAL_H
#define PENSTOCK_TOKENIZER_INTERNAL_H

#include "engine/text/text.h"

struct normalizer;

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
/* Adds a pair, or overwrites the equal one. The table grows if it has to. */
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
    uint8_t *added;      /* [V] enum added_rule */
    bool *is_byte;       /* [V] <0x0A> and the like, where the decoders know them */
    bool finds_names;    /* special tokens are found as they are spelt, not by their bytes */
    struct string_table by_name;
    /* Only tokens that plain text can become, by what the model sees: their bytes, or the spelling
     * if steps have rewritten the text. */
    struct string_table by_text;
    size_t longest;       /* bytes of the longest token in by_text */
    int32_t byte_id[256]; /* the token of each single byte, or -1 */
};

enum status vocabulary_init(struct vocabulary *vocabulary, const struct tokenizer_spec *spec,
                            const struct normalizer *normalizer, struct err *err);
void vocabulary_clear(struct vocabulary *vocabulary);

static inline bool type_is_special(int type) {
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

/* ---- special and added tokens (special_tokens.c) -------------------------------------------- */

/* Texts and the tokens that they are, as a trie. Node 0 is the root. */
struct trie {
    struct pair_table edges; /* (node, byte) -> node */
    int32_t *token;          /* [capacity] the token that ends at the node, or -1 */
    int n_nodes, capacity;
};

void trie_init(struct trie *trie);
void trie_free(struct trie *trie);
/* Adds a text of at least one byte. A token that had it before is replaced. */
void trie_add(struct trie *trie, const char *text, size_t length, int32_t token);
/* The node that one more byte leads to, or -1. */
static inline int32_t trie_step(const struct trie *trie, int32_t node, uint8_t byte) {
    const struct pair_entry *edge = pair_table_find(&trie->edges, (uint32_t)node, byte);
    return edge ? edge->value : -1;
}

struct special {
    const struct vocabulary *vocabulary; /* NULL: not made */
    struct trie trie;
    bool first[256]; /* bytes that begin some token */
};

enum special_set { SPECIAL_EXACT, SPECIAL_NORMALIZED, SPECIAL_ALL };

/* The tokens that are found before all else: those in the text as it is, those whose normalized
 * text is found in normalized text, or all of them. `normalizer` is NULL but for normalized ones.
 * */
void special_init(struct special *special, const struct vocabulary *vocabulary,
                  enum special_set set, const struct normalizer *normalizer);
void special_free(struct special *special);

struct special_match {
    int32_t id;
    size_t begin, end; /* of the token with the white space that belongs to it */
    size_t next;       /* where to look for the next one */
};

/* The first token in text[from, end), the longest of those that begin there; a token that `rule`
 * leaves as text is passed over. The white space that belongs to it may reach back to `done` and
 * forward to `length`. False if there is none. */
bool special_next(const struct special *special, enum special_rule rule, const char *text,
                  size_t length, size_t from, size_t end, size_t done, struct special_match *match);

/* ---- regular expressions (regex.c) ---------------------------------------------------------- */

/* Unicode's White_Space, for a set: PCRE2's \s also matches U+180E. */
#define REGEX_SPACES                                                                               \
    "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}" \
    "\\x{3000}"

struct regex {
    struct pcre2_real_code_8 *code; /* NULL: none */
    bool jit;                       /* there is machine code for it */
    uint32_t steps;                 /* what a match may take beside its share of the text */
};

/* Compiles one of our own patterns, in PCRE2's syntax. */
enum status regex_own(struct regex *regex, const char *pattern, const char *key, struct err *err);
/* Compiles a file's pattern: a regular expression in Oniguruma's syntax, or a text. Fails with
 * STATUS_BAD_FILE if PCRE2 cannot match it, or not in a bounded number of steps. */
enum status regex_of_file(struct regex *regex, struct span pattern, bool is_regex, const char *key,
                          struct err *err);
void regex_free(struct regex *regex);

/* What the matches of one text need. */
struct regex_run {
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    size_t length; /* of the whole text: the limit of steps grows with it */
    bool gave_up;  /* a match passed the limit: there are no more */
};
struct regex_cursor {
    size_t at; /* where the next match is searched from */
    size_t match_end;
    bool has_match;
};
bool regex_begin(struct regex_run *run, size_t length); /* false without memory */
void regex_end(struct regex_run *run);
/* The next match in a valid text. It may be empty, but not where the one before ended. */
bool regex_next(const struct regex *regex, struct regex_run *run, const char *text, size_t length,
                struct regex_cursor *cursor, size_t *begin, size_t *end);

/* ---- normalizing (normalizer.c, normalize.c, character_map.c) ------------------------------- */

/* SentencePiece's map from characters to texts: a double-array trie (Aoe 1989) as Darts lays it
 * out, and the texts, each with a NUL behind it. */
struct character_map {
    const uint32_t *unit; /* [n_units], in the file's bytes or a copy of them */
    size_t n_units;
    const char *text; /* [text_length], the last byte is a NUL */
    size_t text_length;
    uint32_t *copy;
};

/* Checks and takes apart the bytes of a precompiled_charsmap. Empty: a map of nothing. */
enum status character_map_init(struct character_map *map, struct span bytes, const char *key,
                               struct err *err);
void character_map_free(struct character_map *map);
/* The text of the shortest or longest entry that begins `text`, and its own bytes; NULL: none. */
const char *character_map_find(const struct character_map *map, const char *text, size_t length,
                               bool longest, size_t *n_matched);
/* Appends the text with what the map replaces: by graphemes, as spm_precompiled does, or the
 * longest entry first, as SentencePiece does. */
void character_map_by_graphemes(const struct character_map *map, const char *text, size_t length,
                                struct buf *out);
void character_map_by_prefix(const struct character_map *map, const char *text, size_t length,
                             struct buf *out);

#define MAX_STEPS 32

struct normalizer {
    struct {
        enum step_kind kind;
        bool left, right;
        struct regex regex;
        char *content;
        size_t content_length;
        struct character_map map;
    } step[MAX_STEPS];
    int n;
};

enum status normalizer_init(struct normalizer *normalizer, const struct tokenizer_step *steps,
                            int n, struct err *err);
void normalizer_free(struct normalizer *normalizer);
/* Applies all steps. *text and *length become those of the result: the text itself, or one of the
 * two buffers. */
void normalizer_apply(const struct normalizer *normalizer, struct buf room[2], const char **text,
                      size_t *length);

/* Appends the text in a normal form. Bytes that are no UTF-8 stay as they are. O(n log n). */
void normalize_form(enum step_kind form, const char *text, size_t length, struct buf *out);
/* False if the text is certain to be in normal form C already. */
bool normalize_needed(const char *text, size_t length);
/* Does a character of Unicode's White_Space begin the text? Its bytes, or 0. */
size_t white_space_at(const char *text, size_t length);
/* Where the white space at the text's end begins. */
size_t white_space_before_end(const char *text, size_t length);

/* ---- the pre-tokenizer (pretokenizer.c, patterns.c) ----------------------------------------- */

/* What a step of a file becomes: simple stages, each of which splits or rewrites a piece. */
enum stage_kind {
    STAGE_SPLIT,        /* at matches */
    STAGE_PREFIX_SPACE, /* a space before a piece without one */
    STAGE_ALPHABET,     /* bytes become GPT-2's characters */
    STAGE_METASPACE,    /* spaces become `mark`, which may be put first */
};

struct stage {
    enum stage_kind kind;
    struct regex regex;
    enum split_behavior behavior;
    bool invert;
    enum prepend_scheme prepend;
    char mark[5]; /* a character and its NUL */
};

struct pretokenizer {
    struct stage stage[MAX_STEPS];
    int n_stages;
};

/* Adds the stages that the name in a GGUF file stands for; NULL is GPT-2's. Sets what else the name
 * says: ignore_merges, and that texts are put in normal form C first. Fails with STATUS_BAD_FILE.
 * */
enum status pretokenizer_named(struct pretokenizer *pretokenizer, const char *name,
                               bool *ignore_merges, bool *nfc, struct err *err);
/* Adds the stages of a file's steps. `bytes`: the model takes bytes, so that GPT-2's alphabet as
 * the last step is left out. */
enum status pretokenizer_init(struct pretokenizer *pretokenizer, const struct tokenizer_spec *spec,
                              bool bytes, struct err *err);
/* Appends a stage that splits at one of our own patterns. */
enum status pretokenizer_add(struct pretokenizer *pretokenizer, const char *pattern,
                             enum split_behavior behavior, bool invert, struct err *err);
extern const char pattern_gpt2[]; /* GPT-2's */
void pretokenizer_free(struct pretokenizer *pretokenizer);

/* Receives the pieces: `take` gets one, and stops the splitting by returning false. */
struct piece_sink {
    bool (*take)(void *context, const char *text, size_t length);
    void *context;
};

/* Hands the pieces of a text to the sink, in order; if no stage drops or changes any, together they
 * are the text. `is_first`: the text is the beginning of what is encoded. Bytes that are no UTF-8
 * are pieces of their own. Returns false when the sink stopped it. */
bool pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t length,
                        bool is_first, struct piece_sink sink);

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

/* ---- from ids to bytes (decoding.c) --------------------------------------------------------- */

/* What the steps of a file do to a stream of tokens, beside the bytes of each. */
struct decoding {
    bool is_set;            /* the file has steps; else the kind says it */
    bool fused;             /* used while the steps are read */
    bool byte_fallback;     /* byte tokens that are no character become one U+FFFD each */
    bool joins_with_spaces; /* a space between two tokens */
    int n_stripped;         /* this often `stripped` is dropped at the start */
    char stripped[5];
    char mark[5]; /* dropped from the first token */
};

enum status decoding_init(struct decoding *decoding, const struct tokenizer_spec *spec,
                          struct err *err);
/* The bytes that a token stands for, in `name` or in one of the buffers. Returns true if it is the
 * token of a single byte. */
bool decoding_apply(const struct tokenizer_spec *spec, const char *name, size_t length,
                    struct buf room[2], const char **bytes, size_t *n_bytes);

/* ---- the tokenizer and one call of it ------------------------------------------------------- */

struct tokenizer {
    enum tokenizer_kind kind;
    struct vocabulary vocabulary;
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    struct decoding decoding;
    struct special special;     /* found in the text as it is */
    struct special normalized;  /* found in the normalized text; no vocabulary: there are none */
    struct special of_template; /* all of them; no vocabulary: they are those of `special` */
    int32_t bos, eos, unknown;
    int32_t before[MAX_AROUND], after[MAX_AROUND]; /* put around a text */
    int n_before, n_after;
    bool add_space_prefix, byte_fallback, fuse_unknown, ignore_merges;
    struct {
        struct pair_table merges;
        _Atomic uint8_t *whole; /* [V] enum whole: does the token's own text become that token? */
    } bpe;
    struct {
        uint32_t *rank; /* [V] order of the scores, best is smallest */
    } sentencepiece;
    struct {
        struct trie trie;
        double *score; /* [V] */
        double unknown_score;
        bool in_floats;
    } unigram;
};

/* Does merging a token's own bytes give that token? Computed when first needed. */
enum whole { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

struct encoder {
    const struct tokenizer *tokenizer;
    int32_t *id;
    int n, capacity, limit;
    bool at_start; /* of the text, or after a special token: SentencePiece puts its space here */
    struct merge_memory memory;
    struct buf text;        /* a segment that SentencePiece has rewritten */
    struct buf normal[2];   /* a segment between the normalizer's steps */
    struct best_path *path; /* Unigram's, [path_capacity] */
    size_t path_capacity;
};

/* Appends an id; false when there are already `limit`. */
bool encoder_push(struct encoder *encoder, int32_t id);
/* False if the text needs more ids than are left, however well it merges; then the work, and the
 * memory for it, is saved. Bytes without a token do not count: they may be dropped. */
bool encoder_may_fit(const struct encoder *encoder, const char *text, size_t length);
/* Encodes a character that is no token as the tokens of its bytes, if there are all. Sets *pushed;
 * false beyond the limit. */
bool encoder_push_bytes(struct encoder *encoder, const char *text, size_t length, bool *pushed);

/* The kinds of tokenizer: building one after its vocabulary (STATUS_BAD_FILE for bad merges or
 * missing scores), and encoding a piece or text (false beyond the limit). `context` is the encoder.
 * */
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

/* Makes a symbol of each byte that is a token, and returns their number. */
size_t link_bytes(const struct tokenizer *tokenizer, struct symbol *symbol, const char *text,
                  size_t length);

/* ---- alphabets (byte_alphabet.c) ------------------------------------------------------------ */

/* Writes the bytes that a token's spelling stands for, by its kind and type, to `out`, which has
 * room for `length` bytes; returns how many there are, at most `length`. */
size_t alphabet_decode(enum tokenizer_kind kind, int type, const char *name, size_t length,
                       char *out);
/* The bytes of a spelling in GPT-2's alphabet; of another one, the spelling itself. */
size_t alphabet_bytes(const char *name, size_t length, char *out);
/* The byte of a name such as "<0x0A>", or -1. */
int alphabet_byte_token(const char *name, size_t length);

#endif
