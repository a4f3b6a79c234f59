/* The store of prefixes in a server that speaks Redis's protocol: a real redis-server, a proxy that
 * holds its answers back, and servers that answer nonsense. tests/e2e/test_redis_store.py has it in
 * whole servers. */
#include <arpa/inet.h>
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "config/config.h"
#include "scheduler/store/internal.h"
#include "scheduler/store/redis_link.h"
#include "support/suite_main.h"

enum { B = 4, BYTES = 1000, N = 12, MS = 1000000 };
static int32_t text[N * B];
static char redis_port[8], place[128];
static pid_t redis_process;
static redisContext *admin;
static struct prefix_store *store;

/* ---- a real server --------------------------------------------------------------------------- */

/* Returns a socket that listens on a free port of 127.0.0.1. */
static int listen_free(int *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 32) == 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void start_redis(void) {
    redis_process = fork();
    if (redis_process == 0) {
        execlp("redis-server", "redis-server", "--port", redis_port, "--bind", "127.0.0.1",
               "--save", "", "--appendonly", "no", "--loglevel", "warning", "--dir", "/tmp",
               (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 500; i++) {
        admin = redisConnect("127.0.0.1", atoi(redis_port));
        if (admin && !admin->err) return;
        redisFree(admin);
        usleep(10000);
    }
    ck_abort_msg("redis-server does not start (apt install redis-server)");
}

static void stop_redis(void) {
    redisFree(admin);
    kill(redis_process, SIGKILL);
    waitpid(redis_process, NULL, 0);
}

static void suite_setup(void) {
    int port;
    signal(SIGPIPE, SIG_IGN);
    close(listen_free(&port));
    snprintf(redis_port, sizeof redis_port, "%d", port);
    start_redis();
}

/* Runs a command with one or two words after its name. */
static void run_command(const char *name, const char *first, const char *second) {
    char line[200];
    snprintf(line, sizeof line, "%s %s%s%s", name, first, second ? " " : "", second ? second : "");
    redisReply *reply = redisCommand(admin, line);
    ck_assert_msg(reply && reply->type != REDIS_REPLY_ERROR, "%s", reply ? reply->str : "gone");
    freeReplyObject(reply);
}

/* ---- the store ------------------------------------------------------------------------------- */

static struct prefix_store *open_at(const char *where, uint64_t identity) {
    struct prefix_store *opened;
    struct err err;
    const struct prefix_store_config config = {where, 0, {identity, 2}, 2 * N, B, 0, {BYTES}};
    ck_assert_msg(prefix_store_open(&opened, &config, &err) == STATUS_OK, "%s", err.message);
    return opened;
}

static void setup(void) {
    for (int i = 0; i < N * B; i++) text[i] = i * 31 % 97;
    run_command("FLUSHALL", "SYNC", NULL);
    snprintf(place, sizeof place, "redis://127.0.0.1:%s", redis_port);
    store = open_at(place, 1);
}

static void teardown(void) {
    prefix_store_close(store);
}

static void fill(uint8_t *content, int i) {
    for (int k = 0; k < BYTES; k++) content[k] = (uint8_t)(i * 7 + k);
}

static struct block_hash hash_before(int block) {
    struct block_hash hash = {0};
    for (int i = 0; i < block; i++) hash = prefix_hash(hash, text + i * B, B);
    return hash;
}

/* Offers blocks from..to-1 of the text, as the scheduler does, and waits for the writer. */
static void offer(struct prefix_store *to_store, int from, int to) {
    for (int i = from; i < to; i++) {
        uint8_t *content = prefix_store_reserve(to_store, PART_BLOCK, hash_before(i + 1),
                                                hash_before(i), text + i * B);
        if (content) {
            fill(content, i);
            prefix_store_put(to_store, PART_BLOCK);
        }
        prefix_store_note(to_store, PART_BLOCK, hash_before(i + 1), true);
    }
    while (atomic_load(&to_store->part[PART_BLOCK].tail) <
           atomic_load(&to_store->part[PART_BLOCK].head))
        usleep(500);
}

/* Reads the blocks of the text and checks their bytes. Returns their number. */
static int read_at(struct prefix_store *from, int *first, double ns_per_token) {
    struct restored_prefix *prefix = prefix_store_read(from, text, N * B, ns_per_token);
    uint8_t expected[BYTES];
    int n = prefix ? prefix->n_parts : 0;
    if (first) *first = prefix ? prefix->part[0].block : -1;
    for (int i = 0; i < n; i++) {
        const struct restored_part *part = &prefix->part[i];
        ck_assert(part->part == PART_BLOCK && part->block == prefix->part[0].block + i);
        fill(expected, part->block);
        ck_assert_mem_eq(part->content, expected, BYTES);
    }
    restored_prefix_free(prefix);
    return n;
}

static int read_back(struct prefix_store *from) {
    return read_at(from, NULL, 0);
}

static struct prefix_store_stats stats_of(struct prefix_store *of) {
    struct prefix_store_stats stats;
    prefix_store_stats(of, &stats);
    return stats;
}

START_TEST(two_stores_share_their_blocks) {
    struct prefix_store *other = open_at(place, 1);
    int first;
    offer(store, 0, 8);
    ck_assert_int_eq(read_back(other), 8);
    offer(other, 0, 3); /* stored: not written again */
    ck_assert_uint_eq(stats_of(other).n_written, 0);
    ck_assert_int_eq(read_at(other, &first, 0), 5);
    ck_assert_int_eq(first, 3);
    offer(other, 8, 10);
    for (int i = 10; i > 0; i--) prefix_store_note(other, PART_BLOCK, hash_before(i), false);
    ck_assert_int_eq(read_at(other, &first, 0), 10);
    ck_assert_int_eq(first, 0);
    const struct prefix_store_stats stats = stats_of(other);
    ck_assert_uint_eq(stats.n_hits, 8 + 5 + 10);
    ck_assert_uint_eq(stats.n_misses, 4 + 4 + 2);
    ck_assert_uint_eq(stats.bytes_read, 23 * other->part[PART_BLOCK].record_bytes);
    ck_assert_uint_eq(stats.bytes_written, 2 * other->part[PART_BLOCK].record_bytes);
    ck_assert(stats.is_up && stats.n_errors == 0);
    prefix_store_close(other);
}
END_TEST

START_TEST(another_identity_or_prefix_is_a_miss) {
    struct prefix_store *other = open_at(place, 9);
    offer(store, 0, 5);
    ck_assert_int_eq(read_back(other), 0);
    prefix_store_close(other);
    other = open_at(place, 1);
    text[3 * B]++;
    ck_assert_int_eq(read_back(other), 3);
    prefix_store_close(other);
}
END_TEST

START_TEST(a_flushed_server_gets_the_blocks_again) {
    struct prefix_store *other = open_at(place, 1);
    offer(store, 0, 5);
    ck_assert_int_eq(read_back(other), 5);
    run_command("FLUSHALL", "SYNC", NULL);
    ck_assert_int_eq(read_back(other), 0);
    offer(other, 0, 5); /* it has computed them */
    ck_assert_uint_eq(stats_of(other).n_written, 5);
    for (int i = 0; i < 5; i++) prefix_store_note(store, PART_BLOCK, hash_before(i + 1), false);
    ck_assert_int_eq(read_back(store), 5);
    prefix_store_close(other);
}
END_TEST

/* ---- window blocks and states ---------------------------------------------------------------- */

/* A row sees the last 6 positions: those of two blocks, or of three. */
static struct prefix_store *open_parts(void) {
    struct prefix_store *opened;
    struct err err;
    const struct prefix_store_config config = {place, 0, {1, 2}, 2 * N, B, 6, {BYTES, 600, 50000}};
    ck_assert_msg(prefix_store_open(&opened, &config, &err) == STATUS_OK, "%s", err.message);
    return opened;
}

static void offer_part(struct prefix_store *to, enum cache_part part, int block, size_t bytes) {
    uint8_t *content = prefix_store_reserve(to, part, hash_before(block + 1), hash_before(block),
                                            text + block * B);
    ck_assert_ptr_nonnull(content);
    memset(content, 10 * (int)part + block, bytes);
    prefix_store_put(to, part);
    while (atomic_load(&to->part[part].tail) < atomic_load(&to->part[part].head)) usleep(500);
}

/* Reads the text and checks the parts and their bytes. */
static void expect_parts(struct prefix_store *from, int n_blocks, int n_parts) {
    struct restored_prefix *prefix = prefix_store_read(from, text, N * B, 0);
    ck_assert_int_eq(prefix ? prefix->n_blocks : 0, n_blocks);
    ck_assert_int_eq(prefix ? prefix->n_parts : 0, n_parts);
    for (int i = 0; i < n_parts; i++) {
        const struct restored_part *part = &prefix->part[i];
        size_t bytes = from->config.part_bytes[part->part];
        for (size_t k = 0; k < bytes; k += bytes - 1)
            ck_assert_int_eq(part->content[k], 10 * (int)part->part + part->block);
    }
    restored_prefix_free(prefix);
}

START_TEST(window_blocks_and_states_are_shared) {
    struct prefix_store *writer = open_parts(), *reader = open_parts();
    for (int i = 0; i < 8; i++) {
        offer_part(writer, PART_BLOCK, i, BYTES);
        if (i != 4) offer_part(writer, PART_WINDOW, i, 600);
    }
    expect_parts(reader, 0, 0); /* no state is stored */
    offer_part(writer, PART_STATE, 3, 50000);
    expect_parts(reader, 4, 4 + 2 + 1);
    offer_part(writer, PART_STATE, 5, 50000);
    expect_parts(reader, 4, 4 + 2 + 1); /* the row after block 5 sees block 4 */
    offer_part(writer, PART_STATE, 7, 50000);
    expect_parts(reader, 8, 8 + 2 + 1);
    prefix_store_note(reader, PART_BLOCK, hash_before(1), true);
    prefix_store_note(reader, PART_WINDOW, hash_before(8), true);
    expect_parts(reader, 8, 7 + 1 + 1);
    prefix_store_note(reader, PART_STATE, hash_before(8), true);
    for (int i = 1; i < 8; i++) prefix_store_note(reader, PART_BLOCK, hash_before(i + 1), true);
    expect_parts(reader, 8, 1); /* window block 6 */
    prefix_store_note(reader, PART_WINDOW, hash_before(7), true);
    expect_parts(reader, 0, 0);
    prefix_store_close(writer);
    prefix_store_close(reader);
}
END_TEST

/* ---- values that are not what they should be ------------------------------------------------- */

/* Writes the key of a block of the text. */
static void key_of(int block, char out[96]) {
    const struct segment_head head = store_segment_head(store, PART_BLOCK);
    const XXH128_hash_t all = XXH3_128bits(&head, sizeof head);
    const struct block_hash hash = hash_before(block + 1);
    snprintf(out, 96, "penstock:%016llx%016llx:%016llx%016llx", (unsigned long long)all.high64,
             (unsigned long long)all.low64, (unsigned long long)hash.high,
             (unsigned long long)hash.low);
}

static void set_value(const char *key, const char *value, size_t length) {
    redisReply *reply = redisCommand(admin, "SET %s %b", key, value, length);
    ck_assert(reply && reply->type == REDIS_REPLY_STATUS);
    freeReplyObject(reply);
}

START_TEST(no_flipped_byte_gives_other_bytes) {
    struct prefix_store *other = open_at(place, 1);
    char key[96];
    offer(store, 0, 2);
    key_of(0, key);
    redisReply *value = redisCommand(admin, "GET %s", key);
    ck_assert_int_eq(value->type, REDIS_REPLY_STRING);
    ck_assert_uint_eq(value->len,
                      sizeof(struct segment_head) + store->part[PART_BLOCK].record_bytes);
    for (size_t i = 0; i < value->len; i++) {
        value->str[i] ^= 0x10;
        set_value(key, value->str, value->len);
        ck_assert_int_eq(read_back(other), 0);
        value->str[i] ^= 0x10;
    }
    ck_assert_uint_eq(stats_of(other).dropped[DROP_DAMAGED], value->len);
    set_value(key, value->str, value->len);
    ck_assert_int_eq(read_back(other), 2);
    freeReplyObject(value);
    prefix_store_close(other);
}
END_TEST

START_TEST(values_of_other_lengths_and_types_are_misses) {
    struct prefix_store *other = open_at(place, 1);
    char key[96], *large = calloc(1, 1 << 20);
    offer(store, 0, 5);
    key_of(3, key);
    set_value(key, "", 0);
    ck_assert_int_eq(read_back(other), 3);
    set_value(key, large, 1 << 20); /* more than was asked for: the connection ends */
    ck_assert_int_le(read_back(other), 3);
    free(large);
    usleep(400000);
    read_back(other); /* it connects again */
    usleep(50000);
    run_command("DEL", key, NULL);
    run_command("LPUSH", key, "x");
    ck_assert_int_eq(read_back(other), 3);
    offer(other, 3, 4); /* another type, too, is written over */
    ck_assert_uint_eq(stats_of(other).n_written, 1);
    prefix_store_close(other);
}
END_TEST

/* ---- servers that are gone, slow or wrong ---------------------------------------------------- */

/* How long a read takes, in ms. */
static double read_ms(struct prefix_store *from, int expected) {
    uint64_t began = now_ns();
    ck_assert_int_eq(read_at(from, NULL, 1e6), expected); /* 48 ms for all tokens */
    return (double)(now_ns() - began) / MS;
}

START_TEST(a_killed_server_is_a_miss_and_is_used_again) {
    struct prefix_store *other = open_at(place, 1);
    offer(store, 0, 5);
    ck_assert_int_eq(read_back(other), 5);
    stop_redis();
    for (int i = 0; i < 5; i++) ck_assert(read_ms(other, 0) < 100);
    ck_assert(stats_of(other).n_errors > 0 && !stats_of(other).is_up);
    offer(store, 5, 8);
    ck_assert_uint_eq(stats_of(store).n_written, 5);
    ck_assert_uint_eq(stats_of(store).dropped[DROP_UNAVAILABLE], 3);
    start_redis();
    usleep(300000);
    for (int i = 0; i < 100 && stats_of(other).n_written == 0; i++) {
        offer(other, i % 8, i % 8 + 1);
        usleep(20000);
    }
    ck_assert(stats_of(other).n_written > 0 && stats_of(other).is_up);
    prefix_store_close(other);
}
END_TEST

/* A server of one thread, which answers each read with the same bytes, or with nothing. */
struct wrong_server {
    const char *answer;
    int fd, port, times; /* it sends the answer so often */
    pthread_t thread;
};

static void *serve_nonsense(void *arg) {
    struct wrong_server *server = arg;
    struct pollfd file[33] = {{server->fd, POLLIN, 0}};
    int n = 1;
    char data[4096];
    while (poll(file, (nfds_t)n, -1) > 0) {
        for (int i = n - 1; i > 0; i--) {
            if (!file[i].revents) continue;
            bool open = read(file[i].fd, data, sizeof data) > 0;
            for (int k = 0; open && k < server->times; k++)
                open = send(file[i].fd, server->answer, strlen(server->answer), MSG_NOSIGNAL) > 0;
            if (open) continue;
            close(file[i].fd);
            file[i] = file[--n];
        }
        if (!file[0].revents) continue;
        int fd = accept(server->fd, NULL, NULL);
        if (fd < 0 || n == 33) break;
        file[n++] = (struct pollfd){fd, POLLIN, 0};
    }
    for (int i = 1; i < n; i++) close(file[i].fd);
    return NULL;
}

static void wrong_start(struct wrong_server *server, char where[64]) {
    server->fd = listen_free(&server->port);
    pthread_create(&server->thread, NULL, serve_nonsense, server);
    snprintf(where, 64, "redis://127.0.0.1:%d", server->port);
}

static void wrong_stop(struct wrong_server *server) {
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
}

START_TEST(a_server_that_does_not_answer_costs_one_deadline) {
    struct wrong_server server = {"", .times = 0};
    char where[64];
    wrong_start(&server, where);
    struct prefix_store *other = open_at(where, 1);
    double first = read_ms(other, 0);
    ck_assert_msg(first >= 95 && first < 400, "%f", first); /* 100 ms */
    for (int i = 0; i < 10; i++) ck_assert(read_ms(other, 0) < 50);
    ck_assert_uint_eq(stats_of(other).n_errors, 1);
    prefix_store_close(other);
    wrong_stop(&server);
}
END_TEST

START_TEST(nonsense_is_a_miss) {
    static const struct wrong_server servers[] = {{"HTTP/1.1 400 Bad Request\r\n\r\n", .times = 1},
                                                  {"*1000000000\r\n", .times = 1},
                                                  {"*0\r\n", .times = 1},
                                                  {"$99999999999\r\n", .times = 1},
                                                  {"$-7\r\n", .times = 1},
                                                  {":1\r\n", .times = 12},
                                                  {"+OK\r\n", .times = 12},
                                                  {"-ERR \x01no\r\n", .times = 12},
                                                  {"$400000\r\nabcdefgh", .times = 100000}};
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        struct wrong_server server = servers[i];
        char where[64];
        wrong_start(&server, where);
        struct prefix_store *other = open_at(where, 1);
        for (int k = 0; k < 3; k++) read_ms(other, 0);
        offer(other, 0, 1);
        prefix_store_close(other);
        wrong_stop(&server);
    }
}
END_TEST

START_TEST(a_full_server_is_read_and_not_written) {
    struct prefix_store *other = open_at(place, 1);
    offer(store, 0, 5);
    run_command("CONFIG SET", "maxmemory", "1");
    offer(store, 5, 8);
    run_command("CONFIG SET", "maxmemory", "0");
    ck_assert_int_eq(read_back(other), 5);
    const struct prefix_store_stats stats = stats_of(store);
    ck_assert_uint_eq(stats.n_written, 5);
    ck_assert_uint_eq(stats.dropped[DROP_UNAVAILABLE], 3);
    ck_assert_uint_eq(stats.n_errors, 1);
    prefix_store_close(other);
}
END_TEST

/* ---- addresses ------------------------------------------------------------------------------- */

START_TEST(a_password_and_a_database_are_used) {
    char where[128];
    offer(store, 0, 5);
    run_command("CONFIG SET", "requirepass", "a/b@c");
    snprintf(where, sizeof where, "redis://:a%%2fb@c@127.0.0.1:%s/3", redis_port);
    struct prefix_store *other = open_at(where, 1), *wrong;
    ck_assert_int_eq(read_back(other), 0); /* another database */
    offer(other, 0, 2);
    ck_assert_uint_eq(stats_of(other).n_written, 2);
    ck_assert_ptr_null(strstr(prefix_store_name(other), "b@c"));
    wrong = open_at(place, 1); /* without the password */
    offer(wrong, 0, 2);
    ck_assert_int_eq(read_back(wrong), 0);
    ck_assert(!stats_of(wrong).is_up && stats_of(wrong).n_written == 0);
    prefix_store_close(wrong);
    prefix_store_close(other);
    freeReplyObject(redisCommand(admin, "CONFIG SET requirepass %s", ""));
}
END_TEST

START_TEST(addresses_are_parsed) {
    struct redis_address address;
    struct err err;
    struct buf shown = {0};
    static const char *wrong[] = {"rediss://host",   "redis://",           "redis://:6379",
                                  "redis://host:0",  "redis://host:65536", "redis://host:x",
                                  "redis://host:1x", "redis://host/x",     "redis://host/1/2",
                                  "redis://@host",   "redis://me@host",    "redis://:@host",
                                  "redis://[::1",    "redis://:a%2@host",  "redis://:%00@host"};
    ck_assert(redis_address_parse(&address, "redis://me:p@ss@[::1]:7000/2", &err) == STATUS_OK);
    ck_assert_str_eq(address.user, "me");
    ck_assert_str_eq(address.password, "p@ss");
    redis_address_show(&address, &shown);
    ck_assert_str_eq(shown.data, "redis://[::1]:7000/2");
    ck_assert(redis_address_parse(&address, "redis://cache/", &err) == STATUS_OK);
    ck_assert(address.port == 6379 && address.database == 0 && !address.password[0]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(redis_address_parse(&address, wrong[i], &err) == STATUS_USAGE, "%s",
                      wrong[i]);
    ck_assert(store_is_redis("redis://x") && store_is_redis("rediss://x"));
    ck_assert(!store_is_redis("/redis://x") && !store_is_redis("redis"));
    buf_free(&shown);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_redis_store");
    TCase *core = tcase_create("core");
    tcase_add_unchecked_fixture(core, suite_setup, stop_redis);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_add_test(core, two_stores_share_their_blocks);
    tcase_add_test(core, another_identity_or_prefix_is_a_miss);
    tcase_add_test(core, a_flushed_server_gets_the_blocks_again);
    tcase_add_test(core, window_blocks_and_states_are_shared);
    tcase_add_test(core, no_flipped_byte_gives_other_bytes);
    tcase_add_test(core, values_of_other_lengths_and_types_are_misses);
    tcase_add_test(core, a_killed_server_is_a_miss_and_is_used_again);
    tcase_add_test(core, a_server_that_does_not_answer_costs_one_deadline);
    tcase_add_test(core, nonsense_is_a_miss);
    tcase_add_test(core, a_full_server_is_read_and_not_written);
    tcase_add_test(core, a_password_and_a_database_are_used);
    tcase_add_test(core, addresses_are_parsed);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
