/* DESIGN: swapped blocks of the cache, in pinned memory of the host.
 *
 * Copies run on their own stream beside the steps. Blocks that are swapped out are gathered on the
 * steps' stream, between two steps, into one of two stages and copied from there, so the next step
 * may overwrite them. Blocks that are swapped in are copied into a third stage and scattered from
 * there on the copies' stream, into blocks that no step touches meanwhile; the scatter waits for
 * the steps begun before, whose sequences may have owned these blocks.
 *
 *     steps    [ step 1 ] g0 g1 [ step 2          ] .. [ step 4           ] a [ step 5
 *     copies              | [ out 0 ][ out 1 ]            | [ in ] s [ in ] s |
 *
 * g: gather into a stage; s: scatter from the third; a: swap_arrive. All copies are in one stream,
 * and so in the order of the calls: a slot may be reused as soon as its copy is queued. A step
 * waits only if more is gathered than the two stages hold, or if swap_arrive is called too early.
 *
 * Pinned memory is allocated in chunks when slots are first used, and kept.
 */
#include "kernels/cuda/attention/kv_swap.cuh"

#include <stdlib.h>

#include "kernels/cuda/runtime/runtime.cuh"

enum { OUT_STAGES = 2 };

struct kv_swap {
    struct kv_cache *cache;
    cudaStream_t steps, copies;
    size_t block_bytes; /* of a block in all layers */
    int n_slots, chunk_slots, n_chunks;
    uint8_t **chunk;              /* [n_chunks], pinned; NULL: not taken yet */
    int stage_blocks;             /* that a stage holds */
    uint8_t *out[OUT_STAGES];     /* device memory [stage_blocks][block_bytes] */
    uint8_t *in;                  /* as long */
    cudaEvent_t full[OUT_STAGES]; /* the stage was gathered */
    cudaEvent_t sent[OUT_STAGES]; /* the stage was copied and may be refilled */
    cudaEvent_t begun;            /* the steps before a swap_in */
    cudaEvent_t arrived;          /* what swap_in brings is there */
    int turn;                     /* the stage that is filled next */
};

/* ---- memory --------------------------------------------------------------------------------- */

static enum status open_events(struct kv_swap *s, struct err *err) {
    cudaEvent_t *const events[] = {&s->full[0], &s->full[1], &s->sent[0],
                                   &s->sent[1], &s->begun,   &s->arrived};
    enum status status = cuda_handle_ok(
        cudaStreamCreateWithFlags(&s->copies, cudaStreamNonBlocking), "stream for copies", err);
    for (cudaEvent_t *event : events)
        if (!status)
            status = cuda_handle_ok(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                                    "event", err);
    return status;
}

static enum status take_stages(struct kv_swap *s, struct err *err) {
    static const struct alloc_hint hint = {
        "the buffers of swapping", "swap-space",
        "lower --gpu-memory-utilization, or give --swap-space 0"};
    const size_t bytes = (size_t)s->stage_blocks * s->block_bytes;
    uint8_t **const stages[] = {&s->out[0], &s->out[1], &s->in};
    enum status status = STATUS_OK;
    for (uint8_t **stage : stages) {
        void *memory = nullptr;
        if (!status) status = device_alloc(&memory, bytes, &hint, err);
        *stage = (uint8_t *)memory;
    }
    return status;
}

/* At least one, and no more than are of use. */
static int between(size_t n, int most) {
    return n < 1 ? 1 : n < (size_t)most ? (int)n : most;
}

/* Blocks that a stage holds. */
static int stage_blocks(const struct kv_config *config, const struct swap_sizes *sizes,
                        size_t block_bytes) {
    const int most = config->n_blocks < KV_LIST ? config->n_blocks : KV_LIST;
    return between(sizes->stage / block_bytes, most);
}

size_t kv_swap_bytes(struct backend *, const struct kv_config *config) {
    struct kv_config one = *config;
    one.n_blocks = 1;
    const size_t block = kv_cache_bytes(&one);
    const size_t rounding = 2 * 16 * (size_t)config->L; /* of a block's scales */
    return (OUT_STAGES + 1) * (size_t)stage_blocks(config, &SWAP_SIZES, block) * (block + rounding);
}

enum status kv_swap_new(struct kv_swap **out, struct kv_cache *cache,
                        const struct swap_sizes *sizes, int64_t bytes, int *n_slots,
                        cudaStream_t stream, struct err *err) {
    struct kv_swap *s = (struct kv_swap *)mem_calloc(1, sizeof *s);
    s->cache = cache;
    s->steps = stream;
    s->block_bytes = kv_stage_bytes(cache, 1);
    s->n_slots = between((size_t)bytes / s->block_bytes, INT32_MAX / 2);
    s->chunk_slots = between(sizes->chunk / s->block_bytes, s->n_slots);
    s->n_chunks = (s->n_slots + s->chunk_slots - 1) / s->chunk_slots;
    s->stage_blocks = stage_blocks(&cache->config, sizes, s->block_bytes);
    s->chunk = (uint8_t **)mem_calloc((size_t)s->n_chunks, sizeof *s->chunk);
    enum status status = open_events(s, err);
    if (!status) status = take_stages(s, err);
    if (status) {
        kv_swap_free(nullptr, s);
        return status;
    }
    *n_slots = s->n_slots;
    *out = s;
    return STATUS_OK;
}

void kv_swap_free(struct backend *, struct kv_swap *s) {
    if (!s) return;
    cuda_check(cudaStreamSynchronize(s->steps), "waiting for the stream");
    if (s->copies) {
        cuda_check(cudaStreamSynchronize(s->copies), "waiting for copies");
        cuda_check(cudaStreamDestroy(s->copies), "closing a stream");
    }
    for (cudaEvent_t event : {s->full[0], s->full[1], s->sent[0], s->sent[1], s->begun, s->arrived})
        if (event) cuda_check(cudaEventDestroy(event), "freeing an event");
    for (uint8_t *stage : {s->out[0], s->out[1], s->in})
        cuda_check(cudaFree(stage), "freeing a stage");
    for (int i = 0; i < s->n_chunks; i++)
        cuda_check(cudaFreeHost(s->chunk[i]), "freeing swap space");
    free(s->chunk);
    free(s);
}

bool kv_swap_reserve(struct backend *, struct kv_swap *s, int n) {
    assert(n >= 0 && n <= s->n_slots);
    for (int i = 0; i * s->chunk_slots < n; i++) {
        void *memory;
        if (s->chunk[i]) continue;
        if (!cuda_alloc_ok(cudaMallocHost(&memory, (size_t)s->chunk_slots * s->block_bytes)))
            return false; /* blocks are then computed again */
        s->chunk[i] = (uint8_t *)memory;
    }
    return true;
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Copies n slots to a stage or a stage to n slots, adjacent slots at once. */
static void copy(const struct kv_swap *s, uint8_t *stage, const int32_t *slot, int n, bool out) {
    for (int i = 0, run; i < n; i += run) {
        const int first = slot[i], slots = s->chunk_slots;
        run = 1;
        while (i + run < n && slot[i + run] == first + run && slot[i + run] % slots != 0) run++;
        assert(first >= 0 && first + run <= s->n_slots && s->chunk[first / slots]);
        uint8_t *host = s->chunk[first / slots] + (size_t)(first % slots) * s->block_bytes;
        uint8_t *device = stage + (size_t)i * s->block_bytes;
        cuda_check(
            cudaMemcpyAsync(out ? host : device, out ? device : host, (size_t)run * s->block_bytes,
                            out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, s->copies),
            "swapping blocks");
    }
}

static void record(cudaEvent_t event, cudaStream_t stream) {
    cuda_check(cudaEventRecord(event, stream), "recording an event");
}

static void wait_for(cudaStream_t stream, cudaEvent_t event) {
    cuda_check(cudaStreamWaitEvent(stream, event, 0), "waiting for another stream");
}

void kv_swap_out(struct backend *, struct kv_swap *s, const int32_t *block, const int32_t *slot,
                 int n) {
    if (cuda_failed()) return;
    for (int i = 0, count; i < n; i += count) {
        const int stage = s->turn;
        s->turn = (s->turn + 1) % OUT_STAGES;
        count = n - i < s->stage_blocks ? n - i : s->stage_blocks;
        wait_for(s->steps, s->sent[stage]);
        kv_gather_listed(s->out[stage], s->cache, block + i, count, s->steps);
        record(s->full[stage], s->steps);
        wait_for(s->copies, s->full[stage]);
        copy(s, s->out[stage], slot + i, count, true);
        record(s->sent[stage], s->copies);
    }
}

void kv_swap_in(struct backend *, struct kv_swap *s, const int32_t *slot, const int32_t *block,
                int n) {
    if (cuda_failed()) return;
    record(s->begun, s->steps);
    wait_for(s->copies, s->begun);
    for (int i = 0, count; i < n; i += count) {
        count = n - i < s->stage_blocks ? n - i : s->stage_blocks;
        copy(s, s->in, slot + i, count, false);
        kv_scatter_listed(s->cache, s->in, block + i, count, s->copies);
    }
    record(s->arrived, s->copies);
}

void kv_swap_arrive(struct backend *, struct kv_swap *s) {
    if (cuda_failed()) return;
    wait_for(s->steps, s->arrived);
}
