/* Reads vocab.json and merges.txt: GPT-2's form of a byte-level BPE. It does not contain the
 * pre-tokenizer; the class of transformers that tokenizer_config.json names implies it. */
#include <stdlib.h>
#include <string.h>

#include "engine/files/text/internal.h"

static const struct tokenizer_keys keys = {
    .tokens = "vocab.json",
    .types = "added_tokens_decoder",
    .scores = "vocab.json",
    .merges = "merges.txt",
    .pre = "tokenizer_class",
    .bos = "bos_token",
    .eos = "eos_token",
    .unknown = "unk_token",
};

/* Reads one merge per line, "left right"; the first line may be a comment. */
static enum status read_merges(struct reading *reading, char *text, size_t length) {
    struct tokenizer_spec *spec = reading->spec;
    size_t n_lines = 1;
    for (size_t i = 0; i < length; i++) n_lines += text[i] == '\n';
    const char **merge = mem_alloc(n_lines * sizeof *merge);
    uint32_t *merge_length = mem_alloc(n_lines * sizeof *merge_length);
    spec->merge = merge;
    spec->merge_length = merge_length;
    bool is_first = true;
    for (char *line = text, *end = text + length, *stop; line < end; line = stop + 1) {
        stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        size_t n = (size_t)(stop - line);
        if (n > 0 && line[n - 1] == '\r') n--;
        bool is_comment = is_first && n >= 9 && memcmp(line, "#version:", 9) == 0;
        is_first = false;
        if (n == 0 || is_comment) continue;
        if (n > MAX_TOKEN_BYTES || !memchr(line + 1, ' ', n - 1))
            return bad_key(reading, keys.merges, "two tokens with a space between them a line",
                           "line %d: \"%.*s\"", spec->n_merges + 1, (int)(n < 64 ? n : 64), line);
        merge[spec->n_merges] = line;
        merge_length[spec->n_merges++] = (uint32_t)n;
    }
    return STATUS_OK;
}

/* Chooses the steps by the class that tokenizer_config.json names. */
static enum status choose_steps(struct reading *reading, const char *folder) {
    static const struct {
        const char *name, *pre;
    } classes[] = {
        {"GPT2Tokenizer", "gpt-2"},
        {"GPT2TokenizerFast", "gpt-2"},
        {"Qwen2Tokenizer", "qwen2"},
        {"Qwen2TokenizerFast", "qwen2"},
    };
    struct json *root;
    char found[96];
    enum status status = read_object(folder, "tokenizer_config.json", &root, reading->err);
    if (status) return status;
    if (root) holder_keep_tree(reading->holder, root);
    const struct json *class = root ? json_member(root, "tokenizer_class") : NULL;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (json_is_text(class, classes[i].name)) {
            reading->spec->pre = mem_strdup(classes[i].pre);
            return STATUS_OK;
        }
    }
    return bad_key(reading, "tokenizer_class",
                   "\"GPT2Tokenizer\" or \"Qwen2Tokenizer\" in tokenizer_config.json, because "
                   "tokenizer.json is missing",
                   "%s", found_name(class, found));
}

static enum status read_both(struct reading *reading, const char *folder, char *vocabulary,
                             size_t n_vocabulary) {
    struct json *root;
    char *merges;
    size_t length;
    enum status status = parse_object(reading->path, vocabulary, n_vocabulary, &root, reading->err);
    if (status) return status;
    holder_keep_tree(reading->holder, root);
    status = add_tokens(reading, root);
    if (!status)
        status =
            read_file(folder, "merges.txt", MAX_TOKENIZER_BYTES, &merges, &length, reading->err);
    if (status) return status;
    if (!merges) return bad_key(reading, keys.merges, "the file beside vocab.json", "nothing");
    holder_keep_memory(reading->holder, merges);
    status = read_merges(reading, merges, length);
    if (!status) status = choose_steps(reading, folder);
    if (!status) status = read_config(reading, folder, false);
    return status ? status : finish_tokens(reading);
}

enum status vocab_merges_read(struct tokenizer_spec *spec, const char *folder, int V,
                              struct err *err) {
    struct reading reading;
    char *text;
    size_t length;
    enum status status = read_file(folder, "vocab.json", MAX_TOKENIZER_BYTES, &text, &length, err);
    if (status || !text) return status;
    char *path = path_in(folder, "vocab.json");
    reading_begin(&reading, spec, path, V, &keys, err);
    spec->kind = TOKENIZER_BYTE_BPE;
    status = reading_end(&reading, read_both(&reading, folder, text, length));
    mem_free(path);
    mem_free(text);
    return status;
}
