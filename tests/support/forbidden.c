#include "support/forbidden.h"

#include <stdlib.h>

#include "support/kernel_data.h"

void draw_allowed(uint64_t *state, uint32_t *allowed, int V, int percent) {
    for (int i = 0; i < (V + 31) / 32; i++) {
        allowed[i] = 0;
        for (int bit = 0; bit < 32; bit++)
            allowed[i] |= (uint32_t)(random_below(state, 100) < percent) << bit;
    }
    int32_t one = random_below(state, V);
    allowed[one / 32] |= (uint32_t)1 << one % 32;
}

static int by_newest(const void *a, const void *b) {
    int32_t x = ((const struct bad_word *)a)->before[0],
            y = ((const struct bad_word *)b)->before[0];
    return (x > y) - (x < y);
}

void draw_bad_words(uint64_t *state, struct bad_word *words, int n, int V, const int32_t *output,
                    int n_output) {
    for (int i = 0; i < n; i++) {
        struct bad_word *word = &words[i];
        int most = 1 + random_below(state, MAX_BAD_WORD_TOKENS - 1);
        int back = n_output > 0 && random_below(state, 2) ? random_below(state, n_output) : 0;
        *word = (struct bad_word){.last = random_below(state, V), .n_before = most};
        for (int j = 0; j < most; j++) {
            int at = n_output - 1 - back - j;
            word->before[j] = at >= 0 ? output[at] : random_below(state, V);
        }
        if (random_below(state, 4) == 0)
            word->before[random_below(state, most)] = random_below(state, V);
    }
    qsort(words, (size_t)n, sizeof *words, by_newest);
}
