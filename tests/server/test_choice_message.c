/* Answers that are messages: calls and thoughts in a choice's text, whole and as a stream. */
#include "support/job_fixture.h"
#include "support/suite_main.h"

#define USER "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define TOOLS                                                                                      \
    USER ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"request_id\":\"r\""
#define A_CALL "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":1}}</tool_call>"

static const struct job_listener silent = {NULL};
static struct choice *choice;

static void set_up(void) {
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}"
                                 "{{ {'low': 'L', 'high': 'H'}[reasoning_effort] }}"
                                 "{% if enable_thinking == false %}N{% endif %}"
                                 "{{ begin }}{% if tools %}T{% endif %}";
    struct err err;
    ck_assert_int_eq(chat_template_new(&template, source, strlen(source), &err), STATUS_OK);
}

static void tear_down(void) {
    chat_template_free(template);
}

static void make(const char *tools, const char *reasoning, const char *body) {
    job_make_as(&api_chat, &silent, tools, reasoning, body);
    ck_assert_msg(!job.err.status, "%s", job.err.message);
    choice = &job.prompts[0].choices[0];
}

static void add(int32_t id, enum finish finish, enum choice_change change) {
    struct event event = token_event(0, 0, id, finish);
    ck_assert_int_eq(choice_add(choice, &job.prompts[0], &event), change);
}

/* Adds a token for each character, then the end. */
static void say(const char *text) {
    for (; *text; text++) add(token_of(*text), FINISH_NONE, CHOICE_GROWN);
}

/* Ends the job and expects each part, in order, in its whole answer. */
static void expect_answer(const char *const *parts) {
    struct buf out = {0};
    job.n_open = job.n_running = 0;
    job_write_response(&job, &out);
    const char *at = out.data;
    for (; *parts; parts++) {
        const char *found = strstr(at, *parts);
        ck_assert_msg(found, "%s is not in %s", *parts, at);
        at = found + strlen(*parts);
    }
    buf_free(&out);
    job_clear(&job);
}

/* Returns the limit of a chat whose template ends its prompt with `begin`. */
static const struct thought_limit *limited(const char *reasoning, const char *begin,
                                           const char *fields) {
    char body[400];
    snprintf(body, sizeof body, USER ",\"chat_template_kwargs\":{\"begin\":\"%s\"}%s}", begin,
             fields);
    make("none", reasoning, body);
    return &job.prompts[0].generation.thoughts;
}

/* Expects the text of the forced tokens, and ends the job. */
static void expect_forced(const struct thought_limit *limit, const char *expected) {
    struct buf text = {0};
    for (int i = 0; i < limit->n_forced; i++) {
        size_t length;
        const char *bytes = limit->text_of(limit->texts, limit->forced[i], &length);
        buf_add(&text, bytes, length);
    }
    ck_assert_str_eq(text.data, expected);
    buf_free(&text);
    job_clear(&job);
}

START_TEST(a_limit_on_reasoning_forces_its_end) {
    const struct thought_limit *limit = limited("qwen3", "<think>", ",\"reasoning_budget\":5");
    ck_assert(limit->is_set && limit->is_open && limit->max_tokens == 5);
    expect_forced(limit, "</think>");
    limit = limited("qwen3", "</think>", ",\"thinking_token_budget\":0");
    ck_assert(limit->is_set && limit->is_behind && limit->max_tokens == 0);
    job_clear(&job);
    limit = limited("qwen3", "<think>", ",\"reasoning_budget\":5,\"reasoning_format\":\"none\"");
    ck_assert(limit->is_set && limit->is_open && !job.format.reasoning);
    job_clear(&job);
    limit = limited("openai_gptoss", "", ",\"reasoning_budget\":5");
    ck_assert(limit->is_set && limit->may_return && !limit->is_open);
    job_clear(&job);
    ck_assert(!limited("qwen3", "<think>", ",\"reasoning_budget\":-1")->is_set);
    job_clear(&job);
}
END_TEST

#define MESSAGE(text) ",\"reasoning_budget\":5,\"reasoning_budget_message\":\"" text "\""

START_TEST(a_message_precedes_the_forced_end) {
    const struct thought_limit *limit = limited("qwen3", "<think>", MESSAGE(" So I answer."));
    ck_assert_int_eq(limit->max_tokens, 5);
    expect_forced(limit, " So I answer.</think>");
    expect_forced(limited("qwen3", "<think>", MESSAGE("")), "</think>");
    expect_forced(limited("qwen3", "<think>", MESSAGE("<|im_end|>")), "<|im_end|></think>");
    limit = limited("qwen3", "<think>",
                    ",\"reasoning_budget\":-1,\"reasoning_budget_message\":\"Enough.\"");
    ck_assert(!limit->is_set);
    job_clear(&job);
}
END_TEST

START_TEST(a_message_with_a_marker_of_reasoning_is_refused) {
    static const char *const formats[] = {"qwen3", "qwen3", "openai_gptoss"};
    static const char *const bodies[] = {MESSAGE("a</think>"), MESSAGE("<think>"),
                                         MESSAGE("<|start|>")};
    for (int i = 0; i < 3; i++) {
        char body[400];
        snprintf(body, sizeof body, USER "%s}", bodies[i]);
        job_make_as(&api_chat, &silent, "none", formats[i], body);
        ck_assert_int_eq(job.err.status, STATUS_INVALID_REQUEST);
        ck_assert_str_eq(job.err.param, "reasoning_budget_message");
        job_clear(&job);
    }
}
END_TEST

START_TEST(a_limit_without_marked_reasoning_is_refused) {
    job_make_as(&api_chat, &silent, "none", "none", USER ",\"reasoning_budget\":5}");
    ck_assert_int_eq(job.err.status, STATUS_INVALID_REQUEST);
    ck_assert_str_eq(job.err.param, "reasoning_budget");
    job_clear(&job);
}
END_TEST

START_TEST(an_answer_has_calls) {
    make("hermes", "none", TOOLS "}");
    ck_assert_int_eq(job.prompts[0].ids[job.prompts[0].n_ids - 1], token_of('T'));
    say(A_CALL A_CALL);
    add(JOB_END, FINISH_STOP, CHOICE_ENDED);
    expect_answer((const char *[]){
        "\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":["
        "{\"id\":\"call_",
        "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"n\\\":1}\"}},"
        "{\"id\":\"call_",
        "}]}", "\"finish_reason\":\"tool_calls\",\"stop_reason\":null", NULL});
}
END_TEST

START_TEST(an_answer_without_calls_is_text) {
    make("hermes", "none", TOOLS "}");
    say("Hi<tool_");
    add(JOB_END, FINISH_STOP, CHOICE_ENDED);
    expect_answer((const char *[]){"\"content\":\"Hi<tool_\",\"refusal\":null}",
                                   "\"finish_reason\":\"stop\"", NULL});
    make("hermes", "none", TOOLS "}");
    add(JOB_END, FINISH_STOP, CHOICE_ENDED);
    expect_answer((const char *[]){"\"content\":\"\",\"refusal\":null}", NULL});
}
END_TEST

START_TEST(without_tools_calls_are_text) {
    static const char *const bodies[] = {USER "}", TOOLS ",\"tool_choice\":\"none\"}"};
    for (int i = 0; i < 2; i++) {
        make("hermes", "none", bodies[i]);
        ck_assert_int_eq(job.prompts[0].ids[job.prompts[0].n_ids - 1], token_of('x'));
        say(A_CALL);
        add(JOB_END, FINISH_STOP, CHOICE_ENDED);
        expect_answer(
            (const char *[]){"\"content\":\"<tool_call>{", "\"finish_reason\":\"stop\"", NULL});
    }
}
END_TEST

/* If a limit ends an answer inside a call without a name, the call is dropped. If a stop string
 * ends it, the call is content. A call with a name stays, but the answer does not ask the client to
 * run it. */
START_TEST(a_cut_call_is_not_run) {
    make("hermes", "none", TOOLS ",\"max_tokens\":20}");
    say("a<tool_call>{\"name\":");
    add(token_of('"'), FINISH_LENGTH, CHOICE_ENDED);
    expect_answer((const char *[]){"\"content\":\"a\"", "\"finish_reason\":\"length\"", NULL});
    make("hermes", "none", TOOLS ",\"stop\":\"half\"}");
    say("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"hal");
    add(token_of('f'), FINISH_NONE, CHOICE_STOPPED);
    expect_answer(
        (const char *[]){"\"arguments\":\"{\\\"a\\\":\\\"", "\"finish_reason\":\"stop\"", NULL});
    make("hermes", "none", TOOLS ",\"stop\":\"arg\"}");
    say("<tool_call>{\"name\":\"f\",\"ar");
    add(token_of('g'), FINISH_NONE, CHOICE_STOPPED);
    expect_answer((const char *[]){"\"content\":\"<tool_call>{\\\"name\\\":\\\"f\\\",\\\"\"",
                                   "\"finish_reason\":\"stop\",\"stop_reason\":\"arg\"", NULL});
}
END_TEST

START_TEST(one_call_ends_an_answer_that_may_have_one) {
    const char *call = A_CALL;
    make("hermes", "none", TOOLS ",\"parallel_tool_calls\":false}");
    for (; call[1]; call++) add(token_of(*call), FINISH_NONE, CHOICE_GROWN);
    add(token_of(*call), FINISH_NONE, CHOICE_STOPPED);
    expect_answer((const char *[]){"\"tool_calls\":[{", "\"finish_reason\":\"tool_calls\"", NULL});
}
END_TEST

/* The same as events of the scheduler, so that the job counts the tokens. */
static void say_to_job(const char *text) {
    job.n_open = 1;
    for (; *text; text++) {
        struct event event = token_event(0, 0, token_of(*text), FINISH_NONE);
        job.n_running = 1;
        job_event(&event);
    }
}

START_TEST(thoughts_are_counted) {
    make("none", "qwen3", USER "}");
    say_to_job("<think>ab</think>c");
    add(JOB_END, FINISH_STOP, CHOICE_ENDED);
    expect_answer((const char *[]){
        "\"content\":\"c\",\"refusal\":null,\"reasoning\":\"ab\",\"reasoning_content\":\"ab\"}",
        "\"completion_tokens\":18", "\"completion_tokens_details\":{\"reasoning_tokens\":11}",
        NULL});
}
END_TEST

/* Stop strings end an answer in its content. The text before a match may be thoughts. */
START_TEST(stop_strings_are_for_the_content) {
    make("none", "deepseek_r1", USER ",\"stop\":\"b\"}");
    say("<think>abc</think>a");
    add(token_of('b'), FINISH_NONE, CHOICE_STOPPED);
    expect_answer((const char *[]){"\"content\":\"a\"", "\"reasoning\":\"abc\"",
                                   "\"finish_reason\":\"stop\",\"stop_reason\":\"b\"", NULL});
    make("none", "deepseek_r1", USER ",\"stop\":\"b\",\"stop_in_reasoning\":true}");
    say("<think>a");
    add(token_of('b'), FINISH_NONE, CHOICE_STOPPED);
    expect_answer((const char *[]){"\"reasoning\":\"a\"", "\"stop_reason\":\"b\"", NULL});
    make("none", "deepseek_r1", USER ",\"stop_regex\":\"^a|kxy\"}");
    say("<think>kx</think>y");
    add(token_of('a'), FINISH_NONE, CHOICE_GROWN);
    add(JOB_END, FINISH_STOP, CHOICE_ENDED);
    expect_answer((const char *[]){"\"content\":\"ya\"", "\"stop_reason\":null", NULL});
}
END_TEST

START_TEST(thoughts_may_stay_in_the_content) {
    make("none", "qwen3", USER ",\"reasoning_format\":\"none\"}");
    say("<think>ab</think>");
    add(JOB_END, FINISH_STOP, CHOICE_ENDED);
    expect_answer((const char *[]){"\"content\":\"<think>ab</think>\",\"refusal\":null}", NULL});
}
END_TEST

/* Their tokens are counted as before. */
START_TEST(thoughts_may_be_left_out) {
    make("none", "qwen3", USER ",\"include_reasoning\":false}");
    say_to_job("<think>ab</think>c");
    ck_assert_int_eq(choice->message.reasoning.length, 0);
    add(JOB_END, FINISH_STOP, CHOICE_ENDED);
    expect_answer((const char *[]){"\"content\":\"c\",\"refusal\":null}",
                                   "\"completion_tokens_details\":{\"reasoning_tokens\":11}",
                                   NULL});
    make("none", "qwen3", USER ",\"include_reasoning\":false}"); /* a block without an end */
    say("<think>a</th");
    add(JOB_END, FINISH_STOP, CHOICE_ENDED);
    expect_answer((const char *[]){"\"content\":\"\",\"refusal\":null}", NULL});
}
END_TEST

/* Expects the prompt's last ids to be the template's output for the effort. */
static void expect_prompt_end(const char *fields, char end) {
    char body[200];
    snprintf(body, sizeof body, USER "%s}", fields);
    make("none", "qwen3", body);
    ck_assert_int_eq(job.prompts[0].ids[job.prompts[0].n_ids - 1], token_of(end));
    job_clear(&job);
}

START_TEST(the_template_gets_the_effort) {
    expect_prompt_end("", 'x');
    expect_prompt_end(",\"reasoning_effort\":\"low\"", 'L');
    expect_prompt_end(",\"reasoning_effort\":\"high\"", 'H');
    expect_prompt_end(",\"reasoning_effort\":\"none\"", 'N');
    expect_prompt_end(",\"reasoning_effort\":\"none\","
                      "\"chat_template_kwargs\":{\"enable_thinking\":true}",
                      'x');
    expect_prompt_end(",\"reasoning_effort\":\"high\","
                      "\"chat_template_kwargs\":{\"reasoning_effort\":\"low\"}",
                      'L');
}
END_TEST

static void use_source(const char *source) {
    struct err err;
    chat_template_free(template);
    ck_assert_msg(!chat_template_new(&template, source, strlen(source), &err), "%s", err.message);
}

/* Templates switch reasoning by other names than enable_thinking. */
START_TEST(a_switch_has_several_names) {
    static const char deepseek[] = "x{% if not thinking is defined %}{% set thinking = false %}"
                                   "{% endif %}{% if thinking %}T{% else %}N{% endif %}";
    static const char minimax[] = "x{% if thinking_mode == 'enabled' %}T{% endif %}"
                                  "{% if thinking_mode == 'disabled' %}N{% endif %}";
    static const char seed[] = "x{% if thinking_budget == 0 %}N{% else %}T{% endif %}";
    static const char kimi[] = "x{% if thinking_effort == 'max' %}T{% endif %}"
                               "{% if thinking == false %}N{% endif %}";
    static const struct {
        const char *source, *wish;
        char end;
    } rows[] = {
        {deepseek, "\"reasoning_effort\":\"low\"", 'T'},
        {deepseek, "\"reasoning_effort\":\"none\"", 'N'},
        {deepseek, "\"thinking\":{\"type\":\"enabled\"}", 'T'},
        {deepseek, "\"chat_template_kwargs\":{\"enable_thinking\":true}", 'T'},
        {deepseek, "\"chat_template_kwargs\":{\"enable_thinking\":true,\"thinking\":false}", 'N'},
        {minimax, "\"reasoning_effort\":\"high\"", 'T'},
        {minimax, "\"thinking\":false", 'N'},
        {seed, "\"reasoning_effort\":\"none\"", 'N'},
        {seed, "\"reasoning_effort\":\"low\"", 'T'},
        {kimi, "\"reasoning_effort\":\"xhigh\"", 'T'},
        {kimi, "\"reasoning_effort\":\"none\"", 'N'},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        use_source(rows[i].source);
        char fields[200];
        snprintf(fields, sizeof fields, ",%s", rows[i].wish);
        expect_prompt_end(fields, rows[i].end);
    }
}
END_TEST

/* Templates that raise an error for some efforts get the nearest one that they name. */
START_TEST(an_effort_that_the_template_rejects_is_replaced) {
    use_source("{% if reasoning_effort not in ['none', 'high'] %}{{ raise_exception('no') }}"
               "{% endif %}{{ {'none': 'N', 'high': 'H'}[reasoning_effort] }}");
    expect_prompt_end(",\"reasoning_effort\":\"low\"", 'H');
    expect_prompt_end(",\"reasoning_effort\":\"max\"", 'H');
    expect_prompt_end(",\"reasoning_effort\":\"none\"", 'N');
}
END_TEST

/* A wish that the template does not know is no error: it is named. */
START_TEST(wishes_without_effect_are_named) {
    static const struct {
        const char *source, *wishes, *ignored;
        char end;
    } rows[] = {
        {"x", "\"reasoning_effort\":\"none\"", "reasoning_effort", 'x'},
        {"x{{ my_reasoning_effort }}", "\"reasoning_effort\":\"low\"", "reasoning_effort", 'x'},
        {"x{{ reasoning_effort[0] }}", "\"reasoning_effort\":\"low\"", "", 'l'},
        {"x{% if enable_thinking %}T{% endif %}", "\"reasoning_effort\":\"low\"", "", 'T'},
        {"x{% if enable_thinking == false %}N{% endif %}", "\"reasoning_effort\":\"none\"", "",
         'N'},
        {"x{% if enable_thinking == false %}N{% endif %}",
         "\"reasoning_effort\":\"high\",\"thinking\":{\"type\":\"disabled\"}", "", 'N'},
        {"x{% if enable_thinking %}T{% endif %}", "\"thinking\":true", "", 'T'},
        {"x{% if enable_thinking %}T{% endif %}", "\"thinking\":{\"type\":\"auto\"}", "", 'x'},
        {"x{{ verbosity[0] }}", "\"verbosity\":\"high\"", "", 'h'},
        {"x{{ messages[0].thinking }}", "\"thinking\":true", "thinking", 'x'},
        {"x{% set reasoning_effort = 'low' %}{{ reasoning_effort[0] }}",
         "\"reasoning_effort\":\"high\"", "reasoning_effort", 'l'},
        {"x", "\"verbosity\":\"high\",\"thinking\":false", "thinking, verbosity", 'x'},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[200];
        use_source(rows[i].source);
        snprintf(body, sizeof body, USER ",%s}", rows[i].wishes);
        make("none", "qwen3", body);
        ck_assert_str_eq(job.ignored.length ? job.ignored.data : "", rows[i].ignored);
        ck_assert_int_eq(job.prompts[0].ids[job.prompts[0].n_ids - 1], token_of(rows[i].end));
        job_clear(&job);
    }
}
END_TEST

/* A prompt that ends inside a block of thoughts. */
START_TEST(an_answer_may_begin_with_thoughts) {
    make("none", "qwen3", USER ",\"chat_template_kwargs\":{\"begin\":\"<think>\\n\"}}");
    say("ab</think>");
    add(JOB_END, FINISH_STOP, CHOICE_ENDED);
    expect_answer((const char *[]){"\"content\":null,\"refusal\":null,\"reasoning\":\"ab\"", NULL});
}
END_TEST

/* Returns a vocabulary with a token for only one letter. */
static struct tokenizer *one_letter(void) {
    static const char *const token[] = {"x"};
    static const uint32_t token_length[] = {1};
    const struct tokenizer_spec spec = {.kind = TOKENIZER_BYTE_BPE,
                                        .n_tokens = 1,
                                        .token = token,
                                        .token_length = token_length,
                                        .bos = -1,
                                        .eos = -1,
                                        .unknown = -1};
    struct tokenizer *tokenizer;
    ck_assert_int_eq(tokenizer_new(&tokenizer, &spec, NULL), STATUS_OK);
    return tokenizer;
}

/* A grammar begins after the tokens that end the thoughts, so such a model cannot use one. */
START_TEST(a_grammar_needs_tokens_that_end_thoughts) {
    static const char body[] = USER ",\"chat_template_kwargs\":{\"begin\":\"<think>\"},"
                                    "\"structured_outputs\":{\"regex\":\"x\"}}";
    make("none", "qwen3", body); /* the grammars read their vocabulary */
    job_clear(&job);
    struct tokenizer *usual = vocabulary;
    vocabulary = one_letter();
    job_make_as(&api_chat, &silent, "none", "qwen3", body);
    ck_assert_int_eq(job.err.status, STATUS_INVALID_REQUEST);
    ck_assert_msg(strstr(job.err.message, "its tokenizer lacks tokens for \"</think>\""), "%s",
                  job.err.message);
    job_clear(&job);
    tokenizer_free(vocabulary);
    vocabulary = usual;
}
END_TEST

/* The deltas of a stream, as a client receives them. */
START_TEST(a_stream_gives_name_then_arguments) {
    make("hermes", "qwen3", TOOLS ",\"stream\":true}");
    struct api_answer answer = job_answer(&job);
    struct buf out = {0};
    for (const char *c = "<think>a</think>b" A_CALL; *c; c++) {
        struct api_choice described;
        add(token_of(*c), FINISH_NONE, CHOICE_GROWN);
        if (!choice_has_news(choice)) continue;
        choice_describe(choice, &job.prompts[0], 0, false, &described);
        api_chat.write_chunk(&out, &answer, &described, NULL);
        choice_clear(choice);
    }
    ck_assert_ptr_nonnull(strstr(out.data, "\"delta\":{\"reasoning\":\"a\",\"reasoning_content\":"
                                           "\"a\"}"));
    ck_assert_ptr_nonnull(strstr(out.data, "\"delta\":{\"content\":\"b\"}"));
    const char *call = strstr(out.data, "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_");
    ck_assert_ptr_nonnull(call);
    call =
        strstr(call, "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}");
    ck_assert_ptr_nonnull(call);
    for (const char *c = "n:1}"; *c; c++) { /* each is a separate delta, without id and name */
        char delta[80];
        snprintf(delta, sizeof delta, "[{\"index\":0,\"function\":{\"arguments\":\"%s\"}}]",
                 (char[]){*c, 0});
        call = strstr(call, delta);
        ck_assert_msg(call, "%s is not in %s", delta, out.data);
    }
    buf_free(&out);
    job_clear(&job);
}
END_TEST

/* Ids of calls follow from the request's id and the choice. */
START_TEST(choices_have_ids_of_their_own) {
    char id[32];
    make("hermes", "none", TOOLS ",\"n\":2}");
    for (int i = 0; i < 2; i++) {
        choice = &job.prompts[0].choices[i];
        say(A_CALL);
        ck_assert_int_eq(choice->message.n_calls, 1);
        if (i == 1) ck_assert_str_ne(choice->message.calls[0].id, id);
        memcpy(id, choice->message.calls[0].id, sizeof id);
    }
    job_clear(&job);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_choice_message");
    TCase *answers = tcase_create("answers");
    tcase_add_checked_fixture(answers, set_up, tear_down);
    tcase_add_test(answers, a_limit_on_reasoning_forces_its_end);
    tcase_add_test(answers, a_message_precedes_the_forced_end);
    tcase_add_test(answers, a_message_with_a_marker_of_reasoning_is_refused);
    tcase_add_test(answers, a_limit_without_marked_reasoning_is_refused);
    tcase_add_test(answers, an_answer_has_calls);
    tcase_add_test(answers, an_answer_without_calls_is_text);
    tcase_add_test(answers, without_tools_calls_are_text);
    tcase_add_test(answers, a_cut_call_is_not_run);
    tcase_add_test(answers, one_call_ends_an_answer_that_may_have_one);
    tcase_add_test(answers, thoughts_are_counted);
    tcase_add_test(answers, stop_strings_are_for_the_content);
    tcase_add_test(answers, thoughts_may_stay_in_the_content);
    tcase_add_test(answers, thoughts_may_be_left_out);
    tcase_add_test(answers, the_template_gets_the_effort);
    tcase_add_test(answers, a_switch_has_several_names);
    tcase_add_test(answers, an_effort_that_the_template_rejects_is_replaced);
    tcase_add_test(answers, wishes_without_effect_are_named);
    tcase_add_test(answers, an_answer_may_begin_with_thoughts);
    tcase_add_test(answers, a_grammar_needs_tokens_that_end_thoughts);
    tcase_add_test(answers, a_stream_gives_name_then_arguments);
    tcase_add_test(answers, choices_have_ids_of_their_own);
    suite_add_tcase(suite, answers);
    return suite_main(suite);
}
