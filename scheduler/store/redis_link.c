#include "scheduler/store/redis_link.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define SLACK_BYTES (64 << 10) /* of a buffer, beyond the replies that were asked for */

static bool link_failed(struct redis_link *link, const char *why) {
    snprintf(link->why, sizeof link->why, "%s", why);
    return false;
}

#if HIREDIS_MAJOR >= 1
typedef size_t array_length;
#else
typedef int array_length;
#endif

/* No command here is answered with an array, and a wrong server could announce a huge one. */
static void *refuse_array(const redisReadTask *task, array_length n) {
    (void)task;
    (void)n;
    return NULL;
}

void redis_link_close(struct redis_link *link) {
    if (link->context) redisFree(link->context);
    link->context = NULL;
}

bool redis_link_add(struct redis_link *link, int n, const char **argument, const size_t *length) {
    assert(link->context);
    if (redisAppendCommandArgv(link->context, n, argument, length) == REDIS_OK) return true;
    return link_failed(link, "memory is short");
}

/* Waits until the socket can be read, or written if something waits to be sent. */
static bool link_wait(struct redis_link *link, bool writes, uint64_t deadline_ns) {
    struct pollfd file = {link->context->fd, (short)(writes ? POLLIN | POLLOUT : POLLIN), 0};
    for (;;) {
        uint64_t now = now_ns();
        if (now >= deadline_ns) return link_failed(link, "it does not answer in time");
        int n = poll(&file, 1, (int)((deadline_ns - now) / 1000000) + 1);
        if (n < 0 && errno != EINTR) return link_failed(link, strerror(errno));
        if (n <= 0) continue;
        if (!(file.revents & ~POLLOUT)) return true;
        if (redisBufferRead(link->context) != REDIS_OK)
            return link_failed(link, link->context->errstr);
        if (link->context->reader->len > link->max_bytes + SLACK_BYTES)
            return link_failed(link, "it sends more than was asked for");
        return true;
    }
}

redisReply *redis_link_reply(struct redis_link *link, uint64_t deadline_ns) {
    redisContext *context = link->context;
    for (;;) {
        void *reply = NULL;
        int sent = 0;
        if (redisReaderGetReply(context->reader, &reply) != REDIS_OK) {
            bool refused = context->reader->err == REDIS_ERR_OOM;
            link_failed(link, refused ? "an answer has a wrong type" : context->reader->errstr);
            return NULL;
        }
        if (reply) return reply;
        if (redisBufferWrite(context, &sent) != REDIS_OK) {
            link_failed(link, context->errstr);
            return NULL;
        }
        if (!link_wait(link, !sent, deadline_ns)) return NULL;
    }
}

/* Sends a command whose answer must be OK. */
static bool link_expect_ok(struct redis_link *link, int n, const char **argument,
                           uint64_t deadline_ns) {
    redisReply *reply = NULL;
    if (redis_link_add(link, n, argument, NULL)) reply = redis_link_reply(link, deadline_ns);
    if (!reply) return false;
    bool ok = reply->type == REDIS_REPLY_STATUS;
    if (!ok) link_failed(link, reply->type == REDIS_REPLY_ERROR ? reply->str : "a wrong answer");
    freeReplyObject(reply);
    return ok;
}

static bool link_log_in(struct redis_link *link, const struct redis_address *address,
                        uint64_t deadline_ns) {
    const char *login[3] = {"AUTH"}, *select[2] = {"SELECT"};
    char database[16];
    int n = 1;
    if (address->user[0]) login[n++] = address->user;
    if (address->password[0]) login[n++] = address->password;
    if (n > 1 && !link_expect_ok(link, n, login, deadline_ns)) return false;
    if (address->database == 0) return true;
    snprintf(database, sizeof database, "%d", address->database);
    select[1] = database;
    return link_expect_ok(link, 2, select, deadline_ns);
}

bool redis_link_open(struct redis_link *link, const struct redis_address *address, int timeout_ms) {
    const struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    uint64_t deadline_ns = now_ns() + (uint64_t)timeout_ms * 1000000;
    assert(!link->context);
    link->context = redisConnectWithTimeout(address->host, address->port, limit);
    if (!link->context) return link_failed(link, "memory is short");
    bool ok = !link->context->err;
    if (!ok) link_failed(link, link->context->errstr);
    if (ok && fcntl(link->context->fd, F_SETFL, O_NONBLOCK) != 0)
        ok = link_failed(link, strerror(errno));
    if (ok) {
        link->context->flags &= ~REDIS_BLOCK;
        redisEnableKeepAlive(link->context);
        link->functions = *link->context->reader->fn;
        link->functions.createArray = refuse_array;
        link->context->reader->fn = &link->functions;
        ok = link_log_in(link, address, deadline_ns);
    }
    if (!ok) redis_link_close(link);
    return ok;
}
