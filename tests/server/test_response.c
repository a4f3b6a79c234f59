/* The answers, byte by byte. Any bytes in a string become valid JSON. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/openai/internal.h"

/* A vocabulary for this test: the writers only ask for a token's bytes and name. */
struct tokenizer {
    int n;
    const char *bytes[8];
    size_t length[8];
};

static const struct tokenizer words = {
    6, {"Hi", " there", "\xF0\x9F", "\x98\x80", "\"\\\n", "Hi"}, {2, 6, 2, 2, 3, 2}};

const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length) {
    bool known = id >= 0 && id < tokenizer->n;
    *length = known ? tokenizer->length[id] : 0;
    return known ? tokenizer->bytes[id] : "";
}

const char *tokenizer_token_name(const struct tokenizer *tokenizer, int32_t id) {
    return id == 1 ? "\xC4\xA0there" : tokenizer->bytes[id];
}

void detokenizer_add(struct detokenizer *detokenizer, int32_t id, struct buf *text) {
    size_t length;
    const char *bytes = tokenizer_token_bytes(detokenizer->tokenizer, id, &length);
    buf_add(text, bytes, length);
}

void detokenizer_finish(struct detokenizer *detokenizer, struct buf *text) {
    (void)detokenizer;
    (void)text;
}

#define FINGERPRINT "\"system_fingerprint\":\"penstock-" PENSTOCK_VERSION "\""
#define COMPLETION_HEAD                                                                            \
    "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":17,\"model\":"                  \
    "\"m\\\"x\"," FINGERPRINT ",\"choices\":["
#define CHUNK_HEAD                                                                                 \
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":17,"            \
    "\"model\":\"m\"," FINGERPRINT ",\"choices\":["
#define USAGE                                                                                      \
    "{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7,"                             \
    "\"prompt_tokens_details\":{\"cached_tokens\":2}}"

static const struct api_usage usage = {3, 4, 2};
static struct buf out;

static struct api_request request_of(const struct api *api) {
    struct api_request request = {.api = api, .created = 17};
    snprintf(request.id, sizeof request.id, "%s1", api->id_prefix);
    return request;
}

static void respond(const struct api_request *request, const char *model,
                    const struct api_choice *choices, int n, const struct api_usage *used) {
    struct api_answer answer = {request, model, &words, NULL};
    request->api->write_response(&out, &answer, choices, n, used);
}

static void write_chunk(const struct api_request *request, const char *model,
                        const struct api_choice *choice, const struct api_usage *used) {
    struct api_answer answer = {request, model, &words, NULL};
    request->api->write_chunk(&out, &answer, choice, used);
}

static void check_out(const char *expected) {
    ck_assert_str_eq(out.data, expected);
    const char *json = strncmp(out.data, "data: ", 6) == 0 ? out.data + 6 : out.data;
    struct json *tree;
    struct err err = {0};
    enum status status = json_parse(&tree, "It", json, strlen(json), &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    json_free(tree);
    buf_clear(&out);
}

/* ---- whole answers -------------------------------------------------------------------------- */

START_TEST(completion_answer) {
    struct api_request request = request_of(&api_completions);
    struct api_choice choices[] = {
        {.index = 0,
         .text = "a\n",
         .length = 2,
         .finish_reason = "stop",
         .stop_string = "\"",
         .stop_id = 5}, /* the string counts, not the token in which it ended */
        {.index = 1, .text = "", .finish_reason = "length", .stop_id = -1},
        {.index = 2, .text = "b", .length = 1, .finish_reason = "stop", .stop_id = 5}};
    respond(&request, "m\"x", choices, 3, &usage);
    check_out(COMPLETION_HEAD "{\"index\":0,\"text\":\"a\\n\",\"logprobs\":null,\"finish_reason\":"
                              "\"stop\",\"stop_reason\":\"\\\"\"},"
                              "{\"index\":1,\"text\":\"\",\"logprobs\":null,\"finish_reason\":"
                              "\"length\",\"stop_reason\":null},"
                              "{\"index\":2,\"text\":\"b\",\"logprobs\":null,\"finish_reason\":"
                              "\"stop\",\"stop_reason\":5}],"
                              "\"usage\":" USAGE "}");
}
END_TEST

START_TEST(chat_answer_with_ids) {
    static const int32_t ids[] = {0, 1}, prompt[] = {4};
    struct api_request request = request_of(&api_chat);
    struct api_choice choice = {
        .text = "Hi there", .length = 8, .finish_reason = "stop", .stop_id = -1};
    choice.ids = ids, choice.n_ids = 2;
    choice.prompt_ids = prompt, choice.n_prompt_ids = 1;
    respond(&request, "m", &choice, 1, &usage);
    check_out(
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":17,\"model\":"
        "\"m\"," FINGERPRINT
        ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hi there\","
        "\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null,"
        "\"token_ids\":[0,1]}],\"usage\":" USAGE ",\"prompt_token_ids\":[4]}");
    request = request_of(&api_completions);
    respond(&request, "m\"x", &choice, 1, &usage);
    check_out(COMPLETION_HEAD
              "{\"index\":0,\"text\":\"Hi there\",\"logprobs\":null,\"finish_reason\":\"stop\","
              "\"stop_reason\":null,\"token_ids\":[0,1],\"prompt_token_ids\":[4]}],"
              "\"usage\":" USAGE "}");
}
END_TEST

/* ---- logprobs ------------------------------------------------------------------------------- */

static struct api_logprob logprob_of(int32_t id, float logprob, int offset) {
    struct api_logprob one = {.text_offset = offset, .has_logprob = true};
    one.sampled.id = id;
    one.sampled.logprob = logprob;
    return one;
}

static void check_logprobs(const struct api *api, const struct api_logprob *logprobs, int n,
                           const char *expected) {
    struct api_choice choice = {.text = "", .logprobs = logprobs, .n_logprobs = n, .stop_id = -1};
    struct api_request request = request_of(api);
    struct buf wanted = {0};
    buf_printf(&wanted, "\"logprobs\":%s,\"finish_reason\":null", expected);
    respond(&request, "m", &choice, 1, &usage);
    ck_assert_msg(strstr(out.data, wanted.data) != NULL, "%s\nis not in\n%s", wanted.data,
                  out.data);
    buf_free(&wanted);
    buf_clear(&out);
}

START_TEST(chat_logprobs) {
    struct api_logprob one = logprob_of(2, -0.5f, 0);
    one.sampled.n_top = 2;
    one.sampled.top[0] = (struct token_logprob){4, -0.25f};
    one.sampled.top[1] = (struct token_logprob){2, -INFINITY};
    check_logprobs(
        &api_chat, &one, 1,
        "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[240,159],"
        "\"top_logprobs\":[{\"token\":\"\\\"\\\\\\n\",\"logprob\":-0.25,\"bytes\":[34,92,10]},"
        "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-9999.0,\"bytes\":[240,159]}]}],\"refusal\":"
        "null}");
    check_logprobs(&api_chat, &one, 0, "{\"content\":[],\"refusal\":null}");
    check_logprobs(&api_chat, NULL, 0, "null");
}
END_TEST

START_TEST(completion_logprobs) {
    struct api_logprob two[2] = {logprob_of(0, 0, 0), logprob_of(2, NAN, 2)};
    two[0].has_logprob = false;
    /* 0 and 5 have the same text, and the chosen token is not among the best */
    two[1].sampled.n_top = 3;
    two[1].sampled.top[0] = (struct token_logprob){0, -1};
    two[1].sampled.top[1] = (struct token_logprob){5, -2};
    two[1].sampled.top[2] = (struct token_logprob){1, -0.1f};
    check_logprobs(&api_completions, two, 2,
                   "{\"text_offset\":[0,2],\"token_logprobs\":[null,-9999.0],"
                   "\"tokens\":[\"Hi\",\"bytes:\\\\xf0\\\\x9f\"],"
                   "\"top_logprobs\":[null,{\"Hi\":-1,\" "
                   "there\":-0.100000001,\"bytes:\\\\xf0\\\\x9f\":-9999.0}]}");
    check_logprobs(&api_completions, two, 0,
                   "{\"text_offset\":[],\"token_logprobs\":[],\"tokens\":[],\"top_logprobs\":[]}");
    check_logprobs(&api_completions, NULL, 0, "null");
}
END_TEST

START_TEST(prompt_logprobs) {
    struct api_logprob three[3] = {logprob_of(0, 0, 0), logprob_of(1, -1, 0), logprob_of(0, -2, 0)};
    struct api_choice choice = {.text = "", .stop_id = -1};
    struct api_request request = request_of(&api_chat);
    request.prompt_logprobs = 2;
    three[0].has_logprob = false;
    three[1].sampled.rank = 1, three[1].sampled.n_top = 3;
    for (int i = 0; i < 3; i++) three[1].sampled.top[i] = (struct token_logprob){1 - i, -1 - i};
    three[2].sampled.rank = 7;
    choice.prompt_logprobs = three, choice.n_prompt_logprobs = 3;
    respond(&request, "m", &choice, 1, &usage);
#define RANKED(logprob, rank, text)                                                                \
    "{\"logprob\":" logprob ",\"rank\":" rank ",\"decoded_token\":\"" text "\"}"
    ck_assert_str_eq(
        strstr(out.data, ",\"prompt_logprobs\":"),
        ",\"prompt_logprobs\":[null,{\"1\":" RANKED("-1", "1", " there") ",\"0\":" RANKED(
            "-2", "2", "Hi") "},{\"0\":" RANKED("-2", "7", "Hi") "}]}");
    buf_clear(&out);
}
END_TEST

START_TEST(logprobs_keep_their_bits) {
    uint32_t state = 1;
    for (int i = 0; i < 20000; i++) {
        state = state * 1664525u + 1013904223u;
        float value = -(float)state / 4.3e8f / (float)(1 + i % 97);
        struct api_logprob one = logprob_of(0, value, 0);
        struct api_choice choice = {.text = "", .logprobs = &one, .n_logprobs = 1};
        struct api_request request = request_of(&api_completions);
        buf_clear(&out);
        respond(&request, "m", &choice, 1, &usage);
        float back = strtof(strstr(out.data, "token_logprobs\":[") + 17, NULL);
        ck_assert(back == value);
    }
    buf_clear(&out);
}
END_TEST

/* ---- streams -------------------------------------------------------------------------------- */

START_TEST(chat_stream) {
    struct api_request request = request_of(&api_chat);
    struct api_choice choice = {.index = 1, .text = "\xC3\xA9", .length = 2, .stop_id = 5};
    api_chat.write_start(&out, &(struct api_answer){&request, "m", &words, NULL}, 1, &usage);
    check_out(CHUNK_HEAD
              "{\"index\":1,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
              "\"finish_reason\":null,\"stop_reason\":null}]}\n\n");
    write_chunk(&request, "m", &choice, NULL);
    check_out(CHUNK_HEAD "{\"index\":1,\"delta\":{\"content\":\"\xC3\xA9\"},\"logprobs\":null,"
                         "\"finish_reason\":null,\"stop_reason\":null}]}\n\n");
    request.include_usage = true;
    choice.length = 0;
    choice.finish_reason = "stop";
    write_chunk(&request, "m", &choice, NULL);
    check_out(CHUNK_HEAD "{\"index\":1,\"delta\":{},\"logprobs\":null,"
                         "\"finish_reason\":\"stop\",\"stop_reason\":5}],\"usage\":null}\n\n");
    write_chunk(&request, "m", NULL, &usage);
    check_out(CHUNK_HEAD "],\"usage\":" USAGE "}\n\n");
    api_chat.write_done(&out, NULL, NULL);
    ck_assert_str_eq(out.data, "data: [DONE]\n\n");
    buf_clear(&out);
}
END_TEST

START_TEST(completion_stream) {
    static const int32_t ids[] = {0}, prompt[] = {4, 4};
    struct api_request request = request_of(&api_completions);
    struct api_choice choice = {.text = "Hi", .length = 2, .ids = ids, .n_ids = 1, .stop_id = -1};
    choice.prompt_ids = prompt, choice.n_prompt_ids = 2;
    request.include_usage = request.continuous_usage_stats = true;
    write_chunk(&request, "m\"x", &choice, &usage);
    check_out("data: " COMPLETION_HEAD "{\"index\":0,\"text\":\"Hi\",\"logprobs\":null,\"finish_"
              "reason\":null,\"stop_reason\":null,"
              "\"token_ids\":[0],\"prompt_token_ids\":[4,4]}],\"usage\":" USAGE "}\n\n");
}
END_TEST

/* ---- the smaller documents ------------------------------------------------------------------ */

START_TEST(errors) {
    struct err err = {0};
    err_set(&err, STATUS_INVALID_REQUEST, "n", "Say \"%s\".", "n");
    api_write_error(&out, &err);
    check_out("{\"error\":{\"message\":\"Say \\\"n\\\".\",\"type\":\"invalid_request_error\","
              "\"param\":\"n\",\"code\":null}}");
    err_set(&err, STATUS_NOT_FOUND, NULL, "\xFF");
    strcpy(err.code, "model_not_found");
    api_chat.write_error_event(&out, NULL, &err);
    ck_assert_str_eq(out.data,
                     "data: {\"error\":{\"message\":\"\xEF\xBF\xBD\",\"type\":\"not_found_error\","
                     "\"param\":null,\"code\":\"model_not_found\"}}\n\ndata: [DONE]\n\n");
    buf_clear(&out);
}
END_TEST

/* A model of /v1/models with the name `id`. */
#define MODEL(id)                                                                                  \
    "{\"id\":\"" id "\",\"object\":\"model\",\"created\":9,\"owned_by\":\"penstock\","             \
    "\"root\":\"m\",\"parent\":null,\"max_model_len\":64,\"type\":\"model\",\"display_name\":"     \
    "\"" id "\",\"created_at\":\"1970-01-01T00:00:09Z\",\"max_input_tokens\":64"
#define PAGE_END(last)                                                                             \
    "],\"has_more\":false,\"first_id\":\"m\",\"last_id\":\"" last "\",\"models\":[]}"

START_TEST(one_list_of_models_has_the_members_of_all_clients) {
    static struct model_config config = {
        .V = 3, .K = 4, .context_length = 99, .n_parameters = 1234567890123, .file_bytes = 5};
    struct api_limits served = {.model = "m", .max_model_len = 64};
    api_write_models(&out, &served, "m", 9);
    check_out(MODEL("m") "}");
    api_write_models(&out, &served, NULL, 9);
    check_out("{\"object\":\"list\",\"data\":[" MODEL("m") "}" PAGE_END("m"));
    served.more = "o\0";
    api_write_models(&out, &served, NULL, 9);
    check_out("{\"object\":\"list\",\"data\":[" MODEL("m") "}," MODEL("o") "}" PAGE_END("o"));
    served.config = &config;
    api_write_models(&out, &served, "o", 9);
    check_out(MODEL("o") ",\"meta\":{\"n_vocab\":3,\"n_ctx\":64,\"n_ctx_train\":99,\"n_embd\":4,"
                         "\"n_params\":1234567890123,\"size\":5}}");
}
END_TEST

START_TEST(documents) {
    static const int32_t ids[] = {0, 1};
    api_write_tokens(&out, &words, ids, 2, 64, TOKENS_AND_NAMES);
    check_out("{\"count\":2,\"max_model_len\":64,\"tokens\":[0,1],\"token_strs\":[\"Hi\","
              "\"\xC4\xA0there\"]}");
    api_write_tokens(&out, &words, ids, 0, 64, TOKENS_AND_NAMES);
    check_out("{\"count\":0,\"max_model_len\":64,\"tokens\":[],\"token_strs\":[]}");
    api_write_tokens(&out, &words, ids, 1, 64, TOKENS_ONLY);
    check_out("{\"count\":1,\"max_model_len\":64,\"tokens\":[0],\"token_strs\":null}");
    api_write_detokenized(&out, &words, ids, 2);
    check_out("{\"prompt\":\"Hi there\",\"content\":\"Hi there\"}");
    api_write_tokens(&out, &words, ids, 2, 64, TOKENS_WITH_PIECES);
    check_out("{\"count\":2,\"max_model_len\":64,\"tokens\":[{\"id\":0,\"piece\":\"Hi\"},{\"id\":1,"
              "\"piece\":\" there\"}],\"token_strs\":null}");
    api_write_tokens(&out, &words, (int32_t[]){2}, 1, 64, TOKENS_WITH_PIECES);
    check_out("{\"count\":1,\"max_model_len\":64,\"tokens\":[{\"id\":2,\"piece\":[240,159]}],"
              "\"token_strs\":null}");
}
END_TEST

/* A bound follows from the ids only, and is near the size for usual texts. */
START_TEST(answers_are_no_longer_than_their_bounds) {
    int32_t ids[1000];
    for (int n = 0; n <= 1000; n += 125) {
        for (int i = 0; i < n; i++) ids[i] = i % words.n;
        for (int form = TOKENS_ONLY; form <= TOKENS_WITH_PIECES; form++) {
            buf_clear(&out);
            api_write_tokens(&out, &words, ids, n, INT32_MAX, (enum token_form)form);
            size_t bound = api_tokens_bound(&words, ids, n, (enum token_form)form);
            ck_assert_uint_le(out.length, bound);
            ck_assert_uint_le(bound, 8 * out.length + 512);
        }
        buf_clear(&out);
        api_write_detokenized(&out, &words, ids, n);
        size_t bound = api_detokenized_bound(&words, ids, n);
        ck_assert_uint_le(out.length, bound);
        ck_assert_uint_le(bound, 3 * out.length + 512);
    }
    buf_clear(&out);
}
END_TEST

/* The last byte may complete a character that the string cuts. */
START_TEST(a_string_is_no_longer_than_its_bound) {
    for (int i = 0; i < 2 * 256 * 256; i++) {
        const char text[] = {(char)(i >> 8), (char)i, i >> 16 ? '\xA9' : 'x'};
        for (size_t n = 0; n <= sizeof text; n++) {
            buf_clear(&out);
            json_write_string(&out, text, n);
            ck_assert_uint_le(out.length, json_string_bound(text, n));
        }
    }
    buf_clear(&out);
}
END_TEST

#define RENDERED(id, tokens, params)                                                               \
    "{\"request_id\":\"" id "\",\"token_ids\":" tokens                                             \
    ",\"features\":null,\"sampling_params\":{" params                                              \
    "},\"model\":\"m\",\"stream\":false,\"priority\":0}"
#define REALS                                                                                      \
    "\"temperature\":0.7,\"top_p\":0.95,\"top_k\":0,\"min_p\":0,"                                  \
    "\"top_n_sigma\":0,\"typical_p\":0,\"epsilon_cutoff\":0,\"eta_cutoff\":0,"                     \
    "\"xtc_probability\":0,\"xtc_threshold\":0,\"mirostat\":0,\"mirostat_tau\":0,"                 \
    "\"mirostat_eta\":0,\"presence_penalty\":0,"                                                   \
    "\"frequency_penalty\":0,\"repetition_penalty\":1,\"repeat_last_n\":null,"                     \
    "\"no_repeat_ngram_size\":0,\"dry_multiplier\":0,\"dry_base\":1.75,"                           \
    "\"dry_allowed_length\":2,\"dry_penalty_last_n\":-1,\"prompt_logprobs\":null"
#define FLAGS                                                                                      \
    "\"min_tokens\":0,\"ignore_eos\":false,\"include_stop_str_in_output\":false,"                  \
    "\"skip_special_tokens\":true,"

static struct api_request rendered_request(const struct api *api) {
    struct api_request request = request_of(api);
    request.n = 2;
    request.skip_special_tokens = true;
    request.prompt_logprobs = -1;
    request.repeat_last_n = -2;
    request.sampling = (struct sampling){.temperature = 0.7f,
                                         .top_p = 0.95f,
                                         .repetition_penalty = 1,
                                         .dry_base = 1.75f,
                                         .dry_allowed_length = 2,
                                         .dry_last_n = -1,
                                         .n_logprobs = -1};
    return request;
}

/* Fields that were not requested are null. A completion's answer is a list. */
START_TEST(rendered_prompts) {
    static const int32_t ids[] = {5, 6, 7};
    struct generation first = {.prompt = ids, .n_prompt = 3, .max_tokens = 9};
    struct generation second = {.prompt = ids, .n_prompt = 1, .max_tokens = 9};
    struct api_request request = rendered_request(&api_completions);
    struct api_answer answer = {&request, "m", &words, NULL};
    api_write_rendered(&out, &answer, (const struct generation *const[]){&first, &second}, 2);
#define PARAMS                                                                                     \
    "\"n\":2,\"max_tokens\":9," FLAGS REALS                                                        \
    ",\"seed\":null,\"logprobs\":null,\"logit_bias\":null,\"stop\":[],\"stop_token_ids\":[],"      \
    "\"bad_words\":[],\"structured_outputs\":null"
    check_out("[" RENDERED("cmpl-1", "[5,6,7]", PARAMS) "," RENDERED("cmpl-1", "[5]", PARAMS) "]");
}
END_TEST

/* A chat's answer is one object. */
START_TEST(a_rendered_chat) {
    static const int32_t ids[] = {5};
    static const struct logit_bias bias[] = {{3, -1.5f}, {4, 100}};
    struct generation generation = {.prompt = ids, .n_prompt = 1, .max_tokens = 9};
    struct api_request request = rendered_request(&api_chat);
    struct api_answer answer = {&request, "m", &words, NULL};
    request.has_seed = true;
    request.sampling.seed = (uint64_t)-7;
    request.sampling.n_logprobs = 3;
    request.sampling.bias = bias;
    request.sampling.n_bias = 2;
    request.n_bad_words = 1;
    request.bad_words = mem_calloc(1, sizeof *request.bad_words);
    request.bad_words[0].text = "no";
    request.bad_words[0].length = 2;
    struct api_text breakers[] = {{"\n", 1}, {":", 1}};
    request.dry_breakers = breakers;
    request.n_dry_breakers = 2;
    request.n_stops = 2;
    request.stops[0].text = request.stops[1].text = "a\"b";
    request.stops[0].length = 3;
    request.stops[1].length = 1;
    request.n_stop_ids = 1;
    request.stop_ids[0] = 8;
    api_write_rendered(&out, &answer, (const struct generation *const[]){&generation}, 1);
    check_out(RENDERED("chatcmpl-1", "[5]",
                       "\"n\":2,\"max_tokens\":9," FLAGS REALS
                       ",\"seed\":-7,\"logprobs\":3,\"logit_bias\":{\"3\":-1.5,\"4\":100},"
                       "\"stop\":[\"a\\\"b\",\"a\"],\"stop_token_ids\":[8],"
                       "\"bad_words\":[\"no\"],\"dry_sequence_breakers\":[\"\\n\",\":\"],"
                       "\"structured_outputs\":null"));
    free(request.bad_words);
}
END_TEST

/* A schema and other texts as text; a choice and an object as they are. */
START_TEST(rendered_grammars) {
    static const struct {
        struct api_grammar grammar;
        const char *written;
    } cases[] = {
        {{"f", GRAMMAR_JSON_SCHEMA, "{\"type\":1}", 10}, "{\"json\":\"{\\\"type\\\":1}\"}"},
        {{"f", GRAMMAR_JSON_SCHEMA_STRICT, "{}", 2}, "{\"json\":\"{}\",\"strict\":true}"},
        {{"f", GRAMMAR_JSON_OBJECT, "", 0}, "{\"json_object\":true}"},
        {{"f", GRAMMAR_REGEX, "a\\d", 3}, "{\"regex\":\"a\\\\d\"}"},
        {{"f", GRAMMAR_CHOICE, "[\"a\"]", 5}, "{\"choice\":[\"a\"]}"},
        {{"f", GRAMMAR_GBNF, "root ::= x", 10}, "{\"grammar\":\"root ::= x\"}"},
        {{"f", GRAMMAR_STRUCTURAL_TAG, "{}", 2}, "{\"structural_tag\":\"{}\"}"},
    };
    static const int32_t ids[] = {5};
    struct generation generation = {.prompt = ids, .n_prompt = 1, .max_tokens = 9};
    struct api_request request = rendered_request(&api_chat);
    struct api_answer answer = {&request, "m", &words, NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        request.grammar = cases[i].grammar;
        api_write_rendered(&out, &answer, (const struct generation *const[]){&generation}, 1);
        ck_assert_uint_le(
            out.length,
            api_rendered_bound(answer.request, (const struct generation *const[]){&generation}, 1));
        buf_add(&out, "", 1);
        const char *at = strstr(out.data, "\"structured_outputs\":");
        ck_assert(at &&
                  strncmp(strchr(at, ':') + 1, cases[i].written, strlen(cases[i].written)) == 0);
        buf_clear(&out);
    }
}
END_TEST

/* ---- strings -------------------------------------------------------------------------------- */

static void check_string(const char *text, size_t length, const char *expected) {
    json_write_string(&out, text, length);
    check_out(expected);
}

START_TEST(strings_are_escaped) {
    check_string("", 0, "\"\"");
    check_string("a\"b\\c/\x7f", 7, "\"a\\\"b\\\\c/\x7f\"");
    check_string("\x01\b\t\n\f\r\x1f", 7, "\"\\u0001\\u0008\\t\\n\\u000c\\r\\u001f\"");
    check_string("\xE2\x82\xAC\xF4\x8F\xBF\xBF", 7, "\"\xE2\x82\xAC\xF4\x8F\xBF\xBF\"");
    check_string("\xE2\x82", 2, "\"\xEF\xBF\xBD\""); /* a cut character becomes one mark */
    check_string("\xE2\x82x", 3, "\"\xEF\xBF\xBDx\"");
    check_string("\xC0\x80", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\""); /* overlong: one mark per byte */
    check_string("\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    check_string("\xF4\x90\x80\x80", 4, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    check_string("\xF0\x9F\x98", 3, "\"\xEF\xBF\xBD\"");
}
END_TEST

/* A cut object, or another value, becomes {}. Earlier text stays. */
START_TEST(an_object_is_written_on_one_line) {
    static const struct {
        const char *text, *written;
    } cases[] = {{"{\"a\":\n1,\r\n\"b\": 2\n}", "{\"a\": 1,  \"b\": 2 }"},
                 {"\n{}", " {}"},
                 {"{}\n", "{} "},
                 {"{\"a\":", "{}"},
                 {"[1]", "{}"},
                 {"", "{}"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf text = {0};
        buf_puts(&text, cases[i].text);
        buf_puts(&out, "before\n");
        json_write_object(&out, &text);
        ck_assert(strncmp(out.data, "before\n", 7) == 0);
        ck_assert_str_eq(out.data + 7, cases[i].written);
        buf_clear(&out);
        buf_free(&text);
    }
}
END_TEST

/* A value that is read and written is the same, without white space. */
START_TEST(values_are_written_as_they_were) {
    static const char text[] =
        " { \"b\" : [ 1, -2.5, 1e300, 0.1, 9.95, 0.30000000000000004, 9007199254740993, "
        "-98765432109876543210 ],"
        "\"a\":{},\"a\":null,\"\\u00e9\":\"x\\n\\u0000\",\"t\":[true,[false],[]] } ";
    struct err err;
    struct json *tree;
    ck_assert_int_eq(json_parse(&tree, "It", text, sizeof text - 1, &err), STATUS_OK);
    json_write_value(&out, tree);
    json_free(tree);
    check_out("{\"b\":[1,-2.5,1e+300,0.1,9.95,0.30000000000000004,9007199254740993,"
              "-98765432109876543210],"
              "\"a\":{},\"a\":null,\"\xC3\xA9\":\"x\\n\\u0000\",\"t\":[true,[false],[]]}");
}
END_TEST

START_TEST(any_bytes_give_valid_json) {
    uint32_t state = 7;
    for (int i = 0; i < 20000; i++) {
        char text[24];
        struct err err = {0};
        struct json *tree;
        for (size_t j = 0; j < sizeof text; j++) {
            state = state * 1664525u + 1013904223u;
            text[j] = (char)(state >> 24);
        }
        buf_clear(&out);
        json_write_string(&out, text, state % sizeof text);
        ck_assert(utf8_valid_prefix(out.data, out.length) == out.length);
        ck_assert_int_eq(json_parse(&tree, "It", out.data, out.length, &err), STATUS_OK);
        json_free(tree);
    }
    buf_clear(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_api_write");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 30);
    tcase_add_test(core, completion_answer);
    tcase_add_test(core, chat_answer_with_ids);
    tcase_add_test(core, chat_logprobs);
    tcase_add_test(core, completion_logprobs);
    tcase_add_test(core, prompt_logprobs);
    tcase_add_test(core, logprobs_keep_their_bits);
    tcase_add_test(core, chat_stream);
    tcase_add_test(core, completion_stream);
    tcase_add_test(core, errors);
    tcase_add_test(core, one_list_of_models_has_the_members_of_all_clients);
    tcase_add_test(core, documents);
    tcase_add_test(core, rendered_prompts);
    tcase_add_test(core, a_rendered_chat);
    tcase_add_test(core, strings_are_escaped);
    tcase_add_test(core, an_object_is_written_on_one_line);
    tcase_add_test(core, rendered_grammars);
    tcase_add_test(core, values_are_written_as_they_were);
    tcase_add_test(core, any_bytes_give_valid_json);
    tcase_add_test(core, answers_are_no_longer_than_their_bounds);
    tcase_add_test(core, a_string_is_no_longer_than_its_bound);
    suite_add_tcase(suite, core);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    buf_free(&out);
    return failed > 0;
}
