/* DESIGN: a pull.
 *
 *     listing of the branch -> choice of files -> room on disk -> each file -> links -> refs/main
 *
 * refs/main is written last, so a broken pull leaves an older snapshot as the one that is found.
 * The weights of a folder are named by its index, so the index is fetched first if there is one.
 */
#include <assert.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "server/hub/internal.h"

#define MAX_FILE_BYTES ((int64_t)1 << 46) /* so that the sum over a listing is an int64 */

/* Returns the size of a file, or -1. */
static int64_t size_of(const char *repo_folder, const char *name, const char *ending) {
    struct buf path = {0};
    struct stat info;
    buf_printf(&path, "%s/blobs/%s%s", repo_folder, name, ending);
    int64_t bytes = stat(path.data, &info) == 0 ? info.st_size : -1;
    buf_free(&path);
    return bytes;
}

/* Can the file be fetched and checked? */
static enum status check_file(const struct hub_file *file, struct err *err) {
    if (file->bytes >= 0 && file->bytes <= MAX_FILE_BYTES && *file->hash) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, NULL,
                   "the hub states no usable size or hash of %.200s, so it cannot be checked",
                   file->path);
}

/* Adds up the bytes to fetch, and checks that the disk has room for them. */
static enum status check_room(struct hub_transfer *transfer, const struct hub_choice *choice,
                              struct err *err) {
    const struct hub_listing *listing = transfer->listing;
    struct statvfs disk;
    int64_t missing = 0;
    enum status status = STATUS_OK;
    transfer->total = 0;
    for (int i = 0; i < listing->n && !status; i++) {
        const struct hub_file *file = &listing->file[i];
        if (!choice->needs[i]) continue;
        status = check_file(file, err);
        if (status || size_of(transfer->repo_folder, file->hash, "") == file->bytes) continue;
        int64_t has = size_of(transfer->repo_folder, file->hash, ".incomplete");
        missing += file->bytes - (has > 0 ? min_int64(has, file->bytes) : 0);
        transfer->total += file->bytes;
    }
    assert(missing >= 0 && missing <= transfer->total);
    if (status || missing == 0) return status;
    status = hub_make_folders(transfer->repo_folder, err);
    if (status || statvfs(transfer->settings->cache, &disk) != 0) return status;
    double room = (double)disk.f_bavail * (double)disk.f_frsize;
    if (room >= (double)missing) return STATUS_OK;
    return err_set(err, STATUS_SYSTEM, NULL,
                   "the model needs %.1f MB more on the disk of %.300s, which has %.1f MB left; "
                   "make room, or choose another folder by {models-dir}",
                   (double)missing * 1e-6, transfer->settings->cache, room * 1e-6);
}

/* Fetches and links the chosen files. */
static enum status fetch_all(struct hub_transfer *transfer, const struct hub_choice *choice,
                             struct err *err) {
    const struct hub_listing *listing = transfer->listing;
    enum status status = check_room(transfer, choice, err);
    for (int i = 0; i < listing->n && !status; i++) {
        if (!choice->needs[i]) continue;
        status = hub_download(transfer, &listing->file[i], err);
        if (!status)
            status = hub_link(transfer->repo_folder, listing->commit, &listing->file[i], err);
    }
    return status;
}

/* Fetches the index of a folder's weights and chooses again. */
static enum status choose_indexed(struct hub_transfer *transfer, struct hub_choice *choice,
                                  const char *snapshot, struct err *err) {
    const struct hub_listing *listing = transfer->listing;
    struct hub_choice alone = {.needs = mem_calloc((size_t)listing->n + 1, sizeof(bool))};
    assert(hub_listing_find(listing, HUB_INDEX) >= 0); /* wants_index says so */
    alone.needs[hub_listing_find(listing, HUB_INDEX)] = true;
    enum status status = fetch_all(transfer, &alone, err);
    mem_free(alone.needs);
    if (status) return status;
    struct json *index = hub_read_index(snapshot);
    if (!index)
        return err_set(err, STATUS_BAD_FILE, NULL, "%s of the model is not JSON", HUB_INDEX);
    mem_free(choice->needs);
    status = hub_select(choice, listing, transfer->name, index, err);
    json_free(index);
    return status;
}

/* Reads the hub's listing of the branch. */
static enum status get_listing(struct hub_transfer *transfer, struct hub_listing *listing,
                               struct err *err) {
    struct buf path = {0}, body = {0};
    buf_printf(&path, "/api/models/%s/revision/main?blobs=true", transfer->name->repo);
    enum status status = hub_get_document(transfer, path.data, &body, err);
    if (!status) status = hub_listing_parse(listing, body.data, body.length, err);
    buf_free(&path);
    buf_free(&body);
    return status;
}

static enum status pull_model(struct hub_transfer *transfer, struct buf *path, struct err *err) {
    struct hub_listing listing = {0};
    struct hub_choice choice = {0};
    struct buf snapshot = {0};
    transfer->listing = &listing;
    enum status status = get_listing(transfer, &listing, err);
    if (!status) status = hub_select(&choice, &listing, transfer->name, NULL, err);
    buf_printf(&snapshot, "%s/snapshots/%s", transfer->repo_folder, listing.commit);
    if (!status && choice.wants_index)
        status = choose_indexed(transfer, &choice, snapshot.data, err);
    if (!status) status = fetch_all(transfer, &choice, err);
    if (!status) status = hub_write_ref(transfer->repo_folder, listing.commit, err);
    if (!status) hub_choice_path(&choice, &listing, snapshot.data, path);
    buf_free(&snapshot);
    mem_free(choice.needs);
    hub_listing_free(&listing);
    return status;
}

enum status hub_pull(const struct hub_settings *settings, const struct hub_name *name,
                     struct buf *path, struct err *err) {
    struct hub_transfer transfer = {.settings = settings, .name = name};
    if (settings->offline)
        return err_set(err, STATUS_UNAVAILABLE, "model",
                       "%s%s%s%s%s is not in %.300s, and {offline} or HF_HUB_OFFLINE forbids to "
                       "fetch it",
                       name->repo, *name->tag ? ":" : "", name->tag, *name->file ? "/" : "",
                       name->file, settings->cache);
    char *folder = hub_repo_folder(settings, name->repo);
    transfer.repo_folder = folder;
    enum status status = hub_connect(&transfer.connection, settings, err);
    if (!status) status = pull_model(&transfer, path, err);
    hub_disconnect(transfer.connection);
    mem_free(folder);
    return status;
}
