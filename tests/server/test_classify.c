/* Labels from hidden vectors: their probabilities, the first of the largest, and the tasks of
 * /v1/pooling. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "support/request_reader.h"
#include "support/suite_main.h"

/* Without a head, a label's logit is its number of the hidden vector. */
enum { N_LABELS = 3 };

static char *labels[N_LABELS] = {"bad", "good", "best"};
static struct classifier classifier;
static struct pooling pooling;
static struct api_limits limits;
static struct buf out;

static void set_up(void) {
    classifier = (struct classifier){
        .rows = HIDDEN_LAST, .n_labels = N_LABELS, .label = labels, .activation = LABELS_IDENTITY};
    pooling = (struct pooling){.rows = HIDDEN_ALL};
    limits = request_limits;
    limits.classifier = &classifier;
    limits.pooling = &pooling;
    limits.hidden_size = limits.embedding_size = N_LABELS;
}

static void tear_down(void) {
    buf_free(&out);
}

/* Writes the answer of an API to a body with one text for each of two hidden vectors. */
static const char *answered(const struct api *api, const char *fields,
                            const double sums[][N_LABELS], int n) {
    const struct api_choice choices[2] = {{.hidden_sum = sums[0], .n_prompt_tokens = 1},
                                          {.hidden_sum = sums[1], .n_prompt_tokens = 1}};
    const struct api_usage usage = {.prompt_tokens = 5};
    struct api_request *request;
    struct err err = {0};
    buf_clear(&out);
    buf_printf(&out, "{\"input\":[\"a\",\"b\"]%s}", fields);
    ck_assert_msg(!request_read(&request, api, out.data, out.length, &limits, &err), "%s",
                  err.message);
    const struct api_answer answer = {.request = request, .model = "m", .limits = &limits};
    buf_clear(&out);
    api->write_response(&out, &answer, choices, n, &usage);
    api_request_free(request);
    return out.data;
}

static void expect_part(const char *text, const char *part) {
    ck_assert_msg(strstr(text, part), "%s lacks %s", text, part);
}

START_TEST(each_text_has_the_first_of_its_largest_labels) {
    static const double sums[2][N_LABELS] = {{1, 4, 2}, {3, -1, 3}};
    const char *text = answered(&api_classify, "", sums, 2);
    expect_part(text, "\"data\":[{\"index\":0,\"label\":\"good\",\"probs\":[1,4,2],"
                      "\"num_classes\":3},{\"index\":1,\"label\":\"bad\",\"probs\":[3,-1,3],"
                      "\"num_classes\":3}],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":5,");
    expect_part(text, "\"object\":\"list\",");
}
END_TEST

START_TEST(pooling_has_the_labels_of_each_text) {
    static const double sums[2][N_LABELS] = {{1, 4, 2}, {3, -1, 3}};
    const char *text = answered(&api_pooling, "", sums, 2);
    expect_part(text, "\"data\":[{\"index\":0,\"object\":\"pooling\",\"data\":[1,4,2]},"
                      "{\"index\":1,\"object\":\"pooling\",\"data\":[3,-1,3]}],\"usage\":");
    text = answered(&api_pooling, ",\"task\":\"embed\"", sums, 1);
    expect_part(text, "\"data\":[{\"index\":0,\"object\":\"pooling\",\"data\":[1,4,2]}],");
}
END_TEST

START_TEST(tokens_have_their_own_labels) {
    static const double each[2][N_LABELS] = {{1, 4, 2}, {3, -1, 3}};
    const struct api_choice choice = {.hidden_sum = each[0], .n_prompt_tokens = 2};
    const char *body = "{\"input\":\"a\",\"use_activation\":false}";
    struct api_request *request;
    struct err err = {0};
    classifier.of_tokens = true;
    ck_assert(!request_read(&request, &api_pooling, body, strlen(body), &limits, &err));
    const struct api_answer answer = {.request = request, .model = "m", .limits = &limits};
    api_pooling.write_response(&out, &answer, &choice, 1, &(struct api_usage){0});
    expect_part(out.data, "\"data\":[[1,4,2],[3,-1,3]]}");
    api_request_free(request);
}
END_TEST

/* Which task a body has: labels or vectors, of the text or of its tokens. */
START_TEST(a_task_is_stated_or_that_of_the_model) {
    static const struct {
        const char *task;
        bool has_labels, of_tokens, classifies, reads_tokens;
    } cases[] = {
        {"", false, false, false, false},
        {"", true, false, true, false},
        {"", true, true, true, true},
        {",\"task\":null", true, false, true, false},
        {",\"task\":\"embed\"", true, false, false, false},
        {",\"task\":\"classify\"", true, false, true, false},
        {",\"task\":\"token_embed\"", true, false, false, true},
        {",\"task\":\"token_classify\"", true, true, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_request *request;
        struct err err = {0};
        classifier.of_tokens = cases[i].of_tokens;
        limits.classifier = cases[i].has_labels ? &classifier : NULL;
        buf_clear(&out);
        buf_printf(&out, "{\"input\":\"a\"%s}", cases[i].task);
        ck_assert_msg(!request_read(&request, &api_pooling, out.data, out.length, &limits, &err),
                      "%s: %s", out.data, err.message);
        ck_assert_msg(request->classifies == cases[i].classifies, "case %zu", i);
        ck_assert_msg(request->of_tokens == cases[i].reads_tokens, "case %zu", i);
        ck_assert_int_eq(request->hidden, request->classifies ? HIDDEN_LAST : HIDDEN_ALL);
        ck_assert(request->n == 1 && request->best_of == 1 && request->n_generated == 1);
        ck_assert(request->max_tokens == 0 && request->prompt_logprobs == -1);
        api_request_free(request);
    }
}
END_TEST

START_TEST(wrong_tasks_and_models_are_named) {
    static const struct {
        const char *task, *param, *said;
        bool has_labels, of_tokens;
    } cases[] = {
        {"\"rank\"", "task", "'task' must be", true, false},
        {"\"classify\"", "model", "has no labels", false, false},
        {"\"classify\"", "model", "labels of tokens: ask /v1/pooling, with the task", true, true},
        {"\"token_classify\"", "model", "labels of texts", true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_request *request;
        struct err err = {0};
        classifier.of_tokens = cases[i].of_tokens;
        limits.classifier = cases[i].has_labels ? &classifier : NULL;
        buf_clear(&out);
        buf_printf(&out, "{\"input\":\"a\",\"task\":%s}", cases[i].task);
        ck_assert_int_eq(request_read(&request, &api_pooling, out.data, out.length, &limits, &err),
                         STATUS_INVALID_REQUEST);
        ck_assert_ptr_null(request);
        ck_assert_str_eq(err.param, cases[i].param);
        expect_part(err.message, cases[i].said);
    }
}
END_TEST

static void expect_near(const double *values, const double *expected, int n) {
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabs(values[i] - expected[i]) < 1e-9, "%d: %g", i, values[i]);
}

/* softmax and sigmoid, also of logits whose exponential is beyond a double. */
START_TEST(logits_become_probabilities) {
    double equal[2] = {7, 7}, large[3] = {-1000, 1000, 1000}, odds[2] = {0, log(3)};
    api_activate(LABELS_SOFTMAX, equal, 2);
    expect_near(equal, (const double[]){0.5, 0.5}, 2);
    api_activate(LABELS_SOFTMAX, large, 3);
    expect_near(large, (const double[]){0, 0.5, 0.5}, 3);
    api_activate(LABELS_SIGMOID, odds, 2);
    expect_near(odds, (const double[]){0.5, 0.75}, 2);
    double same[2] = {-3, 8};
    api_activate(LABELS_IDENTITY, same, 2);
    expect_near(same, (const double[]){-3, 8}, 2);
}
END_TEST

START_TEST(a_request_may_ask_for_logits) {
    static const double sums[2][N_LABELS] = {{0, 0, -1000}, {0}};
    classifier.activation = LABELS_SOFTMAX;
    expect_part(answered(&api_classify, "", sums, 1), "\"probs\":[0.5,0.5,0]");
    expect_part(answered(&api_classify, ",\"use_activation\":false", sums, 1),
                "\"probs\":[0,0,-1000]");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_classify");
    TCase *core = tcase_create("core");
    suite_add_tcase(suite, core);
    tcase_add_checked_fixture(core, set_up, tear_down);
    tcase_add_test(core, each_text_has_the_first_of_its_largest_labels);
    tcase_add_test(core, pooling_has_the_labels_of_each_text);
    tcase_add_test(core, tokens_have_their_own_labels);
    tcase_add_test(core, a_task_is_stated_or_that_of_the_model);
    tcase_add_test(core, wrong_tasks_and_models_are_named);
    tcase_add_test(core, logits_become_probabilities);
    tcase_add_test(core, a_request_may_ask_for_logits);
    return suite_main(suite);
}
