/* Pieces: the pieces of short texts for each family's pattern; that pieces together are the whole
 * text, for any text; that PCRE2's interpreter and its compiled code agree; and normal form C. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"
#include "support/suite_main.h"
#include "support/tokenizer_fixture.h"

/* Writes each piece and a bar. */
static bool write_piece(void *context, const char *text, size_t length) {
    buf_add(context, text, length);
    buf_puts(context, "|");
    ck_assert_uint_gt(length, 0);
    return true;
}

static struct pretokenizer pretokenizer_of(const char *name) {
    struct pretokenizer pretokenizer;
    struct err err = {0};
    bool ignore_merges, nfc;
    enum status status = pretokenizer_named(&pretokenizer, name, &ignore_merges, &nfc, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    return pretokenizer;
}

static void expect_pieces(const char *name, const char *text, const char *expected) {
    struct pretokenizer pretokenizer = pretokenizer_of(name);
    struct buf out = {0};
    buf_add(&out, "", 0);
    ck_assert(pretokenizer_split(&pretokenizer, text, strlen(text), true,
                                 (struct piece_sink){write_piece, &out}));
    ck_assert_msg(strcmp(out.data, expected) == 0, "%s: '%s' splits into %s", name, text, out.data);
    buf_free(&out);
    pretokenizer_free(&pretokenizer);
}

START_TEST(gpt2_takes_a_space_with_a_word) {
    expect_pieces("gpt-2", "Hello  world's 123 gates!!\n\n x",
                  "Hello| | world|'s| 123| gates|!!|\n\n| x|");
    expect_pieces("gpt-2", "IT'S  ", "IT|'|S|  |");
    expect_pieces(NULL, "a 1", "a| 1|");
}
END_TEST

START_TEST(smollm_takes_digits_one_by_one_and_first) {
    expect_pieces("smollm", "a  12 b", "a|  |1|2| b|");
    expect_pieces("starcoder", "x12", "x|1|2|");
}
END_TEST

START_TEST(llama3_takes_digits_by_threes) {
    expect_pieces("llama-bpe", "In 12345, IT'S\n\n  so  it",
                  "In| |123|45|,| IT|'S|\n\n| | so| | it|");
    expect_pieces("llama-bpe", "(a) -b !!\n\nc", "(a|)| -|b| !!\n\n|c|");
}
END_TEST

START_TEST(qwen2_takes_digits_one_by_one) {
    expect_pieces("qwen2", "In 123 it's", "In| |1|2|3| it|'s|");
    expect_pieces("qwen2", "e\xCC\x81x", "e|\xCC\x81x|");
    expect_pieces("qwen35", "e\xCC\x81x", "e\xCC\x81x|");
}
END_TEST

START_TEST(gpt4o_splits_at_capitals_and_keeps_contractions) {
    expect_pieces("gpt-4o", "HelloWorld it's XMLHttp a/b/\n12345",
                  "Hello|World| it's| XMLHttp| a|/b|/\n|123|45|");
    expect_pieces("tekken", "HelloWorld it's 123", "Hello|World| it|'s| |1|2|3|");
}
END_TEST

START_TEST(deepseek_splits_in_steps) {
    expect_pieces("deepseek-llm", "Hello, world 12\n\n\xE6\xB0\xB4\xE6\xB5\x81 x",
                  "Hello|,| world| |1|2|\n|\n|\xE6\xB0\xB4\xE6\xB5\x81| x|");
    expect_pieces("deepseek-llm", "\xE2\x82\xAC   ", "\xE2\x82\xAC|   |");
    expect_pieces("deepseek-coder", "a = 12\n", "a| = |1|2|\n|");
    expect_pieces("deepseek-v3", "f(x)=1234 .get", "f|(x|)=|123|4| .|get|");
}
END_TEST

/* The Mongolian vowel separator is not a space since Unicode 6.3; the next-line character is
 * one. */
START_TEST(later_families_split_as_their_patterns_say) {
    static const char text[] = "\u4e2d\u6587ABC\u6f22\u5b57def's HELLOWorld 1234\n\n x!!\n it'S  ";
    expect_pieces("kimi-k2", text,
                  "\u4e2d\u6587|ABC|\u6f22\u5b57|def's| HELLOWorld| |123|4|\n\n| x|!!\n| it'S|  |");
    expect_pieces(
        "bailingmoe", text,
        "\u4e2d\u6587ABC\u6f22\u5b57def|'s| HELLOWorld| |1|2|3|4|\n\n| x|!!\n| it|'S|  |");
    expect_pieces(
        "seed-coder", text,
        "\u4e2d\u6587ABC\u6f22\u5b57def|'s| HELLOWorld| |1|2|3|4|\n\n| x|!!|\n| it|'S|  |");
    expect_pieces("minicpm5", "It's 12345\n\n x!!\n a1", "It|'s| |123|45|\n\n| x|!!\n| a|1|");
    expect_pieces("ufakzeka", "Ankara'da 12 it's", "Ankara|'da| |1|2| it|'s|");
    expect_pieces("ufakzeka", "i'dir", "i|'dir|");
    expect_pieces("qwen2", "i'dir", "i|'d|ir|");
    expect_pieces("joyai-llm", "f(x)=1234 .get", "f|(x|)=|123|4| .|get|");
    expect_pieces("falcon", "a12345.b!! c", "a|123|45|.|b|!!| c|");
    expect_pieces("bloom", "a b,c  d", "a| b|,|c| | d|");
    expect_pieces("viking", "a12", "a|1|2|");
}
END_TEST

/* The pieces are those of the package tokenizers with the patterns of each model's
 * tokenizer.json. */
static const char *const published_texts[] = {
    "It's HELLOWorld 1234567ab 12345\n\n x!!/\n (a) .get  it'S     \t      z",
    "\u4e2d\u6587ABC \u6f22\u5b57\u3001def\uac00\ub098 \u3105\u3106 \u201cq\u201d e\u0301x "
    "\u00b21234 \u0e01\u0e02 12\r\n\r\n     y",
    "a b c, d\n\n\ne 1234. 123_ x=1000000",
};
static const struct {
    const char *name;
    int text;
    const char *pieces;
} published[] = {
    {"exaone-moe", 0,
     "It|'s| HELLOWorld| |1|2|3|4|5|6|7|ab| |1|2|3|4|5|\n\n| x|!!/\n| (|a|)| .|get| | it|'S|     "
     "\t     | z|"},
    {"exaone-moe", 1,
     "\u4e2d\u6587ABC \u6f22\u5b57|\u3001def\uac00\ub098 \u3105\u3106| \u201c|q|\u201d| e\u0301x| "
     "|\u00b2|1|2|3|4| \u0e01\u0e02| |1|2|\r\n\r\n|    | y|"},
    {"exaone-moe", 2, "a b c|,| d|\n\n\n|e| |1|2|3|4|.| |1|2|3|_| x|=|1|0|0|0|0|0|0|"},
    {"jais-2", 0,
     "It|'s| HELLOWorld| |123|456|7|ab| |123|45|\n\n| x|!!/\n| (|a|)| .|get| | it|'S|     \t  |  | "
     "| z|"},
    {"jais-2", 1,
     "\u4e2d\u6587ABC| \u6f22\u5b57|\u3001def\uac00\ub098| \u3105\u3106| \u201c|q|\u201d| "
     "e|\u0301x| |\u00b212|34| \u0e01\u0e02| |12|\r\n\r\n|    | y|"},
    {"jais-2", 2, "a| b| c|,| d|\n\n\n|e| |123|4|.| |123|_| x|=|100|000|0|"},
    {"tiny_aya", 0,
     "It's| HELLOWorld| |123|456|7|ab| |12|345|\n\n| x|!!/\n| (|a|)| .|get| | it'S|     \t     | "
     "z|"},
    {"tiny_aya", 1,
     "\u4e2d\u6587|ABC| \u6f22\u5b57|\u3001def\uac00\ub098| \u3105\u3106| \u201c|q|\u201d| "
     "e\u0301x| |\u00b2|1|234| \u0e01\u0e02| |12|\r\n\r\n|    | y|"},
    {"tiny_aya", 2, "a| b| c|,| d|\n\n\n|e| |1|234|.| |123|_| x|=|1|000|000|"},
    {"granite-embed-multi-97m", 0,
     "It's| HELLOWorld| |123|456|7|ab| |123|45|\n\n| x|!!/\n| (|a|)| .|get| | it'S|     \t     | "
     "z|"},
    {"granite-embed-multi-97m", 1,
     "\u4e2d\u6587|ABC| \u6f22\u5b57|\u3001def\uac00\ub098| \u3105\u3106| \u201c|q|\u201d| "
     "e\u0301x| |\u00b212|34| \u0e01\u0e02| |12|\r\n\r\n|    | y|"},
    {"granite-embed-multi-97m", 2, "a| b| c|,| d|\n\n\n|e| |123|4|.| |123|_| x|=|100|000|0|"},
    {"youtu", 0,
     "It's| HELLOWorld| |1|2|3|4|5|6|7|ab| |1|2|3|4|5|\n\n| x|!!/\n| (|a|)| .|get| | it'S|     \t  "
     "   | z|"},
    {"youtu", 1,
     "\u4e2d\u6587|ABC| |\u6f22\u5b57|\u3001|def|\uac00\ub098| |\u3105\u3106| |\u201c|q|\u201d| "
     "e\u0301x| |\u00b2|1|2|3|4| \u0e01\u0e02| |1|2|\r\n\r\n|    | y|"},
    {"youtu", 2, "a| b| c|,| d|\n\n\n|e| |1|2|3|4|.| |1|2|3|_| x|=|1|0|0|0|0|0|0|"},
    {"laguna", 0,
     "It|'s| HELLOWorld| |1|2|3|4|5|6|7|ab| |1|2|3|4|5|\n\n| x|!!/|\n| (|a|)| .|get| | it|'S|     "
     "\t     | z|"},
    {"laguna", 1,
     "\u4e2d\u6587ABC| \u6f22\u5b57|\u3001def\uac00\ub098| \u3105\u3106| \u201c|q|\u201d| "
     "e|\u0301x| |\u00b2|1|2|3|4| \u0e01\u0e02| |1|2|\r|\n|\r|\n|    | y|"},
    {"laguna", 2, "a| b| c|,| d|\n\n\n|e| |1|2|3|4|.| |1|2|3|_| x|=|1|0|0|0|0|0|0|"},
    {"spark2_5", 0,
     "It|'s| HELLOWorld| |1|2|3|4|5|6|7|ab| |1|2|3|4|5|\n|\n| x|!!/|\n| (|a|)| .|get| | it|'S|     "
     "\t     | z|"},
    {"spark2_5", 1,
     "\u4e2d\u6587|ABC| |\u6f22\u5b57|\u3001|def\uac00\ub098| \u3105\u3106| \u201c|q|\u201d| "
     "e\u0301x| |\u00b2|1|2|3|4| \u0e01\u0e02| |1|2|\r|\n|\r|\n|    | y|"},
    {"spark2_5", 2, "a| b| c|,| d|\n|\n|\n|e| |1|2|3|4|.| |1|2|3|_| x|=|1|0|0|0|0|0|0|"},
    {"superbpe", 0,
     "It's HELLOWorld |1|234|567|ab |12|345|\n\n x!!/\n (a) .get  it'S     \t      z|"},
    {"superbpe", 1,
     "\u4e2d\u6587ABC \u6f22\u5b57\u3001def\uac00\ub098 \u3105\u3106 \u201cq\u201d e\u0301x "
     "|\u00b21|234| \u0e01\u0e02 |12|\r\n\r\n     y|"},
    {"superbpe", 2, "a b c, d\n\n\ne |1|234|. |123|_ x=|1|000|000|"},
    {"afmoe", 0,
     "It|'s| HELLOWorld| |1|234|567|ab| |12|345|\n\n| x|!!/\n| (|a|)| .|get| | it|'S|     \t     | "
     "z|"},
    {"afmoe", 1,
     "\u4e2d\u6587|ABC| |\u6f22\u5b57|\u3001|def|\uac00\ub098| \u3105\u3106| \u201c|q|\u201d| "
     "e\u0301x| |\u00b21|234| \u0e01\u0e02| |12|\r\n\r\n|    | y|"},
    {"afmoe", 2, "a| b| c|,| d|\n\n\n|e| |1|234|.| |123|_| x|=|1|000|000|"},
    {"mellum2", 0,
     "It|'s| HELLOWorld| |1|2|3|4|5|6|7|ab| |1|2|3|4|5|\n\n| x|!!/|\n| (|a|)| .|get| | it|'|S|     "
     "\t     | z|"},
    {"mellum2", 1,
     "\u4e2d\u6587ABC| \u6f22\u5b57|\u3001|def\uac00\ub098| \u3105\u3106| \u201c|q|\u201d| "
     "e|\u0301|x| |\u00b2|1|2|3|4| \u0e01\u0e02| |1|2|\r\n\r\n    | y|"},
    {"mellum2", 2, "a| b| c|,| d|\n\n|\n|e| |1|2|3|4|.| |1|2|3|_| x|=|1|0|0|0|0|0|0|"},
    {"cohere2moe", 0,
     "It's| HELLOWorld| |123|456|7|ab| |12|345|\n\n| x|!!/\n| (|a|)| .|get| | it'S|     \t     | "
     "z|"},
    {"cohere2moe", 1,
     "\u4e2d\u6587|ABC| \u6f22\u5b57|\u3001def\uac00\ub098| \u3105\u3106| \u201c|q|\u201d| "
     "e\u0301x| |\u00b2|1|234| \u0e01\u0e02| |12|\r\n\r\n|    | y|"},
    {"cohere2moe", 2, "a| b| c|,| d|\n\n\n|e| |1|234|.| |123|_| x|=|1|000|000|"},
};

START_TEST(names_split_as_published_patterns) {
    expect_pieces(published[_i].name, published_texts[published[_i].text], published[_i].pieces);
}
END_TEST

START_TEST(spaces_are_unicodes_white_space) {
    expect_pieces("gpt-2",
                  "\xE1\xA0\x8E\xE1\xA0\x8E"
                  "a",
                  "\xE1\xA0\x8E\xE1\xA0\x8E|a|");
    expect_pieces("gpt-2",
                  "\xC2\x85\xC2\x85"
                  "a",
                  "\xC2\x85|\xC2\x85|a|");
    expect_pieces("gpt-2", "\xC2\xA0\xE3\x80\x80", "\xC2\xA0\xE3\x80\x80|");
}
END_TEST

START_TEST(bytes_that_are_no_text_are_their_own_pieces) {
    expect_pieces("gpt-2", "ab\xFF\xFE cd\xE6\xB0", "ab|\xFF\xFE| cd|\xE6\xB0|");
    expect_pieces("llama-bpe", "\xC3(", "\xC3|(|");
    expect_pieces("smollm", "\xED\xA0\x80", "\xED\xA0\x80|");
}
END_TEST

/* ---- all names ------------------------------------------------------------------------------ */

static const char *const names[] = {
    "smollm",         "gpt-2",
    "gpt2",           "falcon",
    "bloom",          "viking",
    "bailingmoe",     "seed-coder",
    "kimi-k2",        "chameleon",
    "minimax-m2",     "grok-2",
    "default",        "phi-2",
    "jais",           "roberta-bpe",
    "olmo",           "mpt",
    "starcoder",      "refact",
    "codeshell",      "command-r",
    "llama-bpe",      "llama3",
    "llama-v3",       "falcon3",
    "pixtral",        "lfm2",
    "dbrx",           "smaug-bpe",
    "glm4",           "chatglm-bpe",
    "qwen2",          "deepseek-r1-qwen",
    "stablelm2",      "hunyuan",
    "megrez",         "qwen35",
    "gpt-4o",         "llama4",
    "tekken",         "deepseek-llm",
    "deepseek-coder", "deepseek-v3",
    "minicpm5",       "ufakzeka",
    "mellum2",        "granite-embed-multi-97m",
    "afmoe",          "exaone-moe",
    "jais-2",         "laguna",
    "spark2_5",       "superbpe",
    "tiny_aya",       "cohere2moe",
    "youtu",
};

static bool append_piece(void *context, const char *text, size_t length) {
    buf_add(context, text, length);
    return true;
}

START_TEST(pieces_are_the_whole_text) {
    struct pretokenizer pretokenizer = pretokenizer_of(names[_i]);
    uint64_t state = 3;
    for (int round = 0; round < 500; round++) {
        struct buf text = {0}, out = {0};
        fixture_random_text(&state, 40, &text);
        for (int i = 0; i < round % 5; i++)
            text.data[fixture_random(&state) % text.length] = (char)fixture_random(&state);
        ck_assert(pretokenizer_split(&pretokenizer, text.data, text.length, true,
                                     (struct piece_sink){append_piece, &out}));
        ck_assert_uint_eq(out.length, text.length);
        ck_assert_mem_eq(out.data, text.data, text.length);
        buf_free(&text);
        buf_free(&out);
    }
    pretokenizer_free(&pretokenizer);
}
END_TEST

static struct buf pieces_of(const struct pretokenizer *pretokenizer, const struct buf *text) {
    struct buf out = {0};
    ck_assert(pretokenizer_split(pretokenizer, text->data, text->length, true,
                                 (struct piece_sink){write_piece, &out}));
    return out;
}

START_TEST(the_interpreter_gives_the_same_pieces) {
    struct pretokenizer pretokenizer = pretokenizer_of(names[_i]);
    struct pretokenizer interpreted = pretokenizer;
    for (int i = 0; i < interpreted.n_stages; i++) interpreted.stage[i].regex.jit = false;
    uint64_t state = 4;
    for (int round = 0; round < 200; round++) {
        struct buf text = {0};
        fixture_random_text(&state, 50, &text);
        struct buf compiled = pieces_of(&pretokenizer, &text),
                   slow = pieces_of(&interpreted, &text);
        ck_assert_uint_eq(compiled.length, slow.length);
        ck_assert_mem_eq(compiled.data, slow.data, slow.length);
        buf_free(&text);
        buf_free(&compiled);
        buf_free(&slow);
    }
    pretokenizer_free(&pretokenizer);
}
END_TEST

static const char *const shapes[] = {"gpt-2",        "llama-bpe",   "qwen35",   "gpt-4o",
                                     "deepseek-llm", "deepseek-v3", "tiny_aya", "exaone-moe"};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* Long text with a different end makes each repeat backtrack as far as possible. Neither method may
 * reach a limit of PCRE2. */
START_TEST(long_pieces_stay_far_from_the_limits) {
    struct pretokenizer pretokenizer = pretokenizer_of(shapes[_i]);
    struct pretokenizer interpreted = pretokenizer;
    for (int i = 0; i < interpreted.n_stages; i++) interpreted.stage[i].regex.jit = false;
    static const char units[] = " aA!\n";
    for (const char *unit = units; *unit; unit++) {
        struct buf text = {0};
        for (int i = 0; i < 500000; i++) buf_add(&text, unit, 1);
        buf_puts(&text, "\xE2\x82\xAC");
        struct buf compiled = pieces_of(&pretokenizer, &text),
                   slow = pieces_of(&interpreted, &text);
        ck_assert_uint_eq(compiled.length, slow.length);
        ck_assert_mem_eq(compiled.data, slow.data, slow.length);
        buf_free(&text);
        buf_free(&compiled);
        buf_free(&slow);
    }
    pretokenizer_free(&pretokenizer);
}
END_TEST

START_TEST(an_unknown_name_is_refused) {
    struct pretokenizer pretokenizer;
    struct err err = {0};
    bool is_set;
    enum status status = pretokenizer_named(&pretokenizer, "", &is_set, &is_set, &err);
    ck_assert_int_eq(status, STATUS_BAD_FILE);
    status = pretokenizer_named(&pretokenizer, "SMOLLM", &is_set, &is_set, &err);
    ck_assert_int_eq(status, STATUS_BAD_FILE);
    ck_assert_str_eq(err.param, "tokenizer.ggml.pre");
}
END_TEST

static bool take_three(void *context, const char *text, size_t length) {
    int *left = context;
    (void)text;
    (void)length;
    return --*left > 0;
}

START_TEST(the_sink_can_stop_the_splitting) {
    struct pretokenizer pretokenizer = pretokenizer_of("smollm");
    int left = 3;
    ck_assert(!pretokenizer_split(&pretokenizer, "a b c d", 7, true,
                                  (struct piece_sink){take_three, &left}));
    ck_assert_int_eq(left, 0);
    left = 1;
    ck_assert(!pretokenizer_split(&pretokenizer, "\xFF", 1, true,
                                  (struct piece_sink){take_three, &left}));
    ck_assert(
        pretokenizer_split(&pretokenizer, "", 0, true, (struct piece_sink){take_three, &left}));
    pretokenizer_free(&pretokenizer);
}
END_TEST

/* ---- normal form C -------------------------------------------------------------------------- */

static void normalizes(const char *text, const char *expected) {
    struct buf out = {0};
    buf_add(&out, "", 0);
    normalize_form(STEP_NFC, text, strlen(text), &out);
    ck_assert_str_eq(out.data, expected);
    buf_free(&out);
}

START_TEST(characters_are_composed_and_marks_ordered) {
    normalizes("", "");
    normalizes("cafe\xCC\x81", "caf\xC3\xA9");
    normalizes("q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87");
    normalizes("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C");
    normalizes("\xE2\x84\xAB", "\xC3\x85");
    normalizes("e\xFF\xCC\x81", "e\xFF\xCC\x81");
    normalizes("\xE6\xB0", "\xE6\xB0");
    ck_assert(!normalize_needed("plain, d\xC3\xA9j\xC3\xA0 vu", 15));
    ck_assert(normalize_needed("e\xCC\x81", 3));
}
END_TEST

START_TEST(a_megabyte_of_marks_is_put_in_order) {
    struct buf text = {0}, out = {0};
    for (int i = 0; i < 250000; i++) buf_puts(&text, "\xCC\x81\xCC\xA7");
    normalize_form(STEP_NFC, text.data, text.length, &out);
    ck_assert_uint_eq(out.length, text.length);
    ck_assert_mem_eq(out.data, "\xCC\xA7\xCC\xA7", 4);
    ck_assert_mem_eq(out.data + out.length - 4, "\xCC\x81\xCC\x81", 4);
    buf_free(&text);
    buf_free(&out);
}
END_TEST

int main(void) {
    int n = (int)(sizeof names / sizeof names[0]);
    Suite *suite = suite_create("text_pretokenizer");
    TCase *tests = tcase_create("core"), *limits = tcase_create("limits");
    tcase_set_timeout(tests, 120);
    tcase_set_timeout(limits, 120);
    tcase_add_test(tests, gpt2_takes_a_space_with_a_word);
    tcase_add_test(tests, smollm_takes_digits_one_by_one_and_first);
    tcase_add_test(tests, llama3_takes_digits_by_threes);
    tcase_add_test(tests, qwen2_takes_digits_one_by_one);
    tcase_add_test(tests, gpt4o_splits_at_capitals_and_keeps_contractions);
    tcase_add_test(tests, deepseek_splits_in_steps);
    tcase_add_test(tests, spaces_are_unicodes_white_space);
    tcase_add_test(tests, later_families_split_as_their_patterns_say);
    tcase_add_loop_test(tests, names_split_as_published_patterns, 0,
                        (int)(sizeof published / sizeof *published));
    tcase_add_test(tests, bytes_that_are_no_text_are_their_own_pieces);
    tcase_add_loop_test(tests, pieces_are_the_whole_text, 0, n);
    tcase_add_loop_test(tests, the_interpreter_gives_the_same_pieces, 0, n);
    tcase_add_loop_test(limits, long_pieces_stay_far_from_the_limits, 0, N_SHAPES);
    tcase_add_test(tests, an_unknown_name_is_refused);
    tcase_add_test(tests, the_sink_can_stop_the_splitting);
    tcase_add_test(tests, characters_are_composed_and_marks_ordered);
    tcase_add_test(limits, a_megabyte_of_marks_is_put_in_order);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, limits);
    return suite_main(suite);
}
