/* Fields of OpenAI, vLLM and llama-server that change the meaning of an answer and are not
 * supported. If they were ignored, a client could mistake free text for constrained text, for
 * example. So each is rejected by name. A neutral value is accepted, because clients send defaults.
 *
 * Other unknown fields are ignored: clients send many that do not affect the answer, such as
 * 'metadata' and 'store'. To support a field, move its row to the API's table. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/openai/internal.h"

#define C UNSERVED_IN_COMPLETIONS
#define H UNSERVED_IN_CHAT
#define T UNSERVED_IN_TOKENIZE
#define V UNSERVED_IN_VECTORS
#define S UNSERVED_IN_SCORES

#define FIT "send texts that fit into the context"

struct unserved {
    const char *name;
    int where; /* bodies: a bit set of UNSERVED_IN_… */
    /* JSON values without effect, separated by spaces; NULL: only null */
    const char *neutral;
    const char *instead; /* a supported alternative, for the message; or NULL */
};

/* Sorted by name (strcmp). */
static const struct unserved unserved[] = {
    {"adaptive_target", C | H, "-1", NULL},
    {"audio", H, NULL, NULL},
    {"chat_template", H | T, "\"\"", "render the messages and send them as a 'prompt'"},
    {"chat_template_kwargs", S, "{}", "'instruction' gives the task"},
    {"constraints", C | H, "[]", "'allowed_token_ids' and 'bad_words' forbid tokens"},
    {"diversity_penalty", C | H, "0", "use 'n' with a 'temperature' for texts that differ"},
    {"documents", H, "[]", "a template that knows them takes them in 'chat_template_kwargs'"},
    {"dola_layers", C | H, "\"\"", "use 'repetition_penalty'"},
    {"dynatemp_range", C | H, "0", NULL},
    {"ec_transfer_params", C | H, "{}", NULL},
    {"echo", H, "false", NULL},
    {"embed_dtype", V, "\"float32\"", NULL},
    {"endianness", V, "\"native\" \"little\"", NULL},
    {"force_words_ids", C | H, "[]", "'logit_bias' changes the odds of single tokens"},
    {"function_call", C, "\"none\"", "use /v1/chat/completions"},
    {"functions", C, "[]", "use /v1/chat/completions"},
    {"grammar_lazy", C | H, "false", NULL},
    {"grammar_triggers", C | H, "[]", NULL},
    {"guided_whitespace_pattern", C | H, NULL, NULL},
    {"image_data", C | H, "[]", NULL},
    {"include_reasoning", C, "true", "use /v1/chat/completions"},
    {"input_extra", H, "[]", "use /v1/completions"},
    {"input_prefix", C | H, "\"\"", "use /infill"},
    {"input_suffix", C | H, "\"\"", "use /infill"},
    {"kv_transfer_params", C | H, "{}", NULL},
    {"logits_processors", C | H, "[]", "'logit_bias' changes the odds of single tokens"},
    {"lora", C | H, "[]", NULL},
    {"max_chunks_per_doc", S, NULL, FIT},
    {"max_tokens_per_doc", S, "0", FIT},
    {"max_tokens_per_query", S, "0", FIT},
    {"messages", C | V, "[]", "use /v1/chat/completions, whose /render gives the prompt's ids"},
    {"min_keep", C | H, "0 1", NULL},
    {"mm_processor_kwargs", V | S, "{}", NULL},
    {"modalities", H, "[\"text\"]", NULL},
    {"moderation", H, NULL, NULL},
    {"n_indent", C | H, "0", NULL},
    {"n_probs", C | H, "0", "use 'logprobs'"},
    {"normalize", V, "true", "'use_activation' turns normalisation off"},
    {"num_beam_groups", C | H, "1", "use 'n' with a 'temperature' for texts that differ"},
    {"num_beams", C | H, "1", "use 'use_beam_search' with 'best_of'"},
    {"padding", V | S, "\"do_not_pad\"", NULL},
    {"parse_special", T, "true", NULL},
    {"penalty_alpha", C | H, "0", "use 'min_p', or 'top_k' with 'presence_penalty'"},
    {"post_sampling_probs", C | H, "false", NULL},
    {"preserved_tokens", C | H, "[]", "use 'skip_special_tokens'"},
    {"prompt", H, "\"\" []", "use 'messages', or /v1/completions"},
    {"prompt_embeds", C | H, "[]", NULL},
    {"prompt_logprob_token_ids", C | H, "[]", NULL},
    {"rank_fields", S, NULL, FIT},
    {"reasoning_budget", C, "-1", "use /v1/chat/completions"},
    {"reasoning_budget_message", C, "\"\"", "use /v1/chat/completions"},
    {"reasoning_budget_tokens", C, "-1", "use /v1/chat/completions"},
    {"reasoning_control", C | H, "false", NULL},
    {"reasoning_effort", C, NULL, "use /v1/chat/completions"},
    {"reasoning_format", C, "\"none\" \"auto\"", NULL},
    {"repetition_detection", C | H, "{}", NULL},
    {"response_fields", C | H, "[]", NULL},
    {"return_prompt_text", C | H, "false", "use 'return_token_ids' and /detokenize"},
    {"return_tokens", C | H, "false", "use 'return_token_ids'"},
    {"return_tokens_as_token_ids", C | H, "false", "use 'return_token_ids'"},
    {"samplers", C | H, "[] \"\"", NULL},
    {"stop_in_reasoning", C, "false", "use /v1/chat/completions"},
    {"suffix", H, "\"\"", NULL},
    {"t_max_predict_ms", C | H, "0 -1", NULL},
    {"thinking_budget_tokens", C, "-1", "use /v1/chat/completions"},
    {"thinking_token_budget", C, "-1", "use /v1/chat/completions"},
    {"tool_choice", C, "\"none\"", "use /v1/chat/completions"},
    {"tools", C, "[]", "use /v1/chat/completions"},
    {"top_logprobs", C, "0", "use 'logprobs'"},
    {"trace_decode_token_ids", C | H, "[]", NULL},
    {"truncate_prompt_tokens", S, NULL, FIT},
    {"truncation_side", S, NULL, FIT},
    {"vllm_xargs", C | H, "{}", NULL},
    {"watermarking", C | H, "false", NULL},
    {"web_search_options", H, NULL, NULL},
};

#define N_UNSERVED ((int)(sizeof unserved / sizeof *unserved))

/* ---- neutral values ------------------------------------------------------------------------- */

/* Does the value equal this word of `neutral`? */
static bool is_word(const struct json *value, const char *word, size_t length) {
    switch (value->type) {
    case JSON_NULL:
        return false;
    case JSON_BOOL:
        return *word == (json_true(value) ? 't' : 'f');
    case JSON_NUMBER:
        return strchr("-0123456789", *word) && strtod(word, NULL) == json_number(value);
    case JSON_STRING:
        return *word == '"' && json_length(value) == length - 2 &&
               memcmp(json_text(value), word + 1, length - 2) == 0;
    case JSON_ARRAY:
        if (*word != '[' || json_count(value) > 1) return false;
        return !json_first(value) || is_word(json_first(value), word + 1, length - 2);
    case JSON_OBJECT:
        return *word == '{' && !json_first(value);
    }
    return false;
}

static bool is_neutral(const struct unserved *row, const struct json *value) {
    if (json_is(value, JSON_NULL)) return true;
    for (const char *word = row->neutral; word && *word;) {
        size_t length = strcspn(word, " ");
        if (is_word(value, word, length)) return true;
        word += length + strspn(word + length, " ");
    }
    return false;
}

/* ---- a body --------------------------------------------------------------------------------- */

static int by_name(const void *name, const void *row) {
    return strcmp(name, ((const struct unserved *)row)->name);
}

enum status api_refuse_unserved(const struct json *body, int where, struct err *err) {
    const struct json *value[N_UNSERVED] = {0};
    assert(json_is(body, JSON_OBJECT) && where);
    json_each(member, body) { /* if a field occurs twice, the last one is used */
        const struct unserved *row =
            bsearch(member->name, unserved, N_UNSERVED, sizeof *unserved, by_name);
        if (row && (row->where & where)) value[row - unserved] = member;
    }
    for (int i = 0; i < N_UNSERVED; i++) {
        const struct unserved *row = &unserved[i];
        if (!value[i] || is_neutral(row, value[i])) continue;
        const char *neutral = row->neutral ? row->neutral : "";
        int first = (int)strcspn(neutral, " ");
        return err_set(err, STATUS_INVALID_REQUEST, row->name,
                       "'%s' is not served by this version: leave it out%s%.*s%s%s.", row->name,
                       first > 0 ? " or give " : "", first, neutral, row->instead ? "; " : "",
                       row->instead ? row->instead : "");
    }
    return STATUS_OK;
}
