/* The pre-tokenizer: splits text into pieces that no token crosses.
 *
 * DESIGN
 *   A GGUF file names its pre-tokenizer. A name stands for one or more patterns, the stages: each
 *   match of a pattern is a piece, the text between two matches is a piece, too, and the next
 *   stage splits each piece further. The patterns are those of the models' own tokenizer.json,
 *   written for PCRE2. White space is spelt out as Unicode's White_Space, because PCRE2's \s also
 *   matches U+180E.
 *
 *   Threads: compiled patterns are read-only; each call of pretokenizer_split has its own match
 *   data. PCRE2's machine code runs on 32 KiB of the caller's stack, which these patterns never
 *   fill: none of them nests repeats. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* ---- the patterns --------------------------------------------------------------------------- */

#define SPACES                                                                                     \
    "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}" \
    "\\x{3000}"
#define S "[" SPACES "]"
#define NOT_S "[^" SPACES "]"
#define SPACE_RUNS S "+(?!" NOT_S ")|" S "+"
#define LINES S "*[\\r\\n]+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" SPACE_RUNS

/* GPT-4's shape: a word takes one odd character before it, punctuation the line ends after it. */
#define GPT4(word, numbers, mark)                                                                  \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?" word "|" numbers "| ?" mark "[\\r\\n]*|" LINES           \
                "|" SPACE_RUNS
#define LLAMA3 GPT4("\\p{L}+", "\\p{N}{1,3}", "[^" SPACES "\\p{L}\\p{N}]+")
#define QWEN2 GPT4("\\p{L}+", "\\p{N}", "[^" SPACES "\\p{L}\\p{N}]+")
#define QWEN35 GPT4("[\\p{L}\\p{M}]+", "\\p{N}", "[^" SPACES "\\p{L}\\p{M}\\p{N}]+")

/* GPT-4o's shape: a word is capitals, then small letters; characters without case are both. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT4O_SHAPE(after_word, numbers)                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" after_word "|[^\\r\\n\\p{L}\\p{N}]?" UPPER        \
    "+" LOWER "*" after_word "|" numbers "| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES          \
    "|" SPACE_RUNS
#define GPT4O GPT4O_SHAPE(CONTRACTION "?", "\\p{N}{1,3}")
#define TEKKEN GPT4O_SHAPE("", "\\p{N}")

/* DeepSeek's first models split in steps. U+0800..U+4E00 is in the original, too. */
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define DEEPSEEK3_CJK "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACE_RUNS
#define DIGIT "\\p{N}"
#define LINE_ENDS "[\\r\\n]"
/* Looks back so that a long run is tried once, and not from each of its places. */
#define SPACE_END "(?<!" S ")" S "++$"

#define DEEPSEEK_MARKS                                                                             \
    S "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+"

/* DeepSeek LLM's letters: those with case, in the blocks that its makers listed. */
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

struct family {
    const char *stage[PRETOKENIZER_STAGES + 1];
    bool ignore_merges; /* the tokenizer.json says so: a piece that is a token needs no merges */
    bool nfc;           /* the tokenizer.json has the normaliser NFC */
};

static const struct family gpt2 = {{GPT2}};
static const struct family gpt2_nfc = {{GPT2}, .nfc = true};
static const struct family digits = {{DIGIT, GPT2}};
static const struct family digits_nfc = {{DIGIT, GPT2}, .nfc = true};
static const struct family llama3 = {{LLAMA3}, .ignore_merges = true};
static const struct family gpt4 = {{LLAMA3}};
static const struct family qwen2 = {{QWEN2}, .nfc = true};
static const struct family qwen2_plain = {{QWEN2}};
static const struct family qwen35 = {{QWEN35}, .nfc = true};
static const struct family gpt4o = {{GPT4O}};
static const struct family tekken = {{TEKKEN}, .ignore_merges = true};
static const struct family deepseek_llm = {
    {LINE_ENDS, DEEPSEEK_WORDS, DEEPSEEK_MARKS, SPACE_END, DEEPSEEK_CJK, DIGIT}};
static const struct family deepseek_coder = {
    {LINE_ENDS, S "?\\p{L}+", S "?\\p{P}+", DEEPSEEK_CJK, DIGIT}};
static const struct family deepseek3 = {{"\\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3}};

/* Every name that may stand in tokenizer.ggml.pre. */
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
};

/* ---- compiling ------------------------------------------------------------------------------ */

static enum status compile(struct pretokenizer *pretokenizer, const char *pattern,
                           struct err *err) {
    int code;
    PCRE2_SIZE at;
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code, &at, NULL);
    if (!compiled) {
        char reason[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return err_set(err, STATUS_SYSTEM, "tokenizer.ggml.pre",
                       "PCRE2 cannot compile the pattern at %zu: %s", (size_t)at, reason);
    }
    /* A system may forbid machine code made at run time; PCRE2's interpreter is slower, but gives
     * the same pieces. */
    pretokenizer->jit[pretokenizer->n_stages] =
        pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
    pretokenizer->stage[pretokenizer->n_stages++] = compiled;
    return STATUS_OK;
}

enum status pretokenizer_init(struct pretokenizer *pretokenizer, const char *name,
                              struct err *err) {
    *pretokenizer = (struct pretokenizer){0};
    const struct family *family = name ? NULL : &gpt2;
    for (size_t i = 0; name && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0) family = known[i].family;
    }
    if (!family) {
        return err_set(err, STATUS_BAD_FILE, "tokenizer.ggml.pre",
                       "the pre-tokenizer '%s' is not known; known are smollm, gpt-2, llama-bpe, "
                       "qwen2, tekken, gpt-4o, deepseek-llm and their relatives",
                       name);
    }
    pretokenizer->ignore_merges = family->ignore_merges;
    pretokenizer->nfc = family->nfc;
    assert(family->stage[0] && !family->stage[PRETOKENIZER_STAGES]);
    for (int i = 0; family->stage[i]; i++) {
        enum status status = compile(pretokenizer, family->stage[i], err);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

void pretokenizer_free(struct pretokenizer *pretokenizer) {
    for (int i = 0; i < pretokenizer->n_stages; i++) pcre2_code_free(pretokenizer->stage[i]);
    pretokenizer->n_stages = 0;
}

/* ---- splitting ------------------------------------------------------------------------------ */

struct split {
    const struct pretokenizer *pretokenizer;
    pcre2_match_data *data;
    pcre2_match_context *context;
    struct piece_sink sink;
};

/* Finds the stage's next match from `offset` on. If PCRE2 gives up (its limits, out of memory), the
 * rest counts as unmatched: it becomes one piece, and no byte of it is lost. */
static bool match(const struct split *split, int stage, const char *text, size_t length,
                  size_t offset, size_t *begin, size_t *end) {
    const pcre2_code *code = split->pretokenizer->stage[stage];
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (split->pretokenizer->jit[stage]) {
        rc = pcre2_jit_match(code, subject, length, offset, 0, split->data, split->context);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(code, subject, length, offset, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         split->data, split->context);
    }
    if (rc < 0) return false;
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(split->data);
    *begin = range[0];
    *end = range[1];
    return *end > *begin;
}

/* Hands the pieces of one text to the sink, from `stage` on. Recurses once for each stage. */
static bool split_stage(const struct split *split, int stage, const char *text, size_t length) {
    if (length == 0) return true;
    if (stage == split->pretokenizer->n_stages) {
        return split->sink.take(split->sink.context, text, length);
    }
    size_t at = 0, begin, end;
    while (at < length && match(split, stage, text, length, at, &begin, &end)) {
        assert(begin >= at && end <= length);
        if (!split_stage(split, stage + 1, text + at, begin - at)) return false;
        if (!split_stage(split, stage + 1, text + begin, end - begin)) return false;
        at = end;
    }
    return split_stage(split, stage + 1, text + at, length - at);
}

/* Splits the runs of valid UTF-8; the bytes between them are pieces as they are. */
static bool split_runs(const struct split *split, const char *text, size_t length) {
    for (size_t at = 0, n; at < length; at += n) {
        n = utf8_valid_prefix(text + at, length - at);
        if (!split_stage(split, 0, text + at, n)) return false;
        size_t invalid = at + n;
        while (invalid < length && utf8_character(text + invalid, length - invalid) == 0) invalid++;
        size_t n_invalid = invalid - at - n;
        if (n_invalid && !split->sink.take(split->sink.context, text + at + n, n_invalid)) {
            return false;
        }
        n += n_invalid;
        assert(n > 0);
    }
    return true;
}

bool pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t length,
                        struct piece_sink sink) {
    struct split split = {
        .pretokenizer = pretokenizer,
        .data = pcre2_match_data_create(1, NULL),
        .context = pcre2_match_context_create(NULL),
        .sink = sink,
    };
    bool whole;
    if (split.data && split.context) {
        /* A repeat may step back over all it matched, once for each alternative, and no more. */
        size_t limit = length > UINT32_MAX / 64 ? UINT32_MAX : 1000 + 32 * length;
        pcre2_set_match_limit(split.context, (uint32_t)limit);
        whole = split_runs(&split, text, length);
    } else {
        whole = length == 0 || sink.take(sink.context, text, length);
    }
    pcre2_match_data_free(split.data);
    pcre2_match_context_free(split.context);
    return whole;
}
