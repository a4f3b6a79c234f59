/* Finds the files of a folder's weights and lists their tensors. */
#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"
#include "engine/files/model_file.h"
#include "engine/files/tensors/mapping.h"
#include "engine/files/tensors/safetensors.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define MAX_INDEX_BYTES ((size_t)32 << 20)
#define MAX_SHARDS 4096
#define MAX_FILE_NAME 255

/* A folder's files of weights, and its index: the number of the file that contains each tensor. */
struct shards {
    const char *path;   /* of the index, for messages; NULL: no index */
    struct json *index; /* NULL: no index */
    int n;
    const char **name; /* [n] in the index's order */
    char **file;       /* [n] paths */
    struct name_index numbers;
};

static void shards_free(struct shards *shards) {
    for (int i = 0; i < shards->n; i++) mem_free(shards->file[i]);
    mem_free((void *)shards->name);
    mem_free(shards->file);
    if (shards->numbers.entry) name_index_free(&shards->numbers);
    json_free(shards->index);
}

static void add_shard(struct shards *shards, const char *folder, const char *name) {
    size_t n = (size_t)shards->n++;
    shards->name = mem_realloc((void *)shards->name, (n + 1) * sizeof *shards->name);
    shards->file = mem_realloc(shards->file, (n + 1) * sizeof *shards->file);
    shards->name[n] = name;
    shards->file[n] = path_in(folder, name);
}

/* ---- the index ------------------------------------------------------------------------------ */

/* Is it the name of a file in the index's folder? No path leads out of the folder. */
static bool is_shard_name(const struct json *value) {
    static const char end[] = ".safetensors";
    size_t n = sizeof end - 1;
    if (!json_is(value, JSON_STRING) || value->length <= n || value->length > MAX_FILE_NAME)
        return false;
    for (size_t i = 0; i < value->length; i++)
        if (value->string[i] <= ' ' || value->string[i] > '~' || value->string[i] == '/')
            return false;
    return strcmp(value->string + value->length - n, end) == 0;
}

static enum status note_shard(struct shards *shards, const char *folder, const struct json *entry,
                              struct err *err) {
    if (!is_shard_name(entry))
        return err_set(
            err, STATUS_BAD_FILE, "weight_map",
            "key weight_map: tensor %.*s: expected the name of a .safetensors file in the "
            "same folder",
            utf8_cut(entry->name, strlen(entry->name), 100), entry->name);
    if (name_index_find(&shards->numbers, entry->string, entry->length) >= 0) return STATUS_OK;
    if (shards->n == MAX_SHARDS)
        return err_set(err, STATUS_BAD_FILE, "weight_map",
                       "key weight_map names more than %d files", MAX_SHARDS);
    name_index_add(&shards->numbers, entry->string, entry->length, shards->n);
    add_shard(shards, folder, entry->string);
    return STATUS_OK;
}

static enum status read_index(struct shards *shards, const char *folder, struct err *err) {
    enum status status = hf_file_read(&shards->index, shards->path, MAX_INDEX_BYTES, err);
    if (status) return status;
    const struct json *map = key_value(shards->index, "weight_map");
    assert(!shards->numbers.entry && shards->n == 0);
    name_index_init(&shards->numbers, MAX_SHARDS);
    if (!json_is(map, JSON_OBJECT) || map->n_children == 0)
        status = err_set(err, STATUS_BAD_FILE, "weight_map",
                         "key weight_map: expected an object that gives each tensor's file");
    json_each(entry, map) {
        if (!status) status = note_shard(shards, folder, entry, err);
    }
    return status ? blame_file(err, status, shards->path) : STATUS_OK;
}

/* ---- files without an index ----------------------------------------------------------------- */

#define NUMBERED "model-%05d-of-%05d.safetensors"

/* Returns the number of parts that the name of the first part states; 0: the folder lacks it. */
static int count_parts(const char *folder) {
    DIR *dir = opendir(folder);
    int n = 0;
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        char whole[64];
        int last;
        if (sscanf(entry->d_name, "model-00001-of-%5d.safetensors", &last) != 1) continue;
        if (last < 1 || last > MAX_SHARDS) continue;
        snprintf(whole, sizeof whole, NUMBERED, 1, last);
        if (strcmp(whole, entry->d_name) == 0 && last > n) n = last;
    }
    if (dir) closedir(dir);
    return n;
}

static void add_parts(struct shards *shards, const char *folder, int n) {
    char name[64];
    for (int i = 1; i <= n; i++) {
        snprintf(name, sizeof name, NUMBERED, i, n);
        add_shard(shards, folder, name);
        shards->name[i - 1] = NULL; /* only an index needs it */
    }
}

/* ---- the files ------------------------------------------------------------------------------ */

/* Writes the name of some .safetensors file of the folder, the first in the order of bytes. */
static void find_other(const char *folder, char out[MAX_FILE_NAME + 1]) {
    static const char end[] = ".safetensors";
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name), n = sizeof end - 1;
        bool is_one = length > n && strcmp(entry->d_name + length - n, end) == 0 &&
                      is_printable(entry->d_name, length);
        if (is_one && (!out[0] || strcmp(entry->d_name, out) < 0))
            snprintf(out, MAX_FILE_NAME + 1, "%s", entry->d_name);
    }
    if (dir) closedir(dir);
}

static enum status refuse_folder(const char *folder, struct err *err) {
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "consolidated.safetensors", "adapter_model.safetensors",
                                         "tf_model.h5"};
    char found[MAX_FILE_NAME + 128] = "", other[MAX_FILE_NAME + 1] = "";
    for (size_t i = 0; i < sizeof others / sizeof *others && !found[0]; i++)
        if (is_in_folder(folder, others[i]))
            snprintf(found, sizeof found, "; %s is not read%s", others[i],
                     strncmp(others[i], "pytorch", 7) == 0
                         ? ": convert it, with save_file of safetensors.torch"
                         : "");
    if (!found[0]) find_other(folder, other);
    if (other[0])
        snprintf(found, sizeof found, "; if %s has all weights, rename it to " SINGLE, other);
    return err_set(err, STATUS_BAD_FILE, "model", "%s lacks weights: %s or %s was expected%s",
                   folder, SINGLE, INDEX, found);
}

static enum status open_shards(struct hf_config *hf, const struct shards *shards, int *n_tensors,
                               struct err *err) {
    enum status status = STATUS_OK;
    assert(shards->n > 0 && !hf->shard && hf->n_shards == 0);
    hf->shard = mem_calloc((size_t)shards->n, sizeof *hf->shard);
    while (hf->n_shards < shards->n && !status) {
        struct safetensors *shard = &hf->shard[hf->n_shards];
        status = safetensors_open(shard, shards->file[hf->n_shards++], err);
        hf->file_bytes += (int64_t)shard->size;
        *n_tensors += shard->n_tensors;
    }
    return status;
}

/* Is each tensor of the index in its file? */
static enum status check_index(const struct shards *shards, const struct weights *weights,
                               const int *first, struct err *err) {
    int n = 0;
    json_each(entry, key_value(shards->index, "weight_map")) {
        if (safetensors_is_computed(entry->name)) continue;
        int shard = name_index_find(&shards->numbers, entry->string, entry->length);
        int number = name_index_find(&weights->index, entry->name, strlen(entry->name));
        if (number < first[shard] || number >= first[shard + 1])
            return err_set(
                err, STATUS_BAD_FILE, "weight_map",
                "key weight_map: tensor %.127s is not in %s, although the key names this file",
                entry->name, shards->name[shard]);
        n++;
    }
    if (n == weights->n) return STATUS_OK;
    if (n > weights->n)
        return err_set(err, STATUS_BAD_FILE, "weight_map",
                       "key weight_map: %d tensors are named twice", n - weights->n);
    return err_set(err, STATUS_BAD_FILE, "weight_map",
                   "key weight_map names %d tensors, but its files have %d", n, weights->n);
}

static enum status list_shards(struct hf_config *hf, const struct shards *shards, int n_tensors,
                               struct err *err) {
    enum status status = STATUS_OK;
    int *first = mem_calloc((size_t)shards->n + 1, sizeof *first);
    int n_computed = 0;
    assert(hf->n_shards == shards->n && !hf->weights.tensor);
    weights_init(&hf->weights, (size_t)n_tensors);
    for (int i = 0; i < shards->n && !status; i++) {
        const bool has_numbers = hf->packing.method != PACKING_NONE || hf->lists_ids;
        status = safetensors_list(&hf->shard[i], &hf->weights, has_numbers, err);
        if (status) blame_file(err, status, shards->file[i]);
        first[i + 1] = hf->weights.n;
        n_computed += hf->shard[i].n_computed;
    }
    if (!status && n_computed > 0)
        log_line(LOG_INFO,
                 "%d tensors are masks or frequencies of positions, which the engine computes from "
                 "config.json, and are not read",
                 n_computed);
    if (!status && shards->index) {
        status = check_index(shards, &hf->weights, first, err);
        if (status) blame_file(err, status, shards->path);
    }
    mem_free(first);
    return status;
}

enum status hf_weights_open(struct hf_config *hf, struct err *err) {
    struct shards shards = {0};
    char *index = path_in(hf->folder, INDEX);
    int n_tensors = 0;
    enum status status = hf_packing_read(hf, err);
    if (status) {
        /* without the method, the tensors would be misread */
    } else if (is_in_folder(hf->folder, SINGLE)) {
        add_shard(&shards, hf->folder, SINGLE);
    } else if (is_in_folder(hf->folder, INDEX)) {
        shards.path = index;
        status = read_index(&shards, hf->folder, err);
    } else if (count_parts(hf->folder) > 0) {
        add_parts(&shards, hf->folder, count_parts(hf->folder));
    } else {
        status = refuse_folder(hf->folder, err);
    }
    if (!status) status = open_shards(hf, &shards, &n_tensors, err);
    if (!status) status = list_shards(hf, &shards, n_tensors, err);
    if (!status) {
        status = hf_packing_join(hf, err);
        if (status) blame_file(err, status, hf->folder);
    }
    shards_free(&shards);
    mem_free(index);
    return status;
}

enum status hf_weights_check(const struct hf_config *hf, struct err *err) {
    enum status status = STATUS_OK;
    for (int i = 0; i < hf->n_shards && !status; i++)
        status = mapping_check(&hf->shard[i].file, err);
    return status;
}
