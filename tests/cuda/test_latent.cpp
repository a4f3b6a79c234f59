/* Latent attention on the CUDA backend. In float32 keys, attention and products per head have the
 * CPU's bytes, except for the sines of positions; in 16 bits they are near it. A row's bytes do not
 * depend on the steps. The cache has no values, and refuses e4m3. */
#include <algorithm>
#include <math.h>
#include <string.h>

#include "kernels/cuda/attention/kv.cuh"
#include "tests/cuda/support.h"

enum { ROWS = 275, UNROTATED = 5, MAX_M = 64, HIDDEN = 640 };
using bytes = std::vector<uint8_t>;

/* The heads of a model, and the size of the cache's blocks; D = rank + D_rope. */
struct latent_case {
    int H, rank, D_rope, B;
    enum rope_layout layout;
    int scale_every; /* of queries; 0: they are not scaled */
};
static const latent_case cases[] = {
    {3, 48, 16, 16, ROPE_ADJACENT, 7}, /* tiles in 16 bits */
    {5, 64, 6, 5, ROPE_HALVES, 0},
    {1, 16, 70, 8, ROPE_ADJACENT, 0},   /* fewer values than rotated numbers */
    {2, 512, 64, 16, ROPE_ADJACENT, 0}, /* the sizes of published models, which have */
    {17, 256, 64, 5, ROPE_HALVES, 0},   /* a kernel (wide_heads) in 16 bits */
};
enum { N_CASES = sizeof cases / sizeof *cases, MANY_HEADS = N_CASES - 1 };

/* Many heads take long, and the suite of wide heads tests the other types. */
static bool is_left_out(int number, enum dtype act) {
    return number == MANY_HEADS && act != DTYPE_BF16;
}

/* ---- inputs --------------------------------------------------------------------------------- */

/* Random rows of one sequence, whose blocks are in falling order. */
struct inputs {
    latent_case c;
    int D, n_blocks;
    floats k, from, q, gain, inv_freq, q_scale;
    std::vector<int32_t> position, slot, table;
    inputs(const latent_case &c_, bool rotates, enum dtype act);
};

inputs::inputs(const latent_case &c_, bool rotates, enum dtype act)
    : c(c_), D(c_.rank + c_.D_rope), n_blocks((ROWS + c_.B - 1) / c_.B),
      inv_freq((size_t)c_.D_rope / 2, 0.0f) {
    uint64_t state = 17;
    const size_t H = (size_t)c.H, width = (size_t)D;
    k = rounded(act, random_vector(&state, ROWS * width));
    from = rounded(act, random_vector(&state, ROWS * H * (size_t)(UNROTATED + c.D_rope)));
    q = rounded(act, random_vector(&state, ROWS * H * width));
    gain = random_vector(&state, (size_t)c.rank);
    q_scale = random_vector(&state, ROWS);
    for (size_t i = 0; rotates && i < inv_freq.size(); i++) inv_freq[i] = 1.0f / (float)(1 + 3 * i);
    for (int i = 0; i < n_blocks; i++) table.push_back(n_blocks - 1 - i);
    for (int i = 0; i < ROWS; i++) {
        position.push_back(i);
        slot.push_back(table[(size_t)(i / c.B)] * c.B + i % c.B);
    }
}

static struct backend *open_one(bool on_cpu, enum dtype act, int H) {
    struct backend *b = nullptr;
    struct backend_config config = {};
    struct err err = {};
    config.threads = 1;
    config.path = on_cpu ? "plain" : nullptr;
    config.max_rows = config.max_seqs = MAX_M;
    config.max_k = HIDDEN;
    config.activations = act;
    config.max_context = ROWS;
    config.heads = H;
    const enum status status =
        on_cpu ? backend_cpu_open(&b, &config, &err) : backend_cuda_open(&b, &config, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    return b;
}

static struct kv_config config_of(const inputs &in, enum dtype type, const struct kv_heads *heads) {
    struct kv_config config = {};
    config.L = 1, config.G = heads->G, config.D = heads->D;
    config.n_blocks = in.n_blocks;
    config.block_size = in.c.B;
    config.dtype = type;
    config.heads = heads;
    return config;
}

/* ---- worlds --------------------------------------------------------------------------------- */

/* The rows' queries with rotated ends, and the attention of these queries. */
struct outputs {
    bytes q, y;
};

/* A backend with a cache for the inputs. */
class world {
    const inputs &in;
    struct backend *b;
    enum dtype act;
    struct kv_cache *cache = nullptr;
    std::vector<std::pair<float *, size_t>> memory;

    float *put(const void *host, size_t n_bytes) {
        float *data = static_cast<float *>(b->memory->buffer_new(b, n_bytes));
        b->memory->upload(b, data, host, n_bytes);
        memory.push_back({data, n_bytes});
        return data;
    }
    float *put_rows(const floats &all, int first, int n) {
        const size_t width = all.size() / ROWS;
        const bytes host =
            packed(act, floats(all.begin() + (ptrdiff_t)((size_t)first * width),
                               all.begin() + (ptrdiff_t)((size_t)(first + n) * width)));
        return put(host.data(), host.size());
    }
    void append(bytes *to, const float *from, int numbers) {
        bytes part((size_t)numbers * (act == DTYPE_F32 ? 4 : 2));
        b->memory->download(b, part.data(), from, part.size());
        to->insert(to->end(), part.begin(), part.end());
    }
    void step(int first, int n, outputs *out);

  public:
    world(const inputs &in_, bool on_cpu, enum dtype act_, enum dtype type)
        : in(in_), b(open_one(on_cpu, act_, in_.c.H)), act(act_) {
        const struct kv_heads heads = {1, in.D, in.c.rank};
        const struct kv_config config = config_of(in, type, &heads);
        struct err err = {};
        ck_assert_msg(b->cache->kv_new(b, &cache, &config, &err) == STATUS_OK, "%s", err.message);
    }
    ~world() {
        for (auto &each : memory) b->memory->buffer_free(b, each.first, each.second);
        b->cache->kv_free(b, cache);
        backend_close(b);
    }
    world(const world &) = delete;
    world &operator=(const world &) = delete;
    const struct kv_cache *paged() const {
        return cache;
    }
    /* Runs rows 0..ROWS in steps of n. */
    outputs run(int n) {
        outputs out;
        for (int first = 0; first < ROWS; first += n) step(first, std::min(n, ROWS - first), &out);
        return out;
    }
};

void world::step(int first, int n, outputs *out) {
    const int32_t row_start[] = {0, n};
    struct step input = {};
    input.M = n, input.S = 1;
    input.token = input.position = in.position.data() + first;
    input.slot = in.slot.data() + first;
    input.row_start = row_start;
    input.table = in.table.data();
    input.table_stride = in.n_blocks;
    struct latent latent = {};
    latent.H = in.c.H, latent.rank = in.c.rank, latent.D_unrotated = UNROTATED;
    latent.rope = {in.c.D_rope, put(in.inv_freq.data(), in.inv_freq.size() * sizeof(float)),
                   in.c.layout, 1.25f};
    latent.norm = {NORM_RMS, put(in.gain.data(), in.gain.size() * sizeof(float)), nullptr, 1e-6f};
    if (in.c.scale_every) {
        latent.q_scale = put(in.q_scale.data(), in.q_scale.size() * sizeof(float));
        latent.q_scale_every = in.c.scale_every;
    }
    struct attention attention = {};
    attention.H = in.c.H, attention.scale = 1.0f / (float)in.D;
    float *q = put_rows(in.q, first, n), *k = put_rows(in.k, first, n);
    const int numbers = n * in.c.H * in.c.rank;
    const bytes poison((size_t)numbers * sizeof(float), 0xff);
    float *y = put(poison.data(), poison.size());
    b->compute->step_begin(b, &input, cache);
    b->compute->latent_write(b, cache, 0, &latent, q, put_rows(in.from, first, n), k);
    b->compute->attention(b, y, q, cache, 0, &attention);
    append(&out->q, q, n * in.c.H * in.D);
    append(&out->y, y, numbers);
}

/* ---- attention ------------------------------------------------------------------------------ */

START_TEST(float32_gives_the_bytes_of_the_cpu) {
    const inputs in(cases[_i], false, DTYPE_F32);
    for (enum dtype type : {DTYPE_F32, DTYPE_F16}) {
        world cpu(in, true, DTYPE_F32, type), cuda(in, false, DTYPE_F32, type);
        const outputs want = cpu.run(MAX_M), got = cuda.run(MAX_M);
        ck_assert_msg(got.q == want.q, "case %d: other queries", _i);
        ck_assert_msg(got.y == want.y, "case %d: another attention", _i);
    }
}
END_TEST

/* The sines of a GPU differ from the CPU's in their last bits. */
START_TEST(rotated_numbers_are_near_the_cpu_s) {
    const inputs in(cases[_i], true, DTYPE_F32);
    world cpu(in, true, DTYPE_F32, DTYPE_F32), cuda(in, false, DTYPE_F32, DTYPE_F32);
    const outputs want = cpu.run(MAX_M), got = cuda.run(MAX_M);
    check_close(unpacked(DTYPE_F32, got.q), unpacked(DTYPE_F32, want.q), 1e-4, 1, "queries");
    check_close(unpacked(DTYPE_F32, got.y), unpacked(DTYPE_F32, want.y), 1e-4, 1, "attention");
}
END_TEST

START_TEST(halves_are_near_the_cpu) {
    for (enum dtype act : {DTYPE_F16, DTYPE_BF16}) {
        if (is_left_out(_i, act)) continue;
        const inputs in(cases[_i], true, act);
        world cpu(in, true, DTYPE_F32, DTYPE_F32), cuda(in, false, act, act);
        const outputs want = cpu.run(MAX_M), got = cuda.run(MAX_M);
        const double tolerance = 8 * rounding_of(act);
        check_close(unpacked(act, got.q), unpacked(DTYPE_F32, want.q), tolerance, 1, "queries");
        check_close(unpacked(act, got.y), unpacked(DTYPE_F32, want.y), tolerance, 1, "attention");
    }
}
END_TEST

START_TEST(steps_of_any_size_give_the_same_bytes) {
    const latent_case &c = cases[_i / 3];
    const enum dtype act = activation_types[_i % 3];
    if (is_left_out(_i / 3, act)) return;
    const inputs in(c, true, act);
    world cuda(in, false, act, act == DTYPE_F32 ? DTYPE_BF16 : act);
    const outputs whole = cuda.run(MAX_M);
    for (int n : {33, 7}) {
        if (_i / 3 == MANY_HEADS && n == 33) continue; /* for time, too */
        const outputs parts = cuda.run(n);
        ck_assert_msg(parts.q == whole.q && parts.y == whole.y, "case %d in steps of %d", _i, n);
    }
}
END_TEST

/* ---- products per head ---------------------------------------------------------------------- */

enum { HEADS = 7, OUTPUTS = 32, STRIDE_X = 75, STRIDE_Y = 40, PRODUCT_ROWS = 37 };

/* y[M][HEADS][STRIDE_Y] = x times each head's matrix of [OUTPUTS][K]; other numbers of y are 1. The
 * workspace of max_k numbers a row holds some of the heads. */
static floats products(bool on_cpu, enum dtype act, enum dtype type, int K, int M) {
    uint64_t state = 5;
    const floats x = rounded(DTYPE_BF16, random_vector(&state, PRODUCT_ROWS * HEADS * STRIDE_X));
    void *w = random_weights(&state, type, (size_t)(HEADS * OUTPUTS * K));
    struct backend_config config = {};
    struct backend *b = nullptr;
    struct matrix *matrix = nullptr;
    struct err err = {};
    config.threads = 1, config.path = on_cpu ? "plain" : nullptr;
    config.max_rows = PRODUCT_ROWS, config.max_k = 2 * STRIDE_X;
    config.max_seqs = config.max_context = config.heads = 1;
    config.activations = act;
    ck_assert_int_eq(on_cpu ? backend_cpu_open(&b, &config, &err)
                            : backend_cuda_open(&b, &config, &err),
                     STATUS_OK);
    const enum matrix_form form = act == DTYPE_F32 ? MATRIX_FLOAT32 : MATRIX_NATIVE;
    ck_assert_msg(!b->memory->matrix_new(b, &matrix, type, HEADS * OUTPUTS, K, w, form, &err), "%s",
                  err.message);
    const bytes in = packed(act, floats(x.end() - M * HEADS * STRIDE_X, x.end()));
    bytes out = packed(act, floats((size_t)(M * HEADS * STRIDE_Y), 1.0f));
    float *from = static_cast<float *>(b->memory->buffer_new(b, in.size()));
    float *to = static_cast<float *>(b->memory->buffer_new(b, out.size()));
    b->memory->upload(b, from, in.data(), in.size());
    b->memory->upload(b, to, out.data(), out.size());
    const struct head_linear linear = {matrix, HEADS, OUTPUTS, STRIDE_X, STRIDE_Y};
    b->compute->matmul_heads(b, to, from, &linear, M);
    b->memory->download(b, out.data(), to, out.size());
    b->memory->buffer_free(b, from, in.size());
    b->memory->buffer_free(b, to, out.size());
    b->memory->matrix_free(b, matrix);
    backend_close(b);
    free(w);
    return unpacked(act, out);
}

static bool same_bytes(const floats &a, const floats &b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

START_TEST(products_per_head_are_the_cpu_s) {
    static const struct {
        enum dtype type;
        int K;
    } kinds[] = {{DTYPE_F32, 20}, {DTYPE_BF16, 75}, {DTYPE_Q8_0, 64}, {DTYPE_F16, 48}};
    for (const auto &kind : kinds) {
        const floats want = products(true, DTYPE_F32, kind.type, kind.K, PRODUCT_ROWS);
        const floats exact = products(false, DTYPE_F32, kind.type, kind.K, PRODUCT_ROWS);
        ck_assert_msg(same_bytes(exact, want), "%s: not the CPU's bytes", dtype_name(kind.type));
        for (enum dtype act : {DTYPE_F16, DTYPE_BF16}) {
            const floats got = products(false, act, kind.type, kind.K, PRODUCT_ROWS);
            check_close(got, want, 8 * rounding_of(act), 4, dtype_name(kind.type));
        }
    }
}
END_TEST

START_TEST(the_number_of_rows_changes_no_byte) {
    for (enum dtype act : activation_types) {
        const floats all = products(false, act, DTYPE_BF16, 48, PRODUCT_ROWS);
        for (int M : {1, 16, 17}) {
            const floats part = products(false, act, DTYPE_BF16, 48, M);
            ck_assert(same_bytes(part, floats(all.end() - (ptrdiff_t)part.size(), all.end())));
        }
    }
}
END_TEST

/* ---- the cache ------------------------------------------------------------------------------ */

START_TEST(a_cache_of_latent_vectors_has_no_values) {
    const inputs in(cases[0], true, DTYPE_F32);
    struct backend *b = open_one(false, DTYPE_BF16, in.c.H);
    const struct kv_heads shared = {1, in.D, in.c.rank}, twice = {1, in.D};
    struct kv_config config = config_of(in, DTYPE_BF16, &shared);
    const size_t bytes_shared = kv_cache_bytes(&config);
    config.heads = &twice;
    ck_assert_uint_eq(2 * bytes_shared, kv_cache_bytes(&config));
    world cuda(in, false, DTYPE_BF16, DTYPE_BF16);
    ck_assert(!cuda.paged()->values && cuda.paged()->D_shared == in.c.rank);
    backend_close(b);
}
END_TEST

START_TEST(caches_that_no_kernel_reads_are_refused) {
    const inputs in(cases[0], true, DTYPE_F32);
    static const struct {
        struct kv_heads heads;
        enum dtype type;
        const char *words;
    } bad[] = {
        {{1, 64, 48}, DTYPE_E4M3, "fp8 is not for latent attention"},
        {{1, 578, 512}, DTYPE_BF16, "the model's have 512 and 578"},
        {{1, 576, 513}, DTYPE_BF16, "the model's have 513 and 576"},
    };
    struct backend *b = open_one(false, DTYPE_BF16, in.c.H);
    for (const auto &each : bad) {
        const struct kv_config config = config_of(in, each.type, &each.heads);
        struct kv_cache *cache = nullptr;
        struct err err = {};
        ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, &err), STATUS_USAGE);
        ck_assert_msg(strstr(err.message, each.words), "%s", err.message);
    }
    backend_close(b);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_latent");
    TCase *core = tcase_create("latent");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, float32_gives_the_bytes_of_the_cpu, 0, MANY_HEADS);
    tcase_add_loop_test(core, rotated_numbers_are_near_the_cpu_s, 0, MANY_HEADS);
    tcase_add_loop_test(core, halves_are_near_the_cpu, 0, N_CASES);
    tcase_add_loop_test(core, steps_of_any_size_give_the_same_bytes, 0, 3 * N_CASES);
    tcase_add_test(core, products_per_head_are_the_cpu_s);
    tcase_add_test(core, the_number_of_rows_changes_no_byte);
    tcase_add_test(core, a_cache_of_latent_vectors_has_no_values);
    tcase_add_test(core, caches_that_no_kernel_reads_are_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
