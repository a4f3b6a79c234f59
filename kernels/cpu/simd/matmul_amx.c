/* Quantised products of many rows with AMX: a panel of 16 outputs times tiles of 16 rows.
 *
 * A stretch of K is unpacked once for all rows of the call: its codes as signed bytes, whose panel
 * layout is that of a weight tile, and its scales as floats. Then each tile of rows is multiplied
 * with the stretch. A step covers the inputs that share a scale: 32 of them, or 16 for halved
 * types, with tiles of half the depth. The tiles compute a step's integer sums of 16 rows by 16
 * outputs exactly and store them to memory. The float part follows one block later, in the order of
 * order.md, with the sums of all rows in registers. At the end of a stretch the sums are stored to
 * y. The bits equal those of all other paths, because the integers are exact and the float
 * operations are the same.
 *
 * The float part limits the speed. After any tile instruction, one of the two units for 512-bit
 * operations pauses for some 250 cycles. So a block of 16 rows takes 83 cycles, although its 64
 * float operations would take 32 at two per cycle. That is a third less than with AVX-512 VNNI.
 * With few rows the unpacking costs more than this gains, and AVX-512 VNNI is used. The counts
 * below were measured on a Xeon (docs/performance.md) with weights in memory. */
#include <immintrin.h>

#include "kernels/cpu/simd/peak.h"
#include "kernels/cpu/simd/unpack_512.h"

/* ---- tile registers ------------------------------------------------------------------------- */

/* The tile registers of AMX for products of bytes: one each for the inputs, the weights and the
 * sums. The processor renames them, so consecutive products do not wait for each other.
 *
 * gcc 12 does not know how much memory these instructions read: it assumes 8 of the configuration's
 * 64 bytes and none of a tile, and drops or delays earlier stores. `written` prevents this. */

/* Ensures that the data stored at p, and all other stored data, is in memory from here on. */
INLINE void written(const void *p) {
    __asm__ volatile("" : : "r"(p) : "memory");
}

/* The operand of ldtilecfg: palette 1 has 8 registers of at most 16 rows of 64 bytes. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* The use of each register. These are macros because the intrinsics paste them into names. */
#define SUMS 0
#define INPUTS 1
#define WEIGHTS 2

/* Sets the shapes of the registers for `rows` rows of `inputs` inputs (bytes) times 16 outputs. A
 * thread keeps its shapes, so only a change has a cost. */
INLINE void tiles_shape(int rows, int inputs) {
    static _Thread_local int shaped;
    int shape = rows << 8 | inputs;
    if (shape == shaped) return;
    struct tile_config config = {.palette = 1};
    config.rows[SUMS] = config.rows[INPUTS] = (uint8_t)rows;
    config.rows[WEIGHTS] = (uint8_t)(inputs / 4);
    config.row_bytes[SUMS] = config.row_bytes[WEIGHTS] = 4 * LANES;
    config.row_bytes[INPUTS] = (uint16_t)inputs;
    written(&config);
    _tile_loadconfig(&config);
    shaped = shape;
}

/* dots[rows][16] = q[rows][inputs] times weights[inputs / 4][16][4], all signed bytes, exactly.
 * Rows of q are BLOCK bytes apart. */
INLINE void tiles_multiply(int32_t *dots, const int8_t *q, const int8_t *weights) {
    written(weights);
    _tile_loadd(INPUTS, q, BLOCK);
    _tile_loadd(WEIGHTS, weights, 4 * LANES);
    _tile_zero(SUMS);
    _tile_dpbssd(SUMS, INPUTS, WEIGHTS);
    _tile_stored(SUMS, dots, 4 * LANES);
}

/* ---- a stretch ------------------------------------------------------------------------------ */

enum {
    STRETCH = 32, /* blocks: 16 KB of codes stay in the L1 cache beside the inputs */
    MAX_STEPS = 2,
};

/* A stretch of a panel, unpacked. */
struct stretch {
    _Alignas(64) int8_t code[STRETCH][BLOCK * LANES]; /* per block: [8][16][4] */
    _Alignas(64) float d[STRETCH][MAX_STEPS][LANES];
    _Alignas(64) float m[STRETCH][MAX_STEPS][LANES];
    int first, blocks;    /* range of the panel's blocks */
    const uint8_t *ahead; /* prefetched while the first tile is multiplied with the stretch, */
    size_t share;         /* this many bytes per block */
};

/* ---- unpacking ------------------------------------------------------------------------------ */

INLINE void unpack_block(const struct matrix *w, int panel, struct stretch *s, int i,
                         const struct format format) {
    int block = s->first + i;
    __m512i v[8];
    __m512 d[2], m[2];
    unpack(v, matrix_codes(w, panel, block), format);
    unpack_scales(d, m, matrix_scales(w, panel, block), block, format);
    const __m512i zero = _mm512_set1_epi8((char)format.zero);
    UNROLL_FOR(g, 8) _mm512_store_si512(s->code[i] + 64 * g, _mm512_sub_epi8(v[g], zero));
    _mm512_store_ps(s->d[i][0], d[0]);
    if (format.halved) _mm512_store_ps(s->d[i][1], d[1]);
    if (format.has_min) _mm512_store_ps(s->m[i][0], m[0]);
    if (format.has_min && format.halved) _mm512_store_ps(s->m[i][1], m[1]);
}

INLINE void unpack_stretch(const struct matrix *w, int panel, struct stretch *s,
                           const struct format format) {
    for (int i = 0; i < s->blocks; i++) unpack_block(w, panel, s, i, format);
}

static void unpack_type(const struct matrix *w, int panel, struct stretch *s) {
    switch (w->type) {
#define ENTRY(TYPE, name, number, elements, bytes, ...)                                            \
    case DTYPE_##TYPE:                                                                             \
        unpack_stretch(w, panel, s, (struct format)FORMAT(__VA_ARGS__));                           \
        return;
        QUANT_TYPES(ENTRY)
#undef ENTRY
    default:
        assert(!"a quantised type");
    }
}

/* ---- a tile of rows along a stretch --------------------------------------------------------- */

/* Loads the sums of n rows after the previous stretch; +0 before the first stretch and for rows
 * that were not requested. */
INLINE void sums_begin(__m512 *acc, const struct call *c, int first, size_t outputs, const int n) {
    UNROLL_FOR(r, n) {
        acc[r] = _mm512_setzero_ps();
        if (first && r < c->rows) acc[r] = vec16_load_first(c->y + (size_t)r * c->stride, outputs);
    }
}

INLINE void sums_rest(const __m512 *acc, const struct call *c, size_t outputs, const int n) {
    UNROLL_FOR(r, n) {
        if (r >= c->rows) return;
        vec16_store_first(c->y + (size_t)r * c->stride, acc[r], outputs);
    }
}

/* Computes the integer sums of a block: n rows by 16 outputs for each step. */
INLINE void multiply_block(int32_t (*dots)[LANES * LANES], const int8_t *q, const int8_t *code,
                           const int steps) {
    UNROLL_FOR(step, steps) {
        int k = step * (BLOCK / steps);
        tiles_multiply(dots[step], q + k, code + k * LANES);
    }
}

/* Computes the float part of block i of the stretch. */
INLINE void add_block(__m512 *acc, int32_t (*dots)[LANES * LANES], const struct inputs *in,
                      const struct stretch *s, int i, const int n, const int steps,
                      const bool has_min) {
    UNROLL_FOR(step, steps) {
        const int32_t *exact = dots[step], *minus = in->minus_sum + (1 + step) * in->width;
        IN_REGISTER(exact);
        const __m512 d = _mm512_load_ps(s->d[i][step]);
        const __m512 m = has_min ? _mm512_load_ps(s->m[i][step]) : _mm512_setzero_ps();
        UNROLL_FOR(r, n) {
            __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(exact + r * LANES));
            acc[r] = _mm512_fmadd_ps(dot, _mm512_mul_ps(d, _mm512_set1_ps(in->scale[r])), acc[r]);
            float added = steps == 1 ? in->sum[r] : in->scale[r] * (float)-minus[r];
            if (has_min) acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(added), acc[r]);
        }
    }
}

/* Multiplies n rows with a stretch whose blocks have `steps` steps. */
INLINE void stretch_rows(const struct call *c, const struct stretch *s, const int n,
                         const int steps, const bool has_min) {
    _Alignas(64) int32_t dots[2][MAX_STEPS][LANES * LANES]; /* of a block and of the next one */
    __m512 acc[LANES];
    size_t left = (size_t)(c->w->N - c->panel * LANES), outputs = left < LANES ? left : LANES;
    struct inputs in = inputs_at(c, s->first);
    const size_t step = (size_t)in.width * BLOCK;
    tiles_shape(n, BLOCK / steps);
    sums_begin(acc, c, s->first, outputs, n);
    multiply_block(dots[0], in.q, s->code[0], steps);
    for (int i = 0; i < s->blocks; i++, inputs_next(&in)) {
        if (c->tile == 0) fetch(s->ahead + (size_t)i * s->share, s->share);
        if (i + 1 < s->blocks)
            multiply_block(dots[(i + 1) % 2], in.q + step, s->code[i + 1], steps);
        add_block(acc, dots[i % 2], &in, s, i, n, steps, has_min);
    }
    sums_rest(acc, c, outputs, n);
}

typedef void rows_fn(const struct call *, const struct stretch *);

#define ROWS(name, n, steps, has_min)                                                              \
    static void name##_##n(const struct call *c, const struct stretch *s) {                        \
        stretch_rows(c, s, n, steps, has_min);                                                     \
    }
/* clang-format off */
#define KERNELS(name, steps, has_min)                                                              \
    ROWS(name, 8, steps, has_min) ROWS(name, 12, steps, has_min) ROWS(name, 16, steps, has_min)    \
    static rows_fn *const name##_rows[] = {name##_8, name##_12, name##_16};
/* clang-format on */

KERNELS(scaled, 1, false)
KERNELS(with_min, 1, true)
KERNELS(halved, 2, false)
KERNELS(halved_with_min, 2, true)

/* ---- a panel times a group of tiles --------------------------------------------------------- */

enum {
    /* minimum rows of a call and of its last tile for which tiles are faster */
    MIN_ROWS = 2 * LANES,
    MIN_LAST_ROWS = 8,
};

static struct call call_of(const struct matrix *w, int panel, const struct activations *a, int tile,
                           float *y, size_t stride) {
    int left = a->M - tile * LANES;
    return (struct call){w, a, panel, tile, left < LANES ? left : LANES, y, stride};
}

bool amx_group(const struct matrix *w, int panel, const struct activations *a, int from, int to,
               float *y, size_t stride) {
    int bits = w->format->bits;
    assert(from >= 0 && from < to && to <= tiles_of(a->M));
    if (a->M < MIN_ROWS || bits < 2 || bits > 8) return false;
    rows_fn *const *const kinds[2][2] = {{scaled_rows, with_min_rows},
                                         {halved_rows, halved_with_min_rows}};
    rows_fn *const *kernels = kinds[w->format->halved][w->format->has_min];
    struct call last =
        call_of(w, panel, a, to - 1, y + (size_t)(to - 1 - from) * LANES * stride, stride);
    bool few = last.rows < MIN_LAST_ROWS;
    int whole = few ? to - 1 : to;
    struct stretch s;
    for (s.first = 0; from < whole && s.first < w->n_blocks; s.first += s.blocks) {
        s.blocks = w->n_blocks - s.first < STRETCH ? w->n_blocks - s.first : STRETCH;
        s.share = fetch_share(w);
        s.ahead = matrix_codes(w, panel, 0) + AHEAD + (size_t)s.first * s.share;
        unpack_type(w, panel, &s);
        for (int tile = from; tile < whole; tile++) {
            float *rows = y + (size_t)(tile - from) * LANES * stride;
            struct call call = call_of(w, panel, a, tile, rows, stride);
            kernels[call.rows <= 8 ? 0 : call.rows <= 12 ? 1 : 2](&call, &s);
        }
    }
    if (few) avx512vnni_product(w, panel, a, to - 1, last.rows, last.y, stride);
    return true;
}

void amx_product(const struct matrix *w, int panel, const struct activations *a, int tile, int rows,
                 float *y, size_t stride) {
    avx512vnni_product(w, panel, a, tile, rows, y, stride);
}

/* ---- the peak ------------------------------------------------------------------------------- */

/* The peak rate of multiply-adds with AMX; its float loop is that of AVX-512. */

/* Four sums of 16 x 16 from two tiles on each side. The barrier before the configuration is loaded
 * works around gcc 12, which assumes that only 8 of its 64 bytes are read. */
static void int8(void *arg, int part) {
    (void)arg;
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t columns[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.columns[i] = 64;
        config.rows[i] = 16;
    }
    int8_t data[1024];
    memset(data, part, sizeof data);
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, data, 64);
    _tile_loadd(5, data, 64);
    _tile_loadd(6, data, 64);
    _tile_loadd(7, data, 64);
    for (int i = 0; i < PEAK_ROUNDS / 8; i++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
}

const struct peak_loops amx_peaks = {
    .int8 = {"tdpbssd", PEAK_ROUNDS / 8 * 4 * 16.0 * 16 * 64, int8},
    .float32 = {"vfmadd, 512 bits", PEAK_LOOPS * 16.0, peak_float_avx512vnni},
};
