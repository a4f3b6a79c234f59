/* Byte-level BPE: each piece is its bytes, merged by rank.
 *
 * Most pieces are one token, and looking the piece up is far quicker than merging it. Whether
 * merging would give that same token is found out once per token and noted in `whole`: every thread
 * finds the same answer, so the notes are relaxed atomics and nothing else of the tokenizer ever
 * changes.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer_internal.h"

/* ---- building ------------------------------------------------------------------------------- */

static enum status bad_merge(int i, const char *merge, uint32_t length, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, "tokenizer.ggml.merges",
                   "merge %d, '%.*s', is not two tokens that make a third", i,
                   (int)(length > 100 ? 100 : length), merge);
}

struct merge {
    const char *left, *right;
    size_t left_length, right_length;
};

/* False when there is no space that could part it. */
static bool split_merge(struct merge *merge, const char *text, uint32_t length) {
    const char *space = length > 1 ? memchr(text + 1, ' ', length - 1) : NULL;
    if (!space) return false;
    size_t left = (size_t)(space - text);
    *merge = (struct merge){text, space + 1, left, length - left - 1};
    return true;
}

static bool makes(const struct merge *merge, const struct strings *names, int32_t id) {
    size_t length;
    const char *name = strings_get(names, id, &length);
    return length == merge->left_length + merge->right_length &&
           memcmp(name, merge->left, merge->left_length) == 0 &&
           memcmp(name + merge->left_length, merge->right, merge->right_length) == 0;
}

/* Vocabularies number their tokens in the order of the merges that make them, so `guess`, the token
 * after the last merge's, mostly is the one; looking it up is the costly part of a start. */
static int32_t result_of(const struct merge *merge, const struct vocabulary *vocabulary,
                         int32_t guess, struct buf *joined) {
    if (guess < vocabulary->n && makes(merge, &vocabulary->name, guess)) return guess;
    buf_clear(joined);
    buf_add(joined, merge->left, merge->left_length);
    buf_add(joined, merge->right, merge->right_length);
    return string_table_find(&vocabulary->by_name, joined->data, joined->length);
}

/* Adds all merges; returns the first that is none, or -1. */
static int add_merges(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                      struct buf *joined) {
    const struct string_table *names = &tokenizer->vocabulary.by_name;
    int32_t result = -1;
    for (int i = 0; i < spec->n_merges; i++) {
        struct merge merge;
        if (!split_merge(&merge, spec->merge[i], spec->merge_length[i])) return i;
        int32_t left = string_table_find(names, merge.left, merge.left_length);
        int32_t right = string_table_find(names, merge.right, merge.right_length);
        result = result_of(&merge, &tokenizer->vocabulary, result + 1, joined);
        if (left < 0 || right < 0 || result < 0) return i;
        pair_table_put(&tokenizer->bpe.merges, (uint32_t)left, (uint32_t)right, (uint32_t)i,
                       result);
    }
    return -1;
}

enum status bpe_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                     struct err *err) {
    enum status status = pretokenizer_init(&tokenizer->bpe.pretokenizer, spec->pre, err);
    if (status != STATUS_OK) return status;
    tokenizer->bpe.whole = mem_calloc((size_t)spec->n_tokens, sizeof *tokenizer->bpe.whole);
    pair_table_init(&tokenizer->bpe.merges, (size_t)spec->n_merges);
    struct buf joined = {0};
    int bad = add_merges(tokenizer, spec, &joined);
    buf_free(&joined);
    return bad < 0 ? STATUS_OK : bad_merge(bad, spec->merge[bad], spec->merge_length[bad], err);
}

void bpe_free(struct tokenizer *tokenizer) {
    pretokenizer_free(&tokenizer->bpe.pretokenizer);
    free(tokenizer->bpe.merges.pair);
    free((void *)tokenizer->bpe.whole);
}

/* ---- short pieces: a row of symbols, searched anew for each merge --------------------------- */

#define SHORT_PIECE 40 /* bytes up to which the search costs less than a heap */

struct row {
    uint32_t rank[SHORT_PIECE]; /* of the merge of symbol i and i + 1; UINT32_MAX: none */
    int32_t merged[SHORT_PIECE];
    int32_t id[SHORT_PIECE];
    int n;
};

static void row_rank(const struct tokenizer *tokenizer, struct row *row, int i) {
    const struct pair *pair = NULL;
    if (i + 1 < row->n) {
        pair =
            pair_table_find(&tokenizer->bpe.merges, (uint32_t)row->id[i], (uint32_t)row->id[i + 1]);
    }
    row->rank[i] = pair ? pair->rank : UINT32_MAX;
    row->merged[i] = pair ? pair->value : -1;
}

static int row_best(const struct row *row) {
    int best = 0;
    for (int i = 1; i < row->n; i++) {
        if (row->rank[i] < row->rank[best]) best = i;
    }
    return best;
}

static void row_join(const struct tokenizer *tokenizer, struct row *row, int i) {
    row->id[i] = row->merged[i];
    row->n--;
    size_t after = (size_t)(row->n - i - 1);
    memmove(&row->id[i + 1], &row->id[i + 2], after * sizeof row->id[0]);
    memmove(&row->rank[i + 1], &row->rank[i + 2], after * sizeof row->rank[0]);
    memmove(&row->merged[i + 1], &row->merged[i + 2], after * sizeof row->merged[0]);
    row_rank(tokenizer, row, i);
    if (i > 0) row_rank(tokenizer, row, i - 1);
}

static bool encode_short(struct encoder *encoder, const char *text, size_t length) {
    const struct tokenizer *tokenizer = encoder->tokenizer;
    struct row row = {.n = 0};
    for (size_t i = 0; i < length; i++) {
        int32_t id = tokenizer->vocabulary.byte_id[(uint8_t)text[i]];
        if (id >= 0) row.id[row.n++] = id;
    }
    for (int i = 0; i < row.n; i++) row_rank(tokenizer, &row, i);
    while (row.n > 1) {
        int best = row_best(&row);
        if (row.rank[best] == UINT32_MAX) break;
        row_join(tokenizer, &row, best);
    }
    for (int i = 0; i < row.n; i++) {
        if (!encoder_push(encoder, row.id[i])) return false;
    }
    return true;
}

/* ---- long pieces ---------------------------------------------------------------------------- */

/* A byte for which the model has no token leaves no trace, as in the models' own tokenizers. */
static size_t link_bytes(const struct tokenizer *tokenizer, struct symbol *symbol, const char *text,
                         size_t length) {
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        int32_t id = tokenizer->vocabulary.byte_id[(uint8_t)text[i]];
        if (id < 0) continue;
        symbol[n] = (struct symbol){.id = id,
                                    .start = (uint32_t)i,
                                    .length = 1,
                                    .next = (int32_t)n + 1,
                                    .previous = (int32_t)n - 1};
        n++;
    }
    if (n > 0) symbol[n - 1].next = -1;
    return n;
}

static bool encode_long(struct encoder *encoder, const char *text, size_t length) {
    if (!encoder_may_fit(encoder, text, length)) return false;
    struct symbol *symbol = merge_symbols(&encoder->memory, length);
    size_t n = link_bytes(encoder->tokenizer, symbol, text, length);
    merge_run(encoder->tokenizer, &encoder->memory, text, n);
    for (int32_t at = n > 0 ? 0 : -1; at >= 0; at = symbol[at].next) {
        if (!encoder_push(encoder, symbol[at].id)) return false;
    }
    return true;
}

/* ---- pieces --------------------------------------------------------------------------------- */

static bool encode_merged(struct encoder *encoder, const char *text, size_t length) {
    return length <= SHORT_PIECE ? encode_short(encoder, text, length)
                                 : encode_long(encoder, text, length);
}

/* Merges a piece whose text is that of token `id` and notes what came of it. */
static bool encode_and_note(struct encoder *encoder, int32_t id, const char *text, size_t length) {
    int before = encoder->n;
    if (!encode_merged(encoder, text, length)) return false;
    bool same = encoder->n == before + 1 && encoder->id[before] == id;
    atomic_store_explicit(&encoder->tokenizer->bpe.whole[id], same ? WHOLE_YES : WHOLE_NO,
                          memory_order_relaxed);
    return true;
}

static bool encode_piece(void *context, const char *text, size_t length) {
    struct encoder *encoder = context;
    const struct tokenizer *tokenizer = encoder->tokenizer;
    int32_t id = -1;
    if (length <= tokenizer->vocabulary.longest) {
        id = string_table_find(&tokenizer->vocabulary.by_raw, text, length);
    }
    if (id < 0) return encode_merged(encoder, text, length);
    if (tokenizer->bpe.pretokenizer.ignore_merges) return encoder_push(encoder, id);
    switch (atomic_load_explicit(&tokenizer->bpe.whole[id], memory_order_relaxed)) {
    case WHOLE_YES:
        return encoder_push(encoder, id);
    case WHOLE_NO:
        return encode_merged(encoder, text, length);
    default:
        return encode_and_note(encoder, id, text, length);
    }
}

bool bpe_encode(struct encoder *encoder, const char *text, size_t length) {
    const struct pretokenizer *pretokenizer = &encoder->tokenizer->bpe.pretokenizer;
    if (pretokenizer->nfc && normalize_needed(text, length)) {
        buf_clear(&encoder->text);
        normalize_nfc(text, length, &encoder->text);
        text = encoder->text.data;
        length = encoder->text.length;
    }
    return pretokenizer_split(pretokenizer, text, length,
                              (struct piece_sink){encode_piece, encoder});
}
