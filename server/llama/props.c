/* Writes llama-server's descriptions of a server: /props and /slots. */
#include <assert.h>
#include <string.h>

#include "server/json/json.h"
#include "server/llama/llama.h"

static void write_member(struct buf *out, const char *name, const char *text, size_t length) {
    buf_printf(out, ",\"%s\":", name);
    json_write_string(out, text, length);
}

static void write_token(struct buf *out, const char *name, const struct tokenizer *tokenizer,
                        int32_t id) {
    const char *text = id >= 0 ? tokenizer_token_name(tokenizer, id) : "";
    write_member(out, name, text, strlen(text));
}

/* Returns the model's own default, or else the API's. */
static double default_of(double own, double otherwise) {
    return own >= 0 ? own : otherwise;
}

/* Writes the settings of a request that names none. */
static void write_settings(struct buf *out, const struct llama_card *card) {
    static const struct sampling_defaults none = NO_SAMPLING_DEFAULTS;
    const struct sampling_defaults *own = card->limits->sampling ? card->limits->sampling : &none;
    buf_printf(out, "{\"default_generation_settings\":{\"id\":0,\"n_ctx\":%d,\"params\":{",
               card->limits->max_model_len);
    buf_printf(out, "\"n_predict\":-1,\"temperature\":%g,\"top_k\":%d,\"top_p\":%g,",
               default_of(own->temperature, 1), own->top_k >= 0 ? own->top_k : 0,
               default_of(own->top_p, 1));
    buf_printf(out, "\"min_p\":%g,\"repeat_penalty\":%g}}", default_of(own->min_p, 0),
               default_of(own->repetition_penalty, 1));
}

void llama_write_props(struct buf *out, const struct llama_card *card) {
    const struct api_limits *limits = card->limits;
    const char *tools = limits->tool_format ? "true" : "false";
    size_t length = 0;
    const char *source = card->chat ? chat_template_source(card->chat, &length) : "";
    assert(card->n_slots > 0);
    write_settings(out, card);
    buf_printf(out, ",\"total_slots\":%d", card->n_slots);
    write_member(out, "model_alias", limits->model, strlen(limits->model));
    write_member(out, "model_path", limits->model, strlen(limits->model));
    buf_puts(out, ",\"modalities\":{\"vision\":false,\"audio\":false}");
    write_member(out, "chat_template", source, length);
    buf_printf(out, ",\"chat_template_caps\":{\"supports_tools\":%s,\"supports_tool_calls\":%s,",
               tools, tools);
    buf_printf(out, "\"supports_parallel_tool_calls\":%s,\"supports_string_content\":%s}", tools,
               card->chat ? "true" : "false");
    write_token(out, "bos_token", card->tokenizer, tokenizer_bos(card->tokenizer));
    write_token(out, "eos_token", card->tokenizer, tokenizer_eos(card->tokenizer));
    buf_printf(out, ",\"build_info\":\"penstock %s\",\"is_sleeping\":false}", build_info().version);
}

void llama_write_slots(struct buf *out, const struct llama_card *card, int n_running) {
    buf_puts(out, "[");
    for (int i = 0; i < card->n_slots; i++) {
        buf_printf(out, "%s{\"id\":%d,\"n_ctx\":%d,\"is_processing\":%s}", i > 0 ? "," : "", i,
                   card->limits->max_model_len, i < n_running ? "true" : "false");
    }
    buf_puts(out, "]");
}

void llama_write_prompt(struct buf *out, const char *text, size_t length) {
    buf_puts(out, "{\"prompt\":");
    json_write_string(out, text, length);
    buf_puts(out, "}");
}
