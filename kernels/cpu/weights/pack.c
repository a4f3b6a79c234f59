/* Packs weights into panels of 16 rows, so that a vector lane is an output and no horizontal sum is
 * needed. `struct matrix` in weights.h documents the layout, which all paths share. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"

const struct format *format_of(enum dtype type) {
    static const struct {
        enum dtype type;
        struct format format;
    } formats[] = {
#define ENTRY(TYPE, name, number, elements, bytes, ...) {DTYPE_##TYPE, FORMAT(__VA_ARGS__)},
        WEIGHT_TYPES(ENTRY)
#undef ENTRY
    };
    size_t i = 0;
    while (formats[i].type != type) assert(i < sizeof formats / sizeof *formats - 1), i++;
    return &formats[i].format;
}

/* ---- codes: four bytes of each row per line of 64 bytes ------------------------------------- */

enum { LINE = 4 * LANES };

static void lines_write(uint8_t *codes, const uint8_t *bytes, int lines, int lane) {
    for (int j = 0; j < lines; j++) memcpy(codes + j * LINE + lane * 4, bytes + 4 * j, 4);
}

/* Packs `bits` bits, starting at bit `from`, of `groups` groups of four codes into the four bytes
 * of a line. */
static void bits_write(uint8_t *line, const uint8_t *code, int groups, int from, int bits,
                       int lane) {
    uint32_t four, all = 0, mask = bits == 1 ? 0x01010101 : 0x03030303;
    for (int g = 0; g < groups; g++) {
        memcpy(&four, code + 4 * g, 4);
        all |= (four >> from & mask) << g * bits;
    }
    memcpy(line + lane * 4, &all, 4);
}

static void codes_write(uint8_t *codes, const uint8_t *code, int bits, int lane) {
    if (bits == 8) {
        lines_write(codes, code, 8, lane);
        return;
    }
    if (bits < 4) {
        for (int i = 0; i < 2; i++) bits_write(codes + i * LINE, code + 16 * i, 4, 0, 2, lane);
        if (bits == 3) bits_write(codes + 2 * LINE, code, 8, 2, 1, lane);
        return;
    }
    uint8_t nibbles[16];
    for (int i = 0; i < 16; i++) nibbles[i] = (uint8_t)((code[i] & 15) | code[i + 16] << 4);
    lines_write(codes, nibbles, 4, lane);
    uint8_t *high = codes + 4 * LINE;
    if (bits == 5) bits_write(high, code, 8, 4, 1, lane);
    for (int i = 0; i < 2 && bits == 6; i++)
        bits_write(high + i * LINE, code + 16 * i, 4, 4, 2, lane);
}

static void pairs_read(const uint8_t *codes, uint8_t *code, bool three) {
    for (int i = 0; i < BLOCK; i++) {
        code[i] = codes[i / 16 * LINE + i % 4] >> i / 4 % 4 * 2 & 3;
        if (three) code[i] |= (codes[2 * LINE + i % 4] >> i / 4 & 1) << 2;
    }
}

static void codes_read(const uint8_t *codes, uint8_t *code, int bits, int lane) {
    if (bits == 8) {
        for (int i = 0; i < BLOCK; i++) code[i] = codes[i / 4 * LINE + lane * 4 + i % 4];
        return;
    }
    if (bits < 4) {
        pairs_read(codes + lane * 4, code, bits == 3);
        return;
    }
    for (int i = 0; i < 16; i++) {
        uint8_t byte = codes[i / 4 * LINE + lane * 4 + i % 4];
        code[i] = byte & 15;
        code[i + 16] = byte >> 4;
    }
    const uint8_t *high = codes + 4 * LINE + lane * 4;
    for (int i = 0; i < BLOCK && bits == 5; i++) code[i] |= (high[i % 4] >> i / 4 & 1) << 4;
    for (int i = 0; i < BLOCK && bits == 6; i++)
        code[i] |= (high[i / 16 * LINE + i % 4] >> i / 4 % 4 * 2 & 3) << 4;
}

static size_t code_bytes(int bits) {
    static const size_t lines[] = {[2] = 2, [3] = 3, [4] = 4, [5] = 5, [6] = 6, [8] = 8, [16] = 16};
    assert(bits > 0 && bits <= 16 && lines[bits] > 0);
    return lines[bits] * LINE;
}

/* ---- scales --------------------------------------------------------------------------------- */

enum { HALVES = 2 * LANES, FLOATS = 4 * LANES }; /* bytes of one number of each row */

/* Bytes of a block's small scales: 16 of one kind and, for most types, 16 of another. */
static size_t small_bytes(const struct format *format) {
    return format->has_min || format->halved ? 2 * LANES : LANES;
}

static size_t scale_bytes(const struct format *format) {
    if (format->bits == 16) return LANES;
    if (format->scales == SCALES_FLOAT) return FLOATS + (format->has_min ? LANES : 0);
    if (format->scales == SCALES_POINT) return HALVES + LANES;
    size_t halves = format->has_min ? 2 * HALVES : HALVES;
    return format->super ? halves + 8 * small_bytes(format) : halves;
}

/* Offset of the small scales of block i of 8. */
static size_t small_offset(const struct format *format, int i) {
    return (format->has_min ? 2 * HALVES : HALVES) + (size_t)(i % 8) * small_bytes(format);
}

static void scales_write(uint8_t *scales, const struct format *format,
                         const struct weight_block *block, int i, int lane) {
    if (format->scales == SCALES_FLOAT) {
        memcpy(scales + 4 * lane, &block->d_float, 4);
        if (format->has_min) scales[FLOATS + lane] = (uint8_t)-block->min[0];
        return;
    }
    memcpy(scales + 2 * lane, &block->d, 2);
    if (format->scales == SCALES_POINT) {
        scales[HALVES + lane] = (uint8_t)-block->min[0];
        return;
    }
    if (format->has_min) memcpy(scales + HALVES + 2 * lane, &block->m, 2);
    if (!format->super) return;
    uint8_t *small = scales + small_offset(format, i) + lane;
    bool both = format->halved && format->has_min;
    small[0] = (uint8_t)(both ? block->scale[0] | -block->min[0] << 4 : block->scale[0]);
    if (both)
        small[LANES] = (uint8_t)(block->scale[1] | -block->min[1] << 4);
    else if (format->has_min)
        small[LANES] = (uint8_t)-block->min[0];
    else if (format->halved)
        small[LANES] = (uint8_t)block->scale[1];
}

static void scales_read(const uint8_t *scales, const struct format *format,
                        struct weight_block *block, int i, int lane) {
    block->scale[0] = block->scale[1] = 1;
    block->min[0] = block->min[1] = format->has_min;
    block->m = 0;
    if (format->scales == SCALES_FLOAT) {
        memcpy(&block->d_float, scales + 4 * lane, 4);
        if (format->has_min) block->min[0] = block->min[1] = -scales[FLOATS + lane];
        return;
    }
    memcpy(&block->d, scales + 2 * lane, 2);
    if (format->scales == SCALES_POINT) {
        block->m = block->d;
        block->min[0] = block->min[1] = -scales[HALVES + lane];
        return;
    }
    if (format->has_min) memcpy(&block->m, scales + HALVES + 2 * lane, 2);
    if (!format->super) return;
    const uint8_t *small = scales + small_offset(format, i) + lane;
    for (int half = 0; half < 2; half++) {
        const uint8_t *own = small + (format->halved ? half * LANES : 0);
        block->scale[half] = !format->has_min ? (int8_t)*own : format->halved ? *own & 15 : *own;
        if (format->has_min) block->min[half] = format->halved ? -(*own >> 4) : -small[LANES];
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Matrices are contiguous in slabs of large pages. A small matrix alone would use small pages, and
 * reading all weights for a token would then spend most of its time on address translation. */

enum { SLAB_BYTES = 64 << 20, TOUCH_BYTES = 2 << 20, MAX_AHEAD = 8, SMALL_PAGE = 4096 };

struct slab {
    struct slab *next;
    uint8_t *memory;
    size_t bytes, used, touched;
    int matrices; /* number of matrices in this slab; the last one to be freed frees the slab */
};

static struct slab *slab_with_room(struct cpu *cpu, size_t bytes) {
    struct slab *slab = cpu->slabs;
    if (slab && slab->bytes - slab->used >= bytes) return slab;
    slab = mem_calloc(1, sizeof *slab);
    slab->bytes = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
    slab->memory = mem_large(slab->bytes);
    slab->next = cpu->slabs;
    cpu->slabs = slab;
    return slab;
}

static void touch_page(void *arg, int i, int thread) {
    (void)thread;
    struct slab *slab = arg;
    *(volatile uint8_t *)(slab->memory + slab->touched + (size_t)i * TOUCH_BYTES) = 0;
}

/* The system zeroes a large page at its first write. Threads that fault on the same new page would
 * each zero a page and discard all but one. So each thread touches separate pages, a few ahead of
 * the current need. */
static void slab_touch(struct cpu *cpu, struct slab *slab) {
    if (slab->used <= slab->touched) return;
    size_t ahead = (size_t)(cpu->head.n_threads < MAX_AHEAD ? cpu->head.n_threads : MAX_AHEAD);
    size_t pages = (slab->used - slab->touched + TOUCH_BYTES - 1) / TOUCH_BYTES;
    pages = (pages + ahead - 1) / ahead * ahead;
    size_t left = (slab->bytes - slab->touched + TOUCH_BYTES - 1) / TOUCH_BYTES;
    if (pages > left) pages = left;
    pool_run(cpu->pool, touch_page, slab, (int)pages);
    slab->touched += pages * TOUCH_BYTES;
    assert(slab->touched >= slab->used);
}

/* Assigns to each node the panels that its threads multiply (ops/matmul.c), in proportion to its
 * threads. */
static void place_panels(const struct cpu *cpu, const struct matrix *w) {
    int border[MAX_NODES + 1];
    pool_borders(cpu->pool, w->n_panels, border);
    for (int k = 0; k < pool_nodes(cpu->pool); k++)
        pool_place(cpu->pool, w->panels + (size_t)border[k] * w->panel_bytes,
                   (size_t)(border[k + 1] - border[k]) * w->panel_bytes, k);
}

static void read_panel(void *arg, int panel, int thread) {
    const struct matrix *w = arg;
    assert(panel >= 0 && panel < w->n_panels);
    const volatile uint8_t *from = w->panels + (size_t)panel * w->panel_bytes;
    (void)thread;
    for (size_t i = 0; i < w->panel_bytes; i += SMALL_PAGE) (void)from[i];
}

/* Pages of a mapped file that are not in memory yet are placed on the node that reads them first.
 * Resident pages move if no other process maps them. */
static void map_nodes(const struct cpu *cpu, struct matrix *w) {
    pool_run(cpu->pool, read_panel, w, w->n_panels);
    place_panels(cpu, w);
}

/* Allocates zeroed memory for w's panels; `bytes` is a multiple of 64. */
static void slab_alloc(struct cpu *cpu, struct matrix *w) {
    assert(w->bytes > 0 && w->bytes % 64 == 0);
    w->slab = slab_with_room(cpu, w->bytes);
    w->panels = w->slab->memory + w->slab->used;
    w->slab->used += w->bytes;
    assert(w->slab->used <= w->slab->bytes && (uintptr_t)w->panels % 64 == 0);
    w->slab->matrices++;
    if (pool_nodes(cpu->pool) == 1)
        slab_touch(cpu, w->slab);
    else
        place_panels(cpu, w); /* the threads that write panels are then the first to touch them */
}

/* ---- a matrix ------------------------------------------------------------------------------- */

/* Plans a matrix of panels of `type`. Returns false if its sizes overflow. */
static bool plan(struct matrix *w, enum dtype type, int N, int K) {
    *w = (struct matrix){.type = type, .N = N, .K = K, .format = format_of(type)};
    w->n_panels = (N + LANES - 1) / LANES;
    if (!matrix_is_float(w)) {
        w->n_blocks = blocks_of(w->K);
        w->code_bytes = code_bytes(w->format->bits);
        w->scale_bytes = scale_bytes(w->format);
        w->scale_offset = (size_t)w->n_blocks * w->code_bytes;
        size_t n_scales = (size_t)(w->format->super ? w->n_blocks / 8 : w->n_blocks);
        w->panel_bytes = w->scale_offset + n_scales * w->scale_bytes;
    } else {
        w->panel_bytes = (size_t)w->K * LANES * sizeof(float);
    }
    w->panel_bytes = round_up(w->panel_bytes, 64);
    return !__builtin_mul_overflow(w->panel_bytes, (size_t)w->n_panels, &w->bytes);
}

void matrix_write_row(struct matrix *w, int row, const void *from) {
    assert(row >= 0 && row < w->N && !matrix_is_float(w) && !matrix_is_half(w));
    int panel = row / LANES, lane = row % LANES;
    for (int i = 0; i < w->n_blocks; i++) {
        struct weight_block block;
        block_read(&block, w->type, from, (size_t)i);
        codes_write((uint8_t *)matrix_codes(w, panel, i), block.code, w->format->bits, lane);
        scales_write((uint8_t *)matrix_scales(w, panel, i), w->format, &block, i, lane);
    }
}

static void write_float_row(struct matrix *w, int row, const void *from, enum dtype type) {
    assert(row >= 0 && row < w->N);
    float *to = (float *)(w->panels + (size_t)(row / LANES) * w->panel_bytes) + row % LANES;
    size_t step = (size_t)dtype_block_elements(type);
    float values[256];
    for (size_t k = 0; k < (size_t)w->K; k += step) {
        dequantise(type, (const uint8_t *)from + dtype_bytes(type, k), values, step);
        for (size_t i = 0; i < step; i++) to[(k + i) * LANES] = values[i];
    }
}

static enum status check(enum dtype type, int N, int K, struct err *err) {
    if (!dtype_name((int)type))
        return err_set(err, STATUS_BAD_FILE, NULL, "weights of type %d are not supported",
                       (int)type);
    if (N <= 0 || K <= 0 || N > INT32_MAX - LANES || K % dtype_block_elements((int)type) != 0)
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "a %s matrix of %d rows of %d: rows must be whole blocks of %d",
                       dtype_name((int)type), N, K, dtype_block_elements((int)type));
    return STATUS_OK;
}

enum { PIECE_BYTES = 128 << 10 };

struct pack_job {
    struct matrix *w;
    /* type of the panels; type of the rows, which are quantised first if it differs */
    enum dtype type, from;
    const uint8_t *rows;
    struct file_place place;
    size_t row_bytes, from_bytes; /* of a row in each type */
    int piece_panels;
    const struct path *path;
    uint8_t *quantised; /* [threads][LANES] rows; NULL: rows are packed unchanged */
    uint8_t *read;      /* [threads][piece_panels][LANES] rows of the file; NULL: they are mapped */
};

/* Returns the rows of a panel in the panels' type. */
static const uint8_t *rows_of_panel(const struct pack_job *job, int panel, const uint8_t *rows,
                                    int thread) {
    size_t left = (size_t)job->w->N - (size_t)panel * LANES, n = left < LANES ? left : LANES;
    if (!job->quantised) return rows;
    uint8_t *out = job->quantised + (size_t)thread * LANES * job->row_bytes;
    job->path->weights->quantise(job->type, out, job->from, rows, n * (size_t)job->w->K);
    return out;
}

/* Quantises a whole panel at once if the type and the path support it. */
static bool quantise_whole_panel(const struct pack_job *job, int panel, const uint8_t *rows) {
    return job->quantised && job->path->quantise_panel &&
           job->path->quantise_panel(job->w, panel, job->from, rows);
}

static void pack_panel_rows(struct pack_job *job, int panel, const uint8_t *rows, int thread) {
    struct matrix *w = job->w;
    bool is_whole = (panel + 1) * LANES <= w->N;
    if (is_whole && quantise_whole_panel(job, panel, rows)) return;
    const uint8_t *from = rows_of_panel(job, panel, rows, thread);
    if (is_whole && pack_panel(w, panel, from, job->row_bytes)) return;
    for (int row = panel * LANES; row < (panel + 1) * LANES && row < w->N; row++) {
        if (matrix_is_float(w))
            write_float_row(w, row, from, job->type);
        else if (matrix_is_half(w))
            matrix_write_halves(w, row, from, job->type);
        else
            matrix_write_row(w, row, from);
        from += job->row_bytes;
    }
}

/* Returns the rows of a piece. Rows of a file are read into the thread's part of the scratch
 * memory; if reading fails, the mapped rows are used. */
static const uint8_t *rows_of_piece(const struct pack_job *job, int first, int thread) {
    size_t panel_bytes = LANES * job->from_bytes, at = (size_t)first * panel_bytes;
    size_t left = (size_t)job->w->N * job->from_bytes - at;
    size_t room = (size_t)job->piece_panels * panel_bytes, bytes = left < room ? left : room;
    if (!job->read) return job->rows + at;
    uint8_t *to = job->read + (size_t)thread * room;
    ssize_t got = pread(job->place.fd, to, bytes, (off_t)(job->place.offset + (int64_t)at));
    return got == (ssize_t)bytes ? to : job->rows + at;
}

static void pack_piece(void *arg, int piece, int thread) {
    assert(piece >= 0);
    struct pack_job *job = arg;
    int from = piece * job->piece_panels, to = from + job->piece_panels;
    const uint8_t *rows = rows_of_piece(job, from, thread);
    for (int panel = from; panel < to && panel < job->w->n_panels; panel++) {
        pack_panel_rows(job, panel, rows, thread);
        rows += LANES * job->from_bytes;
    }
}

void cpu_free_packing(struct cpu *cpu) {
    mem_large_free(cpu->packing, cpu->packing_bytes);
    cpu->packing = NULL;
    cpu->packing_bytes = 0;
}

/* Divides scratch memory for all threads. It stays allocated for the next matrix, because faulting
 * in new pages costs as much as the packing itself. */
static void take_scratch(struct cpu *cpu, struct pack_job *job) {
    size_t threads = (size_t)cpu->head.n_threads;
    size_t rows = job->from == job->type ? 0 : round_up(threads * LANES * job->row_bytes, 64);
    size_t read = threads * (size_t)job->piece_panels * LANES * job->from_bytes;
    if (job->place.fd < 0) read = 0;
    if (rows + read > cpu->packing_bytes) {
        cpu_free_packing(cpu);
        cpu->packing_bytes = rows + read;
        cpu->packing = mem_large(cpu->packing_bytes);
    }
    job->quantised = rows ? cpu->packing : NULL;
    job->read = read ? cpu->packing + rows : NULL;
}

/* Makes a matrix of type `kept`; the job writes its panels. */
static enum status pack(struct matrix **out, struct cpu *cpu, enum dtype kept, int N, int K,
                        struct pack_job *job, struct err *err) {
    struct matrix plain;
    if (!plan(&plain, kept, N, K))
        return err_set(err, STATUS_BAD_FILE, NULL, "a matrix of %d rows of %d is too large", N, K);
    struct matrix *w = mem_alloc(sizeof *w);
    *w = plain;
    slab_alloc(cpu, w);
    job->w = w;
    job->row_bytes = dtype_bytes(job->type, (size_t)K);
    job->from_bytes = dtype_bytes(job->from, (size_t)K);
    /* A piece of the file fits in a core's own cache and is at least as large as one fault maps, so
     * that threads rarely meet in a page. All threads get the same number of pieces. */
    size_t panels = (size_t)w->n_panels, threads = (size_t)cpu->head.n_threads;
    size_t pieces = panels * LANES * job->from_bytes / PIECE_BYTES;
    pieces = round_up(pieces ? pieces : 1, threads);
    job->piece_panels = (int)((panels + pieces - 1) / pieces);
    job->path = cpu->path;
    take_scratch(cpu, job);
    pool_run(cpu->pool, pack_piece, job, (w->n_panels + job->piece_panels - 1) / job->piece_panels);
    *out = w;
    return STATUS_OK;
}

enum status cpu_matrix_new(struct matrix **out, struct cpu *cpu, enum dtype type, int N, int K,
                           const void *rows, enum matrix_form form, struct err *err) {
    enum status status = check(type, N, K, err);
    if (status != STATUS_OK) return status;
    if (form == MATRIX_FP8)
        return err_set(err, STATUS_USAGE, "quantization",
                       "the CPU multiplies no fp8; serve a file of q8_0 or q4_k");
    enum dtype kept = form == MATRIX_FLOAT32  ? DTYPE_F32
                      : form == MATRIX_HALVES ? DTYPE_BF16
                                              : type;
    struct pack_job job = {.type = type, .from = type, .rows = rows, .place.fd = -1};
    return pack(out, cpu, kept, N, K, &job, err);
}

enum status cpu_matrix_quantised(struct matrix **out, struct cpu *cpu, enum dtype to,
                                 enum dtype from, int N, int K, const void *rows,
                                 struct file_place place, enum matrix_form form, struct err *err) {
    enum status status = check(to, N, K, err);
    if (status != STATUS_OK) return status;
    assert(dtype_block_elements((int)from) == 1 && form != MATRIX_HALVES && form != MATRIX_FP8);
    enum dtype kept = form == MATRIX_FLOAT32 ? DTYPE_F32 : to;
    struct pack_job job = {.type = to, .from = from, .rows = rows, .place = place};
    return pack(out, cpu, kept, N, K, &job, err);
}

struct matrix *cpu_matrix_map(const struct cpu *cpu, enum dtype type, int N, int K,
                              const void *panels, size_t bytes) {
    struct matrix plain;
    if (check(type, N, K, NULL) || !plan(&plain, type, N, K) || plain.bytes != bytes) return NULL;
    assert((uintptr_t)panels % 64 == 0);
    struct matrix *w = mem_alloc(sizeof *w);
    *w = plain;
    w->panels = (uint8_t *)(uintptr_t)panels;
    if (pool_nodes(cpu->pool) > 1) map_nodes(cpu, w);
    return w;
}

void cpu_matrix_free(struct cpu *cpu, struct matrix *w) {
    if (!w) return;
    struct slab *slab = w->slab, **link = &cpu->slabs;
    mem_free(w);
    if (!slab) return;
    assert(slab->matrices > 0);
    if (--slab->matrices > 0) return;
    while (*link != slab) link = &(*link)->next;
    *link = slab->next;
    mem_large_free(slab->memory, slab->bytes);
    mem_free(slab);
}

void matrix_block(const struct matrix *w, struct weight_block *block, int row, int i) {
    assert(row >= 0 && row < w->N && i >= 0 && i < w->n_blocks);
    int panel = row / LANES, lane = row % LANES;
    codes_read(matrix_codes(w, panel, i), block->code, w->format->bits, lane);
    scales_read(matrix_scales(w, panel, i), w->format, block, i, lane);
    block->zero = w->format->zero;
    block->scales = w->format->scales;
    block->table = codes_table(w->format->table);
}

void matrix_row(const struct matrix *w, int row, float *out) {
    assert(row >= 0 && row < w->N);
    if (matrix_is_half(w)) {
        matrix_half_row(w, row, out);
        return;
    }
    for (int i = 0; i < w->n_blocks; i++) {
        struct weight_block block;
        matrix_block(w, &block, row, i);
        block_floats(&block, out + (size_t)i * BLOCK);
    }
    if (w->n_blocks) return;
    const float *from = (const float *)(w->panels + (size_t)(row / LANES) * w->panel_bytes);
    for (size_t k = 0; k < (size_t)w->K; k++) out[k] = from[k * LANES + (size_t)(row % LANES)];
}
