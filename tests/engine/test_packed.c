/* Packed matrices of folders as the blocks that they become. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/weights.h"
#include "support/suite_main.h"

enum { ROWS = 3, BLOCKS = 5, CODES = 16, BLOCK_BYTES = 17 };

/* Byte i of the codes of a block in a folder has inputs 2 i and 2 i + 1; that of a GGUF file has
 * inputs i and i + 16. Each block has a scale of its own. */
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

int main(void) {
    Suite *suite = suite_create("engine_packed");
    TCase *core = tcase_create("core");
    tcase_add_test(core, each_block_of_mxfp4_has_its_scale_and_codes);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
