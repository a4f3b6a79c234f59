/* Broken tokenizer files. Each is refused within a second, with one sentence that names the file,
 * the key, the expectation and the finding. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counted/work.h"
#include "engine/files/model_file.h"
#include "engine/files/text/folder_text.h"
#include "support/suite_main.h"

#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]"
#define MODEL "\"model\":{\"type\":\"BPE\"," VOCAB "}"
#define STEP(key, step) "{" MODEL ",\"" key "\":" step "}"
#define SPLIT(pattern)                                                                             \
    STEP("pre_tokenizer",                                                                          \
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"Isolated\"}")
#define ADDED(fields) "{" MODEL ",\"added_tokens\":[{" fields "}]}"

static const struct {
    const char *text, *param, *message;
} cases[] = {
    {"", "model", "PATH: expected a JSON object; it is not valid JSON: no value"},
    {"[1]", "model", "PATH: expected a JSON object, found an array"},
    {"{\"model\":", "model", "no value"},
    {"{}", "model", "PATH: key model: expected an object, found nothing"},
    {"{\"model\":7}", "model", "PATH: key model: expected an object, found 7"},
    {"{\"model\":{\"type\":\"WordLevel\"}}", "model.type",
     "PATH: key model.type: expected \"BPE\", \"Unigram\" or \"WordPiece\", found \"WordLevel\""},
    {"{\"model\":{\"type\":\"WordPiece\"}}", "model.vocab", "expected an object, found nothing"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "model.unk_token",
     "expected a token of model.vocab, found nothing"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0},\"max_input_chars_per_word\":-1}}",
     "model.max_input_chars_per_word", "expected a whole number, found -1"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0},\"continuing_subword_prefix\":1}}",
     "model.continuing_subword_prefix", "expected a string, found 1"},
    {"{\"model\":{\"type\":\"BPE\"}}", "model.vocab", "expected an object, found nothing"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"x\"},\"merges\":[]}}", "model.vocab",
     "expected an id for each token, found \"x\" for \"a\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "model.vocab",
     "expected ids from 0 to 524287, found -1 of the token \"a\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9223372036854775807},\"merges\":[]}}",
     "model.vocab", "found 9223372036854775807 of the token \"a\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "model.vocab",
     "expected each id once, found 0 for \"a\" and for \"b\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0.5},\"merges\":[]}}", "model.vocab",
     "expected an id for each token, found 0.5"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "model.vocab",
     "expected at least one token, found none"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}",
     "model.merges", "PATH: merge 0, 'a b', does not join two tokens to a third"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a c\"]}}", "model.merges",
     "PATH: merge 0, 'a c', does not join two tokens to a third"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}", "model.merges",
     "expected two tokens for each merge, found \"ab\" as merge 0"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "model.merges",
     "expected two tokens for each merge, found an array as merge 0"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\","
     "\"ab\"]]}}",
     "model.merges", "expected two tokens for each merge, found an array as merge 0"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"unk_token\":\"?\"}}", "model.unk_token",
     "expected a token of model.vocab, found \"?\""},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"dropout\":0.1}}", "model.dropout",
     "expected null, found 0.1"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"end_of_word_suffix\":\"</w>\"}}",
     "end_of_word_suffix", "expected null, found \"</w>\""},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"byte_fallback\":1}}", "model.byte_fallback",
     "expected true or false, found 1"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]],\"unk_id\":0}}", "model.vocab",
     "expected pairs of a token and its score, found an array as entry 0"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":7}}", "model.unk_id",
     "expected the id of a token, found 7"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",1]],\"unk_id\":0}}",
     "model.vocab", "PATH: tokens 0 and 1 are both spelt 'a'"},
    {STEP("normalizer", "{\"type\":\"StripAccents\"}"), "normalizer",
     "expected a type that is supported, found \"StripAccents\""},
    {STEP("normalizer", "{\"type\":\"BertNormalizer\",\"lowercase\":1}"), "lowercase",
     "expected true or false, found 1"},
    {STEP("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}"),
     "normalizer.pattern", "PCRE2 can compile, found one with this error"},
    {STEP("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////\"}"),
     "precompiled_charsmap", "expected a trie and texts that end in a NUL, found 3 bytes"},
    {STEP("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////wAA\"}"),
     "precompiled_charsmap", "begin with a trie of 4294967295"},
    {STEP("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"*\"}"),
     "precompiled_charsmap", "expected base64, found other characters"},
    {STEP("pre_tokenizer", "{\"type\":\"UnicodeScripts\"}"), "pre_tokenizer",
     "expected a type that is supported, found \"UnicodeScripts\""},
    {STEP("pre_tokenizer", "{\"type\":\"Sequence\"}"), "pretokenizers",
     "expected an array, found nothing"},
    {STEP("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"), "replacement",
     "expected one character, found \"ab\""},
    {STEP("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"ab\"},"
                           "\"behavior\":\"Isolate\"}"),
     "behavior", "expected one of Isolated Removed"},
    {SPLIT("(a+)+$"), "pre_tokenizer", "expected a regular expression that ends within 200000"},
    {SPLIT("(a|aa|a?)*(b|!)"), "pre_tokenizer", "steps, found one that needs more"},
    {SPLIT("[a-z&&[^b]]"), "pre_tokenizer", "PCRE2 can match, found "},
    {SPLIT("[[ab]c]"), "pre_tokenizer", "found a set within a set"},
    {SPLIT("(?<=a+)b"), "pre_tokenizer", "found one with this error"},
    {SPLIT("a{2}+"), "pre_tokenizer", "a counted repeat with another repeat after it"},
    {SPLIT("(a)\\\\1"), "pre_tokenizer", "found an escape without an equivalent in PCRE2"},
    {STEP("decoder", "{\"type\":\"CTC\"}"), "decoder", "found \"CTC\""},
    {STEP("decoder", "{\"type\":\"WordPiece\",\"prefix\":1}"), "prefix",
     "expected a string, found 1"},
    {STEP("decoder", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"WordPiece\"},"
                     "{\"type\":\"Fuse\"}]}"),
     "decoder", "found WordPiece beside others"},
    {STEP("decoder", "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"), "start",
     "expected a number from 0 to 1000, found -1"},
    {STEP("decoder", "{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":1}"), "decoder",
     "PATH: key decoder: expected decoders of single tokens"},
    {STEP("post_processor", "{\"type\":\"XProcessing\"}"), "post_processor.type",
     "found \"XProcessing\""},
    {STEP("post_processor", "{\"type\":\"BertProcessing\"}"), "post_processor",
     "expected \"cls\" and \"sep\": a token and its id, found nothing"},
    {STEP("post_processor", "{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"b\",9]}"),
     "post_processor.ids", "expected ids of tokens, found 9"},
    {STEP("post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[]}"),
     "post_processor.single", "expected one Sequence, found 0"},
    {STEP("post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
                            "{\"id\":\"x\"}}],\"special_tokens\":{\"x\":{\"ids\":[3]}}}"),
     "post_processor.ids", "expected ids of tokens, found 3"},
    {ADDED("\"id\":524288,\"content\":\"x\""), "added_tokens", "found 524288 of the token \"x\""},
    {ADDED("\"id\":1,\"content\":\"x\""), "added_tokens", "found 1 for \"b\" and for \"x\""},
    {ADDED("\"id\":3,\"content\":\"a\""), "model.vocab", "tokens 0 and 3 are both spelt 'a'"},
    {ADDED("\"id\":3"), "added_tokens.content", "expected a string, found nothing"},
};
#define N_CASES ((int)(sizeof cases / sizeof *cases))

/* Reads the text, and builds the tokenizer if possible. */
static enum status read_text(const char *text, size_t length, struct err *err) {
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer = NULL;
    enum status status = tokenizer_json_read(&spec, "PATH", text, length, 0, err);
    if (!status) {
        status = tokenizer_new(&tokenizer, &spec, err);
        tokenizer_spec_free(&spec);
    }
    tokenizer_free(tokenizer);
    return status;
}

START_TEST(a_broken_file_is_refused_with_a_sentence) {
    struct err err = {0};
    uint64_t before = work_done();
    enum status status = read_text(cases[_i].text, strlen(cases[_i].text), &err);
    ck_assert_msg(status == STATUS_BAD_FILE, "%s is not refused", cases[_i].text);
    ck_assert_msg(strstr(err.message, cases[_i].message), "%s: %s", cases[_i].text, err.message);
    ck_assert_msg(strstr(err.message, "PATH: ") == err.message, "%s", err.message);
    ck_assert_str_eq(err.param, cases[_i].param);
    ck_assert_uint_lt(work_done() - before, 1000000);
}
END_TEST

/* Writes a file whose second token is `before`, then n times the letter b, then `after`. */
static void write_long(struct buf *out, const char *before, size_t n, const char *after) {
    buf_clear(out);
    buf_puts(out, before);
    for (size_t i = 0; i < n; i++) buf_add(out, "b", 1);
    buf_puts(out, after);
}

/* A grammar counts the bytes of a token in 16 bits, also those that a normalizer or a decoder
 * adds. */
START_TEST(a_token_may_have_65535_bytes) {
    static const char *const texts[][2] = {
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"", "\":1},\"merges\":[]}}"},
        {"{" MODEL ",\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},"
         "\"content\":\"",
         "\"}}"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},"
         "\"content\":\"",
         "\"},\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"normalized\":true}]}"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct err err = {0};
        struct buf text = {0};
        write_long(&text, texts[i][0], UINT16_MAX, texts[i][1]);
        ck_assert_msg(!read_text(text.data, text.length, &err), "%s", err.message);
        write_long(&text, texts[i][0], UINT16_MAX + 1, texts[i][1]);
        ck_assert_int_eq(read_text(text.data, text.length, &err), STATUS_BAD_FILE);
        ck_assert_msg(strstr(err.message, "tokens of at most 65535 bytes"), "%s", err.message);
        buf_free(&text);
    }
}
END_TEST

START_TEST(endless_nesting_and_endless_lists_are_refused) {
    static const struct {
        const char *before, *unit, *found;
    } texts[] = {
        {"", "[", "too deep a nesting"},
        {"{\"model\":", "{\"a\":", "too deep a nesting"},
        {"[", "1,", "too many values"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct buf text = {0};
        struct err err = {0};
        uint64_t before = work_done();
        buf_puts(&text, texts[i].before);
        for (int n = 0; n < 7000000; n++) buf_puts(&text, texts[i].unit);
        ck_assert_int_eq(read_text(text.data, text.length, &err), STATUS_BAD_FILE);
        ck_assert_msg(strstr(err.message, texts[i].found), "%s", err.message);
        ck_assert_uint_lt(work_done() - before, 100 * text.length);
        buf_free(&text);
    }
}
END_TEST

/* ---- SentencePiece -------------------------------------------------------------------------- */

static const struct {
    const char *bytes;
    size_t length;
    const char *message;
} models[] = {
    {"", 0, "key trainer_spec.unk_id: expected -1 or the id of a piece, found 0"},
    {"\x0A", 1, "a field that is broken or passes its end"},
    {"\x0A\x05\x0A\x01x", 5, "a field that is broken or passes its end"},
    {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11, "a field that is broken"},
    {"\x0A\x03\x0A\x09x", 5, "key pieces: expected a whole message"},
    {"\x0B", 1, "a field that is broken"},
    {"\x0A\x05\x0A\x01x\x18\x09", 7, "key pieces.type: expected a type from 1 to 6, found 9"},
    {"\x0A\x08\x0A\x01x\x15\x00\x00\xC0\x7F", 10, "pieces.score: expected a finite number"},
    {"\x0A\x02\x18\x01", 4, "key pieces: expected a text for each piece, found none of piece 0"},
    {"\x0A\x03\x0A\x01x\x12\x02\x18\x03", 9, "key trainer_spec.model_type: expected 1"},
    {"\x0A\x03\x0A\x01x\x12\x03\xC0\x02\x05", 10,
     "key trainer_spec.unk_id: expected -1 or the id of a piece, found 5"},
    {"\x0A\x03\x0A\x01x\x12\x04\x18\x02\x40\x00\x1A\x02\x28\x00", 15, "escape_whitespaces"},
};

START_TEST(a_broken_sentencepiece_model_is_refused) {
    struct tokenizer_spec spec;
    struct err err = {0};
    enum status status =
        sentencepiece_model_read(&spec, "PATH", models[_i].bytes, models[_i].length, 0, &err);
    ck_assert_msg(status == STATUS_BAD_FILE, "%s", models[_i].message);
    ck_assert_msg(strstr(err.message, models[_i].message), "%s", err.message);
    ck_assert_msg(strstr(err.message, "PATH: ") == err.message, "%s", err.message);
}
END_TEST

/* ---- tekken --------------------------------------------------------------------------------- */

#define CONFIG(size, special)                                                                      \
    "\"config\":{\"pattern\":\"a\",\"default_vocab_size\":" size                                   \
    ",\"default_num_special_tokens\":" special "}"

static const struct {
    const char *text, *message;
} tekkens[] = {
    {"{}", "key config: expected an object, found nothing"},
    {"{\"config\":{}}", "key config.pattern: expected a string, found nothing"},
    {"{" CONFIG("1e9", "1") "}", "config.default_vocab_size: expected a whole number from 0 to"},
    {"{" CONFIG("5", "9") "}", "config.default_num_special_tokens: expected a whole number"},
    {"{" CONFIG("5", "1") "}", "key special_tokens: expected an array, found nothing"},
    {"{" CONFIG("5", "1") ",\"special_tokens\":[{\"rank\":1,\"token_str\":\"x\"}]}",
     "special_tokens.rank: expected a whole number from 0 to 0, found 1"},
    {"{" CONFIG("5", "1") ",\"special_tokens\":[],\"vocab\":[{\"rank\":0,\"token_bytes\":\"*\"}]}",
     "vocab.token_bytes: expected 1 to 768 bytes in base64, found \"*\" for rank 0"},
    {"{" CONFIG("5", "1") ",\"special_tokens\":[],\"vocab\":[{\"rank\":0,\"token_bytes\":\"YQ==\"},"
                          "{\"rank\":0,\"token_bytes\":\"YQ==\"}]}",
     "key vocab: expected each id once, found 1 for \"a\" and for \"a\""},
};

/* Files of the versions 1 to 7 may lack the special tokens, which are always the same there. */
START_TEST(an_old_tekken_file_may_lack_special_tokens) {
    static const char text[] =
        "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":6,\"version\":\"v3\","
        "\"default_num_special_tokens\":5},\"vocab\":[{\"rank\":0,\"token_bytes\":\"YQ==\"}]}";
    struct tokenizer_spec spec;
    struct err err = {0};
    ck_assert_msg(!tekken_json_read(&spec, "PATH", text, strlen(text), 0, &err), "%s", err.message);
    static const char *const names[] = {"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "a"};
    ck_assert_int_eq(spec.n_tokens, 6);
    for (int i = 0; i < 6; i++) {
        ck_assert_str_eq(spec.token[i], names[i]);
        ck_assert_int_eq(spec.type[i], i < 5 ? TOKEN_CONTROL : TOKEN_NORMAL);
    }
    ck_assert_int_eq(spec.bos, 1);
    tokenizer_spec_free(&spec);
}
END_TEST

START_TEST(a_broken_tekken_file_is_refused) {
    struct tokenizer_spec spec;
    struct err err = {0};
    const char *text = tekkens[_i].text;
    enum status status = tekken_json_read(&spec, "PATH", text, strlen(text), 0, &err);
    ck_assert_msg(status == STATUS_BAD_FILE, "%s", text);
    ck_assert_msg(strstr(err.message, tekkens[_i].message), "%s", err.message);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_hf_tokenizer_broken");
    TCase *tests = tcase_create("core");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_broken_file_is_refused_with_a_sentence, 0, N_CASES);
    tcase_add_test(tests, a_token_may_have_65535_bytes);
    tcase_add_test(tests, endless_nesting_and_endless_lists_are_refused);
    tcase_add_loop_test(tests, a_broken_sentencepiece_model_is_refused, 0,
                        (int)(sizeof models / sizeof *models));
    tcase_add_test(tests, an_old_tekken_file_may_lack_special_tokens);
    tcase_add_loop_test(tests, a_broken_tekken_file_is_refused, 0,
                        (int)(sizeof tekkens / sizeof *tekkens));
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
