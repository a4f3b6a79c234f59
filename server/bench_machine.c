/* The limits of a machine: memory read, and multiply-adds of bytes and of float32. A loop keeps
 * enough independent sums in registers that only the instruction's own rate bounds it; what it sums
 * is of no interest. The functions carry their instruction set with them and are entered only where
 * CPUID shows it, so the file is built for any x86-64. */
#include "server/bench_machine.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STREAM_BYTES ((size_t)256 << 20)
#define PASSES 5
#define PARTS 64
#define ROUNDS 20000
#define SUMS 12 /* latency of an fma times two a cycle, with some to spare */

/* ---- memory --------------------------------------------------------------------------------- */

struct reading {
    const uint64_t *data;
    size_t n_each;
    uint64_t *sum;
};

static void read_part(void *arg, int i) {
    const struct reading *reading = arg;
    const uint64_t *data = reading->data + (size_t)i * reading->n_each;
    uint64_t lane[16] = {0};
    for (size_t k = 0; k + 16 <= reading->n_each; k += 16) {
        for (int j = 0; j < 16; j++) lane[j] += data[k + (size_t)j];
    }
    for (int j = 0; j < 16; j++) reading->sum[i] += lane[j];
}

/* The shortest of a few passes over all parts, in seconds. */
static double best_pass(struct engine *engine, void (*part)(void *arg, int i), void *arg) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < PASSES; i++) {
        uint64_t start = now_ns();
        engine_parallel(engine, part, arg, PARTS);
        uint64_t taken = now_ns() - start;
        if (taken < best) best = taken;
    }
    return (double)best * 1e-9;
}

double machine_read_rate(struct engine *engine) {
    uint64_t *data = mem_large(STREAM_BYTES), sums[PARTS] = {0};
    memset(data, 1, STREAM_BYTES);
    struct reading reading = {data, STREAM_BYTES / sizeof *data / PARTS, sums};
    double seconds = best_pass(engine, read_part, &reading);
    mem_large_free(data, STREAM_BYTES);
    return (double)STREAM_BYTES / seconds;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Sums that nobody reads are written here, so that they are made. */
static volatile int sink;

#define TARGET(set) __attribute__((target(set)))

static TARGET("avx512f,avx512bw,avx512vnni") void int8_avx512vnni(void *arg, int part) {
    (void)arg;
    __m512i sum[SUMS], a = _mm512_set1_epi32(part), b = _mm512_set1_epi32(0x01020304);
    for (int j = 0; j < SUMS; j++) sum[j] = a;
    for (int i = 0; i < ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < SUMS; j++) sum[j] = _mm512_dpbusd_epi32(sum[j], a, b);
    }
    for (int j = 1; j < SUMS; j++) sum[0] = _mm512_add_epi32(sum[0], sum[j]);
    sink = _mm512_cvtsi512_si32(sum[0]);
}

static TARGET("avx2,avxvnni") void int8_avxvnni(void *arg, int part) {
    (void)arg;
    __m256i sum[SUMS], a = _mm256_set1_epi32(part), b = _mm256_set1_epi32(0x01020304);
    for (int j = 0; j < SUMS; j++) sum[j] = a;
    for (int i = 0; i < ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < SUMS; j++) sum[j] = _mm256_dpbusd_avx_epi32(sum[j], a, b);
    }
    for (int j = 1; j < SUMS; j++) sum[0] = _mm256_add_epi32(sum[0], sum[j]);
    sink = _mm256_extract_epi32(sum[0], 0);
}

/* Three instructions stand for the one that this CPU lacks. The barrier keeps the product, which
 * does not change, inside the loop. */
static TARGET("avx2") void int8_avx2(void *arg, int part) {
    (void)arg;
    __m256i sum[SUMS], a = _mm256_set1_epi32(part), b = _mm256_set1_epi32(0x01020304);
    __m256i ones = _mm256_set1_epi16(1);
    for (int j = 0; j < SUMS; j++) sum[j] = a;
    for (int i = 0; i < ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < SUMS; j++) {
            __asm__ volatile("" : "+x"(a));
            __m256i pairs = _mm256_maddubs_epi16(a, b);
            sum[j] = _mm256_add_epi32(sum[j], _mm256_madd_epi16(pairs, ones));
        }
    }
    for (int j = 1; j < SUMS; j++) sum[0] = _mm256_add_epi32(sum[0], sum[j]);
    sink = _mm256_extract_epi32(sum[0], 0);
}

/* Four sums of 16 x 16 from two tiles each side. The barrier before the configuration is loaded
 * mends gcc 12, which takes but 8 of its 64 bytes to be read. */
static TARGET("amx-tile,amx-int8") void int8_amx(void *arg, int part) {
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
    for (int i = 0; i < ROUNDS / 8; i++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
}

/* CPUID leaf 7: is the bit set in the register (0 eax, 3 edx) of the subleaf? */
static bool has_bit(unsigned subleaf, int which, int bit) {
    unsigned registers[4] = {0};
    if (!__get_cpuid_count(7, subleaf, &registers[0], &registers[1], &registers[2], &registers[3]))
        return false;
    return registers[which] >> bit & 1;
}

/* Tiles are there when the CPU has them and the kernel lets this process use them. */
static bool has_amx(void) {
    enum { REQUEST_FEATURE = 0x1023, TILE_DATA = 18, EDX = 3, AMX_TILE = 24, AMX_INT8 = 25 };
    return has_bit(0, EDX, AMX_TILE) && has_bit(0, EDX, AMX_INT8) &&
           syscall(SYS_arch_prctl, REQUEST_FEATURE, TILE_DATA) == 0;
}

static bool has_avxvnni(void) {
    return __builtin_cpu_supports("avx2") && has_bit(1, 0, 4);
}

static struct machine_rate rate_of(struct engine *engine, void (*part)(void *arg, int i),
                                   double macs, const char *instruction) {
    return (struct machine_rate){macs * PARTS / best_pass(engine, part, NULL), instruction};
}

struct machine_rate machine_int8_rate(struct engine *engine) {
    double loops = (double)ROUNDS * SUMS;
    if (has_amx()) {
        return rate_of(engine, int8_amx, ROUNDS / 8 * 4 * 16.0 * 16 * 64, "tdpbssd");
    }
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw")) {
        return rate_of(engine, int8_avx512vnni, loops * 64, "vpdpbusd, 512 bits");
    }
    if (has_avxvnni()) return rate_of(engine, int8_avxvnni, loops * 32, "vpdpbusd, 256 bits");
    if (__builtin_cpu_supports("avx2")) {
        return rate_of(engine, int8_avx2, loops * 32, "vpmaddubsw, 256 bits");
    }
    return (struct machine_rate){0, "none"};
}

/* ---- float32 -------------------------------------------------------------------------------- */

static TARGET("avx512f") void float_avx512(void *arg, int part) {
    (void)arg;
    __m512 sum[SUMS], a = _mm512_set1_ps((float)part), b = _mm512_set1_ps(0.5f);
    for (int j = 0; j < SUMS; j++) sum[j] = a;
    for (int i = 0; i < ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < SUMS; j++) sum[j] = _mm512_fmadd_ps(sum[j], b, a);
    }
    for (int j = 1; j < SUMS; j++) sum[0] = _mm512_add_ps(sum[0], sum[j]);
    sink = (int)_mm512_cvtss_f32(sum[0]);
}

static TARGET("avx2,fma") void float_avx2(void *arg, int part) {
    (void)arg;
    __m256 sum[SUMS], a = _mm256_set1_ps((float)part), b = _mm256_set1_ps(0.5f);
    for (int j = 0; j < SUMS; j++) sum[j] = a;
    for (int i = 0; i < ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < SUMS; j++) sum[j] = _mm256_fmadd_ps(sum[j], b, a);
    }
    for (int j = 1; j < SUMS; j++) sum[0] = _mm256_add_ps(sum[0], sum[j]);
    sink = (int)_mm256_cvtss_f32(sum[0]);
}

struct machine_rate machine_float_rate(struct engine *engine) {
    double loops = (double)ROUNDS * SUMS;
    if (__builtin_cpu_supports("avx512f")) {
        return rate_of(engine, float_avx512, loops * 16, "vfmadd, 512 bits");
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return rate_of(engine, float_avx2, loops * 8, "vfmadd, 256 bits");
    }
    return (struct machine_rate){0, "none"};
}
