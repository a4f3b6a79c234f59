/* DESIGN: a step's arrays on the device.
 *
 * All arrays of a step, including attention's plans, are contiguous in pinned memory and are
 * uploaded with one copy, because each copy costs microseconds whatever its size. The stream reads
 * the pinned memory later. So there is one buffer per step in flight, and a step waits for the copy
 * from its buffer's previous use, which ended long ago. The memory fits the largest step within the
 * limits and is allocated with the cache.
 *
 * Arrays whose length follows from the number of rows are first, then the plans, then the block
 * tables. A table's lines are contiguous, and each has as many entries as its sequence needs, so
 * one long sequence does not lengthen the copy of the others:
 *
 *     token | position | logit_row | slot | line | copies | states | items ... | tables | settings
 *
 * The rows of an encoder also have the last positions of their sequences, and token types. In a
 * model with a layer that guesses ahead they have next tokens and rows of hidden vectors, after the
 * logit rows. If rows have adapters, their tiles follow the states: all rows, and those that are
 * read.
 *
 * The settings of the samples are included if the step names its samples. They follow all data of a
 * graph's launches, because sampling is not part of a graph. If they exceed their space they are
 * uploaded separately, and not within the copy that the next step waits for.
 *
 * If layers with windows use separate blocks, slots, lines, copies and tables exist twice. The
 * launches of a layer get those of its kind.
 *
 * A step for a graph has the graph's number of rows and items; only the length of the tables
 * differs. The last rows are padding: without slots and items, they write neither keys nor values
 * and attend to nothing. A sequence is identified by the offset of its line in the tables, so
 * neither the lengths of lines nor the offset of the second table is an argument of any launch.
 * The offsets are computed in the buffer's last numbers, which are not uploaded.
 */
#include "kernels/cuda/step.cuh"

#include <string.h>

#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/low_rank/low_rank.cuh"
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

/* The maximum size of settings that are copied with a step: one kilobyte per sequence (a row
 * without lists uses a quarter of it), and enough for prompts of some thousand tokens. */
enum { SETTINGS_PER_SEQ = 1024, SETTINGS_BESIDE = 16384 };

static size_t settings_room(const struct step_limits *most) {
    return (size_t)most->max_seqs * SETTINGS_PER_SEQ + SETTINGS_BESIDE;
}

enum { TILE_NUMBERS = sizeof(struct adapter_tile) / sizeof(int32_t) };
static_assert(TILE_NUMBERS * sizeof(int32_t) == sizeof(struct adapter_tile), "no padding");

/* Numbers of the tiles of all rows and of those that are read. */
static size_t tile_numbers(const struct step_limits *most) {
    if (most->max_adapters == 0) return 0;
    return 2 * TILE_NUMBERS * (size_t)adapter_tiles_most(most->max_rows, most->max_adapters);
}

/* Numbers at the end of a buffer that are not uploaded: the offsets of lines, and work memory for
 * tiles. */
static size_t work_numbers(const struct step_limits *most) {
    return (size_t)most->max_seqs + 1 + (size_t)most->max_adapters + 1;
}

/* Numbers in the largest step. */
static size_t largest(const struct attention_workspace *work, int B) {
    const struct step_limits *most = &work->limits;
    const size_t M = (size_t)most->max_rows, S = (size_t)most->max_seqs;
    const size_t entries = S * line_of(most->max_context - 1, B);
    const size_t items = (size_t)work->limits.n_windows * (size_t)work->max_items * ITEM_NUMBERS;
    const size_t blocks = 2 * M + 2 * S + entries; /* slots, lines, copies, tables */
    const size_t settings = (settings_room(most) + SETTINGS_ALIGN) / sizeof(int32_t);
    /* Tokens, positions, logit rows, types, and what a row sees in each window. */
    size_t rows = (size_t)(4 + 2 * most->n_windows) * M;
    if (most->guesses_ahead) rows += 2 * M; /* next tokens, and rows of hidden vectors */
    /* States of recurrent layers: row_start, state, state_after, and the copies. */
    const size_t states = work->has_states ? 3 * M + 4 * S + 2 : 0;
    return states + rows + (size_t)work->kinds * blocks + items + settings + tile_numbers(most) +
           work_numbers(most);
}

size_t step_memory_bytes(const struct attention_workspace *work, int B) {
    return largest(work, B) * sizeof(int32_t);
}

enum status step_memory_reserve(struct step_memory *memory, const struct attention_workspace *work,
                                int B, cudaStream_t stream, struct err *err) {
    static const struct alloc_hint steps = {
        "a step's arrays", "max-num-batched-tokens",
        "lower {max-num-batched-tokens}, {max-num-seqs} or {max-model-len}"};
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

/* The buffer being filled. */
struct step_layout {
    int32_t *host;
    const int32_t *device;
    size_t used, capacity;
};

/* Reserves n numbers and returns their place in the host's buffer. */
static int32_t *reserve(struct step_layout *to, size_t n) {
    int32_t *at = to->host + to->used;
    to->used += n;
    assert(to->used <= to->capacity);
    return at;
}

/* Converts a place in the host's buffer to its device address. */
static const int32_t *on_device(const struct step_layout *to, const int32_t *at) {
    return to->device + (at - to->host);
}

/* Appends an array and pads it to `room` numbers with `others`. Returns its device address. */
static const int32_t *put(struct step_layout *to, const int32_t *array, size_t n, size_t room,
                          int32_t others) {
    int32_t *at = reserve(to, room);
    if (n > 0) memcpy(at, array, n * sizeof *array);
    for (size_t i = n; i < room; i++) at[i] = others;
    return on_device(to, at);
}

/* The same, padded with consecutive numbers starting at `from`. */
static const int32_t *put_counting(struct step_layout *to, const int32_t *array, size_t n,
                                   size_t room, int32_t from) {
    int32_t *at = reserve(to, room);
    if (n > 0) memcpy(at, array, n * sizeof *array);
    for (size_t i = n; i < room; i++) at[i] = from++;
    return on_device(to, at);
}

/* The lines of a step's tables, one after the other: line s of each table begins start[s] entries
 * after the table. */
struct table_lines {
    const int32_t *start; /* [S + 1] */
    int n;                /* sequences */
};

/* Finds the lines: each sequence's has the entries up to its last position. Checks the limits. */
static struct table_lines lines_of(const struct step_layout *to, const struct step *step,
                                   const struct step_limits *limits, int B) {
    assert(step->M <= limits->max_rows && step->S <= limits->max_seqs &&
           step->n_copies <= limits->max_seqs && step->n_state_copies <= limits->max_seqs);
    int32_t *start = to->host + to->capacity;
    start[0] = 0;
    for (int s = 0; s < step->S; s++) {
        const int end = step->row_start[s + 1];
        const bool has_rows = end > step->row_start[s];
        const int length = has_rows ? (int)line_of(step->position[end - 1], B) : 0;
        assert(!has_rows || step->position[end - 1] < limits->max_context);
        assert(length <= step->table_stride);
        start[s + 1] = start[s] + length;
    }
    return {start, step->S};
}

/* The offset of a sequence's line in the table of a kind; the tables are contiguous. */
static int32_t line_at(const struct table_lines *lines, int kind, int sequence) {
    assert(sequence >= 0 && sequence < lines->n);
    return kind * lines->start[lines->n] + lines->start[sequence];
}

/* Appends, for each row, the offset of its line in the table of a kind. */
static const int32_t *put_lines(struct step_layout *to, const struct step *step,
                                const struct table_lines *lines, int kind, size_t room) {
    int32_t *at = reserve(to, room);
    for (int s = 0; s < step->S; s++)
        for (int m = step->row_start[s]; m < step->row_start[s + 1]; m++)
            at[m] = line_at(lines, kind, s);
    for (size_t i = (size_t)step->M; i < room; i++) at[i] = 0;
    return on_device(to, at);
}

/* Appends what each row sees; rows of the padding see nothing. */
static const struct attention_range *put_seen(struct step_layout *to, const struct step *step,
                                              size_t room, const struct attention_sight *sight) {
    int32_t *at = reserve(to, 2 * room);
    struct attention_range *seen = (struct attention_range *)at;
    for (int s = 0; s < step->S; s++)
        for (int m = step->row_start[s]; m < step->row_start[s + 1]; m++)
            seen[m] = attention_seen(step, s, m, sight);
    for (size_t i = (size_t)step->M; i < room; i++) seen[i] = {0, -1};
    return (const struct attention_range *)on_device(to, at);
}

/* Appends the lines of a table. */
static void put_table(struct step_layout *to, const struct step *step, const int32_t *table,
                      const struct table_lines *lines) {
    int32_t *at = reserve(to, (size_t)lines->start[step->S]);
    for (int s = 0; s < step->S; s++) {
        const int n = lines->start[s + 1] - lines->start[s];
        memcpy(at + lines->start[s], table + (size_t)s * (size_t)step->table_stride,
               (size_t)n * sizeof *at);
    }
}

/* A step's blocks for the layers of one kind, in host memory. */
struct block_arrays {
    const int32_t *slot, *table, *copy_from, *copy_to;
};

static struct block_arrays blocks_of(const struct step *step, int kind) {
    if (kind == KV_WINDOW_BLOCKS)
        return {step->window_slot, step->window_table, step->window_copy_from,
                step->window_copy_to};
    return {step->slot, step->table, step->copy_from, step->copy_to};
}

/* Appends slots, lines and copies of each kind. */
static void put_slots(struct device_step *at, struct step_layout *to, const struct step *step,
                      const struct table_lines *lines, size_t room, int kinds) {
    const size_t copies = (size_t)step->n_copies;
    for (int kind = 0; kind < kinds; kind++) {
        const struct block_arrays blocks = blocks_of(step, kind);
        at->slot[kind] = put(to, blocks.slot, (size_t)step->M, room, -1);
        at->line[kind] = put_lines(to, step, lines, kind, room);
        at->copy_from[kind] = put(to, blocks.copy_from, copies, copies, 0);
        at->copy_to[kind] = put(to, blocks.copy_to, copies, copies, 0);
    }
}

/* Appends next tokens, which only rank 0 reads, and of guesses the rows of hidden vectors. */
static void put_ahead(struct device_step *at, struct step_layout *to, const struct step *step,
                      size_t room) {
    const size_t M = (size_t)step->M;
    assert(!step->next || step->n_pending == 0);
    if (step->next) at->next = put(to, step->next, M, room, 0);
    if (step->is_ahead && step->hidden_row) at->hidden_row = put(to, step->hidden_row, M, room, 0);
}

/* Appends the states of the step's sequences, of which a graph has one per row. */
static void put_states(struct device_step *at, struct step_layout *to, const struct step *step,
                       int rows) {
    const size_t S = (size_t)step->S, room = rows ? (size_t)rows : S;
    const size_t copies = (size_t)step->n_state_copies;
    const bool has_after = step->state_after != NULL;
    assert(step->state && S <= room && step->n_state_copies >= 0);
    at->S = (int)room;
    at->row_start = put(to, step->row_start, S + 1, room + 1, step->M);
    at->state = put(to, step->state, S, room, 0);
    at->state_after =
        put(to, step->state_after, has_after ? (size_t)step->M : 0, (size_t)at->M, -1);
    at->state_from = put(to, step->state_from, copies, copies, 0);
    at->state_to = put(to, step->state_to, copies, copies, 0);
}

/* Appends the tiles of all rows, then those of the rows that are read. */
static void put_tiles(struct device_step *at, struct step_layout *to, const struct step *step,
                      const struct step_limits *most) {
    int32_t *open = to->host + to->capacity + most->max_seqs + 1;
    assert(most->max_adapters > 0 && at->R <= at->M);
    for (int i = 0; i < 2; i++) {
        const bool are_read = i > 0;
        const int rows = are_read ? at->R : at->M, n = are_read ? step->R : step->M;
        const int tiles = adapter_tiles_most(rows, most->max_adapters);
        int32_t *place = reserve(to, (size_t)tiles * TILE_NUMBERS);
        adapter_tiles_fill((struct adapter_tile *)place, step->adapter,
                           are_read ? step->logit_row : NULL, n, rows, most->max_adapters, open);
        at->tiles[i] = {(const struct adapter_tile *)on_device(to, place), tiles};
    }
}

/* Plans attention for each window. Sequence numbers are replaced by the offsets of their lines;
 * layers with a window use the last table. */
static void put_items(struct step_layout *to, const struct step *step, int rows,
                      const struct table_lines *lines, struct attention_workspace *work) {
    for (int w = 0; w < work->limits.n_windows; w++) {
        struct attention_item *items = (struct attention_item *)(to->host + to->used);
        const int n = attention_workspace_plan(work, w, items, step, rows);
        const int kind = work->limits.windows[w].length > 0 ? work->kinds - 1 : KV_BLOCKS;
        for (int i = 0; i < n; i++) items[i].sequence = line_at(lines, kind, items[i].sequence);
        work->items[w] =
            (const struct attention_item *)on_device(to, reserve(to, (size_t)n * ITEM_NUMBERS));
    }
}

/* Plans the sampling of the step and appends its settings if they fit. */
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

/* Lays out a step, padded to `rows` rows unless that is 0. */
static void lay_out(struct device_step *at, struct step_layout *to, const struct step *step,
                    int rows, struct attention_workspace *work, int B) {
    const size_t M = (size_t)step->M, R = (size_t)step->R;
    const size_t more = rows ? (size_t)rows - M : 0;
    const struct table_lines lines = lines_of(to, step, &work->limits, B);
    const bool both_ways = work->limits.both_ways;
    assert(!rows || (step->M == step->R && step->n_copies == 0 && !both_ways));
    assert(!rows || step->n_state_copies == 0);
    assert(!step->type || both_ways);
    assert((int64_t)work->kinds * lines.start[step->S] <= INT32_MAX);
    assert(work->kinds == 1 || step->window_table);
    *at = {(int)(M + more), (int)(R + more), step->n_copies};
    at->sampled = step->sampled;
    at->token = put(to, step->token, M, M + more, 0);
    at->position = put(to, step->position, M, M + more, -1);
    at->logit_row = put_counting(to, step->logit_row, R, R + more, step->M);
    if (both_ways) at->type = put(to, step->type, step->type ? M : 0, M, 0);
    if (work->limits.guesses_ahead) put_ahead(at, to, step, M + more);
    for (int w = 0; w < work->limits.n_windows; w++) {
        const struct attention_sight sight = attention_workspace_sight(work, w);
        work->seen[w] = put_seen(to, step, M + more, &sight);
    }
    put_slots(at, to, step, &lines, M + more, work->kinds);
    if (work->has_states && !step->is_ahead) put_states(at, to, step, rows);
    if (step->adapter) put_tiles(at, to, step, &work->limits);
    put_items(to, step, rows, &lines, work);
    at->table = on_device(to, to->host + to->used);
    for (int kind = 0; kind < work->kinds; kind++)
        put_table(to, step, blocks_of(step, kind).table, &lines);
    put_settings(to, step, &work->limits);
}

void step_upload(struct step_memory *memory, const struct step *step, int rows,
                 struct attention_workspace *work, int B, cudaStream_t stream) {
    const int turn = memory->turn;
    memory->turn = (turn + 1) % MAX_IN_FLIGHT;
    cuda_check(cudaEventSynchronize(memory->copied[turn]), "waiting for a step's copy");
    struct step_layout to = {memory->host[turn], memory->device, 0,
                             memory->capacity - work_numbers(&work->limits)};
    lay_out(&memory->at, &to, step, rows, work, B);
    cuda_check(cudaMemcpyAsync(memory->device, to.host, to.used * sizeof(int32_t),
                               cudaMemcpyHostToDevice, stream),
               "copying a step");
    cuda_check(cudaEventRecord(memory->copied[turn], stream), "recording an event");
}

/* Does one of n copies read or write a block that another one writes? */
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
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++) {
        if (cache->part[kind].L == 0) continue;
        const struct block_arrays blocks = blocks_of(step, kind);
        const int at_once = copies_meet(&blocks, step->n_copies) ? 1 : step->n_copies;
        for (int i = 0; i < step->n_copies; i += at_once)
            kv_copy(cache, (enum block_kind)kind, at->copy_from[kind] + i, at->copy_to[kind] + i,
                    at_once, stream);
    }
}
