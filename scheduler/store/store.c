#include <assert.h>
#include <errno.h>
#include <string.h>

#include "config/config.h"
#include "scheduler/store/internal.h"

#define QUEUE_BYTES ((size_t)64 << 20) /* of the queues of all parts, unless a record is large */
enum { MIN_SLOTS = 4, MAX_SLOTS = 256, SEGMENTS_OF_LIMIT = 16 };
enum { MAX_RECORDS = 1 << 20 }; /* in the index of a folder: 128 MiB; others are not found */
enum { TRIES_AGAIN = 16 };      /* one of this many reads that seem slow is measured */

/* ---- opening --------------------------------------------------------------------------------- */

static void set_part(struct prefix_store *store, enum cache_part part) {
    const struct prefix_store_config *config = &store->config;
    struct part_store *of = &store->part[part];
    of->is_used = part == PART_BLOCK || config->part_bytes[part] > 0;
    of->writing = of->direct_fd = -1;
    if (!of->is_used) return;
    of->record_bytes = record_size(config->block_size, config->part_bytes[part]);
    int64_t segment = config->max_bytes / SEGMENTS_OF_LIMIT, record = (int64_t)of->record_bytes;
    if (segment < SEGMENT_HEAD + record) segment = SEGMENT_HEAD + record;
    if (segment > (int64_t)1 << 30) segment = (int64_t)1 << 30;
    of->segment_bytes = segment;
    of->n_slots = QUEUE_BYTES / N_CACHE_PARTS / of->record_bytes;
    if (of->n_slots < MIN_SLOTS) of->n_slots = MIN_SLOTS;
    if (of->n_slots > MAX_SLOTS) of->n_slots = MAX_SLOTS;
}

/* Records are written by one thread, those of a part in the order of its queue. A record that is
 * stored by now is not written. */
static void write_next(struct prefix_store *store, enum cache_part part) {
    struct part_store *of = &store->part[part];
    uint64_t tail = atomic_load(&of->tail), slot = tail % of->n_slots;
    assert(tail != atomic_load(&of->head));
    pthread_mutex_lock(&store->mutex);
    bool is_stored = store_index_find(store, part, slot_head(of, slot)->hash) != NULL;
    pthread_mutex_unlock(&store->mutex);
    if (!is_stored) store->backend->write(store, part, slot);
    atomic_store(&of->tail, tail + 1);
}

/* A batch thread that wakes up does not preempt a computing thread. If the system refuses the
 * setting, only speed is lost. */
static void *writer_thread(void *arg) {
    struct prefix_store *store = arg;
    const struct sched_param none = {0};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    for (;;) {
        while (sem_wait(&store->filled) != 0) assert(errno == EINTR);
        if (store->backend->tend && !atomic_load(&store->stopping)) store->backend->tend(store);
        enum cache_part part = PART_BLOCK;
        while (part < N_CACHE_PARTS &&
               atomic_load(&store->part[part].tail) == atomic_load(&store->part[part].head))
            part++;
        if (part < N_CACHE_PARTS)
            write_next(store, part);
        else if (atomic_load(&store->stopping))
            return NULL;
    }
}

/* Returns the number of records that fit into the limit, at most MAX_RECORDS. */
static size_t most_records(const struct prefix_store *store) {
    size_t most = 0;
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++) {
        if (!store->part[part].is_used) continue;
        size_t n = (size_t)store->config.max_bytes / store->part[part].record_bytes;
        most = n > most ? n : most;
    }
    return most < MAX_RECORDS ? most : MAX_RECORDS;
}

static void allocate(struct prefix_store *store) {
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++) set_part(store, part);
    index_init(store, store->backend->forgets ? 0 : most_records(store));
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++) {
        struct part_store *of = &store->part[part];
        if (of->is_used) of->queue = mem_large((size_t)of->n_slots * of->record_bytes);
    }
}

/* The least limit of the files: two segments of a record for each part, so that one of any part can
 * be removed while the others are written. */
static int64_t least_bytes(const struct prefix_store_config *config) {
    int64_t bytes = 0;
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
        if (part == PART_BLOCK || config->part_bytes[part] > 0)
            bytes +=
                SEGMENT_HEAD + (int64_t)record_size(config->block_size, config->part_bytes[part]);
    return 2 * bytes;
}

enum status prefix_store_open(struct prefix_store **out, const struct prefix_store_config *config,
                              struct err *err) {
    bool is_redis = store_is_redis(config->place);
    *out = NULL;
    assert(config->n_blocks > 0 && config->block_size > 0);
    assert(config->part_bytes[PART_WINDOW] == 0 || config->window > 0);
    if (!is_redis && config->max_bytes < least_bytes(config))
        return err_set(err, STATUS_USAGE, NULL,
                       "--prefix-store-size must be at least %lld: two blocks of this model",
                       (long long)least_bytes(config));
    struct prefix_store *store = mem_calloc(1, sizeof *store);
    store->backend = is_redis ? &store_in_redis : &store_in_files;
    store->config = *config;
    store->place = mem_strdup(config->place);
    store->stats.is_up = true;
    pthread_mutex_init(&store->mutex, NULL);
    sem_init(&store->filled, 0, 0);
    allocate(store);
    enum status status = store->backend->open(store, err);
    if (status == STATUS_OK && pthread_create(&store->thread, NULL, writer_thread, store) != 0)
        status = err_set(err, STATUS_SYSTEM, NULL, "The thread of --prefix-store cannot start.");
    if (status == STATUS_OK) {
        *out = store;
        return STATUS_OK;
    }
    store->thread = pthread_self();
    prefix_store_close(store);
    return status;
}

void prefix_store_close(struct prefix_store *store) {
    if (!store) return;
    bool runs = !pthread_equal(store->thread, pthread_self());
    assert(atomic_load(&store->reading_bytes) == 0);
    atomic_store(&store->stopping, true);
    sem_post(&store->filled);
    if (runs) pthread_join(store->thread, NULL);
    store->backend->close(store);
    sem_destroy(&store->filled);
    pthread_mutex_destroy(&store->mutex);
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++) {
        struct part_store *of = &store->part[part];
        if (of->queue) mem_large_free(of->queue, (size_t)of->n_slots * of->record_bytes);
    }
    mem_free(store->index);
    mem_free(store->spare);
    mem_free(store->place);
    mem_free(store);
}

const char *prefix_store_name(const struct prefix_store *store) {
    return store->place;
}

void prefix_store_stats(struct prefix_store *store, struct prefix_store_stats *out) {
    pthread_mutex_lock(&store->mutex);
    *out = store->stats;
    out->n_records = store->n_stored;
    out->n_bytes = store->bytes;
    pthread_mutex_unlock(&store->mutex);
}

size_t prefix_store_memory(const struct prefix_store *store) {
    size_t bytes = 0;
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
        bytes += (size_t)store->part[part].n_slots * store->part[part].record_bytes;
    return bytes;
}

/* ---- engine thread --------------------------------------------------------------------------- */

void prefix_store_note(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                       bool is_known) {
    assert(store->part[part].is_used);
    pthread_mutex_lock(&store->mutex);
    index_note(store, part, hash, is_known);
    pthread_mutex_unlock(&store->mutex);
}

void *prefix_store_reserve(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                           struct block_hash parent, const int32_t *tokens) {
    struct part_store *of = &store->part[part];
    uint64_t head = atomic_load(&of->head);
    assert(of->is_used);
    pthread_mutex_lock(&store->mutex);
    bool is_stored = store_index_find(store, part, hash) != NULL;
    bool is_full = !is_stored && head - atomic_load(&of->tail) == of->n_slots;
    store->stats.dropped[DROP_QUEUE_FULL] += is_full;
    pthread_mutex_unlock(&store->mutex);
    if (is_stored || is_full) return NULL;
    uint8_t *record = of->queue + head % of->n_slots * of->record_bytes;
    struct record_head *at = (struct record_head *)(void *)record;
    *at = (struct record_head){.part = (uint64_t)part, .hash = hash, .parent = parent};
    memcpy(record_tokens(record), tokens, (size_t)store->config.block_size * sizeof *tokens);
    return record + record_content_at(store);
}

void prefix_store_put(struct prefix_store *store, enum cache_part part) {
    struct part_store *of = &store->part[part];
    assert(atomic_load(&of->head) - atomic_load(&of->tail) < of->n_slots);
    atomic_fetch_add(&of->head, 1);
    sem_post(&store->filled);
}

/* ---- counts: any thread ---------------------------------------------------------------------- */

void store_count_drop(struct prefix_store *store, enum store_drop reason) {
    pthread_mutex_lock(&store->mutex);
    store->stats.dropped[reason]++;
    pthread_mutex_unlock(&store->mutex);
}

void store_count_error(struct prefix_store *store) {
    pthread_mutex_lock(&store->mutex);
    store->stats.n_errors++;
    store->stats.is_up = false;
    pthread_mutex_unlock(&store->mutex);
}

void store_count_written(struct prefix_store *store, enum cache_part part) {
    store->stats.n_written++;
    store->stats.bytes_written += store->part[part].record_bytes;
    store->stats.is_up = true;
}

void store_count_read(struct prefix_store *store, size_t bytes, uint64_t ns) {
    double each = (double)ns / (double)bytes;
    assert(bytes > 0);
    pthread_mutex_lock(&store->mutex);
    store->ns_per_byte = store->ns_per_byte > 0 ? 0.75 * store->ns_per_byte + 0.25 * each : each;
    store->stats.bytes_read += bytes;
    pthread_mutex_unlock(&store->mutex);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Is reading all parts that the pool lacks expected to take longer than computing their tokens?
 * Sometimes the answer is false in any case, so that the rate is measured again. */
static bool is_slow(struct prefix_store *store, const struct prefix_read *read) {
    double bytes = (double)want_most_bytes(store, read);
    double tokens = (double)(read->n_blocks - read->known_end) * store->config.block_size;
    pthread_mutex_lock(&store->mutex);
    bool slow = read->ns_per_token > 0 &&
                store->ask_ns + store->ns_per_byte * bytes > read->ns_per_token * tokens;
    if (slow && ++store->n_refusals >= TRIES_AGAIN) slow = false;
    if (!slow) store->n_refusals = 0;
    pthread_mutex_unlock(&store->mutex);
    return slow;
}

/* Sets the hashes of the blocks and the parts that the pool knows. */
static void set_known(struct prefix_store *store, struct prefix_read *read) {
    int size = store->config.block_size;
    for (int i = 0; i < read->n_blocks; i++)
        read->hash[i + 1] =
            prefix_hash(read->hash[i], read->tokens + (size_t)i * (size_t)size, size);
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < read->n_blocks; i++)
        for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
            if (store->part[part].is_used && index_is_known(store, part, read->hash[i + 1]))
                read->flags[i].known |= (uint8_t)(1 << part);
    pthread_mutex_unlock(&store->mutex);
    read->known_end = want_end(store, read, false);
}

/* Returns the wanted parts, as far as they can be read. */
static struct restored_prefix *read_wanted(struct prefix_store *store, struct prefix_read *read) {
    struct restored_prefix *prefix = NULL;
    if (is_slow(store, read) || !store->backend->find(store, read)) return NULL;
    want_parts(store, read);
    if (read->n_wanted > 0) prefix = restored_prefix_new(store, read);
    if (prefix) {
        store->backend->get(store, read, prefix);
        prefix = restored_prefix_end(prefix, read);
    }
    if (store->backend->end) store->backend->end(store, read);
    return prefix;
}

/* Counts the blocks that the pool did not know. */
static void count_blocks(struct prefix_store *store, const struct prefix_read *read,
                         const struct restored_prefix *prefix) {
    int n_known = 0, n_hits = 0;
    while (n_known < read->n_blocks && part_is_in(read->flags[n_known].known, PART_BLOCK))
        n_known++;
    for (int i = 0; prefix && i < prefix->n_parts; i++)
        n_hits += prefix->part[i].part == PART_BLOCK;
    assert(n_known + n_hits <= read->n_blocks);
    pthread_mutex_lock(&store->mutex);
    store->stats.n_hits += (uint64_t)n_hits;
    store->stats.n_misses += (uint64_t)(read->n_blocks - n_known - n_hits);
    pthread_mutex_unlock(&store->mutex);
}

struct restored_prefix *prefix_store_read(struct prefix_store *store, const int32_t *tokens,
                                          int n_tokens, double ns_per_token) {
    size_t n = (size_t)(n_tokens / store->config.block_size);
    struct restored_prefix *prefix = NULL;
    if (n == 0) return NULL;
    struct prefix_read read = {.tokens = tokens, .n_blocks = (int)n, .ns_per_token = ns_per_token};
    read.hash = mem_try_calloc(n + 1, sizeof *read.hash);
    read.flags = mem_try_calloc(n, sizeof *read.flags);
    read.wanted = mem_try_calloc(N_CACHE_PARTS * n, sizeof *read.wanted);
    if (read.hash && read.flags && read.wanted) {
        set_known(store, &read);
        if (read.known_end < read.n_blocks) prefix = read_wanted(store, &read);
        count_blocks(store, &read, prefix);
    }
    mem_free(read.hash);
    mem_free(read.flags);
    mem_free(read.wanted);
    return prefix;
}
