/* Blocks of the cache: copied, gathered and scattered; sizes that a cache cannot have. */
#include <string.h>

#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/step.cuh"
#include "tests/cuda/support.h"

enum { L = 3, BLOCKS = 7 };

static const struct kv_config configs[] = {
    {L, 2, 64, BLOCKS, 16, DTYPE_F16}, /* blocks of a multiple of 16 bytes */
    {L, 1, 3, BLOCKS, 2, DTYPE_F16},   /* of 4 */
    {L, 1, 3, BLOCKS, 1, DTYPE_F16},   /* of 2 */
    {L, 3, 20, BLOCKS, 5, DTYPE_F32},   {L, 2, 128, BLOCKS, 16, DTYPE_BF16},
    {L, 3, 16, BLOCKS, 5, DTYPE_E4M3}, /* with scales, which a stage rounds up to 16 bytes */
    {L, 4, 64, BLOCKS, 16, DTYPE_E4M3}, {L, 130, 16, BLOCKS, 1, DTYPE_E4M3},
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

using bytes = std::vector<uint8_t>;

/* Memory of the cache beside a copy that is kept on the host. */
struct mirrored {
    uint8_t *device = nullptr;
    bytes now;
    void fill(void *memory, size_t n, uint64_t *state) {
        device = static_cast<uint8_t *>(memory);
        now.resize(n);
        for (uint8_t &byte : now) byte = (uint8_t)random_u32(state);
        CUDA_OK(cudaMemcpyAsync(device, now.data(), n, cudaMemcpyHostToDevice, test_stream()));
        finish();
    }
    void check(const char *what) const {
        bytes found(now.size());
        CUDA_OK(cudaMemcpy(found.data(), device, now.size(), cudaMemcpyDeviceToHost));
        ck_assert_msg(found == now, "%s", what);
    }
};

/* A cache with random bytes, and those bytes: of keys and of values, and of their scales. */
struct filled {
    struct kv_cache *cache = nullptr;
    size_t scale_bytes = 0; /* of a block in one layer */
    mirrored elements[2], scales[2];
    explicit filled(const struct kv_config &config) {
        struct err err = {};
        ck_assert_int_eq(kv_cache_new(&cache, &config, &err), STATUS_OK);
        uint64_t state = 77;
        elements[0].fill(cache->keys, cache->layer_bytes * L, &state);
        elements[1].fill(cache->values, cache->layer_bytes * L, &state);
        if (!cache->key_scale) return;
        scale_bytes = (size_t)config.G * sizeof(float);
        scales[0].fill(cache->key_scale, scale_bytes * BLOCKS * L, &state);
        scales[1].fill(cache->value_scale, scale_bytes * BLOCKS * L, &state);
    }
    ~filled() {
        kv_cache_free(cache);
    }
    filled(const filled &) = delete;
    filled &operator=(const filled &) = delete;
    uint8_t *elements_at(int is_value, int layer, int block) {
        return elements[is_value].now.data() + (size_t)layer * cache->layer_bytes +
               (size_t)block * cache->block_bytes;
    }
    uint8_t *scales_at(int is_value, int layer, int block) {
        return scales[is_value].now.data() + (size_t)(layer * BLOCKS + block) * scale_bytes;
    }
    void copy(int32_t from, int32_t to) {
        for (int p = 0; p < 2 * L; p++) {
            memcpy(elements_at(p / L, p % L, to), elements_at(p / L, p % L, from),
                   cache->block_bytes);
            if (scale_bytes)
                memcpy(scales_at(p / L, p % L, to), scales_at(p / L, p % L, from), scale_bytes);
        }
    }
    void check(const char *what) {
        finish();
        for (int i = 0; i < 2; i++) {
            elements[i].check(what);
            if (scale_bytes) scales[i].check(what);
        }
    }
};

START_TEST(blocks_are_copied) {
    filled f(configs[_i]);
    const std::vector<int32_t> from = {0, 6, 0}, to = {3, 1, 5};
    buffer source(from), target(to);
    kv_copy(f.cache, source.as<int32_t>(), target.as<int32_t>(), 3, test_stream());
    for (size_t i = 0; i < 3; i++) f.copy(from[i], to[i]);
    f.check("a copy");
    kv_copy(f.cache, source.as<int32_t>(), target.as<int32_t>(), 0, test_stream());
    f.check("a copy of nothing");
}
END_TEST

/* A list of copies has the effect of its copies one after the other: where a copy reads what an
 * earlier one wrote, where it reads what a later one writes, and where two write one block. */
START_TEST(copies_that_meet_keep_their_order) {
    static const std::vector<int32_t> lists[][2] = {
        {{0, 3, 6}, {3, 1, 5}}, {{3, 0, 6}, {1, 3, 5}}, {{0, 6, 2}, {3, 3, 1}}};
    for (auto &list : lists) {
        filled f(configs[_i]);
        buffer source(list[0]), target(list[1]);
        struct device_step at = {};
        at.copy_from = source.as<int32_t>();
        at.copy_to = target.as<int32_t>();
        struct step step = {};
        step.n_copies = 3;
        step.copy_from = list[0].data();
        step.copy_to = list[1].data();
        step_copy_blocks(&at, &step, f.cache, test_stream());
        for (size_t i = 0; i < 3; i++) f.copy(list[0][i], list[1][i]);
        f.check("copies that meet");
    }
}
END_TEST

/* A stage of the blocks: pieces of elements, scales, and what the kernel leaves alone. */
static bytes staged_pieces(filled *f, const std::vector<int32_t> &blocks) {
    bytes stage;
    for (int32_t block : blocks)
        for (int p = 0; p < 2 * L; p++) {
            const uint8_t *elements = f->elements_at(p / L, p % L, block);
            const size_t end = stage.size() + kv_piece_bytes(f->cache);
            stage.insert(stage.end(), elements, elements + f->cache->block_bytes);
            if (f->scale_bytes) {
                const uint8_t *scales = f->scales_at(p / L, p % L, block);
                stage.insert(stage.end(), scales, scales + f->scale_bytes);
            }
            stage.resize(end, 0xff);
        }
    return stage;
}

START_TEST(blocks_are_swapped) {
    filled f(configs[_i]);
    const std::vector<int32_t> out = {4, 0}, in = {2, 6};
    buffer from(out), to(in), stage(kv_stage_bytes(f.cache, 2));
    kv_gather(stage.data, f.cache, from.as<int32_t>(), 2, test_stream());
    ck_assert(stage.read<uint8_t>() == staged_pieces(&f, out));
    f.check("gathering changes nothing");
    kv_scatter(f.cache, stage.data, to.as<int32_t>(), 2, test_stream());
    for (size_t i = 0; i < 2; i++) f.copy(out[i], in[i]);
    f.check("a swap");
}
END_TEST

START_TEST(sizes_that_cannot_be_are_refused) {
    struct kv_cache *cache = nullptr;
    struct err err = {};
    const struct kv_config bad[] = {
        {L, 2, 64, BLOCKS, 16, DTYPE_Q8_0},
        {L, 2, 40, BLOCKS, 16, DTYPE_E4M3},
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
    tcase_add_loop_test(core, copies_that_meet_keep_their_order, 0, N_CONFIGS);
    tcase_add_loop_test(core, blocks_are_swapped, 0, N_CONFIGS);
    tcase_add_test(core, sizes_that_cannot_be_are_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
