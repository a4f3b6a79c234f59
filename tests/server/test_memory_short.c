/* Each allocation between a request's arrival and its answer may fail: the request ends with a 503,
 * all its memory is freed, and the next request is served. The sanitizer build finds leaks. */
#include "support/faults.h"
#include "support/job_fixture.h"
#include "support/matcher_copy.h"
#include "support/suite_main.h"

static const struct job_listener silent = {NULL};

static void set_up(void) {
    static const char source[] =
        "{% for m in messages %}{{ m.role | upper }}: {{ m.content | trim | replace('a', 'b') }}\n"
        "{% endfor %}{{ messages | map(attribute='role') | join(',') }}"
        "{% if tools %}{% for t in tools %}{{ t.function.name | tojson }}{% endfor %}{% endif %}"
        "{% set ns = namespace(n=1) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}"
        "{{ ns.n }}{{ messages[0].content.split(' ') | list | length }}";
    struct err err;
    ck_assert_int_eq(chat_template_new(&template, source, strlen(source), &err), STATUS_OK);
}

static void tear_down(void) {
    chat_template_free(template);
    template = NULL;
}

/* ---- requests ------------------------------------------------------------------------------- */

#define USER "{\"messages\":[{\"role\":\"user\",\"content\":\"a b\"}]"
#define TOOL                                                                                       \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"     \
    "\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"]}}}]"

struct body {
    const struct api *api;
    const char *text;
};

static const struct body bodies[] = {
    {&api_completions, "{\"prompt\":\"Hello, w\\u00f6rld\",\"n\":2,\"stop\":[\"ab\",\"c\"]}"},
    {&api_completions, "{\"prompt\":[\"a\",\"b\"],\"echo\":true,\"logprobs\":2}"},
    {&api_completions, "{\"prompt\":[1,2,3],\"prompt_logprobs\":1,\"return_token_ids\":true}"},
    {&api_completions, "{\"prompt\":\"a\",\"bad_words\":[\"b\",\" c\"],\"logit_bias\":{\"5\":1}}"},
    {&api_completions, "{\"prompt\":\"a\",\"stop_regex\":[\"b+c\",\"[0-9]{2}\"]}"},
    {&api_completions, "{\"prompt\":\"a\",\"guided_regex\":\"[a-c]{1,3}(x|y)*\"}"},
    {&api_completions, "{\"prompt\":\"a\",\"guided_choice\":[\"yes\",\"no\"]}"},
    {&api_completions, "{\"prompt\":\"a\",\"guided_grammar\":\"root ::= \\\"a\\\" [b-d]+ w\\nw ::= "
                       "\\\"x\\\" | \\\"y\\\" w\"}"},
    {&api_completions,
     "{\"prompt\":\"a\",\"guided_json\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
     "\"string\",\"maxLength\":3,\"pattern\":\"^x\"},\"b\":{\"type\":\"integer\",\"minimum\":3},"
     "\"c\":{\"type\":\"array\",\"items\":{\"enum\":[1,\"z\"]},\"maxItems\":2},\"d\":{\"$ref\":"
     "\"#/$defs/e\"}},\"required\":[\"a\",\"d\"],\"$defs\":{\"e\":{\"anyOf\":[{\"type\":\"null\"},"
     "{\"const\":7}]}}}}"},
    {&api_completions,
     "{\"prompt\":\"a\",\"structural_tag\":{\"type\":\"structural_tag\",\"format\":{\"type\":"
     "\"tag\",\"begin\":\"<f>\",\"content\":{\"type\":\"regex\",\"pattern\":\"[0-9]+\"},\"end\":"
     "\"</f>\"}}}"},
    {&api_completions, "{\"prompt\":\"a\",\"beam_search\":false,\"use_beam_search\":true,\"n\":2,"
                       "\"max_tokens\":3}"},
    {&api_chat, USER "}"},
    {&api_chat, USER "," TOOL "}"},
    {&api_chat, USER "," TOOL ",\"tool_choice\":\"required\"}"},
    {&api_chat, USER ",\"response_format\":{\"type\":\"json_object\"}}"},
    {&api_chat, USER ",\"logprobs\":true,\"top_logprobs\":2,\"n\":2}"},
};

static void make_job(void *body) {
    const struct body *asked = body;
    struct json *json;
    if (json_parse(&json, "The body", asked->text, strlen(asked->text), &job.err)) return;
    job_prepare(&job, json);
}

static void undo_job(void *body) {
    (void)body;
    job_clear(&job);
    err_out_of_memory(&job.err);
}

/* Is the job complete if the allocation after n others fails? */
static bool survives(const struct body *body, int n, enum fault_kind kind) {
    job = (struct generation_job){.app = &app, .api = body->api, .listener = &silent};
    faults_begin(n, kind);
    mem_run(make_job, undo_job, (void *)(uintptr_t)body);
    int failed = faults_end();
    bool is_short = failed > 0;
    if (is_short)
        ck_assert_msg(job.err.status == STATUS_UNAVAILABLE &&
                          strcmp(job.err.code, "out_of_memory") == 0,
                      "%s, allocation %d: %d, %s", body->text, n, job.err.status, job.err.message);
    return !is_short;
}

/* Fails each allocation in turn until the request succeeds. The body must be one that the fixture's
 * model accepts; others are refused before they could get a 503. */
static void fail_each(const struct body *body, enum fault_kind kind) {
    int n = 0;
    job_make(&silent, "{\"prompt\":\"a\"}"); /* allocates the fixture's tables */
    job_clear(&job);
    app.limits.has_chat_template = true;
    app.limits.tool_format = tool_format_find("hermes");
    app.limits.reasoning_format = reasoning_format_find("qwen3");
    for (; !survives(body, n, kind); n++) job_clear(&job);
    ck_assert_msg(!job.err.status, "%s: %s", body->text, job.err.message);
    ck_assert_int_gt(n, 5);
    job_clear(&job);
}

START_TEST(a_request_whose_nth_allocation_fails_is_refused_with_503) {
    fail_each(&bodies[_i], FAULT_ONCE);
}
END_TEST

START_TEST(a_request_without_memory_from_the_nth_allocation_on_is_refused_with_503) {
    fail_each(&bodies[_i], FAULT_ALWAYS);
}
END_TEST

/* ---- answers -------------------------------------------------------------------------------- */

static bool ended;

static void on_end(struct generation_job *ending) {
    (void)ending;
    ended = true;
}

/* Adds a text to a choice while one allocation fails. Returns the number of failed allocations. */
static int answer_with_fault(const struct body *body, const char *text, int n) {
    static const struct job_listener listener = {.on_end = on_end};
    job_make_as(body->api, &listener, "hermes", "qwen3", body->text);
    ck_assert_msg(!job.err.status, "%s", job.err.message);
    job.n_running = 1;
    ended = false;
    faults_begin(n, FAULT_ONCE);
    for (const char *c = text; *c; c++) {
        faults_spare(true);
        int32_t id = token_of(*c);
        faults_spare(false);
        struct event event = token_event(0, 0, id, c[1] ? FINISH_NONE : FINISH_LENGTH);
        event.last = !c[1];
        job_event(&event);
    }
    int failed = faults_end();
    ck_assert(ended);
    ck_assert_int_eq(job.err.status, failed > 0 ? STATUS_UNAVAILABLE : STATUS_OK);
    job_clear(&job);
    return failed;
}

START_TEST(an_answer_that_cannot_grow_ends_its_request_with_503) {
    static const struct body with_tools = {&api_chat, USER "," TOOL "}"};
    static const struct body with_logprobs = {
        &api_completions,
        "{\"prompt\":\"a\",\"echo\":true,\"logprobs\":1,\"return_token_ids\":true,"
        "\"stop\":\"##\",\"stop_regex\":\"@[0-9]\"}"};
    static const char call[] = "so<think>well</think>text<tool_call>{\"name\":\"f\",\"arguments\":"
                               "{\"n\":1}}</tool_call>";
    int n = 0;
    for (; answer_with_fault(&with_tools, call, n); n++) {
    }
    ck_assert_int_gt(n, 2);
    for (n = 0; answer_with_fault(&with_logprobs, "text-that-is-not-stopped@x#y", n); n++) {
    }
    ck_assert_int_gt(n, 2);
}
END_TEST

/* ---- grammars in use ------------------------------------------------------------------------ */

/* Follows a grammar over a text, byte by byte, while one allocation fails. */
static int follow_with_fault(struct grammar *grammar, const struct vocabulary *v, int n) {
    static const char text[] = "{\"a\":[1,[2]],\"b\":{\"c\":\"d\"}}";
    static uint32_t mask[2048];
    faults_begin(n, FAULT_ONCE);
    struct matcher *matcher = matcher_new(grammar, v), *copy = NULL;
    for (const char *c = text; matcher && *c; c++) {
        matcher_mask(matcher, mask);
        faults_spare(true);
        int32_t id = token_of(*c);
        faults_spare(false);
        bool is_allowed = mask[id / 32] >> (id % 32) & 1, is_taken = matcher_accept(matcher, id);
        ck_assert(is_taken == is_allowed || grammar_is_broken(grammar));
    }
    if (matcher) copy = matcher_copy(matcher);
    matcher_free(copy);
    int failed = faults_end();
    ck_assert(!grammar_is_broken(grammar) || (matcher && failed > 0));
    if (grammar_is_broken(grammar)) {
        ck_assert(!matcher_mask(matcher, mask) && !matcher_may_end(matcher));
        ck_assert(!matcher_may_go_on(matcher) && !matcher_accept(matcher, token_of('"')));
        ck_assert(matcher_prepare(matcher, 1)); /* without waiting */
    }
    matcher_free(matcher);
    return failed;
}

START_TEST(a_grammar_without_memory_lets_nothing_pass_and_is_freed_whole) {
    job_make(&silent, "{\"prompt\":\"a\"}");
    const struct vocabulary *v = grammar_store_vocabulary(app.grammars, NULL, NULL);
    int n = 0, failed = 1;
    for (; failed; n += 1 + n / 100) {
        struct grammar *grammar;
        /* so that states are freed, too */
        const struct grammar_limits limits = {.max_bytes = 100000};
        ck_assert(!grammar_compile(GRAMMAR_JSON_OBJECT, "", 0, &limits, &grammar, NULL));
        failed = follow_with_fault(grammar, v, n);
        grammar_release(grammar);
    }
    ck_assert_int_gt(n, 100);
    job_clear(&job);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_memory_short");
    TCase *cases = tcase_create("requests");
    const int n = sizeof bodies / sizeof *bodies;
    suite_add_tcase(suite, cases);
    tcase_set_timeout(cases, 600);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, a_request_whose_nth_allocation_fails_is_refused_with_503, 0, n);
    tcase_add_loop_test(
        cases, a_request_without_memory_from_the_nth_allocation_on_is_refused_with_503, 0, n);
    tcase_add_test(cases, an_answer_that_cannot_grow_ends_its_request_with_503);
    tcase_add_test(cases, a_grammar_without_memory_lets_nothing_pass_and_is_freed_whole);
    return suite_main(suite);
}
