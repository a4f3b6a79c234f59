/* Quantised products of many rows with AMX: a panel of 16 outputs times tiles of 16 rows.
 *
 * A stretch of K is unpacked once for all rows of the call: its codes as signed bytes, which in the
 * panel's layout are the weights' tile, its scales in float. Then one tile of rows after the other
 * goes along it. A step is the inputs that share a scale: 32 of them, or 16 for types of 6 bits,
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
#include "kernels/cpu/sixteen.h"
#include "kernels/cpu/tiles.h"

enum {
    STRETCH = 32, /* blocks: 16 KB of codes stay in the nearest cache beside the inputs */
    LEAD = 2,     /* steps that the float part is behind */
    SLOTS = 4,    /* integer sums of steps under way, a power of two above LEAD */
    MOST_STEPS = 2,
};

/* A stretch of a panel, unpacked. */
struct stretch {
    _Alignas(64) int8_t code[STRETCH][BLOCK * LANES]; /* of a block: [8][16][4] */
    _Alignas(64) float d[STRETCH][MOST_STEPS][LANES];
    _Alignas(64) float m[STRETCH][LANES];
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
                         const struct kind kind) {
    int block = s->first + i;
    __m512i v[8];
    __m512 d[2], m = _mm512_setzero_ps();
    unpack(v, matrix_codes(w, panel, block), kind.bits);
    unpack_scales(d, &m, matrix_scales(w, panel, block), block, kind);
    const __m512i zero = _mm512_set1_epi8((char)(kind.zero_shift >= 0 ? 1 << kind.zero_shift : 0));
    REPEAT(g, 8) _mm512_store_si512(s->code[i] + 64 * g, _mm512_sub_epi8(v[g], zero));
    _mm512_store_ps(s->d[i][0], d[0]);
    if (kind.bits == 6) _mm512_store_ps(s->d[i][1], d[1]);
    if (kind.has_min) _mm512_store_ps(s->m[i], m);
}

INLINE void unpack_stretch(const struct matrix *w, int panel, struct stretch *s,
                           const struct kind kind) {
    for (int i = 0; i < s->blocks; i++) unpack_block(w, panel, s, i, kind);
}

static void unpack_type(const struct matrix *w, int panel, struct stretch *s) {
    switch (w->type) {
    case DTYPE_Q4_0:
        unpack_stretch(w, panel, s, (struct kind){4, 3, false, false});
        break;
    case DTYPE_Q4_1:
        unpack_stretch(w, panel, s, (struct kind){4, -1, true, false});
        break;
    case DTYPE_Q5_0:
        unpack_stretch(w, panel, s, (struct kind){5, 4, false, false});
        break;
    case DTYPE_Q5_1:
        unpack_stretch(w, panel, s, (struct kind){5, -1, true, false});
        break;
    case DTYPE_Q8_0:
        unpack_stretch(w, panel, s, (struct kind){8, 7, false, false});
        break;
    case DTYPE_Q4_K:
        unpack_stretch(w, panel, s, (struct kind){4, -1, true, true});
        break;
    case DTYPE_Q5_K:
        unpack_stretch(w, panel, s, (struct kind){5, -1, true, true});
        break;
    default:
        assert(w->type == DTYPE_Q6_K);
        unpack_stretch(w, panel, s, (struct kind){6, 5, false, true});
    }
}

/* Panels are fetched ahead as one run of bytes, a share with each stretch. */
static void fetch_stretch(const struct matrix *w, int panel, const struct stretch *s) {
    size_t share = fetch_share(w);
    fetch(matrix_codes(w, panel, 0) + AHEAD + (size_t)s->first * share, (size_t)s->blocks * share);
}

/* ---- a tile of rows along a stretch --------------------------------------------------------- */

/* The sums of n rows as the stretch before left them; +0 before the first. Rows that are computed
 * without being asked for begin at +0. */
INLINE void sums_begin(__m512 *acc, const struct call *c, int first, size_t outputs, const int n) {
    REPEAT(r, n) {
        acc[r] = _mm512_setzero_ps();
        if (first && r < c->rows) acc[r] = lanes_load_first(c->y + (size_t)r * c->stride, outputs);
    }
}

INLINE void sums_rest(const __m512 *acc, const struct call *c, size_t outputs, const int n) {
    REPEAT(r, n) {
        if (r >= c->rows) return;
        lanes_store_first(c->y + (size_t)r * c->stride, acc[r], outputs);
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
    const __m512 m = has_min ? _mm512_load_ps(s->m[i]) : _mm512_setzero_ps();
    REPEAT(r, n) {
        __m512 exact = _mm512_cvtepi32_ps(_mm512_load_si512(dots + r * LANES));
        acc[r] = _mm512_fmadd_ps(exact, _mm512_mul_ps(d, _mm512_set1_ps(scale[r])), acc[r]);
        if (has_min) acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(sum[r]), acc[r]);
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

/* ---- a panel times a group of tiles --------------------------------------------------------- */

/* From how many rows on the tiles win. */
static int least_rows(int K) {
    return K <= 1024 ? 6 : K <= 3072 ? 8 : 12;
}

static bool tiles_suit(const struct matrix *w, const struct activations *a) {
    int bits = w->format->bits;
    return a->M >= least_rows(w->K) && bits >= 4 && bits <= 8;
}

static struct call call_of(const struct matrix *w, int panel, const struct activations *a, int tile,
                           float *y, size_t stride) {
    int left = a->M - tile * LANES;
    return (struct call){w, a, panel, tile, left < LANES ? left : LANES, y, stride};
}

static void stretch_times_tile(const struct call *c, const struct stretch *s) {
    rows_fn *const *kernels = c->w->format->bits == 6 ? halved_rows
                              : c->w->format->has_min ? with_min_rows
                                                      : scaled_rows;
    kernels[c->rows <= 8 ? 0 : c->rows <= 12 ? 1 : 2](c, s);
}

bool amx_group(const struct matrix *w, int panel, const struct activations *a, int from, int to,
               float *y, size_t stride) {
    if (!tiles_suit(w, a)) return false;
    struct call last =
        call_of(w, panel, a, to - 1, y + (size_t)(to - 1 - from) * LANES * stride, stride);
    bool few = last.rows < least_rows(w->K); /* which is never so for the first tile */
    int whole = few ? to - 1 : to;
    struct stretch s;
    for (s.first = 0; s.first < w->n_blocks; s.first += s.blocks) {
        s.blocks = w->n_blocks - s.first < STRETCH ? w->n_blocks - s.first : STRETCH;
        if (from == 0) fetch_stretch(w, panel, &s);
        unpack_type(w, panel, &s);
        for (int tile = from; tile < whole; tile++) {
            float *rows = y + (size_t)(tile - from) * LANES * stride;
            struct call call = call_of(w, panel, a, tile, rows, stride);
            stretch_times_tile(&call, &s);
        }
    }
    if (few) avx512vnni_product(w, panel, a, to - 1, last.rows, last.y, stride);
    return true;
}

void amx_product(const struct matrix *w, int panel, const struct activations *a, int tile, int rows,
                 float *y, size_t stride) {
    avx512vnni_product(w, panel, a, tile, rows, y, stride);
}
