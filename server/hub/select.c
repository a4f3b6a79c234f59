/* Chooses the files of a model among the files of its repository. The same rules serve the hub's
 * listing before a pull and a snapshot's folder afterwards. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/hub/internal.h"

#define USUAL_TAG "Q4_K_M"
#define MAX_PARTS 99999
#define MAX_SHOWN 300 /* bytes of names in an error */

/* ---- .gguf files ---------------------------------------------------------------------------- */

size_t hub_gguf_stem(const char *path, int *part, int *parts) {
    enum { ENDING = 5, NUMBERS = 15 }; /* ".gguf", "-00001-of-00002" */
    size_t n = strlen(path);
    *part = *parts = 1;
    if (!hub_ends_in(path, ".gguf")) return n;
    n -= ENDING;
    if (n <= NUMBERS) return n;
    const char *at = path + n - NUMBERS;
    int end = 0, number, count;
    if (sscanf(at, "-%5d-of-%5d%n", &number, &count, &end) != 2 || end != NUMBERS) return n;
    if (!is_digit(at[1]) || !is_digit(at[10]) || number < 1 || count < number) return n;
    *part = number;
    *parts = count;
    return n - NUMBERS;
}

bool hub_is_model_file(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return hub_ends_in(path, ".gguf") && !strcasestr(name, "mmproj") &&
           !strcasestr(name, "imatrix");
}

/* Does the path have the tag as a word of its own? "Q4_K" is no word of "Q4_K_M". */
static bool has_tag(const char *path, const char *tag) {
    size_t n = strlen(tag);
    for (const char *at = path; (at = strcasestr(at, tag)); at++) {
        bool begins = at == path || !isalnum((unsigned char)at[-1]);
        if (begins && !isalnum((unsigned char)at[n]) && at[n] != '_') return true;
    }
    return false;
}

/* Returns the first model with this tag, or the first one if the tag is NULL; -1: none. */
static int find_gguf(const struct hub_listing *listing, const char *tag) {
    for (int i = 0; i < listing->n; i++) {
        int part, parts;
        if (!hub_is_model_file(listing->file[i].path)) continue;
        hub_gguf_stem(listing->file[i].path, &part, &parts);
        if (part == 1 && (!tag || has_tag(listing->file[i].path, tag))) return i;
    }
    return -1;
}

/* Needs a file and, if it is a part, all its parts. */
static enum status take_gguf(struct hub_choice *choice, const struct hub_listing *listing, int file,
                             struct err *err) {
    assert(file >= 0 && file < listing->n);
    int part, parts;
    const char *path = listing->file[file].path;
    size_t stem = hub_gguf_stem(path, &part, &parts);
    choice->first = file;
    choice->needs[file] = true;
    if (parts == 1) return STATUS_OK;
    struct buf name = {0};
    enum status status = STATUS_OK;
    for (int i = 1; i <= parts && !status; i++) {
        buf_clear(&name);
        buf_printf(&name, "%.*s-%05d-of-%05d%s", (int)stem, path, i, parts,
                   path + strlen(path) - 5);
        int found = hub_listing_find(listing, name.data);
        if (found < 0)
            status = err_set(err, STATUS_NOT_FOUND, "model",
                             "the model lacks its part %d of %d, %.200s", i, parts, name.data);
        else
            choice->needs[found] = true;
        if (i == 1 && found >= 0) choice->first = found;
    }
    buf_free(&name);
    return status;
}

/* ---- folders -------------------------------------------------------------------------------- */

static const char *const folder_files[] = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model",
    "tekken.json", "chat_template.jinja", "chat_template.json",
    /* of sentence-transformers */
    "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"};

static bool take(struct hub_choice *choice, const struct hub_listing *listing, const char *path) {
    int found = hub_listing_find(listing, path);
    if (found >= 0) choice->needs[found] = true;
    return found >= 0;
}

/* Needs the files of sentence-transformers' steps: 1_Pooling/config.json and the like. */
static void take_steps(struct hub_choice *choice, const struct hub_listing *listing) {
    if (hub_listing_find(listing, "modules.json") < 0) return;
    for (int i = 0; i < listing->n; i++) {
        const char *path = listing->file[i].path, *slash = strchr(path, '/');
        if (!slash || !is_digit(path[0])) continue;
        if (strcmp(slash, "/config.json") == 0 || strcmp(slash, "/model.safetensors") == 0)
            choice->needs[i] = true;
    }
}

/* Needs the files that the index names. Returns false if one is missing. */
static bool take_indexed(struct hub_choice *choice, const struct hub_listing *listing,
                         const struct json *index) {
    const struct json *map = json_member(index, "weight_map");
    json_each(entry, map) {
        const char *name = json_text(entry);
        if (strchr(name, '/') || !hub_ends_in(name, ".safetensors")) return false;
        if (!take(choice, listing, name)) return false;
    }
    return json_count(map) > 0;
}

/* Needs model-00001-of-N.safetensors and so on. Returns false if one is missing. */
static bool take_numbered(struct hub_choice *choice, const struct hub_listing *listing) {
    for (int i = 0; i < listing->n; i++) {
        int parts, end = 0;
        const char *path = listing->file[i].path;
        char name[64];
        if (sscanf(path, "model-00001-of-%5d.safetensors%n", &parts, &end) != 1) continue;
        if (end == 0 || path[end] || parts < 1) continue;
        bool whole = true;
        for (int part = 1; part <= parts && whole; part++) {
            snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", part, parts);
            whole = take(choice, listing, name);
        }
        return whole;
    }
    return false;
}

/* Is the repository a model as a folder? */
static bool is_folder(const struct hub_listing *listing) {
    bool has_weights = false;
    for (int i = 0; i < listing->n && !has_weights; i++)
        has_weights = hub_ends_in(listing->file[i].path, ".safetensors") &&
                      !strchr(listing->file[i].path, '/');
    return has_weights && hub_listing_find(listing, "config.json") >= 0;
}

static enum status take_folder(struct hub_choice *choice, const struct hub_listing *listing,
                               const struct json *index, struct err *err) {
    bool whole = true;
    choice->is_folder = true;
    choice->first = hub_listing_find(listing, "config.json");
    for (size_t i = 0; i < sizeof folder_files / sizeof *folder_files; i++)
        take(choice, listing, folder_files[i]);
    take_steps(choice, listing);
    if (take(choice, listing, "model.safetensors"))
        whole = true;
    else if (take(choice, listing, HUB_INDEX) && !index)
        choice->wants_index = true;
    else
        whole = index ? take_indexed(choice, listing, index) : take_numbered(choice, listing);
    return whole ? STATUS_OK
                 : err_set(err, STATUS_NOT_FOUND, "model",
                           "the model's folder lacks some of its .safetensors files");
}

/* ---- the choice ----------------------------------------------------------------------------- */

static enum status nothing_found(const struct hub_listing *listing, const struct hub_name *name,
                                 struct err *err) {
    struct buf has = {0};
    for (int i = 0; i < listing->n && has.length < MAX_SHOWN; i++) {
        int part, parts;
        if (!hub_is_model_file(listing->file[i].path)) continue;
        hub_gguf_stem(listing->file[i].path, &part, &parts);
        if (part == 1)
            buf_printf(&has, "%s%.100s", has.length > 0 ? ", " : "", listing->file[i].path);
    }
    struct buf asked = {0};
    hub_name_write(name, &asked);
    enum status status = err_set(
        err, STATUS_NOT_FOUND, "model", "%s is not among the files of the repository; %s%s",
        asked.data,
        has.length > 0       ? "it has "
        : is_folder(listing) ? "it is a folder of safetensors, named without tag and file"
                             : "it has neither a .gguf file nor config.json with safetensors",
        has.length > 0 ? has.data : "");
    buf_free(&asked);
    buf_free(&has);
    return status;
}

enum status hub_select(struct hub_choice *choice, const struct hub_listing *listing,
                       const struct hub_name *name, const struct json *index, struct err *err) {
    int file = -1;
    *choice = (struct hub_choice){.first = -1};
    choice->needs = mem_calloc((size_t)listing->n + 1, sizeof *choice->needs);
    if (*name->file)
        file = hub_listing_find(listing, name->file);
    else
        file = find_gguf(listing, *name->tag ? name->tag : USUAL_TAG);
    if (file < 0 && !*name->file && !*name->tag) {
        if (is_folder(listing)) return take_folder(choice, listing, index, err);
        file = find_gguf(listing, NULL);
    }
    if (file < 0) return nothing_found(listing, name, err);
    return take_gguf(choice, listing, file, err);
}
