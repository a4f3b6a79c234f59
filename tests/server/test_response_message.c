/* Messages with reasoning, content and tool calls, in whole answers and in chunks. */
#include <check.h>
#include <string.h>

#include "server/openai/internal.h"
#include "support/suite_main.h"

static struct buf out;
static struct message message;

static void tear_down(void) {
    buf_free(&out);
    message_free(&message);
}

/* Makes a message of reasoning, content and n calls; "" leaves a text out. The second call
 * continues the arguments of an earlier chunk. */
static void compose(const char *reasoning, const char *content, int n_calls) {
    message_free(&message);
    message = (struct message){0};
    message_add_text(&message, MESSAGE_REASONING, reasoning, strlen(reasoning));
    message_add_text(&message, MESSAGE_CONTENT, content, strlen(content));
    for (int i = 0; i < n_calls; i++) {
        struct message_call *call = message_call_at(&message, i);
        call->begins = i == 0;
        strcpy(call->id, "call_1");
        strcpy(call->name, "ask");
        buf_puts(&call->arguments, i == 0 ? "{}" : "{\"a\":");
    }
}

#define BEGUN "\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"ask\","
#define CALLS                                                                                      \
    "\"tool_calls\":[{\"index\":0," BEGUN "\"arguments\":\"{}\"}},"                                \
    "{\"index\":1,\"function\":{\"arguments\":\"{\\\"a\\\":\"}}]"
#define REASONING "\"reasoning\":\"why\",\"reasoning_content\":\"why\""

static const struct {
    const char *reasoning, *content;
    int n_calls;
    const char *delta;           /* of a chunk */
    const char *content_written; /* of a whole answer */
} cases[] = {
    {"", "", 0, "", "\"\""},
    {"", "yes", 0, "\"content\":\"yes\"", "\"yes\""},
    {"why", "", 0, REASONING, "null"},
    {"why", "yes", 0, REASONING ",\"content\":\"yes\"", "\"yes\""},
    {"", "", 2, CALLS, "null"},
    {"", "yes", 2, "\"content\":\"yes\"," CALLS, "\"yes\""},
    {"why", "", 2, REASONING "," CALLS, "null"},
    {"why", "yes", 2, REASONING ",\"content\":\"yes\"," CALLS, "\"yes\""},
};

START_TEST(a_chunk_has_the_parts_that_it_adds) {
    struct api_request request = {.api = &api_chat};
    const struct api_choice choice = {.message = &message, .stop_id = -1};
    struct buf expected = {0};
    compose(cases[_i].reasoning, cases[_i].content, cases[_i].n_calls);
    const struct api_answer answer = {.request = &request, .model = "m"};
    api_chat.write_chunk(&out, &answer, &choice, NULL);
    buf_printf(&expected, "{\"index\":0,\"delta\":{%s},\"logprobs\":null,", cases[_i].delta);
    ck_assert_msg(strstr(out.data, expected.data), "%s\nlacks\n%s", out.data, expected.data);
    buf_free(&expected);
}
END_TEST

START_TEST(a_whole_message_has_null_for_content_beside_others) {
    struct api_request request = {.api = &api_chat};
    const struct api_choice choice = {.message = &message, .stop_id = -1};
    struct buf expected = {0};
    const int n_calls = cases[_i].n_calls > 0; /* whole calls have all members */
    compose(cases[_i].reasoning, cases[_i].content, n_calls);
    const struct api_answer answer = {.request = &request, .model = "m"};
    api_chat.write_response(&out, &answer, &choice, 1, &(struct api_usage){0});
    buf_printf(&expected,
               "\"message\":{\"role\":\"assistant\",\"content\":%s,\"refusal\":null%s%s},",
               cases[_i].content_written, *cases[_i].reasoning ? "," REASONING : "",
               n_calls ? ",\"tool_calls\":[{" BEGUN "\"arguments\":\"{}\"}}]" : "");
    ck_assert_msg(strstr(out.data, expected.data), "%s\nlacks\n%s", out.data, expected.data);
    buf_free(&expected);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_response_message");
    TCase *core = tcase_create("core");
    const int n = sizeof cases / sizeof *cases;
    suite_add_tcase(suite, core);
    tcase_add_checked_fixture(core, NULL, tear_down);
    tcase_add_loop_test(core, a_chunk_has_the_parts_that_it_adds, 0, n);
    tcase_add_loop_test(core, a_whole_message_has_null_for_content_beside_others, 0, n);
    return suite_main(suite);
}
