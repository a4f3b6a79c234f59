/* Byte-level BPE: each piece starts as its bytes, which are merged by rank.
 *
 * DESIGN
 *   Most pieces are one token, and a look-up is far faster than merging. But merging does not
 *   always produce the token with the piece's bytes. Whether it does is computed once per token
 *   and cached in `whole`. All threads compute the same answer, so the cache uses relaxed atomics.
 *   The rest of a tokenizer does not change after tokenizer_new.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* ---- building ------------------------------------------------------------------------------- */

struct merge {
    const char *left, *right;
    size_t left_length, right_length;
};

/* Returns the token that a merge makes, or -1. Most vocabularies number their tokens in the order
 * of the merges. So `guess`, the token after the last merge's, is usually right and saves a
 * look-up. These look-ups would dominate the start-up time. */
static int32_t result_of(const struct merge *merge, const struct token_vocabulary *vocabulary,
                         int32_t guess, struct buf *joined) {
    if (guess < vocabulary->n) {
        size_t length, n_left = merge->left_length, n_right = merge->right_length;
        const char *name = strings_get(&vocabulary->name, guess, &length);
        if (length == n_left + n_right && memcmp(name, merge->left, n_left) == 0 &&
            memcmp(name + n_left, merge->right, n_right) == 0)
            return guess;
    }
    buf_clear(joined);
    buf_add(joined, merge->left, merge->left_length);
    buf_add(joined, merge->right, merge->right_length);
    return string_table_find(&vocabulary->by_name, joined->data, joined->length);
}

/* Adds all merges. Returns the index of the first bad one, or -1. */
static int add_merges(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                      struct buf *joined) {
    const struct string_table *names = &tokenizer->vocabulary.by_name;
    int32_t result = -1;
    for (int i = 0; i < spec->n_merges; i++) {
        const char *text = spec->merge[i];
        size_t length = spec->merge_length[i];
        const char *space = length > 1 ? memchr(text + 1, ' ', length - 1) : NULL;
        if (spec->merge_right) space = text + spec->merge_right[i] - 1;
        if (!space) return i;
        size_t n_left = (size_t)(space - text);
        struct merge merge = {text, space + 1, n_left, length - n_left - 1};
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
    tokenizer->bpe.whole = mem_calloc((size_t)spec->n_tokens, sizeof *tokenizer->bpe.whole);
    pair_table_init(&tokenizer->bpe.merges, (size_t)spec->n_merges);
    struct buf joined = {0};
    int bad = add_merges(tokenizer, spec, &joined);
    buf_free(&joined);
    if (bad < 0) return STATUS_OK;
    uint32_t length = spec->merge_length[bad];
    return err_set(err, STATUS_BAD_FILE, spec->keys->merges,
                   "merge %d, '%.*s', does not join two tokens to a third", bad,
                   (int)(length > 100 ? 100 : length), spec->merge[bad]);
}

/* ---- short pieces: a row of symbols, searched completely for each merge --------------------- */

#define SHORT_PIECE 40 /* bytes up to which this search costs less than a heap */

struct short_piece {
    /* of the merge of symbols i and i + 1; UINT32_MAX: they do not merge */
    uint32_t rank[SHORT_PIECE];
    int32_t merged[SHORT_PIECE];
    int32_t id[SHORT_PIECE];
    int n;
};

static void row_rank(const struct tokenizer *tokenizer, struct short_piece *row, int i) {
    const struct pair_entry *pair = NULL;
    if (i + 1 < row->n) {
        pair =
            pair_table_find(&tokenizer->bpe.merges, (uint32_t)row->id[i], (uint32_t)row->id[i + 1]);
    }
    row->rank[i] = pair ? pair->rank : UINT32_MAX;
    row->merged[i] = pair ? pair->value : -1;
}

static void row_join(const struct tokenizer *tokenizer, struct short_piece *row, int i) {
    assert(i + 1 < row->n && row->merged[i] >= 0);
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
    struct short_piece row = {.n = 0};
    assert(length <= SHORT_PIECE);
    for (size_t i = 0; i < length; i++) {
        int32_t id = tokenizer->vocabulary.byte_id[(uint8_t)text[i]];
        if (id >= 0) row.id[row.n++] = id;
    }
    for (int i = 0; i < row.n; i++) row_rank(tokenizer, &row, i);
    while (row.n > 1) {
        int best = 0;
        for (int i = 1; i < row.n; i++) {
            if (row.rank[i] < row.rank[best]) best = i;
        }
        if (row.rank[best] == UINT32_MAX) break;
        row_join(tokenizer, &row, best);
    }
    for (int i = 0; i < row.n; i++) {
        if (!encoder_push(encoder, row.id[i])) return false;
    }
    return true;
}

/* ---- long pieces ---------------------------------------------------------------------------- */

/* Makes a symbol of each byte. Bytes without a token are dropped, like in the models'
 * tokenizers. */
size_t link_bytes(const struct tokenizer *tokenizer, struct symbol *symbol, const char *text,
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
    assert(n <= length);
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

/* Encodes one piece: by look-up if merging is known to produce its token. */
bool bpe_encode_piece(void *context, const char *text, size_t length) {
    struct encoder *encoder = context;
    const struct tokenizer *tokenizer = encoder->tokenizer;
    int32_t id = -1;
    if (length <= tokenizer->vocabulary.longest) {
        id = string_table_find(&tokenizer->vocabulary.by_text, text, length);
    }
    if (id < 0) return encode_merged(encoder, text, length);
    if (tokenizer->ignore_merges) return encoder_push(encoder, id);
    uint8_t whole = atomic_load_explicit(&tokenizer->bpe.whole[id], memory_order_relaxed);
    if (whole == WHOLE_YES) return encoder_push(encoder, id);
    int before = encoder->n;
    if (!encode_merged(encoder, text, length)) return false;
    bool same = encoder->n == before + 1 && encoder->id[before] == id;
    assert(whole == WHOLE_UNKNOWN || !same);
    if (whole == WHOLE_UNKNOWN) {
        atomic_store_explicit(&tokenizer->bpe.whole[id], same ? WHOLE_YES : WHOLE_NO,
                              memory_order_relaxed);
    }
    return true;
}
