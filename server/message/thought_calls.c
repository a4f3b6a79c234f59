/* Calls at the end of thoughts. Some models call without ending their thoughts first:
 *
 *   <think>I look at the file.
 *   <tool_call>
 *   {"name": "read", "arguments": {"path": "a"}}
 *   </tool_call>
 *
 * If an answer lacks content and calls outside of its thoughts, and the thoughts end with whole
 * calls, these are its calls. Calls that other thoughts follow are only mentioned. The grammar does
 * not apply in thoughts, so a tool with `strict` is not called this way. */
#include <assert.h>
#include <string.h>

#include "server/message/internal.h"

struct thought_calls {
    struct message_parser *parser;
    struct message found; /* the calls that no text follows so far */
};

struct thought_calls *thought_calls_new(const struct message_settings *settings) {
    struct message_settings inner = {
        .tools = settings->tools, .known = settings->known, .id_seed = settings->id_seed};
    struct thought_calls *calls = mem_calloc(1, sizeof *calls);
    assert(settings->tools && settings->reasoning);
    calls->parser = message_parser_new(&inner);
    return calls;
}

void thought_calls_free(struct thought_calls *calls) {
    if (!calls) return;
    message_parser_free(calls->parser);
    message_free(&calls->found);
    mem_free(calls);
}

static void drop_before_text(struct thought_calls *calls) {
    if (calls->found.content.length > 0) message_clear(&calls->found);
}

void thought_calls_add(struct thought_calls *calls, char c) {
    message_parser_add(calls->parser, &c, 1, &calls->found);
    drop_before_text(calls);
}

const struct message *thought_calls_finish(struct thought_calls *calls) {
    message_parser_finish(calls->parser, &calls->found);
    drop_before_text(calls);
    for (int i = 0; i < calls->found.n_calls; i++) {
        const struct message_call *call = &calls->found.calls[i];
        if (tool_set_is_strict(calls->parser->settings.known, call->name))
            message_clear(&calls->found);
    }
    return &calls->found;
}
