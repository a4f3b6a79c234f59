/* The tokens for filling in: those that the file names, or else those with a usual name. */
#include <check.h>
#include <string.h>

#include "engine/text/text.h"
#include "support/suite_main.h"

static const char *const tokens[] = {"x",     "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>",
                                     "<PRE>", "<|file_sep|>"};
enum { N_TOKENS = sizeof tokens / sizeof *tokens };

/* Returns a vocabulary whose tokens from the second on have this type. */
static struct tokenizer *vocabulary(enum token_type type, const int32_t fim[N_FIM]) {
    uint32_t length[N_TOKENS];
    int32_t types[N_TOKENS] = {TOKEN_NORMAL};
    for (int i = 0; i < N_TOKENS; i++) length[i] = (uint32_t)strlen(tokens[i]);
    for (int i = 1; i < N_TOKENS; i++) types[i] = (int32_t)type;
    struct tokenizer_spec spec = {.kind = TOKENIZER_BYTE_BPE,
                                  .n_tokens = N_TOKENS,
                                  .token = tokens,
                                  .token_length = length,
                                  .type = types,
                                  .bos = -1,
                                  .eos = -1,
                                  .unknown = -1};
    struct tokenizer *tokenizer;
    if (fim) memcpy(spec.fim, fim, sizeof spec.fim);
    ck_assert_int_eq(tokenizer_new(&tokenizer, &spec, NULL), STATUS_OK);
    return tokenizer;
}

START_TEST(tokens_are_found_by_usual_names) {
    static const enum token_type types[] = {TOKEN_CONTROL, TOKEN_USER_DEFINED};
    for (int i = 0; i < 2; i++) {
        struct tokenizer *tokenizer = vocabulary(types[i], NULL);
        const int32_t *fim = tokenizer_fim(tokenizer);
        ck_assert(fim && fim[FIM_PREFIX] == 1 && fim[FIM_SUFFIX] == 2 && fim[FIM_MIDDLE] == 3);
        ck_assert(fim[FIM_FILE] == 5 && fim[FIM_REPOSITORY] == -1 && fim[FIM_PAD] == -1);
        tokenizer_free(tokenizer);
    }
}
END_TEST

/* Text that looks like a token's name is not one. */
START_TEST(ordinary_tokens_are_not_taken) {
    struct tokenizer *tokenizer = vocabulary(TOKEN_NORMAL, NULL);
    ck_assert_ptr_null(tokenizer_fim(tokenizer));
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(the_file_s_tokens_precede_names) {
    static const int32_t given[N_FIM] = {[FIM_PREFIX] = 4 + 1, [FIM_PAD] = 0 + 1};
    struct tokenizer *tokenizer = vocabulary(TOKEN_CONTROL, given);
    const int32_t *fim = tokenizer_fim(tokenizer);
    ck_assert(fim && fim[FIM_PREFIX] == 4 && fim[FIM_SUFFIX] == 2 && fim[FIM_PAD] == 0);
    tokenizer_free(tokenizer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_fim");
    TCase *tests = tcase_create("core");
    tcase_add_test(tests, tokens_are_found_by_usual_names);
    tcase_add_test(tests, ordinary_tokens_are_not_taken);
    tcase_add_test(tests, the_file_s_tokens_precede_names);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
