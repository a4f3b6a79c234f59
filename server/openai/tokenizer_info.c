/* Writes the answer of /tokenizer_info in the form of transformers' tokenizer_config.json, as vLLM
 * does. Evaluation harnesses use it to count tokens and render chats. */
#include <assert.h>
#include <string.h>

#include "server/openai/internal.h"

static void write_token_name(struct buf *out, const struct tokenizer *tokenizer, int32_t id) {
    const char *name = id >= 0 ? tokenizer_token_name(tokenizer, id) : NULL;
    if (name)
        json_write_string(out, name, strlen(name));
    else
        buf_puts(out, "null");
}

/* Writes the special tokens: {"ID":{"content":…},…}. */
static void write_added_tokens(struct buf *out, const struct tokenizer *tokenizer) {
    buf_add(out, "{", 1);
    for (int32_t id = 0, written = 0; id < tokenizer_size(tokenizer); id++) {
        if (!tokenizer_is_special(tokenizer, id)) continue;
        buf_printf(out, written++ > 0 ? ",\"%d\":{\"content\":" : "\"%d\":{\"content\":", (int)id);
        write_token_name(out, tokenizer, id);
        buf_puts(out, ",\"lstrip\":false,\"normalized\":false,\"rstrip\":false,"
                      "\"single_word\":false,\"special\":true}");
    }
    buf_add(out, "}", 1);
}

void api_write_tokenizer_info(struct buf *out, const struct tokenizer *tokenizer,
                              const struct chat_template *chat, int max_model_len) {
    assert(max_model_len > 0);
    size_t length = 0;
    const char *source = chat ? chat_template_source(chat, &length) : NULL;
    buf_puts(out, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"model_max_length\":");
    json_write_int(out, max_model_len);
    buf_puts(out, ",\"bos_token\":");
    write_token_name(out, tokenizer, tokenizer_bos(tokenizer));
    buf_puts(out, ",\"eos_token\":");
    write_token_name(out, tokenizer, tokenizer_eos(tokenizer));
    buf_puts(out, ",\"add_bos_token\":");
    buf_puts(out, tokenizer_adds_bos(tokenizer) ? "true" : "false");
    buf_puts(out, ",\"clean_up_tokenization_spaces\":false,\"added_tokens_decoder\":");
    write_added_tokens(out, tokenizer);
    buf_puts(out, ",\"chat_template\":");
    if (source)
        json_write_string(out, source, length);
    else
        buf_puts(out, "null");
    buf_add(out, "}", 1);
}
