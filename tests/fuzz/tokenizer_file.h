/* The common end of the fuzzers of tokenizer files: a refusal has a message, and a tokenizer
 * encodes, decodes, and writes valid UTF-8. */
#ifndef PENSTOCK_FUZZ_TOKENIZER_FILE_H
#define PENSTOCK_FUZZ_TOKENIZER_FILE_H

#include <stdlib.h>

#include "engine/files/model_file.h"
#include "engine/files/text/folder_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void encode_and_decode(const struct tokenizer *tokenizer) {
    static const char text[] = "Ab <s> 12\xC3\xA9\xFF  \xF0\x9F\x98\x80\n";
    int32_t *ids;
    struct buf out = {0};
    int n = tokenizer_encode(tokenizer, text, sizeof text, SPECIAL_PARSED, true, 1 << 16, &ids);
    for (int i = 0; i < n; i++) require(ids[i] >= 0 && ids[i] < tokenizer_size(tokenizer));
    detokenize(tokenizer, ids, n < 0 ? 0 : n, false, &out);
    require(utf8_valid_prefix(out.data ? out.data : "", out.length) == out.length);
    buf_free(&out);
    free(ids);
    int n_first;
    n = tokenizer_encode_pair(tokenizer, (struct span){text, sizeof text}, (struct span){"b ", 2},
                              1 << 16, &ids, &n_first);
    for (int i = 0; i < n; i++) require(ids[i] >= 0 && ids[i] < tokenizer_size(tokenizer));
    require(n < 0 || (n_first >= 0 && n_first <= n));
    free(ids);
}

/* `status`, `spec` and `err` are the reader's results. Frees the spec. */
static int use_tokenizer_file(enum status status, struct tokenizer_spec *spec, struct err *err) {
    struct tokenizer *tokenizer = NULL;
    if (!status) {
        status = tokenizer_new(&tokenizer, spec, err);
        tokenizer_spec_free(spec);
    }
    if (status) {
        require(status == STATUS_BAD_FILE && err->message[0] != 0);
        return 0;
    }
    encode_and_decode(tokenizer);
    tokenizer_free(tokenizer);
    return 0;
}

#endif
