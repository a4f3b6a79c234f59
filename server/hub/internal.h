/* Internal to server/hub. */
#ifndef PENSTOCK_SERVER_HUB_INTERNAL_H
#define PENSTOCK_SERVER_HUB_INTERNAL_H

#include "config/json.h"
#include "server/hub/hub.h"

enum { COMMIT_DIGITS = 40, SHA1_DIGITS = 40, SHA256_DIGITS = 64 };

/* ---- name.c --------------------------------------------------------------------------------- */

/* Is it a relative path without "..", empty parts, backslashes and control characters? */
bool hub_path_is_safe(const char *path);

bool hub_ends_in(const char *path, const char *ending); /* in any case */

/* Is it exactly `digits` hex digits in lower case? */
bool hub_is_hex(const char *text, size_t digits);

/* ---- listing.c: the files of a repository --------------------------------------------------- */

struct hub_file {
    char *path;                   /* in the repository; safe */
    int64_t bytes;                /* -1: the hub does not state it */
    char hash[SHA256_DIGITS + 1]; /* SHA-256 or git's SHA-1, in hex; "": not stated */
};

struct hub_listing {
    char commit[COMMIT_DIGITS + 1];
    int n;
    struct hub_file *file; /* in the order of their paths */
};

/* Reads the hub's answer to a request for a revision. Fails with STATUS_BAD_FILE. Free the listing
 * in all cases. */
enum status hub_listing_parse(struct hub_listing *listing, const char *text, size_t length,
                              struct err *err);

/* Reads the files of a folder, also in folders in it; links whose blob is missing are not listed. A
 * missing folder is empty. */
void hub_listing_scan(struct hub_listing *listing, const char *folder);
void hub_listing_free(struct hub_listing *listing);

/* Returns the number of a path, or -1. */
int hub_listing_find(const struct hub_listing *listing, const char *path);

/* ---- select.c ------------------------------------------------------------------------------- */

#define HUB_INDEX "model.safetensors.index.json"

/* The files of a model. */
struct hub_choice {
    bool *needs; /* [listing->n] */
    bool is_folder;
    int first;        /* the .gguf file to open; of a folder: config.json */
    bool wants_index; /* of a folder: the index states the weights, and was not given */
};

/* Chooses the files of a model. `index` is the parsed index of a folder's weights, or NULL. Fails
 * with STATUS_NOT_FOUND, and names what the repository has. Free `needs` in all cases. */
enum status hub_select(struct hub_choice *choice, const struct hub_listing *listing,
                       const struct hub_name *name, const struct json *index, struct err *err);

/* Returns the length of a .gguf path without its part number and ending, and sets *part and
 * *parts; both are 1 for a file that is not a part. */
size_t hub_gguf_stem(const char *path, int *part, int *parts);

/* Is it a .gguf file that can be a model, not a projector or a matrix of importance? */
bool hub_is_model_file(const char *path);

/* ---- cache.c -------------------------------------------------------------------------------- */

/* Returns the folder of a repository in the cache; the caller frees it. */
char *hub_repo_folder(const struct hub_settings *settings, const char *repo);

/* Returns the folder of the snapshot that refs/main names, or NULL; the caller frees it. */
char *hub_snapshot(const char *repo_folder);

/* Creates the folders above the last '/' of a path. */
enum status hub_make_folders(const char *path, struct err *err);

/* Links a blob into a snapshot, in place of a link that is there. */
enum status hub_link(const char *repo_folder, const char *commit, const struct hub_file *file,
                     struct err *err);

/* Writes refs/main, in one piece. */
enum status hub_write_ref(const char *repo_folder, const char *commit, struct err *err);

/* Parses the index of a snapshot's weights; NULL if there is none. The caller frees it. */
struct json *hub_read_index(const char *snapshot);

/* Appends the path of the model in a snapshot if all its files are there. */
bool hub_find_in(const char *snapshot, const struct hub_name *name, struct buf *path);

/* Appends the path of a choice's model. */
void hub_choice_path(const struct hub_choice *choice, const struct hub_listing *listing,
                     const char *snapshot, struct buf *path);

/* ---- digest.c ------------------------------------------------------------------------------- */

/* The running hash of a blob: SHA-256, or the SHA-1 that git gives a file. */
struct hub_digest {
    void *context;
    bool is_sha1;
    int64_t bytes; /* of the whole blob, which git hashes first */
};

void hub_digest_begin(struct hub_digest *digest, const struct hub_file *file);
void hub_digest_restart(struct hub_digest *digest);
void hub_digest_add(struct hub_digest *digest, const void *data, size_t length);
/* Writes the hash in hex. */
void hub_digest_end(struct hub_digest *digest, char hex[SHA256_DIGITS + 1]);
void hub_digest_free(struct hub_digest *digest);

/* ---- request.c ------------------------------------------------------------------------------ */

/* A body's receiver. `begins` gets the position of the first byte, 0 if the hub ignored the range;
 * `adds` the bytes. Both return false to stop. */
struct hub_sink {
    bool (*begins)(void *arg, int64_t at);
    bool (*adds)(void *arg, const void *data, size_t length);
    void *arg;
};

struct hub_answer {
    long code;       /* HTTP status; 0: none */
    int64_t total;   /* bytes of the whole file; -1: not stated */
    int64_t wait_ms; /* Retry-After; -1: not stated */
    bool again;      /* the failure may pass: try again */
    bool stopped;    /* the sink stopped it */
    char hash[128];  /* X-Linked-Etag of the endpoint, or "" */
    char commit[64]; /* X-Repo-Commit of the endpoint, or "" */
};

struct hub_connection;

/* Opens what requests share, and loads libcurl. Fails with STATUS_SYSTEM. */
enum status hub_connect(struct hub_connection **connection, const struct hub_settings *settings,
                        struct err *err);
void hub_disconnect(struct hub_connection *connection);

/* Gets `path` of the endpoint from byte `from` on, and follows redirects. The token goes to the
 * endpoint only. `what` names the request in errors. */
enum status hub_get(struct hub_connection *connection, const char *path, const char *what,
                    int64_t from, const struct hub_sink *sink, struct hub_answer *answer,
                    struct err *err);

/* ---- download.c ----------------------------------------------------------------------------- */

/* A pull under way. */
struct hub_transfer {
    const struct hub_settings *settings;
    struct hub_connection *connection;
    const struct hub_name *name;
    const char *repo_folder;
    const struct hub_listing *listing;
    int64_t done, total;
};

/* Makes a file's blob, unless it is there: resumes, checks, names it. */
enum status hub_download(struct hub_transfer *transfer, const struct hub_file *file,
                         struct err *err);

/* Gets a small document, with retries. The caller frees `body` in all cases. */
enum status hub_get_document(struct hub_transfer *transfer, const char *path, struct buf *body,
                             struct err *err);

#endif
