/* Selects the file from which a folder's tokenizer is read. */
#include <stdlib.h>

#include "engine/files/text/internal.h"

/* Reads tokenizer.json and the settings of tokenizer_config.json. */
static enum status read_with_config(struct tokenizer_spec *spec, const char *folder,
                                    const char *text, size_t length, int V, struct err *err) {
    char *path = path_in(folder, "tokenizer.json");
    enum status status = tokenizer_json_read(spec, path, text, length, V, err);
    if (!status) {
        struct reading reading = {
            .path = path, .spec = spec, .holder = spec->owner, .V = V, .err = err};
        status = reading_end(&reading, read_config(&reading, folder, true));
    }
    mem_free(path);
    return status;
}

static enum status read_tekken(struct tokenizer_spec *spec, const char *folder, int V,
                               struct err *err) {
    char *text;
    size_t length;
    enum status status = read_file(folder, "tekken.json", MAX_TOKENIZER_BYTES, &text, &length, err);
    if (status || !text) return status;
    char *path = path_in(folder, "tekken.json");
    status = tekken_json_read(spec, path, text, length, V, err);
    mem_free(path);
    mem_free(text);
    return status;
}

enum status hf_tokenizer_read(struct tokenizer_spec *spec, const char *folder, int V,
                              struct err *err) {
    char *text;
    size_t length;
    *spec = (struct tokenizer_spec){0};
    enum status status =
        read_file(folder, "tokenizer.json", MAX_TOKENIZER_BYTES, &text, &length, err);
    if (status) return status;
    if (text) {
        status = read_with_config(spec, folder, text, length, V, err);
        mem_free(text);
        return status;
    }
    status = vocab_merges_read(spec, folder, V, err);
    if (!status && !spec->owner) status = sentencepiece_folder_read(spec, folder, V, err);
    if (!status && !spec->owner) status = read_tekken(spec, folder, V, err);
    if (status || spec->owner) return status;
    return err_set(err, STATUS_BAD_FILE, "model",
                   "%s: expected one of tokenizer.json, vocab.json with merges.txt, "
                   "tokenizer.model and tekken.json, found none",
                   folder);
}
