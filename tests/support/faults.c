#include "support/faults.h"

#include <stdatomic.h>

static atomic_int left, failed;
static enum fault_kind kind_of_fault;
static _Thread_local bool is_spared;

static bool is_fault(size_t bytes) {
    (void)bytes;
    if (is_spared) return false;
    int before = atomic_fetch_sub(&left, 1);
    bool fails = before == 0 || (before < 0 && kind_of_fault == FAULT_ALWAYS);
    if (fails) atomic_fetch_add(&failed, 1);
    return fails;
}

void faults_begin(int n, enum fault_kind kind) {
    atomic_store(&left, n);
    atomic_store(&failed, 0);
    kind_of_fault = kind;
    mem_fault = is_fault;
}

int faults_end(void) {
    mem_fault = NULL;
    return atomic_load(&failed);
}

void faults_spare(bool spared) {
    is_spared = spared;
}
