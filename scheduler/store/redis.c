/* Records in a server that speaks Redis's protocol.
 *
 * DESIGN. The value of a block is the head of a segment and a record, so the same checks hold as in
 * files. Its key is penstock:IDENTITY:HASH, in hexadecimal digits.
 *
 *     writer thread   connects: one link for itself and one for each worker; SET
 *     worker          takes a free link -> EXISTS for all blocks -> GET for the stored ones
 *
 * Workers never connect, because a query of the name service cannot be limited. A worker without a
 * link wakes the writer thread and reads nothing. A read ends at the latest when computing would
 * have ended: the blocks up to then are used. After an error all links are closed after their use
 * and nothing is sent for `rest_ns`, which doubles up to MAX_REST_NS; a record that is read or
 * written sets it back. A server that refuses to write, because its memory is full, is still read.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

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

struct redis_store {
    struct redis_address address;
    struct segment_head head; /* before each record */
    char prefix[48];          /* of all keys */
    /* guarded by the store's mutex: */
    struct redis_link reader[N_READERS];
    uint64_t rest_ns, rests_until_ns; /* rest_ns 0: all is well */
    uint64_t generation;              /* of links: a failure begins another one */
    bool is_wanted;                   /* a worker lacked a link */
    /* writer thread: */
    struct redis_link writer;
    uint8_t *value;            /* [value_bytes] */
    uint64_t refused_until_ns; /* the server has refused a record: none is sent until then */
    uint64_t close_ends_ns;    /* 0: not closing */
    size_t value_bytes;
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
    link->max_bytes = MAX_GETS * store->redis->value_bytes;
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

static void make_prefix(struct redis_store *redis) {
    const XXH128_hash_t all = XXH3_128bits(&redis->head, sizeof redis->head);
    snprintf(redis->prefix, sizeof redis->prefix,
             "penstock:%016llx%016llx:", (unsigned long long)all.high64,
             (unsigned long long)all.low64);
}

static enum status redis_open(struct prefix_store *store, struct err *err) {
    struct redis_address address;
    struct buf name = {0};
    if (redis_address_parse(&address, store->place, err)) return err->status;
    struct redis_store *redis = mem_calloc(1, sizeof *redis);
    redis->address = address;
    redis->head = store_segment_head(store);
    redis->value_bytes = sizeof redis->head + store->record_bytes;
    redis->value = mem_alloc(redis->value_bytes);
    make_prefix(redis);
    store->redis = redis;
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

static int write_key(const struct redis_store *redis, struct block_hash hash, char out[KEY_TEXT]) {
    return snprintf(out, KEY_TEXT, "%s%016llx%016llx", redis->prefix, (unsigned long long)hash.high,
                    (unsigned long long)hash.low);
}

static bool add_command(struct prefix_store *store, struct redis_link *link, const char *name,
                        struct block_hash hash) {
    char key[KEY_TEXT];
    size_t length[2] = {strlen(name), (size_t)write_key(store->redis, hash, key)};
    const char *argument[2] = {name, key};
    return redis_link_add(link, 2, argument, length);
}

/* The server has refused a record: its memory is full, or it may not be written. */
static void redis_refused(struct prefix_store *store, const char *why) {
    log_line(LOG_WARNING, "prefix store: %s refuses records: %s; trying again in a minute",
             store->place, why);
    store->redis->refused_until_ns = now_ns() + REFUSED_NS;
    store_count_error(store);
}

/* Sends SET with the record of a slot. */
static bool set_record(struct prefix_store *store, struct block_hash hash, const uint8_t *record) {
    struct redis_store *redis = store->redis;
    char key[KEY_TEXT];
    size_t length[3] = {3, (size_t)write_key(redis, hash, key), redis->value_bytes};
    const char *argument[3] = {"SET", key, (const char *)redis->value};
    memcpy(redis->value, &redis->head, sizeof redis->head);
    memcpy(redis->value + sizeof redis->head, record, store->record_bytes);
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

static void redis_write(struct prefix_store *store, uint64_t slot) {
    struct redis_store *redis = store->redis;
    uint8_t *record = store->queue + slot * store->record_bytes;
    const struct block_hash hash = slot_head(store, slot)->hash;
    bool ok = redis->writer.context && now_ns() >= redis->refused_until_ns && !redis_rests(store) &&
              !closes_too_late(store);
    if (ok) {
        record_seal(store, record);
        ok = set_record(store, hash, record);
    }
    if (!ok) {
        store_count_drop(store, DROP_UNAVAILABLE);
        return;
    }
    redis_works(store);
    pthread_mutex_lock(&store->mutex);
    index_set_stored(store, hash, true);
    store_count_written(store);
    pthread_mutex_unlock(&store->mutex);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The blocks of a prompt that a worker reads. */
struct redis_read {
    struct prefix_store *store;
    struct redis_link *link;
    const int32_t *tokens;
    struct block_hash *hash; /* [n + 1] the first is the parent of the others */
    int first, n;            /* n blocks that the pool does not know, from `first` */
    uint64_t deadline_ns;
    bool failed; /* the link */
};

/* Finds the first block that the pool does not know. */
static void find_first(struct redis_read *read, int n_blocks) {
    struct prefix_store *store = read->store;
    struct block_hash parent = {0};
    int size = store->config.block_size;
    bool known = true;
    read->first = n_blocks;
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < n_blocks; i++) {
        struct block_hash hash = prefix_hash(parent, read->tokens + i * size, size);
        if (known && !index_is_known(store, hash)) {
            known = false;
            read->first = i;
            read->hash[0] = parent;
        }
        if (!known) read->hash[++read->n] = hash;
        parent = hash;
    }
    pthread_mutex_unlock(&store->mutex);
    assert(read->first + read->n == n_blocks);
}

/* Returns the number of the first blocks that the server has. */
static int ask_stored(struct redis_read *read) {
    struct prefix_store *store = read->store;
    uint64_t began = now_ns();
    int n_stored = 0;
    for (int i = 1; !read->failed && i <= read->n; i++)
        read->failed = !add_command(store, read->link, "EXISTS", read->hash[i]);
    for (int i = 0; !read->failed && i < read->n; i++) {
        redisReply *reply = redis_link_reply(read->link, read->deadline_ns);
        read->failed = !reply;
        if (!reply) break;
        if (n_stored == i && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1) n_stored++;
        freeReplyObject(reply);
    }
    if (read->failed) return 0;
    double ns = (double)(now_ns() - began);
    pthread_mutex_lock(&store->mutex);
    store->ask_ns = store->ask_ns > 0 ? 0.75 * store->ask_ns + 0.25 * ns : ns;
    for (int i = n_stored; i < read->n; i++) index_set_stored(store, read->hash[i + 1], false);
    pthread_mutex_unlock(&store->mutex);
    return n_stored;
}

/* Appends the block of a reply. Another value than the block's is a miss and is written again. */
static bool use_reply(struct redis_read *read, const redisReply *reply,
                      struct restored_blocks *blocks) {
    struct prefix_store *store = read->store;
    const struct redis_store *redis = store->redis;
    int i = blocks->n, size = store->config.block_size;
    const uint8_t *value = (const uint8_t *)reply->str;
    assert(i < read->n);
    bool is_value = reply->type == REDIS_REPLY_STRING;
    bool whole = is_value && reply->len == redis->value_bytes &&
                 memcmp(value, &redis->head, sizeof redis->head) == 0 &&
                 stored_record_is(store, value + sizeof redis->head, read->hash[i + 1],
                                  read->hash[i], read->tokens + (read->first + i) * size);
    if (whole) restored_blocks_add(blocks, value + sizeof redis->head);
    pthread_mutex_lock(&store->mutex);
    index_set_stored(store, read->hash[i + 1], whole);
    store->stats.dropped[DROP_DAMAGED] += is_value && !whole;
    pthread_mutex_unlock(&store->mutex);
    return whole;
}

/* Asks for the next n blocks and appends those before the first that is not usable. Returns true if
 * all were appended. */
static bool get_some(struct redis_read *read, struct restored_blocks *blocks, int n) {
    int from = blocks->n;
    bool ok = true;
    for (int i = 1; !read->failed && i <= n; i++)
        read->failed = !add_command(read->store, read->link, "GET", read->hash[from + i]);
    for (int i = 0; !read->failed && i < n; i++) {
        redisReply *reply = redis_link_reply(read->link, read->deadline_ns);
        read->failed = !reply;
        if (!reply) break;
        ok = ok && use_reply(read, reply, blocks);
        freeReplyObject(reply);
    }
    return ok && !read->failed;
}

static void get_blocks(struct redis_read *read, struct restored_blocks *blocks, int n) {
    struct prefix_store *store = read->store;
    uint64_t began = now_ns();
    size_t fit = GETS_BYTES / store->redis->value_bytes;
    int each = fit < 1 ? 1 : fit > MAX_GETS ? MAX_GETS : (int)fit;
    while (blocks->n < n && get_some(read, blocks, n - blocks->n < each ? n - blocks->n : each)) {
    }
    if (blocks->n > 0) store_count_read(store, blocks->n, now_ns() - began);
    if (blocks->n > 0 && !read->failed) redis_works(store);
}

static struct restored_blocks *read_blocks(struct redis_read *read) {
    struct prefix_store *store = read->store;
    struct restored_blocks *blocks = NULL;
    int n = ask_stored(read);
    if (n > 0) blocks = restored_blocks_new(store, read->first, n);
    if (blocks) {
        get_blocks(read, blocks, n);
        blocks = restored_blocks_end(blocks, n);
    }
    if (read->failed) redis_failed(store, read->link);
    return blocks;
}

static struct restored_blocks *redis_read(struct prefix_store *store, const int32_t *tokens,
                                          int n_blocks, double ns_per_token) {
    struct redis_read read = {.store = store, .tokens = tokens};
    struct restored_blocks *blocks = NULL;
    read.hash = mem_try_calloc((size_t)n_blocks + 1, sizeof *read.hash);
    if (!read.hash) return NULL;
    find_first(&read, n_blocks);
    double limit_ns = ns_per_token * (double)read.n * (double)store->config.block_size;
    if (limit_ns <= 0 || limit_ns > (double)MAX_READ_NS) limit_ns = (double)MAX_READ_NS;
    if (limit_ns < (double)MIN_READ_NS) limit_ns = (double)MIN_READ_NS;
    if (read.n > 0 && !store_is_slow(store, read.n, ns_per_token)) read.link = take_link(store);
    if (read.link) {
        read.deadline_ns = now_ns() + (uint64_t)limit_ns;
        blocks = read_blocks(&read);
        give_link(store, read.link);
    }
    store_count_misses(store, read.n - (blocks ? blocks->n : 0));
    mem_free(read.hash);
    return blocks;
}

const struct store_backend store_in_redis = {.open = redis_open,
                                             .close = redis_close,
                                             .write = redis_write,
                                             .tend = redis_tend,
                                             .read = redis_read,
                                             .has_known = true};
