/* DESIGN: a step's arrays on the device.
 *
 * All arrays of a step, attention's plans included, stand side by side in pinned memory and are
 * copied at once, since every copy costs microseconds whatever its size. The stream reads the
 * pinned memory later, so there are as many buffers as steps in flight, and a step waits for the
 * copy of the step that used its buffer before, which has long ended. The memory suits the largest
 * step that the limits allow, and is allocated with the cache.
 *
 * Arrays whose length follows from the number of rows come first, then the plans, then the block
 * tables, of which only as many entries are copied as the longest sequence has:
 *
 *     token | position | logit_row | slot | line | copies | items ... | tables | settings
 *
 * Settings are those of the samples, where the step names them: they lie behind all that a graph's
 * launches read, and sampling is no part of a graph. They follow by themselves where they are more
 * than there is room for, and no part of the copy that the next step waits for.
 *
 * Slots, lines, copies and tables are there twice if layers with windows have blocks of their own;
 * a layer's launches are given those of its kind.
 *
 * A step for a graph has as many rows and items as the graph; only the tables' length is its own.
 * The last rows are padding: without slot and item they write neither keys nor values and attend to
 * nothing. A sequence is named by the start of its line of the tables, so that neither the lines'
 * length nor the place of a second table is an argument of any launch.
 */
#include "kernels/cuda/step.cuh"

#include <string.h>

#include "kernels/cuda/attention/kv.cuh"

#include "kernels/cuda/runtime/runtime.cuh"
#include "kernels/cuda/sampling/sampling.cuh"

enum status step_memory_open(struct step_memory *memory, struct err *err) {
    *memory = step_memory{};
    enum status status = STATUS_OK;
    for (cudaEvent_t &copied : memory->copied)
        if (!status)
            status = cuda_handle_ok(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming),
                                    "event", err);
    return status;
}

static void drop(struct step_memory *memory) {
    for (int32_t *&host : memory->host) {
        cuda_check(cudaFreeHost(host), "freeing a step's host memory");
        host = nullptr;
    }
    cuda_check(cudaFree(memory->device), "freeing a step's memory");
    memory->device = nullptr;
    memory->capacity = 0;
}

void step_memory_close(struct step_memory *memory) {
    drop(memory);
    for (cudaEvent_t copied : memory->copied)
        if (copied) cuda_check(cudaEventDestroy(copied), "freeing an event");
}

enum { ITEM_NUMBERS = sizeof(struct attention_item) / sizeof(int32_t) };
static_assert(ITEM_NUMBERS * sizeof(int32_t) == sizeof(struct attention_item), "no padding");

/* Entries of the line of a sequence whose last position is `last`. */
static size_t line_of(int last, int B) {
    return (size_t)last / (size_t)B + 1;
}

/* The most settings that travel with a step: a kilobyte a sequence, of which a row without lists
 * takes a quarter, and as much as prompts of some thousand tokens take. */
enum { SETTINGS_PER_SEQ = 1024, SETTINGS_BESIDE = 16384, SETTINGS_ALIGN = 16 };

static size_t settings_room(const struct step_limits *most) {
    return (size_t)most->max_seqs * SETTINGS_PER_SEQ + SETTINGS_BESIDE;
}

/* The numbers of the largest step. */
static size_t largest(const struct attention_workspace *work, int B) {
    const struct step_limits *most = &work->limits;
    const size_t M = (size_t)most->max_rows, S = (size_t)most->max_seqs;
    const size_t entries = S * line_of(most->max_context - 1, B);
    const size_t items = (size_t)work->limits.n_windows * (size_t)work->max_items * ITEM_NUMBERS;
    const size_t blocks = 2 * M + 2 * S + entries; /* slots, lines, copies, table */
    const size_t settings = (settings_room(most) + SETTINGS_ALIGN) / sizeof(int32_t);
    return 3 * M + (size_t)work->kinds * blocks + items + settings;
}

size_t step_memory_bytes(const struct attention_workspace *work, int B) {
    return largest(work, B) * sizeof(int32_t);
}

enum status step_memory_reserve(struct step_memory *memory, const struct attention_workspace *work,
                                int B, cudaStream_t stream, struct err *err) {
    static const struct alloc_hint steps = {
        "a step's arrays", "max-num-batched-tokens",
        "lower --max-num-batched-tokens, --max-num-seqs or --max-model-len"};
    const size_t n = largest(work, B), bytes = n * sizeof(int32_t);
    if (n <= memory->capacity) return STATUS_OK;
    cuda_check(cudaStreamSynchronize(stream), "waiting for the stream");
    drop(memory);
    void *host = nullptr, *device = nullptr;
    enum status status = STATUS_OK;
    for (int32_t *&piece : memory->host) {
        if (!status) status = pinned_alloc(&host, bytes, &steps, err);
        piece = status ? nullptr : (int32_t *)host;
    }
    if (!status) status = device_alloc(&device, bytes, &steps, err);
    if (status) return status;
    memory->device = (int32_t *)device;
    memory->capacity = n;
    return STATUS_OK;
}

/* ---- laying a step out ---------------------------------------------------------------------- */

/* The buffer that is being filled. */
struct step_layout {
    int32_t *host;
    const int32_t *device;
    size_t used, capacity;
};

/* Reserves n numbers; returns where to write them. */
static int32_t *reserve(struct step_layout *to, size_t n) {
    int32_t *at = to->host + to->used;
    to->used += n;
    assert(to->used <= to->capacity);
    return at;
}

/* The device address of a place in the host's buffer. */
static const int32_t *on_device(const struct step_layout *to, const int32_t *at) {
    return to->device + (at - to->host);
}

/* Appends an array and fills it up to `room` numbers with `others`; returns its device address. */
static const int32_t *put(struct step_layout *to, const int32_t *array, size_t n, size_t room,
                          int32_t others) {
    int32_t *at = reserve(to, room);
    if (n > 0) memcpy(at, array, n * sizeof *array);
    for (size_t i = n; i < room; i++) at[i] = others;
    return on_device(to, at);
}

/* The same, filled up with numbers that count on from `from`. */
static const int32_t *put_counting(struct step_layout *to, const int32_t *array, size_t n,
                                   size_t room, int32_t from) {
    int32_t *at = reserve(to, room);
    if (n > 0) memcpy(at, array, n * sizeof *array);
    for (size_t i = n; i < room; i++) at[i] = from++;
    return on_device(to, at);
}

/* The start of the first line of a kind: the tables stand one behind the other. */
static int first_line(const struct step *step, int stride, int kind) {
    return kind * step->S * stride;
}

/* Appends the start of each row's line of the table of a kind. */
static const int32_t *put_lines(struct step_layout *to, const struct step *step, int stride,
                                int kind, size_t room) {
    int32_t *at = reserve(to, room);
    const int first = first_line(step, stride, kind);
    for (int s = 0; s < step->S; s++)
        for (int m = step->row_start[s]; m < step->row_start[s + 1]; m++)
            at[m] = first + s * stride;
    for (size_t i = (size_t)step->M; i < room; i++) at[i] = 0;
    return on_device(to, at);
}

/* The longest line of the step's sequences, within the limits. */
static int longest_line(const struct step *step, const struct step_limits *limits, int B) {
    int last = 0;
    for (int s = 0; s < step->S; s++) {
        const int end = step->row_start[s + 1];
        if (end > step->row_start[s] && step->position[end - 1] > last)
            last = step->position[end - 1];
    }
    assert(step->M <= limits->max_rows && step->S <= limits->max_seqs &&
           last < limits->max_context && step->n_copies <= limits->max_seqs);
    return (int)line_of(last, B);
}

/* Appends lines of `stride` entries; a sequence may have fewer. */
static void put_table(struct step_layout *to, const struct step *step, const int32_t *table,
                      int stride) {
    const size_t n = (size_t)(stride < step->table_stride ? stride : step->table_stride);
    int32_t *at = reserve(to, (size_t)step->S * (size_t)stride);
    for (int s = 0; s < step->S; s++)
        memcpy(at + (size_t)s * (size_t)stride, table + (size_t)s * (size_t)step->table_stride,
               n * sizeof *at);
}

/* A step's blocks as the layers of one kind have them: host memory. */
struct block_arrays {
    const int32_t *slot, *table, *copy_from, *copy_to;
};

static struct block_arrays blocks_of(const struct step *step, int kind) {
    if (kind == KV_WINDOW)
        return {step->window_slot, step->window_table, step->window_copy_from,
                step->window_copy_to};
    return {step->slot, step->table, step->copy_from, step->copy_to};
}

/* Appends slots, lines and copies of each kind. */
static void put_slots(struct device_step *at, struct step_layout *to, const struct step *step,
                      int stride, size_t room, int kinds) {
    const size_t copies = (size_t)step->n_copies;
    for (int kind = 0; kind < kinds; kind++) {
        const struct block_arrays blocks = blocks_of(step, kind);
        at->slot[kind] = put(to, blocks.slot, (size_t)step->M, room, -1);
        at->line[kind] = put_lines(to, step, stride, kind, room);
        at->copy_from[kind] = put(to, blocks.copy_from, copies, copies, 0);
        at->copy_to[kind] = put(to, blocks.copy_to, copies, copies, 0);
    }
}

/* Plans attention for each window, with the lines' beginnings in the place of their numbers: layers
 * with a window have theirs in the last table. */
static void put_items(struct step_layout *to, const struct step *step, int rows, int stride,
                      struct attention_workspace *work) {
    for (int w = 0; w < work->limits.n_windows; w++) {
        struct attention_item *items = (struct attention_item *)(to->host + to->used);
        const int n = attention_workspace_plan(work, w, items, step, rows);
        const int kind = work->limits.windows[w].length > 0 ? work->kinds - 1 : KV_WHOLE;
        const int first = first_line(step, stride, kind);
        for (int i = 0; i < n; i++) items[i].sequence = first + items[i].sequence * stride;
        work->items[w] =
            (const struct attention_item *)on_device(to, reserve(to, (size_t)n * ITEM_NUMBERS));
    }
}

/* Plans the sampling of the step, and appends its settings if they may travel with it. */
static void put_settings(struct step_layout *to, const struct step *step,
                         const struct step_limits *most) {
    if (!step->sampler || step->n_samples == 0) return;
    const size_t bytes = device_sampler_plan(step->sampler, step->samples, step->n_samples, NULL);
    if (bytes > settings_room(most)) return;
    constexpr size_t ALIGN = SETTINGS_ALIGN / sizeof(int32_t);
    to->used = (to->used + ALIGN - 1) / ALIGN * ALIGN;
    int32_t *at = reserve(to, (bytes + sizeof *at - 1) / sizeof *at);
    const struct settings_memory memory = {(uint8_t *)at, (uint8_t *)on_device(to, at)};
    device_sampler_lay_out(step->sampler, step->samples, NULL, &memory);
}

/* Lays out a step, padded to `rows` unless that is 0. */
static void lay_out(struct device_step *at, struct step_layout *to, const struct step *step,
                    int rows, struct attention_workspace *work, int B) {
    const size_t M = (size_t)step->M, R = (size_t)step->R;
    const size_t more = rows ? (size_t)rows - M : 0;
    const int stride = longest_line(step, &work->limits, B);
    assert(!rows || (step->M == step->R && step->n_copies == 0));
    assert((int64_t)work->kinds * step->S * stride <= INT32_MAX);
    assert(work->kinds == 1 || step->window_table);
    *at = {(int)(M + more), (int)(R + more), step->n_copies};
    at->sampled = step->sampled;
    at->token = put(to, step->token, M, M + more, 0);
    at->position = put(to, step->position, M, M + more, -1);
    at->logit_row = put_counting(to, step->logit_row, R, R + more, step->M);
    put_slots(at, to, step, stride, M + more, work->kinds);
    put_items(to, step, rows, stride, work);
    at->table = on_device(to, to->host + to->used);
    for (int kind = 0; kind < work->kinds; kind++)
        put_table(to, step, blocks_of(step, kind).table, stride);
    put_settings(to, step, &work->limits);
}

void step_upload(struct step_memory *memory, const struct step *step, int rows,
                 struct attention_workspace *work, int B, cudaStream_t stream) {
    const int turn = memory->turn;
    memory->turn = (turn + 1) % MAX_IN_FLIGHT;
    cuda_check(cudaEventSynchronize(memory->copied[turn]), "waiting for a step's copy");
    struct step_layout to = {memory->host[turn], memory->device, 0, memory->capacity};
    lay_out(&memory->at, &to, step, rows, work, B);
    cuda_check(cudaMemcpyAsync(memory->device, to.host, to.used * sizeof(int32_t),
                               cudaMemcpyHostToDevice, stream),
               "copying a step");
    cuda_check(cudaEventRecord(memory->copied[turn], stream), "recording an event");
}

/* Does one of n copies read or write what another one writes? */
static bool copies_meet(const struct block_arrays *blocks, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i != j && (blocks->copy_to[i] == blocks->copy_from[j] ||
                           (i < j && blocks->copy_to[i] == blocks->copy_to[j])))
                return true;
    return false;
}

void step_copy_blocks(const struct device_step *at, const struct step *step, struct kv_cache *cache,
                      cudaStream_t stream) {
    for (int kind = 0; kind < KV_KINDS; kind++) {
        if (cache->part[kind].L == 0) continue;
        const struct block_arrays blocks = blocks_of(step, kind);
        const int at_once = copies_meet(&blocks, step->n_copies) ? 1 : step->n_copies;
        for (int i = 0; i < step->n_copies; i += at_once)
            kv_copy(cache, (enum kv_kind)kind, at->copy_from[kind] + i, at->copy_to[kind] + i,
                    at_once, stream);
    }
}
