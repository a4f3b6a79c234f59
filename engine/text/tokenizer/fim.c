/* The tokens around the parts of a prompt whose middle the model fills in (fill in the middle,
 * Bavarian et al. 2022): those that the file names, or else tokens with a usual name. */
#include <assert.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

enum { MAX_FIM_NAMES = 7 };

static const char *const fim_names[N_FIM][MAX_FIM_NAMES] = {
    [FIM_PREFIX] = {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "\u2581<PRE>",
                    "<\uFF5Cfim\u2581begin\uFF5C>", "<|code_prefix|>"},
    [FIM_SUFFIX] = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "\u2581<SUF>",
                    "<\uFF5Cfim\u2581hole\uFF5C>", "<|code_suffix|>"},
    [FIM_MIDDLE] = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "\u2581<MID>",
                    "<\uFF5Cfim\u2581end\uFF5C>", "<|code_middle|>"},
    [FIM_REPOSITORY] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
    [FIM_FILE] = {"<|file_sep|>", "<file_sep>"},
    [FIM_PAD] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"},
};

static int32_t find_named(const struct tokenizer *tokenizer, const char *const names[]) {
    for (int i = 0; i < MAX_FIM_NAMES && names[i]; i++) {
        int32_t id = tokenizer_find(tokenizer, names[i], strlen(names[i]));
        if (id < 0) continue;
        enum token_type type = (enum token_type)tokenizer->vocabulary.type[id];
        if (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED) return id;
    }
    return -1;
}

void fim_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec) {
    for (int i = 0; i < N_FIM; i++) {
        int32_t given = spec->fim[i] - 1;
        assert(given < tokenizer->vocabulary.n);
        tokenizer->fim[i] = given >= 0 ? given : find_named(tokenizer, fim_names[i]);
    }
}

const int32_t *tokenizer_fim(const struct tokenizer *tokenizer) {
    const int32_t *fim = tokenizer->fim;
    bool is_complete = fim[FIM_PREFIX] >= 0 && fim[FIM_SUFFIX] >= 0 && fim[FIM_MIDDLE] >= 0;
    return is_complete ? fim : NULL;
}
