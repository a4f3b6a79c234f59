/* The value of --speculative-config: valid values, and the messages for invalid ones. */
#include <check.h>
#include <string.h>

#include "server/options/table.h"
#include "support/suite_main.h"

static struct err err;

static enum status read_text(const char *text, struct speculation *out) {
    err = (struct err){0};
    return speculation_read(out, "--speculative-config", text, &err);
}

START_TEST(speculation_is_an_object_or_a_word) {
    struct speculation s;
    ck_assert_int_eq(read_text("ngram", &s), STATUS_OK);
    ck_assert(s.method == SPECULATION_LOOKUP && s.max_tokens == MAX_DRAFTS);
    ck_assert(s.lookup_min == 2 && s.lookup_max == MAX_DRAFT_MATCH);
    ck_assert_int_eq(read_text(" {\"method\": \"ngram\", \"num_speculative_tokens\": 4, "
                               "\"prompt_lookup_min\": 1, \"prompt_lookup_max\": 3}",
                               &s),
                     STATUS_OK);
    ck_assert(s.method == SPECULATION_LOOKUP && s.max_tokens == 4);
    ck_assert(s.lookup_min == 1 && s.lookup_max == 3);
    ck_assert_int_eq(
        read_text("{\"method\":\"ngram\",\"prompt_lookup_min\":3,\"prompt_lookup_max\":3}", &s),
        STATUS_OK);
    ck_assert(s.lookup_min == 3 && s.lookup_max == 3);
    ck_assert_int_eq(read_text("{\"model\":\"[ngram]\"}", &s), STATUS_OK);
    ck_assert_int_eq(s.method, SPECULATION_LOOKUP);
    ck_assert_int_eq(read_text("suffix", &s), STATUS_OK);
    ck_assert(s.method == SPECULATION_SUFFIX && s.lookup_min == 2);
    ck_assert_int_eq(read_text("{\"method\":\"none\"}", &s), STATUS_OK);
    ck_assert(s.method == SPECULATION_NONE);
    ck_assert_int_eq(read_text("{\"model\": \"small.gguf\", \"method\": \"draft_model\", "
                               "\"num_speculative_tokens\": 5}",
                               &s),
                     STATUS_OK);
    ck_assert(s.method == SPECULATION_DRAFT_MODEL && s.max_tokens == 5);
    ck_assert_str_eq(s.model, "small.gguf");
    ck_assert_int_eq(read_text("{\"model\": \"small.gguf\"}", &s), STATUS_OK);
    ck_assert(s.method == SPECULATION_DRAFT_MODEL && s.max_tokens == MAX_DRAFTS);
    ck_assert_int_eq(read_text("{\"model\": \"ngram\"}", &s), STATUS_OK);
    ck_assert(s.method == SPECULATION_LOOKUP && !*s.model);
    static const char *const ahead[] = {
        "mtp",        "deepseek_mtp", "glm4_moe_mtp", "glm4_moe_lite_mtp", "qwen3_next_mtp",
        "qwen3_5_mtp"};
    for (size_t i = 0; i < sizeof ahead / sizeof *ahead; i++) {
        ck_assert_int_eq(read_text(ahead[i], &s), STATUS_OK);
        ck_assert_int_eq(s.method, SPECULATION_AHEAD);
    }
    ck_assert_int_eq(read_text("{\"method\": \"mtp\", \"num_speculative_tokens\": 1}", &s),
                     STATUS_OK);
    ck_assert(s.method == SPECULATION_AHEAD && s.max_tokens == 1);
    ck_assert_int_eq(read_text("{\"method\": \"eagle3\", \"model\": \"a\"}", &s), STATUS_OK);
    ck_assert(s.method == SPECULATION_EAGLE3 && s.max_tokens == MAX_DRAFTS);
    ck_assert_str_eq(s.model, "a");
}
END_TEST

START_TEST(wrong_speculation_is_named) {
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "the method \"\" is not served"},
        {"eagle", "the method \"eagle\" is not served"},
        {"{\"method\":\"eagle\"}", "the method \"eagle\" is not served"},
        {"{\"method\":3}", "method must be a string"},
        {"{\"method\":\"ngram\"", "line 1"},
        {"{}", "must be a JSON object with a \"method\""},
        {"{\"method\":\"ngram\",\"num_speculative_tokens\":16}",
         "num_speculative_tokens must be a whole number from 1 to 15"},
        {"{\"method\":\"ngram\",\"num_speculative_tokens\":0}", "from 1 to 15"},
        {"{\"method\":\"ngram\",\"num_speculative_tokens\":1.5}", "from 1 to 15"},
        {"{\"method\":\"ngram\",\"prompt_lookup_max\":\"8\"}", "prompt_lookup_max must be"},
        {"{\"method\":\"ngram\",\"prompt_lookup_min\":4,\"prompt_lookup_max\":3}",
         "prompt_lookup_min must be at most prompt_lookup_max"},
        {"{\"method\":\"ngram\",\"k\":1}", "k is an unknown key"},
        {"{\"method\":\"mtp\",\"model\":\"a.gguf\"}",
         "is only for the methods \"draft_model\" and \"eagle3\""},
        {"eagle3", "method \"eagle3\" needs the folder of a head"},
        {"{\"method\":\"eagle3\"}", "method \"eagle3\" needs the folder of a head"},
        {"draft_model", "method \"draft_model\" needs a model"},
        {"{\"method\":\"draft_model\"}", "method \"draft_model\" needs a model"},
        {"{\"method\":\"draft_model\",\"model\":\"\"}", "model must be the path of a model"},
        {"{\"method\":\"ngram\",\"model\":\"a.gguf\"}",
         "is only for the methods \"draft_model\" and \"eagle3\""},
    };
    struct speculation s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(read_text(cases[i].text, &s), STATUS_USAGE);
        ck_assert_msg(strstr(err.message, cases[i].said), "%s: %s", cases[i].text, err.message);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_options_speculation");
    TCase *cases = tcase_create("core");
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, speculation_is_an_object_or_a_word);
    tcase_add_test(cases, wrong_speculation_is_named);
    return suite_main(suite);
}
