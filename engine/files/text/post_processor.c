/* Reads the post-processor of a tokenizer.json: the tokens around one text, and around and between
 * two. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/text/internal.h"

/* The tokens around a text, while they are collected. */
struct around {
    int32_t before[MAX_AROUND], after[MAX_AROUND];
    int n_before, n_after;
};

static enum status put(const struct reading *reading, int32_t *ids, int *n, const struct json *id) {
    char found[96];
    if (!json_is(id, JSON_NUMBER) || !id->is_integer || id->integer < 0 ||
        id->integer >= reading->spec->n_tokens)
        return bad_key(reading, "post_processor.ids", "ids of tokens", "%s", found_name(id, found));
    if (*n + 1 >= MAX_AROUND) /* bos or eos needs one more place */
        return bad_key(reading, "post_processor", "at most 7 tokens on each side", "more");
    ids[(*n)++] = (int32_t)id->integer;
    return STATUS_OK;
}

/* Appends the ids of a template's special token. */
static enum status put_special(const struct reading *reading, const struct json *processor,
                               const struct json *special, int32_t *ids, int *n) {
    const struct json *name, *table, *entry, *list;
    char found[96];
    enum status status =
        need_member(reading, special, "id", "post_processor.single", JSON_STRING, &name);
    if (!status)
        status = need_member(reading, processor, "special_tokens", "post_processor.special_tokens",
                             JSON_OBJECT, &table);
    if (status) return status;
    entry = json_member(table, name->string);
    if (!json_is(entry, JSON_OBJECT))
        return bad_key(reading, "post_processor.special_tokens",
                       "an entry for each token of the template", "none for %s",
                       found_name(name, found));
    status = need_member(reading, entry, "ids", "post_processor.ids", JSON_ARRAY, &list);
    if (status) return status;
    json_each(id, list) {
        status = put(reading, ids, n, id);
        if (status) return status;
    }
    return STATUS_OK;
}

/* Reads TemplateProcessing: special tokens before and after the sequence A. */
static enum status read_single(const struct reading *reading, const struct json *processor,
                               struct around *around) {
    const struct json *single;
    int n_sequences = 0;
    enum status status =
        need_member(reading, processor, "single", "post_processor.single", JSON_ARRAY, &single);
    if (status) return status;
    json_each(part, single) {
        const struct json *special = json_member(part, "SpecialToken");
        if (json_member(part, "Sequence")) n_sequences++;
        if (special && n_sequences == 0)
            status = put_special(reading, processor, special, around->before, &around->n_before);
        else if (special)
            status = put_special(reading, processor, special, around->after, &around->n_after);
        if (status) return status;
    }
    if (n_sequences == 1) return STATUS_OK;
    return bad_key(reading, "post_processor.single", "one Sequence", "%d", n_sequences);
}

/* Returns the token type of a template's item. */
static int64_t type_of(const struct json *item) {
    const struct json *type = json_is(item, JSON_OBJECT) ? json_member(item, "type_id") : NULL;
    return json_is(type, JSON_NUMBER) && type->is_integer ? type->integer : 0;
}

/* Reads the template for two texts. A template in another order than A, B sets no form. */
static enum status read_pair(const struct reading *reading, const struct json *processor,
                             struct pair_form *pair) {
    const struct {
        int32_t *ids;
        int *n;
    } part[] = {{pair->before, &pair->n_before},
                {pair->between, &pair->n_between},
                {pair->after, &pair->n_after}};
    const struct json *template = json_member(processor, "pair");
    int64_t types[2] = {0, 0};
    int n_texts = 0;
    bool in_order = true;
    json_each(item, json_is(template, JSON_ARRAY) ? template : NULL) {
        const struct json *special = json_member(item, "SpecialToken");
        const struct json *text = json_member(item, "Sequence");
        if (text && n_texts < 2) {
            in_order &= json_is_text(json_member(text, "id"), n_texts ? "B" : "A");
            types[n_texts] = type_of(text);
        }
        n_texts += text != NULL;
        if (!special || n_texts > 2) continue;
        enum status status =
            put_special(reading, processor, special, part[n_texts].ids, part[n_texts].n);
        if (status) return status;
        if (n_texts == 1 && type_of(special) == types[0]) pair->n_between_first = pair->n_between;
    }
    pair->is_set = in_order && n_texts == 2 && types[0] == 0;
    pair->has_types = types[1] == 1;
    return STATUS_OK;
}

/* Reads a token of BertProcessing, ["[CLS]", 101]. */
static enum status put_named(const struct reading *reading, const struct json *processor,
                             const char *name, int32_t *ids, int *n) {
    const struct json *token = json_member(processor, name);
    const struct json *text = json_is(token, JSON_ARRAY) ? json_first(token) : NULL;
    char found[96];
    if (text && text->next) return put(reading, ids, n, text->next);
    return bad_key(reading, "post_processor", "\"cls\" and \"sep\": a token and its id", "%s",
                   found_name(token, found));
}

/* Reads BertProcessing, and RobertaProcessing, which has two tokens between texts of one type. */
static enum status read_bert(const struct reading *reading, const struct json *processor,
                             bool is_roberta, struct around *around, struct pair_form *pair) {
    enum status status = put_named(reading, processor, "cls", around->before, &around->n_before);
    if (!status) status = put_named(reading, processor, "sep", around->after, &around->n_after);
    if (status) return status;
    int32_t cls = around->before[0], sep = around->after[0];
    *pair = (struct pair_form){.is_set = true,
                               .before = {cls},
                               .between = {sep, sep},
                               .after = {sep},
                               .n_before = 1,
                               .n_between = is_roberta ? 2 : 1,
                               .n_after = 1,
                               .has_types = !is_roberta};
    pair->n_between_first = pair->n_between;
    return STATUS_OK;
}

/* Puts a later processor's tokens around those of the earlier ones. */
static enum status join_around(const struct reading *reading, struct tokenizer_spec *spec,
                               const struct around *outer) {
    if (spec->n_before + outer->n_before >= MAX_AROUND ||
        spec->n_after + outer->n_after >= MAX_AROUND)
        return bad_key(reading, "post_processor", "at most 7 tokens on each side", "more");
    assert(outer->n_before >= 0 && outer->n_after >= 0);
    memmove(spec->before + outer->n_before, spec->before,
            (size_t)spec->n_before * sizeof *spec->before);
    memcpy(spec->before, outer->before, (size_t)outer->n_before * sizeof *spec->before);
    memcpy(spec->after + spec->n_after, outer->after, (size_t)outer->n_after * sizeof *spec->after);
    spec->n_before += outer->n_before;
    spec->n_after += outer->n_after;
    return STATUS_OK;
}

static enum status read_processor(struct reading *reading, const struct json *processor) {
    const struct json *type, *list;
    struct around around = {0};
    struct pair_form *pair = &reading->spec->pair;
    char found[96];
    enum status status =
        need_member(reading, processor, "type", "post_processor.type", JSON_STRING, &type);
    if (status) return status;
    if (json_is_text(type, "ByteLevel")) return STATUS_OK; /* it only trims offsets */
    bool is_roberta = json_is_text(type, "RobertaProcessing");
    if (is_roberta || json_is_text(type, "BertProcessing")) {
        status = read_bert(reading, processor, is_roberta, &around, pair);
        return status ? status : join_around(reading, reading->spec, &around);
    }
    if (json_is_text(type, "TemplateProcessing")) {
        *pair = (struct pair_form){0};
        status = read_single(reading, processor, &around);
        if (!status) status = read_pair(reading, processor, pair);
        return status ? status : join_around(reading, reading->spec, &around);
    }
    if (!json_is_text(type, "Sequence"))
        return bad_key(reading, "post_processor.type",
                       "one of ByteLevel TemplateProcessing BertProcessing RobertaProcessing "
                       "Sequence",
                       "%s", found_name(type, found));
    status = need_member(reading, processor, "processors", "post_processor.processors", JSON_ARRAY,
                         &list);
    if (status) return status;
    json_each(item, list) {
        status = read_processor(reading, item);
        if (status) return status;
    }
    return STATUS_OK;
}

enum status read_post_processor(struct reading *reading, const struct json *root) {
    const struct json *processor;
    enum status status =
        may_member(reading, root, "post_processor", "post_processor", JSON_OBJECT, &processor);
    return status || !processor ? status : read_processor(reading, processor);
}
