/* The functions of a program that was built without MPI: it is always alone. */
#include <assert.h>
#include <stdlib.h>

#include "engine/peers/peers.h"

bool peers_started(void) {
    const char *n = getenv("OMPI_COMM_WORLD_SIZE");
    return n && atoi(n) > 1;
}

enum status peers_open(struct peers **out, int timeout_s, int loss_code, struct err *err) {
    (void)timeout_s, (void)loss_code;
    *out = NULL;
    if (!peers_started()) return STATUS_OK;
    return err_set(err, STATUS_USAGE, NULL,
                   "mpirun started several processes, and this program was built without MPI: "
                   "build it with -DPENSTOCK_MPI=ON, or start it without mpirun");
}

void peers_close(struct peers *peers, int code) {
    (void)code;
    assert(!peers);
    (void)peers;
}

/* Without a `struct peers` none of these can be called. */
int peers_rank(const struct peers *peers) {
    (void)peers;
    abort();
}

int peers_count(const struct peers *peers) {
    (void)peers;
    abort();
}

int peers_local(const struct peers *peers) {
    (void)peers;
    abort();
}

int peers_place(const struct peers *peers) {
    (void)peers;
    abort();
}

void peers_fail(struct peers *peers, const char *why) {
    (void)peers, (void)why;
    abort();
}

void peers_off_loss(struct peers *peers, void (*fn)(void *arg)) {
    (void)peers, (void)fn;
    abort();
}

void peers_meanwhile(struct peers *peers, void (*fn)(void *arg), void *arg) {
    (void)peers, (void)fn, (void)arg;
    abort();
}

bool peers_lost(struct peers *peers, struct err *err) {
    (void)peers, (void)err;
    abort();
}

bool peers_ended(const struct peers *peers, int *code) {
    (void)peers, (void)code;
    abort();
}

void peers_on_loss(struct peers *peers, void (*fn)(void *arg), void *arg) {
    (void)peers, (void)fn, (void)arg;
    abort();
}

bool peers_send_all(struct peers *peers, const void *data, size_t bytes) {
    (void)peers, (void)data, (void)bytes;
    abort();
}

bool peers_send(struct peers *peers, int to, const void *data, size_t bytes) {
    (void)peers, (void)to, (void)data, (void)bytes;
    abort();
}

bool peers_receive(struct peers *peers, int from, void *data, size_t capacity, size_t *bytes) {
    (void)peers, (void)from, (void)data, (void)capacity, (void)bytes;
    abort();
}

bool peers_gather(struct peers *peers, const float *mine, int n, const float *rows[]) {
    (void)peers, (void)mine, (void)n, (void)rows;
    abort();
}
