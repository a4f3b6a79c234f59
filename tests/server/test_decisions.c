/* Decisions, the same by name, and rankings: the questions of a body become prompts, each with its
 * labels, and the logprobs that are read become its answer. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "server/decisions/decisions.h"
#include "support/request_reader.h"
#include "support/suite_main.h"

static struct api_limits limits;
static struct tokenizer *vocabulary;
static struct api_request *request;
static struct buf out;

/* A vocabulary of labels: "yes" is 0, "no" 1, A to C 2 to 4, AA 5, the digits 0 to 2 are 6 to 8. */
static void set_up(void) {
    static const char *const token[] = {"yes", "no", "A", "B", "C", "AA", "0", "1", "2"};
    enum { N = sizeof token / sizeof *token };
    uint32_t length[N];
    for (int i = 0; i < N; i++) length[i] = (uint32_t)strlen(token[i]);
    const struct tokenizer_spec spec = {.kind = TOKENIZER_BYTE_BPE,
                                        .n_tokens = N,
                                        .token = token,
                                        .token_length = length,
                                        .bos = -1,
                                        .eos = -1,
                                        .unknown = -1,
                                        .ignore_merges = true};
    ck_assert_int_eq(tokenizer_new(&vocabulary, &spec, NULL), STATUS_OK);
    limits = request_limits;
    limits.tokenizer = vocabulary;
    limits.takes_system = true;
}

static void tear_down(void) {
    buf_free(&out);
    tokenizer_free(vocabulary);
}

static void ask(const struct api *api, const char *body) {
    struct err err = {0};
    enum status status = request_read(&request, api, body, strlen(body), &limits, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", body, err.message);
}

static void expect_refused(const struct api *api, const char *body, const char *param,
                           const char *words) {
    struct err err = {0};
    ck_assert(request_read(&request, api, body, strlen(body), &limits, &err));
    ck_assert_str_eq(err.param, param);
    ck_assert_msg(strstr(err.message, words), "%s", err.message);
}

static void expect_prompt(int i, const char *question, const int32_t *ids, int n) {
    const struct api_prompt *prompt = &request->prompts[i];
    ck_assert_uint_eq(prompt->question_length, strlen(question));
    ck_assert_mem_eq(prompt->question, question, strlen(question));
    ck_assert_int_eq(prompt->n_read_ids, n);
    for (int k = 0; k < n; k++) ck_assert_int_eq(prompt->read_ids[k], ids[k]);
}

/* Answers each prompt with the logprobs of its row of probabilities, and frees the request. */
static void expect_answer(double (*probability)[3], const char *expected) {
    static const struct api_usage usage = {.prompt_tokens = 9, .cached_tokens = 4};
    struct token_logprob read[8][3];
    struct api_choice choice[8] = {0};
    const struct api_answer answer = {.request = request, .model = "m", .limits = &limits};
    strcpy(request->id, "i");
    for (int i = 0; i < request->n_prompts; i++) {
        const struct api_prompt *prompt = &request->prompts[i];
        for (int k = 0; k < prompt->n_read_ids; k++)
            read[i][k] = (struct token_logprob){prompt->read_ids[k], (float)log(probability[i][k])};
        choice[i] = (struct api_choice){.index = i, .read = read[i]};
    }
    buf_clear(&out);
    request->api->write_response(&out, &answer, choice, request->n_prompts, &usage);
    ck_assert_str_eq(out.data, expected);
    api_request_free(request);
}

static const int32_t yes_no[] = {0, 1}, letters[] = {2, 3, 4}, digits[] = {6, 7, 8};
/* Their logarithms are exact. */
static double read_probability[][3] = {{1, 1}, {0, 1, 0}, {1, 0, 1}};

#define CHOICE_TEXT                                                                                \
    "Answer with the letter of one option only.\n\nb\n\nOptions:\nA) x: d\nB) true\nC) z"
#define SCORE_TEXT "Answer with the number of one level only.\n\nc\n\nLevels:\n0) x\n1) y\n2) z"

START_TEST(each_question_has_its_labels_and_its_answer) {
    ask(&api_decisions,
        "{\"input\":\"i\",\"questions\":[{\"type\":\"predicate\",\"instructions\":\"a\",\"name\":"
        "\"n\"},{\"type\":\"choice\",\"instructions\":\"b\",\"choices\":[{\"value\":\"x\","
        "\"description\":\"d\"},{\"value\":true},{\"value\":\"z\"}]},{\"type\":\"score\","
        "\"instructions\":\"c\",\"levels\":[{\"label\":\"x\"},{\"label\":\"y\"},{\"label\":\"z\"}]"
        "}]}");
    ck_assert_int_eq(request->n_prompts, 3);
    expect_prompt(0, "Is this true? Answer with yes or no only.\n\na", yes_no, 2);
    expect_prompt(1, CHOICE_TEXT, letters, 3);
    expect_prompt(2, SCORE_TEXT, digits, 3);
    expect_answer(
        read_probability,
        "{\"model\":\"m\",\"answers\":[{\"type\":\"predicate\",\"name\":\"n\",\"probability\":0.5"
        "},{\"type\":\"choice\",\"name\":null,\"choice\":true,\"probabilities\":[{\"value\":\"x\","
        "\"probability\":0},{\"value\":true,\"probability\":1},{\"value\":\"z\","
        "\"probability\":0}],\"confidence\":1},{\"type\":\"score\",\"name\":null,\"score\":1,"
        "\"probabilities\":[{\"value\":0,\"label\":\"x\",\"probability\":0.5},{\"value\":1,"
        "\"label\":\"y\",\"probability\":0},{\"value\":2,\"label\":\"z\",\"probability\":0.5}],"
        "\"confidence\":0.5}],\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{"
        "\"cached_tokens\":4,\"cache_write_tokens\":0},\"output_tokens\":0,"
        "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":9}}");
}
END_TEST

START_TEST(questions_by_name_have_the_same_prompts) {
    ask(&api_systemone,
        "{\"model\":\"m\",\"state\":{\"s\":1},\"questions\":{\"p\":{\"type\":\"noul\","
        "\"instructions\":\"a\",\"criteria\":{\"false\":\"f\",\"true\":[1]}},\"q\":{\"type\":"
        "\"choice\",\"instructions\":\"b\",\"criteria\":{\"x\":\"d\",\"true\":null,\"z\":null}},"
        "\"r\":{\"type\":\"score\",\"instructions\":\"c\",\"criteria\":[\"x\",\"y\",\"z\"]}}}");
    ck_assert_int_eq(request->n_prompts, 3);
    expect_prompt(0, "Is this true? Answer with yes or no only.\n\na\nyes: [1]\nno: f", yes_no, 2);
    expect_prompt(1, CHOICE_TEXT, letters, 3);
    expect_prompt(2, SCORE_TEXT, digits, 3);
    const struct json *state = json_first(request->prompts[0].messages);
    ck_assert_str_eq(json_text(json_member(state, "content")), "{\"s\":1}");
    expect_answer(read_probability,
                  "{\"model\":\"m\",\"answers\":{\"p\":{\"type\":\"noul\",\"noul\":0.5},\"q\":{"
                  "\"type\":\"choice\",\"choice\":\"true\",\"confidence\":1,\"probabilities\":{"
                  "\"x\":0,\"true\":1,\"z\":0}},\"r\":{\"type\":\"score\",\"score\":1,"
                  "\"confidence\":0.5,\"legend\":{\"0\":\"x\",\"1\":\"y\",\"2\":\"z\"},"
                  "\"probabilities\":{\"0\":0.5,\"1\":0,\"2\":0.5}}},\"usage\":{"
                  "\"input_tokens\":9,\"output_tokens\":0}}");
}
END_TEST

START_TEST(documents_are_ranked_by_their_own_scores) {
    double probability[][3] = {{1, 1}, {1, 0}, {1, 1}};
    ask(&api_rerank,
        "{\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"b\"},\"c\"],\"instruction\":\"i\"}");
    expect_prompt(1, "<Instruct>: i\n<Query>: q\n<Document>: b", yes_no, 2);
    expect_answer(probability,
                  "{\"id\":\"i\",\"model\":\"m\",\"results\":[{\"index\":1,\"document\":{\"text\":"
                  "\"b\"},\"relevance_score\":1},{\"index\":0,\"document\":{\"text\":\"a\"},"
                  "\"relevance_score\":0.5},{\"index\":2,\"document\":{\"text\":\"c\"},"
                  "\"relevance_score\":0.5}],\"usage\":{\"prompt_tokens\":9,\"total_tokens\":9}}");
}
END_TEST

/* The first prompts are the queries: one, or one for each document. */
static void expect_cosines(const char *queries, int n_queries, const char *expected) {
    static const double sum[][2] = {{3, 0}, {0, 2}, {0, 5}, {4, 3}};
    const struct api_usage usage = {.prompt_tokens = 9};
    struct api_choice choice[4];
    buf_clear(&out);
    buf_printf(&out, "{\"text_1\":%s,\"text_2\":[\"c\",\"d\"]}", queries);
    ask(&api_score, out.data);
    ck_assert_int_eq(request->n_queries, n_queries);
    ck_assert_int_eq(request->n_prompts, n_queries + 2);
    ck_assert_str_eq(request->prompts[n_queries].text, "c");
    for (int i = 0; i < n_queries + 2; i++) /* the documents have the last two vectors */
        choice[i] = (struct api_choice){.index = i,
                                        .n_prompt_tokens = 1,
                                        .hidden_sum = sum[i < n_queries ? i : i + 2 - n_queries]};
    const struct api_answer answer = {.request = request, .model = "m", .limits = &limits};
    buf_clear(&out);
    request->api->write_response(&out, &answer, choice, request->n_prompts, &usage);
    ck_assert_msg(strstr(out.data, expected), "%s", out.data);
    api_request_free(request);
}

START_TEST(embeddings_of_pairs_are_compared) {
    static const struct model_config config = {.is_encoder = true};
    static const struct pooling pooling = {.rows = HIDDEN_FIRST, .is_stated = true};
    limits.config = &config;
    limits.pooling = &pooling;
    limits.hidden_size = limits.embedding_size = 2;
    expect_cosines("\"a\"", 1,
                   "\"data\":[{\"index\":0,\"object\":\"score\",\"score\":0},{\"index\":1,"
                   "\"object\":\"score\",\"score\":0.8}]");
    expect_cosines("[\"a\",\"b\"]", 2,
                   "\"data\":[{\"index\":0,\"object\":\"score\",\"score\":0},{\"index\":1,"
                   "\"object\":\"score\",\"score\":0.6}]");
    expect_refused(&api_score, "{\"text_1\":\"a\",\"text_2\":\"b\",\"instruction\":\"c\"}",
                   "instruction", "compares embeddings");
}
END_TEST

/* A template without a system role gets the task in the user's message. */
START_TEST(the_task_has_a_role_that_the_template_shows) {
    for (int i = 0; i < 2; i++) {
        limits.takes_system = i == 0;
        ask(&api_rerank, "{\"query\":\"q\",\"documents\":[\"a\"]}");
        const struct json *task = json_first(request->prompts[0].messages);
        ck_assert(json_is_text(json_member(task, "role"), i == 0 ? "system" : "user"));
        ck_assert(strstr(json_text(json_member(task, "content")), "Judge whether"));
        api_request_free(request);
    }
}
END_TEST

#define FIVE                                                                                       \
    "[{\"value\":\"a\"},{\"value\":\"b\"},{\"value\":\"c\"},{\"value\":\"d\"},{\"value\":\"e\"}]"
#define LEVELS "[{\"label\":\"a\"},{\"label\":\"b\"},{\"label\":\"c\"},{\"label\":\"d\"}]"

START_TEST(a_question_without_labels_of_one_token_is_refused) {
    expect_refused(&api_decisions,
                   "{\"input\":\"i\",\"questions\":[{\"type\":\"choice\",\"instructions\":\"a\","
                   "\"choices\":" FIVE "}]}",
                   "questions[0].choices", "labels of one token for 4");
    expect_refused(&api_decisions,
                   "{\"input\":\"i\",\"questions\":[{\"type\":\"score\",\"instructions\":\"a\","
                   "\"levels\":" LEVELS "}]}",
                   "questions[0].levels", "labels of one token for 3");
    expect_refused(&api_systemone,
                   "{\"state\":\"i\",\"questions\":{\"x\":{\"type\":\"score\",\"instructions\":"
                   "\"a\",\"criteria\":[\"a\",\"b\",\"c\",\"d\"]}}}",
                   "questions.x.criteria", "'questions.x.criteria' has 4 options");
}
END_TEST

#define DECIDE(input, question) "{\"input\":" input ",\"questions\":[" question "]}"
#define NAMED(state, question) "{\"state\":" state ",\"questions\":{\"q\":" question "}}"
#define ASKED(instructions) "{\"type\":\"predicate\",\"instructions\":" instructions "}"
#define NOUL(instructions) "{\"type\":\"noul\",\"instructions\":" instructions "}"
#define OPTIONS(first)                                                                             \
    "{\"type\":\"choice\",\"instructions\":\"a\",\"choices\":[{\"value\":" first                   \
    "},{\"value\":\"x\"}]}"
#define NAMED_LEVELS(first)                                                                        \
    "{\"type\":\"score\",\"instructions\":\"a\",\"criteria\":[" first ",\"x\"]}"

/* Each field with an empty text, and with a value of a wrong type. */
static const struct {
    const struct api *api;
    const char *param, *empty, *wrong;
} texts[] = {
    {&api_decisions, "input", DECIDE("\"\"", ASKED("\"a\"")), DECIDE("null", ASKED("\"a\""))},
    {&api_decisions, "input", DECIDE("[]", ASKED("\"a\"")), DECIDE("null", ASKED("\"a\""))},
    {&api_decisions, "questions[0].instructions", DECIDE("\"i\"", ASKED("\"\"")),
     DECIDE("\"i\"", ASKED("5"))},
    {&api_decisions, "questions[0].instructions", DECIDE("\"i\"", ASKED("[]")),
     DECIDE("\"i\"", "{\"type\":\"predicate\"}")},
    {&api_decisions, "questions[0].instructions",
     DECIDE("\"i\"", ASKED("[{\"type\":\"input_text\",\"text\":\"\"}]")),
     DECIDE("\"i\"", ASKED("[\"a\"]"))},
    {&api_decisions, "questions[0].choices[0]", DECIDE("\"i\"", OPTIONS("\"\"")),
     DECIDE("\"i\"", OPTIONS("5"))},
    {&api_systemone, "state", NAMED("\"\"", NOUL("\"a\"")), NAMED("null", NOUL("\"a\""))},
    {&api_systemone, "questions.q.instructions", NAMED("\"s\"", NOUL("\"\"")),
     NAMED("\"s\"", NOUL("5"))},
    {&api_systemone, "questions.q.criteria", NAMED("\"s\"", NAMED_LEVELS("\"\"")),
     NAMED("\"s\"", NAMED_LEVELS("5"))},
    {&api_rerank, "query", "{\"query\":\"\",\"documents\":[\"a\"]}",
     "{\"query\":5,\"documents\":[\"a\"]}"},
    {&api_rerank, "documents[1]", "{\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"\"}]}",
     "{\"query\":\"q\",\"documents\":[\"a\",5]}"},
    {&api_score, "text_2", "{\"text_1\":\"a\",\"text_2\":\"\"}", "{\"text_1\":\"a\",\"text_2\":5}"},
};

START_TEST(an_empty_text_is_called_empty_and_no_other_value_is) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct err err = {0};
        expect_refused(texts[i].api, texts[i].empty, texts[i].param, "empty");
        ck_assert(request_read(&request, texts[i].api, texts[i].wrong, strlen(texts[i].wrong),
                               &limits, &err));
        ck_assert_msg(strstr(err.param, texts[i].param) == err.param, "%s", err.param);
        ck_assert_msg(!strstr(err.message, "empty"), "%s: %s", texts[i].wrong, err.message);
    }
}
END_TEST

START_TEST(a_bad_body_is_answered_with_its_place) {
    struct err err = {0};
    err_set(&err, STATUS_INVALID_REQUEST, "questions.7.criteria[2]", "'x' is wrong.");
    api_systemone.write_error(&out, &err, NULL);
    ck_assert_str_eq(out.data, "{\"detail\":[{\"type\":\"value_error\",\"loc\":[\"body\","
                               "\"questions\",\"7\",\"criteria\",2],\"msg\":\"'x' is wrong.\"}]}");
    ck_assert_int_eq(api_http(&api_systemone, err.status), 422);
    buf_clear(&out);
    err_set(&err, STATUS_NOT_FOUND, NULL, "No such model.");
    api_systemone.write_error(&out, &err, NULL);
    ck_assert_str_eq(out.data, "{\"detail\":\"No such model.\"}");
    ck_assert_int_eq(api_http(&api_systemone, err.status), 404);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        each_question_has_its_labels_and_its_answer,
        questions_by_name_have_the_same_prompts,
        documents_are_ranked_by_their_own_scores,
        embeddings_of_pairs_are_compared,
        the_task_has_a_role_that_the_template_shows,
        a_question_without_labels_of_one_token_is_refused,
        an_empty_text_is_called_empty_and_no_other_value_is,
        a_bad_body_is_answered_with_its_place,
    };
    Suite *suite = suite_create("server/decisions");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(all, tests[i]);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
