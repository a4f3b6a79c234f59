/* The store of compiled grammars and stop_regex. Equal texts compile once. The least recently used
 * ones are freed. Refusals are remembered. Also tested: the vocabulary that the store makes. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/store_fixture.h"
#include "support/suite_main.h"

START_TEST(equal_texts_of_a_kind_compile_once) {
    open_store(1 << 20);
    struct grammar *a = get(GRAMMAR_REGEX, "[\"a\"]"), *b = get(GRAMMAR_CHOICE, "[\"a\"]");
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "[\"a\"]"), a);
    ck_assert_ptr_eq(used(GRAMMAR_CHOICE, "[\"a\"]"), b);
    ck_assert_ptr_ne(a, b);
    struct grammar *c = get(GRAMMAR_REGEX, "[\"a\"]+");
    ck_assert_ptr_ne(c, a);
    grammar_store_free(store);
    bool complete;
    ck_assert_uint_eq(grammar_match(a, "a", 1, &complete), 1); /* a grammar in use stays valid */
    grammar_release(a), grammar_release(b), grammar_release(c);
}
END_TEST

/* The store keeps one of these at a time. The first one is held, so a new one has another
 * address. */
START_TEST(the_least_recently_used_are_freed) {
    open_store(1 << 20);
    struct grammar *probe = get(GRAMMAR_REGEX, "a{3}");
    size_t bytes = grammar_bytes(probe);
    grammar_release(probe);
    grammar_store_free(store);
    open_store(3 * bytes + 3 * 256); /* three of these fit in the store, four do not */
    struct grammar *a = get(GRAMMAR_REGEX, "a{3}"), *b = get(GRAMMAR_REGEX, "b{3}");
    struct grammar *c = get(GRAMMAR_REGEX, "c{3}");
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "a{3}"), a); /* so that b is the oldest */
    used(GRAMMAR_REGEX, "d{3}");
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "a{3}"), a);
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "c{3}"), c);
    ck_assert_ptr_ne(used(GRAMMAR_REGEX, "b{3}"), b);
    grammar_release(a), grammar_release(b), grammar_release(c);
    grammar_store_free(store);
    open_store(0);
    a = get(GRAMMAR_REGEX, "a");
    ck_assert_ptr_ne(used(GRAMMAR_REGEX, "a"), a);
    grammar_release(a);
    grammar_store_free(store);
}
END_TEST

START_TEST(a_refused_text_is_compiled_once) {
    struct err first, again;
    struct grammar *grammar;
    open_store(1 << 20);
    ck_assert_int_eq(get_grammar(GRAMMAR_REGEX, "(", &grammar, &first), STATUS_INVALID_REQUEST);
    ck_assert_int_eq(get_grammar(GRAMMAR_REGEX, "(", &grammar, &again), STATUS_INVALID_REQUEST);
    ck_assert_str_eq(first.message, again.message);
    ck_assert_uint_eq(stats_of_store().refused, 1);
    for (int i = 0; i < 2; i++) {
        struct search *search;
        ck_assert_int_ne(get_search(store, failing, &search, &again), STATUS_OK);
        ck_assert_uint_eq(stats_of_store().refused, 2);
    }
    get_grammar(GRAMMAR_GBNF, "(", &grammar, NULL); /* another kind, another text */
    ck_assert_uint_eq(stats_of_store().refused, 3);
    grammar_store_free(store);
}
END_TEST

/* 1,024 refusals are remembered. One more, and the oldest is forgotten. */
START_TEST(refusals_are_remembered_within_bounds) {
    struct grammar *grammar;
    char text[32];
    open_store(1 << 20);
    for (int i = 0; i < 1025; i++) {
        snprintf(text, sizeof text, "(%d", i);
        get_grammar(GRAMMAR_REGEX, text, &grammar, NULL);
        /* keeps it recently used */
        if (i % 100 == 0) get_grammar(GRAMMAR_REGEX, "(1", &grammar, NULL);
    }
    ck_assert_uint_eq(stats_of_store().refused, 1025);
    get_grammar(GRAMMAR_REGEX, "(1", &grammar, NULL);
    ck_assert_uint_eq(stats_of_store().refused, 1025);
    get_grammar(GRAMMAR_REGEX, "(0", &grammar, NULL);
    ck_assert_uint_eq(stats_of_store().refused, 1026);
    struct buf large = {0};
    buf_puts(&large, "(");
    while (large.length < 5 << 20) buf_puts(&large, "aaaaaaaaaaaaaaaa");
    for (int i = 0; i < 2; i++) get_grammar(GRAMMAR_REGEX, large.data, &grammar, NULL);
    ck_assert_uint_eq(stats_of_store().refused, 1028); /* its text is too large to keep */
    buf_free(&large);
    grammar_store_free(store);
}
END_TEST

/* Returns the bytes of the heap that are in use. */
static size_t heap_bytes(void) {
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

START_TEST(ten_thousand_failures_leave_memory_flat) {
    size_t before = 0;
    open_store(1 << 20);
    for (int i = 0; i < 10000; i++) {
        char text[32];
        struct grammar *grammar;
        snprintf(text, sizeof text, "(%d", i);
        ck_assert_int_ne(get_grammar(GRAMMAR_REGEX, text, &grammar, NULL), STATUS_OK);
        if (i == 1999) before = heap_bytes(); /* the list of refusals is full */
    }
    ck_assert_uint_le(heap_bytes(), before + 65536);
    grammar_store_free(store);
}
END_TEST

START_TEST(ten_thousand_schemas_leave_memory_flat) {
    size_t kept = 4 << 20, before = 0, most = 0;
    open_store(kept);
    for (int i = 0; i < 10000; i++) {
        char schema[200];
        uint32_t mask[V / 32 + 1];
        snprintf(schema, sizeof schema,
                 "{\"type\":\"object\",\"properties\":{\"p%d\":{\"maxLength\":%d}},\"required\":["
                 "\"p%d\"]}",
                 i, i % 50 + 1, i);
        struct grammar *grammar = get(GRAMMAR_JSON_SCHEMA, schema);
        struct matcher *matcher = matcher_new(grammar, grammar_store_vocabulary(store, NULL, NULL));
        ck_assert(matcher_mask(matcher, mask));
        matcher_free(matcher);
        grammar_release(grammar);
        if (i == 999) before = heap_bytes(); /* the store is full */
        if (i > 999 && i % 100 == 0 && heap_bytes() > most) most = heap_bytes();
    }
    ck_assert_msg(most < before + kept / 2, "%zu bytes, then %zu", before, most);
    grammar_store_free(store);
}
END_TEST

/* A stop_regex and a grammar share the store's limit. They are different entries even if their
 * texts are equal. */
START_TEST(stop_patterns_are_kept_too) {
    struct search *first, *again, *unkept;
    open_store(1 << 20);
    struct grammar *grammar = get(GRAMMAR_REGEX, "a{3}");
    ck_assert_int_eq(get_search(store, "a{3}", &first, NULL), STATUS_OK);
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "a{3}"), grammar);
    ck_assert_int_eq(get_search(store, "a{3}", &again, NULL), STATUS_OK);
    ck_assert_ptr_eq(again, first);
    ck_assert_int_eq(get_search(NULL, "a{3}", &unkept, NULL), STATUS_OK);
    ck_assert_ptr_ne(unkept, first);
    ck_assert_int_ne(get_search(store, "a*", &again, NULL), STATUS_OK);
    ck_assert_ptr_null(again);
    grammar_store_free(store);
    struct search_run run = {0};
    for (int i = 0; i < 3; i++) ck_assert_uint_eq(search_step(first, &run, 'a'), i == 2 ? 3 : 0);
    search_run_free(&run);
    search_release(first), search_release(first), search_release(unkept);
    grammar_release(grammar);
}
END_TEST

/* The heap stops growing after the store is full. */
START_TEST(ten_thousand_of_them_leave_memory_flat) {
    size_t kept = 1 << 20, before = 0;
    open_store(kept);
    for (int i = 0; i < 10000; i++) {
        char text[32];
        struct search *search;
        snprintf(text, sizeof text, "x{%d}%d", i % 50 + 1, i);
        ck_assert_int_eq(get_search(store, text, &search, NULL), STATUS_OK);
        search_release(search);
        if (i == 4999) before = heap_bytes();
    }
    ck_assert_uint_lt(heap_bytes(), before + kept / 4);
    ck_assert(before == 0 || before > kept / 2); /* not with a sanitizer's heap */
    grammar_store_free(store);
}
END_TEST

/* ---- memory --------------------------------------------------------------------------------- */

/* Grammars that only the store holds are freed for room; those in use by requests are not. */
START_TEST(grammars_in_use_are_bounded_together) {
    struct grammar *grammar;
    struct err err;
    if (!tokenizer) tokenizer = fixture_tokenizer("gpt-2");
    store = grammar_store_new(NULL, V, 1 << 24, grammar_live_bytes() + (1 << 20));
    for (int i = 0; i < 50; i++) {
        char text[32];
        snprintf(text, sizeof text, "y{%d}", 1000 + i);
        used(GRAMMAR_REGEX, text);
    }
    struct grammar *held[200];
    int n = 0;
    for (; n < 200; n++) {
        char text[32];
        snprintf(text, sizeof text, "x{%d}", 1000 + n);
        if (get_grammar(GRAMMAR_REGEX, text, &held[n], &err)) break;
    }
    ck_assert(n > 1 && n < 200);
    ck_assert_int_eq(err.status, STATUS_OVERLOADED);
    ck_assert_ptr_nonnull(strstr(err.message, "--grammar-memory"));
    grammar_release(held[--n]);
    ck_assert_int_eq(get_grammar(GRAMMAR_REGEX, "z", &grammar, &err), STATUS_OK);
    grammar_release(grammar);
    while (n > 0) grammar_release(held[--n]);
    grammar_store_free(store);
}
END_TEST

/* A grammar grows while it is used. This memory is counted until the grammar is freed. */
START_TEST(growth_of_a_grammar_is_counted) {
    open_store(0);
    size_t before = grammar_live_bytes();
    struct grammar *grammar = get(GRAMMAR_JSON_OBJECT, "");
    size_t compiled = grammar_live_bytes(), bytes = grammar_bytes(grammar);
    ck_assert_uint_eq(compiled - before, bytes);
    uint32_t mask[(V + 31) / 32];
    struct matcher *matcher = matcher_new(grammar, grammar_store_vocabulary(store, NULL, NULL));
    ck_assert(matcher_mask(matcher, mask));
    ck_assert_uint_gt(grammar_live_bytes(), compiled);
    ck_assert_uint_eq(grammar_live_bytes() - before, grammar_bytes(grammar));
    matcher_free(matcher);
    grammar_release(grammar);
    ck_assert_uint_eq(grammar_live_bytes(), before);
    grammar_store_free(store);
}
END_TEST

/* A token's text decides whether it may be chosen. A token without text is never allowed. */
START_TEST(the_vocabulary_has_the_texts_of_tokens) {
    uint32_t mask[(V + 31) / 32];
    open_store(1 << 20);
    struct grammar *grammar = get(GRAMMAR_REGEX, "(?s:.)+");
    struct matcher *matcher = matcher_new(grammar, grammar_store_vocabulary(store, NULL, NULL));
    ck_assert_ptr_eq(grammar_store_vocabulary(store, NULL, NULL),
                     grammar_store_vocabulary(store, NULL, NULL));
    int32_t a = tokenizer_find(tokenizer, "a", 1);
    ck_assert(matcher_mask(matcher, mask));
    ck_assert(mask[a / 32] >> a % 32 & 1);
    ck_assert(!(mask[END / 32] >> END % 32 & 1) && !matcher_accept(matcher, END));
    ck_assert(matcher_accept(matcher, a) && matcher_may_end(matcher));
    matcher_free(matcher);
    grammar_release(grammar);
    grammar_store_free(store);
}
END_TEST

/* With tools, control tokens that mark calls and thoughts have a text. Other control tokens do
 * not. */
START_TEST(markers_have_a_text_if_calls_are_read) {
    static const char *const names[] = {"a", "[TOOL_CALLS]", "[THINK]", "[INST]"};
    static const uint32_t lengths[] = {1, 12, 7, 6};
    static const int32_t types[] = {1, 3, 3, 3};
    const struct tokenizer_spec spec = {.n_tokens = 4,
                                        .token = names,
                                        .token_length = lengths,
                                        .type = types,
                                        .bos = -1,
                                        .eos = -1,
                                        .unknown = -1};
    struct tokenizer *before = tokenizer;
    struct err err;
    ck_assert_msg(tokenizer_new(&tokenizer, &spec, &err) == STATUS_OK, "%s", err.message);
    store = grammar_store_new(NULL, 4, 1 << 20, 0);
    struct grammar *grammar = get(GRAMMAR_REGEX, "(?s:.)+");
    for (int with = 0; with < 2; with++) {
        const struct vocabulary *v =
            grammar_store_vocabulary(store, with ? tool_format_find("mistral") : NULL,
                                     with ? reasoning_format_find("mistral") : NULL);
        struct matcher *matcher = matcher_new(grammar, v);
        uint32_t mask = 0;
        ck_assert(matcher_mask(matcher, &mask));
        ck_assert_uint_eq(mask, with ? 7 : 1);
        matcher_free(matcher);
    }
    grammar_release(grammar);
    grammar_store_free(store);
    tokenizer_free(tokenizer);
    tokenizer = before;
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_grammar_store");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, equal_texts_of_a_kind_compile_once);
    tcase_add_test(core, the_least_recently_used_are_freed);
    tcase_add_test(core, a_refused_text_is_compiled_once);
    tcase_add_test(core, refusals_are_remembered_within_bounds);
    tcase_add_test(core, grammars_in_use_are_bounded_together);
    tcase_add_test(core, growth_of_a_grammar_is_counted);
    tcase_add_test(core, ten_thousand_failures_leave_memory_flat);
    tcase_add_test(core, ten_thousand_schemas_leave_memory_flat);
    tcase_add_test(core, stop_patterns_are_kept_too);
    tcase_add_test(core, ten_thousand_of_them_leave_memory_flat);
    tcase_add_test(core, the_vocabulary_has_the_texts_of_tokens);
    tcase_add_test(core, markers_have_a_text_if_calls_are_read);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
