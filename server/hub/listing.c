/* The files of a repository, as the hub states them and as a snapshot has them. */
#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/hub/internal.h"

#define MAX_FILES (1 << 17)
#define MAX_DEPTH 4 /* of folders in a snapshot */

static void add_file(struct hub_listing *listing, const struct hub_file *file) {
    assert(listing->n >= 0 && listing->n < MAX_FILES && file->path);
    if ((listing->n & (listing->n - 1)) == 0) {
        size_t room = listing->n > 0 ? 2 * (size_t)listing->n : 1;
        listing->file = mem_realloc(listing->file, room * sizeof *listing->file);
    }
    listing->file[listing->n++] = *file;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

static void sort_files(struct hub_listing *listing) {
    if (listing->n > 1) qsort(listing->file, (size_t)listing->n, sizeof *listing->file, by_path);
}

int hub_listing_find(const struct hub_listing *listing, const char *path) {
    const struct hub_file key = {.path = (char *)path};
    const struct hub_file *found = NULL;
    if (listing->n > 0)
        found = bsearch(&key, listing->file, (size_t)listing->n, sizeof key, by_path);
    return found ? (int)(found - listing->file) : -1;
}

void hub_listing_free(struct hub_listing *listing) {
    for (int i = 0; i < listing->n; i++) mem_free(listing->file[i].path);
    mem_free(listing->file);
    *listing = (struct hub_listing){0};
}

/* ---- the hub's answer ----------------------------------------------------------------------- */

/* Copies a hash if it has this many digits. */
static void take_hash(struct hub_file *file, const struct json *hash, size_t digits) {
    assert(digits < sizeof file->hash);
    if (json_length(hash) == digits && hub_is_hex(json_text(hash), digits))
        snprintf(file->hash, sizeof file->hash, "%s", json_text(hash));
}

/* Large files have the SHA-256 and size of their bytes in `lfs`; git's hash is that of a pointer.
 */
static enum status read_file_entry(struct hub_listing *listing, const struct json *entry,
                                   struct err *err) {
    const struct json *path = json_member(entry, "rfilename"), *lfs = json_member(entry, "lfs");
    bool is_large = json_is(lfs, JSON_OBJECT);
    const struct json *size = json_member(is_large ? lfs : entry, "size");
    struct hub_file file = {.bytes = json_is_integer(size) ? json_integer(size) : -1};
    if (strlen(json_text(path)) != json_length(path) || !hub_path_is_safe(json_text(path)))
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the hub lists a file whose name is no path inside the model: \"%.200s\"",
                       json_text(path));
    if (file.bytes < 0) file.bytes = -1;
    if (is_large)
        take_hash(&file, json_member(lfs, "sha256"), SHA256_DIGITS);
    else
        take_hash(&file, json_member(entry, "blobId"), SHA1_DIGITS);
    file.path = mem_strdup(json_text(path));
    add_file(listing, &file);
    return STATUS_OK;
}

static enum status read_answer(struct hub_listing *listing, const struct json *root,
                               struct err *err) {
    const struct json *commit = json_member(root, "sha"), *files = json_member(root, "siblings");
    enum status status = STATUS_OK;
    if (!json_is(commit, JSON_STRING) || !hub_is_hex(json_text(commit), COMMIT_DIGITS) ||
        json_length(commit) != COMMIT_DIGITS || !json_is(files, JSON_ARRAY))
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the hub's answer lacks the commit or the files of the model; is "
                       "HF_ENDPOINT a model hub?");
    if (json_count(files) > MAX_FILES)
        return err_set(err, STATUS_BAD_FILE, NULL, "the hub lists more than %d files", MAX_FILES);
    snprintf(listing->commit, sizeof listing->commit, "%s", json_text(commit));
    json_each(entry, files) {
        if (!status) status = read_file_entry(listing, entry, err);
    }
    sort_files(listing);
    for (int i = 1; i < listing->n && !status; i++)
        if (strcmp(listing->file[i - 1].path, listing->file[i].path) == 0)
            status = err_set(err, STATUS_BAD_FILE, NULL, "the hub lists the file \"%.200s\" twice",
                             listing->file[i].path);
    return status;
}

enum status hub_listing_parse(struct hub_listing *listing, const char *text, size_t length,
                              struct err *err) {
    struct json *root = NULL;
    *listing = (struct hub_listing){0};
    enum status status = json_parse_bounded(&root, "The hub's answer", text, length, 1 << 22, err);
    if (!status) status = read_answer(listing, root, err);
    if (status == STATUS_INVALID_REQUEST) status = STATUS_BAD_FILE; /* the hub's, not a client's */
    if (status && err) err->status = status;
    json_free(root);
    return status;
}

/* ---- a snapshot ----------------------------------------------------------------------------- */

static void scan(struct hub_listing *listing, const char *folder, const char *inner, int depth) {
    char *here = *inner ? path_in(folder, inner) : mem_strdup(folder);
    DIR *dir = opendir(here);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat info;
        if (!hub_path_is_safe(entry->d_name) || listing->n >= MAX_FILES) continue;
        char *path = *inner ? path_in(inner, entry->d_name) : mem_strdup(entry->d_name);
        if (fstatat(dirfd(dir), entry->d_name, &info, 0) != 0) {
            mem_free(path);
        } else if (S_ISREG(info.st_mode)) {
            add_file(listing, &(struct hub_file){.path = path, .bytes = info.st_size});
        } else {
            if (S_ISDIR(info.st_mode) && depth < MAX_DEPTH) scan(listing, folder, path, depth + 1);
            mem_free(path);
        }
    }
    if (dir) closedir(dir);
    mem_free(here);
}

void hub_listing_scan(struct hub_listing *listing, const char *folder) {
    *listing = (struct hub_listing){0};
    scan(listing, folder, "", 0);
    sort_files(listing);
}
