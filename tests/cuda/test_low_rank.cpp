/* The products of adapters on the CUDA backend. With float32 activations the bytes are the CPU's.
 * With any type a row has the bytes that it has alone, and a row without an adapter those of a step
 * without adapters, whatever the adapters, ranks and number of its neighbours. */
#include <algorithm>
#include <math.h>
#include <string.h>

#include "kernels/cuda/low_rank/low_rank.cuh"
#include "tests/cuda/support.h"

enum { ADAPTERS = 4, MAX_RANK = 256, MAX_M = 90, MAX_K = 544, CONTEXT = 96, MIDDLE = 1 };
using bytes = std::vector<uint8_t>;
using numbers = std::vector<int32_t>;

static const int ranks[ADAPTERS + 1] = {0, 1, 19, 8, MAX_RANK};
static const float scales[ADAPTERS + 1] = {0, 2, 0.5f, -1.25f, 0.25f};
/* One tile; full tiles; the first number with 8 ranks per warp; a last tile of one row. */
static const int row_counts[] = {1, 3, 8, 17, 65, MAX_M};

/* ---- backends ------------------------------------------------------------------------------- */

/* A backend and memory that is freed with it. */
struct opened {
    enum dtype act; /* of activations */
    struct backend *b = nullptr;
    struct kv_cache *cache = nullptr;
    std::vector<std::pair<float *, size_t>> memory;
    std::vector<struct matrix *> matrices;

    opened(bool on_cuda, enum dtype act_) : act(act_) {
        struct backend_config config = {1, nullptr, MAX_M, MAX_K, act, {}, nullptr, 2, CONTEXT, 1};
        const struct kv_config kv = {1, 1, 16, 1, 16, act == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16};
        struct err err = {};
        config.max_adapters = ADAPTERS, config.max_adapter_rank = MAX_RANK;
        if (!on_cuda) config.path = "plain";
        const enum status status =
            on_cuda ? backend_cuda_open(&b, &config, &err) : backend_cpu_open(&b, &config, &err);
        ck_assert_msg(status == STATUS_OK, "%s", err.message);
        ck_assert_msg(b->cache->kv_new(b, &cache, &kv, &err) == STATUS_OK, "%s", err.message);
    }
    ~opened() {
        for (const auto &[data, size] : memory) b->memory->buffer_free(b, data, size);
        for (struct matrix *matrix : matrices) b->memory->matrix_free(b, matrix);
        b->cache->kv_free(b, cache);
        backend_close(b);
    }
    opened(const opened &) = delete;
    opened &operator=(const opened &) = delete;

    float *put(const void *host, size_t size) {
        auto *data = static_cast<float *>(b->memory->buffer_new(b, size));
        b->memory->upload(b, data, host, size);
        memory.push_back({data, size});
        return data;
    }
    float *put(const floats &host, enum dtype type = DTYPE_F32) {
        const bytes all = packed(type, host);
        return put(all.data(), all.size());
    }
    bytes read(const float *data, size_t size) const {
        bytes host(size);
        b->memory->download(b, host.data(), data, size);
        return host;
    }
};

/* ---- projections ---------------------------------------------------------------------------- */

/* A projection with adapters, in host memory. */
struct projection {
    int N, K;
    enum dtype type;
    bytes rows;
    floats bias;
    enum dtype number_type[ADAPTERS + 1];
    floats a[ADAPTERS + 1], b[ADAPTERS + 1]; /* rounded to that type */
    /* Projections of one input, so that no two have the same numbers. */
    projection(int N_, int K_, enum dtype type_, uint64_t seed) : N(N_), K(K_), type(type_) {
        const size_t n = (size_t)N * (size_t)K, seed_of_types = (size_t)seed;
        auto *data = static_cast<uint8_t *>(random_weights(&seed, type, n));
        rows.assign(data, data + dtype_bytes(type, n));
        free(data);
        bias = random_vector(&seed, (size_t)N);
        for (int i = 1; i <= ADAPTERS; i++) {
            a[i] = random_vector(&seed, (size_t)ranks[i] * (size_t)K);
            b[i] = random_vector(&seed, low_rank_numbers(ranks[i], N));
            for (float &value : a[i]) value /= sqrtf((float)K);
            for (float &value : b[i]) value /= sqrtf((float)ranks[i]);
            number_type[i] = activation_types[((size_t)i + seed_of_types) % 3];
            a[i] = rounded(number_type[i], a[i]), b[i] = rounded(number_type[i], b[i]);
        }
    }
};

/* The same in a backend. `rows` must be set before an op of the CPU. */
struct placed {
    struct low_ranks low;
    struct linear adapted, plain;

    placed(opened &on, const projection &p, const struct row_adapters *rows, float scale = 0) {
        struct low_rank of[ADAPTERS + 1] = {};
        struct matrix *w;
        struct err err = {};
        const bool is_float = on.act == DTYPE_F32;
        ck_assert_msg(on.b->memory->matrix_new(on.b, &w, p.type, p.N, p.K, p.rows.data(),
                                               is_float ? MATRIX_FLOAT32 : MATRIX_NATIVE,
                                               &err) == STATUS_OK,
                      "%s", err.message);
        on.matrices.push_back(w);
        for (int i = 1; i <= ADAPTERS; i++)
            of[i] = {ranks[i], scales[i], on.put(p.a[i], p.number_type[i]),
                     on.put(p.b[i], p.number_type[i]), p.number_type[i]};
        low = {rows, (const struct low_rank *)on.put(of, sizeof of)};
        plain = {w, on.put(p.bias), scale, nullptr};
        adapted = plain;
        adapted.low = &low;
    }
    placed(const placed &) = delete;
    placed &operator=(const placed &) = delete;
};

/* ---- steps ---------------------------------------------------------------------------------- */

/* The adapters of a step's rows; empty: no row has one. */
static void begin(const opened &on, const numbers &adapter, struct row_adapters *rows, int M) {
    numbers position((size_t)M), slot((size_t)M, -1), start = {0, M}, read((size_t)M);
    const numbers table(CONTEXT / 16, 0);
    for (int m = 0; m < M; m++) position[(size_t)m] = read[(size_t)m] = m;
    struct step step = {};
    step.M = step.R = M, step.S = 1;
    step.token = step.position = position.data(), step.slot = slot.data();
    step.row_start = start.data(), step.logit_row = read.data();
    step.table = table.data(), step.table_stride = CONTEXT / 16;
    step.adapter = adapter.empty() ? nullptr : adapter.data();
    on.b->compute->step_begin(on.b, &step, on.cache);
    rows->adapter = step.adapter;
}

static numbers draw_adapters(uint64_t *random, int M) {
    numbers adapter;
    for (int m = 0; m < M; m++) adapter.push_back(random_below(random, ADAPTERS + 1));
    return adapter;
}

/* The ops of a test: three projections with the second one not adapted, a sum, an MLP. */
struct world {
    opened on;
    struct row_adapters rows = {};
    const struct norm *norm;
    std::vector<projection> of;
    placed q, k, v, o, gate, up, down;
    enum activation activation;
    bool is_gated;
    int K, F;
    struct norm a_norm = {};

    struct shape {
        int K, N[3], F;
        enum dtype type;
        enum activation activation;
        bool is_gated, has_norm;
        float gate_scale = 0;
    };
    static std::vector<projection> projections(const shape &s) {
        return {{s.N[0], s.K, s.type, 1}, {s.N[1], s.K, s.type, 2}, {s.N[2], s.K, s.type, 3},
                {s.K, s.F, s.type, 4},    {s.F, s.K, s.type, 5},    {s.F, s.K, s.type, 6},
                {s.K, s.F, s.type, 7}};
    }
    world(bool on_cuda, enum dtype act, const shape &s)
        : on(on_cuda, act), norm(s.has_norm ? &a_norm : nullptr), of(projections(s)),
          q(on, of[0], &rows), k(on, of[1], &rows), v(on, of[2], &rows), o(on, of[3], &rows, 0.5f),
          gate(on, of[4], &rows, s.gate_scale), up(on, of[5], &rows), down(on, of[6], &rows),
          activation(s.activation), is_gated(s.is_gated), K(s.K), F(s.F) {
        uint64_t seed = 77;
        a_norm.gain = on.put(random_vector(&seed, (size_t)K));
        a_norm.epsilon = 1e-5f;
    }

    size_t element() const {
        return on.act == DTYPE_F32 ? 4 : 2;
    }
    /* Returns the outputs of all ops for each row of x[M][K] and h[M][F]: [M][..]. */
    std::vector<bytes> run(const floats &x, const floats &h, const numbers &adapter, int M,
                           bool adapts = true) {
        const size_t kept = on.memory.size();
        const float *at = on.put(x, on.act), *hidden = on.put(h, on.act);
        begin(on, adapter, &rows, M);
        auto linear = [&](const placed &p) { return adapts ? p.adapted : p.plain; };
        const struct linear three[] = {linear(q), k.plain, linear(v)};
        const int N[] = {of[0].N, of[1].N, of[2].N, K, K};
        float *y[5];
        for (int i = 0; i < 5; i++) {
            floats first((size_t)(M * N[i]), 0.25f);
            y[i] = on.put(first, on.act);
        }
        on.b->compute->matmul(on.b, y, at, norm, three, 3, M);
        const struct linear out = linear(o);
        on.b->compute->matmul_add(on.b, y[3], hidden, &out, M);
        struct mlp mlp = {};
        mlp.activation = activation;
        if (is_gated) mlp.gate = linear(gate);
        mlp.up = linear(up), mlp.down = linear(down);
        mlp.xielu = {0.3f, 0.7f, 0.5f, -0.01f};
        on.b->compute->mlp(on.b, y[4], at, norm, &mlp, M);
        std::vector<bytes> of_row((size_t)M);
        for (int i = 0; i < 5; i++) {
            const size_t width = (size_t)N[i] * element();
            const bytes all = on.read(y[i], width * (size_t)M);
            for (int m = 0; m < M; m++)
                of_row[(size_t)m].insert(of_row[(size_t)m].end(),
                                         all.begin() + (ptrdiff_t)(width * (size_t)m),
                                         all.begin() + (ptrdiff_t)(width * (size_t)(m + 1)));
        }
        for (; on.memory.size() > kept; on.memory.pop_back())
            on.b->memory->buffer_free(on.b, on.memory.back().first, on.memory.back().second);
        return of_row;
    }
};

/* K and F that are whole chunks, shorter, and odd, so that lines are not aligned. ReLU is exact on
 * both backends. */
static const world::shape float_shapes[] = {
    {64, {96, 40, 33}, 80, DTYPE_F32, ACTIVATION_RELU, true, false, 0.5f},
    {45, {50, 16, 7}, 51, DTYPE_F32, ACTIVATION_RELU_SQUARED, false, false},
    {256, {130, 16, 128}, MAX_K, DTYPE_F32, ACTIVATION_RELU, true, false},
    {300, {16, 5, 200}, 258, DTYPE_F32, ACTIVATION_RELU, false, false},
};

START_TEST(float32_gives_the_bytes_of_the_cpu) {
    world cuda(true, DTYPE_F32, float_shapes[_i]), cpu(false, DTYPE_F32, float_shapes[_i]);
    uint64_t random = 5;
    for (const int M : row_counts) {
        const floats x = random_vector(&random, (size_t)(M * cuda.K)),
                     h = random_vector(&random, (size_t)(M * cuda.F));
        const numbers adapter = draw_adapters(&random, M);
        const auto want = cpu.run(x, h, adapter, M), got = cuda.run(x, h, adapter, M);
        for (int m = 0; m < M; m++)
            ck_assert_msg(got[(size_t)m] == want[(size_t)m], "shape %d: row %d of %d, adapter %d",
                          _i, m, M, adapter[(size_t)m]);
    }
}
END_TEST

static const world::shape shapes[] = {
    {64, {96, 40, 33}, 96, DTYPE_Q8_0, ACTIVATION_SILU, true, true, 0.75f},
    {128, {64, 24, 48}, 64, DTYPE_BF16, ACTIVATION_GELU_TANH, false, true},
    {96, {64, 64, 40}, 128, DTYPE_Q4_0, ACTIVATION_XIELU, false, true},
    {64, {40, 16, 16}, 320, DTYPE_F16, ACTIVATION_CLAMPED, true, true},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static floats rows_from(const floats &all, int width, int m) {
    return floats(all.begin() + (ptrdiff_t)m * width, all.begin() + (ptrdiff_t)(m + 1) * width);
}

START_TEST(a_row_has_the_bytes_that_it_has_alone) {
    world cuda(true, activation_types[_i / N_SHAPES], shapes[_i % N_SHAPES]);
    uint64_t random = 9 + (uint64_t)_i;
    for (const int M : {7, 20, 70}) {
        const floats x = random_vector(&random, (size_t)(M * cuda.K)),
                     h = random_vector(&random, (size_t)(M * cuda.F));
        const numbers adapter = draw_adapters(&random, M);
        const auto all = cuda.run(x, h, adapter, M), base = cuda.run(x, h, {}, M);
        const auto without = cuda.run(x, h, adapter, M, false);
        for (int m = 0; m < M; m++) {
            const int32_t own = adapter[(size_t)m];
            const bytes &row = all[(size_t)m];
            const bool is_base = row == base[(size_t)m];
            ck_assert_int_eq(is_base, own == 0);
            ck_assert(without[(size_t)m] == base[(size_t)m]);
            if (M > 20 && m % 8 > 0) continue; /* emulation is slow */
            const auto alone = cuda.run(rows_from(x, cuda.K, m), rows_from(h, cuda.F, m), {own}, 1);
            ck_assert_msg(alone[0] == row, "type %d, shape %d: row %d of %d, adapter %d",
                          _i / N_SHAPES, _i % N_SHAPES, m, M, own);
        }
    }
}
END_TEST

/* Rows with 16 bits are near those of float32 with the same inputs. */
START_TEST(halves_are_near_the_cpu) {
    const enum dtype act = activation_types[_i + 1];
    const world::shape &shape = float_shapes[0];
    world cuda(true, act, shape), cpu(false, DTYPE_F32, shape);
    uint64_t random = 21;
    const int M = 20;
    const floats x = rounded(act, random_vector(&random, (size_t)(M * cuda.K))),
                 h = rounded(act, random_vector(&random, (size_t)(M * cuda.F)));
    const numbers adapter = draw_adapters(&random, M);
    const auto want = cpu.run(x, h, adapter, M), got = cuda.run(x, h, adapter, M);
    for (int m = 0; m < M; m++) {
        const floats right = unpacked(DTYPE_F32, want[(size_t)m]);
        double most = 0;
        for (float value : right) most = std::max(most, fabs((double)value));
        check_close(unpacked(act, got[(size_t)m]), right, 16 * rounding_of(act), most / 16,
                    text("row %d", m));
    }
}
END_TEST

/* The last layer computes only rows that are read: their adapters are those of other rows. */
START_TEST(rows_that_are_read_keep_their_adapters) {
    world cuda(true, DTYPE_F32, float_shapes[0]);
    uint64_t random = 3;
    const int M = 30, R = 9;
    const numbers adapter = draw_adapters(&random, M);
    numbers position, slot((size_t)M, -1), start = {0, M}, read, of_read;
    const numbers table(CONTEXT / 16, 0);
    for (int m = 0; m < M; m++) position.push_back(m);
    for (int r = 0; r < R; r++) read.push_back(3 * r + 2);
    for (int32_t m : read) of_read.push_back(adapter[(size_t)m]);
    const floats h = random_vector(&random, (size_t)(R * cuda.F));
    struct step step = {};
    step.M = M, step.R = R, step.S = 1;
    step.token = step.position = position.data(), step.slot = slot.data();
    step.row_start = start.data(), step.logit_row = read.data();
    step.table = table.data(), step.table_stride = CONTEXT / 16;
    step.adapter = adapter.data();
    auto sum_of = [&] {
        float *y = cuda.on.put(floats((size_t)(R * cuda.K), 0.5f)), *x = cuda.on.put(h);
        cuda.on.b->compute->matmul_add(cuda.on.b, y, x, &cuda.o.adapted, R);
        return cuda.on.read(y, (size_t)(R * cuda.K) * sizeof(float));
    };
    begin(cuda.on, of_read, &cuda.rows, R);
    const bytes want = sum_of();
    cuda.rows.are_read = true;
    cuda.on.b->compute->step_begin(cuda.on.b, &step, cuda.on.cache);
    ck_assert(sum_of() == want);
}
END_TEST

/* Each row is in one tile, with rows of its adapter, in rising order. */
START_TEST(tiles_hold_each_row_once) {
    uint64_t random = 4;
    for (int i = 0; i < 500; i++) {
        const int most_adapters = 1 + random_below(&random, 12), rows = random_below(&random, 70);
        const int n = random_below(&random, rows + 1), sets = 1 + random_below(&random, 40);
        numbers adapter, open((size_t)most_adapters + 1), seen((size_t)rows, 0), row;
        for (int r = 0; r < sets; r++) adapter.push_back(random_below(&random, most_adapters + 1));
        for (int r = 0; r < n; r++) row.push_back(random_below(&random, sets));
        std::vector<struct adapter_tile> tiles((size_t)adapter_tiles_most(rows, most_adapters) + 1);
        tiles.back().n = -7;
        adapter_tiles_fill(tiles.data(), adapter.data(), row.data(), n, rows, most_adapters,
                           open.data());
        ck_assert_int_eq(tiles.back().n, -7);
        tiles.pop_back();
        for (const struct adapter_tile &tile : tiles)
            for (int k = 0; k < tile.n; k++) {
                const int r = tile.row[k];
                ck_assert(r >= 0 && r < rows && (k == 0 || tile.row[k - 1] < r));
                ck_assert_int_eq(tile.adapter, r < n ? adapter[(size_t)row[(size_t)r]] : 0);
                seen[(size_t)r]++;
            }
        ck_assert(std::all_of(seen.begin(), seen.end(), [](int32_t times) { return times == 1; }));
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_low_rank");
    TCase *cases = tcase_create("low_rank");
    tcase_set_timeout(cases, 300);
    tcase_add_loop_test(cases, float32_gives_the_bytes_of_the_cpu, 0,
                        sizeof float_shapes / sizeof *float_shapes);
    tcase_add_loop_test(cases, a_row_has_the_bytes_that_it_has_alone, 0, 3 * N_SHAPES);
    tcase_add_loop_test(cases, halves_are_near_the_cpu, 0, 2);
    tcase_add_test(cases, rows_that_are_read_keep_their_adapters);
    tcase_add_test(cases, tiles_hold_each_row_once);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
