/* DESIGN: a step's arrays on the device.
 *
 * All arrays of a step, the plan of its attention among them, are laid side by side in pinned
 * memory and go over in one copy, since every copy costs microseconds whatever its size. The stream
 * reads the pinned memory later, so there are as many pieces of it as steps in flight, and a step
 * waits for the copy of the one that had its piece before, which has long ended. The memory is for
 * the largest step that the limits allow, and taken with the cache.
 *
 * What is as long as the step has rows comes first, then the plan, then the block tables, of which
 * only as much goes over as the step's longest sequence has:
 *
 *     token | position | slot | line | row_start | logit_row | copies | items | tables
 *
 * A step for a graph has as many rows as the graph, and as many items: only the tables' length is
 * its own. The last rows belong to nobody. Their slot is none, and no item is theirs, so that they
 * write neither keys nor values and attend to nothing. A sequence is named by where its line of the
 * table begins, so that no launch has the lines' length among its arguments.
 */
#include "kernels/cuda/step.cuh"

#include <string.h>

#include "kernels/cuda/kv.cuh"

#include "kernels/cuda/room.cuh"

enum status step_memory_open(struct step_memory *memory, struct err *err) {
    *memory = step_memory{};
    enum status status = STATUS_OK;
    for (cudaEvent_t &copied : memory->copied)
        if (!status)
            status =
                room_made(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming), "event", err);
    return status;
}

static void drop(struct step_memory *memory) {
    for (int32_t *&host : memory->host) {
        cuda_must(cudaFreeHost(host), "freeing a step's host memory");
        host = nullptr;
    }
    cuda_must(cudaFree(memory->device), "freeing a step's memory");
    memory->device = nullptr;
    memory->capacity = 0;
}

void step_memory_close(struct step_memory *memory) {
    drop(memory);
    for (cudaEvent_t copied : memory->copied)
        if (copied) cuda_must(cudaEventDestroy(copied), "freeing an event");
}

enum { ITEM_NUMBERS = sizeof(struct attention_item) / sizeof(int32_t) };
static_assert(ITEM_NUMBERS * sizeof(int32_t) == sizeof(struct attention_item), "no padding");

/* Entries of a sequence's line when its last position is `last`. */
static size_t line_of(int last, int B) {
    return (size_t)last / (size_t)B + 1;
}

/* The numbers of the largest step. */
static size_t largest(const struct attention_work *work, int B) {
    const struct step_limits *most = &work->limits;
    const size_t M = (size_t)most->max_rows, S = (size_t)most->max_seqs;
    const size_t entries = S * line_of(most->max_context - 1, B);
    const size_t items = (size_t)work->most_items * ITEM_NUMBERS;
    return 5 * M + (S + 1) + entries + 2 * S + items; /* in the order of step_upload */
}

size_t step_memory_bytes(const struct attention_work *work, int B) {
    return largest(work, B) * sizeof(int32_t);
}

enum status step_memory_reserve(struct step_memory *memory, const struct attention_work *work,
                                int B, cudaStream_t stream, struct err *err) {
    static const struct room steps = {
        "a step's arrays", "max-num-batched-tokens",
        "lower --max-num-batched-tokens, --max-num-seqs or --max-model-len"};
    const size_t n = largest(work, B), bytes = n * sizeof(int32_t);
    if (n <= memory->capacity) return STATUS_OK;
    cuda_must(cudaStreamSynchronize(stream), "waiting for the stream");
    drop(memory);
    void *host = nullptr, *device = nullptr;
    enum status status = STATUS_OK;
    for (int32_t *&piece : memory->host) {
        if (!status) status = room_pinned(&host, bytes, &steps, err);
        piece = status ? nullptr : (int32_t *)host;
    }
    if (!status) status = room_device(&device, bytes, &steps, err);
    if (status) return status;
    memory->device = (int32_t *)device;
    memory->capacity = n;
    return STATUS_OK;
}

/* ---- laying a step out ---------------------------------------------------------------------- */

/* What is filled, and how much of it is. */
struct layout {
    int32_t *host;
    const int32_t *device;
    size_t used, capacity;
};

/* Room for n numbers behind the others: returns where they are to be put. */
static int32_t *take(struct layout *to, size_t n) {
    int32_t *at = to->host + to->used;
    to->used += n;
    assert(to->used <= to->capacity);
    return at;
}

/* Where the device will have what is at a place on the host. */
static const int32_t *on_device(const struct layout *to, const int32_t *at) {
    return to->device + (at - to->host);
}

/* Puts an array behind the others, and `others` behind it until there are `room`; returns where it
 * will be on the device. */
static const int32_t *put(struct layout *to, const int32_t *array, size_t n, size_t room,
                          int32_t others) {
    int32_t *at = take(to, room);
    if (n > 0) memcpy(at, array, n * sizeof *array);
    for (size_t i = n; i < room; i++) at[i] = others;
    return on_device(to, at);
}

/* The same where those that are added count on from `from`. */
static const int32_t *put_counting(struct layout *to, const int32_t *array, size_t n, size_t room,
                                   int32_t from) {
    int32_t *at = take(to, room);
    if (n > 0) memcpy(at, array, n * sizeof *array);
    for (size_t i = n; i < room; i++) at[i] = from++;
    return on_device(to, at);
}

/* Where each row's line of the table begins. */
static const int32_t *put_lines(struct layout *to, const struct step *step, int stride,
                                size_t room) {
    int32_t *at = take(to, room);
    for (int s = 0; s < step->S; s++)
        for (int m = step->row_start[s]; m < step->row_start[s + 1]; m++) at[m] = s * stride;
    for (size_t i = (size_t)step->M; i < room; i++) at[i] = 0;
    return on_device(to, at);
}

/* The longest line that the step's sequences have, which none exceeds that the limits allow. */
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

/* Lines of `stride` entries, of which a sequence may have less. */
static const int32_t *put_tables(struct layout *to, const struct step *step, int stride) {
    const size_t n = (size_t)(stride < step->table_stride ? stride : step->table_stride);
    int32_t *at = take(to, (size_t)step->S * (size_t)stride);
    for (int s = 0; s < step->S; s++)
        memcpy(at + (size_t)s * (size_t)stride,
               step->table + (size_t)s * (size_t)step->table_stride, n * sizeof *at);
    return on_device(to, at);
}

/* Plans attention, with the lines' beginnings in the place of their numbers. */
static void put_items(struct layout *to, const struct step *step, int rows, int stride,
                      struct attention_work *work) {
    struct attention_item *items = (struct attention_item *)(to->host + to->used);
    const int n = attention_work_plan(work, items, step, rows);
    for (int i = 0; i < n; i++) items[i].sequence *= stride;
    work->items = (const struct attention_item *)on_device(to, take(to, (size_t)n * ITEM_NUMBERS));
}

/* All of a step, or with `rows` what a graph of so many replays. */
static void lay_out(struct device_step *at, struct layout *to, const struct step *step, int rows,
                    struct attention_work *work, int B) {
    const size_t M = (size_t)step->M, S = (size_t)step->S, R = (size_t)step->R;
    const size_t more = rows ? (size_t)rows - M : 0, copies = (size_t)step->n_copies;
    const int stride = longest_line(step, &work->limits, B);
    assert(!rows || (step->M == step->S && step->M == step->R && step->n_copies == 0));
    assert((int64_t)step->S * stride <= INT32_MAX);
    *at = {(int)(M + more), (int)(S + more), (int)(R + more), step->n_copies};
    at->sampled = step->sampled;
    at->token = put(to, step->token, M, M + more, 0);
    at->position = put(to, step->position, M, M + more, -1);
    at->slot = put(to, step->slot, M, M + more, -1);
    at->line = put_lines(to, step, stride, M + more);
    at->row_start = put_counting(to, step->row_start, S + 1, S + more + 1, step->M + 1);
    at->logit_row = put_counting(to, step->logit_row, R, R + more, step->M);
    at->copy_from = put(to, step->copy_from, copies, copies, 0);
    at->copy_to = put(to, step->copy_to, copies, copies, 0);
    put_items(to, step, rows, stride, work);
    at->table = put_tables(to, step, stride);
}

void step_upload(struct step_memory *memory, const struct step *step, int rows,
                 struct attention_work *work, int B, cudaStream_t stream) {
    const int turn = memory->turn;
    memory->turn = (turn + 1) % MAX_IN_FLIGHT;
    cuda_must(cudaEventSynchronize(memory->copied[turn]), "waiting for a step's copy");
    struct layout to = {memory->host[turn], memory->device, 0, memory->capacity};
    lay_out(&memory->at, &to, step, rows, work, B);
    cuda_must(cudaMemcpyAsync(memory->device, to.host, to.used * sizeof(int32_t),
                              cudaMemcpyHostToDevice, stream),
              "copying a step");
    cuda_must(cudaEventRecord(memory->copied[turn], stream), "recording an event");
}

/* Does one copy of the list read or write what another one writes? */
static bool copies_meet(const struct step *step) {
    for (int i = 0; i < step->n_copies; i++)
        for (int j = 0; j < step->n_copies; j++)
            if (i != j && (step->copy_to[i] == step->copy_from[j] ||
                           (i < j && step->copy_to[i] == step->copy_to[j])))
                return true;
    return false;
}

void step_copy_blocks(const struct device_step *at, const struct step *step, struct kv_cache *cache,
                      cudaStream_t stream) {
    const int at_once = copies_meet(step) ? 1 : step->n_copies;
    for (int i = 0; i < step->n_copies; i += at_once)
        kv_copy(cache, at->copy_from + i, at->copy_to + i, at_once, stream);
}
