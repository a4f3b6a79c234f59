/* Blocks of the cache: copying, gathering and scattering; and invalid sizes of a cache. */
#include <string.h>

#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/step.cuh"
#include "tests/cuda/support.h"

enum { L = 3, BLOCKS = 7, WINDOW_BLOCKS = 5 };
static const struct kv_heads latents[L] = {{1, 72, 64}, {1, 72, 64}, {1, 72, 64}};
/* Layers with window blocks in the caches that have such blocks. They are not adjacent. */
static const bool has_window[L] = {true, false, true};

static const struct kv_config configs[] = {
    {L, 2, 64, BLOCKS, 16, DTYPE_F16}, /* blocks of a multiple of 16 bytes */
    {L, 1, 3, BLOCKS, 2, DTYPE_F16},   /* of 4 */
    {L, 1, 3, BLOCKS, 1, DTYPE_F16},   /* of 2 */
    {L, 3, 20, BLOCKS, 5, DTYPE_F32},
    {L, 2, 128, BLOCKS, 16, DTYPE_BF16},
    {L, 3, 16, BLOCKS, 5, DTYPE_E4M3}, /* with scales, which a stage rounds up to 16 bytes */
    {L, 4, 64, BLOCKS, 16, DTYPE_E4M3},
    {L, 130, 16, BLOCKS, 1, DTYPE_E4M3},
    {L, 2, 64, BLOCKS, 16, DTYPE_F16, WINDOW_BLOCKS, has_window},
    {L, 3, 16, BLOCKS, 5, DTYPE_E4M3, WINDOW_BLOCKS, has_window},
    {L, 1, 72, BLOCKS, 16, DTYPE_F16, 0, nullptr, latents}, /* keys contain the values */
    {L, 1, 72, BLOCKS, 1, DTYPE_F32, 0, nullptr, latents},
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

using bytes = std::vector<uint8_t>;

/* Memory of the cache, and a copy of it on the host. */
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

/* A cache with random bytes, and these bytes: keys and values, and their scales. */
struct filled {
    struct kv_cache *cache = nullptr;
    int kinds;              /* of elements: keys and values, or keys that contain the values */
    size_t scale_bytes = 0; /* of a block in one layer */
    mirrored elements[2], scales[2];
    explicit filled(const struct kv_config &config) {
        struct err err = {};
        ck_assert_int_eq(kv_cache_new(&cache, &config, &err), STATUS_OK);
        uint64_t state = 77;
        size_t blocks = 0;
        for (const struct kv_part &part : cache->part)
            blocks += (size_t)part.L * (size_t)part.n_blocks;
        ck_assert_uint_eq(blocks, config.n_window_blocks ? BLOCKS + 2 * WINDOW_BLOCKS : L * BLOCKS);
        elements[0].fill(cache->keys, cache->block_bytes * blocks, &state);
        kinds = config.heads ? 1 : 2;
        ck_assert(!cache->values == (kinds == 1));
        if (kinds == 2) elements[1].fill(cache->values, cache->block_bytes * blocks, &state);
        if (!cache->key_scale) return;
        scale_bytes = (size_t)config.G * sizeof(float);
        scales[0].fill(cache->key_scale, scale_bytes * blocks, &state);
        scales[1].fill(cache->value_scale, scale_bytes * blocks, &state);
    }
    ~filled() {
        kv_cache_free(cache);
    }
    filled(const filled &) = delete;
    filled &operator=(const filled &) = delete;
    bool has(int layer, enum block_kind kind) const {
        const bool windows = cache->config.n_window_blocks > 0;
        return (windows && has_window[layer]) == (kind == KV_WINDOW_BLOCKS);
    }
    /* Layers without windows are first, the others follow, each kind in order. */
    size_t place(int layer, int block) const {
        if (!cache->config.n_window_blocks) return (size_t)(layer * BLOCKS + block);
        return (size_t)(layer == 1 ? block : BLOCKS + layer / 2 * WINDOW_BLOCKS + block);
    }
    uint8_t *elements_at(int is_value, int layer, int block) {
        return elements[is_value].now.data() + place(layer, block) * cache->block_bytes;
    }
    uint8_t *scales_at(int is_value, int layer, int block) {
        return scales[is_value].now.data() + place(layer, block) * scale_bytes;
    }
    void copy(enum block_kind kind, int32_t from, int32_t to) {
        for (int p = 0; p < kinds * L; p++) {
            if (!has(p % L, kind)) continue;
            memcpy(elements_at(p / L, p % L, to), elements_at(p / L, p % L, from),
                   cache->block_bytes);
            if (scale_bytes)
                memcpy(scales_at(p / L, p % L, to), scales_at(p / L, p % L, from), scale_bytes);
        }
    }
    void check(const char *what) {
        finish();
        for (int i = 0; i < kinds; i++) {
            elements[i].check(what);
            if (scale_bytes) scales[i].check(what);
        }
    }
};

START_TEST(blocks_are_copied) {
    filled f(configs[_i]);
    const std::vector<int32_t> from = {0, 6, 0}, to = {3, 1, 5};
    buffer source(from), target(to);
    kv_copy(f.cache, KV_BLOCKS, source.as<int32_t>(), target.as<int32_t>(), 3, test_stream());
    for (size_t i = 0; i < 3; i++) f.copy(KV_BLOCKS, from[i], to[i]);
    f.check("a copy");
    if (f.cache->part[KV_WINDOW_BLOCKS].L > 0) {
        kv_copy(f.cache, KV_WINDOW_BLOCKS, target.as<int32_t>(), source.as<int32_t>() + 2, 1,
                test_stream());
        f.copy(KV_WINDOW_BLOCKS, 3, 0);
        f.check("a copy of window blocks");
    }
    kv_copy(f.cache, KV_BLOCKS, source.as<int32_t>(), target.as<int32_t>(), 0, test_stream());
    f.check("a copy of nothing");
}
END_TEST

/* A list of copies has the effect of its copies in sequence: if a copy reads a block that an
 * earlier one wrote, if it reads a block that a later one writes, and if two write one block.
 * Window blocks may collide when the other blocks do not, and vice versa. */
START_TEST(copies_that_meet_keep_their_order) {
    static const std::vector<int32_t> lists[][2] = {{{0, 3, 6}, {3, 1, 5}},
                                                    {{3, 0, 6}, {1, 3, 5}},
                                                    {{0, 6, 2}, {3, 3, 1}},
                                                    {{0, 1, 2}, {3, 4, 5}}};
    static const std::vector<int32_t> apart[2] = {{0, 1, 0}, {2, 3, 4}};
    static const std::vector<int32_t> meeting[2] = {{0, 3, 1}, {3, 1, 4}};
    for (auto &list : lists) {
        auto &other = &list == &lists[3] ? meeting : apart;
        filled f(configs[_i]);
        buffer source(list[0]), target(list[1]);
        struct device_step at = {};
        at.copy_from[KV_BLOCKS] = source.as<int32_t>();
        at.copy_to[KV_BLOCKS] = target.as<int32_t>();
        struct step step = {};
        step.n_copies = 3;
        step.copy_from = list[0].data();
        step.copy_to = list[1].data();
        buffer own_source(other[0]), own_target(other[1]);
        at.copy_from[KV_WINDOW_BLOCKS] = own_source.as<int32_t>();
        at.copy_to[KV_WINDOW_BLOCKS] = own_target.as<int32_t>();
        step.window_copy_from = other[0].data();
        step.window_copy_to = other[1].data();
        step_copy_blocks(&at, &step, f.cache, test_stream());
        for (size_t i = 0; i < 3; i++) f.copy(KV_BLOCKS, list[0][i], list[1][i]);
        for (size_t i = 0; i < 3; i++) f.copy(KV_WINDOW_BLOCKS, other[0][i], other[1][i]);
        f.check("copies that meet");
    }
}
END_TEST

/* The expected stage for the blocks: elements, scales, and the padding that the kernel leaves
 * unchanged. */
static bytes staged_pieces(filled *f, enum block_kind kind, const std::vector<int32_t> &blocks) {
    bytes stage;
    for (int32_t block : blocks)
        for (int p = 0; p < f->kinds * L; p++) {
            if (!f->has(p % L, kind)) continue;
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
    for (enum block_kind kind : {KV_BLOCKS, KV_WINDOW_BLOCKS}) {
        if (f.cache->part[kind].L == 0) continue;
        const std::vector<int32_t> out = {4, 0}, in = {2, kind == KV_WINDOW_BLOCKS ? 3 : 6};
        buffer stage(kv_stage_bytes(f.cache, kind, 2));
        kv_gather(stage.data, f.cache, kind, out.data(), 2, test_stream());
        ck_assert(stage.read<uint8_t>() == staged_pieces(&f, kind, out));
        f.check("gathering changes nothing");
        kv_scatter(f.cache, kind, stage.data, in.data(), 2, test_stream());
        for (size_t i = 0; i < 2; i++) f.copy(kind, out[i], in[i]);
        f.check("a swap");
    }
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
        {L, 2, 64, BLOCKS, 16, DTYPE_F16, -1, has_window},
        {1 << 20, 1 << 20, 1 << 20, 1 << 20, 16, DTYPE_F16},
        {1 << 10, 1 << 10, 1 << 10, 1 << 10, 1, DTYPE_F16}, /* more than a device's memory */
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
