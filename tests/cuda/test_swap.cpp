/* Swapping of blocks to the host's memory and back: byte for byte, for any queued work around it,
 * for lists longer than a stage and a launch, over several chunks, while slots and blocks are
 * reused immediately. Copies of the same blocks. Layers may have different heads. */
#include <algorithm>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention/kv_swap.cuh"
#include "tests/cuda/support.h"

enum { L = 3 };
static const bool has_window[L] = {true, false, true};
static const struct kv_heads latents[L] = {{1, 72, 64}, {1, 72, 64}, {1, 72, 64}};
/* Layers with other numbers and sizes of heads; the second group is larger. */
static const struct kv_heads more_heads[L] = {{1, 16}, {3, 16}, {3, 16}};
static const struct kv_heads larger_heads[L] = {{1, 3}, {1, 3}, {2, 32}};
/* Only the second group of layers has windows. */
static const bool has_late_window[L] = {false, true, true};

/* A cache on `test_stream`, its swap space, and the expected contents of each block and slot of a
 * kind: a number that fills all its bytes. */
struct world {
    struct kv_cache *cache = nullptr;
    struct kv_swap *swap = nullptr;
    enum block_kind kind;
    int n_slots[N_BLOCK_KINDS] = {};
    std::vector<uint32_t> block, slot;
    uint32_t next = 1;

    world(const struct kv_config &config, int64_t bytes,
          const struct swap_sizes &sizes = SWAP_SIZES)
        : kind(config.n_window_blocks ? KV_WINDOW_BLOCKS : KV_BLOCKS),
          block((size_t)(kind == KV_WINDOW_BLOCKS ? config.n_window_blocks : config.n_blocks)),
          slot((size_t)1 << 12) {
        struct err err = {};
        ck_assert_int_eq(kv_cache_new(&cache, &config, &err), STATUS_OK);
        ck_assert_int_eq(kv_swap_new(&swap, cache, &sizes, bytes, n_slots, test_stream(), &err),
                         STATUS_OK);
        for (int32_t b = 0; b < (int32_t)block.size(); b++) write(b);
    }
    ~world() {
        kv_swap_free(nullptr, swap);
        kv_cache_free(cache);
    }
    world(const world &) = delete;
    world &operator=(const world &) = delete;

    /* The address and length of each part of a block. */
    std::vector<std::pair<uint8_t *, size_t>> parts(int32_t b) const {
        std::vector<std::pair<uint8_t *, size_t>> all;
        for (int l = 0; l < L; l++) {
            int number = l;
            const struct kv_cache *own = kv_alike(cache, &number);
            ck_assert_int_eq(own->layer[number].kind, cache->layer[l].kind);
            if (cache->layer[l].kind != kind) continue;
            const size_t place = own->layer[number].first + (size_t)b;
            const size_t at = place * own->block_bytes, G = (size_t)own->config.G;
            all.push_back({own->keys + at, own->block_bytes});
            if (own->values) all.push_back({own->values + at, own->block_bytes});
            if (!own->key_scale) continue;
            const size_t scale = place * G;
            all.push_back({(uint8_t *)(own->key_scale + scale), G * sizeof(float)});
            all.push_back({(uint8_t *)(own->value_scale + scale), G * sizeof(float)});
        }
        return all;
    }

    /* A step writes a block, in the order of the stream. */
    void write(int32_t b) {
        block[(size_t)b] = next++;
        int i = 0;
        for (auto &[at, bytes] : parts(b))
            CUDA_OK(cudaMemsetAsync(at, byte_of(block[(size_t)b], i++), bytes, test_stream()));
    }
    static uint8_t byte_of(uint32_t number, int part) {
        return (uint8_t)(number * 37 + (uint32_t)part * 11);
    }
    void check(const char *what) {
        finish();
        for (int32_t b = 0; b < (int32_t)block.size(); b++) {
            int i = 0;
            for (auto &[at, bytes] : parts(b)) {
                std::vector<uint8_t> found(bytes);
                CUDA_OK(cudaMemcpy(found.data(), at, bytes, cudaMemcpyDeviceToHost));
                const uint8_t want = byte_of(block[(size_t)b], i++);
                for (uint8_t byte : found)
                    ck_assert_msg(byte == want, "%s: block %d, part %d", what, (int)b, i - 1);
            }
        }
    }
    void out(const std::vector<int32_t> &from, const std::vector<int32_t> &to) {
        for (size_t i = 0; i < to.size(); i++) {
            ck_assert(kv_swap_reserve(nullptr, swap, kind, to[i] + 1));
            slot[(size_t)to[i]] = block[(size_t)from[i]];
        }
        kv_swap_out(nullptr, swap, kind, from.data(), to.data(), (int)to.size());
    }
    void in(const std::vector<int32_t> &from, const std::vector<int32_t> &to) {
        for (size_t i = 0; i < to.size(); i++) block[(size_t)to[i]] = slot[(size_t)from[i]];
        kv_swap_in(nullptr, swap, kind, from.data(), to.data(), (int)to.size());
    }
};

static const struct kv_config configs[] = {
    {L, 2, 64, 11, 16, DTYPE_F16},
    {L, 1, 3, 11, 1, DTYPE_F16}, /* blocks of 6 bytes */
    {L, 3, 16, 11, 5, DTYPE_E4M3},
    {L, 2, 64, 22, 16, DTYPE_F16, 11, has_window}, /* only the window blocks of this cache */
    {L, 3, 16, 22, 5, DTYPE_E4M3, 11, has_window},
    {L, 1, 72, 11, 16, DTYPE_F16, 0, nullptr, latents}, /* keys contain the values */
    {L, 1, 16, 11, 16, DTYPE_F16, 0, nullptr, more_heads},
    {L, 1, 16, 11, 5, DTYPE_E4M3, 0, nullptr, more_heads},
    {L, 1, 3, 11, 1, DTYPE_F16, 0, nullptr, larger_heads}, /* blocks of 6 and of 128 bytes */
    {L, 1, 16, 22, 16, DTYPE_F16, 11, has_late_window, more_heads},
    {L, 1, 16, 22, 5, DTYPE_E4M3, 11, has_window, more_heads},
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

/* A block is copied in all layers of its kind. */
START_TEST(copied_blocks_keep_their_bytes) {
    world w(configs[_i], 1 << 20);
    const std::vector<int32_t> from = {4, 0, 7}, to = {1, 9, 5};
    buffer source(from), target(to);
    kv_copy(w.cache, w.kind, source.as<int32_t>(), target.as<int32_t>(), 3, test_stream());
    for (size_t i = 0; i < 3; i++) w.block[(size_t)to[i]] = w.block[(size_t)from[i]];
    w.write(4);
    w.check("a copy");
}
END_TEST

/* The plan of a device's memory counts the stages that a swap space takes: those of the kind of
 * blocks whose stage is larger. */
START_TEST(stages_take_the_bytes_that_are_planned) {
    const struct kv_config &config = configs[_i];
    world w(config, 1 << 20);
    size_t largest = 0;
    for (enum block_kind kind : {KV_BLOCKS, KV_WINDOW_BLOCKS}) {
        const int n = w.cache->part[kind].n_blocks;
        ck_assert_int_le(n, KV_LIST);
        largest = std::max(largest, kv_stage_bytes(w.cache, kind, n));
    }
    ck_assert_uint_gt(largest, 0);
    ck_assert_uint_eq(kv_swap_bytes(nullptr, &config), 3 * largest);
}
END_TEST

static void check_that_blocks_come_back(const struct kv_config &config) {
    world w(config, 1 << 20);
    w.out({4, 0, 7}, {2, 3, 0});
    w.write(4), w.write(0), w.write(7); /* the blocks are reused immediately */
    w.check("out");
    w.in({3, 2, 0}, {0, 1, 9});
    kv_swap_arrive(nullptr, w.swap);
    w.check("in");
    w.out({}, {});
    w.in({}, {});
    kv_swap_arrive(nullptr, w.swap);
    w.check("nothing");
}

START_TEST(swapped_blocks_keep_their_bytes) {
    check_that_blocks_come_back(configs[_i]);
}
END_TEST

/* All blocks of a kind at once fill a stage, whose size is that of the kind with more bytes. */
START_TEST(a_stage_holds_all_blocks_of_a_kind) {
    world w(configs[_i], 1 << 20);
    std::vector<int32_t> all, turned;
    for (int32_t b = 0; b < (int32_t)w.block.size(); b++) all.push_back(b);
    turned.assign(all.rbegin(), all.rend());
    w.out(all, turned);
    for (int32_t b : all) w.write(b);
    w.in(all, all);
    kv_swap_arrive(nullptr, w.swap);
    w.check("all blocks");
}
END_TEST

/* Slots and blocks are reused while copies are under way: the contents of a slot go to a block, the
 * slot serves another block, and the first block goes to a third slot. */
static void check_the_order_of_calls(const struct kv_config &config) {
    world w(config, 1 << 20);
    w.write(5);
    w.out({5}, {0});
    w.write(5);
    w.in({0}, {1});
    w.out({5}, {0}); /* the slot is free as soon as its block was requested */
    kv_swap_arrive(nullptr, w.swap);
    w.out({1}, {1});
    w.write(1);
    w.in({0, 1}, {2, 3});
    w.write(5);
    kv_swap_arrive(nullptr, w.swap);
    w.write(2);
    w.check("one after the other");
}

START_TEST(all_is_in_the_order_of_the_calls) {
    check_the_order_of_calls(configs[_i]);
}
END_TEST

/* A block that an earlier step wrote is overwritten by the block that is swapped in. */
static void check_that_what_comes_waits(const struct kv_config &config) {
    world w(config, 1 << 20);
    w.out({5}, {0});
    finish();
    w.write(6);
    w.in({0}, {6});
    kv_swap_arrive(nullptr, w.swap);
    w.check("after the step");
}

START_TEST(a_swap_in_waits_for_earlier_steps) {
    check_that_what_comes_waits(configs[_i]);
}
END_TEST

/* The emulation runs streams as late as possible or, at random, immediately, so copies run before
 * and after the steps. */
START_TEST(neither_stream_need_be_the_slower_one) {
    setenv("CUDA_EMU_LAZY", "random", 1);
    for (int i = 0; i < 2; i++) {
        check_that_blocks_come_back(configs[0]);
        check_the_order_of_calls(configs[0]);
        check_that_what_comes_waits(configs[0]);
    }
    unsetenv("CUDA_EMU_LAZY");
}
END_TEST

/* More blocks than a launch's list holds; three stages, two of them filled in turn. */
START_TEST(lists_may_be_longer_than_a_stage) {
    const struct kv_config config = {L, 1, 8, 700, 1, DTYPE_F16};
    world w(config, 1 << 20);
    std::vector<int32_t> blocks, slots, back;
    for (int32_t i = 0; i < 690; i++) {
        blocks.push_back((i * 7) % 690);
        slots.push_back(i < 300 ? 299 - i : i);
        back.push_back(10 + (i * 11) % 690);
    }
    w.out(blocks, slots);
    for (int32_t b : blocks) w.write(b);
    w.in(slots, back);
    kv_swap_arrive(nullptr, w.swap);
    w.check("a long list");
}
END_TEST

/* Chunks of two blocks; stages of one block and of four. */
START_TEST(slabs_are_taken_as_they_are_wanted) {
    const struct kv_config config = {L, 2, 8, 7, 4, DTYPE_F16}; /* 768 bytes per block */
    world w(config, 5 * 768 + 100, {1800, _i ? 3150u : 900u});
    ck_assert_int_eq(w.n_slots[KV_BLOCKS], 5);
    ck_assert_int_eq(w.n_slots[KV_WINDOW_BLOCKS], 0);
    w.out({0, 1, 2, 3, 4}, {0, 1, 2, 3, 4});
    for (int32_t b = 0; b < 5; b++) w.write(b);
    w.in({4, 2, 3, 1}, {6, 5, 0, 2});
    kv_swap_arrive(nullptr, w.swap);
    w.check("chunks");
}
END_TEST

/* The bytes are divided in proportion to the cache's blocks: one window block per two others, which
 * are half as large. */
START_TEST(window_blocks_have_slots_of_their_own) {
    const struct kv_config config = {L, 2, 8, 22, 4, DTYPE_F16, 11, has_window};
    const int64_t block = 256; /* of one layer */
    world w(config, 8 * block + 4 * 2 * block);
    ck_assert_int_eq(w.n_slots[KV_BLOCKS], 8);
    ck_assert_int_eq(w.n_slots[KV_WINDOW_BLOCKS], 4);
    ck_assert(kv_swap_reserve(nullptr, w.swap, KV_BLOCKS, 8));
    w.out({7, 10}, {3, 0});
    const int32_t slots[] = {0}, blocks[] = {1};
    /* the same slot number of the other kind */
    kv_swap_out(nullptr, w.swap, KV_BLOCKS, blocks, slots, 1);
    w.write(7);
    w.in({3, 0}, {2, 4});
    kv_swap_arrive(nullptr, w.swap);
    w.check("beside slots of the other kind");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_swap");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, copied_blocks_keep_their_bytes, 0, N_CONFIGS);
    tcase_add_loop_test(core, stages_take_the_bytes_that_are_planned, 0, N_CONFIGS);
    tcase_add_loop_test(core, swapped_blocks_keep_their_bytes, 0, N_CONFIGS);
    tcase_add_loop_test(core, a_stage_holds_all_blocks_of_a_kind, 0, N_CONFIGS);
    tcase_add_loop_test(core, all_is_in_the_order_of_the_calls, 0, N_CONFIGS);
    tcase_add_loop_test(core, a_swap_in_waits_for_earlier_steps, 0, N_CONFIGS);
    tcase_add_test(core, neither_stream_need_be_the_slower_one);
    tcase_add_test(core, lists_may_be_longer_than_a_stage);
    tcase_add_loop_test(core, slabs_are_taken_as_they_are_wanted, 0, 2);
    tcase_add_test(core, window_blocks_have_slots_of_their_own);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
