/* Truncated prompts: their last or first tokens, the text that echo repeats, and the offsets of
 * their logprobs, for all lengths, kinds of prompts and limits. */
#include "support/job_fixture.h"
#include "support/suite_main.h"

enum { LONGEST = 100, ANY = -2, DEFAULT_OUTPUT = 16 };

/* The kinds of prompts. TEXT_ALONE: without the tokens around the text. */
enum writing { TEXT, IDS, TEXT_ALONE, N_WRITINGS };

static int n_before, n_after; /* tokens that the model's file adds around a text */

static void setup(void) {
    const int32_t *before, *after;
    vocabulary = fixture_tokenizer("gpt-2");
    tokenizer_around(vocabulary, &before, &n_before, &after, &n_after);
    ck_assert(n_before == 1 && n_after == 1);
}

static void teardown(void) {
    tokenizer_free(vocabulary);
    vocabulary = NULL;
}

/* Writes a text of n letters, and its ids with the added tokens. Returns the number of ids. */
static int text_of(int n, struct buf *text, int32_t **ids) {
    buf_clear(text);
    for (int i = 0; i < n; i++) buf_printf(text, "%c", "qzxjkvwy"[(i * 5 + i / 8) % 8]);
    int n_ids = tokenizer_encode(vocabulary, text->data, text->length, SPECIAL_AS_TEXT, true,
                                 4 * LONGEST, ids);
    ck_assert_int_eq(n_ids, n_before + n + n_after);
    return n_ids;
}

/* Writes `"name":value,` unless the value is ANY. */
static void put(struct buf *body, const char *name, int value) {
    if (value != ANY) buf_printf(body, "\"%s\":%d,", name, value);
}

/* Makes the job of a prompt with more fields. */
static void make_prompt(const struct buf *text, const int32_t *ids, int n, enum writing writing,
                        struct buf *fields) {
    if (writing == TEXT_ALONE) buf_puts(fields, "\"add_special_tokens\":false,");
    buf_puts(fields, "\"prompt\":");
    if (writing == IDS) {
        for (int i = 0; i < n; i++) buf_printf(fields, "%c%d", i > 0 ? ',' : '[', ids[i]);
        buf_puts(fields, "]}");
    } else {
        buf_printf(fields, "\"%.*s\"}", (int)text->length, text->data);
    }
    job_make(NULL, fields->data);
    buf_free(fields);
}

/* Returns how many of n tokens remain. */
static int left_of(int n, int keep, int max_tokens) {
    int output = max_tokens == ANY ? DEFAULT_OUTPUT : max_tokens;
    int most = keep == ANY ? n : keep > 0 ? keep : max_int(JOB_CONTEXT - output, 1);
    return min_int(n, most);
}

/* The number of tokens at the beginning that remain. A text keeps its begin token and then its last
 * tokens, or its first tokens and then its end token. In a list of ids all are the client's. */
static int first_of(enum writing writing, bool keeps_beginning, int left) {
    int before = writing == TEXT ? min_int(n_before, left) : 0;
    int after = writing == TEXT ? min_int(n_after, left - before) : 0;
    return keeps_beginning ? left - after : before;
}

static void check_left(const int32_t *whole, int n, int first, int left) {
    const struct prompt_run *run = job.prompts;
    ck_assert_msg(run->n_ids == left, "%d of %d tokens are left, not %d (keep %d, max_tokens %d)",
                  run->n_ids, n, left, job.request->truncate_prompt_tokens,
                  job.request->max_tokens);
    ck_assert_int_eq(job.prompt_tokens, left);
    ck_assert(run->generation.prompt == run->ids && run->generation.n_prompt == left);
    for (int i = 0; i < left; i++)
        ck_assert_int_eq(run->ids[i], i < first ? whole[i] : whole[n - left + i]);
}

static void check_kept(const struct buf *text, const int32_t *ids, int n, enum writing writing,
                       int keep, int max_tokens, const char *side) {
    struct buf fields = {0};
    int left = left_of(n, keep, max_tokens);
    buf_puts(&fields, "{");
    if (side) buf_printf(&fields, "\"truncation_side\":\"%s\",", side);
    put(&fields, "truncate_prompt_tokens", keep);
    put(&fields, "max_tokens", max_tokens);
    if (max_tokens == 0) buf_puts(&fields, "\"echo\":true,"); /* it needs it */
    make_prompt(text, ids, n, writing, &fields);
    if (left > JOB_CONTEXT - (max_tokens != 0)) {
        ck_assert_int_eq(job.err.status, STATUS_INVALID_REQUEST);
        ck_assert_str_eq(job.err.code, "context_length_exceeded");
    } else {
        ck_assert_msg(!job.err.status, "%s", job.err.message);
        const bool keeps_beginning = side && strcmp(side, "right") == 0;
        check_left(ids, n, first_of(writing, keeps_beginning, left), left);
    }
    job_clear(&job);
}

START_TEST(a_prompt_keeps_one_end_and_the_added_tokens) {
    static const char *const sides[] = {NULL, "left", "right"};
    static const int keeps[] = {ANY, -1, 1, 2, 7, 62, 63, 64}, most[] = {ANY, 0, 1, 9, 63, 64};
    struct buf text = {0};
    for (int n = 1; n <= LONGEST; n += n < 5 || (n > 58 && n < 68) ? 1 : 9) {
        int32_t *ids;
        int n_ids = text_of(n, &text, &ids);
        for (int i = 0; i < 8 * 6; i++) {
            check_kept(&text, ids, n_ids, TEXT, keeps[i / 6], most[i % 6], sides[_i]);
            check_kept(&text, ids, n_ids, IDS, keeps[i / 6], most[i % 6], sides[_i]);
            check_kept(&text, ids + n_before, n, TEXT_ALONE, keeps[i / 6], most[i % 6], sides[_i]);
        }
        mem_free(ids);
    }
    buf_free(&text);
}
END_TEST

/* echo repeats the text of the remaining tokens, without the added tokens. Each logprob has the
 * offset of its token in this text. */
static void check_echo(const struct buf *text, enum writing writing, int left) {
    const struct prompt_run *run = job.prompts;
    int first = writing == TEXT ? n_before : 0, last = writing == TEXT ? n_after : 0;
    size_t letters = (size_t)max_int(left - first - last, 0);
    ck_assert_int_eq(run->n_ids, left);
    ck_assert_uint_eq(run->text.length, letters);
    if (letters > 0) ck_assert_mem_eq(run->text.data, text->data + text->length - letters, letters);
    for (int i = 0; i < left; i++) {
        ck_assert_int_eq(run->prompt_logprobs[i].sampled.id, run->ids[i]);
        ck_assert_int_eq(run->prompt_logprobs[i].text_offset, max_int(i - first, 0));
        ck_assert(!run->prompt_logprobs[i].has_logprob);
    }
}

START_TEST(echo_repeats_the_text_that_is_left) {
    struct buf text = {0};
    for (int n = 1; n <= LONGEST; n += 6) {
        int32_t *ids;
        int n_ids = text_of(n, &text, &ids);
        for (int i = 0; i < N_WRITINGS * 40; i++) {
            enum writing writing = (enum writing)(i % N_WRITINGS);
            int keep = 1 + i / N_WRITINGS, n_given = writing == TEXT ? n_ids : n;
            struct buf fields = {0};
            buf_puts(&fields, "{\"echo\":true,\"logprobs\":0,\"max_tokens\":1,");
            put(&fields, "truncate_prompt_tokens", keep);
            make_prompt(&text, writing == TEXT ? ids : ids + n_before, n_given, writing, &fields);
            ck_assert_msg(!job.err.status, "%s", job.err.message);
            check_echo(&text, writing, left_of(n_given, keep, 1));
            job_clear(&job);
        }
        mem_free(ids);
    }
    buf_free(&text);
}
END_TEST

/* The number of logprobs per prompt token is the larger one of two fields; `logprobs` counts only
 * with echo. */
START_TEST(prompt_logprobs_are_those_of_the_field_that_asks_for_more) {
    static const int numbers[] = {ANY, 0, 1, 5};
    for (int i = 0; i < 2 * 4 * 4; i++) {
        bool echo = i % 2;
        int logprobs = numbers[i / 2 % 4], own = numbers[i / 8];
        int best = max_int(echo && logprobs != ANY ? logprobs : -1, own != ANY ? own : -1);
        struct buf body = {0};
        buf_puts(&body, "{");
        put(&body, "logprobs", logprobs);
        put(&body, "prompt_logprobs", own);
        buf_printf(&body, "\"echo\":%s,\"prompt\":[64,65,66]}", echo ? "true" : "false");
        job_make(NULL, body.data);
        ck_assert_msg(!job.err.status, "%s", job.err.message);
        ck_assert_int_eq(job.prompts[0].generation.prompt_logprobs, best);
        ck_assert_int_eq(job.prompts[0].prompt_logprobs != NULL, best >= 0);
        buf_free(&body);
        job_clear(&job);
    }
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        echo_repeats_the_text_that_is_left,
        prompt_logprobs_are_those_of_the_field_that_asks_for_more,
    };
    Suite *suite = suite_create("server/truncation");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, a_prompt_keeps_one_end_and_the_added_tokens, 0, 3);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
