/* The ops of recurrent layers on the CUDA backend: with float32 activations they give the CPU's
 * bytes, with 16 bits numbers near them. A row's bytes do not depend on the steps, the other
 * sequences or the place of its state. States that a step must not read are NaN. */
#include <algorithm>
#include <functional>
#include <math.h>
#include <string.h>

#include "kernels/cuda/recurrent/recurrent.cuh"
#include "tests/cuda/support.h"

enum { ROWS = 21, STATES = 6, LAYERS = 2, LAYER = 1, MAX_M = 3 * ROWS, CONTEXT = 64 };
using bytes = std::vector<uint8_t>;

/* ---- ops ------------------------------------------------------------------------------------ */

/* An op with random inputs for one sequence, and its constants. */
struct state_op {
    std::string name;
    std::vector<int> width;     /* numbers per row of each input */
    std::vector<floats> inputs; /* [ROWS][width] */
    std::vector<floats> constants;
    size_t n_halves = 9; /* inputs of the activations' type; the others are float32 */
    int y_width, state_floats;
    bool in_place = false; /* y is the first input */
    /* Runs the op. `x` and `c` are inputs and constants in the backend's memory. */
    std::function<void(struct backend *, float *y, float *const *x, float *const *c,
                       struct kv_cache *)>
        run;
};

static floats decays(uint64_t *seed, size_t n) {
    floats values = random_vector(seed, n);
    for (float &value : values) value = -0.3f * fabsf(value);
    return values;
}

static void draw_inputs(state_op *op, uint64_t *seed) {
    for (int width : op->width) op->inputs.push_back(random_vector(seed, (size_t)(ROWS * width)));
}

struct conv_case {
    int N, taps;
    bool gates, has_bias, in_place;
    int C, first; /* of a part of a layer's channels */
};
static const conv_case conv_cases[] = {
    {1, 2, true, false, false, 0, 0},    {40, 3, true, true, false, 0, 0},
    {130, 8, true, false, false, 0, 0},  {129, 4, false, true, false, 0, 0},
    {96, 4, false, false, true, 0, 0},   {130, 4, false, true, true, 300, 131},
    {32, 3, false, false, false, 33, 1},
};

static state_op conv_op(const conv_case &c) {
    uint64_t seed = 31 + (uint64_t)c.N;
    state_op op;
    op.name = text("convolution of %d channels, %d taps", c.N, c.taps);
    op.width.assign(c.gates ? 3 : 1, c.N);
    draw_inputs(&op, &seed);
    const int C = std::max(c.C, c.N);
    op.constants = {random_vector(&seed, (size_t)(c.taps * C)), random_vector(&seed, (size_t)C)};
    op.y_width = c.N, op.state_floats = (c.taps - 1) * C + 3;
    op.in_place = c.in_place;
    op.run = [c](struct backend *b, float *y, float *const *x, float *const *w,
                 struct kv_cache *cache) {
        const struct short_conv conv = {c.N, c.taps, w[0], c.has_bias ? w[1] : nullptr,
                                        c.C, c.first};
        const float *in = c.gates ? x[1] : nullptr, *out = c.gates ? x[2] : nullptr;
        b->compute->short_conv(b, y, in, out, x[0], cache, LAYER, &conv);
    };
    return op;
}

struct matrix_case {
    int Hk, Hv, dk, dv;
    bool tiles;                   /* of the delta rule */
    bool lacks_norm, norms_first; /* of the state space */
    bool by_channel;              /* of the delta rule, with q, k and v in buffers of their own */
};
static const matrix_case matrix_cases[] = {
    {1, 1, 1, 16, false, false, false, true},   {2, 6, 16, 16, true, false, true, false},
    {2, 6, 24, 48, false, true, false, true},   {2, 4, 33, 80, true, false, false, true},
    {1, 2, 128, 32, false, false, true, false}, {1, 1, 256, 16, false, false, false, false},
    {3, 3, 32, 32, false, false, false, true},  {1, 1, 256, 16, false, false, false, true},
};

static state_op delta_op(const matrix_case &c) {
    uint64_t seed = 57 + (uint64_t)c.dv;
    state_op op;
    const size_t Hv = (size_t)c.Hv;
    const int first = 5;
    op.name = text("delta rule of %d x %d x %d", c.Hv, c.dk, c.dv);
    const int keys = c.Hk * c.dk, values = c.Hv * c.dv, gates = c.by_channel ? c.Hv * c.dk : c.Hv;
    op.width = {2 * keys + values, values, c.Hv, gates};
    if (c.by_channel) op.width = {keys, values, keys, values, c.Hv, gates};
    op.n_halves = op.width.size() - 2;
    draw_inputs(&op, &seed);
    op.constants = {decays(&seed, Hv), random_vector(&seed, (size_t)gates),
                    random_vector(&seed, (size_t)c.dv)};
    for (size_t i = 0; i < (size_t)gates; i += 2)
        op.constants[1][i] += 21; /* the straight part of softplus */
    op.y_width = c.Hv * c.dv, op.state_floats = first + c.dk * c.Hv * c.dv;
    op.run = [c](struct backend *b, float *y, float *const *x, float *const *w,
                 struct kv_cache *cache) {
        struct delta_rule rule = {c.Hk, c.Hv, c.dk, c.dv,  c.tiles,      first,
                                  w[0], w[1], w[2], 1e-6f, c.by_channel, c.by_channel};
        const struct delta_rows rows = c.by_channel
                                           ? delta_rows{x[0], x[1], x[4], x[5], x[2], x[3]}
                                           : delta_rows{x[0], x[1], x[2], x[3], nullptr, nullptr};
        b->compute->delta_rule(b, y, &rows, cache, LAYER, &rule);
    };
    return op;
}

static state_op space_op(const matrix_case &c) {
    uint64_t seed = 83 + (uint64_t)c.dv;
    state_op op;
    const size_t Hv = (size_t)c.Hv;
    const int first = 7;
    op.name = text("state space of %d x %d x %d", c.Hv, c.dk, c.dv);
    op.width = {2 * c.Hk * c.dk + c.Hv * c.dv, c.Hv * c.dv, c.Hv};
    draw_inputs(&op, &seed);
    op.constants = {decays(&seed, Hv), random_vector(&seed, Hv), random_vector(&seed, Hv),
                    random_vector(&seed, Hv * (size_t)c.dv)};
    op.y_width = c.Hv * c.dv, op.state_floats = first + c.dk * c.Hv * c.dv;
    op.run = [c](struct backend *b, float *y, float *const *x, float *const *w,
                 struct kv_cache *cache) {
        struct state_space space = {c.Hk,
                                    c.Hv,
                                    c.dk,
                                    c.dv,
                                    first,
                                    w[0],
                                    w[1],
                                    w[2],
                                    0.5f,
                                    1.5f,
                                    c.lacks_norm ? nullptr : w[3],
                                    1e-6f,
                                    c.norms_first};
        const struct space_rows rows = {x[0], x[1], x[2]};
        b->compute->state_space(b, y, &rows, cache, LAYER, &space);
    };
    return op;
}

static std::vector<state_op> all_ops() {
    std::vector<state_op> ops;
    for (const conv_case &c : conv_cases) ops.push_back(conv_op(c));
    for (const matrix_case &c : matrix_cases) {
        ops.push_back(delta_op(c));
        ops.push_back(space_op(c));
    }
    return ops;
}

/* ---- worlds --------------------------------------------------------------------------------- */

/* The rows of a step: the same rows first..first + n - 1 of `seqs` sequences. */
struct rows_of_step {
    int first, n, seqs;
    std::vector<int32_t> state;              /* [seqs] */
    std::vector<int32_t> after = {};         /* [seqs * n], or empty */
    std::vector<int32_t> from = {}, to = {}; /* states to copy first */
};

/* A backend with an op's constants, and a cache whose states are all NaN. */
class world {
    struct backend *b;
    const state_op &op;
    enum dtype act;
    struct kv_cache *cache = nullptr;
    std::vector<std::pair<float *, size_t>> memory; /* of buffer_new */
    std::vector<float *> constants;

    float *put(const void *host, size_t n_bytes) {
        float *data = static_cast<float *>(b->memory->buffer_new(b, n_bytes));
        if (host) b->memory->upload(b, data, host, n_bytes);
        memory.push_back({data, n_bytes});
        return data;
    }
    void drop(size_t kept) {
        for (; memory.size() > kept; memory.pop_back())
            b->memory->buffer_free(b, memory.back().first, memory.back().second);
    }
    float *put_rows(const floats &input, int width, enum dtype type, const rows_of_step &step) {
        floats all;
        for (int s = 0; s < step.seqs; s++)
            all.insert(all.end(), input.begin() + step.first * width,
                       input.begin() + (step.first + step.n) * width);
        const bytes host = packed(type, all);
        return put(host.data(), host.size());
    }

  public:
    world(struct backend *b_, const state_op &op_, enum dtype act_) : b(b_), op(op_), act(act_) {
        struct kv_config config = {1, 1, 16, 1, 16, act == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16};
        struct err err = {};
        config.n_states = STATES, config.state_layers = LAYERS;
        config.state_floats = op.state_floats;
        ck_assert_msg(b->cache->kv_new(b, &cache, &config, &err) == STATUS_OK, "%s", err.message);
        if (!b->host_memory) { /* nothing may depend on them */
            const bytes nan(STATES * kv_state_bytes(&config), 0xff);
            b->memory->upload(b, cache->states, nan.data(), nan.size());
        }
        for (const floats &each : op.constants)
            constants.push_back(put(each.data(), each.size() * sizeof(float)));
    }
    ~world() {
        drop(0);
        b->cache->kv_free(b, cache);
    }
    world(const world &) = delete;
    world &operator=(const world &) = delete;

    /* Runs a step and returns y[seqs * n][y_width]. */
    bytes run(const rows_of_step &step) {
        std::vector<int32_t> position, start = {0}, slot((size_t)(step.seqs * step.n), -1);
        for (int s = 0; s < step.seqs; s++) {
            for (int p = 0; p < step.n; p++) position.push_back(step.first + p);
            start.push_back((int32_t)position.size());
        }
        struct step input = {};
        input.M = step.seqs * step.n, input.S = step.seqs;
        input.token = input.position = position.data(), input.slot = slot.data();
        input.row_start = start.data();
        input.table_stride = CONTEXT / 16;
        const std::vector<int32_t> tables((size_t)(step.seqs * input.table_stride), 0);
        input.table = tables.data();
        input.state = step.state.data();
        input.state_after = step.after.empty() ? nullptr : step.after.data();
        input.n_state_copies = (int)step.from.size();
        input.state_from = step.from.data(), input.state_to = step.to.data();
        const size_t kept = memory.size();
        std::vector<float *> x;
        for (size_t i = 0; i < op.width.size(); i++)
            x.push_back(
                put_rows(op.inputs[i], op.width[i], i < op.n_halves ? act : DTYPE_F32, step));
        const size_t size = act == DTYPE_F32 ? 4 : 2;
        bytes y((size_t)(input.M * op.y_width) * size, 0xff);
        float *out = op.in_place ? x[0] : put(y.data(), y.size());
        b->compute->step_begin(b, &input, cache);
        op.run(b, out, x.data(), constants.data(), cache);
        b->memory->download(b, y.data(), out, y.size());
        drop(kept);
        return y;
    }
};

static struct backend *open_cuda(enum dtype act) {
    struct backend *b = nullptr;
    struct err err = {};
    struct backend_config config = {1, nullptr, MAX_M, 64, act, {}, nullptr, 8, CONTEXT, 1};
    ck_assert_msg(backend_cuda_open(&b, &config, &err) == STATUS_OK, "%s", err.message);
    return b;
}

/* The CPU's outputs of all rows, from inputs as `act` stores them. */
static floats on_cpu(state_op op, enum dtype act) {
    struct backend *b = open_backend("plain", 1, MAX_M, 64);
    for (size_t i = 0; i < std::min(op.inputs.size(), op.n_halves); i++)
        op.inputs[i] = rounded(act, op.inputs[i]);
    floats y;
    {
        world cpu(b, op, DTYPE_F32);
        y = unpacked(DTYPE_F32, cpu.run({0, ROWS, 1, {2}}));
    }
    backend_close(b);
    return y;
}

/* The bytes of rows first..first + n - 1. */
static bytes rows_of(const state_op &op, enum dtype act, const bytes &y, int first, int n) {
    const ptrdiff_t row = (ptrdiff_t)op.y_width * (act == DTYPE_F32 ? 4 : 2);
    return bytes(y.begin() + row * first, y.begin() + row * (first + n));
}

static void check_rows(const state_op &op, enum dtype act, const bytes &got, const bytes &whole,
                       const rows_of_step &step, const char *what) {
    const bytes want = rows_of(op, act, whole, step.first, step.n);
    for (int s = 0; s < step.seqs; s++)
        ck_assert_msg(rows_of(op, act, got, s * step.n, step.n) == want,
                      "%s, type %d: rows %d..%d of sequence %d: %s", op.name.c_str(), act,
                      step.first, step.first + step.n - 1, s, what);
}

/* ---- tests ---------------------------------------------------------------------------------- */

START_TEST(float32_gives_the_bytes_of_the_cpu) {
    struct backend *b = open_cuda(DTYPE_F32);
    for (const state_op &op : all_ops()) {
        const bytes want = packed(DTYPE_F32, on_cpu(op, DTYPE_F32));
        world cuda(b, op, DTYPE_F32);
        const rows_of_step all = {0, ROWS, 1, {3}};
        check_rows(op, DTYPE_F32, cuda.run(all), want, all, "the CPU");
    }
    backend_close(b);
}
END_TEST

START_TEST(halves_are_near_the_cpu) {
    const enum dtype act = activation_types[_i + 1];
    struct backend *b = open_cuda(act);
    for (const state_op &op : all_ops()) {
        const floats want = on_cpu(op, act);
        double most = 0;
        for (float value : want) most = std::max(most, fabs((double)value));
        world cuda(b, op, act);
        check_close(unpacked(act, cuda.run({0, ROWS, 1, {3}})), want, 3 * rounding_of(act),
                    most / 16, op.name);
    }
    backend_close(b);
}
END_TEST

/* Steps of any size, alone and beside other sequences, whose states lie anywhere. */
START_TEST(steps_of_any_size_give_the_same_bytes) {
    const enum dtype act = activation_types[_i];
    struct backend *b = open_cuda(act);
    for (const state_op &op : all_ops()) {
        world cuda(b, op, act);
        const bytes whole = cuda.run({0, ROWS, 1, {5}});
        for (int chunk : {1, 2, 5, 9}) {
            const int seqs = 1 + chunk % 3;
            for (int at = 0; at < ROWS; at += chunk) {
                const rows_of_step step = {at, std::min(chunk, ROWS - at), seqs, {4, 0, 2}};
                check_rows(op, act, cuda.run(step), whole, step, "in steps");
            }
        }
    }
    backend_close(b);
}
END_TEST

/* A copy continues like the first, and so does the first. */
START_TEST(copied_states_continue_like_the_first) {
    const enum dtype act = activation_types[_i];
    struct backend *b = open_cuda(act);
    for (const state_op &op : all_ops()) {
        world cuda(b, op, act);
        const bytes whole = cuda.run({0, ROWS, 1, {5}});
        cuda.run({0, 9, 2, {1, 2}});
        const rows_of_step copies = {9, 4, 3, {4, 0, 1}, {}, {1, 2}, {4, 0}};
        check_rows(op, act, cuda.run(copies), whole, copies, "copies beside the first");
        const rows_of_step first = {9, 4, 1, {2}};
        check_rows(op, act, cuda.run(first), whole, first, "the source of a copy");
    }
    backend_close(b);
}
END_TEST

/* A step copies the state after some of its rows; each copy continues from its row. */
START_TEST(a_state_copied_after_a_row_continues_from_there) {
    const enum dtype act = activation_types[_i];
    struct backend *b = open_cuda(act);
    const std::vector<int32_t> after = {-1, 3, -1, -1, 1, 4, -1, -1, -1};
    for (const state_op &op : all_ops()) {
        world cuda(b, op, act);
        const bytes whole = cuda.run({0, ROWS, 1, {5}});
        const rows_of_step nine = {0, 9, 1, {2}, after};
        check_rows(op, act, cuda.run(nine), whole, nine, "with copies after rows");
        for (int row = 0; row < 9; row++) {
            if (after[(size_t)row] < 0) continue;
            const rows_of_step next = {row + 1, 5, 1, {after[(size_t)row]}};
            check_rows(op, act, cuda.run(next), whole, next, "from a copy after a row");
        }
        const rows_of_step next = {9, 5, 1, {2}};
        check_rows(op, act, cuda.run(next), whole, next, "the sequence's own state");
    }
    backend_close(b);
}
END_TEST

/* The gates of attention's outputs. */
START_TEST(gates_multiply_by_sigmoids) {
    for (const enum dtype act : activation_types) {
        uint64_t seed = 5;
        const size_t n = 700;
        floats y = rounded(act, random_vector(&seed, n)), gate = random_vector(&seed, n);
        gate[3] = -200, gate[4] = 200, gate[5] = 0;
        gate = rounded(act, gate);
        buffer on_y(packed(act, y)), on_gate(packed(act, gate));
        recurrent_gate(act, on_y.data, on_gate.data, n, test_stream());
        for (size_t i = 0; i < n; i++) y[i] = (float)((double)y[i] / (1 + exp(-(double)gate[i])));
        check_close(read_activations(act, on_y), y, rounding_of(act), 1e-6, "gates");
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_recurrent");
    TCase *cases = tcase_create("recurrent");
    tcase_set_timeout(cases, 300);
    tcase_add_test(cases, float32_gives_the_bytes_of_the_cpu);
    tcase_add_loop_test(cases, halves_are_near_the_cpu, 0, 2);
    tcase_add_loop_test(cases, steps_of_any_size_give_the_same_bytes, 0, 3);
    tcase_add_loop_test(cases, copied_states_continue_like_the_first, 0, 3);
    tcase_add_loop_test(cases, a_state_copied_after_a_row_continues_from_there, 0, 3);
    tcase_add_test(cases, gates_multiply_by_sigmoids);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
