/* Blocks of the cache: copied, gathered and scattered; sizes that a cache cannot have. */
#include <string.h>

#include "kernels/cuda/kv.cuh"
#include "tests/cuda/support.h"

enum { L = 3, BLOCKS = 7 };

static const struct kv_config configs[] = {
    {L, 2, 64, BLOCKS, 16, DTYPE_F16}, /* blocks of a multiple of 16 bytes */
    {L, 1, 3, BLOCKS, 2, DTYPE_F16},   /* of 4 */
    {L, 1, 3, BLOCKS, 1, DTYPE_F16},   /* of 2 */
    {L, 3, 20, BLOCKS, 5, DTYPE_F32},  {L, 2, 128, BLOCKS, 16, DTYPE_BF16},
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

using bytes = std::vector<uint8_t>;

/* A cache with random bytes, and those bytes: keys, then values. */
struct filled {
    struct kv_cache *cache = nullptr;
    size_t half;
    bytes now;
    explicit filled(const struct kv_config &config) {
        struct err err = {};
        ck_assert_int_eq(kv_cache_new(&cache, &config, &err), STATUS_OK);
        half = cache->layer_bytes * L;
        now.resize(2 * half);
        uint64_t state = 77;
        for (uint8_t &byte : now) byte = (uint8_t)random_u32(&state);
        CUDA_OK(cudaMemcpy(cache->keys, now.data(), half, cudaMemcpyHostToDevice));
        CUDA_OK(cudaMemcpy(cache->values, now.data() + half, half, cudaMemcpyHostToDevice));
    }
    ~filled() {
        kv_cache_free(cache);
    }
    filled(const filled &) = delete;
    filled &operator=(const filled &) = delete;
    /* Piece (value or key, layer, block) in `now`. */
    uint8_t *piece(int is_value, int layer, int block) {
        return now.data() + (is_value ? half : 0) + (size_t)layer * cache->layer_bytes +
               (size_t)block * cache->block_bytes;
    }
    void check(const char *what) {
        bytes found(now.size());
        finish();
        CUDA_OK(cudaMemcpy(found.data(), cache->keys, half, cudaMemcpyDeviceToHost));
        CUDA_OK(cudaMemcpy(found.data() + half, cache->values, half, cudaMemcpyDeviceToHost));
        ck_assert_msg(found == now, "%s", what);
    }
};

START_TEST(blocks_are_copied) {
    filled f(configs[_i]);
    const std::vector<int32_t> from = {0, 6, 0}, to = {3, 1, 5};
    buffer source(from), target(to);
    kv_copy(f.cache, source.as<int32_t>(), target.as<int32_t>(), 3, test_stream());
    for (size_t i = 0; i < 3; i++)
        for (int p = 0; p < 2 * L; p++)
            memcpy(f.piece(p / L, p % L, to[i]), f.piece(p / L, p % L, from[i]),
                   f.cache->block_bytes);
    f.check("a copy");
    kv_copy(f.cache, source.as<int32_t>(), target.as<int32_t>(), 0, test_stream());
    f.check("a copy of nothing");
}
END_TEST

START_TEST(blocks_are_swapped) {
    filled f(configs[_i]);
    const std::vector<int32_t> out = {4, 0}, in = {2, 6};
    buffer from(out), to(in), stage(kv_stage_bytes(f.cache, 2));
    kv_gather(stage.data, f.cache, from.as<int32_t>(), 2, test_stream());
    bytes staged = stage.read<uint8_t>(), want;
    for (int32_t block : out)
        for (int p = 0; p < 2 * L; p++) {
            const uint8_t *piece = f.piece(p / L, p % L, block);
            want.insert(want.end(), piece, piece + f.cache->block_bytes);
        }
    ck_assert(staged == want);
    f.check("gathering changes nothing");
    kv_scatter(f.cache, stage.data, to.as<int32_t>(), 2, test_stream());
    for (size_t i = 0; i < 2; i++)
        for (int p = 0; p < 2 * L; p++)
            memcpy(f.piece(p / L, p % L, in[i]), f.piece(p / L, p % L, out[i]),
                   f.cache->block_bytes);
    f.check("a swap");
}
END_TEST

START_TEST(sizes_that_cannot_be_are_refused) {
    struct kv_cache *cache = nullptr;
    struct err err = {};
    const struct kv_config bad[] = {
        {L, 2, 64, BLOCKS, 16, DTYPE_Q8_0},
        {0, 2, 64, BLOCKS, 16, DTYPE_F16},
        {L, 2, 64, -1, 16, DTYPE_F16},
        {1 << 20, 1 << 20, 1 << 20, 1 << 20, 16, DTYPE_F16},
        {1 << 10, 1 << 10, 1 << 10, 1 << 10, 1, DTYPE_F16}, /* more than a device has */
    };
    for (const struct kv_config &config : bad)
        ck_assert_int_eq(kv_cache_new(&cache, &config, &err), STATUS_USAGE);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_kv");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, blocks_are_copied, 0, N_CONFIGS);
    tcase_add_loop_test(core, blocks_are_swapped, 0, N_CONFIGS);
    tcase_add_test(core, sizes_that_cannot_be_are_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
