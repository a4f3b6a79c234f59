/* The tokens that end a generation, from small vocabularies. */
#include <check.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "support/gguf_writer.h"
#include "support/suite_main.h"

enum { MAX_WORDS = 8, C = TOKEN_CONTROL, N = TOKEN_NORMAL, U = TOKEN_USER_DEFINED };

/* A GGUF file's vocabulary; ids in the order of `word`. */
struct ends_case {
    const char *word[MAX_WORDS];
    int32_t type[MAX_WORDS]; /* all 0: the file has no types */
    const char *text, *tools_text;
    int32_t eos, eot, eom; /* keys; 0: missing */
    int32_t ends[MAX_WORDS];
    int n_ends;
};

static struct gguf *open_case(const struct ends_case *c, struct buf *file) {
    struct gguf_writer writer = {0};
    struct gguf *gguf = NULL;
    int n = 0;
    while (n < MAX_WORDS && c->word[n]) n++;
    gguf_writer_string(&writer, "general.architecture", "llama");
    gguf_writer_string(&writer, "tokenizer.ggml.model", "gpt2");
    gguf_writer_strings(&writer, "tokenizer.ggml.tokens", c->word, NULL, (uint64_t)n);
    if (c->type[0])
        gguf_writer_array(&writer, "tokenizer.ggml.token_type", GGUF_INT32, (uint64_t)n, c->type,
                          (size_t)n * sizeof *c->type);
    gguf_writer_strings(&writer, "tokenizer.ggml.merges", (const char *const[]){"a b"}, NULL, 1);
    if (c->eos) gguf_writer_u32(&writer, "tokenizer.ggml.eos_token_id", (uint32_t)c->eos);
    if (c->eot) gguf_writer_u32(&writer, "tokenizer.ggml.eot_token_id", (uint32_t)c->eot);
    if (c->eom) gguf_writer_u32(&writer, "tokenizer.ggml.eom_token_id", (uint32_t)c->eom);
    gguf_writer_finish(&writer, file);
    gguf_writer_free(&writer);
    ck_assert_int_eq(gguf_open_memory(&gguf, file->data, file->length, NULL), STATUS_OK);
    return gguf;
}

static enum status read_case(const struct ends_case *c, int32_t *ids, int *n, struct err *err) {
    struct buf bytes = {0};
    struct tokenizer_spec spec;
    struct gguf *gguf = open_case(c, &bytes);
    const struct model_file file = {.gguf = gguf};
    const struct folder_templates templates = {.text = (char *)(uintptr_t)c->text,
                                               .tools_text = (char *)(uintptr_t)c->tools_text};
    ck_assert_int_eq(gguf_tokenizer_read(&spec, gguf, NULL), STATUS_OK);
    enum status status = end_ids_read(ids, n, &file, &spec, &templates, err);
    tokenizer_spec_free(&spec);
    gguf_close(gguf);
    buf_free(&bytes);
    return status;
}

static bool holds(const int32_t *ids, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static void check(const struct ends_case *c) {
    int32_t ids[MAX_END_IDS];
    int n = -1;
    ck_assert_int_eq(read_case(c, ids, &n, NULL), STATUS_OK);
    ck_assert_int_eq(n, c->n_ends);
    for (int i = 0; i < n; i++) ck_assert_msg(holds(ids, n, c->ends[i]), "%d", (int)c->ends[i]);
}

START_TEST(keys_and_control_tokens_end_once_each) {
    check(&(struct ends_case){{"a", "b", "</s>", "<|im_end|>", "<|eot_id|>", "<|end|>"},
                              {N, N, C, C, U, C},
                              .ends = {2, 3, 5},
                              .n_ends = 3});
    check(&(struct ends_case){{"a", "b", "</s>", "<|im_end|>", "<|eot_id|>", "<|end|>"},
                              {N, N, C, C, U, C},
                              .eos = 3,
                              .eot = 3,
                              .eom = 1,
                              .ends = {3, 1, 2, 5},
                              .n_ends = 4});
    check(
        &(struct ends_case){{"a", "b", "</s>", "<|im_end|>"}, .eos = 1, .ends = {1}, .n_ends = 1});
    check(&(struct ends_case){
        {"a", "<|im_end|>", "<|im_end|>"}, {N, C, C}, .ends = {1}, .n_ends = 1});
}
END_TEST

START_TEST(an_id_outside_the_vocabulary_is_refused) {
    int32_t ids[MAX_END_IDS];
    int n;
    struct err err = {0};
    const struct ends_case c = {{"a", "b"}, {N, N}, .eot = 2};
    ck_assert_int_eq(read_case(&c, ids, &n, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.param, "tokenizer.ggml.eot_token_id");
}
END_TEST

START_TEST(end_of_a_message_is_no_end_in_formats_of_several) {
    check(&(struct ends_case){{"a", "<|end|>", "<|return|>", "<|call|>"},
                              {N, C, C, C},
                              .eos = 2,
                              .ends = {2, 3},
                              .n_ends = 2});
    check(&(struct ends_case){{"a", "<|end|>", "<|flush|>", "<|calls|>"},
                              {N, C, C, C},
                              .eot = 1, /* as a converter guessed from the name */
                              .ends = {2, 3},
                              .n_ends = 2});
    check(&(struct ends_case){
        {"a", "<|end|>", "<|return|>"}, {N, C, C}, .ends = {1, 2}, .n_ends = 2});
}
END_TEST

START_TEST(names_of_each_family_end) {
    check(&(struct ends_case){{"a", "<eos>", "<turn|>", "<|tool_response>", "<end_of_turn>"},
                              {N, C, C, C, C},
                              .eos = 1,
                              .ends = {1, 2, 3, 4},
                              .n_ends = 4});
    check(&(struct ends_case){{"a", "[EOT]", "[EOS]", "<EOT>", "<end_of_utterance>"},
                              {N, C, C, C, C},
                              .ends = {1, 2, 3, 4},
                              .n_ends = 4});
}
END_TEST

START_TEST(a_name_that_the_template_writes_ends_whatever_its_type) {
    struct ends_case c = {
        {"a", "</s>", "<|im_end|>"}, {N, C, U}, .eos = 1, .ends = {1}, .n_ends = 1};
    check(&c);
    c.text = "{{ messages[0].content + '<|im_end|>' }}";
    c.ends[1] = 2, c.n_ends = 2;
    check(&c);
    c.text = NULL, c.tools_text = "<|im_end|>", c.type[2] = N;
    check(&c);
    check(&(struct ends_case){
        {"a", "<turn|>"}, .text = "x<turn|>", .ends = {1}, .n_ends = 1}); /* without types */
}
END_TEST

START_TEST(a_tag_of_html_is_no_end) {
    check(&(struct ends_case){{"a", "<eos>", "</s>", "<end_of_turn>"},
                              {N, C, C, C},
                              .eos = 1,
                              .ends = {1, 3},
                              .n_ends = 2});
    check(&(struct ends_case){{"a", "<|im_end|>", "</s>"},
                              {N, C, N},
                              .text = "<s>{{ x }}</s><|im_end|>",
                              .ends = {1},
                              .n_ends = 1});
}
END_TEST

/* ---- folders -------------------------------------------------------------------------------- */

static int ends_of_folder(struct hf_config *hf, int32_t *ids) {
    const char *const tokens[] = {"a", "<|end|>", "<|im_end|>", "<stop>"};
    const uint32_t lengths[] = {1, 7, 10, 6};
    const int32_t types[] = {N, C, C, C};
    const struct tokenizer_spec spec = {
        .n_tokens = 4, .token = tokens, .token_length = lengths, .type = types, .eos = 3};
    int n = -1;
    ck_assert_int_eq(end_ids_read(ids, &n, &(struct model_file){.hf = hf}, &spec,
                                  &(struct folder_templates){0}, NULL),
                     STATUS_OK);
    return n;
}

START_TEST(a_folder_lists_all_its_ends) {
    int32_t ids[MAX_END_IDS];
    struct hf_config hf = {.folder = "f", .n_end_ids = 2, .end_ids = {0, 3}};
    ck_assert_int_eq(ends_of_folder(&hf, ids), 2);
    ck_assert(ids[0] == 0 && ids[1] == 3);
}
END_TEST

START_TEST(a_folder_without_a_list_ends_as_its_tokenizer_and_by_names) {
    int32_t ids[MAX_END_IDS];
    struct hf_config hf = {.folder = "f"};
    ck_assert_int_eq(ends_of_folder(&hf, ids), 3);
    ck_assert(holds(ids, 3, 1) && holds(ids, 3, 2) && holds(ids, 3, 3));
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        keys_and_control_tokens_end_once_each,
        an_id_outside_the_vocabulary_is_refused,
        end_of_a_message_is_no_end_in_formats_of_several,
        names_of_each_family_end,
        a_name_that_the_template_writes_ends_whatever_its_type,
        a_tag_of_html_is_no_end,
        a_folder_lists_all_its_ends,
        a_folder_without_a_list_ends_as_its_tokenizer_and_by_names,
    };
    Suite *suite = suite_create("engine/ends");
    TCase *cases = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
