/* Shows and deletes the models in the cache. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/hub/internal.h"

#define PREFIX "models--"

/* ---- list ----------------------------------------------------------------------------------- */

/* A walk over the models of one repository. */
struct removal {
    void (*each)(void *arg, const struct hub_model *model);
    void *arg;
    const char *snapshot, *repo;
    const struct hub_listing *listing;
};

static int64_t changed_s(const char *snapshot, const char *file) {
    struct stat info;
    char *path = path_in(snapshot, file);
    bool is_there = stat(path, &info) == 0;
    mem_free(path);
    return is_there ? (int64_t)info.st_mtime : 0;
}

/* Shows the model that a name means. */
static void show(const struct removal *walk, const struct hub_name *name) {
    const struct hub_listing *listing = walk->listing;
    struct json *index = hub_read_index(walk->snapshot);
    struct buf text = {0}, path = {0};
    struct hub_choice choice;
    struct err err;
    enum status status = hub_select(&choice, listing, name, index, &err);
    hub_name_write(name, &text);
    struct hub_model model = {.name = text.data, .whole = !status};
    if (choice.is_folder) model.whole = hub_find_in(walk->snapshot, name, &path);
    for (int i = 0; i < listing->n; i++) {
        if (!choice.needs[i]) continue;
        model.bytes += listing->file[i].bytes;
        model.changed_s =
            max_int64(model.changed_s, changed_s(walk->snapshot, listing->file[i].path));
    }
    walk->each(walk->arg, &model);
    mem_free(choice.needs);
    json_free(index);
    buf_free(&text);
    buf_free(&path);
}

/* Shows each .gguf file, and the folder if the repository is one. */
static void show_all(const struct removal *walk) {
    struct hub_name name = {0};
    bool has_weights = false;
    snprintf(name.repo, sizeof name.repo, "%.96s", walk->repo);
    for (int i = 0; i < walk->listing->n; i++) {
        int part, parts;
        const char *path = walk->listing->file[i].path;
        has_weights |= hub_ends_in(path, ".safetensors") && !strchr(path, '/');
        if (!hub_is_model_file(path) || strlen(path) >= sizeof name.file) continue;
        hub_gguf_stem(path, &part, &parts);
        snprintf(name.file, sizeof name.file, "%s", path);
        if (part == 1) show(walk, &name);
    }
    name.file[0] = 0;
    if (has_weights && hub_listing_find(walk->listing, "config.json") >= 0) show(walk, &name);
}

/* Shows a repository without a snapshot that holds a part of a file. */
static void show_incomplete(const struct removal *walk, const char *repo_folder) {
    struct hub_listing blobs;
    struct hub_model model = {.name = walk->repo};
    char *folder = path_in(repo_folder, "blobs");
    hub_listing_scan(&blobs, folder);
    for (int i = 0; i < blobs.n; i++) {
        model.bytes += blobs.file[i].bytes;
        model.changed_s = max_int64(model.changed_s, changed_s(folder, blobs.file[i].path));
    }
    if (blobs.n > 0) walk->each(walk->arg, &model);
    hub_listing_free(&blobs);
    mem_free(folder);
}

/* Writes org/repo of a folder models--org--repo. Returns false for other folders. */
static bool repo_of(const char *folder, char *repo, size_t size) {
    if (strncmp(folder, PREFIX, strlen(PREFIX)) != 0) return false;
    const char *owner = folder + strlen(PREFIX), *split = strstr(owner, "--");
    struct hub_name name;
    struct err err;
    if (!split || strlen(owner) >= size) return false;
    snprintf(repo, size, "%.*s/%s", (int)(split - owner), owner, split + 2);
    return hub_name_parse(&name, repo, &err) == STATUS_OK && strcmp(name.repo, repo) == 0;
}

void hub_list(const struct hub_settings *settings,
              void (*each)(void *arg, const struct hub_model *model), void *arg) {
    struct dirent **entries;
    int n = scandir(settings->cache, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char repo[256];
        if (repo_of(entries[i]->d_name, repo, sizeof repo)) {
            struct hub_listing listing = {0};
            char *folder = hub_repo_folder(settings, repo), *snapshot = hub_snapshot(folder);
            const struct removal walk = {each, arg, snapshot, repo, &listing};
            if (snapshot) hub_listing_scan(&listing, snapshot);
            if (listing.n > 0)
                show_all(&walk);
            else
                show_incomplete(&walk, folder);
            hub_listing_free(&listing);
            mem_free(snapshot);
            mem_free(folder);
        }
        mem_free(entries[i]);
    }
    if (n >= 0) mem_free(entries);
}

/* ---- remove --------------------------------------------------------------------------------- */

/* Deletes a file, or a folder with all in it, and adds up the bytes of files. Keeps the first
 * error. */
static void delete_tree(const char *path, int64_t *bytes, int *cause) {
    struct stat info;
    if (lstat(path, &info) != 0) return;
    if (S_ISDIR(info.st_mode)) {
        struct dirent **entries;
        int n = scandir(path, &entries, NULL, NULL);
        for (int i = 0; i < n; i++) {
            const char *name = entries[i]->d_name;
            char *inner = path_in(path, name);
            if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) delete_tree(inner, bytes, cause);
            mem_free(inner);
            mem_free(entries[i]);
        }
        if (n >= 0) mem_free(entries);
        if (rmdir(path) != 0 && !*cause) *cause = errno;
    } else if (unlink(path) == 0) {
        if (S_ISREG(info.st_mode)) *bytes += info.st_size;
    } else if (!*cause) {
        *cause = errno;
    }
}

/* Deletes a repository and its locks. */
static void delete_repo(const struct hub_settings *settings, const char *folder, int64_t *bytes,
                        int *cause) {
    struct buf locks = {0};
    buf_printf(&locks, "%s/.locks%s", settings->cache, strrchr(folder, '/'));
    delete_tree(folder, bytes, cause);
    delete_tree(locks.data, bytes, cause);
    buf_free(&locks);
}

/* Appends the blob of a link, "../../blobs/HASH", as a path; false: it is none. */
static bool blob_of(const char *repo_folder, const char *link, struct buf *out) {
    char target[512];
    ssize_t n = readlink(link, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    const char *name = strrchr(target, '/');
    if (!name || !strstr(target, "../blobs/") || !hub_path_is_safe(name + 1)) return false;
    buf_clear(out);
    buf_printf(out, "%s/blobs%s", repo_folder, name);
    return true;
}

/* Does a link of some snapshot lead to the blob? */
static bool is_linked(const char *repo_folder, const char *blob) {
    struct hub_listing files;
    struct buf link = {0}, found = {0};
    bool linked = false;
    char *snapshots = path_in(repo_folder, "snapshots");
    hub_listing_scan(&files, snapshots);
    for (int i = 0; i < files.n && !linked; i++) {
        buf_clear(&link);
        buf_printf(&link, "%s/%s", snapshots, files.file[i].path);
        linked = blob_of(repo_folder, link.data, &found) && strcmp(found.data, blob) == 0;
    }
    hub_listing_free(&files);
    buf_free(&link);
    buf_free(&found);
    mem_free(snapshots);
    return linked;
}

/* Deletes the links of a model, and each blob that no other link needs. */
static void delete_files(const char *repo_folder, const char *snapshot,
                         const struct hub_listing *listing, const struct hub_choice *choice,
                         int64_t *bytes, int *cause) {
    struct buf blob = {0};
    for (int i = 0; i < listing->n; i++) {
        if (!choice->needs[i]) continue;
        char *link = path_in(snapshot, listing->file[i].path);
        bool is_link = blob_of(repo_folder, link, &blob);
        delete_tree(link, bytes, cause);
        if (is_link && !is_linked(repo_folder, blob.data)) delete_tree(blob.data, bytes, cause);
        mem_free(link);
    }
    buf_free(&blob);
}

static enum status delete_model(const char *repo_folder, const struct hub_name *name,
                                int64_t *bytes, int *cause, struct err *err) {
    struct hub_listing listing;
    struct hub_choice choice;
    char *snapshot = hub_snapshot(repo_folder);
    if (!snapshot)
        return err_set(err, STATUS_NOT_FOUND, "model", "%s is not in the cache", name->repo);
    hub_listing_scan(&listing, snapshot);
    enum status status = hub_select(&choice, &listing, name, NULL, err);
    if (!status) delete_files(repo_folder, snapshot, &listing, &choice, bytes, cause);
    mem_free(choice.needs);
    hub_listing_free(&listing);
    mem_free(snapshot);
    return status;
}

/* Has the repository no blob left? */
static bool is_empty(const char *repo_folder) {
    struct hub_listing blobs;
    char *folder = path_in(repo_folder, "blobs");
    hub_listing_scan(&blobs, folder);
    bool empty = blobs.n == 0;
    hub_listing_free(&blobs);
    mem_free(folder);
    return empty;
}

enum status hub_remove(const struct hub_settings *settings, const struct hub_name *name,
                       int64_t *bytes, struct err *err) {
    struct stat info;
    int cause = 0;
    enum status status = STATUS_OK;
    char *folder = hub_repo_folder(settings, name->repo);
    *bytes = 0;
    if (stat(folder, &info) != 0)
        status = err_set(err, STATUS_NOT_FOUND, "model", "%s is not in %.300s", name->repo,
                         settings->cache);
    else if (*name->tag || *name->file)
        status = delete_model(folder, name, bytes, &cause, err);
    if (!status && ((!*name->tag && !*name->file) || is_empty(folder)))
        delete_repo(settings, folder, bytes, &cause);
    if (!status && cause)
        status = err_set(err, STATUS_SYSTEM, NULL, "cannot delete all files of %s: %s", name->repo,
                         strerror(cause));
    mem_free(folder);
    return status;
}
