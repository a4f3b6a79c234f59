/* Encoding and decoding. The first byte selects the vocabulary and the rule for special tokens, the
 * rest is the text. For any text the ids are in range, their bytes are the text, and a stream of
 * them decodes to the same text as the whole. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "support/tokenizer_fixture.h"

#define N_VOCABULARIES 6

/* Vocabularies whose tokens cover all bytes and whose text is not normalised, so that decoding
 * returns the same text. */
static const char *const names[N_VOCABULARIES] = {"gpt-2",        "llama-bpe", "gpt-4o",
                                                  "deepseek-llm", "llama",     "gemma"};

static const struct tokenizer *vocabulary(int i) {
    static struct tokenizer *tokenizer[N_VOCABULARIES];
    if (!tokenizer[i]) tokenizer[i] = fixture_tokenizer(names[i]);
    return tokenizer[i];
}

/* SentencePiece writes U+2581 and the space the same way, and adds one at the start and after
 * special tokens. */
static bool same_text(const char *name, const struct buf *back, const char *text, size_t size) {
    if (strcmp(name, "llama") == 0 || strcmp(name, "gemma") == 0) return true;
    return back->length == size && memcmp(back->data, text, size) == 0;
}

static void check_bytes(const char *name, const struct tokenizer *tokenizer, const int32_t *ids,
                        int n, const char *text, size_t size) {
    struct buf back = {0};
    buf_add(&back, "", 0);
    for (int i = 0; i < n; i++) {
        size_t length;
        assert(ids[i] >= 0 && ids[i] < tokenizer_size(tokenizer));
        const char *bytes = tokenizer_token_bytes(tokenizer, ids[i], &length);
        buf_add(&back, bytes, length);
    }
    assert(same_text(name, &back, text, size));
    buf_free(&back);
}

static void check_stream(const struct tokenizer *tokenizer, const int32_t *ids, int n) {
    struct detokenizer detokenizer = {.tokenizer = tokenizer};
    struct buf whole = {0}, out = {0};
    for (int i = 0; i < n; i++) {
        detokenizer_add(&detokenizer, ids[i], &out);
        assert(detokenizer.n_held <= 3);
    }
    detokenizer_finish(&detokenizer, &out);
    detokenize(tokenizer, ids, n, false, &whole);
    assert(out.length == whole.length);
    assert(out.length == 0 || memcmp(out.data, whole.data, out.length) == 0);
    buf_free(&whole);
    buf_free(&out);
}

static void check_limit(const struct tokenizer *tokenizer, const char *text, size_t size,
                        enum special_rule rule, int n) {
    int32_t *ids;
    assert(tokenizer_encode(tokenizer, text, size, rule, false, n, &ids) == n);
    free(ids);
    if (n == 0) return;
    assert(tokenizer_encode(tokenizer, text, size, rule, false, n - 1, &ids) == -1);
    assert(!ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    int which = (data[0] & 0x7F) % N_VOCABULARIES;
    enum special_rule rule = data[0] & 0x80 ? SPECIAL_PARSED : SPECIAL_AS_TEXT;
    const struct tokenizer *tokenizer = vocabulary(which);
    const char *text = (const char *)data + 1;
    int32_t *ids;
    int n = tokenizer_encode(tokenizer, text, size - 1, rule, false, INT32_MAX, &ids);
    assert(n >= 0);
    check_bytes(names[which], tokenizer, ids, n, text, size - 1);
    check_stream(tokenizer, ids, n);
    check_limit(tokenizer, text, size - 1, rule, n);
    free(ids);
    return 0;
}
