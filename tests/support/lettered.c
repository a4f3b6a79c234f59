#include "support/lettered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fake_engine.h"

enum { LETTERS = 4, MOST_TEXTS = 6, MOST_LENGTH = 40 };

/* Writes text i: 4 texts have length 1, the next 16 have length 2, and so on. */
static int spell(int i, char *out) {
    int length = 1, of_length = LETTERS;
    for (; i >= of_length; length++, of_length *= LETTERS) i -= of_length;
    for (int at = length - 1; at >= 0; at--, i /= LETTERS) out[at] = (char)('a' + i % LETTERS);
    return length;
}

struct vocabulary *lettered_vocabulary(int V) {
    char(*text)[16] = mem_calloc((size_t)V, sizeof *text);
    const char **bytes = mem_calloc((size_t)V, sizeof *bytes);
    int *lengths = mem_calloc((size_t)V, sizeof *lengths);
    for (int i = 0; i < V; i++) {
        bytes[i] = text[i];
        lengths[i] = i < V - 2 ? spell(i, text[i]) : 0;
    }
    struct vocabulary *vocabulary = vocabulary_new(bytes, lengths, V);
    free(text);
    free(bytes);
    free(lengths);
    return vocabulary;
}

static const char *text_of(const void *vocabulary, int32_t id, size_t *length) {
    return vocabulary_text(vocabulary, id, length);
}

struct thought_limit draw_thoughts(uint64_t *random, const struct vocabulary *vocabulary, int V) {
    static const char *const begins[] = {"a", "ab", "d"}, *const ends[] = {"c", "cd", "bad"};
    static const int32_t ids[] = {5, 2, 7, 7, 0, 9, 1, 3, 13, 4, 8, 2, 6, 14, 1};
    assert(V >= 16);
    return (struct thought_limit){.is_set = true,
                                  .is_open = fake_between(random, 0, 2) > 0,
                                  .is_behind = fake_between(random, 0, 9) == 0,
                                  .may_return = fake_between(random, 0, 1),
                                  .max_tokens = fake_between(random, 0, 12),
                                  .begin = begins[fake_between(random, 0, 2)],
                                  .end = ends[fake_between(random, 0, 2)],
                                  .forced = ids + fake_between(random, 0, 10),
                                  .n_forced = fake_between(random, 1, 5),
                                  .text_of = text_of,
                                  .texts = vocabulary};
}

/* Half of the texts have the same beginning as the text before them. */
static void draw_texts(uint64_t *random, struct buf *out) {
    char text[MOST_LENGTH + 1] = "";
    int n = fake_between(random, 1, MOST_TEXTS);
    buf_puts(out, "[");
    for (int i = 0; i < n; i++) {
        int length = fake_between(random, 1, MOST_LENGTH), kept = (int)strlen(text);
        kept = fake_between(random, 0, 1) ? fake_between(random, 0, kept) : 0;
        if (kept > length) kept = length;
        for (int at = kept; at < length; at++)
            text[at] = (char)('a' + fake_between(random, 0, LETTERS - 1));
        text[length] = 0;
        buf_printf(out, "%s\"%s\"", i > 0 ? "," : "", text);
    }
    buf_puts(out, "]");
}

struct grammar *draw_grammar(uint64_t *random) {
    static const char *const patterns[] = {
        "[ab]+c",    "(ab|cd)*d?",           "[a-d]{1,30}", "a[a-d]*",    "[a-d]{7}",
        "(a|b|ab)+", "((ab)*c|(ba)*d){2,9}", "[abd]*c[ad]", "(a{3}b){4}", "[^b]+(b[^b]){0,3}",
    };
    struct buf text = {0};
    struct grammar *grammar;
    struct err err = {0};
    bool choice = fake_between(random, 0, 1);
    if (choice)
        draw_texts(random, &text);
    else
        buf_puts(&text, patterns[fake_between(random, 0, 9)]);
    enum status status = grammar_compile(choice ? GRAMMAR_CHOICE : GRAMMAR_REGEX, text.data,
                                         text.length, NULL, &grammar, &err);
    if (status) {
        fprintf(stderr, "%s: %s\n", text.data, err.message);
        abort();
    }
    buf_free(&text);
    return grammar;
}
