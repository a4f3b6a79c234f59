/* The settings of a search among the parameters of a rendered prompt. */
#include <check.h>
#include <string.h>

#include "server/openai/internal.h"
#include "support/suite_main.h"

static const struct {
    int n, best_of;
    bool is_beam_search;
    const char *has, *lacks;
} cases[] = {
    {1, 1, false, "\"n\":1,", "\"best_of\""},
    {2, 2, false, "\"n\":2,", "\"best_of\""},
    {2, 3, false, "\"best_of\":3", "\"use_beam_search\""},
    {2, 2, true, "\"best_of\":2,\"use_beam_search\":true,\"length_penalty\":1.5,", "\"best_of\":3"},
    {2, 4, true, "\"best_of\":4,\"use_beam_search\":true,\"length_penalty\":1.5,", "\"best_of\":3"},
};

START_TEST(best_of_is_written_if_it_differs_or_counts_beams) {
    static const int32_t ids[] = {5};
    struct generation generation = {.prompt = ids, .n_prompt = 1, .max_tokens = 9};
    struct api_request request = {.api = &api_completions,
                                  .n = cases[_i].n,
                                  .best_of = cases[_i].best_of,
                                  .use_beam_search = cases[_i].is_beam_search,
                                  .length_penalty = 1.5f};
    const struct api_answer answer = {.request = &request, .model = "m"};
    struct buf out = {0};
    api_write_rendered(&out, &answer, (const struct generation *const[]){&generation}, 1);
    ck_assert_msg(strstr(out.data, cases[_i].has), "%s", out.data);
    ck_assert_msg(!strstr(out.data, cases[_i].lacks), "%s", out.data);
    buf_free(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_render_search");
    TCase *core = tcase_create("core");
    suite_add_tcase(suite, core);
    tcase_add_loop_test(core, best_of_is_written_if_it_differs_or_counts_beams, 0,
                        sizeof cases / sizeof *cases);
    return suite_main(suite);
}
