/* Drafts from texts that have ended: the access to texts, the votes, and the contents of the
 * ring. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/draft/draft.h"
#include "support/suite_main.h"

enum { MOST = 400000 };

static const struct lookup_config config = {.min_match = 2, .max_match = MAX_DRAFT_MATCH};
static const uint64_t salts[2][2] = {{0, 0}, {5, 7}};
static struct suffix *suffix;
static struct drafter drafter;

static void begin(void) {
    suffix = suffix_new(&config);
    drafter = drafter_suffix(suffix);
}

static void end(void) {
    suffix_free(suffix);
}

/* Ends a text with a prompt of n_prompt tokens. */
static void end_text(const int32_t *tokens, int n, int n_prompt, int salt) {
    const struct draft_context context = {
        .tokens = (int32_t *)tokens, .n = n, .max_tokens = n, .salt = salts[salt]};
    drafter.finished(drafter.self, &context, n_prompt);
}

/* Writes the drafts for a sequence with these tokens to `out`. Returns their number, and their
 * match in *match. */
static int draft(const int32_t *tokens, int n, int salt, int most, int32_t *out, int *match) {
    int32_t text[64];
    void *state = mem_calloc(1, drafter.state_bytes(drafter.self, 64));
    memcpy(text, tokens, (size_t)n * sizeof *text);
    const struct draft_context context = {
        .state = state, .tokens = text, .n = n, .max_tokens = 64, .salt = salts[salt]};
    struct draft got = drafter.propose(drafter.self, &context, most);
    memcpy(out, text + n, (size_t)got.n * sizeof *out);
    *match = got.match;
    free(state);
    return got.n;
}
#define TEXT(...)                                                                                  \
    (const int32_t[]){__VA_ARGS__}, (int)(sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t))

START_TEST(a_text_that_has_ended_is_found) {
    int32_t out[MAX_DRAFTS];
    int match;
    ck_assert_int_eq(draft(TEXT(1, 2), 0, 5, out, &match), 0);
    end_text(TEXT(9, 1, 2, 3, 4), 1, 0);
    ck_assert_int_eq(draft(TEXT(1, 2), 0, 5, out, &match), 2); /* the text ends there */
    ck_assert(out[0] == 3 && out[1] == 4 && match == 2);
    /* at most as many as requested */
    ck_assert_int_eq(draft(TEXT(8, 9, 1, 2), 0, 1, out, &match), 1);
    ck_assert_int_eq(match, 3); /* the end of the prompt is compared, too */
    ck_assert_int_eq(draft(TEXT(1, 2), 1, 5, out, &match), 0); /* not with another salt */
    end_text(TEXT(9, 1, 2, 7), 1, 1);
    ck_assert_int_eq(draft(TEXT(1, 2), 1, 5, out, &match), 1);
    ck_assert_int_eq(out[0], 7);
    /* the text ends after these tokens */
    ck_assert_int_eq(draft(TEXT(3, 4), 0, 5, out, &match), 0);
    ck_assert_int_eq(draft(TEXT(2), 0, 5, out, &match), 0); /* shorter than the minimum match */
}
END_TEST

START_TEST(places_vote) {
    int32_t out[MAX_DRAFTS];
    int match;
    end_text(TEXT(1, 2, 3, 4, 4), 0, 0);
    end_text(TEXT(1, 2, 5, 6, 6), 0, 0);
    end_text(TEXT(1, 2, 3, 7, 7), 0, 0);
    end_text(TEXT(1, 2, 8, 6, 6), 0, 0);
    ck_assert_int_eq(draft(TEXT(1, 2), 0, 3, out, &match), 3);
    ck_assert(out[0] == 3 && out[1] == 7 && out[2] == 7); /* two of four, then the later one */
    end_text(TEXT(0, 1, 2, 5, 9), 0, 0);
    ck_assert_int_eq(draft(TEXT(0, 1, 2), 0, 3, out, &match), 2); /* only the longer match counts */
    ck_assert(out[0] == 5 && out[1] == 9 && match == 3);
}
END_TEST

START_TEST(only_the_longest_matches_vote) {
    int32_t out[MAX_DRAFTS];
    int match;
    end_text(TEXT(0, 1, 2, 5, 9), 0, 0);
    end_text(TEXT(7, 1, 2, 3, 3), 0, 0); /* these are more recent and more frequent */
    end_text(TEXT(7, 1, 2, 3, 3), 0, 0);
    ck_assert_int_eq(draft(TEXT(0, 1, 2), 0, 3, out, &match), 2);
    ck_assert(out[0] == 5 && out[1] == 9 && match == 3);
}
END_TEST

START_TEST(texts_that_end_have_no_vote) {
    int32_t out[MAX_DRAFTS];
    int match;
    end_text(TEXT(8, 1, 2, 3, 4), 0, 0);
    end_text(TEXT(9, 1, 2), 0, 0);
    end_text(TEXT(9, 1, 2), 0, 0);
    ck_assert_int_eq(draft(TEXT(1, 2), 0, 3, out, &match), 2);
    ck_assert(out[0] == 3 && out[1] == 4);
}
END_TEST

/* A text that was overwritten by the same one, at the same place of the ring, does not vote. */
START_TEST(overwritten_text_does_not_count) {
    enum { RING = 1 << 17, FILLER = 1020, TEXT_TOKENS = 4 };
    int32_t out[MAX_DRAFTS], text[FILLER];
    int match, next = 100, left = RING - TEXT_TOKENS;
    end_text(TEXT(1, 2, 3), 0, 0);
    while (left > 0) {
        int n = left > FILLER ? FILLER : left - 1; /* plus a gap */
        for (int i = 0; i < n; i++) text[i] = next++;
        end_text(text, n, 0, 0);
        left -= n + 1;
    }
    ck_assert_int_eq(left, 0);
    end_text(TEXT(1, 2, 3), 0, 0);
    end_text(TEXT(1, 2, 5), 0, 0);
    ck_assert_int_eq(draft(TEXT(1, 2), 0, 1, out, &match), 1);
    ck_assert_int_eq(out[0], 5);
}
END_TEST

START_TEST(own_text_is_preferred) {
    int32_t out[MAX_DRAFTS];
    int match;
    end_text(TEXT(1, 2, 3), 0, 0);
    ck_assert_int_gt(draft(TEXT(1, 2, 4, 1, 2), 0, 1, out, &match), 0);
    ck_assert_int_eq(out[0], 4);
    end_text(TEXT(4, 1, 2, 3), 0, 0); /* unless the match of the other text is longer */
    ck_assert_int_eq(draft(TEXT(1, 2, 4, 1, 2), 0, 1, out, &match), 1);
    ck_assert(out[0] == 3 && match == 3);
}
END_TEST

/* The ring is overwritten several times: old texts are gone, new ones are found, and no text is
 * found in part. */
START_TEST(old_texts_are_forgotten) {
    int32_t out[MAX_DRAFTS], text[100];
    int match, n_found = 0;
    for (int t = 0; t < MOST / 100; t++) {
        for (int i = 0; i < 100; i++) text[i] = t * 100 + i;
        end_text(text, 100, 0, t % 2);
    }
    for (int t = 0; t < MOST / 100; t++) {
        for (int i = 0; i < 100; i++) text[i] = t * 100 + i;
        int n = draft(text + 20, 20, t % 2, 8, out, &match);
        if (n_found > 0) ck_assert_int_eq(n, 8);
        n_found += n > 0;
        for (int i = 0; i < n; i++) ck_assert_int_eq(out[i], t * 100 + 40 + i);
    }
    ck_assert_int_gt(n_found, 1000);
    ck_assert_int_lt(n_found, 1400);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_suffix");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, begin, end);
    tcase_add_test(core, a_text_that_has_ended_is_found);
    tcase_add_test(core, places_vote);
    tcase_add_test(core, only_the_longest_matches_vote);
    tcase_add_test(core, texts_that_end_have_no_vote);
    tcase_add_test(core, overwritten_text_does_not_count);
    tcase_add_test(core, own_text_is_preferred);
    tcase_add_test(core, old_texts_are_forgotten);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
