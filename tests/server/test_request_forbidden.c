/* The fields of a body about banned tokens, banned repeats, and truncated prompts. */
#include <check.h>
#include <string.h>

#include "server/openai/internal.h"
#include "support/suite_main.h"

#define C_TEXT "{\"prompt\":\"x\","

static const struct api_limits limits = {
    .model = "m", .V = 1000, .max_model_len = 64, .max_choices = 16, .max_prompts = 8};

static enum status request_read(struct api_request **out, const char *body, struct err *err) {
    struct json *json;
    *out = NULL;
    enum status status = json_parse(&json, "The body", body, strlen(body), err);
    return status ? status : api_completions.parse(out, json, &limits, err);
}

static struct api_request *parsed(const char *body) {
    struct api_request *request;
    struct err err = {0};
    ck_assert_msg(request_read(&request, body, &err) == STATUS_OK, "%s: %s", body, err.message);
    return request;
}

static const char *many_words(struct buf *body, int n) {
    buf_clear(body);
    buf_puts(body, "{\"prompt\":\"x\",\"bad_words\":[\" a\"");
    for (int i = 1; i < n; i++) buf_puts(body, ",\"a\"");
    buf_puts(body, "]}");
    buf_add(body, "", 1);
    return body->data;
}

START_TEST(allowed_and_forbidden_tokens_are_read) {
    struct api_request *r = parsed(C_TEXT "\"allowed_token_ids\":[0,999,33,33]}");
    for (int32_t id = 0; id < 1000; id++)
        ck_assert_int_eq(r->sampling.allowed[id / 32] >> id % 32 & 1,
                         id == 0 || id == 33 || id == 999);
    api_request_free(r);
    r = parsed(C_TEXT "\"bad_words\":[\"  two words \",\"\u00e9\"]}");
    ck_assert_int_eq(r->n_bad_words, 2);
    ck_assert_mem_eq(r->bad_words[0].text, "two words ", 11);
    ck_assert_int_eq(r->bad_words[0].length, 10);
    api_request_free(r);
    struct buf body = {0};
    struct err err = {0};
    r = parsed(many_words(&body, API_MAX_BAD_WORDS));
    api_request_free(r);
    many_words(&body, API_MAX_BAD_WORDS + 1);
    request_read(&r, body.data, &err);
    ck_assert_str_eq(err.param, "bad_words");
    ck_assert_ptr_nonnull(strstr(err.message, "at most 256 words, but it holds 257"));
    buf_free(&body);
}
END_TEST

static const struct window {
    const char *fields;
    float repetition, presence;
    int last_n;
} windows[] = {
    {"\"repetition_penalty\":1.5,\"presence_penalty\":1}", 1.5f, 1, 0},
    {"\"repeat_penalty\":1.5,\"presence_penalty\":1}", 1.5f, 1, 64},
    {"\"repeat_penalty\":1.5,\"repeat_last_n\":7}", 1.5f, 0, 7},
    {"\"repetition_penalty\":1.5,\"repeat_last_n\":7}", 1.5f, 0, 7},
    {"\"presence_penalty\":1,\"repeat_last_n\":-1}", 1, 1, INT32_MAX},
    {"\"repeat_penalty\":1.5,\"presence_penalty\":1,\"repeat_last_n\":0}", 1, 0, 0},
};

START_TEST(penalties_are_read_with_their_window) {
    const struct window *w = &windows[_i];
    struct buf body = {0};
    buf_printf(&body, "%s%s", C_TEXT, w->fields);
    struct api_request *r = parsed(body.data);
    ck_assert(r->sampling.repetition_penalty == w->repetition);
    ck_assert(r->sampling.presence_penalty == w->presence);
    ck_assert_int_eq(r->sampling.penalty_last_n, w->last_n);
    api_request_free(r);
    buf_free(&body);
}
END_TEST

START_TEST(how_repeats_are_discouraged) {
    struct api_request *r = parsed("{\"prompt\":\"x\"}");
    ck_assert(!sampling_lists_changes(&r->sampling) && !r->dry_breakers);
    api_request_free(r);
    r = parsed(C_TEXT "\"dry_multiplier\":0.8}");
    ck_assert(r->sampling.dry_multiplier == 0.8f && r->sampling.dry_base == 1.75f);
    ck_assert(r->sampling.dry_allowed_length == 2 && r->sampling.dry_last_n == INT32_MAX);
    api_request_free(r);
    r = parsed(C_TEXT "\"dry_multiplier\":0.8,\"dry_penalty_last_n\":0}");
    ck_assert(!sampling_lists_changes(&r->sampling));
    api_request_free(r);
    r = parsed(C_TEXT "\"no_repeat_ngram_size\":3,\"dry_sequence_breakers\":[\"a\",\"bc\"]}");
    ck_assert_int_eq(r->sampling.no_repeat_ngram, 3);
    ck_assert_int_eq(r->n_dry_breakers, 2);
    ck_assert(r->dry_breakers[1].length == 2 && strcmp(r->dry_breakers[1].text, "bc") == 0);
    api_request_free(r);
    r = parsed(C_TEXT "\"dry_sequence_breakers\":[]}");
    ck_assert(r->n_dry_breakers == 0 && r->dry_breakers);
    api_request_free(r);
}
END_TEST

START_TEST(mirostat_is_the_only_cut) {
    struct api_request *r = parsed(C_TEXT "\"mirostat_tau\":3,\"top_k\":5}");
    ck_assert(r->sampling.mirostat_tau == 0 && r->sampling.top_k == 5);
    api_request_free(r);
    r = parsed(C_TEXT "\"mirostat\":2,\"top_k\":40,\"top_p\":0.9,\"min_p\":0.1,\"typical_p\":0.5,"
                      "\"top_n_sigma\":1,\"epsilon_cutoff\":0.1,\"xtc_probability\":1}");
    const struct sampling *s = &r->sampling;
    ck_assert(s->mirostat_tau == 5 && s->mirostat_eta == 0.1f);
    ck_assert(s->top_k == 0 && s->top_p == 1 && s->min_p == 0 && s->typical_p == 1);
    ck_assert(s->top_n_sigma == 0 && s->epsilon_cutoff == 0 && s->xtc_probability == 0);
    api_request_free(r);
}
END_TEST

/* A prompt with more ids than the context is accepted if it is truncated to fit. */
START_TEST(truncation_takes_long_prompts) {
    struct buf body = {0};
    buf_puts(&body, "{\"truncate_prompt_tokens\":-1,\"prompt\":[1");
    for (int i = 1; i < 65; i++) buf_puts(&body, ",1");
    buf_puts(&body, "],\"prompt_logprobs\":3}");
    buf_add(&body, "", 1);
    struct api_request *r = parsed(body.data);
    ck_assert(r->truncate_prompt_tokens == -1 && r->prompts[0].n_ids == 65);
    ck_assert_int_eq(r->prompt_logprobs, 3);
    api_request_free(r);
    buf_free(&body);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("request_forbidden");
    TCase *core = tcase_create("core");
    tcase_add_test(core, allowed_and_forbidden_tokens_are_read);
    tcase_add_loop_test(core, penalties_are_read_with_their_window, 0,
                        (int)(sizeof windows / sizeof *windows));
    tcase_add_test(core, how_repeats_are_discouraged);
    tcase_add_test(core, mirostat_is_the_only_cut);
    tcase_add_test(core, truncation_takes_long_prompts);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
