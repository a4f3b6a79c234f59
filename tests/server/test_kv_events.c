/* Events of the prefix cache: batches as MessagePack, the batches that are kept for a replay, and
 * the sockets. tests/e2e/test_kv_events.py subscribes to a whole server. */
#include <check.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/kv_events/internal.h"
#include "support/suite_main.h"

enum { B = 4, N = 600 };
static const uint64_t salt[2];
static struct block_pool pool;
static struct event_ring *ring;
static struct event_batch batch;
static msgpack_unpacked unpacked;

static void setup(void) {
    block_pool_init(&pool, N, B, true);
    ring = event_ring_new(N, B);
    event_ring_observe(ring, &pool);
    event_batch_init(&batch, ring);
    msgpack_unpacked_init(&unpacked);
}

static void teardown(void) {
    msgpack_unpacked_destroy(&unpacked);
    event_batch_free(&batch);
    event_ring_free(ring);
    block_pool_free(&pool);
}

/* Registers a new block of B times `token` after `parent` (-1: none), and returns it. */
static int32_t know(int32_t token, int32_t parent) {
    const int32_t tokens[B] = {token, token, token, token};
    struct block_hash before = parent < 0 ? (struct block_hash){0} : pool.known.block[parent].hash;
    const struct block_key key = {.hash = prefix_hash(before, tokens, B),
                                  .parent_hash = before,
                                  .salt = salt,
                                  .tokens = tokens,
                                  .parent = prefix_cache_id(&pool.known, parent)};
    return block_pool_register(&pool, block_pool_acquire(&pool), &key);
}

/* Makes a batch of the events from `from` on, and unpacks it. Returns its events. */
static msgpack_object_array make(uint64_t from, uint64_t *made) {
    uint64_t n = event_ring_ready(ring);
    event_batch_order(&batch, n);
    *made = event_batch_make(&batch, from, n, 12.5);
    msgpack_unpacked_destroy(&unpacked);
    ck_assert(msgpack_unpack_next(&unpacked, batch.data, batch.length, NULL) ==
              MSGPACK_UNPACK_SUCCESS);
    ck_assert(unpacked.data.type == MSGPACK_OBJECT_ARRAY && unpacked.data.via.array.size == 3);
    const msgpack_object *part = unpacked.data.via.array.ptr;
    ck_assert(part[0].via.f64 == 12.5 && part[2].via.u64 == 0);
    ck_assert(part[1].type == MSGPACK_OBJECT_ARRAY);
    return part[1].via.array;
}

static bool text_is(const msgpack_object *object, const char *text) {
    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == strlen(text) &&
           memcmp(object->via.str.ptr, text, strlen(text)) == 0;
}

static const msgpack_object *member(const msgpack_object *event, const char *name) {
    ck_assert(event->type == MSGPACK_OBJECT_MAP);
    for (uint32_t i = 0; i < event->via.map.size; i++)
        if (text_is(&event->via.map.ptr[i].key, name)) return &event->via.map.ptr[i].val;
    ck_abort_msg("the event has no member %s", name);
    return NULL;
}

static uint64_t hash_at(const msgpack_object *event, uint32_t i) {
    const msgpack_object *hashes = member(event, "block_hashes");
    ck_assert_uint_lt(i, hashes->via.array.size);
    return hashes->via.array.ptr[i].via.u64;
}

START_TEST(a_chain_is_one_event_and_a_branch_begins_another) {
    uint64_t made;
    int32_t a = know(7, -1), b = know(70000, a);
    know(9, a);
    event_ring_end_step(ring);
    msgpack_object_array events = make(0, &made);
    ck_assert_uint_eq(made, 3);
    ck_assert_uint_eq(events.size, 2);
    const msgpack_object *chain = &events.ptr[0], *branch = &events.ptr[1];
    ck_assert(text_is(member(chain, "type"), "BlockStored"));
    ck_assert_uint_eq(hash_at(chain, 0), pool.known.block[a].hash.low);
    ck_assert_uint_eq(hash_at(chain, 1), pool.known.block[b].hash.low);
    ck_assert(member(chain, "parent_block_hash")->type == MSGPACK_OBJECT_NIL);
    ck_assert_uint_eq(member(branch, "parent_block_hash")->via.u64, pool.known.block[a].hash.low);
    msgpack_object_array tokens = member(chain, "token_ids")->via.array;
    ck_assert_uint_eq(tokens.size, 2 * B);
    ck_assert_uint_eq(tokens.ptr[0].via.u64, 7);
    ck_assert_uint_eq(tokens.ptr[2 * B - 1].via.u64, 70000);
    ck_assert_uint_eq(member(chain, "block_size")->via.u64, B);
    ck_assert(text_is(member(chain, "medium"), "GPU"));
    ck_assert(member(chain, "lora_id")->type == MSGPACK_OBJECT_NIL);
}
END_TEST

START_TEST(evicted_blocks_are_removed_in_one_event) {
    uint64_t made;
    int32_t a = know(1, -1), b = know(2, a);
    uint64_t first = pool.known.block[b].hash.low, second = pool.known.block[a].hash.low;
    event_ring_end_step(ring);
    event_ring_consume(ring, 2);
    block_pool_release(&pool, b);
    block_pool_release(&pool, a);
    for (int i = 0; i < N; i++) block_pool_acquire(&pool);
    event_ring_end_step(ring);
    msgpack_object_array events = make(0, &made);
    ck_assert_uint_eq(events.size, 1);
    ck_assert(text_is(member(&events.ptr[0], "type"), "BlockRemoved"));
    ck_assert_uint_eq(hash_at(&events.ptr[0], 0), first);
    ck_assert_uint_eq(hash_at(&events.ptr[0], 1), second);
}
END_TEST

/* The pool hands out its blocks from 0 on. Here a child gets a block before its parent's. */
START_TEST(after_a_restart_parents_come_first) {
    uint64_t made;
    int32_t low = block_pool_acquire(&pool), a = know(1, -1);
    block_pool_release(&pool, low);
    int32_t b = know(2, a);
    ck_assert_int_lt(b, a);
    event_ring_end_step(ring);
    event_ring_consume(ring, 2);
    event_ring_restart(ring);
    event_ring_end_step(ring);
    msgpack_object_array events = make(0, &made);
    ck_assert_uint_eq(made, 3);
    ck_assert_uint_eq(events.size, 2);
    ck_assert(text_is(member(&events.ptr[0], "type"), "AllBlocksCleared"));
    ck_assert_uint_eq(hash_at(&events.ptr[1], 0), pool.known.block[a].hash.low);
    ck_assert_uint_eq(hash_at(&events.ptr[1], 1), pool.known.block[b].hash.low);
}
END_TEST

START_TEST(a_batch_has_a_limit_and_the_next_one_continues_its_chain) {
    uint64_t made, all = 0, hashes = 0, before = 0;
    int32_t last = -1;
    for (int i = 0; i < N; i++) last = know(INT32_MAX - i, last);
    event_ring_end_step(ring);
    while (all < N) {
        msgpack_object_array events = make(all, &made);
        ck_assert_uint_eq(events.size, 1);
        const msgpack_object *parent = member(&events.ptr[0], "parent_block_hash");
        ck_assert(all == 0 ? parent->type == MSGPACK_OBJECT_NIL : parent->via.u64 == before);
        hashes += member(&events.ptr[0], "block_hashes")->via.array.size;
        before = hash_at(&events.ptr[0], (uint32_t)made - 1);
        all += made;
    }
    ck_assert_uint_eq(hashes, N);
}
END_TEST

START_TEST(the_largest_batch_fits_into_its_memory) {
    uint64_t made;
    for (int i = 0; i < N; i++) know(INT32_MAX - i, -1);
    event_ring_end_step(ring);
    msgpack_object_array events = make(0, &made);
    ck_assert_uint_eq(events.size, BATCH_BLOCKS);
    ck_assert_uint_eq(made, BATCH_BLOCKS);
    event_batch_make_cleared(&batch, 1);
    ck_assert_uint_lt(batch.length, 64);
}
END_TEST

/* ---- kept batches --------------------------------------------------------------------------- */

/* Each batch is filled with its number. */
static void check_kept(const struct kept_batches *replay, uint64_t newest) {
    uint64_t oldest = newest + 1 - (uint64_t)replay->n;
    for (int i = 0; i < replay->n; i++) {
        const struct kept_batch *kept = replay_at(replay, i);
        ck_assert_uint_eq(kept->sequence, oldest + (uint64_t)i);
        ck_assert_uint_le(kept->offset + kept->length, KEPT_BYTES);
        char is = (char)kept->sequence;
        ck_assert(replay->data[kept->offset] == is);
        ck_assert(replay->data[kept->offset + kept->length - 1] == is);
    }
}

START_TEST(kept_batches_are_the_newest_and_whole) {
    static char data[8 << 20];
    struct kept_batches replay;
    uint64_t random = 5;
    replay_init(&replay);
    for (uint64_t i = 0; i < 3000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t length = 1 + (random >> 33) % (i % 7 == 0 ? sizeof data : 100000);
        memset(data, (char)i, length);
        replay_add(&replay, i, data, length);
        if (i % 5 == 0) check_kept(&replay, i);
    }
    ck_assert_int_gt(replay.n, 2);
    replay_free(&replay);
}
END_TEST

START_TEST(kept_batches_are_limited_in_number_and_found_by_number) {
    struct kept_batches replay;
    replay_init(&replay);
    ck_assert_int_eq(replay_find(&replay, 0), 0);
    for (uint64_t i = 0; i < KEPT_BATCHES + 50; i++) {
        char data = (char)i;
        replay_add(&replay, i, &data, 1);
    }
    ck_assert_int_eq(replay.n, KEPT_BATCHES);
    check_kept(&replay, KEPT_BATCHES + 49);
    ck_assert_int_eq(replay_find(&replay, 0), 0);
    ck_assert_int_eq(replay_find(&replay, 50), 0);
    ck_assert_int_eq(replay_find(&replay, 51), 1);
    ck_assert_int_eq(replay_find(&replay, KEPT_BATCHES + 50), KEPT_BATCHES);
    ck_assert_int_eq(replay_find(&replay, UINT64_MAX), KEPT_BATCHES);
    replay_free(&replay);
}
END_TEST

/* ---- sockets -------------------------------------------------------------------------------- */

static void check_refused(const char *endpoint, const char *replay, enum status status,
                          const char *text) {
    const struct kv_events_config config = {endpoint, replay, NULL, 10, 16};
    struct kv_events *events;
    struct err err;
    ck_assert_int_eq(kv_events_open(&events, &config, &err), status);
    ck_assert_ptr_null(events);
    ck_assert_msg(strstr(err.message, text), "%s", err.message);
}

START_TEST(endpoints_that_cannot_be_bound_are_refused_by_name) {
    check_refused("http://127.0.0.1:1", NULL, STATUS_USAGE, "--kv-events must be tcp://HOST:PORT");
    check_refused("tcp://127.0.0.1", NULL, STATUS_USAGE, "--kv-events must be tcp://HOST:PORT");
    check_refused("tcp://127.0.0.1:99999", NULL, STATUS_USAGE, "a port up to 65535");
    check_refused("tcp://:", NULL, STATUS_USAGE, "a port up to 65535");
    check_refused("tcp://no.such.host.invalid:1", NULL, STATUS_SYSTEM, "cannot be bound");
    check_refused("tcp://192.0.2.1:5557", NULL, STATUS_SYSTEM, "cannot be bound");
    check_refused("tcp://127.0.0.1:*", "ipc://x", STATUS_USAGE, "--kv-events-replay must be");
    check_refused("tcp://127.0.0.1:*", "tcp://127.0.0.1:x", STATUS_USAGE, "--kv-events-replay");
}
END_TEST

static void count_wake(void *arg) {
    (*(_Atomic int *)arg)++;
}

START_TEST(sources_are_an_object_by_rank) {
    const struct kv_events_config config = {"tcp://127.0.0.1:*", NULL, "a\"b", 10, 16};
    _Atomic int n_wakes = 0;
    struct kv_events *events;
    struct err err;
    struct buf out = {0};
    kv_events_write_sources(NULL, &out);
    ck_assert_str_eq(out.data, "{}");
    out.length = 0;
    ck_assert_int_eq(kv_events_open(&events, &config, &err), STATUS_OK);
    ck_assert_int_eq(kv_events_start(events, count_wake, &n_wakes, &err), STATUS_OK);
    kv_events_write_sources(events, &out);
    ck_assert_msg(strncmp(out.data, "{\"0\":{\"endpoint\":\"tcp://127.0.0.1:", 33) == 0, "%s",
                  out.data);
    ck_assert_ptr_nonnull(strstr(out.data, "\",\"replay_endpoint\":null,\"topic\":\"a\\\"b\"}}"));
    kv_events_stop(events);
    kv_events_close(events);
    ck_assert_int_eq(n_wakes, 0);
    buf_free(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_kv_events");
    TCase *batches = tcase_create("batches"), *others = tcase_create("others");
    tcase_add_checked_fixture(batches, setup, teardown);
    tcase_add_test(batches, a_chain_is_one_event_and_a_branch_begins_another);
    tcase_add_test(batches, evicted_blocks_are_removed_in_one_event);
    tcase_add_test(batches, after_a_restart_parents_come_first);
    tcase_add_test(batches, a_batch_has_a_limit_and_the_next_one_continues_its_chain);
    tcase_add_test(batches, the_largest_batch_fits_into_its_memory);
    tcase_add_test(others, kept_batches_are_the_newest_and_whole);
    tcase_add_test(others, kept_batches_are_limited_in_number_and_found_by_number);
    tcase_add_test(others, endpoints_that_cannot_be_bound_are_refused_by_name);
    tcase_add_test(others, sources_are_an_object_by_rank);
    tcase_set_timeout(batches, 60);
    tcase_set_timeout(others, 60);
    suite_add_tcase(suite, batches);
    suite_add_tcase(suite, others);
    return suite_main(suite);
}
