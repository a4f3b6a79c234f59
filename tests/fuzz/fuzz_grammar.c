/* The readers of grammars: the first byte selects the kind, the rest is the text. A grammar that
 * compiles is used: for its first mask, and to match a text. A regular expression is also searched
 * in a text, as for stop_regex. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct vocabulary *vocabulary(void) {
    static struct vocabulary *made;
    static const char *const tokens[] = {"{", "}", "\"", "a", "\":", "1", "[", "]", ",", " ", "<"};
    static const int lengths[] = {1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1};
    if (!made) made = vocabulary_new(tokens, lengths, 11);
    return made;
}

static void use(struct grammar *grammar) {
    static const char text[] = "{\"a\": [1, true, \"x\"]}<f>aab";
    struct matcher *matcher = matcher_new(grammar, vocabulary());
    uint32_t mask[1];
    char forced[16];
    bool ends;
    if (matcher_mask(matcher, mask)) {
        for (int id = 0; id < 11; id++) {
            bool taken = matcher_accept(matcher, id);
            assert(taken == (mask[0] >> id & 1));
            if (taken) matcher_roll_back(matcher, 1);
        }
    }
    assert(matcher_forced(matcher, forced, 16) <= 16);
    assert(grammar_match(grammar, text, sizeof text - 1, &ends) < sizeof text);
    matcher_free(matcher);
}

static void look_for(const char *regex, size_t n, const struct grammar_limits *limits) {
    static const char text[] = "aab 12 {\"a\": [true]}\nHuman: \xC3\xA9";
    struct err err = {0};
    struct search *search;
    struct search_run run = {0};
    if (search_compile(regex, n, limits, &search, &err) != STATUS_OK) {
        assert(err.status == STATUS_INVALID_REQUEST && strlen(err.message) > 10);
        return;
    }
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        size_t length = search_step(search, &run, (uint8_t)text[i]);
        assert(length <= i + 1 && search_open(&run) <= i + 1);
        assert(run.n < search_states(search));
    }
    search_run_free(&run);
    search_release(search);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct grammar_limits limits = {
        .max_text = 4096, .max_states = 5000, .max_bytes = 1 << 20, .max_ms = 2000};
    struct err err = {0};
    struct grammar *grammar;
    if (size == 0) return 0;
    enum grammar_kind kind = (enum grammar_kind)(data[0] % (GRAMMAR_STRUCTURAL_TAG + 1));
    const char *text = (const char *)data + 1;
    if (kind == GRAMMAR_REGEX) look_for(text, size - 1, &limits);
    if (grammar_compile(kind, text, size - 1, &limits, &grammar, &err) == STATUS_OK) {
        use(grammar);
        grammar_release(grammar);
    } else {
        assert(err.status == STATUS_INVALID_REQUEST && strlen(err.message) > 10);
    }
    return 0;
}
