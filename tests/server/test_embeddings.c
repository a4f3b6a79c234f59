/* Embeddings from sums of hidden vectors: means, numbers that are cut, lengths, and base64. */
#include <check.h>
#include <string.h>

#include "support/request_reader.h"
#include "support/suite_main.h"

static struct pooling pooling;
static struct api_limits limits;
static struct buf out;

static void set_up(void) {
    pooling = (struct pooling){.rows = HIDDEN_ALL};
    limits = request_limits;
    limits.pooling = &pooling;
    limits.hidden_size = limits.embedding_size = 4;
}

static void tear_down(void) {
    buf_free(&out);
}

/* Checks the vector of a prompt of four tokens whose hidden vectors have this sum. */
static void expect_vector(const char *fields, const char *expected) {
    static const double sum[4] = {12, -16, 0, 8};
    const struct api_choice choice = {.hidden_sum = sum, .n_prompt_tokens = 4};
    struct api_request *request;
    struct err err = {0};
    buf_clear(&out);
    buf_printf(&out, "{\"input\":\"a\"%s}", fields);
    ck_assert_msg(!request_read(&request, &api_embeddings, out.data, out.length, &limits, &err),
                  "%s", err.message);
    const struct api_answer answer = {.request = request, .model = "m", .limits = &limits};
    buf_clear(&out);
    api_write_embedding(&out, &answer, &choice);
    ck_assert_str_eq(out.data, expected);
    api_request_free(request);
}

START_TEST(a_mean_counts_each_token_once) {
    expect_vector("", "[3,-4,0,2]");
    pooling.rows = HIDDEN_LAST;
    expect_vector("", "[12,-16,0,8]");
}
END_TEST

START_TEST(numbers_that_are_kept_have_the_length_one) {
    pooling.normalises = true;
    expect_vector(",\"dimensions\":2", "[0.600000024,-0.800000012]");
    pooling.normalises = false;
    expect_vector(",\"dimensions\":2", "[3,-4]");
}
END_TEST

/* Each token has its own vector: of two tokens, in a list and in base64. */
START_TEST(tokens_have_their_own_vectors) {
    static const double each[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    const struct api_choice choice = {.hidden_sum = each[0], .n_prompt_tokens = 2};
    static const char *const expected[] = {"[[1,2,3,4],[5,6,7,8]]", "[[1,2],[5,6]]",
                                           "\"AACAPwAAAEAAAKBAAADAQA==\""};
    static const char *const fields[] = {"", ",\"dimensions\":2",
                                         ",\"dimensions\":2,\"encoding_format\":\"base64\""};
    for (int i = 0; i < 3; i++) {
        struct api_request *request;
        struct err err = {0};
        buf_clear(&out);
        buf_printf(&out, "{\"input\":\"a\",\"task\":\"token_embed\"%s}", fields[i]);
        ck_assert_msg(!request_read(&request, &api_pooling, out.data, out.length, &limits, &err),
                      "%s", err.message);
        ck_assert(request->of_tokens && request->hidden == HIDDEN_ALL);
        const struct api_answer answer = {.request = request, .model = "m", .limits = &limits};
        buf_clear(&out);
        api_write_token_embeddings(&out, &answer, &choice);
        ck_assert_str_eq(out.data, expected[i]);
        api_request_free(request);
    }
}
END_TEST

/* The floats 3, -4, 0 and 2: 00 00 40 40, 00 00 80 C0, 00 00 00 00, 00 00 00 40. */
START_TEST(base64_is_of_little_endian_floats) {
    expect_vector(",\"encoding_format\":\"base64\"", "\"AABAQAAAgMAAAAAAAAAAQA==\"");
    expect_vector(",\"encoding_format\":\"base64\",\"dimensions\":3", "\"AABAQAAAgMAAAAAA\"");
    expect_vector(",\"encoding_format\":\"base64\",\"dimensions\":2", "\"AABAQAAAgMA=\"");
}
END_TEST

/* The request of a body with these fields, which must be accepted. */
static struct api_request *embedding_request(const char *members) {
    struct api_request *request;
    struct err err = {0};
    buf_clear(&out);
    buf_printf(&out, "{%s}", members);
    enum status status =
        request_read(&request, &api_embeddings, out.data, out.length, &limits, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", members, err.message);
    return request;
}

/* The text of the model's prompt precedes each text, and no ids. */
START_TEST(a_prompt_precedes_each_text) {
    struct embedding_prompt prompts[] = {{"query", "q: "}, {"document", "doc: "}};
    static const struct {
        const char *members, *texts[2];
    } cases[] = {
        {"\"input\":[\"ab\",\"c\"]", {"q: ab", "q: c"}},
        {"\"input\":[\"ab\",\"c\"],\"prompt_name\":\"document\"", {"doc: ab", "doc: c"}},
    };
    pooling.n_prompts = 2, pooling.prompt = prompts, pooling.usual_prompt = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_request *request = embedding_request(cases[i].members);
        ck_assert_int_eq(request->n_prompts, 2);
        for (int j = 0; j < 2; j++) {
            ck_assert_str_eq(request->prompts[j].text, cases[i].texts[j]);
            ck_assert_uint_eq(request->prompts[j].length, strlen(cases[i].texts[j]));
        }
        api_request_free(request);
    }
    struct api_request *ids = embedding_request("\"input\":[1,2]");
    ck_assert(ids->prompts[0].ids && ids->prompts[0].n_ids == 2 && ids->prompts[0].length == 0);
    api_request_free(ids);
    pooling.usual_prompt = 0;
    struct api_request *bare = embedding_request("\"input\":\"ab\"");
    ck_assert_str_eq(bare->prompts[0].text, "ab");
    api_request_free(bare);
}
END_TEST

START_TEST(a_named_prompt_is_for_texts_and_must_exist) {
    static const char *const bodies[] = {"{\"input\":[1,2],\"prompt_name\":\"query\"}",
                                         "{\"input\":\"a\",\"prompt_name\":\"other\"}"};
    struct embedding_prompt prompts[] = {{"query", "q: "}};
    pooling.n_prompts = 1, pooling.prompt = prompts;
    for (int i = 0; i < 2; i++) {
        struct api_request *request;
        struct err err = {0};
        ck_assert_int_eq(
            request_read(&request, &api_embeddings, bodies[i], strlen(bodies[i]), &limits, &err),
            STATUS_INVALID_REQUEST);
        ck_assert_str_eq(err.param, "prompt_name");
    }
}
END_TEST

/* The texts of another API replace the prompts, with the model's prompt before each. */
START_TEST(texts_are_read_with_the_prompt) {
    struct embedding_prompt prompts[] = {{"query", "q: "}};
    const struct span texts[2] = {{"one", 3}, {"second", 6}};
    struct err err = {0};
    pooling.n_prompts = 1, pooling.prompt = prompts, pooling.usual_prompt = 1;
    struct api_request *request = embedding_request("\"input\":\"a\"");
    ck_assert_int_eq(api_embed_texts(request, &limits, texts, 2, &err), STATUS_OK);
    ck_assert_int_eq(request->n_prompts, 2);
    ck_assert_str_eq(request->prompts[0].text, "q: one");
    ck_assert_str_eq(request->prompts[1].text, "q: second");
    ck_assert_uint_eq(request->prompts[1].length, 9);
    api_request_free(request);
}
END_TEST

START_TEST(an_error_has_the_client_s_name_of_the_input) {
    struct err err;
    err_set(&err, STATUS_INVALID_REQUEST, "input", "'input' is missing.");
    api_name_input(NULL, "content", &err);
    ck_assert_str_eq(err.param, "content");
}
END_TEST

/* A member that is null counts as absent. */
START_TEST(null_is_no_member) {
    const char *text = "{\"user\":null,\"input\":\"a\"}";
    struct json *body;
    struct err err;
    ck_assert(!json_parse(&body, "It", text, strlen(text), &err));
    ck_assert_ptr_null(fields_member(&embedding_fields, body, "user"));
    ck_assert_ptr_null(fields_member(&embedding_fields, body, "model"));
    ck_assert_ptr_nonnull(fields_member(&embedding_fields, body, "input"));
    buf_clear(&out);
    fields_copy(&embedding_fields, body, &out);
    ck_assert_uint_eq(out.length, 0); /* no field of this table is copied */
    json_free(body);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server/embeddings");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_mean_counts_each_token_once);
    tcase_add_test(all, numbers_that_are_kept_have_the_length_one);
    tcase_add_test(all, tokens_have_their_own_vectors);
    tcase_add_test(all, base64_is_of_little_endian_floats);
    tcase_add_test(all, a_prompt_precedes_each_text);
    tcase_add_test(all, a_named_prompt_is_for_texts_and_must_exist);
    tcase_add_test(all, texts_are_read_with_the_prompt);
    tcase_add_test(all, an_error_has_the_client_s_name_of_the_input);
    tcase_add_test(all, null_is_no_member);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
