/* The patterns and steps of pre-tokenizers: the patterns that GGUF files name, and the steps of a
 * tokenizer.json.
 *
 * DESIGN
 *   A GGUF file names its pre-tokenizer. A name represents one or more patterns, those of the
 *   models' tokenizer.json, rewritten for PCRE2. Each match is a piece, the text between two
 *   matches is also a piece, and the next pattern splits each piece further. A tokenizer.json lists
 *   its steps. Both are converted to the same stages (pretokenizer.c).
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

#define NAMED_STAGES 6

/* ---- the patterns --------------------------------------------------------------------------- */

#define SPACES REGEX_SPACES
#define S "[" SPACES "]"
#define NOT_S "[^" SPACES "]"
#define MARK "[!-/:-@\\[-`{-~\\p{P}]"
/* Unicode's word characters: Alphabetic, M, Nd, Pc and Join_Control */
#define WORD_CHARACTERS                                                                            \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"  \
    "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"
#define WORDS "[" WORD_CHARACTERS "]"
#define SPACE_RUNS S "+(?!" NOT_S ")|" S "+"
#define LINES S "*[\\r\\n]+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" SPACE_RUNS

/* GPT-4's form: a word includes one other character before it, punctuation includes the line ends
 * after it. */
#define GPT4_WORDS(word, numbers, mark)                                                            \
    "[^\\r\\n\\p{L}\\p{N}]?" word "|" numbers "| ?" mark "[\\r\\n]*|" LINES "|" SPACE_RUNS
#define GPT4(word, numbers, mark) CONTRACTION "|" GPT4_WORDS(word, numbers, mark)
#define LLAMA3 GPT4("\\p{L}+", "\\p{N}{1,3}", "[^" SPACES "\\p{L}\\p{N}]+")
#define MINICPM5 GPT4("\\p{L}+", "\\p{N}+", "[^" SPACES "\\p{L}\\p{N}]+")
/* Without contractions, so Turkish suffixes after an apostrophe stay with it. */
#define UFAKZEKA GPT4_WORDS("\\p{L}+", "\\p{N}", "[^" SPACES "\\p{L}\\p{N}]+")
#define QWEN2 GPT4("\\p{L}+", "\\p{N}", "[^" SPACES "\\p{L}\\p{N}]+")
#define QWEN35 GPT4("[\\p{L}\\p{M}]+", "\\p{N}", "[^" SPACES "\\p{L}\\p{M}\\p{N}]+")

/* GPT-4o's form: a word is capitals, then small letters; letters without case count as both. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT4O_SHAPE(after_word, numbers)                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" after_word "|[^\\r\\n\\p{L}\\p{N}]?" UPPER        \
    "+" LOWER "*" after_word "|" numbers "| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES          \
    "|" SPACE_RUNS
#define GPT4O GPT4O_SHAPE(CONTRACTION "?", "\\p{N}{1,3}")
#define TEKKEN GPT4O_SHAPE("", "\\p{N}")

/* DeepSeek's first models split in several steps. U+0800..U+4E00 is also in the original. */
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define DEEPSEEK3_CJK "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACE_RUNS
#define DIGIT "\\p{N}"
#define LINE_ENDS "[\\r\\n]"
/* Looks back so that a long run is tried once, not from each of its positions. */
#define SPACE_END "(?<!" S ")" S "++$"

#define DEEPSEEK_MARKS                                                                             \
    S "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+"

/* DeepSeek LLM's letters: letters with case, in the blocks that its makers listed. */
#define DEEPSEEK_LETTERS                                                                           \
    "\\x{41}-\\x{5A}\\x{61}-\\x{7A}\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}"          \
    "\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}-\\x{377}"        \
    "\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"                  \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"                         \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"                 \
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"                 \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"                 \
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}"         \
    "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"        \
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}"        \
    "\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"          \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"        \
    "\\x{214E}\\x{2183}-\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"        \
    "\\x{2CF2}-\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                 \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

#define DEEPSEEK_WORDS S "?[" DEEPSEEK_LETTERS "]+"

/* Falcon's steps: runs of punctuation, GPT-2's pattern, numbers, and groups of three digits. */
#define PUNCTUATION_RUNS "[!-/:-@\\[-`{-~\\p{P}]+"

/* Bloom's pattern: a word includes a space before it, and ends at white space and some marks. */
#define BLOOM " ?[^(" SPACES "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" SPACES                      \
    "\\p{L}\\p{N}]++[\\r\\n]*|" S "*[\\r\\n]|" SPACE_RUNS
#define SEED_CODER                                                                                 \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}]+|" LINES        \
                "|" SPACE_RUNS

/* Numbers in groups of three from the right. Only the first group of a number looks ahead, so a
 * long number takes linear time. */
#define GROUPED(digit)                                                                             \
    "(?<!" digit ")" digit "{1,3}(?=(?:" digit "{3})*+(?!" digit "))|(?<=" digit ")" digit "{3}"
/* The rest before the first group stays with other numbers before it. */
#define SUPERBPE                                                                                   \
    "(?<!\\p{Nd}{3})\\p{Nd}{3}(?=(?:\\p{Nd}{3})*+(?!\\p{Nd}))|(?<=\\p{Nd}{3})\\p{Nd}{3}"
/* A number before a letter stays whole. */
#define TINY_AYA "(?<!\\p{Nd})\\p{Nd}++(?=" WORDS ")(*SKIP)(*F)|" GROUPED("\\p{Nd}")

#define AFMOE_SCRIPTS                                                                              \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{30FF}"                \
    "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{EFF}\\x{1780}-\\x{17FF}\\x{1000}-"         \
    "\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+"
#define YOUTU_SCRIPTS                                                                              \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}"     \
    "\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|"       \
    "[\\x{3105}-\\x{312F}]+|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"

/* Words with single spaces between them. Possessive, so a long text does not fill the stack. */
#define EXAONE_MOE                                                                                 \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}(?:[\\p{L}\\p{M}]| \\p{L})*+|\\p{N}| ?[^" SPACES     \
                "\\p{L}\\p{N}]+[\\r\\n/]?|" S "*[\\r\\n]|" SPACE_RUNS
#define RUN(n) S "{" #n "}(?!" NOT_S ")|"
#define JAIS2                                                                                      \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" SPACES                           \
                "\\p{L}\\p{N}]+[\\r\\n]*|" LINES "|" RUN(512) RUN(256) RUN(128) RUN(64) RUN(32)    \
                    RUN(16) RUN(8) RUN(4) S "{1,2}(?!" NOT_S ")|" S
#define SPARK                                                                                      \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|" SPACE_RUNS

/* Kimi K2's pattern: GPT-4o's form, but a run of Han characters is a separate word. */
#define NO_HAN_UPPER "(?:(?!\\p{Han})" UPPER ")"
#define NO_HAN_LOWER "(?:(?!\\p{Han})" LOWER ")"
#define KIMI                                                                                       \
    "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "*" NO_HAN_LOWER "+" CONTRACTION               \
    "?|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "+" NO_HAN_LOWER "*" CONTRACTION                       \
    "?|\\p{N}{1,3}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*|" LINES "|" SPACE_RUNS

struct family {
    const char *stage[NAMED_STAGES + 1];
    bool ignore_merges; /* from the tokenizer.json: a piece that equals a token is not merged */
    bool nfc;           /* the tokenizer.json has the normalizer NFC */
};

static const struct family gpt2 = {{GPT2}};
static const struct family gpt2_nfc = {{GPT2}, .nfc = true};
static const struct family digits = {{DIGIT, GPT2}};
static const struct family digits_nfc = {{DIGIT, GPT2}, .nfc = true};
static const struct family llama3 = {{LLAMA3}, .ignore_merges = true};
static const struct family gpt4 = {{LLAMA3}};
static const struct family minicpm5 = {{"\\p{N}{1,3}", MINICPM5}, .ignore_merges = true};
static const struct family ufakzeka = {{UFAKZEKA}};
static const struct family qwen2 = {{QWEN2}, .nfc = true};
static const struct family qwen2_plain = {{QWEN2}};
static const struct family qwen35 = {{QWEN35}, .nfc = true};
static const struct family gpt4o = {{GPT4O}};
static const struct family tekken = {{TEKKEN}, .ignore_merges = true};
static const struct family deepseek_llm = {
    {LINE_ENDS, DEEPSEEK_WORDS, DEEPSEEK_MARKS, SPACE_END, DEEPSEEK_CJK, DIGIT}};
static const struct family deepseek_coder = {
    {LINE_ENDS, S "?\\p{L}+", S "?\\p{P}+", DEEPSEEK_CJK, DIGIT}};
static const struct family falcon = {{PUNCTUATION_RUNS, GPT2, "[0-9]+", "[0-9][0-9][0-9]"}};
static const struct family bloom = {{BLOOM}};
static const struct family viking = {{BLOOM, DIGIT}};
static const struct family bailing = {{BAILING}};
static const struct family seed_coder = {{SEED_CODER}};
static const struct family kimi = {{KIMI}};
static const struct family chameleon = {{"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z",
                                         "[\\t\\n]|    |  ", DIGIT, "[!-/:-@\\[-`{-~\\p{P}]",
                                         GPT2}};
static const struct family deepseek3 = {{"\\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3}};

static const struct family gpt4o_whole = {{GPT4O}, .ignore_merges = true};
static const struct family afmoe = {{GROUPED("\\p{N}"), AFMOE_SCRIPTS, DEEPSEEK3}};
static const struct family exaone_moe = {{EXAONE_MOE}};
static const struct family jais2 = {{JAIS2}};
static const struct family laguna = {{"[^\\n]+|[\\n]+", QWEN2}};
static const struct family spark = {{"\\p{N}{1,3}", DEEPSEEK3_CJK, SPARK, DIGIT}};
static const struct family superbpe = {{"\\p{N}+", SUPERBPE}};
static const struct family tiny_aya = {{TINY_AYA, GPT4O}};
static const struct family youtu = {{YOUTU_SCRIPTS, GPT4O_SHAPE(CONTRACTION "?", "\\p{N}")},
                                    .ignore_merges = true};

/* All supported values of tokenizer.ggml.pre. */
static const struct {
    const char *name;
    const struct family *family;
} known[] = {
    {"smollm", &digits},
    {"gpt-2", &gpt2},
    {"gpt2", &gpt2},
    {"default", &gpt2},
    {"phi-2", &gpt2},
    {"jais", &gpt2},
    {"roberta-bpe", &gpt2},
    {"exaone4", &gpt2},
    {"trillion", &gpt2},
    {"granite-docling", &gpt2},
    {"olmo", &gpt2_nfc},
    {"mpt", &gpt2_nfc},
    {"starcoder", &digits},
    {"refact", &digits},
    {"codeshell", &digits},
    {"exaone", &digits},
    {"minerva-7b", &digits},
    {"command-r", &digits_nfc},
    {"llama-bpe", &llama3},
    {"llama3", &llama3},
    {"llama-v3", &llama3},
    {"falcon3", &llama3},
    {"pixtral", &llama3},
    {"lfm2", &llama3},
    {"dbrx", &gpt4},
    {"smaug-bpe", &gpt4},
    {"glm4", &gpt4},
    {"chatglm-bpe", &gpt4},
    {"qwen2", &qwen2},
    {"deepseek-r1-qwen", &qwen2},
    {"stablelm2", &qwen2_plain},
    {"hunyuan", &qwen2_plain},
    {"megrez", &qwen2},
    {"qwen35", &qwen35},
    {"gpt-4o", &gpt4o},
    {"llama4", &gpt4o},
    {"tekken", &tekken},
    {"deepseek-llm", &deepseek_llm},
    {"deepseek-coder", &deepseek_coder},
    {"deepseek-v3", &deepseek3},
    {"falcon", &falcon},
    {"bloom", &bloom},
    {"gpt3-finnish", &bloom},
    {"poro-chat", &bloom},
    {"viking", &viking},
    {"bailingmoe", &bailing},
    {"bailingmoe2", &bailing},
    {"llada-moe", &bailing},
    {"seed-coder", &seed_coder},
    {"kimi-k2", &kimi},
    {"chameleon", &chameleon},
    {"minimax-m2", &gpt4o},
    {"grok-2", &qwen2_plain},
    {"kormo", &qwen2_plain},
    {"falcon-h1", &llama3},
    {"midm-2.0", &llama3},
    {"jina-es", &gpt2},
    {"jina-de", &gpt2},
    {"jina-v1-en", &gpt2},
    {"jina-v2-es", &gpt2},
    {"jina-v2-de", &gpt2},
    {"jina-v2-code", &gpt2},
    {"gigachat", &gpt2},
    {"a.x-4.0", &gpt2},
    {"mellum", &gpt2},
    {"modern-bert", &gpt2},
    {"jina-v5-nano", &llama3},
    {"glm5", &gpt4},
    {"f2llmv2", &qwen2},
    {"solar-open", &qwen2_plain},
    {"kanana2", &gpt4o},
    {"talkie", &gpt4o},
    {"hunyuan-dense", &deepseek3},
    {"hy_v4", &deepseek3},
    {"joyai-llm", &deepseek3},
    {"minicpm5", &minicpm5},
    {"ufakzeka", &ufakzeka},
    {"mellum2", &digits},
    {"granite-embed-multi-97m", &gpt4o_whole},
    {"afmoe", &afmoe},
    {"exaone-moe", &exaone_moe},
    {"jais-2", &jais2},
    {"laguna", &laguna},
    {"spark2_5", &spark},
    {"superbpe", &superbpe},
    {"tiny_aya", &tiny_aya},
    {"cohere2moe", &tiny_aya},
    {"youtu", &youtu},
};

/* ---- by name -------------------------------------------------------------------------------- */

const char pattern_gpt2[] = GPT2;

enum status pretokenizer_add(struct pretokenizer *pretokenizer, const char *pattern,
                             enum split_behavior behavior, bool invert, struct err *err) {
    assert(pretokenizer->n_stages < MAX_STEPS);
    struct stage *stage = &pretokenizer->stage[pretokenizer->n_stages];
    *stage = (struct stage){.kind = STAGE_SPLIT, .behavior = behavior, .invert = invert};
    enum status status = regex_own(&stage->regex, pattern, "tokenizer.ggml.pre", err);
    if (!status) pretokenizer->n_stages++;
    return status;
}

const char *tokenizer_pre_name(int wanted) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t first = 0;
        while (known[first].family != known[i].family) first++;
        if (first == i && wanted-- == 0) return known[i].name;
    }
    return NULL;
}

enum status pretokenizer_named(struct pretokenizer *pretokenizer, const char *name,
                               bool *ignore_merges, bool *nfc, struct err *err) {
    *pretokenizer = (struct pretokenizer){0};
    const struct family *family = name ? NULL : &gpt2;
    for (size_t i = 0; name && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0) family = known[i].family;
    }
    if (!family) {
        return err_set(err, STATUS_BAD_FILE, "tokenizer.ggml.pre",
                       "the pre-tokenizer '%s' is unknown; the known ones are smollm, gpt-2, "
                       "llama-bpe, qwen2, tekken, gpt-4o, deepseek-llm and their relatives",
                       name);
    }
    *ignore_merges = family->ignore_merges;
    *nfc = family->nfc;
    assert(family->stage[0] && !family->stage[NAMED_STAGES]);
    enum status status = STATUS_OK;
    for (int i = 0; family->stage[i] && !status; i++)
        status = pretokenizer_add(pretokenizer, family->stage[i], SPLIT_ISOLATED, false, err);
    return status;
}

/* ---- by steps ------------------------------------------------------------------------------- */

static void add_stage(struct pretokenizer *pretokenizer, struct stage stage) {
    assert(pretokenizer->n_stages < MAX_STEPS);
    pretokenizer->stage[pretokenizer->n_stages++] = stage;
}

static enum status add_split(struct pretokenizer *pretokenizer, const struct tokenizer_step *step,
                             const char *key, struct err *err) {
    struct stage stage = {.kind = STAGE_SPLIT, .behavior = step->behavior, .invert = step->invert};
    enum status status = regex_of_file(&stage.regex, step->pattern, step->is_regex, key, err);
    if (!status) add_stage(pretokenizer, stage);
    return status;
}

/* Adds the space before the text, the split, and the alphabet unless `bytes` is set. */
static enum status add_byte_level(struct pretokenizer *pretokenizer,
                                  const struct tokenizer_step *step, bool bytes, struct err *err) {
    enum status status = STATUS_OK;
    if (step->prepend == PREPEND_ALWAYS)
        add_stage(pretokenizer, (struct stage){.kind = STAGE_PREFIX_SPACE});
    if (step->split)
        status = pretokenizer_add(pretokenizer, pattern_gpt2, SPLIT_ISOLATED, false, err);
    if (!status && !bytes) add_stage(pretokenizer, (struct stage){.kind = STAGE_ALPHABET});
    return status;
}

static enum status add_metaspace(struct pretokenizer *pretokenizer,
                                 const struct tokenizer_step *step, const char *key,
                                 struct err *err) {
    struct stage stage = {.kind = STAGE_METASPACE, .prepend = step->prepend};
    assert(step->content.length < sizeof stage.mark);
    memcpy(stage.mark, step->content.data, step->content.length);
    add_stage(pretokenizer, stage);
    struct tokenizer_step at_marks = {.pattern = step->content, .behavior = SPLIT_MERGED_WITH_NEXT};
    return step->split ? add_split(pretokenizer, &at_marks, key, err) : STATUS_OK;
}

static enum status add_step(struct pretokenizer *pretokenizer, const struct tokenizer_step *step,
                            bool bytes, const char *key, struct err *err) {
    switch (step->kind) {
    case STEP_SPLIT:
        return add_split(pretokenizer, step, key, err);
    case STEP_BYTE_LEVEL:
        return add_byte_level(pretokenizer, step, bytes, err);
    case STEP_METASPACE:
        return add_metaspace(pretokenizer, step, key, err);
    case STEP_DIGITS:
        return pretokenizer_add(pretokenizer, "\\p{N}", step->behavior, false, err);
    case STEP_PUNCTUATION:
        return pretokenizer_add(pretokenizer, MARK, step->behavior, false, err);
    case STEP_BERT_SPLIT: {
        enum status status = pretokenizer_add(pretokenizer, S, SPLIT_REMOVED, false, err);
        if (status) return status;
        return pretokenizer_add(pretokenizer, MARK, SPLIT_ISOLATED, false, err);
    }
    case STEP_WHITESPACE:
        return pretokenizer_add(pretokenizer, WORDS "+|[^" SPACES WORD_CHARACTERS "]+",
                                SPLIT_REMOVED, true, err);
    case STEP_WHITESPACE_SPLIT:
        return pretokenizer_add(pretokenizer, S, SPLIT_REMOVED, false, err);
    default:
        break;
    }
    assert(!"a step that is not a pre-tokenizer");
    return STATUS_SYSTEM;
}

/* Maximum number of stages for one step. */
#define STAGES_A_STEP 3

enum status pretokenizer_init(struct pretokenizer *pretokenizer, const struct tokenizer_spec *spec,
                              bool bytes, struct err *err) {
    *pretokenizer = (struct pretokenizer){0};
    enum status status = STATUS_OK;
    for (int i = 0; i < spec->n_pre_tokenizers && !status; i++) {
        if (pretokenizer->n_stages + STAGES_A_STEP > MAX_STEPS)
            return err_set(err, STATUS_BAD_FILE, spec->keys->pre,
                           "key %s: expected at most %d steps, found %d", spec->keys->pre,
                           MAX_STEPS / STAGES_A_STEP, spec->n_pre_tokenizers);
        status = add_step(pretokenizer, &spec->pre_tokenizers[i], bytes, spec->keys->pre, err);
    }
    return status;
}

void pretokenizer_free(struct pretokenizer *pretokenizer) {
    for (int i = 0; i < pretokenizer->n_stages; i++) regex_free(&pretokenizer->stage[i].regex);
    pretokenizer->n_stages = 0;
}
