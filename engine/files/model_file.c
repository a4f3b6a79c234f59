#include "engine/files/model_file.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum status model_file_open(struct model_file *out, const char *path, enum model_use use,
                            struct err *err) {
    *out = (struct model_file){.path = path, .stamp = model_file_stamp(path)};
    if (is_folder(path)) {
        enum status status = hf_config_open_folder(&out->hf, path, err);
        if (!status) status = hf_eagle_refuse(out->hf, err);
        if (!status && use == MODEL_WHOLE) status = hf_weights_open(out->hf, err);
        out->has_stand_in = use == MODEL_SHAPE;
        if (status) model_file_close(out);
        return status;
    }
    const char *dot = strrchr(path, '.');
    if (!dot || strcmp(dot, ".json") != 0) return gguf_open(&out->gguf, path, err);
    if (use == MODEL_SHAPE) return hf_config_open(&out->hf, path, err);
    return err_set(err, STATUS_USAGE, "model",
                   "%s has a model's shape, but no weights: give a .gguf file or the folder, or "
                   "{load-format} dummy for random ones",
                   path);
}

void model_file_close(struct model_file *file) {
    gguf_close(file->gguf);
    hf_config_close(file->hf);
    hf_config_close(file->eagle);
    *file = (struct model_file){0};
}

enum status model_file_guess(struct model_file *file, const struct engine_config *config,
                             struct err *err) {
    assert(!file->eagle && (config->guesses_ahead || !config->eagle));
    file->guesses_ahead = config->guesses_ahead;
    file->eagle_path = config->eagle;
    if (!config->eagle) return STATUS_OK;
    if (!is_folder(config->eagle))
        return err_set(err, STATUS_USAGE, "speculative-config",
                       "{speculative-config}: an EAGLE-3 head is a folder with config.json and "
                       "model.safetensors, and %s is no folder",
                       config->eagle);
    return hf_eagle_open(&file->eagle, config->eagle, err);
}

enum status model_file_check(const struct model_file *file, struct err *err) {
    assert(!file->gguf != !file->hf);
    enum status status = file->eagle ? hf_weights_check(file->eagle, err) : STATUS_OK;
    if (status) return status;
    return file->gguf ? gguf_check(file->gguf, err) : hf_weights_check(file->hf, err);
}

enum status model_file_blame(const struct model_file *file, enum status status, struct err *err) {
    bool is_to_blame = status == STATUS_BAD_FILE && err && file->gguf && file->path;
    if (!is_to_blame || strncmp(err->message, file->path, strlen(file->path)) == 0) return status;
    return blame_file(err, status, file->path);
}

/* ---- stamps of files ------------------------------------------------------------------------ */

/* Returns the stamp of one file; 0 if it is not a regular file. */
static uint64_t stamp_of(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return 0;
    const uint64_t parts[] = {(uint64_t)info.st_dev,          (uint64_t)info.st_ino,
                              (uint64_t)info.st_size,         (uint64_t)info.st_mtim.tv_sec,
                              (uint64_t)info.st_mtim.tv_nsec, name_hash(path, strlen(path))};
    return name_hash((const char *)parts, sizeof parts);
}

static bool ends_with(const char *name, const char *end) {
    size_t length = strlen(name), n = strlen(end);
    return length > n && strcmp(name + length - n, end) == 0;
}

/* A folder lists its names in any order, so the stamps are added. */
static uint64_t stamp_folder(DIR *folder, const char *path) {
    uint64_t sum = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (!ends_with(entry->d_name, ".json") && !ends_with(entry->d_name, ".safetensors"))
            continue;
        char *name = path_in(path, entry->d_name);
        sum += stamp_of(name);
        mem_free(name);
    }
    closedir(folder);
    return sum;
}

uint64_t model_file_stamp(const char *path) {
    DIR *folder = opendir(path);
    if (folder) return stamp_folder(folder, path);
    uint64_t sum = stamp_of(path);
    char *part;
    for (int i = 2; (part = gguf_part_path(path, i)); i++) {
        sum += stamp_of(part);
        mem_free(part);
    }
    return sum;
}

/* ---- contents ------------------------------------------------------------------------------- */

const struct weights *model_file_weights(const struct model_file *file) {
    assert(!file->gguf != !file->hf);
    return file->gguf ? &file->gguf->weights : &file->hf->weights;
}

const struct weights *model_file_eagle(const struct model_file *file) {
    return file->eagle ? &file->eagle->weights : NULL;
}

enum status model_file_architecture(char name[MAX_ARCHITECTURE], const struct model_file *file,
                                    struct err *err) {
    const char *text = NULL;
    size_t length = 0;
    enum status status = STATUS_OK;
    if (file->gguf)
        status = gguf_string(file->gguf, "general.architecture", &text, &length, err);
    else
        text = hf_config_architecture(file->hf, &length);
    if (status) return status;
    if (length == 0)
        return err_set(err, STATUS_BAD_FILE, file->gguf ? "general.architecture" : "architectures",
                       "key %s: expected %s, found nothing",
                       file->gguf ? "general.architecture" : "architectures",
                       file->gguf ? "a name" : "an array with the name of one");
    bool is_shown = length < MAX_ARCHITECTURE && is_printable(text, length);
    snprintf(name, MAX_ARCHITECTURE, "%.*s", is_shown ? (int)length : 0, text);
    return STATUS_OK;
}

enum status model_file_config(struct model_config *config, struct model_file *file,
                              struct err *err) {
    if (!file->gguf) return hf_config_read(config, file->hf, err);
    enum status status = gguf_config_read(config, file->gguf, file->path, err);
    if (!status) status = gguf_delta_read(config, file->gguf, err);
    if (!status) status = gguf_space_read(config, file->gguf, err);
    return status ? status : gguf_encoder_read(config, file->gguf, err);
}

enum status model_file_sampling(struct sampling_defaults *out, const struct model_file *file, int V,
                                struct err *err) {
    if (file->gguf) return model_file_blame(file, gguf_sampling_read(out, file->gguf, V, err), err);
    assert(file->hf);
    *out = file->hf->defaults;
    return STATUS_OK;
}

/* ---- text ----------------------------------------------------------------------------------- */

enum status tokenizer_spec_read(struct tokenizer_spec *spec, const struct model_file *file,
                                struct err *err) {
    if (file->gguf) return gguf_tokenizer_read(spec, file->gguf, err);
    if (!file->hf->folder || file->has_stand_in) return hf_stand_in_vocabulary(spec, file->hf, err);
    return hf_tokenizer_read(spec, file->hf->folder, file->hf->V, err);
}

void tokenizer_spec_free(struct tokenizer_spec *spec) {
    mem_free((void *)spec->pre);
    mem_free((void *)spec->token);
    mem_free((void *)spec->token_length);
    mem_free((void *)spec->type);
    mem_free((void *)spec->score);
    mem_free((void *)spec->merge);
    mem_free((void *)spec->merge_length);
    mem_free((void *)spec->merge_right);
    mem_free((void *)spec->added);
    mem_free((void *)spec->normalizers);
    mem_free((void *)spec->pre_tokenizers);
    mem_free((void *)spec->decoders);
    if (spec->release) spec->release(spec->owner);
    *spec = (struct tokenizer_spec){0};
}

/* Copies the text of a key, for the caller to free; NULL if the key is missing. */
static enum status copy_text(const struct gguf *gguf, const char *key, char **out, size_t *length,
                             struct err *err) {
    const char *text = NULL;
    enum status status = gguf_string_or(gguf, key, &text, length, err);
    if (status || !text) return status;
    *out = mem_alloc(*length + 1);
    memcpy(*out, text, *length);
    (*out)[*length] = 0;
    return STATUS_OK;
}

enum status chat_templates_read(struct folder_templates *out, const struct model_file *file,
                                const char *given, struct err *err) {
    *out = (struct folder_templates){0};
    if (given) return template_file_read(out, given, err);
    if (!file->gguf) {
        bool has_folder = file->hf->folder && !file->has_stand_in;
        return has_folder ? folder_templates_read(out, file->hf->folder, err) : STATUS_OK;
    }
    enum status status =
        copy_text(file->gguf, "tokenizer.chat_template", &out->text, &out->length, err);
    if (!status)
        status = copy_text(file->gguf, "tokenizer.chat_template.tool_use", &out->tools_text,
                           &out->tools_length, err);
    if (status) folder_templates_free(out);
    return status;
}

/* ---- the ends of a generation --------------------------------------------------------------- */

/* Spellings of an end in the families of models, and of tokens that tell what others mean. */
enum end_name { NAME_END, NAME_RETURN, NAME_CALL, NAME_CALLS, NAME_FLUSH, NAME_EOS, NAME_TAG };
static const char *const end_names[] = {
    [NAME_END] = "<|end|>",
    [NAME_RETURN] = "<|return|>",
    [NAME_CALL] = "<|call|>",
    [NAME_CALLS] = "<|calls|>",
    [NAME_FLUSH] = "<|flush|>",
    [NAME_EOS] = "<eos>",
    [NAME_TAG] = "</s>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<start_function_response>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_msg|>",
    "<end_of_utterance>",
    "[EOT]",
    "[EOS]",
    "<EOT>",
};
static const char *const end_keys[] = {
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};
enum {
    N_END_NAMES = sizeof end_names / sizeof *end_names,
    N_END_KEYS = sizeof end_keys / sizeof *end_keys
};
_Static_assert(N_END_NAMES + N_END_KEYS <= MAX_END_IDS, "the caller's array has room for all");
_Static_assert(MAX_FILE_END_IDS <= MAX_END_IDS, "and for a folder's");

static void add_once(int32_t *ids, int *n, int32_t id) {
    for (int i = 0; i < *n; i++) {
        if (ids[i] == id) return;
    }
    assert(*n < MAX_END_IDS);
    ids[(*n)++] = id;
}

static int32_t type_of(const struct tokenizer_spec *spec, int32_t id) {
    return spec->type ? spec->type[id] : TOKEN_NORMAL;
}

/* Finds the token of each name, the control token if several have the name; -1: there is none. */
static void find_names(int32_t found[N_END_NAMES], const struct tokenizer_spec *spec) {
    for (int i = 0; i < N_END_NAMES; i++) found[i] = -1;
    for (int32_t id = 0; id < spec->n_tokens; id++) {
        const char *token = spec->token[id];
        size_t length = spec->token_length[id];
        if (length < 4 || (*token != '<' && *token != '[')) continue;
        for (int i = 0; i < N_END_NAMES; i++) {
            if (length != strlen(end_names[i]) || memcmp(token, end_names[i], length) != 0)
                continue;
            if (found[i] < 0 || type_of(spec, found[i]) != TOKEN_CONTROL) found[i] = id;
        }
    }
}

static bool is_written(const struct folder_templates *templates, const char *name) {
    return (templates->text && strstr(templates->text, name)) ||
           (templates->tools_text && strstr(templates->tools_text, name));
}

/* In harmony and in Solar Open's format, <|end|> ends one message of several. */
static bool ends_messages(const int32_t found[N_END_NAMES]) {
    return (found[NAME_RETURN] >= 0 && found[NAME_CALL] >= 0) ||
           (found[NAME_CALLS] >= 0 && found[NAME_FLUSH] >= 0);
}

/* Is the named token an end? Gemma, whose end is <eos>, has HTML's tags as tokens; in other
 * vocabularies of bytes </s> may be a usual word. */
static bool name_ends(int name, const int32_t found[N_END_NAMES], const struct tokenizer_spec *spec,
                      const struct folder_templates *templates) {
    bool is_control = found[name] >= 0 && type_of(spec, found[name]) == TOKEN_CONTROL;
    if (found[name] < 0) return false;
    if (name == NAME_END && ends_messages(found)) return false;
    if (name == NAME_TAG) return is_control && found[NAME_EOS] < 0;
    return is_control || is_written(templates, end_names[name]);
}

static enum status add_keys(int32_t *ids, int *n, const struct gguf *gguf,
                            const struct tokenizer_spec *spec, int32_t left_out, struct err *err) {
    for (int i = 0; i < N_END_KEYS; i++) {
        int64_t id = -1;
        enum status status = gguf_int_or(gguf, end_keys[i], 0, spec->n_tokens - 1, -1, &id, err);
        if (status) return status;
        if (id >= 0 && id != left_out) add_once(ids, n, (int32_t)id);
    }
    return STATUS_OK;
}

enum status end_ids_read(int32_t *ids, int *n, const struct model_file *file,
                         const struct tokenizer_spec *spec,
                         const struct folder_templates *templates, struct err *err) {
    const struct hf_config *hf =
        file->hf && file->hf->folder && !file->has_stand_in ? file->hf : NULL;
    int32_t found[N_END_NAMES];
    *n = 0;
    for (int i = 0; hf && i < hf->n_end_ids; i++) add_once(ids, n, hf->end_ids[i]);
    if (*n > 0) return STATUS_OK; /* a folder's own list is complete */
    find_names(found, spec);
    int32_t left_out = ends_messages(found) ? found[NAME_END] : -1;
    enum status status = STATUS_OK;
    if (file->gguf) status = add_keys(ids, n, file->gguf, spec, left_out, err);
    if (hf && spec->eos >= 0) add_once(ids, n, spec->eos);
    for (int i = 0; i < N_END_NAMES && !status; i++)
        if (name_ends(i, found, spec, templates)) add_once(ids, n, found[i]);
    return status;
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Reads ORG/NAME from a path in the hub's cache: ".../models--ORG--NAME/snapshots/HASH". */
static bool name_of_cached(char out[MODEL_NAME_BYTES], const char *path) {
    static const char begin[] = "models--";
    const char *snapshot = strstr(path, "/snapshots/"), *name = snapshot;
    if (!snapshot || strchr(snapshot + strlen("/snapshots/"), '/')) return false;
    while (name > path && name[-1] != '/') name--;
    if (strncmp(name, begin, strlen(begin)) != 0) return false;
    name += strlen(begin);
    size_t length = (size_t)(snapshot - name), n = 0;
    for (size_t i = 0; i < length && n < MODEL_NAME_BYTES - 1; i++) {
        bool ends_part = strncmp(name + i, "--", 2) == 0;
        out[n++] = ends_part ? '/' : name[i];
        if (ends_part) i++;
    }
    out[n] = 0;
    return n > 0;
}

/* Resolves the path of a folder first, so "." gets the folder's name. */
void model_path_name(char out[MODEL_NAME_BYTES], const char *path) {
    char *whole = is_folder(path) ? realpath(path, NULL) : NULL;
    const char *text = whole ? whole : path, *slash = strrchr(text, '/');
    const char *name = slash && slash[1] ? slash + 1 : text;
    size_t length = strlen(name);
    char *part = gguf_part_path(text, 1);
    if (!whole && length > 5 && strcasecmp(name + length - 5, ".gguf") == 0) length -= 5;
    if (!whole && part) length -= strlen("-00001-of-00003");
    if (!whole || !name_of_cached(out, text))
        snprintf(out, MODEL_NAME_BYTES, "%.*s", utf8_cut(name, length, MODEL_NAME_BYTES - 1), name);
    mem_free(part);
    mem_free(whole);
}
