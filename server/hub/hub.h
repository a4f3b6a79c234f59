/* server/hub: models by name, fetched from a model hub into a cache of files.
 *
 * A name is `org/repo`, `org/repo:Q4_K_M` or `org/repo/file.gguf`. The cache has the layout of
 * huggingface_hub, so each program finds what the other fetched:
 *
 *     CACHE/models--org--repo/refs/main                  the commit of the branch, 40 hex digits
 *                             blobs/HASH                 a file's bytes, checked against the hash
 *                             blobs/HASH.incomplete      its first bytes, while it is fetched
 *                             snapshots/COMMIT/NAME      a link to a blob
 *     CACHE/.locks/models--org--repo/HASH.lock           held by the process that fetches the blob
 *
 * hub_find only reads the cache. hub_pull opens connections. libcurl and libcrypto are loaded by
 * the first pull, so a server whose model is there has neither in memory. All functions are for one
 * thread; several processes may use one cache. `err` must not be NULL.
 */
#ifndef PENSTOCK_SERVER_HUB_H
#define PENSTOCK_SERVER_HUB_H

#include "config/config.h"

/* A model's name. `file` and `tag` are "" if the name does not state them; at most one is stated.
 */
struct hub_name {
    char repo[97]; /* org/repo */
    char tag[64];  /* after a colon, e.g. Q4_K_M */
    char file[256];
};

/* Parses a name. Fails with STATUS_USAGE if it is not one: an empty part, "..", other characters
 * than letters, digits, '-', '_' and '.'. */
enum status hub_name_parse(struct hub_name *name, const char *text, struct err *err);

/* Appends the name as a user writes it. */
void hub_name_write(const struct hub_name *name, struct buf *out);

enum hub_event {
    HUB_STEP,    /* bytes arrived */
    HUB_FETCHED, /* a file is complete and checked */
    HUB_RETRY,   /* an attempt failed: `note` */
    HUB_WAIT,    /* another process fetches the file */
};

/* The progress of a pull. */
struct hub_report {
    enum hub_event event;
    const char *file;    /* its name in the repository */
    int64_t done, total; /* bytes of all files that are fetched */
    const char *note;
};

struct hub_settings {
    char *endpoint; /* without a slash at its end; HF_ENDPOINT */
    char *token;    /* HF_TOKEN or the token file; NULL: none */
    char *cache;    /* HF_HUB_CACHE, or `hub` in HF_HOME */
    bool offline;   /* HF_HUB_OFFLINE: connections are not opened */
    int timeout_ms; /* limit of a silence of the hub; HF_HUB_DOWNLOAD_TIMEOUT */
    void (*report)(void *arg, const struct hub_report *report); /* may be NULL */
    void *report_arg;
};

/* Reads the settings from the environment. `folder` replaces the cache if it is not NULL; `offline`
 * adds to HF_HUB_OFFLINE. Fails with STATUS_USAGE. Call hub_settings_free in all cases. */
enum status hub_settings_read(struct hub_settings *settings, const char *folder, bool offline,
                              struct err *err);
void hub_settings_free(struct hub_settings *settings);

/* Appends the path of a model in the cache: a .gguf file, or a folder. Returns false if the cache
 * lacks it or one of its files. A name without tag and file means Q4_K_M if the cache has it, else
 * the folder of safetensors, else the first .gguf file. */
bool hub_find(const struct hub_settings *settings, const struct hub_name *name, struct buf *path);

/* Fetches the files that the model lacks, and appends its path. What a broken pull has fetched is
 * used. Fails with STATUS_NOT_FOUND, STATUS_AUTHENTICATION, STATUS_UNAVAILABLE (the hub),
 * STATUS_BAD_FILE (wrong bytes) or STATUS_SYSTEM (this machine: room, rights, libraries). */
enum status hub_pull(const struct hub_settings *settings, const struct hub_name *name,
                     struct buf *path, struct err *err);

/* A model in the cache. */
struct hub_model {
    const char *name; /* for --model */
    int64_t bytes;
    int64_t changed_s; /* of its newest file, seconds since 1970 */
    bool whole;        /* false: files are missing */
};

/* Calls `each` for the models in the cache: each .gguf file (parts once), each folder. */
void hub_list(const struct hub_settings *settings,
              void (*each)(void *arg, const struct hub_model *model), void *arg);

/* Deletes a model's files, or all of a repository if the name is `org/repo`, also incomplete ones.
 * A blob that another file in the cache links to stays. Sets *bytes to the freed bytes. Fails with
 * STATUS_NOT_FOUND or STATUS_SYSTEM. */
enum status hub_remove(const struct hub_settings *settings, const struct hub_name *name,
                       int64_t *bytes, struct err *err);

#endif
