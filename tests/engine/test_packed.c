/* Packed matrices of folders, converted to blocks. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/tensors/weights.h"
#include "kernels/backend.h"
#include "support/suite_main.h"

enum { BLOCK32 = 32, ROWS = 3, BLOCKS = 5, CODES = 16, BLOCK_BYTES = 17 };

/* Byte i of a block's codes holds inputs 2 i and 2 i + 1 in a folder, and inputs i and i + 16 in a
 * GGUF file. Each block has a separate scale. */
START_TEST(each_block_of_mxfp4_has_its_scale_and_codes) {
    uint8_t codes[ROWS * BLOCKS * CODES], scales[ROWS * BLOCKS], want[ROWS * BLOCKS * BLOCK_BYTES];
    for (int b = 0; b < ROWS * BLOCKS; b++) {
        uint8_t input[32];
        for (int i = 0; i < 32; i++) input[i] = (uint8_t)((b * 7 + i * 5 + i / 16) % 16);
        scales[b] = want[b * BLOCK_BYTES] = (uint8_t)(100 + 3 * b);
        for (int i = 0; i < CODES; i++) {
            codes[b * CODES + i] = (uint8_t)(input[2 * i] | input[2 * i + 1] << 4);
            want[b * BLOCK_BYTES + 1 + i] = (uint8_t)(input[i] | input[i + CODES] << 4);
        }
    }
    struct packed packed = {.layout = PACKED_MXFP4,
                            .N = ROWS,
                            .K = BLOCKS * 32,
                            .bits = 4,
                            .codes = codes,
                            .scales = scales};
    const struct weight weight = {
        .type = DTYPE_MXFP4, .dim = {BLOCKS * 32, ROWS}, .bytes = sizeof want, .packed = &packed};
    const struct backend_config config = {.threads = 1, .max_rows = 1, .max_k = BLOCKS * 32};
    struct backend *b;
    ck_assert_int_eq(backend_cpu_open(&b, &config, NULL), STATUS_OK);
    void *made = packed_rows(b, &weight);
    ck_assert_mem_eq(made, want, sizeof want);
    mem_large_free(made, weight.bytes);
    backend_close(b);
}
END_TEST

/* Reads the blocks of a type as floats. */
static void read_as(struct backend *b, enum dtype type, struct packed *packed, float *out) {
    struct weight weight = {.type = type, .dim = {packed->K, packed->N}, .packed = packed};
    weight.bytes = (size_t)packed->N * dtype_bytes(type, (size_t)packed->K);
    void *made = packed_rows(b, &weight);
    dequantise(type, made, out, (size_t)packed->N * (size_t)packed->K);
    mem_large_free(made, weight.bytes);
}

/* Scales in float16 are kept exactly, the smallest ones too, with all zero points. */
START_TEST(halves_keep_the_bits_of_four_bit_weights) {
    enum { N = 8, K = 64, GROUPS = K / BLOCK32 };
    uint32_t codes[N * K / 8], zeros[GROUPS];
    uint16_t scales[N * GROUPS];
    for (int i = 0; i < N * K / 8; i++) codes[i] = (uint32_t)i * 0x9e3779b9u;
    for (int i = 0; i < GROUPS; i++) zeros[i] = 0xfedcba98u >> 4 * i;
    for (int i = 0; i < N * GROUPS; i++) scales[i] = (uint16_t)(i * 2113 % 0x7c00);
    struct packed packed = {.layout = PACKED_WORDS,
                            .N = N,
                            .K = K,
                            .bits = 4,
                            .group = BLOCK32,
                            .n_groups = GROUPS,
                            .codes = codes,
                            .scales = scales,
                            .zeros = zeros,
                            .scale_type = DTYPE_F16,
                            .scale_rows = 1,
                            .row_stride = GROUPS,
                            .group_stride = 1};
    const struct backend_config config = {.threads = 1, .max_rows = 1, .max_k = K};
    float halves[N * K], floats[N * K], blocks[N * K];
    struct backend *b;
    ck_assert_int_eq(backend_cpu_open(&b, &config, NULL), STATUS_OK);
    read_as(b, DTYPE_F32, &packed, floats);
    read_as(b, DTYPE_INT4, &packed, blocks);
    read_as(b, DTYPE_INT4H, &packed, halves);
    ck_assert_mem_eq(halves, blocks, sizeof blocks);
    for (int i = 0; i < N * K; i++) ck_assert(halves[i] == floats[i]);
    backend_close(b);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_packed");
    TCase *core = tcase_create("core");
    tcase_add_test(core, each_block_of_mxfp4_has_its_scale_and_codes);
    tcase_add_test(core, halves_keep_the_bits_of_four_bit_weights);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
