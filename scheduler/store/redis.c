/* Records in a server that speaks Redis's protocol.
 *
 * DESIGN. The value of a part is the head of a segment and a record, so the same checks hold as in
 * files. Its key is penstock:IDENTITY:HASH, in hexadecimal digits: the hash of the head, which has
 * the part, and that of the block.
 *
 *     writer thread   connects: one link for itself and one for each worker; SET
 *     worker          takes a free link -> EXISTS for all parts -> GET for the wanted ones
 *
 * Workers never connect, because a query of the name service cannot be limited. A worker without a
 * link wakes the writer thread and reads nothing. A read ends at the latest when computing would
 * have ended: the parts up to then are used. After an error all links are closed after their use
 * and nothing is sent for `rest_ns`, which doubles up to MAX_REST_NS; a record that is read or
 * written sets it back. A server that refuses to write, because its memory is full, is still read.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "scheduler/kv/window_pool.h"
#include "scheduler/store/internal.h"
#include "scheduler/store/redis_link.h"

#define MS ((uint64_t)1000000)
#define MIN_REST_NS (250 * MS)
#define MAX_REST_NS (30000 * MS)
#define MIN_READ_NS (100 * MS) /* a read may take so long in any case */
#define MAX_READ_NS (2000 * MS)
#define REFUSED_NS (60000 * MS)
#define CLOSE_NS (2000 * MS) /* for the records that are queued when the store is closed */
enum { CONNECT_MS = 1000, WRITE_MS = 2000, N_READERS = 4, MAX_GETS = 16, KEY_TEXT = 96 };
enum { GETS_BYTES = 4 << 20 }; /* the replies that a link has asked for at a time */

/* The values of a part. */
struct redis_part {
    struct segment_head head; /* before each record */
    char prefix[48];          /* of all keys */
    size_t value_bytes;
};

struct redis_store {
    struct redis_address address;
    struct redis_part part[N_CACHE_PARTS]; /* of the used parts */
    /* guarded by the store's mutex: */
    struct redis_link reader[N_READERS];
    uint64_t rest_ns, rests_until_ns; /* rest_ns 0: all is well */
    uint64_t generation;              /* of links: a failure begins another one */
    bool is_wanted;                   /* a worker lacked a link */
    /* writer thread: */
    struct redis_link writer;
    uint8_t *value;            /* [largest_bytes] */
    uint64_t refused_until_ns; /* the server has refused a record: none is sent until then */
    uint64_t close_ends_ns;    /* 0: not closing */
    size_t largest_bytes;      /* of a value of any part */
    size_t most_bytes;         /* of the replies that a link has asked for */
};

/* ---- failing and resting --------------------------------------------------------------------- */

static bool redis_rests(struct prefix_store *store) {
    pthread_mutex_lock(&store->mutex);
    bool rests = now_ns() < store->redis->rests_until_ns;
    pthread_mutex_unlock(&store->mutex);
    return rests;
}

/* Closes the link. All links of its generation rest, once. The first failure is logged. */
static void redis_failed(struct prefix_store *store, struct redis_link *link) {
    struct redis_store *redis = store->redis;
    redis_link_close(link);
    store_count_error(store);
    pthread_mutex_lock(&store->mutex);
    bool is_current = link->generation == redis->generation, first = redis->rest_ns == 0;
    if (is_current) {
        uint64_t now = now_ns();
        redis->generation++;
        redis->rest_ns = first ? MIN_REST_NS : 2 * redis->rest_ns;
        if (redis->rest_ns > MAX_REST_NS) redis->rest_ns = MAX_REST_NS;
        /* Servers that fail together return at different times. */
        redis->rests_until_ns = now + redis->rest_ns + redis->rest_ns / 1024 * (now % 256);
    }
    pthread_mutex_unlock(&store->mutex);
    if (is_current && first)
        log_line(LOG_WARNING, "prefix store: %s fails: %s; going on without it", store->place,
                 link->why);
}

/* The caller has read or written a record. */
static void redis_works(struct prefix_store *store) {
    pthread_mutex_lock(&store->mutex);
    bool again = store->redis->rest_ns > 0;
    store->redis->rest_ns = 0;
    store->stats.is_up = true;
    pthread_mutex_unlock(&store->mutex);
    if (again) log_line(LOG_INFO, "prefix store: %s is used again", store->place);
}

/* ---- links ----------------------------------------------------------------------------------- */

static void give_link(struct prefix_store *store, struct redis_link *link) {
    pthread_mutex_lock(&store->mutex);
    assert(link->is_used);
    link->is_used = false;
    pthread_mutex_unlock(&store->mutex);
}

/* Connects a link that is not connected, or is of an earlier generation. */
static bool link_renew(struct prefix_store *store, struct redis_link *link) {
    pthread_mutex_lock(&store->mutex);
    uint64_t generation = store->redis->generation;
    pthread_mutex_unlock(&store->mutex);
    if (link->context && link->generation == generation) return true;
    redis_link_close(link);
    link->generation = generation;
    link->max_bytes = store->redis->most_bytes;
    if (redis_link_open(link, &store->redis->address, CONNECT_MS)) return true;
    redis_failed(store, link);
    return false;
}

/* Connects all links. One of a worker is taken meanwhile. */
static void connect_links(struct prefix_store *store) {
    struct redis_store *redis = store->redis;
    bool ok = link_renew(store, &redis->writer);
    for (int i = 0; ok && i < N_READERS; i++) {
        struct redis_link *link = &redis->reader[i];
        pthread_mutex_lock(&store->mutex);
        bool is_free = !link->is_used;
        link->is_used = true;
        pthread_mutex_unlock(&store->mutex);
        if (is_free) ok = link_renew(store, link);
        if (is_free) give_link(store, link);
    }
}

static void redis_tend(struct prefix_store *store) {
    struct redis_store *redis = store->redis;
    if (redis_rests(store)) return;
    pthread_mutex_lock(&store->mutex);
    bool wanted = redis->is_wanted || redis->writer.generation != redis->generation;
    redis->is_wanted = false;
    pthread_mutex_unlock(&store->mutex);
    if (wanted || !redis->writer.context) connect_links(store);
}

/* Returns a connected link for a worker, or NULL. */
static struct redis_link *take_link(struct prefix_store *store) {
    struct redis_store *redis = store->redis;
    struct redis_link *found = NULL;
    pthread_mutex_lock(&store->mutex);
    bool rests = now_ns() < redis->rests_until_ns;
    for (int i = 0; !rests && !found && i < N_READERS; i++) {
        struct redis_link *link = &redis->reader[i];
        bool is_current = link->context && link->generation == redis->generation;
        if (!link->is_used && is_current) found = link;
    }
    bool asks = !rests && !found && !redis->is_wanted;
    if (found) found->is_used = true;
    if (asks) redis->is_wanted = true;
    pthread_mutex_unlock(&store->mutex);
    if (asks) sem_post(&store->filled);
    return found;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void set_redis_part(struct prefix_store *store, enum cache_part part) {
    struct redis_store *redis = store->redis;
    struct redis_part *of = &redis->part[part];
    of->head = store_segment_head(store, part);
    of->value_bytes = sizeof of->head + store->part[part].record_bytes;
    if (of->value_bytes > redis->largest_bytes) redis->largest_bytes = of->value_bytes;
    const XXH128_hash_t all = XXH3_128bits(&of->head, sizeof of->head);
    snprintf(of->prefix, sizeof of->prefix,
             "penstock:%016llx%016llx:", (unsigned long long)all.high64,
             (unsigned long long)all.low64);
}

static enum status redis_open(struct prefix_store *store, struct err *err) {
    struct redis_address address;
    struct buf name = {0};
    if (redis_address_parse(&address, store->place, err)) return err->status;
    struct redis_store *redis = mem_calloc(1, sizeof *redis);
    redis->address = address;
    store->redis = redis;
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
        if (store->part[part].is_used) set_redis_part(store, part);
    redis->value = mem_alloc(redis->largest_bytes);
    redis->most_bytes = MAX_GETS * redis->largest_bytes;
    if (redis->most_bytes > GETS_BYTES + redis->largest_bytes)
        redis->most_bytes = GETS_BYTES + redis->largest_bytes;
    redis_address_show(&address, &name);
    mem_free(store->place);
    store->place = mem_strdup(name.data);
    buf_free(&name);
    connect_links(store);
    return STATUS_OK;
}

static void redis_close(struct prefix_store *store) {
    struct redis_store *redis = store->redis;
    if (!redis) return;
    for (int i = 0; i < N_READERS; i++) {
        assert(!redis->reader[i].is_used);
        redis_link_close(&redis->reader[i]);
    }
    redis_link_close(&redis->writer);
    mem_free(redis->value);
    mem_free(redis);
}

/* ---- commands -------------------------------------------------------------------------------- */

static int write_key(const struct redis_part *of, struct block_hash hash, char out[KEY_TEXT]) {
    return snprintf(out, KEY_TEXT, "%s%016llx%016llx", of->prefix, (unsigned long long)hash.high,
                    (unsigned long long)hash.low);
}

/* Adds a command about a part of a block of a read. */
static bool add_command(const struct prefix_store *store, const struct prefix_read *read,
                        const char *name, const struct wanted_part *about) {
    char key[KEY_TEXT];
    const struct redis_part *of = &store->redis->part[about->part];
    size_t length[2] = {strlen(name), (size_t)write_key(of, read->hash[about->block + 1], key)};
    const char *argument[2] = {name, key};
    return redis_link_add(read->link, 2, argument, length);
}

/* The server has refused a record: its memory is full, or it may not be written. */
static void redis_refused(struct prefix_store *store, const char *why) {
    log_line(LOG_WARNING, "prefix store: %s refuses records: %s; trying again in a minute",
             store->place, why);
    store->redis->refused_until_ns = now_ns() + REFUSED_NS;
    store_count_error(store);
}

/* Sends SET with a record. */
static bool set_record(struct prefix_store *store, enum cache_part part, const uint8_t *record) {
    struct redis_store *redis = store->redis;
    const struct redis_part *of = &redis->part[part];
    const struct record_head *head = (const struct record_head *)(const void *)record;
    char key[KEY_TEXT];
    size_t length[3] = {3, (size_t)write_key(of, head->hash, key), of->value_bytes};
    const char *argument[3] = {"SET", key, (const char *)redis->value};
    assert(of->value_bytes <= redis->largest_bytes);
    memcpy(redis->value, &of->head, sizeof of->head);
    memcpy(redis->value + sizeof of->head, record, store->part[part].record_bytes);
    redisReply *reply = NULL;
    if (redis_link_add(&redis->writer, 3, argument, length))
        reply = redis_link_reply(&redis->writer, now_ns() + WRITE_MS * MS);
    bool ok = reply && reply->type == REDIS_REPLY_STATUS;
    if (!reply) redis_failed(store, &redis->writer);
    if (reply && !ok)
        redis_refused(store, reply->type == REDIS_REPLY_ERROR ? reply->str : "a wrong answer");
    if (reply) freeReplyObject(reply);
    return ok;
}

/* Records that are queued when the store is closed are written for a limited time. */
static bool closes_too_late(struct prefix_store *store) {
    struct redis_store *redis = store->redis;
    if (!atomic_load(&store->stopping)) return false;
    if (redis->close_ends_ns == 0) redis->close_ends_ns = now_ns() + CLOSE_NS;
    return now_ns() >= redis->close_ends_ns;
}

static void redis_write(struct prefix_store *store, enum cache_part part, uint64_t slot) {
    struct redis_store *redis = store->redis;
    struct part_store *of = &store->part[part];
    uint8_t *record = of->queue + slot * of->record_bytes;
    bool ok = redis->writer.context && now_ns() >= redis->refused_until_ns && !redis_rests(store) &&
              !closes_too_late(store);
    if (ok) {
        record_seal(store, record);
        ok = set_record(store, part, record);
    }
    if (!ok) {
        store_count_drop(store, DROP_UNAVAILABLE);
        return;
    }
    redis_works(store);
    pthread_mutex_lock(&store->mutex);
    index_set_stored(store, part, slot_head(of, slot)->hash, 0, 0);
    store_count_written(store, part);
    pthread_mutex_unlock(&store->mutex);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Sets read->wanted to the parts to ask for: those that the pool does not know, and that a sequence
 * which starts after more than known_end blocks may need. */
static void choose_asked(const struct prefix_store *store, struct prefix_read *read) {
    const struct prefix_store_config *config = &store->config;
    int first[N_CACHE_PARTS] = {[PART_STATE] = read->known_end};
    if (store->part[PART_WINDOW].is_used)
        first[PART_WINDOW] = window_first_seen(config->window, config->block_size,
                                               (read->known_end + 1) * config->block_size);
    read->n_wanted = 0;
    for (int i = 0; i < read->n_blocks; i++)
        for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
            if (store->part[part].is_used && i >= first[part] &&
                !part_is_in(read->flags[i].known, part))
                read->wanted[read->n_wanted++] = (struct wanted_part){part, i};
    assert(read->n_wanted <= N_CACHE_PARTS * read->n_blocks);
}

/* Notes the answer about a part. */
static void note_answer(struct prefix_store *store, struct prefix_read *read,
                        const struct wanted_part *asked, const redisReply *reply) {
    bool is_stored = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    if (is_stored) {
        read->flags[asked->block].stored |= (uint8_t)(1 << asked->part);
        return;
    }
    pthread_mutex_lock(&store->mutex);
    index_set_stored(store, asked->part, read->hash[asked->block + 1], 0, -1);
    pthread_mutex_unlock(&store->mutex);
}

/* Asks which of the parts the server has. */
static void ask_stored(struct prefix_store *store, struct prefix_read *read) {
    uint64_t began = now_ns();
    choose_asked(store, read);
    for (int i = 0; !read->failed && i < read->n_wanted; i++)
        read->failed = !add_command(store, read, "EXISTS", &read->wanted[i]);
    for (int i = 0; !read->failed && i < read->n_wanted; i++) {
        redisReply *reply = redis_link_reply(read->link, read->deadline_ns);
        read->failed = !reply;
        if (!reply) break;
        note_answer(store, read, &read->wanted[i], reply);
        freeReplyObject(reply);
    }
    if (read->failed) return;
    double ns = (double)(now_ns() - began);
    pthread_mutex_lock(&store->mutex);
    store->ask_ns = store->ask_ns > 0 ? 0.75 * store->ask_ns + 0.25 * ns : ns;
    pthread_mutex_unlock(&store->mutex);
}

/* Computing the blocks of the prompt takes as long; so long may a read take. */
static uint64_t read_limit_ns(const struct prefix_store *store, const struct prefix_read *read) {
    double tokens = (double)(read->n_blocks - read->known_end) * store->config.block_size;
    double limit_ns = read->ns_per_token * tokens;
    if (limit_ns <= 0 || limit_ns > (double)MAX_READ_NS) limit_ns = (double)MAX_READ_NS;
    return limit_ns < (double)MIN_READ_NS ? MIN_READ_NS : (uint64_t)limit_ns;
}

static void redis_end(struct prefix_store *store, struct prefix_read *read) {
    if (read->failed) redis_failed(store, read->link);
    give_link(store, read->link);
}

static bool redis_find(struct prefix_store *store, struct prefix_read *read) {
    read->link = take_link(store);
    if (!read->link) return false;
    read->deadline_ns = now_ns() + read_limit_ns(store, read);
    ask_stored(store, read);
    if (read->failed) redis_end(store, read);
    return !read->failed;
}

/* Appends the part of a reply. Another value than the part's is a miss and is written again. */
static bool use_reply(struct prefix_store *store, struct prefix_read *read, const redisReply *reply,
                      struct restored_prefix *prefix) {
    int i = prefix->n_parts;
    const struct wanted_part *wanted = &read->wanted[i];
    const struct redis_part *of = &store->redis->part[wanted->part];
    const uint8_t *value = (const uint8_t *)reply->str;
    assert(i < read->n_wanted);
    bool is_value = reply->type == REDIS_REPLY_STRING;
    bool whole = is_value && reply->len == of->value_bytes &&
                 memcmp(value, &of->head, sizeof of->head) == 0 &&
                 stored_record_is(store, read, i, value + sizeof of->head);
    if (whole) restored_prefix_add(prefix, read, value + sizeof of->head);
    pthread_mutex_lock(&store->mutex);
    index_set_stored(store, wanted->part, read->hash[wanted->block + 1], 0, whole ? 0 : -1);
    store->stats.dropped[DROP_DAMAGED] += is_value && !whole;
    pthread_mutex_unlock(&store->mutex);
    return whole;
}

/* Returns how many of the next wanted parts are asked for together. */
static int parts_together(const struct prefix_store *store, const struct prefix_read *read,
                          int from) {
    size_t bytes = 0;
    int n = 0;
    for (; n < MAX_GETS && from + n < read->n_wanted; n++) {
        bytes += store->redis->part[read->wanted[from + n].part].value_bytes;
        if (n > 0 && bytes > GETS_BYTES) break;
    }
    return n;
}

/* Asks for the next n parts and appends those before the first that is not usable. Returns true if
 * all were appended. */
static bool get_some(struct prefix_store *store, struct prefix_read *read,
                     struct restored_prefix *prefix, int n) {
    int from = prefix->n_parts;
    bool ok = true;
    for (int i = 0; !read->failed && i < n; i++)
        read->failed = !add_command(store, read, "GET", &read->wanted[from + i]);
    for (int i = 0; !read->failed && i < n; i++) {
        redisReply *reply = redis_link_reply(read->link, read->deadline_ns);
        read->failed = !reply;
        if (!reply) break;
        ok = ok && use_reply(store, read, reply, prefix);
        freeReplyObject(reply);
    }
    return ok && !read->failed;
}

static void redis_get(struct prefix_store *store, struct prefix_read *read,
                      struct restored_prefix *prefix) {
    uint64_t began = now_ns();
    size_t bytes = 0;
    while (prefix->n_parts < read->n_wanted &&
           get_some(store, read, prefix, parts_together(store, read, prefix->n_parts))) {
    }
    for (int i = 0; i < prefix->n_parts; i++)
        bytes += store->part[prefix->part[i].part].record_bytes;
    if (bytes > 0) store_count_read(store, bytes, now_ns() - began);
    if (bytes > 0 && !read->failed) redis_works(store);
}

const struct store_backend store_in_redis = {.open = redis_open,
                                             .close = redis_close,
                                             .write = redis_write,
                                             .tend = redis_tend,
                                             .find = redis_find,
                                             .get = redis_get,
                                             .end = redis_end,
                                             .forgets = true};
