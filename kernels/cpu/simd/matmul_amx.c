/* Quantised products of many rows with AMX: a panel of 16 outputs times tiles of 16 rows.
 *
 * A stretch of K is unpacked once for all rows of the call: its codes as signed bytes, which in the
 * panel's layout are the weights' tile, its scales in float. Then one tile of rows after the other
 * goes along it. A step is the inputs that share a scale: 32 of them, or 16 for halved types,
 * with tiles half as deep. The tiles give a step's integer sums of 16 rows by 16 outputs, exactly,
 * into memory; the float part follows LEAD steps behind, in the order that order.md has, with the
 * sums of all rows in registers. At a stretch's end these rest in y. Bits are the same as on all
 * other paths: the integers are exact and the float operations the same.
 *
 * The float part bounds the speed: tile instructions halve the rate of 512-bit operations for some
 * 250 cycles. With few rows AVX-512 VNNI alone is faster and takes the work.
 *
 * Speeds and the row counts below were measured with a prototype of the same loops; this file was
 * written where no processor had AMX. What it computes is proved there as well: the tests trap its
 * tile instructions and carry them out (tests/support/instructions.c). */
#include "kernels/cpu/ops/tiles.h"
#include "kernels/cpu/simd/peak.h"
#include "kernels/cpu/simd/unpack_512.h"

enum {
    STRETCH = 32, /* blocks: 16 KB of codes stay in the nearest cache beside the inputs */
    LEAD = 2,     /* steps that the float part is behind */
    SLOTS = 4,    /* integer sums of steps under way, a power of two above LEAD */
    MAX_STEPS = 2,
};

/* A stretch of a panel, unpacked. */
struct stretch {
    _Alignas(64) int8_t code[STRETCH][BLOCK * LANES]; /* of a block: [8][16][4] */
    _Alignas(64) float d[STRETCH][MAX_STEPS][LANES];
    _Alignas(64) float m[STRETCH][MAX_STEPS][LANES];
    int first, blocks; /* which of the panel's */
};

/* What the kernels are given. */
struct call {
    const struct matrix *w;
    const struct activations *a;
    int panel, tile, rows;
    float *y; /* of the tile */
    size_t stride;
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

/* The sums of n rows as the stretch before left them; +0 before the first. Rows that are computed
 * without being asked for begin at +0. */
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

/* The float part of step u. */
INLINE void add_step(__m512 *acc, const int32_t *dots, const struct call *c,
                     const struct stretch *s, int u, const int n, const int steps,
                     const bool has_min) {
    int i = u / steps;
    size_t at = activation_at(c->a, c->tile, s->first + i, 0);
    const float *scale = c->a->scale + at, *sum = c->a->sum + at;
    const __m512 d = _mm512_load_ps(s->d[i][u % steps]);
    const __m512 m = has_min ? _mm512_load_ps(s->m[i][u % steps]) : _mm512_setzero_ps();
    const int32_t *minus = activation_minus_sum(c->a, c->tile, s->first + i, 0);
    minus += (size_t)(1 + u % steps) * (size_t)c->a->width; /* of the inputs of half a block */
    UNROLL_FOR(r, n) {
        __m512 exact = _mm512_cvtepi32_ps(_mm512_load_si512(dots + r * LANES));
        acc[r] = _mm512_fmadd_ps(exact, _mm512_mul_ps(d, _mm512_set1_ps(scale[r])), acc[r]);
        float added = steps == 1 ? sum[r] : scale[r] * (float)-minus[r];
        if (has_min) acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(added), acc[r]);
    }
}

INLINE void multiply_step(int32_t *dots, const struct call *c, const struct stretch *s, int u,
                          const int steps) {
    int i = u / steps, k = u % steps * (BLOCK / steps);
    const int8_t *q = c->a->q + activation_at(c->a, c->tile, s->first + i, 0) * BLOCK + k;
    if (u % TILE_SETS)
        tiles_multiply_odd(dots, q, s->code[i] + k * LANES);
    else
        tiles_multiply_even(dots, q, s->code[i] + k * LANES);
}

/* n rows along a stretch whose blocks are so many steps. */
INLINE void stretch_rows(const struct call *c, const struct stretch *s, const int n,
                         const int steps, const bool has_min) {
    _Alignas(64) int32_t dots[SLOTS][LANES * LANES];
    __m512 acc[LANES];
    size_t left = (size_t)(c->w->N - c->panel * LANES), outputs = left < LANES ? left : LANES;
    tiles_shape(n, BLOCK / steps);
    sums_begin(acc, c, s->first, outputs, n);
    for (int u = 0; u < s->blocks * steps + LEAD; u++) {
        if (u < s->blocks * steps) multiply_step(dots[u % SLOTS], c, s, u, steps);
        if (u >= LEAD) add_step(acc, dots[(u - LEAD) % SLOTS], c, s, u - LEAD, n, steps, has_min);
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

/* From how many rows on the tiles win. */
static int min_rows(int K) {
    return K <= 1024 ? 6 : K <= 3072 ? 8 : 12;
}

static struct call call_of(const struct matrix *w, int panel, const struct activations *a, int tile,
                           float *y, size_t stride) {
    int left = a->M - tile * LANES;
    return (struct call){w, a, panel, tile, left < LANES ? left : LANES, y, stride};
}

bool amx_group(const struct matrix *w, int panel, const struct activations *a, int from, int to,
               float *y, size_t stride) {
    int bits = w->format->bits;
    assert(from >= 0 && from < to && to <= tiles_of(a->M));
    if (a->M < min_rows(w->K) || bits < 2 || bits > 8) return false;
    rows_fn *const *const kinds[2][2] = {{scaled_rows, with_min_rows},
                                         {halved_rows, halved_with_min_rows}};
    rows_fn *const *kernels = kinds[w->format->halved][w->format->has_min];
    struct call last =
        call_of(w, panel, a, to - 1, y + (size_t)(to - 1 - from) * LANES * stride, stride);
    bool few = last.rows < min_rows(w->K); /* which is never so for the first tile */
    int whole = few ? to - 1 : to;
    struct stretch s;
    for (s.first = 0; s.first < w->n_blocks; s.first += s.blocks) {
        s.blocks = w->n_blocks - s.first < STRETCH ? w->n_blocks - s.first : STRETCH;
        if (from == 0) { /* panels are fetched ahead as one run of bytes, a share a stretch */
            size_t share = fetch_share(w);
            fetch(matrix_codes(w, panel, 0) + AHEAD + (size_t)s.first * share,
                  (size_t)s.blocks * share);
        }
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

/* The most that AMX can multiply and add; its floats are AVX-512's. */

/* Four sums of 16 x 16 from two tiles each side. The barrier before the configuration is loaded
 * mends gcc 12, which takes but 8 of its 64 bytes to be read. */
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
