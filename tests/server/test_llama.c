/* llama-server's /completion: its fields are those of /v1/completions, its answers are its own. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/llama/llama.h"
#include "support/request_reader.h"
#include "support/suite_main.h"

static const struct api_usage usage = {.prompt_tokens = 3,
                                       .completion_tokens = 4,
                                       .cached_tokens = 1,
                                       .prompt_ns = 4000000,
                                       .generation_ns = 2000000};
static struct buf out;

#define TIMINGS                                                                                    \
    "\"timings\":{\"prompt_n\":2,\"prompt_ms\":4.000,\"prompt_per_token_ms\":2.000,"               \
    "\"prompt_per_second\":500.000,\"predicted_n\":4,\"predicted_ms\":2.000,"                      \
    "\"predicted_per_token_ms\":0.500,\"predicted_per_second\":2000.000}}"
#define END(type, word)                                                                            \
    "\"stop\":true,\"model\":\"m\",\"tokens_predicted\":4,\"tokens_evaluated\":3,"                 \
    "\"tokens_cached\":1,\"generation_settings\":{\"n_predict\":-1,\"seed\":7,\"temperature\":1,"  \
    "\"top_k\":0,\"top_p\":1,\"min_p\":0,\"repeat_penalty\":1,\"stream\":false},\"truncated\":"    \
    "false,\"stop_type\":\"" type "\",\"stopping_word\":\"" word "\"," TIMINGS

static struct api_request request = {
    .api = &api_llama_completion,
    .max_tokens = -1,
    .sampling = {.seed = 7, .temperature = 1, .top_p = 1, .repetition_penalty = 1}};
static const struct api_answer answer = {&request, "m", NULL, NULL};

static void check_out(const char *expected) {
    ck_assert_str_eq(out.length > 0 ? out.data : "", expected);
    buf_clear(&out);
}

/* ---- requests ------------------------------------------------------------------------------- */

START_TEST(fields_have_other_names) {
    struct api_request *read = request_expect(
        &api_llama_completion, "{\"prompt\":\"a\",\"n_probs\":3,\"return_tokens\":true,"
                               "\"n_predict\":5,\"id_slot\":-1,\"cache_prompt\":true}");
    ck_assert_ptr_eq(read->api, &api_llama_completion);
    ck_assert_int_eq(read->sampling.n_logprobs, 3);
    ck_assert_int_eq(read->max_tokens, 5);
    ck_assert(read->return_token_ids && !read->stream);
    api_request_free(read);
}
END_TEST

START_TEST(a_missing_maximum_is_the_context) {
    static const char *const bodies[] = {"{\"prompt\":\"a\"}",
                                         "{\"prompt\":\"a\",\"n_predict\":-1}",
                                         "{\"prompt\":\"a\",\"n_probs\":0}"};
    struct api_request *read = request_expect(&api_llama_completion, bodies[_i]);
    ck_assert_int_eq(read->max_tokens, -1);
    ck_assert_int_eq(read->sampling.n_logprobs, -1);
    api_request_free(read);
}
END_TEST

START_TEST(bad_bodies_are_refused_by_name) {
    static const char *const bodies[][2] = {{"3", ""},
                                            {"{}", "prompt"},
                                            {"{\"prompt\":\"a\",\"temperature\":9}", "temperature"},
                                            {"{\"prompt\":\"a\",\"n_probs\":\"b\"}", "logprobs"}};
    struct api_request *read;
    struct err err = {0};
    const char *body = bodies[_i][0];
    request_read(&read, &api_llama_completion, body, strlen(body), &request_limits, &err);
    ck_assert_ptr_null(read);
    ck_assert_str_eq(err.param, bodies[_i][1]);
}
END_TEST

/* ---- /infill -------------------------------------------------------------------------------- */

static enum status read_infill(struct api_request **read, const char *body, bool can_infill,
                               struct err *err) {
    struct api_limits limits = request_limits;
    limits.can_infill = can_infill;
    *err = (struct err){0};
    return request_read(read, &api_llama_infill, body, strlen(body), &limits, err);
}

START_TEST(the_text_before_a_gap_ends_with_the_prompt) {
    struct api_request *read;
    struct err err;
    const char *body =
        "{\"input_prefix\":\"a\",\"prompt\":\"b\",\"input_suffix\":\"c\",\"n_predict\":4,"
        "\"samplers\":[\"infill\"],\"t_max_predict_ms\":5,\"input_extra\":[{\"text\":\"d\"}]}";
    ck_assert_int_eq(read_infill(&read, body, true, &err), STATUS_OK);
    const struct api_prompt *prompt = read->prompts;
    ck_assert(prompt->infills && json_count(prompt->extra) == 1 && read->max_tokens == 4);
    ck_assert_str_eq(prompt->text, "ab");
    ck_assert_str_eq(prompt->suffix, "c");
    api_request_free(read);
    ck_assert_int_eq(
        read_infill(&read, "{\"input_prefix\":\"\",\"input_suffix\":\"\"}", true, &err), STATUS_OK);
    ck_assert(read->prompts->infills && read->prompts->length == 0 && read->max_tokens == -1);
    api_request_free(read);
}
END_TEST

START_TEST(infill_refuses_by_name) {
    static const struct {
        const char *body, *param;
        bool can_infill;
    } bodies[] = {
        {"{\"input_prefix\":\"a\",\"input_suffix\":\"b\"}", "input_suffix", false},
        {"{\"input_suffix\":\"b\"}", "input_prefix", true},
        {"{\"input_prefix\":\"a\",\"input_suffix\":null}", "input_suffix", true},
        {"{\"input_prefix\":1,\"input_suffix\":\"b\"}", "input_prefix", true},
        {"{\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"prompt\":[\"c\"]}", "prompt", true},
        {"{\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"input_extra\":[3]}", "input_extra[0]",
         true},
        {"{\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"echo\":true}", "echo", true},
        {"[]", "", true},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct api_request *read;
        struct err err;
        ck_assert(read_infill(&read, bodies[i].body, bodies[i].can_infill, &err));
        ck_assert_str_eq(err.param, bodies[i].param);
    }
}
END_TEST

/* ---- answers -------------------------------------------------------------------------------- */

START_TEST(one_choice_is_an_object) {
    struct api_choice choice = {.text = "a", .length = 1, .finish_reason = "stop", .stop_id = -1};
    api_llama_completion.write_response(&out, &answer, &choice, 1, &usage);
    check_out("{\"index\":0,\"content\":\"a\",\"tokens\":[],\"id_slot\":-1," END("eos", ""));
    choice.stop_string = "q";
    api_llama_completion.write_response(&out, &answer, &choice, 1, &usage);
    check_out("{\"index\":0,\"content\":\"a\",\"tokens\":[],\"id_slot\":-1," END("word", "q"));
}
END_TEST

START_TEST(several_choices_are_a_list) {
    struct api_choice choices[2] = {{.text = "a", .length = 1, .finish_reason = "length"},
                                    {.index = 1, .text = "", .finish_reason = "length"}};
    api_llama_completion.write_response(&out, &answer, choices, 2, &usage);
    check_out("[{\"index\":0,\"content\":\"a\",\"tokens\":[],\"id_slot\":-1," END(
        "limit", "") ",{\"index\":1,\"content\":\"\",\"tokens\":[],\"id_slot\":-1," END("limit",
                                                                                        "") "]");
}
END_TEST

START_TEST(a_stream_ends_with_its_choice) {
    static const int32_t ids[] = {5};
    struct api_choice choice = {.text = "a", .length = 1, .ids = ids, .n_ids = 1};
    api_llama_completion.write_chunk(&out, &answer, &choice, &usage);
    check_out("data: {\"index\":0,\"content\":\"a\",\"tokens\":[5],\"id_slot\":-1,\"stop\":false,"
              "\"tokens_predicted\":4,\"tokens_evaluated\":3}\n\n");
    choice = (struct api_choice){.text = "", .finish_reason = "length"};
    api_llama_completion.write_chunk(&out, &answer, &choice, &usage);
    check_out("data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"id_slot\":-1," END("limit",
                                                                                      "") "\n\n");
    api_llama_completion.write_done(&out, &answer, &usage);
    check_out("");
}
END_TEST

/* Returns a vocabulary of three tokens. */
static struct tokenizer *three_tokens(int32_t bos, int32_t eos) {
    static const char *const tokens[] = {"<s>", "a", "</s>"};
    static const uint32_t lengths[] = {3, 1, 4};
    static const int32_t types[] = {TOKEN_CONTROL, TOKEN_NORMAL, TOKEN_CONTROL};
    const struct tokenizer_spec spec = {.kind = TOKENIZER_BYTE_BPE,
                                        .n_tokens = 3,
                                        .token = tokens,
                                        .token_length = lengths,
                                        .type = types,
                                        .bos = bos,
                                        .eos = eos,
                                        .unknown = -1};
    struct tokenizer *tokenizer;
    ck_assert_int_eq(tokenizer_new(&tokenizer, &spec, NULL), STATUS_OK);
    return tokenizer;
}

/* JSON cannot express infinity, so an impossible token gets -1e30. */
START_TEST(each_token_has_its_logprob_and_its_bytes) {
    struct tokenizer *tokenizer = three_tokens(-1, -1);
    const struct api_answer with_tokens = {&request, "m", tokenizer, NULL};
    const struct api_logprob logprobs[] = {
        {.sampled = {.id = 1, .logprob = -0.5f, .n_top = 2, .top = {{1, -0.5f}, {1, -INFINITY}}}},
        {.sampled = {.id = 1, .logprob = -2}}};
    const struct api_choice choice = {
        .text = "aa", .length = 2, .logprobs = logprobs, .n_logprobs = 2};
    api_llama_completion.write_chunk(&out, &with_tokens, &choice, &usage);
#define A(logprob) "{\"id\":1,\"token\":\"a\",\"logprob\":" logprob ",\"bytes\":[97]"
    ck_assert_ptr_nonnull(
        strstr(out.data, "\"completion_probabilities\":[" A("-0.5") ",\"top_logprobs\":[" A(
                             "-0.5") "}," A("-1e+30") "}]}," A("-2") ",\"top_logprobs\":[]}]"));
    buf_clear(&out);
    tokenizer_free(tokenizer);
}
END_TEST

/* ---- descriptions of the server ------------------------------------------------------------- */

START_TEST(props_name_the_tokens_at_both_ends) {
    static const struct {
        int32_t bos, eos;
        const char *expected;
    } rows[] = {{0, 2, "\"bos_token\":\"<s>\",\"eos_token\":\"</s>\""},
                {2, 0, "\"bos_token\":\"</s>\",\"eos_token\":\"<s>\""},
                {-1, -1, "\"bos_token\":\"\",\"eos_token\":\"\""}};
    struct api_limits limits = {.model = "m", .max_model_len = 64};
    struct tokenizer *tokenizer = three_tokens(rows[_i].bos, rows[_i].eos);
    const struct llama_card card = {.limits = &limits, .n_slots = 2, .tokenizer = tokenizer};
    llama_write_props(&out, &card);
    ck_assert_msg(strstr(out.data, rows[_i].expected), "%s", out.data);
    buf_clear(&out);
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(slots_say_how_many_are_busy_and_nothing_else) {
    struct api_limits limits = {.model = "m", .max_model_len = 64};
    struct llama_card card = {.limits = &limits, .n_slots = 2};
    llama_write_slots(&out, &card, 1);
    check_out("[{\"id\":0,\"n_ctx\":64,\"is_processing\":true},{\"id\":1,\"n_ctx\":64,"
              "\"is_processing\":false}]");
}
END_TEST

START_TEST(a_rendered_prompt) {
    llama_write_prompt(&out, "a\"", 2);
    check_out("{\"prompt\":\"a\\\"\"}");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_llama");
    TCase *tests = tcase_create("core");
    tcase_add_test(tests, fields_have_other_names);
    tcase_add_loop_test(tests, a_missing_maximum_is_the_context, 0, 3);
    tcase_add_loop_test(tests, bad_bodies_are_refused_by_name, 0, 4);
    tcase_add_test(tests, one_choice_is_an_object);
    tcase_add_test(tests, several_choices_are_a_list);
    tcase_add_test(tests, a_stream_ends_with_its_choice);
    tcase_add_test(tests, each_token_has_its_logprob_and_its_bytes);
    tcase_add_loop_test(tests, props_name_the_tokens_at_both_ends, 0, 3);
    tcase_add_test(tests, slots_say_how_many_are_busy_and_nothing_else);
    tcase_add_test(tests, a_rendered_prompt);
    tcase_add_test(tests, the_text_before_a_gap_ends_with_the_prompt);
    tcase_add_test(tests, infill_refuses_by_name);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
