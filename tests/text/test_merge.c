/* Merging, compared with an oracle that searches all pairs again for each merge. Also the two
 * methods of byte-level BPE, compared with each other: a row of symbols for short pieces, a heap
 * for long ones. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"
#include "support/suite_main.h"
#include "support/tokenizer_fixture.h"

/* Some merges need the result of another one, such as "ab c". "aa a" and "a aa" compete. */
static const char *const tokens[] = {"a",   "b",   "c",   "d",   "ab", "aa",
                                     "aaa", "bab", "abc", "aab", "dd", "dddd"};
static const char *const merges[] = {"a a", "a b", "aa a", "b ab", "ab c", "a ab", "d d", "dd dd"};
#define N_TOKENS ((int)(sizeof tokens / sizeof *tokens))
#define N_MERGES ((int)(sizeof merges / sizeof *merges))

static struct tokenizer *tokenizer_of(enum tokenizer_kind kind, const double *scores) {
    uint32_t token_length[N_TOKENS], merge_length[N_MERGES];
    for (int i = 0; i < N_TOKENS; i++) token_length[i] = (uint32_t)strlen(tokens[i]);
    for (int i = 0; i < N_MERGES; i++) merge_length[i] = (uint32_t)strlen(merges[i]);
    struct tokenizer_spec spec = {.kind = kind,
                                  .n_tokens = N_TOKENS,
                                  .token = tokens,
                                  .token_length = token_length,
                                  .score = scores,
                                  .bos = -1,
                                  .eos = -1,
                                  .unknown = -1};
    if (kind == TOKENIZER_BYTE_BPE) {
        spec.n_merges = N_MERGES;
        spec.merge = merges;
        spec.merge_length = merge_length;
    }
    struct tokenizer *tokenizer;
    struct err err = {0};
    enum status status = tokenizer_new(&tokenizer, &spec, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    return tokenizer;
}

/* Returns the rank of a pair of adjacent runs by definition, or -1; *id is the token of both. */
static int rank_of(const struct tokenizer *tokenizer, const char *text, size_t start, size_t middle,
                   size_t end, const double *scores, int32_t *id) {
    char joined[8], merge[8];
    if (end - start > 6) return -1;
    memcpy(joined, text + start, end - start);
    joined[end - start] = 0;
    *id = tokenizer_find(tokenizer, joined, end - start);
    if (*id < 0) return -1;
    if (scores) { /* number of tokens with a better score */
        int rank = 0;
        for (int i = 0; i < N_TOKENS; i++) rank += scores[i] > scores[*id];
        return rank;
    }
    memcpy(merge, text + start, middle - start);
    merge[middle - start] = ' ';
    memcpy(merge + (middle - start) + 1, text + middle, end - middle);
    merge[end - start + 1] = 0;
    for (int i = 0; i < N_MERGES; i++) {
        if (strcmp(merges[i], merge) == 0) return i;
    }
    return -1;
}

/* Merges by definition: the best pair first, on a tie the leftmost. Returns the number of ids. */
static int merge_slowly(const struct tokenizer *tokenizer, const char *text, int n,
                        const double *scores, int32_t *ids) {
    size_t at[64];
    for (int i = 0; i <= n; i++) at[i] = (size_t)i;
    for (;;) {
        int best = -1, best_rank = 0;
        for (int i = 0; i + 2 <= n; i++) {
            int32_t id;
            int rank = rank_of(tokenizer, text, at[i], at[i + 1], at[i + 2], scores, &id);
            if (rank >= 0 && (best < 0 || rank < best_rank)) {
                best = i;
                best_rank = rank;
            }
        }
        if (best < 0) break;
        memmove(&at[best + 1], &at[best + 2], (size_t)(n - best - 1) * sizeof *at);
        n--;
    }
    for (int i = 0; i < n; i++) {
        ids[i] = tokenizer_find(tokenizer, text + at[i], at[i + 1] - at[i]);
    }
    return n;
}

/* Merges with merge_run. */
static int merge_fast(const struct tokenizer *tokenizer, const char *text, int n, int32_t *ids) {
    struct merge_memory memory = {0};
    struct symbol *symbol = merge_symbols(&memory, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        symbol[i] = (struct symbol){.id = tokenizer_find(tokenizer, text + i, 1),
                                    .start = (uint32_t)i,
                                    .length = 1,
                                    .next = i + 1 < n ? i + 1 : -1,
                                    .previous = i - 1};
    }
    merge_run(tokenizer, &memory, text, (size_t)n);
    int n_ids = 0;
    for (int32_t i = 0; i >= 0; i = symbol[i].next) ids[n_ids++] = symbol[i].id;
    merge_memory_free(&memory);
    return n_ids;
}

static void check_random_texts(const struct tokenizer *tokenizer, const double *scores) {
    uint64_t seed = 5;
    for (int round = 0; round < 3000; round++) {
        char text[40];
        int32_t wanted[40], ids[40];
        int n = 1 + (int)(fixture_random(&seed) % 39);
        for (int i = 0; i < n; i++) text[i] = "aaabbcdd"[fixture_random(&seed) % 8];
        int n_wanted = merge_slowly(tokenizer, text, n, scores, wanted);
        int n_ids = merge_fast(tokenizer, text, n, ids);
        ck_assert_msg(n_ids == n_wanted, "%.*s: %d ids, not %d", n, text, n_ids, n_wanted);
        ck_assert_mem_eq(ids, wanted, (size_t)n_ids * sizeof *ids);
    }
}

START_TEST(merges_by_rank_as_the_definition_does) {
    struct tokenizer *tokenizer = tokenizer_of(TOKENIZER_BYTE_BPE, NULL);
    check_random_texts(tokenizer, NULL);
    tokenizer_free(tokenizer);
}
END_TEST

/* Positive, zero and negative scores, and two equal ones. */
START_TEST(merges_by_score_as_the_definition_does) {
    static const double scores[N_TOKENS] = {0, 0, 0, 0, 1.5, -1, -0.5, 2, 0.25, 2, -3, 0};
    struct tokenizer *tokenizer = tokenizer_of(TOKENIZER_SENTENCEPIECE, scores);
    check_random_texts(tokenizer, scores);
    tokenizer_free(tokenizer);
}
END_TEST

/* Pieces up to and above the length at which byte-level BPE changes its method. The ids are the
 * same after the tokenizer has recorded which tokens merge to themselves. */
START_TEST(short_and_long_pieces_merge_alike) {
    struct tokenizer *tokenizer = tokenizer_of(TOKENIZER_BYTE_BPE, NULL);
    uint64_t seed = 9;
    for (int round = 0; round < 600; round++) {
        char text[60];
        int32_t wanted[60], *ids;
        int n = 1 + round / 10;
        for (int i = 0; i < n; i++) text[i] = "aaabbcdd"[fixture_random(&seed) % 8];
        int n_wanted = merge_slowly(tokenizer, text, n, NULL, wanted);
        int n_ids = tokenizer_encode(tokenizer, text, (size_t)n, SPECIAL_AS_TEXT, false, 60, &ids);
        ck_assert_int_eq(n_ids, n_wanted);
        ck_assert_mem_eq(ids, wanted, (size_t)n_ids * sizeof *ids);
        free(ids);
    }
    tokenizer_free(tokenizer);
}
END_TEST

/* Characters without a token, in a vocabulary without byte tokens: one unknown token per run. */
START_TEST(a_run_of_unknown_characters_is_one_token) {
    static const double scores[N_TOKENS] = {0};
    struct tokenizer *tokenizer = tokenizer_of(TOKENIZER_SENTENCEPIECE, scores);
    const int32_t a = tokenizer_find(tokenizer, "a", 1), c = tokenizer_find(tokenizer, "c", 1);
    const int32_t wanted[] = {c, a, c, a};
    int32_t *ids;
    tokenizer->unknown = c;
    ck_assert_int_eq(tokenizer_encode(tokenizer, "xyzaxa", 6, SPECIAL_AS_TEXT, false, 9, &ids), 4);
    ck_assert_mem_eq(ids, wanted, sizeof wanted);
    free(ids);
    tokenizer_free(tokenizer);
}
END_TEST

/* "aab" is a token, but "a a" ranks before "a ab", so merging results in "aa" and "b". "abc" merges
 * to itself. */
START_TEST(a_token_need_not_merge_to_itself) {
    struct tokenizer *tokenizer = tokenizer_of(TOKENIZER_BYTE_BPE, NULL);
    for (int again = 0; again < 3; again++) {
        int32_t *ids;
        ck_assert_int_eq(tokenizer_encode(tokenizer, "aab", 3, SPECIAL_AS_TEXT, false, 9, &ids), 2);
        ck_assert_int_eq(ids[0], tokenizer_find(tokenizer, "aa", 2));
        free(ids);
        ck_assert_int_eq(tokenizer_encode(tokenizer, "abc", 3, SPECIAL_AS_TEXT, false, 9, &ids), 1);
        free(ids);
    }
    tokenizer_free(tokenizer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_merge");
    TCase *tests = tcase_create("merges");
    tcase_add_test(tests, merges_by_rank_as_the_definition_does);
    tcase_add_test(tests, merges_by_score_as_the_definition_does);
    tcase_add_test(tests, short_and_long_pieces_merge_alike);
    tcase_add_test(tests, a_run_of_unknown_characters_is_one_token);
    tcase_add_test(tests, a_token_need_not_merge_to_itself);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
