/* The layout of huggingface_hub's cache: paths, links and references. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/hub/internal.h"

#define MAX_INDEX_BYTES (32 << 20)

char *hub_repo_folder(const struct hub_settings *settings, const char *repo) {
    struct buf path = {0};
    size_t owner = strcspn(repo, "/");
    assert(repo[owner] == '/'); /* hub_name_parse checks it */
    buf_printf(&path, "%s/models--%.*s--%s", settings->cache, (int)owner, repo, repo + owner + 1);
    return path.data;
}

enum status hub_make_folders(const char *path, struct err *err) {
    char *copy = mem_strdup(path);
    enum status status = STATUS_OK;
    for (char *slash = strchr(copy + 1, '/'); slash && !status; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            status = err_set(err, STATUS_SYSTEM, NULL, "cannot create the folder %.400s: %s", copy,
                             strerror(errno));
        *slash = '/';
    }
    mem_free(copy);
    return status;
}

/* Reads a file of at most `max` bytes, or returns false. */
static bool read_file(const char *path, size_t max, struct buf *out) {
    char bytes[1 << 14];
    ssize_t n = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    while (n > 0 && out->length <= max) {
        n = read(fd, bytes, sizeof bytes);
        if (n > 0) buf_add(out, bytes, (size_t)n);
    }
    close(fd);
    return n == 0;
}

char *hub_snapshot(const char *repo_folder) {
    struct buf commit = {0}, path = {0};
    char *ref = path_in(repo_folder, "refs/main");
    bool is_there = read_file(ref, 1024, &commit) && commit.length > 0;
    mem_free(ref);
    if (is_there) {
        commit.data[strcspn(commit.data, " \r\n")] = 0;
        is_there = hub_is_hex(commit.data, COMMIT_DIGITS);
        buf_printf(&path, "%s/snapshots/%s", repo_folder, commit.data);
    }
    buf_free(&commit);
    if (!is_there) buf_free(&path);
    return path.data;
}

struct json *hub_read_index(const char *snapshot) {
    struct buf text = {0};
    struct json *index = NULL;
    struct err err;
    char *path = path_in(snapshot, HUB_INDEX);
    if (read_file(path, MAX_INDEX_BYTES, &text) && text.length > 0)
        json_parse(&index, HUB_INDEX, text.data, text.length, &err);
    buf_free(&text);
    mem_free(path);
    return index;
}

/* ---- finding -------------------------------------------------------------------------------- */

void hub_choice_path(const struct hub_choice *choice, const struct hub_listing *listing,
                     const char *snapshot, struct buf *path) {
    assert(choice->is_folder || (choice->first >= 0 && choice->first < listing->n));
    buf_puts(path, snapshot);
    if (!choice->is_folder) buf_printf(path, "/%s", listing->file[choice->first].path);
}

/* Has the folder a tokenizer in some form? Other programs may have fetched only the weights. */
static bool has_tokenizer(const struct hub_listing *listing) {
    static const char *const forms[] = {"tokenizer.json", "vocab.json", "tokenizer.model",
                                        "tekken.json"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (hub_listing_find(listing, forms[i]) >= 0) return true;
    return false;
}

bool hub_find_in(const char *snapshot, const struct hub_name *name, struct buf *path) {
    struct hub_listing listing;
    struct hub_choice choice;
    struct err err;
    hub_listing_scan(&listing, snapshot);
    struct json *index = hub_read_index(snapshot);
    bool found = hub_select(&choice, &listing, name, index, &err) == STATUS_OK;
    if (found && choice.is_folder) found = !choice.wants_index && has_tokenizer(&listing);
    if (found) hub_choice_path(&choice, &listing, snapshot, path);
    mem_free(choice.needs);
    json_free(index);
    hub_listing_free(&listing);
    return found;
}

bool hub_find(const struct hub_settings *settings, const struct hub_name *name, struct buf *path) {
    char *folder = hub_repo_folder(settings, name->repo), *snapshot = hub_snapshot(folder);
    bool found = snapshot && hub_find_in(snapshot, name, path);
    mem_free(snapshot);
    mem_free(folder);
    return found;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Gives a new file or link its name, in place of what has it. */
static enum status rename_to(const char *made, const char *path, bool is_made, struct err *err) {
    if (is_made && rename(made, path) == 0) return STATUS_OK;
    int cause = errno;
    unlink(made);
    return err_set(err, STATUS_SYSTEM, NULL, "cannot write %.400s: %s", path, strerror(cause));
}

enum status hub_link(const char *repo_folder, const char *commit, const struct hub_file *file,
                     struct err *err) {
    struct buf path = {0}, made = {0}, target = {0};
    assert(*file->path && *file->path != '/' && *file->hash);
    buf_printf(&path, "%s/snapshots/%s/%s", repo_folder, commit, file->path);
    buf_printf(&made, "%s.%d.link", path.data, (int)getpid());
    buf_puts(&target, "../../");
    for (const char *at = file->path; (at = strchr(at, '/')); at++) buf_puts(&target, "../");
    buf_printf(&target, "blobs/%s", file->hash);
    enum status status = hub_make_folders(path.data, err);
    if (!status) {
        bool is_made = symlink(target.data, made.data) == 0;
        status = rename_to(made.data, path.data, is_made, err);
    }
    buf_free(&path);
    buf_free(&made);
    buf_free(&target);
    return status;
}

enum status hub_write_ref(const char *repo_folder, const char *commit, struct err *err) {
    struct buf path = {0}, made = {0};
    assert(hub_is_hex(commit, COMMIT_DIGITS));
    buf_printf(&path, "%s/refs/main", repo_folder);
    buf_printf(&made, "%s.%d", path.data, (int)getpid());
    enum status status = hub_make_folders(path.data, err);
    if (!status) {
        FILE *file = fopen(made.data, "we");
        bool is_made = file && fputs(commit, file) >= 0;
        if (file) is_made = fclose(file) == 0 && is_made;
        status = rename_to(made.data, path.data, is_made, err);
    }
    buf_free(&path);
    buf_free(&made);
    return status;
}
