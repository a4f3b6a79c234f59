/* The most that AMX can multiply and add; its floats are AVX-512's. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/peak.h"

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
