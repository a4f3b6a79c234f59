/* A job from its body to its answer: the requests that it submits, the calls to its listener and
 * their times, and its early ends. */
#include <stdatomic.h>

#include "support/job_fixture.h"
#include "support/suite_main.h"

static char told[64]; /* a letter per call: c choice, e end, i idle */

static void note(char letter) {
    size_t n = strlen(told);
    ck_assert_uint_lt(n + 1, sizeof told);
    told[n] = letter;
    told[n + 1] = 0;
}

static void on_choice(struct generation_job *of, struct prompt_run *run,
                      const struct event *event) {
    ck_assert(of == &job && run->job == of && event->generation == &run->generation);
    note('c');
}

static void on_end(struct generation_job *of) {
    ck_assert_ptr_eq(of, &job);
    ck_assert(job.n_open == 0 || job.err.status);
    note('e');
}

static void on_idle(struct generation_job *of) {
    ck_assert(of == &job && job.n_running == 0);
    note('i');
}

static const struct job_listener listener = {on_choice, on_end, on_idle};

static void make(const char *body) {
    told[0] = 0;
    job_make(&listener, body);
}

static void submit(const char *body) {
    make(body);
    ck_assert_msg(!job.err.status, "%s", job.err.message);
    ck_assert_int_eq(job_submit(&job, 5), STATUS_OK);
    ck_assert_int_eq(job.n_running, job.n_prompts);
}

static void token(int p, int c, char letter, enum finish finish, bool last) {
    struct event event = token_event(p, c, token_of(letter), finish);
    event.last = last;
    job_event(&event);
}

static void end(int p, int c, enum finish finish, bool last) {
    struct event event = end_event(p, c, finish);
    event.last = last;
    job_event(&event);
}

/* ---- before --------------------------------------------------------------------------------- */

START_TEST(a_body_becomes_generations) {
    make("{\"prompt\":[[64],[64,65,66]],\"n\":3,\"max_tokens\":9,\"min_tokens\":2,\"priority\":4,"
         "\"stop_token_ids\":[7],\"temperature\":0.5,\"request_id\":\"r\"}");
    ck_assert_int_eq(job.err.status, STATUS_OK);
    ck_assert(job.n_prompts == 2 && job.n_open == 6 && job.n_running == 0);
    ck_assert_str_eq(job.id, "cmpl-r");
    ck_assert_int_eq(job.prompt_tokens, 4);
    for (int i = 0; i < 2; i++) {
        const struct generation *g = &job.prompts[i].generation;
        ck_assert(g->prompt == job.prompts[i].ids && g->n_prompt == job.prompts[i].n_ids);
        ck_assert(g->n == 3 && g->max_tokens == 9 && g->min_tokens == 2 && g->priority == 4);
        ck_assert(g->n_stop_ids == 2 && g->stop_ids[0] == 7 && g->stop_ids[1] == JOB_END);
        ck_assert(g->owner == &job.prompts[i] && g->prompt_logprobs == -1);
        ck_assert(g->sampling.temperature == 0.5f);
    }
    ck_assert(job.prompts[0].generation.sampling.seed != job.prompts[1].generation.sampling.seed);
    ck_assert_ptr_null(job.request->json); /* it is not needed any more */
    job_clear(&job);
}
END_TEST

START_TEST(a_wrong_body_is_an_error) {
    make("{\"prompt\":\"\"}");
    ck_assert_int_eq(job.err.status, STATUS_INVALID_REQUEST);
    ck_assert_str_eq(job.err.param, "prompt");
    ck_assert(!job.request && job.n_prompts == 0 && !told[0]);
    job_clear(&job);
}
END_TEST

/* Tokens 64 and 65 are allowed. Stop tokens are forbidden until the minimum is reached. */
START_TEST(a_token_must_be_left_that_can_always_be_chosen) {
    static const struct {
        const char *fields;
        bool is_left;
    } rows[] = {
        {"\"stop_token_ids\":[65,64]", true},
        {"\"stop_token_ids\":[65],\"min_tokens\":1", true},
        {"\"stop_token_ids\":[64],\"min_tokens\":1", true},
        {"\"stop_token_ids\":[65,64],\"min_tokens\":1", false},
        {"\"stop_token_ids\":[7,65,64],\"min_tokens\":1", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"prompt\":[64],\"allowed_token_ids\":[64,65],%s}",
                 rows[i].fields);
        make(body);
        ck_assert_msg((job.err.status == STATUS_OK) == rows[i].is_left, "%s: %s", body,
                      job.err.message);
        if (!rows[i].is_left) ck_assert_str_eq(job.err.param, "allowed_token_ids");
        job_clear(&job);
    }
}
END_TEST

START_TEST(a_prompt_that_is_far_too_long_is_an_error) {
    char body[JOB_CONTEXT * 8];
    int n = snprintf(body, sizeof body, "{\"prompt\":[\"a\",\"");
    for (int i = 0; i < 5 * JOB_CONTEXT; i++) n += snprintf(body + n, 2, "b");
    snprintf(body + n, 4, "\"]}");
    make(body);
    ck_assert_int_eq(job.err.status, STATUS_INVALID_REQUEST);
    ck_assert_str_eq(job.err.code, "context_length_exceeded");
    job_clear(&job);
}
END_TEST

/* A prompt may fill the context only if no token is generated. */
START_TEST(a_prompt_as_long_as_the_context_leaves_no_room) {
    for (int max_tokens = 0; max_tokens < 2; max_tokens++) {
        struct buf body = {0};
        buf_printf(&body, "{\"echo\":true,\"max_tokens\":%d,\"prompt\":[1", max_tokens);
        for (int i = 1; i < JOB_CONTEXT; i++) buf_puts(&body, ",1");
        buf_puts(&body, "]}");
        make(body.data);
        buf_free(&body);
        ck_assert_int_eq(job.err.status, max_tokens ? STATUS_INVALID_REQUEST : STATUS_OK);
        if (max_tokens) {
            ck_assert_str_eq(job.err.param, "prompt");
            ck_assert_str_eq(job.err.code, "context_length_exceeded");
            ck_assert_ptr_nonnull(
                strstr(job.err.message,
                       "This model's maximum context length is 64 tokens. However, your prompt has "
                       "64 tokens."));
        }
        job_clear(&job);
    }
}
END_TEST

START_TEST(too_many_echoed_logprobs_are_an_error) {
    struct buf body = {0};
    buf_puts(&body, "{\"prompt\":[[1");
    for (int i = 1; i < JOB_CONTEXT; i++) buf_puts(&body, ",1");
    buf_puts(&body, "]],\"echo\":true,\"max_tokens\":0,\"logprobs\":20,\"n\":8}");
    make(body.data); /* 64 * 8 * 21 of them are within the limit */
    ck_assert_int_eq(job.err.status, STATUS_OK);
    ck_assert_int_eq(job.prompts[0].generation.prompt_logprobs, 20);
    job_clear(&job);
    buf_free(&body);
}
END_TEST

/* A chat's answer has the prompt's logprobs once, a completion's has them in each choice. */
START_TEST(memory_for_repeated_prompts_is_reserved) {
    static const struct {
        const char *fields;
        size_t least, most;
    } cases[] = {{"\"n\":8", 0, 0},
                 {"\"n\":8,\"return_token_ids\":true", 8 * 64 * 2, 8 * 64 * 11},
                 {"\"n\":8,\"prompt_logprobs\":20", 8 * 64 * 21 * 70, 8 * 64 * 21 * 120},
                 {"\"n\":2,\"echo\":true,\"max_tokens\":0,\"logprobs\":9,\"prompt_logprobs\":5",
                  2 * 64 * 16 * 70, 2 * 64 * (16 * 120 + 16)}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf body = {0};
        buf_printf(&body, "{\"max_tokens\":1,%s,\"prompt\":[1", cases[i].fields);
        for (int k = 2; k < JOB_CONTEXT; k++) buf_puts(&body, ",1");
        buf_puts(&body, "]}");
        make(body.data);
        ck_assert_msg(!job.err.status, "%s", job.err.message);
        ck_assert_uint_ge(job.answer_bytes, cases[i].least * 63 / 64);
        ck_assert_uint_le(job.answer_bytes, cases[i].most);
        bool is_large = job.answer_bytes > ANSWER_SMALL_BYTES;
        ck_assert_uint_eq(app.answers.bytes, is_large ? job.answer_bytes : 0);
        job_clear(&job);
        ck_assert_uint_eq(app.answers.bytes, 0);
        buf_free(&body);
    }
}
END_TEST

/* ---- events --------------------------------------------------------------------------------- */

START_TEST(an_answer_grows_and_ends) {
    struct buf out = {0};
    submit("{\"prompt\":\"x\"}");
    ck_assert_int_eq(job.prompts[0].generation.received_ns, 5);
    token(0, 0, 'H', FINISH_NONE, false);
    token(0, 0, 'i', FINISH_LENGTH, true);
    ck_assert_str_eq(told, "ccei");
    ck_assert(job.completion_tokens == 2 && job.n_open == 0 && !job.cancelled && n_cancels == 0);
    job_write_response(&job, &out);
    ck_assert_ptr_nonnull(strstr(out.data, "\"text\":\"Hi\""));
    ck_assert_ptr_nonnull(strstr(out.data, "\"completion_tokens\":2"));
    buf_free(&out);
    job_clear(&job);
}
END_TEST

static void token_with_logprobs(enum finish finish) {
    struct event event = token_event(0, 0, token_of('x'), finish);
    event.sampled.n_top = MAX_TOP_LOGPROBS;
    for (int i = 0; i < MAX_TOP_LOGPROBS; i++)
        event.sampled.top[i] = (struct token_logprob){token_of((char)('a' + i)), -1.2345678f};
    event.last = finish != FINISH_NONE;
    job_event(&event);
}

/* Its pieces are freed after it is written, so that it is in memory once. */
START_TEST(a_whole_answer_is_counted_until_the_job_is_cleared) {
    struct buf answer = {0};
    submit("{\"prompt\":\"x\",\"logprobs\":20}");
    for (int i = 0; i < 400; i++) {
        token_with_logprobs(i < 399 ? FINISH_NONE : FINISH_LENGTH);
        told[0] = 0;
    }
    ck_assert_uint_ge(app.answers.bytes, (size_t)400 * 20 * 100 - (128 << 10));
    job_write_response(&job, &answer);
    ck_assert_uint_gt(answer.length, ANSWER_SMALL_BYTES);
    ck_assert_uint_eq(app.answers.bytes, answer.length);
    const struct choice *choice = &job.prompts[0].choices[0];
    ck_assert(!choice->logprobs && !choice->text.data && !choice->ids);
    job_clear(&job);
    ck_assert_uint_eq(app.answers.bytes, 0);
    buf_free(&answer);
}
END_TEST

START_TEST(an_answer_that_finds_no_room_as_it_grows_ends_its_job) {
    submit("{\"prompt\":\"x\",\"logprobs\":20}");
    app.answers.max_bytes = 100 << 10;
    int n = 0;
    while (!job.err.status && n++ < 200) {
        token_with_logprobs(FINISH_NONE);
        told[strlen(told) - (told[0] != 0 && !job.err.status)] = 0;
    }
    ck_assert_int_eq(job.err.status, STATUS_UNAVAILABLE);
    ck_assert_str_eq(job.err.code, "too_many_answers");
    ck_assert_str_eq(told, "e");
    ck_assert(job.cancelled && n < 80);
    end(0, 0, FINISH_CANCELLED, true);
    ck_assert_str_eq(told, "ei");
    job_clear(&job);
    ck_assert_uint_eq(app.answers.bytes, 0);
}
END_TEST

START_TEST(choices_of_all_prompts_end_a_job) {
    submit("{\"prompt\":[\"x\",\"y\"],\"n\":2}");
    token(0, 0, 'a', FINISH_LENGTH, false);
    token(1, 1, 'a', FINISH_LENGTH, false);
    token(0, 1, 'a', FINISH_LENGTH, true);
    ck_assert_str_eq(told, "ccc");
    ck_assert(job.n_running == 1 && job.n_open == 1);
    token(1, 0, 'a', FINISH_LENGTH, true);
    ck_assert_str_eq(told, "ccccei");
    job_clear(&job);
}
END_TEST

START_TEST(cached_tokens_count_once_a_prompt) {
    submit("{\"prompt\":[\"x\",\"y\"],\"n\":2}");
    for (int i = 0; i < 4; i++) {
        struct event event = token_event(i / 2, i % 2, token_of('a'), FINISH_LENGTH);
        event.n_cached = 16 * (i / 2 + 1);
        event.last = i % 2;
        job_event(&event);
    }
    ck_assert_int_eq(job.cached_tokens, 16 + 32);
    job_clear(&job);
}
END_TEST

START_TEST(prompt_tokens_are_scored) {
    submit("{\"prompt\":[1,2,3],\"echo\":true,\"logprobs\":1,\"max_tokens\":0}");
    for (int i = 1; i < 3; i++) {
        struct event event = token_event(0, 0, i + 1, FINISH_NONE);
        event.kind = EVENT_PROMPT_TOKEN;
        event.position = i;
        event.sampled.logprob = (float)-i;
        job_event(&event);
    }
    ck_assert_str_eq(told, "");
    end(0, 0, FINISH_LENGTH, true);
    ck_assert_str_eq(told, "cei");
    const struct choice *choice = &job.prompts[0].choices[0];
    ck_assert(choice->n_logprobs == 3 && !choice->logprobs[0].has_logprob);
    ck_assert(choice->logprobs[2].has_logprob && choice->logprobs[2].sampled.logprob == -2);
    ck_assert_int_eq(job.completion_tokens, 0);
    job_clear(&job);
}
END_TEST

/* The scheduler still runs a choice that a stop string has ended. It is told to stop, and its last
 * event changes nothing. */
START_TEST(a_stop_string_cancels_its_choice) {
    submit("{\"prompt\":\"x\",\"n\":2,\"stop\":\"!\"}");
    token(0, 1, '!', FINISH_NONE, false);
    ck_assert_int_eq(n_cancels, 1);
    ck_assert_uint_eq(atomic_load(&job.prompts[0].generation.cancelled_choices[0]), 2);
    ck_assert(!atomic_load(&job.prompts[0].generation.cancelled) && job.n_open == 1);
    token(0, 1, 'z', FINISH_NONE, false);
    end(0, 1, FINISH_CANCELLED, false);
    ck_assert_str_eq(told, "c");
    token(0, 0, '!', FINISH_NONE, false);
    ck_assert_str_eq(told, "cce"); /* answered before the scheduler knows */
    end(0, 0, FINISH_CANCELLED, true);
    ck_assert_str_eq(told, "ccei");
    ck_assert_int_eq(job.completion_tokens, 2);
    ck_assert_uint_eq(app.metrics.finished_abort, 0);
    job_clear(&job);
}
END_TEST

/* ---- ending early --------------------------------------------------------------------------- */

START_TEST(a_cancelled_job_waits_for_its_last_event) {
    submit("{\"prompt\":\"x\",\"n\":2}");
    token(0, 0, 'a', FINISH_NONE, false);
    job_cancel(&job);
    ck_assert(atomic_load(&job.prompts[0].generation.cancelled) && n_cancels == 1);
    token(0, 0, 'b', FINISH_NONE, false);
    end(0, 0, FINISH_CANCELLED, false);
    end(0, 1, FINISH_CANCELLED, true);
    ck_assert_str_eq(told, "ci");
    ck_assert_int_eq(job.completion_tokens, 1);
    ck_assert_uint_eq(app.metrics.finished_abort, 2);
    job_clear(&job);
}
END_TEST

START_TEST(an_error_of_the_engine_ends_a_job_once) {
    submit("{\"prompt\":[\"x\",\"y\"]}");
    token(0, 0, 'a', FINISH_NONE, false);
    end(1, 0, FINISH_ERROR, true);
    ck_assert_str_eq(told, "ce");
    ck_assert_int_eq(job.err.status, STATUS_SERVER_ERROR);
    ck_assert_str_eq(job.err.message, "The engine failed on this request.");
    ck_assert(job.cancelled && n_cancels == 2);
    end(0, 0, FINISH_ERROR, true);
    ck_assert_str_eq(told, "cei");
    ck_assert_uint_eq(app.metrics.finished_error, 1);
    job_clear(&job);
}
END_TEST

START_TEST(a_row_with_nothing_left_is_the_requests_own_fault) {
    submit("{\"prompt\":\"x\"}");
    token(0, 0, 'a', FINISH_NONE, false);
    end(0, 0, FINISH_STUCK, true);
    ck_assert_str_eq(told, "cei");
    ck_assert_int_eq(job.err.status, STATUS_INVALID_REQUEST);
    ck_assert(strstr(job.err.message, "No next token is allowed"));
    job_clear(&job);
}
END_TEST

START_TEST(a_failed_device_is_named) {
    submit("{\"prompt\":\"x\"}");
    err_set(&app.failure, STATUS_UNAVAILABLE, NULL, "The device has failed.");
    end(0, 0, FINISH_ERROR, true);
    ck_assert_str_eq(told, "ei");
    ck_assert_str_eq(job.err.message, "The device has failed.");
    job_clear(&job);
}
END_TEST

/* The body's deadline and the header's count from the arrival of the request. */
START_TEST(the_earlier_deadline_counts) {
    static const struct {
        const char *body;
        int header;
        uint64_t deadline_ns;
    } cases[] = {{"{\"prompt\":\"x\"}", 0, 0},
                 {"{\"prompt\":\"x\",\"deadline_ms\":70}", 0, 70000005},
                 {"{\"prompt\":\"x\"}", 40, 40000005},
                 {"{\"prompt\":\"x\",\"deadline_ms\":70}", 40, 40000005},
                 {"{\"prompt\":\"x\",\"deadline_ms\":30}", 40, 30000005}};
    for (int i = 0; i < 5; i++) {
        make(cases[i].body);
        job.deadline_ms = cases[i].header;
        ck_assert_int_eq(job_submit(&job, 5), STATUS_OK);
        ck_assert_uint_eq(job.prompts[0].generation.deadline_ns, cases[i].deadline_ns);
        end(0, 0, FINISH_TIMEOUT, true);
        ck_assert_str_eq(told, "cei");
        ck_assert(!job.err.status && job.is_late);
        ck_assert_str_eq(job.prompts[0].choices[0].finish_reason, "timeout");
        job_clear(&job);
        job.is_late = false;
    }
    make("{\"prompt\":\"x\",\"deadline_ms\":70,\"receipt\":true}");
    ck_assert_int_eq(job.err.status, STATUS_INVALID_REQUEST);
    ck_assert_str_eq(job.err.param, "deadline_ms");
    job_clear(&job);
}
END_TEST

START_TEST(a_model_that_is_not_loaded_fails_the_request) {
    submit("{\"prompt\":\"x\"}");
    end(0, 0, FINISH_UNLOADED, true);
    ck_assert_int_eq(job.err.status, STATUS_UNAVAILABLE);
    ck_assert_str_eq(job.err.message, "Lower --max-num-seqs.");
    job_clear(&job);
}
END_TEST

START_TEST(a_refused_prompt_cancels_those_before_it) {
    make("{\"prompt\":[\"x\",\"y\",\"z\"]}");
    refused_submit = 2;
    ck_assert_int_eq(job_submit(&job, 5), STATUS_OVERLOADED);
    ck_assert(job.n_running == 2 && job.cancelled && job.err.status == STATUS_OVERLOADED);
    ck_assert(atomic_load(&job.prompts[1].generation.cancelled));
    end(0, 0, FINISH_CANCELLED, true);
    ck_assert_str_eq(told, "");
    end(1, 0, FINISH_CANCELLED, true);
    ck_assert_str_eq(told, "i");
    job_clear(&job);
}
END_TEST

START_TEST(a_listener_may_be_silent) {
    static const struct job_listener silent = {NULL};
    submit("{\"prompt\":\"x\"}");
    job.listener = &silent;
    token(0, 0, 'a', FINISH_LENGTH, true);
    ck_assert(job.n_open == 0 && job.n_running == 0 && !told[0]);
    job_clear(&job);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        a_body_becomes_generations,
        a_wrong_body_is_an_error,
        a_token_must_be_left_that_can_always_be_chosen,
        a_prompt_that_is_far_too_long_is_an_error,
        a_prompt_as_long_as_the_context_leaves_no_room,
        too_many_echoed_logprobs_are_an_error,
        an_answer_grows_and_ends,
        memory_for_repeated_prompts_is_reserved,
        a_whole_answer_is_counted_until_the_job_is_cleared,
        an_answer_that_finds_no_room_as_it_grows_ends_its_job,
        choices_of_all_prompts_end_a_job,
        cached_tokens_count_once_a_prompt,
        prompt_tokens_are_scored,
        a_stop_string_cancels_its_choice,
        a_cancelled_job_waits_for_its_last_event,
        an_error_of_the_engine_ends_a_job_once,
        a_row_with_nothing_left_is_the_requests_own_fault,
        a_failed_device_is_named,
        the_earlier_deadline_counts,
        a_model_that_is_not_loaded_fails_the_request,
        a_refused_prompt_cancels_those_before_it,
        a_listener_may_be_silent,
    };
    Suite *suite = suite_create("server/job");
    TCase *cases = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    int code = suite_main(suite);
    tokenizer_free(vocabulary);
    return code;
}
