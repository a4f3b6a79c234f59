/* DESIGN: swapped blocks of the cache, in pinned host memory.
 *
 * Copies run on their own stream beside the steps. Blocks to swap out are gathered on the steps'
 * stream, between two steps, into one of two stages and copied from there, so the next step may
 * overwrite them. Blocks to swap in are copied into a third stage and scattered from there on the
 * copies' stream, into blocks that no step uses meanwhile. The scatter waits for the steps begun
 * before, whose sequences may have owned these blocks.
 *
 *     steps    [ step 1 ] g0 g1 [ step 2          ] .. [ step 4           ] a [ step 5
 *     copies              | [ out 0 ][ out 1 ]            | [ in ] s [ in ] s |
 *
 * g: gather into a stage; s: scatter from the third stage; a: swap_arrive. All copies are in one
 * stream, and so in the order of the calls: a slot may be reused as soon as its copy is queued. A
 * step waits only if more is gathered than the two stages hold, or if swap_arrive is called too
 * early.
 *
 * Blocks of each kind (enum block_kind) have separate slots; both kinds share the stages.
 *
 * Pinned memory is allocated in chunks when slots are first used, and kept.
 */
#include "kernels/cuda/attention/kv_swap.cuh"

#include <stdlib.h>

#include "kernels/cuda/runtime/runtime.cuh"

enum { OUT_STAGES = 2 };

/* The slots for blocks of one kind; all 0 if no layer has such blocks. */
struct swap_area {
    size_t block_bytes; /* bytes of a block in all layers of the kind */
    int n_slots, chunk_slots, n_chunks;
    uint8_t **chunk;  /* [n_chunks], pinned; NULL: not allocated yet */
    int stage_blocks; /* blocks per stage */
};

struct kv_swap {
    struct kv_cache *cache;
    cudaStream_t steps, copies;
    struct swap_area area[N_BLOCK_KINDS];
    size_t stage_bytes;
    uint8_t *out[OUT_STAGES];     /* device memory */
    uint8_t *in;                  /* the third stage, of the same size */
    cudaEvent_t full[OUT_STAGES]; /* the stage has been gathered */
    cudaEvent_t sent[OUT_STAGES]; /* the stage has been copied and may be refilled */
    cudaEvent_t begun;            /* the steps before a swap_in */
    cudaEvent_t arrived;          /* the blocks of swap_in are complete */
    int turn;                     /* the stage to fill next */
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
        "lower {gpu-memory-utilization}, or give {swap-space} 0"};
    uint8_t **const stages[] = {&s->out[0], &s->out[1], &s->in};
    enum status status = STATUS_OK;
    for (uint8_t **stage : stages) {
        void *memory = nullptr;
        if (!status) status = device_alloc(&memory, s->stage_bytes, &hint, err);
        *stage = (uint8_t *)memory;
    }
    return status;
}

/* Clamps n to at least one and at most the useful number. */
static int between(size_t n, int most) {
    return n < 1 ? 1 : n < (size_t)most ? (int)n : most;
}

/* Blocks of a kind per stage. */
static int stage_blocks(int n_blocks, const struct swap_sizes *sizes, size_t block_bytes) {
    return between(sizes->stage / block_bytes, n_blocks < KV_LIST ? n_blocks : KV_LIST);
}

/* Bytes of a block of one layer in a stage. Scales are rounded up to 16 bytes (kv_piece_bytes). */
static size_t staged_bytes(const struct kv_config *config, int layer) {
    const struct kv_heads heads = kv_heads_of(config, layer);
    struct kv_config one = {1, heads.G, heads.D, 1, config->block_size, config->dtype};
    one.heads = &heads;
    const size_t scales = (size_t)heads.G * sizeof(float), rounded = (scales + 15) / 16 * 16;
    return kv_cache_bytes(&one) + (config->dtype == DTYPE_E4M3 ? 2 * (rounded - scales) : 0);
}

/* Bytes of a stage for blocks of a kind; 0 without such layers. */
static size_t stage_bytes_of(const struct kv_config *config, enum block_kind kind) {
    size_t block = 0;
    for (int i = 0; i < config->L; i++) {
        const bool has_window = config->n_window_blocks > 0 && config->has_window[i];
        if (has_window == (kind == KV_WINDOW_BLOCKS)) block += staged_bytes(config, i);
    }
    const int n = kind == KV_WINDOW_BLOCKS ? config->n_window_blocks : config->n_blocks;
    return block > 0 ? (size_t)stage_blocks(n, &SWAP_SIZES, block) * block : 0;
}

size_t kv_swap_bytes(struct backend *, const struct kv_config *config) {
    const size_t whole = stage_bytes_of(config, KV_BLOCKS);
    const size_t window = stage_bytes_of(config, KV_WINDOW_BLOCKS);
    return (OUT_STAGES + 1) * (whole > window ? whole : window);
}

/* Divides the host's bytes between the kinds in the cache's proportion. */
static void plan_areas(struct kv_swap *s, const struct swap_sizes *sizes, int64_t bytes) {
    const struct kv_part *part = s->cache->part;
    const double windows = (double)part[KV_WINDOW_BLOCKS].n_blocks / part[KV_BLOCKS].n_blocks;
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++)
        s->area[kind].block_bytes = kv_stage_bytes(s->cache, (enum block_kind)kind, 1);
    const double pair = (double)s->area[KV_BLOCKS].block_bytes +
                        windows * (double)s->area[KV_WINDOW_BLOCKS].block_bytes;
    const int n = between((size_t)((double)bytes / pair), INT32_MAX / 2);
    s->area[KV_BLOCKS].n_slots = n;
    if (windows > 0) s->area[KV_WINDOW_BLOCKS].n_slots = between((size_t)(n * windows), n);
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++) {
        struct swap_area *area = &s->area[kind];
        if (area->block_bytes == 0) continue;
        area->chunk_slots = between(sizes->chunk / area->block_bytes, area->n_slots);
        area->n_chunks = (area->n_slots + area->chunk_slots - 1) / area->chunk_slots;
        area->chunk = (uint8_t **)mem_calloc((size_t)area->n_chunks, sizeof *area->chunk);
        area->stage_blocks = stage_blocks(part[kind].n_blocks, sizes, area->block_bytes);
        const size_t stage = (size_t)area->stage_blocks * area->block_bytes;
        if (stage > s->stage_bytes) s->stage_bytes = stage;
    }
}

enum status kv_swap_new(struct kv_swap **out, struct kv_cache *cache,
                        const struct swap_sizes *sizes, int64_t bytes, int n_slots[N_BLOCK_KINDS],
                        cudaStream_t stream, struct err *err) {
    struct kv_swap *s = (struct kv_swap *)mem_calloc(1, sizeof *s);
    s->cache = cache;
    s->steps = stream;
    plan_areas(s, sizes, bytes);
    enum status status = open_events(s, err);
    if (!status) status = take_stages(s, err);
    if (status) {
        kv_swap_free(nullptr, s);
        return status;
    }
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++) n_slots[kind] = s->area[kind].n_slots;
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
    for (const struct swap_area &area : s->area) {
        for (int i = 0; i < area.n_chunks; i++)
            cuda_check(cudaFreeHost(area.chunk[i]), "freeing swap space");
        free(area.chunk);
    }
    free(s);
}

bool kv_swap_reserve(struct backend *, struct kv_swap *s, enum block_kind kind, int n) {
    const struct swap_area &area = s->area[kind];
    assert(n >= 0 && n <= area.n_slots);
    for (int i = 0; i < area.n_chunks && i * area.chunk_slots < n; i++) {
        void *memory;
        if (area.chunk[i]) continue;
        if (!cuda_alloc_ok(cudaMallocHost(&memory, (size_t)area.chunk_slots * area.block_bytes)))
            return false; /* the blocks are then recomputed */
        area.chunk[i] = (uint8_t *)memory;
    }
    return true;
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Copies n slots to a stage or a stage to n slots; adjacent slots are copied at once. */
static void copy(const struct swap_area &area, uint8_t *stage, const int32_t *slot, int n, bool out,
                 cudaStream_t stream) {
    for (int i = 0, run; i < n; i += run) {
        const int first = slot[i], slots = area.chunk_slots;
        run = 1;
        while (i + run < n && slot[i + run] == first + run && slot[i + run] % slots != 0) run++;
        assert(first >= 0 && first + run <= area.n_slots && area.chunk[first / slots]);
        uint8_t *host = area.chunk[first / slots] + (size_t)(first % slots) * area.block_bytes;
        uint8_t *device = stage + (size_t)i * area.block_bytes;
        cuda_check(cudaMemcpyAsync(out ? host : device, out ? device : host,
                                   (size_t)run * area.block_bytes,
                                   out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream),
                   "swapping blocks");
    }
}

static void record(cudaEvent_t event, cudaStream_t stream) {
    cuda_check(cudaEventRecord(event, stream), "recording an event");
}

static void wait_for(cudaStream_t stream, cudaEvent_t event) {
    cuda_check(cudaStreamWaitEvent(stream, event, 0), "waiting for another stream");
}

void kv_swap_out(struct backend *, struct kv_swap *s, enum block_kind kind, const int32_t *block,
                 const int32_t *slot, int n) {
    const struct swap_area &area = s->area[kind];
    if (cuda_failed() || area.block_bytes == 0) return;
    for (int i = 0, count; i < n; i += count) {
        const int stage = s->turn;
        s->turn = (s->turn + 1) % OUT_STAGES;
        count = n - i < area.stage_blocks ? n - i : area.stage_blocks;
        wait_for(s->steps, s->sent[stage]);
        kv_gather(s->out[stage], s->cache, kind, block + i, count, s->steps);
        record(s->full[stage], s->steps);
        wait_for(s->copies, s->full[stage]);
        copy(area, s->out[stage], slot + i, count, true, s->copies);
        record(s->sent[stage], s->copies);
    }
}

void kv_swap_in(struct backend *, struct kv_swap *s, enum block_kind kind, const int32_t *slot,
                const int32_t *block, int n) {
    const struct swap_area &area = s->area[kind];
    if (cuda_failed() || area.block_bytes == 0) return;
    record(s->begun, s->steps);
    wait_for(s->copies, s->begun);
    for (int i = 0, count; i < n; i += count) {
        count = n - i < area.stage_blocks ? n - i : area.stage_blocks;
        copy(area, s->in, slot + i, count, false, s->copies);
        kv_scatter(s->cache, kind, s->in, block + i, count, s->copies);
    }
    record(s->arrived, s->copies);
}

void kv_swap_arrive(struct backend *, struct kv_swap *s) {
    if (cuda_failed()) return;
    wait_for(s->steps, s->arrived);
}
