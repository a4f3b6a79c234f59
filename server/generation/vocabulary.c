/* The model's vocabulary as grammars see it: the bytes that each token adds to an answer. */
#include <string.h>

#include "server/generation/grammar_store.h"

static bool ends_answers(const struct engine *engine, int32_t id) {
    int n;
    const int32_t *ends = engine_end_ids(engine, &n);
    for (int i = 0; i < n; i++)
        if (ends[i] == id) return true;
    return false;
}

/* Is the token without text in an answer? True for end tokens and for control tokens that are not
 * markers. */
static bool is_silent(const struct engine *engine, int32_t id, const struct tool_format *tools,
                      const struct reasoning_format *reasoning) {
    const struct tokenizer *tokenizer = engine_tokenizer(engine);
    if (ends_answers(engine, id)) return true;
    if (!tokenizer_is_special(tokenizer, id)) return false;
    const char *name = tokenizer_token_name(tokenizer, id);
    return !message_has_marker(tools, reasoning, name, strlen(name));
}

struct vocabulary *vocabulary_of_model(const struct engine *engine, int V,
                                       const struct tool_format *tools,
                                       const struct reasoning_format *reasoning) {
    const struct tokenizer *tokenizer = engine_tokenizer(engine);
    const char **bytes = mem_calloc((size_t)V, sizeof *bytes);
    int *lengths = mem_calloc((size_t)V, sizeof *lengths);
    for (int id = 0; id < V; id++) {
        size_t length;
        bytes[id] = tokenizer_token_bytes(tokenizer, id, &length);
        lengths[id] = is_silent(engine, id, tools, reasoning) ? 0 : (int)length;
    }
    struct vocabulary *vocabulary = vocabulary_new(bytes, lengths, V);
    mem_free(bytes);
    mem_free(lengths);
    return vocabulary;
}
