/* server/keys: the API keys of a server, their weights and limits.
 *
 * A key is kept as its SHA-256, so that a memory dump shows no key, and so that comparing takes the
 * same time for all wrong keys. A key of a file may have a name, a weight and limits. The loop
 * thread counts what each key uses; the other fields do not change after the start, and any thread
 * may read them.
 */
#ifndef PENSTOCK_SERVER_KEYS_H
#define PENSTOCK_SERVER_KEYS_H

#include "config/config.h"
#include "config/pace.h"

enum { KEY_NAME_BYTES = 65, KEY_DIGEST_BYTES = 32, MAX_KEYS = 1000 };

/* What a key has used. A bucket holds the tokens that it may use now: at most those of a minute. It
 * is refilled as time passes, and may be below 0 after long answers. */
struct key_use {
    int references;   /* entries of this key, also in lists that were replaced */
    int n_requests;   /* running */
    struct pace pace; /* of its requests that end */
    double bucket;
    uint64_t refilled_ns; /* when the bucket was last refilled; 0: it is full */
    uint64_t requests, refused, prompt_tokens, output_tokens;
};

struct api_key {
    char name[KEY_NAME_BYTES]; /* of its owner; "": unnamed */
    uint8_t digest[KEY_DIGEST_BYTES];
    int weight;                /* its part of the steps beside other keys; 1 by default */
    int max_requests;          /* that run at once; 0: no limit */
    int64_t tokens_per_minute; /* computed prompt tokens and output tokens; 0: no limit */
    int best_priority;         /* the lowest `priority` of its requests; INT_MIN: no limit */
    bool admin;
    int share; /* its index in scheduler_config.share_weights, if it has one */
    bool has_share;
    struct key_use *use; /* shared with the other entries of the same key */
};

struct keys {
    struct api_key *key; /* [n] */
    int n;
};

/* The keys that a server accepts: read and not yet in use, or replaced. */
struct key_lists {
    struct keys keys, metrics_keys, admin_keys;
    struct key_lists *next;
};

/* Frees the keys of the lists. */
void key_lists_free(struct key_lists *lists);

/* Adds a key without limits; white space around it is left out, and an empty key is not added.
 * keys_free frees the list. */
void keys_add(struct keys *keys, const char *text, size_t length);
void keys_free(struct keys *keys);

/* Lets the entries of a new list go on with the use and the shares that the same keys have in the
 * old one. Loop thread. */
void keys_adopt(struct keys *keys, const struct keys *old);

/* Returns the entry of a key, or NULL. Reads all entries. */
struct api_key *keys_find(const struct keys *keys, const char *text);

/* Adds the keys of a file: one per line, or a YAML map with a list `keys` of maps (docs/operations
 * .md). Fails with STATUS_BAD_FILE and the line. */
enum status keys_read_file(struct keys *keys, const char *path, struct err *err);

/* The same from the file's content. `path` is for messages. */
enum status keys_parse(struct keys *keys, const char *path, const char *data, size_t length,
                       struct err *err);

/* May the key's owner start a request now? If not, returns STATUS_OVERLOADED with the limit and the
 * seconds to wait, and counts the refusal. Loop thread. */
enum status key_check(struct api_key *key, uint64_t now, struct err *err);

/* A request of the key begins; it ends. `now` is now_ns(). Loop thread. */
void key_begin(struct api_key *key, uint64_t now);
void key_end(struct api_key *key, uint64_t now);

/* Counts tokens that were computed for the key. `prompt` is negative for tokens that were found in
 * the prefix cache. Loop thread. */
void key_charge(struct api_key *key, int prompt, int output);

#endif
