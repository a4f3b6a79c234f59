/* The work from a body's bytes to its prompts, through parser, checks, chat template and tokenizer,
 * grows at most as n log n with its length, and is bounded for each byte. PCRE2 is not
 * counted. Each family is one way to fill a body. ctest label: slow */
#define JOB_CONTEXT (1 << 20)
#include "counted/work.h"
#include "server/apis/apis.h"
#include "server/generation/prompt.h"
#include "support/job_fixture.h"
#include "support/suite_main.h"

#define MIB ((size_t)1 << 20)

/* Like templates of chat models: they look back, strip, split and print tools as JSON. */
static const char template_text[] =
    "{%- set ns = namespace(last=messages|length - 1, found=false) %}"
    "{%- if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
    "{%- for message in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}"
    "{%- if not ns.found and message.role == 'user' %}{% set ns.found = true %}"
    "{% set ns.last = index %}{% endif %}{% endfor %}"
    "{%- for message in messages %}{% if loop.first and message.role != 'system' %}<|im_start|>{% "
    "endif %}"
    "{% set content = message.content %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + content | trim }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}";

/* ---- families ------------------------------------------------------------------------------- */

enum reader { COMPLETION, CHAT, TOKENIZE, DETOKENIZE, LINE };

/* A body is `head`, then pieces separated by `comma`, each with its number for %d, then `tail`. */
struct family {
    enum reader reader;
    const char *head, *piece, *tail;
    const char *comma;  /* NULL: no separator */
    enum status status; /* of a body of 8 pieces */
};

#define USER "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
#define TEXT "{\"messages\":[{\"role\":\"user\",\"content\":\""
#define CALL                                                                                       \
    "{\"id\":\"c%d\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{"         \
    "\\\"a\\\":%d}\"}}"
#define TOOL                                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"f%d\",\"parameters\":{\"type\":\"object\"}}}"
#define TOOL_OF "{\"type\":\"function\",\"function\":{\"name\":\""
#define END_TOOL "\"}}"
#define CHOSEN "{\"type\":\"function\",\"function\":{\"name\":\"f%d\"}}"
#define DEEP_8 "[[[[[[[["
#define DEEP_64 DEEP_8 DEEP_8 DEEP_8 DEEP_8 DEEP_8 DEEP_8 DEEP_8 DEEP_8
#define END_8 "]]]]]]]]"
#define END_64 END_8 END_8 END_8 END_8 END_8 END_8 END_8 END_8
#define LONG_32 "abcdefghijklmnopqrstuvwxyzabcdef"
#define BAD STATUS_INVALID_REQUEST

static const struct family families[] = {
    {CHAT, "{\"messages\":[", "{\"role\":\"user\",\"content\":\"m %d\"}", "]}", ","},
    {CHAT, "{\"messages\":[", "{\"role\":\"r%d\",\"content\":\"m\"}", "]}", ","},
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[",
     "{\"type\":\"text\",\"text\":\"p %d\"}", "]}]}", ","},
    {CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[", CALL, "]}]}", ","},
    {CHAT, "{\"messages\":[", "{\"role\":\"assistant\",\"tool_calls\":[" CALL "]}", "]}", ","},
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",", "\"m%d\":%d", "}]}", ","},
    {CHAT, TEXT, "a</think>", "\"}]}"},
    {CHAT, TEXT, "<|im_start|>", "\"}]}"},
    {CHAT, TEXT, "a", "\"}]}"},
    {CHAT, TEXT, " ", "\"}]}"},
    {CHAT, TEXT, "\\n", "\"}]}"},
    {CHAT, TEXT, "!", "\"}]}"},
    {CHAT, TEXT, " word%d", "\"}]}"},
    {CHAT, TEXT, "%d", "\"}]}"},
    {CHAT, TEXT, "\\u0001\\\"", "\"}]}"},
    {CHAT, TEXT, "\xE6\xB0\xB4", "\"}]}"},
    {CHAT, USER "\"tool_choice\":\"none\",\"tools\":[", TOOL, "]}", ","},
    {CHAT, USER "\"chat_template_kwargs\":{", "\"v%d\":%d", "}}", ","},
    {CHAT, USER "\"x\":{", "\"" LONG_32 LONG_32 LONG_32 LONG_32 "%d\":0", "}}", ","},
    {COMPLETION, "{\"prompt\":\"x\",\"metadata\":{\"properties\":{",
     "\"p%d\":{\"type\":\"string\"}", "}}}", ","},
    {COMPLETION, "{\"prompt\":\"x\",", "\"f%d\":%d", "}", ","},
    {COMPLETION, "{\"prompt\":\"x\",", "\"f%d\":%d", ",\"prompt\":\"y\"}", ",", BAD},
    {COMPLETION, "{\"prompt\":\"x\",", "\"f\":%d", "}", ",", BAD},
    {COMPLETION, "{\"prompt\":\"x\",\"x\":[", DEEP_64 "%d" END_64, "]}", ","},
    {COMPLETION, "{\"prompt\":\"x\",\"x\":[" DEEP_64, "[", "]}", NULL, BAD},
    {COMPLETION, "{\"prompt\":\"x\",\"x\":[", "0", "]}", ","},
    {COMPLETION, "{\"prompt\":[", "1", "]}", ","},
    {COMPLETION, "{\"prompt\":\"", "some words ", "\"}"},
    {COMPLETION, "{\"echo\":true,\"prompt\":\"", "some words ", "\"}"},
    {COMPLETION, "{\"echo\":true,\"logprobs\":0,\"prompt\":\"", "some words ", "\"}"},
    {COMPLETION, "{\"prompt\":[", "\"p %d\"", "]}", ","},
    {COMPLETION, "{\"prompt\":\"x\",\"stop\":[", "\"s%d\"", "]}", ","},
    {COMPLETION, "{\"prompt\":\"x\",\"logit_bias\":{", "\"%d\":1", "}}", ","},
    {COMPLETION, "{\"prompt\":\"x\",\"bad_words\":[", "\"w%d\"", "]}", ","},
    {COMPLETION, "{\"prompt\":\"x\",\"dry_multiplier\":1,\"dry_sequence_breakers\":[", "\"a\"",
     "]}", ","},
    {COMPLETION, "{\"prompt\":\"x\",\"allowed_token_ids\":[", "1", "]}", ","},
    {COMPLETION, "{\"prompt\":\"x\",\"stop_token_ids\":[", "1", "]}", ","},
    {CHAT, USER "\"prediction\":{\"type\":\"content\",\"content\":\"", "some words ", "\"}}"},
    {CHAT, USER "\"prediction\":{\"type\":\"content\",\"content\":[",
     "{\"type\":\"text\",\"text\":\"p %d\"}", "]}}", ","},
    {CHAT,
     USER "\"tools\":[" TOOL_OF "f" END_TOOL "],\"tool_choice\":{\"type\":\"allowed_tools\","
          "\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[",
     CHOSEN, "]}}}", ",", BAD},
    {TOKENIZE, "{\"prompt\":\"", "some words ", "\"}"},
    {TOKENIZE, "{\"return_token_strs\":true,\"prompt\":\"", "\xE6\xB0\xB4", "\"}"},
    {TOKENIZE, "{\"messages\":[", "{\"role\":\"user\",\"content\":\"m %d\"}", "]}", ","},
    {DETOKENIZE, "{\"tokens\":[", "%d", "]}", ","},
    {DETOKENIZE, "{\"tokens\":[", "1", "]}", ","},
    {LINE, "{\"custom_id\":\"x\",\"url\":\"/v1/completions\",\"body\":{", "\"f%d\":%d", "}}", ","},
    {LINE, "{\"custom_id\":\"", "x", "\",\"url\":\"/v1/completions\",\"body\":{}}"},
};

static void write_body(struct buf *body, const struct family *family, size_t length) {
    buf_clear(body);
    buf_puts(body, family->head);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
    for (int i = 0; i < 8 || body->length < length; i++) {
        if (i > 0 && family->comma) buf_puts(body, family->comma);
        buf_printf(body, family->piece, i, i);
    }
#pragma GCC diagnostic pop
    buf_puts(body, family->tail);
}

/* ---- readers -------------------------------------------------------------------------------- */

static enum status read_job(const struct api *api, const struct buf *body) {
    struct json *json;
    if (!json_parse_strict(&json, "The body", body->data, body->length, &job.err)) {
        job.api = api;
        job_prepare(&job, json);
    }
    enum status status = job.err.status;
    job_clear(&job);
    return status;
}

static enum status read_tokenize(const struct buf *body, struct err *err) {
    struct api_tokenize *asked;
    struct buf out = {0};
    int32_t *ids;
    int n;
    if (api_tokenize_parse(&asked, body->data, body->length, &app.limits, err)) return err->status;
    if (!prompt_encode(NULL, &asked->prompt, true, NULL, &ids, &n, err)) {
        ck_assert_uint_gt(api_tokens_bound(vocabulary, ids, n, TOKENS_AND_NAMES), 0);
        api_write_tokens(&out, vocabulary, ids, n, JOB_CONTEXT,
                         asked->return_token_strs ? TOKENS_AND_NAMES : TOKENS_ONLY);
        mem_free(ids);
    }
    buf_free(&out);
    api_tokenize_free(asked);
    return err->status;
}

static enum status read_detokenize(const struct buf *body, struct err *err) {
    struct buf out = {0};
    int32_t *ids;
    int n;
    if (api_detokenize_parse(&ids, &n, body->data, body->length, &app.limits, err))
        return err->status;
    ck_assert_uint_gt(api_detokenized_bound(vocabulary, ids, n), 0);
    api_write_detokenized(&out, vocabulary, ids, n);
    buf_free(&out);
    mem_free(ids);
    return STATUS_OK;
}

static enum status read_line(const struct buf *body, struct err *err) {
    struct api_batch_line line;
    enum status status = api_batch_parse(&line, body->data, body->length, err);
    api_batch_free(&line);
    return status;
}

static enum status read_as(enum reader reader, const struct buf *body) {
    struct err err = {0};
    job_begin(&api_chat, NULL, "hermes", "none");
    if (reader == TOKENIZE) return read_tokenize(body, &err);
    if (reader == DETOKENIZE) return read_detokenize(body, &err);
    if (reader == LINE) return read_line(body, &err);
    return read_job(reader == CHAT ? &api_chat : &api_completions, body);
}

/* ---- rules ---------------------------------------------------------------------------------- */

static uint64_t body_work(const struct family *family, size_t length) {
    struct buf body = {0};
    write_body(&body, family, length);
    uint64_t before = work_done();
    read_as(family->reader, &body);
    uint64_t work = work_done() - before;
    buf_free(&body);
    return work;
}

START_TEST(each_family_is_read_as_meant) {
    const struct family *family = &families[_i];
    struct buf body = {0};
    write_body(&body, family, 0);
    ck_assert_msg(read_as(family->reader, &body) == family->status, "%s", body.data);
    buf_free(&body);
}
END_TEST

/* For four times the length, linear work grows fourfold, n log n somewhat more, n^2 16-fold. */
START_TEST(work_grows_no_faster_than_n_log_n) {
    const struct family *family = &families[_i];
    for (size_t length = MIB / 32; length <= MIB / 4; length *= 8) {
        uint64_t small = body_work(family, length), large = body_work(family, 4 * length);
        ck_assert_msg(large < 5 * small, "%s%s: %zu bytes are %llu units, four times that %llu",
                      family->head, family->piece, length, (unsigned long long)small,
                      (unsigned long long)large);
    }
}
END_TEST

enum { MOST_UNITS_A_BYTE = 300 };

START_TEST(no_body_is_more_work_than_the_bound) {
    const struct family *family = &families[_i];
    uint64_t work = body_work(family, 4 * MIB);
    ck_assert_msg(work < MOST_UNITS_A_BYTE * 4 * MIB, "%s%s: %llu units", family->head,
                  family->piece, (unsigned long long)work);
}
END_TEST

static void make_template(void) {
    struct err err = {0};
    ck_assert_msg(!chat_template_new(&template, template_text, strlen(template_text), &err), "%s",
                  err.message);
}

int main(void) {
    const int n = sizeof families / sizeof *families;
    Suite *suite = suite_create("server_body_growth");
    TCase *growth = tcase_create("growth");
    tcase_add_unchecked_fixture(growth, make_template, NULL);
    tcase_set_timeout(growth, 120);
    tcase_add_loop_test(growth, each_family_is_read_as_meant, 0, n);
    tcase_add_loop_test(growth, work_grows_no_faster_than_n_log_n, 0, n);
    tcase_add_loop_test(growth, no_body_is_more_work_than_the_bound, 0, n);
    suite_add_tcase(suite, growth);
    return suite_main(suite);
}
