/* Two texts as one prompt, for models that compare them. */
#include <assert.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* A file without a rule for pairs: the tokens around one text, and nothing between. */
static void usual_form(const struct tokenizer *tokenizer, struct pair_form *form) {
    *form = (struct pair_form){.n_before = tokenizer->n_before, .n_after = tokenizer->n_after};
    memcpy(form->before, tokenizer->before, sizeof form->before);
    memcpy(form->after, tokenizer->after, sizeof form->after);
}

static void append(int32_t *out, int *n, const int32_t *ids, int n_ids) {
    if (n_ids > 0) memcpy(out + *n, ids, (size_t)n_ids * sizeof *ids);
    *n += n_ids;
}

int tokenizer_encode_pair(const struct tokenizer *tokenizer, struct span first, struct span second,
                          int limit, int32_t **ids, int *n_first) {
    struct pair_form form = tokenizer->pair;
    int32_t *a, *b = NULL;
    *ids = NULL;
    if (!form.is_set) usual_form(tokenizer, &form);
    int n_around = form.n_before + form.n_between + form.n_after;
    int n_a = tokenizer_encode(tokenizer, first.data, first.length, SPECIAL_AS_TEXT, false,
                               limit - n_around, &a);
    int n_b = n_a < 0 ? -1
                      : tokenizer_encode(tokenizer, second.data, second.length, SPECIAL_AS_TEXT,
                                         false, limit - n_around - n_a, &b);
    int n = 0;
    if (n_b >= 0) {
        int32_t *out = mem_alloc((size_t)(n_around + n_a + n_b + 1) * sizeof *out);
        append(out, &n, form.before, form.n_before);
        append(out, &n, a, n_a);
        append(out, &n, form.between, form.n_between);
        append(out, &n, b, n_b);
        append(out, &n, form.after, form.n_after);
        assert(n <= limit && form.n_between_first <= form.n_between);
        *n_first = form.has_types ? form.n_before + n_a + form.n_between_first : n;
        *ids = out;
    }
    mem_free(a);
    mem_free(b);
    return n_b < 0 ? -1 : n;
}
