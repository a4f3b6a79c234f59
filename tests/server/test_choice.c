/* A choice as its tokens arrive: its text, text that is held back, its end, and echoed text. */
#include "support/job_fixture.h"
#include "support/suite_main.h"

static const struct job_listener silent = {NULL};
static struct choice *choice;

static void make(const char *body) {
    job_make(&silent, body);
    ck_assert_msg(!job.err.status, "%s", job.err.message);
    choice = &job.prompts[0].choices[0];
}

static enum choice_change add(int32_t id, enum finish finish) {
    struct event event = token_event(0, 0, id, finish);
    return choice_add(choice, &job.prompts[0], &event);
}

/* Adds a token for each character. The choice stays open. */
static void say(const char *text) {
    for (; *text; text++) ck_assert_int_eq(add(token_of(*text), FINISH_NONE), CHOICE_GROWN);
}

static void expect(const char *text, const char *finish_reason) {
    ck_assert_str_eq(choice->text.data ? choice->text.data : "", text);
    ck_assert_int_eq(choice->done, finish_reason != NULL);
    if (finish_reason) ck_assert_str_eq(choice->finish_reason, finish_reason);
}

START_TEST(text_grows_by_tokens) {
    make("{\"prompt\":\"x\"}");
    ck_assert(!choice_has_news(choice));
    say("He");
    expect("He", NULL);
    ck_assert(choice_has_news(choice));
    choice_clear(choice);
    ck_assert(!choice_has_news(choice));
    ck_assert_int_eq(add(token_of('y'), FINISH_LENGTH), CHOICE_ENDED);
    expect("y", "length");
    ck_assert(choice->n_tokens == 3 && choice->offset == 3 && choice->stop_id == -1);
    job_clear(&job);
}
END_TEST

START_TEST(a_done_choice_is_unchanged) {
    make("{\"prompt\":\"x\"}");
    say("a");
    ck_assert_int_eq(add(JOB_END, FINISH_STOP), CHOICE_ENDED);
    expect("a", "stop");
    ck_assert_int_eq(add(token_of('b'), FINISH_NONE), CHOICE_UNCHANGED);
    ck_assert_int_eq(add(token_of('b'), FINISH_LENGTH), CHOICE_UNCHANGED);
    expect("a", "stop");
    ck_assert_int_eq(choice->n_tokens, 2);
    ck_assert(!choice_drop(choice));
    job_clear(&job);
}
END_TEST

START_TEST(a_dropped_choice_is_done) {
    make("{\"prompt\":\"x\"}");
    ck_assert(choice_drop(choice) && choice->done);
    ck_assert(!choice_drop(choice));
    ck_assert_int_eq(add(token_of('b'), FINISH_NONE), CHOICE_UNCHANGED);
    job_clear(&job);
}
END_TEST

START_TEST(a_stop_string_stops) {
    make("{\"prompt\":\"x\",\"stop\":[\"zz\",\"lo\"]}");
    say("hel");
    expect("he", NULL); /* "l" may still become "lo" */
    ck_assert_int_eq(add(token_of('o'), FINISH_NONE), CHOICE_STOPPED);
    expect("he", "stop");
    ck_assert_str_eq(choice->stop_string, "lo");
    ck_assert_int_eq(choice->stop_id, -1);
    job_clear(&job);
}
END_TEST

START_TEST(a_stop_regex_stops) {
    make("{\"prompt\":\"x\",\"stop_regex\":[\"zz\",\"l+[aeiou]\"],\"min_tokens\":2}");
    say("hell");
    expect("he", NULL); /* "ll" may still be the start of a match */
    ck_assert_int_eq(add(token_of('o'), FINISH_NONE), CHOICE_STOPPED);
    expect("he", "stop");
    ck_assert_str_eq(choice->stop_string, "l+[aeiou]");
    job_clear(&job);
    job_make(&silent, "{\"prompt\":\"x\",\"stop_regex\":[\"a\",\"b)\"]}");
    ck_assert_int_eq(job.err.status, STATUS_INVALID_REQUEST);
    ck_assert_str_eq(job.err.param, "stop_regex[1]");
    ck_assert_msg(strstr(job.err.message, "a ')' without its '(' at byte 1"), "%s",
                  job.err.message);
    job_clear(&job);
}
END_TEST

/* The scheduler knows that a choice has ended if its event says so. */
START_TEST(a_stop_string_in_the_last_token_ends) {
    make("{\"prompt\":\"x\",\"stop\":\"lo\",\"include_stop_str_in_output\":true}");
    say("l");
    ck_assert_int_eq(add(token_of('o'), FINISH_LENGTH), CHOICE_ENDED);
    expect("lo", "stop");
    job_clear(&job);
}
END_TEST

START_TEST(min_tokens_let_stop_strings_pass) {
    make("{\"prompt\":\"x\",\"stop\":\"b\",\"min_tokens\":2}");
    say("ab");
    expect("ab", NULL);
    ck_assert_int_eq(add(token_of('b'), FINISH_NONE), CHOICE_STOPPED);
    expect("ab", "stop");
    job_clear(&job);
}
END_TEST

START_TEST(held_text_is_sent_with_the_end) {
    make("{\"prompt\":\"x\",\"stop\":\"lo\"}");
    say("l");
    expect("", NULL);
    ck_assert_int_eq(add(token_of('l'), FINISH_LENGTH), CHOICE_ENDED);
    expect("ll", "length");
    job_clear(&job);
}
END_TEST

/* The model's end token is not a stop_reason; an id that the client asked for is one. */
START_TEST(stop_ids_are_told_apart) {
    make("{\"prompt\":\"x\",\"stop_token_ids\":[70]}");
    ck_assert_int_eq(add(JOB_END, FINISH_STOP), CHOICE_ENDED);
    ck_assert_int_eq(choice->stop_id, -1);
    job_clear(&job);
    make("{\"prompt\":\"x\",\"stop_token_ids\":[70]}");
    ck_assert_int_eq(add(70, FINISH_STOP), CHOICE_ENDED);
    expect("", "stop");
    ck_assert_int_eq(choice->stop_id, 70);
    job_clear(&job);
    make("{\"prompt\":\"x\",\"ignore_eos\":true,\"stop_token_ids\":[761]}");
    ck_assert_int_eq(add(JOB_END, FINISH_STOP), CHOICE_ENDED);
    ck_assert_int_eq(choice->stop_id, JOB_END);
    job_clear(&job);
}
END_TEST

/* If a grammar allows no further token, the last token is still text. */
START_TEST(a_complete_text_stops_with_its_last_token) {
    make("{\"prompt\":\"x\"}");
    say("a");
    ck_assert_int_eq(add(token_of('b'), FINISH_COMPLETE), CHOICE_ENDED);
    expect("ab", "stop");
    ck_assert_int_eq(choice->stop_id, -1);
    job_clear(&job);
}
END_TEST

START_TEST(characters_stay_whole) {
    make("{\"prompt\":\"x\"}");
    int32_t first = tokenizer_find(vocabulary, "\xC3\x83", 2);  /* byte C3 in the file's alphabet */
    int32_t second = tokenizer_find(vocabulary, "\xC2\xA9", 2); /* byte A9 */
    ck_assert(first >= 0 && second >= 0);
    ck_assert_int_eq(add(first, FINISH_NONE), CHOICE_GROWN);
    expect("", NULL);
    ck_assert_int_eq(add(second, FINISH_NONE), CHOICE_GROWN);
    expect("\xC3\xA9", NULL);
    ck_assert_int_eq(add(first, FINISH_LENGTH), CHOICE_ENDED);
    expect("\xC3\xA9\xEF\xBF\xBD", "length");
    ck_assert_int_eq(choice->offset, 2);
    job_clear(&job);
}
END_TEST

START_TEST(an_end_without_a_token) {
    static const struct {
        enum finish finish;
        const char *reason;
    } ends[] = {
        {FINISH_CANCELLED, "abort"}, {FINISH_LENGTH, "length"}, {FINISH_TIMEOUT, "timeout"}};
    for (int i = 0; i < 3; i++) {
        make("{\"prompt\":\"x\",\"stop\":\"zz\"}");
        say("az");
        struct event event = end_event(0, 0, ends[i].finish);
        ck_assert_int_eq(choice_add(choice, &job.prompts[0], &event), CHOICE_ENDED);
        expect("az", ends[i].reason);
        ck_assert_int_eq(choice->n_tokens, 2);
        job_clear(&job);
    }
}
END_TEST

START_TEST(an_echo_is_first) {
    make("{\"prompt\":[64,65,66],\"echo\":true,\"logprobs\":0}");
    say("de");
    expect("abcde", NULL);
    ck_assert_int_eq(choice->n_logprobs, 5);
    ck_assert(!choice->logprobs[0].has_logprob && choice->logprobs[4].has_logprob);
    ck_assert_int_eq(choice->logprobs[3].text_offset, 3);
    ck_assert_int_eq(choice->logprobs[4].text_offset, 4);
    job_clear(&job);
}
END_TEST

START_TEST(writers_get_the_requested_fields) {
    struct api_choice out;
    make("{\"prompt\":\"x\",\"return_token_ids\":true}");
    say("ab");
    choice_describe(choice, &job.prompts[0], 3, true, &out);
    ck_assert(out.index == 3 && out.length == 2 && !out.finish_reason && !out.logprobs);
    ck_assert(out.n_ids == 2 && out.ids[1] == token_of('b'));
    ck_assert(out.prompt_ids == job.prompts[0].ids && out.n_prompt_ids == job.prompts[0].n_ids);
    choice_clear(choice);
    choice_describe(choice, &job.prompts[0], 3, false, &out);
    ck_assert(out.length == 0 && out.n_ids == 0 && !out.prompt_ids);
    job_clear(&job);
    make("{\"prompt\":\"x\",\"logprobs\":2}");
    say("ab");
    choice_describe(choice, &job.prompts[0], 0, true, &out);
    ck_assert(!out.ids && !out.prompt_ids && out.n_logprobs == 2);
    ck_assert_int_eq(out.logprobs[1].sampled.id, token_of('b'));
    job_clear(&job);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        text_grows_by_tokens,
        a_done_choice_is_unchanged,
        a_dropped_choice_is_done,
        a_stop_string_stops,
        a_stop_regex_stops,
        min_tokens_let_stop_strings_pass,
        a_stop_string_in_the_last_token_ends,
        held_text_is_sent_with_the_end,
        stop_ids_are_told_apart,
        a_complete_text_stops_with_its_last_token,
        characters_stay_whole,
        an_end_without_a_token,
        an_echo_is_first,
        writers_get_the_requested_fields,
    };
    Suite *suite = suite_create("server/choice");
    TCase *cases = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    int code = suite_main(suite);
    tokenizer_free(vocabulary);
    return code;
}
