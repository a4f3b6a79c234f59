/* adapters: the adapters of a server by name. Internal to server/.
 *
 * An adapter does not change. Loading again under its name makes a new adapter with a new id:
 * running requests keep the old one, and new ones get the new one. An adapter that is no longer
 * listed leaves memory with its last request. */
#ifndef PENSTOCK_SERVER_ADAPTERS_H
#define PENSTOCK_SERVER_ADAPTERS_H

#include "engine/engine.h"
#include "server/fingerprint/fingerprint.h"
#include "server/openai/openai.h"

struct app;
struct adapters;

/* An adapter in memory. The registry owns it; its fields do not change, except for the last ones,
 * which belong to the registry. */
struct served_adapter {
    struct api_adapter shown; /* its name, path and age */
    int number;               /* in the engine */
    uint64_t id;              /* random and never used twice */
    struct adapter_facts facts;
    char hash[HASH_DIGITS + 1];                        /* of its files, when they were read */
    char system_fingerprint[FINGERPRINT_SYSTEM_BYTES]; /* of its answers */
    bool is_listed;                                    /* new requests may choose it */
    int n_users;                                       /* requests that hold it */
    int n_waiting, n_begun; /* requests in the scheduler without and with a first token */
    struct served_adapter *next;
};

/* Opens the registry and loads the adapters of --lora, if the options ask for adapters; else
 * app->adapters stays NULL. Fails like adapters_load. Logs a line per adapter. */
enum status adapters_open(struct app *app, struct err *err);
void adapters_close(struct app *app);

/* Loads the adapter at `path` under a name. If the name is that of an adapter, it is replaced with
 * `in_place`, else the call fails. Takes as long as reading the file; for a worker. Fails with
 * STATUS_INVALID_REQUEST. */
enum status adapters_load(struct adapters *adapters, const char *name, const char *path,
                          bool in_place, struct err *err);

/* Takes an adapter from the list. Fails with STATUS_NOT_FOUND. Any thread. */
enum status adapters_unload(struct adapters *adapters, const char *name, struct err *err);

/* Prepares the change from one list of --lora to another: loads the adapters that are new, without
 * listing them. Sets *out, also if it fails; NULL: nothing changes. For a worker. */
struct adapter_change;
enum status adapters_stage(struct adapters *adapters, const char *before, const char *after,
                           struct adapter_change **out, struct err *err);

/* Lists the new adapters and unlists those that the list has lost; or drops the new ones. Both free
 * the change. */
void adapters_commit(struct adapters *adapters, struct adapter_change *change);
void adapters_discard(struct adapters *adapters, struct adapter_change *change);

/* Returns the listed adapter of that name for a request, or NULL. The request gives it back after
 * the scheduler has returned its generations. Any thread; NULL is accepted. */
struct served_adapter *adapters_hold(struct adapters *adapters, const char *name);
void adapters_give_back(struct adapters *adapters, struct served_adapter *adapter);

/* Copies the hash of the listed adapter with this name; "": no adapter has it. Any thread; NULL is
 * accepted. */
void adapters_hash(struct adapters *adapters, const char *name, char out[HASH_DIGITS + 1]);

/* A request of an adapter is with the scheduler; it has its first token; it has ended, after its
 * first token or before. Any thread. */
void adapters_count(struct adapters *adapters, struct served_adapter *adapter, int waiting,
                    int begun);

/* Copies the names of listed adapters with requests that run, and with requests that wait, each
 * separated by commas. Any thread. */
void adapters_busy(struct adapters *adapters, struct buf *running, struct buf *waiting);

/* The most adapters in memory; 0 for NULL. */
int adapters_most(const struct adapters *adapters);

/* Returns the name if it may be an adapter's: 1 to 127 printable bytes without ',' '=' '"' '\\'. */
bool adapters_name_is_valid(const char *name);

#endif
