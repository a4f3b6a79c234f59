/* BERT's tokenizer in the keys of a GGUF file, and the pairs of encoders.
 *
 * The file spells the start of a word with U+2581 and later parts of it bare. It lacks the steps of
 * the model's tokenizer.json: BERT's normalizer, and splits at white space and punctuation. */
#include <assert.h>
#include <string.h>

#include "engine/files/model_file.h"

#define MAX_WORD_CHARACTERS 100 /* BERT's; a file has no key for it */

static const struct span word_mark = {"\xe2\x96\x81", 3};

/* Returns the id of a spelling, or -1. */
static int32_t find_spelling(const struct tokenizer_spec *spec, const char *name) {
    size_t length = strlen(name);
    for (int32_t i = 0; i < spec->n_tokens; i++) {
        if (spec->token_length[i] == length && memcmp(spec->token[i], name, length) == 0) return i;
    }
    return -1;
}

/* Reads an id, or else finds the token by its usual name. */
static enum status read_token(const struct tokenizer_spec *spec, const struct gguf *gguf,
                              const char *key, const char *name, int32_t *out, struct err *err) {
    int64_t id = -1;
    enum status status = gguf_int_or(gguf, key, 0, spec->n_tokens - 1, -1, &id, err);
    *out = (int32_t)id;
    if (!status && id < 0 && name) *out = find_spelling(spec, name);
    return status;
}

static enum status read_steps(struct tokenizer_spec *spec, const struct gguf *gguf,
                              struct err *err) {
    bool lowers, strips;
    enum status status =
        gguf_bool_or(gguf, "tokenizer.ggml.normalizer.lowercase", true, &lowers, err);
    if (!status)
        status =
            gguf_bool_or(gguf, "tokenizer.ggml.normalizer.strip_accents", lowers, &strips, err);
    if (status) return status;
    struct tokenizer_step *normalizer = mem_calloc(1, sizeof *normalizer);
    struct tokenizer_step *pre = mem_calloc(1, sizeof *pre);
    struct tokenizer_step *decoder = mem_calloc(1, sizeof *decoder);
    normalizer->kind = STEP_BERT;
    normalizer->bert_rules = BERT_CLEANS | BERT_SPACES_CHINESE;
    if (lowers) normalizer->bert_rules |= BERT_LOWERS;
    if (strips) normalizer->bert_rules |= BERT_STRIPS_ACCENTS;
    pre->kind = STEP_BERT_SPLIT;
    *decoder = (struct tokenizer_step){
        .kind = STEP_METASPACE, .content = word_mark, .prepend = PREPEND_ALWAYS};
    assert(!spec->normalizers && !spec->pre_tokenizers && !spec->decoders);
    spec->normalizers = normalizer, spec->n_normalizers = 1;
    spec->pre_tokenizers = pre, spec->n_pre_tokenizers = 1;
    spec->decoders = decoder, spec->n_decoders = 1;
    spec->has_steps = true;
    return STATUS_OK;
}

/* A text stands between [CLS] and [SEP], whatever the keys for them say: they state what the
 * converter adds to the model's own tokens. */
static enum status read_bert(struct tokenizer_spec *spec, const struct gguf *gguf, int32_t sep,
                             struct err *err) {
    int32_t cls;
    enum status status = read_steps(spec, gguf, err);
    if (!status) status = read_token(spec, gguf, "tokenizer.ggml.cls_token_id", "[CLS]", &cls, err);
    if (status) return status;
    if (spec->unknown < 0) spec->unknown = find_spelling(spec, "[UNK]");
    if (cls >= 0) spec->bos = cls;
    if (sep >= 0) spec->eos = sep;
    spec->add_bos = spec->add_eos = true;
    spec->word_prefix = word_mark;
    spec->subword_prefix = (struct span){"", 0};
    spec->max_word_characters = MAX_WORD_CHARACTERS;
    return STATUS_OK;
}

/* Two texts: the first one ends like a text alone, and RoBERTa has another separator (`sep`, or
 * -1). BERT's second text has a type. */
static void pair_init(struct tokenizer_spec *spec, int32_t sep) {
    bool is_bert = spec->kind == TOKENIZER_WORDPIECE;
    struct pair_form *pair = &spec->pair;
    *pair = (struct pair_form){.is_set = true, .has_types = is_bert};
    if (spec->add_bos && spec->bos >= 0) pair->before[pair->n_before++] = spec->bos;
    if (spec->add_eos && spec->eos >= 0) {
        pair->between[pair->n_between++] = spec->eos;
        pair->after[pair->n_after++] = spec->eos;
    }
    if (!is_bert && sep >= 0) pair->between[pair->n_between++] = sep;
    pair->n_between_first = pair->n_between;
}

enum status gguf_bert_read(struct tokenizer_spec *spec, const struct gguf *gguf, struct err *err) {
    static const char *const with_sep[] = {"roberta-bpe", "jina-v1-en", "jina-v2-code"};
    static const char modern[] = "modern-bert";
    const char *name = NULL;
    size_t length = 0;
    bool is_bert = spec->kind == TOKENIZER_WORDPIECE, adds_sep = false;
    int32_t sep;
    for (size_t i = 0; i < sizeof with_sep / sizeof *with_sep; i++)
        adds_sep |= spec->pre && strcmp(spec->pre, with_sep[i]) == 0;
    enum status status = read_token(spec, gguf, "tokenizer.ggml.seperator_token_id",
                                    is_bert ? "[SEP]" : NULL, &sep, err);
    if (!status)
        status = gguf_bool_or(gguf, "tokenizer.ggml.add_sep_token", adds_sep, &adds_sep, err);
    if (!status && is_bert) status = read_bert(spec, gguf, sep, err);
    /* ModernBERT's files ask for a separator too, but its end token is the only one of a pair */
    if (!status) status = gguf_string_or(gguf, "general.architecture", &name, &length, err);
    bool is_modern = length == sizeof modern - 1 && memcmp(name, modern, length) == 0;
    if (!adds_sep || is_modern) sep = -1;
    if (!status && (is_bert || sep >= 0 || (spec->add_eos && spec->eos >= 0))) pair_init(spec, sep);
    return status;
}
