/* Matrices of more than 2^31 bytes: packing, lookup and products need 64-bit offsets. Only the last
 * tile of each matrix has memory, so any other byte is an illegal address. Only the last block of
 * each product runs, which is possible only in the emulation. */
#include <emu_count.h>
#include <string.h>

#include "kernels/cuda/gemm/ops.cuh"
#include "tests/cuda/gemm_data.h"

enum { K = 16384, TILE = 16 };

/* Kinds with different layouts, and the number of tiles whose codes exceed 2^31 bytes: one more
 * than a multiple of 8, so that the last block of a product has only the last tile. */
static const struct large {
    const kind *of;
    enum dtype act;
    int tiles;
} larges[] = {
    {&kinds[0], DTYPE_F32, 8192 + 9},   /* rows of 64 KiB, and more than 2^31 weights */
    {&kinds[2], DTYPE_BF16, 4096 + 9},  /* tiles of 512 KiB */
    {&kinds[3], DTYPE_F16, 8192 + 9},   /* q8_0: tiles of 256 KiB, and scales */
    {&kinds[6], DTYPE_BF16, 16384 + 9}, /* q4_k: tiles of 128 KiB, scales and supers */
    {&kinds[8], DTYPE_BF16, 8192 + 9},  /* fp8, with a scale per row */
};
enum { N_LARGES = sizeof larges / sizeof *larges };

/* Returns the address of a part of `tiles` tiles whose last tile is at `last`. */
static uint8_t *part_before(uint8_t *last, const uint8_t *from, const uint8_t *to, int tiles) {
    return last - (to - from) / tiles * (tiles - 1);
}

/* Returns the large matrix whose last tile is at the address of the only tile of `tile`. */
static struct gemm_weights large_of(const large &l, const struct gemm_weights &tile) {
    struct gemm_weights w;
    uint8_t *const anywhere = (uint8_t *)256;
    const size_t bytes = matrix_on_device::plan(&w, *l.of, l.act, l.tiles * TILE, K);
    gemm_place(&w, anywhere);
    ck_assert_int_ge(w.scales - w.codes, (ptrdiff_t)1 << 31);
    const uint8_t *const codes = w.codes, *const scales = w.scales, *const supers = w.supers;
    w.codes = part_before(tile.codes, codes, scales, l.tiles);
    w.scales = part_before(tile.scales, scales, supers, l.tiles);
    w.supers = part_before(tile.supers, supers, anywhere + bytes, l.tiles);
    return w;
}

/* Returns the last 16 outputs of each of M rows. */
static std::vector<uint8_t> last_outputs(const std::vector<uint8_t> &y, int M, enum dtype act) {
    const size_t row = y.size() / (size_t)M, bytes = TILE * (act == DTYPE_F32 ? 4 : 2);
    std::vector<uint8_t> out;
    for (size_t end = row; end <= y.size(); end += row)
        out.insert(out.end(), y.begin() + (ptrdiff_t)(end - bytes), y.begin() + (ptrdiff_t)end);
    return out;
}

static std::vector<uint8_t> embedded(const struct gemm_weights &w, std::vector<int32_t> ids) {
    const buffer rows(ids);
    buffer y(ids.size() * K * 4);
    embed_rows(y.data, &w, (const int32_t *)rows.data, NULL, 1, false, (int)ids.size(),
               test_stream());
    return y.read<uint8_t>();
}

static void check_products(const large &l, const struct gemm_weights &w,
                           const struct gemm_weights &right) {
    for (const int M : {1, 8, 20, 70}) {
        /* with more rows, not all of them are the last block's */
        if (l.act == DTYPE_F32 && M > 8) continue;
        const buffer x(packed(l.act, make_x(l.act, M, K)));
        const struct gemm_job all = {&w, NULL}, alone = {&right, NULL};
        emu_run_last_blocks(1);
        const std::vector<uint8_t> got = last_outputs(multiplied(&all, x, NULL, M), M, l.act);
        emu_run_last_blocks(0);
        ck_assert_msg(got == multiplied(&alone, x, NULL, M), "%s, %d rows", l.of->name, M);
    }
}

START_TEST(places_need_64_bits) {
    const large &l = larges[_i];
    const rows last = make_rows(*l.of, TILE, K, 3);
    matrix_on_device right(*l.of, l.act, last), tile(*l.of, l.act, TILE, K);
    const struct gemm_weights w = large_of(l, tile.w);
    tile.w = w;
    tile.pack(*l.of, w.N - TILE, last);
    ck_assert(tile.memory.read<uint8_t>() == right.memory.read<uint8_t>());
    ck_assert(embedded(w, {w.N - 1, w.N - TILE}) == embedded(right.w, {TILE - 1, 0}));
    right.w.ranges = w.ranges; /* the same order of additions */
    check_products(l, w, right.w);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_large");
    TCase *cases = tcase_create("large");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, places_need_64_bits, 0, N_LARGES);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
