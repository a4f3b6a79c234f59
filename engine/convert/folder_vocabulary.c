/* DESIGN: converts a folder's tokenizer to keys of a GGUF file.
 *
 * A tokenizer.json lists steps; a GGUF file has only a kind of tokenizer and, for byte-level BPE,
 * the name of a pre-tokenizer. The name is found by trial: a tokenizer is built for each name, and
 * the first one that gives the folder's ids for texts of many kinds, and for the vocabulary's own
 * words, is chosen. A tekken.json has no merges: any two tokens merge whose concatenation is a
 * token, so each way to split a token in two becomes a merge. BPE of characters with byte tokens is
 * tried as SentencePiece, whose scores order merges as their ranks do. If no tokenizer gives the
 * same ids, the folder is refused. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/convert.h"

/* ---- comparing two tokenizers --------------------------------------------------------------- */

enum { WORDS_BYTES = 1 << 16 }; /* bytes of words of the vocabulary in one text */

/* Letters of several scripts, runs of digits, spaces, line ends and marks, contractions, case. */
static const char *const probes[] = {
    "Hello world, it's 1234567 o'clock; we'LL see they've DON'T I'd",
    "  two  spaces\n\n\nthree lines \r\n\ttabs\t\t and   end   ",
    "camelCaseWORDS HTTPServer2go snake_case __init__ x=y+1; // comment\n    return a[i]->b;\n",
    "na\xc3\xafve caf\xc3\xa9 \xc3\x9c"
    "berstra\xc3\x9f"
    "e e\xcc\x81 \xce\xb1\xce\xb2\xce\xb3 \xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 "
    "12\xc2\xbd",
    "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82 "
    "\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf 2024\xe5\xb9\xb4",
    "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7 "
    "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87 "
    "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xf0\x9f\x98\x80\xf0\x9f\x8f\xbd!!",
    "!!!??? ... --- *** \"quoted\" (a/b) 3.14e-10 $5,000.00 #tag @me \xe2\x80\x94 \xe2\x80\xa6 "
    "'tis",
    "",
    " ",
    "\n",
    "a",
};

static bool same_ids(const struct tokenizer *a, const struct tokenizer *b, const char *text,
                     size_t length, enum special_rule rule, bool around) {
    int32_t *of_a, *of_b;
    int n_a = tokenizer_encode(a, text, length, rule, around, INT32_MAX, &of_a);
    int n_b = tokenizer_encode(b, text, length, rule, around, INT32_MAX, &of_b);
    bool is_same = n_a == n_b && (n_a <= 0 || memcmp(of_a, of_b, (size_t)n_a * 4) == 0);
    mem_free(of_a);
    mem_free(of_b);
    return is_same;
}

static bool is_added(const struct tokenizer_spec *spec, int32_t id) {
    assert(id >= 0 && id < spec->n_tokens);
    return spec->type && spec->type[id] != TOKEN_NORMAL;
}

/* Compares texts of concatenated words from the whole vocabulary. Added tokens are excluded,
 * because they have separate rules. */
static bool same_words(const struct tokenizer *a, const struct tokenizer *b,
                       const struct tokenizer_spec *of_a) {
    struct buf text = {0};
    int V = tokenizer_size(a);
    for (int64_t id = 0; id < V && text.length < WORDS_BYTES; id += 1 + V / 8192) {
        size_t length;
        const char *bytes = tokenizer_token_bytes(a, (int32_t)id, &length);
        if (!is_added(of_a, (int32_t)id)) buf_add(&text, bytes, length);
    }
    bool is_same = same_ids(a, b, text.data ? text.data : "", text.length, SPECIAL_AS_TEXT, false);
    buf_free(&text);
    return is_same;
}

static bool same_token(const struct tokenizer *a, const struct tokenizer *b, int32_t id) {
    size_t n_a, n_b;
    const char *of_a = tokenizer_token_bytes(a, id, &n_a);
    const char *of_b = tokenizer_token_bytes(b, id, &n_b);
    if (n_a == 0) return true; /* an id without a name gets a placeholder */
    return n_a == n_b && memcmp(of_a, of_b, n_a) == 0 &&
           tokenizer_is_special(a, id) == tokenizer_is_special(b, id);
}

bool same_tokenizers(const struct tokenizer *a, const struct tokenizer *b,
                     const struct tokenizer_spec *of_a) {
    if (tokenizer_size(a) != tokenizer_size(b)) return false;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        if (!same_ids(a, b, probes[i], strlen(probes[i]), SPECIAL_PARSED, true)) return false;
    for (int32_t id = 0; id < tokenizer_size(a); id++)
        if (!is_added(of_a, id) && !same_token(a, b, id)) return false;
    return same_words(a, b, of_a);
}

/* ---- finding the tokenizer ------------------------------------------------------------------ */

/* A tokenizer that a GGUF file can describe. It owns the arrays that are not the folder's. */
struct folder_vocabulary {
    struct tokenizer_spec spec;
    char (*made)[16]; /* placeholder names of ids without a name */
    const char **token;
    uint32_t *length;
    int32_t *type;
    double *score;
    struct tokenizer_step step[2]; /* for Unigram: `map` if there is one, and single spaces */
    struct span map;
    bool squeezes;
    char **merge; /* [spec.n_merges] if they are derived; NULL: the folder's */
    uint32_t *merge_length;
};

static bool is_byte_level(const struct tokenizer_spec *spec) {
    for (int i = 0; i < spec->n_pre_tokenizers; i++)
        if (spec->pre_tokenizers[i].kind == STEP_BYTE_LEVEL) return true;
    return spec->kind == TOKENIZER_BYTE_BPE;
}

static bool is_byte_name(const char *name, size_t length) {
    return length == 6 && memcmp(name, "<0x", 3) == 0 && name[5] == '>';
}

/* Copies names, types, and the tokens added around a text. */
static void copy_tokens(struct folder_vocabulary *v, const struct tokenizer_spec *from) {
    assert(from->n_tokens > 0 && !v->token);
    size_t n = (size_t)from->n_tokens;
    v->made = mem_calloc(n, sizeof *v->made);
    v->token = mem_alloc(n * sizeof *v->token);
    v->length = mem_alloc(n * sizeof *v->length);
    v->type = mem_alloc(n * sizeof *v->type);
    v->score = mem_calloc(n, sizeof *v->score);
    for (size_t i = 0; i < n; i++) {
        v->token[i] = from->token[i], v->length[i] = from->token_length[i];
        v->type[i] = from->type ? from->type[i] : TOKEN_NORMAL;
        if (v->length[i] == 0) {
            v->length[i] = (uint32_t)snprintf(v->made[i], sizeof v->made[i], "[PAD%zu]", i);
            v->token[i] = v->made[i];
        }
    }
    v->spec = (struct tokenizer_spec){.n_tokens = from->n_tokens,
                                      .token = v->token,
                                      .token_length = v->length,
                                      .type = v->type,
                                      .bos = from->n_before ? from->before[0] : from->bos,
                                      .eos = from->n_after ? from->after[0] : from->eos,
                                      .unknown = from->unknown,
                                      .add_bos = from->add_bos || from->n_before > 0,
                                      .add_eos = from->add_eos || from->n_after > 0};
}

/* The id of the token that a merge produces, or -1. */
static int32_t merged(const struct tokenizer *own, const struct tokenizer_spec *from, int i) {
    const char *text = from->merge[i];
    size_t length = from->merge_length[i];
    const char *space = memchr(text, ' ', length);
    size_t right = from->merge_right ? from->merge_right[i] : (size_t)(space - text) + 1;
    assert(right >= 1 && right <= length);
    char *whole = mem_alloc(length + 1);
    memcpy(whole, text, right - 1);
    memcpy(whole + right - 1, text + right, length - right);
    int32_t id = tokenizer_find(own, whole, length - 1);
    mem_free(whole);
    return id;
}

/* Scores for SentencePiece: the folder's own, or scores under which the first merge is the best. */
static void make_scores(struct folder_vocabulary *v, const struct tokenizer *own,
                        const struct tokenizer_spec *from) {
    for (int i = 0; i < from->n_tokens; i++) {
        v->score[i] = from->score ? (double)(float)from->score[i] : -1e6;
        bool is_byte = from->byte_fallback && is_byte_name(v->token[i], v->length[i]);
        if (is_byte) v->type[i] = TOKEN_BYTE;
        if (i == from->unknown) v->type[i] = TOKEN_UNKNOWN;
    }
    for (int i = from->n_merges - 1; i >= 0 && !from->score; i--) {
        int32_t id = merged(own, from, i);
        assert(id < from->n_tokens);
        if (id >= 0) v->score[id] = -i;
    }
}

/* Can the current spec be built, and does it give the same ids? */
static bool is_it(const struct folder_vocabulary *v, const struct tokenizer *own,
                  const struct tokenizer_spec *from) {
    struct tokenizer *made;
    if (tokenizer_new(&made, &v->spec, NULL)) return false;
    bool is_same = same_tokenizers(own, made, from);
    tokenizer_free(made);
    return is_same;
}

/* Tries all names. `first` is the likeliest; NULL: all are equally likely. */
static bool find_pre(struct folder_vocabulary *v, const struct tokenizer *own,
                     const struct tokenizer_spec *from, const char *first) {
    assert(from->n_merges > 0);
    v->spec.kind = TOKENIZER_BYTE_BPE;
    v->spec.n_merges = from->n_merges;
    v->spec.merge = from->merge, v->spec.merge_length = from->merge_length;
    v->spec.merge_right = from->merge_right;
    v->spec.pre = first;
    if (first && is_it(v, own, from)) return true;
    for (int i = 0; (v->spec.pre = tokenizer_pre_name(i)); i++)
        if (is_it(v, own, from)) return true;
    return false;
}

static bool is_utf8_middle(char byte) {
    return (byte & 0xc0) == 0x80;
}

static void add_merge(struct folder_vocabulary *v, const char *name, size_t left, size_t length,
                      size_t *room) {
    assert(left > 0 && left < length);
    size_t n = (size_t)v->spec.n_merges++;
    if (n == *room) {
        *room = *room ? 2 * *room : 1024;
        v->merge = mem_realloc(v->merge, *room * sizeof *v->merge);
        v->merge_length = mem_realloc(v->merge_length, *room * sizeof *v->merge_length);
    }
    char *text = mem_alloc(length + 1);
    memcpy(text, name, left);
    text[left] = ' ';
    memcpy(text + left + 1, name + left, length - left);
    v->merge[n] = text;
    v->merge_length[n] = (uint32_t)length + 1;
}

/* Derives all ways to split a token in two tokens, in the order of the tokens. */
static void make_merges(struct folder_vocabulary *v, const struct tokenizer *own,
                        const struct tokenizer_spec *from) {
    size_t room = 0;
    for (int id = 0; id < from->n_tokens; id++) {
        const char *name = from->token[id];
        size_t length = from->token_length[id];
        if (is_added(from, id)) continue;
        for (size_t left = 1; left < length; left++)
            if (!is_utf8_middle(name[left]) && tokenizer_find(own, name, left) >= 0 &&
                tokenizer_find(own, name + left, length - left) >= 0)
                add_merge(v, name, left, length, &room);
    }
}

static bool find_ranks(struct folder_vocabulary *v, const struct tokenizer *own,
                       const struct tokenizer_spec *from) {
    make_merges(v, own, from);
    struct tokenizer_spec with = *from;
    with.n_merges = v->spec.n_merges;
    with.merge = (const char *const *)v->merge;
    with.merge_length = v->merge_length;
    return with.n_merges > 0 && find_pre(v, own, &with, "tekken");
}

static bool find_sentencepiece(struct folder_vocabulary *v, const struct tokenizer *own,
                               const struct tokenizer_spec *from) {
    v->spec.kind = TOKENIZER_SENTENCEPIECE;
    v->spec.score = v->score;
    make_scores(v, own, from);
    for (int prefix = 0; prefix < 2; prefix++) {
        v->spec.add_space_prefix = prefix;
        if (is_it(v, own, from)) return true;
    }
    return false;
}

/* SentencePiece's Unigram: tries a character map, single spaces or not, a leading space or not. */
static bool find_unigram(struct folder_vocabulary *v, const struct tokenizer *own,
                         const struct tokenizer_spec *from) {
    v->spec.kind = TOKENIZER_UNIGRAM;
    v->spec.score = v->score;
    v->spec.in_floats = true;
    v->spec.normalizers = v->step;
    make_scores(v, own, from);
    for (int i = 0; i < from->n_normalizers; i++) {
        const struct tokenizer_step *step = &from->normalizers[i];
        if (step->kind == STEP_PRECOMPILED || step->kind == STEP_CHARACTER_MAP)
            v->map = step->content;
    }
    for (int rules = 0; rules < 4; rules++) {
        int n = 0;
        if (v->map.length > 0)
            v->step[n++] = (struct tokenizer_step){.kind = STEP_CHARACTER_MAP, .content = v->map};
        v->squeezes = rules & 1;
        if (v->squeezes) v->step[n++] = (struct tokenizer_step){.kind = STEP_SQUEEZE_SPACES};
        assert(n <= (int)(sizeof v->step / sizeof *v->step));
        v->spec.n_normalizers = n;
        v->spec.add_space_prefix = rules & 2;
        if (is_it(v, own, from)) return true;
    }
    return false;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void put_id(struct gguf_keys *keys, const char *key, int32_t id) {
    if (id >= 0) gguf_put_int(keys, key, (uint32_t)id);
}

static void put_scores(struct gguf_keys *keys, const struct folder_vocabulary *v) {
    size_t n = (size_t)v->spec.n_tokens;
    float *score = mem_alloc(n * sizeof *score);
    for (size_t i = 0; i < n; i++) score[i] = (float)v->score[i];
    gguf_put_array(keys, "tokenizer.ggml.scores", GGUF_FLOAT32, n, score);
    mem_free(score);
}

static void put_vocabulary(struct gguf_keys *keys, const struct folder_vocabulary *v) {
    const struct tokenizer_spec *spec = &v->spec;
    size_t n = (size_t)spec->n_tokens;
    bool is_bpe = spec->kind == TOKENIZER_BYTE_BPE;
    bool is_unigram = spec->kind == TOKENIZER_UNIGRAM;
    const char *model = is_bpe ? "gpt2" : is_unigram ? "t5" : "llama";
    const char *pre = is_bpe ? spec->pre : "default";
    assert(pre && n > 0);
    gguf_put_string(keys, "tokenizer.ggml.model", model, strlen(model));
    gguf_put_string(keys, "tokenizer.ggml.pre", pre, strlen(pre));
    gguf_put_strings(keys, "tokenizer.ggml.tokens", n, v->token, v->length);
    gguf_put_array(keys, "tokenizer.ggml.token_type", GGUF_INT32, n, v->type);
    if (is_bpe)
        gguf_put_strings(keys, "tokenizer.ggml.merges", (size_t)spec->n_merges, spec->merge,
                         spec->merge_length);
    else
        put_scores(keys, v);
    if (is_unigram && v->map.length > 0)
        gguf_put_array(keys, "tokenizer.ggml.precompiled_charsmap", GGUF_UINT8, v->map.length,
                       v->map.data);
    if (is_unigram) gguf_put_bool(keys, "tokenizer.ggml.remove_extra_whitespaces", v->squeezes);
    put_id(keys, "tokenizer.ggml.bos_token_id", spec->bos);
    put_id(keys, "tokenizer.ggml.unknown_token_id", spec->unknown);
    gguf_put_bool(keys, "tokenizer.ggml.add_bos_token", spec->add_bos);
    gguf_put_bool(keys, "tokenizer.ggml.add_eos_token", spec->add_eos);
    gguf_put_bool(keys, "tokenizer.ggml.add_space_prefix", spec->add_space_prefix);
}

/* Writes the ids that end an answer: the tokenizer's own first if the folder lists it, then the
 * others. */
static void put_ends(struct gguf_keys *keys, const struct hf_config *hf, int32_t eos) {
    static const char *const names[] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};
    int n = 0;
    bool is_listed = hf->n_end_ids == 0;
    for (int i = 0; i < hf->n_end_ids; i++) is_listed |= hf->end_ids[i] == eos;
    if (is_listed) put_id(keys, names[n++], eos);
    for (int i = 0; i < hf->n_end_ids; i++) {
        if (is_listed && hf->end_ids[i] == eos) continue;
        if (n < 3)
            put_id(keys, names[n++], hf->end_ids[i]);
        else
            log_line(LOG_WARNING, "token %d does not end answers in the file, which has keys for 3",
                     (int)hf->end_ids[i]);
    }
}

/* Warns if added tokens have rules about adjacent text, which GGUF files cannot express. */
static void tell_rules(const struct tokenizer_spec *from) {
    enum { RULES = ADDED_LSTRIP | ADDED_RSTRIP | ADDED_SINGLE_WORD };
    int n = 0;
    for (int i = 0; i < from->n_tokens && from->added; i++) n += (from->added[i] & RULES) != 0;
    if (n > 0)
        log_line(LOG_WARNING,
                 "%d added tokens of the folder absorb adjacent white space, or match whole words "
                 "only; in the file they match like all others",
                 n);
}

static enum status put_templates(struct conversion *c, struct err *err) {
    struct folder_templates templates;
    enum status status = chat_templates_read(&templates, &c->source, NULL, err);
    if (status) return status;
    if (templates.text)
        gguf_put_string(&c->keys, "tokenizer.chat_template", templates.text, templates.length);
    if (templates.tools_text)
        gguf_put_string(&c->keys, "tokenizer.chat_template.tool_use", templates.tools_text,
                        templates.tools_length);
    folder_templates_free(&templates);
    return STATUS_OK;
}

static enum status write_vocabulary(struct conversion *c, const struct tokenizer_spec *from,
                                    const struct tokenizer *own, struct err *err) {
    struct folder_vocabulary v = {0};
    copy_tokens(&v, from);
    bool is_known = false, is_bpe = is_byte_level(from);
    if (is_bpe && from->n_merges > 0)
        is_known = find_pre(&v, own, from, NULL);
    else if (from->kind == TOKENIZER_RANK_BPE)
        is_known = find_ranks(&v, own, from);
    else if (from->kind == TOKENIZER_SENTENCEPIECE || from->kind == TOKENIZER_CHARACTER_BPE)
        is_known = find_sentencepiece(&v, own, from);
    else if (from->kind == TOKENIZER_UNIGRAM)
        is_known = find_unigram(&v, own, from);
    if (is_known) {
        put_vocabulary(&c->keys, &v);
        put_ends(&c->keys, c->source.hf, v.spec.eos);
        tell_rules(from);
    }
    for (int i = 0; v.merge && i < v.spec.n_merges; i++) mem_free(v.merge[i]);
    mem_free(v.merge), mem_free(v.merge_length);
    mem_free(v.made), mem_free(v.token), mem_free(v.length), mem_free(v.type), mem_free(v.score);
    if (is_known) return put_templates(c, err);
    return err_set(err, STATUS_USAGE, "tokenizer",
                   "%s: no tokenizer type of GGUF files gives the same ids as the folder's; "
                   "quantise the folder when it is loaded: penstock serve %s {quantization} %s",
                   c->job->in, c->job->in, value_name(quantization_names, c->job->type));
}

enum status folder_vocabulary(struct conversion *c, struct err *err) {
    struct tokenizer_spec from = {0};
    struct tokenizer *own = NULL;
    enum status status = tokenizer_spec_read(&from, &c->source, err);
    if (!status) status = tokenizer_new(&own, &from, err);
    if (!status) status = write_vocabulary(c, &from, own, err);
    tokenizer_free(own);
    tokenizer_spec_free(&from);
    return status;
}
