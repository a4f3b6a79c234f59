/* All fields of the completions and chat APIs of OpenAI, vLLM and llama-server, and their treatment
 * here: no field may be accepted and its meaning ignored. The lists are those of openai-python
 * (types/completion_create_params.py, types/chat/completion_create_params.py), of vLLM (protocol.py
 * of both APIs and of /tokenize, with the extra and sampling parameters of 0.11 and later), and of
 * llama-server (server-schema.cpp and the README). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/openai/internal.h"
#include "support/suite_main.h"

static struct api_limits limits = {.model = "m",
                                   .V = 1000,
                                   .max_model_len = 64,
                                   .max_choices = 16,
                                   .max_prompts = 8,
                                   .has_chat_template = true};

/* The treatment of a field in the bodies of one API. */
enum class {
    NONE,    /* no server has it there: not tested */
    SERVED,  /* a right value is accepted, one of a wrong type is refused by name */
    REFUSED, /* a value with an effect is refused by name, a neutral one is accepted */
    IGNORED, /* any value is accepted, because it does not affect the answer */
};

struct known {
    const char *name;
    enum class completions, chat;
    const char *value;   /* JSON: a value with an effect */
    const char *neutral; /* JSON: a value without an effect; NULL: only null is neutral */
};

static const struct known known[] = {
    /* ---- OpenAI ------------------------------------------------------------------------- */
    {"model", SERVED, SERVED, "\"m\"", NULL},
    {"prompt", SERVED, NONE, "\"y\"", NULL},
    {"prompt", NONE, REFUSED, "\"y\"", "\"\""},
    {"messages", REFUSED, SERVED, "[{\"role\":\"user\",\"content\":\"y\"}]", NULL},
    {"best_of", SERVED, SERVED, "3", "2"}, /* with 'n' 2 */
    {"echo", SERVED, REFUSED, "true", "false"},
    {"frequency_penalty", SERVED, SERVED, "0.5", "0"},
    {"presence_penalty", SERVED, SERVED, "0.5", "0"},
    {"logit_bias", SERVED, SERVED, "{\"5\":1}", "{}"},
    {"max_tokens", SERVED, SERVED, "3", NULL},
    {"max_completion_tokens", SERVED, SERVED, "3", NULL},
    {"n", SERVED, SERVED, "2", "1"},
    {"seed", SERVED, SERVED, "7", NULL},
    {"stop", SERVED, SERVED, "[\"a\"]", "[]"},
    {"stream", SERVED, SERVED, "true", "false"},
    {"temperature", SERVED, SERVED, "0.5", "1"},
    {"top_p", SERVED, SERVED, "0.5", "1"},
    {"user", SERVED, SERVED, "\"u\"", "\"\""},
    {"logprobs", SERVED, NONE, "3", "0"},
    {"logprobs", NONE, SERVED, "true", "false"},
    {"suffix", REFUSED, REFUSED, "\"y\"", "\"\""},
    {"top_logprobs", REFUSED, NONE, "2", "0"},
    {"audio", NONE, REFUSED, "{\"voice\":\"alloy\",\"format\":\"wav\"}", NULL},
    {"function_call", REFUSED, REFUSED, "\"auto\"", "\"none\""},
    {"functions", REFUSED, REFUSED, "[{\"name\":\"f\"}]", "[]"},
    {"modalities", NONE, REFUSED, "[\"text\",\"audio\"]", "[\"text\"]"},
    {"modalities", NONE, REFUSED, "[\"audio\"]", "[]"},
    {"moderation", NONE, REFUSED, "{\"model\":\"omni\"}", NULL},
    {"response_format", SERVED, SERVED, "{\"type\":\"json_object\"}", "{\"type\":\"text\"}"},
    {"tool_choice", REFUSED, REFUSED, "\"required\"", "\"none\""},
    {"tool_choice", NONE, SERVED, "\"auto\"", "\"none\""},
    {"tool_choice", NONE, REFUSED, "{\"type\":\"allowed_tools\",\"tools\":[]}", "\"none\""},
    {"tools", REFUSED, SERVED, "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", "[]"},
    {"verbosity", NONE, SERVED, "\"low\"", "\"medium\""},
    {"thinking", NONE, SERVED, "{\"type\":\"enabled\"}", "{\"type\":\"auto\"}"},
    {"thinking", NONE, REFUSED, "{\"type\":\"x\"}", "true"},
    {"web_search_options", NONE, REFUSED, "{}", NULL},
    {"metadata", IGNORED, IGNORED, "{\"a\":\"b\"}", NULL},
    {"parallel_tool_calls", IGNORED, SERVED, "false", NULL},
    {"prediction", NONE, SERVED, "{\"type\":\"content\",\"content\":\"y\"}",
     "{\"type\":\"content\",\"content\":\"\"}"},
    {"prediction", NONE, SERVED,
     "{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":\"y\"}]}", NULL},
    {"prediction", NONE, REFUSED, "{\"type\":\"text\",\"content\":\"y\"}", NULL},
    {"prediction", NONE, REFUSED, "{\"type\":\"content\",\"content\":5}", NULL},
    {"prediction", NONE, REFUSED, "{\"type\":\"content\",\"content\":[{\"type\":\"image_url\"}]}",
     NULL},
    {"prompt_cache_key", IGNORED, IGNORED, "\"k\"", NULL},
    {"prompt_cache_options", IGNORED, IGNORED, "{\"mode\":\"explicit\"}", NULL},
    {"prompt_cache_retention", IGNORED, IGNORED, "\"24h\"", NULL},
    {"safety_identifier", IGNORED, IGNORED, "\"u\"", NULL},
    {"service_tier", IGNORED, IGNORED, "\"flex\"", NULL},
    {"store", IGNORED, IGNORED, "true", NULL},
    /* ---- vLLM --------------------------------------------------------------------------- */
    {"min_p", SERVED, SERVED, "0.5", "0"},
    {"top_n_sigma", SERVED, SERVED, "1.5", "-1"},
    {"typical_p", SERVED, SERVED, "0.5", "1.0"},
    {"xtc_probability", SERVED, SERVED, "0.5", "0"},
    {"xtc_threshold", SERVED, SERVED, "0.2", "0.1"},
    {"top_k", SERVED, SERVED, "5", "-1"},
    {"repetition_penalty", SERVED, SERVED, "1.5", "1.0"},
    {"stop_token_ids", SERVED, SERVED, "[3]", "[]"},
    {"stop_regex", SERVED, SERVED, "\"[0-9]+\"", "[]"},
    {"include_stop_str_in_output", SERVED, SERVED, "true", "false"},
    {"ignore_eos", SERVED, SERVED, "true", "false"},
    {"min_tokens", SERVED, SERVED, "2", "0"},
    {"skip_special_tokens", SERVED, SERVED, "false", "true"},
    {"priority", SERVED, SERVED, "3", "0"},
    {"deadline_ms", SERVED, SERVED, "60000", NULL},
    {"request_id", SERVED, SERVED, "\"r\"", NULL},
    {"return_token_ids", SERVED, SERVED, "true", "false"},
    {"receipt", SERVED, SERVED, "true", "false"},
    {"cache_salt", SERVED, SERVED, "\"s\"", NULL},
    {"add_special_tokens", SERVED, SERVED, "true", NULL},
    {"add_generation_prompt", IGNORED, SERVED, "false", "true"},
    {"continue_final_message", IGNORED, SERVED, "true", "false"},
    {"chat_template_kwargs", IGNORED, SERVED, "{\"a\":1}", "{}"},
    {"allowed_token_ids", SERVED, SERVED, "[3]", NULL},
    {"bad_words", SERVED, SERVED, "[\"a\"]", "[]"},
    {"chat_template", NONE, REFUSED, "\"{{ messages }}\"", NULL},
    {"documents", NONE, REFUSED, "[{\"title\":\"a\",\"text\":\"b\"}]", "[]"},
    {"early_stopping", SERVED, SERVED, "\"never\"", "false"},
    {"ec_transfer_params", REFUSED, REFUSED, "{\"a\":1}", "{}"},
    {"guided_choice", SERVED, SERVED, "[\"yes\",\"no\"]", "[]"},
    {"guided_grammar", SERVED, SERVED, "\"root ::= x\"", "\"\""},
    {"guided_json", SERVED, SERVED, "{}", NULL},
    {"guided_regex", SERVED, SERVED, "\"[0-9]+\"", "\"\""},
    {"include_reasoning", REFUSED, SERVED, "false", "true"},
    {"stop_in_reasoning", REFUSED, SERVED, "true", "false"},
    {"kv_transfer_params", REFUSED, REFUSED, "{\"do_remote_decode\":true}", "{}"},
    {"length_penalty", SERVED, SERVED, "1.5", "1.0"},
    {"logits_processors", REFUSED, REFUSED, "[\"a.b\"]", "[]"},
    {"logprob_token_ids", SERVED, SERVED, "[3]", "[]"},
    {"prompt_embeds", REFUSED, REFUSED, "\"AAAA\"", "[]"},
    {"prompt_logprob_token_ids", REFUSED, REFUSED, "[3]", "[]"},
    {"prompt_logprobs", SERVED, SERVED, "0", NULL},
    {"reasoning_effort", REFUSED, SERVED, "\"low\"", NULL},
    {"repetition_detection", REFUSED, REFUSED, "{\"min_count\":3}", "{}"},
    {"return_prompt_text", REFUSED, REFUSED, "true", "false"},
    {"return_tokens_as_token_ids", REFUSED, REFUSED, "true", "false"},
    {"structural_tag", SERVED, SERVED, "\"{}\"", "\"\""},
    {"structured_outputs", SERVED, SERVED, "{\"regex\":\"a\"}", "null"},
    {"thinking_token_budget", REFUSED, SERVED, "5", "-1"},
    {"trace_decode_token_ids", REFUSED, REFUSED, "[3]", "[]"},
    {"truncate_prompt_tokens", SERVED, SERVED, "5", NULL},
    {"truncation_side", SERVED, SERVED, "\"left\"", NULL},
    {"use_beam_search", SERVED, SERVED, "true", "false"},
    {"vllm_xargs", REFUSED, REFUSED, "{\"a\":1}", "{}"},
    {"watermarking", REFUSED, REFUSED, "true", "false"},
    /* ---- transformers: fields moved out of its generate, and another name -------------------- */
    {"constraints", REFUSED, REFUSED, "[\"a\"]", "[]"},
    {"diversity_penalty", REFUSED, REFUSED, "0.5", "0.0"},
    {"dola_layers", REFUSED, REFUSED, "\"high\"", "\"\""},
    {"force_words_ids", REFUSED, REFUSED, "[[5]]", "[]"},
    {"no_repeat_ngram_size", SERVED, SERVED, "3", "0"},
    {"num_beam_groups", REFUSED, REFUSED, "2", "1"},
    {"num_beams", REFUSED, REFUSED, "4", "1"},
    {"penalty_alpha", REFUSED, REFUSED, "0.6", "0"},
    /* settings of constraints that are refused, and of images, which messages cannot contain */
    {"guided_whitespace_pattern", REFUSED, REFUSED, "\" \"", NULL},
    {"guided_decoding_backend", IGNORED, IGNORED, "\"outlines\"", NULL},
    {"media_io_kwargs", IGNORED, IGNORED, "{}", NULL},
    {"mm_processor_kwargs", IGNORED, IGNORED, "{}", NULL},
    /* the transport of an answer, hints for a router, and fields of other endpoints */
    {"return_mm_kwargs", IGNORED, IGNORED, "true", NULL},
    {"return_token_offsets", IGNORED, IGNORED, "true", NULL},
    {"routed_experts_prompt_start", IGNORED, IGNORED, "1", NULL},
    {"session_id", IGNORED, IGNORED, "\"s\"", NULL},
    {"spaces_between_special_tokens", IGNORED, IGNORED, "false", NULL},
    {"stream_interval", IGNORED, IGNORED, "5", NULL},
    /* ---- llama-server ------------------------------------------------------------------- */
    {"n_predict", SERVED, SERVED, "3", "-1"},
    {"n_cmpl", SERVED, SERVED, "2", "1"},
    {"repeat_last_n", SERVED, SERVED, "-1", "64"},
    {"repeat_penalty", SERVED, SERVED, "1.1", "1.0"},
    {"dry_multiplier", SERVED, SERVED, "0.8", "0.0"},
    {"dry_allowed_length", SERVED, SERVED, "3", "2"},
    {"dry_base", SERVED, SERVED, "1.2", "1.75"},
    {"dry_penalty_last_n", SERVED, SERVED, "64", "-1"},
    {"dry_sequence_breakers", SERVED, SERVED, "[\":\"]", "[]"},
    {"adaptive_target", REFUSED, REFUSED, "0.5", "-1"},
    {"dynatemp_range", REFUSED, REFUSED, "0.5", "0"},
    {"grammar", SERVED, SERVED, "\"root ::= x\"", "\"\""},
    {"grammar_lazy", REFUSED, REFUSED, "true", "false"},
    {"grammar_triggers", REFUSED, REFUSED, "[{\"type\":\"word\"}]", "[]"},
    {"image_data", REFUSED, REFUSED, "[{\"id\":1}]", "[]"},
    {"input_extra", REFUSED, REFUSED, "[{\"text\":\"a\"}]", "[]"},
    {"input_prefix", REFUSED, REFUSED, "\"a\"", "\"\""},
    {"input_suffix", REFUSED, REFUSED, "\"a\"", "\"\""},
    {"json_schema", SERVED, SERVED, "{}", NULL},
    {"lora", REFUSED, REFUSED, "[{\"id\":0,\"scale\":1}]", "[]"},
    {"min_keep", REFUSED, REFUSED, "2", "0"},
    {"mirostat", SERVED, SERVED, "2", "0"},
    {"mirostat_eta", SERVED, SERVED, "0.2", "0.1"},
    {"mirostat_tau", SERVED, SERVED, "4", "5"},
    {"n_indent", REFUSED, REFUSED, "2", "0"},
    {"n_probs", REFUSED, REFUSED, "5", "0"},
    {"post_sampling_probs", REFUSED, REFUSED, "true", "false"},
    {"preserved_tokens", REFUSED, REFUSED, "[\"a\"]", "[]"},
    {"reasoning_budget", REFUSED, SERVED, "0", "-1"},
    {"reasoning_budget_message", REFUSED, SERVED, "\"stop\"", "\"\""},
    {"reasoning_budget_tokens", REFUSED, SERVED, "5", "-1"},
    {"reasoning_control", REFUSED, REFUSED, "true", "false"},
    {"reasoning_format", REFUSED, SERVED, "\"deepseek\"", "\"auto\""},
    {"response_fields", REFUSED, REFUSED, "[\"content\"]", "[]"},
    {"return_tokens", REFUSED, REFUSED, "true", "false"},
    {"samplers", REFUSED, REFUSED, "[\"top_k\"]", "\"\""},
    {"t_max_predict_ms", REFUSED, REFUSED, "100", "0"},
    {"thinking_budget_tokens", REFUSED, SERVED, "5", "-1"},
    /* settings of samplers that are refused, and markers, which are the template's */
    {"adaptive_decay", IGNORED, IGNORED, "0.5", NULL},
    {"dynatemp_exponent", IGNORED, IGNORED, "2", NULL},
    {"reasoning_budget_end_tag", IGNORED, IGNORED, "\"</think>\"", NULL},
    {"reasoning_budget_end_tags", IGNORED, IGNORED, "[\"</think>\"]", NULL},
    {"reasoning_budget_start_tag", IGNORED, IGNORED, "\"<think>\"", NULL},
    /* its cache, slots and reports */
    {"backend_sampling", IGNORED, IGNORED, "true", NULL},
    {"cache_prompt", IGNORED, IGNORED, "false", NULL},
    {"chat_format", IGNORED, IGNORED, "1", NULL},
    {"chat_parser", IGNORED, IGNORED, "\"p\"", NULL},
    {"generation_prompt", IGNORED, IGNORED, "\"p\"", NULL},
    {"id_slot", IGNORED, IGNORED, "0", NULL},
    {"n_cache_reuse", IGNORED, IGNORED, "16", NULL},
    {"n_discard", IGNORED, IGNORED, "5", NULL},
    {"n_keep", IGNORED, IGNORED, "5", NULL},
    {"parse_tool_calls", IGNORED, IGNORED, "true", NULL},
    {"return_progress", IGNORED, IGNORED, "true", NULL},
    {"sse_ping_interval", IGNORED, IGNORED, "5", NULL},
    {"timings_per_token", IGNORED, IGNORED, "true", NULL},
    {"verbose", IGNORED, IGNORED, "true", NULL},
};

#define N_KNOWN (sizeof known / sizeof *known)

/* ---- testing a field ------------------------------------------------------------------------ */

/* Writes a body of the API that is complete except for one field. */
static void write_body(struct buf *body, const struct api *api, const char *name,
                       const char *value) {
    bool chat = api == &api_chat;
    buf_clear(body);
    buf_puts(body, "{");
    if (strcmp(name, chat ? "messages" : "prompt") != 0) {
        buf_puts(body, chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                            : "\"prompt\":\"x\",");
    }
    if (strcmp(name, "best_of") == 0) buf_puts(body, "\"n\":2,");
    if (strcmp(name, "length_penalty") == 0 || strcmp(name, "early_stopping") == 0)
        buf_puts(body, "\"use_beam_search\":true,");
    buf_printf(body, "\"%s\":%s}", name, value);
}

static enum status try_value(const struct api *api, const char *name, const char *value,
                             struct err *err) {
    struct api_request *request = NULL;
    struct buf body = {0};
    struct json *json;
    *err = (struct err){0};
    write_body(&body, api, name, value);
    ck_assert_int_eq(json_parse(&json, "The body", body.data, body.length, err), STATUS_OK);
    enum status status = api->parse(&request, json, &limits, err);
    if (request) api_request_free(request);
    buf_free(&body);
    return status;
}

static void expect_taken(const struct api *api, const char *name, const char *value) {
    struct err err;
    enum status status = try_value(api, name, value, &err);
    ck_assert_msg(status == STATUS_OK, "%s: '%s': %s gave: %s", api->path, name, value,
                  err.message);
}

static void expect_refused(const struct api *api, const char *name, const char *value) {
    struct err err;
    enum status status = try_value(api, name, value, &err);
    ck_assert_msg(status != STATUS_OK, "%s took '%s': %s", api->path, name, value);
    ck_assert_msg(strncmp(err.param, name, strlen(name)) == 0, "%s: '%s': %s named '%s'", api->path,
                  name, value, err.param);
    ck_assert_msg(strstr(err.message, name), "%s: %s", name, err.message);
}

static void expect_class(const struct api *api, const struct known *one, enum class class) {
    static const char *const any[] = {"null", "true", "-7", "0.25", "\"x\"", "[1]", "{\"a\":1}"};
    if (class == SERVED) {
        expect_taken(api, one->name, one->value);
        if (one->neutral) expect_taken(api, one->name, one->neutral);
        expect_refused(api, one->name, "[[[]]]"); /* wrong for all fields */
    } else if (class == REFUSED) {
        expect_refused(api, one->name, one->value);
        expect_taken(api, one->name, "null");
        if (one->neutral) expect_taken(api, one->name, one->neutral);
    } else if (class == IGNORED) {
        expect_taken(api, one->name, one->value);
        for (size_t i = 0; i < sizeof any / sizeof *any; i++) expect_taken(api, one->name, any[i]);
    }
}

START_TEST(each_field_has_its_class) {
    const struct known *one = &known[_i];
    expect_class(&api_completions, one, one->completions);
    expect_class(&api_chat, one, one->chat);
}
END_TEST

/* ---- fields that depend on others ----------------------------------------------------------- */

struct pair {
    const char *fields, *param, *says; /* param NULL: accepted */
};

static const struct pair pairs[] = {
    {"\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":true}",
     NULL, NULL},
    {"\"samplers\":[\"x\"],\"samplers\":null", NULL, NULL}, /* the last of two counts */
    {"\"samplers\":null,\"samplers\":[\"x\"]", "samplers", "leave it out or give []."},
    {"\"input_prefix\":\"\\u0000\"", "input_prefix", "give \"\"; use /infill."},
    {"\"mirostat\":2,\"lora\":[\"a\"]", "lora", "leave it out or give []."},
    {"\"min_keep\":2", "min_keep", "leave it out or give 0."}, /* the first of its neutral values */
    {"\"min_keep\":1", NULL, NULL},
    {"\"n_probs\":-0.0", NULL, NULL},
    {"\"n_probs\":1", "n_probs", "or give 0; use 'logprobs'."},
    {"\"truncation_side\":5", "truncation_side", "must be \"left\" or \"right\""},
    {"\"samplers\":[\"\"]", "samplers", "not served"},
    {"\"use_beam_search\":0", "use_beam_search", "must be true or false"},
    {"\"use_beam_search\":true,\"stream\":true", "stream", "known only at the end"},
    {"\"use_beam_search\":true,\"temperature\":0.5", "temperature", "must be 0 or left out"},
    {"\"use_beam_search\":true,\"temperature\":0", NULL, NULL},
    {"\"use_beam_search\":true,\"stop\":\"a\"", "stop", "use 'stop_token_ids'"},
    {"\"use_beam_search\":true,\"stop_regex\":[\"a\"]", "stop_regex", "use 'stop_token_ids'"},
    {"\"stop_regex\":[\"a\",\"\"]", "stop_regex[1]", "must not be an empty string"},
    {"\"use_beam_search\":true,\"best_of\":17", "best_of", "at most 16, but it is 17"},
    {"\"use_beam_search\":true,\"best_of\":2,\"n\":3", "best_of", "at least 'n', which is 3"},
    {"\"use_beam_search\":true,\"length_penalty\":5.5", "length_penalty", "at most 5"},
    {"\"use_beam_search\":true,\"length_penalty\":-5.5", "length_penalty", "at least -5"},
    {"\"use_beam_search\":true,\"early_stopping\":\"yes\"", "early_stopping", "or \"never\""},
    {"\"use_beam_search\":true,\"mirostat\":1", "mirostat", "or 2, its second version"},
    {"\"mirostat\":3", "mirostat", "at most 2"},
    {"\"mirostat\":2,\"mirostat_tau\":-1", "mirostat_tau", "at least 0"},
    {"\"mirostat\":2,\"mirostat_eta\":1.5", "mirostat_eta", "at most 1"},
    {"\"use_beam_search\":true,\"num_beam_groups\":2", "num_beam_groups", "use 'n' with"},
    {"\"early_stopping\":true", "early_stopping", "only for requests with 'use_beam_search'"},
    {"\"length_penalty\":2", "length_penalty", "only for requests with 'use_beam_search'"},
    {"\"length_penalty\":1,\"early_stopping\":false", NULL, NULL},
    {"\"best_of\":17", "best_of", "at most 16, but it is 17"},
    {"\"best_of\":2,\"stream\":true", "best_of", "only for requests without 'stream'"},
    {"\"best_of\":2,\"n\":2,\"stream\":true", NULL, NULL},
    {"\"guided_regex\":\"a\",\"guided_json\":\"\",\"grammar\":null", NULL, NULL},
    {"\"guided_regex\":\"a\",\"grammar\":\"root ::= x\"", "grammar",
     "'grammar' and 'guided_regex' both constrain"},
    {"\"guided_choice\":[\"a\",1]", "guided_choice", "an array of strings, but it is a number"},
    {"\"json_schema\":true", "json_schema", "an object, or its JSON text"},
    {"\"response_format\":{\"type\":\"json\"}", "response_format", "must have the 'type'"},
    {"\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema.schema",
     "is missing"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":1}",
     "response_format.json_schema", "must be an object"},
    {"\"response_format\":{\"type\":\"json_object\",\"schema\":5}", "response_format.schema",
     "must be an object"},
    {"\"response_format\":{\"type\":\"json_object\"},\"structured_outputs\":{\"regex\":\"a\"}",
     "structured_outputs.regex", "both constrain the answer"},
    {"\"structured_outputs\":{\"regex\":\"a\",\"json\":{}}", "structured_outputs",
     "exactly one of"},
    {"\"structured_outputs\":{\"regex\":\"a\",\"json\":null}", NULL, NULL},
    {"\"structured_outputs\":{\"json_object\":false},\"guided_regex\":\"a\"", NULL, NULL},
    {"\"structured_outputs\":{\"json_object\":1}", "structured_outputs.json_object",
     "must be true"},
    {"\"structured_outputs\":{\"regexp\":\"a\"}", "structured_outputs.regexp", "is not known"},
    {"\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\"\"}",
     "structured_outputs.whitespace_pattern", "not served"},
    {"\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":true}",
     "structured_outputs.disable_any_whitespace", "not served"},
    {"\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":false,"
     "\"disable_fallback\":true}",
     NULL, NULL},
    {"\"structured_outputs\":{\"json\":{},\"strict\":true}", NULL, NULL},
    {"\"structured_outputs\":{\"json\":{},\"strict\":1}", "structured_outputs.strict", "a boolean"},
    {"\"structured_outputs\":{\"strict\":true}", "structured_outputs", "exactly one of"},
    {"\"structured_outputs\":{\"json\":null}", "structured_outputs", "exactly one of"},
    {"\"structured_outputs\":{}", "structured_outputs", "exactly one of"},
    {"\"structured_outputs\":{\"json_object\":false}", NULL, NULL},
    {"\"use_beam_search\":true,\"guided_regex\":\"a\"", "guided_regex",
     "together with 'use_beam_search'"},
    {"\"n_predict\":4,\"max_tokens\":4", "n_predict", "another name of 'max_tokens'"},
    {"\"n_predict\":4,\"max_tokens\":null", NULL, NULL},
    {"\"n_predict\":0", "n_predict", "must be at least 1"},
    {"\"n_predict\":-2", "n_predict", "at least -1"},
    {"\"n_cmpl\":2,\"n\":2", "n_cmpl", "another name of 'n'"},
    {"\"n_cmpl\":17", "n_cmpl", "between 1 and 16, but it is 17"},
    {"\"repeat_last_n\":-2", "repeat_last_n", "at least -1, but it is -2"},
    {"\"repeat_penalty\":1,\"repetition_penalty\":1", "repeat_penalty", "another name of"},
    {"\"repeat_penalty\":0", "repeat_penalty", "greater than 0"},
    {"\"no_repeat_ngram_size\":257", "no_repeat_ngram_size", "at most 256, but it is 257"},
    {"\"no_repeat_ngram_size\":-1", "no_repeat_ngram_size", "at least 0"},
    {"\"dry_multiplier\":-0.1", "dry_multiplier", "at least 0"},
    {"\"dry_base\":0.9", "dry_base", "at least 1"},
    {"\"dry_allowed_length\":0", "dry_allowed_length", "at least 1 and at most 256"},
    {"\"dry_penalty_last_n\":-2", "dry_penalty_last_n", "at least -1"},
    {"\"dry_sequence_breakers\":[\"a\",1]", "dry_sequence_breakers[1]", "must be a string"},
    {"\"dry_sequence_breakers\":[\"\"]", "dry_sequence_breakers[0]", "an empty string"},
    {"\"lora\":[null]", "lora", "not served"},
    {"\"lora\":[{}]", "lora", "not served"},
    {"\"repeat_last_n\":-1,\"repetition_penalty\":1.1", NULL, NULL},
};

START_TEST(fields_that_depend_on_others) {
    const struct pair *one = &pairs[_i];
    static const struct api *const apis[] = {&api_completions, &api_chat};
    for (int i = 0; i < 2; i++) {
        struct buf body = {0};
        struct err err = {0};
        struct api_request *request = NULL;
        struct json *json;
        buf_puts(&body, i == 0 ? "{\"prompt\":\"x\","
                               : "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],");
        buf_printf(&body, "%s}", one->fields);
        ck_assert_int_eq(json_parse(&json, "The body", body.data, body.length, &err), STATUS_OK);
        enum status status = apis[i]->parse(&request, json, &limits, &err);
        ck_assert_msg((status == STATUS_OK) == !one->param, "%s: %s", one->fields, err.message);
        if (one->param) {
            ck_assert_str_eq(err.param, one->param);
            ck_assert_msg(strstr(err.message, one->says), "%s: %s", one->fields, err.message);
        }
        if (request) api_request_free(request);
        buf_free(&body);
    }
}
END_TEST

/* Other names of the same fields. */
START_TEST(other_names_are_served) {
    static const struct {
        const char *fields;
        int n, completion, chat; /* n, and max_tokens of each API */
    } names[] = {{"\"x\":1", 1, 16, -1},
                 {"\"n_predict\":5,\"n_cmpl\":3", 3, 5, 5},
                 {"\"n_predict\":-1", 1, -1, -1},
                 {"\"max_completion_tokens\":6,\"max_tokens\":7", 1, 6, 6},
                 {"\"max_tokens\":7,\"n\":2", 2, 7, 7}};
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        bool chat = i % 2;
        struct buf body = {0};
        struct err err = {0};
        struct api_request *request = NULL;
        struct json *json;
        buf_puts(&body, chat ? "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                             : "{\"prompt\":\"x\",");
        buf_printf(&body, "%s}", names[i / 2].fields);
        ck_assert_int_eq(json_parse(&json, "The body", body.data, body.length, &err), STATUS_OK);
        const struct api *api = chat ? &api_chat : &api_completions;
        ck_assert_int_eq(api->parse(&request, json, &limits, &err), STATUS_OK);
        ck_assert_int_eq(request->n, names[i / 2].n);
        ck_assert_int_eq(request->max_tokens, chat ? names[i / 2].chat : names[i / 2].completion);
        api_request_free(request);
        buf_free(&body);
    }
}
END_TEST

/* ---- /tokenize ------------------------------------------------------------------------------ */

START_TEST(tokenize_refuses_unserved_fields) {
    static const struct pair bodies[] = {
        {"{\"content\":\"x\",\"prompt\":\"x\"}", "content", "another name of 'prompt'"},
        {"{\"content\":\"x\",\"add_special\":true,\"add_special_tokens\":true}", "add_special",
         "another name"},
        {"{\"prompt\":\"x\",\"parse_special\":false}", "parse_special", "or give true"},
        {"{\"content\":\"x\",\"with_pieces\":true,\"return_token_strs\":true}", "with_pieces",
         "not both"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template\":\"x\"}",
         "chat_template", "not served"},
        {"{\"prompt\":\"x\",\"parse_special\":true,\"with_pieces\":false,\"media_io_kwargs\":{}}",
         NULL, NULL},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        const char *body = bodies[i].fields;
        struct api_tokenize *tokenize;
        struct err err = {0};
        enum status status = api_tokenize_parse(&tokenize, body, strlen(body), &limits, &err);
        ck_assert_msg((status == STATUS_OK) == !bodies[i].param, "%s: %s", body, err.message);
        if (bodies[i].param) {
            ck_assert_str_eq(err.param, bodies[i].param);
            ck_assert_msg(strstr(err.message, bodies[i].says), "%s: %s", body, err.message);
        }
        api_tokenize_free(tokenize);
    }
}
END_TEST

int main(void) {
    limits.tool_format = tool_format_find("hermes");
    limits.reasoning_format = reasoning_format_find("qwen3");
    Suite *suite = suite_create("server_fields");
    TCase *lists = tcase_create("lists"), *others = tcase_create("others");
    tcase_add_loop_test(lists, each_field_has_its_class, 0, N_KNOWN);
    tcase_add_loop_test(others, fields_that_depend_on_others, 0, sizeof pairs / sizeof *pairs);
    tcase_add_test(others, other_names_are_served);
    tcase_add_test(others, tokenize_refuses_unserved_fields);
    suite_add_tcase(suite, lists);
    suite_add_tcase(suite, others);
    return suite_main(suite);
}
